"""TYPES: what a schema admits, how text is read, Arg and Field, the ways between JSON and Python."""
import datetime

import pytest

import knaif as nk

SEED = 26
INTEGER, NUMBER, TEXT, FLAG, NULL = ({"type": word} for word in ("integer", "number", "string", "boolean", "null"))


def same(one, other):
    """Tell whether two values are the same JSON value: 1 is 1.0 and not true."""
    return nk._json_key(one) == nk._json_key(other)


def any_of(*schemas, **more):
    return dict({"anyOf": list(schemas)}, **more)


def expected(schema, text, root=True):
    """Return what read_text says that it expected."""
    with pytest.raises(nk._TypesFault) as caught:
        nk._types_read_text(schema, text, root)
    return caught.value.expected


# -- what a schema admits -----------------------------------------------------------------------------------------

KINDS = [
    (True, "array boolean integer null number object string"),
    ({}, "array boolean integer null number object string"),
    (False, ""),
    (INTEGER, "integer"),
    (NUMBER, "integer number"),
    ({"type": ["string", "null"]}, "null string"),
    ({"type": "nonsense"}, ""),
    ({"const": 1}, "integer"),
    ({"const": 1.0}, "integer number"),
    ({"enum": [1.5, "a", None, True, [], {}]}, "array boolean null number object string"),
    ({"type": "integer", "enum": [1.0, "a"]}, "integer"),
    (any_of(INTEGER, NULL), "integer null"),
    (any_of(INTEGER, NULL, type="integer"), "integer"),
    ({"allOf": [{"type": ["string", "integer"]}, {"type": ["integer", "null"]}]}, "integer"),
    ({"oneOf": [{"const": 7}, {"const": "007"}]}, "integer string"),
    ({"$ref": "#/$defs/x", "$defs": {"x": any_of(TEXT, {"$ref": "#/$defs/y"}), "y": FLAG}}, "boolean string"),
    ({"$ref": "#/$defs/missing"}, "array boolean integer null number object string"),
    ({"$ref": "#"}, "array boolean integer null number object string"),
    (any_of(NULL, {"$ref": "#"}), "null"),
    ({"anyOf": []}, ""),
    ({"not": TEXT}, "array boolean integer null number object string"),
]


@pytest.mark.parametrize("schema, kinds", KINDS, ids=range(len(KINDS)))
def test_kinds(schema, kinds):
    assert " ".join(sorted(nk._types_kinds(schema, schema))) == kinds


def test_kinds_of_a_schema_made_to_grow_come_soon():
    """2**40 ways through: more alternatives than reading looks at say nothing, so that text stays text."""
    root = {"$defs": {"x0": INTEGER}}
    for level in range(1, 41):
        below = {"$ref": "#/$defs/x%d" % (level - 1)}
        root["$defs"]["x%d" % level] = any_of(below, dict(below))
    root["$ref"] = "#/$defs/x40"
    assert nk._types_kinds(root, root) == nk.TYPES_KINDS
    assert nk._types_read_text(root, "1", root) == "1"
    wide = {"allOf": [any_of(*[{"type": "string", "minLength": n} for n in range(40)]) for _ in range(4)]}
    assert nk._types_kinds(wide, wide) == nk.TYPES_KINDS
    loop = any_of({"$ref": "#"}, {"$ref": "#"}, INTEGER)
    assert nk._types_read_text(loop, "3", loop) in (3, "3")


MEMBERS = [
    ({}, {}),
    ({"properties": {"k": INTEGER}}, INTEGER),
    ({"properties": {"j": INTEGER}, "additionalProperties": False}, {}),
    ({"properties": {"j": INTEGER}, "additionalProperties": FLAG}, FLAG),
    ({"properties": {"k": INTEGER}, "additionalProperties": FLAG}, INTEGER),
    ({"patternProperties": {"^k": NULL}, "additionalProperties": FLAG}, NULL),
    ({"patternProperties": {"(": NULL}}, {}),
    (any_of({"properties": {"k": INTEGER}}, NULL), INTEGER),
    (any_of({"properties": {"k": INTEGER}}, {"properties": {"k": TEXT}}), any_of(INTEGER, TEXT)),
    ({"allOf": [{"properties": {"k": INTEGER}}, {"properties": {"k": {"minimum": 1}}}]},
     {"allOf": [INTEGER, {"minimum": 1}]}),
    ({"$ref": "#/$defs/x", "$defs": {"x": {"properties": {"k": FLAG}}}}, FLAG),
]


@pytest.mark.parametrize("schema, member", MEMBERS, ids=range(len(MEMBERS)))
def test_member(schema, member):
    assert nk._types_member(schema, "k", schema) == member


ELEMENTS = [
    ({}, None, {}),
    ({"items": INTEGER}, None, INTEGER),
    ({"items": False}, None, {}),
    ({"prefixItems": [INTEGER, TEXT], "items": False}, None, any_of(INTEGER, TEXT)),
    ({"prefixItems": [INTEGER, INTEGER], "items": False}, None, INTEGER),
    ({"prefixItems": [INTEGER, TEXT], "items": FLAG}, 1, TEXT),
    ({"prefixItems": [INTEGER, TEXT], "items": FLAG}, 2, FLAG),
    ({"items": [INTEGER, TEXT], "additionalItems": FLAG}, 0, INTEGER),
    ({"items": [INTEGER, TEXT], "additionalItems": FLAG}, 5, FLAG),
    (any_of({"type": "array", "items": INTEGER}, NULL), None, INTEGER),
]


@pytest.mark.parametrize("schema, index, element", ELEMENTS, ids=range(len(ELEMENTS)))
def test_element(schema, index, element):
    assert nk._types_element(schema, schema, index) == element


# -- reading text -------------------------------------------------------------------------------------------------

DATE, MOMENT, CLOCK = ({"type": "string", "format": name} for name in ("date", "iso-date-time", "iso-time"))
READ = [
    (INTEGER, "-34", -34), (INTEGER, "+5", 5), (INTEGER, "007", 7), (INTEGER, "9223372036854775808", 2**63),
    (INTEGER, "9" * 4300, int("9" * 4300)), (NUMBER, "-1e-3", -0.001), (NUMBER, "3", 3), (NUMBER, "+3.5", 3.5),
    (NUMBER, "1E2", 100.0), (NUMBER, "0", 0), (NUMBER, "-0.0", -0.0), (NUMBER, "9007199254740993", 9007199254740993),
    (FLAG, "true", True), (FLAG, "YES", True), (FLAG, "on", True), (FLAG, "1", True), (FLAG, "False", False),
    (FLAG, "no", False), (FLAG, "OFF", False), (FLAG, "0", False), (any_of(FLAG, NULL), "yes", True),
    (TEXT, "", ""), (TEXT, " a ", " a "), ({}, "1", "1"), (True, "true", "true"), (False, "x", "x"),
    ({"type": "array"}, "[1]", [1]), ({"type": "object"}, ' {"a":null}', {"a": None}),
    ({"enum": [1.5]}, "1.5", 1.5), ({"enum": [7, 8]}, "7", 7), ({"enum": [7, 8]}, "9", 9), ({"const": True}, "true", True),
    ({"enum": ["a", "b"]}, "c", "c"), ({"enum": ["a", None]}, "null", "null"),
    (any_of(TEXT, INTEGER), "42", "42"), (any_of(INTEGER, FLAG), "1", 1), (any_of(INTEGER, FLAG), "true", True),
    (any_of(INTEGER, NULL), "42", 42), (any_of(TEXT, NULL), "null", "null"),
    (any_of({"type": "array"}, INTEGER), "[1]", [1]), (any_of({"enum": ["auto"]}, INTEGER), "3", 3),
    (any_of({"enum": ["auto"]}, INTEGER), "auto", "auto"), (any_of({"enum": ["auto"]}, INTEGER), "x", "x"),
    (any_of(DATE, INTEGER), "2024-05-01", "2024-05-01"), (any_of(DATE, INTEGER), "5", 5), (any_of(DATE, TEXT), "x", "x"),
    (any_of({"type": "string", "pattern": "^a"}, INTEGER), "5", 5), (any_of({"type": "string", "minLength": 3}, INTEGER), "5", 5),
    (any_of({"type": "string", "format": "uuid"}, INTEGER), "5", 5), (any_of({"type": "string", "pattern": "^4"}, INTEGER), "42", "42"),
    (DATE, "2024-02-29", "2024-02-29"), (MOMENT, "2024-02-29T10:00", "2024-02-29T10:00"),
    (MOMENT, "2024-02-29t10:00:00.5Z", "2024-02-29t10:00:00.5Z"), (CLOCK, "07:30", "07:30"),
    (CLOCK, "23:59:60Z", "23:59:60Z"), ({"type": "string", "format": "email"}, "x", "x"),
    ({"type": ["string", "number"], "format": "decimal"}, "1.50", "1.50"),
]


@pytest.mark.parametrize("schema, text, value", READ, ids=range(len(READ)))
def test_read_text(schema, text, value):
    read = nk._types_read_text(schema, text, schema)
    assert read == value and type(read) is type(value) and repr(read) == repr(value)


UNREADABLE = [
    (INTEGER, ["", "+", "-", "1.0", "1e3", "1_000", " 1", "1 ", "0x10", "\u0663", "\uff11", "nan", "--1", "+-1", "9" * 4301],
     "a whole number"),
    (NUMBER, ["", "+", ".5", "5.", "1e", "1e+", "1_0.0", "0x1p3", "nan", "inf", "-Infinity", "1e400", "007", "1,5", "\u0661.5",
              "1.5.5", "1e5e5", "9" * 4301], "a number"),
    (FLAG, ["", "nope", "y", "2", "\uff11", "tr\u00fce", " true"], "true or false"),
    (NULL, ["null", ""], "null, written :=null"),
    ({"type": "array"}, ["a", "1", '{"a":1}', "[1", "[a.b]", '[1,"\\ud800"]', "[" * 200], "a JSON array"),
    ({"type": "object"}, ["a", "[1]", '{"a":1,"a":2}', "{a:1}", '{"a":NaN}'], "a JSON object"),
    (any_of(INTEGER, NULL), ["null", "x"], "a whole number"),
    (any_of(INTEGER, FLAG), ["yes", "x"], "true or false or a whole number"),
    (any_of({"type": "array"}, {"type": "object"}), ["x"], "a JSON array or a JSON object"),
    (any_of(DATE, INTEGER), ["x", "2024-02-30"], "an ISO 8601 date or a whole number"),
    (any_of(DATE, NULL), ["x", "null", ""], "an ISO 8601 date"),
    (DATE, ["", "2024-2-1", "20240201", "2024-02-30", "2024-W01-1", "1/2/2024", "tomorrow", "2024-01-01T00:00"],
     "an ISO 8601 date"),
    (MOMENT, ["2024-01-01", "2024-01-01 10:00", "2024-01-01T", "2024-01-01T24:00", "2024-01-01T10:60", "2024-01-01T10",
              "2024-01-01T10:00:00+25:00", "2024-01-01T10:00+1:00", "2024-01-01T10:00:00,5", "2024-01-01T10:00.5", "now"],
     "an ISO 8601 date and time"),
    (CLOCK, ["7:30", "07:30:", "0730", "24:00", "07:30:61", "07:30:00.", "07:30:00+01:00+01:00", "", "Z", "07:3\u0660"],
     "an ISO 8601 time"),
    ({"type": ["string", "number"], "format": "decimal"}, ["", "x", "1.", ".5", "1e", "1e99999", "NaN", "Infinity", "1_0"],
     "a decimal number"),
]


@pytest.mark.parametrize("schema, texts, words", UNREADABLE, ids=range(len(UNREADABLE)))
def test_read_text_refuses(schema, texts, words):
    for text in texts:
        assert expected(schema, text) == words, text


def test_read_text_follows_references():
    root = {"$defs": {"n": INTEGER, "t": {"type": "array", "items": {"$ref": "#/$defs/t"}}}}
    assert nk._types_read_text({"$ref": "#/$defs/n"}, "5", root) == 5
    assert nk._types_read_text({"$ref": "#/$defs/t"}, "[[]]", root) == [[]]
    assert nk._types_read_text({"$ref": "#/$defs/none"}, "5", root) == "5"


def test_typ_01_text_that_looks_like_something_else():
    for text in ("297e7814231", "1.10", "007", "2017-10-10", "1+1", "None", "true", "[1]", "0x10"):
        assert nk._types_read_text(TEXT, text, True) == text
        assert nk._types_read_text(any_of(TEXT, NULL), text, True) == text
        assert nk._types_read_text({}, text, True) == text


def test_typ_02_reading_the_word_false():
    read = [nk._types_read_text(FLAG, word, True) for word in ("false", "0", "no", "OFF")]
    assert read == [False] * 4
    assert [expected(FLAG, word) for word in ("nope", "")] == ["true or false"] * 2


def test_typ_r1_empty_list_and_object_are_values():
    assert nk._types_read_text({"type": "array"}, "[]", True) == []
    assert nk._types_read_text({"type": "object"}, "{}", True) == {}


def test_io_r1_integers_digit_for_digit():
    for text in ("9223372036854775807", "9007199254740993"):
        assert str(nk._types_read_text(INTEGER, text, True)) == str(nk._types_read_text(NUMBER, text, True)) == text


def test_mixed_literals_stay_text():
    """argv has no type tag: "7" of [7, "007"] is not guessed, the schema refuses it."""
    for schema in ({"enum": [7, "007"]}, any_of({"const": 7}, {"const": "007"}), {"enum": [1, True]}, {"enum": [1, True, None]}):
        assert nk._types_read_text(schema, "007", True) == "007"
        assert nk._types_read_text(schema, "7", True) == "7"
        assert nk._types_read_model(schema, "7", True) == "7"
    assert nk._types_read_text({"enum": [7, 7.5, None]}, "7", True) == 7


# -- reading what a model wrote -----------------------------------------------------------------------------------

PERSON = {
    "type": "object",
    "properties": {
        "age": INTEGER, "rate": NUMBER, "on": FLAG, "name": TEXT, "tags": {"type": "array", "items": TEXT},
        "sizes": {"type": "array", "items": INTEGER}, "maybe": any_of(INTEGER, NULL), "note": any_of(TEXT, NULL),
        "pair": {"type": "array", "prefixItems": [INTEGER, TEXT]}, "free": {}, "child": {"$ref": "#"},
        "by": {"type": "object", "additionalProperties": NUMBER},
    },
}
MODEL = [
    ({"age": "42"}, {"age": 42}), ({"age": "4_2"}, {"age": "4_2"}), ({"age": " 42 "}, {"age": " 42 "}),
    ({"age": "42.0"}, {"age": "42.0"}), ({"rate": "1.5"}, {"rate": 1.5}), ({"rate": "nan"}, {"rate": "nan"}),
    ({"on": "true"}, {"on": True}), ({"on": "yes"}, {"on": "yes"}), ({"on": 1}, {"on": 1}), ({"name": "42"}, {"name": "42"}),
    ({"name": 42}, {"name": 42}), ({"tags": '["a"]'}, {"tags": ["a"]}), ({"tags": "a"}, {"tags": "a"}),
    ({"sizes": ["1", "2"]}, {"sizes": [1, 2]}), ({"sizes": '["1"]'}, {"sizes": [1]}), ({"pair": ["1", "2"]}, {"pair": [1, "2"]}),
    ({"free": "42"}, {"free": "42"}), ({"child": {"age": "3"}}, {"child": {"age": 3}}), ({"child": '{"age":"3"}'}, {"child": {"age": 3}}),
    ({"by": {"x": "2.5"}}, {"by": {"x": 2.5}}), ('{"age":"42"}', {"age": 42}), ("{", "{"), ({"other": "1"}, {"other": "1"}),
    ({"sizes": "[" * 200}, {"sizes": "[" * 200}), (None, None), ({"age": "9" * 4301}, {"age": "9" * 4301}),
]


@pytest.mark.parametrize("value, read", MODEL, ids=range(len(MODEL)))
def test_read_model(value, read):
    shape = nk.Shape(PERSON, None, nk._types_write_free, "a person")
    assert same(shape.read_model(value), read)


def test_read_model_makes_a_new_value():
    given = {"tags": ["a"], "free": {"x": [1]}}
    read = nk._types_read_model(PERSON, given, PERSON)
    assert read == given
    read["tags"].append("b")
    read["free"]["x"].append(2)
    assert given == {"tags": ["a"], "free": {"x": [1]}}


def test_llm_01_arguments_inside_a_string():
    """A list sent as text is decoded once; a parameter that is text keeps its text in every case."""
    pay = {"type": "object", "properties": {"to": TEXT, "amount": INTEGER, "tags": {"type": "array", "items": TEXT}, "note": TEXT}}
    read = nk._types_read_model(pay, '{"to":"bob","amount":5}', pay)
    assert read == {"to": "bob", "amount": 5}
    read = nk._types_read_model(pay, {"tags": '["a"]', "note": '{"a":1}'}, pay)
    assert read == {"tags": ["a"], "note": '{"a":1}'}


def test_llm_r3_null_and_the_word_null():
    """null is null; the word is text wherever text is admitted, and nowhere read as null."""
    note, maybe = any_of(TEXT, NULL), any_of(INTEGER, NULL)
    assert nk._types_read_model(note, None, note) is None
    assert nk._types_read_model(note, "null", note) == "null"
    assert nk._types_read_model(TEXT, "null", TEXT) == "null"
    assert nk._types_read_model(maybe, "null", maybe) == "null"


def test_read_model_does_not_recurse_without_end():
    deep = "[]"
    for _ in range(14):
        deep = nk._json_dumps([deep])
    schema = {"type": "array", "items": {"$ref": "#"}}
    value = nk._types_read_model(schema, deep, schema)
    level = 0
    while value:
        value, level = value[0], level + 1
    assert level == 14
    value = ["1"]
    for _ in range(400):
        value = [value]
    assert nk._types_read_model(schema, value, schema) == value
    for _ in range(20000):
        value = [value]
    assert nk._types_read_model(schema, value, schema)


# -- Arg, Opt, Field, Shape ---------------------------------------------------------------------------------------


def test_arg_and_opt_show_what_they_say():
    assert repr(nk.Arg("who", min=0, max=3)) == "Arg(help='who', min=0, max=3)"
    assert repr(nk.Opt(default=None, choices=["a"], secret=True)) == "Opt(choices=['a'], secret=True)"
    assert repr(nk.Opt(default=0, example=2)) == "Opt(example=2, default=0)"
    assert repr(nk.TYPES_ABSENT) == "(absent)"


def test_field_name_on_the_command_line():
    field = nk.Field("dry_ice", {})
    assert field.public_name == "dry_ice"
    field.dashed = True
    assert field.public_name == "dry-ice" and repr(field) == "<Field dry_ice>"
    private = nk.Field("_x_y", {})
    private.dashed = True
    assert private.public_name == "_x_y"


# -- time ---------------------------------------------------------------------------------------------------------


def test_split_time_agrees_with_python(rng):
    """Every form that datetime.time can hold comes back as it was."""
    chance = rng
    for _ in range(500):
        offset = chance.choice([None, 0, chance.randrange(-1439, 1440)])
        zone = None if offset is None else datetime.timezone(datetime.timedelta(minutes=offset))
        time = datetime.time(chance.randrange(24), chance.randrange(60), chance.randrange(60),
                             chance.choice([0, 500000, chance.randrange(10**6)]), zone)
        for spec in ("auto", "microseconds", "seconds", "minutes"):
            text = time.isoformat(spec)
            numbers, minutes = nk._types_split_time(text)
            wanted = [time.hour, time.minute, time.second, time.microsecond]
            for place, word in ((2, "minutes"), (3, "seconds")):
                if spec in (word, "minutes"):
                    wanted[place] = 0
            assert (numbers, minutes) == (wanted, offset), text
    assert nk._types_split_time("01:02:03.123456789Z") == ([1, 2, 3, 123456], 0)


def test_split_time_takes_any_text(rng):
    chance = rng
    for _ in range(20000):
        text = "".join(chance.choice("0123456789:.+-Zz \u0663") for _ in range(chance.randrange(14)))
        found = nk._types_split_time(text)
        if found is not None:
            assert found[0][0] < 24 and found[0][1] < 60 and found[0][2] <= 60 and abs(found[1] or 0) < 1440


# -- fuzz ---------------------------------------------------------------------------------------------------------


def random_schema(chance, level=0):
    kinds = ["integer", "number", "string", "boolean", "null", "array", "object", "enum", "format", "free", "union", "ref", "all", "bad"]
    kind = chance.choice(kinds if level < 3 else kinds[:7])
    if kind == "array":
        return {"type": "array", "items": random_schema(chance, level + 1)}
    if kind == "object":
        return {"type": "object", "properties": {key: random_schema(chance, level + 1) for key in chance.sample("abc", 2)}}
    if kind == "enum":
        return {"enum": chance.sample([1, 2.0, "1", "a", None, True, [1]], chance.randrange(1, 4))}
    if kind == "format":
        return {"type": "string", "format": chance.choice(["date", "iso-time", "iso-date-time", "date-time", "uuid", "decimal"])}
    if kind == "free":
        return chance.choice([{}, True, False])
    if kind == "union":
        return {chance.choice(["anyOf", "oneOf"]): [random_schema(chance, level + 1) for _ in range(chance.randrange(1, 4))]}
    if kind == "all":
        return {"allOf": [random_schema(chance, level + 1) for _ in range(2)]}
    if kind == "ref":
        return {"$ref": chance.choice(["#", "#/$defs/a", "#/$defs/b", "#/$defs/missing"])}
    if kind == "bad":
        return chance.choice([{"type": ["string", "integer"]}, {"type": "string", "minLength": 2, "pattern": "^[ab]+$"}])
    return {"type": kind}


TEXTS = ["", "1", "-1", "1.5", "true", "null", "a", "ab", "[1]", '{"a":"1","b":[]}', "2024-02-29", "07:30", "2024-02-29T07:30Z", "[", "{}",
         "\ud800", "9" * 400, '"x"', "1e400", "yes"]


def test_reading_is_a_value_or_unreadable(rng):
    """Random schemas, random texts: nothing but a JSON value or _TypesFault; a string branch that takes it wins."""
    chance = rng
    for _ in range(3000):
        root = random_schema(chance)
        if isinstance(root, dict):
            root = dict(root, **{"$defs": {"a": random_schema(chance, 1), "b": random_schema(chance, 1)}})
        text = chance.choice(TEXTS)
        kinds = nk._types_kinds(root, root)
        try:
            value = nk._types_read_text(root, text, root)
        except nk._TypesFault as fault:
            assert fault.expected
            continue
        assert value == text or nk._json_kind(value) in kinds
        model = nk._types_read_model(root, text, root)
        assert "string" not in kinds or model == text
        nk._types_member(root, "a", root), nk._types_element(root, root), nk._types_element(root, root, 1)


def test_numbers_read_as_python_writes_them(rng):
    chance = rng
    for _ in range(3000):
        number = chance.choice([chance.randrange(-10**30, 10**30), chance.randrange(-99, 99), chance.uniform(-1e3, 1e3),
                                chance.uniform(-1, 1) * 10.0 ** chance.randrange(-300, 300)])
        for text in {repr(number), "+" + repr(number)} if number >= 0 else {repr(number)}:
            read = nk._types_read_text(NUMBER, text, True)
            assert read == number and type(read) is type(number)
        if isinstance(number, int):
            assert nk._types_read_text(INTEGER, "%+d" % number, True) == number
