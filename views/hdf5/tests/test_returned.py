"""What returned calls wrote survives the death of their process, see `returned.py` (`make kills`)."""

import os
import pathlib
import subprocess
import sys

from test_data import environment, nothing_stays  # noqa: F401 - a fixture that works by being here
from test_metadata import Talker

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


def test_a_process_that_was_there_before_finds_what_a_dead_one_wrote(tmp_path):
    """It already has a session with the daemon, which may not have noticed the death yet."""
    store = tmp_path / "store"
    reader = Talker(store, tmp_path)
    assert reader.say("o = h5py.File('other.h5', 'w'); o['x'] = 1; o.flush()") == ""
    for number in range(6):
        writer = Talker(store, tmp_path)
        make = f"f = h5py.File('k{number}.h5', 'w'); d = f.create_dataset('d', (50,), 'i8'); f.flush()"
        assert writer.say(make) == ""
        assert writer.say("for i in range(50): d[i] = i; f.attrs[str(i)] = i") == ""
        writer.process.kill()
        writer.process.wait()
        writer.process.stdin.close()
        mode = "r" if number % 2 else "r+"
        found = reader.say(f"f = h5py.File('k{number}.h5', '{mode}'); print(f['d'][:].sum(), len(f.attrs)); f.close()")
        assert found == "1225 50"
    reader.process.stdin.close()
    assert reader.process.wait(60) == 0
