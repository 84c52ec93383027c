"""Random operations by all views on one store; see `--help`."""

import argparse
import collections
import random
import signal
import subprocess
import sys
import threading
import time

from .arrays import ArraysEpisode
from .episode import Differs, Episode
from .fixture import Fixture
from .worker import Hangs


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="crossview", description=__doc__)
    parser.add_argument("--operations", type=int, default=20_000, help="how many in all (%(default)s)")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--seed", type=int, help="of the first episode; the next have the next numbers")
    parser.add_argument(
        "--stores",
        "--stages",
        type=int,
        default=1,
        help="stores with all views at the same time, each for its part of the seeds",
    )
    parser.add_argument(
        "--nodes", type=int, default=0, help="each store over so many nodes, and the views on all of them"
    )
    parser.add_argument("--episode", type=int, default=250, help="operations per episode (%(default)s)")
    parser.add_argument("--differences", type=int, default=1, help="stop after so many (%(default)s)")
    parser.add_argument("--views", help="only these, with commas: files,mount,fsspec,s3,hdf5 (all that can be had)")
    parser.add_argument("--kind", choices=("files", "arrays"), help="only episodes of this kind")
    parser.add_argument("--need", default="", help="views that must be there, with commas")
    parser.add_argument(
        "--harm", type=int, default=-1, help="before this operation, a view does what it was not told to"
    )
    parser.add_argument("--last", type=int, default=30, help="how many operations to show before a difference")
    return parser.parse_args()


def main() -> int:
    """Runs, and says what differed; 1 if anything did."""
    args = options()
    # Whoever stops it has everything taken down.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    seed = args.seed if args.seed is not None else random.SystemRandom().randrange(10**9)
    if args.stores > 1:
        return side_by_side(args, seed)
    fixture = Fixture(args.views.split(",") if args.views else None, args.nodes)
    try:
        print(f"seed {seed}; views: {', '.join(fixture.workers)}", flush=True)
        for view, why in fixture.missing.items():
            print(f"without {view}: {why}", flush=True)
        lacking = [view for view in args.need.split(",") if view and view not in fixture.workers]
        if lacking:
            print(f"needed, but not there: {', '.join(lacking)}")
            return 1
        return run(args, fixture, seed)
    finally:
        fixture.end()


def run(args: argparse.Namespace, fixture: Fixture, first: int) -> int:
    """Episodes until enough was done, or differed."""
    done = different = 0
    behind: dict[tuple[str, str], float] = collections.defaultdict(float)
    began = told = time.monotonic()
    for seed in range(first, 2**62):
        if done >= args.operations or time.monotonic() - began > args.seconds or different >= args.differences:
            break
        episode = made(args, fixture, seed)
        episode.harm = args.harm
        try:
            episode.run()
        except (Differs, Hangs) as found:
            different += 1
            report(args, episode, found)
            if isinstance(found, Hangs):
                break
        done += args.episode
        for pair, late in episode.behind.items():
            behind[pair] = max(behind[pair], late)
        if time.monotonic() - told > 30:
            told = time.monotonic()
            print(f"{done} operations, {different} differences, {done / (told - began):.0f}/s", flush=True)
    print(f"{done} operations, {different} differences, {done / (time.monotonic() - began):.0f} operations/s")
    for (writer, reader), late in sorted(behind.items()):
        print(f"  in commit directories, after publishing: {reader} was {late * 1000:.0f} ms behind {writer}")
    return 1 if different else 0


def side_by_side(args: argparse.Namespace, first: int) -> int:
    """A process for each store. The first difference ends all; a process that ends otherwise than it should is one."""
    episodes = -(-args.operations // (args.stores * args.episode))
    each = episodes * args.episode
    shared = {**vars(args), "stores": 1, "operations": each}
    words = [f"--{name}={value}" for name, value in shared.items() if value not in (None, "") and name != "seed"]
    command = [sys.executable, "-m", __package__, *words]
    began = time.monotonic()
    parts = [
        subprocess.Popen([*command, f"--seed={first + number * episodes}"], stdout=subprocess.PIPE, text=True)
        for number in range(args.stores)
    ]
    tellers = [threading.Thread(target=tell, args=(number, part)) for number, part in enumerate(parts)]
    for teller in tellers:
        teller.start()
    try:
        while any(part.poll() is None for part in parts) and not any(part.returncode for part in parts):
            time.sleep(0.1)
        failed = [number for number, part in enumerate(parts) if part.returncode]
    finally:
        for part in parts:
            part.terminate()
        for teller in tellers:
            teller.join()
    if failed:
        print(f"store {failed[0]} of {args.stores} failed; the others were stopped")
        return 1
    rate = each * args.stores / (time.monotonic() - began)
    print(f"{each * args.stores} operations on {args.stores} stores, 0 differences, {rate:.0f} operations/s")
    return 0


def tell(number: int, part: subprocess.Popen[str]) -> None:
    """Passes on what a part prints, until its end."""
    for line in part.stdout or ():
        print(f"[{number}] {line}", end="", flush=True)


def made(args: argparse.Namespace, fixture: Fixture, seed: int) -> Episode | ArraysEpisode:
    """An episode; which kind, its seed says."""
    kind = args.kind or ("arrays" if "hdf5" in fixture.workers and seed % 4 == 3 else "files")
    return (ArraysEpisode if kind == "arrays" else Episode)(fixture, seed, args.episode)


def report(args: argparse.Namespace, episode: Episode | ArraysEpisode, found: Exception) -> None:
    """Prints a difference, what came before it, and how to see it again."""
    print(f"\nDIFFERENCE in episode {episode.seed}")
    for line in episode.log[-args.last :]:
        print(f"    {line}")
    print(f"  {found}")
    kind = f" --kind {args.kind}" if args.kind else ""
    views = f" --views {args.views}" if args.views else ""
    print(f"  again: --seed {episode.seed} --operations 1 --episode {args.episode}{kind}{views}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
