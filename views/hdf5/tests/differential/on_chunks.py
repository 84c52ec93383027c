"""Chunks: which exist, their stored bytes, and writing them in stored form."""

import ctypes
import zlib

from .on_attributes import described
from .on_datasets import CHUNKED, extent_of, is_resized, numbers, without_fill
from .on_structure import READ_ONLY, writable
from .types import has_parts, size_of
from .world import ROOMS, operation, status

INCREMENTAL = 3
NOWHERE = 2**64 - 1
EACH = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(ctypes.c_uint64), ctypes.c_uint, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_void_p
)


def chunk_of(w, one):
    """The chunk's shape and the filters of a dataset; None if it has no chunks."""
    given = w.h.H5Dget_create_plist(one)
    if given < 0:
        return None
    dims, filters, time = numbers([0] * 8), w.h.H5Pget_nfilters(given), ctypes.c_int()
    w.h.H5Pget_alloc_time(given, ctypes.byref(time))
    layout = w.h.H5Pget_layout(given)
    rank = w.h.H5Pget_chunk(given, 8, dims) if layout == CHUNKED else 0
    options = ctypes.c_uint()
    if layout == CHUNKED:
        w.h.H5Pget_chunk_opts(given, ctypes.byref(options))
    kinds = [w.h.H5Pget_filter2(given, i, None, None, None, 0, None, None) for i in range(filters)]
    w.h.H5Pclose(given)
    if is_resized(w, one):  # native HDF5 makes chunks that did not exist, to fill what is cut off
        return None
    # Cenote allocates a chunk when it is written, whatever was asked for, and also filters chunks at the edge.
    plain = layout == CHUNKED and time.value == INCREMENTAL and not (kinds and options.value)
    return (list(dims[:rank]), kinds) if plain else None


def pick_chunked(w):
    """An open dataset that `chunk_of` knows, if there is one; else any."""
    held = [i for i, one in enumerate(w.open["D"]) if chunk_of(w, one)]
    if not held:
        return w.pick("D")
    i = w.r.choice(held)
    w.say(f"D{i}")
    return w.open["D"][i]


def exact(w, one, kinds):
    """True if stored bytes do not depend on the library: no variable-length parts, no compression whose size depends
    on the
    compressor."""
    t = described(w, one)
    return t is not None and not has_parts(t) and not {1, 4, 32000} & set(kinds)


def corner(w, one, shape, strict=False):
    """The start of a chunk; with `strict`, seldom a wrong one, which native HDF5 checks when it reads or writes."""
    space = w.h.H5Dget_space(one)
    dims = extent_of(w, space)
    w.h.H5Sclose(space)
    at = [w.r.randrange(max(-(-d // c), 1)) * c for d, c in zip(dims, shape, strict=False)]
    if strict and w.r.random() < 0.05 and all(n + 1 != d for n, d in zip(at, dims, strict=False)):
        at = [n + 1 for n in at]  # but not right after the end, where native HDF5 writes a chunk
    if strict and w.r.random() < 0.03:
        at = [n + 100 * c for n, c in zip(at, shape, strict=False)]
    w.say(at)
    return numbers(at)


@operation(4)
def chunk_facts(w):
    one, h = pick_chunked(w) if w.r.random() < 0.9 else w.pick(ROOMS), w.h
    found = chunk_of(w, one) if h.H5Iget_type(one) == 5 else None
    if not found and w.have("D") and status_of_layout(w, one) == CHUNKED:
        return "allocated at another time"
    shape, kinds = found or ([1], [])
    if found and (described(w, one) is None):
        return "another type"
    count, size, mask, where = ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_uint(), ctypes.c_uint64()
    b = ctypes.byref
    same = bool(found) and exact(w, one, kinds)
    match w.r.randrange(4):
        case 0:
            return f"{status(h.H5Dget_num_chunks(one, 0, b(count)))} {count.value}"
        case 1:
            code = h.H5Dget_chunk_info_by_coord(one, corner(w, one, shape), b(mask), b(where), b(size))
        case 2:
            at = corner(w, one, shape)
            if h.H5Dget_chunk_info_by_coord(one, at, None, b(where), None) >= 0 and where.value == NOWHERE:
                return "native HDF5 tells what its cache has"
            code = h.H5Dget_chunk_storage_size(one, at, b(size))
        case _:
            n, at = w.r.randrange(5), numbers([0] * 8)
            w.say(str(n))
            code = h.H5Dget_chunk_info(one, 0, n, at, b(mask), b(where), b(size))
            return status(code)  # the numbering of chunks depends on native HDF5's index
    out = f"{status(code)} mask {mask.value} {'nowhere' if where.value == NOWHERE else 'somewhere'}"
    return f"{out} {size.value if same else bool(size.value)}"


@operation(2)
def chunk_list(w):
    """All chunks, by number and by iteration."""
    one, h = pick_chunked(w), w.h
    found = chunk_of(w, one) if w.have("D") else None
    if not found or described(w, one) is None:
        return "none"
    shape, kinds = found
    same, saw, listed = exact(w, one, kinds), [], []

    def each(at, mask, _where, size, _data):
        saw.append(f"{list(at[: len(shape)])} {mask} {size if same else ''}")
        return 0

    code = h.H5Dchunk_iter(one, 0, EACH(each), None)
    count = ctypes.c_uint64()
    out = f"{status(code)} {status(h.H5Dget_num_chunks(one, 0, ctypes.byref(count)))} {count.value}"
    for n in range(min(count.value, 50)):
        at, mask, size, where = numbers([0] * 8), ctypes.c_uint(), ctypes.c_uint64(), ctypes.c_uint64()
        refs = ctypes.byref(mask), ctypes.byref(where), ctypes.byref(size)
        code = h.H5Dget_chunk_info(one, 0, n, at, *refs)
        listed.append(f"{list(at[: len(shape)])} {mask.value} {size.value if same else ''}")
    saw.sort(), listed.sort()
    return f"{out} {saw} {'and so listed' if listed == saw[: len(listed)] or len(saw) > 50 else listed}"


@operation(3)
def chunk_read(w):
    one, h = pick_chunked(w), w.h
    found = chunk_of(w, one) if w.have("D") else None
    t = described(w, one) if found else None
    if not found or t is None:
        return (
            status(h.read_chunk(one, 0, numbers([0] * 8), ctypes.byref(ctypes.c_uint()), w.scratch))
            if found
            else "none"
        )
    shape, kinds = found
    h.H5Dflush(one)  # native HDF5 reports size 0 for some chunks that only its cache has
    at, size, mask = corner(w, one, shape, True), ctypes.c_uint64(), ctypes.c_uint(99)
    if any(n % c for n, c in zip(at, shape, strict=False)) or any(n >= 100 for n in at[: len(shape)]):
        size.value = 100_000
    elif h.H5Dget_chunk_storage_size(one, at, ctypes.byref(size)) < 0:
        return "fails"
    buffer = ctypes.create_string_buffer(max(size.value, 1))
    args = (one, 0, at, ctypes.byref(mask), buffer)
    if h.read_chunk is getattr(h, "H5Dread_chunk2", None):
        args = (*args, ctypes.byref(size))
    if h.read_chunk(*args) < 0:
        return "fails"
    out = f"mask {mask.value}"
    if has_parts(t) or without_fill(w, one):
        return out
    if exact(w, one, kinds):
        return f"{out} {size.value} {zlib.crc32(buffer.raw[: size.value]):08x}"
    return out


@operation(3)
def chunk_write(w):
    one, h = pick_chunked(w), w.h
    found = chunk_of(w, one) if w.have("D") else None
    t = described(w, one) if found else None
    if not found or t is None or has_parts(t):
        return "none"
    shape, kinds = found
    space = h.H5Dget_space(one)
    dims = extent_of(w, space)
    h.H5Sclose(space)
    if len(shape) > 4 or not all(dims):
        return "none"
    count = size_of(t)
    for n in shape:
        count *= n
    data = w.r.randbytes(count)
    if kinds == [1]:
        data = zlib.compress(data)
    elif kinds:
        return "native HDF5 forgets to note another mask in its cache"
    w.say(f"{len(data)} bytes")
    if not writable(w, one):
        return READ_ONLY
    at = corner(w, one, shape, True)
    return status(h.H5Dwrite_chunk(one, 0, 0, at, len(data), data))


def status_of_layout(w, one):
    given = w.h.H5Dget_create_plist(one)
    layout = w.h.H5Pget_layout(given)
    w.h.H5Pclose(given)
    return layout


@operation(2)
def dataset_space_status(w):
    one, h, out = w.pick("D"), w.h, ctypes.c_int(-5)
    code = h.H5Dget_space_status(one, ctypes.byref(out))
    found = chunk_of(w, one) if w.have("D") else None
    size = ""
    if w.have("D") and not found and status_of_layout(w, one) == CHUNKED:
        return status(code)
    if w.have("D") and (not found or exact(w, one, found[1])):
        t = described(w, one)
        if t is not None and not has_parts(t):
            size = h.H5Dget_storage_size(one)
    return f"{status(code)} {out.value} {size}"
