"""A writer killed by SIGKILL right after calls that returned: another process reads back what they wrote.

`python returned.py --rounds 1000 [--seed N] [--store DIR]`, with the connector in the environment. Each round makes a
file: one process writes it alone, reports its progress after each returned call, and is killed at a random moment;
another opens the file at once, for reading or for writing, and compares. Now and then the daemon is killed too.
"""

import argparse
import mmap
import os
import pathlib
import random
import signal
import struct
import time

import h5py
import numpy as np
from forked import forked

ROWS = 4096


def make(f):
    """Makes the initial datasets."""
    f.create_dataset("contiguous", (ROWS,), "i8")
    f.create_dataset("chunked", (ROWS, 8), "i4", chunks=(16, 4), fillvalue=-1)
    f.create_dataset("packed", (ROWS, 16), "i8", chunks=(1, 16), compression="gzip", compression_opts=1)
    f.create_dataset("growing", (0,), "i8", chunks=(32,), maxshape=(None,))
    f.create_dataset("text", (ROWS,), h5py.string_dtype())
    f.create_group("made")


def put(f, i):
    """Makes call number `i`, which returns when what it wrote is safe."""
    kind, row = i % 7, i // 7
    if kind == 0:
        f["contiguous"][row] = i + 1
    elif kind == 1:
        f["chunked"][row] = np.full(8, i + 1)
    elif kind == 2:
        f["packed"][row] = np.full(16, i + 1)
    elif kind == 3:
        f["contiguous"].attrs[f"a{i}"] = i + 1
    elif kind == 4:
        f.create_dataset(f"made/{i}", data=[i + 1] * 5)
    elif kind == 5:
        f["growing"].resize((row + 1,))
        f["growing"][row] = i + 1
    else:
        f["text"][row] = f"text {i}"


def missing(f, i):
    """What is missing of call number `i`; None if nothing is."""
    kind, row = i % 7, i // 7
    if kind == 0:
        return None if f["contiguous"][row] == i + 1 else f"contiguous {row}: {f['contiguous'][row]}"
    if kind == 1:
        return None if (f["chunked"][row] == i + 1).all() else f"chunked {row}: {f['chunked'][row]}"
    if kind == 2:
        return None if (f["packed"][row] == i + 1).all() else f"packed {row}: {f['packed'][row]}"
    if kind == 3:
        value = f["contiguous"].attrs.get(f"a{i}")
        return None if value == i + 1 else f"attribute a{i}: {value}"
    if kind == 4:
        there = f["made"].get(str(i))
        return None if there is not None and there[:].tolist() == [i + 1] * 5 else f"dataset made/{i}: {there}"
    if kind == 5:
        grown = f["growing"]
        return None if len(grown) > row and grown[row] == i + 1 else f"growing {row} of {len(grown)}"
    return None if f["text"][row] == f"text {i}".encode() else f"text {row}: {f['text'][row]}"


def write(path, done):
    """The writer, which is killed or finishes."""
    with h5py.File(path, "w") as f:
        make(f)
        f.flush()
        for i in range(7 * ROWS):
            put(f, i)
            done[:8] = struct.pack("<Q", i + 1)


def compare(path, mode, count):
    """The other process, which compares."""
    with h5py.File(path, mode) as f:
        lost = [what for what in (missing(f, i) for i in range(count)) if what]
        assert not lost, f"{len(lost)} of {count} returned calls are lost: {lost[:3]} … {lost[-3:]}"
        if mode == "r+":
            f["made"].attrs["seen"] = count


def daemons(store):
    """Process ids of the store's daemons."""
    found = []
    for pid in filter(str.isdigit, (entry.name for entry in pathlib.Path("/proc").iterdir())):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if b"serve" in words and os.fsencode(store) in words:
            found.append(int(pid))
    return found


def kill_one(store, directory, number, chance):
    """Runs one round. Returns the number of calls that had returned."""
    path = pathlib.Path(directory) / f"r{number}.h5"
    done = mmap.mmap(-1, 4096)
    writer = forked(lambda: write(path, done))
    while done[:8] == bytes(8):
        time.sleep(0.001)
        ended, status = os.waitpid(writer, os.WNOHANG)
        assert not ended, f"the writer ended by itself: {status}"
    time.sleep(chance.random() ** 2 * 0.08)
    victims = [writer] + (daemons(store) if store and chance.random() < 0.1 else [])
    for victim in chance.sample(victims, len(victims)):
        os.kill(victim, signal.SIGKILL)
    _, status = os.waitpid(writer, 0)
    assert os.WIFSIGNALED(status), f"the writer ended by itself: {status}"
    (count,) = struct.unpack("<Q", done[:8])
    reader = forked(lambda: compare(path, chance.choice(["r", "r+"]), count))
    _, status = os.waitpid(reader, 0)
    assert status == 0, f"round {number}, killed {len(victims)}: lost something of {count} calls (see above)"
    path.unlink()
    return count


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=None, help="of the moments, whose effect depends on the machine")
    parser.add_argument("--store", help="whose daemon is killed, too, now and then")
    parser.add_argument("--directory", default=".", help="for the files")
    args = parser.parse_args()
    seed = random.randrange(1 << 30) if args.seed is None else args.seed
    print(f"--seed {seed}", flush=True)
    chance = random.Random(seed)
    calls = sum(kill_one(args.store, args.directory, number, chance) for number in range(args.rounds))
    print(f"{args.rounds} writers killed, {calls} calls had returned, 0 lost")


if __name__ == "__main__":
    main()
