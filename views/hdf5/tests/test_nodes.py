"""A program writes a dump into a file that another node has, and that node is lost in the middle: the dump goes on, and
is right bit for bit."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import pytest
from test_data import connector, environment

WORKER = pathlib.Path(__file__).with_name("node_worker.py")
STEPS, LOST_AT = 60, 15
FACTOR = float(os.environ.get("CENOTE_HA_FACTOR", "1"))
# Until the loss is noticed (0.7 to 5 s, by how regular the node was), until the lease of the lost node is over (0.8 s),
# and 5 s for all else.
STALL_MAX = 5.8 * FACTOR + 5


def command(store, *words):
    """A worker at a node."""
    return [sys.executable, "-W", "ignore", WORKER, *map(str, words)], environment(store)


def run(store, *words):
    """Runs a worker at a node to its end."""
    words, env = command(store, *words)
    done = subprocess.run(words, env=env, timeout=120, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def holder(node):
    """The process that has a node's store."""
    inode = f":{(node / 'lock').stat().st_ino}"
    lines = [line.split() for line in pathlib.Path("/proc/locks").read_text().splitlines()]
    return next(int(words[4]) for words in lines if words[5].endswith(inode))


def memory(node):
    """The shared memory of a node's store."""
    notes = pathlib.Path("/dev/shm").glob("cenote-*/home")
    return [note.parent for note in notes if note.read_text() == str(node)]


def lose(node):
    """Kills a node's daemon, and takes everything away that it had."""
    found = memory(node)
    os.kill(holder(node), signal.SIGKILL)
    node.rename(node.with_suffix(".lost"))
    for each in found:
        shutil.rmtree(each)


@pytest.fixture
def nodes(tmp_path):
    """The nodes of a cluster that survives the loss of one."""
    program = connector()[1]
    assert program, "CENOTE_BIN names the command"
    cluster = tmp_path / "cluster"
    tiers = ["--tier", "name=memory,kind=memory,size=64MiB", "--tier", "name=disk,kind=directory,path=disk,size=1GiB"]
    start = [program, "cluster", "start", cluster, "--local", "3", "--protect", "1", *tiers]
    subprocess.run(start, check=True, timeout=60, capture_output=True)
    places = [cluster / f"n{number}" for number in (1, 2, 3)]
    yield places
    for node in filter(pathlib.Path.exists, places):
        os.kill(holder(node), signal.SIGKILL)
        for each in memory(node):
            shutil.rmtree(each)


def test_a_removed_file_goes_whichever_nodes_have_used_it(nodes, tmp_path):
    first, second, third = nodes
    path, other, copy = tmp_path / "gone.h5", tmp_path / "other.h5", tmp_path / "copy.h5"
    for each in (path, other):
        run(third, each, 0, 0)
        run(first, each, 0, 2)
        run(second, each, -1, 2)
    shutil.copyfile(other, copy)
    words, env = command(second, copy, -1, 2)
    refused = subprocess.run(words, env=env, timeout=60, capture_output=True, text=True, check=False)
    assert refused.returncode and "copy of the stub" in refused.stderr, refused.stderr
    path.unlink()

    def labels():
        listed = subprocess.run([connector()[1], "--store", first, "ls"], capture_output=True, text=True, check=True)
        return listed.stdout

    until = time.monotonic() + 30 * FACTOR
    while "gone.h5" in labels():
        assert time.monotonic() < until, labels()
        time.sleep(0.2)


def test_a_dump_goes_on_when_the_node_of_its_file_is_lost(nodes, tmp_path):
    first, second, third = nodes
    path = tmp_path / "dump.h5"
    run(third, path, 0, 0)
    subprocess.run([connector()[1], "--store", second, "protect"], check=True, timeout=60, capture_output=True)
    words, env = command(second, path, 0, STEPS)
    times = []
    with subprocess.Popen(words, env=env, stdout=subprocess.PIPE, text=True) as dump:
        for line in dump.stdout:
            step, seconds = line.split()
            times.append(float(seconds))
            if int(step) == LOST_AT:
                time.sleep(0.05)  # in the middle of the next one
                lose(third)
        assert dump.wait(timeout=60) == 0
    print(f"{len(times)} steps; the longest took {max(times):.1f} s, the median {sorted(times)[len(times) // 2]:.3f} s")
    assert len(times) == STEPS and max(times) < STALL_MAX, times
    assert max(times) > 1, "it has not noticed the loss"
    for node in (first, second):
        run(node, path, -1, STEPS)
