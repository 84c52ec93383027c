"""A file as seen by xarray, with times, scales and fill values decoded."""

import numpy as np
import xarray

from .table import Table


def table_of(path: str) -> Table:
    """The table of a file."""
    table = Table()
    with xarray.open_dataset(path, engine="netcdf4", decode_timedelta=False) as dataset:
        for name, length in dataset.sizes.items():
            table.put(f"/#{name}", length)
        for name, value in dataset.attrs.items():
            table.put_values(f"/@{name}", value)
        for name, variable in dataset.variables.items():
            table.put(f"/{name}:type", f"{variable.dtype} {variable.dims} {variable.shape}")
            for attribute, value in variable.attrs.items():
                table.put_values(f"/{name}@{attribute}", value)
            table.put_values(f"/{name}:values", np.asarray(variable.values))
    return table
