"""Iterating and visiting: all indexes and orders, starting in the middle, stopping early, failing, deleting."""

import ctypes

from .on_structure import LinkInfo, ObjectInfo, about_link, about_object, tracks_links
from .world import operation, status

LINK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int64, ctypes.c_char_p, ctypes.POINTER(LinkInfo), ctypes.c_void_p)
OBJECT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int64, ctypes.c_char_p, ctypes.POINTER(ObjectInfo), ctypes.c_void_p)


class AttributeInfo(ctypes.Structure):
    """`H5A_info_t`."""

    _fields_ = (
        ("corder_valid", ctypes.c_bool),
        ("corder", ctypes.c_uint32),
        ("cset", ctypes.c_int),
        ("data_size", ctypes.c_uint64),
    )


ATTRIBUTE = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_int64, ctypes.c_char_p, ctypes.POINTER(AttributeInfo), ctypes.c_void_p
)


def about_attribute(code, info, exact=True):
    if code < 0:
        return "fails"
    return f"{info.corder if info.corder_valid else '-'} {info.cset} {info.data_size if exact else ''}"


def about_walked(code, info):
    """Describes an attribute. Native HDF5 makes up a creation order when it walks attributes of objects that track
    none."""
    return "fails" if code < 0 else str(info.cset)


def order_of(w, where, name=None):
    """An index and order for attributes; where creation order is not tracked, native HDF5 makes it up."""
    index, order = w.index_order()
    if index == 1 and (name not in (None, b".") or not tracks_attributes(w, where)):
        index = 0
        w.say("by name")
    return index, 0 if order == 2 else order


def tracks_attributes(w, one):
    """True if an open object tracks the creation order of its attributes."""
    h, flags = w.h, ctypes.c_uint()
    kind = h.H5Iget_type(one)
    if kind == 1:
        one = h.H5Gopen2(one, b"/", 0)
    get = {1: h.H5Gget_create_plist, 2: h.H5Gget_create_plist, 3: h.H5Tget_create_plist, 5: h.H5Dget_create_plist}
    given = get[kind](one) if kind in get else -1
    if kind == 1:
        h.H5Gclose(one)
    if given >= 0:
        h.H5Pget_attr_creation_order(given, ctypes.byref(flags))
        h.H5Pclose(given)
    return flags.value & 1 == 1


class Walk:
    """A callback's state: what it saw, and when it stops or fails."""

    def __init__(self, w, about, sorted_only):
        self.saw, self.about, self.sorted_only = [], about, sorted_only
        self.stop = w.r.choice((None, None, None, 0, 1, 2)) if not sorted_only else None
        self.code = w.r.choice((1, 7, -1))
        self.first = None
        w.say(f"stop {self.stop} {self.code}" if self.stop is not None else "")

    def object(self, where, name, info, data):
        """Callback of object visits: native HDF5 visits the start again if a cycle leads there."""
        token = bytes(info.contents.token_bytes)
        if token == self.first:
            return 0
        self.first = self.first or token
        return self(where, name, info, data)

    def __call__(self, _where, name, info, _data):
        self.saw.append(f"{name!r} {self.about(0, info.contents)}")
        return self.code if self.stop == len(self.saw) - 1 else 0

    def told(self, code, reached=None):
        """What was seen, as a line; in native order the sequence does not matter."""
        saw = sorted(self.saw) if self.sorted_only else self.saw
        return f"{code if code >= 0 else 'fails'} {'' if reached is None else reached} [{', '.join(saw)}]"


def first_number(w, order):
    """The position to start from."""
    number = ctypes.c_uint64(0 if order == 2 else w.r.choice((0, 0, 0, 1, 2, 9)))
    w.say(f"from {number.value}")
    return number


@operation(5)
def walk_links(w):
    where, (index, order) = w.place(), w.index_order()
    plain = w.r.random() < 0.5
    tracked = index == 1 or (plain and tracks_links(w, where))
    number, walk = first_number(w, order), Walk(w, lambda c, i: about_link(c, i, tracked), order == 2)
    call = LINK(walk)
    if plain:
        code = w.h.H5Literate2(where, index, order, ctypes.byref(number), call, None)
    else:
        code = w.h.H5Literate_by_name2(where, w.name(), index, order, ctypes.byref(number), call, None, 0)
    return walk.told(code, number.value if order != 2 else None)


@operation(2)
def walk_all_links(w):
    where, (index, order) = w.place(), w.index_order()
    if order == 2:
        order = 0  # the paths of objects with several depend on the order
    walk = Walk(w, about_link, False)
    call = LINK(walk)
    if w.r.random() < 0.5:
        return walk.told(w.h.H5Lvisit2(where, index, order, call, None))
    return walk.told(w.h.H5Lvisit_by_name2(where, w.name(), index, order, call, None, 0))


@operation(2)
def walk_all_objects(w):
    where, (index, order) = w.place(), w.index_order()
    if order == 2:
        order = 0  # the paths under which objects are visited depend on the order
    walk = Walk(w, about_object, False)
    call = OBJECT(walk.object)
    if w.r.random() < 0.5:
        return walk.told(w.h.H5Ovisit3(where, index, order, call, None, 0xD))
    return walk.told(w.h.H5Ovisit_by_name3(where, w.name(), index, order, call, None, 0xD, 0))


@operation(4)
def walk_attributes(w):
    where = w.thing()
    index, order = order_of(w, where)
    number, walk = first_number(w, order), Walk(w, about_walked, order == 2)
    call = ATTRIBUTE(walk)
    if w.r.random() < 0.5:
        code = w.h.H5Aiterate2(where, index, order, ctypes.byref(number), call, None)
    else:
        code = w.h.H5Aiterate_by_name(
            where, w.name() if index == 0 else b".", index, order, ctypes.byref(number), call, None, 0
        )
    return walk.told(code, number.value if order != 2 else None)


@operation(1)
def walk_and_look(w):
    """Opens, queries and reads through other calls within the callback."""
    where, (index, order) = w.place(), w.index_order()
    walk = Walk(w, about_link, order == 2)
    h, saw = w.h, walk.saw

    def look(group, name, info, data):
        opened = h.H5Oopen(group, name, 0)
        about = ObjectInfo()
        code = h.H5Oget_info3(opened, ctypes.byref(about), 0xD) if opened >= 0 else -1
        saw.append(about_object(code, about))
        if opened >= 0:
            h.H5Oclose(opened)
        return walk(group, name, info, data)

    number = ctypes.c_uint64(0)
    return walk.told(h.H5Literate2(where, index, order, ctypes.byref(number), LINK(look), None))


@operation(0.7)
def walk_and_add_attributes(w):
    """Adds an attribute to each visited object (allowed: it changes no links)."""
    where, scalar = w.place(), w.h.H5Screate(0)
    walk, h = Walk(w, about_link, False), w.h
    kind = w.types.id(("int", 4, True, 0))

    def add(group, name, info, data):
        made = h.H5Acreate_by_name(group, name, b"added", kind, scalar, 0, 0, 0)
        walk.saw.append(status(min(made, 0)))
        if made >= 0:
            h.H5Aclose(made)
        return walk(group, name, info, data)

    number = ctypes.c_uint64(0)
    code = h.H5Literate2(where, 0, 0, ctypes.byref(number), LINK(add), None)
    h.H5Sclose(scalar)
    return walk.told(code)


@operation(0.7)
def walk_and_delete(w):
    """Deletes a visited object and stops at once, then starts again: the way that HDF5 allows."""
    if not w.new_format:
        return "native HDF5 cannot do this in groups of the old format"
    where, h, out = w.place(), w.h, []
    limit = w.r.randrange(1, 4)

    def delete(group, name, _info, _data):
        out.append(f"{name!r} {status(h.H5Ldelete(group, name, 0))}")
        return 1

    call = LINK(delete)
    for _ in range(limit):
        number = ctypes.c_uint64(0)
        code = h.H5Literate2(where, 0, 0, ctypes.byref(number), call, None)
        if code != 1:
            out.append(status(code))
            break
    return " ".join(out)
