"""VIEWS: the questions, their exact answers, and what is refused before and after the call."""
import collections
import enum
import gc
import io
import json
import re
from typing import Any, List, Optional, TypedDict

import pytest

import knaif as nk
from conftest import run_app

MIXED = [{"k": 2}, {"k": "10"}, {"k": None}, {}, {"k": 1.5}, {"k": [1]}, {"k": True}, {"k": 2, "n": "second"}]


def refusal(**view: Any) -> str:
    with pytest.raises(nk.Error) as caught:
        nk.view(view.pop("value", [{"a": 1}]), **view)
    assert caught.value.code == "USAGE"
    return caught.value.message


def listing() -> list:
    """98 records as a server would list them."""
    states = ["active"] * 33 + ["idle"] * 33 + ["stopped"] * 32
    return [{"id": f"item-{n:04}", "status": state, "messages": n, "note": "x" * 250} for n, state in enumerate(states)]


# -- answers -------------------------------------------------------------------------------------------------------

def test_the_questions_of_a_listing():
    records = listing()
    assert nk.view(records, count_by="status") == {"active": 33, "idle": 33, "stopped": 32}
    assert nk.view(records, count_by="status", top=2) == {"active": 33, "idle": 33}
    assert nk.view(records, sum="messages") == 4753
    assert list(nk.view(records, sum="messages", by="status").items()) == [
        ("stopped", 2608), ("idle", 1617), ("active", 528)]
    assert nk.view(records, by="status", top=5) == nk.view(records, count_by="status", top=5)
    assert [record["messages"] for record in nk.view(records, sort="messages", top=3)] == [97, 96, 95]
    assert [record["messages"] for record in nk.view(records, sort="messages", ascending=True, top=2)] == [0, 1]
    assert nk.view(records, table=["id", "messages"], top=2) == (
        "id         messages\nitem-0000         0\nitem-0001         1")
    assert nk.view({"items": records, "next": None}, count_by="status", top=1) == {"active": 33}


def test_agg_01_missing_adds_nothing_and_text_is_refused():
    rows = [{"a": 1}, {"b": 2}]
    assert nk.view(rows, sum="a") == 1 and nk.view(rows, sum="b") == 2
    assert nk.view([{"a": None}, {"a": 2}], sum="a") == 2
    for bad, shown in (("1,234.56", '"1,234.56"'), ("", '""'), (True, "true"), ({}, "{}"), ([1], "[1]")):
        assert refusal(value=[{"amount": 10}, {"amount": bad}], sum="amount") == (
            f"--sum amount: record 2 holds {shown}, which is not a number")


@pytest.mark.parametrize("numbers, total", [
    ([0.7, 0.79, 1, 1.1], 3.59), ([0.1] * 10, 1.0), ([303.09, -140.09, -25, 0, -20, -20, 0, -8, -90], 0.0),
    ([2 ** 70, 1], 2 ** 70 + 1), ([1e308, 1e308], 2 * 10 ** 308), ([2 ** 60, 0.5, 0.5], 2 ** 60 + 1), ([], 0)])
def test_agg_03_sums_are_the_decimals_they_print_as(numbers, total):
    assert nk.view([{"n": number} for number in numbers], sum="n") == total


def test_agg_r2_only_groups_that_occur_and_none_merged():
    values = ["1", 1, 1.0, True, "true", None, "null", [1], "[1]", {"a": 1}, "(absent)", '"1"']
    records = [{"k": value} for value in values] + [{}, {"k": "1"}]
    assert nk.view(records, count_by="k") == {
        '"1"': 2, "1": 2, "true": 1, '"true"': 1, "null": 1, '"null"': 1, "[1]": 1, '"[1]"': 1, '{"a":1}': 1,
        '"(absent)"': 1, '"\\"1\\""': 1, "(absent)": 1}
    assert sum(nk.view(records, count_by="k").values()) == len(records)


def test_srt_01_a_documented_order_of_types_and_ties_in_input_order():
    up = nk.view(MIXED, sort="k", ascending=True)
    assert up == [{"k": 1.5}, {"k": 2}, {"k": 2, "n": "second"}, {"k": "10"}, {"k": True}, {"k": [1]}, {"k": None}, {}]
    down = nk.view(MIXED, sort="k")
    assert down == [{"k": [1]}, {"k": True}, {"k": "10"}, {"k": 2}, {"k": 2, "n": "second"}, {"k": 1.5}, {"k": None}, {}]


def test_a_bounded_sort_is_the_head_of_the_whole_sort(rng):
    records = [{"k": rng.choice([None, rng.random(), rng.randrange(9), str(rng.randrange(9))]), "at": at}
               for at in range(6000)]
    for ascending in (False, True):
        whole = nk.view(records, sort="k", ascending=ascending)
        assert len(whole) == len(records)
        for top in (1, 5, 700, 5999, 9000):
            assert nk.view(records, sort="k", ascending=ascending, top=top) == whole[:top]


def test_srt_02_and_srt_04_a_table_prints_text_as_it_is_and_controls_escaped():
    cells = ["1E10", "0000200406E13", "8.10", "0.0", "42924e28", "1E309"]
    assert nk.view([{"c": cell} for cell in cells], table=["c"]) == "\n".join(["c"] + cells)
    hostile = "a\x1b[2J\x1b]0;t\x07b\nFAKE | row\tz\x9b31m\u202e"
    table = nk.view([{"c": hostile, "n": 1}, {"c": "\u65e5\u672c", "n": 20}], table=["c", "n"])
    assert len(table.split("\n")) == 3 and all(ord(character) >= 32 and ord(character) != 127 or character == "\n"
                                               for character in table)
    assert "\x9b" not in table and "\u202e" not in table
    lines = table.split("\n")
    assert lines[1].endswith(" 1") and lines[2].endswith("20")
    assert nk._views_width(lines[1]) == nk._views_width(lines[2])


def test_dotted_fields_and_exact_keys_that_hold_a_dot():
    records = [{"a": {"b": 1}}, {"a.b": 2, "a": {"b": 9}}, {"a": 3}]
    assert nk.view(records, sum="a.b") == 3
    assert nk.view(records, count_by="a.b") == {"1": 1, "2": 1, "(absent)": 1}


def test_big_integers_stay_exact_in_every_view():
    records = [{"k": 2 ** 63}, {"k": 2 ** 63 + 1}]
    assert nk.view(records, count_by="k") == {str(2 ** 63): 1, str(2 ** 63 + 1): 1}
    assert nk.view(records, sort="k")[0] == {"k": 2 ** 63 + 1}
    assert nk.view(records, table=["k"]).split("\n")[1] == str(2 ** 63)


# -- refusals ------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("view, message", [
    (dict(count_by="a", sum="a"), "--count-by and --sum are two questions: ask one of them, or --sum with --by"),
    (dict(count_by="a", table=["a"]), "--table works on records, and --count-by gives groups: pass one of them"),
    (dict(sum="a", sort="a"), "--sort works on records, and --sum gives groups: pass one of them"),
    (dict(by="a", sort="a", top=1), "--sort works on records, and --by makes groups: pass one of them"),
    (dict(by="a", table=["a"], top=1), "--table works on records, and --by makes groups: pass one of them"),
    (dict(by="a", count_by="a"), "--count-by already groups: leave out --by"),
    (dict(by="a"), "--by alone asks nothing: add --top, or use --count-by or --sum"),
    (dict(top=1), "--top alone asks nothing: add --sort, --count-by, --by or --table"),
    (dict(sum="a", top=1), "--top with --sum needs --by: one total has no leading entries"),
    (dict(count_by="a", ascending=True), "--ascending needs --sort: groups come largest first"),
    (dict(sort="a", top=0), "--top takes a whole number above 0"),
    (dict(sort="a", top=True), "--top takes a whole number above 0"),
    (dict(count_by="x"), "no record has the field x; there are: a"),
    (dict(sort="a\x1b"), "no record has the field a\\x1b; there are: a"),
    (dict(value=[], count_by="a", sum="a"),
     "--count-by and --sum are two questions: ask one of them, or --sum with --by"),
    (dict(value=3, count_by="a"), "a view needs a collection, and the result is a number without one"),
    (dict(value={"a": 1}, count_by="a"), "a view needs a collection, and the result is an object without one"),
    (dict(value={"a": [], "b": []}, count_by="a"),
     'a view needs one collection, and the result has several: "a", "b"'),
    (dict(value=[{"a": 1}, 3], count_by="a"), "a view needs records, and entry 2 of the collection is a number"),
])
def test_refusals(view, message):
    assert refusal(**view) == message


def test_a_misspelled_field_among_many_names_the_first_fields():
    message = refusal(value=[{f"f{n}": n for n in range(100)}], count_by="x")
    assert message.startswith("no record has the field x; there are: f0, f1, ") and "f19" in message
    assert "f20" not in message


def test_an_empty_collection_has_no_misspelled_fields():
    assert nk.view([], count_by="x") == {} and nk.view([], sum="x") == 0 and nk.view([], sort="x") == []
    assert nk.view([], table=["x", "y"]) == "x  y"


# -- on the command line -------------------------------------------------------------------------------------------

class Item(TypedDict):
    id: int
    status: str


def make(calls: list) -> nk.App:
    app = nk.App("app", "1", expose=("cli",))

    @app.command
    def item_list() -> List[Item]:
        calls.append(1)
        return [{"id": 1, "status": "on"}, {"id": 2, "status": "on"}]

    @app.command
    def loose() -> dict:
        calls.append(1)
        return {"items": [{"id": 1}], "total": 1}

    @app.command
    def fail() -> list:
        raise nk.Error("NOT_FOUND", "gone")

    @app.native
    def doctor() -> None:
        print("fine")

    @app.native(present=lambda result, options: "presented\n")
    def report() -> list:
        return [{"id": 1}]

    return app


def test_views_on_a_line():
    app = make([])
    assert run_app(app, "item-list", "--count-by", "status", "--json").out == '{"on":2}\n'
    assert run_app(app, "loose", "--table", "id", "--json").out == "id\n 1\n"
    assert run_app(app, "report").out == "presented\n"
    assert run_app(app, "report", "--sum", "id").data == 1
    assert run_app(app, "item-list", "--sum=id", "--dry-run").data == {"command": "item_list", "args": {}}
    failed = run_app(app, "fail", "--count-by", "x")
    assert failed.code == 4 and failed.failure["error"] == "NOT_FOUND"


def test_combinations_and_fields_the_schema_names_are_refused_before_the_call():
    calls: list = []
    app = make(calls)
    for tokens in (["item-list", "--count-by", "status", "--sum", "id"], ["item-list", "--count-by", "nope"],
                   ["item-list", "--top", "2"], ["item-list", "--top", "0", "--sort", "id"],
                   ["doctor", "--count-by", "x"]):
        ran = run_app(app, *tokens)
        assert ran.code == 64 and ran.out == "", tokens
    assert calls == []
    assert run_app(app, "item-list", "--count-by", "nope").err.splitlines()[0] == (
        "no record has the field nope; there are: id, status")


def test_a_field_fault_after_the_call_says_that_the_call_succeeded():
    calls: list = []
    ran = run_app(make(calls), "loose", "--count-by", "nope")
    assert ran.code == 64 and ran.out == "" and calls == [1]
    assert ran.err.splitlines()[:2] == [
        'no record of "items" has the field nope; there are: id',
        "the call itself succeeded; only the view of its result failed"]


def test_without_a_view_the_output_is_what_it_was():
    assert json.loads(run_app(make([]), "loose").out) == {"items": [{"id": 1}], "total": 1}


def test_a_result_that_cannot_hold_records_is_refused_before_the_call():
    calls: list = []
    app = nk.App("app", "1", expose=("cli",))

    @app.command
    def total() -> Optional[int]:
        calls.append(1)
        return 7

    ran = run_app(app, "total", "--count-by", "x")
    assert (ran.code, ran.out, calls) == (64, "", [])
    assert ran.err.splitlines()[0] == "a view needs a collection, and the result is a number or null without one"


def test_the_field_the_records_came_from_is_named():
    value = {"items": [{"a": 1}, {"a": "x"}, 3], "total": 2}
    assert refusal(value=value, sum="a") == '--sum a: record 2 of "items" holds "x", which is not a number'
    assert refusal(value=value, count_by="a") == (
        'a view needs records, and entry 3 of "items" is a number')
    value["items"].pop()
    assert refusal(value=value, sort="b") == 'no record of "items" has the field b; there are: a'


def test_what_json_does_not_have_is_refused_where_it_is_used():
    infinite, none = float("inf"), float("nan")
    for view in (dict(sum="a"), dict(count_by="a"), dict(sort="a"), dict(sum="b", by="a")):
        assert refusal(value=[{"a": 1, "b": 1}, {"a": infinite, "b": 1}], **view) == (
            "record 2 holds an infinite number, which a view cannot use")
        assert refusal(value=[{"a": none, "b": 1}], **view) == "record 1 holds NaN, which a view cannot use"
    assert refusal(value=[{"a": {}}, {"a": {"b": object()}}], count_by="a").startswith("record 2 holds a value of")
    assert nk.view([{"a": 1, "b": infinite}], count_by="a") == {"1": 1}


def test_subclasses_count_as_their_base():
    class Word(str):
        pass

    class Real(float):
        def __repr__(self):
            return "Real"

    class Size(enum.IntEnum):
        BIG = 5

    rows = [collections.OrderedDict(k=Word("a"), n=Size.BIG), {"k": "a", "n": Real(0.5)}]
    assert nk.view(rows, count_by="k") == {"a": 2}
    assert nk.view(rows, sum="n") == 5.5
    assert nk.view((rows[0],), sum="n", by="k") == {"a": 5}


def test_a_total_beyond_all_floats_is_the_nearest_whole_number():
    assert nk.view([{"n": 1e308}] * 10 + [{"n": 0.5}], sum="n") == 10 ** 309
    assert nk.view([{"n": 10 ** 4200}, {"n": 0.1}, {"n": 0.9}], sum="n") == 10 ** 4200 + 1


def test_a_view_of_few_and_of_many_names_of_fields():
    names = [f"f{n}" for n in range(21)]
    assert refusal(value=[dict.fromkeys(names)], count_by="x") == (
        "no record has the field x; there are: " + ", ".join(names[:20]) + " and more")
    assert refusal(value=[dict.fromkeys(names[:20])], count_by="x") == (
        "no record has the field x; there are: " + ", ".join(names[:20]))


# -- python3 knaif.py view -----------------------------------------------------------------------------------------

ROWS = [{"s": "a", "n": 1, "o": {"p": [1, {"s": "a"}]}}, {"s": "b", "n": 2.5}, {"s": "a\u00e9\U0001f600\\\"}, {", "n": -3}]


def view_of(stdin: Any, *tokens: str) -> Any:
    return run_app(nk._main_app(), "view", *tokens, stdin=stdin)


def lines_of(rows: list, end: str = "\n") -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + end for row in rows)


SAME = [
    json.dumps(ROWS), json.dumps(ROWS, indent=2), json.dumps(ROWS, separators=(",", ":"), ensure_ascii=False),
    json.dumps({"next": None, "rows": ROWS, "deep": {"list": []}}), json.dumps({"rows": ROWS}, indent=1) + "\n\n",
    lines_of(ROWS), lines_of(ROWS, "\r\n"), lines_of(ROWS).rstrip("\n"), lines_of(ROWS, "\n\n \t\r\n"),
    "\n\n" + lines_of(ROWS), "  " + lines_of(ROWS, "  \n  "), "\ufeff" + lines_of(ROWS), "\ufeff" + json.dumps(ROWS),
    "\n".join(json.dumps(row, indent=4) for row in ROWS), " [ " + " , ".join(map(json.dumps, ROWS)) + " ] ",
]


@pytest.mark.parametrize("block", [1, 2, 3, 7, 16, 64, 100_000])
@pytest.mark.parametrize("text", SAME)
def test_view_reads_every_spelling_of_the_same_records(monkeypatch, text, block):
    monkeypatch.setattr(nk, "VIEWS_BLOCK_BYTES", block)
    expected = nk.view(ROWS, count_by="s")
    assert view_of(text.encode("utf-8"), "--count-by", "s").data == expected
    assert view_of(text.encode("utf-8"), "--sum", "n", "--strict").data == 0.5
    assert view_of(text.encode("utf-8"), "--sort", "n", "--json").data == nk.view(ROWS, sort="n")


FAULTS = [
    # (text, what the refusal says after "standard input ")
    ("", "is not JSON at line 1, column 1: there is no value"),
    (" \n\t", "is not JSON at line 2, column 2: there is no value"),
    ("[", "is not JSON at line 1, column 2: an unfinished array"),
    ("[{}", "is not JSON at line 1, column 4: an unfinished array"),
    ("[{},", "is not JSON at line 1, column 5: an unfinished array"),
    ("[{}, ]", "is not JSON at line 1, column 6: an unexpected character"),
    ("[{} {}]", "is not JSON at line 1, column 5: expected , or ] after an item of the array"),
    ("[{}}", "is not JSON at line 1, column 4: expected , or ] after an item of the array"),
    ('[{"a":1', "is not JSON at line 1, column 8: an unfinished value"),
    ('[{"a":"x', "is not JSON at line 1, column 7: a string without its closing quote"),
    ("[%s{}], [{}%s]" % ('{"a":1}, ' * 9, ', {"a":1}' * 9),
     "is not JSON at line 1, column 86: text after the end of the array"),
    ("[]x", "is not JSON at line 1, column 3: text after the end of the array"),
    ("[{}]\n[{}]", "is not JSON at line 2, column 1: text after the end of the array"),
    ("{} {}", "is not JSON at line 1, column 4: expected a line end between two values"),
    ('{"a":1}\n{"a":2},\n', "is not JSON at line 2, column 8: expected a line end between two values"),
    ('{"a":1}\n{"a":[1\n2]}\n', "is not JSON at line 3, column 1: an unexpected character"),
    ('{"a":1}\n{"a":[{}\n{}]},{}\n', "is not JSON at line 3, column 1: an unexpected character"),
    ('{"a":1}\n\n{"a" 2}\n', "is not JSON at line 3, column 6: an unexpected character"),
    ('{"a":1}\n{"a":2}\n{"a":', "is not JSON at line 3, column 6: an unfinished value"),
    ('{"a":"x\ny"}', "is not JSON at line 1, column 8: a control character in a string"),
    ('{"a":"\\x"}', "is not JSON at line 1, column 7: an unknown escape in a string"),
    ("{'a':1}", "is not JSON at line 1, column 2: an unexpected character"),
    ('[{"a":NaN}]', "is not JSON at line 1, column 2: NaN, which is no JSON number"),
    ('{"a":1}\n{"a":-Infinity}', "is not JSON at line 2, column 1: -Infinity, which is no JSON number"),
    ('[{"a":%s}]' % ("9" * 4301), None),
    ("[" * 100_000, "is not JSON at line 1, column 2: a value nested too deeply"),
    ('{"a":' * 100_000, "is not JSON at line 1, column 1: a value nested too deeply"),
    ('[{"a":tru', "is not JSON at line 1, column 7: an unexpected character"),
    ('[{"a":1},\x00', "is not JSON at line 1, column 10: an unexpected character"),
    ("a\ufeff", "is not JSON at line 1, column 1: an unexpected character"),
    (b'{"a":"\xff"}', "is not UTF-8 at byte 7"), (b'\xef\xbb\xbf[{"a":"\xc3\xa9\xe4\xb8"}]', "is not UTF-8 at byte 13"),
    (b'[{"a":"\xe4\xb8', "is not UTF-8 at byte 8"), (b"\xff\xfe[\x00", "is not UTF-8 at byte 1"),
]


@pytest.mark.parametrize("block", [1, 5, 20, 100_000])
@pytest.mark.parametrize("text, said", FAULTS)
def test_view_refuses_what_is_no_json_with_its_place(monkeypatch, text, said, block):
    monkeypatch.setattr(nk, "VIEWS_BLOCK_BYTES", block)
    ran = view_of(text.encode("utf-8") if isinstance(text, str) else text, "--count-by", "a")
    if said is None:  # how the interpreter counts differs
        assert ran.code == 1 and re.search("an integer of (more than 4,300|too many) digits$", ran.failure["message"])
    else:
        assert (ran.code, ran.failure) == (1, {
            "error": "BAD_REQUEST", "message": "standard input " + said, "retryable": False})


@pytest.mark.parametrize("text, tokens, message", [
    ("5", ["--count-by", "a"], "a view needs a collection, and standard input is a number without one"),
    ('{"a":[],"b":[]}', ["--count-by", "a"],
     'a view needs one collection, and standard input has several: "a", "b"'),
    ('{"items":[{"a":"x"}]}', ["--sum", "a"], '--sum a: record 1 of "items" holds "x", which is not a number'),
    ('{"items":[1]}', ["--sum", "a"], 'a view needs records, and entry 1 of "items" is a number'),
    ("[{},5]", ["--count-by", "a"], "a view needs records, and entry 2 of the collection is a number"),
    ("{}\n[]\n", ["--count-by", "a"], "a view needs records, and entry 2 of the collection is an array"),
    ('[{"a":1e999}]', ["--sum", "a"], "record 1 holds an infinite number, which a view cannot use"),
    ('[{"b":1}]', ["--count-by", "a"], "no record has the field a; there are: b"),
    ("[]", [], "view needs a question: --count-by, --sum, --by with --top, --sort, or --table"),
    ("[]", ["--top", "1"], "--top alone asks nothing: add --sort, --count-by, --by or --table"),
])
def test_view_refuses_questions_without_an_answer(text, tokens, message):
    ran = view_of(text.encode(), *tokens)
    assert (ran.code, ran.out, ran.err) == (64, "", message + "\nTry: knaif view --help\n")


@pytest.mark.parametrize("number", ["12.5", "1e5", "-0.25E+1", "100"])
def test_a_number_is_one_wherever_a_block_ends_in_it(monkeypatch, number):
    for block in range(1, 9):
        monkeypatch.setattr(nk, "VIEWS_BLOCK_BYTES", block)
        ran = view_of(f"[{number}]".encode(), "--count-by", "a")
        assert ran.err.splitlines()[0] == "a view needs records, and entry 1 of the collection is a number"


def test_view_of_numbers_that_json_has_and_floats_have_not():
    assert view_of(b'[{"a":1e999},{"a":1}]', "--sort", "b").code == 64
    failure = view_of(b'[{"a":1e999,"b":1},{"b":2}]', "--sort", "b").failure
    assert failure["message"] == 'the answer cannot be written: an infinite number at "/1/a"'
    assert view_of(b'[{"a":1e999,"b":1}]', "--count-by", "b").data == {"1": 1}
    big = b"9" * 4300
    assert view_of(b'[{"a":%s}]' % big, "--sum", "a").out.strip().encode() == big
    failure = view_of(b'[{"a":%s},{"a":1}]' % big, "--sum", "a").failure
    assert failure["message"].startswith("the answer cannot be written: ")


def test_view_counts_digits_where_the_interpreter_does_not(monkeypatch):
    monkeypatch.setattr(nk.sys, "get_int_max_str_digits", lambda: 0, raising=False)
    for text in (b'[{"a":1}, {"a":%s}]', b'{"a":1}\n{"a":%s}\n'):
        ran = view_of(text % (b"9" * 4301), "--sum", "a")
        assert ran.failure["message"].endswith("an integer of more than 4,300 digits")


def test_view_takes_the_last_value_of_a_repeated_key_unless_strict():
    for text in (b'[{"a":1,"a":2}]', b'{"a":3}\n{"a":1,"a":2}\n', b'[{"a":3},{"a":1,"a":2},{"a":3}]'):
        assert "2" in view_of(text, "--count-by", "a").data
        assert view_of(text, "--count-by", "a", "--strict").failure["message"].endswith("a repeated key")


def test_view_of_one_object_is_one_record_where_it_has_no_array():
    assert view_of(b'{"a":1}', "--count-by", "a").data == {"1": 1}
    assert view_of(b'{"a":1}\n{"a":1,"tags":[]}', "--count-by", "a").data == {"1": 2}


def test_view_of_files(tmp_path):
    def write(name: str, text: str) -> str:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return str(tmp_path / name)

    rows, lines = write("rows.json", json.dumps({"rows": ROWS})), write("one.jsonl", '{"s":"a","n":5,"tags":["x"]}\n')
    empty, text = write("empty.ndjson", ""), write("text.json", '[{"n":1},{"n":"x"}]')
    assert view_of(None, rows, lines, empty, "--sum", "n").data == 5.5
    assert view_of(b'[{"n":1}]', rows, "-", "--sum", "n").data == 1.5
    assert view_of(None, empty, "--count-by", "n").data == {}
    ran = view_of(None, lines, text, "--sum", "n")
    assert ran.err.splitlines()[0] == (
        f'--sum n: record 2 of "{text}" holds "x", which is not a number')
    assert view_of(None, rows, "--sum", "s").err.splitlines()[0] == (
        f'--sum s: record 1 of "rows" in "{rows}" holds "a", which is not a number')
    assert view_of(None, text, "--sum", "x").err.splitlines()[0] == (
        f'no record of "{text}" has the field x; there are: n')
    assert view_of(None, text, lines, "--sum", "x").err.splitlines()[0] == (
        "no record has the field x; there are: n, s, tags")
    bad = write("bad.jsonl", "[1]\n")
    assert view_of(None, bad, "--sum", "n").err.splitlines()[0] == (
        f'a view needs records, and entry 1 of "{bad}" is an array')
    bad = write("cut.json", "[{}\n,{")
    assert view_of(None, bad, "--sum", "n").failure["message"] == (
        f'"{bad}" is not JSON at line 2, column 3: an unfinished value')
    none, folder = str(tmp_path / "none"), str(tmp_path)
    ran = view_of(None, none, "--sum", "n")
    assert (ran.code, ran.failure["message"]) == (4, f'there is no file "{none}"')
    ran = view_of(None, folder, "--sum", "n")
    assert (ran.code, ran.failure["message"]) == (1, f'"{folder}" cannot be read: Is a directory')


def test_view_without_input_says_what_it_needs():
    ran = view_of(None, "--sum", "n")
    assert (ran.code, ran.err.splitlines()[0]) == (
        64, "nothing is piped in: name files, or send JSON to standard input")


def test_view_closes_its_files_and_leaves_standard_input_open_and_the_collector_as_it_was():
    stdin = io.BytesIO(b"[]")
    out = io.BytesIO()
    nk._main_app().run(["view", "--sum", "n"], env=nk.Env(stdin=stdin, stdout=out, stderr=io.BytesIO(), tty=None))
    assert out.getvalue() == b"0\n" and not stdin.closed and gc.isenabled()


def test_view_waits_for_a_stream_that_does_not_block():
    parts = [b'[{"a"', None, None, b":1}]", b""]

    class Stream:
        def read(self, size):
            return parts.pop(0)

    slept: list = []
    out = io.BytesIO()
    env = nk.Env(stdin=Stream(), stdout=out, stderr=io.BytesIO(), tty=None, sleep=slept.append)
    assert nk._main_app().run(["view", "--sum", "a"], env=env) == 0
    assert out.getvalue() == b"1\n" and len(slept) == 2


def random_value(rng, depth=0):
    kind = rng.randrange(9 if depth < 3 else 6)
    if kind < 6:
        return rng.choice([None, True, 1, -5, 2 ** 70, 0.5, -1e-7, 1e300, "", "a", "}, {\"a\"", "},\n{", "\u00e9\U0001f600",
                           "\\", "[", "a\nb", "\ufeff"])
    if kind < 8:
        return {rng.choice(["a", "b", "c d", "e.f", "\""]): random_value(rng, depth + 1) for _ in range(rng.randrange(4))}
    return [random_value(rng, depth + 1) for _ in range(rng.randrange(4))]


def read_all(text: bytes, lines: bool, rng: Any) -> list:
    """Return the records of a text that arrives in pieces of random sizes; None for one that is refused."""
    stream = io.BytesIO(text)
    reader = nk._ViewsReader(lambda size: stream.read(rng.choice([1, 2, 5, 30, size])), "x", secret=9 ** 9, lines=lines)
    return [record for batch in reader.batches() for record in batch]


def test_records_come_out_as_json_reads_them_wherever_blocks_end(rng, monkeypatch):
    for _ in range(400):
        monkeypatch.setattr(nk, "VIEWS_BLOCK_BYTES", rng.choice([1, 3, 17, 90, 400]))
        rows = [{"a": random_value(rng), rng.choice(["b", "c"]): random_value(rng)} for _ in range(rng.randrange(1, 30))]
        lines = rng.random() < 0.5
        options = {"ensure_ascii": rng.random() < 0.5}
        if lines:
            text = rng.choice(["\n", "\r\n", "\n\n", " \n"]).join(json.dumps(row, **options) for row in rows)
        else:
            text = json.dumps(rows, indent=rng.choice([None, 1]), separators=rng.choice([None, (",", ":")]), **options)
        data = text.encode("utf-8", "surrogatepass")
        assert read_all(data, lines, rng) == rows, (text, nk.VIEWS_BLOCK_BYTES)
        at = rng.randrange(len(data))
        damaged = data[:at] + rng.choice([b"", b"x", b",", b"\n", b"}", b'"', b"\xff", b"[", b"0"]) + data[at + rng.randrange(2):]
        try:
            found = read_all(damaged, lines, rng)
        except nk.Error as error:
            assert error.code == "BAD_REQUEST"
            found = None
        try:
            decoded = damaged.decode("utf-8")
            good = [json.loads(part) for part in decoded.split("\n") if part.strip(" \r\t")] if lines else json.loads(decoded)
        except ValueError:
            good = None
        if good is not None or not lines:  # values over several lines are read too, which this plain reading does not
            assert found == good, (damaged, nk.VIEWS_BLOCK_BYTES)


@pytest.mark.parametrize("make", [
    lambda n: b"[" + b", ".join([b'{"id": %d, "tags": ["a"], "s": "x"}' % i for i in range(n)]) + b"]",
    lambda n: b"".join([b'{"id": %d, "tags": ["a"], "s": "x"}\n' % i for i in range(n)]),
])
@pytest.mark.parametrize("tokens", [
    ["--count-by", "s"], ["--sum", "id"], ["--sum", "id", "--by", "s"], ["--sort", "id", "--top", "3"],
    ["--sort", "id", "--top", "3", "--ascending"], ["--table", "id", "--top", "2"]])
def test_memory_does_not_grow_with_the_records(make, tokens):
    import tracemalloc

    peaks = []
    for size in (2_000, 20_000):
        stream = io.BytesIO(make(size))
        env = nk.Env(stdin=stream, stdout=io.BytesIO(), stderr=io.BytesIO(), tty=None)
        app = nk._main_app()
        tracemalloc.start()
        try:
            assert app.run(["view", *tokens], env=env) == 0
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert peaks[1] < peaks[0] * 1.5 + 200_000


def test_view_help_shows_examples():
    shown = run_app(nk._main_app(), "view", "--help").out
    assert "\n  knaif view --count-by status < items.json\n" in shown and "--strict" in shown


def test_srt_r1_many_columns_keep_every_value():
    record = {f"column{number}": f"value-{number:02}" for number in range(33)}
    lines = nk.view([record, record], table=list(record)).split("\n")
    assert len(lines) == 3 and lines[1].split() == list(record.values())


def test_agg_r1_a_view_acts_once_on_several_files(tmp_path):
    for number in range(3):
        (tmp_path / f"{number}.json").write_text(json.dumps([{"k": number, "s": "a"}, {"k": number + 10, "s": "b"}]))
    names = [str(tmp_path / f"{number}.json") for number in range(3)]
    assert run_app(nk._main_app(), "view", *names, "--sort", "k", "--top", "1").data == [{"k": 12, "s": "b"}]
    assert run_app(nk._main_app(), "view", *names, "--count-by", "s").data == {"a": 3, "b": 3}
