"""The specification, rule by rule, where no other test would notice that a rule is gone."""
import copy
import dataclasses
import enum
import io
import os
import pathlib
from typing import Annotated, Any, Dict, List, Literal, Optional, Union

import pytest

import knaif as nk
from conftest import Ran, run_app


Size = enum.Enum("Size", [("L", "large"), ("S", "small")])
Address = dataclasses.make_dataclass("Address", [("city", str), ("zip", Optional[int], None)])


def make(**options: Any) -> nk.App:
    """The commands of the field cases and one of many types."""
    app = nk.App("app", "1.0.0", expose=("cli", "agent", "mcp"), **options)

    @app.command
    def pay(to: str, amount: int = 0, note: str = "", tags: Optional[List[str]] = None,
            meta: Optional[Dict[str, Any]] = None, fast: bool = False) -> dict:
        """Pay somebody."""
        return {"to": to, "amount": amount, "note": note, "tags": tags, "meta": meta, "fast": fast}

    @app.command
    def show(id: str) -> dict:
        """Show one record to whoever asks."""
        return {"id": id}

    @app.command
    def typed(size: Size = Size.L, either: Union[int, str] = "x", word: Union[int, bool, None] = None,
              mixed: Literal["007", 7] = "007", level: Literal[1, 2] = 1, maybe: Optional[bool] = None,
              address: Optional[Address] = None, rates: Optional[Dict[str, float]] = None,
              flags: Optional[Dict[str, bool]] = None, free: Optional[Dict[str, Any]] = None) -> str:
        """Take values of many types."""
        return repr([size, either, word, mixed, level, maybe, address, rates, flags, free])

    return app


def native(app: nk.App) -> nk.App:
    """Give an application a native command."""
    app.native(serve)
    return app


def serve() -> str:
    """Run the server."""
    return "served"


# Exit codes and envelopes

EXITS = {
    1: "VALIDATION_ERROR BAD_REQUEST PLAN_INVALID WAIT_FAILED INTERNAL_SERVER_ERROR UPSTREAM_TOOL_ERROR "
       "CONNECTION_RESPONSE_TOO_LARGE CONNECTION_REQUEST_FAILED INTEGRITY_ERROR SIGNATURE_REFUSED DOWNGRADE_REFUSED "
       "JOURNAL_DAMAGED LOCKED OUTPUT_FAILED SOMETHING_ELSE",
    2: "UNAUTHORIZED", 3: "FORBIDDEN SANDBOX_ESCAPE", 4: "NOT_FOUND", 5: "CONFLICT", 6: "RATE_LIMITED",
    7: "TIMEOUT REQUEST_TIMEOUT CONNECTION_TIMEOUT", 8: "CONFIRMATION_REQUIRED", 9: "OUTCOME_UNKNOWN", 64: "USAGE",
    70: "REGISTRATION_ERROR", 130: "REQUEST_ABORTED", 141: "READER_GONE",
}


def test_the_table_of_exit_codes_is_the_one_that_scripts_were_written_for():
    said = {code: status for status, codes in EXITS.items() for code in codes.split()}
    assert {code: nk.exit_code(code) for code in said} == said
    assert set(nk.ERRORS_EXIT_CODES) <= set(said)


@pytest.mark.parametrize("code, declared, retryable", [
    ("RATE_LIMITED", None, True), ("REQUEST_TIMEOUT", None, True), ("RATE_LIMITED", False, False),
    ("TIMEOUT", None, False), ("CONNECTION_TIMEOUT", None, False), ("CONFLICT", None, False), ("CONFLICT", True, True),
])
def test_what_may_be_tried_again(code, declared, retryable):
    app = nk.App("app", expose=("cli",))

    @app.command
    def fail() -> None:
        raise nk.Error(code, "no", retryable=declared)

    assert run_app(app, "fail").failure["retryable"] is retryable


def test_overrides_of_exit_codes_reach_every_way_to_fail():
    app = make(exit_codes={"NOT_FOUND": 44, "VALIDATION_ERROR": 33, "REQUEST_ABORTED": 13})
    cancel = nk.Cancel()
    cancel.cancel()
    assert run_app(app, "nosuch").code == 44 and run_app(app, "nosuch", "--json").err.count("\n") == 1
    assert run_app(app, "--help", "nosuch").code == 44
    assert run_app(app, "show").code == 33
    assert run_app(app, "show", "1", cancel=cancel).code == 13


# Identity: asked for late, once, and only by those who need it

def test_nothing_static_asks_for_the_identity():
    asked: list = []
    app = native(make(resolve_auth=lambda given: asked.append(1) or "me", context=lambda who, given: asked.append(2)))
    for tokens, code in [
        ([], 0), (["--help"], 0), (["-h", "pay"], 0), (["help", "nosuch"], 4), (["--version"], 0), (["version"], 0),
        (["pay", "--help"], 0), (["pay", "bob", "--dry-run"], 0), (["nosuch"], 4), (["pay"], 1), (["pay", "--bad"], 64),
        (["serve"], 0), (["serve", "--help"], 0), (["serve", "--dry-run"], 0),
    ]:
        assert (run_app(app, *tokens).code, asked) == (code, []), tokens
    assert run_app(app, "show", "1").code == 0 and asked == [1, 2]


def dynamic(*tools: Any, resolve: Any = lambda given: "me", **options: Any) -> nk.App:
    """An application whose managed commands are known only once the identity is."""
    return native(nk.App("app", "1.0.0", expose=("cli",), resolve_auth=resolve, runtime_tools=lambda who: list(tools),
                         **options))


def tool(count: int = 1) -> int:
    """Count."""
    return count


@pytest.mark.parametrize("app, message", [
    (lambda: dynamic(nk.Command(tool, name="serve", expose=("cli",))),
     'are both named "serve"; give one another name with name='),
    (lambda: dynamic(nk.command(name="tool", expose=("cli",))(lambda yes: 1)),
     ': the parameter "yes" has a name that belongs to the framework; rename it'),
    (lambda: dynamic(tool, aliases={"tool": {"c": "nope"}}), ': the alias "c" of "nope" stands for none of its fields'),
    (lambda: dynamic(tool, aliases={"nosuch": {"c": "count"}}),
     'App(aliases=...) names "nosuch", which is no shell command; name a command that is exposed on cli'),
    (lambda: dynamic(tool, positionals={"tool": ["count", "count"]}), ': positionals names "count", twice'),
    (lambda: dynamic(tool, global_options={"properties": {"count": {"type": "integer"}}}),
     ': the parameter "count" is named like an application option; rename one of them'),
])
def test_a_dynamic_surface_is_checked_when_it_resolves_and_not_before(app, message):
    ran = run_app(app(), "tool")
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (70, "", 1) and ran.err.endswith(message + "\n"), ran
    assert run_app(app(), "serve").code == run_app(app(), "serve", "-h").code == run_app(app(), "--version").code == 0


def test_policies_hold_for_commands_that_are_found_later():
    app = dynamic(tool, aliases={"tool": {"c": "count"}}, positionals={"tool": []}, default_command="tool")
    assert run_app(app).data == 1
    assert run_app(app, "tool", "-c", "4").data == run_app(app, "-c", "4").data == 4
    assert run_app(app, "tool", "4").err.startswith('unexpected argument "4"; tool takes no positional arguments\n')


def test_a_surface_that_cannot_resolve_is_never_an_unknown_command():
    asked: list = []

    def resolve(given: Any) -> Any:
        asked.append(1)
        raise nk.Error("UNREACHABLE", "socket closed")

    app = dynamic(resolve=resolve, exit_codes={"UNREACHABLE": 9})
    refusal = {"error": "UNREACHABLE", "message": "socket closed", "retryable": False}
    for tokens in (["srve"], ["version"], ["--help", "nosuch"], ["help", "nosuch"], ["srve", "--help"]):
        ran = run_app(app, *tokens)
        assert (ran.code, ran.failure) == (9, refusal), tokens
    assert len(asked) == 5
    assert run_app(app, "serve", "--help").out.startswith("Run the server") and len(asked) == 5
    assert 'Commands matching "serve" (1 of 1):' in run_app(app, "--help", "serve").out


def test_a_scope_is_guarded_by_a_lifecycle_alone():
    def run(**options: Any) -> Ran:
        app = nk.App("app", "1", expose=("cli",), auth="me", **options)
        app.command(name="guarded", scope="user")(tool)
        return run_app(app, "guarded")

    def identity(ctx: nk.Ctx) -> Any:
        return ctx.context["user"]

    context = {"context": lambda who, given: {"user": who}}
    assert run().data == 1
    for hook, code in [
        (nk.AuthHook(), 2), (nk.AuthHook(rules={"user": lambda who: True}), 2), (nk.AuthHook(identity), 3),
        (nk.AuthHook(identity, {"admin": lambda who: True}), 3), (nk.AuthHook(identity, {"user": len}), 3),
        (nk.AuthHook(identity, {"user": lambda who: who == "me"}), 0),
    ]:
        assert run(lifecycle=hook, **context).code == code


# The line

@pytest.mark.parametrize("tokens, out", [
    (["--version"], "app 1.0.0\n"), (["version"], "app 1.0.0\n"), (["--version", "pay", "bob"], "app 1.0.0\n"),
    (["--json", "--version", "pay"], '{"name":"app","version":"1.0.0"}\n'),
    (["--version=false", "show", "1", "--json"], '{"id":"1"}\n'),
])
def test_the_version_and_help_never_run_a_command(tokens, out):
    ran = []
    app = make(default_command="go")
    app.native(name="go")(lambda: ran.append(1))
    assert run_app(app, *tokens).out == out
    assert run_app(app, "--help").code == run_app(app, "-h").code == run_app(app, "help").code == 0
    assert ran == []


def test_all_four_spellings_of_the_search_give_one_answer():
    app = make()
    answers = [run_app(app, *tokens) for tokens in (["--help", "who"], ["-h", "who"], ["help", "who"], ["--help=who"])]
    expected = 'Commands matching "who" (1 of 3):\n  show  Show one record to whoever asks\n'
    assert {ran.out for ran in answers} == {expected}
    exact, own = run_app(app, "--help", "show").out, run_app(app, "show", "--help").out
    assert exact.startswith('Commands matching "show" (1 of 3):\n') and exact.endswith(own)
    ran = run_app(app, "--help", "zebra", "--json")
    assert (ran.code, ran.failure["message"]) == (4, 'No command matches "zebra" (0 of 3)') and ran.err.count("\n") == 1


def test_a_fault_of_an_application_option_comes_before_anything_a_line_asks_for():
    app = nk.App("app", "1", expose=("cli",), commands=[tool], global_options={
        "type": "object", "properties": {"level": {"type": "integer"}}})
    for tokens in (["--version"], ["--help"], ["nosuch"], ["tool", "-h"]):
        ran = run_app(app, *tokens, "--level=x")
        assert (ran.code, ran.err.splitlines()[0]) == (64, '--level expects a whole number, got "x"'), tokens


@pytest.mark.parametrize("line, value", [
    ("--size small", "Size.S"), ("--either 5", "'5'"), ("--either:=5", " 5,"),
    ("--word:=3.0", "'x', 3, "), ("--word true", ", True"),
    ("--word=false", "False"), ("--mixed 007", "'007'"), ("--mixed:=7", "7"), ("--level 2", "2"), ("--maybe", "True"),
    ("--maybe false", "False"), ("--no-maybe", "False"), ("--address.city x --address.zip 5", "zip=5"),
    ("--rates.a 1e3", "1000.0"), ("--flags.a true --flags.b", "'b': True"), ("--free.a 007", "{'a': '007'}"),
    ("--free.a true", "{'a': 'true'}"), ("--free.a:=true", "{'a': True}"),
])
def test_a_value_arrives_as_its_type(line, value):
    assert value in run_app(make(), "typed", *line.split()).data


@pytest.mark.parametrize("line, code, message", [
    ("--size Size.S", 1, 'Invalid input: size: expected one of "large", "small", got the string "Size.S"'),
    ("--level 3", 1, "Invalid input: level: expected one of 1, 2, got the number 3"),
    ("--mixed 7", 1, 'Invalid input: mixed: expected one of "007", 7, got the string "7"'),
    ("--level x", 64, '--level expects a whole number, got "x"'),
    ("--maybe=null", 64, '--maybe expects true or false, got "null"'),
    ("--rates.a x", 64, '--rates.a expects a number, got "x"'),
    ("--address.zip 5", 1, "Invalid input: address.city is required"),
    ("--address.city x --address.nope 5", 1, 'Invalid input: "nope" is not a field of address'),
])
def test_a_value_of_another_type_is_refused(line, code, message):
    ran = run_app(make(), "typed", *line.split())
    assert ran.code == code and (ran.err.splitlines()[0] if code == 64 else ran.failure["message"]) == message


def test_a_call_leaves_its_schema_as_it_was():
    before = {"type": "object", "properties": {"n": {"type": "integer"}, "deep": {"default": {"a": []}}}}
    schema = copy.deepcopy(before)

    def raw(given: dict) -> dict:
        given["deep"]["a"].append(given["n"])
        return given

    app = nk.App("app", "1", commands=[nk.command(name="raw", input=schema, expose=("cli",))(raw)])
    for tokens in (["3"], ["3"], ["--help"], ["--n:=4"]):
        ran = run_app(app, "raw", *tokens)
        assert ran.code == 0 and schema == before
    assert ran.data == {"n": 4, "deep": {"a": [4]}}


def test_text_of_the_program_itself_reaches_no_terminal_raw():
    app = nk.App("app", "1", expose=("cli",), commands=[tool], global_options={
        "type": "object", "properties": {"a\x1b[2J": {"type": "integer", "maximum": 3}}})
    assert run_app(app, "tool", "--a\x1b[2J=9").err.startswith("--a\\x1b[2J: expected at most 3, got the number 9\n")

    odd = lambda x: x  # noqa: E731
    odd.__qualname__ = "odd\x1b[2J"
    ran = run_app(nk.App("app", "1", commands=[nk.command(name="odd", expose=("cli",))(odd)]), "odd", "1")
    assert ran.code == 70 and "\\x1b[2J: the parameter" in ran.err and "\x1b" not in ran.err


def test_a_hidden_command_runs_and_is_listed_nowhere():
    app = make()
    app.command(name="secretly", hidden=True)(tool)
    assert run_app(app, "secretly", "2").data == 2
    assert "secretly" not in run_app(app, "--help").out and run_app(app, "--help", "secretly").code == 4


def test_the_application_says_which_field_collects_unknown_options():
    app = make(passthrough={"pay": "meta"})
    assert run_app(app, "pay", "bob", "--colour", "red", "--x=1").data["meta"] == {"colour": "red", "x": "1"}
    assert run_app(app, "show", "1", "--colour", "red").code == 64


def test_what_authorises_a_call_cannot_change_it():
    seen: list = []
    app = make(lifecycle=nk.Lifecycle(lambda ctx, args: args.clear()),
               hooks=nk.Hooks(after_call=lambda command, args, outcome: seen.append(args)))
    assert run_app(app, "show", "--dry-run").code == 1 and seen == []  # a dry run, even a refused one, is no call
    assert run_app(app, "show", "1").data == {"id": "1"} and seen == [{"id": "1"}]


@pytest.mark.parametrize("tokens, option", [(["--wait"], "--wait"), (["--wait-timeout", "3"], "--wait-timeout")])
def test_a_command_without_a_wait_refuses_to_wait(tokens, option):
    ran = run_app(make(), "show", "1", *tokens)
    assert ran.code == 64 and ran.err.startswith(option + ": show has no wait configured, so its first answer is")


def test_a_question_shows_no_secret():
    terminal, secret = io.StringIO(), Annotated[str, nk.Opt(secret=True)]
    terminal.close, terminal.readline = lambda: None, lambda limit=-1: "no\n"
    options = dataclasses.make_dataclass("Options", [("key", secret, "")])
    app = nk.App("app", "1", expose=("cli",), global_options=options)

    @app.command(destructive=True)
    def wipe(token: secret = "", again: secret = "") -> str:
        return token

    ran = run_app(app, "wipe", "--token", "tok-1", "--key", "tok-2", tty=lambda: terminal)
    assert ran.code == 8 and "tok-" not in ran.err + terminal.getvalue()
    assert terminal.getvalue().count("***") == 3 and terminal.getvalue().endswith("\nGo on? [y/N] ")


# Standard input

class Broken(io.RawIOBase):
    """A stream that cannot be read."""

    readable = lambda self: True  # noqa: E731

    def readinto(self, buffer: Any) -> int:
        raise OSError(5, "Input/output error")


@pytest.mark.parametrize("tokens, code", [
    (["show", "1"], 0), (["show", "--id=1"], 0), (["show", "-"], 0), (["show", "--help"], 0), (["show", "--bad"], 64),
    (["typed"], 0), (["--help"], 0), (["nosuch"], 4), (["show"], 1), (["show", "--dry-run"], 1),
])
def test_standard_input_is_read_only_for_a_required_field_and_its_faults_are_told(tokens, code):
    err = io.BytesIO()
    env = nk.Env(argv=["app"], stdin=Broken(), stdout=io.BytesIO(), stderr=err, environ={}, cwd=".", tty=lambda: None)
    assert make().run(tokens, env=env) == code
    assert (b"cannot read standard input (Input/output error); give the value" in err.getvalue()) == (code == 1)


# Paths

@pytest.fixture
def box(tmp_path):
    """A sandbox beside a folder whose name begins like its own."""
    (tmp_path / "share").mkdir()
    (tmp_path / "share-secret").mkdir()
    return tmp_path / "share"


def boxed(box: pathlib.Path, **options: Any) -> nk.App:
    app = nk.App("app", "1", expose=("cli",), sandbox=box, **options)

    @app.command
    def read(file: Union[pathlib.Path, int] = 0, more: Optional[List[pathlib.Path]] = None,
             by_key: Optional[Dict[str, pathlib.Path]] = None, path: str = "",
             role: Annotated[str, nk.Arg(path=True)] = "x") -> list:
        return [str(file), [str(item) for item in more or ()], sorted(map(str, (by_key or {}).values())), path, role]

    @app.command
    def kept(file: pathlib.Path = pathlib.Path("../share-secret/x")) -> str:
        return str(file)

    return app


@pytest.mark.parametrize("tokens", [
    ["read", "../share-secret/x"], ["read", "--more", "a", "--more", "../x"], ["read", "--by-key.a", "../x"],
    ["read", "--role", "../x"], ["read", "--file", "../x", "--dry-run"], ["kept"],
])
def test_pth_01_a_path_is_known_by_its_type_or_role_at_any_depth(box, tokens):
    ran = run_app(boxed(box), *tokens, cwd=str(box))
    assert (ran.code, ran.failure["error"]) == (3, "SANDBOX_ESCAPE") and "leads outside" in ran.failure["message"]


def test_a_path_is_never_known_by_its_name_starts_where_the_caller_is_and_is_judged_after_the_hook(box):
    root, app = str(box), boxed(box)
    assert run_app(app, "read", "--path", "/etc/passwd", cwd=root).data[3:] == ["/etc/passwd", os.path.join(root, "x")]
    assert run_app(app, "read", "a/../b", cwd=root).data[0] == os.path.join(root, "b")
    assert run_app(app, "read", "share/a", "--role", "share/x", cwd=str(box.parent)).data[0] == os.path.join(root, "a")
    assert run_app(app, "read", "a", "--role", "share/x", cwd=str(box.parent)).code == 3
    app = boxed(box, hooks=nk.Hooks(before_call=lambda command, args: {**args, "file": "/etc/passwd"}))
    assert run_app(app, "read", cwd=root).failure["error"] == "SANDBOX_ESCAPE"


# Field cases as whole lines

def test_arg_r1_a_double_dash_is_a_value_only_after_the_sign():
    assert run_app(make(), "pay", "bob", "--note=--").data["note"] == "--"
    ran = run_app(make(), "pay", "bob", "--note", "--")
    assert (ran.code, ran.err) == (64, "--note requires a value, as in --note=VALUE\nTry: app pay --help\n")


@pytest.mark.parametrize("text, reason", [
    ('{"a":1,"a":2}', "a repeated key"), ('{"a":NaN}', "NaN, which is no JSON number"),
    ('{"a":1e400}', "a number too large for a float"),
    ('{"a":' + "9" * 4400 + "}", "an integer of more than 4,300 digits"),
    ('{"a":' + "[" * 200 + "]" * 200 + "}", "more than 126 levels"),
])
def test_sch_r1_doors_of_a_line_are_strict(text, reason):
    ran = run_app(make(), "pay", "bob", "--meta:=" + text)
    assert ran.code == 64 and reason in ran.err and len(ran.err) < 300 and "9" * 61 not in ran.err
    assert run_app(make(), "pay", "bob", "--meta", text).code == 64
