"""Directories and files by path: like `os` and the built-in `open`."""

import errno
import multiprocessing
import os
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import cenote
import numpy as np
import pytest
from small import MIB, tiers


@pytest.fixture
def files(store: cenote.Store) -> cenote.Files:
    store.files.mkdir("/c")
    return store.files


def test_directories(files: cenote.Files) -> None:
    files.makedirs("/c/a/b/d")
    files.makedirs("/c/a/b/d", exist_ok=True)
    with pytest.raises(FileExistsError):
        files.makedirs("/c/a/b/d")
    files.put("/c/a/file", b"12345")
    assert files.listdir("/c/a") == ["b", "file"]
    assert [(name, what.is_dir(), what.st_size) for name, what in files.scandir("/c/a") if name == "file"] == [
        ("file", False, 5)
    ]
    assert stat.S_ISDIR(files.stat("/c/a").st_mode)
    assert files.listdir("/") == ["c"]
    with pytest.raises(OSError, match="not empty") as raised:
        files.rmdir("/c/a")
    assert raised.value.errno == errno.ENOTEMPTY
    files.rmdir("/c/a/b/d")
    files.remove_all("/c/a")
    files.remove_all("/c/a")
    assert files.listdir(b"/c") == []
    assert files.listdir(PurePosixPath("/c")) == []


def test_a_copy_is_there_at_once_or_changes_nothing(files: cenote.Files) -> None:
    value = bytes(range(256)) * 9000
    files.put("/c/a", value)
    files.copy("/c/a", "/c/made/b")
    assert files.open("/c/made/b", "rb").read() == value
    files.put("/c/a", b"")
    files.copy("/c/a", "/c/made/b")
    assert files.stat("/c/made/b").st_size == 0
    files.mkdir("/c/dir")
    before = files.stat("/c").st_mtime_ns
    for target, kind, replace in ("/c/dir", IsADirectoryError, True), ("/c/made/b", FileExistsError, False):
        with pytest.raises(kind):
            files.copy("/c/a", target, replace=replace)
    with pytest.raises(FileNotFoundError):
        files.copy("/c/none", "/c/b")
    with pytest.raises(IsADirectoryError):
        files.copy("/c/dir", "/c/b")
    assert (files.listdir("/c"), files.stat("/c").st_mtime_ns) == (["a", "dir", "made"], before)


@pytest.mark.parametrize(
    ("number", "kind", "call"),
    [
        (errno.ENOENT, FileNotFoundError, lambda files: files.stat("/c/nothing")),
        (errno.ENOENT, FileNotFoundError, lambda files: files.open("/c/nothing")),
        (errno.ENOENT, FileNotFoundError, lambda files: files.open("/c/no/file", "w")),
        (errno.ENOTDIR, NotADirectoryError, lambda files: files.listdir("/c/file")),
        (errno.ENOTDIR, NotADirectoryError, lambda files: files.stat("/c/file/below")),
        (errno.EISDIR, IsADirectoryError, lambda files: files.open("/c/dir", "w")),
        (errno.EEXIST, FileExistsError, lambda files: files.open("/c/file", "x")),
        (errno.EEXIST, FileExistsError, lambda files: files.rename("/c/file", "/c/other", replace=False)),
        (errno.EEXIST, FileExistsError, lambda files: files.put("/c/file", b"", replace=False)),
        (errno.ENAMETOOLONG, OSError, lambda files: files.stat("/c/" + "x" * 300)),
        (errno.ENODATA, OSError, lambda files: files.getxattr("/c/file", "user.none")),
        (errno.ELOOP, OSError, lambda files: files.stat("/c/loop")),
        (errno.EXDEV, OSError, lambda files: files.rename("/c/file", "/d/file")),
    ],
)
def test_failures_have_their_numbers(files: cenote.Files, number: int, kind: type[OSError], call) -> None:  # type: ignore[no-untyped-def]
    for name in ("file", "other"):
        files.put(f"/c/{name}", name.encode())
    files.mkdir("/c/dir")
    files.mkdir("/d")
    files.symlink("loop", "/c/loop")
    with pytest.raises(kind) as raised:
        call(files)
    assert raised.value.errno == number
    assert raised.value.filename is not None
    assert files.open("/c/other").read() == "other"


def test_open_is_as_the_built_in_one(files: cenote.Files, tmp_path: Path) -> None:
    def same(mode: str, act) -> None:  # type: ignore[no-untyped-def]
        found = []
        for opener in (lambda: (tmp_path / "file").open(mode), lambda: files.open("/c/file", mode)):
            try:
                with opener() as file:
                    found.append(act(file))
            except (OSError, ValueError) as error:
                found.append((type(error), getattr(error, "errno", None)))
        assert found[0] == found[1], mode

    same("w", lambda f: (f.write("line 1\nzwei ä\n"), f.tell(), f.readable(), f.writable()))
    same("r", lambda f: (f.readline(), f.read(3), f.readlines(), f.read()))
    same("rb", lambda f: (f.seek(3), f.read(4), f.seek(-2, 1), f.read(1), f.seek(-3, 2), f.read(), f.tell()))
    same("rb", lambda f: f.write(b"x"))
    same("wb", lambda f: f.read())
    same("wb", lambda f: (f.write(b"0123456789"), f.seek(2), f.write(b"ab"), f.seek(20), f.write(b"end")))
    same("rb", lambda f: (f.read(),))
    same("r+b", lambda f: (f.read(3), f.write(b"XYZ"), f.seek(0), f.read(), f.truncate(5), f.seek(0), f.read()))
    same("ab", lambda f: (f.write(b"more"), f.seek(0), f.write(b"and more")))
    same("rb", lambda f: (f.readinto(memoryview(bytearray(100))), f.read(5), f.peek()))
    same("a+", lambda f: (f.seek(0), f.read(), f.write("!"), f.seek(0), f.read()))
    same("x", lambda f: None)
    same("w+b", lambda f: (f.write(b"abc"), f.seek(1), f.read(), f.tell()))
    same("rb", lambda f: f.seek(-1))
    with pytest.raises(ValueError, match="mode"):
        files.open("/c/file", "rw")
    with files.open("/c/file", "rb", buffering=0) as raw, pytest.raises(ValueError, match="closed"):
        raw.close()
        raw.read()


def test_files_are_made_where_links_lead(files: cenote.Files) -> None:
    files.mkdir("/c/d")
    files.symlink("d/nothing", "/c/link")
    files.symlink("link", "/c/link2")
    with files.open("/c/link2", "wb") as out:
        out.write(b"x")
    assert files.listdir("/c/d") == ["nothing"] and files.stat("/c/d/nothing").st_size == 1
    with pytest.raises(FileExistsError):
        files.open("/c/link2", "xb")
    files.symlink("self", "/c/self")
    with pytest.raises(OSError, match=r"(?i)symbolic links"):
        files.open("/c/self", "wb")
    files.symlink("nowhere", "/c/lost")
    for make in (lambda: files.makedirs("/c/lost/e"), lambda: files.put("/c/lost/e/f", b"")):
        begun = time.monotonic()
        with pytest.raises(FileExistsError):
            make()
        assert time.monotonic() - begun < 5


def test_links_times_modes_and_attributes(files: cenote.Files) -> None:
    files.put("/c/file", b"text")
    files.symlink("file", "/c/link")
    files.link("/c/file", "/c/hard")
    assert files.readlink("/c/link") == "file"
    assert files.open("/c/link").read() == "text"
    assert files.stat("/c/link", follow_symlinks=False).is_symlink()
    assert (files.stat("/c/hard").st_nlink, files.stat("/c/hard").st_ino) == (2, files.stat("/c/file").st_ino)
    files.chmod("/c/file", 0o640)
    files.utime("/c/file", (1_500_000_000_123_456_789, -5))
    found = files.stat("/c/file")
    assert (stat.S_IMODE(found.st_mode), found.st_atime_ns, found.st_mtime_ns) == (0o640, 1_500_000_000_123_456_789, -5)
    assert found.st_uid == os.geteuid()
    files.setxattr("/c/file", "user.unit", b"m/s")
    assert (files.listxattr("/c/file"), files.getxattr("/c/file", "user.unit")) == (["user.unit"], b"m/s")
    files.removexattr("/c/file", "user.unit")
    assert files.listxattr("/c/file") == []
    files.truncate("/c/file", 2)
    assert files.open("/c/hard").read() == "te"
    assert files.access("/c/file", 4)
    assert not files.access("/c/nothing", 0)
    strange = os.fsdecode(b"\xff\xfe name")
    files.put("/c/" + strange, b"x")
    assert strange in files.listdir("/c")
    assert files.space().total_bytes >= files.space().free_bytes > 0


def test_raw_files(files: cenote.Files) -> None:
    file = files.open_raw("/c/file", "w+")
    assert file.pwrite(b"0123456789", 5) == 10
    assert (file.size(), file.pread(100, 3), file.pread(5, 100)) == (15, b"\0\0" + b"0123456789", b"")
    buffer = bytearray(4)
    assert (file.preadinto(buffer, 6), buffer) == (4, b"1234")
    other = files.open_raw("/c/other", "x+")
    assert other.copy_from(file, 5, 0, 10) == 10
    assert other.pread(10, 0) == b"0123456789"
    ends = files.open_raw("/c/other", "a")
    assert (ends.append(b"!"), other.size()) == (10, 11)
    file.sync()
    file.close()
    file.close()
    assert file.closed
    with pytest.raises(ValueError, match="closed"):
        file.size()
    with pytest.raises(OSError) as raised:
        files.open_raw("/c/other").pwrite(b"x", 0)
    assert raised.value.errno == errno.EBADF


def test_a_view_is_the_bytes_and_stays_as_it_was(files: cenote.Files) -> None:
    data = np.arange(MIB // 8, dtype="u8")
    files.put("/c/data", data)
    with files.open("/c/data", "rb", buffering=0) as file:
        view = file.view()
        assert view.by_reference
        found = np.frombuffer(view, "u8")
        np.testing.assert_array_equal(found, data)
        part = np.frombuffer(file.view(80, 16), "u8")
    with files.open("/c/data", "r+b") as file:
        file.write(bytes(MIB))
    files.remove("/c/data")
    np.testing.assert_array_equal(found, data)
    assert part.tolist() == [10, 11]


@pytest.fixture
def large(folder: Path) -> Iterator[cenote.Files]:
    with cenote.open(folder / "store", tiers=tiers(folder, memory=1536 * MIB)) as store:
        yield store.files


def test_a_view_over_more_than_a_segment_is_no_copy(large: cenote.Files) -> None:
    """Memory tiers have segments of 1 GiB: this range spans the end of one and the beginning of the next."""
    piece = np.arange(8 * MIB, dtype="u8")
    large.makedirs("/c")
    with large.open("/c/large", "xb", buffering=0) as file:
        for i in range(17):
            file.write(piece + i)
    with large.open("/c/large", "rb", buffering=0) as file:
        view = file.view()
    assert view.by_reference
    found = np.frombuffer(view, "u8").reshape(17, -1)
    for i in range(17):
        assert (found[i, 0], found[i, -1]) == (i, 8 * MIB - 1 + i)
        assert (found[i, ::4099] == piece[::4099] + i).all()
    assert_is_the_stores_memory(found)


def assert_is_the_stores_memory(array: np.ndarray) -> None:
    """Every page of the array is in one of the store's segments: by address, whatever the view reports."""
    at, end = array.__array_interface__["data"][0], array.__array_interface__["data"][0] + array.nbytes
    for line in Path("/proc/self/maps").read_text().splitlines():
        words = line.split(maxsplit=5)
        begin, until = (int(word, 16) for word in words[0].split("-"))
        if begin <= at < until:
            assert "s" in words[1] and words[5].startswith("/dev/shm/cenote-"), line
            at = until
    assert at >= end


def append_lines(files: cenote.Files, who: int) -> None:
    for i in range(50):
        with files.open("/c/log", "ab", buffering=0) as file:
            file.write(f"{who} {i}\n".encode())


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork")
def test_threads_and_forked_children(folder: Path) -> None:
    with cenote.open(folder / "store", mode="daemon", tiers=tiers(folder)) as store:
        store.files.put("/c/log", b"")
        threads = [threading.Thread(target=append_lines, args=(store.files, i)) for i in range(2)]
        children = [
            multiprocessing.get_context("fork").Process(target=append_lines, args=(store.files, i)) for i in (2, 3)
        ]
        for worker in (*children, *threads):
            worker.start()
        for worker in (*children, *threads):
            worker.join()
        assert [child.exitcode for child in children] == [0, 0]
        lines = store.files.open("/c/log").read().splitlines()
        assert sorted(lines) == sorted(f"{who} {i}" for who in range(4) for i in range(50))
    cenote.stop(folder / "store")
