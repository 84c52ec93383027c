"""Open files of a store as Python's files."""

import errno
import io
import os
from typing import Any

from . import _native


class FileIO(io.RawIOBase):
    """An open file with a position, without buffering: the base of `io.BufferedReader` and its like.

    `raw` is the file itself, with reads and writes at offsets.
    """

    def __init__(self, raw: _native.RawFile) -> None:
        super().__init__()
        self.raw = raw
        self.name = raw.name
        self.mode = {
            (True, False): "rb",
            (True, True): "rb+",
            (False, True): "wb",
        }[raw.readable, raw.writable]
        self._at = raw.size() if raw.appends else 0

    def readable(self) -> bool:
        return self.raw.readable

    def writable(self) -> bool:
        return self.raw.writable

    def seekable(self) -> bool:
        return True

    def _check(self, allowed: bool, what: str) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")
        if not allowed:
            raise io.UnsupportedOperation(what)

    def readinto(self, buffer: Any) -> int:
        self._check(self.raw.readable, "not readable")
        got = self.raw.preadinto(buffer, self._at)
        self._at += got
        return got

    def readall(self) -> bytes:
        self._check(self.raw.readable, "not readable")
        found = self.raw.pread(max(self.raw.size() - self._at, 0), self._at)
        self._at += len(found)
        return found

    def write(self, buffer: Any) -> int:
        self._check(self.raw.writable, "not writable")
        size = memoryview(buffer).nbytes
        if self.raw.appends:
            self._at = self.raw.append(buffer)
        else:
            self.raw.pwrite(buffer, self._at)
        self._at += size
        return size

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._check(True, "")
        match whence:
            case os.SEEK_SET:
                at = offset
            case os.SEEK_CUR:
                at = self._at + offset
            case os.SEEK_END:
                at = self.raw.size() + offset
            case os.SEEK_DATA:
                at = self.raw.next_data(offset)
            case os.SEEK_HOLE:
                at = self.raw.next_hole(offset)
            case _:
                raise ValueError(f"invalid whence ({whence})")
        if at < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), self.name)
        self._at = at
        return at

    def tell(self) -> int:
        self._check(True, "")
        return self._at

    def truncate(self, size: int | None = None) -> int:
        self._check(self.raw.writable, "not writable")
        size = self._at if size is None else size
        self.raw.truncate(size)
        return size

    def view(self, offset: int = 0, size: int | None = None) -> _native.View:
        """Bytes of the file, by reference if they are in one piece of mapped memory."""
        self._check(self.raw.readable, "not readable")
        return self.raw.view(offset, size)

    def sync(self) -> None:
        """Return when written data survive power loss."""
        self._check(True, "")
        self.raw.sync()

    def close(self) -> None:
        if not self.closed:
            try:
                super().close()
            finally:
                self.raw.close()


_BUFFER_BYTES = 256 * 1024


def buffered(
    raw: _native.RawFile,
    mode: str = "rb",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
) -> Any:
    """Wraps an open file as the built-in `open` does."""
    if "b" in mode and (encoding or errors or newline is not None):
        raw.close()
        raise ValueError("binary mode doesn't take an encoding, errors or newline argument")
    file = FileIO(raw)
    if buffering == 0:
        if "b" not in mode:
            file.close()
            raise ValueError("can't have unbuffered text I/O")
        return file
    size = buffering if buffering > 1 else _BUFFER_BYTES
    whole: Any
    if raw.readable and raw.writable:
        whole = io.BufferedRandom(file, size)  # type: ignore[arg-type]
    elif raw.writable:
        whole = io.BufferedWriter(file, size)  # type: ignore[arg-type]
    else:
        whole = io.BufferedReader(file, size)  # type: ignore[arg-type]
    if "b" in mode:
        return whole
    return io.TextIOWrapper(whole, encoding, errors, newline, line_buffering=buffering == 1)
