"""The part of `cenote` that is written in Rust: every class and method with its types."""

import os
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import IO, Any, Literal, Self, TypeVar, final, overload

from typing_extensions import Buffer

from ._tier import Tier

__version__: str

_T = TypeVar("_T")
_Durability = Literal["sync", "async", "scratch", "bypass"]

def open(
    dir: str | os.PathLike[str],
    mode: Literal["auto", "in-process", "daemon"] = "auto",
    create: bool = True,
    read_only: bool = False,
    tiers: Sequence[Tier | str] | None = None,
    *,
    create_new: bool = False,
    writers: Sequence[int] = (),
    readers: Sequence[int] = (),
) -> Store:
    """Open the store in directory `dir`.

    mode: "auto" (its daemon, else an engine in this process), "in-process" or "daemon".
    create: make the store if it does not exist; create_new: fail if it exists.
    tiers: tiers of a new store, fastest first: `Tier(...)` or text as on the command line.
    writers, readers: numeric users besides the owner who may read and write, or only read.
    """

def stop(dir: str | os.PathLike[str]) -> bool:
    """Ask the daemon that serves the store in `dir` to finish its work and exit. False if none serves it."""

def destroy(dir: str | os.PathLike[str], *, force: bool = False) -> None:
    """Destroy the store in `dir`: its memory, the files of its tiers, its metadata, and its directory unless that
    contains other files. Raises `Busy` while others use it, unless `force`.
    """

def store_of_hdf5(path: str | os.PathLike[str]) -> os.PathLike[str] | None:
    """The directory of the store of the HDF5 file at `path`, as in its stub; None if there is no stub."""

def parse_size(text: str) -> int:
    """The number of bytes in a text such as "64KiB" or "1.5GiB"."""

def format_size(bytes: int) -> str:
    """A size as text for people, such as "1.5 GiB"."""

@final
class Store:
    """A store. Use it as a context manager, or call `close`. Safe to use after fork: the child gets its own session."""

    @property
    def id(self) -> str:
        """The store's id, as 32 hexadecimal digits."""
    @property
    def dir(self) -> os.PathLike[str]:
        """The directory in which it was opened."""
    @property
    def mode(self) -> Literal["in-process", "daemon"]:
        """How the engine is reached at present."""
    @property
    def closed(self) -> bool:
        """True once closed."""
    @property
    def files(self) -> Files:
        """The directories and files of this store, by path: `/container/directory/file`."""
    def open_files(
        self,
        container: str | None = None,
        read_only: bool = False,
        consistency: Literal["strict", "commit"] = "strict",
    ) -> Files:
        """Directories and files with other settings than those of `files`. container: paths start at this container's
        root, which is made if it does not exist; else they begin with a container's label. consistency: of new
        containers.
        """
    def container(
        self,
        label: str,
        create: bool = True,
        durability: _Durability = "async",
        block_size: int = 4096,
        quota: int = 0,
        policy: str = "",
    ) -> Container:
        """The container with that label; made if missing and `create` is true. The rest is for a new one."""
    def create_container(
        self,
        label: str,
        durability: _Durability = "async",
        block_size: int = 4096,
        quota: int = 0,
        policy: str = "",
    ) -> Container:
        """Make a container; raises Exists if the label is taken."""
    def containers(self, prefix: str = "") -> list[ContainerInfo]:
        """All containers whose label begins with `prefix`, in label order."""
    def rename_container(self, old: str, new: str) -> None:
        """Rename a container."""
    def delete_container(self, label: str) -> None:
        """Delete a container with everything in it, atomically."""
    def transaction(self, detect_conflicts: bool = False) -> Transaction:
        """Begin a transaction: a context manager that commits at its end, and changes nothing after an exception.

        detect_conflicts: fail with Conflict if others have changed anything read through it.
        """
    def snapshot(self, containers: Sequence[Container], name: str, replace: bool = False) -> None:
        """Keep the present content of several containers for reading, all at one moment: of all, or of none."""
    def delete_snapshot(self, containers: Sequence[Container], name: str) -> None:
        """Delete the snapshot of that name of several containers: of all, or of none."""
    def roll_back(self, containers: Sequence[Container], name: str) -> None:
        """Restore the content of several containers to that of their snapshots, all or none."""
    def flush(self) -> None:
        """Return when everything acknowledged so far survives power loss."""
    def checkpoint(self) -> None:
        """Write a checkpoint now, so that the next opening replays nothing."""
    def wait_all(self) -> None:
        """Wait for every launched operation."""
    def verify(self) -> VerifyReport:
        """Read and check everything."""
    def explain(self, object: Object) -> Explanation:
        """Where each range of an object is, and why."""
    def stats(self) -> StoreStats:
        """Counters."""
    def user_weights(self) -> dict[int, int]:
        """The users who have another weight than 1 on scarce tiers: numeric ids and weights."""
    def set_user_weight(self, uid: int, weight: int) -> None:
        """Give a user a part of scarce tiers beside other users: 1, which all have at first, to 1000.
        Only the owner of the store and root may. Homes of a cluster that are away follow when they are back."""
    def tiers(self) -> list[TierInfo]:
        """The tiers, fastest first."""
    def add_tier(self, spec: Tier | str) -> None:
        """Add a tier: `Tier(...)` or text as on the command line."""
    def drain_tier(self, name: str) -> None:
        """Move everything off a tier."""
    def remove_tier(self, name: str) -> None:
        """Forget an empty tier."""
    def close(self) -> None:
        """End the session; containers, objects and indices of this store become unusable."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

@final
class Container:
    """A labelled group of objects and indices with one policy."""

    @property
    def id(self) -> int:
        """Its id, which a rename keeps."""
    @property
    def label(self) -> str:
        """Its label."""
    @property
    def store(self) -> Store:
        """Its store."""
    def info(self) -> ContainerInfo:
        """Its present state."""
    def set(
        self,
        durability: _Durability | None = None,
        quota: int | None = None,
        policy: str | None = None,
        owner_uid: int | None = None,
        owner_gid: int | None = None,
        mode: int | None = None,
        weight: int | None = None,
    ) -> None:
        """Change settings; None leaves one unchanged."""
    def snapshot(self, name: str, replace: bool = False) -> None:
        """Keep its present content for reading, under a name; no data are copied."""
    def snapshots(self) -> list[SnapshotInfo]:
        """Its snapshots, ordered by name."""
    def open_snapshot(self, name: str) -> Container:
        """A snapshot, as a readable container; it stays while this is used, even if it is deleted."""
    def delete_snapshot(self, name: str) -> None:
        """Delete a snapshot."""
    def roll_back(self, name: str) -> None:
        """Restore its content to that of the snapshot, in one transaction; the snapshot stays."""
    def create_object(self, id: str | int | None = None, block_size: int | None = None) -> Object:
        """Make an object. By default the id is random and the block size the container's."""
    def create_objects(self, ids: Sequence[str | int], block_size: int | None = None) -> list[Object]:
        """Make many objects in one journal record; raises Exists if one exists (the others are made)."""
    def object(self, id: str | int) -> Object:
        """A handle without a round trip; a missing object is reported at first use."""
    def delete_object(self, id: str | int) -> None:
        """Delete an object."""
    def objects(self, after: str | int | None = None) -> Iterator[Object]:
        """All objects, by ascending id, fetched during the iteration."""
    def index(self, id: str | int, create: bool = True) -> Index:
        """The index with that id; made if it does not exist and `create` is true."""
    def create_index(self, id: str | int | None = None) -> Index:
        """Make an index. By default the id is random."""
    def delete_index(self, id: str | int) -> None:
        """Delete an index with its records."""
    def indices(self) -> list[str]:
        """Ids of all indices, ascending."""
    def flush(self) -> None:
        """Return when everything acknowledged so far in this container survives power loss."""
    def verify(self) -> VerifyReport:
        """Read and check all its content."""
    def __iter__(self) -> Iterator[Object]: ...
    def __contains__(self, id: str | int) -> bool: ...

@final
class Object:
    """An array of bytes with a recorded size, up to 2**63 bytes, sparse. Any thread may call it.

    Byte ranges need not be aligned; writers of disjoint ranges never disturb each other.
    """

    @property
    def id(self) -> str:
        """Its id, as 32 hexadecimal digits."""
    @property
    def size(self) -> int:
        """Its recorded size in bytes."""
    def stat(self) -> ObjectStat:
        """Size, block size, use."""
    def buffered(self, mode: str) -> Object:
        """The same object with another write mode than the container's default: "sync" (write-through: on a persistent
        tier, acknowledged when it survives power loss), "async" (write-back) or "bypass" (to the lowest persistent
        tier, past the buffers). Refused where that is less than the container promises, and in scratch containers."""
    def read(self, offset: int = 0, size: int | None = None) -> bytes:
        """Read `size` bytes from `offset`, or to the end if None. Holes are zeros; shorter at the object's end."""
    def readinto(self, offset: int, buffer: Buffer) -> int:
        """Fill a writable buffer from `offset` on, without an intermediate copy.

        Returns the number of bytes before the recorded size; the rest of the buffer is untouched.
        """
    def write(self, offset: int, buffer: Buffer) -> None:
        """Write a contiguous buffer at `offset`, without an intermediate copy.

        Acknowledged according to the container's durability, and visible to every process.
        """
    def readv(self, parts: Sequence[tuple[int, Buffer]]) -> None:
        """Fill many `(offset, buffer)` at once; bytes past the recorded size read as zeros."""
    def writev(self, parts: Sequence[tuple[int, Buffer]]) -> None:
        """Write many `(offset, buffer)` in one transaction."""
    def view(self, offset: int = 0, size: int | None = None, copy: bool = True) -> View:
        """A range by reference: `memoryview(obj.view(...))`, `numpy.frombuffer(obj.view(...), dtype)`.

        Without a copy if it is in one piece of mapped memory; else a copy, or Unsupported if `copy` is false.
        The bytes do not change while the view, or anything made from it, lives.
        """
    def write_in_place(self, size: int) -> InPlaceWrite:
        """Reserve `size` bytes in the store's memory, to be filled in place and then committed: a write without a
        copy.
        """
    def launch_write(self, offset: int, buffer: Buffer) -> Op:
        """Start a write. The buffer may be reused afterwards; it is acknowledged when `Op.wait` returns."""
    def launch_read(self, offset: int, size: int) -> ReadOp:
        """Start a read of `size` bytes; `ReadOp.wait` returns them."""
    def truncate(self, size: int) -> None:
        """Set the recorded size; bytes beyond it are dropped."""
    def punch(self, offset: int, size: int) -> None:
        """Turn a range into a hole."""
    def append(self, buffer: Buffer) -> int:
        """Write at the end, wherever that is by then; returns the offset."""
    def next_data(self, offset: int) -> int | None:
        """The first offset with data at or after `offset`; None if there is none before the end."""
    def next_hole(self, offset: int) -> int | None:
        """The first offset in a hole at or after `offset`, or the size; None from the end on."""
    def copy_from(self, at: int, source: Object, offset: int = 0, size: int | None = None) -> int:
        """Copy `size` bytes at `offset` of `source` to `at`, shared where possible; returns how many."""
    def flush(self) -> None:
        """Return when everything acknowledged so far survives power loss."""

@final
class View:
    """Bytes of an object. They do not change while the view, or anything made from it, lives."""

    @property
    def by_reference(self) -> bool:
        """True if the bytes are the store's own, without a copy."""
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class InPlaceWrite:
    """Reserved room in the store's memory: fill it (`memoryview(write)`, `numpy.frombuffer(write, dtype)`), then
    `commit`.

    Release everything made from it first (`del array`, `view.release()`). As a context manager it releases the room if
    it was not committed.
    """

    def __len__(self) -> int: ...
    def commit(self, offset: int) -> None:
        """Commit the bytes to the object at `offset`; acknowledged when this returns."""
    def release(self) -> None:
        """Release the room. Does nothing after a commit."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __release_buffer__(self, buffer: memoryview, /) -> None: ...

@final
class Op:
    """A write or put in flight."""

    @property
    def done(self) -> bool:
        """True if waiting would not block."""
    def wait(self) -> None:
        """Wait until it is acknowledged; raises its error."""

@final
class ReadOp:
    """A read in flight."""

    @property
    def done(self) -> bool:
        """True if waiting would not block."""
    def wait(self) -> bytes:
        """Wait for the bytes."""

@final
class Index:
    """An ordered key-value index. Keys and values are bytes (anything with a buffer); keys are returned as `bytes`."""

    @property
    def id(self) -> str:
        """Its id, as 32 hexadecimal digits."""
    def __getitem__(self, key: Buffer) -> bytes: ...
    def __setitem__(self, key: Buffer, value: Buffer) -> None: ...
    def __delitem__(self, key: Buffer) -> None: ...
    def __contains__(self, key: Buffer) -> bool: ...
    def __iter__(self) -> Iterator[bytes]: ...
    @overload
    def get(self, key: Buffer) -> bytes | None: ...
    @overload
    def get(self, key: Buffer, default: _T) -> bytes | _T: ...
    def get_many(self, keys: Sequence[Buffer]) -> list[bytes | None]:
        """Values of many keys in one round trip; None for missing ones."""
    def put(self, key: Buffer, value: Buffer) -> None:
        """Set a record."""
    def put_many(self, records: Sequence[tuple[Buffer, Buffer]]) -> None:
        """Set many `(key, value)` in one round trip."""
    def put_new(self, key: Buffer, value: Buffer) -> bool:
        """Set a record whose key does not exist yet. False, without a change, if it does."""
    def delete(self, key: Buffer) -> bool:
        """Delete a record. False if it did not exist."""
    def delete_many(self, keys: Sequence[Buffer]) -> int:
        """Delete many records in one round trip; returns how many existed."""
    def launch_put(self, key: Buffer, value: Buffer) -> Op:
        """Start a put; acknowledged when `Op.wait` returns."""
    def items(self, prefix: Buffer | None = None, start: Buffer | None = None) -> Iterator[tuple[bytes, bytes]]:
        """`(key, value)` in key order, fetched during the iteration: keys that begin with `prefix`, from `start` on."""
    def keys(self, prefix: Buffer | None = None, start: Buffer | None = None) -> Iterator[bytes]:
        """Keys in order; arguments as for `items`."""
    def values(self, prefix: Buffer | None = None, start: Buffer | None = None) -> Iterator[bytes]:
        """Values in key order; arguments as for `items`."""

@final
class Transaction:
    """A group of updates, atomic with respect to every crash. Reads see its own writes.

    As a context manager it commits at the end, and changes nothing if an exception ends the block.
    """

    def write(self, object: Object, offset: int, buffer: Buffer) -> None:
        """Write a buffer at `offset`."""
    def read(self, object: Object, offset: int, size: int) -> bytes:
        """Read `size` bytes from `offset`, including its own writes; shorter at the object's end."""
    def truncate(self, object: Object, size: int) -> None:
        """Set an object's size."""
    def punch(self, object: Object, offset: int, size: int) -> None:
        """Turn a range into a hole."""
    def create_object(self, container: Container, id: str | int | None = None, block_size: int | None = None) -> Object:
        """Make an object."""
    def delete_object(self, object: Object) -> None:
        """Delete an object."""
    def create_index(self, container: Container, id: str | int | None = None) -> Index:
        """Make an index."""
    def delete_index(self, index: Index) -> None:
        """Delete an index with its records."""
    def put(self, index: Index, key: Buffer, value: Buffer) -> None:
        """Set a record."""
    def put_new(self, index: Index, key: Buffer, value: Buffer) -> None:
        """Set a record that must not exist yet: the commit raises Exists if it does."""
    def get(self, index: Index, key: Buffer) -> bytes | None:
        """The value of a key, including its own puts; None if missing."""
    def delete(self, index: Index, key: Buffer) -> None:
        """Delete a record; no error if it does not exist."""
    def share(self, object: Object, at: int, source: Object, offset: int, size: int) -> None:
        """Share `size` bytes at `offset` of `source`, as they are at the commit, into `object` at `at`, without a
        copy."""
    def expect_none(self, index: Index, prefix: Buffer) -> None:
        """Make the commit raise Conflict if a record's key begins with `prefix`, before the transaction's changes."""
    def expect_size(self, object: Object, size: int) -> None:
        """Make the commit raise Conflict unless the object then has this size."""
    def commit(self) -> int:
        """Apply everything, or nothing. Returns the epoch."""
    def abort(self) -> None:
        """Discard everything."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

@final
class Objects(Iterator[Object]):
    """Objects of a container, by ascending id."""

    def __next__(self) -> Object: ...

@final
class Records(Iterator[bytes | tuple[bytes, bytes]]):
    """An iteration over records."""

    def __next__(self) -> bytes | tuple[bytes, bytes]: ...

@final
class ContainerInfo:
    """A container's present state."""

    label: str
    id: int
    durability: _Durability
    block_size: int
    quota: int
    policy: str
    owner_uid: int | None
    owner_gid: int | None
    mode: int
    weight: int
    objects: int
    indices: int
    records: int
    stored_bytes: int

@final
class SnapshotInfo:
    """A snapshot of a container."""

    name: str
    id: int
    epoch: int
    unix_ms: int
    objects: int
    indices: int
    records: int
    stored_bytes: int

@final
class ObjectStat:
    """An object's present state."""

    size: int
    block_size: int
    extents: int
    mapped_bytes: int
    epoch: int

@final
class TierInfo:
    """A tier's present state."""

    name: str
    kind: Literal["memory", "pmem", "file", "directory", "s3", "swift", "rados"]
    path: str | None
    state: Literal["online", "draining", "failed"]
    persistent: bool
    capacity: int
    used: int
    reserved: int
    high: float
    low: float
    note: str
    read_latency: float | None
    write_latency: float | None
    read_bandwidth: float | None
    write_bandwidth: float | None

@final
class StoreStats:
    """Counters of the whole store."""

    epoch: int
    containers: int
    objects: int
    indices: int
    records: int
    extents: int
    journal_bytes: int
    moved_bytes: int
    sessions: int
    scrub_findings: int
    metadata_bytes: int
    values_here_bytes: int
    values_budget_bytes: int
    values_away_bytes: int

@final
class Finding:
    """A fault found by a verification."""

    container: int
    object: str
    offset: int
    length: int
    tier: str
    what: str

@final
class VerifyReport:
    """Result of a verification."""

    objects: int
    bytes: int
    findings: list[Finding]
    contradictions: list[str]
    """Contradictions between the store's own maps, indices and tables: empty for a sound store."""

@final
class ExplainedRange:
    """Why a range is where it is."""

    offset: int
    length: int
    tier: str
    tier_offset: int
    why: str

@final
class Explanation:
    """Where each range of an object is and why."""

    stat: ObjectStat
    ranges: list[ExplainedRange]
    notes: list[str]

_Path = str | bytes | os.PathLike[str] | os.PathLike[bytes]

@final
class Files:
    """The directories and files of a store, by path: `/container/directory/file`. Like `os`, with paths as str or
    bytes. Failures are the built-in exceptions (`FileNotFoundError`, ...), with `errno`.
    """

    def stat(self, path: _Path, *, follow_symlinks: bool = True) -> FileStat:
        """The attributes of a path."""
    def listdir(self, path: _Path) -> list[str]:
        """Names in a directory, in order."""
    def scandir(self, path: _Path) -> list[tuple[str, FileStat]]:
        """Names in a directory, in order, each with its `stat` (for symbolic links, their own)."""
    def mkdir(self, path: _Path, mode: int = 0o777) -> None:
        """Make a directory."""
    def makedirs(self, path: _Path, mode: int = 0o777, exist_ok: bool = False) -> None:
        """Make a directory and the missing ones above it."""
    def symlink(self, target: _Path, path: _Path) -> None:
        """Make a symbolic link at `path` to `target`."""
    def readlink(self, path: _Path) -> str:
        """The target of a symbolic link."""
    def link(self, path: _Path, new: _Path) -> None:
        """Make a hard link to a file."""
    def remove(self, path: _Path) -> None:
        """Remove a file."""
    def rmdir(self, path: _Path) -> None:
        """Remove an empty directory."""
    def remove_all(self, path: _Path) -> None:
        """Remove a file, or a directory with everything below; no error if nothing exists."""
    def rename(self, old: _Path, new: _Path, *, replace: bool = True) -> None:
        """Rename atomically; replaces what has the new name, unless `replace` is False: then it is an error."""
    def chmod(self, path: _Path, mode: int) -> None:
        """Change permissions."""
    def chown(self, path: _Path, uid: int, gid: int) -> None:
        """Change owner and group; -1 leaves one unchanged."""
    def utime(self, path: _Path, ns: tuple[int, int] | None = None) -> None:
        """Set the times of last access and modification, in nanoseconds since 1970; the present time if None."""
    def truncate(self, path: _Path, size: int) -> None:
        """Set a file's size, in bytes."""
    def access(self, path: _Path, mode: int) -> bool:
        """True if this user may read (4), write (2), execute or enter (1); modes add up; 0: if it exists."""
    def getxattr(self, path: _Path, name: str | bytes) -> bytes:
        """The value of an extended attribute."""
    def setxattr(self, path: _Path, name: str | bytes, value: Buffer) -> None:
        """Set an extended attribute (`user.NAME`)."""
    def listxattr(self, path: _Path) -> list[str]:
        """Names of all extended attributes."""
    def removexattr(self, path: _Path, name: str | bytes) -> None:
        """Remove an extended attribute."""
    def space(self, path: _Path | None = None) -> FileSpace:
        """Capacity in bytes, and number of files."""
    def sync_dir(self, path: _Path) -> None:
        """Return when the names in a directory survive power loss."""
    def check(self, path: _Path) -> list[str]:
        """Check the records of the container with this path, and return contradictions: none, unless Cenote or a device
        has failed. Nobody may change the container meanwhile.
        """
    def put(self, path: _Path, value: Buffer, *, replace: bool = True, perm: int = 0o666) -> None:
        """Put a whole file in its place atomically: others see the previous state or the whole file. Missing
        directories
        above are made. With replace=False: raises FileExistsError if something exists.
        """
    def copy(self, source: _Path, target: _Path, *, replace: bool = True, perm: int = 0o666) -> None:
        """Copy a file atomically, as `put` does: bytes are shared where possible, and else copied within the store."""
    def open_raw(self, path: _Path, mode: str = "rb", perm: int = 0o666) -> RawFile:
        """Open a file without buffering. mode: as for the built-in `open`, with or without "b"."""
    def open(
        self,
        path: _Path,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> IO[Any]:
        """Open a file like the built-in `open`: buffered, as text unless the mode has "b"."""

@final
class RawFile:
    """An open file of a store: reads and writes at offsets, without buffering. `Store.files.open` wraps it in a Python
    file.
    """

    @property
    def name(self) -> str:
        """The path by which it was opened."""
    @property
    def closed(self) -> bool:
        """True once closed."""
    @property
    def readable(self) -> bool:
        """True if it was opened for reading."""
    @property
    def writable(self) -> bool:
        """True if it was opened for writing."""
    @property
    def appends(self) -> bool:
        """True if every write goes to the end."""
    def stat(self) -> FileStat:
        """Its present `stat`."""
    def size(self) -> int:
        """Its present size in bytes."""
    def pread(self, size: int, offset: int) -> bytes:
        """Read up to `size` bytes from `offset`: fewer only at the end."""
    def preadinto(self, buffer: Buffer, offset: int) -> int:
        """Fill a writable buffer with the bytes from `offset` on; returns how many there were."""
    def pwrite(self, buffer: Buffer, offset: int) -> int:
        """Write a buffer at `offset`, in one update."""
    def append(self, buffer: Buffer) -> int:
        """Write a buffer at the end, also with concurrent appends; returns its offset."""
    def view(self, offset: int = 0, size: int | None = None) -> View:
        """The bytes by reference if they are in one piece of mapped memory, else a copy. They do not change while the
        view lives. size: to the end if None.
        """
    def truncate(self, size: int) -> None:
        """Set its size, in bytes."""
    def next_data(self, offset: int) -> int:
        """Where the next data begin, at or after `offset`; raises OSError (ENXIO) past the last."""
    def next_hole(self, offset: int) -> int:
        """Where the next hole begins, at or after `offset`; the end counts as one."""
    def punch(self, offset: int, size: int) -> None:
        """Make a hole of `size` bytes at `offset`; the file's size stays."""
    def copy_from(self, source: RawFile, source_offset: int, offset: int, size: int) -> int:
        """Copy bytes from another open file of the store, without moving them where the store can; returns how many."""
    def sync(self) -> None:
        """Return when written data survive power loss."""
    def flush(self) -> None:
        """In a directory of consistency "commit": show others what was written."""
    def close(self) -> None:
        """Close it. Raises the error of an earlier write, if there was one."""

@final
class FileStat:
    """The result of `stat` for a file or directory."""

    st_mode: int
    st_ino: int
    st_nlink: int
    st_uid: int
    st_gid: int
    st_size: int
    st_blocks: int
    st_atime_ns: int
    st_mtime_ns: int
    st_ctime_ns: int
    st_birthtime_ns: int
    st_rdev: int
    consistency: Literal["strict", "commit", "laminated"]
    st_mtime: float
    def is_dir(self) -> bool:
        """True for a directory."""
    def is_file(self) -> bool:
        """True for a file."""
    def is_symlink(self) -> bool:
        """True for a symbolic link."""

@final
class FileSpace:
    """Capacity of a store, or of a container with a quota."""

    total_bytes: int
    free_bytes: int
    files: int

@final
class ZarrTree:
    """An HDF5 file of a store as Zarr's keys and values. `cenote.zarr` makes a store for zarr-python of it."""

    @staticmethod
    def open(
        store: Store, path: str | os.PathLike[str], writable: bool = False, zarr_format: Literal[2, 3] = 3
    ) -> ZarrTree:
        """Open the HDF5 file whose stub is at `path`."""
    @staticmethod
    def create(store: Store, path: str | os.PathLike[str], zarr_format: Literal[2, 3] = 3) -> ZarrTree:
        """Make a new, empty HDF5 file at `path`, which must not exist."""
    @property
    def writable(self) -> bool:
        """True if it was opened for writing."""
    def get(self, key: str) -> bytes | None:
        """The value of a key; None if it does not exist."""
    def set(self, key: str, value: Buffer) -> None:
        """Set a key: a metadata document, or a chunk of an existing array."""
    def delete(self, key: str) -> bool:
        """Delete a key; False if it did not exist."""
    def delete_dir(self, key: str) -> None:
        """Delete everything at or below a key."""
    def size(self, key: str) -> int | None:
        """Length of a key's value in bytes; -1 if there are keys below it; None if it does not exist."""
    def list_dir(self, key: str) -> list[tuple[str, bool]]:
        """Names directly below a key, in order, each with True if it has keys below it."""
    def list(self, key: str) -> list[str]:
        """All keys at or below a key."""
    def notes(self) -> list[tuple[str, bool, str]]:
        """Datasets that Zarr does not see (False) or sees converted (True), with path and reason."""
