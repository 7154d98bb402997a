"""VIEWS: the questions, their exact answers, and what is refused before and after the call."""
import json
from typing import Any, List, TypedDict

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
