"""APP's side of the boundary: plan, check, execute, invoke, ask, and what `python3 knaif.py` makes of them."""
from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from datetime import date
from typing import Literal

import pytest

import knaif as nk
from conftest import run_app

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
Room = Literal["blue", "green", "red"]


def make(**options):
    """An App of rooms, and the list of the calls that reached a function."""
    calls = []
    app = nk.App("rooms", "1.0.0", expose=("cli", "agent"), commands=[nk.ask_command()], **options)

    @app.command(readonly=True, keywords=["free"])
    def find(day: date, seats: int = 1) -> list[Room]:
        """Find the rooms that are free on a day."""
        calls.append("find")
        return ["blue", "green"]

    @app.command(keywords=["reserve"])
    def book(room: Room, day: date, ctx: nk.Ctx) -> dict:
        """Book a room for a day."""
        calls.append("book")
        return {"room": room, "surface": ctx.surface}

    @app.command(destructive=True, keywords=["delete"])
    def cancel(room: Room, day: date) -> str:
        """Cancel a booking."""
        calls.append("cancel")
        return room

    @app.command(expose=("cli",))
    def secret_report() -> str:
        calls.append("report")
        return "x"

    @app.native
    def clean() -> None:
        calls.append("clean")

    return app, calls


def step(tool, output=None, **args):
    return dict({"tool": tool, "args": args}, **({"output": output} if output else {}))


DAY = "2026-05-01"
FIND, BOOK, CANCEL = (step("find", "$free", day=DAY), step("book", room="$free.0", day=DAY),
                      step("cancel", room="red", day=DAY))


def envelope(*steps):
    return {"plan": list(steps)}


def refusal(function, *words, **options):
    with pytest.raises(nk.Error) as caught:
        function(*words, **options)
    return caught.value.code, caught.value.message


def test_check_calls_nothing_and_execute_runs_what_was_checked():
    app, calls = make()
    plan = app.check(json.dumps(envelope(FIND, BOOK)))
    assert calls == [] and len(plan) == 2
    result = app.execute(plan)
    assert (result.ok, result.exit_code, calls) == (True, 0, ["find", "book"])
    assert result.steps[1]["outcome"].data == {"room": "blue", "surface": "agent"}


@pytest.mark.parametrize("tool", ["secret_report", "clean", "ask", "os.system", "Find"])
def test_only_what_is_exposed_to_agents_is_a_tool(tool):
    app, calls = make()
    assert refusal(app.check, envelope(step(tool)))[0] == "NOT_FOUND" and calls == []


def test_a_plan_of_another_application_is_not_run():
    app, calls = make()
    other, _ = make()
    for thing, shown in ((other.check(envelope(CANCEL)), "one of another application"), ("x", '"x"'),
                         (envelope(FIND), "a dict")):
        result = app.execute(thing, True)
        assert (result.ok, result.exit_code, calls) == (False, 1, [])
        assert result.error.message == f"execute runs a plan that check of rooms returned, not {shown}"


def test_approvals_come_from_outside():
    app, calls = make()
    plan = app.check(envelope(CANCEL))
    for confirmed in (False, "true", 1, None, "0" * 64, [], lambda step: 1, lambda step: "yes"):
        assert not app.execute(plan, confirmed).ok and calls == []
    for confirmed in (True, plan.digest, lambda step: step.args["room"] == "red"):
        assert app.execute(plan, confirmed).ok
    assert app.execute(plan, True, dry_run=True).ok and calls == ["cancel"] * 3


def test_application_options_and_profile_hold_for_a_plan():
    @dataclass
    class Options:
        level: int = 1

    app = nk.App("levels", expose=("agent",), global_options=Options)

    @app.command
    def level(ctx: nk.Ctx) -> int:
        return ctx.globals.level

    plans = [app.check(envelope(step("level")), globals=given) for given in (None, {"level": 7})]
    assert [app.execute(plan).steps[0]["outcome"].data for plan in plans] == [1, 7]
    assert plans[0].digest != plans[1].digest
    assert refusal(app.check, envelope(step("level")), globals={"level": "x"}) == (
        "USAGE", '--level: expected a whole number, got the string "x"')


def test_tools_that_only_the_identity_makes_known_stand_in_plans():
    tool = nk.Command(lambda given: given, name="late", input={"type": "object"}, expose=["agent"])
    app = nk.App("late", runtime_tools=lambda who: [tool], auth="ann")
    assert app.execute(app.check(envelope(step("late")))).ok

    def nobody(options):
        raise nk.Error("UNAUTHORIZED", "sign in")

    app = nk.App("late", runtime_tools=lambda who: [tool], resolve_auth=nobody)
    assert refusal(app.check, envelope(step("late"))) == ("UNAUTHORIZED", "sign in")


# Sentences


def test_plan_is_one_inference_and_invoke_runs_it():
    planner = nk.ScriptedPlanner([envelope(FIND, BOOK), envelope(CANCEL)])
    app, calls = make(planner=planner)
    assert [one.tool for one in app.plan("find and book")] == ["find", "book"] and calls == []
    result = app.invoke("cancel red")
    assert (result.ok, result.exit_code, result.error.code, calls) == (False, 8, "CONFIRMATION_REQUIRED", [])
    assert [request.utterance for request in planner.requests] == ["find and book", "cancel red"]
    result = app.invoke("nothing more")
    assert (result.error.code, result.exit_code) == ("NOT_FOUND", 4)
    assert result.error.message == ("no command fits what was asked; the nearest commands are find, book, cancel")


@pytest.mark.parametrize("planner, code, message", [
    ("text", "PLAN_INVALID", None), (None, "UPSTREAM_TOOL_ERROR", "the planner Planner answered with a NoneType, not with text"),
    (KeyError("x"), "UPSTREAM_TOOL_ERROR", "the planner Planner failed"),
    (nk.Error("CONNECTION_TIMEOUT", "slow"), "CONNECTION_TIMEOUT", "slow"),
])
def test_what_a_planner_does_wrong_is_a_result(planner, code, message):
    class Planner:
        def propose(self, request):
            if isinstance(planner, Exception):
                raise planner
            return planner

    app, calls = make(planner=Planner())
    result = app.invoke("x")
    assert (result.error.code, calls) == (code, [])
    assert message is None or result.error.message == message
    assert refusal(app.plan, "x")[0] == code and refusal(app.plan, 5) == (
        "BAD_REQUEST", "a sentence is text, not an int")


def test_without_a_planner_the_lexical_one_understands_plain_sentences():
    app, calls = make()
    result = app.invoke("book the blue room for 2026-05-01")
    assert (result.ok, calls) == (True, ["book"])
    assert app.invoke("do not book the blue room for 2026-05-01").error.code == "NOT_FOUND"
    assert calls == ["book"]


def test_the_planner_of_an_app_has_propose():
    ran = run_app(make(planner=object())[0], "find", DAY)
    assert (ran.code, ran.err) == (70, "App(planner=...) of rooms needs a method propose(request)\n")


# The commands


class Terminal(io.StringIO):
    answers = []

    def readline(self, limit=-1):
        return self.answers.pop(0)

    def close(self):
        pass


def test_ask_shows_the_plan_and_prints_one_document():
    app, calls = make(planner=nk.ScriptedPlanner([envelope(FIND, BOOK)]))
    ran = run_app(app, "ask", "whatever", "--json")
    assert (ran.code, calls) == (0, ["find", "book"])
    assert ran.err == ('1. find day="2026-05-01" seats=1 -> $free\n2. book room="$free.0" day="2026-05-01"\n')
    assert ran.data["steps"][1]["outcome"]["data"]["room"] == "blue"
    assert run_app(make(planner=nk.ScriptedPlanner([envelope(FIND)]))[0], "ask", "x", "--quiet").err == ""


@pytest.mark.parametrize("words, answers, code, called", [
    ([], ["y\n"], 0, ["cancel"]), ([], ["n\n"], 8, []), ([], None, 8, []), (["--yes"], None, 0, ["cancel"]),
    (["--dry-run"], None, 0, []), (["--dry-run", "--yes"], None, 0, []),
])
def test_ask_asks_before_it_destroys(words, answers, code, called):
    app, calls = make(planner=nk.ScriptedPlanner([envelope(CANCEL)]))
    terminal = Terminal()
    terminal.answers = answers
    ran = run_app(app, "ask", "x", "--json", *words, tty=lambda: terminal if answers else None)
    assert (ran.code, calls) == (code, called)
    if answers:
        assert 'cancel is destructive:\n  room: "red"\n  day: "2026-05-01"\nGo on? [y/N]' in terminal.getvalue()
    if code:
        failure = json.loads(ran.err.splitlines()[-1])
        assert failure["error"] == "CONFIRMATION_REQUIRED" and failure["hint"] == "pass --yes to confirm"
        assert failure["details"]["rest"]["plan"] == [CANCEL]


def test_ask_keeps_the_results_of_earlier_steps_in_a_failure():
    app, calls = make(planner=nk.ScriptedPlanner([envelope(FIND, BOOK, step("cancel", room="$free.7", day=DAY))]))
    ran = run_app(app, "ask", "x", "--json", "--quiet", "--yes")
    assert ran.code != 0 and ran.out == "" and calls == ["find", "book"]
    assert [row["tool"] for row in ran.failure["details"]["steps"]][:2] == ["find", "book"]


@pytest.fixture
def program(tmp_path):
    (tmp_path / "rooms.py").write_text("""\
import sys
sys.path.insert(0, %r)
import knaif as nk
app = nk.App("rooms", "1.0.0", expose=("cli", "agent"))

@app.command(readonly=True)
def find(seats: int = 1) -> list:
    "Find free rooms."
    return ["blue"]

@app.command(destructive=True)
def cancel(room: str) -> str:
    "Cancel a booking."
    print("cancelled", room)
    return room

if __name__ == "__main__":
    app.main()
""" % ROOT, encoding="utf-8")

    def run(*words, stdin=b""):
        done = subprocess.run([sys.executable, os.path.join(ROOT, "knaif.py"), *words], cwd=str(tmp_path), input=stdin,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, timeout=60)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    return run


def test_a_plan_is_checked_shown_approved_by_its_digest_and_run(program, tmp_path):
    plan = envelope(step("find", seats="2"), step("cancel", room="blue"))
    (tmp_path / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    code, out, err = program("check", "rooms.py", "plan.json", "--json")
    checked = json.loads(out)
    assert (code, err) == (0, "") and checked["steps"] == [
        {"step": 0, "tool": "find", "args": {"seats": 2}, "destructive": False},
        {"step": 1, "tool": "cancel", "args": {"room": "blue"}, "destructive": True}]
    code, out, err = program("execute", "rooms.py", "plan.json", "--json", "--quiet")
    assert (code, out, json.loads(err)["error"]) == (8, "", "CONFIRMATION_REQUIRED")
    code, out, err = program("execute", "rooms.py", "plan.json", "--approve", "0" * 64, "--json", "--quiet")
    assert (code, json.loads(err)["message"]) == (8, "the approval is for another plan than this one")
    code, out, err = program("execute", "rooms.py", "plan.json", "--approve", checked["digest"], "--json", "--quiet")
    assert (code, err) == (0, "cancelled blue\n")
    assert [row["outcome"]["data"] for row in json.loads(out)["steps"]] == [["blue"], "blue"]
    code, out, err = program("execute", "rooms.py", "--json", "--quiet", "--dry-run", stdin=json.dumps(plan).encode())
    assert code == 0 and [row["would"] for row in json.loads(out)["preview"]["steps"]] == ["run", "ask"]


def test_sentences_to_a_program_that_mounts_nothing(program, tmp_path):
    code, out, err = program("ask", "rooms.py", "find", "free", "rooms", "--json")
    assert code == 0 and json.loads(out)["steps"][0]["outcome"]["data"] == ["blue"]
    rows = [{"utterance": "find free rooms", "plan": [step("find")]}, {"utterance": "sing a song", "refuse": True}]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    code, out, err = program("eval", "rooms.py", "rows.jsonl", "--json")
    assert code == 0 and json.loads(out)["exact"] == 1 and json.loads(out)["refused"] == 1
    assert program("eval", "rooms.py", "rows.jsonl")[1].count("\n") > 3
    (tmp_path / "bad.jsonl").write_text("{", encoding="utf-8")
    assert json.loads(program("eval", "rooms.py", "bad.jsonl", "--json")[2])["message"].startswith(
        'line 1 of "bad.jsonl" is no JSON')


@pytest.mark.parametrize("text", ["", "null", "{", "[1]", "\x00" * 9, '{"plan": 5}', "<think>" * 99, "\ud800"])
def test_no_plan_text_ends_in_a_traceback(program, text):
    code, out, err = program("check", "rooms.py", "--json", stdin=text.encode("utf-8", "surrogatepass"))
    assert (code, out) == (1, "") and json.loads(err)["error"] == "PLAN_INVALID"


# What an attack found


def test_a_dry_run_hands_out_a_copy_of_what_would_run():
    app, ran = nk.App("t", expose=("agent",)), []

    @app.command(destructive=True, previews=True)
    def wipe(user: str, tags: list, ctx: nk.Ctx) -> dict:
        if not ctx.dry_run:
            ran.append((user, tags))
        return {}

    plan = app.check(envelope(step("wipe", user="bob", tags=["a"])))
    digest = plan.digest
    wire = app.execute(plan, dry_run=True).to_wire()
    shown = wire["steps"][0]["outcome"]["data"]["args"]
    shown["user"] = 42
    shown["tags"].append("b")
    assert app.execute(plan, digest).ok and ran == [("bob", ["a"])]


def test_a_planner_cannot_change_what_is_checked():
    class Planner:
        def propose(self, request):
            for tool in request.tools:
                tool["input"]["properties"].get("room", {}).pop("enum", None)
            for hint in request.hints.values():
                (hint["output"] or {}).clear()
            return json.dumps(envelope(step("book", room="cellar", day=DAY)))

    app, calls = make(planner=Planner())
    for _ in range(2):
        assert app.invoke("x").error.code == "VALIDATION_ERROR" and calls == []


def test_a_question_shows_the_whole_of_what_is_approved():
    path = "d" * 90 + "/precious.db"
    app = nk.App("t", expose=("cli", "agent"), commands=[nk.ask_command()],
                 planner=nk.ScriptedPlanner([envelope(step("wipe", path=path)), envelope(step("wipe", path="x" * 9000))]))

    @app.command(destructive=True)
    def wipe(path: str) -> None:
        """Wipe."""

    terminal = Terminal()
    terminal.answers = ["n\n", "n\n"]
    assert run_app(app, "ask", "x", tty=lambda: terminal).code == 8 and path in terminal.getvalue()
    assert run_app(app, "ask", "x", tty=lambda: terminal).code == 8
    assert "(9,002 characters, 7,002 not shown)" in terminal.getvalue()


class Lying(str):
    def __eq__(self, other):
        return True

    def __ne__(self, other):
        return False

    __hash__ = str.__hash__


def test_odd_objects_are_refused():
    app, calls = make()
    plan = app.check(envelope(CANCEL))
    assert app.execute(plan, Lying("0" * 64)).error.code == "BAD_REQUEST" and calls == []

    class Evil(dict):
        def keys(self):
            raise OSError

        items = __iter__ = __len__ = keys

    assert refusal(app.check, Evil(plan=[]))[0] == "PLAN_INVALID"
    for fault in (SystemExit(3), GeneratorExit()):
        class Planner:
            def propose(self, request):
                raise fault

        assert make(planner=Planner())[0].invoke("x").error.code == "UPSTREAM_TOOL_ERROR"

    class Vain:
        propose = staticmethod(lambda request: '{"plan": []}')

        @property
        def thinking(self):
            raise ZeroDivisionError

    assert make(planner=Vain())[0].invoke("x").error.code == "UPSTREAM_TOOL_ERROR"


def wiper():
    app = nk.App("t", expose=("agent",))

    @app.command(destructive=True)
    def wipe(target: Literal["cache", "home", "all"] = "all", force: bool = False) -> None:
        """Wipe a target."""

    @app.command(destructive=True)
    def drop_list(name: str) -> None:
        """Remove a whole list by name."""

    @app.command(destructive=True)
    def delete_task(id: int) -> None:
        """Delete a task."""

    return app


@pytest.mark.parametrize("sentence", [
    "wipe cache", "wipe home", "wipe the cache of home", "wipe cache without force", "wipe cache and home",
    "wipe home cache", "remove list groceries only if it is empty", "remove list groceries when bob agrees",
    "drop list foo, on second thought leave it", "remove list groceries and work", "drop list groceries lol jk",
    "!delete task 3", "need i delete task 3", "had we delete task 3", "already delete task 3", "thanks for delete task 3",
    "it was delete task 3", "we did wipe cache already",
])
def test_no_sentence_destroys_more_or_other_than_it_says(sentence):
    for one in wiper().plan(sentence):
        assert one.args in ({"target": "cache", "force": False}, {"target": "home", "force": False})
        assert sentence.split()[1:] == [one.args["target"]]


@pytest.mark.parametrize("sentence, args", [
    ("remove list groceries", {"name": "groceries"}), ('remove list "my list"', {"name": "my list"}),
    ("delete task 3", {"id": 3}), ("could you delete task 3", {"id": 3}), ("i want to delete task 3", {"id": 3}),
])
def test_plain_orders_are_still_understood(sentence, args):
    assert [one.args for one in wiper().plan(sentence)] == [args]
