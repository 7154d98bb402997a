"""APP: whole lines from the first token to the exit code."""
import asyncio
import dataclasses
import datetime
import io
import json
import os
import pathlib
import subprocess
import sys
import textwrap
from typing import Annotated, Any, Dict, List, Optional

import pytest

import knaif as nk
from conftest import run_app

ROOT = os.path.dirname(os.path.abspath(nk.__file__))


def make(**options: Any) -> nk.App:
    """The application of the field cases."""
    app = nk.App("app", "1.0.0", expose=("cli", "agent", "mcp"), **options)

    @app.command
    def pay(to: str, amount: int = 0, rate: float = 1.0, note: str = "", tags: Optional[List[str]] = None,
            meta: Optional[Dict[str, Any]] = None, fast: bool = False) -> dict:
        """Pay somebody. Money moves."""
        return {"to": to, "amount": amount, "rate": rate, "note": note, "tags": tags, "meta": meta, "fast": fast}

    @app.command
    def show(id: str) -> dict:
        """Show one record."""
        return {"id": id}

    @app.command(name="run")
    def run_(name: str, *rest: str) -> list:
        """Run a program."""
        return [name, list(rest)]

    @app.command
    def rows() -> list:
        """List the records."""
        return [{"id": 1, "status": "active"}]

    @app.command(destructive=True)
    def wipe(path: pathlib.Path, ctx: nk.Ctx) -> str:
        """Remove a folder."""
        return f"wiped {path} {ctx.confirmed}"

    return app


# -- results and failures ------------------------------------------------------------------------------------------

def test_a_result_is_one_json_document_pretty_or_compact():
    assert run_app(make(), "show", "7").out == '{\n  "id": "7"\n}\n'
    assert run_app(make(), "show", "7", "--json").out == '{"id":"7"}\n'
    assert run_app(make(), "--json", "show", "7").out == '{"id":"7"}\n'
    ran = run_app(make(), "show", "7")
    assert (ran.code, ran.err) == (0, "")


def test_a_command_that_returns_none_prints_null():
    app = nk.App("app", commands=[nk.command(expose=("cli",))(nothing)])
    assert run_app(app, "nothing").out == "null\n"


def nothing() -> None:
    """Do nothing."""


def test_a_failure_is_one_object_on_stderr_in_a_fixed_order_of_keys():
    app = nk.App("app", expose=("cli",), exit_codes={"BROKEN": 77}, error_hint="see the manual")

    @app.command
    def fail(code: str) -> None:
        raise nk.Error(code, "it broke", details={"n": 1}, hint="mend it", retryable=True)

    @app.command
    def wait_a_bit() -> None:
        raise nk.Error("RATE_LIMITED", "slow down")

    ran = run_app(app, "fail", "BROKEN", "--json")
    assert (ran.code, ran.out) == (77, "")
    assert ran.err == ('{"error":"BROKEN","message":"it broke","retryable":true,"details":{"n":1},'
                       '"hint":"mend it see the manual"}\n')
    assert run_app(app, "fail", "constructor").code == 1
    ran = run_app(app, "wait-a-bit")
    assert ran.code == 6 and ran.failure["retryable"] is True
    assert list(ran.failure) == ["error", "message", "retryable", "hint"]


def test_a_hint_function_that_fails_and_details_without_json_do_not_hide_the_error():
    def broken(error):
        raise RuntimeError

    app = nk.App("app", expose=("cli",), error_hint=broken)

    @app.command
    def fail() -> None:
        raise nk.Error("CONFLICT", "taken", details={"x": object()})

    ran = run_app(app, "fail")
    assert ran.code == 5
    assert ran.failure == {"error": "CONFLICT", "message": "taken", "retryable": False,
                           "details": {"message": "the details of this error have no JSON form"}}


def test_an_unexpected_exception_shows_its_traceback_only_when_asked():
    app = nk.App("app", expose=("cli",))

    @app.command
    def crash() -> None:
        raise ValueError("hunter2")

    ran = run_app(app, "crash")
    assert ran.code == 1 and ran.failure == {
        "error": "INTERNAL_SERVER_ERROR", "message": "crash failed unexpectedly", "retryable": False,
        "hint": "set KNAIF_TRACE=1 to see the traceback"}
    traced = run_app(app, "crash", environ={"KNAIF_TRACE": "1"})
    assert "ValueError: hunter2" in traced.err and traced.err.count("Traceback") == 1


def test_every_code_of_the_table_exits_as_the_table_says():
    app = nk.App("app", expose=("cli",))

    @app.command
    def fail(code: str) -> None:
        raise nk.Error(code, "no")

    for code, status in nk.ERRORS_EXIT_CODES.items():
        assert run_app(app, "fail", code).code == status, code


def test_usage_faults_are_plain_text_all_at_once_and_name_the_help():
    ran = run_app(make(), "pay", "bob", "--amount", "x", "--rate", "y", "--amoun", "5")
    assert (ran.code, ran.out) == (64, "")
    assert ran.err.splitlines()[-1] == "Try: app pay --help" and len(ran.err.splitlines()) == 4
    assert '--amount expects a whole number, got "x"' in ran.err


def test_a_missing_field_is_a_validation_error_with_its_envelope():
    ran = run_app(make(), "show")
    assert ran.code == 1 and ran.failure["error"] == "VALIDATION_ERROR" and "id" in ran.failure["message"]


# -- field cases that need whole lines -----------------------------------------------------------------------------

def test_arg_01_values_that_begin_with_a_minus_sign():
    app = make()
    assert run_app(app, "pay", "bob", "--amount", "-34").data["amount"] == -34
    assert run_app(app, "pay", "bob", "--amount=-34").data["amount"] == -34
    assert run_app(app, "pay", "bob", "--rate", "-1e-3").data["rate"] == -0.001
    assert run_app(app, "show", "--", "-4").data == {"id": "-4"}
    assert run_app(app, "show", "-4").data == {"id": "-4"}


@pytest.mark.parametrize("tokens, option", [
    (["wipe", "/data", "--dry"], "--dry"), (["pay", "bob", "--amoun", "5"], "--amoun"),
    (["pay", "bob", "--amount_x", "5"], "--amount_x")])
def test_arg_02_no_prefix_matching(tokens, option):
    ran = run_app(make(), *tokens)
    assert ran.code == 64 and option in ran.err and ran.out == ""


@pytest.mark.parametrize("text", ["297e7814231", "1.10", "007", "2017-10-10", "1+1", "None", "true", "[1]", "0x10"])
def test_typ_01_text_stays_text(text):
    assert run_app(make(), "show", text).data == {"id": text}
    assert run_app(make(), "show", "--id", text).data == {"id": text}
    assert run_app(make(), "show", stdin=text.encode()).data == {"id": text}


def test_typ_02_a_boolean_given_the_word_false_is_off():
    app = make()
    for spelling in (["--dry-run=false"], ["--dry-run=0"]):
        assert "command" not in run_app(app, "pay", "bob", *spelling).data
    for spelling in ("--dry-run=nope", "--dry-run="):
        assert run_app(app, "pay", "bob", spelling).code == 64
    for spelling in (["--fast=false"], ["--fast=0"], ["--no-fast"], ["--fast", "false"]):
        assert run_app(app, "pay", "bob", *spelling).data["fast"] is False
    for spelling in ("--fast=nope", "--fast="):
        assert run_app(app, "pay", "bob", spelling).code == 64


def test_typ_03_scalar_given_twice():
    ran = run_app(make(), "pay", "bob", "--amount", "1", "--amount", "2")
    assert ran.code == 64 and "--amount" in ran.err
    assert run_app(make(), "pay", "bob", "--tags", "a", "--tags", "b").data["tags"] == ["a", "b"]


def test_typ_r1_a_required_list_given_empty_counts_as_supplied():
    app = nk.App("app", expose=("cli",))

    @app.command
    def both(items: List[str], meta: Dict[str, int]) -> dict:
        return {"items": items, "meta": meta}

    assert run_app(app, "both", "--items:=[]", "--meta:={}").data == {"items": [], "meta": {}}


def test_typ_r3_bytes_that_are_no_utf_8(tmp_path):
    ran = run_app(make(), "show", "a\udcff")
    assert ran.code == 64 and "\udcff" not in ran.err
    assert run_app(make(), "wipe", "a\udcff", "--dry-run").data["args"] == {"path": "a\udcff"}


def test_io_r1_integers_come_out_digit_for_digit():
    for number in (9223372036854775807, 9007199254740993, 10 ** 60):
        assert run_app(make(), "pay", "bob", "--amount", str(number)).data["amount"] == number


def test_io_02_a_result_with_nan_is_an_error_with_nothing_on_stdout():
    app = nk.App("app", expose=("cli",))

    @app.command
    def stats() -> dict:
        return {"n": 0, "mean": float("nan"), "hi": [float("inf")]}

    ran = run_app(app, "stats")
    assert (ran.code, ran.out) == (1, "") and "/mean" in ran.failure["message"]


def test_sch_05_huge_integers_and_deep_nesting_at_the_doors_of_a_line():
    app = make()
    for text in ("9" * 4400, "[" * 100000, '{"a":' * 5000):
        for tokens, stdin in ((["pay", "bob", "--meta:=" + text], None), (["pay", "bob", "--meta", text], None),
                              (["pay", "bob", "--amount", text], None)):
            ran = run_app(app, *tokens, stdin=stdin)
            assert ran.code == 64 and len(ran.err) < 400, ran.err[:500]
    deep: Any = []
    for _ in range(900):
        deep = [deep]
    app2 = nk.App("app", expose=("cli",))
    app2.command(name="deep")(lambda: deep)
    ran = run_app(app2, "deep")
    assert (ran.code, ran.out) == (1, "") and ran.failure["error"] == "INTERNAL_SERVER_ERROR"


# -- exposure, naming, unknown commands ----------------------------------------------------------------------------

def test_nothing_is_a_shell_command_until_it_says_so():
    app = nk.App("app", "1")

    @app.command
    def hidden_from_shell() -> int:
        return 1

    ran = run_app(app, "hidden-from-shell")
    assert ran.code == 4 and ran.failure == {
        "error": "NOT_FOUND", "retryable": False,
        "message": "hidden_from_shell is not a shell command: it is exposed on agent, mcp alone",
        "hint": 'the program can opt in with expose=("cli", ...) on the command or on the App'}
    top = run_app(app)
    assert top.code == 0 and "expose" in top.out


def test_an_unknown_command_is_not_found_with_suggestions():
    ran = run_app(make(), "shwo", "1")
    assert ran.code == 4 and ran.failure["error"] == "NOT_FOUND"
    assert ran.failure["message"] == 'there is no command "shwo"; did you mean show?'
    assert run_app(make(), "sho", "1").code == 4  # no prefix matching


def test_names_are_found_with_dashes_and_the_exact_one_wins():
    app = nk.App("app", expose=("cli",))
    app.command(name="a_b")(lambda: "underscore")
    assert run_app(app, "a-b").data == run_app(app, "a_b").data == "underscore"
    app.command(name="a-b")(lambda: "dash")
    assert run_app(app, "a-b").data == "dash" and run_app(app, "a_b").data == "underscore"


def test_the_version_is_printed_only_before_the_command():
    for tokens in (["--version"], ["--json", "--version"]):
        assert run_app(make(), *tokens).code == 0
    assert run_app(make(), "--version").out == "app 1.0.0\n"
    assert run_app(make(), "--version", "--json").data == {"name": "app", "version": "1.0.0"}
    app = nk.App("app", "1.0.0", expose=("cli",))

    @app.command
    def install(version: str = "latest") -> str:
        return version

    assert run_app(app, "install", "--version", "2").data == "2"


# -- default command -----------------------------------------------------------------------------------------------

def logs_app() -> nk.App:
    app = nk.App("app", "1", expose=("cli",), default_command="logs", aliases={"logs": {"f": "follow", "n": "lines"}},
                 positionals={"logs": ["target"], "doctor": []})

    @app.command
    def logs(target: str = "all", lines: int = 10, follow: bool = False) -> dict:
        return {"target": target, "lines": lines, "follow": follow}

    @app.native
    def doctor() -> dict:
        return {"ok": True}

    return app


def test_a_line_without_a_command_runs_the_default():
    app = logs_app()
    plain = {"target": "all", "lines": 10, "follow": False}
    assert run_app(app).data == plain
    assert run_app(app, "--json").data == plain
    assert run_app(app, "logs", "--json").data == plain
    assert run_app(app, "-f", "-n", "100", "--target", "api").data == {"target": "api", "lines": 100, "follow": True}
    assert run_app(app, "api").code == 4  # a leading word is a command, so that typos stay loud
    assert run_app(app, "logs", "api").data["target"] == "api"
    assert run_app(app, "--json", "doctor").data == {"ok": True}
    assert run_app(app, "--help").out.startswith("app 1\n") and "(default)" in run_app(app, "-h").out
    assert run_app(app, "--help=false").data == plain
    assert run_app(app, "doctor", "x").code == 64


# -- application options -------------------------------------------------------------------------------------------

@dataclasses.dataclass
class Globals:
    caller: Optional[str] = None
    root: Annotated[str, nk.Opt(env="APP_ROOT", help="Checkout the call speaks for")] = "/srv"
    level: Annotated[int, nk.Arg(min=1, max=3)] = 1


def options_app(seen: list, **more: Any) -> nk.App:
    app = nk.App("app", "1", expose=("cli",), global_options=Globals,
                 resolve_auth=lambda given: seen.append(given) or "me",
                 context=lambda who, given: {"who": who, "root": given.root}, **more)

    @app.command
    def handoff_read(handoff_id: str, ctx: nk.Ctx) -> dict:
        return {"id": handoff_id, "context": ctx.context, "level": ctx.globals.level}

    @app.native
    def where(ctx: nk.Ctx) -> str:
        return str(ctx.globals.root)

    return app


def test_application_options_stand_anywhere_and_reach_identity_context_and_natives():
    seen: list = []
    app = options_app(seen)
    expected = {"id": "u", "context": {"who": "me", "root": "/x"}, "level": 1}
    for tokens in (["--root", "/x", "handoff_read", "--handoff-id", "u"],
                   ["handoff-read", "--root", "/x", "--handoff_id", "u"], ["handoff-read", "u", "--root=/x"]):
        assert run_app(app, *tokens).data == expected
    assert seen == [Globals(root="/x")] * 3
    assert run_app(app, "where").data == "/srv"
    assert run_app(app, "where", environ={"APP_ROOT": "/env"}).data == "/env"
    assert run_app(app, "where", "--root", "/opt", environ={"APP_ROOT": "/env"}).data == "/opt"
    assert len(seen) == 3
    assert run_app(app, "handoff-read", "--", "--root").data["id"] == "--root"


def test_faults_of_application_options_are_usage_and_beat_help():
    app = options_app([])
    for tokens in (["where", "--level", "x"], ["where", "--level", "9"], ["where", "--help", "--level", "x"],
                   ["where", "--level", "1", "--level", "1"], ["--level", "0", "where"]):
        ran = run_app(app, *tokens)
        assert ran.code == 64 and "--level" in ran.err and ran.out == "", tokens


def test_application_options_that_collide_are_refused_at_start():
    @dataclasses.dataclass
    class Bad:
        json: bool = False

    app = nk.App("app", "1", expose=("cli",), global_options=Bad)
    app.command(nothing)
    assert run_app(app, "nothing").code == 70
    app = nk.App("app", "1", expose=("cli",), global_options={"type": "object", "properties": {"id": {"type": "string"}}})

    @app.command
    def show(id: str) -> str:
        return id

    ran = run_app(app, "show", "1")
    assert ran.code == 70 and "id" in ran.err and len(ran.err.splitlines()) == 1


# -- dynamic surfaces ----------------------------------------------------------------------------------------------

def dynamic_app(resolve: Any) -> nk.App:
    app = nk.App("app", "1.0.0", expose=("cli",), resolve_auth=resolve, runtime_tools=lambda who: [tool])

    @nk.command(expose=("cli",))
    def tool(n: int) -> int:
        """Count."""
        return n + 1

    @app.native
    def serve() -> str:
        """Run the server."""
        return "served"

    return app


def test_a_dynamic_surface_is_resolved_once_and_only_when_needed():
    asked: list = []
    app = dynamic_app(lambda given: asked.append(1) or "me")
    assert run_app(app, "serve").data == "served" and asked == []
    assert run_app(app, "serve", "--help").code == 0 and asked == []
    assert run_app(app, "--version").code == 0 and asked == []
    assert run_app(app, "tool", "4").data == 5 and asked == [1]
    assert "tool" in run_app(app, "--help").out and asked == [1, 1]


@pytest.mark.parametrize("refusal, shown, code", [
    (nk.Error("UNREACHABLE", "socket closed"), "UNREACHABLE: socket closed", 1),
    (nk.Error("UNAUTHORIZED", "no key"), "UNAUTHORIZED: no key", 2),
    (OSError("/home/me/key"), "INTERNAL_SERVER_ERROR: the identity of the caller could not be found out", 1),
])
def test_when_the_managed_surface_cannot_resolve(refusal, shown, code):
    asked = []

    def resolve(given):
        asked.append(1)
        raise refusal

    app = dynamic_app(resolve)
    top = run_app(app, "--help")
    assert top.code == 0 and "serve" in top.out and f"Managed commands are unavailable: {shown}\n" in top.out
    ran = run_app(app, "tool", "4")
    assert ran.code == code and ran.failure["error"] == shown.split(":")[0] and "details" not in ran.failure
    assert run_app(app, "serve").data == "served"
    assert len(asked) == 2


# -- natives -------------------------------------------------------------------------------------------------------

def test_a_presenter_owns_the_bytes_and_exit_code_owns_the_status():
    app = nk.App("app", "1")
    seen: list = []

    @app.native(present=lambda result, options: json.dumps(result) if options.json else f"STATUS {result['status']}\n",
                exit_code=lambda result: 1 if result["status"] == "degraded" else 0)
    def doctor(status: str = "degraded") -> Dict[str, str]:
        seen.append(1)
        return {"status": status}

    ran = run_app(app, "doctor")
    assert (ran.code, ran.out, ran.err) == (1, "STATUS degraded\n", "")
    ran = run_app(app, "doctor", "ok", "--json")
    assert (ran.code, ran.out) == (0, '{"status": "ok"}')
    seen.clear()
    assert run_app(app, "doctor", "--dry-run").data == {"command": "doctor", "args": {"status": "degraded"}}
    assert run_app(app, "doctor", "--help").code == 0 and seen == []


@pytest.mark.parametrize("present, message", [
    (lambda result, options: 1 / 0, "the presenter of doctor failed"),
    (lambda result, options: b"bytes", "the presenter of doctor returned no text"),
])
def test_a_failing_presenter_is_an_internal_error_without_partial_output(present, message):
    app = nk.App("app", "1")

    @app.native(present=present)
    def doctor() -> dict:
        return {}

    ran = run_app(app, "doctor")
    assert ran.code == 1 and ran.failure["message"] == message and ran.failure["error"] == "INTERNAL_SERVER_ERROR"


# -- dry runs, destructive commands --------------------------------------------------------------------------------

def test_a_dry_run_shows_final_values_and_fails_as_the_call_would():
    app = make()
    ran = run_app(app, "pay", "bob", "--amount", "3", "--dry-run")
    assert ran.out == textwrap.dedent('''\
        {
          "command": "pay",
          "args": {
            "to": "bob",
            "amount": 3,
            "rate": 1.0,
            "note": "",
            "tags": null,
            "meta": null,
            "fast": false
          }
        }
        ''')
    assert run_app(app, "pay", "bob", "--dry-run", "--json").out.count("\n") == 1
    assert run_app(app, "pay", "--dry-run").code == 1
    assert run_app(app, "wipe", "/data", "--dry-run").data == {"command": "wipe", "args": {"path": "/data"}}


class Terminal:
    """A terminal that answers with one line and keeps what it was shown."""

    def __init__(self, answer):
        self.answer, self.shown = answer, ""

    def write(self, text):
        self.shown += text
        return len(text)

    def readline(self, limit=-1):
        return self.answer

    def flush(self):
        pass

    def close(self):
        pass

    def fileno(self):
        raise OSError("no descriptor")


@pytest.mark.parametrize("answer, code", [("y\n", 0), ("YES\n", 0), ("n\n", 8), ("\n", 8), ("", 8), ("yes please\n", 8)])
def test_a_destructive_call_is_shown_and_asked_about(answer, code):
    terminal = Terminal(answer)
    ran = run_app(make(), "wipe", "/da\x1bta" + "x" * 200, tty=lambda: terminal)
    assert ran.code == code
    lines = terminal.shown.split("\n")
    assert lines[0] == "wipe is destructive:" and lines[-1] == "Go on? [y/N] "
    assert lines[1] == '  path: "/da\\u001bta' + "x" * 200 + '"' and "\x1b" not in terminal.shown
    if code:
        assert ran.failure["message"] == "wipe was not confirmed, so nothing was done"
    else:
        assert ran.data.endswith("True")


def test_a_secret_that_is_required_and_missing_is_asked_for():
    app = nk.App("app", expose=("cli",))

    @app.command
    def login(token: Annotated[str, nk.Arg(secret=True)], user: str = "me") -> int:
        return len(token)

    assert run_app(app, "login", tty=lambda: Terminal("tok-1\n")).data == 5
    assert run_app(app, "login", tty=lambda: Terminal("\n")).code == 1


def test_destructive_commands_need_yes_or_an_answer():
    app = make()
    assert run_app(app, "wipe", "/data", "--yes").data == "wiped /data True"
    ran = run_app(app, "wipe", "/data")
    assert ran.code == 8 and ran.failure == {
        "error": "CONFIRMATION_REQUIRED", "message": "wipe is destructive and needs a confirmation",
        "retryable": False, "hint": "pass --yes to confirm"}
    assert run_app(app, "wipe", "/data", "--yes=false").code == 8
    assert run_app(app, "wipe", "--yes").code == 1  # validation comes before approval


# -- standard input ------------------------------------------------------------------------------------------------

def test_piped_text_fills_the_first_required_unset_field():
    app = make()
    assert run_app(app, "show", stdin=b"  a fox \n").data == {"id": "a fox"}
    assert run_app(app, "show", stdin=b"--json").data == {"id": "--json"}
    assert run_app(app, "show", "--id", "x", stdin=b"y").data == {"id": "x"}
    assert run_app(app, "pay", "bob", stdin=b"9").data["amount"] == 0
    assert run_app(app, "show", stdin=b" \n ").code == 1
    ran = run_app(app, "show", stdin=b"\xff\xfe")
    assert ran.code == 1 and ran.failure["message"] == "standard input is not UTF-8 at byte 0"


def test_piped_text_is_read_like_a_typed_value():
    app = nk.App("app", expose=("cli",))

    @app.command
    def count(n: int, tags: List[int]) -> list:
        return [n, tags]

    assert run_app(app, "count", "--tags", "1", stdin=b"-5\n").data == [-5, [1]]
    assert run_app(app, "count", "3", stdin=b"[1,2]").data == [3, [1, 2]]
    ran = run_app(app, "count", "--tags", "1", stdin=b"abc")
    assert ran.code == 64 and "standard input" in ran.err


def test_an_explicit_reader_replaces_the_rule():
    calls: list = []
    app = make(stdin=lambda: calls.append(1) or " slow ")
    assert run_app(app, "show").data == {"id": "slow"} and calls == [1]
    assert run_app(app, "show", "x").data == {"id": "x"} and calls == [1]
    assert run_app(make(stdin=lambda: None), "show").code == 1


def test_environment_fills_before_standard_input_and_names_its_variable():
    app = nk.App("app", expose=("cli",))

    @app.command
    def go(n: Annotated[int, nk.Arg(env="APP_N")], text: str = "") -> list:
        return [n, text]

    assert run_app(app, "go", environ={"APP_N": "4"}).data == [4, ""]
    assert run_app(app, "go", "--n", "5", environ={"APP_N": "4"}).data == [5, ""]
    assert run_app(app, "go", environ={"APP_N": ""}, stdin=b"6").data == [6, ""]
    ran = run_app(app, "go", environ={"APP_N": "abc"})
    assert ran.code == 64 and "APP_N" in ran.err


def test_secrets_never_show():
    app = nk.App("app", expose=("cli",))

    @app.command
    def login(token: Annotated[str, nk.Arg(secret=True, env="APP_TOKEN", pattern="^tok-")]) -> str:
        return "in"

    assert run_app(app, "login", environ={"APP_TOKEN": "tok-SECRET-123"}).data == "in"
    assert run_app(app, "login", "--token", "tok-SECRET-123", "--dry-run").data["args"] == {"token": "***"}
    assert run_app(app, "login", stdin=b"tok-SECRET-123").data == "in"
    for ran in (run_app(app, "login", "--token", "SECRET"), run_app(app, "login", environ={"APP_TOKEN": "SECRET"}),
                run_app(app, "login", "--token", "SECRET", "--token", "SECRET"), run_app(app, "login", "--help")):
        assert "SECRET" not in ran.out + ran.err
    assert run_app(app, "login").code == 1


# -- options of a line that the command has no use for -------------------------------------------------------------

def test_wait_and_output_dir_say_what_is_missing():
    ran = run_app(make(), "show", "1", "--wait", "--output-dir", "x")
    assert ran.code == 64 and ran.err.splitlines()[:2] == [
        "--wait: show has no wait configured, so its first answer is final",
        "--output-dir: this program declares no download"]


# -- starts --------------------------------------------------------------------------------------------------------

def test_faulty_registrations_are_one_sentence_and_exit_70():
    cases = [
        nk.App("app", "1", auth="me", resolve_auth=lambda g: "me"),
        nk.App("app", "1", exit_codes={"X": 256}), nk.App("app", "1", exit_codes={"X": True}),
        nk.App("app", "1", sandbox="/no/such/folder/anywhere"), nk.App("app", "1", default_command="nope"),
        nk.App("app", "1", aliases={"nope": {"f": "x"}}), nk.App("app", "1", positionals={"nope": []}),
        nk.App("app", "1", commands=[3]), nk.App("app", "1", commands=[nothing, nothing]),
    ]
    for app in cases:
        app.native(name="ok")(nothing) if app.name == "never" else None
        for tokens in ([], ["nothing"], ["--help"]):
            ran = run_app(app, *tokens)
            assert ran.code == 70 and ran.out == "" and len(ran.err.splitlines()) == 1, (ran, tokens)


def test_services_name_their_commands_and_keep_their_scope():
    def list() -> List[str]:  # noqa: A001
        return ["a"]

    def get(id: str) -> str:
        return id

    widgets = nk.Service("widgets", [list, get], scope="user")
    app = nk.App("app", "1", expose=("cli",), services=[widgets])
    assert run_app(app, "list-widgets").data == ["a"] and run_app(app, "get_widget", "7").data == "7"


def test_describe_selftest_and_completion_are_json_ready():
    app = make()
    facts = app.describe()
    assert json.loads(json.dumps(facts)) == facts and facts["problems"] == [] and app.selftest() == []
    assert [item["name"] for item in facts["commands"]] == ["pay", "show", "run", "rows", "wipe"]
    assert facts["commands"][4]["flags"] == ["destructive"]
    assert "complete" in app.completion("bash")
    with pytest.raises(nk.Error):
        app.completion("tcsh")

    def bad(x: complex) -> None:
        """Has no schema."""

    app.command(bad)
    assert len(app.selftest()) == 1 and "bad" in app.selftest()[0]
    assert run_app(app, "show", "1").code == 0  # a schema is compiled when its command is first called


def test_arun_awaits_inside_a_running_loop():
    app = nk.App("app", expose=("cli",))

    @app.command
    async def later(n: int) -> int:
        await asyncio.sleep(0)
        return n

    out = io.BytesIO()
    env = nk.Env(argv=["app"], stdin=None, stdout=out, stderr=io.BytesIO(), environ={}, cwd=".", tty=lambda: None)
    assert asyncio.run(app.arun(["later", "3"], env=env)) == 0 and out.getvalue() == b"3\n"
    assert run_app(app, "later", "3").data == 3


# -- whole processes -----------------------------------------------------------------------------------------------

PROGRAM = '''
import os, subprocess, sys, warnings
sys.path.insert(0, {root!r})
import knaif as nk
app = nk.App("prog", "1", expose=("cli",))

@app.command
def noisy() -> dict:
    print("using defaults")
    warnings.warn("old")
    subprocess.run([sys.executable, "-c", "print('child')"])
    os.write(1, b"raw")
    return {{"id": 1, "text": "\\u65e5\\u672c\\u8a9e"}}

@app.command
def crash() -> None:
    print("half")
    raise RuntimeError("no")

@app.command
def big(n: int) -> str:
    return "x" * n

@app.command
def show(id: str) -> str:
    return id

@app.command
def hang() -> None:
    import time
    sys.stderr.write("ready\\n"); sys.stderr.flush()
    time.sleep(60)

@app.native
def raw() -> None:
    print("mine")
    sys.exit(7)

@app.native
def lots() -> None:
    print("x" * 3000000)

@app.command
def replace() -> int:
    sys.stdout = sys.stderr = object()
    return 1

if __name__ == "__main__":
    app.main()
'''


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("prog") / "prog.py"
    path.write_text(PROGRAM.format(root=ROOT), encoding="utf-8")
    return str(path)


def spawn(program, *tokens, env=None, **options):
    facts = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    facts.update(env or {})
    options.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.run([sys.executable, program, *tokens], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env=facts, timeout=30, **options)


def test_io_03_what_handlers_and_children_print_goes_to_stderr(program):
    ran = spawn(program, "noisy")
    assert ran.returncode == 0 and json.loads(ran.stdout) == {"id": 1, "text": "日本語"}
    for notice in (b"using defaults", b"old", b"child", b"raw"):
        assert notice in ran.stderr
    ran = spawn(program, "crash", "--json")
    assert ran.returncode == 1 and ran.stdout == b"" and b"half" in ran.stderr
    assert json.loads(ran.stderr.splitlines()[-1])["error"] == "INTERNAL_SERVER_ERROR"


def test_io_r2_readable_on_utf_8_escaped_elsewhere(program):
    readable = spawn(program, "noisy", env={"PYTHONIOENCODING": "utf-8"}).stdout
    escaped = spawn(program, "noisy", env={"PYTHONIOENCODING": "ascii"}).stdout
    plain = spawn(program, "noisy", env={"LC_ALL": "C"}).stdout
    assert "日本語".encode() in readable and escaped.isascii()
    assert json.loads(readable) == json.loads(escaped) == json.loads(plain)


def test_io_01_a_silent_pipe_and_a_closed_stdin_do_not_wait(program):
    read, write = os.pipe()
    try:
        assert spawn(program, "show", "x", stdin=read).stdout == b'"x"\n'
        missing = spawn(program, "show", stdin=read)
        assert missing.returncode == 1 and b"VALIDATION_ERROR" in missing.stderr
    finally:
        os.close(read)
        os.close(write)
    closed = subprocess.run(["/bin/sh", "-c", f'exec "{sys.executable}" "{program}" show x 0<&-'], capture_output=True)
    assert (closed.returncode, closed.stdout, closed.stderr) == (0, b'"x"\n', b"")


def test_output_is_complete_on_a_slow_pipe_and_quiet_when_the_reader_leaves(program):
    child = subprocess.Popen([sys.executable, program, "big", "3000000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    data, err = child.communicate(timeout=30)
    assert child.returncode == 0 and len(data) == 3000003 and err == b""
    child = subprocess.Popen([sys.executable, program, "big", "3000000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    child.stdout.read(10)
    child.stdout.close()
    assert child.stderr.read() == b"" and child.wait(30) == 141


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full on this system")
def test_a_full_disk_is_an_error(program):
    with open("/dev/full", "wb") as full:
        child = subprocess.run([sys.executable, program, "show", "x"], stdout=full, stderr=subprocess.PIPE, timeout=30)
    assert child.returncode == 1 and json.loads(child.stderr)["error"] == "OUTPUT_FAILED"


def test_ctrl_c_ends_with_130_and_no_traceback(program):
    import signal

    child = subprocess.Popen([sys.executable, program, "hang", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stderr.readline() == b"ready\n"
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=30)
    assert child.returncode == 130 and out == b"" and b"Traceback" not in err
    assert json.loads(err.splitlines()[-1])["error"] == "REQUEST_ABORTED"


def test_a_native_without_returns_prints_for_itself(program):
    ran = spawn(program, "raw")
    assert (ran.returncode, ran.stdout, ran.stderr) == (7, b"mine\n", b"")


# Calls in process, and what another copy of this file serves


def make_counter(**options):
    app = nk.App("counter", "2.0.0", expose=("cli",), **options)

    @app.command
    def add(number: int, ctx: nk.Ctx) -> dict:
        return {"sum": number + 1, "globals": getattr(ctx.globals, "level", None), "id": ctx.call_id}

    @app.command(destructive=True)
    def wipe() -> None:
        pass

    @app.native
    def shout() -> None:
        print("loud")

    @app.native
    def weigh(what: str) -> int:
        return len(what)

    return app


@dataclasses.dataclass
class Levels:
    level: int = 1
    name: Annotated[str, nk.Opt(env="COUNTER_NAME")] = "x"


def test_an_invoker_calls_in_process_with_the_codes_of_the_command_line():
    with make_counter().invoker() as invoker:
        assert [command.name for command in invoker.commands] == ["weigh", "add", "wipe"]
        assert invoker.invoke("add", {"number": 1}, id="a").to_wire() == {
            "ok": True, "exitCode": 0, "data": {"sum": 2, "globals": None, "id": "a"}}
        assert invoker.invoke("weigh", {"what": "abc"}).data == 3
        for name, args, code in (("add", {"number": "1"}, 1), ("wipe", {}, 8), ("shout", {}, 4), ("nope", {}, 4)):
            assert invoker.invoke(name, args).exit_code == code


def test_an_invoker_takes_application_options_as_json_and_from_the_environment():
    app = make_counter(global_options=Levels)
    env = nk.Env(environ={"COUNTER_NAME": "y"})
    assert app.invoker({"level": 5}, env=env).invoke("add", {"number": 1}).data["globals"] == 5
    for given, message in (
        ({"level": "high"}, '--level: expected a whole number, got the string "high"'),
        ({"colour": 1}, 'application options: there is no "colour"'),
        ({"level": {1}}, 'application options: a value of the Python type set at "/level"'),
    ):
        with pytest.raises(nk.Error) as caught:
            app.invoker(given, env=env)
        assert (caught.value.code, caught.value.message) == ("USAGE", message)


def test_start_up_checks_hold_for_an_invoker_too():
    app = nk.App("bad", expose=("cli",))

    @app.command
    def one(what: complex) -> None:
        pass

    with pytest.raises(nk.RegistrationError):
        app.invoker()


def test_commands_that_only_the_identity_makes_known_are_found_by_an_invoker():
    asked = []

    def tools(who):
        asked.append(who)
        return [nk.Command(lambda given: given, name="late", input={"type": "object"}, expose=["cli"])]

    with make_counter(auth="ann", runtime_tools=tools).invoker() as invoker:
        assert invoker.invoke("add", {"number": 1}).ok and asked == []
        assert invoker.invoke("late", {"a": 1}).data == {"a": 1}
        assert invoker.invoke("nope").exit_code == 4 and asked == ["ann"]


class Store:
    """A ProfileStore as App sees one."""

    variable = "COUNTER_PROFILE"

    def __init__(self):
        self.asked = []

    def resolve(self, name, env, *, quiet):
        self.asked.append(name)
        if name == "nope":
            raise nk.Error("NOT_FOUND", "there is no profile nope")
        return type("Profile", (), {"name": name or "only", "source": "option" if name else "only",
                                    "public": {"name": name or "only", "values": {}}})


def test_a_profile_is_resolved_once_before_a_managed_call_and_not_for_help():
    store = Store()
    app = make_counter(profiles=store, resolve_auth=lambda options, profile: profile.name)

    @app.command
    def who(ctx: nk.Ctx) -> str:
        return f"{ctx.profile.name} {ctx.identity}"

    assert run_app(app, "who", "--profile", "prod").data == "prod prod"
    assert run_app(app, "who", "--help").code == 0 and run_app(app, "--help").code == 0
    assert store.asked == ["prod"]
    ran = run_app(app, "who", "--profile", "nope")
    assert (ran.code, ran.failure["message"]) == (4, "there is no profile nope")
    assert "--profile" in run_app(app, "--help").out and "COUNTER_PROFILE" in run_app(app, "--help").out


def test_a_native_command_looks_for_a_profile_only_when_it_wants_one_or_one_is_named():
    store = Store()
    app = make_counter(profiles=store)

    @app.native
    def which(ctx: nk.Ctx) -> str:
        return ctx.profile.name

    assert run_app(app, "weigh", "abc").data == 3 and store.asked == []
    assert run_app(app, "which").data == "only" and store.asked == [None]
    assert run_app(app, "weigh", "abc", "--profile", "nope").code == 4


def test_the_question_names_the_profile_and_why_it_is_that_one():
    class Terminal(io.StringIO):
        def readline(self, limit=-1):
            return "n\n"

        def close(self):
            asked.append(self.getvalue())

    for words, line in (
        (["--profile", "prod"], "  profile: prod (--profile)\n"), ([], "  profile: only (the only one)\n"),
    ):
        asked = []
        assert run_app(make_counter(profiles=Store()), "wipe", *words, tty=Terminal).code == 8
        assert line in asked[0]


def test_a_program_with_profiles_owns_the_option():
    for options, message in (
        ({"profiles": "prod"}, "App(profiles=...) of counter must be a ProfileStore"),
        ({"profiles": Store(), "global_options": {"type": "object", "properties": {"profile": {"type": "string"}}}},
         "App(profiles=...) of counter owns --profile; leave profile out of global_options"),
    ):
        ran = run_app(make_counter(**options), "weigh", "a")
        assert (ran.code, ran.err) == (70, message + "\n")


def test_an_app_refuses_to_serve_what_it_does_not_know():
    with pytest.raises(nk.Error) as caught:
        make_counter().serve("telepathy", [])
    assert caught.value.message == 'this program serves stream, batch, ask, check, execute, eval, not "telepathy"'


# Regressions

class Own(BaseException):
    pass


@pytest.mark.parametrize("make, code", [
    (lambda: Own("x"), 1), (lambda: GeneratorExit(), 1), (lambda: asyncio.CancelledError(), 1),
    (lambda: KeyboardInterrupt(), 130), (lambda: SystemExit(0), 1), (lambda: RecursionError(), 1), (lambda: MemoryError(), 1)])
def test_whatever_is_raised_anywhere_ends_in_an_envelope(make, code):
    def leave(*facts):
        raise make()

    def go() -> int:
        return 1

    apps = [
        nk.App("app", expose=("cli",), commands=[nk.command(name="go")(lambda: leave())]),
        nk.App("app", expose=("cli",), commands=[go], resolve_auth=leave),
        nk.App("app", expose=("cli",), commands=[go], context=leave),
        nk.App("app", expose=("cli",), services=leave), nk.App("app", expose=("cli",), runtime_tools=leave),
        nk.App("app", expose=("cli",), commands=[go], lifecycle=nk.Lifecycle(leave)),
        nk.App("app", expose=("cli",), commands=[go], lifecycle=nk.Lifecycle(None, leave)),
        nk.App("app", expose=("cli",), commands=[go], hooks=nk.Hooks(leave)),
    ]
    for number, app in enumerate(apps):
        ran = run_app(app, "go")
        assert ran.code == code, (number, ran)
        assert ran.failure["error"] == ("REQUEST_ABORTED" if code == 130 else "INTERNAL_SERVER_ERROR"), number


def test_an_error_hint_cannot_break_the_failure():
    for hint in (lambda error: {"x": 1}, lambda error: 10 ** 5000, lambda error: sys.exit(0), 7, b"x"):
        app = nk.App("app", expose=("cli",), error_hint=hint)
        app.command(name="fail")(refuse)
        assert run_app(app, "fail").failure == {"error": "CONFLICT", "message": "no", "retryable": False}


def refuse() -> None:
    raise nk.Error("CONFLICT", "no")


@pytest.mark.parametrize("options, message", [
    (dict(services=5), "App(services=...) of app must be a list, not int"),
    (dict(runtime_tools=5), "App(runtime_tools=...) of app must be a list, not int"),
    (dict(commands=5), "App(commands=...) of app must be a list, not int"),
    (dict(aliases=5), "App(aliases=...) of app must be a mapping, not int"),
    (dict(aliases={"c": 5}), "App(aliases=...) of app: c needs a mapping of letters to fields, not int"),
    (dict(positionals={"c": 5}), "App(positionals=...) of app: c needs a list of fields, not int"),
    (dict(passthrough=5), "App(passthrough=...) of app must be a mapping, not int"),
    (dict(exit_codes=5), "App(exit_codes=...) of app must be a mapping, not int"),
    (dict(default_command=5), "App(default_command=...) of app must be the name of a command"),
    (dict(hooks=5), "App(hooks=...) of app must be Hooks(...)"),
    (dict(lifecycle=nk.Lifecycle), "App(lifecycle=...) of app must be Lifecycle(...)"),
    (dict(description=5), "App(description=...) must be text, not int"),
    (dict(stdin="x"), "App(stdin=...) of app must be a function"),
    (dict(auth=1, resolve_auth=print), "App app was given both auth and resolve_auth; pass one of them"),
    (dict(wait={"x": 1}), 'App(wait=...) names "x", which is no shell command; name a command that is exposed on cli'),
    (dict(planner=1), "App(planner=...) of app needs a method propose(request)"),
    (dict(exit_codes={"X": 256}), "exit_codes of app: X needs a whole number from 0 to 255, not 256"),
])
def test_constructor_arguments_of_a_wrong_kind_are_one_sentence(options, message):
    app = nk.App("app", **options)
    ran = run_app(app, "--help")
    assert (ran.code, ran.out, ran.err) == (70, "", message + "\n")
    assert app.selftest() == [message]


def test_a_native_runtime_tool_is_refused_by_name():
    @nk.native
    def doctor() -> int:
        return 1

    app = nk.App("app", runtime_tools=[doctor])
    assert run_app(app, "--help").err.endswith(
        "doctor is a native command, which cannot be a runtime tool; list it in the commands of the application\n")


def test_application_options_that_are_paths_are_checked():
    @dataclasses.dataclass
    class Options:
        store: pathlib.Path = pathlib.Path("x")

    app = nk.App("app", "1", expose=("cli",), global_options=Options)

    @app.native
    def where(ctx: nk.Ctx) -> str:
        return str(ctx.globals.store)

    assert run_app(app, "where").data == "x"
    for word in ("--store=", '--store:="a\\u0000b"', "--store=" + "x" * 300):
        ran = run_app(app, "where", word)
        assert ran.code == 64 and ran.err.startswith("--store"), ran


def test_the_question_shows_application_options_too():
    terminal = Terminal("n\n")
    app = nk.App("app", "1", expose=("cli",), global_options={"type": "object", "properties": {
        "server": {"type": "string"}, "zone": {"type": "string"}}})
    app.command(name="wipe", destructive=True)(lambda: None)
    assert run_app(app, "wipe", "--server", "prod", tty=lambda: terminal).code == 8
    assert terminal.shown.split("\n")[:2] == ["wipe is destructive:", '  --server: "prod"']


@pytest.mark.parametrize("given, code", [(b"x", 1), (5, 1), (["x"], 1), (None, 1), ("x", 0), ("", 1)])
def test_a_stdin_reader_that_returns_something_else_is_the_programs_fault(given, code):
    ran = run_app(make(stdin=lambda: given), "show")
    assert ran.code == code
    if code and not isinstance(given, (str, type(None))):
        assert ran.failure["error"] == "INTERNAL_SERVER_ERROR" and "App(stdin=...)" in ran.failure["message"]


def test_a_coroutine_reader_and_coroutine_factories_are_awaited():
    async def later(*facts):
        return facts and [nk.command(name="tool", expose=("cli",))(lambda: 5)] or "x"

    assert run_app(make(stdin=lambda: later()), "show").data == {"id": "x"}
    assert run_app(nk.App("app", "1", runtime_tools=later), "tool").data == 5


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full on this system")
def test_a_native_that_cannot_print_says_that_output_failed(program):
    with open("/dev/full", "wb") as full:
        env = dict(os.environ, PYTHONUNBUFFERED="1")
        child = subprocess.run([sys.executable, program, "raw"], stdout=full, stderr=subprocess.PIPE, timeout=30, env=env)
    assert child.returncode == 1 and json.loads(child.stderr)["error"] == "OUTPUT_FAILED"


def test_a_native_prints_all_of_it_into_a_pipe_that_does_not_block(program):
    read, write = os.pipe()
    os.set_blocking(write, False)
    child = subprocess.Popen([sys.executable, program, "lots"], stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    with open(read, "rb") as stream:
        assert len(stream.read()) == 3000001
    assert child.wait(30) == 0 and child.stderr.read() == b""


def test_a_handler_that_replaces_the_standard_streams_does_no_harm(program):
    ran = spawn(program, "replace")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"1\n", b"")


def test_faults_of_application_options_beat_the_help_of_a_command():
    app = options_app([])
    for tokens, environ in ((["where", "--help", "--level", "9"], {}), (["--help", "--level", "9"], {})):
        assert run_app(app, *tokens, environ=environ).code == 64


def test_help_as_a_word_searches_behind_options_too():
    app = make()
    plain = run_app(app, "help", "pay").out
    assert plain.startswith('Commands matching "pay" (1 of 5):\n')
    for tokens in (["help", "--json", "pay"], ["--json", "help", "pay"], ["help", "--quiet", "--json", "pay"]):
        assert run_app(app, *tokens).out == plain
    assert run_app(app, "help", "--json").out == run_app(app, "help").out


def test_digits_over_the_limit_are_never_echoed():
    for tokens in (["pay", "bob", "--amount=" + "9" * 4400], ["pay", "bob", "--rate", "9" * 4400],
                   ["pay", "bob", "--meta:=" + "9" * 4400], ["pay", "bob", "--meta.a:=" + "9" * 4400]):
        ran = run_app(make(), *tokens)
        assert ran.code == 64 and "999" not in ran.err and "a text of 4,400 characters" in ran.err, ran
