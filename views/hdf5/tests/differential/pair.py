"""The two processes: starts them, gives them the same orders, compares their answers."""

import dataclasses
import os
import pathlib
import select
import subprocess
import sys

TESTS = pathlib.Path(__file__).parent.parent
PATIENCE_S = 120


@dataclasses.dataclass
class Difference:
    """The first line that differs, and those before it."""

    before: list
    native: str
    cenote: str

    def kind(self):
        """A rough kind of difference: the operation and both outcomes."""
        if self.native.startswith(" "):  # within the content of a file
            return ("a file's content",)
        return tuple(
            " ".join(line.split()[1:2] + line.split("->")[-1].split()[:1]) for line in (self.native, self.cenote)
        )


class Worker:
    """One process, which is restarted after it died."""

    def __init__(self, where, environment, library, without):
        self.where, self.environment, self.arguments = where, environment, [library, without]
        self.process = None
        where.mkdir(exist_ok=True)

    def order(self, line):
        """Sends it an episode."""
        if self.process is None or self.process.poll() is not None:
            self._start("")
        self.process.stdin.write(line)
        self.process.stdin.flush()

    def _start(self, aloud):
        command = [sys.executable, "-W", "ignore", "-m", "differential.worker", *self.arguments, aloud]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen(command, cwd=self.where, env=self.environment, **pipes)

    def answer(self):
        """Its lines; a line that says so if it died or hangs."""
        out = self.process.stdout
        if not select.select([out], [], [], PATIENCE_S)[0]:
            self.stop()
            return ["it hangs"]
        size = out.readline()
        text = out.read(int(size)) if size else b""
        if not size:
            code = self.process.wait()
            self.stop()
            return [f"it died, {code}"]
        return text.decode(errors="backslashreplace").split("\n")

    def aloud(self, line, target=None):
        """Runs one episode in a process that notes each step beforehand; returns all notes."""
        self.stop()
        note = pathlib.Path(target or self.where / "aloud")
        if not target:
            note.unlink(missing_ok=True)
        self._start(str(note))
        self.process.stdin.write(line)
        self.process.stdin.flush()
        self.answer()
        self.stop()
        return [] if target else note.read_text().splitlines()

    def stop(self):
        """Ends the process."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process.stdin.close(), self.process.stdout.close()
            self.process = None


class Pair:
    """A process on native HDF5 and one on Cenote."""

    def __init__(self, where, store, library, without):
        from test_data import connector, environment

        self.store, self.command = store or where / "store", connector()[1]
        plain = {k: v for k, v in environment(None).items()} | {"PYTHONPATH": os.fspath(TESTS)}
        ours = environment(self.store) | {"PYTHONPATH": os.fspath(TESTS)}
        self.native = Worker(where / "native", plain, library, without)
        self.cenote = Worker(where / "cenote", ours, library, without)
        self.native_deaths = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.native.stop(), self.cenote.stop()
        if self.command:
            subprocess.run(
                [self.command, "--store", self.store, "destroy", "--yes", "--force"], capture_output=True, check=False
            )

    def run(self, seed, count, steps="-"):
        """Runs one episode; returns the first difference, if any."""
        order = f"{seed} {count} {steps} brief\n".encode()
        want, have = self._answers(order)
        if want == have:
            return None
        if self._of_digests(want, have):  # once more, with the whole content of files
            again = self._answers(f"{seed} {count} {steps} full\n".encode())
            want, have = again if again[0] != again[1] else (want, have)
        if len(want) == 1 and want[0].startswith("it died") and len(have) > 1:
            self.native_deaths.append(f"episode {seed}: {self._death(self.native, want, order)[-1]}")
            self.forget()
            return None
        if len(want) == 1 or len(have) == 1:
            want = self._death(self.native, want, order)
            have = self._death(self.cenote, have, order)
            return Difference([], *(f"{lines[-1]}" for lines in (want, have)))
        at = next(i for i, (a, b) in enumerate(zip(want, have, strict=False)) if a != b)
        return Difference(want[:at], want[at], have[at])

    def _answers(self, order):
        self.native.order(order), self.cenote.order(order)
        return self.native.answer(), self.cenote.answer()

    @staticmethod
    def _of_digests(want, have):
        """True if the first difference is in the digest of a file."""
        first = next((a for a, b in zip(want, have, strict=False) if a != b), "")
        return " lines " in first

    def aloud(self, seed, count, steps):
        """Runs one episode, printing each step beforehand, and HDF5's errors: natively, then on Cenote."""
        order = f"{seed} {count} {steps} full\n".encode()
        for worker in (self.native, self.cenote):
            print(f"== {worker.where.name}", file=sys.stderr, flush=True)
            worker.environment["DIFFERENTIAL_ERRORS"] = "1"
            worker.aloud(order, "/dev/stderr")

    def forget(self):
        """Starts new processes: after a difference something may have stayed open."""
        self.native.stop(), self.cenote.stop()

    @staticmethod
    def _death(worker, lines, order):
        if len(lines) > 1:
            return ["it lived"]
        return [f"{lines[0]}, in: {worker.aloud(order)[-1]}"]
