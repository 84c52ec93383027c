"""The places in which programs run: the machine's disk, tmpfs, a mounted store, a store by preload."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TREE = Path(__file__).with_name("tree.py")
# The store's path under preload.
PRELOADED = "/cenote"
# A program that takes longer hangs.
PATIENCE_S = 1800


def command() -> Path:
    """Returns the `cenote` command: from the environment, or as built here."""
    given = os.environ.get("CENOTE_BIN")
    found = [Path(given)] if given else [ROOT / "target" / kind / "cenote" for kind in ("release", "debug")]
    built = [path for path in found if path.exists()]
    if not built:
        raise FileNotFoundError(f"no cenote command at {found}: build it, or set CENOTE_BIN")
    return max(built, key=lambda path: path.stat().st_mtime)


@dataclass
class Place:
    """A directory to work in, and the prefix of commands there."""

    name: str
    dir: str
    prefix: list[str] = field(default_factory=list)

    def run(self, script: str, work: str, environment: dict[str, str]) -> tuple[float, int, str]:
        """Runs a shell script in a new directory `work`; returns seconds, exit code and output."""
        at = f"{self.dir}/{work}"
        whole = f'mkdir "$WORK" && cd "$WORK" || exit 99\n{script}'
        words = [*self.prefix, "bash", "-ec", whole]
        began = time.monotonic()
        done = subprocess.run(
            words,
            env=os.environ | environment | {"WORK": at},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=PATIENCE_S,
            check=False,
        )
        return time.monotonic() - began, done.returncode, done.stdout

    def snapshot(self, work: str, without: list[str]) -> dict[str, list]:
        """Returns a description of all files in `work`."""
        words = [*self.prefix, sys.executable, str(TREE), f"{self.dir}/{work}", *without]
        return json.loads(subprocess.run(words, capture_output=True, timeout=PATIENCE_S, check=True).stdout)

    def clear(self, work: str) -> None:
        """Deletes `work`."""
        words = [*self.prefix, "rm", "-rf", f"{self.dir}/{work}"]
        subprocess.run(words, timeout=PATIENCE_S, check=True)


def kind_of(path: Path) -> str:
    """Returns the file system type of a path."""
    words = ["stat", "-f", "-c", "%T", path]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


@contextlib.contextmanager
def plain(above: str | None) -> Iterator[Place]:
    """Yields a directory on a file system of the machine."""
    with tempfile.TemporaryDirectory(prefix="programs-", dir=above) as where:
        kind = kind_of(Path(where))
        yield Place("ext4" if kind == "ext2/ext3" else kind, where)


class Store:
    """A temporary store."""

    def __init__(self, memory: str, disk: str) -> None:
        self.dir = Path(tempfile.mkdtemp(prefix="programs-"))
        self.store = self.dir / "store"
        tier = f"name=disk,kind=directory,path={self.dir}/tier,size={disk}"
        self.cenote("init", self.store, "--tier", f"name=memory,kind=memory,size={memory}", "--tier", tier)

    def cenote(self, *words: str | Path, check: bool = True) -> subprocess.CompletedProcess:
        return subprocess.run([command(), *words], capture_output=True, text=True, timeout=300, check=check)

    @contextlib.contextmanager
    def mounted(self, *options: str) -> Iterator[Place]:
        """Yields a mount of the store."""
        at = self.dir / "mount"
        at.mkdir(exist_ok=True)
        done = self.cenote("mount", self.store, at, *options, check=False)
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip())
        try:
            (at / "work").mkdir(exist_ok=True)
            yield Place("mount", str(at / "work"))
        finally:
            for _ in range(5):
                if self.cenote("unmount", at, check=False).returncode == 0:
                    break
                time.sleep(1)
            else:
                self.cenote("unmount", "--lazy", at, check=False)

    @contextlib.contextmanager
    def preloaded(self) -> Iterator[Place]:
        """Yields a directory of the store, for programs that `cenote run` starts."""
        prefix = [str(command()), "--store", str(self.store), "run", "--at", PRELOADED, "--"]
        done = subprocess.run(
            [*prefix, "mkdir", "-p", f"{PRELOADED}/work"], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip())
        yield Place("preload", f"{PRELOADED}/work", prefix)

    def end(self) -> None:
        self.cenote("--store", self.store, "stop", check=False)
        self.cenote("--store", self.store, "destroy", "--yes", "--force", check=False)
        shutil.rmtree(self.dir, ignore_errors=True)
