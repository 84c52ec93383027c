"""Random programs about virtual datasets, run by test_virtual.py once on native HDF5 and once on Cenote.

Run as `python virtual_programs.py DIRECTORY SEED...`; prints what is seen, line by line. Files are named relative to
the
directory, so that both print the same.
"""

import os
import pathlib
import sys

import h5py
import numpy as np


def said(*what):
    print(*[repr(w.tolist()) if isinstance(w, np.ndarray) else repr(w) for w in what])


def attempt(act):
    try:
        return act()
    except (OSError, RuntimeError, ValueError) as error:
        return type(error).__name__


def steps(r, count, room):
    """A slice of `count` indices below `room`."""
    stride = int(r.integers(1, 4))
    while (count - 1) * stride + 1 > room:
        stride -= 1
    start = int(r.integers(0, room - (count - 1) * stride))
    return slice(start, start + (count - 1) * stride + 1, stride)


def view_of(r):
    dapl = h5py.h5p.create(h5py.h5p.DATASET_ACCESS)
    dapl.set_virtual_view(int(r.integers(2)))
    dapl.set_virtual_printf_gap(int(r.integers(3)))
    return dapl


def make_source(r, name, number, shape, dtype, maxshape=None):
    """A source in another file or in the virtual dataset's, or a missing one."""
    where = [f"{name}.h5", f"{name}-s{number}.h5", f"sub/{name}-s{number}.h5"][r.integers(3)]
    if r.random() < 0.15:
        return where, f"missing{number}"
    chunks = tuple(max(1, n // 2) for n in shape) if maxshape or r.random() < 0.4 else None
    with h5py.File(where, "a") as f:
        data = r.integers(0, 100, shape).astype(dtype)
        f.create_dataset(f"src/{number}", data=data, chunks=chunks, maxshape=maxshape)
    return where, f"src/{number}"


def fixed(r, name, dtype):
    """Rows of the virtual dataset are rows of sources, with strides on both sides."""
    rank = int(r.integers(1, 4))
    shape = tuple(int(n) for n in r.integers(2, 9, rank))
    layout = h5py.VirtualLayout(shape=shape, dtype=dtype, filename=f"{name}.h5")
    row = 0
    for number in range(int(r.integers(1, 5))):
        rows = int(r.integers(1, 4))
        if row + rows > shape[0]:
            break
        counts = [rows] + [int(r.integers(1, n + 1)) for n in shape[1:]]
        source_dtype = dtype if r.random() < 0.6 else np.dtype("i2")
        source_shape = tuple(n + int(r.integers(0, 6)) for n in counts)
        where, path = make_source(r, name, number, source_shape, source_dtype)
        source = h5py.VirtualSource(where, path, shape=source_shape)
        picked = source[tuple(steps(r, n, room) for n, room in zip(counts, source_shape, strict=True))]
        target = [slice(row, row + rows)] + [steps(r, n, room) for n, room in zip(counts[1:], shape[1:], strict=True)]
        layout[tuple(target)] = picked
        row += rows + int(r.integers(0, 2))
    return layout


def look(r, dset):
    shape = dset.shape
    said("shape", shape, dset.maxshape, dset.dtype.str, dset.is_virtual)
    if 0 in shape:
        return
    said("all", attempt(lambda: dset[...]))
    for _ in range(4):
        counts = [int(r.integers(1, n + 1)) for n in shape]
        cut = tuple(steps(r, n, room) for n, room in zip(counts, shape, strict=True))
        said("cut", cut, attempt(lambda cut=cut: dset[cut]))
    mask = r.random(shape) < 0.3
    if mask.any():
        # Native HDF5 cannot read points where a source is missing.
        got = attempt(lambda: dset[mask])
        assert isinstance(got, str) or (got == dset[...][mask]).all()
    rows = np.flatnonzero(r.random(shape[0]) < 0.5)
    if len(rows):
        said("rows", attempt(lambda: dset[rows]))
    said("storage", dset.id.get_storage_size(), dset.id.get_space_status())


def slab(space):
    """A regular hyperslab in normal form: adjacent blocks are one block, and a single block has no stride."""
    form = []
    for start, stride, count, block in zip(*space.get_regular_hyperslab(), strict=True):
        if stride == block and count != h5py.h5s.UNLIMITED:
            count, block = 1, count * block
        form.append((start, stride if count != 1 else None, count, block))
    return form


def mappings(dset):
    plist = dset.id.get_create_plist()
    for i in range(plist.get_virtual_count()):
        target, source = plist.get_virtual_vspace(i), plist.get_virtual_srcspace(i)
        said(i, plist.get_virtual_filename(i), plist.get_virtual_dsetname(i))
        for space in (target, source):
            kind = space.get_select_type()
            said(kind, space.is_regular_hyperslab() and slab(space) if kind == 2 else None)
            said(attempt(space.get_select_npoints))


def write(r, dset):
    for _ in range(3):
        counts = [int(r.integers(1, n + 1)) for n in dset.shape]
        cut = tuple(steps(r, n, room) for n, room in zip(counts, dset.shape, strict=True))
        # Native HDF5 writes wrong elements if their type is another.
        data = r.integers(100, 200, counts).astype(dset.dtype)
        said("write", cut, attempt(lambda cut=cut, data=data: dset.__setitem__(cut, data)))
    said(attempt(lambda: dset[...]))


def fixed_program(r, name):
    dtype = np.dtype(["i4", "f8", ">i2", "u1"][r.integers(4)])
    layout = fixed(r, name, dtype)
    fill = None if r.random() < 0.4 else int(r.integers(1, 100))
    with h5py.File(f"{name}.h5", "a") as f:
        f.create_virtual_dataset("v", layout, fillvalue=fill)
        look(r, f["v"])
        if r.random() < 0.5:
            # A virtual dataset of a virtual dataset.
            again = h5py.VirtualLayout(shape=f["v"].shape, dtype="f8", filename=f"{name}.h5")
            again[...] = h5py.VirtualSource(f["v"])
            f.create_virtual_dataset("nested", again, fillvalue=-1)
            said("nested", attempt(lambda: f["nested"][...]))
    with h5py.File(f"{name}.h5", "r+") as f:
        mappings(f["v"])
        write(r, f["v"])
        f.copy("v", "copy")
        said("copy", attempt(lambda: f["copy"][...]))
        del f["copy"]
    with h5py.File(f"{name}.h5", "r") as f:
        look(r, f["v"])


def growing_program(r, name):
    """Unlimited selections on both sides; sources grow."""
    width = int(r.integers(1, 4))
    count = int(r.integers(1, 4))
    long = [int(n) for n in r.integers(0, 9, count)]
    stride, block = int(r.integers(1, 4)), int(r.integers(1, 3))
    # Native HDF5 leaves holes unfilled where mappings overlap.
    spread = count * block + int(r.integers(0, 2))
    names = []
    for number in range(count):
        shape = (long[number], width)
        names.append(make_source(r, name, number, shape, np.dtype("i4"), maxshape=(None, width)))
    dcpl = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    dcpl.set_fill_value(np.array(-7, "i4"))
    unlimited = h5py.h5s.UNLIMITED
    dims = (int(r.integers(0, 4)) + count, width)
    for number, (where, path) in enumerate(names):
        target = h5py.h5s.create_simple(dims, (unlimited, width))
        target.select_hyperslab((number * block, 0), (unlimited, 1), (spread, 1), (block, width))
        source = h5py.h5s.create_simple((max(1, long[number]), width), (unlimited, width))
        if r.random() < 0.5:
            source.select_hyperslab((0, 0), (unlimited, 1), (stride, 1), (1, width))
        else:
            source.select_hyperslab((int(r.integers(0, 2)), 0), (1, 1), (1, 1), (unlimited, width))
        dcpl.set_virtual(target, where.encode(), path.encode(), source)
    view = view_of(r)
    with h5py.File(f"{name}.h5", "a") as f:
        space = h5py.h5s.create_simple(dims, (unlimited, width))
        h5py.h5d.create(f.id, b"v", h5py.h5t.STD_I32LE, space, dcpl)
    for turn in range(3):
        with h5py.File(f"{name}.h5", "r+") as f:
            look(r, h5py.Dataset(h5py.h5d.open(f.id, b"v", view)))
            mappings(f["v"])
        for where, path in names:
            if pathlib.Path(where).exists() and r.random() < 0.6:
                with h5py.File(where, "r+") as f:
                    if path in f:
                        rows = int(r.integers(0, 12))
                        f[path].resize(rows, 0)
                        f[path][...] = np.arange(rows * width).reshape(rows, width) + 1000 * turn


def numbered_program(r, name):
    """Sources with numbers in their names; more appear."""
    width, block = int(r.integers(1, 4)), int(r.integers(1, 4))
    stride = block + int(r.integers(0, 2))
    unlimited = h5py.h5s.UNLIMITED
    target = h5py.h5s.create_simple((block, width), (unlimited, width))
    target.select_hyperslab((int(r.integers(0, 2)), 0), (unlimited, 1), (stride, 1), (block, width))
    source = h5py.h5s.create_simple((block, width))
    dcpl = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    dcpl.set_fill_value(np.array(-3, "i4"))
    in_files = r.random() < 0.5
    names = (f"{name}-%b.h5", "d%%") if in_files else (".", "part-%b")
    dcpl.set_virtual(target, names[0].encode(), names[1].encode(), source)
    view = view_of(r)
    with h5py.File(f"{name}.h5", "w") as f:
        space = h5py.h5s.create_simple((block + 1, width), (unlimited, width))
        h5py.h5d.create(f.id, b"v", h5py.h5t.STD_I32LE, space, dcpl)
    for _ in range(3):
        number = int(r.integers(0, 6))
        where, path = (f"{name}-{number}.h5", "d%") if in_files else (f"{name}.h5", f"part-{number}")
        with h5py.File(where, "a") as f:
            if path not in f:
                f[path] = np.arange(block * width, dtype="i4").reshape(block, width) + 100 * number
        with h5py.File(f"{name}.h5", "r+") as f:
            dset = h5py.Dataset(h5py.h5d.open(f.id, b"v", view))
            look(r, dset)
            if dset.shape[0]:
                write(r, dset)


def main(directory, *seeds):
    pathlib.Path(directory, "sub").mkdir(parents=True)
    os.chdir(directory)
    for seed in map(int, seeds):
        print("seed", seed)
        r = np.random.default_rng(seed)
        [fixed_program, growing_program, numbered_program][seed % 3](r, f"f{seed}")


if __name__ == "__main__":
    main(*sys.argv[1:])
