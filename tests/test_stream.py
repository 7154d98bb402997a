"""STREAM: calls in process, and lines of JSON that are answered one by one."""
import asyncio
import io
import json
import os
import signal
import subprocess
import sys
import textwrap
import tracemalloc
from typing import Any

import pytest

import knaif as nk
from conftest import Ran, run_app

ROOT = os.path.dirname(os.path.abspath(nk.__file__))
BOM = b"\xef\xbb\xbf"
POSIX = pytest.mark.skipif(os.name != "posix", reason="pipes and signals of POSIX")


def make(**options: Any) -> nk.App:
    """An application with a command of each kind, and a stream that may confirm purge."""
    app = nk.App("app", "1.0.0", expose=("cli", "agent"), commands=[nk.stream_command(allow_confirmed=["purge"])],
                 **options)

    @app.command(readonly=True)
    def show(id: str, count: int = 1) -> dict:
        """Show one record."""
        return {"id": id, "count": count}

    @app.command(destructive=True)
    def wipe(what: str, ctx: nk.Ctx) -> str:
        """Remove something."""
        return f"wiped {what} {ctx.confirmed}"

    @app.command(destructive=True)
    def purge(ctx: nk.Ctx) -> bool:
        """Remove everything."""
        return ctx.confirmed

    @app.command
    def fail(code: str) -> None:
        """Refuse."""
        raise nk.Error(code, "as asked")

    @app.command
    def speak(ctx: nk.Ctx, out: str = "", err: str = "") -> list:
        """Write to both streams."""
        ctx.stdout.write(out)
        ctx.stderr.write(err)
        return [ctx.call_id, ctx.options.quiet, ctx.options.json]

    @app.command(previews=True, destructive=True)
    def move(ctx: nk.Ctx) -> str:
        """Move everything."""
        return "would move" if ctx.dry_run else "moved"

    @app.command
    async def later(x: int) -> int:
        """Answer in a while."""
        await asyncio.sleep(0)
        return x

    @app.command(expose=("agent",))
    def hidden_away() -> None:
        """Not for the shell."""

    @app.native(present=lambda result, options: 1 // 0, exit_code=lambda result: result["status"])
    def status(status: int, ctx: nk.Ctx) -> dict:
        """Exit with a status."""
        return {"status": status, "quiet": ctx.options.quiet, "yes": ctx.options.yes}

    @app.native
    def plain() -> None:
        """Print for itself."""

    return app


def call(id: Any, command: str, args: Any = None, **more: Any) -> bytes:
    """One line with its end."""
    given = {} if args is None else {"args": args}
    return json.dumps(dict({"id": id, "command": command}, **given, **more)).encode() + b"\n"


SHOW = call("a", "show", {"id": "7"})


def stream(data: bytes, *words: str, app: Any = None, **options: Any) -> Ran:
    """Run the stream command in process over these bytes."""
    return run_app(make() if app is None else app, "stream", *words, stdin=data, **options)


def answers(ran: Ran) -> list:
    """The answers, each of which must be one line of JSON."""
    assert ran.out == "" or ran.out.endswith("\n")
    return [json.loads(line) for line in ran.out.splitlines()]


def fault(data: bytes) -> list:
    """The messages of the answers to lines that are no calls."""
    found = answers(stream(data))
    assert all(answer["error"]["code"] == "BAD_REQUEST" and answer["exitCode"] == 1 for answer in found)
    return [answer["error"]["message"] for answer in found]


# -- the invoker ---------------------------------------------------------------------------------------------------

def test_an_invoked_call_returns_its_data_and_the_exit_code_of_the_shell():
    outcome = make().invoker().invoke("show", {"id": "7"})
    assert (outcome.ok, outcome.exit_code, outcome.data, outcome.error) == (True, 0, {"id": "7", "count": 1}, None)
    assert (outcome.entered, outcome.returned, outcome.written) == (True, True, None)
    assert outcome.to_wire() == {"ok": True, "exitCode": 0, "data": {"id": "7", "count": 1}}


@pytest.mark.parametrize("name, message", [
    ("shwo", 'there is no command "shwo"; did you mean show?'),
    ("Show", 'there is no command "Show"; did you mean show?'),
    ("hidden_away", 'there is no command "hidden_away"'),
    ("", 'there is no command ""'),
    ("plain", "plain prints for itself and returns no result; run it from the command line"),
    ("stream", "stream prints for itself and returns no result; run it from the command line"),
])
def test_what_cannot_be_called_is_not_found(name, message):
    outcome = make().invoker().invoke(name, {})
    assert (outcome.exit_code, outcome.error.code, outcome.error.message) == (4, "NOT_FOUND", message)
    assert not outcome.ok and not outcome.entered


@pytest.mark.parametrize("given, message", [
    ({"command": 5}, "the command must be text, not an int"),
    ({"command": None}, "the command must be text, not a NoneType"),
    ({"args": [1]}, "args must be a dict, not a list"),
    ({"args": "x"}, 'args must be a dict, not "x"'),
    ({"confirmed": "true"}, 'confirmed must be True or False, not "true"'),
    ({"confirmed": 1}, "confirmed must be True or False, not an int"),
    ({"dry_run": None}, "dry_run must be True or False, not a NoneType"),
])
def test_an_invoked_call_of_a_wrong_kind_is_refused(given, message):
    given = dict({"command": "wipe", "args": {"what": "x"}}, **given)
    outcome = make().invoker().invoke(**given)
    assert (outcome.exit_code, outcome.error.code, outcome.error.message) == (1, "BAD_REQUEST", message)
    assert not outcome.entered


def test_args_are_json_values_and_stay_the_callers():
    invoker, args = make().invoker(), {"id": "7", "count": "3"}
    outcome = invoker.invoke("show", args)
    assert (outcome.error.code, args) == ("VALIDATION_ERROR", {"id": "7", "count": "3"})
    assert invoker.invoke("show", {"id": {1, 2}}).error.code == "VALIDATION_ERROR"
    assert invoker.invoke("show", {"id": float("nan")}).error.code == "VALIDATION_ERROR"
    assert invoker.invoke("show", {3: "7"}).error.code == "VALIDATION_ERROR"
    assert invoker.invoke("show").error.code == "VALIDATION_ERROR"


def test_commands_lists_natives_with_a_result_first_and_nothing_that_prints():
    names = [command.name for command in make().invoker().commands]
    assert names == ["status", "show", "wipe", "purge", "fail", "speak", "move", "later"]


def test_a_native_command_has_its_exit_code_but_no_presenter_and_quiet_options():
    outcome = make().invoker().invoke("status", {"status": 3})
    assert (outcome.ok, outcome.exit_code) == (True, 3)
    assert outcome.data == {"status": 3, "quiet": True, "yes": False}


def test_what_a_handler_writes_comes_back_and_touches_no_stream():
    app, out, err = make(), io.BytesIO(), io.BytesIO()
    invoker = app.invoker(env=nk.Env(stdin=None, stdout=out, stderr=err, environ={}, tty=None))
    outcome = invoker.invoke("speak", {"out": "o\n", "err": "e"}, id="k-1")
    assert outcome.written == {"stdout": "o\n", "stderr": "e"}
    assert outcome.to_wire() == {"ok": True, "exitCode": 0, "data": ["k-1", True, False],
                                 "written": {"stdout": "o\n", "stderr": "e"}}
    assert invoker.invoke("speak", {"err": "e"}).written == {"stderr": "e"}
    assert invoker.invoke("speak").written is None
    assert (out.getvalue(), err.getvalue()) == (b"", b"")


def test_a_destructive_call_needs_confirmed_true():
    invoker = make().invoker()
    refused = invoker.invoke("wipe", {"what": "x"})
    assert (refused.exit_code, refused.error.code, refused.entered) == (8, "CONFIRMATION_REQUIRED", False)
    assert invoker.invoke("wipe", {"what": "x"}, confirmed=True).data == "wiped x True"


def test_a_dry_run_admits_and_calls_nothing_but_a_preview():
    invoker = make().invoker()
    shown = invoker.invoke("wipe", {"what": "x"}, dry_run=True)
    assert (shown.data, shown.entered) == ({"command": "wipe", "args": {"what": "x"}}, False)
    assert invoker.invoke("wipe", {"what": 1}, dry_run=True).error.code == "VALIDATION_ERROR"
    assert invoker.invoke("move", dry_run=True).data == {"command": "move", "args": {}, "preview": "would move"}


def test_refusals_have_the_exit_codes_of_the_application():
    invoker = make(exit_codes={"NOT_FOUND": 44, "BROKEN": 77, "BAD_REQUEST": 11}).invoker()
    assert invoker.invoke("nothing").exit_code == 44
    assert invoker.invoke("fail", {"code": "BROKEN"}).exit_code == 77
    assert invoker.invoke("fail", []).exit_code == 11


def test_a_handler_that_exits_or_breaks_is_an_outcome_and_an_interruption_is_not():
    app = nk.App("app", expose=("cli",))

    @app.command
    def end(how: str) -> None:
        raise {"exit": SystemExit(3), "break": ZeroDivisionError(), "stop": KeyboardInterrupt()}[how]

    invoker = app.invoker()
    for how in ("exit", "break"):
        outcome = invoker.invoke("end", {"how": how})
        assert (outcome.exit_code, outcome.error.code, outcome.entered, outcome.returned) == (
            1, "INTERNAL_SERVER_ERROR", True, False)
    with pytest.raises(KeyboardInterrupt):
        invoker.invoke("end", {"how": "stop"})


def test_a_cancelled_call_is_aborted():
    cancel = nk.Cancel()
    cancel.cancel()
    outcome = make().invoker().invoke("show", {"id": "7"}, cancel=cancel)
    assert (outcome.exit_code, outcome.error.code, outcome.entered) == (130, "REQUEST_ABORTED", False)


def test_an_invoker_of_a_faulty_command_is_refused():
    app = nk.App("app", expose=("cli",))

    @app.command
    def broken(x: object()) -> None:
        pass

    with pytest.raises(nk.RegistrationError):
        app.invoker()


def test_a_line_can_be_admitted_first_and_run_later():
    seen = []
    hooks = nk.Hooks(on_error=lambda command, args, error: seen.append((command.name, args, error.code)))
    invoker = make(hooks=hooks).invoker()

    def admit(line: bytes, dry_run: bool = False) -> Any:
        return invoker._admit(nk._StreamLine(7, line), dry_run)

    assert admit(b"[]").error.message == "line 7 is of type array; write an object with id, command and args"
    assert (admit(call(1, "nothing")).exit_code, seen) == (4, [])
    assert (admit(call(1, "later", {"x": "1"})).error.code, seen) == (
        "VALIDATION_ERROR", [("later", {"x": "1"}, "VALIDATION_ERROR")])
    admitted = admit(call("k", "later", {"x": 1}))
    assert (admitted.call.id, admitted.args, admitted.entered, len(admitted.digest)) == ("k", {"x": 1}, False, 64)
    assert invoker._run(admitted, nk.Approval("none")).data == 1
    assert invoker._run(admit(call(1, "wipe", {"what": "x"})), nk.Approval("none")).exit_code == 8
    assert invoker._run(admit(call(1, "later", {"x": 1}), True), nk.Approval("none")).data == {
        "command": "later", "args": {"x": 1}}
    invoker.close()


# -- coroutine handlers --------------------------------------------------------------------------------------------

def looping() -> nk.App:
    """An application whose handlers tell the loop they run in."""
    app = nk.App("app", expose=("cli",))
    app.seen = []

    @app.command
    async def loop() -> int:
        app.seen.append(asyncio.get_running_loop())
        return len(app.seen)

    @app.command
    async def leave() -> None:
        async def linger() -> None:
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                app.seen.append("cancelled")
                raise
        app.task = asyncio.ensure_future(linger())
        await asyncio.sleep(0)

    return app


def test_coroutine_handlers_share_one_loop_until_it_is_closed():
    app = looping()
    with app.invoker() as invoker:
        assert [invoker.invoke("loop").data for _ in range(3)] == [1, 2, 3]
        assert len(set(app.seen)) == 1 and not app.seen[0].is_closed()
    assert app.seen[0].is_closed()
    invoker.close()
    assert invoker.invoke("loop").data == 4
    assert app.seen[3] is not app.seen[0]
    invoker.close()


def test_closing_cancels_what_handlers_left_in_the_loop():
    app = looping()
    with app.invoker() as invoker:
        assert invoker.invoke("leave").ok
    assert app.seen == ["cancelled"] and app.task.cancelled()


def test_inside_a_running_loop_invoke_refuses_and_ainvoke_works(recwarn):
    app = looping()

    async def main() -> None:
        invoker = app.invoker()
        refused = invoker.invoke("loop")
        assert (refused.error.code, refused.error.message) == (
            "BAD_REQUEST", "a coroutine handler cannot be run synchronously inside a running event loop: await "
            "arun or ainvoke instead")
        assert (await invoker.ainvoke("loop")).data == 1
        assert app.seen == [asyncio.get_running_loop()]
        assert (await invoker.ainvoke("nothing")).error.code == "NOT_FOUND"
        assert (await invoker.ainvoke("loop", confirmed=1)).error.code == "BAD_REQUEST"

    asyncio.run(main())
    assert [str(warning.message) for warning in recwarn] == []


def test_threads_take_turns_with_the_kept_loop():
    from concurrent.futures import ThreadPoolExecutor

    app = looping()
    with app.invoker() as invoker, ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: invoker.invoke("loop").data, range(64)))
    assert sorted(found) == list(range(1, 65)) and len(set(app.seen)) == 1


# -- identity and what it makes known ------------------------------------------------------------------------------

def dynamic(resolve_auth: Any, **options: Any) -> nk.App:
    """An application whose service exists for an identity alone."""
    @nk.command(name="mine")
    def mine(ctx: nk.Ctx) -> Any:
        return ctx.identity

    app = nk.App("app", expose=("cli",), resolve_auth=resolve_auth, runtime_tools=lambda who: [mine],
                 commands=[nk.stream_command()], **options)

    @app.command
    def who(ctx: nk.Ctx) -> Any:
        return ctx.identity

    @app.native
    def free() -> int:
        return 1

    return app


def test_the_identity_is_found_once_and_never_for_natives_or_faulty_calls():
    found = []
    invoker = dynamic(lambda globals: found.append(globals) or "me").invoker()
    assert invoker.invoke("free").data == 1
    assert invoker.invoke("who", {"x": 1}).error.code == "VALIDATION_ERROR"
    assert invoker.invoke("who", dry_run=True).ok and found == []
    assert [invoker.invoke(name).data for name in ("who", "mine", "who", "mine")] == ["me"] * 4
    assert [command.name for command in invoker.commands] == ["free", "who", "mine"]
    assert len(found) == 1


def test_the_identity_is_found_once_for_tasks_at_the_same_time():
    found = []

    async def resolve(globals: Any) -> str:
        found.append(globals)
        await asyncio.sleep(0)
        return "me"

    async def main() -> list:
        return await asyncio.gather(*(invoker.ainvoke(name) for name in ("who", "mine") * 5))

    invoker = dynamic(resolve).invoker()
    assert [outcome.data for outcome in asyncio.run(main())] == ["me"] * 10
    assert len(found) == 1


def test_an_identity_that_fails_answers_every_name_that_it_would_make_known():
    tried = []

    def refuse(globals: Any) -> None:
        tried.append(1)
        raise nk.Error("UNAUTHORIZED", "sign in first")

    invoker = dynamic(refuse).invoker()
    for name in ("mine", "wo", "who", "mine"):
        outcome = invoker.invoke(name)
        assert (outcome.exit_code, outcome.error.code, outcome.error.message) == (2, "UNAUTHORIZED", "sign in first")
    assert invoker.invoke("free").data == 1
    with pytest.raises(nk.Error, match="sign in first"):
        invoker.commands
    assert len(tried) == 1


@pytest.mark.parametrize("fails", [False, True])
def test_what_the_identity_makes_known_is_asked_for_once(fails):
    asked = []

    def make_tools(who: Any) -> list:
        asked.append(who)
        if fails:
            raise nk.Error("FORBIDDEN", "no tools for you")
        return []

    invoker = nk.App("app", auth="me", runtime_tools=make_tools).invoker()
    code = "FORBIDDEN" if fails else "NOT_FOUND"
    assert [invoker.invoke("none").error.code for _ in range(3)] == [code] * 3
    assert asked == ["me"]


@pytest.mark.parametrize("look", [
    lambda invoker: invoker.commands,
    lambda invoker: invoker._drive(invoker._engine.identity()),
])
def test_a_remembered_failure_does_not_grow_with_each_call(look):
    def refuse(globals: Any) -> None:
        raise nk.Error("UNAUTHORIZED", "sign in first")

    invoker, depths = dynamic(refuse).invoker(), []
    for _ in range(4):
        with pytest.raises(nk.Error) as caught:
            look(invoker)
        depths.append(len(caught.traceback))
    assert depths[2] == depths[3]


# -- reading lines -------------------------------------------------------------------------------------------------

class Trickle(io.RawIOBase):
    """A binary stream that gives its pieces one by one."""

    def __init__(self, pieces: Any) -> None:
        self.pieces = iter(pieces)

    def read(self, size: int = -1) -> bytes:
        return next(self.pieces, b"")


def lines_of(stdin: Any, **options: Any) -> Any:
    return nk._StreamLines(nk.Env(stdin=stdin, stdout=None, stderr=None, environ={}, tty=None, **options), "-")


def every(lines: Any) -> list:
    return list(iter(lines.next, None))


def test_lines_cut_anywhere_are_the_same_lines(rng):
    parts = [SHOW, b"\n", b" \t\r\n", call(1, "x")[:-1] + b"\r\n", b"[]\n", b"{\n", "é\u2028\u2029\x85\n".encode(),
             b"\x0b\n", b"\x00\n", BOM + SHOW]
    for _ in range(300):
        data = rng.choice((b"", BOM)) + b"".join(rng.choices(parts, k=rng.randrange(12)))
        data = data[: len(data) - rng.choice((0, 0, 1, 3))]
        cuts = sorted(rng.sample(range(1, len(data)), min(rng.randrange(6), len(data) - 1))) if len(data) > 1 else []
        pieces = [data[a:b] for a, b in zip([0] + cuts, cuts + [None]) if data[a:b]]
        whole = data[len(BOM) :] if data.startswith(BOM) else data
        wanted = [(number, bool(json_or_none(text))) for number, text in enumerate(whole.split(b"\n"), 1)
                  if text.strip(b" \t\r")]
        found = every(lines_of(Trickle(pieces)))
        assert [(line.number, line.fault is None) for line in found] == wanted, data


def json_or_none(text: bytes) -> Any:
    try:
        value = json.loads(text.decode())
        return value if isinstance(value, dict) and "id" in value else None
    except ValueError:
        return None


@pytest.mark.parametrize("line, message", [
    (b"{", "line 1 is not JSON: an unfinished value at character 2; write one object on each line"),
    (b"{'a'}", "line 1 is not JSON: an unexpected character at character 2; write one object on each line"),
    (b'{"id":1,"id":2}', "line 1 is not JSON: a repeated key; write one object on each line"),
    (b'{"id":NaN}', "line 1 is not JSON: NaN, which is no JSON number; write one object on each line"),
    (b'{"id":"\\ud800"}', "line 1 is not JSON: a lone surrogate at character 8; write one object on each line"),
    (b"[" * 1000, "line 1 is not JSON: more than 128 levels; write one object on each line"),
    (b"9" * 5000, "line 1 is not JSON: an integer of more than 4,300 digits; write one object on each line"),
    (b"\xff", "line 1 is not JSON: bytes that are not UTF-8 at character 1; write one object on each line"),
    (SHOW[:-1] + SHOW[:-1], "line 1 is not JSON: text after the value at character 52; write one object on each line"),
    (b"\x0c", "line 1 is not JSON: an unexpected character at character 1; write one object on each line"),
    (b"[]", "line 1 is of type array; write an object with id, command and args"),
    (b'"x"', "line 1 is of type string; write an object with id, command and args"),
    (b"1.0", "line 1 is of type number; write an object with id, command and args"),
    (b"null", "line 1 is of type null; write an object with id, command and args"),
    (b'{"command":"show"}', "line 1 has no id; give text or an integer of 1 to 256 characters"),
    (b'{"id":"","command":"show"}', "line 1 has an empty id; give text or an integer of 1 to 256 characters"),
    (b'{"id":null,"command":"show"}', "line 1 has no id; give text or an integer of 1 to 256 characters"),
    (b'{"id":true,"command":"show"}', "line 1 has an id of type boolean; give text or an integer of 1 to 256 characters"),
    (b'{"id":1.0,"command":"show"}', "line 1 has an id of type number; give text or an integer of 1 to 256 characters"),
    (b'{"id":[1],"command":"show"}', "line 1 has an id of type array; give text or an integer of 1 to 256 characters"),
    (call("x" * 257, "show"), "line 1 has an id that is too long; give text or an integer of 1 to 256 characters"),
    (call(10**256, "show"), "line 1 has an id that is too long; give text or an integer of 1 to 256 characters"),
    (call(-(10**256), "show"), "line 1 has an id that is too long; give text or an integer of 1 to 256 characters"),
    (b'{"id":1}', "line 1 has no command; give the name of one as text"),
    (call(1, None), "line 1 has no command; give the name of one as text"),
    (call(1, "show", [1]), "line 1 has args of type array; give an object"),
    (b'{"id":1,"command":"show","args":null}', "line 1 has args of type null; give an object"),
    (call(1, "show", confirmed="true"), "line 1 has a confirmed of type string; give true or false"),
    (call(1, "show", confirmed=1), "line 1 has a confirmed of type integer; give true or false"),
    (call(1, "show", arg={}), "line 1 has the unknown key \"arg\"; a line has id, command, args and confirmed"),
    (call(1, "show", dry_run=True), "line 1 has the unknown key \"dry_run\"; a line has id, command, args and confirmed"),
])
def test_a_line_that_is_no_call_is_answered_with_its_number(line, message):
    assert fault(line) == [message]


@pytest.mark.parametrize("id", [1, 0, -7, 10**256 - 1, "x", "x" * 256, " ", "\u65e5\u672c\U0001f600", "a\u0000b\u2028"])
def test_an_id_is_echoed_as_it_came_even_from_a_faulty_line(id):
    good, bad = answers(stream(call(id, "show", {"id": "7"}) + call(id, "show", [1])))
    assert (good["id"], good["ok"], "line" in good) == (id, True, False)
    assert (bad["id"], bad["ok"], bad["line"]) == (id, False, 2)
    assert list(bad) == ["id", "line", "ok", "exitCode", "error"]


def test_no_message_repeats_the_text_of_a_faulty_line():
    lines = [b'{"id":1,"command":"show","what":"tok-SECRET"}', b'{"id":["tok-SECRET"]}', b'"tok-SECRET"', b"tok-SECRET",
             b'{"id":1,"command":{"tok-SECRET":1}}', b'{"id":1,"command":"show","args":"tok-SECRET"}',
             b'{"tok-SECRET":1,"tok-SECRET":2}', b"{\"id\":1,\"command\":\"show\",\"confirmed\":\"tok-SECRET\"}"]
    ran = stream(b"\n".join(lines))
    assert len(answers(ran)) == len(lines) and "SECRET" not in ran.out + ran.err


def test_jsl_01_a_byte_order_mark_may_begin_the_first_line_alone(tmp_path, recwarn):
    data = BOM + SHOW + b"\r\n \n" + SHOW[:-1] + b"\r\n" + SHOW[:-1]
    (tmp_path / "calls.jsonl").write_bytes(data)
    for ran in (stream(data), stream(b"", str(tmp_path / "calls.jsonl")),
                stream(b"", "calls.jsonl", cwd=str(tmp_path)), stream(b"", "--file", "calls.jsonl", cwd=str(tmp_path))):
        assert [answer["ok"] for answer in answers(ran)] == [True] * 3
        assert (ran.code, ran.err) == (0, "3 lines answered, 0 failed\n")
    assert [str(warning.message) for warning in recwarn] == []  # no file stays open
    ran = stream(SHOW + BOM + SHOW + SHOW)
    assert [answer["ok"] for answer in answers(ran)] == [True, False, True]
    assert answers(ran)[1] == {"id": None, "line": 2, "ok": False, "exitCode": 1, "error": {
        "code": "BAD_REQUEST", "retryable": False,
        "message": "line 2 is not JSON: a byte order mark at character 1; write one object on each line"}}
    assert stream(BOM).out == "" and stream(BOM + b"\n\n").code == 0
    assert fault(b"\n" + BOM + SHOW) == [
        "line 2 is not JSON: a byte order mark at character 1; write one object on each line"]


def test_jsl_02_a_broken_line_stops_nothing_but_itself():
    data = b"\n".join([SHOW[:-1], b'{"id":"b","command":"show","args":{"id":"\xe6\x87"}}', b"[]", b"42", b"null",
                       b"\0" * 65536, b'{"id":"c","command":"show","args":{"id":"a\\u0000b"}}', SHOW])
    ran = stream(data)
    found = answers(ran)
    assert [answer["ok"] for answer in found] == [True, False, False, False, False, False, True, True]
    assert [answer["line"] for answer in found[1:6]] == [2, 3, 4, 5, 6]
    assert max(len(answer["error"]["message"]) for answer in found[1:6]) < 120
    assert found[6]["data"]["id"] == "a\0b"
    assert (ran.code, ran.err) == (1, "8 lines answered, 5 failed\n")


def test_jsl_r1_a_line_of_50_mb_is_answered_within_a_memory_bound():
    block = b"x" * 65536
    pieces = [b'{"id":1,"command":"', *[block] * 800, b'"}\n' + SHOW, SHOW]
    tracemalloc.start()
    try:
        lines = lines_of(Trickle(pieces))
        found = every(lines)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [(line.number, line.fault is None) for line in found] == [(1, False), (2, True), (3, True)]
    assert found[0].fault.message == "line 1 has more than 8,388,608 bytes; pass so much data as a file"
    assert peak < 30 * 1024 * 1024
    assert lines.done_bytes == sum(map(len, pieces))


def test_a_line_may_have_exactly_8_mib():
    def line(size: int) -> bytes:
        start = b'{"id":1,"command":"show","args":{"id":"'
        return start + b"x" * (size - len(start) - 3) + b'"}}\n'

    limit = 8 * 1024 * 1024
    ran = stream(line(limit) + line(limit + 1) + SHOW)
    assert [answer["ok"] for answer in answers(ran)] == [True, False, True]
    assert answers(ran)[1]["error"]["message"] == "line 2 has more than 8,388,608 bytes; pass so much data as a file"


def test_an_input_that_fails_is_told_with_the_last_line():
    def pieces() -> Any:
        yield SHOW
        raise OSError(5, "Input/output error")

    out, err = io.BytesIO(), io.BytesIO()
    env = nk.Env(stdin=Trickle(pieces()), stdout=out, stderr=err, environ={}, tty=None)
    assert make().run(["stream", "--json"], env=env) == 1
    assert len(out.getvalue().splitlines()) == 1
    assert json.loads(err.getvalue())["message"] == (
        "cannot read standard input after line 1 (Input/output error); give the lines in another way")


@pytest.mark.parametrize("words, code, message", [
    (["none.jsonl"], 4, 'there is no file "none.jsonl"; give the name of one, or - for standard input'),
    (["."], 1, 'cannot read "." (Is a directory); give another file'),
    (["a\0b"], 1, 'cannot read "a\\u0000b" (no file can have this name); give another file'),
    (["-"], 1, "standard input is closed; give the lines through a pipe or as a file"),
])
def test_an_input_that_cannot_be_opened_is_refused(tmp_path, words, code, message):
    ran = run_app(make(), "stream", *words, stdin=None, cwd=str(tmp_path))
    assert (ran.code, ran.failure["message"]) == (code, message)


def test_text_streams_without_bytes_are_read_too():
    assert [line.args for line in every(lines_of(io.StringIO('{"id":1,"command":"show","args":{"id":"é"}}')))] == [
        {"id": "é"}]


@POSIX
def test_ready_tells_whether_a_line_is_there_and_waits_for_none(tmp_path):
    read, write = os.pipe()
    with open(read, "rb", buffering=0) as source:
        lines = lines_of(source)
        assert lines.next(False) is None
        os.write(write, SHOW[:5])
        assert lines.next(False) is None
        os.write(write, SHOW[5:] + b"\n" + SHOW)
        assert [lines.next(False).number, lines.next(False).number, lines.next(False)] == [1, 3, None]
        os.write(write, SHOW[:-1])
        assert lines.next(False) is None
        os.close(write)
        assert [lines.next(False).number, lines.next(False), lines.next()] == [4, None, None]
    (tmp_path / "two").write_bytes(SHOW + SHOW)
    lines = nk._StreamLines(nk.Env(stderr=None), str(tmp_path / "two"))
    assert [lines.next(False).number, lines.next(False).number, lines.next(False)] == [1, 2, None]
    assert lines.done_bytes == lines.total_bytes == 2 * len(SHOW)
    lines.close()


# -- the loop ------------------------------------------------------------------------------------------------------

def test_the_exit_code_is_the_highest_of_all_answers():
    assert stream(SHOW).code == 0
    assert stream(b"").err == "0 lines answered, 0 failed\n"
    assert stream(b"", "--quiet").err == ""
    data = SHOW + call(2, "fail", {"code": "CONFLICT"}) + call(3, "fail", {"code": "NOT_FOUND"}) + SHOW
    ran = stream(data)
    assert (ran.code, ran.err) == (5, "4 lines answered, 2 failed\n")
    assert [answer["exitCode"] for answer in answers(ran)] == [0, 5, 4, 0]
    assert stream(call(1, "status", {"status": 9})).code == 9
    ran = stream(data + b"[]", app=make(exit_codes={"CONFLICT": 2, "BAD_REQUEST": 66}))
    assert ran.code == 66 and answers(ran)[-1]["exitCode"] == 66


def test_answers_are_compact_and_hold_what_was_written():
    ran = stream(call("k", "speak", {"out": "o", "err": "é\n"}))
    assert ran.out == ('{"id":"k","ok":true,"exitCode":0,"data":["k",true,false],'
                       '"written":{"stdout":"o","stderr":"é\\n"}}\n')
    assert ran.err == "1 line answered, 0 failed\n"


def test_answers_are_ascii_where_the_output_cannot_carry_more():
    app, out = make(), io.BytesIO()
    env = nk.Env(stdin=io.BytesIO(call("é", "show", {"id": "日"})), stdout=out, stderr=None, environ={}, tty=None)
    env.stdout_encoding = "latin-1"
    assert app.run(["stream"], env=env) == 0
    assert out.getvalue() == b'{"id":"\\u00e9","ok":true,"exitCode":0,"data":{"id":"\\u65e5","count":1}}\n'


ALLOW = "have the operator start this with --allow-confirmed wipe"


@pytest.mark.parametrize("words, more, hint", [
    ([], {}, 'say "confirmed": true on the line and ' + ALLOW),
    ([], {"confirmed": False}, 'say "confirmed": true on the line and ' + ALLOW),
    ([], {"confirmed": True}, ALLOW),
    (["--allow-confirmed", "wipe"], {}, 'say "confirmed": true on the line'),
    (["--allow-confirmed", "wipe", "--allow-confirmed", "show"], {"confirmed": True}, None),
])
def test_a_line_confirms_what_the_operator_allows(words, more, hint):
    answer = answers(stream(call(1, "wipe", {"what": "x"}, **more), *words))[0]
    if hint is None:
        assert answer["data"] == "wiped x True"
    else:
        assert (answer["exitCode"], answer["error"]) == (8, {
            "code": "CONFIRMATION_REQUIRED", "message": "wipe is destructive and needs a confirmation",
            "retryable": False, "hint": hint})


def test_a_mount_allows_by_name_and_options_add_to_it():
    data = call(1, "purge", confirmed=True) + call(2, "wipe", {"what": "x"}, confirmed=True) + call(3, "purge")
    assert [answer["exitCode"] for answer in answers(stream(data))] == [0, 8, 8]
    assert [answer["exitCode"] for answer in answers(stream(data, "--allow-confirmed", "wipe"))] == [0, 0, 8]


def test_a_refusal_of_the_handlers_own_keeps_its_words():
    app = nk.App("app", expose=("cli",), commands=[nk.stream_command()])

    @app.command
    def ask(ctx: nk.Ctx) -> None:
        raise nk.Error("CONFIRMATION_REQUIRED", "call us first")

    assert answers(stream(call(1, "ask"), app=app))[0]["error"] == {
        "code": "CONFIRMATION_REQUIRED", "message": "call us first", "retryable": False}


@pytest.mark.parametrize("name, message", [
    ("wpie", 'allow-confirmed: there is no command "wpie"; did you mean wipe?'),
    ("plain", "allow-confirmed: plain prints for itself and returns no result; run it from the command line"),
])
def test_a_name_that_nobody_can_confirm_is_refused_at_the_start(name, message):
    mounted = nk.App("app", commands=[nk.stream_command(allow_confirmed=[name])], expose=("cli",))
    mounted._recorded = make()._recorded
    for ran in (stream(SHOW, "--allow-confirmed", name), stream(SHOW, app=mounted)):
        assert (ran.code, ran.failure["error"], ran.failure["message"]) == (4, "NOT_FOUND", message)


@pytest.mark.parametrize("names, message", [
    ("purge", 'allow_confirmed must be a list of command names, not "purge"'),
    ([make], "allow_confirmed must be a list of command names, not a list"),
])
def test_a_mount_with_wrong_names_is_refused(names, message):
    with pytest.raises(nk.RegistrationError) as caught:
        nk.stream_command(allow_confirmed=names)
    assert caught.value.message == message


def test_a_dry_run_admits_and_shows_every_line():
    data = call(1, "wipe", {"what": "x"}) + call(2, "wipe", {}) + call(3, "move") + b"[]\n"
    ran = stream(data + call(5, "fail", {"code": "X"}), "--dry-run")
    found = answers(ran)
    assert found[0] == {"id": 1, "ok": True, "exitCode": 0, "data": {"command": "wipe", "args": {"what": "x"}}}
    assert [answer["ok"] for answer in found] == [True, False, True, False, True]
    assert found[2]["data"] == {"command": "move", "args": {}, "preview": "would move"}
    assert ran.code == 1


def test_application_options_reach_every_line():
    schema = {"type": "object", "properties": {"region": {"type": "string", "default": "eu"}}}
    app = nk.App("app", expose=("cli",), commands=[nk.stream_command()], global_options=schema)

    @app.command
    def where(ctx: nk.Ctx) -> str:
        return ctx.globals["region"]

    ran = stream(call(1, "where") * 2, "--region", "us", app=app)
    assert [answer["data"] for answer in answers(ran)] == ["us", "us"]
    assert answers(stream(call(1, "where"), app=app))[0]["data"] == "eu"


def test_a_result_or_detail_without_a_json_form_is_answered_all_the_same():
    app = nk.App("app", expose=("cli",), commands=[nk.stream_command()], exit_codes={"INTERNAL_SERVER_ERROR": 99})

    @app.command
    def deep(levels: int) -> Any:
        value: list = []
        for _ in range(levels - 1):
            value = [value]
        return value

    @app.command
    def bad() -> None:
        raise nk.Error("CONFLICT", "taken", details=make, hint="later", retryable=True)

    ran = stream(call(1, "deep", {"levels": 127}) + call(2, "deep", {"levels": 128}) + call(3, "bad"), app=app)
    found = answers(ran)
    assert found[0]["ok"] and ran.code == 99
    assert found[1]["error"]["code"] == "INTERNAL_SERVER_ERROR" and found[1]["exitCode"] == 99
    assert found[1]["error"]["message"] == (
        'the result of deep cannot be written: more than 128 levels at "/data' + "/0" * 25 + '"...')
    assert (found[2]["exitCode"], found[2]["error"]) == (5, {
        "code": "CONFLICT", "message": "taken", "retryable": True, "hint": "later",
        "details": {"message": "the details of this error have no JSON form"}})
    assert ran.err == "3 lines answered, 2 failed\n"


def test_a_cancelled_stream_ends_between_lines():
    app, cancel = nk.App("app", expose=("cli",), commands=[nk.stream_command()]), nk.Cancel()

    @app.command
    def stop() -> str:
        cancel.cancel()
        return "stopping"

    ran = stream(call(1, "stop") * 3, "--json", app=app, cancel=cancel)
    assert (ran.code, [answer["data"] for answer in answers(ran)]) == (130, ["stopping"])
    assert json.loads(ran.err)["error"] == "REQUEST_ABORTED"


def test_a_stream_under_arun_answers_its_synchronous_commands():
    out = io.BytesIO()
    data = SHOW + call(2, "later", {"x": 4})
    env = nk.Env(stdin=io.BytesIO(data), stdout=out, stderr=io.BytesIO(), environ={}, tty=None)
    assert asyncio.run(make().arun(["stream"], env=env)) == 1
    first, second = map(json.loads, out.getvalue().splitlines())
    assert first["ok"] and second["error"]["code"] == "BAD_REQUEST"


class Terminal(io.BytesIO):
    def isatty(self) -> bool:
        return True


def drawn(stdin: Any, *words: str, stdout: Any = None) -> str:
    """What a stream draws on a terminal, each time the clock is asked a second later."""
    seconds = iter(range(1000))
    env = nk.Env(stdin=stdin, stdout=stdout or io.BytesIO(), stderr=Terminal(), environ={}, tty=None,
                 clock=lambda: next(seconds))
    assert make().run(["stream", *words], env=env) == 0
    return env.stderr.getvalue().decode()


def test_a_bar_shows_the_bytes_of_a_file_and_else_the_lines(tmp_path):
    (tmp_path / "two").write_bytes(SHOW + SHOW)
    assert drawn(None, str(tmp_path / "two")) == (
        "\r[############            ]  50%\r[########################] 100%\n2 lines answered, 0 failed\n")
    assert drawn(io.BytesIO(SHOW + SHOW)) == "\r1  lines\r2  lines\n2 lines answered, 0 failed\n"
    assert drawn(io.BytesIO(SHOW), stdout=Terminal()) == "1 line answered, 0 failed\n"
    assert drawn(io.BytesIO(SHOW), "--quiet") == ""


# -- whole programs ------------------------------------------------------------------------------------------------

PROGRAM = '''\
import os, subprocess, sys
sys.path.insert(0, %r)
import knaif as nk
app = nk.App("core", expose=("cli",), commands=[nk.stream_command()])

@app.command
def echo(x: int) -> int:
    return x

@app.command
def noise() -> str:
    print("printed")
    sys.stdout.flush()
    os.write(1, b"written\\n")
    subprocess.run(["sh", "-c", "echo from a child; cat"])
    return sys.stdin.read() + os.read(0, 100).decode()

@app.command
async def later(x: int) -> int:
    return x

@app.command
def peak() -> int:
    import resource
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

if __name__ == "__main__":
    app.main()
'''


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("program") / "core.py"
    path.write_text(PROGRAM % ROOT)
    return str(path)


def start(program: str, *words: str, stdin: Any = subprocess.PIPE, prefix: Any = ()) -> Any:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "KNAIF"))}
    return subprocess.Popen([sys.executable, *prefix, program, *words], stdin=stdin, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, env=kept, start_new_session=os.name == "posix")


def ended(process: Any, data: Any = None) -> Ran:
    out, err = process.communicate(data, timeout=60)
    return Ran(process.returncode, out.decode(), err.decode())


def ask(process: Any, line: bytes) -> Any:
    """Write one line and wait for its answer."""
    process.stdin.write(line)
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def test_a_conversation_gets_each_answer_before_the_next_line(program):
    process = start(program, "stream")
    for number in range(20):
        assert ask(process, call(number, "echo", {"x": number})) == {
            "id": number, "ok": True, "exitCode": 0, "data": number}
    assert ask(process, b"nonsense\n")["line"] == 21
    process.stdin.write(call(1, "later", {"x": 5})[:20])
    process.stdin.flush()
    assert ask(process, call(1, "later", {"x": 5})[20:])["data"] == 5
    ran = ended(process)
    assert (ran.code, ran.out, ran.err) == (1, "", "22 lines answered, 1 failed\n")


@POSIX
def test_a_reader_that_goes_away_ends_the_stream_quietly(program):
    process = start(program, "stream")
    assert ask(process, call(1, "echo", {"x": 1}))["ok"]
    process.stdout.close()
    process.stdin.write(call(2, "echo", {"x": 2}) * 3)
    process.stdin.flush()
    assert (process.wait(60), process.stderr.read()) == (141, b"")
    process.stdin.close()
    process.stderr.close()


@POSIX
def test_an_interrupted_stream_ends_without_a_traceback(program):
    process = start(program, "stream", "--json")
    assert ask(process, call(1, "later", {"x": 1}))["ok"]
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    ran = ended(process)
    failure = json.loads(ran.err)  # the signal may come before the answer that was read is counted
    assert ran.out == "" and failure.pop("message") in [f"interrupted; lines answered: {count}" for count in (0, 1)]
    assert failure == {"error": "REQUEST_ABORTED", "retryable": False}


def test_yes_is_no_standing_approval():
    ran = stream(call(1, "wipe", {"what": "x"}, confirmed=True), "--yes")
    assert (ran.code, ran.out) == (64, "")
    assert ran.err.startswith("--yes: stream is not what would be confirmed; see its --help\n")


@POSIX
@pytest.mark.parametrize("ending", ["sys.exit(3)", "raise ValueError", "pass"])
def test_a_child_that_a_handler_forked_does_not_go_on_with_the_lines(tmp_path, ending):
    (tmp_path / "app.py").write_text("""\
import os, sys
sys.path.insert(0, %r)
import knaif as nk
app = nk.App("forks", expose=("cli",), commands=[nk.stream_command()])

@app.command
def fork() -> int:
    pid = os.fork()
    if pid == 0:
        %s
        return 1
    return os.waitpid(pid, 0)[1] >> 8

app.main()
""" % (os.path.dirname(nk.__file__), ending))
    data = call(1, "fork") + call(2, "fork")
    ran = subprocess.run([sys.executable, str(tmp_path / "app.py"), "stream", "--quiet"], input=data,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    answers = [json.loads(line) for line in ran.stdout.splitlines()]
    assert ran.stderr == b"" and [answer["id"] for answer in answers] == [1, 2]
    assert [answer["data"] for answer in answers] == [0 if ending == "pass" else 1] * 2


@pytest.mark.parametrize("fault", ["class Odd(nk.Error):\n    def __init__(self): pass\nraise Odd()",
                                   "e = nk.Error('A', 'b')\ne.code = 5\nraise e",
                                   "e = nk.Error('A', 'b')\ne.message = object()\nraise e"])
def test_an_error_that_is_none_is_answered_neutrally(fault):
    app = nk.App("odd", expose=("cli",), commands=[nk.stream_command()])

    @app.command
    def fail() -> None:
        exec(fault, {"nk": nk})

    ran = run_app(app, "stream", stdin=call(1, "fail") + call(2, "fail"))
    assert [(answer["exitCode"], answer["error"]["code"]) for answer in answers(ran)] == [
        (1, "INTERNAL_SERVER_ERROR")] * 2


def test_details_that_have_no_json_form_leave_the_rest_of_the_refusal():
    class Evil(dict):
        def __iter__(self):
            raise ValueError

        items = keys = __iter__

    app = nk.App("odd", expose=("cli",), commands=[nk.stream_command()])

    @app.command
    def fail() -> None:
        raise nk.Error("CONFLICT", "b", details=Evil(a=1))

    answer = answers(run_app(app, "stream", stdin=call(1, "fail")))[0]
    assert (answer["exitCode"], answer["error"]["message"]) == (5, "b")


@POSIX
def test_print_and_child_processes_touch_neither_answers_nor_lines(program):
    process = start(program, "stream")
    process.stdin.write(call(1, "noise"))
    process.stdin.flush()
    assert process.stderr.readline() == b"printed\n"  # the handler runs, and its child may read before we do
    process.stdin.write(call(2, "echo", {"x": 2}))
    process.stdin.close()
    assert process.stderr.read() == b"written\nfrom a child\n2 lines answered, 0 failed\n"
    assert [json.loads(line) for line in process.stdout] == [
        {"id": 1, "ok": True, "exitCode": 0, "data": ""}, {"id": 2, "ok": True, "exitCode": 0, "data": 2}]
    process.stdout.close()
    process.stderr.close()
    assert process.wait(60) == 0


@POSIX
def test_an_input_that_does_not_block_is_waited_for(program):
    read, write = os.pipe()
    os.set_blocking(read, False)
    process = start(program, "stream", stdin=read)
    os.close(read)
    for number in (1, 2):
        os.write(write, call(number, "echo", {"x": number}))
        assert json.loads(process.stdout.readline())["data"] == number
    os.close(write)
    assert ended(process).code == 0


@POSIX
def test_a_50_mb_line_costs_a_process_little_memory(program):
    process = start(program, "stream")
    before = ask(process, call(1, "peak"))["data"]
    for _ in range(50):
        process.stdin.write(b"x" * 1_000_000)
    answer = ask(process, b"\n")
    assert answer["error"]["message"] == "line 2 has more than 8,388,608 bytes; pass so much data as a file"
    grown = ask(process, call(3, "peak"))["data"] - before
    assert grown < (40 << (20 if sys.platform == "darwin" else 10))
    assert ended(process).code == 1


def test_the_module_streams_for_a_program_that_mounts_nothing(program):
    ran = ended(start(os.path.join(ROOT, "knaif.py"), "stream", program), call(1, "echo", {"x": 1}) + call(2, "stream"))
    assert [answer["exitCode"] for answer in answers(ran)] == [0, 4]
    assert ran.code == 4


# -- Regressions ---------------------------------------------------------------------------------------------------
