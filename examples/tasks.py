#!/usr/bin/env python3
"""A task list on sqlite3: what a whole program on knaif looks like.

    python3 examples/tasks.py demo      walk through it on a temporary list
    python3 examples/tasks.py --help

The list is kept in $XDG_DATA_HOME/tasks.db (~/.local/share without that variable), or where --db or TASKS_DB says.
"""
from __future__ import annotations

import os
import sys

# knaif.py stands one folder up. A real project, with knaif.py beside it, needs no such line.
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import sqlite3
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from enum import Enum
from pathlib import Path
from typing import Annotated, Iterator, Literal

import knaif as nk

TABLES = """
    CREATE TABLE IF NOT EXISTS task (id INTEGER PRIMARY KEY, title TEXT, priority TEXT, due TEXT, done TEXT);
    CREATE TABLE IF NOT EXISTS tag (task INTEGER REFERENCES task ON DELETE CASCADE, name TEXT, UNIQUE (task, name));
    PRAGMA foreign_keys = ON;
"""


# What the commands take and return. Each annotation is at once the type of a Python value, a rule that is checked
# before the function is called, and a line of the help.


class Priority(Enum):
    LOW = "low"
    NORMAL = "normal"
    HIGH = "high"


TaskId = Annotated[int, nk.Arg(min=1, max=2**53, help="number of the task")]
Title = Annotated[str, nk.Arg(min=1, max=200, help="what to do")]
Tag = Annotated[str, nk.Arg(pattern="^[a-z0-9-]+$")]


@dataclass
class Task:
    id: TaskId
    title: Title
    priority: Priority = Priority.NORMAL
    due: date | None = None
    tags: list[Tag] = field(default_factory=list)
    done: date | None = None


@dataclass
class Check:
    """What doctor found."""

    path: Path
    tasks: int
    fault: str | None = None


@dataclass
class Globals:
    """Options of the program itself; they may stand anywhere on the line."""

    db: Annotated[Path | None, nk.Opt(env="TASKS_DB", help="file that holds the list")] = None


app = nk.App(
    "tasks", version="1.0.0", expose=("cli", "agent", "mcp"), global_options=Globals, commands=[nk.ask_command()],
)


# Storage


def place(ctx: nk.Ctx) -> Path:
    """Return the file that holds the list."""
    data = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    return ctx.globals.db or Path(data, "tasks.db")


@contextmanager
def opened(ctx: nk.Ctx) -> Iterator[sqlite3.Connection]:
    """Open the list for one command; what the command changed is kept only if it succeeds."""
    path = place(ctx)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        db = sqlite3.connect(path)
        try:
            db.executescript(TABLES)
            with db:
                yield db
        finally:
            db.close()
    except (OSError, sqlite3.Error) as fault:
        raise nk.Error("BAD_REQUEST", f"{path} cannot be used as a task list: {fault}") from fault


def select(db: sqlite3.Connection, where: str = "1", *values: object) -> list[Task]:
    """Return the tasks that a condition selects, in the order they were added."""
    tasks = []
    for id, title, priority, due, done in db.execute(f"SELECT * FROM task WHERE {where} ORDER BY id", values):
        tags = [name for (name,) in db.execute("SELECT name FROM tag WHERE task = ? ORDER BY name", (id,))]
        dates = [date.fromisoformat(text) if text else None for text in (due, done)]
        tasks.append(Task(id, title, Priority(priority), dates[0], tags, dates[1]))
    return tasks


def find(db: sqlite3.Connection, id: int) -> Task:
    """Return one task. Raises: NOT_FOUND."""
    found = select(db, "id = ?", id)
    if not found:
        raise nk.Error("NOT_FOUND", f"there is no task {id}", hint="tasks list --status all shows every task")
    return found[0]


def save(db: sqlite3.Connection, task: Task) -> None:
    """Write a task and its tags."""
    dates = [day.isoformat() if day else None for day in (task.due, task.done)]
    db.execute("INSERT OR REPLACE INTO task VALUES (?, ?, ?, ?, ?)", (task.id, task.title, task.priority.value, *dates))
    db.execute("DELETE FROM tag WHERE task = ?", (task.id,))
    db.executemany("INSERT OR IGNORE INTO tag VALUES (?, ?)", [(task.id, name) for name in task.tags])


# Commands


@app.command(keywords=["create", "new", "remember"], examples=['"water the plants" --due 2026-05-01 --tags home'])
def add(
    title: Title, ctx: nk.Ctx, *, priority: Priority = Priority.NORMAL, due: date | None = None, tags: list[Tag] = ()
) -> Task:
    """Add a task."""
    with opened(ctx) as db:
        (last,) = db.execute("SELECT coalesce(max(id), 0) FROM task").fetchone()
        task = Task(last + 1, title, priority, due, list(tags))
        save(db, task)
        return task


@app.command(name="list", readonly=True, keywords=["all", "find"])
def list_tasks(ctx: nk.Ctx, status: Literal["open", "done", "all"] = "open", tag: Tag | None = None) -> list[Task]:
    """List tasks."""
    with opened(ctx) as db:
        tasks = select(db, {"open": "done IS NULL", "done": "done IS NOT NULL", "all": "1"}[status])
        return [task for task in tasks if tag is None or tag in task.tags]


@app.command(readonly=True)
def show(id: TaskId, ctx: nk.Ctx) -> Task:
    """Show one task."""
    with opened(ctx) as db:
        return find(db, id)


@app.command(idempotent=True, keywords=["finish", "complete"])
def done(*ids: TaskId, ctx: nk.Ctx) -> list[Task]:
    """Mark tasks as done; all of them or, if one does not exist, none."""
    with opened(ctx) as db:
        tasks = [find(db, id) for id in ids]
        for task in tasks:
            task.done = task.done or date.today()
            save(db, task)
        return tasks


@app.command(idempotent=True, keywords=["change", "rename"])
def edit(
    id: TaskId, ctx: nk.Ctx, *, title: Title | None = None, priority: Priority | None = None, due: date | None = None
) -> Task:
    """Change what is given and leave the rest as it is."""
    with opened(ctx) as db:
        task = find(db, id)
        task.title, task.priority, task.due = title or task.title, priority or task.priority, due or task.due
        save(db, task)
        return task


@app.command(idempotent=True, keywords=["label"])
def tag(id: TaskId, *tags: Tag, remove: bool = False, ctx: nk.Ctx) -> Task:
    """Add tags to a task, or remove them."""
    with opened(ctx) as db:
        task = find(db, id)
        task.tags = sorted(set(task.tags) - set(tags) if remove else set(task.tags) | set(tags))
        save(db, task)
        return task


@app.command(destructive=True, previews=True, keywords=["delete", "forget"])
def purge(
    before: Annotated[date, nk.Arg(help="tasks done on an earlier day are removed")], ctx: nk.Ctx
) -> dict[str, list[TaskId]]:
    """Remove tasks that were done before a day, for good."""
    with opened(ctx) as db:
        ids = [task.id for task in select(db, "done < ?", before.isoformat())]
        if not ctx.dry_run:
            db.executemany("DELETE FROM task WHERE id = ?", [(id,) for id in ids])
        return {"would_remove" if ctx.dry_run else "removed": ids}


@app.command(readonly=True, keywords=["count", "summary"])
def stats(ctx: nk.Ctx) -> dict[str, int]:
    """Count tasks: all, open, done and overdue."""
    with opened(ctx) as db:
        tasks = select(db)
    undone = [task for task in tasks if task.done is None]
    overdue = [task for task in undone if task.due and task.due < date.today()]
    return {"all": len(tasks), "open": len(undone), "done": len(tasks) - len(undone), "overdue": len(overdue)}


@app.command(readonly=True, keywords=["backup", "save"])
def export(ctx: nk.Ctx) -> list[Task]:
    """Print every task as JSON that import reads."""
    with opened(ctx) as db:
        return select(db)


@app.command(name="import", keywords=["restore", "load"], examples=["< tasks.json"])
def import_tasks(
    tasks: Annotated[list[Task], nk.Arg(help="what export printed; may be piped in")], ctx: nk.Ctx
) -> dict[str, int]:
    """Read tasks from JSON; one whose number exists already is replaced."""
    with opened(ctx) as db:
        for task in tasks:
            save(db, task)
    return {"imported": len(tasks)}


# Commands of this executable alone: no model and no other program ever sees them


def show_check(check: Check, options: object) -> str:
    """Return what doctor prints for people."""
    return f"{check.path}: {check.fault or 'sound'}, {check.tasks} tasks\n"


@app.native(present=show_check, exit_code=lambda check: 1 if check.fault else 0)
def doctor(ctx: nk.Ctx) -> Check:
    """Check the file that holds the list."""
    try:
        with opened(ctx) as db:
            (verdict,) = db.execute("PRAGMA integrity_check").fetchone()
            return Check(place(ctx), len(select(db)), None if verdict == "ok" else verdict)
    except nk.Error as fault:
        return Check(place(ctx), 0, fault.message)


@app.native
def demo() -> None:
    """Walk through the commands on a temporary list."""
    import shlex
    import subprocess
    import tempfile

    lines = [
        'add "water the plants" --due 2026-05-01 --tags home',
        'add "pay the rent" --priority high --tags home --tags money',
        'add "read a novel"',
        "list --tag home",
        'edit 3 --title "read two novels" --due 2026-12-24',
        "tag 3 fun quiet --json",
        "done 1 3 --json",
        "done 99",
        "add --priority urgent",
        "stats",
        "export",
        "import < exported.json",
        "purge --before 2100-01-01",
        "purge --before 2100-01-01 --dry-run",
        "purge --before 2100-01-01 --yes",
        'ask "add call the plumber due 2026-06-01" --json',
        'ask "show task 3" --quiet --json',
        'ask "do not delete anything" --json',
        "doctor",
    ]
    with tempfile.TemporaryDirectory() as folder:
        exported = os.path.join(folder, "exported.json")
        environ = dict(os.environ, TASKS_DB=os.path.join(folder, "tasks.db"))
        for line in lines:
            print(f"$ tasks {line}", flush=True)
            words = [sys.executable, os.path.abspath(__file__)] + shlex.split(line.partition(" <")[0])
            source = exported if "<" in line else os.devnull
            with open(source, "rb") as stdin:
                # A session of its own has no terminal, so purge cannot ask and refuses instead.
                streams = {"stdin": stdin, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
                run = subprocess.run(words, env=environ, start_new_session=True, **streams)
            if line == "export":
                Path(exported).write_bytes(run.stdout)
            print(run.stdout.decode() + (f"(exit code {run.returncode})\n" if run.returncode else ""), flush=True)


if __name__ == "__main__":
    app.main()
