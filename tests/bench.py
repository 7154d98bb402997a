"""Measure knaif against its goals and print one table: `make bench`; beside other libraries: `make bench-peers`.

Each row is a ratio of two sides that are measured in turn, A B A B, in one run on one machine; shown are the medians
of each side and of the pairs' ratios. Nothing is asserted: times are facts about a machine, not about correctness.
What is not installed is skipped by name. Reads clock; writes a temporary folder.
"""
from __future__ import annotations

import functools
import gc
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, ROOT)

PAIRS_COLD = 31  # process starts
PAIRS_WARM = 15  # loops inside this process
PAIRS_VIEWS = 3  # process runs over many records, a second each; their processor time hardly varies
PAIRS_CALLS = 5  # of thousands of calls each, most of which wait for the disk
RECORDS = 200_000
LINES_STREAM = 20_000
LINES_BATCH = 2_000
LOOP_SECONDS = 0.05  # one side of one warm pair

ONE_COMMAND = """
import knaif as nk
app = nk.App("hello", version="1.0.0", expose=("cli",))
@app.command
def greet(name: str, times: int = 1) -> str:
    "Greet somebody."
    return " ".join(["hello", name] * times)
if __name__ == "__main__":
    app.main()
"""

README_IMPORTS = """
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Optional
"""

README_APP = README_IMPORTS + """
import knaif as nk
app = nk.App("tasks", version="1.0.0", expose=("cli",))
@dataclass
class Task:
    title: str
    tags: list[str]
    due: Optional[date]
@app.command(keywords=["create"])
def add(
    title: Annotated[str, nk.Arg(help="what to do", min=1)], tags: list[str] = (), due: Optional[date] = None
) -> Task:
    "Add a task."
    return Task(title, list(tags), due)
if __name__ == "__main__":
    app.main()
"""

MANY_COMMANDS = """
import knaif as nk
app = nk.App("many", version="1.0.0", expose=("cli",))
""" + "".join('''
@app.command
def command_%d(name: str, size: int = %d, fast: bool = False) -> str:
    "Do the thing number %d."
    return name
''' % (n, n, n) for n in range(61)) + """
if __name__ == "__main__":
    app.main()
"""

SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer", "minimum": 1},
        "name": {"type": "string", "minLength": 1, "maxLength": 80},
        "email": {"type": "string", "pattern": "^[^@ ]+@[^@ ]+$"},
        "active": {"type": "boolean"},
        "score": {"type": "number", "minimum": 0, "maximum": 100},
        "size": {"enum": ["small", "medium", "large"]},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 10},
        "address": {
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}, "zip": {"type": "string"}},
            "required": ["street", "city"],
            "additionalProperties": False,
        },
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "count": {"type": "integer", "multipleOf": 5},
        "created": {"type": "string", "minLength": 10},
        "ratio": {"type": "number", "exclusiveMinimum": 0},
    },
    "required": ["id", "name", "email", "active", "size"],
    "additionalProperties": False,
}
VALID = {
    "id": 7, "name": "Ada", "email": "ada@example.org", "active": True, "score": 99.5, "size": "large",
    "tags": ["a", "b", "c"], "address": {"street": "1 High St", "city": "London"}, "note": None, "count": 15,
    "created": "2024-01-01", "ratio": 0.5,
}
FAULTY = dict(VALID, id="7", size="huge", tags=["a", 5])

LINE = (
    "--name box --count 3 --size large --rate 2.5 --active --note hello --owner bob --limit=10 --path a/b --mode fast"
).split()

#: Programs that time a part of themselves and print the seconds.
COLD_VALIDATOR = """
import time, knaif
schema, value = %r, %r
begun = time.perf_counter()
knaif.Validator(schema).issues(value)
print(time.perf_counter() - begun)
""" % (SCHEMA, VALID)
COLD_JSON = """
import time
begun = time.perf_counter()
import json
print(time.perf_counter() - begun)
"""

ARGPARSE_APP = """
import argparse, json
parser = argparse.ArgumentParser("hello")
commands = parser.add_subparsers(dest="command")
greet = commands.add_parser("greet")
greet.add_argument("name")
greet.add_argument("--times", type=int, default=1)
given = parser.parse_args()
print(json.dumps(" ".join(["hello", given.name] * given.times)))
"""

CLICK_APP = """
import click, json
@click.group()
def main(): pass
@main.command()
@click.argument("name")
@click.option("--times", type=int, default=1)
def greet(name, times): print(json.dumps(" ".join(["hello", name] * times)))
main()
"""

#: What somebody without a view would write; the words are the question and the file.
VIEW_SCRIPTS = {
    "json": """
import json, sys
question, name = sys.argv[1:]
with open(name) as file:
    records = json.load(file)
""",
    "jsonl": """
import json, sys
question, name = sys.argv[1:]
records = (json.loads(line) for line in open(name))
""",
}
VIEW_SCRIPT_END = """
answer = {}
if question == "count":
    for record in records:
        answer[record["status"]] = answer.get(record["status"], 0) + 1
elif question == "sum":
    for record in records:
        answer[record["status"]] = answer.get(record["status"], 0) + record["messages"]
else:
    answer = sorted(records, key=lambda record: record["messages"], reverse=True)[:5]
print(json.dumps(answer))
"""
#: question -> (how the view is asked for, name of the row)
VIEW_QUESTIONS = {
    "count": (["--count-by", "status"], "--count-by"),
    "sum": (["--sum", "messages", "--by", "status"], "--sum --by"),
    "sort": (["--sort", "messages", "--top", "5"], "--sort --top"),
}


CALLS_APP = """
import knaif as nk
app = nk.App("calls", "1.0.0", expose=("cli",), commands=[nk.stream_command(), nk.batch_command()])

@app.command(readonly=True)
def look(name: str, count: int, flag: bool) -> dict:
    return {"name": name, "count": count, "flag": flag}

@app.command
def act(name: str, count: int, flag: bool) -> dict:
    return {"name": name, "count": count, "flag": flag}

if __name__ == "__main__":
    app.main()
"""
PLANS_APP = """
import knaif as nk
app = nk.App("plans", "1.0.0", expose=("agent",))

@app.command
def look(name: str, count: int, flag: bool) -> dict:
    return {"name": name, "count": count, "flag": flag}

@app.command
def buy(name: str, count: int = 1) -> int:
    return count

@app.command
def tell(text: str) -> None:
    pass
"""
#: Three steps, one of which takes a part of an earlier one's result.
PLAN_TEXT = '''{"plan": [{"tool": "look", "args": {"name": "abc", "count": 3, "flag": true}, "output": "$m"},
{"tool": "buy", "args": {"name": "$m.name", "count": 2}}, {"tool": "tell", "args": {"text": "done"}}]}'''
CALL_ARGS = {"name": "abc", "count": 3, "flag": True}


class Row:
    """One line of the table."""

    def __init__(self, what, ours, other, ratio, goal, met, unit="ms"):
        self.what = what
        self.ours = ours  #: median in seconds or bytes, or a text
        self.other = other  #: the same of the other side
        self.ratio = ratio  #: median of the pairs
        self.goal = goal  #: text
        self.met = met  #: True, False, or None where there is no goal
        self.unit = unit


def environment():
    """Return the environment of children: what changes the cost of a start is taken out."""
    unwanted = ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP")
    return {name: value for name, value in os.environ.items() if name not in unwanted}


def start(words, folder):
    """Run a process to its end and return the seconds it took. It must succeed."""
    begun = time.perf_counter()
    code = subprocess.call(words, cwd=folder, env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    taken = time.perf_counter() - begun
    if code != 0:
        raise RuntimeError("%s ended with %d" % (" ".join(words), code))
    return taken


def cold(what, ours, other, goal, folder, bare=None):
    """Measure two processes in turn. With bare, the figure is the difference of the two in bare starts."""
    sides = [[sys.executable] + words for words in (ours, other, bare) if words is not None]
    for words in sides:
        start(words, folder)
    rounds = [[start(words, folder) for words in sides] for _ in range(PAIRS_COLD)]
    if bare is None:
        ratios = [mine / theirs for mine, theirs in rounds]
    else:
        ratios = [(mine - theirs) / start_alone for mine, theirs, start_alone in rounds]
    ratio = statistics.median(ratios)
    text = ("<= %g" if bare is None else "+ %g starts") % goal if goal is not None else ""
    medians = [statistics.median(column) for column in zip(*rounds)]
    return Row(what, medians[0], medians[1], ratio, text, None if goal is None else ratio <= goal)


def cold_inside(what, ours, other, goal, folder):
    """Measure what two programs measure inside themselves, each in a fresh process, in turn."""
    def run(code):
        words = [sys.executable, "-c", code]
        return float(subprocess.check_output(words, cwd=folder, env=environment(), stdin=subprocess.DEVNULL))

    run(ours)
    rounds = [(run(ours), run(other)) for _ in range(PAIRS_COLD)]
    ratio = statistics.median(mine / theirs for mine, theirs in rounds)
    mine, theirs = (statistics.median(column) for column in zip(*rounds))
    return Row(what, mine, theirs, ratio, "<= %g" % goal, ratio <= goal)


def loop(function):
    """Return how often a function is to be called so that one side of a pair takes LOOP_SECONDS."""
    times = 1
    while True:
        begun = time.perf_counter()
        for _ in range(times):
            function()
        taken = time.perf_counter() - begun
        if taken > LOOP_SECONDS / 4:
            return max(1, int(times * LOOP_SECONDS / taken))
        times *= 4


def timed(function, times):
    begun = time.perf_counter()
    for _ in range(times):
        function()
    return (time.perf_counter() - begun) / times


def warm(what, ours, other, goal):
    """Measure two functions in turn; the goal is how many times as fast ours is at least."""
    times = [loop(ours), loop(other)]
    gc.collect()
    gc.disable()
    try:
        rounds = [(timed(ours, times[0]), timed(other, times[1])) for _ in range(PAIRS_WARM)]
    finally:
        gc.enable()
    ratio = statistics.median(theirs / mine for mine, theirs in rounds)
    mine, theirs = (statistics.median(column) for column in zip(*rounds))
    met = None if goal is None else ratio >= goal
    return Row(what, mine, theirs, ratio, "" if goal is None else ">= %g times" % goal, met, "us")


def skipped(what, missing):
    return Row(what, "skipped:", missing, None, "", None)


def is_installed(name):
    import importlib.util

    return importlib.util.find_spec(name) is not None


# Rows


def rows_cold(folder):
    """Yield the rows of process starts."""
    bare = ["-c", "pass"]
    yield cold("cold start, 1 command", ["one.py", "greet", "you", "--json"], bare, 1.6, folder)
    yield cold("  its --help", ["one.py", "--help"], bare, 1.7, folder)
    yield cold("  its greet --help", ["one.py", "greet", "--help"], bare, None, folder)
    yield cold("README's app - its imports", ["readme.py", "add", "x"], ["-c", README_IMPORTS], 0.6, folder, bare)
    yield cold("61 commands, one called", ["many.py", "command-30", "x"], bare, 1.7, folder)
    yield cold("knaif.py --version, a script", ["knaif.py", "--version"], bare, 9, folder)
    yield cold("-m knaif --version", ["-m", "knaif", "--version"], bare, 1.8, folder)
    yield cold_inside("cold validator / import json", COLD_VALIDATOR, COLD_JSON, 1.1, folder)
    yield cold("peer: argparse, 1 command", ["with_argparse.py", "greet", "you"], bare, None, folder)
    if is_installed("click"):
        yield cold("peer: click, 1 command", ["with_click.py", "greet", "you"], bare, None, folder)
    else:
        yield skipped("peer: click, 1 command", "click")


def write_records(folder, name, count):
    """Write so many records as name.json and name.jsonl, holding no more than one of them.

    They must not make this process larger: what a child is measured at includes the size of its parent.
    """
    with open(os.path.join(folder, name + ".json"), "w", encoding="utf-8") as array, \
            open(os.path.join(folder, name + ".jsonl"), "w", encoding="utf-8") as lines:
        for number in range(count):
            text = json.dumps({
                "id": "item-%06d" % number, "status": ("active", "idle", "stopped")[number * 7919 % 3],
                "messages": number * 104729 % 1000, "owner": {"name": "n%d" % (number % 97), "mail": "x@example.org"},
                "tags": ["a", "b"], "score": number / 7,
            })
            array.write(("[" if number == 0 else ", ") + text)
            lines.write(text + "\n")
        array.write("]")


def used(words, folder):
    """Run a Python process to its end; return the processor seconds it took and the most memory it held, in bytes."""
    process = subprocess.Popen([sys.executable] + words, cwd=folder, env=environment(), stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = status
    if status != 0:
        raise RuntimeError("%s failed" % " ".join(words))
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def compared(what, ours, other, goal, folder):
    """Measure two processes in turn; return the row of their processor time and that of their memory."""
    rounds = [(used(ours, folder), used(other, folder)) for _ in range(PAIRS_VIEWS)]
    rows = []
    for column, unit in ((0, "ms"), (1, "MB")):
        ratio = statistics.median(mine[column] / theirs[column] for mine, theirs in rounds)
        mine, theirs = (statistics.median(side[column] for side in sides) for sides in zip(*rounds))
        text = "" if goal[column] is None else "<= %g" % goal[column]
        met = None if goal[column] is None else ratio <= goal[column]
        rows.append(Row(what if column == 0 else "  its peak memory", mine, theirs, ratio, text, met, unit))
    return rows


def rows_views(folder):
    """Yield the rows of views over many records, beside scripts of ten lines."""
    if not hasattr(os, "wait4"):
        yield skipped("views over %d records" % RECORDS, "os.wait4")
        return
    write_records(folder, "records", RECORDS)
    write_records(folder, "tenth", RECORDS // 10)
    view = ["-m", "knaif", "view"]
    used(view + ["--sum", "messages", "tenth.json"], folder)
    for kind, goal in (("json", 0.75), ("jsonl", 0.7)):
        script = ["-c", VIEW_SCRIPTS[kind] + VIEW_SCRIPT_END]
        for question, (options, shown) in VIEW_QUESTIONS.items():
            what = "-m view %s, %s" % (shown, "array" if kind == "json" else "JSONL")
            name = "records." + kind
            limit = 0.25 if kind == "json" and question != "sort" else None
            rows = compared(what, view + options + [name], script + [question, name], (goal, limit), folder)
            yield from rows if limit is not None else rows[:1]
    options = VIEW_QUESTIONS["count"][0]
    row = compared("", view + options + ["records.jsonl"], view + options + ["tenth.jsonl"], (None, 1.1), folder)[1]
    row.what = "  peak memory / with a tenth"
    yield row
    yield compared("knaif.py view --count-by, JSONL", ["knaif.py"] + view[2:] + options + ["records.jsonl"],
                   script + ["count", "records.jsonl"], (None, None), folder)[0]


def make_our_parser(knaif):
    """Return a function that parses LINE with the grammar of one command."""
    text, whole, number, flag = ({"type": kind} for kind in ("string", "integer", "number", "boolean"))
    kinds = {
        "name": text, "count": whole, "size": {"type": "string", "enum": ["small", "large"]}, "rate": number,
        "active": flag, "note": text, "owner": text, "limit": whole, "path": text, "mode": text,
    }
    fields = [knaif.Field(name, schema) for name, schema in kinds.items()]
    grammar = knaif._ArgvLine(name="make", fields=fields, root={"type": "object", "properties": kinds})
    line = knaif._argv_parse(LINE, grammar)
    if line.faults or len(line.args) != len(kinds):
        raise RuntimeError("the line was not read")
    return lambda: knaif._argv_parse(LINE, grammar)


def make_argparse():
    """Return a function that parses LINE with argparse."""
    import argparse

    parser = argparse.ArgumentParser(prog="make", allow_abbrev=False)
    for name, kind in (("name", str), ("count", int), ("rate", float), ("note", str), ("owner", str), ("limit", int),
                       ("path", str), ("mode", str)):
        parser.add_argument("--" + name, type=kind)
    parser.add_argument("--size", choices=["small", "large"])
    parser.add_argument("--active", action="store_true")
    return lambda: parser.parse_args(LINE)


def rows_warm():
    """Yield the rows that are measured inside this process."""
    import knaif

    yield warm("parse 10 options / argparse", make_our_parser(knaif), make_argparse(), 7)
    validator = knaif.Validator(SCHEMA)
    for name, value in (("valid", VALID), ("3 faults", FAULTY)):
        what = "12 fields, all issues, %s" % name
        if not is_installed("jsonschema"):
            yield skipped(what, "jsonschema")
            continue
        import jsonschema

        peer = jsonschema.Draft202012Validator(SCHEMA)
        if len(validator.issues(value)) != len(list(peer.iter_errors(value))):
            raise RuntimeError("the two sides do not find the same issues")
        yield warm(what, lambda: validator.issues(value), lambda: list(peer.iter_errors(value)), 10)
    if is_installed("fastjsonschema"):
        import fastjsonschema

        compiled = fastjsonschema.compile(SCHEMA)
        yield warm("peer: fastjsonschema, first issue", lambda: validator.issues(VALID), lambda: compiled(VALID), None)
    else:
        yield skipped("peer: fastjsonschema", "fastjsonschema")


def look(name, count, flag):
    return {"name": name, "count": count, "flag": flag}


def bare_call():
    """Read the text of a call, call a function, write the text of its result."""
    text = '{"name":"abc","count":3,"flag":true}'
    return json.dumps(look(**json.loads(text)))


def called(number, command):
    """Return so many lines for a stream or a batch."""
    return [json.dumps({"id": "line-%d" % index, "command": command, "args": CALL_ARGS}).encode() + b"\n"
            for index in range(number)]


def answered(words, lines, folder, converse=False):
    """Return the seconds from the first answer to the last of a process that is sent these lines through a pipe."""
    process = subprocess.Popen([sys.executable] + words, cwd=folder, env=environment(), stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    with process:
        process.stdin.write(lines[0])
        process.stdin.flush()
        process.stdout.readline()
        begun = time.perf_counter()
        if converse:
            for line in lines[1:]:
                process.stdin.write(line)
                process.stdin.flush()
                if not process.stdout.readline():
                    raise RuntimeError("the process went away")
        else:
            threading.Thread(target=lambda: (process.stdin.writelines(lines[1:]), process.stdin.close())).start()
            if sum(1 for _ in process.stdout) != len(lines) - 1:
                raise RuntimeError("an answer is missing")
        taken = time.perf_counter() - begun
        if converse:
            process.stdin.close()
    return taken


def written(number, folder):
    """Return the seconds that so many records take when each is written and synced."""
    record = b"x" * 250 + b"\n"
    path = os.path.join(folder, "synced")
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    begun = time.perf_counter()
    for _ in range(number):
        os.write(file, record)
        os.fsync(file)
    taken = time.perf_counter() - begun
    os.close(file)
    os.remove(path)
    return taken


def batched(number, command, folder, converse=False):
    """Return the seconds of so many lines of a new batch, without its start."""
    journal = os.path.join(folder, "journal")
    if os.path.exists(journal):
        os.remove(journal)
    if converse:
        return answered(["calls.py", "batch", "--journal", journal], called(number + 1, command), folder, True)
    path = os.path.join(folder, "lines.jsonl")
    taken = []
    for count in (1, number + 1):
        with open(path, "wb") as file:
            file.writelines(called(count, command))
        taken.append(start([sys.executable, "calls.py", "batch", path, "--journal", journal, "--quiet"], folder))
        os.remove(journal)
    return taken[1] - taken[0]


def in_turn(what, ours, other, goal, unit="ms"):
    """Measure two functions that return seconds, in turn."""
    rounds = [(ours(), other()) for _ in range(PAIRS_CALLS)]
    ratio = statistics.median(mine / theirs for mine, theirs in rounds)
    mine, theirs = (statistics.median(column) for column in zip(*rounds))
    return Row(what, mine, theirs, ratio, "<= %g" % goal, ratio <= goal, unit)


def rows_calls(folder):
    """Yield the rows of calls in process, of lines, and of batches that are durable line by line."""
    sys.path.insert(0, folder)
    import calls

    invoker = calls.app.invoker()
    times = loop(bare_call)

    def invoke():
        return invoker.invoke("look", CALL_ARGS)

    if not invoke().ok:
        raise RuntimeError("the call failed")
    yield in_turn("a call through the invoker / bare", lambda: timed(invoke, times // 4),
                  lambda: timed(bare_call, times), 3, "us")
    lines = called(LINES_STREAM, "look")
    yield in_turn("a line of a stream / bare", lambda: answered(["calls.py", "stream"], lines, folder) / (len(lines) - 1),
                  lambda: timed(bare_call, times), 6, "us")
    for what, command, converse, goal in (
        ("batch, readonly / write + fsync", "look", False, 1.3), ("batch, ordinary, from a file", "act", False, 1.6),
        ("batch, ordinary, in conversation", "act", True, 2.7),
    ):
        yield in_turn(what, lambda: batched(LINES_BATCH, command, folder, converse),
                      lambda: written(LINES_BATCH, folder), goal)
    yield in_turn("batch, 10,000 lines / 1,000", lambda: batched(10_000, "look", folder),
                  lambda: batched(1000, "look", folder), 11)


def rows_plans(folder):
    """Yield the rows of plans; the goals are those of numbers.md, in bare calls instead of a peer's times."""
    sys.path.insert(0, folder)
    import knaif
    import plans

    engine = plans.app.check(PLAN_TEXT)._engine
    plan, times = knaif._plan_check(engine, PLAN_TEXT), loop(bare_call)
    if not plans.app.execute(plan).ok:
        raise RuntimeError("the plan failed")
    bare = functools.partial(timed, bare_call, times)
    for what, work, goal in (("plan of 3 steps, text to check", lambda: knaif._plan_check(engine, PLAN_TEXT), 6.6),
                             ("plan of 3 steps, execute", lambda: plans.app.execute(plan), 9.1)):
        yield in_turn(what + " / bare call", functools.partial(timed, work, times // 10), bare, goal, "us")


def rows(folder):
    """Yield all rows; the programs that are started stand in a folder of their own."""
    programs = {
        "one": ONE_COMMAND, "readme": README_APP, "many": MANY_COMMANDS,
        "with_argparse": ARGPARSE_APP, "with_click": CLICK_APP, "calls": CALLS_APP, "plans": PLANS_APP,
    }
    for name, text in programs.items():
        # A program of its own imports the module, whose .pyc stands beside it; its own text is compiled at each start.
        with open(os.path.join(folder, name + ".py"), "w", encoding="utf-8") as file:
            file.write(text)
    shutil.copy(os.path.join(ROOT, "knaif.py"), folder)
    yield from rows_cold(folder)
    yield from rows_views(folder)
    yield from rows_warm()
    yield from rows_calls(folder)
    yield from rows_plans(folder)


# Table


def show(row):
    """Return the columns of one row as texts."""
    if row.ratio is None:
        return (row.what, row.ours, row.other, "", "", "")
    scale = {"ms": 1e3, "us": 1e6, "MB": 1e-6}[row.unit]
    sides = ["%.1f %s" % (figure * scale, row.unit) for figure in (row.ours, row.other)]
    met = {True: "yes", False: "NO", None: ""}[row.met]
    return (row.what, sides[0], sides[1], "%.2f" % row.ratio, row.goal, met)


def main():
    version = ".".join(map(str, sys.version_info[:3]))
    print("Python %s; medians of pairs measured in turn; smaller is better unless the goal says 'times'" % version)
    line = "%-34s %12s %12s %8s   %-12s %s"
    print(line % ("what", "ours", "other side", "ratio", "goal", "met"))
    with tempfile.TemporaryDirectory() as folder:
        for row in rows(folder):
            print(line % show(row), flush=True)


if __name__ == "__main__":
    main()
