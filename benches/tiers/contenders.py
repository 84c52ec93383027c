"""Four ways to use memory above a slow disk: none, a plain write-back cache, the kernel's page cache, and Cenote. All
have the same memory and write the same bytes, and `flush` means the same for all: what was written survives power
loss.
"""

import os
import threading
from collections import OrderedDict

import numpy

from benches.tiers.layers import MIB, aligned

PIECE = MIB
# Direct I/O needs whole sectors; larger ones are no slower.
SECTOR = 4096
# Memory of a process itself in a memory control group, beside the cache.
OWN_BYTES = 4 * MIB


def buffer_of(size):
    """Returns an aligned buffer, as an array and in the form for system calls."""
    memory = aligned(size)
    return numpy.frombuffer(memory, dtype=numpy.uint8), memoryview(memory)


class Direct:
    """No buffering: each call goes to the slow layer and is complete when it returns."""

    def __init__(self, setup):
        self.device = os.open(setup["slow"], os.O_RDWR | os.O_DIRECT | os.O_DSYNC)
        self.bounce = buffer_of(PIECE + 2 * SECTOR)
        self.written = set()  # sectors with content: others need not be read

    def _pieces(self, offset, size):
        """Yields each piece of a range: its offset, its length, and the whole sectors around it."""
        end = offset + size
        while offset < end:
            length = min(end - offset, PIECE)
            first, last = offset // SECTOR * SECTOR, -(-(offset + length) // SECTOR) * SECTOR
            yield offset, length, first, last - first
            offset += length

    def write(self, offset, buffer):
        source = numpy.frombuffer(buffer, dtype=numpy.uint8)
        array, view = self.bounce
        base = offset
        for at, length, first, whole in self._pieces(offset, len(source)):
            sectors = range(first // SECTOR, (first + whole) // SECTOR)
            if whole != length and not self.written.isdisjoint((sectors[0], sectors[-1])):
                os.preadv(self.device, [view[:whole]], first)
            self.written.update(sectors)
            numpy.copyto(array[at - first : at - first + length], source[at - base : at - base + length])
            os.pwrite(self.device, view[:whole], first)

    def read(self, offset, buffer):
        target = numpy.frombuffer(buffer, dtype=numpy.uint8)
        array, view = self.bounce
        base = offset
        for at, length, first, whole in self._pieces(offset, len(target)):
            os.preadv(self.device, [view[:whole]], first)
            numpy.copyto(target[at - base : at - base + length], array[at - first : at - first + length])

    def flush(self):
        """Nothing to do."""

    def close(self):
        os.close(self.device)


class WriteBack:
    """A plain write-back cache of pieces of 1 MiB. A thread writes dirty pieces, at once and in the order in which they
    became dirty; the least recently used clean piece is evicted. Reads fill the cache or hit it."""

    def __init__(self, setup):
        self.device = os.open(setup["slow"], os.O_RDWR | os.O_DIRECT | os.O_DSYNC)
        slots = setup["memory_bytes"] // PIECE
        self.array, self.memory = buffer_of(slots * PIECE)
        self.free = list(range(slots))
        self.where = OrderedDict()  # piece -> slot, least recently used first
        self.dirty = OrderedDict()  # pieces, in the order of write-back
        self.written = set()  # pieces with content: others need not be read
        self.writing = None
        self.changed = threading.Condition()
        self.is_closing = False
        self.failure = None
        self.thread = threading.Thread(target=self._write_out, daemon=True)
        self.thread.start()

    def _write_out(self):
        while True:
            with self.changed:
                while not self.dirty and not self.is_closing:
                    self.changed.wait()
                if not self.dirty:
                    return
                piece, _ = self.dirty.popitem(last=False)
                self.writing = piece
                at = self.where[piece] * PIECE
            try:
                os.pwrite(self.device, self.memory[at : at + PIECE], piece * PIECE)
            except OSError as why:
                self.failure = why
            with self.changed:
                self.writing = None
                self.changed.notify_all()

    def _take(self, piece):
        """Returns the slot of a piece, assigning one if necessary, and whether it was cached. Needs the lock."""
        while True:
            if self.failure:
                raise self.failure
            if piece in self.where:
                self.where.move_to_end(piece)
                return self.where[piece] * PIECE, True
            if self.free:
                slot = self.free.pop()
            else:
                clean = (old for old in self.where if old not in self.dirty and old != self.writing)
                leaving = next(clean, None)
                if leaving is None:
                    self.changed.wait()
                    continue
                slot = self.where.pop(leaving)
            self.where[piece] = slot
            return slot * PIECE, False

    def _pieces(self, offset, size):
        end = offset + size
        while offset < end:
            piece, inside = divmod(offset, PIECE)
            length = min(end - offset, PIECE - inside)
            yield offset, piece, inside, length
            offset += length

    def write(self, offset, buffer):
        source = numpy.frombuffer(buffer, dtype=numpy.uint8)
        for at, piece, inside, length in self._pieces(offset, len(source)):
            with self.changed:
                while self.writing == piece:
                    self.changed.wait()
                slot, was_there = self._take(piece)
                self.dirty.pop(piece, None)
            if not was_there and length < PIECE and piece in self.written:
                os.preadv(self.device, [self.memory[slot : slot + PIECE]], piece * PIECE)
            self.written.add(piece)
            numpy.copyto(self.array[slot + inside : slot + inside + length], source[at - offset : at - offset + length])
            with self.changed:
                self.dirty[piece] = True
                self.changed.notify_all()

    def read(self, offset, buffer):
        target = numpy.frombuffer(buffer, dtype=numpy.uint8)
        for at, piece, inside, length in self._pieces(offset, len(target)):
            with self.changed:
                slot, was_there = self._take(piece)
            if not was_there:
                os.preadv(self.device, [self.memory[slot : slot + PIECE]], piece * PIECE)
            numpy.copyto(target[at - offset : at - offset + length], self.array[slot + inside : slot + inside + length])

    def flush(self):
        with self.changed:
            while self.dirty or self.writing is not None:
                if self.failure:
                    raise self.failure
                self.changed.wait()

    def close(self):
        with self.changed:
            self.is_closing = True
            self.changed.notify_all()
        self.thread.join()
        os.close(self.device)


class PageCache:
    """The kernel's page cache over the slow layer, in a memory control group of that size."""

    def __init__(self, setup):
        group = setup["group"]
        with open(f"{group}/cgroup.procs", "w") as procs:
            procs.write(str(os.getpid()))
        # Pages belong to the group that first touched them: earlier pages of the process are not in this one.
        with open(f"{group}/memory.limit_in_bytes", "w") as file:
            file.write(str(setup["memory_bytes"] + OWN_BYTES))
        self.device = os.open(setup["slow"], os.O_RDWR)

    def write(self, offset, buffer):
        os.pwrite(self.device, buffer, offset)

    def read(self, offset, buffer):
        os.preadv(self.device, [buffer], offset)

    def flush(self):
        os.fsync(self.device)

    def close(self):
        os.close(self.device)


class Cenote:
    """A store over all three layers, served by a daemon; an object for each `span` bytes."""

    def __init__(self, setup):
        import cenote

        self.store = cenote.open(setup["store"], mode="daemon", create=False)
        self.span = setup["span"]
        durability = setup.get("durability", "async")
        self.container = self.store.create_container("bench", durability=durability, policy=setup["policy"])
        self.objects = {}

    def _object(self, number):
        if number not in self.objects:
            self.objects[number] = self.container.create_object(number)
        return self.objects[number]

    def write(self, offset, buffer):
        number, at = divmod(offset, self.span)
        self._object(number).write(at, buffer)

    def read(self, offset, buffer):
        number, at = divmod(offset, self.span)
        self._object(number).readinto(at, buffer)

    def places(self):
        """Returns the bytes on each tier, by place of reading."""
        found = {}
        for obj in self.objects.values():
            for part in self.store.explain(obj).ranges:
                found[part.tier] = found.get(part.tier, 0) + part.length
        return found

    def flush(self):
        self.container.flush()

    def close(self):
        self.store.close()


KINDS = {"direct": Direct, "write-back": WriteBack, "page-cache": PageCache, "cenote": Cenote}


class FileLike:
    """A range of a contender's bytes as a file, for h5py's driver for Python objects."""

    def __init__(self, contender, base):
        self.contender, self.base = contender, base
        self.at, self.size = 0, 0

    def seek(self, offset, whence=os.SEEK_SET):
        self.at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self.at, os.SEEK_END: self.size}[whence]
        return self.at

    def tell(self):
        return self.at

    def truncate(self, size):
        self.size = size
        return size

    def write(self, buffer):
        length = memoryview(buffer).nbytes
        self.contender.write(self.base + self.at, buffer)
        self.at += length
        self.size = max(self.size, self.at)
        return length

    def read(self, size=-1):
        buffer = bytearray(max(0, self.size - self.at if size < 0 else size))
        return bytes(buffer[: self.readinto(buffer)])

    def readinto(self, buffer):
        view = memoryview(buffer).cast("B")
        length = max(0, min(view.nbytes, self.size - self.at))
        if length:
            self.contender.read(self.base + self.at, view[:length])
        self.at += length
        return length

    def flush(self):
        """Nothing is held back here."""
