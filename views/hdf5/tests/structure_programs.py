"""Unmodified h5py, netCDF4 and xarray programs about everything except raw data, run by test_structure.py once on
native
HDF5 and once on Cenote.

Each function gets a directory and returns (or yields) what it saw, in a comparable form. Run as
`python structure_programs.py DIRECTORY OUTPUT NAME...`; the environment decides where the data go.
"""

import os
import pathlib
import pickle
import sys
import traceback

import h5py
import numpy as np

PROGRAMS = {}


def program(f):
    PROGRAMS[f.__name__] = f
    return f


def plain(x):
    """A value that pickles and compares exactly."""
    if isinstance(x, np.ndarray):
        if x.dtype == object:
            return ("objects", x.shape, [plain(e) for e in x.ravel().tolist()])
        if x.dtype.fields is not None:
            # Field by field: padding between fields is not data.
            return ("fields", str(x.dtype), x.shape, [plain(x[n]) for n in x.dtype.names])
        return ("array", x.dtype.str, x.shape, x.tobytes())
    if isinstance(x, np.generic):
        return plain(np.asarray(x))
    if isinstance(x, (h5py.Reference,)):
        return ("reference", bool(x))
    if isinstance(x, np.void) and x.dtype.fields is not None:
        return plain(np.asarray(x))
    if isinstance(x, h5py.Empty):
        return ("empty", str(x.dtype))
    if isinstance(x, dict):
        return {k: plain(v) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        return [plain(e) for e in x]
    if isinstance(x, (str, bytes, int, float, bool, type(None))):
        return x
    return str(type(x).__name__)


def fails(f, *a, **k):
    """The class of the exception that a call raises."""
    try:
        out = f(*a, **k)
    except Exception as e:
        return type(e).__name__
    return ("no error", plain(out))


def describe(name, obj):
    """All that h5py shows of an object."""
    out = {"name": obj.name, "kind": type(obj).__name__, "attrs": {k: plain(obj.attrs[k]) for k in obj.attrs}}
    if isinstance(obj, h5py.Dataset):
        out |= {
            "shape": obj.shape,
            "maxshape": obj.maxshape,
            "dtype": str(obj.dtype),
            "chunks": obj.chunks,
            "compression": obj.compression,
            "fletcher32": obj.fletcher32,
            "shuffle": obj.shuffle,
            "fill": plain(obj.fillvalue) if obj.dtype.kind != "O" else None,
            "data": plain(obj[()]),
            "dims": [(d.label, list(d.keys())) for d in obj.dims],
            "scale": obj.is_scale,
        }
    elif isinstance(obj, h5py.Datatype):
        out["dtype"] = str(obj.dtype)
    else:
        out["keys"] = list(obj)
    return out


def whole(f):
    out = [describe("/", f)]
    f.visititems(lambda n, o: out.append((n, describe(n, o))))
    return out


@program
def modes(d):
    p = d / "modes.h5"
    yield fails(h5py.File, p, "r"), fails(h5py.File, p, "r+")
    with h5py.File(p, "w-") as f:
        f["x"] = 1
        yield f.mode, list(f)
    yield fails(h5py.File, p, "w-"), fails(h5py.File, p, "x")
    with h5py.File(p, "a") as f:
        yield f.mode, f["x"][()]
        f["y"] = 2
    with h5py.File(p, "r") as f:
        yield f.mode, sorted(f), fails(f.create_group, "g"), fails(f.attrs.__setitem__, "a", 1)
        yield fails(f.__delitem__, "x"), fails(f["x"].__setitem__, (), 3)
    with h5py.File(p, "w") as f:
        yield list(f)
    with h5py.File(d / "made-by-a.h5", "a") as f:
        f["z"] = 1
    yield h5py.is_hdf5(p), h5py.is_hdf5(d / "nothing.h5"), p.exists()
    yield fails(h5py.File, d / "no-such-directory" / "f.h5", "w")
    with h5py.File(p, "w") as f:
        yield fails(h5py.File, p, "w")
        with h5py.File(p, "r+") as g:
            yield f == g, f.id == g.id
    (d / "text.h5").write_text("not hdf5, but longer than a signature")
    yield fails(h5py.File, d / "text.h5", "r"), h5py.is_hdf5(d / "text.h5")
    yield bool(f), fails(lambda: f.keys())


@program
def groups(d):
    with h5py.File(d / "groups.h5", "w") as f:
        g = f.create_group("a/b/c")
        yield g.name, g.parent.name, g.file == f, list(f), list(f["a"])
        yield "a" in f, "a/b" in f, "/a/b/c" in f, "a/x" in f, "x/y" in f, b"a" in f, "" in f, "/" in f, "." in f
        yield fails(f.create_group, "a"), fails(f.create_group, "a/b"), fails(f.create_group, "/")
        yield f.require_group("a/b").name, f.require_group("a/n").name
        f["a/d"] = np.arange(4)
        yield fails(f.require_group, "a/d"), fails(f["a/d"].id.__class__, 1), fails(lambda: f["a/d/e"])
        yield fails(lambda: f["nope"]), fails(lambda: f["nope/deeper"]), f.get("nope"), f.get("nope", 7)
        yield f.get("a", getclass=True).__name__, f.get("a/d", getclass=True).__name__
        for n in ["zz", "b", "Ä", "a b", "x" * 300, "1", "~"]:
            f.create_group(n)
        yield list(f), len(f), list(f.keys()), [type(v).__name__ for v in f.values()]
        del f["b"]
        yield list(f), "b" in f, fails(f.__delitem__, "b")
        f.create_group("moved/deep")
        f.move("zz", "moved/deep/er")
        yield list(f), list(f["moved/deep"]), fails(f.move, "nope", "x"), fails(f.move, "1", "~")
        yield list(reversed(f))
        h = f["moved/deep/er"]
        f.move("moved", "gone")
        yield h.name, h.parent.name
        anon = f.create_group(None)
        yield anon.name
        f["linked"] = anon
        yield anon.name, f["linked"].name
        names = []
        f.visit(names.append)
        yield names
        yield f.visititems(lambda n, o: n if n.endswith("c") else None)
        names = []
        f.visit_links(names.append)
        yield names
    with h5py.File(d / "groups.h5", "r") as f:
        yield whole(f)


@program
def order(d):
    with h5py.File(d / "order.h5", "w", track_order=True) as f:
        for n in ["z", "a", "m", "b"]:
            f.create_group(n)
        yield list(f), list(reversed(f))
        g = f.create_group("tracked", track_order=True)
        h = f.create_group("plain", track_order=False)
        for n in ["z", "a", "m", "b"]:
            g[n] = 1
            h[n] = 1
            g.attrs[n] = 1
            h.attrs[n] = 1
        yield list(g), list(h), list(g.attrs), list(h.attrs)
        del g["a"]
        g["a"] = 3
        yield list(g)
        yield [g.id.links.get_info(n.encode()).corder for n in g]
        ds = f.create_dataset("ds", data=1, track_order=True)
        for n in "hello world":
            ds.attrs[n] = n
        yield list(ds.attrs)
        for i in range(40):
            g.attrs[f"k{40 - i}"] = i
            g.create_group(f"k{40 - i}")
        yield list(g), list(g.attrs)
    with h5py.File(d / "order.h5", "r") as f:
        yield list(f["tracked"]), list(f["tracked"].attrs), list(f)


@program
def links(d):
    with h5py.File(d / "target.h5", "w") as f:
        f["there/x"] = np.arange(5)
        f["there"].attrs["who"] = "target"
    with h5py.File(d / "links.h5", "w") as f:
        f["g/x"] = np.arange(3)
        f["hard"] = f["g/x"]
        f["soft"] = h5py.SoftLink("/g/x")
        f["g/up"] = h5py.SoftLink("x")
        f["dangling"] = h5py.SoftLink("/nowhere")
        f["loop"] = h5py.SoftLink("/loop")
        f["ext"] = h5py.ExternalLink("target.h5", "/there")
        f["ext-bad"] = h5py.ExternalLink("missing.h5", "/there")
        f["ext-bad2"] = h5py.ExternalLink("target.h5", "/missing")
        yield f["soft"][()].tolist(), f["g/up"][()].tolist(), f["soft"].name, f["hard"].name
        yield f["hard"] == f["g/x"], f["hard"].id == f["g/x"].id, hash(f["hard"]) == hash(f["g/x"])
        for n in f:
            link = f.get(n, getlink=True)
            yield n, type(link).__name__, getattr(link, "path", None), getattr(link, "filename", None)
            yield fails(f.get, n, getclass=True, getlink=True), n in f
        yield (
            fails(lambda: f["dangling"]),
            fails(lambda: f["loop"]) in ("RuntimeError", "KeyError"),
            fails(lambda: f["ext-bad"]),
        )
        yield fails(lambda: f["ext-bad2"]), f.get("dangling")
        yield f["ext"].name, list(f["ext"]), f["ext/x"][()].tolist(), f["ext"].attrs["who"]
        yield pathlib.Path(f["ext"].file.filename).name
        yield h5py.h5o.get_info(f["hard"].id).rc
        del f["hard"]
        yield h5py.h5o.get_info(f["g/x"].id).rc
        kept = f["g/x"]
        del f["g/x"]
        yield kept[()].tolist(), kept.name, fails(lambda: f["soft"])
        f["back"] = kept
        yield f["back"][()].tolist(), kept.name
        f["g"].move("up", "up2")
        yield list(f["g"]), fails(f.__setitem__, "back", h5py.SoftLink("/q"))
        # A cycle of hard links is visited once.
        f["g/self"] = f["g"]
        names = []
        f.visit(names.append)
        yield names
    with h5py.File(d / "links.h5", "r") as f:
        yield sorted(f)


@program
def attributes(d):
    values = {
        "int": 5,
        "np": np.int16(-3),
        "float": 2.5,
        "big": np.float64(1e300),
        "str": "héllo",
        "bytes": b"raw",
        "npbytes": np.bytes_("fixed"),
        "list": [1, 2, 3],
        "array": np.arange(12, dtype=">i4").reshape(3, 4),
        "strs": ["a", "bb", "ccc"],
        "fixed": np.array([b"ab", b"cde"]),
        "bool": True,
        "bools": np.array([True, False]),
        "compound": np.array([(1, 2.5, b"x")], [("a", "i4"), ("b", "f8"), ("c", "S3")]),
        "complex": np.complex64(1 + 2j),
        "empty": h5py.Empty("f8"),
        "emptystr": "",
        "zero": np.zeros((0, 3)),
        "half": np.float16(0.5),
        "u8": np.uint64(2**64 - 1),
        "long": "x" * 20000,
    }
    with h5py.File(d / "attrs.h5", "w") as f:
        ds = f.create_dataset("ds", data=np.arange(3))
        f["type"] = np.dtype("f4")
        for obj in (f, f.create_group("g"), ds, f["type"]):
            for k, v in values.items():
                obj.attrs[k] = v
            yield list(obj.attrs), len(obj.attrs), {k: plain(obj.attrs[k]) for k in obj.attrs}
        a = f["g"].attrs
        a.create("vlen", np.array([np.arange(3), np.arange(5)], dtype=object), dtype=h5py.vlen_dtype("i4"))
        a.create("enum", 1, dtype=h5py.enum_dtype({"A": 0, "B": 1}))
        a.create("vstr", np.array(["one", "zwei"], dtype=object), dtype=h5py.string_dtype())
        a.create("astr", "ascii", dtype=h5py.string_dtype("ascii"))
        a.create("fstr", "fixed", dtype=h5py.string_dtype("utf-8", 10))
        a.create("shape", np.arange(6), shape=(2, 3), dtype="u1")
        a.create("nested", np.array([("ab", 1)], dtype=[("s", h5py.string_dtype()), ("n", "i4")]))
        a.create("opaque", np.array([b"\1\2\3"], "V3"))
        a.create("arr", np.zeros((), dtype=[("m", "f8", (2, 2))]))
        yield {k: plain(a[k]) for k in a}
        yield a["vlen"][1].tolist(), a.get("nope"), fails(lambda: a["nope"]), "int" in a, "nope" in a
        yield fails(a.__delitem__, "nope")
        a["int"] = "changed its type"
        a.modify("float", 9.5)
        yield a["int"], a["float"], fails(a.modify, "float", np.arange(3))
        del a["np"]
        yield "np" in a, list(a)
        yield a.get_id("array").shape, str(a.get_id("array").dtype), a.get_id("array").get_storage_size()
        a["Ünïcode näme"] = 1
        yield [k for k in a if not k.isascii()]
        a.update({"u1": 1, "u2": 2})
        yield sorted(a.keys())[-3:], a.pop("u1"), "u1" in a
        low = h5py.h5a.open(f["g"].id, b"list")
        yield low.name, low.shape
        h5py.h5a.rename(f["g"].id, b"list", b"renamed")
        yield low.name, "list" in a, plain(a["renamed"]), fails(h5py.h5a.rename, f["g"].id, b"renamed", b"int")
        yield h5py.h5a.get_num_attrs(f["g"].id), h5py.h5a.exists(f["g"].id, b"str")
        space = h5py.h5s.create_simple((4,))
        raw = h5py.h5a.create(f["g"].id, b"unwritten", h5py.h5t.NATIVE_INT32, space)
        out = np.ones(4, "i4")
        raw.read(out)
        yield out.tolist()
        yield h5py.h5a.get_info(f["g"].id, b"str").data_size > 0
    with h5py.File(d / "attrs.h5", "r") as f:
        yield whole(f)


@program
def types(d):
    with h5py.File(d / "types.h5", "w") as f:
        f["compound"] = np.dtype([("a", "i4"), ("b", "f8", (3,)), ("s", h5py.string_dtype())])
        f["enum"] = h5py.enum_dtype({"A": 1, "B": 2}, "u1")
        f["vlen"] = h5py.vlen_dtype("f4")
        f["str"] = h5py.string_dtype()
        for n in f:
            yield n, str(f[n].dtype), type(f[n]).__name__, f[n].id.committed(), f[n].name
        ds = f.create_dataset("ds", (3,), dtype=f["compound"])
        yield ds.id.get_type().committed(), str(ds.dtype), ds.id.get_type() == f["compound"].id
        ds[0] = (1, [1, 2, 3], "x")
        yield plain(ds[0]["a"]), ds[0]["s"]
        f["g"] = h5py.SoftLink("/enum")
        f.attrs.create("typed", 1, dtype=f["enum"])
        yield f.attrs["typed"], str(f.attrs.get_id("typed").dtype), f.attrs.get_id("typed").get_type().committed()
        f["compound"].attrs["note"] = "named types have attributes"
        yield fails(f.__setitem__, "enum", np.dtype("i4"))
        del f["compound"]
        yield str(ds.dtype), "compound" in f
    with h5py.File(d / "types.h5", "r") as f:
        yield sorted(f), str(f["ds"].dtype), plain(f["ds"][0]["b"])


@program
def copies(d):
    with h5py.File(d / "from.h5", "w") as f:
        f["g/h/x"] = np.arange(10)
        f["g/h/x"].attrs["unit"] = "m"
        f["g"].attrs["a"] = "b"
        f["g/again"] = f["g/h/x"]
        f["g/soft"] = h5py.SoftLink("/g/h/x")
        f["g/chunked"] = f.create_dataset(
            None,
            data=np.random.default_rng(1).random((20, 30)),
            chunks=(7, 8),
            compression=3,
            shuffle=True,
            maxshape=(None, 30),
        )
        f["g/vlen"] = np.array(["a", "bb", ""], dtype=h5py.string_dtype())
        f.copy("g", "copy")
        f.copy("g", "shallow", shallow=True)
        f.copy("g", "expanded", expand_soft=True)
        f.copy("g", "bare", without_attrs=True)
        f.copy(f["g/h/x"], f["copy"], name="second")
        yield fails(f.copy, "g", "copy"), fails(f.copy, "nope", "n"), fails(f.copy, "g", "bad/path/x")
        with h5py.File(d / "to.h5", "w") as t:
            f.copy("g", t)
            f.copy(f["g/chunked"], t, name="c")
            t["g/h/x"][0] = 99
            yield whole(t)
        yield f["g/h/x"][0] == 0
        yield f["copy/again"] == f["copy/h/x"], f["copy/again"] == f["g/again"]
        yield whole(f)


@program
def references(d):
    with h5py.File(d / "refs.h5", "w") as f:
        g = f.create_group("g")
        x = f.create_dataset("g/x", data=np.arange(4))
        f.attrs["ref"] = g.ref
        f.attrs["xref"] = x.ref
        yield f[f.attrs["ref"]].name, f[f.attrs["xref"]][()].tolist(), f[x.ref] == x, bool(h5py.Reference())
        r = f.create_dataset("refs", (3,), dtype=h5py.ref_dtype)
        r[0], r[1] = g.ref, x.ref
        yield f[r[0]].name, f[r[1]].name, bool(r[2]), fails(lambda: f[r[2]])
        f.attrs.create("list", np.array([g.ref, x.ref], dtype=object), dtype=h5py.ref_dtype)
        yield [f[q].name for q in f.attrs["list"]]
        v = f.create_dataset("vrefs", (2,), dtype=h5py.vlen_dtype(h5py.ref_dtype))
        v[0] = np.array([g.ref, x.ref], dtype=h5py.ref_dtype)
        yield [f[q].name for q in v[0]], len(v[1])
        c = f.create_dataset("crefs", (2,), dtype=[("r", h5py.ref_dtype), ("n", "i4")])
        c[0] = (x.ref, 5)
        yield f[c[0]["r"]].name, int(c[0]["n"])
        del f["g/x"]
        del x
        yield fails(lambda: f[r[1]])
    with h5py.File(d / "refs.h5", "r") as f:
        yield f[f.attrs["ref"]].name, f[f["refs"][0]].name, str(f["refs"].dtype)


@program
def scales(d):
    with h5py.File(d / "scales.h5", "w") as f:
        f["t"] = np.arange(3.0)
        f["x"] = np.arange(4.0)
        f["x2"] = np.arange(4.0) * 2
        data = f.create_dataset("data", data=np.arange(12).reshape(3, 4))
        for n in ("t", "x", "x2"):
            f[n].make_scale(f"scale {n}")
        data.dims[0].attach_scale(f["t"])
        data.dims[1].attach_scale(f["x"])
        data.dims[1].attach_scale(f["x2"])
        data.dims[0].label = "time"
        yield [[s.name for s in dim.values()] for dim in data.dims], [dim.label for dim in data.dims]
        data.dims[1].detach_scale(f["x"])
        yield [[s.name for s in dim.values()] for dim in data.dims]
        yield (
            sorted(data.attrs),
            sorted(f["t"].attrs),
            f["t"].is_scale,
            plain(f["t"].attrs["REFERENCE_LIST"]["dimension"]),
        )
    with h5py.File(d / "scales.h5", "r") as f:
        yield [f[q[0]].name for q in f["data"].attrs["DIMENSION_LIST"]]
        yield whole(f)


@program
def low_level(d):
    with h5py.File(d / "low.h5", "w") as f:
        g = f.create_group("g")
        f["g/x"] = 1
        f["g/y"] = h5py.SoftLink("x")
        info = h5py.h5o.get_info(g.id)
        yield info.type, info.rc, h5py.h5o.get_info(f.id, b"g/x").type
        yield h5py.h5g.get_objinfo(f.id, b"g").type, h5py.h5g.get_objinfo(f.id, b"g/y", follow_link=False).type
        h5py.h5o.set_comment(f.id, b"hello", obj_name=b"g")
        yield g.id.get_num_objs(), g.id.get_objname_by_idx(0), g.id.get_objtype_by_idx(0)
        names = []
        h5py.h5g.iterate(g.id, names.append)
        yield names
        names = []
        g.id.links.iterate(names.append)
        g.id.links.visit(names.append)
        yield names
        h5py.h5o.link(g["x"].id, f.id, b"lx")
        yield h5py.h5o.get_info(g["x"].id).rc
        x = h5py.h5o.get_info(g["x"].id)
        yield h5py.h5o.open(f.id, b"g/x") == g["x"].id, x.fileno == h5py.h5o.get_info(f.id).fileno
        yield h5py.h5o.exists_by_name(f.id, b"g/x"), h5py.h5o.exists_by_name(f.id, b"nope")
        seen = []
        h5py.h5o.visit(f.id, seen.append)
        yield seen
        gcpl = g.id.get_create_plist()
        yield gcpl.get_link_creation_order(), f.id.get_create_plist().get_link_creation_order()
        yield h5py.h5f.get_obj_count(f.id, h5py.h5f.OBJ_ALL), f.id.get_intent(), f.id.name.endswith(b"low.h5")
        yield h5py.h5i.get_type(g.id), h5py.h5i.get_name(g.id), h5py.h5i.get_file_id(g.id) == f.id
        reopened = f.id.reopen()
        yield reopened == f.id, reopened.name == f.id.name
        reopened.close()
        f.flush()
        yield f.userblock_size, f.driver, f.swmr_mode
    yield g.id.valid, bool(g), fails(lambda: list(g))


@program
def closing(d):
    f = h5py.File(d / "closing.h5", "w")
    g = f.create_group("g")
    x = f.create_dataset("x", data=np.arange(3))
    f.close()
    yield bool(g), bool(x), bool(f), fails(lambda: x[()]), repr(f), repr(g), repr(x)
    with h5py.File(d / "closing.h5", "r") as f:
        x = f["x"]
        yield x[()].tolist()
    yield bool(x)


@program
def datasets(d):
    with h5py.File(d / "datasets.h5", "w") as f:
        f.create_dataset("a", data=np.arange(6).reshape(2, 3))
        f.create_dataset(
            "b",
            (4, 5),
            maxshape=(None, 5),
            chunks=(2, 5),
            dtype="f4",
            fillvalue=-1,
            compression="gzip",
            compression_opts=7,
            shuffle=True,
            fletcher32=True,
        )
        f.create_dataset("c", data="text")
        f.create_dataset("e", data=h5py.Empty("i4"))
        f.create_dataset("f", (10,), dtype="i8", chunks=True, maxshape=(20,))
        yield fails(f.create_dataset, "a", data=1), f.require_dataset("a", (2, 3), int).name
        yield fails(f.require_dataset, "a", (5,), int), fails(f["a"].resize, (9, 9)), fails(f["f"].resize, (21,))
        f["b"].resize((6, 5))
        f["f"].resize((15,))
        yield f["b"].shape, f["f"].shape, f["a"].size, f["a"].nbytes, f["a"].ndim
        yield fails(f.create_dataset, "bad", (4,), chunks=(9,)), fails(f.create_dataset, "bad2", (4,), maxshape=(2,))
        yield f["b"].id.get_create_plist().get_filter(0)[:2], f["b"].id.get_create_plist().get_nfilters()
        yield f["b"].compression_opts, f["b"].id.get_space_status()
        v = f.create_dataset(None, data=[1, 2])
        yield v.name
        f["named"] = v
        yield whole(f)
        f.create_dataset("deep/er/x", data=1)
        yield f["deep/er/x"][()], f["deep"].name
        with h5py.File(d / "datasets.h5", "r+") as g:
            g["a"][0, 0] = 77
            yield f["a"][0, 0]


@program
def netcdf4(d):
    import netCDF4

    p = str(d / "n.nc")
    with netCDF4.Dataset(p, "w") as n:
        n.title = "a title"
        n.setncattr("numbers", np.arange(3, dtype="i2"))
        n.createDimension("time", None)
        n.createDimension("x", 4)
        t = n.createVariable("time", "f8", ("time",))
        t.units = "days since 2000-01-01"
        x = n.createVariable("x", "i4", ("x",))
        v = n.createVariable(
            "v",
            "f4",
            ("time", "x"),
            zlib=True,
            complevel=4,
            shuffle=True,
            fletcher32=True,
            fill_value=-9.0,
            chunksizes=(2, 4),
        )
        x[:] = np.arange(4)
        for i in range(5):
            t[i] = i
            v[i] = np.arange(4) + 10 * i
        s = n.createVariable("s", str, ("x",))
        s[:] = np.array(["one", "zwei", "trois", ""], dtype=object)
        c = n.createVariable("c", "S1", ("x",))
        c[:] = np.array([b"a", b"b", b"c", b"d"])
        g = n.createGroup("outer/inner")
        g.createDimension("y", 2)
        g.createVariable("w", "u2", ("y", "x"))[:] = 7
        g.note = "in a group"
        e = n.createEnumType("u1", "colour", {"red": 0, "green": 1})
        ev = n.createVariable("ev", e, ("x",), fill_value=1)
        ev[:] = np.array([0, 1, 1, 0], "u1")
        vl = n.createVLType("i4", "ragged")
        vv = n.createVariable("vv", vl, ("x",))
        for i in range(4):
            vv[i] = np.arange(i + 1, dtype="i4")
        ct = n.createCompoundType(np.dtype([("a", "i4"), ("b", "f8")]), "pair")
        cv = n.createVariable("cv", ct, ("x",))
        cv[:] = np.array([(i, i / 2) for i in range(4)], np.dtype([("a", "i4"), ("b", "f8")]))
        n.createVariable("scalar", "i8").assignValue(42)
        n.createVariable("nofill", "i4", ("x",), fill_value=False)[:2] = 5
        n.createVariable("bigendian", "i4", ("x",), endian="big")[:] = np.arange(4)
    yield from netcdf4_whole(p)
    with netCDF4.Dataset(p, "a") as n:
        n["time"][5:8] = [5, 6, 7]
        n["v"][7] = 1.5
        n.added = "later"
        n.renameVariable("s", "renamed")
        n.renameDimension("x", "east")
        n["v"].long_name = "velocity"
    yield from netcdf4_whole(p)
    yield fails(netCDF4.Dataset, str(d / "missing.nc"))
    with h5py.File(p, "r") as f:
        yield [(k, type(f[k]).__name__) for k in f], f["v"].attrs["long_name"], f["v"][7].tolist()
        yield [d.keys() and list(d.keys()) for d in f["v"].dims], f["time"].is_scale


def netcdf4_whole(p):
    import netCDF4

    with netCDF4.Dataset(p) as n:
        n.set_auto_mask(False)

        def group(g):
            yield g.path, {k: plain(g.getncattr(k)) for k in g.ncattrs()}, list(g.groups)
            yield [(k, len(dim), dim.isunlimited()) for k, dim in g.dimensions.items()]
            yield list(g.cmptypes), list(g.vltypes), list(g.enumtypes)
            for k, v in g.variables.items():
                yield k, v.dimensions, v.shape, str(v.dtype), {a: plain(v.getncattr(a)) for a in v.ncattrs()}
                yield plain(v[...]), v.chunking(), v.filters(), v.endian()
            for sub in g.groups.values():
                yield from group(sub)

        yield from group(n)


@program
def xarray_round_trip(d):
    import xarray as xr

    rng = np.random.default_rng(3)
    ds = xr.Dataset(
        {
            "t": (("time", "lat", "lon"), rng.random((4, 3, 5)).astype("f4"), {"units": "K"}),
            "p": (("time",), np.arange(4)),
            "name": (("lat",), np.array(["a", "bb", "ccc"])),
            "when": (("time",), np.arange("2001-01-01", "2001-01-05", dtype="datetime64[D]").astype("datetime64[ns]")),
        },
        coords={"time": np.arange(4), "lat": [10.0, 20.0, 30.0], "lon": np.linspace(0, 1, 5)},
        attrs={"title": "xarray", "n": 3},
    )
    p = d / "x.nc"
    ds.to_netcdf(p, engine="netcdf4", encoding={"t": {"zlib": True, "chunksizes": (2, 3, 5)}}, unlimited_dims=["time"])
    with xr.open_dataset(p, engine="netcdf4") as back:
        back.load()
        yield bool(back.identical(ds)), sorted(back.variables), back.attrs, str(back)
        yield [(k, plain(v.values), v.attrs) for k, v in sorted(back.variables.items())]
    ds.isel(time=0, drop=True).to_netcdf(p, mode="a", group="one", engine="netcdf4")
    with xr.open_dataset(p, engine="netcdf4", group="one") as back:
        yield sorted(back.variables), plain(back["t"].values)


@program
def three_libraries(d):
    import netCDF4
    import xarray as xr

    with h5py.File(d / "three.nc", "w", track_order=True) as f:
        f["x"] = np.arange(4.0)
        f["x"].make_scale("x")
        f["y"] = np.arange(4) * 2
        f["y"].dims[0].attach_scale(f["x"])
        f["y"].attrs["units"] = "m"
    with netCDF4.Dataset(str(d / "three.nc")) as n:
        yield list(n.dimensions), list(n.variables), n["y"][:].tolist(), n["y"].units, n["y"].dimensions
    with xr.open_dataset(d / "three.nc", engine="netcdf4") as x:
        yield x["y"].values.tolist(), x["y"].dims, x["y"].attrs
    with netCDF4.Dataset(str(d / "three.nc"), "a") as n:
        n.createVariable("z", "f8", ("x",))[:] = 1.5
    with h5py.File(d / "three.nc", "r") as f:
        yield sorted(f), f["z"][()].tolist()


def main():
    directory, output, *names = sys.argv[1:]
    results = {}
    for name in names or PROGRAMS:
        where = pathlib.Path(directory) / name
        where.mkdir(parents=True, exist_ok=True)
        os.chdir(where)
        seen = []
        try:
            for entry in PROGRAMS[name](where):
                seen.append(plain(entry))
                if "-v" in os.environ.get("PROGRAM_FLAGS", ""):
                    print(name, len(seen), entry, flush=True)
        except Exception:
            seen.append(("program failed", traceback.format_exc()))
        results[name] = seen
        with open(output, "wb") as out:
            pickle.dump(results, out)


if __name__ == "__main__":
    main()
