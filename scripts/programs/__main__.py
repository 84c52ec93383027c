"""Runs real programs on a mounted store and elsewhere, and compares the resulting files; see `--help`."""

import argparse
import contextlib
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from . import inputs
from .places import Place, Store, plain
from .scripts import PROGRAMS, Program
from .tree import differences


def options() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(prog="programs", description=__doc__)
    parser.add_argument("--only", help="these programs, with commas: " + ",".join(one.name for one in PROGRAMS))
    parser.add_argument("--views", default="mount,preload", help="how they see a store, with commas (%(default)s)")
    parser.add_argument("--memory", default="2GiB", help="of the store (%(default)s)")
    parser.add_argument("--disk", default="8GiB", help="of the store (%(default)s)")
    parser.add_argument("--mount-options", default="", help="for `cenote mount`, with blanks")
    parser.add_argument("--need", default="", help="programs that must be run, with commas (default: none)")
    parser.add_argument("--show", type=int, default=10, help="how many differences to show of each (%(default)s)")
    return parser.parse_args()


def main() -> int:
    """Runs the programs, and prints a table; returns 1 if anything differs."""
    args = options()
    # A termination must clean everything up.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with contextlib.ExitStack() as stack:
        input_dir = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="programs-input-")))
        reference = stack.enter_context(plain(None))
        places = [reference]
        if os.access("/dev/shm", os.W_OK):
            places.append(stack.enter_context(plain("/dev/shm")))
        for view in args.views.split(","):
            store = Store(args.memory, args.disk)
            stack.callback(store.end)
            try:
                seen = store.mounted(*args.mount_options.split()) if view == "mount" else store.preloaded()
                places.append(stack.enter_context(seen))
            except RuntimeError as error:
                print(f"without {view}: {error}", flush=True)
        wanted = args.only.split(",") if args.only else [one.name for one in PROGRAMS]
        rows, failed = [], False
        for program in PROGRAMS:
            if program.name in wanted:
                row, is_bad = compared(program, places, input_dir, args.show)
                rows.append(row)
                failed |= is_bad or (row[1].startswith("skipped") and program.name in args.need.split(","))
        table(places, rows)
        return 1 if failed else 0


def ready(program: Program, at: Path) -> str | None:
    """Makes a program's input; returns why the program cannot run, if it cannot."""
    lacking = [name for name in program.needs if shutil.which(name) is None]
    if lacking:
        return f"there is no {lacking[0]}"
    match program.input:
        case "linux":
            return inputs.linux(at / "linux.tar")
        case "openfoam":
            return inputs.openfoam()
        case "":
            return None
        case name:
            getattr(inputs, name)(at / name)
            return None


def compared(program: Program, places: list[Place], input_dir: Path, show: int) -> tuple[list[str], bool]:
    """Returns a row of the table, and whether anything is wrong. The first place is the reference."""
    why = ready(program, input_dir)
    if why is not None:
        print(f"{program.name}: skipped: {why}", flush=True)
        return [program.name, f"skipped: {why}"], False
    environment = {
        "INPUT": str(input_dir),
        "PROGRAMS": str(Path(__file__).parent),
        "OPENFOAM": str(inputs.OPENFOAM),
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
    }
    times, found, first, began = [], [], {}, int(time.time())
    for place in places:
        seconds, code, said = place.run(program.script, program.name, environment)
        times.append(f"{seconds:.1f}")
        print(f"{program.name} on {place.name}: {seconds:.1f} s", flush=True)
        if code != 0:
            found.append(f"on {place.name} it ended with {code}: {said[-2000:]}")
        there = place.snapshot(program.name, program.without)
        if place is places[0]:
            first = there
        else:
            lines = differences(first, there, program.timed, began)
            found += [f"{place.name}: {line}" for line in lines]
        place.clear(program.name)
    for line in found[:show]:
        print(f"  DIFFERENCE {line}", flush=True)
    verdict = f"{len(first)} files the same" if not found else f"{len(found)} differences"
    if program.input == "linux":
        (input_dir / "linux.tar").unlink()
    return [program.name, verdict, *times], bool(found)


def table(places: list[Place], rows: list[list[str]]) -> None:
    """Prints the results and the times, in seconds."""
    print("\n| program | result | " + " | ".join(f"{place.name} s" for place in places) + " |")
    print("|---" * (2 + len(places)) + "|")
    for row in rows:
        print("| " + " | ".join(row + [""] * (2 + len(places) - len(row))) + " |")


if __name__ == "__main__":
    sys.exit(main())
