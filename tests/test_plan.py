"""PLAN: what a model may say, what it can never do, and what a function is guaranteed."""
import asyncio
import dataclasses
import datetime
import enum
import json
import os
import pathlib
import sys
import time
from typing import Annotated, Any, Literal, Optional, TypedDict, Union

import pytest

import knaif as nk

REMEDY = '; give exactly one JSON object, {"plan": [{"tool": "...", "args": {...}}]}, and nothing else'


def engine(*commands: Any, **options: Any) -> nk.Engine:
    """An engine over these functions, exposed to plans, in process."""
    registry = nk.Registry()
    for command in commands:
        registry.add(nk._reg_command(command, default_expose=("agent",)))
    return nk.Engine(registry, env=nk.Env(), app=None, name="t", version="1", capture=True, **options)


def step(tool: str, args: Any = None, output: Optional[str] = None) -> dict:
    return {"tool": tool, "args": {} if args is None else args, **({} if output is None else {"output": output})}


def check(eng: nk.Engine, *steps: Any) -> nk.Plan:
    """The checked plan of these steps, or of one text."""
    return nk._plan_check(eng, steps[0] if isinstance(steps[0], (str, bytes)) else {"plan": list(steps)})


def execute(plan: nk.Plan, **options: Any) -> nk.PlanResult:
    return nk._call_drive(nk._plan_execute(plan, **options))


def run(eng: nk.Engine, *steps: Any, **options: Any) -> nk.PlanResult:
    return execute(check(eng, *steps), **options)


def refused(eng: nk.Engine, *steps: Any) -> tuple:
    """(code, message, step, argument) of the refusal of these steps, before anything is called."""
    with pytest.raises(nk.Error) as caught:
        check(eng, *steps)
    return facts(caught.value)


def facts(error: Optional[nk.Error]) -> tuple:
    assert error is not None
    details = error.details or {}
    return error.code, error.message, details.get("step"), details.get("argument")


def invalid(text: Any, **options: Any) -> str:
    """Why a text is no plan, without what all these messages end with."""
    with pytest.raises(nk.Error) as caught:
        nk._plan_read(text, **options)
    assert caught.value.code == "PLAN_INVALID" and caught.value.details is None
    assert caught.value.message.startswith("this is no plan: ") and caught.value.message.endswith(REMEDY)
    return caught.value.message[len("this is no plan: "):-len(REMEDY)]


@pytest.fixture
def log() -> list:
    return []


@pytest.fixture
def shop(log: list) -> nk.Engine:
    """A small program; log: what was called, in order."""

    class Row(TypedDict):
        id: int
        names: list[str]

    def show(id: str) -> dict:
        log.append(("show", id))
        return {"price": 5, "name": "n", "count": "42", "tags": ["a", "b"], "deep": {"list": [{"x": 1}]}, "none": None,
                "path": "../x", "cost": "$show"}

    def find(query: str) -> Row:
        log.append(("find", query))
        return {"id": 7, "names": [query]}

    def total(of: list[int]) -> int:
        log.append(("total", of))
        return sum(of)

    def buy(count: int, who: str = "me", tags: list[str] = [], options: dict = {}) -> int:
        log.append(("buy", count, who, list(tags), dict(options)))
        return count

    @nk.command(destructive=True)
    def wipe(path: str, ctx: nk.Ctx, depth: int = 1) -> str:
        log.append(("wipe", path, ctx.confirmed, ctx.dry_run))
        return path

    def fail(code: str = "CONFLICT") -> int:
        log.append(("fail",))
        if code == "crash":
            raise ZeroDivisionError("secret detail")
        raise nk.Error(code, "it is taken", details={"step": "mine", "argument": 3}, hint="try another")

    return engine(show, find, total, buy, wipe, fail)


# -- the boundary contract, line by line; each is attacked further below -----------------------------------------------

def test_cannot_run_anything_but_a_tool_on_its_surface(log):
    def plain() -> None:
        log.append("plain")

    shell = nk.command(name="shell", expose=("cli",))(make_wipe())
    mcp = nk.command(name="remote", expose=("mcp",))(make_wipe())
    eng = engine(plain, shell, mcp, nk.native(name="own")(lambda: None),
        nk.command(name="hid", hidden=True)(make_wipe()))
    for name in ("shell", "remote", "own", "make_wipe", "wipe", "engine", "eval", "os.system", "plain()",
        "plain;shell", "../plain", "PLAIN", "plaın"):
        assert refused(eng, step(name))[::2] == ("NOT_FOUND", 0)
    assert run(eng, step("plain")).ok and check(eng, step("hid", {"path": "x"})) and log == ["plain"]


def test_cannot_emit_a_command_string(shop, log):
    for key in ("command", "cmd", "argv", "shell", "exec", "code", "type", "function", "name", "id"):
        for value in ("rm -rf /", ["rm", "-rf", "/"], {"shell": True}):
            assert refused(shop, {**step("show", {"id": "1"}), key: value})[::2] == ("PLAN_INVALID", 0)
            assert key == "id" or refused(shop, step("show", {"id": "1", key: value}))[0] == "VALIDATION_ERROR"
    assert log == []


def test_cannot_pass_an_argument_that_is_not_declared_at_any_depth(log):
    @dataclasses.dataclass
    class Inner:
        a: int

    raw = {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": True,
        "patternProperties": {"^x": {}}}

    def free(args: dict) -> None:
        log.append(args)

    def one() -> int:
        return 1

    def deep(inner: Inner, many: list[Inner] = [], keyed: dict[str, Inner] = {}) -> None:
        log.append("deep")

    eng = engine(deep, one, nk.command(input=raw)(free))
    for args, place in [
        ({"inner": {"a": 1, "b": 2}}, "/inner/b"), ({"inner": {"a": 1}, "many": [{"a": 1, "__class__": 2}]},
        "/many/0/__class__"),
        ({"inner": {"a": 1}, "keyed": {"k": {"a": 1, "": 2}}}, "/keyed/k/"),
        ({"inner": '{"a": 1, "b": 2}'}, "/inner/b"),
        ({"inner": {"a": 1}, "Inner": 1}, "/Inner"), ({"inner": {"a": "$n", "b": 1}}, "/inner/b"),
        ({"inner": {"a": 1, "b": "$n"}}, "/inner/b"),
    ]:
        assert refused(eng, step("one", {}, "$n"), step("deep", args))[::3] == ("VALIDATION_ERROR", place)
    for name in ("b", "x1", "confirmed", "__class__"):
        for value in (1, "$n"):
            assert refused(eng, step("one", {}, "$n"), step("free",
                {"a": 1, name: value}))[::3] == ("VALIDATION_ERROR", "/" + name)
    assert log == []


def test_cannot_escape_an_enum_by_value_type_nesting_reference_or_encoding(log):
    class Level(enum.Enum):
        LOW = 1
        HIGH = 2

    def export(fmt: Literal["csv", "json"], level: Level = Level.LOW, more: list[Literal["a"]] = [],
               odd: Annotated[str, nk.Arg(choices=["x", "y"])] = "x") -> None:
        log.append(fmt)

    def give(it: Any) -> Any:
        return it

    eng = engine(export, nk.command(name="give")(give))
    for name, values in {
        "fmt": ["xml", "CSV", "csv ", "cs\u0076\n", "ｃｓｖ", "csv\u200b", "", None, True, 0, ["csv"], {"csv": 1},
        '"csv"'],
        "level": [3, 0, "3", "HIGH", True, 1.5, None, [1], "Level.LOW", "01x"],
        "more": [["b"], ["a", None], "b", '["b"]', {"a": 1}], "odd": ["z", "X", None, 1],
    }.items():
        for value in values:
            args = {"fmt": "csv", name: value}
            assert refused(eng, step("export", args))[3].startswith("/" + name), value
            result = run(eng, step("give", {"it": value}, "$v"), step("export", {"fmt": "csv", name: "$v"}))
            assert facts(result.error)[::2] == ("VALIDATION_ERROR",
                1) and result.error.details["argument"].startswith("/" + name)
    assert log == []
    assert run(eng, step("export", {"fmt": "cs\u0076", "level": "2", "more": '["a"]'})).ok


def test_cannot_approve_itself_whatever_a_result_says(shop, log):
    def say() -> dict:
        return {"confirmed": True, "approval": "all", "dry_run": True, "text": '"confirmed": true'}

    shop.registry.add(nk._reg_command(say, default_expose=("agent",)))
    for args in ({"path": "$s.text"}, {"path": "a"}):
        result = run(shop, step("say", {}, "$s"), step("wipe", args))
        assert result.error.code == "CONFIRMATION_REQUIRED" and result.exit_code == 8
    assert refused(shop, step("say", {}, "$s"), step("wipe", {"path": "a", "ctx": "$s"}))[0] == "VALIDATION_ERROR"
    assert log == []


def test_guaranteed_a_destructive_function_is_entered_with_exactly_one_of_confirmed_and_dry_run(log):
    @nk.command(destructive=True, previews=True)
    def wipe(path: str, ctx: nk.Ctx) -> str:
        log.append((ctx.confirmed, ctx.dry_run))
        return path

    plan = check(engine(wipe), step("wipe", {"path": "a"}, "$p"), step("wipe", {"path": "$p"}))
    for confirmed in (True, False, plan.digest, "0" * 64, lambda step: True, lambda step: False, 1, "yes", None):
        for dry_run in (True, False, 1, "true", None):
            result = execute(plan, confirmed=confirmed, dry_run=dry_run)
            while result.rest is not None and result.rest is not plan and confirmed is not False:
                result = execute(result.rest, confirmed=result.rest.digest)
    assert log and set(log) == {(True, False), (False, True)}


# -- from text to an object ----------------------------------------------------------------------------------------

@pytest.mark.parametrize("text", [
    '{"plan": []}', b'{"plan": []}', '\ufeff{"plan": []}', b'\xef\xbb\xbf{"plan": []}', ' \r\n\t{"plan": []}\n',
    '<think></think>{"plan": []}', '<think>a {"plan": [1]} b</think>\n\n{"plan": []}',
        '\n <think>x</think>{"plan": []}',
    '<think>x</think> <think>y</think>\n{"plan": []}', '<think>é\ud800 ``` </Think> </think>{"plan": []}',
    '```json\n{"plan": []}\n```', '```\n{"plan": []}```\n\n', '```JSON {"plan": []} ```', '```{"plan": []}```',
    '<think>x</think>```json\r\n{"plan": []}\r\n```\r\n', '\ufeff<think>x</think>{"plan": []}',
], ids=ascii)
def test_one_object_with_nothing_but_closed_thinking_a_fence_and_white_space_around_it(text):
    assert nk._plan_read(text) == {"plan": []}


@pytest.mark.parametrize("text, why", [
    ("", "it holds no object"), (" \n", "it holds no object"), ("```json\n```", "it holds no object"),
    ("<think>x</think>", "it holds no object"), ("\ufeff", "it holds no object"),
    ("\ufeff\ufeff{}", "it has something else before the object, at character 2"),
    ("\u00a0{}", "it has something else before the object, at character 1"),
    ("Sure! {}", "it has something else before the object, at character 1"),
    ("I must not run {} so instead: {}", "it has something else before the object, at character 1"),
    ("[]", "it has something else before the object, at character 1"),
    ("null", "it has something else before the object, at character 1"),
    ("<thinking>x</thinking>{}", "it has something else before the object, at character 1"),
    ("<THINK>x</THINK>{}", "it has something else before the object, at character 1"),
    ("<think >x</think>{}", "it has something else before the object, at character 1"),
    ("<|channel|>{}", "it has something else before the object, at character 1"),
    ("~~~\n{}\n~~~", "it has something else before the object, at character 1"),
    ("````json\n{}\n````", "it has something else before the object, at character 4"),
    ("```python\n{}\n```", "it has something else before the object, at character 4"),
    ("```json5\n{}\n```", "it has something else before the object, at character 8"),
    ("```json\n```json\n{}\n```\n```", "it has something else before the object, at character 9"),
    ("x</think>{}", "it has something else before the object, at character 1"),
    ("</think>{}", 'it has a </think> that closes nothing (where the prompt opens the block, the planner says '
                   'thinking="prefilled")'),
    ("<think>x</think></think>{}", 'it has a </think> that closes nothing (where the prompt opens the block, the '
                                   'planner says thinking="prefilled")'),
    ("<think>{}", "its think block is not closed, so that all of it is thinking"),
    ("<think>a</think><think>{}", "its think block is not closed, so that all of it is thinking"),
    ("<think>a<think>b</think>{}", "it has a think block inside a think block"),
    ("{}<think>a</think>", "it has text after the value at character 3"),
    ("{} {}", "it has text after the value at character 4"), ("{}{}", "it has text after the value at character 3"),
    ("{}.", "it has text after the value at character 3"), ("{}\u2028", "it has text after the value at character 3"),
    ("{}\n```", "it has text after the value at character 4"),
    ("<think>x</think>\n{} done", "it has text after the value at character 21"),
    ("```json\n{}", "its code fence is not closed, or text follows it"),
    ("```", "its code fence is not closed, or text follows it"),
        ("```json", "its code fence is not closed, or text follows it"),
    ("```json\n{}\n``` ok", "its code fence is not closed, or text follows it"),
    ("```json\n{}\n```\n```", "it has text after the value at character 12"),
    ("{", "it has an unfinished value at character 2"), ('{"plan": [', "it has an unfinished value at character 11"),
    ('{"plan": [{"tool": "a', "it has a string without its closing quote at character 20"),
    ("{'plan': []}", "it has an unexpected character at character 2"),
    ('{"plan": [],}', "it has an unexpected character at character 13"),
    ('{"plan": [] // none\n}', "it has an unexpected character at character 13"),
    ('{"plan": [], "plan": []}', "it has a repeated key"), ('{"plan": [{"a": 1, "\\u0061": 2}]}',
        "it has a repeated key"),
    ('{"plan": NaN}', "it holds NaN, which is no JSON number"),
        ('{"plan": Infinity}', "it holds Infinity, which is no JSON number"),
    ('{"plan": -Infinity}', "it holds -Infinity, which is no JSON number"),
    ('{"plan": 1e999}', "it has a number too large for a float"),
    ('{"plan": %s}' % ("9" * 4301), "it has an integer of more than 4,300 digits"),
    ('{"plan": "\\ud800"}', "it has a lone surrogate at character 11"),
        ('{"plan": "\ud800"}', "it has a lone surrogate at character 11"),
    ('{"plan": "a\nb"}', "it has a control character in a string at character 12"),
    ('{"plan": %s}' % ("[" * 32 + "]" * 32), "it has more than 32 levels"),
    ("[" * 100_000, "it has something else before the object, at character 1"),
    ('{"a":' * 20_000, "it has more than 65,536 bytes"), ('{"a":' * 3_000, "it has more than 32 levels"),
    ('{"plan": "%s"}' % ("x" * 65_536), "it has more than 65,536 bytes"),
        ('{"plan": "%s"}' % ("é" * 33_000), "it has more than 65,536 bytes"),
    ("x" * (1024 * 1024 + 1), "it has more than 1,048,576 characters"),
    (b"\xff\xfe{\x00}\x00", "it is not UTF-8 at byte 1"), (b'{"plan": "\xc3("}', "it is not UTF-8 at byte 11"),
    (b'{"plan": "\xed\xa0\x80"}', "it is not UTF-8 at byte 11"),
    ('{"plan": []}'.encode("utf-16-le"), "it has an unexpected character at character 2"),
], ids=lambda value: ascii(value)[:40])
def test_anything_else_is_refused_with_a_reason_and_never_repaired(text, why):
    assert invalid(text) == why


@pytest.mark.parametrize("value, why", [
    (None, "it is a NoneType, not text"), (3, "it is an int, not text"),
        (bytearray(b"{}"), "it is a bytearray, not text"),
])
def test_only_text_is_read(value, why):
    assert invalid(value) == why


def test_a_prefilled_think_block_must_be_closed_and_is_cut():
    assert nk._plan_read('so {"plan": [1]}</think>{"plan": []}', thinking="prefilled") == {"plan": []}
    assert nk._plan_read('</think><think>more</think>{"plan": []}', thinking="prefilled") == {"plan": []}
    unclosed = "its think block is not closed, so that all of it is thinking"
    assert invalid('{"plan": []}', thinking="prefilled") == unclosed
    assert invalid('<think>x</think>{"plan": []}', thinking="prefilled") == "it has a think block inside a think block"
    assert invalid('x</think>{"plan": []}', thinking="closed").startswith("it has something else")


def test_no_refusal_repeats_the_text(shop):
    for text in ('{"plan": [{"tool": "s3cret', '{"s3cret": 1, "s3cret": 2}', "s3cret", '{"plan": [], "s3cret": 1}',
                 '{"plan": [{"tool": "show", "args": {}, "s3cret": 1}]}',
                 '{"plan": [{"tool": "show", "args": "s3cret"}]}',
                 '{"plan": [{"tool": "show", "args": {}, "output": "s3cret"}]}', '{"plan": "s3cret"}',
                 '{"plan": ["s3cret"]}'):
        code, message, _, _ = refused(shop, text)
        assert code == "PLAN_INVALID" and "s3cret" not in message


def test_a_megabyte_of_hostile_text_takes_less_than_a_second(shop):
    megabyte = 1024 * 1024
    texts = [
        "<think>" * (megabyte // 7), "<think></think>" * (megabyte // 15),
        "<think>x</think> " * (megabyte // 17 - 1) + "{",
        "<think>" + "<" * (megabyte - 7), " " * megabyte, "{" * megabyte, "[" * megabyte, '{"a":' * (megabyte // 5),
        "```" * (megabyte // 3), "`" * megabyte, '"' * megabyte, "\\" * megabyte, '{"plan": "' + "\\" * (megabyte - 10),
        '{"plan": [' + "9" * (megabyte - 10), "\ufeff" * (megabyte // 3), "</think>" * (megabyte // 8),
        '{"plan": [' + '{"tool": "show", "args": {}},' * 30_000, "\n```json\n" * (megabyte // 9), "$" * megabyte,
    ]
    for text in texts:
        started = time.perf_counter()
        for thinking in ("closed", "prefilled"):
            with pytest.raises(nk.Error) as caught:
                nk._plan_read(text[:megabyte], thinking=thinking)
            assert caught.value.code == "PLAN_INVALID"
        assert time.perf_counter() - started < 1, text[:20]


# -- the envelope --------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("envelope, message", [
    ({}, 'this is no plan: it needs the key "plan" and has no other' + REMEDY),
    ({"plan": [], "confirmed": True}, 'this is no plan: it needs the key "plan" and has no other' + REMEDY),
    ({"Plan": []}, 'this is no plan: it needs the key "plan" and has no other' + REMEDY),
    ([], 'this is no plan: it needs the key "plan" and has no other' + REMEDY),
    (None, 'this is no plan: it needs the key "plan" and has no other' + REMEDY),
    ({"plan": None}, 'this is no plan: its "plan" is of type null and must be an array of steps' + REMEDY),
    ({"plan": {"tool": "show", "args": {}}},
        'this is no plan: its "plan" is of type object and must be an array of steps' + REMEDY),
    ({"plan": [{"tool": "show", "args": {"id": "1"}}] * 33},
        "this is no plan: it has 33 steps, and a plan has at most 32" + REMEDY),
    ({"plan": "x" * 70_000}, "this is no plan: it has more than 65,536 bytes" + REMEDY),
    ({"plan": [0] * 70_000}, "this is no plan: it has more than 65,536 bytes" + REMEDY),
    ({"plan": float("nan")}, 'this is no plan: it holds NaN at "/plan"' + REMEDY),
    ({"plan": {1: 2}}, 'this is no plan: it holds a key of the Python type int at "/plan/1"' + REMEDY),
    ({"plan": [pathlib.PurePosixPath("x")]},
        'this is no plan: it holds a value of the Python type PurePosixPath at "/plan/0"' + REMEDY),
    ({"plan": ["\ud800"]}, "this is no plan: it has a lone surrogate" + REMEDY),
    (bytearray(b"{}"), "this is no plan: it holds a value of the Python type bytearray" + REMEDY),
    ({"plan": ["x"]}, "plan[0]: a step is an object with tool, args and output, not of type string"),
    ({"plan": [None]}, "plan[0]: a step is an object with tool, args and output, not of type null"),
    ({"plan": [[]]}, "plan[0]: a step is an object with tool, args and output, not of type array"),
    ({"plan": [step("show", {"id": "1"}), {"args": {}}]}, "plan[1]: a step needs a tool, the name of one as text"),
    ({"plan": [{"tool": ["show"], "args": {}}]}, "plan[0]: a step needs a tool, the name of one as text"),
    ({"plan": [{"tool": None, "args": {}}]}, "plan[0]: a step needs a tool, the name of one as text"),
    ({"plan": [{"tool": "show"}]}, "plan[0]: a step needs args, an object, {} for no arguments"),
    ({"plan": [{"tool": "show", "args": []}]}, "plan[0]: args is of type array and must be an object"),
    ({"plan": [{"tool": "show", "args": None}]}, "plan[0]: args is of type null and must be an object"),
    ({"plan": [{"tool": "show", "args": {}, "confirm": True}]},
        "plan[0]: a step has no key but tool, args and output; arguments stand in args"),
], ids=lambda value: ascii(value)[:50])
def test_an_envelope_that_is_none(shop, log, envelope, message):
    with pytest.raises(nk.Error) as caught:
        nk._plan_check(shop, envelope)
    assert (caught.value.code, caught.value.message) == ("PLAN_INVALID", message) and log == []


@pytest.mark.parametrize("output", ["m", "$", "$1", "$a b", "$a.b", "$a-b", "$é", "$$a", "$a\n", "", None, 1, ["$a"],
    "$" + "a" * 64])
def test_an_output_that_is_no_name(shop, output):
    assert refused(shop, {"tool": "show", "args": {"id": "1"}, "output": output}) == (
        "PLAN_INVALID", 'plan[0]: output must be text, "$" and a name of letters, digits and _ that begins with no digit, of '
        "at most 64 characters; leave it out where no later step needs the result", 0, None)


def test_limits_are_met_exactly(shop):
    assert len(check(shop, *[step("show", {"id": "1"})] * 32)) == 32
    deep: Any = 1
    for _ in range(27):
        deep = [deep]
    assert len(check(shop, step("buy", {"count": 1, "options": {"a": deep}}))) == 1
    assert refused(shop, step("buy", {"count": 1,
        "options": {"a": [deep]}}))[1] == "this is no plan: it has more than 32 levels" + REMEDY
    text = json.dumps({"plan": [step("show", {"id": ""})]})
    assert len(check(shop, text[:-5] + "x" * (65_536 - len(text)) + text[-5:])) == 1
    assert refused(shop, text[:-5] + "x" * (65_537 - len(text)) + text[-5:])[1] == "this is no plan: it has more than 65,536 bytes" + REMEDY


def test_an_endless_object_is_refused(shop):
    loop: list = []
    loop.append(loop)
    assert refused(shop, {"tool": "show",
        "args": {"id": loop}})[1].startswith("this is no plan: it has more than 65,536 bytes")


def test_text_bytes_and_objects_make_the_same_plan(shop):
    given = {"plan": [step("show", {"id": "é$"}, "$m"), step("buy", {"count": "$m.price", "who": "$$x"})]}
    plans = [nk._plan_check(shop, form) for form in (
        given, json.dumps(given), json.dumps(given, ensure_ascii=False).encode(),
            json.dumps(given).replace("$", "\\u0024"),
        {"plan": tuple(given["plan"])})]
    assert len({plan.digest for plan in plans}) == 1
    assert plans[0].to_wire() == {"plan": [step("show", {"id": "é$"}, "$m"),
        step("buy", {"count": "$m.price", "who": "$$x"})]}
    assert nk._plan_check(shop, plans[0].to_wire()).digest == plans[0].digest


# -- tools and arguments -------------------------------------------------------------------------------------------

def test_llm_01_arguments_as_text_or_under_another_key_are_refused_and_never_run_without(log):
    def pay(to: str = "nobody", amount: int = 0, tags: list[str] = (), note: str = "") -> int:
        log.append((to, amount, list(tags), note))
        return amount

    eng = engine(pay)
    assert refused(eng, '{"plan": [{"tool":"pay","args":"{\\"to\\":\\"bob\\",\\"amount\\":5}"}]}') == (
        "PLAN_INVALID", "plan[0]: args is text; give the arguments as a JSON object, not as JSON inside a string", 0,
        None)
    unknown = "plan[0]: a step has no key but tool, args and output; arguments stand in args"
    assert refused(eng, '{"plan": [{"tool":"pay","parameters":{"to":"bob"}}]}')[1] == unknown
    assert refused(eng, '{"plan": [{"tool":"pay","args":{},"parameters":{"to":"bob"}}]}')[1] == unknown
    assert refused(eng, '{"plan": [{"tool":"pay","arguments":{"to":"bob"}}]}')[1] == unknown
    assert refused(eng, '{"tool":"pay","args":{"to":"bob"}}')[0] == "PLAN_INVALID" and log == []
    assert run(eng, step("pay", {"tags": '["a"]', "note": '{"a":1}'})).ok
    assert log == [("nobody", 0, ["a"], '{"a":1}')]


def test_llm_02_drafts_in_thinking_are_never_run(shop, log):
    text = ('<think>maybe {"plan":[{"tool":"wipe","args":{"path":"a"}}]}</think>'
            '{"plan":[{"tool":"show","args":{"id":"1"}}]}')
    assert run(shop, text).ok and log == [("show", "1")]
    assert refused(shop, '<think>{"plan":[{"tool":"wipe","args":{"path":"a"}}]}')[0] == "PLAN_INVALID"
    assert run(shop, '{"plan":[{"tool":"show","args":{"id":"a</think>b<think>"}}]}').ok
    assert log == [("show", "1"), ("show", "a</think>b<think>")]


def test_llm_05_no_key_in_a_plan_opens_the_gate(shop, log):
    plain = {"tool": "wipe", "args": {"path": "a"}}
    for key in ("confirm", "confirmed", "yes", "dry_run", "approval", "force", "safety_category", "ctx"):
        assert refused(shop, {**plain, key: True})[:2] == (
            "PLAN_INVALID", "plan[0]: a step has no key but tool, args and output; arguments stand in args")
        for value in (True, "true", "false", 1, None, {"confirmed": True}):
            assert refused(shop, step("wipe", {"path": "a", key: value})) == (
                "VALIDATION_ERROR", f'plan[0] (wipe): "{key}" is not a field of wipe', 0, "/" + key)
        with pytest.raises(nk.Error, match="has no other"):
            nk._plan_check(shop, {"plan": [plain], key: True})
    result = run(shop, plain)
    assert facts(result.error) == (
        "CONFIRMATION_REQUIRED", "plan[0] (wipe): the step is destructive and needs a confirmation", 0, None)
    assert result.exit_code == 8 and log == []


def test_llm_05_true_as_text_is_no_approval(shop, log):
    plan = check(shop, step("wipe", {"path": "a"}))
    for value in ("true", "True", "yes", "", 1, 0, None, 1.0, [], {"a": 1}, plan.digest.upper(), plan.digest + " ",
        plan.digest.encode()):
        result = execute(plan, confirmed=value)
        assert result.error.code == "BAD_REQUEST" and result.exit_code == 1 and result.rest is None
        assert result.error.message.startswith("confirmed must be True, False, the digest of the plan or a function, not ")
    for value in ("false", "true", 0, 1, None, ""):
        result = execute(plan, confirmed=True, dry_run=value)
        assert result.error.code == "BAD_REQUEST" and result.error.message.startswith("dry_run must be True or False, not ")
    assert log == []


def test_llm_r1_an_unknown_tool_is_refused_with_the_candidates(shop):
    for name in ("Show", "shows", "SHOW"):
        with pytest.raises(nk.Error) as caught:
            check(shop, step(name))
        assert facts(caught.value)[:3] == ("NOT_FOUND", f'plan[0]: there is no command "{name}"; did you mean show?', 0)
        assert caught.value.details["suggestions"] == ["show"]
    for name in ("functions.show", "", "__init__", "print", "os.system", "$show", "show ", "show\n", "engine"):
        with pytest.raises(nk.Error) as caught:
            check(shop, step(name))
        assert caught.value.code == "NOT_FOUND"
        assert caught.value.hint == "the tools are show, find, total, buy, wipe, fail" or caught.value.details["suggestions"]
    with pytest.raises(nk.Error) as caught:
        check(engine(), step("x"))
    assert caught.value.hint == "the tools are none"


def test_llm_r2_a_cut_off_plan_is_never_closed_for_the_model(shop, log):
    whole = '{"plan":[{"tool":"wipe","args":{"path":"/data/tmp, ]}"}}]}'
    for size in range(len(whole)):
        with pytest.raises(nk.Error) as caught:
            check(shop, whole[:size] or " ")
        assert caught.value.code == "PLAN_INVALID"
    assert check(shop, whole).steps[0].args["path"] == "/data/tmp, ]}" and log == []


def test_llm_r3_null_and_the_word_null_for_optional_and_required_text(log):
    def note(text: str, more: Optional[str] = "x", count: Optional[int] = 1) -> None:
        log.append((text, more, count))

    eng = engine(note)
    assert run(eng, step("note", {"text": "null", "more": None})).ok
    assert run(eng, step("note", {"text": "null", "more": "null", "count": None})).ok
    assert log == [("null", None, 1), ("null", "null", None)]
    assert refused(eng, step("note", {"text": None}))[1] == "plan[0] (note): Invalid input: text: expected a string, got null"
    assert refused(eng, step("note", {"text": "a", "count": "null"}))[3] == "/count"


def test_llm_r4_parameters_named_name_tool_args_and_output(log):
    def call(name: str, tool: str, args: dict, output: str, plan: list) -> str:
        log.append((name, tool, args, output, plan))
        return output

    given = {"name": "n", "tool": "t", "args": {"tool": "x", "args": {}}, "output": "$$m", "plan": [{"tool": "wipe"}]}
    assert run(engine(call), step("call", given)).ok
    assert log == [("n", "t", {"tool": "x", "args": {}}, "$m", [{"tool": "wipe"}])]


def test_typed_arguments_arrive_typed(log):
    class Size(enum.Enum):
        S = "small"
        L = "large"

    @dataclasses.dataclass
    class Item:
        id: int
        day: datetime.date = datetime.date(2026, 1, 1)

    def order(n: int, x: float, ok: bool, size: Size, items: list[Item], when: datetime.date,
              kind: Literal["a", 1] = "a", either: Union[int, str] = 0, maybe: Optional[int] = None) -> int:
        log.append((n, x, ok, size, items, when, kind, either, maybe))
        return n

    given = {"n": "42", "x": 3, "ok": "true", "size": "small", "items": [{"id": "7"}], "when": "2026-02-03",
        "either": "9", "maybe": "5"}
    assert run(engine(order), step("order", given)).ok
    assert log == [(42, 3.0, True, Size.S, [Item(7)], datetime.date(2026, 2, 3), "a", "9",
        5)] and type(log[0][1]) is float


@pytest.mark.parametrize("value", ["4_2", " 42 ", "４２", 42.5, "42.0", True, None, "", "0x2a", "1e3", "9" * 5000, [42],
    {"a": 42}, "null", "+", "--1"])
def test_what_is_no_integer_is_refused(shop, log, value):
    code, message, index, argument = refused(shop, step("buy", {"count": value}))
    assert (code, index, argument) == ("VALIDATION_ERROR", 0,
        "/count") and message.startswith("plan[0] (buy): Invalid input: count")
    assert log == []


def test_the_whole_plan_is_checked_before_the_first_call(shop, log):
    good = step("show", {"id": "1"}, "$m")
    for bad, code, argument in [
        (step("none"), "NOT_FOUND", None), (step("buy", {"count": "x"}), "VALIDATION_ERROR", "/count"),
        (step("buy", {}), "VALIDATION_ERROR", "/count"), (step("buy", {"count": 1, "more": 1}), "VALIDATION_ERROR",
        "/more"),
        (step("buy", {"count": 1, "tags": ["a", 1]}), "VALIDATION_ERROR", "/tags/1"),
        (step("buy", {"count": "$m.price", "tags": ["a", 1]}), "VALIDATION_ERROR", "/tags/1"),
        (step("buy", {"count": "$m.price", "more": 1}), "VALIDATION_ERROR", "/more"),
        (step("buy", {"who": "$m.name"}), "VALIDATION_ERROR", "/count"),
        (step("buy", {"count": 1, "tags": ["$m.name", 5]}), "VALIDATION_ERROR", "/tags/1"),
        (step("buy", {"count": "$x"}), "PLAN_INVALID", "/count"),
    ]:
        assert refused(shop, good, good | {"output": "$other"}, bad)[::2] == (code, 2) and log == []
        assert refused(shop, good, bad)[3] == argument


def test_a_wrong_choice_beside_many_references_is_found_before_the_first_call(log):
    def pick(of: list[int], kind: Literal["a", "b"], more: Optional[list[Literal["x"]]] = None) -> None:
        log.append("pick")

    def one() -> int:
        log.append("one")
        return 1

    eng = engine(pick, one)
    refs = ["$n"] * 100
    assert refused(eng, step("one", {}, "$n"), step("pick", {"of": refs, "kind": "c"}))[3] == "/kind"
    assert refused(eng, step("one", {}, "$n"), step("pick",
        {"of": refs, "kind": "a", "more": ["x", "y"]}))[3] == "/more/1"
    assert run(eng, step("one", {}, "$n"), step("pick", {"of": refs, "kind": "a", "more": ["x"]})).ok


def test_members_beside_a_reference_in_a_union_wait_for_it(tmp_path, log):
    @dataclasses.dataclass
    class File:
        path: pathlib.Path
        n: int

    @dataclasses.dataclass
    class Text:
        path: str
        n: str

    def put(it: Union[File, Text]) -> str:
        log.append(type(it).__name__)
        return "x"

    def say() -> str:
        return "word"

    def num() -> int:
        return 1

    eng = engine(put, say, num, sandbox=nk.Sandbox(str(tmp_path)))
    outside = {"path": "/etc/passwd", "n": "$n"}
    assert run(eng, step("say", {}, "$n"), step("put", {"it": outside})).ok and log == ["Text"]
    result = run(eng, step("num", {}, "$n"), step("put", {"it": outside}))
    assert facts(result.error)[::2] == ("SANDBOX_ESCAPE",
        1) and result.error.details["argument"] == "/it/path" and log == ["Text"]


def test_a_fault_beside_a_reference_in_a_union_waits_for_it(tmp_path, log):
    @dataclasses.dataclass
    class File:
        tags: list[Literal["a"]]
        path: pathlib.Path
        n: str
        m: str

    @dataclasses.dataclass
    class Text:
        tags: list[str]
        path: str
        n: int
        m: int

    def put(it: Union[File, Text]) -> str:
        log.append(type(it).__name__)
        return "x"

    def num() -> int:
        return 1

    eng = engine(put, num, sandbox=nk.Sandbox(str(tmp_path)))
    for tag in ("a", "z"):
        assert run(eng, step("num", {}, "$n"), step("put",
            {"it": {"tags": [tag], "path": "/etc/passwd", "n": "$n", "m": "$n"}})).ok
    assert log == ["Text", "Text"]


def test_secrets_are_neither_seen_nor_given(log):
    @dataclasses.dataclass
    class Login:
        user: str
        key: Annotated[Optional[str], nk.Opt(secret=True)] = None

    def open_door(who: str, token: Annotated[str, nk.Opt(secret=True, default="hidden")],
            login: Optional[Login] = None) -> None:
        log.append((who, token))

    def word() -> str:
        return "w"

    eng = engine(open_door, word)
    for args in ({"who": "a", "token": "x"}, {"who": "a", "token": None}, {"who": "$w", "token": "x"},
        {"who": "a", "token": "$w"}):
        assert refused(eng, step("word", {}, "$w"), step("open_door", args)) == (
            "VALIDATION_ERROR", 'plan[1] (open_door): "token" is not a field of open_door', 1, "/token")
    for login in ({"user": "u", "key": "k"}, '{"user": "u", "key": "k"}', {"user": "u", "key": "$w"}):
        assert refused(eng, step("word", {}, "$w"), step("open_door", {"who": "a", "login": login}))[3] == "/login/key"
    plan = check(eng, step("open_door", {"who": "a"}))
    assert plan.steps[0].args == {"who": "a", "token": "***", "login": None}
    assert plan.to_wire() == {"plan": [step("open_door", {"who": "a"})]}
    result = execute(plan)
    assert result.ok and log == [("a", "hidden")] and "hidden" not in json.dumps(result.to_wire())


def test_the_hook_before_a_call_is_asked_at_the_check_and_only_once(log):
    def before(command: Any, args: dict) -> Optional[dict]:
        log.append(args)
        return {**args, "tenant": 7} if "tenant" not in args else None

    def get(n: int, tenant: int) -> int:
        return n

    eng = engine(get, hooks=nk.Hooks(before))
    plan = check(eng, step("get", {"n": 1}, "$n"), step("get", {"n": "$n"}))
    assert log == [{"n": 1}] and plan.steps[0].args == {"n": 1, "tenant": 7} and plan.steps[1].args == {"n": "$n"}
    assert execute(plan).ok and execute(plan).ok and log == [{"n": 1}] + [{"n": 1}] * 2
    for broken in (lambda c, a: 1 / 0, lambda c, a: sys.exit(3), lambda c, a: 7):
        code, message, index, _ = refused(engine(get, hooks=nk.Hooks(broken)), step("get", {"n": 1}))
        assert (code, index) == ("INTERNAL_SERVER_ERROR", 0) and message.startswith("plan[0] (get): ")
    for details, argument in (({"issues": [1]}, None), ({"issues": "x"}, None), ([1], None), ({"argument": 5}, 5),
        ({"step": 9}, None)):
        def refuse(command: Any, args: dict) -> None:
            raise nk.Error("FORBIDDEN", "no", details=details)

        assert refused(engine(get, hooks=nk.Hooks(refuse)), step("get", {"n": 1})) == ("FORBIDDEN",
            "plan[0] (get): no", 0, argument)


# -- references ----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("text, found", [
    ("$m", {"price": 5}), ("$m.price", 5), ("$$m", "$m"), ("$$", "$"), ("$$$m", "$$m"), ("$$m.price", "$m.price"),
        ("$5", "$5"),
    ("$", "$"), ("cost: $5", "cost: $5"), ("$ m", "$ m"), ("$price!", "$price!"), ("a$b", "a$b"), ("$-", "$-"),
        ("$.m", "$.m"),
    ("${m}", "${m}"), ("\\$x", "\\$x"), ("$$x and $m", "$x and $m"), ("$mm.", "$mm."), ("$éa", "$éa"),
        ("$m2 x", "$m2 x"),
])
def test_what_is_a_reference_and_what_is_text(text, found, log):
    def make() -> dict:
        return {"price": 5}

    def take(it: Any, nested: list = []) -> None:
        log.append((it, nested))

    result = run(engine(make, take), step("make", {}, "$m"), step("take", {"it": text, "nested": [{"a": [text]}]}))
    assert result.ok, result.error
    assert log == [(found, [{"a": [found]}])]


@pytest.mark.parametrize("text, remedy", [
    ("$m ", "begins"), ("$m\n", "begins"), ("$m.", "begins"), ("$m..x", "begins"), ("$m[0]", "begins"),
        ("$m.a b", "begins"), ("$m,", "begins"),
    ("$m.x!", "begins"), ("pay $m", "inside"), ("$x$m", "inside"), (" $m", "inside"), ("a$m.price", "inside"),
        ("$é$m", "inside"), ("{$m}", "inside"),
    ("$mé", "begins"),
])
def test_text_that_holds_the_name_of_an_output_is_refused(shop, log, text, remedy):
    words = {
        "begins": "write $m or $m.key alone for the result, $$ for text that begins with $",
        "inside": "give $m as a whole argument, or rename the output if the text means something else",
    }
    for args, argument in (({"count": 1, "who": text}, "/who"), ({"count": 1, "tags": ["x", text]}, "/tags/1"),
        ({"count": 1, "options": {text: 1}}, None)):
        code, message, index, place = refused(shop, step("show", {"id": "1"}, "$m"), step("buy", args))
        assert (code, index) == ("PLAN_INVALID", 1) and (argument is None or place == argument)
        assert message.endswith("the text holds $m, which is replaced only where it stands alone; " + words[remedy])
    assert refused(shop, step("buy", {"count": 1, "who": text}), step("show", {"id": "1"}, "$m"))[2] == 0
    assert run(shop, step("show", {"id": "1"}, "$other"), step("buy", {"count": 1, "who": text})).ok
    assert log[-1] == ("buy", 1, text, [], {})


def test_a_reference_takes_the_place_of_a_value_at_any_depth(shop, log):
    result = run(shop, step("show", {"id": "1"}, "$m"), step("buy", {
        "count": "$m.deep.list.0.x", "who": "$m.name", "tags": ["$m.tags.1", "$$m.tags", "x"],
        "options": {"a": [{"b": "$m.deep"}], "$c": "$m.none", "d": "$m"}}))
    assert result.ok and log[1][:4] == ("buy", 1, "n", ["b", "$m.tags", "x"])
    assert log[1][4] == {"a": [{"b": {"list": [{"x": 1}]}}], "$c": None, "d": result.steps[0]["outcome"].data}


@pytest.mark.parametrize("ref, message", [
    ("$x", 'plan[1] (buy) at "/count": no step has the output "$x"; write $$ for text that begins with $'),
    ("$HOME", 'plan[1] (buy) at "/count": no step has the output "$HOME"; write $$ for text that begins with $'),
    ("$" + "x" * 99, 'plan[1] (buy) at "/count": no step has the output "$%s"...; write $$ for text that begins with $' % ("x" * 54)),
    ("$__class__", 'plan[1] (buy) at "/count": no step has the output "$__class__"; write $$ for text that begins with $'),
    ("$late", 'plan[1] (buy) at "/count": $late is the output of the later plan[2]; refer to earlier steps'),
    ("$own.x", 'plan[1] (buy) at "/count": $own is the output of this very step; refer to earlier steps'),
    ("$f.nope", 'plan[1] (buy) at "/count": "$f.nope" leads nowhere: no result of find has such a part'),
    ("$f.id.0", 'plan[1] (buy) at "/count": "$f.id.0" leads nowhere: no result of find has such a part'),
    ("$f.names.x", 'plan[1] (buy) at "/count": "$f.names.x" leads nowhere: no result of find has such a part'),
    ("$f.names.-1", 'plan[1] (buy) at "/count": "$f.names.-1" leads nowhere: no result of find has such a part'),
    ("$f.names.00", 'plan[1] (buy) at "/count": "$f.names.00" leads nowhere: no result of find has such a part'),
    ("$f.__class__", 'plan[1] (buy) at "/count": "$f.__class__" leads nowhere: no result of find has such a part'),
    ("$f.names", 'plan[1] (buy): "$f.names" is of type array, and "/count" takes integer'),
    ("$f", 'plan[1] (buy): "$f" is of type object, and "/count" takes integer'),
])
def test_references_are_judged_before_the_first_step(shop, log, ref, message):
    steps = [step("find", {"query": "q"}, "$f"), step("buy", {"count": ref}, "$own"),
        step("show", {"id": "1"}, "$late")]
    code, said, index, argument = refused(shop, *steps)
    assert (said, index, argument) == (message, 1, "/count") and log == []
    assert code == ("VALIDATION_ERROR" if " takes " in message else "PLAN_INVALID")


@pytest.mark.parametrize("schema, good, bad", [
    ({"type": "object", "properties": {"a": {"type": "integer"}}}, ["a", "b"], ["a.x", "a.0"]),
    ({"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": False}, ["a"], ["b", "0"]),
    ({"type": "object", "additionalProperties": {"type": "array", "items": {"type": "integer"}}}, ["a.0", "b.7"],
        ["a.x", "a.0.0"]),
    ({"type": "object", "patternProperties": {"^a": {}}, "additionalProperties": False}, ["a", "b"], []),
    ({"type": "array", "prefixItems": [{"type": "integer"}], "items": False}, ["0"], ["1", "x", "00", "-1"]),
    ({"type": "array", "maxItems": 2}, ["0", "1", "1.x"], ["2", "x"]),
    ({"type": "string"}, [], ["0", "x"]), ({"type": "null"}, [], ["x"]), ({"enum": [1, "a"]}, [], ["x", "0"]),
    ({"anyOf": [{"type": "null"}, {"type": "object", "properties": {"a": {"type": "string"}},
        "additionalProperties": False}]}, ["a"], ["b", "a.0"]),
    ({"oneOf": [{"type": "object", "properties": {"a": {}}, "additionalProperties": False}, {"type": "array"}]},
        ["a", "a.b", "0"], ["b"]),
    ({"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}},
        "additionalProperties": False}}},
     ["next", "next.next.next"], ["nxt", "next.next.nxt", "next.0"]),
    ({"allOf": [{"type": "object", "properties": {"a": {"type": "object", "additionalProperties": False}}},
        {"properties": {"b": {}}}]}, ["a", "b", "c", "b.x"], ["a.x"]),
    (True, ["a", "0.a"], []), ({}, ["a", "0.a"], []),
], ids=lambda value: ascii(value)[:60])
def test_what_a_declared_result_says_about_its_parts(schema, good, bad):
    def make() -> Any: ...

    def take(it: Any) -> None: ...

    eng = engine(nk.command(returns=schema)(make), take)
    for path in good:
        assert check(eng, step("make", {}, "$m"), step("take", {"it": "$m." + path}))
    for path in bad:
        code, message, _, place = refused(eng, step("make", {}, "$m"), step("take", {"it": ["$m." + path]}))
        assert (code, place) == ("PLAN_INVALID",
            "/it/0") and message.endswith(f'"$m.{path}" leads nowhere: no result of make has such a part')


@pytest.mark.parametrize("returns, takes, fits", [
    (int, int, True), (int, float, True), (float, int, True), (int, str, False), (str, int, True), (str, bool, True),
        (bool, int, False),
    (bool, str, False), (list[int], str, False), (list[int], int, False), (list[str], list[int], True),
        (dict, int, False), (dict, list[int], False),
    (Optional[int], int, True), (Optional[int], str, False), (None, int, False), (None, Optional[int], True),
        (Union[int, str], bool, True),
    (datetime.date, datetime.date, True), (int, datetime.date, False), (Literal["a"], Literal["b"], True),
        (Any, int, True), (int, Any, True),
], ids=str)
def test_the_type_of_a_declared_result_is_judged_before_step_1(returns, takes, fits):
    def make(): ...

    def take(it): ...

    make.__annotations__["return"], take.__annotations__["it"] = returns, takes
    steps = [step("make", {}, "$m"), step("take", {"it": "$m"})]
    if fits:
        assert len(check(engine(make, take), *steps)) == 2
    else:
        assert refused(engine(make, take), *steps)[::3] == ("VALIDATION_ERROR", "/it")


def test_what_a_schema_leaves_open_is_judged_when_the_result_is_there(shop, log):
    for ref, message in [
        ("$m.nope", '"$m.nope" leads nowhere: the result is of type object and has no "nope" there'),
        ("$m.tags.2", '"$m.tags.2" leads nowhere: the result is of type object and has no "2" there'),
        ("$m.tags.-1", '"$m.tags.-1" leads nowhere: the result is of type object and has no "-1" there'),
        ("$m.tags." + "9" * 5000, None), ("$m.name.0", None), ("$m.none.x", None), ("$m.price.real", None),
        ("$m.__class__", None),
        ("$m.items", None), ("$m.tags.append", None),
    ]:
        log.clear()
        result = run(shop, step("show", {"id": "1"}, "$m"), step("buy", {"count": ref}), step("show", {"id": "2"}))
        assert facts(result.error)[::2] == ("PLAN_INVALID",
            1) and facts(result.error)[3] == "/count" and result.exit_code == 1
        assert message is None or facts(result.error)[1] == 'plan[1] (buy) at "/count": ' + message
        assert log == [("show", "1")] and result.steps[0]["outcome"].data["price"] == 5 and len(result.steps) == 2


def test_resolved_arguments_are_admitted_by_the_same_function(shop, log):
    result = run(shop, step("show", {"id": "1"}, "$m"), step("buy", {"count": "$m.count"}))
    assert result.ok and log[1][1] == 42
    result = run(shop, step("show", {"id": "1"}, "$m"), step("buy", {"count": "$m.name"}))
    assert facts(result.error) == (
        "VALIDATION_ERROR", 'plan[1] (buy): Invalid input: count: expected a whole number, got the string "n"', 1,
        "/count")
    assert result.steps[1]["args"] == {"count": "$m.name"}


def test_results_are_not_scanned_for_references(shop, log):
    result = run(shop, step("show", {"id": "$$show"}, "$show"),
        step("buy", {"count": 1, "who": "$show.cost", "tags": ["$show.cost"]}))
    assert result.ok and log == [("show", "$show"), ("buy", 1, "$show", ["$show"], {})]


def test_names_are_names_and_never_attributes(log):
    def make() -> dict:
        return {"keys": 1, "0": "zero", "a-b": 2, "größe": 3}

    def take(it: Any) -> None:
        log.append(it)

    refs = ["$__class__.keys", "$__class__.0", "$__class__.a-b", "$__class__.größe"]
    result = run(engine(make, take), step("make", {}, "$__class__"), *[step("take", {"it": ref}) for ref in refs])
    assert result.ok and log == [1, "zero", 2, 3]


def test_escaped_characters_hide_no_reference(shop, log):
    text = '{"plan": [{"tool": "show", "args": {"id": "1"}, "output": "\\u0024m"}, {"tool": "buy", "args": {"count": 1, "who": "\\u0024m.name"}}]}'
    assert run(shop, text).ok and log[1] == ("buy", 1, "n", [], {})
    text = text.replace("\\u0024m.name", "x \\u0024m")
    assert refused(shop, text)[0] == "PLAN_INVALID"
    # Text inside text is text: what a list reads from it is not searched for references.
    text = '{"plan": [{"tool": "show", "args": {"id": "1"}, "output": "$m"}, {"tool": "buy", "args": {"count": 1, "tags": "[\\"\\\\u0024m\\"]"}}]}'
    assert run(shop, text).ok and log[-1] == ("buy", 1, "me", ["$m"], {})


def test_a_result_of_a_million_nodes_and_a_reference_bomb(log):
    def big() -> dict:
        return {"million": [[0] * 1000 for _ in range(1000)]}

    def take(a: Any = None, b: Any = None) -> int:
        log.append(1)
        return 1

    def wide() -> dict:
        return {"wide": list(range(6000)), "text": "x" * 600_000, "one": 1, "pairs": [[0]] * 6000}

    eng = engine(big, wide, take)
    over = ("with results in their places the arguments have more than 10,000 values or 1,048,576 bytes; "
            "refer to a part of the result")
    bomb: Any = ["$m.wide"] * 32
    for tool, args in [("big", {"a": "$m"}), ("wide", {"a": "$m.wide", "b": "$m.wide"}),
        ("wide", {"a": "$m.text", "b": "$m.text"}),
                       ("wide", {"a": bomb}), ("wide", {"a": "$m.pairs"})]:
        plan = check(eng, step(tool, {}, "$m"), step("take", args))
        result = execute(plan)
        assert facts(result.error) == ("VALIDATION_ERROR", "plan[1] (take): " + over, 1, "/a/0" if args["a"] is bomb
            else "/a")
        assert log == []
    assert run(eng, step("wide", {}, "$m"), step("take", {"a": "$m.wide", "b": "$m.one"})).ok
    assert run(eng, step("wide", {}, "$m"), *[step("take", {"a": "$m.wide"}, f"$n{i}") for i in range(31)]).ok

    def double(it: Any) -> list:
        return [it, it]

    steps = [step("double", {"it": "x"}, "$a0")] + [step("double", {"it": f"$a{i}"}, f"$a{i + 1}") for i in range(31)]
    started = time.perf_counter()
    result = run(engine(double), *steps)
    assert facts(result.error)[::2] == ("VALIDATION_ERROR", 13) and time.perf_counter() - started < 1


def test_a_plan_full_of_references_or_paths_is_checked_in_linear_time(tmp_path):
    def take(it: list[Any], paths: list[pathlib.Path] = []) -> None:
        raise AssertionError

    def make() -> dict:
        return {"a": 1}

    eng = engine(take, make, sandbox=nk.Sandbox(str(tmp_path)))
    first = step("make", {}, "$m")
    for args in ({"it": ["$m"] * 9_000}, {"it": [], "paths": ["$m.a"] * 4_000 + ["x"] * 2_000},
        {"it": ["$m" + ".a" * 30_000]},
                 {"it": ["$m.a"], "paths": ["x"] * 3_000 + ["../x"]}, {"it": [], "paths": ["x"] * 3_000 + ["../x"]},
                 {"it": [{"a": {"b": {"c": ["$m"] * 100}}}] * 60}, {"it": ["$" * 60_000]}, {"it": ["$m" * 20_000]}):
        started = time.perf_counter()
        try:
            check(eng, first, step("take", args))
        except nk.Error as error:
            assert error.code in ("SANDBOX_ESCAPE", "PLAN_INVALID", "VALIDATION_ERROR")
        assert time.perf_counter() - started < 2.5


def test_outputs_must_differ(shop):
    assert refused(shop, step("show", {"id": "1"}, "$m"), step("show", {"id": "2"}, "$m")) == (
        "PLAN_INVALID", "plan[1]: the output $m is already that of plan[0]; give it another name", 1, None)


# -- approval ------------------------------------------------------------------------------------------------------

def test_kinds_of_approval(shop, log):
    plan = check(shop, step("wipe", {"path": "a"}))
    for confirmed in (True, plan.digest, lambda step: True):
        log.clear()
        assert execute(plan, confirmed=confirmed).ok and log == [("wipe", "a", True, False)]
    log.clear()
    no = "plan[0] (wipe): the step is destructive and was not confirmed"
    for answer in (False, None, 1, "yes", "true", [1], object()):
        result = execute(plan, confirmed=lambda step: answer)
        assert facts(result.error)[:2] == ("CONFIRMATION_REQUIRED",
            no) and result.exit_code == 8 and result.rest is plan
    for fault, code, message in [
        (ZeroDivisionError("x"), "INTERNAL_SERVER_ERROR",
        "plan[0] (wipe): the function given as confirmed failed, so the step is not confirmed"),
        (SystemExit(0), "INTERNAL_SERVER_ERROR",
        "plan[0] (wipe): the function given as confirmed failed, so the step is not confirmed"),
        (nk.Error("UNAUTHORIZED", "who are you"), "UNAUTHORIZED", "plan[0] (wipe): who are you"),
    ]:
        def confirm(step: Any) -> bool:
            raise fault

        result = execute(plan, confirmed=confirm)
        assert facts(result.error)[:3] == (code, message, 0)

    def interrupted(step: Any) -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute(plan, confirmed=interrupted)
    assert log == []


def test_a_coroutine_function_may_approve(shop, log):
    async def confirm(step: Any) -> bool:
        await asyncio.sleep(0)
        return step.args["path"] == "a"

    assert execute(check(shop, step("wipe", {"path": "a"})), confirmed=confirm).ok
    assert not execute(check(shop, step("wipe", {"path": "b"})), confirmed=confirm).ok
    assert asyncio.run(nk._plan_execute(check(shop, step("wipe", {"path": "a"})), confirmed=confirm, live=True)).ok
    assert [entry[1] for entry in log] == ["a", "a"]


def test_a_digest_approves_one_plan_alone(shop, log):
    plan = check(shop, step("wipe", {"path": "a"}), step("show", {"id": "1"}))
    others = [
        check(shop, step("wipe", {"path": "b"}), step("show", {"id": "1"})), check(shop, step("wipe", {"path": "a"})),
        check(shop, step("show", {"id": "1"}), step("wipe", {"path": "a"})),
            check(shop, step("wipe", {"path": "a"}), step("show", {"id": "1"}, "$m")),
        check(shop, step("wipe", {"path": "a", "depth": 2}), step("show", {"id": "1"})),
            check(shop, step("show", {"id": "1"})),
        check(shop, step("wipe", {"path": "a"}), step("show", {"id": "1"}), step("wipe", {"path": "a"})),
    ]
    for other in others:
        result = execute(other, confirmed=plan.digest)
        assert facts(result.error) == ("CONFIRMATION_REQUIRED", "the approval is for another plan than this one", None,
            None)
        assert result.exit_code == 8 and result.rest is None and result.steps == []
    assert log == [] and len({other.digest for other in [plan, *others]}) == 8
    assert check(shop, step("wipe", {"path": "a", "depth": "1"}), step("show", {"id": "1"})).digest == plan.digest
    assert execute(plan, confirmed=plan.digest).ok


def test_a_digest_covers_program_version_schemas_sandbox_globals_and_references(tmp_path):
    def make(version: str = "1", sandbox: Any = None, globals_json: Any = None, extra: bool = False) -> str:
        if extra:
            def wipe(path: str, depth: int = 1, more: int = 0) -> str:
                return path
        else:
            def wipe(path: str, depth: int = 1) -> str:  # type: ignore[misc]
                return path
        eng = engine(nk.command(destructive=True)(wipe), sandbox=sandbox, globals_json=globals_json)
        eng.version = version
        return check(eng, step("wipe", {"path": "a"})).digest

    (tmp_path / "s").mkdir()
    digests = [make(), make(version="2"), make(sandbox=nk.Sandbox(str(tmp_path))),
        make(sandbox=nk.Sandbox(str(tmp_path / "s"))),
               make(globals_json={"a": 1}), make(extra=True)]
    assert len(set(digests)) == 6 and make() == digests[0]

    def one() -> str:
        return "x"

    eng = engine(nk.command(destructive=True)(make_wipe()), one)
    refs = ["$a", "$b", "$a.x", "$$a", "$$b"]
    plans = [check(eng, step("one", {}, "$a"), step("one", {}, "$b"), step("wipe", {"path": ref}))
             for ref in refs if ref != "$a.x"]
    assert len({plan.digest for plan in plans}) == 4


def make_wipe() -> Any:
    def wipe(path: str) -> str:
        return path

    return wipe


def test_destructive_steps_are_approved_before_the_first_call(shop, log):
    steps = [step("show", {"id": "1"}), step("wipe", {"path": "a"}), step("wipe", {"path": "b"})]
    result = run(shop, *steps)
    assert facts(result.error) == ("CONFIRMATION_REQUIRED",
        "plan[1] (wipe): the step is destructive and needs a confirmation", 1, None)
    assert log == [] and result.rest is result.plan and [row["step"] for row in result.steps] == [1]
    asked: list = []

    def confirm(step: Any) -> bool:
        asked.append((step.tool, step.args, list(log)))
        return step.args["path"] != "b"

    result = run(shop, *steps, confirmed=confirm)
    assert facts(result.error)[1:3] == ("plan[2] (wipe): the step is destructive and was not confirmed",
        2) and log == []
    assert asked == [("wipe", {"path": "a", "depth": 1}, []), ("wipe", {"path": "b", "depth": 1}, [])]


def test_a_destructive_step_with_a_reference_is_approved_when_its_arguments_are_known(shop, log):
    plan = check(shop, step("show", {"id": "1"}, "$m"), step("wipe", {"path": "$m.path"}),
        step("buy", {"count": "$m.price", "who": "x"}))
    for confirmed in (True, plan.digest, False):
        log.clear()
        result = execute(plan, confirmed=confirmed)
        assert result.error.code == "CONFIRMATION_REQUIRED" and result.exit_code == 8 and log == [("show", "1")]
        assert facts(result.error)[1] == "plan[1] (wipe): the step is destructive and " + (
            'takes "$m.path" from an earlier step, so it must be confirmed when its arguments are known' if confirmed
            else "needs a confirmation")
        assert result.steps[0]["outcome"].ok and result.steps[1]["args"] == {"path": "../x", "depth": 1}
        rest = result.rest
        assert rest.to_wire() == {"plan": [step("wipe", {"path": "../x"}), step("buy", {"count": 5, "who": "x"})]}
    assert execute(rest, confirmed=plan.digest).error.code == "CONFIRMATION_REQUIRED" and len(log) == 1
    again = execute(rest, confirmed=rest.digest)
    assert again.ok and again.rest is None and log[1:] == [("wipe", "../x", True, False), ("buy", 5, "x", [], {})]
    log.clear()
    seen: list = []
    assert execute(plan, confirmed=lambda step: seen.append((step.args, len(log))) or True).ok
    assert seen == [({"path": "../x", "depth": 1}, 1)] and log[1] == ("wipe", "../x", True, False)
    log.clear()
    result = execute(plan, confirmed=lambda step: False)
    assert result.rest is not None and result.rest.digest == rest.digest and log == [("show", "1")]


def test_the_rest_of_a_plan_keeps_its_own_references(shop, log):
    plan = check(shop, step("show", {"id": "1"}, "$m"), step("wipe", {"path": "$m.cost"}, "$w"),
        step("wipe", {"path": "$w"}),
                 step("buy", {"count": "$m.price", "who": "$w"}))
    first = execute(plan, confirmed=True).rest
    assert first.to_wire() == {"plan": [step("wipe", {"path": "$$show"}, "$w"), step("wipe", {"path": "$w"}),
        step("buy", {"count": 5, "who": "$w"})]}
    assert nk._plan_check(shop, first.to_wire()).digest == first.digest
    result = execute(first, confirmed=first.digest)
    assert facts(result.error)[::2] == ("CONFIRMATION_REQUIRED", 1)
    second = result.rest
    assert second.to_wire() == {"plan": [step("wipe", {"path": "$$show"}), step("buy", {"count": 5, "who": "$$show"})]}
    assert execute(second, confirmed=second.digest).ok
    assert [entry[1] for entry in log] == ["1", "$show", "$show", 5]


def test_a_rest_holds_copies_of_results(shop):
    result = run(shop, step("show", {"id": "1"}, "$m"), step("wipe", {"path": "$m.path"}, "$w"),
                 step("buy", {"count": 1, "who": "$w", "options": {"a": "$m.deep"}}), confirmed=True)
    wire, digest = result.rest.to_wire(), result.rest.digest
    result.steps[0]["outcome"].data["deep"]["list"].clear()
    result.rest._digest = ""
    assert result.rest.to_wire() == wire and result.rest.digest == digest


def test_running_a_plan_changes_nothing_in_it(shop):
    steps = [step("show", {"id": "1"}, "$m"), step("buy",
        {"count": "$m.price", "options": {"a": "$m.deep", "b": ["$m.tags"]}})]
    plan = check(shop, *steps)
    assert execute(plan).ok and execute(plan).ok
    assert plan.to_wire() == {"plan": steps} and plan.digest == check(shop, *steps).digest


def test_a_rest_that_could_not_go_on_is_no_rest(shop, log):
    result = run(shop, step("show", {"id": "1"}, "$m"), step("wipe", {"path": "$m.path"}),
        step("buy", {"count": "$m.name"}), confirmed=True)
    assert facts(result.error)[::2] == ("VALIDATION_ERROR", 2) and facts(result.error)[3] == "/count"
    assert result.rest is None and log == [("show", "1")]


def test_what_is_executed_is_what_was_checked(shop, log):
    plan = check(shop, step("wipe", {"path": "a"}), step("show", {"id": "1"}, "$m"),
        step("buy", {"count": "$m.price", "tags": ["x"], "options": {"a": [1]}}))
    digest = plan.digest
    for one in plan.steps + [one for one in plan]:
        one.args.clear()
        one.tool, one.output = "fail", "z"
        if one.admitted is not None:
            one.admitted.args["path"] = "/"
            one.admitted.paths.append(("path",))
            one.admitted.call.args.clear()
            one.admitted.values = {"path": "/"}
    plan.to_wire()["plan"].clear()
    plan.to_wire()["plan"][0]["args"]["path"] = "/"

    def confirm(step: Any) -> bool:
        step.args["path"] = "/"
        step.admitted.args["path"] = "/"
        return True

    assert plan.digest == digest
    for _ in range(2):
        log.clear()
        result = execute(plan, confirmed=confirm)
        assert result.ok and log == [("wipe", "a", True, False), ("show", "1"), ("buy", 5, "me", ["x"], {"a": [1]})]
        result.steps[0]["args"]["path"] = "/"
        result.steps[2]["args"]["options"]["a"].append(2)
        assert result.steps[0]["args"]["path"] == "a"
    envelope = {"plan": [step("wipe", {"path": "a"})]}
    plan = nk._plan_check(shop, envelope)
    envelope["plan"][0]["args"]["path"] = "/"
    assert execute(plan, confirmed=plan.digest).ok and log[-1][1] == "a"


def test_a_handler_that_changes_its_arguments_changes_no_later_run(log):
    @dataclasses.dataclass
    class Box:
        items: list[int]

    def eat(items: list[int], box: Box, free: dict, more: list[int] = [1]) -> int:
        log.append((list(items), list(box.items), dict(free), list(more)))
        items.clear(), box.items.clear(), free.clear(), more.append(2)
        return 0

    plan = check(engine(eat), step("eat", {"items": [1], "box": {"items": [2]}, "free": {"a": [3]}}))
    digest = plan.digest
    assert execute(plan).ok and execute(plan).ok and log == [([1], [2], {"a": [3]}, [1])] * 2
    assert plan.digest == digest


def test_a_default_made_afresh_is_the_one_that_was_checked(log):
    counter = iter(range(100))

    @dataclasses.dataclass
    class Tag:
        n: int = dataclasses.field(default_factory=lambda: next(counter))

    @nk.command(destructive=True)
    def wipe(tag: Tag) -> int:
        log.append(tag.n)
        return 0

    plan = check(engine(wipe), step("wipe", {"tag": {}}))
    shown = plan.steps[0].args["tag"]["n"]
    assert execute(plan, confirmed=plan.digest).ok and execute(plan, confirmed=plan.digest).ok and log == [shown, shown]


def test_a_constructor_that_refuses_only_later_is_an_outcome():
    made: list = []

    @dataclasses.dataclass
    class Once:
        n: int

        def __post_init__(self) -> None:
            made.append(1)
            if len(made) > 1:
                raise ValueError("only once")

    def take(it: Once) -> int:
        return 0

    result = run(engine(take), step("take", {"it": {"n": 1}}))
    assert facts(result.error)[::2] == ("VALIDATION_ERROR", 0) and result.exit_code == 1


# -- dry runs ------------------------------------------------------------------------------------------------------

def test_a_dry_run_calls_nothing_and_shows_what_each_gate_would_do(shop, log):
    plan = check(shop, step("show", {"id": "1"}, "$m"), step("wipe", {"path": "a"}), step("wipe", {"path": "$m.path"}),
        step("buy", {"count": "$m.price"}))
    needs = "the step is destructive and needs a confirmation"
    later = 'the step is destructive and takes "$m.path" from an earlier step, so it must be confirmed when its arguments are known'
    other = "the approval is for another plan than this one"
    known = 'it is checked again when "$m.price" is known'
    for confirmed, expected in [
        (False, [("run", None), ("refuse", needs), ("refuse", needs), ("run", known)]),
        (True, [("run", None), ("run", None), ("refuse", later), ("run", known)]),
        (plan.digest, [("run", None), ("run", None), ("refuse", later), ("run", known)]),
        ("0" * 64, [("refuse", other)] * 4),
        (lambda step: log.append("asked"), [("run", None), ("ask", "the step is destructive"),
        ("ask", "the step is destructive"), ("run", known)]),
    ]:
        result = execute(plan, confirmed=confirmed, dry_run=True)
        assert result.ok and result.exit_code == 0 and result.rest is None
        assert [(row["would"], row["reason"]) for row in result.steps] == expected
        assert [row["args"] for row in result.steps] == [{"id": "1"}, {"path": "a", "depth": 1}, {"path": "$m.path"},
            {"count": "$m.price"}]
        assert [row["outcome"] for row in result.steps] == [None] * 4
    assert log == []


def test_a_dry_run_calls_what_previews_and_the_dry_run_wins(log):
    @nk.command(destructive=True, previews=True)
    def wipe(path: str, ctx: nk.Ctx) -> list:
        log.append((path, ctx.confirmed, ctx.dry_run))
        if path == "bad":
            raise nk.Error("CONFLICT", "in use")
        return ["would remove " + path]

    eng = engine(wipe)
    plan = check(eng, step("wipe", {"path": "a"}, "$m"), step("wipe", {"path": "$m.0"}))
    for confirmed in (False, True, plan.digest):
        result = execute(plan, confirmed=confirmed, dry_run=True)
        assert result.ok and result.steps[0]["outcome"].data == {"command": "wipe", "args": {"path": "a"},
            "preview": ["would remove a"]}
        assert result.steps[1]["outcome"] is None
    assert log == [("a", False, True)] * 3
    result = run(eng, step("wipe", {"path": "bad"}), step("wipe", {"path": "b"}), dry_run=True)
    assert facts(result.error)[:3] == ("CONFLICT", "plan[0] (wipe): in use",
        0) and len(log) == 4 and result.exit_code == 5


def test_a_dry_run_needs_no_identity(shop):
    eng = engine(nk.command(destructive=True)(make_wipe()), resolve_auth=lambda: 1 / 0)
    assert run(eng, step("wipe", {"path": "a"}), dry_run=True).ok
    assert run(eng, step("wipe", {"path": "a"}), confirmed=True).error.code == "INTERNAL_SERVER_ERROR"


# -- running -------------------------------------------------------------------------------------------------------

def test_an_empty_plan_means_that_no_command_fits(shop):
    for options in ({}, {"dry_run": True}, {"confirmed": True}):
        result = execute(check(shop, '{"plan": []}'), **options)
        assert facts(result.error)[:2] == ("NOT_FOUND", "the plan is empty: no command fits what was asked")
        assert result.exit_code == 4 and result.steps == [] and len(result.plan) == 0


def test_earlier_results_are_kept_when_a_later_step_fails(shop, log):
    for code, exit_code in (("CONFLICT", 5), ("crash", 1)):
        log.clear()
        result = run(shop, step("show", {"id": "1"}), step("fail", {"code": code}), step("show", {"id": "2"}))
        assert not result.ok and result.exit_code == exit_code and log == [("show", "1"),
            ("fail",)] and result.rest is None
        assert [(row["step"], row["outcome"].ok) for row in result.steps] == [(0, True), (1, False)]
    assert facts(result.error) == ("INTERNAL_SERVER_ERROR", "plan[1] (fail): fail failed unexpectedly", 1, None)
    assert "secret detail" not in json.dumps(result.to_wire())
    result = run(shop, step("fail"))
    assert result.error.to_wire() == {
        "code": "CONFLICT", "message": "plan[0] (fail): it is taken", "retryable": False, "hint": "try another",
        "details": {"details": {"step": "mine", "argument": 3}, "step": 0}}
    assert result.steps[0]["outcome"].error.details == {"step": "mine", "argument": 3}


def test_the_wire_form_of_a_result(shop):
    result = run(shop, step("total", {"of": ["1", 2]}, "$t"), step("buy", {"count": "$t"}))
    assert result.to_wire() == {
        "ok": True, "exitCode": 0, "digest": result.plan.digest,
        "plan": [step("total", {"of": ["1", 2]}, "$t"), step("buy", {"count": "$t"})],
        "steps": [
            {"step": 0, "tool": "total", "args": {"of": [1, 2]}, "outcome": {"ok": True, "exitCode": 0, "data": 3}},
            {"step": 1, "tool": "buy", "args": {"count": 3, "who": "me", "tags": [], "options": {}},
            "outcome": {"ok": True, "exitCode": 0, "data": 3}},
        ],
    }
    dry = execute(result.plan, dry_run=True).to_wire()
    assert dry["steps"][1] == {"step": 1, "tool": "buy", "args": {"count": "$t"}, "would": "run",
        "reason": 'it is checked again when "$t" is known'}
    wire = run(shop, step("wipe", {"path": "a"})).to_wire()
    assert wire["ok"] is False and wire["exitCode"] == 8 and wire["rest"] == {"digest": wire["digest"],
        "plan": wire["plan"]}
    assert nk.PlanResult(None, error=nk.Error("PLAN_INVALID", "x"), exit_code=1).to_wire() == {
        "ok": False, "exitCode": 1, "steps": [], "error": {"code": "PLAN_INVALID", "message": "x", "retryable": False}}

    def odd() -> int:
        raise nk.Error("CONFLICT", "x", details={"a": object()})

    wire = run(engine(odd), step("odd")).to_wire()
    taken = {"message": "the details of this error have no JSON form"}
    assert wire["steps"][0]["outcome"]["error"]["details"] == taken
    assert wire["error"]["details"] == {"step": 0, "details": taken}
    assert json.dumps(wire)


def test_observers_see_steps_and_refusals(shop, log):
    seen: list = []
    hooks = nk.Hooks(None, lambda c, a, e: seen.append((c.name, a, e.code)), lambda c, a,
        o: seen.append((c.name, a, o.ok)))
    shop.hooks = hooks
    run(shop, step("show", {"id": "1"}, "$m"), step("buy", {"count": "$m.nope"}))
    assert seen == [("show", {"id": "1"}, True), ("buy", {"count": "$m.nope"}, "PLAN_INVALID"),
        ("buy", {"count": "$m.nope"}, False)]
    seen.clear()
    run(shop, step("wipe", {"path": "a"}))
    assert seen == [("wipe", {"path": "a", "depth": 1}, "CONFIRMATION_REQUIRED"),
        ("wipe", {"path": "a", "depth": 1}, False)]
    seen.clear()
    run(shop, step("wipe", {"path": "a"}), dry_run=True)
    assert seen == []


def test_a_cancelled_plan_stops_at_the_next_step(shop, log):
    cancel = nk.Cancel()

    def stop() -> int:
        cancel.cancel()
        return 1

    shop.registry.add(nk._reg_command(stop, default_expose=("agent",)))
    result = execute(check(shop, step("stop"), step("show", {"id": "1"})), cancel=cancel)
    assert facts(result.error)[::2] == ("REQUEST_ABORTED", 1) and result.exit_code == 130 and log == []


def test_an_interruption_goes_on_to_the_caller():
    def stop() -> int:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(engine(stop), step("stop"))


def test_a_profile_that_cannot_be_resolved_refuses_the_check():
    def one() -> str:
        return "x"

    def missing() -> Any:
        raise nk.Error("NOT_FOUND", "there is no profile")

    with pytest.raises(nk.Error, match="there is no profile"):
        check(engine(one, find_profile=missing), step("one"))


# -- paths ---------------------------------------------------------------------------------------------------------

@pytest.fixture
def box(tmp_path: pathlib.Path, log: list) -> nk.Engine:
    """A program with a sandbox, beside a secret that lies outside."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "ok.txt").write_text("fine")
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "in" / "link").symlink_to("../secret")

    def read(file: pathlib.Path) -> str:
        log.append(("read", type(file), str(file)))
        return file.read_text() if file.exists() else ""

    def files(list_of: list[pathlib.Path], more: dict[str, pathlib.Path] = {}) -> list[str]:
        log.append(("files", list_of, more))
        return [str(path) for path in list_of]

    def text(path: Annotated[str, nk.Arg(path=True)]) -> str:
        log.append(("text", path))
        return path

    def give(it: Any) -> Any:
        return it

    def swap(name: str) -> str:
        where = tmp_path / "in" / name
        where.unlink() if where.is_file() else where.rmdir() if where.exists() else None
        where.symlink_to("../secret" if name.endswith(".txt") else "..")
        return name

    @nk.command(destructive=True)
    def remove(file: pathlib.Path) -> str:
        log.append(("remove", str(file)))
        return str(file)

    def nothing(path: str, file: str = "", src: str = "") -> str:
        log.append(("nothing", path, file, src))
        return path

    return engine(read, files, text, give, swap, remove, nothing, sandbox=nk.Sandbox(str(tmp_path / "in")))


OUTSIDE = ["../secret", "/etc/passwd", "link", "../in-other/x", "a/../../secret", "..", "~/x", "~", "", "a\0b",
    "x" * 300, "./../secret", "//etc/passwd"]


@pytest.mark.parametrize("path", OUTSIDE, ids=ascii)
def test_a_path_out_of_the_sandbox_is_refused_wherever_it_stands(box, log, path):
    given = step("give", {"it": [path]}, "$m")
    for one, argument in [
        (step("read", {"file": path}), "/file"), (step("text", {"path": path}), "/path"),
        (step("remove", {"file": path}), "/file"),
        (step("files", {"list_of": ["ok.txt", path]}), "/list_of/1"),
        (step("files", {"list_of": [], "more": {"a~/b": path}}), "/more/a~0~1b"),
    ]:
        code, message, index, place = refused(box, given, one)
        assert (code, index, place) == ("SANDBOX_ESCAPE", 1,
            argument) and message.startswith(f'plan[1] ({one["tool"]}) at "{argument}": ')
    assert refused(box, given, step("files", {"list_of": ["$m.0", path]}))[::2] == ("SANDBOX_ESCAPE", 1)
    for ref, one in [("$m.0", step("read", {"file": "$m.0"})), ("$m", step("files", {"list_of": "$m"})),
        ("$m.0", step("files", {"list_of": ["$m.0"]})),
                     ("$m.0", step("text", {"path": "$m.0"})),
                     ("$m.0", step("files", {"list_of": [], "more": {"a": "$m.0"}}))]:
        result = run(box, given, one)
        assert facts(result.error)[::2] == ("SANDBOX_ESCAPE",
            1) and result.error.details["argument"] and result.exit_code == 3
    assert log == []


def test_nothing_but_text_passes_for_a_path(box, log):
    for value in (["../secret"], {"path": "../secret"}, 7, True, None, [["../secret"]]):
        given = step("give", {"it": value}, "$m")
        for one in (step("read", {"file": "$m"}), step("text", {"path": "$m"}), step("remove", {"file": "$m"})):
            result = run(box, given, one, confirmed=lambda step: True)
            assert facts(result.error)[::2] == ("VALIDATION_ERROR", 1)
    assert log == []


def test_the_function_gets_the_resolved_path_of_its_type(box, log, tmp_path, monkeypatch):
    monkeypatch.chdir("/")
    inside = os.path.realpath(tmp_path / "in")
    assert run(box, step("give", {"it": "sub/../ok.txt"}, "$m"), step("read", {"file": "$m"}),
        step("read", {"file": "new/file"}), step("text", {"path": "ok.txt"})).ok
    assert log == [("read", type(pathlib.Path()), inside + "/ok.txt"),
        ("read", type(pathlib.Path()), inside + "/new/file"), ("text", inside + "/ok.txt")]


def test_a_link_put_in_place_between_steps_is_noticed(box, log, tmp_path):
    (tmp_path / "in" / "dir").mkdir()
    for name, path in (("dir", "dir/secret"), ("ok.txt", "ok.txt")):
        for second in (step("read", {"file": path}), step("files", {"list_of": [path]}), step("text", {"path": path})):
            target = tmp_path / "in" / name
            if target.is_symlink():
                target.unlink()
                target.mkdir() if name == "dir" else target.write_text("fine")
            plan = check(box, step("swap", {"name": name}), second)
            for dry in (False, True):
                result = execute(plan, dry_run=dry)
                assert facts(result.error)[::2] == ("SANDBOX_ESCAPE", 1) and result.exit_code == 3, (name, dry)
                assert result.error.details["argument"] in ("/file", "/path", "/list_of/0")
            assert log == []


def test_a_link_to_another_place_inside_is_not_what_was_approved(box, log, tmp_path):
    inside = tmp_path / "in"
    (inside / "a").mkdir(), (inside / "b").mkdir()
    (inside / "a" / "x").write_text(""), (inside / "b" / "x").write_text("")
    plan = check(box, step("remove", {"file": "a/x"}))
    (inside / "a" / "x").unlink(), (inside / "a").rmdir()
    (inside / "a").symlink_to("b")
    result = execute(plan, confirmed=plan.digest)
    assert facts(result.error) == ("SANDBOX_ESCAPE",
        'plan[0] (remove) at "/file": a link was put into the path since the plan was checked; check it again', 0,
        "/file")
    assert log == []


def test_a_link_that_was_followed_at_the_check_may_be_turned_later(box, log, tmp_path):
    inside = tmp_path / "in"
    (inside / "a").mkdir()
    (inside / "now").symlink_to("a")
    plan = check(box, step("remove", {"file": "now/x"}))
    (inside / "now").unlink()
    (inside / "now").symlink_to("/etc")
    assert execute(plan, confirmed=plan.digest).ok and log == [("remove", os.path.realpath(inside) + "/a/x")]


def test_paths_go_by_type_and_not_by_name(box, log):
    assert run(box, step("nothing", {"path": "/etc/passwd", "file": "../x", "src": "~"})).ok
    assert log == [("nothing", "/etc/passwd", "../x", "~")]


def test_without_a_sandbox_paths_are_refused_unless_the_program_says_unconfined(log):
    def read(file: pathlib.Path, n: int = 0) -> str:
        log.append(str(file))
        return "x"

    def one() -> str:
        log.append("one")
        return "/etc/passwd"

    bare = engine(read, one)
    message = "read takes a path, and this application has no sandbox"
    assert refused(bare, step("read", {"file": "x"})) == ("SANDBOX_ESCAPE", f'plan[0] (read) at "/file": {message}', 0,
        "/file")
    assert refused(bare, step("one", {}, "$m"), step("read", {"file": "$m"})) == (
        "SANDBOX_ESCAPE", f'plan[1] (read) at "/file": {message}', 1, "/file")
    assert log == []

    def tail(file: pathlib.Path = pathlib.Path("x")) -> None: ...

    message = 'plan[0] (tail) at "/file": tail takes a path, and this application has no sandbox'
    assert refused(engine(tail), step("tail")) == ("SANDBOX_ESCAPE", message, 0, "/file")
    free = engine(read, one, sandbox=nk.UNCONFINED)
    assert run(free, step("one", {}, "$m"), step("read", {"file": "$m"}),
        step("read", {"file": "../x"})).ok and log == ["one", "/etc/passwd", "../x"]
    assert refused(free, step("read", {"file": "a\0b"}))[::3] == ("SANDBOX_ESCAPE", "/file")


# -- rows of peer-plan-facts: what another program does not hold -----------------------------------------------------

def test_peer_g2_an_unsupported_argument_is_an_error_with_a_code(shop, log):
    assert refused(shop, step("show", {"id": "1", "loud": True}))[0] == "VALIDATION_ERROR" and log == []


def test_peer_g3c_choices_are_exact(log):
    def export(fmt: Literal["csv", "json"]) -> None:
        log.append(fmt)

    for value in ("CSV", " csv", "c-s-v", "csv ", ["csv"], None, "xml"):
        assert refused(engine(export), step("export", {"fmt": value}))[3] == "/fmt"
    assert log == []


def test_peer_a1_an_arg_as_the_annotation_itself_is_refused_at_registration():
    def task(prio: nk.Arg(choices=["low"])) -> None: ...  # type: ignore[valid-type]

    with pytest.raises(nk.RegistrationError, match="Annotated"):
        check(engine(task), step("task", {"prio": "nuclear"}))


def test_peer_a2_every_annotation_is_enforced(log):
    class Color(enum.Enum):
        RED = "red"

    def mix(a: Literal["a", "b"], b: Color, c: list[int], d: dict[str, int], e: tuple[int, str], f: datetime.date,
            g: Union[int, str]) -> None:
        log.append((a, b, c, d, e, f, g))

    eng = engine(mix)
    good = {"a": "a", "b": "red", "c": [1], "d": {"x": 1}, "e": [1, "x"], "f": "2026-01-02", "g": 1}
    for name, bad in [("a", "zzz"), ("b", "RED"), ("c", "x"), ("c", ["x"]), ("d", {"x": "y"}), ("e", [1]),
        ("e", ["x", 1]), ("f", "2026-13-01"), ("g", None)]:
        assert refused(eng, step("mix", {**good, name: bad}))[3].startswith("/" + name)
    assert run(eng, step("mix", good)).ok
    assert log == [("a", Color.RED, [1], {"x": 1}, (1, "x"), datetime.date(2026, 1, 2), 1)]


def test_peer_a4_integer_choices(log):
    def level(n: Annotated[int, nk.Arg(choices=[1, 2, 3])]) -> None:
        log.append(n)

    eng = engine(level)
    assert run(eng, step("level", {"n": 2})).ok and run(eng, step("level", {"n": "3"})).ok and log == [2, 3]
    assert refused(eng, step("level", {"n": 4}))[3] == "/n" and refused(eng, step("level", {"n": "x"}))[3] == "/n"


def test_peer_a5_a_context_under_another_name_is_never_the_models(log):
    @nk.command(destructive=True)
    def wipe(path: str, state: nk.Ctx) -> None:
        log.append(state.confirmed)

    eng = engine(wipe)
    for value in ({"dry_run": True}, None, "x"):
        assert refused(eng, step("wipe", {"path": "a",
            "state": value}))[1] == 'plan[0] (wipe): "state" is not a field of wipe'
    assert run(eng, step("wipe", {"path": "a"}), confirmed=True).ok and log == [True]


def test_peer_a6_an_opt_without_a_default(log):
    def task(note: Annotated[Optional[str], nk.Opt("x")]) -> None:
        log.append(note)

    assert run(engine(task), step("task")).ok and log == [None]


def test_peer_a7_stars(log):
    def many(*rest: int) -> None:
        log.append(rest)

    def keys(**extra: Any) -> None: ...

    eng = engine(many, keys)
    assert run(eng, step("many", {"rest": [1, "2"]})).ok and log == [(1, 2)]
    assert refused(eng, step("many", {"rest": ["x"]}))[3] == "/rest/0"
    assert refused(eng, step("keys", {"extra": {"a": 1}}))[0] == "NOT_FOUND"


def test_peer_a8_positional_only(log):
    def add(a: int, b: int, /) -> None:
        log.append((a, b))

    assert run(engine(add), step("add", {"a": 1, "b": 2})).ok and log == [(1, 2)]


def test_peer_a9_a_mutable_default_is_copied(log):
    def grow(items: list[int] = []) -> int:
        items.append(1)
        return len(items)

    eng = engine(grow)
    result = run(eng, step("grow"), step("grow"))
    assert [row["outcome"].data for row in result.steps] == [1, 1] and run(eng,
        step("grow")).steps[0]["outcome"].data == 1


def test_peer_a11_two_commands_of_one_name():
    def one() -> None: ...

    with pytest.raises(nk.RegistrationError, match='are both named "one"'):
        engine(one, nk.command(name="one")(make_wipe()))


def test_peer_a12_commands_named_done_clarify_and_reject(log):
    def done() -> None:
        log.append("done")

    def clarify(question: str) -> None:
        log.append(question)

    def reject() -> None:
        log.append("reject")

    assert run(engine(done, clarify, reject), step("done"), step("clarify", {"question": "q"}), step("reject"),
        step("done")).ok
    assert log == ["done", "q", "reject", "done"]


def test_peer_b1_text_is_read_by_the_one_check_there_is(shop):
    assert check(shop, step("buy", {"count": "42"})).steps[0].args["count"] == 42


def test_peer_b2_lax_numbers_are_refused(shop):
    for value in ("4_2", " 42 ", "４２"):
        assert refused(shop, step("buy", {"count": value}))[0] == "VALIDATION_ERROR"


def test_peer_b3_an_integer_for_a_float_arrives_as_a_float(log):
    def scale(size: float) -> None:
        log.append(size)

    assert run(engine(scale), step("scale", {"size": 3})).ok and type(log[0]) is float
    for value in ("nan", "inf", "-inf", "1e999", "Infinity", "NaN"):  # B4: LEAK
        assert refused(engine(scale), step("scale", {"size": value}))[3] == "/size"


def test_peer_b5_a_bare_nan_is_no_json(shop):
    for word in ("NaN", "Infinity", "-Infinity"):
        assert refused(shop, '{"plan": [{"tool": "show", "args": {"id": %s}}]}' % word)[0] == "PLAN_INVALID"


def test_peer_b6_booleans_as_text(log):
    def flag(on: bool) -> None:
        log.append(on)

    assert run(engine(flag), step("flag", {"on": "true"}), step("flag", {"on": "false"}),
        step("flag", {"on": True})).ok and log == [True, False, True]
    for value in (1, 0, "yes", "True", "1", None):
        assert refused(engine(flag), step("flag", {"on": value}))[3] == "/on"


def test_peer_b7_null_for_an_optional_parameter(log):
    def task(note: Optional[str] = "x") -> None:
        log.append(note)

    assert run(engine(task), step("task", {"note": None})).ok and log == [None]


def test_peer_b8_a_number_for_text_is_refused(shop):
    assert refused(shop, step("show", {"id": 42}))[1] == "plan[0] (show): Invalid input: id: expected a string, got the number 42"


def test_peer_b9_text_that_begins_with_a_dollar(shop, log):
    assert run(shop, step("show", {"id": "$5"}), step("show", {"id": "$"}), step("show", {"id": "$$HOME"})).ok
    assert log == [("show", "$5"), ("show", "$"), ("show", "$HOME")]


def test_peer_c6_short_field_names_work_end_to_end(log):
    def make() -> dict:
        return {"price": 1, "id": 2, "name": "x", "count": 3, "exchange": 4}

    def take(it: Any) -> None:
        log.append(it)

    refs = ["$m.price", "$m.id", "$m.name", "$m.count", "$m.exchange"]
    assert run(engine(make, take), step("make", {}, "$m"), *[step("take", {"it": ref})
        for ref in refs]).ok and log == [1, 2, "x", 3, 4]


def test_peer_v6_text_from_a_step_is_read_like_any_other(shop, log):
    assert run(shop, step("show", {"id": "1"}, "$m"), step("buy", {"count": "$m.count"})).ok and log[1][1] == 42


def test_peer_v7_an_integer_for_text_is_refused_before_step_1_where_types_tell(shop, log):
    assert refused(shop, step("find", {"query": "q"}, "$f"), step("show", {"id": "$f.id"})) == (
        "VALIDATION_ERROR", 'plan[1] (show): "$f.id" is of type integer, and "/id" takes string', 1, "/id")
    assert log == []


def test_peer_v5_a_plain_result_is_the_value_itself(shop, log):
    assert run(shop, step("total", {"of": [1, 2]}, "$x"), step("buy", {"count": "$x"})).ok and log[1][1] == 3


def test_peer_v3_v4_deep_fields_and_indexes(shop, log):
    assert run(shop, step("show", {"id": "1"}, "$m"), step("buy", {"count": "$m.deep.list.0.x"})).ok and log[1][1] == 1
    log.clear()
    assert refused(shop, step("show", {"id": "1"}, "$m"), step("buy",
        {"count": "$m.list[0]"}))[0] == "PLAN_INVALID" and log == []


def test_peer_v11_a_reference_inside_a_list(shop, log):
    assert run(shop, step("show", {"id": "1"}, "$m"), step("buy",
        {"count": 1, "tags": ["$m.name"]})).ok and log[1][3] == ["n"]


def test_peer_v12_a_reference_inside_a_dict(shop, log):
    assert run(shop, step("show", {"id": "1"}, "$m"), step("buy",
        {"count": 1, "options": {"a": "$m.name"}})).ok and log[1][4] == {"a": "n"}


def test_peer_v13_a_forward_reference_inside_a_list(shop, log):
    assert refused(shop, step("buy", {"count": 1, "tags": ["$m.name"]}), step("show", {"id": "1"}, "$m")) == (
        "PLAN_INVALID", 'plan[0] (buy) at "/tags/0": $m is the output of the later plan[1]; refer to earlier steps', 0,
        "/tags/0")
    assert log == []


def test_peer_v14_a_reference_inside_a_longer_text(shop, log):
    assert refused(shop, step("show", {"id": "1"}, "$m"), step("buy",
        {"count": 1, "who": "to $m.name"}))[0] == "PLAN_INVALID" and log == []


def test_peer_v9_a_name_that_no_step_assigns_in_a_plan_of_one_step(shop):
    assert refused(shop, step("show", {"id": "$never"}))[::2] == ("PLAN_INVALID", 0)


def test_peer_v10_v23_a_missing_field_is_found_before_step_1_or_keeps_its_result(shop, log):
    assert refused(shop, step("find", {"query": "q"}, "$f"),
        step("buy", {"count": "$f.nope"}))[0] == "PLAN_INVALID" and log == []
    result = run(shop, step("show", {"id": "1"}, "$m"), step("buy", {"count": "$m.nope"}))
    assert not result.ok and result.steps[0]["outcome"].data["price"] == 5


def test_peer_v16_three_dollars_are_text(shop, log):
    assert run(shop, step("show", {"id": "1"}, "$m"), step("show", {"id": "$$$m"})).ok and log[1] == ("show", "$$m")


def test_peer_v19_one_name_twice(shop):
    assert refused(shop, step("show", {"id": "1"}, "$m"), step("show", {"id": "1"}, "$m"))[0] == "PLAN_INVALID"


def test_peer_d1_destructive_is_a_flag_of_the_decorator(shop):
    assert shop.find("wipe", "agent").destructive is True


def test_peer_d4_a_dry_run_calls_no_function_with_or_without_a_context(shop, log):
    eng = engine(nk.command(destructive=True)(make_wipe()))
    result = run(shop, step("show", {"id": "1"}), step("wipe", {"path": "a"}), dry_run=True)
    assert result.ok and run(eng, step("wipe", {"path": "a"}), dry_run=True).ok and log == []


def test_peer_d6_nothing_runs_before_a_destructive_step_is_approved(shop, log):
    assert run(shop, step("show", {"id": "1"}), step("wipe", {"path": "a"})).exit_code == 8 and log == []


def test_peer_d10_a_flag_that_is_no_boolean_is_refused_at_registration():
    with pytest.raises(nk.RegistrationError, match="destructive must be True or False"):
        engine(nk.command(destructive="Destructive")(make_wipe()))


def test_peer_d12_the_plan_that_was_previewed_is_the_one_that_runs(shop, log):
    plan = check(shop, step("wipe", {"path": "a"}))
    seen = execute(plan, dry_run=True).steps[0]["args"]
    assert execute(plan, confirmed=plan.digest).ok and log == [("wipe", seen["path"], True, False)]
    other = check(shop, step("wipe", {"path": "b"}))
    assert execute(other, confirmed=plan.digest).exit_code == 8 and len(log) == 1


def test_peer_d13_one_approval_is_for_one_plan(shop, log):
    first = check(shop, step("wipe", {"path": "0"}))
    for number in range(5):
        execute(check(shop, step("wipe", {"path": str(number)})), confirmed=first.digest)
    assert log == [("wipe", "0", True, False)]


def test_peer_d14_d16_the_function_that_approves_is_the_whole_gate(shop, log):
    asked: list = []
    assert run(shop, step("wipe", {"path": "a"}), confirmed=lambda step: asked.append(step.tool) or True).ok
    assert asked == ["wipe"] and log == [("wipe", "a", True, False)]
    assert not run(shop, step("wipe", {"path": "a"}), confirmed=lambda step: False).ok and len(log) == 1


def test_peer_d19_an_approval_declined_at_a_later_step_says_what_was_done(shop, log):
    result = run(shop, step("show", {"id": "1"}, "$m"), step("wipe", {"path": "$m.path"}), confirmed=lambda step: False)
    assert [(row["step"], row["outcome"].ok) for row in result.steps] == [(0, True),
        (1, False)] and result.error.details == {"step": 1}


def test_peer_s6_the_checked_file_is_the_file_that_is_used(box, log, tmp_path, monkeypatch):
    (tmp_path / "ok.txt").write_text("the other one")
    monkeypatch.chdir(tmp_path)
    assert run(box, step("read", {"file": "ok.txt"})).steps[0]["outcome"].data == "fine"


@pytest.mark.parametrize("row, value", [("s8", ["../secret"]), ("s9", {"path": "../secret"}), ("s9c", "Li4vc2VjcmV0")])
def test_peer_s8_s9_no_type_smuggles_a_path(box, log, row, value):
    result = run(box, step("give", {"it": value}, "$m"), step("read", {"file": "$m"}))
    assert (row == "s9c") == result.ok and all("secret" not in str(entry) for entry in log)


def test_peer_s10_s11_a_path_of_any_name_is_checked(box, log):
    for path in ("/etc/passwd", "../secret"):
        assert refused(box, step("read", {"file": path}))[0] == "SANDBOX_ESCAPE"
        assert run(box, step("give", {"it": path}, "$m"), step("read", {"file": "$m"})).exit_code == 3
        assert refused(box, step("text", {"path": path}))[0] == "SANDBOX_ESCAPE"
    assert log == []


def test_peer_s12_s13_paths_inside_lists_and_dicts(box, log):
    assert refused(box, step("files", {"list_of": ["../secret"]}))[3] == "/list_of/0"
    assert refused(box, step("files", {"list_of": [], "more": {"a": "../secret"}}))[3] == "/more/a" and log == []


def test_peer_s16_a_leading_tilde(box):
    assert refused(box, step("read", {"file": "~/x"}))[0] == "SANDBOX_ESCAPE"


def test_peer_s18_s21_long_empty_and_odd_paths(box, log):
    for path in ("x" * 5000, "/".join(["x" * 100] * 60), ""):
        assert refused(box, step("read", {"file": path}))[0] == "SANDBOX_ESCAPE"
    if os.name != "nt":
        assert run(box, step("read", {"file": "file://x"}), step("read", {"file": "C:\\x"})).ok
        assert all("/in/" in entry[2] for entry in log)


def test_peer_s22_a_link_that_leads_to_itself(box, tmp_path):
    (tmp_path / "in" / "loop").symlink_to("loop")
    assert refused(box, step("read", {"file": "loop"}))[0] == "SANDBOX_ESCAPE"
    assert refused(box, step("read", {"file": "loop/x"}))[0] == "SANDBOX_ESCAPE"


def test_a_pipe_or_a_device_is_no_path(box, log, tmp_path):
    os.mkfifo(tmp_path / "in" / "pipe")
    assert refused(box, step("read", {"file": "pipe"}))[::2] == ("SANDBOX_ESCAPE", 0)
    plan = check(box, step("read", {"file": "ok.txt"}))
    (tmp_path / "in" / "ok.txt").unlink()
    os.mkfifo(tmp_path / "in" / "ok.txt")
    assert facts(execute(plan).error)[::2] == ("SANDBOX_ESCAPE", 0) and log == []


def test_peer_s23_a_sandbox_is_not_off_by_default():
    def read(file: pathlib.Path) -> None: ...

    assert refused(engine(read), step("read", {"file": "x"}))[0] == "SANDBOX_ESCAPE"


def test_peer_j2b_braces_in_prose(shop):
    assert refused(shop, 'use {braces} {"plan": []}')[0] == "PLAN_INVALID"


def test_peer_j4c_an_unclosed_think_block(shop, log):
    assert refused(shop, '<think>draft {"plan": [{"tool": "show", "args": {"id": "1"}}]}')[0] == "PLAN_INVALID" and log == []


def test_peer_j4e_prose_that_names_two_plans(shop, log):
    first, second = (json.dumps({"plan": [step("show", {"id": name})]}) for name in "ab")
    assert refused(shop, f"I must not run {first} so instead: {second}")[0] == "PLAN_INVALID"
    assert refused(shop, first + second)[0] == "PLAN_INVALID" and log == []


def test_peer_j5_a_brace_inside_a_text(shop, log):
    assert run(shop, '{"plan": [{"tool": "show", "args": {"id": "a } b { c \\" }"}}]}').ok and log == [("show",
        'a } b { c " }')]


def test_peer_j5c_j5d_fences_and_think_tags_inside_a_text_stay(shop, log):
    for text in ("use ```json here```", "a <think>b</think> c", "```", "</think>"):
        assert run(shop, "```json\n" + json.dumps({"plan": [step("show",
            {"id": text})]}) + "\n```").ok and log[-1] == ("show", text)


def test_peer_j6_a_repeated_key(shop, log):
    for text in ('{"plan": [], "plan": [{"tool": "wipe", "args": {"path": "a"}}]}',
        '{"plan": [{"tool": "show", "tool": "wipe", "args": {"path": "a"}}]}',
                 '{"plan": [{"tool": "show", "args": {"id": "1", "id": "2"}}]}',
                 '{"plan": [{"tool": "show", "args": {"id": "1", "\\u0069d": "2"}}]}'):
        assert refused(shop, text)[1] == "this is no plan: it has a repeated key" + REMEDY
    assert log == []


def test_peer_j7_extra_fields_are_reported(shop):
    assert refused(shop, {"tool": "show", "args": {"id": "1"}, "why": "x"})[0] == "PLAN_INVALID"


def test_peer_j9d_an_empty_plan_is_no_success(shop):
    assert execute(check(shop, '{"plan": []}')).exit_code == 4


def test_peer_j10_steps_of_wrong_types(shop):
    for bad in ("x", None, 1, [], {"tool": ["show"], "args": {}}, {"tool": "show", "args": []},
        {"tool": "show", "args": "x"}, {"args": {}}):
        assert refused(shop, json.dumps({"plan": [bad]}))[::2] == ("PLAN_INVALID", 0)


def test_peer_j11_deep_nesting(shop):
    for depth in (33, 900, 3_000, 100_000):
        for text in ("[" * depth, '{"plan": ' + "[" * depth + "]" * depth + "}",
            '{"plan": [{"tool": "buy", "args": ' + '{"options":' * depth):
            assert refused(shop, text)[0] == "PLAN_INVALID"


def test_peer_j12_thousands_of_steps(shop, log):
    for count in (33, 1_000, 20_000):
        assert refused(shop, json.dumps({"plan": [step("show", {"id": "1"})] * count}))[0] == "PLAN_INVALID"
    assert log == []


def test_peer_j13_think_tags_without_end_take_linear_time(shop):
    started = time.perf_counter()
    for count in (2_000, 32_000, 149_000):
        assert refused(shop, "<think>" * count + '{"plan": []}')[0] == "PLAN_INVALID"
    assert time.perf_counter() - started < 1


def test_peer_j17_a_lone_surrogate(shop):
    assert refused(shop, '{"plan": [{"tool": "show", "args": {"id": "\\udfff"}}]}')[0] == "PLAN_INVALID"
    assert refused(shop, step("show", {"id": "\udfff"}))[0] == "PLAN_INVALID"


def test_peer_j20_j22_no_tool_stops_a_plan_or_lets_an_earlier_step_pass(shop, log):
    assert refused(shop, step("wipe", {"path": "a"}), step("reject"))[::2] == ("NOT_FOUND", 1)
    assert refused(shop, step("done"), step("show", {"id": "1"}))[0] == "NOT_FOUND" and log == []


def test_peer_r4_results_without_a_json_form(log):
    def odd(kind: str) -> Any:
        return {"object": object(), "nan": float("nan"), "inf": [float("inf")], "generator": (i for i in ()),
            "set": {1, 2}, "bytes": b"x"}[kind]

    eng = engine(odd)
    for kind in ("object", "nan", "inf", "generator"):
        result = run(eng, step("odd", {"kind": kind}))
        assert facts(result.error)[::2] == ("INTERNAL_SERVER_ERROR", 0) and json.dumps(result.to_wire())
    assert run(eng, step("odd", {"kind": "set"})).steps[0]["outcome"].data == [1, 2]
    assert run(eng, step("odd", {"kind": "bytes"})).steps[0]["outcome"].data == "eA=="


def test_peer_r4r_a_result_that_contains_itself():
    def loop() -> Any:
        made: dict = {}
        made["me"] = made
        return made

    def keys() -> Any:
        return {(1, 2): 3}

    for name in ("loop", "keys"):
        assert run(engine(loop, keys), step(name)).error.code == "INTERNAL_SERVER_ERROR"


def test_peer_r5_no_key_of_a_result_is_magic(log):
    def shell() -> dict:
        return {"returncode": 1, "ok": False, "error": "x"}

    def after() -> None:
        log.append("after")

    assert run(engine(shell, after), step("shell"), step("after")).ok and log == ["after"]


def test_peer_r6_a_failing_step_is_named_and_earlier_results_are_kept(shop):
    result = run(shop, step("show", {"id": "1"}), step("fail", {"code": "crash"}))
    assert facts(result.error)[::2] == ("INTERNAL_SERVER_ERROR", 1) and result.steps[0]["outcome"].ok


def test_peer_r6b_a_function_that_calls_sys_exit_ends_no_process():
    def leave() -> int:
        sys.exit(0)

    assert run(engine(leave), step("leave")).error.code == "INTERNAL_SERVER_ERROR"


def test_peer_r7_a_coroutine_function_is_awaited(shop, log):
    async def later(n: int) -> int:
        await asyncio.sleep(0)
        return n + 1

    eng = engine(later)
    plan = check(eng, step("later", {"n": 1}, "$m"), step("later", {"n": "$m"}))
    assert execute(plan).steps[1]["outcome"].data == 3
    assert asyncio.run(nk._plan_execute(plan, live=True)).steps[1]["outcome"].data == 3


# -- fuzz ----------------------------------------------------------------------------------------------------------

PIECES = ["{", "}", "[", "]", ",", ":", '"', "\\", "\\u0024", "$m", "$$", "$m.price", "<think>", "</think>", "```",
    "```json", "\n", " ", "null", "1e999", "NaN", "-",
          '"plan"', '"tool"', '"args"', '"output"', '"show"', '"wipe"', '"path"', '"id"', "\ufeff", "\ud800", "\0",
          "é", '"$m"', '{"plan":[', "]}", "{}", "9" * 40,
          '{"plan":[{"tool":"show","args":{"id":"1"},"output":"$m"}', '{"tool":"buy","args":{"count":"$m.price"}}']


def test_no_text_ends_in_a_traceback_or_a_call(shop, log, rng):
    whole = json.dumps({"plan": [step("show", {"id": "1"}, "$m"), step("buy", {"count": "$m.price", "tags": ["$$x"]}),
        step("wipe", {"path": "a"})]})
    for _ in range(3_000):
        if rng.random() < 0.5:
            text = "".join(rng.choice(PIECES) for _ in range(rng.randrange(12)))
        else:
            at, size = rng.randrange(len(whole)), rng.randrange(4)
            text = whole[:at] + "".join(rng.choice(PIECES) for _ in range(rng.randrange(3))) + whole[at + size:]
        for form in (text, text.encode("utf-8", "surrogatepass")):
            try:
                plan = check(shop, form)
            except nk.Error as error:
                assert error.code in ("PLAN_INVALID", "NOT_FOUND", "VALIDATION_ERROR") and json.dumps(error.to_wire())
            else:
                assert nk._plan_check(shop, plan.to_wire()).digest == plan.digest
                execute(plan, dry_run=True).to_wire()
    assert log == []


def test_no_object_ends_in_a_traceback(shop, log, rng):
    leaves = [None, True, 0, -1, 2.5, "", "x", "$m", "$m.price", "$$", "$m x", "1", "[1]", '{"a": "$m"}', "a\0b",
        float("nan"), object(), b"x", "é" * 50, 10**50]
    words = ["plan", "tool", "args", "output", "id", "count", "tags", "of", "path", "$m", "options", "", "ctx"]

    def grow(levels: int) -> Any:
        kind = rng.random()
        if levels == 0 or kind < 0.4:
            return rng.choice(leaves)
        if kind < 0.7:
            return [grow(levels - 1) for _ in range(rng.randrange(4))]
        return {rng.choice(words): grow(levels - 1) for _ in range(rng.randrange(4))}

    for _ in range(3_000):
        tools = rng.sample(["show", "find", "total", "buy", "wipe", "fail"], 3)
        steps = []
        for index, tool in enumerate(tools):
            args = {rng.choice(words): grow(3) for _ in range(rng.randrange(4))}
            good = {"show": {"id": "1"}, "find": {"query": "q"}, "total": {"of": [1]}, "buy": {"count": 1},
                "wipe": {"path": "a"}, "fail": {}}[tool]
            steps.append(step(tool, {**args, **good} if rng.random() < 0.3 else {**good, **args} if rng.random() < 0.5
                else good, ["$m", "$n", "$o"][index]))
        envelope = grow(5) if rng.random() < 0.2 else {"plan": steps}
        try:
            plan = nk._plan_check(shop, envelope)
        except nk.Error as error:
            assert error.code in ("PLAN_INVALID", "NOT_FOUND", "VALIDATION_ERROR")
            continue
        for options in ({"confirmed": True}, {"confirmed": lambda step: rng.random() < 0.5}, {"dry_run": True}):
            result = execute(plan, **options)
            assert json.dumps(result.to_wire())
            assert (result.error is None) == (result.exit_code == 0) or result.error is None
            if result.rest is not None and result.rest is not plan:
                execute(result.rest, confirmed=result.rest.digest)
    wiped = [entry[2:] for entry in log if entry[0] == "wipe"]
    assert wiped and set(wiped) == {(True, False)}
