"""The first open of an HDF5 file in an unserved store, by the store's number of files: `python -m benches.hdf5.cold`.

A store with a tier in memory and one in a file, all on tmpfs, holds a number of small files; its daemon is stopped, or
killed. A new process opens one file with h5py and reads a dataset. Prints milliseconds from `H5Fopen` to the data,
including the start of the daemon, beside the same for a native file: median, minimum and maximum of the rounds.
"""

import argparse
import os
import signal
import statistics
import subprocess
import sys

from benches.hdf5.small_files import daemon_of, two_sides

READ = """
import sys, time, h5py
begin = time.perf_counter()
with h5py.File(sys.argv[1], "r") as file:
    file["values"][...]
    print((time.perf_counter() - begin) * 1e3)
"""
WRITE = """
import sys, h5py, numpy
for number in range(int(sys.argv[2]), int(sys.argv[3])):
    with h5py.File(f"{sys.argv[1]}/{number}.h5", "w") as file:
        made = file.create_dataset("values", data=numpy.arange(100.0))
        made.attrs["units"] = "K"
"""


def run(side, code, *words):
    """Runs a program; returns its output."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HDF5_", "CENOTE_"))}
    command = [sys.executable, "-c", code, *map(str, words)]
    environment |= side.environment
    return subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, timeout=900, check=True).stdout


def opened_ms(side, command, how, rounds):
    """Returns milliseconds of each first open, after the daemon was ended in this way."""
    found = []
    for _ in range(rounds):
        if how == "killed":
            pid = daemon_of(side.store)
            if pid:
                os.kill(pid, signal.SIGKILL)
        elif how == "stopped":
            subprocess.run([*command, "stop"], stdout=subprocess.DEVNULL, check=False)
        found.append(float(run(side, READ, side.directory / "5.h5")))
    return found


def tell(what, found):
    """Prints a row."""
    print(f"{what:24} {statistics.median(found):8.1f} ms ({min(found):.1f} to {max(found):.1f})", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", default="20,2000,20000")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with two_sides("cold") as ((native, cenote), command):
        run(native, WRITE, native.directory, 0, 10)
        tell("native", opened_ms(native, command, "", options.rounds))
        made = 0
        for count in map(int, options.files.split(",")):
            run(cenote, WRITE, cenote.directory, made, count)
            made = count
            for how in ("stopped", "killed"):
                tell(f"{count} files, {how}", opened_ms(cenote, command, how, options.rounds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
