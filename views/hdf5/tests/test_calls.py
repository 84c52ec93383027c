"""Calls of the C library that h5py does not make: what they do on native HDF5, they do on Cenote."""

import pathlib

import pytest
from calls_programs import PROGRAMS
from test_structure import first_difference, run

PROGRAM_FILE = pathlib.Path(__file__).with_name("calls_programs.py")
NAMES = list(PROGRAMS)


@pytest.fixture(scope="session")
def both(tmp_path_factory):
    """All programs, once on native HDF5 and once on Cenote."""
    top = tmp_path_factory.mktemp("calls")
    native = run(top / "native", None, NAMES, PROGRAM_FILE)
    return native, run(top / "cenote", top / "store", NAMES, PROGRAM_FILE)


@pytest.mark.parametrize("name", NAMES)
def test_program(both, name):
    native, cenote = both[0][name], both[1][name]
    assert not (native and native[-1] and native[-1][0] == "program failed"), native[-1][1]
    for i, (want, have) in enumerate(zip(native, cenote, strict=False)):
        assert have == want, f"entry {i}: (native, cenote) = {first_difference(want, have)}"
    assert len(cenote) == len(native)
