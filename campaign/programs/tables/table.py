"""The table itself, and the lossless conversion of values to text."""

import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np

SHORT_BYTES = 24


@dataclass
class Table:
    """Rows of a file. Names: `path:property`, `path@attribute`; `path#dimension`."""

    rows: dict[str, str] = field(default_factory=dict)
    bytes: int = 0

    def put(self, name: str, text: Any) -> None:
        """Adds a row; each name may occur once."""
        if name in self.rows:
            raise ValueError(f"two rows are called {name}")
        self.rows[name] = str(text)

    def put_values(self, name: str, values: Any) -> None:
        """Adds a row for values: type, shape, and the bytes or their SHA-256."""
        raw = to_bytes(values)
        self.bytes += len(raw)
        array = np.asarray(values)
        head = f"{type_name(array.dtype)} {list(array.shape)} {len(raw)} bytes"
        content = raw.hex() if len(raw) <= SHORT_BYTES else f"sha256 {hashlib.sha256(raw).hexdigest()}"
        self.put(name, f"{head} {content}")


def type_name(dtype: np.dtype) -> str:
    """A type with byte order and offsets."""
    return str(dtype.descr if dtype.names else dtype.str)


def to_bytes(values: Any) -> bytes:
    """Bytes that are equal only if the values are. Strings and sequences are written with their lengths."""
    array = np.asarray(values)
    if array.dtype.kind in "OUT":
        return b"".join(_framed(_object_bytes(item)) for item in array.reshape(-1).tolist())
    if array.dtype.names and array.dtype.hasobject:
        return b"".join(to_bytes(array[name]) for name in array.dtype.names)
    return np.ascontiguousarray(array).tobytes()


def _object_bytes(item: Any) -> bytes:
    if isinstance(item, str):
        return b"s" + item.encode("utf-8", "surrogateescape")
    if isinstance(item, bytes):
        return b"b" + item
    if item is None:
        return b"n"
    if hasattr(item, "isoformat"):  # dates of calendars that numpy does not know
        return f"d{item.isoformat()} {getattr(item, 'calendar', '')}".encode()
    if isinstance(item, int | float | np.generic | np.ndarray | list | tuple):
        return b"a" + to_bytes(np.asarray(item))
    raise TypeError(f"no bytes for a {type(item).__name__}")


def _framed(raw: bytes) -> bytes:
    return len(raw).to_bytes(8, "little") + raw
