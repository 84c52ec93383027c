"""Extents and data of growing datasets become visible in order, see `swmr.py`."""

import pathlib
import subprocess
import sys

import pytest
from test_data import environment, nothing_stays  # noqa: F401 - a fixture that works by being here
from test_metadata import Talker

PROGRAM = pathlib.Path(__file__).with_name("swmr.py")


WAYS = ["", "--plain", "--step 3", "--step 6 --calls 3", "--step 40 --calls 40 --readers 1"]


@pytest.mark.parametrize("how", WAYS)
def test_readers_see_no_rows_that_were_not_written(how, tmp_path):
    options = ["--seconds", "2", "--directory", str(tmp_path), *how.split()]
    command = [sys.executable, "-W", "ignore", str(PROGRAM), *options]
    done = subprocess.run(command, env=environment(tmp_path / "store"), capture_output=True, text=True, timeout=120)
    print(done.stdout, done.stderr[-4000:])
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]


def test_a_larger_extent_is_shown_with_what_is_written(tmp_path):
    writer, reader = Talker(tmp_path / "store", tmp_path), Talker(tmp_path / "store", tmp_path)
    writer.say("f = h5py.File('g.h5', 'w'); d = f.create_dataset('d', (2,), 'i8', chunks=(4,), maxshape=(None,))")
    writer.say("e = f.create_dataset('e', (2,), 'i8', chunks=(4,), maxshape=(None,)); d[:] = e[:] = 1; f.flush()")
    assert reader.say("r = h5py.File('g.h5', 'r'); print(r['d'].shape, r['d'][:])") == "(2,) [1 1]"
    # The writer's own process sees the extent at once, also by other handles, in copies and after closing; others
    # see it with the data.
    assert writer.say("d.resize((4,)); e.resize((3,)); print(d.shape, f['d'].shape, d[:])") == "(4,) (4,) [1 1 0 0]"
    assert writer.say("f.copy('d', 'c'); print(f['c'].shape)") == "(4,)"
    assert reader.say("r['d'].refresh(); r['e'].refresh(); print(r['d'].shape, r['e'].shape)") == "(2,) (2,)"
    assert writer.say("d[2:] = 7; d.flush()") == ""
    assert reader.say("r['d'].refresh(); r['e'].refresh(); print(r['d'][:], r['e'].shape)") == "[1 1 7 7] (2,)"
    assert writer.say("f.flush()") == ""
    assert reader.say("r['e'].refresh(); print(r['e'][:])") == "[1 1 0]"
    # Shrinking takes effect at once, in order with earlier growth; deletion removes the extent; closing shows all.
    assert writer.say("d.resize((9,)); d.resize((3,)); e.resize((8,)); del f['e']; f['c'].resize((5,))") == ""
    assert writer.say("f.close()") == ""
    assert reader.say("print(r['d'][:], 'e' in r, r['c'][:])") == "[1 1 7] False [1 1 0 0 0]"
    # When another process also writes, both see each change.
    assert writer.say("f = h5py.File('g.h5', 'r+'); d = f['d']; d.resize((6,))") == ""
    assert reader.say("r.close(); r = h5py.File('g.h5', 'r+'); r['d'].resize((4,))") == ""
    assert writer.say("d[5] = 5; d.flush(); print(d[:])") == "[1 1 7 0 0 5]"
    assert reader.say("print(r['d'][:]); r['d'].resize((8,))") == "[1 1 7 0 0 5]"
    assert writer.say("print(d.shape)") == "(8,)"
    for talker in (writer, reader):
        talker.process.stdin.close()
        assert talker.process.wait(60) == 0
