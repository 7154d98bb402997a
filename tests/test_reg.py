"""REG: commands, services, names, the framework options, Ctx and Outcome, and every registration fault by its words."""
from __future__ import annotations

import contextlib
import functools
import importlib.util
import itertools
import os
import re
import string
import sys
import threading
import time

import pytest

import knaif as nk
from knaif import Ctx


# The program that the tests register


def add(title: str, count: int = 0) -> dict:
    """Add a task
    to the list.

    The second paragraph is for readers of the source.
    """
    return {"title": title, "count": count}


def purge(before: str, ctx: nk.Ctx) -> int:
    return 7 if ctx.dry_run else 8


def bare() -> None:
    pass


def collect(first: str, *rest: str, flag: bool = False, **extra: str) -> dict:
    return {"first": first, "rest": rest, "flag": flag, "extra": extra}


def raw(args):
    return args


def raw_with_context(args, ctx):
    return [args, ctx]


async def later(name: str) -> str:
    return name


class Shop:
    def __init__(self, name="shop"):
        self.name = name

    def open_shop(self, day: str) -> str:
        return self.name + day

    @classmethod
    def of_class(cls, day: str) -> str:
        return cls.__name__ + day

    @staticmethod
    def of_nothing(day: str) -> str:
        return day

    def __call__(self, day: str) -> str:
        return day


def logged(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return ("logged", function(*args, **kwargs))

    return wrapper


wrapped = logged(add)
cached = functools.lru_cache(maxsize=None)(add)


def generating(n: int):
    yield n


async def generating_later(n: int):
    yield n


def schema(*names, **more):
    return dict({"type": "object", "properties": {name: {"type": "string"} for name in names}}, **more)


def refused(make, *args, **kwargs):
    """Return the sentence of the RegistrationError that make raises."""
    with pytest.raises(nk.RegistrationError) as caught:
        make(*args, **kwargs)
    assert (caught.value.code, nk.exit_code(caught.value.code)) == ("REGISTRATION_ERROR", 70)
    return caught.value.message


def named(name, text="", **annotations):
    """Return a function of these parameters, as a program would write it."""
    space = {"nk": nk, "Ctx": Ctx}
    exec("def %s(%s): pass" % (name, text or ", ".join(annotations)), space)
    function = space[name]
    function.__module__, function.__annotations__ = "shop", annotations
    return function


# Recording


def test_decorators_record_and_return_the_function_itself():
    def f(a: str) -> str:
        return a

    assert nk.command(f) is f
    assert f.__knaif_command__ == {} and f("x") == "x"
    assert nk.command(name="g", destructive=True, expose=("cli",))(f) is f
    assert f.__knaif_command__ == {"name": "g", "destructive": True, "expose": ("cli",)}
    assert type(f.__knaif_command__) is dict


def test_a_native_is_recorded_as_such():
    def f() -> int:
        return 1

    nk.native(f)
    assert f.__knaif_command__ == {"native": True}


def test_a_later_decorator_never_lowers_a_guard():
    def f() -> int:
        return 1

    nk.command(nk.command(f, destructive=True, name="first"), name="second")
    assert f.__knaif_command__ == {"destructive": True, "name": "second"}


def test_each_record_is_an_object_of_its_own():
    def f() -> int:
        return 1

    wrapper = logged(nk.command(f, name="inner"))
    nk.command(wrapper, name="outer")
    assert f.__knaif_command__["name"] == "inner" and wrapper.__knaif_command__["name"] == "outer"


@pytest.mark.parametrize("outside", [True, False], ids=["over", "under"])
def test_a_staticmethod_may_be_decorated_either_way_round(outside):
    class Space:
        if outside:
            f = nk.command(name="g")(staticmethod(lambda: 1))
        else:
            f = staticmethod(nk.command(name="g")(lambda: 1))

    made = nk._reg_command(Space.__dict__["f"], default_expose=("cli",))
    assert (made.name, made.handler()) == ("g", 1)


def test_a_bound_method_keeps_its_record():
    class Space:
        @nk.command(name="greet")
        def f(self, name: str) -> str:
            return self.word + name

    space = Space()
    space.word = "hi "
    made = nk._reg_command(space.f, default_expose=("cli",))
    assert (made.name, made.parameter_names, made.handler("bob")) == ("greet", ("name",), "hi bob")


@pytest.mark.parametrize(
    "thing, message",
    [
        ("list", '"list"'),
        (len, "a builtin_function_or_method"),
        (7, "an int"),
        ((), "a tuple"),
    ],
    ids=repr,
)
def test_what_cannot_carry_a_record_is_refused_at_once(thing, message):
    tail = " cannot be a command; put the decorator on a function, with its options in parentheses by keyword"
    assert refused(nk.command, thing) == message + tail
    assert refused(nk.native, thing) == message + tail
    assert refused(nk.command(name="x"), thing) == message + tail


# Command


def test_a_plain_function():
    made = nk.Command(add, keywords=["new"], examples=["milk --count 2"], scope="user")
    assert (made.name, made.owner, made.action, made.service) == ("add", "test_reg.add", "add", None)
    assert made.description == "Add a task to the list."
    assert (made.keywords, made.examples) == (["new"], ["milk --count 2"])
    assert made.identity == (None, "add", "user")
    assert made.parameter_names == ("title", "count")
    assert made.asked_surfaces is None and made.surfaces == {"agent", "mcp"}
    flags = made.destructive, made.readonly, made.idempotent, made.previews, made.hidden, made.native, made.remote
    assert not any(flags)
    assert repr(made) == "<Command add of test_reg.add>"


def test_a_native_stands_on_cli_alone_without_identity():
    made = nk.Command(bare, native=True)
    assert made.surfaces == {"cli"} and made.identity is None and made.withheld == {}
    assert nk._reg_command(made, default_expose=("agent", "mcp")).surfaces == {"cli"}


@pytest.mark.parametrize(
    "doc, help, description",
    [
        (None, None, ""),
        ("", None, ""),
        ("   \n  ", None, ""),
        ("One line.", None, "One line."),
        ("\n    First\n    second.\n\n    Third.\n", None, "First second."),
        ("First\n \t \nThird", None, "First"),
        (42, None, "42"),
        ("Doc.", "  Help.\n\nMore. ", "Help.\n\nMore."),
        ("Doc.", "", ""),
    ],
)
def test_the_description(doc, help, description):
    function = named("f")
    function.__doc__ = doc
    assert nk.Command(function, help=help).description == description


def test_every_kind_of_handler_that_is_understood():
    shop = Shop("corner ")
    kinds = [
        (add, "add", ("title", "count")),
        (later, "later", ("name",)),
        (shop.open_shop, "open_shop", ("day",)),
        (Shop.of_class, "of_class", ("day",)),
        (Shop.of_nothing, "of_nothing", ("day",)),
        (Shop.__dict__["of_nothing"], "of_nothing", ("day",)),
        (wrapped, "add", ("title", "count")),
        (logged(logged(shop.open_shop)), "open_shop", ("day",)),
        (cached, "add", ("title", "count")),
        (collect, "collect", ("first", "flag", "rest", "extra")),
        (purge, "purge", ("before",)),
    ]
    for handler, name, parameters in kinds:
        made = nk.Command(handler)
        assert made.name == name
        assert sorted(made.parameter_names) == sorted(parameters)
        assert callable(made.handler)


def test_a_lambda_with_a_name():
    assert nk.Command(lambda args: args, name="echo", input=schema("a")).parameter_names == ("a",)


def loop_of_wrappers():
    def f() -> int:
        return 1

    f.__wrapped__ = f
    return f


class Strange:
    """Answers to every attribute, as a mock does."""

    def __getattr__(self, name):
        return Strange()

    def __call__(self):
        return None


CANNOT = " cannot be a command; register a function made with def, or a method of an object, not "


@pytest.mark.parametrize(
    "handler, message",
    [
        (Shop, "test_reg.Shop" + CANNOT + "a class"),
        (Shop(), "a Shop" + CANNOT + "a Shop"),
        (functools.partial(add, count=1), "a partial" + CANNOT + "a partial"),
        (functools.update_wrapper(functools.partial(add, count=1), add), "test_reg.add" + CANNOT + "a partial"),
        (Shop.__dict__["of_class"], "test_reg.Shop.of_class" + CANNOT + "a classmethod"),
        (len, "builtins.len" + CANNOT + "a builtin_function_or_method"),
        (str.upper, "str.upper" + CANNOT + "a method_descriptor"),
        ("add", '"add"' + CANNOT + '"add"'),
        (None, "a NoneType" + CANNOT + "a NoneType"),
        (
            Shop.open_shop,
            "test_reg.Shop.open_shop: self is no field; register the method of an object in its place",
        ),
        (generating, "test_reg.generating is a generator function; return a list instead of yielding"),
        (generating_later, "test_reg.generating_later is a generator function; return a list instead of yielding"),
        (
            functools.lru_cache(maxsize=1)(generating),
            "test_reg.generating is a generator function; return a list instead of yielding",
        ),
        (
            lambda: 1,
            'test_reg.<lambda>: the name "<lambda>" is not made of 1 to 64 ASCII letters, digits, _ and -; '
            "give another one with name=",
        ),
    ],
    ids=lambda value: value.split(";")[0] if isinstance(value, str) else "",
)
def test_handlers_that_are_refused(handler, message):
    assert refused(nk.Command, handler) == message


def test_strange_objects_are_refused_too():
    assert "a Strange" in refused(nk.Command, Strange())
    assert "a Strange" in refused(nk._reg_command, Strange(), default_expose=("cli",))


def test_a_cycle_of_wrappers_ends():
    assert nk.Command(loop_of_wrappers()).name == "f"


# Names


@pytest.mark.parametrize("name", ["a", "A9", "_", "a-b", "a_b", "9", "x" * 64, "version", "constructor", "__proto__"])
def test_good_names(name):
    assert nk.Command(add, name=name).name == name


LETTERS = " is not made of 1 to 64 ASCII letters, digits, _ and -; give another one with name="


@pytest.mark.parametrize(
    "name, message",
    [
        ("", 'test_reg.add: the name ""' + LETTERS),
        ("x" * 65, 'test_reg.add: the name "%s…"' % ("x" * 58) + LETTERS),
        ("a b", 'test_reg.add: the name "a b"' + LETTERS),
        ("größe", 'test_reg.add: the name "größe"' + LETTERS),
        ("٣", 'test_reg.add: the name "٣"' + LETTERS),
        ("a\n", 'test_reg.add: the name "a\\n"' + LETTERS),
        ("a.b", 'test_reg.add: the name "a.b"' + LETTERS),
        (7, "test_reg.add: name must be text, not an int"),
        (["a"], "test_reg.add: name must be text, not a list"),
        ("-", 'test_reg.add: the name "-" begins like an option; give another one with name='),
        ("--json", 'test_reg.add: the name "--json" begins like an option; give another one with name='),
        ("help", 'test_reg.add: the name "help" is reserved; give another one with name='),
    ],
)
def test_bad_names(name, message):
    got = refused(nk.Command, add, name=name)
    if len(str(name)) > 64:
        assert got.startswith('test_reg.add: the name "xxx') and got.endswith(LETTERS) and len(got) < 200
    else:
        assert got == message


def test_a_function_name_that_is_no_command_name():
    assert refused(nk.Command, named("größe")) == 'shop.größe: the name "größe"' + LETTERS


# Parameters


@pytest.mark.parametrize("option", [row[0] for row in nk.REG_OPTIONS if row[0] != "version"])
def test_no_parameter_is_named_like_a_framework_option(option):
    name = option.replace("-", "_")
    message = '%s: the parameter "%s" has a name that belongs to the framework; rename it'
    assert refused(nk.Command, named("f", **{name: str})) == message % ("shop.f", name)
    assert refused(nk.Command, raw, input=schema(option)) == message % ("test_reg.raw", option)
    assert refused(nk.Command, raw, input=schema(name)) == message % ("test_reg.raw", name)
    assert nk.Command(raw, input=schema(option), remote=True).parameter_names == (option,)


@pytest.mark.parametrize(
    "function, message",
    [
        (named("f", "*sort"), 'the parameter "sort" has a name that belongs to the framework; '),
        (named("f", "*, top"), 'the parameter "top" has a name that belongs to the framework; '),
        (named("f", "**by"), 'the parameter "by" has a name that belongs to the framework; '),
        (named("f", confirmed=bool), 'the parameter "confirmed" has a name that belongs to the framework; '),
        (named("f", ctx=str), 'the parameter "ctx" is the context of the call; annotate it Ctx or '),
        (named("f", ctx="str"), 'the parameter "ctx" is the context of the call; annotate it Ctx or '),
        (named("f", "ctx"), 'the parameter "ctx" is the context of the call; annotate it Ctx or '),
        (
            named("f", größe=str),
            'the parameter "größe" is not made of 1 to 64 ASCII letters, digits and _; ',
        ),
    ],
)
def test_parameters_that_are_refused(function, message):
    assert refused(nk.Command, function) == "shop.f: " + message + "rename it"


def test_a_parameter_name_that_is_too_long():
    assert refused(nk.Command, named("f", "x" * 65)).endswith(
        " is not made of 1 to 64 ASCII letters, digits and _; rename it"
    )


def test_version_is_an_ordinary_name():
    assert nk.Command(named("f", version=str)).parameter_names == ("version",)
    assert nk.Command(raw, input=schema("version", "x.y", "größe")).parameter_names == ("version", "x.y", "größe")


@pytest.mark.parametrize(
    "note", [nk.Ctx, "nk.Ctx", "Ctx", "'Ctx'", '"nk.Ctx"', "unknown.Ctx"], ids=lambda note: str(note)
)
@pytest.mark.parametrize("name", ["ctx", "context"])
def test_the_context_is_known_by_its_annotation(note, name):
    made = nk.Command(named("f", **{"title": "str", name: note}))
    assert made.parameter_names == ("title",)


@pytest.mark.parametrize("note", ["str", "nk.Command", "Context", "nk", "Ctx.x", "list[Ctx]", "", "."])
def test_other_annotations_are_no_context(note):
    assert nk.Command(named("f", context=note)).parameter_names == ("context",)


def test_annotations_that_cannot_be_read_are_told_later():
    class Broken:
        @property
        def __annotations__(self):
            raise ValueError("later")

    assert nk._reg_annotations(Broken()) == {}


def test_an_annotated_self_is_a_parameter():
    assert nk.Command(named("f", self=str)).parameter_names == ("self",)


@pytest.mark.parametrize("names", [(), ("a",), ("a", "b")])
def test_raw_schemas_name_the_fields(names):
    assert nk.Command(raw, input=schema(*names)).parameter_names == names
    assert nk.Command(raw_with_context, input=schema(*names)).parameter_names == names
    assert nk.Command(raw, input={"type": "object"}).parameter_names == ()


@pytest.mark.parametrize(
    "handler, options, message",
    [
        (raw, {"input": "{}"}, 'test_reg.raw: input must be a JSON Schema as a dict, not "{}"'),
        (raw, {"input": True}, "test_reg.raw: input must be a JSON Schema as a dict, not a bool"),
        (
            raw,
            {"input": {}, "args": {}},
            "test_reg.raw: input already describes every field; leave args out",
        ),
        (
            add,
            {"input": {}},
            "test_reg.add: with input= the function takes the object as its first parameter and may take a Ctx beside it, "
            "not title, count",
        ),
        (
            bare,
            {"input": {}},
            "test_reg.bare: with input= the function takes the object as its first parameter and may take a Ctx beside it, "
            "not nothing",
        ),
        (add, {"args": ["title"]}, "test_reg.add: args must be a dict of Arg by parameter, not a list"),
        (add, {"args": 7}, "test_reg.add: args must be a dict of Arg by parameter, not an int"),
        (add, {"destructive": "yes"}, 'test_reg.add: destructive must be True or False, not "yes"'),
        (add, {"hidden": 1}, "test_reg.add: hidden must be True or False, not an int"),
        (
            add,
            {"destructive": True, "readonly": True},
            "test_reg.add: destructive and readonly exclude each other; leave one of them out",
        ),
        (
            add,
            {"previews": True},
            "test_reg.add: previews=True calls the function in dry runs, which only ctx.dry_run tells; "
            "give it a parameter annotated Ctx",
        ),
        (add, {"help": 7}, "test_reg.add: help must be text, not an int"),
        (add, {"scope": ["user"]}, "test_reg.add: scope must be text, not a list"),
        (
            add,
            {"keywords": "new"},
            'test_reg.add: keywords must be a list of texts, not "new"',
        ),
        (
            add,
            {"examples": [7]},
            "test_reg.add: examples must be a list of texts, not one with an int",
        ),
        (
            add,
            {"present": str},
            "test_reg.add: present belongs to native commands; leave it out",
        ),
        (
            add,
            {"exit_code": 3, "native": True},
            "test_reg.add: exit_code must be a function of the result, not an int",
        ),
        (
            bare,
            {"present": str, "native": True},
            "test_reg.bare: present and exit_code need a result; annotate what the function returns, or give returns=",
        ),
        (
            raw,
            {"exit_code": len, "native": True},
            "test_reg.raw: present and exit_code need a result; annotate what the function returns, or give returns=",
        ),
        (
            add,
            {"native": True, "expose": ("cli",)},
            "test_reg.add: expose belongs to managed commands; a native one is on cli alone; leave it out",
        ),
        (
            add,
            {"native": True, "scope": "user"},
            "test_reg.add: scope belongs to managed commands; a native one is on cli alone; leave it out",
        ),
    ],
)
def test_options_that_are_refused(handler, options, message):
    assert refused(nk.Command, handler, **options) == message


@pytest.mark.parametrize(
    "text", ["", "*args", "**args", "*, args", "ctx: Ctx", "ctx: Ctx, args", "args, *ctx", "args, **ctx", "args, more"]
)
def test_functions_that_cannot_take_the_object_of_a_raw_schema(text):
    space = {"Ctx": nk.Ctx}
    exec("def f(%s): pass" % text, space)
    assert "with input= the function takes the object as its first parameter" in refused(
        nk.Command, space["f"], input={"type": "object"}
    )


@pytest.mark.parametrize(
    "text", ["args", "args, /", "args, ctx", "args, ctx, /", "args, *, ctx", "args, context: Ctx", "self", "args: dict"]
)
def test_functions_that_take_the_object_of_a_raw_schema(text):
    space = {"Ctx": nk.Ctx}
    exec("def f(%s): return locals()" % text, space)
    made, ctx = nk.Command(space["f"], input=schema("a"), expose=("cli",)), nk.Ctx()
    assert made.parameter_names == ("a",)
    result = made.call({"a": "b"}, ctx)
    assert list(result.values()) == [{"a": "b"}, ctx][: len(result)]


def test_options_that_are_allowed():
    assert nk.Command(purge, previews=True, destructive=True).previews
    assert nk.Command(add, native=True, present=str, exit_code=len).exit_status is len
    assert nk.Command(bare, native=True, present=str, returns={"type": "null"}).present is str


# Surfaces


@pytest.mark.parametrize(
    "expose, shown",
    [
        ("cli", '"cli"'),
        (7, "an int"),
        (("cli", "shell"), 'one with "shell"'),
        (("CLI",), 'one with "CLI"'),
        ((None,), "one with a NoneType"),
        (([],), "one with a list"),
    ],
)
def test_exposures_that_are_refused(expose, shown):
    message = ": expose must be a list of cli, agent and mcp, not " + shown
    assert refused(nk.Command, add, expose=expose) == "test_reg.add" + message
    assert refused(nk._reg_command, add, default_expose=expose) == "the application" + message


def test_what_a_command_asks_for_wins():
    own = nk.command(logged(add), expose=["cli"])
    assert nk._reg_command(own, default_expose=("agent",)).surfaces == {"cli"}
    assert nk._reg_command(add, default_expose=("cli", "agent")).surfaces == {"cli", "agent"}
    assert nk._reg_command(nk.Command(add, expose=()), default_expose=("cli",)).surfaces == frozenset()
    assert nk._reg_command(nk.Command(add), default_expose=("cli",)).surfaces == {"cli"}


def test_passthrough_is_left_off_agent_and_mcp_with_its_reason():
    made = nk._reg_command(collect, default_expose=("cli", "agent", "mcp"))
    reason = "**extra is filled on the command line alone"
    assert made.surfaces == {"cli"}
    assert made.withheld == {"agent": reason, "mcp": reason}
    assert nk._reg_command(collect, default_expose=("cli",)).withheld == {}
    assert refused(nk.Command, collect, expose=("cli", "mcp")) == (
        "test_reg.collect: expose asks for mcp, but **extra is filled on the command line alone; "
        "expose it on cli alone or replace **extra by declared parameters"
    )
    assert nk.Command(collect, expose=("cli",)).surfaces == {"cli"}


# What comes from the schemas


def secret(token, note=""):
    return [token, note]


secret.__annotations__ = {"token": str, "note": str, "return": list}


def test_a_required_secret_is_left_off_agent_and_mcp_once_the_schema_is_known():
    args = {"token": nk.Arg(secret=True)}
    made = nk._reg_command(nk.Command(secret, args=args), default_expose=("cli", "agent", "mcp"))
    reason = "the secret token is typed on the command line alone"
    kept = nk.Registry()
    kept.add(made)
    assert kept.commands("agent") == [] and kept.get("secret", "mcp") is None
    assert kept.get("secret", "cli") is kept.find_cli("secret") is made
    assert made.surfaces == {"cli"} and made.withheld == {"agent": reason, "mcp": reason}
    made = nk._reg_command(nk.Command(secret, args=args), default_expose=("cli",))
    assert made.withheld == {} and made.surfaces == {"cli"}
    for default, left in ((("mcp",), set()), (("cli", "mcp"), {"cli"}), (("agent", "mcp"), set())):
        assert nk._reg_command(nk.Command(secret, args=args), default_expose=default).surfaces == left


def test_a_required_secret_asked_for_elsewhere_is_refused_every_time():
    made = nk.Command(secret, args={"token": nk.Arg(secret=True)}, expose=("cli", "agent", "mcp"))
    for _ in range(2):
        for look in (lambda: made.surfaces, lambda: made.input, lambda: made.prints, lambda: made.is_on("mcp")):
            assert refused(look) == (
                "test_reg.secret: expose asks for agent and mcp, but the secret token is typed on the command line "
                "alone; expose it on cli alone or give token a default"
            )


def test_the_first_reason_to_withhold_is_told():
    def f(first: str, second: str, **more: str) -> list:
        return [first, second, more]

    f.__annotations__ = {"first": str, "second": str, "more": str}
    made = nk.Command(f, args={"first": nk.Arg(secret=True), "second": nk.Arg(secret=True)})
    assert made.surfaces == set() and set(made.withheld.values()) == {"**more is filled on the command line alone"}


def test_an_optional_secret_stays():
    made = nk.Command(secret, args={"note": nk.Arg(secret=True)}, expose=("agent",))
    assert made.surfaces == {"agent"} and made.withheld == {}


def test_calls_reach_every_kind_of_handler():
    shop, ctx = Shop("corner "), nk.Ctx(dry_run=True)
    cases = [
        (add, {"title": "t", "count": 2}, {"title": "t", "count": 2}),
        (purge, {"before": "x"}, 7),
        (shop.open_shop, {"day": "monday"}, "corner monday"),
        (Shop.of_class, {"day": "x"}, "Shopx"),
        (Shop.__dict__["of_nothing"], {"day": "x"}, "x"),
        (wrapped, {"title": "t", "count": 1}, ("logged", {"title": "t", "count": 1})),
        (logged(shop.open_shop), {"day": "x"}, ("logged", "corner x")),
        (cached, {"title": "t", "count": 1}, {"title": "t", "count": 1}),
        (
            collect,
            {"first": "a", "flag": True, "rest": ["b", "c"], "extra": {"k": "v"}},
            {"first": "a", "rest": ("b", "c"), "flag": True, "extra": {"k": "v"}},
        ),
    ]
    for handler, values, result in cases:
        made = nk.Command(handler, expose=("cli",))
        assert made.call(made.input.to_python(values), ctx) == result, handler
        assert [field.name for field in made.fields] == list(values)


def test_a_coroutine_handler_returns_what_can_be_awaited():
    import asyncio

    made = nk.Command(later)
    waiting = made.call({"name": "x"}, nk.Ctx())
    assert asyncio.run(waiting) == "x"


def test_what_natives_print_and_managed_commands_declare():
    def nothing_written(a: str):
        return a

    assert nk.Command(bare, native=True).prints is True
    assert nk.Command(nothing_written, native=True).prints is True
    assert nk.Command(nothing_written, native=True, returns={}).prints is False
    assert nk.Command(add, native=True).prints is False
    assert nk.Command(bare).prints is False and nk.Command(nothing_written).prints is False
    assert nk.Command(nothing_written).output is None
    assert nk.Command(add).output is not None
    assert nk.Command(add, returns={"type": "null"}).output.schema == {"type": "null"}
    assert nk.Command(raw, native=True, input={"type": "object"}).prints is True


def test_passthrough_names_the_field_that_collects():
    assert nk.Command(collect, expose=("cli",)).passthrough == "extra"
    assert nk.Command(add).passthrough is None


def test_raw_schemas_are_kept_as_they_are():
    given = schema("a", required=["a"])
    copy = {**given, "properties": dict(given["properties"])}
    made = nk.Command(raw, input=given, returns={"type": "string"})
    assert made.input.schema == copy == given and made.output.schema == {"type": "string"}
    assert [field.name for field in made.fields] == ["a"] and made.fields[0].required


def test_fields_of_composed_raw_schemas_are_known_at_the_start():
    composed = {"type": "object", "allOf": [schema("a"), {"$ref": "#/$defs/b"}], "$defs": {"b": schema("b")}}
    assert nk.Command(raw, input=composed).parameter_names == ("a", "b")
    composed["allOf"].append(schema("json"))
    assert '"json" has a name that belongs to the framework' in refused(nk.Command, raw, input=composed)


def test_a_faulty_annotation_is_told_by_the_first_look_and_by_every_one():
    made = nk.Command(named("f", a="NoSuchType"), expose=("cli",))
    assert made.name == "f" and made.parameter_names == ("a",)
    first = refused(lambda: made.input)
    assert "shop.f" in first and refused(lambda: made.fields) == first


@pytest.mark.parametrize(
    "options, message",
    [
        (
            {"input": {"type": "object", "allOf": 7}},
            'test_reg.raw: input: the schema is faulty: "allOf" takes a non-empty array of schemas, got 7',
        ),
        (
            {"input": {"type": "object", "properties": {"a": {"$ref": "#/x"}}}},
            'test_reg.raw: input: the schema at #/properties/a is faulty: "#/x" refers to nothing',
        ),
        (
            {"input": {"type": "object"}, "returns": {"$ref": "#/x"}},
            'test_reg.raw: returns: the schema is faulty: "#/x" refers to nothing',
        ),
    ],
)
def test_a_faulty_raw_schema_is_told_with_its_function(options, message):
    assert refused(lambda: nk.Command(raw, **options).input) == message


def test_what_is_no_attribute_stays_none():
    with pytest.raises(AttributeError):
        nk.Command(add).nothing
    assert not hasattr(nk.Command(add), "nothing")


def test_both_copies_know_each_others_context(other):
    def f(a: str, context: other.Ctx):
        return context

    f.__annotations__ = {"a": str, "context": other.Ctx}
    made, ctx = nk.Command(f, expose=("cli",)), nk.Ctx()
    assert made.parameter_names == ("a",)
    assert [field.name for field in made.fields] == ["a"]
    assert made.call({"a": "x"}, ctx) is ctx


def test_a_class_made_from_the_context_is_not_it():
    class Wider(nk.Ctx):
        pass

    made = nk.Command(named("f", context=Wider), expose=("cli",))
    assert made.parameter_names == ("context",) and "Wider" in refused(lambda: made.input)


# Copies of the module


@pytest.fixture(scope="module")
def other():
    """A second copy of the module under another name, as a vendoring program has it."""
    spec = importlib.util.spec_from_file_location("vendored_copy_of_it", nk.__file__)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_two_copies_agree_on_records_commands_and_services(other):
    def greet(name: str) -> str:
        return name

    recorded = other.command(name="hello", expose=("cli",), destructive=True)(greet)
    made = nk._reg_command(recorded, default_expose=("mcp",))
    assert type(made) is nk.Command
    assert (made.name, made.surfaces, made.destructive, made.handler) == ("hello", {"cli"}, True, greet)
    foreign = other.Command(add, help="Help.", scope="s", keywords=["k"], idempotent=True)
    made = nk._reg_command(foreign, default_expose=("cli",))
    assert type(made) is nk.Command
    assert (made.description, made.scope, made.keywords, made.idempotent) == ("Help.", "s", ["k"], True)
    assert made.surfaces == {"cli"}
    service = other.Service("widgets", [add], scope="w", expose=("mcp",))
    [made] = nk._reg_service(service, ("cli",))
    assert type(made) is nk.Command
    assert (made.name, made.surfaces, made.identity) == ("add_widget", {"mcp"}, ("widgets", "add", "w"))


def test_a_command_survives_being_made_again():
    first = nk.Command(
        collect, name="n", help="h", keywords=["k"], expose=("cli",), idempotent=True, scope="s", returns={},
        hidden=True, examples=["e"], service="v", action="a", remote=True,
    )
    again = nk._reg_command(first, default_expose=("mcp",))
    assert again is not first
    assert vars(again) == vars(first)
    native = nk.Command(add, native=True, present=str, exit_code=len, args={"title": nk.Arg()})
    again = nk._reg_command(native, default_expose=("mcp",))
    assert (again.present, again.exit_status, again.args) == (str, len, native.args)


OPTIONS = (
    "in this version; the options are name, help, keywords, expose, destructive, readonly, idempotent, scope, returns, "
    "previews, hidden, examples, args, input, native, present, exit_code, service, action, remote, lines"
)


def test_an_option_that_does_not_exist_is_named():
    function = nk.command(named("f"), telepathy=True)
    message = 'shop.f: a command has no option "telepathy" ' + OPTIONS
    assert refused(nk._reg_command, function, default_expose=("cli",)) == message
    assert refused(nk.Command, named("f"), telepathy=True) == message


def test_the_docstrings_list_the_options():
    for option in nk.REG_COMMAND_OPTIONS.keys() - {"native", "service", "action", "remote"}:
        said = nk.native.__doc__ if option in ("present", "exit_code") else nk.command.__doc__
        assert re.search(r"\b%s\b" % option, said), option


def test_args_of_no_parameter_are_told_with_the_schema():
    made = nk.Command(add, args={"titel": nk.Arg()}, expose=("cli",))
    assert refused(lambda: made.input).startswith('test_reg.add: args["titel"] is no nk.Arg(...) of a parameter')


# Services


def lister(word):
    function = named(word)
    return function


def test_names_of_a_service_follow_the_verb():
    verbs = "list get create update delete archive publish list_archived get_widget list_widgets".split()
    service = nk.Service("widgets", [lister(verb) for verb in verbs], scope="user", expose=("cli",))
    made = nk._reg_service(service, ("mcp",))
    assert [command.name for command in made] == (
        "list_widgets get_widget create_widget update_widget delete_widget archive_widget publish_widget "
        "list_archived_widgets get_widget list_widgets".split()
    )
    assert made[0].identity == ("widgets", "list", "user")
    assert all(command.surfaces == {"cli"} for command in made)


@pytest.mark.parametrize(
    "plural, singular",
    [
        ("widgets", "widget"), ("categories", "category"), ("boxes", "box"), ("addresses", "address"),
        ("statuses", "status"), ("aliases", "alias"), ("branches", "branch"), ("caches", "cache"),
        ("dishes", "dish"), ("sizes", "size"), ("quizzes", "quiz"), ("houses", "house"), ("clauses", "clause"),
        ("databases", "database"), ("releases", "release"), ("courses", "course"), ("cookies", "cookie"),
        ("movies", "movie"), ("pies", "pie"), ("people", "person"), ("children", "child"), ("indices", "index"),
        ("analyses", "analysis"), ("buses", "bus"), ("menus", "menu"), ("archives", "archive"), ("keys", "key"),
        ("status", "status"), ("news", "news"), ("series", "series"), ("settings", "settings"), ("media", "media"),
        ("progress", "progress"), ("analytics", "analytics"), ("stats", "stats"), ("access", "access"),
        ("analysis", "analysis"), ("data", "data"), ("dns", "dns"), ("furniture", "furniture"), ("s", "s"),
        ("blog_posts", "blog_post"), ("site_settings", "site_settings"), ("user-addresses", "user_address"),
        ("Widgets", "Widget"), ("Categories", "Category"), ("_", "_"), ("os", "os"), ("ids", "id"), ("blog_people", "blog_person"),
    ],
)
def test_singulars(plural, singular):
    assert nk._reg_service_name(plural, "get") == "get_" + singular
    assert nk._reg_service_name(plural, "list") == "list_" + plural.replace("-", "_")


def test_what_a_function_of_a_service_says_itself_wins():
    @nk.command(name="shop_open", scope="owner", expose=("mcp",))
    def open() -> int:
        return 1

    service = nk.Service("shops", [open, nk.Command(add, name="put"), bare], scope="user")
    made = nk._reg_service(service, ("cli",))
    assert [command.name for command in made] == ["shop_open", "put", "bare_shop"]
    assert [command.scope for command in made] == ["owner", "user", "user"]
    assert [command.surfaces for command in made] == [{"mcp"}, {"cli"}, {"cli"}]
    assert [command.action for command in made] == ["shop_open", "put", "bare"]
    assert [command.name for command in nk._reg_service(service, ("cli",))] == ["shop_open", "put", "bare_shop"]


@pytest.mark.parametrize(
    "service, message",
    [
        (nk.Service("wid gets", []), 'a service: the name "wid gets"' + LETTERS),
        (nk.Service("widgets", "list"), 'the service widgets needs a list of functions, not "list"'),
        (nk.Service("widgets", {"list": add}), "the service widgets needs a list of functions, not a dict"),
        (nk.Service("widgets", [lambda: 1]), 'test_reg.<lambda>: the name "<lambda>"' + LETTERS),
        (nk.Service("widgets", [7]), "an int" + CANNOT + "an int"),
        (
            nk.Service("widgets", [nk.Command(add, native=True)]),
            "test_reg.add is a native command, which no service can hold; list it in the commands of the application",
        ),
        (nk.Service("w" * 60, [named("archive")]), "shop.archive: the name "),
        ("widgets", "the service widgets needs a list of functions, not a NoneType"),
        (add, "a service: the name a function" + LETTERS),
    ],
)
def test_services_that_are_refused(service, message):
    got = refused(nk._reg_service, service, ("cli",))
    assert got == message or message.endswith("the name ") and got.startswith(message)


# Registry


def registry(*names, expose=("cli",), **options):
    made = nk.Registry()
    for name in names:
        made.add(nk.Command(named("f", a=str), name=name, expose=expose, **options))
    return made


def test_the_registry_keeps_the_order_of_declaration():
    made = registry("b", "a", "c_d")
    assert [command.name for command in made.commands()] == ["b", "a", "c_d"]
    assert [command.name for command in made.commands("cli")] == ["b", "a", "c_d"]
    assert made.commands("mcp") == []


def test_names_are_exact_but_on_the_command_line():
    made = registry("list_all", "get")
    assert made.get("list_all", "cli").name == "list_all"
    assert made.get("list-all", "cli") is None and made.get("LIST_ALL", "cli") is None
    assert made.get("list_all", "mcp") is None and made.get("list_all").name == "list_all"
    assert made.find_cli("list_all").name == made.find_cli("list-all").name == "list_all"
    assert made.find_cli("list") is None and made.find_cli("") is None and made.find_cli("--get") is None


def test_only_the_exact_name_matches_where_both_are_declared():
    made = registry("a_b", "a-b")
    assert made.find_cli("a_b").name == "a_b" and made.find_cli("a-b").name == "a-b"


def test_a_dash_is_never_written_as_an_underscore():
    made = registry("a-b")
    assert made.find_cli("a_b") is None


def test_a_dashed_name_that_may_mean_two_commands_means_none():
    made = registry("a_b-c", "a-b_c")
    assert made.find_cli("a-b-c") is None
    assert made.suggest("a-b-c", "cli")[0] in ("a_b-c", "a-b_c")
    assert made.find_cli("a_b-c").name == "a_b-c"


def test_the_command_line_finds_shell_commands_alone():
    made = registry("a_b", expose=("mcp",))
    assert made.find_cli("a_b") is None and made.find_cli("a-b") is None
    made.add(nk.Command(add, name="a-b", expose=("cli",)))
    assert made.find_cli("a-b").name == "a-b"
    hiding = nk.Registry()
    hiding.add(nk.Command(add, name="x-y", expose=("agent",)))
    hiding.add(nk.Command(add, name="x_y", expose=("cli",)))
    assert hiding.find_cli("x_y").name == "x_y" and hiding.find_cli("x-y") is None


def test_two_commands_of_one_name_are_refused_with_both_functions():
    made = registry("x")
    assert refused(made.add, nk.Command(add, name="x")) == (
        'shop.f and test_reg.add are both named "x"; give one another name with name='
    )


@pytest.mark.parametrize(
    "name, near",
    [
        ("lst", ["list"]), ("List", ["list"]), ("widget", ["get_widget"]), ("get-widget", ["get_widget"]),
        ("get_widgets", ["get_widget"]), ("constructor", []), ("", []), ("secret", []), ("\udcff", []),
        ("functions.list", ["list"]),
    ],
)
def test_suggestions(name, near):
    made = registry("list", "get_widget")
    made.add(nk.Command(add, name="secrets", expose=("cli",), hidden=True))
    if name == "functions.list":
        assert set(made.suggest(name, "cli")) <= {"list"}
    else:
        assert made.suggest(name, "cli")[: len(near)] == near and len(made.suggest(name, "cli")) <= len(near) + 1
    assert made.suggest(name, "mcp") == []


def test_a_suggestion_stands_once():
    assert registry("get_it").suggest("get", "cli") == ["get_it"]


def test_suggestions_for_hostile_names_are_bounded():
    made = registry(*("".join(letters) for letters in itertools.product(string.ascii_lowercase[:12], repeat=3)))
    start = time.process_time()
    for name in ("a" * 10_000_000, "ab" * 100_000, "\0" * 1000, "_" * 100_000):
        assert len(made.suggest(name, "cli")) <= 3
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    "policy, message",
    [
        ({"aliases": {"lst": {}}}, 'App(aliases=...) names "lst", which is no shell command; did you mean list?'),
        (
            {"positionals": {"zzz": []}},
            'App(positionals=...) names "zzz", which is no shell command; name a command that is exposed on cli',
        ),
        (
            {"passthrough": {"remote": "x"}},
            'App(passthrough=...) names "remote", which is no shell command; name a command that is exposed on cli',
        ),
        (
            {"wait": {7: None}},
            'App(wait=...) names "7", which is no shell command; name a command that is exposed on cli',
        ),
        (
            {"default_command": "list-all"},
            'App(default_command=...) names "list-all", which is no shell command; did you mean list_all or list?',
        ),
    ],
)
def test_policies_name_shell_commands(policy, message):
    made = registry("list", "list_all")
    made.add(nk.Command(add, name="remote", expose=("mcp",)))
    assert refused(made.check, **policy) == message
    made.check(whole=False, **policy)


def test_policies_that_hold():
    registry("list").check(
        aliases={"list": {}}, positionals={"list": []}, passthrough={"list": "x"}, wait={"list": None},
        default_command="list", global_names=["db"],
    )
    registry("list").check()


@pytest.mark.parametrize("name", ["a", "my_root", "my-root"])
def test_application_options_and_fields_have_different_names(name):
    made = nk.Registry()
    made.add(nk.Command(raw, input=schema(name), name="r", remote=True))
    made.check(global_names=["a", "my-root"])
    made.add(nk.Command(raw, input=schema(name), expose=("mcp",)))
    assert refused(made.check, global_names=["a", "my-root"]) == (
        'test_reg.raw: the parameter "%s" is named like an application option; rename one of them' % name
    )


@pytest.mark.parametrize("option", [row[0] for row in nk.REG_OPTIONS] + ["confirmed"])
def test_application_options_and_framework_options_have_different_names(option):
    for name in (option, option.replace("-", "_")):
        assert refused(nk.Registry().check, global_names=[name]) == (
            'the application option "%s" is named like a framework option; rename it' % name
        )


# The table of framework options


def test_the_table_of_options_and_what_follows_from_it():
    names = [row[0] for row in nk.REG_OPTIONS]
    assert names == (
        "json wait wait-timeout output-dir quiet dry-run yes help version count-by sum by sort ascending top table".split()
    )
    assert all(kind in ("boolean", "value") for _, kind, _, _ in nk.REG_OPTIONS)
    assert all((kind == "value") == bool(metavar) for _, kind, metavar, _ in nk.REG_OPTIONS)
    fields = [name.replace("-", "_") for name in names]
    assert [name for name in vars(nk.Options) if name in fields] == fields
    assert nk.REG_RESERVED_FIELDS == set(names) - {"version"} | {"confirmed"}
    options = nk.Options()
    for name, kind, _, _ in nk.REG_OPTIONS:
        off = getattr(options, name.replace("-", "_"))
        assert off is False if kind == "boolean" and name != "help" else off in (None, ())
    assert nk.Options(quiet=True).quiet is True


# Cancel, Call, Outcome


def test_cancel_keeps_the_first_reason_and_hides_it():
    signal = nk.Cancel()
    signal.check()
    assert (signal.cancelled, signal.reason) == (False, None)
    signal.cancel("secret reason")
    signal.cancel("other")
    assert (signal.cancelled, signal.reason) == (True, "secret reason")
    with pytest.raises(nk.Error) as caught:
        signal.check()
    wire = caught.value.to_wire()
    assert wire == {"code": "REQUEST_ABORTED", "message": "the call was cancelled by its caller", "retryable": False}
    assert nk.exit_code("REQUEST_ABORTED") == 130


def test_cancel_without_a_reason():
    signal = nk.Cancel()
    signal.cancel()
    assert (signal.cancelled, signal.reason) == (True, None)


def test_cancel_from_many_threads():
    signal, seen = nk.Cancel(), []

    def work(number):
        signal.cancel(number)
        seen.append(signal.reason)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(seen)) == 1 and signal.reason == seen[0]


CALL = "command args reading surface id source dry_run cancel deadline".split()


def test_a_call_has_defaults():
    made = nk.Command(add)
    call = nk.Call(made, {"title": "x"})
    assert [getattr(call, name) for name in CALL] == [
        made, {"title": "x"}, "EXACT", "cli", None, None, False, None, None,
    ]


@pytest.mark.parametrize(
    "outcome, wire",
    [
        (nk.Outcome(True, data=None), '{"ok": true, "exitCode": 0, "data": null}'),
        (
            nk.Outcome(True, data=[1], exit_code=3, written={"stderr": "w"}, digest="d", entered=True, result=(1,)),
            '{"ok": true, "exitCode": 3, "data": [1], "written": {"stderr": "w"}}',
        ),
        (
            nk.Outcome(False, error=nk.Error("NOT_FOUND", "no"), exit_code=4, written={}),
            '{"ok": false, "exitCode": 4, "error": {"code": "NOT_FOUND", "message": "no", "retryable": false}}',
        ),
    ],
)
def test_an_outcome_on_the_wire(outcome, wire):
    import json

    assert json.dumps(outcome.to_wire()) == wire


@pytest.mark.parametrize("make", [nk.Ctx, nk.Options, lambda **given: nk.Outcome(True, **given)])
def test_an_attribute_that_does_not_exist_is_named(make):
    with pytest.raises((AttributeError, TypeError), match="'colour'$"):
        make(colour=1)


# Ctx


class Terminal:
    """The part of Env that progress uses, with a clock that the test moves."""

    def __init__(self, terminal=True):
        self.text, self.now, self.terminal = "", 100.0, terminal

    def clock(self):
        return self.now

    def is_terminal(self, name):
        assert name == "stderr"
        return self.terminal

    def human(self, text, *, lines=False, limit=None):
        return text.replace("\x1b", "\\x1b")[:limit]

    def write_err(self, text):
        self.text += text


def test_a_context_of_a_test_has_every_default():
    ctx = nk.Ctx()
    assert (ctx.confirmed, ctx.dry_run, ctx.surface, ctx.call_id) == (False, False, "cli", None)
    assert ctx.options.json is False and ctx.cancel.cancelled is False
    assert ctx.progress(1, 2) is None and ctx.end_progress() is None
    assert nk.Ctx(dry_run=True, call_id="7").dry_run is True


def test_progress_draws_a_bar_that_ends_with_its_total():
    env = Terminal()
    ctx = nk.Ctx(env=env)
    ctx.progress(0, 4, "a long note")
    env.now += 1
    ctx.progress(1, 4, "short")
    env.now += 1
    ctx.progress(4, 4)
    assert env.text == (
        "\r[                        ]   0%  a long note"
        "\r[######                  ]  25%  short      "
        "\r[########################] 100%       \n"
    )


def test_a_second_bar_starts_afresh():
    env = Terminal()
    ctx = nk.Ctx(env=env)
    ctx.progress(2, 2, "first")
    ctx.end_progress()
    ctx.progress(1, None)
    assert env.text == "\r[########################] 100%  first\n\r1"


def test_progress_is_drawn_ten_times_a_second_at_most():
    env = Terminal()
    ctx = nk.Ctx(env=env)
    for step in range(1000):
        ctx.progress(step, 1000)
        env.now += 0.001
    assert 9 <= env.text.count("\r") <= 11
    before = env.text
    ctx.progress(1000, 1000)
    assert env.text != before and env.text.endswith("\n")


def test_progress_goes_nowhere_else():
    for env, options in ((Terminal(False), None), (Terminal(), nk.Options(quiet=True))):
        ctx = nk.Ctx(env=env, options=options)
        ctx.progress(1, 2, "x")
        ctx.end_progress()
        assert env.text == ""


def test_a_bar_that_was_left_open_is_ended_once():
    env = Terminal()
    ctx = nk.Ctx(env=env)
    ctx.progress(1, 2)
    ctx.end_progress()
    ctx.end_progress()
    assert env.text.endswith("50%\n") and env.text.count("\n") == 1


@pytest.mark.parametrize(
    "done, total, note, line",
    [
        (3, None, "files", "3  files"), (3, None, "", "3"), (3, 0, "x", "3  x"), (3, -1, "x", "3  x"),
        (3, float("nan"), "", "3"), (float("nan"), 2, "", "[%s]   0%%" % (" " * 24)),
        (float("inf"), float("inf"), "", "[%s]   0%%" % (" " * 24)), (-5, 2, "", "[%s]   0%%" % (" " * 24)),
        (9, 2, "", "[%s] 100%%" % ("#" * 24)), (0.5, 1.0, "half", "[%s%s]  50%%  half" % ("#" * 12, " " * 12)),
        (10**400, 10**401, "", "[%s%s]  10%%" % ("#" * 2, " " * 22)),
    ],
)
def test_the_line_of_progress(done, total, note, line):
    assert nk._reg_progress_line(done, total, note) == line


def test_a_note_can_not_forge_the_terminal():
    env = Terminal()
    nk.Ctx(env=env).progress(1, None, "\x1b[2J" + "x" * 500)
    assert "\x1b" not in env.text and len(env.text) <= 80


@pytest.mark.parametrize(
    "verb, args", [("open", ("a",)), ("unlink", ("a",)), ("rename", ("a", "b")), ("mkdir", ("a",)), ("listdir", ())]
)
def test_files_need_a_sandbox(verb, args):
    with pytest.raises(nk.Error) as caught:
        getattr(nk.Ctx(), verb)(*args)
    assert (caught.value.code, caught.value.message) == (
        "FORBIDDEN",
        "ctx.%s works below the application's sandbox, and it has none: name a folder with App(sandbox=folder)" % verb,
    )


@pytest.mark.skipif(os.open not in os.supports_dir_fd, reason="no dir_fd on this system")
def test_files_below_the_sandbox(tmp_path):
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "outside").write_text("secret")
    (inside / "link").symlink_to(tmp_path / "outside")
    ctx = nk.Ctx(sandbox=nk.Sandbox(str(inside)))
    root = ctx._sandbox.root
    with ctx.open("note", "w", newline="") as file:
        file.write("é\n")
    with ctx.open(inside.resolve() / "note") as file:
        assert file.read() == "é\n"
    with ctx.open(os.path.join(root, "note"), "rb") as file:
        assert file.read() == b"\xc3\xa9\n"
    ctx.mkdir("folder")
    ctx.rename("note", "folder/note")
    assert ctx.listdir() == ["folder", "link"] and ctx.listdir("folder") == ["note"]
    ctx.unlink("folder/note")
    assert ctx.listdir("folder") == []
    for path in ("link", "../outside", str(tmp_path / "outside"), ""):
        with pytest.raises(nk.Error) as caught:
            ctx.open(path)
        assert caught.value.code == "SANDBOX_ESCAPE"


# Cost


def test_sixty_one_commands_cost_little():
    """A guard against work that would grow into start-up: not a benchmark, an order of magnitude."""
    functions = [nk.command(named("command_%d" % n, title="str", count="int"), expose=("cli",)) for n in range(61)]

    def start():
        made = nk.Registry()
        for function in functions:
            made.add(nk._reg_command(function, default_expose=("agent", "mcp")))
        made.check(global_names=["db"], aliases={"command_1": {"t": "title"}}, default_command="command_2")

    times = []
    for _ in range(20):
        begin = time.process_time()
        start()
        times.append(time.process_time() - begin)
    assert min(times) < 0.02


def test_cheap_checks_compile_nothing(monkeypatch):
    def forbidden(*args, **kwargs):
        raise AssertionError("a schema was made")

    monkeypatch.setattr(nk, "_shapes_signature", forbidden)
    monkeypatch.setattr(nk, "_shapes_from_schema", forbidden)
    made = registry("a", "b_c")
    made.add(nk.Command(raw, input=schema("x"), expose=("cli",)))
    made.check(global_names=["db"], default_command="a")
    assert made.find_cli("b-c").name == "b_c" and made.suggest("aa", "cli") == ["a"]
    assert [command.description for command in made.commands("cli")] == ["", "", ""]


# Fuzz


def test_any_name_is_accepted_or_refused(rng):
    letters = string.ascii_letters + string.digits + "_-" + " .é\0\ud800/"
    for _ in range(3000):
        name = "".join(rng.choice(letters) for _ in range(rng.randrange(0, 70)))
        good = 0 < len(name) <= 64 and not set(name) - nk.REG_NAME_LETTERS and name[0] != "-" and name != "help"
        with contextlib.suppress(nk.RegistrationError):
            assert nk.Command(add, name=name).name == name and good
            continue
        assert not good, name


def test_any_options_make_a_command_or_a_refusal(rng):
    """Whatever a program hands over, at the start and at the first look: a Command, or one sentence."""
    handlers = (add, purge, bare, collect, raw, raw_with_context, later, Shop, Shop("x"), wrapped, cached, None, 7)
    junk = (
        None, True, False, 0, -1, 1.5, "", "x", "cli", b"x", [], ["x"], [[]], ("cli", "mcp"), {}, {"a": 1}, {1: 2},
        {"title": nk.Arg()}, {"title": 7}, {"type": "object", "properties": 7}, {"properties": {1: 2}}, {"allOf": 7},
        {"type": "object", "properties": {"a": {"$ref": "#/x"}}}, {"$ref": "#"}, len, object(), nk.Arg, Strange(),
        float("nan"), {"type": "object", "allOf": [{"$ref": "#"}]},
    )
    keys = sorted(nk.REG_COMMAND_OPTIONS.keys() - {"service", "action"})
    made = 0
    for _ in range(4000):
        options = {key: rng.choice(junk) for key in rng.sample(keys, rng.randrange(0, 4))}
        try:
            command = nk._reg_command(rng.choice(handlers), options, default_expose=("cli", "agent"))
            assert isinstance(command.description, str) and command.identity is None or not command.native
            assert command.surfaces <= {"cli", "agent", "mcp"} and isinstance(command.withheld, dict)
            made += 1
        except nk.RegistrationError as refusal:
            assert refusal.message and "\n" not in refusal.message
    assert made > 300
