"""HELP: whole pages, type labels, search, hostile text and schemas, and the completion scripts in real shells."""
from __future__ import annotations

import dataclasses
import datetime
import os
import pathlib
import re
import select
import shutil
import subprocess
import sys
import time
from typing import Annotated, Dict, List, Literal, Optional

import pytest

import knaif as nk


def raw(name, schema, description="Do it.", **more):
    """A command whose fields come from a JSON Schema."""
    return nk.Command(lambda args: args, name=name, help=description, input=schema, expose=("cli",), **more)


def typed(function, **more):
    """A command whose fields come from annotations."""
    return nk.Command(function, expose=("cli",), **more)


def fields_of(schema):
    return nk._shapes_from_schema(schema, owner="the test")[1]


def page(command, *, app="tasks", width=80, **more):
    return nk._help_command(name=app, command=command, width=width, **more)


def arguments(command, **more):
    """The lines of the argument table, unwrapped."""
    text = page(command, width=100, **more)
    table = text.partition("Arguments:\n")[2].partition("\n\n")[0]
    return [re.sub(r" {2,}", "  ", line.strip()) for line in table.split("\n")]


OBJECT = {"type": "object", "properties": {}, "additionalProperties": False}


def thing(**properties):
    return {"type": "object", "properties": properties, "additionalProperties": False}


# Pages


def add(
    title: Annotated[str, nk.Arg(help="what to do", min=1, max=200)],
    tags: Annotated[List[str], nk.Arg(help="words to find it by")] = [],
    due: Annotated[Optional[datetime.date], nk.Arg(help="the day it has to be done by", example="2026-03-01")] = None,
    priority: Annotated[
        Literal["low", "normal", "high"], nk.Arg(help="how much it matters", alias="p", env="TASKS_PRIORITY")
    ] = "normal",
    notify_me: bool = True,
    note_file: Optional[pathlib.Path] = None,
):
    """Add a task. It is kept in the file that --db names.

    More.
    """


APP_FIELDS = fields_of(thing(db={"type": "string", "description": "where the list is kept", "default": "tasks.db"}))

ADD_PAGE = """\
Add a task. It is kept in the file that --db names.

Usage: tasks add <title> [tags] [due] [priority] [note-file] [--flags]

Arguments:
  <title> | --title            <string> [length >=1, length <=200] (required)
                               — what to do
  [tags] | --tags              <value…> — words to find it by
  [due] | --due                <date> — the day it has to be done by (example:
                               2026-03-01)
  [priority] | -p, --priority  <low|normal|high> — how much it matters (default:
                               normal; env: TASKS_PRIORITY)
  --notify-me                  <boolean> (default: true; off: --no-notify-me)
  [note-file] | --note-file    <path>

Examples:
  tasks add "buy milk" --due 2026-03-01
  tasks add "buy bread"
  tasks add --title tea

Application options:
  --db  <string> — where the list is kept (default: tasks.db)

Run 'tasks --help' for the options that every command has.
"""


def test_command_page():
    command = typed(add, examples=('"buy milk" --due 2026-03-01', 'tasks add "buy bread"', "add --title tea"))
    assert page(command, app_fields=APP_FIELDS) == ADD_PAGE


def test_command_page_fits_a_narrow_terminal():
    text = page(typed(add), width=1)
    assert max(map(len, text.split("\n"))) <= nk.HELP_WIDTH_MIN_COLUMNS
    assert text.startswith("Add a task. It is kept in the file that\n--db names.\n")
    assert "\nUsage: tasks add <title> [tags] [due]\n                 [priority] [note-file]\n" in text


def test_command_page_without_description_or_arguments():
    def doctor():
        pass

    assert page(typed(doctor, destructive=True)) == (
        "Destructive: you are asked before it runs; --yes answers in advance.\n"
        "\n"
        "Usage: tasks doctor [--flags]\n"
        "\n"
        "Run 'tasks --help' for the options that every command has.\n"
    )


def test_usage_follows_the_positional_policy():
    skill = raw("skill", {**thing(action={"type": "string"}, profile={"type": "string"}, force={"type": "boolean"},
                                  lines={"type": "integer"}), "required": ["action"]})
    text = page(skill, app="myapp", positionals=["action", "profile"], aliases={"n": "lines"})
    assert "Usage: myapp skill <action> [profile] [--flags]\n" in text
    assert arguments(skill, positionals=["action", "profile"], aliases={"n": "lines"}) == [
        "<action> | --action  <string> (required)",
        "[profile] | --profile  <string>",
        "--force  <boolean>",
        "-n, --lines  <integer>",
    ]
    assert "Usage: myapp skill [--flags]\n" in page(skill, app="myapp", positionals=[])


def test_usage_marks_the_trailing_list_alone():
    handoff = raw("handoff", {
        **thing(to={"type": "string"}, tags={"type": "array"}, files={"type": "array", "items": {"type": "string"}}),
        "required": ["to", "files"]})
    assert "Usage: tasks handoff <to> <files...> [--flags]\n" in page(handoff, positionals=["to", "files"])
    assert "Usage: tasks handoff <to> [tags] <files...> [--flags]\n" in page(handoff, positionals=["to", "tags", "files"])
    assert "Usage: tasks handoff <files> <to> [--flags]\n" in page(handoff, positionals=["files", "to"])
    assert arguments(handoff, positionals=["to", "files"]) == [
        "<to> | --to  <string> (required)",
        "--tags  <value…>",
        "<files...> | --files  <value…> (required)",
    ]


def test_members_of_an_object_are_listed_by_their_dotted_options():
    command = raw("open", {
        "$defs": {"port": {"type": "integer", "minimum": 1, "maximum": 65535}},
        **thing(
            server={"type": "object", "required": ["host"], "properties": {
                "host": {"type": "string", "description": "name of the machine"},
                "port": {"$ref": "#/$defs/port", "default": 80},
                "tls": {"type": "object", "properties": {"verify": {"type": "boolean", "default": False}}},
                "a.b": {"type": "string"}, "a=b": {"type": "string"}, "": {"type": "string"}, "c:": {"type": "string"},
            }},
            target={"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}}},
            labels={"type": "object", "additionalProperties": {"type": "integer"}},
            meta={"type": "object"}, more={"type": "object", "properties": {"a": {}}, "additionalProperties": True},
            closed={"type": "object", "additionalProperties": False},
            either={"anyOf": [{"type": "object", "properties": {"x": {"type": "string"}}},
                              {"type": "object", "properties": {"y": {"const": 7}}, "required": ["y"]}]},
        ), "required": ["target"]})
    assert arguments(command, positionals=[]) == [
        "--server  <object>",
        "--server.host  <string> (required with --server) — name of the machine",
        "--server.port  <integer> [>=1, <=65535] (default: 80)",
        "--server.tls.verify  <boolean>",
        "--target  <object> (required)",
        "--target.id  <string> (required)",
        "--labels  <object>",
        "--labels.<key>  <integer>",
        "--meta  <object>",
        "--meta.<key>  <string>",
        "--more  <object>",
        "--more.a  <value>",
        "--more.<key>  <string>",
        "--closed  <object>",
        "--either  <value> [any of: object | object]",
        "--either.x  <string>",
        "--either.y  <7>",
    ]


@dataclasses.dataclass
class Spot:
    host: str
    port: Annotated[int, nk.Arg(min=1, help="where it listens")] = 80
    token: Annotated[str, nk.Arg(secret=True)] = "hunter2"


def test_members_of_a_dataclass_that_may_be_left_out():
    def go(place: Optional[Spot] = None):
        pass

    assert arguments(typed(go)) == [
        "[place] | --place  <object>",
        "--place.host  <string> (required with --place)",
        "--place.port  <integer> [>=1] — where it listens",  # beside a secret no default of a part is shown
        "--place.token  <string>",
    ]


def test_a_field_named_like_an_option_of_the_framework_or_application_is_dotted():
    command = raw("rows", thing(sort={"type": "string"}, db={"type": "string"}, version={"type": "string"},
                                wait={"type": "boolean", "default": True}), remote=True)
    assert arguments(command, app_fields=APP_FIELDS, positionals=[]) == [
        "--.sort  <string>",
        "--.db  <string>",
        "--version  <string>",
        "--.wait  <boolean> (default: true; off: --no-.wait)",
    ]


def test_application_options_follow_their_references():
    schema = {"$defs": {"size": {"enum": ["s", "l"]}}, **thing(size={"$ref": "#/$defs/size"})}
    given = dict(app_fields=fields_of(schema), app_root=schema)
    assert "\n  --size  <s|l>\n" in page(raw("x", OBJECT), **given)
    assert "\n  --size  <s|l>\n" in top(**given)
    assert "' --size') kind=words list='s l' ;;" in nk._help_completion("bash", "x", [], **given)


def test_facts_defaults_examples_patterns_and_items():
    command = raw("x", thing(
        text={"type": "string", "default": "two words"}, number={"type": "number", "default": 0},
        empty={"type": "string", "default": ""}, off={"type": "boolean", "default": False},
        rows={"type": "array", "items": {"type": "integer", "minimum": 1}, "default": [1, 2]},
        code={"type": "string", "pattern": "^[a-z]+$", "examples": ["abc"]},
        names={"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 2, "maxItems": 4},
        none={"type": ["string", "null"], "default": None},
        either={"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
    ))
    assert arguments(command, positionals=[]) == [
        '--text  <string> (default: "two words")',
        "--number  <number> (default: 0)",
        "--empty  <string>",
        "--off  <boolean>",
        "--rows  <value…> (default: [1, 2]; each: integer [>=1])",
        "--code  <string> (example: abc; pattern: ^[a-z]+$)",
        "--names  <value…> [items >=2, items <=4] (each: string [length >=1])",
        "--none  <value> [any of: string | null]",
        "--either  <value> [any of: string | null]",
    ]


def test_a_secret_default_is_never_shown():
    def login(
        token: Annotated[str, nk.Arg(secret=True, help="the token", env="TOKEN")] = "hunter2", name: str = "me",
        more: List[str] = ["x"],
    ):
        pass

    text = page(typed(login))
    assert "hunter2" not in text
    assert arguments(typed(login), positionals=[]) == [
        "--token  <string> — the token (env: TOKEN)",
        "--name  <string> (default: me)",
        '--more  <value…> (default: ["x"])',
    ]


def test_a_required_secret_is_asked_for():
    def login(token: Annotated[str, nk.Arg(secret=True, example="t-123")]):
        pass

    assert "Usage: tasks login [--flags]\n" in page(typed(login))
    assert arguments(typed(login)) == ["--token  <string> (required) (asked for when missing; example: t-123)"]


def test_options_that_a_command_passes_on():
    def run(name: str, **rest: str):
        pass

    assert arguments(typed(run))[-1] == "--<other>  <value> — any other option, passed on as it was written"


def test_nothing_stands_for_none_but_bounds_keep_their_branch():
    def f(
        a: Optional[int] = None,
        b: Annotated[Optional[str], nk.Arg(min=1)] = None,
        c: Optional[Literal["x", "y"]] = None,
        d: Annotated[Optional[int], nk.Arg(help="kept")] = 5,
    ):
        pass

    assert arguments(typed(f), positionals=[]) == [
        "--a  <integer>",
        "--b  <value> [any of: string [length >=1] | null]",
        "--c  <x|y>",
        "--d  <value> [any of: integer | null] — kept (default: 5)",
    ]


LONG = "purge_everything_that_is_done_or_old"
TOP_PAGE = """\
tasks 1.0.0
Keep a list of things to do.

Usage: tasks [command] [args] [--flags]

Commands:
  add   Add a task
  list  List the tasks, oldest first (default)
  purge_everything_that_is_done_or_old
        Delete what is done

Managed commands are unavailable: UNREACHABLE: socket closed

Global options:
  --json      print one line of JSON
  --top <n>   keep the first n
  -h, --help  show this help; --help <text> lists the commands that match

Application options:
  --db  <string> — where the list is kept (default: tasks.db)

Run 'tasks <command> --help' for one command, 'tasks --help <text>' to search.
"""
OPTIONS = (
    ("json", "boolean", "", "print one line of JSON"), ("top", "value", "<n>", "keep the first n"),
    ("help", "boolean", "", "show this help; --help <text> lists the commands that match"),
)
COMMANDS = [
    typed(add), raw("list", OBJECT, "List the tasks, oldest first. They are numbered."),
    raw(LONG, OBJECT, "Delete what is done."), raw("internal", OBJECT, "Not for people.", hidden=True),
]


def top(**more):
    given = dict(name="tasks", version="1.0.0", description="Keep a list of things to do.", commands=COMMANDS,
                 default=None, app_fields=APP_FIELDS, program_options=OPTIONS, width=80)
    return nk._help_top(**{**given, **more})


def test_top_level_page():
    notes = ["Managed commands are unavailable: UNREACHABLE: socket closed"]
    assert top(default="list", notes=notes) == TOP_PAGE


def test_top_level_page_without_a_default():
    text = top()
    assert "\nUsage: tasks <command> [args] [--flags]\n" in text and "(default)" not in text.partition("Global")[0]
    assert "internal" not in text
    assert "(default)" not in top(default="internal").partition("Global")[0]


def test_top_level_page_without_description_and_options():
    assert top(description="", app_fields=[], program_options=[], commands=COMMANDS[1:2]) == (
        "tasks 1.0.0\n\nUsage: tasks <command> [args] [--flags]\n\nCommands:\n  list  List the tasks, oldest first\n\n"
        "Run 'tasks <command> --help' for one command, 'tasks --help <text>' to search.\n"
    )


def test_top_level_page_of_commands_that_never_opted_in():
    assert top(description="", app_fields=[], program_options=[], commands=[], hint_no_commands=True) == (
        "tasks 1.0.0\n\nUsage: tasks [--flags]\n\n"
        "This program has commands, but none of them is on the command line: a command\n"
        'opts in with expose=("cli",), all of them with App(..., expose=("cli", "agent",\n"mcp")).\n'
    )


def test_every_framework_option_has_a_row():
    text = top(program_options=nk.REG_OPTIONS, width=100)
    for name, _kind, metavar, _help in nk.REG_OPTIONS:
        assert re.search(r"^  (-h, )?--%s(?: %s)?  +\S" % (name, re.escape(metavar)), text, re.M), name


@pytest.mark.parametrize("text, summary", [
    ("", ""),
    ("Add a task.", "Add a task"),
    ("Add a task. Then more.", "Add a task"),
    ("Add a task\n\nArgs:\n  x: y", "Add a task"),
    ("Add a task\nthat is long. And more.", "Add a task that is long"),
    ("Add a task\nArgs: x", "Add a task"),
    ("Use e.g. this. Or that.", "Use e.g. this"),
    ("Read v1.2 files.", "Read v1.2 files"),
    ("Take approx. five. Or six.", "Take approx. five"),
    ("List U.S. States. Or others.", "List U.S. States"),
    ("abcdefg " * 20, "abcdefg " * 8 + "abcde..."),
    ("Wait...", "Wait..."),
    ("Really? Yes.", "Really? Yes"),
    ("  spaced \t out  ", "spaced out"),
    ("word " * 40, "word " * 13 + "word..."),
    ("x" * 100, "x" * 69 + "..."),
    ("\x1b[31mred\x07", "\\x1b[31mred\\x07"),
])
def test_summary(text, summary):
    assert nk._help_summary(text) == summary


def test_description_keeps_lists_and_indented_lines():
    text = "First line\nand its second.\n\n\n- one\n- two " + "more " * 20 + "\n\n    code  here\r\n\tx\nEnd."
    assert nk._help_paragraphs(text, 40) == [
        "First line and its second.", "", "- one",
        "- two more more more more more more more", "  more more more more more more more",
        "  more more more more more more",
        "", "    code  here", "    x", "End.",
    ]
    assert nk._help_paragraphs("", 40) == nk._help_paragraphs(" \n ", 40) == []


# Types and bounds


@pytest.mark.parametrize("schema, label", [
    ({"type": "integer", "minimum": 1, "maximum": 50}, "<integer> [>=1, <=50]"),
    ({"type": "string", "minLength": 1, "maxLength": 12}, "<string> [length >=1, length <=12]"),
    ({"type": "array", "items": {"type": "string", "minLength": 3}, "minItems": 2, "maxItems": 4},
     "<value…> [items >=2, items <=4]"),
    ({"anyOf": [{"type": "string", "minLength": 1}, {"type": "null"}]}, "<value> [any of: string [length >=1] | null]"),
    ({"type": ["string", "null"], "minLength": 1}, "<value> [any of: string [length >=1] | null]"),
    ({"oneOf": [{"type": "integer"}, {"const": "all"}]}, "<value> [one of: integer | all]"),
    ({"allOf": [{"type": "integer"}, {"minimum": 5}]}, "<value> [all of: integer & value [>=5]]"),
    ({"type": "integer", "allOf": [{"minimum": 0}, {"maximum": 9}]}, "<integer> [all of: value [>=0] & value [<=9]]"),
    ({"allOf": [{"type": "integer", "minimum": 1}]}, "<integer> [>=1]"),
    ({"type": "integer"}, "<integer>"),
    ({"type": "integer", "minimum": -(2**53) + 1, "maximum": 2**53 - 1}, "<integer>"),
    ({"type": "integer", "minimum": 1, "maximum": 2**53 - 1}, "<integer> [>=1]"),
    ({"type": "integer", "exclusiveMinimum": 0, "maximum": 2**53 - 1}, "<integer> [>0]"),
    ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1.5}, "<number> [>0, <1.5]"),
    ({"type": "number", "maximum": 2**53 - 1}, "<number> [<=9007199254740991]"),
    ({"type": "integer", "maximum": 0, "multipleOf": 5}, "<integer> [<=0, multiple of 5]"),
    ({"type": "object", "minProperties": 1, "maxProperties": 3}, "<object> [keys >=1, keys <=3]"),
    ({"type": "string", "minimum": 5, "minItems": 2}, "<string>"),
    ({"type": "string", "uniqueItems": True}, "<string>"),
    ({"minimum": 5}, "<value> [>=5]"),
    ({"type": "array", "uniqueItems": True, "items": {"type": "integer"}}, "<integer…> [items unique]"),
    ({"type": "array", "items": {"enum": ["a", "b"]}}, "<a|b…>"),
    ({"type": "array", "items": {"type": "array", "items": {"type": "string"}}}, "<value…>"),
    ({"type": "array"}, "<value…>"),
    ({"enum": ["low", "high", 7, None, True, "two words", "", "a|b"]}, '<low|high|7|null|true|"two words"|""|"a|b">'),
    ({"const": "x"}, "<x>"),
    ({"type": "string", "format": "date"}, "<date>"),
    ({"type": "string", "format": "date-time"}, "<date-time>"),
    ({"type": "string", "format": "\x1b[31m"}, "<string>"),
    ({"type": "string", "contentEncoding": "base64"}, "<base64>"),
    ({"type": "boolean"}, "<boolean>"),
    ({"$ref": "#/$defs/size"}, "<integer> [>=1]"),
    (True, "<value>"),
    ({}, "<value>"),
    (False, "<nothing>"),
])
def test_type_label(schema, label):
    assert nk._help_type(schema, {"$defs": {"size": {"type": "integer", "minimum": 1}}}) == label


def test_label_of_schemas_without_end():
    root = {"$defs": {
        "a": {"anyOf": [{"$ref": "#/$defs/a"}] * 30}, "b": {"$ref": "#/$defs/b"},
        "c": {"type": "array", "items": {"$ref": "#/$defs/c"}},
        "d": {"type": "object", "properties": {k: {"$ref": "#/$defs/d"} for k in "abcdefgh"}},
    }}
    for name in "abcd":
        start = time.perf_counter()
        schema = {"$ref": "#/$defs/" + name}
        assert len(nk._help_type(schema, root)) <= nk.HELP_TYPE_CHARACTERS
        assert nk._help_choices(schema, root) == []
        if name in "cd":  # a and b apply to one value without end, which registration refuses
            used = {"$defs": {name: root["$defs"][name]}}
            assert len(arguments(raw("x", {**used, **thing(f=schema)}), positionals=[])) <= nk.HELP_MEMBER_ROWS + 2
        assert time.perf_counter() - start < 1, name
    assert arguments(raw("x", {**used, **thing(f={"$ref": "#/$defs/d"})}), positionals=[])[-1] == (
        "--f...  and more; the whole can be given as JSON")
    lone = {"$defs": {"d": {"type": "object", "properties": {"a": {"$ref": "#/$defs/d"}}}}}
    assert arguments(raw("x", {**lone, **thing(f={"$ref": "#/$defs/d"})}), positionals=[]) == [
        "--f  <object>", "--f.a.a.a.a  <object>"]


def test_wide_and_long_schemas_are_counted_and_cut():
    assert nk._help_type({"enum": ["v%d" % n for n in range(10_000)]}, {}).endswith("|v22|v23|... 9,976 more>")
    assert nk._help_type({"anyOf": [{"type": "integer"}] * 1000}, {}).endswith(" | ... 976 more]")
    command = raw("x", thing(f={"type": "string", "description": "word " * 200_000, "pattern": "a" * 10_000}),
                  "text " * 200_000)
    text = page(command)
    assert len(text) < nk.HELP_PAGE_CHARACTERS + 2 * nk.HELP_FIELD_CHARACTERS
    assert "text te...\n" in text and " wo... (pattern:\n" in text and "aaa...)\n" in text


# Text from outside


HOSTILE = "a\x1b[2J\x9b\u202eb\u2028c\ud800d\x00"
SHOWN = "a\\x1b[2J\\x9b\\u202eb c\\ud800d\\x00"


def test_text_from_outside_shows_its_controls():
    schema = thing(f={"enum": [HOSTILE], "description": HOSTILE, "default": HOSTILE})
    schema["properties"][HOSTILE] = {"type": "string", "pattern": "\x1b+"}
    command = raw("x", schema, HOSTILE + "\n\n" + HOSTILE, examples=(HOSTILE,))
    text = page(command, width=100)
    text += top(commands=[command], description=HOSTILE, notes=[HOSTILE + "\n" + HOSTILE])
    text += nk._help_search(commands=[command], needle="A\x1b[2")[0]
    assert all(letter == "\n" or letter.isprintable() for letter in text)
    assert 'Commands matching "A\\x1b[2" (1 of 1):' in text
    assert "\n" + SHOWN.replace("b c", "b\\u2028c") + "\n" in text


def test_wide_letters_count_two_columns():
    rows = nk._help_rows([("日本語", "x"), ("abcdef", "y"), ("e\u0301", "z"), ("ＡＢ", "w")], 80)
    assert rows == ["  日本語  x", "  abcdef  y", "  e\u0301       z", "  ＡＢ    w"]
    assert nk._help_wrap("日本語 の説明 です", 8) == ["日本語", "の説明", "です"]


def test_wrapping_loses_nothing_and_fits(rng):
    words = rng
    for _ in range(300):
        text = " ".join("x" * words.randint(1, 12) for _ in range(words.randint(1, 40)))
        width = words.randint(20, 60)
        lines = nk._help_wrap(text, width, "  head  ", "    ")
        assert " ".join(" ".join(lines).split()) == "head " + text
        assert all(len(line) <= width for line in lines)


def test_any_schema_has_a_label_and_a_page(rng):
    dice = rng
    words = ("string", "#/properties/f", "#", HOSTILE, "a.b", "c:")

    def value(depth):
        pick = dice.randrange(8 if depth else 6)
        if pick < 6:
            return (None, True, 0, -1.5, 10**30, dice.choice(words))[pick]
        if pick == 6:
            return [value(depth - 1) for _ in range(dice.randint(0, 4))]
        return {dice.choice(words): value(depth - 1) for _ in range(dice.randint(0, 4))}

    def schema(depth):
        made = {}
        for keyword in dice.sample(("type", "enum", "const", "anyOf", "oneOf", "allOf", "items", "properties", "required",
                                    "minimum", "maxLength", "format", "default", "additionalProperties", "uniqueItems", "$ref",
                                    "description", "prefixItems"), dice.randint(0, 5)):
            kind = {"anyOf": 1, "oneOf": 1, "allOf": 1, "prefixItems": 1, "items": 2, "additionalProperties": 2, "properties": 3}
            kinds = ["string", "object", "array", "null", "integer", "number", "boolean"]
            if depth == 0 and keyword in kind:
                continue
            made[keyword] = {
                "type": lambda: dice.choice([dice.choice(kinds), dice.sample(kinds, 3)]),
                "enum": lambda: [value(2), 1], "required": lambda: ["a.b", "string"], "minimum": lambda: dice.choice([0, 1.5, 10**40]),
                "maxLength": lambda: 7, "format": lambda: "date", "uniqueItems": lambda: True, "description": lambda: HOSTILE,
                "$ref": lambda: dice.choice(["#", "#/properties/f"]), "default": lambda: value(2), "const": lambda: value(2),
            }.get(keyword, lambda: [
                None, [schema(depth - 1) for _ in range(dice.randint(1, 4))] if kind[keyword] == 1 else 0,
                dice.choice([True, False, schema(depth - 1)]) if kind[keyword] == 2 else 0,
                {dice.choice(words): schema(depth - 1) for _ in range(3)} if kind[keyword] == 3 else 0,
            ][kind[keyword]])()
        return made

    for _ in range(70):
        root = thing(f=schema(2))
        label = nk._help_type(root["properties"]["f"], root)
        assert label.isprintable() and len(label) <= nk.HELP_TYPE_CHARACTERS
        try:
            command = raw("x", root)
            text = page(command)
        except nk.RegistrationError:
            continue
        assert text.replace("\n", "").isprintable()
        assert nk._help_completion("bash", "x", [command]).isascii()


def test_a_page_for_ascii():
    assert nk._help_plain("  --x  <value…> — what\n") == "  --x  <value...> - what\n"


# Search


SURFACE = [
    raw("broadcast_send", OBJECT, "Send a broadcast to every subscriber"),
    raw("announce_publish", OBJECT, "Publish an announcement. It goes out as a Broadcast."),
    raw("broadcast_cancel", OBJECT, "Stop a running broadcast"),
    raw("tidy", OBJECT, "Clean up", keywords=("sweep",)),
    raw("broadcast_debug", OBJECT, "Not for people", hidden=True),
]


def test_search_lists_names_before_descriptions():
    text, found = nk._help_search(commands=SURFACE, needle="BROADcast", width=80)
    assert text == (
        'Commands matching "BROADcast" (3 of 4):\n'
        "  broadcast_send    Send a broadcast to every subscriber\n"
        "  broadcast_cancel  Stop a running broadcast\n"
        "  announce_publish  Publish an announcement\n"
    )
    assert [command.name for command in found] == ["broadcast_send", "broadcast_cancel", "announce_publish"]


@pytest.mark.parametrize("needle, names", [
    ("broadcast-send", ["broadcast_send"]), ("sweep", ["tidy"]), ("goes out", ["announce_publish"]), ("nothing", []),
    ("debug", []),
])
def test_search(needle, names):
    text, found = nk._help_search(commands=SURFACE, needle=needle)
    assert [command.name for command in found] == names and bool(text) == bool(names)


def test_no_match_says_how_many_there_are():
    error = nk._help_no_match("brodcast", 205)
    assert (error.code, error.message) == ("NOT_FOUND", 'No command matches "brodcast" (0 of 205)')
    assert error.hint == "use --help without a word to list every command"
    error = nk._help_no_match("x\x1b" + "y" * 100, 205, ["a", "b"])
    assert error.message == 'No command matches "x\\x1b%s..." (0 of 205); did you mean a or b?' % ("y" * 52)


# Completion


FILLED = [
    raw("add", {**thing(
        title={"type": "string"}, priority={"enum": ["low", "normal", "high", "a:b", "a:c", "x:y=z"]},
        loud={"type": "boolean", "default": True}, low={"type": "boolean"}, tags={"type": "array", "items": {"enum": ["red", "blue"]}},
        sort={"type": "string"}), "required": ["title"]}, remote=True),
    raw("list_items", thing(lines={"type": "integer"})),
    raw("hidden", OBJECT, hidden=True),
    typed(lambda: None, name="add-all"),
]


def opener(file: pathlib.Path, mode: Literal["r", "w"] = "r"):
    """Open."""


FILLED.append(typed(opener, name="open"))
MORE = dict(app_fields=APP_FIELDS, aliases={"add": {"p": "priority"}}, positionals={"add": ["title", "priority", "tags"]},
            default="list_items")


def script(shell, commands=FILLED, program="tasks", **more):
    return nk._help_completion(shell, program, commands, **{**MORE, **more})


EVERYWHERE = ["--" + name for name, *_ in nk.REG_OPTIONS] + ["-h", "--db"]

#: words of the line before the cursor, the last of them being completed -> what is offered; None: files
CASES = [
    ([""], ["add", "list_items", "add-all", "open"]),
    (["a"], ["add", "add-all"]),
    (["add", "--pri"], ["--priority"]),
    (["add", "--"], ["--title", "--priority", "--loud", "--no-loud", "--low", "--tags", "--.sort", *EVERYWHERE[:-2], "--db"]),
    (["open", "-"], ["--file", "--mode", *EVERYWHERE]),
    (["add", "--priority", ""], ["low", "normal", "high", "a:b", "a:c", "x:y=z"]),
    (["add", "-p", "n"], ["normal"]),
    (["add", "--priority=l"], ["--priority=low"]),
    (["add", "-p=h"], ["-p=high"]),
    (["add", "--priority", "a:"], ["a:b", "a:c"]),
    (["add", "--priority=x:y="], ["--priority=x:y=z"]),
    (["add", "--loud="], ["--loud=true", "--loud=false"]),
    (["add", "a title", ""], ["low", "normal", "high", "a:b", "a:c", "x:y=z"]),
    (["add", "--db", "low", "t", "h"], ["high"]),
    (["add", "t", "low", "r"], ["red"]),
    (["add", "t", "low", "red", "--tags", "blue", "b"], ["blue"]),
    (["add", "-p=low", "t", "lo"], ["low"]),
    (["add", "--priority=", ""], []),
    (["--db", "x", "ad"], ["add", "add-all"]),
    (["--li"], ["--lines"]),
    (["list-items", "--li"], ["--lines"]),
    (["add", "--", "--pri"], []),
    (["add", "--title", ""], []),
    (["nothing", ""], []),
    (["open", ""], None),
    (["open", "--file", ""], None),
    (["open", "x", ""], ["r", "w"]),
    (["open", "$(touch pwned)", ""], ["r", "w"]),
    (["open", "x", "`touch pwned`"], []),
    (["$(touch pwned)", "'; touch pwned #"], []),
    (["--output-dir", ""], None),
]


CASES = [(words, answer and sorted(answer)) for words, answer in CASES]


def broken(words, letters):
    """The words of a line as bash hands them to a completion function: cut at every run of = and :."""
    return [part for word in words for part in (re.findall("[%s]+|[^%s]+" % (letters, letters), word) or [word])]


def run(argv, text, cwd):
    done = subprocess.run(argv, input=text, capture_output=True, text=True, cwd=str(cwd), timeout=30)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return done.stdout


def quoted(word):
    return "'" + word.replace("'", "'\\''") + "'"


def ask_bash(text, lines, cwd, breaks="=:", cut=True):
    """Complete each line in one bash; None where files are left to readline."""
    program = ["set -u", "COMP_WORDBREAKS=" + quoted(" \t\n" + breaks), text,
               "compopt() { [[ $* = '+o default' ]] && files=0; }"]
    for words in lines:
        words = broken(words, breaks) if cut else words
        program.append("COMP_WORDS=(tasks %s); COMP_CWORD=%d; files=1; _tasks" % (" ".join(map(quoted, words)), len(words)))
        program.append('printf "%s\\0" "$files" ${COMPREPLY[@]+"${COMPREPLY[@]}"}; printf "\\n"')
    found = run(["bash", "--noprofile", "--norc"], "\n".join(program) + "\n", cwd).split("\n")[:-1]
    answers = [line.split("\0")[:-1] for line in found]
    return [None if answer == ["1"] else sorted(answer[1:]) for answer in answers]


def ask_zsh(text, lines, cwd):
    """Complete each line in one zsh; the words are what compadd was given, before zsh itself picks by prefix."""
    program = [
        "compadd() { print -rN -- $before${^@[2,-1]}; }", "compset() { [[ $* = '-P 1 *=' ]] || print WRONG; }",
        "_files() { print -rN -- FILES; }", "compdef() { [[ $* = '_tasks tasks' ]] || print WRONG; }", text,
    ]
    for words in lines:
        program.append("words=(tasks %s); CURRENT=%d; PREFIX=%s; _tasks; print" % (
            " ".join(map(quoted, words)), len(words) + 1, quoted(words[-1])))
    found = run(["zsh", "-f"], "\n".join(program) + "\n", cwd).split("\n")[:-1]
    answers = [[word for word in line.split("\0") if word] for line in found]
    return [None if answer == ["FILES"] else sorted(word for word in answer if word.startswith(words[-1]))
            for words, answer in zip(lines, answers)]


def ask_fish(text, lines, cwd):
    """Complete each line in one fish, through fish's own completion."""
    def quoted(word):
        return "'" + word.replace("\\", "\\\\").replace("'", "\\'") + "'"

    program = [text]
    for words in lines:
        line = " ".join(word if re.fullmatch(r"[\w.:=/-]*", word) else quoted(word) for word in ["tasks", *words])
        program.append("complete -C %s; echo ===" % quoted(line))
    (cwd / "only.txt").write_text("")
    found = run(["fish", "--no-config"], "\n".join(program) + "\n", cwd).split("===\n")[:-1]
    answers = [[word.partition("\t")[0] for word in answer.split("\n")[:-1]] for answer in found]
    # fish offers what merely contains the word when nothing begins with it.
    return [None if "only.txt" in answer else sorted(word for word in answer if word.startswith(words[-1]))
            for words, answer in zip(lines, answers)]


@pytest.mark.parametrize("breaks, cut", [("=:", True), ("=", True), ("=:", False), ("", False)])
def test_bash_completes(breaks, cut, tmp_path):
    """As bash 4 and 5 do, with : taken out of the breaks, as bash 3.2 does, and with both taken out."""
    answers = []
    for words, answer in CASES:
        last = re.split("[%s]" % breaks, words[-1])[-1] if breaks else words[-1]  # readline replaces this much alone
        answers.append(answer and sorted(word[len(words[-1]) - len(last):] for word in answer))
    assert ask_bash(script("bash"), [words for words, _ in CASES], tmp_path, breaks, cut) == answers
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_completes(tmp_path):
    assert ask_zsh(script("zsh"), [words for words, _ in CASES], tmp_path) == [answer for _, answer in CASES]
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes(tmp_path):
    assert ask_fish(script("fish"), [words for words, _ in CASES], tmp_path) == [answer for _, answer in CASES]
    assert os.listdir(tmp_path) == ["only.txt"]


def read_until(terminal, wanted, seconds=10):
    text = b""
    end = time.monotonic() + seconds
    while wanted not in text and time.monotonic() < end:
        if select.select([terminal], [], [], 0.1)[0]:
            text += os.read(terminal, 65536)
    assert wanted in text, text
    return text


def test_bash_at_a_real_terminal(tmp_path):
    pty = pytest.importorskip("pty")
    (tmp_path / "a report.txt").write_text("")
    (tmp_path / "c.bash").write_text(script("bash"))
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(tmp_path)
        os.execve(shutil.which("bash"), ["bash", "--noprofile", "--norc", "-i"], {
            "PATH": os.environ["PATH"], "PS1": "$ ", "TERM": "dumb", "HISTFILE": "/dev/null", "INPUTRC": "/dev/null"})
    try:
        read_until(terminal, b"$ ")
        os.write(terminal, b"tasks() { printf '<%s>' \"$@\"; }; source c.bash; bind 'set bell-style none'; echo re''ady\n")
        read_until(terminal, b"ready")
        os.write(terminal, b"tasks add -p=l\t t --priority=a:\t; echo do''ne\n")
        assert b"<add><-p=low><t><--priority=a:>" in read_until(terminal, b"done").replace(b"\r", b"")
        os.write(terminal, b"tasks open a\t; echo do''ne\n")
        assert b"<open><a report.txt>" in read_until(terminal, b"done")
        os.write(terminal, b"tasks --db a\t; echo do''ne\n")
        assert b"<--db><a>" in read_until(terminal, b"done")
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(terminal)


EVIL = ["$(touch pwned)", "`touch pwned`", ";touch pwned", "a;b", "a b", "a'b", 'a"b', "a\nb", "a\\b", "*", "?", "[a]", "{a,b}", "~",
        "$HOME", "a&b", "a|b", "a>b", "<(x)", "a(b", "a)b", "#a", "!a", "", "\x1b[2J", "caf\u00e9", "'; touch pwned; '"]
ODD = ["fine", 7, "%s%n", "%self", "=ls", "-n", "--", "@P@", "@F@", "a=b", "x..y", "/", "+", "1.5"]  # allowed, and never expanded


@pytest.mark.parametrize("shell, ask", [("bash", ask_bash), ("zsh", ask_zsh), ("fish", ask_fish)])
def test_hostile_names_and_choices_never_reach_a_shell(shell, ask, tmp_path):
    if shutil.which(shell) is None:
        pytest.skip(shell + " is not installed")
    schema = thing(**{word: {"type": "string"} for word in EVIL if word}, size={"enum": [*EVIL, *ODD, None, [1], {"a": 1}]})
    text = script(shell, [raw("add", schema, remote=True)], app_fields=[], aliases={}, positionals={"add": []}, default=None)
    for word in EVIL:
        assert len(word) < 3 or word not in text, word
    assert text.isascii()
    found = ask(text, [["add", "--size", ""], ["add", "--s"], ["add", "--$"]], tmp_path)
    assert found[0] == sorted(map(str, ODD)) and found[1][0] == "--size" and found[2] == []
    assert "pwned" not in os.listdir(tmp_path)


@pytest.mark.parametrize("shell", nk.HELP_SHELLS)
def test_a_script_for_nothing_is_valid(shell, tmp_path):
    if shutil.which(shell) is None:
        pytest.skip(shell + " is not installed")
    text = script(shell, [], "my-app.py", app_fields=[], aliases={}, positionals={}, default=None)
    assert "_my_2dapp_2epy" in text
    run([shell, "-n"], text, tmp_path)


def test_many_choices_are_capped():
    command = raw("x", thing(f={"enum": ["v%d" % n for n in range(10_000)]}))
    text = script("bash", [command])
    assert " v499'" in text and "v500" not in text


@pytest.mark.parametrize("shell, program, message", [
    ("csh", "tasks", 'there is no completion for the shell "csh"; choose bash, zsh or fish'),
    ("\x1b", "tasks", 'there is no completion for the shell "\\u001b"; choose bash, zsh or fish'),
    ("bash", "a b", 'a completion script needs a program name of letters, digits and _ . - alone, not "a b"'),
    ("bash", "$(x)", 'a completion script needs a program name of letters, digits and _ . - alone, not "$(x)"'),
    ("bash", "-n", 'a completion script needs a program name of letters, digits and _ . - alone, not "-n"'),
    ("bash", "@ROWS@", 'a completion script needs a program name of letters, digits and _ . - alone, not "@ROWS@"'),
    ("bash", "", 'a completion script needs a program name of letters, digits and _ . - alone, not ""'),
])
def test_completion_refusals(shell, program, message):
    with pytest.raises(nk.Error) as caught:
        script(shell, program=program)
    assert (caught.value.code, caught.value.message) == ("BAD_REQUEST", message)


# Cost


def test_help_imports_nothing_heavy():
    code = (
        "import sys, knaif as nk\n"
        "c = nk.Command(lambda args: args, name='x', help='Do it.', expose=('cli',), input={'type': 'object', 'properties':"
        " {'n': {'type': 'integer', 'minimum': 1, 'default': 5}, 's': {'type': ['string', 'null'], 'maxLength': 9}}})\n"
        "c.fields, c.input\n"
        "before = set(sys.modules)\n"
        "nk._help_command(name='a', command=c, width=80)\n"
        "nk._help_top(name='a', version='1', description='', commands=[c], default=None, app_fields=[], width=80)\n"
        "print(*sorted(set(sys.modules) - before))\n"
    )
    found = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True,
                           env={"PYTHONPATH": os.path.dirname(nk.__file__)})
    assert (found.stdout.strip(), found.stderr) in [("", ""), ("_json", "")]
