"""What a directory costs: creations, stats, removals, and bytes in pieces of 1 MiB and 4 KiB.

    python3 benches/mount.py /mnt/runs /dev/shm /other/fuse/mount

Directories take turns, three times (`--repeats`); the median of each is printed as a row of a table. One thread: what
counts is what one call takes.
"""

import argparse
import os
import random
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

FILES = 2000
BYTES = 128 << 20
SMALL = 8000
MIB = 1 << 20
PAGE = 4096


def timed(count: float, work: Callable[[], None]) -> float:
    """How many of `count` were done in a second."""
    begin = time.perf_counter()
    work()
    return count / (time.perf_counter() - begin)


def names(at: Path) -> Iterator[tuple[str, float]]:
    """Thousand files a second."""
    files = [os.fspath(at / f"file-{number:06}") for number in range(FILES)]

    def create() -> None:
        for file in files:
            os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY))

    yield "create k/s", timed(FILES / 1000, create)
    yield "stat k/s", timed(FILES / 1000, lambda: [os.lstat(file) for file in files] and None)
    yield "list k/s", timed(FILES / 1000, lambda: [entry.stat() for entry in os.scandir(at)] and None)
    # Path.unlink would cost a good part of the call.
    yield "remove k/s", timed(FILES / 1000, lambda: [os.remove(file) for file in files] and None)  # noqa: PTH107


def transfers(at: Path, seed: int) -> Iterator[tuple[str, float]]:
    """MiB a second."""
    fd = os.open(at / "big", os.O_CREAT | os.O_RDWR)
    block = os.urandom(MIB)
    places = list(range(0, BYTES, PAGE))
    random.Random(seed).shuffle(places)
    places = places[:SMALL]

    def sweep(call: Callable[[int], None], step: int) -> Callable[[], None]:
        return lambda: [call(offset) for offset in range(0, BYTES, step)] and None

    yield "write 1 MiB, new", timed(BYTES / MIB, sweep(lambda offset: os.pwrite(fd, block, offset), MIB))
    yield "write 1 MiB, over", timed(BYTES / MIB, sweep(lambda offset: os.pwrite(fd, block, offset), MIB))
    yield "read 1 MiB", timed(BYTES / MIB, sweep(lambda offset: os.pread(fd, MIB, offset), MIB))
    part = block[:PAGE]
    yield "write 4 KiB", timed(SMALL / 256, lambda: [os.pwrite(fd, part, at) for at in places] and None)
    yield "read 4 KiB", timed(SMALL / 256, lambda: [os.pread(fd, PAGE, at) for at in places] and None)
    os.close(fd)


def measured(base: Path, seed: int) -> dict[str, float]:
    at = base / f"mount-bench-{os.getpid()}"
    at.mkdir()
    try:
        return dict([*names(at), *transfers(at, seed)])
    finally:
        shutil.rmtree(at)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dirs", nargs="+", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    runs: dict[Path, list[dict[str, float]]] = {at: [] for at in args.dirs}
    for repeat in range(args.repeats):
        for at, results in runs.items():
            results.append(measured(at, args.seed + repeat))
    columns = list(runs[args.dirs[0]][0])
    print("| directory | " + " | ".join(columns) + " |")
    print("|" + "---|" * (len(columns) + 1))
    for at, results in runs.items():
        medians = [statistics.median(result[column] for result in results) for column in columns]
        print(
            f"| `{at}` | " + " | ".join(f"{value:,.1f}" if value < 100 else f"{value:,.0f}" for value in medians) + " |"
        )


if __name__ == "__main__":
    main()
