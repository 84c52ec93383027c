"""All layers at once: a process for each reads or writes what lies there, alone and then all together.

`python -m benches.tiers.at_once SETUP` is one of these processes: it prints `ready`, and for each line `get SECONDS` or
`put SECONDS` does that and answers with bytes per second.
"""

import json
import os
import subprocess
import sys
import time

from benches.tiers.contenders import PIECE, buffer_of
from benches.tiers.contest import CENOTE, PREFERRED, TOP, cenote, store
from benches.tiers.layers import MIB

# How bytes are placed on a layer: durability and size of the object.
LAYERS = {"memory": ("scratch", 16 * MIB), "fast": ("sync", 64 * MIB), "slow": ("bypass", 32 * MIB)}


class Process:
    """A process that reads and writes on one layer."""

    def __init__(self, directory, name):
        durability, size = LAYERS[name]
        self.name = name
        setup = {"store": str(directory), "label": name, "durability": durability, "size": size}
        command = [*PREFERRED, sys.executable, "-m", "benches.tiers.at_once", json.dumps(setup)]
        environment = dict(os.environ) | {"CENOTE_BIN": str(CENOTE)}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=TOP, env=environment
        )
        self.answer()

    def begin(self, what, seconds):
        self.process.stdin.write(f"{what} {seconds}\n")
        self.process.stdin.flush()

    def answer(self):
        line = self.process.stdout.readline().strip()
        if not line:
            raise RuntimeError(f"who reads {self.name} ended with {self.process.wait()}")
        return line

    def end(self):
        self.process.stdin.close()
        self.process.wait(60)


def measure(layers, what, seconds):
    """Returns the bandwidth of each layer alone and all at once, and the share of the sum."""
    with store(layers) as directory:
        processes = [Process(directory, name) for name in LAYERS]
        try:
            cenote(directory, "flush")
            time.sleep(0.5)
            alone = {}
            for process in processes:
                process.begin(what, seconds)
                alone[process.name] = float(process.answer())
            for process in processes:
                process.begin(what, seconds)
            together = {process.name: float(process.answer()) for process in processes}
        finally:
            for process in processes:
                process.end()
    return {"alone": alone, "together": together, "share": sum(together.values()) / sum(alone.values())}


def main():
    import cenote

    setup = json.loads(sys.argv[1])
    opened = cenote.open(setup["store"], mode="daemon", create=False)
    container = opened.create_container(setup["label"], durability=setup["durability"])
    obj = container.create_object(1)
    array, buffer = buffer_of(PIECE)
    array[:] = 7
    for at in range(0, setup["size"], PIECE):
        obj.write(at, buffer)
    tiers = {part.tier for part in opened.explain(obj).ranges}
    if tiers != {setup["label"]}:
        raise SystemExit(f"what should lie on {setup['label']} is on {tiers}")
    print("ready", flush=True)
    at = 0
    for line in sys.stdin:
        what, seconds = line.split()
        call = obj.readinto if what == "get" else obj.write
        count, begin = 0, time.monotonic()
        while time.monotonic() < begin + float(seconds):
            call(at, buffer)
            at = (at + PIECE) % setup["size"]
            count += 1
        print(count * PIECE / (time.monotonic() - begin), flush=True)
    opened.close()


if __name__ == "__main__":
    main()
