"""Launched changes of a file's only writer: other writers come and go, writers die, and failures are reported."""

import os
import pathlib
import random
import signal
import subprocess
import sys
import time

from test_data import UNLOCKED, environment, nothing_stays  # noqa: F401
from test_metadata import Talker
from test_structure import python

CENOTE = pathlib.Path(__file__).parents[3] / "target/release/cenote"


def test_a_second_writer_is_let_in_and_nothing_gets_lost(tmp_path):
    store = tmp_path / "store"
    code = """
import sys, h5py
who = sys.argv[1]
with h5py.File("f.h5", "a") as f:
    g = f.require_group("ordered")
    for i in range(300):
        f.create_group(f"{who}{i}").attrs["n"] = i
        f[f"{who}{i}"].create_dataset("d", data=[i] * 10)
    print(bool(f))
"""
    python("import h5py; f = h5py.File('f.h5', 'w'); f.create_group('ordered', track_order=True)", store, tmp_path)
    workers = []
    for who in "abcd":
        workers.append(
            subprocess.Popen(
                [sys.executable, "-c", code, who],
                env=environment(store) | UNLOCKED,
                cwd=tmp_path,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        time.sleep(0.15)  # each starts while those before it are working
    for worker in workers:
        out, err = worker.communicate(timeout=300)
        assert worker.returncode == 0 and out.strip() == "True", err[-4000:]
    out = python(
        "import h5py\nf = h5py.File('f.h5')\n"
        "print(len(f), all(f[f'{w}{i}'].attrs['n'] == i and f[f'{w}{i}/d'][:].tolist() == [i] * 10"
        " for w in 'abcd' for i in range(300)))",
        store,
        tmp_path,
    )
    assert out.split() == ["1201", "True"]


def test_a_writer_that_does_nothing_does_not_keep_others_out(tmp_path):
    store = tmp_path / "store"
    one, other = Talker(store, tmp_path), Talker(store, tmp_path)
    assert one.say("f = h5py.File('f.h5', 'w'); f['x'] = 1; f.flush()") == ""
    began = time.monotonic()
    assert other.say("f = h5py.File('f.h5', 'r+'); f['y'] = 2") == ""
    assert time.monotonic() - began < 5
    assert one.say("print(sorted(f)); f['z'] = 3") == "['x', 'y']"
    assert other.say("print(sorted(f)); f.close()") == "['x', 'y', 'z']"
    # The remaining writer is the only one again; then the other returns.
    assert one.say("f['u'] = [len(f.create_group(f'g{i}')) for i in range(50)]") == ""
    assert other.say("f = h5py.File('f.h5', 'r+'); print(len(f))") == "54"
    for talker in (one, other):
        talker.process.stdin.close()
        assert talker.process.wait(60) == 0


def test_after_a_writer_was_killed_the_file_is_whole_and_writable_at_once(tmp_path):
    store = tmp_path / "store"
    seed = int(os.environ.get("CENOTE_SEED", random.randrange(1 << 30)))
    print(f"CENOTE_SEED={seed}")
    chance = random.Random(seed)
    code = """
import h5py, sys
f = h5py.File("k.h5", "a")
first = len(f)
for i in range(first, 1 << 30):
    g = f.create_group(f"{i:06}")
    g["data"] = [i] * 100
    g.attrs["n"] = i
    if i % 20 == 19:
        f.flush()
        print(i, flush=True)
"""
    flushed = -1
    for _ in range(5):
        writer = subprocess.Popen(
            [sys.executable, "-c", code], env=environment(store), cwd=tmp_path, stdout=subprocess.PIPE, text=True
        )
        for _ in range(chance.randrange(1, 12)):
            flushed = int(writer.stdout.readline())
        time.sleep(chance.random() / 50)
        writer.send_signal(signal.SIGKILL)
        rest = writer.stdout.read().split()
        flushed = int(rest[-1]) if rest else flushed
        writer.wait()
        began = time.monotonic()
        out = python(
            """
import h5py
with h5py.File("k.h5", "r+") as f:
    names = sorted(f)
    assert names == [f"{i:06}" for i in range(len(names))], names
    # What was not flushed may have been cut off between two calls, never within one.
    for name in names[:-1]:
        assert f[name].attrs["n"] == int(name) and f[name]["data"][:].tolist() == [int(name)] * 100
    last = f[names[-1]]
    if "data" not in last or "n" not in last.attrs:
        del f[names[-1]]
    f.flush()
    print(len(names))
""",
            store,
            tmp_path,
        )
        assert int(out) > flushed
        assert time.monotonic() - began < 30


def test_what_fails_later_is_told_and_the_file_goes_on(tmp_path):
    store = tmp_path / "store"
    python("import h5py; h5py.File('q.h5', 'w').close()", store, tmp_path)
    label = f"hdf5:{tmp_path}/q.h5"
    set_quota = [str(CENOTE), "set", "-s", str(store), label, "--quota"]
    subprocess.run([*set_quota, "100KiB"], check=True, capture_output=True)
    out = python(
        """
import h5py, numpy as np
f = h5py.File("q.h5", "r+")
f["before"] = np.arange(100)
f.flush()
try:
    for i in range(100):
        f[f"x{i}"] = np.zeros(1000)
    f.flush()
    print("no failure")
except Exception as e:
    print("earlier" in str(e) or "quota" in str(e))
del f["before"]
f.flush()
f["after"] = [1]
f.flush()
n = len(f)
f.close()
with h5py.File("q.h5") as f:
    sums = [f[k][()].sum() for k in f if k != "after"]
    print(n == len(f), "after" in f, "before" in f, all(f[k].shape for k in f), sums == [0.0] * (n - 1))
""",
        store,
        tmp_path,
    )
    assert out.split() == ["True", "True", "True", "False", "True", "True"], out


def test_a_child_of_fork_and_its_parent_see_each_others_changes(tmp_path):
    code = """
import h5py, os
f = h5py.File("f.h5", "w")
for i in range(100):
    f.create_group(f"before{i}")
pid = os.fork()
if pid == 0:
    assert len(f) == 100
    f.create_group("child")
    f.flush()
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
assert "child" in f
f.create_group("parent")
f.close()
print(len(h5py.File("f.h5")))
"""
    assert python(code, tmp_path / "store", tmp_path).strip() == "102"
