"""Copying objects with everything below them, within a file and to another; and the copies that native HDF5
spoils."""

import ctypes

from .on_attributes import describe
from .on_structure import BEHIND_SOFT, READ_ONLY, ObjectInfo, behind_soft, writable
from .on_walks import LINK, OBJECT
from .types import element_of, has_parts
from .world import operation, status

MISSING = 311  # a filter that no library has


@operation(6)
def object_copy(w):
    flags = w.r.choice((0, 0, 0, 1, 2, 4, 6, 7, 16, 0x40, 0x20))

    def make():
        made = w.h.H5Pcreate(w.h.H5P_CLS_OBJECT_COPY_ID)
        w.h.H5Pset_copy_object(made, flags)
        return made

    if w.any_resized:
        flags &= ~0x10  # the copy needs the attribute that marks it
    w.say(f"flags{flags}")
    ocpypl = w.list_of(("copy", flags), make) if flags else 0
    source = w.place(), w.name()
    *target, lcpl = w.target()
    if behind_soft(w, *target):
        return BEHIND_SOFT
    if target[1].startswith(b"/") and w.h.H5Iget_type(target[0]) != 1:
        return "native HDF5 looks whether there is something from the group on"
    if flags & 0x40 and (is_group(w, *source) or several_types(w, target[0])):
        return "native HDF5 takes any of several, and forgets to count some links"
    if flags & 0x40 and w.h.H5Lexists(*target, 0) != 0:
        return "native HDF5 counts a link of the committed datatype though the copy cannot be put in its place"
    if is_unfit(w, *source):
        return "native HDF5 crashes, or writes what it cannot read"
    if flags & 6 and leads_elsewhere(w, *source):
        return "native HDF5 writes damaged groups when it expands links"
    if not writable(w, target[0]):
        return READ_ONLY
    w.any_copied = True
    w.h.H5Fflush(source[0], 0)  # native HDF5 does not always copy what is still in its buffers
    return status(w.h.H5Ocopy(*source, *target, ocpypl, lcpl))


def is_group(w, where, name):
    """True if a path leads to a group."""
    info = ObjectInfo()
    return w.h.H5Oget_info_by_name3(where, name, ctypes.byref(info), 1, 0) >= 0 and info.type == 0


def several_types(w, where):
    """True if a file has more than one committed datatype."""
    root, found = w.h.H5Gopen2(where, b"/", 0), []
    count = OBJECT(lambda _where, _name, info, _data: found.append(1) or 0 if info.contents.type == 2 else 0)
    w.h.H5Ovisit3(root, 0, 0, count, None, 0xD)
    w.h.H5Gclose(root)
    return len(found) > 1


def is_unfit(w, where, name):
    """True if a path leads to an unfit object, or to a group with one below it."""
    h, top, found = w.h, w.h.H5Oopen(where, name, 0), {}
    if top < 0:
        return False
    # Checked afterwards: native HDF5 cannot close a file within a callback, and asking for an object's file may do
    # so.
    note = OBJECT(lambda _where, path, info, _data: found.update({path: info.contents.type}) or 0)
    h.H5Ovisit3(top, 0, 0, note, None, 0xD)
    is_group = h.H5Iget_type(top) == 2
    out = any(is_unfit_itself(w, top, path, kind == 1, is_group) for path, kind in found.items())
    h.H5Oclose(top)
    return out


def is_unfit_itself(w, top, path, is_dataset, in_group):
    """True for a dataset with a missing filter, for an attribute whose copy loses parts, and below a group for a
    dataset or
    an attribute of a committed datatype."""
    h, one, kinds, missing = w.h, w.h.H5Oopen(top, path, 0), [], False
    if is_dataset:
        kinds.append(h.H5Dget_type(one))
        given = h.H5Dget_create_plist(one)
        filters = range(h.H5Pget_nfilters(given))
        missing = any(h.H5Pget_filter2(given, i, None, None, None, 0, None, None) == MISSING for i in filters)
        # Its cache may have chunks, for whose filtered bytes it allocates too little.
        missing |= len(filters) > 0 and w.same(one) > 1
        h.H5Pclose(given)
    info = ObjectInfo()
    h.H5Oget_info3(one, ctypes.byref(info), 0xD)
    for n in range(info.num_attrs):
        attribute = h.H5Aopen_by_idx(one, b".", 0, 0, n, 0, 0)
        kinds.append(h.H5Aget_type(attribute))
        missing |= loses_parts(describe(h, kinds[-1]))
        h.H5Aclose(attribute)
    found = missing or (in_group and any(h.H5Tcommitted(kind) > 0 for kind in kinds))
    for kind in kinds:
        h.H5Tclose(kind)
    h.H5Oclose(one)
    return found


def loses_parts(t):
    """True for an attribute of sequences of compounds with variable-length parts: while native HDF5 copies such an
    attribute, it deletes the parts of all sequences but the last."""
    base = element_of(t)
    if base[0] != "vlen":
        return False
    base = element_of(base[1])
    return base[0] == "compound" and has_parts(base)


def leads_elsewhere(w, where, name):
    """True if there are soft or external links anywhere below."""
    found = LINK(lambda _where, _name, info, _data: 1 if info.contents.type else 0)
    return w.h.H5Lvisit_by_name2(where, name, 0, 0, found, None, 0) > 0
