"""Asynchronous calls with event sets, run by test_async.py on native HDF5 (synchronous there) and on Cenote."""

import ctypes
import sys

import h5py
import numpy as np
import structure_programs
from capi import HID, SIZE, C, convert, message
from structure_programs import fails

PROGRAMS = {}
FOREVER = 2**64 - 1


def program(f):
    PROGRAMS[f.__name__] = f
    return f


class ErrorInfo(ctypes.Structure):
    """`H5ES_err_info_t`."""

    _fields_ = [
        ("api_name", ctypes.c_char_p),
        ("api_args", ctypes.c_char_p),
        ("app_file", ctypes.c_char_p),
        ("app_func", ctypes.c_char_p),
        ("app_line", ctypes.c_uint),
        ("count", ctypes.c_uint64),
        ("inserted", ctypes.c_uint64),
        ("begun", ctypes.c_uint64),
        ("took", ctypes.c_uint64),
        ("stack", HID),
    ]


class EventSet:
    """An event set: calls named `x_async` are made with it as `es.H5Dwrite(...)`."""

    def __init__(self):
        self.c = C()
        self.id = self.c.H5EScreate()

    def __getattr__(self, name):
        call = getattr(self.c, name + "_async")

        def made(*args):
            return call("prog.c", "main", ctypes.c_uint(1), *map(convert, args), self.id)

        return made

    def wait(self, timeout=FOREVER):
        left, failed = SIZE(), ctypes.c_bool()
        self.c.H5ESwait(self.id, ctypes.c_uint64(timeout), ctypes.byref(left), ctypes.byref(failed))
        return left.value, failed.value

    def count(self):
        n = SIZE()
        self.c.H5ESget_count(self.id, ctypes.byref(n))
        return n.value

    def cancel(self):
        left, failed = SIZE(), ctypes.c_bool()
        self.c.H5EScancel(self.id, ctypes.byref(left), ctypes.byref(failed))
        return left.value, failed.value

    def errors(self):
        """API name and error stack of each failed operation."""
        info, cleared = (ErrorInfo * 8)(), SIZE()
        self.c.H5ESget_err_info(self.id, SIZE(8), info, ctypes.byref(cleared))
        return [(i.api_name.decode(), i.app_file, message(self.c, i.stack)) for i in info[: cleared.value]]

    def close(self):
        self.c.H5ESclose(self.id)


def pointer(array):
    return ctypes.c_void_p(array.ctypes.data)


@program
def written_and_read_with_an_event_set(d):
    es = EventSet()
    doubles, ints = es.c.id("H5T_NATIVE_DOUBLE_g"), es.c.id("H5T_NATIVE_INT_g")
    with h5py.File(f"{d}/f.h5", "w") as f:
        kinds = {
            "plain": {},
            "chunked": {"chunks": (100, 7)},
            "packed": {"chunks": (64, 64), "compression": "gzip", "shuffle": True},
            "filled": {"fillvalue": 7.5},
            "grows": {"chunks": (128, 128), "maxshape": (None, 200)},
            "single": {"dtype": "f4"},
            "nbit": {"chunks": (100, 50), "scaleoffset": 3},
        }
        value = {name: np.random.default_rng(i).random((300, 200)) for i, name in enumerate(kinds)}
        value["nbit"] = np.round(value["nbit"], 3)  # what the filter preserves of the values
        sets = {name: f.create_dataset(name, **{"shape": (300, 200), "dtype": "f8"} | k) for name, k in kinds.items()}
        for name, x in sets.items():
            es.H5Dwrite(x.id.id, doubles, 0, 0, 0, pointer(value[name]))
        # Later calls see the effects of operations in progress.
        yield {name: np.array_equal(x[:], value[name]) for name, x in sets.items() if name not in ("single", "nbit")}
        yield es.wait(), es.count()
        back = {name: np.zeros((300, 200)) for name in kinds}
        part = np.zeros((10, 20), "i4")
        rows = h5py.h5s.create_simple((300, 200))
        rows.select_hyperslab((5, 100), (10, 20))
        here = h5py.h5s.create_simple((10, 20))
        for name, x in sets.items():
            es.H5Dread(x.id.id, doubles, 0, 0, 0, pointer(back[name]))
        es.H5Dread(sets["plain"].id.id, ints, here.id, rows.id, 0, pointer(part))
        yield es.wait(), {name: plain_sum(back[name]) for name in kinds}, part.tolist()
        # Later writes win, of whatever kind.
        late = np.full((10, 20), 2.25)
        es.H5Dwrite(sets["plain"].id.id, doubles, here.id, rows.id, 0, pointer(late))
        sets["plain"][5, 100] = -1
        es.H5Dread(sets["plain"].id.id, doubles, 0, 0, 0, pointer(back["plain"]))
        yield es.wait(), back["plain"][5:8, 99:103].tolist()
    es.close()
    with h5py.File(f"{d}/f.h5") as f:
        yield "end", {name: plain_sum(f[name][:]) for name in kinds}


def plain_sum(array):
    return float(np.round(array.sum(), 3)), array.dtype.str


@program
def everything_in_one_event_set(d):
    es = EventSet()
    c, ints = es.c, es.c.id("H5T_NATIVE_INT_g")
    space = h5py.h5s.create_simple((1000,), (h5py.h5s.UNLIMITED,))
    dcpl = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    dcpl.set_chunk((100,))
    value = [np.arange(1000, dtype="i4") * k for k in range(8)]
    f = es.H5Fcreate(f"{d}/f.h5", 2, 0, 0)
    g = es.H5Gcreate(f, "group", 0, 0, 0)
    for k in range(8):
        x = es.H5Dcreate(g, f"x{k}", ints, space.id, 0, dcpl.id, 0)
        es.H5Dwrite(x, ints, 0, 0, 0, pointer(value[k]))
        es.H5Dclose(x)
    es.H5Gclose(g)
    es.H5Fclose(f)
    yield es.wait(), es.count()
    f = es.H5Fopen(f"{d}/f.h5", 1, 0)
    x = es.H5Dopen(f, "group/x3", 0)
    back = np.zeros(1000, "i4")
    es.H5Dread(x, ints, 0, 0, 0, pointer(back))
    more = (ctypes.c_uint64 * 1)(1500)
    es.H5Dset_extent(x, more)
    es.H5Dclose(x)
    es.H5Ldelete(f, "group/x7", 0)
    es.H5Fflush(f, 1)
    es.H5Fclose(f)
    yield es.wait(), back[:5].tolist(), int(back.sum())
    with h5py.File(f"{d}/f.h5", "r+") as f:
        yield sorted(f["group"]), f["group/x3"].shape, int(f["group/x3"][:].sum())
        # Deleted while an operation is in progress.
        y = f["group/x4"]
        es.H5Dwrite(y.id.id, ints, 0, 0, 0, pointer(value[2]))
        del f["group/x4"]
        yield y[:3].tolist()
        y.id.close()
        yield es.wait(), sorted(f["group"]), fails(lambda: f["group/x4"])
        copied = f.create_dataset("copied", data=value[1])
        es.H5Dwrite(copied.id.id, ints, 0, 0, 0, pointer(value[5]))
        f.copy("copied", "copy")
        yield f["copy"][:4].tolist(), copied[:4].tolist(), es.wait()
    yield ["closed", c.H5ESclose(es.id)]


if __name__ == "__main__":
    if sys.argv[1] in globals() and len(sys.argv) == 3:
        globals()[sys.argv[1]](sys.argv[2])
    else:
        structure_programs.PROGRAMS.clear()
        structure_programs.PROGRAMS.update(PROGRAMS)
        structure_programs.main()
