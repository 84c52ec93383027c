"""The PP reader reads the sample files, and its errors name what it does not know."""

import struct
from pathlib import Path

import iris_sample_data
import numpy as np
import pytest

from campaign import pp

SAMPLES = Path(iris_sample_data.path)


def record(body: bytes) -> bytes:
    length = struct.pack(">i", len(body))
    return length + body + length


def make_file(path: Path, *, pack: int = 0, word: int = 4, extra: bytes = b"", cut: int = 0) -> Path:
    ints = np.zeros(45, f">i{word}")
    ints[[pp.LBROW, pp.LBNPT, pp.LBPACK, pp.LBUSER1, pp.LBEXT]] = 2, 3, pack, 1, len(extra) // word
    ints[[pp.LBUSER4, pp.LBUSER7]] = 3236, 1
    reals = np.zeros(19, f">f{word}")
    reals[pp.BMDI] = -1e30
    data = np.arange(6, dtype=f">f{word}")
    content = record(ints.tobytes() + reals.tobytes()) + record(data.tobytes() + extra)
    path.write_bytes(content[: len(content) - cut])
    return path


@pytest.mark.parametrize("word", [4, 8])
def test_reads_what_was_written(tmp_path, word):
    (found,) = pp.read_fields(make_file(tmp_path / "a.pp", word=word))
    assert found.data.dtype == np.dtype(f">f{word}")
    assert found.data.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert found.stash == "m01s03i236"


def test_reads_extra_vectors(tmp_path):
    extra = struct.pack(">i2f", 2001, 1.5, 2.5) + struct.pack(">i1f", 1007, 9.0)
    (found,) = pp.read_fields(make_file(tmp_path / "a.pp", extra=extra))
    assert {code: list(vector) for code, vector in found.extra.items()} == {1: [1.5, 2.5], 7: [9.0]}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"pack": 1}, "LBPACK=1"), ({"cut": 9}, "cut off"), ({"extra": struct.pack(">if", 9001, 1.0)}, "does not fit")],
)
def test_refuses_by_name(tmp_path, arguments, message):
    with pytest.raises(pp.PPError, match=message):
        list(pp.read_fields(make_file(tmp_path / "a.pp", **arguments)))


def test_refuses_other_files(tmp_path):
    (tmp_path / "a.pp").write_bytes(b"\x89HDF\r\n\x1a\n")
    with pytest.raises(pp.PPError, match="not a PP file"):
        list(pp.read_fields(tmp_path / "a.pp"))


def test_reads_every_sample_file():
    files = sorted(SAMPLES.rglob("*.pp"))
    assert len(files) > 100
    fields = [(path, found) for path in files for found in pp.read_fields(path)]
    assert len(fields) > len(files)
    # Air temperature of the pre-industrial climate lies between that of an Antarctic night and a desert noon.
    (air,) = pp.read_fields(SAMPLES / "pre-industrial.pp")
    assert air.stash == "m01s03i236" and 200 < air.data.min() < air.data.max() < 320
