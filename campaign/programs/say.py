"""Reports a program's progress and result to the process that started it."""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def progress(done: float, of: float) -> None:
    """Prints a line that the campaign turns into a bar."""
    print(json.dumps({"done": done, "of": of}), flush=True)


def result(path: str, values: dict) -> None:
    """Writes the result, whole or not at all."""
    there = Path(path)
    part = there.with_suffix(".part")
    part.write_text(json.dumps(values))
    part.replace(there)


class Stopwatch:
    """Seconds spent in the timed blocks, and the longest of them."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.longest_s = 0.0

    @contextmanager
    def __call__(self) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        took = time.perf_counter() - begin
        self.seconds += took
        self.longest_s = max(self.longest_s, took)


def fail(message: str) -> None:
    """Ends the program with a message and an exit code."""
    print(message, file=sys.stderr)
    sys.exit(1)
