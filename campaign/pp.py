"""Reads the UK Met Office's PP files: big-endian Fortran records, alternately a header and a field.

Reads only unpacked fields (`LBPACK` 0), which the sample data have; an error names a packed one.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

HEADER_INTS = 45
HEADER_REALS = 19
HEADER_WORDS = 64

# Positions (from 0) of the header words needed to read a field; names as in the format's description (UMDP F3).
LBLREC, LBROW, LBNPT, LBEXT, LBPACK, LBUSER1, LBUSER4, LBUSER7 = 14, 17, 18, 19, 20, 38, 41, 44
BMDI = 17  # among the reals


class PPError(ValueError):
    """A file that is not a PP file, is truncated, or has fields that this reader does not know."""


@dataclass(frozen=True)
class Field:
    """One two-dimensional field with its header. Arrays keep the file's byte order."""

    ints: np.ndarray
    reals: np.ndarray
    data: np.ndarray
    extra: dict[int, np.ndarray] = field(default_factory=dict)

    @property
    def stash(self) -> str:
        """The field's STASH code, as in `m01s00i024`."""
        section, item = divmod(int(self.ints[LBUSER4]), 1000)
        return f"m{int(self.ints[LBUSER7]):02d}s{section:02d}i{item:03d}"

    @property
    def missing_value(self) -> np.float32 | np.float64:
        """The value that marks missing data."""
        return self.reals[BMDI]


def read_fields(path: Path) -> Iterator[Field]:
    """The fields of a file, in order."""
    content = memoryview(Path(path).read_bytes())
    word = word_bytes(content, path)
    offset = 0
    while offset < len(content):
        header, offset = _record(content, offset, path)
        if len(header) != HEADER_WORDS * word:
            raise PPError(f"{path}: header of {len(header)} bytes before byte {offset}, expected {HEADER_WORDS * word}")
        body, offset = _record(content, offset, path)
        yield _field(header, body, word, path)


def word_bytes(content: memoryview, path: Path) -> int:
    """Bytes per word, 4 or 8, from the length of the first header."""
    first = int.from_bytes(content[:4], "big")
    if first not in (HEADER_WORDS * 4, HEADER_WORDS * 8):
        raise PPError(f"{path}: not a PP file: it begins with {bytes(content[:4])!r}")
    return first // HEADER_WORDS


def _record(content: memoryview, offset: int, path: Path) -> tuple[memoryview, int]:
    """A Fortran record: its length, its bytes, its length again."""
    length = int.from_bytes(content[offset : offset + 4], "big")
    end = offset + 4 + length
    if end + 4 > len(content):
        raise PPError(f"{path}: cut off: a record of {length} bytes at byte {offset} goes past the end")
    if int.from_bytes(content[end : end + 4], "big") != length:
        raise PPError(f"{path}: damaged: the record at byte {offset} does not end with its length")
    return content[offset + 4 : end], end + 4


def _field(header: memoryview, body: memoryview, word: int, path: Path) -> Field:
    ints = np.frombuffer(header, f">i{word}", HEADER_INTS)
    reals = np.frombuffer(header, f">f{word}", HEADER_REALS, offset=HEADER_INTS * word)
    if ints[LBPACK] % 10 != 0:
        raise PPError(f"{path}: field is packed (LBPACK={ints[LBPACK]}), which this reader does not know")
    rows, columns, extra_words = int(ints[LBROW]), int(ints[LBNPT]), int(ints[LBEXT])
    kind = {1: "f", 2: "i", 3: "i"}.get(abs(int(ints[LBUSER1])))
    if kind is None:
        raise PPError(f"{path}: field of unknown type (LBUSER1={ints[LBUSER1]})")
    if len(body) < (rows * columns + extra_words) * word:
        raise PPError(f"{path}: field of {rows} x {columns} values in a record of {len(body)} bytes")
    data = np.frombuffer(body, f">{kind}{word}", rows * columns).reshape(rows, columns)
    tail = body[rows * columns * word : (rows * columns + extra_words) * word]
    return Field(ints, reals, data, _extra(tail, word, path))


def _extra(tail: memoryview, word: int, path: Path) -> dict[int, np.ndarray]:
    """Vectors after the data (bounds, coordinates), by code: each begins with 1000 x length + code."""
    found = {}
    offset = 0
    while offset < len(tail):
        length, code = divmod(int.from_bytes(tail[offset : offset + word], "big"), 1000)
        offset += word
        if length == 0 or offset + length * word > len(tail):
            raise PPError(f"{path}: extra vector {code} of {length} words does not fit")
        found[code] = np.frombuffer(tail, f">f{word}", length, offset=offset)
        offset += length * word
    return found
