"""Usual operations of PyTables programs; prints the results as JSON: versions, then one result per check."""

import json
import pathlib
import sys

import numpy as np
import tables

path = sys.argv[1]
seen = {}


class Particle(tables.IsDescription):
    name = tables.StringCol(8)
    number = tables.Int64Col()
    energy = tables.Float64Col(shape=(2,))


with tables.open_file(path, "w", title="checked") as f:
    group = f.create_group("/", "detector", "readings")
    table = f.create_table(group, "hits", Particle, filters=tables.Filters(complevel=1, complib="zlib"))
    for i in range(300):
        row = table.row
        row["name"], row["number"], row["energy"] = f"p{i}", i * i, (i, i / 2)
        row.append()
    table.flush()
    f.create_array(group, "flat", np.arange(24).reshape(4, 6))
    grown = f.create_earray(group, "grown", tables.Float32Atom(), (0, 5), filters=tables.Filters(1, "zlib", True))
    for i in range(4):
        grown.append(np.full((3, 5), i, "f4"))
    ragged = f.create_vlarray(group, "ragged", tables.Int32Atom())
    for i in range(4):
        ragged.append(list(range(i)))
    f.create_carray(group, "chunked", obj=np.arange(1000.0).reshape(10, 100), chunkshape=(3, 30))
    group._v_attrs.operator = "somebody"
    f.create_soft_link("/", "soft", "/detector/flat")
with tables.open_file(path, "a") as f:
    table = f.root.detector.hits
    table.remove_rows(10, 20)
    table.modify_column(3, 4, colname="number", column=[-1])
    f.root.detector.flat[1, :] = 0
    f.rename_node("/detector/chunked", "renamed")
with tables.open_file(path) as f:
    table = f.root.detector.hits
    seen["query"] = [row["name"].decode() for row in table.where("(number > 100) & (number < 400)")]
    seen["table"] = [table.nrows, str(table[:15].tolist())]
    seen["arrays"] = [f.root.detector.flat[:].tolist(), f.root.detector.grown[::2].tolist()]
    seen["ragged"] = [row.tolist() for row in f.root.detector.ragged]
    seen["chunked"] = float(f.root.detector.renamed[2:8, ::7].sum())
    seen["names"] = [node._v_pathname for node in f.walk_nodes()]
    seen["attributes"] = [f.title, str(f.root.detector._v_attrs.operator), f.root.soft().shape[0]]
versions = {"client": f"PyTables {tables.__version__}", "hdf5": tables.hdf5_version}
stub = b"cenote" in pathlib.Path(path).read_bytes()[:40]
print(json.dumps({"versions": versions, "stub": stub, "seen": seen}, default=str))
