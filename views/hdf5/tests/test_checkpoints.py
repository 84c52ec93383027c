"""Atomic checkpoints and snapshots of HDF5 files: what readers see during writes, and what killed writers leave."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest
from test_data import UNLOCKED, connector, environment, nothing_stays  # noqa: F401 (the fixture cleans up here too)

ATOMIC = {"CENOTE_HDF5_ATOMIC": "1"}

# Carries out commands, line by line, and reports each when done.
WRITER = """
import sys, h5py, numpy as np
path, mode = sys.argv[1:3]
f = h5py.File(path, mode)
for line in sys.stdin:
    word, *rest = line.split()
    if word == "set":
        n = int(rest[0])
        for name in ("a", "b"):
            if name in f:
                f[name][...] = n
            else:
                compression = "gzip" if name == "b" else None
                f.create_dataset(name, data=np.full(50_000, n), chunks=(5_000,), compression=compression)
            if name == "a" and "half" in rest:
                break
        f.attrs["n"] = n
        if f"group{n}" not in f:
            f.create_group(f"group{n}")
    elif word == "flush":
        f.flush()
    elif word == "close":
        f.close()
    print(word, flush=True)
"""

# Prints what a reader sees, as JSON: the attribute, and the one value of each dataset.
READER = """
import sys, json, h5py
with h5py.File(sys.argv[1], "r") as f:
    seen = {name: sorted(set(f[name][()].tolist())) for name in ("a", "b") if name in f}
    seen |= {"n": int(f.attrs["n"])} if "n" in f.attrs else {}
    seen["groups"] = sorted(name for name in f if name.startswith("group"))
    print(json.dumps(seen))
"""


class Writer:
    """A program that writes in steps."""

    def __init__(self, store, path, mode="a", extra=ATOMIC):
        self.process = subprocess.Popen(
            [sys.executable, "-c", WRITER, path, mode],
            env=environment(store) | extra,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def do(self, *lines):
        for line in lines:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
            assert self.process.stdout.readline().strip() == line.split()[0]
        return self

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def end(self):
        self.process.stdin.close()
        assert self.process.wait(timeout=60) == 0


def run(program, store, *args, extra=None, check=True):
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, args)],
        env=environment(store) | (extra or {}),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert not check or done.returncode == 0, done.stderr
    return done


def read(store, path, extra=None):
    return json.loads(run(READER, store, path, extra=extra).stdout)


def command(store, *args, check=True):
    _, program = connector()
    done = subprocess.run(
        [program, "--store", str(store), *map(str, args)],
        env=environment(store),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert not check or done.returncode == 0, done.stderr
    return done


def whole(n, *groups):
    return {"a": [n], "b": [n], "n": n, "groups": [f"group{g}" for g in groups]}


@pytest.fixture
def place(tmp_path):
    return tmp_path / "store", tmp_path / "file.h5"


def test_readers_see_the_last_flush_while_the_next_is_written(place):
    store, path = place
    writer = Writer(store, path, "w")
    writer.do("set 1")
    assert read(store, path) == {"groups": []}, "nothing was flushed yet"
    writer.do("flush", "set 2")
    assert read(store, path) == whole(1, 1)
    assert read(store, path, extra={"CENOTE_HDF5_ATOMIC": "0"}) == whole(2, 1, 2), "who asks for it sees all"
    writer.do("flush")
    assert read(store, path) == whole(2, 1, 2)
    writer.do("set 3", "close")
    writer.end()
    assert read(store, path) == whole(3, 1, 2, 3)


def test_a_killed_writer_leaves_what_it_flushed_last(place):
    store, path = place
    writer = Writer(store, path, "w").do("set 1", "flush", "set 2 half")
    writer.kill()
    assert read(store, path) == whole(1, 1)
    # The next writer continues from there, with or without the variable.
    for extra, n in ((ATOMIC, 3), ({}, 4)):
        writer = Writer(store, path, "a", extra).do(f"set {n}")
        assert read(store, path) == whole(n - 1 if n > 3 else 1, *((1, 3) if n > 3 else (1,)))
        writer.do("flush", f"set {n}0 half")
        writer.kill()
        assert read(store, path) == whole(n, *((1, 3, 4) if n > 3 else (1, 3)))


def test_a_new_file_over_an_old_one_shows_when_it_is_flushed(place):
    store, path = place
    Writer(store, path, "w").do("set 1", "close").end()
    writer = Writer(store, path, "w").do("set 2")
    assert read(store, path) == whole(1, 1)
    writer.kill()
    assert read(store, path) == whole(1, 1)
    Writer(store, path, "w").do("set 3", "close").end()
    assert read(store, path) == whole(3, 3)
    path.unlink()
    writer = Writer(store, path, "w", {}).do("set 4")
    assert read(store, path, extra=UNLOCKED) == whole(4, 4), (
        "another file of that name is no atomic one unless asked for"
    )
    writer.end()


STAYS = """
import sys, json, h5py
with h5py.File(sys.argv[1], "r") as f:
    first = f["a"][0]
    print("open", flush=True)
    sys.stdin.readline()
    assert set(f["a"][()]) == set(f["b"][()]) == {first} and f.attrs["n"] == first, "it changed under the reader"
    assert sorted(f) == ["a", "b", "group1"]
"""


def test_a_reader_keeps_the_checkpoint_that_it_opened(place):
    store, path = place
    writer = Writer(store, path, "w").do("set 1", "flush")
    reader = subprocess.Popen(
        [sys.executable, "-c", STAYS, path],
        env=environment(store),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert reader.stdout.readline() == "open\n"
    for n in range(2, 6):
        writer.do(f"set {n}", "flush")
    reader.communicate("\n", timeout=60)
    assert reader.returncode == 0
    writer.do("close")
    writer.end()


def test_the_last_of_several_writers_to_die_takes_the_file_back(place):
    store, path = place
    first = Writer(store, path, "w").do("set 1", "flush")
    second = Writer(store, path, "a").do("set 2")
    first.kill()
    assert read(store, path) == whole(1, 1)
    third = Writer(store, path, "a")
    third.do("flush")
    assert read(store, path) == whole(2, 1, 2), "a living writer's work is not undone"
    second.do("set 3")
    for writer in (second, third):
        writer.kill()
    Writer(store, path, "a").do("close").end()
    assert read(store, path) == whole(2, 1, 2)


NETCDF = """
import sys, netCDF4, numpy as np
d = netCDF4.Dataset(sys.argv[1], "w")
d.createDimension("x", 1000)
for name in ("u", "v"):
    d.createVariable(name, "f8", ("x",), zlib=name == "v")[:] = 1
d.sync()
for name in ("u", "v"):
    d[name][:] = 2
    if name == sys.argv[2]:
        print("half", flush=True)
        sys.stdin.read()
d.close()
"""

NETCDF_READER = """
import sys, netCDF4
with netCDF4.Dataset(sys.argv[1]) as d:
    print(*sorted({float(x) for name in ("u", "v") for x in d[name][:]}))
"""


def test_netcdf_files_are_written_in_checkpoints(place):
    store, path = place[0], place[1].with_suffix(".nc")
    writer = subprocess.Popen(
        [sys.executable, "-c", NETCDF, path, "u"],
        env=environment(store) | ATOMIC,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert writer.stdout.readline() == "half\n"
    assert run(NETCDF_READER, store, path).stdout.split() == ["1.0"]
    writer.kill()
    writer.wait()
    assert run(NETCDF_READER, store, path).stdout.split() == ["1.0"]
    run(NETCDF, store, path, "none", extra=ATOMIC)
    assert run(NETCDF_READER, store, path).stdout.split() == ["2.0"]


def test_snapshots_of_files_are_listed_opened_and_gone_back_to(place):
    store, path = place
    Writer(store, path, "w", {}).do("set 1", "close").end()
    command(store, "snapshot", "create", path, "first")
    Writer(store, path, "a", {}).do("set 2", "close").end()
    listed = json.loads(command(store, "snapshot", "list", path, "--json").stdout)
    assert [snapshot["name"] for snapshot in listed] == ["first"]
    assert read(store, path) == whole(2, 1, 2)
    assert read(store, f"{path}@first") == whole(1, 1)
    for bad, mode, words in ((f"{path}@first", "a", "never changes"), (f"{path}@none", "r", "no snapshot `none`")):
        done = run(WRITER, store, bad, mode, check=False)
        assert done.returncode != 0 and words in done.stderr, done.stderr
    stub = command(store, "snapshot", "open", path, "first").stdout.strip()
    assert stub == f"{path}@first"
    assert read(store, stub) == whole(1, 1)
    moved = path.with_name("elsewhere.h5")
    command(store, "snapshot", "open", path, "first", moved)
    assert read(store, moved) == whole(1, 1)
    command(store, "snapshot", "rollback", path, "first")
    assert read(store, path) == whole(1, 1)
    command(store, "snapshot", "delete", path, "first")
    done = run(READER, store, moved, check=False)
    assert done.returncode != 0 and "no snapshot `first`" in done.stderr, done.stderr
    done = command(store, "snapshot", "list", path.with_name("none.h5"), check=False)
    assert done.returncode == 1 and "none.h5" in done.stderr


def test_the_info_string_asks_for_checkpoints_too(place):
    store, path = place
    word = {"HDF5_VOL_CONNECTOR": f"cenote store={store} atomic"}
    writer = Writer(store, path, "w", word).do("set 1", "flush", "set 2")
    assert read(store, path) == whole(1, 1)
    assert read(store, path, extra=word) == whole(1, 1)
    assert read(store, path, extra={"HDF5_VOL_CONNECTOR": f"cenote store={store} atomic=0"}) == whole(2, 1, 2)
    writer.kill()
    Writer(store, path, "a", {"HDF5_VOL_CONNECTOR": "cenote atomic", "CENOTE_STORE": str(store)}).do("close").end()
    assert read(store, path) == whole(1, 1)
    wrong = run(READER, store, path, extra={"HDF5_VOL_CONNECTOR": f"cenote atomically={store}"}, check=False)
    assert wrong.returncode != 0 and "atomic" in wrong.stderr


GOES_ON = """
import sys, h5py, numpy as np
f = h5py.File(sys.argv[1], "a")
n = int(f.attrs.get("n", 0))
while True:
    n += 1
    for name, compression in ("a", None), ("b", "gzip"):
        if name not in f:
            f.create_dataset(name, (20_000,), "i8", maxshape=(None,), chunks=(1000,), compression=compression)
        f[name].resize((20_000 + n % 7 * 500,))
        f[name][...] = n
    f.attrs["n"] = n
    if n > 3:
        del f[f"group{n - 3}"]
    f.create_group(f"group{n}").attrs["text"] = "x" * n
    f.flush()
    print(n, flush=True)
"""

LOOKS = """
import sys, h5py
last = 0
for _ in range(int(sys.argv[2])):
    with h5py.File(sys.argv[1], "r") as f:
        n = int(f.attrs["n"])
        assert n >= last, (n, last)
        last = n
        assert sorted(f) == sorted(["a", "b", *(f"group{i}" for i in range(max(1, n - 2), n + 1))]), (n, list(f))
        for name in "ab":
            assert f[name].shape == (20_000 + n % 7 * 500,) and (f[name][...] == n).all(), (n, name)
        assert f[f"group{n}"].attrs["text"] == "x" * n
print(last)
"""


def test_readers_see_complete_checkpoints_only_whenever_writers_are_killed(place):
    seed = int(os.environ.get("CENOTE_SEED", random.randrange(1 << 30)))
    print(f"CENOTE_SEED={seed}")
    chance = random.Random(seed)
    store, path = place
    flushed = 0
    for _ in range(6):
        writer = subprocess.Popen(
            [sys.executable, "-c", GOES_ON, path], env=environment(store) | ATOMIC, stdout=subprocess.PIPE, text=True
        )
        flushed = int(writer.stdout.readline())
        looks = subprocess.Popen(
            [sys.executable, "-c", LOOKS, path, "40"],
            env=environment(store),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        time.sleep(chance.random())
        writer.send_signal(signal.SIGKILL)
        flushed = max([flushed, *map(int, writer.stdout.read().split())])
        writer.wait()
        _, err = looks.communicate(timeout=120)
        assert looks.returncode == 0, err
        assert int(run(LOOKS, store, path, 2).stdout) >= flushed >= 1
