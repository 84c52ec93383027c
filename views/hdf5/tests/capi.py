"""Calls of the C library that h5py has loaded, for calls that h5py itself does not make."""

import ctypes
import re

import h5py  # noqa: F401  (loads the library)

HID, HERR, SIZE = ctypes.c_int64, ctypes.c_int, ctypes.c_size_t
# Calls that return an id, or another value than an int.
IDS = re.compile(
    r"H5([A-Z]+)(create|open|copy$|get_(type|space|file|create_plist|access_plist|member_type)|vlen_create|ESget_op)"
)


def library():
    with open("/proc/self/maps") as maps:
        found = sorted({line.split()[-1] for line in maps if re.search(r"/libhdf5-[0-9a-f]+\.so", line)})
    return ctypes.CDLL(next(f for f in found if "h5py" in f))


class Failed(Exception):
    """A call returned a negative value."""


class C:
    """`C().H5Fmount(...)`: strings become bytes, ints become ids, a negative result raises."""

    def __init__(self):
        self.lib = library()
        self.lib.H5Eset_auto2.argtypes = [HID, ctypes.c_void_p, ctypes.c_void_p]
        self.lib.H5Eset_auto2(0, None, None)

    def id(self, name):
        """A global id, such as `H5T_NATIVE_INT_g`."""
        return HID.in_dll(self.lib, name).value

    def __getattr__(self, name):
        call = getattr(self.lib, name)
        is_id = IDS.match(name) is not None
        call.restype = (
            HID
            if is_id or name.startswith(("H5Iget_name", "H5Fget_obj_count", "H5VLget_connector_id"))
            else ctypes.c_int
        )

        def made(*args):
            out = call(*(convert(a) for a in args))
            if out < 0:
                raise Failed(name)
            return out

        return made


def convert(value):
    if isinstance(value, str):
        return ctypes.c_char_p(value.encode())
    if isinstance(value, bool):
        return ctypes.c_bool(value)
    if isinstance(value, int):
        return HID(value)
    return value


def message(c, stack=0):
    """The innermost entries of an error stack, as text."""
    lines = []
    walk = ctypes.CFUNCTYPE(HERR, ctypes.c_uint, ctypes.POINTER(Entry), ctypes.c_void_p)

    @walk
    def each(n, entry, _):
        lines.append((entry.contents.function or b"").decode() + ": " + (entry.contents.text or b"").decode())
        return 0

    c.lib.H5Ewalk2.argtypes = [HID, ctypes.c_int, walk, ctypes.c_void_p]
    c.lib.H5Ewalk2(stack, 0, each, None)
    return "\n".join(lines)


class Entry(ctypes.Structure):
    """`H5E_error2_t`."""

    _fields_ = [
        ("cls", HID),
        ("major", HID),
        ("minor", HID),
        ("line", ctypes.c_uint),
        ("function", ctypes.c_char_p),
        ("file", ctypes.c_char_p),
        ("text", ctypes.c_char_p),
    ]
