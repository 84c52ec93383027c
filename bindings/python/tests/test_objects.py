"""Objects: written data are read back, in every way."""

import array
import threading

import cenote
import numpy as np
import pytest


def test_write_and_read(runs: cenote.Container) -> None:
    obj = runs.create_object()
    obj.write(0, b"hello")
    obj.write(10, bytearray(b"world"))
    assert obj.size == 15
    assert obj.read() == b"hello\0\0\0\0\0world"
    assert obj.read(3, 4) == b"lo\0\0"
    assert obj.read(12, 100) == b"rld"
    assert obj.read(100) == b""
    assert obj.read(1 << 40, 10) == b""
    assert obj.stat().block_size == 4096


def test_any_buffer_goes_in_and_comes_out(runs: cenote.Container) -> None:
    obj = runs.create_object()
    values = np.random.default_rng(7).random((50, 40))
    for buffer in (values, array.array("d", values.ravel()), memoryview(values).cast("B"), values.tobytes()):
        obj.truncate(0)
        obj.write(0, buffer)
        back = np.zeros_like(values)
        assert obj.readinto(0, back) == values.nbytes
        assert (back == values).all()
    into = bytearray(10)
    assert obj.readinto(0, memoryview(into)[2:6]) == 4
    assert into == b"\0\0" + values.tobytes()[:4] + b"\0\0\0\0"


def test_buffers_that_cannot_be_used_are_refused(runs: cenote.Container) -> None:
    obj = runs.create_object()
    with pytest.raises(BufferError, match="contiguous"):
        obj.write(0, np.zeros((4, 4))[:, 1])
    with pytest.raises(BufferError, match="read-only"):
        obj.readinto(0, b"12345")
    with pytest.raises(TypeError):
        obj.write(0, "text")
    with pytest.raises(OverflowError):
        obj.write(-1, b"x")
    assert obj.size == 0


def test_vectors(runs: cenote.Container) -> None:
    obj = runs.create_object()
    obj.writev([(0, b"aa"), (4, b"bb"), (8, b"")])
    parts = [bytearray(3), bytearray(3), bytearray(0)]
    obj.readv([(0, parts[0]), (3, parts[1]), (1, parts[2])])
    assert parts == [b"aa\0", b"\0bb", b""]
    assert obj.size == 6


def test_views_are_by_reference_and_keep_their_bytes(runs: cenote.Container) -> None:
    obj = runs.create_object()
    before = np.arange(1 << 14, dtype="f8")
    obj.write(0, before)
    view = obj.view(copy=False)
    assert view.by_reference and len(view) == before.nbytes
    seen = np.frombuffer(view)
    assert not seen.flags.writeable
    with pytest.raises((BufferError, TypeError)):
        memoryview(view)[0] = 1
    del view
    for step in range(20):
        obj.write(0, before + step + 1)
    assert (seen == before).all()
    assert (np.frombuffer(obj.view()) == before + 20).all()


def test_views_of_what_is_not_in_one_piece(runs: cenote.Container) -> None:
    obj = runs.create_object()
    obj.write(0, b"a")
    obj.write(1 << 16, b"b")
    view = obj.view(0, 1 << 17)
    assert not view.by_reference
    assert bytes(view) == b"a" + bytes((1 << 16) - 1) + b"b"
    with pytest.raises(cenote.Unsupported, match="one piece"):
        obj.view(0, 1 << 17, copy=False)


def test_holes_truncate_and_punch(runs: cenote.Container) -> None:
    obj = runs.create_object(block_size=64)
    obj.write(1 << 40, b"far")
    assert obj.size == (1 << 40) + 3
    assert obj.read(1 << 39, 4) == bytes(4)
    obj.truncate(4)
    assert obj.read() == bytes(4)
    obj.write(0, b"abcdefgh")
    obj.punch(2, 3)
    assert obj.read() == b"ab\0\0\0fgh"
    obj.truncate(3)
    obj.truncate(6)
    assert obj.read() == b"ab\0\0\0\0"
    assert obj.stat().mapped_bytes <= 3


def test_launched_operations(runs: cenote.Container, store: cenote.Store) -> None:
    obj = runs.create_object()
    data = bytearray(b"0" * 1000)
    ops = []
    for number in range(100):
        data[:] = b"%1000d" % number
        ops.append(obj.launch_write(number * 1000, data))
    for op in ops:
        op.wait()
        assert op.done
    with pytest.raises(cenote.InvalidInput, match="already"):
        ops[0].wait()
    reads = [obj.launch_read(number * 1000, 1000) for number in range(100)]
    assert [int(read.wait()) for read in reads] == list(range(100))
    obj.launch_write(0, b"x")
    store.wait_all()
    assert obj.read(0, 1) == b"x"


def test_threads_write_at_once(runs: cenote.Container) -> None:
    obj = runs.create_object()
    piece = 5000

    def work(number: int) -> None:
        for step in range(50):
            obj.write((step * 8 + number) * piece, bytes([number]) * piece)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = np.frombuffer(obj.read(), dtype="u1").reshape(50, 8, piece)
    assert (found == np.arange(8)[None, :, None]).all()


def test_objects_are_listed_found_and_deleted(runs: cenote.Container) -> None:
    made = runs.create_objects(range(1, 6))
    assert [int(obj.id, 16) for obj in runs] == [1, 2, 3, 4, 5]
    assert [obj.id for obj in runs.objects(after=3)] == [made[3].id, made[4].id]
    assert made[0] == runs.object(1) == runs.object("1") and len({made[0], runs.object(1)}) == 1
    assert 3 in runs and made[2].id in runs and 9 not in runs
    runs.delete_object(3)
    assert 3 not in runs
    with pytest.raises(cenote.NotFound) as caught:
        runs.object(3).read(0, 1)
    assert "3" in caught.value.subject
    with pytest.raises(cenote.Exists):
        runs.create_object(1)
    with pytest.raises(cenote.Exists):
        runs.create_objects([7, 1])
    assert runs.info().objects == 5


def test_a_write_in_place(runs: cenote.Container) -> None:
    obj = runs.create_object()
    write = obj.write_in_place(8 * 1000)
    assert len(write) == 8000
    filled = np.frombuffer(write, dtype="f8")
    filled[:] = np.arange(1000.0)
    with pytest.raises(BufferError, match="release"):
        write.commit(0)
    del filled
    write.commit(100)
    assert (np.frombuffer(obj.read(100, 8000), dtype="f8") == np.arange(1000.0)).all()
    with pytest.raises(cenote.InvalidInput):
        write.commit(0)
    with pytest.raises(BufferError):
        memoryview(write)
    with obj.write_in_place(10) as unused:
        memoryview(unused).release()
    assert obj.size == 8100
    with obj.write_in_place(4) as used, memoryview(used) as view:
        view[:] = b"text"
        view.release()
        used.commit(0)
    assert obj.read(0, 4) == b"text"


def test_single_writes_choose_how_they_are_buffered(store: cenote.Store, runs: cenote.Container) -> None:
    fastest = store.tiers()[0].name

    def tiers(obj: cenote.Object) -> set[str]:
        return {part.tier for part in store.explain(obj).ranges}

    back, through = runs.create_object(), runs.create_object()
    back.write(0, b"b" * 100_000)
    through.buffered("sync").write(0, b"t" * 100_000)
    assert tiers(back) == {fastest}
    assert fastest not in tiers(through)
    assert through.read() == b"t" * 100_000
    for mode in ("scratch", "quickly"):
        with pytest.raises(cenote.InvalidInput, match=mode):
            back.buffered(mode)


def test_append_holes_and_shared_ranges(runs: cenote.Container) -> None:
    obj, other = runs.create_object(), runs.create_object()
    assert [obj.append(b"one"), obj.append(b"two"), obj.size] == [0, 3, 6]
    obj.write(100, b"three")
    assert [obj.next_data(0), obj.next_hole(0), obj.next_data(6), obj.next_hole(105), obj.next_data(105)] == [
        0,
        6,
        100,
        None,
        None,
    ]
    assert other.copy_from(0, obj) == 105
    obj.write(0, b"ONE")
    assert other.read() == b"onetwo" + bytes(94) + b"three"
    assert other.copy_from(3, obj, size=3) == 3
    assert other.read(0, 6) == b"oneONE"
    with pytest.raises(cenote.InvalidInput):
        other.copy_from(1, other, 0, 3)
