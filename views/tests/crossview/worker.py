"""A view in a process of its own: calls come by standard input, answers go to standard output."""

import os
import pickle
import subprocess
import sys
import threading
import traceback
from pathlib import Path

KINDS = ("mount", "files", "fsspec", "s3", "hdf5", "zarr")
# How long a call may take before the view counts as hanging. Docs promise 30 s for the worst.
PATIENCE_S = 120


class Hangs(Exception):
    """A view did not answer."""


class Worker:
    """The calling side: `worker.call(name, ...)` gives ("ok", value), ("error", errno, text) or ("bug", text)."""

    def __init__(self, kind: str, arguments: tuple, environment: dict[str, str] | None = None) -> None:
        self.kind = kind
        package = Path(__file__).parent
        self.process = subprocess.Popen(
            [sys.executable, "-m", f"{package.name}.worker", kind],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=package.parent,
            env=os.environ | (environment or {}),
        )
        self.send("", arguments)
        answer = self.receive()
        if answer[0] != "ok":
            raise RuntimeError(f"{kind}: {answer[-1]}")

    def send(self, name: str, arguments: tuple) -> None:
        pickle.dump((name, arguments), self.process.stdin)
        self.process.stdin.flush()

    def receive(self) -> tuple:
        late = threading.Timer(PATIENCE_S, self.process.kill)
        late.start()
        try:
            return pickle.load(self.process.stdout)
        except EOFError as error:
            raise Hangs(f"{self.kind}: its process is gone, or was killed after {PATIENCE_S} s") from error
        finally:
            late.cancel()

    def call(self, name: str, *arguments: object) -> tuple:
        self.send(name, arguments)
        return self.receive()

    def end(self) -> None:
        """Ends the process."""
        self.process.stdin.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


def made(kind: str, arguments: tuple) -> object:
    """The view of a kind. Imported here: each process loads what it needs."""
    match kind:
        case "mount":
            from .posix import PosixView as View
        case "files":
            from .files import FilesView as View
        case "fsspec":
            from .fsspec_view import FsspecView as View
        case "s3":
            from .s3 import S3View as View
        case "hdf5":
            from .hdf5_view import Hdf5View as View
        case "zarr":
            from .zarr_view import ZarrView as View
        case _:
            raise ValueError(kind)
    return View(*arguments)


def answer(view: object, name: str, arguments: tuple) -> tuple:
    """What a call gives, as something to be sent."""
    try:
        if name == "see_all":
            return "ok", [view.see(path) for path in arguments[0]]
        return "ok", getattr(view, name)(*arguments)
    except OSError as error:
        return "error", error.errno, f"{type(error).__name__}: {error}"
    except Exception as error:
        refused = type(error).__module__.startswith(("cenote", "zarr")) or isinstance(error, (KeyError, ValueError))
        return "refused" if refused else "bug", None, traceback.format_exc()


def main() -> None:
    calls, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    view = None
    while True:
        try:
            name, arguments = pickle.load(calls)
        except EOFError:
            break
        if not name:
            try:
                view, said = made(sys.argv[1], arguments), ("ok", None)
            except Exception:
                said = "bug", None, traceback.format_exc()
        else:
            said = answer(view, name, arguments)
        pickle.dump(said, answers)
        answers.flush()


if __name__ == "__main__":
    main()
