"""A short run of `files_random.py`; `make hdf5-files` makes long ones. `CENOTE_SEED=n` replays one seed."""

import os

import pytest
from files_random import run
from test_data import connector, environment, nothing_stays  # noqa: F401 (used by pytest)


@pytest.mark.parametrize("seed", [int(os.environ.get("CENOTE_SEED", "18"))])
def test_files_are_handled_as_natively(tmp_path, seed):
    counts, differs = run(tmp_path, environment, connector()[1], seed, 600, 150)
    assert differs is None, differs
    assert counts["write"] > 100 and counts["read"] > 100, counts
