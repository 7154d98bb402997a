"""PROFILE: which profile is in force, private files, names, two writers at once, and secrets that never show."""
from __future__ import annotations

import errno
import io
import json
import os
import stat
import tempfile
import time
import traceback
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Optional, TypedDict

import pytest
from conftest import run_app

import knaif as nk

posix = pytest.mark.skipif(os.name == "nt", reason="POSIX modes, links and processes")
root = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs a second user")
STRANGER = 65534  # nobody
SECRET = "tok-SECRET-123"
BAD_NAMES = (
    "../../x", "....//x", "a/b", "a\\b", "", ".", "..", "x\0y", "-rf", "ok\n", "nul", "COM1.txt", "ok.", "a" * 65,
    "\xe9", "a b", ".hidden", None, 3, b"ok",
)
RULE = (
    "use 1 to 64 ASCII letters, digits, dots, _ and -, with a letter or digit first, no dot last, and no device of "
    "Windows"
)


@dataclass
class Server:
    """What most tests keep."""

    url: Annotated[str, nk.Arg("address of the server", min=1)]
    token: Annotated[str, nk.Arg("credential", secret=True, min=8)]
    timeout: int = 30


class Account(TypedDict, total=False):
    user: str
    since: date


#: nothing in a raw schema can be marked as secret
RAW = {
    "type": "object", "required": ["url", "token"], "additionalProperties": False,
    "properties": {
        "url": {"type": "string"}, "token": {"type": "string"}, "retries": {"type": "integer", "default": 3},
    },
}


def server(name):
    return {"url": f"https://{name}.example", "token": f"tok-{name}-{SECRET}"}


@pytest.fixture
def store(tmp_path):
    return nk.ProfileStore(str(tmp_path / "store"), Server, variable="APP_PROFILE")


@pytest.fixture
def umask():
    """Set the umask for one test."""
    old = os.umask(0o022)
    yield os.umask
    os.umask(old)


def surroundings(environ=None, **others):
    return nk.Env(stdin=None, stderr=io.BytesIO(), environ=environ or {}, tty=None, **others)


def refusal(call, *args, **options):
    with pytest.raises(nk.Error) as caught:
        call(*args, **options)
    assert_hides(caught.value)
    return caught.value.code, caught.value.message


def texts_of(error, seen=None):
    """Everything that can be read off an exception: texts, arguments, attributes, tracebacks, and of all it chains."""
    seen = set() if seen is None else seen
    if error is None or id(error) in seen:
        return
    seen.add(id(error))
    yield str(error)
    yield repr(error)
    yield repr(error.args)
    yield repr(vars(error))
    for name in dir(error):
        if not name.startswith("__"):
            yield repr(getattr(error, name, None))
    yield "".join(traceback.format_exception(type(error), error, error.__traceback__))
    yield from texts_of(error.__cause__, seen)
    yield from texts_of(error.__context__, seen)


def assert_hides(error, secret=SECRET):
    for text in texts_of(error):
        assert secret not in text


def mode_of(path):
    return stat.S_IMODE(os.lstat(path).st_mode)


def put(store, name, text, mode=0o600):
    """Write a profile's file by hand."""
    os.makedirs(store.directory, 0o700, exist_ok=True)
    with open(store.path_for(name), "w") as file:
        file.write(text if isinstance(text, str) else json.dumps(text))
    os.chmod(store.path_for(name), mode)


def in_processes(works):
    """Run each work in a process of its own, all set off at once; return what went wrong."""
    gate, go = os.pipe()
    answers = []
    for work in works:
        reader, writer = os.pipe()
        if os.fork() == 0:
            os.close(go)
            os.read(gate, 1)  # until all are there
            try:
                work()
                text = ""
            except BaseException:
                text = traceback.format_exc()
            os.write(writer, text.encode()[-4000:])
            os._exit(0)
        os.close(writer)
        answers.append(reader)
    os.close(gate)
    os.close(go)
    found = []
    for reader in answers:
        with open(reader, "rb") as answer:
            found.append(answer.read().decode())
    for _ in answers:
        os.wait()
    return [text for text in found if text]


# The folder of a program


@posix
@pytest.mark.parametrize("environ, folder", [
    ({"XDG_CONFIG_HOME": "/xdg", "HOME": "/home/ann"}, "/xdg/acme"),
    ({"XDG_CONFIG_HOME": "xdg", "HOME": "/home/ann"}, "/home/ann/.config/acme"),
    ({"XDG_CONFIG_HOME": "", "HOME": "/home/ann"}, "/home/ann/.config/acme"),
    ({"HOME": "/home/ann"}, "/home/ann/.config/acme"),
    ({}, os.path.join(os.path.expanduser("~"), ".config/acme")),
])
def test_config_dir(environ, folder):
    assert nk.config_dir("acme", surroundings(environ)) == folder


def test_config_dir_of_this_process(monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", "/here")
    monkeypatch.setenv("APPDATA", "C:\\here")
    assert nk.config_dir("acme") == os.path.join("C:\\here" if os.name == "nt" else "/here", "acme")


@posix
def test_config_dir_on_windows(monkeypatch):
    monkeypatch.setattr(os, "name", "nt")
    assert nk.config_dir("acme", surroundings({"APPDATA": "/roaming", "XDG_CONFIG_HOME": "/xdg"})) == "/roaming/acme"
    assert nk.config_dir("acme", surroundings({"HOME": "/home/ann"})) == "/home/ann/AppData/Roaming/acme"


@posix
def test_config_dir_without_a_home(monkeypatch):
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    assert nk.config_dir("acme", surroundings()) == "/nonexistent/acme"


@pytest.mark.parametrize("name, shown", [("../x", '"../x"'), ("", '""'), ("a/b", '"a/b"'), (None, "a NoneType")])
def test_config_dir_refuses_a_name(name, shown):
    assert refusal(nk.config_dir, name) == (
        "REGISTRATION_ERROR", f"config_dir needs the program's name as a plain file name, not {shown}")


# The constructor


@pytest.mark.parametrize("args, options, message", [
    (("", Server), {}, 'ProfileStore(directory=...) must be the path of a folder, not ""'),
    ((None, Server), {}, "ProfileStore(directory=...) must be the path of a folder, not a NoneType"),
    ((b"/x", Server), {}, "ProfileStore(directory=...) must be the path of a folder, not a bytes"),
    (("/x", int), {}, "ProfileStore(schema=...) must be a dataclass, a TypedDict or a JSON Schema, not a class"),
    (("/x", Server("a", "b")), {},
     "ProfileStore(schema=...) must be a dataclass, a TypedDict or a JSON Schema, not a Server"),
    (("/x", Server, "text"), {}, 'ProfileStore(create_hint=...) must be a function of name and path, not "text"'),
    (("/x", Server, None, 1), {}, "ProfileStore(announce=...) must be a function of a text, not an int"),
    (("/x", Server), {"variable": ""},
     'ProfileStore(variable=...) must be the name of an environment variable, not ""'),
    (("/x", Server), {"variable": "A=B"},
     'ProfileStore(variable=...) must be the name of an environment variable, not "A=B"'),
])
def test_the_constructor_refuses(args, options, message):
    assert refusal(nk.ProfileStore, *args, **options) == ("REGISTRATION_ERROR", message)


def test_the_constructor_only_records(tmp_path):
    store = nk.ProfileStore(tmp_path / "later", {"type": "strange"})
    assert store.directory == str(tmp_path / "later")
    assert not os.path.exists(store.directory) and store.list() == [] and not os.path.exists(store.directory)
    code, message = refusal(lambda: store.fields)
    assert code == "REGISTRATION_ERROR" and message.startswith("ProfileStore: ")


def test_fields(store):
    assert [field.name for field in store.fields] == ["url", "token", "timeout"]


# Writing and reading


def test_a_profile_comes_back(store):
    store.write("work", Server("https://a", SECRET, 5))
    assert store.read("work") == Server("https://a", SECRET, 5)
    store.write("work", {"url": "https://b", "token": SECRET})
    assert store.read("work") == Server("https://b", SECRET, 30)
    assert store.list() == ["work"]
    with open(store.path_for("work"), "rb") as file:
        assert file.read() == b'{\n  "url": "https://b",\n  "token": "%s"\n}\n' % SECRET.encode()
    store.delete("work")
    assert store.list() == []


def test_a_typed_dict_comes_back(tmp_path):
    store = nk.ProfileStore(str(tmp_path), Account)
    store.write("one", {"user": "ann", "since": date(2024, 2, 29)})
    assert store.read("one") == {"user": "ann", "since": date(2024, 2, 29)}
    store.write("two", {"since": "2024-02-29"})
    assert store.read("two") == {"since": date(2024, 2, 29)}


def test_a_raw_schema_comes_back_with_its_defaults(tmp_path):
    store = nk.ProfileStore(str(tmp_path), RAW)
    store.write("one", {"url": "u", "token": "t"})
    assert store.read("one") == {"url": "u", "token": "t", "retries": 3}
    assert json.load(open(store.path_for("one"))) == {"url": "u", "token": "t"}


@pytest.mark.parametrize("value, message", [
    (["x"], "the value of profile work is neither a mapping nor what read() returns; give a JSON object"),
    (None, "the value of profile work is neither a mapping nor what read() returns; give a JSON object"),
    ({"url": object(), "token": SECRET}, "the value of profile work holds a value of the Python type object; "
     "give a JSON object"),
    ({"url": float("nan"), "token": SECRET}, "the value of profile work holds NaN; give a JSON object"),
    ({"url": "\ud800", "token": SECRET}, "the value of profile work holds a lone surrogate; give a JSON object"),
    ({"url": "x" * 2_000_000, "token": SECRET},
     "the value of profile work holds more than 1,048,576 bytes; give a JSON object"),
    ({"url": "u"}, "profile work: token is required"),
    ({"url": SECRET, "token": SECRET, "timeout": SECRET}, "profile work: timeout: expected a whole number, got ***"),
    ({"url": "u", "token": SECRET[:4]}, "profile work: token: expected at least 8 characters, got ***"),
    ({"url": "u", "token": SECRET, SECRET: 1}, 'profile work: "***" is not a field of this input'),
])
def test_write_refuses(store, value, message):
    store.write("work", server("old"))
    assert refusal(store.write, "work", value) == ("VALIDATION_ERROR", message)
    assert store.read("work").url == "https://old.example"


def test_update_merges_and_sees_none_first(store):
    seen = []

    def change(old):
        seen.append(old)
        return dict(old or server("a"), timeout=len(seen))

    store.update("work", change)
    store.update("work", change)
    assert seen == [None, dict(server("a"), timeout=1)]
    assert store.read("work").timeout == 2


def test_update_mends_what_does_not_fit(store):
    put(store, "work", {"url": "u"})
    store.update("work", lambda old: dict(old, token=SECRET))
    assert store.read("work").url == "u"


def test_update_lets_go_when_the_change_fails(store):
    def fail(old):
        raise KeyError("mine")

    with pytest.raises(KeyError):
        store.update("work", fail)
    assert store.list() == []
    store.write("work", server("a"))  # the lock is free


def test_what_else_is_in_the_folder_is_no_profile(store):
    store.write("work", server("a"))
    for name in ("-rf.json", "a b.json", ".json", "..json", "con.json", "notes.txt", "X.JSON", ".new-1-0", ".lock"):
        with open(os.path.join(store.directory, name), "w"):
            pass
    assert store.list() == ["work"]


# Names


@pytest.mark.parametrize("name", BAD_NAMES, ids=repr)
def test_pro_04_a_name_is_never_a_path(tmp_path, name):
    inside = tmp_path / "store"
    store = nk.ProfileStore(str(inside), Server, variable="APP_PROFILE")
    store.write("ok..name", server("ok"))
    before = sorted(os.walk(tmp_path))
    shown = nk._json_show(name) if isinstance(name, str) else f"a {type(name).__name__}" if name != 3 else "an int"
    expected = ("BAD_REQUEST", f"{shown} is no name of a profile; {RULE}")
    assert refusal(store.path_for, name) == expected
    assert refusal(store.read, name) == expected
    assert refusal(store.write, name, server("x")) == expected
    assert refusal(store.update, name, lambda old: server("x")) == expected
    assert refusal(store.delete, name) == expected
    if name is not None:
        assert refusal(store.resolve, name, surroundings()) == expected
    if isinstance(name, str) and name and "\0" not in name:
        assert refusal(store.resolve, None, surroundings({"APP_PROFILE": name})) == (
            "BAD_REQUEST", f"{shown} (from APP_PROFILE) is no name of a profile; {RULE}")
    assert sorted(os.walk(tmp_path)) == before
    assert store.read("ok..name").url == "https://ok.example"


def test_a_name_is_that_of_a_directory_entry_exactly(store, monkeypatch):
    """On a file system without case, prod would open Prod.json."""
    store.write("prod", server("a"))
    monkeypatch.setattr(os, "listdir", lambda path: ["Prod.json"])
    missing = 'there is no profile "prod"; the profiles are Prod'
    assert refusal(store.read, "prod") == ("NOT_FOUND", missing)
    assert refusal(store.delete, "prod") == ("NOT_FOUND", missing)
    assert refusal(store.resolve, "prod", surroundings()) == ("NOT_FOUND", missing)
    differs = 'the name prod differs from the file "Prod.json" in case alone; use that name or another'
    assert refusal(store.write, "prod", server("b")) == ("CONFLICT", differs)
    assert refusal(store.update, "prod", lambda old: server("b")) == ("CONFLICT", differs)
    monkeypatch.undo()
    assert store.read("prod").url == "https://a.example"


# Which one is in force


OPTIONS = {"absent": None, "known": "one", "unknown": "zzz", "empty": ""}
VARIABLES = {"unset": None, "empty": "", "known": "one", "unknown": "yyy"}


def expected_resolution(option, variable, count):
    """The rule once more, as a table: (name, source), or the refusal."""
    names = ["one", "two"][:count]
    listed = {0: "there is none yet", 1: "the profiles are one", 2: "the profiles are one, two"}[count]
    if option == "empty":
        return "BAD_REQUEST", f'"" is no name of a profile; {RULE}'
    if option != "absent":
        name = OPTIONS[option]
        return (name, "option") if name in names else ("NOT_FOUND", f'there is no profile "{name}"; {listed}')
    if variable in ("known", "unknown"):
        name = VARIABLES[variable]
        return (name, "environment") if name in names else (
            "NOT_FOUND", f'there is no profile "{name}" (from APP_PROFILE); {listed}')
    return {
        0: ("NOT_FOUND", "there is no profile in {folder} yet; make one"),
        1: ("one", "only"),
        2: ("BAD_REQUEST", "2 profiles are there and none is named; name one with --profile or APP_PROFILE: one, two"),
    }[count]


@pytest.mark.parametrize("count", (0, 1, 2))
@pytest.mark.parametrize("variable", VARIABLES)
@pytest.mark.parametrize("option", OPTIONS)
def test_the_resolution_table(store, option, variable, count):
    for name in ("one", "two")[:count]:
        store.write(name, server(name))
    env = surroundings({} if variable == "unset" else {"APP_PROFILE": VARIABLES[variable]})
    left, right = expected_resolution(option, variable, count)
    if right not in ("option", "environment", "only"):
        folder = nk._json_show(store.directory, 200)
        assert refusal(store.resolve, OPTIONS[option], env) == (left, right.replace("{folder}", folder))
        assert env.stderr.getvalue() == b""
    else:
        found = store.resolve(OPTIONS[option], env)
        assert (found.name, found.source, found.value.url) == (left, right, f"https://{left}.example")
        assert found.path == store.path_for(left)
        announced = b"using profile one, the only one there is\n" if right == "only" else b""
        assert env.stderr.getvalue() == announced
    if option == "absent" and variable in ("unset", "empty"):
        assert store.resolve(None, env, fallback=False) is None
    elif right == "only":
        pytest.fail("nothing but an unnamed profile can be the only one")


def test_the_only_one_is_announced_as_the_program_likes(tmp_path):
    said = []
    store = nk.ProfileStore(str(tmp_path), Server, announce=said.append)
    store.write("work", server("a"))
    env = surroundings({"APP_PROFILE": "else"})
    assert store.resolve(None, env).name == "work"
    assert said == ["using profile work, the only one there is"] and env.stderr.getvalue() == b""
    assert store.resolve(None, env, quiet=True).name == "work"
    assert len(said) == 1


def test_quiet_announces_nothing(store):
    store.write("work", server("a"))
    env = surroundings()
    assert store.resolve(None, env, quiet=True).source == "only"
    assert env.stderr.getvalue() == b""


def test_resolve_reads_this_process(store, monkeypatch):
    for name in ("one", "two"):
        store.write(name, server(name))
    monkeypatch.setenv("APP_PROFILE", "two")
    assert store.resolve().name == "two"


def test_a_broken_only_one_is_not_announced(store):
    put(store, "work", "{")
    env = surroundings()
    assert refusal(store.resolve, None, env)[0] == "BAD_REQUEST"
    assert env.stderr.getvalue() == b""


def test_a_missing_profile_comes_with_the_programs_hint(tmp_path):
    store = nk.ProfileStore(str(tmp_path), Server, lambda name, path: f"write {path} for {name}")
    for call, name in ((lambda: store.read("work"), "work"), (lambda: store.resolve(None, surroundings()), "default")):
        with pytest.raises(nk.Error) as caught:
            call()
        assert caught.value.hint == f"write {tmp_path}/{name}.json for {name}"
        assert caught.value.details in ({"profiles": []}, None)
    for silent in (lambda name, path: 1 / 0, lambda name, path: 7, lambda name, path: ""):
        store.create_hint = silent
        with pytest.raises(nk.Error) as caught:
            store.read("work")
        assert (caught.value.code, caught.value.hint) == ("NOT_FOUND", None)


def test_many_names_are_cut(tmp_path):
    store = nk.ProfileStore(str(tmp_path), {"type": "object"})
    for number in range(23):
        put(store, f"p{number:02}", {})
    code, message = refusal(store.resolve, None, surroundings())
    assert message == ("23 profiles are there and none is named; name one with --profile: "
                       + ", ".join(f"p{number:02}" for number in range(20)) + " and 3 more")


# Private files


@posix
@pytest.mark.parametrize("mask", (0o000, 0o022, 0o077, 0o777))
def test_modes_under_any_umask(store, umask, mask):
    umask(mask)
    store.write("work", server("a"))
    store.update("work", lambda old: dict(old, timeout=1))
    assert mode_of(store.directory) == 0o700
    assert mode_of(store.path_for("work")) == 0o600
    assert mode_of(os.path.join(store.directory, ".lock")) & 0o077 == 0
    assert store.read("work").timeout == 1


@posix
def test_the_file_is_private_from_its_first_byte(store, umask, monkeypatch):
    umask(0o000)
    modes = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda descriptor: (modes.append(os.fstat(descriptor).st_mode), real(descriptor)))
    opened = []
    real_open = os.open

    def watch(path, flags, mode=0o777, **options):
        descriptor = real_open(path, flags, mode, **options)
        if flags & os.O_CREAT:
            opened.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        return descriptor

    monkeypatch.setattr(os, "open", watch)
    store.write("work", server("a"))
    assert opened and set(opened) == {0o600}
    assert {stat.S_IMODE(mode) for mode in modes if stat.S_ISREG(mode)} == {0o600}


def every_reader(store, name="work"):
    return (lambda: store.read(name), lambda: store.resolve(name, surroundings()),
            lambda: store.resolve(None, surroundings({"APP_PROFILE": name})),
            lambda: store.update(name, lambda old: old))


@posix
@pytest.mark.parametrize("mode", (0o644, 0o640, 0o604, 0o620, 0o610, 0o666))
def test_a_file_open_to_others_is_refused_with_the_chmod(store, mode):
    put(store, "work", server("a"), mode)
    path = store.path_for("work")
    for call in every_reader(store):
        assert refusal(call) == ("FORBIDDEN", f"{nk._json_show(path)} is open to other users (mode {mode:04o}); "
                                              f"run chmod 600 {path}")
    os.chmod(path, 0o600)
    assert store.read("work").url == "https://a.example"


@posix
def test_a_link_is_refused_and_never_written_through(store, tmp_path):
    other = tmp_path / "other.json"
    other.write_text(json.dumps(server("stolen")))
    other.chmod(0o600)
    put(store, "kept", server("a"))
    path = store.path_for("work")
    os.symlink(other, path)
    for call in every_reader(store):
        assert refusal(call) == ("FORBIDDEN", f"{nk._json_show(path)} is a link; run (umask 077; "
                                              f"cp {path} {path}.new && mv -f {path}.new {path})")
    store.write("work", server("mine"))
    assert json.loads(other.read_text()) == server("stolen") and not os.path.islink(path)
    os.unlink(path)
    os.symlink(other, path)
    store.delete("work")
    assert other.exists() and store.list() == ["kept"]


@posix
def test_a_hard_link_is_refused(store, tmp_path):
    store.write("work", server("a"))
    path = store.path_for("work")
    os.link(path, tmp_path / "second")
    for call in every_reader(store):
        assert refusal(call) == ("FORBIDDEN", f"{nk._json_show(path)} has 2 names (hard links); run (umask 077; "
                                              f"cp {path} {path}.new && mv -f {path}.new {path})")


@posix
def test_no_regular_file_is_refused_and_holds_nobody_up(store):
    store.write("work", server("a"))
    path = store.path_for("work")
    for make in (os.mkfifo, os.mkdir):
        os.unlink(path)
        make(path)
        for call in every_reader(store):
            assert refusal(call) == (
                "FORBIDDEN", f"{nk._json_show(path)} is not a regular file; put a regular file there")
    assert refusal(store.delete, "work") == (
        "OUTPUT_FAILED", f"cannot remove {nk._json_show(path)} (Is a directory); remove it by hand")


@posix
@pytest.mark.parametrize("mode, remedy", [
    (0o770, "run chmod go-w {}"), (0o702, "run chmod go-w {}"), (0o777, "run chmod go-w {}"),
    (0o1777, "use a folder of your own for private files"),
])
def test_a_folder_that_others_can_write_is_refused_at_every_entry(store, mode, remedy):
    store.write("work", server("a"))
    os.chmod(store.directory, mode)
    expected = ("FORBIDDEN", f"folder {nk._json_show(store.directory)} can be written by other users; "
                             + remedy.format(store.directory))
    for call in (*every_reader(store), store.list, lambda: store.write("work", server("b")),
                 lambda: store.delete("work"), lambda: store.resolve(None, surroundings())):
        assert refusal(call) == expected
    os.chmod(store.directory, 0o755)
    assert store.read("work").url == "https://a.example"


@root
def test_files_of_another_user_are_refused(store):
    store.write("work", server("a"))
    path = store.path_for("work")
    os.chown(path, STRANGER, STRANGER)
    for call in every_reader(store):
        assert refusal(call) == ("FORBIDDEN", f"{nk._json_show(path)} belongs to another user; look at it, then run "
                                              f"sudo chown 0 {path}")
    os.chown(store.directory, STRANGER, STRANGER)
    writers = (lambda: store.write("new", server("b")), lambda: store.delete("work"))
    for call in (*every_reader(store), store.list, *writers):
        assert refusal(call) == ("FORBIDDEN", f"folder {nk._json_show(store.directory)} belongs to another user; "
                                              "use a folder of your own")


def as_stranger(work):
    """Run work in a process of another user; what it says comes back."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        try:
            os.setgroups([])
            os.setgid(STRANGER)
            os.setuid(STRANGER)
            text = str(work())
        except nk.Error as error:
            text = f"{error.code}: {error.message}"
            assert_hides(error)
        except BaseException as error:
            text = traceback.format_exc()
        os.write(writer, text.encode())
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as answer:
        text = answer.read().decode()
    os.wait()
    return text


@root
def test_another_user_reads_nothing_and_is_told_why():
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        store = nk.ProfileStore(os.path.join(folder, "store"), Server)
        store.write("work", server("a"))
        shown = nk._json_show(store.directory)
        cannot = f"BAD_REQUEST: cannot list {shown} (Permission denied); give the store a folder"
        assert as_stranger(lambda: store.read("work")) == cannot
        assert as_stranger(lambda: store.list()) == cannot
        os.chmod(store.directory, 0o755)
        path = nk._json_show(store.path_for("work"))
        assert as_stranger(lambda: store.list()) == "['work']"
        assert as_stranger(lambda: store.read("work")) == (
            f"FORBIDDEN: {path} belongs to another user; look at it, then run sudo chown {STRANGER} "
            + store.path_for("work"))
        assert as_stranger(lambda: store.write("work", server("b"))).startswith(("OUTPUT_FAILED: ", "FORBIDDEN: "))
        assert as_stranger(lambda: store.delete("work")).startswith(("OUTPUT_FAILED: ", "FORBIDDEN: "))
        assert store.read("work").url == "https://a.example"


def test_a_folder_that_is_none(tmp_path):
    (tmp_path / "file").write_text("")
    store = nk.ProfileStore(str(tmp_path / "file"), Server)
    shown = nk._json_show(store.directory)
    assert refusal(store.list) == ("BAD_REQUEST", f"cannot list {shown} (Not a directory); give the store a folder")
    assert refusal(store.write, "work", server("a"))[0] == "OUTPUT_FAILED"
    store = nk.ProfileStore(str(tmp_path / "x\0y"), Server)
    assert refusal(store.list)[1].endswith("(no file can have this name); give the store a folder")


# Several processes


@posix
def test_pro_r2_twenty_processes_write_twenty_profiles(store):
    def writer(number):
        return lambda: store.write(f"p{number:02}", server(f"p{number:02}"))

    assert in_processes([writer(number) for number in range(20)]) == []
    assert store.list() == [f"p{number:02}" for number in range(20)]
    assert [store.read(name).url for name in store.list()] == [f"https://p{number:02}.example" for number in range(20)]
    assert sorted(os.listdir(store.directory)) == [".lock"] + [name + ".json" for name in store.list()]


@posix
def test_pro_r2_twenty_processes_change_one_profile(tmp_path):
    store = nk.ProfileStore(str(tmp_path / "store"), {"type": "object", "additionalProperties": {"type": "integer"}})

    def writer(number):
        return lambda: store.update("one", lambda old: dict(old or {}, **{f"f{number}": number}))

    assert in_processes([writer(number) for number in range(20)]) == []
    assert store.read("one") == {f"f{number}": number for number in range(20)}


@posix
def test_pro_r2_a_killed_process_leaves_no_lock(store):
    ready, told = os.pipe()
    child = os.fork()
    if child == 0:
        store.update("work", lambda old: (os.write(told, b"x"), time.sleep(60)))
    os.read(ready, 1)
    os.kill(child, 9)
    os.waitpid(child, 0)
    began = time.monotonic()
    store.write("work", server("a"))
    assert time.monotonic() - began < 5
    assert store.list() == ["work"]


@posix
def test_a_change_waits_for_another_and_gives_up(store, monkeypatch):
    monkeypatch.setattr(nk, "PROFILE_LOCK_SECONDS", 0.2)
    store.write("work", server("a"))
    with nk._FilesLock(os.path.join(store.directory, ".lock")):
        for call in (lambda: store.write("work", server("b")), lambda: store.delete("work"),
                     lambda: store.update("work", lambda old: old)):
            code, message = refusal(call)
            assert code == "LOCKED" and str(os.getpid()) in message
        assert store.read("work").url == "https://a.example"  # readers wait for nobody
    store.write("work", server("b"))


# Secrets


def test_pro_r4_what_is_found_shows_no_secret(store):
    store.write("work", server("a"))
    found = store.resolve("work")
    assert repr(found) == str(found) == "<Profile work from option>"
    assert found.public == {"name": "work", "values": {"url": "https://a.example", "token": "***", "timeout": 30}}
    assert SECRET not in repr(store) and SECRET not in repr([found, store.fields])


def test_pro_r4_without_a_mark_every_value_is_secret(tmp_path):
    store = nk.ProfileStore(str(tmp_path), RAW)
    store.write("work", {"url": "u", "token": SECRET})
    assert store.resolve("work").public == {
        "name": "work", "values": {"url": "***", "token": "***", "retries": "***"}}


@dataclass
class Inner:
    key: Annotated[str, nk.Arg(secret=True)]
    user: str = "ann"


@dataclass
class Outer:
    inner: Inner
    keys: dict[str, Annotated[str, nk.Arg(secret=True)]]
    extra: Optional[Annotated[str, nk.Arg(secret=True)]] = None


def test_pro_r4_secrets_at_any_depth_are_hidden(tmp_path):
    store = nk.ProfileStore(str(tmp_path), Outer)
    store.write("work", Outer(Inner(SECRET), {"a": SECRET}, SECRET))
    assert store.resolve("work").public["values"] == {
        "inner": {"key": "***", "user": "ann"}, "keys": {"a": "***"}, "extra": "***"}
    put(store, "bad", {"inner": {"key": SECRET, SECRET: 1, "user": [SECRET]}, "keys": {SECRET: 7}, "extra": [SECRET]})
    code, message = refusal(store.read, "bad")
    assert code == "VALIDATION_ERROR" and "***" in message


@dataclass
class Picky:
    token: str
    when: str = ""

    def __post_init__(self):
        if self.when == "odd":
            raise RuntimeError(self.token)
        if self.token != "fine":
            raise ValueError(f"bad token {self.token}")


BROKEN = {
    "no JSON": (f'{{"url": "u", "token": "{SECRET}"', "BAD_REQUEST",
                'profile work in {path} is no JSON: an unfinished value at character 39; '
                "correct the file or remove the profile"),
    "a word": (SECRET, "BAD_REQUEST", 'profile work in {path} is no JSON: an unexpected character at character 1; '
               "correct the file or remove the profile"),
    "an escape": (f'{{"token": "{SECRET}\\q"}}', "BAD_REQUEST", "profile work in {path} is no JSON: "
                  "an unknown escape in a string at character 26; correct the file or remove the profile"),
    "twice": (f'{{"token": "{SECRET}", "token": "{SECRET}"}}', "BAD_REQUEST", "profile work in {path} is no JSON: "
              "a repeated key; correct the file or remove the profile"),
    "empty": ("", "BAD_REQUEST", "profile work in {path} is no JSON: no value; correct the file or remove the profile"),
    "a list": (f'["{SECRET}"]', "BAD_REQUEST", "profile work in {path} is a JSON array and no object; "
               "correct the file or remove the profile"),
    "text": (f'"{SECRET}"', "BAD_REQUEST", "profile work in {path} is a JSON string and no object; "
             "correct the file or remove the profile"),
    "a type": (f'{{"url": "u", "token": ["{SECRET}"]}}', "VALIDATION_ERROR",
               "profile work in {path}: token: expected a string, got ***"),
    "another type": (f'{{"url": "u", "token": "{SECRET}", "timeout": "{SECRET}"}}', "VALIDATION_ERROR",
                     "profile work in {path}: timeout: expected a whole number, got ***"),
    "missing": (f'{{"token": "{SECRET}"}}', "VALIDATION_ERROR", "profile work in {path}: url is required"),
    "unknown": (f'{{"url": "u", "token": "{SECRET}", "{SECRET}": 1}}', "VALIDATION_ERROR",
                'profile work in {path}: "***" is not a field of this input'),
    "too large": ('{"url": "u", "token": "' + SECRET * 100_000 + '"}', "BAD_REQUEST",
                  "{short} has more than 1,048,576 bytes; give a smaller file"),
    "no UTF-8": (f'{{"token": "{SECRET}\udcff"}}', "BAD_REQUEST", "profile work in {path} is no JSON: "
                 "bytes that are not UTF-8 at character 26; correct the file or remove the profile"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_pro_r4_no_fault_shows_a_secret(store, case):
    text, code, message = BROKEN[case]
    put(store, "work", "")
    with open(store.path_for("work"), "wb") as file:
        file.write(text.encode("utf-8", "surrogateescape"))
    path = store.path_for("work")
    message = message.replace("{path}", nk._json_show(path, 200)).replace("{short}", nk._json_show(path))
    for call in (lambda: store.read("work"), lambda: store.resolve(None, surroundings())):
        assert refusal(call) == (code, message)


def test_pro_r4_a_constructor_tells_nothing(tmp_path):
    store = nk.ProfileStore(str(tmp_path), Picky)
    for value in ({"token": SECRET}, {"token": SECRET, "when": "odd"}):
        assert refusal(store.write, "work", value) == (
            "VALIDATION_ERROR", "profile work: a Picky cannot be made of these values; correct them")
        put(store, "work", value)
        path = nk._json_show(store.path_for("work"), 200)
        assert refusal(store.read, "work") == (
            "VALIDATION_ERROR", f"profile work in {path}: a Picky cannot be made of these values; correct them")
    store.write("work", {"token": "fine"})


@pytest.mark.parametrize("schema", [
    {"enum": ["x"]}, {"const": "x"}, {"type": "integer"}, {"pattern": "^x$"}, {"maxLength": 2}, {"minLength": 40},
    {"not": {"type": "string"}}, {"anyOf": [{"type": "integer"}, {"maxLength": 1}]}, {"allOf": [{"maxLength": 1}]},
    {"oneOf": [{"type": "string"}, {"minLength": 1}]}, False, {"type": ["integer", "null"]},
    {"if": True, "then": False}, {"format": "date"}, {"uniqueItems": True}, {"contains": {"const": 1}},
], ids=str)
@pytest.mark.parametrize("value", [SECRET, [SECRET, SECRET], {SECRET: SECRET}, {"a": {"b": SECRET}}], ids=repr)
def test_pro_r4_no_keyword_shows_a_secret(tmp_path, schema, value):
    parts = {
        "properties": {"x": schema}, "patternProperties": {"^y": schema}, "additionalProperties": schema,
        "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
        "dependentRequired": {"x": ["z"]}, "propertyNames": {"maxLength": 4}, "maxProperties": 2,
        "unevaluatedProperties": False,
    }
    store = nk.ProfileStore(str(tmp_path), parts)
    for profile in ({"x": value}, {"yy": value}, {"free": value}, {SECRET: 1}, {"x": 1, SECRET: value, "b": SECRET}):
        put(store, "work", profile)
        for call in (lambda: store.read("work"), lambda: store.write("work", profile)):
            try:
                call()
            except nk.Error as error:
                assert error.code == "VALIDATION_ERROR"
                assert_hides(error)


@posix
@pytest.mark.parametrize("fault", (errno.ENOSPC, errno.EIO, errno.EROFS))
def test_pro_r4_a_write_that_fails_shows_no_secret_and_keeps_the_old(store, monkeypatch, fault):
    store.write("work", server("old"))
    real = os.fsync

    def fail(descriptor):
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(fault, os.strerror(fault))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fail)
    code, message = refusal(store.write, "work", server("new"))
    assert (code, message) == ("OUTPUT_FAILED", f"cannot write {nk._json_show(store.path_for('work'))} "
                                                f"({os.strerror(fault)}); choose a place that can be written")
    monkeypatch.undo()
    assert store.read("work").url == "https://old.example"
    assert sorted(os.listdir(store.directory)) == [".lock", "work.json"]


# The commands


def make_app(store, *commands, **options):
    return nk.App("app", commands=[*nk.profile_commands(store), *commands], **options)


def run(app, *tokens, **options):
    ran = run_app(app, *tokens, **options)
    assert SECRET not in ran.out + ran.err
    return ran


def test_set_show_list_remove(store):
    app = make_app(store)
    ran = run(app, "profile-set", "work", "--url", "https://a", "--token", SECRET)
    assert ran.code == 0 and ran.data == {
        "path": store.path_for("work"), "name": "work",
        "values": {"url": "https://a", "token": "***", "timeout": 30}}
    assert store.read("work") == Server("https://a", SECRET, 30)
    assert run(app, "profile-set", "work", "--timeout", "5").code == 0
    assert store.read("work") == Server("https://a", SECRET, 5)
    assert run(app, "profile-show").data == {
        "name": "work", "source": "only", "path": store.path_for("work"),
        "values": {"url": "https://a", "token": "***", "timeout": 5}}
    assert run(app, "profile-show").err == ""
    store.write("home", server("home"))
    assert run(app, "profile-list").data == [
        {"name": "home", "inForce": False, "source": None}, {"name": "work", "inForce": False, "source": None}]
    assert run(app, "profile-show", "home").data["source"] is None
    named = {"APP_PROFILE": "work"}
    assert run(app, "profile-list", environ=named).data[1] == {"name": "work", "inForce": True, "source": "environment"}
    assert run(app, "profile-show", "work", environ=named).data["source"] == "environment"
    refused = run(app, "profile-remove", "home")
    assert (refused.code, refused.failure["error"]) == (8, "CONFIRMATION_REQUIRED")
    assert run(app, "profile-remove", "home", "--yes").data == {"removed": "home"}
    assert store.list() == ["work"]
    missing = run(app, "profile-remove", "home", "--yes")
    assert (missing.code, missing.failure["message"]) == (4, 'there is no profile "home"; the profiles are work')


def test_pro_r1_show_refuses_where_none_is_in_force(store):
    app = make_app(store)
    assert run(app, "profile-list").data == []
    assert run(app, "profile-show").failure["error"] == "NOT_FOUND"
    for name in ("one", "two"):
        store.write(name, server(name))
    ran = run(app, "profile-show")
    assert (ran.code, ran.failure["message"]) == (
        1, "2 profiles are there and none is named; name one with --profile or APP_PROFILE: one, two")
    ran = run(app, "profile-show", environ={"APP_PROFILE": "three"})
    assert (ran.code, ran.failure["message"]) == (
        4, 'there is no profile "three" (from APP_PROFILE); the profiles are one, two')


def test_pro_04_the_commands_refuse_names(store, tmp_path):
    app = make_app(store)
    store.write("ok..name", server("ok"))
    before = sorted(os.walk(tmp_path))
    for name in ("../../x", "....//x", "a/b", "a\\b", "", ".", "..", "-rf"):
        shown = nk._json_show(name)
        for words in (("profile-show", "--", name), ("profile-set", "--url", "u", "--", name),
                      ("profile-remove", "--yes", "--", name)):
            ran = run(app, *words)
            assert (ran.code, ran.failure["message"]) == (1, f"{shown} is no name of a profile; {RULE}")
    assert sorted(os.walk(tmp_path)) == before
    assert run(app, "profile-show", "ok..name").code == 0


def test_pro_r4_a_secret_from_standard_input(store):
    app = make_app(store)
    piped = json.dumps(server("a")).encode()
    assert run(app, "profile-set", "work", "--stdin", stdin=piped).code == 0
    assert store.read("work").token == f"tok-a-{SECRET}"
    assert run(app, "profile-set", "work", "--stdin", "--url", "https://line", stdin=piped).code == 0
    assert store.read("work").url == "https://line"  # the line is nearer than the pipe
    assert run(app, "profile-set", "work", "--timeout", "7", stdin=piped).code == 0
    assert store.read("work") == Server("https://line", f"tok-a-{SECRET}", 7)  # nobody asked for the pipe


@pytest.mark.parametrize("piped, message", [
    (None, "--stdin: nothing is piped in; pipe in a JSON object of values"),
    (b"", "--stdin: nothing is piped in; pipe in a JSON object of values"),
    (SECRET.encode(), "standard input is no JSON: an unexpected character at character 1; "
     "pipe in a JSON object of values"),
    (b'["%s"]' % SECRET.encode(), "standard input is a JSON array and no object; pipe in a JSON object of values"),
    (b'{"token": "%s", "x": 1, "url": "u"}' % SECRET.encode(), 'profile work: "***" is not a field of this input'),
    (b'{"token": ["%s"], "url": "u"}' % SECRET.encode(), "profile work: token: expected a string, got ***"),
    (b'{"token": "%s"}' % SECRET.encode(), "profile work lacks url; give each as an option, or all in a JSON object "
     "with --stdin"),
])
def test_set_refuses_what_is_piped(store, piped, message):
    ran = run(make_app(store), "profile-set", "work", "--stdin", stdin=piped, environ={"KNAIF_TRACE": "1"})
    assert (ran.code, ran.failure["message"]) == (1, message)
    assert store.list() == []


def test_pro_r4_a_forgotten_name_is_not_taken_from_the_pipe(store):
    ran = run(make_app(store), "profile-set", "--stdin", stdin=json.dumps(server("a")).encode())
    assert (ran.code, ran.failure["message"]) == (
        1, "no profile is named; write the name of the profile to set after the command")


class Terminal(io.StringIO):
    """Somebody who answers; what he is shown and what he says."""

    def __init__(self, *answers):
        super().__init__()
        self.answers = list(answers)
        self.shown = ""

    def write(self, text):
        self.shown += text
        return len(text)

    def readline(self, size=-1):
        return self.answers.pop(0) if self.answers else ""

    def close(self):
        pass


def test_pro_r4_a_missing_secret_is_asked_for(store):
    app, terminal = make_app(store), Terminal(SECRET + "\n")
    ran = run(app, "profile-set", "work", "--url", "u", tty=lambda: terminal)
    assert ran.code == 0 and store.read("work").token == SECRET
    assert terminal.shown == "token: "
    terminal = Terminal("other\n")
    assert run(app, "profile-set", "work", "--url", "v", tty=lambda: terminal).code == 0
    assert terminal.shown == "" and store.read("work").token == SECRET  # it has one


def test_set_keeps_what_another_process_changed_meanwhile(store):
    put(store, "work", {"url": "u"})
    terminal = Terminal()

    def answer(size=-1):
        store.update("work", lambda old: dict(old, token="by another", timeout=9))
        return SECRET

    terminal.readline = answer
    assert run(make_app(store), "profile-set", "work", tty=lambda: terminal).code == 0
    assert store.read("work") == Server("u", SECRET, 9)


def test_nobody_is_asked_while_something_else_is_missing(store):
    terminal = Terminal(SECRET + "\n")
    ran = run(make_app(store), "profile-set", "work", tty=lambda: terminal)
    assert terminal.shown == ""
    assert ran.failure["message"] == (
        "profile work lacks url, token; give each as an option, or all in a JSON object with --stdin")


@pytest.mark.parametrize("answer, message", [
    ("\n", "profile work lacks token; give each as an option, or all in a JSON object with --stdin"),
    ("", "profile work lacks token; give each as an option, or all in a JSON object with --stdin"),
    ("short\n", "profile work: token: expected at least 8 characters, got ***"),
])
def test_an_answer_that_does_not_do(store, answer, message):
    ran = run(make_app(store), "profile-set", "work", "--url", "u", tty=lambda: Terminal(answer))
    assert (ran.code, ran.failure["message"]) == (1, message)


def test_an_answer_is_read_by_the_schema(tmp_path):
    store = nk.ProfileStore(str(tmp_path), {"type": "object", "properties": {"pin": {"type": "integer"}},
                                            "required": ["pin"]})
    app = make_app(store)
    ran = run(app, "profile-set", "work", tty=lambda: Terminal(SECRET + "\n"))
    assert ran.failure["message"] == "pin: expected a whole number; run the command again"
    assert run(app, "profile-set", "work", tty=lambda: Terminal("1234\n")).data["values"] == {"pin": "***"}
    assert store.read("work") == {"pin": 1234}


@pytest.mark.parametrize("schema", (Server, RAW), ids=("marked", "unmarked"))
def test_pro_r4_a_dry_run_and_a_fault_hide_secrets(tmp_path, schema):
    store = nk.ProfileStore(str(tmp_path), schema)
    app = make_app(store)
    ran = run(app, "profile-set", "work", "--token", SECRET, "--dry-run")
    assert ran.data == {"command": "profile-set", "args": {"name": "work", "token": "***"}}
    assert store.list() == []
    ran = run(app, "profile-set", "work", "--token:=[\"%s\"]" % SECRET, "--url", "u")
    assert ran.code != 0
    ran = run(app, "profile-set", "work", "--url", "u", "--tokn", SECRET)
    assert ran.code == 64


def test_set_reads_options_by_the_schema_of_their_field(tmp_path):
    store = nk.ProfileStore(str(tmp_path), Account)
    app = make_app(store)
    assert run(app, "profile-set", "work", "--since", "2024-02-29", "--user", "ann").code == 0
    assert store.read("work") == {"user": "ann", "since": date(2024, 2, 29)}
    ran = run(app, "profile-set", "work", "--since", "soon")
    assert ran.code == 64 and "--since" in ran.err
    raw = {
        "type": "object", "$defs": {"port": {"type": "integer", "minimum": 1}},
        "properties": {"port": {"$ref": "#/$defs/port"}, "tls": {"type": "boolean", "default": True},
                       "any": True, "name": {"type": "string"}, "a b": {}, "json": {}, "profile": {}},
    }
    store = nk.ProfileStore(str(tmp_path / "raw"), raw)
    app = make_app(store)
    assert run(app, "profile-set", "work", "--port", "80", "--no-tls", "--any", "x").code == 0
    assert store.read("work") == {"port": 80, "tls": False, "any": "x"}
    assert run(app, "profile-set", "work", "--port", "0").code != 0
    piped = b'{"name": "n", "a b": 1, "json": 2, "profile": 3}'
    assert run(app, "profile-set", "work", "--stdin", stdin=piped).code == 0
    assert store.read("work") == {"port": 80, "tls": False, "any": "x", "name": "n", "a b": 1, "json": 2, "profile": 3}


@dataclass
class Lease:
    since: date
    inner: Inner
    note: str = "none"


def test_set_keeps_what_python_has_classes_for(tmp_path):
    store = nk.ProfileStore(str(tmp_path), Lease)
    app = make_app(store)
    words = ("--since", "2024-02-29", "--inner.key", SECRET)
    ran = run(app, "profile-set", "work", *words, "--dry-run")
    assert ran.data["args"] == {"name": "work", "since": "2024-02-29", "inner": {"key": "***", "user": "ann"}}
    assert run(app, "profile-set", "work", *words).data["values"] == {
        "since": "2024-02-29", "inner": {"key": "***", "user": "ann"}, "note": "none"}
    assert run(app, "profile-set", "work", "--note", "x").code == 0
    assert store.read("work") == Lease(date(2024, 2, 29), Inner(SECRET, "ann"), "x")
    assert run(app, "profile-set", "work", "--since", "2025-01-01").code == 0
    assert store.read("work") == Lease(date(2025, 1, 1), Inner(SECRET, "ann"), "x")  # a default does not overwrite


def test_set_has_help_with_the_fields_and_no_values(store):
    ran = run(make_app(store), "profile-set", "--help")
    assert ran.code == 0
    for text in ("profile-set [name]", "--url", "address of the server", "--token", "--timeout", "--stdin"):
        assert text in ran.out, (text, ran.out)


def test_a_field_named_like_an_application_option_is_refused(store):
    @dataclass
    class Globals:
        url: str = ""

    ran = run(make_app(store, global_options=Globals), "profile-list")
    assert ran.code == 70 and 'the parameter "url" is named like an application option; rename one of them' in ran.err


def test_the_commands_take_another_prefix_and_no_other_store(store):
    names = [command.name for command in nk.profile_commands(store, "server")]
    assert names == ["server-list", "server-show", "server-set", "server-remove"]
    assert refusal(nk.profile_commands, "x") == (
        "REGISTRATION_ERROR", 'profile_commands needs a ProfileStore, not "x"')


@pytest.mark.parametrize("schema", [{"properties": 5}, {"properties": {"x": {"type": "odd"}}}, {"type": "string"}])
def test_a_faulty_schema_is_refused_when_it_is_needed(tmp_path, schema):
    app = make_app(nk.ProfileStore(str(tmp_path), schema))
    assert run(app, "profile-list").code == 0
    ran = run(app, "profile-set", "work")
    assert ran.code == 70 and ran.err.startswith("ProfileStore: ")


def test_profiles_are_changed_from_the_command_line_alone(store):
    """A line that sets another address would lead a token elsewhere that its sender does not know."""
    store.write("work", {"url": "https://a.example", "token": SECRET})
    with make_app(store).invoker(env=nk.Env(stdin=None, stderr=None, environ={}, tty=None)) as invoker:
        for name, args in (("profile-set", {"name": "work", "url": "https://evil.example"}),
                           ("profile-set", {"name": "new", "stdin": True}), ("profile-remove", {"name": "work"})):
            outcome = invoker.invoke(name, args, confirmed=True)
            assert (outcome.error.code, outcome.error.message) == (
                "FORBIDDEN", "profiles are changed from the command line alone")
        assert [row["name"] for row in invoker.invoke("profile-list").data] == ["work"]
    assert store.resolve("work").public["values"]["url"] == "https://a.example"


def test_a_missing_profile_names_the_command_that_makes_one(tmp_path):
    store = nk.ProfileStore(str(tmp_path / "p"), Server)
    with pytest.raises(nk.Error) as caught:
        store.resolve("work")
    assert caught.value.hint is None
    nk.profile_commands(store, "account")
    with pytest.raises(nk.Error) as caught:
        store.resolve("work")
    assert caught.value.hint == "account-set work makes it"


def test_a_profile_of_a_raw_schema_shows_no_key_that_it_does_not_declare(tmp_path):
    store = nk.ProfileStore(str(tmp_path / "p"), {"properties": {"url": {"type": "string"}}})
    store.write("work", {"url": "u", SECRET: 1})
    assert store.resolve("work").public == {"name": "work", "values": {"url": "***"}}
    assert store.resolve("work").facts == {"url": "u", SECRET: 1}


# In an application


def app_with_profiles(store, seen, **options):
    app = nk.App("app", expose=("cli",), profiles=store, commands=nk.profile_commands(store), **options)

    def wipe(what: str, ctx: nk.Ctx) -> str:
        seen.append(ctx.profile)
        return f"{what} at {ctx.profile.value.url}"

    def local(ctx: nk.Ctx) -> str:
        seen.append(ctx)
        return "done"

    app.command(wipe, destructive=True)
    app.native(local)
    return app


def test_app_resolves_by_the_table(store):
    seen = []
    app = app_with_profiles(store, seen)
    ran = run(app, "wipe", "x", "--yes")
    assert (ran.code, ran.failure["error"]) == (4, "NOT_FOUND")
    store.write("one", server("one"))
    ran = run(app, "wipe", "x", "--yes")
    assert ran.data == "x at https://one.example" and ran.err == "using profile one, the only one there is\n"
    assert run(app, "wipe", "x", "--yes", "--quiet").err == ""
    store.write("two", server("two"))
    ran = run(app, "wipe", "x", "--yes")
    assert (ran.code, ran.failure["details"]) == (1, {"profiles": ["one", "two"]})
    assert run(app, "--profile", "two", "wipe", "x", "--yes").data == "x at https://two.example"
    assert run(app, "wipe", "x", "--yes", environ={"APP_PROFILE": "one"}).data == "x at https://one.example"
    both = run(app, "wipe", "x", "--yes", "--profile=two", environ={"APP_PROFILE": "one"})
    assert both.data == "x at https://two.example"
    ran = run(app, "wipe", "x", "--yes", environ={"APP_PROFILE": "onr"})
    assert ran.failure["message"] == 'there is no profile "onr" (from APP_PROFILE); the profiles are one, two'
    ran = run(app, "wipe", "x", "--yes", "--profile", "../one")
    assert ran.failure["message"] == f'"../one" is no name of a profile; {RULE}'
    assert [profile.name for profile in seen] == ["one", "one", "two", "one", "two"]


def test_pro_r1_the_commands_follow_the_option(store):
    app = app_with_profiles(store, [])
    for name in ("one", "two"):
        store.write(name, server(name))
    assert run(app, "--profile", "two", "profile-show").data == {
        "name": "two", "source": "option", "path": store.path_for("two"),
        "values": {"url": "https://two.example", "token": "***", "timeout": 30}}
    assert run(app, "--profile", "two", "profile-list").data == [
        {"name": "one", "inForce": False, "source": None}, {"name": "two", "inForce": True, "source": "option"}]
    assert run(app, "profile-show", "two", "--profile", "one").data["source"] is None


def test_natives_need_no_profile_until_they_look(store):
    seen = []
    app = app_with_profiles(store, seen)
    assert run(app, "local").data == "done"
    with pytest.raises(nk.Error) as caught:
        seen[0].profile
    assert caught.value.code == "NOT_FOUND"


def test_pro_r3_the_question_names_the_profile_and_its_source(store):
    seen = []
    app = app_with_profiles(store, seen)
    store.write("one", server("one"))
    for words, environ, source in (((), {}, "the only one"), (("--profile", "one"), {}, "--profile"),
                                   ((), {"APP_PROFILE": "one"}, "APP_PROFILE")):
        terminal = Terminal("n\n")
        ran = run(app, *words, "wipe", "x", environ=environ, tty=lambda: terminal)
        assert ran.code == 8 and seen == []
        assert terminal.shown == f'wipe is destructive:\n  what: "x"\n  profile: one ({source})\nGo on? [y/N] '


def test_pro_r3_a_call_keeps_its_profile(store):
    store.write("one", server("one"))
    app = nk.App("app", expose=("cli",), profiles=store)

    def slow(ctx: nk.Ctx) -> list[str]:
        before = ctx.profile.value.url
        store.write("two", server("two"))  # another terminal
        store.write("one", server("changed"))
        return [before, ctx.profile.value.url]

    app.command(slow)
    assert run(app, "slow").data == ["https://one.example", "https://one.example"]


def test_resolve_auth_is_given_the_profile(store):
    store.write("one", server("one"))
    app = nk.App("app", expose=("cli",), profiles=store, resolve_auth=lambda globals, profile: profile.value.token)

    def check(ctx: nk.Ctx) -> bool:
        return ctx.identity == server("one")["token"]

    app.command(check)
    assert run(app, "check").data is True


def test_pro_01_an_explicit_profile_beats_a_variable(tmp_path):
    """The ranks of this program: a named profile, APP_TOKEN, the only profile."""
    store = nk.ProfileStore(str(tmp_path), Server, variable="APP_PROFILE")
    store.write("work", {"url": "u", "token": "tok-work"})

    @dataclass
    class Globals:
        profile: Optional[str] = None

    def app(environ):
        env = surroundings(environ)

        def sign_in(globals):
            named = store.resolve(globals.profile, env, fallback=False)
            if named is None and environ.get("APP_TOKEN"):
                return environ["APP_TOKEN"], "APP_TOKEN"
            found = named or store.resolve(None, env)
            return found.value.token, found.source

        def whoami(ctx: nk.Ctx) -> dict[str, str]:
            return dict(zip(("token", "source"), ctx.identity))

        made = nk.App("app", expose=("cli",), global_options=Globals, resolve_auth=sign_in)
        made.command(whoami)
        return made

    def ask(environ, *words):
        return tuple(run_app(app(environ), *words, "whoami", environ=environ).data.values())

    token = {"APP_TOKEN": "tok-env"}
    assert ask(token, "--profile", "work") == ("tok-work", "option")
    assert ask(token) == ("tok-env", "APP_TOKEN")
    assert ask(dict(token, APP_PROFILE="work")) == ("tok-work", "environment")
    assert ask({}) == ("tok-work", "only")
    refused = run_app(app(token), "--profile", "wrk", "whoami", environ=token)
    assert (refused.code, refused.failure["error"]) == (4, "NOT_FOUND")
