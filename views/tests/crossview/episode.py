"""One container and some hundred operations on it."""

import os
import random
import time
from pathlib import Path

from .fixture import Fixture
from .operations import LONG, Operations
from .oracle import Oracle, is_text
from .seen import Seen

FILE_VIEWS = ("files", "mount", "fsspec", "s3")
# Whose errors are those of POSIX, number by number.
EXACT = ("files", "mount")
# Files without a name that nobody holds are gone after 50 ms, and with what a machine takes that has no time.
BURIED_S = 5.0
# Nothing takes longer on a store whose daemon lives (docs/mount.md), on a machine that does something else besides.
SLOW_S = 45.0
# How likely all views read what was touched, after an operation.
READ_AFTER = 0.4
# After how many operations everything is compared.
WHOLE_EVERY = 40
# Times older than this were set by `utime`.
OLD_NS = 1_500_000_000 * 10**9
# In a `commit` directory: how many operations one view does until it publishes, and how long others may be behind, with
# what a machine takes that has no time; what was measured is printed.
BURST = 12
BEHIND_S = {"mount": 4.0, "s3": 3.0, "files": 3.0, "fsspec": 3.0}
AGE_OF_MOUNT_S = 1.1


class Differs(Exception):
    """A view shows, or did, something else than it must."""


class Episode:
    """A container of its own. `run` raises `Differs`."""

    def __init__(self, fixture: Fixture, seed: int, count: int) -> None:
        self.fixture, self.seed, self.count = fixture, seed, count
        self.rng = random.Random(f"crossview {seed}")
        self.container = f"episode-{seed}"
        self.oracle = Oracle(str(fixture.dir / self.container))
        Path(self.oracle.tree.at(self.container)).mkdir(parents=True)
        self.consistency = self.rng.choices(("strict", "commit"), (4, 1))[0]
        self.ends_laminated = self.rng.random() < 0.15
        self.operations = Operations(self.rng, self.oracle, self.container, self.oracle_has_xattrs())
        self.views = [view for view in FILE_VIEWS if view in fixture.workers]
        self.log: list[str] = []
        self.writer = self.views[0]
        self.left_in_burst = 0
        # What was touched and not yet read by all.
        self.due: dict[str, None] = {}
        # Files that other views than the mount wrote by descriptors.
        self.written_elsewhere: set[int] = set()
        # Those of them that the mount has not opened since.
        self.unseen_by_mount: set[int] = set()
        # The longest that a reader was behind, by writer and reader.
        self.behind: dict[tuple[str, str], float] = {}
        # Before this operation something happens that the oracle does not know, to see whether it is noticed.
        self.harm = -1

    def oracle_has_xattrs(self) -> bool:
        try:
            os.setxattr(self.oracle.tree.root, "user.t.x", b"")
        except OSError:
            return False
        return True

    def call(self, view: str, name: str, *arguments: object) -> tuple:
        """A call of a view, which must not hang."""
        began = time.monotonic()
        said = self.fixture.workers[view].call(name, *arguments)
        took = time.monotonic() - began
        if said[0] == "bug":
            raise Differs(f"{view}.{name} failed in a way that it must not:\n{said[2]}")
        if took > SLOW_S:
            raise Differs(f"{view}.{name}{_short(arguments)} took {took:.1f} s")
        return said

    def run(self) -> None:
        try:
            self.begin()
            for number in range(self.count):
                self.step(number)
            self.settle()
            self.whole()
            if self.ends_laminated:
                self.laminate()
            self.finish()
        finally:
            self.release()

    # Parts of an episode.

    def begin(self) -> None:
        maker = self.rng.choice(self.views)
        if maker == "s3":
            self.expect_ok("s3", "make", self.container)
        else:
            self.expect_ok(maker, "mkdir", self.container)
        self.log.append(f"{maker}.mkdir {self.container}, {self.consistency}")
        if self.consistency != "strict":
            self.expect_ok("files", "consistency", self.container, self.consistency)
            time.sleep(AGE_OF_MOUNT_S)
        for view in self.views:
            said = self.call(view, "top")
            if said[0] != "ok" or self.container not in said[1]:
                raise Differs(f"{view} does not list the new container: {said[1:]}")

    def expect_ok(self, view: str, name: str, *arguments: object) -> object:
        said = self.call(view, name, *arguments)
        if said[0] != "ok":
            raise Differs(f"{view}.{name}{_short(arguments)}: {said[-1]}")
        return said[1]

    def step(self, number: int) -> None:
        if number == self.harm:
            self.expect_ok("files", "put", f"{self.container}/harm", b"harm")
        self.choose_writer()
        view = self.writer
        name, arguments = self.operations.next(view)
        self.log.append(f"{number}: {view}.{name}{_short(arguments)}")
        expected = self.oracle.apply(view, name, arguments)
        said = self.call(view, name, *arguments)
        self.log[-1] += f" -> {'ok' if expected is None else os.strerror(expected)}"
        self.compare_outcome(view, name, arguments, expected, said)
        self.track_held(view, name, arguments, expected)
        self.operations.look()
        self.due.update(dict.fromkeys(self.touched(arguments)))
        self.read_what_is_due(view)
        if number % WHOLE_EVERY == WHOLE_EVERY - 1:
            self.settle()
            self.whole()

    def read_what_is_due(self, writer: str) -> None:
        """All views read what was touched; not after each operation, as who has just looked has nothing stale."""
        if self.consistency == "commit":
            self.left_in_burst -= 1
            is_time = self.left_in_burst == 0
            if is_time:
                self.settle()
            else:
                self.compare([writer], list(self.due))
        else:
            is_time = self.rng.random() < READ_AFTER
        if is_time:
            self.compare(self.views, list(self.due))
            self.due.clear()
            if self.operations.held:
                self.compare_held()

    def choose_writer(self) -> None:
        """Another view each time; in `commit` directories less often, as what is not published is nobody else's."""
        if self.consistency == "commit" and self.left_in_burst > 0:
            return
        self.writer = self.rng.choice(self.views)
        self.left_in_burst = self.rng.randrange(1, BURST)
        if self.consistency == "commit" and self.writer == "mount":
            time.sleep(AGE_OF_MOUNT_S)

    def settle(self) -> None:
        """What the writer has not published yet is published."""
        if self.consistency == "commit":
            self.expect_ok(self.writer, "publish", self.container)
            self.left_in_burst = 0

    def compare_outcome(self, view: str, name: str, arguments: tuple, expected: int | None, said: tuple) -> None:
        done = said[0] == "ok"
        if done != (expected is None):
            wanted = "succeed" if expected is None else f"fail ({os.strerror(expected)})"
            raise Differs(f"{view}.{name} must {wanted}, but: {said[1:] if not done else 'it succeeded'}")
        if not done and view in EXACT and said[1] != expected and name != "put":
            raise Differs(f"{view}.{name} must fail with {os.strerror(expected)}, but: {said[1:]}")

    def track_held(self, view: str, name: str, arguments: tuple, expected: int | None) -> None:
        if expected is None and name == "hold":
            self.operations.held[arguments[0]] = view
        elif name == "drop":
            self.operations.held.pop(arguments[0], None)
        elif name == "write_held" and view != "mount":
            self.written_elsewhere.add(self.oracle.held_ino(arguments[0]))
            self.unseen_by_mount.add(self.oracle.held_ino(arguments[0]))

    def touched(self, arguments: tuple) -> list[str]:
        """Paths that an operation was about, those above them, and one more."""
        found: dict[str, None] = {}
        for one in arguments:
            for path in one if isinstance(one, list) else [one]:
                if isinstance(path, str) and path.startswith(self.container):
                    found[path] = None
                    if self.rng.random() < 0.4:
                        found[path.rpartition("/")[0] or self.container] = None
        if self.rng.random() < 0.1:
            found[self.rng.choice(self.operations.there)] = None
        return list(found)

    # Comparing.

    def compare(self, views: list[str], paths: list[str]) -> None:
        """Asks views at the same time, and holds what they show against the oracle."""
        asked = {view: [path for path in paths if self.operations.suits(view, path)] for view in views}
        for view, which in asked.items():
            self.fixture.workers[view].send("see_all", (which,))
        seen: dict[str, dict[str, Seen]] = {}
        for view, which in asked.items():
            said = self.fixture.workers[view].receive()
            if said[0] != "ok":
                raise Differs(f"{view} cannot be read: {said[-1]}")
            seen[view] = dict(zip(which, said[1], strict=True))
        for view, which in asked.items():
            for path in which:
                self.hold_against(view, path, seen[view][path])
        if "mount" in views:
            there = (path for path in asked["mount"] if os.path.lexists(self.oracle.tree.at(path)))
            self.unseen_by_mount -= set(map(self.oracle.ino, there))
        if self.consistency == "strict":
            self.compare_times(paths, seen)

    def hold_against(self, view: str, path: str, seen: Seen) -> None:
        expected = self.oracle.expected(view, path)
        began = time.monotonic()
        while (found := self.difference(view, expected, seen)) is not None:
            if self.must_have_caught_up(view, began):
                note = f" ({seen.note})" if seen.note else ""
                raise Differs(f"{view} shows {path!r} otherwise: {found}{note}")
            seen = self.see_again(view, began, "see", path)

    def must_have_caught_up(self, view: str, began: float) -> bool:
        """In a `commit` directory a view may be behind for a while."""
        return self.consistency == "strict" or time.monotonic() - began > BEHIND_S[view]

    def see_again(self, view: str, began: float, name: str, path: str) -> object:
        """Asks a moment later, and notes how long the view has been behind."""
        time.sleep(0.01)
        seen = self.expect_ok(view, name, path)
        self.behind[self.writer, view] = max(self.behind.get((self.writer, view), 0), time.monotonic() - began)
        return seen

    @staticmethod
    def difference(view: str, expected: Seen, seen: Seen) -> str | None:
        if view == "s3" and expected.etag == "-c" and seen.etag is not None:
            if not seen.etag.endswith("-c"):
                return f"etag: {seen.etag} is that of other bytes"
            expected.etag = None
        if view not in EXACT and "error" == expected.kind == seen.kind:
            return None
        return expected.difference(seen)

    def compare_times(self, paths: list[str], seen: dict[str, dict[str, Seen]]) -> None:
        """Times of change are one thing: the same by all views, and kept when they were set."""
        for path in paths:
            mine = self.oracle.tree.see(path)
            if mine.modified is None or self.oracle.ino(path) in self.oracle.untimed:
                continue
            first = seen["files"].get(path)
            for view in ("files", "mount", "s3"):
                other = seen.get(view, {}).get(path)
                if other is None or other.modified is None or (other.kind == "dir" and view == "s3"):
                    continue
                step = 10**9 if view == "s3" else 1
                if other.modified != first.modified // step * step:
                    raise Differs(f"{view}: {path!r} changed at {other.modified}, by files at {first.modified}")
                if mine.modified < OLD_NS and other.modified != mine.modified // step * step:
                    raise Differs(f"{view}: {path!r} changed at {other.modified}, but {mine.modified} was set")
                if mine.modified >= OLD_NS > other.modified:
                    raise Differs(f"{view}: {path!r} was written, but its time of change is still the old one")

    def compare_held(self) -> None:
        for number, view in self.operations.held.items():
            found = self.expect_ok(view, "read_held", number)
            expected = self.oracle.tree.read_held(number)
            if self.consistency == "commit" and (view != self.writer or self.is_as_opened(view, number)):
                continue
            if (differs := Seen("file", content=expected).difference(Seen("file", content=found))) is not None:
                raise Differs(f"{view}, by descriptor {number} that is open: {differs}")

    def is_as_opened(self, view: str, number: int) -> bool:
        """In `commit` directories a mount shows bytes as of the last `open`, final for a file without a name."""
        ino = self.oracle.held_ino(number)
        is_final = ino in self.written_elsewhere and self.oracle.is_unlinked(number)
        return view == "mount" and (is_final or ino in self.unseen_by_mount)

    def whole(self) -> None:
        """All that every view shows."""
        if self.consistency == "commit" and "mount" in self.views:
            time.sleep(AGE_OF_MOUNT_S)
        for view in self.views:
            self.fixture.workers[view].send("everything", (self.container,))
        found = {view: self.fixture.workers[view].receive() for view in self.views}
        self.unseen_by_mount.clear()
        for view in self.views:
            if found[view][0] != "ok":
                raise Differs(f"{view} cannot be read as a whole: {found[view][-1]}")
            self.compare_whole(view, found[view][1])
        self.check_records()

    def check_records(self) -> None:
        """Records must fit. Processes bury what they held a moment later (docs/files.md): perhaps just now."""
        began = time.monotonic()
        while wrong := self.expect_ok("files", "check", self.container):
            if time.monotonic() - began > BURIED_S:
                raise Differs(f"the records do not fit: {wrong}")
            time.sleep(0.05)

    def compare_whole(self, view: str, seen: dict[str, Seen]) -> None:
        expected = self.suited(view, self.oracle.everything(view, self.container))
        began = time.monotonic()
        while True:
            seen = self.suited(view, seen)
            try:
                self.compare_names(view, expected, seen)
                break
            except Differs:
                if self.must_have_caught_up(view, began):
                    raise
            seen = self.see_again(view, began, "everything", self.container)
        for path in filter(None, expected):  # not what is called "": the list of all keys
            self.hold_against(view, path, seen[path])

    def suited(self, view: str, seen: dict[str, Seen]) -> dict[str, Seen]:
        """Without what is another tree by this view: by fsspec what is below links."""
        if view != "fsspec":
            return seen
        return {path: what for path, what in seen.items() if self.operations.suits(view, path)}

    def compare_names(self, view: str, expected: dict[str, Seen], seen: dict[str, Seen]) -> None:
        if set(expected) != set(seen):
            raise Differs(f"{view}: missing {set(expected) - set(seen)}, too many {set(seen) - set(expected)}")
        if "" in expected:
            self.hold_keys(expected[""], seen[""])

    @staticmethod
    def hold_keys(expected: Seen, seen: Seen) -> None:
        if (found := expected.difference(seen)) is not None:
            raise Differs(f"the list of all keys: {found}")

    # The end.

    def laminate(self) -> None:
        """Nothing changes any more, by whatever view."""
        for number, view in list(self.operations.held.items()):
            self.expect_ok(view, "drop", number)
            self.oracle.apply(view, "drop", (number,))
            del self.operations.held[number]
        paths = self.oracle.paths(self.container)
        directories = [path for path in paths if self.operations.kind(path) == "dir"]
        for path in directories:
            self.expect_ok("files", "consistency", path, "laminated")
        self.log.append("laminated")
        for view in self.views:
            above = self.rng.choice(
                [path for path in directories if self.operations.suits(view, path) and is_text(path)]
            )
            said = self.call(view, "put", f"{above}/new", b"x")
            if said[0] == "ok":
                raise Differs(f"{view} made a file in {above!r}, which is laminated")
            files = [
                path for path in paths if self.operations.kind(path) == "file" and self.operations.suits(view, path)
            ]
            if files:
                path = self.rng.choice(files)
                said = self.call(view, "unlink", path)
                if said[0] == "ok":
                    raise Differs(f"{view} removed {path!r} from a directory that is laminated")
        self.whole()
        for path in directories:
            self.expect_ok("files", "consistency", path, "strict")

    def finish(self) -> None:
        """The container is removed, and no view shows it."""
        for number, view in list(self.operations.held.items()):
            self.expect_ok(view, "drop", number)
            del self.operations.held[number]
        remover = self.rng.choice([view for view in self.views if view != "s3"])
        if self.ends_laminated or self.consistency == "commit":
            remover = "files"
        self.expect_ok(remover, "remove_all", self.container)
        time.sleep(AGE_OF_MOUNT_S if self.consistency == "commit" else 0)
        for view in self.views:
            said = self.call(view, "top")
            if said[0] != "ok" or self.container in said[1]:
                raise Differs(f"{view} still lists the container that {remover} removed: {said[1:]}")

    def release(self) -> None:
        for number, view in self.operations.held.items():
            self.fixture.workers[view].call("drop", number)
        self.oracle.end()


def _short(arguments: tuple) -> str:
    def one(what: object) -> str:
        if isinstance(what, bytes):
            return f"<{len(what)} bytes>"
        if isinstance(what, (list, tuple)):
            return f"[{', '.join(map(one, what))}]"
        if hasattr(what, "dtype"):
            return f"<{what.dtype} {what.shape}>"
        if isinstance(what, slice):
            return f"{what.start}:{what.stop}"
        return repr(what).replace(LONG, "z..z")

    return f"({', '.join(map(one, arguments))})"
