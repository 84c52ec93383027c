"""Cases that the random comparison (`differential`) found, as programs that test_found.py runs once on native HDF5
and
once on Cenote, like those of structure_programs.py."""

import ctypes

import h5py
import numpy as np
import structure_programs
from capi import C
from h5py import h5d, h5o, h5p, h5s, h5t
from structure_programs import fails

PROGRAMS = {}
OPTIONAL = 1
MISSING = 311  # a filter that does not exist


def program(f):
    PROGRAMS[f.__name__] = f
    return f


def make(f, name, shape, kind, dcpl=None, most=None):
    return h5d.create(f.id, name, h5py.h5t.py_create(np.dtype(kind)), h5s.create_simple(shape, most), dcpl)


@program
def a_filter_is_left_out_between_others(d):
    dcpl = h5p.create(h5p.DATASET_CREATE)
    dcpl.set_chunk((4,))
    dcpl.set_deflate(3)
    dcpl.set_filter(MISSING, OPTIONAL, (3,))
    dcpl.set_fletcher32()
    values = np.random.default_rng(5).integers(0, 2**31, 7, "i4")
    with h5py.File(f"{d}/f.h5", "w") as f:
        make(f, b"x", (7,), "i4", dcpl).write(h5s.ALL, h5s.ALL, values)
    with h5py.File(f"{d}/f.h5") as f:
        x = f["x"]
        yield x[:].tolist(), [x.id.get_chunk_info_by_coord((n,)).filter_mask for n in (0, 4)]


@program
def nothing_is_read_where_no_storage_is(d):
    with h5py.File(f"{d}/f.h5", "w") as f:
        text, padded = np.dtype("S8"), h5t.C_S1.copy()
        padded.set_size(4)
        padded.set_strpad(h5t.STR_SPACEPAD)
        filled = np.dtype([("a", "i4"), ("b", "i4")])
        for chunks in (None, (2,)):
            for value in (None, b"xy"):
                x = f.create_dataset(f"{chunks}{value}", (3,), text, chunks=chunks, fillvalue=value)
                out = np.full(3, b"????", "S4")
                x.id.read(h5s.ALL, h5s.ALL, out, padded)
                yield out.tobytes()
            for value in (None, np.array((5, 6), filled)):
                x = f.create_dataset(f"{chunks}{value} fields", (2,), filled, chunks=chunks, fillvalue=value)
                out = np.full(2, -1, [("b", "i8"), ("a", "i2"), ("c", "i4")])
                yield fails(x.id.read, h5s.ALL, h5s.ALL, out), out.tolist()
                x[0] = (1, 2)
                out = np.full(2, -1, [("b", "i8"), ("a", "i2")])
                yield fails(x.id.read, h5s.ALL, h5s.ALL, out), out.tolist()
        # Nothing is selected, so the missing fill value does not matter; but types must convert.
        dcpl = h5p.create(h5p.DATASET_CREATE)
        c = C()
        c.H5Pset_fill_value(dcpl.id, -1, None)
        x = make(f, b"undefined", (0,), "f8", dcpl, (0,))
        yield fails(x.read, h5s.ALL, h5s.ALL, np.zeros(0))
        colours = h5py.enum_dtype({"RED": 0, "GREEN": 1}, "i2")
        f["colours"] = np.array([0, 1], colours)
        none = f["colours"].id.get_space()
        none.select_none()
        here = h5s.create_simple((2,))
        here.select_none()
        for out in (np.zeros(2, "f8"), np.zeros(2, "i4"), np.zeros(2, "S3")):
            yield fails(f["colours"].id.read, here, none, out)


@program
def a_dataset_that_lost_its_chunks_is_read_like_one_that_has_some(d):
    kind, more = np.dtype([("a", "i4"), ("b", "i4")]), [("b", "i8"), ("c", "i4"), ("a", "i2")]
    with h5py.File(f"{d}/f.h5", "w") as f:
        for name in ("never", "lost"):
            f.create_dataset(name, (6,), kind, chunks=(2,), maxshape=(None,), fillvalue=np.array((5, 6), kind))
        f["lost"][4:] = (1, 2)
        f["lost"].resize((2,))
        f.copy("lost", "copied")
        for name in ("never", "lost", "copied"):
            out = np.full(f[name].shape, -1, more)
            f[name].id.read(h5s.ALL, h5s.ALL, out)
            yield name, out.tolist()


@program
def copies_of_zeros_are_allocated(d):
    with h5py.File(f"{d}/f.h5", "w") as f:
        for name, chunks in (("plain", None), ("chunks", (2,))):
            f.create_dataset(name, (5,), "i4", chunks=chunks)[:] = 0
        f.create_dataset("nothing", (5,), "i4")
        x = f.create_dataset("parts", (2,), h5py.vlen_dtype("i4"))
        x[0], x[1] = [0, 0], [0]
        for name in list(f):
            f.copy(name, f"{name} again")
            again = f[f"{name} again"]
            yield again.id.get_space_status(), [np.asarray(part).tolist() for part in again[:]]


@program
def links_move_into_other_files(d):
    with h5py.File(f"{d}/b.h5", "w") as f:
        f["group/inside"] = 1
    with h5py.File(f"{d}/a.h5", "w") as f:
        f["out"] = h5py.ExternalLink("b.h5", "/group")
        f["soft"] = h5py.SoftLink("/out")
        f["another"] = h5py.ExternalLink("b.h5", "/")
        f.move("soft", "out/moved")
        yield sorted(f), sorted(f["out"])
        f.move("another", "another/itself")
        yield sorted(f)
    with h5py.File(f"{d}/b.h5") as f:
        yield sorted(f), sorted(f["group"]), f["group"].get("moved", getlink=True).path


@program
def hard_links_stay_in_their_file(d):
    with h5py.File(f"{d}/b.h5", "w") as f:
        f["group/inside"] = 1
    with h5py.File(f"{d}/a.h5", "w") as f:
        f["out"] = h5py.ExternalLink("b.h5", "/group")
        f["here/x"] = 1
        links = f.id.links
        yield fails(links.move, b"here", f.id, b"out/moved")
        yield fails(f["here"].id.links.move, b"x", f.id, b"out/moved")
        yield fails(links.create_hard, b"out/made", f.id, b"here")
        where = ctypes.c_int64(f.id.id)
        yield C().lib.H5Lcopy(where, b"here", where, b"out/copied", *[ctypes.c_int64(0)] * 2)
        yield sorted(f), sorted(f["out"]), f["here/x"][()]


@program
def a_link_moves_below_a_new_group_beside_it(d):
    with h5py.File(f"{d}/f.h5", "w", track_order=True) as f:
        f["first"] = 1
        lcpl = h5p.create(h5p.LINK_CREATE)
        lcpl.set_create_intermediate_group(True)
        f.id.links.move(b"first", f.id, b"new/moved", lcpl=lcpl)
        f["last"] = 2
        yield list(f), [f.id.links.get_info(name).corder for name in (b"new", b"last")]


@program
def copies_keep_the_order_of_creation(d):
    gcpl = h5p.create(h5p.GROUP_CREATE)
    gcpl.set_link_creation_order(3)
    gcpl.set_attr_creation_order(3)
    with h5py.File(f"{d}/f.h5", "w") as f:
        h5py.h5g.create(f.id, b"g", gcpl=gcpl)
        for things in (f["g"], f["g"].attrs):
            for name in "abcd":
                things[name] = 1
            del things["a"], things["d"]
            things["a"] = 2
        f.copy("g", "h")
        for group in (f["g"], f["h"]):
            group["last"] = group.attrs["last"] = 3
            yield [(name, group.id.links.get_info(name.encode()).corder) for name in group]
            yield [(name, h5py.h5a.get_info(group.id, name.encode()).corder) for name in group.attrs]


@program
def what_grew_from_nothing_is_copied(d):
    dcpl = h5p.create(h5p.DATASET_CREATE)
    dcpl.set_chunk((7,))
    with h5py.File(f"{d}/f.h5", "w") as f:
        yield fails(make, f, b"short", (3,), "i4", dcpl, (6,))
        make(f, b"x", (0,), "i4", dcpl, (6,)).set_extent((3,))
        f["x"][1:] = [4, 5]
        f.copy("x", "y")
        yield f["y"][:].tolist(), f["y"].maxshape, f["y"].chunks


@program
def copies_keep_comments(d):
    with h5py.File(f"{d}/f.h5", "w") as f:
        f["group/dataset"] = 1
        f["group/type"] = np.dtype("i4")
        for name in (b"group", b"group/dataset", b"group/type"):
            h5py.h5o.set_comment(f.id, b"about " + name, obj_name=name)
        f.copy("group", "copy")
        f.copy("group/type", "type", without_attrs=True)
        for name in ("copy", "copy/dataset", "copy/type", "type"):
            one, text = f[name], ctypes.create_string_buffer(99)
            C().H5Oget_comment(one.id.id, text, len(text))
            yield text.value


@program
def the_value_of_a_soft_link_is_cut_off(d):
    c = C()
    with h5py.File(f"{d}/f.h5", "w") as f:
        f["soft"] = h5py.SoftLink("/a/path")
        for size in (100, 8, 7, 3, 1):
            room = ctypes.create_string_buffer(b"~" * 100, 100)
            c.H5Lget_val(f.id.id, "soft", room, ctypes.c_size_t(size), 0)
            yield room.raw.rstrip(b"~\0")


@program
def what_cannot_be_reached_does_not_exist(d):
    with h5py.File(f"{d}/b.h5", "w") as f:
        f["back"] = h5py.ExternalLink("a.h5", "/round")
        f["there"] = 1
    with h5py.File(f"{d}/a.h5", "w") as f:
        f["round"] = h5py.ExternalLink("b.h5", "/back")
        f["there"] = h5py.ExternalLink("b.h5", "/there")
        f["gone"] = h5py.ExternalLink("none.h5", "/there")
        f["soft"] = h5py.SoftLink("/gone")
        f["loop"] = h5py.SoftLink("/loop")
        for name in (b"round", b"there", b"gone", b"soft", b"loop", b"gone/x", b"none", b"none/x"):
            yield fails(h5o.exists_by_name, f.id, name)


@program
def attributes_without_elements_are_written_even_for_readers(d):
    c = C()
    with h5py.File(f"{d}/f.h5", "w") as f:
        f.attrs["nothing"] = h5py.Empty("i4")
        f.attrs["one"] = 1
    with h5py.File(f"{d}/f.h5") as f:
        for name in (b"nothing", b"one"):
            one = h5py.h5a.open(f.id, name)
            yield fails(c.H5Awrite, one.id, h5t.NATIVE_INT32.id, ctypes.create_string_buffer(4))


@program
def nothing_takes_no_space(d):
    dcpl = h5p.create(h5p.DATASET_CREATE)
    dcpl.set_alloc_time(h5d.ALLOC_TIME_EARLY)
    with h5py.File(f"{d}/f.h5", "w") as f:
        for name, space in (
            (b"null", h5s.create(h5s.NULL)),
            (b"empty", h5s.create_simple((0, 3))),
            (b"one", h5s.create(h5s.SCALAR)),
        ):
            x = h5d.create(f.id, name, h5t.NATIVE_INT32, space, dcpl)
            yield x.get_space_status(), x.get_storage_size()


@program
def chunks_are_written_in_the_order_of_the_calls(d):
    with h5py.File(f"{d}/f.h5", "w") as f:
        x = f.create_dataset("x", (8,), "i1", chunks=(4,))
        for n in range(40):
            x[:] = n
            x.id.read_direct_chunk((4,))
            x[:] = n + 1
            x.id.write_direct_chunk((4,), bytes([100 + n] * 4))
            yield x[:].tolist()


if __name__ == "__main__":
    structure_programs.PROGRAMS.clear()
    structure_programs.PROGRAMS.update(PROGRAMS)
    structure_programs.main()
