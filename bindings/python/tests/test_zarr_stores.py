"""zarr-python's own store tests: on files of a store by `FileStore`, and over fsspec."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cenote
import numpy as np
import pytest
from small import MIB, tiers

zarr = pytest.importorskip("zarr", reason="zarr is not installed")
pytest.importorskip("pytest_asyncio", reason="zarr's store tests need pytest-asyncio")
from cenote.zarr import FileStore  # noqa: E402
from zarr.core.buffer import Buffer, cpu  # noqa: E402
from zarr.testing.store import StoreTests  # noqa: E402


@pytest.fixture
def store_dir(folder: Path) -> Iterator[str]:
    with cenote.open(folder / "store", mode="daemon", tiers=tiers(folder, memory=128 * MIB)):
        yield str(folder / "store")
    cenote.stop(folder / "store")


@pytest.mark.asyncio(loop_scope="function")
@pytest.mark.filterwarnings("ignore:.*is marked with '@pytest.mark.asyncio'")
class TestFileStore(StoreTests[FileStore, cpu.Buffer]):
    store_cls = FileStore
    buffer_cls = cpu.Buffer

    async def set(self, store: FileStore, key: str, value: Buffer) -> None:
        cenote.open(store.store_dir).files.put(f"/{store.path}/{key}", value.to_bytes())

    async def get(self, store: FileStore, key: str) -> Buffer:
        with cenote.open(store.store_dir).files.open(f"/{store.path}/{key}", "rb") as file:
            return self.buffer_cls.from_bytes(file.read())

    @pytest.fixture
    def store_kwargs(self, store_dir: str) -> dict[str, Any]:  # type: ignore[override]
        return {"path": "container/run.zarr", "store": store_dir}

    # zarr's are asynchronous fixtures, which need a setting for all tests of a run.
    @pytest.fixture
    def store(self, open_kwargs: dict[str, Any]) -> FileStore:  # type: ignore[override]
        return asyncio.run(self.store_cls.open(**open_kwargs))

    @pytest.fixture
    def store_not_open(self, store_kwargs: dict[str, Any]) -> FileStore:  # type: ignore[override]
        return self.store_cls(**store_kwargs)

    def test_store_repr(self, store: FileStore) -> None:
        assert repr(store) == f"FileStore('cenote://{store.store_dir}//container/run.zarr')"

    def test_store_supports_writes(self, store: FileStore) -> None:
        assert store.supports_writes

    def test_store_supports_listing(self, store: FileStore) -> None:
        assert store.supports_listing


def test_arrays_on_files(store_dir: str) -> None:
    data = np.random.default_rng(1).normal(size=(300, 200))
    store = FileStore("container/run.zarr", store_dir)
    made = zarr.create_array(store, name="a/b", shape=data.shape, chunks=(64, 64), dtype="f8")
    made[:] = data
    np.testing.assert_array_equal(zarr.open_array(store, path="a/b", mode="r")[:], data)
    url = f"cenote://{store_dir}//container/run.zarr"
    np.testing.assert_array_equal(zarr.open_group(url, mode="r")["a/b"][:], data)
    zarr.open_group(url, mode="r+")["a/b"][:10] = 0
    assert (made[:10] == 0).all()


def test_values_in_memory_are_given_by_reference(store_dir: str) -> None:
    store = FileStore("container/x", store_dir)
    store.set_sync("big", cpu.Buffer.from_bytes(bytes(8 * MIB)))
    found = store.get_sync("big")
    assert found is not None
    base = found.as_numpy_array().base
    assert isinstance(base, cenote.View)
    assert base.by_reference
