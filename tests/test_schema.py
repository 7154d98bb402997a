"""SCHEMA: JSON Schema 2020-12 (and older spellings), issues and the sentences made of them."""
import json
import os
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from enum import IntEnum

import pytest

import knaif as nk

HERE = os.path.dirname(os.path.abspath(__file__))
SUITE = os.path.join(HERE, "..", "..", "shared", "data", "json-schema-suite")
OLD = "http://json-schema.org/draft-07/schema#"
MIDDLE = "https://json-schema.org/draft/2019-09/schema"
NEW = "https://json-schema.org/draft/2020-12/schema"


def lines(schema, value, **options):
    """Return the issues of a value as lines."""
    return [str(issue) for issue in nk.Validator(schema, **options).issues(value)]


# The official suite

#: (file, group, test) of the suite that we judge otherwise, and why. None.
DEVIATIONS = {}


def official_tests(folder):
    """Yield (file, group, test, schema, value, whether it is valid)."""
    for name in sorted(os.listdir(folder)):
        if name.endswith(".json"):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                for group in json.load(file):
                    for test in group["tests"]:
                        yield name, group["description"], test["description"], group["schema"], test["data"], test["valid"]


def official_remotes():
    """Return the documents that the suite serves on localhost:1234."""
    remotes = {}
    root = os.path.join(SUITE, "remotes")
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            with open(path, encoding="utf-8") as file:
                uri = "http://localhost:1234/" + os.path.relpath(path, root).replace(os.sep, "/")
                remotes[uri] = json.load(file)
    return remotes


@pytest.mark.skipif(not os.path.isdir(SUITE), reason="the official suite is not beside this project")
@pytest.mark.parametrize(
    "folder, assert_formats, least",
    [("", False, 1257), ("optional", False, 158), ("optional/format", True, 491)],
    ids=["required", "optional", "format"],
)
def test_the_official_suite(folder, assert_formats, least):
    remotes = official_remotes()
    count, wrong = 0, []
    made = None, None
    for name, group, test, schema, value, valid in official_tests(os.path.join(SUITE, "tests", "draft2020-12", folder)):
        if made[0] is not schema:
            made = schema, nk.Validator(schema, resources=remotes, assert_formats=assert_formats)
        count += 1
        if made[1].is_valid(value) is not valid and (name, group, test) not in DEVIATIONS:
            wrong.append((name, group, test))
        assert bool(made[1].issues(value)) is not made[1].is_valid(value)
    assert wrong == []
    assert count >= least


# Keywords: schema, values that fit, values that do not

KEYWORDS = [
    (True, [None, 1, {}], []),
    (False, [], [None, 1, {}]),
    ({}, [None, 1, "x", [], {}], []),
    ({"type": "null"}, [None], [False, 0, "", [], {}]),
    ({"type": "boolean"}, [True, False], [0, 1, "true", None]),
    ({"type": "integer"}, [0, -7, 3.0, 10**40, 1e300], [3.5, True, "3", None, float("inf"), float("nan")]),
    ({"type": "number"}, [0, 1.5, 10**40], [False, "1", None]),
    ({"type": "string"}, ["", "é"], [1, None, ["a"]]),
    ({"type": "array"}, [[], [1], (1, 2)], [{}, "ab"]),
    ({"type": "object"}, [{}, {"a": 1}, OrderedDict(a=1)], [[], "a"]),
    ({"type": ["string", "null"]}, ["a", None], [1, False]),
    ({"type": ["integer", "number"]}, [1, 1.5], ["1"]),
    ({"type": ["integer"]}, [1.0], [1.5]),
    ({"enum": ["a", 1, None, [1, {"b": 2}]]}, ["a", 1, 1.0, None, [1.0, {"b": 2}]], ["b", True, 2, [], [1, {"b": True}], {}]),
    ({"enum": [False]}, [False], [0, 0.0, None, ""]),
    ({"enum": []}, [], [1, None]),
    ({"enum": [10**30, 0.1]}, [10**30, 0.1], [10**30 + 1, 1e30, 0.2]),
    ({"const": {"a": [1]}}, [{"a": [1.0]}], [{"a": [True]}, {"a": [1], "b": 1}]),
    ({"const": None}, [None], [0, False, "null"]),
    ({"minimum": 1}, [1, 1.5, "0", None], [0, 0.99]),
    ({"maximum": 1.5}, [1.5, 1, True], [2, 10**400]),
    ({"exclusiveMinimum": 0}, [0.1, 1], [0, -1]),
    ({"exclusiveMaximum": 10**20}, [10**20 - 1], [10**20, 1e20]),
    ({"minimum": 1}, [], [float("nan")]),
    ({"multipleOf": 2}, [4, 0, -2, 4.0, 1e300, "x"], [3, 2.5, float("inf"), float("nan")]),
    ({"multipleOf": 0.0001}, [0.0075, 1, 10**30], [0.00751]),
    ({"multipleOf": 0.1}, [0.3, 1.1, 1e22], [0.35]),
    ({"multipleOf": 1e-8}, [12391239123], [1.5e-9]),
    ({"multipleOf": 0.123456789}, [0.246913578], [1e308]),
    ({"multipleOf": 1e308}, [1e308, 0, 10**308], [1e307]),
    ({"multipleOf": 5e-324}, [1e308, 10**4000], []),
    ({"multipleOf": 1.2345678901234568e16}, [12345678901234568 * 10**9, 0], [12345678901234567]),
    ({"minLength": 2}, ["ab", "\U0001f600\U0001f600", 1], ["a", "\U0001f600"]),
    ({"maxLength": 2.0}, ["ab", [1, 2, 3]], ["abc"]),
    ({"pattern": "^a$"}, ["a", 1], ["a\n", "ba"]),
    ({"pattern": "b"}, ["abc"], ["ac"]),
    ({"format": "date"}, ["no date", 1], []),
    ({"minItems": 1, "maxItems": 2}, [[1], [1, 2], {}], [[], [1, 2, 3]]),
    ({"uniqueItems": True}, [[], [0, False], [[1], [True]], ["1", 1], [{"a": 1}, {"a": True}]], [[1, 1.0], [{"a": 1, "b": 2}, {"b": 2, "a": 1}]]),
    ({"uniqueItems": False}, [[1, 1]], []),
    ({"items": {"type": "integer"}}, [[], [1, 2.0], "x"], [[1, "2"]]),
    ({"items": False}, [[]], [[1]]),
    ({"prefixItems": [{"type": "integer"}, True], "items": {"type": "string"}}, [[1], [1, None, "a"]], [["1"], [1, 2, 3]]),
    ({"prefixItems": [True], "items": False}, [[], [1]], [[1, 2]]),
    ({"contains": {"type": "integer"}}, [["a", 1], "x"], [[], ["a"]]),
    ({"contains": {"type": "integer"}, "minContains": 2, "maxContains": 3}, [[1, 2], [1, "a", 2, 3]], [[1], [1, 2, 3, 4]]),
    ({"contains": True, "minContains": 0}, [[]], []),
    ({"minContains": 3}, [[]], []),
    ({"properties": {"a": {"type": "integer"}}}, [{}, {"a": 1}, {"b": "x"}, []], [{"a": "1"}]),
    ({"properties": {"a": False}}, [{}], [{"a": 1}]),
    ({"patternProperties": {"^a": {"type": "integer"}, "z$": {"minimum": 5}}}, [{"b": ""}, {"az": 5}], [{"a": ""}, {"az": 4}]),
    ({"additionalProperties": {"type": "integer"}, "properties": {"a": True}}, [{"a": "", "b": 1}], [{"b": ""}]),
    ({"additionalProperties": False, "patternProperties": {"^x": True}}, [{}, {"xa": 1}], [{"a": 1}]),
    ({"propertyNames": {"maxLength": 2}}, [{"ab": 1}, []], [{"abc": 1}]),
    ({"propertyNames": False}, [{}], [{"a": 1}]),
    ({"required": ["a", "b", "a"]}, [{"a": None, "b": 1}, "x"], [{"a": 1}, {}]),
    ({"required": []}, [{}], []),
    ({"minProperties": 1, "maxProperties": 1}, [{"a": 1}, []], [{}, {"a": 1, "b": 2}]),
    ({"dependentRequired": {"a": ["b", "c"]}}, [{"b": 1}, {"a": 1, "b": 1, "c": 1}], [{"a": 1}, {"a": 1, "b": 1}]),
    ({"dependentSchemas": {"a": {"minProperties": 2}}}, [{"b": 1}, {"a": 1, "b": 1}, "a"], [{"a": 1}]),
    ({"dependencies": {"a": ["b"], "c": {"maxProperties": 1}}}, [{"c": 1}, {"a": 1, "b": 2}], [{"a": 1}, {"c": 1, "d": 2}]),
    ({"allOf": [{"minimum": 2}, {"maximum": 3}]}, [2, 3, "x"], [1, 4]),
    ({"anyOf": [{"type": "string"}, {"minimum": 2}]}, ["", 2, None], [1]),
    ({"oneOf": [{"type": "integer"}, {"minimum": 2}]}, [1, 2.5], [0.5, 3]),
    ({"oneOf": [True, {"type": "string"}]}, [1], ["a"]),
    ({"not": {"type": "integer"}}, ["a", 1.5], [1, 1.0]),
    ({"not": {}}, [], [1, None]),
    ({"if": {"type": "integer"}, "then": {"minimum": 5}, "else": {"maxLength": 1}}, [5, "a", None], [4, "ab"]),
    ({"then": False, "else": False}, [1], []),
    ({"if": False, "else": {"const": 1}}, [1], [2]),
    ({"$ref": "#/$defs/a", "maximum": 5, "$defs": {"a": {"minimum": 2}}}, [2, 5], [1, 6]),
    ({"properties": {"next": {"$ref": "#"}}, "additionalProperties": False}, [{"next": {"next": {}}}], [{"next": {"x": 1}}]),
    ({"items": {"$ref": "#/$defs/a%25~1b"}, "$defs": {"a%/b": {"type": "null"}}}, [[None]], [[1]]),
    ({"$ref": "#there", "$defs": {"x": {"$anchor": "there", "type": "null"}}}, [None], [1]),
    ({"$ref": "http://a/b/c#/x", "$defs": {"d": {"$id": "http://a/b/c", "x": {"type": "null"}}}}, [None], [1]),
    ({"$id": "http://a/b/", "$ref": "../d/./e?f", "$defs": {"e": {"$id": "/d/e?f", "type": "null"}}}, [None], [1]),
    ({"$id": "urn:x:y", "properties": {"a": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "null"}}}, [{"a": None}], [{"a": 1}]),
    ({"examples": [{"type": "null"}], "$ref": "#/examples/0"}, [None], [1]),
    ({"$ref": "#/unknown/a", "unknown": {"a": {"$id": "http://z/a", "$ref": "#/d", "d": {"type": "null"}}}}, [None], [1]),
    ({"unevaluatedProperties": False, "allOf": [{"properties": {"a": True}}]}, [{"a": 1}, []], [{"b": 1}]),
    ({"unevaluatedProperties": {"type": "null"}, "properties": {"a": True}}, [{"a": 1, "b": None}], [{"b": 1}]),
    (
        {"unevaluatedProperties": False, "anyOf": [{"properties": {"a": {"const": 1}}}, {"properties": {"b": True}}]},
        [{"a": 1, "b": 2}],
        [{"a": 2, "b": 1}, {"c": 1}],
    ),
    (
        {"unevaluatedProperties": False, "if": {"properties": {"a": {"const": 1}}, "required": ["a"]},
         "then": {"properties": {"b": True}}, "else": {"patternProperties": {"^c": True}}},
        [{"a": 1, "b": 1}, {"c": 1}],
        [{"b": 1}, {"a": 1, "c": 1}],
    ),
    ({"unevaluatedProperties": False, "dependentSchemas": {"a": {"properties": {"a": True, "b": True}}}}, [{"a": 1, "b": 1}], [{"b": 1}]),
    ({"unevaluatedProperties": False, "not": {"not": {"properties": {"a": True}}}}, [{}], [{"a": 1}]),
    ({"allOf": [{"unevaluatedProperties": True}], "unevaluatedProperties": False}, [{"a": 1}], []),
    ({"allOf": [{"additionalProperties": True}], "unevaluatedProperties": False}, [{"a": 1}], []),
    ({"unevaluatedItems": False, "prefixItems": [True]}, [[1], {}], [[1, 2]]),
    ({"unevaluatedItems": False, "contains": {"const": 1}}, [[1, 1]], [[1, 2]]),
    ({"unevaluatedItems": False, "oneOf": [{"prefixItems": [True, {"const": 2}]}, {"prefixItems": [{"const": 1}]}]}, [[3, 2]], [[1], [1, 2]][1:]),
    ({"unevaluatedItems": False, "$ref": "#/$defs/a", "$defs": {"a": {"items": {"type": "null"}}}}, [[None]], [[1]]),
    ({"unevaluatedItems": {"type": "null"}}, [[None]], [[1]]),
]


@pytest.mark.parametrize("schema, fit, unfit", KEYWORDS, ids=[json.dumps(case[0])[:60] for case in KEYWORDS])
def test_keywords(schema, fit, unfit):
    validator = nk.Validator(schema)
    assert [value for value in fit if not validator.is_valid(value)] == []
    assert [value for value in unfit if validator.is_valid(value)] == []
    assert all(validator.issues(value) == [] for value in fit)
    assert all(validator.issues(value) for value in unfit)


def test_the_table_of_keywords():
    used = json.dumps([case[0] for case in KEYWORDS]) + json.dumps([case[0] for case in DRAFTS])
    assert list(nk.SCHEMA_KEYWORDS) == sorted(nk.SCHEMA_KEYWORDS)
    for keyword, row in nk.SCHEMA_KEYWORDS.items():
        function, vocabulary, draft, takes = row
        assert callable(function) and draft in (7, 19, 20) and takes in nk.SCHEMA_TAKES
        assert vocabulary in ("core", "applicator", "validation", "unevaluated")
        assert '"%s"' % keyword in used, keyword


# Drafts, vocabularies, documents

DRAFTS = [
    ({"$schema": OLD, "$ref": "#/definitions/a", "maximum": 0, "definitions": {"a": {"type": "integer"}}}, [5], ["x"]),
    ({"$schema": OLD, "items": [{"type": "null"}], "additionalItems": False}, [[None]], [[None, 1], [1]]),
    ({"$schema": OLD, "$ref": "#there", "definitions": {"a": {"$id": "#there", "type": "null"}}}, [None], [1]),
    (
        {"$schema": OLD, "$id": "http://x/root", "items": {"$id": "http://y/", "$ref": "#/definitions/a"}, "definitions": {"a": {"type": "null"}}},
        [[None]],
        [[1]],
    ),
    (
        {"$schema": OLD, "items": {"$id": "http://y/z", "items": {"$ref": "#/definitions/a"}, "definitions": {"a": {"type": "null"}}}},
        [[[None]]],
        [[[1]]],
    ),
    ({"$schema": OLD, "prefixItems": [False], "unevaluatedProperties": False, "minContains": 2}, [[1], {"a": 1}], []),
    ({"$schema": OLD, "contains": {"const": 1}, "minContains": 2}, [[1]], [[]]),
    ({"$schema": OLD, "if": {"type": "null"}, "then": False}, [1], [None]),
    ({"$schema": MIDDLE, "items": [True], "unevaluatedItems": False}, [[1]], [[1, 2]]),
    ({"$schema": MIDDLE, "contains": {"const": 1}, "minContains": 2}, [[1, 1]], [[1]]),
    ({"$schema": MIDDLE, "prefixItems": [False], "items": {"type": "integer"}}, [[1]], [["a"]]),
    ({"$schema": MIDDLE, "contains": {"const": 1}, "unevaluatedItems": False}, [], [[1]]),
    (
        {"$schema": MIDDLE, "$id": "http://x/tree", "$recursiveAnchor": True, "properties": {"kids": {"items": {"$recursiveRef": "#"}}}},
        [{"kids": [{"kids": []}]}],
        [],
    ),
    ({"items": [{"type": "null"}], "additionalItems": {"type": "string"}}, [[None, "a"]], [[None, 1], [1]]),
    ({"definitions": {"a": {"type": "null"}}, "$ref": "#/definitions/a"}, [None], [1]),
    ({"$schema": "http://example.com/never-heard-of", "type": "null"}, [None], [1]),
    (
        {"$dynamicRef": "#x", "$defs": {"a": {"$dynamicAnchor": "x", "type": "null"}, "b": {"$anchor": "y", "$comment": "c"}}},
        [None],
        [1],
    ),
]


@pytest.mark.parametrize("schema, fit, unfit", DRAFTS, ids=[json.dumps(case[0])[:60] for case in DRAFTS])
def test_drafts(schema, fit, unfit):
    test_keywords(schema, fit, unfit)


TREE = {
    "$id": "http://x/tree",
    "$dynamicAnchor": "node",
    "type": "object",
    "properties": {"data": True, "children": {"type": "array", "items": {"$dynamicRef": "#node"}}},
}
STRICT = {"$id": "http://x/strict", "$dynamicAnchor": "node", "$ref": "tree", "unevaluatedProperties": False}


def test_a_dynamic_reference_means_the_outermost_resource():
    resources = {"http://x/tree": TREE}
    strict = nk.Validator(STRICT, resources=resources)
    loose = nk.Validator(TREE)
    wrong = {"children": [{"daat": 1}]}
    assert loose.is_valid(wrong)
    assert [str(issue) for issue in strict.issues(wrong)] == ['"daat" is not a field of children.0']
    assert strict.is_valid({"children": [{"data": 1, "children": []}]})


def test_a_recursive_reference_means_the_outermost_resource():
    tree = {"$id": "http://x/t", "$schema": MIDDLE, "$recursiveAnchor": True, "properties": {"kids": {"items": {"$recursiveRef": "#"}}}}
    strict = {"$id": "http://x/s", "$schema": MIDDLE, "$recursiveAnchor": True, "$ref": "t", "unevaluatedProperties": False}
    validator = nk.Validator(strict, resources={"http://x/t": tree})
    assert validator.is_valid({"kids": [{"kids": []}]})
    assert not validator.is_valid({"kids": [{"x": 1}]})


def test_resources_are_a_mapping_or_a_function():
    schema = {"$ref": "http://x/a#/$defs/n"}
    document = {"$defs": {"n": {"type": "null"}}}
    asked = []

    def find(uri):
        asked.append(uri)
        return document if uri == "http://x/a" else None

    for resources in ({"http://x/a": document}, find, {"http://x/a": document}.__getitem__):
        validator = nk.Validator(schema, resources=resources)
        assert validator.is_valid(None) and not validator.is_valid(1)
    assert asked == ["http://x/a"]
    assert nk.Validator({"$ref": "http://x/b"}, resources={"http://x/b": False}).issues(1)


def test_a_document_may_have_a_name_of_its_own():
    real = {"$id": "http://x/real/", "$anchor": "here", "type": "array", "items": {"$ref": "part"}, "$defs": {"p": {"$id": "part", "type": "null"}}}
    for reference in ("http://x/alias", "http://x/alias#here"):
        validator = nk.Validator({"$ref": reference}, resources={"http://x/alias": real})
        assert validator.is_valid([None]) and not validator.is_valid([1])


def test_vocabularies_switch_keywords_on_and_off():
    base = "https://json-schema.org/draft/2020-12/vocab/"
    metas = {
        "http://x/no-validation": {"$vocabulary": {base + "core": True, base + "applicator": True}},
        "http://x/formats": {"$vocabulary": {base + "core": True, base + "format-assertion": False}},
        "http://x/strange": {"$vocabulary": {base + "core": True, "http://x/vocab/own": True}},
        "http://x/harmless": {"$vocabulary": {base + "core": True, base + "validation": True, "http://x/vocab/own": False}},
    }
    older = "https://json-schema.org/draft/2019-09/vocab/"
    metas["http://x/2019"] = {"$vocabulary": {older + "core": True, older + "applicator": True}}
    assert nk.Validator({"$schema": "http://x/2019", "prefixItems": [False]}, resources=metas).is_valid([1])
    quiet = nk.Validator({"$schema": "http://x/no-validation", "minimum": 5, "properties": {"a": False}}, resources=metas)
    assert quiet.is_valid(1) and not quiet.is_valid({"a": 1})
    assert not nk.Validator({"$schema": "http://x/formats", "format": "ipv4"}, resources=metas).is_valid("x")
    assert not nk.Validator({"$schema": "http://x/harmless", "minimum": 5}, resources=metas).is_valid(1)
    with pytest.raises(nk.RegistrationError) as caught:
        nk.Validator({"$schema": "http://x/strange"}, resources=metas)
    assert caught.value.message == 'the schema is faulty: it needs the vocabulary "http://x/vocab/own"'


def test_formats_are_asserted_on_demand():
    assert nk.Validator({"format": "date"}).is_valid("x")
    validator = nk.Validator({"format": "date"}, assert_formats=True)
    assert validator.is_valid("2024-02-29") and validator.is_valid(5)
    assert lines({"format": "date"}, "2023-02-29", assert_formats=True) == [
        'expected a date (YYYY-MM-DD), got the string "2023-02-29"'
    ]
    assert nk.Validator({"format": "colour"}, assert_formats=True).is_valid("x")


def test_the_metaschema_judges_schemas():
    validator = nk.Validator({"$ref": NEW})
    for schema in (True, {}, {"type": "string"}, {"$defs": {"a": {"items": {"minLength": 0}}}}, {"$id": "http://x/y#"},
                   {"type": ["array", "boolean", "integer", "null", "number", "object", "string"]}, {"multipleOf": 0.5}):  # fmt: skip
        assert validator.is_valid(schema), schema
    for schema in (1, {"type": "text"}, {"minLength": -1}, {"$defs": {"a": {"items": {"minLength": "0"}}}}, {"$id": "#a"},
                   {"required": ["a", "a"]}, {"allOf": []}, {"dependencies": {"a": 1}}, {"$anchor": "a b"}, {"multipleOf": 0},
                   {"minimum": "1"}, {"title": 1}, {"uniqueItems": 1}, {"dependentRequired": {"a": "b"}}, {"enum": 1}):  # fmt: skip
        assert not validator.is_valid(schema), schema
    assert nk.Validator({"$ref": NEW[:-6] + "meta/validation#/$defs/nonNegativeInteger"}).is_valid(3)
    assert lines({"$ref": NEW}, {"properties": {"a": {"type": "strin"}}})[0].startswith("properties.a.type: expected ")


# Schemas that are none

LOOP = {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}
BAD_SCHEMAS = [
    (5, "the schema is faulty: a schema is an object or a boolean, got 5"),
    (None, "the schema is faulty: a schema is an object or a boolean, got null"),
    ({"properties": {"a": {"items": "x"}}}, 'the schema at #/properties/a/items is faulty: a schema is an object or a boolean, got "x"'),
    ({"type": "text"}, 'the schema is faulty: "type" takes one or several of array, boolean, integer, null, number, object, string, got "text"'),
    ({"type": []}, 'the schema is faulty: "type" takes one or several of array, boolean, integer, null, number, object, string, got []'),
    ({"enum": "a"}, 'the schema is faulty: "enum" takes an array, got "a"'),
    ({"const": {1, 2}}, 'the schema is faulty: "const" holds a value of the Python type set'),
    ({"minimum": "1"}, 'the schema is faulty: "minimum" takes a number, got "1"'),
    ({"exclusiveMaximum": True}, 'the schema is faulty: "exclusiveMaximum" takes a number, got true'),
    ({"multipleOf": 0}, 'the schema is faulty: "multipleOf" takes a number above 0, got 0'),
    ({"minLength": -1}, 'the schema is faulty: "minLength" takes a whole number of at least 0, got -1'),
    ({"maxItems": 1.5}, 'the schema is faulty: "maxItems" takes a whole number of at least 0, got 1.5'),
    ({"maxContains": True}, 'the schema is faulty: "maxContains" takes a whole number of at least 0, got true'),
    ({"pattern": "("}, 'the schema is faulty: "pattern" holds "(", which is no pattern: there is a ( without its )'),
    ({"patternProperties": {"a++": {}}}, 'the schema is faulty: "patternProperties" holds "a++", which is no pattern: there is nothing to repeat before +'),
    ({"uniqueItems": 1}, 'the schema is faulty: "uniqueItems" takes true or false, got 1'),
    ({"required": "a"}, 'the schema is faulty: "required" takes an array of names, got "a"'),
    ({"required": [1]}, 'the schema is faulty: "required" takes an array of names, got [1]'),
    ({"dependentRequired": {"a": "b"}}, 'the schema is faulty: "dependentRequired" takes an object of arrays of names, got {"a": "b"}'),
    ({"dependencies": []}, 'the schema is faulty: "dependencies" takes an object, got []'),
    ({"properties": []}, 'the schema is faulty: "properties" takes an object of schemas, got []'),
    ({"$defs": 1}, 'the schema is faulty: "$defs" takes an object of schemas, got 1'),
    ({"prefixItems": {}}, 'the schema is faulty: "prefixItems" takes an array of schemas, got {}'),
    ({"allOf": []}, 'the schema is faulty: "allOf" takes a non-empty array of schemas, got []'),
    ({"anyOf": {"a": 1}}, 'the schema is faulty: "anyOf" takes a non-empty array of schemas, got {"a": 1}'),
    ({"format": 1}, 'the schema is faulty: "format" takes the name of a format, got 1'),
    ({"$id": 1}, 'the schema is faulty: "$id" takes a string, got 1'),
    ({"$ref": 1}, 'the schema is faulty: "$ref" takes a URI reference, got 1'),
    ({"$ref": "#/nowhere"}, 'the schema is faulty: "#/nowhere" refers to nothing'),
    ({"$ref": "#nowhere"}, 'the schema is faulty: "#nowhere" refers to nothing'),
    ({"items": {"$ref": "http://x/y"}}, 'the schema at #/items is faulty: nothing is known of "http://x/y"; give it in resources'),
    ({"$dynamicRef": "other#a"}, 'the schema is faulty: nothing is known of "other#a"; give it in resources'),
    ({"$ref": "#"}, 'the schema is faulty: "#" refers to itself'),
    (LOOP, 'the schema at #/$defs/a is faulty: "#/$defs/b" refers to itself'),
    ({"anyOf": [{"type": "null"}, {"not": {"$ref": "#"}}]}, "the schema is faulty: it applies to the same value without end"),
    ({"$ref": "#", "maximum": 1}, "the schema is faulty: it applies to the same value without end"),
    ({"then": 5}, "the schema at #/then is faulty: a schema is an object or a boolean, got 5"),
]


@pytest.mark.parametrize("schema, message", BAD_SCHEMAS, ids=[repr(case[0])[:50] for case in BAD_SCHEMAS])
def test_what_is_no_schema(schema, message):
    with pytest.raises(nk.RegistrationError) as caught:
        nk.Validator(schema)
    assert caught.value.message == message
    assert caught.value.code == "REGISTRATION_ERROR"


def test_resources_that_fail():
    def find(uri):
        raise RuntimeError("secret")

    with pytest.raises(nk.RegistrationError) as caught:
        nk.Validator({"$ref": "http://x/y"}, resources=find)
    assert caught.value.message == 'the schema is faulty: looking up "http://x/y" failed with RuntimeError'
    with pytest.raises(nk.RegistrationError) as caught:
        nk.Validator({"$ref": "http://x/y"}, resources={"http://x/y": {"$defs": {"a": 1}, "$ref": "#/$defs/a"}})
    assert caught.value.message == "the schema at #/$defs/a is faulty: a schema is an object or a boolean, got 1"


def test_the_schema_is_never_changed():
    schema = {"properties": {"a": {"$ref": "#/$defs/x", "title": "t"}}, "$defs": {"x": {"enum": [1, [2]]}}, "required": ["a"]}
    before = json.dumps(schema)
    validator = nk.Validator(schema)
    validator.issues({"a": 5, "b": [1]})
    assert json.dumps(schema) == before and validator.schema is schema


# Issues

INPUT = {
    "type": "object",
    "properties": {
        "to": {"type": "string", "minLength": 2},
        "amount": {"type": "integer", "minimum": 1},
        "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
        "opts": {"type": "object", "properties": {"a b": {"type": "boolean"}}, "additionalProperties": False},
    },
    "required": ["to"],
    "additionalProperties": False,
}
MESSAGES = [
    (INPUT, {"amount": "x"}, ['amount: expected a whole number, got the string "x"', "to is required"]),
    (INPUT, {"to": "a"}, ['to: expected at least 2 characters, got the string "a"']),
    (INPUT, {"to": "ab", "foo": 1}, ['"foo" is not a field of this input']),
    (INPUT, {"to": "ab", "ammount": 1}, ['"ammount" is not a field of this input; did you mean "amount"?']),
    (INPUT, {"to": "ab", "opts": {"ab": 1, "a b": 1}}, [
        '"ab" is not a field of opts; did you mean "a b"?', 'opts."a b": expected true or false, got the number 1']),
    (INPUT, {"to": "ab", "tags": ["a", 1, "a"]}, [
        "tags.1: expected a string, got the number 1", "tags has equal items at 0 and 2, but all must differ"]),
    (INPUT, [], ["expected an object, got the array []"]),
    (INPUT, None, ["expected an object, got null"]),
    ({"type": ["string", "null"]}, 5, ["expected a string, got the number 5"]),
    ({"type": ["array", "string", "null"]}, 1.5, ["expected an array or a string, got the number 1.5"]),
    (False, 1, ["the value is not allowed"]),
    ({"properties": {"a": False}}, {"a": 1}, ["a is not allowed"]),
    ({"enum": ["small", "large"]}, "huge", ['expected one of "small", "large", got the string "huge"']),
    ({"enum": list(range(12))}, 20, ["expected one of 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 2 others, got the number 20"]),
    ({"enum": []}, 1, ["expected nothing, got the number 1"]),
    ({"const": 3}, True, ["expected 3, got true"]),
    ({"minimum": 1}, 0, ["expected at least 1, got the number 0"]),
    ({"maximum": 1}, 2, ["expected at most 1, got the number 2"]),
    ({"exclusiveMinimum": 0.5}, 0.5, ["expected more than 0.5, got the number 0.5"]),
    ({"exclusiveMaximum": 1}, 1, ["expected less than 1, got the number 1"]),
    ({"multipleOf": 0.01}, 0.005, ["expected a multiple of 0.01, got the number 0.005"]),
    ({"minLength": 1}, "", ['expected at least 1 character, got the string ""']),
    ({"maxItems": 1}, [1, 2], ["expected at most 1 item, got the array [1, 2]"]),
    ({"minProperties": 2}, {}, ["expected at least 2 fields, got the object {}"]),
    ({"pattern": "^[a-z]{2}$"}, "A", ['expected a string that matches ^[a-z]{2}$, got the string "A"']),
    ({"pattern": "\u202e|\n"}, "A", ['expected a string that matches "\\u202e|\\n", got the string "A"']),
    ({"prefixItems": [True], "items": False}, [1, 2], ["1 is one item too many"]),
    ({"contains": {"const": 1}}, [2], ["the value has 0 matching items, but needs at least 1"]),
    ({"contains": {"const": 1}, "maxContains": 1}, [1, 1], ["the value has 2 matching items, but needs at most 1"]),
    ({"propertyNames": {"maxLength": 2}}, {"abc": 1}, ["abc is no good name: expected at most 2 characters"]),
    ({"dependentRequired": {"a": ["b"]}}, {"a": 1}, ["b is required when a is given"]),
    ({"not": {"type": "null"}}, None, ["the value is ruled out by the schema"]),
    ({"oneOf": [{"type": "integer"}, {"minimum": 2}]}, 3, ["the value fits more than one of the alternatives, but only one may fit"]),
    ({"unevaluatedProperties": False}, {"a\x1b": 1}, ['"a\\u001b" is not a field of this input']),
    ({"unevaluatedItems": False}, [1], ["0 is not allowed"]),
    ({"type": "string"}, "x", []),
    ({"type": "integer"}, "\x1b[0m\u202e", ['expected a whole number, got the string "\\u001b[0m\\u202e"']),
    ({"type": "integer"}, "x" * 100, ["expected a whole number, got the string \"" + "x" * 55 + '"...']),
    ({"properties": {"": {"required": [""]}}}, {"": {}}, ['""."" is required']),
]


@pytest.mark.parametrize("schema, value, expected", MESSAGES, ids=[repr(case[:2])[:60] for case in MESSAGES])
def test_messages(schema, value, expected):
    assert lines(schema, value) == expected
    assert not any(line.endswith(".") and not line.endswith("...") for line in expected)


SHAPES = {
    "oneOf": [
        {"type": "object", "properties": {"kind": {"const": "circle"}, "r": {"type": "number"}}, "required": ["kind", "r"]},
        {"type": "object", "properties": {"kind": {"const": "box"}, "w": {"type": "number"}}, "required": ["kind", "w"]},
        {"type": "string"},
    ]
}
UNIONS = [
    ({"anyOf": [{"type": "string"}, {"type": "null"}]}, 5, ["expected a string, got the number 5"]),
    ({"anyOf": [{"type": "string", "maxLength": 2}, {"type": "null"}]}, "abc", ['expected at most 2 characters, got the string "abc"']),
    ({"anyOf": [{"const": "x"}, {"enum": ["y", "z"]}, {"type": "integer"}]}, "w", ['expected "x", one of "y", "z" or a whole number, got the string "w"']),
    ({"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "string"}]}, ["a", 3], ["1: expected a string, got the number 3"]),
    ({"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, {}, ["the value fits none of the alternatives (a is required or b is required)"]),
    ({"anyOf": [{"anyOf": [{"type": "string"}, {"type": "null"}]}, {"type": "array"}]}, 5, ["expected a string or an array, got the number 5"]),
    (SHAPES, {"kind": "circle", "r": "big"}, ['r: expected a number, got the string "big"']),
    (SHAPES, {"kind": "box"}, ["w is required"]),
    (SHAPES, {"kind": "tri", "w": 1}, ['kind: expected "circle" or "box", got the string "tri"']),
    (SHAPES, 3, ["expected an object or a string, got the number 3"]),
    ({"properties": {"s": SHAPES}}, {"s": {"kind": 0}}, ['s.kind: expected "circle" or "box", got the number 0']),
    ({"anyOf": [{"type": kind} for kind in ("null", "boolean", "integer", "array", "object", "number")]}, "", [
        'expected true or false, a whole number, an array, an object or a number, got the string ""']),
]


@pytest.mark.parametrize("schema, value, expected", UNIONS, ids=[repr(case[:2])[-60:] for case in UNIONS])
def test_unions_report_the_branch_that_got_furthest(schema, value, expected):
    assert lines(schema, value) == expected


def test_an_issue_is_data():
    issue = nk.Validator(INPUT).issues({"to": "ab", "tags": ["a", {"b/c": 1}]})[0]
    assert issue.location == ("tags", 1) and issue.path == "/tags/1" and issue.keyword == "type"
    assert issue.to_wire() == {
        "path": "/tags/1",
        "keyword": "type",
        "message": 'expected a string, got the object {"b/c": 1}',
        "expected": "a string",
        "received": 'the object {"b/c": 1}',
    }
    assert repr(issue) == 'Issue(tags.1: expected a string, got the object {"b/c": 1})'
    missing = nk.Validator(INPUT).issues({})[0]
    assert (missing.path, missing.keyword, missing.message) == ("/to", "required", "is required")
    assert (missing.expected, missing.received) == ("a value", "nothing")
    undeclared = nk.Validator(INPUT).issues({"to": "ab", "a/b": None})[0]
    assert (undeclared.path, undeclared.keyword) == ("/a~1b", "additionalProperties")
    assert (undeclared.expected, undeclared.received) == ("no field of this name", "null")


def test_at_most_twenty_issues():
    assert len(nk.Validator({"items": {"type": "string"}}).issues(list(range(1000)))) == 20
    assert len(nk.Validator({"required": [str(n) for n in range(50)]}).issues({})) == 20
    assert len(nk.Validator({"additionalProperties": False}).issues({str(n): n for n in range(50)})) == 20
    assert len(nk.Validator({"allOf": [{"minimum": n} for n in range(1, 50)]}).issues(0)) == 20


def test_secrets_are_not_shown():
    schema = {
        "properties": {
            "token": {"type": "string", "pattern": "^t"},
            "deep": {"properties": {"keys": {"items": {"type": "integer"}}, "o": {"maxProperties": 0}}},
            "list": {"maxItems": 0},
            "either": {"anyOf": [{"const": "a"}, {"type": "integer"}]},
        }
    }
    value = {"token": "hunter2", "deep": {"keys": ["hunter2"], "o": {"p": "hunter2"}}, "list": ["hunter2"], "either": "hunter2"}
    hidden = [("token",), ("deep", "keys", 0), ("deep", "o", "p"), ("list", 0), ("either",)]
    issues = nk.Validator(schema).issues(value, hidden=hidden)
    assert [str(issue) for issue in issues] == [
        "token: expected a string that matches ^t, got ***",
        "deep.keys.0: expected a whole number, got ***",
        "deep.o: expected at most 0 fields, got an object",
        "list: expected at most 0 items, got an array",
        'either: expected "a" or a whole number, got ***',
    ]
    assert "hunter2" not in json.dumps([issue.to_wire() for issue in issues])
    assert len(nk.Validator(INPUT).issues({}, hidden=[("to",)])) == 1
    assert nk.Validator(False).issues("hunter2", hidden=[()])[0].received == "***"


CRED = {"type": "object", "properties": {"user": {"type": "string"}, "password": {"type": "string"}}, "required": ["user"], "additionalProperties": False}
VAULT = {
    "type": "object",
    "properties": {
        "c": {"$ref": "#/$defs/Cred"},
        "pw": {"type": "array", "items": {"type": "integer"}},
        "keys": {"type": "object", "additionalProperties": {"type": "integer"}},
        "pair": {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": False},
        "pin": {"anyOf": [{"type": "integer"}, {"type": "boolean"}]},
        "size": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "both": {"oneOf": [
            {"type": "object", "required": ["a"], "additionalProperties": {"type": "object", "required": ["x"]}},
            {"type": "object", "required": ["b"], "additionalProperties": {"type": "object", "required": ["y"]}},
        ]},
        "color": {"enum": ["red", "blue"]},
    },
    "additionalProperties": False,
    "$defs": {"Cred": CRED},
}
MISPLACED = [
    ({"c": {"user": "u", "passwrd": "hunter2"}}, [], '"***" is not a field of c; did you mean "password"?', "a string"),
    ({"c": {"user": "u", "hunter2": None}}, [], '"***" is not a field of c', "null"),
    ({"c": ["u", "hunter2"]}, [], "c: expected an object, got an array", "an array"),
    ({"c": "hunter2"}, [], "c: expected an object, got a string", "a string"),
    ({"c": {}}, [], "c.user is required", "nothing"),
    ({"pw": "hunter2"}, [], "pw: expected an array, got a string", "a string"),
    ({"pw": {"hunter2": 1}}, [], "pw: expected an array, got an object", "an object"),
    ({"pw": ["hunter2"]}, [("pw", 0)], "pw.0: expected a whole number, got ***", "***"),
    ({"keys": {"hunter2": "x"}}, [("keys", "hunter2")], 'keys."***": expected a whole number, got ***', "***"),
    ({"keys": ["hunter2"]}, [], "keys: expected an object, got an array", "an array"),
    ({"pair": ["a", 1, "hunter2"]}, [("pair", 1)], "pair.2 is one item too many", "a string"),
    ({"pin": "hunter2"}, [], "pin: expected a whole number or true or false, got a string", "a string"),
    ({"both": {"hunter2": {}, "a": {"x": 1}, "b": {"y": 1}}}, [], None, None),
    ({"both": {"hunter2": 7}}, [], None, None),
    ({"hunter2": False}, [], '"***" is not a field of this input', "a boolean"),
    (["hunter2"], [], "expected an object, got an array", "an array"),
    ({"size": "big"}, [], 'size: expected a whole number, got the string "big"', 'the string "big"'),
    ({"color": "green"}, [], 'color: expected one of "red", "blue", got the string "green"', 'the string "green"'),
    ({"c": {"user": 5}}, [], "c.user: expected a string, got the number 5", "the number 5"),
]


@pytest.mark.parametrize("value, hidden, line, received", MISPLACED, ids=[repr(case[0])[:50] for case in MISPLACED])
def test_misplaced_secrets_are_not_shown(value, hidden, line, received):
    issues = nk.Validator(VAULT).issues(value, hidden=hidden)
    assert issues and "hunter2" not in json.dumps([[str(issue), issue.to_wire()] for issue in issues])
    if line is not None:
        assert (str(issues[0]), issues[0].received) == (line, received)


def test_secrets_in_what_is_not_checked_are_not_shown():
    for schema in ({"not": {}}, {"maxProperties": 0}, {"propertyNames": {"maxLength": 2}}, {"patternProperties": {"r": {"type": "null"}}},
                   {"unevaluatedProperties": False}, {"$ref": "#/$defs/x", "$defs": {"x": {"$ref": "#/$defs/x", "type": "null"}}}, False,
                   {"anyOf": [{"additionalProperties": {"type": "null"}}, {"additionalProperties": {"const": 1}}]}):  # fmt: skip
        try:
            issues = nk.Validator(schema).issues({"hunter2": "hunter22"}, hidden=[])
        except nk.RegistrationError:
            continue
        assert issues and "hunter2" not in json.dumps([[str(issue), issue.to_wire()] for issue in issues])


def test_null_is_not_offered_beside_others():
    assert lines({"anyOf": [{"enum": ["book", "film"]}, {"type": "null"}]}, "x") == ['expected one of "book", "film", got the string "x"']
    assert lines({"type": "null"}, "x") == ['expected null, got the string "x"']


def test_formats_of_annotations_are_judged():
    import datetime, decimal

    for kind, good in ((datetime.datetime, "2024-01-01T10:00"), (datetime.time, "10:00"), (decimal.Decimal, "1.50")):
        validator = nk.Validator(nk.schema_of(kind))
        assert validator.is_valid(good) and not validator.is_valid("x")


def test_check_raises_the_validation_error():
    validator = nk.Validator(INPUT)
    assert validator.check({"to": "ab"}) is None
    with pytest.raises(nk.Error) as caught:
        validator.check({"amount": "x"})
    error = caught.value
    assert error.code == "VALIDATION_ERROR" and not error.retryable
    assert error.message == 'Invalid input: amount: expected a whole number, got the string "x"; to is required'
    assert [issue["path"] for issue in error.details["issues"]] == ["/amount", "/to"]


def test_the_error_names_five_and_counts_the_rest():
    issues = nk.Validator({"items": {"type": "null"}}).issues([0] * 7)
    error = nk._schema_error(issues, "Invalid params")
    assert error.message == (
        "Invalid params: 0: expected null, got the number 0; 1: expected null, got the number 0; "
        "2: expected null, got the number 0; 3: expected null, got the number 0; 4: expected null, got the number 0; and 2 more"
    )
    assert len(error.details["issues"]) == 7


# What Python holds that JSON does not


def test_subclasses_count_as_their_base():
    class Size(IntEnum):
        SMALL = 1

    class Name(str):
        pass

    validator = nk.Validator({"type": "integer", "enum": [1]})
    assert validator.is_valid(Size.SMALL)
    assert nk.Validator({"enum": ["a"]}).is_valid(Name("a")) and not nk.Validator({"enum": ["a"]}).is_valid(Name("b"))
    assert nk.Validator({"uniqueItems": True, "items": {"type": "integer"}}).is_valid((1, Size.SMALL)) is False
    assert nk.Validator({"properties": {"a": {"type": "null"}}}).is_valid(OrderedDict(a=1)) is False


@pytest.mark.parametrize("value", [{1, 2}, b"x", object(), 1j, ...], ids=repr)
def test_other_values_are_refused(value):
    for schema in ({}, {"type": "string"}, {"anyOf": [{}, {}]}, {"enum": [1]}):
        issues = nk.Validator(schema).issues(value)
        assert len(issues) == 1 and issues[0].message.startswith("expected a JSON value, got the ")


def test_keys_that_are_no_text():
    value = {1: "x", None: 2, "a": 3}
    for schema in ({"patternProperties": {"a": True}, "unevaluatedProperties": False}, {"additionalProperties": False}):
        assert len(nk.Validator(schema).issues(value)) >= 2
    assert nk.Validator({"propertyNames": {"maxLength": 3}, "required": ["a"]}).is_valid({"a": 1})
    assert len(nk.Validator({"propertyNames": {"type": "string"}}).issues(value)) == 2


def test_values_that_cannot_be_compared():
    assert lines({"uniqueItems": True}, [[float("nan")], [1]]) == ["the value holds NaN"]
    assert lines({"enum": [[1]]}, [{1}]) == ["the value holds a value of the Python type set"]


# Limits

TREE_OF_LISTS = {
    "type": "object",
    "properties": {"c": {"type": "array", "items": {"anyOf": [{"$ref": "#"}, {"type": "integer"}]}}},
    "required": ["c"],
    "additionalProperties": False,
}


def nested(levels, leaf=1):
    for _ in range(levels):
        leaf = {"c": [leaf]}
    return leaf


def test_the_deepest_document_of_a_door_is_checked():
    validator = nk.Validator(TREE_OF_LISTS)
    assert validator.issues(nested(64)) == []
    assert validator.issues(nested(64, "x"))[0].location == ("c", 0) * 64


def test_deep_schemas_are_refused():
    schema = {"type": "null"}
    for _ in range(20000):
        schema = {"items": schema}
    with pytest.raises(nk.RegistrationError) as caught:
        nk.Validator(schema)
    assert caught.value.message == "the schema at #/items is faulty: it is nested too deeply"


def test_values_and_schemas_that_hold_themselves():
    value = []
    value.append(value)
    assert lines({"items": {"$ref": "#"}}, value) == ["the value is nested too deeply to be checked"]
    assert lines({"uniqueItems": True}, [value, value]) == ["the value holds a value that contains itself"]
    schema = {"type": "array"}
    schema["items"] = schema
    assert nk.Validator(schema).is_valid([[], [[]]]) and not nk.Validator(schema).is_valid([[1]])
    schema["allOf"] = [schema]
    with pytest.raises(nk.RegistrationError):
        nk.Validator(schema)


def chain(length, step, end):
    """Return a schema of definitions x0 to xN, each made by `step` from a reference to the next."""
    definitions = {"x%d" % n: step("#/$defs/x%d" % (n + 1)) for n in range(length)}
    definitions["x%d" % length] = end
    return {"$ref": "#/$defs/x0", "$defs": definitions}


@pytest.mark.parametrize(
    "schema, value",
    [
        (chain(40, lambda next: {"allOf": [{"$ref": next, "minimum": 0}, {"$ref": next, "minimum": 1}]}, {"type": "integer"}), 5),
        (chain(40, lambda next: {"oneOf": [{"$ref": next, "minimum": 0}, {"$ref": next, "minimum": 1}]}, {"type": "integer"}), 5),
        (chain(40, lambda next: {"if": {"$ref": next, "minimum": 0}, "then": {"$ref": next, "minimum": 1}}, {"maximum": 9}), 5),
        (
            dict(
                chain(40, lambda next: {"allOf": [{"$ref": next, "minimum": 0}, {"$ref": next, "minimum": 1}]}, {"properties": {"a": True}}),
                unevaluatedProperties=False,
            ),
            {"a": 5},
        ),
        ({"properties": {"c": {"items": {"allOf": [{"$ref": "#", "minProperties": 1}, {"$ref": "#", "maxProperties": 1}]}}}}, nested(60)),
        ({"properties": {"c": {"contains": {"$ref": "#"}, "items": {"$ref": "#"}}}}, nested(60)),
        ({"patternProperties": {"c": {"items": {"$ref": "#"}}, "^c": {"items": {"$ref": "#"}}}}, nested(60)),
    ],
    ids=["allOf", "oneOf", "if", "unevaluated", "members", "contains", "patterns"],
)
def test_what_fans_out_is_stopped(schema, value):
    validator = nk.Validator(schema)
    assert validator.steps == nk.SCHEMA_STEPS
    validator.steps = 30000
    assert [str(issue) for issue in validator.issues(value)] == ["the value takes too long to check against this schema"]
    assert not validator.is_valid(value)


@pytest.mark.parametrize("keyword", ["anyOf", "oneOf", "allOf"])
def test_what_fans_out_is_stopped_soon(keyword):
    schema = chain(25, lambda next: {keyword: [{"$ref": next, "minimum": 0}, {"$ref": next, "minimum": 1}]}, {"type": "string"})
    began = time.perf_counter()
    assert lines(schema, 5) == ["the value takes too long to check against this schema"]
    assert time.perf_counter() - began < 2.5  # it took 3 to 5 s


def test_patterns_in_values_cost_steps():
    validator = nk.Validator({"items": {"format": "regex"}}, assert_formats=True)
    assert validator.is_valid(["a" * 9000] * 9)
    assert [str(issue) for issue in validator.issues(["a" * 9000] * 90)] == ["the value takes too long to check against this schema"]


def test_an_honest_document_of_8_mib_is_checked():
    record = {"oneOf": [{"properties": {"k": {"const": kind}, "v": {"type": "string"}}, "required": ["k"]} for kind in "ab"]}
    assert nk.Validator({"items": record}).is_valid([{"k": "b", "v": "xxxxx"}] * 350000)


def test_long_arrays_need_few_steps():
    validator = nk.Validator({"items": {"type": "integer"}, "uniqueItems": True})
    validator.steps = 50000
    began = time.perf_counter()
    assert validator.is_valid(list(range(100000)))
    assert not validator.is_valid(list(range(100000)) + [0])
    assert validator.is_valid([n * (2**61 - 1) for n in range(20000)])  # all of one hash
    assert time.perf_counter() - began < 10


def test_threads_share_a_validator():
    validator = nk.Validator(TREE_OF_LISTS)
    answers = []
    threads = [
        threading.Thread(target=lambda leaf=leaf: answers.append({len(validator.issues(nested(9, leaf))) for _ in range(200)} == {leaf == "x"}))
        for leaf in (1, "x", 2, "x")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [True] * 4


# Local references for other sections

ROOT = {
    "$defs": {
        "a": {"type": "integer", "title": "A"}, "b": {"$ref": "#/$defs/a"}, "x/y%": {"type": "null"}, "loop": {"$ref": "#/$defs/loop"},
        "yes": True,
    }
}  # fmt: skip


@pytest.mark.parametrize(
    "schema, target",
    [
        ({"type": "string"}, {"type": "string"}),
        (True, True),
        ({"$ref": "#/$defs/b"}, {"type": "integer", "title": "A"}),
        ({"$ref": "#/$defs/b", "title": "B"}, {"type": "integer", "title": "B"}),
        ({"$ref": "#/$defs/x~1y%25"}, {"type": "null"}),
        ({"$ref": "#/$defs/yes"}, True),
        ({"$ref": "#/$defs/loop"}, {}),
        ({"$ref": "#/nowhere", "title": "B"}, {"title": "B"}),
        ({"$ref": "#anchor"}, {}),
        ({"$ref": "http://x/y"}, {"$ref": "http://x/y"}),
        ({"$ref": 5}, {"$ref": 5}),
    ],
    ids=repr,
)
def test_resolve(schema, target):
    assert nk._schema_resolve(schema, ROOT) == target
    assert nk._schema_resolve({"$ref": "#"}, ROOT) == ROOT


def test_uri_references():
    base = "http://a/b/c/d;p?q"
    for reference, target in {  # RFC 3986 5.4
        "g:h": "g:h", "g": "http://a/b/c/g", "./g": "http://a/b/c/g", "g/": "http://a/b/c/g/", "/g": "http://a/g", "//g": "http://g",
        "?y": "http://a/b/c/d;p?y", "g?y": "http://a/b/c/g?y", ";x": "http://a/b/c/;x", "": "http://a/b/c/d;p?q", ".": "http://a/b/c/",
        "..": "http://a/b/", "../g": "http://a/b/g", "../..": "http://a/", "../../../g": "http://a/g", "g.": "http://a/b/c/g.",
        "./g/.": "http://a/b/c/g/", "g/../h": "http://a/b/c/h",
    }.items():  # fmt: skip
        assert nk._format_join_uri(base, reference) == target
    assert nk._format_join_uri("", "a/b") == "a/b" and nk._format_join_uri("urn:x:y", "") == "urn:x:y" and nk._format_join_uri("http://a", "b") == "http://a/b"


# Start-up


def test_a_simple_check_imports_nothing():
    code = (
        "import sys; sys.path.insert(0, %r); import knaif as nk; before = set(sys.modules); "
        "v = nk.Validator({'type': 'object', 'properties': {'a': {'type': 'integer', 'minimum': 1}, 'd': {'format': 'date'}, "
        "'e': {'enum': ['x']}, 'u': {'anyOf': [{'type': 'string'}, {'type': 'null'}]}}, 'required': ['a']}, assert_formats=True); "
        "print(v.is_valid({'a': 1, 'd': '2024-01-01', 'e': 'x', 'u': None}), v.is_valid({'a': 0}), "
        "sorted(set(sys.modules) - before))" % os.path.dirname(os.path.abspath(nk.__file__))
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], stdout=subprocess.PIPE, check=True)
    assert done.stdout.decode().strip() == "True False []"


# Fuzzing


def random_value(made, depth=3):
    kind = made.randrange(10 if depth else 6)
    if kind < 6:
        return made.choice([None, True, False, 0, 1, 2, -1, 0.0, 1.0, 1.5, 1e300, 10**30, "", "a", "b", "abc", "10"])
    if kind < 8:
        return [random_value(made, depth - 1) for _ in range(made.randrange(4))]
    return {made.choice("abc"): random_value(made, depth - 1) for _ in range(made.randrange(4))}


def random_schema(made, depth=3):
    if depth == 0 or made.random() < 0.1:
        return made.choice([True, False, {}, {"type": "string"}, {"type": ["integer", "null"]}, {"$ref": "#/$defs/x"}, {"$ref": "#"}, {"$dynamicRef": "#d"}])
    schema = {}
    for keyword in made.sample(sorted(nk.SCHEMA_KEYWORDS), made.randrange(1, 4)):
        holds = nk.SCHEMA_TAKES[nk.SCHEMA_KEYWORDS[keyword][3]][1]
        if holds == "map":
            schema[keyword] = {made.choice("abc"): random_schema(made, depth - 1) for _ in range(made.randrange(3))}
        elif keyword in ("allOf", "anyOf", "oneOf", "prefixItems"):
            schema[keyword] = [random_schema(made, depth - 1) for _ in range(made.randrange(1, 4))]
        elif holds:
            schema[keyword] = random_schema(made, depth - 1)
        elif keyword == "type":
            schema[keyword] = made.choice(sorted(nk.SCHEMA_TYPES))
        elif keyword in ("enum", "const", "required", "dependentRequired", "$anchor", "$id", "$ref"):
            schema[keyword] = made.choice([["a", "b"], {"a": ["b"]}, "a", [1, {"a": 1}], "#/$defs/x"])
        else:
            schema[keyword] = made.choice([0, 1, 2, 0.5, True, "a", "^a", "date", random_value(made)])
    return schema


def test_any_schema_and_any_value_end_in_an_answer_or_a_registration_error(rng):
    made = rng
    compiled = 0
    for _ in range(6000):
        schema = random_schema(made)
        if isinstance(schema, dict):
            schema["$defs"] = {"x": random_schema(made, 2), "y": {"$dynamicAnchor": "d", "type": "integer"}}
        try:
            validator = nk.Validator(schema, assert_formats=made.random() < 0.5)
        except nk.RegistrationError as refusal:
            assert refusal.message.startswith("the schema ") and "\n" not in refusal.message
            continue
        compiled += 1
        for _ in range(4):
            value = random_value(made)
            issues = validator.issues(value, hidden=[("a",)])
            assert validator.is_valid(value) is not bool(issues)
            if issues:
                json.dumps(nk._schema_error(issues).to_wire())
                assert all("\n" not in str(issue) and issue.keyword for issue in issues)
    assert compiled > 1000


# Regressions


def test_sch_01_whole_numbers_and_booleans():
    integer = nk.Validator({"type": "integer"})
    assert [integer.is_valid(value) for value in (3.0, 3.5, True, float("1e400"))] == [True, False, False, False]
    assert [nk.Validator({"enum": [1]}).is_valid(value) for value in (1.0, True)] == [True, False]
    assert not nk.Validator({"const": False}).is_valid(0)
    unique = nk.Validator({"uniqueItems": True})
    assert [unique.is_valid(value) for value in ([0, False], [[1], [True]], [1, 1.0], [{"a": 1}, {"a": True}])] == [True, True, False, True]


def test_sch_05_depth_900():
    for schema in (TREE_OF_LISTS, {"properties": {"c": {"items": {"$ref": "#"}}}}):
        assert lines(schema, nested(900)) == ["the value is nested too deeply to be checked"]
    with pytest.raises(nk.Error) as caught:
        nk.Validator(TREE_OF_LISTS).check(nested(900))
    assert caught.value.message == "Invalid input: the value is nested too deeply to be checked"
    assert nk.Validator({}).is_valid(nested(900))
    assert lines({"enum": [[]]}, [nested(900)]) == ["the value holds more than 128 levels"]
    assert len(lines({"type": "null"}, nested(900))[0]) < 120


def test_sch_r1_repeated_keys_and_nan_never_reach_a_schema():
    for text in ('{"a":1,"a":2}', "NaN", "[Infinity]", "-Infinity"):
        with pytest.raises(nk._JsonFault):
            nk._json_loads(text)
