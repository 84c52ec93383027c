"""Usual operations of h5py programs; prints the results as JSON: versions, then one result per check."""

import json
import pathlib
import sys

import h5py
import numpy as np

path = sys.argv[1]
checks = {}


def check(function):
    checks[function.__name__] = function


def plain(value):
    """A value that JSON can represent."""
    if isinstance(value, np.ndarray):
        return [str(value.dtype), list(value.shape), [plain(v) for v in value.ravel().tolist()]]
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {k: plain(v) for k, v in sorted(value.items())}
    return value if isinstance(value, (int, float, str, bool, type(None))) else str(value)


@check
def numbers(f):
    for kind in ("i1", "u2", ">i4", "i8", "f2", "f4", ">f8", "c8", "?"):
        f[f"numbers/{kind}"] = np.arange(6).reshape(2, 3).astype(kind)
    return {name: d[:] for name, d in f["numbers"].items()}


@check
def chunks_and_filters(f):
    data = np.arange(4000.0).reshape(40, 100)
    for name, how in {
        "gzip": {"compression": "gzip", "shuffle": True},
        # h5py's own filter, which HDF5's tools lack.
        "lzf": {"compression": None if len(sys.argv) > 2 else "lzf", "fletcher32": True},
        "scaleoffset": {"scaleoffset": 2},
        "plain": {"fillvalue": 3},
    }.items():
        d = f.create_dataset(f"filters/{name}", data.shape, "f8", chunks=(7, 30), maxshape=(None, 100), **how)
        d[:] = data
        d.resize((45, 100))
        d[3:9, ::5] = -1
    return {name: [d[::7, ::9], d.chunks, d.compression] for name, d in f["filters"].items()}


@check
def strings_and_compounds(f):
    f["text"] = np.array(["a", "long text", ""], dtype=object)
    f["bytes"] = np.array([b"ab", b"c"], dtype="S4")
    f["record"] = np.array([(1, 2.5, b"x"), (3, 4.5, b"y")], dtype=[("i", "i4"), ("f", "f8"), ("s", "S3")])
    f.create_dataset("ragged", (3,), h5py.vlen_dtype("i4"))[:] = [np.arange(n) for n in (1, 3, 2)]
    f["enum"] = np.array([0, 1, 1], dtype=h5py.enum_dtype({"NO": 0, "YES": 1}, "i1"))
    ragged = [list(map(int, row)) for row in f["ragged"][:]]
    return [f["text"].asstr()[:].tolist(), f["bytes"][:], f["record"]["f"], ragged, f["enum"][:]]


@check
def attributes(f):
    f.attrs["number"] = 5
    f.attrs["text"] = "words"
    f.attrs["array"] = np.arange(4, dtype="f4")
    f["numbers"].attrs["many"] = ["a", "b"]
    f.attrs.modify("number", 6)
    del f.attrs["array"]
    return [dict(f.attrs), list(f["numbers"].attrs["many"])]


@check
def links_and_groups(f):
    f["soft"] = h5py.SoftLink("/numbers/i8")
    f["hard"] = f["numbers"]
    f.copy("filters", "copy")
    f.move("copy/lzf", "copy/moved")
    del f["copy/gzip"]
    seen = []
    f.visit(seen.append)
    return [seen, f["soft"][:], f["hard"] == f["numbers"], list(f["copy"])]


@check
def references(f):
    f["refs"] = np.array([f["numbers"].ref, f["text"].ref], dtype=h5py.ref_dtype)
    return [f[r].name for r in f["refs"][:]]


@check
def selections(f):
    d = f.create_dataset("select", (20, 30), "i4", data=np.arange(600).reshape(20, 30))
    d[5, :] = 0
    d[[1, 4, 7], 3] = 9
    mask = np.zeros((20, 30), bool)
    mask[::3, 2] = True
    return [d[2:9:3, 4:20:5], d[mask], d[..., -1]]


seen = {}
with h5py.File(path, "w") as f:
    for name, function in checks.items():
        seen[name] = plain(function(f))
with h5py.File(path, "r") as f:
    again = []
    f.visititems(lambda name, o: again.append((name, o.shape if hasattr(o, "shape") else None)))
    seen["read again"] = plain(again)
stub = b"cenote" in pathlib.Path(path).read_bytes()[:40]
versions = {"client": f"h5py {h5py.__version__}", "hdf5": h5py.version.hdf5_version}
print(json.dumps({"versions": versions, "stub": stub, "seen": seen}))
