"""What `openat2` opens and refuses, of directories and links; run in a store and in a plain directory."""

import ctypes
import errno
import itertools
import os
import struct

libc = ctypes.CDLL(None, use_errno=True)
NO_MAGICLINKS, NO_SYMLINKS, BENEATH, IN_ROOT, NEVER_HEARD_OF = 2, 4, 8, 16, 64
BOUNDS = (
    0,
    NO_MAGICLINKS,
    NO_SYMLINKS,
    BENEATH,
    IN_ROOT,
    BENEATH | NO_SYMLINKS,
    IN_ROOT | NO_SYMLINKS,
    BENEATH | IN_ROOT,
)
LINKS = {
    "down": "in/deep",
    "up": "../outside",
    "root": "/file",
    "in/back": "../../in/../file",
    "in/around": "deep/../../file",
    "loop": "loop",
    "dangling": "none",
    "nowhere": "/none",
}
PATHS = [
    *("file", "./in//file", "in/../file", "../outside", "in/deep/../../../outside", "down/../file", *LINKS),
    *("/file", "//in/file", "/../file", "/down/file", "/in/back", "/up", "/", "//", "..", "../..", "/..", "."),
    *("down/file", "down/", "none", "in/none", "none/x", "file/", "file/x", "in/", "x" * 300, ""),
]
MAKE = os.O_RDWR | os.O_CREAT
FLAGS = os.O_RDONLY, os.O_NOFOLLOW, os.O_DIRECTORY, os.O_PATH | os.O_NOFOLLOW, MAKE, MAKE | os.O_EXCL


def opened(top: int, path: str, flags: int, resolve: int) -> str:
    """Returns the target, or the error."""
    how = struct.pack("QQQ", flags, 0o600 if flags & os.O_CREAT else 0, resolve)
    fd = libc.syscall(437, top, path.encode(), how, len(how))
    if fd < 0:
        return errno.errorcode[ctypes.get_errno()]
    try:
        if flags & os.O_PATH:
            return oct(os.fstat(fd).st_mode)
        return f"lists {sorted(os.listdir(fd))}" if flags & os.O_DIRECTORY else f"reads {os.read(fd, 99)!r}"
    except OSError as error:
        return f"opens, {errno.errorcode[error.errno]}"
    finally:
        os.close(fd)


def main() -> None:
    """Prints everything."""
    os.makedirs("top/in/deep")
    for path in ("outside", "top/file", "top/in/file", "top/in/deep/file"):
        with open(path, "w") as file:
            file.write(path)
    for name, target in LINKS.items():
        os.symlink(target, f"top/{name}")
    top = os.open("top", os.O_RDONLY)
    for resolve, path, flags in itertools.product((*BOUNDS, NEVER_HEARD_OF), PATHS, FLAGS):
        # Absolute targets start at the machine's own root.
        leaves = path.startswith("/") or path in ("root", "nowhere", "../..")
        if (leaves and not resolve & (BENEATH | IN_ROOT)) or (flags & os.O_CREAT and path.endswith((".", "/"))):
            continue
        print(resolve, path[:30], flags, opened(top, path, flags, resolve))
        for made in ("top/none", "top/in/none"):
            if os.path.lexists(made):
                print("  made", made)
                os.unlink(made)


main()
