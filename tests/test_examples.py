"""The examples are programs that people copy: each does what it says, in processes of its own."""
from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TASKS = os.path.join(ROOT, "examples", "tasks.py")


def start(words, stdin=b"", **environ):
    """Run a Python process without a terminal; return exit code, stdout and stderr."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "KNAIF", "TASKS"))}
    process = subprocess.run([sys.executable] + words, input=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             cwd="/", env=dict(kept, **environ), timeout=120, start_new_session=True)
    return process.returncode, process.stdout.decode("utf-8"), process.stderr.decode("utf-8")


@pytest.fixture
def tasks(tmp_path):
    """Run a line of the task list on a store of its own; return its result, or its failure with exit code."""

    def run(*words, stdin=b""):
        code, out, err = start([TASKS, "--db", str(tmp_path / "data" / "tasks.db"), *words, "--json"], stdin)
        assert "Traceback" not in err
        return json.loads(out) if code == 0 else (code, json.loads(err) if err.startswith("{") else err)

    return run


WATER = {"id": 1, "title": "water the plants", "priority": "normal", "due": "2026-05-01", "tags": ["home"],
         "done": None}


def test_a_task_is_added_shown_edited_and_tagged(tasks):
    assert tasks("add", "water the plants", "--due", "2026-05-01", "--tags", "home") == WATER
    assert tasks("show", "1") == WATER
    changed = dict(WATER, priority="high", due="2026-06-01")
    assert tasks("edit", "1", "--priority", "high", "--due", "2026-06-01") == changed
    assert tasks("tag", "1", "soon", "garden") == dict(changed, tags=["garden", "home", "soon"])
    assert tasks("tag", "1", "soon", "--remove") == dict(changed, tags=["garden", "home"])


def test_done_is_all_or_nothing(tasks):
    for title in ("one", "two"):
        tasks("add", title)
    assert tasks("done", "1", "99") == (4, {
        "error": "NOT_FOUND", "message": "there is no task 99", "retryable": False,
        "hint": "tasks list --status all shows every task"})
    assert [task["id"] for task in tasks("list")] == [1, 2]
    assert [bool(task["done"]) for task in tasks("done", "1", "2")] == [True, True]
    assert tasks("list") == [] and len(tasks("list", "--status", "all")) == 2


def test_list_selects_by_status_and_tag(tasks):
    tasks("add", "one", "--tags", "a")
    tasks("add", "two", "--tags", "a", "--tags", "b")
    tasks("done", "1")
    assert [task["id"] for task in tasks("list", "--tag", "a")] == [2]
    assert [task["id"] for task in tasks("list", "--tag", "a", "--status", "all")] == [1, 2]
    assert [task["id"] for task in tasks("list", "--status", "done")] == [1]


def test_purge_asks_shows_and_removes(tasks):
    tasks("add", "one")
    tasks("done", "1")
    code, failure = tasks("purge", "2100-01-01")
    assert (code, failure["error"]) == (8, "CONFIRMATION_REQUIRED")
    assert tasks("purge", "2100-01-01", "--dry-run")["preview"] == {"would_remove": [1]}
    assert tasks("purge", "2000-01-01", "--yes") == {"removed": []}
    assert tasks("purge", "2100-01-01", "--yes") == {"removed": [1]}
    assert tasks("export") == []


def test_what_export_prints_import_reads(tasks, tmp_path):
    tasks("add", "water the plants", "--due", "2026-05-01", "--tags", "home")
    tasks("add", "two")
    tasks("done", "2")
    exported = tasks("export")
    tasks("purge", "2100-01-01", "--yes")
    assert tasks("import", stdin=json.dumps(exported).encode()) == {"imported": 2}
    assert tasks("export") == exported
    assert tasks("stats") == {"all": 2, "open": 1, "done": 1, "overdue": tasks("stats")["overdue"]}


@pytest.mark.parametrize(
    "words, code, error",
    [
        (["add"], 1, "VALIDATION_ERROR"),
        (["add", ""], 1, "VALIDATION_ERROR"),
        (["add", "x", "--priority", "urgent"], 1, "VALIDATION_ERROR"),
        (["add", "x", "--tags", "NO"], 1, "VALIDATION_ERROR"),
        (["add", "x", "--due", "soon"], 64, None),
        (["show", "0"], 1, "VALIDATION_ERROR"),
        (["show", str(2**60)], 1, "VALIDATION_ERROR"),
        (["show", "one"], 64, None),
        (["import", "--tasks:=[{\"id\":1}]"], 1, "VALIDATION_ERROR"),
        (["forget"], 4, "NOT_FOUND"),
    ],
)
def test_what_is_wrong_is_refused_before_the_list_is_opened(tasks, tmp_path, words, code, error):
    refused = tasks(*words)
    assert refused[0] == code and (error is None or refused[1]["error"] == error)
    assert not (tmp_path / "data").exists()


def test_the_place_of_the_list(tmp_path):
    environ = {"XDG_DATA_HOME": str(tmp_path / "xdg")}
    assert start([TASKS, "add", "one"], **environ)[0] == 0 and (tmp_path / "xdg" / "tasks.db").exists()
    environ["TASKS_DB"] = str(tmp_path / "named.db")
    assert start([TASKS, "add", "one"], **environ)[0] == 0 and (tmp_path / "named.db").exists()


def test_doctor_presents_and_ends_with_its_verdict(tmp_path):
    path = tmp_path / "tasks.db"
    assert start([TASKS, "--db", str(path), "doctor"]) == (0, f"{path}: sound, 0 tasks\n", "")
    path.write_bytes(b"no database" * 100)
    code, out, err = start([TASKS, "--db", str(path), "doctor"])
    assert (code, err) == (1, "") and "cannot be used as a task list" in out
    assert json.loads(start([TASKS, "add", "x", "--db", str(path)])[2])["error"] == "BAD_REQUEST"


def test_demo_walks_through_the_commands_and_leaves_the_persons_own_list_alone(tmp_path):
    code, out, err = start([TASKS, "demo"], XDG_DATA_HOME=str(tmp_path))
    assert (code, err) == (0, "")
    calls = re.findall(r"^\$ tasks (\S+)", out, re.M)
    assert len(calls) >= 12
    assert {"add", "list", "edit", "tag", "done", "stats", "export", "import", "purge", "doctor"} <= set(calls)
    assert re.findall(r"\(exit code (\d+)\)", out) == ["4", "1", "8", "4"]
    assert "Traceback" not in out and list(tmp_path.iterdir()) == []


def test_selftest_of_the_example():
    code, out, err = start([os.path.join(ROOT, "knaif.py"), "selftest", TASKS])
    assert (code, out, err) == (0, f"{TASKS}: no problems\n", "")


def test_the_example_stays_short():
    with open(TASKS, encoding="utf-8") as file:
        assert len(file.read().splitlines()) <= 300


# remote.py


REMOTE = os.path.join(ROOT, "examples", "remote.py")


def test_the_demo_of_profiles_lines_and_batches():
    code, out, err = start([REMOTE, "demo"])
    assert (code, err) == (0, "") and "Traceback" not in out
    assert re.findall(r"\(exit code (\d+)\)", out) == ["4", "1", "4", "8", "8", "8", "5", "8"]
    echoed = [line for line in out.splitlines() if line.startswith("$ echo")]
    assert len(echoed) == 2 and out.count("token-of-") == 2  # in what was typed, and nowhere else
    assert out.count('"replayed":true') == 2 and '"tea": 4' in out


def test_orders_need_a_profile_and_a_known_token(tmp_path):
    environ = {"REMOTE_PROFILES": str(tmp_path / "profiles"), "REMOTE_PROFILE": ""}
    code, out, err = start([REMOTE, "whoami", "--json"], **environ)
    assert (code, out, json.loads(err)["error"]) == (4, "", "NOT_FOUND")
    server = subprocess.Popen([sys.executable, REMOTE, "serve"], stdout=subprocess.PIPE)
    try:
        url = server.stdout.readline().decode().strip()
        for name, token in (("ann", "token-of-ann"), ("eve", "tok-SECRET-123")):
            words = [REMOTE, "profile-set", name, "--url", url, "--stdin"]
            assert start(words, json.dumps({"token": token}).encode(), **environ)[0] == 0
        assert json.loads(start([REMOTE, "whoami", "--profile", "ann", "--json"], **environ)[1]) == {
            "profile": "ann", "source": "option", "account": "ann"}
        code, out, err = start([REMOTE, "whoami", "--profile", "eve", "--json"], **environ)
        assert (code, out, json.loads(err)["error"]) == (2, "", "UNAUTHORIZED") and "tok-SECRET-123" not in err
        code, out, err = start([REMOTE, "cancel", "ann-1", "--profile", "ann", "--yes", "--json"], **environ)
        assert (code, json.loads(err)["message"]) == (4, "the service answered: there is no order ann-1")
    finally:
        server.terminate()
        server.wait(timeout=10)
        server.stdout.close()


# clock.py


def test_the_demo_of_the_clock():
    code, out, err = start([os.path.join(ROOT, "examples", "clock.py"), "demo"])
    assert (code, "Traceback" in out + err) == (0, False)
    assert re.findall(r"\(exit code (\d+)\)", out) == ["1", "1", "4"]
    assert '"data":123' in out and '"tz":"Asia/Tokyo"' in out
