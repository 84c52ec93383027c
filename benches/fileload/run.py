"""Measures files as IOR and mdtest do, in turns on tmpfs, the machine's disk, a mounted store, and by preload.

    make bench-files ARGS="--repeats 5 --only own_1m,shared_47008"

Two processes (`--processes`), each with its own file or all with one; each reads what its neighbour wrote. Prints
medians, and each as a part of tmpfs. The measured program is `load.c`, which also runs by itself on any directory.
"""

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
from pathlib import Path

from scripts.programs.places import ROOT, Place, Store, command, plain

LOAD = ROOT / "target/fileload"
SOURCE = Path(__file__).with_name("load.c")
PATIENCE_S = 600


def options() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--mib", type=int, default=128, help="of each process (%(default)s)")
    parser.add_argument("--files", type=int, default=5000, help="of each process (%(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="times that places take turns (%(default)s)")
    parser.add_argument(
        "--only",
        default="",
        help="with commas: own_1m, shared_1m, own_47008, shared_47008, random_4k, "
        "mapped_8b, empty_own, empty_shared, exclusive_own, small_own",
    )
    parser.add_argument("--consistency", default="strict", help="of the store's directory (%(default)s)")
    parser.add_argument("--memory", default="2GiB", help="of the store (%(default)s)")
    parser.add_argument("--mount-options", default="", help="for `cenote mount`, with blanks")
    parser.add_argument("--dir", action="append", default=[], help="another directory to measure, as NAME=PATH")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    return parser.parse_args()


def build() -> None:
    """Compiles the measured program."""
    LOAD.parent.mkdir(exist_ok=True)
    if not LOAD.exists() or LOAD.stat().st_mtime < SOURCE.stat().st_mtime:
        subprocess.run(["cc", "-O2", "-pthread", "-o", LOAD, SOURCE], check=True)


def measured(place: Place, args: argparse.Namespace) -> dict[str, tuple[float, str]]:
    """Runs one round in one place."""
    at = f"{place.dir}/load"
    words = [str(LOAD), at, str(args.processes), str(args.mib), str(args.files), *filter(None, args.only.split(","))]
    begin = [*place.prefix, "sh", "-c", 'mkdir -p "$1" && shift && exec "$@"', "sh", at, *words]
    done = subprocess.run(begin, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    subprocess.run([*place.prefix, "rm", "-rf", at], timeout=PATIENCE_S, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"on {place.name}: {done.stdout[-500:]}{done.stderr[-500:]}")
    lines = [line.split() for line in done.stdout.splitlines()]
    return {name: (float(figure), unit) for name, figure, unit in lines}


def by_preload(store: Store) -> Place | None:
    """Returns the same store through `cenote run`, if that command exists."""
    said = subprocess.run([command(), "run", "--help"], capture_output=True, text=True, check=False)
    if said.returncode != 0:
        return None
    at = os.environ.get("CENOTE_RUN_AT", "/cenote")
    return Place("preload", f"{at}/work", [str(command()), "run", "--store", str(store.store), "--"])


def main() -> int:
    """Measures, and prints a table."""
    args = options()
    # A termination must clean everything up.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    build()
    if args.consistency == "commit":
        os.environ["LOAD_FSYNC_NAMES"] = "1"
    with contextlib.ExitStack() as stack:
        store = Store(args.memory, "4GiB")
        stack.callback(store.end)
        places = [stack.enter_context(plain("/dev/shm")), stack.enter_context(plain(None))]
        try:
            places.append(
                stack.enter_context(store.mounted("--consistency", args.consistency, *args.mount_options.split()))
            )
        except RuntimeError as error:
            print(f"without a mount: {error}", file=sys.stderr)
        preload = by_preload(store)
        places += [preload] if preload else []
        places += [Place(*one.split("=", 1)) for one in args.dir]
        rounds: dict[str, list[dict[str, tuple[float, str]]]] = {place.name: [] for place in places}
        for _ in range(args.repeats):
            for place in places:
                rounds[place.name].append(measured(place, args))
        show(rounds)
        if args.json:
            args.json.write_text(json.dumps(rounds, indent=1))
        print(
            f"\n{args.processes} processes, {args.mib} MiB and {args.files} files each, medians of {args.repeats}; "
            f"consistency {args.consistency}; {os.cpu_count()} cores"
        )
    return 0


def show(rounds: dict[str, list[dict[str, tuple[float, str]]]]) -> None:
    """Prints the table: figures, and, except for tmpfs, each as a part of tmpfs."""
    first = next(iter(rounds))
    print("| what | unit | " + " | ".join(rounds) + " |")
    print("|---" * (2 + len(rounds)) + "|")
    for name, (_, unit) in rounds[first][0].items():
        medians = {place: statistics.median(one[name][0] for one in found) for place, found in rounds.items()}
        cells = [f"{medians[first]:,.4g}"]
        cells += [f"{medians[place]:,.4g} ({medians[place] / medians[first]:.2f}x)" for place in list(rounds)[1:]]
        print(f"| {name} | {unit} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    sys.exit(main())
