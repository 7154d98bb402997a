"""PATHS: the sandbox on real folders, links, pipes, devices and races; the rules of Windows as a pure function."""
from __future__ import annotations

import gc
import os
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time

import pytest

import knaif as nk

pytestmark = pytest.mark.skipif(os.name == "nt", reason="POSIX links and descriptors")
STRANGER = 65534  # nobody


def refusal(call, *args, **options):
    with pytest.raises(nk.Error) as caught:
        call(*args, **options)
    error = caught.value
    if error.code == "SANDBOX_ESCAPE":
        assert nk.exit_code(error.code) == 3
    assert error.message.isprintable()
    return error.message


@pytest.fixture
def top(tmp_path):
    """The real path of a folder with share (the root), share-secret (outside) and what points from one to the other."""
    top = os.path.realpath(tmp_path)
    for folder in ("share", "share/a", "share/a/deep", "share-secret"):
        os.mkdir(os.path.join(top, folder))
    for name, text in (("share/b", "inside"), ("share/a/f", "inside"), ("share-secret/x", "secret")):
        with open(os.path.join(top, name), "w") as file:
            file.write(text)
    for name, target in {
        "out": "../share-secret", "out-file": "../share-secret/x", "out-absolute": top + "/share-secret",
        "out-new": "../share-secret/new", "in": "a", "in-file": "a/f", "in-absolute": top + "/share/a",
        "loop": "loop", "ping": "pong", "pong": "ping", "up": "..", "down": "../share/a", "nowhere": "missing/x",
    }.items():
        os.symlink(target, os.path.join(top, "share", name))
    return top


@pytest.fixture
def box(top):
    box = nk.Sandbox(os.path.join(top, "share"))
    yield box
    box.close()


def outside(text, box):
    return f"path {nk._json_show(text)} leads outside the sandbox {nk._json_show(box.root, 200)}; give a path inside it"


# resolve


def test_pth_01_sibling_with_the_same_prefix_and_dots_at_the_end(top, box):
    for text in ("../share-secret/x", top + "/share-secret/x", "a/../../x", box.root + "/..", "/" + box.root + "/../x"):
        assert refusal(box.resolve, text, box.root) == outside(text, box)
    odd = "....//....//etc/passwd"
    assert box.resolve(odd, box.root) == box.root + "/..../..../etc/passwd"
    assert box.resolve("a/../b", box.root) == box.root + "/b"
    assert box.resolve(box.root + "/b", "/nowhere") == box.root + "/b"
    assert box.resolve("ok..name", box.root) == box.root + "/ok..name"


def test_pth_03_what_is_no_name(box):
    name = "n" * 5000
    assert refusal(box.resolve, "a\0.txt", box.root) == (
        'path "a\\u0000.txt" holds a NUL character, which no file name can have; leave it out'
    )
    assert refusal(box.resolve, "", box.root) == 'path "" is empty; give the name of a file or folder'
    assert refusal(box.resolve, name, box.root) == (
        f"path {nk._json_show(name)} has a part of 5,000 bytes, and a file name holds at most 255; shorten it"
    )
    assert len(nk._json_show(name)) < 80
    # On POSIX these are odd names inside the root.
    for text in ("C:\\Windows\\x", "C:x", "\\\\srv\\s", "..\\x", "file://x"):
        assert box.resolve(text, box.root) == box.root + "/" + text.replace("//", "/")


@pytest.mark.parametrize(
    "text, answer",
    [
        (".", ""), ("./", ""), ("a", "/a"), ("a/", "/a"), ("a//f", "/a/f"), ("./a/./f", "/a/f"), ("new", "/new"),
        ("new/newer/newest", "/new/newer/newest"), ("new/../b", "/b"), ("a/deep/../../b", "/b"), ("b/..", ""),
        ("../share/b", "/b"), ("../share", ""), ("in", "/a"), ("in/f", "/a/f"), ("in-file", "/a/f"),
        ("in/new", "/a/new"), ("in-absolute/f", "/a/f"), ("up/share/b", "/b"), ("down/f", "/a/f"),
        ("nowhere", "/missing/x"),
        ("in/../b", "/b"),
        (" ", "/ "), ("a b", "/a b"), ("-rf", "/-rf"), ("./~", "/~"), ("a/~", "/a/~"), ("*", "/*"), ("b/x", "/b/x"),
        ("caf\u00e9", "/caf\u00e9"), ("cafe\u0301", "/cafe\u0301"), ("\udcff", "/\udcff"), ("n" * 255, "/" + "n" * 255),
        (".GIT", "/.GIT"), ("...", "/..."), ("a\n", "/a\n"), ("$HOME", "/$HOME"), ("%2e%2e/x", "/%2e%2e/x"),
    ],
)
def test_resolve_inside(box, text, answer):
    assert box.resolve(text, box.root) == box.root + answer


@pytest.mark.parametrize(
    "text",
    [
        "..", "../", "../x", "../../../../../../../../etc/passwd", "/", "/etc/passwd", "//etc/passwd",
        "/proc/self/root/etc", "out", "out/x", "out/new", "out-file", "out-absolute/x", "out-new", "up", "up/x",
        "up/share-secret/x",
        "a/../..",
        "in/../../x", "out/../x", "missing/../../x", "down/../../x", "/dev/null", "../share-secre", "../SHARE/b",
    ],
)
def test_resolve_outside(box, text):
    assert refusal(box.resolve, text, box.root) == outside(text, box)


def test_resolve_counts_from_the_base(top, box):
    assert box.resolve("f", box.root + "/a") == box.root + "/a/f"
    assert box.resolve("share/b", top) == box.root + "/b"
    assert refusal(box.resolve, "b", top) == outside("b", box)
    assert refusal(box.resolve, "../../x", box.root + "/a") == outside("../../x", box)
    assert box.resolve("../b", box.root + "/in") == box.root + "/b"  # a base that is a link counts as its target
    assert box.resolve("f", "a") == box.root + "/a/f"


def test_resolve_other_refusals(top, box):
    for text in ("~", "~/x", "~root/x"):
        assert refusal(box.resolve, text, box.root) == (
            f'path "{text}" begins with ~, which stands for no folder here; write ./~ for such a name'
        )
    for text in ("loop", "ping/x"):
        assert refusal(box.resolve, text, box.root) == (
            f'path "{text}" cannot be examined (Too many levels of symbolic links); '
            "give a path that this program can look up"
        )
    assert box.resolve("loop/../b", box.root) == box.root + "/b"
    text = "a/" * 3000
    assert refusal(box.resolve, text, box.root) == (
        f"path {nk._json_show(text)} has 6,000 bytes, and a path holds at most 4,096; shorten it"
    )
    assert refusal(box.resolve, "a\ud800", box.root) == (
        'path "a\\ud800" holds a character that no file name can have here; leave it out'
    )
    assert refusal(box.resolve, "n" * 256, box.root).endswith(
        "has a part of 256 bytes, and a file name holds at most 255; shorten it"
    )
    assert refusal(box.resolve, "\u00e9" * 128, box.root).endswith(
        "has a part of 256 bytes, and a file name holds at most 255; shorten it"
    )


@pytest.mark.parametrize("value", [None, 1, True, 1.5, b"b", ["b"], {"b": 1}, ("b",)])
def test_resolve_takes_text_alone(box, value):
    expected = f"a path must be text, not {type(value).__name__}; give it as a string"
    assert refusal(box.resolve, value, box.root) == expected
    assert refusal(box.open, value) == expected
    assert refusal(nk._paths_check_text, value) == expected


@pytest.mark.parametrize("text", ["loop/../out/x", "loop/../out/new", "ping/../a/../out-new", "loop/in/../../out"])
def test_resolve_past_links_in_a_circle_follows_what_comes_after(box, text):
    """What cannot be followed is left by the letters alone, and such a path may still hold links."""
    with pytest.raises(nk.Error) as caught:
        box.resolve(text, box.root)
    assert caught.value.code == "SANDBOX_ESCAPE"


def test_resolve_a_link_that_goes_away_meanwhile(box, monkeypatch):
    def gone(path, **options):
        raise FileNotFoundError(2, "No such file or directory", path)

    monkeypatch.setattr(os, "readlink", gone)
    try:
        box.resolve("in/f", box.root)  # newer Pythons take such a link for a missing name
    except nk.Error as error:
        assert error.message.startswith('path "in/f" cannot be examined (No such file or directory)')


@pytest.mark.parametrize("last", ["b", "../share-secret/x"])
def test_resolve_a_very_long_chain_of_links(box, last):
    os.symlink(last, box.root + "/l1")
    for number in range(2, 2001):
        os.symlink(f"l{number - 1}", f"{box.root}/l{number}")
    for name in ("l41", "l2000"):
        try:
            assert box.resolve(name, box.root) == box.root + "/" + last
            assert last == "b"
        except nk.Error as error:
            assert error.message in (
                outside(name, box),
                f'path "{name}" cannot be examined (too many links); give a path that this program can look up',
            )


def test_resolve_long_links_are_bounded(box):
    for number in range(40):
        os.symlink(f"{'./' * 2000}k{number + 1}", f"{box.root}/k{number}")
    start = time.perf_counter()
    assert box.resolve("k0", box.root) == box.root + "/k40"
    assert time.perf_counter() - start < 5
    os.symlink("x/" * 2000 + "y", box.root + "/long")
    assert refusal(box.resolve, "long/" + "z/" * 2000, box.root).endswith(
        "cannot be examined (File name too long); give a path that this program can look up"
    )


def test_resolve_devices_pipes_and_sockets(box, monkeypatch):
    os.mkfifo(box.root + "/pipe")
    monkeypatch.chdir(box.root)
    server = socket.socket(socket.AF_UNIX)
    server.bind("socket")
    names = ["pipe", "socket"]
    try:
        os.mknod(box.root + "/device", stat.S_IFCHR | 0o600, os.makedev(1, 3))
        names.append("device")
    except PermissionError:
        pass
    os.symlink("pipe", "to-pipe")
    for name in names + ["to-pipe"]:
        assert refusal(box.resolve, name, box.root) == (
            f'path "{name}" is a device, a pipe or a socket; give a file or a folder'
        )
    server.close()


def test_resolve_from_the_top_as_root():
    box = nk.Sandbox("/")
    assert box.root == "/"
    assert box.resolve("etc", "/") == "/etc"
    assert box.resolve(".", "/") == "/"
    assert box.resolve("..", "/") == "/"
    assert "is a device" in refusal(box.resolve, "/dev/null", "/")
    assert "usr" in box.listdir("/")
    assert refusal(box.unlink, "/") == 'path "/" is the sandbox itself; name something inside it'


def test_resolve_tells_nothing_of_what_lies_outside():
    """A folder that cannot be looked into is named as such only where it lies inside."""
    with tempfile.TemporaryDirectory() as top:
        top = os.path.realpath(top)
        os.chmod(top, 0o755)
        for folder in ("share", "share/closed", "closed"):
            os.mkdir(os.path.join(top, folder))
        for folder in ("share/closed", "closed"):
            os.chmod(os.path.join(top, folder), 0)
        box = nk.Sandbox(top + "/share")
        import unicodedata  # noqa: F401 - what the child may need, while it can be read

        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(STRANGER)
                os.setuid(STRANGER)
            lines = []
            for text in ("closed/x", "../closed/x"):
                try:
                    lines.append(box.resolve(text, box.root))
                except BaseException as error:
                    lines.append(str(error))
            os.write(writer, "\n".join(lines).encode())
            os._exit(0)
        os.close(writer)
        with open(reader) as answer:
            lines = answer.read().split("\n")
        os.waitpid(child, 0)
        assert lines == [
            'path "closed/x" cannot be examined (Permission denied); give a path that this program can look up',
            outside("../closed/x", box),
        ]
        box.close()


def test_resolve_knows_the_root_by_another_name(top):
    """A bind mount, or a file system that ignores case, spells the very same folder in another way."""
    box = nk.Sandbox(top + "/share")
    other = os.path.join(top, "other")
    lstat = os.lstat

    def aliased(path, **options):
        text = os.fspath(path)
        return lstat(box.root + text[len(other):] if text == other or text.startswith(other + "/") else text, **options)

    try:
        os.lstat = aliased
        assert box.resolve(other + "/a/f", "/") == box.root + "/a/f"
        assert box.resolve(other, "/") == box.root
        with pytest.raises(nk.Error):
            box.resolve(other + "/../share-secret", "/")
    finally:
        os.lstat = lstat


def test_pth_r1_names_alike_in_case_or_accents_are_two_files_or_one_as_the_file_system_says(box):
    """No rule of ours goes by a name's spelling on POSIX, so .GIT passes nothing that .git would not."""
    for one, two in ((".git", ".GIT"), ("caf\u00e9", "cafe\u0301")):
        os.symlink("/etc", f"{box.root}/{one}")
        with pytest.raises(nk.Error):
            box.resolve(one + "/passwd", box.root)
        if os.path.lexists(f"{box.root}/{two}"):
            with pytest.raises(nk.Error):
                box.resolve(two + "/passwd", box.root)
        else:
            assert box.resolve(two + "/passwd", box.root) == f"{box.root}/{two}/passwd"


def random_text(source):
    part = source.choice
    parts = ["..", "..", ".", "", "a", "f", "b", "share", "out", "in", "up", "down", "loop", "deep", "x", "nowhere",
             "out-new", "share-secret", "\udcff", "~", "....", " "]
    text = "/".join(part(parts) for _ in range(source.randrange(1, 9)))
    return part(["", "", "", "/", "//", "@/", "@/../"]) + text


def test_resolve_fuzz_agrees_with_realpath(top, box, rng):
    source = rng
    inside = 0
    for _ in range(4000):
        text = random_text(source).replace("@", box.root)
        try:
            answer = box.resolve(text, box.root)
        except nk.Error as error:
            assert error.code == "SANDBOX_ESCAPE"
            continue
        inside += 1
        assert os.path.realpath(answer) == answer
        assert (answer + "/").startswith(box.root + "/")
        assert answer == os.path.realpath(os.path.join(box.root, text))
    assert inside > 500


# The root


def test_root_that_is_no_folder(top, monkeypatch):
    why = "is not a folder that this program can enter; create it or name another"
    for root in (top + "/none", top + "/share/b", top + "/share/loop", "a\0b"):
        with pytest.raises(nk.RegistrationError) as caught:
            nk.Sandbox(root)
        assert caught.value.message == f"the sandbox {nk._json_show(root)} {why}"
    for root in ("", None, b"x"):
        with pytest.raises(nk.RegistrationError) as caught:
            nk.Sandbox(root)
        assert caught.value.message == "the sandbox must be the path of a folder, and not empty"


def test_root_is_resolved_once(top, monkeypatch):
    monkeypatch.chdir(top)
    os.symlink("share", "link")
    for root in ("share", "./share/", "link", top + "/link"):
        box = nk.Sandbox(root)
        assert box.root == top + "/share"
        assert box.resolve(top + "/link/b", top) == box.root + "/b"
        box.close()
    box = nk.Sandbox("link")
    os.unlink("link")
    os.symlink("share-secret", "link")
    assert box.resolve("b", box.root) == top + "/share/b"
    assert box.open("b").read() == "inside"


@pytest.mark.parametrize("how", ["moved", "other folder", "link", "removed"])
def test_root_replaced_after_the_start_is_noticed(top, box, how):
    os.rename(box.root, top + "/gone")
    if how == "other folder":
        os.mkdir(box.root)
    elif how == "link":
        os.symlink("share-secret", box.root)
    where = nk._json_show(box.root, 200)
    expected = f"the sandbox {where} was moved or replaced while this program ran; start the program again"
    assert refusal(box.resolve, "b", box.root) == expected
    for act in (box.open, box.unlink, box.mkdir, box.listdir):
        assert refusal(act, "b") == expected
    assert refusal(box.rename, "b", "c") == expected
    if os.path.islink(box.root):
        os.unlink(box.root)
    elif os.path.isdir(box.root):
        os.rmdir(box.root)
    os.rename(top + "/gone", box.root)
    assert box.open("b").read() == "inside"


def test_root_descriptor_is_private_and_closed(top):
    gc.collect()
    before = sorted(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else []
    box = nk.Sandbox(top + "/share")
    assert not os.get_inheritable(box._descriptor)
    box.close()
    box.close()
    assert refusal(box.open, "b") == "the sandbox is closed; use it while the program runs"
    for _ in range(3):
        nk.Sandbox(top + "/share")
    with pytest.raises(nk.RegistrationError):
        nk.Sandbox(top + "/none")
    gc.collect()
    if before:
        assert sorted(os.listdir("/proc/self/fd")) == before


def test_root_descriptor_keeps_clear_of_closed_streams(top):
    """App.main puts something on a closed 0, 1 or 2; the root must not stand there."""
    home = os.path.dirname(os.path.abspath(nk.__file__))
    code = (
        "import os, sys; sys.path.insert(0, %r)\n"
        "import knaif as nk\n"
        "for number in (0, 1): os.close(number)\n"
        "box = nk.Sandbox(%r)\n"
        "os.write(2, repr([box._descriptor > 2, os.get_inheritable(box._descriptor)]).encode())\n"
        "os._exit(0)\n" % (home, top + "/share")
    )
    done = subprocess.run([sys.executable, "-S", "-E", "-c", code], stderr=subprocess.PIPE)
    assert done.stderr == b"[True, False]"


# Pinned operations


def link_refusal(text):
    return f'path "{text}" goes through a link, and no link is followed here; give the path without links'


def test_open_reads_writes_appends_and_creates(box):
    with box.open("new.txt", "x") as file:
        assert file.write("one\n") == 4
        assert file.name == "new.txt"
    with box.open(box.root + "/new.txt", "a") as file:
        file.write("caf\u00e9\n")
    with box.open("./new.txt") as file:
        assert file.read() == "one\ncaf\u00e9\n"
        assert file.encoding == "utf-8"
    with box.open("new.txt", "rb") as file:
        assert file.read() == "one\ncaf\u00e9\n".encode()
    with box.open("new.txt", "r+b") as file:
        file.seek(1)
        file.write(b"X")
    with box.open("new.txt", "rt", encoding="latin-1", newline="") as file:
        assert file.read() == "oXe\ncaf\u00c3\u00a9\n"
    with box.open("new.txt", "w+") as file:
        assert file.read() == ""
        file.write("two")
    with box.open("new.txt", "rb", buffering=0) as file:
        assert file.read() == b"two"
    assert box.open("new.txt", "rb").__class__.__name__ == "BufferedReader"
    os.link(box.root + "/new.txt", box.root + "/twin.txt")
    for name in ("new.txt", "twin.txt", "a"):
        with pytest.raises(FileExistsError):
            box.open(name, "x")


def test_open_gives_blocking_uninherited_descriptors_and_modes_by_the_umask(box):
    old = os.umask(0o027)
    try:
        with box.open("new", "w") as file:
            assert os.get_blocking(file.fileno()) and not os.get_inheritable(file.fileno())
    finally:
        os.umask(old)
    assert stat.S_IMODE(os.stat(box.root + "/new").st_mode) == 0o640


@pytest.mark.parametrize("mode", ["", "q", "rw", "r++", "rbt", "wx"])
def test_open_refuses_odd_modes_as_open_does_and_touches_nothing(box, mode):
    with pytest.raises(ValueError):
        box.open("b", mode)
    assert open(box.root + "/b").read() == "inside"


@pytest.mark.parametrize("mode", ["r", "w", "a", "r+", "rb", "wb", "x"])
@pytest.mark.parametrize("text", ["out-file", "out/x", "in-file", "in/f", "out-new", "nowhere", "loop", "up/share/b"])
def test_open_follows_no_link(top, box, mode, text):
    if mode == "x" and "/" not in text:
        with pytest.raises(FileExistsError):
            box.open(text, mode)
    else:
        assert refusal(box.open, text, mode) == link_refusal(text)
    assert open(top + "/share-secret/x").read() == "secret"
    assert os.listdir(top + "/share-secret") == ["x"]


def test_open_outside_and_dots(top, box):
    for text in ("/etc/passwd", top + "/share-secret/x", top, "/"):
        assert refusal(box.open, text) == outside(text, box)
    for text in ("..", "../share-secret/x", "a/../b", box.root + "/../share-secret/x"):
        assert refusal(box.open, text) == f'path {nk._json_show(text)} has a part ".."; give the path without it'
    assert refusal(box.open, ".") == 'path "." is the sandbox itself; name something inside it'
    assert refusal(box.open, box.root) == (
        f"path {nk._json_show(box.root)} is the sandbox itself; name something inside it"
    )
    assert refusal(box.open, "a\0b").startswith('path "a\\u0000b" holds a NUL')


def test_open_pipes_and_devices_neither_hangs_nor_opens(box):
    os.mkfifo(box.root + "/pipe")
    names = ["pipe"]
    try:
        os.mknod(box.root + "/device", stat.S_IFCHR | 0o600, os.makedev(1, 5))
        names.append("device")
    except PermissionError:
        pass
    for name in names:
        for mode in ("r", "w", "a", "r+"):
            assert refusal(box.open, name, mode) == f'path "{name}" is a device, a pipe or a socket; give a file'


def test_open_pipe_that_appears_after_the_look(box, monkeypatch):
    os.mkfifo(box.root + "/pipe")
    look = os.stat

    def blind(name, **options):
        return look("b" if name == "pipe" else name, **options)

    monkeypatch.setattr(os, "stat", blind)
    assert refusal(box.open, "pipe") == 'path "pipe" is a device, a pipe or a socket; give a file'
    with pytest.raises(OSError):  # no reader: the system refuses first
        box.open("pipe", "w")


def test_open_hard_links_only_for_reading(top, box):
    os.link(top + "/share-secret/x", box.root + "/twin")
    assert box.open("twin").read() == "secret"
    for mode in ("w", "a", "r+", "wb"):
        assert refusal(box.open, "twin", mode) == (
            'path "twin" has 2 names (hard links), one of which may lie outside; copy the file and write to the copy'
        )
    assert open(top + "/share-secret/x").read() == "secret"


def test_open_hard_link_that_appears_after_the_look_is_not_emptied(top, box, monkeypatch):
    os.link(top + "/share-secret/x", box.root + "/twin")
    look = os.stat

    def blind(name, **options):
        return look("b" if name == "twin" else name, **options)

    monkeypatch.setattr(os, "stat", blind)
    assert "has 2 names" in refusal(box.open, "twin", "w")
    assert open(top + "/share-secret/x").read() == "secret"


def test_open_errors_are_those_of_the_system_about_the_given_path(box):
    for call, fault, name in [
        (lambda: box.open("none"), FileNotFoundError, "none"),
        (lambda: box.open("none/x", "w"), FileNotFoundError, "none/x"),
        (lambda: box.open("b/x"), NotADirectoryError, "b/x"),
        (lambda: box.open("a"), IsADirectoryError, "a"),
        (lambda: box.open("a", "w"), IsADirectoryError, "a"),
        (lambda: box.unlink("none"), FileNotFoundError, "none"),
        (lambda: box.unlink("a"), OSError, "a"),
        (lambda: box.mkdir("a"), FileExistsError, "a"),
        (lambda: box.mkdir("none/x"), FileNotFoundError, "none/x"),
        (lambda: box.listdir("none"), FileNotFoundError, "none"),
        (lambda: box.listdir("b"), NotADirectoryError, "b"),
        (lambda: box.rename("none", "x"), FileNotFoundError, "none"),
        (lambda: box.rename("b", "none/x"), FileNotFoundError, "none/x"),
    ]:
        with pytest.raises(fault) as caught:
            call()
        assert caught.value.filename == name


def test_unlink_rename_mkdir_listdir(top, box):
    box.mkdir("m")
    box.mkdir(box.root + "/m/n")
    assert box.listdir("m") == ["n"] and box.listdir(box.root + "/m/n/") == []
    box.rename("b", "m/n/c")
    box.rename(box.root + "/m/n/c", "m/d")
    assert box.listdir("m") == ["d", "n"] and box.open("m/d").read() == "inside"
    box.unlink("m/d")
    assert box.listdir("m") == ["n"]
    assert "a" in box.listdir() and box.listdir() == sorted(os.listdir(box.root))
    box.rename("a/f", "out-file")  # the link itself is replaced
    assert open(top + "/share-secret/x").read() == "secret"
    assert box.open("out-file").read() == "inside"
    box.unlink("out")
    assert os.listdir(top + "/share-secret") == ["x"]


def test_unlink_rename_mkdir_listdir_follow_no_link(top, box):
    renames = (lambda path: box.rename(path, "new")), (lambda path: box.rename("b", path))
    for text in ("out/x", "out-absolute/x", "in/f"):
        for act in (box.unlink, box.mkdir, box.listdir, *renames):
            assert refusal(act, text) == link_refusal(text)
    for text in ("out", "in"):
        assert refusal(box.listdir, text) == link_refusal(text)
    for act in (box.unlink, box.mkdir, *renames):
        assert refusal(act, ".") == 'path "." is the sandbox itself; name something inside it'
    assert os.listdir(top + "/share-secret") == ["x"]
    assert open(box.root + "/b").read() == "inside"


def test_pinned_folders_that_may_only_be_passed_through():
    if not hasattr(os, "O_PATH"):
        pytest.skip("needs O_PATH")
    with tempfile.TemporaryDirectory() as top:
        top = os.path.realpath(top)
        os.mkdir(top + "/passage")
        with open(top + "/passage/f", "w") as file:
            file.write("found")
        os.chmod(top + "/passage", 0o711)
        os.chmod(top, 0o711)
        child = os.fork()
        if child == 0:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(STRANGER)
                os.setuid(STRANGER)
            try:
                box = nk.Sandbox(top)
                found = box.open("passage/f").read()
                box.listdir("passage")
            except PermissionError as error:
                os._exit(40 if (found, error.filename) == ("found", "passage") else 41)
            finally:
                os._exit(42)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 40


def test_pinned_without_folder_descriptors_refuses(box, monkeypatch):
    monkeypatch.setattr(os, "supports_dir_fd", set())
    expected = (
        "this system cannot open files below a held folder; "
        "use the resolved path itself, which is checked but not pinned"
    )
    for act in (box.open, box.unlink, box.mkdir, box.listdir, lambda path: box.rename(path, "x")):
        assert refusal(act, "b") == expected
    assert box.resolve("b", box.root) == box.root + "/b"


def test_pinned_calls_leak_no_descriptor(box):
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("needs /proc")
    os.mkfifo(box.root + "/pipe")
    before = len(os.listdir("/proc/self/fd"))
    for text in ("b", "a/f", "a/deep", "none", "none/x", "out/x", "out-file", "loop", "pipe", "b/x", "..", "."):
        for mode in ("r", "w", "q"):
            try:
                box.open(text, mode).close()
            except (nk.Error, OSError, ValueError):
                pass
        for act in (box.listdir, lambda path: box.rename(path, path), lambda path: box.rename("b", path + "/x")):
            try:
                act(text)
            except (nk.Error, OSError):
                pass
    assert len(os.listdir("/proc/self/fd")) == before


def race(swap, work):
    """Run swap in a thread over and over while work runs, for half a second and until work ended in both ways."""
    stop = threading.Event()

    def turn():
        while not stop.is_set():
            swap()

    thread = threading.Thread(target=turn)
    thread.start()
    done = refused = 0
    start = time.monotonic()
    try:
        while time.monotonic() < start + 0.5 or (not (done and refused) and time.monotonic() < start + 20):
            try:
                work()
                done += 1
            except (nk.Error, OSError):
                refused += 1
    finally:
        stop.set()
        thread.join()
    return done, refused


def test_race_folder_swapped_for_a_link_never_leaves_the_root(top, box):
    """One thread swaps share/a and a link to the outside; the pinned functions end inside or not at all."""
    os.symlink(top + "/share-secret", top + "/link")
    with open(top + "/share/a/x", "w") as file:
        file.write("inside")
    counter = iter(range(10**9))

    def swap():
        os.rename(box.root + "/a", top + "/parked")
        os.rename(top + "/link", box.root + "/a")
        os.rename(box.root + "/a", top + "/link")
        os.rename(top + "/parked", box.root + "/a")

    def work():
        number = next(counter)
        if number % 4 == 0:
            with box.open("a/x") as file:
                assert file.read() == "inside"
        elif number % 4 == 1:
            box.open(f"a/new{number}", "w").close()
        elif number % 4 == 2:
            assert "x" in box.listdir("a")
        else:
            box.mkdir(f"a/folder{number}")

    done, refused = race(swap, work)
    assert done and refused
    assert os.listdir(top + "/share-secret") == ["x"]
    assert open(top + "/share-secret/x").read() == "secret"


def test_race_file_swapped_for_a_link_or_a_twin_is_never_written_through(top, box):
    os.symlink(top + "/share-secret/x", top + "/link")
    os.link(top + "/share-secret/x", top + "/twin")
    with open(top + "/plain", "w") as file:
        file.write("inside")
    counter = iter(range(10**9))
    target = box.root + "/f"

    def swap():
        for name in ("link", "plain", "twin", "plain"):
            os.link(top + "/" + name, top + "/next", follow_symlinks=False)
            os.rename(top + "/next", target)
            if name == "plain":
                os.unlink(target)

    def work():
        with box.open("f", ("w", "a", "r+")[next(counter) % 3]) as file:
            file.write("overwritten")

    done, refused = race(swap, work)
    assert done and refused
    assert open(top + "/share-secret/x").read() == "secret"


# Without a sandbox


def test_check_text_refuses_only_what_no_file_system_takes():
    for text in ("x", "../x", "/etc/passwd", "~/x", "n" * 255, "a/" * 5000, "\udcff", "C:\\x", " ", ".", "caf\u00e9"):
        assert nk._paths_check_text(text) is None
    for text, message in [
        ("", 'path "" is empty; give the name of a file or folder'),
        ("\0", 'path "\\u0000" holds a NUL character, which no file name can have; leave it out'),
        ("x/" + "n" * 256 + "/y", f"path {nk._json_show('x/' + 'n' * 256 + '/y')} has a part of 256 bytes, "
                                  "and a file name holds at most 255; shorten it"),
        ("\ud800", 'path "\\ud800" holds a character that no file name can have here; leave it out'),
    ]:
        assert refusal(nk._paths_check_text, text) == message


def test_unconfined_says_its_name():
    assert repr(nk.UNCONFINED) == "UNCONFINED"


def test_messages_are_one_safe_line(box):
    for text in ("../\x1b[2J\u202e\n\u2028x", "../" + "\udcff" * 9, "../" + "y" * 200):
        message = refusal(box.resolve, text, box.root)
        assert message.isprintable() and len(message) < 300 + len(box.root)


# Names


def test_pro_04_profile_names_that_are_paths():
    for name in ("../../x", "....//x", "a/b", "a\\b", "", ".", "..", "x\0y", "-rf", "x\n", ".x", "_x", "x" * 65,
                 "caf\u00e9", "\u0661", "nul", "Con", "LPT1.json", "COM\u00b9", "x.", "x ", "a:b", "~"):
        assert not nk._paths_is_name(name), name
    for name in ("ok..name", "prod", "A", "0", "eu-west_1.v2", "x" * 64, "console", "nul1", "com10"):
        assert nk._paths_is_name(name), name


# Windows


@pytest.mark.parametrize(
    "text",
    ["x", "a/b.txt", "a\\b", "..", "..\\x", "./x", ".hidden", "\\x", "console.txt", "com10", "nul1", "a b",
     "caf\u00e9", ""],
)
def test_windows_plain_paths(text):
    assert nk._paths_windows_fault(text) is None


@pytest.mark.parametrize(
    "fault, texts",
    [
        ("names a drive or a stream", ["C:\\Windows\\x", "C:x", "a.txt:stream", "a.txt::$DATA", ":", "nul:"]),
        (
            "names a network share or a device",
            ["\\\\srv\\s", "//srv/s", "\\/srv", "\\\\?\\C:\\x", "\\\\.\\pipe\\x", "\\??\\C:\\x"],
        ),
        (
            "names a device of Windows",
            ["nul", "NUL.txt", "a/CoN", "a\\aux.h", "com1.tar.gz", "LPT9", "COM\u00b9", "nul .txt", "CONIN$", "prn/x",
             "\uff2e\uff35\uff2c", "com0"],
        ),
        (
            "has a part that ends in a dot or a blank, which Windows drops",
            ["x.", "x /y", "...", ".. /x", "a/.. ./b", "....//x", "\u00e9 "],
        ),
        ("holds a character that Windows allows in no name", ["a*", "a?", "a\nb", '"x"', "<", "a|b", "\x1f"]),
    ],
)
def test_windows_faults(fault, texts):
    for text in texts:
        assert nk._paths_windows_fault(text) == fault, text


def test_windows_refusals(box, monkeypatch):
    monkeypatch.setattr(os, "name", "nt")
    message = refusal(box.resolve, "nul", box.root)
    monkeypatch.undo()
    assert message == 'path "nul" names a device of Windows; give a plain path inside the sandbox'
