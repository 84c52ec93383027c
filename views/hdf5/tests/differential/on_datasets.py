"""Datasets of all layouts, filters and fill rules: creating, writing and reading by all kinds of selections,
resizing."""

import ctypes
import math

from .on_attributes import MARK, about, count_of, described, of_references, read, some_type
from .on_copies import MISSING
from .on_structure import dump_properties, token, writable
from .types import has_parts, is_solid, lacks_fields, memory_type, random_value, random_values, size_of, written_type
from .world import ROOMS, operation, status

UNLIMITED = 2**64 - 1
COMPACT, CONTIGUOUS, CHUNKED = range(3)
FILL_NEVER = 1


def numbers(values):
    return (ctypes.c_uint64 * max(len(values), 1))(*values)


def dataset_create(w, dims, most, t, rows):
    """Dataset creation properties, mostly valid ones; with `rows` also those that need one of the new formats."""
    r, h = w.r, w.h
    made = h.H5Pcreate(h.H5P_CLS_DATASET_CREATE_ID)
    layout = r.choice((CONTIGUOUS, CONTIGUOUS, COMPACT, CHUNKED, CHUNKED, CHUNKED, CHUNKED))
    if dims != most and r.random() < 0.9:
        layout = CHUNKED
    if layout != CONTIGUOUS:
        h.H5Pset_layout(made, layout)
    w.say(("compact", "contiguous", "chunked")[layout])
    if layout == CHUNKED or r.random() < 0.02:
        chunk = [r.choice((1, 2, 3, 4, 7)) for _ in dims or (1,)]
        if r.random() < 0.8:
            chunk = [min(c, m) for c, m in zip(chunk, most or (9,), strict=True)]
        w.say(f"chunk {chunk} {status(h.H5Pset_chunk(made, len(chunk), numbers(chunk)))}")
        options = r.random() < 0.15 and rows
        if options:
            w.say(f"chunk opts {status(h.H5Pset_chunk_opts(made, 2))}")
        # HDF5 2.0 accepts filters of variable-length elements and does not prepare them; 2.2 and Cenote do. With
        # options native HDF5 does not filter chunks at the edge, and damages copies.
        if t and not has_parts(t) and not options:
            filters(w, made, t)
    if r.random() < 0.35 and t and not has_parts(t):
        keep = []
        value = random_value(r, t, keep)
        w.say(f"fill {status(h.H5Pset_fill_value(made, w.types.id(t), value))}")
    elif r.random() < 0.1:
        w.say(f"fill 7 {status(h.H5Pset_fill_value(made, w.types.id(('int', 4, True, 0)), (7).to_bytes(4, 'little')))}")
    elif (
        r.random() < 0.04 and t and not has_parts(t)
    ):  # else native HDF5 takes old bytes of the file for parts to delete
        w.say(f"fill undefined {status(h.H5Pset_fill_value(made, -1, None))}")
    elif layout == CONTIGUOUS:  # native HDF5 would leave old bytes of the file where nothing is written
        h.H5Pset_fill_time(made, 0)
    if r.random() < 0.25 and layout != CONTIGUOUS:
        time = r.choice((0, 0, 2, FILL_NEVER))
        w.say(f"fill time {time} {status(h.H5Pset_fill_time(made, time))}")
    if r.random() < 0.3:
        time = r.choice((1, 2, 3))
        w.say(f"alloc time {time} {status(h.H5Pset_alloc_time(made, time))}")
    if r.random() < 0.15:
        h.H5Pset_attr_creation_order(made, r.choice((1, 3)))
        h.H5Pset_attr_phase_change(made, 2, 1)
    if r.random() < 0.1:
        h.H5Pset_obj_track_times(made, False)
    return made


# Pipelines that HDF5 itself can undo: a filter that interprets elements comes first, and none comes twice. No szip:
# where it does not make chunks smaller it is left out, but native HDF5 does not record that for a chunk that had the
# same size before, and reads something else.
PIPELINES = [
    "deflate",
    "shuffle",
    "shuffle deflate",
    "fletcher32",
    "shuffle deflate fletcher32",
    "deflate fletcher32",
    "fletcher32 deflate",
    "nbit",
    "nbit deflate",
    "nbit fletcher32",
    "scaleoffset",
    "scaleoffset deflate",
    "scaleoffset fletcher32",
    "missing",
    "shuffle missing",
    "deflate missing fletcher32",
    "shuffle shuffle",
]


def filters(w, made, t):
    """Adds filters."""
    r, h = w.r, w.h
    if r.random() < 0.45:
        return
    cd = (ctypes.c_uint * 1)(3)
    add = {
        "deflate": lambda: h.H5Pset_deflate(made, r.randrange(10)),
        "shuffle": lambda: h.H5Pset_shuffle(made),
        "fletcher32": lambda: h.H5Pset_fletcher32(made),
        "nbit": lambda: h.H5Pset_nbit(made),
        "scaleoffset": lambda: h.H5Pset_scaleoffset(made, 2, 0),
        "missing": lambda: h.H5Pset_filter(made, MISSING, 1, 1, cd),
    }
    pipeline = r.choice(PIPELINES)
    if "scaleoffset" in pipeline and t[0] == "float":  # native HDF5's cache keeps such values exactly
        pipeline = "shuffle deflate"
    for what in pipeline.split():
        w.say(f"{what} {status(add[what]())}")


@operation(14)
def dataset_make(w):
    kind, t = some_type(w)
    r, h = w.r, w.h
    x = r.random()
    dims, rows = [r.randrange(1, 9) for _ in range(r.choice((1, 1, 2, 2, 3)))], True
    if x < 0.05:
        dims, most, space = [], [], h.H5Screate(0)
    elif x < 0.07:
        dims, most, space = [], [], h.H5Screate(2)
    else:
        most = [d if r.random() < 0.5 else r.choice((d + 5, UNLIMITED)) for d in dims]
        if r.random() < 0.4:
            most = list(dims)
        # For other datasets native HDF5's index (of the new formats) reports the places of other chunks, which copies
        # then have; an extent of 0 from the second dimension on is not tried either.
        rows = dims[1:] == most[1:] or most.count(UNLIMITED) > 1
        if w.new_format and not rows:
            most[1:], rows = dims[1:], True
        if r.random() < 0.06:
            dims[0] = 0  # but not a maximum of 0: native HDF5 divides by it
        w.say(str([(d, m if m < 2**63 else "inf") for d, m in zip(dims, most, strict=True)]))
        space = h.H5Screate_simple(len(dims), numbers(dims), numbers(most))
    dcpl = dataset_create(w, dims, most, t, rows)
    made = make_at(w, kind, space, dcpl) if r.random() < 0.93 else h.H5Dcreate_anon(w.place(), kind, space, dcpl, 0)
    out = w.adopt(made, "D")
    if made >= 0 and t and r.random() < 0.6:
        out += f" written {write_all(w, made, t, math.prod(dims))}"
    if made >= 0:
        given = h.H5Dget_create_plist(made)
        out += f" as given {h.H5Pequal(dcpl, given)}"
        h.H5Pclose(given)
    h.H5Pclose(dcpl), h.H5Sclose(space)
    return out


def make_at(w, kind, space, dcpl):
    """A dataset with a name, often one that groups do not have."""
    where, name, lcpl = w.target()
    if w.r.random() < 0.3:
        name = w.r.choice((b"k", b"l", b"m", b"n", b"o"))
        w.say(name)
    return w.h.H5Dcreate2(where, name, kind, space, lcpl, dcpl, 0)


def write_all(w, one, t, count):
    keep = []
    return status(w.h.H5Dwrite(one, w.types.id(t), 0, 0, 0, random_values(w.r, t, max(count, 1), keep)))


@operation(4)
def dataset_open(w):
    return w.adopt(w.h.H5Dopen2(w.place(), w.name(), 0), "D")


def extent_of(w, space):
    dims = numbers([0] * 8)
    rank = w.h.H5Sget_simple_extent_dims(space, dims, None)
    return list(dims[: max(rank, 0)])


def choose(w, space, dims, distinct):
    """Selects part of a dataspace; most selections are valid."""
    r, h = w.r, w.h
    x = r.random()
    if not dims or not all(dims) or x < 0.3:  # native HDF5 divides by an extent of 0
        if r.random() < 0.1:
            w.say("none")
            h.H5Sselect_none(space)
        else:
            w.say("all")
        return
    if x < 0.85:
        operators = [0] + [r.randrange(6) for _ in range(r.choice((0, 0, 0, 1, 1, 2)))]
        for op in operators:
            box = hyperslab(r, dims)
            code = h.H5Sselect_hyperslab(space, op, *(numbers(part) for part in box))
            w.say(f"slab{op} {box} {status(code)}")
        if not is_sound(w, space):
            w.say("HDF5 itself counts other elements than it selects")
            h.H5Sselect_all(space)
        return
    points = [[r.randrange(max(d, 1)) for d in dims] for _ in range(r.randrange(1, 7))]
    if distinct:  # an element that is written twice may get either value
        points = [list(p) for p in dict.fromkeys(tuple(p) for p in points)]
    flat = [x for p in points for x in p]
    w.say(f"points {points} {status(h.H5Sselect_elements(space, 0, len(points), numbers(flat)))}")


def is_sound(w, space):
    """False if a selection that HDF5 combined has fewer blocks than elements, as happens in 2.0 and 2.2."""
    h = w.h
    blocks = h.H5Sget_select_hyper_nblocks(space)
    rank = h.H5Sget_simple_extent_dims(space, None, None)
    if blocks < 0:
        return True
    corners = numbers([0] * (2 * rank * blocks))
    h.H5Sget_select_hyper_blocklist(space, 0, blocks, corners)
    count = 0
    for at in range(0, 2 * rank * blocks, 2 * rank):
        sides = zip(corners[at : at + rank], corners[at + rank : at + 2 * rank], strict=True)
        count += math.prod(high - low + 1 for low, high in sides)
    return count == h.H5Sget_select_npoints(space)


def hyperslab(r, dims):
    """Start, stride, count and block, mostly inside."""
    start, stride, count, block = [], [], [], []
    for d in dims:
        at = r.randrange(max(d, 1))
        width = r.choice((1, 1, 2, 3))
        step = width + r.choice((0, 0, 1, 2))
        most = max((d - at - width) // step + 1, 1)
        start.append(at), stride.append(step), count.append(r.randrange(1, most + 1)), block.append(width)
        if r.random() < 0.93 and at + (count[-1] - 1) * step + width > d:
            start[-1], stride[-1], count[-1], block[-1] = 0, 1, max(d, 1), 1
    return start, stride, count, block


def memory_space(w, count):
    """A dataspace for `count` elements in memory, and the number of elements in its extent."""
    r, h = w.r, w.h
    x = r.random()
    if x < 0.03:
        count += 1
    if x < 0.6 or not count:
        w.say(f"memory [{count}]")
        return h.H5Screate_simple(1, numbers([count]), None), count
    if x < 0.8:
        step, at = r.randrange(1, 4), r.randrange(3)
        size = at + count * step
        space = h.H5Screate_simple(1, numbers([size]), None)
        h.H5Sselect_hyperslab(space, 0, numbers([at]), numbers([step]), numbers([count]), None)
        w.say(f"memory {at}+{step}*{count}")
        return space, size
    rows = next(n for n in (4, 3, 2, 1) if count % n == 0)
    size = (rows + 1, count // rows + 2)
    space = h.H5Screate_simple(2, numbers(size), None)
    h.H5Sselect_hyperslab(space, 0, numbers([1, 1]), None, numbers([rows, count // rows]), None)
    w.say(f"memory within {size}")
    return space, math.prod(size)


def transfer(w, one, memory, writing):
    """A write or read of a random selection."""
    h, r = w.h, w.r
    space = h.H5Dget_space(one)
    dims = extent_of(w, space)
    if r.random() < 0.15:
        file_space, memory_is, count = 0, 0, count_of(h, space)
        w.say("all to all")
        if r.random() < 0.1:
            memory_is, count = memory_space(w, count)
    else:
        choose(w, space, dims, writing or has_parts(memory))  # parts are freed once
        file_space, points = space, max(h.H5Sget_select_npoints(space), 0)
        if r.random() < 0.2:
            memory_is, count = 0, count_of(h, space)
        else:
            memory_is, count = memory_space(w, points)
    try:
        if writing:
            keep = []
            values = random_values(r, memory, max(count, 1), keep)
            return status(h.H5Dwrite(one, w.types.id(memory), memory_is, file_space, 0, values))
        within = memory_is or space
        if has_parts(memory) and memory_is:
            pass
        return read(w, memory, count, within, lambda kind, to: h.H5Dread(one, kind, memory_is, file_space, 0, to))
    finally:
        h.H5Sclose(space)
        if memory_is:
            h.H5Sclose(memory_is)


def without_fill(w, one):
    """True if unwritten elements may hold anything (or an earlier file's bytes)."""
    given, time, defined = w.h.H5Dget_create_plist(one), ctypes.c_int(), ctypes.c_int()
    w.h.H5Pget_fill_time(given, ctypes.byref(time))
    w.h.H5Pfill_value_defined(given, ctypes.byref(defined))
    w.h.H5Pclose(given)
    return time.value == FILL_NEVER or defined.value == 0


@operation(12)
def dataset_write(w):
    one = w.pick("D")
    t = described(w, one) if w.have("D") else None
    if of_references(t):
        return "references"
    if t is None:
        return status(w.h.H5Dwrite(one, w.types.id(("int", 4, True, 0)), 0, 0, 0, bytes(40000)))
    memory, there = written_type(w.r, t), ctypes.c_int()
    w.h.H5Dget_space_status(one, ctypes.byref(there))
    # Native HDF5 does not fill fields that the first write of all elements lacks; and after a change of the extent its
    # cache decides which chunks exist.
    if lacks_fields(t, memory, True) and (not there.value or is_resized(w, one)):
        memory = t
    w.say(memory)
    out = transfer(w, one, memory, True)
    if out == "fails" and has_parts(t) and writable(w, one):  # native HDF5 has dropped old parts all the same
        space = w.h.H5Dget_space(one)
        out += f" written {write_all(w, one, t, count_of(w.h, space))}"
        w.h.H5Sclose(space)
    return out


@operation(14)
def dataset_read(w):
    one = w.pick("D")
    t = described(w, one) if w.have("D") else None
    if of_references(t):
        return "references"
    if t is None:
        return status(w.h.H5Dread(one, w.types.id(("int", 4, True, 0)), 0, 0, 0, bytes(40000)))
    memory = memory_type(w.r, t)
    w.say(memory)
    out = transfer(w, one, memory, False)
    return out if out == "fails" or not without_fill(w, one) else "something"


@operation(5)
def dataset_resize(w):
    one = w.pick("D" if w.r.random() < 0.97 else ROOMS)
    space = w.h.H5Dget_space(one)
    rank = len(extent_of(w, space)) if space >= 0 else 1
    w.h.H5Sclose(space)
    dims = [w.r.randrange(0 if w.r.random() < 0.1 else 1, 12) for _ in range(rank)]
    w.say(dims)
    if allocated_late(w, one):
        return "native HDF5 has not filled the far part of chunks at the edge, which then can be seen"
    out = status(w.h.H5Dset_extent(one, numbers(dims)))
    if w.h.H5Iget_type(one) == 5 and w.h.H5Aexists(one, MARK) == 0:
        space = w.h.H5Screate(2)
        w.h.H5Aclose(w.h.H5Acreate2(one, MARK, w.types.id(("int", 1, True, 0)), space, 0, 0))
        w.h.H5Sclose(space)
        w.any_resized = True
    return out


def is_resized(w, one):
    """True for a dataset whose extent was changed."""
    return w.h.H5Aexists(one, MARK) > 0


def allocated_late(w, one):
    """True for a dataset whose chunks are all allocated at the first write."""
    given, time = w.h.H5Dget_create_plist(one), ctypes.c_int()
    w.h.H5Pget_alloc_time(given, ctypes.byref(time))
    w.h.H5Pclose(given)
    return time.value == 2 and w.h.H5Iget_type(one) == 5


@operation(4)
def dataset_facts(w):
    one, h = w.pick("D" if w.r.random() < 0.97 else ROOMS), w.h
    space, t = h.H5Dget_space(one), h.H5Dget_type(one)
    out = [about(w, space, t)]
    h.H5Sclose(space), h.H5Tclose(t)
    given = h.H5Dget_create_plist(one)
    if given < 0:
        return " ".join([*out, "fails"])
    out.append(dump_dataset(w, given))
    out.append(dump_properties(w, given, "O"))
    h.H5Pclose(given)
    given = h.H5Dget_access_plist(one)
    out.append(status(min(given, 0)))
    h.H5Pclose(given)
    return " ".join(out)


def dump_dataset(w, given):
    """The content of a dataset's creation property list."""
    h, dims, a, b = w.h, numbers([0] * 8), ctypes.c_int(-9), ctypes.c_int(-9)
    layout = h.H5Pget_layout(given)
    out = [f"layout {layout}"]
    if layout == CHUNKED:
        rank = h.H5Pget_chunk(given, 8, dims)
        out.append(str(list(dims[:rank])))  # without H5Pget_chunk_opts, which not every native file stores
    for i in range(max(h.H5Pget_nfilters(given), 0)):
        flags, count, config = ctypes.c_uint(), ctypes.c_size_t(20), ctypes.c_uint()
        values = (ctypes.c_uint * 20)()
        code = h.H5Pget_filter2(
            given, i, ctypes.byref(flags), ctypes.byref(count), values, 0, None, ctypes.byref(config)
        )
        out.append(f"filter {code} {flags.value} {list(values[: count.value])} {config.value}")
    h.H5Pget_fill_time(given, ctypes.byref(a)), h.H5Pget_alloc_time(given, ctypes.byref(b))
    out.append(f"times {a.value} {b.value}")
    out.append(f"{status(h.H5Pfill_value_defined(given, ctypes.byref(a)))} {a.value}")
    value = ctypes.create_string_buffer(8)
    code = h.H5Pget_fill_value(given, w.types.id(("int", 8, True, 0)), value)
    out.append(f"fill {status(code)} {value.raw.hex()}")
    return " ".join(out)


@operation(1)
def dataset_parts_size(w):
    """Memory needed for the variable-length parts of a selection."""
    one = w.pick("D")
    t = described(w, one) if w.have("D") else None
    if t is None or not has_parts(t) or of_references(t):
        return "none"
    space, size = w.h.H5Dget_space(one), ctypes.c_uint64(77)
    if not extent_of(w, space):
        w.h.H5Sclose(space)
        return "HDF5 itself writes past a buffer for scalars"
    choose(w, space, extent_of(w, space), False)
    code = w.h.H5Dvlen_get_buf_size(one, w.types.id(t), space, ctypes.byref(size))
    w.h.H5Sclose(space)
    if without_fill(w, one):
        return status(code)
    return f"{status(code)} {size.value}"


@operation(1)
def dataset_many(w):
    """Several datasets in one call."""
    count = w.r.randrange(1, 4)
    if len(set(w.open["D"])) < 1:
        return "none"
    ones = list({token(w, one): one for one in (w.pick("D") for _ in range(count))}.values())
    if len({w.file_of(one)[0] for one in ones}) > 1:
        return "native HDF5 does this within one file only"
    count = len(ones)
    writing = w.r.random() < 0.5
    types = [described(w, one) for one in ones]
    sizes, keep, kinds, buffers = [], [], [], []
    for one, t in zip(ones, types, strict=True):
        if t is None or has_parts(t) or not is_solid(t):
            return "other types"
        space = w.h.H5Dget_space(one)
        sizes.append(count_of(w.h, space))
        w.h.H5Sclose(space)
        kinds.append(w.types.id(t))
        values = (
            random_values(w.r, t, max(sizes[-1], 1), keep) if writing else b"\x5a" * (max(sizes[-1], 1) * size_of(t))
        )
        buffers.append(ctypes.create_string_buffer(values, len(values)))
    same = {}
    for one, buffer in zip(ones, buffers, strict=True):
        same.setdefault(one, buffer)
    ids, zeros = (ctypes.c_int64 * count)(*ones), (ctypes.c_int64 * count)()
    pointers = (ctypes.c_void_p * count)(*(ctypes.addressof(same[one]) for one in ones))
    call = w.h.H5Dwrite_multi if writing else w.h.H5Dread_multi
    code = call(count, ids, (ctypes.c_int64 * count)(*kinds), zeros, zeros, 0, pointers)
    if writing or code < 0:
        return status(code)
    whole = [b for b, one in zip(buffers, ones, strict=True) if not without_fill(w, one)]
    return " ".join(b.raw.hex()[:64] for b in whole)
