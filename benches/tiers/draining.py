"""Latencies of gets and puts of 4 KiB while the fast layer is emptied into the slow one, beside those at rest. The
observed program is in Rust (`benches/src/latency.rs`).
"""

import os
import subprocess

from benches.tiers.contenders import PIECE, buffer_of
from benches.tiers.contest import CENOTE, PREFERRED, TOP, cenote, store
from benches.tiers.layers import MIB, SLOW_WRITE_BPS

PROGRAM = TOP / "target/release/cenote-benches"
FIGURES = ("get_p50", "get_p99", "put_p50", "put_p99")


class Program:
    """The program that gets and puts."""

    def __init__(self, directory, policy):
        command = [*PREFERRED, str(PROGRAM), "--child", "latency", str(directory), policy]
        environment = dict(os.environ) | {"CENOTE_BIN": str(CENOTE)}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.process.stdout.readline()

    def begin(self, seconds):
        self.process.stdin.write(f"{int(seconds * 1000)}\n")
        self.process.stdin.flush()

    def answer(self):
        """Returns figures in microseconds."""
        *times, count = map(int, self.process.stdout.readline().split())
        return {name: ns / 1000 for name, ns in zip(FIGURES, times, strict=True)} | {"count": count}

    def end(self):
        self.process.stdin.close()
        self.process.wait(60)


def fill(directory, size):
    """Puts bytes on the fast layer."""
    import cenote as module

    with module.open(directory, mode="daemon", create=False) as opened:
        obj = opened.create_container("ballast", durability="sync").create_object(1)
        array, buffer = buffer_of(PIECE)
        for at in range(0, size, PIECE):
            array[:8] = at // PIECE % 256
            obj.write(at, buffer)


def measure(layers, policy, seconds):
    """Returns figures at rest and while draining, and the ratios."""
    ballast = int(SLOW_WRITE_BPS * (seconds + 1)) // PIECE * PIECE
    if ballast > layers.fast_bytes - 32 * MIB:
        raise ValueError("the fast layer is too small to be drained for so long")
    with store(layers) as directory:
        os.environ["CENOTE_BIN"] = str(CENOTE)
        fill(directory, ballast)
        program = Program(directory, policy)
        try:
            cenote(directory, "flush")
            program.begin(seconds)
            before = program.answer()
            drain = subprocess.Popen(
                [str(CENOTE), "--store", str(directory), "tier", "drain", "fast"], stdout=subprocess.DEVNULL
            )
            program.begin(seconds)
            during = program.answer()
            was_draining = drain.poll() is None
            with layers.unthrottled():
                if drain.wait(120):
                    raise RuntimeError("`cenote tier drain fast` failed")
        finally:
            program.end()
    ratios = {name: during[name] / before[name] for name in FIGURES}
    return {"before": before, "during": during, "ratios": ratios, "was_draining": was_draining}
