"""Programs with calls of the C library that h5py does not make, run by test_calls.py once on native HDF5 and once on
Cenote, like those of structure_programs.py."""

import ctypes
import io
import os
import pathlib

import h5py
import numpy as np
import structure_programs
from capi import HID, SIZE, C
from structure_programs import fails

PROGRAMS = {}


def program(f):
    PROGRAMS[f.__name__] = f
    return f


def name_of(c, obj):
    room = ctypes.create_string_buffer(200)
    c.H5Iget_name(obj.id.id, room, SIZE(200))
    return room.value


def parent_and_child(d):
    with h5py.File(f"{d}/parent.h5", "w") as f:
        f["mnt/hidden"] = 1
        f["other/one"] = [1, 2]
        f["number"] = 7
    with h5py.File(f"{d}/child.h5", "w") as f:
        f["data"] = [3, 4, 5]
        f["sub/deep"] = 9
        f["absolute"] = h5py.SoftLink("/other/one")
        f["relative"] = h5py.SoftLink("sub/deep")
    return h5py.File(f"{d}/parent.h5", "r+"), h5py.File(f"{d}/child.h5", "r+")


@program
def paths_lead_over_mount_points(d):
    c = C()
    parent, child = parent_and_child(d)
    p, k = parent.id.id, child.id.id
    before = parent["mnt"]
    c.H5Fmount(p, "/mnt", k, 0)
    yield list(parent["mnt"]), parent["mnt/data"][:].tolist(), "hidden" in parent["mnt"], list(before)
    yield parent["mnt/relative"][()], parent["mnt/absolute"][:].tolist(), parent["mnt/sub"].name, parent["mnt"].name
    yield name_of(c, parent["mnt/data"]), parent["mnt/sub"]["deep"][()], parent["mnt/sub"]["/number"][()]
    # Absolute paths and the child's own id start at the top of the hierarchy.
    yield sorted(child), child["/number"][()], fails(lambda: child["data"])
    parent["mnt"].create_group("made/here")
    parent["mnt/sub"]["new"] = np.arange(3)
    del parent["mnt/relative"]
    yield [h5py.h5o.get_info(parent[n].id).type for n in ("mnt", "mnt/data", "mnt/made/here")]
    top = h5py.h5g.open(parent.id, b"/")
    for visit in (lambda f: h5py.h5o.visit(top, f, info=True), lambda f: top.links.visit(f, info=True)):
        met = []
        visit(lambda name, info, met=met: met.append((name, info.type)))
        yield met
    for again in ((p, "/mnt", k), (p, "/other", k), (p, "/number", k), (p, "/nowhere", k), (k, "/mnt/sub", p)):
        yield fails(c.H5Fmount, *again, 0)
    c.H5Funmount(p, "/mnt")
    yield list(parent["mnt"]), sorted(child), sorted(child["sub"]), sorted(child["made"])
    yield fails(c.H5Funmount, p, "/mnt"), fails(c.H5Funmount, p, "/nowhere"), fails(c.H5Funmount, p, "/")
    parent.close()
    child.close()


@program
def mounts_nest_and_outlive_ids(d):
    c = C()
    parent, child = parent_and_child(d)
    with h5py.File(f"{d}/third.h5", "w") as f:
        f["leaf"] = 11
    third = h5py.File(f"{d}/third.h5", "r+")
    c.H5Fmount(parent.id.id, "mnt", child.id.id, 0)
    c.H5Fmount(parent.id.id, "mnt/sub", third.id.id, 0)
    yield parent["mnt/sub/leaf"][()], "deep" in parent["mnt/sub"]
    # A cycle is refused, whichever file is asked.
    yield fails(c.H5Fmount, parent.id.id, "/mnt/sub", parent.id.id, 0)
    leaf = parent["mnt/sub/leaf"]
    third.id.close()
    child.id.close()
    yield parent["mnt/sub/leaf"][()], parent["mnt/data"][:].tolist(), leaf[()]
    # Unmounting the middle file unmounts what is below it.
    c.H5Funmount(parent.id.id, "/mnt")
    yield list(parent["mnt"]), leaf[()]
    leaf.id.close()
    parent.close()
    # Nothing holds the files any more: they can be created again.
    for name in ("parent", "child", "third"):
        h5py.File(f"{d}/{name}.h5", "w").close()
        yield [(d / f"{name}.h5").exists()]


@program
def closing_the_parent_closes_what_is_mounted(d):
    c = C()
    parent, child = parent_and_child(d)
    c.H5Fmount(parent.id.id, "/mnt", child.id.id, 0)
    data = parent["mnt/data"]
    child.id.close()
    parent.id.close()
    yield data[:].tolist()
    data.id.close()
    for name in ("parent", "child"):
        with h5py.File(f"{d}/{name}.h5", "r+") as f:
            yield sorted(f)
    with h5py.File(f"{d}/child.h5", "w") as f:
        yield sorted(f)


Traverse = ctypes.CFUNCTYPE(HID, ctypes.c_char_p, HID, ctypes.c_void_p, SIZE, HID, HID)
Told = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, HID, ctypes.c_void_p, SIZE)
Made = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, HID, ctypes.c_void_p, SIZE, HID)
Query = ctypes.CFUNCTYPE(ctypes.c_ssize_t, ctypes.c_char_p, ctypes.c_void_p, SIZE, ctypes.c_void_p, SIZE)


class LinkClass(ctypes.Structure):
    _fields_ = [
        ("version", ctypes.c_int),
        ("id", ctypes.c_int),
        ("comment", ctypes.c_char_p),
        ("create", Made),
        ("move", Told),
        ("copy", Told),
        ("traverse", Traverse),
        ("delete", Told),
        ("query", Query),
    ]


@program
def user_defined_links_do_what_their_class_says(d):
    """Links whose value is a path, spelled backwards, that is followed from the root group."""
    c, told = C(), []
    c.lib.H5Oopen.restype = HID

    def told_of(what, result=0):
        def f(name, group, value, size, *_):
            told.append((what, name, ctypes.string_at(value, size)))
            return result

        return f

    def traverse(name, group, value, size, lapl, dxpl):
        told.append(("traverse", name))
        path = ctypes.string_at(value, size)[::-1]
        return c.lib.H5Oopen(HID(group), path, HID(0))

    def query(name, value, size, room, room_size):
        if room and room_size:
            ctypes.memmove(room, value, min(size, room_size))
        return size

    kind = LinkClass(
        1, 187, b"backwards", Made(told_of("made")), Told(told_of("moved")), Told(told_of("copied")),
        Traverse(traverse), Told(told_of("deleted")), Query(query),
    )  # fmt: skip
    with h5py.File(f"{d}/f.h5", "w") as f:
        f["group/data"] = [1, 2, 3]
        at = f.id.id
        yield fails(c.H5Lcreate_ud, at, "early", 187, b"x", SIZE(1), 0, 0)
        c.H5Lregister(ctypes.byref(kind))
        value = b"/group/data"[::-1]
        c.H5Lcreate_ud(at, "back", 187, value, SIZE(len(value)), 0, 0)
        yield f["back"][:].tolist(), f.id.links.get_info(b"back").type, f.id.links.get_info(b"back").u
        room = ctypes.create_string_buffer(32)
        c.H5Lget_val(at, "back", room, SIZE(32), 0)
        yield room.value
        f["group"].create_group("below")
        c.H5Lcreate_ud(at, "to_group", 187, b"puorg/", SIZE(6), 0, 0)
        yield sorted(f["to_group"]), f["to_group/data"][()].tolist()
        f["to_group/made"] = 5
        c.H5Lcopy(at, "back", at, "copy", 0, 0)
        c.H5Lmove(at, "copy", at, "moved", 0, 0)
        yield sorted(f), f["moved"][:].tolist(), f["group/made"][()]
        c.H5Lcreate_ud(at, "dangling", 187, b"erehwon", SIZE(7), 0, 0)
        yield fails(lambda: f["dangling"]), "dangling" in f
        del f["moved"]
        yield told
        c.H5Lunregister(187)
        yield fails(lambda: f["back"]), sorted(f), fails(lambda: f.__delitem__("back"))
    refusing = LinkClass(
        1, 188, b"no", Made(told_of("refused", -1)), Told(), Told(), Traverse(traverse), Told(), Query()
    )
    with h5py.File(f"{d}/f.h5", "r+") as f:
        c.H5Lregister(ctypes.byref(refusing))
        yield fails(c.H5Lcreate_ud, f.id.id, "refused", 188, b"x", SIZE(1), 0, 0)


@program
def committed_types_count_what_is_made_with_them(d):
    with h5py.File(f"{d}/f.h5", "w") as f:

        def count():
            return h5py.h5o.get_info(f["type"].id).rc

        f["type"] = np.dtype([("a", "i4"), ("b", "f8")])
        yield [count()]
        f.create_dataset("x", 3, dtype=f["type"])
        f.create_dataset("y", 3, dtype=f["type"])
        f.attrs.create("one", np.zeros(1, f["type"].dtype), dtype=f["type"])
        yield [count()]
        f["again"] = f["type"]
        yield [count()]
        del f["x"], f.attrs["one"]
        yield [count()]
        kept = f["y"].id.get_type()
        yield [kept.committed()]
        del f["type"], f["again"], kept
        # Without a link, but in use.
        yield f["y"].dtype.names, f["y"].id.get_type().committed()
    with h5py.File(f"{d}/f.h5", "r+") as f:
        yield [f["y"].id.get_type().committed()]
        del f["y"]
        yield list(f)


@program
def fields_of_attributes_are_written_and_read_alone(d):
    whole = np.dtype([("a", "i4"), ("b", "f8"), ("s", "S3")])
    with h5py.File(f"{d}/f.h5", "w") as f:
        f.attrs.create("x", np.array([(1, 2.5, b"abc"), (3, 4.5, b"de")], whole))
        attr = h5py.h5a.open(f.id, b"x")
        part = np.array([(7.5,), (8.5,)], [("b", "f8")])
        attr.write(part)
        yield f.attrs["x"].tolist()
        into = np.array([(70, b"zz", 9), (80, b"yy", 8)], [("a", "i4"), ("s", "S3"), ("mine", "i2")])
        attr.read(into, h5py.h5t.py_create(np.dtype([("a", "i4")])))
        names = np.array([(b"", 0), (b"", 0)], [("s", "S3"), ("a", "i8")])
        attr.read(names)
        yield names.tolist()
        unwritten = h5py.h5a.create(f.id, b"y", h5py.h5t.py_create(whole), h5py.h5s.create_simple((2,)))
        unwritten.write(part)
        yield f.attrs["y"].tolist()


@program
def references_of_the_new_kind(d):
    """To objects, regions and attributes, stored in datasets and attributes, in memory and in another file."""
    c = C()
    ref, names = ctypes.c_char * 64, ctypes.create_string_buffer(300)
    kind = c.id("H5T_STD_REF_g")

    def described(r, at):
        what = c.H5Rget_type(ctypes.byref(r))
        obj = c.H5Ropen_object(ctypes.byref(r), 0, 0)
        c.H5Iget_name(obj, names, SIZE(300))
        seen = [what, names.value]
        c.H5Rget_obj_name(ctypes.byref(r), 0, names, SIZE(300))
        seen.append(names.value)
        c.H5Rget_file_name(ctypes.byref(r), names, SIZE(300))
        seen.append(os.fsencode(pathlib.Path(os.fsdecode(names.value)).name))
        if what == 3:
            space = c.H5Ropen_region(ctypes.byref(r), 0, 0)
            seen.append(h5py.h5s.SpaceID(space).get_select_bounds())
        if what == 4:
            c.H5Rget_attr_name(ctypes.byref(r), names, SIZE(300))
            attr = h5py.h5a.AttrID(c.H5Ropen_attr(ctypes.byref(r), 0, 0))
            value = np.zeros(attr.shape, attr.dtype)
            attr.read(value)
            seen += [names.value, value.tolist()]
        c.H5Oclose(obj)
        return seen

    with h5py.File(f"{d}/f.h5", "w") as f:
        f["group/data"] = np.arange(60).reshape(6, 10)
        f["group/data"].attrs["unit"] = [4, 5, 6]
        f["kind"] = np.dtype("i4")
        space = h5py.h5s.create_simple((6, 10))
        space.select_hyperslab((1, 2), (3, 4))
        refs = (ref * 4)()
        at = f.id.id
        c.H5Rcreate_object(at, "/group/data", 0, ctypes.byref(refs[0]))
        c.H5Rcreate_region(at, "/group/data", space.id, 0, ctypes.byref(refs[1]))
        c.H5Rcreate_attr(at, "/group/data", "unit", 0, ctypes.byref(refs[2]))
        c.H5Rcreate_object(at, "/kind", 0, ctypes.byref(refs[3]))
        yield [described(r, at) for r in refs]
        yield [c.H5Requal(ctypes.byref(refs[0]), ctypes.byref(r)) for r in refs]
        line = h5py.h5s.create_simple((4,))
        x = c.H5Dcreate2(at, "refs", kind, line.id, 0, 0, 0)
        c.H5Dwrite(x, kind, 0, 0, 0, ctypes.byref(refs))
        a = c.H5Acreate2(x, "refs", kind, line.id, 0, 0)
        c.H5Awrite(a, kind, ctypes.byref(refs))
        c.H5Aclose(a)
        c.H5Dclose(x)
        yield [c.H5Rdestroy(ctypes.byref(r)) for r in refs]
    with h5py.File(f"{d}/f.h5", "r") as f:
        refs, at = (ref * 4)(), f.id.id
        x = c.H5Dopen2(at, "refs", 0)
        c.H5Dread(x, kind, 0, 0, 0, ctypes.byref(refs))
        yield [described(r, at) for r in refs]
        a = c.H5Aopen(x, "refs", 0)
        again = (ref * 4)()
        c.H5Aread(a, kind, ctypes.byref(again))
        yield (
            [described(r, at) for r in again],
            [c.H5Requal(ctypes.byref(a), ctypes.byref(b)) for a, b in zip(refs, again, strict=True)],
        )
        copy = ref()
        c.H5Rcopy(ctypes.byref(refs[2]), ctypes.byref(copy))
        yield described(copy, at), [c.H5Rdestroy(ctypes.byref(r)) for r in [*refs, *again, copy]]
        c.H5Aclose(a)
        c.H5Dclose(x)


@program
def the_size_of_variable_length_parts(d):
    c = C()
    with h5py.File(f"{d}/f.h5", "w") as f:
        x = f.create_dataset("x", 4, h5py.vlen_dtype("i4"))
        for i in range(4):
            x[i] = range(i)
        s = f.create_dataset("s", 3, h5py.string_dtype())
        s[:] = ["", "four", "nineteen"]
        for one, kind in ((x, h5py.h5t.vlen_create(h5py.h5t.NATIVE_INT32)), (s, s.id.get_type())):
            size = ctypes.c_uint64()
            space = one.id.get_space()
            c.H5Dvlen_get_buf_size(one.id.id, kind.id, space.id, ctypes.byref(size))
            yield [size.value]


@program
def an_emptied_group_counts_from_zero_again(d):
    with h5py.File(f"{d}/f.h5", "w", track_order=True) as f:
        g = f.create_group("g")
        orders = lambda: [g.id.links.get_info(n.encode()).corder for n in g]  # noqa: E731
        for name in "xyz":
            g[name] = 1
        del g["y"]
        g["w"] = 2
        yield orders()
        for name in list(g):
            del g[name]
        g["new"] = 1
        g["newer"] = 1
        yield orders()
        f.create_group("h")
        f.move("g/new", "h/new")
        f.move("g/newer", "h/newer")
        g["last"] = 1
        yield orders()


@program
def calls_about_the_file_format(d):
    c = C()
    yes = ctypes.c_bool()
    with h5py.File(f"{d}/f.h5", "w") as f:
        x = f.create_dataset("x", data=np.arange(10))
        at = f.id.id
        yield [c.H5Fincrement_filesize(at, ctypes.c_uint64(10)), c.H5Fformat_convert(at)]
        for call in (c.H5Odisable_mdc_flushes, c.H5Oenable_mdc_flushes):
            call(x.id.id)
            c.H5Oare_mdc_flushes_disabled(x.id.id, ctypes.byref(yes))
            yield [yes.value]
        yield [c.H5Dformat_convert(x.id.id)]
        yield [call(x.id.id) for call in (c.H5Oflush, c.H5Orefresh, c.H5Dflush, c.H5Drefresh)], x[:].tolist()
        c.H5Oincr_refcount(x.id.id)
        yield [h5py.h5o.get_info(x.id).rc]
        del f["x"]
        yield [h5py.h5o.get_info(x.id).rc, x[3]]
        c.H5Odecr_refcount(x.id.id)


@program
def names_may_be_long(d):
    with h5py.File(f"{d}/f.h5", "w", libver="latest") as f:
        for n in (64_000, 65_535, 66_560):
            f["x" * n] = h5py.SoftLink("/there")
            f["y" * n] = n
        yield sorted(map(len, f)), f["y" * 66_560][()]


@program
def ids_of_our_own_do_not_count(d):
    c = C()
    everything = 0x1F

    def counts():
        return [c.H5Fget_obj_count(everything, kind) for kind in (1, 2, 4, 8, 16)]

    with h5py.File(f"{d}/f.h5", "w") as f:
        before = counts()
        f["x"] = np.arange(4)
        f.attrs["a"] = "text"
        f["t"] = np.dtype("i4")
        x, a, t = f["x"], h5py.h5a.open(f.id, b"a"), f["t"]
        yield [b - a for a, b in zip(before, counts(), strict=True)], x[0], bool(a), bool(t)


@program
def what_is_no_list_is_refused(d):
    c = C()
    with h5py.File(f"{d}/f.h5", "w") as f:
        f["g/x"] = 1
        f.attrs["a"] = 1
        at, bad = f.id.id, -1
        for call in (
            lambda: c.H5Gopen2(at, "g", bad),
            lambda: c.H5Dopen2(at, "g/x", bad),
            lambda: c.H5Aopen(at, "a", bad),
            lambda: c.H5Oopen(at, "g", bad),
            lambda: c.H5Gcreate2(at, "new", 0, 0, bad),
            lambda: c.H5Ldelete(at, "g", bad),
            lambda: c.H5Lcreate_soft("/g", at, "soft", 0, bad),
            lambda: c.H5Lcopy(at, "g", at, "copy", 0, bad),
        ):
            yield fails(call)
        yield sorted(f)


@program
def files_in_memory(d):
    """They are native, whatever connector is chosen: HDF5's and the program's drivers, images, netCDF's too."""
    import netCDF4

    with h5py.File(f"{d}/core.h5", "w", driver="core", backing_store=False) as f:
        f["x"] = np.arange(5)
        f.create_group("g").attrs["a"] = "text"
        f["zipped"] = h5py.SoftLink("/x")
        f.flush()
        yield f.driver, f["zipped"][:].tolist(), sorted(f), f.id.get_file_image()[:8], h5py.h5f.get_obj_count(f.id)
        image = f.id.get_file_image()
        with h5py.File(f.id) as again:
            yield again == f, list(again["g"].attrs)
    yield "Error" in fails(h5py.File, f"{d}/core.h5", "r", driver="core"), pathlib.Path(f"{d}/core.h5").exists()
    with h5py.File(h5py.h5f.open_file_image(image)) as f:
        yield f["x"][:].tolist(), sorted(f)
    memory = io.BytesIO()
    with h5py.File(memory, "w") as f:
        f.create_dataset("y", data=np.arange(1000), chunks=(100,), compression="gzip")
        f["ref"] = f["y"].ref
    yield memory.getvalue()[:8]
    with h5py.File(memory, "r+") as f:
        yield f["y"][::100].tolist(), f[f["ref"][()]].name
        f["z"] = 1
    with h5py.File(memory) as f:
        yield sorted(f), f["z"].file == f
    n = netCDF4.Dataset("in-memory.nc", "w", memory=1024)
    n.createDimension("t", 3)
    n.createVariable("v", "f4", ("t",))[:] = [1, 2, 3]
    content = n.close()
    with netCDF4.Dataset("any.nc", memory=bytes(content)) as n:
        yield n["v"][:].tolist(), bytes(content[:4])
    # With a backing store it is an ordinary file, in the store if others are.
    with h5py.File(f"{d}/backed.h5", "w", driver="core", backing_store=True) as f:
        f["x"] = [7]
    with h5py.File(f"{d}/backed.h5", "r+") as f:
        f["y"] = f["x"][0] + 1
    with h5py.File(f"{d}/backed.h5", "r", driver="core") as f:
        yield f["y"][()], f.driver


if __name__ == "__main__":
    structure_programs.PROGRAMS.clear()
    structure_programs.PROGRAMS.update(PROGRAMS)
    structure_programs.main()
