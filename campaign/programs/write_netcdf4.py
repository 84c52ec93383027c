"""Writes NetCDF-4 files with the netCDF4 library, as a program that converts files does.

Usage: write_netcdf4.py RESULT_JSON OUTPUT_DIR PICKLE...
"""

import pickle
import sys
from pathlib import Path

import netCDF4
import numpy as np

from campaign.programs import say


def make_variable(target: netCDF4.Dataset, content: dict) -> None:
    """Writes one variable with its values and attributes."""
    attributes = dict(content["attributes"])
    options = {}
    if content["chunks"] is not None and content["dimensions"]:
        options["chunksizes"] = content["chunks"]
    if content["deflate"]:
        options |= {"compression": "zlib", "complevel": content["deflate"]}
    if content["endian"] in ("little", "big"):
        options["endian"] = content["endian"]
    variable = target.createVariable(
        content["name"],
        content["dtype"],
        content["dimensions"],
        shuffle=content["shuffle"],
        fletcher32=content["fletcher32"],
        fill_value=attributes.pop("_FillValue", None),
        **options,
    )
    variable.set_auto_maskandscale(False)
    variable.set_auto_chartostring(False)
    for name, value in attributes.items():
        variable.setncattr(name, value)
    if variable.shape == ():
        variable[...] = content["values"]
    else:
        variable[tuple(slice(0, length) for length in content["values"].shape)] = content["values"]


def write(path: Path, content: dict) -> int:
    """Writes one file; returns the bytes of its values."""
    with netCDF4.Dataset(path, "w", format="NETCDF4") as target:
        for name, length, unlimited in content["dimensions"]:
            target.createDimension(name, None if unlimited else length)
        target.setncatts(content["attributes"])
        for variable in content["variables"]:
            make_variable(target, variable)
    return sum(np.asarray(variable["values"]).nbytes for variable in content["variables"])


def main() -> None:
    result, output, *pickles = sys.argv[1:]
    watch, size = say.Stopwatch(), 0
    for number, name in enumerate(pickles):
        content = pickle.loads(Path(name).read_bytes())["netcdf"]
        with watch():
            size += write(Path(output) / f"{Path(name).stem}.nc", content)
        say.progress(number + 1, len(pickles))
    say.result(result, {"seconds": watch.seconds, "bytes": size, "files": len(pickles)})


if __name__ == "__main__":
    main()
