"""Groups, links and objects: creating, moving, copying, deleting, and queries about them."""

import ctypes

from .library import Token
from .world import FILES, ROOMS, operation, status, text


class ObjectInfo(ctypes.Structure):
    """`H5O_info2_t`."""

    _fields_ = (
        ("fileno", ctypes.c_ulong),
        ("token_bytes", ctypes.c_uint8 * 16),
        ("type", ctypes.c_int),
        ("rc", ctypes.c_uint),
        ("times", ctypes.c_int64 * 4),
        ("num_attrs", ctypes.c_uint64),
    )


class LinkInfo(ctypes.Structure):
    """`H5L_info2_t`."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("corder_valid", ctypes.c_bool),
        ("corder", ctypes.c_int64),
        ("cset", ctypes.c_int),
        ("val_size", ctypes.c_size_t),
        ("rest", ctypes.c_char * 8),
    )


class GroupInfo(ctypes.Structure):
    """`H5G_info_t`."""

    _fields_ = (
        ("storage_type", ctypes.c_int),
        ("nlinks", ctypes.c_uint64),
        ("max_corder", ctypes.c_int64),
        ("mounted", ctypes.c_bool),
    )


def about_object(code, info):
    return "fails" if code < 0 else f"type {info.type} rc {info.rc} attrs {info.num_attrs}"


def about_link(code, info, tracked=False):
    """Describes a link. Native HDF5 keeps the number of a link moved from a group that tracks order into one that
    does not."""
    if code < 0:
        return "fails"
    order = info.corder if tracked and info.corder_valid else "-"
    return f"{info.type} {order} {info.cset} {info.val_size if info.type else ''}"


def about_group(code, info):
    # For groups that track no order, the answer depends on how native HDF5 happens to store them.
    return "fails" if code < 0 else f"links {info.nlinks} order {info.max_corder} {info.mounted}"


def group_create(w):
    """Group creation properties."""
    r, h = w.r, w.h
    key = (r.choice((0, 0, 1, 3, 2)), r.choice((0, 0, 1, 3)), r.randrange(4), r.randrange(3))
    if r.random() < 0.4:
        return 0

    def make():
        made = h.H5Pcreate(h.H5P_CLS_GROUP_CREATE_ID)
        h.H5Pset_link_creation_order(made, key[0])
        h.H5Pset_attr_creation_order(made, key[1])
        if key[2]:
            h.H5Pset_link_phase_change(made, *((), (2, 1), (0, 0), (8, 6))[key[2]])
        if key[3] == 1:
            h.H5Pset_attr_phase_change(made, 3, 2)
        if key[3] == 2:
            h.H5Pset_est_link_info(made, 10, 20), h.H5Pset_local_heap_size_hint(made, 64)
            h.H5Pset_obj_track_times(made, False)
        return made

    w.say(f"gcpl{key}")
    return w.list_of(("gcpl", key), make)


def dump_properties(w, given, kinds):
    """The content of a creation property list. Kinds: O object, G group. Native files of the old format lose most of
    it."""
    h = w.h
    a, b, flag = ctypes.c_uint(), ctypes.c_uint(), ctypes.c_bool()
    pa, pb, out = ctypes.byref(a), ctypes.byref(b), []
    out.append(f"{status(h.H5Pget_attr_creation_order(given, pa))} {a.value}")
    if "G" in kinds:
        out.append(f"{status(h.H5Pget_link_creation_order(given, pa))} {a.value}")
    if not w.new_format:
        return "; ".join(out)
    out.append(f"{status(h.H5Pget_attr_phase_change(given, pa, pb))} {a.value} {b.value}")
    out.append(f"{status(h.H5Pget_obj_track_times(given, ctypes.byref(flag)))} {flag.value}")
    if "G" in kinds:
        out.append(f"{status(h.H5Pget_link_phase_change(given, pa, pb))} {a.value} {b.value}")
        out.append(f"{status(h.H5Pget_est_link_info(given, pa, pb))} {a.value} {b.value}")
        # Not the size hint for a local heap: native files of the new format have it only while the group stays in
        # memory.
    return "; ".join(out)


OPEN_TWICE = "native HDF5 crashes when an object is closed that was refreshed by way of another identifier"


def token(w, one):
    """The identity of an open object; None if it cannot be queried."""
    info = ObjectInfo()
    code = w.h.H5Oget_info3(one, ctypes.byref(info), 1) if w.h.H5Iget_type(one) in (2, 3, 5) else -1
    return (info.fileno, bytes(info.token_bytes)) if code >= 0 else None


# Groups


@operation(14)
def group_make(w):
    return w.adopt(w.h.H5Gcreate2(*w.target(), group_create(w), 0), "G")


@operation(2)
def group_make_anonymous(w):
    return w.adopt(w.h.H5Gcreate_anon(w.place(), group_create(w), 0), "G")


@operation(6)
def group_open(w):
    return w.adopt(w.h.H5Gopen2(w.place(), w.name(), 0), "G")


@operation(4)
def group_info(w):
    info = GroupInfo()
    kind = w.r.randrange(3)
    if kind == 0:
        code = w.h.H5Gget_info(w.place(), ctypes.byref(info))
    elif kind == 1:
        code = w.h.H5Gget_info_by_name(w.place(), w.name(), ctypes.byref(info), 0)
    else:
        where, name, (index, order) = w.place(), w.name(), w.index_order()
        if order == 2:
            return "native order is nobody's"
        n = w.r.randrange(4)
        if behind_soft(w, where, name):
            return BEHIND_SOFT
        code = w.h.H5Gget_info_by_idx(where, name, index, order, n, ctypes.byref(info), 0)
    return about_group(code, info)


@operation(2)
def group_properties(w):
    given = w.h.H5Gget_create_plist(w.pick("G" if w.r.random() < 0.95 else ROOMS))
    if given < 0:
        return "fails"
    out = dump_properties(w, given, "OG")
    w.h.H5Pclose(given)
    return out


# Links


@operation(6)
def link_hard(w):
    # Native HDF5 treats objects of different open calls as objects of different files.
    name = w.name()
    where, *target = w.target()
    if not writable(w, where):
        return READ_ONLY
    return status(w.h.H5Lcreate_hard(where, name, 0, *target, 0))


@operation(4)
def link_soft(w):
    name, (where, *target) = w.name(), w.target()
    if not writable(w, where):
        return READ_ONLY
    return status(w.h.H5Lcreate_soft(name, where, *target, 0))


@operation(3)
def link_external(w):
    # A file opened through an external link has degree "weak", which native HDF5 refuses together with another
    # degree.
    inside = w.links_out and w.close_degree < 2
    target = w.r.choice((*FILES, b"none.h5", b"./b.h5") if inside else (b"none.h5", b""))
    w.say(target)
    where, *named = w.target()
    if not writable(w, where):
        return READ_ONLY
    if target.removeprefix(b"./") == w.file_of(where)[0]:
        return "native HDF5 opens the file once more behind such a link"
    return status(w.h.H5Lcreate_external(target, w.name(), where, *named, 0))


@operation(5)
def link_move(w):
    source = w.place(), w.name()
    where, *target = w.target()
    if not writable(w, where) or not writable(w, source[0]):
        return READ_ONLY
    if w.h.H5Iget_type(where) != 1 and not target[0].startswith(b"/"):
        return "native HDF5 crashes if it knows no name of the group"
    if w.r.random() < 0.5:
        return status(w.h.H5Lmove(where, source[1], 0, *target, 0))
    return status(w.h.H5Lmove(*source, where, *target, 0))


@operation(3)
def link_copy(w):
    source, (where, *target) = (w.place(), w.name()), w.target()
    if not writable(w, where):
        return READ_ONLY
    return status(w.h.H5Lcopy(*source, where, *target, 0))


@operation(8)
def link_delete(w):
    return status(w.h.H5Ldelete(w.place(), w.name(), 0))


@operation(2)
def link_delete_by_number(w):
    where, name, (index, order), n = w.place(), w.name(), w.index_order(), w.r.randrange(4)
    if order == 2:
        order = 0
    w.say(str(n))
    if behind_soft(w, where, name):
        return BEHIND_SOFT
    return status(w.h.H5Ldelete_by_idx(where, name, index, order, n, 0))


@operation(4)
def link_exists(w):
    return status(w.h.H5Lexists(w.place(), w.name(), 0))


@operation(5)
def link_info(w):
    info, where, name = LinkInfo(), w.place(), w.name()
    if w.r.random() < 0.6:
        tracked = b"/" not in name and tracks_links(w, where)
        return about_link(w.h.H5Lget_info2(where, name, ctypes.byref(info), 0), info, tracked)
    (index, order), n = w.index_order(), w.r.randrange(4)
    w.say(str(n))
    if behind_soft(w, where, name):
        return BEHIND_SOFT
    code = w.h.H5Lget_info_by_idx2(where, name, index, order, n, ctypes.byref(info), 0)
    return about_link(code, info, index == 1) if order != 2 else status(code)


def tracks_links(w, one):
    """True if an open group, or the root group of an open file, tracks the creation order of its links."""
    h, flags = w.h, ctypes.c_uint()
    group = h.H5Gopen2(one, b".", 0)
    given = h.H5Gget_create_plist(group)
    h.H5Pget_link_creation_order(given, ctypes.byref(flags))
    h.H5Pclose(given), h.H5Gclose(group)
    return flags.value & 1 == 1


@operation(3)
def link_name_by_number(w):
    where, name, (index, order), n = w.place(), w.name(), w.index_order(), w.r.randrange(4)
    size = w.r.choice((100, 100, 2, 1))
    w.say(str(n), str(size))
    if behind_soft(w, where, name):
        return BEHIND_SOFT
    code = w.h.H5Lget_name_by_idx(where, name, index, order, n, w.scratch, size, 0)
    return text(code, w.scratch) if order != 2 else status(min(code, 0))


@operation(3)
def link_value(w):
    buffer, size = ctypes.create_string_buffer(b"~" * 99), w.r.choice((99, 99, 3))
    if w.r.random() < 0.7:
        code = w.h.H5Lget_val(w.place(), w.name(), buffer, size, 0)
    else:
        where, name, (index, order), n = w.place(), w.name(), w.index_order(), w.r.randrange(4)
        if behind_soft(w, where, name):
            return BEHIND_SOFT
        code = w.h.H5Lget_val_by_idx(where, name, index, 0 if order == 2 else order, n, buffer, size, 0)
    return "fails" if code < 0 else repr(buffer.raw.rstrip(b"~\0"))


BEHIND_SOFT = "native HDF5 does not follow soft links here: it reads an object at no address"


def behind_soft(w, where, name):
    """True if this path, including its end, contains a link other than a hard link."""
    if where < 0:
        return False
    parts = [part for part in name.split(b"/") if part not in (b"", b".")]
    info, start = LinkInfo(), b"/" if name.startswith(b"/") else b""
    for n in range(1, len(parts) + 1):
        if w.h.H5Lget_info2(where, start + b"/".join(parts[:n]), ctypes.byref(info), 0) < 0:
            return False
        if info.type:
            return True
    return False


# Objects


@operation(8)
def object_open(w):
    return w.adopt(w.h.H5Oopen(w.place(), w.name(), 0))


@operation(3)
def object_open_by_number(w):
    where, name, (index, order), n = w.place(), w.name(), w.index_order(), w.r.randrange(4)
    w.say(str(n))
    return w.adopt(w.h.H5Oopen_by_idx(where, name, index, 0 if order == 2 else order, n, 0))


@operation(2)
def object_open_by_token(w):
    """Also checks that an object has one token."""
    info, where = ObjectInfo(), w.thing()
    if w.h.H5Oget_info3(where, ctypes.byref(info), 1) < 0:
        return "fails"
    opened, again = w.h.H5Oopen_by_token(where, Token(info.token_bytes)), ObjectInfo()
    same = opened >= 0 and w.h.H5Oget_info3(opened, ctypes.byref(again), 0xD) >= 0
    same = same and bytes(again.token_bytes) == bytes(info.token_bytes)
    return f"{w.adopt(opened)} {same} {about_object(0, again)}"


@operation(5)
def object_close(w):
    room = w.r.choice("GDTA")
    if not w.open[room]:
        return "none"
    i = w.r.randrange(len(w.open[room]))
    w.say(f"{room}{i}")
    one = w.open[room].pop(i)
    h = w.h
    close = {"G": h.H5Gclose, "D": h.H5Dclose, "T": h.H5Tclose, "A": h.H5Aclose}[room]
    out = status(close(one) if room == "A" or w.r.random() < 0.5 else h.H5Oclose(one))
    w.release(one)
    return out


@operation(3)
def object_link(w):
    one, (where, *target) = w.pick("GDT"), w.target()
    if not writable(w, where):
        return READ_ONLY
    return status(w.h.H5Olink(one, where, *target, 0))


@operation(6)
def object_info(w):
    info, fields = ObjectInfo(), w.r.choice((0xD, 1, 5, 9))
    kind = w.r.randrange(3)
    if kind == 0:
        code = w.h.H5Oget_info3(w.thing(), ctypes.byref(info), 0xD)
    elif kind == 1:
        code = w.h.H5Oget_info_by_name3(w.place(), w.name(), ctypes.byref(info), 0xD, 0)
    else:
        where, name, (index, order), n = w.place(), w.name(), w.index_order(), w.r.randrange(4)
        w.say(str(n), str(fields))
        if order == 2:
            return "native order is nobody's"
        code = w.h.H5Oget_info_by_idx3(where, name, index, order, n, ctypes.byref(info), 0xD, 0)
    return about_object(code, info)


@operation(2)
def object_exists(w):
    where, name = w.place(), w.name()
    if name.endswith(b"/.") and behind_soft(w, where, name):
        return "native HDF5 takes what a dangling link leads to for there"
    return status(w.h.H5Oexists_by_name(where, name, 0))


@operation(0.5)
def object_count(w):
    one = w.pick("GDT")
    out = status(w.h.H5Oincr_refcount(one))
    if w.r.random() < 0.9:
        out += " " + status(w.h.H5Odecr_refcount(one))
    return out


@operation(3)
def object_comment(w):
    kind, h = w.r.randrange(4), w.h
    comment = w.r.choice((b"a comment", b"", "über".encode(), b"x" * 150, None))
    if kind == 0:
        w.say(comment)
        return status(h.H5Oset_comment(w.thing(), comment))
    if kind == 1:
        w.say(comment)
        return status(h.H5Oset_comment_by_name(w.place(), w.name(), comment, 0))
    size = w.r.choice((200, 200, 5, 1))
    w.say(str(size))
    if kind == 2:
        length = h.H5Oget_comment(w.thing(), w.scratch, size)
    else:
        length = h.H5Oget_comment_by_name(w.place(), w.name(), w.scratch, size, 0)
    return f"{length} {w.scratch.raw[: min(length, size)]}" if length >= 0 else "fails"


@operation(2)
def object_flush(w):
    if not any(w.open[room] for room in "GDT"):
        return "only of objects that are no files"
    one = w.pick("GDT")
    if w.r.random() < 0.5:
        return status(w.h.H5Oflush(one))
    return status(w.h.H5Orefresh(one)) if w.same(one) < 2 else OPEN_TWICE


READ_ONLY = "native HDF5 does not get over such a failure in a file that is open for reading: it crashes later"


def writable(w, one):
    """True if the file of an open object was opened for writing."""
    return w.file_of(one)[1] & 1 == 1


@operation(4)
def identifier_name(w):
    """Compares the name while objects have one path each: with several any is right, and native HDF5 keeps old ones
    after
    some moves, those of attributes always, and of datasets and datatypes below a group that is deleted."""
    one = w.pick(ROOMS)
    compared = w.one_path and w.h.H5Iget_type(one) != 7 and (w.h.H5Iget_type(one) == 2 or not w.any_deleted)
    named = text(w.h.H5Iget_name(one, w.scratch, 200), w.scratch) if compared else ""
    return f"{w.h.H5Iget_type(one)} {w.h.H5Iget_ref(one)} {named}"
