"""FILES: atomic and exclusive writes, private files, bounded reads. Real files, real kill -9, real limits."""
from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading

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
