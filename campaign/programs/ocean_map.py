"""Reads the ocean's temperature with xarray and prepares it for a map: values on a regular grid.

Usage: ocean_map.py RESULT_JSON OUTPUT.npz FILE
"""

import sys

import numpy as np
import xarray

from campaign.programs import say

STEP_DEGREES = 2.0


def main() -> None:
    result, output, path = sys.argv[1:]
    watch = say.Stopwatch()
    with watch(), xarray.open_dataset(path, engine="netcdf4", decode_times=False) as dataset:
        temperature = dataset["votemper"]
        mean = float(temperature.where(temperature != 0).mean())
        latitude, longitude = dataset["nav_lat"].values, dataset["nav_lon"].values
        values, units = temperature.values, temperature.attrs.get("units", "")
        name = temperature.attrs.get("long_name", "temperature")
    rows = np.arange(-90, 90 + STEP_DEGREES, STEP_DEGREES)
    columns = np.arange(-180, 180 + STEP_DEGREES, STEP_DEGREES)
    sea = np.isfinite(values) & (values != 0)
    where = (latitude[sea], (longitude[sea] + 180) % 360 - 180)
    total = np.histogram2d(*where, (rows, columns), weights=values[sea])[0]
    count = np.histogram2d(*where, (rows, columns))[0]
    with np.errstate(invalid="ignore"):
        grid = total / count
    np.savez(output, grid=grid, rows=rows, columns=columns)
    say.progress(1, 1)
    say.result(result, {"seconds": watch.seconds, "mean": mean, "units": units, "name": name})


if __name__ == "__main__":
    main()
