"""FILES: atomic and exclusive writes, private files, bounded reads. Real files, real kill -9, real limits."""
from __future__ import annotations

import errno
import hashlib
import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc

import pytest

import knaif as nk

posix = pytest.mark.skipif(os.name == "nt", reason="POSIX modes and links")
STRANGER = 65534  # nobody


def refusal(call, *args, **options):
    with pytest.raises(nk.Error) as caught:
        call(*args, **options)
    return caught.value.code, caught.value.message


def mode_of(path):
    return stat.S_IMODE(os.lstat(path).st_mode)


@pytest.fixture
def umask():
    """Set the umask for one test."""
    old = os.umask(0o022)
    yield os.umask
    os.umask(old)


@pytest.fixture
def open_folder():
    """A folder that every user may enter, since pytest's own is for its owner alone."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield folder


def as_stranger(work):
    """Run work in a child process without root's rights; its text comes back."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(STRANGER)
                os.setuid(STRANGER)
            text = repr(work())
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(writer, text.encode())
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as answer:
        text = answer.read().decode()
    os.waitpid(child, 0)
    return text


# Writing


def test_write_makes_replaces_and_leaves_nothing_behind(tmp_path):
    path = str(tmp_path / "a.json")
    for data in (b"one", b"", b"x" * 3_000_001):
        nk._files_write(path, data)
        assert open(path, "rb").read() == data
        assert os.listdir(tmp_path) == ["a.json"]


@posix
@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077, 0o777])
@pytest.mark.parametrize("mode", [0o600, 0o644, 0o755, 0o400])
def test_write_mode_is_exact_under_any_umask(tmp_path, umask, mask, mode):
    umask(mask)
    path = str(tmp_path / "a")
    nk._files_write(path, b"x", mode=mode)
    assert mode_of(path) == mode
    nk._files_write(path, b"y", mode=0o640)
    assert mode_of(path) == 0o640


@posix
def test_write_is_private_from_the_first_byte(tmp_path, umask, monkeypatch):
    umask(0)
    seen = []
    change = os.fchmod

    def spy(descriptor, mode):
        state = os.fstat(descriptor)
        seen.append((stat.S_IMODE(state.st_mode), state.st_size))
        change(descriptor, mode)

    monkeypatch.setattr(os, "fchmod", spy)
    nk._files_write(str(tmp_path / "a"), b"x", mode=0o755)
    assert seen == [(0o600, 1)]


@posix
def test_write_replaces_a_link_and_never_what_it_points_to(tmp_path):
    other = tmp_path / "other"
    other.write_bytes(b"keep")
    (tmp_path / "link").symlink_to(other)
    nk._files_write(str(tmp_path / "link"), b"new")
    assert other.read_bytes() == b"keep"
    assert not (tmp_path / "link").is_symlink()
    assert (tmp_path / "link").read_bytes() == b"new"


@posix
def test_write_leaves_a_hard_linked_twin_alone(tmp_path):
    (tmp_path / "a").write_bytes(b"old")
    os.link(tmp_path / "a", tmp_path / "twin")
    nk._files_write(str(tmp_path / "a"), b"new")
    assert (tmp_path / "twin").read_bytes() == b"old"


def test_write_into_no_folder_and_onto_a_folder(tmp_path):
    path = str(tmp_path / "none" / "a")
    assert refusal(nk._files_write, path, b"x") == (
        "OUTPUT_FAILED",
        f"cannot write {nk._json_show(path)} (No such file or directory); choose a place that can be written",
    )
    (tmp_path / "folder").mkdir()
    code, message = refusal(nk._files_write, str(tmp_path / "folder"), b"x")
    assert code == "OUTPUT_FAILED" and "directory" in message
    assert sorted(os.listdir(tmp_path)) == ["folder"]


@pytest.mark.parametrize("name", ["a\0b", "\ud800"])
def test_write_under_an_impossible_name(tmp_path, name):
    code, message = refusal(nk._files_write, os.path.join(str(tmp_path), name), b"x")
    assert code == "OUTPUT_FAILED"
    assert message.isprintable()
    assert os.listdir(tmp_path) == []


def test_write_under_an_impossible_name_says_so():
    assert refusal(nk._files_write, "a\0b", b"x") == (
        "OUTPUT_FAILED",
        'cannot write "a\\u0000b" (no file can have this name); choose a place that can be written',
    )
    assert not [name for name in os.listdir() if name.startswith(".new-")]


def test_write_relative_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    nk._files_write("a", b"x", durable=True)
    nk._files_write("b", b"y", durable=True, exclusive=True)
    assert sorted(os.listdir()) == ["a", "b"]


@posix
def test_write_does_not_replace_devices_and_pipes(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/null")
    for path in (str(tmp_path / "pipe"), str(tmp_path / "link"), "/dev/null"):
        for exclusive in (False, True):
            assert refusal(nk._files_write, path, b"x", exclusive=exclusive) == (
                "OUTPUT_FAILED",
                f"cannot write {nk._json_show(path)} (a device, a pipe or a socket stands there); "
                "choose a place that can be written",
            )
    assert stat.S_ISCHR(os.lstat("/dev/null").st_mode)
    assert sorted(os.listdir(tmp_path)) == ["link", "pipe"]


@posix
def test_write_in_a_folder_that_cannot_be_written(open_folder):
    os.chmod(open_folder, 0o555)
    path = os.path.join(open_folder, "a")
    try:
        text = as_stranger(lambda: nk._files_write(path, b"x"))
    finally:
        os.chmod(open_folder, 0o755)
    assert text == (
        f'Error: cannot write "{path}" (Permission denied); choose a place that can be written'
    )
    assert os.listdir(open_folder) == []


@posix
def test_write_that_outgrows_the_limit_keeps_the_old_file(tmp_path):
    """RLIMIT_FSIZE stands for a full disk: both fail in the middle of a write."""
    resource = pytest.importorskip("resource")
    path = str(tmp_path / "a")
    nk._files_write(path, b"old")

    def work():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
        nk._files_write(path, b"x" * 5000)

    child = os.fork()
    if child == 0:
        try:
            work()
        except nk.Error as error:
            os._exit(40 if error.code == "OUTPUT_FAILED" and error.message.startswith("cannot write") else 41)
        os._exit(42)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 40
    assert open(path, "rb").read() == b"old"
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("step", ["fchmod", "fsync", "replace", "link"])
@pytest.mark.parametrize("fault", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_write_that_fails_at_any_step_leaves_no_staged_file(tmp_path, monkeypatch, step, fault):
    path = str(tmp_path / "a")
    nk._files_write(path, b"old")

    def fail(*args, **options):
        raise fault

    exclusive = step == "link"
    if exclusive:
        os.unlink(path)
        monkeypatch.setattr(os, "replace", fail)
    monkeypatch.setattr(os, step, fail)
    with pytest.raises((nk.Error, KeyboardInterrupt)) as caught:
        nk._files_write(path, b"new", durable=True, exclusive=exclusive)
    monkeypatch.undo()
    if isinstance(fault, OSError):
        assert caught.value.message == (
            f"cannot write {nk._json_show(path)} (No space left on device); choose a place that can be written"
        )
    assert os.listdir(tmp_path) == ([] if exclusive else ["a"])
    if not exclusive:
        assert open(path, "rb").read() == b"old"


def test_write_staging_stands_beside_the_target(tmp_path, monkeypatch):
    """A rename between two file systems fails; ours never crosses a folder (UPD-01's trap)."""
    replace = os.replace

    def within_one_folder(old, new):
        if os.path.dirname(old) != os.path.dirname(new):
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        replace(old, new)

    monkeypatch.setattr(os, "replace", within_one_folder)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "elsewhere"))
    nk._files_write(str(tmp_path / "a"), b"x")
    assert (tmp_path / "a").read_bytes() == b"x"


@posix
def test_write_never_opens_what_stands_at_the_name_of_a_staged_file(tmp_path):
    """A leftover of a killed process, or a link that somebody laid there."""
    (tmp_path / "other").write_bytes(b"keep")
    (tmp_path / f".new-{os.getpid()}-0").symlink_to(tmp_path / "other")
    (tmp_path / f".new-{os.getpid()}-1").write_bytes(b"leftover")
    before = sorted(os.listdir(tmp_path))
    nk._files_write(str(tmp_path / "a"), b"x")
    assert sorted(os.listdir(tmp_path)) == sorted(before + ["a"])
    assert (tmp_path / "other").read_bytes() == b"keep"


def test_write_when_every_name_for_staging_is_taken(tmp_path, monkeypatch):
    monkeypatch.setattr(nk, "FILES_STAGE_NAMES", 3)
    for number in range(3):
        (tmp_path / f".new-{os.getpid()}-{number}").write_bytes(b"")
    path = str(tmp_path / "a")
    assert refusal(nk._files_write, path, b"x") == (
        "OUTPUT_FAILED",
        f"cannot write {nk._json_show(path)} (3 unfinished files .new-* in the folder); "
        "choose a place that can be written",
    )
    assert not os.path.exists(path)


def test_write_by_many_threads_at_once(tmp_path):
    path, texts = str(tmp_path / "a"), [b"%d" % number * 200000 for number in range(8)]
    threads = [threading.Thread(target=nk._files_write, args=(path, text)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert open(path, "rb").read() in texts
    assert os.listdir(tmp_path) == ["a"]


KILLED = """
import os, sys
import knaif as nk
path, step = sys.argv[1], int(sys.argv[2])
left = [step]
def counted(call):
    def stop(*args, **options):
        if left[0] == 0:
            os.kill(os.getpid(), 9)
        left[0] -= 1
        return call(*args, **options)
    return stop
for name in ("open", "fchmod", "fsync", "replace", "link", "unlink"):
    setattr(os, name, counted(getattr(os, name)))
try:
    nk._files_write(path, b"new" * 700000, durable=True, exclusive=len(sys.argv) > 3)
finally:
    os._exit(0)
"""


@posix
@pytest.mark.parametrize("exclusive", [False, True])
def test_write_killed_before_every_step_leaves_old_or_new(tmp_path, exclusive):
    path, new = str(tmp_path / "a"), b"new" * 700000
    home = os.path.dirname(os.path.abspath(nk.__file__))
    code = "import sys; sys.path.insert(0, %r)\n%s" % (home, KILLED)
    ended = []
    for step in range(40):
        for name in os.listdir(tmp_path):
            os.unlink(tmp_path / name)
        if not exclusive:
            nk._files_write(path, b"old")
        words = [sys.executable, "-S", "-E", "-c", code, path, str(step)] + ["exclusive"] * exclusive
        status = subprocess.call(words)
        found = open(path, "rb").read() if os.path.lexists(path) else None
        assert found in ((None, new) if exclusive else (b"old", new))
        ended.append((status, found == new))
        if status == 0:
            break
    assert ended[0] == (-signal.SIGKILL, False)
    assert ended[-1] == (0, True)
    assert (-signal.SIGKILL, True) in ended  # killed between the rename and the end
    assert os.listdir(tmp_path) == ["a"]


# Exclusive writing


def test_exclusive_write_refuses_whatever_is_there(tmp_path):
    path = str(tmp_path / "a")
    nk._files_write(path, b"one", exclusive=True)
    assert refusal(nk._files_write, path, b"two", exclusive=True) == (
        "CONFLICT",
        f"{nk._json_show(path)} exists already; remove it or choose another name",
    )
    assert open(path, "rb").read() == b"one"
    (tmp_path / "folder").mkdir()
    assert refusal(nk._files_write, str(tmp_path / "folder"), b"x", exclusive=True)[0] == "CONFLICT"
    assert sorted(os.listdir(tmp_path)) == ["a", "folder"]
    assert nk.exit_code("CONFLICT") == 5


@posix
def test_exclusive_write_refuses_a_dangling_link(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "target")
    assert refusal(nk._files_write, str(tmp_path / "link"), b"x", exclusive=True)[0] == "CONFLICT"
    assert not (tmp_path / "target").exists()


def test_exclusive_write_without_hard_links(tmp_path, monkeypatch):
    def no_links(*args, **options):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    path = str(tmp_path / "a")
    nk._files_write(path, b"one", exclusive=True)
    assert refusal(nk._files_write, path, b"two", exclusive=True)[0] == "CONFLICT"
    assert open(path, "rb").read() == b"one"
    assert os.listdir(tmp_path) == ["a"]


@posix
def test_exclusive_writers_at_once_have_one_winner(tmp_path):
    path = str(tmp_path / "a")
    children = []
    for number in range(8):
        child = os.fork()
        if child == 0:
            try:
                nk._files_write(path, b"%d" % number * 100000, exclusive=True)
            except nk.Error as error:
                os._exit(1 if error.code == "CONFLICT" else 2)
            os._exit(0)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert sorted(codes) == [0] + [1] * 7
    assert open(path, "rb").read() == b"%d" % codes.index(0) * 100000
    assert os.listdir(tmp_path) == ["a"]


# Reading


def test_read_up_to_the_limit(tmp_path):
    path = str(tmp_path / "a")
    for size in (0, 1, 999, 1000):
        nk._files_write(path, b"x" * size)
        assert nk._files_read(path, 1000) == b"x" * size
        assert nk._files_read(path, 1000, private=True) == b"x" * size
    nk._files_write(path, b"x" * 1001)
    expected = ("BAD_REQUEST", f"{nk._json_show(path)} has more than 1,000 bytes; give a smaller file")
    assert refusal(nk._files_read, path, 1000) == expected
    assert refusal(nk._files_read, path, 1000, private=True) == expected


def test_read_large_file(tmp_path):
    data = os.urandom(3_000_005)
    nk._files_write(str(tmp_path / "a"), data)
    assert nk._files_read(str(tmp_path / "a"), len(data)) == data


def test_read_what_is_not_there_and_what_is_no_file(tmp_path):
    path = str(tmp_path / "a")
    expected = (
        "NOT_FOUND",
        f"cannot read {nk._json_show(path)} (No such file or directory); give the path of a file that exists",
    )
    assert refusal(nk._files_read, path, 10) == expected
    assert refusal(nk._files_read, path, 10, private=True) == expected
    assert refusal(nk._files_read, "a\0", 10) == (
        "BAD_REQUEST",
        'cannot read "a\\u0000" (no file can have this name); give a file that this program may read',
    )


@posix
def test_read_follows_links_and_pipes_but_no_folder(tmp_path):
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / "link").symlink_to("a")
    assert nk._files_read(str(tmp_path / "link"), 10) == b"x"
    reader, writer = os.pipe()
    os.write(writer, b"piped")
    os.close(writer)
    assert nk._files_read(f"/dev/fd/{reader}", 10) == b"piped"
    os.close(reader)
    assert refusal(nk._files_read, "/dev/zero", 10)[0] == "BAD_REQUEST"
    assert refusal(nk._files_read, str(tmp_path), 10) == (
        "BAD_REQUEST",
        f"cannot read {nk._json_show(str(tmp_path))} (Is a directory); give a file that this program may read",
    )


# Private files


@posix
def test_private_directory_is_ours_alone_with_its_parents(tmp_path, umask):
    for number, mask in enumerate((0o000, 0o022, 0o777)):
        umask(mask)
        path = str(tmp_path / f"x{number}" / "y" / "z")
        nk._files_private_directory(path)
        nk._files_private_directory(path + "/")
        assert [mode_of(path), mode_of(os.path.dirname(path))] == [0o700, 0o700]


@posix
def test_private_directory_is_private_from_the_start(tmp_path, umask, monkeypatch):
    umask(0)
    monkeypatch.setattr(os, "chmod", lambda *args: None)
    nk._files_private_directory(str(tmp_path / "a" / "b"))
    assert [mode_of(tmp_path / "a"), mode_of(tmp_path / "a" / "b")] == [0o700, 0o700]


@posix
def test_private_directory_accepts_what_only_others_can_read(tmp_path):
    (tmp_path / "a").mkdir()
    os.chmod(tmp_path / "a", 0o755)
    nk._files_private_directory(str(tmp_path / "a"))
    assert mode_of(tmp_path / "a") == 0o755


@posix
def test_private_directory_refused_with_the_command_that_mends_it(tmp_path):
    path = str(tmp_path / "a b")
    os.mkdir(path)
    os.chmod(path, 0o775)
    assert refusal(nk._files_private_directory, path) == (
        "FORBIDDEN",
        f"folder {nk._json_show(path)} can be written by other users; run chmod go-w '{path}'",
    )
    subprocess.check_call(["sh", "-c", refusal(nk._files_private_directory, path)[1].partition("; run ")[2]])
    nk._files_private_directory(path)
    os.chmod(path, 0o1777)
    assert refusal(nk._files_private_directory, path)[1] == (
        f"folder {nk._json_show(path)} can be written by other users; use a folder of your own for private files"
    )


def test_private_directory_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    assert refusal(nk._files_private_directory, str(tmp_path / "file"))[1] == (
        f"cannot make the folder {nk._json_show(str(tmp_path / 'file'))} (Not a directory); choose another place"
    )
    for path in (str(tmp_path / "file" / "x"), "a\0b", ""):
        code, message = refusal(nk._files_private_directory, path)
        assert code == "OUTPUT_FAILED"
        assert message.startswith(f"cannot make the folder {nk._json_show(path)} (")
        assert message.endswith("); choose another place")


@posix
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601, 0o666, 0o644])
def test_private_file_open_to_others(tmp_path, mode):
    path = str(tmp_path / "a")
    nk._files_write(path, b"secret", mode=mode)
    code, message = refusal(nk._files_read, path, 100, private=True)
    assert (code, message) == (
        "FORBIDDEN",
        f"{nk._json_show(path)} is open to other users (mode {mode:04o}); run chmod 600 {path}",
    )
    subprocess.check_call(["sh", "-c", message.partition("; run ")[2]])
    assert nk._files_read(path, 100, private=True) == b"secret"


@posix
@pytest.mark.parametrize("mode", [0o600, 0o400, 0o700])
def test_private_file_in_order(tmp_path, mode):
    nk._files_write(str(tmp_path / "a"), b"x", mode=mode)
    assert nk._files_read(str(tmp_path / "a"), 100, private=True) == b"x"


@posix
@pytest.mark.parametrize("kind", ["symbolic", "hard"])
def test_private_file_that_is_a_link(tmp_path, kind):
    other, path = str(tmp_path / "other"), str(tmp_path / "it's")
    nk._files_write(other, b"x")
    (os.symlink if kind == "symbolic" else os.link)(other, path)
    word = "'" + path.replace("'", "'\"'\"'") + "'"
    new = word[:-1] + ".new'"
    what = "is a link" if kind == "symbolic" else "has 2 names (hard links)"
    code, message = refusal(nk._files_read, path, 100, private=True)
    assert (code, message) == (
        "FORBIDDEN",
        f"{nk._json_show(path)} {what}; run (umask 077; cp {word} {new} && mv -f {new} {word})",
    )
    subprocess.check_call(["sh", "-c", message.partition("; run ")[2]])
    assert nk._files_read(path, 100, private=True) == b"x"


@posix
def test_private_file_that_is_a_pipe_or_folder_does_not_hang(tmp_path):
    os.mkfifo(tmp_path / "pipe", 0o600)
    (tmp_path / "folder").mkdir(0o700)
    for name in ("pipe", "folder"):
        path = str(tmp_path / name)
        assert refusal(nk._files_read, path, 100, private=True) == (
            "FORBIDDEN",
            f"{nk._json_show(path)} is not a regular file; put a regular file there",
        )


@posix
def test_private_file_in_a_folder_that_others_can_write(tmp_path):
    path = str(tmp_path / "a")
    nk._files_write(path, b"x")
    os.chmod(tmp_path, 0o770)
    assert refusal(nk._files_read, path, 100, private=True) == (
        "FORBIDDEN",
        f"folder {nk._json_show(str(tmp_path))} can be written by other users; run chmod go-w {tmp_path}",
    )


@posix
@pytest.mark.skipif(os.name != "nt" and os.geteuid() != 0, reason="needs root to give files away")
def test_private_file_of_another_user(tmp_path):
    path = str(tmp_path / "a")
    nk._files_write(path, b"x")
    os.chown(path, STRANGER, STRANGER)
    assert refusal(nk._files_read, path, 100, private=True) == (
        "FORBIDDEN",
        f"{nk._json_show(path)} belongs to another user; look at it, then run sudo chown 0 {path}",
    )
    os.chown(path, 0, 0)
    os.chown(tmp_path, STRANGER, STRANGER)
    expected = (
        "FORBIDDEN",
        f"folder {nk._json_show(str(tmp_path))} belongs to another user; use a folder of your own",
    )
    assert refusal(nk._files_read, path, 100, private=True) == expected
    assert refusal(nk._files_private_directory, str(tmp_path)) == expected


@posix
def test_private_file_swapped_for_a_link_after_the_look(tmp_path, monkeypatch):
    """The look at the name may be stale; the opening itself follows no link."""
    nk._files_write(str(tmp_path / "secret"), b"x")
    nk._files_write(str(tmp_path / "a"), b"y")
    look = os.stat

    def stale(name, **options):
        answer = look(name, **options)
        if name == "a":
            os.unlink(tmp_path / "a")
            os.symlink("secret", tmp_path / "a")
        return answer

    monkeypatch.setattr(os, "stat", stale)
    assert refusal(nk._files_read, str(tmp_path / "a"), 100, private=True)[0] == "BAD_REQUEST"


def test_shell_words():
    for path, word in [
        ("/a/b.json", "/a/b.json"), ("-rf", "./-rf"), ("a b", "'a b'"), ("a$(x)", "'a$(x)'"),
        ("a\x1b[2J\nb", '"a\\u001b[2J\\nb"'), ("a\udcff", '"a\\udcff"'),
    ]:
        assert nk._files_shell(path) == word


def test_no_message_shows_content(tmp_path):
    nk._files_write(str(tmp_path / "a"), b"hunter2", mode=0o644)
    for private in (True, False):
        try:
            nk._files_read(str(tmp_path / "a"), 3, private=private)
        except nk.Error as error:
            assert "hunter2" not in repr(error.to_wire())
        else:
            pytest.fail("not refused")


# Locks


@pytest.fixture
def lock_path(tmp_path):
    return str(tmp_path / "x.lock")


def spoken_since(path):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(os.stat(path).st_mtime))


def forked(work):
    """Run work in a child and go on once it has said so; the child then waits to be killed."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            work()
            os.write(writer, b"x")
            time.sleep(60)
        finally:
            os._exit(1)
    os.close(writer)
    said = os.read(reader, 1)
    os.close(reader)
    assert said == b"x"
    return child


def kill(child):
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


@posix
def test_lock_is_private_names_its_holder_and_stays(lock_path, umask):
    for mask in (0o000, 0o077, 0o777):
        umask(mask)
        lock = nk._FilesLock(lock_path)
        lock.take()
        holder = f"process {os.getpid()} on {os.uname().nodename}"
        assert open(lock_path).read() == holder
        holder += " since " + spoken_since(lock_path)
        assert nk._files_lock_holder(lock_path) == holder
        expected = ("LOCKED", f"{nk._json_show(lock_path)} is locked by {holder}; wait until it has ended")
        assert refusal(nk._FilesLock(lock_path).take) == expected
        assert refusal(lock.take) == expected
        lock.free()
        lock.free()
        assert mode_of(lock_path) == 0o600
        assert open(lock_path).read() == ""
        assert nk._files_lock_holder(lock_path) is None
        os.unlink(lock_path)
    assert nk.exit_code("LOCKED") == 1


def test_lock_as_a_context(lock_path):
    with nk._FilesLock(lock_path) as lock:
        assert isinstance(lock, nk._FilesLock)
        assert refusal(nk._FilesLock(lock_path).take)[0] == "LOCKED"
    with pytest.raises(ZeroDivisionError):
        with nk._FilesLock(lock_path):
            1 / 0
    with nk._FilesLock(lock_path):
        pass


@posix
def test_lock_of_another_process_and_of_a_killed_one(lock_path):
    child = forked(nk._FilesLock(lock_path).take)
    try:
        assert refusal(nk._FilesLock(lock_path).take)[1].startswith(
            f"{nk._json_show(lock_path)} is locked by process {child} on "
        )
    finally:
        kill(child)
    assert nk._files_lock_holder(lock_path) is None  # whatever the file says
    assert f"process {child} " in open(lock_path).read()
    with nk._FilesLock(lock_path):
        assert f"process {os.getpid()} " in nk._files_lock_holder(lock_path)


@posix
def test_lock_and_forked_children(lock_path):
    """A child has the same open file: it must neither free the lock nor keep it."""
    lock = nk._FilesLock(lock_path)
    lock.take()
    child = forked(lock.free)
    try:
        assert refusal(nk._FilesLock(lock_path).take)[0] == "LOCKED"
    finally:
        kill(child)
    assert refusal(nk._FilesLock(lock_path).take)[0] == "LOCKED"
    child = forked(lambda: None)
    try:
        lock.free()
        with nk._FilesLock(lock_path):
            pass
    finally:
        kill(child)


def test_lock_is_waited_for(lock_path):
    holder, lock, slept, now = nk._FilesLock(lock_path), nk._FilesLock(lock_path), [], [100.0]

    def sleep(seconds):
        slept.append(seconds)
        now[0] += seconds
        if len(slept) == 3:
            holder.free()

    holder.take()
    lock.take(wait_seconds=1.0, clock=lambda: now[0], sleep=sleep)
    assert slept == [nk.FILES_LOCK_PAUSE_SECONDS] * 3
    late = nk._FilesLock(lock_path)
    for seconds, pauses in ((0.55, 6), (0.0, 0), (-1.0, 0), (float("nan"), 0)):
        slept[:] = [None] * 10
        assert refusal(late.take, wait_seconds=seconds, clock=lambda: now[0], sleep=sleep)[0] == "LOCKED"
        assert len(slept) == 10 + pauses
    lock.free()
    late.take()
    late.free()


def test_lock_on_a_file_that_was_replaced_meanwhile(lock_path, monkeypatch):
    flock, left = nk._files_flock, [1]

    def slow(descriptor, kind):
        if kind == "LOCK_EX" and left[0]:
            left[0] -= 1
            os.unlink(lock_path)
            if left[0] != 2:
                open(lock_path, "x").close()
                os.chmod(lock_path, 0o600)
        return flock(descriptor, kind)

    monkeypatch.setattr(nk, "_files_flock", slow)
    for times in (1, 3):  # 3: the first time there is no file at all
        left[0] = times
        lock = nk._FilesLock(lock_path)
        if times == 1:
            lock.take()
        else:
            assert refusal(lock.take) == (
                "LOCKED", f"{nk._json_show(lock_path)} is locked by another process; wait until it has ended"
            )
            lock.take(wait_seconds=1, clock=lambda: 0.0, sleep=lambda seconds: None)
        assert os.path.samestat(os.fstat(lock._held.number()), os.stat(lock_path))
        lock.free()


def test_lock_taken_while_somebody_looks(lock_path, monkeypatch):
    flock, busy = nk._files_flock, [True]
    monkeypatch.setattr(
        nk, "_files_flock", lambda descriptor, kind: not busy.pop() if busy else flock(descriptor, kind)
    )
    with nk._FilesLock(lock_path):
        assert not busy


def test_looking_at_a_lock_changes_nothing(lock_path, tmp_path):
    assert nk._files_lock_holder(lock_path) is None
    assert nk._files_lock_holder("a\0") is None
    assert nk._files_lock_holder(str(tmp_path)) is None
    assert os.listdir(tmp_path) == []
    nk._files_write(lock_path, b"left by a process that was killed")
    os.utime(lock_path, (1, 1))
    assert nk._files_lock_holder(lock_path) is None
    assert open(lock_path).read() == "left by a process that was killed"
    assert os.stat(lock_path).st_mtime == 1


@pytest.mark.parametrize(
    "text",
    [
        b"", b"\0" * 1000, b"\xff\xfe", b"nobody; run rm -rf ~", b"process 1\x1b[2J", b"process 1\nLOCKED",
        b"process \xe2\x80\xae1", b"process 1" + b"\xc3\xa9" * 200, b"process 1\xc2\x9b",
    ],
)
def test_lock_with_a_text_of_somebody_else(lock_path, text):
    lock = nk._FilesLock(lock_path)
    lock.take()
    with open(lock_path, "wb") as file:
        file.write(text)
    assert refusal(nk._FilesLock(lock_path).take) == (
        "LOCKED", f"{nk._json_show(lock_path)} is locked by another process; wait until it has ended"
    )
    lock.free()


@posix
def test_lock_with_an_impossible_time(lock_path, monkeypatch):
    lock = nk._FilesLock(lock_path)
    lock.take()
    for fault in (OverflowError("too large"), ValueError("out of range"), OSError(errno.EOVERFLOW, "too large")):
        monkeypatch.setattr(time, "gmtime", lambda seconds: (_ for _ in ()).throw(fault))
        assert nk._files_lock_holder(lock_path) == "another process"
    lock.free()


@posix
@pytest.mark.parametrize("make", [nk._FilesLock, lambda path: None], ids=["lock", "journal"])
def test_lock_and_journal_are_private_files(tmp_path, make, umask):
    """The same refusals, before anything is written; the folder may belong to everybody."""
    umask(0)
    lock = make(str(tmp_path / "x")) is not None

    def use(path):
        return refusal(nk._FilesLock(path).take if lock else nk._FilesJournal(path).open)

    os.chmod(tmp_path, 0o777)
    path, other = str(tmp_path / "x"), str(tmp_path / "other")
    text = b"process 1" if lock else b'{"seq":0'
    nk._files_write(other, text)
    mend = f"run (umask 077; cp {path} {path}.new && mv -f {path}.new {path})"
    for target in (other, str(tmp_path / "none"), str(tmp_path), "x"):
        os.symlink(target, path)
        words = f"a link; {mend}" if target == other else "a link to no regular file; put a regular file there"
        assert use(path) == ("FORBIDDEN", f"{nk._json_show(path)} is {words}")
        os.unlink(path)
    os.link(other, path)
    assert use(path) == ("FORBIDDEN", f"{nk._json_show(path)} has 2 names (hard links); {mend}")
    os.unlink(path)
    for make_special in (os.mkfifo, os.mkdir):
        make_special(path)
        assert use(path) == ("FORBIDDEN", f"{nk._json_show(path)} is not a regular file; put a regular file there")
        (os.rmdir if make_special is os.mkdir else os.unlink)(path)
    nk._files_write(path, text, mode=0o644)
    assert use(path) == (
        "FORBIDDEN", f"{nk._json_show(path)} is open to other users (mode 0644); run chmod 600 {path}"
    )
    if os.geteuid() == 0:
        os.chown(path, STRANGER, STRANGER)
        assert use(path) == (
            "FORBIDDEN",
            f"{nk._json_show(path)} belongs to another user; look at it, then run sudo chown 0 {path}",
        )
    assert open(other, "rb").read() == text
    assert open(path, "rb").read() == text
    assert sorted(os.listdir(tmp_path)) == ["other", "x"]


@posix
def test_lock_and_journal_swapped_for_a_link_after_the_look(tmp_path, monkeypatch):
    nk._files_write(str(tmp_path / "secret"), b"x")
    path, look = str(tmp_path / "a"), os.lstat

    def stale(name):
        if os.path.exists(path):
            os.unlink(path)
        nk._files_write(path, b"")
        answer = look(name)
        os.unlink(path)
        os.symlink("secret", path)
        return answer

    monkeypatch.setattr(os, "lstat", stale)
    assert refusal(nk._FilesLock(path).take)[0] == "OUTPUT_FAILED"
    assert refusal(nk._FilesJournal(path).open)[0] == "OUTPUT_FAILED"
    assert (tmp_path / "secret").read_bytes() == b"x"


@posix
def test_lock_where_nothing_can_be_written(open_folder):
    path = os.path.join(open_folder, "x.lock")
    remedy = "choose a place that can be written"
    for folder in (os.path.join(open_folder, "none"), "/dev/null"):
        for name in ("x", "x.lock", ".lock"):
            inside = os.path.join(folder, name)
            assert refusal(nk._FilesLock(inside).take) == (
                "OUTPUT_FAILED",
                f'cannot lock "{inside}", for there is no folder "{folder}"; make it, or choose another place',
            )
    assert refusal(nk._FilesLock("a\0b").take) == (
        "OUTPUT_FAILED", f'cannot lock "a\\u0000b" (no file can have this name); {remedy}'
    )
    os.chmod(open_folder, 0o555)
    text = as_stranger(nk._FilesLock(path).take)
    os.chmod(open_folder, 0o755)
    assert text == f'Error: cannot lock "{path}" (Permission denied); {remedy}'
    assert os.listdir(open_folder) == []


@posix
def test_lock_where_nothing_can_be_locked(lock_path, monkeypatch):
    import fcntl

    def fail(*args):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", fail)
    assert refusal(nk._FilesLock(lock_path).take) == (
        "OUTPUT_FAILED",
        f"cannot lock {nk._json_show(lock_path)} (No locks available); choose a place that can be written",
    )
    assert nk._files_lock_holder(lock_path) == "another process"  # who knows


def test_lock_on_a_full_disk_holds_without_words(lock_path, monkeypatch):
    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    lock = nk._FilesLock(lock_path)
    monkeypatch.setattr(os, "write", full)
    lock.take()
    monkeypatch.undo()
    assert refusal(nk._FilesLock(lock_path).take)[1].endswith(" is locked by another process; wait until it has ended")
    lock.free()


class FakeMsvcrt:
    """Locks single bytes, as msvcrt.locking does at the place where the file is; open files are told apart."""

    LK_UNLCK, LK_NBLCK = 0, 2

    def __init__(self):
        self.held = {}

    def locking(self, descriptor, mode, count):
        place = (os.fstat(descriptor).st_ino, os.lseek(descriptor, 0, os.SEEK_CUR), count)
        if mode == self.LK_UNLCK:
            if self.held.pop(place, None) != descriptor:
                raise PermissionError(errno.EACCES, "Permission denied")
        elif self.held.setdefault(place, descriptor) != descriptor:
            raise PermissionError(errno.EACCES, "Permission denied")


def test_lock_on_windows(lock_path, monkeypatch):
    windows = FakeMsvcrt()
    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", windows)
    lock = nk._FilesLock(lock_path)
    lock.take()
    assert [place[1:] for place in windows.held] == [(nk.FILES_LOCK_OFFSET, 1)]
    assert 4096 < nk.FILES_LOCK_OFFSET < 2**31
    assert nk._files_lock_holder(lock_path).startswith(f"process {os.getpid()}")
    assert refusal(nk._FilesLock(lock_path).take)[0] == "LOCKED"
    assert os.stat(lock_path).st_size < 200
    lock.free()
    assert windows.held == {}
    with nk._FilesLock(lock_path):
        pass


@pytest.mark.parametrize(
    "text",
    [b"mine\n", b"process the bills", b"process", b"process 1" + b"x" * 200, b"1234\n", b"\0process 1", b"\0" * 201 + b"x"],
)
@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_lock_never_takes_the_place_of_another_file(lock_path, text, mode):
    nk._files_write(lock_path, text, mode=mode)
    assert refusal(nk._FilesLock(lock_path).take) == (
        "CONFLICT",
        f"{nk._json_show(lock_path)} is no lock, for it has another content; move it away, or choose another name for "
        "the file to be locked",
    )
    assert open(lock_path, "rb").read() == text
    assert mode_of(lock_path) == mode


def test_lock_leaves_alone_what_somebody_wrote_into_it(lock_path):
    lock = nk._FilesLock(lock_path)
    lock.take()
    with open(lock_path, "wb") as file:
        file.write(b"mine")
    lock.free()
    assert open(lock_path, "rb").read() == b"mine"
    assert nk._files_lock_holder(lock_path) is None
    for text in (b"", b"\0" * 30, b"process 1", b"process 12 on x"):
        nk._files_write(lock_path, text)
        with nk._FilesLock(lock_path):
            pass


@posix
def test_device_is_not_read_to_see_what_it_is():
    for use in (nk._FilesLock("/dev/urandom").take, nk._FilesJournal("/dev/urandom").open):
        assert refusal(use) == (
            "FORBIDDEN", '"/dev/urandom" is not a regular file; put a regular file there'
        )


@posix
def test_lock_is_not_made_beside_what_is_no_regular_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkdir("folder")
    os.mkfifo("pipe")
    os.symlink("none", "dangling")
    os.symlink("pipe", "link")
    for name in ("folder", "pipe", "/dev/null", "folder/.", "dangling", "link"):
        assert refusal(nk._FilesLock(name + ".lock").take) == (
            "FORBIDDEN", f'"{name}" is not a regular file; use the path of one, or of nothing'
        )
    assert sorted(os.listdir()) == ["dangling", "folder", "link", "pipe"]
    assert os.listdir("folder") == [] and not os.path.exists("/dev/null.lock")
    with nk._FilesLock("folder/.lock"):  # the lock of a folder
        pass


# Open files that others must not have


def in_turn(work, functions, opcode):
    """Run work, interrupted before the numbered bytecode of these functions; tell whether it was."""
    codes = {function.__code__ for function in functions}
    left = [opcode]

    def trace(frame, event, argument):
        if frame.f_code not in codes:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt
        return trace

    old = sys.gettrace()
    sys._getframe().f_trace_opcodes = True  # 3.12 counts none where no frame wants them when tracing begins
    sys.settrace(trace)
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(old)
    return False


def test_journal_interrupted_before_any_step_is_sound(tmp_path, memory_only):
    """Whatever was added goes on to be written in order, and nothing else is lost."""
    path = str(tmp_path / "j")
    whole = b"".join(journal_at(path))
    Journal = nk._FilesJournal
    functions = [Journal.add, Journal.flush, Journal._write, Journal._check_path, nk._files_make_record,
                 nk._FilesOpen.number]
    for data in (whole, whole[:-1], whole + b"torn"):
        opcode, is_on = 0, True
        while is_on:
            opcode += 1
            nk._files_write(path, data)
            journal = Journal(path)
            journal.open()
            for _ in journal.records():
                pass

            added = []

            def work():
                for number in (1, 2, 3):
                    journal.add({"n": number})
                    added.append(number)
                    if number > 1:
                        journal.flush()

            is_on = in_turn(work, functions, opcode)
            offset = journal.add({"n": 4})
            journal.flush()
            assert journal.read_at(offset)["n"] == 4
            journal.close()
            records, torn = contents(path)
            numbers = [record["n"] for record in records[len(SAMPLE):]]
            assert numbers in ([4], [1, 4], [1, 2, 4], [1, 2, 3, 4]) and torn == 0
            assert set(added) <= set(numbers)
        assert opcode > 200 and numbers == [1, 2, 3, 4]


def test_lock_interrupted_before_any_step_can_be_freed(lock_path):
    Lock, Open = nk._FilesLock, nk._FilesOpen
    opcode, is_on = 0, True
    while is_on:
        opcode += 1
        lock = Lock(lock_path)

        def work():
            lock.take()
            lock.free()

        is_on = in_turn(work, [Lock.take, Lock._try, Lock._name_holder, Lock.free, Open.close, Open.number], opcode)
        lock.free()
        with Lock(lock_path):
            pass
    assert opcode > 100


ORPHAN = """
import multiprocessing, os, sys, time
sys.path.insert(0, sys.argv[1])
import knaif as nk
lock, journal = nk._FilesLock(sys.argv[2] + ".lock"), nk._FilesJournal(sys.argv[2])
lock.take()
journal.create({})
journal.add({"n": 1})

def work(number):
    try:
        journal.flush()
    except nk.Error as error:
        print(os.getpid(), error.code, flush=True)
    journal.close()
    lock.free()
    time.sleep(60)

if sys.argv[3] == "pool":
    multiprocessing.get_context("fork").Pool(1).map(work, [1])
elif os.fork() == 0:
    work(1)
time.sleep(60)
"""


@posix
@pytest.mark.parametrize("kind", ["pool", "fork"])
def test_forked_child_that_outlives_a_killed_process_keeps_no_lock(tmp_path, kind):
    path, home = str(tmp_path / "j"), os.path.dirname(nk.__file__)
    process = subprocess.Popen([sys.executable, "-c", ORPHAN, home, path, kind], stdout=subprocess.PIPE)
    child = 0
    try:
        words = process.stdout.readline().split()
        child = int(words[0])
        assert words[1] == b"OUTPUT_FAILED"  # a child has no business in the journal
        journal = nk._FilesJournal(path)
        assert refusal(nk._FilesLock(path + ".lock").take)[0] == "LOCKED"  # nor has it freed anything
        assert refusal(journal.open)[0] == "LOCKED"
        process.kill()
        process.wait()
        os.kill(child, 0)  # it lives
        with nk._FilesLock(path + ".lock"):
            journal.open()
            journal.close()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        if child:
            os.kill(child, signal.SIGKILL)


@posix
def test_children_are_told_once_for_all_locks(lock_path, monkeypatch):
    told, kept = [], len(nk._FilesOpen._all)
    monkeypatch.setattr(nk._FilesOpen, "_is_watching", False)
    monkeypatch.setattr(os, "register_at_fork", lambda **hooks: told.append(hooks))
    for _ in range(100):
        with nk._FilesLock(lock_path):
            assert len(nk._FilesOpen._all) == kept + 1
    assert len(nk._FilesOpen._all) == kept
    assert told == [{"after_in_child": nk._FilesOpen._close_all}]


@posix
def test_file_of_somebody_else_under_our_number_is_left_alone(tmp_path, lock_path):
    """As in a handler that closes all descriptors, then opens files of its own."""
    path = str(tmp_path / "j")
    journal_at(path, [])
    lock, journal = nk._FilesLock(lock_path), nk._FilesJournal(path)
    lock.take()
    journal.open()
    offset = journal.add({"n": 1})
    journal.flush()
    journal.add({"n": 2})
    data, text = open(path, "rb").read(), open(lock_path, "rb").read()
    others = []
    for opened in (lock._held, journal._file):
        other = os.open(str(tmp_path / "other"), os.O_RDWR | os.O_CREAT)
        number = opened.number()
        os.dup2(other, number)
        os.close(other)
        others.append(number)
    os.write(others[1], b"process 1")
    assert refusal(journal.flush) == (
        "OUTPUT_FAILED",
        f"cannot write {nk._json_show(path)} (the program has closed this file); "
        "remove the cause, then go on with the same journal",
    )
    assert refusal(journal.read_at, offset) == (
        "BAD_REQUEST",
        f"cannot read {nk._json_show(path)} (the program has closed this file); "
        "give a journal that this program may read",
    )
    journal.close()
    lock.free()
    for number in others:
        assert os.fstat(number).st_size == 9
        assert os.lseek(number, 0, os.SEEK_CUR) == (9 if number == others[1] else 0)
        os.close(number)
    assert (open(path, "rb").read(), open(lock_path, "rb").read()) == (data, text)


# Journals

SALT = "5a17"
SAMPLE = [
    {"event": "begin", "id": "a", "n": 0},
    {"event": "end", "id": "a", "answer": {"ok": True, "data": [1, 2.5, None, "\u00e9\u2028\ud800"]}},
    {},
    {"event": "end", "file": {"name": "b", "sha256": "00", "more": ',"sha256":"'}, "text": "\n\r\0 }\"\\"},
    {"event": "begin", "id": "last one"},
]


@pytest.fixture
def memory_only(monkeypatch):
    """Thousands of files that need not outlive the test are not waited for."""
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda descriptor: None, raising=False)


def journal_at(path, records=SAMPLE, salt=SALT):
    """A journal with these records, closed; the lines of its file."""
    journal = nk._FilesJournal(str(path))
    journal.create({"app": "x", "salt": salt})
    for record in records:
        journal.add(record)
    journal.flush()
    journal.close()
    return open(path, "rb").read().splitlines(keepends=True)


def numbered(records):
    return [{"seq": number, **record} for number, record in enumerate(records, 1)]


def contents(path, writable=True):
    """The records of a journal after record 0, and how many bytes at its end are torn."""
    journal = nk._FilesJournal(str(path))
    try:
        assert journal.open(writable)["seq"] == 0
        return [record for _, record in journal.records()], journal.torn
    finally:
        journal.close()


def damage(path, record, sound):
    path = str(path)
    remedy = f"run (umask 077; head -c {sound} {path} > {path}.new && mv -f {path}.new {path}) to have what follows"
    remedy = remedy if sound else "remove it to have what it holds"
    return "JOURNAL_DAMAGED", (
        f"journal {nk._json_show(path)} is damaged in {record} (sound up to byte {sound}); "
        f"restore it from a copy, or {remedy} forgotten, and done again by whoever works by it"
    )


def no_journal(path):
    return "JOURNAL_DAMAGED", (
        f'{nk._json_show(str(path))} is no journal, for it does not begin with {{"seq":0; '
        "choose the path of a journal, or of no file"
    )


def starts(lines):
    """The offset of each line."""
    return [len(b"".join(lines[:number])) for number in range(len(lines))]


def test_journal_gives_back_what_was_added(tmp_path):
    path = str(tmp_path / "j")
    journal = nk._FilesJournal(path)
    journal.create({"app": "x", "salt": SALT})
    assert list(journal.records()) == []
    offsets = [journal.add(record) for record in SAMPLE[:2]]
    assert list(journal.records()) == []  # only queued
    journal.flush()
    for record in SAMPLE[2:]:
        offsets.append(journal.add(record))
        journal.flush()
    journal.flush()
    expected = list(zip(offsets, numbered(SAMPLE)))
    assert list(journal.records()) == expected
    journal.close()
    journal.close()
    journal = nk._FilesJournal(path)
    assert journal.open() == {"seq": 0, "app": "x", "salt": SALT}
    assert list(journal.records()) == expected
    assert [journal.read_at(offset) for offset in offsets] == numbered(SAMPLE)
    assert journal.read_at(0)["app"] == "x"
    assert journal.torn == 0
    assert mode_of(path) == 0o600
    assert os.listdir(tmp_path) == ["j"]
    journal.close()


def test_journal_is_written_as_described(tmp_path):
    before = ""
    for number, line in enumerate(journal_at(tmp_path / "j")):
        body, seal = line[:-78], line[-78:]
        digest = hashlib.sha256(before.encode() + body).hexdigest()
        assert seal == b',"sha256":"%s"}\n' % digest.encode()
        assert json.loads(line)["seq"] == number and body.startswith(b'{"seq":%d' % number)
        before = digest


def test_journal_flush_is_one_write_and_one_sync(tmp_path, monkeypatch):
    calls = []
    journal = nk._FilesJournal(str(tmp_path / "j"))
    journal.create({})
    journal.add(SAMPLE[0])
    for name in ("write", "fdatasync", "fsync", "ftruncate"):
        real = getattr(os, name, None)
        if real is not None:
            monkeypatch.setattr(os, name, lambda *args, name=name, real=real: calls.append(name) or real(*args))
    journal.add(SAMPLE[1])
    journal.flush()
    journal.flush()
    assert calls == ["write", "fdatasync" if hasattr(os, "fdatasync") else "fsync"]
    journal.close()


def test_journal_that_was_opened_is_on_the_disk(tmp_path, monkeypatch):
    """A killed writer leaves what only the memory holds, and what is read decides what is not done again."""
    synced = []
    data = b"".join(journal_at(tmp_path / "j"))
    monkeypatch.setattr(nk, "_files_sync", lambda descriptor: synced.append(os.fstat(descriptor).st_size))
    journal = nk._FilesJournal(str(tmp_path / "j"))
    journal.open()
    journal.close()
    assert synced == [len(data)]
    nk._files_write(str(tmp_path / "j"), data[:50])
    assert refusal(journal.open)[0] == "JOURNAL_DAMAGED"
    with pytest.raises(OSError):
        journal._file.number()


def test_journal_used_for_another_turn_remembers_nothing(tmp_path):
    path = str(tmp_path / "j")
    data = b"".join(journal_at(path))
    journal = nk._FilesJournal(path)
    nk._files_write(path, data[:-1] + b"\0")
    journal.open()
    journal.add({"n": 1})
    assert journal.torn == 1
    nk._files_write(path, data)
    journal.open()
    assert journal.torn == 0
    journal.flush()
    journal.add({"n": 2})
    journal.flush()
    journal.close()
    assert contents(path) == (numbered(SAMPLE + [{"n": 2}]), 0)


def test_sync_reaches_the_disk_on_macos(tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")
    asked = []
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", lambda *words: asked.append(words[1]))
    monkeypatch.delattr(os, "fdatasync", raising=False)
    monkeypatch.setattr(os, "fsync", lambda descriptor: asked.append("fsync"))
    nk._files_sync(0)
    assert asked == [51]

    def unknown(*words):
        raise OSError(errno.ENOTSUP, "not supported")

    monkeypatch.setattr(fcntl, "fcntl", unknown)
    nk._files_sync(0)
    assert asked == [51, "fsync"]


def test_journal_of_large_and_many_records(tmp_path):
    path = str(tmp_path / "j")
    records = [{"text": "x" * size} for size in (300_000, 1, 262_144, 1_000_000)] + [{"n": n} for n in range(5000)]
    journal_at(path, records)
    assert contents(path) == (numbered(records), 0)
    journal = nk._FilesJournal(path)
    journal.open()
    offsets = [offset for offset, _ in journal.records()]
    assert journal.read_at(offsets[3]) == {"seq": 4, "text": "x" * 1_000_000}
    journal.close()


def test_journal_is_read_in_bounded_memory(tmp_path):
    journal_at(tmp_path / "j", [{"text": "x" * 1000}] * 5000)
    journal = nk._FilesJournal(str(tmp_path / "j"))
    tracemalloc.start()
    try:
        journal.open()
        assert sum(1 for _ in journal.records()) == 5000
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    journal.close()
    assert peak < 1_500_000 < os.stat(tmp_path / "j").st_size


def test_journal_that_exists_and_one_that_does_not(tmp_path):
    path = str(tmp_path / "j")
    assert refusal(nk._FilesJournal(path).open) == (
        "NOT_FOUND",
        f"cannot open {nk._json_show(path)} (No such file or directory); give the path of a journal that exists",
    )
    journal_at(path)
    journal = nk._FilesJournal(path)
    assert refusal(journal.create, {}) == (
        "CONFLICT", f"{nk._json_show(path)} exists already; remove it or choose another name"
    )
    assert contents(path) == (numbered(SAMPLE), 0)
    journal.open()  # the failure before left nothing behind
    journal.add({"n": 1})
    journal.flush()
    journal.close()
    assert contents(path) == (numbered(SAMPLE + [{"n": 1}]), 0)
    assert refusal(nk._FilesJournal("a\0").open) == (
        "OUTPUT_FAILED",
        'cannot open "a\\u0000" (no file can have this name); give a journal that this program may write',
    )


@posix
def test_journal_that_cannot_be_written(open_folder):
    path = os.path.join(open_folder, "j")
    os.chmod(open_folder, 0o555)
    assert as_stranger(lambda: nk._FilesJournal(path).create({})) == (
        f'Error: cannot write "{path}" (Permission denied); choose a place that can be written'
    )
    os.chmod(open_folder, 0o777)
    assert as_stranger(lambda: (nk._FilesJournal(path).create({}), os.chmod(path, 0o400))) == "(None, None)"
    assert as_stranger(lambda: nk._FilesJournal(path).open()) == (
        f'Error: cannot open "{path}" (Permission denied); give a journal that this program may write'
    )
    assert os.listdir(open_folder) == ["j"]


def test_journal_cut_at_every_byte(tmp_path, memory_only):
    """Recovered to exactly the records that were whole; the next record goes right behind them."""
    lines = journal_at(tmp_path / "whole")
    data, begins = b"".join(lines), starts(lines)
    path = str(tmp_path / "j")
    for cut in range(len(data) + 1):
        nk._files_write(path, data[:cut])
        whole = sum(cut >= begin + len(line) - 1 for begin, line in zip(begins, lines))  # without its line end, too
        if whole == 0:
            assert refusal(nk._FilesJournal(path).open) == damage(path, "record 0", 0)
            assert open(path, "rb").read() == data[:cut]
            continue
        end = len(b"".join(lines[:whole]))
        journal = nk._FilesJournal(path)
        journal.open()
        assert [record for _, record in journal.records()] == numbered(SAMPLE[: whole - 1])
        assert journal.torn == max(cut - end, 0)
        assert open(path, "rb").read() == data[:cut]
        assert journal.add({"new": cut}) == end
        journal.flush()
        assert journal.torn == 0
        assert journal.read_at(end) == {"seq": whole, "new": cut}
        journal.close()
        assert open(path, "rb").read().startswith(data[:end])
        assert contents(path) == (numbered(SAMPLE[: whole - 1] + [{"new": cut}]), 0)


@pytest.mark.parametrize("change", ["xor 255", "xor 1", "NUL", "newline"])
def test_journal_with_any_byte_changed(tmp_path, change, memory_only):
    """Refused with the number of the record, the file untouched; only a line end may be gone at the very end."""
    lines = journal_at(tmp_path / "whole")
    data, begins = b"".join(lines), starts(lines)
    path = str(tmp_path / "j")
    for at in range(len(data)):
        new = {"xor 255": data[at] ^ 255, "xor 1": data[at] ^ 1, "NUL": 0, "newline": 10}[change]
        changed = data[:at] + bytes((new,)) + data[at + 1 :]
        if changed == data:
            continue
        nk._files_write(path, changed)
        if at == len(data) - 1 and new == 0:
            assert contents(path) == (numbered(SAMPLE), 1)  # a line end that did not reach the disk
            continue
        record = max(number for number, begin in enumerate(begins) if begin <= at)
        sound = begins[record]
        if data[at] == 10:
            sound, record = at, record + 1  # the record before it is still whole
        expected = damage(path, f"record {record}", sound) if at >= len(b'{"seq":0') else no_journal(path)
        assert refusal(contents, path) == expected
        assert open(path, "rb").read() == changed


def test_journal_mended_as_the_message_says(tmp_path):
    path = str(tmp_path / "it's a j")
    lines = journal_at(path)
    nk._files_write(path, b"".join(lines).replace(b"event", b"EVENT"))
    command = refusal(contents, path)[1].partition(", or run ")[2].partition(" to have what follows")[0]
    subprocess.check_call(["sh", "-c", command])
    assert contents(path) == ([], 0)
    assert mode_of(path) == 0o600


@pytest.mark.parametrize(
    "name, order, record",
    [
        ("swapped", [0, 2, 1, 3, 4, 5], 1), ("first dropped", [1, 2, 3], 0), ("dropped", [0, 1, 3, 4, 5], 2),
        ("doubled", [0, 1, 1, 2], 2), ("last doubled", [0, 1, 2, 3, 4, 5, 5], 6), ("record 0 doubled", [0, 0, 1], 1),
        ("begun again", [0, 1, 2, 0], 3),
    ],
)
def test_journal_with_records_moved(tmp_path, name, order, record):
    lines = journal_at(tmp_path / "whole")
    moved = [lines[number] for number in order]
    nk._files_write(str(tmp_path / "j"), b"".join(moved))
    expected = damage(tmp_path / "j", f"record {record}", starts(moved)[record])
    assert refusal(contents, tmp_path / "j") == (expected if order[0] == 0 else no_journal(tmp_path / "j"))


@pytest.mark.parametrize("record", range(6))
def test_journal_with_a_record_of_another(tmp_path, record):
    lines, others = journal_at(tmp_path / "whole"), journal_at(tmp_path / "other", salt="0ff")
    mixed = lines[:record] + [others[record]] + lines[record + 1 :]
    nk._files_write(str(tmp_path / "j"), b"".join(mixed))
    first = max(record, 1)  # another record 0 is as good as ours, but ours do not follow it
    assert refusal(contents, tmp_path / "j") == damage(tmp_path / "j", f"record {first}", starts(mixed)[first])


@pytest.mark.parametrize(
    "change, record",
    [
        (lambda data: b"\n" + data, -1), (lambda data: data + b"\n", 6), (lambda data: data + b"\0\n", 6),
        (lambda data: data[:-1] + b"x", 6), (lambda data: data.replace(b"\n", b"\r\n"), 1),
        (lambda data: b"\xef\xbb\xbf" + data, -1), (lambda data: data + b"x\n", 6),
        (lambda data: data[:-1] + b"x\n", 6), (lambda data: b"", 0), (lambda data: b"\n", -1),
        (lambda data: b"\0" * 5000, 0), (lambda data: b"{}\n" + data, -1), (lambda data: data[:-20] + b"\n", 5),
        (lambda data: b"{", 0), (lambda data: data[:-1] + b"\0" * 7 + b"x", 6),
    ],
)
def test_journal_damaged_as_no_crash_does(tmp_path, change, record):
    path = str(tmp_path / "j")
    changed = change(b"".join(journal_at(path)))
    nk._files_write(path, changed)
    code, message = refusal(contents, path)
    assert code == "JOURNAL_DAMAGED"
    assert (" is no journal, " if record < 0 else f" is damaged in record {record} (sound up to byte ") in message
    assert open(path, "rb").read() == changed


@pytest.mark.parametrize(
    "tail",
    [
        b"\0", b"\0" * 5000, b'{"seq":6,"a":', b'{"seq":6,"a":' + b"\0" * 300, b"x", b"\xff\r\0x",
        b',"sha256":"', b',"sha256":"' * 50000,
        b'{"seq":6,"sha256":"' + b"0" * 64 + b'"}',
    ],
)
def test_journal_with_a_torn_end(tmp_path, tail):
    path = str(tmp_path / "j")
    lines = journal_at(path)
    data = b"".join(lines)
    for line_end in (True, False):
        if not line_end and tail.strip(b"\0"):
            continue  # no crash loses the line end alone and keeps what was written behind it
        nk._files_write(path, (data if line_end else data[:-1]) + tail)
        assert contents(path) == (numbered(SAMPLE), len(tail))
        journal = nk._FilesJournal(path)
        journal.open()
        for _ in journal.records():
            break  # not read to the end: add does that
        assert journal.add({"n": 1}) == len(data)
        journal.flush()
        journal.close()
        assert open(path, "rb").read().startswith(data + b'{"seq":6,"n":1,"sha256":"')
        assert contents(path) == (numbered(SAMPLE + [{"n": 1}]), 0)


def test_journal_with_sectors_lost_in_its_last_line(tmp_path):
    """Each set of sectors of the last record may have stayed behind while its line end reached the disk."""
    path = str(tmp_path / "j")
    lines = journal_at(path, SAMPLE + [{"text": "x" * 1700}])
    data, begin = b"".join(lines), starts(lines)[-1]
    edges = [begin] + list(range(begin - begin % 512 + 512, len(data), 512)) + [len(data)]
    for lost in range(1, 2 ** (len(edges) - 1)):
        torn = data[:begin]
        for number, (first, last) in enumerate(zip(edges, edges[1:])):
            torn += b"\0" * (last - first) if lost >> number & 1 else data[first:last]
        nk._files_write(path, torn)
        assert contents(path) == (numbered(SAMPLE), len(data) - begin)
    nk._files_write(path, data[: begin + 10] + b"\0" * 600 + data[begin + 610 :])  # no sector begins or ends here
    assert refusal(contents, path) == damage(path, "record 6", begin)
    nk._files_write(path, data[:begin] + b"\0" * (edges[1] - begin) + data[edges[1] :] + b"{}\n")  # not the last line
    assert refusal(contents, path) == damage(path, "record 6", begin)


def test_lost_sectors():
    for data, offset, lost in [
        (b"", 0, False), (b"abc", 0, False), (b"\0", 0, True), (b"\0a", 0, False), (b"a\0", 0, False),
        (b"\0a", 511, True), (b"a\0", 511, True), (b"a\0a", 511, False), (b"\0" * 600, 100, True),
        (b"\0" * 412 + b"a", 100, True), (b"\0" * 411 + b"a", 100, False),
        (b"a" * 512 + b"\0" * 512 + b"a", 0, True), (b"a" * 511 + b"\0" * 513, 0, False),
    ]:
        assert nk._files_is_lost(data, offset) is lost, (data, offset)


def seal(bodies):
    """A journal by hand: lines with right digests, whatever they say."""
    before, lines = b"", []
    for body in bodies:
        before = hashlib.sha256(before + body).hexdigest().encode()
        lines.append(body + b',"sha256":"' + before + b'"}\n')
    return b"".join(lines)


@pytest.mark.parametrize(
    "body",
    [b"", b'{"seq":1,"n":' + b"9" * 5000, b'{"a":' + b"[" * 200_000, b'{"a":"\xff"', b"[1", b'"a"', b'{"a":1}{"b":2'],
)
def test_journal_with_right_digests_over_no_record(tmp_path, body):
    path = str(tmp_path / "j")
    nk._files_write(path, seal([b'{"seq":0', body]))
    if body == b'{"seq":1,"n":' + b"9" * 5000 and not hasattr(sys, "get_int_max_str_digits"):
        pytest.skip("this Python reads integers of any length")
    sound = len(seal([b'{"seq":0']))
    assert refusal(contents, path) == damage(path, "record 1", sound)
    journal = nk._FilesJournal(path)
    journal.open()
    assert refusal(journal.read_at, sound) == damage(path, "a record", sound)
    journal.close()


def test_journal_record_read_again_is_verified(tmp_path):
    path = str(tmp_path / "j")
    lines = journal_at(path)
    begins = starts(lines)
    journal = nk._FilesJournal(path)
    journal.open()
    for offset in (begins[2] + 1, begins[2] - 1, len(b"".join(lines)), 10**9, 5):
        assert refusal(journal.read_at, offset) == damage(path, "a record", offset)
    data = bytearray(b"".join(lines))
    data[begins[2] + 12] ^= 1
    with open(path, "r+b") as file:
        file.write(data)
    assert refusal(journal.read_at, begins[2]) == damage(path, "a record", begins[2])
    assert journal.read_at(begins[1]) == numbered(SAMPLE)[0]
    assert journal.read_at(begins[3]) == numbered(SAMPLE)[2]
    journal.close()
    assert refusal(journal.read_at, 0) == (
        "BAD_REQUEST",
        f"cannot read {nk._json_show(path)} (Bad file descriptor); give a journal that this program may read",
    )


def test_journal_reading_and_writing_in_turn(tmp_path):
    journal_at(tmp_path / "j", [{"n": n} for n in range(1, 5001)])
    journal = nk._FilesJournal(str(tmp_path / "j"))
    journal.open()
    count = 0
    for offset, record in journal.records():
        count += 1
        if count % 1000 == 1 and count < 5000:
            journal.add({"n": 5001 + count // 1000})
            journal.flush()
            assert journal.read_at(offset) == record
        assert record["n"] == count == record["seq"]
    assert count == 5005
    journal.close()


def test_journal_record_without_a_json_form_changes_nothing(tmp_path):
    journal = nk._FilesJournal(str(tmp_path / "j"))
    journal.create({})
    with pytest.raises(nk._JsonFault):
        journal.add({"n": float("nan")})
    journal.add({"n": 1})
    journal.flush()
    journal.close()
    assert contents(tmp_path / "j") == ([{"seq": 1, "n": 1}], 0)


def test_journal_path_is_shown_safely(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    nk._files_write("a\x1b[2Jb", b"")
    assert refusal(nk._FilesJournal("a\x1b[2Jb").open)[1] == (
        'journal "a\\u001b[2Jb" is damaged in record 0 (sound up to byte 0); '
        "restore it from a copy, or remove it to have what it holds forgotten, and done again by whoever works by it"
    )


# Journals: who may write


def journal_locked(path):
    return "LOCKED", f"journal {nk._json_show(path)} is locked by another process; wait until it has ended"


@posix
def test_journal_is_locked_whatever_its_name(tmp_path):
    path, moved = str(tmp_path / "j"), str(tmp_path / "moved")
    journal, other = nk._FilesJournal(path), nk._FilesJournal(path)
    journal.create({})
    journal.add({"n": 1})
    assert refusal(other.open) == journal_locked(path)
    with pytest.raises(OSError):
        other._file.number()
    os.rename(path, moved)
    assert refusal(nk._FilesJournal(moved).open) == journal_locked(moved)
    assert contents(moved, writable=False) == ([], 0)
    os.rename(moved, path)
    journal.flush()
    journal.close()
    child = forked(other.open)
    try:
        assert refusal(journal.open) == journal_locked(path)
        assert contents(path, writable=False) == (numbered([{"n": 1}]), 0)
    finally:
        kill(child)
    assert contents(path) == (numbered([{"n": 1}]), 0)


def test_journal_is_not_locked_on_windows(tmp_path, monkeypatch):
    """A locked byte could not be read by others; and a file that is open keeps its name there."""
    windows = FakeMsvcrt()
    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", windows)
    monkeypatch.delattr(os, "geteuid", raising=False)
    journal_at(tmp_path / "j")
    journal = nk._FilesJournal(str(tmp_path / "j"))
    journal.open()
    assert windows.held == {}
    assert contents(tmp_path / "j") == (numbered(SAMPLE), 0)
    journal.close()


@posix
def test_journal_that_may_only_be_read(open_folder):
    path = os.path.join(open_folder, "j")
    os.chmod(open_folder, 0o777)
    assert as_stranger(lambda: (journal_at(path)[:0], os.chmod(path, 0o400))) == "([], None)"
    os.chmod(open_folder, 0o555)
    assert as_stranger(lambda: contents(path, writable=False)) == repr((numbered(SAMPLE), 0))

    def work():
        journal = nk._FilesJournal(path)
        journal.open(writable=False)
        journal.add({"n": 1})
        try:
            journal.flush()
        finally:
            os.chmod(path, 0o000)

    assert as_stranger(work) == (
        f'Error: cannot write "{path}" (Bad file descriptor); remove the cause, then go on with the same journal'
    )
    assert as_stranger(lambda: nk._FilesJournal(path).open(writable=False)) == (
        f'Error: cannot open "{path}" (Permission denied); give a journal that this program may read'
    )
    os.chmod(open_folder, 0o755)


def replaced(path):
    nk._files_write(path + ".copy", open(path, "rb").read())
    os.replace(path + ".copy", path)


def linked(path):
    os.rename(path, path + ".kept")
    os.symlink(path + ".kept", path)


@posix
@pytest.mark.parametrize(
    "change",
    [os.unlink, lambda path: os.rename(path, path + ".kept"), replaced, linked,
     lambda path: os.link(path, path + ".kept"), lambda path: os.rename(os.path.dirname(path), path[:-4] + ".kept")],
    ids=["removed", "moved", "replaced", "link", "second name", "folder moved"],
)
@pytest.mark.parametrize("tail", [b"", b"torn"])
def test_journal_that_is_not_where_it_was(tmp_path, change, tail):
    os.mkdir(tmp_path / "in")
    path = str(tmp_path / "in" / "j")
    data = b"".join(journal_at(path)) + tail
    nk._files_write(path, data)
    journal = nk._FilesJournal(path)
    journal.open()
    journal.add({"n": 1})
    change(path)
    assert refusal(journal.flush) == (
        "OUTPUT_FAILED",
        f"journal {nk._json_show(path)} was moved, replaced, removed or linked while it was in use; "
        "put it back, for without it what was done would be done again",
    )
    number = journal._file.number()
    assert os.pread(number, 10_000, 0) == data
    journal.flush()  # what was queued is dropped
    journal.close()
    for folder, _, names in os.walk(tmp_path):
        for name in names:
            assert open(os.path.join(folder, name), "rb").read() == data


@posix
def test_journal_put_back_goes_on(tmp_path):
    path = str(tmp_path / "j")
    journal = nk._FilesJournal(path)
    journal.create({})
    os.rename(path, path + ".away")
    journal.add({"n": 1})
    assert refusal(journal.flush)[0] == "OUTPUT_FAILED"
    os.rename(path + ".away", path)
    journal.add({"n": 2})
    journal.flush()
    journal.close()
    assert contents(path) == (numbered([{"n": 2}]), 0)


@posix
@pytest.mark.parametrize("mode", [0o600, 0o644, 0o400])
@pytest.mark.parametrize("text", [b'{"id":1}\n', b"x", b'{"seq":1}\n', b"\n", b'\0{"seq":0'])
@pytest.mark.parametrize("writable", [True, False])
def test_file_that_is_no_journal(tmp_path, mode, text, writable):
    """Nobody is told to change the mode of a file of his own, or to remove it."""
    path = str(tmp_path / "j")
    nk._files_write(path, text, mode=mode)
    assert refusal(nk._FilesJournal(path).open, writable) == no_journal(path)
    assert open(path, "rb").read() == text


# Journals: what goes wrong while writing


def failing(real, results):
    """Stand in for a function of os: an exception is raised, a number cuts what is written, None lets it through."""

    def act(descriptor, *rest):
        result = results.pop(0) if results else None
        if isinstance(result, BaseException):
            raise result
        if result is not None:
            rest = (rest[0][:result],)
        return real(descriptor, *rest)

    return act


FULL = OSError(errno.ENOSPC, "No space left on device")
BROKEN = OSError(errno.EIO, "Input/output error")


@pytest.mark.parametrize(
    "faults",
    [
        {"write": [FULL]}, {"write": [10, FULL]}, {"write": [10, 1, 50, BROKEN]}, {"fdatasync": [BROKEN]},
        {"write": [10, FULL], "ftruncate": [BROKEN]}, {"write": [100, FULL], "ftruncate": [BROKEN, BROKEN]},
    ],
)
@pytest.mark.parametrize("tail", [b"", b"\n", b'\n{"seq":6,', b"\0" * 9])
def test_journal_that_cannot_grow_keeps_its_length(tmp_path, monkeypatch, faults, tail):
    if not hasattr(os, "fdatasync"):
        pytest.skip("no fdatasync here")
    path = str(tmp_path / "j")
    data = b"".join(journal_at(path))
    nk._files_write(path, data[:-1] + tail)
    journal = nk._FilesJournal(path)
    journal.open()
    journal.add({"n": 1})
    journal.add({"n": 2})
    for name, results in faults.items():
        first = [None] * (name == "ftruncate" and journal.torn > 0)  # the torn end itself is cut
        monkeypatch.setattr(os, name, failing(getattr(os, name), first + results))
    fault = [fault for fault in faults.get("write", []) + faults.get("fdatasync", []) if isinstance(fault, OSError)][0]
    assert refusal(journal.flush) == (
        "OUTPUT_FAILED",
        f"cannot write {nk._json_show(path)} ({fault.strerror}); remove the cause, then go on with the same journal",
    )
    if "ftruncate" not in faults:
        assert open(path, "rb").read() in (data, data[:-1])
    journal.flush()  # what was queued is dropped
    journal.add({"n": 3})
    try:
        journal.flush()
    except nk.Error:
        assert len(faults.get("ftruncate", [])) == 2  # it could still not be cut: nothing was written behind it
        journal.add({"n": 3})
        journal.flush()
    journal.close()
    monkeypatch.undo()
    assert contents(path) == (numbered(SAMPLE + [{"n": 3}]), 0)
    assert open(path, "rb").read().startswith(data)


@posix
def test_journal_that_outgrows_the_limit_goes_on_later(tmp_path):
    """RLIMIT_FSIZE stands for a full disk: the write stops in the middle."""
    resource = pytest.importorskip("resource")
    path = str(tmp_path / "j")
    journal_at(path, [])

    def work():
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (5000, hard))
        journal, kept, failed = nk._FilesJournal(path), [], 0
        journal.open()
        for size in (100, 3000, 900, 300, 2000, 100, 50, 1):
            size_before = os.stat(path).st_size
            journal.add({"text": "x" * size})
            try:
                journal.flush()
                kept.append(size)
            except nk.Error as error:
                failed += error.code == "OUTPUT_FAILED" and "(File too large)" in error.message
                if os.stat(path).st_size != size_before:
                    return "not cut back"
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        journal.add({"text": "x" * 2000})
        journal.flush()
        return kept, failed

    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, repr(work()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as answer:
        assert answer.read() == b"([100, 3000, 900, 300, 100], 3)"
    os.waitpid(child, 0)
    assert [len(record["text"]) for record in contents(path)[0]] == [100, 3000, 900, 300, 100, 2000]


@pytest.mark.parametrize("step", ["write", "fdatasync"])
@pytest.mark.parametrize("times", [1, 3])
def test_journal_flush_that_is_interrupted_is_done_first(tmp_path, monkeypatch, step, times):
    if not hasattr(os, step):
        pytest.skip("no fdatasync here")
    path = str(tmp_path / "j")
    data = b"".join(journal_at(path))
    nk._files_write(path, data + b"torn")
    journal = nk._FilesJournal(path)
    journal.open()
    journal.add({"n": 1})
    results = [KeyboardInterrupt()] * times
    monkeypatch.setattr(os, step, failing(getattr(os, step), [20] * (step == "write") + results))
    with pytest.raises(KeyboardInterrupt):
        journal.flush()
    monkeypatch.undo()
    assert contents(path, writable=False) == (numbered(SAMPLE + [{"n": 1}]), 0)
    journal.add({"n": 2})
    journal.flush()
    journal.close()
    assert contents(path) == (numbered(SAMPLE + [{"n": 1}, {"n": 2}]), 0)


@posix
def test_journal_whose_writer_is_killed_again_and_again(tmp_path, rng):
    """All that was acknowledged is there, in order; besides it at most what was being written."""
    path = str(tmp_path / "j")
    journal_at(path, [])
    expected = 0  # records that must be there
    for _ in range(30):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                journal = nk._FilesJournal(path)
                journal.open()
                number = sum(1 for _ in journal.records())
                while True:
                    batch = number % 3 + 1
                    for step in range(batch):
                        journal.add({"n": number + step, "text": "x" * (number * 7919 % 30000)})
                    journal.flush()
                    number += batch
                    os.write(writer, b"%d\n" % number)
            finally:
                os._exit(1)
        os.close(writer)
        with open(reader, "rb") as answer:
            said = [answer.readline()]
            time.sleep(rng.random() * 0.01)
            kill(child)
            said += answer.read().split()
        expected = max([expected, *map(int, said)])
        records, _ = contents(path)
        assert expected <= len(records) <= expected + 3
        assert [record["n"] for record in records] == list(range(len(records)))
        expected = len(records)
    assert expected > 30


# What an exclusive write leaves when it is killed


@posix
def test_private_file_whose_staged_name_was_left_behind(tmp_path):
    """Killed between the two names: the file is whole, and nobody needs to mend it."""
    path = str(tmp_path / "j")
    journal_at(path)
    nk._files_write(str(tmp_path / ".new-1-0"), b"of somebody else")
    os.link(path, tmp_path / ".new-1-1")
    os.link(path, tmp_path / ".new-1-2")
    assert contents(path) == (numbered(SAMPLE), 0)
    assert sorted(os.listdir(tmp_path)) == [".new-1-0", "j"]
    os.link(path, tmp_path / ".new-1-1")
    nk._files_read(path, 10_000, private=True)
    os.link(path, tmp_path / ".new-1-1")
    os.link(path, tmp_path / "other")
    assert " has 2 names (hard links); " in refusal(nk._files_read, path, 10_000, private=True)[1]
    assert sorted(os.listdir(tmp_path)) == [".new-1-0", "j", "other"]


@posix
def test_staged_name_that_cannot_be_removed_is_a_second_name(tmp_path, monkeypatch):
    path = str(tmp_path / "a")
    nk._files_write(path, b"x")
    os.link(path, tmp_path / ".new-1-1")

    def fail(*args):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "listdir", fail)
    assert " has 2 names (hard links); " in refusal(nk._files_read, path, 10, private=True)[1]


# Regressions
