"""Copies of a store with a tier in a bucket: one of them owns the tier, and the others do not touch it."""

import shutil
import subprocess
from pathlib import Path

import pytest
from test_s3_tier_away import run, tier_in

BYTES = 300_000
FIRST, SECOND = "c/1a", "c/2b"


@pytest.fixture(autouse=True)
def settings(tmp_path, monkeypatch):
    """Simulates a separate machine: user settings, allowed credential targets, shared memory."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    machine(monkeypatch, tmp_path / "machine")


def machine(monkeypatch, shm: Path) -> None:
    """Selects the shared memory for what runs from here on: another machine's, or the same one's after a restart."""
    shm.mkdir(exist_ok=True)
    monkeypatch.setenv("CENOTE_SHM_DIR", str(shm))


def said(store: Path, *words: str | Path) -> str:
    done = run(store, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refused(store: Path, *words: str | Path, by: list[str]) -> None:
    done = run(store, *words)
    assert done.returncode == 1, f"{done.stdout[:200]} {done.stderr}"
    for word in by:
        assert word in done.stderr


def put(store: Path, name: str, byte: bytes) -> subprocess.CompletedProcess[str]:
    """Puts an object of many equal bytes, which is in the bucket if the command succeeds."""
    (store.parent / "bytes").write_bytes(byte * BYTES)
    return run(store, "put", "--flush", "--force", store.parent / "bytes", name)


def copy(store: Path, to: Path) -> Path:
    subprocess.run(["cp", "-a", store, to], check=True)
    return to


@pytest.fixture
def bucket(fresh):
    """A separate server; also lists the tier's bucket: keys and their tags, without claims."""
    served = fresh()
    served.start()

    def objects(with_claims: bool = True) -> dict[str, str]:
        listed = served.client("ann").list_objects_v2(Bucket="cold").get("Contents", [])
        found = {entry["Key"]: entry["ETag"] for entry in listed}
        return {key: tag for key, tag in found.items() if with_claims or "/claims/" not in key}

    return served, objects


@pytest.fixture
def store(bucket, tmp_path):
    """A store of memory and a bucket, with an object in it."""
    store, (cold, _) = tmp_path / "store", tier_in(bucket[0], tmp_path)
    said(store, "init", "--no-measure", "--tier", "name=ram,kind=memory,size=32MiB", "--tier", cold)
    said(store, "mk", "c")
    assert put(store, FIRST, b"1").returncode == 0
    yield store
    run(store, "stop")


def test_a_copy_is_refused_and_the_original_is_unharmed(store, bucket, tmp_path):
    other, before = copy(store, tmp_path / "copy"), bucket[1]()
    for command in (["ls"], ["status"], ["destroy", "--yes"], ["evict", "c"]):
        refused(other, *command, by=["copy of", str(store), "next:"])
    refused(other, "ls", by=["cenote clone", "`cold`", "cenote init"])
    refused(other, "adopt", other, by=["still there", "cenote clone"])
    refused(other, "clone", other, by=["`cold`", "cenote init", "cenote adopt"])
    assert bucket[1]() == before, "not a byte was changed in the bucket"
    assert said(store, "cat", FIRST) == "1" * BYTES
    assert put(store, SECOND, b"2").returncode == 0
    assert "all is well" in said(store, "verify")


def test_a_copy_takes_the_place_of_an_original_that_is_gone(store, bucket, tmp_path, monkeypatch):
    other = copy(store, tmp_path / "copy")
    shutil.rmtree(store)
    machine(monkeypatch, tmp_path / "another")
    refused(other, "ls", by=["cenote adopt", "cenote clone", "`cold`"])
    assert "all is well" in said(other, "adopt", other)
    assert said(other, "cat", FIRST) == "1" * BYTES
    assert put(other, SECOND, b"2").returncode == 0
    machine(monkeypatch, tmp_path / "restarted")
    assert said(other, "cat", SECOND) == "2" * BYTES
    assert sum("/claims/" in key for key in bucket[1]()) == 1
    said(other, "destroy", "--yes")
    assert bucket[1]() == {}, "nothing is left behind"


def test_an_original_that_lives_on_writes_no_more_when_its_copy_was_adopted(store, bucket, tmp_path, monkeypatch):
    """The copy is on another machine, so nothing there shows that the original is in use."""
    other = copy(store, tmp_path / "copy")
    said(store, "serve", "--background", "--idle-exit", "60")
    away = tmp_path / "away"
    store.rename(away)
    try:
        machine(monkeypatch, tmp_path / "another")
        refused(other, "ls", by=["cenote adopt", str(store)])
        assert "all is well" in said(other, "adopt", other)
        assert put(other, SECOND, b"2").returncode == 0
        before = bucket[1]()
        machine(monkeypatch, tmp_path / "machine")
        # It keeps what it has in memory, but writes nothing of it to the bucket, and deletes nothing there.
        assert said(away, "cat", FIRST) == "1" * BYTES
        done = put(away, FIRST, b"3")
        assert done.returncode == 1, f"{done.stdout} {done.stderr}"
        for word in ("`cold`", str(other), "cenote adopt"):
            assert word in done.stderr
        assert bucket[1]() == before
    finally:
        run(away, "stop")
        away.rename(store)
    refused(store, "ls", by=["`cold`", str(other), "cenote adopt"])
    machine(monkeypatch, tmp_path / "another")
    assert "all is well" in said(other, "verify")
    assert said(other, "cat", FIRST) == "1" * BYTES


def test_an_older_state_is_refused_after_a_restart_too(store, bucket, tmp_path, monkeypatch):
    """The directory stays in place, as with `rsync -a --delete`, and memory is lost: only the tier shows it."""
    backup = copy(store, tmp_path / "backup")
    assert put(store, SECOND, b"2").returncode == 0
    machine(monkeypatch, tmp_path / "restarted")
    subprocess.run(["sh", "-c", 'rm -rf "$0"/* && cp -a "$1"/. "$0"', store, backup], check=True)
    before = bucket[1]()
    refused(store, "cat", FIRST, by=["`cold`", "opened last for another copy", f"cenote adopt {store}"])
    refused(store, "destroy", "--yes", by=["`cold`", "cenote adopt"])
    assert bucket[1]() == before
    assert "all is well" in said(store, "adopt", store)
    assert said(store, "cat", FIRST) == "1" * BYTES
    assert put(store, SECOND, b"3").returncode == 0


def test_a_store_of_an_earlier_version_is_claimed_when_it_is_opened(store, bucket, tmp_path, monkeypatch):
    served, objects = bucket
    for note in store.glob("tier-claim-*"):
        note.unlink()
    for key in objects():
        if "/claims/" in key:
            served.client("ann").delete_object(Bucket="cold", Key=key)
    other = copy(store, tmp_path / "copy")
    assert said(store, "cat", FIRST) == "1" * BYTES
    assert sum("/claims/" in key for key in objects()) == 1
    # The earlier copy, in the store's own directory after a restart.
    machine(monkeypatch, tmp_path / "restarted")
    subprocess.run(["sh", "-c", 'rm -rf "$0"/* && cp -a "$1"/. "$0"', store, other], check=True)
    refused(store, "ls", by=["`cold`", f"cenote adopt {store}"])
