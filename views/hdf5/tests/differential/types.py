"""Random datatypes of all classes, values of them, and the content of memory in a form comparable between processes.

A type is described by a tuple whose first member is its class:
`("int", size, signed, order)`, `("float", size, order)`, `("string", size, padding, cset)`, `("vstring", cset)`,
`("opaque", size)`, `("bits", size, precision, offset)`, `("enum", size, names)`, `("compound", size, members)` with
members `(name, offset, type)`, `("array", dims, type)`, `("vlen", type)`, `("ref",)`.
"""

import ctypes
import math
import struct
import zlib

LE, BE = 0, 1


def size_of(t):
    """Size of one element in memory, in bytes."""
    match t[0]:
        case "int" | "float" | "string" | "opaque" | "bits" | "enum" | "compound":
            return t[1]
        case "array":
            return math.prod(t[1]) * size_of(t[2])
        case "vlen":
            return 16
        case "vstring" | "oldref":
            return 8
        case _:
            return 64


def has_parts(t):
    """True if elements own memory elsewhere."""
    match t[0]:
        case "vlen" | "vstring" | "ref" | "oldref":
            return True
        case "compound":
            return any(has_parts(m[2]) for m in t[2])
        case "array":
            return has_parts(t[2])
        case _:
            return False


def element_of(t):
    """The innermost element type of an array."""
    while t[0] == "array":
        t = t[2]
    return t


def has_class(t, kind):
    """True if `kind` is among the classes of the type."""
    match t[0]:
        case "compound":
            return kind == t[0] or any(has_class(m[2], kind) for m in t[2])
        case "array":
            return kind == t[0] or has_class(t[2], kind)
        case "vlen":
            return kind == t[0] or has_class(t[1], kind)
        case other:
            return kind == other


def is_solid(t):
    """True if every bit of an element counts, so that memory can be compared byte for byte."""
    match t[0]:
        case "compound":
            return sum(size_of(m[2]) for m in t[2]) == t[1] and all(is_solid(m[2]) for m in t[2])
        case "array":
            return is_solid(t[2])
        case "vlen" | "vstring" | "ref" | "oldref":
            return False
        case _:
            return True


def random_type(r, depth=2, references=False):
    """A type; nested ones up to `depth`."""
    kinds = ["int"] * 6 + ["float"] * 4 + ["string"] * 2 + ["vstring", "opaque", "bits", "enum"]
    if depth:
        kinds += ["compound"] * 3 + ["array", "vlen"]
    if references:
        kinds += ["ref"]
    match r.choice(kinds):
        case "int":
            return ("int", r.choice((1, 2, 4, 8)), r.random() < 0.7, r.choice((LE, LE, BE)))
        case "float":
            return ("float", r.choice((4, 8)), r.choice((LE, LE, BE)))
        case "string":
            return ("string", r.choice((1, 3, 8, 20)), r.randrange(3), r.randrange(2))
        case "vstring":
            return ("vstring", r.randrange(2))
        case "opaque":
            return ("opaque", r.choice((1, 5, 16)))
        case "bits":
            size = r.choice((1, 2, 4, 8))
            return ("bits", size, size * 8, 0)
        case "enum":
            return ("enum", r.choice((1, 2, 4)), tuple(["RED", "GREEN", "BLUE", "GREY"][: r.randrange(1, 5)]))
        case "compound":
            return random_compound(r, depth, references)
        case "array":
            dims = tuple(r.randrange(1, 4) for _ in range(r.randrange(1, 3)))
            return ("array", dims, random_type(r, depth - 1, references))
        case "vlen":
            return ("vlen", random_type(r, depth - 1, references))
        case _:
            return ("ref",)


def random_compound(r, depth, references):
    members, at = [], 0
    for name in r.sample("xyzuvw", r.randrange(1, 5)):
        t = random_type(r, depth - 1, references)
        at += r.choice((0, 0, 0, 3))
        members.append((name, at, t))
        at += size_of(t)
    return ("compound", at + r.choice((0, 0, 4)), tuple(members))


def memory_type(r, t):
    """A type for writing or reading elements of type `t`: mostly `t`, else one that HDF5 converts (or refuses)."""
    if r.random() < 0.45:
        return t
    if r.random() < 0.02:
        other = random_type(r, 1)
        # HDF5 takes the bytes of a string for a pointer to one, and gives arbitrary values for names that an
        # enumeration lacks.
        return t if any(has_class(one, kind) for one in (t, other) for kind in ("vstring", "enum")) else other
    match t[0]:
        case "int" | "float":
            if r.random() < 0.75:
                return ("int", r.choice((1, 2, 4, 8)), r.random() < 0.6, r.choice((LE, BE)))
            return ("float", r.choice((4, 8)), r.choice((LE, BE)))
        case "string":
            return ("string", r.choice((1, 3, 8, 12, 20)), r.randrange(3), t[3])
        case "compound":
            members = [m for m in t[2] if r.random() < 0.8] or [t[2][0]]
            r.shuffle(members)
            laid, at = [], 0
            for name, _, part in members:
                at += r.choice((0, 0, 2))
                part = memory_type(r, part)
                laid.append((name, at, part))
                at += size_of(part)
            return ("compound", at, tuple(laid))
        case "array":
            return ("array", t[1], memory_type(r, t[2]))
        case "vlen":
            return ("vlen", memory_type(r, t[1]))
        case "enum":
            return ("enum", r.choice((1, 2, 4)), t[2])
        case _:
            return t


def written_type(r, t):
    """A type for writing elements of type `t`. Within variable-length parts no field is left out: whether native HDF5
    keeps
    the old ones depends on whether the parts contain more such parts."""
    memory = memory_type(r, t)
    return t if lacks_fields(t, memory, False) else memory


def lacks_fields(t, memory, within):
    """True if a compound type within a variable-length one has fewer fields than in the file."""
    if t[0] != memory[0]:
        return False
    match t[0]:
        case "compound":
            parts = {name: part for name, _, part in memory[2]}
            if within and len(parts) < len(t[2]):
                return True
            return any(lacks_fields(part, parts[name], within) for name, _, part in t[2] if name in parts)
        case "array":
            return lacks_fields(t[2], memory[2], within)
        case "vlen":
            return lacks_fields(t[1], memory[1], True)
        case _:
            return False


class Types:
    """Datatype identifiers, made once for each description."""

    def __init__(self, h):
        self.h = h
        self.known, self.ids = {}, set()

    def id(self, t):
        """The identifier, owned by this object."""
        found = self.known.get(t)
        if found is None:
            if len(self.known) > 3000:
                for one in self.known.values():
                    self.h.H5Tclose(one)
                self.known.clear(), self.ids.clear()
            found = self.known[t] = self._make(t)
            self.ids.add(found)
            assert found >= 0, t
        return found

    def _make(self, t):
        h = self.h
        match t[0]:
            case "int":
                made = h.H5Tcopy(h.H5T_STD_I8LE)
                h.H5Tset_precision(made, t[1] * 8), h.H5Tset_size(made, t[1])
                h.H5Tset_sign(made, 1 if t[2] else 0), h.H5Tset_order(made, t[3])
            case "float":
                made = h.H5Tcopy(h.H5T_IEEE_F32LE if t[1] == 4 else h.H5T_IEEE_F64LE)
                h.H5Tset_order(made, t[2])
            case "string":
                made = h.H5Tcopy(h.H5T_C_S1)
                h.H5Tset_size(made, t[1]), h.H5Tset_strpad(made, t[2]), h.H5Tset_cset(made, t[3])
            case "vstring":
                made = h.H5Tcopy(h.H5T_C_S1)
                h.H5Tset_size(made, 2**64 - 1), h.H5Tset_cset(made, t[1])
            case "opaque":
                made = h.H5Tcreate(5, t[1])
                h.H5Tset_tag(made, b"a tag")
            case "bits":
                made = h.H5Tcopy({1: h.H5T_STD_B8LE, 2: h.H5T_STD_B16LE, 4: h.H5T_STD_B32LE, 8: h.H5T_STD_B64LE}[t[1]])
                h.H5Tset_precision(made, t[2]), h.H5Tset_offset(made, t[3])
            case "enum":
                made = h.H5Tenum_create(self.id(("int", t[1], True, LE)))
                for i, name in enumerate(t[2]):
                    h.H5Tenum_insert(made, name.encode(), i.to_bytes(t[1], "little"))
            case "compound":
                made = h.H5Tcreate(6, t[1])
                for name, offset, part in t[2]:
                    h.H5Tinsert(made, name.encode(), offset, self.id(part))
            case "array":
                made = h.H5Tarray_create2(self.id(t[2]), len(t[1]), (ctypes.c_uint64 * len(t[1]))(*t[1]))
            case "vlen":
                made = h.H5Tvlen_create(self.id(t[1]))
            case "oldref":
                made = h.H5Tcopy(h.H5T_STD_REF_OBJ)
            case _:
                made = h.H5Tcopy(h.H5T_STD_REF)
        return made


def random_value(r, t, keep):
    """The bytes of one element; appends the memory that it points to to `keep`."""
    match t[0]:
        case "int" | "bits":
            if r.random() < 0.7:
                return (r.randrange(100)).to_bytes(t[1], "big" if t[-1] == BE and t[0] == "int" else "little")
            return r.randbytes(t[1])
        case "float":
            form = (">" if t[2] else "<") + ("f" if t[1] == 4 else "d")
            return struct.pack(form, r.choice((0.0, 1.5, -2.25, 1e9, r.randrange(-999, 999) / 8)))
        case "string":
            return bytes(r.choice(b"abcdef") for _ in range(r.randrange(t[1] + 1))).ljust(
                t[1], b" " if t[2] == 2 else b"\0"
            )
        case "opaque":
            return r.randbytes(t[1])
        case "enum":
            return r.randrange(len(t[2])).to_bytes(t[1], "little")
        case "compound":
            out = bytearray(t[1])
            for _, offset, part in t[2]:
                out[offset : offset + size_of(part)] = random_value(r, part, keep)
            return bytes(out)
        case "array":
            return b"".join(random_value(r, t[2], keep) for _ in range(math.prod(t[1])))
        case "vlen":
            count = r.choice((0, 1, 2, 5))
            part = ctypes.create_string_buffer(b"".join(random_value(r, t[1], keep) for _ in range(count)) + b"\0")
            keep.append(part)
            return struct.pack("<QQ", count, ctypes.addressof(part) if count else 0)
        case "vstring":
            part = ctypes.create_string_buffer(bytes(r.choice(b"ghijkl") for _ in range(r.choice((0, 1, 5, 40)))))
            keep.append(part)
            return struct.pack("<Q", ctypes.addressof(part))
        case "oldref":
            return bytes(8)
        case _:
            return bytes(64)


def random_values(r, t, count, keep):
    """The bytes of `count` elements."""
    if t[0] in ("int", "bits", "opaque"):
        return r.randbytes(t[1] * count)
    if count > 64:  # values repeat, to save the time of making many
        some = b"".join(random_value(r, t, keep) for _ in range(37))
        return (some * (count // 37 + 1))[: count * size_of(t)]
    return b"".join(random_value(r, t, keep) for _ in range(count))


def seen(t, memory, count, at=0):
    """The content of `count` elements in a form that two processes can compare."""
    size = size_of(t)
    if is_solid(t):
        part = memory[at : at + size * count]
        return part.hex() if len(part) <= 16 else f"{zlib.crc32(part):08x}"
    return [see(t, memory, at + i * size) for i in range(count)]


def see(t, memory, at):
    """The content of one element."""
    match t[0]:
        case "compound":
            return [see(part, memory, at + offset) for _, offset, part in t[2]]
        case "array":
            return seen(t[2], memory, math.prod(t[1]), at)
        case "vlen":
            count, where = struct.unpack_from("<QQ", memory, at)
            if not count:
                return []
            if count > 1000 or not where:
                return f"{count} elements at {'somewhere' if where else 'null'}"
            return seen(t[1], ctypes.string_at(where, count * size_of(t[1])), count)
        case "vstring":
            (where,) = struct.unpack_from("<Q", memory, at)
            return ctypes.string_at(where) if where else None
        case "oldref":
            return "null" if memory[at : at + 8] == bytes(8) else "reference"
        case "ref":
            return "null" if memory[at : at + 64] == bytes(64) else "reference"
        case _:
            return memory[at : at + size_of(t)].hex()
