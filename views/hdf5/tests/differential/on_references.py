"""References of both generations: made, stored, copied, read back and followed."""

import ctypes

from .on_datasets import make_at
from .world import operation, status, text

REF = 64


def facts(w, ref):
    """What a reference of the new kind says of itself, and what it opens."""
    h, kind = w.h, ctypes.c_int(-7)
    out = [str(h.H5Rget_type(ref))]
    out.append(f"{status(h.H5Rget_obj_type3(ref, 0, ctypes.byref(kind)))} {kind.value}")
    out.append(text(h.H5Rget_file_name(ref, w.scratch, 100), w.scratch))
    # Of an object with several paths any may be named.
    out.append(status(min(h.H5Rget_obj_name(ref, 0, w.scratch, 200), 0)))
    if h.H5Rget_type(ref) == 4:
        out.append(text(h.H5Rget_attr_name(ref, w.scratch, 200), w.scratch))
        out.append(w.adopt(h.H5Ropen_attr(ref, 0, 0)))
    else:
        out.append(w.adopt(h.H5Ropen_object(ref, 0, 0)))
    return " ".join(out)


@operation(2)
def reference_make(w):
    h, ref = w.h, ctypes.create_string_buffer(REF)
    if w.r.random() < 0.7:
        code = h.H5Rcreate_object(w.place(), w.name(), 0, ref)
    else:
        code = h.H5Rcreate_attr(w.place(), w.name(), w.label(), 0, ref)
    if code < 0:
        return "fails"
    other = ctypes.create_string_buffer(REF)
    out = f"{facts(w, ref)} copy {status(h.H5Rcopy(ref, other))} equal {status(h.H5Requal(ref, other))}"
    h.H5Rdestroy(ref), h.H5Rdestroy(other)
    return out


@operation(3)
def reference_store(w):
    """An attribute or dataset of references, written, read back, followed."""
    h, count = w.h, w.r.randrange(1, 4)
    refs = ctypes.create_string_buffer(REF * count)
    for i in range(count):
        if w.r.random() < 0.15:
            continue
        at = ctypes.byref(refs, REF * i)
        if w.r.random() < 0.7:
            code = h.H5Rcreate_object(w.place(), w.name(), 0, at)
        else:
            code = h.H5Rcreate_attr(w.place(), w.name(), w.label(), 0, at)
        w.say(status(code))
    space = h.H5Screate_simple(1, (ctypes.c_uint64 * 1)(count), None)
    if w.r.random() < 0.5:
        made = h.H5Acreate2(w.thing(), w.label(), h.H5T_STD_REF, space, 0, 0)
        out = f"{w.adopt(made, 'A')} {status(h.H5Awrite(made, h.H5T_STD_REF, refs))}"
    else:
        made = make_at(w, h.H5T_STD_REF, space, 0)
        out = f"{w.adopt(made, 'D')} {status(h.H5Dwrite(made, h.H5T_STD_REF, 0, 0, 0, refs))}"
    h.H5Sclose(space)
    for i in range(count):
        h.H5Rdestroy(ctypes.byref(refs, REF * i))
    return out


@operation(3)
def reference_read(w):
    """What a stored array of references of either kind leads to."""
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
            out.append(facts(w, at))
            h.H5Rdestroy(at)
        else:
            out.append(old_facts(w, one, at))
    h.H5Sclose(space)
    return " ".join(out)


def old_facts(w, where, ref):
    h, kind = w.h, ctypes.c_int(-7)
    if h.H5Rget_obj_type2(where, 0, ref, ctypes.byref(kind)) < 0:
        return "fails"  # it leads to another file, or to what was deleted
    out = [str(kind.value)]
    out.append(status(min(h.H5Rget_name(where, 0, ref, w.scratch, 200), 0)))
    out.append(w.adopt(h.H5Rdereference2(where, 0, 0, ref)))
    return " ".join(out)


@operation(2)
def reference_old(w):
    """References of the first generation: made, followed, stored."""
    h, ref, where, name = w.h, ctypes.create_string_buffer(8), w.place(), w.name()
    if h.H5Rcreate(ref, where, name, 0, -1) < 0:
        return "fails"
    out = old_facts(w, where, ref)
    if w.r.random() < 0.5:
        space = h.H5Screate(0)
        made = h.H5Acreate2(w.thing(), w.label(), h.H5T_STD_REF_OBJ, space, 0, 0)
        out += f" {w.adopt(made, 'A')} {status(h.H5Awrite(made, h.H5T_STD_REF_OBJ, ref))}"
        h.H5Sclose(space)
    return out
