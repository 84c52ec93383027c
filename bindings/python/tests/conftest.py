"""A small store for each test, removed afterwards."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import cenote
import pytest
from small import tiers


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A directory whose store, if any, is destroyed afterwards."""
    yield tmp_path
    with contextlib.suppress(cenote.Error):
        cenote.destroy(tmp_path / "store", force=True)


@pytest.fixture
def store(folder: Path) -> Iterator[cenote.Store]:
    with cenote.open(folder / "store", tiers=tiers(folder)) as opened:
        yield opened


@pytest.fixture
def runs(store: cenote.Store) -> cenote.Container:
    return store.container("runs")
