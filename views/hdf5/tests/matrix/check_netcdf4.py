"""Usual operations of netCDF4 programs; prints results as JSON: versions, then one result per check."""

import json
import pathlib
import sys

import netCDF4
import numpy as np

path = sys.argv[1]
seen = {}
with netCDF4.Dataset(path, "w") as d:
    d.title = "checked"
    d.createDimension("time", None)
    d.createDimension("x", 12)
    for name, how in {"plain": {}, "packed": {"zlib": True, "complevel": 3, "shuffle": True}}.items():
        v = d.createVariable(name, "f4", ("time", "x"), fill_value=-9.0, **how)
        v.units, v.steps = "K", np.arange(3)
        for step in range(5):
            v[step] = np.arange(12) + 100 * step
        v[7, 3:6] = 1
    d.createVariable("x", "f8", ("x",))[:] = np.linspace(0, 1, 12)
    d.createVariable("words", str, ("x",))[2] = "hello"
    group = d.createGroup("deep/er")
    group.createDimension("y", 4)
    group.createVariable("counts", "u2", ("y", "x"), chunksizes=(2, 5))[:] = np.arange(48).reshape(4, 12)
    kind = d.createEnumType(np.uint8, "sky", {"clear": 0, "cloud": 1})
    d.createVariable("cover", kind, ("x",), fill_value=0)[:] = np.arange(12) % 2
    record = d.createCompoundType(np.dtype([("i", "i4"), ("f", "f8")]), "record")
    d.createVariable("records", record, ("x",))[0:2] = np.array([(1, 2.5), (3, 4.5)], dtype=record.dtype)
with netCDF4.Dataset(path, "a") as d:
    d.renameVariable("plain", "renamed")
    d["renamed"][1, 2] = 77
    d.note = "added"
with netCDF4.Dataset(path) as d:
    for name, v in d.variables.items():
        attributes = {k: str(v.getncattr(k)) for k in v.ncattrs()}
        seen[name] = [list(v.shape), list(v.dimensions), str(v.filters()), attributes, str(v[:].tolist())]
    seen["counts"] = d["deep/er/counts"][1:4:2, ::3].tolist()
    seen["dimensions"] = {k: [len(v), v.isunlimited()] for k, v in d.dimensions.items()}
    seen["file"] = [d.title, d.note, d.data_model]
versions = {"client": f"netCDF4 {netCDF4.__version__} (netCDF {netCDF4.__netcdf4libversion__})"}
versions["hdf5"] = netCDF4.__hdf5libversion__
stub = b"cenote" in pathlib.Path(path).read_bytes()[:40]
print(json.dumps({"versions": versions, "stub": stub, "seen": seen}))
