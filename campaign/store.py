"""The campaign's store, through the `cenote` command: makes it, queries it, finds and kills its daemon, checks it."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

COMMAND_TIMEOUT_S = 300


class StoreFailed(RuntimeError):
    """The `cenote` command failed."""


class Store:
    """A store in a directory."""

    def __init__(self, binary: Path, directory: Path) -> None:
        self.binary = binary
        self.dir = directory

    def command(self, *arguments: str, accept: tuple[int, ...] = (0,)) -> str:
        """Runs a command of `cenote` on this store."""
        done = subprocess.run(
            [self.binary, "--store", self.dir, "--quiet", *arguments],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=COMMAND_TIMEOUT_S,
        )
        if done.returncode not in accept:
            raise StoreFailed(f"cenote {' '.join(arguments)} ended with code {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def create(self, tiers: list[dict]) -> None:
        """Makes the store from scratch, with these tiers, fastest first."""
        arguments = []
        for tier in tiers:
            spec = f"name={tier['name']},kind={tier['kind']},size={tier['size']}"
            if "path" in tier:
                path: Path = tier["path"]
                path.parent.mkdir(parents=True, exist_ok=True)
                spec += f",path={path}"
            arguments += ["--tier", spec]
        self.dir.parent.mkdir(parents=True, exist_ok=True)
        self.command("init", *arguments)

    def tiers(self) -> list[dict]:
        """The present state of the tiers."""
        return json.loads(self.command("tiers", "--json"))

    def flush(self) -> float:
        """Waits until everything survives power loss; returns the seconds it took."""
        begin = time.monotonic()
        self.command("flush")
        return time.monotonic() - begin

    def verify(self) -> dict:
        """Reads every byte in the store and checks it against its checksum."""
        return json.loads(self.command("verify", "--json", accept=(0, 3)))

    def daemons(self) -> list[int]:
        """Processes of this `cenote` that serve this store."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                program = (entry / "exe").readlink().name.removesuffix(" (deleted)")
                if program == self.binary.name and b"serve" in words and os.fsencode(self.dir) in words:
                    found.append(int(entry.name))
        return found

    def kill_daemon(self) -> int | None:
        """Kills the daemon without warning or clean-up, even one that is just starting. None if there is none."""
        killed = None
        for pid in sorted(self.daemons()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed = killed or pid
        return killed

    def destroy(self, tiers: list[dict]) -> None:
        """Removes the store and its tiers: by the command, which waits for a daemon that is exiting, else by hand."""
        with contextlib.suppress(StoreFailed, subprocess.TimeoutExpired, OSError):
            self.command("destroy", "--yes", "--force")
        shutil.rmtree(self.dir, ignore_errors=True)
        for tier in tiers:
            if "path" in tier:
                shutil.rmtree(tier["path"], ignore_errors=True)
                tier["path"].unlink(missing_ok=True)
