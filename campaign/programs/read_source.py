"""Reads NetCDF files of any kind and keeps their content as plain Python values, for other programs to write.

Usage: read_source.py OUTPUT_DIR FILE...

Runs without any connector, since source files are native. Writes for each FILE one pickle with the netCDF4 view
(dimensions, variables, attributes, chunking, filters, raw values) and the xarray view of it.
"""

import pickle
import sys
from pathlib import Path

import netCDF4
import xarray

from campaign.programs import say


def read_variable(variable: netCDF4.Variable) -> dict:
    """Everything needed to make the same variable again."""
    filters = variable.filters() or {}
    chunking = variable.chunking()
    return {
        "name": variable.name,
        "dtype": variable.dtype,
        "dimensions": variable.dimensions,
        "attributes": {name: variable.getncattr(name) for name in variable.ncattrs()},
        "chunks": chunking if isinstance(chunking, list) else None,
        "deflate": filters.get("complevel", 0) if filters.get("zlib") else 0,
        "shuffle": bool(filters.get("shuffle")),
        "fletcher32": bool(filters.get("fletcher32")),
        "endian": variable.endian(),
        "values": variable[...],
    }


def read_netcdf(path: Path) -> dict:
    """The netCDF4 view of a file without groups (the sample files have none)."""
    with netCDF4.Dataset(path) as source:
        if source.groups:
            say.fail(f"{path}: has groups, which this program does not copy")
        source.set_auto_maskandscale(False)
        source.set_auto_chartostring(False)
        return {
            "data_model": source.data_model,
            "dimensions": [(name, len(dim), dim.isunlimited()) for name, dim in source.dimensions.items()],
            "attributes": {name: source.getncattr(name) for name in source.ncattrs()},
            "variables": [read_variable(variable) for variable in source.variables.values()],
        }


def main() -> None:
    output, *files = sys.argv[1:]
    for number, name in enumerate(files):
        path = Path(name)
        with xarray.open_dataset(path, engine="netcdf4", decode_timedelta=False) as dataset:
            content = {"netcdf": read_netcdf(path), "xarray": dataset.load()}
        with (Path(output) / f"{path.stem}.pickle").open("wb") as out:
            pickle.dump(content, out)
        say.progress(number + 1, len(files))


if __name__ == "__main__":
    main()
