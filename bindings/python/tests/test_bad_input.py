"""Bad input: a clear error with its subject and the next step, and no change to the store."""

import copy
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import cenote
import pytest
from small import tiers


def tree(folder: Path) -> dict[str, bytes | None]:
    """All files below a folder with their content."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def test_no_store_there(folder: Path) -> None:
    with pytest.raises(cenote.NotFound) as caught:
        cenote.open(folder / "none", create=False)
    assert "none" in caught.value.subject and caught.value.next_step
    with pytest.raises(cenote.NotFound):
        cenote.open(folder / "none", read_only=True)
    assert not (folder / "none").exists()


def test_it_is_there_already(folder: Path) -> None:
    cenote.open(folder / "store", tiers=tiers(folder)).close()
    with pytest.raises(cenote.Exists):
        cenote.open(folder / "store", create_new=True)


def test_something_else_is_there(folder: Path) -> None:
    (folder / "store").mkdir()
    (folder / "store" / "diary.txt").write_text("mine")
    before = tree(folder)
    with pytest.raises(cenote.NotFound) as caught:
        cenote.open(folder / "store", create=False)
    assert str(folder / "store") in caught.value.subject
    assert tree(folder) == before
    file = folder / "file"
    file.write_text("a file")
    with pytest.raises(cenote.Error):
        cenote.open(file)
    assert file.read_text() == "a file"


def test_a_damaged_store(folder: Path) -> None:
    with cenote.open(folder / "store", tiers=tiers(folder)) as store:
        store.container("runs").create_object(1).write(0, b"x" * 100_000)
        store.flush()
    head = folder / "store" / "superblock"
    good = head.read_bytes()
    head.write_bytes(bytes(byte ^ 0xFF for byte in good))
    with pytest.raises(cenote.Error) as caught:
        cenote.open(folder / "store", create=False)
    assert caught.value.kind in {"corrupt", "version_mismatch"}
    head.write_bytes(good)
    with cenote.open(folder / "store", create=False) as store:
        assert store.container("runs").object(1).read(0, 3) == b"xxx"


BAD_TIERS: list[tuple[str, str]] = [
    ("name=x", "kind"),
    ("name=x,kind=tape,size=1MiB", "tape"),
    ("name=x,kind=file,size=1MiB", "path"),
    ("name=x,kind=memory,size=12 apples", "apples"),
    ("name=x,kind=file,size=1MiB,path=/nowhere/at/all", "/nowhere"),
    ("name=x,kind=directory,size=1MiB,path=/proc/none", "/proc"),
    ("name=x,kind=memory,size=0", "x"),
]


@pytest.mark.parametrize(("spec", "named"), BAD_TIERS)
def test_bad_tiers(folder: Path, spec: str, named: str) -> None:
    with pytest.raises(cenote.Error) as caught:
        cenote.open(folder / "store", tiers=[spec])
    assert named in str(caught.value)
    with pytest.raises(cenote.NotFound):
        cenote.open(folder / "store", create=False)
    with cenote.open(folder / "store", tiers=tiers(folder)) as store:
        before = [tier.name for tier in store.tiers()]
        with pytest.raises(cenote.Error):
            store.add_tier(spec)
        assert [tier.name for tier in store.tiers()] == before


BAD_CALLS: list[tuple[str, Callable[[cenote.Store, cenote.Container, cenote.Object], object]]] = [
    ("block size", lambda s, c, o: c.create_object(block_size=4095)),
    ("block size", lambda s, c, o: c.create_object(block_size=32)),
    ("block size", lambda s, c, o: s.create_container("new", block_size=1 << 25)),
    ("block size", lambda s, c, o: s.create_container("new", block_size=0)),
    ("durability", lambda s, c, o: s.create_container("new", durability="forever")),  # type: ignore[arg-type]
    ("label", lambda s, c, o: s.create_container("")),
    ("label", lambda s, c, o: s.create_container("x" * 4097)),
    ("new", lambda s, c, o: s.create_container("new", policy="magic")),
    ("", lambda s, c, o: s.rename_container("runs", "")),
    ("none", lambda s, c, o: s.rename_container("none", "new")),
    ("none", lambda s, c, o: s.delete_container("none")),
    ("object", lambda s, c, o: c.delete_object(77)),
    ("object", lambda s, c, o: c.object("xyz")),
    ("object", lambda s, c, o: c.object("1" * 33)),
    ("", lambda s, c, o: o.write(1 << 63, b"x")),
    ("", lambda s, c, o: o.write((1 << 63) - 1, b"xy")),
    ("", lambda s, c, o: o.write((1 << 64) - 1, b"xy")),
    ("", lambda s, c, o: o.truncate((1 << 63) + 1)),
    ("", lambda s, c, o: o.truncate((1 << 64) - 1)),
    ("", lambda s, c, o: c.object(99).write(0, b"x")),
    ("", lambda s, c, o: c.object(99).stat()),
    ("none", lambda s, c, o: s.drain_tier("none")),
    ("none", lambda s, c, o: s.remove_tier("none")),
    ("memory", lambda s, c, o: s.remove_tier("memory")),
    ("memory", lambda s, c, o: s.add_tier("name=memory,kind=memory,size=1MiB")),
    ("mode", lambda s, c, o: cenote.open(s.dir, mode="psychic")),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("named", "call"), BAD_CALLS, ids=[str(number) for number in range(len(BAD_CALLS))])
def test_bad_calls(
    store: cenote.Store,
    runs: cenote.Container,
    named: str,
    call: Callable[[cenote.Store, cenote.Container, cenote.Object], object],
) -> None:
    obj = runs.create_object(1)
    obj.write(0, b"kept")

    def state() -> object:
        stats = store.stats()
        counts = (stats.containers, stats.objects, stats.extents, stats.indices, stats.records)
        return [info.label for info in store.containers()], counts, obj.stat().size, len(store.tiers())

    before = state()
    with pytest.raises(cenote.Error) as caught:
        call(store, runs, obj)
    error = caught.value
    assert error.subject and named in str(error) and error.kind != "internal"
    assert state() == before
    assert obj.read() == b"kept"


def test_ids_of_the_wrong_type(runs: cenote.Container) -> None:
    for bad in (-1, 1 << 128, 1.5, None, b"1"):
        with pytest.raises((TypeError, OverflowError, ValueError)):
            runs.object(bad)  # type: ignore[arg-type]


def test_two_processes_want_it_for_themselves(folder: Path) -> None:
    with cenote.open(folder / "store", mode="in-process", tiers=tiers(folder)) as store:
        child = os.fork()
        if child == 0:
            try:
                cenote.open(folder / "store", mode="in-process")
            except cenote.Busy:
                os._exit(7)
            except BaseException:
                os._exit(8)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        store.container("runs")


def test_read_only(folder: Path) -> None:
    with cenote.open(folder / "store", tiers=tiers(folder)) as store:
        store.container("runs").create_object(1).write(0, b"kept")
    with cenote.open(folder / "store", read_only=True) as store:
        obj = store.container("runs", create=False).object(1)
        assert obj.read() == b"kept"
        for change in (
            lambda: obj.write(0, b"x"),
            lambda: obj.truncate(0),
            lambda: store.create_container("new"),
            lambda: store.container("runs", create=False).create_object(),
        ):
            with pytest.raises(cenote.PermissionDenied) as caught:
                change()
            assert isinstance(caught.value, PermissionError)
        assert obj.read() == b"kept"


def test_errors_are_pythons_too() -> None:
    for kind, builtin in (
        (cenote.NotFound, KeyError),
        (cenote.Exists, FileExistsError),
        (cenote.InvalidInput, ValueError),
        (cenote.Full, OSError),
        (cenote.PermissionDenied, PermissionError),
        (cenote.Disconnected, ConnectionError),
        (cenote.Unsupported, NotImplementedError),
    ):
        assert issubclass(kind, cenote.Error) and issubclass(kind, builtin)
        error = kind("object 1", "it is gone", "look elsewhere", "some words")
        assert str(error) == "object 1: some words: it is gone (look elsewhere)"
        for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
            assert type(twin) is kind and str(twin) == str(error) and twin.next_step == "look elsewhere"
