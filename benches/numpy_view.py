"""NumPy's time to get an array from the memory tier: `numpy_view.py [MIB]`, 1,024 by default.

By reference (`object.view`, `file.view`: no byte is copied), beside a copy of the same bytes (`object.read`). Prints
milliseconds: the median of some rounds, with minimum and maximum. The first view is reported separately, since it asks
the engine where the bytes are."""

import statistics
import sys
import tempfile
import time
from pathlib import Path

import cenote
import numpy as np

ROUNDS = 21
PIECE = 64 << 20


def took(act: object, rounds: int) -> list[float]:
    """Returns milliseconds of each round."""
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        act()
        times.append((time.perf_counter() - begin) * 1e3)
    return times


def told(what: str, times: list[float]) -> None:
    print(f"{what:34} {statistics.median(times):9.3f} ms  ({min(times):.3f} to {max(times):.3f})")


def main() -> None:
    size = (int(sys.argv[1]) if len(sys.argv) > 1 else 1024) << 20
    with tempfile.TemporaryDirectory(dir="/dev/shm") as where:
        folder = Path(where)
        tiers = [
            cenote.Tier("memory", "memory", size * 5 // 2),
            cenote.Tier("disk", "directory", size * 2, folder / "d"),
        ]
        with cenote.open(folder / "store", tiers=tiers) as store:
            stored = store.container("bench").create_object()
            files = store.files
            files.makedirs("/files")
            with files.open("/files/array", "wb", buffering=0) as file:
                for at in range(0, size, PIECE):
                    piece = np.arange(at // 8, (at + PIECE) // 8, dtype="u8")
                    stored.write(at, piece)
                    file.write(piece)

            def by_reference() -> None:
                array = np.frombuffer(stored.view(copy=False), "u8")
                assert array[0] == 0 and array[-1] == size // 8 - 1

            def of_file() -> None:
                with files.open("/files/array", "rb", buffering=0) as file:
                    array = np.frombuffer(file.view(), "u8")
                assert array[-1] == size // 8 - 1

            told("object by reference, first look", took(by_reference, 1))
            told("object by reference", took(by_reference, ROUNDS))
            told("file by reference, with its open", took(of_file, ROUNDS))
            told("object copied", took(lambda: np.frombuffer(stored.read(), "u8"), 5))
        cenote.destroy(folder / "store", force=True)


if __name__ == "__main__":
    main()
