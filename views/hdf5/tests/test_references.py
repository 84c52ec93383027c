"""References of the new kind (H5T_STD_REF) to objects, regions, attributes: stored by one process, used by another."""

import pytest
from test_data import finish, nothing_stays, script  # noqa: F401 - a fixture that works by being here

PRELUDE = """
import ctypes, sys, h5py, numpy as np
lib = ctypes.CDLL(next(l.split()[-1] for l in open("/proc/self/maps") if "libhdf5-" in l or "libhdf5.so" in l))
hid, size = ctypes.c_int64, ctypes.c_size_t
path = sys.argv[1]
SIZE = 64
for name in ("H5Ropen_object", "H5Ropen_region", "H5Ropen_attr", "H5Dget_type", "H5Screate_simple", "H5Dcreate2",
             "H5Acreate2", "H5Dopen2", "H5Aopen", "H5Tvlen_create", "H5Sget_select_npoints"):
    getattr(lib, name).restype = hid
lib.H5Rget_obj_name.restype = lib.H5Rget_attr_name.restype = ctypes.c_ssize_t
STD_REF = hid.in_dll(lib, "H5T_STD_REF_g").value
def check(status): assert status >= 0, status
def bounds(space):
    low, high = (hid * 2)(), (hid * 2)()
    check(lib.H5Sget_select_bounds(hid(space), low, high))
    return list(low), list(high), lib.H5Sget_select_npoints(hid(space))
"""

MAKE = """
refs = ctypes.create_string_buffer(4 * SIZE)
def at(i): return ctypes.byref(refs, i * SIZE)
with h5py.File(path, "w") as f:
    f["g/d"] = np.arange(40).reshape(5, 8)
    f["g/d"].attrs["unit"] = "m"
    space = f["g/d"].id.get_space()
    space.select_hyperslab((1, 2), (2, 3))
    check(lib.H5Rcreate_object(hid(f.id.id), b"g/d", hid(0), at(0)))
    check(lib.H5Rcreate_region(hid(f.id.id), b"g/d", hid(space.id), hid(0), at(1)))
    check(lib.H5Rcreate_attr(hid(f.id.id), b"g/d", b"unit", hid(0), at(2)))
    points = f["g/d"].id.get_space()
    points.select_elements([(4, 7), (0, 0), (3, 1)])
    check(lib.H5Rcreate_region(hid(f.id.id), b"g/d", hid(points.id), hid(0), at(3)))
    dims = (ctypes.c_uint64 * 1)(4)
    flat = lib.H5Screate_simple(1, dims, None)
    dset = lib.H5Dcreate2(hid(f.id.id), b"refs", hid(STD_REF), hid(flat), hid(0), hid(0), hid(0))
    check(dset)
    check(lib.H5Dwrite(hid(dset), hid(STD_REF), hid(0), hid(0), hid(0), refs))
    attr = lib.H5Acreate2(hid(dset), b"refs", hid(STD_REF), hid(flat), hid(0), hid(0))
    check(attr)
    check(lib.H5Awrite(hid(attr), hid(STD_REF), refs))
    check(lib.H5Aclose(hid(attr)))
    check(lib.H5Dclose(hid(dset)))
    for i in range(4):
        check(lib.H5Rdestroy(at(i)))
"""

LOOK = """
def look(refs):
    def at(i): return ctypes.byref(refs, i * SIZE)
    print([lib.H5Rget_type(at(i)) for i in range(4)])
    for i in range(4):
        name = ctypes.create_string_buffer(100)
        n = lib.H5Rget_obj_name(at(i), hid(0), name, size(100))
        print(n, name.value)
    for i in (0, 1, 3):
        dset = lib.H5Ropen_object(at(i), hid(0), hid(0))
        check(dset)
        out = np.zeros((5, 8), "i8")
        check(lib.H5Dread(hid(dset), hid(h5py.h5t.NATIVE_INT64.id), hid(0), hid(0), hid(0), hid(out.ctypes.data)))
        assert (out == np.arange(40).reshape(5, 8)).all()
        check(lib.H5Dclose(hid(dset)))
    for i in (1, 3):
        space = lib.H5Ropen_region(at(i), hid(0), hid(0))
        check(space)
        print(bounds(space))
        check(lib.H5Sclose(hid(space)))
    name = ctypes.create_string_buffer(100)
    check(lib.H5Rget_attr_name(at(2), name, size(100)))
    attr = lib.H5Ropen_attr(at(2), hid(0), hid(0))
    check(attr)
    print(name.value, attr > 0)
    check(lib.H5Aclose(hid(attr)))
    for i in range(4):
        check(lib.H5Rdestroy(at(i)))

with h5py.File(path, "r") as f:
    for _ in range(2):
        refs = ctypes.create_string_buffer(4 * SIZE)
        dset = lib.H5Dopen2(hid(f.id.id), b"refs", hid(0))
        check(lib.H5Dread(hid(dset), hid(STD_REF), hid(0), hid(0), hid(0), refs))
        look(refs)
        refs = ctypes.create_string_buffer(4 * SIZE)
        attr = lib.H5Aopen(hid(dset), b"refs", hid(0))
        check(lib.H5Aread(hid(attr), hid(STD_REF), refs))
        look(refs)
        check(lib.H5Aclose(hid(attr)))
        check(lib.H5Dclose(hid(dset)))
"""


@pytest.mark.parametrize("change", ["", "import os; os.rename(path, path + '.new'); path += '.new'\n"])
def test_references_of_the_new_kind(tmp_path, change):
    seen = []
    for store, name in ((None, "native.h5"), (tmp_path / "store", "cenote.h5")):
        finish(script(PRELUDE + MAKE, store, tmp_path / name))
        seen.append(finish(script(PRELUDE + change + LOOK, store, tmp_path / name)))
    assert seen[0] == seen[1]
    assert "[0, 3], [4, 7]" in seen[0] or "([0, 0], [4, 7], 3)" in seen[0]
