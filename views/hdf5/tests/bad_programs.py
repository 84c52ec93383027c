"""Programs with bad names, cycles and missing filters, run by test_bad_files.py once on native HDF5 and once on Cenote,
like those of structure_programs.py. The comparison covers whether a call fails, and its result if not."""

import os
import pathlib

import h5py
import numpy as np
import structure_programs

PROGRAMS = {}


def program(f):
    PROGRAMS[f.__name__] = f
    return f


def does(act, *args):
    """The result of a call, or that it fails."""
    try:
        out = act(*args)
    except Exception:
        return "fails"
    return out if isinstance(out, (int, bytes, str, list, tuple, bool, type(None))) else type(out).__name__


NAMES = [b"", b".", b"..", b"/", b"//", b"./x", b"../x", b"x/", b"x//y", b"/a/./b", b"a/../b", b"./.", b"a/.", b"..."]
NAMES += [b"\xff\xfe\x80", b"\xc3\x28", b"%ff", b"%", b"sp ace\n\t", b"\xc3\xa9", b"a@b", b"\x01\x7f"]
NAMES += [b"z" * 60_000, b"w" * 70_000, b"/".join([b"d"] * 2000)]


def listed(group):
    names = []
    group.id.links.iterate(lambda name: names.append((name[:30], len(name))))
    return sorted(names)


@program
def names_of_objects_links_and_attributes(d):
    lcpl = h5py.h5p.create(h5py.h5p.LINK_CREATE)
    lcpl.set_create_intermediate_group(True)
    scalar = h5py.h5s.create(h5py.h5s.SCALAR)
    int32 = h5py.h5t.NATIVE_INT32
    with h5py.File(f"{d}/names.h5", "w") as f:
        fid = f.id
        for name in NAMES:
            yield name[:30], len(name)
            yield does(h5py.h5g.create, fid, name, lcpl), does(fid.links.exists, name)
            yield does(h5py.h5o.open, fid, name), does(lambda n=name: h5py.h5o.exists_by_name(fid, n))
            yield does(fid.links.create_soft, b"soft" + name[:5], name), does(fid.links.create_soft, name, b"x")
            yield does(h5py.h5a.create, fid, name, int32, scalar), does(h5py.h5a.exists, fid, name)
            yield does(h5py.h5a.open, fid, name), does(h5py.h5a.rename, fid, name, b"renamed" + name[:4])
            yield does(h5py.h5d.create, fid, b"D" + name, int32, scalar), does(fid.links.move, b"D" + name, name)
            yield does(fid.unlink, name)
            if len(name) < 20_000:  # native files have links of 64 KiB at most
                yield does(fid.links.create_external, b"out" + name[:3], name, name)
                yield does(fid.links.get_val, b"out" + name[:3]), does(h5py.h5o.open, fid, b"out" + name[:3])
        yield listed(f), h5py.h5a.get_num_attrs(fid)
    with h5py.File(f"{d}/names.h5") as f:
        yield listed(f)


@program
def names_of_files(d):
    pathlib.Path(d, "dir/sub").mkdir(parents=True)
    os.symlink("dir/sub", f"{d}/link")
    os.symlink("later.h5", f"{d}/dangling.h5")
    os.symlink("round.h5", f"{d}/round.h5")
    os.chdir(d)
    names = [
        b"",
        b".",
        b"..",
        b"/",
        b"./",
        b"dir",
        b"dir/",
        b"none/x.h5",
        b"none/../x.h5",
        b"x.h5/",
        b"x.h5/.",
        b"x.h5/y",
    ]
    names += [
        b"link/../up.h5",
        b"dangling.h5",
        b"round.h5",
        b"\xff.h5",
        b"%ff.h5",
        b"%25ff.h5",
        b"sp ace\n.h5",
        b"a\npath: /b",
    ]
    names += [b"x" * 300, b"y" * 250, b"/".join([b"d"] * 3000), b"...", b"x.h5"]
    for name in names:
        yield name[:30], len(name)
        yield does(h5py.h5f.create, name, h5py.h5f.ACC_EXCL), does(h5py.h5f.open, name)
        yield does(h5py.h5f.create, name, h5py.h5f.ACC_TRUNC)

        def mark(name=name):
            fid = h5py.h5f.open(name, h5py.h5f.ACC_RDWR)
            h5py.h5g.create(fid, name[:20].replace(b"/", b"_") or b"empty")
            fid.close()

        yield does(mark), does(h5py.h5f.is_hdf5, name)
    for name in names:
        yield name[:30], does(lambda n=name: listed(h5py.File(h5py.h5f.open(n))))
    yield [sorted(os.listdir(name)) for name in (b".", b"dir", b"dir/sub")]  # noqa: PTH208 (names that are no text)
    # A renamed file of an odd name is the same file.
    for old, new in (b"sp ace\n.h5", b"%0a.h5"), (b"\xff.h5", b"\xfe\n.h5"), (b"%ff.h5", b"\xff.h5"):
        os.rename(old, new)  # noqa: PTH104 (names that are no text)
        yield new, listed(h5py.File(h5py.h5f.open(new))), does(h5py.h5f.open, old)
    # Hard links name the same file, too.
    os.link("x.h5", "other.h5")
    with h5py.File("other.h5", "r+") as f:
        f["through the other"] = 1
    with h5py.File("x.h5", "r+") as f:
        yield listed(f)
    with h5py.File("other.h5", "w") as f:
        f["new"] = 1
    with h5py.File("x.h5") as f:
        yield listed(f)


def visited(group):
    seen = [[], [], [], []]
    group.visit(seen[0].append)
    group.visit_links(seen[1].append)
    h5py.h5o.visit(group.id, seen[2].append)
    group.id.links.visit(seen[3].append)
    return seen


@program
def cycles_of_links(d):
    os.chdir(d)
    with h5py.File("a.h5", "w") as f, h5py.File("b.h5", "w") as g:
        for name, target in {"s1": "/s1", "s2": "s3", "s3": "s2", "lost": "/no/where", "up": "..", "self": "."}.items():
            f[name] = h5py.SoftLink(target)
        f["deep"] = h5py.SoftLink("self/self/self/self")
        for i in range(40):
            f[f"c{i}"] = h5py.SoftLink(f"c{i + 1}")
        f["c40"] = np.arange(3)
        x = f.create_group("x")
        x["me"] = x
        x["root"] = f["/"]
        x.create_group("y")["back"] = x
        x["y/d"] = [1]
        f["e"], g["e"] = h5py.ExternalLink("b.h5", "/e"), h5py.ExternalLink("a.h5", "/e")
        f["e2"] = h5py.ExternalLink("a.h5", "/x/y")
        f["eself"] = h5py.ExternalLink("a.h5", "/eself")
        f["egone"], f["edir"] = h5py.ExternalLink("gone.h5", "/x"), h5py.ExternalLink(".", "/x")
        f["eempty"] = h5py.ExternalLink("b.h5", "/nothing")
        for i in range(20):
            (f if i % 2 else g)[f"h{i}"] = h5py.ExternalLink("b.h5" if i % 2 else "a.h5", f"/h{i + 1}")
        g["h20"] = 5
    paths = ["x/me/me/me/y/back/root/x/me/y/d", "self/self/x", "e2/back/me/y/d", "x/" * 300]
    paths += ["self/" * n + "x" for n in (15, 16, 17, 20)]
    for mode in "r", "r+":
        with h5py.File("a.h5", mode) as f:
            for name in [*sorted(f), *paths]:
                yield name[:20], len(name), does(lambda n=name: f[n].name), does(lambda n=name: n in f)
                yield does(f.get, name, None, False, True), does(h5py.h5o.exists_by_name, f.id, name.encode())
                if mode == "r+":
                    yield does(f.create_group, name + "/new")
            yield visited(f), visited(f["x"]), f["x/me"] == f["x"], f["x/root"] == f["/"]
            yield [h5py.h5o.get_info(f[name].id).rc for name in ("x", "/", "x/y")]
    with h5py.File("a.h5", "r") as f:
        # Native HDF5 2.0 does not survive the copy of a group with external links expanded.
        for options in ({}, {"expand_soft": True}, {"expand_refs": True}, {"shallow": True}):
            with h5py.File("copy.h5", "w") as g:
                yield does(lambda g=g, o=options: f.copy("x", g, name="x", **o)), visited(g)
                yield does(lambda g=g, o=options: f.copy("s1", g, name="s1", **o))
                yield does(lambda g=g, o=options: f.copy("e", g, name="e", **o))
                yield does(lambda g=g, o=options: f.copy("c30", g, name="c30", **o))
    with h5py.File("a.h5", "r+") as f:
        for name in ("x/me", "x/root", "s1", "s2", "e", "/", ".", ".."):
            yield name, does(f.__delitem__, name), visited(f)
        yield does(f.__delitem__, "x"), sorted(f)


@program
def extents_that_no_number_counts(d):
    huge = h5py.h5s.create_simple((1_804_289_383, 846_930_886, 1_681_692_777))
    dcpl = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    dcpl.set_chunk((16, 16, 16))
    with h5py.File(f"{d}/huge.h5", "w") as f:
        yield does(h5py.h5d.create, f.id, b"contiguous", h5py.h5t.NATIVE_FLOAT, huge)
        yield does(h5py.h5d.create, f.id, b"chunked", h5py.h5t.NATIVE_FLOAT, huge, dcpl)
        yield does(h5py.h5a.create, f.id, b"attribute", h5py.h5t.NATIVE_FLOAT, huge)
    with h5py.File(f"{d}/huge.h5", "r+") as f:
        chunked = f["chunked"]
        yield list(f), list(f.attrs), chunked.shape, chunked.chunks, chunked.id.get_storage_size()
        yield does(lambda: chunked.__setitem__((1000, 2000, 3000), 5))
        yield chunked.id.get_num_chunks()


@program
def filters_that_are_not_there(d):
    """The filter (zstd) is registered by importing hdf5plugin; nobody does here."""
    mandatory, optional = h5py.h5z.FLAG_MANDATORY, h5py.h5z.FLAG_OPTIONAL
    yield h5py.h5z.filter_avail(32015)
    space = h5py.h5s.create_simple((1000,))
    with h5py.File(f"{d}/filters.h5", "w") as f:
        for name, flag in (b"mandatory", mandatory), (b"optional", optional):
            dcpl = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            dcpl.set_chunk((100,))
            dcpl.set_filter(32015, flag, (3,))
            dcpl.set_deflate(1)
            yield name, does(h5py.h5d.create, f.id, name, h5py.h5t.NATIVE_DOUBLE, space, dcpl)
        f["optional"][:] = np.arange(1000)
        f["optional"][5:8] = 0
    with h5py.File(f"{d}/filters.h5") as f:
        yield list(f), f["optional"][:20].tolist(), f["optional"].id.get_chunk_info(0).filter_mask


if __name__ == "__main__":
    structure_programs.PROGRAMS.clear()
    structure_programs.PROGRAMS.update(PROGRAMS)
    structure_programs.main()
