"""Compares the two processes, episode by episode; see `--help`."""

import argparse
import collections
import os
import pathlib
import random
import sys
import tempfile
import time

from .library import Library
from .pair import Pair
from .shrink import shrink


def options():
    """The command line."""
    parser = argparse.ArgumentParser(prog="differential", description=__doc__)
    parser.add_argument("--operations", type=int, default=20_000, help="how many to compare in all (%(default)s)")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--seed", type=int, help="of the first episode; the next have the next numbers")
    parser.add_argument("--episode", type=int, default=300, help="operations per episode, on new files (%(default)s)")
    parser.add_argument("--differences", type=int, default=1, help="stop after so many (%(default)s)")
    parser.add_argument("--without", default="", help="operations to leave out, with commas")
    parser.add_argument("--library", default="", help="the libhdf5 to use (that of h5py)")
    parser.add_argument("--shrink", action="store_true", help="leave out of each difference what it does not need")
    parser.add_argument("--store", help="the store to use (a new one)")
    parser.add_argument("--only", help="the steps to carry out, with commas, of one episode")
    parser.add_argument("--aloud", action="store_true", help="print one episode's steps and HDF5's errors")
    parser.add_argument("--last", type=int, default=25, help="how many operations to show before a difference")
    return parser.parse_args()


def main():
    """Runs, and prints the differences; returns 1 if there are any."""
    args = options()
    seed = args.seed if args.seed is not None else random.SystemRandom().randrange(10**9)
    with (
        tempfile.TemporaryDirectory(prefix="differential-", dir=shared()) as where,
        Pair(pathlib.Path(where), args.store, args.library, args.without) as pair,
    ):
        version = ".".join(map(str, Library(args.library or None).version()))
        print(f"seed {seed}, HDF5 {version} {args.library or 'of h5py'}", flush=True)
        return compare(args, pair, seed)


def shared():
    """A directory in memory."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def compare(args, pair, first):
    """Runs episodes until enough operations were done or enough differences were found."""
    done, different, kinds, known_deaths = 0, 0, collections.Counter(), 0
    began = told = time.monotonic()
    if args.aloud:
        return pair.aloud(first, args.episode, args.only or "-")
    for seed in range(first, 2**62):
        if done >= args.operations or time.monotonic() - began > args.seconds or different >= args.differences:
            break
        found, deaths = pair.run(seed, args.episode, args.only or "-"), len(pair.native_deaths)
        if deaths == known_deaths:
            done += args.episode
        known_deaths = deaths
        if found:
            different += 1
            kinds[found.kind()] += 1
            steps = None
            if args.shrink:
                steps, found = shrink(pair, seed, args.episode, found)
                del pair.native_deaths[deaths:]
            report(args, seed, found, steps)
        if args.only:
            break
        if time.monotonic() - told > 30:
            told = time.monotonic()
            print(f"{done} operations, {different} differences, {done / (told - began):.0f}/s", flush=True)
    print(f"{done} operations, {different} differences, {done / (time.monotonic() - began):.0f} operations/s")
    for kind, count in kinds.most_common():
        print(f"  {count:4} times: {' | '.join(kind)}")
    for death in pair.native_deaths:
        print(f"  native HDF5 died (not counted above): {death}")
    return 1 if different else 0


def report(args, seed, found, steps):
    """Prints a difference, the steps before it, and how to reproduce it."""
    print(f"\nDIFFERENCE in episode {seed}")
    for line in found.before[-args.last :]:
        print(f"    {line}")
    print(f"  native: {found.native}\n  Cenote: {found.cenote}")
    only = f" --only {','.join(map(str, steps))}" if steps else ""
    leave = f" --without {args.without}" if args.without else ""
    print(f"  again: --seed {seed} --operations 1 --episode {args.episode}{leave}{only}", flush=True)


sys.exit(main())
