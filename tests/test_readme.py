"""The README is run: its programs are written down as they stand, its console blocks must print what they show.

    a ```python block that begins with "# name.py"    is that file
    a ```python block without a name                  is a script that must succeed
    a ```console block                                is commands ("$ ...") with exactly what they print

All blocks of a README share one folder with a copy of knaif.py, from top to bottom. After a wanted change of output,
`python3 tests/test_readme.py` writes the console blocks anew; read the difference before you keep it.
"""
from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
README = os.path.join(ROOT, "README.md")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
NAMED = re.compile(r"# ([a-z_]+\.(?:py|json))\n")


def read():
    with open(README, encoding="utf-8") as file:
        return file.read()


class Shell:
    """A folder with knaif.py in it, and a python3 on PATH that is the one that runs the tests."""

    def __init__(self, folder):
        self.folder = os.path.join(folder, "project")
        commands = os.path.join(folder, "bin")
        os.makedirs(self.folder)
        os.makedirs(commands)
        shutil.copy(os.path.join(ROOT, "knaif.py"), self.folder)
        python = os.path.join(commands, "python3")
        with open(python, "w", encoding="utf-8") as file:
            file.write('#!/bin/sh\nexec "%s" "$@"\n' % sys.executable)
        os.chmod(python, 0o755)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        self.environ = dict(kept, PATH=commands + os.pathsep + os.environ.get("PATH", ""), HOME=self.folder, COLUMNS="80",
                            LC_ALL="C.UTF-8", PYTHONUTF8="1", TERM="dumb")

    def run(self, words, stdin=subprocess.DEVNULL):
        """Run a command without a terminal; return its exit code and both its streams as one text."""
        process = subprocess.run(words, cwd=self.folder, env=self.environ, stdin=stdin, stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, timeout=60, start_new_session=True)
        return process.returncode, process.stdout.decode("utf-8")

    def write(self, name, text):
        with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
            file.write(text)

    def console(self, block):
        """Return a console block as it is when its commands are run now."""
        shown = []
        for line in block.splitlines():
            if line.startswith("$ "):
                output = self.run(["sh", "-c", line[2:]])[1]
                shown += [line] + output.replace(os.path.realpath(self.folder), "/home/you").splitlines()
        return "\n".join(shown) + "\n"


def blocks(text):
    """Yield (line number, kind, content) of each fenced block."""
    for match in BLOCK.finditer(text):
        yield text.count("\n", 0, match.start()) + 1, match[1], match[2]


def replay(text, shell):
    """Run all blocks in turn; yield (line, block, block as it is when run now) of the console blocks."""
    for line, kind, content in blocks(text):
        named = NAMED.match(content)
        if kind == "python" and named:
            shell.write(named[1], content)
        elif kind == "python":
            code, output = shell.run([sys.executable, "-c", content])
            assert code == 0, "README.md:%d: the block fails\n%s" % (line, output)
        elif kind == "console":
            yield line, content, shell.console(content)


def test_every_block_does_what_it_shows(tmp_path):
    different = []
    for line, shown, real in replay(read(), Shell(str(tmp_path))):
        if shown != real:
            different.append("README.md:%d shows\n%sbut now it is\n%s" % (line, shown, real))
    assert not different, "\n".join(different)


def test_blocks_have_a_known_kind():
    text = read()
    assert {kind for _, kind, _ in blocks(text)} <= {"python", "console", "sh", "text"}
    assert text.count("\n```") == 2 * len(list(blocks(text))), "a block is not closed, or has no kind"


def test_the_first_screen_names_the_two_commands_and_a_short_program():
    screen = read().split("\n## ")[0]
    assert "python3 examples/tasks.py demo" in screen and "make test" in screen
    programs = [content for _, kind, content in blocks(screen) if kind == "python"]
    assert len(programs) == 1 and len(programs[0].splitlines()) <= 21


def test_the_readme_names_nothing_outside_the_project():
    for name in re.findall(r"\]\(([^)#]+)\)", read()):
        assert name.startswith("https://") or os.path.exists(os.path.join(ROOT, name)), name


def test_a_console_block_that_shows_something_else_is_seen(tmp_path):
    """The replay itself can fail."""
    text = "```python\n# a.py\nprint(1)\n```\n```console\n$ python3 a.py\n2\n```\n"
    assert [(shown, real) for _, shown, real in replay(text, Shell(str(tmp_path)))] == [
        ("$ python3 a.py\n2\n", "$ python3 a.py\n1\n")
    ]


def rewrite():
    """Write the console blocks of the README anew."""
    text = read()
    with tempfile.TemporaryDirectory() as folder:
        for _, shown, real in replay(text, Shell(folder)):
            text = text.replace("```console\n%s```" % shown, "```console\n%s```" % real, 1)
    with open(README, "w", encoding="utf-8") as file:
        file.write(text)


if __name__ == "__main__":
    rewrite()
