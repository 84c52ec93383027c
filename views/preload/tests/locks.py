"""Prints the effects of advisory locks: run in a plain directory and by `cenote run`, it must print the same."""

import contextlib
import fcntl
import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

OFD_SETLK = 37
ASK = """
import fcntl, sys
f, kind, how, start, length = open("f", "r+b"), *sys.argv[1:]
try:
    if how == "whole":
        fcntl.flock(f, int(kind) | fcntl.LOCK_NB)
    else:
        fcntl.lockf(f, int(kind) | fcntl.LOCK_NB, int(length), int(start))
    print("yes")
except OSError as error:
    print("no", error.errno)
"""


def can(kind: int, how: str, start: int = 0, length: int = 0) -> str:
    """Returns whether another process can take such a lock."""
    words = [sys.executable, "-c", ASK, str(kind), how, str(start), str(length)]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()


def lock(kind: int, start: int = 0, length: int = 0, whence: int = 0, pid: int = 0) -> bytes:
    """A `struct flock`."""
    return struct.pack("hhqqi4x", kind, whence, start, length, pid)


@contextlib.contextmanager
def refused(what: str):
    """Prints the error number."""
    try:
        yield
        print(what, "works")
    except OSError as error:
        print(what, error.errno)


def after_exec(last: int, copy: int) -> None:
    """Continues as another program in the same process."""
    print(
        "after exec:", can(fcntl.LOCK_EX, "range", 2, 3), can(fcntl.LOCK_EX, "range", 7, 1), can(fcntl.LOCK_SH, "whole")
    )
    os.close(copy)
    os.close(last)
    print("closed:", can(fcntl.LOCK_EX, "range", 2, 3), can(fcntl.LOCK_EX, "whole"))


def of_processes(f) -> None:
    """Range locks of a process."""
    fcntl.lockf(f, fcntl.LOCK_EX, 3, 2)
    print(can(fcntl.LOCK_EX, "range", 2, 1), can(fcntl.LOCK_SH, "range", 0, 2), can(fcntl.LOCK_EX, "range", 5, 0))
    for kind, start, length, whence in ((fcntl.F_WRLCK, 0, 0, 0), (fcntl.F_RDLCK, -4, 4, 2), (fcntl.F_UNLCK, 0, 0, 0)):
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            with refused("asked"):
                told = fcntl.fcntl(f, fcntl.F_GETLK, lock(kind, start, length, whence))
                *found, pid = struct.unpack("hhqqi4x", told)
                print("in the way:", found, pid == os.getppid())
            sys.stdout.flush()
            os._exit(0)
        os.waitpid(child, 0)
    with open("f"):
        pass
    print("another descriptor closed:", can(fcntl.LOCK_EX, "range", 2, 1))


def of_open_files(f, g) -> None:
    """Range locks of open files: two open files are separate owners; duplicates and children share."""
    fcntl.flock(f, fcntl.LOCK_EX)
    with refused("two open files:"):
        fcntl.flock(g, fcntl.LOCK_SH | fcntl.LOCK_NB)
    copy = os.dup(f.fileno())
    fcntl.flock(copy, fcntl.LOCK_SH)
    print("by a copy:", can(fcntl.LOCK_SH, "whole"), can(fcntl.LOCK_EX, "whole"))
    os.close(copy)
    fcntl.fcntl(f, OFD_SETLK, lock(fcntl.F_WRLCK))
    with refused("ranges of two open files:"):
        fcntl.fcntl(g, OFD_SETLK, lock(fcntl.F_WRLCK))
    fcntl.fcntl(f, OFD_SETLK, lock(fcntl.F_UNLCK))


def wrong(f) -> None:
    """Requests that every file system refuses."""
    for command, asked in (
        (OFD_SETLK, lock(fcntl.F_WRLCK, pid=1)),
        (fcntl.F_SETLK, lock(9)),
        (fcntl.F_SETLK, lock(fcntl.F_WRLCK, length=-1)),
        (fcntl.F_SETLK, lock(fcntl.F_WRLCK, whence=7)),
    ):
        with refused("wrong:"):
            fcntl.fcntl(f, command, asked)
    with refused("read only:"), open("f", "rb") as only:
        fcntl.lockf(only, fcntl.LOCK_EX | fcntl.LOCK_NB)
    dir = os.open(".", os.O_PATH)
    with refused("a path:"):
        fcntl.flock(dir, fcntl.LOCK_EX)
    os.close(dir)


def waits(f, g) -> None:
    """A signal ends a wait, and its handler can use the store; a waiting process gets the lock."""

    def heard(*_):
        Path("by handler").mkdir()
        raise TimeoutError

    signal.signal(signal.SIGALRM, heard)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        fcntl.flock(g, fcntl.LOCK_EX)
    except TimeoutError:
        print("interrupted:", sorted(path.name for path in Path.cwd().iterdir()))
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        begun = time.monotonic()
        fcntl.flock(g, fcntl.LOCK_EX)
        print("waited", time.monotonic() - begun > 0.2)
        sys.stdout.flush()
        os._exit(0)
    time.sleep(0.5)
    fcntl.flock(f, fcntl.LOCK_UN)
    os.waitpid(child, 0)
    fcntl.flock(g, fcntl.LOCK_UN)


def main() -> None:
    """Prints the results, then executes itself."""
    if len(sys.argv) > 1:
        after_exec(int(sys.argv[1]), int(sys.argv[2]))
        return
    with open("f", "wb") as made:
        made.write(b"0123456789")
    with open("f", "r+b") as f, open("f", "r+b") as g:
        of_processes(f)
        of_open_files(f, g)
        wrong(f)
        waits(f, g)
    last = os.open("f", os.O_RDWR)
    fcntl.lockf(last, fcntl.LOCK_EX, 3, 2)
    fcntl.flock(last, fcntl.LOCK_EX)
    copy = os.dup(last)
    for fd in (last, copy):
        os.set_inheritable(fd, True)
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, __file__, str(last), str(copy)])


main()
