"""A short random comparison with native HDF5, of at most 20 seconds; `make differential` runs a longer one.

The seeds are fixed, so that a failure comes from a change and not from the draw.
"""

import os
import pathlib
import subprocess
import sys

import pytest
from test_data import connector

HERE = pathlib.Path(__file__).parent
OPERATIONS, SECONDS = 10_000, 20


@pytest.mark.parametrize("seed", [1_000_003])
def test_random_calls_do_the_same_natively_and_on_cenote(seed):
    connector()  # skips if it is not built
    command = [sys.executable, "-m", "differential", "--seed", str(seed), "--shrink"]
    command += ["--operations", str(OPERATIONS), "--seconds", str(SECONDS)]
    environment = os.environ | {"PYTHONPATH": os.fspath(HERE)}
    done = subprocess.run(command, cwd=HERE, env=environment, capture_output=True, text=True, timeout=300, check=False)
    print(done.stdout)  # prints the seed first
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert ", 0 differences" in done.stdout.splitlines()[1], done.stdout
    assert not done.stdout.splitlines()[1].startswith("0 operations"), done.stdout
