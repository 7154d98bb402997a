"""CALL: what a call goes through, in which order it is refused, and what observers see."""
import asyncio
import dataclasses
import datetime
import math
import pathlib
from typing import Annotated, Any

import pytest

import knaif as nk


def engine(*commands: Any, **options: Any) -> nk.Engine:
    """An engine over these functions, exposed everywhere, in process."""
    registry = nk.Registry()
    for command in commands:
        registry.add(nk._reg_command(command, default_expose=("cli", "agent", "mcp")))
    return nk.Engine(registry, env=nk.Env(), app=None, name="t", version="1", capture=True, **options)


def call(eng: nk.Engine, name: str, args: dict, *, approval: Any = None, live: bool = False, **facts: Any) -> nk.Outcome:
    """One call through the whole pipeline, synchronously."""
    made = nk.Call(eng.find(name, facts.get("surface", "cli")), args, **facts)
    return nk._call_drive(eng.perform(made, approval or nk.Approval("none")))


def refusal(outcome: nk.Outcome) -> tuple:
    assert outcome.error is not None and not outcome.ok
    return outcome.error.code, outcome.error.message, outcome.exit_code


# -- order ---------------------------------------------------------------------------------------------------------

def test_every_step_stands_in_its_order_and_each_refusal_keeps_the_next_from_running():
    seen = []

    def step(name, refuse_at):
        seen.append(name)
        if name == refuse_at:
            raise nk.Error("CONFLICT", f"refused at {name}")

    for refuse_at in ("before_call", "resolve_auth", "context", "before_handle", "handler", "after_handle", None):
        def wipe(n: int, ctx: nk.Ctx) -> dict:
            step("handler", refuse_at)
            return {"n": n}

        eng = engine(
            nk.command(destructive=True, expose=("cli",))(wipe),
            hooks=nk.Hooks(lambda c, a: step("before_call", refuse_at), lambda c, a, e: seen.append("on_error"),
                           lambda c, a, o: seen.append("after_call")),
            lifecycle=nk.Lifecycle(lambda ctx, a: step("before_handle", refuse_at),
                                   lambda ctx, r: step("after_handle", refuse_at)),
            resolve_auth=lambda: step("resolve_auth", refuse_at),
            make_context=lambda who: step("context", refuse_at),
        )
        seen.clear()
        outcome = call(eng, "wipe", {"n": 1}, approval=nk.Approval("all"))
        order = ["before_call", "resolve_auth", "context", "before_handle", "handler", "after_handle"]
        reached = order if refuse_at is None else order[:order.index(refuse_at) + 1]
        assert seen == reached + (["on_error"] if refuse_at else []) + ["after_call"]
        assert outcome.ok is (refuse_at is None)
        assert outcome.entered is ("handler" in reached)


def test_invalid_arguments_are_refused_before_identity_is_asked_for():
    asked = []
    eng = engine(nk.command(lambda_free), resolve_auth=lambda: asked.append(1))
    outcome = call(eng, "lambda_free", {"n": "x"})
    assert outcome.error.code == "VALIDATION_ERROR" and not outcome.entered and asked == []


def lambda_free(n: int = 3) -> int:
    return n


def test_approval_is_asked_after_authorisation():
    @nk.command(destructive=True, scope="admin")
    def wipe() -> int:
        return 1

    asked = []
    ask = nk.Approval("ask", lambda admitted: asked.append(admitted.digest) or True)
    refused = call(engine(wipe, lifecycle=nk.AuthHook()), "wipe", {}, approval=ask)
    assert refusal(refused)[0] == "UNAUTHORIZED" and asked == []
    allowed = engine(wipe, lifecycle=nk.AuthHook(lambda ctx: "me", {"admin": lambda who: True}))
    assert call(allowed, "wipe", {}, approval=ask).data == 1 and len(asked) == 1


# -- approval ------------------------------------------------------------------------------------------------------

@nk.command(destructive=True, expose=("cli", "agent", "mcp"))
def purge(before: str, ctx: nk.Ctx, keep: int = 0) -> dict:
    """Purge."""
    return {"before": before, "confirmed": ctx.confirmed, "dry_run": ctx.dry_run}


def test_kinds_of_approval():
    eng = engine(purge)
    right = eng.admit(nk.Call(eng.find("purge", "cli"), {"before": "x"})).digest
    none = ("CONFIRMATION_REQUIRED", "purge is destructive and needs a confirmation", 8)
    other = ("CONFIRMATION_REQUIRED", "purge is destructive, and the approval is for another call than this one", 8)
    no = ("CONFIRMATION_REQUIRED", "purge was not confirmed, so nothing was done", 8)
    for approval, args, expected in [
        (nk.Approval("none"), {"before": "x"}, none),
        (nk.Approval("names", frozenset(["other"])), {"before": "x"}, none),
        (nk.Approval("digest", right), {"before": "y"}, other),
        (nk.Approval("digest", right), {"before": "x", "keep": 1}, other),
        (nk.Approval("digest", ""), {"before": "x"}, other),
        (nk.Approval("ask", lambda admitted: False), {"before": "x"}, no),
        (nk.Approval("ask", lambda admitted: 1), {"before": "x"}, no),
        (nk.Approval("ask", lambda admitted: "yes"), {"before": "x"}, no),
        (nk.Approval("ask", lambda admitted: None), {"before": "x"}, none),
        (nk.Approval("what"), {"before": "x"}, none),
    ]:
        outcome = call(eng, "purge", args, approval=approval)
        assert refusal(outcome) == expected and not outcome.entered
    for approval in (nk.Approval("all"), nk.Approval("names", frozenset(["purge"])), nk.Approval("digest", right),
                     nk.Approval("ask", lambda admitted: True)):
        assert call(eng, "purge", {"before": "x"}, approval=approval).data == {
            "before": "x", "confirmed": True, "dry_run": False}
    # the digest is over the admitted call: a default spelled out is the same call
    assert call(eng, "purge", {"before": "x", "keep": 0}, approval=nk.Approval("digest", right)).ok


class PROD:
    """What a digest sees of a resolved profile."""

    name, facts = "prod", {"url": "https://a.example", "token": "***"}


def test_the_digest_names_application_version_globals_profile_and_sandbox(tmp_path):
    digests = set()
    for facts in ({}, {"globals_json": {"root": "a"}}, {"find_profile": lambda: PROD}, {"sandbox": nk.Sandbox(str(tmp_path))}):
        eng = engine(purge, **facts)
        digests.add(eng.admit(nk.Call(eng.find("purge", "cli"), {"before": "x"})).digest)
    eng = engine(purge)
    eng.version = "2"
    digests.add(eng.admit(nk.Call(eng.find("purge", "cli"), {"before": "x"})).digest)
    assert len(digests) == 5


def test_a_secret_is_masked_and_cannot_be_guessed_from_the_digest():
    @nk.command(expose=("cli",))
    def login(token: Annotated[str, nk.Arg(secret=True)]) -> str:
        return "ok"

    first, second = engine(login), engine(login)
    admitted = [eng.admit(nk.Call(eng.find("login", "cli"), {"token": "tok-SECRET-123"})) for eng in (first, second)]
    assert admitted[0].digest != admitted[1].digest
    assert first.resolved_call(admitted[0]) == {"command": "login", "args": {"token": "***"}}
    assert admitted[0].values == {"token": "tok-SECRET-123"} or "tok-SECRET-123" in repr(admitted[0].values)
    outcome = call(first, "login", {"token": ["tok-SECRET-123"]})
    assert "SECRET" not in repr(outcome.error.to_wire())


# -- hooks ---------------------------------------------------------------------------------------------------------

def test_before_call_may_replace_arguments_by_a_mapping_which_is_validated_and_never_read():
    eng = engine(nk.command(lambda_free), hooks=nk.Hooks(before_call=lambda c, a: {"n": "7"}))
    assert call(eng, "lambda_free", {"n": 1}, reading="MODEL", surface="agent").error.code == "VALIDATION_ERROR"
    eng.hooks.before_call = lambda c, a: {"n": 7}
    assert call(eng, "lambda_free", {"n": 1}).data == 7
    eng.hooks.before_call = lambda c, a: a.update(n=99)  # a copy: changing it changes nothing
    assert call(eng, "lambda_free", {"n": 1}).data == 1
    eng.hooks.before_call = lambda c, a: [1]
    assert refusal(call(eng, "lambda_free", {"n": 1})) == (
        "INTERNAL_SERVER_ERROR",
        "hooks.before_call returned a list for lambda_free, which is neither a mapping nor None", 1)


def test_a_failing_observer_changes_nothing_and_sees_the_admitted_arguments():
    seen = []

    def fail(*facts):
        seen.append(facts[1])
        raise RuntimeError("observer")

    eng = engine(nk.command(lambda_free), hooks=nk.Hooks(on_error=fail, after_call=fail))
    assert call(eng, "lambda_free", {}).data == 3
    assert call(eng, "lambda_free", {"n": "x"}).error.code == "VALIDATION_ERROR"
    assert seen == [{"n": 3}, {"n": "x"}, {"n": "x"}]


def test_natives_have_no_hooks_no_lifecycle_and_no_identity():
    touched = []

    @nk.native
    def doctor(ctx: nk.Ctx) -> dict:
        return {"identity": ctx.identity, "context": ctx.context}

    eng = engine(doctor, resolve_auth=lambda: touched.append(1), make_context=lambda w: touched.append(2),
                 hooks=nk.Hooks(lambda *a: touched.append(3), lambda *a: touched.append(4), lambda *a: touched.append(5)),
                 lifecycle=nk.Lifecycle(lambda *a: touched.append(6), lambda *a: touched.append(7)))
    assert call(eng, "doctor", {}).data == {"identity": None, "context": None} and touched == []


def test_after_handle_may_replace_the_result_and_the_replacement_is_checked():
    eng = engine(nk.command(lambda_free), lifecycle=nk.Lifecycle(after_handle=lambda ctx, r: r + 1))
    assert call(eng, "lambda_free", {}).data == 4
    eng.lifecycle.after_handle = lambda ctx, r: "text"
    assert call(eng, "lambda_free", {}).error.code == "INTERNAL_SERVER_ERROR"


# -- identity ------------------------------------------------------------------------------------------------------

def test_identity_is_found_once_failure_included():
    count = []

    def fail():
        count.append(1)
        raise OSError("/home/me/.secret-key is missing")

    eng = engine(nk.command(lambda_free), resolve_auth=fail)
    for _ in range(3):
        assert refusal(call(eng, "lambda_free", {})) == (
            "INTERNAL_SERVER_ERROR", "the identity of the caller could not be found out", 1)
    assert count == [1]
    eng = engine(nk.command(lambda_free), resolve_auth=lambda: count.append(1) or "me")
    assert [call(eng, "lambda_free", {}).ok for _ in range(3)] == [True] * 3 and len(count) == 2


async def _answer(value):
    return value


@pytest.mark.parametrize("wrap", [lambda value: value, _answer])
def test_the_auth_hook_fails_closed(wrap):
    @nk.command(scope="admin")
    def wipe() -> int:
        return 1

    signed_out = ("UNAUTHORIZED", "wipe needs the scope admin, and nobody is signed in", 2)
    forbidden = ("FORBIDDEN", "wipe needs the scope admin, which this identity does not have", 3)
    for hook, expected in [
        (nk.AuthHook(), signed_out),
        (nk.AuthHook(rules={"admin": lambda who: wrap(True)}), signed_out),
        (nk.AuthHook(lambda ctx: wrap(None), {"admin": lambda who: wrap(True)}), signed_out),
        (nk.AuthHook(lambda ctx: wrap("me")), forbidden),
        (nk.AuthHook(lambda ctx: wrap("me"), {"other": lambda who: wrap(True)}), forbidden),
        (nk.AuthHook(lambda ctx: wrap("me"), {"admin": lambda who: wrap(False)}), forbidden),
        (nk.AuthHook(lambda ctx: wrap("me"), {"admin": lambda who: wrap("yes")}), forbidden),
        (nk.AuthHook(lambda ctx: wrap("me"), {"admin": lambda who: wrap(1)}), forbidden),
    ]:
        outcome = call(engine(wipe, lifecycle=hook), "wipe", {})
        assert refusal(outcome) == expected and not outcome.entered
    hook = nk.AuthHook(lambda ctx: wrap("me"), {"admin": lambda who: wrap(who == "me")})
    assert call(engine(wipe, lifecycle=hook), "wipe", {}).data == 1
    assert call(engine(nk.command(lambda_free), lifecycle=nk.AuthHook()), "lambda_free", {}).data == 3


# -- output --------------------------------------------------------------------------------------------------------

def cyclic():
    value: list = []
    value.append(value)
    return value


@pytest.mark.parametrize("result, message", [
    ({"n": 0, "mean": math.nan, "hi": [math.inf]}, "/mean"),
    ({"hi": [math.inf]}, "/hi/0"),
    ({"a": datetime.timedelta(1)}, "/a"),
    ({1: 2}, ""),
    (cyclic(), "/0"),
    (object(), ""),
])
def test_io_02_a_result_without_a_json_form_is_an_internal_error_that_names_its_path(result, message):
    def report():
        return result

    outcome = call(engine(nk.command(report)), "report", {})
    assert outcome.error.code == "INTERNAL_SERVER_ERROR" and outcome.exit_code == 1 and outcome.entered
    assert outcome.error.message.startswith("report returned a wrong result") and message in outcome.error.message


def test_a_result_against_its_annotation_is_our_fault_never_a_validation_error():
    def report() -> int:
        return "text"  # type: ignore[return-value]

    def nothing() -> int:
        pass

    for function in (report, nothing):
        outcome = call(engine(nk.command(function)), function.__name__, {})
        assert outcome.error.code == "INTERNAL_SERVER_ERROR"


def test_an_unexpected_exception_is_neutral_and_its_cause_goes_to_the_hook():
    def crash() -> int:
        raise ValueError("password hunter2")

    seen = []
    outcome = call(engine(nk.command(crash), hooks=nk.Hooks(on_error=lambda c, a, e: seen.append(e))), "crash", {})
    assert refusal(outcome) == ("INTERNAL_SERVER_ERROR", "crash failed unexpectedly", 1)
    assert "hunter2" not in repr(outcome.error.to_wire()) and repr(seen[0]) == repr(ValueError("password hunter2"))


def test_sys_exit_in_a_managed_handler_does_not_end_the_process():
    def leave() -> int:
        raise SystemExit(0)

    assert refusal(call(engine(nk.command(leave)), "leave", {})) == (
        "INTERNAL_SERVER_ERROR", "leave failed unexpectedly", 1)


def test_keyboard_interrupt_reaches_the_observers_and_then_the_caller():
    def stop() -> int:
        raise KeyboardInterrupt

    seen = []
    eng = engine(nk.command(stop), hooks=nk.Hooks(after_call=lambda c, a, o: seen.append((o.error.code, o.exit_code))))
    with pytest.raises(KeyboardInterrupt):
        call(eng, "stop", {})
    assert seen == [("REQUEST_ABORTED", 130)]


def test_what_a_handler_writes_to_its_context_comes_back_as_written():
    def warm(ctx: nk.Ctx) -> int:
        print("warming", file=ctx.stderr)
        return 1

    outcome = call(engine(nk.command(warm)), "warm", {})
    assert outcome.to_wire() == {"ok": True, "exitCode": 0, "data": 1, "written": {"stderr": "warming\n"}}
    assert call(engine(nk.command(lambda_free)), "lambda_free", {}).written is None


def test_a_handler_that_closes_its_streams_loses_what_it_wrote_and_nothing_else():
    def close(ctx: nk.Ctx) -> int:
        print("kept", file=ctx.stderr)
        ctx.stdout.write("lost")
        ctx.stdout.close()
        return 1

    outcome = call(engine(nk.command(close)), "close", {})
    assert outcome.data == 1 and outcome.written == {"stderr": "kept\n"}


def test_the_context_is_made_where_the_handler_or_the_lifecycle_sees_it():
    seen = []
    before = nk.Lifecycle(lambda ctx, args: seen.append((ctx.identity, ctx.call_id)))
    after = nk.Lifecycle(None, lambda ctx, result: seen.append((ctx.identity, ctx.call_id)))
    for lifecycle in (before, after):
        eng = engine(nk.command(lambda_free), lifecycle=lifecycle, resolve_auth=lambda: "me")
        assert call(eng, "lambda_free", {}, id=7).data == 3
    assert seen == [("me", 7), ("me", 7)]


@pytest.mark.parametrize("status", [-1, 256, 1.0, True, "1", None])
def test_an_exit_status_outside_of_posix_is_an_internal_error(status):
    @nk.native(exit_code=lambda result: status)
    def doctor() -> dict:
        return {}

    assert refusal(call(engine(doctor), "doctor", {})) == (
        "INTERNAL_SERVER_ERROR", "exit_code of doctor returned no whole number from 0 to 255", 1)


# -- dry runs, cancelling, coroutines ------------------------------------------------------------------------------

def test_a_dry_run_is_admit_then_stop():
    touched = []
    eng = engine(purge, resolve_auth=lambda: touched.append(1), hooks=nk.Hooks(after_call=lambda *a: touched.append(2)))
    outcome = call(eng, "purge", {"before": "x"}, dry_run=True)
    assert outcome.data == {"command": "purge", "args": {"before": "x", "keep": 0}} and not outcome.entered
    assert touched == []
    assert call(eng, "purge", {}, dry_run=True).error.code == "VALIDATION_ERROR"


def test_a_preview_goes_the_whole_way_but_for_the_approval():
    seen = []

    @nk.command(destructive=True, previews=True)
    def wipe(n: int, ctx: nk.Ctx) -> dict:
        return {"would": n, "dry_run": ctx.dry_run, "confirmed": ctx.confirmed}

    eng = engine(wipe, resolve_auth=lambda: seen.append("identity"))
    outcome = call(eng, "wipe", {"n": 2}, dry_run=True)
    assert outcome.data == {"command": "wipe", "args": {"n": 2},
                            "preview": {"would": 2, "dry_run": True, "confirmed": False}}
    assert seen == ["identity"]


def test_a_cancelled_call_never_reaches_the_handler():
    cancel = nk.Cancel()
    cancel.cancel("secret reason")
    outcome = call(engine(nk.command(lambda_free)), "lambda_free", {}, cancel=cancel)
    assert outcome.error.code == "REQUEST_ABORTED" and outcome.exit_code == 130 and not outcome.entered
    assert "secret" not in repr(outcome.error.to_wire())


def test_coroutine_handlers_are_awaited_and_refused_inside_a_running_loop():
    async def later(n: int) -> int:
        await asyncio.sleep(0)
        return n + 1

    eng = engine(nk.command(later))
    assert call(eng, "later", {"n": 1}).data == 2

    async def inside():
        refused = call(eng, "later", {"n": 1})
        made = nk.Call(eng.find("later", "cli"), {"n": 1})
        return refused, await eng.perform(made, nk.Approval("none"), live=True)

    refused, answered = asyncio.run(inside())
    assert refusal(refused) == (
        "BAD_REQUEST", "a coroutine handler cannot be run synchronously inside a running event loop: await arun or "
        "ainvoke instead", 1)
    assert answered.data == 2


# -- admission -----------------------------------------------------------------------------------------------------

def test_defaults_are_filled_in_and_are_copies():
    def tag(tags: list = []) -> list:  # noqa: B006  (the mutable default is the point)
        tags.append("x")
        return tags

    eng = engine(nk.command(tag))
    assert [call(eng, "tag", {}).data for _ in range(2)] == [["x"], ["x"]]


def test_model_text_is_read_on_agent_and_never_on_cli():
    eng = engine(nk.command(lambda_free))
    assert call(eng, "lambda_free", {"n": "42"}, reading="MODEL", surface="agent").data == 42
    assert call(eng, "lambda_free", {"n": "42"}).error.code == "VALIDATION_ERROR"


def test_undeclared_names_are_refused_on_agent_and_mcp_whatever_a_raw_schema_says():
    @nk.command(input={"type": "object", "properties": {"a": {}}, "additionalProperties": True})
    def raw(args):
        return args

    eng = engine(raw)
    assert call(eng, "raw", {"a": 1, "b": 2}).data == {"a": 1, "b": 2}
    for surface in ("agent", "mcp"):
        assert refusal(call(eng, "raw", {"a": 1, "b": 2}, surface=surface)) == (
            "VALIDATION_ERROR", '"b" is not a field of raw', 1)


def test_paths_are_resolved_below_the_sandbox_on_every_surface(tmp_path, monkeypatch):
    @nk.command
    def wipe(path: pathlib.Path) -> str:
        return str(path)

    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    box = nk.Sandbox(str(root))
    eng = engine(wipe, sandbox=box)
    for surface in ("agent", "mcp"):
        assert call(eng, "wipe", {"path": "sub/x"}, surface=surface).data == str(root / "sub" / "x")
        assert refusal(call(eng, "wipe", {"path": "../x"}, surface=surface))[0::2] == ("SANDBOX_ESCAPE", 3)
    eng.env.cwd = str(root / "sub")
    assert call(eng, "wipe", {"path": "x"}).data == str(root / "sub" / "x")
    eng.env.cwd = str(tmp_path)
    assert refusal(call(eng, "wipe", {"path": "x"}))[0] == "SANDBOX_ESCAPE"
    bare = engine(wipe)
    assert call(bare, "wipe", {"path": "x"}).data == "x"
    assert refusal(call(bare, "wipe", {"path": "a\0b"}))[0] == "SANDBOX_ESCAPE"
    assert refusal(call(bare, "wipe", {"path": "x"}, surface="agent")) == (
        "SANDBOX_ESCAPE", "wipe takes a path, and this application has no sandbox", 3)
    assert call(engine(wipe, sandbox=nk.UNCONFINED), "wipe", {"path": "x"}, surface="mcp").data == "x"


def test_an_unknown_command_names_the_nearest_ones():
    eng = engine(purge)
    with pytest.raises(nk.Error) as caught:
        eng.find("purg", "cli")
    assert caught.value.to_wire() == {
        "code": "NOT_FOUND", "message": 'there is no command "purg"; did you mean purge?', "retryable": False,
        "details": {"suggestions": ["purge"]}}


# Regressions

async def _raise(error):
    raise error


@pytest.mark.parametrize("make", [lambda: SystemExit(0), lambda: SystemExit("bye"), lambda: RuntimeError("x")])
@pytest.mark.parametrize("hook", ["before_call", "on_error", "after_call", "before_handle", "after_handle"])
def test_a_callback_that_leaves_or_fails_decides_nothing(hook, make):
    def leave(*facts):
        raise make()

    lifecycle = nk.Lifecycle(**{hook: leave}) if hook.endswith("handle") else None
    hooks = None if lifecycle else nk.Hooks(**{hook: leave})
    eng = engine(nk.command(lambda_free), hooks=hooks, lifecycle=lifecycle)
    outcome = call(eng, "lambda_free", {})
    if hook in ("on_error", "after_call"):
        assert outcome.ok and outcome.data == 3
        assert call(eng, "lambda_free", {"n": "x"}).exit_code == 1
    else:
        assert refusal(outcome) == ("INTERNAL_SERVER_ERROR", "lambda_free failed unexpectedly", 1)


def test_observers_may_be_coroutine_functions():
    seen = []

    async def watch(*facts):
        await asyncio.sleep(0)
        seen.append(facts[0].name)

    eng = engine(nk.command(lambda_free), hooks=nk.Hooks(on_error=watch, after_call=watch))
    assert call(eng, "lambda_free", {}).ok and seen == ["lambda_free"]
    assert not call(eng, "lambda_free", {"n": "x"}).ok and len(seen) == 3


def test_a_before_handle_that_returns_false_refuses():
    eng = engine(nk.command(lambda_free), lifecycle=nk.Lifecycle(lambda ctx, args: False))
    outcome = call(eng, "lambda_free", {})
    assert refusal(outcome) == ("FORBIDDEN", "lambda_free is not allowed here", 3) and not outcome.entered


def test_an_identity_that_is_false_is_nobody():
    @nk.command(scope="admin")
    def wipe() -> int:
        return 1

    hook = nk.AuthHook(lambda ctx: False, {"admin": lambda who: True})
    assert refusal(call(engine(wipe, lifecycle=hook), "wipe", {}))[0] == "UNAUTHORIZED"


def test_arguments_that_are_no_json_are_refused_in_process():
    outcome = call(engine(nk.command(lambda_free)), "lambda_free", {"n": math.nan})
    assert outcome.error.code == "VALIDATION_ERROR" and not outcome.entered
    assert outcome.error.message.startswith("the arguments of lambda_free are not JSON: ")


def test_an_error_of_another_copy_of_the_module_is_relayed_and_a_hostile_exception_is_not():
    class Foreign(Exception):
        def to_wire(self):
            return {"code": "CONFLICT", "message": "taken", "retryable": False, "hint": "wait"}

    class Hostile(Exception):
        @property
        def code(self):
            raise RuntimeError

        def to_wire(self):
            return {"code": 7}

    def fail(hostile: bool) -> int:
        raise Hostile() if hostile else Foreign()

    eng = engine(nk.command(fail))
    assert refusal(call(eng, "fail", {"hostile": False})) == ("CONFLICT", "taken", 5)
    assert refusal(call(eng, "fail", {"hostile": True})) == ("INTERNAL_SERVER_ERROR", "fail failed unexpectedly", 1)


def test_an_error_takes_texts():
    for words in ((None, None), ("X", object()), (7, "x")):
        with pytest.raises(TypeError):
            nk.Error(*words)


def test_an_absolute_path_needs_no_current_folder(tmp_path, monkeypatch):
    @nk.command
    def show(path: pathlib.Path) -> str:
        return str(path)

    eng = engine(show, sandbox=nk.Sandbox(str(tmp_path)))
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert call(eng, "show", {"path": str(tmp_path / "x")}).data == str(tmp_path / "x")


@dataclasses.dataclass
class Target:
    n: int = 0
    path: pathlib.Path = pathlib.Path("/etc/passwd")
    token: Annotated[str, nk.Arg(secret=True)] = "tok-SECRET-123"


def test_defaults_inside_objects_are_admitted_shown_and_kept_below_the_sandbox(tmp_path):
    @nk.command(destructive=True, expose=("cli",))
    def wipe(where: Target) -> str:
        return str(where.path)

    eng = engine(wipe, sandbox=nk.Sandbox(str(tmp_path)))
    assert refusal(call(eng, "wipe", {"where": {}}, approval=nk.Approval("all")))[0::2] == ("SANDBOX_ESCAPE", 3)
    eng = engine(wipe)
    shown = call(eng, "wipe", {"where": {}}, dry_run=True)
    assert shown.data["args"] == {"where": {"n": 0, "path": "/etc/passwd", "token": "***"}}
    assert call(eng, "wipe", {"where": {}}, approval=nk.Approval("all")).data == "/etc/passwd"


def test_results_without_an_annotation_are_written_as_annotated_ones_are():
    def report():
        return {"day": datetime.date(2026, 5, 1), "where": pathlib.Path("x"), "both": {2, 1}, "target": Target(n=1)}

    outcome = call(engine(nk.command(report)), "report", {})
    assert outcome.ok and outcome.data["day"] == "2026-05-01" and outcome.data["where"] == "x"
    assert outcome.data["both"] == [1, 2] and outcome.data["target"]["n"] == 1
