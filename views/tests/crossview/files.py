"""Directories and files by `store.files`, the Python face of the Rust crate."""

import errno
import os

import cenote

from .seen import CONTENT_MAX, Seen, failure


class FilesView:
    """Files of a store by the API. Paths begin with the container's name."""

    def __init__(self, store: str) -> None:
        os.umask(0o022)
        self.store = cenote.open(store, mode="daemon", create=False)
        self.files = self.store.files
        self.held: dict[int, object] = {}

    @staticmethod
    def at(path: str) -> str:
        """The path of the API's."""
        return f"/{path}"

    # Changes.

    def put(self, path: str, value: bytes) -> None:
        self.files.put(self.at(path), value)

    def write(self, path: str, value: bytes, flags: str) -> None:
        with self.files.open(self.at(path), {"truncate": "wb", "exclusive": "xb"}[flags]) as out:
            out.write(value)

    def pwrite(self, path: str, value: bytes, offset: int) -> None:
        self.pieces(path, [(offset, value)])

    def pieces(self, path: str, pieces: list[tuple[int, bytes]]) -> None:
        raw = self.files.open_raw(self.at(path), "r+b")
        for offset, value in pieces:
            raw.pwrite(value, offset)
        raw.close()

    def append(self, path: str, value: bytes) -> None:
        raw = self.files.open_raw(self.at(path), "ab")
        raw.append(value)
        raw.close()

    def truncate(self, path: str, size: int) -> None:
        self.files.truncate(self.at(path), size)

    def punch(self, path: str, offset: int, size: int) -> None:
        raw = self.files.open_raw(self.at(path), "r+b")
        raw.punch(offset, size)
        raw.close()

    def rename(self, old: str, new: str) -> None:
        self.files.rename(self.at(old), self.at(new))

    def copy(self, old: str, new: str) -> None:
        source = self.files.open_raw(self.at(old), "rb")
        try:
            if self._ino(new) == source.stat().st_ino:
                return
            copy = self.files.open_raw(self.at(new), "wb")
            copy.copy_from(source, 0, 0, source.size())
            copy.close()
        finally:
            source.close()

    def _ino(self, path: str) -> int | None:
        try:
            return self.files.stat(self.at(path)).st_ino
        except OSError:
            return None

    def link(self, old: str, new: str) -> None:
        self.files.link(self.at(old), self.at(new))

    def symlink(self, target: str, path: str) -> None:
        self.files.symlink(target, self.at(path))

    def unlink(self, path: str) -> None:
        self.files.remove(self.at(path))

    def mkdir(self, path: str) -> None:
        self.files.mkdir(self.at(path))

    def rmdir(self, path: str) -> None:
        self.files.rmdir(self.at(path))

    def remove_all(self, path: str) -> None:
        self.files.stat(self.at(path), follow_symlinks=False)
        self.files.remove_all(self.at(path))

    def chmod(self, path: str, mode: int) -> None:
        self.files.chmod(self.at(path), mode)

    def utime(self, path: str, ns: int) -> None:
        self.files.utime(self.at(path), ns=(ns, ns))

    def setxattr(self, path: str, name: str, value: bytes) -> None:
        self.files.setxattr(self.at(path), name, value)

    def removexattr(self, path: str, name: str) -> None:
        self.files.removexattr(self.at(path), name)

    def publish(self, path: str) -> None:
        self.files.sync_dir(self.at(path))

    # Files that stay open.

    def hold(self, number: int, path: str) -> None:
        self.held[number] = self.files.open_raw(self.at(path), "r+b")

    def write_held(self, number: int, value: bytes, offset: int) -> None:
        self.held[number].pwrite(value, offset)

    def read_held(self, number: int) -> bytes:
        raw = self.held[number]
        return raw.pread(min(raw.size(), CONTENT_MAX) + 1, 0)

    def drop(self, number: int) -> None:
        self.held.pop(number).close()

    # What is seen.

    def see(self, path: str) -> Seen:
        try:
            return self.look(path)
        except OSError as error:
            return failure(error)

    def look(self, path: str) -> Seen:
        at = self.at(path)
        found = self.files.stat(at, follow_symlinks=False)
        if found.is_symlink():
            return Seen("link", target=self.files.readlink(at))
        seen = Seen("other", mode=found.st_mode & 0o7777, links=found.st_nlink, modified=found.st_mtime_ns)
        if found.is_dir():
            seen.kind, seen.names = "dir", tuple(sorted(self.files.listdir(at)))
        elif found.is_file():
            seen.kind, seen.size = "file", found.st_size
            raw = self.files.open_raw(at, "rb")
            try:
                seen.content = raw.pread(CONTENT_MAX + 1, 0)
                # By reference, where it lies in mapped memory.
                if bytes(raw.view(0)) != seen.content:
                    raise OSError(errno.EIO, "a view has other bytes than a read", path)
            finally:
                raw.close()
        names = [name for name in self.files.listxattr(at) if name.startswith("user.t.")]
        seen.xattrs = tuple(sorted((name, bytes(self.files.getxattr(at, name))) for name in names))
        return seen

    def top(self) -> list[str]:
        return sorted(self.files.listdir("/"))

    def everything(self, container: str) -> dict[str, Seen]:
        found: dict[str, Seen] = {}
        ways = [container]
        while ways:
            path = ways.pop()
            found[path] = seen = self.see(path)
            ways += [f"{path}/{name}" for name in seen.names or ()]
        return found

    def check(self, container: str) -> list[str]:
        """What does not fit in the container's records."""
        return self.files.check(self.at(container))

    def consistency(self, container: str, word: str) -> None:
        """Sets how a container's names are seen."""
        self.files.setxattr(self.at(container), "user.cenote.consistency", word.encode())
