"""SHAPES: every annotation to its schema and its two ways, functions, options, raw schemas; what is refused, and how."""
import os
import subprocess
import sys
import types

import pytest

import knaif as nk

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SEED = 27
FUTURE = "from __future__ import annotations\n"
NEW = sys.version_info >= (3, 10)
COMMON = """
import collections, collections.abc, datetime, decimal, enum, pathlib, uuid
from collections.abc import Sequence as AbcSequence, Mapping as AbcMapping, Iterable as AbcIterable, Set as AbcSet
from dataclasses import InitVar, dataclass, field
from datetime import date, datetime as DateTime, time, timedelta
from typing import *
import knaif as nk
Arg, Opt = nk.Arg, nk.Opt
class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"
    CRIMSON = "red"
class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2
class Word(str, enum.Enum):
    A = "a"
@dataclass
class Task:
    title: str
    due: Optional[date] = None
    tags: List[str] = field(default_factory=list)
@dataclass
class Tree:
    name: str
    below: List["Tree"] = field(default_factory=list)
@dataclass(frozen=True)
class Point:
    x: int
    y: int = 0
class Pair(NamedTuple):
    left: int
    right: str = "r"
class Movie(TypedDict):
    title: str
    year: int
class Loose(TypedDict, total=False):
    title: str
Name = NewType("Name", str)
"""


def same(one, other):
    """Tell whether two values are the same JSON value: 1 is 1.0 and not true."""
    return nk._json_key(one) == nk._json_key(other)


def load(source, name="shapes_case", future=True):
    """Return a module made of source, so that text in annotations has globals to stand in."""
    module = types.ModuleType(name)
    sys.modules[name] = module
    exec(compile((FUTURE if future else "") + source, name, "exec"), module.__dict__)
    return module


@pytest.fixture(scope="module", autouse=True)
def clean_modules():
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith("shapes_"):
            del sys.modules[name]


def signature_of(function, **options):
    """Return what _shapes_signature returns, by names."""
    names = ("input", "fields", "output", "returns_none", "context", "var_keyword", "bind")
    return types.SimpleNamespace(**dict(zip(names, nk._shapes_signature(function, **options))))


def shape_of(annotation, source="", future=True, output=False):
    """Return the shape of the one parameter x (or of the result) that is annotated so."""
    text = "%s\n%s\ndef f(%s%s): ...\n" % (COMMON, source, ") -> (" if output else "x: ", annotation)
    signature = signature_of(load(text, future=future).f, owner="f")
    return signature.output if output else signature.fields[0].shape


def refusal(text, future=True, function="f", **options):
    """Return the sentence with which a function of this source is refused."""
    module = load(COMMON + text, future=future)
    with pytest.raises(nk.RegistrationError) as caught:
        signature_of(getattr(module, function), owner="m.f", **options)
    assert caught.value.code == "REGISTRATION_ERROR"
    return caught.value.message


def refused(annotation, source="", future=True):
    """Return what is wrong with def f(x: annotation), without the beginning that all such sentences share."""
    message = refusal("%s\ndef f(x: %s): ...\n" % (source, annotation), future)
    begin = 'm.f: the parameter "x" '
    assert message.startswith(begin)
    return message[len(begin):]


# -- every annotation, both ways ----------------------------------------------------------------------------------

CLOSED = {"additionalProperties": False}
TASK = {
    "type": "object",
    "properties": {
        "title": {"type": "string"},
        "due": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}], "default": None},
        "tags": {"type": "array", "items": {"type": "string"}, "default": []},
    },
    "required": ["title"], "additionalProperties": False,
}
POINT = {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "integer", "default": 0}}, "required": ["x"],
         "additionalProperties": False}
STRING, INTEGER = {"type": "string"}, {"type": "integer"}
MOVIE = {"type": "object", "properties": {"title": STRING, "year": INTEGER}, "required": ["title", "year"], **CLOSED}

#: annotation, schema, pairs (JSON, Python expression): JSON -> Python -> the same JSON
BOTH = [
    ("str", STRING, [("a", "'a'"), ("", "''"), ("2024-01-01", "'2024-01-01'")]),
    ("int", INTEGER, [(3, "3"), (-(10**400), "-10**400")]),
    ("float", {"type": "number"}, [(1.5, "1.5"), (0.0, "0.0")]),
    ("bool", {"type": "boolean"}, [(True, "True"), (False, "False")]),
    ("None", {"type": "null"}, [(None, "None")]),
    ("Any", {}, [(None, "None"), ([1, {"a": "b"}], "[1, {'a': 'b'}]")]),
    ("object", {}, [("x", "'x'")]),
    ("bytes", {"type": "string", "contentEncoding": "base64"}, [("AAH/", "b'\\x00\\x01\\xff'"), ("", "b''"), ("YQ==", "b'a'")]),
    ("Name", STRING, [("n", "'n'")]),
    ("Literal['a', 'b']", {"type": "string", "enum": ["a", "b"]}, [("a", "'a'")]),
    ("Literal[1, 2]", {"type": "integer", "enum": [1, 2]}, [(2, "2")]),
    ("Literal[7, '007', True, None]", {"enum": [7, "007", True, None]}, [(7, "7"), ("007", "'007'"), (True, "True"), (None, "None")]),
    ("Literal[Color.RED]", {"type": "string", "enum": ["red"]}, [("red", "Color.RED")]),
    ("Color", {"type": "string", "enum": ["red", "blue"]}, [("red", "Color.RED"), ("blue", "Color.BLUE")]),
    ("Level", {"type": "integer", "enum": [1, 2]}, [(2, "Level.HIGH")]),
    ("Word", {"type": "string", "enum": ["a"]}, [("a", "Word.A")]),
    ("Optional[int]", {"anyOf": [INTEGER, {"type": "null"}]}, [(None, "None"), (3, "3")]),
    ("Optional[Color]", {"anyOf": [{"type": "string", "enum": ["red", "blue"]}, {"type": "null"}]}, [(None, "None"), ("red", "Color.RED")]),
    ("Union[int, str]", {"anyOf": [INTEGER, STRING]}, [(3, "3"), ("3", "'3'")]),
    ("Union[int, float]", {"anyOf": [INTEGER, {"type": "number"}]}, [(3, "3"), (3.5, "3.5")]),
    ("Union[NewType('N', Optional[int]), str]", {"anyOf": [INTEGER, {"type": "null"}, STRING]}, [(3, "3"), (None, "None"), ("x", "'x'")]),
    ("Union[NewType('N', Annotated[Optional[int], Arg('d')]), str]",
     {"anyOf": [{"anyOf": [INTEGER, {"type": "null"}], "description": "d"}, STRING]}, [(3, "3"), (None, "None"), ("x", "'x'")]),
    ("Union[Literal['a'], Literal['a', 'b']]", {"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "string", "enum": ["a", "b"]}]}, [("a", "'a'")]),
    ("Union[str, date]", {"anyOf": [STRING, {"type": "string", "format": "date"}]},
     [("2024-05-01", "date(2024, 5, 1)"), ("2024-02-30", "'2024-02-30'"), ("x", "'x'")]),
    ("Union[date, DateTime, time]",
     {"anyOf": [{"type": "string", "format": name} for name in ("date", "iso-date-time", "iso-time")]},
     [("2024-05-01", "date(2024, 5, 1)"), ("2024-05-01T10:00:00", "DateTime(2024, 5, 1, 10)"), ("10:00:00", "time(10)")]),
    ("Union[str, pathlib.Path]", {"anyOf": [STRING, STRING]}, [("a/b", "pathlib.Path('a/b')")]),
    ("Union[List[int], Dict[str, int], str]",
     {"anyOf": [{"type": "array", "items": INTEGER}, {"type": "object", "additionalProperties": INTEGER}, STRING]},
     [([1], "[1]"), ({"a": 1}, "{'a': 1}"), ("x", "'x'")]),
    ("Union[Task, Point, None]", {"anyOf": [TASK, POINT, {"type": "null"}]},
     [({"title": "t", "due": None, "tags": []}, "Task('t')"), ({"x": 1, "y": 0}, "Point(1)"), (None, "None")]),
    ("list", {"type": "array"}, [([1, "a"], "[1, 'a']")]),
    ("List", {"type": "array"}, [([1, "a"], "[1, 'a']")]),
    ("list[int]", {"type": "array", "items": INTEGER}, [([1, 2], "[1, 2]"), ([], "[]")]),
    ("List[List[date]]", {"type": "array", "items": {"type": "array", "items": {"type": "string", "format": "date"}}},
     [([["2024-01-01"], []], "[[date(2024, 1, 1)], []]")]),
    ("Sequence[int]", {"type": "array", "items": INTEGER}, [([1], "[1]")]),
    ("AbcSequence[str]", {"type": "array", "items": STRING}, [(["a"], "['a']")]),
    ("Iterable[str]", {"type": "array", "items": STRING}, [(["a"], "['a']")]),
    ("AbcIterable", {"type": "array"}, [(["a"], "['a']")]),
    ("set[str]", {"type": "array", "items": STRING, "uniqueItems": True}, [(["a", "b"], "{'a', 'b'}")]),
    ("FrozenSet[int]", {"type": "array", "items": INTEGER, "uniqueItems": True}, [([1, 2, 10], "frozenset({10, 1, 2})")]),
    ("AbstractSet[Color]", {"type": "array", "items": {"type": "string", "enum": ["red", "blue"]}, "uniqueItems": True},
     [(["blue", "red"], "{Color.RED, Color.BLUE}")]),
    ("set[Point]", {"type": "array", "items": POINT, "uniqueItems": True}, [([{"x": 1, "y": 2}], "{Point(1, 2)}")]),
    ("tuple[int, str]",
     {"type": "array", "prefixItems": [INTEGER, STRING], "items": False, "minItems": 2, "maxItems": 2}, [([1, "a"], "(1, 'a')")]),
    ("Tuple[int, ...]", {"type": "array", "items": INTEGER}, [([1, 2], "(1, 2)"), ([], "()")]),
    ("Tuple[()]", {"type": "array", "maxItems": 0}, [([], "()")]),
    ("tuple[()]", {"type": "array", "maxItems": 0}, [([], "()")]),
    ("tuple", {"type": "array"}, [([1, "a"], "(1, 'a')")]),
    ("Tuple", {"type": "array"}, [([1, "a"], "(1, 'a')")]),
    ("dict", {"type": "object"}, [({"a": [1]}, "{'a': [1]}")]),
    ("Dict", {"type": "object"}, [({"a": [1]}, "{'a': [1]}")]),
    ("dict[str, int]", {"type": "object", "additionalProperties": INTEGER}, [({"a": 1}, "{'a': 1}")]),
    ("AbcMapping[Name, date]", {"type": "object", "additionalProperties": {"type": "string", "format": "date"}},
     [({"a": "2024-01-01"}, "{'a': date(2024, 1, 1)}")]),
    ("Dict[Literal['a', 'b'], int]",
     {"type": "object", "propertyNames": {"type": "string", "enum": ["a", "b"]}, "additionalProperties": INTEGER}, [({"a": 1}, "{'a': 1}")]),
    ("Movie", MOVIE, [({"title": "t", "year": 1}, "{'title': 't', 'year': 1}")]),
    ("Loose", {"type": "object", "properties": {"title": STRING}, **CLOSED}, [({}, "{}"), ({"title": "t"}, "{'title': 't'}")]),
    ("Task", TASK, [({"title": "t", "due": "2024-01-02", "tags": ["x"]}, "Task('t', date(2024, 1, 2), ['x'])")]),
    ("Pair", {"type": "object", "properties": {"left": INTEGER, "right": {"type": "string", "default": "r"}}, "required": ["left"],
              **CLOSED}, [({"left": 1, "right": "z"}, "Pair(1, 'z')")]),
    ("date", {"type": "string", "format": "date"}, [("2024-02-29", "date(2024, 2, 29)")]),
    ("DateTime", {"type": "string", "format": "iso-date-time"},
     [("2024-02-29T10:00:00", "DateTime(2024, 2, 29, 10)"),
      ("2024-02-29T10:00:00.000005-01:30",
       "DateTime(2024, 2, 29, 10, 0, 0, 5, datetime.timezone(-timedelta(minutes=90)))")]),
    ("time", {"type": "string", "format": "iso-time"}, [("07:30:00", "time(7, 30)"), ("07:30:01+00:00", "time(7, 30, 1, 0, datetime.timezone.utc)")]),
    ("uuid.UUID", {"type": "string", "format": "uuid"},
     [("12345678-1234-5678-1234-567812345678", "uuid.UUID('12345678123456781234567812345678')")]),
    ("decimal.Decimal", {"type": ["string", "number"], "format": "decimal"},
     [("1.10", "decimal.Decimal('1.10')"), ("-1E+5", "decimal.Decimal('-1E+5')"), ("12345678901234567.89", "decimal.Decimal('12345678901234567.89')")]),
    ("pathlib.Path", STRING, [("a/b", "pathlib.Path('a/b')")]),
    ("pathlib.PurePosixPath", STRING, [("/a", "pathlib.PurePosixPath('/a')")]),
    ("Annotated[int, 'other', Arg(min=1)]", {"type": "integer", "minimum": 1}, [(1, "1")]),
    ("List[Annotated[str, Arg(min=1)]]", {"type": "array", "items": {"type": "string", "minLength": 1}}, [(["a"], "['a']")]),
]


@pytest.mark.parametrize("future", [True, False], ids=["text", "objects"])
@pytest.mark.parametrize("annotation, schema, pairs", BOTH, ids=[row[0] for row in BOTH])
def test_annotation_both_ways(annotation, schema, pairs, future):
    shape = shape_of(annotation, future=future)
    assert shape.schema == schema
    names = sys.modules["shapes_case"].__dict__
    for given, expression in pairs:
        wanted = eval(expression, names)
        assert shape.issues(given) == []
        value = given if shape.read is None else shape.to_python(given)
        assert value == wanted and type(value) is type(wanted), given
        assert same(shape.to_json(value), given)
        assert same(shape.to_json(wanted), given)


#: annotation, JSON as it comes, what Python gets
IN = [
    ("int", 3.0, "3"), ("float", 3, "3.0"), ("Optional[int]", 3.0, "3"), ("List[int]", [3.0], "[3]"), ("Literal[1, 2]", 1.0, "1"),
    ("Union[int, str]", 3.0, "3"), ("Union[int, float]", 3.0, "3.0"), ("Level", 2.0, "Level.HIGH"),
    ("decimal.Decimal", 1.1, "decimal.Decimal('1.1')"), ("decimal.Decimal", 3, "decimal.Decimal('3')"),
    ("decimal.Decimal", 1e-7, "decimal.Decimal('1E-7')"), ("Task", {"title": "t"}, "Task('t')"),
    ("Tree", {"name": "a", "below": [{"name": "b"}]}, "Tree('a', [Tree('b')])"), ("Pair", {"left": 2}, "Pair(2)"),
    ("DateTime", "2024-02-29t10:00z", "DateTime(2024, 2, 29, 10, tzinfo=datetime.timezone.utc)"),
    ("DateTime", "2024-02-29T10:00:00.123456789", "DateTime(2024, 2, 29, 10, 0, 0, 123456)"), ("time", "07:30", "time(7, 30)"),
    ("Union[Point, Task]", {"title": "x"}, "Task('x')"), ("Optional[Union[int, str]]", None, "None"),
    ("set[Union[int, bool]]", [1, True], "{1}"),
]


@pytest.mark.parametrize("annotation, given, expression", IN, ids=range(len(IN)))
def test_to_python(annotation, given, expression):
    shape = shape_of(annotation)
    assert shape.issues(given) == []
    wanted = eval(expression, sys.modules["shapes_case"].__dict__)
    value = shape.to_python(given)
    assert value == wanted and type(value) is type(wanted) and repr(value) == repr(wanted)


@pytest.mark.parametrize("annotation, given", [
    ("date", "2024-02-30"), ("uuid.UUID", "x"), ("List[date]", ["x"]), ("Optional[date]", "x"), ("Task", {"title": "t", "due": "x"}),
    ("Union[date, int]", "x"), ("int", True), ("int", 3.5), ("bool", 1), ("Literal[1]", True), ("Color", "green"), ("set[int]", [1, 1.0]),
    ("Tuple[int, str]", [1]), ("Tuple[int, str]", [1, "a", 2]), ("Tuple[()]", [1]), ("Movie", {"title": "t"}), ("Task", {"title": "t", "x": 1}),
    ("Dict[Literal['a'], int]", {"b": 1}), ("None", 0), ("float", "1"), ("str", None),
])
def test_the_schema_refuses(annotation, given):
    """Types, closed objects and, since it comes from an annotation, formats."""
    shape = shape_of(annotation)
    assert shape.issues(given) and not shape.takes(given)


def test_lists_and_dicts_are_new():
    """What a handler does to its arguments changes neither the admitted arguments nor the default."""
    text = COMMON + "def f(a: list, b: List[str] = ['x'], c: Any = {}, d: Dict[str, int] = {}, e: dict = None or {}): ...\n"
    signature = signature_of(load(text).f, owner="f")
    given = {"a": [[1]]}
    for _ in range(2):
        values = signature.input.to_python(signature.input.complete(given))
        assert values == {"a": [[1]], "b": ["x"], "c": {}, "d": {}, "e": {}}
        for name, value in values.items():
            value.append("y") if isinstance(value, list) else value.update(y=1)
    assert given == {"a": [[1]]}


NOT_PYTHON = [
    ("date", "0000-01-01", "/", "is not a date that exists", 'the string "0000-01-01"'),
    ("DateTime", "2024-01-01T23:59:60Z", "/", "is not a date and time that exists", 'the string "2024-01-01T23:59:60Z"'),
    ("DateTime", "2024-01-01T24:00:00Z", "/", "is not a date and time that exists", 'the string "2024-01-01T24:00:00Z"'),
    ("DateTime", "0000-01-01T00:00:00Z", "/", "is not a date and time that exists", 'the string "0000-01-01T00:00:00Z"'),
    ("time", "24:00", "/", "is not a time that exists", 'the string "24:00"'),
    ("time", "23:59:60", "/", "is not a time that exists", 'the string "23:59:60"'),
    ("Dict[str, List[date]]", {"a": ["2024-01-01", "0000-01-01"]}, "/a/1", "is not a date that exists", 'the string "0000-01-01"'),
    ("Tuple[int, date]", [1, "0000-01-01"], "/1", "is not a date that exists", 'the string "0000-01-01"'),
    ("Optional[date]", "0000-01-01", "/", "is not a date that exists", 'the string "0000-01-01"'),
    ("Union[date, time]", "0000-01-01", "/", "is not a date or a time", 'the string "0000-01-01"'),
    ("decimal.Decimal", 10**5000, "/", "is not a decimal number", "the number <integer>"),
    ("float", 10**400, "/", "is too large for a float", "the number <integer>"),
    ("bytes", "a", "/", "is not base64 text", 'the string "a"'),
    ("bytes", "YR==", "/", "is not base64 text", 'the string "YR=="'),
    ("bytes", "YQ==\n", "/", "is not base64 text", 'the string "YQ==\\n"'),
    ("bytes", "\u00e9", "/", "is not base64 text", 'the string "\u00e9"'),
    ("decimal.Decimal", "NaN", "/", "is not a decimal number", 'the string "NaN"'),
    ("decimal.Decimal", "1e10000", "/", "is not a decimal number", 'the string "1e10000"'),
    ("decimal.Decimal", "\u0661", "/", "is not a decimal number", 'the string "\u0661"'),
    ("set", [[1]], "/", "has items that cannot stand in a set", "the array [[1]]"),
    ("Annotated[decimal.Decimal, Arg(min=0, max=decimal.Decimal('9.5'))]", "-0.1", "/", "is not at least 0", 'the string "-0.1"'),
    ("Annotated[decimal.Decimal, Arg(max=decimal.Decimal('9.5'))]", "9.51", "/", "is not at most 9.5", 'the string "9.51"'),
    ("Annotated[bytes, Arg(min=2)]", "YQ==", "/", "is not at least 2 bytes", 'the string "YQ=="'),
    ("Annotated[bytes, Arg(max=1)]", "YWE=", "/", "is not at most 1 bytes", 'the string "YWE="'),
]


@pytest.mark.parametrize("annotation, given, path, message, received", NOT_PYTHON, ids=range(len(NOT_PYTHON)))
def test_what_python_cannot_hold_is_a_validation_error(annotation, given, path, message, received):
    shape = shape_of(annotation)
    with pytest.raises(nk.Error) as caught:
        shape.to_python(given)
    issue = caught.value.details["issues"][0]
    assert caught.value.code == "VALIDATION_ERROR"
    if "<integer>" in received:
        issue["received"] = received
    assert (issue["path"] or "/", issue["message"], issue["received"]) == (path, message, received)


CONSTRUCTORS = """
@dataclass
class Range:
    low: int
    high: int
    def __post_init__(self):
        if self.low > self.high:
            raise ValueError("low is above high")
        if self.low == 7:
            raise TypeError("seven")
        if self.low == 0:
            1 / self.low
@dataclass
class Login:
    word: Annotated[str, Arg(secret=True)]
    def __post_init__(self):
        raise ValueError("bad password " + self.word)
@dataclass
class Refuser:
    x: int
    def __post_init__(self):
        raise nk.Error("CONFLICT", "no")
"""


def test_a_constructor_that_refuses_is_a_validation_error():
    shape = shape_of("List[Range]", CONSTRUCTORS)
    for low, message in ((2, "low is above high"), (7, "seven"), (0, "division by zero")):
        with pytest.raises(nk.Error) as caught:
            shape.to_python([{"low": 0 if not low else 1, "high": 1}] * bool(low) + [{"low": low, "high": 1 if low != 7 else 9}])
        wire = caught.value.to_wire()
        assert wire["code"] == "VALIDATION_ERROR"
        assert wire["message"] == "Invalid input: %d is refused by Range: %s" % (bool(low), message)
        assert [issue["path"] for issue in wire["details"]["issues"]] == ["/%d" % bool(low)]
        assert isinstance(caught.value.__cause__, (ValueError, TypeError, ZeroDivisionError))
    with pytest.raises(nk.Error) as caught:
        shape_of("Refuser", CONSTRUCTORS).to_python({"x": 1})
    assert caught.value.code == "CONFLICT"


def test_a_constructor_that_refuses_shows_no_secret():
    shape = shape_of("Login", CONSTRUCTORS)
    with pytest.raises(nk.Error) as caught:
        shape.to_python({"word": "tok-SECRET-123"})
    assert "SECRET" not in repr(caught.value.to_wire())
    assert caught.value.message == "Invalid input: the value is refused by Login"


# -- Python -> JSON, strictly -------------------------------------------------------------------------------------

#: annotation, Python expression, path, message
WRONG = [
    ("str", "3", (), "expected text, got int"), ("str", "None", (), "expected text, got None"), ("str", "b'x'", (), "expected text, got bytes"),
    ("int", "True", (), "expected a whole number, got bool"), ("int", "3.0", (), "expected a whole number, got float"),
    ("int", "'3'", (), "expected a whole number, got str"), ("float", "False", (), "expected a number, got bool"),
    ("float", "float('nan')", (), "is NaN, which no JSON number is"), ("float", "float('-inf')", (), "is infinite, which no JSON number is"),
    ("bool", "1", (), "expected True or False, got int"), ("None", "0", (), "expected None, got int"),
    ("bytes", "'x'", (), "expected bytes, got str"), ("Any", "{object}", (0,), "expected a JSON value, got type; convert it, or annotate its type"),
    ("Any", "{'n': 0, 'mean': float('nan')}", ("mean",), "is NaN, which no JSON number is"),
    ("dict", "{'a': [1, float('inf')]}", ("a", 1), "is infinite, which no JSON number is"),
    ("dict", "{1: 2}", (), "has a key of type int, where JSON has text"),
    ("Dict[str, dict]", "{'a': {None: 2}}", ("a",), "has a key of type NoneType, where JSON has text"),
    ("Any", "{'span': timedelta(1)}", ("span",), "expected a JSON value, got timedelta; convert it, or annotate its type"),
    ("List[int]", "[1, 'a']", (1,), "expected a whole number, got str"), ("List[int]", "{1}", (), "expected a list, got set"),
    ("List[int]", "(i for i in [1])", (), "expected a list, got generator"), ("List[str]", "'abc'", (), "expected a list, got str"),
    ("set[int]", "[1, 1]", (), "has an item twice"), ("Dict[str, int]", "[1]", (), "expected a dict, got list"),
    ("Dict[str, int]", "{'a': None}", ("a",), "expected a whole number, got None"),
    ("Tuple[int, str]", "(1,)", (), "expected a tuple of 2 items, got tuple"), ("Tuple[int, str]", "(1, 2)", (1,), "expected text, got int"),
    ("Literal['a', 'b']", "'c'", (), 'expected one of "a", "b", got str'), ("Literal[1]", "True", (), "expected one of 1, got bool"),
    ("Literal[1]", "[]", (), "expected one of 1, got list"), ("Color", "'red'", (), "expected a Color, got str"),
    ("Color", "Level.LOW", (), "expected a Color, got Level"), ("date", "DateTime(2024, 1, 1)", (), "expected a date, got datetime"),
    ("DateTime", "date(2024, 1, 1)", (), "expected a date and time, got date"), ("time", "'07:30'", (), "expected a time, got str"),
    ("DateTime", "DateTime(1900, 1, 1, tzinfo=datetime.timezone(timedelta(seconds=1)))", (), "has an offset that is no whole number of minutes"),
    ("decimal.Decimal", "1.5", (), "expected a Decimal, got float"), ("decimal.Decimal", "decimal.Decimal('NaN')", (), "is no finite decimal of a usual size"),
    ("decimal.Decimal", "decimal.Decimal('1E+10000')", (), "is no finite decimal of a usual size"),
    ("uuid.UUID", "'x'", (), "expected a UUID, got str"), ("pathlib.Path", "'x'", (), "expected a path, got str"),
    ("Task", "{'title': 'x'}", (), "expected a Task, got dict"), ("Task", "Task(3)", ("title",), "expected text, got int"),
    ("Task", "Task('t', None, ['a', 2])", ("tags", 1), "expected text, got int"), ("Tree", "Tree('a', [Tree('b', [3])])", ("below", 0, "below", 0), "expected a Tree, got int"),
    ("Movie", "{'title': 't'}", ("year",), "is missing"), ("Movie", "{'title': 't', 'year': 1, 'x': 2}", ("x",), "is not declared"),
    ("Movie", "{'title': 't', 'year': 1, 3: 2}", ("3",), "is not declared"), ("Movie", "Task('t')", (), "expected a Movie, got Task"),
    ("Pair", "(1, 'a')", (), "expected a Pair, got tuple"), ("Optional[int]", "'a'", (), "expected a whole number or null, got str"),
    ("Union[Task, Point]", "Task('t', None, [2])", ("tags", 0), "expected text, got int"),
    ("Union[int, str]", "2.5", (), "expected a whole number or text, got float"),
]


@pytest.mark.parametrize("annotation, expression, path, message", WRONG, ids=range(len(WRONG)))
def test_to_json_refuses(annotation, expression, path, message):
    shape = shape_of(annotation, output=True)
    value = eval(expression, sys.modules["shapes_case"].__dict__)
    with pytest.raises(nk._TypesFault) as caught:
        shape.to_json(value)
    assert (caught.value.path, caught.value.message) == (path, message)


OUT = [
    ("str", "Word.A", "a"), ("int", "Level.LOW", 1), ("float", "1", 1), ("List[int]", "(1, 2)", [1, 2]), ("Any", "(Word.A, {'k': ()})", ["a", {"k": []}]),
    ("set[str]", "()", []), ("dict", "collections.OrderedDict(a=1)", {"a": 1}), ("Mapping[str, int]", "collections.ChainMap({'a': 1})", {"a": 1}),
    ("List[float]", "Pair(1, 2.5)", [1, 2.5]), ("bytes", "bytearray(b'a')", "YQ=="), ("Movie", "dict(title='t', year=1)", {"title": "t", "year": 1}),
    ("set[Union[int, str, None]]", "{None, 'b', 3, 'a', 20}", [3, 20, None, "a", "b"]),
]


@pytest.mark.parametrize("annotation, expression, json", OUT, ids=range(len(OUT)))
def test_to_json(annotation, expression, json):
    made = shape_of(annotation, output=True).to_json(eval(expression, sys.modules["shapes_case"].__dict__))
    assert nk._json_dumps(made) == nk._json_dumps(json) and type(made) is type(json) and repr(made) == repr(json)


def test_results_have_all_their_fields():
    """Going out nothing is left out, init=False fields are shown, defaults need no JSON form."""
    source = "@dataclass\nclass Made:\n    name: str = 'n'\n    id: int = field(init=False)\n    odd: Optional[int] = print\n"
    shape = shape_of("Made", source, output=True)
    assert shape.schema == {
        "type": "object", "required": ["name", "id", "odd"], "additionalProperties": False,
        "properties": {"name": STRING, "id": INTEGER, "odd": {"anyOf": [INTEGER, {"type": "null"}]}},
    }
    module = sys.modules["shapes_case"]
    made = module.Made()
    made.odd = None
    with pytest.raises(nk._TypesFault) as caught:
        shape.to_json(made)
    assert (caught.value.path, caught.value.message) == (("id",), "is missing")
    made.id = 5
    assert shape.to_json(made) == {"name": "n", "id": 5, "odd": None}


def test_a_result_that_contains_itself():
    shape = shape_of("Tree", output=True)
    tree = sys.modules["shapes_case"].Tree("a")
    tree.below.append(tree)
    loop = []
    loop.append(loop)
    for value, way in ((tree, shape), (loop, shape_of("Any", output=True))):
        with pytest.raises(nk._TypesFault) as caught:
            way.to_json(value)
        assert caught.value.message == "is nested too deeply or contains itself"


def test_io_r1_integers_come_out_digit_for_digit():
    shape = shape_of("Any", output=True)
    assert nk._json_dumps(shape.to_json([9223372036854775807, 9007199254740993])) == "[9223372036854775807,9007199254740993]"


# -- classes ------------------------------------------------------------------------------------------------------


def test_recursive_types_stand_in_defs():
    shape = shape_of("Tree")
    signature = signature_of(sys.modules["shapes_case"].f, owner="f")
    assert shape.schema == {"$ref": "#/$defs/Tree"}
    assert signature.input.schema["$defs"] == {"Tree": {
        "type": "object", "required": ["name"], "additionalProperties": False,
        "properties": {"name": STRING, "below": {"type": "array", "items": {"$ref": "#/$defs/Tree"}, "default": []}},
    }}
    assert signature.input.issues({"x": {"name": "a", "below": [{"name": 1}]}})[0].path == "/x/below/0/name"
    assert nk.schema_of(sys.modules["shapes_case"].Tree)["$ref"] == "#/$defs/Tree"


MUTUAL = """
@dataclass
class A:
    b: Optional["B"] = None
    p: Optional[pathlib.Path] = None
@dataclass
class B:
    a: Optional[A] = None
    others: Dict[str, "B"] = field(default_factory=dict)
class Node(TypedDict):
    next: Optional["Node"]
class Chain(NamedTuple):
    value: int
    next: Optional["Chain"] = None
"""


@pytest.mark.parametrize("future", [True, False])
def test_types_that_refer_to_each_other(future):
    text = COMMON + MUTUAL + "def f(a: A, b: B, n: Node, c: Chain): ...\n"
    module = load(text, future=future)
    signature = signature_of(module.f, owner="f")
    given = {
        "a": {"b": {"a": {"b": None, "p": "x"}, "others": {"k": {"a": {"p": "y"}}}}}, "b": {"a": {"p": "z"}},
        "n": {"next": {"next": None}}, "c": {"value": 1, "next": {"value": 2}},
    }
    assert signature.input.issues(given) == []
    values = signature.input.to_python(signature.input.complete(given))
    assert values["a"] == module.A(module.B(module.A(None, module.pathlib.Path("x")), {"k": module.B(module.A(p=module.pathlib.Path("y")))}))
    assert values["c"] == module.Chain(1, module.Chain(2)) and values["n"] == given["n"]
    assert sorted(signature.input.locate(given, "path")) == [
        ("a", "b", "a", "p"), ("a", "b", "others", "k", "a", "p"), ("b", "a", "p"),
    ]
    assert sorted(signature.input.schema["$defs"]) == ["A", "B", "Chain", "Node"]
    bad = {"a": {}, "b": {}, "n": {"next": {}}, "c": {"value": 1}}
    assert [issue.path for issue in signature.input.issues(bad)] == ["/n/next/next"]


def test_two_recursive_types_of_one_name():
    other = load(COMMON, "shapes_other").Tree
    module = load(COMMON + "import shapes_other\ndef f(a: Tree, b: shapes_other.Tree): ...\n")
    signature = signature_of(module.f, owner="f")
    assert sorted(signature.input.schema["$defs"]) == ["Tree", "Tree_"]
    values = signature.input.to_python({"a": {"name": "x", "below": [{"name": "y"}]}, "b": {"name": "z", "below": [{"name": "w"}]}})
    assert type(values["a"].below[0]) is module.Tree and type(values["b"].below[0]) is other


def test_fields_of_inherited_classes_stand_in_their_own_modules():
    load(FUTURE.strip() and "from dataclasses import dataclass\nfrom typing import *\nclass Here: ...\nHere = int\n"
         "@dataclass\nclass Base:\n    a: Here\nclass Dict1(TypedDict):\n    a: Here\nclass Tuple1(NamedTuple):\n    a: Here\n", "shapes_base")
    source = ("import shapes_base\nHere = str\n@dataclass\nclass Sub(shapes_base.Base):\n    b: Here\n"
              "class Dict2(shapes_base.Dict1):\n    b: Here\nclass Tuple2(shapes_base.Tuple1):\n    pass\n")
    for name, fields in (("Sub", {"a": INTEGER, "b": STRING}), ("Dict2", {"a": INTEGER, "b": STRING}), ("Tuple2", {"a": INTEGER})):
        assert shape_of(name, source).schema["properties"] == fields, name


DATACLASSES = """
@dataclass
class Full:
    a: int
    b: ClassVar[int] = 3
    c: "Annotated[int, Arg('the c', min=2)]" = 5
    d: int = field(default=1, init=False)
    e: Dict[str, int] = field(default_factory=lambda: {"x": 1})
    f: Tuple[int, ...] = ()
    g: Annotated[int, Opt(default=9)] = field(default=nk)
"""


def test_dataclass_fields():
    source = DATACLASSES.replace("    g: Annotated[int, Opt(default=9)] = field(default=nk)\n", "")
    if NEW:
        source = source.replace("@dataclass\n", "@dataclass(kw_only=True, slots=True)\n")
    shape = shape_of("Full", source)
    assert shape.schema["properties"] == {
        "a": INTEGER, "c": {"type": "integer", "minimum": 2, "description": "the c", "default": 5},
        "e": {"type": "object", "additionalProperties": INTEGER},
        "f": {"type": "array", "items": INTEGER, "default": []},
    }
    assert shape.schema["required"] == ["a"]
    made = shape.to_python({"a": 1})
    assert (made.a, made.b, made.c, made.d, made.e, made.f) == (1, 3, 5, 1, {"x": 1}, ())
    assert shape.to_python({"a": 1}).e is not made.e


def test_opt_fills_what_the_constructor_has_no_default_for():
    shape = shape_of("One", "@dataclass\nclass One:\n    a: Annotated[int, Opt(default=9)]\n    b: Annotated[Optional[str], Opt('b')]\n")
    assert shape.schema["properties"]["a"] == {"type": "integer", "default": 9} and "required" not in shape.schema
    made = shape.to_python(shape.complete({}))
    assert (made.a, made.b) == (9, None)
    shape = shape_of("Two", "class Two(TypedDict):\n    a: Annotated[int, Opt(default=9)]\n    b: Annotated[str, Opt('b')]\n    c: int\n")
    assert shape.schema["required"] == ["c"] and shape.to_python(shape.complete({"c": 1})) == {"a": 9, "c": 1}


@pytest.mark.skipif(sys.version_info < (3, 11), reason="typing has Required since 3.11")
@pytest.mark.parametrize("future", [True, False])
def test_required_and_not_required(future):
    source = ("class M(TypedDict):\n    a: int\n    b: NotRequired[int]\n    c: Annotated[NotRequired[int], Arg('c')]\n"
              "class N(M, total=False):\n    d: int\n    e: Required[Annotated[str, Arg(min=1)]]\n")
    schema = shape_of("N", source, future).schema
    assert schema["required"] == ["a", "e"] and list(schema["properties"]) == ["a", "b", "c", "d", "e"]
    assert schema["properties"]["c"] == {"type": "integer", "description": "c"}
    assert schema["properties"]["e"] == {"type": "string", "minLength": 1}


@pytest.mark.skipif(sys.version_info < (3, 12), reason="PEP 695")
def test_type_statements():
    source = ("type Port = Annotated[int, Arg('a port', min=1, max=65535)]\ntype Json = None | bool | float | str | list[Json] | dict[str, Json]\n"
              "type Ids = list[Port]\n")
    text = COMMON + source + "def f(p: Port, j: Json, i: Ids = (), *, q: Port = 80): ...\n"
    for future in (True, False):
        signature = signature_of(load(text, future=future).f, owner="f")
        assert signature.fields[0].help == "a port" and signature.fields[0].schema["maximum"] == 65535
        assert signature.input.schema["properties"]["j"] == {"$ref": "#/$defs/Json"}
        given = {"p": 3, "j": {"a": [1, "x", None, {"b": True}]}}
        assert signature.input.issues(given) == []
        assert signature.input.to_python(signature.input.complete(given)) == {"p": 3, "j": {"a": [1.0, "x", None, {"b": True}]}, "i": [], "q": 80}
        assert signature.input.issues({"p": 0, "j": {"a": 1}, "i": [70000]})[0].path == "/p"


def test_aliases_that_are_text():
    shape = shape_of("Alias", "Alias = 'Optional[Inner]'\nInner = 'int'\n")
    assert shape.schema == {"anyOf": [INTEGER, {"type": "null"}]}
    assert shape_of("bytes", "bytes = date\n").schema["format"] == "date"
    assert refused("Alias", "Alias = 'Alias'\n") == "is annotated with text that stands for itself; name a type"
    assert refused("Loop", "Loop = Dict[str, 'Loop']\n") == (
        "has an annotation of more than 64 levels, or one that stands for itself; use a dataclass, a TypedDict or a type statement")


# -- functions ----------------------------------------------------------------------------------------------------


def test_parameters_of_all_kinds():
    source = "class Ctx: ...\ndef f(a: int, /, b: str, c: Ctx, d: float = 2, *rest: date, e: bool = False, g: int, **more: int): ...\n"
    module = load(COMMON + source)
    signature = signature_of(module.f, owner="f", context_type=module.Ctx)
    assert [field.name for field in signature.fields] == ["a", "b", "d", "e", "g", "rest", "more"]
    assert [field.required for field in signature.fields] == [True, True, False, False, True, False, False]
    assert [field.option_only for field in signature.fields] == [False, False, False, True, True, False, True]
    assert [field.variadic for field in signature.fields] == [False] * 5 + [True, False]
    assert (signature.context, signature.var_keyword) == ("c", "more")
    given = {"a": 1, "b": "x", "g": 4, "rest": ["2024-01-01"], "more": {"z": 5}}
    assert signature.input.issues(given) == []
    context = object()
    args, kwargs = signature.bind(signature.input.to_python(signature.input.complete(given)), context)
    assert args == [1, "x", context, 2.0, module.date(2024, 1, 1)] and kwargs == {"e": False, "g": 4, "z": 5}
    args, kwargs = signature.bind(signature.input.to_python(signature.input.complete({"a": 1, "b": "x", "g": 4})), context)
    assert args == [1, "x", context, 2.0] and kwargs == {"e": False, "g": 4}
    taken = {"a": 1, "b": "x", "g": 4, "more": {"b": 5}}
    assert [issue.path for issue in signature.input.issues(taken)] == ["/more/b"]
    assert nk._shapes_parameters(module.f) == ("a", "b", "c", "d", "e", "g", "rest", "more")


def test_a_context_by_keyword():
    module = load(COMMON + "class Ctx: ...\ndef f(a: int = 1, *, ctx: 'Ctx' = None): ...\n")
    signature = signature_of(module.f, owner="f", context_type=module.Ctx)
    assert signature.bind(signature.input.to_python(signature.input.complete({})), "C") == ([1], {"ctx": "C"})
    assert list(signature.input.schema["properties"]) == ["a"]


def test_passthrough_needs_no_annotation():
    signature = signature_of(load(COMMON + "def f(a: int, **more): ...\n").f, owner="f")
    assert signature.input.schema["properties"]["more"] == {"type": "object", "propertyNames": {"not": {"enum": ["a", "more"]}}}
    assert signature.bind(signature.input.to_python({"a": 1, "more": {"x": ["1"]}}), None) == ([1], {"x": ["1"]})


def test_classes_inside_classes_without_end():
    lines = ["@dataclass\nclass C0:\n    x: int\n"]
    lines += ["@dataclass\nclass C%d:\n    x: C%d\n" % (level, level - 1) for level in range(1, 300)]
    assert shape_of("C60", "".join(lines)).to_python
    assert " in the parameter \"x\" has an annotation of more than 64 levels" in refusal("".join(lines) + "def f(x: C299): ...\n")


def test_methods_skip_their_first_parameter():
    module = load(COMMON + "class Store:\n    def add(self, title: str) -> bool: ...\n")
    signature = signature_of(module.Store.add, owner="f", bound=True)
    assert [field.name for field in signature.fields] == ["title"]
    assert signature.bind({"title": "x"}, None) == (["x"], {})


def test_results():
    module = load(COMMON + "def a() -> None: ...\ndef b(): ...\ndef e() -> type(None): ...\ndef c() -> 'Optional[Task]': ...\ndef d() -> Any: ...\n")
    results = [signature_of(getattr(module, name), owner="f") for name in "abcd"]
    assert [result.returns_none for result in results] == [True, False, False, False]
    assert [result.output and result.output.schema for result in results][:2] == [{"type": "null"}, None]
    assert signature_of(module.e, owner="f").returns_none
    assert results[2].output.to_json(module.Task("x")) == {"title": "x", "due": None, "tags": []}
    assert results[3].output.schema == {}
    raw = signature_of(load(COMMON + "def f(anything, ctx) -> int: ...\n").f, owner="f", raw=True)
    assert raw.output.schema == INTEGER and raw.fields == [] and raw.input is None


def test_fields_carry_what_arg_says():
    source = ("def f(a: Annotated[str, Arg('the a', env='A_A', alias='a', example='x', pattern='^x')], b: Annotated[int, Opt('b', default=3)],\n"
              "      c: Annotated[Optional[str], Opt(secret=True)], dry_ice: pathlib.Path = pathlib.Path('p'), *rest: Annotated[str, Arg('r', rest=True)]): ...\n")
    signature = signature_of(load(COMMON + source).f, owner="f")
    a, b, c, d, rest = signature.fields
    assert (a.help, a.env, a.alias, a.example, a.required, a.default) == ("the a", "A_A", "a", "x", True, nk.TYPES_ABSENT)
    assert a.schema == {"type": "string", "pattern": "^x", "description": "the a", "examples": ["x"]}
    assert (b.required, b.default, b.schema) == (False, 3, {"type": "integer", "description": "b", "default": 3})
    assert (c.required, c.default, c.secret) == (False, None, True) and "default" not in c.schema
    assert (d.path, d.public_name, d.default, a.path) == (True, "dry-ice", "p", False)
    assert (rest.rest, rest.variadic, rest.help, rest.schema) == (
        True, True, "r", {"type": "array", "items": {"type": "string", "description": "r"}, "description": "r"})
    values = signature.input.to_python(signature.input.complete({"a": "x"}))
    assert signature.bind(values, None) == (["x", 3, None, sys.modules["shapes_case"].pathlib.Path("p")], {})


def test_args_describe_parameters_without_typing():
    module = load("def f(title: str, n: int = 1, *rest: str): ...\n", future=False)
    extra = {"title": nk.Arg("what", min=1), "n": nk.Arg(max=5), "rest": nk.Arg(choices=["a"])}
    signature = signature_of(module.f, owner="f", extra_args=extra)
    assert [field.schema for field in signature.fields] == [
        {"type": "string", "minLength": 1, "description": "what"}, {"type": "integer", "maximum": 5, "default": 1},
        {"type": "array", "items": {"type": "string", "enum": ["a"]}},
    ]


def test_arg_never_makes_a_field_required_and_defaults_make_it_optional():
    source = "def f(a: Annotated[int, Arg()] = 1, b: int = 2, c: Annotated[int, Opt(default=3)] = nk.TYPES_ABSENT, *, d: Optional[int]): ...\n"
    signature = signature_of(load(COMMON + source).f, owner="f")
    assert [(field.required, field.default) for field in signature.fields] == [(False, 1), (False, 2), (False, 3), (True, nk.TYPES_ABSENT)]


DEFAULTS = [
    ("List[str]", "()", []), ("Tuple[int, ...]", "[1]", [1]), ("set[str]", "('b', 'a')", ["a", "b"]), ("date", "date(2024, 1, 2)", "2024-01-02"),
    ("Color", "Color.RED", "red"), ("decimal.Decimal", "decimal.Decimal('1.50')", "1.50"), ("bytes", "b'a'", "YQ=="), ("float", "1", 1),
    ("Optional[Task]", "Task('x')", {"title": "x", "due": None, "tags": []}), ("Any", "None", None), ("Annotated[int, Arg(min=1)]", "1", 1),
    ("Tree", "Tree('a', [Tree('b')])", {"name": "a", "below": [{"name": "b", "below": []}]}), ("Movie", "{'title': 'a', 'year': 1}", {"title": "a", "year": 1}),
]


@pytest.mark.parametrize("annotation, default, json", DEFAULTS, ids=range(len(DEFAULTS)))
def test_defaults_become_json(annotation, default, json):
    module = load(COMMON + "def f(x: %s = %s): ...\n" % (annotation, default))
    signature = signature_of(module.f, owner="f")
    field = signature.fields[0]
    assert (field.required, field.default, field.schema["default"]) == (False, json, json)
    assert signature.input.issues({"x": json}) == []
    assert signature.input.to_python(signature.input.complete({})) == signature.input.to_python({"x": json})


# -- Arg --------------------------------------------------------------------------------------------------------

CONSTRAINTS = [
    ("Annotated[int, Arg(min=0, max=0)]", {"type": "integer", "minimum": 0, "maximum": 0}),
    ("Annotated[float, Arg(min=-1.5)]", {"type": "number", "minimum": -1.5}),
    ("Annotated[Union[int, float], Arg(help='n')]", {"anyOf": [INTEGER, {"type": "number"}], "description": "n"}),
    ("Annotated[str, Arg(min=1, max=5, pattern='^a')]", {"type": "string", "minLength": 1, "maxLength": 5, "pattern": "^a"}),
    ("Annotated[pathlib.Path, Arg(min=1)]", {"type": "string", "minLength": 1}),
    ("Annotated[list, Arg(max=2)]", {"type": "array", "maxItems": 2}),
    ("Annotated[List[str], Arg(min=1, choices=['a', 'b'])]", {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "minItems": 1}),
    ("Annotated[Tuple[str, ...], Arg(pattern='x')]", {"type": "array", "items": {"type": "string", "pattern": "x"}}),
    ("Annotated[Dict[str, int], Arg(min=1)]", {"type": "object", "additionalProperties": INTEGER, "minProperties": 1}),
    ("Annotated[Optional[str], Arg(min=1)]", {"anyOf": [{"type": "string", "minLength": 1}, {"type": "null"}]}),
    ("Annotated[Optional[List[int]], Arg(max=3, choices=[1, 2])]",
     {"anyOf": [{"type": "array", "items": {"type": "integer", "enum": [1, 2]}, "maxItems": 3}, {"type": "null"}]}),
    ("Annotated[bytes, Arg(min=2, max=4)]", {"type": "string", "contentEncoding": "base64", "minLength": 4, "maxLength": 8}),
    ("Annotated[decimal.Decimal, Arg(min=0, max=decimal.Decimal('9.5'))]",
     {"type": ["string", "number"], "format": "decimal", "minimum": 0, "maximum": 9.5}),
    ("Annotated[Color, Arg(choices=[Color.RED])]", {"type": "string", "enum": ["red"]}),
    ("Annotated[date, Arg(choices=(date(2024, 1, 1),))]", {"type": "string", "format": "date", "enum": ["2024-01-01"]}),
    ("Annotated[int, Arg(choices=range(1, 3))]", {"type": "integer", "enum": [1, 2]}),
    ("Annotated[Annotated[int, Arg('inner', min=1, max=9)], Arg('outer', max=5)]",
     {"type": "integer", "minimum": 1, "maximum": 5, "description": "outer"}),
    ("Annotated[NewType('N', Annotated[str, Arg('n', min=2)]), Arg(max=5)]",
     {"type": "string", "minLength": 2, "maxLength": 5, "description": "n"}),
    ("Annotated[Task, Arg('a task')]", dict(TASK, description="a task")),
    ("Annotated[Tree, Arg('a tree')]", {"$ref": "#/$defs/Tree", "description": "a tree"}),
]


@pytest.mark.parametrize("annotation, schema", CONSTRAINTS, ids=range(len(CONSTRAINTS)))
def test_arg_bounds_by_type(annotation, schema):
    assert shape_of(annotation, future=False).schema == schema


def test_arg_bounds_hold_both_ways():
    shape = shape_of("Annotated[Optional[decimal.Decimal], Arg(min=1)]")
    assert shape.to_python(None) is None and str(shape.to_python("1.0")) == "1.0"
    with pytest.raises(nk.Error):
        shape.to_python("0.9")
    assert [issue.message for issue in shape.issues(0.5)]
    shape = shape_of("Annotated[List[Color], Arg(choices=[Color.RED])]")
    assert shape.to_python(["red"]) == [sys.modules["shapes_case"].Color.RED] and shape.issues(["blue"])


ROLES = [
    ("pathlib.Path", "p", "path", [()]), ("Optional[pathlib.Path]", "p", "path", [()]), ("Optional[pathlib.Path]", None, "path", []),
    ("Union[str, pathlib.Path]", "p", "path", [()]), ("Union[int, pathlib.Path]", 3, "path", []), ("List[pathlib.Path]", ["a", "b"], "path", [(0,), (1,)]),
    ("Dict[str, pathlib.Path]", {"k": "a"}, "path", [("k",)]), ("Tuple[int, pathlib.Path]", [1, "a"], "path", [(1,)]),
    ("Annotated[str, Arg(path=True)]", "p", "path", [()]), ("Annotated[List[str], Arg(path=True)]", ["a"], "path", [(0,)]),
    ("Annotated[Optional[str], Arg(path=True)]", "a", "path", [()]), ("Annotated[Any, Arg(path=True)]", {"a": ["b", 1, {"c": "d"}]}, "path", [("a", 0), ("a", 2, "c")]),
    ("Annotated[Dict[str, List[str]], Arg(path=True)]", {"k": ["a"]}, "path", [("k", 0)]), ("str", "p", "path", []),
    ("Files", {"files": ["a"], "one": None, "by": {"x": {"files": [], "one": "c", "by": {}}}}, "path", [("files", 0), ("by", "x", "one")]),
    ("Files", 3, "path", []), ("Files", {"files": 3, "one": ["x"], "by": [1]}, "path", []),
    ("Annotated[str, Arg(secret=True)]", "p", "secret", [()]), ("Annotated[List[str], Arg(secret=True)]", ["a", "b"], "secret", [()]),
    ("Dict[str, Annotated[str, Arg(secret=True)]]", {"k": "v"}, "secret", [("k",)]), ("Optional[Annotated[str, Arg(secret=True)]]", "p", "secret", [()]),
    ("Keyed", {"user": "u", "token": "t"}, "secret", [("token",)]), ("Union[Keyed, Point]", {"user": "u", "token": "t"}, "secret", [("token",)]),
    ("Union[Keyed, Point]", {"user": 3, "token": "t"}, "secret", [("token",)]), ("Union[Point, Keyed]", {"x": 1}, "secret", []),
]
ROLE_CLASSES = """
@dataclass
class Files:
    files: List[pathlib.Path]
    one: Optional[pathlib.PurePath] = None
    by: Dict[str, "Files"] = field(default_factory=dict)
@dataclass
class Keyed:
    user: str
    token: Annotated[str, Arg(secret=True)]
"""


@pytest.mark.parametrize("annotation, value, role, places", ROLES, ids=range(len(ROLES)))
def test_roles(annotation, value, role, places):
    text = COMMON + ROLE_CLASSES + "def f(x: %s): ...\n" % annotation
    signature = signature_of(load(text).f, owner="f")
    assert signature.input.locate({"x": value}, role) == [("x",) + place for place in places]
    assert signature.input.has_role(role) or not places
    assert signature.fields[0].path == signature.input.has_role("path")


CHOICES = """
@dataclass
class Picky:
    name: str
    def __post_init__(self):
        raise ValueError("never")
@dataclass
class Filed:
    name: pathlib.Path
    more: int = 0
"""


@pytest.mark.parametrize("annotation, value", [
    ("Union[DateTime, pathlib.Path]", "../../etc/passwd"), ("Union[date, pathlib.Path]", "0000-01-01"), ("Union[time, pathlib.Path]", "24:00"),
    ("Union[uuid.UUID, pathlib.Path]", "x"), ("Union[decimal.Decimal, pathlib.Path]", "../x"), ("Union[Color, pathlib.Path]", "green"),
])
def test_what_is_read_as_a_path_was_located_as_one(annotation, value):
    shape = shape_of(annotation)
    assert isinstance(shape.to_python(value), sys.modules["shapes_case"].pathlib.Path) and shape.locate(value, "path") == [()]


def test_a_constructor_that_refuses_does_not_pass_its_value_on():
    """The sandbox has seen no path in it, so that no other branch may make one of it."""
    shape = shape_of("Union[Picky, Filed]", CHOICES)
    given = {"name": "../../etc/passwd"}
    assert shape.locate(given, "path") == []
    with pytest.raises(nk.Error) as caught:
        shape.to_python(given)
    assert caught.value.message == "Invalid input: the value is refused by Picky: never"
    assert shape.locate(dict(given, more=1), "path") == [("name",)]


def test_no_issue_shows_a_secret():
    signature = signature_of(load(COMMON + ROLE_CLASSES + "def f(x: Union[Keyed, Point], y: Annotated[int, Arg(secret=True)]): ...\n").f, owner="f")
    for given in ({"x": {"user": "u", "token": 424242}, "y": 1}, {"x": {"user": 3, "token": "tok-SECRET"}, "y": "tok-SECRET"}, {"x": [], "y": "tok-SECRET"}):
        issues = signature.input.issues(given)
        assert issues and "SECRET" not in repr([issue.to_wire() for issue in issues]) and "424242" not in repr([issue.to_wire() for issue in issues])
    shape = shape_of("Annotated[date, Arg(secret=True)]")
    with pytest.raises(nk.Error) as caught:
        shape.to_python("0000-01-01")
    assert caught.value.details["issues"][0]["received"] == "***" and "0000" not in caught.value.message


# -- refusals -----------------------------------------------------------------------------------------------------

FORM = ", which has no JSON form here; "
USE = "use a type that JSON can carry, such as str, int, list[str], a dataclass, or Any"
TOP = "; define or import its names at the top level of the module, not under TYPE_CHECKING"
REFUSED = [
    ("timedelta", "is annotated timedelta" + FORM + "use int or float for seconds"),
    ("complex", "is annotated complex" + FORM + "use tuple[float, float]"),
    ("bytearray", "is annotated bytearray" + FORM + "use bytes"),
    ("range", "is annotated range" + FORM + USE),
    ("Callable[[int], str]", "is annotated typing.Callable[[int], str]" + FORM + "take the name of what to call, as str"),
    ("Iterator[int]", "is annotated typing.Iterator[int]" + FORM + "use list[...]"),
    ("collections.abc.Generator[int, None, None]", "is annotated collections.abc.Generator[int, None, None]" + FORM + "use list[...]"),
    ("List[timedelta]", "is annotated timedelta" + FORM + "use int or float for seconds"),
    ("Type[int]", "is annotated typing.Type[int]" + FORM + USE),
    ("TypeVar('T')", "is annotated ~T" + FORM + "name the type itself"),
    ("collections.Counter", "is annotated Counter" + FORM + USE),
    ("DefaultDict[str, int]", "is annotated typing.DefaultDict[str, int]" + FORM + USE),
    ("Box[int]", "is annotated shapes_case.Box[int]" + FORM + USE),
    ("Plain", "is annotated Plain" + FORM + USE),
    ("Flags", "is annotated Flags" + FORM + "use list[...] of an Enum"),
    ("Empty", "is annotated Empty" + FORM + USE),
    ("Literal[b'x']", "is annotated typing.Literal[b'x']" + FORM + USE),
    ("3", "is annotated 3" + FORM + USE),
    ("...", "is annotated Ellipsis" + FORM + USE),
    ("[]", "is annotated []" + FORM + USE),
    ("Optional[nk.Arg]", "is annotated Arg" + FORM + "write Annotated[type, nk.Arg(...)]"),
    ("Arg('x')", "is annotated Arg(help='x')" + FORM + "write Annotated[type, nk.Arg(...)]"),
    ("Opt(choices=['a'])", "is annotated Opt(choices=['a'])" + FORM + "write Annotated[type, nk.Opt(...)]"),
    ("Annotated[int, Arg]", "has nk.Arg or nk.Opt itself in Annotated; write nk.Arg(...)"),
    ("Odd", "is annotated Odd, which has values that are no JSON scalars; give its members text or numbers"),
    ("Infinite", "is annotated Infinite, which has values that are no JSON scalars; give its members text or numbers"),
    ("Dict[int, str]", "is annotated typing.Dict[int, str], but the keys of a JSON object are text; use dict[str, ...], or a list of pairs"),
    ("Dict[Color, str]", "is annotated typing.Dict[shapes_case.Color, str], but the keys of a JSON object are text; use dict[str, ...], or a list of pairs"),
    ("Set[List[int]]", "is annotated typing.Set[typing.List[int]], but a list cannot stand in a set; use list[...]"),
    ("Set[Task]", "is annotated typing.Set[shapes_case.Task], but a Task cannot stand in a set; use list[...]"),
    ("Union[List[int], Tuple[int, ...]]", "is annotated typing.Union[typing.List[int], typing.Tuple[int, ...]], but JSON cannot tell a list from a tuple; keep one of them"),
    ("Union[List[int], Set[int]]", "is annotated typing.Union[typing.List[int], typing.Set[int]], but JSON cannot tell a list from a set; keep one of them"),
    ("Union[str, bytes]", "is annotated typing.Union[str, bytes], but JSON cannot tell text from bytes; keep one of them"),
    ("Union[decimal.Decimal, int]", "is annotated typing.Union[decimal.Decimal, int], but JSON cannot tell a decimal number from a whole number; keep one of them"),
    ("Union[Color, Literal['blue']]", "is annotated typing.Union[shapes_case.Color, typing.Literal['blue']], but JSON cannot tell a Color from one of \"blue\"; keep one of them"),
    ("Union[Point, Other]", "is annotated typing.Union[shapes_case.Point, shapes_case.Other], but JSON cannot tell a Point from a Other; keep one of them"),
    ("Missing", "is annotated \"Missing\", which cannot be evaluated (NameError: name 'Missing' is not defined)" + TOP),
    ("List['Missing']", "is annotated \"Missing\", which cannot be evaluated (NameError: name 'Missing' is not defined)" + TOP),
    ("collections.Missing", "is annotated \"collections.Missing\", which cannot be evaluated (AttributeError: module 'collections' has no attribute 'Missing')" + TOP),
    ("Annotated[List[Annotated[str, Arg(env='X')]], Arg()]", "has an nk.Arg with env= inside its type; move it to the parameter itself"),
    ("List[Annotated[str, Opt(default='x')]]", "has an nk.Arg with default= inside its type; move it to the parameter itself"),
    ("Annotated[str, Arg(3)]", "has nk.Arg(help=3); give one sentence of text"),
    ("Annotated[str, Arg(env='A=B')]", 'has nk.Arg(env="A=B"); give the name of an environment variable'),
    ("Annotated[str, Arg(alias='ab')]", 'has nk.Arg(alias="ab"); give one ASCII letter other than h'),
    ("Annotated[str, Arg(alias='h')]", 'has nk.Arg(alias="h"); give one ASCII letter other than h'),
    ("Annotated[str, Arg(rest=True)]", "has nk.Arg(rest=True), but takes text; make it a list[str]"),
    ("Annotated[int, Arg(path=True)]", "has nk.Arg(path=True), but takes a whole number; annotate it str or pathlib.Path"),
    ("Annotated[date, Arg(path=True)]", "has nk.Arg(path=True), but takes a date; annotate it str or pathlib.Path"),
    ("Annotated[Task, Arg(path=True)]", "has nk.Arg(path=True), but takes a Task; annotate it str or pathlib.Path"),
    ("Annotated[int, Arg(pattern='x')]", "has nk.Arg(pattern=...), but takes a whole number; a pattern is for text"),
    ("Annotated[str, Arg(pattern='(')]", 'has nk.Arg(pattern="("); give an ECMA-262 pattern'),
    ("Annotated[str, Arg(pattern=3)]", "has nk.Arg(pattern=3); give an ECMA-262 pattern"),
    ("Annotated[date, Arg(min=1)]", "has nk.Arg with min or max, but takes a date, which has no size to bound; leave them out"),
    ("Annotated[bool, Arg(max=1)]", "has nk.Arg with min or max, but takes true or false, which has no size to bound; leave them out"),
    ("Annotated[Tuple[int, int], Arg(max=1)]", "has nk.Arg with min or max, but takes a tuple, which has no size to bound; leave them out"),
    ("Annotated[int, Arg(min='1')]", 'has nk.Arg(min="1"); give a number'),
    ("Annotated[int, Arg(min=True)]", "has nk.Arg(min=true); give a number"),
    ("Annotated[float, Arg(max=float('inf'))]", "has nk.Arg(max=<an infinite number>); give a number"),
    ("Annotated[decimal.Decimal, Arg(min=decimal.Decimal('NaN'))]", "has nk.Arg(min=<Decimal>); give a number"),
    ("Annotated[str, Arg(min=-1)]", "has nk.Arg(min=-1); give a count of 0 or more"),
    ("Annotated[str, Arg(max=1.5)]", "has nk.Arg(max=1.5); give a count of 0 or more"),
    ("Annotated[int, Arg(min=3, max=2)]", "has nk.Arg(min=3, max=2), which leaves no value; exchange them"),
    ("Annotated[Union[int, str], Arg(min=1)]", "has an nk.Arg that could bound a whole number or text; put Annotated[...] inside the union"),
    ("Annotated[str, Arg(choices='abc')]", 'has nk.Arg(choices="abc"); give a list of values'),
    ("Annotated[str, Arg(choices=[])]", "has nk.Arg(choices=[]); give a list of values"),
    ("Annotated[Task, Arg(choices=[1])]", "has nk.Arg(choices=...), but takes a Task; choices are for text and numbers"),
    ("Annotated[str, Arg(choices=['a', 3])]", "has the choice 3, which does not fit: expected text, got int; give it another"),
    ("Annotated[int, Arg(choices=[1, 5], max=3)]", "has the choice 5, which does not fit: expected at most 3, got the number 5; give it another"),
    ("Annotated[int, Arg(example='x')]", 'has the example "x", which does not fit: expected a whole number, got the string "x"; give it another'),
    ("Annotated[int, Arg(example=2.5)]", "has the example 2.5, which does not fit: expected a whole number, got float; give it another"),
    ("Annotated[int, Arg(example=9, max=3)]", "has the example 9, which does not fit: expected at most 3, got the number 9; give it another"),
    ("NotRequired[int]", "is annotated Required or NotRequired, which a TypedDict alone has; use nk.Arg or nk.Opt"),
    ("Annotated[int, Opt()]", "may be left out (nk.Opt) and has no default; give it one, or annotate it Optional[...]"),
    ("Annotated[int, Opt(default='x')]", 'has the default "x", which does not fit: expected a whole number, got str; give it another'),
]
BAD_CLASSES = """
T = TypeVar("T")
@dataclass
class Box(Generic[T]):
    x: T
class Plain: ...
class Flags(enum.Flag):
    A = 1
class Empty(enum.Enum): ...
class Odd(enum.Enum):
    A = (1, 2)
class Infinite(enum.Enum):
    A = float("inf")
@dataclass
class Other:
    x: int
    y: int = 0
"""


REFUSED = [row for row in REFUSED if sys.version_info >= (3, 11) or row[0] != "NotRequired[int]"]


@pytest.mark.parametrize("annotation, message", REFUSED, ids=range(len(REFUSED)))
def test_refused_annotation(annotation, message):
    assert refused(annotation, BAD_CLASSES) == message


NESTED = [
    ("class X:\n    when: timedelta\n", '"when" of X', "is annotated timedelta" + FORM + "use int or float for seconds"),
    ("class X:\n    a: Annotated[str, Arg(env='A')]\n", '"a" of X', "has an nk.Arg with env= inside its type; move it to the parameter itself"),
    ("class X:\n    a: str = None\n", '"a" of X', "has the default null, which does not fit: expected text, got None; annotate it Optional[...] or give it another"),
    ("class X:\n    a: Annotated[int, Opt(default=1)] = 2\n", '"a" of X', "has two defaults, one of nk.Opt and one of Python; keep one of them"),
    ("class X:\n    a: Annotated[int, Arg(max=1)] = 2\n", '"a" of X', "has the default 2, which does not fit: expected at most 1, got the number 2; give it another"),
    ("class X:\n    a: Dict[str, List[int]] = field(default_factory=dict)\n    b: Tuple[Tuple[int, ...], ...] = ((1, 'x'),)\n", '"b" of X',
     'has the default [[1, "x"]], which does not fit at /0/1: expected a whole number, got str; give it another'),
    ("class X:\n    a: Unknown\n", '"a" of X', "is annotated \"Unknown\", which cannot be evaluated (NameError: name 'Unknown' is not defined)" + TOP),
]


@pytest.mark.parametrize("source, place, message", NESTED, ids=range(len(NESTED)))
def test_refused_field_of_a_dataclass(source, place, message):
    text = "@dataclass\n" + source + "def f(x: List[X]): ...\n"
    assert refusal(text) == 'm.f: the field %s in the parameter "x" %s' % (place, message)


@pytest.mark.parametrize("source, message", [
    ("@dataclass\nclass X:\n    a: InitVar[int]\n", 'm.f: X in the parameter "x" has the InitVar "a", which has no place in JSON; make it a field'),
    ("@dataclass(init=False)\nclass X:\n    a: int\n", 'm.f: X in the parameter "x" is a dataclass with init=False, which no JSON can make; let it have its constructor'),
    ("X = collections.namedtuple('X', 'a b')\n", 'm.f: X in the parameter "x" is a namedtuple without annotations; use typing.NamedTuple or a dataclass'),
])
def test_refused_class(source, message):
    assert refusal(source + "def f(x: X): ...\n") == message


FUNCTIONS = [
    ("def f(x: Dict[Annotated[str, Arg(max=1)], int] = {'ab': 1}): ...",
     'm.f: the parameter "x" has the default {"ab": 1}, which does not fit: is no good name: expected at most 1 character; give it another'),
    ("def f(x: Annotated[List[str], Arg(choices=['a'])] = ['b']): ...",
     'm.f: the parameter "x" has the default ["b"], which does not fit: expected "a", got the string "b"; give it another'),
    ("def f(x): ...", 'm.f: the parameter "x" has no annotation; write x: str, or x: object for any JSON value'),
    ("def f(a: int, *rest): ...", 'm.f: the parameter "rest" has no annotation; write rest: str, or rest: object for any JSON value'),
    ("def f(x: str = None): ...", 'm.f: the parameter "x" has the default null, which does not fit: expected text, got None; annotate it Optional[...] or give it another'),
    ("def f(x: List[int] = [1, 'a']): ...", 'm.f: the parameter "x" has the default [1, "a"], which does not fit at /1: expected a whole number, got str; give it another'),
    ("def f(x: Annotated[int, Arg(min=2)] = 1): ...", 'm.f: the parameter "x" has the default 1, which does not fit: expected at least 2, got the number 1; give it another'),
    ("def f(x: Annotated[int, Opt(default=2)] = 1): ...", 'm.f: the parameter "x" has two defaults, one of nk.Opt and one of Python; keep one of them'),
    ("def f(x: Color = 'red'): ...", 'm.f: the parameter "x" has the default "red", which does not fit: expected a Color, got str; give it another'),
    ("def f(x: str = nk.Arg('x')): ...", 'm.f: the parameter "x" has the default <Arg>, which does not fit: expected text, got Arg; give it another'),
    ("def f(x: Annotated[str, Arg(secret=True)] = 3): ...", 'm.f: the parameter "x" has the default, which does not fit: expected text, got int; give it another'),
    ("def f(*x: Annotated[int, Opt(default=2)]): ...", 'm.f: the parameter "x" collects what is left over and is empty without it; use nk.Arg in the place of nk.Opt'),
    ("def f(x: int, **kw: timedelta): ...", 'm.f: the parameter "kw" is annotated timedelta' + FORM + "use int or float for seconds"),
    ("def f() -> timedelta: ...", "m.f: the result is annotated timedelta" + FORM + "use int or float for seconds"),
    ("def f() -> Iterator[int]: ...", "m.f: the result is annotated typing.Iterator[int]" + FORM + "use list[...]"),
    ("def f() -> Missing: ...", "m.f: the result is annotated \"Missing\", which cannot be evaluated (NameError: name 'Missing' is not defined)" + TOP),
]


@pytest.mark.parametrize("source, message", FUNCTIONS, ids=range(len(FUNCTIONS)))
def test_refused_function(source, message):
    assert refusal(source + "\n") == message


def test_refused_args():
    source = "def f(x: Annotated[int, Arg(min=1)], y: int): ...\n"
    assert refusal(source, extra_args={"z": nk.Arg()}) == 'm.f: args["z"] is no nk.Arg(...) of a parameter; the parameters are x, y'
    assert refusal(source, extra_args={"y": nk.Arg}) == 'm.f: args["y"] is no nk.Arg(...) of a parameter; the parameters are x, y'
    assert refusal(source, extra_args={"y": "help"}) == 'm.f: args["y"] is no nk.Arg(...) of a parameter; the parameters are x, y'
    assert refusal(source, extra_args={"x": nk.Arg()}) == 'm.f: the parameter "x" is described both by args= and by its annotation; keep one of them'


def test_refused_contexts():
    class Ctx:
        pass

    source = "def f(a: Ctx, b: Ctx): ...\n"
    module = load(COMMON + source)
    module.Ctx = Ctx
    for name, text in (("b", source), ("a", "def f(*a: Ctx): ...\n"), ("a", "def f(**a: Ctx): ...\n")):
        module = load(COMMON + text)
        module.Ctx = Ctx
        with pytest.raises(nk.RegistrationError) as caught:
            signature_of(module.f, owner="m.f", context_type=Ctx)
        assert caught.value.message == 'm.f: the parameter "%s" is annotated as the context, which a function takes once, under a name' % name
    module = load(COMMON + "def f(a: Optional[Ctx]): ...\n")
    module.Ctx = Ctx
    with pytest.raises(nk.RegistrationError) as caught:
        signature_of(module.f, owner="m.f", context_type=Ctx)
    assert caught.value.message.endswith(FORM + "write nk.Ctx alone")


def test_annotations_that_are_evaluated_late_and_fail():
    """Python 3.14 evaluates annotations when they are read; what that raises is a fault of ours."""

    class Late:
        __code__ = (lambda x: None).__code__
        __globals__ = {}
        __defaults__ = __kwdefaults__ = None

        @property
        def __annotations__(self):
            raise AttributeError("module 'x' has no attribute 'y'")

    with pytest.raises(nk.RegistrationError) as caught:
        signature_of(Late(), owner="m.f")
    assert caught.value.message == "m.f: has annotations that cannot be evaluated (AttributeError: module 'x' has no attribute 'y')" + TOP


def test_annotations_that_are_evaluated_late_name_their_parameter(monkeypatch):
    """NameError: annotationlib gives what it can, and the rest as ForwardRef, which names the parameter."""

    class Late:
        __code__ = (lambda x: None).__code__
        __globals__ = {}
        __defaults__ = __kwdefaults__ = None

        @property
        def __annotations__(self):
            raise NameError("name 'Task' is not defined")

    from typing import ForwardRef

    library = types.ModuleType("annotationlib")
    library.Format = types.SimpleNamespace(FORWARDREF=3)
    library.get_annotations = lambda thing, format: {"x": ForwardRef("Task")}
    monkeypatch.setitem(sys.modules, "annotationlib", library)
    with pytest.raises(nk.RegistrationError) as caught:
        signature_of(Late(), owner="m.f")
    assert caught.value.message == (
        "m.f: the parameter \"x\" is annotated \"Task\", which cannot be evaluated (NameError: name 'Task' is not defined)" + TOP)


def test_unions_as_text_on_3_9():
    """X | Y in text is rewritten where Python has no such operator; tried on every version."""
    import typing

    for text, wanted in (("int | None", typing.Optional[int]), ("list[int | str] | None", typing.Optional[typing.List[typing.Union[int, str]]]),
                         ("'a' if 0 | 1 else int", None), ("typing.Literal['a|b'] | int", typing.Union[typing.Literal["a|b"], int])):
        if wanted is not None:
            got = nk._types_evaluate(text, {"typing": typing}, True)
            assert nk.schema_of(got) == nk.schema_of(wanted)


def test_typ_r2_the_same_behaviour_however_it_is_written():
    forms = ["def f(a: Optional[int], b: Optional[List[str]] = None, c: Annotated[int, Arg(min=1)] = 1): ...\n"]
    forms.append(forms[0].replace("Optional[int]", "'Optional[int]'"))
    forms.append(forms[0].replace("Optional[int]", "Union[int, None]").replace("Optional[List[str]]", "Union[list[str], None]"))
    schemas = [signature_of(load(COMMON + form, future=future).f, owner="f").input.schema for form in forms for future in (True, False)]
    bars = "def f(a: int | None, b: list[str] | None = None, c: Annotated[int, Arg(min=1)] = 1): ...\n"
    schemas += [signature_of(load(COMMON + bars, future=future).f, owner="f").input.schema for future in ((True, False) if NEW else (True,))]
    assert all(schema == schemas[0] for schema in schemas) and len(schemas) >= 7
    assert refused("Union[List[int], Tuple[int, ...]]").endswith("but JSON cannot tell a list from a tuple; keep one of them")


# -- options and raw schemas --------------------------------------------------------------------------------------


def test_options_of_a_dataclass():
    module = load(COMMON + "@dataclass\nclass Globals:\n    root: Annotated[Optional[pathlib.Path], Arg('where', env='ROOT')] = None\n    limit: int = 5\n"
                  "    when: Optional[date] = None\n")
    shape, fields, make = nk._shapes_options(module.Globals, "App x")
    assert [(field.name, field.env, field.default, field.option_only, field.path) for field in fields] == [
        ("root", "ROOT", None, True, True), ("limit", None, 5, True, False), ("when", None, None, True, False)]
    assert make({"root": "a", "limit": 3}) == module.Globals(module.pathlib.Path("a"), 3)
    with pytest.raises(nk.Error) as caught:
        make({"when": "0000-01-01"})
    assert caught.value.code == "VALIDATION_ERROR"


def test_options_of_a_typed_dict_and_of_a_schema():
    module = load(COMMON + "class Plain: ...\n")
    shape, fields, make = nk._shapes_options(module.Loose, "App x")
    assert make({"title": "t"}) == {"title": "t"} and [field.required for field in fields] == [False]
    shape, fields, make = nk._shapes_options({"type": "object", "properties": {"my-name": {"type": "string"}}}, "App x")
    assert [(field.name, field.public_name, field.option_only) for field in fields] == [("my-name", "my-name", True)]
    with pytest.raises(nk.RegistrationError) as caught:
        nk._shapes_options(3, "App x")
    assert caught.value.message == "App x: global_options is 3; give a dataclass, a TypedDict or a JSON Schema"
    with pytest.raises(nk.RegistrationError) as caught:
        nk._shapes_options(module.Plain, "App x")
    assert caught.value.message == "App x: global_options is Plain; give a dataclass, a TypedDict or a JSON Schema"


RAW = {
    "type": "object",
    "properties": {"a": {"type": "integer", "default": 3, "description": "the a", "examples": [5, 6]}, "b_c": {"$ref": "#/$defs/x"}},
    "required": ["b_c"],
    "$defs": {"x": {"type": "string", "description": "an x"}},
}


def test_fields_of_a_raw_schema():
    shape, fields = nk._shapes_from_schema(RAW, owner="m.f")
    a, b = fields
    assert (a.name, a.required, a.default, a.help, a.example, a.public_name) == ("a", False, 3, "the a", 5, "a")
    assert (b.name, b.required, b.default, b.help, b.public_name, b.dashed) == ("b_c", True, nk.TYPES_ABSENT, "an x", "b_c", False)
    given = {"b_c": "x", "z": [1]}
    assert not any((b.secret, b.rest, b.variadic, b.option_only, b.path)) and (b.alias, b.env, b.example) == (None, None, None)
    values = shape.to_python(given)
    assert values == given and values["z"] is not given["z"] and shape.issues({"a": "x"})
    assert not shape.has_role("path")


COMPOSED = [
    ({"allOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"properties": {"b": {"type": "string"}}}]},
     {"a": ({"type": "integer"}, True), "b": ({"type": "string"}, False)}),
    ({"anyOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"properties": {"b": {"type": "string"}}, "required": ["b", "a"]}]},
     {"a": ({"type": "integer"}, True), "b": ({"type": "string"}, False)}),
    ({"oneOf": [{"properties": {"a": {"type": "boolean"}}}, {"properties": {"a": {"type": "string"}}}]}, {"a": ({"type": "boolean"}, False)}),
    ({"oneOf": [{"properties": {"a": {"type": "integer"}}}, {"properties": {"a": {"type": "string"}}}]},
     {"a": ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, False)}),
    ({"properties": {"a": {"type": "integer"}}, "anyOf": [{"properties": {"b": {}}}, {"type": "null"}]}, {"a": ({"type": "integer"}, False), "b": ({}, False)}),
    ({"$ref": "#/$defs/x", "$defs": {"x": {"properties": {"a": {}}}}}, {"a": ({}, False)}),
    ({"properties": {"a": True}}, {"a": (True, False)}),
    ({}, {}),
]


@pytest.mark.parametrize("schema, wanted", COMPOSED, ids=range(len(COMPOSED)))
def test_fields_through_compositions(schema, wanted):
    _, fields = nk._shapes_from_schema(schema, owner="m.f")
    assert {field.name: (field.schema, field.required) for field in fields} == wanted


@pytest.mark.parametrize("schema, message", [
    ({"type": "string"}, "m.f: no object fits the input schema; describe the arguments as its properties"),
    ({"type": "object", "properties": {"a": {"type": "integer", "default": "x"}}},
     'm.f: the default of "a" does not fit its own schema: expected a whole number, got the string "x"'),
    ({"type": "object", "anyOf": 3}, None), ({"properties": []}, None), ({"properties": {"a": {"minLength": "x"}}}, None),
    ({"required": [[]]}, None), ({"$ref": "#/$defs/none"}, None), ({"properties": {"a": {"pattern": "("}}}, None),
])
def test_refused_raw_schema(schema, message):
    with pytest.raises(nk.RegistrationError) as caught:
        nk._shapes_from_schema(schema, owner="m.f")
    assert caught.value.message == message if message else caught.value.message.startswith("m.f: ")


def test_raw_results():
    shape = nk._shapes_raw({"type": "object"}, "m.f")
    assert shape.to_json({"a": (1,)}) == {"a": [1]}
    with pytest.raises(nk._TypesFault):
        shape.to_json({"a": object()})
    with pytest.raises(nk.RegistrationError) as caught:
        nk._shapes_raw(int, "m.f")
    assert caught.value.message == "m.f: a JSON Schema is a dict, not a type"


def test_schema_of():
    module = load(COMMON)
    assert nk.schema_of(module.Movie) == MOVIE and nk.schema_of("int") == INTEGER
    with pytest.raises(nk.RegistrationError) as caught:
        nk.schema_of(complex)
    assert caught.value.message == "schema_of: the type is annotated complex" + FORM + "use tuple[float, float]"
    schema = nk.schema_of(str)
    schema["x"] = 1
    assert nk.schema_of(str) == STRING


# -- defaults inside ------------------------------------------------------------------------------------------------

INSIDE = """
@dataclass
class A:
    n: int = 0
    p: pathlib.Path = pathlib.Path("/etc/passwd")
@dataclass
class Factory:
    a: A = field(default_factory=lambda: A(n=7))
    tags: List[str] = field(default_factory=list)
class Named(NamedTuple):
    first: A
    key: Annotated[str, Arg(secret=True)] = "tok-SECRET"
class Part(TypedDict, total=False):
    a: A
    n: int
@dataclass
class Node:
    p: pathlib.Path = pathlib.Path("root")
    below: List["Node"] = field(default_factory=list)
    next: Optional["Node"] = None
@dataclass
class Strict:
    name: str
    p: pathlib.Path = pathlib.Path("strict")
"""
P = {"n": 0, "p": "/etc/passwd"}

#: annotation, value, the same with every default in it, places of paths
COMPLETED = [
    ("A", {}, P, ["/p"]), ("A", {"p": "x"}, {"n": 0, "p": "x"}, ["/p"]), ("List[A]", [{}, {"n": 3}], [P, {"n": 3, "p": "/etc/passwd"}], ["/0/p", "/1/p"]),
    ("Dict[str, A]", {"k": {}}, {"k": P}, ["/k/p"]), ("Tuple[int, A]", [1, {}], [1, P], ["/1/p"]), ("Tuple[A, ...]", [{}], [P], ["/0/p"]),
    ("Optional[A]", {}, P, ["/p"]), ("Optional[A]", None, None, []), ("Union[A, List[A], int]", [{}], [P], ["/0/p"]), ("Union[A, List[A], int]", 4, 4, []),
    ("Union[A, Strict]", {"name": "x"}, {"name": "x", "p": "strict"}, ["/p"]), ("Union[A, Strict]", {}, P, ["/p"]),
    ("Factory", {}, {"a": {"n": 7, "p": "/etc/passwd"}, "tags": []}, ["/a/p"]), ("Factory", {"a": {}}, {"a": P, "tags": []}, ["/a/p"]),
    ("Named", {"first": {}}, {"first": P, "key": "tok-SECRET"}, ["/first/p"]), ("Part", {}, {}, []), ("Part", {"a": {}}, {"a": P}, ["/a/p"]),
    ("Node", {"below": [{"below": [{}]}]},
     {"p": "root", "below": [{"p": "root", "below": [{"p": "root", "below": [], "next": None}], "next": None}], "next": None},
     ["/p", "/below/0/p", "/below/0/below/0/p"]),
    ("Dict[str, List[Optional[A]]]", {"k": [None, {}]}, {"k": [None, P]}, ["/k/1/p"]),
    # what is not valid stays as it is, for validation to refuse
    ("A", [1], [1], []), ("A", None, None, []), ("List[A]", {"a": {}}, {"a": {}}, []), ("Union[A, List[A]]", "x", "x", []),
    ("A", {"x": 1}, {"n": 0, "p": "/etc/passwd", "x": 1}, ["/p"]),
]


@pytest.mark.parametrize("annotation, given, wanted, paths", COMPLETED, ids=range(len(COMPLETED)))
def test_nested_defaults_are_part_of_the_arguments(annotation, given, wanted, paths):
    shape = shape_of(annotation, INSIDE)
    before = nk._json_dumps(given)
    made = shape.complete(given)
    assert nk._json_dumps(made) == nk._json_dumps(wanted) and nk._json_dumps(given) == before
    assert sorted(map(nk._json_pointer, shape.locate(made, "path"))) == sorted(paths)
    assert shape.complete(made) == made
    if not shape.issues(given):
        assert shape.issues(made) == [] and shape.to_json(shape.to_python(made)) == made


def test_a_nested_path_default_is_never_invented_behind_the_sandbox():
    """What the reader hands to the constructor is what complete() showed: paths and digests come from that."""
    signature = signature_of(load(COMMON + INSIDE + "def wipe(x: A, y: List[A] = ()): ...\n").wipe, owner="f")
    args = signature.input.complete({"x": {}})
    assert args == {"x": P, "y": []} and list(args) == ["x", "y"]
    assert signature.input.locate(args, "path") == [("x", "p")]
    args["x"]["p"] = "/sandbox/etc/passwd"
    (value, _), _ = signature.bind(signature.input.to_python(args), None)
    assert str(value.p) == "/sandbox/etc/passwd"


def test_nested_secrets_are_located():
    shape = shape_of("Named", INSIDE)
    assert shape.locate(shape.complete({"first": {}}), "secret") == [("key",)]


def test_complete_is_free_where_nothing_has_a_default():
    for annotation in ("int", "Dict[str, List[Movie]]", "Optional[Other]", "Any"):
        shape = shape_of(annotation, "@dataclass\nclass Other:\n    x: int\n")
        value = {"a": [{}]}
        assert not shape.has_defaults() and shape.complete(value) is value
    shape = nk._shapes_raw({"properties": {"a": {"default": {}}}}, "f")
    value = {}
    assert shape.complete(value) is value


def test_defaults_that_make_another_type_are_refused():
    source = "@dataclass\nclass Short:\n    n: int = 0\n@dataclass\nclass Long:\n    n: int\n    more: Optional[int] = None\n"
    shape = shape_of("List[Union[Long, Short]]", source)
    assert shape.issues([{}]) == []
    with pytest.raises(nk.Error) as caught:
        shape.complete([{}])
    assert caught.value.code == "VALIDATION_ERROR"
    assert caught.value.message == "Invalid input: 0 is a Short that its defaults make into another type; give more members"


def test_a_default_factory_is_called_for_each_call():
    source = "import itertools\ncounter = itertools.count()\n@dataclass\nclass C:\n    n: int = field(default_factory=lambda: next(counter))\n"
    shape = shape_of("C", source)
    assert "default" not in shape.schema["properties"]["n"]
    first, second = shape.complete({}), shape.complete({})
    assert second["n"] == first["n"] + 1 and shape.complete({"n": 50}) == {"n": 50}


def test_a_default_factory_of_a_class_that_holds_itself():
    shape = shape_of("Kin", "@dataclass\nclass Kin:\n    name: str\n    below: List['Kin'] = field(default_factory=lambda: [])\n")
    assert shape.complete({"name": "a", "below": [{"name": "b"}]}) == {"name": "a", "below": [{"name": "b", "below": []}]}


@pytest.mark.parametrize("factory, code, message", [
    ("lambda: late[0]", "INTERNAL_SERVER_ERROR", 'the default_factory of "n" gave no default: expected a whole number, got str'),
    ("lambda: 1 // late[1]", "INTERNAL_SERVER_ERROR", 'the default_factory of "n" gave no default: it raised ZeroDivisionError'),
    ("lambda: late[2]", "INTERNAL_SERVER_ERROR", 'the default_factory of "n" gave no default: expected at most 5, got the number 9'),
])
def test_a_default_factory_that_fails_later(factory, code, message):
    source = "late = [1, 1, 1]\n@dataclass\nclass C:\n    n: Annotated[int, Arg(max=5)] = field(default_factory=%s)\n" % factory
    shape = shape_of("List[C]", source)
    sys.modules["shapes_case"].late[:] = ["x", 0, 9]
    with pytest.raises(nk.Error) as caught:
        shape.complete([{}])
    assert (caught.value.code, caught.value.message) == (code, message)


FAULTY_DEFAULTS = [
    ("@dataclass\nclass X:\n    a: int = field(default_factory=lambda: 1 // 0)\n",
     'm.f: X in the parameter "x" has the default_factory of "a", which fails (ZeroDivisionError: integer division or modulo by zero); correct it'),
    ("@dataclass\nclass X:\n    a: int = field(default_factory=lambda: 'a')\n",
     'm.f: the field "a" of X in the parameter "x" has the default "a", which does not fit: expected a whole number, got str; give it another'),
    ("@dataclass\nclass X:\n    'X'\n    a: int = 10**5000\n",
     'm.f: the field "a" of X in the parameter "x" has the default <an integer of more than 4,300 digits>, which does not fit: '
     "is an integer of more than 4,300 digits; give it another"),
    ("@dataclass\nclass X:\n    a: str = '\\ud800'\n",
     'm.f: the field "a" of X in the parameter "x" has the default "\\ud800", which no JSON can hold: a lone surrogate; give it another'),
    ("@dataclass\nclass X:\n    a: Dict[str, List[str]] = field(default_factory=lambda: {'k': ['\\udfff']})\n",
     'm.f: the field "a" of X in the parameter "x" has the default {"k": ["\\udfff"]}, which no JSON can hold: a lone surrogate; give it another'),
    ("@dataclass\nclass X:\n    a: Annotated[str, Arg(secret=True)] = '\\ud800'\n",
     'm.f: the field "a" of X in the parameter "x" has the default, which no JSON can hold: a lone surrogate; give it another'),
    ("class X(TypedDict):\n    a: Annotated['X', Opt(default={})]\n",
     'm.f: the field "a" of X in the parameter "x" has a default that holds itself without end; give it another'),
    ("@dataclass\nclass L:\n    p: Annotated[str, Arg(secret=True)] = 'tok-SECRET'\n    n: int = 1\n@dataclass\nclass X:\n    a: L = L(n='x')\n",
     'm.f: the field "a" of X in the parameter "x" has the default, which does not fit at /n: expected a whole number, got str; give it another'),
]


@pytest.mark.parametrize("source, message", FAULTY_DEFAULTS, ids=range(len(FAULTY_DEFAULTS)))
def test_faulty_nested_default(source, message):
    source = source.replace("class L:", "class L(Hashed):").replace("@dataclass\nclass L", "class Hashed:\n    __hash__ = object.__hash__\n@dataclass(eq=False)\nclass L")
    assert refusal(source + "def f(x: X): ...\n") == message


def test_a_secret_inside_a_default_is_not_published():
    source = ("@dataclass(frozen=True)\nclass Login:\n    name: str = 'n'\n    password: Annotated[Optional[str], Arg(secret=True)] = 'tok-SECRET'\n"
              "@dataclass\nclass Deep:\n    login: Login = Login()\n    logins: List[Login] = field(default_factory=lambda: [Login()])\n"
              "def f(a: Login = Login(), b: List[Login] = [Login()], c: Optional[Login] = Login(), d: Dict[str, Login] = {'k': Login()},\n"
              "      e: Deep = Deep(), g: List[Login] = [], *, h: Annotated[Login, Opt(default=Login(), example={'password': 'tok-SECRET'})]): ...\n")
    source = source.replace("*, h: Annotated[Login, Opt(default=Login(), example={'password': 'tok-SECRET'})]",
                            "h: Annotated[Login, Opt(default=Login(), example=Login())] = nk.TYPES_ABSENT")
    signature = signature_of(load(COMMON + source).f, owner="f")
    assert "SECRET" not in repr(signature.input.schema)
    assert [field.name for field in signature.fields if "default" in field.schema] == ["g"]
    assert signature.fields[0].default == {"name": "n", "password": "tok-SECRET"}
    assert signature.input.schema["properties"]["a"]["properties"]["name"]["default"] == "n"


def test_a_constructor_shows_no_secret_of_what_it_holds():
    source = ("@dataclass\nclass Login:\n    word: Annotated[str, Arg(secret=True)]\n@dataclass\nclass Site:\n    logins: List[Login]\n"
              "    def __post_init__(self): raise ValueError('bad %s' % self.logins)\n")
    with pytest.raises(nk.Error) as caught:
        shape_of("Site", source).to_python({"logins": [{"word": "tok-SECRET"}]})
    assert caught.value.message == "Invalid input: the value is refused by Site" and "SECRET" not in repr(caught.value.to_wire())


# -- results without annotations ------------------------------------------------------------------------------------

KNOWN = [
    ("date(2024, 1, 2)", "2024-01-02"), ("DateTime(2024, 1, 2, 3, 4, 5)", "2024-01-02T03:04:05"), ("time(7, 30)", "07:30:00"),
    ("Color.RED", "red"), ("Level.HIGH", 2), ("Word.A", "a"), ("Task('t', date(2024, 1, 2))", {"title": "t", "due": "2024-01-02", "tags": []}),
    ("Pair(1)", {"left": 1, "right": "r"}), ("pathlib.Path('a/b')", "a/b"), ("decimal.Decimal('1.50')", "1.50"),
    ("uuid.UUID(int=1)", "00000000-0000-0000-0000-000000000001"), ("{3, 1, 2}", [1, 2, 3]), ("frozenset('ab')", ["a", "b"]), ("(1, (2,))", [1, [2]]),
    ("b'a'", "YQ=="), ("bytearray(b'a')", "YQ=="), ("collections.ChainMap({'a': 1})", {"a": 1}), ("Late(2024, 1, 2)", "2024-01-02"),
]


@pytest.mark.parametrize("expression, json", KNOWN, ids=range(len(KNOWN)))
def test_results_of_known_types_without_annotation(expression, json):
    module = load(COMMON + "class Late(date): ...\n")
    value = eval(expression, module.__dict__)
    for wrap, unwrap in ((lambda one: one, lambda one: one), (lambda one: {"k": [1, one, one]}, lambda made: made["k"][2])):
        assert unwrap(nk._types_write_free(wrap(value))) == json
    for annotation in ("dict", "Any", "Dict[str, Any]", "Dict[str, object]"):
        assert shape_of(annotation, output=True).to_json({"k": value}) == {"k": json}
    assert shape_of("list", output=True).to_json([value]) == [json]
    assert nk._shapes_raw({}, "f").to_json(value) == json


UNKNOWN = [
    ("{'a': [timedelta(1)]}", ("a", 0), "expected a JSON value, got timedelta; convert it, or annotate its type"),
    ("[Task]", (0,), "expected a JSON value, got type; convert it, or annotate its type"),
    ("(i for i in [1])", (), "expected a JSON value, got generator; convert it, or annotate its type"),
    ("[DateTime(1900, 1, 1, tzinfo=datetime.timezone(timedelta(seconds=1)))]", (0,), "has an offset that is no whole number of minutes"),
    ("{'x': {date(2024, 1, 1): 1}}", ("x",), "has a key of type date, where JSON has text"), ("{'x': float('nan')}", ("x",), "is NaN, which no JSON number is"),
    ("[decimal.Decimal('NaN')]", (0,), "is no finite decimal of a usual size"), ("[10**5000]", (0,), "is an integer of more than 4,300 digits"),
    ("[Task('t', timedelta(1))]", (0, "due"), "expected a JSON value, got timedelta; convert it, or annotate its type"),
    ("[{Color.RED, 'red'}]", (0,), "has an item twice"),
    ("[Task.__new__(Task)]", (0, "title"), "is missing"),
]


@pytest.mark.parametrize("expression, path, message", UNKNOWN, ids=range(len(UNKNOWN)))
def test_results_without_a_known_form(expression, path, message):
    value = eval(expression, load(COMMON).__dict__)
    with pytest.raises(nk._TypesFault) as caught:
        nk._types_write_free(value)
    assert (caught.value.path, caught.value.message) == (path, message)


def test_free_results_that_never_end():
    loop, deep = [], "x"
    loop.append({"a": loop})
    for _ in range(5000):
        deep = [deep, {1}]
    for value in (loop, deep):
        with pytest.raises(nk._TypesFault) as caught:
            nk._types_write_free(value)
        assert caught.value.message == "is nested too deeply or contains itself"
    plain = {"a": [1]}
    made = nk._types_write_free(plain)
    assert made == plain and made is not plain and made["a"] is not plain["a"]


def test_plain_results_cost_one_copy(monkeypatch):
    """The slow way, which knows more types than JSON, is not gone for what is JSON already."""
    monkeypatch.setattr(nk, "_types_write_known", None)
    rows = [{"id": 1, "name": "row", "ok": True, "size": 1.5, "tags": ["a", ("b",)], "none": None}] * 3
    assert nk._types_write_free(rows) == nk._json_copy(rows)


# -- classes and schemas made to fail -------------------------------------------------------------------------------

SENSELESS = [
    ({"properties": {1: {}}}, "m.f: the schema is no JSON, for it holds a key of the Python type int at \"/properties/1\""),
    ({"minLength": 10**5000}, "m.f: the schema is no JSON, for it holds an integer of more than 4,300 digits at \"/minLength\""),
    ({"enum": [{1}]}, "m.f: the schema is no JSON, for it holds a value of the Python type set at \"/enum/0\""),
    ({"default": float("nan")}, "m.f: the schema is no JSON, for it holds NaN at \"/default\""),
    ("x", "m.f: a JSON Schema is a dict, not a str"), (None, "m.f: a JSON Schema is a dict, not a NoneType"), ([], "m.f: a JSON Schema is a dict, not a list"),
]


@pytest.mark.parametrize("schema, message", SENSELESS, ids=range(len(SENSELESS)))
def test_a_raw_schema_is_json(schema, message):
    for door in (lambda: nk._shapes_from_schema(schema, owner="m.f"), lambda: nk._shapes_raw(schema, "m.f")):
        with pytest.raises(nk.RegistrationError) as caught:
            door()
        assert caught.value.message == message
    with pytest.raises(nk.RegistrationError):
        nk._shapes_options(schema, "m.f")


def test_a_raw_schema_that_contains_itself():
    loop = {"type": "object", "properties": {}}
    loop["properties"]["a"] = loop
    deep = {}
    for _ in range(3000):
        deep = {"properties": {"a": deep}}
    for schema, end in ((loop, 'a value that contains itself at "/properties/a"'), (deep, None)):
        for door in (nk._shapes_from_schema, nk._shapes_options):
            with pytest.raises(nk.RegistrationError) as caught:
                door(schema, owner="m.f")
            assert end is None or caught.value.message == "m.f: the schema is no JSON, for it holds " + end


def test_a_raw_schema_is_not_the_programs_any_more():
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    shape, fields = nk._shapes_from_schema(schema, owner="m.f")
    schema["properties"]["a"]["type"] = "string"
    assert shape.issues({"a": 1}) == [] and fields[0].schema == INTEGER


@pytest.mark.parametrize("name", ["__origin__", "__metadata__", "__supertype__", "__dataclass_fields__", "__required_keys__", "__args__"])
def test_a_class_whose_metaclass_raises(name):
    source = ("class Meta(type):\n    def __getattr__(self, name):\n        if name == %r:\n            raise OSError('no ' + name)\n"
              "        raise AttributeError(name)\nclass Trap(metaclass=Meta): ...\n@dataclass\nclass Holder:\n    a: List[Trap]\n" % name)
    module = load(COMMON + source)
    for text, place in (("def f(x: Trap): ...", 'the parameter "x" '), ("def f(x: int, y: Holder): ...", "the field"), ("def f() -> Trap: ...", "the result ")):
        message = refusal(source + text + "\n")
        assert message.startswith("m.f: " + place)
    for door in (lambda: nk._shapes_options(module.Trap, "App x"), lambda: nk.schema_of(module.Trap)):
        with pytest.raises(nk.RegistrationError):
            door()


def test_what_annotation_text_raised_is_said():
    assert refused("Annotated[int, nk.Arg(minimum=1)]").startswith(
        'is annotated "Annotated[int, nk.Arg(minimum=1)]", which cannot be evaluated (TypeError: ')
    message = refused("Annotated[int, nk.Arg(minimum=1)]")
    assert message.endswith("got an unexpected keyword argument 'minimum'); correct it") and "TYPE_CHECKING" not in message
    assert refused("nk.Nothing").endswith("no attribute 'Nothing')" + TOP)


def test_typ_application_options_are_refused_alike():
    """Whatever Python cannot hold is VALIDATION_ERROR, nested defaults are there."""
    source = ("@dataclass\nclass Inner:\n    p: pathlib.Path = pathlib.Path('in')\n@dataclass\nclass G:\n    when: Optional[date] = None\n"
              "    n: Annotated[int, Opt(default=4)] = field()\n    inner: Inner = field(default_factory=Inner)\n    def __post_init__(self):\n"
              "        if self.n > 5: raise ValueError('n is large')\n").replace(" = field()", "")
    source = source.replace("    when: Optional[date] = None\n    n: Annotated[int, Opt(default=4)]\n", "    n: Annotated[int, Opt(default=4)]\n    when: Optional[date] = None\n")
    module = load(COMMON + source)
    shape, fields, make = nk._shapes_options(module.G, "App x")
    assert make({}) == module.G(4, None, module.Inner(module.pathlib.Path("in")))
    for given in ({"when": "0000-01-01"}, {"n": 6}):
        with pytest.raises(nk.Error) as caught:
            make(given)
        assert caught.value.code == "VALIDATION_ERROR"


def test_no_message_ends_with_a_full_stop():
    for annotation in ("complex", "Missing", "Annotated[str, Arg(3)]", "Set[List[int]]", "Alias"):
        assert not refused(annotation, "Alias = 'Alias'\n").endswith(".")


# -- cost -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", [
    "def f(title: str, count: int = 0, flag: bool = False) -> dict: ...",
    "from __future__ import annotations\ndef f(title: str, tags: list[str] = (), *rest: int) -> dict[str, int]: ...",
])
def test_plain_annotations_import_nothing(source):
    code = ("import sys\nsys.path.insert(0, %r)\nimport knaif as nk\nbefore = set(sys.modules)\n%s\n"
            "s = nk._shapes_signature(f, owner='f')\ns[0].to_python({'title': 'x'})\nprint(sorted(set(sys.modules) - before))\n")
    lines = (code % (HERE, source)).split("\n")
    if "__future__" in source:
        lines.insert(0, "from __future__ import annotations")
        lines.remove("from __future__ import annotations") if lines.count("from __future__ import annotations") > 2 else None
        text = "\n".join(line for index, line in enumerate(lines) if index == 0 or "__future__" not in line)
    else:
        text = "\n".join(lines)
    out = subprocess.run([sys.executable, "-S", "-c", text], capture_output=True, text=True, timeout=60)
    assert out.stdout.strip() == "[]", out.stderr


# -- fuzz -----------------------------------------------------------------------------------------------------------


def random_type(chance, level=0):
    """Return (annotation, function that makes a random Python value of it)."""
    import datetime
    import decimal
    import enum
    import pathlib
    import typing
    import uuid
    from dataclasses import make_dataclass

    def text():
        return "".join(chance.choice("ab\u00e9 \n\U0001f600-1") for _ in range(chance.randrange(5)))

    kind = chance.randrange(13 if level > 2 else 21)
    if kind == 0:
        return str, text
    if kind == 1:
        return int, lambda: chance.choice([0, -1, 2**70, chance.randrange(-999, 999)])
    if kind == 2:
        return float, lambda: chance.choice([0.5, -1e300, chance.uniform(-9, 9)])
    if kind == 3:
        return bool, lambda: chance.random() < 0.5
    if kind == 4:
        return type(None), lambda: None
    if kind == 5:
        return datetime.date, lambda: datetime.date.fromordinal(chance.randrange(1, 3652059))
    if kind in (6, 7):
        zone = None if chance.random() < 0.5 else datetime.timezone(datetime.timedelta(minutes=chance.randrange(-1439, 1440)))
        make = datetime.datetime if kind == 6 else datetime.time
        first = (chance.randrange(1, 9999), chance.randrange(1, 13), chance.randrange(1, 29)) if kind == 6 else ()
        return make, lambda: make(*first, chance.randrange(24), chance.randrange(60), chance.randrange(60),
                                  chance.choice([0, chance.randrange(10**6)]), zone)
    if kind == 8:
        return uuid.UUID, lambda: uuid.UUID(int=chance.randrange(2**128))
    if kind == 9:
        return decimal.Decimal, lambda: decimal.Decimal(chance.randrange(-10**9, 10**9)).scaleb(chance.randrange(-30, 30))
    if kind == 10:
        return bytes, lambda: bytes(chance.randrange(256) for _ in range(chance.randrange(6)))
    if kind == 11:
        return pathlib.PurePosixPath, lambda: pathlib.PurePosixPath(text().replace("\n", "") or "x")
    if kind == 12:
        members = enum.Enum("E", [("M%d" % n, value) for n, value in enumerate(chance.sample(["a", "b", 1, 2.5, None, "c"], 3))])
        return members, lambda: chance.choice(list(members))
    inner, make = random_type(chance, level + 1)
    if kind == 13:
        return typing.List[inner], lambda: [make() for _ in range(chance.randrange(4))]
    if kind == 14:
        return typing.Dict[str, inner], lambda: {text(): make() for _ in range(chance.randrange(4))}
    if kind == 15:
        return typing.Tuple[inner, ...], lambda: tuple(make() for _ in range(chance.randrange(4)))
    other, make_other = random_type(chance, level + 1)
    if kind == 16:
        return typing.Tuple[inner, other], lambda: (make(), make_other())
    if kind == 17:
        return typing.Optional[inner], lambda: make() if chance.random() < 0.7 else None
    if kind == 18:
        return typing.Union[inner, other], lambda: make() if chance.random() < 0.5 else make_other()
    if kind == 19:
        made = make_dataclass("D%d" % chance.randrange(10**9), [("a", inner), ("b", other)])
        return made, lambda: made(make(), make_other())
    made = typing.NamedTuple("N", [("a", inner), ("b", other)])
    return made, lambda: made(make(), make_other())


def test_random_types_both_ways(rng):
    """Python -> JSON -> Python is the identity and the JSON is valid; unions take the narrowest branch both times."""
    chance = rng
    kept = 0
    for _ in range(300):
        note, make = random_type(chance)
        try:
            compiler = nk._ShapesCompiler("x")
            shape = compiler.complete(compiler.shape(note, {}))
        except nk.RegistrationError as error:
            assert "JSON cannot tell" in error.message, error.message
            continue
        for _ in range(4):
            value = make()
            json = shape.to_json(value)
            assert shape.issues(json) == [], (note, json)
            assert nk._json_loads(nk._json_dumps(json)) == json
            back = shape.to_python(json)
            assert same(shape.to_json(back), json)
            if "Union" not in repr(note) and "D" not in repr(note) and "N" not in repr(note):
                assert back == value and type(back) is type(value), (note, value)
            kept += 1
    assert kept > 600


def test_random_json_never_ends_in_a_traceback(rng):
    """Valid JSON becomes Python or a VALIDATION_ERROR; anything at all can be located in and read as a model means it."""
    chance = rng
    texts = ["", "0000-01-01", "2024-02-29", "2024-02-29T23:59:60Z", "24:00", "07:30", "YQ==", "NaN", "1e9999", "a", "\ud800", "\0", "red"]

    def value(level=0):
        kind = chance.randrange(8 if level < 3 else 6)
        if kind < 3:
            return chance.choice(texts)
        if kind < 6:
            return chance.choice([None, True, 0, 1, 1.0, 2.5, 10**400, -5])
        if kind == 6:
            return [value(level + 1) for _ in range(chance.randrange(4))]
        return {key: value(level + 1) for key in chance.sample(["a", "b", "x", "name", "below"], chance.randrange(4))}

    for _ in range(150):
        note, _ = random_type(chance)
        try:
            compiler = nk._ShapesCompiler("x")
            shape = compiler.complete(compiler.shape(note, {}))
        except nk.RegistrationError:
            continue
        for _ in range(10):
            json = value()
            shape.locate(json, "path"), shape.locate(json, "secret"), shape.read_model(json)
            if not shape.issues(json):
                try:
                    shape.to_python(json)
                except nk.Error as error:
                    assert error.code == "VALIDATION_ERROR"
