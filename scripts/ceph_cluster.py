#!/usr/bin/python3
"""Starts a real Ceph cluster for the tests: one monitor, one manager, three devices, on this machine alone.

All of it listens on 127.0.0.1 on free ports, keeps its files in one directory, which is deleted at the end (unless KEEP
is set), and needs neither root nor systemd. Exits with 77, and the reason, if Ceph is not installed (packages ceph-mon,
ceph-mgr, ceph-osd, ceph-common).

    python3 scripts/ceph_cluster.py DIRECTORY      one line of JSON says where the cluster is; it runs until standard
                                                   input is closed, and takes commands there: `kill osd.0`,
                                                   `start osd.0`, `stop mon` (SIGSTOP), `continue mon`; each is
                                                   answered by a line
    python3 scripts/ceph_cluster.py run -- COMMAND runs a command beside a cluster, which the command finds in
                                                   CENOTE_TEST_CEPH=POOL@CONF and CENOTE_TEST_CEPH_EC=POOL

Pools: `data` (two copies) and `ec` (erasure code 2+1). Users besides `admin`: `cenote`, who may do in both what a tier
or a store needs; `reader`, who may only read.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

SKIPPED = 77
DEVICES = 3
PROGRAMS = ("ceph-mon", "ceph-mgr", "ceph-osd", "ceph", "rados", "monmaptool")
CONF = """[global]
fsid = {fsid}
mon_host = [v2:127.0.0.1:{port}]
keyring = {directory}/keyring
auth_cluster_required = cephx
auth_service_required = cephx
auth_client_required = cephx
ms_bind_msgr1 = false
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
run_dir = {directory}
log_file = {directory}/$name.log
admin_socket = {directory}/$name.asok
mon_data = {directory}/mon
mgr_data = {directory}/mgr
osd_data = {directory}/osd.$id
crash_dir = {directory}
mon_allow_pool_delete = true
mon_tick_interval = 1
paxos_propose_interval = 0.1
mon_osd_min_down_reporters = 1
mon_data_avail_crit = 1
mgr_initial_modules =
mgr_stats_period = 1
mgr_tick_period = 1
osd_objectstore = {store}
bluestore_block_size = 4294967296
bluestore_cache_size = 67108864
memstore_device_bytes = 4294967296
osd_class_load_list = *
osd_crush_chooseleaf_type = 0
osd_pool_default_pg_autoscale_mode = off
osd_pool_default_size = 2
osd_pool_default_min_size = 1
osd_heartbeat_interval = 1
osd_heartbeat_grace = 4
osd_recovery_sleep_hdd = 0
osd_recovery_sleep_hybrid = 0
osd_mclock_profile = high_recovery_ops
[client]
log_file =
admin_socket =
objecter_tick_interval = 1
objecter_timeout = 3
"""
# What each may do; all of them know each other from the first moment on.
CAPS = {
    "mon.": {"mon": "allow *"},
    "client.admin": {"mon": "allow *", "osd": "allow *", "mgr": "allow *"},
    "mgr.x": {"mon": "allow profile mgr", "osd": "allow *", "mds": "allow *"},
    "client.cenote": {"mon": "allow r", "osd": "allow rw pool=data, allow rw pool=ec"},
    "client.reader": {"mon": "allow r", "osd": "allow r pool=data, allow r pool=ec"},
} | {f"osd.{n}": {"mon": "allow profile osd", "osd": "allow *", "mgr": "allow profile osd"} for n in range(DEVICES)}
POOLS = """osd erasure-code-profile set ec21 k=2 m=1 crush-failure-domain=osd
osd pool create data 8 8 replicated
osd pool create ec 8 8 erasure ec21
osd pool set ec min_size 2
osd pool application enable data cenote
osd pool application enable ec cenote
"""


def new_key() -> str:
    """A key as `ceph-authtool` makes it: its kind, when it was made, its length, and 16 random bytes."""
    return base64.b64encode(struct.pack("<HIIH", 1, int(time.time()), 0, 16) + os.urandom(16)).decode()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Cluster:
    """The started daemons, which are stopped one by one."""

    def __init__(self, directory: Path, store: str = "bluestore") -> None:
        self.directory = directory
        self.conf = directory / "ceph.conf"
        self.fsid = str(uuid.uuid4())
        self.port = free_port()
        self.daemons: dict[str, subprocess.Popen] = {}
        self.conf.write_text(CONF.format(fsid=self.fsid, port=self.port, directory=directory, store=store))
        keyring = directory / "keyring"
        keyring.touch(0o600)
        with keyring.open("w") as out:
            for name, caps in CAPS.items():
                out.write(f"[{name}]\n\tkey = {new_key()}\n")
                out.writelines(f'\tcaps {daemon} = "{may}"\n' for daemon, may in caps.items())

    def run(self, program: str, *args: str, text: str | None = None, seconds: float = 60) -> str:
        """Runs a program of Ceph's; its output, or an error with what it says."""
        done = subprocess.run(
            [program, "--conf", str(self.conf), *args],
            input=text,
            stdin=subprocess.DEVNULL if text is None else None,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{program} {' '.join(args)} failed: {done.stderr or done.stdout}")
        return done.stdout

    def begin(self, program: str, *args: str) -> subprocess.Popen:
        with (self.directory / f"{program}.out").open("ab") as log:
            command = [program, "--conf", str(self.conf), *args]
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)

    def start(self, name: str) -> None:
        """Starts a daemon: `mon`, `mgr` or `osd.NUMBER`."""
        kind, _, number = name.partition(".")
        self.daemons[name] = self.begin(f"ceph-{kind}", "-f", "-i", number or {"mon": "a", "mgr": "x"}[kind])

    def kill(self, name: str, how: int = signal.SIGKILL) -> None:
        daemon = self.daemons[name]
        if daemon.poll() is None:
            daemon.send_signal(how)
            if how == signal.SIGKILL:
                daemon.wait()

    def up(self) -> None:
        """Makes the cluster and returns when both pools take objects."""
        monmap = str(self.directory / "monmap")
        address = f"[v2:127.0.0.1:{self.port}]"
        subprocess.run(
            ["monmaptool", "--create", "--fsid", self.fsid, "--addv", "a", address, monmap],
            check=True,
            capture_output=True,
        )
        for name in ("mon", "mgr", *(f"osd.{n}" for n in range(DEVICES))):
            (self.directory / name).mkdir()
        self.run("ceph-mon", "--mkfs", "-i", "a", "--monmap", monmap, "--keyring", str(self.directory / "keyring"))
        self.start("mon")
        ids = [str(uuid.uuid4()) for _ in range(DEVICES)]
        made = [
            self.begin("ceph-osd", "-i", str(n), "--mkfs", "--osd-uuid", one, "--no-mon-config")
            for n, one in enumerate(ids)
        ]
        self.start("mgr")
        self.run("ceph", text="".join(f"osd new {one} {n}\n" for n, one in enumerate(ids)) + POOLS)
        for n, one in enumerate(made):
            if one.wait(60) != 0:
                raise RuntimeError(f"device {n} cannot be made: {(self.directory / 'ceph-osd.out').read_text()}")
            self.start(f"osd.{n}")
        probe = self.directory / "probe"
        probe.write_bytes(b"probe")
        for pool in ("data", "ec"):
            self.run("rados", "-p", pool, "put", "probe", str(probe))
            self.run("rados", "-p", pool, "rm", "probe")

    def down(self) -> None:
        for name in reversed(self.daemons):
            self.kill(name)

    def where(self) -> dict[str, str]:
        return {"conf": str(self.conf), "keyring": str(self.directory / "keyring"), "pool": "data", "ec": "ec"}

    def obey(self, line: str) -> None:
        """Carries out a command of the tests."""
        verb, name = line.split()
        if verb == "start":
            self.start(name)
        else:
            self.kill(name, {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "continue": signal.SIGCONT}[verb])


def serve(cluster: Cluster) -> int:
    print(json.dumps(cluster.where()), flush=True)
    for line in sys.stdin:
        cluster.obey(line)
        print("done", flush=True)
    return 0


def beside(cluster: Cluster, command: list[str]) -> int:
    where = cluster.where()
    environment = os.environ | {
        "CENOTE_TEST_CEPH": f"{where['pool']}@{where['conf']}",
        "CENOTE_TEST_CEPH_EC": where["ec"],
        "CEPH_CONF": where["conf"],
    }
    return subprocess.run(command, env=environment, check=False).returncode


def main(args: list[str]) -> int:
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        print(f"Ceph is not installed: no {', '.join(missing)} (packages ceph-mon ceph-mgr ceph-osd ceph-common)")
        return SKIPPED
    command = args[2:] if args[:2] == ["run", "--"] else None
    directory = Path(tempfile.mkdtemp(prefix="cenote-ceph-") if command else args[0]).absolute()
    directory.mkdir(parents=True, exist_ok=command is not None)
    cluster = Cluster(directory, os.environ.get("CENOTE_TEST_CEPH_STORE", "bluestore"))
    # A termination must remove everything as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        cluster.up()
        return beside(cluster, command) if command else serve(cluster)
    finally:
        cluster.down()
        if "KEEP" not in os.environ:
            shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
