"""Kill batches with SIGKILL at random moments, go on with each until it is finished, and prove that nothing happened
twice and nothing that was answered is lost.

KNAIF_KILLS says how often to kill (200): ``make kill`` asks for more.
"""
import hashlib
import json
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

import knaif

pytestmark = pytest.mark.skipif(os.name != "posix", reason="SIGKILL of POSIX")
KILLS = int(os.environ.get("KNAIF_KILLS") or 200)
AT_ONCE = 2  # processes
MEMORY = "/dev/shm"  # the page cache outlives a process as it does on a disk, and no other program slows it down
ON_DISK = 10  # one batch of so many is on a disk all the same
SIGNALS = (signal.SIGKILL,) * 7 + (signal.SIGINT,)  # an interrupt now and then, which is not counted
KILLS_A_JOURNAL = 12  # then it may finish
LINES = (1, 400)  # of one batch: a few lines a millisecond, so that a kill finds it anywhere
CALL_SECONDS = 0.001  # what some calls take before and after they have their effect
SECONDS_FROM_FIRST_ANSWER = 0.06
SECONDS_FROM_START = 0.15  # as long as a start takes: the lock, the new journal, the first record
ROOT = os.path.dirname(os.path.abspath(knaif.__file__))
PROGRAM = """
import os, sys, time
sys.path.insert(0, %r)
import knaif as nk
app = nk.App("kill", "1.0.0", expose=("cli",), commands=[nk.batch_command()])
effects = os.open("effects", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
def act(ctx: nk.Ctx, text: str, pauses: list[float] = ()) -> dict:
    time.sleep(pauses[0] if pauses else 0)
    os.write(effects, ("%%s\\n" %% ctx.call_id).encode())
    time.sleep(pauses[1] if pauses else 0)
    return {"id": ctx.call_id, "text": text * 3}
app.command(name="pay")(act)
app.command(name="put", idempotent=True)(act)
app.command(name="look", readonly=True)(act)
app.main()
""" % ROOT


class Killed:
    """One batch in a folder of its own, killed again and again."""

    def __init__(self, folder, seed):
        os.mkdir(folder)
        self.folder, self.random = folder, random.Random(seed)
        self.kinds = {}  # id -> command
        lines = []
        with open(self.path("lines"), "w", encoding="utf-8") as file:
            for number in range(self.random.randint(*LINES)):
                if lines and self.random.random() < 0.1:
                    file.write(self.random.choice(lines))  # is replayed, so that the next call is not begun ahead
                id = self.random.choice((number, "n%d" % number))
                self.kinds[id] = self.random.choice(("pay",) * 8 + ("put", "look"))
                args = {"text": "x" * int(2 ** self.random.uniform(0, 9))}
                if self.random.random() < 0.3:
                    args["pauses"] = [self.random.choice((0, CALL_SECONDS)), CALL_SECONDS]
                lines.append(json.dumps({"id": id, "command": self.kinds[id], "args": args}) + "\n")
                file.write(lines[-1])
        with open(self.path("program.py"), "w", encoding="utf-8") as file:
            file.write(PROGRAM)
        self.journal = []  # records, as of the last look
        self.unknown = set()  # ids of calls that were begun and did not end
        self.answered = {}  # id -> answer as it first came out

    def path(self, name):
        return os.path.join(self.folder, name)

    def start(self, *words):
        environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "program.py", "batch", "lines", "--quiet", *words], cwd=self.folder,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0, env=environ,
        )

    def kill(self):
        """Run until a random moment; return what was found, or None where the batch was quicker."""
        process = self.start()
        out, how = b"", signal.SIGKILL
        if self.random.random() < (0.15 if self.journal else 0.5):
            time.sleep(self.random.uniform(0, SECONDS_FROM_START))
        else:
            how = self.random.choice(SIGNALS)
            out = process.stdout.read(1)
            # Read on meanwhile: a full pipe would hold the batch up.
            until = time.monotonic() + self.random.uniform(0, SECONDS_FROM_FIRST_ANSWER)
            while time.monotonic() < until and process.poll() is None:
                if select.select([process.stdout], [], [], max(0, until - time.monotonic()))[0]:
                    out += os.read(process.stdout.fileno(), 65536)
        process.send_signal(how)
        rest, err = process.communicate()
        self.take(out + rest)
        if process.returncode in (0, 9, -signal.SIGINT):  # it had come to its end, or even to that of the interpreter
            assert err == b"" or how == signal.SIGINT, err
            return None
        if how == signal.SIGINT:
            # Without a word where it came between the end of the line's own code and that of the process.
            assert process.returncode == 130 and (b"interrupted" in err or not err), (process.returncode, err)
            return "interrupted: " + self.look(1)
        assert process.returncode == -signal.SIGKILL and err == b"", (process.returncode, err)
        return self.look(1)

    def finish(self, *words):
        """Run to the end and return the exit code."""
        process = self.start(*words)
        out, err = process.communicate()
        assert err == b"", err
        self.take(out)
        self.look(0)
        return process.returncode

    def take(self, out):
        """Remember the answers that came out; what came out before must come out again."""
        for line in out.decode().split("\n")[:-1]:
            answer = json.loads(line)
            replayed = answer.pop("replayed", False)
            if not answer["ok"]:
                assert answer["error"]["code"] == "OUTCOME_UNKNOWN" and answer["id"] in self.unknown, answer
            elif answer["id"] in self.answered:
                assert answer == self.answered[answer["id"]]
            else:
                assert not replayed or answer["id"] in {record["id"] for record in self.journal[1:]}
                self.answered[answer["id"]] = answer

    def look(self, kills):
        """Read the journal and hold it against what went before; return the phase in which the batch was killed."""
        before, self.journal = self.journal, self.records()
        assert self.journal[: len(before)] == before
        last = {record["id"]: record for record in self.journal[1:]}
        # A call that an interrupt caught between its begin record and its function has neither begun nor ended.
        ended = {id: record["answer"] for id, record in last.items() if record.get("answer", {"ok": False})["ok"]}
        begun = [record["id"] for record in self.journal[1:] if record["kind"] == "begin"]
        unknown = {id for id, record in last.items() if record["kind"] == "begin"}
        fresh, self.unknown = unknown - self.unknown, unknown
        assert len(fresh) <= kills and fresh <= set(begun[-1:])  # the line in flight and no other
        for id, answer in self.answered.items():
            assert {"id": id, **ended[id]} == answer
        done = Counter(self.effects())
        for id, kind in self.kinds.items():
            count = done.pop(id, 0)
            assert count == 1 or kind != "pay" or id not in ended
            assert count <= 1 or kind != "pay"
            assert count >= 1 or id not in ended
        assert not done
        if not self.journal:
            return "before the journal"
        if not begun and not ended:
            return "before the first record"
        if not fresh:
            return "between two calls, or in one that may be repeated"
        return "in a call, after its effect" if fresh & set(self.effects()) else "in a call, before its effect"

    def records(self):
        """Return the records, verified by what the format says and not by the module; a torn tail is left out."""
        try:
            with open(self.path("lines.journal"), "rb") as file:
                data = file.read()
        except FileNotFoundError:
            return []
        records, digest = [], ""
        for line in data.split(b"\n")[:-1]:
            body, seal = line[:-77], line[-77:]
            digest = hashlib.sha256(digest.encode() + body).hexdigest()
            assert seal == b',"sha256":"%s"}' % digest.encode(), line
            records.append(json.loads(line))
            assert records[-1]["seq"] == len(records) - 1
        return records

    def effects(self):
        try:
            with open(self.path("effects"), encoding="utf-8") as file:
                return [id if id.startswith("n") else int(id) for id in file.read().split()]
        except FileNotFoundError:
            return []

    def prove(self):
        """Finish the batch, then make the unknown calls again, then run it once more for nothing."""
        code = self.finish()
        assert code == (9 if self.unknown else 0)
        assert self.answered.keys() | self.unknown == self.kinds.keys()
        unknown, before = set(self.unknown), Counter(self.effects())
        assert all(self.kinds[id] == "pay" and before[id] <= 1 for id in unknown)
        if unknown:
            process = self.start("--rerun-unknown")
            out, err = process.communicate()
            assert (process.returncode, err) == (0, b"")
            answers = [json.loads(line) for line in out.decode().splitlines()]
            assert {answer["id"] for answer in answers} == self.kinds.keys() and all(answer["ok"] for answer in answers)
            assert {answer["id"] for answer in answers if not answer.get("replayed")} == unknown
            assert Counter(self.effects()) == before + Counter(unknown)
        last = self.effects(), self.records()
        process = self.start()
        out, err = process.communicate()
        assert (process.returncode, err) == (0, b"")
        assert all(json.loads(line)["replayed"] for line in out.decode().splitlines())
        assert (self.effects(), self.records()) == last


def kill_one(folder, seed, kills):
    """Kill one batch up to so many times; return the phases in which that happened."""
    batch = Killed(folder, seed)
    phases = []
    while len(phases) < min(kills, KILLS_A_JOURNAL):
        phase = batch.kill()
        if phase is None:
            break
        phases.append(phase)
    batch.prove()
    return phases


def test_a_killed_batch_makes_each_call_once_and_loses_no_answer(tmp_path):
    phases, seed, left = Counter(), 0, KILLS
    memory = MEMORY if os.access(MEMORY, os.W_OK) else str(tmp_path)
    with ThreadPoolExecutor(AT_ONCE) as pool, tempfile.TemporaryDirectory(dir=memory) as folder:
        while left > 0:
            tasks = []
            for _ in range(min(AT_ONCE * 2, left)):
                seed += 1
                place = os.path.join(folder if seed % ON_DISK else str(tmp_path), str(seed))
                tasks.append(pool.submit(kill_one, place, seed, left))
            for task in tasks:
                phases.update(task.result())
            left = KILLS - sum(phases[phase] for phase in phases if not phase.startswith("interrupted"))
    print("%d kills of %d batches: %s" % (KILLS - left, seed, dict(phases)))
