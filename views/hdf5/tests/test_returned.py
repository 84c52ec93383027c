"""Calls that returned are safe from the death of the process that made them, see `returned.py` (`make kills`)."""

import os
import pathlib
import subprocess
import sys

from test_data import environment, nothing_stays  # noqa: F401 - a fixture that works by being here

ROUNDS = int(os.environ.get("CENOTE_KILL_ROUNDS", "25"))


def test_calls_that_returned_survive_their_process(tmp_path):
    store = tmp_path / "store"
    command = [sys.executable, "-W", "ignore", pathlib.Path(__file__).with_name("returned.py")]
    command += ["--rounds", str(ROUNDS), "--store", str(store), "--directory", str(tmp_path)]
    seed = os.environ.get("CENOTE_SEED")
    command += ["--seed", seed] if seed else []
    done = subprocess.run(
        [str(part) for part in command], env=environment(store), capture_output=True, text=True, timeout=60 + 2 * ROUNDS
    )
    print(done.stdout, done.stderr[-4000:])
    assert done.returncode == 0, done.stderr[-4000:]
