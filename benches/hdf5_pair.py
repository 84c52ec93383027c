"""Two processes write and then read 1 MiB pieces with h5py: `hdf5_pair.py shared FILE MIB` (one dataset of one file,
each process its half) or `hdf5_pair.py own DIR MIB` (a file for each). Prints MiB/s of writing and of reading.
Plain h5py: what the file is made of is decided by HDF5's own environment variables."""

import multiprocessing
import sys
import time

import h5py
import numpy

PIECE = 1 << 20


def bounds(rank, pieces):
    return rank * pieces // 2, (rank + 1) * pieces // 2


def target(kind, path, rank):
    return path if kind == "shared" else f"{path}/rank{rank}.h5"


def make(kind, path, pieces):
    names = {target(kind, path, rank) for rank in range(2)}
    for name in names:
        size = pieces if kind == "shared" else pieces // 2
        with h5py.File(name, "w") as file:
            file.create_dataset("data", (size * PIECE,), dtype="u1")


def work(kind, path, pieces, rank, gate, times):
    first, last = bounds(rank, pieces)
    base = first if kind == "own" else 0
    data = numpy.full(PIECE, rank + 1, dtype="u1")
    with h5py.File(target(kind, path, rank), "r+") as file:
        dataset = file["data"]
        gate.wait()
        begin = time.perf_counter()
        for piece in range(first, last):
            at = (piece - base) * PIECE
            dataset[at : at + PIECE] = data
        file.flush()
        times.put(("write", time.perf_counter() - begin))
        gate.wait()
        found = numpy.empty(PIECE, dtype="u1")
        begin = time.perf_counter()
        for piece in range(first, last):
            at = (piece - base) * PIECE
            dataset.read_direct(found, numpy.s_[at : at + PIECE])
        times.put(("read", time.perf_counter() - begin))
        if not (found == rank + 1).all():
            raise SystemExit("wrong bytes were read")
        gate.wait()


def main():
    kind, path, pieces = sys.argv[1], sys.argv[2], int(sys.argv[3])
    context = multiprocessing.get_context("spawn")
    maker = context.Process(target=make, args=(kind, path, pieces))
    maker.start()
    maker.join()
    gate, times = context.Barrier(2), context.Queue()
    ranks = [context.Process(target=work, args=(kind, path, pieces, rank, gate, times)) for rank in range(2)]
    for rank in ranks:
        rank.start()
    measured = [times.get(timeout=300) for _ in range(4)]
    for rank in ranks:
        rank.join()
    if any(rank.exitcode for rank in ranks):
        raise SystemExit("a process failed")
    for what in ("write", "read"):
        slowest = max(seconds for name, seconds in measured if name == what)
        print(pieces / slowest)


if __name__ == "__main__":
    main()
