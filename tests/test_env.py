"""ENV: text for people, complete output, standard input, questions on a terminal, the descriptors of a process."""
import io
import os
import signal
import subprocess
import sys
import threading
import time
import unicodedata

import pytest

import knaif as nk

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SEED = 16
posix = pytest.mark.skipif(os.name != "posix", reason="needs POSIX descriptors and terminals")

if os.name == "posix":
    import fcntl
    import pty
    import select
    import termios


def refusal(work, code):
    """Return the message of the Error that work raises, whose code must be this one."""
    with pytest.raises(nk.Error) as caught:
        work()
    assert caught.value.code == code
    return caught.value.message


# -- text for people ----------------------------------------------------------------------------------------------

HUMAN = [
    ("plain \u65e5\u672c caf\u00e9 \U0001f600", "plain \u65e5\u672c caf\u00e9 \U0001f600"),
    ("\x1b[2J\x07", "\\x1b[2J\\x07"),
    ("a\nb\r\tc", "a\\nb\\r\\tc"),
    ("\x00\x7f\x80\x9b", "\\x00\\x7f\\x80\\x9b"),
    ("\u202eabc\u2066\u200f\u061c", "\\u202eabc\\u2066\\u200f\\u061c"),
    ("\u2028\u2029\ufeff\u200b\xad", "\\u2028\\u2029\\ufeff\\u200b\\xad"),
    ("\udcff\ud83d", "\\udcff\\ud83d"),
    ("\U000e0041", "\\U000e0041"),
    ("a\u3000b\u00a0c\u202f", "a\u3000b\u00a0c\u202f"),
    ("\u0645\u06cc\u200c\u062e \U0001f468\u200d\U0001f469", "\u0645\u06cc\u200c\u062e \U0001f468\u200d\U0001f469"),
    ("\\n", "\\n"),
    ("", ""),
]


@pytest.mark.parametrize("text, shown", HUMAN, ids=range(len(HUMAN)))
def test_human(text, shown):
    assert nk._env_human(text) == shown
    assert nk.Env().human(text) == shown
    assert nk._env_human(shown) == shown


def test_human_lines_and_limit():
    assert nk._env_human("a\n\x1bb\r\n", lines=True) == "a\n\\x1bb\\r\n"
    assert nk._env_human("a\n\nb", lines=True) == "a\n\nb"
    assert nk._env_human("abcdef", limit=6) == "abcdef"
    assert nk._env_human("abcdefg", limit=6) == "abc..."
    assert nk._env_human("ab\x1bcd", limit=6) == "ab\\..."
    assert nk._env_human("\x1b" * 10**7, limit=60) == "\\x1b" * 14 + "\\..."


def test_human_fuzz(rng):
    """Whatever comes in, nothing that acts on a terminal comes out, and short harmless text is left alone."""
    harmful = ("Cc", "Cf", "Cs", "Zl", "Zp")
    for _ in range(3000):
        text = "".join(chr(rng.choice((rng.randrange(0x100), rng.randrange(0x3000), rng.randrange(0x110000)))) for _ in range(12))
        for lines in (False, True):
            for limit in (sys.maxsize, 10):
                shown = nk._env_human(text, lines=lines, limit=limit)
                assert len(shown) <= limit
                for character in shown:
                    assert unicodedata.category(character) not in harmful or character in "\u200c\u200d" or (lines and character == "\n")
                if limit > 10 and not any(unicodedata.category(each) in harmful for each in text):
                    assert shown == text


# -- what an Env is -----------------------------------------------------------------------------------------------


def test_defaults_are_this_process(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["prog", "a", "b"])
    env = nk.Env()
    assert env.argv == ["prog", "a", "b"] and env.environ is os.environ and env.cwd == os.getcwd()
    assert env.clock() <= env.clock() and abs(env.now() - time.time()) < 60 and len(env.random(5)) == 5
    assert env.sleep is time.sleep


def test_everything_can_be_given():
    out, err = io.BytesIO(), io.BytesIO()
    env = nk.Env(argv=["p", "x"], stdin=None, stdout=out, stderr=err, environ={"A": "1"}, cwd="/nowhere", clock=lambda: 1.5,
                 now=lambda: 2.5, sleep=lambda seconds: None, random=lambda count: b"r" * count, tty=None)
    assert (env.argv, env.cwd, env.environ["A"], env.clock(), env.now(), env.random(3)) == (["p", "x"], "/nowhere", "1", 1.5, 2.5, b"rrr")
    env.write_out("caf\u00e9\n")
    env.write_err("\udcff\u65e5\n")
    assert out.getvalue() == "caf\u00e9\n".encode() and err.getvalue() == "\\udcff\u65e5\n".encode()
    assert env.read_stdin(0) is None and env.ask([], "sure?") is None and env.ask_secret("key: ") is None
    assert not env.out_ascii and not env.is_terminal("stdin") and not env.is_terminal("stdout")
    env.cwd = "/else"
    assert env.cwd == "/else"


@posix
def test_current_folder_that_was_deleted(tmp_path):
    def child():
        folder = tmp_path / "gone"
        folder.mkdir()
        os.chdir(str(folder))
        folder.rmdir()
        return refusal(lambda: nk.Env().cwd, "BAD_REQUEST")

    assert in_child(child) == "the current folder no longer exists; change to one that does"


class Terminal(io.BytesIO):
    def isatty(self):
        return True


def test_is_terminal():
    closed = io.BytesIO()
    closed.close()
    env = nk.Env(stdout=object(), stdin=closed, stderr=None)
    assert not any(map(env.is_terminal, ("stdin", "stdout", "stderr"))) and nk.Env(stdout=Terminal()).is_terminal("stdout")


# -- output -------------------------------------------------------------------------------------------------------


class Uncounted:
    """A stand-in whose write returns nothing."""

    def __init__(self):
        self.got = b""

    def write(self, data):
        self.got += data

    def flush(self):
        pass


def test_stand_ins():
    stream = Uncounted()
    nk.Env(stdout=stream).write_bytes_out(b"abc")
    assert stream.got == b"abc"
    stream = io.StringIO()
    nk.Env(stdout=stream, stderr=stream).write_out("caf\u00e9\n")
    assert stream.getvalue() == "caf\u00e9\n"


def test_replaced_standard_streams(monkeypatch):
    for stream in (io.StringIO(), io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=False)):
        monkeypatch.setattr(sys, "stdout", stream)
        env = nk.Env()
        print("first")
        env.write_out("second\n")
        stream.flush()
        text = stream.getvalue() if isinstance(stream, io.StringIO) else stream.buffer.getvalue().decode()
        assert text == "first\nsecond\n"


@posix
@pytest.mark.parametrize("buffering", [0, -1])
def test_full_pipe_that_does_not_block(buffering):
    inlet, outlet = os.pipe()
    os.set_blocking(outlet, False)
    data = os.urandom(300000)
    got = []
    with open(inlet, "rb", buffering=0) as source, open(outlet, "wb", buffering=buffering) as stream:
        if buffering:
            stream.write(b"held back:")

        def drain():
            # The writer is in the middle of a full pipe before anything is read.
            while len(select.select([], [outlet], [], 0)[1]):
                time.sleep(0.001)
            total = 0
            while total < len(data) + (10 if buffering else 0):
                got.append(source.read(50000))
                total += len(got[-1])

        reader = threading.Thread(target=drain)
        reader.start()
        nk.Env(stdout=stream).write_bytes_out(data)
        reader.join(20)
    assert b"".join(got) == (b"held back:" if buffering else b"") + data


@posix
def test_reader_that_went_away():
    inlet, outlet = os.pipe()
    os.close(inlet)
    with open(outlet, "wb", buffering=0) as stream:
        env = nk.Env(stdout=stream, stderr=stream)
        with pytest.raises(nk.Error) as caught:
            env.write_out("x")
        assert caught.value.code == "READER_GONE" and nk.exit_code(caught.value.code) == 141
        env.write_err("nobody is there")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_full_disk():
    with open("/dev/full", "wb", buffering=0) as stream:
        env = nk.Env(stdout=stream, stderr=stream)
        message = refusal(lambda: env.write_out("x"), "OUTPUT_FAILED")
        assert message == "cannot write standard output (No space left on device); make room or send it elsewhere"
        assert refusal(lambda: print("x", file=env.stdout_text()), "OUTPUT_FAILED") == message
        env.write_err("no room for this")
        print("nor for this", file=env.stderr_text())


def test_closed_output(tmp_path):
    env = nk.Env(stdout=None, stderr=None)
    assert refusal(lambda: env.write_out("x"), "OUTPUT_FAILED") == "standard output is closed; run the command with one that is open"
    env.write_err("x")
    with open(str(tmp_path / "file"), "wb") as stream:
        pass
    env = nk.Env(stdout=stream, stderr=stream)
    assert refusal(lambda: env.write_out("x"), "OUTPUT_FAILED") == "cannot write standard output (it is closed); make room or send it elsewhere"
    env.write_err("x")


def test_text_streams_for_handlers(tmp_path):
    out, err = io.BytesIO(), io.BytesIO()
    env = nk.Env(stdout=out, stderr=err)
    stream = env.stdout_text()
    print("a", 1, file=stream, flush=True)
    stream.writelines(["b", "\n"])
    assert stream.write("caf\u00e9") == 4 and out.getvalue() == "a 1\nb\ncaf\u00e9".encode()
    print("oops", file=env.stderr_text())
    assert err.getvalue() == b"oops\n"
    assert not stream.isatty() and stream.encoding == "utf-8" and not stream.closed
    with pytest.raises(OSError):
        stream.fileno()
    with open(str(tmp_path / "file"), "wb") as file:
        assert nk.Env(stdout=file).stdout_text().fileno() == file.fileno()


def test_encodings():
    out = io.BytesIO()
    env = nk.Env(stdout=out, stderr=out)
    env.stdout_encoding = env.stderr_encoding = "ascii"
    env.write_out("\u65e5")
    env.write_err("\xe9")
    assert out.getvalue() == b"\\u65e5\\xe9" and env.out_ascii


@posix
@pytest.mark.parametrize(
    "environ, ascii_only, data",
    [
        ({"LC_ALL": "C"}, True, "\u65e5".encode()),
        ({"LC_ALL": "C", "PYTHONUTF8": "1"}, False, "\u65e5".encode()),
        ({"LC_ALL": "C", "PYTHONIOENCODING": "latin-1"}, True, b"\\u65e5"),
        ({"LC_ALL": "C", "PYTHONIOENCODING": "utf8"}, False, "\u65e5".encode()),
        ({}, False, "\u65e5".encode()),
    ],
)
def test_io_r2_readable_where_the_stream_can(environ, ascii_only, data):
    out, err, code = script("env = nk.Env(); env.write_out('\\u65e5'); env.write_err(repr(env.out_ascii))", environ=environ)
    assert (out, err, code) == (data, repr(ascii_only).encode(), 0)


# -- standard input -----------------------------------------------------------------------------------------------


def reading(data):
    return nk.Env(stdin=data).read_stdin(0.25)


def test_read_stand_ins():
    assert reading(io.BytesIO(b"abc")) == b"abc" and reading(io.BytesIO(b"")) is None and reading(None) is None
    assert reading(io.StringIO("caf\u00e9")) == "caf\u00e9".encode() and reading(Terminal(b"typed")) is None
    closed = io.BytesIO(b"x")
    closed.close()
    assert reading(closed) is None

    class Refusing(io.RawIOBase):
        def read(self, size=-1):
            raise OSError("reading from stdin while output is captured")

    assert reading(Refusing()) is None


@posix
def test_read_regular_file_and_nothing(tmp_path):
    path = tmp_path / "in"
    path.write_bytes(b"\xff\x00text\n" * 30000)
    with open(str(path), "rb") as stream:
        assert reading(stream) == b"\xff\x00text\n" * 30000
    with open(os.devnull, "rb") as stream:
        assert reading(stream) is None
    inlet, outlet = os.pipe()
    os.close(outlet)
    with open(inlet, "rb") as stream:
        assert reading(stream) is None


@posix
def test_read_from_a_silent_pipe():
    """Waits as long as it was told, no longer, and takes nothing."""
    inlet, outlet = os.pipe()
    with open(inlet, "rb") as stream, open(outlet, "wb", buffering=0) as producer:
        before = time.monotonic()
        assert nk.Env(stdin=stream).read_stdin(0.05) is None
        assert 0.04 < time.monotonic() - before < 5
        producer.write(b"late")
        assert os.read(inlet, 10) == b"late"


@posix
@pytest.mark.parametrize("blocking", [True, False])
def test_read_from_a_slow_producer(blocking):
    """After the first byte the whole stream counts, however long its pauses are."""
    inlet, outlet = os.pipe()
    os.set_blocking(inlet, blocking)
    got = []
    with open(inlet, "rb") as stream:
        reader = threading.Thread(target=lambda: got.append(nk.Env(stdin=stream).read_stdin(5)))
        reader.start()
        for part in (b"first ", b"second ", b"caf\xc3", b"\xa9"):
            os.write(outlet, part)
            while select.select([inlet], [], [], 0)[0]:
                time.sleep(0.001)  # until it was taken
            time.sleep(0.02)
        assert not got
        os.close(outlet)
        reader.join(20)
    assert got == ["first second caf\u00e9".encode()]


@posix
def test_read_error_and_size(tmp_path, monkeypatch):
    number = os.open(str(tmp_path), os.O_RDONLY)
    stream = io.FileIO(os.open(os.devnull, os.O_RDONLY))
    os.dup2(number, stream.fileno())
    os.close(number)
    with stream:
        assert refusal(lambda: reading(stream), "BAD_REQUEST") == (
            "cannot read standard input (Is a directory); give the value as an argument")
    monkeypatch.setattr(nk, "ENV_STDIN_BYTES", 1000)
    assert reading(io.BytesIO(b"x" * 1000)) == b"x" * 1000
    assert refusal(lambda: reading(io.BytesIO(b"x" * 1001)), "BAD_REQUEST") == "standard input has more than 1,000 bytes; give less"
    path = tmp_path / "in"
    path.write_bytes(b"x" * 1001)
    with open(str(path), "rb") as stream:
        assert refusal(lambda: reading(stream), "BAD_REQUEST") == "standard input has more than 1,000 bytes; give less"


@posix
def test_read_endless_input():
    with open("/dev/zero", "rb") as stream:
        assert refusal(lambda: reading(stream), "BAD_REQUEST") == "standard input has more than 8,388,608 bytes; give less"


@posix
def test_read_in_a_thread():
    """The way of Windows, whose select() knows no pipes."""
    inlet, outlet = os.pipe()
    read = lambda: os.read(inlet, 100)
    assert nk._env_read_in_thread(read, 0.02) == b""
    os.write(outlet, b"for the thread that still waits")
    while select.select([inlet], [], [], 0)[0]:
        time.sleep(0.001)
    os.write(outlet, b"abc")
    assert nk._env_read_in_thread(read, 5) == b"abc"
    os.close(outlet)
    assert nk._env_read_in_thread(read, 5) == b""
    os.close(inlet)


# -- questions ----------------------------------------------------------------------------------------------------


class FakeTerminal:
    """A terminal of a test: gives one line, keeps what is shown."""

    def __init__(self, line):
        self.line, self.shown, self.closed = line, "", False

    def readline(self, limit):
        if isinstance(self.line, Exception):
            raise self.line
        return self.line[:limit]

    def write(self, text):
        self.shown += text

    def flush(self):
        pass

    def close(self):
        self.closed = True


ANSWERS = [("y\n", True), ("YES\n", True), (" Yes \n", True), ("\n", False), ("n\n", False), ("yess\n", False), ("y", False), ("", False),
           ("y" * 5000 + "\n", False), ("\udcff\n", False), (OSError(5, "hung up"), None)]


@pytest.mark.parametrize("line, answer", ANSWERS, ids=range(len(ANSWERS)))
def test_ask_answers(line, answer):
    terminal = FakeTerminal(line)
    env = nk.Env(tty=lambda: terminal)
    assert env.ask(["purge is destructive:", "  path: \x1b[2J\u202e"], "Go\non?") is answer
    assert terminal.shown == "purge is destructive:\n  path: \\x1b[2J\\u202e\nGo\\non? [y/N] " and terminal.closed


def test_ask_terminals_that_are_none():
    def missing():
        raise OSError(6, "No such device or address")

    for tty in (None, missing, lambda: None):
        assert nk.Env(tty=tty).ask([], "?") is None and nk.Env(tty=tty).ask_secret("?") is None


def test_ask_secret_of_a_stand_in():
    for line, secret in (("s3 cret \n", "s3 cret "), ("\n", ""), ("", None), ("s", "s"), (OSError(5, "hung up"), None)):
        terminal = FakeTerminal(line)
        assert nk.Env(tty=lambda: terminal).ask_secret("key\x1b: ") == secret
        assert terminal.shown == "key\\x1b: " and terminal.closed


def in_child(work):
    """Return the text that work returns in a forked child without a terminal, or the name of what it raises."""
    inlet, outlet = os.pipe()
    child = os.fork()
    if not child:
        run_and_leave(work, outlet)
    os.close(outlet)
    return finish_child(child, inlet)


def run_and_leave(work, outlet):
    """Run work in a forked child, send its result and leave without any clean-up of pytest."""
    try:
        answer = str(work())
    except BaseException as error:
        answer = "raised " + repr(error)
    os.write(outlet, answer.encode("utf-8", "backslashreplace"))
    os._exit(0)


def finish_child(child, inlet):
    with open(inlet, "rb") as source:
        answer = source.read().decode()
    os.waitpid(child, 0)
    return answer


class Session:
    """A forked child on a terminal of its own; work(hear) runs in it, where hear() waits for go()."""

    def __init__(self, work):
        self.inlet, outlet = os.pipe()
        hearing, self.speaking = os.pipe()
        self.child, self.terminal = pty.fork()
        self.seen = b""
        if not self.child:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.alarm(20)  # a question that is never answered must not hold up the suite
            sys.stdin = open(0, "rb", buffering=0, closefd=False)
            run_and_leave(lambda: work(lambda: os.read(hearing, 1)), outlet)
        os.close(outlet)
        os.close(hearing)

    def go(self):
        os.write(self.speaking, b"g")

    def type(self, text):
        os.write(self.terminal, text)
        while text == b"\x03" and not select.select([self.inlet], [], [], 0.2)[0]:
            # Python forgets a signal that comes right before it begins to read; a person would press again.
            os.write(self.terminal, text)

    def wait_for(self, text):
        """Read what the terminal shows until this is there."""
        end = time.monotonic() + 20
        while text not in self.seen:
            assert select.select([self.terminal], [], [], max(0, end - time.monotonic()))[0], (text, self.seen)
            self.seen += os.read(self.terminal, 4096)

    def result(self):
        """Return what work returned; `seen` then is all that the terminal showed."""
        answer = finish_child(self.child, self.inlet)
        while select.select([self.terminal], [], [], 0)[0]:
            try:
                more = os.read(self.terminal, 4096)
            except OSError:
                break
            if not more:
                break
            self.seen += more
        os.close(self.terminal)
        os.close(self.speaking)
        return answer


@posix
@pytest.mark.parametrize("typed, answer", [(b"y\n", "True"), (b"n\n", "False"), (b"\x04", "False"), (b"\x03", "raised KeyboardInterrupt()")])
def test_ask_on_a_terminal(typed, answer):
    session = Session(lambda hear: nk.Env().ask(["all of it"], "Go on?"))
    session.wait_for(b"all of it\r\nGo on? [y/N] ")
    session.type(typed)
    assert session.result() == answer


@posix
def test_ask_beside_piped_input():
    """The answer comes from the terminal, never from the data."""

    def work(hear):
        inlet, outlet = os.pipe()
        os.write(outlet, b"y\ny\n")
        with open(inlet, "rb", buffering=0) as stream:
            return nk.Env(stdin=stream).ask([], "Go on?"), os.read(inlet, 10)

    session = Session(work)
    session.wait_for(b"[y/N] ")
    session.type(b"n\n")
    assert session.result() == "(False, b'y\\ny\\n')"


@posix
def test_ask_drops_what_was_typed_before():
    def work(hear):
        hear()
        return nk.Env().ask([], "Go on?")

    session = Session(work)
    session.type(b"y\n")
    session.wait_for(b"y\r\n")  # echoed: the terminal has it
    session.go()
    session.wait_for(b"[y/N] ")
    session.type(b"n\n")
    assert session.result() == "False"


@posix
def test_ask_in_the_background():
    def work(hear):
        inlet, outlet = os.pipe()
        child = os.fork()
        if not child:
            os.setpgid(0, 0)
            run_and_leave(lambda: [nk.Env().ask([], "Go on?"), nk.Env().ask_secret("key: ")], outlet)
        os.close(outlet)
        return finish_child(child, inlet)

    session = Session(work)
    assert session.result() == "[None, None]" and session.seen == b""


@posix
def test_ask_without_a_terminal():
    def work():
        os.setsid()
        with open(os.devnull, "rb", buffering=0) as stream:
            env = nk.Env(stdin=stream)
            return [env.ask([], "Go on?"), env.ask_secret("key: ")]

    assert in_child(work) == "[None, None]"


@posix
def test_ask_on_a_terminal_that_controls_nobody():
    """Standard input may be a terminal of another session: there is no background to be in, and it can answer."""
    master, slave = pty.openpty()
    os.write(master, b"x")

    def work():
        os.setsid()
        with open(slave, "rb", buffering=0, closefd=False) as stream:
            answer = nk.Env(stdin=stream).ask([], "Go on?")
        try:
            os.open("/dev/tty", os.O_RDWR)
            return "the question made it ours"
        except OSError:
            return answer

    inlet, outlet = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(20)
        run_and_leave(work, outlet)
    os.close(outlet)
    seen = b""
    while b"[y/N] " not in seen:
        seen += os.read(master, 100)
    os.write(master, b"y\n")
    assert finish_child(child, inlet) == "True"
    os.close(master)
    os.close(slave)


def echo_is_on():
    return bool(termios.tcgetattr(0)[3] & termios.ECHO)


@posix
@pytest.mark.parametrize("typed, answer", [(b"hun ter2\n", "'hun ter2' True"), (b"\n", "'' True"), (b"\x04", "None True"), (b"\x03", "'interrupted' True")])
def test_secret_is_not_shown(typed, answer):
    def work(hear):
        try:
            secret = nk.Env().ask_secret("Key: ")
        except KeyboardInterrupt:
            secret = "interrupted"
        return "%r %s" % (secret, echo_is_on())

    session = Session(work)
    session.wait_for(b"Key: ")
    session.type(typed)
    assert session.result() == answer
    assert session.seen.startswith(b"Key: ") and b"hun" not in session.seen and session.seen.endswith(b"\r\n")


@posix
def test_secret_drops_what_was_typed_before():
    def work(hear):
        hear()
        return nk.Env().ask_secret("Key: ")

    session = Session(work)
    session.type(b"early\n")
    session.wait_for(b"early\r\n")
    session.go()
    session.wait_for(b"Key: ")
    session.type(b"late\n")
    assert session.result() == "late"


# -- the descriptors of a process ---------------------------------------------------------------------------------


def script(code, *, redirect="", environ=None, **options):
    """Return (stdout, stderr, exit code) of a Python program; redirect: shell words such as "<&-"."""
    prelude = "import os, sys\nsys.path.insert(0, %r)\nimport knaif as nk\n" % HERE
    clean = {name: text for name, text in os.environ.items() if not name.startswith(("LC_", "LANG", "PYTHON"))}
    clean.update(environ or {})
    options.setdefault("stdin", subprocess.DEVNULL)
    options.setdefault("stdout", subprocess.PIPE)
    options.setdefault("stderr", subprocess.PIPE)
    done = subprocess.run(["/bin/sh", "-c", 'exec "$0" "$@" ' + redirect, sys.executable, "-c", prelude + code], env=clean, timeout=60,
                          **options)
    return done.stdout, done.stderr, done.returncode


NOISE = """
import subprocess
env = nk.Env.own_descriptors()
print("printed")
sys.stdout.write("half a line ")
os.write(1, b"written\\n")
subprocess.run(["/bin/sh", "-c", "cat && echo by a child"])
env.write_out('{"id":1}\\n')
env.write_err("said\\n")
print(file=env.stderr_text())
print(env.read_stdin(0.05), file=sys.stderr)
env.finish()
"""


@posix
def test_io_03_only_the_document_on_stdout():
    out, err, code = script(NOISE, environ={"PYTHONWARNINGS": "default"})
    assert out == b'{"id":1}\n' and code == 0
    assert err == b"printed\nwritten\nby a child\nhalf a line said\n\nNone\n"


@posix
@pytest.mark.parametrize("redirect", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_io_01_closed_descriptors(redirect):
    out, err, code = script(NOISE, redirect=redirect)
    assert code == 0 and b"Traceback" not in err and b"Exception" not in err
    if "<&-" == redirect:
        assert out == b'{"id":1}\n' and b"printed" in err and b"by a child" in err
    if "2>&-" == redirect:
        assert out == b'{"id":1}\n'
    if ">&-" == redirect:
        assert out == b"" and b"by a child" in err


@posix
def test_private_descriptor_is_not_inherited():
    code = """
import subprocess
before = os.listdir("/dev/fd")
env = nk.Env.own_descriptors()
env.write_out(subprocess.run(["/bin/sh", "-c", "ls /dev/fd"], close_fds=False, stdout=subprocess.PIPE).stdout.decode())
"""
    out, err, code = script(code)
    assert (out.split(), err, code) == (b"0 1 2 3".split(), b"", 0)  # 3: the folder that ls reads


@posix
@pytest.mark.parametrize("redirect, number, said", [
    ("<&-", 0, b"lost\nNone"),
    (">&-", 1, b"standard output is closed; run the command with one that is open"),
    ("2>&-", 2, b""),
])
def test_file_that_took_a_closed_descriptor(redirect, number, said, tmp_path):
    """A program that opened a file before main, with a standard stream closed, finds nothing of ours in it."""
    path = str(tmp_path / "data")
    with open(path, "wb") as file:
        file.write(b"0123456789abcdef")
    code = """
number = os.open(%r, os.O_RDWR)
os.write(number, b"before ")
env = nk.Env.own_descriptors()
print("lost")
try:
    env.write_out("document")
    env.write_err(repr(env.read_stdin(0)))
except nk.Error as error:
    env.write_err(error.message)
os.write(number, b"after")
env.finish()
sys.exit(number)
""" % path
    out, err, code = script(code, redirect=redirect)
    assert (out, err, code) == (b"" if number == 1 else b"document", said, number)
    with open(path, "rb") as file:
        assert file.read() == b"before aftercdef"


@posix
def test_stdout_given_back():
    out, err, code = script("""
env = nk.Env.own_descriptors()
print("noise")
env.give_back_stdout()
env.give_back_stdout()
print("one")
env.write_out("two\\n")
os.system("echo three")
print("four")
print("five", file=env.stdout_text())
print("six")
env.finish()
""")
    assert (out, err, code) == (b"one\ntwo\nthree\nfour\nfive\nsix\n", b"noise\n", 0)


FINISH = """
env = nk.Env.own_descriptors()
env.give_back_stdout()
print("x")
try:
    env.finish()
except nk.Error as error:
    env.write_err(error.message)
    sys.exit(nk.exit_code(error.code))
"""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_finish_on_a_full_disk():
    out, err, code = script(FINISH, redirect=">/dev/full")
    assert (err, code) == (b"cannot write standard output (No space left on device); make room or send it elsewhere", 1)


@posix
def test_finish_when_the_reader_went_away():
    inlet, outlet = os.pipe()
    os.close(inlet)
    out, err, code = script(FINISH, stdout=outlet)
    os.close(outlet)
    assert (err, code) == (b"the reader of standard output went away", 141)


@posix
def test_own_descriptors_when_the_reader_went_away():
    """The end is quiet, also for what print() holds and for standard error itself."""
    inlet, outlet = os.pipe()
    os.close(inlet)
    out, err, code = script("""
env = nk.Env.own_descriptors()
try:
    env.write_out("x" * 100000)
except nk.Error as error:
    env.write_err(error.code)
    env.finish()
    sys.exit(nk.exit_code(error.code))
""", stdout=outlet)
    assert (err, code) == (b"READER_GONE", 141)
    out, err, code = script("env = nk.Env.own_descriptors(); sys.stdout.write('x'); env.write_out('doc'); env.finish()", stderr=outlet)
    os.close(outlet)
    assert (out, code) == (b"doc", 0)


@posix
def test_finish_when_closing_fails():
    """Some file systems report a full disk only then."""
    out, err, code = script("""
env = nk.Env.own_descriptors()
os.close(env.stdout.fileno())
try:
    env.finish()
except nk.Error as error:
    env.write_err(error.code + " " + error.message)
""")
    assert err == b"OUTPUT_FAILED cannot write standard output (Bad file descriptor); make room or send it elsewhere"


@posix
def test_descriptor_beyond_select():
    import resource

    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 2000:
        pytest.skip("needs 2,000 descriptors")
    inlet, outlet = os.pipe()
    os.write(outlet, b"abc")
    os.close(outlet)
    os.dup2(inlet, 1990)
    os.close(inlet)
    with open(1990, "rb") as stream:
        assert reading(stream) == b"abc"


@posix
def test_no_descriptor_left():
    out, err, code = script("""
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
try:
    nk.Env.own_descriptors()
except nk.Error as error:
    nk.Env().write_err(error.code + ": " + error.message)
""")
    assert err == b"OUTPUT_FAILED: cannot set up standard output (Too many open files); close other files"


def test_in_process_env_touches_no_descriptor():
    env = nk.Env(stdout=io.BytesIO())
    env.give_back_stdout()
    env.finish()
    assert env.stdout is not None


@posix
def test_importing_and_making_one_is_cheap():
    code = """
import io
before = set(sys.modules)
env = nk.Env()
env.human("caf\\u00e9"), env.is_terminal("stdin"), env.out_ascii
env.write_out("")
print(sorted(set(sys.modules) - before))
"""
    out, err, code = script(code)
    assert (out, code) == (b"[]\n", 0)


# -- regressions --------------------------------------------------------------------------------------------------


def test_closed_stdin_object_and_a_question():
    closed = io.FileIO(os.open(os.devnull, os.O_RDONLY))
    closed.close()
    assert nk.Env(stdin=closed).read_stdin(0) is None
    assert in_child(lambda: os.setsid() or nk.Env(stdin=closed).ask([], "?")) == "None"
