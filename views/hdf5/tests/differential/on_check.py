"""A digest of all that a file holds: after reopening, and at the end of each episode."""

import ctypes
import zlib

from .on_attributes import about, count_of, describe, read
from .on_datasets import dump_dataset, without_fill
from .on_structure import LinkInfo, ObjectInfo, about_link, about_object, dump_properties
from .on_walks import ATTRIBUTE, LINK, OBJECT
from .types import has_class
from .world import FILES, operation, status


def everything(w, one):
    """All links, objects, attributes and values below a file or group."""
    h, out, objects, first = w.h, [], [], []

    def link(_group, name, info, _data):
        out.append(f"link {name!r} {about_link(0, info.contents)}")
        return 0

    def thing(_group, name, info, _data):
        if objects and bytes(info.contents.token_bytes) == first[0]:
            return 0  # native HDF5 visits the start again if a cycle leads there
        first.append(bytes(info.contents.token_bytes))
        out.append(f"object {name!r} {about_object(0, info.contents)}")
        objects.append(name)
        return 0

    out.append(status(h.H5Lvisit2(one, 0, 0, LINK(link), None)))
    out.append(status(h.H5Ovisit3(one, 0, 0, OBJECT(thing), None, 0xD)))
    for name in objects:
        opened = h.H5Oopen(one, name, 0)
        out.append(f"{name!r} {status(min(opened, 0))}")
        if opened >= 0:
            length = h.H5Oget_comment(opened, w.scratch, 200)
            out.append(f"comment {length} {w.scratch.raw[: max(length, 0)]}")
            out += inside(w, opened)
            h.H5Idec_ref(opened)
    return out


def inside(w, one):
    h, kind, out = w.h, w.h.H5Iget_type(one), []
    if kind == 5:
        out.append(value_of(w, one, h.H5Dget_space(one), h.H5Dget_type(one), False))
        given = h.H5Dget_create_plist(one)
        out += [dump_dataset(w, given), dump_properties(w, given, "O")]
        h.H5Pclose(given)
    names = []

    def attribute(_where, name, info, _data):
        names.append(name)
        out.append(f"attribute {name!r} {info.contents.cset}")
        return 0

    number = ctypes.c_uint64()
    out.append(status(h.H5Aiterate2(one, 0, 0, ctypes.byref(number), ATTRIBUTE(attribute), None)))
    for name in names:
        opened = h.H5Aopen(one, name, 0)
        if opened < 0:
            out.append("fails")
            continue
        out.append(value_of(w, opened, h.H5Aget_space(opened), h.H5Aget_type(opened), True))
        h.H5Aclose(opened)
    return out


def value_of(w, one, space, kind, attribute):
    """The type, extent and value of an attribute or dataset."""
    h, t = w.h, describe(w.h, kind)
    out = about(w, space, kind)
    if not has_class(t, "ref") and not has_class(t, "oldref") and (attribute or not without_fill(w, one)):
        if attribute:
            out += f" = {read(w, t, count_of(h, space), space, lambda memory, to: h.H5Aread(one, memory, to))}"
        else:
            out += f" = {read(w, t, count_of(h, space), space, lambda memory, to: h.H5Dread(one, memory, 0, 0, 0, to))}"
    h.H5Sclose(space), h.H5Tclose(kind)
    return out


@operation(0.7)
def check_place(w):
    lines = everything(w, w.place())
    return digest(w, lines)


def digest(w, lines):
    """The whole text for a reader or a search for differences, else a short digest."""
    if w.aloud or w.in_full:
        return "\n    ".join(lines)
    return f"{len(lines)} lines {zlib.crc32('|'.join(lines).encode()):08x}"


def check_files(w):
    """The content of each file after reopening."""
    out = []
    for name in FILES:
        one = w.h.H5Fopen(name, 0, 0)
        out.append(f"{name!r} {status(min(one, 0))}")
        if one >= 0:
            out.append(digest(w, everything(w, one)))
            w.h.H5Fclose(one)
    return " ".join(out)


__all__ = ["LinkInfo", "ObjectInfo", "check_files"]
