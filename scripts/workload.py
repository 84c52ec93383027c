"""Orders in which names come and go, as in the Rust tests (`crates/workload`)."""

import functools
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@functools.cache
def program() -> Path:
    """Returns the program that prints the steps, built if necessary."""
    subprocess.run(
        ["cargo", "build", "--release", "--locked", "--quiet", "-p", "cenote-workload"], cwd=ROOT, check=True
    )
    return ROOT / "target/release/workload"


def steps(seed: int, window: int, count: int) -> list[tuple[bool, int]]:
    """Returns `count` steps (put or not, number) with at most about `window` names at a time."""
    command = [program(), str(seed % 2**63), str(window), str(count)]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return [(line[0] == "+", int(line[1:])) for line in lines]
