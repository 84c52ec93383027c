"""Cases found by the random comparison: programs do the same as on native HDF5."""

import pathlib

import pytest
from found_programs import PROGRAMS
from test_structure import must_agree, run_both

PROGRAM_FILE = pathlib.Path(__file__).with_name("found_programs.py")
NAMES = list(PROGRAMS)


@pytest.fixture(scope="session")
def both(tmp_path_factory):
    """All programs, once on native HDF5 and once on Cenote."""
    return run_both(tmp_path_factory.mktemp("found"), NAMES, PROGRAM_FILE)


@pytest.mark.parametrize("name", NAMES)
def test_program(both, name):
    must_agree(both[0][name], both[1][name])
