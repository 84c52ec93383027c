"""`cenote import` and `cenote export`: exact copies of whole files, both ways, complete or not at all."""

import json
import subprocess
import sys

import pytest
import test_references as references
from test_data import connector, environment, finish, nothing_stays, script  # noqa: F401 - a fixture that works by being here
from test_foreign import native, program, run  # noqa: F401 - a fixture


def library():
    """The libhdf5 that h5py brings."""
    code = """
import h5py
print(next(line.split()[-1] for line in open('/proc/self/maps') if 'libhdf5-' in line or 'libhdf5.so' in line))
"""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def cenote(tmp_path):
    """Runs the command on a store of this test."""
    command = connector()[1]
    if not command:
        pytest.skip("the command is not built")
    env = environment(None) | {"CENOTE_HDF5_LIBRARY": library()}
    # A user's environment for other programs must not matter.
    env |= {name: environment(tmp_path / "store")[name] for name in ("HDF5_PLUGIN_PATH", "HDF5_VOL_CONNECTOR")}

    def call(*arguments, code=0):
        everything = [command, "--store", tmp_path / "store", *arguments]
        done = subprocess.run(
            everything, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == code, f"exit {done.returncode}\n{done.stdout[-1000:]}{done.stderr[-4000:]}"
        return done.stdout if code == 0 else done.stderr

    call(
        "init",
        "--tier",
        "name=memory,kind=memory,size=64MiB",
        "--tier",
        f"name=d,kind=directory,path={tmp_path}/tier,size=256MiB",
    )
    return call


def without_sizes(told):
    """The output of `tell` without stored sizes of variable-length datasets, whose parts are stored elsewhere
    here."""
    lines, skip = [], False
    for line in told.splitlines():
        if line.startswith("/"):
            skip = line.startswith(("/texts", "/ragged"))
        words = line.split()
        if skip and (line.startswith("   [((") or (len(words) == 2 and all(word.isdigit() for word in words))):
            continue
        lines.append(line)
    return lines


def test_a_file_goes_in_and_out_exactly(native, cenote, tmp_path):  # noqa: F811
    want = program(None, tmp_path, "tell", native)
    said = json.loads(cenote("--json", "import", "native.h5", "ours.h5"))
    assert (said["groups"], said["datasets"], said["datatypes"]) == (6, 51, 1) and said["stored_bytes"] > 50_000
    assert without_sizes(program(tmp_path / "store", tmp_path, "tell", "ours.h5")) == without_sizes(want)
    cenote("export", "ours.h5", "again.h5")
    assert program(None, tmp_path, "tell", "again.h5") == want
    cenote("import", "again.h5", "twice.h5")
    assert without_sizes(program(tmp_path / "store", tmp_path, "tell", "twice.h5")) == without_sizes(want)


def test_what_was_made_in_the_store_becomes_native(cenote, tmp_path):
    program(None, tmp_path, "make", "native.h5")
    program(tmp_path / "store", tmp_path, "make", "ours.h5", "in the store")
    cenote("export", "ours.h5", "out.h5")
    want = program(None, tmp_path, "tell", "native.h5", "values")
    assert program(None, tmp_path, "tell", "out.h5", "values") == want


def test_an_imported_file_is_like_any_other(native, cenote, tmp_path):  # noqa: F811
    cenote("import", "-f", "native.h5")
    code = """
import h5py
with h5py.File("native.h5", "r+") as f:
    assert f[f["refs"][1]] == f and f[f["refs"][0]] == f["plain"]
    f["chunked"][0, 0] = 5
    f["chunked"].resize((120, 80))
    f["texts"][0] = "changed"
    f["group"]["new"] = 1
    assert list(f["group"])[-1] == "new"
    del f["plain"], f["group/hard"], f["points"]
    f.attrs["n"] = 3
with h5py.File("native.h5") as f:
    assert f["chunked"][0, 0] == 5 and f["chunked"][1, 0] == -1 and f["texts"][0] == b"changed" and "plain" not in f
"""
    run(tmp_path / "store", tmp_path, "-c", code)


def test_what_fails_leaves_nothing(native, cenote, tmp_path):  # noqa: F811
    there = json.loads(cenote("--json", "ls"))
    content = native.read_bytes()
    # Truncated in the middle of the raw data, with and without metadata that record the size.
    (tmp_path / "short.h5").write_bytes(content[: len(content) // 2])
    assert "truncated file" in cenote("import", "short.h5", "out.h5", code=3)
    assert "replace it with -f" in cenote("import", "native.h5", code=1)
    assert "1.14" in cenote("import", "--hdf5", sys.executable, "native.h5", "out.h5", code=1)
    finish(script(references.PRELUDE + references.MAKE, None, tmp_path / "new_references.h5"))
    assert "1.12's kind" in cenote("import", "new_references.h5", "out.h5", code=1)
    assert json.loads(cenote("--json", "ls")) == there
    cenote("import", "native.h5", "ours.h5")
    assert "file of a Cenote store" in cenote("export", "-f", "ours.h5", "ours.h5", code=1)
    assert "native HDF5 file already" in cenote("export", "native.h5", "out.h5", code=1)
    assert "choose another path" in cenote("export", "ours.h5", "native.h5", code=1)
    assert native.read_bytes() == content
    assert not (tmp_path / "out.h5").exists() and not list(tmp_path.glob("*.part-*"))


def test_references_to_regions_lead_to_the_same(cenote, tmp_path):
    finish(script(references.OLD_MAKE, None, tmp_path / "native.h5"))
    for name in "ours.h5", "ours.h5.copy", "out.h5", "out.h5.copy":
        end = ".copy" if name.endswith(".copy") else ""
        cenote(*(("import", "native.h5" + end) if "ours" in name else ("export", "ours.h5" + end)), name)
    # Reading makes the dataset larger: first in one file, then in the other.
    for store, name in ((None, "out.h5"), (tmp_path / "store", "ours.h5")):
        want = (tmp_path / "native.h5", tmp_path / f"native-{name}")
        want[1].write_bytes(want[0].read_bytes())
        (tmp_path / f"native-{name}.copy").write_bytes((tmp_path / "native.h5.copy").read_bytes())
        seen = [finish(script(references.OLD_LOOK, s, p)) for s, p in ((None, want[1]), (store, tmp_path / name))]
        assert seen[0] == seen[1]


def test_files_of_other_programs(cenote, tmp_path):
    make = """
import netCDF4, numpy as np
with netCDF4.Dataset("n.nc", "w") as d:
    d.createDimension("x", 300)
    d.createDimension("t", None)
    g = d.createGroup("g")
    for i, kind in enumerate(["f4", "i2", "u8", "S1"]):
        v = g.createVariable(f"v{i}", kind, ("t", "x"), zlib=bool(i % 2), fill_value=None if kind == "S1" else 9)
        v[:7] = np.zeros((7, 300), kind) if kind == "S1" else np.arange(2100).reshape(7, 300)
    d.createVariable("x", "f8", ("x",))[:] = np.arange(300)
    s = d.createVariable("s", str, ("t",))
    s[3] = "hello"
"""
    read = """
import sys, netCDF4, xarray
with netCDF4.Dataset(sys.argv[1]) as d:
    print(d["g"], [(n, v[:].tolist(), v.filters(), v.chunking()) for n, v in d["g"].variables.items()], d["s"][:])
with xarray.open_dataset(sys.argv[1]) as d:
    print(d)
"""
    run(None, tmp_path, "-c", make)
    want = run(None, tmp_path, "-c", read, "n.nc")
    cenote("import", "n.nc", "ours.nc")
    assert run(tmp_path / "store", tmp_path, "-c", read, "ours.nc") == want
    cenote("export", "ours.nc", "out.nc")
    assert run(None, tmp_path, "-c", read, "out.nc") == want


def test_staged_bytes_are_read_where_they_are(native, cenote, tmp_path):  # noqa: F811
    want = program(None, tmp_path, "tell", native)
    cenote("stage", "native.h5", "staged.h5")
    assert (tmp_path / "staged.h5").stat().st_size < 2000
    assert program(tmp_path / "store", tmp_path, "tell", "staged.h5") == want
    (tmp_path / "staged.h5").rename(tmp_path / "moved.h5")
    code = """
import h5py
for mode in "r+", "a":
    try:
        h5py.File("moved.h5", mode)
    except OSError as error:
        assert "read-only" in str(error), error
    else:
        raise AssertionError(mode)
with h5py.File("links.h5", "w") as f:
    f["there"] = h5py.ExternalLink("moved.h5", "/chunked")
    f.copy(f["there"], "copied")
    assert (f["there"][()] == f["copied"][()]).all() and f["there"][20, 20] > 0
with h5py.File("moved.h5") as a, h5py.File("moved.h5") as b, h5py.File("native.h5") as c:
    assert a == b and (a["plain"][()] == c["plain"][()]).all()
"""
    run(tmp_path / "store", tmp_path, "-c", code)
    cenote("import", "moved.h5", "ours.h5")
    assert without_sizes(program(tmp_path / "store", tmp_path, "tell", "ours.h5")) == without_sizes(want)
    assert "cenote unstage" in cenote("export", "moved.h5", "out.h5", code=1)
    cenote("unstage", "moved.h5", "out.h5")
    assert (tmp_path / "out.h5").read_bytes() == native.read_bytes()
    # Truncated bytes: an error, never zeros in their place.
    (tmp_path / "short.h5").write_bytes(native.read_bytes()[:60_000])
    cenote("stage", "short.h5", "bad.h5")
    code = "import h5py\ntry: h5py.File('bad.h5'); print('opened')\nexcept OSError as e: print(e)"
    said = run(tmp_path / "store", tmp_path, "-c", code)
    assert "bad.h5" in said and "truncated" in said
    assert "not a native HDF5 file" in cenote("stage", "ours.h5", "again.h5", code=1)
    run(tmp_path / "store", tmp_path, "-c", "import h5py; h5py.File('moved.h5', 'w')['x'] = 1")
    assert "/x" in cenote("--json", "tree", "moved.h5")


def test_a_tree_of_a_file_needs_no_hdf5(cenote, tmp_path):
    program(tmp_path / "store", tmp_path, "make", "ours.h5", "in the store")
    nodes = {node["path"]: node for node in json.loads(cenote("--json", "tree", "ours.h5"))}
    chunked = nodes["/chunked"]
    assert chunked["shape"] == [100, 60] and chunked["max_shape"] == [None, 80] and chunked["chunk_shape"] == [16, 25]
    assert chunked["chunks"] == 15 and chunked["dtype"] == "float64" and chunked["filters"][1] == "deflate 4"
    assert chunked["chunk_bytes"] == sum(chunked["tiers"].values()) and set(chunked["tiers"]) <= {"memory", "d"}
    assert nodes["/group/hard"]["tiers"] == {"memory": 50 * 40 * 8} and nodes["/group/hard"]["attributes"] == 1
    types = {
        name: nodes["/" + name]["dtype"] for name in ("big_endian", "texts", "ragged", "compound", "enum", "opaque")
    }
    assert types == {
        "big_endian": "int32 big-endian",
        "texts": "string",
        "ragged": "sequence of int32",
        "compound": "{a: int32, b: [2] of float64, s: string of 5}",
        "enum": "enum of uint8 (NO, YES)",
        "opaque": "opaque of 4",
    }
    kinds = {name: nodes["/group/" + name]["kind"] for name in ("soft", "external", "loop", "x")}
    assert kinds == {
        "soft": "soft link",
        "external": "external link",
        "loop": "hard link",
        "x": "group",
    }
    assert nodes["/plain"]["same_as"] == "/group/hard" and nodes["/group/loop"]["same_as"] == "/"
    assert max(path.count("/") for path in nodes if path != "/") == 2
    shallow = json.loads(cenote("--json", "tree", "--depth", "1", "ours.h5"))
    assert all(node["path"].count("/") == 1 for node in shallow) and len(shallow) > 20
    lines = cenote("tree", "ours.h5").splitlines()
    assert lines[0].startswith("/  ") and any("chunked  100 of any x 60 of 80, float64" in line for line in lines)


def test_user_blocks_virtual_datasets_and_external_files_go_along(cenote, tmp_path):
    make = """
import h5py, numpy as np
with h5py.File("source.h5", "w") as f:
    f["a"] = np.arange(5)
    f.create_dataset("b", data=np.arange(5, 10), chunks=(2,), compression="gzip")
with h5py.File("native.h5", "w", userblock_size=1024) as f:
    layout = h5py.VirtualLayout((10,), "i8")
    layout[:5] = h5py.VirtualSource("source.h5", "a", (5,))
    layout[5:9] = h5py.VirtualSource("source.h5", "b", (5,))[1:]
    f.create_virtual_dataset("v", layout, fillvalue=-1)
    f.create_dataset("e", (4,), "i4", external=[("e.bin", 0, 16)])[:] = range(4)
with open("native.h5", "r+b") as f:
    f.write(b"a program's own" * 60)
"""
    tell = """
import sys, h5py
with h5py.File(sys.argv[1]) as f:
    print(f.userblock_size, f["v"][()], f["v"].is_virtual, f["e"][()], f["e"].external)
    print([(s.file_name, s.dset_name, s.vspace.get_regular_hyperslab()) for s in f["v"].virtual_sources()])
"""
    run(None, tmp_path, "-c", make)
    want = run(None, tmp_path, "-c", tell, "native.h5")
    cenote("import", "native.h5", "ours.h5")
    assert run(tmp_path / "store", tmp_path, "-c", tell, "ours.h5") == want
    cenote("export", "ours.h5", "out.h5")
    assert run(None, tmp_path, "-c", tell, "out.h5") == want
    blocks = [(tmp_path / name).read_bytes()[:1024] for name in ("native.h5", "ours.h5", "out.h5")]
    assert blocks[0].startswith(b"a program's own") and blocks[0] == blocks[1] == blocks[2]
