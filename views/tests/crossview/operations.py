"""Random operations: which, by which view, on what."""

import collections
import os
import random
import stat
from collections.abc import Callable

from scripts.workload import steps

from .oracle import Oracle, is_text

LONG = "z" * 200
# Few, so that operations meet; among them what encodings, patterns and orders trip over.
NAMES = ("a", "b", "c", "a-b", "a!", "é", "sp ace", "x.y", "%41+", "q?*", "[z]", "<&>\"'", "new\nline", LONG, "n\udcff")
MAGIC = "*?["
# Nodes in a container, above which more is deleted than made.
MANY = 40
PART_BYTES = 5 << 20
OLD_S = 1_000_000_000

# Weights of operations by view.
WEIGHTS: dict[str, dict[str, int]] = {
    "files": {
        "put": 8, "write": 6, "pwrite": 10, "pieces": 4, "append": 6, "truncate": 5, "punch": 3, "rename": 8, "copy": 5,
        "link": 4, "symlink": 3, "unlink": 7, "mkdir": 6, "rmdir": 4, "remove_all": 1, "chmod": 3, "utime": 2,
        "setxattr": 3, "removexattr": 2, "hold": 2, "write_held": 4, "drop": 2,
    },
    "mount": {
        "put": 3, "write": 8, "pwrite": 10, "pieces": 4, "append": 6, "mapped": 4, "truncate": 5, "punch": 3,
        "rename": 8, "copy": 5, "link": 4, "symlink": 3, "unlink": 7, "mkdir": 6, "rmdir": 4, "remove_all": 1,
        "chmod": 3, "utime": 2, "setxattr": 3, "removexattr": 2, "hold": 2, "write_held": 4, "drop": 2,
    },
    "fsspec": {
        "put": 10, "write": 8, "pwrite": 8, "append": 8, "in_transaction": 4, "rename": 6, "copy_whole": 6, "unlink": 7,
        "unlink_many": 2, "mkdir": 5, "rmdir": 4, "remove_all": 1,
    },
    "s3": {
        "put": 20, "put_new": 4, "put_over": 4, "copy_whole": 8, "unlink": 10, "unlink_many": 3, "mkdir": 5, "rmdir": 4,
    },
}  # fmt: skip
REMOVING = ("unlink", "unlink_many", "rmdir", "remove_all")


class Operations:
    """Draws operations that suit what is there."""

    def __init__(self, rng: random.Random, oracle: Oracle, container: str, with_xattrs: bool) -> None:
        self.rng, self.oracle, self.container, self.with_xattrs = rng, oracle, container, with_xattrs
        # In every other episode names come and go in the orders of `crates/workload`, besides those drawn one by one.
        order = steps(rng.getrandbits(62), 40, 400) if rng.random() < 0.5 else []
        self.to_put = collections.deque(number for is_put, number in order if is_put)
        self.to_go = collections.deque(number for is_put, number in order if not is_put)
        self.held: dict[int, str] = {}
        self.next_held = 0
        # All that is there: whoever changes the oracle says so by `look`.
        self.there: list[str] = []
        self.look()

    def look(self) -> None:
        """Takes in what is there."""
        self.there = self.oracle.paths(self.container)
        self.oracle.forget(self.there)

    def next(self, view: str) -> tuple[str, tuple]:
        """An operation for a view, with its arguments."""
        weights = dict(WEIGHTS[view])
        if len(self.there) > MANY:
            weights |= {name: weights[name] * 5 for name in REMOVING if name in weights}
        if not self.with_xattrs:
            weights.pop("setxattr", None)
            weights.pop("removexattr", None)
        while True:
            name = self.rng.choices(list(weights), list(weights.values()))[0]
            draw: Callable[[str], tuple | None] = getattr(self, f"draw_{name}")
            arguments = draw(view)
            if arguments is not None:
                return name, arguments

    # Paths.

    def suits(self, view: str, path: str) -> bool:
        """Whether a view can be given this path, by its rules."""
        if view == "s3":
            return is_text(path)
        if view == "fsspec":
            # Of links it has rules of its own.
            parts = path.split("/")
            ways = ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]
            return not any(os.path.islink(self.oracle.tree.at(way)) for way in ways)
        return True

    def pick(self, view: str, *kinds: str) -> str | None:
        """One that is there."""
        found = [path for path in self.there[1:] if (not kinds or self.kind(path) in kinds) and self.suits(view, path)]
        return self.rng.choice(found) if found else None

    def kind(self, path: str) -> str:
        mode = os.lstat(self.oracle.tree.at(path)).st_mode
        return {stat.S_IFDIR: "dir", stat.S_IFREG: "file"}.get(stat.S_IFMT(mode), "link")

    def place(self, view: str) -> str:
        """Where something may be or not."""
        while True:
            if self.to_put and self.rng.random() < 0.3:
                return f"{self.container}/step-{self.to_put.popleft()}"
            draw = self.rng.random()
            if draw < 0.35 and (found := self.pick(view)):
                return found
            if draw < 0.93:
                above = self.pick(view, "dir", "link") if self.rng.random() < 0.7 else None
                path = f"{above or self.container}/{self.rng.choice(NAMES)}"
            else:
                depth = self.rng.randrange(2, 4)
                path = "/".join([self.container, *(self.rng.choice(NAMES) for _ in range(depth))])
            if self.suits(view, path):
                return path

    def file(self, view: str) -> str | None:
        """Mostly a file that is there."""
        return (self.rng.random() < 0.9 and self.pick(view, "file")) or self.place(view)

    # Bytes.

    def size(self) -> int:
        draw = self.rng.random()
        if draw < 0.1:
            return 0
        if draw < 0.75:
            return self.rng.randrange(1, 5000)
        if draw < 0.97:
            return self.rng.randrange(1, 150_000)
        return self.rng.randrange(1, 1_500_000)

    def bytes(self, least: int = 0) -> bytes:
        size = max(self.size(), least)
        if self.rng.random() < 0.1:
            return bytes([self.rng.randrange(256)]) * size
        return self.rng.randbytes(size)

    def offset(self) -> int:
        return self.rng.choice((0, self.rng.randrange(5000), self.rng.randrange(150_000), 65536, 4096))

    # Operations.

    def draw_put(self, view: str) -> tuple:
        path = self.place(view)
        if view != "s3":
            return path, self.bytes()
        meta = (
            {"colour": self.rng.choice(("red", "blue")), "n": str(self.rng.randrange(9))}
            if self.rng.random() < 0.3
            else {}
        )
        return path, self.bytes(), meta

    def draw_put_new(self, view: str) -> tuple:
        return self.place(view), self.bytes()

    def draw_put_over(self, view: str) -> tuple:
        return self.file(view), self.bytes()

    draw_in_transaction = draw_put_new

    def draw_write(self, view: str) -> tuple:
        return self.place(view), self.bytes(), self.rng.choice(("truncate", "truncate", "exclusive"))

    def draw_pwrite(self, view: str) -> tuple:
        return self.file(view), self.bytes(least=1), self.offset()

    def draw_pieces(self, view: str) -> tuple:
        return self.file(view), [(self.offset(), self.bytes(least=1)) for _ in range(self.rng.randrange(2, 6))]

    def draw_append(self, view: str) -> tuple:
        return self.file(view), self.bytes(least=1)

    def draw_mapped(self, view: str) -> tuple | None:
        path = self.pick(view, "file")
        return path and (path, self.bytes(least=1), self.offset())

    def draw_truncate(self, view: str) -> tuple | None:
        path = self.file(view)
        size = self.rng.choice((0, self.offset(), self.size()))
        seen = self.oracle.tree.see(path)
        # Whether setting the size that is there already changes times, file systems disagree upon.
        return None if seen.size == size or seen.kind == "link" else (path, size)

    def draw_punch(self, view: str) -> tuple | None:
        path, offset = self.pick(view, "file"), self.offset()
        # Behind the end, whether times change file systems disagree upon.
        is_within = path is not None and offset < os.stat(self.oracle.tree.at(path)).st_size
        return (path, offset, self.rng.randrange(1, 100_000)) if is_within else None

    def draw_rename(self, view: str) -> tuple | None:
        old, new = self.pick(view) or self.place(view), self.place(view)
        if view == "fsspec":
            is_dir = os.path.isdir(self.oracle.tree.at(new))
            if is_dir or old == new or any(mark in old + new for mark in MAGIC) or new.startswith(f"{old}/"):
                return None
        return old, new

    def draw_copy(self, view: str) -> tuple | None:
        old, new = self.pick(view, "file"), self.place(view)
        return old and (old, new)

    def draw_copy_whole(self, view: str) -> tuple | None:
        old, new = self.file(view), self.place(view)
        is_dir = os.path.isdir(self.oracle.tree.at(old))
        return None if old == new or is_dir else (old, new)

    def draw_link(self, view: str) -> tuple | None:
        old = self.pick(view, "file", "dir")
        return old and (old, self.place(view))

    def draw_symlink(self, view: str) -> tuple:
        # None leads out of the container, whatever the link is renamed to.
        target = self.rng.choice(("a", "b", "a/b", ".", "./c", "nowhere", "c/./b", "n\udcff"))
        return target, self.place(view)

    def draw_unlink(self, view: str) -> tuple:
        if self.to_go and self.rng.random() < 0.4:
            return (f"{self.container}/step-{self.to_go.popleft()}",)
        return ((self.rng.random() < 0.85 and self.pick(view, "file", "link")) or self.place(view),)

    def draw_unlink_many(self, view: str) -> tuple | None:
        found = {self.pick(view, "file") for _ in range(self.rng.randrange(1, 4))} - {None}
        if not found or (view == "fsspec" and any(mark in path for path in found for mark in MAGIC)):
            return None
        return (sorted(found),)

    def draw_mkdir(self, view: str) -> tuple:
        return (self.place(view),)

    def draw_rmdir(self, view: str) -> tuple:
        return ((self.rng.random() < 0.8 and self.pick(view, "dir")) or self.place(view),)

    def draw_remove_all(self, view: str) -> tuple | None:
        path = self.pick(view, "dir", "file")
        if path is None or (view == "fsspec" and any(mark in path for mark in MAGIC)):
            return None
        return (path,)

    def draw_chmod(self, view: str) -> tuple:
        return self.file(view), self.rng.choice((0o644, 0o600, 0o755, 0o400, 0o777))

    def draw_utime(self, view: str) -> tuple:
        return self.file(view), (OLD_S + self.rng.randrange(10**6)) * 10**9 + self.rng.randrange(10**9)

    def draw_setxattr(self, view: str) -> tuple:
        value = self.rng.randbytes(self.rng.choice((0, 5, 100, 3000)))
        return self.pick(view, "file", "dir") or self.place(view), self.rng.choice(("user.t.x", "user.t.é")), value

    def draw_removexattr(self, view: str) -> tuple:
        return self.file(view), self.rng.choice(("user.t.x", "user.t.é"))

    def draw_hold(self, view: str) -> tuple | None:
        path = self.pick(view, "file")
        if path is None or len(self.held) >= 4:
            return None
        self.next_held += 1
        return self.next_held, path

    def draw_write_held(self, view: str) -> tuple | None:
        mine = [number for number, owner in self.held.items() if owner == view]
        return (self.rng.choice(mine), self.bytes(least=1), self.offset()) if mine else None

    def draw_drop(self, view: str) -> tuple | None:
        mine = [number for number, owner in self.held.items() if owner == view]
        return (self.rng.choice(mine),) if mine else None
