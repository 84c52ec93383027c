"""fsspec's own file system tests, and what they leave out: URLs, transactions, forks, renaming, HDF5 files."""

import datetime
import multiprocessing
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cenote
import pytest
from hdf5_programs import run
from small import tiers

fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")
from fsspec.tests import abstract  # noqa: E402


class CenoteFixtures(abstract.AbstractFixtures):
    @pytest.fixture(scope="class")
    @classmethod
    def fs(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
        folder = tmp_path_factory.mktemp("fsspec")
        with cenote.open(folder / "store", mode="daemon", tiers=tiers(folder)):
            yield fsspec.filesystem("cenote", store=str(folder / "store"))
        cenote.stop(folder / "store")
        cenote.destroy(folder / "store", force=True)

    @pytest.fixture
    def fs_path(self) -> str:
        return "bucket"

    @pytest.fixture
    def fs_target(self, fs: Any, fs_join: Any, fs_path: str) -> Iterator[str]:
        target = fs_join(fs_path, "target")
        yield target
        if fs.exists(target):
            fs.rm(target, recursive=True)

    @pytest.fixture
    def supports_empty_directories(self) -> bool:
        return True


class TestCopy(abstract.AbstractCopyTests, CenoteFixtures):
    pass


class TestGet(abstract.AbstractGetTests, CenoteFixtures):
    pass


class TestOpen(abstract.AbstractOpenTests, CenoteFixtures):
    pass


class TestPipe(abstract.AbstractPipeTests, CenoteFixtures):
    pass


class TestPut(abstract.AbstractPutTests, CenoteFixtures):
    pass


@pytest.fixture
def fs(folder: Path) -> Iterator[Any]:
    with cenote.open(folder / "store", mode="daemon", tiers=tiers(folder)):
        yield fsspec.filesystem("cenote", store=str(folder / "store"), skip_instance_cache=True)
    cenote.stop(folder / "store")


def test_urls(fs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"cenote://{fs.store_dir}//results/a/b.txt"
    with fsspec.open(url, "w") as file:
        file.write("text")
    assert fs.cat_file("results/a/b.txt") == b"text"
    assert fs.cat_file("cenote://results/a/b.txt") == b"text"
    assert fs.unstrip_protocol("results/a/b.txt") == url
    found, path = fsspec.url_to_fs(url)
    assert (type(found), found.store_dir, path) == (type(fs), fs.store_dir, "results/a/b.txt")
    with fsspec.open("cenote://results/a/b.txt", store=fs.store_dir) as file:
        assert file.read() == b"text"
    monkeypatch.setenv("CENOTE_STORE", fs.store_dir)
    with fsspec.open("cenote://results/a/b.txt", skip_instance_cache=True) as file:
        assert file.read() == b"text"


def test_reading_and_writing(fs: Any) -> None:
    fs.pipe({"c/one": b"0123456789", "c/d/two": b"abc"})
    assert fs.cat("c", recursive=True, on_error="omit") == {"c/one": b"0123456789", "c/d/two": b"abc"}
    assert fs.cat_file("c/one", 2, -2) == b"234567"
    assert fs.cat_ranges(["c/one", "c/d/two"], [0, 1], [3, 2]) == [b"012", b"b"]
    assert bytes(fs.view("c/one", 3, 6)) == b"345"
    with fs.open("c/one", "ab") as file:
        file.write(b"!")
    with fs.open("c/one", "r+b") as file:
        file.seek(1)
        file.write(b"X")
        file.seek(0)
        assert file.read() == b"0X23456789!"
    with fs.open("c/one", "rb") as file:
        assert (file.size, file.read(2), file.seek(-1, 2), file.read()) == (11, b"0X", 10, b"!")
    with fs.open("c/text.gz", "wt", compression="infer") as file:
        file.write("packed")
    with fs.open("c/text.gz", "rt", compression="infer") as file:
        assert file.read() == "packed"
    with pytest.raises(FileExistsError):
        fs.open("c/one", "xb")
    with pytest.raises(FileExistsError):
        fs.pipe_file("c/one", b"", mode="create")
    assert fs.find("c") == ["c/d/two", "c/one", "c/text.gz"]
    assert fs.glob("c/*") == ["c/d", "c/one", "c/text.gz"]
    assert fs.glob("c/**/t*") == ["c/d/two", "c/text.gz"]
    assert fs.du("c") == fs.size("c/one") + 3 + fs.size("c/text.gz")
    assert sorted(fs.ls("", detail=False)) == ["c"]
    assert fs.info("c")["type"] == "directory"
    assert next(iter(fs.walk("c")))[1:] == (["d"], ["one", "text.gz"])
    for missing in ("c/nothing", "nothing", "c/one/below"):
        assert not fs.exists(missing)
        with pytest.raises((FileNotFoundError, NotADirectoryError)) as raised:
            fs.cat_file(missing)
        assert raised.value.errno
        with pytest.raises((FileNotFoundError, NotADirectoryError)):
            fs.ls(missing)


def test_times(fs: Any) -> None:
    begin = datetime.datetime.now(tz=datetime.UTC) - datetime.timedelta(seconds=1)
    fs.touch("c/a")
    created, modified = fs.created("c/a"), fs.modified("c/a")
    fs.pipe("c/b", b"x")
    fs.touch("c/a", truncate=False)
    end = datetime.datetime.now(tz=datetime.UTC) + datetime.timedelta(seconds=1)
    assert begin < created <= modified <= fs.modified("c/a") < end


def test_moving_is_renaming(fs: Any) -> None:
    fs.pipe({"c/d/a": b"1", "c/d/e/b": b"2"})
    number = fs.info("c/d/a")["ino"]
    fs.mv("c/d/a", "c/new/place")
    assert fs.info("c/new/place")["ino"] == number
    fs.mv("c/d", "c/f", recursive=True)
    assert fs.find("c") == ["c/f/e/b", "c/new/place"]
    fs.mv("c/f/e/b", "other/b")  # another container: copied
    assert fs.cat_file("other/b") == b"2"
    assert not fs.exists("c/f/e/b")


def test_transactions_are_whole_or_nothing(fs: Any) -> None:
    with fs.transaction:
        for name in ("one", "two"):
            with fs.open(f"c/{name}", "wb") as file:
                file.write(name.encode())
        assert not fs.exists("c/one")
    assert fs.cat_file("c/one") + fs.cat_file("c/two") == b"onetwo"
    with pytest.raises(RuntimeError), fs.transaction:
        with fs.open("c/one", "wb") as file:
            file.write(b"changed")
        raise RuntimeError
    assert fs.cat_file("c/one") == b"one"
    assert fs.find("c") == ["c/one", "c/two"]


def test_a_transaction_puts_no_file_over_a_directory_and_leaves_nothing(fs: Any) -> None:
    fs.makedirs("c/d/e")
    fs.files.utime("/c/d", ns=(10**18, 10**18))
    with pytest.raises(IsADirectoryError, match=r"'c/d/e'"), fs.transaction:
        fs.open("c/d/e", "wb")
    # Its directory is unchanged: nothing was written beside its place.
    assert fs.find("c", withdirs=True) == ["c", "c/d", "c/d/e"] and fs.files.stat("/c/d").st_mtime_ns == 10**18
    with pytest.raises(IsADirectoryError), fs.transaction, fs.open("c/d/f", "wb") as file:
        file.write(b"1")
        fs.makedirs("c/d/f")
    assert fs.find("c", withdirs=True) == ["c", "c/d", "c/d/e", "c/d/f"]


def read_elsewhere(fs: Any, path: str, value: bytes) -> bytes:
    fs.pipe_file(path + ".answer", value)
    return fs.cat_file(path)


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork")
def test_other_processes(fs: Any, method: str) -> None:
    fs.pipe_file("c/a", b"from the parent")
    again = pickle.loads(pickle.dumps(fs))
    assert (again.store_dir, again.cat_file("c/a")) == (fs.store_dir, b"from the parent")
    with multiprocessing.get_context(method).Pool(2) as pool:
        found = pool.starmap(read_elsewhere, [(fs, "c/a", b"1"), (fs, "c/a", b"2")])
    assert found == [b"from the parent"] * 2
    assert fs.cat_file("c/a.answer") in (b"1", b"2")


def test_a_whole_store_is_not_removed(fs: Any) -> None:
    fs.pipe_file("c/a", b"x")
    with pytest.raises(PermissionError):
        fs.rm("", recursive=True)
    with pytest.raises(OSError):
        fs.pipe_file("top", b"files at the top are refused")
    assert fs.cat_file("c/a") == b"x"


def test_hdf5_files_are_directories(fs: Any, folder: Path) -> None:
    run(Path(fs.store_dir), folder, 'h5py.File("a.h5", "w")["g/x"] = np.arange(5, dtype="i4")')
    top = f"hdf5:{folder.resolve()}/a.h5"
    assert fs.ls("", detail=False) == ["hdf5", "hdf5:"], "as byte images, and as directories"
    assert fs.ls(f"hdf5:{folder.resolve()}", detail=False) == [top]
    assert fs.find(top) == [f"{top}/g/x/c/0", f"{top}/g/x/zarr.json", f"{top}/g/zarr.json", f"{top}/zarr.json"]
    assert fs.cat_file(f"{top}/g/x/c/0") == bytes([0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0])
    assert (fs.size(f"{top}/g/x/c/0"), fs.isdir(f"{top}/g/x")) == (20, True)
    with fs.open(f"{top}/g/x/c/0", "wb") as file:
        file.write(bytes(20))
    assert run(Path(fs.store_dir), folder, 'print(h5py.File("a.h5")["g/x"][:].sum())') == "0\n"
    fs.rm(f"{top}/g/x", recursive=True)
    assert run(Path(fs.store_dir), folder, 'print(list(h5py.File("a.h5")["g"]))') == "[]\n"
    assert not fs.exists(f"{top}/g/x/zarr.json")
    assert os.path.exists(folder / "a.h5")  # noqa: PTH110
