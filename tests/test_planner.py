"""PLANNER, WORDS and LEXICAL: requests, grammar, model back ends on a loopback server, plans without a model."""
import datetime
import importlib.util
import json
import os
import pathlib
import random
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Annotated, Literal, Optional

import pytest

import knaif as nk

HERE = pathlib.Path(__file__).resolve().parent
NOW = datetime.datetime(2026, 5, 4, 10, 30).timestamp()  # a Monday


class App:
    """What the program's App gives: plan, check; over a few functions and a planner."""

    def __init__(self, *commands, planner=None, sandbox=nk.UNCONFINED):
        registry = nk.Registry()
        for command in commands:
            registry.add(nk._reg_command(command, default_expose=("cli", "agent", "mcp")))
        self.planner = planner or nk.LexicalPlanner()
        self.engine = nk.Engine(registry, env=nk.Env(now=lambda: NOW), app=self, name="t", version="1", capture=True,
                                sandbox=sandbox)

    def check(self, envelope):
        return nk._plan_check(self.engine, envelope)

    def plan(self, utterance, now=NOW):
        request = nk._planner_request(self.engine, utterance)
        request.now = now
        plan = self.check(nk._plan_read(self.planner.propose(request), thinking=self.planner.thinking))
        if not len(plan):
            raise nk.Error("NOT_FOUND", "no command fits")
        return plan

    def says(self, utterance):
        """The plan of a sentence as it is written, without the check."""
        request = nk._planner_request(self.engine, utterance)
        return json.loads(self.planner.propose(request))["plan"]


@nk.command(destructive=True, keywords=["remove", "delete"])
def wipe(path: pathlib.Path) -> str:
    """Wipe a file for good."""


@nk.command(destructive=True)
def expire(before: datetime.date) -> int:
    """Delete the records that are older than a day."""


@nk.command(readonly=True, keywords=["search"])
def find_notes(
    text: str = "", since: Optional[datetime.date] = None, limit: Annotated[int, nk.Arg(min=1, max=50)] = 10,
    archived: bool = False, order: Literal["newest", "oldest"] = "newest",
) -> list[str]:
    """Find notes."""


@nk.command(keywords=["note", "write"])
def jot(text: Annotated[str, nk.Arg(max=80)], labels: list[Annotated[str, nk.Arg(pattern="^[a-z-]+$")]] = ()) -> dict:
    """Jot down a note."""


@nk.command(keywords=["mail"])
def invite(to: Annotated[str, nk.Arg(pattern="^[^@ ]+@[^@ ]+$")], at: datetime.datetime) -> dict:
    """Invite a guest."""


@nk.command
def scale(width: float, height: float, secret: Annotated[str, nk.Arg(secret=True)] = "") -> float:
    """Scale the canvas."""


APP = App(wipe, expire, find_notes, jot, invite, scale)


def examples():
    """The three example programs, those that are there, as App sees them."""
    found = {}
    for name in ("tasks", "media", "clock"):
        path = HERE.parent / "examples" / (name + ".py")
        if path.exists():
            spec = importlib.util.spec_from_file_location("planned_" + name, path)
            module = importlib.util.module_from_spec(spec)
            sys.modules[spec.name] = module
            spec.loader.exec_module(module)
            surface = module.app.surface
            app = App()
            app.engine.registry = (surface() if callable(surface) else surface).registry
            found[name] = app
    return found


# -- what the lexical planner understands -------------------------------------------------------------------------

@pytest.mark.parametrize("utterance, plan", [
    ("jot down a note: buy milk", [("jot", {"text": "buy milk"})]),
    ("jot 'Buy  Milk'", [("jot", {"text": "Buy  Milk"})]),
    ("write a note saying \u201cna\u00efve caf\u00e9\u201d", [("jot", {"text": "na\u00efve caf\u00e9"})]),
    ("note buy milk labels home, to-do and work", [("jot", {"text": "buy milk", "labels": ["home", "to-do", "work"]})]),
    ("jot '$5 for coffee'", [("jot", {"text": "$$5 for coffee"})]),
    ("jot --text \"a b\" --labels x,y", [("jot", {"text": "a b", "labels": ["x", "y"]})]),
    ("jot text='a = b'", [("jot", {"text": "a = b"})]),
    ("find notes", [("find_notes", {})]),
    ("search notes since yesterday", [("find_notes", {"since": "2026-05-03"})]),
    ("find archived notes since 3 May", [("find_notes", {"since": "2026-05-03", "archived": True})]),
    ("find notes, not archived", None),
    ("find notes limit five", [("find_notes", {"limit": 5})]),
    ("find notes --limit 7 --no-archived", [("find_notes", {"limit": 7, "archived": False})]),
    ("find the oldest notes", [("find_notes", {"order": "oldest"})]),
    ("find notes limit 500", None),
    ("invite bob@example.com at 2026-05-06T18:00", [("invite", {"to": "bob@example.com", "at": "2026-05-06T18:00"})]),
    ("invite ann@example.com tomorrow at 6:30 pm", [("invite", {"to": "ann@example.com", "at": "2026-05-05T18:30"})]),
    ("invite bob@example.com", None),
    ("scale the canvas width 2.5 height 4", [("scale", {"width": 2.5, "height": 4})]),
    ("scale width=-1.5 height=2", [("scale", {"width": -1.5, "height": 2})]),
    ("wipe old/a.txt", [("wipe", {"path": "old/a.txt"})]),
    ("please delete the file 'my notes.txt'", [("wipe", {"path": "my notes.txt"})]),
    ("expire the records before May 1", [("expire", {"before": "2026-05-01"})]),
])
def test_lexical_sentences(utterance, plan):
    assert [(step["tool"], step["args"]) for step in APP.says(utterance)] == (plan or [])


@pytest.mark.parametrize("utterance", [
    "do not wipe old/a.txt", "don't delete old/a.txt", "never wipe old/a.txt", "delete old/a.txt or old/b.txt",
    "wipe old/a.txt and old/b.txt", "wipe everything in old/", "delete everything", "should I wipe old/a.txt?",
    "how do I wipe old/a.txt", "wipe old/a.txt unless it is new", "wipe the file", "wipe all but old/a.txt",
    "expire records on 2026-05-01", "expire records after 2026-05-01", "expire records", "expire records before 2026-02-30",
    "keep old/a.txt", "is old/a.txt wiped?", "wipe https://example.com/a.txt", "wipe copies from old/a.txt",
    "jot a and wipe old/a.txt", "wipe old/a.txt, no wait", "if old/a.txt is big delete it", "undo wipe old/a.txt",
    "expire the records that are newer than 2026-05-01", "delete notes older than 2026-05-01 in old/a.txt",
])
def test_lexical_never_destroys_what_was_not_plainly_asked_for(utterance):
    assert APP.says(utterance) == []


@pytest.mark.parametrize("utterance", [
    "", " ", "?", "hello", "thanks", "what can you do?", "who are you", "why", "help", "tell me a joke", "paint the wall",
    "jot", "jot down", "jot down a note", "invite", "scale", "scale the canvas", "scale 2", "42", "\"\"", "''", "--", "=",
])
def test_lexical_refuses_what_is_no_call(utterance):
    assert APP.says(utterance) == []


@pytest.mark.parametrize("text, span", [
    ("today", ("date", "2026-05-04")), ("tomorrow", ("date", "2026-05-05")), ("next friday", ("date", "2026-05-08")),
    ("last friday", ("date", "2026-05-01")), ("last monday", ("date", "2026-04-27")), ("monday", ("date", "2026-05-11")),
    ("in 3 days", ("date", "2026-05-07")), ("2 weeks ago", ("date", "2026-04-20")), ("in a week", ("date", "2026-05-11")),
    ("ten days from now", ("date", "2026-05-14")), ("May 3", ("date", "2026-05-03")), ("3 May 2027", ("date", "2027-05-03")),
    ("May 3rd, 2027", ("date", "2027-05-03")), ("the 3rd of May", ("date", "2026-05-03")), ("day after tomorrow", ("date", "2026-05-06")),
    ("2026-05-06", ("date", "2026-05-06")), ("2026-02-30", None), ("Feb 30", None), ("9am", ("time", "09:00")),
    ("12 am", ("time", "00:00")), ("7:45 pm", ("time", "19:45")), ("23:59:59", ("time", "23:59:59")), ("25:00", None),
    ("2026-05-06T10:00Z", ("datetime", "2026-05-06T10:00Z")), ("May 3 at 9am", ("datetime", "2026-05-03T09:00")),
    ("twelve", ("int", 12)), ("twenty", ("int", 20)), ("64x64", ("int", 64)), ("300 by 300", ("int", 300)), ("300 by 200", ("int", 300)),
    ("512px", ("int", 512)), ("9 in the morning", ("time", "09:00")), ("8 in the evening", ("time", "20:00")), ("2nd", ("int", 2)), ("-4", ("int", -4)), ("2.5", ("num", 2.5)),
    ("a@b.example", ("email", "a@b.example")), ("./x", ("path", "./x")), ("a.png", ("path", "a.png")),
    ("http://a/b.png", None), ("1.2.3", None), ("99999999999 days ago", ("int", 99999999999)),
])
def test_words_spans(text, span):
    spans = nk._words_spans(nk._words_tokens(text), datetime.date(2026, 5, 4))
    found = [(each.kind, each.value) for each in spans]
    assert found[:1] == ([span] if span else []) or span is None and all(kind in ("int", "path") for kind, _ in found)


def test_words_tokens_keep_the_text():
    text = "add 'it's \u00dcber' and don't touch Bob's --x=1 \"a b\", #5; ok."
    tokens = nk._words_tokens(text)
    assert [token.text for token in tokens][:4] == ["add", "it's \u00dcber", "and", "don't"]
    for token in tokens:
        assert token.text in text[token.start : token.end]


def test_lexical_two_steps_and_references():
    @nk.command(keywords=["new"])
    def create(title: str) -> Made:
        """Create a page."""

    @nk.command(readonly=True)
    def view_page(page: Annotated[int, nk.Arg(help="number of the page")]) -> str:
        """View a page."""

    @nk.command
    def publish(*pages: Annotated[int, nk.Arg(help="number of the page")]) -> list[int]:
        """Publish pages."""

    app = App(create, view_page, publish)
    plan = [{"tool": "create", "args": {"title": "On Rust"}, "output": "$result"}]
    assert app.says("create a page called On Rust and publish it") == plan + [
        {"tool": "publish", "args": {"pages": ["$result.id"]}}]
    assert app.says("create a page called On Rust, then view the page") == plan + [
        {"tool": "view_page", "args": {"page": "$result.id"}}]
    assert app.says("publish page 3, then view page 3") == [
        {"tool": "publish", "args": {"pages": [3]}}, {"tool": "view_page", "args": {"page": 3}}]
    for refused in ("publish it", "create a page called X and burn it", "publish pages", "view page 3 then sing"):
        assert app.says(refused) == [], refused
    assert len(app.plan("create a page called On Rust and publish it")) == 2


class Made:
    id: Annotated[int, nk.Arg(help="number of the page")]
    title: str


Made = __import__("dataclasses").dataclass(Made)


def test_lexical_answers_are_ascii_safe_json_of_two_steps_at_most():
    for utterance in ("jot 'a\u2028b'", "jot '\u202eabc'"):
        text = APP.planner.propose(nk._planner_request(APP.engine, utterance))
        assert text.isprintable() and json.loads(text)["plan"][0]["tool"] == "jot"


# -- the rows of the examples -------------------------------------------------------------------------------------

@pytest.mark.parametrize("file, plans", [("dev.jsonl", 0.9), ("held.jsonl", 0.9), ("dev2.jsonl", 0.5)])
def test_lexical_meets_the_gates_on_the_rows_of_the_examples(file, plans):
    """dev2 is by another writer than the planner's; figures are printed (pytest -s), the gates are what must hold."""
    apps, path = examples(), HERE / "data" / "planner" / file
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []
    reports = [nk.evaluate(app, [row for row in rows if row["app"] == name]) for name, app in apps.items()]
    total = {key: sum(report[key] for report in reports)
             for key in ("rows", "plans", "exact", "refused", "missed", "wrong", "acted", "destructive")}
    text = "\n".join(report["text"] for report in reports)
    print(f"\n{file}: {total}")
    assert total["destructive"] == 0, text
    assert total["wrong"] + total["acted"] <= 0.05 * total["rows"], text
    assert total["exact"] >= plans * total["plans"], text


@pytest.mark.parametrize("utterance, plan", [  # words that no command knows cost, but do not always stop a plan
    ("would you be so kind as to jot down buy milk", [("jot", {"text": "buy milk"})]),
    ("jot down milk or bread, but no 2 eggs", [("jot", {"text": "milk or bread, but no 2 eggs"})]),
    ("throw away old/a.txt", [("wipe", {"path": "old/a.txt"})]),
    ("get rid of old/a.txt", [("wipe", {"path": "old/a.txt"})]),
    ("throw old/a.txt away whenever", None), ("throw old/a.txt at Bob", None), ("book a flight since yesterday", None),
    ("jot down milk, no wait", None), ("jot nothing", None), ("show me a map of the notes", None), ("list users", None),
])
def test_lexical_general_words(utterance, plan):
    assert [(step["tool"], step["args"]) for step in APP.says(utterance)] == (plan or [])


# -- hostile sentences --------------------------------------------------------------------------------------------

@pytest.mark.parametrize("text", [
    "jot " * 250_000, "'" * 1_000_000, "\"a" * 500_000, "a=" * 500_000, "--" * 500_000, "." * 1_000_000,
    "and then " * 100_000, "1" * 1_000_000, "\u2019" * 1_000_000, "#1" * 500_000, "\x00" * 1_000_000,
    "\ud800" * 1_000_000, "next " * 200_000, "(" * 1_000_000, "-" * 1_000_000,
])
def test_a_megabyte_takes_no_time(text):
    began = time.process_time()
    assert APP.says(text) == []
    assert time.process_time() - began < 1


@pytest.mark.parametrize("piece", ["jot ", "'a ", "wipe a.b ", "1, ", "and ", "in 3 ", "labels a, ", "--text ", "May ", "-1.", "a="])
def test_the_longest_sentence_is_read_at_once(piece):
    began = time.process_time()
    APP.says((piece * 2000)[:2000])
    assert time.process_time() - began < 1


def test_fuzz_no_sentence_ends_in_a_traceback_and_every_plan_holds():
    rng = random.Random(20260504)
    words = ("jot note find notes wipe delete expire before since May 3 tomorrow 2026-05-01 labels a b , and then it not "
             "archived limit 5 = : -- --text --limit 'x y' \"z\" $x $$ a/b.c bob@example.com 9am next friday ; . ? ! the "
             "of to in no without all 99999999999999999999 1e5 -3 \u00e9 \u202e \x07 \ud800 \u0661 \u216b # #3 's").split(" ")
    for _ in range(3000):
        text = " ".join(rng.choice(words) for _ in range(rng.randrange(1, 14)))
        if rng.random() < 0.3:
            place = rng.randrange(len(text) + 1)
            text = text[:place] + chr(rng.randrange(0x110000)) + text[place:]
        answer = APP.planner.propose(nk._planner_request(APP.engine, text))
        try:
            APP.check(answer)
        except nk.Error as error:
            assert error.code == "PLAN_INVALID" and "$" in text, (text, answer)


def test_no_utterance_but_text_is_planned():
    with pytest.raises(nk.Error) as caught:
        nk._planner_request(APP.engine, b"jot x")
    assert caught.value.message == "an utterance is text, not null" or caught.value.code == "BAD_REQUEST"


# -- the request --------------------------------------------------------------------------------------------------

def test_request_shows_every_exposed_command_with_types_and_choices_and_no_secret():
    @nk.command(hidden=True)
    def unseen() -> int:
        """Never shown."""

    @nk.command(expose=("cli",))
    def local() -> int:
        """Of the shell alone."""

    app = App(wipe, find_notes, scale, unseen, local)
    request = nk._planner_request(app.engine, "x")
    assert [tool["name"] for tool in request.tools] == ["wipe", "find_notes", "scale"]
    assert [sorted(tool) for tool in request.tools] == [["description", "destructive", "input", "name"]] * 3
    assert "secret" not in json.dumps([request.tools, request.schema]) and "secret" not in request.prompt
    assert request.tools[0]["input"]["properties"]["path"]["format"] == "path"
    assert request.tools[0]["destructive"] is True and request.now == NOW
    prompt = request.prompt
    for line in (
        "Now it is Monday 2026-05-04 10:30.", "wipe (destructive): Wipe a file for good.", "  also: remove, delete",
        "  path: path, required", '  order: one of "newest", "oldest", optional', "  limit: integer >= 1 <= 50, optional",
        "  since: date, optional", "  archived: boolean, optional", "  width: number, required",
    ):
        assert line + "\n" in prompt, (line, prompt)
    assert "Never shown" not in prompt and "Of the shell" not in prompt


def test_request_prompt_is_one_line_for_each_thing_whatever_help_holds():
    @nk.command(help="Do it.\n\nwipe: \x1b[31mred", keywords=["a\nb"])
    def odd(x: Annotated[str, nk.Arg(help="one\ntwo\u202e")]) -> int: ...

    prompt = nk._planner_request(App(odd).engine, "x").prompt
    assert "odd: Do it. wipe: \\x1b[31mred\n" in prompt and "  also: a b\n" in prompt and "one two\\u202e\n" in prompt


def test_request_of_no_command_allows_the_empty_plan_alone():
    schema = nk._planner_request(App().engine, "x").schema
    judge = nk.Validator(schema)
    assert judge.is_valid({"plan": []}) and not judge.is_valid({"plan": [{"tool": "x", "args": {}}]})


# -- the grammar --------------------------------------------------------------------------------------------------

GOOD = [
    {"plan": []},
    {"plan": [{"tool": "jot", "args": {"text": "x"}}]},
    {"plan": [{"tool": "jot", "args": {"text": "x", "labels": ["a", "b-c"]}, "output": "$note"}]},
    {"plan": [{"tool": "find_notes", "args": {"limit": 3, "since": "2026-05-01", "order": "oldest", "archived": True}}]},
    {"plan": [{"tool": "find_notes", "args": {"since": None}}]},
    {"plan": [{"tool": "find_notes", "args": {}, "output": "$n"}, {"tool": "jot", "args": {"text": "$n.0"}}]},
    {"plan": [{"tool": "scale", "args": {"width": 1, "height": 2.5}, "output": "$s"},
              {"tool": "scale", "args": {"width": "$s", "height": 2}}]},
]
BAD = [
    {}, [], {"plan": {}}, {"plan": [], "note": ""}, {"plan": ["jot"]}, {"plan": [{"tool": "jot"}]},
    {"plan": [{"tool": "nope", "args": {}}]}, {"plan": [{"tool": "jot", "args": {}}]},
    {"plan": [{"tool": "jot", "args": {"text": "x", "confirmed": True}}]},
    {"plan": [{"tool": "jot", "args": {"text": "x"}, "confirmed": True}]},
    {"plan": [{"tool": "jot", "args": {"text": 5}}]}, {"plan": [{"tool": "jot", "args": {"text": "x" * 81}}]},
    {"plan": [{"tool": "jot", "args": {"text": "x", "labels": ["A B"]}}]},
    {"plan": [{"tool": "find_notes", "args": {"limit": 51}}]}, {"plan": [{"tool": "find_notes", "args": {"order": "best"}}]},
    {"plan": [{"tool": "scale", "args": {"width": 1, "height": 2, "secret": "x"}}]},
    {"plan": [{"tool": "jot", "args": {"text": "x"}, "output": "note"}]},
    {"plan": [{"tool": "find_notes", "args": {}}] * 33},
]


def test_grammar_takes_what_the_check_takes_and_nothing_more():
    judge = nk.Validator(nk._planner_request(APP.engine, "x").schema, assert_formats=True)
    for envelope in GOOD:
        assert judge.is_valid(envelope), (envelope, judge.issues(envelope))
        APP.check(envelope)
    for envelope in BAD:
        assert not judge.is_valid(envelope), envelope
        with pytest.raises(nk.Error):
            APP.check(envelope)


def test_grammar_and_check_agree_on_plans_made_at_random():
    rng = random.Random(7)
    judge = nk.Validator(nk._planner_request(APP.engine, "x").schema, assert_formats=True)
    values = ["x", "", "a b", 0, 1, 50, 51, -1, 2.5, True, False, None, "2026-05-01", "2026-13-01", "newest", "a@b.example",
              "2026-05-01T10:00", ["a"], ["A b"], [], {}, "x" * 81]
    names = ["text", "labels", "since", "limit", "archived", "order", "to", "width", "height", "path", "before", "secret"]
    taken = 0
    for _ in range(6000):
        tool = rng.choice(["jot", "find_notes", "invite", "scale", "wipe", "expire", "nope"])
        known = [each["input"]["properties"] for each in nk._planner_request(APP.engine, "").tools if each["name"] == tool]
        mine = list(known[0]) if known and rng.random() < 0.9 else names
        args = {name: rng.choice(values) for name in mine if rng.random() < 0.7}
        envelope = {"plan": [{"tool": tool, "args": args}]}
        try:
            APP.check(envelope)
            fits = True
        except nk.Error:
            fits = False
        allowed = judge.is_valid(envelope)
        taken += fits
        if fits != allowed:  # the two places where the keywords of decoders say less than the check
            assert allowed and not fits and (tool in ("invite", "wipe")), (envelope, allowed, fits)
    assert taken > 200


def words_of(schema):
    if isinstance(schema, dict):
        for key, value in schema.items():
            yield key
            if key in ("properties",):
                for part in value.values():
                    yield from words_of(part)
            elif key != "enum":
                yield from words_of(value)
    elif isinstance(schema, list):
        for part in schema:
            yield from words_of(part)


def test_grammar_uses_only_keywords_that_decoders_know():
    @nk.command(input={
        "type": "object", "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}},
        "properties": {
            "tree": {"$ref": "#/$defs/node"}, "kind": {"oneOf": [{"const": "a"}, {"type": "integer", "multipleOf": 3}]},
            "free": {}, "odd": {"type": "string", "pattern": "(?=x)", "format": "iri"}, "both": {"allOf": [{"minimum": 1}]},
            "map": {"type": "object", "additionalProperties": {"type": "integer"}},
        }, "required": ["tree", "lost"],
    })
    def raw(value: dict) -> int: ...

    known = set("type enum description minimum maximum exclusiveMinimum exclusiveMaximum minLength maxLength minItems "
                "maxItems properties required additionalProperties items anyOf pattern format".split())
    for app in (APP, App(raw)):
        schema = nk._planner_request(app.engine, "x").schema
        assert set(words_of(schema)) <= known
        nk.Validator(schema)  # it is one
        assert len(json.dumps(schema)) < 50_000
    judge = nk.Validator(schema)
    assert judge.is_valid({"plan": [{"tool": "raw", "args": {"tree": {"next": {}}, "kind": "a", "free": [1]}}]})


# -- model servers ------------------------------------------------------------------------------------------------

class Server:
    """A model server on loopback that answers what it is told and keeps what it was asked."""

    def __init__(self, answer, status=200, wait=0.0):
        seen = self.seen = []

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                seen.append((self.path, dict(self.headers), json.loads(body)))
                if wait:
                    done.wait(wait)
                data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", "http://127.0.0.1:1/")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                try:
                    self.wfile.write(data)
                except OSError:
                    pass

            def log_message(self, *words):
                pass

        done = self.done = threading.Event()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = "http://127.0.0.1:%d" % self.server.server_port

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *fault):
        self.done.set()
        self.server.shutdown()
        self.server.server_close()


PLAN = '{"plan": [{"tool": "jot", "args": {"text": "x"}}]}'
OLLAMA = {"message": {"role": "assistant", "content": PLAN}, "done": True}
CHAT = {"choices": [{"message": {"role": "assistant", "content": PLAN}, "finish_reason": "stop"}]}


def test_ollama_is_asked_once_with_the_grammar():
    with Server(OLLAMA) as server:
        app = App(jot, wipe, planner=nk.OllamaPlanner("qwen3:4b", server.url, options={"num_ctx": 8192}))
        assert [(step.tool, step.args["text"]) for step in app.plan("jot x \u00e9")] == [("jot", "x")]
    (path, headers, body), = server.seen
    request = nk._planner_request(app.engine, "jot x \u00e9")
    assert path == "/api/chat" and headers["Content-Type"] == "application/json"
    assert body == {
        "model": "qwen3:4b", "stream": False, "format": request.schema, "options": {"temperature": 0, "num_ctx": 8192},
        "messages": [{"role": "system", "content": request.prompt}, {"role": "user", "content": "jot x \u00e9"}],
    }
    assert "Authorization" not in headers


@pytest.mark.parametrize("tail", ["", "/", "/v1", "/v1/"])
def test_chat_is_asked_once_with_the_grammar_and_the_token(tail):
    with Server(CHAT) as server:
        planner = nk.ChatPlanner("m", server.url + tail, token="s3cret-token")
        app = App(jot, planner=planner)
        assert len(app.plan("jot x")) == 1
    (path, headers, body), = server.seen
    request = nk._planner_request(app.engine, "jot x")
    assert path == "/v1/chat/completions" and headers["Authorization"] == "Bearer s3cret-token"
    assert body == {
        "model": "m", "stream": False, "temperature": 0,
        "response_format": {"type": "json_schema", "json_schema": {"name": "plan", "schema": request.schema}},
        "messages": [{"role": "system", "content": request.prompt}, {"role": "user", "content": "jot x"}],
    }
    assert "s3cret" not in repr(planner)


def refused(planner, utterance="jot x"):
    with pytest.raises(nk.Error) as caught:
        App(jot, planner=planner).plan(utterance)
    return caught.value.code, caught.value.message


@pytest.mark.parametrize("answer, message", [
    (b"", "the model server answered no JSON: no value"),
    (b"<html>", "the model server answered no JSON: "),
    (b'{"a": 1, "a": 2}', "the model server answered no JSON: a repeated key"),
    (b"\xff\xfe", "the model server answered no JSON: "),
    ({}, "the model server answered without the text of a message"),
    ([], "the model server answered without the text of a message"),
    ({"message": "x", "choices": {}}, "the model server answered without the text of a message"),
    ({"message": {"content": None}, "choices": []}, "the model server answered without the text of a message"),
    ({"message": {"content": [1]}, "choices": [7]}, "the model server answered without the text of a message"),
])
def test_malformed_answers_of_a_server(answer, message):
    with Server(answer) as server:
        for planner in (nk.OllamaPlanner("m", server.url), nk.ChatPlanner("m", server.url)):
            code, said = refused(planner)
            assert code == "UPSTREAM_TOOL_ERROR" and (said.startswith(message[:40]))


@pytest.mark.parametrize("text", [
    "", "I cannot do that", "{}", '{"plan": [', '{"plan": []} {"plan": []}', "<think>hm" + PLAN, "null", "x" * 200_000,
])
def test_malformed_plans_of_a_model(text):
    with Server({"message": {"content": text}}) as server:
        assert refused(nk.OllamaPlanner("m", server.url))[0] == "PLAN_INVALID"
    assert len(server.seen) == 1  # one inference, never a second try


def test_think_blocks_by_the_planner_s_own_word():
    text = "hm, wipe? no</think>" + PLAN
    with Server({"message": {"content": text}}) as server:
        assert refused(nk.OllamaPlanner("m", server.url))[0] == "PLAN_INVALID"
        app = App(jot, planner=nk.OllamaPlanner("m", server.url, thinking="prefilled"))
        assert len(app.plan("jot x")) == 1
    with Server({"message": {"content": "<think>" + text}}) as server:
        assert len(App(jot, planner=nk.OllamaPlanner("m", server.url)).plan("jot x")) == 1


@pytest.mark.parametrize("make", [
    lambda: nk.OllamaPlanner("m", thinking="open"), lambda: nk.ScriptedPlanner([], thinking=""),
    lambda: nk.ChatPlanner("m", thinking=True),
])
def test_thinking_is_one_of_two_words(make):
    with pytest.raises(nk.Error) as caught:
        make()
    assert caught.value.message.startswith('thinking must be "closed" or "prefilled", not ')


def test_status_and_redirects_of_a_server():
    for status in (302, 400, 404, 500):
        with Server({"error": "model not found, token s3cret"}, status) as server:
            assert refused(nk.OllamaPlanner("m", server.url)) == (
                "UPSTREAM_TOOL_ERROR", f"the model server answered {status} to /api/chat")
        assert len(server.seen) == 1


def test_a_server_that_is_silent_or_gone():
    with Server(OLLAMA, wait=5) as server:
        began = time.monotonic()
        assert refused(nk.OllamaPlanner("m", server.url, seconds=0.3))[0] == "CONNECTION_TIMEOUT"
        assert time.monotonic() - began < 3
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    assert refused(nk.OllamaPlanner("m", "http://127.0.0.1:%d" % port))[0] == "CONNECTION_REQUEST_FAILED"


def test_a_huge_answer_is_cut_off():
    with Server(b" " * 100_000_000) as server:
        began = time.process_time()
        assert refused(nk.ChatPlanner("m", server.url))[0] == "CONNECTION_RESPONSE_TOO_LARGE"
        assert time.process_time() - began < 3


@pytest.mark.parametrize("url", [
    "http://example.com", "https://api.example.com/v1", "http://10.0.0.5:11434", "http://192.168.1.7", "http://0.0.0.0:11434",
    "http://localhost.example.com", "http://[::2]:80", "http://169.254.169.254", "http://127.0.0.1.nip.io",
    "http://2130706433", "http://user@127.0.0.1", "ftp://127.0.0.1", "file:///etc/passwd", "http://local", "",
])
def test_another_machine_is_refused_before_any_look_up(url, monkeypatch):
    looked = []
    monkeypatch.setattr(nk, "_fetch_lookup", lambda *args: looked.append(args) or [])
    monkeypatch.setattr(nk, "_fetch_dial", lambda *args: looked.append(args))
    for planner in (nk.OllamaPlanner("m", url), nk.ChatPlanner("m", url, token="t", remote="yes")):
        assert refused(planner)[0] == "FORBIDDEN"
    assert looked == []


def test_another_machine_needs_the_word():
    code, message = refused(nk.OllamaPlanner("m", "http://10.0.0.5:11434"))
    assert message == ("10.0.0.5:11434 is not this machine, and a planner would send it every sentence; "
                       "remote=True permits it")
    for url in ("http://127.0.0.1:1", "http://[::1]:1", "http://localhost:1", "http://127.5.5.5:1"):
        assert refused(nk.OllamaPlanner("m", url, seconds=2))[0] == "CONNECTION_REQUEST_FAILED"


@pytest.mark.parametrize("token", ["a b", "a\r\nX: y", "", "\u00e9", 5])
def test_a_token_cannot_break_out_of_its_header(token):
    assert refused(nk.ChatPlanner("m", "http://127.0.0.1:1", token=token)) == (
        "BAD_REQUEST", "the token of the planner must be printable ASCII without blanks")


def test_surrogates_reach_a_model_as_escapes():
    with Server(OLLAMA) as server:
        App(jot, planner=nk.OllamaPlanner("m", server.url)).plan("jot \ud800")
    assert server.seen[0][2]["messages"][1]["content"] == "jot \ud800"


# -- scripted planners and planners of one's own ------------------------------------------------------------------

def test_scripted_answers_by_sentence_or_in_turn():
    planner = nk.ScriptedPlanner({"a": PLAN, "b": {"plan": []}})
    request = [nk._planner_request(App(jot).engine, text) for text in "abc"]
    assert [planner.propose(each) for each in request] == [PLAN, '{"plan":[]}', '{"plan":[]}']
    assert [each.utterance for each in planner.requests] == ["a", "b", "c"]
    planner = nk.ScriptedPlanner([PLAN])
    assert [planner.propose(each) for each in request[:2]] == [PLAN, '{"plan":[]}']


def test_a_planner_without_propose():
    assert refused(type("Lazy", (nk.Planner,), {})()) == ("BAD_REQUEST", "Lazy has no propose(request) of its own")


# -- evaluation ---------------------------------------------------------------------------------------------------

def test_evaluate_counts_and_executes_nothing():
    ran = []

    @nk.command(destructive=True)
    def drop(part: str) -> int:
        """Drop a table."""
        ran.append(table)

    @nk.command
    def keep(part: str, days: int = 3) -> dict:
        """Keep a table."""
        ran.append(table)

    def step(tool, **args):
        return {"plan": [{"tool": tool, "args": args}]}

    planner = nk.ScriptedPlanner({
        "exact": step("keep", part="a"), "default": step("keep", part="a", days=3), "text": step("keep", part="a", days="3"),
        "wrong": step("drop", part="a"), "acted": step("keep", part="b"), "invalid": step("nope"), "broken": "{",
        "two": {"plan": [dict(step("keep", part="a")["plan"][0], output="$x"), step("keep", part="$x.name")["plan"][0]]},
    })
    rows = [
        {"utterances": ["exact", "default", "text"], **step("keep", part="a")}, {"utterance": "wrong", **step("keep", part="a")},
        {"utterance": "acted", "refuse": True}, {"utterance": "nothing", "refuse": True},
        {"utterance": "invalid", "refuse": True}, {"utterance": "broken", **step("drop", part="a")},
        {"utterance": "two", "now": "2026-05-04T10:30:00Z", "plan": [
            dict(step("keep", part="a")["plan"][0], output="$first"), step("keep", part="$first.name", days=3)["plan"][0]]},
    ]
    report = nk.evaluate(App(drop, keep, planner=planner), rows)
    assert ran == []
    assert {key: report[key] for key in ("rows", "plans", "exact", "refused", "missed", "wrong", "acted", "destructive")} == {
        "rows": 9, "plans": 6, "exact": 4, "refused": 2, "missed": 1, "wrong": 1, "acted": 1, "destructive": 1}
    assert report["commands"] == {"(refuse)": {"asked": 3, "exact": 2}, "drop": {"asked": 1, "exact": 0},
                                  "keep": {"asked": 5, "exact": 4}}
    assert report["confusions"] == {"keep -> drop": 1, "(refuse) -> keep": 1, "drop -> (refuse)": 1}
    assert report["codes"] == {"NOT_FOUND": 2, "PLAN_INVALID": 1}
    assert report["text"].startswith("4 of 6 plans are exact (67%), 2 of 3 refusals are right\n")
    assert '  "wrong"\n' in report["text"] and report["bad"] == 2 / 9
    json.dumps(report)


@pytest.mark.parametrize("row, message", [
    (5, "row 1 is no row: "), ({}, "row 1 is no row: "), ({"utterance": "x"}, "row 1 is no row: "),
    ({"utterance": 5, "refuse": True}, "row 1 is no row: "), ({"utterance": "x", "refuse": True, "now": "later"}, "row 1 is no row: "),
    ({"utterance": "x", "plan": [], "refuse": True}, "row 1 is no row: "),
    ({"utterance": "x", "plan": [{"tool": "nope", "args": {}}]}, "the plan of row 1 is refused: "),
])
def test_evaluate_refuses_rows_that_are_none(row, message):
    with pytest.raises(nk.Error) as caught:
        nk.evaluate(APP, [row])
    assert caught.value.code == "BAD_REQUEST" and caught.value.message.startswith(message)


def test_evaluate_of_no_rows():
    report = nk.evaluate(APP, [])
    assert report["rows"] == 0 and report["accuracy"] == 0 and report["seconds"] == {}
