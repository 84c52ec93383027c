"""Programs about native files: ``make FILE`` writes one of many features, ``tell FILE`` prints its content.

Both use h5py alone; ``tell`` prints the same through every connector.
"""

import sys

import h5py
import numpy as np


def make(path, where=""):
    """A file with one of everything; a native one has a user block too."""
    rng = np.random.default_rng(5)
    with h5py.File(path, "w", track_order=True, userblock_size=None if where else 512) as f:
        f.attrs["title"] = "one of everything"
        f.attrs["n"] = np.arange(6).reshape(2, 3)
        f.attrs["empty"] = h5py.Empty("f4")
        f.attrs["names"] = np.array(["a", "bc", ""], dtype=h5py.string_dtype())
        f.create_dataset("plain", data=rng.random((50, 40)))
        f.create_dataset("big_endian", data=np.arange(10, dtype=">i4"))
        f.create_dataset("scalar", data=3.5)
        f.create_dataset("null", data=h5py.Empty("i2"))
        f.create_dataset("nothing", shape=(0, 4), maxshape=(None, 4), dtype="i8")
        f.create_dataset("never_written", shape=(10, 10), dtype="f4", fillvalue=7)
        chunked = f.create_dataset(
            "chunked",
            shape=(100, 60),
            maxshape=(None, 80),
            chunks=(16, 25),
            dtype="f8",
            compression="gzip",
            compression_opts=4,
            shuffle=True,
            fletcher32=True,
            fillvalue=-1,
        )
        chunked[10:70, 5:55] = rng.random((60, 50))
        chunked.attrs["units"] = np.bytes_(b"K")
        f.create_dataset("raw_chunks", data=rng.integers(0, 9, (30, 30)), chunks=(7, 8))
        f.create_dataset("lzf", data=np.arange(1000), chunks=(100,), compression="lzf")
        f.create_dataset("scaled", data=np.arange(1000) % 17, chunks=(128,), scaleoffset=0)
        f.create_dataset("texts", data=np.array(["x", "", "long " * 50], dtype=object), dtype=h5py.string_dtype())
        f.create_dataset(
            "texts_chunked",
            data=[f"t{i}" for i in range(40)],
            dtype=h5py.string_dtype(),
            chunks=(9,),
            compression="gzip",
        )
        ragged = f.create_dataset("ragged", shape=(4,), dtype=h5py.vlen_dtype("i4"))
        for i in range(3):
            ragged[i] = np.arange(i + 1)
        compound = np.dtype([("a", "i4"), ("b", "f8", (2,)), ("s", "S5")])
        f.create_dataset("compound", data=np.array([(1, [2, 3], b"hello"), (4, [5, 6], b"x")], dtype=compound))
        f.create_dataset("enum", data=[0, 1, 1], dtype=h5py.enum_dtype({"NO": 0, "YES": 1}, basetype="u1"))
        f.create_dataset("opaque", data=np.array([b"abcd", b"efgh"]).view("V4"))
        f.create_dataset("bools", data=np.array([True, False]))
        f["committed"] = np.dtype([("x", "f4"), ("y", "f4")])
        f["committed"].attrs["about"] = "a point"
        f.create_dataset("points", data=np.zeros(3, dtype=f["committed"].dtype), dtype=f["committed"])
        g = f.create_group("group", track_order=True)
        for name in ("z", "y", "x"):
            g.create_group(name).attrs[name] = name
        g["soft"] = h5py.SoftLink("/plain")
        g["dangling"] = h5py.SoftLink("/no/such")
        g["external"] = h5py.ExternalLink("other.h5", "/data")
        g["hard"] = f["plain"]
        g["loop"] = f["/"]
        refs = f.create_dataset("refs", shape=(3,), dtype=h5py.ref_dtype)
        refs[0], refs[1] = f["plain"].ref, f["/"].ref
        f.attrs["ref"] = f["group/y"].ref
        f["scale"] = np.arange(40)
        f["scale"].make_scale("x")
        f["plain"].dims[1].attach_scale(f["scale"])
        compact = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        compact.set_layout(h5py.h5d.COMPACT)
        space = h5py.h5s.create_simple((5,))
        h5py.h5d.create(f.id, b"compact", h5py.h5t.NATIVE_INT32, space, compact).write(
            h5py.h5s.ALL, h5py.h5s.ALL, np.arange(5, dtype="i4")
        )
        many = f.create_group("many")
        for i in range(30):
            many.create_dataset(f"d{i:02}", data=i)


def shown(value, f):
    """A value as text; references as the names of their targets."""
    if isinstance(value, h5py.Reference):
        return f"-> {f[value].name}" if value else "-> nothing"
    if isinstance(value, np.ndarray) and value.dtype == object:
        return [shown(v, f) for v in value.ravel()]
    if isinstance(value, np.ndarray):
        return f"{value.dtype.str} {value.shape} {value.tolist()}"
    return repr(value)


def tell_attributes(thing, f):
    for name in thing.attrs:
        attr = h5py.h5a.open(thing.id, name.encode())
        print("  @", name, attr.dtype, attr.shape, shown(thing.attrs[name], f) if "LIST" not in name else "")


def tell_dataset(d, f, what):
    plist = d.id.get_create_plist()
    print(
        "  ",
        d.dtype,
        d.shape,
        d.maxshape,
        d.chunks,
        d.compression,
        d.compression_opts,
        d.shuffle,
        d.fletcher32,
        d.scaleoffset,
        d.fillvalue if d.dtype.kind in "if" else "",
        plist.get_layout(),
        plist.get_alloc_time(),
        [plist.get_filter(i)[:: 3 if what == "values" else 1] for i in range(plist.get_nfilters())],
        plist.get_fill_time() if what == "all" else "",
    )
    if d.shape is None:
        return
    print("  ", shown(d[()], f))
    if d.ndim == 2 and d.size > 100:
        print("  ", shown(d[3:40:7, 2:30:3], f), shown(d[[1, 5, 20], 3], f))
    if what == "values":
        return
    print("  ", d.id.get_storage_size(), d.id.get_space_status())
    if d.chunks:
        print(
            "  ",
            [
                (i.chunk_offset, i.filter_mask, i.size)
                for i in sorted(d.id.get_chunk_info(n) for n in range(d.id.get_num_chunks()))
            ],
        )
        if d.id.get_num_chunks() and d.dtype.kind in "if":
            print(
                "  ",
                [
                    d.id.read_direct_chunk(d.id.get_chunk_info(n).chunk_offset)
                    for n in range(min(3, d.id.get_num_chunks()))
                ],
            )


def objno(at, name="."):
    """The number that identifies an object."""
    return h5py.h5g.get_objinfo(at.id, name.encode()).objno


def tell(path, what="all"):
    """All that is in a file; or everything except how it is stored."""
    with h5py.File(path, "r") as f:

        def visit(name, group, seen):
            links = h5py.h5g.get_objinfo(f.id, name.encode() or b"/").nlink
            print(name, "" if isinstance(group, h5py.Datatype) else links)
            tell_attributes(group, f)
            if isinstance(group, h5py.Datatype):
                print("  ", group.dtype)
            elif isinstance(group, h5py.Dataset):
                tell_dataset(group, f, what)
            else:
                for child in group:
                    link = group.get(child, getlink=True)
                    print("  >", child, type(link).__name__, getattr(link, "path", ""), getattr(link, "filename", ""))
                for child in group:
                    if isinstance(group.get(child, getlink=True), h5py.HardLink):
                        thing = group[child]
                        where = objno(thing) if isinstance(thing, h5py.Group) else objno(f, thing.name)
                        if where not in seen:
                            seen.add(where)
                            visit(f"{name}/{child}", thing, seen)

        visit("", f["/"], {objno(f)})
        refs = [name for name in ("refs",) if name in f]
        for name in refs:
            print([f[r].name if r else None for r in f[name][()]])


if __name__ == "__main__":
    {"make": make, "tell": tell}[sys.argv[1]](*sys.argv[2:])
