"""One of the two processes: runs the episodes given on standard input, and writes what it saw.

An order is a line `SEED OPERATIONS STEPS`, with `-` for all steps; an answer is a line with a number of bytes, followed
by that many bytes: one line for each step.
"""

import ctypes
import os
import sys

from . import (
    on_attributes,
    on_check,
    on_chunks,
    on_copies,
    on_datasets,
    on_files,
    on_references,
    on_structure,
    on_walks,
)
from .library import Library
from .world import World

ROOMS = (on_files, on_structure, on_copies, on_walks, on_attributes, on_datasets, on_chunks, on_references, on_check)


def episode(w, seed, count, steps):
    """The lines of one episode."""
    lines = []
    on_files.clear()
    for number in steps if steps is not None else range(count):
        line = w.step(seed, number)
        lines.append(line)
        if w.aloud:
            w.aloud(line)
    for name, last in (("end", w.end), ("check", lambda: on_check.check_files(w)), ("end", w.end)):
        if w.aloud:
            w.aloud(name)
        lines.append(f"{name} {last()}")
        if w.aloud:
            w.aloud(lines[-1])
    return lines


def main():
    """Arguments: library (or nothing), operations to leave out, a file for notes before each step (or nothing)."""
    library, without, aloud = sys.argv[1:4]
    w = World(Library(library or None), set(without.split(",")))
    if aloud:
        note = open(aloud, "a", buffering=1, errors="backslashreplace")  # noqa: SIM115 (as long as the process)
        w.aloud = lambda line: note.write(line + "\n")
        if os.environ.get("DIFFERENTIAL_ERRORS"):
            w.h.H5Eset_auto2(0, ctypes.cast(w.h.c.H5Eprint2, ctypes.c_void_p), None)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    for order in sys.stdin:
        seed, count, steps, in_full = order.split()
        w.in_full = in_full == "full"
        chosen = None if steps == "-" else [int(n) for n in steps.split(",")]
        text = "\n".join(episode(w, int(seed), int(count), chosen)).encode(errors="backslashreplace")
        answers.write(b"%d\n" % len(text) + text)
        answers.flush()


main()
