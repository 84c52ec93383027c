"""The contenders' workloads, each in a process of its own: `python -m benches.tiers.workloads SETUP` prints its
measurements.

SETUP is JSON: the contender's `kind` and its settings (`contenders.py`), the `workload` and its sizes. The written
bytes differ in every page, are checked in part while they are read, and are compared as a whole at the end, outside of
the timed part.
"""

import contextlib
import json
import pathlib
import sys
import time

import numpy

from benches.tiers.contenders import KINDS, PIECE, FileLike, buffer_of
from benches.tiers.layers import unthrottled

PAGE = 4096
WORDS = PAGE // 8


class Wrong(Exception):
    """A contender returned other bytes than were written."""


class Bytes:
    """The bytes to write: random, with a number in each page."""

    def __init__(self, seed, size):
        self.array, self.buffer = buffer_of(size)
        self.array[:] = numpy.random.default_rng(seed).integers(0, 256, size, dtype=numpy.uint8)

    def stamp(self, offset):
        """Changes the bytes to those of this offset in the whole."""
        pages = self.array.view(numpy.uint64)[::WORDS]
        pages[:] = numpy.arange(len(pages), dtype=numpy.uint64) + numpy.uint64(offset // PAGE + 1)

    def pieces(self):
        """Yields offset and buffer of each piece."""
        for at in range(0, len(self.array), PIECE):
            yield at, self.buffer[at : at + PIECE]


def compute(seconds):
    """Keeps one core busy for this long."""
    values = numpy.linspace(0.0, 1.0, 32_768)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        values = numpy.sqrt(values * values + 1.0) - 0.5
    return values


class Devices:
    """The bytes written to the devices, by whatever process."""

    def __init__(self, setup):
        self.stats = [pathlib.Path("/sys/block") / pathlib.Path(setup[name]).name / "stat" for name in ("fast", "slow")]
        self.begun = self._written()

    def _written(self):
        return [int(stat.read_text().split()[6]) * 512 for stat in self.stats]

    def written(self):
        """Returns bytes written since the creation of this object, fast and slow."""
        return [now - begun for now, begun in zip(self._written(), self.begun, strict=True)]


class Stopwatch:
    """Adds up times."""

    def __init__(self):
        self.seconds, self.laps = 0.0, []

    @contextlib.contextmanager
    def running(self):
        begin = time.monotonic()
        yield
        self.laps.append(time.monotonic() - begin)
        self.seconds += self.laps[-1]


def check(setup, contender, data, total):
    """Reads everything back and compares it."""
    size = len(data.array)
    array, buffer = buffer_of(size)
    with unthrottled(setup["disks"]):
        for offset in range(0, total, size):
            for at in range(0, size, PIECE):
                contender.read(offset + at, buffer[at : at + PIECE])
            data.stamp(offset)
            if not numpy.array_equal(array, data.array):
                raise Wrong(f"bytes {offset} to {offset + size}")


def begin(setup):
    """Returns the contender, at rest."""
    contender = KINDS[setup["kind"]](setup)
    time.sleep(setup["rest_s"])
    return contender


def phases(setup):
    """Writes a phase's bytes, computes, and so on; then flushes. A computation can hide the last bytes, too."""
    size, count = setup["span"], setup["phases"]
    data = Bytes(setup["seed"], size)
    contender = begin(setup)
    devices, writing, flushing, hidden = Devices(setup), Stopwatch(), Stopwatch(), 0
    for phase in range(count):
        data.stamp(phase * size)
        with writing.running():
            for at, piece in data.pieces():
                contender.write(phase * size + at, piece)
        before = sum(devices.written())
        compute(setup["compute_s"])
        hidden += sum(devices.written()) - before
    with flushing.running():
        contender.flush()
    moved = devices.written()
    check(setup, contender, data, count * size)
    contender.close()
    return {
        "io_s": writing.seconds + flushing.seconds,
        "flush_s": flushing.seconds,
        "phase_s": writing.laps,
        "fast_bytes": moved[0],
        "slow_bytes": moved[1],
        "hidden": hidden / max(sum(moved), 1),
    }


def reads(setup):
    """Writes temporary data once and reads them the given number of times."""
    size, times = setup["total"], setup["times"]
    data = Bytes(setup["seed"], min(size, setup["span"]))
    array, buffer = buffer_of(PIECE)
    stamps = array.view(numpy.uint64)[::WORDS]
    contender = begin(setup)
    writing, reading = Stopwatch(), Stopwatch()
    for offset in range(0, size, len(data.array)):
        data.stamp(offset)
        with writing.running():
            for at, piece in data.pieces():
                contender.write(offset + at, piece)
    places = {} if setup["kind"] != "cenote" else {"placed": contender.places()}
    for _ in range(times):
        with reading.running():
            for offset in range(0, size, PIECE):
                contender.read(offset, buffer)
                if stamps[0] != offset // PAGE + 1 or stamps[-1] != (offset + PIECE) // PAGE:
                    raise Wrong(f"a piece at {offset}")
    places |= {} if setup["kind"] != "cenote" else {"left": contender.places()}
    check(setup, contender, data, size)
    contender.close()
    return {
        "io_s": writing.seconds + reading.seconds,
        "write_s": writing.seconds,
        "read_s": reading.seconds,
        "pass_s": reading.laps,
    } | places


def kernel(setup):
    """Time steps of a simulation through calls: each writes its variables one after the other, then computes. Then
    flushes, and reads everything back, as for an analysis or a restart."""
    sizes, steps = setup["variables"], setup["steps"]
    step_bytes = sum(sizes)
    data = Bytes(setup["seed"], step_bytes)
    found, found_buffer = buffer_of(step_bytes)
    contender = begin(setup)
    writing, reading = Stopwatch(), Stopwatch()
    offsets = numpy.cumsum([0, *sizes])
    for step in range(steps):
        data.stamp(step * step_bytes)
        with writing.running():
            for at, size in zip(offsets, sizes, strict=False):
                contender.write(step * step_bytes + int(at), data.buffer[at : at + size])
        compute(setup["compute_s"])
    with writing.running():
        contender.flush()
    for step in range(steps):
        with reading.running():
            for at, size in zip(offsets, sizes, strict=False):
                contender.read(step * step_bytes + int(at), found_buffer[at : at + size])
        data.stamp(step * step_bytes)
        if not numpy.array_equal(found, data.array):
            raise Wrong(f"step {step}")
    contender.close()
    return {"write_s": writing.seconds, "read_s": reading.seconds, "flush_s": writing.laps[-1]}


# Raw data begin at pieces, and metadata are contiguous: a usual setting for such layers.
LAYOUT = {"alignment_threshold": 65536, "alignment_interval": PIECE, "meta_block_size": 65536, "libver": "latest"}


class Files:
    """HDF5 files of a contender: the objects that h5py opens, and their flush."""

    def __init__(self, setup, file_bytes):
        import h5py

        self.h5py, self.setup, self.file_bytes = h5py, setup, file_bytes
        self.is_cenote = setup["kind"] == "cenote"
        self.likes = {}
        if self.is_cenote:
            import cenote

            self.store = cenote.open(setup["store"], mode="daemon", create=False)
            self.dir = pathlib.Path(setup["files"])
        else:
            self.contender = KINDS[setup["kind"]](setup)
        time.sleep(setup["rest_s"])

    def create(self, number):
        if not self.is_cenote:
            self.likes[number] = FileLike(self.contender, number * self.file_bytes)
            return self.h5py.File(self.likes[number], "w", **LAYOUT)
        known = {info.label for info in self.store.containers()}
        file = self.h5py.File(self.dir / f"file{number}.h5", "w", libver="latest")
        for info in self.store.containers():
            if info.label not in known:
                self.store.container(info.label, create=False).set(policy=self.setup["policy"])
        return file

    def open(self, number):
        if self.is_cenote:
            return self.h5py.File(self.dir / f"file{number}.h5", "r")
        self.likes[number].seek(0)
        return self.h5py.File(self.likes[number], "r")

    def flush(self):
        if self.is_cenote:
            self.store.flush()
        else:
            self.contender.flush()

    def close(self):
        if self.is_cenote:
            self.store.close()
        else:
            self.contender.close()


def kernel_hdf5(setup):
    """The same through h5py, with a file for a number of steps."""
    sizes, steps, together = setup["variables"], setup["steps"], setup["steps_in_file"]
    step_bytes = sum(sizes)
    data = Bytes(setup["seed"], step_bytes)
    found, _ = buffer_of(step_bytes)
    # Room for the file's metadata, and for the gaps of the alignment.
    file_bytes = (together * (step_bytes // PIECE + len(sizes)) + 8) * PIECE
    files = Files(setup, file_bytes)
    writing, reading = Stopwatch(), Stopwatch()
    offsets = [int(at) for at in numpy.cumsum([0, *sizes])]
    variables = list(enumerate(zip(offsets, sizes, strict=False)))
    for first in range(0, steps, together):
        with writing.running():
            file = files.create(first // together)
        for step in range(first, min(first + together, steps)):
            data.stamp(step * step_bytes)
            with writing.running():
                group = file.create_group(f"step{step}")
                for name, (at, size) in variables:
                    group.create_dataset(f"v{name}", data=data.array[at : at + size].view(numpy.float32))
            compute(setup["compute_s"])
        with writing.running():
            file.close()
    with writing.running():
        files.flush()
    for first in range(0, steps, together):
        with reading.running():
            file = files.open(first // together)
        for step in range(first, min(first + together, steps)):
            with reading.running():
                for name, (at, size) in variables:
                    file[f"step{step}/v{name}"].read_direct(found[at : at + size].view(numpy.float32))
            data.stamp(step * step_bytes)
            if not numpy.array_equal(found, data.array):
                raise Wrong(f"step {step}")
        with reading.running():
            file.close()
    files.close()
    return {"write_s": writing.seconds, "read_s": reading.seconds, "flush_s": writing.laps[-1]}


WORKLOADS = {"phases": phases, "reads": reads, "kernel": kernel, "kernel-hdf5": kernel_hdf5}


def main():
    setup = json.loads(sys.argv[1])
    print(json.dumps(WORKLOADS[setup["workload"]](setup)))


if __name__ == "__main__":
    main()
