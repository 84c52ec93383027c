"""Metadata that a process caches or defers: others' changes are seen at the next call, and nothing is seen by
half."""

import subprocess
import sys

import pytest
from test_data import UNLOCKED, environment, nothing_stays  # noqa: F401
from test_structure import python


class Talker:
    """A process that runs the lines sent to it, and answers with what they print."""

    LOOP = (
        "import sys, h5py, numpy as np\n"
        "for line in sys.stdin:\n"
        "    try: exec(line, globals())\n"
        "    except Exception as e: print(type(e).__name__, e)\n"
        "    print('.', flush=True)\n"
    )

    def __init__(self, store, where):
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", self.LOOP],
            env=environment(store) | UNLOCKED,
            cwd=where,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def say(self, line):
        """Runs one line; returns what it printed."""
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        said = []
        while (answer := self.process.stdout.readline().rstrip("\n")) != ".":
            assert answer or self.process.poll() is None, "the process ended"
            said.append(answer)
        return "\n".join(said)


@pytest.fixture
def two(tmp_path):
    """Two processes with one file open."""
    store = tmp_path / "store"
    python("import h5py; f = h5py.File('f.h5', 'w'); f['x'] = 1; f.create_group('g')", store, tmp_path)
    talkers = [Talker(store, tmp_path), Talker(store, tmp_path)]
    for talker in talkers:
        talker.say("f = h5py.File('f.h5', 'r+')")
    yield talkers
    for talker in talkers:
        talker.process.stdin.close()
        talker.process.wait(60)


def test_each_sees_what_the_other_changed_before_its_call(two):
    one, other = two
    for n in range(20):
        assert one.say(f"f['x'].attrs['n'] = {n}; f['g'].create_group('{n:02}')") == ""
        assert other.say("print(f['x'].attrs['n'], len(f['g']), list(f['g'])[-1])") == f"{n} {n + 1} {n:02}"
        one, other = other, one
    assert one.say("del f['g']; f.move('x', 'y')") == ""
    assert other.say("print(list(f), f['y'].attrs['n'])") == "['y'] 19"
    assert other.say("f['g']").startswith("KeyError")


def test_an_attribute_appears_with_its_value(two):
    one, other = two
    # Closing an object is a call too, so the object stays open.
    assert one.say("x = f['x']") == ""
    make = "a = h5py.h5a.create(x.id, b'a', h5py.h5t.NATIVE_INT32, h5py.h5s.create(h5py.h5s.SCALAR))"
    assert one.say(make) == ""
    assert other.say("print(list(f['x'].attrs))") == "[]"
    assert one.say("a.write(np.array(7, 'i4'))") == ""
    assert other.say("print(dict(f['x'].attrs))") == "{'a': np.int32(7)}"
    # Without a value, the attribute appears at its maker's next call. If both make it, the later one gets an error.
    assert one.say(make.replace("b'a'", "b'b'") + "; print(list(f['x'].attrs), a.name, h5py.h5a.exists(x.id, b'b'))")
    assert other.say("print(list(f['x'].attrs), f['x'].attrs['b'])") == "['a', 'b'] 0"
    assert one.say("del a") == ""
    assert one.say(make.replace("b'a'", "b'c'")) == ""
    assert other.say("f['x'].attrs['c'] = 2") == ""
    assert "already exists" in one.say("a.write(np.array(1, 'i4'))")
    assert one.say("del a; print(dict(f['x'].attrs))") == "{'a': np.int32(7), 'b': np.int32(0), 'c': np.int64(2)}"


def test_a_region_reference_of_a_native_file_is_an_error(tmp_path):
    code = (
        "import h5py, numpy as np\n"
        "f = h5py.File('n.h5', 'w'); d = f.create_dataset('x', data=np.arange(100)); f.attrs['r'] = d.regionref[2:10]"
    )
    python(code, None, tmp_path)
    code = (
        "import ctypes, h5py\n"
        "path = next(l.split()[-1] for l in open('/proc/self/maps') if '/libhdf5-' in l)\n"
        "lib = ctypes.CDLL(path); lib.H5VLget_connector_id_by_name.restype = ctypes.c_int64\n"
        "lib.H5Pset_vol.argtypes = [ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]\n"
        "c = h5py.File('c.h5', 'w'); c['x'] = range(100)\n"
        "fapl = h5py.h5p.create(h5py.h5p.FILE_ACCESS)\n"
        "assert lib.H5Pset_vol(fapl.id, lib.H5VLget_connector_id_by_name(b'native'), None) >= 0\n"
        "n = h5py.File(h5py.h5f.open(b'n.h5', h5py.h5f.ACC_RDONLY, fapl)); r = n.attrs['r']\n"
        "calls = [lambda: c[r], lambda: c['x'][r], lambda: h5py.h5r.get_region(r, c.id),\n"
        "         lambda: h5py.h5r.get_name(r, c.id), lambda: h5py.h5r.get_obj_type(r, c.id)]\n"
        "for _ in range(3):\n"
        "    for call in calls:\n"
        "        try: print('got', call())\n"
        "        except Exception as e: print('failed')\n"
        "print(n['x'][r].sum(), c['x'][:].sum(), c[c['x'].ref].name)\n"
    )
    out = python(code, tmp_path / "store", tmp_path).split("\n")
    assert out[:-2] == ["failed"] * 15 and out[-2] == "44 4950 /x"


def test_a_connector_that_is_only_found_is_refused(tmp_path):
    store = tmp_path / "store"
    python("import h5py; f = h5py.File('a.h5', 'w'); f['x'] = range(5)", store, tmp_path)
    code = "import h5py\ntry: h5py.File('a.h5'); print('opened')\nexcept OSError as e: print('refused', e)"
    out = python(code, store, tmp_path, HDF5_VOL_CONNECTOR="", CENOTE_STORE=str(store))
    assert out.startswith("refused")
