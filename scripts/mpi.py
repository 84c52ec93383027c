"""Unmodified parallel HDF5 programs on the connector: both MPIs, several numbers of ranks. `make mpi`.

With `--nodes N`, ranks are on the nodes of a cluster in turn. Each has a process namespace of its own, so that they
share no memory, as on several hosts.

The programs are in views/hdf5/tests/mpi. They need Debian 13's packages (`scripts/debian13.py`).
"""

import argparse
import itertools
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from scripts import debian13

PROGRAMS = debian13.TOP / "views/hdf5/tests/mpi"
PLUGIN = debian13.TOP / "target/hdf5-plugin"
# C programs that native HDF5 can run too; they also run there, to validate the programs.
NATIVE = ("rows",)
# This program is random, and runs with each seed. It needs more than native HDF5 guarantees: no flush between a
# write and a read.
SEEDED = ("visible",)
# Programs whose ranks change metadata independently.
INDEPENDENT = ("independent",)
OPENMPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_btl": "self,sm",
    "OMPI_MCA_mpi_yield_when_idle": "1",
}
LAUNCH = {"openmpi": "mpirun.openmpi --oversubscribe --bind-to none", "mpich": "mpirun.mpich"}
# MPI's own ways between processes need shared memory and process numbers.
OPENMPI_NODES = {"OMPI_MCA_btl": "self,tcp", "OMPI_MCA_btl_tcp_if_include": "lo"}
MPICH_NODES = {"MPIR_CVAR_NOLOCAL": "1"}
TIERS = ("--tier", "name=memory,kind=memory,size=1GiB", "--tier", "name=disk,kind=directory,path=disk,size=4GiB")
# Runs a rank at its node, as on a host of its own.
ON_NODE = """#!/bin/sh
rank=${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}}
export HDF5_VOL_CONNECTOR="cenote store={cluster}/n$((rank % {nodes} + 1))"
# The program is not the namespace's first process, which no signal of its own kills.
exec unshare --pid --fork --kill-child --mount-proc sh -c '"$@"; exit $?' sh "$@"
"""


class Runs:
    """The runs made so far, and what they need."""

    def __init__(self, place, work, nodes):
        self.place, self.work, self.nodes = place, work, nodes
        self.store = work / "cluster/n1" if nodes else work / "store"
        self.failed = 0
        if nodes:
            cenote("cluster", "start", work / "cluster", "--local", nodes, "--protect", 1, *TIERS)
            on_node = work / "on_node"
            on_node.write_text(ON_NODE.format(cluster=work / "cluster", nodes=nodes))
            on_node.chmod(0o755)

    def end(self):
        """Deletes the store."""
        if self.nodes:
            cenote("cluster", "destroy", self.work / "cluster", "--yes")
        else:
            cenote("--store", self.store, "destroy", "--yes", "--force")
        shutil.rmtree(self.work, ignore_errors=True)

    def build(self, mpi):
        """Compiles the programs for one MPI; returns their names."""
        names = sorted(path.stem for path in PROGRAMS.glob("*.c"))
        for name in names:
            command = f"h5pcc.{mpi} -shlib -O1 -Wall -o {self.work}/{name}.{mpi} {PROGRAMS}/{name}.c"
            built = self.place.run(command, cwd=self.work)
            if built.returncode:
                raise SystemExit(f"mpi: {name}.c does not compile:\n{built.stdout}")
        return names

    def run(self, mpi, ranks, name, command, native=False, behind=""):
        """Runs one program; prints the result."""
        environment = dict(OPENMPI if mpi == "openmpi" else {})
        if self.nodes and not native:
            environment |= OPENMPI_NODES if mpi == "openmpi" else MPICH_NODES
            command = f"{self.work}/on_node {command}"
        if not native:
            environment |= {
                "HDF5_PLUGIN_PATH": str(PLUGIN),
                "HDF5_VOL_CONNECTOR": f"cenote store={self.store}",
                "CENOTE_CHECK": "1",
            }
            if name in INDEPENDENT:
                environment["CENOTE_HDF5_MPI"] = "independent"
        began = time.monotonic()
        where = "native" if native else "cenote"
        file = f"{self.work}/{name}.{where}.h5"
        done = self.place.run(f"{LAUNCH[mpi]} -n {ranks} {command} {file}{behind}", environment, 180, self.work)
        is_right = done.returncode == 0 and "right with" in done.stdout
        seconds = time.monotonic() - began
        print(
            f"{'ok  ' if is_right else 'FAIL'}  {mpi:8} {ranks} ranks  {where:6}  {name:14} {seconds:5.1f} s",
            flush=True,
        )
        if not is_right:
            self.failed += 1
            print(f"exit {done.returncode}\n{done.stdout[-6000:]}")

    def run_killed(self, mpi, ranks, seed):
        """Kills one rank, and with it the job; then a program without ranks checks the file."""
        program = f"{PROGRAMS}/killed.py"
        check = f"python3 {program} check {self.work}/killed.cenote.h5 {seed} < killed.log"
        behind = f" {seed} > killed.log 2> killed.err; {check}"
        self.run(mpi, ranks, "killed", f"python3 {program} write", behind=behind)


def cenote(*words):
    """Runs the command."""
    done = subprocess.run([PLUGIN / "cenote", *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"mpi: cenote {words[0]} failed:\n{done.stderr}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", default="1,2,3,8", help="numbers of ranks, with commas between")
    parser.add_argument("--mpi", default="openmpi,mpich")
    parser.add_argument("--seeds", default="1,2,3", help="of random runs, and of those in which a rank is killed")
    parser.add_argument("--only", default="", help="only programs whose names begin so")
    parser.add_argument("--nodes", type=int, default=0, help="nodes of a cluster; without it, a store by itself")
    options = parser.parse_args()
    try:
        place = debian13.find()
    except debian13.Missing as why:
        print(f"mpi: SKIPPED, nothing was tested.  {why}")
        return 0
    work = pathlib.Path(tempfile.mkdtemp(prefix="cenote-mpi-"))
    runs = Runs(place, work, options.nodes)
    try:
        for mpi in options.mpi.split(","):
            programs = [name for name in runs.build(mpi) if name.startswith(options.only)]
            for ranks in map(int, options.ranks.split(",")):
                for name in programs:
                    seeds = options.seeds.split(",") if name in SEEDED else [""]
                    for native, seed in itertools.product([True, False] if name in NATIVE else [False], seeds):
                        runs.run(mpi, ranks, name, f"{work}/{name}.{mpi}", native, f" {seed}")
                # Debian's mpi4py, and so its parallel h5py, uses Open MPI.
                if mpi == "openmpi" and "h5py".startswith(options.only):
                    runs.run(mpi, ranks, "h5py", f"python3 {PROGRAMS}/parallel.py")
                if mpi == "openmpi" and ranks > 1 and "killed".startswith(options.only):
                    for seed in options.seeds.split(","):
                        runs.run_killed(mpi, ranks, seed)
    finally:
        runs.end()
    print(f"mpi: {runs.failed} runs failed" if runs.failed else "mpi: all right")
    return 1 if runs.failed else 0


if __name__ == "__main__":
    sys.exit(main())
