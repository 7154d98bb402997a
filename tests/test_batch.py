"""BATCH: what a run decides, what stands in the journal when, and what any end of a run leaves behind."""
import dataclasses
import hashlib
import io
import itertools
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import textwrap
import types
from typing import Annotated

import pytest

import knaif as nk
from conftest import run_app

ROOT = os.path.dirname(os.path.abspath(nk.__file__))
POSIX = pytest.mark.skipif(os.name != "posix", reason="modes, links and signals of POSIX")
UNCLEAR = ("INTERNAL_SERVER_ERROR", "OUTCOME_UNKNOWN", "REQUEST_ABORTED", "REQUEST_TIMEOUT", "TIMEOUT",
           "UPSTREAM_TOOL_ERROR", "CONNECTION_TIMEOUT", "CONNECTION_REQUEST_FAILED")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Syncs cost nothing here: that there is one where there must be one, tests of its calls tell."""
    for name in {"fsync", "fdatasync"} & vars(os).keys():
        monkeypatch.setattr(os, name, lambda descriptor: None)


class Shop:
    """An application whose calls leave a trace, and a folder with lines for it."""

    def __init__(self, folder, name="shop", version="1.0.0", mount=None, **options):
        self.folder = str(folder)
        self.done = []  # what the handlers did
        self.script = {}  # id -> what its call raises or returns in place of the usual
        self.app = nk.App(name, version, expose=("cli",), commands=[mount or nk.batch_command()], **options)
        self.app.command(self.pay)
        self.app.command(readonly=True)(self.look)
        self.app.command(idempotent=True)(self.put)
        self.app.command(destructive=True)(self.wipe)

    def act(self, ctx, result):
        self.done.append(ctx.call_id)
        act = self.script.get(ctx.call_id, result)
        act = act() if callable(act) else act
        if isinstance(act, BaseException):
            raise act
        return act

    def pay(self, ctx: nk.Ctx, amount: int = 1) -> object:
        return self.act(ctx, amount)

    def look(self, ctx: nk.Ctx, amount: int = 1) -> object:
        return self.act(ctx, amount)

    def put(self, ctx: nk.Ctx, amount: int = 1) -> object:
        return self.act(ctx, amount)

    def wipe(self, ctx: nk.Ctx) -> object:
        return self.act(ctx, "wiped")

    def path(self, name="lines"):
        return os.path.join(self.folder, name)

    def write(self, *lines, name="lines"):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write("".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines))

    def run(self, *words, **options):
        """Run the batch over the written lines; the trace begins anew."""
        self.done.clear()
        words = words if words[:1] == ("-",) else ("lines", *words)
        return run_app(self.app, "batch", *words, cwd=self.folder, **options)

    def bytes(self, name="lines.journal"):
        with open(self.path(name), "rb") as file:
            return file.read()

    def records(self, name="lines.journal"):
        return [json.loads(line) for line in self.bytes(name).splitlines()]

    def forget(self):
        for name in os.listdir(self.folder):
            if name.endswith((".journal", ".lock")):
                os.unlink(self.path(name))

    def make(self, *records, name="lines.journal", **header):
        """Write a journal by hand: the header of this application, and (kind, id, command, more) as records."""
        journal = nk._FilesJournal(self.path(name))
        engine = self.app.invoker(env=nk.Env(environ={}))._engine
        made = nk._batch_header(engine, "00" * 16)
        journal.create({**made, **header})
        for kind, id, command, more in records:
            digest = nk._batch_hmac(nk._batch_salted(made["salt"]), {"command": command, "args": more.get("args", {})})
            journal.add({"kind": kind, "id": id, "digest": digest, "command": command, **more})
        journal.flush()
        journal.close()


@pytest.fixture
def shop(tmp_path):
    return Shop(tmp_path)


def call(id, command="pay", **args):
    return {"id": id, "command": command, "args": args}


def ended(ok=True, **answer):
    """What an end record says beside its id."""
    error = {} if ok else {"error": {"code": "NO", "message": "m", "retryable": False}}
    return {"answer": {"ok": ok, "exitCode": 0 if ok else 1, **error, **answer}}


def in_doubt():
    return ended(False, unknown=True)


def nested(levels):
    value = 0
    for _ in range(levels):
        value = [value]
    return value


def answers(ran):
    return [json.loads(line) for line in ran.out.splitlines()]


def brief(ran):
    """Each answer as (id, what it says)."""
    return [(each["id"], "replayed" if each.get("replayed") else "ok" if each["ok"] else each["error"]["code"])
            for each in answers(ran)]


# -- decisions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state, same, repeatable, verdict", [
    (None, False, False, "run"),
    (None, False, True, "run"),
    ("failed", True, False, "run"),
    ("failed", False, False, "run"),
    ("failed", False, True, "run"),
    ("well", True, False, "replay"),
    ("well", True, True, "replay"),
    ("well", False, False, "conflict"),
    ("well", False, True, "conflict"),
    *((state, same, repeatable, "run" if same and repeatable else "unknown")
      for state in ("begun", "doubt") for same in (False, True) for repeatable in (False, True)),
])
def test_a_line_is_judged_by_what_is_known_of_its_id(state, same, repeatable, verdict):
    assert nk._batch_judge(state, same, repeatable) == verdict


@pytest.mark.parametrize("before", [None, "failed", "begun", "doubt"])
@pytest.mark.parametrize("record, state", [
    ({"kind": "begin"}, "begun"),
    (ended(), "well"),
    (ended(False), "failed"),
    (in_doubt(), "doubt"),
])
def test_what_is_known_of_an_id_follows_from_its_records(record, before, state):
    """A doubt, and what was begun twice, which is one, outlive everything but a call that ended well."""
    if before == "doubt" and state != "well" or before == state == "begun":
        state = "doubt"
    assert nk._batch_state({"kind": "end", **record}, before) == state


NO, LATE = {"code": "NO"}, {"code": "TIMEOUT"}


@pytest.mark.parametrize("error, how, before, harmless, unclear", [
    (None, {"entered": True, "returned": True}, "begun", False, False),
    (None, {"entered": True, "returned": True}, "doubt", False, False),
    (NO, {"entered": True}, "begun", False, False),
    (NO, {"entered": True}, "doubt", False, True),  # this one refused, and what did the one before?
    (NO, {}, "begun", False, False),
    (NO, {}, "doubt", False, True),
    (NO, {}, "doubt", True, True),
    (NO, {}, None, False, False),
    (NO, {}, "well", False, False),  # a conflict
    (LATE, {}, "begun", False, False),
    (LATE, {"entered": True}, "begun", False, True),
    (LATE, {"entered": True}, None, False, True),  # may be repeated, but may have happened
    (LATE, {"entered": True}, None, True, False),
    (NO, {"entered": True, "returned": True}, "begun", False, True),
    ({"code": "NO", "relayed": True}, {"entered": True}, "begun", False, True),
    *(({"code": code}, {"entered": True}, "begun", False, True) for code in UNCLEAR),
    ({"code": "WAIT_FAILED"}, {"entered": True}, "begun", False, False),
])
def test_a_failure_leaves_a_doubt_where_something_may_have_happened(error, how, before, harmless, unclear):
    error = error and nk.Error(message="m", **error)
    outcome = nk.Outcome(error is None, error=error, **how)
    assert nk._batch_is_unclear(outcome, before, harmless) is unclear


@pytest.mark.parametrize("code", [*UNCLEAR, "NOT_FOUND", "CONFLICT", "OWN_CODE", "RATE_LIMITED"])
def test_a_failed_call_runs_again_only_where_its_refusal_says_that_nothing_happened(shop, code):
    shop.write(call(1))
    shop.script[1] = lambda: nk.Error(code, "m")
    assert brief(shop.run()) == [(1, code)]
    shop.script.clear()
    again = shop.run()
    assert brief(again) == [(1, "OUTCOME_UNKNOWN" if code in UNCLEAR else "ok")]
    assert shop.done == ([] if code in UNCLEAR else [1])
    assert again.code == (9 if code in UNCLEAR else 0)
    if code not in UNCLEAR:
        shop.forget()
        shop.script[1] = lambda: nk.Error(code, "m")
        shop.run()
        shop.script.clear()
        shop.write(call(1, amount=2))
        assert answers(shop.run())[0]["data"] == 2  # it may have been corrected


@pytest.mark.parametrize("raised", [nk.Error("NO", "m", relayed=True), ValueError("x"), SystemExit(3), OSError(5)])
def test_what_is_no_refusal_of_the_handlers_own_leaves_a_doubt(shop, raised):
    shop.write(call(1))
    shop.script[1] = lambda: raised
    assert answers(shop.run())[0]["ok"] is False
    assert brief(shop.run()) == [(1, "OUTCOME_UNKNOWN")]


def test_a_refusal_after_the_handler_returned_leaves_a_doubt(tmp_path):
    def after(ctx, result):
        raise nk.Error("NO", "m")

    shop = Shop(tmp_path, lifecycle=nk.Lifecycle(after_handle=after))
    shop.write(call(1))
    assert brief(shop.run()) == [(1, "NO")]
    assert brief(shop.run()) == [(1, "OUTCOME_UNKNOWN")]


def test_a_call_that_may_be_repeated_is_repeated(shop):
    shop.write(call(1, "look"), call(2, "put"))
    shop.script = {1: lambda: nk.Error("TIMEOUT", "m"), 2: lambda: nk.Error("TIMEOUT", "m")}
    assert shop.run().code == 7
    assert [record["kind"] for record in shop.records()] == ["header", "end", "end"]
    shop.script.clear()
    assert brief(shop.run()) == [(1, "ok"), (2, "ok")] and shop.done == [1, 2]
    assert brief(shop.run()) == [(1, "replayed"), (2, "replayed")] and shop.done == []


def test_a_call_in_doubt_is_made_again_only_as_it_was(shop):
    shop.write(call(1, "put"))
    shop.script[1] = lambda: nk.Error("TIMEOUT", "m")
    shop.run()
    shop.write(call(1, "put", amount=2))
    ran = shop.run("--rerun-unknown")
    assert brief(ran) == [(1, "OUTCOME_UNKNOWN")] and shop.done == [] and ran.code == 9
    assert answers(ran)[0] == {
        "id": 1, "ok": False, "exitCode": 9, "error": {
            "code": "OUTCOME_UNKNOWN", "retryable": False,
            "message": "the id 1 was called with another command or other arguments, and what came of it is not known; "
                       "find out whether it happened",
            "hint": "put the old line back and pass --rerun-unknown to call it again, or give the changed line a new "
                    "id",
        }, "unknown": True,
    }
    assert ran.err.startswith("1 line: 0 ok (0 replayed), 0 failed, 1 unknown; ")
    shop.script.clear()
    shop.write(call(1, "put"))
    assert brief(shop.run()) == [(1, "ok")]
    shop.write(call(1, "put", amount=2))
    assert brief(shop.run("--rerun-unknown")) == [(1, "CONFLICT")]


def test_a_call_that_changes_nothing_may_be_corrected_after_any_failure(shop):
    shop.write(call(1, "look"))
    shop.script[1] = lambda: ValueError("x")
    ran = shop.run()
    assert "unknown" not in answers(ran)[0] and " 1 failed, 0 unknown" in ran.err
    shop.script.clear()
    shop.write(call(1, "look", amount=2))
    assert answers(shop.run())[0]["data"] == 2


@pytest.mark.parametrize("command", ["pay", "put"])
def test_a_call_that_becomes_doubtful_is_told_and_counted_as_unknown_at_once(shop, command):
    shop.write(call(1, command), call(2, command), call(3, command), call(4, "none"), call(5))
    shop.script = {1: lambda: ValueError("x"), 2: lambda: nk.Error("TIMEOUT", "m"), 3: lambda: nk.Error("NO", "m")}
    ran = shop.run()
    assert [each.get("unknown") for each in answers(ran)] == [True, True, None, None, None]
    assert [each["exitCode"] for each in answers(ran)] == [1, 7, 1, 4, 0] and ran.code == 7
    assert ran.out.splitlines()[0].endswith(',"unknown":true}')
    assert ran.err.startswith("5 lines: 1 ok (0 replayed), 2 failed, 2 unknown; ")
    status = shop.run("--status").data
    assert (status["lines"], status["ok"], status["failed"], status["unknown"]) == (
        4, 1, 1, {"count": 2, "ids": [1, 2]})


def test_the_operator_can_have_unknown_calls_made_again(shop):
    shop.make(("begin", 1, "pay", {}), ("begin", 2, "pay", {}), ("end", 2, "pay", in_doubt()))
    shop.write(call(1), call(2), call(3))
    ran = shop.run()
    assert brief(ran) == [(1, "OUTCOME_UNKNOWN"), (2, "OUTCOME_UNKNOWN"), (3, "ok")] and ran.code == 9
    assert answers(ran)[0] == {
        "id": 1, "ok": False, "exitCode": 9, "error": {
            "code": "OUTCOME_UNKNOWN", "retryable": False,
            "message": "an earlier run called pay for the id 1 and did not learn what came of it; find out whether it "
                       "happened",
            "hint": "pass --rerun-unknown to call it again",
        }, "unknown": True,
    }
    assert ran.err.startswith("3 lines: 1 ok (0 replayed), 0 failed, 2 unknown; ")
    ran = shop.run("--rerun-unknown")
    assert brief(ran) == [(1, "ok"), (2, "ok"), (3, "replayed")] and shop.done == [1, 2] and ran.code == 0


def test_a_doubt_outlives_a_repetition_that_was_refused_at_the_door(tmp_path):
    class Signed:
        out = True

    def before(ctx, args):
        if Signed.out:
            raise nk.Error("UNAUTHORIZED", "sign in")

    shop = Shop(tmp_path, lifecycle=nk.Lifecycle(before_handle=before))
    shop.make(("begin", 1, "pay", {}))
    shop.write(call(1))
    assert brief(shop.run("--rerun-unknown")) == [(1, "UNAUTHORIZED")] and shop.done == []
    Signed.out = False
    assert brief(shop.run()) == [(1, "OUTCOME_UNKNOWN")] and shop.done == []
    shop.write(call(1, amount=7))
    assert brief(shop.run("--rerun-unknown")) == [(1, "OUTCOME_UNKNOWN")] and shop.done == []
    shop.write(call(1))
    assert brief(shop.run("--rerun-unknown")) == [(1, "ok")]


@pytest.mark.parametrize("command", ["pay", "put", "look"])
def test_a_doubt_outlives_a_repetition_that_the_handler_refused(shop, command):
    """The first call may have happened all the same, and now the balance is too low for a second."""
    shop.make(("begin", 1, command, {}))
    shop.write(call(1, command))
    for script in (lambda: nk.Error("NO", "m"), lambda: nk.Error("TIMEOUT", "m"), None):
        shop.script = {1: script} if script else {}
        ran = shop.run("--rerun-unknown")
        if script:
            assert answers(ran)[0]["unknown"] is True and ran.err.startswith("1 line: 0 ok (0 replayed), 0 failed, 1 ")
            assert shop.run("--status").data["unknown"] == {"count": 1, "ids": [1]}
            shop.script = {1: lambda: nk.Error("NO", "m")}
            assert brief(shop.run()) == [(1, "OUTCOME_UNKNOWN" if command == "pay" else "NO")]
    assert brief(ran) == [(1, "ok")] and shop.run("--status").data["unknown"]["count"] == 0


def test_an_unknown_call_of_a_command_that_is_gone_stays_unknown(shop):
    shop.make(("begin", 1, "gone", {}), ("end", 2, "gone", ended(data=5)))
    shop.write(call(1, "gone"), call(2, "gone"))
    assert brief(shop.run()) == [(1, "OUTCOME_UNKNOWN"), (2, "replayed")]
    ran = shop.run("--rerun-unknown")
    assert brief(ran) == [(1, "NOT_FOUND"), (2, "replayed")] and answers(ran)[0]["unknown"] is True
    assert ran.err.startswith("2 lines: 1 ok (1 replayed), 0 failed, 1 unknown; ")


def test_the_same_id_twice_in_one_run_is_judged_as_if_resumed(shop):
    shop.write(call(1), call(1), call(1, amount=2), call("1"), call(1, "look"))
    ran = shop.run()
    assert brief(ran) == [(1, "ok"), (1, "replayed"), (1, "CONFLICT"), ("1", "ok"), (1, "CONFLICT")]
    assert shop.done == [1, "1"] and ran.code == 5
    assert answers(ran)[2]["error"]["message"] == (
        "the journal has the id 1 with another command or other arguments; give the changed line a new id")


@pytest.mark.parametrize("one, other", [
    ({"command": "pay", "args": {"amount": 1}}, {"args": {"amount": 1.0}, "command": "pay", "confirmed": True}),
    ({"command": "pay"}, {"command": "pay", "args": {}}),
])
def test_equal_json_is_the_same_content(shop, one, other):
    shop.write({"id": 1, **one})
    shop.run()
    shop.write({"id": 1, **other})
    assert brief(shop.run()) == [(1, "replayed")]


def test_ids_are_told_apart_as_json(shop):
    ids = [1, "1", -1, 10**200, str(10**200), 2**61, 2**61 + 1, "\u00e9", "e\u0301", "\U0001f600", "\u2028", "a" * 256]
    shop.write(*(call(id) for id in ids))
    assert brief(shop.run()) == [(id, "ok") for id in ids] and shop.done == ids
    assert brief(shop.run()) == [(id, "replayed") for id in ids] and shop.done == []


# -- answers and the journal -----------------------------------------------------------------------------------------


def test_a_batch_answers_as_a_stream_and_once_more_from_its_journal(shop):
    shop.write(call("a", amount=5), "\n", call("b", "look"), "not json\n", call("c", "none"), call("d", amount="x"))
    ran = shop.run()
    assert ran.code == 4
    assert ran.out == textwrap.dedent("""\
        {"id":"a","ok":true,"exitCode":0,"data":5}
        {"id":"b","ok":true,"exitCode":0,"data":1}
        {"id":null,"line":4,"ok":false,"exitCode":1,"error":{"code":"BAD_REQUEST","message":"line 4 is not JSON: an \
unexpected character at character 1; write one object on each line","retryable":false}}
        {"id":"c","ok":false,"exitCode":4,"error":{"code":"NOT_FOUND","message":"there is no command \\"none\\"",\
"retryable":false}}
        """) + ran.out.splitlines(True)[4]
    journal = shop.path("lines.journal")
    assert ran.err == f"5 lines: 2 ok (0 replayed), 3 failed, 0 unknown; journal {json.dumps(journal)}\n"
    header, begin, end, look = shop.records()
    assert (header["kind"], header["format"], header["app"], header["version"]) == ("header", 1, "shop", "1.0.0")
    assert re.fullmatch("[0-9a-f]{32}", header["salt"])
    assert begin == {"seq": 1, "kind": "begin", "id": "a", "digest": begin["digest"], "command": "pay",
                     "sha256": begin["sha256"]}
    assert re.fullmatch("[0-9a-f]{64}", begin["digest"])
    assert end == {"seq": 2, "kind": "end", "id": "a", "digest": begin["digest"], "command": "pay",
                   "answer": {"ok": True, "exitCode": 0, "data": 5}, "sha256": end["sha256"]}
    assert (header["profile"], len(header["values"]), len(header["options"])) == (None, 64, 64)
    assert (look["kind"], look["command"]) == ("end", "look")
    before = shop.bytes()
    again = shop.run()
    assert [each.get("replayed") for each in answers(again)] == [True, True, None, None, None]
    assert again.err == f"5 lines: 2 ok (2 replayed), 3 failed, 0 unknown; journal {json.dumps(journal)}\n"
    assert shop.done == [] and shop.bytes() == before
    assert shop.run("--quiet").err == ""


def test_a_finished_batch_runs_and_appends_nothing(shop):
    shop.write(*(call(n) for n in range(5)))
    assert shop.run().code == 0
    before, state = shop.bytes(), os.stat(shop.path("lines.journal"))
    assert shop.run().code == 0 and shop.done == []
    assert shop.bytes() == before and os.stat(shop.path("lines.journal")).st_mtime_ns == state.st_mtime_ns


def test_a_replay_keeps_exit_code_and_what_was_written(tmp_path):
    mount = nk.batch_command()
    shop = Shop(tmp_path, mount=mount)

    @shop.app.native(exit_code=lambda result: result["worst"])
    def check(ctx: nk.Ctx) -> dict:
        shop.done.append(ctx.call_id)
        ctx.stdout.write("out")
        ctx.stderr.write("\x1b[31merr")
        return {"worst": 3, "text": "\ud800 \u202e 1e400"}

    shop.write(call(1, "check"))
    ran = shop.run()
    again = shop.run()
    assert ran.code == again.code == 3 and shop.done == []
    first, second = answers(ran)[0], answers(again)[0]
    assert first["ok"] is True and first["written"] == {"stdout": "out", "stderr": "\x1b[31merr"}
    assert second == {**first, "replayed": True}


def test_coroutine_handlers_run_in_one_loop(shop):
    import asyncio

    loops = []

    @shop.app.command
    async def later(ctx: nk.Ctx) -> int:
        await asyncio.sleep(0)
        loops.append(asyncio.get_running_loop())
        return 5

    shop.write(call(1, "later"), call(2, "later"))
    assert [each["data"] for each in answers(shop.run())] == [5, 5]
    assert loops[0] is loops[1]


def test_a_line_can_not_run_the_batch_itself(shop):
    shop.write(call(1, "batch", file="lines"))
    assert brief(shop.run()) == [(1, "NOT_FOUND")]


def test_a_line_that_was_refused_before_its_call_leaves_no_record(shop):
    shop.write(call(1, "none"), call(2, amount="x"), {"id": 3, "command": "look", "args": {"no": 1}})
    assert brief(shop.run()) == [(1, "NOT_FOUND"), (2, "VALIDATION_ERROR"), (3, "VALIDATION_ERROR")]
    assert [record["kind"] for record in shop.records()] == ["header"]
    shop.write(call(1), call(2), call(3, "look"))
    assert shop.run().code == 0


def test_a_line_confirms_only_what_the_operator_allowed(tmp_path):
    shop = Shop(tmp_path, mount=nk.batch_command(allow_confirmed=["wipe"]))
    shop.write({"id": 1, "command": "wipe", "confirmed": True}, {"id": 2, "command": "wipe"})
    ran = shop.run()
    assert brief(ran) == [(1, "ok"), (2, "CONFIRMATION_REQUIRED")] and ran.code == 8
    assert answers(ran)[1]["error"]["hint"] == 'say "confirmed": true on the line'
    shop.write({"id": 1, "command": "wipe"}, {"id": 2, "command": "wipe", "confirmed": True})
    assert brief(shop.run()) == [(1, "replayed"), (2, "ok")]
    other = Shop(tmp_path)
    other.write({"id": 3, "command": "wipe", "confirmed": True})
    assert brief(other.run()) == [(3, "CONFIRMATION_REQUIRED")] and other.done == []
    assert brief(other.run("--allow-confirmed", "wipe")) == [(3, "ok")]


@pytest.mark.parametrize("result", [object(), float("nan"), nested(128), nested(200), 10**5000],
                         ids=["object", "nan", "deep", "deeper", "long"])
def test_an_answer_that_cannot_be_written_is_recorded_as_the_failure_it_is(shop, result):
    shop.write(call(1), call(2))
    shop.script[1] = lambda: result
    ran = shop.run()
    assert brief(ran) == [(1, "INTERNAL_SERVER_ERROR"), (2, "ok")] and answers(ran)[0]["unknown"] is True
    assert shop.records()[2]["answer"] == {key: value for key, value in answers(ran)[0].items() if key != "id"}
    assert brief(shop.run()) == [(1, "OUTCOME_UNKNOWN"), (2, "replayed")]


def test_whatever_can_be_answered_can_be_recorded(shop):
    """An answer may have 128 levels, and a record is one deeper."""
    shop.write(call(1), call('"ok":', "look"), call("\u2028", "look"))
    shop.script = {1: lambda: nested(127), '"ok":': {'"ok":': '"ok":'}, "\u2028": "\udfff\u2028\x7f"}
    first, again = shop.run(), shop.run()
    assert first.code == again.code == 0 and shop.done == []
    assert [each["data"] for each in answers(first)] == [nested(127), {'"ok":': '"ok":'}, "\udfff\u2028\x7f"]
    assert answers(again) == [{**each, "replayed": True} for each in answers(first)]
    for record, each in zip([shop.records()[place] for place in (2, 3, 4)], answers(first)):
        assert {"id": record["id"], **record["answer"]} == each


def odd(**attributes):
    error = nk.Error("NO", "m")
    for name, value in attributes.items():
        setattr(error, name, value)
    return error


@pytest.mark.parametrize("error", [
    odd(code=5), odd(code=None), odd(message=b"x"), odd(retryable="yes"), odd(details=object()), odd(hint=5),
    odd(relayed=None), odd(code="\ud800"), odd(to_wire=lambda: {"code": 1}), odd(to_wire=lambda: []),
], ids=lambda error: ",".join(f"{name}={value!r}"[:20] for name, value in vars(error).items()))
def test_whatever_is_recorded_can_be_read_again(shop, error):
    shop.write(call(1), call(2))
    shop.script[1] = lambda: error
    ran = shop.run()
    assert [each["ok"] for each in answers(ran)] == [False, True], ran.err
    again = shop.run()
    assert answers(again)[1].get("replayed") and again.code == max(each["exitCode"] for each in answers(again))


def test_arguments_do_not_stand_in_the_journal_and_two_journals_differ(shop):
    shop.write(call(1, amount=271828))
    shop.script[1] = lambda: None
    shop.run()
    digests = [shop.records()[1]["digest"]]
    assert b"271828" not in shop.bytes()
    shop.forget()
    shop.run()
    assert shop.records()[1]["digest"] not in digests


def test_handlers_know_the_id_of_their_line(shop):
    shop.write(call("order-7"))
    shop.run()
    assert shop.done == ["order-7"]


def test_a_repeatable_call_that_was_never_entered_leaves_no_record(tmp_path):
    def before(ctx, args):
        raise nk.Error("UNAUTHORIZED", "sign in")

    shop = Shop(tmp_path, lifecycle=nk.Lifecycle(before_handle=before))
    shop.write(call(1, "look"), call(2, "put"), call(3))
    assert [what for _, what in brief(shop.run())] == ["UNAUTHORIZED"] * 3 and shop.done == []
    assert [(record["kind"], record.get("id")) for record in shop.records()] == [
        ("header", None), ("begin", 3), ("end", 3)]


@pytest.mark.skipif(not os.path.isdir("/dev/fd"), reason="open files are counted in /dev/fd")
def test_nothing_stays_open(shop):
    shop.write(call(1), "bad\n")
    shop.run()
    before = len(os.listdir("/dev/fd"))
    for words in ((), ("--dry-run",), ("--status",), ("--journal", "lines"), ("--journal", "no/such/folder")):
        shop.run(*words)
    assert len(os.listdir("/dev/fd")) == before


# -- what is on the disk when ----------------------------------------------------------------------------------------


class Log(io.BytesIO):
    """Standard output that tells when it is written to, and may fail then."""

    def __init__(self, tell):
        super().__init__()
        self.tell_of = tell

    def write(self, data):
        self.tell_of(json.loads(data)["id"])
        return super().write(data)


def observe(shop, monkeypatch, stdin=None, fail=None, *words):
    """Run a batch and return what happened in order: records that a sync brought to the disk, calls, answers."""
    events, seen, sync = [], [len(shop.records()) if os.path.exists(shop.path("lines.journal")) else 1], nk._files_sync

    def synced(descriptor):
        sync(descriptor)
        if os.path.exists(shop.path("lines.journal")):
            records = shop.records()[seen[0]:]
            seen[0] += len(records)
            if records:
                events.append("+".join(f"{record['kind']} {record['id']}" for record in records))

    def answered(id):
        events.append(f"answer {id}")
        if fail and fail(id):
            raise BrokenPipeError(32, "gone")

    monkeypatch.setattr(nk, "_files_sync", synced)
    done = shop.act
    monkeypatch.setattr(shop, "act", lambda ctx, result: (events.append(f"call {ctx.call_id}"), done(ctx, result))[1])
    env = nk.Env(argv=["x"], stdin=stdin, stdout=Log(answered), stderr=io.BytesIO(), environ={}, cwd=shop.folder)
    words = words or (["-", "--journal", "lines.journal"] if stdin is not None else ["lines"])
    code = shop.app.run(["batch", *words], env=env)
    monkeypatch.undo()
    return code, events


def test_a_call_stands_between_two_records_and_its_answer_behind_both(shop, monkeypatch):
    shop.write(call(1), call(2), call(3))
    assert observe(shop, monkeypatch) == (0, [
        "begin 1", "call 1", "end 1+begin 2", "answer 1", "call 2", "end 2+begin 3", "answer 2", "call 3", "end 3",
        "answer 3"])


def test_what_may_be_repeated_needs_no_begin_record(shop, monkeypatch):
    shop.write(call(1, "look"), call(2, "put"), call(3), call(4, "look"), call(3), "x\n", call(5, amount="x"), call(6))
    assert observe(shop, monkeypatch) == (1, [
        "call 1", "end 1", "answer 1", "call 2", "end 2+begin 3", "answer 2", "call 3", "end 3", "answer 3",
        "call 4", "end 4", "answer 4", "answer 3", "answer None", "answer 5", "begin 6", "call 6", "end 6", "answer 6"])


def test_in_a_conversation_nothing_waits_for_the_next_line(shop, monkeypatch):
    class Turn(io.RawIOBase):
        """Gives a line at a time, and is not ready for the next."""

        def __init__(self, *lines):
            self.lines = [json.dumps(line).encode() + b"\n" for line in lines]

        def readable(self):
            return True

        def read(self, size=-1):
            return self.lines.pop(0) if self.lines else b""

    monkeypatch.setattr(nk._StreamLines, "_is_there", lambda self: False)
    code, events = observe(shop, monkeypatch, Turn(call(1), call(2), call(3, "look")))
    assert (code, events) == (0, [
        "begin 1", "call 1", "end 1", "answer 1", "begin 2", "call 2", "end 2", "answer 2", "call 3", "end 3",
        "answer 3"])


# -- every way to stop -----------------------------------------------------------------------------------------------


def stop_by_cancel(shop, number):
    signal_ = nk.Cancel()
    if number == 0:
        signal_.cancel()
    shop.script[number] = lambda: signal_.cancel() or number
    return {"cancel": signal_}, 130


def stop_by_reader(shop, number):
    return {"fail": number}, 141


def stop_by_interrupt(shop, number):
    return {"interrupt": number + 1}, 130


@pytest.mark.parametrize("command", ["pay", "look"])
@pytest.mark.parametrize("stop", [stop_by_cancel, stop_by_reader, stop_by_interrupt])
@pytest.mark.parametrize("number", range(6))
def test_jsl_05_a_batch_stopped_after_k_calls_makes_each_exactly_once(tmp_path, number, stop, command):
    wanted = {}

    def before(ctx, args):
        if ctx.call_id == wanted.get("interrupt"):
            raise KeyboardInterrupt

    shop = Shop(tmp_path, lifecycle=nk.Lifecycle(before_handle=before))
    shop.write(*(call(n, command) for n in range(1, 6)))
    options, code = stop(shop, number)
    wanted.update(options)

    def answered(id):
        if id == options.get("fail"):
            raise BrokenPipeError(32, "gone")

    out = Log(answered)
    env = nk.Env(argv=["x"], stdin=None, stdout=out, stderr=io.BytesIO(), environ={}, cwd=shop.folder)
    stopped = shop.app.run(["batch", "lines"], env=env, cancel=options.get("cancel"))
    first = list(shop.done)
    told = [json.loads(line)["id"] for line in out.getvalue().splitlines()]
    assert told == (first[:-1] if stopped == 141 else first)
    if number == 5 and stop is not stop_by_reader or number == 0 and stop is stop_by_reader:
        assert stopped == 0 and first == [1, 2, 3, 4, 5]
    else:
        assert stopped == code and first == list(range(1, number + 1))
    wanted.clear()
    shop.script.clear()
    ran = shop.run()
    assert first + shop.done == [1, 2, 3, 4, 5]
    assert brief(ran) == [(n, "replayed" if n in first else "ok") for n in range(1, 6)] and ran.code == 0
    last = shop.bytes()
    assert shop.run().code == 0 and shop.done == [] and shop.bytes() == last


def test_jsl_05_what_has_ended_need_not_be_a_prefix(shop):
    shop.make(*(("end", n, "pay", ended(data=n * 10)) for n in (1, 2, 4)))
    shop.write(*(call(n) for n in range(1, 6)))
    ran = shop.run()
    assert shop.done == [3, 5] and ran.code == 0
    assert [each["data"] for each in answers(ran)] == [10, 20, 1, 40, 1]


def test_a_call_that_was_begun_ahead_and_never_entered_is_simply_run(shop, monkeypatch):
    shop.write(call(1), call(2), call(3))
    code, events = observe(shop, monkeypatch, None, lambda id: id == 1)
    assert code == 141
    assert events == ["begin 1", "call 1", "end 1+begin 2", "answer 1", "end 2"]
    assert shop.records()[-1]["answer"] == {"ok": False, "exitCode": 130, "error": {
        "code": "REQUEST_ABORTED", "message": "the batch ended before the call was made", "retryable": False}}
    assert brief(shop.run()) == [(1, "replayed"), (2, "ok"), (3, "ok")]


def test_a_repetition_that_was_begun_ahead_and_never_entered_stays_unknown(shop, monkeypatch):
    shop.make(("begin", 2, "pay", {}))
    shop.write(call(1), call(2))
    assert observe(shop, monkeypatch, None, lambda id: id == 1, "lines", "--rerun-unknown")[0] == 141
    assert [record["kind"] for record in shop.records()] == ["header", "begin", "begin", "end", "begin", "end"]
    assert brief(shop.run()) == [(1, "replayed"), (2, "OUTCOME_UNKNOWN")]


def test_an_interrupted_handler_leaves_its_line_unknown_and_no_other(shop):
    shop.write(*(call(n) for n in range(1, 5)))
    shop.script[3] = lambda: KeyboardInterrupt()
    ran = shop.run()
    assert ran.code == 130 and brief(ran) == [(1, "ok"), (2, "ok")] and shop.done == [1, 2, 3]
    shop.script.clear()
    assert brief(shop.run()) == [(1, "replayed"), (2, "replayed"), (3, "OUTCOME_UNKNOWN"), (4, "ok")]


def test_an_interrupted_handler_that_may_be_repeated_is_repeated(shop):
    shop.write(call(1), call(2, "look"))
    shop.script[2] = lambda: KeyboardInterrupt()
    assert shop.run().code == 130
    shop.script.clear()
    assert brief(shop.run()) == [(1, "replayed"), (2, "ok")]


def test_a_write_that_fails_once_leaves_no_half_of_a_call(shop, monkeypatch):
    """What follows in the same run may succeed again: room was made on the disk."""
    write, failed = nk._FilesJournal._write, []

    def fail(self, start, data):
        if not failed:
            failed.append(data)
            raise OSError(28, "No space left on device")
        write(self, start, data)

    shop.make(("begin", 1, "pay", {}))
    before = shop.bytes()
    shop.write(call(1), call(2))
    monkeypatch.setattr(nk._FilesJournal, "_write", fail)
    ran = shop.run("--rerun-unknown")
    assert ran.failure["error"] == "OUTPUT_FAILED" and ran.code == 1 and failed and shop.done == []
    assert ran.failure["message"] == (
        "line 1 was not run, for its start could not be recorded: cannot write "
        f"{nk._json_show(shop.path('lines.journal'))} (No space left on device); remove the cause, then go on with the "
        "same journal")
    monkeypatch.undo()
    assert shop.bytes() == before
    assert brief(shop.run()) == [(1, "OUTCOME_UNKNOWN"), (2, "ok")]


def interrupted_everywhere(shop, *words):
    """Run the batch with Ctrl-C before the first, second, third ... line of Python that it executes; yield each run."""
    tracer = sys.gettrace()
    for moment in itertools.count(1):
        left = [moment]

        def trace(frame, event, value):
            if frame.f_code.co_name in ("open", "close") or type(frame.f_locals.get("self")) not in (
                    nk._BatchRun, nk._BatchBook, nk._FilesJournal):
                return None
            if event == "line":
                left[0] -= 1
                if left[0] == 0:
                    raise KeyboardInterrupt
            return trace

        shop.forget()
        yield moment, None
        sys.settrace(trace)
        try:
            stopped = shop.run(*words)
        finally:
            sys.settrace(tracer)
        if left[0] > 0:
            return
        assert stopped.code == 130, moment
        yield moment, stopped


def test_an_interrupt_at_any_moment_leaves_at_most_one_line_unknown(tmp_path):
    shop = Shop(tmp_path)
    shop.write(call(1), call(2, "look"), call(3))
    for moment, stopped in interrupted_everywhere(shop):
        if stopped is None:
            continue
        first, told = list(shop.done), [each["id"] for each in answers(stopped)]
        ran = shop.run()
        said = dict(brief(ran))
        unknown = [id for id in said if said[id] == "OUTCOME_UNKNOWN"]
        assert len(unknown) <= 1 and set(said.values()) <= {"ok", "replayed", "OUTCOME_UNKNOWN"}, moment
        assert all(said[id] == "replayed" for id in told), moment
        made = first + shop.done
        assert all(made.count(id) == 1 or id == 2 or id in unknown and made.count(id) <= 1 for id in said), moment
    assert moment > 100


def test_an_interrupt_at_any_moment_of_a_repetition_forgets_no_doubt(tmp_path):
    """Whether the calls of an earlier run happened is as unknown as before, unless this one ended well."""
    shop = Shop(tmp_path)
    shop.write(call(1), call(2), call(3))
    for moment, stopped in interrupted_everywhere(shop, "--rerun-unknown"):
        if stopped is None:
            shop.make(("begin", 1, "pay", {}), ("begin", 2, "pay", {}), ("end", 2, "pay", in_doubt()))
            continue
        ended = [record["id"] for record in shop.records() if record.get("answer", {}).get("ok")]
        told = [each["id"] for each in answers(stopped)]
        ran = shop.run()
        said = dict(brief(ran))
        assert all(said[id] == ("replayed" if id in ended else "OUTCOME_UNKNOWN") for id in (1, 2)), (moment, said)
        assert set(shop.done) <= {3} and set(told) <= set(ended), moment
    assert moment > 100


@pytest.mark.parametrize("command", ["pay", "look"])
def test_an_interrupt_tells_what_was_answered_and_what_was_under_way(shop, command):
    shop.write(call(1), call("b", command), call(3))
    shop.script["b"] = lambda: KeyboardInterrupt()
    ran = shop.run()
    assert (ran.code, brief(ran)) == (130, [(1, "ok")])
    summary, failure = ran.err.split("\n", 1)
    journal = f"journal {json.dumps(shop.path('lines.journal'))}"
    assert summary == f"1 line: 1 ok (0 replayed), 0 failed, 0 unknown; {journal}"
    assert json.loads(failure) == {
        "error": "REQUEST_ABORTED", "retryable": False, "hint": "run the same words again to go on",
        "message": 'interrupted; lines answered: 1; the call for the id "b" was under way'}
    assert shop.run("--quiet").out.count("\n") == (1 if command == "look" else 3) or command == "look"


def test_a_cancelled_batch_tells_what_was_answered(shop):
    signal_ = nk.Cancel()
    shop.write(call(1), call(2), call(3))
    shop.script[2] = lambda: signal_.cancel()
    ran = shop.run(cancel=signal_)
    assert ran.code == 130 and brief(ran) == [(1, "ok"), (2, "ok")]
    summary, failure = ran.err.split("\n", 1)
    assert summary.startswith("2 lines: 2 ok") and json.loads(failure)["message"] == "interrupted; lines answered: 2"
    assert json.loads(failure)["hint"] == "run the same words again to go on"
    assert brief(shop.run()) == [(1, "replayed"), (2, "replayed"), (3, "ok")]


def test_what_ran_is_recorded_although_the_next_line_cannot_be_read(shop, monkeypatch):
    shop.write(call(1))
    read = nk._StreamLines._read

    def fail(self):
        if self.number:
            raise nk.Error("BAD_REQUEST", "cannot read on")
        return read(self)

    monkeypatch.setattr(nk._StreamLines, "_read", fail)
    ran = shop.run()
    assert ran.failure["message"] == "cannot read on" and ran.code == 1
    monkeypatch.undo()
    assert brief(shop.run()) == [(1, "replayed")]


# -- which journal ---------------------------------------------------------------------------------------------------


REGION = {"type": "object", "properties": {"region": {"type": "string"}}, "additionalProperties": False}


def test_answers_for_other_application_options_are_not_replayed(tmp_path):
    shop = Shop(tmp_path, global_options=REGION)
    shop.write(call(1))
    assert shop.run("--region", "eu").code == 0
    before = shop.bytes()
    for words in ((), ("--region", "us"), ("--region", "us", "--dry-run")):
        ran = shop.run(*words)
        assert ran.failure == {"error": "CONFLICT", "retryable": False, "message":
                               f"journal {json.dumps(shop.path('lines.journal'))} was made with other application "
                               "options; use those, or another --journal"}
        assert ran.code == 5 and shop.done == [] and shop.bytes() == before
    assert brief(shop.run("--region", "eu")) == [(1, "replayed")]
    assert shop.run("--region", "us", "--journal", "other").code == 0 and shop.done == [1]


@dataclasses.dataclass
class Site:
    url: str
    token: Annotated[str, nk.Arg(secret=True)]


@POSIX
def test_answers_for_another_profile_are_not_replayed(tmp_path):
    store = nk.ProfileStore(str(tmp_path / "profiles"), Site)
    for name in ("live", "test"):
        store.write(name, {"url": f"https://{name}.example", "token": "a"})
    shop = Shop(tmp_path, profiles=store)
    shop.write(call(1))
    journal = f"journal {json.dumps(shop.path('lines.journal'))}"
    assert shop.run("--profile", "live").code == 0
    for words in ((), ("--dry-run",)):
        ran = shop.run("--profile", "test", *words)
        assert ran.failure["message"] == (f'{journal} was made with profile "live", and this run uses profile "test"; '
                                          'use profile "live", or another --journal')
        assert (ran.failure["error"], ran.code, shop.done) == ("CONFLICT", 5, [])
    assert brief(shop.run("--profile", "live")) == [(1, "replayed")]
    assert shop.run("--profile", "live", "--status").data["profile"] == "live"
    assert shop.run("--profile", "none").failure["error"] == "NOT_FOUND" and shop.done == []
    store.write("live", {"url": "https://live.example", "token": "b"})
    assert brief(shop.run("--profile", "live")) == [(1, "replayed")]  # a new token is no other profile
    store.write("live", {"url": "https://other.example", "token": "b"})
    ran = shop.run("--profile", "live")
    assert ran.failure["message"] == (f'profile "live" has changed since {journal} was made; put it back, or use '
                                      'another --journal')
    assert ran.code == 5 and b"example" not in shop.bytes()
    plain = Shop(tmp_path)
    assert plain.run().failure["message"] == (f'{journal} was made with profile "live", and this run uses no profile; '
                                              'use profile "live", or another --journal')


@POSIX
def test_a_batch_whose_profile_is_not_there_is_refused_whatever_its_lines(tmp_path):
    shop = Shop(tmp_path, profiles=nk.ProfileStore(str(tmp_path / "profiles"), {"type": "object"}))
    shop.write("bad\n")
    for words in ((), ("--dry-run",)):
        assert shop.run(*words).failure["error"] == "NOT_FOUND"
    assert os.listdir(shop.folder) == ["lines"]


def test_another_applications_journal_is_refused(tmp_path):
    Shop(tmp_path, name="other").make()
    shop = Shop(tmp_path)
    shop.write(call(1))
    ran = shop.run()
    assert ran.code == 5 and shop.done == []
    assert ran.failure["message"] == (f"journal {json.dumps(shop.path('lines.journal'))} belongs to the application "
                                      '"other", not to "shop"; use another --journal')


def test_another_version_and_other_commands_go_on_with_a_notice(tmp_path):
    old = Shop(tmp_path, version="1.0.0\x1b[31m")
    old.write(call(1))
    old.run()
    shop = Shop(tmp_path, version="2.0.0")

    @shop.app.command
    def more() -> None:
        """Be new."""

    journal = f"journal {json.dumps(shop.path('lines.journal'))}"
    ran = shop.run()
    assert brief(ran) == [(1, "replayed")] and ran.err.splitlines() == [
        f'notice: version "1.0.0\\u001b[31m" made the {journal}, and this is version "2.0.0"',
        f"notice: the commands have changed since the {journal} was made",
        f"1 line: 1 ok (1 replayed), 0 failed, 0 unknown; {journal}",
    ]
    assert shop.run("--quiet").err == ""


@pytest.mark.parametrize("header", [
    {"format": 2}, {"format": None}, {"format": True}, {"format": 1.0}, {"kind": "end"}, {"app": None}, {"app": ["x"]},
    {"version": 1}, {"schema": None}, {"values": 5}, {"options": {}}, {"profile": 5}, {"profile": False}, {"salt": 5},
    {"salt": ""}, {"salt": "\ud800" * 32}, {"salt": "0" * 31}, {"salt": "0" * 33}, {"salt": " " * 32},
    {"salt": "\u0660" * 32},
])
def test_a_journal_of_another_kind_is_refused(shop, header):
    shop.make(**header)
    shop.write(call(1))
    before = shop.bytes()
    ran = shop.run()
    assert ran.failure["message"] == (f"journal {json.dumps(shop.path('lines.journal'))} is none that this version of "
                                      "batch writes; use another --journal")
    assert ran.code == 5 and shop.bytes() == before and shop.done == []
    assert shop.run("--status").failure["error"] == "CONFLICT"


@pytest.mark.parametrize("record", [
    ("other", 1, "pay", {}),
    (["end"], 1, "pay", {}),
    ("begin", None, "pay", {}),
    ("begin", [1], "pay", {}),
    ("begin", True, "pay", {}),
    ("begin", "", "pay", {}),
    ("begin", "x" * 257, "pay", {}),
    ("begin", 1.0, "pay", {}),
    ("begin", 1e300, "pay", {}),
    ("begin", 10**3000, "pay", {}),
    ("begin", -10**256, "pay", {}),
    ("begin", 1, "pay", {"digest": 5}),
    ("end", 1, "pay", {}),
    ("end", True, "pay", ended()),
    ("end", 1, "pay", {"answer": []}),
    *(("end", 1, "pay", ended(**answer)) for answer in (
        {"exitCode": "0"}, {"exitCode": True}, {"exitCode": -1}, {"exitCode": 256}, {"exitCode": 10**30},
        {"exitCode": 0.0}, {"ok": 1}, {"ok": None}, {"error": 5}, {"error": None}, {"unknown": True},
        {"written": "x"}, {"written": ["x"]}, {"written": {"stdout": 1}}, {"written": None},
    )),
    *(("end", 1, "pay", ended(False, **answer)) for answer in (
        {"error": []}, {"error": {"code": None, "message": "m"}}, {"error": {"code": "NO"}}, {"error": "NO"},
        {"unknown": False}, {"unknown": 1}, {"unknown": None}, {"exitCode": None},
    )),
])
def test_sound_records_that_no_batch_writes_are_damage(shop, record):
    shop.make(("end", 1, "pay", ended()), record)
    shop.write(call(1), call(2))
    before = shop.bytes()
    ran = shop.run()
    place = before.rindex(b"\n", 0, -1) + 1
    assert ran.failure["message"] == (f"journal {json.dumps(shop.path('lines.journal'))} has a record at byte {place} "
                                      "that no batch writes; restore it from a copy, or use another --journal")
    assert ran.failure["error"] == "JOURNAL_DAMAGED" and ran.code == 1 and shop.done == [] and shop.bytes() == before


@pytest.mark.parametrize("data, said", [("NaN", 1), ("Infinity", 1), ("1e400", 1), ('{"a":[-1e999]}', 1),
                                        ("[" * 300 + "]" * 300, 1), ("9" * 5000, 0)])
def test_a_recorded_answer_that_is_no_json_is_damage(shop, data, said):
    """With a valid chain: only another program writes such a thing."""
    shop.make(("begin", 1, "pay", {}))
    shop.write(call(1))
    place, line = len(shop.bytes()), shop.bytes().splitlines()[-1]
    body = (b'{"seq":2,"kind":"end","id":1,"digest":"%s","command":"pay","answer":{"ok":true,"exitCode":0,"data":%s}'
            % (json.loads(line)["digest"].encode(), data.encode()))
    with open(shop.path("lines.journal"), "ab") as file:
        seal = hashlib.sha256(json.loads(line)["sha256"].encode() + body).hexdigest().encode()
        file.write(body + b',"sha256":"' + seal + b'"}\n')
    before = shop.bytes()
    for words in ((), ("--dry-run",), ("--rerun-unknown",)):
        ran = shop.run(*words)
        assert ran.failure["error"] == "JOURNAL_DAMAGED" and shop.done == [] and shop.bytes() == before
        assert not said or ran.failure["message"] == (
            f"journal {json.dumps(shop.path('lines.journal'))} has a record at byte {place} that no batch writes; "
            "restore it from a copy, or use another --journal")


@POSIX
def test_a_journal_that_is_not_private_is_refused_before_any_line(shop):
    shop.write(call(1))
    shop.run()
    journal = shop.path("lines.journal")
    assert stat.S_IMODE(os.stat(journal).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(journal + ".lock").st_mode) == 0o600
    os.chmod(journal, 0o644)
    ran = shop.run()
    assert ran.failure["error"] == "FORBIDDEN" and ran.code == 3 and f"chmod 600 {journal}" in ran.failure["message"]
    os.chmod(journal, 0o600)
    os.rename(journal, shop.path("elsewhere"))
    os.symlink(shop.path("elsewhere"), journal)
    before = shop.bytes("elsewhere")
    ran = shop.run()
    assert ran.failure["error"] == "FORBIDDEN" and "is a link" in ran.failure["message"] and shop.done == []
    assert shop.bytes("elsewhere") == before
    os.unlink(journal)
    os.symlink(shop.path("nowhere"), journal)
    assert shop.run().failure["error"] == "FORBIDDEN" and not os.path.exists(shop.path("nowhere"))
    os.unlink(journal)
    os.mkdir(journal)
    ran = shop.run()
    assert ran.code == 64 and ran.err.startswith(
        f"--journal: {json.dumps(journal)} is a folder; give the path of a file\n") and shop.done == []


@pytest.mark.parametrize("name", ["lines", "./lines", "link", "twin", "/lines"])
def test_the_lines_are_no_journal(shop, name):
    shop.write(call(1))
    if name in ("link", "twin"):
        (os.symlink if name == "link" else os.link)(shop.path("lines"), shop.path(name))
    name = shop.path("lines") if name == "/lines" else name
    before, there = shop.bytes("lines"), os.listdir(shop.folder)
    said = (f"--journal: {json.dumps(os.path.join(shop.folder, name))} is the file of the lines; give the path of "
            "another\nTry: shop batch --help\n")
    for words in ((), ("--status",), ("--dry-run",)):
        ran = shop.run("--journal", name, *words)
        assert (ran.code, ran.out, ran.err, shop.done) == (64, "", said, [])
    mounted = Shop(shop.folder, mount=nk.batch_command(journal=name))
    assert mounted.run().err == said
    err = io.BytesIO()
    with open(shop.path("lines"), "rb") as file:
        env = nk.Env(argv=["x"], stdin=file, stdout=io.BytesIO(), stderr=err, environ={}, cwd=shop.folder)
        assert mounted.app.run(["batch"], env=env) == 64
    assert err.getvalue().decode() == said
    assert shop.bytes("lines") == before and os.listdir(shop.folder) == there


def test_lines_from_standard_input_need_a_journal(shop):
    ran = shop.run("-", stdin=b"")
    assert (ran.code, ran.out) == (64, "")
    assert ran.err == "--journal: lines from standard input need the path of a journal\nTry: shop batch --help\n"
    line = json.dumps(call(1)).encode()
    assert brief(shop.run("-", "--journal", "j", stdin=line)) == [(1, "ok")]
    assert brief(shop.run("-", "--journal", "j", stdin=line)) == [(1, "replayed")]
    mounted = Shop(shop.folder, mount=nk.batch_command("batch", journal="j"))
    assert brief(mounted.run("-", stdin=line)) == [(1, "replayed")]
    assert brief(mounted.run("-", "--journal", "k", stdin=line)) == [(1, "ok")]


@pytest.mark.parametrize("journal", ["", 5])
def test_a_mount_with_a_faulty_journal_is_refused(journal):
    with pytest.raises(nk.RegistrationError) as caught:
        nk.batch_command(journal=journal)
    shown = '""' if journal == "" else "an int"
    assert caught.value.message == f"journal must be the path of a file, not {shown}"


@pytest.mark.parametrize("journal", ["no/such/folder/j", "a\0b", "x" * 300, "lines/j"])
def test_a_journal_that_cannot_be_made_is_refused_before_any_line(shop, journal):
    shop.write(call(1))
    ran = shop.run("--journal", journal)
    assert ran.failure["error"] == "OUTPUT_FAILED" and ran.code == 1
    assert shop.done == [] and os.listdir(shop.folder) == ["lines"]


@pytest.mark.parametrize("journal", ["", ".", "profiles"])
def test_a_folder_is_no_journal(shop, journal):
    shop.write(call(1))
    os.mkdir(shop.path("profiles"))
    ran = shop.run("--journal", journal)
    shown = json.dumps(os.path.join(shop.folder, journal))
    assert (ran.code, ran.err) == (
        64, f"--journal: {shown} is a folder; give the path of a file\nTry: shop batch --help\n")
    assert shop.done == [] and sorted(os.listdir(shop.folder)) == ["lines", "profiles"]


@POSIX
def test_lines_from_a_pipe_need_a_journal(shop):
    os.mkfifo(shop.path("lines"))
    ran = shop.run()
    assert (ran.code, ran.err) == (
        64, '--journal: "lines" is no regular file, so its lines need the path of a journal\nTry: shop batch --help\n')


def test_lines_that_are_not_there_make_no_journal(shop):
    assert shop.run().failure["error"] == "NOT_FOUND"
    assert os.listdir(shop.folder) == []


def test_a_batch_is_served_for_an_application_that_does_not_mount_it(tmp_path):
    (tmp_path / "shop.py").write_text(textwrap.dedent("""
        import knaif as nk
        app = nk.App("shop", expose=("cli",))
        @app.command
        def pay(amount: int = 1) -> int:
            print("to stderr")
            return amount
        if __name__ == "__main__":
            app.main()
    """))
    (tmp_path / "lines").write_text(json.dumps(call(1, amount=4)) + "\n")
    words = [sys.executable, os.path.join(ROOT, "knaif.py"), "batch", "shop.py", "lines"]
    first, second = (subprocess.run(words, cwd=tmp_path, capture_output=True, text=True,
                                    env={**os.environ, "PYTHONPATH": ROOT}) for _ in range(2))
    assert first.stdout == '{"id":1,"ok":true,"exitCode":0,"data":4}\n' and "to stderr\n" in first.stderr
    assert second.stdout == '{"id":1,"ok":true,"exitCode":0,"data":4,"replayed":true}\n'


def test_the_help_tells_what_the_options_do(shop):
    text = " ".join(run_app(shop.app, "batch", "--help", cwd=shop.folder).out.split())
    for words in (
        "the file that keeps the answers, from which a later run goes on; by default FILE.journal beside the lines, or "
        "FILE.3-of-8.journal with --shard 3/8",
        "run part i of n and leave the other lines to other runs; i/n, such as 3/8",
        "call again what an earlier run called without learning what came of it; find out first whether it happened, "
        "for it may happen twice",
        "show how many lines ended well, failed or are unknown, and the ids of these, and run nothing",
    ):
        assert words in text


# -- shards ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3, 7, 100])
def test_shards_are_a_partition(shop, count):
    ids = [*range(40), *map(str, range(40)), "\u00e9", 10**200]
    shop.write(*(call(id, "look") for id in ids), "bad\n", '{"id": "z", "bad": 1}\n')
    seen, faults, skipped = [], [], []
    for place in range(1, count + 1):
        ran = shop.run("--shard", f"{place}/{count}")
        seen += shop.done
        faults += [place for each in answers(ran) if each["id"] is None]
        assert ran.code == (1 if any(not each["ok"] for each in answers(ran)) else 0)
        skipped.append(int(re.search(r", (\d+) of other shards;", ran.err)[1]) + len(answers(ran)))
        assert shop.run("--shard", f"{place}/{count}", "--quiet").err == "" and shop.done == []
    assert sorted(seen, key=repr) == sorted(ids, key=repr) and faults == [1] and set(skipped) == {len(ids) + 2}
    assert sorted(name for name in os.listdir(shop.folder) if name.endswith(".journal")) == sorted(
        f"lines.{place}-of-{count}.journal" for place in range(1, count + 1))


def test_a_record_does_not_wait_for_a_search_among_the_lines_of_others(shop, monkeypatch):
    ids = [n for n in range(200) if int(nk._json_digest(n), 16) % 2 == 0]
    others = [n for n in range(200) if n not in ids]
    shop.write(call(ids[0]), *(call(n) for n in others), call(ids[1]))
    read, numbers = nk._StreamLine._read, []
    monkeypatch.setattr(nk._StreamLine, "_read", lambda self, text: (numbers.append(self.number), read(self, text))[1])
    shop.act = lambda ctx, result: numbers.append("call") or result
    sync = nk._files_sync
    monkeypatch.setattr(nk, "_files_sync", lambda descriptor: (numbers.append("sync"), sync(descriptor)))
    assert shop.run("--shard", "1/2").code == 0
    place = numbers.index("call")
    assert numbers[place : place + 4] == ["call", 2, "sync", 3]


def test_the_shard_of_an_id_is_told_by_its_digest():
    line = types.SimpleNamespace(id="order-7")
    places = [place for place in range(1, 9) if nk._BatchRun.is_ours(types.SimpleNamespace(shard=(place, 8)), line)]
    assert places == [int(hashlib.sha256(b'"order-7"').hexdigest(), 16) % 8 + 1]


@pytest.mark.parametrize("text", ["0/3", "4/3", "1/0", "1", "1/2/3", "+1/2", "1/ 2", "\u0661/\u0662", "1/1000000",
                                  "-1/2", "1/100001", "a/b", "", "/", "0" * 5000 + "1/2", "1.0/2"])
def test_a_shard_that_is_none_is_refused(shop, text):
    shop.write(call(1))
    ran = shop.run("--shard=" + text)
    assert (ran.code, ran.out, shop.done) == (64, "", [])
    assert ran.err == (f"--shard: {nk._json_show(text)} is no shard; write i/n, such as 3/8, with 1 <= i <= n <= "
                       "100000\nTry: shop batch --help\n")
    assert os.listdir(shop.folder) == ["lines"]


def test_a_shard_may_be_padded_and_large(shop):
    shop.write(call(1))
    assert shop.run("--shard", "01/01").code == 0 and brief(shop.run("--shard", "1/1")) == [(1, "replayed")]
    assert sorted(os.listdir(shop.folder)) == ["lines", "lines.1-of-1.journal", "lines.1-of-1.journal.lock"]
    shop.forget()
    assert shop.run("--shard", "1/100000").code == 0
    assert sorted(os.listdir(shop.folder))[1:] == ["lines.1-of-100000.journal", "lines.1-of-100000.journal.lock"]


@pytest.mark.parametrize("first, second, how", [
    ((), ("--shard", "1/2"), "without --shard"),
    (("--shard", "1/2"), (), "with --shard i/2"),
    (("--shard", "2/2"), ("--shard", "1/3"), "with --shard i/2"),
    (("--shard", "2/2"), ("--shard", "2/20"), "with --shard i/2"),
    (("--shard", "1/1"), (), "with --shard i/1"),
])
def test_lines_that_were_split_in_another_way_are_not_paid_twice(shop, first, second, how):
    shop.write(*(call(n) for n in range(6)))
    shop.run(*first)
    there = sorted(os.listdir(shop.folder))
    journal = next(name for name in there if name.endswith(".journal"))
    for words in ((), ("--dry-run",)):
        ran = shop.run(*second, *words)
        assert ran.failure["message"] == (
            f"journal {nk._json_show(shop.path(journal), 200)} belongs to a run over the same lines {how}; go on {how}"
            ", or name a --journal")
        assert (ran.failure["error"], ran.code, ran.out, shop.done) == ("CONFLICT", 5, "", [])
    assert sorted(os.listdir(shop.folder)) == there
    assert shop.run(*first).code == 0 and shop.done == []
    assert shop.run(*second, "--journal", "j").code == 0 and shop.done != []  # the operator knows
    mounted = Shop(shop.folder, mount=nk.batch_command(journal="m"))
    assert mounted.run(*second).code == 0 and mounted.done != []
    assert shop.run(*second, "--status").failure["error"] == "NOT_FOUND"


def test_journals_of_other_lines_are_no_obstacle(shop):
    shop.write(call(1))
    for name in ("line.journal", "lines2.journal", "lines.2-of-x.journal", "lines.x-of-2.journal",
                 "lines.-of-2.journal", "lines1-of-2.journal",
                 "lines.1-of-\u00b2.journal", "lines.1-of-2.journal.lock", "lines.1-of-2", "lines.old.journal",
                 "other.1-of-2.journal"):
        with open(shop.path(name), "w"):
            pass
    assert shop.run().code == 0 and shop.done == [1]


def test_of_two_splits_that_begin_at_once_none_goes_on(shop, monkeypatch):
    """The other journal appears after the first look, when ours is being made."""
    shop.write(call(1))
    create = nk._FilesJournal.create

    def late(self, header):
        shop.make(name="lines.1-of-2.journal") if self.path == shop.path("lines.journal") else None
        return create(self, header)

    monkeypatch.setattr(nk._FilesJournal, "create", late)
    ran = shop.run()
    assert ran.failure["error"] == "CONFLICT" and "with --shard i/2" in ran.failure["message"] and shop.done == []
    assert sorted(os.listdir(shop.folder)) == ["lines", "lines.1-of-2.journal", "lines.journal.lock"]
    assert shop.run("--shard", "1/2").code == shop.run("--shard", "2/2").code == 0


@POSIX
def test_lines_have_one_journal_by_whatever_link_they_are_named(shop):
    os.mkdir(shop.path("data"))
    shop.write(call(1), name="data/lines")
    os.symlink("data/lines", shop.path("lines"))
    os.symlink("data", shop.path("linked"))
    for name in ("lines", "data/lines", "linked/lines", "data/../data/lines", shop.path("linked/lines")):
        ran = run_app(shop.app, "batch", name, cwd=shop.folder)
        assert ran.code == 0 and ran.err.endswith(json.dumps(shop.path("data/lines.journal")) + "\n")
    assert shop.done == [1] and sorted(os.listdir(shop.folder)) == ["data", "lines", "linked"]
    ran = run_app(shop.app, "batch", "lines", "--shard", "1/2", cwd=shop.folder)
    assert "without --shard" in ran.failure["message"]


@POSIX
def test_a_folder_whose_journals_cannot_be_seen_is_refused(shop, monkeypatch):
    shop.write(call(1))

    def closed(folder):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "listdir", closed)
    ran = shop.run()
    assert ran.failure["message"] == (
        f"cannot read the folder {nk._json_show(shop.folder)} (Permission denied); name a --journal")
    assert ran.failure["error"] == "BAD_REQUEST" and shop.done == []


# -- status and dry run ----------------------------------------------------------------------------------------------


def test_status_tells_what_a_journal_holds(shop):
    shop.make(("end", "ok", "pay", ended()), ("begin", "cut", "pay", {}), ("end", "no", "pay", ended(False)),
              ("end", 10**30, "pay", in_doubt()), ("begin", "no", "pay", {}), ("end", "no", "pay", ended(False)),
              version="0.9")
    with open(shop.path("lines.journal"), "ab") as file:
        file.write(b'{"seq":7')
    before = shop.bytes()
    ran = shop.run("--status")
    assert ran.code == 0 and ran.err == "" and ran.data == {
        "journal": shop.path("lines.journal"), "app": "shop", "version": "0.9", "profile": None, "records": 6,
        "lines": 4, "ok": 1, "failed": 1, "unknown": {"count": 2, "ids": ["cut", 10**30]}, "tornBytes": 8,
        "running": None,
    }
    assert ran.out.startswith('{\n  "journal": ') and shop.run("--status", "--json").out.count("\n") == 1
    assert shop.bytes() == before and os.listdir(shop.folder) == ["lines.journal"]


def test_status_lists_a_hundred_unknown_ids(shop):
    shop.make(*(("begin", n, "pay", {}) for n in range(150)))
    assert shop.run("--status").data["unknown"] == {"count": 150, "ids": list(range(100))}


def test_status_of_a_missing_journal(shop):
    ran = shop.run("--status")
    assert ran.code == 4 and ran.failure["error"] == "NOT_FOUND" and os.listdir(shop.folder) == []
    assert ran.failure["message"] == (f"cannot open {nk._json_show(shop.path('lines.journal'))} (No such file or "
                                      "directory); give the path of a journal that exists")


def test_status_reads_a_damaged_journal_as_far_as_it_is_sound(shop):
    shop.write(call(1), call(2), call(3))
    shop.run()
    data = shop.bytes()
    place = data.rindex(b'"id":2')
    with open(shop.path("lines.journal"), "wb") as file:
        file.write(data[:place] + b"X" + data[place + 1:])
    ran = shop.run("--status")
    assert ran.code == 1 and ran.failure["error"] == "JOURNAL_DAMAGED" and "record 4" in ran.failure["message"]
    report = ran.failure["details"]
    assert (report["records"], report["ok"], report["unknown"]) == (3, 1, {"count": 1, "ids": [2]})
    put(shop, b'{"seq":0}\n')
    assert shop.run("--status").failure["details"] == {
        "journal": shop.path("lines.journal"), "app": None, "version": None, "profile": None, "records": 0, "lines": 0,
        "ok": 0, "failed": 0, "unknown": {"count": 0, "ids": []}, "tornBytes": 0, "running": None,
    }


def test_a_dry_run_admits_every_line_and_writes_nothing(shop):
    shop.write(call(1), call(2, amount="x"), {"id": 3, "command": "wipe"}, "bad\n", call(1), call(1, amount=2))
    ran = shop.run("--dry-run")
    assert shop.done == [] and os.listdir(shop.folder) == ["lines"]
    resolved = {"command": "pay", "args": {"amount": 1}}
    assert answers(ran)[0] == {"id": 1, "ok": True, "exitCode": 0, "data": resolved, "would": "run"}
    assert answers(ran)[4] == {**answers(ran)[0], "replayed": True, "would": "replay"}
    real = shop.run()
    assert [(id, {"ok": "ok"}.get(what, what)) for id, what in brief(ran)] == brief(real) and ran.code == real.code == 8
    assert [each["would"] for each in answers(ran)] == ["run", "refuse", "refuse", "refuse", "replay", "conflict"]
    assert ran.err == "dry run of 6 lines: 2 ok (1 replayed), 4 failed, 0 unknown\n"
    assert real.err.startswith("6 lines: 2 ok (1 replayed), 4 failed, 0 unknown; journal ")


def test_a_dry_run_answers_what_the_run_would_answer(shop):
    shop.make(("end", 1, "pay", ended(exitCode=3, data=[5])), ("begin", 2, "pay", {}), ("end", 3, "put", in_doubt()),
              ("end", 4, "pay", ended(False)))
    shop.write(call(1), call(1, amount=2), call(2), call(2, amount=2), call(3, "put"), call(4, amount=9), call(5),
               call(5), call(5, "look"), call(6, amount="x"), call(1, "none"), "bad\n")
    before = shop.bytes()
    for words in ((), ("--rerun-unknown",)):
        put(shop, before)
        dry = shop.run("--dry-run", *words)
        assert shop.done == [] and shop.bytes() == before
        assert sorted(name for name in os.listdir(shop.folder) if not name.endswith(".lock")) == [
            "lines", "lines.journal"]
        would = [each.pop("would") for each in answers(dry)]
        assert would == ["replay", "conflict", "run" if words else "unknown", "conflict" if words else "unknown", "run",
                         "run", "run", "replay", "conflict", "refuse", "conflict", "refuse"]
        real = shop.run(*words)
        for said, done, what in zip(answers(dry), answers(real), would):
            assert said.pop("would") == what
            if said["ok"] and done["data"] != [5]:  # that of a call
                assert said.pop("data").keys() == {"command", "args"} and done.pop("data")
            assert said == done
        assert dry.err == "dry run of " + real.err and dry.code == real.code == (5 if words else 9)


@pytest.mark.parametrize("line, words, would, hint", [
    ({}, (), "refuse",
     'say "confirmed": true on the line and have the operator start this with --allow-confirmed wipe'),
    ({"confirmed": True}, (), "refuse", "have the operator start this with --allow-confirmed wipe"),
    ({}, ("--allow-confirmed", "wipe"), "refuse", 'say "confirmed": true on the line'),
    ({"confirmed": True}, ("--allow-confirmed", "wipe"), "run", None),
])
def test_a_dry_run_asks_for_the_confirmation_that_the_run_needs(shop, line, words, would, hint):
    shop.write({"id": 3, "command": "wipe", **line})
    dry, real = shop.run("--dry-run", *words), shop.run(*words)
    assert answers(dry)[0]["would"] == would and dry.code == real.code == (8 if hint else 0)
    for ran in (dry, real) if hint else ():
        assert answers(ran)[0]["error"] == {
            "code": "CONFIRMATION_REQUIRED", "message": "wipe is destructive and needs a confirmation",
            "retryable": False, "hint": hint}


@POSIX
def test_a_dry_run_names_the_profile(tmp_path):
    store = nk.ProfileStore(str(tmp_path / "profiles"), {"type": "object"})
    store.write("live", {})
    shop = Shop(tmp_path, profiles=store)
    shop.write(call(1), call(2, amount="x"))
    ran = shop.run("--dry-run")
    assert [each.get("profile") for each in answers(ran)] == ["live", None]
    assert list(answers(ran)[0]) == ["id", "ok", "exitCode", "data", "would", "profile"]


def test_a_command_that_previews_is_called_in_a_dry_run(shop):
    @shop.app.command(previews=True)
    def move(ctx: nk.Ctx, amount: int = 1) -> str:
        """Move."""
        if amount == 2:
            raise nk.Error("NO", "m")
        return "would move" if ctx.dry_run else "moved"

    shop.write(call(1, "move"), call(2, "move", amount=2), call(2, "move", amount=1))
    ran = shop.run("--dry-run")
    assert answers(ran)[0]["data"]["preview"] == "would move" and answers(ran)[1]["error"]["code"] == "NO"
    assert [each["would"] for each in answers(ran)] == ["run", "run", "run"]
    assert "unknown" not in answers(ran)[1] and os.listdir(shop.folder) == ["lines"]


# -- two runs at once, and what the system refuses ---------------------------------------------------------------------


PROGRAM = """
import os, sys
sys.path.insert(0, {root!r})
import knaif as nk
app = nk.App("shop", "1.0.0", expose=("cli",), commands=[nk.batch_command()])
@app.command
def pay(ctx: nk.Ctx, amount: int = 1) -> object:
    with open("effects", "a") as file:
        file.write("%s\\n" % ctx.call_id)
    return amount
{more}
app.main()
"""


def program(folder, more=""):
    path = os.path.join(str(folder), "program.py")
    with open(path, "w", encoding="utf-8") as file:
        file.write(PROGRAM.format(root=ROOT, more=textwrap.dedent(more)))
    return [sys.executable, path, "batch"]


def ask(process, line):
    process.stdin.write(json.dumps(line).encode() + b"\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def test_a_conversation_holds_the_journal_until_it_ends(shop):
    words = program(shop.folder) + ["--journal", "lines.journal"]
    with subprocess.Popen(words, cwd=shop.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as process:
        assert ask(process, call(1)) == {"id": 1, "ok": True, "exitCode": 0, "data": 1}
        assert ask(process, call(1))["replayed"] is True
        shop.write(call(1), call(2))
        ran = shop.run()
        lock = nk._json_show(shop.path("lines.journal.lock"))
        assert ran.failure["error"] == "LOCKED" and ran.code == 1 and shop.done == []
        assert ran.failure["message"].startswith(f"{lock} is locked by process {process.pid}")
        assert ran.failure["message"].endswith("; wait until it has ended")
        status = shop.run("--status").data
        assert status["running"].startswith(f"process {process.pid}") and status["ok"] == 1
        assert [each["would"] for each in answers(shop.run("--dry-run"))] == ["replay", "run"]
        process.stdin.close()
        assert process.wait(10) == 0
    assert brief(shop.run()) == [(1, "replayed"), (2, "ok")]


@POSIX
@pytest.mark.parametrize("leave", [
    "sys.exit()", "sys.exit(3)", "return 5", "raise ValueError", "raise nk.Error('NO', 'm')"])
@pytest.mark.parametrize("marks", ["", "readonly=True"])
def test_the_child_of_a_handler_that_forked_leaves_the_lines_to_its_parent(shop, leave, marks):
    shop.write(call(1, "fork"), call(2), call(3))
    words = program(shop.folder, f"""
        @app.command({marks})
        def fork() -> int:
            child = os.fork()
            if child == 0:
                {leave}
            os.waitpid(child, 0)
            return 7
    """)
    ran = subprocess.run(words + ["lines"], cwd=shop.folder, capture_output=True, text=True)
    assert ran.returncode == 0 and [json.loads(line).get("data") for line in ran.stdout.splitlines()] == [7, 1, 1]
    assert [line[:8] for line in ran.stderr.splitlines()] == ["3 lines:"]
    with open(shop.path("effects")) as file:
        assert file.read() == "2\n3\n"
    assert [(record["kind"], record.get("id")) for record in shop.records()[-4:]] == [
        ("begin", 2), ("end", 2), ("begin", 3), ("end", 3)]


@POSIX
def test_a_full_disk_stops_the_batch_and_loses_no_answer(shop):
    """The file size limit stands in for the disk: at each size, one write of the journal fails."""
    shop.write(*(call(n) for n in range(4)))
    words = program(shop.folder, """
        import json, resource
        env = lambda: nk.Env(argv=["x"], stdin=None, stdout=open("out", "wb", buffering=0),
                             stderr=open("err", "wb", buffering=0), environ={}, cwd=os.getcwd())
        none = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        for limit in range(*map(int, sys.argv[2:5])):
            for name in ("lines.journal", "effects"):
                if os.path.exists(name):
                    os.unlink(name)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, none))
            code = app.run(["batch", "lines"], env=env())
            resource.setrlimit(resource.RLIMIT_FSIZE, (none, none))
            said = open("err").read() if code else ""
            first = open("out").read()
            size = os.path.getsize("lines.journal") if os.path.exists("lines.journal") else None
            again = app.run(["batch", "lines"], env=env())
            effects = open("effects").read().split()
            print(json.dumps([limit, code, said, first, size, again, open("out").read(), effects]))
        sys.exit(0)
    """)
    shop.run()
    whole = len(shop.bytes())
    header = len(shop.bytes().splitlines(True)[0])
    shop.forget()
    step = 61
    ran = subprocess.run(words + [str(header - 50), str(whole + 60), str(step)], cwd=shop.folder, capture_output=True,
                         text=True)
    assert ran.returncode == 0, ran.stderr
    seen = set()
    for limit, code, said, first, size, again, second, effects in map(json.loads, ran.stdout.splitlines()):
        error = json.loads(said) if code == 1 else None
        first, second = ([json.loads(line) for line in text.splitlines()] for text in (first, second))
        lost = []
        if limit < header:
            assert error["error"] == "OUTPUT_FAILED" and first == [] and size is None
            seen.add("header")
        elif limit >= whole:
            assert code == 0 and len(first) == 4
        elif "details" in error:
            lost = [error["details"]["id"]]
            assert error["details"]["answer"] == {"ok": True, "exitCode": 0, "data": 1}
            assert error["message"].startswith(
                f"line {lost[0] + 1} ran, and its answer, which stands in details, could not be recorded: cannot write "
                f"{nk._json_show(shop.path('lines.journal'))} (")
            seen.add("after")
        else:
            assert error["message"].startswith(
                f"line {len(first) + 1} was not run, for its start could not be recorded: cannot write ")
            seen.add("before")
        assert size is None or size <= limit
        # What was answered is replayed; what ran unrecorded is unknown; all else runs, once.
        assert [each["id"] for each in first] == list(range(len(first)))
        assert [each for each in second if each.get("replayed")] == [{**each, "replayed": True} for each in first]
        assert [each["id"] for each in second if not each["ok"]] == lost and again == (9 if lost else 0)
        assert sorted(effects) == ["0", "1", "2", "3"]
    assert seen == {"header", "before", "after"}


@POSIX
def test_a_folder_that_cannot_be_written_is_refused_before_any_line(shop):
    folder = tempfile.mkdtemp()  # pytest's own are closed to other users
    try:
        words = program(folder, """
            import io
            folder, other = os.getcwd(), sys.argv.pop()
            if os.geteuid() == 0:
                os.chdir(other)
                for file in ("lines", "none"):  # imports all that is needed: another user may be unable to
                    app.run(["batch", file], env=nk.Env(stdout=io.BytesIO(), stderr=io.BytesIO()))
                os.chdir(folder)
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
        """)
        with open(os.path.join(folder, "lines"), "w", encoding="utf-8") as file:
            file.write(json.dumps(call(1)))
        os.chmod(folder, 0o555)
        shop.write(call(1))
        ran = subprocess.run(words + ["lines", shop.folder], cwd=folder, capture_output=True, text=True)
        assert (ran.returncode, ran.stdout) == (1, "")
        failure = json.loads(ran.stderr)
        assert failure["error"] == "OUTPUT_FAILED" and failure["message"] == (
            f"cannot lock {nk._json_show(os.path.realpath(folder) + '/lines.journal.lock')} (Permission denied); "
            "choose a place that can be written")
        assert sorted(os.listdir(folder)) == ["lines", "program.py"]
    finally:
        os.chmod(folder, 0o700)
        shutil.rmtree(folder)


# -- every byte of a journal -------------------------------------------------------------------------------------------


def small(folder):
    """Return a shop with a finished batch of two lines, its journal and the end of each record."""
    shop = Shop(folder)
    shop.write(call(1), call(2))
    shop.run()
    data = shop.bytes()
    ends = list(itertools.accumulate(map(len, data.splitlines(True))))
    return shop, data, ends


def put(shop, data):
    with open(shop.path("lines.journal"), "wb") as file:
        file.write(data)


def test_a_journal_cut_at_every_byte_is_recovered_or_refused(tmp_path):
    """Records: header, begin 1, end 1, begin 2, end 2. One without its line end is whole."""
    shop, data, ends = small(tmp_path)
    for size in range(len(data)):
        put(shop, data[:size])
        ran = shop.run()
        whole = sum(size >= end - 1 for end in ends)
        if whole == 0:
            assert ran.failure["error"] == "JOURNAL_DAMAGED" and ran.code == 1, size
            assert shop.done == [] and shop.bytes() == data[:size], size
            continue
        said = [["ok", "ok"], ["OUTCOME_UNKNOWN", "ok"], ["replayed", "ok"], ["replayed", "OUTCOME_UNKNOWN"],
                ["replayed", "replayed"]][whole - 1]
        assert [what for _, what in brief(ran)] == said, size
        assert shop.done == [id for id, what in zip((1, 2), said) if what == "ok"], size
        if size % 8 == 0:
            assert shop.run().code == 9 * ("OUTCOME_UNKNOWN" in said) and shop.done == [], size


def test_a_flipped_bit_is_never_taken_for_a_missing_call(tmp_path, rng):
    shop, data, ends = small(tmp_path)
    last = ends[-2]
    for place in range(len(data)):
        flipped = bytearray(data)
        flipped[place] ^= 1 << rng.randrange(8)
        put(shop, bytes(flipped))
        ran = shop.run()
        assert shop.done == [], place
        if ran.code == 1:
            assert ran.failure["error"] == "JOURNAL_DAMAGED" and shop.bytes() == bytes(flipped), place
        else:  # the line end of the last record, or a NUL in it: what a crash leaves too
            assert place >= last and brief(ran) == [(1, "replayed"), (2, "OUTCOME_UNKNOWN")], place


def test_a_journal_with_a_hole_or_a_missing_or_doubled_record_is_refused(tmp_path):
    shop, data, ends = small(tmp_path)
    lines = data.splitlines(True)
    for damaged in (
        [*lines[:2], *lines[3:]], [*lines[:3], lines[2], *lines[3:]], lines[1:], [lines[0], lines[2], lines[1]],
        [*lines[:2], b"\0" * len(lines[2]), *lines[3:]], [*lines, b"\n"], [*lines, b"x\n"], [b"\xef\xbb\xbf", *lines],
    ):
        put(shop, b"".join(damaged))
        ran = shop.run()
        assert ran.failure["error"] == "JOURNAL_DAMAGED" and shop.done == [] and shop.bytes() == b"".join(damaged)
    put(shop, b"")
    assert shop.run().failure["error"] == "JOURNAL_DAMAGED"  # never a silent restart


def test_a_tail_of_nuls_is_cut_off_by_the_first_append(tmp_path):
    shop, data, ends = small(tmp_path)
    put(shop, data[: ends[2]] + b"\0" * 4096)
    assert brief(shop.run()) == [(1, "replayed"), (2, "ok")]
    assert b"\0" not in shop.bytes() and len(shop.records()) == 5


def test_rerun_unknown_covers_the_doubts_of_earlier_runs_alone(shop):
    """Nobody has looked into a doubt that is seconds old."""
    shop.script = {1: lambda: nk.Error("TIMEOUT", "slow")}
    shop.write(call(1), call(1), call(1))
    ran = shop.run("--rerun-unknown")
    assert shop.done == [1] and [answer["exitCode"] for answer in answers(ran)] == [7, 9, 9]
    ran = shop.run("--rerun-unknown")
    assert shop.done == [1] and [answer["exitCode"] for answer in answers(ran)] == [7, 9, 9]
    shop.script = {}
    assert shop.run("--rerun-unknown").code == 0 and shop.done == [1]


@POSIX
def test_lines_that_have_no_lasting_name_need_a_journal(tmp_path, shop):
    with tempfile.TemporaryFile() as file:
        file.write(json.dumps(call(1)).encode())
        file.flush()
        ran = run_app(shop.app, "batch", f"/proc/self/fd/{file.fileno()}", cwd=str(tmp_path))
    if sys.platform == "linux":
        assert ran.code == 64 and "is no regular file, so its lines need the path of a journal" in ran.err
    assert shop.done == []


@pytest.mark.parametrize("hook", ["before_call", "on_error", "after_call"])
def test_whatever_a_hook_raises_ends_no_batch(tmp_path, hook):
    class Odd(BaseException):
        pass

    def fail(*facts):
        raise Odd

    shop = Shop(tmp_path, hooks=nk.Hooks(**{hook: fail}))
    shop.script = {1: lambda: nk.Error("NO", "no")}
    shop.write(call(1), call(2))
    ran = shop.run()
    assert [answer["id"] for answer in answers(ran)] == [1, 2] and "unexpectedly; " not in ran.err
    assert shop.done == ([] if hook == "before_call" else [1, 2])


def test_a_dry_run_of_a_line_given_twice_answers_as_the_run(shop):
    line = call(1, "wipe")
    shop.write(dict(line, confirmed=True), line)
    words = ("--allow-confirmed", "wipe")
    dry, real = shop.run("--dry-run", *words), shop.run(*words)
    assert [answer["would"] for answer in answers(dry)] == ["run", "replay"] and dry.code == real.code == 0


def test_a_dry_run_in_which_a_hook_refuses_the_second_of_two_equal_lines(tmp_path):
    seen = []

    def once(command, args):
        seen.append(command.name)
        if len(seen) == 2:
            raise nk.Error("RATE_LIMITED", "not so fast")

    shop = Shop(tmp_path, hooks=nk.Hooks(before_call=once))
    shop.write(call(1), call(1))
    ran = shop.run("--dry-run")
    assert [(answer["would"], answer["exitCode"]) for answer in answers(ran)] == [("run", 0), ("refuse", 6)]
