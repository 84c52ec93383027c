"""The peers on the same hosts and the same disk, each with its own defaults: GlusterFS, MinIO, Ceph RADOS."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benches.cluster.hosts import Hosts, Missing
from benches.cluster.ours import end
from benches.s3.run import Peer, minio_command, wait_for
from scripts.programs.places import ROOT

PATIENCE_S = 60
VOLUME = "bench"
# A node of GlusterFS in a directory of its own: it has fixed paths for all that a host has once. $1: the directory.
GLUSTERD = """set -e
mkdir -p /var/lib/glusterd /var/log/glusterfs
mount --bind "$1/lib" /var/lib/glusterd
mount --bind "$1/log" /var/log/glusterfs
mount --bind "$1/run" /run
exec glusterd --no-daemon"""


class Gluster:
    """GlusterFS with a brick on each host; a volume with two copies, or with one."""

    def __init__(self, directory: Path, hosts: Hosts, copies: int) -> None:
        if shutil.which("glusterd") is None:
            raise Missing("no GlusterFS (Debian: glusterfs-server)")
        self.directory, self.hosts = directory, hosts
        self.daemons: list[subprocess.Popen] = []
        self.mounts: list[tuple[Path, subprocess.Popen]] = []
        try:
            self.start()
            self.make(copies)
        except BaseException:
            self.destroy()
            raise

    def start(self) -> None:
        """Starts the daemons. What a daemon starts ends with it, since it has its own numbers of processes."""
        alone = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", GLUSTERD, "sh"]
        for at in range(self.hosts.count):
            home = self.directory / f"g{at}"
            for name in ("lib", "log", "run/gluster", "brick"):
                (home / name).mkdir(parents=True)
            with open(home / "out", "wb") as log:
                words = [*self.hosts.on(at), *alone, str(home)]
                self.daemons.append(subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log))
        patiently(lambda: [self.gluster(at, "pool", "list") for at in range(self.hosts.count)])

    def make(self, copies: int) -> None:
        """Makes the volume."""
        names = self.hosts.names
        for name in names[1:]:
            self.gluster(0, "peer", "probe", name)
        patiently(self.all_connected)
        bricks = [f"{name}:{self.directory / f'g{at}/brick/data'}" for at, name in enumerate(names)]
        kind = ["replica", str(copies)] if copies > 1 else []
        self.gluster(0, "volume", "create", VOLUME, *kind, *bricks, "force")
        self.gluster(0, "volume", "start", VOLUME)

    def all_connected(self) -> None:
        said = self.gluster(0, "pool", "list")
        if said.count("Connected") < self.hosts.count:
            raise RuntimeError(said)

    def gluster(self, at: int, *words: str) -> str:
        """Runs `gluster` beside the daemon of a host."""
        home = self.directory / f"g{at}"
        begin = [
            "gluster",
            "--mode=script",
            f"--glusterd-sock={home}/run/glusterd.socket",
            f"--log-file={home}/cli.log",
        ]
        done = subprocess.run([*begin, *words], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"gluster {' '.join(words)}: {done.stderr}{done.stdout}")
        return done.stdout

    def mounted(self, at: int) -> Path:
        """Returns a mount on a host."""
        place = self.directory / f"mount-{at}"
        place.mkdir()
        options = [f"--volfile-server={self.hosts.names[at]}", f"--volfile-id={VOLUME}", f"--log-file={place}.log"]
        words = [*self.hosts.on(at), "glusterfs", "--no-daemon", *options, str(place)]
        self.mounts.append((place, subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)))
        patiently(lambda: is_mounted(place))
        return place

    def destroy(self) -> None:
        for place, process in self.mounts:
            subprocess.run(["umount", "--lazy", str(place)], capture_output=True, check=False)
            end(process)
        for daemon in self.daemons:
            daemon.kill()
            daemon.wait()
        shutil.rmtree(self.directory, ignore_errors=True)


def is_mounted(place: Path) -> None:
    """Raises an error while nothing that answers is mounted there."""
    if not place.is_mount():
        raise RuntimeError(f"nothing is mounted at {place}")
    list(place.iterdir())


def patiently(attempt: Callable[[], object]) -> None:
    """Tries until there is no error any more."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            attempt()
            return
        except (RuntimeError, OSError):
            if time.monotonic() > until:
                raise
            time.sleep(0.2)


@contextmanager
def minio(directory: Path, hosts: Hosts) -> Iterator[Peer]:
    """Yields MinIO on all hosts, with its default for four drives: two parts of data and two of parity."""
    program = minio_command()
    if program is None:
        raise Missing("no MinIO (`go install github.com/minio/minio@latest`)")
    environment = os.environ | {"MINIO_ROOT_USER": "benchbench", "MINIO_ROOT_PASSWORD": "benchbench"}
    environment |= {"MINIO_BROWSER": "off", "MINIO_UPDATE": "off", "MINIO_CI_CD": "on"}
    drives = [f"http://{name}:9000{directory}/m{at}" for at, name in enumerate(hosts.names)]
    with ExitStack() as stack:
        for at in range(hosts.count):
            (directory / f"m{at}").mkdir(parents=True)
            words = [*hosts.on(at), program, "server", "--quiet", "--address", f"{hosts.names[at]}:9000", *drives]
            with open(directory / f"m{at}.log", "wb") as log:
                server = subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            stack.callback(end, server)
        peer = Peer(f"http://{hosts.names[0]}:9000", "benchbench", "benchbench")
        wait_for(peer, server)
        yield peer


@contextmanager
def ceph(directory: Path) -> Iterator[dict[str, str]]:
    """Yields where a Ceph of three devices is, with a pool of two copies; all of it on the loopback device."""
    words = ["/usr/bin/python3", str(ROOT / "scripts/ceph_cluster.py"), str(directory)]
    cluster = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        said = cluster.stdout.readline()
        if not said.startswith("{"):
            raise Missing(said.strip() or "Ceph did not start")
        yield json.loads(said)
    finally:
        cluster.stdin.close()
        cluster.wait(PATIENCE_S)
        cluster.stdout.close()
