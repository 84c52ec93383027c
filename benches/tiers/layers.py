"""Layers with the ratios of the table in the Hermes paper: memory, a fast one, a slow one; and the bytes that pass
through them.

The table (RAM, NVMe, hard disk) has 10,000 / 1,900 / 95 MB/s written, 13,000 / 2,800 / 115 read, 20 us and 4.16 ms.
Memory is this machine's own; the others are `disk.py` with all times multiplied by one factor (`SCALE`), so that their
ratios to memory are those of the table. (The kernel's own controller, `blkio`, is unsuitable: it has no latencies, and
after each pause it passes a tenth of a second's worth of bytes at full speed, which is all that a phase writes to the
fast layer.) The kernel's path to a device takes some 100 us here, in addition to the fast layer's latency, so that
layer is slower than in the table, not faster.
"""

import contextlib
import fcntl
import mmap
import os
import pathlib
import signal
import subprocess
import tempfile
import time

from benches.tiers import disk

MIB = 1 << 20
SCALE = 0.65
FAST_READ_BPS, FAST_WRITE_BPS = 2_800e6 * SCALE, 1_900e6 * SCALE
SLOW_READ_BPS, SLOW_WRITE_BPS = 115e6 * SCALE, 95e6 * SCALE
FAST_LATENCY_S, SLOW_LATENCY_S = 20e-6 / SCALE, 4.16e-3 / SCALE
MEMORY_GROUPS = pathlib.Path("/sys/fs/cgroup/memory")
BLKFLSBUF = 0x1261


class Missing(Exception):
    """This machine cannot provide such layers."""


def need_root():
    """Raises `Missing` with the reason if layers cannot be created here."""
    if os.geteuid():
        raise Missing("needs root, for loop devices, FUSE and cgroups")
    for path in ("/dev/fuse", "/dev/loop-control", MEMORY_GROUPS):
        if not pathlib.Path(path).exists():
            raise Missing(f"needs {path}")


class BlockDevice:
    """A loop device over a disk over a file in memory; a context manager."""

    def __init__(self, name, folder, size, speed):
        self.image, self.served = folder / f"{name}.image", folder / name
        self.size, self.speed = size, speed

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            zeros = bytes(4 * MIB)
            with open(self.image, "wb") as image:
                for at in range(0, self.size, len(zeros)):
                    image.write(zeros[: self.size - at])
            self.served.touch()
            self.disk = disk.start(self.served, self.image, self.size, *self.speed)
            stack.callback(self.disk.wait)
            stack.callback(subprocess.run, ["umount", "--lazy", str(self.served)], check=False)
            attach = ["losetup", "--find", "--show", "--direct-io=on", str(self.served)]
            self.path = subprocess.run(attach, check=True, capture_output=True, text=True).stdout.strip()
            stack.callback(subprocess.run, ["losetup", "--detach", self.path], check=False)
            self.sys = pathlib.Path("/sys/block") / pathlib.Path(self.path).name
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self.stack.close()

    def clear(self):
        """Zeroes the device, and drops it from the kernel's cache."""
        zeros = bytes(4 * MIB)
        with open(self.image, "r+b", buffering=0) as image:
            for at in range(0, self.size, len(zeros)):
                image.write(zeros[: self.size - at])
        with open(self.path, "rb") as device:
            fcntl.ioctl(device, BLKFLSBUF, 0)


class Layers:
    """The layers for one run; a context manager."""

    def __init__(self, memory_bytes, fast_bytes, slow_bytes):
        need_root()
        self.memory_bytes, self.fast_bytes, self.slow_bytes = memory_bytes, fast_bytes, slow_bytes
        self.stack = contextlib.ExitStack()

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            self.dir = pathlib.Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix="cenote-tiers-", dir="/dev/shm"))
            )
            fast = FAST_LATENCY_S, FAST_READ_BPS, FAST_WRITE_BPS
            slow = SLOW_LATENCY_S, SLOW_READ_BPS, SLOW_WRITE_BPS
            self.fast = stack.enter_context(BlockDevice("fast", self.dir, self.fast_bytes, fast))
            self.slow = stack.enter_context(BlockDevice("slow", self.dir, self.slow_bytes, slow))
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self.stack.close()

    def clear(self):
        """Clears both devices."""
        self.fast.clear()
        self.slow.clear()

    @contextlib.contextmanager
    def unthrottled(self):
        """Turns the delays off, for work that is not measured."""
        with unthrottled(self.disks()):
            yield

    def disks(self):
        """Returns the processes that serve the disks."""
        return [self.fast.disk.pid, self.slow.disk.pid]


@contextlib.contextmanager
def unthrottled(disks):
    """Turns the delays of disks off."""
    for pid in disks:
        os.kill(pid, signal.SIGUSR1)
    try:
        yield
    finally:
        for pid in disks:
            os.kill(pid, signal.SIGUSR2)


@contextlib.contextmanager
def memory_group(name):
    """Creates a memory control group of that name; returns its directory."""
    lines = (line.split(":") for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines())
    own = next(where for _, controller, where in lines if controller == "memory")
    path = MEMORY_GROUPS / own.lstrip("/") / f"cenote-{name}-{os.getpid()}"
    path.mkdir()
    try:
        yield path
    finally:
        for _ in range(50):
            try:
                path.rmdir()
                break
            except OSError:
                time.sleep(0.1)  # its processes are still ending


def aligned(size):
    """Returns a buffer of whole pages that are present."""
    buffer = mmap.mmap(-1, size)
    for at in range(0, size, mmap.PAGESIZE):
        buffer[at] = 0
    return buffer
