"""Writes datasets with xarray, like an analysis that keeps its results: compressed where it pays.

Usage: write_xarray.py RESULT_JSON OUTPUT_DIR PICKLE...
"""

import pickle
import sys
from pathlib import Path

import numpy as np
import xarray

from campaign.programs import say


def encoding_of(dataset: xarray.Dataset) -> dict:
    """Deflate, shuffle and Fletcher-32 for every numeric array, in chunks of one record."""
    found = {}
    for name, variable in dataset.data_vars.items():
        if variable.ndim and variable.dtype.kind in "fiu":
            chunks = (1, *variable.shape[1:]) if variable.ndim > 1 else variable.shape
            found[name] = {"zlib": True, "complevel": 1, "shuffle": True, "fletcher32": True, "chunksizes": chunks}
    return found


def without_encoding(dataset: xarray.Dataset) -> xarray.Dataset:
    """The dataset without the encoding of its source file, except the units of time."""
    plain = dataset.copy()
    for variable in plain.variables.values():
        kept = ("units", "calendar", "dtype") if variable.dtype.kind == "M" else ()
        variable.encoding = {key: variable.encoding[key] for key in kept if key in variable.encoding}
    plain.encoding = {"unlimited_dims": [name for name in dataset.encoding.get("unlimited_dims", ())]}
    return plain


def main() -> None:
    result, output, *pickles = sys.argv[1:]
    watch, size = say.Stopwatch(), 0
    for number, name in enumerate(pickles):
        dataset = without_encoding(pickle.loads(Path(name).read_bytes())["xarray"])
        with watch():
            dataset.to_netcdf(Path(output) / f"{Path(name).stem}.nc", engine="netcdf4", encoding=encoding_of(dataset))
        size += sum(np.asarray(variable).nbytes for variable in dataset.variables.values())
        say.progress(number + 1, len(pickles))
    say.result(result, {"seconds": watch.seconds, "bytes": size, "files": len(pickles)})


if __name__ == "__main__":
    main()
