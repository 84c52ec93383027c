"""Costs in a directory: creations, stats, removals, and bytes in pieces of 1 MiB and 4 KiB.

    python3 benches/mount.py /mnt/runs /dev/shm /other/fuse/mount

Directories take turns, three times (`--repeats`). The median of each is a row of a table; below it each row is printed
as a part of the first (`--over`: of another). `--processes` work at the same time, each in its own directory and file;
the figures are the sums of all processes per second.
"""

import argparse
import multiprocessing
import os
import random
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from multiprocessing.synchronize import Barrier
from pathlib import Path

FILES = 2000
BYTES = 128 << 20
SMALL = 8000
MIB = 1 << 20
PAGE = 4096

Step = tuple[str, float, Callable[[], object]]


def names(at: Path) -> Iterator[Step]:
    """Thousand files per second."""
    files = [os.fspath(at / f"file-{number:06}") for number in range(FILES)]

    def create() -> None:
        for file in files:
            os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY))

    yield "create k/s", FILES / 1000, create
    yield "stat k/s", FILES / 1000, lambda: [os.lstat(file) for file in files]
    yield "list k/s", FILES / 1000, lambda: [entry.stat() for entry in os.scandir(at)]
    # Path.unlink would add much to the call's cost.
    yield "remove k/s", FILES / 1000, lambda: [os.remove(file) for file in files]  # noqa: PTH107


def transfers(at: Path, seed: int) -> Iterator[Step]:
    """MiB per second."""
    fd = os.open(at / "big", os.O_CREAT | os.O_RDWR)
    block = os.urandom(MIB)
    places = list(range(0, BYTES, PAGE))
    random.Random(seed).shuffle(places)
    places = places[:SMALL]
    part = block[:PAGE]
    whole = range(0, BYTES, MIB)
    yield "write 1 MiB, new", BYTES / MIB, lambda: [os.pwrite(fd, block, offset) for offset in whole]
    yield "write 1 MiB, over", BYTES / MIB, lambda: [os.pwrite(fd, block, offset) for offset in whole]
    yield "read 1 MiB", BYTES / MIB, lambda: [os.pread(fd, MIB, offset) for offset in whole]
    yield "write 4 KiB", SMALL / 256, lambda: [os.pwrite(fd, part, at) for at in places]
    yield "read 4 KiB", SMALL / 256, lambda: [os.pread(fd, PAGE, at) for at in places]
    os.close(fd)


def work(
    base: Path, seed: int, number: int, barrier: Barrier, times: "multiprocessing.Queue[dict[str, float]]"
) -> None:
    """Runs one process: all begin each step at once, and it lasts until the last has done it."""
    at = base / f"process-{number}"
    at.mkdir()
    took = {}
    for steps in (names(at), transfers(at, seed + number)):
        for name, count, step in steps:
            barrier.wait()
            begin = time.perf_counter()
            step()
            barrier.wait()
            took[name] = count / (time.perf_counter() - begin)
    times.put(took)


def measured(base: Path, seed: int, processes: int) -> dict[str, float]:
    at = base / f"mount-bench-{os.getpid()}"
    at.mkdir()
    try:
        context = multiprocessing.get_context("fork")
        barrier, times = context.Barrier(processes), context.Queue()
        workers = [context.Process(target=work, args=(at, seed, n, barrier, times)) for n in range(processes)]
        for worker in workers:
            worker.start()
        rates = [times.get() for _ in workers]
        for worker in workers:
            worker.join()
        return {name: sum(rate[name] for rate in rates) for name in rates[0]}
    finally:
        shutil.rmtree(at)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dirs", nargs="+", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--over", type=int, default=1, help="row that the others are compared with, from 1")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    runs: dict[Path, list[dict[str, float]]] = {at: [] for at in args.dirs}
    for repeat in range(args.repeats):
        for at, results in runs.items():
            results.append(measured(at, args.seed + repeat, args.processes))
    columns = list(runs[args.dirs[0]][0])
    medians = {
        at: [statistics.median(result[name] for result in results) for name in columns] for at, results in runs.items()
    }
    print("| directory | " + " | ".join(columns) + " |")
    print("|" + "---|" * (len(columns) + 1))
    for at, row in medians.items():
        print(f"| `{at}` | " + " | ".join(f"{value:,.1f}" if value < 100 else f"{value:,.0f}" for value in row) + " |")
    over = medians[args.dirs[args.over - 1]]
    for at, row in medians.items():
        print(f"| `{at}` | " + " | ".join(f"{value / of:.2f}x" for value, of in zip(row, over, strict=True)) + " |")


if __name__ == "__main__":
    main()
