"""A store under observation, and waiting for what should appear."""

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[4]
MIB = 1 << 20

WORK = """
import os, sys, time
import cenote
with cenote.open(sys.argv[1]) as store:
    runs = store.container("runs")
    objects = [runs.create_object() for _ in range(4)]
    data = os.urandom(1 << 20)
    number = 0
    while True:
        target = objects[number % len(objects)]
        target.write((number // len(objects)) % 4 << 20, data)
        for _ in range(20):
            target.read(0, 4096)
        number += 1
        time.sleep(0.01)
"""


@dataclass
class Served:
    """A store that a daemon serves, with its page."""

    dir: Path
    url: str
    command: Path

    def cenote(self, *args: str, check: bool = True) -> str:
        done = subprocess.run([self.command, "--store", self.dir, *args], capture_output=True, text=True, timeout=60)
        assert not check or done.returncode == 0, done.stderr
        return done.stdout

    def json(self, *args: str) -> dict:
        return json.loads(self.cenote("--json", *args))

    def daemon_pid(self) -> int:
        """Returns the process that has the store's socket, by its command line."""
        for proc in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (proc / "cmdline").read_bytes().split(b"\0")
                if b"serve" in words and os.fsencode(self.dir) in words:
                    return int(proc.name)
        raise AssertionError("no daemon serves the store")


def command() -> Path:
    """Path of the `cenote` to test: `CENOTE_BIN`, or the release that `make build` made."""
    return Path(os.environ.get("CENOTE_BIN") or ROOT / "target/release/cenote")


def until(is_true: Callable[[], object], what: str, seconds: float = 20) -> object:
    """Waits for a true value and returns it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := is_true():
            return found
        time.sleep(0.1)
    raise AssertionError(f"not within {seconds} s: {what}")
