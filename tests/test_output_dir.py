"""--output-dir: the files of a result are saved after the call and the wait, and before anything is printed."""
from __future__ import annotations

import asyncio
import http.server
import io
import json
import os
import sys
import threading

import pytest

import knaif as nk
from conftest import Ran

BUSY, DONE = {"state": "busy"}, {"state": "done", "files": ["a.txt", "b.txt"]}


class Files(http.server.BaseHTTPRequestHandler):
    """Answers every path but /gone with its own name."""

    def do_GET(self):
        self.send_response(404 if "gone" in self.path else 200)
        self.send_header("Content-Length", str(len(self.path)))
        self.end_headers()
        self.wfile.write(self.path.encode())

    def log_message(self, *words):
        pass


@pytest.fixture(scope="module")
def base():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Files)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield "http://127.0.0.1:%d/" % server.server_port
    server.shutdown()
    server.server_close()


class Program:
    """An application whose result names files on a server; hook: in place of its download function."""

    def __init__(self, base, folder, hook=None, private=True, cancel=None):
        self.folder, self.cancel = folder, cancel
        self.out, self.err = io.BytesIO(), io.BytesIO()
        named = lambda result: [{"url": base + name + "?key=1", "name": name} for name in result["files"]]  # noqa: E731
        wait = nk.Wait("look", poll=lambda result: {}, done=lambda result: result["state"] == "done")
        self.app = nk.App("files", expose=("cli",), wait={"make": wait}, download=hook or named,
                          download_private_hosts=private)
        self.app.command(name="make")(lambda: BUSY)
        self.app.command(name="look")(lambda: DONE)
        self.app.command(name="partly")(lambda: {"files": ["a.txt", "gone.txt", "b.txt"]})
        self.app.native(name="doctor")(doctor)

    def env(self):
        return nk.Env(argv=["files"], stdin=None, stdout=self.out, stderr=self.err, environ={}, cwd=str(self.folder),
                      tty=lambda: None)

    def run(self, *tokens):
        code = self.app.run([*tokens, "--output-dir", "out"], env=self.env(), cancel=self.cancel)
        return Ran(code, self.out.getvalue().decode(), self.err.getvalue().decode())

    def saved(self):
        return sorted(os.listdir(self.folder / "out")) if (self.folder / "out").exists() else None


def doctor() -> int:
    return 1


def test_files_are_saved_after_the_wait_and_before_the_view(base, tmp_path):
    program = Program(base, tmp_path)
    ran = program.run("make", "--wait", "--json")
    assert (ran.code, ran.data, program.saved()) == (0, DONE, ["a.txt", "b.txt"])
    assert ran.err == f"saved {os.path.join('out', 'a.txt')} (12 bytes)\nsaved {os.path.join('out', 'b.txt')} (12 bytes)\n"
    assert (tmp_path / "out" / "a.txt").read_text() == "/a.txt?key=1"
    program = Program(base, tmp_path)
    ran = program.run("look", "--count-by", "nothing", "--quiet")  # a view that fails comes too late to lose the files
    assert ran.code == 64 and "the call itself succeeded" in ran.err and len(program.saved()) == 4


def test_a_file_that_fails_leaves_the_others_and_the_result(base, tmp_path):
    program = Program(base, tmp_path)
    ran = program.run("partly", "--quiet")
    assert (ran.code, ran.data, program.saved()) == (1, {"files": ["a.txt", "gone.txt", "b.txt"]}, ["a.txt", "b.txt"])
    assert ran.err.startswith("not saved: ") and "404" in ran.err and "key=1" not in ran.err


def test_addresses_of_ones_own_network_are_refused_unless_the_program_says_otherwise(base, tmp_path):
    program = Program(base, tmp_path, private=False)
    ran = program.run("look")
    assert (ran.code, ran.data, program.saved()) == (1, DONE, [])
    assert ran.err.count("not saved: ") == 2 and "download_private_hosts=True" in ran.err


def raising(result):
    raise ZeroDivisionError


def refusing(result):
    raise nk.Error("NOT_FOUND", "no files yet")


def partly(result):
    raise nk.Error("NOT_FOUND", "no files\x1b[31m")
    yield


@pytest.mark.parametrize("hook, said", [
    (raising, "the download function failed unexpectedly"),
    (lambda result: None, "the download function failed unexpectedly"),
    (lambda result: sys.exit(0), "the download function failed unexpectedly"), (lambda result: 7, "the download function failed unexpectedly"),
    (refusing, "no files yet"), (partly, "no files\\x1b[31m"),
    (lambda result: ["x"], 'a download must be {"url": text, "name": text}; mend the download function'),
])
def test_a_download_function_that_breaks_leaves_the_result(base, tmp_path, hook, said):
    ran = Program(base, tmp_path, hook).run("look")
    assert (ran.code, ran.data, ran.err) == (1, DONE, f"not saved: {said}\n")


def test_what_is_interrupted_names_the_result(base, tmp_path):
    def interrupted(result):
        raise KeyboardInterrupt

    def cancelled(result):
        cancel.cancel()
        return [{"url": base + "a.txt", "name": "a.txt"}]

    cancel = nk.Cancel()
    for program in (Program(base, tmp_path, interrupted), Program(base, tmp_path, cancelled, cancel=cancel)):
        ran = program.run("look")
        assert (ran.code, ran.failure) == (130, {
            "error": "REQUEST_ABORTED", "message": "saving files was interrupted; the call itself succeeded",
            "retryable": False, "details": {"result": DONE}})
        assert program.saved() in (None, [])


def test_a_coroutine_may_name_the_files_and_the_running_loop_goes_on(base, tmp_path):
    async def hook(result):
        await asyncio.sleep(0)
        return [{"url": base + "a.txt", "name": "a.txt"}]

    def patient(result):
        assert went_on.wait(5)
        yield {"url": base + "b.txt", "name": "b.txt"}

    async def scene():
        asyncio.get_running_loop().call_later(0.05, went_on.set)
        return await program.app.arun(["look", "--output-dir", "out"], env=program.env())

    went_on = threading.Event()
    program = Program(base, tmp_path, hook)
    assert asyncio.run(scene()) == 0 and program.saved() == ["a.txt"]
    assert Program(base, tmp_path, hook).run("look").code == 0
    went_on = threading.Event()
    program = Program(base, tmp_path, patient)
    assert asyncio.run(scene()) == 0 and "b.txt" in program.saved()


def test_nothing_is_saved_without_a_result_or_by_a_dry_run(base, tmp_path):
    program = Program(base, tmp_path)
    ran = program.run("look", "--dry-run")
    assert (ran.code, program.saved()) == (0, None)
    ran = Program(base, tmp_path).run("doctor")
    assert (ran.code, ran.err.splitlines()[0]) == (
        64, "--output-dir: doctor is a native command, whose result names no files")
    failing = Program(base, tmp_path)
    failing.app.command(name="fail")(lambda: refusing(None))
    ran = failing.run("fail")
    assert (ran.code, ran.failure["message"], failing.saved()) == (4, "no files yet", None)


def test_a_download_that_is_no_function_is_refused_at_every_start():
    app = nk.App("files", download="files")
    assert app.selftest() == ["App(download=...) of files must be a function"]
    assert json.loads(json.dumps(app.describe()))["problems"] == app.selftest()
