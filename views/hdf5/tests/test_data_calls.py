"""HDF5 calls about raw data that h5py does not offer, through ctypes on h5py's own libhdf5."""

from test_data import finish, nothing_stays, script  # noqa: F401 - a fixture that works by being here

PRELUDE = """
import ctypes, sys, h5py, numpy as np
lib = ctypes.CDLL(next(l.split()[-1] for l in open("/proc/self/maps") if "libhdf5-" in l or "libhdf5.so" in l))
hid = ctypes.c_int64
def ids(*values): return (hid * len(values))(*values)
def check(status): assert status >= 0, status
path = sys.argv[1]
"""


def run(tmp_path, code):
    finish(script(PRELUDE + code, None, tmp_path / "native.h5"))
    finish(script(PRELUDE + code, tmp_path / "store", tmp_path / "cenote.h5"))


def test_many_datasets_in_one_call(tmp_path):
    run(
        tmp_path,
        """
with h5py.File(path, "w") as f:
    sets = [f.create_dataset(f"d{i}", (10, 20), "f8", chunks=c) for i, c in enumerate([None, (3, 7), None])]
    data = [np.random.default_rng(i).random((10, 20)) for i in range(3)]
    n = len(sets)
    types = ids(*[h5py.h5t.NATIVE_DOUBLE.id] * n)
    spaces = ids(*[0] * n)
    bufs = (ctypes.c_void_p * n)(*[d.ctypes.data for d in data])
    check(lib.H5Dwrite_multi(ctypes.c_size_t(n), ids(*[d.id.id for d in sets]), types, spaces, spaces, hid(0), bufs))
    back = [np.zeros((10, 20)) for _ in range(n)]
    bufs = (ctypes.c_void_p * n)(*[d.ctypes.data for d in back])
    check(lib.H5Dread_multi(ctypes.c_size_t(n), ids(*[d.id.id for d in sets]), types, spaces, spaces, hid(0), bufs))
    for a, b in zip(data, back):
        assert (a == b).all()
""",
    )


def test_blocks_offsets_points_and_duplicates(tmp_path):
    run(
        tmp_path,
        """
with h5py.File(path, "w") as f:
    data = np.arange(200.0).reshape(10, 20)
    for chunks in [None, (3, 7)]:
        d = f.create_dataset(f"d{chunks}", data=data, chunks=chunks)
        double = hid(h5py.h5t.NATIVE_DOUBLE.id)
        space = d.id.get_space()
        space.select_hyperslab((2, 3), (2, 3), (2, 2), (1, 2))
        out = np.zeros(12)
        check(lib.H5Dread(hid(d.id.id), double, hid(1), hid(space.id), hid(0), out.ctypes.data_as(ctypes.c_void_p)))
        want = [data[r, c + k] for r in (2, 4) for c in (3, 5, 7) for k in (0, 1)]
        assert out.tolist() == want, (out, want)
        # Moved by an offset.
        check(lib.H5Soffset_simple(hid(space.id), (ctypes.c_int64 * 2)(1, -2)))
        check(lib.H5Dread(hid(d.id.id), double, hid(1), hid(space.id), hid(0), out.ctypes.data_as(ctypes.c_void_p)))
        assert out.tolist() == [data[r + 1, c + k - 2] for r in (2, 4) for c in (3, 5, 7) for k in (0, 1)]
        # Points in any order, some twice, into points in any order.
        space = d.id.get_space()
        points = [(9, 19), (0, 0), (5, 5), (5, 5), (3, 18), (0, 1)]
        space.select_elements(points)
        mem = h5py.h5s.create_simple((8,))
        mem.select_elements([(7,), (0,), (2,), (1,), (4,), (5,)])
        out = np.full(8, -1.0)
        d.id.read(mem, space, out)
        want = np.full(8, -1.0)
        for (r, c), at in zip(points, [7, 0, 2, 1, 4, 5]):
            want[at] = data[r, c]
        assert (out == want).all(), (out, want)
        # Outside of the extent: an error, and nothing is touched.
        space = d.id.get_space()
        space.select_hyperslab((8, 0), (2, 20))
        check(lib.H5Soffset_simple(hid(space.id), (ctypes.c_int64 * 2)(1, 0)))
        lib.H5Eset_auto2(hid(0), None, None)
        assert lib.H5Dread(hid(d.id.id), double, hid(1), hid(space.id), hid(0), out.ctypes.data_as(ctypes.c_void_p)) < 0
        assert (d[()] == data).all()
""",
    )


def test_references_in_data(tmp_path):
    run(
        tmp_path,
        """
with h5py.File(path, "w") as f:
    a = f.create_dataset("a", data=np.arange(6))
    g = f.create_group("g")
    refs = f.create_dataset("refs", (4,), h5py.ref_dtype)
    refs[0], refs[2] = a.ref, g.ref
with h5py.File(path, "r") as f:
    refs = f["refs"]
    assert f[refs[0]].name == "/a" and f[refs[2]].name == "/g" and not refs[1]
    assert f[refs[0]][2] == 2
""",
    )


def test_a_row_at_a_time_through_filters(tmp_path):
    run(
        tmp_path,
        """
with h5py.File(path, "w") as f:
    d = f.create_dataset("d", (0, 500), "f4", maxshape=(None, 500), chunks=(64, 100), compression="gzip", shuffle=True)
    for i in range(200):
        d.resize(i + 1, axis=0)
        d[i] = np.arange(500) + i
        if i == 100:
            e = f["d"]           # another handle sees what this one holds back
            assert (e[100] == np.arange(500) + 100).all() and (e[3, 7:9] == [10, 11]).all()
        if i == 150:
            f.flush()
    d[10:20, ::3] = -1
    want = np.arange(500, dtype="f4") + np.arange(200)[:, None]
    want[10:20, ::3] = -1
    assert (d[()] == want).all()
with h5py.File(path, "r") as f:
    assert (f["d"][()] == want).all()
    assert f["d"].id.get_num_chunks() == 20
""",
    )


def test_strings_do_not_leak(tmp_path):
    run(
        tmp_path,
        """
import resource
def rss(): return int(open("/proc/self/statm").read().split()[1]) * 4096
with h5py.File(path, "w") as f:
    d = f.create_dataset("d", (2000,), h5py.string_dtype())
    d[:] = ["x" * 500] * 2000
    v = f.create_dataset("v", (500,), h5py.vlen_dtype("f8"))
    for i in range(0, 500, 50):
        v[i] = np.arange(1000.0)
    for _ in range(5):
        d[:], v[:]
    before = rss()
    for _ in range(60):
        assert d[7] == b"x" * 500 and len(v[50]) == 1000 and len(v[1]) == 0
        d[:], v[:]
    grown = rss() - before
    assert grown < 20 << 20, grown
""",
    )


def test_data_transforms(tmp_path):
    run(
        tmp_path,
        """
lib.H5Pcreate.restype = hid
dxpl = lib.H5Pcreate(hid(h5py.h5p.DATASET_XFER.id))
check(lib.H5Pset_data_transform(hid(dxpl), b"2*x + 1"))
void = ctypes.c_void_p
with h5py.File(path, "w") as f:
    data = np.arange(200.0).reshape(10, 20)
    for kind, chunks in [("f8", None), ("f8", (3, 7)), ("i2", (3, 7))]:
        d = f.create_dataset(f"{kind}{chunks}", (10, 20), kind, chunks=chunks)
        double = hid(h5py.h5t.NATIVE_DOUBLE.id)
        kept = data.copy()
        check(lib.H5Dwrite(hid(d.id.id), double, hid(0), hid(0), hid(dxpl), kept.ctypes.data_as(void)))
        assert (kept == data).all() and (d[...] == 2 * data + 1).all()
        mem = h5py.h5s.create_simple((30, 30))
        mem.select_hyperslab((5, 4), (2, 3), (2, 2))
        space = d.id.get_space()
        space.select_hyperslab((1, 2), (2, 3), (3, 5))
        out = np.full((30, 30), -1.0)
        check(lib.H5Dread(hid(d.id.id), double, hid(mem.id), hid(space.id), hid(dxpl), out.ctypes.data_as(void)))
        want = np.full((30, 30), -1.0)
        want[5:8:2, 4:9:2] = 2 * (2 * data[1:5:3, 2:13:5] + 1) + 1
        assert (out == want).all()
    d = f.create_dataset("none", (0,), "f8", maxshape=(None,))
    check(lib.H5Dread(hid(d.id.id), double, hid(0), hid(0), hid(dxpl), out.ctypes.data_as(void)))
    d = f.create_dataset("text", (3,), "S4")
    text = hid(d.id.get_type().id)
    lib.H5Eset_auto2(hid(0), None, None)
    assert lib.H5Dwrite(hid(d.id.id), text, hid(0), hid(0), hid(dxpl), out.ctypes.data_as(void)) < 0
""",
    )


def test_early_allocation_shows_in_status_and_size(tmp_path):
    run(
        tmp_path,
        """
with h5py.File(path, "w") as f:
    for shape, chunks, fill in [((10, 20), (3, 7), None), ((10, 20), (3, 7), 5), ((10,), None, 5), ((0,), (4,), None)]:
        dcpl = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        dcpl.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        if chunks:
            dcpl.set_chunk(chunks)
        if fill:
            dcpl.set_fill_value(np.array(fill, "i4"))
        space = h5py.h5s.create_simple(shape, (h5py.h5s.UNLIMITED, *shape[1:]) if chunks else None)
        name = f"{shape}{chunks}{fill}".encode()
        d = h5py.h5d.create(f.id, name, h5py.h5t.NATIVE_INT32, space, dcpl)
        whole = int(np.prod([-(-n // c) * c for n, c in zip(shape, chunks or [1] * len(shape))])) * 4
        assert d.get_storage_size() == whole, (d.get_storage_size(), whole)
        not_allocated, allocated = h5py.h5d.SPACE_STATUS_NOT_ALLOCATED, h5py.h5d.SPACE_STATUS_ALLOCATED
        assert d.get_space_status() == (allocated if whole else not_allocated)
        h5py.Dataset(d)[:1] = 1
        assert d.get_storage_size() == whole
""",
    )
