"""The comparison detects a single flipped bit, wherever it is, and two equal files are equal."""

import h5py
import netCDF4
import numpy as np
import pytest

from campaign import compare, pp
from campaign.programs import write_h5py
from campaign.programs.tables import h5py_view, netcdf4_view, xarray_view


def make_netcdf(path, *, change=lambda dataset: None):
    with netCDF4.Dataset(path, "w") as dataset:
        dataset.createDimension("time", None)
        dataset.createDimension("x", 4)
        dataset.title = "a test"
        time = dataset.createVariable("time", "f8", ("time",))
        time.units = "days since 2000-01-01"
        time[:] = [0.0, 1.0, 2.0]
        values = dataset.createVariable("v", "f4", ("time", "x"), compression="zlib", complevel=2, fill_value=-1.0)
        values.units = "K"
        values[:] = np.arange(12, dtype="f4").reshape(3, 4)
        words = dataset.createVariable("w", str, ("x",))
        words[:] = np.array(["a", "", "längst", "d"], dtype=object)
        change(dataset)
    return path


def table_rows(view, path) -> compare.Tables:
    return {"file": view.table_of(str(path)).rows}


VIEWS = [h5py_view, netcdf4_view, xarray_view]


@pytest.mark.parametrize("view", VIEWS)
def test_equal_files_are_equal(view, tmp_path):
    left, right = (table_rows(view, make_netcdf(tmp_path / name)) for name in ("a.nc", "b.nc"))
    assert not compare.differences(left, right)
    found = compare.counts(left)
    assert found.variables >= 3 and found.attributes >= 2


def flip_a_bit(dataset):
    raw = dataset["v"][1, 2:3].data.view("u4")
    dataset["v"][1, 2:3] = (raw ^ 1).view("f4")


def set_word(dataset):
    dataset["w"][1] = "x"


def set_attribute(dataset):
    dataset["v"].units = "C"


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("change", [flip_a_bit, set_word, set_attribute])
def test_a_change_is_found_where_it_is(view, change, tmp_path):
    left = table_rows(view, make_netcdf(tmp_path / "a.nc"))
    right = table_rows(view, make_netcdf(tmp_path / "b.nc", change=change))
    found = compare.differences(left, right)
    assert found and all("/v" in row.row or "/w" in row.row for row in found)


def test_storage_counts_too(tmp_path):
    def write(path, **options):
        with h5py.File(path, "w") as file:
            file.create_dataset("d", data=np.arange(8), chunks=(4,), **options)
        return table_rows(h5py_view, path)

    plain = write(tmp_path / "a.h5")
    for options in ({"compression": "gzip"}, {"fillvalue": 3}, {"maxshape": (None,)}, {"fletcher32": True}):
        assert compare.differences(plain, write(tmp_path / "b.h5", **options)), options


def test_a_missing_file_is_a_difference():
    assert compare.differences({"a": {"/:links": "x"}}, {})


def test_every_kind_of_value_is_in_the_table_of_a_pp_file(tmp_path):
    ints = np.zeros(45, ">i4")
    ints[[pp.LBROW, pp.LBNPT, pp.LBUSER1]] = 2, 3, 1
    reals = np.zeros(19, ">f4")
    fields = [pp.Field(ints, reals, np.ones((2, 3), ">f4"), {1: np.arange(3, dtype=">f4")}) for _ in range(3)]
    write_h5py.write(tmp_path / "a.h5", tmp_path / "a.pp", fields)
    rows = h5py_view.table_of(str(tmp_path / "a.h5")).rows
    assert "enum" in rows["/field_000/data@processing:type"]
    assert rows["/last:link"] == "soft to /field_002/data"
    assert rows["/first:link"] == "hard to /field_000/data"
    assert "compound" in rows["/index:type"] and "array" in rows["/index:type"]
    assert rows["/:links"].startswith("created")
    assert "vlen" in rows["/extra_codes:type"] and "reference" in rows["/fields:type"]


def test_references_are_compared_by_what_they_refer_to(tmp_path):
    def write(path, target):
        with h5py.File(path, "w") as file:
            made = [file.create_dataset(name, data=1) for name in ("one", "two")]
            file.attrs["which"] = np.array([made[target].ref], dtype=h5py.ref_dtype)
        return table_rows(h5py_view, path)

    one, two = write(tmp_path / "a.h5", 0), write(tmp_path / "b.h5", 1)
    (found,) = compare.differences(one, two)
    assert found.row == "/@which"
