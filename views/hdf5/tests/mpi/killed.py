"""Ranks write and flush until one of them is killed, and the job with it: what was flushed is there, whole.

mpirun -n N python3 killed.py write FILE SEED >log; python3 killed.py check FILE SEED <log
"""

import os
import random
import signal
import sys

import h5py
import numpy as np

what, path, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])
rows, columns = 120, 64
pick = random.Random(seed)
names = ("plain", "chunked", "packed")
last_step = pick.randrange(3, 20)


def part(step, rank, ranks):
    """Rows of a rank in a step: a stripe, every n-th row, or overlapping rows."""
    if step % 3 == 0:
        return slice(rank * rows // ranks, (rank + 1) * rows // ranks)
    if step % 3 == 1:
        return slice(rank, rows, ranks)
    start = random.Random(f"{seed}/{step}/{rank}").randrange(rows - 10)
    return slice(start, start + 10)


if what == "write":
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    with h5py.File(path, "w", driver="mpio", comm=comm) as f:
        f.create_dataset("plain", (rows, columns), "i8")
        f.create_dataset("chunked", (rows, columns), "i8", chunks=(7, 10))
        f.create_dataset("packed", (rows, columns), "i8", chunks=(16, 64), compression="gzip")
        for step in range(1, last_step + 2):
            for name in names:
                dset = f[name]
                mine = part(step, comm.rank, comm.size)
                if step == last_step + 1 and name == "chunked" and comm.rank == comm.size - 1:
                    os.kill(os.getpid(), signal.SIGKILL)
                values = np.full((len(range(rows)[mine]), columns), step * 100 + comm.rank, "i8")
                dset[mine] = values
            f.flush()
            if comm.rank == 0:
                print(f"flushed {step} with {comm.size} ranks", flush=True)
            # Steps overwrite each other: only what all have flushed may be overwritten.
            comm.barrier()

lines = [line.split() for line in sys.stdin if line.startswith("flushed ")]
flushed, ranks = int(lines[-1][1]), int(lines[-1][3])
assert flushed == last_step, (flushed, last_step)
with h5py.File(path, "r") as f:
    for name in names:
        values = f[name][:]
        allowed = [{0} for _ in range(rows)]
        for step in range(1, flushed + 2):
            written = {}
            for rank in range(ranks):
                for row in range(rows)[part(step, rank, ranks)]:
                    written.setdefault(row, set()).add(step * 100 + rank)
            for row, by in written.items():
                # What was not flushed may be there or not.
                allowed[row] = by if step <= flushed else allowed[row] | by
        for row in range(rows):
            assert set(values[row]) <= allowed[row], (name, row, set(values[row]), allowed[row])
print(f"killed in step {last_step + 1}: right with {ranks} ranks")
