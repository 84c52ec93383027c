"""Many processes write one file at once and some are killed: what was flushed is there, whole.

Set CENOTE_KILL_SEEDS (numbers separated by commas) to replay seeds or to run more.
"""

import ast
import os
import pathlib
import pickle
import random
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from test_data import UNLOCKED, environment, nothing_stays  # noqa: F401 - a fixture that works by being here

WORKER = pathlib.Path(__file__).with_name("kill_worker.py")
SEEDS = [int(seed) for seed in os.environ.get("CENOTE_KILL_SEEDS", "1,2,3").split(",")]
ROWS, COLUMNS = 192, 40
LAYOUTS = {
    "contiguous": {},
    "chunked": {"chunks": (10, 16)},
    "filled": {"chunks": (7, 40), "fillvalue": -5},
    "packed": {"chunks": (16, 20), "compression": "gzip", "compression_opts": 1, "shuffle": True},
}
MAKE = """
import sys, h5py
with h5py.File(sys.argv[1], "w") as f:
    for kind in ("disjoint", "adjacent", "overlapping"):
        for layout, how in {layouts!r}.items():
            f.create_dataset(f"{{kind}} {{layout}}", ({rows}, {columns}), "i8", **how)
"""
READ = "import sys, h5py, pickle; f = h5py.File(sys.argv[1]); pickle.dump({n: f[n][:] for n in f}, sys.stdout.buffer)"


class Writer:
    """A writing process, with its reports."""

    def __init__(self, path, number, workers, seed, env):
        command = [sys.executable, "-W", "ignore", WORKER, path, number, workers, seed, 120]
        self.process = subprocess.Popen(
            [str(part) for part in command], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.number, self.writes, self.flushed, self.closed, self.killed = number, [], 0, False, False
        assert self.process.stdout.readline() == "ready\n"
        self.reader = threading.Thread(target=self.listen)

    def go(self):
        self.reader.start()
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def listen(self):
        for line in self.process.stdout:
            if not line.endswith("\n"):
                return
            word, _, rest = line.strip().partition(" ")
            if word == "write":
                number, rest = rest.split(" ", 1)
                name, numbers = rest.rsplit("'", 1)
                self.writes.append((int(number), ast.literal_eval(name + "'"), *map(int, numbers.split())))
            elif word == "flushed":
                self.flushed = int(rest)
            else:
                self.closed = word == "closed"

    def kill(self):
        self.killed = True
        self.process.send_signal(signal.SIGKILL)

    def end(self):
        code = self.process.wait(timeout=240)
        self.reader.join(timeout=60)
        self.process.stdin.close()
        self.process.stdout.close()
        if self.closed:
            self.flushed = len(self.writes)
        wanted = -signal.SIGKILL if code and self.killed else 0
        assert code == wanted and (self.closed or self.killed), f"worker {self.number}: exit {code}"


def check(name, values, writers, blank):
    """Each element holds a permitted write: none that its own writer has overwritten and then flushed."""
    flushed = np.zeros((len(writers), ROWS, COLUMNS), "i8")
    covered = np.zeros((ROWS, COLUMNS), bool)
    for writer in writers:
        for number, where, first, last, step, left, right in writer.writes:
            if where == name and number <= writer.flushed:
                flushed[writer.number, first:last:step, left:right] = number
                covered[first:last:step, left:right] = True
    assert not (covered & (values == blank)).any(), f"{name}: flushed elements are lost"
    for writer in writers:
        mine = (values >> 32 == writer.number) & (values != blank)
        found = values & 0xFFFFFFFF
        assert (found[mine] >= flushed[writer.number][mine]).all(), f"{name}: an older write than a flushed one"
        covers = {n: (a, b, s, x, y) for n, where, a, b, s, x, y in writer.writes if where == name}
        for number in np.unique(found[mine]):
            assert number in covers, f"{name}: a value that nobody wrote: worker {writer.number}, write {number}"
            a, b, s, x, y = covers[number]
            inside = np.zeros((ROWS, COLUMNS), bool)
            inside[a:b:s, x:y] = True
            assert not (mine & (found == number) & ~inside).any(), f"{name}: a write is where it was not made"
    known = np.isin(values >> 32, [writer.number for writer in writers]) | (values == blank)
    assert known.all(), f"{name}: bytes that nobody wrote"


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_flushed_is_there_whole(seed, tmp_path):
    """Seeds replay the writes; the times of the kills depend on the machine."""
    pick = random.Random(seed)
    workers = {1: 2, 2: 16}.get(seed) or pick.randint(3, 8)
    env = environment(tmp_path / "store") | UNLOCKED
    path = str(tmp_path / "shared.h5")
    make = MAKE.format(layouts=LAYOUTS, rows=ROWS, columns=COLUMNS)
    subprocess.run([sys.executable, "-c", make, path], env=env, check=True, timeout=120)
    writers = [Writer(path, number, workers, seed, env) for number in range(workers)]
    for writer in writers:
        writer.go()
    for writer in pick.sample(writers, workers // 2):
        time.sleep(pick.uniform(0, 0.4))
        writer.kill()
    for writer in writers:
        writer.end()
    done = subprocess.run([sys.executable, "-c", READ, path], env=env, check=True, timeout=120, capture_output=True)
    for name, values in pickle.loads(done.stdout).items():
        check(name, values, writers, -5 if "filled" in name else 0)
    total, flushed = sum(len(writer.writes) for writer in writers), sum(writer.flushed for writer in writers)
    print(f"seed {seed}: {workers} writers, {workers // 2} killed, {total} writes, {flushed} flushed")
