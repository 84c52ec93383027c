"""One writer of `test_kills.py`: writes hyperslabs, and reports what it begins and what it has
flushed."""

import os
import random
import sys

import h5py
import numpy as np

path, number, workers, seed, rounds = sys.argv[1], *map(int, sys.argv[2:6])
pick = random.Random(f"{seed}/{number}")


def tell(text):
    """Sends one whole line to the test at once."""
    os.write(1, f"{text}\n".encode())


with h5py.File(path, "r+") as f:
    names = sorted(f)
    tell("ready")
    sys.stdin.readline()
    for write in range(1, rounds + 1):
        name = pick.choice(names)
        dset = f[name]
        rows, columns = dset.shape
        kind = name.split()[0]
        if kind == "disjoint":
            # The writer's own range of rows.
            first, last = number * rows // workers, (number + 1) * rows // workers
            start = pick.randrange(first, last)
            where = (start, pick.randint(start + 1, last), 1)
        elif kind == "adjacent":
            # Every n-th row, between those of other writers.
            where = (number, rows, workers)
        else:
            start = pick.randrange(rows)
            where = (start, pick.randint(start + 1, rows), 1)
        left = pick.randrange(columns)
        right = pick.randint(left + 1, columns)
        value = number << 32 | write
        tell(f"write {write} {name!r} {where[0]} {where[1]} {where[2]} {left} {right}")
        count = len(range(*where))
        dset[where[0] : where[1] : where[2], left:right] = np.full((count, right - left), value, "i8")
        if pick.random() < 0.3:
            f.flush()
            tell(f"flushed {write}")
tell("closed")
