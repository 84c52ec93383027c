"""Every HDF5 dataset is a Zarr array, read and written by zarr-python, and the same to h5py."""

import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import cenote
import numpy as np
import pytest
from hdf5_programs import run
from small import tiers

zarr = pytest.importorskip("zarr", reason="zarr is not installed")
from cenote.zarr import Hdf5Store  # noqa: E402
from zarr.codecs.numcodecs import Fletcher32, Shuffle, Zlib  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*Numcodecs codecs are not in the Zarr version 3 specification"),
    pytest.mark.filterwarnings("ignore:.*does not have a Zarr V3 specification"),
]

MAKE = """
with h5py.File("a.h5", "w") as f:
    f.attrs["title"] = "hello"; f.attrs["n"] = np.int32(5); f.attrs["v"] = np.arange(3.0); f.attrs["flag"] = True
    f.attrs["words"] = ["a", "b"]; f.attrs["ref"] = f.ref
    f["plain"] = np.arange(1000.0).reshape(10, 100)
    f.create_dataset("z", data=np.arange(5000, dtype="i4").reshape(50, 100), chunks=(16, 32), compression="gzip",
                     shuffle=True, fletcher32=True)
    f.create_dataset("raw", data=np.arange(600, dtype=">f4").reshape(20, 30), chunks=(7, 7), maxshape=(None, 30),
                     fillvalue=7)
    f.create_dataset("lzf", data=np.arange(600, dtype="i8"), chunks=(100,), compression="lzf")
    f.create_dataset("scale", data=np.arange(600, dtype="i8"), chunks=(100,), scaleoffset=True)
    f.create_dataset("text", data=["a", "bcd", "", "ä"], dtype=h5py.string_dtype())
    f.create_dataset("vlen", (2,), dtype=h5py.vlen_dtype("i4"))
    f.create_dataset("fixed", data=np.array([b"ab", b"c"], dtype="S5"))
    f.create_dataset("bool", data=np.array([True, False]))
    f.create_dataset("complex", data=np.array([1 + 2j, 3], dtype="c16"))
    f.create_dataset("scalar", data=3.5)
    f.create_dataset("record", data=np.array([(1, 2.5)], dtype=[("a", "i4"), ("b", "f8")]))
    f.create_dataset("gaps", data=np.zeros(3, np.dtype({"names": ["a"], "formats": ["i4"], "offsets": [4]})))
    f.create_dataset("never", shape=(100,), dtype="f4", chunks=(10,), fillvalue=np.nan)
    f.create_dataset("run_with_fill", shape=(100,), dtype="f4", fillvalue=2)
    f["run_with_fill"][3:5] = 1
    kind = h5py.h5t.array_create(h5py.h5t.NATIVE_INT16, (3,))
    space = h5py.h5s.create_simple((2,))
    h5py.h5d.create(f.id, b"arrays", kind, space).write(space, space, np.arange(6, dtype="i2"), kind)
    f["group/inner/x"] = np.arange(10)
    f["soft"] = h5py.SoftLink("/group/inner/x")
    f["dangling"] = h5py.SoftLink("/nothing")
    f["outside"] = h5py.ExternalLink("b.h5", "/x")
    f["group/loop"] = f["group"]
    f["zarr.json"] = 1
"""

EXPECTED = {
    "plain": np.arange(1000.0).reshape(10, 100),
    "z": np.arange(5000, dtype="i4").reshape(50, 100),
    "raw": np.arange(600, dtype=">f4").reshape(20, 30),
    "lzf": np.arange(600, dtype="i8"),
    "text": np.array(["a", "bcd", "", "ä"], dtype=object),
    "fixed": np.array([b"ab", b"c"], dtype="S5"),
    "bool": np.array([True, False]),
    "complex": np.array([1 + 2j, 3], dtype="c16"),
    "arrays": np.arange(6, dtype="i2").reshape(2, 3),
    "scalar": np.array(3.5),
    "record": np.array([(1, 2.5)], dtype=[("a", "i4"), ("b", "f8")]),
    "never": np.full(100, np.nan, "f4"),
    "run_with_fill": np.array([2, 2, 2, 1, 1] + [2] * 95, "f4"),
    "soft": np.arange(10),
}


@pytest.fixture
def h5(folder: Path) -> Iterator[Callable[[str], str]]:
    """Runs h5py code on a store with the file `a.h5`; the file is at `folder / "a.h5"`."""
    with cenote.open(folder / "store", mode="daemon", tiers=tiers(folder)):

        def program(code: str) -> str:
            return run(folder / "store", folder, code)

        program(MAKE)
        yield program
    cenote.stop(folder / "store")


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_what_hdf5_wrote_is_read(h5: Callable[[str], str], folder: Path, zarr_format: int) -> None:
    store = Hdf5Store(folder / "a.h5", zarr_format=zarr_format, read_only=True)
    group = zarr.open_group(store, mode="r")
    assert dict(group.attrs) == {"title": "hello", "n": 5, "v": [0.0, 1.0, 2.0], "flag": True, "words": ["a", "b"]}
    assert sorted(name for name, _ in group.arrays()) == sorted(EXPECTED)
    for name, expected in EXPECTED.items():
        found = group[name][...]
        np.testing.assert_array_equal(found.astype(object) if name == "text" else found, expected, err_msg=name)
    np.testing.assert_array_equal(group["group/inner/x"][2:5], [2, 3, 4])
    assert group["z"].chunks == (16, 32)


def test_chunks_are_those_of_hdf5_byte_for_byte(h5: Callable[[str], str], folder: Path) -> None:
    said = h5("""
import hashlib
with h5py.File("a.h5") as f:
    for name, at in [("z", (16, 64)), ("z", (48, 96)), ("raw", (14, 28))]:
        mask, stored = f[name].id.read_direct_chunk(at)
        print(mask, hashlib.sha256(stored).hexdigest())
""").splitlines()
    import hashlib

    tree = Hdf5Store(folder / "a.h5")._tree
    for line, key in zip(said, ["z/c/1/2", "z/c/3/3", "raw/c/2/4"], strict=True):
        value = tree.get(key)
        assert value is not None
        assert line == f"0 {hashlib.sha256(value).hexdigest()}"
        assert tree.size(key) == len(value)


def test_what_has_no_counterpart_is_said(h5: Callable[[str], str], folder: Path) -> None:
    store = Hdf5Store(folder / "a.h5")
    notes = {path: (is_there, why) for path, is_there, why in store.notes()}
    assert {path for path, (is_there, _) in notes.items() if is_there} == {"lzf", "text"}
    assert {path for path, (is_there, _) in notes.items() if not is_there} == {
        "scale",
        "vlen",
        "gaps",
        "outside",
        "zarr.json",
    }
    assert "scaleoffset" in notes["scale"][1]
    with pytest.raises(cenote.Unsupported, match="scaleoffset"):
        zarr.open_array(store, path="scale", mode="r")
    with pytest.raises(cenote.Unsupported, match="variable length"):
        zarr.open_array(store, path="text", mode="r+")[0] = "changed"


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_what_zarr_writes_into_existing_arrays_is_read_by_hdf5(
    h5: Callable[[str], str], folder: Path, zarr_format: int
) -> None:
    group = zarr.open_group(Hdf5Store(folder / "a.h5", zarr_format=zarr_format), mode="r+")
    group["z"][10:40, 5:90] = -1
    group["raw"][5:, 3:29] = 2.5
    group["lzf"][50:250] = 9
    group["plain"][3:5, 7] = 8
    group["run_with_fill"][90:] = 4
    group["never"][15:25] = 1
    group["bool"][:] = [False, True]
    group["fixed"][1] = b"xyz"
    group["record"][0] = (7, 8.5)
    group["scalar"][...] = 4.5
    group["complex"][0] = 9j
    said = h5("""
with h5py.File("a.h5") as f:
    z = np.arange(5000, dtype="i4").reshape(50, 100); z[10:40, 5:90] = -1
    assert (f["z"][...] == z).all()
    raw = np.arange(600, dtype=">f4").reshape(20, 30); raw[5:, 3:29] = 2.5
    assert (f["raw"][...] == raw).all()
    lzf = np.arange(600); lzf[50:250] = 9
    assert (f["lzf"][...] == lzf).all()
    plain = np.arange(1000.0).reshape(10, 100); plain[3:5, 7] = 8
    assert (f["plain"][...] == plain).all()
    assert (f["run_with_fill"][90:] == 4).all() and (f["run_with_fill"][:3] == 2).all()
    assert (f["never"][15:25] == 1).all() and np.isnan(f["never"][25:]).all()
    assert f["bool"][:].tolist() == [False, True] and f["fixed"][1] == b"xyz"
    assert f["record"][0].tolist() == (7, 8.5) and f["scalar"][()] == 4.5 and f["complex"][0] == 9j
with h5py.File("a.h5", "r+") as f:
    f["raw"].resize(30, axis=0)              # what is outside of the old extent is fill, whatever Zarr wrote
    assert (f["raw"][20:] == 7).all() and (f["raw"][:20] == raw).all()
    f["z"][0, 0] = 77
print("the same")
""")
    assert said == "the same\n"
    assert group["z"][0, 0] == 77
    again = zarr.open_group(Hdf5Store(folder / "a.h5", zarr_format=zarr_format), mode="r")
    assert again["raw"].shape == (30, 30)


def test_arrays_that_zarr_makes_are_datasets(h5: Callable[[str], str], folder: Path) -> None:
    store = Hdf5Store(folder / "a.h5")
    group = zarr.open_group(store, mode="r+")
    data = np.random.default_rng(5).normal(size=(50, 40))
    made = group.create_array(
        "made/here",
        shape=data.shape,
        chunks=(16, 16),
        dtype="f8",
        compressors=[Shuffle(elementsize=8), Zlib(level=5), Fletcher32()],
        fill_value=np.nan,
        attributes={"units": "m", "list": [1, 2], "deep": {"a": [None]}, "none": None, "yes": True},
        dimension_names=["y", "x"],
    )
    made[:, :30] = data[:, :30]
    group.create_array("flags", shape=(10,), dtype="bool", compressors=None)[3] = True
    group.create_array("names", shape=(3,), dtype="S4", compressors=None)[:] = [b"a", b"bc", b"defg"]
    group.create_array("one", shape=(), dtype="i8", compressors=None)[...] = 42
    group.create_array("pairs", shape=(4,), chunks=(2,), dtype=[("a", "i4"), ("b", "f4")], compressors=None)
    group["pairs"][1] = (5, 6)
    group.create_array("half", shape=(6,), dtype="f2", compressors=None, fill_value=1.5)
    group.create_array("unit", shape=(2, 3), dtype="c8", compressors=None)[:] = 1 + 2j
    group.attrs["new"] = "attribute"
    del group.attrs["flag"]
    group["z"].attrs["about"] = "z"
    np.savez(folder / "data.npz", data=data)
    said = h5("""
data = np.load("data.npz")["data"]
with h5py.File("a.h5", "r+") as f:
    d = f["made/here"]
    assert d.chunks == (16, 16) and d.shuffle and d.compression == "gzip" and d.fletcher32
    assert d.maxshape == (None, None)
    assert (d[:, :30] == data[:, :30]).all() and np.isnan(d[:, 32:]).all() and np.isnan(d.fillvalue)
    assert d.attrs["units"] == "m" and d.attrs["list"].tolist() == [1, 2] and d.attrs["deep"] == 'json:{"a":[null]}'
    assert [dim.label for dim in d.dims] == ["y", "x"] and d.attrs["yes"] == True
    assert f["flags"].dtype == bool and f["flags"][:].tolist() == [False] * 3 + [True] + [False] * 6
    assert f["names"][:].tolist() == [b"a", b"bc", b"defg"] and f["one"][()] == 42
    assert f["pairs"].dtype.names == ("a", "b") and f["pairs"][1].tolist() == (5, 6)
    assert f["half"].dtype == "f2" and (f["half"][:] == 1.5).all() and (f["unit"][:] == 1 + 2j).all()
    assert f.attrs["new"] == "attribute" and "flag" not in f.attrs and f.attrs["n"].dtype == "i4"
    assert f.attrs["ref"] and f["z"].attrs["about"] == "z"
    d.resize((60, 40)); d[50:] = 3
print("the same")
""")
    assert said == "the same\n"
    again = zarr.open_array(Hdf5Store(folder / "a.h5"), path="made/here", mode="r")
    assert again.shape == (60, 40)
    assert (again[50:] == 3).all()
    assert again.metadata.dimension_names == ("y", "x")
    assert dict(again.attrs) == {
        "units": "m",
        "list": [1, 2],
        "deep": {"a": [None]},
        "none": None,
        "yes": True,
    }


def test_format_2_makes_the_same_datasets(h5: Callable[[str], str], folder: Path) -> None:
    import numcodecs

    group = zarr.open_group(Hdf5Store(folder / "a.h5", zarr_format=2), mode="r+", zarr_format=2)
    made = group.create_array(
        "v2/x",
        shape=(20,),
        chunks=(8,),
        dtype=">i4",
        filters=[numcodecs.Shuffle(elementsize=4)],
        compressors=numcodecs.Zlib(level=3),
        attributes={"a": 1, "_ARRAY_DIMENSIONS": ["time"]},
    )
    made[:] = np.arange(20)
    said = h5("""
with h5py.File("a.h5") as f:
    d = f["v2/x"]
    same = d[:].tolist() == list(range(20))
    print(d.dtype.str, d.chunks, d.compression, d.shuffle, same, d.dims[0].label, d.attrs["a"])
""")
    assert said == ">i4 (8,) gzip True True time 1\n"


def test_what_cannot_be_made_is_refused(h5: Callable[[str], str], folder: Path) -> None:
    store = Hdf5Store(folder / "a.h5")
    group = zarr.open_group(store, mode="r+")
    for bad in (
        {"compressors": zarr.codecs.GzipCodec()},
        {"shards": (8,), "chunks": (4,), "compressors": None},
        {"dtype": str},
        {"chunk_key_encoding": {"name": "v2", "separator": "."}, "compressors": None},
    ):
        options = {"shape": (8,), "dtype": "i4"} | bad
        with pytest.raises(cenote.Unsupported):
            group.create_array("bad", **options)
    assert "bad" not in group
    for document in (b"", b"{", b"[]", b'{"zarr_format": 3}', b'{"zarr_format":3,"node_type":"array","shape":[-1]}'):
        with pytest.raises(cenote.Error):
            store._tree.set("bad/zarr.json", document)
    for key, value in {
        "plain/c/9/9": b"x" * 8000,
        "plain/c/0/0": b"x",
        "nowhere/c/0": b"x",
        "zarr.json/zarr.json": b"{}",
        "z/c/0": b"",
    }.items():
        with pytest.raises(cenote.Error):
            store._tree.set(key, value)
    with pytest.raises(cenote.PermissionDenied):
        Hdf5Store(folder / "a.h5", read_only=True)._tree.set("zarr.json", b"{}")
    with pytest.raises(cenote.Error):
        Hdf5Store(folder / "nothing.h5")._tree.get("zarr.json")


def test_deleting_and_resizing(h5: Callable[[str], str], folder: Path) -> None:
    store = Hdf5Store(folder / "a.h5")
    group = zarr.open_group(store, mode="r+")
    del group["lzf"]
    del group["group/inner"]
    store._tree.delete("z/c/0/0")
    assert (group["z"][:16, :32] == 0).all()
    group["raw"].resize((10, 30))
    with pytest.raises(cenote.Error):
        group["raw"].resize((10, 31))
    group.create_array("raw2", shape=(25, 9), chunks=(7, 4), dtype="i4", compressors=Zlib(level=1))[:] = 6
    group["raw2"].resize((9, 5))
    group["raw2"].resize((25, 9))
    replaced = group.create_array("plain", shape=(3,), dtype="i2", compressors=None, overwrite=True)
    replaced[:] = 5
    said = h5("""
with h5py.File("a.h5", "r+") as f:
    assert "lzf" not in f and "inner" not in f["group"] and f["plain"][:].tolist() == [5, 5, 5]
    assert f["raw"].shape == (10, 30) and (f["z"][:16, :32] == 0).all() and f["z"][16, 32] == 1632
    f["raw"].resize(20, axis=0)
    assert (f["raw"][10:] == 7).all()
    assert (f["raw2"][:9, :5] == 6).all() and f["raw2"][...].sum() == 6 * 45
print("the same")
""")
    assert said == "the same\n"


def test_a_new_file_without_libhdf5(h5: Callable[[str], str], folder: Path) -> None:
    store = Hdf5Store(folder / "new.h5", folder / "store", create=True)
    group = zarr.open_group(store, mode="a")
    group.create_array("x", shape=(100,), chunks=(10,), dtype="i4")[:] = np.arange(100)
    np.testing.assert_array_equal(group["x"][:], np.arange(100))
    assert h5('with h5py.File("new.h5") as f: print(list(f), f["x"].shape, f["x"].chunks)') == "['x'] (100,) (10,)\n"


def test_a_writer_by_hdf5_and_one_by_zarr_at_the_same_time(h5: Callable[[str], str], folder: Path) -> None:
    group = zarr.open_group(Hdf5Store(folder / "a.h5"), mode="r+")
    group["z"][0, 0] = 1
    h5("""
import threading, time
with h5py.File("a.h5", "r+") as f:
    for i in range(50):
        f.create_dataset(f"many/{i}", data=np.full(20, i))
        f["z"][20 + i % 20, 40:60] = i
        f["raw"][i % 20] = i
    f.flush()
""")
    for i in range(50):
        group["z"][i % 16, 0:20] = i
        assert (group[f"many/{i}"][:] == i).all()
    assert (group["z"][39, 40:60] == 39).all()


def test_many_processes_write_chunks(h5: Callable[[str], str], folder: Path) -> None:
    import subprocess
    import sys

    code = """
import sys, numpy as np, zarr, warnings; warnings.simplefilter("ignore")
from cenote.zarr import Hdf5Store
me = int(sys.argv[1])
a = zarr.open_group(Hdf5Store("a.h5"), mode="r+")["shared"]
for i in range(me, 40, 4):
    a[i * 5 : i * 5 + 5] = i
"""
    zarr.open_group(Hdf5Store(folder / "a.h5"), mode="r+").create_array(
        "shared", shape=(200,), chunks=(5,), dtype="i4", compressors=Zlib(level=1)
    )
    workers = [subprocess.Popen([sys.executable, "-c", code, str(i)], cwd=folder) for i in range(4)]
    assert [worker.wait(120) for worker in workers] == [0] * 4
    expected = np.repeat(np.arange(40), 5)
    np.testing.assert_array_equal(zarr.open_group(Hdf5Store(folder / "a.h5"))["shared"][:], expected)
    assert h5('with h5py.File("a.h5") as f: print((f["shared"][:] == np.repeat(np.arange(40), 5)).all())') == "True\n"


def test_random_writes_by_both_are_seen_by_both(h5: Callable[[str], str], folder: Path) -> None:
    seed = int(os.environ.get("CENOTE_SEED", random.randrange(1 << 30)))
    print(f"CENOTE_SEED={seed}")
    rng = np.random.default_rng(seed)
    group = zarr.open_group(Hdf5Store(folder / "a.h5"), mode="r+")
    names = ["plain", "z", "raw", "lzf", "run_with_fill"]
    expected = {name: EXPECTED[name].copy() for name in names}
    for _ in range(4):
        for name in names:
            for _ in range(3):
                ends = [sorted(rng.integers(0, n + 1, 2).tolist()) for n in expected[name].shape]
                where = tuple(slice(*pair) for pair in ends)
                value = int(rng.integers(0, 1000))
                group[name][where] = value
                expected[name][where] = value
        steps = []
        for name in names:
            ends = [sorted(rng.integers(0, n + 1, 2).tolist()) for n in expected[name].shape]
            value = int(rng.integers(0, 1000))
            expected[name][tuple(slice(*pair) for pair in ends)] = value
            steps.append((name, ends, value))
        np.savez(folder / "expected.npz", **expected)
        h5(f"""
import json
with h5py.File("a.h5", "r+") as f:
    for name, ends, value in json.loads({json.dumps(json.dumps(steps))}):
        f[name][tuple(slice(*pair) for pair in ends)] = value
    for name, expected in np.load("expected.npz").items():
        assert (f[name][...] == expected).all(), name
""")
        for name in names:
            np.testing.assert_array_equal(group[name][...], expected[name], err_msg=f"{name}, CENOTE_SEED={seed}")
