"""The module copied into programs: under other names, twice in one process, in a zip, with flags, without streams.

The same core calls (CORE) must behave the same in every one of these programs.
"""
from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SCRIPT = os.path.join(ROOT, "knaif.py")

PROGRAM = '''\
"""A program with its own copy of the module."""
from __future__ import annotations
import os
import sys
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Optional
from %(module)s import App, Arg, Ctx, Error, native

app = App("core", version="3.0", expose=("cli",))

@dataclass
class Note:
    text: str
    due: Optional[date]

@app.command
def note(text: Annotated[str, Arg(min=2)], due: Optional[date] = None, tags: "list[str]" = ()) -> Note:
    """Make a note."""
    print("printed by the handler")
    os.system("echo printed by a child")
    return Note(text + "".join(tags), due)

@app.command
def refuse(code: str = "CONFLICT") -> None:
    """Refuse."""
    raise Error(code, "as asked")

@app.command(destructive=True)
def wipe() -> str:
    """Wipe."""
    return "wiped"

@app.command
def save(path: str) -> int:
    """Write a file, and noise on every standard stream."""
    with open(path, "w") as file:
        print("noise")
        os.write(1, b"noise")
        os.write(2, b"noise")
        os.system("echo noise; echo noise >&2")
        file.write("data")
    return len(os.read(0, 10))

@app.native
def plain() -> None:
    """Print for itself."""
    print("plainly")

if __name__ == "__main__":
    app.main()
'''

#: (words, exit code, stdout; what must stand in stderr). Without a terminal nobody can be asked.
CORE = [
    (["note", "ab", "--due", "2026-02-03", "--json"], 0, '{"text":"ab","due":"2026-02-03"}\n', "printed by a child\n"),
    (["note", "a", "--json"], 1, "", '{"error":"VALIDATION_ERROR"'),
    (["note", "ab", "--due", "tomorrow"], 64, "", "--due"),
    (["refuse", "--code", "NOT_FOUND", "--json"], 4, "", '{"error":"NOT_FOUND","message":"as asked"'),
    (["wipe", "--json"], 8, "", '{"error":"CONFIRMATION_REQUIRED"'),
    (["wipe", "--yes"], 0, '"wiped"\n', ""),
    (["note", "ab", "--tags:=[\"c\"]", "--dry-run", "--json"], 0,
     '{"command":"note","args":{"text":"ab","due":null,"tags":["c"]}}\n', ""),
    (["plain"], 0, "plainly\n", ""),
    (["--version"], 0, "core 3.0\n", ""),
    (["nothing"], 4, "", "NOT_FOUND"),
]
FEW = CORE[:2] + CORE[4:5]


def start(words, folder, environ=None, stdin=b""):
    """Run a Python process without a terminal; return exit code, stdout and stderr."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "KNAIF"))}
    process = subprocess.run([sys.executable] + words, cwd=str(folder), input=stdin, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, env=dict(kept, **environ or {}), timeout=60,
                             start_new_session=True)
    return process.returncode, process.stdout.decode("utf-8"), process.stderr.decode("utf-8")


def check(prefix, folder, rows=CORE, environ=None):
    """Run the core calls behind a prefix of words and compare what comes of each."""
    for words, code, out, err in rows:
        ended = start(prefix + words, folder, environ)
        assert ended[:2] == (code, out), (words, ended)
        assert err in ended[2] if err else ended[2] == "", (words, ended)


def lay_out(folder, package, program="program"):
    """Put the module into a package (its last part is the module's new name) and a program that uses it beside that."""
    parts = package.split(".")
    inner = os.path.join(str(folder), *parts[:-1])
    os.makedirs(inner, exist_ok=True)
    shutil.copy(SCRIPT, os.path.join(inner, parts[-1] + ".py"))
    for depth in range(1, len(parts)):
        open(os.path.join(str(folder), *parts[:depth], "__init__.py"), "w").close()
    with open(os.path.join(str(folder), program + ".py"), "w", encoding="utf-8") as file:
        file.write(PROGRAM % {"module": package})


@pytest.fixture(scope="module")
def vendored(tmp_path_factory):
    """A program whose copy of the module stands in a package under another name."""
    folder = tmp_path_factory.mktemp("vendored")
    lay_out(folder, "acme._vendor.lines")
    return folder


def test_in_a_package_under_another_name(vendored):
    check(["program.py"], vendored)


def test_as_a_module(vendored):
    check(["-m", "program"], vendored, FEW)


def test_the_copy_itself_as_a_module(vendored):
    code, out, _ = start(["-m", "acme._vendor.lines", "run", "program.py", "wipe", "--yes"], vendored)
    assert (code, out) == (0, '"wiped"\n')
    code, out, _ = start(["-m", "acme._vendor.lines", "selftest", "program:app"], vendored)
    assert (code, out) == (0, "program:app: no problems\n")


@pytest.mark.parametrize(
    "flags", [["-O"], ["-OO"], ["-S"], ["-B"], ["-W", "error"], ["-X", "dev"], ["-X", "importtime"], ["-bb"]],
    ids=" ".join,
)
def test_under_flags(vendored, flags):
    for words, code, out, _ in FEW:
        assert start(flags + ["program.py"] + words, vendored)[:2] == (code, out)


def test_isolated(vendored):
    """Under -I a program's own folder is not on sys.path: the program must be run through the module."""
    for words, code, out, _ in FEW:
        run = start(["-I", os.path.join("acme", "_vendor", "lines.py"), "run", "program.py"] + words, vendored)
        assert run[:2] == (code, out), run


@pytest.mark.skipif(sys.version_info < (3, 11), reason="PYTHONSAFEPATH is of Python 3.11")
def test_safe_path(vendored):
    for words, code, out, _ in FEW:
        run = start([os.path.join("acme", "_vendor", "lines.py"), "run", "program.py"] + words, vendored,
                    {"PYTHONSAFEPATH": "1"})
        assert run[:2] == (code, out), run


def test_other_environments(vendored):
    check(["program.py"], vendored, FEW, {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"})
    check(["program.py"], vendored, FEW, {"PYTHONIOENCODING": "latin-1"})
    check(["program.py"], vendored, FEW, {"PYTHONUNBUFFERED": "1", "PYTHONHASHSEED": "7"})


# zip


@pytest.fixture(scope="module")
def archive(vendored, tmp_path_factory):
    """One zip that is a program, with nothing beside it."""
    path = tmp_path_factory.mktemp("zip") / "program.zip"
    with zipfile.ZipFile(str(path), "w") as file:
        file.write(str(vendored / "program.py"), "__main__.py")
        file.write(str(vendored / "program.py"), "program.py")
        for name in ("acme/__init__.py", "acme/_vendor/__init__.py", "acme/_vendor/lines.py"):
            file.write(str(vendored / name), name)
    return path


def test_a_zip_is_a_program(archive):
    check([str(archive)], archive.parent, FEW)


def test_import_from_a_zip(archive):
    code = "import sys; sys.path.insert(0, sys.argv.pop(1)); import program; program.app.main()"
    check(["-c", code, str(archive)], archive.parent, FEW)


def test_the_module_in_a_zip_is_a_program_too(archive):
    code, out, err = start(["-m", "acme._vendor.lines", "selftest"], archive.parent, {"PYTHONPATH": str(archive)})
    assert (code, err) == (0, "") and out.endswith("no problems\n")


# two copies in one process


def test_two_copies_in_one_process(tmp_path):
    lay_out(tmp_path, "acme._vendor.knaif", "first")
    lay_out(tmp_path, "other.lines", "second")
    (tmp_path / "both.py").write_text('''
import first, second
from acme._vendor import knaif as one
from other import lines as two

assert one is not two and first.app.__class__ is one.App and second.app.__class__ is two.App
assert not issubclass(one.Error, two.Error)

# A function that one copy decorated can be registered with an App of the other.
@one.command(keywords=["x"])
def shared(size: int, fast: bool = False) -> list:
    "Shared."
    return [size, fast]

@one.native
def here() -> str:
    "Native."
    return "here"

app = two.App("both", version="1", expose=("cli",), commands=[shared, here, first.note, second.refuse])

if __name__ == "__main__":
    import sys
    {"first": first.app, "second": second.app, "both": app}[sys.argv.pop(1)].main()
''', encoding="utf-8")
    check(["both.py", "first"], tmp_path, FEW)
    check(["both.py", "second"], tmp_path, FEW)
    check(["both.py", "both"], tmp_path, [
        (["shared", "3", "--fast", "--json"], 0, "[3,true]\n", ""),
        (["shared", "x"], 64, "", "size"),
        (["here"], 0, '"here"\n', ""),
        (["refuse", "--json"], 5, "", '{"error":"CONFLICT","message":"as asked"'),
        (CORE[0]),
    ])


# streams that are closed


CLOSED = [numbers for numbers in ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2))]


def start_closed(closed, words, folder):
    """Run the program with some of descriptors 0, 1 and 2 closed; return exit code, stdout and stderr."""
    marks = "".join(" %d<&-" % number for number in closed)
    process = subprocess.run(["sh", "-c", 'exec "$@"' + marks, "sh", sys.executable, "program.py"] + words,
                             cwd=str(folder), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, timeout=60, start_new_session=True)
    return process.returncode, process.stdout.decode("utf-8"), process.stderr.decode("utf-8")


@pytest.mark.parametrize("closed", CLOSED, ids=str)
def test_closed_streams(vendored, closed):
    """A stream that is closed is the null device, as a child of a daemon expects it."""
    code, out, err = start_closed(closed, ["note", "ab", "--json"], vendored)
    assert (code, out) == (0, "" if 1 in closed else '{"text":"ab","due":null}\n')
    assert err == ("" if 2 in closed else "printed by the handler\nprinted by a child\n")
    code, out, err = start_closed(closed, ["refuse", "--json"], vendored)
    assert (code, out) == (5, "") and "Traceback" not in err


@pytest.mark.parametrize("closed", CLOSED, ids=str)
def test_a_file_that_a_handler_opens_never_takes_the_place_of_a_stream(vendored, tmp_path, closed):
    path = tmp_path / "file"
    code, out, err = start_closed(closed, ["save", str(path)], vendored)
    assert path.read_text() == "data" and "Traceback" not in err
    assert out == ("" if 1 in closed else "0\n")


def test_the_current_folder_is_gone(vendored, tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    code = "import os, sys; os.rmdir(os.getcwd()); os.execv(sys.executable, [sys.executable] + sys.argv[1:])"
    run = start(["-c", code, str(vendored / "program.py"), "wipe", "--yes"], gone)
    assert run == (0, '"wiped"\n', "")


# Regressions
