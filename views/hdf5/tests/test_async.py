"""Event sets: programs see the same on Cenote as on native HDF5; and what only Cenote has, real asynchrony."""

import pathlib
import subprocess
import sys

import numpy as np
import pytest
from async_programs import PROGRAMS
from test_data import environment
from test_structure import must_agree, run_both

HERE = pathlib.Path(__file__).parent
PROGRAM_FILE = HERE / "async_programs.py"
NAMES = list(PROGRAMS)


@pytest.fixture(scope="session")
def both(tmp_path_factory):
    """All programs, once on native HDF5 and once on Cenote."""
    return run_both(tmp_path_factory.mktemp("async"), NAMES, PROGRAM_FILE)


@pytest.mark.parametrize("name", NAMES)
def test_program(both, name):
    must_agree(both[0][name], both[1][name])


def program(code, where):
    """Runs a program of this directory on a store; returns its output."""
    before = (
        "import ctypes, os, sys\nimport h5py\nimport numpy as np\nfrom async_programs import EventSet, pointer\n"
        "es = EventSet()\nints = es.c.id('H5T_NATIVE_INT_g')\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", before + code],
        env=environment(where / "store") | {"PYTHONPATH": str(HERE)},
        cwd=where,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    return done.stdout


LARGE = """
values = [np.full(8 << 20, k, 'i4') for k in range(6)]
f = h5py.File('f.h5', 'w')
sets = [f.create_dataset(str(k), v.shape, 'i4', chunks=CHUNKS) for k, v in enumerate(values)]
for x, v in zip(sets, values): es.H5Dwrite(x.id.id, ints, 0, 0, 0, pointer(v))
"""


@pytest.mark.parametrize("chunks", ["None", "(1 << 18,)"])
def test_writes_go_on_while_the_program_does(tmp_path, chunks):
    code = LARGE.replace("CHUNKS", chunks) + (
        "print(es.count(), es.wait(0)[0] > 0)\n"
        "assert all((x[::4097] == k).all() for k, x in enumerate(sets))\n"
        "print(es.wait(), es.count())\nf.close()\n"
    )
    assert program(code, tmp_path).split("\n")[:2] == ["6 True", "(0, False) 0"]


def test_what_has_not_begun_is_canceled_whole(tmp_path):
    code = LARGE.replace("CHUNKS", "None") + (
        "left, failed = es.cancel()\nprint(left < 6, failed)\nes.wait()\n"
        "whole = [(x[:] == k).all() or not x[:].any() for k, x in enumerate(sets)]\n"
        "print(all(whole), (sets[5][:] == 0).all())\nf.close()\nes.close()\n"
    )
    assert program(code, tmp_path).split("\n")[:2] == ["True False", "True True"]


def test_failures_say_what_where_and_what_next(tmp_path):
    code = (
        "f = h5py.File('f.h5', 'w')\nx = f.create_dataset('x', (5,), 'i4', chunks=(5,), maxshape=(None,))\n"
        "v = np.arange(10, dtype='i4')\nbeyond = h5py.h5s.create_simple((10,))\n"
        "es.H5Dwrite(x.id.id, ints, beyond.id, beyond.id, 0, pointer(v))\n"
        "print(es.wait())\nfor e in es.errors(): print(e)\nx[:] = 1\nes.close()\nprint(x[:].tolist())\n"
    )
    waited, error, after = program(code, tmp_path).strip().split("\n")
    assert waited == "(0, True)" and after == "[1, 1, 1, 1, 1]"
    for part in ("H5Dwrite_async", "prog.c", "dataset_write", "f.h5", "outside of its present extent"):
        assert part in error


def test_exit_without_waiting_loses_nothing(tmp_path):
    # The buffer is the C library's: Python frees its own before the process ends.
    code = (
        "n = 16 << 20\nlibc = ctypes.CDLL(None)\nlibc.malloc.restype = ctypes.c_void_p\n"
        "at = libc.malloc(ctypes.c_size_t(4 * n))\nctypes.memset(ctypes.c_void_p(at), 3, 4 * n)\n"
        "f = es.H5Fcreate('f.h5', 2, 0, 0)\nspace = h5py.h5s.create_simple((n,))\n"
        "x = es.H5Dcreate(f, 'x', ints, space.id, 0, 0, 0)\n"
        "es.H5Dwrite(x, ints, 0, 0, 0, ctypes.c_void_p(at))\nes.H5Dclose(x)\nes.H5Fclose(f)\n"
    )
    program(code, tmp_path)
    back = program("x = h5py.File('f.h5')['x'][:]\nprint(x.shape, np.unique(x).tolist())\n", tmp_path)
    assert back.strip() == f"({16 << 20},) [{int(np.frombuffer(bytes([3] * 4), 'i4')[0])}]"


def test_a_forked_child_is_not_kept_waiting(tmp_path):
    code = LARGE.replace("CHUNKS", "None") + (
        "pid = os.fork()\nif pid == 0:\n    _, failed = es.wait()\n    os._exit(7 if failed else 1)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), es.wait())\n"
        "print(all((x[:] == k).all() for k, x in enumerate(sets)))\nf.close()\n"
    )
    assert program(code, tmp_path).split("\n")[:2] == ["7 (0, False)", "True"]
