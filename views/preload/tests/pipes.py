"""Bytes moved through pipes by `splice`, from and to files; run in a store and in a plain directory."""

import errno
import fcntl
import os
import threading
from collections.abc import Callable

F_CREATED_QUERY = 1028
VALUE = bytes(range(256)) * 2000


def tell(call: Callable[[], object]) -> object:
    """Returns the call's result, or the error."""
    try:
        return call()
    except OSError as error:
        return errno.errorcode[error.errno or 0]


def main() -> None:
    """Prints everything."""
    with open("a", "wb") as file:
        file.write(VALUE)
    source, target = os.open("a", os.O_RDONLY), os.open("b", os.O_RDWR | os.O_CREAT)
    r, w = os.pipe()
    print(os.splice(source, w, 5000), os.lseek(source, 0, os.SEEK_CUR))
    print(os.splice(r, target, 1 << 20), os.lseek(target, 0, os.SEEK_CUR))
    print(os.splice(source, w, 100, offset_src=7), os.lseek(source, 0, os.SEEK_CUR))
    print([os.splice(r, target, 60, offset_dst=at) for at in (10_000, 10_060)], os.lseek(target, 0, os.SEEK_CUR))
    print(os.pread(target, 1 << 20, 0) == VALUE[:5000] + bytes(5000) + VALUE[7:107])
    os.set_blocking(r, False)
    print("nothing there:", tell(lambda: os.splice(r, target, 10)))
    os.set_blocking(r, True)
    wrong = {
        "two files": lambda: os.splice(source, target, 10),
        "the wrong end": lambda: os.splice(w, target, 10),
        "the other wrong end": lambda: os.splice(source, r, 10),
        "not for writing": lambda: os.splice(r, source, 10),
        "a place in a pipe": lambda: os.splice(r, target, 10, offset_src=1),
        "no bytes": lambda: os.splice(r, target, 0),
        "no such flag": lambda: os.splice(r, target, 10, flags=1 << 10),
    }
    for what, call in wrong.items():
        print(what, tell(call))
    fcntl.fcntl(target, fcntl.F_SETFL, os.O_APPEND)
    print("to the end:", tell(lambda: os.splice(r, target, 10)))
    fcntl.fcntl(target, fcntl.F_SETFL, 0)
    os.lseek(source, 0, os.SEEK_SET)
    os.lseek(target, 0, os.SEEK_SET)
    os.ftruncate(target, 0)

    def feed() -> None:
        while os.splice(source, w, 1 << 20):
            pass
        os.close(w)

    # More bytes than fit: both ends wait for each other.
    feeder = threading.Thread(target=feed)
    feeder.start()
    while os.splice(r, target, 1 << 20):
        pass
    feeder.join()
    print(os.pread(target, 1 << 20, 0) == VALUE)
    # A program that opens a file can ask whether that created it, if the kernel supports it
    # (Linux 6.12).
    made = [fcntl.fcntl(os.open("n", os.O_RDWR | os.O_CREAT), F_CREATED_QUERY) for _ in range(2)]
    print(made, fcntl.fcntl(source, F_CREATED_QUERY))


main()
