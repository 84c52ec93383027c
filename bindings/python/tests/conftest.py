"""A store for each test, small and gone afterwards."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import cenote
import pytest

MIB = 1 << 20


def tiers(folder: Path, memory: int = 16 * MIB) -> list[cenote.Tier]:
    return [
        cenote.Tier("memory", "memory", memory),
        cenote.Tier("disk", "directory", 64 * MIB, folder / "disk"),
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A directory whose store, if any, is stopped afterwards, and whose shared memory is given back."""
    yield tmp_path
    directory = tmp_path / "store"
    with contextlib.suppress(cenote.Error):
        cenote.stop(directory)
    with contextlib.suppress(cenote.Error), cenote.open(directory, create=False) as store:
        identity = store.id
    with contextlib.suppress(UnboundLocalError):
        for left in Path("/dev/shm").glob(f"cenote-{identity}*"):
            remove(left)


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        for inner in path.iterdir():
            remove(inner)
        path.rmdir()
    else:
        path.unlink()


@pytest.fixture
def store(folder: Path) -> Iterator[cenote.Store]:
    with cenote.open(folder / "store", tiers=tiers(folder)) as opened:
        yield opened


@pytest.fixture
def runs(store: cenote.Store) -> cenote.Container:
    return store.container("runs")
