"""A comparable description of everything below a directory. A program, so that it can run in the programs' place:

    python3 tree.py DIRECTORY [PATTERN...]      patterns of what is left out

It needs only Python's standard library.
"""

import fnmatch
import hashlib
import json
import os
import stat
import sys


def snapshot(root: str, without: list[str]) -> dict[str, list]:
    """Returns, by path: kind, permissions, size, bytes or target, second of last change, first name of the file."""
    found: dict[str, list] = {}
    first: dict[tuple[int, int], str] = {}
    ways = [""]
    while ways:
        way = ways.pop()
        for name in sorted(os.listdir(os.path.join(root, way))):
            path = os.path.join(way, name)
            if any(fnmatch.fnmatch(path, pattern) for pattern in without):
                continue
            found[path] = one(root, path, first)
            if found[path][0] == "dir":
                ways.append(path)
    return found


def one(root: str, path: str, first: dict[tuple[int, int], str]) -> list:
    """Describes one file."""
    at = os.path.join(root, path)
    what = os.lstat(at)
    mode, seconds = stat.S_IMODE(what.st_mode), what.st_mtime_ns // 10**9
    if stat.S_ISDIR(what.st_mode):
        return ["dir", mode, 0, "", seconds, ""]
    if stat.S_ISLNK(what.st_mode):
        return ["link", mode, 0, os.readlink(at), 0, ""]
    if not stat.S_ISREG(what.st_mode):
        return ["other", mode, 0, str(what.st_rdev), seconds, ""]
    same = first.setdefault((what.st_dev, what.st_ino), path) if what.st_nlink > 1 else ""
    with open(at, "rb") as file:
        sum_of = hashlib.file_digest(file, "sha256").hexdigest()
    return ["file", mode, what.st_size, sum_of, seconds, same]


FIELDS = ("kind", "permissions", "size", "bytes", "time", "hard link")


def differences(mine: dict[str, list], theirs: dict[str, list], timed: list[str], began: float) -> list[str]:
    """Returns the differences, a line each.

    timed: patterns of files whose times are compared, unless both are later than `began`: the clock set those.
    """
    found = [f"{path}: missing" for path in sorted(set(mine) - set(theirs))]
    found += [f"{path}: too many" for path in sorted(set(theirs) - set(mine))]
    for path in sorted(set(mine) & set(theirs)):
        for field, a, b in zip(FIELDS, mine[path], theirs[path], strict=True):
            if field == "time" and (min(a, b) >= began or not any(fnmatch.fnmatch(path, one) for one in timed)):
                continue
            if a != b:
                found.append(f"{path}: {field}: {a} and {b}")
    return found


if __name__ == "__main__":
    json.dump(snapshot(sys.argv[1], sys.argv[2:]), sys.stdout)
