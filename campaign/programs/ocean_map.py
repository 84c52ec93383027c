"""Reads the ocean's temperature with xarray and prepares a map: values on a regular grid.

Usage: ocean_map.py RESULT_JSON OUTPUT.npz FILE
"""

import sys

import numpy as np
import xarray

from campaign.programs import say

STEP_DEGREES = 2.0


def regular_grid(
    latitude: np.ndarray, longitude: np.ndarray, values: np.ndarray, rows: np.ndarray, columns: np.ndarray
) -> np.ndarray:
    """Means of the points in each cell; NaN on land. An empty cell becomes sea or land like most neighbours."""
    sea = np.isfinite(values) & (values != 0)
    edges = (rows, columns)
    total = np.histogram2d(latitude[sea], longitude[sea], edges, weights=values[sea])[0]
    count = np.histogram2d(latitude[sea], longitude[sea], edges)[0]
    land = np.histogram2d(latitude[~sea], longitude[~sea], edges)[0]
    for _ in range(3):
        empty = count + land == 0
        around = [(dy, dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1) if (dy, dx) != (0, 0)]
        near = [np.sum([np.roll(layer, shift, (0, 1)) for shift in around], axis=0) for layer in (total, count, land)]
        watery = empty & (near[1] > near[2])
        total = np.where(watery, near[0], total)
        count = np.where(watery, near[1], count)
        land = np.where(empty & (near[2] > 0) & ~watery, 1, land)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(count > 0, total / count, np.nan)


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
    grid = regular_grid(latitude, (longitude + 180) % 360 - 180, values, rows, columns)
    np.savez(output, grid=grid, rows=rows, columns=columns)
    say.progress(1, 1)
    say.result(result, {"seconds": watch.seconds, "mean": mean, "units": units, "name": name})


if __name__ == "__main__":
    main()
