"""A first program in Python: make a store with two tiers, write arrays, read them with and without a copy, keep
records, change several things at once, see where the bytes are, and share everything with other processes.

python examples/python/first.py DIRECTORY
"""

import multiprocessing
import sys
from pathlib import Path

import cenote
import numpy as np


def total(directory: Path, object_id: str) -> float:
    """Runs in another process: opens the same store and reads the same bytes."""
    with cenote.open(directory) as store:
        return float(np.frombuffer(store.container("runs").object(object_id).view()).sum())


def main(directory: Path) -> None:
    # A store with memory in front of a directory. Without tiers, it would choose them to fit this machine.
    tiers = [
        cenote.Tier("memory", "memory", "64MiB", high=0.9, low=0.7),
        cenote.Tier("disk", "directory", "256MiB", directory / "disk"),
    ]
    with cenote.open(directory / "store", tiers=tiers) as store:
        # A container is a group of objects and indices with one policy.
        runs = store.container("runs", durability="async")

        # An object is an array of bytes; any buffer can be written, and any writable one filled, without extra copies.
        values = np.arange(100_000) * 0.5
        obj = runs.create_object()
        obj.write(0, values)
        back = np.empty_like(values)
        obj.readinto(0, back)
        assert (back == values).all()

        # By reference: the array's memory is the store's own. The bytes do not change while the array lives.
        view = np.frombuffer(obj.view())
        assert (view == values).all()

        # Asynchronous: launch, do other work, wait.
        other = runs.create_object()
        ops = [other.launch_write(part * values.nbytes, values) for part in range(4)]
        for op in ops:
            op.wait()

        # An index keeps ordered records, like a dict of bytes.
        index = runs.index(1)
        index[b"step"] = b"1"
        index.put_many([(b"run/%03d" % number, b"done") for number in range(10)])
        print("runs:", [key.decode() for key in index.keys(prefix=b"run/")][:3], "...")

        # A transaction: all of it or nothing, even after a crash; an exception in the block changes nothing.
        with store.transaction() as tx:
            tx.write(other, 0, b"changed")
            tx.put(index, b"step", b"2")
        print("step is now", index[b"step"].decode())

        # The barrier: everything acknowledged before survives power loss.
        store.flush()
        for tier in store.tiers():
            print(f"tier {tier.name:8} {cenote.format_size(tier.used)} used of {cenote.format_size(tier.capacity)}")
        for piece in store.explain(obj).ranges:
            print(f"{piece.length} bytes at {piece.offset} are on `{piece.tier}`: {piece.why}")

        # Other processes see the same bytes; one that forks gets its own session.
        with multiprocessing.get_context("spawn").Pool(2) as pool:
            sums = pool.starmap(total, [(directory / "store", obj.id)] * 2)
        assert sums == [values.sum()] * 2

        # An error names its subject, cause and next step; it is also the exception that Python programs expect.
        try:
            index[b"no such key"]
        except KeyError as error:
            print("as expected:", error)
        try:
            store.container("walks", create=False)
        except cenote.NotFound as error:
            print("as expected:", error)
    print("all is well")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
