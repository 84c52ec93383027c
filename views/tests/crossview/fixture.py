"""A store with everything that shows it: a daemon, a mount, an S3 server, and a process for each view."""

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from .worker import Worker

ROOT = Path(__file__).resolve().parents[3]
PATIENCE_S = 30


def command() -> Path:
    """The `cenote` command: from the environment, or as it was built here."""
    given = os.environ.get("CENOTE_BIN")
    found = [Path(given)] if given else [ROOT / "target" / kind / "cenote" for kind in ("release", "debug")]
    built = [path for path in found if path.exists()]
    if not built:
        raise FileNotFoundError(f"no cenote command at {found}: build it, or set CENOTE_BIN")
    return max(built, key=lambda path: path.stat().st_mtime)


def plugin() -> Path | None:
    """The directory with the HDF5 connector."""
    given = os.environ.get("CENOTE_HDF5_PLUGIN")
    found = Path(given) if given else ROOT / "target/hdf5-plugin"
    return found if (found / "libcenote_hdf5.so").exists() else None


class Fixture:
    """All of it, below one directory that goes at the end. `missing` says what is not there, and why."""

    def __init__(self, views: list[str] | None = None, nodes: int = 0) -> None:
        shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.dir = Path(tempfile.mkdtemp(prefix="crossview-", dir=shared))
        self.disk = Path(tempfile.mkdtemp(prefix="crossview-"))
        self.nodes = nodes
        cluster = self.disk / "cluster"
        # The directory of the store for each view: that of another node, if there are several.
        self.stores = [cluster / f"n{number}" for number in range(1, nodes + 1)] or [self.disk / "store"]
        self.given = 0
        self.store = self.stores[0]
        self.missing: dict[str, str] = {}
        self.workers: dict[str, Worker] = {}
        self.mounted: Path | None = None
        self.server: subprocess.Popen | None = None
        self.wanted = views
        try:
            self.build()
        except BaseException:
            self.end()
            raise

    def wants(self, view: str) -> bool:
        return self.wanted is None or view in self.wanted

    def cenote(self, *arguments: str | Path, check: bool = True) -> str:
        """Runs the command on the store; its standard output."""
        words = [command(), "--store", self.store, *arguments]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
        if check and done.returncode != 0:
            raise RuntimeError(f"cenote {arguments}: {done.stderr}")
        return done.stdout

    def next_store(self) -> Path:
        """The directory of the store for the next view."""
        self.given += 1
        return self.stores[(self.given - 1) % len(self.stores)]

    def make(self) -> None:
        """Makes the store, on several nodes if so wanted."""
        memory = "name=memory,kind=memory,size=192MiB"
        if self.nodes == 0:
            self.cenote("init", "--tier", memory, "--tier", f"name=disk,kind=directory,path={self.disk}/tier,size=4GiB")
            return
        tiers = ["--tier", memory, "--tier", "name=disk,kind=directory,path=disk,size=4GiB"]
        self.cenote("cluster", "start", self.store.parent, "--local", str(self.nodes), *tiers)

    def build(self) -> None:
        self.make()
        self.cenote("s3", "key", "add", "root", "--uid", "0" if os.geteuid() == 0 else str(os.geteuid()))
        self.key = json.loads(self.cenote("--json", "s3", "key", "rotate", "root"))
        subprocess.run([command(), "--store", self.store, "serve", "--background"], capture_output=True, check=False)
        self.workers["files"] = Worker("files", (str(self.next_store()),))
        if self.wants("fsspec"):
            self.workers["fsspec"] = Worker("fsspec", (str(self.next_store()),))
        if self.wants("mount") and self.mount():
            self.workers["mount"] = Worker("mount", (str(self.mounted),))
        if self.wants("s3"):
            self.serve()
        if self.wants("hdf5"):
            self.arrays()

    def mount(self) -> bool:
        """Mounts the store, if this user can."""
        at = self.disk / "mount"
        at.mkdir()
        words = [command(), "--store", self.next_store(), "mount", at]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode != 0:
            self.missing["mount"] = done.stderr.strip()
            return False
        self.mounted = at
        return True

    def serve(self) -> None:
        """Serves it to S3."""
        words = [command(), "s3", self.next_store(), "--listen", "127.0.0.1:0", "--mode", "daemon"]
        with open(self.disk / "s3.log", "ab") as log:
            self.server = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, text=True)
        found = re.search(r"http://127\.0\.0\.1:(\d+)", self.server.stdout.readline())
        if found is None:
            raise RuntimeError(f"the S3 server says: {(self.disk / 's3.log').read_text()}")
        self.workers["s3"] = Worker("s3", (int(found[1]), self.key["access_key_id"], self.key["secret_access_key"]))

    def arrays(self) -> None:
        """HDF5 by the plugin, and Zarr."""
        where = plugin()
        if where is None:
            self.missing["hdf5"] = "the connector is not built"
            return
        store = self.next_store()
        environment = {
            "HDF5_PLUGIN_PATH": str(where),
            "HDF5_VOL_CONNECTOR": f"cenote store={store}",
            "CENOTE_STORE": str(store),
        }
        try:
            self.workers["hdf5"] = Worker("hdf5", (), environment)
            self.workers["zarr"] = Worker("zarr", (str(self.next_store()),))
        except RuntimeError as error:
            self.missing["hdf5"] = str(error).strip().rpartition("\n")[2]

    def end(self) -> None:
        """Takes it all down, whoever asks for the end once more meanwhile."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for worker in self.workers.values():
            worker.end()
        if self.server is not None:
            self.server.terminate()
            try:
                self.server.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self.server.kill()
                self.server.wait()
            self.server.stdout.close()
        if self.mounted is not None:
            self.unmount()
        if self.nodes and self.store.exists():
            self.cenote("cluster", "destroy", self.store.parent, "--yes", check=False)
        elif self.store.exists():
            self.cenote("stop", check=False)
            self.cenote("destroy", "--yes", "--force", check=False)
        shutil.rmtree(self.dir, ignore_errors=True)
        shutil.rmtree(self.disk, ignore_errors=True)

    def unmount(self) -> None:
        for _ in range(5):
            words = [command(), "unmount", self.mounted]
            if subprocess.run(words, capture_output=True, timeout=120, check=False).returncode == 0:
                return
            time.sleep(1)
        subprocess.run([command(), "unmount", "--lazy", self.mounted], capture_output=True, timeout=60, check=False)
