"""References of both generations: created, stored, copied, read back and followed."""

import ctypes

from .on_attributes import described, is_open, read
from .on_datasets import choose, extent_of, make_at, without_fill
from .on_structure import behind_soft
from .types import has_parts
from .world import operation, status, text

REF = 64


def facts(w, ref):
    """Describes a new reference, and what it opens."""
    h, kind = w.h, ctypes.c_int(-7)
    out = [str(h.H5Rget_type(ref))]
    code = h.H5Rget_obj_type3(ref, 0, ctypes.byref(kind))
    out.append(f"{status(code)} {kind.value if code >= 0 else ''}")
    length = h.H5Rget_file_name(ref, w.scratch, 200)
    out.append(repr(ctypes.string_at(w.scratch).split(b"/")[-1]) if length > 0 else "fails")
    # For an object with several paths any of them is right.
    out.append(status(min(h.H5Rget_obj_name(ref, 0, w.scratch, 200), 0)))
    if h.H5Rget_type(ref) == 4:
        out.append(text(h.H5Rget_attr_name(ref, w.scratch, 200), w.scratch))
        is_there = not is_open(w, ctypes.string_at(w.scratch))
        out.append(w.adopt(h.H5Ropen_attr(ref, 0, 0)) if is_there else "open")
    else:
        # An object opened through a reference belongs to any of several files; with degree "strong" it closes with that
        # file.
        opened = h.H5Ropen_object(ref, 0, 0)
        out.append(w.adopt(opened) if w.close_degree < 3 else status(min(h.H5Oclose(opened), 0)))
    return " ".join(out)


@operation(2)
def reference_make(w):
    h, ref = w.h, ctypes.create_string_buffer(REF)
    where, name = w.place(), w.name()
    if behind_soft(w, where, name):
        return "an external link may lead there"
    if w.r.random() < 0.7:
        code = h.H5Rcreate_object(where, name, 0, ref)
    else:
        code = h.H5Rcreate_attr(where, name, w.label(), 0, ref)
    if code < 0:
        return "fails"
    other = ctypes.create_string_buffer(REF)
    out = f"{facts(w, ref)} copy {status(h.H5Rcopy(ref, other))} equal {status(h.H5Requal(ref, other))}"
    h.H5Rdestroy(ref), h.H5Rdestroy(other)
    return out


def stays(w, where, name, holder):
    """Keeps an object in its place, so that references to it can be stored in the file of `holder`: native HDF5 reuses
    the
    places of deleted objects, and opens other files by its own rules. False if that is impossible."""
    h = w.h
    opened = h.H5Oopen(where, name, 0)
    if opened < 0:
        return False
    stays = w.file_of(opened) == w.file_of(holder) == w.file_of(where) and h.H5Oincr_refcount(opened) >= 0
    h.H5Oclose(opened)
    return stays


@operation(3)
def reference_store(w):
    """An attribute or dataset of references, written, read back, followed."""
    h, count = w.h, w.r.randrange(1, 4)
    is_attribute = w.r.random() < 0.5
    holder = w.thing() if is_attribute else w.place()
    refs = ctypes.create_string_buffer(REF * count)
    for i in range(count):
        if w.r.random() < 0.15:
            continue
        at, where, name = ctypes.byref(refs, REF * i), w.place(), w.name()
        attribute = w.label() if w.r.random() < 0.3 else None
        if not stays(w, where, name, holder):
            w.say("null")
        elif attribute is None:
            w.say(status(h.H5Rcreate_object(where, name, 0, at)))
        else:
            w.say(status(h.H5Rcreate_attr(where, name, attribute, 0, at)))
    space = h.H5Screate_simple(1, (ctypes.c_uint64 * 1)(count), None)
    if is_attribute:
        made = h.H5Acreate2(holder, w.label(), h.H5T_STD_REF, space, 0, 0)
        out = f"{w.adopt(made, 'A')} {status(h.H5Awrite(made, h.H5T_STD_REF, refs))}"
    else:
        w.at = w.h.c.H5Iget_file_id(holder)
        made = make_at(w, h.H5T_STD_REF, space, 0)
        out = f"{w.adopt(made, 'D')} {status(h.H5Dwrite(made, h.H5T_STD_REF, 0, 0, 0, refs))}"
    h.H5Sclose(space)
    for i in range(count):
        h.H5Rdestroy(ctypes.byref(refs, REF * i))
    return out


@operation(3)
def reference_read(w):
    """The targets of a stored array of references of either kind."""
    one, h = w.pick("AD"), w.h
    attribute = h.H5Iget_type(one) == 7
    if not attribute and h.H5Iget_type(one) != 5:
        return "none"
    kind = h.H5Aget_type(one) if attribute else h.H5Dget_type(one)
    is_new = kind >= 0 and h.H5Tequal(kind, h.H5T_STD_REF) > 0
    is_old = kind >= 0 and h.H5Tequal(kind, h.H5T_STD_REF_OBJ) > 0
    h.H5Tclose(kind)
    if not is_new and not is_old:
        return "no references"
    space = h.H5Aget_space(one) if attribute else h.H5Dget_space(one)
    count = h.H5Sget_simple_extent_npoints(space)
    size, kind = (REF, h.H5T_STD_REF) if is_new else (8, h.H5T_STD_REF_OBJ)
    refs = ctypes.create_string_buffer(size * max(count, 1))
    code = h.H5Aread(one, kind, refs) if attribute else h.H5Dread(one, kind, 0, 0, 0, refs)
    out = [status(code)]
    for i in range(count if code >= 0 else 0):
        at = ctypes.byref(refs, size * i)
        if refs.raw[size * i : size * (i + 1)] == bytes(size):
            out.append("null")
        elif is_new:
            w.any_by_reference = True
            out.append(facts(w, at))
            h.H5Rdestroy(at)
        else:
            out.append(old_facts(w, one, at))
    h.H5Sclose(space)
    return " ".join(out)


def old_facts(w, where, ref):
    h, kind = w.h, ctypes.c_int(-7)
    if h.H5Rget_obj_type2(where, 0, ref, ctypes.byref(kind)) < 0:
        return "fails"  # it leads to another file, or to a deleted object
    out = [str(kind.value)]
    out.append(status(min(h.H5Rget_name(where, 0, ref, w.scratch, 200), 0)))
    out.append(w.adopt(h.H5Rdereference2(where, 0, 0, ref)))
    return " ".join(out)


@operation(1.5)
def reference_region(w):
    """A reference to a selection of a dataset, and its target."""
    one, h, ref = w.pick("D"), w.h, ctypes.create_string_buffer(REF)
    space = h.H5Dget_space(one) if w.have("D") else -1
    if space < 0:
        return "none"
    choose(w, space, extent_of(w, space), True)
    code = h.H5Rcreate_region(one, b".", space, 0, ref)
    h.H5Sclose(space)
    if code < 0:
        return "fails"
    found, opened = h.H5Ropen_region(ref, 0, 0), h.H5Ropen_object(ref, 0, 0)
    out = f"{h.H5Rget_type(ref)} {status(min(opened, 0))} {status(min(found, 0))}"
    if found >= 0:
        out += f" {h.H5Sget_select_type(found)} {h.H5Sget_select_npoints(found)} {extent_of(w, found)}"
        t = described(w, opened)
        if t is not None and not has_parts(t) and not without_fill(w, opened):
            count = h.H5Sget_select_npoints(found)
            room = h.H5Screate_simple(1, (ctypes.c_uint64 * 1)(max(count, 0)), None)
            if count > 0:
                out += f" = {read(w, t, count, room, lambda kind, to: h.H5Dread(opened, kind, room, found, 0, to))}"
            h.H5Sclose(room)
        h.H5Sclose(found)
    if opened >= 0:
        h.H5Dclose(opened)
    h.H5Rdestroy(ref)
    return out


@operation(2)
def reference_old(w):
    """References of the first generation: created, followed, stored."""
    h, ref, where, name = w.h, ctypes.create_string_buffer(8), w.place(), w.name()
    holder = w.thing()
    if not stays(w, where, name, holder):
        return "stays not"
    if h.H5Rcreate(ref, where, name, 0, -1) < 0:
        return "fails"
    out = old_facts(w, where, ref)
    if w.r.random() < 0.5:
        space = h.H5Screate(0)
        made = h.H5Acreate2(holder, w.label(), h.H5T_STD_REF_OBJ, space, 0, 0)
        out += f" {w.adopt(made, 'A')} {status(h.H5Awrite(made, h.H5T_STD_REF_OBJ, ref))}"
        h.H5Sclose(space)
    return out
