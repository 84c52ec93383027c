"""A disk in a file: reads and writes take as long as on a device of a given latency and bandwidth.

One process serves one regular file by FUSE (it speaks the kernel's protocol directly) and keeps its bytes in another
file, in memory; a loop device over it makes it a block device. It has real-time priority if permitted: a device does
not wait for a core.

The model: one head. A request takes bytes / bandwidth, and before that the latency, unless it continues where the
previous one ended and was already waiting when that one was done: then the head never stopped.
"""

import contextlib
import ctypes
import mmap
import os
import select
import signal
import struct
import subprocess
import sys
import time

HEADER = struct.Struct("<IIQQIIIHH")
ANSWER = struct.Struct("<IiQ")
INIT = struct.Struct("<IIIIHHIIHHII24x")
ATTRIBUTES = struct.Struct("<QQQQQQIIIIIIIIII")
TRANSFER = struct.Struct("<QQIIQII")  # of FUSE_READ and FUSE_WRITE
FUSE_GETATTR, FUSE_SETATTR, FUSE_OPEN, FUSE_READ, FUSE_WRITE, FUSE_STATFS, FUSE_RELEASE = 3, 4, 14, 15, 16, 17, 18
FUSE_FSYNC, FUSE_FLUSH, FUSE_INIT, FUSE_ACCESS, FUSE_INTERRUPT, FUSE_DESTROY, FUSE_FALLOCATE = (
    20,
    25,
    26,
    34,
    36,
    38,
    43,
)
FUSE_FORGET, FUSE_BATCH_FORGET = 2, 42
ASYNC_READ, BIG_WRITES, ASYNC_DIO, MAX_PAGES = 1 << 0, 1 << 5, 1 << 15, 1 << 22
ENOSYS = 38
TRANSFER_MAX = 1 << 20
FILE_MODE = 0o100644


class Head:
    """Computes when a request is done, by the model."""

    def __init__(self, latency_s, read_bps, write_bps):
        self.latency_s, self.read_bps, self.write_bps = latency_s, read_bps, write_bps
        self.free_at = 0.0
        self.position = -1
        self.is_slow = True

    def wait(self, offset, size, is_write, was_waiting, begun):
        """Sleeps until the request is done."""
        if not self.is_slow:
            return
        cost = size / (self.write_bps if is_write else self.read_bps)
        if not was_waiting or offset != self.position:
            cost += self.latency_s
        # An earlier sleep that was too long counts: a queue of requests gets the full bandwidth.
        self.free_at = (self.free_at if was_waiting else begun) + cost
        self.position = offset + size
        left = self.free_at - time.monotonic()
        if left > 0:
            time.sleep(left)


class Served:
    """The file, as the kernel sees it."""

    def __init__(self, fuse, backing, size, head):
        self.fuse, self.size, self.head = fuse, size, head
        self.buffer = mmap.mmap(-1, TRANSFER_MAX + 65536)
        self.data = memoryview(mmap.mmap(backing, size))
        self.poll = select.poll()
        self.poll.register(fuse, select.POLLIN)

    def attributes(self):
        now = int(time.time())
        return ATTRIBUTES.pack(1, self.size, self.size // 512, now, now, now, 0, 0, 0, FILE_MODE, 1, 0, 0, 0, 4096, 0)

    def answer(self, unique, *parts, error=0):
        length = ANSWER.size + sum(len(part) for part in parts)
        with contextlib.suppress(FileNotFoundError):  # the caller is gone
            os.writev(self.fuse, [ANSWER.pack(length, -error, unique), *parts])

    def transfer(self, unique, body, is_write, was_waiting, begun):
        _, offset, size, *_ = TRANSFER.unpack_from(body)
        # Moving the bytes is part of the modelled time.
        if is_write:
            self.data[offset : offset + size] = body[TRANSFER.size : TRANSFER.size + size]
        self.head.wait(offset, size, is_write, was_waiting, begun)
        self.answer(unique, struct.pack("<II", size, 0) if is_write else self.data[offset : offset + size])

    def serve(self):
        """Serves until it is unmounted."""
        while True:
            was_waiting = bool(self.poll.poll(0))
            if not was_waiting:
                self.poll.poll()
            begun = time.monotonic()
            try:
                length = os.readv(self.fuse, [self.buffer])
            except FileNotFoundError:
                continue  # interrupted before it was read
            except OSError:
                return  # unmounted
            _, opcode, unique, *_ = HEADER.unpack_from(self.buffer)
            body = memoryview(self.buffer)[HEADER.size : length]
            if opcode in (FUSE_WRITE, FUSE_READ):
                self.transfer(unique, body, opcode == FUSE_WRITE, was_waiting, begun)
            elif opcode in (FUSE_FORGET, FUSE_BATCH_FORGET, FUSE_INTERRUPT):
                pass
            elif opcode == FUSE_INIT:
                _, minor, ahead, flags = struct.unpack_from("<IIII", body)
                flags &= ASYNC_READ | BIG_WRITES | ASYNC_DIO | MAX_PAGES
                pages = TRANSFER_MAX // mmap.PAGESIZE
                self.answer(unique, INIT.pack(7, min(minor, 31), ahead, flags, 64, 48, TRANSFER_MAX, 1, pages, 0, 0, 0))
            elif opcode in (FUSE_GETATTR, FUSE_SETATTR):
                self.answer(unique, struct.pack("<QII", 3600, 0, 0), self.attributes())
            elif opcode == FUSE_OPEN:
                self.answer(unique, struct.pack("<QIi", 1, 0, 0))
            elif opcode in (FUSE_RELEASE, FUSE_FLUSH, FUSE_FSYNC, FUSE_ACCESS, FUSE_DESTROY):
                self.answer(unique)
            else:
                self.answer(unique, error=ENOSYS)


def mount(path):
    """Returns a descriptor of /dev/fuse that serves the regular file `path` from now on."""
    fuse = os.open("/dev/fuse", os.O_RDWR)
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={fuse},rootmode={FILE_MODE:o},user_id=0,group_id=0,allow_other"
    if libc.mount(b"cenote-disk", os.fsencode(path), b"fuse", ctypes.c_ulong(6), options.encode()):
        raise OSError(ctypes.get_errno(), f"FUSE does not mount on {path}")
    return fuse


def main():
    """Serves; SIGUSR1 turns the delays off, SIGUSR2 turns them on."""
    path, backing, size, latency_s, read_bps, write_bps = sys.argv[1:]
    head = Head(float(latency_s), float(read_bps), float(write_bps))
    for number, is_slow in ((signal.SIGUSR1, False), (signal.SIGUSR2, True)):
        signal.signal(number, lambda *_, is_slow=is_slow: setattr(head, "is_slow", is_slow))
    # A device does not wait for a core.
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    fuse = mount(path)
    print("ready", flush=True)
    Served(fuse, os.open(backing, os.O_RDWR), int(size), head).serve()


def start(path, backing, size, latency_s, read_bps, write_bps):
    """Serves the disk in its own process, which ends when `path` is unmounted."""
    words = [path, backing, size, latency_s, read_bps, write_bps]
    command = [sys.executable, "-m", "benches.tiers.disk", *map(str, words)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    if process.stdout.readline().strip() != "ready":
        raise OSError(f"no disk at {path}: its process ended with {process.wait()}")
    return process


if __name__ == "__main__":
    main()
