"""Who may open a file that another has open: as natively in one of HDF5's formats, see `opening.py`."""

import json
import pathlib
import subprocess
import sys

import pytest
from test_data import connector, environment, lose_memory

PROGRAM = pathlib.Path(__file__).with_name("opening.py")


def table(store, where, *more):
    """The result for each pair."""
    where.mkdir()
    command = [sys.executable, "-W", "ignore", str(PROGRAM), str(where), *more]
    done = subprocess.run(command, env=environment(store), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    rows = map(json.loads, done.stdout.splitlines())
    return {tuple(pair): found for pair, found in rows}


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Native results in the new and in the old format, and those on Cenote."""
    place = tmp_path_factory.mktemp("opening")
    store = place / "store"
    yield table(None, place / "new"), table(None, place / "old", "--old"), table(store, place / "ours")
    if program := connector()[1]:
        subprocess.run([program, "--store", store, "stop"], capture_output=True, timeout=60, check=False)
    lose_memory(store / "superblock")


def test_two_programs_open_a_file_as_natively(tables):
    new, old, ours = ({pair: found for pair, found in table.items() if pair[-1]} for table in tables)
    assert len(ours) == 64
    # Old files admit anyone who asks for no locks, and new ones know SWMR: a file of the store has both.
    expected = {pair: "yes" if "yes" in (new[pair], old.get(pair)) else "no" for pair in new}
    assert {pair: (ours[pair], "expected", is_so) for pair, is_so in expected.items() if ours[pair] != is_so} == {}


def test_one_program_opens_a_file_as_it_likes_but_for_two_swmr_writers(tables):
    ours = {pair: found for pair, found in tables[2].items() if not pair[-1]}
    refused = {pair for pair, found in ours.items() if found == "no"}
    assert refused == {("write swmr", a, "write swmr", b, False) for a in (True, False) for b in (True, False)}
    assert set(ours.values()) == {"yes", "no"}
