"""Hosts on one machine: network namespaces with a link each, on one bridge.

They share processors, memory and disks, and see the same files; only what they say to each other goes over the links.
"""

import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

# Others may have the first number.
TRIES, STEP, NUMBERS = 20, 13, 250


class Missing(Exception):
    """Something that is not on this machine; says what to install."""


def need_root() -> None:
    """Raises `Missing` with the reason if hosts and mounts cannot be made here."""
    if os.geteuid():
        raise Missing("needs root, for network namespaces")
    for program in ("ip", "nsenter", "unshare"):
        if shutil.which(program) is None:
            raise Missing(f"needs `{program}` (Debian: iproute2 util-linux)")
    if not Path("/dev/fuse").exists():
        raise Missing("needs /dev/fuse")


def ip(words: str) -> bool:
    """Runs `ip`; returns whether it did as told."""
    return subprocess.run(["ip", *words.split()], capture_output=True, check=False).returncode == 0


class Hosts:
    """So many hosts; a context manager. A host's name is its address."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.bridge = ""
        self.names: list[str] = []

    def __enter__(self) -> Self:
        for attempt in range(TRIES):
            number = (os.getpid() + attempt * STEP) % NUMBERS
            if ip(f"link add cenote{number} type bridge"):
                break
        else:
            raise Missing("this machine makes no bridge (`ip link add NAME type bridge`)")
        self.bridge = f"cenote{number}"
        try:
            self.connect(number)
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.remove()

    def connect(self, number: int) -> None:
        """Makes the hosts and their links."""
        bridge = self.bridge
        words = [f"addr add 10.77.{number}.254/24 dev {bridge}", f"link set {bridge} up"]
        for at in range(1, self.count + 1):
            name = f"10.77.{number}.{at}"
            self.names.append(name)
            words += [
                f"netns add {name}",
                f"link add {bridge}v{at} type veth peer name eth0 netns {name}",
                f"link set {bridge}v{at} master {bridge} up",
                f"-n {name} addr add {name}/24 dev eth0",
                f"-n {name} link set eth0 up",
                f"-n {name} link set lo up",
            ]
        for line in words:
            if not ip(line):
                raise Missing(f"this machine refuses `ip {line}`")

    def remove(self) -> None:
        for name in self.names:
            ip(f"netns del {name}")
        ip(f"link del {self.bridge}")

    def on(self, host: int) -> list[str]:
        """Returns what begins a command on a host, counted from 0. Unlike `ip netns exec`, all see its mounts."""
        return enter(self.names[host])


def enter(name: str) -> list[str]:
    """Returns what begins a command on the host with that name."""
    return ["nsenter", f"--net=/run/netns/{name}"]
