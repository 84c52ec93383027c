"""Virtual datasets and external raw data files: programs on native HDF5 and on Cenote must see the same.

`CENOTE_SEED=n` replays one seed; `CENOTE_SEEDS=n` sets how many are tried.
"""

import os
import pathlib
import random
import subprocess
import sys

import pytest
from test_data import environment, finish, nothing_stays, script  # noqa: F401 - a fixture that works by being here

PROGRAMS = pathlib.Path(__file__).parent / "virtual_programs.py"


def seen(store, directory, seeds):
    command = [sys.executable, str(PROGRAMS), str(directory), *map(str, seeds)]
    done = subprocess.run(command, env=environment(store), capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    return done.stdout.splitlines()


def test_random_virtual_datasets(tmp_path):
    if seed := os.environ.get("CENOTE_SEED"):
        seeds = [int(seed)]
    else:
        seeds = random.sample(range(10**6), int(os.environ.get("CENOTE_SEEDS", "40")))
    native = seen(None, tmp_path / "native", seeds)
    cenote = seen(tmp_path / "store", tmp_path / "cenote", seeds)
    seed = None
    for expected, got in zip(native, cenote, strict=False):
        seed = expected if expected.startswith("seed") else seed
        assert got == expected, f"{seed}: CENOTE_SEED replays it"
    assert len(native) == len(cenote)


def both(tmp_path, code, **variables):
    """What a program with a directory as argument prints: it must be the same natively and on Cenote."""
    printed = []
    for store, name in ((None, "native"), (tmp_path / "store", "cenote")):
        directory = tmp_path / name
        directory.mkdir()
        environ = environment(store) | {k: v.format(directory=directory) for k, v in variables.items()}
        code_here = "import os, sys, h5py, numpy as np\nos.chdir(sys.argv[1])\n" + code
        done = subprocess.run(
            [sys.executable, "-c", code_here, str(directory)],
            env=environ,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        printed.append(done.stdout.replace(str(directory), "<directory>"))
    assert printed[0] == printed[1]
    return printed[0]


PREFIX = """
os.mkdir("there")
with h5py.File("there/source.h5", "w") as f:
    f["d"] = np.arange(10)
dapl = h5py.h5p.create(h5py.h5p.DATASET_ACCESS)
if sys.argv[1:] and not os.environ.get("HDF5_VDS_PREFIX"):
    dapl.set_virtual_prefix(b"${ORIGIN}/there")
layout = h5py.VirtualLayout((10,), "i8")
layout[:] = h5py.VirtualSource("source.h5", "d", (10,))
with h5py.File("virtual.h5", "w") as f:
    f.create_virtual_dataset("v", layout)
with h5py.File("virtual.h5", "r") as f:
    d = h5py.Dataset(h5py.h5d.open(f.id, b"v", dapl))
    print(d[...], d.id.get_access_plist().get_virtual_prefix())
    del d
    print(f["v"][...])
os.rename("there/source.h5", "source.h5")
with h5py.File("virtual.h5", "r") as f:
    print(f["v"][...])
"""


def test_sources_are_found_below_a_prefix_and_beside(tmp_path):
    assert "[0 1 2 3 4 5 6 7 8 9]" in both(tmp_path, PREFIX)


def test_sources_are_found_where_the_environment_says(tmp_path):
    assert "[0 1 2 3 4 5 6 7 8 9]" in both(tmp_path, PREFIX, HDF5_VDS_PREFIX="{directory}/nowhere:{directory}/there")


def test_variable_length_fill_and_compounds(tmp_path):
    both(
        tmp_path,
        """
kind = np.dtype([("a", "i4"), ("s", h5py.string_dtype())])
with h5py.File("f.h5", "w") as f:
    rows = np.array([(i, f"row {i}") for i in range(3)], kind)
    f["c"] = rows
    f["s"] = np.array(["x", "yy", "zzz"], dtype=h5py.string_dtype())
    for name, dtype in [("c", kind), ("s", h5py.string_dtype())]:
        layout = h5py.VirtualLayout((6,), dtype)
        layout[1:4] = h5py.VirtualSource(f[name])
        f.create_virtual_dataset("v" + name, layout)
        print(f["v" + name][...].tolist())
        print(f["v" + name][2], f["v" + name][5])
    print(f["vc"]["a"].tolist(), f["vc"][1:3]["s"].tolist())
""",
    )


def test_writing_in_another_type_and_a_variable_length_fill_value(tmp_path):
    # Native HDF5 writes wrong elements or crashes, and fails to read such fill values.
    code = """
import os, sys, h5py, numpy as np
os.chdir(sys.argv[1])
with h5py.File("f.h5", "w") as f:
    f["s"] = np.array(["x", "yy", "zzz"], dtype=h5py.string_dtype())
    dcpl = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    dcpl.set_fill_value(np.array("none", h5py.string_dtype()))
    target = h5py.h5s.create_simple((6,))
    target.select_hyperslab((1,), (3,))
    dcpl.set_virtual(target, b".", b"s", h5py.h5s.create_simple((3,)))
    h5py.h5d.create(f.id, b"v", f["s"].id.get_type(), h5py.h5s.create_simple((6,)), dcpl)
    for _ in range(50):
        assert f["v"][...].tolist() == [b"none", b"x", b"yy", b"zzz", b"none", b"none"]
    assert (f["v"][2], f["v"][5]) == (b"yy", b"none")
    kind = np.dtype([("a", "i4"), ("s", h5py.string_dtype())])
    rows = np.array([(i, f"row {i}") for i in range(3)], kind)
    f["c"] = rows
    layout = h5py.VirtualLayout((6,), kind)
    layout[1:4] = h5py.VirtualSource(f["c"])
    f.create_virtual_dataset("vc", layout)
    f["vc"][2:4] = rows[:2]
    assert f["c"][...].tolist() == [(0, b"row 0"), (0, b"row 0"), (1, b"row 1")]
    f["n"] = np.arange(4, dtype="i2")
    layout = h5py.VirtualLayout((4,), "u1")
    layout[...] = h5py.VirtualSource(f["n"])
    f.create_virtual_dataset("vn", layout)
    f["vn"][1:3] = np.array([200, 201], "f8")
    assert f["n"][...].tolist() == [0, 200, 201, 3]
"""
    finish(script(code, tmp_path / "store", tmp_path))


def test_a_hole_beside_an_overlap_is_filled(tmp_path):
    # Native HDF5 only counts elements.
    code = """
import os, sys, h5py, numpy as np
os.chdir(sys.argv[1])
with h5py.File("f.h5", "w") as f:
    f["s"] = np.arange(1, 4)
    layout = h5py.VirtualLayout((6,), "i8")
    layout[0:3] = h5py.VirtualSource(f["s"])
    layout[1:4] = h5py.VirtualSource(f["s"])
    f.create_virtual_dataset("v", layout, fillvalue=-1)
    assert f["v"][...].tolist() == [1, 1, 2, 3, -1, -1]
"""
    finish(script(code, tmp_path / "store", tmp_path))


def test_a_cycle_and_a_lost_source_are_told(tmp_path):
    code = """
import os, sys, h5py
os.chdir(sys.argv[1])
layout = h5py.VirtualLayout((4,), "i4")
layout[:] = h5py.VirtualSource(".", "v", (4,))
with h5py.File("f.h5", "w") as f:
    f.create_virtual_dataset("v", layout)
    try:
        f["v"][...]
    except OSError as error:
        assert "its own source" in str(error), error
    else:
        raise SystemExit("no error")
open("other.h5", "w").write("no HDF5 file")
layout = h5py.VirtualLayout((4,), "i4")
layout[:] = h5py.VirtualSource("other.h5", "d", (4,))
with h5py.File("g.h5", "w") as f:
    f.create_virtual_dataset("v", layout)
    try:
        f["v"][...]
    except OSError as error:
        assert "source of a virtual dataset" in str(error), error
    else:
        raise SystemExit("no error")
"""
    finish(script(code, tmp_path / "store", tmp_path))


def test_native_sources_and_copies_out_of_native_files(tmp_path):
    make = """
import os, sys, h5py, numpy as np
os.chdir(sys.argv[1])
with h5py.File("n.h5", "w") as f:
    f["s"] = np.arange(6)
    layout = h5py.VirtualLayout((8,), "i8")
    layout[1:7] = h5py.VirtualSource(f["s"])
    f.create_virtual_dataset("v", layout, fillvalue=-1)
    f.create_dataset("e", (4,), "i4", external=[("e.raw", 0, 16)])[...] = [1, 2, 3, 4]
os.chmod("e.raw", 0o444)
"""
    finish(script(make, None, tmp_path))
    look = """
import os, sys, h5py, numpy as np
os.chdir(sys.argv[1])
with h5py.File("n.h5", "r") as n, h5py.File("c.h5", "w") as c:
    assert n["v"].is_virtual and n["v"].virtual_sources()[0].dset_name == "/s"
    n.copy("v", c, "v")
    n.copy("e", c, "e")
    assert c["v"][...].tolist() == [-1] * 8
    c["s"] = np.arange(6) * 10
    assert c["v"][...].tolist() == [-1, 0, 10, 20, 30, 40, 50, -1]
    assert c["e"][...].tolist() == [1, 2, 3, 4] and c["e"].external == [("e.raw", 0, 16)]
    layout = h5py.VirtualLayout((6,), "i8")
    layout[...] = h5py.VirtualSource("n.h5", "s", (6,))
    c.create_virtual_dataset("from_native", layout)
    assert c["from_native"][2:4].tolist() == [2, 3]
    try:
        c["from_native"][0] = 1
    except OSError as error:
        assert "read-only" in str(error) or "write intent" in str(error), error
    else:
        raise SystemExit("no error")
"""
    finish(script(look, tmp_path / "store", tmp_path))


EXTERNAL = """
parts = [("a.raw", 3, 40), ("sub/b.raw", 0, 24), ("a.raw", 100, h5py.h5f.UNLIMITED)]
os.mkdir("sub")
with h5py.File("f.h5", "w") as f:
    d = f.create_dataset("d", (5, 4), "i4", maxshape=(None, 4), external=parts)
    print(d.id.get_storage_size(), d.id.get_space_status(), d.id.get_offset(), d.external)
    try:
        print(d[...])
    except OSError as error:
        print(type(error))
    d[1:4, 1:3] = np.arange(6).reshape(3, 2)
    print({name: open(name, "rb").read() if os.path.exists(name) else None for name in ("a.raw", "sub/b.raw")})
    open("sub/b.raw", "ab").write(b"1234")
    try:
        print(d[...].tolist())
    except OSError as error:
        print(type(error))
    d.id.set_extent((9, 4))
    d[...] = np.arange(36).reshape(9, 4)
    print(d[::2, 1].tolist(), d.id.get_storage_size())
    d.id.set_extent((2, 4))
    print(d[...].tolist())
with h5py.File("f.h5", "r") as f:
    print(f["d"].shape, f["d"][...].tolist(), f["d"].external)
print(open("a.raw", "rb").read(), open("sub/b.raw", "rb").read())
"""


def test_external_raw_data(tmp_path):
    both(tmp_path, EXTERNAL)


def test_external_raw_data_that_hdf5_refuses(tmp_path):
    both(
        tmp_path,
        """
with h5py.File("f.h5", "w") as f:
    for shape, maxshape, size in [((4,), (None,), 16), ((4, 4), (4, None), 256), ((4,), (4,), 8), ((4,), (8,), 64)]:
        try:
            f.create_dataset("d", shape, "i4", maxshape=maxshape, external=[("a.raw", 0, size)])
            print("made")
            f["d"][...] = 7
            print(f["d"][...])
        except (OSError, RuntimeError, ValueError) as error:
            print(type(error))
""",
    )


@pytest.mark.parametrize("variable", ["", "{directory}/pre"])
def test_external_raw_data_below_a_prefix(tmp_path, variable):
    both(
        tmp_path,
        """
os.mkdir("pre")
with h5py.File("f.h5", "w") as f:
    d = f.create_dataset("d", (4,), ">i2", external=[("a.raw", 0, 8)], efile_prefix="${ORIGIN}/pre")
    d[...] = [1, 2, 3, 4]
    print(d.id.get_access_plist().get_efile_prefix())
print(open("pre/a.raw", "rb").read(), os.path.exists("a.raw"))
with h5py.File("f.h5", "r") as f:
    for prefix in ("pre", None):
        try:
            print(f.require_dataset("d", (4,), ">i2", efile_prefix=prefix)[...])
        except OSError as error:
            print(type(error))
""",
        HDF5_EXTFILE_PREFIX=variable,
    )
