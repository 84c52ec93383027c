"""One rank of the simulation: pushes its particles and dumps every step into its columns of the file.

Usage: dump_steps.py RESULT_JSON ACKNOWLEDGED FILE --columns FIRST --rank ROW --particles COUNT --first-id ID
                     --steps N --substeps M --seed S

Plain serial h5py: no MPI, no locks, no communication with other ranks. After each returned write, a line goes to
ACKNOWLEDGED: the dataset, the step, the columns and the CRC-32 of the bytes. Data in those lines must not be lost.
"""

import argparse
import json
import os
import time
import zlib

import h5py
import numpy as np

from campaign import boris
from campaign.programs import say

DT = 0.3


class Acknowledged:
    """The log of acknowledged writes. Each line is written at once, so that it outlives this process."""

    def __init__(self, path: str) -> None:
        self._out = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)

    def add(self, dataset: str, step: int, first: int, values: np.ndarray) -> None:
        """Adds a write that returned."""
        line = [dataset, step, first, len(values), zlib.crc32(values), time.time()]
        os.write(self._out, (json.dumps(line) + "\n").encode())


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("result")
    parser.add_argument("acknowledged")
    parser.add_argument("file")
    for name in ("columns", "rank", "particles", "first-id", "steps", "substeps", "seed"):
        parser.add_argument(f"--{name}", type=int, required=True)
    return parser.parse_args()


def dump(args: argparse.Namespace) -> dict:
    """Runs the simulation; returns its timings."""
    field = boris.Field()
    particles = boris.spawn(args.particles, args.first_id, args.seed, field)
    log = Acknowledged(args.acknowledged)
    writes, compute, size = say.Stopwatch(), say.Stopwatch(), 0
    columns = slice(args.columns, args.columns + args.particles)
    # Ranks that write one file must ask for it.
    with h5py.File(args.file, "r+", locking=False) as file:
        for step in range(args.steps):
            if step > 0:
                with compute():
                    boris.push(particles, field, DT, args.substeps)
            for name, kind in boris.VALUES.items():
                values = np.ascontiguousarray(getattr(particles, name), dtype=kind)
                with writes():
                    file[name][step, columns] = values
                log.add(name, step, args.columns, values)
                size += values.nbytes
            file["rank_energy"][args.rank, step] = particles.energy.sum()
            say.progress(step + 1, args.steps)
        begin = time.perf_counter()
        file.flush()
        flush_s = time.perf_counter() - begin
    return {
        "seconds": writes.seconds,
        "bytes": size,
        "flush_s": flush_s,
        "compute_s": compute.seconds,
        "longest_write_s": writes.longest_s,
    }


def main() -> None:
    args = arguments()
    say.result(args.result, dump(args))


if __name__ == "__main__":
    main()
