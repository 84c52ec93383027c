"""`python -m campaign.files`: only the many small files, native and on a store in turns, several times; medians.

The campaign's own table shows a single run of this; use this to measure a change.
"""

import argparse
import os
import shutil
import statistics
import sys
from pathlib import Path

from campaign import phase_files, places
from campaign.__main__ import BINARY, PLUGINS
from campaign.console import Console
from campaign.result import Result
from campaign.settings import MIB, Settings
from campaign.store import Store


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m campaign.files", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="native and Cenote so many times each [default: 3]")
    parser.add_argument("--no-native", action="store_true", help="only Cenote")
    parser.add_argument("--out", type=Path, default=Path("/dev/shm") / f"cenote-files-{os.getpid()}")
    args = parser.parse_args()
    out = args.out.resolve()
    chosen = Settings(out=out, store=out / "store", dump_bytes=2048 * MIB)
    console, sources = Console(), phase_files.find_sources()
    fast = places.native("fast", "native, in memory (tmpfs)", out / "fast")
    cenote = places.cenote(chosen.store, out / "cenote", PLUGINS)
    store = Store(BINARY, chosen.store)
    seconds: dict[tuple[str, str], list[float]] = {}
    differences: list[str] = []
    try:
        phase_files.read_sources(sources, fast, out / "logs", console)
        for _ in range(args.rounds):
            result = Result(settings={}, machine={})
            seen = {}
            if not args.no_native:
                phase_files.write(sources, fast, out / "logs", console, result)
                seen["fast"] = phase_files.read(sources, fast, out / "logs", console, result)
            store.create(chosen.tiers)
            phase_files.write(sources, cenote, out / "logs", console, result)
            seen["cenote"] = phase_files.read(sources, cenote, out / "logs", console, result)
            store.destroy(chosen.tiers)
            if "fast" in seen:
                differences += phase_files.check_places(seen["fast"], seen["cenote"], result)
            for timing in result.timings:
                seconds.setdefault((timing.task, timing.place), []).append(timing.seconds)
    finally:
        store.destroy(chosen.tiers)
        shutil.rmtree(out, ignore_errors=True)
    for task in dict.fromkeys(task for task, _ in seconds):
        native, ours = (statistics.median(seconds.get((task, place), [0.0])) for place in ("fast", "cenote"))
        print(f"{task:24} native {native:6.2f} s   cenote {ours:6.2f} s   {native / ours:5.2f}x")
    print(f"{len(differences)} differences")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
