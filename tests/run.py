"""Run the tests in a virtual environment that holds pytest alone.

    python3 tests/run.py [pytest options]          with this Python, in .venv
    python3 tests/run.py --all [pytest options]    with every Python 3.9 or newer found, each in .venv-3.X
    python3 tests/run.py --bench [--peers]         tests/bench.py in .venv, or in .venv-peers beside other libraries

An environment is made once and used again while it is that Python's and complete. Reads and writes nothing else.
"""
from __future__ import print_function

import glob
import os
import re
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OLDEST = (3, 9)
NEWEST = (3, 14)  # the newest that a name on PATH is looked for; other places are searched by pattern
STAMP = "made-by-tests-run"  # a folder without it is somebody else's and is never removed
PEERS = ("jsonschema", "fastjsonschema", "click")
PLACES = (
    "~/.pyenv/versions/*/bin/python3",
    "~/.local/share/uv/python/*/bin/python3",
    "/opt/*/bin/python3",
    "/opt/homebrew/bin/python3.*",
    "/usr/local/bin/python3.*",
)
ASK_VERSION = "import sys; print('.'.join(map(str, sys.version_info[:3])), sys.executable)"


class Refusal(Exception):
    """What is missing and what to do about it, in one sentence."""


def run_quietly(words):
    """Run a program; return (whether it succeeded, its output)."""
    try:
        process = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=ROOT, env=environment())
    except OSError as fault:
        return False, str(fault)
    return process.returncode == 0, process.stdout.decode("utf-8", "replace").strip()


def environment():
    """Return the environment for children without what brings in other modules or makes every start compile anew."""
    unwanted = ("PYTHONPATH", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE")
    return {name: value for name, value in os.environ.items() if name not in unwanted}


def inner_python(folder):
    """Return the interpreter of a virtual environment."""
    parts = ("Scripts", "python.exe") if os.name == "nt" else ("bin", "python")
    return os.path.join(folder, *parts)


def is_fresh(python, folder, packages):
    """Tell whether the folder holds this Python's environment with these packages."""
    code = "import sys, %s; print(sys.version, sys.base_prefix)" % ", ".join(packages)
    there, found = run_quietly([inner_python(folder), "-c", code])
    _, wanted = run_quietly([python, "-c", "import sys; print(sys.version, sys.base_prefix)"])
    return there and found == wanted


def make_environment(python, folder, packages):
    """Return the interpreter of a fresh environment, made if need be."""
    if is_fresh(python, folder, packages):
        return inner_python(folder)
    name = os.path.basename(folder)
    if os.path.isdir(folder):
        if not os.path.exists(os.path.join(folder, STAMP)):
            raise Refusal("%s exists and was not made here: move it away and try again." % folder)
        shutil.rmtree(folder)
    if not run_quietly([python, "-c", "import ensurepip, venv"])[0]:
        raise Refusal(
            "%s cannot make virtual environments: install your system's package for that (often called "
            "python3-venv), or name another interpreter: make test PYTHON=/path/to/python3" % python
        )
    print("Making %s with %s ..." % (name, " ".join(packages)))
    sys.stdout.flush()
    os.mkdir(folder)
    with open(os.path.join(folder, STAMP), "w"):
        pass
    made, output = run_quietly([python, "-m", "venv", folder])
    if not made:
        raise Refusal("%s -m venv failed: %s" % (python, last_line(output)))
    pip = [inner_python(folder), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    made, output = run_quietly(pip + list(packages))
    if not made:
        raise Refusal(
            "pip could not install %s, which is needed once: check the network, or the package index that pip is "
            "configured for, and try again. pip said: %s" % (" ".join(packages), last_line(output))
        )
    return inner_python(folder)


def last_line(text):
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "(nothing)"


def find_pythons():
    """Return {(major, minor): (version, path)} of the interpreters found, the newest of each minor version."""
    candidates = [sys.executable]
    for minor in range(OLDEST[1], NEWEST[1] + 1):
        candidates.append(shutil.which("python3.%d" % minor))
    for place in PLACES:
        candidates.extend(sorted(glob.glob(os.path.expanduser(place))))
    found = {}
    for candidate in candidates:
        answered, text = run_quietly([candidate, "-c", ASK_VERSION]) if candidate else (False, "")
        match = re.match(r"(\d+)\.(\d+)\.(\d+) (\S.*)$", text) if answered else None
        if match:
            version = tuple(int(number) for number in match.groups()[:3])
            if version[:2] >= OLDEST and found.get(version[:2], ((),))[0] < version:
                found[version[:2]] = (version, match.group(4))
    return found


def run_tests(python, folder, options):
    """Run pytest, its output passing through; return (exit status, its closing line)."""
    inner = make_environment(python, folder, ("pytest",))
    where = [] if any(os.path.exists(option.split("::")[0]) for option in options) else ["tests"]
    words = [inner, "-m", "pytest", "-q", "-p", "no:cacheprovider"] + options + where
    process = subprocess.Popen(words, stdout=subprocess.PIPE, cwd=ROOT, env=environment())
    closing = ""
    for line in iter(process.stdout.readline, b""):
        text = line.decode("utf-8", "replace").rstrip("\n")
        print(text)
        sys.stdout.flush()
        closing = text if text.strip() else closing
    return process.wait(), closing


def run_all(options):
    """Run the tests with every Python found; return the exit status."""
    found = find_pythons()
    if not found:
        raise Refusal("No Python %d.%d or newer was found." % OLDEST)
    wanted = [(3, minor) for minor in range(OLDEST[1], NEWEST[1] + 1)]
    report, status = [], 0
    print("Found: " + ", ".join("%s (%s)" % (show(version), path) for version, path in sorted(found.values())))
    for pair, (version, path) in sorted(found.items()):
        print("\nPython %s" % show(version))
        try:
            code, closing = run_tests(path, os.path.join(ROOT, ".venv-%d.%d" % pair), options)
        except Refusal as refusal:
            code, closing = 1, str(refusal)
        status = status or code
        report.append("%-8s %s  %s" % (show(version), "ok    " if code == 0 else "FAILED", closing))
    report.extend("%-8s not found" % show(pair) for pair in wanted if pair not in found)
    print("\n" + "\n".join(report))
    return status


def show(version):
    return ".".join(map(str, version))


def main(words):
    if sys.version_info < OLDEST:
        raise Refusal(
            "Python %d.%d or newer is needed; this is %s. Name another: make test PYTHON=/path/to/python3"
            % (OLDEST + (show(sys.version_info[:3]),))
        )
    if words[:1] == ["--all"]:
        return run_all(words[1:])
    if words[:1] == ["--bench"]:
        peers = words[1:2] == ["--peers"]
        folder, packages = (".venv-peers", PEERS) if peers else (".venv", ("pytest",))
        inner = make_environment(sys.executable, os.path.join(ROOT, folder), packages)
        script = os.path.join(ROOT, "tests", "bench.py")
        return subprocess.call([inner, script] + words[2 if peers else 1 :], env=environment())
    return run_tests(sys.executable, os.path.join(ROOT, ".venv"), words)[0]


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Refusal as refusal:
        sys.exit("tests/run.py: %s" % refusal)
    except KeyboardInterrupt:
        sys.exit(130)
