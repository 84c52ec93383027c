"""The program of `test_nodes.py`: a dump, one step after the other. Tells when each is flushed."""

import os
import sys
import time

import h5py
import numpy as np

path, first, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


def content(step):
    """The fields of a step."""
    pick = np.random.default_rng(step)
    return {
        "density": pick.random((64, 96)),
        "cells": pick.integers(0, 1 << 40, (500, 7)),
        "mask": pick.random(9000) > 0.5,
    }


def write(f, step):
    """Writes a step as a group of its own, and a row of the table of all steps."""
    group = f.create_group(f"step{step:04}")
    for name, values in content(step).items():
        how = {"chunks": (16, 32), "compression": "gzip", "shuffle": True} if name == "density" else {}
        group.create_dataset(name, data=values, **how)
    group.attrs["time"] = step / 10
    table = f["table"]
    table.resize(step + 1, axis=0)
    table[step] = np.arange(32) * step


def check(f, steps):
    """Compares everything, bit for bit."""
    assert sorted(f) == [*(f"step{step:04}" for step in range(steps)), "table"], "groups"
    for step in range(steps):
        group = f[f"step{step:04}"]
        for name, values in content(step).items():
            assert group[name][...].tobytes() == values.tobytes(), f"{name} of step {step}"
        assert group.attrs["time"] == step / 10, f"time of step {step}"
        assert (f["table"][step] == np.arange(32) * step).all(), f"row {step}"


if first < 0:
    with h5py.File(path) as f:
        check(f, last)
elif first == last:
    with h5py.File(path, "w") as f:
        f.create_dataset("table", (0, 32), "i8", maxshape=(None, 32), chunks=(4, 32))
else:
    with h5py.File(path, "r+") as f:
        for step in range(first, last):
            begin = time.monotonic()
            write(f, step)
            f.flush()
            os.write(1, f"{step} {time.monotonic() - begin:.3f}\n".encode())
