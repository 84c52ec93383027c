"""Runs contenders' workloads on layers, one at a time and each in a process of its own."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys

from benches.tiers.layers import MIB, memory_group

TOP = pathlib.Path(__file__).resolve().parents[2]
PLUGIN = TOP / "target/hdf5-plugin"
CENOTE = PLUGIN / "cenote"
# Bytes of a store's devices beside their data.
HEADER_BYTES = 4 * MIB
REST_S = 0.5
PATIENCE_S = 300


# Contenders, and the daemon that one of them starts, have priority on the machine.
PREFERRED = ["nice", "-n", "-15"]


class Failed(Exception):
    """A contender failed."""


def cenote(directory, *words):
    """Runs the command."""
    command = [str(word) for word in (CENOTE, "--store", directory, *words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    if done.returncode:
        raise Failed(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


@contextlib.contextmanager
def store(layers):
    """Creates a store over all layers; returns its directory."""
    directory = layers.dir / "store"
    tiers = [
        f"name=memory,kind=memory,size={layers.memory_bytes}",
        f"name=fast,kind=file,path={layers.fast.path},size={layers.fast_bytes - HEADER_BYTES}",
        f"name=slow,kind=file,path={layers.slow.path},size={layers.slow_bytes - HEADER_BYTES}",
    ]
    cenote(directory, "init", *(word for tier in tiers for word in ("--tier", tier)))
    try:
        yield directory
    finally:
        with layers.unthrottled():
            cenote(directory, "destroy", "--yes", "--force")


def run(layers, contender, workload):
    """Returns a contender's measurements. Its name is its kind; Cenote's is `cenote:POLICY`."""
    kind, _, policy = contender.partition(":")
    layers.clear()
    setup = workload | {
        "kind": kind,
        "policy": policy,
        "fast": layers.fast.path,
        "slow": layers.slow.path,
        "memory_bytes": layers.memory_bytes,
        "disks": layers.disks(),
        "rest_s": REST_S,
    }
    environment = dict(os.environ) | {"CENOTE_BIN": str(CENOTE)}
    with contextlib.ExitStack() as stack:
        if kind == "cenote":
            setup["store"] = str(stack.enter_context(store(layers)))
            if workload["workload"] == "kernel-hdf5":
                setup["files"] = str(layers.dir / "files")
                pathlib.Path(setup["files"]).mkdir(exist_ok=True)
                environment |= {
                    "HDF5_PLUGIN_PATH": str(PLUGIN),
                    "HDF5_VOL_CONNECTOR": f"cenote store={setup['store']}",
                }
        if kind == "page-cache":
            setup["group"] = str(stack.enter_context(memory_group("bench")))
        command = [*PREFERRED, sys.executable, "-m", "benches.tiers.workloads", json.dumps(setup)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE_S, env=environment, cwd=TOP, check=False
        )
        if done.returncode:
            raise Failed(f"{contender}, {workload['workload']}: {done.stderr[-2000:]}")
        return json.loads(done.stdout)
