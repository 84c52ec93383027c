"""Files of two users, read-only directories and files: as natively."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import pytest
from test_data import connector, environment, lose_memory

OWNER, OTHER = 61_001, 61_002

# Only root may be able to read Python and h5py, so they are loaded before the process changes its user.
ATTEMPT = """
import json, os, sys
import encodings.idna, traceback, h5py, numpy
uid, path, mode = int(sys.argv[1]), sys.argv[2], sys.argv[3]
os.setgroups([])
os.setgid(uid)
os.setuid(uid)
try:
    with h5py.File(path, mode) as f:
        if mode != "r":
            f.attrs["written"] = uid
        seen = int(f.attrs["written"])
    said = ["ok", seen]
except OSError as error:
    said = [type(error).__name__, str(error)]
print(json.dumps(said))
"""


def attempt(uid, path, mode, store):
    line = [sys.executable, "-c", ATTEMPT, str(uid), str(path), mode]
    done = subprocess.run(line, env=environment(store), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def reachable(place):
    """True if other users can reach a file."""
    return all(directory.stat().st_mode & 0o1 for directory in pathlib.Path(place).resolve().parents)


def as_files_are(directory, store):
    """What two users see, without the text of refusals."""
    file, new = directory / "a.h5", directory / "b.h5"

    def tell(uid, path, mode):
        said = attempt(uid, path, mode, store)
        return said if said[0] == "ok" else said[0]

    met = [tell(OWNER, file, "w"), tell(OWNER, file, "r"), tell(OTHER, file, "r+"), tell(OTHER, new, "w")]
    directory.chmod(0o555)
    met += [tell(OWNER, file, mode) for mode in ("r", "r+", "a", "w")]
    met += [tell(OWNER, new, mode) for mode in ("w", "a", "x")]
    met.append(tell(OWNER, file, "r"))
    directory.chmod(0o755)
    for mode in (0o444, 0o000, 0o600):
        file.chmod(mode)
        met += [tell(OWNER, file, how) for how in ("r", "r+", "w", "r")]
    return met


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_two_users_and_what_is_not_to_be_written_as_natively():
    plugin, program = connector()
    for library in pathlib.Path(plugin).glob("*.so"):
        pathlib.Path(plugin).chmod(0o755)
        if not reachable(library):
            pytest.skip("other users do not get to the connector")
    if not program or not reachable(program):
        pytest.skip("other users do not get to the connector")
    top = pathlib.Path(tempfile.mkdtemp(prefix="cenote-two-users-"))
    top.chmod(0o777)
    store = top / "s"
    try:
        met = {}
        for name, where in (("native", None), ("store", store)):
            directory = top / name
            directory.mkdir()
            os.chown(directory, OWNER, OWNER)
            met[name] = as_files_are(directory, where)
        assert met["store"] == met["native"]
        # Another user's store is private, whatever the mode of the stub; natively only the file's mode counts.
        file = top / "store" / "a.h5"
        file.chmod(0o666)
        kind, words = attempt(OTHER, file, "r", store)
        assert kind == "PermissionError" and f"it is user {OWNER}'s" in words and f"--reader {OTHER}" in words, words
    finally:
        subprocess.run([program, "--store", store, "stop"], user=OWNER, group=OWNER, capture_output=True, check=False)
        if (store / "superblock").exists():
            lose_memory(store / "superblock")
        shutil.rmtree(top)
