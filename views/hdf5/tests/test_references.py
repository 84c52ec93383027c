"""New references (H5T_STD_REF) to objects, regions, attributes: stored by one process, used by another."""

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


OLD_MAKE = """
import sys, h5py, numpy as np
path = sys.argv[1]
with h5py.File(path, "w") as f:
    x = f.create_dataset("g/x", data=np.arange(200).reshape(20, 10), maxshape=(None, 10))
    f["one"] = 7
    refs = [x.regionref[2:5, 3:7], x.regionref[[1, 3], ::3], f["one"].regionref[()], x.regionref[5:5]]
    print([(x.regionref.shape(r), x.regionref.selection(r), x[r].tolist()) for r in refs[:2]], f[refs[2]].name)
    d = f.create_dataset("refs", (6,), h5py.regionref_dtype)
    for i, ref in enumerate(refs):          # one at a time: each is stored before the next is made
        d[i] = ref
    d[4:] = [x.regionref[i : i + 1] for i in range(2)]
    f.attrs["ref"] = refs[0]
    kind = np.dtype([("n", "i4"), ("ref", h5py.regionref_dtype)])
    c = f.create_dataset("compound", (300,), kind, chunks=(100,), compression="gzip")
    many = np.zeros(300, kind)
    for i in range(300):
        many[i] = (i, x.regionref[i % 20, : i % 10 + 1])
    c[...] = many
    x.resize((30, 10))
    print(x.regionref.shape(refs[0]), h5py.h5r.get_region(refs[0], f.id).shape)
    f.copy("refs", "again")
    with h5py.File(path + ".copy", "w") as g:
        f.copy("refs", g, "plain")
        f.copy("refs", g, "followed", expand_refs=True)
"""

OLD_LOOK = """
import sys, h5py, numpy as np
path = sys.argv[1]
def look(f, ref):
    if not ref:
        return None
    name, space = h5py.h5r.get_name(ref, f.id), h5py.h5r.get_region(ref, f.id)
    n = space.get_select_npoints()
    at = space.get_select_bounds() if n and space.shape else None
    return name.decode().split("_")[0], space.shape, n, at, np.asarray(f[ref].regionref.selection(ref)).tolist()
def walk(value):
    return [walk(v) for v in value] if isinstance(value, np.ndarray) else value
for round in range(2):
    with h5py.File(path, "r" if round else "r+") as f:
        x = f["g/x"]
        for ref in [*f["refs"][...], *f["again"][...], f.attrs["ref"], *f["compound"]["ref"][:30]]:
            print(look(f, ref), x[ref].tolist() if ref and f[ref] == x else None)
        if not round:
            x.resize((31, 10))
        else:
            try:
                x.regionref[0]
                print("made one in a file that is read")
            except (RuntimeError, ValueError):
                print("refused")
with h5py.File(path + ".copy", "r") as g:
    print([bool(r) for r in g["plain"][...]], [look(g, r) for r in g["followed"][...]])
"""


def test_references_to_regions_of_the_old_kind(tmp_path):
    seen = []
    for store, name in ((None, "native.h5"), (tmp_path / "store", "cenote.h5")):
        made = finish(script(OLD_MAKE, store, tmp_path / name))
        seen.append((made, finish(script(OLD_LOOK, store, tmp_path / name))))
    assert seen[0] == seen[1]
    assert "refused" in seen[1][1] and "((2, 3), (4, 6))" in seen[1][1]
    # Those of native files, read in place.
    READ = "path, mode = sys.argv[1], 'r'\n"
    look = OLD_LOOK.replace("path = sys.argv[1]\n", READ).replace('"r" if round else "r+"', "mode")
    look = look.replace("if not round:\n            x.resize((31, 10))\n        else:", "if True:")
    native = finish(script(look, None, tmp_path / "native.h5"))
    assert finish(script(look, tmp_path / "store", tmp_path / "native.h5")) == native


def test_many_processes_make_references_to_regions(tmp_path):
    make = """
import sys, h5py, numpy as np
with h5py.File(sys.argv[1], "w") as f:
    f["x"] = np.arange(1000)
    f.create_dataset("refs", (4, 50), h5py.regionref_dtype)
"""
    write = """
import sys, h5py
rank = int(sys.argv[2])
with h5py.File(sys.argv[1], "r+") as f:
    for i in range(50):
        f["refs"][rank, i] = f["x"].regionref[rank * 100 + i : 900]
"""
    look = """
import sys, h5py
with h5py.File(sys.argv[1], "r") as f:
    for rank in range(4):
        for i, ref in enumerate(f["refs"][rank]):
            assert f["x"][ref].tolist() == list(range(rank * 100 + i, 900)), (rank, i)
"""
    store, path = tmp_path / "store", tmp_path / "x.h5"
    finish(script(make, store, path))
    finish(*(script(write, store, path, rank) for rank in range(4)))
    finish(script(look, store, path))


def test_a_reference_to_a_region_that_is_of_another_file_is_an_error(tmp_path):
    code = """
import sys, h5py, numpy as np
with h5py.File(sys.argv[1] + ".a", "w") as a, h5py.File(sys.argv[1] + ".b", "w") as b:
    a["x"], b["x"] = np.arange(10), np.arange(10)
    ref = a["x"].regionref[2:4]
    for use in (lambda: b["x"][ref], lambda: b[ref], lambda: h5py.h5r.get_region(ref, b.id)):
        try:
            use()
            print("used")
        except Exception as error:
            print("no region of its number" in str(error), type(error).__name__)
    print(a["x"][ref])
    del a["x"]
    try:
        h5py.h5r.get_region(ref, a.id)
        print("used")
    except Exception as error:
        print("it was deleted" in str(error))
"""
    said = finish(script(code, tmp_path / "store", tmp_path / "x")).split("\n")
    assert [line.split()[0] for line in said[:3]] == ["True"] * 3, said
    assert said[3:5] == ["[2 3]", "True"], said
