"""Turns PP files into HDF5 files with h5py: one group for each field, an index table, links and references.

Usage: write_h5py.py RESULT_JSON OUTPUT_DIR PP_FILE...
"""

import sys
from pathlib import Path

import h5py
import numpy as np

from campaign import pp
from campaign.programs import say

INDEX = np.dtype([("stash", "S10"), ("rows", "<i4"), ("columns", "<i4"), ("level", "<f4"), ("span", "<f4", (2,))])
PROCESSING = h5py.enum_dtype({"instant": 0, "mean": 128, "minimum": 4096, "maximum": 8192}, basetype="i4")
LBPROC, BLEV = 24, 6


def write_field(group: h5py.Group, field: pp.Field, packed: bool) -> h5py.Dataset:
    """Writes one field with its header. Every other field is stored in compressed chunks with checksums."""
    options = {}
    if packed:
        rows, columns = field.data.shape
        options = {
            "chunks": (min(rows, 64), columns),
            "compression": "gzip",
            "compression_opts": 1,
            "shuffle": True,
            "fletcher32": True,
        }
    data = group.create_dataset("data", data=field.data, fillvalue=field.missing_value, **options)
    data.attrs["stash"] = field.stash
    data.attrs["integer_header"] = field.ints
    data.attrs["real_header"] = field.reals
    if int(field.ints[LBPROC]) in h5py.check_enum_dtype(PROCESSING).values():
        data.attrs.create("processing", field.ints[LBPROC], dtype=PROCESSING)
    for code, vector in field.extra.items():
        group.create_dataset(f"extra_{code}", data=vector)
    if field.extra:
        group.attrs["extra"] = np.array(sorted(field.extra), dtype="i2")
    return data


def index_row(field: pp.Field) -> tuple:
    """The row of the index table for a field."""
    rows, columns = field.data.shape
    span = (field.data.min(), field.data.max())
    return (field.stash.encode(), rows, columns, field.reals[BLEV], span)


def write(path: Path, source: Path, fields: list[pp.Field]) -> None:
    """Writes one HDF5 file."""
    with h5py.File(path, "w", track_order=True) as target:
        target.attrs["source"] = source.name
        target.attrs["conventions"] = np.array(["PP", "HDF5 — fields in groups"], dtype=h5py.string_dtype())
        data = [
            write_field(target.create_group(f"field_{number:03d}"), field, packed=number % 2 == 0)
            for number, field in enumerate(fields)
        ]
        index = target.create_dataset("index", (0,), maxshape=(None,), dtype=INDEX, chunks=(32,))
        for field in fields:
            index.resize(len(index) + 1, axis=0)
            index[-1] = np.array(index_row(field), dtype=INDEX)
        refs = target.create_dataset("fields", (len(data),), dtype=h5py.ref_dtype)
        refs[:] = [dataset.ref for dataset in data]
        names = target.create_dataset("stash", (len(data),), dtype=h5py.string_dtype())
        names[:] = [field.stash for field in fields]
        lengths = target.create_dataset("extra_codes", (len(data),), dtype=h5py.vlen_dtype("i2"))
        for number, field in enumerate(fields):
            lengths[number] = np.array(sorted(field.extra), dtype="i2")
        target["first"] = data[0]
        target["last"] = h5py.SoftLink(data[-1].name)


def main() -> None:
    result, output, *files = sys.argv[1:]
    watch, size, count = say.Stopwatch(), 0, 0
    for number, name in enumerate(files):
        fields = list(pp.read_fields(Path(name)))
        with watch():
            write(Path(output) / f"{Path(name).stem}.h5", Path(name), fields)
        size += sum(field.data.nbytes for field in fields)
        count += len(fields)
        say.progress(number + 1, len(files))
    say.result(result, {"seconds": watch.seconds, "bytes": size, "files": len(files), "fields": count})


if __name__ == "__main__":
    main()
