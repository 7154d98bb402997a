"""MAIN: `python3 knaif.py`, the program that looks at other programs and runs them."""
from __future__ import annotations

import glob
import io
import json
import os
import re
import shutil
import subprocess
import sys

import pytest

import knaif as nk

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SCRIPT = os.path.join(ROOT, "knaif.py")

HELLO = '''\
"""A small program."""
import sys
import knaif as nk

app = nk.App("hello", version="2.1.0", expose=("cli", "agent"), aliases={"greet": {"t": "times"}})

@app.command
def greet(name: str, times: int = 1) -> str:
    """Greet somebody."""
    print("a stray word")
    return " ".join(["hello", name] * times)

@app.command
def search(text: str, **filters: str) -> dict:
    """Search with whatever filters."""
    return {"text": text, "filters": filters}

@app.command(destructive=True, expose=("mcp",))
def drop() -> None:
    """Drop everything."""

@app.command
def fail(code: str) -> str:
    """Fail."""
    raise nk.Error(code, "as asked")

@app.native
def words(*given: str) -> None:
    """Print words and how the program sees its own line."""
    print(list(given), [word.rpartition("/")[2] for word in sys.argv])

if __name__ == "__main__":
    app.main()
'''


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A folder with knaif.py and the program hello.py beside it."""
    folder = tmp_path_factory.mktemp("project")
    shutil.copy(SCRIPT, folder / "knaif.py")
    (folder / "hello.py").write_text(HELLO, encoding="utf-8")
    return folder


@pytest.fixture
def here(tmp_path):
    """Leave sys.path, sys.modules and sys.argv as they were; return an empty folder."""
    path, modules, argv = sys.path[:], set(sys.modules), sys.argv[:]
    yield tmp_path
    sys.path[:], sys.argv[:] = path, argv
    for name in set(sys.modules) - modules:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in sys.modules[name].__file__:
            del sys.modules[name]


def call(*words):
    """Run a line of this module's own App inside this process; return exit code, stdout and stderr."""
    out, err = io.BytesIO(), io.BytesIO()
    code = nk._main_app().run(list(words), env=nk.Env(stdin=None, stdout=out, stderr=err, tty=None))
    return code, out.getvalue().decode("utf-8"), err.getvalue().decode("utf-8")


def refusal(*words):
    """Run a line that is refused; return exit code and the failure on stderr."""
    code, out, err = call(*words)
    assert out == ""
    return code, json.loads(err)


def start(words, folder, stdin=b"", python=sys.executable, **environ):
    """Run a Python process; return exit code, stdout and stderr."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "KNAIF"))}
    process = subprocess.run([python] + words, cwd=str(folder), input=stdin, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, env=dict(kept, **environ), timeout=60)
    return process.returncode, process.stdout.decode("utf-8"), process.stderr.decode("utf-8")


def write(folder, name, text):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


# tools and schema


def test_tools_lists_the_commands_their_surfaces_and_why_one_is_withheld(here):
    path = write(here, "hello.py", HELLO)
    code, out, err = call("tools", path, "--json")
    assert (code, err) == (0, "")
    report = json.loads(out)
    assert list(report) == ["name", "version", "tools"] and (report["name"], report["version"]) == ("hello", "2.1.0")
    tools = {tool["name"]: tool for tool in report["tools"]}
    assert list(tools) == ["greet", "search", "drop", "fail", "words"]
    assert tools["greet"] == {
        "name": "greet", "description": "Greet somebody.", "surfaces": ["agent", "cli"], "flags": []}
    assert tools["drop"]["surfaces"] == ["mcp"] and tools["drop"]["flags"] == ["destructive"]
    assert tools["words"]["surfaces"] == ["cli"] and tools["words"]["flags"] == ["native"]
    assert tools["search"]["surfaces"] == ["cli"]
    assert list(tools["search"]["withheld"]) == ["agent"] and "**filters" in tools["search"]["withheld"]["agent"]


@pytest.mark.parametrize(
    "surface, names",
    [("cli", ["greet", "search", "fail", "words"]), ("agent", ["greet", "fail"]), ("mcp", ["drop"])],
)
def test_tools_of_one_surface(here, surface, names):
    code, out, _ = call("tools", write(here, "hello.py", HELLO), "--surface", surface)
    assert code == 0 and [tool["name"] for tool in json.loads(out)["tools"]] == names


def test_tools_names_a_faulty_command_and_shows_the_others(here):
    faulty = HELLO.replace("times: int", "times: 'complex'")
    code, out, _ = call("tools", write(here, "hello.py", faulty))
    report = json.loads(out)
    assert code == 70
    assert [tool["name"] for tool in report["tools"]] == ["search", "drop", "fail", "words"]
    assert len(report["problems"]) == 1 and "greet" in report["problems"][0] and "times" in report["problems"][0]


def test_schema_of_one_command(here):
    code, out, err = call("schema", write(here, "hello.py", HELLO), "greet")
    assert (code, err) == (0, "")
    shown = json.loads(out)
    assert shown["name"] == "greet" and shown["output"] == {"type": "string"}
    assert shown["input"]["required"] == ["name"] and shown["input"]["properties"]["times"]["type"] == "integer"


def test_schema_of_all_commands_is_the_whole_description(here):
    code, out, _ = call("schema", write(here, "hello.py", HELLO))
    shown = json.loads(out)
    assert code == 0 and sorted(shown) == ["commands", "name", "protocol", "version"]
    assert all("input" in command for command in shown["commands"])


def test_schema_of_an_unknown_command_names_the_nearest(here):
    path = write(here, "hello.py", HELLO)
    assert refusal("schema", path, "gret") == (4, {
        "error": "NOT_FOUND", "message": f"{path} has no command gret", "retryable": False, "hint": "there is: greet and 4 more"})


# how a program is named


def test_a_module_and_a_name(here, monkeypatch):
    write(here, "hello_by_name.py", HELLO)
    monkeypatch.chdir(here)
    code, out, _ = call("tools", "hello_by_name:app")
    assert code == 0 and json.loads(out)["name"] == "hello"


def test_a_module_in_a_package(here, monkeypatch):
    (here / "pack_of_hello").mkdir()
    write(here, "pack_of_hello/__init__.py", "")
    write(here, "pack_of_hello/inner.py", HELLO)
    monkeypatch.chdir(here)
    assert call("tools", "pack_of_hello.inner:app")[0] == 0


def test_a_file_without_an_ending(here):
    assert call("tools", write(here, "hello", HELLO))[0] == 0


def test_several_apps_are_told_apart_by_name(here):
    path = write(here, "two.py", HELLO + "other = nk.App('other')\nsame = app\n")
    assert refusal("tools", path) == (1, {
        "error": "BAD_REQUEST", "message": f"{path} has several Apps: app, other, same", "retryable": False,
        "hint": f"name one: {path}:other"})
    code, out, _ = call("tools", path + ":other")
    assert code == 0 and json.loads(out)["name"] == "other"


def test_one_app_under_two_names_is_one_app(here):
    assert call("tools", write(here, "same.py", HELLO + "same = app\nApp = nk.App\n"))[0] == 0


def test_an_object_that_only_claims_to_be_an_app_is_not_asked(here):
    trap = "class Trap:\n    def __getattr__(self, name):\n        raise RuntimeError(name)\ntrap = Trap()\n"
    assert call("tools", write(here, "trap.py", HELLO + trap))[0] == 0


NOT_PROGRAMS = [
    # (text, content of x.py or None, exit code, error, message, hint)
    ("{}/none.py", None, 4, "NOT_FOUND", 'there is no file "{}/none.py"', None),
    ("{}", None, 4, "NOT_FOUND", 'there is no file "{}"', None),
    ("hello", None, 1, "BAD_REQUEST", '"hello" names no program: write file.py, file.py:name or module:name', None),
    (":app", None, 1, "BAD_REQUEST", '":app" names no program: write file.py, file.py:name or module:name', None),
    ("no_such_module:app", None, 4, "NOT_FOUND", "there is no module no_such_module", None),
    ("json.none:app", None, 4, "NOT_FOUND", "there is no module json.none", None),
    ("a-b:app", None, 1, "BAD_REQUEST",
     '"a-b" is no module name: write file.py, file.py:name or module:name', None),
    ("json:app", None, 4, "NOT_FOUND", "json has no App named app", None),
    ("{}/x.py", "", 4, "NOT_FOUND", "{}/x.py has no App among its variables", "an App is made by: app = nk.App(...)"),
    ("{}/x.py:ap", "import knaif\napp = knaif.App('x')", 4, "NOT_FOUND", "{}/x.py has no App named ap",
     "there is: app"),
    ("{}/x.py:app", "app = 1", 4, "NOT_FOUND", "{}/x.py has no App named app", None),
    ("{}/x.py", "a b", 1, "BAD_REQUEST", "{}/x.py is no Python: invalid syntax (line 1)", None),
    ("{}/x.py", "1/0", 1, "BAD_REQUEST",
     '{}/x.py failed while it was imported: ZeroDivisionError: "division by zero"', None),
    ("{}/x.py", "import no_such_library", 1, "BAD_REQUEST",
     '{}/x.py failed while it was imported: ModuleNotFoundError: "No module named \'no_such_library\'"', None),
    ("{}/x.py", "import sys\nsys.exit(0)", 1, "BAD_REQUEST", "{}/x.py ended the process while it was imported",
     'put app.main() under: if __name__ == "__main__":'),
    ("{}/x.py", "class App:\n    __knaif_app__ = 2\napp = App()", 1, "BAD_REQUEST",
     "app of {}/x.py speaks protocol 2, and this file speaks protocol 1",
     "use the copy of this file that stands beside the program"),
    ("{}/x.py", "class App:\n    __knaif_app__ = '1'\napp = App()", 1, "BAD_REQUEST",
     "app of {}/x.py speaks a protocol that is no number, and this file speaks protocol 1",
     "use the copy of this file that stands beside the program"),
]


@pytest.mark.parametrize("text, content, code, error, message, hint", NOT_PROGRAMS)
def test_what_is_no_program_is_refused_in_one_sentence(here, text, content, code, error, message, hint):
    if content is not None:
        write(here, "x.py", content)
    wire = {"error": error, "message": message.replace("{}", str(here)), "retryable": False}
    if hint is not None:
        wire["hint"] = hint
    assert refusal("tools", text.replace("{}", str(here))) == (code, wire)


def test_a_refusal_of_the_programs_own_copy_keeps_its_code(here):
    strange = """
class Refusal(Exception):
    code, message = "RATE_LIMITED", "not now"
class App:
    __knaif_app__ = 1
    def describe(self):
        raise Refusal()
    def selftest(self):
        raise KeyError("x")
app = App()
"""
    path = write(here, "strange.py", strange)
    assert refusal("tools", path) == (6, {"error": "RATE_LIMITED", "message": "not now", "retryable": True})
    assert refusal("selftest", path) == (1, {
        "error": "BAD_REQUEST", "message": f"selftest of {path} failed: KeyError: \"'x'\"", "retryable": False})


STRANGE = """
class Text:
    def __str__(self):
        raise RuntimeError("no text")
class Silent(BaseException):
    __str__ = Text.__str__
    code = property(Text.__str__)
class App:
    __knaif_app__ = 1
    def describe(self):
        %s
    def selftest(self):
        %s
    def completion(self, shell):
        %s
    def main(self, words):
        %s
app = App()
"""
#: (what every method of an App does, what the refusal says after "METHOD of FILE ")
FAILURES = [
    ("raise KeyError('x')", "failed: KeyError: \"'x'\""),
    ("raise BaseException('x')", 'failed: BaseException: "x"'),
    ("raise GeneratorExit('x')", 'failed: GeneratorExit: "x"'),
    ("raise Silent()", "failed: Silent: something that has no text"),
    ("raise Exception(Text())", "failed: Exception: something that has no text"),
    ("self.nothing", "failed: AttributeError: \"'App' object has no attribute 'nothing'\""),
    ("raise RecursionError('deep')", 'failed: RecursionError: "deep"'),
    ("raise ValueError('long ' * 100)", 'failed: ValueError: "%s"...' % ("long " * 100)[:195]),
    ("raise ValueError('\\x1b[2J')", 'failed: ValueError: "\\u001b[2J"'),
]


def strange(here, act):
    return write(here, "strange.py", STRANGE % ((act,) * 4))


@pytest.mark.parametrize("act, said", FAILURES)
def test_a_method_of_a_program_that_fails_is_one_refusal(here, act, said):
    path = strange(here, act)
    lines = (("describe", "tools", path), ("describe", "schema", path), ("selftest", "selftest", path),
             ("completion", "completion", "bash", path), ("main", "run", path, "x"))
    for method, *words in lines:
        assert refusal(*words) == (1, {
            "error": "BAD_REQUEST", "message": f"{method} of {path} {said}", "retryable": False}), words


def test_sys_exit_ends_main_and_nothing_else(here):
    path = strange(here, "raise SystemExit(5)")
    assert refusal("tools", path)[1]["message"] == f'describe of {path} failed: SystemExit: "5"'
    assert refusal("selftest", path)[1]["message"] == f'selftest of {path} failed: SystemExit: "5"'
    assert call("run", path) == (5, "", "")
    for code, status, err in (("None", 0, ""), ("257", 1, ""), ("'a\\nb'", 1, '"a\\nb"\n'), ("1.5", 1, '"1.5"\n')):
        assert call("run", strange(here, f"raise SystemExit({code})")) == (status, "", err)


def test_ctrl_c_in_a_program_is_an_interruption(here):
    path = strange(here, "raise KeyboardInterrupt")
    assert refusal("tools", path) == (130, {
        "error": "REQUEST_ABORTED", "message": "the call was interrupted", "retryable": False})
    path = write(here, "x.py", "raise KeyboardInterrupt")
    assert refusal("tools", path)[0] == 130


NONSENSE = [
    # (method, what it returns, what the refusal says)
    ("describe", "None", "answered with nonsense: expected an object, got null"),
    ("describe", "object()", "answered with a value of the Python type object"),
    ("describe", "{'name': float('nan')}", 'answered with NaN at "/name"'),
    ("describe", "{'name': 'x'}", None),
    ("describe", "{'name': 'x', 'version': '1', 'commands': [], 'problems': {}}",
     "answered with nonsense at /problems: expected an array, got the object {}"),
    ("describe", "{'name': 'x', 'version': '1', 'commands': [{}], 'problems': []}", None),
    ("describe", "{'name': 'x', 'version': 7, 'commands': [], 'problems': []}",
     "answered with nonsense at /version: expected a string, got the number 7"),
    ("selftest", "None", "answered with nonsense: expected an array, got null"),
    ("selftest", "[1]", "answered with nonsense at /0: expected a string, got the number 1"),
    ("completion", "None", "answered with nonsense: expected a string, got null"),
    ("completion", "b'x'", "answered with a value of the Python type bytes"),
]


@pytest.mark.parametrize("method, value, said", NONSENSE)
def test_a_method_of_a_program_that_answers_with_nonsense_is_one_refusal(here, method, value, said):
    path = strange(here, "return " + value)
    words = {"describe": ["tools", path], "selftest": ["selftest", path], "completion": ["completion", "zsh", path]}
    code, failure = refusal(*words[method])
    assert code == 1 and failure["error"] == "BAD_REQUEST"
    if said is None:
        assert failure["message"].startswith(f"{method} of {path} answered with nonsense")
    else:
        assert failure["message"] == f"{method} of {path} {said}"


def test_main_that_returns_is_refused(here):
    path = strange(here, "return 'later'")
    assert refusal("run", path)[1]["message"] == f'main of {path} returned "later" instead of ending the process'


def test_an_app_without_the_methods_of_its_protocol_is_refused(here):
    path = write(here, "bare.py", "class App:\n    __knaif_app__ = 1\napp = App()\n")
    for words, method in ((["tools", path], "describe"), (["run", path], "main")):
        assert refusal(*words)[1]["message"] == (
            f"{method} of {path} failed: AttributeError: \"'App' object has no attribute '{method}'\"")


def test_a_description_of_a_later_copy_may_hold_more(here):
    path = strange(here, "return {'name': 'x', 'version': '1', 'commands': [{'name': 'c', 'description': '', "
                   "'surfaces': ['cli', 'new'], 'flags': [], 'more': 1}], 'problems': [], 'news': []}")
    code, out, err = call("tools", path, "--json")
    assert (code, err) == (0, "") and json.loads(out)["tools"] == [
        {"name": "c", "description": "", "surfaces": ["cli", "new"], "flags": []}]


FAILED_IMPORTS = [
    ("raise BaseException('x')", 'failed while it was imported: BaseException: "x"'),
    ("raise GeneratorExit", 'failed while it was imported: GeneratorExit: ""'),
    ("class Bad(Exception):\n    def __str__(self):\n        return 1\nraise Bad",
     "failed while it was imported: Bad: something that has no text"),
    ("raise SyntaxError", "failed while it was imported: SyntaxError: \"None\""),
    ("if 1:\nx", None),
    ("import broken_part", "is no Python: invalid syntax (line 2 of broken_part.py)"),
    ("import sys\nsys.exit('bye')", "ended the process while it was imported"),
    ("def f(): f()\nf()", None),
]


@pytest.mark.parametrize("content, said", FAILED_IMPORTS)
def test_whatever_an_import_raises_is_one_refusal(here, content, said):
    write(here, "broken_part.py", "\na b\n")
    path = write(here, "x.py", content)
    code, failure = refusal("tools", path)
    assert code == 1 and failure["error"] == "BAD_REQUEST"
    assert failure["message"].startswith(path + " ") and len(failure["message"]) < 500
    if said is not None:
        assert failure["message"] == f"{path} {said}"


def test_a_refusal_of_another_copy_while_it_is_imported_keeps_its_code(here):
    path = write(here, "x.py", "class E(Exception):\n    code, message, hint = 'REGISTRATION_ERROR', 'f has no x', 1\nraise E")
    assert refusal("tools", path) == (70, {
        "error": "REGISTRATION_ERROR", "message": f"{path}: f has no x", "retryable": False})


def test_names_of_a_module_that_are_no_text_and_types_that_cannot_be_asked(here):
    trap = """
class Meta(type):
    def __getattr__(cls, name):
        raise RuntimeError(name)
class Trap(metaclass=Meta):
    pass
trap = Trap()
globals()[5] = app
"""
    assert call("tools", write(here, "trap.py", HELLO + trap))[0] == 0


def test_a_module_that_puts_something_else_in_its_place(here, monkeypatch):
    write(here, "replaced.py", "import sys\nsys.modules[__name__] = 5\n")
    monkeypatch.chdir(here)
    try:
        assert refusal("tools", "replaced:app")[1]["message"] == "replaced has no App named app"
    finally:
        sys.modules.pop("replaced", None)


def test_every_problem_of_a_program_is_told(here):
    faulty = HELLO.replace("times: int", "times: 'complex'").replace("code: str", "code: 'nothing'")
    path = write(here, "faulty.py", faulty)
    code, out, err = call("selftest", path)
    assert (code, err) == (70, "") and out.endswith(f"\n{path}: 2 problems\n")
    assert "times" in out.splitlines()[0] and "code" in out.splitlines()[1]
    code, out, _ = call("tools", path, "--json")
    assert code == 70 and len(json.loads(out)["problems"]) == 2


def test_a_listing_of_commands_is_one_collection(here):
    path = write(here, "hello.py", HELLO)
    code, out, err = call("tools", path, "--table", "name,surfaces")
    assert (code, err) == (0, "") and out.splitlines()[1] == 'greet   ["agent","cli"]'
    assert call("schema", path, "--count-by", "withheld.agent", "--json")[0] == 0
    for words in (["run", path, "greet"], ["completion", "bash"]):
        code, out, err = call("--count-by", "x", *words)
        assert (code, out) == (64, "") and err.startswith("a view needs a collection, and the result is a ")


# what a program prints while it is imported

LOUD = HELLO.replace('import sys\n', """import os, sys
print("rm -rf x")
sys.stdout.write("half a line")
os.write(1, b"by descriptor\\n")
os.system("echo by child")
""", 1)


@pytest.mark.parametrize("words, code", [
    (["completion", "bash", "loud.py"], 0), (["completion", "zsh", "loud:app"], 0),
    (["completion", "fish", "loud.py:nope"], 4), (["tools", "loud.py"], 0), (["tools", "loud.py:nope"], 4),
    (["schema", "loud.py", "greet"], 0), (["selftest", "loud.py"], 0), (["run", "loud.py", "greet", "you"], 0),
    (["run", "loud.py", "words", "a"], 0), (["run", "loud.py:nope"], 4), (["run", "loud.py", "--version"], 0),
])
def test_what_an_import_prints_never_reaches_standard_output(project, words, code):
    write(project, "loud.py", LOUD)
    ended = start(["knaif.py"] + words, project)
    assert ended[0] == code, ended
    for noise in ("rm -rf x", "half a line", "by descriptor", "by child"):
        assert noise in ended[2] and noise not in ended[1]
    quiet = [word.replace("loud", "hello") for word in words]
    assert ended[1].replace("loud", "hello") == start(["knaif.py"] + quiet, project)[1]
    assert (ended[1] == "") == (code == 4)


def test_run_into_a_reader_that_went_away(project):
    write(project, "loud.py", LOUD)
    line = f"{sys.executable} knaif.py run loud.py greet you; echo $? >&2"
    process = subprocess.run(["sh", "-c", "(" + line + ") | true"], cwd=str(project), stderr=subprocess.PIPE,
                             timeout=60)
    assert process.stderr.decode().split()[-1] in ("141", "0") and b"Traceback" not in process.stderr


# completion and selftest


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_of_a_program_and_of_this_file(here, shell):
    code, out, err = call("completion", shell, write(here, "hello.py", HELLO))
    assert (code, err) == (0, "") and "greet" in out
    code, out, err = call("completion", shell)
    assert (code, err) == (0, "") and "selftest" in out


def test_completion_of_an_unknown_shell_is_refused(here):
    code, failure = refusal("completion", "tcsh")
    assert (code, failure["error"]) == (1, "VALIDATION_ERROR")


def test_selftest_of_the_module():
    code, out, err = call("selftest", "--json")
    report = json.loads(out)
    assert (code, err, report["problems"]) == (0, "", [])
    assert int(report["tested"].split()[0]) > len(nk.MAIN_REFUSED_JSON) + len(nk.MAIN_SCHEMAS)
    assert report["version"] == nk.__version__
    code, out, _ = call("selftest")
    assert code == 0 and out == report["tested"] + ": no problems\n"


def test_selftest_of_a_broken_module_says_what_fails(monkeypatch):
    monkeypatch.setattr(nk, "_json_loads", lambda text: None)
    monkeypatch.setattr(nk, "MAIN_SCHEMAS", (({"type": "string"}, (1,), ("a",)),))
    assert list(nk._main_test_vectors())[-2:] == [
        '1 was misjudged by {"type": "string"}', '"a" was misjudged by {"type": "string"}']
    assert "the JSON text \"[NaN]\" was let in" in list(nk._main_test_vectors())


def test_selftest_of_a_program(here):
    path = write(here, "hello.py", HELLO)
    assert call("selftest", path) == (0, f"{path}: no problems\n", "")
    path = write(here, "faulty.py", HELLO.replace("times: int", "times: 'complex'"))
    code, out, err = call("selftest", path)
    assert (code, err) == (70, "") and out.endswith(f"\n{path}: 1 problem\n") and "times" in out


# run, in processes of its own


@pytest.mark.parametrize(
    "words, code, out, err",
    [
        (["greet", "you", "-t", "2", "--json"], 0, '"hello you hello you"\n', "a stray word\n"),
        (["greet", "you", "--dry-run", "--json"], 0, '{"command":"greet","args":{"name":"you","times":1}}\n', ""),
        (["--version"], 0, "hello 2.1.0\n", ""),
        (["words", "a", "--", "--json"], 0, "['a', '--json'] ['hello.py', 'words', 'a', '--', '--json']\n", ""),
        (["fail", "CONFLICT", "--json"], 5, "",
         '{"error":"CONFLICT","message":"as asked","retryable":false}\n'),
        (["greet", "you", "--times", "x"], 64, "", None),
        (["drop", "--yes"], 4, "", None),
    ],
)
def test_run_hands_over_every_word_and_the_exit_code(project, words, code, out, err):
    ended = start(["knaif.py", "run", "hello.py"] + words, project)
    assert ended[:2] == (code, out)
    if err is not None:
        assert ended[2] == err


def test_run_shows_the_programs_own_help(project):
    code, out, err = start(["knaif.py", "run", "hello.py", "--help"], project)
    direct = start(["hello.py", "--help"], project)
    assert (code, out, err) == direct and "Greet somebody" in out


def test_run_hands_over_standard_input(project):
    assert start(["knaif.py", "run", "hello.py", "greet"], project, b" you \n")[:2] == (0, '"hello you"\n')


def test_run_without_a_program_says_what_is_missing(project):
    code, out, err = start(["knaif.py", "run"], project)
    assert (code, out) == (1, "") and json.loads(err)["error"] == "VALIDATION_ERROR"


def test_a_program_that_runs_its_line_when_imported_is_refused_and_runs_nothing(project):
    write(project, "eager.py", HELLO.replace('if __name__ == "__main__":\n    app.main()', "app.main()").replace(
        '"hello", version', '"hello", default_command="tools", version').replace("def greet", "def tools"))
    for words in (["tools", "eager.py"], ["run", "eager.py", "tools", "x"]):
        code, out, err = start(["knaif.py"] + words, project)
        assert code == 1 and "stray" not in err and "eager.py ended the process while it was imported" in err


def test_the_cause_of_a_failed_import_is_shown_on_request(project):
    write(project, "broken.py", "import no_such_library\n")
    code, _, err = start(["knaif.py", "tools", "broken.py"], project)
    assert code == 1 and "Traceback" not in err
    code, _, err = start(["knaif.py", "tools", "broken.py"], project, KNAIF_TRACE="1")
    assert code == 1 and "Traceback" in err and "import no_such_library" in err


# sys.path: nothing beside a program is imported in the standard library's place

SPY = "import sys\nsys.stderr.write('the wrong %s was imported\\n' % __name__)\nraise SystemExit(99)\n"
SHADOWED = "json re typing enum inspect dataclasses datetime doctest difflib traceback base64 decimal".split()


@pytest.fixture(scope="module")
def hostile(project, tmp_path_factory):
    """A folder with the program in it and, beside it, files named like modules of the standard library."""
    folder = tmp_path_factory.mktemp("hostile")
    for name in ("knaif.py", "hello.py"):
        shutil.copy(project / name, folder / name)
    for name in SHADOWED:
        write(folder, name + ".py", SPY)
    return folder


@pytest.mark.parametrize(
    "words",
    [
        ["knaif.py", "tools", "hello.py"],
        ["knaif.py", "tools", "hello:app"],
        ["knaif.py", "schema", "hello.py", "greet"],
        ["knaif.py", "run", "hello.py", "greet", "you", "--times:=2"],
        ["knaif.py", "selftest"],
        ["knaif.py", "selftest", "hello.py"],
        ["knaif.py", "completion", "bash", "hello.py"],
        ["knaif.py", "nonsense"],
        ["./knaif.py", "--version"],
    ],
)
def test_files_beside_the_program_are_not_the_standard_library(hostile, words):
    code, _, err = start(words, hostile)
    assert "the wrong" not in err and code == (4 if "nonsense" in words else 0), err


def test_files_beside_the_program_are_not_the_standard_library_for_a_module_run(project, tmp_path):
    """Under -m the interpreter itself searches the current folder before this file is reached: not our modules then."""
    for name in ("knaif.py", "hello.py"):
        shutil.copy(project / name, tmp_path / name)
    for name in ("json", "datetime", "dataclasses", "decimal", "difflib"):
        write(tmp_path, name + ".py", SPY)
    code, _, err = start(["-m", "knaif", "schema", "hello:app", "greet"], tmp_path)
    assert code == 0 and "the wrong" not in err


def test_the_spy_is_seen_where_nothing_guards(hostile):
    """The test above can fail: a plain script does import what stands beside it."""
    write(hostile, "plain.py", "import json\n")
    assert start(["plain.py"], hostile)[0] == 99


def test_a_program_may_be_named_like_a_module_of_the_standard_library(project, tmp_path):
    shutil.copy(project / "knaif.py", tmp_path / "knaif.py")
    write(tmp_path, "json.py", HELLO)
    code, out, err = start(["knaif.py", "run", "json.py", "search", "x", "--size", "3", "--json"], tmp_path)
    assert (code, out) == (0, '{"text":"x","filters":{"size":"3"}}\n')


def test_a_program_finds_its_neighbours(project):
    write(project, "part_of_hello.py", "WORD = 'found'\n")
    write(project, "whole.py", HELLO + "import part_of_hello\napp.version = part_of_hello.WORD\n")
    assert start(["knaif.py", "run", "whole.py", "--version"], project)[:2] == (0, "hello found\n")
    elsewhere = os.path.join(str(project), "knaif.py")
    assert start([elsewhere, "run", os.path.join(str(project), "whole.py"), "--version"], "/")[:2] == (
        0, "hello found\n")


def test_a_program_that_another_file_imports_back_is_one_module(project):
    write(project, "back.py", "import circle\nassert circle.app\n")
    late = "def late():\n    import back\n    return back\nlate()\nassert late().circle.app is app\n"
    write(project, "circle.py", HELLO + late)
    assert start(["knaif.py", "tools", "circle.py"], project)[0] == 0


@pytest.mark.parametrize("flags", [["-I"], ["-E"], ["-O"], ["-OO"], ["-W", "error"], ["-X", "dev"], ["-bb"]])
def test_flags_of_the_interpreter(project, flags):
    """-OO drops docstrings, and with them the descriptions; everything else stays."""
    itself = ["knaif.py"] if "-I" in flags else ["-m", "knaif"]
    code, out, err = start(flags + itself + ["run", "hello.py", "greet", "you", "--json"], project)
    assert (code, out, err) == (0, '"hello you"\n', "a stray word\n")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="PYTHONSAFEPATH is of Python 3.11")
def test_safe_path(hostile):
    code, out, err = start(["knaif.py", "tools", "hello.py"], hostile, PYTHONSAFEPATH="1")
    assert code == 0 and "the wrong" not in err
    assert start(["-P", "knaif.py", "tools", "hello.py"], hostile)[0] == 0


def test_the_current_folder_is_gone(project, tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    script = str(project / "knaif.py")
    code = "import os, sys; os.rmdir(os.getcwd()); os.execv(sys.executable, [sys.executable] + sys.argv[1:])"
    run = start(["-c", code, script, "run", str(project / "hello.py"), "greet", "you"], gone)
    assert run[:2] == (0, '"hello you"\n'), run
    gone.mkdir()
    run = start(["-c", code, script, "tools", "nowhere:app"], gone)
    assert run[0] == 4 and json.loads(run[2])["message"] == "there is no module nowhere"


# the file itself


def test_version(project):
    assert start(["knaif.py", "--version"], project)[:2] == (0, f"knaif {nk.__version__}\n")
    assert start(["-m", "knaif", "--version"], project)[:2] == (0, f"knaif {nk.__version__}\n")


def test_help_lists_the_commands(project):
    code, out, err = start(["knaif.py"], project)
    assert (code, err) == (0, "")
    for name in ("tools", "schema", "run", "completion", "selftest"):
        assert f"\n  {name} " in out


OLD = sorted(glob.glob(os.path.expanduser("~/.pyenv/versions/3.[78].*/bin/python")))


@pytest.mark.skipif(not OLD, reason="no Python 3.7 or 3.8 here")
@pytest.mark.parametrize("python", OLD)
def test_a_python_that_is_too_old_says_so_in_one_line(project, python):
    for words in (["knaif.py", "--version"], ["-m", "knaif"]):
        code, out, err = start(words, project, python=python)
        assert code != 0 and out == ""
        assert err.count("\n") == 1 and re.search(r"Python 3\.9 or newer.* this is Python 3\.[78]", err)
    code, out, err = start(["-c", "import knaif"], project, python=python)
    assert code != 0 and "Python 3.9 or newer" in err.splitlines()[-1]


# stream and batch


LINES = b"""{"id": 1, "command": "greet", "args": {"name": "Ann"}}
{"id": 2, "command": "fail", "args": {"code": "CONFLICT"}}
{"id": 3, "command": "stream"}
"""


def test_a_program_is_driven_by_lines_although_it_mounts_nothing(project):
    code, out, err = start(["knaif.py", "stream", "hello.py"], project, LINES)
    assert code == 5
    answers = [json.loads(line) for line in out.splitlines()]
    assert [answer["exitCode"] for answer in answers] == [0, 5, 4] and answers[0]["data"] == "hello Ann"
    assert err == "a stray word\n3 lines answered, 2 failed\n"


def test_a_batch_of_a_program_is_taken_up_again(project, tmp_path):
    path = write(tmp_path, "lines.jsonl", LINES.decode())
    for replayed in (0, 1):
        code, out, err = start(["knaif.py", "batch", "hello.py", path, "--quiet"], project)
        assert code == 5 and out.count('"replayed":true') == replayed
        assert err == ("" if replayed else "a stray word\n")
    assert sorted(os.listdir(tmp_path)) == ["lines.jsonl", "lines.jsonl.journal", "lines.jsonl.journal.lock"]


def test_the_help_of_a_loop_over_a_program(project):
    code, out, err = start(["knaif.py", "batch", "hello.py", "--help"], project)
    assert code == 0 and "--rerun-unknown" in out and "--shard" in out
    code, out, err = start(["knaif.py", "stream", "hello.py", "--shard", "1/2"], project)
    assert (code, out) == (64, "") and err.endswith("Try: stream hello.py --help\n")


# Regressions
