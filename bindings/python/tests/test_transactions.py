"""Transactions: all of it, or nothing."""

import cenote
import pytest


def test_commit_and_own_reads(store: cenote.Store, runs: cenote.Container) -> None:
    obj, index = runs.create_object(), runs.create_index()
    obj.write(0, b"old old old")
    with store.transaction() as tx:
        tx.write(obj, 4, b"new")
        tx.put(index, b"k", b"v")
        made = tx.create_object(runs)
        tx.write(made, 0, b"inside")
        assert tx.read(obj, 0, 100) == b"old new old" and tx.get(index, b"k") == b"v"
        assert obj.read() == b"old old old" and b"k" not in index and made.id not in runs
    assert obj.read() == b"old new old" and index[b"k"] == b"v" and made.read() == b"inside"


def test_an_exception_leaves_nothing(store: cenote.Store, runs: cenote.Container) -> None:
    obj, index = runs.create_object(), runs.create_index()
    with pytest.raises(ZeroDivisionError), store.transaction() as tx:
        tx.write(obj, 0, b"x")
        tx.put(index, b"k", b"v")
        raise ZeroDivisionError
    assert obj.size == 0 and b"k" not in index
    tx = store.transaction()
    tx.put(index, b"k", b"v")
    tx.abort()
    with pytest.raises(cenote.InvalidInput, match="already"):
        tx.put(index, b"k", b"v")
    assert b"k" not in index


def test_all_or_nothing_when_one_update_fails(store: cenote.Store, runs: cenote.Container) -> None:
    obj, index = runs.create_object(), runs.create_index()
    index[b"taken"] = b"1"
    tx = store.transaction()
    tx.write(obj, 0, b"x")
    tx.put_new(index, b"taken", b"2")
    with pytest.raises(cenote.Exists):
        tx.commit()
    assert obj.size == 0 and index[b"taken"] == b"1"


def test_conflicts_are_detected(store: cenote.Store, runs: cenote.Container) -> None:
    index = runs.create_index()
    index[b"n"] = b"1"
    tx = store.transaction(detect_conflicts=True)
    number = int(tx.get(index, b"n") or b"")
    index[b"n"] = b"10"
    tx.put(index, b"n", b"%d" % (number + 1))
    with pytest.raises(cenote.Conflict) as caught:
        tx.commit()
    assert caught.value.retry_helps
    assert index[b"n"] == b"10"


def test_epochs_rise(store: cenote.Store, runs: cenote.Container) -> None:
    index = runs.create_index()
    epochs = []
    for number in range(3):
        tx = store.transaction()
        tx.put(index, b"k", b"%d" % number)
        epochs.append(tx.commit())
    assert epochs == sorted(set(epochs))


def test_premises_about_prefixes_and_sizes(store: cenote.Store, runs: cenote.Container) -> None:
    index, obj = runs.create_index(), runs.create_object()
    index[b"d/a"] = b"1"
    for expect in (lambda tx: tx.expect_none(index, b"d/"), lambda tx: tx.expect_size(obj, 1)):
        with pytest.raises(cenote.Conflict), store.transaction() as tx:
            expect(tx)
            tx.put(index, b"x", b"")
    with store.transaction() as tx:
        tx.expect_none(index, b"e/")
        tx.expect_size(obj, 0)
        tx.put(index, b"x", b"")
