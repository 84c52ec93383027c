"""HDF5 files of a store as ordinary .h5 byte images, made when they are first read, without copies of raw data; and
.h5
files put there as files of the store."""

import errno
import json
import os
import pathlib
import subprocess
import sys

import pytest
from test_data import connector, environment, nothing_stays  # noqa: F401 - a fixture that works by being here
from test_foreign import native, program, run  # noqa: F401 - a fixture
from test_interchange import cenote, library, without_sizes  # noqa: F401 - a fixture

files_of = pytest.importorskip("cenote", reason="the Python module is not built")


@pytest.fixture
def shown(cenote, tmp_path, monkeypatch):  # noqa: F811
    """The files of the store, as seen from Python; paths of HDF5 files are passed unchanged."""
    monkeypatch.setenv("CENOTE_BIN", connector()[1])
    monkeypatch.setenv("CENOTE_HDF5_LIBRARY", library())
    with files_of.open(tmp_path / "store") as store:
        yield Shown(store, tmp_path)


class Shown:
    """HDF5 files of a test's folder as byte images."""

    def __init__(self, store, folder):
        self.files = store.files
        self.folder = folder

    def path(self, name):
        return f"/hdf5{self.folder}/{name}"

    def open(self, name, mode="rb"):
        return self.files.open(self.path(name), mode)

    def copy(self, name, to):
        """Writes the image's bytes to a file that no store knows."""
        with self.open(name) as image:
            (self.folder / to).write_bytes(image.read())
        return self.folder / to


def test_a_file_of_the_store_is_read_by_hdf5_without_a_plugin(shown, tmp_path):
    program(tmp_path / "store", tmp_path, "make", "ours.h5", "store")
    want = program(tmp_path / "store", tmp_path, "tell", "ours.h5")
    shown.copy("ours.h5", "plain.h5")
    assert want.count("\n") > 200
    assert without_sizes(program(None, tmp_path, "tell", "plain.h5")) == without_sizes(want)


def test_an_imported_file_with_a_user_block_comes_out_the_same(native, cenote, shown, tmp_path):  # noqa: F811
    want = program(None, tmp_path, "tell", native)
    cenote("import", "native.h5", "ours.h5")
    plain = shown.copy("ours.h5", "plain.h5")
    assert program(None, tmp_path, "tell", "plain.h5") == want
    assert plain.read_bytes()[:512] == native.read_bytes()[:512]


LARGE = """
import h5py, numpy as np
with h5py.File("large.h5", "w") as f:
    f["run"] = np.arange(1 << 20, dtype="f8")
    f.create_dataset("chunks", data=np.arange(1 << 20, dtype="f8").reshape(1024, 1024), chunks=(64, 128))
    rng = np.random.default_rng(1)
    f.create_dataset("packed", data=rng.integers(0, 9, 1 << 20), chunks=(1 << 14,), compression="gzip", shuffle=True)
    f.create_dataset("filled", (1 << 20,), "f8", fillvalue=3)[5] = 1
    f.create_dataset("holes", (1 << 28,), "f8", chunks=(1 << 16,))[1 << 20] = 1
"""


def test_raw_data_are_not_copied_for_it(shown, cenote, tmp_path):  # noqa: F811
    run(tmp_path / "store", tmp_path, "-c", LARGE)
    (said,) = json.loads(cenote("--json", "images"))
    assert said["path"] == shown.path("large.h5")
    # All of `run` and `chunks`, the written block of `filled`, the packed data; but not the fill values beside it (see
    # the docs).
    assert said["shared_bytes"] > 20 << 20 and said["written_bytes"] < 5 << 20, said
    shown.copy("large.h5", "plain.h5")
    check = """
import h5py, numpy as np
with h5py.File("plain.h5") as f:
    assert (f["run"][:] == np.arange(1 << 20)).all() and (f["chunks"][:].ravel() == np.arange(1 << 20)).all()
    assert (f["packed"][:] == np.random.default_rng(1).integers(0, 9, 1 << 20)).all()
    filled = np.full(1 << 20, 3.0); filled[5] = 1
    assert (f["filled"][:] == filled).all()
    assert f["holes"][1 << 20] == 1 and f["holes"].shape == (1 << 28,) and not f["holes"][-1000:].any()
"""
    run(None, tmp_path, "-c", check)


def value(shown, name="a.h5"):
    """The value of dataset `x`, read from the image by native HDF5."""
    shown.copy(name, "value.h5")
    return int(run(None, shown.folder, "-c", "import h5py; print(h5py.File('value.h5')['x'][0])"))


def test_a_change_is_seen_at_the_next_look_and_not_by_who_has_it_open(shown, tmp_path):
    change = "import h5py\nwith h5py.File('a.h5', 'a') as f: f.require_dataset('x', (10,), 'i4')[:] = {}"
    run(tmp_path / "store", tmp_path, "-c", change.format(1))
    assert value(shown) == 1
    with shown.open("a.h5") as opened:
        first = shown.files.stat(shown.path("a.h5"))
        before = opened.read()
        for number in range(2, 6):
            run(tmp_path / "store", tmp_path, "-c", change.format(number))
            assert value(shown) == number
        opened.seek(0)
        assert opened.read() == before
        assert shown.files.stat(shown.path("a.h5")).st_ino != first.st_ino
    assert value(shown) == 5
    again = shown.files.stat(shown.path("a.h5"))
    assert shown.files.stat(shown.path("a.h5")).st_ino == again.st_ino  # nothing changed: no new image


def test_names_come_and_go_with_the_files(shown, tmp_path):
    for name in ("a.h5", "sub/b.h5", "sub/ä c.h5"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        run(tmp_path / "store", tmp_path, "-c", f"import h5py; h5py.File({name!r}, 'w')['x'] = [1]")
    assert sorted(shown.files.listdir(shown.path(""))) == ["a.h5", "sub"]
    assert sorted(shown.files.listdir(shown.path("sub"))) == ["b.h5", "ä c.h5"]
    (tmp_path / "sub/b.h5").unlink()
    assert shown.files.listdir(shown.path("sub")) == ["ä c.h5"]
    with pytest.raises(FileNotFoundError):
        shown.open("sub/b.h5")
    (tmp_path / "sub/ä c.h5").unlink()
    assert shown.files.listdir(shown.path("")) == ["a.h5"]


def test_images_are_read_only(shown, tmp_path):
    run(tmp_path / "store", tmp_path, "-c", "import h5py; h5py.File('a.h5', 'w')['x'] = [7]")
    at = shown.path("a.h5")
    for refused in (
        lambda: shown.open("a.h5", "wb"),
        lambda: shown.open("a.h5", "r+b"),
        lambda: shown.files.remove(at),
        lambda: shown.files.rename(at, shown.path("b.h5")),
        lambda: shown.files.truncate(at, 0),
        lambda: shown.files.chmod(at, 0o777),
    ):
        with pytest.raises(OSError) as refusal:
            refused()
        assert refusal.value.errno == errno.EROFS
    assert value(shown) == 7


def put(shown, name, to):
    with shown.open(to, "wb") as image:
        image.write((shown.folder / name).read_bytes())


def test_a_file_that_was_put_there_is_a_file_of_the_store(native, shown, tmp_path):  # noqa: F811
    want = program(None, tmp_path, "tell", native)
    shown.files.makedirs(shown.path(""))
    put(shown, "native.h5", "put.h5")
    assert not (tmp_path / "put.h5").exists()
    assert without_sizes(program(tmp_path / "store", tmp_path, "tell", "put.h5")) == without_sizes(want)
    assert (tmp_path / "put.h5").exists()  # its stub
    code = "import h5py\nwith h5py.File('put.h5', 'r+') as f: f['added'] = [1, 2]; f['plain'][0, 0] = -5"
    run(tmp_path / "store", tmp_path, "-c", code)
    shown.copy("put.h5", "plain.h5")
    code = "import h5py\nwith h5py.File('plain.h5') as f: print(f['added'][:].tolist(), f['plain'][0, 0])"
    assert run(None, tmp_path, "-c", code) == "[1, 2] -5.0\n"
    with pytest.raises(OSError):
        put(shown, "native.h5", "put.h5")  # remove the HDF5 file first


def test_what_was_put_there_and_is_no_hdf5_file_says_so(shown, tmp_path):
    shown.files.makedirs(shown.path(""))
    (tmp_path / "text").write_bytes(b"no HDF5" * 100)
    put(shown, "text", "text.h5")
    code = """
import h5py
try:
    h5py.File("text.h5")
except OSError as error:
    assert "signature" in str(error), error
else:
    raise AssertionError
try:
    h5py.File("nothing.h5")
except FileNotFoundError:
    pass
with h5py.File("new.h5", "a") as f:
    f["x"] = [3]
"""
    run(tmp_path / "store", tmp_path, "-c", code)
    with shown.open("text.h5") as image:
        assert image.read() == b"no HDF5" * 100
    assert value(shown, "new.h5") == 3


def test_many_programs_open_what_was_put_there_at_once(shown, tmp_path):
    run(None, tmp_path, "-c", "import h5py, numpy as np; h5py.File('n.h5', 'w')['x'] = np.arange(100000)")
    shown.files.makedirs(shown.path(""))
    put(shown, "n.h5", "put.h5")
    code = "import h5py; print(h5py.File('put.h5')['x'][:].sum())"
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            env=environment(tmp_path / "store"),
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    assert [one.communicate(timeout=120)[0] for one in running] == ["4999950000\n"] * 4


def test_a_staged_file_is_shown_as_it_is(native, cenote, shown):  # noqa: F811
    cenote("stage", "native.h5", "staged.h5")
    with shown.open("staged.h5") as image:
        assert image.read() == native.read_bytes()


def test_somebody_writes_all_the_time(shown, tmp_path):
    code = """
import h5py, numpy as np, time
end = time.time() + 6
with h5py.File("busy.h5", "w") as f:
    f["x"] = np.zeros(1000, "i8"); f["y"] = np.zeros(1000, "i8")
    print(flush=True)
    n = 0
    while time.time() < end:
        n += 1
        f["x"][:] = n
        f["y"][:] = n
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment(tmp_path / "store"), stdout=subprocess.PIPE
    ) as writer:
        writer.stdout.readline()
        seen = []
        while writer.poll() is None:
            shown.copy("busy.h5", "plain.h5")
            code = (
                "import h5py; f = h5py.File('plain.h5'); x, y = f['x'][:], f['y'][:]; "
                "print(x.min(), x.max(), y.min(), y.max())"
            )
            numbers = list(map(int, run(None, tmp_path, "-c", code).split()))
            # Each write is whole, and one state of the file: `y` is at most one write behind `x`.
            assert numbers[0] == numbers[1] and numbers[2] == numbers[3] and numbers[0] - numbers[2] in (0, 1), numbers
            seen.append(numbers[0])
        assert len(set(seen)) > 1 and seen == sorted(seen)


def test_without_an_hdf5_library_names_are_there_and_what_is_opened_says_why(tmp_path, monkeypatch):
    run(tmp_path / "store", tmp_path, "-c", "import h5py; h5py.File('a.h5', 'w')['x'] = [7]")
    monkeypatch.setenv("CENOTE_BIN", connector()[1])
    monkeypatch.delenv("CENOTE_HDF5_LIBRARY", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))  # no Python with a libhdf5
    with files_of.open(tmp_path / "store") as store:
        shown = Shown(store, tmp_path)
        assert shown.files.listdir(shown.path("")) == ["a.h5"]
        for _ in range(2):
            with pytest.raises(OSError) as refusal:
                shown.open("a.h5")
            assert refusal.value.errno == errno.EIO
            assert "HDF5 library" in str(refusal.value.__cause__), refusal.value.__cause__


WAITER = """
import os, sys, cenote
with cenote.open(sys.argv[1]) as store:
    if os.fork() == 0:
        os._exit(0)
    with store.files.open(sys.argv[2], "rb") as image:
        assert image.read(8) == bytes([0x89]) + b"HDF" + bytes([13, 10, 26, 10])
    os.wait()
    try:
        os.wait()  # would last as long as a child that goes on
    except ChildProcessError:
        print("none", flush=True)
"""


def test_who_makes_images_is_no_child_that_is_waited_for(shown, tmp_path):
    run(tmp_path / "store", tmp_path, "-c", "import h5py; h5py.File('a.h5', 'w')['x'] = [7]")
    words = [sys.executable, "-c", WAITER, str(tmp_path / "store"), shown.path("a.h5")]
    assert subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout == "none\n"


def mounted():
    return os.geteuid() == 0 and pathlib.Path("/dev/fuse").exists()


@pytest.mark.skipif(not mounted(), reason="mounting needs root and /dev/fuse")
def test_h5py_opens_it_on_the_mount(cenote, tmp_path):  # noqa: F811
    program(tmp_path / "store", tmp_path, "make", "ours.h5", "store")
    want = program(tmp_path / "store", tmp_path, "tell", "ours.h5")
    (tmp_path / "mnt").mkdir()
    cenote("mount", str(tmp_path / "store"), str(tmp_path / "mnt"))
    try:
        at = f"{tmp_path}/mnt/hdf5{tmp_path}/ours.h5"
        assert without_sizes(program(None, tmp_path, "tell", at)) == without_sizes(want)
        change = "import h5py\nwith h5py.File('ours.h5', 'r+') as f: f['plain'][0, 0] = 99"
        run(tmp_path / "store", tmp_path, "-c", change)
        code = f"import h5py; print(h5py.File({at!r})['plain'][0, 0])"
        assert run(None, tmp_path, "-c", code) == "99.0\n"
    finally:
        cenote("unmount", str(tmp_path / "mnt"))
