"""Directories and files by system calls: the mount, and the oracle's tree."""

import contextlib
import errno
import mmap
import os
import shutil
import stat
from pathlib import Path

from .seen import CONTENT_MAX, Seen, failure

# Of Linux: <linux/falloc.h>.
FALLOC_FL_KEEP_SIZE = 1
FALLOC_FL_PUNCH_HOLE = 2


class PosixView:
    """Files below a directory, by system calls. Paths begin with the container's name."""

    def __init__(self, root: str) -> None:
        os.umask(0o022)
        self.root = root
        self.held: dict[int, int] = {}

    def at(self, path: str) -> str:
        """The path of the machine's."""
        return f"{self.root}/{path}"

    # Changes.

    def put(self, path: str, value: bytes, mode: int = 0o644) -> None:
        """A whole file in its place at once; directories above are made."""
        self.make_parents(path)
        at = self.at(path)
        if os.path.isdir(at) and not os.path.islink(at):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), path)  # and its parent's time stays
        beside = self.at(path.rpartition("/")[0] + "/.beside")
        with open(os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode), "wb") as out:
            out.write(value)
        try:
            os.rename(beside, at)
        except OSError:
            os.unlink(beside)
            raise

    def make_parents(self, path: str) -> None:
        """Directories above a path."""
        above = path.rpartition("/")[0]
        try:
            os.makedirs(self.at(above), exist_ok=True)
        except FileExistsError as error:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), above) from error

    def write(self, path: str, value: bytes, flags: str) -> None:
        """A file opened and written from its beginning. flags: truncate, or exclusive."""
        how = {"truncate": os.O_TRUNC, "exclusive": os.O_EXCL}[flags]
        with open(os.open(self.at(path), os.O_CREAT | os.O_WRONLY | how, 0o666), "wb", buffering=0) as out:
            out.write(value)

    def pwrite(self, path: str, value: bytes, offset: int) -> None:
        """Bytes at an offset of a file that is there."""
        with self.opened(path, os.O_WRONLY) as fd:
            if os.pwrite(fd, value, offset) != len(value):
                raise OSError(errno.EIO, "a short write", path)

    def pieces(self, path: str, pieces: list[tuple[int, bytes]]) -> None:
        """Several pieces by one descriptor."""
        with self.opened(path, os.O_WRONLY) as fd:
            for offset, value in pieces:
                os.pwrite(fd, value, offset)

    def append(self, path: str, value: bytes) -> None:
        """Bytes at the end; the file is made if it is not there."""
        with self.opened(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT) as fd:
            os.write(fd, value)

    def mapped(self, path: str, value: bytes, offset: int) -> None:
        """Bytes through a shared mapping, within the file."""
        with self.opened(path, os.O_RDWR) as fd:
            size = os.fstat(fd).st_size
            value = value[: max(size - offset, 0)]
            if not value:
                return
            with mmap.mmap(fd, size) as shared:
                shared[offset : offset + len(value)] = value
                shared.flush()

    def truncate(self, path: str, size: int) -> None:
        os.truncate(self.at(path), size)

    def punch(self, path: str, offset: int, size: int) -> None:
        """A hole."""
        import ctypes

        with self.opened(path, os.O_WRONLY) as fd:
            libc = ctypes.CDLL(None, use_errno=True)
            mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
            if libc.fallocate(fd, mode, ctypes.c_long(offset), ctypes.c_long(size)) != 0:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), path)

    def rename(self, old: str, new: str) -> None:
        try:
            os.rename(self.at(old), self.at(new))
        except OSError as error:
            # Of or onto a directory that another view has moved there: the kernel knows after a look (docs/mount.md).
            if error.errno != errno.ESTALE:
                raise
            for path in (old, new):
                os.path.lexists(self.at(path))
            os.rename(self.at(old), self.at(new))

    def copy(self, old: str, new: str) -> None:
        """The bytes of a file into another, which is made or emptied."""
        with self.opened(old, os.O_RDONLY) as source, self.opened(new, os.O_WRONLY | os.O_CREAT) as copy:
            if os.fstat(source).st_ino == os.fstat(copy).st_ino:
                return
            os.ftruncate(copy, 0)
            at, size = 0, os.fstat(source).st_size
            while at < size:
                done = os.copy_file_range(source, copy, size - at, at, at)
                if done == 0:
                    raise OSError(errno.EIO, "copy_file_range says that the file has ended", old)
                at += done

    def link(self, old: str, new: str) -> None:
        os.link(self.at(old), self.at(new), follow_symlinks=False)

    def symlink(self, target: str, path: str) -> None:
        os.symlink(target, self.at(path))

    def unlink(self, path: str) -> None:
        os.unlink(self.at(path))

    def mkdir(self, path: str) -> None:
        os.mkdir(self.at(path))

    def rmdir(self, path: str) -> None:
        os.rmdir(self.at(path))

    def remove_all(self, path: str) -> None:
        """A directory with all below it, or a file."""
        if stat.S_ISDIR(os.lstat(self.at(path)).st_mode):
            shutil.rmtree(self.at(path))
        else:
            os.unlink(self.at(path))

    def chmod(self, path: str, mode: int) -> None:
        os.chmod(self.at(path), mode)

    def utime(self, path: str, ns: int) -> None:
        os.utime(self.at(path), ns=(ns, ns))

    def setxattr(self, path: str, name: str, value: bytes) -> None:
        os.setxattr(self.at(path), name, value)

    def removexattr(self, path: str, name: str) -> None:
        os.removexattr(self.at(path), name)

    def publish(self, path: str) -> None:
        """In a directory of consistency `commit`: others see what this view has made."""
        fd = os.open(self.at(path), os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    # Files that stay open.

    def hold(self, number: int, path: str) -> None:
        """Opens a file and keeps it open."""
        self.held[number] = os.open(self.at(path), os.O_RDWR)

    def write_held(self, number: int, value: bytes, offset: int) -> None:
        os.pwrite(self.held[number], value, offset)

    def read_held(self, number: int) -> bytes:
        fd = self.held[number]
        size = os.fstat(fd).st_size
        return os.pread(fd, min(size, CONTENT_MAX) + 1, 0)

    def drop(self, number: int) -> None:
        os.close(self.held.pop(number))

    # What is seen.

    def see(self, path: str) -> Seen:
        """All that this view shows at a path."""
        try:
            return self.look(path)
        except OSError as error:
            return failure(error)

    def look(self, path: str) -> Seen:
        at = self.at(path)
        found = os.lstat(at)
        seen = Seen("other", mode=stat.S_IMODE(found.st_mode), links=found.st_nlink, modified=found.st_mtime_ns)
        if stat.S_ISLNK(found.st_mode):
            return Seen("link", target=os.readlink(at))
        if stat.S_ISDIR(found.st_mode):
            seen.kind, seen.names = "dir", tuple(sorted(os.listdir(at)))
        elif stat.S_ISREG(found.st_mode):
            seen.kind, seen.size = "file", found.st_size
            with self.opened(path, os.O_RDONLY) as fd:
                seen.content = os.pread(fd, CONTENT_MAX + 1, 0)
        names = [name for name in os.listxattr(at) if name.startswith("user.t.")]
        seen.xattrs = tuple(sorted((name, os.getxattr(at, name)) for name in names))
        return seen

    def top(self) -> list[str]:
        """Containers."""
        return sorted(os.listdir(self.root))

    @contextlib.contextmanager
    def opened(self, path: str, flags: int):
        """A descriptor for a while."""
        fd = os.open(self.at(path), flags, 0o666)
        try:
            yield fd
        finally:
            os.close(fd)

    def everything(self, container: str) -> dict[str, Seen]:
        """All that is in a container."""
        found = {container: self.see(container)}
        for directory, directories, files in os.walk(self.at(container)):
            above = str(Path(directory).relative_to(self.root))
            for name in directories + files:
                found[f"{above}/{name}"] = self.see(f"{above}/{name}")
        return found
