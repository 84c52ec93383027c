"""Measures what the daemons of an idle cluster cost: `python -m benches.cluster.idle BINARY...`.

Each binary is the `cenote` of a build. Several take turns, so that a busy machine disturbs all alike.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
TIERS = ("--tier", "name=memory,kind=memory,size=64MiB")


def run(binary: str, *arguments: str) -> str:
    """What a command prints."""
    return subprocess.run([binary, *arguments], check=True, capture_output=True, text=True).stdout


def daemons(directory: Path) -> list[int]:
    """The processes of the nodes of a cluster."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if any(word.startswith(os.fsencode(directory)) for word in words):
            found.append(int(process.name))
    return found


def used(processes: list[int]) -> tuple[float, int]:
    """Seconds of a core that processes have used, and how often their threads were switched to."""
    seconds, switches = 0.0, 0
    for process in processes:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        seconds += (int(fields[11]) + int(fields[12])) / TICKS
        for status in Path(f"/proc/{process}/task").glob("*/status"):
            lines = [line for line in status.read_text().splitlines() if "ctxt_switches" in line]
            switches += sum(int(line.split()[1]) for line in lines)
    return seconds, switches


def is_whole(binary: str, directory: Path, nodes: int) -> bool:
    """Whether all homes have their mirrors."""
    homes = json.loads(run(binary, "ha", "--json", str(directory / "n1")))["homes"]
    return len(homes) == nodes and all(home["mirrors"] for home in homes)


def measure(binary: str, nodes: int, seconds: float) -> tuple[float, float]:
    """The share of a core that the daemons of an idle cluster use, and switches of threads in a second."""
    with tempfile.TemporaryDirectory(prefix="cenote-idle-") as place:
        directory = Path(place) / "c"
        run(binary, "cluster", "start", str(directory), "--local", str(nodes), "--protect", "1", *TIERS)
        try:
            while not is_whole(binary, directory, nodes):
                time.sleep(0.2)
            time.sleep(3)
            processes = daemons(directory)
            if len(processes) != nodes:
                raise SystemExit(f"{len(processes)} daemons of {nodes} were found")
            (before, switched), begin = used(processes), time.monotonic()
            time.sleep(seconds)
            (after, switched_after), took = used(processes), time.monotonic() - begin
        finally:
            run(binary, "cluster", "destroy", str(directory), "--yes")
    return (after - before) / took, (switched_after - switched) / took


def main() -> None:
    """Prints each round, and medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("binaries", nargs="+", metavar="BINARY")
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    shares: dict[str, list[float]] = {binary: [] for binary in arguments.binaries}
    for _ in range(arguments.rounds):
        for binary in arguments.binaries:
            share, switches = measure(binary, arguments.nodes, arguments.seconds)
            shares[binary].append(share)
            load = os.getloadavg()[0]
            print(f"{binary}: {share:.1%} of a core, {switches:.0f} switches/s, load {load:.1f}", flush=True)
    for binary, found in shares.items():
        print(f"{binary}: median {statistics.median(found):.1%} ({min(found):.1%} to {max(found):.1%})")


if __name__ == "__main__":
    main()
