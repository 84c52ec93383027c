"""Zarr on a store: stores for zarr-python (3.1 and newer).

    import zarr, cenote.zarr

    group = zarr.open_group(cenote.zarr.Hdf5Store("/data/run.h5"))      # an HDF5 file of a store, in place
    array = zarr.create_array(cenote.zarr.FileStore("results/run.zarr", store="/scratch/store"), shape=10, dtype="f8")

`Hdf5Store` shows every dataset of an HDF5 file as an array, with its groups and attributes, and writes Zarr's changes
into the same file; `docs/zarr.md` says what has a counterpart. `FileStore` keeps Zarr's own keys as files.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from zarr.abc.store import (
    ByteRequest,
    OffsetByteRequest,
    RangeByteRequest,
    Store,
    SuffixByteRequest,
)
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.core.buffer.core import default_buffer_prototype

from . import _native, _sessions

__all__ = ["FileStore", "Hdf5Store"]


def _cut(size: int, byte_range: ByteRequest | None) -> tuple[int, int]:
    """Start and end of the requested part of a value."""
    match byte_range:
        case None:
            return 0, size
        case RangeByteRequest(start, end):
            return min(start, size), min(end, size)
        case OffsetByteRequest(offset):
            return min(offset, size), size
        case SuffixByteRequest(suffix):
            return max(0, size - suffix), size
    raise TypeError(f"Unexpected byte_range, got {byte_range}.")


class _KeyStore(Store):
    """The common part of both stores: Zarr's asynchronous calls, run as synchronous ones in threads.

    Subclasses have `_read`, `_write`, `_remove`, `_remove_dir`, `_size`, `_names` and `_keys`.
    """

    supports_writes = True
    supports_deletes = True
    supports_listing = True

    def _read(self, key: str, byte_range: ByteRequest | None) -> Any:
        raise NotImplementedError

    def _write(self, key: str, value: Any, new: bool) -> None:
        raise NotImplementedError

    def _remove(self, key: str) -> None:
        raise NotImplementedError

    def _remove_dir(self, key: str) -> None:
        raise NotImplementedError

    def _size(self, key: str) -> int | None:
        raise NotImplementedError

    def _names(self, key: str) -> list[str]:
        raise NotImplementedError

    def _keys(self, key: str) -> list[str]:
        raise NotImplementedError

    def _ready(self) -> None:
        """Makes what must exist before the first call."""

    async def _open(self) -> None:
        await asyncio.to_thread(self._ready)
        await super()._open()

    def _opened(self) -> None:
        if not self._is_open:
            self._ready()
            self._is_open = True

    def get_sync(
        self,
        key: str,
        *,
        prototype: BufferPrototype | None = None,
        byte_range: ByteRequest | None = None,
    ) -> Buffer | None:
        """The value of a key, or a part of it; None if it does not exist."""
        self._opened()
        found = self._read(key, byte_range)
        if found is None:
            return None
        kind = (prototype or default_buffer_prototype()).buffer
        return kind.from_array_like(np.frombuffer(found, dtype="B"))

    def set_sync(self, key: str, value: Buffer) -> None:
        """Set a key."""
        self._set(key, value, new=False)

    def delete_sync(self, key: str) -> None:
        """Delete a key; no error if it does not exist."""
        self._opened()
        self._check_writable()
        self._remove(key)

    def _set(self, key: str, value: Buffer, new: bool) -> None:
        self._check_writable()
        if not isinstance(value, Buffer):
            raise TypeError(f"the value of {key!r} must be a Buffer, not {type(value)}")
        self._opened()
        self._write(key, value.as_buffer_like(), new)

    async def get(
        self,
        key: str,
        prototype: BufferPrototype | None = None,
        byte_range: ByteRequest | None = None,
    ) -> Buffer | None:
        """The value of a key, or a part of it; None if it does not exist."""
        return await asyncio.to_thread(self.get_sync, key, prototype=prototype, byte_range=byte_range)

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        """Values or parts of them, in the requested order."""
        return list(await asyncio.gather(*(self.get(key, prototype, part) for key, part in key_ranges)))

    async def exists(self, key: str) -> bool:
        """True if the key has a value."""
        self._opened()
        return await asyncio.to_thread(self._size, key) is not None

    async def getsize(self, key: str) -> int:
        """Length of a key's value in bytes."""
        self._opened()
        size = await asyncio.to_thread(self._size, key)
        if size is None:
            raise FileNotFoundError(key)
        return size

    async def set(self, key: str, value: Buffer) -> None:
        """Set a key."""
        await asyncio.to_thread(self._set, key, value, False)

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        """Set a key unless it exists."""
        await asyncio.to_thread(self._set, key, value, True)

    async def delete(self, key: str) -> None:
        """Delete a key; no error if it does not exist."""
        await asyncio.to_thread(self.delete_sync, key)

    async def delete_dir(self, prefix: str) -> None:
        """Delete everything below a key."""
        self._check_writable()
        self._opened()
        await asyncio.to_thread(self._remove_dir, prefix.strip("/"))

    async def clear(self) -> None:
        """Delete everything."""
        await self.delete_dir("")

    async def list(self) -> AsyncIterator[str]:
        """All keys."""
        self._opened()
        for key in await asyncio.to_thread(self._keys, ""):
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """All keys with this prefix."""
        self._opened()
        above = prefix.rpartition("/")[0]
        for key in await asyncio.to_thread(self._keys, above):
            if key.startswith(prefix):
                yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """Names directly below a key."""
        self._opened()
        for name in await asyncio.to_thread(self._names, prefix.strip("/")):
            yield name

    async def is_empty(self, prefix: str) -> bool:
        """True if there is nothing below a key."""
        self._opened()
        return not await asyncio.to_thread(self._names, prefix.strip("/"))


class Hdf5Store(_KeyStore):
    """An HDF5 file of a store as a Zarr hierarchy: every dataset with a counterpart is an array, chunk for chunk.

    path: path of the HDF5 file's stub; relative paths are those of this process.
    store: the store or its directory, if it is not the one named in the stub.
    zarr_format: the format of the documents, 3 or 2.
    create: make an empty HDF5 file if nothing is at the path (in `store`, or in the default one).
    `notes()` lists the datasets that Zarr does not see, or sees converted, with the reason.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        store: str | os.PathLike[str] | _native.Store | None = None,
        *,
        read_only: bool = False,
        zarr_format: Literal[2, 3] = 3,
        create: bool = False,
    ) -> None:
        super().__init__(read_only=read_only)
        self.path = os.path.abspath(path)  # noqa: PTH100 (Path.absolute keeps "..")
        self.store_dir = None if store is None else _sessions.directory(store)
        self.zarr_format = zarr_format
        self.create = create
        self._given = store if isinstance(store, _native.Store) else None
        self._opened_tree: tuple[int, _native.ZarrTree] | None = None

    @property
    def _tree(self) -> _native.ZarrTree:
        # A forked child opens the file for itself.
        if self._opened_tree is None or self._opened_tree[0] != os.getpid():
            named = None if self.store_dir is not None else _native.store_of_hdf5(self.path)
            store = _sessions.session(self._given or self.store_dir or named)
            is_there = Path(self.path).exists()
            if self.create and not self.read_only and not is_there:
                tree = _native.ZarrTree.create(store, self.path, self.zarr_format)
            else:
                tree = _native.ZarrTree.open(store, self.path, not self.read_only, self.zarr_format)
            self._opened_tree = os.getpid(), tree
        return self._opened_tree[1]

    def _ready(self) -> None:
        _ = self._tree

    def notes(self) -> list[tuple[str, bool, str]]:
        """Datasets that Zarr does not see (False) or sees converted (True): path, which, and reason."""
        return self._tree.notes()

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        self._opened_tree = None
        super().close()

    def with_read_only(self, read_only: bool = False) -> Self:
        """The same file, for reading or for both."""
        return type(self)(
            self.path,
            self._given or self.store_dir,
            read_only=read_only,
            zarr_format=self.zarr_format,
            create=self.create,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hdf5Store) and (self.path, self.store_dir, self.zarr_format, self.read_only) == (
            other.path,
            other.store_dir,
            other.zarr_format,
            other.read_only,
        )

    def __hash__(self) -> int:
        return hash((self.path, self.store_dir, self.zarr_format))

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_given": None, "_opened_tree": None}

    def __str__(self) -> str:
        return f"hdf5:{self.path}"

    def __repr__(self) -> str:
        return f"Hdf5Store({self.path!r})"

    def _read(self, key: str, byte_range: ByteRequest | None) -> Any:
        value = self._tree.get(key)
        if value is None:
            return None
        begin, end = _cut(len(value), byte_range)
        return memoryview(value)[begin:end]

    def _write(self, key: str, value: Any, new: bool) -> None:
        if not (new and self._tree.size(key) is not None):
            self._tree.set(key, value)

    def _remove(self, key: str) -> None:
        self._tree.delete(key)

    def _remove_dir(self, key: str) -> None:
        self._tree.delete_dir(key)

    def _size(self, key: str) -> int | None:
        size = self._tree.size(key)
        return None if size is None or size < 0 else size

    def _names(self, key: str) -> list[str]:
        return [name for name, _ in self._tree.list_dir(key)]

    def _keys(self, key: str) -> list[str]:
        return self._tree.list(key)


class FileStore(_KeyStore):
    """Zarr's keys as files below a directory of a store; each value is put in its place atomically.

    path: `container/directory`, made at the first write.
    store: the store or its directory; the default one if None.
    Values in mapped memory are returned by reference.
    """

    def __init__(
        self,
        path: str,
        store: str | os.PathLike[str] | _native.Store | None = None,
        *,
        read_only: bool = False,
    ) -> None:
        super().__init__(read_only=read_only)
        self.path = path.strip("/")
        self.store_dir = _sessions.default_directory() if store is None else _sessions.directory(store)
        self._given = store if isinstance(store, _native.Store) else None
        self._opened_files: _native.Files | None = None

    @property
    def _files(self) -> _native.Files:
        if self._opened_files is None:
            self._opened_files = _sessions.session(self._given or self.store_dir).files
        return self._opened_files

    def with_read_only(self, read_only: bool = False) -> Self:
        """The same keys, for reading or for both."""
        return type(self)(self.path, self._given or self.store_dir, read_only=read_only)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FileStore) and (self.path, self.store_dir, self.read_only) == (
            other.path,
            other.store_dir,
            other.read_only,
        )

    def __hash__(self) -> int:
        return hash((self.path, self.store_dir))

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_given": None, "_opened_files": None}

    def __str__(self) -> str:
        return f"cenote://{self.store_dir}//{self.path}"

    def __repr__(self) -> str:
        return f"FileStore('{self}')"

    def _at(self, key: str) -> str:
        return f"/{self.path}/{key}".rstrip("/")

    def _read(self, key: str, byte_range: ByteRequest | None) -> Any:
        try:
            raw = self._files.open_raw(self._at(key))
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            _cut(0, byte_range)
            return None
        try:
            begin, end = _cut(raw.size(), byte_range)
            return raw.view(begin, end - begin)
        finally:
            raw.close()

    def _write(self, key: str, value: Any, new: bool) -> None:
        try:
            self._files.put(self._at(key), value, replace=not new)
        except FileExistsError:
            if not new:
                raise

    def _remove(self, key: str) -> None:
        try:
            self._files.remove(self._at(key))
        except IsADirectoryError:
            self._remove_dir(key)
        except (FileNotFoundError, NotADirectoryError):
            pass

    def _remove_dir(self, key: str) -> None:
        self._files.remove_all(self._at(key))

    def _size(self, key: str) -> int | None:
        try:
            found = self._files.stat(self._at(key))
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found.st_size if found.is_file() else None

    def _names(self, key: str) -> list[str]:
        try:
            return self._files.listdir(self._at(key))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _keys(self, key: str) -> list[str]:
        out: list[str] = []
        todo = [key.strip("/")]
        while todo:
            above = todo.pop()
            try:
                found = self._files.scandir(self._at(above))
            except (FileNotFoundError, NotADirectoryError):
                continue
            for name, what in found:
                below = f"{above}/{name}" if above else name
                (todo if what.is_dir() else out).append(below)
        return out
