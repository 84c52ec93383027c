"""An HDF5 file as Zarr: by `Hdf5Store`, in formats 3 and 2, and by fsspec."""

import warnings

import cenote.zarr
import fsspec
import numpy as np
import zarr

warnings.filterwarnings("ignore")


class ZarrView:
    """One file, changed and read by zarr-python."""

    def __init__(self, store: str) -> None:
        self.store = store
        self.path = ""

    def open(self, path: str, mode: str) -> None:
        assert mode == "r+"
        self.path = path

    def close(self) -> None:
        self.path = ""

    @property
    def root(self) -> zarr.Group:
        """Opened anew for each operation: zarr-python writes back the document that it read when it opened a node."""
        return zarr.open_group(cenote.zarr.Hdf5Store(self.path, self.store), mode="r+")

    def create(self, name: str, shape: tuple, dtype: str, chunks: tuple | None, how: dict[str, object]) -> None:
        from zarr.codecs.numcodecs import Zlib

        compressors = [Zlib(level=how["compression_opts"])] if "compression" in how else None
        fill = how.get("fillvalue", 0)
        self.root.create_array(
            name, shape=shape, dtype=dtype, chunks=chunks or shape, compressors=compressors, fill_value=fill
        )

    def group(self, name: str) -> None:
        self.root.create_group(name)

    def write(self, name: str, where: tuple, value: np.ndarray) -> None:
        self.root[name][where] = value

    def resize(self, name: str, shape: tuple) -> None:
        self.root[name].resize(shape)

    def set_attribute(self, name: str, key: str, value: object) -> None:
        self.node(name).attrs[key] = value

    def delete_attribute(self, name: str, key: str) -> None:
        del self.node(name).attrs[key]

    def delete(self, name: str) -> None:
        del self.root[name]

    def node(self, name: str) -> zarr.Group | zarr.Array:
        return self.root if name == "/" else self.root[name]

    def state(self, how: str) -> dict[str, tuple[np.ndarray | None, dict[str, object]]]:
        """All arrays and groups, read by one of three ways."""
        if how == "fsspec":
            files = fsspec.filesystem("cenote", store=self.store, asynchronous=False)
            mapper = files.get_mapper(f"hdf5:{self.path}")
            root = zarr.open_group(zarr.storage.FsspecStore.from_mapper(mapper, read_only=True), mode="r")
        else:
            there = cenote.zarr.Hdf5Store(self.path, self.store, read_only=True, zarr_format=int(how))
            root = zarr.open_group(there, mode="r", zarr_format=int(how))
        found = {"/": (None, dict(root.attrs))}
        for name, what in root.members(max_depth=None):
            found[name] = (what[...] if isinstance(what, zarr.Array) else None, dict(what.attrs))
        return found
