"""One process appends to datasets and flushes, others refresh and read: every row inside a visible extent was written.

`python swmr.py --seconds 20 [--readers 2] [--plain] [--layout NAME]`, natively or with HDF5's connector in the
environment. Readers count rows of fill values inside the extent, and separately those that the writer had flushed
before
the reader refreshed.
"""

import argparse
import json
import mmap
import os
import pathlib
import struct
import sys
import time

import h5py
import numpy as np
from forked import forked

LAYOUTS = {
    "rows": {"chunks": (16, 8)},
    "one": {"chunks": (1, 8)},
    "wide": {"chunks": (4, 4), "fillvalue": 0},
    "packed": {"chunks": (16, 8), "compression": "gzip", "compression_opts": 1},
    "large": {"chunks": (64, 4096)},
    "records": {"chunks": (16,), "dtype": [("number", "i8"), ("values", "i8", (3,))]},
}


def columns(layout):
    """Numbers per row."""
    if layout == "records":
        return 4
    return LAYOUTS[layout]["chunks"][1] * (2 if layout == "wide" else 1)


def make(file, layout):
    """Makes a dataset without rows."""
    row = () if layout == "records" else (columns(layout),)
    file.create_dataset(layout, (0, *row), maxshape=(None, *row), **{"dtype": "i8"} | LAYOUTS[layout])


def rows_of(numbers, dset):
    """Rows filled with these numbers."""
    rows = np.repeat(numbers[:, None], columns(dset.name[1:]), 1)
    return rows if dset.ndim > 1 else rows.view(dset.dtype).reshape(-1)


def write(path, layouts, shared, seconds, plain, step, calls):
    """Appends `step` rows at a time in several calls, filled with their number plus one; flushes by dataset or file."""
    with h5py.File(path, "w", libver="latest", locking=False if plain else None) as f:
        for layout in layouts:
            make(f, layout)
        f.flush()
        if not plain:
            f.swmr_mode = True
        shared[0:8] = struct.pack("<Q", 1)
        end, rows = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            for number, layout in enumerate(layouts):
                dset = f[layout]
                new = np.arange(rows + 1, rows + step + 1, dtype="i8")
                dset.resize(rows + step, 0)
                new = rows_of(new, dset)
                for at in range(0, step, -(-step // calls)):
                    few = new[at : at + -(-step // calls)]
                    dset[rows + at : rows + at + len(few)] = few
                if rows // step % 2:
                    dset.flush()
                    at = 64 + 8 * number
                    shared[at : at + 8] = struct.pack("<Q", rows + step)
            rows += step
            f.flush()
            for number in range(len(layouts)):
                at = 64 + 8 * number
                shared[at : at + 8] = struct.pack("<Q", rows)
    shared[8:16] = struct.pack("<Q", 1)


def read(path, layouts, shared, plain, out):
    """Reads until the writer is done; writes its counts to `out`."""
    while shared[0:8] == bytes(8):
        time.sleep(0.001)
    reads, blank, flushed_blank, short, other = 0, 0, 0, 0, 0
    with h5py.File(path, "r", libver="latest", swmr=not plain, locking=False if plain else None) as f:
        while shared[8:16] == bytes(8):
            for number, layout in enumerate(layouts):
                at = 64 + 8 * number
                (flushed,) = struct.unpack("<Q", shared[at : at + 8])
                dset = f[layout]
                dset.refresh()
                rows = len(dset)
                first = max(0, min(rows, flushed) - 40)
                values = dset[first:rows]
                if layout == "records":
                    values = values.view("i8").reshape(-1, columns(layout))
                expected = np.arange(first + 1, first + 1 + len(values))[:, None]
                reads += 1
                wrong = (values != expected).any(1)
                filled = wrong & (values <= 0).any(1)
                blank += int(filled.any())
                flushed_blank += int(filled[: max(0, flushed - first)].any())
                other += int((wrong & ~filled).any())
                short += int(rows < flushed)
    out.write(json.dumps([reads, blank, flushed_blank, short, other]))
    out.close()


def run(path, layouts, seconds, readers, plain, step, calls):
    """Reads, reads that saw fill, of them in flushed rows, reads that missed flushed rows, reads of other values."""
    shared = mmap.mmap(-1, 4096)
    pipes = [os.pipe() for _ in range(readers)]
    pids = [forked(lambda: write(path, layouts, shared, seconds, plain, step, calls))]
    for _, end in pipes:
        pids.append(forked(lambda end=end: read(path, layouts, shared, plain, os.fdopen(end, "w"))))
        os.close(end)
    failed = False
    for pid in pids:
        _, status = os.waitpid(pid, 0)
        failed = failed or status != 0
        shared[8:16] = struct.pack("<Q", 1) if failed else shared[8:16]
    assert not failed, "a process failed (see above)"
    return [sum(column) for column in zip(*(json.loads(os.fdopen(begin).read()) for begin, _ in pipes), strict=True)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--readers", type=int, default=2)
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--calls", type=int, default=1, help="that write the rows of a step")
    parser.add_argument("--plain", action="store_true", help="without SWMR mode")
    parser.add_argument("--layout", choices=sorted(LAYOUTS), action="append")
    parser.add_argument("--directory", default=".")
    args = parser.parse_args()
    path = pathlib.Path(args.directory) / f"swmr-{os.getpid()}.h5"
    layouts = args.layout or list(LAYOUTS)
    found = run(path, layouts, args.seconds, args.readers, args.plain, args.step, args.calls)
    path.unlink()
    reads, blank, flushed, short, other = found
    print(f"{reads} reads: {blank} saw fill inside the extent ({flushed} in flushed rows),", end=" ")
    print(f"{short} missed flushed rows, {other} saw other values")
    sys.exit(any(found[1:]))


if __name__ == "__main__":
    main()
