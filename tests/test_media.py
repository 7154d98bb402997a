"""The media example: a job that is waited for, files that are saved, a folder that is not left; all on loopback."""
from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MEDIA = os.path.join(ROOT, "examples", "media.py")


def start(words, folder, **environ):
    """Run a Python process without a terminal; return exit code, stdout and stderr."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "KNAIF", "MEDIA"))}
    process = subprocess.run([sys.executable] + words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, cwd=str(folder), env=dict(kept, **environ), timeout=120,
                             start_new_session=True)
    return process.returncode, process.stdout.decode("utf-8"), process.stderr.decode("utf-8")


@pytest.fixture(scope="module")
def service():
    """The address of the example's own service."""
    words = [sys.executable, MEDIA, "serve", "0"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)
    yield re.fullmatch(r"MEDIA_SERVER=(http://127\.0\.0\.1:\d+)\n", process.stdout.readline().decode())[1]
    process.terminate()
    process.communicate(timeout=20)


@pytest.fixture
def media(service, tmp_path):
    """Run a line below an empty folder; return its result, or its failure with exit code, and what was remarked."""

    def run(*words):
        code, out, err = start([MEDIA, "--server", service, *words, "--json"], tmp_path)
        assert "Traceback" not in err
        return (json.loads(out), err) if code == 0 else (code, json.loads(err) if err.startswith("{") else err)

    return run


def test_a_job_is_waited_for_and_its_files_are_saved(media, tmp_path):
    job, remarks = media("render", "a tide pool", "--pictures", "2", "--wait", "--output-dir", "out")
    assert job["state"] == "done" and [file["name"][-5:] for file in job["files"]] == ["1.png", "2.png"]
    names = [file["name"] for file in job["files"]]
    assert sorted(os.listdir(tmp_path / "out")) == names
    assert "signature" not in remarks and [line.split(" (")[0] for line in remarks.splitlines()] == [
        f"saved {os.path.join('out', name)}" for name in names]
    assert media("list", "out") == ([{"name": name, "width": 64, "height": 64} for name in names], "")
    again = media("render_status", str(job["id"]), "--output-dir", "out", "--quiet")
    assert again == (job, "") and len(os.listdir(tmp_path / "out")) == 4


def test_without_wait_the_job_is_the_answer(media):
    job, remarks = media("render", "a tide pool")
    assert (job["state"], job["files"], remarks) == ("waiting", [], "")
    assert media("render_status", str(job["id"]), "--wait")[0]["state"] == "done"


def test_a_job_that_fails_or_takes_too_long(media):
    code, failure = media("render", "an impossible staircase", "--wait", "--output-dir", "out")
    assert (code, failure["error"], failure["details"]["result"]["why"]) == (1, "WAIT_FAILED", "it cannot be drawn")
    code, failure = media("render", "a river", "--wait", "--wait-timeout", "0.2")
    assert (code, failure["error"]) == (7, "TIMEOUT")
    job = failure["details"]["result"]["id"]
    assert media("render_status", str(job), "--wait")[0]["state"] == "done"


def test_a_service_that_is_not_there_or_knows_no_such_job(media, tmp_path):
    assert media("render_status", "9999")[1]["message"] == "the service knows no such job"
    assert media("render", "x", "--server", "http://127.0.0.1:9")[0] in (1, 7, 64)
    code, out, err = start([MEDIA, "render", "x", "--json"], tmp_path)
    assert (code, json.loads(err)["hint"]) == (1, "give --server, or set MEDIA_SERVER")


def test_nothing_is_discarded_unasked_or_outside(media, tmp_path):
    media("render", "a tide pool", "--wait", "--output-dir", "out")
    name = sorted(os.listdir(tmp_path / "out"))[0]
    assert media("discard", f"out/{name}")[1]["error"] == "CONFIRMATION_REQUIRED"
    assert media("discard", f"out/{name}", "--dry-run")[0]["preview"]["name"] == name
    assert os.path.exists(tmp_path / "out" / name)
    assert media("discard", f"out/{name}", "--yes")[0]["name"] == name
    assert not os.path.exists(tmp_path / "out" / name)
    (tmp_path / "notes.txt").write_text("keep me")
    assert media("discard", "notes.txt", "--yes") == (1, {
        "error": "BAD_REQUEST", "message": "notes.txt is no PNG picture", "retryable": False})
    assert media("discard", "gone.png", "--yes")[0] == 4
    for outside in ("../x.png", "/etc/passwd", "out/../../x.png"):
        assert media("discard", outside, "--yes")[1]["error"] == "SANDBOX_ESCAPE"
    assert (tmp_path / "notes.txt").exists()


def test_demo_walks_through_the_commands(tmp_path):
    code, out, err = start([MEDIA, "demo"], tmp_path)
    assert (code, err) == (0, "")
    assert re.findall(r"\(exit code (\d+)\)", out) == ["1", "7", "64", "3", "8", "3", "8", "3"]
    assert out.count("saved out/picture-2-") == 3 and "Traceback" not in out
    assert "picture-2-3 (2).png    128     128\n" in out and list(tmp_path.iterdir()) == []


def test_selftest_of_the_example():
    code, out, err = start([os.path.join(ROOT, "knaif.py"), "selftest", MEDIA], ROOT)
    assert (code, out, err) == (0, f"{MEDIA}: no problems\n", "")


def test_the_example_stays_short():
    with open(MEDIA, encoding="utf-8") as file:
        assert len(file.read().splitlines()) <= 300
