"""Cenote on four nodes."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benches.cluster.hosts import Hosts, enter
from benches.s3.run import Peer, Served
from scripts.programs.places import PRELOADED, Place, command

TIERS = ("name=memory,kind=memory,size=2GiB", "name=disk,kind=directory,path=disk,size=16GiB")
PATIENCE_S = 120
# A daemon that waits long for a processor, since others use the machine, must not count as lost.
PATIENT = {"CENOTE_HA_FACTOR": "3"}


class Cluster:
    """A node on each host; `destroy` deletes it."""

    def __init__(self, directory: Path, hosts: Hosts, *options: str) -> None:
        self.directory, self.hosts = directory, hosts
        words = [
            "cluster",
            "start",
            directory,
            "--hosts",
            ",".join(hosts.names),
            "--launcher",
            " ".join(enter("{host}")),
        ]
        for tier in TIERS:
            words += ["--tier", tier]
        try:
            self.run(0, *words, *options)
        except BaseException:
            self.destroy()
            raise

    def node(self, at: int) -> Path:
        """Returns the store's directory at a node."""
        return self.directory / self.hosts.names[at]

    def run(self, at: int, *words: str | Path, check: bool = True) -> str:
        """Runs the command on a host."""
        all_words = [*self.hosts.on(at), str(command()), *map(str, words)]
        environment = os.environ | PATIENT
        done = subprocess.run(
            all_words, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        if check and done.returncode != 0:
            raise RuntimeError(f"cenote {' '.join(map(str, words))}: {done.stderr}{done.stdout}")
        return done.stdout

    def settle(self, at: int) -> str:
        """Returns the shell command that waits until everything written at a node is on its mirrors."""
        return f"{command()} protect -s {self.node(at)} >/dev/null"

    @contextmanager
    def mounted(self, at: int, below: Path) -> Iterator[Path]:
        """Yields a mount at a node."""
        place = below / f"mount-{at}"
        place.mkdir()
        self.run(at, "mount", self.node(at), place)
        try:
            yield place
        finally:
            self.run(at, "unmount", "--lazy", place, check=False)

    def preloaded(self, at: int, path: str) -> Place:
        """Returns a path in the store, for programs that `cenote run` starts at a node."""
        words = [*self.hosts.on(at), str(command()), "run", "--store", str(self.node(at)), "--at", PRELOADED, "--"]
        return Place(f"n{at + 1}", PRELOADED + path, words)

    @contextmanager
    def served(self, at: int, port: int, *options: str) -> Iterator[Peer]:
        """Yields an S3 server at a node."""
        keys = Served(self.node(at))
        keys.add(f"user{port}")
        address = f"{self.hosts.names[at]}:{port}"
        words = [
            *self.hosts.on(at),
            str(command()),
            "s3",
            str(self.node(at)),
            "--listen",
            address,
            "--insecure",
            *options,
        ]
        with open(self.directory / f"s3-{port}.log", "wb") as log:
            server = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            found = re.search(r"https?://\S+", server.stdout.readline())
            if not found:
                raise RuntimeError(f"no S3 server: {(self.directory / f's3-{port}.log').read_text()}")
            yield Peer(found.group(), *keys.keys[f"user{port}"])
        finally:
            end(server)
            server.stdout.close()

    def destroy(self) -> None:
        self.run(0, "cluster", "destroy", self.directory, "--yes", check=False)
        shutil.rmtree(self.directory, ignore_errors=True)


def end(process: subprocess.Popen) -> None:
    """Ends a server that was started here."""
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
