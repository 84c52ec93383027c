"""Directories and files by fsspec, `cenote://`."""

import os

import fsspec

from .seen import Seen, failure


class FsspecView:
    """Files of a store by fsspec. Paths begin with the container's name."""

    def __init__(self, store: str) -> None:
        os.umask(0o022)
        self.fs = fsspec.filesystem("cenote", store=store, skip_instance_cache=True)

    # Changes.

    def put(self, path: str, value: bytes) -> None:
        self.fs.pipe_file(path, value)

    def write(self, path: str, value: bytes, flags: str) -> None:
        with self.fs.open(path, {"truncate": "wb", "exclusive": "xb"}[flags]) as out:
            out.write(value)

    def pwrite(self, path: str, value: bytes, offset: int) -> None:
        with self.fs.open(path, "r+b") as file:
            file.seek(offset)
            file.write(value)

    def append(self, path: str, value: bytes) -> None:
        with self.fs.open(path, "ab") as out:
            out.write(value)

    def in_transaction(self, path: str, value: bytes) -> None:
        """In a transaction of fsspec's: there when it ends."""
        with self.fs.transaction, self.fs.open(path, "wb") as out:
            out.write(value)

    def rename(self, old: str, new: str) -> None:
        self.fs.mv(old, new, recursive=True)

    def copy_whole(self, old: str, new: str) -> None:
        self.fs.cp_file(old, new)

    def unlink(self, path: str) -> None:
        self.fs.rm_file(path)

    def unlink_many(self, paths: list[str]) -> None:
        self.fs.rm(paths)

    def mkdir(self, path: str) -> None:
        self.fs.mkdir(path, create_parents=False)

    def rmdir(self, path: str) -> None:
        self.fs.rmdir(path)

    def remove_all(self, path: str) -> None:
        self.fs.rm(path, recursive=True)

    def publish(self, path: str) -> None:
        self.fs.files.sync_dir(f"/{path}")

    # What is seen.

    def see(self, path: str) -> Seen:
        try:
            return self.look(path)
        except OSError as error:
            return failure(error)

    def look(self, path: str) -> Seen:
        info = self.fs.info(path)
        if info["islink"]:
            return Seen("link")
        if info["type"] == "directory":
            names = tuple(sorted(name.rpartition("/")[2] for name in self.fs.ls(path, detail=False)))
            return Seen("dir", names=names, mode=info["mode"] & 0o7777, links=info["nlink"])
        content = self.fs.cat_file(path)
        return Seen("file", size=info["size"], content=content, mode=info["mode"] & 0o7777, links=info["nlink"])

    def top(self) -> list[str]:
        return sorted(name for name in self.fs.ls("", detail=False) if name != "hdf5:")

    def everything(self, container: str) -> dict[str, Seen]:
        found: dict[str, Seen] = {}
        ways = [container]
        while ways:
            path = ways.pop()
            found[path] = seen = self.see(path)
            ways += [f"{path}/{name}" for name in seen.names or ()]
        return found
