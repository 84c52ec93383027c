"""Runs programs as separate processes and reads their progress."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from campaign.places import Place
from campaign.settings import ROOT

TIMEOUT_S = 900
POLL_S = 0.02
TAIL_LINES = 15


class ProgramFailed(RuntimeError):
    """A program failed, or did not finish."""


@dataclass
class Program:
    """A program: its module in `campaign.programs`, its arguments, and where it runs."""

    label: str
    module: str
    arguments: list[str]
    place: Place
    logs: Path
    result_file: Path | None = None
    progress: tuple[float, float] = (0.0, 1.0)
    process: subprocess.Popen | None = None
    begin: float = 0.0
    listener: threading.Thread | None = field(default=None, repr=False)

    def start(self) -> None:
        """Starts the process."""
        self.logs.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", f"campaign.programs.{self.module}", *self.arguments]
        with self.log_file.open("w") as log:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=self.place.child_environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.begin = time.monotonic()
        self.listener = threading.Thread(target=self._listen, daemon=True)
        self.listener.start()

    @property
    def log_file(self) -> Path:
        """The file with the program's standard error."""
        return self.logs / f"{self.place.name}-{self.label.replace(' ', '-')}.log"

    def _listen(self) -> None:
        for line in self.process.stdout:
            try:
                said = json.loads(line)
                self.progress = (said["done"], said["of"])
            except (ValueError, KeyError, TypeError):
                continue

    def ended(self) -> bool:
        """True once it has finished successfully; an error if it failed or takes too long."""
        code = self.process.poll()
        if code is None and time.monotonic() - self.begin > TIMEOUT_S:
            self.stop()
            raise ProgramFailed(self._story(f"did not end within {TIMEOUT_S} s"))
        if code is None:
            return False
        if code != 0:
            how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
            raise ProgramFailed(self._story(how))
        self.listener.join()
        return True

    def _story(self, how: str) -> str:
        tail = "\n".join(f"    {line}" for line in self.log_file.read_text().splitlines()[-TAIL_LINES:])
        return f"{self.label} on {self.place.title} {how}; its last words (all in {self.log_file}):\n{tail}"

    def stop(self) -> None:
        """Kills the process if it still runs."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def result(self) -> dict:
        """The content of its result file."""
        return json.loads(self.result_file.read_text())


def run_all(programs: list[Program], at_once: int, watch: Callable[[float], None] = lambda share: None) -> float:
    """Runs programs, some at once; `watch` gets the finished share. Returns the total seconds."""
    begin = time.monotonic()
    waiting, running = list(programs), []
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                running.append(waiting.pop(0))
                running[-1].start()
            running = [program for program in running if not program.ended()]
            watch(sum(done / of for done, of in (program.progress for program in programs)) / len(programs))
            time.sleep(POLL_S)
    finally:
        for program in running:
            program.stop()
    return time.monotonic() - begin
