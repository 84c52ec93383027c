"""The kernels of `kernels.c`, on native HDF5 and on Cenote in turns: `make bench-hdf5`.

Memory: native files on tmpfs beside a store with only a memory tier, which keeps data as long as tmpfs does. Disk:
native files on this machine's file system, which the kernel also caches in memory, beside a store with a memory tier
above a file tier, as `cenote init` creates them. File: the same native files beside a file tier alone, which bypasses
the kernel's cache. Medians of the pairs, their ratio, and the ratio's spread; a line of JSON for each in
target/bench-hdf5.jsonl, and a plot of the curves (`curves.py`) if there are several numbers of ranks. Debian 13's HDF5
1.14.5 with Open MPI.
"""

import argparse
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

from benches.hdf5 import curves
from scripts import debian13

HERE = pathlib.Path(__file__).resolve().parent
PLUGIN = debian13.TOP / "target/hdf5-plugin"
OPENMPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_btl": "self,sm",
    "OMPI_MCA_mpi_yield_when_idle": "1",
}
# Kernel, arguments after the file, ranks (0: as requested), least ratio by figure.
KERNELS = [
    ("vpic", "32", 0, {"vpic": 2.0}),
    ("bdcats", "32", 0, {"bdcats": 1.5}),
    ("boss", "10240", 0, {"boss": 10.0, "create": 10.0}),
    ("boss", "10240 --independent", 0, {}),
    ("rows", "4096", 0, {"rows_write": 1.5, "rows_read": 1.5}),
    ("columns", "", 0, {"columns_write": 1.5, "columns_read": 1.5}),
    ("visit", "100000", 1, {"visit": 2.0}),
    ("overhead", "", 1, {}),
]
# Lower is better.
TIMES = ("overhead",)
# Arguments that native HDF5 does not support, and those that it is compared with.
NATIVE_WORDS = {"10240 --independent": "10240"}


class Side:
    """One of the compared sides."""

    def __init__(self, place, program, directory, environment):
        self.place, self.program, self.directory, self.environment = place, program, directory, environment

    def run(self, kernel, words, ranks):
        """Returns the figures of one run."""
        environment = dict(OPENMPI) | self.environment
        if "--independent" in words:
            environment["CENOTE_HDF5_MPI"] = "independent"
        launch = f"mpirun.openmpi --oversubscribe --bind-to none -n {ranks}"
        command = (
            f"{launch} {self.program} {kernel} {self.directory}/{'vpic' if kernel == 'bdcats' else kernel}.h5 {words}"
        )
        done = self.place.run(command, environment, timeout=300, cwd=self.directory)
        if done.returncode:
            raise SystemExit(f"{command}: exit {done.returncode}\n{done.stdout[-3000:]}")
        lines = (line.split() for line in done.stdout.splitlines())
        return {line[0]: (float(line[1]), line[2]) for line in lines if len(line) == 3}


def measure(sides, tier, ranks, options, out):
    """Runs all kernels with this number of ranks; returns a row for each."""
    for kernel, words, own_ranks, wanted in KERNELS:
        label = kernel + ("-independent" if "--independent" in words else "")
        if options.only and label not in options.only:
            continue
        ours, theirs = [], []
        for _ in range(options.pairs):
            theirs.append(sides[0].run(kernel, NATIVE_WORDS.get(words, words), own_ranks or ranks))
            ours.append(sides[1].run(kernel, words, own_ranks or ranks))
        for figure in ours[0]:
            pairs = [(o[figure][0], t[figure][0]) for o, t in zip(ours, theirs, strict=True)]
            ratios = sorted((t / o if figure in TIMES else o / t) for o, t in pairs)
            row = {
                "tier": tier,
                "ranks": own_ranks or ranks,
                "kernel": label,
                "figure": figure,
                "unit": ours[0][figure][1],
                "cenote": statistics.median(o for o, _ in pairs),
                "native": statistics.median(t for _, t in pairs),
                "ratio": statistics.median(ratios),
                "least": ratios[0],
                "most": ratios[-1],
                "wanted": wanted.get(figure),
            }
            out.write(json.dumps(row) + "\n")
            out.flush()
            verdict = "" if row["wanted"] is None else f"wanted {row['wanted']:g}"
            print(
                f"{tier:6} {row['ranks']:2} ranks  {label:17} {figure:13} {row['cenote']:10.4g} {row['native']:10.4g} "
                f"{row['unit']:11} {row['ratio']:6.2f} ({row['least']:.2f} to {row['most']:.2f}) {verdict}",
                flush=True,
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument(
        "--ranks", default="2", help="numbers of ranks, with commas between (1,2,4,8,16 for the curves)"
    )
    parser.add_argument("--only", action="append", help="only this kernel; may be repeated")
    parser.add_argument("--tiers", default="memory,disk,file")
    parser.add_argument("--dir", default=str(debian13.TOP / "target/bench-data"), help="a directory on a disk")
    options = parser.parse_args()
    try:
        place = debian13.find()
    except debian13.Missing as why:
        print(f"bench-hdf5: SKIPPED, nothing was measured.  {why}")
        return 0
    with open(debian13.TOP / "target/bench-hdf5.jsonl", "w") as out:
        print(f"{'tier':6} {'':9} {'kernel':17} {'figure':13} {'cenote':>10} {'native':>10} {'':11} ratio")
        for tier in options.tiers.split(","):
            parent = pathlib.Path("/dev/shm" if tier == "memory" else options.dir)
            parent.mkdir(parents=True, exist_ok=True)
            work = pathlib.Path(tempfile.mkdtemp(prefix="cenote-kernels-", dir=parent))
            store = work / "store"
            try:
                program = work / "kernels"
                built = place.run(f"h5pcc.openmpi -shlib -O2 -Wall -o {program} {HERE}/kernels.c", cwd=str(work))
                if built.returncode:
                    raise SystemExit(f"bench-hdf5: kernels.c does not compile:\n{built.stdout}")
                memory, file = {"memory": (6, 0), "disk": (3, 8), "file": (0, 8)}[tier]
                tiers = [f"name=memory,kind=memory,size={memory}GiB"] if memory else []
                tiers += [f"name=file,kind=file,path={work}/tier,size={file}GiB"] if file else []
                init = [PLUGIN / "cenote", "--store", store, "init"]
                for spec in tiers:
                    init += ["--tier", spec]
                subprocess.run([*map(str, init)], check=True, capture_output=True)
                (work / "native").mkdir()
                (work / "cenote").mkdir()
                sides = [
                    Side(place, program, work / "native", {}),
                    Side(
                        place,
                        program,
                        work / "cenote",
                        {"HDF5_PLUGIN_PATH": str(PLUGIN), "HDF5_VOL_CONNECTOR": f"cenote store={store}"},
                    ),
                ]
                for ranks in map(int, options.ranks.split(",")):
                    measure(sides, tier, ranks, options, out)
            finally:
                destroy = [PLUGIN / "cenote", "--store", store, "destroy", "--yes", "--force"]
                subprocess.run([*map(str, destroy)], capture_output=True, check=False)
                shutil.rmtree(work, ignore_errors=True)
    if "," in options.ranks:
        curves.main()
    return 0


if __name__ == "__main__":
    sys.exit(main())
