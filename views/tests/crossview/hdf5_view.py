"""An HDF5 file by h5py on the connector, which the environment of this process names."""

import h5py
import numpy as np

ArrayState = dict[str, tuple[np.ndarray, dict[str, object]]]


class Hdf5View:
    """One open file, changed and read by h5py."""

    def __init__(self) -> None:
        self.file: h5py.File | None = None

    def open(self, path: str, mode: str) -> None:
        self.file = h5py.File(path, mode)

    def close(self) -> None:
        self.file.close()
        self.file = None

    def create(self, name: str, shape: tuple, dtype: str, chunks: tuple | None, how: dict[str, object]) -> None:
        """A dataset; one that can grow is chunked. how: filters, fill value."""
        more = {"maxshape": (None,) * len(shape)} if chunks else {}
        self.file.create_dataset(name, shape, dtype, chunks=chunks, **more, **how)

    def group(self, name: str) -> None:
        self.file.create_group(name)

    def write(self, name: str, where: tuple, value: np.ndarray) -> None:
        self.file[name][where] = value

    def resize(self, name: str, shape: tuple) -> None:
        self.file[name].resize(shape)

    def set_attribute(self, name: str, key: str, value: object) -> None:
        self.file[name].attrs[key] = value

    def delete_attribute(self, name: str, key: str) -> None:
        del self.file[name].attrs[key]

    def delete(self, name: str) -> None:
        del self.file[name]

    def rename(self, old: str, new: str) -> None:
        self.file.move(old, new)

    def flush(self) -> None:
        self.file.flush()

    def state(self) -> ArrayState:
        """All datasets and groups, with their attributes."""
        found: ArrayState = {"/": (None, _plain(self.file.attrs))}

        def visit(name: str, what: h5py.Group | h5py.Dataset) -> None:
            found[name] = (what[()] if isinstance(what, h5py.Dataset) else None, _plain(what.attrs))

        self.file.visititems(visit)
        return found


def _plain(attributes: h5py.AttributeManager) -> dict[str, object]:
    hidden = ("CLASS", "NAME", "REFERENCE_LIST", "DIMENSION_LIST", "DIMENSION_LABELS")
    return {key: _value(value) for key, value in attributes.items() if key not in hidden}


def _value(value: object) -> object:
    """As Python has it, whatever numbers it was made of."""
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.tolist()
    return value
