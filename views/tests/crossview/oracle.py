"""What must be there: a tree that the kernel keeps, with what S3 alone knows beside it."""

import errno
import hashlib
import os
import shutil
import stat
from dataclasses import dataclass

from .posix import PosixView
from .seen import Seen

EMPTY_MD5 = hashlib.md5(b"").hexdigest()


@dataclass
class Kept:
    """What S3 was told about an object."""

    meta: tuple[tuple[str, str], ...]
    # None: not known, as of copies of what was written by others.
    etag: str | None
    # Size and time of change of the oracle's file then: others have written since if they differ.
    stamp: tuple[int, int]


def _kind(at: str) -> str:
    try:
        mode = os.lstat(at).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return "nothing"
    return {stat.S_IFDIR: "dir", stat.S_IFREG: "file"}.get(stat.S_IFMT(mode), "other")


def collision(path: str) -> OSError:
    """A key that would be a file and a directory at once."""
    return OSError(errno.EEXIST, "collision", path)


class Oracle:
    """The expected state. `apply` does what a view is asked to do; `expected` says what a view must show then."""

    def __init__(self, root: str) -> None:
        self.tree = PosixView(root)
        self.kept: dict[int, Kept] = {}
        # Directories that are there because of keys below, and those that are keys.
        self.implied: set[int] = set()
        self.marked: set[int] = set()
        # Files written by a descriptor that is still open: their times may not be known to others yet.
        self.untimed: set[int] = set()

    def ino(self, path: str) -> int:
        return os.lstat(self.tree.at(path)).st_ino

    def held_ino(self, number: int) -> int:
        """The number of a file that is held open."""
        return os.fstat(self.tree.held[number]).st_ino

    def is_unlinked(self, number: int) -> bool:
        """Whether a file that is held open has no name any more."""
        return os.fstat(self.tree.held[number]).st_nlink == 0

    def forget(self, paths: list[str]) -> None:
        """Numbers that are no more, since the file system may use them again. paths: all that is there."""
        there = {os.fstat(fd).st_ino for fd in self.tree.held.values()}
        there.update(map(self.ino, paths))
        self.untimed &= there
        self.implied &= there
        self.marked &= there
        for number in set(self.kept) - there:
            del self.kept[number]

    def paths(self, container: str) -> list[str]:
        """All that is in a container, itself first, in an order that does not depend on the file system."""
        found, ways = [container], [container]
        while ways:
            path = ways.pop()
            with os.scandir(self.tree.at(path)) as entries:
                inside = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
            found += [f"{path}/{name}" for name, _ in inside]
            ways += [f"{path}/{name}" for name, is_dir in inside if is_dir]
        return found

    # Doing.

    def apply(self, view: str, name: str, arguments: tuple) -> int | None:
        """Does it; the number of the error if it fails."""
        act = getattr(self, f"{view}_{name}", None) or getattr(self, f"any_{name}", None) or getattr(self.tree, name)
        try:
            act(*arguments)
        except OSError as error:
            return error.errno
        return None

    def any_punch(self, path: str, offset: int, size: int) -> None:
        self.tree.punch(path, offset, size)
        os.utime(self.tree.at(path))  # which tmpfs leaves alone

    def any_mapped(self, path: str, value: bytes, offset: int) -> None:
        self.tree.mapped(path, value, offset)
        if offset < os.stat(self.tree.at(path)).st_size:
            os.utime(self.tree.at(path))

    def any_write_held(self, number: int, value: bytes, offset: int) -> None:
        self.tree.write_held(number, value, offset)
        self.untimed.add(os.fstat(self.tree.held[number]).st_ino)

    def any_drop(self, number: int) -> None:
        ino = os.fstat(self.tree.held[number]).st_ino
        self.tree.drop(number)
        if all(os.fstat(fd).st_ino != ino for fd in self.tree.held.values()):
            self.untimed.discard(ino)

    def fsspec_write(self, path: str, value: bytes, flags: str) -> None:
        self.tree.make_parents(path)
        self.tree.write(path, value, flags)

    def fsspec_append(self, path: str, value: bytes) -> None:
        self.tree.make_parents(path)
        self.tree.append(path, value)

    def fsspec_in_transaction(self, path: str, value: bytes) -> None:
        self.tree.put(path, value)

    def fsspec_rename(self, old: str, new: str) -> None:
        self.tree.make_parents(new)
        self.tree.rename(old, new)

    def fsspec_copy_whole(self, old: str, new: str) -> None:
        self.tree.make_parents(new)
        with open(self.tree.at(old), "rb") as source:
            self.tree.put(new, source.read())

    def any_unlink_many(self, paths: list[str]) -> None:
        for path in paths:
            self.tree.unlink(path)

    # What S3 does.

    def way(self, path: str, make: bool) -> bool:
        """Whether a key's directories are there; made if they are to be, a collision if they cannot."""
        parts = path.split("/")
        for end in range(1, len(parts)):
            above = "/".join(parts[:end])
            kind = _kind(self.tree.at(above))
            if kind == "nothing" and make:
                os.mkdir(self.tree.at(above), 0o755)
                self.implied.add(self.ino(above))
            elif kind != "dir":
                if make:
                    raise collision(path)
                return False
        return True

    def prune(self, path: str) -> None:
        """Directories above a path that only keys brought about, and that are empty."""
        above = path.rpartition("/")[0]
        while "/" in above:
            ino = self.ino(above)
            if ino not in self.implied or ino in self.marked or os.listdir(self.tree.at(above)):
                return
            os.rmdir(self.tree.at(above))
            above = above.rpartition("/")[0]

    def s3_put(self, path: str, value: bytes, meta: dict[str, str] | None = None) -> None:
        self.place(path, value, tuple(sorted((meta or {}).items())), hashlib.md5(value).hexdigest())

    def place(self, path: str, value: bytes, meta: tuple[tuple[str, str], ...], etag: str | None) -> None:
        self.way(path, make=True)
        if _kind(self.tree.at(path)) not in ("file", "nothing"):
            raise collision(path)
        self.tree.put(path, value)
        found = os.lstat(self.tree.at(path))
        self.kept[found.st_ino] = Kept(meta, etag, (found.st_size, found.st_mtime_ns))

    def s3_put_new(self, path: str, value: bytes) -> None:
        if self.way(path, make=True) and _kind(self.tree.at(path)) != "nothing":
            raise collision(path)
        self.s3_put(path, value)

    def s3_put_over(self, path: str, value: bytes) -> None:
        if not (self.way(path, make=False) and _kind(self.tree.at(path)) == "file"):
            raise FileNotFoundError(errno.ENOENT, "no such key", path)
        self.s3_put(path, value)

    def s3_put_in_parts(self, path: str, parts: list[bytes]) -> None:
        whole = hashlib.md5(b"".join(hashlib.md5(part).digest() for part in parts)).hexdigest()
        self.place(path, b"".join(parts), (), f"{whole}-{len(parts)}")

    def s3_copy_whole(self, old: str, new: str) -> None:
        if not (self.way(old, make=False) and _kind(self.tree.at(old)) == "file"):
            raise FileNotFoundError(errno.ENOENT, "no such key", old)
        with open(self.tree.at(old), "rb") as source:
            value = source.read()
        kept = self.kept.get(self.ino(old))
        etag = self.etag(old)
        self.place(new, value, kept.meta if kept else (), None if etag == "-c" else etag)

    def s3_unlink(self, path: str) -> None:
        if self.way(path, make=False) and _kind(self.tree.at(path)) == "file":
            self.tree.unlink(path)
            self.prune(path)

    def s3_unlink_many(self, paths: list[str]) -> None:
        for path in paths:
            self.s3_unlink(path)

    def s3_mkdir(self, path: str) -> None:
        self.way(path, make=True)
        kind = _kind(self.tree.at(path))
        if kind == "nothing":
            self.tree.mkdir(path)
            self.implied.add(self.ino(path))
        elif kind != "dir":
            raise collision(path)
        self.marked.add(self.ino(path))

    def s3_rmdir(self, path: str) -> None:
        if self.way(path, make=False) and _kind(self.tree.at(path)) == "dir" and self.ino(path) in self.marked:
            self.marked.discard(self.ino(path))
            self.prune(f"{path}/")

    # Expecting.

    def etag(self, path: str) -> str | None:
        """The ETag of a file: "-c" for one that ends so, None for one that is not known."""
        found = os.lstat(self.tree.at(path))
        kept = self.kept.get(found.st_ino)
        if found.st_ino in self.untimed:
            return None
        if kept is None or kept.stamp != (found.st_size, found.st_mtime_ns):
            return "-c"
        return kept.etag

    def expected(self, view: str, path: str) -> Seen:
        """What a view must show at a path."""
        if view == "s3":
            return self.expected_of_s3(path)
        seen = self.tree.see(path)
        if view == "fsspec":
            # It knows neither attributes nor what links say.
            seen.xattrs = seen.target = None
        return seen

    def expected_of_s3(self, path: str) -> Seen:
        there = is_text(path) and self.way(path, make=False)
        kind = _kind(self.tree.at(path)) if there else "nothing"
        if kind == "file":
            seen = self.tree.see(path)
            kept = self.kept.get(self.ino(path))
            found = Seen("file", size=seen.size, content=seen.content, etag=self.etag(path))
            found.meta = kept.meta if kept else ()
            return found
        names = self.names_of_s3(path) if kind == "dir" else ()
        if names or (kind == "dir" and "/" not in path):
            return Seen("dir", names=names)
        return Seen("error", errno=errno.ENOENT)

    def names_of_s3(self, path: str) -> tuple[str, ...]:
        """Names right below a prefix."""
        found = ["."] if self.ino(path) in self.marked else []
        for name in os.listdir(self.tree.at(path)):
            at = f"{path}/{name}"
            kind = _kind(self.tree.at(at))
            if kind == "file" and is_text(name):
                found.append(name)
            elif kind == "dir" and is_text(name) and self.has_keys(at):
                found.append(f"{name}/")
        return tuple(sorted(found))

    def has_keys(self, path: str) -> bool:
        return bool(self.names_of_s3(path))

    def keys(self, container: str) -> tuple[str, ...]:
        """All keys, in the order of their bytes."""
        found = []
        for path in self.paths(container)[1:]:
            kind = _kind(self.tree.at(path))
            key = path.partition("/")[2]
            if not is_text(key):
                continue
            if kind == "file":
                found.append(key)
            elif kind == "dir" and self.ino(path) in self.marked:
                found.append(f"{key}/")
        return tuple(sorted(found, key=str.encode))

    def everything(self, view: str, container: str) -> dict[str, Seen]:
        """All that a view must show."""
        if view != "s3":
            return {path: self.expected(view, path) for path in self.paths(container)}
        keys = self.keys(container)
        whole = {"": Seen("keys", names=keys)}
        files = [f"{container}/{key}" for key in keys if not key.endswith("/")]
        return whole | {path: self.expected("s3", path) for path in files}

    def end(self) -> None:
        for number in list(self.tree.held):
            self.tree.drop(number)
        shutil.rmtree(self.tree.root, ignore_errors=True)


def is_text(name: str) -> bool:
    """Whether a name is UTF-8: others are no keys."""
    return not any("\ud800" <= letter <= "\udfff" for letter in name)
