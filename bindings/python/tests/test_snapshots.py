"""Snapshots of containers."""

import cenote
import pytest


def test_a_container_is_kept_read_and_gone_back_to(runs: cenote.Container) -> None:
    obj = runs.create_object()
    obj.write(0, b"first")
    runs.snapshot("before")
    with pytest.raises(cenote.Exists):
        runs.snapshot("before")
    obj.write(0, b"later")
    kept = runs.open_snapshot("before")
    assert bytes(kept.object(obj.id).read(0, 5)) == b"first"
    with pytest.raises(cenote.InvalidInput):
        kept.object(obj.id).write(0, b"no")
    info = runs.snapshots()[0]
    assert isinstance(info, cenote.SnapshotInfo)
    assert (info.name, info.objects, info.stored_bytes) == ("before", 1, 5)
    runs.roll_back("before")
    assert bytes(obj.read(0, 5)) == b"first"
    runs.snapshot("before", replace=True)
    runs.delete_snapshot("before")
    assert runs.snapshots() == []
    with pytest.raises(cenote.NotFound):
        runs.open_snapshot("before")
    assert bytes(kept.object(obj.id).read(0, 5)) == b"first", "who has it open goes on to read it"


def test_several_containers_are_kept_and_gone_back_to_together(store: cenote.Store) -> None:
    both = [store.container("runs"), store.container("fields")]
    objects = [container.create_object() for container in both]
    for obj in objects:
        obj.write(0, b"first")
    store.snapshot(both, "before")
    with pytest.raises(cenote.Exists, match="`runs`"):
        store.snapshot(both, "before")
    for obj in objects:
        obj.write(0, b"later")
    store.roll_back(both, "before")
    assert [bytes(obj.read(0, 5)) for obj in objects] == [b"first", b"first"]
    store.snapshot(both, "before", replace=True)
    both[1].delete_snapshot("before")
    with pytest.raises(cenote.NotFound, match="`fields`"):
        store.delete_snapshot(both, "before")
    assert [len(container.snapshots()) for container in both] == [1, 0], "neither or both"
    with pytest.raises(cenote.InvalidInput):
        store.snapshot([both[0], both[0]], "twice")
    store.delete_snapshot([], "of none")
