"""User blocks, file creation properties, queries about files, copied references: as in native HDF5."""

import pathlib
import subprocess
import sys

import pytest
from test_data import environment, finish, nothing_stays, script  # noqa: F401 - a fixture that works by being here

PRELUDE = "import os, sys, h5py, numpy as np\nos.chdir(sys.argv[1])\n"


def both(tmp_path, code):
    """What a program with a directory as argument prints: it must be the same natively and on Cenote."""
    printed = []
    for store, name in ((None, "native"), (tmp_path / "store", "cenote")):
        directory = tmp_path / name
        directory.mkdir()
        command = [sys.executable, "-c", PRELUDE + code, str(directory)]
        done = subprocess.run(command, env=environment(store), capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        printed.append(done.stdout)
    assert printed[0] == printed[1]
    return printed[0]


@pytest.mark.parametrize("size", [512, 4096])
def test_user_blocks(tmp_path, size):
    both(
        tmp_path,
        f"""
with h5py.File("f.h5", "w", userblock_size={size}) as f:
    f["d"] = [1, 2, 3]
    print(f.userblock_size)
print(open("f.h5", "rb").read({size}) == bytes({size}), open("f.h5", "rb").read()[{size}:][:8])
with open("f.h5", "r+b") as f:
    f.write(b"#!/bin/sh\\n" * 20)
os.rename("f.h5", "g.h5")
with h5py.File("g.h5", "r+") as f:
    print(f["d"][...], f.userblock_size)
    f["e"] = 5
print(open("g.h5", "rb").read(200), h5py.is_hdf5("g.h5"))
with h5py.File("g.h5", "w") as f:
    print(f.userblock_size, list(f))
for size in (0, 256, 1000):
    try:
        h5py.File("h.h5", "w", userblock_size=size).close()
        print("made")
    except ValueError as error:
        print(type(error))
""",
    )


def test_a_user_block_may_be_put_before_a_file_and_taken_away(tmp_path):
    # As h5jam and h5unjam do.
    both(
        tmp_path,
        """
with h5py.File("f.h5", "w", userblock_size=1024) as f:
    f["d"] = [1, 2, 3]
whole = open("f.h5", "rb").read()
open("f.h5", "wb").write(b"head".ljust(2048, b".") + whole[1024:])
with h5py.File("f.h5", "r") as f:
    print(f["d"][...])
""",
    )


def test_creation_properties_come_back(tmp_path):
    both(
        tmp_path,
        """
fcpl = h5py.h5p.create(h5py.h5p.FILE_CREATE)
fcpl.set_file_space_strategy(1, True, 100)
fcpl.set_file_space_page_size(8192)
fcpl.set_userblock(8192)
h5py.h5f.create(b"f.h5", fcpl=fcpl).close()
h5py.h5f.create(b"g.h5").close()
for name in (b"f.h5", b"g.h5"):
    fcpl = h5py.h5f.open(name).get_create_plist()
    print(fcpl.get_file_space_strategy(), fcpl.get_file_space_page_size(), fcpl.get_sizes())
    print(fcpl.get_userblock())
for strategy, page, buffer in [("page", 4096, 5000), ("page", 4096, 100), ("fsm", None, 5000), (None, None, 5000)]:
    try:
        with h5py.File("h.h5", "w", fs_strategy=strategy, fs_page_size=page, page_buf_size=buffer) as f:
            print(f.id.get_access_plist().get_page_buffer_size())
    except OSError as error:
        print(type(error))
with h5py.File("f.h5", "r", page_buf_size=20000) as f:
    print(f.id.get_access_plist().get_page_buffer_size())
with h5py.File("g.h5", "r", page_buf_size=20000) as f:
    print(f.id.get_access_plist().get_page_buffer_size())
""",
    )


def test_questions_about_caches_and_the_descriptor(tmp_path):
    code = """
import os, sys, h5py
with h5py.File(sys.argv[1] + "/f.h5", "w") as f:
    fid = f.id
    assert fid.get_mdc_hit_rate() == 0 and fid.get_mdc_size()[2:] == (0, 0)
    config = fid.get_mdc_config()
    config.increment = 2.5
    fid.set_mdc_config(config)
    assert fid.get_mdc_config().increment == 2.5
    fid.reset_mdc_hit_rate_stats()
    descriptor = fid.get_vfd_handle()
    assert descriptor > 2 and descriptor == fid.get_vfd_handle()
    os.fsync(descriptor)
    assert fid.get_freespace() == 0 and fid.get_filesize() >= 0
"""
    finish(script(code, tmp_path / "store", tmp_path))


def test_copied_references(tmp_path):
    both(
        tmp_path,
        """
with h5py.File("a.h5", "w") as f, h5py.File("b.h5", "w") as g:
    f["bar"], f["foo"], f["sub/one"] = [4, 5], [1], 7
    f["foo"].attrs["r"] = f["bar"].ref
    f["bar"].attrs["back"] = f["foo"].ref
    f["sub"].attrs["all"] = np.array([f["bar"].ref, f["sub"].ref, h5py.Reference()], dtype=h5py.ref_dtype)
    f["refs"] = np.array([f["bar"].ref, h5py.Reference(), f["sub"].ref], dtype=h5py.ref_dtype)
    def told(file, ref):
        if not ref:
            return None
        name = file[ref].name
        return "made" if name.startswith("/~obj_pointed_by_") else name
    for to in (f, g):
        for expand in (False, True):
            for name in ("foo", "refs", "sub"):
                f.copy(name, to, f"{name}-{expand}", expand_refs=expand)
            print(told(to, to[f"foo-{expand}"].attrs["r"]))
            print([told(to, ref) for ref in to[f"refs-{expand}"]])
            print([told(to, ref) for ref in to[f"sub-{expand}"].attrs["all"]])
    target = g[g["foo-True"].attrs["r"]]
    print(target[...], told(g, target.attrs["back"]) is not None)
    print([g[ref].keys() for ref in g["refs-True"] if ref and isinstance(g[ref], h5py.Group)])
""",
    )


def test_a_copied_stub_is_told_from_a_moved_one_behind_a_user_block(tmp_path):
    make = "import h5py, sys; h5py.File(sys.argv[1], 'w', userblock_size=512)['d'] = 1"
    path = tmp_path / "f.h5"
    finish(script(make, tmp_path / "store", path))
    pathlib.Path(tmp_path / "copy.h5").write_bytes(path.read_bytes())
    look = """
import h5py, sys
try:
    h5py.File(sys.argv[1])
except OSError as error:
    assert "copy of the stub" in str(error), error
else:
    raise SystemExit("no error")
"""
    finish(script(look, tmp_path / "store", tmp_path / "copy.h5"))
