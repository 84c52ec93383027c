"""Many small HDF5 files by h5py, native and on a store in turns, all on tmpfs: `python -m benches.hdf5.small_files`.

Each file has one dataset and two attributes. One process writes all files, then another reads them, file by file, and
compares. Processes have loaded the library and, on Cenote, contacted the daemon before the clock starts. Figures are
per file: wall time, processor time of the program, and that of the daemon; medians of the rounds, and of the ratios the
median, the minimum and the maximum.
"""

import argparse
import contextlib
import json
import os
import pathlib
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

TOP = pathlib.Path(__file__).resolve().parents[2]
PLUGIN = TOP / "target/hdf5-plugin"
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def work(what, directory, count):
    """One process's work; prints its times in seconds."""
    import h5py
    import numpy

    data = numpy.arange(100, dtype="f8")

    def write(number):
        with h5py.File(f"{directory}/{number}.h5", "w") as file:
            made = file.create_dataset("values", data=data + number)
            made.attrs["units"] = "K"
            made.attrs["number"] = number

    def read(number):
        with h5py.File(f"{directory}/{number}.h5", "r") as file:
            found = file["values"]
            if found.attrs["units"] != "K" or found.attrs["number"] != number or found[5] != 5 + number:
                raise ValueError(f"file {number} is not what was written")
            return found[...].sum()

    if what == "write":
        write(count)
        one = write
    else:
        read(count)
        one = read
    before, begin = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    for number in range(count):
        one(number)
    wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps({"wall": wall, "cpu": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime}))


def daemon_of(store):
    """Returns the pid of the store's daemon; none without one."""
    for entry in pathlib.Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"serve" in words and str(store).encode() in words:
            return int(entry.name)
    return None


def cpu_s(pid):
    """Returns the processor time of a process, in seconds."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S


class Side:
    """One of the compared sides."""

    def __init__(self, directory, environment, store=None):
        self.directory, self.environment, self.store = directory, environment, store
        directory.mkdir()

    def run(self, what, count):
        """Runs one process; returns figures per file in microseconds."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("HDF5_", "CENOTE_"))}
        pid = self.store and daemon_of(self.store)
        before = cpu_s(pid) if pid else 0.0
        command = [sys.executable, "-m", "benches.hdf5.small_files", "--work", what, str(self.directory), str(count)]
        done = subprocess.run(
            command,
            env=environment | self.environment,
            cwd=TOP,
            stdout=subprocess.PIPE,
            text=True,
            timeout=600,
            check=True,
        )
        found = {name: value * 1e6 / count for name, value in json.loads(done.stdout).items()}
        found["daemon"] = (cpu_s(pid) - before) * 1e6 / count if pid else 0.0
        return found

    def clear(self):
        """Removes the files."""
        shutil.rmtree(self.directory)
        self.directory.mkdir()


def measure(sides, options):
    """Runs pairs of rounds; returns a list of figures for each task and side."""
    rows = {}
    for _ in range(options.rounds):
        for side in sides:
            side.clear()
        for task in ("write", "read"):
            for name, side in zip(("native", "cenote"), sides, strict=True):
                rows.setdefault((task, name), []).append(side.run(task, options.files))
    return rows


def tell(rows):
    """Prints medians and ratios."""
    print(f"{'':6} {'µs a file':10} {'native':>8} {'cenote':>8}   cenote / native")
    for task in ("write", "read"):
        native, ours = rows[task, "native"], rows[task, "cenote"]
        for figure in ("wall", "cpu"):
            ratios = sorted(o[figure] / n[figure] for n, o in zip(native, ours, strict=True))
            medians = [statistics.median(row[figure] for row in side) for side in (native, ours)]
            print(
                f"{task:6} {figure:10} {medians[0]:8.0f} {medians[1]:8.0f}   "
                f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
            )
        print(f"{task:6} {'daemon':10} {'':8} {statistics.median(row['daemon'] for row in ours):8.0f}")


@contextlib.contextmanager
def two_sides(what, memory_only=False):
    """Yields native files and a store with a tier in memory (and one in a file), both on tmpfs, and its command."""
    place = pathlib.Path(tempfile.mkdtemp(prefix=f"cenote-{what}-", dir="/dev/shm"))
    store = place / "store"
    command = [str(PLUGIN / "cenote"), "--store", str(store)]
    try:
        init = [*command, "init", "--tier", "name=memory,kind=memory,size=1GiB"]
        if not memory_only:
            init += ["--tier", f"name=file,kind=file,path={place}/tier,size=1GiB"]
        subprocess.run(init, check=True, stdout=subprocess.DEVNULL)
        ours = {"HDF5_PLUGIN_PATH": str(PLUGIN), "HDF5_VOL_CONNECTOR": f"cenote store={store}"}
        yield [Side(place / "native", {}), Side(place / "cenote", ours, store)], command
    finally:
        subprocess.run([*command, "stop"], stdout=subprocess.DEVNULL, check=False)
        subprocess.run([*command, "destroy", "--yes"], stdout=subprocess.DEVNULL, check=False)
        shutil.rmtree(place, ignore_errors=True)


def main():
    if len(sys.argv) > 1 and sys.argv[1] == "--work":
        return work(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--memory-only", action="store_true", help="no tier behind memory")
    options = parser.parse_args()
    with two_sides("small-files", options.memory_only) as (sides, _):
        sides[1].run("write", 1)
        tell(measure(sides, options))
    return 0


if __name__ == "__main__":
    sys.exit(main())
