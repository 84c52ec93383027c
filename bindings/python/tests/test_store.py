"""Stores: containers, tiers, and operations on the whole store."""

from pathlib import Path

import cenote
import numpy as np
import pytest
from small import MIB, tiers


def test_containers(store: cenote.Store) -> None:
    runs = store.container("runs", durability="sync", block_size=65536, quota=10 * MIB)
    info = runs.info()
    assert (info.label, info.durability, info.block_size, info.quota) == ("runs", "sync", 65536, 10 * MIB)
    assert store.container("runs").id == runs.id
    with pytest.raises(cenote.Exists):
        store.create_container("runs")
    store.container("rests")
    assert [info.label for info in store.containers("r")] == ["rests", "runs"]
    store.rename_container("runs", "läufe 走る/1")
    assert runs.label == "läufe 走る/1"
    runs.set(durability="scratch")
    assert runs.info().durability == "scratch" and runs.info().quota == 10 * MIB
    obj = runs.create_object()
    assert obj.stat().block_size == 65536
    store.delete_container("läufe 走る/1")
    with pytest.raises(cenote.NotFound):
        obj.read(0, 1)
    with pytest.raises(cenote.NotFound) as caught:
        store.container("läufe 走る/1", create=False)
    assert "läufe 走る/1" in caught.value.subject


def test_weights_of_users(store: cenote.Store) -> None:
    assert store.user_weights() == {}
    store.set_user_weight(1001, 4)
    store.set_user_weight(7, 2)
    store.set_user_weight(7, 1)
    assert store.user_weights() == {1001: 4}
    with pytest.raises(cenote.InvalidInput):
        store.set_user_weight(1001, 0)


def test_it_is_there_when_opened_again(folder: Path) -> None:
    with cenote.open(folder / "store", tiers=tiers(folder)) as store:
        identity = store.id
        obj = store.container("runs").create_object(1)
        obj.write(0, np.arange(1000.0))
        store.container("runs").index(1)[b"k"] = b"v"
        store.flush()
    with cenote.open(folder / "store") as store:
        assert store.id == identity and Path(store.dir) == folder / "store"
        runs = store.container("runs", create=False)
        assert (np.frombuffer(runs.object(1).view()) == np.arange(1000.0)).all()
        assert runs.index(1, create=False)[b"k"] == b"v"
        store.checkpoint()


def test_a_closed_store_says_so(folder: Path) -> None:
    store = cenote.open(folder / "store", tiers=tiers(folder))
    obj = store.container("runs").create_object()
    obj.write(0, b"abc")
    view = memoryview(obj.view())
    store.close()
    store.close()
    with pytest.raises(cenote.Error):
        obj.read()
    assert view.tobytes() == b"abc"
    with cenote.open(folder / "store", mode="in-process") as store:
        assert store.mode == "in-process"


def test_tiers_and_stats(store: cenote.Store, folder: Path) -> None:
    obj = store.container("runs").create_object()
    obj.write(0, bytes(range(256)) * 4096)
    found = store.tiers()
    assert [(tier.name, tier.kind, tier.capacity) for tier in found] == [
        ("memory", "memory", 16 * MIB),
        ("disk", "directory", 64 * MIB),
    ]
    assert sum(tier.used for tier in found) >= MIB
    stats = store.stats()
    assert stats.containers == 1 and stats.objects == 1 and stats.extents >= 1
    explained = store.explain(obj)
    assert explained.stat.size == MIB
    assert sum(part.length for part in explained.ranges) == MIB
    assert all(part.why and part.tier == "memory" for part in explained.ranges)
    report = store.verify()
    assert report.objects == 1 and report.bytes >= MIB and report.findings == []
    assert store.container("runs").verify().findings == []


def test_tiers_come_and_go(store: cenote.Store, folder: Path) -> None:
    obj = store.container("runs").create_object()
    obj.write(0, b"x" * MIB)
    store.add_tier(cenote.Tier("more", "file", "8MiB", folder / "more"))
    assert "more" in [tier.name for tier in store.tiers()]
    store.drain_tier("memory")
    assert next(tier for tier in store.tiers() if tier.name == "memory").used == 0
    assert obj.read() == b"x" * MIB
    store.remove_tier("memory")
    assert "memory" not in [tier.name for tier in store.tiers()]
    assert obj.read() == b"x" * MIB


def test_a_full_store_says_which_tiers(folder: Path) -> None:
    small = [cenote.Tier("memory", "memory", "4MiB"), cenote.Tier("disk", "file", "4MiB", folder / "disk")]
    with cenote.open(folder / "store", tiers=small) as store:
        runs = store.container("runs")
        written = []
        with pytest.raises(cenote.Full) as caught:
            for number in range(64):
                obj = runs.create_object()
                obj.write(0, bytes([number]) * (MIB // 4))
                written.append(obj)
        assert isinstance(caught.value, OSError) and caught.value.errno == 28
        assert "memory" in str(caught.value) and "disk" in str(caught.value)
        assert len(written) >= 8
        for number, obj in enumerate(written):
            assert obj.read() == bytes([number]) * (MIB // 4)


def test_sizes() -> None:
    assert cenote.parse_size("1.5GiB") == 3 << 29 and cenote.format_size(3 << 29) == "1.5 GiB"
    with pytest.raises(cenote.InvalidInput, match="apples"):
        cenote.parse_size("12 apples")


def test_destroy(folder: Path) -> None:
    directory = folder / "store"
    with cenote.open(directory, tiers=tiers(folder)) as store:
        memory = Path("/dev/shm") / f"cenote-{store.id}"
        assert memory.exists()
        with pytest.raises(cenote.Busy) as caught:
            cenote.destroy(directory)
        assert "session" in caught.value.cause and caught.value.next_step
        assert store.container("runs").create_object(1).size == 0
    cenote.destroy(directory)
    assert not directory.exists() and not memory.exists() and not (folder / "disk").exists()
    with pytest.raises(cenote.NotFound):
        cenote.destroy(directory)


@pytest.mark.parametrize("label", ["with\0nul", "tab\tand\x1bescape", "läufe 走る", "a/b", " ", "x" * 4096])
def test_labels_of_any_kind(store: cenote.Store, label: str) -> None:
    assert store.container(label).label == label
    assert label in [found.label for found in store.containers()]


@pytest.mark.parametrize("label", ["", "x" * 4097, "\ud800"])
def test_labels_that_cannot_be(store: cenote.Store, label: str) -> None:
    before = [found.label for found in store.containers()]
    with pytest.raises((cenote.InvalidInput, UnicodeEncodeError)):
        store.container(label)
    assert [found.label for found in store.containers()] == before


def test_paths_that_cannot_be(folder: Path) -> None:
    for path in ["with\0nul", "", "n" * 5000, folder / "none" / "none"]:
        with pytest.raises((cenote.Error, ValueError)):
            cenote.open(path, create=False)
