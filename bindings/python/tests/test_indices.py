"""Indices: dicts of bytes that keep their order."""

import cenote
import pytest


@pytest.fixture
def index(runs: cenote.Container) -> cenote.Index:
    return runs.create_index()


def test_like_a_dict(index: cenote.Index) -> None:
    index[b"b"] = b"2"
    index[b"a"] = bytearray(b"1")
    index[memoryview(b"c")] = b""
    assert index[b"a"] == b"1" and index[b"c"] == b""
    assert b"a" in index and b"d" not in index
    assert list(index) == [b"a", b"b", b"c"]
    assert index.get(b"d") is None and index.get(b"d", 5) == 5 and index.get(b"b") == b"2"
    del index[b"a"]
    with pytest.raises(KeyError):
        index[b"a"]
    with pytest.raises(KeyError):
        del index[b"a"]
    with pytest.raises(TypeError):
        index["text"]  # type: ignore[index]


def test_many_at_once(index: cenote.Index) -> None:
    index.put_many([(b"%04d" % number, b"v%d" % number) for number in range(3000)])
    assert index.get_many([b"0007", b"none", b"2999"]) == [b"v7", None, b"v2999"]
    assert len(list(index.items())) == 3000
    assert list(index.keys(prefix=b"299")) == [b"299%d" % digit for digit in range(10)]
    assert list(index.values(prefix=b"299", start=b"2998")) == [b"v2998", b"v2999"]
    assert next(iter(index.items(start=b"1500"))) == (b"1500", b"v1500")
    assert index.delete_many([b"0000", b"0001", b"none"]) == 2
    assert not index.delete(b"0000") and index.delete(b"0002")
    assert next(iter(index)) == b"0003"
    assert not index.put_new(b"0003", b"other") and index.put_new(b"0000", b"new")
    assert index[b"0003"] == b"v3"
    index.launch_put(b"9", b"launched").wait()
    assert index[b"9"] == b"launched"


def test_limits(index: cenote.Index) -> None:
    index[b"k" * 131072] = b"v" * (1 << 20)
    assert len(index[b"k" * 131072]) == 1 << 20
    for key, value in ((b"k" * 131073, b""), (b"k", bytes((16 << 20) + 1))):
        with pytest.raises((cenote.InvalidInput, cenote.LimitExceeded)) as caught:
            index[key] = value
        assert caught.value.subject
    assert list(index) == [b"k" * 131072]


def test_indices_of_a_container(runs: cenote.Container) -> None:
    index = runs.index(5)
    index[b"k"] = b"v"
    assert runs.index("5")[b"k"] == b"v"
    assert runs.indices() == [index.id]
    with pytest.raises(cenote.Exists):
        runs.create_index(5)
    runs.delete_index(5)
    assert runs.indices() == []
    with pytest.raises(cenote.NotFound):
        runs.index(5, create=False)[b"k"]
