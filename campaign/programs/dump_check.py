"""Reads back, in another process, everything acknowledged to a rank, and checks every byte of it.

Usage: dump_check.py RESULT_JSON ACKNOWLEDGED FILE
"""

import json
import sys
import zlib
from pathlib import Path

import h5py

from campaign.programs import say

LISTED_MAX = 20


def main() -> None:
    result, acknowledged, path = sys.argv[1:]
    lines = [json.loads(line) for line in Path(acknowledged).read_text().splitlines()]
    watch, size, lost = say.Stopwatch(), 0, []
    with h5py.File(path, "r") as file:
        for number, (name, step, first, count, crc, _when) in enumerate(lines):
            with watch():
                values = file[name][step, first : first + count]
            size += values.nbytes
            if zlib.crc32(values) != crc:
                lost.append(f"{name}[{step}, {first}:{first + count}]")
            if number % 8 == 7:
                say.progress(number + 1, len(lines))
    say.result(
        result,
        {
            "seconds": watch.seconds,
            "bytes": size,
            "checked": len(lines),
            "lost": len(lost),
            "listed": lost[:LISTED_MAX],
        },
    )


if __name__ == "__main__":
    main()
