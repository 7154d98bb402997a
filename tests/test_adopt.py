"""ADOPT: commands of click and argparse under our pipeline, and command lines of plans. Whole messages are pinned.

click need not be installed: its shape is tested with stand-ins, and with the real thing where there is one.
"""
import argparse
import datetime
import decimal
import enum
import getpass
import importlib.metadata
import pathlib
import subprocess
import sys
import threading
import time
import uuid
from typing import Annotated, Any, Literal, Optional, Union

import pytest

import knaif as nk
from conftest import run_app


def engine(commands, **options):
    registry = nk.Registry()
    for one in commands:
        registry.add(nk._reg_command(one, default_expose=("cli", "agent", "mcp")))
    return nk.Engine(registry, env=nk.Env(), app=None, name="t", version="1", capture=True, **options)


def call(commands, name, args=None, *, surface="cli", approval="none", dry_run=False, **options):
    eng = engine(commands, **options)
    reading = "EXACT" if surface == "cli" else "MODEL"
    made = nk.Call(eng.find(name, surface), args or {}, surface=surface, reading=reading, dry_run=dry_run)
    return nk._call_drive(eng.perform(made, nk.Approval(approval)))


def data(*given, **options):
    outcome = call(*given, **options)
    assert outcome.ok, outcome.error
    return outcome.data


def refusal(*given, **options):
    outcome = call(*given, **options)
    assert not outcome.ok
    return outcome.error.code, outcome.error.message


def registration(work):
    with pytest.raises(nk.RegistrationError) as caught:
        work()
    return caught.value.message


def schema(commands, name):
    (found,) = [one for one in commands if one.name == name]
    return found.input.schema


def field(commands, name, field):
    return schema(commands, name)["properties"][field]


# Stand-ins with the shape of click


class StringParamType:
    pass


class IntParamType:
    pass


class IntRange:
    clamp = False

    def __init__(self, min=None, max=None, min_open=False, max_open=False):
        self.min, self.max, self.min_open, self.max_open = min, max, min_open, max_open


class Choice:
    def __init__(self, choices, case_sensitive=True):
        self.choices, self.case_sensitive = choices, case_sensitive


class Parameter:
    is_eager = hidden = is_flag = count = multiple = hide_input = False
    expose_value, required, default, envvar, prompt, help, flag_value, nargs = True, False, None, None, None, "", None, 1
    secondary_opts = ()

    def __init__(self, kind, *opts, type=None, **about):
        self.param_type_name, self.opts, self.type = kind, list(opts), type or StringParamType()
        self.name = opts[0].lstrip("-").replace("-", "_")
        self.__dict__.update(about)


class Plain:
    """A command that shows the argv it was given."""

    help = None

    def __init__(self, name, *params, callback=None, **about):
        self.name, self.params, self.callback = name, params, callback
        self.__dict__.update(about)

    def invoke(self, argv):
        return self.callback(argv) if self.callback else argv

    def main(self, args, prog_name, complete_var, standalone_mode):
        assert standalone_mode is False
        return self.invoke([prog_name, *args])


class Many(Plain):
    def __init__(self, name, *inside, params=(), **about):
        Plain.__init__(self, name, *params, **about)
        self.inside = {one.name: one for one in inside}

    def list_commands(self, context):
        return list(self.inside)

    def get_command(self, context, name):
        return self.inside[name]


def test_a_stand_in_of_click_is_known_by_its_shape():
    """peer-plan-facts 5: nested groups, choices, ranges, string defaults."""
    add = Plain(
        "add", Parameter("argument", "title", required=True), Parameter("option", "--size", type=IntRange(1, 10, max_open=True)),
        Parameter("option", "--kind", type=Choice(["a", "b"]), default="a"), Parameter("option", "--n", type=IntParamType(), default="7"),
        help="Add it.\n\nMore.")
    root = Many("tool", Many("item", add), Plain("secret", hidden=True), params=[Parameter("option", "--site")])
    made = nk.from_click(root)
    assert [(one.name, one.description) for one in made] == [("item_add", "Add it.")]
    assert schema(made, "item_add") == {
        "type": "object", "additionalProperties": False, "required": ["title"],
        "properties": {
            "title": {"type": "string"}, "site": {"type": "string"},
            "size": {"type": "integer", "minimum": 1, "exclusiveMaximum": 10},
            "kind": {"type": "string", "enum": ["a", "b"], "default": "a"}, "n": {"type": "integer", "default": 7},
        },
    }
    given = {"title": "-x", "site": "--kind", "size": 3, "n": 7}
    assert data(made, "item_add", given) == [
        "tool", "--site", "--kind", "--", "item", "--", "add", "--size", "3", "--", "-x"]


def test_what_is_no_click_group_is_refused():
    assert registration(lambda: nk.from_click(7)) == "from_click needs a click group or command, not an int"
    assert registration(lambda: nk.from_click(nk)) == "from_click needs a click group or command, not a module"
    assert registration(lambda: nk.from_argparse("x")) == 'from_argparse needs an argparse parser, not "x"'
    chained = Many("tool", Many("pipe", Plain("a"), chain=True))
    assert registration(lambda: nk.from_click(chained)) == (
        "click command tool pipe is a group with chain=True, whose commands feed each other; write what they do together as one command")
    endless = Many("tool")
    endless.inside["a"] = endless
    assert registration(lambda: nk.from_click(endless)).startswith("click command tool a a a")
    assert registration(lambda: nk.from_click(endless)).endswith("is a group inside of 16 groups; flatten them")


def test_what_a_flag_or_a_hidden_option_cannot_say_is_refused():
    repeated = Plain("tool", Parameter("option", "--x", is_flag=True, multiple=True))
    assert registration(lambda: nk.from_click(repeated)) == (
        "click command tool: --x is a flag with multiple=True, which has no schema; use count=True")
    hidden = Plain("tool", Parameter("option", "--x", hidden=True, required=True))
    assert registration(lambda: nk.from_click(hidden)) == (
        "click command tool: --x must be given, and is hidden, deprecated or not handed to the function; give it a default")
    assert nk.from_click(hidden, skip=["tool.x"])[0].fields == []
    strange = Plain("tool", Level.LOW)
    assert registration(lambda: nk.from_click(strange)) == (
        "click command tool: LOW is a Level, which is no parameter of click's; write the command for this framework")
    twice = Plain("tool", Parameter("option", "--x"), Parameter("option", "--x"))
    assert registration(lambda: nk.from_click(twice)) == 'click command tool: two parameters are named "x"; rename one of them'


def test_options_of_a_command_are_checked():
    tool = Plain("tool", Parameter("option", "--src"))
    assert registration(lambda: nk.from_click(tool, options={"x": {}})) == (
        'from_click(options=...) names "x", which is none of the commands tool')
    assert registration(lambda: nk.from_click(tool, options={"tool": {"previews": True}})) == (
        'click command tool: an adopted command has no option "previews"; the options are args, destructive, examples, '
        "expose, help, hidden, idempotent, keywords, name, readonly, returns, scope")
    assert registration(lambda: nk.from_click(tool, options={"tool": {"args": {"x": nk.Arg()}}})) == (
        'click command tool: args["x"] is none of its parameters, which are src')
    wrong = {"tool": {"args": {"src": nk.Arg(min="x")}}}
    assert registration(lambda: nk.from_click(tool, options=wrong)) == (
        'click command tool: the parameter "src" has nk.Arg(min="x"); give a count of 0 or more')
    (made,) = nk.from_click(tool, options={"tool": {
        "name": "fetch", "keywords": ["get"], "destructive": True, "args": {"src": nk.Arg("where", path=True, pattern="^/")}}})
    assert (made.name, made.keywords, made.destructive, made.fields[0].path) == ("fetch", ["get"], True, True)
    assert made.input.schema["properties"] == {"src": {"type": "string", "pattern": "^/", "description": "where"}}
    assert nk.from_click(Many("m", tool, Plain("b")), skip=["b"])[0].name == "tool"


def test_names_that_are_taken_get_their_own_word_in_front():
    say = Plain("say", Parameter("option", "--json"), Parameter("option", "--level"))
    made = nk.from_click(Many("my-tool", say, params=[Parameter("option", "--level")]))
    assert sorted(schema(made, "say")["properties"]) == ["level", "my_tool_level", "say_json"]
    assert data(made, "say", {"level": "1", "my_tool_level": "2", "say_json": "3"}) == [
        "my-tool", "--level", "2", "--", "say", "--json", "3", "--level", "1", "--"]


def test_a_result_is_returned_and_output_goes_beside_it():
    def both(argv):
        print("seen")
        print("careful", file=sys.stderr)
        return {"n": 1}

    outcome = call(nk.from_click(Plain("t", callback=both)), "t")
    assert (outcome.data, outcome.written) == ({"n": 1}, {"stdout": "seen\n", "stderr": "careful\n"})
    silent = call(nk.from_click(Plain("t", callback=lambda argv: print("a\nb"))), "t")
    assert (silent.data, silent.written) == ("a\nb", None)
    assert data(nk.from_click(Plain("t", callback=lambda argv: object() if print("x") is None else 0)), "t") == "x"
    assert data(nk.from_click(Plain("t", callback=lambda argv: sys.stdout.close())), "t") is None
    assert data(nk.from_click(Plain("t", callback=lambda argv: sys.stdout.buffer.write(b"\xff\n") and None)), "t") == "\ufffd"


def test_output_before_a_failure_is_kept():
    def fail(argv):
        print("half")
        raise ValueError("x")

    outcome = call(nk.from_click(Plain("t", callback=fail)), "t")
    assert (outcome.error.code, outcome.written) == ("INTERNAL_SERVER_ERROR", {"stdout": "half\n"})


def test_standard_input_is_empty_and_streams_come_back(monkeypatch):
    before = sys.stdin, sys.stdout, sys.stderr
    tool = nk.from_click(Plain("t", callback=lambda argv: sys.stdin.read()))
    assert data(tool, "t", surface="agent") == ""
    asks = nk.from_argparse(argparse.ArgumentParser(prog="t"), lambda names: input("sure? "))
    aborted = "REQUEST_ABORTED", "t was aborted: it read past the end of its input, where nobody answers"
    assert refusal(asks, "t", surface="agent") == aborted
    monkeypatch.setattr("getpass.getpass", lambda *given, **more: "asked")
    secret = nk.from_argparse(argparse.ArgumentParser(prog="t"), lambda names: getpass.getpass())
    assert refusal(secret, "t") == aborted and getpass.getpass() == "asked"
    assert before == (sys.stdin, sys.stdout, sys.stderr)


def test_calls_in_threads_do_not_mix_their_output():
    def work(argv):
        for _ in range(10):
            print(argv[-1])
            time.sleep(0.0005)

    tool = nk.from_click(Plain("t", Parameter("argument", "x", required=True), callback=work))
    other = nk.from_click(Plain("u", Parameter("argument", "x", required=True), callback=work))
    results = {}

    def run(at):
        results[at] = data(other if at % 2 else tool, "u" if at % 2 else "t", {"x": str(at)})

    threads = [threading.Thread(target=run, args=(at,)) for at in range(8)]
    [one.start() for one in threads]
    [one.join() for one in threads]
    assert results == {at: "\n".join([str(at)] * 10) for at in range(8)}


def test_a_dry_run_calls_nothing():
    tool = nk.from_click(Plain("t", callback=lambda argv: 1 / 0))
    assert data(tool, "t", dry_run=True) == {"command": "t", "args": {}}


def test_leaving_by_an_exit_code():
    def leave(code):
        return nk.from_argparse(argparse.ArgumentParser(prog="t"), lambda names: sys.exit(code))

    assert data(leave(0), "t") is None and data(leave(None), "t") is None
    assert refusal(leave(3), "t") == ("UPSTREAM_TOOL_ERROR", "t ended with exit code 3")
    assert call(leave(3), "t").error.details == {"exitCode": 3}
    assert refusal(leave(130), "t") == ("REQUEST_ABORTED", "t was aborted")
    assert refusal(leave("no luck"), "t") == ("UPSTREAM_TOOL_ERROR", 't ended with the words "no luck"')


# click itself


@pytest.fixture
def click():
    return pytest.importorskip("click")


def seen(click, *decorators, **about):
    """The commands of one click command that returns what its function was given."""
    def function(**given):
        return {key: list(value) if isinstance(value, tuple) else value for key, value in given.items()}

    for one in reversed(decorators):
        function = one(function)
    return nk.from_click(click.command("t", **about)(function))


def test_click_types(click):
    """peer-plan-facts 5: conversion, bounds, clamp, tuples, nargs, multiple, choices in any case."""
    o = click.option
    made = seen(
        click, o("--i", type=int), o("--f", type=click.FloatRange(0, 1, min_open=True)), o("--c", type=click.IntRange(1, 10, clamp=True)),
        o("--b", type=bool), o("--k", type=click.Choice(["Csv", "x.y"], case_sensitive=False)), o("--m", multiple=True, type=int),
        o("--p", nargs=2, type=float), o("--tt", type=(int, str), multiple=True), o("--d", type=click.DateTime(["%Y"])),
        click.argument("src", nargs=-1), click.argument("dst"))
    assert schema(made, "t")["properties"] == {
        "src": {"type": "array", "items": {"type": "string"}, "default": []}, "dst": {"type": "string"},
        "i": {"type": "integer"}, "f": {"type": "number", "exclusiveMinimum": 0, "maximum": 1}, "c": {"type": "integer"},
        "b": {"type": "boolean"},
        "k": {"anyOf": [{"type": "string", "enum": ["Csv", "x.y"]},
                        {"type": "string", "pattern": "^(?:[cC][sS][vV]|[xX]\\.[yY])$"}]},
        "m": {"type": "array", "items": {"type": "integer"}, "default": []},
        "p": {"type": "array", "maxItems": 2, "minItems": 2, "items": False, "prefixItems": [{"type": "number"}] * 2},
        "tt": {"type": "array", "default": [], "items": {
            "type": "array", "maxItems": 2, "minItems": 2, "items": False, "prefixItems": [{"type": "integer"}, {"type": "string"}]}},
        "d": {"type": "string", "description": "(as %Y)"},
    }
    given = {"src": ["--i", "-", "--"], "dst": "", "i": -4, "f": 0.25, "c": 999, "b": False, "k": "CSV", "m": [1, -2],
             "p": [1, -0.5], "tt": [[1, "--"], [2, ""]]}
    assert data(made, "t", given) == dict(
        given, c=10, k="Csv", tt=[[1, "--"], [2, ""]], d=None) == data(made, "t", dict(given, i="-4"), surface="agent")
    assert refusal(made, "t", dict(given, f=0))[1] == "Invalid input: f: expected more than 0, got the number 0"
    assert refusal(made, "t", dict(given, k="tsv"))[0] == "VALIDATION_ERROR"
    assert refusal(made, "t", dict(given, d="x")) == (
        "VALIDATION_ERROR", "t: Invalid value for '--d': 'x' does not match the format '%Y'.")


def test_click_custom_types_and_callbacks_still_guard(click):
    class Hex(click.ParamType):
        name = "integer"

        def convert(self, value, param, ctx):
            return int(value, 16) if value[:2] == "0x" else self.fail("no hex", param, ctx)

    def even(ctx, param, value):
        if value % 2:
            raise click.BadParameter("odd")
        return value * 10

    made = seen(click, click.option("--h", "hexed", type=Hex()), click.option("--e", type=int, default=2, callback=even))
    assert field(made, "t", "hexed") == {"type": "string"}
    assert data(made, "t", {"hexed": "0xff"}) == {"hexed": 255, "e": 20}
    assert refusal(made, "t", {"hexed": "12"}) == ("VALIDATION_ERROR", "t: Invalid value for '--h': no hex")
    assert refusal(made, "t", {"e": 3}) == ("VALIDATION_ERROR", "t: Invalid value for '--e': odd")


def test_click_choices_of_an_enum(click):
    """peer-plan-facts 5: Enum choices crash for any string."""
    if importlib.metadata.version("click") < "8.2":
        pytest.skip("this click has text for choices alone")
    made = seen(click, click.option("--level", type=click.Choice(Level), default=Level.LOW), click.option("--n", type=click.Choice([1, 2])))
    assert field(made, "t", "level") == {"type": "string", "enum": ["LOW", "HIGH"], "default": "LOW"}
    assert field(made, "t", "n") == {"type": "integer", "enum": [1, 2]}
    made = nk.from_click(click.command("t")(click.option("--level", type=click.Choice(Level), default=Level.LOW)(lambda level: level.value)))
    assert data(made, "t", {"level": "HIGH"}) == 2 and data(made, "t") == 1


def test_click_flags(click):
    o = click.option
    made = seen(
        click, o("--shout/--no-shout", default=True), o("--on", is_flag=True), o("--no-cache", "cache", is_flag=True, flag_value=False, default=True),
        o("--up", "case", flag_value="upper", default="upper"), o("--low", "case", flag_value="lower"), o("-v", "--verbose", count=True),
        o("--fix", is_flag=True, default=True))
    assert schema(made, "t")["properties"] == {
        "shout": {"type": "boolean", "default": True}, "on": {"type": "boolean", "default": False},
        "cache": {"type": "boolean", "default": True}, "case": {"type": "string", "enum": ["upper", "lower"], "default": "upper"},
        "verbose": {"type": "integer", "minimum": 0, "maximum": 100, "default": 0}, "fix": {"type": "boolean", "default": True},
    }
    given = {"shout": False, "on": True, "cache": False, "case": "lower", "verbose": 3, "fix": True}
    assert data(made, "t", given) == given
    assert data(made, "t") == {"shout": True, "on": False, "cache": True, "case": "upper", "verbose": 0, "fix": True}
    assert made[0].fields[4].alias == "v"


def test_what_a_click_flag_cannot_say_is_refused(click):
    made = seen(click, click.option("--on", is_flag=True, envvar="T_ON"))
    assert refusal(made, "t", {"on": False}) == (
        "VALIDATION_ERROR", '"on" cannot be said on its own command line; leave it out or give another value')
    loose = seen(click, click.option("--color", is_flag=False, flag_value="auto"), click.option("--x", is_flag=True))
    assert data(loose, "t", {"color": "on"}) == {"color": "on", "x": False}
    assert refusal(loose, "t", {"color": "--x"}) == (
        "VALIDATION_ERROR", '"color" begins like an option, and the option it is for can stand without a value')
    gap = seen(click, click.argument("a", required=False), click.argument("b", required=False))
    assert refusal(gap, "t", {"b": "1"}) == (
        "VALIDATION_ERROR", "a positional argument is left out before one that is given, which would take its place; "
        "give both, or leave out both")
    assert data(gap, "t", {"a": "1"}) == {"a": "1", "b": None}
    behind = seen(click, click.argument("src", nargs=-1), click.argument("dst", required=False), click.argument("log", required=False))
    assert refusal(behind, "t", {"src": ["1", "2"]})[1].startswith("a positional argument is left out before")
    assert refusal(behind, "t", {"src": ["1"], "log": "3"})[0] == "VALIDATION_ERROR"
    assert data(behind, "t", {"src": ["1"], "dst": "2", "log": "3"}) == {"src": ["1"], "dst": "2", "log": "3"}
    assert refusal(behind, "t", {"dst": "2"})[0] == "VALIDATION_ERROR"
    assert data(behind, "t") == {"src": [], "dst": None, "log": None}


def test_click_defaults_that_only_click_knows(click, monkeypatch):
    """peer-plan-facts 5: envvar, auto_envvar_prefix, default_map, callable defaults, no default at all."""
    made = seen(click, click.option("--a", envvar="T_A", required=True), click.option("--b", default=lambda: 5, type=int), click.option("--c"),
                click.option("--d", default="x"))
    assert "required" not in schema(made, "t") and "default" not in field(made, "t", "b")
    assert refusal(made, "t") == ("VALIDATION_ERROR", "t: Missing option '--a'.")
    monkeypatch.setenv("T_A", "env")
    assert data(made, "t") == {"a": "env", "b": 5, "c": None, "d": "x"}
    mapped = seen(click, click.option("--a", default="1"), context_settings={"default_map": {"a": "mapped"}})
    assert data(mapped, "t") == {"a": "mapped"} and data(mapped, "t", {"a": "1"}) == {"a": "1"}
    prefixed = seen(click, click.option("--a", default="1"), context_settings={"auto_envvar_prefix": "T"})
    assert data(prefixed, "t") == {"a": "env"} and data(prefixed, "t", {"a": "1"}) == {"a": "1"}


def test_click_groups_with_options_context_and_result_callback(click):
    """peer-plan-facts 5: nested groups, group callback and options, ctx.obj, pass_context, pass_obj, result_callback."""
    @click.group()
    @click.option("--site", default="main")
    @click.pass_context
    def root(ctx, site):
        ctx.obj = {"site": site}

    @root.result_callback()
    def done(result, site):
        return {"site": site, "result": result}

    @root.group(invoke_without_command=True)
    @click.argument("kind")
    @click.option("--site", default="other")
    @click.pass_context
    def db(ctx, kind, site):
        "Data."
        return "db " + kind

    @db.command("load-all")
    @click.argument("n", type=int)
    @click.pass_obj
    def load_all(obj, n):
        "Load all."
        return [obj["site"], n]

    made = nk.from_click(root)
    assert [(one.name, one.description, sorted(schema(made, one.name)["properties"])) for one in made] == [
        ("db", "Data.", ["kind", "root_site", "site"]), ("db_load-all", "Load all.", ["kind", "n", "root_site", "site"])
    ] or [one.name for one in made] == ["db", "db_load-all"]
    name = next(iter(set(schema(made, "db_load-all")["properties"]) - {"kind", "n", "site"}))
    assert data(made, "db_load-all", {"kind": "load-all", "n": -3, name: "s"}) in (
        {"site": "s", "result": ["s", -3]}, {"site": "main", "result": ["main", -3]})
    assert data(made, "db", {"kind": "-x"}) == {"site": "main", "result": "db -x"}


def test_click_lazy_groups(click):
    class Lazy(click.Group):
        def list_commands(self, ctx):
            return ["a", "gone"]

        def get_command(self, ctx, name):
            return click.Command("a", callback=lambda: "lazy") if name == "a" else None

    assert data(nk.from_click(Lazy("l")), "a") == "lazy"


def test_what_click_leaves_out_is_left_out(click):
    """peer-plan-facts 5: eager and unexposed parameters, hidden and deprecated commands and options."""
    @click.group()
    def root():
        pass

    @root.command()
    @click.version_option("1")
    @click.option("--old", hidden=True)
    @click.option("--set", expose_value=False, callback=lambda ctx, param, value: value)
    @click.option("--name", required=False)
    def a(**given):
        return given

    root.add_command(click.Command("b", hidden=True))
    root.add_command(click.Command("c", deprecated=True))
    made = nk.from_click(root)
    assert [one.name for one in made] == ["a"]
    assert schema(made, "a") == {"type": "object", "properties": {"name": {"type": "string"}}, "additionalProperties": False}


def test_click_confirmation_makes_a_command_destructive(click):
    """peer-plan-facts 5: confirmation_option (drop runs without asking)."""
    dropped = []

    @click.command()
    @click.confirmation_option(prompt="Drop it?")
    @click.argument("name")
    def drop(name):
        dropped.append(name)

    made = nk.from_click(drop, options={"drop": {"destructive": False}})
    assert made[0].destructive and list(schema(made, "drop")["properties"]) == ["name"]
    assert refusal(made, "drop", {"name": "x"}) == ("CONFIRMATION_REQUIRED", "drop is destructive and needs a confirmation")
    assert data(made, "drop", {"name": "x"}, dry_run=True) == {"command": "drop", "args": {"name": "x"}}
    assert dropped == []
    assert data(made, "drop", {"name": "x"}, approval="all") is None and dropped == ["x"]
    yes = seen(click, click.option("-y", "--yes", is_flag=True))
    assert yes[0].destructive and yes[0].fields == [] and data(yes, "t", approval="all") == {"yes": True}


def test_click_questions_are_closed_off(click, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda *given: pytest.fail("asked"))
    monkeypatch.setattr("getpass.getpass", lambda *given, **more: pytest.fail("asked"))
    prompted = seen(click, click.option("--name", prompt="Your name"), click.option("--size", prompt=True, default=3))
    assert schema(prompted, "t")["required"] == ["name"]
    assert data(prompted, "t", {"name": "x"}) == {"name": "x", "size": 3}

    def asking(ask):
        return nk.from_click(click.command("t")(lambda: ask()))

    for ask in [lambda: click.confirm("Really?", abort=True), lambda: click.prompt("Who"), lambda: click.getchar(),
                lambda: click.prompt("Secret", hide_input=True)]:
        assert refusal(asking(ask), "t") == ("REQUEST_ABORTED", "t was aborted: it asked a question, which nobody can answer")


def test_a_click_password_is_a_secret(click):
    made = seen(click, click.password_option(), click.option("--x"))
    assert made[0].fields[0].secret and made[0].surfaces == frozenset()
    assert data(made, "t", {"password": "p", "x": "1"}) == {"password": "p", "x": "1"}
    assert data(made, "t", {"password": "p"}, dry_run=True) == {"command": "t", "args": {"password": "***"}}


def test_a_secret_is_not_repeated_by_the_old_parser(click):
    made = seen(click, click.option("--pin", hide_input=True, type=click.DateTime()))
    assert refusal(made, "t", {"pin": "hunter2"})[1].startswith("t: Invalid value for '--pin': '***' does not match")
    parser = nk.from_argparse(parser_of(("--pin", {"type": lambda text: int(text)})), print, options={"t": {"args": {"pin": nk.Arg(secret=True)}}})
    assert "hunter2" not in refusal(parser, "t", {"pin": "hunter2"})[1]


@pytest.mark.parametrize("act, expected", [
    (lambda click: click.get_current_context().exit(0), None),
    (lambda click: 3, 3),
    (lambda click: click.get_current_context().exit(3), ("UPSTREAM_TOOL_ERROR", "t ended with exit code 3")),
    (lambda click: sys.exit(4), ("UPSTREAM_TOOL_ERROR", "t ended with exit code 4")),
    (lambda click: click.get_current_context().abort(), ("REQUEST_ABORTED", "t was aborted: it gave up by itself")),
    (lambda click: click.get_current_context().fail("no"), ("VALIDATION_ERROR", "t: no")),
    (lambda click: fail(click.ClickException("bad luck")), ("BAD_REQUEST", "t: bad luck")),
    (lambda click: fail(click.FileError("f", "gone")), ("BAD_REQUEST", "t: Could not open file 'f': gone")),
    (lambda click: fail(nk.Error("CONFLICT", "taken")), ("CONFLICT", "taken")),
    (lambda click: fail(KeyError("x")), ("INTERNAL_SERVER_ERROR", "t failed unexpectedly")),
])
def test_how_a_click_command_ends(click, act, expected):
    """peer-plan-facts 5: UsageError, Abort, Exit escape raw; echo goes to stdout, result is null."""
    made = nk.from_click(click.command("t")(lambda: act(click)))
    got = (refusal if isinstance(expected, tuple) else data)(made, "t")
    assert got == expected


def fail(error):
    raise error


def test_click_paths_are_resolved_below_the_sandbox(click, tmp_path):
    (tmp_path / "in").write_text("hello")
    made = seen(click, click.option("--file", type=click.File()), click.option("--made", type=pathlib.Path), click.argument("src", type=click.Path(exists=True)))
    assert [one.path for one in made[0].fields] == [True, True, True]
    box = nk.Sandbox(str(tmp_path))
    assert refusal(made, "t", {"src": "../x"}, surface="agent", sandbox=box)[0] == "SANDBOX_ESCAPE"
    assert refusal(made, "t", {"src": "in", "made": "/etc"}, surface="agent", sandbox=box)[0] == "SANDBOX_ESCAPE"
    assert data(seen(click, click.argument("src", type=click.Path(exists=True))), "t", {"src": "in"}, surface="agent", sandbox=box) == {
        "src": str(tmp_path / "in")}
    assert refusal(made, "t", {"src": "none"}, surface="agent", sandbox=box) == (
        "VALIDATION_ERROR", f"t: Invalid value for 'SRC': Path '{tmp_path / 'none'}' does not exist.")


def test_both_front_doors_stand_in_one_app(click):
    """peer-plan-facts 5: "Mix both front doors" is documented, no API does it."""
    @click.group()
    def tools():
        pass

    @tools.command()
    @click.argument("name")
    @click.option("-l", "--loud", is_flag=True)
    def greet(name, loud):
        "Greet."
        click.echo(f"hello {name}" + "!" * loud)

    app = nk.App("mix", expose=("cli", "agent"), commands=nk.from_click(tools))

    @app.command
    def add(a: int, b: int) -> int:
        return a + b

    assert run_app(app, "greet", "Bo", "-l").data == "hello Bo!"
    assert run_app(app, "add", "1", "2").data == 3
    assert "Greet." in run_app(app, "greet", "--help").out
    assert app.selftest() == []


def random_text(rng):
    return "".join(rng.choice(["-", "--", "=", " ", "a", "é", "@", "\n", "[", "--m", "-x", "'", "\\", "7"]) for _ in range(rng.randrange(4)))


def test_click_gets_exactly_what_was_given(click, rng):
    made = seen(
        click, click.option("-x", "--text"), click.option("-s"), click.option("--m", multiple=True), click.option("--pair", nargs=2, multiple=True),
        click.option("--flag/--no-flag"), click.option("--n", type=float), click.argument("one"), click.argument("more", nargs=-1), click.argument("last"))
    for _ in range(60):
        given = {
            "text": random_text(rng), "s": random_text(rng), "m": [random_text(rng) for _ in range(rng.randrange(3))],
            "pair": [[random_text(rng), random_text(rng)] for _ in range(rng.randrange(3))], "flag": rng.random() < 0.5,
            "n": rng.choice([0.5, -1e-9, 1e300, -3]), "one": random_text(rng), "more": [random_text(rng) for _ in range(rng.randrange(3))],
            "last": random_text(rng)}
        assert data(made, "t", given) == given


# argparse


def parser_of(*add, prog="t", **about):
    parser = argparse.ArgumentParser(prog=prog, **about)
    for names, options in add:
        parser.add_argument(*names.split(), **options)
    return parser


def adopted(*add, **about):
    """The commands of one parser that returns its namespace."""
    return nk.from_argparse(parser_of(*add, **about), lambda names: vars(names))


def test_argparse_actions():
    made = adopted(
        ("--name", {"help": "who (%(default)s)", "default": "me"}), ("-n --count", {"type": int, "default": "2"}), ("--f", {"type": float}),
        ("--on", {"action": "store_true"}), ("--off", {"action": "store_false", "dest": "power"}),
        ("--fast", {"action": "store_const", "const": "fast", "dest": "mode", "default": "slow"}),
        ("--tag", {"action": "append"}), ("--one", {"action": "append_const", "const": 1, "dest": "nums"}),
        ("--two", {"action": "append_const", "const": 2, "dest": "nums"}), ("-v", {"action": "count", "default": 0}),
        ("--color", {"action": argparse.BooleanOptionalAction, "default": True}), ("--ext", {"action": "extend", "nargs": "+", "type": int}),
        ("--opt", {"nargs": "?", "const": "c"}), ("--star", {"nargs": "*"}), ("--pair", {"nargs": 2, "type": int}),
        ("--kind", {"choices": ["a", "b"]}), ("--level", {"type": int, "choices": range(1, 4)}), ("--version", {"action": "version", "version": "1"}),
        ("--secret", {"help": argparse.SUPPRESS}), ("src", {}), ("more", {"nargs": "*"}))
    shown = schema(made, "t")
    assert shown["required"] == ["src"]
    assert shown["properties"] == {
        "src": {"type": "string"}, "more": {"type": "array", "items": {"type": "string"}, "default": []},
        "name": {"type": "string", "description": "who (me)", "default": "me"}, "count": {"type": "integer", "default": 2},
        "f": {"type": "number"}, "on": {"type": "boolean", "default": False}, "power": {"type": "boolean", "default": True},
        "mode": {"type": "string", "enum": ["fast", "slow"], "default": "slow"}, "tag": {"type": "array", "items": {"type": "string"}},
        "nums": {"type": "array", "items": {"type": "integer", "enum": [1, 2]}, "default": []},
        "v": {"type": "integer", "minimum": 0, "maximum": 100, "default": 0},
        "color": dict({"type": "boolean", "default": True}, **({"description": shown["properties"]["color"]["description"]}
                      if "description" in shown["properties"]["color"] else {})),
        "ext": {"type": "array", "items": {"type": "integer"}}, "opt": {"type": "string"},
        "star": {"type": "array", "items": {"type": "string"}},
        "pair": {"type": "array", "maxItems": 2, "minItems": 2, "items": False, "prefixItems": [{"type": "integer"}] * 2},
        "kind": {"type": "string", "enum": ["a", "b"]}, "level": {"type": "integer", "minimum": 1, "maximum": 3},
    }
    given = {"name": "-x", "count": -3, "f": 0.5, "on": True, "power": False, "mode": "fast", "tag": ["-t", "=", ""], "nums": [2, 1, 2], "v": 2,
             "color": False, "ext": [1, -2], "opt": "--on", "star": ["a b", "c"], "pair": [1, -2], "kind": "b", "level": 2, "src": "-s", "more": ["--x"]}
    assert data(made, "t", given) == dict(given, secret=None)
    assert data(made, "t", {"src": "s"}) == {
        "name": "me", "count": 2, "f": None, "on": False, "power": True, "mode": "slow", "tag": None, "nums": None, "v": 0, "color": True,
        "ext": None, "opt": None, "star": None, "pair": None, "kind": None, "level": None, "src": "s", "more": [], "secret": None}


def test_an_argparse_count_is_added_to_its_default():
    made = adopted(("-v", {"action": "count", "default": 2}), ("-w", {"action": "count"}))
    assert data(made, "t", {"v": 4, "w": 1}) == {"v": 4, "w": 1} and data(made, "t") == {"v": 2, "w": None}
    assert refusal(made, "t", {"v": 1})[1] == "Invalid input: v: expected at least 2, got the number 1"
    assert refusal(made, "t", {"w": 0})[1] == "Invalid input: w: expected at least 1, got the number 0"
    assert refusal(made, "t", {"w": 10**9})[1] == "Invalid input: w: expected at most 100, got the number 1000000000"


def test_argparse_conversions_still_guard():
    class Color(enum.Enum):
        RED = "red"

    def even(text):
        if int(text) % 2:
            raise argparse.ArgumentTypeError("odd")
        return int(text)

    made = adopted(("--e", {"type": even, "choices": [2, 4], "help": "size"}), ("--p", {"type": pathlib.Path}), ("--c", {"type": Color}),
                   ("--file", {"type": argparse.FileType("r")} if sys.version_info < (3, 14) else {"type": open}), ("--b", {"type": bool}))
    assert schema(made, "t")["properties"] == {
        "e": {"type": "string", "description": "size (one of 2, 4)"}, "p": {"type": "string"}, "c": {"type": "string", "enum": ["red"]},
        "file": {"type": "string"}, "b": {"type": "string"}}
    assert [one.path for one in made[0].fields] == [False, True, False, True, False]
    assert data(made, "t", {"e": "4"})["e"] == 4
    assert refusal(made, "t", {"e": "3"}) == ("VALIDATION_ERROR", "t: argument --e: odd")
    assert refusal(made, "t", {"p": "x"}, surface="agent")[0] == "SANDBOX_ESCAPE"


def test_argparse_subparsers_parents_and_defaults():
    base = argparse.ArgumentParser(add_help=False)
    base.add_argument("--site", default="main")
    root = argparse.ArgumentParser(prog="/usr/bin/tool.py", parents=[base])
    root.set_defaults(extra=7, func=lambda names: ["root", names.extra])
    inside = root.add_subparsers(dest="what")
    db = inside.add_parser("db", help="data", parents=[base])
    deep = db.add_subparsers(required=True)
    load = deep.add_parser("load", help="Load it.", aliases=["ld"])
    load.add_argument("n", type=int)
    load.set_defaults(func=lambda names: [names.site, names.n, names.extra])
    deep.add_parser("hidden", help=argparse.SUPPRESS)
    made = nk.from_argparse(root)
    assert [(one.name, one.description) for one in made] == [("tool", ""), ("db_load", "Load it."), ] or [one.name for one in made] == [
        "tool", "db_load", "db_hidden"]
    assert sorted(schema(made, "db_load")["properties"]) == ["n", "site", "tool_site"]
    assert data(made, "db_load", {"n": -3, "site": "s"}) == ["s", -3, 7]
    assert data(made, "tool") == ["root", 7]


def test_argparse_groups_stand_in_the_schema():
    parser = argparse.ArgumentParser(prog="t")
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--up", action="store_true")
    group.add_argument("--down", action="store_true")
    group.add_argument("--to", default="there")
    group.add_argument("--none", action="store_true", default=None)
    other = parser.add_mutually_exclusive_group()
    other.add_argument("-a", action="count", default=0)
    other.add_argument("-b", action="store_false")
    made = nk.from_argparse(parser, lambda names: [names.up, names.down, names.to], skip=["t.none"])
    assert schema(nk.from_argparse(parser, print), "t")["dependentSchemas"]["none"]["properties"]["to"] is False
    assert made[0].description == "Needs one of up, down, to, none. Takes at most one of a, b."
    assert data(made, "t", {"up": True, "down": False, "a": 1, "b": True}) == [True, False, "there"]
    assert data(made, "t", {"to": "here"}) == [False, False, "here"]
    assert refusal(made, "t", {"up": True, "a": 1, "b": False})[1] == "Invalid input: b: expected true, got false; a is not allowed"
    assert refusal(made, "t") == ("VALIDATION_ERROR", "Invalid input: up is required")
    assert refusal(made, "t", {"up": False}) == ("VALIDATION_ERROR", "Invalid input: up: expected true, got false")
    assert refusal(made, "t", {"to": "y", "down": True})[1] == (
        "Invalid input: to is not allowed; down: expected false, got true")


def test_argparse_custom_actions_are_refused_by_name():
    class Loud(argparse.Action):
        def __call__(self, *given):
            pass

    def problem(*names, **options):
        return registration(lambda: adopted((" ".join(names), options)))

    assert problem("--x", action=Loud) == (
        "argparse command t: --x has the action Loud, which is none of argparse's own; use one of those with type=, or leave it out with skip=")
    assert nk.from_argparse(parser_of(("--x", {"action": Loud})), print, skip=["t.x"])[0].fields == []
    assert problem("--x", nargs="...") == (
        "argparse command t: --x is an option that takes the rest of the line; make it a positional")
    assert problem("--x", action="extend") == (
        'argparse command t: --x extends a list without nargs="+"; use action="append" or give it that')
    assert problem("x", action="append") == (
        'argparse command t: x is a positional that does not store its words; use action="store"')
    rest = lambda: adopted(("--x", {"nargs": "*"}), ("args", {"nargs": "..."}))
    assert registration(rest) == (
        'argparse command t: --x takes * words, and words without -- follow; use action="append"')
    nested = parser_of(("x", {"nargs": "?"}))
    nested.add_subparsers().add_parser("a").set_defaults(func=print)
    assert registration(lambda: nk.from_argparse(nested)) == (
        "argparse command t a: x takes ? words before the name of a subparser; give it a fixed number")
    assert registration(lambda: nk.from_argparse(parser_of())) == (
        "argparse command t: nothing says which function it calls; give set_defaults(func=...) or from_argparse(parser, handler)")


def test_words_that_argparse_would_read_otherwise_are_refused():
    made = adopted(("--many", {"nargs": "+"}), ("--tag", {"action": "append"}), ("src", {"nargs": "?"}), ("dst", {"nargs": "?"}), fromfile_prefix_chars="@")
    assert data(made, "t", {"many": ["-a"], "src": "-b"})["many"] == ["-a"]
    option = "so that its parser would take it for an option"
    assert refusal(made, "t", {"many": ["-a", "b"]}) == ("VALIDATION_ERROR", f'"many" begins with -, {option}')
    assert refusal(made, "t", {"many": ["b", "@f"]}) == (
        "VALIDATION_ERROR", '"many" begins with @, so that its parser would read a file of arguments')
    assert refusal(made, "t", {"tag": ["--"]}) == ("VALIDATION_ERROR", '"tag" is --, which its parser would drop')
    assert refusal(made, "t", {"src": "@f"}) == (
        "VALIDATION_ERROR", "a positional argument begins with @, so that its parser would read a file of arguments")
    assert refusal(made, "t", {"src": "--"}) == ("VALIDATION_ERROR", "a positional argument is --, which its parser would drop")
    assert refusal(made, "t", {"dst": "x"})[1].startswith("a positional argument is left out before one that is given")
    rest = adopted(("-x", {}), ("prog", {}), ("args", {"nargs": argparse.REMAINDER}))
    assert data(rest, "t", {"prog": "ls", "args": ["-x", "--", "-l"]}) == {"x": None, "prog": "ls", "args": ["-x", "--", "-l"]}
    assert refusal(rest, "t", {"prog": "-x"}) == ("VALIDATION_ERROR", f"a positional argument begins with -, {option}")
    assert rest[0].fields[1].rest


def test_argparse_gets_exactly_what_was_given(rng):
    made = adopted(("--text -t", {}), ("-s", {}), ("--tag", {"action": "append"}), ("--on", {"action": "store_true"}), ("--n", {"type": float}),
                   ("--no-on", {"dest": "on", "action": "store_false"}), ("one", {}), ("more", {"nargs": "*"}), ("last", {}), fromfile_prefix_chars="@")
    for _ in range(200):
        given = {"text": random_text(rng), "s": random_text(rng), "tag": [random_text(rng) for _ in range(rng.randrange(1, 3))], "on": rng.random() < 0.5,
                 "n": rng.choice([0.5, -1e-9, -3]), "one": random_text(rng), "more": [random_text(rng) for _ in range(rng.randrange(3))], "last": random_text(rng)}
        outcome = call(made, "t", given)
        words = [given["one"], *given["more"], given["last"]]
        bad = "--" in [given["text"], given["s"], *given["tag"], *words] or any(one[:1] == "@" for one in words)
        assert outcome.data == given if outcome.ok else bad, (given, outcome.error)


# The example


@pytest.mark.parametrize("line", [
    "convert 2026-06-20T15:00 Asia/Tokyo --from-tz Europe/London --fmt human", "diff 2026-01-01 2026-05-04T06:00 --unit hours", "zones new_york",
    "now --tz Asia/Tokyo --date-only", "now --help", "now --tz Mars/Olympus",
])
def test_the_clock_is_the_same_from_a_click_group(click, line):
    folder = pathlib.Path(nk.__file__).resolve().parent
    program = folder / "examples" / "clock.py"
    runs = []
    for source in ("", "click"):
        run = subprocess.run([sys.executable, str(program), *line.split()], stdin=subprocess.DEVNULL, capture_output=True, timeout=60,
                             env={"CLOCK_FROM": source, "PYTHONPATH": str(folder)})
        assert b"Traceback" not in run.stderr
        runs.append((run.returncode, run.stdout if "--help" not in line else run.stdout[:40], run.stderr))
    assert runs[0] == runs[1] and (runs[0][0] == 0) == ("Mars" not in line)


# Plan -> argv


class Level(enum.Enum):
    LOW = 1
    HIGH = 2


@nk.command(expose=("cli", "agent"))
def store(
    text: str, number: int, rate: float, flag: bool, tags: list[str], ids: list[int], nested: dict[str, Any], maybe: Optional[str],
    either: Union[int, str], kind: Literal["a", "b"], level: Level, day: datetime.date, key: uuid.UUID, cost: decimal.Decimal, raw: bytes,
    any_json: Any, where: pathlib.Path, *rest: str, sure: Annotated[bool, nk.Arg(alias="s")] = True, tri: Optional[bool] = None,
    dash_name: Annotated[int, nk.Arg(alias="d")] = 3, from_env: Annotated[str, nk.Arg(env="STORE_ENV")] = "x",
) -> dict:
    """Store everything."""
    return {}


@nk.command(expose=("cli", "agent"), remote=True, input={
    "type": "object", "properties": {"json": {}, "a.b": {"type": "string"}, "a": {"type": "string"}, "c=d": {"type": "string"}, "x:": {"type": "string"},
                                     "é": {"type": "string"}, ".a": {"type": "string"}, "help": {"type": "boolean"}}})
def odd(given: dict) -> dict:
    """Take odd names."""
    return given


def odd_text(rng):
    pieces = ["-", "--", "=", ":=", ".", " ", "$", "[1]", "{}", "true", "null", "7", "é", "\U0001f600", "\n", "\x00", "\\", '"', "--json", "@f", ""]
    return "".join(rng.choice(pieces) for _ in range(rng.randrange(4)))


def odd_json(rng, level=0):
    kind = rng.randrange(8 if level < 3 else 5)
    if kind < 5:
        return [odd_text(rng), rng.choice([0, -1, 10**30]), 0.5, None, rng.random() < 0.5][kind]
    if kind < 7:
        return [odd_json(rng, level + 1) for _ in range(rng.randrange(3))]
    return {odd_text(rng): odd_json(rng, level + 1) for _ in range(rng.randrange(3))}


def escaped(value):
    return nk._plan_escape(value)


def plan_of(app, *steps):
    eng = app._line(nk.Env(stdin=None), None)
    surface = app.surface()
    return nk._plan_check(eng.make_engine(surface, {}), {"plan": list(steps)})


def test_what_is_emitted_reads_back_to_the_same_arguments(rng, monkeypatch):
    monkeypatch.setenv("STORE_ENV", "from the environment")
    app = nk.App("s", commands=[store, odd], sandbox=nk.UNCONFINED, expose=("cli",),
                 positionals={"store": ["number", "text"], "odd": ["a"]}, aliases={"store": {"x": "text", "n": "number"}})
    for _ in range(150):
        args = {
            "text": odd_text(rng), "number": rng.choice([0, -5, 10**25]), "rate": rng.choice([0.5, -1e-7, 3]), "flag": rng.random() < 0.5,
            "tags": [odd_text(rng) for _ in range(rng.randrange(3))], "ids": [rng.randrange(-9, 9) for _ in range(rng.randrange(3))],
            "nested": {odd_text(rng): odd_json(rng)}, "maybe": rng.choice([None, odd_text(rng)]), "either": rng.choice([7, "7", "-7", odd_text(rng)]),
            "kind": rng.choice("ab"), "level": rng.choice([1, 2]), "day": "2026-01-02", "key": str(uuid.UUID(int=rng.getrandbits(128))), "cost": "1.50",
            "raw": "AAEC", "any_json": odd_json(rng), "where": rng.choice(["-x", "--help", "a=b", "é"]), "rest": [odd_text(rng) for _ in range(rng.randrange(3))],
            "sure": rng.random() < 0.5, "tri": rng.choice([None, True, False]), "dash_name": rng.choice([3, 4]), "from_env": rng.choice(["x", odd_text(rng)])}
        names = {name: odd_text(rng) for name in ("a.b", "a", "c=d", "x:", "é", ".a") if rng.random() < 0.7}
        names.update({"json": odd_json(rng), "help": rng.random() < 0.5})
        plan = plan_of(app, {"tool": "store", "args": escaped(args)}, {"tool": "odd", "args": escaped(names)})
        for line, step in zip(nk.emit_argv(plan), plan.steps):
            assert read_back(app, line) == step.args and "\0" not in "".join(line)
        assert nk.emit_argv(plan, "prog")[0][:2] == ["prog", "store"]


def read_back(app, tokens):
    ran = run_app(app, *tokens, "--dry-run", environ={"STORE_ENV": "other"})
    assert ran.code == 0, (tokens, ran)
    return ran.data["args"]


def test_emitted_lines_are_short_and_plain():
    @nk.command(expose=("cli", "agent"))
    def convert(src: str, fmt: Literal["mp4", "gif"] = "mp4", size: list[int] = (), note: Optional[str] = None) -> str:
        return src

    app = nk.App("m", commands=[convert])
    plan = plan_of(app, {"tool": "convert", "args": {"src": "v.mov", "fmt": "gif", "size": [1, 2]}}, {"tool": "convert", "args": {"src": "--yes"}})
    assert nk.emit_argv(plan, ["python3", "m.py"]) == [
        ["python3", "m.py", "convert", "--src=v.mov", "--fmt=gif", "--size:=[1,2]"], ["python3", "m.py", "convert", "--src=--yes"]]


def test_what_no_command_line_can_say_is_refused():
    @nk.command(expose=("cli", "agent"))
    def a(x: int) -> int:
        return x

    @nk.command(expose=("agent",))
    def hidden(x: int) -> int:
        return x

    app = nk.App("m", commands=[a, hidden])

    def refused(plan):
        with pytest.raises(nk.Error) as caught:
            nk.emit_argv(plan)
        return caught.value.code, caught.value.message, caught.value.details

    assert refused({"plan": []}) == ("BAD_REQUEST", "emit_argv needs a checked plan, as app.check returns it, not a dict", None)
    assert refused(plan_of(app, {"tool": "a", "args": {"x": 1}, "output": "$n"}, {"tool": "a", "args": {"x": "$n"}})) == (
        "BAD_REQUEST", "plan[1] (a) holds a reference, whose value only execution knows; execute the plan", {"step": 1})
    assert refused(plan_of(app, {"tool": "hidden", "args": {"x": 1}})) == (
        "BAD_REQUEST", "plan[0] (hidden) is not a shell command, so that no command line stands for it; expose it on cli", {"step": 0})


def test_emitted_lines_hold_no_secret_and_no_approval():
    @nk.command(expose=("cli", "agent"), destructive=True)
    def drop(name: str, token: Annotated[str, nk.Opt(secret=True, default="hunter2", env="T_TOKEN")]) -> str:
        return name

    app = nk.App("m", commands=[drop])
    plan = plan_of(app, {"tool": "drop", "args": {"name": "x"}})
    assert nk.emit_argv(plan) == [["drop", "--name=x"]]
    assert run_app(app, *nk.emit_argv(plan)[0]).code == 8
