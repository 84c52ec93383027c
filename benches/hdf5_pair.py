"""Two processes write and then read 1 MiB pieces with h5py: `hdf5_pair.py shared FILE MIB` (one dataset of one file,
each process its half) or `hdf5_pair.py own DIR MIB` (a file for each). Prints MiB/s of writing and of reading.

Plain h5py: HDF5's own environment variables select what the file is made of. Measured from the first process's start to
the last one's end. Nobody flushes: when a write has returned, other processes see it and it survives this process, in
both cases. All waiting is bounded: a process that fails or hangs is an error within PATIENCE_S."""

import multiprocessing
import queue
import sys
import time
import traceback

import h5py
import numpy

PIECE = 1 << 20
PATIENCE_S = 60


def bounds(rank, pieces):
    return rank * pieces // 2, (rank + 1) * pieces // 2


def target(kind, path, rank):
    return path if kind == "shared" else f"{path}/rank{rank}.h5"


def make(kind, path, pieces, _rank, _gate):
    names = {target(kind, path, rank) for rank in range(2)}
    for name in names:
        size = pieces if kind == "shared" else pieces // 2
        with h5py.File(name, "w") as file:
            file.create_dataset("data", (size * PIECE,), dtype="u1")
    return {}


def work(kind, path, pieces, rank, gate):
    first, last = bounds(rank, pieces)
    base = first if kind == "own" else 0
    data = numpy.full(PIECE, rank + 1, dtype="u1")
    found = numpy.zeros(PIECE, dtype="u1")
    times = {}
    # Processes that write one file together must disable
    # locking.
    with h5py.File(target(kind, path, rank), "r+", locking=False) as file:
        dataset = file["data"]
        gate.wait(PATIENCE_S)
        begin = time.monotonic()
        for piece in range(first, last):
            at = (piece - base) * PIECE
            dataset[at : at + PIECE] = data
        times["write"] = begin, time.monotonic()
        gate.wait(PATIENCE_S)
        begin = time.monotonic()
        for piece in range(first, last):
            at = (piece - base) * PIECE
            dataset.read_direct(found, numpy.s_[at : at + PIECE])
        times["read"] = begin, time.monotonic()
        if not (found == rank + 1).all():
            raise ValueError("wrong bytes were read")
        gate.wait(PATIENCE_S)
    return times


def tell(answers, body, *arguments):
    """Runs `body` in a process of its own; puts its result into `answers`."""
    try:
        answers.put(body(*arguments))
    except BaseException:
        answers.put(traceback.format_exc())


def run(context, body, count, *arguments):
    """Returns the results of `count` processes."""
    gate, answers = context.Barrier(count), context.Queue()
    ranks = [
        context.Process(target=tell, args=(answers, body, *arguments, rank, gate), daemon=True) for rank in range(count)
    ]
    for rank in ranks:
        rank.start()
    outcomes = []
    for _ in ranks:
        try:
            outcome = answers.get(timeout=PATIENCE_S)
        except queue.Empty:
            raise SystemExit(f"{body.__name__}: no answer from a process within {PATIENCE_S} s") from None
        if isinstance(outcome, str):
            raise SystemExit(f"{body.__name__}: a process failed: {outcome}")
        outcomes.append(outcome)
    for rank in ranks:
        rank.join(PATIENCE_S)
    return outcomes


def main():
    kind, path, pieces = sys.argv[1], sys.argv[2], int(sys.argv[3])
    context = multiprocessing.get_context("spawn")
    run(context, make, 1, kind, path, pieces)
    outcomes = run(context, work, 2, kind, path, pieces)
    for what in ("write", "read"):
        begin = min(times[what][0] for times in outcomes)
        end = max(times[what][1] for times in outcomes)
        print(pieces / (end - begin))


if __name__ == "__main__":
    main()
