"""Maps (`H5M`): wheels lack these calls, so the operations are passed to the connector as HDF5 passes them."""

import pathlib
import subprocess
import sys

from test_data import environment

HERE = pathlib.Path(__file__).parent

PROGRAM = """
import ctypes, sys
import h5py, numpy as np
from capi import HID, C, message

c = C()
P = ctypes.c_void_p
c.lib.H5VLobject.restype = P
c.lib.H5VLobject.argtypes = [HID]
c.lib.H5VLoptional.argtypes = [P, HID, P, HID, P]
CREATE, OPEN, GET_VAL, EXISTS, PUT, GET, SPECIFIC, CLOSE = 1, 2, 3, 4, 5, 6, 7, 9
connector = c.H5VLget_connector_id_by_name("cenote")

def struct(*fields):
    return type("S", (ctypes.Structure,), {"_fields_": [(f"f{i}", f) for i, f in enumerate(fields)]})

LOC = struct(ctypes.c_int, ctypes.c_int, ctypes.c_char * 32)

def act(obj, op, args=None):
    what = struct(ctypes.c_int, P)(op, ctypes.addressof(args) if args else None)
    return c.lib.H5VLoptional(obj, connector, ctypes.byref(what), 0, None)

def root(f): return c.lib.H5VLobject(f.id.id)

def create(f, name, key, value):
    a = struct(LOC, ctypes.c_char_p, HID, HID, HID, HID, HID, P)(
        LOC(1, 0), name, 0, key.id, value.id, c.id("H5P_LST_MAP_CREATE_ID_g"), 0, None
    )
    assert act(root(f), CREATE, a) == 0, message(c)
    return a.f7

def open_map(f, name):
    a = struct(LOC, ctypes.c_char_p, HID, P)(LOC(1, 0), name, 0, None)
    return a.f3 if act(root(f), OPEN, a) == 0 else None

def pair(m, op, kt, k, vt, v):
    return act(m, op, struct(HID, P, HID, P)(kt.id, ctypes.addressof(k), vt.id, ctypes.addressof(v)))

def exists(m, kt, k):
    a = struct(HID, P, ctypes.c_bool)(kt.id, ctypes.addressof(k), False)
    assert act(m, EXISTS, a) == 0
    return a.f2

def count(m):
    a = struct(ctypes.c_int, ctypes.c_uint64)(4, 0)
    assert act(m, GET, a) == 0
    return a.f1

def delete(m, kt, k):
    return act(m, SPECIFIC, struct(ctypes.c_int, LOC, HID, P)(1, LOC(6, 0), kt.id, ctypes.addressof(k)))

I, D, S, F = (h5py.h5t.py_create(np.dtype(t)) for t in ("i4", "f8", "i2", "f4"))
with h5py.File("f.h5", "w") as f:
    m = create(f, b"ints", I, D)
    for i in range(300):
        assert pair(m, PUT, I, ctypes.c_int(i), D, ctypes.c_double(i / 2)) == 0
    assert pair(m, PUT, I, ctypes.c_int(7), D, ctypes.c_double(99)) == 0
    into = ctypes.c_float()
    assert pair(m, GET_VAL, S, ctypes.c_short(7), F, into) == 0 and into.value == 99
    assert count(m) == 300 and exists(m, I, ctypes.c_int(299)) and not exists(m, I, ctypes.c_int(300))
    assert pair(m, GET_VAL, I, ctypes.c_int(300), D, ctypes.c_double()) < 0
    assert delete(m, I, ctypes.c_int(7)) == 0 and delete(m, I, ctypes.c_int(7)) < 0
    assert act(m, CLOSE) == 0
    strings = h5py.h5t.py_create(h5py.string_dtype(), logical=True)
    m = create(f, b"strings", strings, I)
    for i, key in enumerate((b"one", b"", b"a longer one")):
        assert pair(m, PUT, strings, ctypes.c_char_p(key), I, ctypes.c_int(i)) == 0
    assert act(m, CLOSE) == 0
    f.copy("ints", "copy")
    f.create_group("group")
    f["number"] = 1
with h5py.File("f.h5", "r+") as f:
    print(sorted(f), len(f))
    m = open_map(f, b"copy")
    number = ctypes.c_double()
    assert count(m) == 299 and pair(m, GET_VAL, I, ctypes.c_int(9), D, number) == 0 and number.value == 4.5
    assert act(m, CLOSE) == 0
    m = open_map(f, b"strings")
    for i, key in enumerate((b"one", b"", b"a longer one")):
        value = ctypes.c_int()
        assert pair(m, GET_VAL, strings, ctypes.c_char_p(bytes(bytearray(key))), I, value) == 0 and value.value == i
    # Deleted while open, it goes when it is closed.
    del f["strings"]
    assert count(m) == 3
    assert act(m, CLOSE) == 0
    assert open_map(f, b"strings") is None and open_map(f, b"group") is None and open_map(f, b"number") is None
with h5py.File("f.h5", "r") as f:
    m = open_map(f, b"ints")
    assert pair(m, PUT, I, ctypes.c_int(1), D, ctypes.c_double(1)) < 0 and count(m) == 299
    assert act(m, CLOSE) == 0
print("done")
"""


def test_maps_keep_pairs_of_any_type(tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM],
        env=environment(tmp_path / "store") | {"PYTHONPATH": str(HERE)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    assert done.stdout.endswith("done\n")
