#!/usr/bin/env python3
"""A shop on a server: one program, several accounts (profiles), calls that cost money, a line protocol, a batch.

    python3 examples/remote.py demo      walk through it with a service of its own, in a temporary folder
    python3 examples/remote.py --help

Profiles are kept in $XDG_CONFIG_HOME/remote (~/.config/remote without that variable), or where REMOTE_PROFILES says.
`remote.py serve` is a service to play with.
"""
from __future__ import annotations

import os
import sys

# knaif.py stands one folder up. A real project, with knaif.py beside it, needs no such line.
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import json
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Annotated

import knaif as nk

Count = Annotated[int, nk.Arg(min=1, max=1000)]
OrderId = Annotated[str, nk.Arg(pattern="^[A-Za-z0-9-]+$", help="the order, as it was answered")]


@dataclass
class Account:
    """What a profile holds: `remote profile-set NAME --url ... --stdin` writes one."""

    url: Annotated[str, nk.Arg(pattern="^https?://", help="address of the service")]
    token: Annotated[str, nk.Arg(min=1, secret=True, help="what the service knows you by")]


@dataclass
class Order:
    id: OrderId
    item: str
    count: Count


accounts = nk.ProfileStore(
    os.environ.get("REMOTE_PROFILES") or nk.config_dir("remote"), Account, variable="REMOTE_PROFILE",
    create_hint=lambda name, path: f"remote profile-set {name} --url https://... --stdin reads its token as JSON",
)

app = nk.App("remote", version="1.0.0", expose=("cli", "agent", "mcp"), profiles=accounts, commands=[
    nk.stream_command("jsonl"), nk.batch_command(), *nk.profile_commands(accounts),
])


def ask(ctx: nk.Ctx, method: str, path: str, body: object = None) -> object:
    """Send one request to the service of the resolved profile and return its answer."""
    account: Account = ctx.profile.value
    answer = nk.fetch(
        account.url + path, method=method, body=json.dumps(body).encode() if body is not None else None,
        headers={"Authorization": "Bearer " + account.token, "Idempotency-Key": str(ctx.call_id or "")},
        allow_private_hosts=True,  # the address is the operator's own, not one from a document
    )
    said = json.loads(answer.body)
    if answer.status != 200:
        code = {401: "UNAUTHORIZED", 404: "NOT_FOUND"}.get(answer.status, "UPSTREAM_TOOL_ERROR")
        raise nk.Error(code, f"the service answered: {said.get('error')}", relayed=True)
    return said


@app.command(readonly=True)
def whoami(ctx: nk.Ctx) -> dict[str, str]:
    """Show which account is used, why, and whom the service takes you for."""
    who = ask(ctx, "GET", "/whoami")
    return {"profile": ctx.profile.name, "source": ctx.profile.source, "account": str(who["account"])}


@app.command(readonly=True, name="list")
def list_orders(ctx: nk.Ctx) -> list[Order]:
    """List the orders of this account."""
    return [Order(**order) for order in ask(ctx, "GET", "/orders")]


@app.command(keywords=["buy"])
def order(item: Annotated[str, nk.Arg(min=1, max=100)], ctx: nk.Ctx, count: Count = 1) -> Order:
    """Order something. This costs money, so it is never repeated without need."""
    return Order(**ask(ctx, "POST", "/orders", {"item": item, "count": count}))


@app.command(destructive=True, keywords=["delete"])
def cancel(id: OrderId, ctx: nk.Ctx) -> Order:
    """Cancel an order for good."""
    return Order(**ask(ctx, "DELETE", "/orders/" + id))


# A service to play with: two accounts, each with its own orders


class Service(BaseHTTPRequestHandler):
    accounts = {"token-of-ann": "ann", "token-of-ben": "ben"}
    orders: dict[str, dict[str, dict[str, object]]] = {"ann": {}, "ben": {}}

    def answer(self, status: int, body: object) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def handle_call(self) -> None:
        account = self.accounts.get(self.headers.get("Authorization", "").partition("Bearer ")[2])
        if account is None:
            return self.answer(401, {"error": "nobody is known by this token"})
        orders = self.orders[account]
        id = self.path.rpartition("/")[2]
        if self.path == "/whoami":
            self.answer(200, {"account": account})
        elif self.path == "/orders" and self.command == "GET":
            self.answer(200, list(orders.values()))
        elif self.path == "/orders":
            said = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            made = {"id": f"{account}-{len(orders) + 1}", "item": said["item"], "count": said["count"]}
            orders[str(made["id"])] = made
            self.answer(200, made)
        elif self.command == "DELETE" and id in orders:
            self.answer(200, orders.pop(id))
        else:
            self.answer(404, {"error": f"there is no order {id}"})

    do_GET = do_POST = do_DELETE = handle_call

    def log_message(self, *words: object) -> None:
        """Keep the terminal for the answers."""


@app.native
def serve(port: Annotated[int, nk.Arg(min=0, max=65535)] = 0) -> None:
    """Be a service to play with, until Ctrl-C; its tokens are token-of-ann and token-of-ben."""
    with ThreadingHTTPServer(("127.0.0.1", port), Service) as server:
        print("http://127.0.0.1:%d" % server.server_port, flush=True)
        server.serve_forever()


@app.native
def demo() -> None:
    """Walk through the commands with a service of its own and profiles in a temporary folder."""
    import subprocess
    import tempfile
    import threading

    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = "http://127.0.0.1:%d" % server.server_port
    lines = [
        "remote whoami",
        f"""echo '{{"token": "token-of-ann"}}' | remote profile-set ann --url {url} --stdin""",
        "remote whoami",
        f"""echo '{{"token": "token-of-ben"}}' | remote profile-set ben --url {url} --stdin""",
        "remote whoami",
        "remote --profile bob whoami",
        "remote --profile ben whoami",
        "REMOTE_PROFILE=ann remote whoami",
        "REMOTE_PROFILE=ann remote profile-show",
        "export REMOTE_PROFILE=ann; cat orders.jsonl",
        "remote jsonl < orders.jsonl",
        "remote batch orders.jsonl",
        "remote batch orders.jsonl",
        "remote --profile ben batch orders.jsonl",
        "remote batch orders.jsonl --status",
        "remote list --count-by item",
        "remote cancel ann-1 </dev/null",
        "remote cancel ann-1 --yes --json",
    ]
    calls = [("a", "order", {"item": "tea", "count": 2}), ("b", "order", {"item": "tea"}), ("c", "order", {"count": 1}),
             ("d", "cancel", {"id": "ann-1"})]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "orders.jsonl").write_text("".join(
            json.dumps({"id": id, "command": command, "args": args}) + "\n" for id, command, args in calls))
        program = Path(folder, "remote")
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{os.path.abspath(__file__)}" "$@"\n')
        program.chmod(0o755)
        environ = dict(os.environ, REMOTE_PROFILES=os.path.join(folder, "profiles"),
                       PATH=folder + os.pathsep + os.environ.get("PATH", ""))
        environ.pop("REMOTE_PROFILE", None)
        for line in lines:
            print("$ " + line, flush=True)
            streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "stdin": subprocess.DEVNULL}
            run = subprocess.run(["sh", "-c", line], cwd=folder, env=environ, start_new_session=True, **streams)
            if line.startswith("export REMOTE_PROFILE"):
                environ["REMOTE_PROFILE"] = "ann"
            shown = run.stdout.decode().replace(folder, "/tmp/demo")
            print(shown + (f"(exit code {run.returncode})\n" if run.returncode else ""), flush=True)
    server.shutdown()


if __name__ == "__main__":
    app.main()
