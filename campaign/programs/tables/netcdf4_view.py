"""A file as seen by the netCDF4 library."""

import netCDF4

from .table import Table


def table_of(path: str) -> Table:
    """The table of a file."""
    table = Table()
    with netCDF4.Dataset(path) as dataset:
        dataset.set_auto_maskandscale(False)
        dataset.set_auto_chartostring(False)
        table.put(":model", dataset.data_model)
        _group(table, dataset, "")
    return table


def _group(table: Table, group: netCDF4.Dataset, base: str) -> None:
    table.put(f"{base}/:dimensions", list(group.dimensions))
    table.put(f"{base}/:variables", list(group.variables))
    for name, dimension in group.dimensions.items():
        table.put(f"{base}/#{name}", f"{len(dimension)}{' unlimited' if dimension.isunlimited() else ''}")
    for name in group.ncattrs():
        table.put_values(f"{base}/@{name}", group.getncattr(name))
    for name, variable in group.variables.items():
        path = f"{base}/{name}"
        table.put(f"{path}:type", f"{variable.dtype} {variable.endian()} {variable.dimensions} {variable.shape}")
        table.put(f"{path}:storage", f"{variable.chunking()} {variable.filters()}")
        for attribute in variable.ncattrs():
            table.put_values(f"{path}@{attribute}", variable.getncattr(attribute))
        table.put_values(f"{path}:values", variable[...])
    for name, inner in group.groups.items():
        _group(table, inner, f"{base}/{name}")
