"""HDF5 programs in separate processes: the environment chooses the connector, before HDF5 is loaded."""

import os
import subprocess
import sys
from pathlib import Path

import cenote
import pytest


def run(store: Path, folder: Path, code: str) -> str:
    """Runs Python code that uses h5py or netCDF4 on a store, in `folder`; returns what it prints."""
    try:
        environment = cenote.hdf5_environment(store)
    except cenote.NotFound as missing:
        pytest.skip(str(missing))
    done = subprocess.run(
        [sys.executable, "-c", "import h5py, numpy as np\n" + code],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
