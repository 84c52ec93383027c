"""Files: creating, opening, closing in all ways, flushing, and queries about them."""

import contextlib
import ctypes
import os
import pathlib

from .world import FILES, ROOMS, operation, status

TRUNC, EXCL, RDWR = 2, 4, 1


def clear():
    """Removes what an earlier episode left."""
    for name in FILES:
        with contextlib.suppress(FileNotFoundError):
            pathlib.Path(os.fsdecode(name)).unlink()


def start(w, number):
    """The first two operations of each episode, which create its files."""
    name = FILES[number]
    w.say(name)
    return w.adopt(w.h.H5Fcreate(name, EXCL, creation(w), access(w)), "F")


def creation(w):
    """File creation properties."""
    order = w.r.choice((0, 0, 1, 3))
    attribute_order = w.r.choice((0, 0, 0, 1, 3))

    def make():
        made = w.h.H5Pcreate(w.h.H5P_CLS_FILE_CREATE_ID)
        w.h.H5Pset_link_creation_order(made, order)
        w.h.H5Pset_attr_creation_order(made, attribute_order)
        return made

    w.say(f"fcpl{order}{attribute_order}")
    return w.list_of(("fcpl", order, attribute_order), make)


def access(w):
    """File access properties."""
    low = w.r.choice((1, 1, 2, 3)) if w.new_format else 0
    degree = w.close_degree

    def make():
        made = w.h.H5Pcreate(w.h.H5P_CLS_FILE_ACCESS_ID)
        w.h.H5Pset_libver_bounds(made, low, 4)
        w.h.H5Pset_fclose_degree(made, degree)
        return made

    w.say(f"fapl{low}{degree}")
    return w.list_of(("fapl", low, degree), make)


def file_name(w):
    name = w.r.choice(FILES) if w.r.random() < 0.95 else w.r.choice((b"none.h5", b"", b"nowhere/a.h5", b"."))
    w.say(name)
    return name


@operation(1)
def file_create(w):
    flags = w.r.choice((TRUNC, EXCL, TRUNC | EXCL))
    name = w.r.choice(FILES)
    w.say(name, str(flags))
    return w.adopt(w.h.H5Fcreate(name, flags, creation(w), access(w)), "F")


def opened(w, flags=None):
    """Names of the open files (with these flags), including those that only objects keep open."""
    known = [w.file_of(one) for one in w.of_ours()]
    return {name for name, intent in known if flags in (None, intent)}


@operation(6)
def file_open(w):
    name, flags = file_name(w), w.r.choice((RDWR, RDWR, RDWR, RDWR, 0))
    # On Cenote a file open for reading can also be opened for writing; natively each mode excludes the other.
    if name in opened(w):
        flags = 0 if name in opened(w, 0) else RDWR
    elif w.links_out:
        flags = RDWR
    w.say(str(flags))
    return w.adopt(w.h.H5Fopen(name, flags, access(w)), "F")


@operation(2)
def file_reopen(w):
    return w.adopt(w.h.H5Freopen(w.pick("F" if w.r.random() < 0.9 else ROOMS)))


@operation(4)
def file_close(w):
    if not w.open["F"]:
        return "none"
    if w.any_copied:  # native HDF5 loses track of which open file copied datatypes are in
        return file_close_all(w)
    i = w.r.randrange(len(w.open["F"]))
    w.say(f"F{i}")
    out = w.h.H5Fclose(w.open["F"][i])
    if out >= 0:
        w.open["F"].pop(i)
        for room in ROOMS[1:]:
            w.open[room][:] = [one for one in w.open[room] if w.h.H5Iis_valid(one) > 0]
        w.release(*(set(w.holders) - set(w.open["A"])))
    return status(out)


@operation(2)
def file_close_all(w):
    """Closes every identifier, so that the next open reads the file."""
    out = [status(w.h.H5Idec_ref(one)) for room in ROOMS[1:] + "F" for one in w.open[room]]
    for room in ROOMS:
        w.open[room].clear()
    w.release(*list(w.holders))
    return " ".join(out)


@operation(3)
def file_flush(w):
    return status(w.h.H5Fflush(w.pick("FGD" if w.r.random() < 0.95 else ROOMS), w.r.randrange(2)))


@operation(2)
def file_facts(w):
    one, h = w.pick("F" if w.r.random() < 0.8 else ROOMS), w.h
    intent, number = ctypes.c_uint(9), ctypes.c_ulong()
    out = [status(h.H5Fget_intent(one, ctypes.byref(intent))), str(intent.value)]
    # The directory differs, and a path to it may be written in many ways.
    named = h.H5Fget_name(one, w.scratch, 200) > 0
    out += [repr(ctypes.string_at(w.scratch).split(b"/")[-1]) if named else "fails"]
    out += [status(h.H5Fget_fileno(one, ctypes.byref(number)))]
    # Natively an object belongs to the file opening through which the dataset of its reference was first opened.
    local = () if w.any_by_reference else (0x2F,)
    out += [str(h.H5Fget_obj_count(one, kinds)) for kinds in (1, 2, 4, 8, 16, 31, *local)]
    return " ".join(out)


@operation(1)
def file_properties(w):
    one, h = w.pick("F"), w.h
    given = h.H5Fget_create_plist(one)
    # Unless it just made the file, native HDF5 does not know its root group's properties.
    out = [status(min(given, 0))]
    h.H5Pclose(given)
    return " ".join(out)


@operation(1)
def file_accessible(w):
    return status(w.h.H5Fis_accessible(file_name(w), 0))


@operation(0.3)
def file_delete(w):
    name = file_name(w)
    w.say(sorted(opened(w)))
    if name in opened(w):
        return "open"  # native HDF5 deletes it although the program has it open
    return status(w.h.H5Fdelete(name, 0))
