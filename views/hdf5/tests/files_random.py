"""Random handling of files beside native HDF5: renamed, swapped, rotated, copied, put back, removed, opened twice.

Two directories get the same operations, one by programs on native HDF5, one by programs on Cenote; the result of each
step and the content of each file must be equal. Programs run with `CENOTE_HDF5_COPIES=1`, so that copies of stubs count
as copies. docs/hdf5.md states two differences: a copy can be read and created anew, but not written to; and a file
stays
unchanged if a program that opens it with "w" is refused. The native side leaves such steps out.
"""

# ruff: noqa: PTH104, PTH105, PTH107 - what programs call, by the names that they are documented by

import argparse
import collections
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

WORKER = """
import json, sys, warnings
warnings.simplefilter("ignore")
import h5py
held = None
def write(name, mode, value):
    with h5py.File(name, mode) as f:
        f.attrs["n"] = value
        if "v" in f: f["v"][0] = value
        else: f["v"] = [value] * 3
def read(name):
    with h5py.File(name) as f: return [int(f.attrs["n"]), f["v"][:].tolist(), f.mode]
def hold(name, mode, value):
    global held
    held = h5py.File(name, mode)
    if mode != "r": held.attrs["n"] = value; held.pop("v", None); held["v"] = [value] * 2
def drop():
    global held
    held.close(); held = None
for line in sys.stdin:
    what, *rest = json.loads(line)
    try: said = ["ok", {"write": write, "read": read, "hold": hold, "drop": drop}[what](*rest)]
    except Exception as error: said = [type(error).__name__, getattr(error, "errno", None), str(error)]
    print(json.dumps(said), flush=True)
"""
NAMES = ["a.h5", "b.h5", "c.h5", "run/a.h5", "run/b.h5", "old/a.h5"]
STATED = ("copy of the stub", "stale copy")


class Side:
    """A directory, and two programs that work in it."""

    def __init__(self, where, environment):
        self.where = where
        for name in ("run", "old"):
            (where / name).mkdir(parents=True)
        self.saved = {}
        self.programs = [
            subprocess.Popen(
                [sys.executable, "-c", WORKER],
                env=environment,
                cwd=where,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(2)
        ]

    def ask(self, who, *what):
        program = self.programs[who]
        program.stdin.write(json.dumps(what) + "\n")
        program.stdin.flush()
        line = program.stdout.readline()
        return json.loads(line) if line else ["died", program.wait(), ""]

    def end(self):
        for program in self.programs:
            program.communicate()

    def again(self):
        """Removes everything."""
        for name in ("run", "old", "."):
            for file in (self.where / name).iterdir():
                if not file.is_dir() or file.is_symlink():
                    file.unlink()
        self.saved = {}

    def path(self, name):
        return self.where / name

    def names(self):
        return sorted(str(f.relative_to(self.where)) for f in self.where.rglob("*") if not f.is_dir())

    def does(self, what, *rest):
        try:
            getattr(self, what)(*rest)
        except OSError as error:
            return [type(error).__name__, error.errno]
        return ["ok", None]

    def rename(self, a, b):
        os.replace(self.path(a), self.path(b))

    def swap(self, a, b):
        os.replace(self.path(a), self.path("tmp"))
        os.replace(self.path(b), self.path(a))
        os.replace(self.path("tmp"), self.path(b))

    def rotate(self, a, b, c):
        os.replace(self.path(b), self.path(c))
        os.replace(self.path(a), self.path(b))

    def copy(self, a, b):
        shutil.copy(self.path(a), self.path(b))

    def copy_beside(self, a, b):
        """Copies to a new file beside, as `cp --remove-destination` and rsync do."""
        self.path("tmp").unlink(missing_ok=True)  # left by a swap with a missing file; a program may hold it
        shutil.copy2(self.path(a), self.path("tmp"))
        os.replace(self.path("tmp"), self.path(b))

    def remove(self, a):
        os.remove(self.path(a))

    def link(self, a, b):
        os.link(self.path(a), self.path(b))

    def symlink(self, a, b):
        os.symlink(self.path(a), self.path(b))

    def touch(self, a):
        os.close(os.open(self.path(a), os.O_CREAT | os.O_EXCL, 0o644))

    def run_again(self):
        """`mv run old; mkdir run`."""
        shutil.rmtree(self.path("old"))
        os.rename(self.path("run"), self.path("old"))
        self.path("run").mkdir()

    def commit(self, a):
        self.saved[a] = self.path(a).read_bytes()

    def checkout(self, a):
        self.path(a).unlink(missing_ok=True)
        self.path(a).write_bytes(self.saved[a])


class Both:
    """The two sides, and their common state."""

    def __init__(self, top, environment, clean):
        self.clean = clean
        self.native = Side(top / "native", environment(None) | {"CENOTE_HDF5_COPIES": "1"})
        self.cenote = Side(top / "cenote", environment(top / "store") | {"CENOTE_HDF5_COPIES": "1"})
        self.counts = collections.Counter()
        self.log = []

    def episode(self, seed, operations):
        """Runs operations on new files. Returns None, or the difference."""
        chance = random.Random(seed)
        self.holds, self.log, self.value = None, [], 0
        for _ in range(operations):
            step = self.choose(chance)
            self.log.append(step)
            self.counts[step[0]] += 1
            if differs := self.step(*step):
                return differs
        if self.holds and (differs := self.step("drop")):
            return differs
        for name in NAMES:
            if differs := self.step("read", name):
                return differs
        for side in (self.native, self.cenote):
            side.again()
        self.clean()
        return None

    def is_held(self, name):
        try:
            return self.holds is not None and self.native.path(name).stat().st_ino == self.holds
        except OSError:
            return False

    def choose(self, chance):
        a, b, c = chance.sample(NAMES, 3)
        self.value += 1
        kinds = ["write"] * 6 + ["read"] * 4 + ["rename", "swap", "rotate", "copy", "copy_beside", "copy"]
        kinds += ["remove", "link", "symlink", "touch", "run_again", "commit", "checkout", "hold", "drop"]
        kind = chance.choice(kinds)
        if kind == "write":
            return kind, a, chance.choice(["w", "w", "r+", "a", "x"]), self.value
        if kind == "hold":
            return (kind, a, chance.choice(["r", "r+", "w"]), self.value) if self.holds is None else ("read", a)
        if kind == "drop":
            return (kind,) if self.holds is not None else ("read", a)
        # The bytes of a file that a program has open are undefined, natively too.
        if kind in ("copy", "copy_beside", "commit", "checkout") and (self.is_held(a) or self.is_held(b)):
            return "read", c
        if kind == "checkout":
            return (kind, chance.choice(sorted(self.native.saved))) if self.native.saved else ("read", a)
        if kind in ("rename", "swap", "copy", "copy_beside", "link", "symlink"):
            return kind, a, b
        return (kind, a, b, c) if kind == "rotate" else (kind,) if kind == "run_again" else (kind, a)

    def step(self, what, *rest):
        """Does a step on both sides. Returns None, or the difference."""
        if what not in ("write", "read", "hold", "drop"):
            had, want = self.cenote.does(what, *rest), self.native.does(what, *rest)
            had, want = (had, self.cenote.names()), (want, self.native.names())
            return None if had == want else (had, want)
        who = 0 if what in ("write", "read") else 1
        before = self.times(rest[0]) if what == "write" else None
        had = self.cenote.ask(who, what, *rest)
        if what != "read" and had[0] != "ok" and any(words in had[2] for words in STATED):
            self.counts["not written to, being a copy"] += 1
            return None
        if what == "write" and rest[1] == "w" and self.is_held(rest[0]):
            # Natively the file is refused, and empty afterwards.
            self.counts["refused and not truncated"] += 1
            return None if had[:2] == ["BlockingIOError", 11] else (had, "must be refused")
        want = self.native.ask(who, what, *rest)
        if what == "hold" and want[0] == "ok":
            self.holds = self.native.path(rest[0]).stat().st_ino
        if what == "drop":
            self.holds = None
        if had[:2] != want[:2]:
            return had, want
        if (
            before
            and want[0] == "ok"
            and not all(now > then for now, then in zip(self.times(rest[0]), before, strict=True))
        ):
            return "the time of the last change did not move", what
        return None

    def times(self, name):
        found = []
        for side in (self.native, self.cenote):
            try:
                found.append(side.path(name).stat().st_mtime_ns)
            except OSError:
                found.append(0)
        return found

    def end(self):
        self.native.end()
        self.cenote.end()


def run(top, environment, program, seed, operations, episode):
    """Runs operations from this seed on. Returns counts of the kinds of steps, and the difference (or None)."""

    def clean():
        words = [program, "--store", str(top / "store"), "clean", "--files", "--waiting"]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL, env=environment(top / "store"))

    both = Both(top, environment, clean)
    try:
        done = 0
        while done < operations:
            if differs := both.episode(seed, episode):
                steps = "\n".join(map(str, both.log[-30:]))
                return both.counts, f"seed {seed}, operation {len(both.log)}: (Cenote, native) = {differs}\n{steps}"
            done, seed = done + episode, seed + 1
        return both.counts, None
    finally:
        both.end()


def main():
    """Runs, and prints the difference; returns 1 if there is one."""
    parser = argparse.ArgumentParser(prog="files_random", description=__doc__)
    parser.add_argument("--operations", type=int, default=5_000, help="how many in all (%(default)s)")
    parser.add_argument("--seed", type=int, default=None, help="of the first episode; the next have the next numbers")
    parser.add_argument("--episode", type=int, default=200, help="operations on one set of files (%(default)s)")
    args = parser.parse_args()
    from test_data import connector, environment

    seed = args.seed if args.seed is not None else random.SystemRandom().randrange(10**9)
    print(f"seed {seed}", flush=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="hdf5-files-") as where:
        top, program = pathlib.Path(where), connector()[1]
        counts, differs = run(top, environment, program, seed, args.operations, args.episode)
        subprocess.run([program, "--store", str(top / "store"), "stop"], check=False, stdout=subprocess.DEVNULL)
        subprocess.run([program, "destroy", "--yes", str(top / "store")], check=False, stdout=subprocess.DEVNULL)
    print(", ".join(f"{name} {count}" for name, count in sorted(counts.items())))
    print(f"{sum(counts.values())} operations in {time.monotonic() - began:.0f} s: {differs or '0 differences'}")
    return 1 if differs else 0


if __name__ == "__main__":
    sys.exit(main())
