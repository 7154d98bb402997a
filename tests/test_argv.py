"""ARGV: tokens to values. Whole messages are pinned; random lines never raise; what is emitted is read back."""
from __future__ import annotations

import dataclasses
import json
import pathlib
import shlex
import sys
import typing

import pytest

import knaif as nk

TEXT = {"type": "string"}
WHOLE = {"type": "integer"}
NUMBER = {"type": "number"}
FLAG = {"type": "boolean"}
TEXTS = {"type": "array", "items": TEXT}
WHOLES = {"type": "array", "items": WHOLE}
RECORD = {"type": "object"}
SHAPED = {
    "type": "object",
    "properties": {
        "size": WHOLE, "on": FLAG, "name": TEXT, "tags": TEXTS, "in": {"type": "object", "properties": {"n": NUMBER}},
        "maybe": {"anyOf": [WHOLE, {"type": "null"}]},
    },
}


def make_field(name, schema, **attributes):
    """Return a Field with these attributes, optional unless it says otherwise."""
    field = nk.Field(name, schema)
    field.required = False
    for key, value in attributes.items():
        setattr(field, key, value)
    return field


def root_of(fields):
    return {"type": "object", "properties": {field.name: field.schema for field in fields}}


PAY = [
    make_field("to", TEXT, required=True), make_field("amount", WHOLE), make_field("rate", NUMBER),
    make_field("note", TEXT), make_field("tags", TEXTS, option_only=True), make_field("meta", RECORD, option_only=True),
    make_field("shaped", SHAPED, option_only=True), make_field("active", FLAG, alias="a"),
    make_field("max_size", WHOLE, dashed=True, option_only=True, alias="m"),
    make_field("ids", WHOLES, option_only=True, alias="i"),
]
LOGIN = [make_field("user", TEXT, required=True), make_field("pin", WHOLE, secret=True, alias="p")]
RUN = [make_field("name", TEXT, required=True), make_field("deep", FLAG, alias="d"),
       make_field("rest", TEXTS, rest=True)]
MANY = [make_field("to", TEXT, required=True), make_field("files", TEXTS, variadic=True)]
APP = [make_field("root", TEXT), make_field("verbose", FLAG), make_field("retries", WHOLE), make_field("cfg", SHAPED)]


def grammar_of(fields=PAY, **options):
    options.setdefault("name", "pay")
    options.setdefault("root", root_of(fields or []))
    options.setdefault("app_fields", APP)
    options.setdefault("app_root", root_of(options["app_fields"]))
    return nk._ArgvLine(fields=fields, **options)


def read(line, fields=PAY, **options):
    """Return the parsed line of a shell text or a list of tokens."""
    tokens = shlex.split(line) if isinstance(line, str) else line
    return nk._argv_parse(tokens, grammar_of(fields, **options))


def args_of(line, fields=PAY, **options):
    parsed = read(line, fields, **options)
    assert parsed.faults == []
    return parsed.args


def faults_of(line, fields=PAY, **options):
    return read(line, fields, **options).faults


def same(one, other):
    """Equal, with the types of numbers and booleans too."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


@dataclasses.dataclass
class Door:
    """What open_door opens: a secret and a path inside an object."""

    pin: typing.Annotated[int, nk.Arg(secret=True)] = 0
    file: pathlib.Path = pathlib.Path(".")


# What a line gives

GIVEN = [
    # long options
    ("--to bob", {"to": "bob"}),
    ("--to=bob", {"to": "bob"}),
    ("--to=", {"to": ""}),
    ("--to ''", {"to": ""}),
    ("--to=a=b", {"to": "a=b"}),
    ("--to=--note", {"to": "--note"}),
    ("--max-size 3", {"max_size": 3}),
    ("--max_size=3", {"max_size": 3}),
    ("--.to bob --.max-size 3", None),
    ("--.to bob --.max_size 3", {"to": "bob", "max_size": 3}),
    ("--amount +7", {"amount": 7}),
    ("--rate 2", {"rate": 2}),
    ("--rate 2.5e3", {"rate": 2500.0}),
    ("--rate 0.5", {"rate": 0.5}),
    ("--rate=12345678.25", {"rate": 12345678.25}),
    ("--amount 007", {"amount": 7}),
    ("--amount 123456789012345678901", {"amount": 123456789012345678901}),
    # words
    ("bob", {"to": "bob"}),
    ("bob 3 2.5 hello", {"to": "bob", "amount": 3, "rate": 2.5, "note": "hello"}),
    ("bob --amount 3 2.5", {"to": "bob", "amount": 3, "rate": 2.5}),
    ("3 --to bob", {"to": "bob", "amount": 3}),
    ("-", {"to": "-"}),
    ("'- item'", {"to": "- item"}),
    ("-5", {"to": "-5"}),
    ("-- --to", {"to": "--to"}),
    ("-- -- ", {"to": "--"}),
    ("--amount 1 -- bob -1.5", {"amount": 1, "to": "bob", "rate": -1.5}),
    ("-é", {"to": "-é"}),
    ("-1x", {"to": "-1x"}),
    # values that begin with a dash
    ("--note -foo", {"note": "-foo"}),
    ("--note -n100", {"note": "-n100"}),
    ("--note -", {"note": "-"}),
    ("--amount -5", {"amount": -5}),
    ("--note=-a", {"note": "-a"}),
    # booleans
    ("--active", {"active": True}),
    ("--active true", {"active": True}),
    ("--active false", {"active": False}),
    ("--active bob", {"active": True, "to": "bob"}),
    ("--active False", {"active": True, "to": "False"}),
    ("--active -- false", {"active": True, "to": "false"}),
    ("--active=no", {"active": False}),
    ("--active=ON", {"active": True}),
    ("--active=1", {"active": True}),
    ("--active=0", {"active": False}),
    ("--active=YeS", {"active": True}),
    ("--active=oFF", {"active": False}),
    ("--no-active", {"active": False}),
    ("--no-active bob", {"active": False, "to": "bob"}),
    ("-a", {"active": True}),
    ("-a false bob", {"active": False, "to": "bob"}),
    ("-a=false", {"active": False}),
    ("-a bob", {"active": True, "to": "bob"}),
    # aliases
    ("-m 100", {"max_size": 100}),
    ("-m=100", {"max_size": 100}),
    ("-m -5", {"max_size": -5}),
    ("-i 1 --ids 2 -i=3", {"ids": [1, 2, 3]}),
    # arrays
    ("--tags a --tags b", {"tags": ["a", "b"]}),
    ("--tags a", {"tags": ["a"]}),
    ("--tags=a --tags=b=c", {"tags": ["a", "b=c"]}),
    ("""--tags '["a","b"]'""", {"tags": ["a", "b"]}),
    ("""--tags='[]'""", {"tags": []}),
    ("""--tags '[x' --tags b""", {"tags": ["[x", "b"]}),
    ("""--tags:='["[x"]'""", {"tags": ["[x"]}),
    ("--ids 1 --ids -2", {"ids": [1, -2]}),
    ("--ids '[1,2]'", {"ids": [1, 2]}),
    # JSON
    ("--amount:=null", {"amount": None}),
    ("--to null", {"to": "null"}),
    ("""--to:='"null"'""", {"to": "null"}),
    ("""--to:=7""", {"to": 7}),
    ("""--amount:='"7"'""", {"amount": "7"}),
    ("--active:=false", {"active": False}),
    ("""--meta '{"k":"v"}'""", {"meta": {"k": "v"}}),
    ("""--meta:='{"k":"v"}'""", {"meta": {"k": "v"}}),
    ("--.to:=null --.meta.k:=1", {"to": None, "meta": {"k": 1}}),
    # dotted
    ("--meta.k v", {"meta": {"k": "v"}}),
    ("--meta.k=v --meta.j=w", {"meta": {"k": "v", "j": "w"}}),
    ("--meta.a.b 1 --meta.a.c 2", {"meta": {"a": {"b": "1", "c": "2"}}}),
    ("--meta.a 007 --meta.b +007 --meta.c 1e3 --meta.d true", {"meta": {"a": "007", "b": "+007", "c": "1e3", "d": "true"}}),
    ("--meta.k:=007 ", None),
    ("--meta.k:=null --meta.n:=[1]", {"meta": {"k": None, "n": [1]}}),
    ("--meta.__proto__.x 1 --meta.constructor 2", {"meta": {"__proto__": {"x": "1"}, "constructor": "2"}}),
    ("--shaped.size 3 --shaped.name 007 --shaped.in.n 1.5", {"shaped": {"size": 3, "name": "007", "in": {"n": 1.5}}}),
    ("--shaped.on", {"shaped": {"on": True}}),
    ("--shaped.on false --shaped.maybe 4", {"shaped": {"on": False, "maybe": 4}}),
    ("--shaped.tags a --shaped.tags b", {"shaped": {"tags": ["a", "b"]}}),
    ("--shaped.tags '[\"a\"]'", {"shaped": {"tags": ["a"]}}),
    ("--shaped.other 3", {"shaped": {"other": "3"}}),
    ("--.shaped.size 3 --shaped.on", {"shaped": {"size": 3, "on": True}}),
]


@pytest.mark.parametrize("line, expected", [case for case in GIVEN if case[1] is not None])
def test_a_line_gives(line, expected):
    assert same(args_of(line), expected)


FAULTS = [
    ("--amount abc", ['--amount expects a whole number, got "abc"']),
    ("--amount=", ['--amount expects a whole number, got ""']),
    ("--amount 1.5", ['--amount expects a whole number, got "1.5"']),
    ("--amount 1_000", ['--amount expects a whole number, got "1_000"']),
    ("--amount ' 1'", ['--amount expects a whole number, got " 1"']),
    ("--amount 0x10", ['--amount expects a whole number, got "0x10"']),
    ("--amount ٣", ['--amount expects a whole number, got "٣"']),
    ("--rate 007.5", ['--rate expects a number, got "007.5"']),
    ("--rate .5", ['--rate expects a number, got ".5"']),
    ("--rate 1.", ['--rate expects a number, got "1."']),
    ("--rate nan", ['--rate expects a number, got "nan"']),
    ("--rate inf", ['--rate expects a number, got "inf"']),
    ("--rate 1e999", ['--rate expects a number, got "1e999"']),
    ("bob x", ['<amount> expects a whole number, got "x"']),
    ("-m abc", ['-m (--max-size) expects a whole number, got "abc"']),
    ("--max_size abc", ['--max-size expects a whole number, got "abc"']),
    ("--ids 1 --ids x --ids y", ['--ids expects a whole number, got "x"', '--ids expects a whole number, got "y"']),
    ("--ids '[1,'", ['--ids expects a JSON array, got "[1,"']),
    ("--meta x", ['--meta expects a JSON object, got "x"']),
    ("--shaped.size x", ['--shaped.size expects a whole number, got "x"']),
    ("--shaped.on=maybe", ['--shaped.on expects true or false, got "maybe"']),
    ("--active=banana", ['--active expects true or false, got "banana"']),
    ("-a=banana", ['-a (--active) expects true or false, got "banana"']),
    ("--active=", ['--active expects true or false, got ""']),
    # missing values
    ("--note", ["--note requires a value, as in --note=VALUE"]),
    ("-m", ["-m (--max-size) requires a value, as in -m=VALUE"]),
    ("--note --json", ["--note requires a value, as in --note=VALUE"]),
    ("--note -a", ["--note requires a value, as in --note=VALUE"]),
    ("--note -m=1", ["--note requires a value, as in --note=VALUE"]),
    ("--note --", ["--note requires a value, as in --note=VALUE"]),
    ("-m -a", ["-m (--max-size) requires a value, as in -m=VALUE"]),
    ("--meta.k", ["--meta.k requires a value, as in --meta.k=VALUE"]),
    # single use
    ("--amount 1 --amount 1", ["--amount is given more than once"]),
    ("--amount 1 --amount 2 --amount 3", ["--amount is given more than once"]),
    ("--active=false --active", ["--active is given more than once"]),
    ("--active false --no-active", ["--active is given more than once"]),
    ("-a --active", ["--active is given more than once"]),
    ("-m 1 --max-size 1", ["--max-size is given more than once"]),
    ("--max_size 1 --max-size 1", ["--max-size is given more than once"]),
    ("--to a --.to a", ["--to is given more than once"]),
    ("--to a --to:=null", ["--to is given more than once"]),
    ("--json --json", ["--json is given more than once"]),
    ("--no-json --json=false", ["--json is given more than once"]),
    ("--top 1 --top 1", ["--top is given more than once"]),
    ("--root a --root a", ["--root is given more than once"]),
    ("--verbose --no-verbose", ["--verbose is given more than once"]),
    ("--meta.k 1 --meta.k 1", ["--meta.k is given more than once"]),
    ("--tags a --tags:=[]", ["--tags is given more than once; := gives the whole array"]),
    ("--tags:=[] --tags a --tags b", ["--tags is given more than once; := gives the whole array"]),
    ("--tags:=[] --tags:=[]", ["--tags is given more than once; := gives the whole array"]),
    # whole and parts
    ("--meta {} --meta.k 1", ["--meta.k overlaps a value given before; give the whole or its parts"]),
    ("--meta.k 1 --meta {}", ["--meta overlaps a value given before; give the whole or its parts"]),
    ("--meta.k 1 --meta:={}", ["--meta overlaps a value given before; give the whole or its parts"]),
    ("--meta.a 1 --meta.a.b 2", ["--meta.a.b overlaps a value given before; give the whole or its parts"]),
    ("--meta.a.b 1 --meta.a 2", ["--meta.a overlaps a value given before; give the whole or its parts"]),
    ("--meta.a:={} --meta.a.b 2", ["--meta.a.b overlaps a value given before; give the whole or its parts"]),
    # names
    ("--amoun 5", ["unknown option --amoun; did you mean --amount?"]),
    ("--amount_x=5", ["unknown option --amount_x; did you mean --amount or --count-by?"]),
    ("--zzz=5", ["unknown option --zzz; pay --help lists all of them"]),
    ("--dry", ["unknown option --dry; did you mean --dry-run?"]),
    ("--act", ["unknown option --act; did you mean --active?"]),
    ("--version", ["unknown option --version; pay --help lists all of them"]),
    ("--=x", ["unknown option --; pay --help lists all of them"]),
    ("--:=x", ["unknown option --; pay --help lists all of them"]),
    ("--meta..k 1", ["--meta..k names no part; keys are UTF-8 text with one dot before each, fewer than 128"]),
    ("--meta. 1", ["--meta. names no part; keys are UTF-8 text with one dot before each, fewer than 128"]),
    ("--meta.k. 1", ["--meta.k. names no part; keys are UTF-8 text with one dot before each, fewer than 128"]),
    ("--to.k 1", ["--to.k names a part of --to, which is not an object"]),
    ("--tags.0 1", ["--tags.0 names a part of --tags, which is not an object"]),
    ("--shaped.size.x 1", ["--shaped.size.x names a part of --shaped.size, which is not an object"]),
    ("--json.x=1", ["--json.x names a part of --json, which is not an object"]),
    ("--nope.x=1", ["unknown option --nope.x; did you mean --note?"]),
    ("--no-amount", ["unknown option --no-amount; did you mean --amount?"]),
    ("--no-a", ["unknown option --no-a; pay --help lists all of them"]),
    ("--no-active=1", ["--no-active takes no value; write --active=true or =false"]),
    ("--no-help=1", ["--no-help takes no value; write --help=true or =false"]),
    ("--" + "zz" * 40, ["unknown option --" + "z" * 55 + "...; pay --help lists all of them"]),
    ("-x", ["unknown option -x; the short options are -a, -h, -i, -m"]),
    ("-x=1", ["unknown option -x; the short options are -a, -h, -i, -m"]),
    ("-am", ["-a stands apart from other letters; a value follows it as -a VALUE or -a=VALUE"]),
    ("-ax", ["-a stands apart from other letters; a value follows it as -a VALUE or -a=VALUE"]),
    ("-m100", ["-m stands apart from other letters; a value follows it as -m VALUE or -m=VALUE"]),
    ("-m:=4", ["-m stands apart from other letters; a value follows it as -m VALUE or -m=VALUE"]),
    ("-amount", ["-a stands apart from other letters; a value follows it as -a VALUE or -a=VALUE"]),
    # JSON
    ("--json:=true", ["--json does not take :=; write = in its place"]),
    ("--top:=1", ["--top does not take :=; write = in its place"]),
    ("--to:=", ['--to:= expects JSON, got "" (no value)']),
    ("--root:=x", ['--root:= expects JSON, got "x" (an unexpected character)']),
    ("--meta.k:=x", ['--meta.k:= expects JSON, got "x" (an unexpected character)']),
    ("""--meta:='{"a":1,"a":2}'""", ['--meta:= expects JSON, got "{\\"a\\":1,\\"a\\":2}" (a repeated key)']),
    # framework values
    ("--top 0", ['--top expects a positive whole number, got "0"']),
    ("--top 1.5", ['--top expects a positive whole number, got "1.5"']),
    ("--top=x", ['--top expects a positive whole number, got "x"']),
    ("--wait-timeout 0", ['--wait-timeout expects a positive number of seconds, got "0"']),
    ("--wait-timeout -1", ['--wait-timeout expects a positive number of seconds, got "-1"']),
    ("--wait-timeout 1e999", ['--wait-timeout expects a positive number of seconds, got "1e999"']),
    ("--table ' , '", ['--table expects names of fields with commas between them, got " , "']),
    ("--output-dir=", ['--output-dir expects a folder, got ""']),
    ("--json=banana", ['--json expects true or false, got "banana"']),
    ("--sort", ["--sort requires a value, as in --sort=VALUE"]),
    # words
    ("a 1 2 b c", ['unexpected argument "c"; pay takes <to> <amount> <rate> <note>']),
    ("a 1 2 b c d e", ['unexpected argument "c"; pay takes <to> <amount> <rate> <note>']),
    ("a 1 2 b --no-active true", ['unexpected argument "true"; pay takes <to> <amount> <rate> <note>']),
    # application options
    ("--retries x", ['--retries expects a whole number, got "x"']),
    ("--root", ["--root requires a value, as in --root=VALUE"]),
    ("--cfg.size x --cfg {}", ['--cfg.size expects a whole number, got "x"', "--cfg overlaps a value given before; give the whole or its parts"]),
    # together, in the order of the line, and only what is independent
    ("--rate x --amoun 5 --note --json=maybe z", [
        '--rate expects a number, got "x"', "unknown option --amoun; did you mean --amount?",
        "--note requires a value, as in --note=VALUE",
        '--json expects true or false, got "maybe"',
    ]),
    ("x y --ids a --retries b z", [
        '<amount> expects a whole number, got "y"', '--ids expects a whole number, got "a"',
        '--retries expects a whole number, got "b"', '<rate> expects a number, got "z"',
    ]),
]


@pytest.mark.parametrize("line, expected", FAULTS)
def test_a_line_is_refused(line, expected):
    assert faults_of(line) == expected


# Framework and application options


OPTION_NAMES = [row[0].replace("-", "_") for row in nk.REG_OPTIONS]


def test_framework_options_are_read():
    options = read(
        "--json --wait --wait-timeout 2.5 --output-dir out --quiet --dry-run --yes --count-by a --sum b --by c --sort d "
        "--ascending --top 5 --table 'a, b,,c'"
    ).options
    assert {name: getattr(options, name) for name in OPTION_NAMES} == {
        "json": True, "wait": True, "wait_timeout": 2.5, "output_dir": "out", "quiet": True, "dry_run": True, "yes": True,
        "help": None, "version": False, "count_by": "a", "sum": "b", "by": "c", "sort": "d", "ascending": True, "top": 5,
        "table": ("a", "b", "c"),
    }


def test_framework_options_are_off_unless_given():
    options = read("bob --json=false --no-quiet").options
    off = nk.Options()
    assert all(getattr(options, name) == getattr(off, name) for name in OPTION_NAMES)


def test_options_stand_anywhere_before_the_double_dash():
    line = read("--verbose --json bob --root /srv -- --json")
    assert (line.args, line.globals, line.options.json) == (
        {"to": "bob", "amount": None}, {"verbose": True, "root": "/srv"}, True)
    assert line.faults == ['<amount> expects a whole number, got "--json"']
    assert read("--cfg.size 3 --cfg.on").globals == {"cfg": {"size": 3, "on": True}}
    assert read("--root:=null").globals == {"root": None}


def test_the_fields_of_a_discovered_command_keep_the_names_of_options():
    fields = [make_field("json", FLAG), make_field("top", TEXT), make_field("version", TEXT), make_field("root", TEXT)]
    line = read("--json --.json=false --.top high --top 3 --version 1.2 --root a --.root b", fields)
    assert line.faults == []
    assert line.args == {"json": False, "top": "high", "version": "1.2", "root": "b"}
    assert (line.options.json, line.options.top, line.globals) == (True, 3, {"root": "a"})
    assert faults_of("--.top a --.top b", fields) == ["--.top is given more than once"]


# Names


def test_exact_names_come_before_every_reading_of_them():
    fields = [make_field(name, TEXT) for name in ("a", "a.b", "a=b", "x:", "x", "no-y", "c-d", "c_d", ".z", "z", "p.q.r")]
    fields += [make_field("y", FLAG), make_field("p.q", RECORD), make_field("h", FLAG), make_field("e=f", WHOLE)]
    fields.append(make_field("g=h.i", RECORD))
    assert args_of(
        "--a 1 --a.b 2 --a=b 3 --x:=4 --x 5 --no-y 6 --y=no --c-d 7 --c_d 8 --.z 9 --z 10 --p.q.r 11 --p.q.s 12 --h "
        "--e=f=13", fields, app_fields=[],
    ) == {
        "a": "1", "a.b": "2", "a=b": "3", "x:": "4", "x": "5", "no-y": "6", "y": False, "c-d": "7", "c_d": "8",
        ".z": "9", "z": "10", "p.q.r": "11", "p.q": {"s": "12"}, "h": True, "e=f": 13,
    }
    assert args_of("--e=f:=14", fields, app_fields=[]) == {"e=f": 14}
    assert args_of("--a=c", fields, app_fields=[]) == {"a": "c"}
    fields = [make_field("a", TEXT), make_field("a=b", FLAG), make_field("c", TEXT), make_field("c=d", TEXTS)]
    assert args_of("--a=b --c=d e", fields, positionals=[]) == {"a=b": True, "c=d": ["e"]}


def test_dashed_spellings_lead_to_one_field_or_to_none():
    two = [make_field("a_b-c", TEXT), make_field("a-b_c", TEXT)]
    assert faults_of("--a-b-c x", two)[0].startswith("unknown option --a-b-c; did you mean --a_b-c")
    assert args_of("--a_b-c x --a-b_c y", two) == {"a_b-c": "x", "a-b_c": "y"}
    both = [make_field("a_b", TEXT), make_field("a-b", TEXT)]
    assert args_of("--a-b x", both) == {"a-b": "x"}
    assert faults_of("--c_d x", [make_field("c-d", TEXT)]) == ["unknown option --c_d; did you mean --c-d?"]
    assert args_of("--no-a-b", [make_field("a_b", FLAG)]) == {"a_b": False}


def test_odd_field_names_are_reachable_or_refused_but_never_a_surprise():
    fields = [make_field("", TEXT), make_field("-", TEXT), make_field("__proto__", TEXT), make_field("a b", TEXT)]
    assert args_of(["--.=1", "---=2", "--__proto__", "3", "--a b", "4"], fields) == {
        "": "1", "-": "2", "__proto__": "3", "a b": "4"}
    assert args_of("-- x", fields) == {"": "x"}


def test_a_name_from_outside_is_printed_safely():
    fields = [make_field("a\x1b[2J\nb", WHOLE)]
    assert faults_of(["--a\x1b[2J\nb", "x"], fields) == ['--a\\x1b[2J\\nb expects a whole number, got "x"']
    assert faults_of(["--\x1b[2J\u202e=x"]) == ["unknown option --\\x1b[2J\\u202e; pay --help lists all of them"]


def test_no_prefix_of_a_name_stands_for_it():
    for field in PAY:
        for end in range(1, len(field.name)):
            assert read(["--" + field.name[:end] + "=1"]).args == {} or field.name[:end] in {f.name for f in PAY}


# Aliases


def test_an_alias_of_the_application_maps_to_its_field():
    line = read("-f -n 100 --target api", [make_field("target", TEXT), make_field("follow", FLAG),
                                            make_field("lines", WHOLE)], aliases={"f": "follow", "n": "lines"})
    assert line.args == {"follow": True, "lines": 100, "target": "api"}


def test_aliases_are_case_sensitive():
    fields = [make_field("force", FLAG), make_field("file", TEXT)]
    assert args_of("-f -F x", fields, aliases={"f": "force", "F": "file"}) == {"force": True, "file": "x"}


def test_an_application_option_may_have_an_alias():
    app = [make_field("verbose", FLAG, alias="v")]
    assert read("-v", app_fields=app).globals == {"verbose": True}
    assert nk._argv_route(["-v", "list", "true"], app, None).tokens == ["-v=true", "true"]


# Positionals


def test_automatic_positionals_leave_out_booleans_secrets_and_options_only():
    usage = nk._argv_usage([*PAY, *LOGIN], None, root_of([*PAY, *LOGIN]))
    assert [field.name for field, _, _ in usage] == ["to", "amount", "rate", "note", "user"]
    assert [(required, variadic) for _, required, variadic in usage] == [
        (True, False), (False, False), (False, False), (False, False), (True, False)]


def test_a_policy_replaces_the_order_of_the_schema():
    assert args_of("x bob", positionals=["note", "to"]) == {"note": "x", "to": "bob"}
    assert faults_of("x", positionals=[]) == ['unexpected argument "x"; pay takes no positional arguments']
    assert args_of("--to bob", positionals=[]) == {"to": "bob"}


def test_a_trailing_list_takes_every_remaining_word():
    policy = {"positionals": ["to", "tags"]}
    assert args_of("proj a.md b.md", **policy) == {"to": "proj", "tags": ["a.md", "b.md"]}
    assert args_of("proj a.md", **policy) == {"to": "proj", "tags": ["a.md"]}
    assert args_of("proj", **policy) == {"to": "proj"}
    assert args_of("proj '[draft].md'", **policy) == {"to": "proj", "tags": ["[draft].md"]}
    assert args_of("proj a --active b -- --c", **policy) == {"to": "proj", "tags": ["a", "b", "--c"], "active": True}
    assert args_of("proj --tags a", **policy) == {"to": "proj", "tags": ["a"]}
    assert faults_of("proj a --tags b", **policy) == ["<tags...> and --tags are both given; use one form"]
    assert faults_of("proj --tags:=[] a", **policy) == ["<tags...> and --tags are both given; use one form"]
    assert faults_of("proj 1 x 2 y", positionals=["to", "ids"]) == [
        '<ids> expects a whole number, got "x"', '<ids> expects a whole number, got "y"']


def test_a_list_elsewhere_takes_one_token_of_json():
    policy = {"positionals": ["tags", "to"]}
    assert args_of("""'["a","b"]' bob""", **policy) == {"tags": ["a", "b"], "to": "bob"}
    assert faults_of("a bob", **policy) == ['<tags> expects a JSON array, got "a"']
    fields = [make_field("tags", TEXTS), make_field("meta", RECORD)]
    assert args_of("""'["a"]' '{"k":1}'""", fields) == {"tags": ["a"], "meta": {"k": 1}}


def test_star_args_take_every_remaining_word():
    assert args_of("bob a -1 b", MANY) == {"to": "bob", "files": ["a", "-1", "b"]}
    assert args_of("bob", MANY) == {"to": "bob"}
    assert args_of("bob --files a --files b", MANY) == {"to": "bob", "files": ["a", "b"]}
    assert faults_of("bob x --files a", MANY) == ["<files...> and --files are both given; use one form"]


def test_words_skip_fields_that_options_set_wherever_these_stand():
    assert args_of("7 --to bob") == {"to": "bob", "amount": 7}
    fields = [make_field("opts", RECORD), make_field("name", TEXT)]
    assert args_of("x --opts.k 1", fields) == {"opts": {"k": "1"}, "name": "x"}


def test_a_rest_field_takes_everything_from_its_first_word():
    for line, expected in [
        ("job ls", {"name": "job", "rest": ["ls"]}),
        ("job ls --json -- --deep -x --help", {"name": "job", "rest": ["ls", "--json", "--", "--deep", "-x", "--help"]}),
        ("--deep job ls -d", {"name": "job", "deep": True, "rest": ["ls", "-d"]}),
        ("job --deep ls", {"name": "job", "deep": True, "rest": ["ls"]}),
        ("--name job ls --name x", {"name": "job", "rest": ["ls", "--name", "x"]}),
        ("job -- --deep -- x", {"name": "job", "rest": ["--deep", "--", "x"]}),
        ("-- job ls -- x", {"name": "job", "rest": ["ls", "--", "x"]}),
        ("job", {"name": "job"}),
        ("job --rest a --rest b --deep", {"name": "job", "rest": ["a", "b"], "deep": True}),
    ]:
        parsed = read(line, RUN)
        assert (parsed.args, parsed.faults, parsed.help) == (expected, [], None), line
    assert read("job --help", RUN).help == ""
    assert read("job --json ls --root x --retries y", RUN).globals == {}
    assert faults_of("job --rest a b --json", RUN) == ["<rest...> and --rest are both given; use one form"]
    assert [field.name for field, _, _ in nk._argv_usage([*RUN[::-1]], None, True)] == ["rest"]
    assert faults_of("job --name other ls", RUN) == ["--name is given more than once"]
    assert read("job ls", RUN, positionals=["name"]).faults == ['unexpected argument "ls"; pay takes <name>']


# Passthrough


def test_unknown_options_are_collected_raw():
    extra = make_field("extra", RECORD, option_only=True)
    fields = [make_field("to", TEXT), extra]
    options = {"passthrough": "extra"}
    assert args_of("bob --x v --y=1 --z --n:=null --a.b c --no-q", fields, **options) == {
        "to": "bob", "extra": {"x": "v", "y": "1", "z": True, "n": None, "a.b": "c", "no-q": True}}
    assert args_of("--x 1 --x=2 --x", fields, **options) == {"extra": {"x": ["1", "2", True]}}
    assert args_of("--x --y -5", fields, **options) == {"extra": {"x": True, "y": "-5"}}
    assert args_of("--x -- bob", fields, **options) == {"extra": {"x": True}, "to": "bob"}
    assert args_of("--extra.a 1 --b 2", fields, **options) == {"extra": {"a": "1", "b": "2"}}
    assert args_of("--extra.b 1 --b 2", fields, **options) == {"extra": {"b": ["1", "2"]}}
    for line in ("""--extra '{"a":1}' --b 2""", "--extra:=null --b 2"):
        assert faults_of(line, fields, **options) == ["--b overlaps a value given before; give the whole or its parts"]
    assert faults_of("-x", fields, **options) == ["unknown option -x; the short options are -h"]
    assert faults_of("--=x", fields, **options) == ["unknown option --; pay --help lists all of them"]
    assert faults_of("--extra..b x", fields, **options) == [
        "--extra..b names no part; keys are UTF-8 text with one dot before each, fewer than 128"]
    assert faults_of("--x:=s3cret", fields, **options) == ["--x:= expects JSON (an unexpected character)"]
    assert faults_of(["--x", "\udcff"], fields, **options) == ["--x expects UTF-8 text"]
    assert read("--json --root r --x", fields, **options).globals == {"root": "r"}


def test_unknown_options_are_read_where_the_collecting_field_says_how():
    def extra(schema):
        return {"fields": [make_field("to", TEXT), make_field("extra", {"type": "object", "additionalProperties": schema},
                                                              option_only=True)], "passthrough": "extra"}

    assert args_of("bob --x 5 --y=-6 --z:=null", **extra(WHOLE)) == {"to": "bob", "extra": {"x": 5, "y": -6, "z": None}}
    assert args_of("--x --y false --z=no --.to a", **extra(FLAG)) == {
        "to": "a", "extra": {"x": True, "y": False, "z": False}}
    assert args_of("--x a --x b --y c", **extra(TEXTS)) == {"extra": {"x": ["a", "b"], "y": ["c"]}}
    assert args_of("--x.y 1 --extra.z 2", **extra(WHOLE)) == {"extra": {"x.y": 1, "z": 2}}
    assert faults_of("--x 5 --extra.x 5", **extra(WHOLE)) == ["--extra.x is given more than once"]
    assert faults_of("--x five", **extra(WHOLE)) == ['--x expects a whole number, got "five"']
    assert faults_of("--x", **extra(TEXT)) == ["--x requires a value, as in --x=VALUE"]
    assert faults_of("--x a --extra {}", **extra(TEXT)) == ["--extra overlaps a value given before; give the whole or its parts"]
    assert faults_of("--extra {} --x a", **extra(TEXT)) == [
        "--x overlaps a value given before; give the whole or its parts"]
    assert faults_of("--=1", **extra(TEXT)) == ["unknown option --; pay --help lists all of them"]


# Help


def test_help_hides_every_fault_but_those_of_application_options():
    for line in ("--help", "-h", "-h -h --help", "--help=true", "--help --bad x y z w q", "--amount x -h",
                 "--note --help", "--json=maybe --help", "--help=false --help", "--help --help=false", "--help="):
        parsed = read(line)
        assert (parsed.help, parsed.faults, parsed.global_faults) == ("", [], []), line
    parsed = read("--amount x --retries y --help --root")
    assert parsed.faults == parsed.global_faults == ['--retries expects a whole number, got "y"', "--root requires a value, as in --root=VALUE"]
    assert read("--cfg.size x --help").faults == ['--cfg.size expects a whole number, got "x"']
    assert read("--help=text").help == "text"
    assert read("--help bob").help == ""
    for line in ("--help=false", "--help false", "-h=no", "--no-help", "-- --help", "--note=--help"):
        assert read(line).help is None, line
    assert read("--help:=x").faults == ["--help does not take :=; write = in its place"]


def test_application_faults_are_told_apart():
    parsed = read("--amount x --retries y")
    assert parsed.global_faults == ['--retries expects a whole number, got "y"']
    assert parsed.faults == ['--amount expects a whole number, got "x"', '--retries expects a whole number, got "y"']


# Routing

ROUTES = [
    # line, default, command, tokens, help, version
    ("", None, None, "", None, False),
    ("", "logs", "logs", "", None, False),
    ("list", None, "list", "", None, False),
    ("list a --b", None, "list", "a --b", None, False),
    ("--json list a", None, "list", "--json=true a", None, False),
    ("--json list true", None, "list", "--json=true true", None, False),
    ("--json false list true", None, "list", "--json false true", None, False),
    ("--verbose list false", None, "list", "--verbose=true false", None, False),
    ("--no-json list true", None, "list", "--no-json true", None, False),
    ("--cfg.on list true", None, "list", "--cfg.on=true true", None, False),
    ("--root /srv list --root x", None, "list", "--root /srv --root x", None, False),
    ("--root=/srv --retries 3 list", None, "list", "--root=/srv --retries 3", None, False),
    ("--root list show", None, "show", "--root list", None, False),
    ("--root:=null list", None, "list", "--root:=null", None, False),
    ("--retries x list", None, "list", "--retries x", None, False),
    ("--json", None, None, "--json=true", None, False),
    ("--json", "logs", "logs", "--json=true", None, False),
    ("-f --json x", "logs", "logs", "-f --json x", None, False),
    ("--json -f x", "logs", "logs", "--json=true -f x", None, False),
    ("logs --json", "logs", "logs", "--json", None, False),
    ("nosuch", "logs", "nosuch", "", None, False),
    ("-", "logs", "-", "", None, False),
    ("-5", "logs", "-5", "", None, False),
    ("--help", "logs", None, "--help", "", False),
    ("-h", None, None, "-h", "", False),
    ("-h -h", None, None, "-h -h", "", False),
    ("--help broadcast", None, None, "--help broadcast", "broadcast", False),
    ("-h broadcast list", "logs", None, "-h broadcast list", "broadcast", False),
    ("--help=broadcast", "logs", None, "--help=broadcast", "broadcast", False),
    ("--help=broadcast list", None, None, "--help=broadcast list", "broadcast", False),
    ("help", "logs", None, "help", "", False),
    ("help broadcast", None, None, "help broadcast", "broadcast", False),
    ("--json help broadcast", None, None, "--json=true help broadcast", "broadcast", False),
    ("help --json", None, None, "help --json", "", False),
    ("--help --json", None, None, "--help --json=true", "", False),
    ("--help=true list", None, "list", "--help=true", None, False),
    ("--help --json list", None, "list", "--help --json=true", None, False),
    ("--help=false", "logs", "logs", "--help=false", None, False),
    ("--help false list", None, "list", "--help false", None, False),
    ("--help true", None, None, "--help true", "", False),
    ("--wait-timeout --help", None, None, "--wait-timeout --help", "", False),
    ("--json=banana --help", "logs", None, "--json=banana --help", "", False),
    ("-f --help", "logs", "logs", "-f --help", None, False),
    ("--version", "logs", None, "", "", True),
    ("--version", None, None, "", "", True),
    ("--json --version", None, None, "--json=true", "", True),
    ("--version=false list", None, "list", "", None, False),
    ("--no-version list", None, "list", "", None, False),
    ("--version false --json list true", None, "list", "--json=true true", None, False),
    ("--version list true", None, None, "list true", "", True),
    ("list --version", None, "list", "--version", None, False),
    ("--version=banana list", None, "list", "--version=banana", None, False),
    ("--version:=1 list", None, "list", "--version:=1", None, False),
    ("--no-json=1 list --help", None, "list", "--no-json=1 --help", None, False),
]


@pytest.mark.parametrize("line, default, command, tokens, help_, version", ROUTES)
def test_a_line_is_routed(line, default, command, tokens, help_, version):
    route = nk._argv_route(shlex.split(line), APP, default, root_of(APP))
    assert (route.command, route.tokens, route.help, route.version, route.faults) == (
        command, shlex.split(tokens), help_, version, [])


ROUTE_FAULTS = [
    ("-- list", None, ["-- stands before any command; name the command first"]),
    ("-- list", "logs", ["-- stands before any command; name the command first"]),
    ("--json -- list", "logs", ["-- stands before any command; name the command first"]),
    ("--jsn list", None, ["unknown option --jsn; did you mean --json?"]),
    ("--xyzzy=s3cret list", None, ["unknown option --xyzzy; a command's options stand after its name"]),
    ("-f list", None, ["unknown option -f; the short options are -h"]),
    ("--retries x", None, ['--retries expects a whole number, got "x"']),
    ("--retries x --help", None, ['--retries expects a whole number, got "x"']),
    ("--root --help", None, ["--root requires a value, as in --root=VALUE"]),
    ("--top x --retries y help", None, ['--retries expects a whole number, got "y"']),
    ("--json=maybe", None, ['--json expects true or false, got "maybe"']),
    ("--top x -f", None, ['--top expects a positive whole number, got "x"', "unknown option -f; the short options are -h"]),
]


@pytest.mark.parametrize("line, default, expected", ROUTE_FAULTS)
def test_a_line_without_a_command_is_refused(line, default, expected):
    route = nk._argv_route(shlex.split(line), APP, default, root_of(APP))
    assert (route.command, route.faults) == (None, expected)


def test_a_route_carries_the_options_before_the_command():
    assert nk._argv_route(["--json", "--top", "3", "list", "--quiet"], APP, None).options.json is True
    assert nk._argv_route(["--json", "nosuch"], APP, "logs").options.json is True


def test_lifting_takes_options_of_the_application_alone():
    line = read("--x 1 --root /srv y --json --note -f --retries 2 -q --no-z --a.b=1 -- --root other", None)
    assert (line.args, line.globals, line.options.json, line.faults) == (
        {}, {"root": "/srv", "retries": 2}, True, [])
    assert read("--retries x --bad", None).global_faults == ['--retries expects a whole number, got "x"']


# Secrets


def test_the_value_of_a_secret_is_never_repeated():
    for line in ("bob --pin hunter2", "bob -p hunter2", "bob --pin=hunter2", "bob -phunter2", "bob --pin:=hunter2",
                 "bob --pn=hunter2", "bob --pn hunter2", "bob hunter2", "bob --pin:hunter2=", "bob --pin. hunter2",
                 "bob --pin.x=hunter2", "bob -x=hunter2", "bob -xhunter2", "bob --no-pin=hunter2", "bob --pin --x=hunter2"):
        parsed = read(line, LOGIN)
        assert parsed.faults, line
        assert "hunter2" not in "".join(parsed.faults) or line == "bob --pin:hunter2=", line
    assert faults_of("bob --pin hunter2", LOGIN) == ["--pin expects a whole number"]
    assert faults_of("bob -p hunter2", LOGIN) == ["-p (--pin) expects a whole number"]
    assert faults_of("bob --pin:=hunter2", LOGIN) == ["--pin:= expects JSON (an unexpected character)"]
    assert faults_of("bob hunter2", LOGIN) == ["unexpected argument; pay takes <user>"]


def test_a_secret_inside_an_object_hides_the_whole_of_it():
    fields = nk.Command(open_door).fields
    root = nk.Command(open_door).input.schema
    for tokens, expected in [
        (["--door", '{"pin": "hunter2'], ["--door expects a JSON object"]),
        (["--door:=hunter2"], ["--door:= expects JSON (an unexpected character)"]),
        (["--door.pin", "hunter2"], ["--door.pin expects a whole number"]),
        (["stray"], ['unexpected argument; pay takes <door> <pair>']),
    ]:
        fill = ["{}", "[1, 2]"] if tokens == ["stray"] else []
        assert faults_of(fill + tokens, fields, root=root) == expected


def open_door(door: "Door", pair: "typing.Tuple[int, str]" = (1, "")):
    """Open a door."""


# Text that is not UTF-8


def test_typ_r3_bytes_that_are_not_utf8():
    fields = [make_field("name", TEXT), make_field("file", TEXT, path=True), make_field("n", WHOLE),
              make_field("names", TEXTS, option_only=True), make_field("meta", RECORD, option_only=True)]
    odd = "caf\udce9"
    assert args_of(["--file", odd], fields) == {"file": odd}
    assert args_of(["--file=" + odd], fields) == {"file": odd}
    assert faults_of([odd], fields) == ['<name> expects UTF-8 text, got "caf\\udce9"']
    assert faults_of(["--name=" + odd], fields) == ['--name expects UTF-8 text, got "caf\\udce9"']
    assert faults_of(["--names", "a", "--names", odd], fields) == ['--names expects UTF-8 text, got "caf\\udce9"']
    assert faults_of(["--n", odd], fields) == ['--n expects UTF-8 text, got "caf\\udce9"']
    assert faults_of(["--meta.k", odd], fields) == ['--meta.k expects UTF-8 text, got "caf\\udce9"']
    assert faults_of(["--meta." + odd, "v"], fields) == [
        "--meta.caf\\udce9 names no part; keys are UTF-8 text with one dot before each, fewer than 128"]
    assert faults_of(["--sort", odd], fields) == ['--sort expects UTF-8 text, got "caf\\udce9"']
    assert faults_of(["--table", odd], fields) == [
        '--table expects names of fields with commas between them, got "caf\\udce9"']
    assert read(["--output-dir", odd], fields).options.output_dir == odd
    assert faults_of(["--" + odd], fields) == ["unknown option --caf\\udce9; pay --help lists all of them"]
    assert faults_of(["--meta:=\"" + odd + '"'], fields)[0].startswith('--meta:= expects JSON, got "\\"caf\\udce9\\""')


def test_a_path_inside_an_object_may_hold_any_bytes():
    command = nk.Command(open_door)
    assert args_of(["--door.file", "caf\udce9"], command.fields, root=command.input.schema) == {
        "door": {"file": "caf\udce9"}}


# Arrays whose elements differ


def test_elements_are_read_by_their_own_schema():
    command = nk.Command(open_door)
    options = {"root": command.input.schema}
    assert args_of("--pair 1 --pair 2", command.fields, **options) == {"pair": [1, "2"]}
    assert faults_of("--pair x --pair 2", command.fields, **options) == ['--pair expects a whole number, got "x"']
    assert args_of("--pair 7", command.fields, **options) == {"pair": [7]}
    policy = dict(options, positionals=["pair"])
    assert args_of("1 2", command.fields, **policy) == {"pair": [1, "2"]}


# Environment and piped text


def test_the_environment_fills_what_is_not_given():
    fields = [make_field("to", TEXT, env="PAY_TO"), make_field("amount", WHOLE, env="PAY_AMOUNT"),
              make_field("active", FLAG, env="PAY_ACTIVE"), make_field("tags", TEXTS, env="PAY_TAGS"),
              make_field("pin", WHOLE, env="PAY_PIN", secret=True), make_field("max_size", WHOLE, dashed=True, env="MAX"),
              make_field("note", TEXT)]
    root = root_of(fields)

    def fill(environ, **given):
        values = dict(given)
        return nk._argv_fill_env(values, fields, root, environ), values

    assert fill({"PAY_TO": "bob", "PAY_AMOUNT": "-3", "PAY_ACTIVE": "Yes", "PAY_TAGS": "a", "note": "x"}) == (
        [], {"to": "bob", "amount": -3, "active": True, "tags": ["a"]})
    assert fill({"PAY_TAGS": '["a","b"]'}) == ([], {"tags": ["a", "b"]})
    assert fill({"PAY_TO": "", "PAY_AMOUNT": ""}) == ([], {})
    assert fill({"PAY_TO": "env"}, to="given") == ([], {"to": "given"})
    assert fill({"PAY_AMOUNT": "abc", "PAY_PIN": "hunter2", "MAX": "x"})[0] == [
        'the environment variable PAY_AMOUNT (for --amount) expects a whole number, got "abc"',
        "the environment variable PAY_PIN (for --pin) expects a whole number",
        'the environment variable MAX (for --max-size) expects a whole number, got "x"']
    assert fill({"PAY_TO": "\udcff"})[0] == [
        'the environment variable PAY_TO (for --to) expects UTF-8 text, got "\\udcff"']
    assert fill({"PAY_TAGS": "[x"})[0] == [
        'the environment variable PAY_TAGS (for --tags) expects a JSON array, got "[x"']


def test_piped_text_is_read_like_a_typed_value():
    def fill(schema, text, **attributes):
        field, values = make_field("x", schema, **attributes), {}
        return nk._argv_fill_text(values, field, text, root_of([field])), values

    assert fill(TEXT, "  a fox\n") == ([], {"x": "a fox"})
    assert fill(TEXT, "--json") == ([], {"x": "--json"})
    assert fill(TEXT, "-x") == ([], {"x": "-x"})
    assert fill(WHOLE, "42\n") == ([], {"x": 42})
    assert fill(RECORD, '{"a": 1}\n') == ([], {"x": {"a": 1}})
    assert fill(TEXTS, '["a"]') == ([], {"x": ["a"]})
    assert fill(TEXTS, "a") == ([], {"x": ["a"]})
    assert fill(TEXT, " \n") == ([], {})
    assert fill(WHOLE, "abc") == (['standard input (for <x>) expects a whole number, got "abc"'], {})
    assert fill(WHOLE, "abc", secret=True) == (["standard input (for <x>) expects a whole number"], {})
    assert fill(RECORD, "[1]") == (['standard input (for <x>) expects a JSON object, got "[1]"'], {})
    assert nk._argv_fill_text({}, make_field("pin", WHOLE, secret=True), "x", True, "the answer") == [
        "the answer (for <pin>) expects a whole number"]


def test_the_first_required_unset_field_is_the_one_that_text_fills():
    fields = [make_field("note", TEXT), make_field("on", FLAG, required=True), make_field("a", TEXT, required=True),
              make_field("b", TEXT, required=True, secret=True)]
    assert nk._argv_missing(fields, {}, True).name == "a"
    assert nk._argv_missing(fields, {"a": None}, True).name == "b"
    assert nk._argv_missing(fields, {"a": 1, "b": 2}, True) is None


# What an application says about a command's line

POLICIES = [
    ({"aliases": {"fo": "to"}}, 'pay: the alias "fo" of "to" must be one ASCII letter other than h, which asks for help'),
    ({"aliases": {"é": "to"}}, 'pay: the alias "é" of "to" must be one ASCII letter other than h, which asks for help'),
    ({"aliases": {"1": "to"}}, 'pay: the alias "1" of "to" must be one ASCII letter other than h, which asks for help'),
    ({"aliases": {"": "to"}}, 'pay: the alias "" of "to" must be one ASCII letter other than h, which asks for help'),
    ({"aliases": {"h": "to"}}, 'pay: the alias "h" of "to" must be one ASCII letter other than h, which asks for help'),
    ({"aliases": {"x": "nope"}}, 'pay: the alias "x" of "nope" stands for none of its fields'),
    ({"aliases": {"a": "to"}}, 'pay: the alias "a" of "active" stands for "to" too'),
    ({"app_fields": [make_field("all", FLAG, alias="a")]}, 'pay: the alias "a" of "all" stands for "active" too'),
    ({"passthrough": "to"}, 'pay: passthrough names "to", which is no field that holds an object'),
    ({"passthrough": "no"}, 'pay: passthrough names "no", which is no field that holds an object'),
    ({"positionals": ["nope"]}, 'pay: positionals names "nope", which is none of its fields'),
    ({"positionals": ["to", "to"]}, 'pay: positionals names "to", twice'),
    ({"positionals": ["active"]}, 'pay: positionals names "active", a boolean, which is an option only'),
    ({"positionals": ["note", "to"]}, 'pay: positionals names "to", which is required, after "note", which is not'),
]


@pytest.mark.parametrize("policy, expected", POLICIES)
def test_a_faulty_policy_is_refused(policy, expected):
    with pytest.raises(nk.RegistrationError) as refusal:
        nk._argv_check_policy("pay", PAY, root=root_of(PAY), **policy)
    assert refusal.value.message == expected


def test_a_rest_field_stands_last():
    with pytest.raises(nk.RegistrationError) as refusal:
        nk._argv_check_policy("run", RUN, root=root_of(RUN), positionals=["rest", "deep"])
    assert refusal.value.message == 'run: positionals names "rest", which takes the rest of the line, before the last place'


def test_a_good_policy_passes():
    nk._argv_check_policy("pay", PAY, root=root_of(PAY), aliases={"t": "to", "a": "active"}, positionals=["to", "tags"],
                          passthrough="meta", app_fields=[make_field("all", FLAG, alias="A")])
    nk._argv_check_policy("run", RUN, root=root_of(RUN))


# Field cases


def test_arg_01_values_that_begin_with_a_minus():
    assert same(args_of("bob --amount -34"), {"to": "bob", "amount": -34})
    assert same(args_of("bob --rate -1e-3"), {"to": "bob", "rate": -0.001})
    assert same(args_of("bob --amount=-34"), {"to": "bob", "amount": -34})
    show = [make_field("id", TEXT, required=True)]
    assert args_of("-- -4", show) == {"id": "-4"}
    assert args_of("-4", show) == {"id": "-4"}


def test_arg_02_no_prefixes():
    wipe = [make_field("path", TEXT, required=True, path=True)]
    assert faults_of("/data --dry", wipe) == ["unknown option --dry; did you mean --dry-run?"]
    assert faults_of("bob --amoun 5") == ["unknown option --amoun; did you mean --amount?"]
    assert faults_of("bob --amount_x 5") == ["unknown option --amount_x; did you mean --amount or --count-by?"]


def test_arg_r1_a_double_dash_as_a_value():
    assert args_of("bob --note=--") == {"to": "bob", "note": "--"}
    assert faults_of("bob --note --") != []


def test_arg_r2_the_shell_ate_the_quotes():
    assert faults_of(["bob", "--tags:=[a.b]"]) == ['--tags:= expects JSON, got "[a.b]" (an unexpected character)']


def test_arg_r3_keys_with_a_dot_or_a_backslash():
    key = {"site.example": 1, "a\\b": 2, "c=d": 3}
    assert args_of(["--meta", json.dumps(key)]) == {"meta": key}
    assert args_of(["--meta:=" + json.dumps(key)]) == {"meta": key}
    fields = [make_field("site.example", TEXT), make_field("a\\b", TEXT)]
    assert args_of(["--site.example", "x", "--a\\b=y"], fields) == {"site.example": "x", "a\\b": "y"}


def test_typ_01_text_is_never_evaluated():
    show = [make_field("id", TEXT, required=True)]
    for text in ("297e7814231", "1.10", "007", "2017-10-10", "1+1", "None", "true", "[1]", "0x10", "null", "{}"):
        assert args_of([text], show) == {"id": text}
        assert args_of(["--id", text], show) == {"id": text}


def test_typ_02_false_is_false():
    for line in ("--dry-run=false", "--dry-run=0", "--no-dry-run", "--dry-run false"):
        assert read(line).options.dry_run is False
        assert read(line).faults == []
    assert faults_of("--dry-run=nope") == ['--dry-run expects true or false, got "nope"']
    assert faults_of("--dry-run=") == ['--dry-run expects true or false, got ""']


def test_typ_03_scalar_given_twice():
    assert faults_of("bob --amount 1 --amount 2") == ["--amount is given more than once"]
    assert args_of("bob --tags a --tags b") == {"to": "bob", "tags": ["a", "b"]}


def test_typ_r1_empty_values_count_as_given():
    fields = [make_field("tags", TEXTS, required=True), make_field("meta", RECORD, required=True)]
    line = read("--tags:=[] --meta:={}", fields)
    assert line.args == {"tags": [], "meta": {}}
    assert nk._argv_missing(fields, line.args, root_of(fields)) is None


def test_sch_05_long_digits_and_deep_nesting():
    digits = "9" * 4400
    for token in ("--amount=" + digits, "--amount:=" + digits, "--rate:=" + digits, "--meta:=" + "[" * 100000):
        (fault,) = faults_of([token])
        assert len(fault) < 250


def test_values_are_no_deeper_than_the_arguments_may_be():
    def deep(levels):
        return "[" * levels + "]" * levels

    lists = {"type": "array", "items": {"type": "array"}}
    fields = [make_field("any", {"anyOf": [RECORD, {"type": "array"}]}), make_field("lists", lists),
              make_field("more", RECORD)]
    options = {"passthrough": "more", "positionals": []}
    top = nk.JSON_DEPTH_LEVELS
    for good, bad in [
        (["--any", deep(top - 2)], ["--any", deep(top - 1)]),
        (["--any:=" + deep(top - 2)], ["--any:=" + deep(top - 1)]),
        (["--any.a.b:=" + deep(top - 4)], ["--any.a.b:=" + deep(top - 3)]),
        (["--lists", deep(top - 2), "--lists", "[]"], ["--lists", deep(top - 1), "--lists", "[]"]),
        (["--lists", deep(top - 2)], ["--lists", deep(top - 1)]),
        (["--x:=" + deep(top - 3), "--x"], ["--x:=" + deep(top - 2), "--x"]),
    ]:
        nk._json_dumps(args_of(good, fields, **options))
        assert len(faults_of(bad, fields, **options)) == 1
    assert faults_of(["--any", deep(top)], fields)[0].startswith('--any expects no more than 126 levels, got "[[[')
    path = "--any" + ".a" * (top - 1)
    nk._json_dumps(args_of([path, "x"], fields))
    (fault,) = faults_of([path + ".a", "x"], fields)
    assert fault.endswith("with one dot before each, fewer than 128")


# Long lines


def test_a_flood_of_faults_is_cut():
    faults = faults_of(["--bad%d" % number for number in range(1000)])
    assert len(faults) == nk.ARGV_FAULTS + 1
    assert faults[0] == "unknown option --bad0; pay --help lists all of them"
    assert faults[-1] == "and 980 more faults of this line"


@pytest.mark.parametrize("token", [
    "--zz%d=1", "--meta.k%d=1", "--tags=%d", "w%d", "--to=%d", "--meta.a.b.c.d%d:=1", "-x%d", "--no-active", "-h",
    "--version=false", "--meta.same", "--meta=%d",
])
def test_reading_is_linear_in_the_tokens(token):
    def calls(count):
        tokens = [token % number if "%" in token else token for number in range(count)]
        seen = [0]

        def count_call(frame, event, argument):
            seen[0] += 1

        for work in (lambda: nk._argv_parse(tokens, grammar), lambda: nk._argv_route(tokens, APP, None, root_of(APP))):
            sys.setprofile(count_call)
            try:
                work()
            finally:
                sys.setprofile(None)
        return seen[0]

    grammar = grammar_of()
    calls(40)
    assert calls(800) < 2.2 * calls(400)


def test_huge_tokens_are_read():
    for text in ("x" * 10**6, "=" * 10**5, "." * 10**5, "--" + "." * 10**5, "--meta" + ".a" * 10**5, "--" + "=" * 10**5,
                 "--to=" + "x" * 10**6, "-" + "a" * 10**5, "--meta." + "x" * 10**5 + "=1", "--no-" + "x" * 10**5):
        assert all(len(fault) < 250 for fault in faults_of([text, "y", "1"])), text[:20]


# Emit and read back


def emit(rng, fields):
    """Return (tokens, values): random values of these fields in random spellings that must read back to them."""
    groups, values, words = [], {}, []
    open_ended = True
    for field in fields:
        if rng.random() < 0.3:
            open_ended = open_ended and field.option_only
            continue
        kind = field.schema["type"]
        value = values[field.name] = random_value(rng, field.schema)
        positional = open_ended and not field.option_only and kind != "boolean"
        if positional and rng.random() < 0.5:
            words.append(value if kind == "string" else json.dumps(value))
            continue
        open_ended = open_ended and (field.option_only or kind == "boolean" or not words or True)
        groups.append(spell(rng, field, value))
    rng.shuffle(groups)
    tokens = [token for group in groups for token in group]
    return tokens + (["--"] + words if words else []), values


def random_text(rng):
    alphabet = ["a", "-", "--", "=", ".", " ", "[", "]", "{", "true", "null", "7", "é", "\U0001f600", "\n", "\\", ":", '"']
    return "".join(rng.choice(alphabet) for _ in range(rng.randrange(5)))


def random_value(rng, schema):
    kind = schema.get("type")
    if kind == "boolean":
        return rng.random() < 0.5
    if kind == "integer":
        return rng.choice([0, -1, 7, 10**30, -(2**63)])
    if kind == "number":
        return rng.choice([0.5, -1e-7, 3, 1e300])
    if kind == "array":
        return [random_value(rng, schema["items"]) for _ in range(rng.randrange(4))]
    if kind == "object":
        return {random_text(rng): rng.choice([random_text(rng), 1, None, True, [1], {}]) for _ in range(rng.randrange(3))}
    return random_text(rng)


def is_loose(text):
    """Whether a token may stand after a name as its value."""
    return not (text.startswith("--") or (text[:1] == "-" and text[1:2].isascii() and text[1:2].isalpha()
                                          and text[2:3] in ("", "=")))


def spell(rng, field, value):
    kind, name = field.schema["type"], "--" + field.name
    name = rng.choice([name, "--." + field.name, "--" + field.name.replace("_", "-")])
    if rng.random() < 0.25:
        return [name + ":=" + json.dumps(value)]
    if kind == "boolean":
        bare = "--" + field.name
        return rng.choice([[name, "true"], [name + "=yes"], ["-" + field.alias + "=1"]] if value else
                          [[name, "false"], [name + "=OFF"], ["--no-" + bare[2:]], ["-" + field.alias, "false"]])
    if kind == "array" and value and not (len(value) == 1 and str(value[0])[:1] == "["):
        texts = [one if isinstance(one, str) else json.dumps(one) for one in value]
        pairs = [rng.choice([[name, text], [name + "=" + text]]) if is_loose(text) else [name + "=" + text] for text in texts]
        return [token for pair in pairs for token in pair]
    if kind == "object" and value:
        keys = [key for key in value if key and not set(key) & set(".=") and key[-1] != ":"]
        if len(keys) == len(value):
            return ["%s.%s=%s" % (name, key, one) if isinstance(one, str) else "%s.%s:=%s" % (name, key, json.dumps(one))
                    for key, one in value.items()]
    text = value if isinstance(value, str) else json.dumps(value)
    return rng.choice([[name, text], [name + "=" + text]]) if is_loose(text) else [name + "=" + text]


def test_what_is_emitted_is_read_back(rng):
    fields = [make_field("to", TEXT, required=True), make_field("big_number", WHOLE, alias="n"), make_field("rate", NUMBER),
              make_field("on_off", FLAG, alias="o"), make_field("tags", TEXTS, option_only=True),
              make_field("ids", WHOLES, option_only=True), make_field("meta", RECORD, option_only=True)]
    grammar = grammar_of(fields)
    for _ in range(4000):
        tokens, values = emit(rng, fields)
        line = nk._argv_parse(tokens, grammar)
        assert (line.faults, same(line.args, values)) == ([], True), (tokens, line.args, values)


# Random lines

PIECES = [
    "-", "--", "=", ".", ":", ":=", "[", "{", "}", '"', "a", "b", "no-", "h", "help", "true", "false", "null", "1", "-1",
    "1e5", "nan", "json", "top", "version", "table", "root", "cfg", "x", "_", " ", "\n", "\x00", "\udcff", "é", "\u202e", "\x1b",
]
SCHEMAS = [
    TEXT, WHOLE, NUMBER, FLAG, TEXTS, WHOLES, RECORD, SHAPED, {}, True, False, {"type": ["integer", "null"]},
    {"anyOf": [WHOLE, FLAG]}, {"enum": [1, "1", True]}, {"enum": [1, 2]}, {"const": None}, {"type": "null"},
    {"$ref": "#/$defs/self"}, {"anyOf": [TEXTS, {"type": "null"}]}, {"type": "array", "items": FLAG}, {"type": "array"},
    {"type": "string", "format": "date"}, {"type": "array", "items": {"type": "array", "items": WHOLE}},
]
NAMES = ["a", "b", "a_b", "a-b", "a.b", "a=b", "x:", "", ".", "-", "no-a", "h", "help", "json", "top", "version", "\n", "é"]


def test_random_lines_end_in_values_or_faults(rng):
    for _ in range(250):
        fields = [
            make_field(name, rng.choice(SCHEMAS), required=rng.random() < 0.5, secret=rng.random() < 0.2,
                       path=rng.random() < 0.2, option_only=rng.random() < 0.2)
            for name in rng.sample(NAMES, rng.randrange(8))
        ]
        if rng.random() < 0.4:
            fields.append(make_field("rest", TEXTS, **{rng.choice(["rest", "variadic"]): True}))
        root = dict(root_of(fields), **{"$defs": {"self": {"type": "object", "properties": {"a": {"$ref": "#/$defs/self"}}}}})
        names = [field.name for field in fields]
        grammar = grammar_of(
            fields, root=root, aliases={letter: rng.choice(names) for letter in "ab" if names},
            positionals=rng.sample(names, rng.randrange(len(names) + 1)) if rng.random() < 0.3 else None,
            passthrough="more" if rng.random() < 0.3 else None,
        )
        for _ in range(20):
            tokens = [
                rng.choice(["", "-", "--", "--"]) + rng.choice(NAMES + [""]) +
                "".join(rng.choice(PIECES) for _ in range(rng.randrange(4)))
                for _ in range(rng.randrange(8))
            ]
            check_random_line(tokens, grammar, fields)


def check_random_line(tokens, grammar, fields):
    line = nk._argv_parse(tokens, grammar)
    assert set(line.args) <= {field.name for field in fields} | {"more"}
    assert len(line.faults) <= nk.ARGV_FAULTS + 1
    for fault in line.faults:
        assert fault.isprintable() and len(fault) < 400, fault
    if not line.faults and line.help is None:
        nk._json_dumps({key: value for key, value in line.args.items() if key not in odd_paths(fields)})
    again = nk._argv_parse(tokens, grammar)
    assert (again.args, again.globals, again.faults) == (line.args, line.globals, line.faults)
    route = nk._argv_route(tokens, APP, None, root_of(APP))
    assert all(fault.isprintable() for fault in route.faults)
    assert nk._argv_parse(tokens, grammar_lift()).args == {}


def odd_paths(fields):
    return {field.name for field in fields if field.path}


def grammar_lift(made=[]):
    if not made:
        made.append(grammar_of(None))
    return made[0]


# Regressions
