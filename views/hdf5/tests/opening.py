"""Who may open a file that another already has open: every pair of uses, with and without locks, in one process and
in two.

`python opening.py DIRECTORY [--old]` prints the result for each pair, natively or with a connector in the
environment;
`--old`: for files in HDF5's old format, which has no SWMR and no marks of who has the file open.
"""

import itertools
import json
import pathlib
import subprocess
import sys

import h5py
import numpy as np

USES = ["read", "read swmr", "write", "write swmr"]


def opened(path, use, locking):
    """Opens a file for this use."""
    if use.startswith("read"):
        return h5py.File(path, "r", swmr=use == "read swmr", libver="latest", locking=locking)
    file = h5py.File(path, "r+", libver="latest", locking=locking)
    if use == "write swmr":
        try:
            file.swmr_mode = True
        except BaseException:
            file.close()
            raise
    return file


def tried(path, use, locking):
    """`yes` if the file can be opened for this use and read, else `no`."""
    try:
        file = opened(path, use, locking)
    except (OSError, ValueError, RuntimeError):
        return "no"
    values = file["d"][:]
    file.close()
    return "yes" if (values == np.arange(4)).all() else "other values"


def pairs():
    """First use, its locks, second use, its locks, and whether the second is another process."""
    return itertools.product(USES, [True, False], USES, [True, False], [True, False])


def main():
    directory = pathlib.Path(sys.argv[1])
    if "--other" in sys.argv:
        for line in sys.stdin:
            print(json.dumps(tried(*json.loads(line))), flush=True)
        return
    command = [sys.executable, __file__, str(directory), "--other"]
    other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    for number, (first, first_locks, second, second_locks, apart) in enumerate(pairs()):
        path = str(directory / f"{number}.h5")
        with h5py.File(path, "w", libver=None if "--old" in sys.argv else "latest") as f:
            f.create_dataset("d", data=np.arange(4), chunks=(2,), maxshape=(None,))
        try:
            file = opened(path, first, first_locks)
        except RuntimeError:
            continue  # old formats have no SWMR
        if apart:
            other.stdin.write(json.dumps([path, second, second_locks]) + "\n")
            other.stdin.flush()
            found = json.loads(other.stdout.readline())
        else:
            found = tried(path, second, second_locks)
        file.close()
        print(json.dumps([[first, first_locks, second, second_locks, apart], found]))
    other.stdin.close()
    sys.exit(other.wait(60))


if __name__ == "__main__":
    main()
