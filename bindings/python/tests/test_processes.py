"""Several processes on one store: forked, spawned, killed."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path

import cenote
import numpy as np
import pytest
from small import tiers

PIECE = 50_000


def write_piece(store: cenote.Store, number: int) -> None:
    runs = store.container("runs")
    runs.object(1).write(number * PIECE, bytes([number + 1]) * PIECE)
    runs.index(1)[b"%d" % number] = b"done"


def in_child(directory: Path, number: int) -> None:
    with cenote.open(directory) as store:
        write_piece(store, number)


def check(store: cenote.Store, count: int) -> None:
    runs = store.container("runs")
    found = np.frombuffer(runs.object(1).read(), dtype="u1").reshape(count, PIECE)
    assert (found == np.arange(1, count + 1)[:, None]).all()
    assert sorted(int(key) for key in runs.index(1)) == list(range(count))


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_multiprocessing(folder: Path, method: str) -> None:
    with cenote.open(folder / "store", mode="daemon", tiers=tiers(folder)) as store:
        store.container("runs").create_object(1)
        store.container("runs").index(1)
        context = multiprocessing.get_context(method)
        children = [context.Process(target=in_child, args=(folder / "store", number)) for number in range(4)]
        for child in children:
            child.start()
        for child in children:
            child.join(60)
            assert child.exitcode == 0
        check(store, 4)


@pytest.mark.parametrize("mode", ["auto", "daemon"])
def test_handles_of_the_parent_work_in_a_forked_child(folder: Path, mode: str) -> None:
    """No exec, no opening: the child uses the inherited handles, and gets its own session."""
    with cenote.open(folder / "store", mode=mode, tiers=tiers(folder)) as store:
        obj = store.container("runs").create_object(1)
        store.container("runs").index(1)
        obj.write(0, bytes(4 * PIECE))
        children = []
        for number in range(4):
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    signal.alarm(60)
                    assert obj.read(0, 1) in (b"\0", b"\1")
                    write_piece(store, number)
                    code = 0
                except BaseException:
                    traceback.print_exc()
                    raise
                finally:
                    os._exit(code)
            children.append(child)
        obj.write(4 * PIECE, bytes([5]) * PIECE)
        store.container("runs").index(1)[b"4"] = b"done"
        for child in children:
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        check(store, 5)


def test_pool_with_arrays(folder: Path) -> None:
    with cenote.open(folder / "store", mode="daemon", tiers=tiers(folder)) as store:
        store.container("runs").create_object(1)
        store.container("runs").index(1)
        with multiprocessing.get_context("fork").Pool(3) as pool:
            pool.starmap(in_child, [(folder / "store", number) for number in range(6)])
        check(store, 6)


def test_what_was_acknowledged_survives_a_killed_client(folder: Path) -> None:
    program = (
        "import cenote, sys, time\n"
        "store = cenote.open(sys.argv[1])\n"
        "index = store.container('runs').index(1)\n"
        "for number in range(10**9):\n"
        "    index[b'%09d' % number] = b'x'\n"
        "    print(number, flush=True)\n"
    )
    with cenote.open(folder / "store", mode="daemon", tiers=tiers(folder)) as store:
        child = subprocess.Popen(
            [sys.executable, "-c", program, str(folder / "store")], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        last = -1
        started = time.monotonic()
        for line in child.stdout:
            last = int(line)
            if last >= 200 or time.monotonic() - started > 30:
                break
        child.kill()
        child.wait()
        last = max([last, *(int(line) for line in child.stdout.read().split("\n")[:-1] if line)])
        keys = list(store.container("runs").index(1))
        assert len(keys) in (last + 1, last + 2) and keys[last] == b"%09d" % last


def test_a_client_that_hangs_does_not_stop_others(folder: Path) -> None:
    """Stopped with leases, an announced reader and requests in flight, while others work."""
    program = (
        "import cenote, sys\n"
        "runs = cenote.open(sys.argv[1]).container('runs')\n"
        "obj = runs.create_object(77)\n"
        "view = None\n"
        "for number in range(10**9):\n"
        "    obj.launch_write(number % 64 * 50_000, bytes(50_000))\n"
        "    if number == 100: obj.write(0, b'x'); view = obj.view(0, 1000); print('ready', flush=True)\n"
    )
    with cenote.open(folder / "store", mode="daemon", tiers=tiers(folder)) as store:
        runs = store.container("runs")
        child = subprocess.Popen(
            [sys.executable, "-c", program, str(folder / "store")], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGSTOP)
        try:
            began = time.monotonic()
            obj = runs.create_object(1)
            # Six times the memory tier: space must become free although one client holds some.
            for number in range(100):
                obj.write(number % 5 * 1_000_000, bytes([number]) * 1_000_000)
            assert obj.read(4_000_000, 10) == bytes([99]) * 10
            store.flush()
            assert time.monotonic() - began < 60
        finally:
            child.send_signal(signal.SIGCONT)
            child.kill()
            child.wait()
        assert obj.read(0, 10) == bytes([95]) * 10
        assert not store.verify().findings


def test_a_child_may_close_and_a_parent_go_on(folder: Path) -> None:
    """Both directions: the child ends its session, opens the store again and dies; the parent's session lives
    on."""
    with cenote.open(folder / "store", tiers=tiers(folder)) as store:
        obj = store.container("runs").create_object(1)
        obj.write(0, b"parent")
        child = os.fork()
        if child == 0:
            code = 1
            try:
                signal.alarm(60)
                obj.write(6, b" child")
                store.close()
                with cenote.open(folder / "store") as again:
                    assert again.container("runs").object(1).read() == b"parent child"
                os.kill(os.getpid(), signal.SIGKILL)
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        assert obj.read() == b"parent child"
        obj.write(12, b" parent")
        assert obj.read() == b"parent child parent"


def test_readers_cannot_write_a_byte(folder: Path) -> None:
    """Another user is refused unless named; a named one gets bytes carried by the daemon, and none of its
    memory."""
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    program = (
        "import os, sys\n"
        "os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)\n"
        "import cenote\n"
        "try:\n"
        "    store = cenote.open(sys.argv[1], create=False, read_only=sys.argv[2] == 'ro')\n"
        "except cenote.PermissionDenied as error:\n"
        "    print('refused', error); sys.exit()\n"
        "obj = store.container('runs').object(1)\n"
        "view = obj.view(0, 1000)\n"
        "print(bytes(memoryview(view)[:4]), view.by_reference)\n"
        "print([line.split()[1] for line in open('/proc/self/maps') if '/dev-' in line and '/cenote-' in line])\n"
        "try:\n"
        "    obj.write(0, b'mine')\n"
        "except cenote.PermissionDenied as error:\n"
        "    print('may not write')\n"
    )

    def run(directory: Path, how: str) -> str:
        # Root reads the interpreter and the module, then the user changes.
        command = [sys.executable, "-c", "import cenote\n" + program, str(directory), how]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd="/")
        assert done.returncode == 0, done.stderr
        return done.stdout

    for readers in ([], [65534]):
        directory = folder / "store"
        with cenote.open(directory, mode="daemon", tiers=tiers(folder), readers=readers) as store:
            store.container("runs").create_object(1).write(0, b"text" * 1000)
            for path in [directory, *list(directory.parents)[:-1]]:
                path.chmod(path.stat().st_mode | 0o011)
            (directory / "socket").chmod(0o666)
            out = run(directory, "ro")
            if not readers:
                assert out.startswith("refused") and "65534" in out, out
            else:
                assert "b'text' False" in out and "may not write" in out, out
                assert out.splitlines()[1] == "[]", out
                assert "may not write" in run(directory, "rw")
            assert store.container("runs").object(1).read(0, 4) == b"text"
        cenote.destroy(directory, force=True)


def test_errors_cross_processes(folder: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool, pytest.raises(cenote.NotFound) as caught:
        pool.apply(cenote.open, (folder / "none",), {"create": False})
    assert caught.value.next_step


def test_the_command_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "cenote", "--version"], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("cenote ")


def test_hdf5_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "libcenote_hdf5.so").write_bytes(b"")
    monkeypatch.setenv("CENOTE_HDF5_PLUGIN_DIR", str(folder))
    found = cenote.hdf5_environment(folder / "store")
    assert found["HDF5_PLUGIN_PATH"] == str(folder)
    assert found["HDF5_VOL_CONNECTOR"] == f"cenote store={folder / 'store'}"
    monkeypatch.setenv("CENOTE_HDF5_PLUGIN_DIR", str(folder / "none"))
    with pytest.raises(cenote.NotFound) as caught:
        cenote.hdf5_environment(folder / "store")
    assert "make build" in caught.value.next_step
