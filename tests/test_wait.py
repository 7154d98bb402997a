"""WAIT: jobs that finish, fail, hang, are given up or interrupted; a played clock, and one real job on loopback."""
from __future__ import annotations

import asyncio
import http.server
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

import knaif as nk
from conftest import Ran

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUSY = {"id": 7, "state": "busy"}
DONE = {"id": 7, "state": "done", "files": 2}
FAILED = {"id": 7, "state": "failed", "why": "no paint"}
EVEN = b"\x80"  # the random byte that changes a pause least
GOES_ON = "the job goes on: ask status later, or wait longer with --wait-timeout"


class Screen(io.BytesIO):
    """Standard error that may be a terminal."""

    terminal = False

    def isatty(self):
        return self.terminal


class Played:
    """A world whose clock moves by sleeping alone, and an application whose job answers from a list."""

    def __init__(self, first, *answers, chance=EVEN, **wait):
        self.answers, self.now, self.pauses, self.polls, self.pause = list(answers), 1000.0, [], [], 0.0
        self.out, self.err, self.cancel = io.BytesIO(), Screen(), nk.Cancel()
        self.env = nk.Env(argv=["jobs"], stdin=None, stdout=self.out, stderr=self.err, environ={}, cwd=os.getcwd(),
                          clock=lambda: self.now, sleep=self.sleep, random=lambda count: chance * count, tty=lambda: None)
        given = dict(poll=lambda result: {"id": result["id"]}, done=lambda result: result["state"] == "done",
                     failed=lambda result: result["state"] == "failed")
        self.wait = nk.Wait("status", **{**given, **wait})
        self.app = nk.App("jobs", expose=("cli",), wait={"start": self.wait})

        @self.app.command
        def start(ctx: nk.Ctx) -> dict:
            return self.answer(first, ctx)

        @self.app.command(readonly=True)
        def status(id: int, ctx: nk.Ctx) -> dict:
            self.polls.append((id, self.now))
            if self.pause:
                self.pauses.append(round(self.pause, 3))
            self.pause = 0.0
            return self.answer(self.answers.pop(0) if len(self.answers) > 1 else self.answers[0], ctx)

    def answer(self, answer, ctx):
        if isinstance(answer, BaseException):
            raise answer
        return answer(ctx) if callable(answer) else answer

    def sleep(self, seconds):
        assert 0 < seconds <= 0.25
        self.now += seconds
        self.pause += seconds

    def run(self, *tokens):
        return self.ran(self.app.run(["start", "--json", "--wait", *tokens], env=self.env, cancel=self.cancel))

    def arun(self, *tokens):
        line = self.app.arun(["start", "--json", "--wait", *tokens], env=self.env, cancel=self.cancel)
        return self.ran(asyncio.run(line))

    def ran(self, code):
        return Ran(code, self.out.getvalue().decode(), self.err.getvalue().decode())


def failure(ran, code):
    assert ran.code == code, ran
    return ran.failure


# The end of a job


def test_a_first_answer_that_is_final_is_the_result():
    played = Played(DONE, BUSY)
    ran = played.run()
    assert (ran.code, ran.data, ran.err, played.polls) == (0, DONE, "", [])


def test_a_job_that_finishes():
    played = Played(BUSY, BUSY, BUSY, DONE)
    ran = played.run()
    assert (ran.code, ran.data, ran.err) == (0, DONE, "")
    assert [id for id, _ in played.polls] == [7, 7, 7]
    assert played.polls[0][1] == 1000  # at once


def test_without_the_option_nothing_is_polled():
    played = Played(BUSY, DONE)
    assert played.app.run(["start"], env=played.env) == 0
    assert json.loads(played.out.getvalue()) == BUSY and played.polls == []


@pytest.mark.parametrize("first, polls", [(FAILED, 0), (BUSY, 1)])
def test_a_job_that_fails(first, polls):
    played = Played(first, FAILED)
    message = "the job of start failed; details.result is its last answer"
    assert failure(played.run(), 1) == {
        "error": "WAIT_FAILED", "message": message, "retryable": False, "details": {"message": message, "result": FAILED}}
    assert len(played.polls) == polls


def test_failed_is_asked_before_done_and_each_once_per_answer():
    asked = []

    def ask(word, value):
        return lambda result: asked.append((word, result["state"])) or (value and result["state"] == "done")

    played = Played(BUSY, BUSY, DONE, done=ask("done", True), failed=ask("failed", False))
    assert played.run().data == DONE
    assert asked == [("failed", "busy"), ("done", "busy")] * 2 + [("failed", "done"), ("done", "done")]
    overlapping = Played(BUSY, DONE, failed=lambda result: result["state"] == "done")
    assert failure(overlapping.run(), 1)["error"] == "WAIT_FAILED"


def test_without_failed_a_failure_is_what_done_says():
    assert Played(BUSY, FAILED, failed=None, done=lambda result: result["state"] != "busy").run().data == FAILED


def test_nothing_to_poll_is_the_first_answer():
    played = Played(BUSY, DONE, poll=lambda result: None)
    assert (played.run().data, played.polls) == (BUSY, [])


def test_a_call_that_is_refused_is_not_waited_for():
    played = Played(nk.Error("CONFLICT", "busy already"), DONE)
    assert failure(played.run(), 5) == {"error": "CONFLICT", "message": "busy already", "retryable": False}
    assert played.polls == []


def test_a_dry_run_is_not_waited_for():
    played = Played(BUSY, DONE)
    assert (played.run("--dry-run").data, played.polls) == ({"command": "start", "args": {}}, [])


def test_a_poll_that_is_refused_keeps_its_own_code_and_the_job_is_named():
    played = Played(BUSY, dict(BUSY, part=1), nk.Error("RATE_LIMITED", "slowly", hint="wait a minute"))
    assert failure(played.run(), 6) == {"error": "RATE_LIMITED", "message": "slowly", "retryable": True,
                                        "details": {"result": dict(BUSY, part=1)}, "hint": "wait a minute"}
    own = nk.Error("NOT_FOUND", "gone", details={"id": 7})
    assert failure(Played(BUSY, own).run(), 4)["details"] == {"id": 7, "result": BUSY}


def test_a_poll_that_breaks_or_is_called_wrongly_is_no_traceback():
    broken = failure(Played(BUSY, ZeroDivisionError()).run(), 1)
    assert (broken["error"], broken["message"]) == ("INTERNAL_SERVER_ERROR", "status failed unexpectedly")
    assert failure(Played(BUSY, SystemExit(3)).run(), 1)["error"] == "INTERNAL_SERVER_ERROR"
    wrong = failure(Played(BUSY, DONE, poll=lambda result: {"id": "seven"}).run(), 1)
    assert wrong["error"] == "VALIDATION_ERROR"
    assert failure(Played(BUSY, DONE, poll=lambda result: {1: 2}).run(), 1)["error"] == "VALIDATION_ERROR"


def test_the_view_is_of_the_last_answer():
    ran = Played(BUSY, {"id": 7, "state": "done", "files": [{"kind": "png"}, {"kind": "png"}]}).run("--count-by", "kind")
    assert ran.data == {"png": 2}


def test_fields_are_checked_before_the_call_where_neither_answer_can_have_them():
    closed = {"type": "array", "items": {"type": "object", "properties": {"kind": {}}, "additionalProperties": False}}
    for own, polled, code in ((closed, True, 0), (True, closed, 0), (closed, closed, 64)):
        played = Played(BUSY, BUSY, done=lambda result: isinstance(result, list), failed=None)
        played.app = nk.App("jobs", expose=("cli",), wait={"start": played.wait})
        played.app.command(name="start", returns=own)(lambda: [])
        played.app.command(name="status", returns=polled)(lambda: [])
        ran = played.run("--count-by", "size")
        assert ran.code == code, ran
        assert code == 0 or ran.err.startswith("no record has the field size; there are: kind")


def test_what_the_caller_set_in_its_context_is_there_in_a_poll():
    from contextvars import ContextVar

    request = ContextVar("request")
    request.set("r1")
    assert Played(BUSY, lambda ctx: dict(DONE, request=request.get())).run().data == dict(DONE, request="r1")


# Time


def test_pauses_follow_the_list_and_the_last_repeats():
    played = Played(BUSY, *[BUSY] * 8, DONE)
    played.run()
    assert [round(pause, 1) for pause in played.pauses] == [2.0, 3.0, 5.0, 5.0, 8.0, 10.0, 10.0, 10.0]


@pytest.mark.parametrize("chance, pauses", [(b"\x00", [1.8, 2.7]), (b"\xff", [2.2, 3.3])])
def test_a_pause_varies_by_a_tenth(chance, pauses):
    played = Played(BUSY, BUSY, BUSY, DONE, chance=chance)
    played.run()
    assert played.pauses == pauses


def test_the_deadline_clips_the_last_pause():
    played = Played(BUSY, BUSY, timeout=6)
    assert failure(played.run(), 7) == {
        "error": "TIMEOUT", "message": "the job of start was not done after 6 seconds of asking status",
        "retryable": False, "details": {"result": BUSY}, "hint": GOES_ON}
    assert played.now == pytest.approx(1006) and len(played.polls) == 3


def test_wait_timeout_takes_the_place_of_the_waits_own():
    played = Played(BUSY, BUSY)
    assert failure(played.run("--wait-timeout", "0.5"), 7)["message"] == (
        "the job of start was not done after 0.5 seconds of asking status")
    assert (played.now, len(played.polls)) == (1000.5, 1)
    assert Played(BUSY, BUSY, DONE).run("--wait-timeout", "9" * 400).data == DONE


def test_a_poll_that_hangs_is_left_behind_at_the_deadline():
    release, told = threading.Event(), []

    def hang(ctx):
        played.now += 700
        while not ctx.cancel.cancelled and not release.wait(0.01):
            pass
        told.append(ctx.cancel.cancelled)
        return DONE

    played = Played(BUSY, hang)
    started = time.monotonic()
    assert failure(played.run(), 7)["error"] == "TIMEOUT"
    assert time.monotonic() - started < 5
    ends = time.monotonic() + 5
    while not told and time.monotonic() < ends:
        time.sleep(0.001)
    release.set()
    assert told == [True]


def test_an_answer_that_is_there_beats_the_clock():
    def late(ctx):
        played.now += 599.9
        return DONE

    played = Played(BUSY, late)
    assert played.run().data == DONE


# Interruption


def test_the_caller_cancels_between_polls():
    played = Played(BUSY, BUSY)
    sleep = played.env.sleep

    def cancel_later(seconds):
        sleep(seconds)
        if played.now > 1001:
            played.cancel.cancel("enough")

    played.env.sleep = cancel_later
    assert failure(played.run(), 130) == {
        "error": "REQUEST_ABORTED", "message": "the wait for start was cancelled by its caller; its job goes on",
        "retryable": False, "details": {"result": BUSY}}
    assert played.now <= 1001.25


def test_the_caller_cancels_a_poll_that_hangs():
    release = threading.Event()

    def hang(ctx):
        played.cancel.cancel()
        release.wait(10)
        return DONE

    played = Played(BUSY, hang)
    started = time.monotonic()
    assert failure(played.run(), 130)["error"] == "REQUEST_ABORTED"
    assert time.monotonic() - started < 5
    release.set()


def test_ctrl_c_is_an_envelope():
    played = Played(BUSY, BUSY)

    def interrupted(seconds):
        raise KeyboardInterrupt

    played.env.sleep = interrupted
    assert failure(played.run(), 130) == {
        "error": "REQUEST_ABORTED", "message": "the wait for start was interrupted; its job goes on",
        "retryable": False, "details": {"result": BUSY}}
    assert failure(Played(BUSY, KeyboardInterrupt()).run(), 130)["error"] == "REQUEST_ABORTED"


# What is said meanwhile


def test_a_terminal_sees_a_line_for_each_poll_that_is_not_final():
    played = Played(BUSY, BUSY, BUSY, DONE)
    played.err.terminal = True
    assert played.run().err == ("status: not done at poll 1, after 0 s\n"
                                "status: not done at poll 2, after 2 s\n")
    played = Played(BUSY, BUSY, DONE)
    played.err.terminal = True
    assert played.run("--quiet").err == ""


# Functions of the program


@pytest.mark.parametrize("word", ["poll", "done", "failed"])
@pytest.mark.parametrize("fault", [ZeroDivisionError(), nk.Error("NOT_FOUND", "x"), SystemExit(3)])
def test_a_function_that_raises_is_named(word, fault):
    def broken(result):
        raise fault

    assert failure(Played(BUSY, DONE, **{word: broken}).run(), 1) == {
        "error": "INTERNAL_SERVER_ERROR", "message": f"{word} of the wait for start failed unexpectedly",
        "retryable": False, "details": {"result": BUSY}, "hint": "set KNAIF_TRACE=1 to see the traceback"}


def test_the_traceback_is_shown_where_it_is_asked_for():
    played = Played(BUSY, DONE, done=lambda result: 1 / 0)
    played.env.environ = {"KNAIF_TRACE": "1"}
    assert "ZeroDivisionError" in played.run().err


@pytest.mark.parametrize("word, answer, said", [
    ("done", 1, "an int, not True or False"),
    ("done", None, "a NoneType, not True or False"),
    ("failed", "no", '"no", not True or False'),
    ("poll", [7], "a list, not the arguments of status as a dict, or None"),
    ("poll", True, "a bool, not the arguments of status as a dict, or None"),
])
def test_a_function_that_answers_something_else_is_named(word, answer, said):
    assert failure(Played(BUSY, DONE, **{word: lambda result: answer}).run(), 1)["message"] == (
        f"{word} of the wait for start returned {said}")


def test_a_coroutine_for_an_answer_is_closed():
    async def later():
        return True

    made = []
    failure(Played(BUSY, DONE, done=lambda result: made.append(later()) or made[-1]).run(), 1)
    assert made[0].cr_frame is None


# Registration


@pytest.mark.parametrize("wait, said", [
    (5, "the wait of start is an int; make it a Wait"),
    (nk.Wait, "the wait of start is a class; make it a Wait"),
    (dict(tool="statsu"), 'the wait of start: tool is "statsu", which is no command; did you mean status or start?'),
    (dict(tool="zzz"), 'the wait of start: tool is "zzz", which is no command; name the command that asks for the job'),
    (dict(tool=None), "the wait of start: tool is a NoneType, which is no command; name the command that asks for the job"),
    (dict(tool="doctor"), "the wait of start: doctor is native; name a managed command that only looks"),
    (dict(tool="drop"), "the wait of start: drop is destructive; name a managed command that only looks"),
    (dict(poll=None), "the wait of start: poll must be a plain function of the result, not a NoneType"),
    (dict(done="state"), 'the wait of start: done must be a plain function of the result, not "state"'),
    (dict(failed=7), "the wait of start: failed must be a plain function of the result, not an int"),
    (dict(backoff=()), "the wait of start: backoff must be a list of positive numbers of seconds, not ()"),
    (dict(backoff=5), "the wait of start: backoff must be a list of positive numbers of seconds, not 5"),
    (dict(backoff=(1, 0)), "the wait of start: backoff must be a list of positive numbers of seconds, not (1, 0)"),
    (dict(backoff=[True]), "the wait of start: backoff must be a list of positive numbers of seconds, not [True]"),
    (dict(timeout=0), "the wait of start: timeout must be a positive number of seconds, not 0"),
    (dict(timeout=float("nan")), "the wait of start: timeout must be a positive number of seconds, not nan"),
    (dict(timeout=float("inf")), "the wait of start: timeout must be a positive number of seconds, not inf"),
    (dict(timeout="600"), "the wait of start: timeout must be a positive number of seconds, not '600'"),
])
def test_a_faulty_wait_is_refused_at_every_start(wait, said):
    played = Played(BUSY, DONE)
    if isinstance(wait, dict):
        good = dict(tool="status", poll=lambda result: None, done=lambda result: True)
        wait = nk.Wait(**{**good, **wait})
    played.app.native(name="doctor")(lambda: None)
    played.app.command(name="drop", destructive=True)(lambda: None)
    played.app.wait["start"] = wait
    ran = played.ran(played.app.run(["--help"], env=played.env))
    assert (ran.code, ran.out, ran.err) == (70, "", said + "\n")


def test_a_wait_of_another_copy_of_the_module_is_as_good():
    class Wait:
        def __init__(self, wait):
            self.__dict__.update(wait.__dict__)

    played = Played(BUSY, DONE)
    played.app.wait["start"] = Wait(played.wait)
    assert played.run().data == DONE


def test_coroutines_and_generators_are_refused_at_every_start():
    async def later(result):
        return True

    def many(result):
        yield True

    for function in (later, many):
        played = Played(BUSY, DONE, done=function)
        assert played.app.selftest() == ["the wait of start: done must be a plain function of the result, not a "
                                         "coroutine or generator function"]


def test_a_wait_for_a_native_or_an_unknown_command_is_refused():
    played = Played(BUSY, DONE)
    played.app.native(name="doctor")(lambda: None)
    played.app.wait["doctor"] = played.wait
    assert played.app.selftest() == ["the wait of doctor: a native command's answer is final; leave the wait out"]
    played = Played(BUSY, DONE)
    played.app.wait["strat"] = played.wait
    assert played.app.selftest() == ['App(wait=...) names "strat", which is no shell command; did you mean start or '
                                     "status?"]


def test_a_tool_that_only_a_factory_makes():
    def status(id: int) -> dict:
        return DONE

    def make(runtime_tools):
        played = Played(BUSY, DONE)
        wait = nk.Wait("ask", poll=played.wait.poll, done=played.wait.done)
        app = played.app = nk.App("jobs", expose=("cli",), wait={"start": wait}, runtime_tools=runtime_tools)
        app.command(name="start")(lambda: started.append(1) or BUSY)
        return played

    started = []
    assert make(lambda who: [nk.Command(status, name="ask")]).run().data == DONE and started == [1]
    ran = make(lambda who: []).run()
    assert (ran.code, ran.err) == (
        70, 'the wait of start: tool is "ask", which is no command; name the command that asks for the job\n')

    def unreachable(who):
        raise nk.Error("CONNECTION_TIMEOUT", "no answer")

    assert failure(make(unreachable).run(), 7)["message"] == "no answer"
    assert started == [1]  # no job is begun that nobody can ask for


# The line


@pytest.mark.parametrize("line, faults", [
    ("status 7 --wait", ["--wait: status has no wait configured, so its first answer is final"]),
    ("status 7 --wait-timeout 5",
     ["--wait-timeout: status has no wait configured, so its first answer is final"]),
    ("start --wait-timeout 5", ["--wait-timeout: nothing is waited for without --wait; add it"]),
    ("start --wait --output-dir x", ["--output-dir: this program declares no download"]),
])
def test_options_that_nothing_answers_to_are_refused_before_the_call(line, faults):
    played = Played(BUSY, DONE)
    ran = played.ran(played.app.run(line.split(), env=played.env))
    assert (ran.code, ran.err.splitlines()[:-1]) == (64, faults)
    assert played.polls == []


# Inside a running loop


def aplayed(*answers, **wait):
    """Return an application whose poll is a coroutine function; its clock is the real one."""
    played = Played(BUSY, DONE, backoff=(0.001,), **wait)
    played.env.clock = time.monotonic
    left = list(answers)

    async def status(id: int, ctx: nk.Ctx) -> dict:
        await asyncio.sleep(0)
        played.polls.append(id)
        answer = left.pop(0)
        return await answer(ctx) if callable(answer) else played.answer(answer, ctx)

    played.app._recorded.pop()
    played.app.command(status)
    return played


def test_coroutines_are_awaited_in_the_running_loop():
    played = aplayed(BUSY, BUSY, DONE)
    assert played.arun().data == DONE and played.polls == [7, 7, 7]
    assert aplayed(BUSY, DONE).run().data == DONE  # and in a loop of their own
    assert failure(aplayed(BUSY, nk.Error("CONFLICT", "x")).arun(), 5)["error"] == "CONFLICT"
    played = Played(BUSY, BUSY, DONE, backoff=(0.001,))
    played.env.clock = time.monotonic
    assert played.arun().data == DONE  # a synchronous handler


@pytest.mark.parametrize("run", ["run", "arun"])
def test_a_coroutine_that_hangs_is_cancelled_at_the_deadline(run):
    ended = []

    async def hang(ctx):
        try:
            await asyncio.sleep(5)
        finally:
            ended.append(ctx.cancel.cancelled)

    played = aplayed(hang, timeout=0.3)
    started = time.monotonic()
    assert failure(getattr(played, run)(), 7)["error"] == "TIMEOUT"
    assert time.monotonic() - started < 3
    assert len(ended) == (run == "arun")


def test_arun_is_cancelled_like_any_coroutine():
    ended = []

    async def hang(ctx):
        try:
            await asyncio.sleep(10)
        finally:
            ended.append(ctx.cancel.cancelled)

    async def scene():
        task = asyncio.ensure_future(played.app.arun(["start", "--wait"], env=played.env))
        while not played.polls:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0)
        assert ended == [True]

    played = aplayed(hang)
    asyncio.run(asyncio.wait_for(scene(), 5))


# A real job


PROGRAM = """
import signal, sys
sys.path.insert(0, %r)
import knaif as nk

signal.signal(signal.SIGINT, signal.default_int_handler)  # a test run in the background hands it down ignored

app = nk.App("jobs", expose=("cli",), wait={"start": nk.Wait(
    "status", poll=lambda job: {"id": job["id"]}, done=lambda job: job["state"] == "done",
    failed=lambda job: job["state"] == "failed", backoff=(0.02, 0.05), timeout=20)})

base = sys.argv.pop()

@app.command
def start(kind: str) -> dict:
    return nk._json_loads(nk.fetch(base + "/start/" + kind, allow_private_hosts=True).body)

@app.command
def status(id: str) -> dict:
    return nk._json_loads(nk.fetch(base + "/status/" + id, allow_private_hosts=True).body)

app.main()
"""


class Jobs(http.server.BaseHTTPRequestHandler):
    """A service whose jobs end at the third question, or never answer."""

    asked: dict = {}
    hung = threading.Event()

    def do_GET(self):
        verb, kind = self.path.split("/")[1:]
        number = self.asked[kind] = 0 if verb == "start" else self.asked[kind] + 1
        if kind == "hung" and number:
            self.hung.wait(10)
        state = "busy" if number < 3 else "failed" if kind == "bad" else "done"
        body = json.dumps({"id": kind, "state": state, "polls": number}).encode()
        try:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except OSError:
            pass  # whoever asked has given up by now

    def log_message(self, *words):
        pass


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    """Start a line of a program whose jobs run in a service on loopback."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Jobs)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    program = tmp_path_factory.mktemp("wait") / "jobs.py"
    program.write_text(PROGRAM % ROOT)

    def start(*words):
        return subprocess.Popen([sys.executable, str(program), *words, "http://127.0.0.1:%d" % server.server_port],
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    yield start
    Jobs.hung.set()
    server.shutdown()
    server.server_close()


def ended(process):
    out, err = process.communicate(timeout=60)
    return Ran(process.returncode, out.decode(), err.decode())


def test_a_real_job(jobs):
    good, bad, hung = jobs("start", "good", "--wait"), jobs("start", "bad", "--wait"), jobs(
        "start", "hung", "--wait", "--wait-timeout", "0.7")
    ran = ended(good)
    assert (ran.code, ran.data, ran.err) == (0, {"id": "good", "state": "done", "polls": 3}, "")
    assert failure(ended(bad), 1)["details"]["result"] == {"id": "bad", "state": "failed", "polls": 3}
    assert failure(ended(hung), 7)["details"] == {"result": {"id": "hung", "state": "busy", "polls": 0}}


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_ctrl_c_ends_a_real_wait(jobs):
    Jobs.asked.pop("hung", None)
    process = jobs("start", "hung", "--wait")
    ends = time.monotonic() + 20
    while Jobs.asked.get("hung") != 1 and time.monotonic() < ends:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    told = failure(ended(process), 130)
    assert (told["error"], told["details"]["result"]["id"]) == ("REQUEST_ABORTED", "hung")


def test_the_last_answer_stands_beside_details_that_a_poll_has_of_its_own():
    from conftest import run_app

    app = nk.App("t", expose=("cli",), wait={"go": nk.Wait("st", lambda result: {"id": "x"}, lambda result: False)})
    app.command(name="go")(lambda: {"id": 1})

    @app.command
    def st(id: int) -> dict:
        return {}

    ran = run_app(app, "go", "--wait")
    assert ran.code == 1 and ran.failure["error"] == "VALIDATION_ERROR"
    assert ran.failure["details"]["result"] == {"id": 1} and ran.failure["details"]["issues"]
