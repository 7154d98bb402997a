"""Whole lines at random: whatever is typed at whatever command ends in a result or in a refusal of the table."""
import random

import knaif as nk
from conftest import run_app

LINES = 1500
CODES = set(nk.ERRORS_EXIT_CODES.values()) | {0}
NAMES = ("a", "b_c", "x.y", "p=q", "", "__proto__", "sort2", "\u00e9", "A", "no-a", "long_name_of_a_field", "n:", "h")
SCALARS = (0, 1, -5, 2 ** 70, 1.5, "", "x", "7", "true", "-1", "2026-01-02", None, True, False, [], {}, [1], {"a": 1})
WORDS = (
    "7", "-5", "1e3", "true", "false", "null", "", "x", "a b", "[1]", '["a"]', "{}", '{"a":1}', "[", "nan", "2026-01-02",
    "\udcff", "\x1b[2J", "\u202e", "-", "--", "-h", "-f", "-fn", "-n100", "--help", "--help=x", "--version", "--json",
    "--json=false", "--dry-run", "--yes", "--wait", "--top", "--top=0", "--sort=a", "--count-by", "--table=a,b", "--=x",
    "--no-", "--no-json", "help", "version", "--.a", "--.a=1", "--quiet=maybe", "9" * 5000, "[" * 300, "\x00",
)


def random_schema(rng, depth=0):
    """A JSON Schema of any kind that compiles, or one that does not."""
    kind = rng.randrange(14 if depth < 3 else 7)
    if kind < 4:
        return {"type": rng.choice(["string", "integer", "number", "boolean", "null"])}
    if kind == 4:
        return {"enum": [rng.choice(SCALARS) for _ in range(rng.randrange(1, 4))]}
    if kind == 5:
        return rng.choice([True, False, {}, {"type": ["string", "null"]}, {"type": "string", "pattern": "^[a-z]+$"}])
    if kind == 6:
        return {"type": "integer", "minimum": rng.randrange(-9, 9), "maximum": rng.randrange(-9, 99)}
    if kind < 9:
        return {"type": "array", "items": random_schema(rng, depth + 1), "maxItems": 3}
    if kind < 11:
        return {rng.choice(["anyOf", "oneOf", "allOf"]): [random_schema(rng, depth + 1) for _ in range(2)]}
    if kind == 11:
        return {"type": "string", "format": rng.choice(["date", "uuid", "email", "nonsense", "regex"])}
    if kind == 12 and rng.random() < 0.1:
        return rng.choice([{"type": 7}, {"$ref": "#/nowhere"}, {"pattern": "("}, 7, {"$ref": "#"}, {"enum": []}])
    return random_object(rng, depth + 1)


def random_object(rng, depth=0):
    properties = {rng.choice(NAMES): random_schema(rng, depth) for _ in range(rng.randrange(4))}
    schema = {"type": "object", "properties": properties}
    if properties and rng.random() < 0.5:
        schema["required"] = [rng.choice(list(properties))]
    if rng.random() < 0.5:
        schema["additionalProperties"] = rng.choice([False, True, {"type": "integer"}])
    return schema


def random_app(rng):
    entered = []
    options = {}
    if rng.random() < 0.4:
        options["default_command"] = "first"
    if rng.random() < 0.3:
        options["global_options"] = {"type": "object", "properties": {"zone": random_schema(rng, 2)}}
    app = nk.App("app", "1", expose=("cli",), **options)

    def handler(args):
        entered.append(args)
        return rng.choice([args, None, [args], "text", 7])

    def typed(who: str, n: int = 0, tags: "list[int]" = (), on: bool = False, *more: float) -> dict:
        entered.append(who)
        return {"who": who, "n": n, "tags": tags, "on": on, "more": more}

    app.command(name="first", input=random_object(rng))(handler)
    app.command(name="sec_ond", destructive=rng.random() < 0.3)(typed)
    return app, entered


def random_line(rng):
    words = [rng.choice(["first", "sec_ond", "sec-ond", "thrid"])] if rng.random() < 0.9 else []
    for _ in range(rng.randrange(7)):
        name = rng.choice(NAMES + ("n", "tags", "on", "who", "zone"))
        shape = rng.randrange(9)
        text = rng.choice(WORDS)
        words += ([text], ["--" + name, text], ["--" + name + "=" + text], ["--" + name + ":=" + text], ["--no-" + name],
                  ["--" + name], ["--" + name + "." + rng.choice(NAMES) + "=" + text], [text],
                  ["--." + name, text])[shape]
    if rng.random() < 0.2:
        rng.shuffle(words)
    return words


def test_random_lines_end_in_a_result_or_a_refusal(rng):
    seen = set()
    for line_number in range(LINES):
        if line_number % 5 == 0:
            app, entered = random_app(rng)
        entered.clear()
        words = random_line(rng)
        stdin = rng.choice([None, b"", b"7", b"\xff", b"x\n", b"[" * 200])
        ran = run_app(app, *words, stdin=stdin)
        where = (line_number, words, ran)
        assert ran.code in CODES, where
        assert "Traceback" not in ran.err and "failed unexpectedly" not in ran.err, where
        if ran.code == 0:
            assert ran.out and not ran.err, where
        else:
            assert not ran.out, where
            assert ran.err.count("\n") >= 1 and len(ran.err) < 20000, where
        if ran.code in (64, 70, 8, 4):
            assert not entered or "the call itself succeeded" in ran.err, where
        seen.add(ran.code)
    assert seen >= {0, 1, 4, 64, 70}, seen


def test_the_same_line_always_has_the_same_answer(rng):
    for _ in range(60):
        seed, words = rng.random(), random_line(rng)
        answers = {repr(run_app(random_app(random.Random(seed))[0], *words)) for _ in range(2)}
        assert len(answers) == 1, words
