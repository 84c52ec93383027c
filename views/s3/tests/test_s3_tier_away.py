"""A tier in a bucket whose service is gone: what commands say of it, and how long they take."""

import json
import subprocess
import time
from pathlib import Path

from s3server import command

MIB = 1 << 20
SIZE = 48 * MIB
# The tries of one request take some four seconds; twelve pieces, one after the other, would take a minute.
PATIENCE_S = 20


def run(store: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """What a command on the store says."""
    return subprocess.run(
        [command(), "--store", store, *words],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        errors="replace",
    )


def put(store: Path, file: Path) -> str:
    """Puts a file into the container; the object's name."""
    done = run(store, "put", file, "c")
    assert done.returncode == 0, done.stderr
    name = done.stdout.split()[0]
    return name if "/" in name else f"c/{name}"


def test_a_service_that_is_gone(fresh, tmp_path):
    served = fresh()
    served.start()
    served.client("ann").create_bucket(Bucket="cold")
    key, secret = served.keys["ann"]
    secrets = tmp_path / "secrets"
    secrets.write_text(f"[default]\naccess_key_id = {key}\nsecret_access_key = {secret}\n")
    secrets.chmod(0o600)
    store = tmp_path / "store"
    cold = f"name=cold,kind=s3,path=cold/tier,size=1GiB,endpoint={served.url},credentials={secrets}"
    made = run(store, "init", "--tier", "name=ram,kind=memory,size=256MiB", "--tier", cold)
    assert made.returncode == 0, made.stderr
    assert run(store, "serve", store, "--background", "--idle-exit", "60").returncode == 0
    try:
        (tmp_path / "file").write_bytes(b"content." * (SIZE // 8))
        assert run(store, "mk", "c").returncode == 0
        there = put(store, tmp_path / "file")
        done = run(store, "--json", "archive", there)
        assert done.returncode == 0, done.stderr
        counts = json.loads(done.stdout)
        assert (counts["bytes"] + counts["already_bytes"], counts["staying_bytes"]) == (SIZE, 0)
        done = run(store, "release", there)
        assert done.returncode == 0, done.stderr
        served.stop(9)

        (tmp_path / "small").write_bytes(b"x" * MIB)
        done = run(store, "archive", put(store, tmp_path / "small"))
        assert done.returncode == 1, f"{done.stdout} {done.stderr}"
        assert "moved" not in done.stdout
        assert "are not" in done.stderr
        assert "cold" in done.stderr
        assert "repeat the command" in done.stderr

        begun = time.monotonic()
        read = run(store, "cat", there)
        took = time.monotonic() - begun
        assert read.returncode == 1, read.stderr
        assert took < PATIENCE_S, f"{took} s: {read.stderr}"
        assert "cold" in read.stderr
        assert "delete" not in read.stderr, "its bytes are only away"
        assert "not lost" in read.stderr
    finally:
        run(store, "destroy", "--yes", "--force")
