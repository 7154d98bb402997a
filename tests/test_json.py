"""JSON: strict reading, writing, canonical form, keys, texts for messages."""
import collections
import enum
import json
import math
import os
import subprocess
import sys

import pytest

import knaif as nk

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SEED = 14
HIDDEN = "\x7f\x80\x9f\u061c\u200e\u200f\u2028\u2029\u202a\u202e\u2066\u2069"


def fault_of(text, **options):
    with pytest.raises(nk._JsonFault) as caught:
        nk._json_loads(text, **options)
    return str(caught.value)


def write_fault(value):
    with pytest.raises(nk._JsonFault) as caught:
        nk._json_dumps(value)
    return caught.value.reason, caught.value.path


# -- reading ------------------------------------------------------------------------------------------------------

GOOD = [
    ("null", None), (" true\t", True), ("\r\nfalse\n", False), ("0", 0), ("-0", 0), ("-0.0", -0.0), ("1.5", 1.5),
    ("1e2", 100.0), ("1E+2", 100.0), ("1e-400", 0.0), ("12e5", 1200000.0), ("1.7976931348623157e308", sys.float_info.max),
    ('""', ""), ('"a\\u00e9\\n\\/"', "a\u00e9\n/"), ('"\\ud83d\\ude00"', "\U0001f600"), ('"\\\\ud800"', "\\ud800"),
    ('"\\\\\\\\ud800"', "\\\\ud800"), ('"\\uD83D\\uDE00x"', "\U0001f600x"), ("[]", []), ("{}", {}), ('{"":{"":[]}}', {"": {"": []}}),
    ('{"a":1,"A":2}', {"a": 1, "A": 2}), ("9" * 4300, int("9" * 4300)), ("-" + "9" * 4300, -int("9" * 4300)),
    ("[" + "9" * 308 + ".5]", [float("9" * 308)]), ('"' + "9" * 5000 + '"', "9" * 5000), ('["1e999",1]', ["1e999", 1]),
    ("1" + "0" * 308, 10**308), ('"\u65e5\u672c \u2028"', "\u65e5\u672c \u2028"),
]


@pytest.mark.parametrize("text, value", GOOD, ids=range(len(GOOD)))
def test_read_value(text, value):
    for data in (text, text.encode()):
        got = nk._json_loads(data)
        assert got == value and type(got) is type(value)


BAD = [
    ("", "no value"),
    (" \n\t", "no value"),
    ("\x0c1", "an unexpected character at character 1"),
    ("\u00a01", "an unexpected character at character 1"),
    ("nul", "an unexpected character at character 1"),
    ("True", "an unexpected character at character 1"),
    ("'a'", "an unexpected character at character 1"),
    ("[1", "an unfinished value at character 3"),
    ("[1,", "an unfinished value at character 4"),
    ('{"a"', "an unfinished value at character 5"),
    ('{"a":', "an unfinished value at character 6"),
    ("[1,]", "an unexpected character at character 4"),
    ("[1 , ]", "an unexpected character at character 6"),
    ('{"a":1,}', "an unexpected character at character 8"),
    ('{"a":1, }', "an unexpected character at character 9"),
    ("{a:1}", "an unexpected character at character 2"),
    ('{"a" 1}', "an unexpected character at character 6"),
    ("[1 2]", "an unexpected character at character 4"),
    ("{1:2}", "an unexpected character at character 2"),
    ("// x\n1", "an unexpected character at character 1"),
    ("1 2", "text after the value at character 3"),
    ("1,", "text after the value at character 2"),
    ("{}}", "text after the value at character 3"),
    ("01", "text after the value at character 2"),
    ("1.", "text after the value at character 2"),
    ("1e", "text after the value at character 2"),
    ("1\x00", "text after the value at character 2"),
    ("+1", "an unexpected character at character 1"),
    (".5", "an unexpected character at character 1"),
    ("-", "an unexpected character at character 1"),
    ("0x10", "text after the value at character 2"),
    ("1_000", "text after the value at character 2"),
    ("\uff11", "an unexpected character at character 1"),
    ('"a', "a string without its closing quote at character 1"),
    ('"a\\', "a string without its closing quote at character 1"),
    ('"a\\"', "a string without its closing quote at character 1"),
    ('"a\nb"', "a control character in a string at character 3"),
    ('"a\x00"', "a control character in a string at character 3"),
    ('"\\x41"', "an unknown escape in a string at character 2"),
    ('"\\u12g4"', "an unknown escape in a string at character 3"),
    ("NaN", "NaN, which is no JSON number"),
    ("[Infinity]", "Infinity, which is no JSON number"),
    ('{"a":-Infinity}', "-Infinity, which is no JSON number"),
    ('{"a":1,"a":2}', "a repeated key"),
    ('[{"a":1,"b":{"x":0,"x":0}}]', "a repeated key"),
    ('{"a":1,"\\u0061":2}', "a repeated key"),
    ("\ufeff1", "a byte order mark at character 1"),
    ('"\\ud800"', "a lone surrogate at character 2"),
    ('"ab\\uDC00"', "a lone surrogate at character 4"),
    ('"\\ud83d\\ud83d\\ude00"', "a lone surrogate at character 2"),
    ('"\\ude00\\ud83d"', "a lone surrogate at character 2"),
    ('"\\ud83dx\\ude00"', "a lone surrogate at character 2"),
    ('"\\ud83d\\\\\\ude00"', "a lone surrogate at character 2"),
    ('{"\\\\\\ud800":1}', "a lone surrogate at character 5"),
    ("9" * 4301, "an integer of more than 4,300 digits"),
    ("[-" + "9" * 4301 + "]", "an integer of more than 4,300 digits"),
    ("9" * 4400 + ".0", "a number of more than 4,300 digits"),
    ("0." + "1" * 4400, "a number of more than 4,300 digits"),
    ("1e" + "0" * 4400, "a number of more than 4,300 digits"),
    ("1e400", "a number too large for a float"),
    ("[1,-1E400]", "a number too large for a float"),
    ("1.0e+309", "a number too large for a float"),
    ("9" * 309 + ".0", "a number too large for a float"),
    ("9" * 300 + "e9", "a number too large for a float"),
]


@pytest.mark.parametrize("text, message", BAD, ids=range(len(BAD)))
def test_read_refused(text, message):
    assert fault_of(text) == message
    assert fault_of(text.encode()) == message


BAD_BYTES = [
    (b'"\xff"', "bytes that are not UTF-8 at character 2"),
    ('"\u65e5'.encode() + b'\xc3"', "bytes that are not UTF-8 at character 3"),
    (b'"\xed\xa0\x80"', "bytes that are not UTF-8 at character 2"),
    (b'"\xc0\x80"', "bytes that are not UTF-8 at character 2"),
    (b"\xef\xbb\xbf{}", "a byte order mark at character 1"),
    ("{}".encode("utf-16"), "bytes that are not UTF-8 at character 1"),
    ("{}".encode("utf-16-le"), "an unexpected character at character 2"),
]


@pytest.mark.parametrize("data, message", BAD_BYTES)
def test_read_refused_bytes(data, message):
    assert fault_of(data) == message


def test_read_refused_raw_surrogate():
    assert fault_of('"a\ud800"') == "a lone surrogate at character 3"
    assert fault_of('"\ud83d\ude00"') == "a lone surrogate at character 2"


def test_read_size():
    assert nk._json_loads('"abc"', max_bytes=5) == "abc"
    assert fault_of('"abc"', max_bytes=4) == "more than 4 bytes"
    assert fault_of('"\u65e5"', max_bytes=4) == "more than 4 bytes"
    assert fault_of('"\u65e5"'.encode(), max_bytes=4) == "more than 4 bytes"
    assert nk._json_loads('"\u65e5"', max_bytes=5) == "\u65e5"
    assert fault_of(" " * 8388608 + "1") == "more than 8,388,608 bytes"


@pytest.mark.parametrize("first, last", [("[", "]"), ('{"a":', "}"), ('[{"[":', "}]")])
def test_read_depth(first, last):
    per = first.replace('"[":', "").count("[") + first.count("{")
    fits, over = 128 // per, 128 // per + 1
    assert nk._json_loads(first * fits + "1" + last * fits) is not None
    assert fault_of(first * over + "1" + last * over) == "more than 128 levels"
    assert fault_of(first * over) == "more than 128 levels"
    # Wide is not deep; brackets in strings are text; the limit of the caller counts.
    wide = "[" + ",".join([first * 3 + '"[[[[{{{{\\"[[[[\\\\"' + last * 3] * 500) + "]"
    assert len(nk._json_loads(wide)) == 500
    assert len(nk._json_loads(wide, max_depth=1 + 3 * per)) == 500
    assert fault_of(wide, max_depth=3 * per) == "more than %d levels" % (3 * per)


def test_read_depth_exact_beside_wide_ones():
    deep = "[" * 127 + "]" * 127
    assert len(nk._json_loads("[" + ",".join(["[[]]"] * 500 + [deep]) + "]")) == 501
    assert fault_of("[" + ",".join(["[[]]"] * 500 + ["[" + deep + "]"]) + "]") == "more than 128 levels"
    assert fault_of('"' + "[" * 200 + '"' + "[" * 200, max_depth=2) == "more than 2 levels"
    assert nk._json_loads('"' + "[" * 200 + '"', max_depth=2) == "[" * 200


def test_read_large_is_quick():
    """Each of these takes milliseconds; anything worse than linear would take minutes."""
    assert fault_of("[" * 100000) == "more than 128 levels"
    assert fault_of('[{"a":' * 100000) == "more than 128 levels"
    assert fault_of('{"a":' * 100000 + "1" + "}" * 100000) == "more than 128 levels"
    assert len(nk._json_loads('"' + "a" * 5000000 + '"')) == 5000000
    assert fault_of('"' * 5000000) == "text after the value at character 3"
    assert fault_of('"' + "\\" * 5000001) == "a string without its closing quote at character 1"
    assert fault_of('"' + "\\ud83d" * 800000 + '"') == "a lone surrogate at character 2"
    assert len(nk._json_loads("[" + ",".join(["9" * 4300] * 100) + "]")) == 100
    assert fault_of("9" * 5000000) == "an integer of more than 4,300 digits"
    assert nk._json_loads(" " * 4000000 + "1" + " " * 4000000) == 1


def test_read_numbers_at_every_offset():
    """A long run of digits is found wherever it stands."""
    for before in range(0, 640, 7):
        assert fault_of('["' + "x" * before + '",' + "9" * 309 + ".0]") == "a number too large for a float"
        assert fault_of('["' + "x" * before + '",' + "9" * 4301 + "]") == "an integer of more than 4,300 digits"
        assert nk._json_loads('["' + "x" * before + '",' + "9" * 308 + ".0]")[1] == float("9" * 308)


def test_read_under_lowered_limits():
    """A program may have lowered the interpreter's own limits, or may stand deep in its stack."""
    if hasattr(sys, "set_int_max_str_digits"):
        before = sys.get_int_max_str_digits()
        sys.set_int_max_str_digits(640)
        try:
            assert fault_of("[" + "1" * 1000 + "]") == "more digits or levels than this program admits"
            assert fault_of("1" * 300 + "0" * 700) == "more digits or levels than this program admits"
        finally:
            sys.set_int_max_str_digits(before)


def test_near_the_end_of_the_stack():
    """Deep in the stack of a program every function still answers with a value or with our own fault."""
    value = nested(60)
    text = "[" * 60 + "]" * 60

    def at_depth(levels, work):
        if levels:
            return at_depth(levels - 1, work)
        try:
            return work()
        except nk._JsonFault as fault:
            return str(fault)

    depth, frame = 0, sys._getframe()
    while frame is not None:
        depth, frame = depth + 1, frame.f_back
    refused = set()
    works = (lambda: nk._json_loads(text), lambda: nk._json_dumps(value, pretty=True), lambda: nk._json_copy(value),
             lambda: nk._json_canonical(value), lambda: nk._json_key(value))
    for number, work in enumerate(works):
        for room in range(90, 12, -1):
            got = at_depth(sys.getrecursionlimit() - depth - room, work)
            if isinstance(got, str) and got.startswith("more"):
                refused.add(number)
    assert {1, 2, 3, 4} <= refused or (sys.version_info >= (3, 12) and {2, 3, 4} <= refused)


def test_read_without_c_helpers(monkeypatch):
    monkeypatch.setitem(sys.modules, "_json", None)
    for text, value in GOOD:
        assert nk._json_loads(text) == value
    for text, message in BAD:
        assert fault_of(text) == message


def random_value(rng, depth=3):
    kind = rng.randrange(8 if depth else 6)
    if kind == 6:
        return [random_value(rng, depth - 1) for _ in range(rng.randrange(5))]
    if kind == 7:
        return {random_text(rng): random_value(rng, depth - 1) for _ in range(rng.randrange(5))}
    if kind == 0:
        return rng.choice([None, True, False])
    if kind == 1:
        return rng.choice([0, 1, -1, 2**53 + 1, 9223372036854775807, -(10**40), rng.randrange(10**9)])
    if kind == 2:
        return rng.choice([0.0, -0.0, 1.0, 1e16, 1e-7, 0.1, 1e300, 5e-324, rng.random(), rng.uniform(-1e20, 1e20)])
    return random_text(rng)


def random_text(rng):
    alphabet = 'ab"\\/\x00\x1f\n\u00e9\u65e5\U0001f600[]{}1e9' + HIDDEN
    return "".join(rng.choice(alphabet) for _ in range(rng.randrange(8)))


def reference(text):
    """Return what json.loads says with the strictness that it can be told; (None,) for a refusal."""

    def pairs(items):
        if len(dict(items)) != len(items):
            raise ValueError
        return dict(items)

    def real(digits):
        if math.isinf(float(digits)):
            raise ValueError
        return float(digits)

    def refuse(word):
        raise ValueError

    try:
        value = json.loads(text, object_pairs_hook=pairs, parse_float=real, parse_constant=refuse)
        json.dumps(value, ensure_ascii=False).encode()
        return [value]
    except (ValueError, RecursionError):
        return None


def test_read_fuzz(rng):
    """Mutated JSON text is read exactly as json.loads reads it, or refused, and refused only by our own fault."""
    pieces = ['"', "\\", "[", "]", "{", "}", ",", ":", "e", "E9", "9", "-", ".", " ", "null", "\\ud83d", "\\ude00", "NaN", "1e999",
              "\x01", "\ufeff", "'", "\u2028"]
    accepted = 0
    for _ in range(6000):
        text = json.dumps(random_value(rng), ensure_ascii=rng.random() < 0.5)
        for _ in range(rng.randrange(3)):
            place = rng.randrange(len(text) + 1)
            text = text[:place] + rng.choice(pieces + [""]) + text[place + rng.randrange(2):]
        expected = reference(text)
        try:
            got = [nk._json_loads(text)]
            accepted += 1
        except nk._JsonFault:
            got = None
        assert got == expected and repr(got) == repr(expected), text
    assert 1000 < accepted < 5900


def test_read_depth_fuzz(rng):
    """The depth judged on the text is the depth of the value, whatever stands in its strings."""

    def depth(value):
        if isinstance(value, dict):
            value = list(value.values())
        return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0

    for _ in range(1500):
        value = random_value(rng, 6)
        text = json.dumps(value, ensure_ascii=False)
        levels = depth(value)
        if levels:
            assert nk._json_loads(text, max_depth=levels) == value
            assert fault_of(text, max_depth=levels - 1) == "more than %d levels" % (levels - 1)


def test_sch_05_long_digits_and_deep_nesting():
    for text in ("9" * 4400, "[" * 100000, '{"a":' * 100000, "[" + "9" * 4400 + ",1]"):
        message = fault_of(text)
        assert len(message) < 60 and "999" not in message and "[[" not in message
    assert fault_of("[" * 900 + "]" * 900) == "more than 128 levels"
    deep = value = []
    for _ in range(900):
        value.append([])
        value = value[0]
    assert write_fault(deep)[0] == "more than 128 levels"


def test_sch_r1_repeated_keys_and_no_numbers():
    assert fault_of('{"a":1,"a":2}') == "a repeated key"
    for word in ("NaN", "Infinity", "-Infinity"):
        assert fault_of('{"a":%s}' % word) == word + ", which is no JSON number"


# -- writing ------------------------------------------------------------------------------------------------------

WRITTEN = [
    (None, "null"), (True, "true"), (1.0, "1.0"), (-0.0, "-0.0"), (1e16, "1e+16"), (0.1, "0.1"), (10**40, "1" + "0" * 40),
    ("a\"\\\n\x1f/", '"a\\"\\\\\\n\\u001f/"'), ((1, (2,)), "[1,[2]]"), ({"b": 1, "a": [True, None]}, '{"b":1,"a":[true,null]}'),
    ([], "[]"), ({}, "{}"), ("\u65e5\u672c", '"\u65e5\u672c"'), ("\x7f\x85\u202e", '"\\u007f\\u0085\\u202e"'),
    ("\ud800x\udcff", '"\\ud800x\\udcff"'), ({"\u2028": "\u2029"}, '{"\\u2028":"\\u2029"}'), ("\x7f", '"\\u007f"'),
    ("caf\u00e9 \u2013 \u2026 \u00a9", '"caf\u00e9 \u2013 \u2026 \u00a9"'),
]


@pytest.mark.parametrize("value, text", WRITTEN, ids=range(len(WRITTEN)))
def test_write_value(value, text):
    assert nk._json_dumps(value) == text
    assert json.loads(nk._json_dumps(value, ascii_only=True)) == json.loads(text)
    assert nk._json_dumps(value, ascii_only=True).isascii()


def test_write_pretty():
    value = {"a": [1, {"b": "\u00e9", "c": []}, [], [[2, 3], {}]], "d": {}, "e": {"f": None}}
    assert nk._json_dumps(value, pretty=True) == json.dumps(value, indent=2, ensure_ascii=False)
    assert nk._json_dumps(value, pretty=True, ascii_only=True) == json.dumps(value, indent=2)
    assert nk._json_dumps([], pretty=True) == "[]" and nk._json_dumps(7, pretty=True) == "7"


@pytest.mark.parametrize("helpers", [True, False])
def test_write_fuzz(helpers, monkeypatch, rng):
    """Random values come out as json.dumps writes them, but for the characters that are always escaped."""
    if not helpers:
        monkeypatch.setitem(sys.modules, "_json", None)
    for _ in range(1500):
        value = random_value(rng, 4)
        if rng.random() < 0.2:
            value = [{"k": value, "n": 1}] * 70 if rng.random() < 0.5 else [{"k": 1.5, "n": "x"}] * 70 + [value]
        for pretty in (False, True):
            plain = json.dumps(value, indent=2 if pretty else None, separators=None if pretty else (",", ":"), ensure_ascii=False)
            for character in HIDDEN:
                plain = plain.replace(character, "\\u%04x" % ord(character))
            assert nk._json_dumps(value, pretty=pretty) == plain
            ascii_text = nk._json_dumps(value, pretty=pretty, ascii_only=True)
            assert ascii_text.isascii() and "\x7f" not in ascii_text
            assert repr(nk._json_loads(ascii_text)) == repr(value)


def test_write_hidden_in_large_text():
    for filler in ("a", "\u00e9", "\u65e5"):
        for character in HIDDEN + "\ud800":
            text = nk._json_dumps([filler * 70000 + character])
            assert text == '["' + filler * 70000 + "\\u%04x" % ord(character) + '"]'
        assert nk._json_dumps(filler * 70000) == '"' + filler * 70000 + '"'


class Word(str, enum.Enum):
    RED = "red"


class Number(enum.IntEnum):
    ONE = 1


class Odd(float):
    def __repr__(self):
        return "odd"


Point = collections.namedtuple("Point", "x y")


def test_write_subclasses_as_their_base():
    value = {Word.RED: Word.RED, "n": Number.ONE, "p": Point(1, 2), "o": collections.OrderedDict(a=1), "f": Odd(1.5),
             "c": collections.Counter("a"), "d": collections.defaultdict(list, a=[Number.ONE])}
    text = '{"red":"red","n":1,"p":[1,2],"o":{"a":1},"f":1.5,"c":{"a":1},"d":{"a":[1]}}'
    assert nk._json_dumps(value) == text
    copied = nk._json_copy(value)
    assert nk._json_dumps(copied) == text
    assert type(copied["red"]) is str and type(copied["n"]) is int and type(copied["p"]) is list and type(copied["f"]) is float
    assert [type(key) for key in copied][0] is str


def self_holding():
    value = {"a": [1, {}]}
    value["a"][1]["b"] = value
    return value


def doubling():
    value = []
    value.extend([value, value])
    return value


def nested(levels, inner=()):
    value = list(inner)
    for _ in range(levels - 1):
        value = [value]
    return value


REFUSED = [
    (float("nan"), "NaN", ()),
    ({"n": 0, "hi": [float("inf")]}, "an infinite number", ("hi", 0)),
    ([{"a": 1.0}, {"a": -math.inf}], "an infinite number", (1, "a")),
    ([Odd("nan")], "NaN", (0,)),
    ({"a": {1}}, "a value of the Python type set", ("a",)),
    ([b"x"], "a value of the Python type bytes", (0,)),
    ([object], "a value of the Python type type", (0,)),
    (1j, "a value of the Python type complex", ()),
    ({"a": {1: 2}}, "a key of the Python type int", ("a", 1)),
    ({"a": {None: 2}}, "a key of the Python type NoneType", ("a",)),
    ([{(1,): 2}], "a key of the Python type tuple", (0,)),
    ([1] * 100 + [{True: 1}], "a key of the Python type bool", (100, True)),
    ([{"a": 1}] * 100 + [{"a": {2}}], "a value of the Python type set", (100, "a")),
    ([{"a": 1}] * 100 + [{2: 1}], "a key of the Python type int", (100, 2)),
    (self_holding(), "a value that contains itself", ("a", 1, "b")),
    (doubling(), "a value that contains itself", (0,)),
    (nested(129), "more than 128 levels", (0,) * 128),
    (nested(128, [{"a": 1}] * 70), "more than 128 levels", (0,) * 128),
    (10**4300, "an integer of more than 4,300 digits", ()),
    ({"a": [-(10**4300)]}, "an integer of more than 4,300 digits", ("a", 0)),
]


@pytest.mark.parametrize("value, reason, path", REFUSED, ids=range(len(REFUSED)))
def test_write_refused(value, reason, path):
    assert write_fault(value) == (reason, path)
    for work in (lambda: nk._json_dumps(value, pretty=True), lambda: nk._json_copy(value), lambda: nk._json_digest(value)):
        with pytest.raises(nk._JsonFault) as caught:
            work()
        assert (caught.value.reason, caught.value.path) == (reason, path)


def test_write_limits():
    assert nk._json_dumps(nested(128)) == "[" * 128 + "]" * 128
    assert nk._json_loads(nk._json_dumps(nested(128), pretty=True)) == nested(128)
    assert nk._json_dumps(10**4300 - 1) == "9" * 4300
    shared = [1]
    assert nk._json_dumps([shared, shared]) == "[[1],[1]]"


def test_write_fault_text():
    with pytest.raises(nk._JsonFault) as caught:
        nk._json_dumps({"a/b": [math.nan]})
    assert str(caught.value) == 'NaN at "/a~1b/0"'


def test_io_02_no_nan_in_output():
    for value in ({"n": 0, "mean": math.nan, "hi": [math.inf]}, [[-math.inf]], math.nan):
        for pretty in (False, True):
            with pytest.raises(nk._JsonFault):
                nk._json_dumps(value, pretty=pretty)


def test_io_r1_integers_digit_for_digit():
    assert nk._json_dumps(nk._json_loads("[9223372036854775807,9007199254740993]")) == "[9223372036854775807,9007199254740993]"


def test_io_r2_readable_or_escaped():
    assert nk._json_dumps("\u65e5\u672c\u8a9e") == '"\u65e5\u672c\u8a9e"'
    assert nk._json_dumps("\u65e5\u672c\u8a9e", ascii_only=True) == '"\\u65e5\\u672c\\u8a9e"'


def test_cold_writing_imports_nothing():
    code = (
        "import sys; sys.path.insert(0, %r); import knaif as nk; before = set(sys.modules)\n"
        "nk._json_dumps({'a': [1, 2.5, {'b': '\\u65e5\\u00a9'}]}, pretty=True); nk._json_dumps(['x'], ascii_only=True)\n"
        "nk._json_key([1, 'a']); nk._json_show({'a': [1]}); nk._json_copy({'a': [1]}); nk._json_canonical({'a': 1.0})\n"
        "print(sorted(set(sys.modules) - before - {'_json', 'encodings.utf_16_be'}), 'json' in sys.modules, 're' in sys.modules)"
    ) % HERE
    out = subprocess.run([sys.executable, "-I", "-S", "-c", code], stdout=subprocess.PIPE, check=True).stdout
    assert out.split() == b"[] False False".split()


# -- canonical form, keys -----------------------------------------------------------------------------------------

CANONICAL = [
    ({"b": 1.0, "a": 1e2}, b'{"a":100,"b":1}'),
    ([1e300], b"[%d]" % int(1e300)),
    ([-0.0, 0, 0.5, 1e-7], b"[0,0,0.5,1e-07]"),
    ({"\ufb33": 1, "\U0001f600": 2, "\u20ac": 3, "\r": 4, "1": 5, "\u0080": 6, "\u00f6": 7},
     '{"\\r":4,"1":5,"\u0080":6,"\u00f6":7,"\u20ac":3,"\U0001f600":2,"\ufb33":1}'.encode()),
    ("\u20ac$\x0f\nA'B\"\\\\\"/\x7f", b'"\xe2\x82\xac$\\u000f\\nA\'B\\"\\\\\\\\\\"/\x7f"'),
    ("\ud800", b'"\\ud800"'),
    ("\\ud800", b'"\\\\ud800"'),
    ((1, [True, None, False]), b"[1,[true,null,false]]"),
    (9007199254740993, b"9007199254740993"),
    ({}, b"{}"),
]


@pytest.mark.parametrize("value, data", CANONICAL, ids=range(len(CANONICAL)))
def test_canonical(value, data):
    assert nk._json_canonical(value) == data


def test_digest():
    assert nk._json_digest({"b": 1, "a": 2.0}) == "d3626ac30a87e6f7a6428233b3c68299976865fa5508e4267c5415c76af7a772"
    assert nk._json_digest({"a": 2, "b": 1.0}) == nk._json_digest({"b": 1, "a": 2.0})


def same(a, b):
    """Return whether two values are JSON-equal, written as plainly as possible."""
    if isinstance(a, bool) or isinstance(b, bool) or a is None or b is None:
        return a is b
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return a == b


def test_equality_of_all_pairs():
    values = [None, True, False, 0, 1, 0.0, -0.0, 1.0, 1.5, "", "1", "true", "null", [], {}, [0], [False], [1], [True], [1.0], ["1"],
              {"a": 1}, {"a": 1.0}, {"a": True}, {"a": [1, {}]}, {"a": [1.0, {}]}, {"a": 1, "b": 2}, {"b": 2.0, "a": 1}, 2**53,
              2.0**53, 2**53 + 1, 2**60, 2.0**60, -(2**60), 2**61 - 1, 2 * (2**61 - 1), 1e300, int(1e300), 1e300 * 2, [2**60], [2.0**60],
              "[]", "{}", '"1"', "[1]", "0x1000000000000000", "\ud800", "\\ud800", ["\ud83d\ude00"], ["\U0001f600"], (1,), Word.RED, "red",
              Number.ONE, hex(2**60), [None], [[]], [{}], 10**400, -(10**400)]
    for a in values:
        for b in values:
            expected = same(a, b)
            assert (nk._json_key(a) == nk._json_key(b)) is expected, (a, b)
            if expected:
                assert hash(nk._json_key(a)) == hash(nk._json_key(b))
                assert nk._json_canonical(a) == nk._json_canonical(b)
            else:
                assert nk._json_canonical(a) != nk._json_canonical(b)


def test_key_of_random_pairs(rng):
    for _ in range(3000):
        a = random_value(rng, 2)
        b = random_value(rng, 2) if rng.random() < 0.5 else json.loads(json.dumps(a))
        assert (nk._json_key(a) == nk._json_key(b)) is same(a, b)


def test_key_is_no_hash_the_sender_chooses():
    prime = sys.hash_info.modulus
    keys = [nk._json_key(number * prime) for number in range(2, 50)]
    assert len(set(map(hash, keys))) > 40
    assert len({hash(nk._json_key([number * prime])) for number in range(2, 50)}) > 40


def test_key_without_json_form():
    for value in (math.inf, [math.nan], {1}, [object()]):
        with pytest.raises(nk._JsonFault):
            nk._json_key(value)


# -- small ones ---------------------------------------------------------------------------------------------------


def test_pointer():
    assert nk._json_pointer([]) == "" and nk._json_pointer(["", 0, "a/b", "m~n", "~1"]) == "//0/a~1b/m~0n/~01"


def test_kind():
    values = [None, True, 1, 1.0, "", [], (), {}, Number.ONE, Word.RED, {1}, b""]
    words = ["null", "boolean", "integer", "number", "string", "array", "array", "object", "integer", "string", "set", "bytes"]
    assert [nk._json_kind(value) for value in values] == words


def test_copy():
    value = {"a": [1, {"b": (2.5, None)}], "c": "x"}
    copied = nk._json_copy(value)
    assert copied == {"a": [1, {"b": [2.5, None]}], "c": "x"}
    copied["a"][1]["b"].append(3)
    copied["a"].append(4)
    assert value == {"a": [1, {"b": (2.5, None)}], "c": "x"}


SHOWN = [
    ("abc", '"abc"'), ("a\"b\n\x1b\u202e\ud800", '"a\\"b\\n\\u001b\\u202e\\ud800"'), (None, "null"), (1.5, "1.5"), (True, "true"),
    ([1, "a", {"b": [], "c": {}}], '[1, "a", {"b": [], "c": {}}]'), ("x" * 100, '"' + "x" * 55 + '"...'),
    ("\x1b" * 100, '"' + "\\u001b" * 9 + '"...'), ("x" * 58, '"' + "x" * 58 + '"'), ("x" * 59, '"' + "x" * 55 + '"...'),
    (list(range(100)), "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16..."),
    (10**100, "1" + "0" * 56 + "..."), (10**5000, "<an integer of more than 4,300 digits>"), (math.inf, "<an infinite number>"), (Odd("nan"), "<NaN>"),
    ({1}, "<set>"), ([object()], "[<object>]"), ({"k": "v" * 10**6}, '{"k": "' + "v" * 50 + "..."), ({None: 1}, "{null: 1}"),
    (Word.RED, '"red"'), (Number.ONE, "1"), ((1,), "[1]"),
]


@pytest.mark.parametrize("value, text", SHOWN, ids=range(len(SHOWN)))
def test_show(value, text):
    assert nk._json_show(value) == text


def test_show_is_bounded(rng):
    wild = [doubling(), nested(5000), self_holding(), ["x" * 10**7] * 1000, {"x" * 10**7: {"y" * 10**7: "z" * 10**7}}]
    for value in wild + [random_value(rng, 4) for _ in range(1000)]:
        for limit in (8, 60, 200):
            text = nk._json_show(value, limit)
            assert len(text) <= limit and text.isprintable()


# -- regressions --------------------------------------------------------------------------------------------------


def test_brackets_in_strings_under_a_small_limit():
    """More brackets than levels, none of them outside a string: once an empty maximum."""
    assert nk._json_loads('"[[[["', max_depth=1) == "[[[["
