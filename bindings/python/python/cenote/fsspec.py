"""`cenote://`: files of a store for all users of fsspec (pandas, dask, xarray, pyarrow, zarr, torch, …).

    pandas.read_parquet("cenote:///scratch/store//results/a.parquet")
    fsspec.filesystem("cenote", store="/scratch/store").find("results")
    xarray.open_zarr("cenote:///scratch/store//hdf5:/data/run.h5")

A URL is `cenote://`, the store's directory, `//`, and the path: a container and a path in it. If the store is given as
`storage_options={"store": ...}`, or is the default one (`CENOTE_STORE`), the URL is `cenote://container/...`. Below
`hdf5:` are the store's HDF5 files by path, each a directory of Zarr's keys (`docs/zarr.md`).

Writing a file makes the missing directories above it. A file written by `pipe`, `put`, `cp`, or in a transaction
appears
whole or not at all; one that is open for writing grows while it is written.
"""

import contextlib
import datetime
import errno
import io
import os
import uuid
from pathlib import Path
from typing import Any

from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.spec import AbstractFileSystem
from fsspec.utils import stringify_path

from . import _native, _sessions
from ._files import FileIO

__all__ = ["CenoteFileSystem"]

_PROTOCOL = "cenote://"
_HDF5 = "hdf5:"
_COPY_BYTES = 4 << 20


class _Reader(io.BufferedReader):
    """A file open for reading."""

    raw: FileIO

    @property
    def size(self) -> int:
        """The file's present size in bytes."""
        return self.raw.raw.size()

    def view(self, offset: int = 0, size: int | None = None) -> memoryview:
        """Bytes of the file, by reference if they are in one piece of mapped memory."""
        return memoryview(self.raw.view(offset, size))


class _Writer(io.BufferedWriter):
    """A file open for writing; in a transaction, beside its place until the commit."""

    def __init__(self, raw: FileIO, files: _native.Files, path: str, beside: str | None) -> None:
        super().__init__(raw, 1 << 20)  # type: ignore[arg-type]
        self._files, self._path, self._beside = files, path, beside

    def commit(self) -> None:
        """Puts the file in its place."""
        if self._beside is not None:
            try:
                self._files.rename(self._beside, self._path)
            except OSError:
                self.discard()
                raise
            self._beside = None

    def discard(self) -> None:
        """Discards the file."""
        if self._beside is not None:
            self._files.remove(self._beside)
            self._beside = None


class _TreeWriter(io.BytesIO):
    """A key of an HDF5 file, written when closed."""

    def __init__(self, tree: _native.ZarrTree, key: str, autocommit: bool) -> None:
        super().__init__()
        self._tree, self._key, self._autocommit = tree, key, autocommit
        self._value: bytes | None = None

    def close(self) -> None:
        if not self.closed:
            self._value = self.getvalue()
            super().close()
            if self._autocommit:
                self.commit()

    def commit(self) -> None:
        """Sets the key."""
        if self._value is not None:
            self._tree.set(self._key, self._value)

    def discard(self) -> None:
        """Discards the value."""
        self._value = None


def _missing(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


class CenoteFileSystem(AbstractFileSystem):
    """Files of a store. store: its directory, else the default one. zarr_format: the format in which HDF5 files
    appear."""

    protocol = "cenote"
    root_marker = ""
    sep = "/"

    def __init__(
        self,
        store: str | os.PathLike[str] | _native.Store | None = None,
        zarr_format: int = 3,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.store_dir = _sessions.default_directory() if store is None else _sessions.directory(store)
        self.zarr_format = zarr_format
        if isinstance(store, _native.Store):
            _sessions.session(store)
        self._trees: dict[tuple[str, bool], tuple[int, _native.ZarrTree]] = {}

    def __reduce__(self) -> Any:
        options = {key: value for key, value in self.storage_options.items() if key not in ("store", "zarr_format")}
        return _again, (type(self), self.store_dir, self.zarr_format, options)

    @property
    def store(self) -> _native.Store:
        """The store."""
        return _sessions.session(self.store_dir)

    @property
    def files(self) -> _native.Files:
        """Its directories and files (`Store.files`)."""
        return self.store.files

    # Names.

    @staticmethod
    def _parts(url: str) -> tuple[str | None, str]:
        """The store's directory in a URL, if any, and the path."""
        if not url.startswith(_PROTOCOL):
            return None, url.strip("/")
        rest = url[len(_PROTOCOL) :]
        if rest.startswith("/"):
            store, mark, path = rest.partition("//")
            if mark and store:
                return store, path.strip("/")
        return None, rest.strip("/")

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        return cls._parts(stringify_path(path))[1]

    @staticmethod
    def _get_kwargs_from_urls(path: Any) -> dict[str, Any]:
        store, _ = CenoteFileSystem._parts(stringify_path(path))
        return {} if store is None else {"store": store}

    def unstrip_protocol(self, name: str) -> str:
        """The full URL of a path."""
        return f"{_PROTOCOL}{self.store_dir}//{self._strip_protocol(name)}"

    def _at(self, path: Any) -> str:
        return "/" + self._strip_protocol(path)

    # HDF5 files as directories.

    def _in_hdf5(self, path: str) -> tuple[str, str] | None:
        """The HDF5 file into which a path leads, and the key in it; the file is "" above all of them."""
        if path != _HDF5 and not path.startswith(_HDF5 + "/"):
            return None
        parts = path[len(_HDF5) :].strip("/").split("/")
        for end in range(1, len(parts) + 1):
            file = "/" + "/".join(parts[:end])
            if Path(file).is_file():
                return file, "/".join(parts[end:])
        return "", "/".join(parts)

    def _tree(self, file: str, writable: bool = False) -> _native.ZarrTree:
        known = self._trees.get((file, writable))
        if known is None or known[0] != os.getpid():
            tree = _native.ZarrTree.open(self.store, file, writable, self.zarr_format)
            known = self._trees[file, writable] = os.getpid(), tree
        return known[1]

    def _hdf5_above(self, path: str) -> dict[str, bool]:
        """Directories (True) and HDF5 files of the store directly below a directory of the machine."""
        begin = f"{_HDF5}/{path}/" if path else f"{_HDF5}/"
        below = (info.label.removeprefix(begin) for info in self.store.containers(begin))
        return {name.split("/")[0]: True for name in below}

    def _hdf5_info(self, path: str) -> dict[str, Any]:
        file, key = self._in_hdf5(path) or ("", "")
        if not file:
            if key and not self._hdf5_above(key):
                raise _missing(path)
            return {"name": path, "size": 0, "type": "directory"}
        size = self._tree(file).size(key)
        if size is None:
            raise _missing(path)
        return {"name": path, "size": max(size, 0), "type": "directory" if size < 0 else "file"}

    def _hdf5_ls(self, path: str) -> list[dict[str, Any]]:
        file, key = self._in_hdf5(path) or ("", "")
        if not file:
            names = self._hdf5_above(key)
            if key and not names:
                raise _missing(path)
            return [{"name": f"{path}/{name}", "size": 0, "type": "directory"} for name in sorted(names)]
        info = self._hdf5_info(path)
        if info["type"] == "file":
            return [info]
        return [
            {"name": f"{path}/{name}", "size": 0, "type": "directory"} if is_dir else self._hdf5_info(f"{path}/{name}")
            for name, is_dir in self._tree(file).list_dir(key)
        ]

    def _hdf5_key(self, path: str, writable: bool = False) -> tuple[_native.ZarrTree, str]:
        file, key = self._in_hdf5(path) or ("", "")
        if not file:
            raise _missing(path)
        return self._tree(file, writable), key

    # Listing and information.

    def _details(self, path: str, found: _native.FileStat) -> dict[str, Any]:
        is_link = found.is_symlink()
        if is_link:
            # Describe the target, if there is one.
            with contextlib.suppress(OSError):
                found = self.files.stat("/" + path)
        kind = "directory" if found.is_dir() else "file" if found.is_file() else "link" if is_link else "other"
        return {
            "name": path,
            "size": found.st_size if kind == "file" else 0,
            "type": kind,
            "islink": is_link,
            "mode": found.st_mode,
            "uid": found.st_uid,
            "gid": found.st_gid,
            "ino": found.st_ino,
            "nlink": found.st_nlink,
            "mtime": found.st_mtime_ns / 1e9,
            "created": found.st_birthtime_ns / 1e9,
        }

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        if self._in_hdf5(path):
            return self._hdf5_info(path)
        return self._details(path, self.files.stat("/" + path, follow_symlinks=False))

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        path = self._strip_protocol(path)
        if self._in_hdf5(path):
            found = self._hdf5_ls(path)
        else:
            above = f"{path}/" if path else ""
            try:
                found = [self._details(above + name, what) for name, what in self.files.scandir("/" + path)]
            except NotADirectoryError:
                found = [self.info(path)]
            if not path and self.store.containers(f"{_HDF5}/"):
                found.append({"name": _HDF5, "size": 0, "type": "directory"})
        return found if detail else sorted(entry["name"] for entry in found)

    def exists(self, path: str, **_: Any) -> bool:
        try:
            self.info(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def lexists(self, path: str, **_: Any) -> bool:
        return self.exists(path)

    def created(self, path: str) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(self.info(path)["created"], tz=datetime.UTC)

    def modified(self, path: str) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(self.info(path)["mtime"], tz=datetime.UTC)

    # Reading.

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: dict[str, Any] | None = None,
        **_: Any,
    ) -> Any:
        path = self._strip_protocol(path)
        if self._in_hdf5(path):
            return self._open_hdf5(path, mode, autocommit)
        if "r" not in mode:
            self._make_parents(path)
        place, beside = "/" + path, None
        if not autocommit and mode in ("wb", "xb"):
            if mode == "xb" and self.exists(path):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            # Checked before anything is written, and before the directory above it changes.
            if self._is_directory(place):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
            beside = f"{place}.{uuid.uuid4().hex}.partial"
        file = FileIO(self.files.open_raw(beside or place, mode))
        if "+" in mode:
            return io.BufferedRandom(file, block_size or 256 << 10)  # type: ignore[arg-type]
        if "r" in mode:
            return _Reader(file, 256 << 10)  # type: ignore[arg-type]
        return _Writer(file, self.files, place, beside)

    def _is_directory(self, place: str) -> bool:
        try:
            return self.files.stat(place, follow_symlinks=False).is_dir()
        except FileNotFoundError:
            return False

    def _open_hdf5(self, path: str, mode: str, autocommit: bool) -> Any:
        tree, key = self._hdf5_key(path, writable=mode != "rb")
        if mode == "rb":
            value = tree.get(key)
            if value is None:
                raise _missing(path)
            return io.BytesIO(value)
        if mode != "wb":
            raise io.UnsupportedOperation(f"keys of an HDF5 file are written whole: mode {mode!r} of {path}")
        return _TreeWriter(tree, key, autocommit)

    def view(self, path: str, start: int = 0, end: int | None = None) -> memoryview:
        """Bytes of a file, by reference if they are in one piece of mapped memory; they do not change meanwhile."""
        raw = self.files.open_raw(self._at(path))
        try:
            return memoryview(raw.view(start, None if end is None else max(end - start, 0)))
        finally:
            raw.close()

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        path = self._strip_protocol(path)
        if self._in_hdf5(path):
            tree, key = self._hdf5_key(path)
            value = tree.get(key)
            if value is None:
                raise _missing(path)
            return value[start:end]
        raw = self.files.open_raw("/" + path)
        try:
            begin, stop, _ = slice(start, end).indices(raw.size())
            return raw.pread(max(stop - begin, 0), begin)
        finally:
            raw.close()

    def get_file(self, rpath: str, lpath: Any, callback: Any = DEFAULT_CALLBACK, outfile: Any = None, **_: Any) -> None:
        rpath = self._strip_protocol(rpath)
        if outfile is None and not hasattr(lpath, "write"):
            if self.isdir(rpath):
                Path(lpath).mkdir(parents=True, exist_ok=True)
                return
            Path(lpath).parent.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as opened:
            source = opened.enter_context(self.open(rpath, "rb"))
            given = outfile or (lpath if hasattr(lpath, "write") else None)
            out = given if given is not None else opened.enter_context(open(lpath, "wb"))
            callback.set_size(self.info(rpath)["size"])
            while piece := source.read(_COPY_BYTES):
                out.write(piece)
                callback.relative_update(len(piece))

    # Writing.

    def _make_parents(self, path: str) -> None:
        above = path.rpartition("/")[0]
        if above:
            self.files.makedirs("/" + above, exist_ok=True)

    def pipe_file(self, path: str, value: Any, mode: str = "overwrite", **_: Any) -> None:
        path = self._strip_protocol(path)
        if self._in_hdf5(path):
            tree, key = self._hdf5_key(path, writable=True)
            if mode == "create" and tree.size(key) is not None:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            tree.set(key, value)
            return
        self.files.put("/" + path, value, replace=mode != "create")

    def put_file(
        self, lpath: Any, rpath: str, callback: Any = DEFAULT_CALLBACK, mode: str = "overwrite", **_: Any
    ) -> None:
        if Path(lpath).is_dir():
            self.makedirs(rpath, exist_ok=True)
            return
        if mode == "create" and self.exists(rpath):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), rpath)
        with open(lpath, "rb") as source:
            callback.set_size(os.fstat(source.fileno()).st_size)
            with self._open(rpath, "wb", autocommit=False) as out:
                while piece := source.read(_COPY_BYTES):
                    out.write(piece)
                    callback.relative_update(len(piece))
            out.commit()

    def cp_file(self, path1: str, path2: str, **_: Any) -> None:
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        if self.isdir(path1):
            self.makedirs(path2, exist_ok=True)
        elif self._in_hdf5(path1) or self._in_hdf5(path2):
            self.pipe_file(path2, self.cat_file(path1))
        else:
            self._make_parents(path2)
            self.files.copy("/" + path1, "/" + path2)

    def mv(self, path1: Any, path2: Any, recursive: bool = False, maxdepth: int | None = None, **options: Any) -> None:
        """Moves; by a rename if a single file or directory stays in the same container."""
        one = isinstance(path1, str) and isinstance(path2, str) and not path2.endswith("/")
        if one and not any(mark in path1 for mark in "*?[") and maxdepth is None:
            old, new = self._strip_protocol(path1), self._strip_protocol(path2)
            try:
                movable = self.isfile(old) or recursive
                if movable and not self._in_hdf5(old) and not self._in_hdf5(new) and not self.isdir(new):
                    self._make_parents(new)
                    self.files.rename("/" + old, "/" + new)
                    return
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
        super().mv(path1, path2, recursive=recursive, maxdepth=maxdepth, **options)

    def mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        path = self._strip_protocol(path)
        if self._in_hdf5(path):
            return
        if create_parents:
            self._make_parents(path)
        self.files.mkdir("/" + path)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        path = self._strip_protocol(path)
        if not self._in_hdf5(path):
            self.files.makedirs("/" + path, exist_ok=exist_ok)

    def rmdir(self, path: str) -> None:
        self.files.rmdir(self._at(path))

    def rm_file(self, path: str) -> None:
        path = self._strip_protocol(path)
        if self._in_hdf5(path):
            tree, key = self._hdf5_key(path, writable=True)
            if not tree.delete(key):
                raise _missing(path)
            return
        self.files.remove("/" + path)

    def _rm(self, path: str) -> None:
        self.rm_file(path)

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        paths = path if isinstance(path, list) else [path]
        for one in paths:
            plain = self._strip_protocol(one)
            if maxdepth is not None or any(mark in plain for mark in "*?["):
                super().rm(one, recursive=recursive, maxdepth=maxdepth)
            elif not recursive:
                self.rm_file(plain) if not self.isdir(plain) else self.rmdir(plain)
            elif self._in_hdf5(plain):
                tree, key = self._hdf5_key(plain, writable=True)
                tree.delete_dir(key)
            elif not plain:
                raise PermissionError(errno.EPERM, "a whole store is destroyed by cenote.destroy", self.store_dir)
            elif not self.exists(plain):
                raise _missing(plain)
            else:
                self.files.remove_all("/" + plain)

    def touch(self, path: str, truncate: bool = True, **_: Any) -> None:
        path = self._strip_protocol(path)
        if truncate or not self.exists(path):
            self._open(path, "wb").close()
        else:
            self.files.utime("/" + path)


def _again(kind: type[CenoteFileSystem], store: str, zarr_format: int, options: dict[str, Any]) -> CenoteFileSystem:
    return kind(store=store, zarr_format=zarr_format, **options)
