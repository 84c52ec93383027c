"""A store for each test, small and gone afterwards."""

import contextlib
import os
import shutil
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
    """A directory whose store, if any, is destroyed afterwards, and whose shared memory is given back."""
    yield tmp_path
    with contextlib.suppress(cenote.Error):
        cenote.destroy(tmp_path / "store", force=True)
    # What a test moved or damaged noted where it was.
    for memory in Path("/dev/shm").glob("cenote-*"):
        with contextlib.suppress(OSError):
            if (memory / "home").read_bytes().startswith(os.fsencode(tmp_path)):
                shutil.rmtree(memory)


@pytest.fixture
def store(folder: Path) -> Iterator[cenote.Store]:
    with cenote.open(folder / "store", tiers=tiers(folder)) as opened:
        yield opened


@pytest.fixture
def runs(store: cenote.Store) -> cenote.Container:
    return store.container("runs")
