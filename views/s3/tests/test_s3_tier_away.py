"""A tier in a bucket whose service is down: what commands report, and how long they take."""

import json
import subprocess
import time
from pathlib import Path

import pytest
from s3server import command

MIB = 1 << 20
SIZE = 48 * MIB
# Retries of one request take about four seconds; twelve pieces in sequence would take a minute.
PATIENCE_S = 20


@pytest.fixture(autouse=True)
def settings(tmp_path, monkeypatch):
    """Keeps the list of allowed credential targets out of the tester's own user settings."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def run(store: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Returns what a command on the store prints."""
    return subprocess.run(
        [command(), "--store", store, *words],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        errors="replace",
    )


def put(store: Path, file: Path) -> str:
    """Puts a file into the container; returns the object's name."""
    done = run(store, "put", file, "c")
    assert done.returncode == 0, done.stderr
    name = done.stdout.split()[0]
    return name if "/" in name else f"c/{name}"


def tier_in(served, tmp_path: Path) -> tuple[str, Path]:
    """A bucket for a tier: the tier's specification, and the file with its secrets."""
    served.client("ann").create_bucket(Bucket="cold")
    key, secret = served.keys["ann"]
    secrets = tmp_path / "secrets"
    secrets.write_text(f"[default]\naccess_key_id = {key}\nsecret_access_key = {secret}\n")
    secrets.chmod(0o600)
    return f"name=cold,kind=s3,path=cold/tier,size=1GiB,endpoint={served.url},credentials={secrets}", secrets


def test_a_service_that_is_gone(fresh, tmp_path):
    served = fresh()
    served.start()
    store, (cold, _) = tmp_path / "store", tier_in(served, tmp_path)
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


def test_secrets_go_where_their_user_said(fresh, tmp_path, monkeypatch):
    """A store made by somebody else and unpacked by this user cannot direct this user's secrets anywhere."""
    served = fresh()
    served.start()
    store, (cold, secrets) = tmp_path / "store", tier_in(served, tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "maker"))
    made = run(store, "init", "--tier", "name=ram,kind=memory,size=64MiB", "--tier", cold)
    assert made.returncode == 0, made.stderr

    def state():
        done = run(store, "--json", "tiers")
        assert done.returncode == 0, done.stderr
        return done.stdout

    try:
        assert '"failed"' not in state().lower()
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "unpacker"))
        assert '"failed"' in state().lower(), "it is away"
        monkeypatch.setenv("CENOTE_CREDENTIALS", str(secrets))
        assert '"failed"' not in state().lower()
        monkeypatch.delenv("CENOTE_CREDENTIALS")
        secrets.write_text(secrets.read_text() + f"endpoint_url = {served.url}\n")
        assert '"failed"' not in state().lower()
    finally:
        run(store, "destroy", "--yes", "--force")
