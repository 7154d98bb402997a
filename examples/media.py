#!/usr/bin/env python3
"""Pictures from a service that takes its time: jobs that are waited for, and files that are safe to take.

    python3 examples/media.py demo      walk through it with a service of its own, in a temporary folder
    python3 examples/media.py --help

The service is the one that --server or MEDIA_SERVER names; `media.py serve` is one to play with. Pictures on disk are
looked at and discarded below $MEDIA_FOLDER, or the current folder without that variable, and nowhere else.
"""
from __future__ import annotations

import os
import sys

# knaif.py stands one folder up. A real project, with knaif.py beside it, needs no such line.
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import json
import struct
import time
import zlib
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Annotated, Literal

import knaif as nk

JobId = Annotated[int, nk.Arg(min=1, max=2**53, help="number of the job")]


@dataclass
class File:
    url: str
    name: str


@dataclass
class Job:
    """What the service says of a job; its files come with the last answer."""

    id: JobId
    state: Literal["waiting", "done", "failed"]
    files: list[File] = field(default_factory=list)
    why: str | None = None


@dataclass
class Picture:
    name: str
    width: int
    height: int


@dataclass
class Globals:
    server: Annotated[str | None, nk.Opt(env="MEDIA_SERVER", help="address of the service")] = None


# `render --wait` asks render_status until one of these holds; `render` alone prints the job and leaves the rest to you.
wait = nk.Wait(
    "render_status",
    poll=lambda job: {"job": job["id"]},
    done=lambda job: job["state"] == "done",
    failed=lambda job: job["state"] == "failed",
    backoff=(0.2, 0.3, 0.5, 1, 2),
    timeout=60,
)

app = nk.App(
    "media",
    version="1.0.0",
    expose=("cli", "agent", "mcp"),
    commands=[nk.ask_command()],
    global_options=Globals,
    sandbox=os.environ.get("MEDIA_FOLDER") or ".",
    wait={"render": wait, "render_status": wait},
    # For --output-dir: which files belong to a result. Nothing else in a result is ever fetched.
    download=lambda result: result["files"] if isinstance(result, dict) and "files" in result else [],
    # The service of the demo stands on this machine. Addresses inside one's own network are refused unless a program
    # says this, since a URL in an answer may lead anywhere; leave it out where files come from the public network.
    download_private_hosts=True,
)


def ask(ctx: nk.Ctx, path: str, body: dict[str, object] | None = None) -> Job:
    """Ask the service and return the job that it answers with. Raises: BAD_REQUEST, NOT_FOUND, CONNECTION_*."""
    if not ctx.globals.server:
        raise nk.Error("BAD_REQUEST", "no service is named", hint="give --server, or set MEDIA_SERVER")
    # Whoever runs the program wrote this address, so it may be one of their own machines.
    answer = nk.fetch(
        ctx.globals.server.rstrip("/") + path, method="POST" if body is not None else "GET",
        body=json.dumps(body).encode() if body is not None else None, allow_private_hosts=True, cancel=ctx.cancel,
    )
    if answer.status == 404:
        raise nk.Error("NOT_FOUND", "the service knows no such job")
    try:
        job = json.loads(answer.body)
        return Job(job["id"], job["state"], [File(file["url"], file["name"]) for file in job["files"]], job["why"])
    except (ValueError, KeyError, TypeError):
        raise nk.Error("UPSTREAM_TOOL_ERROR", f"the service answered {answer.status} and no job") from None


# Commands


@app.command(keywords=["draw", "generate", "picture"], examples=['"a tide pool" --wait --output-dir out'])
def render(
    prompt: Annotated[str, nk.Arg(min=1, max=200, help="what the pictures show")], ctx: nk.Ctx, *,
    pictures: Annotated[int, nk.Arg(min=1, max=8, help="how many")] = 2,
    size: Annotated[int, nk.Arg(min=1, max=512, help="width and height in pixels")] = 64,
) -> Job:
    """Begin to render pictures; --wait stays until they are there, --output-dir saves them."""
    return ask(ctx, "/jobs", {"prompt": prompt, "pictures": pictures, "size": size})


@app.command(readonly=True, keywords=["progress", "poll"])
def render_status(job: JobId, ctx: nk.Ctx) -> Job:
    """Ask how far a job is."""
    return ask(ctx, f"/jobs/{job}")


@app.command(name="list", readonly=True, keywords=["pictures", "files"])
def list_pictures(ctx: nk.Ctx, folder: Path = Path(".")) -> list[Picture]:
    """List the pictures in a folder with their sizes."""
    names = [name for name in ctx.listdir(folder) if name.endswith(".png")]
    return [look(ctx, Path(folder, name)) for name in names]


@app.command(destructive=True, previews=True, keywords=["delete", "remove"])
def discard(picture: Annotated[Path, nk.Arg(help="a PNG file")], ctx: nk.Ctx) -> Picture:
    """Delete a picture for good; what is no picture is left alone."""
    found = look(ctx, picture)
    if not ctx.dry_run:
        ctx.unlink(picture)
    return found


def look(ctx: nk.Ctx, path: Path) -> Picture:
    """Return what the head of a PNG file says. Raises: NOT_FOUND, BAD_REQUEST."""
    try:
        with ctx.open(path, "rb") as file:
            head = file.read(24)
    except OSError as fault:
        raise nk.Error("NOT_FOUND", f"{path.name} cannot be read: {fault.strerror}") from fault
    if len(head) < 24 or not head.startswith(b"\x89PNG\r\n\x1a\n"):
        raise nk.Error("BAD_REQUEST", f"{path.name} is no PNG picture")
    return Picture(path.name, *struct.unpack(">II", head[16:]))


# The service: jobs take half a second, and pictures are stripes


class Service(BaseHTTPRequestHandler):
    seconds = 0.5  #: that a job takes
    jobs: list[tuple[float, dict]] = []  #: when each was begun, and what was asked for

    def do_POST(self) -> None:
        self.jobs.append((time.monotonic(), json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
        self.answer(self.job(len(self.jobs)))

    def do_GET(self) -> None:
        kind, *numbers = self.path.partition("?")[0].strip("/").split("/")
        if kind == "pictures":
            self.answer(stripes(int(numbers[0]), int(numbers[1])))
        elif 0 < int(numbers[0]) <= len(self.jobs):
            self.answer(self.job(int(numbers[0])))
        else:
            self.send_error(404)

    def job(self, number: int) -> dict[str, object]:
        begun, asked = self.jobs[number - 1]
        job = {"id": number, "state": "waiting", "files": [], "why": None}
        if time.monotonic() - begun < self.seconds:
            return job
        if "impossible" in asked["prompt"]:
            return {**job, "state": "failed", "why": "it cannot be drawn"}
        base = "http://%s:%d/pictures" % self.server.server_address
        # Such links are often signed; no message repeats what stands after the question mark.
        files = [{"url": f"{base}/{asked['size']}/{each}?signature=5ec2e7", "name": f"picture-{number}-{each}.png"}
                 for each in range(1, asked["pictures"] + 1)]
        return {**job, "state": "done", "files": files}

    def answer(self, what: bytes | dict[str, object]) -> None:
        body = what if isinstance(what, bytes) else json.dumps(what).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        """Say nothing: the terminal belongs to the demo."""


def stripes(size: int, period: int) -> bytes:
    """Return a square PNG picture, black and white."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + bytes([255 * (row // period % 2)]) * size for row in range(size))
    head = struct.pack(">IIBBBBB", size, size, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


# Commands of this executable alone


@app.native
def serve(port: Annotated[int, nk.Arg(min=0, max=65535)] = 8765) -> None:
    """Run the service on this machine until it is interrupted."""
    with ThreadingHTTPServer(("127.0.0.1", port), Service) as server:
        print("MEDIA_SERVER=http://127.0.0.1:%d" % server.server_port, flush=True)
        server.serve_forever()


@app.native
def demo() -> None:
    """Walk through the commands with a service and a folder of their own."""
    import shlex
    import subprocess
    import tempfile
    from threading import Thread

    lines = [
        'render "a tide pool"',
        "render_status 1 --wait --json",
        'render "a lighthouse" --pictures 3 --size 128 --wait --output-dir out --json',
        "render_status 2 --output-dir out --quiet --count-by name",
        "list out --table name,width,height",
        'render "an impossible staircase" --wait',
        'render "a slow river" --wait --wait-timeout 0.3',
        "list --output-dir out --wait",
        "list ../..",
        "discard out/picture-2-1.png",
        "discard out/picture-2-1.png --dry-run --json",
        "discard out/picture-2-1.png --yes --json",
        "discard /etc/passwd --yes",
        'ask "list the pictures in out" --json',
        'ask "discard out/picture-2-2.png" --json',
        'ask "discard ../../secret.png" --json',
    ]
    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        environ = dict(os.environ, MEDIA_SERVER="http://127.0.0.1:%d" % server.server_port, MEDIA_FOLDER=folder)
        for line in lines:
            print(f"$ media {line}", flush=True)
            words = [sys.executable, os.path.abspath(__file__)] + shlex.split(line)
            # A session of its own has no terminal, so discard cannot ask and refuses instead.
            streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
            run = subprocess.run(words, cwd=folder, env=environ, start_new_session=True, **streams)
            print(run.stdout.decode() + (f"(exit code {run.returncode})\n" if run.returncode else ""), flush=True)
    server.shutdown()


if __name__ == "__main__":
    app.main()
