"""Attributes of all datatypes: creating, writing, reading as other types, renaming, deleting; committed datatypes."""

import ctypes

from .on_structure import OPEN_TWICE, dump_properties, writable
from .on_walks import AttributeInfo, about_attribute, about_walked, order_of, tracks_attributes
from .types import has_class, has_parts, memory_type, random_type, random_values, seen, size_of, written_type
from .world import ROOMS, operation, status, text

MARK = b"resized"  # set on datasets whose extent was changed; copies get it too


def extent(w, most=5):
    """A small dataspace, and its number of elements."""
    x = w.r.random()
    if x < 0.4:
        w.say("scalar")
        return w.h.H5Screate(0), 1
    if x < 0.45:
        w.say("null")
        return w.h.H5Screate(2), 0
    dims = [w.r.randrange(1, most) for _ in range(w.r.randrange(1, 4))]
    if x < 0.48:
        dims[0] = 0
    w.say(dims)
    count = 1
    for n in dims:
        count *= n
    return w.h.H5Screate_simple(len(dims), (ctypes.c_uint64 * len(dims))(*dims), None), count


def some_type(w):
    """A datatype for a new attribute or dataset: its identifier and description, or only the identifier of a committed
    one."""
    if w.open["T"] and w.r.random() < 0.15:
        one = w.pick("T")
        # Native HDF5 treats a committed datatype of another open call as one of another file.
        w.at = w.h.c.H5Iget_file_id(one)
        return one, None
    t = random_type(w.r)
    w.say(t)
    return w.types.id(t), t


@operation(12)
def attribute_make(w):
    (kind, t), (space, count) = some_type(w), extent(w)
    acpl = 0
    if w.r.random() < 0.15:

        def make():
            made = w.h.H5Pcreate(w.h.H5P_CLS_ATTRIBUTE_CREATE_ID)
            w.h.H5Pset_char_encoding(made, 1)
            return made

        acpl = w.list_of("acpl", make)
        w.say("utf-8")
    if w.r.random() < 0.7:
        made = w.h.H5Acreate2(w.thing(), w.label(), kind, space, acpl, 0)
    else:
        made = w.h.H5Acreate_by_name(w.place(), w.name(), w.label(), kind, space, acpl, 0, 0)
    w.h.H5Sclose(space)
    out = w.adopt(made, "A")
    # Always written: the value read from an attribute without one depends on whether native HDF5 has reopened it.
    t = t or (described(w, made) if made >= 0 else None)
    if made >= 0 and not of_references(t):
        out += f" written {write(w, made, t, t, count)}"
    return out


def write(w, one, t, memory, count):
    keep = []
    values = random_values(w.r, memory, max(count, 1), keep)
    return status(w.h.H5Awrite(one, w.types.id(memory), values))


def described(w, one):
    """The description of an open attribute's or dataset's type; None if it has none."""
    kind = w.h.H5Aget_type(one) if w.h.H5Iget_type(one) == 7 else w.h.H5Dget_type(one)
    if kind < 0:
        return None
    try:
        return describe(w.h, kind)
    finally:
        w.h.H5Tclose(kind)


def of_references(t):
    """True for references, which have operations of their own: HDF5 2.0 crashes on null ones among others."""
    return t is not None and (has_class(t, "ref") or has_class(t, "oldref"))


def describe(h, kind):
    """A description of any datatype that `types.random_type` makes."""
    c, size = h.c, h.H5Tget_size(kind)
    match h.H5Tget_class(kind):
        case 0:
            return ("int", size, c.H5Tget_sign(ctypes.c_int64(kind)) == 1, c.H5Tget_order(ctypes.c_int64(kind)))
        case 1:
            return ("float", size, c.H5Tget_order(ctypes.c_int64(kind)))
        case 3:
            one = ctypes.c_int64(kind)
            if c.H5Tis_variable_str(one) > 0:
                return ("vstring", c.H5Tget_cset(one))
            return ("string", size, c.H5Tget_strpad(one), c.H5Tget_cset(one))
        case 4:
            return ("bits", size, size * 8, 0)
        case 5:
            return ("opaque", size)
        case 6:
            return ("compound", size, tuple(member(h, kind, i) for i in range(c.H5Tget_nmembers(ctypes.c_int64(kind)))))
        case 7:
            return ("ref",) if h.H5Tequal(kind, h.H5T_STD_REF) > 0 else ("oldref",)
        case 8:
            count = c.H5Tget_nmembers(ctypes.c_int64(kind))
            return ("enum", size, tuple(member_name(h, kind, i) for i in range(count)))
        case 9:
            return ("vlen", super_of(h, kind))
        case _:
            dims = (ctypes.c_uint64 * 8)()
            rank = c.H5Tget_array_dims2(ctypes.c_int64(kind), dims)
            return ("array", tuple(dims[:rank]), super_of(h, kind))


def super_of(h, kind):
    h.c.H5Tget_super.restype = ctypes.c_int64
    part = h.c.H5Tget_super(ctypes.c_int64(kind))
    out = describe(h, part)
    h.H5Tclose(part)
    return out


def member_name(h, kind, i):
    h.c.H5Tget_member_name.restype = ctypes.c_void_p
    where = h.c.H5Tget_member_name(ctypes.c_int64(kind), i)
    name = ctypes.string_at(where).decode()
    h.c.H5free_memory(where)
    return name


def member(h, kind, i):
    h.c.H5Tget_member_type.restype, h.c.H5Tget_member_offset.restype = ctypes.c_int64, ctypes.c_size_t
    part = h.c.H5Tget_member_type(ctypes.c_int64(kind), i)
    out = (member_name(h, kind, i), h.c.H5Tget_member_offset(ctypes.c_int64(kind), i), describe(h, part))
    h.H5Tclose(part)
    return out


def count_of(h, space):
    count = h.H5Sget_simple_extent_npoints(space) if space >= 0 else 0
    return max(count, 0)


@operation(5)
def attribute_write(w):
    one = w.pick("A")
    t = described(w, one) if w.have("A") else None
    if of_references(t):
        return "references"
    if t is None:
        return status(w.h.H5Awrite(one, w.types.id(("int", 4, True, 0)), bytes(4000)))
    space = w.h.H5Aget_space(one)
    memory = written_type(w.r, t)
    w.say(memory)
    if not writable(w, one):
        return "native HDF5 changes what it holds of the attribute, and fails"
    out = write(w, one, t, memory, count_of(w.h, space))
    w.h.H5Sclose(space)
    if out == "fails" and one in w.open["A"]:  # native HDF5 has changed the value all the same
        w.h.H5Aget_name(one, 300, w.scratch)
        name, holder = ctypes.string_at(w.scratch), w.holders.pop(one)
        close_attributes(w)
        w.h.H5Adelete(holder, name)
        w.h.H5Oclose(holder)
    return out


@operation(7)
def attribute_read(w):
    one = w.pick("A")
    t = described(w, one) if w.have("A") else None
    if of_references(t):
        return "references"
    if t is None:
        return status(w.h.H5Aread(one, w.types.id(("int", 4, True, 0)), bytes(4000)))
    space = w.h.H5Aget_space(one)
    memory = memory_type(w.r, t)
    w.say(memory)
    out = read(w, memory, count_of(w.h, space), space, lambda kind, to: w.h.H5Aread(one, kind, to))
    w.h.H5Sclose(space)
    return out


def read(w, memory, count, space, call):
    """Reads `count` elements by `call` and describes the result."""
    kind = w.types.id(memory)
    plain = not has_parts(memory)
    to = ctypes.create_string_buffer((b"\x5a" if plain else b"\0") * (size_of(memory) * max(count, 1)))
    code = call(kind, to)
    if code < 0:
        return "fails"
    out = f"{seen(memory, to.raw, count)}"
    if not plain:
        w.h.H5Treclaim(kind, space, 0, to)
    return out


@operation(4)
def attribute_open(w):
    kind = w.r.randrange(3)
    if kind == 0:
        return w.adopt(w.h.H5Aopen(w.thing(), w.label(), 0), "A")
    if kind == 1:
        where, name, label = w.place(), w.name(), w.label()
        if is_open(w, label):
            return "open"
        return look_at(w, w.h.H5Aopen_by_name(where, name, label, 0, 0))
    where, name, n = w.thing(), b"." if w.r.random() < 0.7 else w.name(), w.r.randrange(4)
    index, order = order_of(w, where, name)
    w.say(name, str(n))
    if name == b".":
        return w.adopt(w.h.H5Aopen_by_idx(where, name, index, order, n, 0, 0), "A")
    if w.open["A"]:
        return "some are open"
    return look_at(w, w.h.H5Aopen_by_idx(where, name, index, order, n, 0, 0))


def look_at(w, one):
    """Describes an attribute opened by the name of its object, and closes it: native HDF5 2.0 treats it as one of the
    object
    from which the path leads."""
    if one < 0:
        return "fails"
    h, t = w.h, described(w, one)
    space, kind = h.H5Aget_space(one), h.H5Aget_type(one)
    out = f"{text(h.H5Aget_name(one, 300, w.scratch), w.scratch)} {about(w, space, kind)}"
    if t is not None and not of_references(t):
        out += f" = {read(w, t, count_of(h, space), space, lambda memory, to: h.H5Aread(one, memory, to))}"
    h.H5Sclose(space), h.H5Tclose(kind), h.H5Aclose(one)
    return out


@operation(5)
def attribute_facts(w):
    kind, h, info = w.r.randrange(4), w.h, AttributeInfo()
    if kind == 0:
        one = w.pick("A" if w.r.random() < 0.95 else ROOMS)
        space, t = h.H5Aget_space(one), h.H5Aget_type(one)
        out = [text(h.H5Aget_name(one, 100, w.scratch), w.scratch), about(w, space, t)]
        out += [about_walked(h.H5Aget_info(one, ctypes.byref(info)), info)]
        if w.have("A") and t >= 0 and not has_parts(describe(h, t)):
            out += [str(h.H5Aget_storage_size(one)), str(info.data_size)]
        h.H5Sclose(space), h.H5Tclose(t)
        return " ".join(out)
    if kind == 1:
        code = h.H5Aget_info_by_name(w.place(), w.name(), w.label(), ctypes.byref(info), 0)
        return about_walked(code, info)
    where, name, n = w.thing(), b"." if w.r.random() < 0.7 else w.name(), w.r.randrange(4)
    index, order = order_of(w, where, name)
    w.say(name, str(n))
    if kind == 2:
        code = h.H5Aget_info_by_idx(where, name, index, order, n, ctypes.byref(info), 0)
        tracked = name == b"." and tracks_attributes(w, where)
        return about_attribute(code, info, False) if tracked else about_walked(code, info)
    size = w.r.choice((100, 2))
    return text(h.H5Aget_name_by_idx(where, name, index, order, n, w.scratch, size, 0), w.scratch)


def about(w, space, t):
    """Describes a dataspace and a datatype."""
    h, dims, most = w.h, (ctypes.c_uint64 * 8)(), (ctypes.c_uint64 * 8)()
    if space < 0 or t < 0:
        return f"space {status(min(space, 0))} type {status(min(t, 0))}"
    rank = h.H5Sget_simple_extent_dims(space, dims, most)
    extent = [(d, m if m < 2**63 else "inf") for d, m in zip(dims[:rank], most[:rank], strict=True)]
    return f"{h.H5Sget_simple_extent_type(space)} {extent} {describe(h, t)} {h.H5Tcommitted(t)}"


@operation(2)
def attribute_rename(w):
    if w.r.random() < 0.5:
        return status(w.h.H5Arename(w.thing(), w.label(), w.label()))
    return status(w.h.H5Arename_by_name(w.place(), w.name(), w.label(), w.label(), 0))


@operation(4)
def attribute_delete(w):
    kind = w.r.randrange(3)
    close_attributes(w)
    if kind == 0:
        return status(w.h.H5Adelete(w.thing(), w.label()))
    if kind == 1:
        return status(w.h.H5Adelete_by_name(w.place(), w.name(), w.label(), 0))
    where, name, n = w.thing(), b"." if w.r.random() < 0.7 else w.name(), w.r.randrange(4)
    index, order = order_of(w, where, name)
    w.say(name, str(n))
    named = w.h.H5Aget_name_by_idx(where, name, index, order, n, w.scratch, 200, 0)
    if named >= 0 and ctypes.string_at(w.scratch) == MARK:
        return "the mark stays"
    return status(w.h.H5Adelete_by_idx(where, name, index, order, n, 0))


def close_attributes(w):
    """Closes all: native HDF5 finds deleted, still open attributes by name, and mistakes others of the name for
    them."""
    for one in w.open["A"]:
        w.h.H5Aclose(one)
        w.release(one)
    w.open["A"].clear()


def is_open(w, name):
    """True if an attribute of this name is open."""
    for one in w.open["A"]:
        w.h.H5Aget_name(one, 300, w.scratch)
        if ctypes.string_at(w.scratch) == name:
            return True
    return False


@operation(2)
def attribute_exists(w):
    if w.r.random() < 0.5:
        return status(w.h.H5Aexists(w.thing(), w.label()))
    return status(w.h.H5Aexists_by_name(w.place(), w.name(), w.label(), 0))


# Committed datatypes


@operation(3)
def type_commit(w):
    t = random_type(w.r)
    w.say(t)
    made = w.h.H5Tcopy(w.types.id(t))
    if w.r.random() < 0.8:
        where, name, lcpl = w.target()
        code = w.h.H5Tcommit2(where, name, made, lcpl, 0, 0)
    else:
        code = w.h.H5Tcommit_anon(w.place(), made, 0, 0)
    if code < 0:
        w.h.H5Tclose(made)
        return "fails"
    again = w.h.H5Tcommit2(w.place(), w.name(new=True), made, 0, 0, 0) if w.r.random() < 0.1 else None
    out = "" if again is None else f" again {again >= 0}"
    return w.adopt(made, "T") + out


@operation(2)
def type_open(w):
    return w.adopt(w.h.H5Topen2(w.place(), w.name(), 0), "T")


@operation(2)
def type_facts(w):
    one, h = w.pick("T" if w.r.random() < 0.95 else "TDGA"), w.h
    out = [f"{h.H5Tcommitted(one)} {h.H5Tget_class(one)} {h.H5Tget_size(one)}"]
    if w.have("T") and h.H5Iget_type(one) == 3:
        out.append(str(describe(h, one)))
        other = w.pick("T")
        out.append(f"equal {status(h.H5Tequal(one, other))}")
        given = h.H5Tget_create_plist(one)
        out.append(dump_properties(w, given, "O") if given >= 0 else "fails")
        h.H5Pclose(given)
        if w.r.random() < 0.5:
            out.append(status(h.H5Tflush(one)))
        else:
            out.append(status(h.H5Trefresh(one)) if w.same(one) < 2 else OPEN_TWICE)
    return " ".join(out)


@operation(0.7)
def type_of_object(w):
    """The committed type of a dataset or attribute, as a usable object."""
    one = w.pick("DA")
    h = w.h
    t = h.H5Dget_type(one) if h.H5Iget_type(one) == 5 else h.H5Aget_type(one)
    if t < 0:
        return "fails"
    if h.H5Tcommitted(t) > 0:
        return w.adopt(t, "T")
    h.H5Tclose(t)
    return "not committed"
