"""How much is measured."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """Of one turn of one contender."""

    pairs: int
    # One program on a mount: the large file, and small files of 100 bytes.
    mib: int
    small_files: int
    # Each of the processes on four nodes.
    mib_each: int
    files_each: int
    # S3: the time for one kind of request.
    seconds: float
    clients: int
    # Objects: awaited writes of 4 KiB, and new objects of 4 MiB.
    small_writes: int
    large_writes: int


FULL = Sizes(
    pairs=5,
    mib=512,
    small_files=2000,
    mib_each=128,
    files_each=1000,
    seconds=4,
    clients=16,
    small_writes=2000,
    large_writes=128,
)
QUICK = Sizes(
    pairs=1,
    mib=64,
    small_files=200,
    mib_each=16,
    files_each=100,
    seconds=1,
    clients=16,
    small_writes=200,
    large_writes=24,
)
