"""One HDF5 file, changed by h5py on the connector and by zarr-python, and read by both after each operation."""

import contextlib
import random

import numpy as np

from .episode import Differs, _short
from .fixture import Fixture

DTYPES = ("i1", "<i4", ">i4", "u2", "<i8", "<f4", ">f8", "f8", "?")
WRITERS = ("hdf5", "zarr")
READERS = (("hdf5", ()), ("zarr", ("3",)), ("zarr", ("2",)), ("zarr", ("fsspec",)))
NAMES = ("a", "b", "c", "x y", "é", "g/a", "g/b", "g/h/a", "d-1")
VALUES = (5, -3, 2.5, True, "text", "ü", [1, 2, 3], [0.5, 1.5], ["p", "q"], "")
WEIGHTS = {
    "create": 5,
    "group": 1,
    "write": 20,
    "resize": 5,
    "set_attribute": 5,
    "delete_attribute": 2,
    "delete": 2,
    "rename": 1,
}


class ArraysEpisode:
    """A file of its own. `run` raises `Differs`."""

    def __init__(self, fixture: Fixture, seed: int, count: int) -> None:
        self.fixture, self.seed, self.count = fixture, seed, count
        self.rng = random.Random(f"arrays {seed}")
        self.path = str(fixture.disk / f"episode-{seed}.h5")
        self.arrays: dict[str, np.ndarray] = {}
        self.chunks: dict[str, tuple | None] = {}
        self.fill: dict[str, object] = {}
        self.attributes: dict[str, dict[str, object]] = {"/": {}}
        self.log: list[str] = []
        self.behind: dict[tuple[str, str], float] = {}
        self.harm = -1

    def call(self, view: str, name: str, *arguments: object) -> object:
        said = self.fixture.workers[view].call(name, *arguments)
        if said[0] != "ok":
            raise Differs(f"{view}.{name}{_short(arguments)} failed: {said[-1]}")
        return said[1]

    def run(self) -> None:
        self.call("hdf5", "open", self.path, "w")
        self.call("zarr", "open", self.path, "r+")
        try:
            for number in range(self.count):
                self.step(number)
            self.compare_all()
        finally:
            with contextlib.suppress(Differs):
                self.call("zarr", "close")
                self.call("hdf5", "close")

    def step(self, number: int) -> None:
        weights = dict(WEIGHTS)
        if len(self.arrays) > 6:
            weights |= {"delete": 10, "create": 1}
        view = self.rng.choice(WRITERS)
        while True:
            name = self.rng.choices(list(weights), list(weights.values()))[0]
            arguments = getattr(self, f"draw_{name}")(view)
            if arguments is not None:
                break
        self.log.append(f"{number}: {view}.{name}{_short(arguments)}")
        self.call(view, name, *arguments)
        if view == "hdf5":
            # Filtered chunks that are written in part are others' when they are flushed (docs/zarr.md).
            self.call("hdf5", "flush")
        getattr(self, f"apply_{name}")(*arguments)
        reader, how = READERS[number % len(READERS)]
        self.compare(reader, how)
        if number % 25 == 24:
            self.compare_all()

    # Drawing.

    def array(self, name: str) -> np.ndarray:
        return self.arrays[name]

    def draw_create(self, view: str) -> tuple | None:
        name = self.rng.choice(NAMES)
        if any(
            name == other or name.startswith(f"{other}/") or other.startswith(f"{name}/") for other in self.attributes
        ):
            return None
        rank = self.rng.randrange(1, 4)
        shape = tuple(self.rng.randrange(1, (2000, 60, 14)[rank - 1]) for _ in range(rank))
        dtype = self.rng.choice(DTYPES)
        is_chunked = view == "zarr" or self.rng.random() < 0.75
        chunks = tuple(max(1, min(one, self.rng.randrange(1, one + 1))) for one in shape) if is_chunked else None
        # Few enough that reading all of them takes no time.
        if chunks and np.prod([-(-size // chunk) for size, chunk in zip(shape, chunks, strict=True)]) > 60:
            chunks = shape
        how: dict[str, object] = {}
        if chunks and self.rng.random() < 0.5:
            how |= {"compression": "gzip", "compression_opts": self.rng.randrange(1, 5)}
            if view == "hdf5":
                how |= {"shuffle": self.rng.random() < 0.5, "fletcher32": self.rng.random() < 0.3}
        if self.rng.random() < 0.5 and dtype != "?":
            how["fillvalue"] = self.rng.randrange(1, 100)
        return name, shape, dtype, chunks, how

    def draw_group(self, _view: str) -> tuple | None:
        name = self.rng.choice(("g", "g/h", "k"))
        return None if name in self.attributes or (name == "g/h" and "g" not in self.attributes) else (name,)

    def pick(self) -> str | None:
        return self.rng.choice(sorted(self.arrays)) if self.arrays else None

    def draw_write(self, _view: str) -> tuple | None:
        name = self.pick()
        if name is None or 0 in self.array(name).shape:
            return None
        where = []
        for size in self.array(name).shape:
            begin = self.rng.randrange(size)
            where.append(slice(begin, self.rng.randrange(begin, size) + 1))
        shape = tuple(one.stop - one.start for one in where)
        dtype = self.array(name).dtype
        values = np.frombuffer(self.rng.randbytes(int(np.prod(shape)) * 2), "i2").reshape(shape)
        return name, tuple(where), (values % 2 == 0) if dtype.kind == "b" else values.astype(dtype)

    def draw_resize(self, _view: str) -> tuple | None:
        name = self.pick()
        if name is None or self.chunks[name] is None:
            return None
        most = [max(1, 40 * one) for one in self.chunks[name]]
        shape = [
            min(self.rng.randrange(0, 2 * size + 2), top)
            for size, top in zip(self.array(name).shape, most, strict=True)
        ]
        chunks = np.prod([-(-size // chunk) for size, chunk in zip(shape, self.chunks[name], strict=True)])
        return None if chunks > 80 else (name, tuple(shape))

    def draw_set_attribute(self, _view: str) -> tuple:
        return (
            self.rng.choice(sorted(self.attributes)),
            self.rng.choice(("one", "two", "drei")),
            self.rng.choice(VALUES),
        )

    def draw_delete_attribute(self, _view: str) -> tuple | None:
        found = [(name, key) for name in sorted(self.attributes) for key in sorted(self.attributes[name])]
        return self.rng.choice(found) if found else None

    def draw_delete(self, _view: str) -> tuple | None:
        name = self.pick()
        return None if name is None else (name,)

    def draw_rename(self, view: str) -> tuple | None:
        old, new = self.pick(), self.rng.choice(NAMES)
        taken = any(new == one or new.startswith(f"{one}/") or one.startswith(f"{new}/") for one in self.attributes)
        above = new.rpartition("/")[0]
        is_there = not above or above in self.attributes
        return (old, new) if view == "hdf5" and old and not taken and is_there else None

    # What is expected then.

    def apply_create(self, name: str, shape: tuple, dtype: str, chunks: tuple | None, how: dict[str, object]) -> None:
        self.arrays[name] = np.full(shape, how.get("fillvalue", 0), dtype)
        self.chunks[name], self.fill[name] = chunks, how.get("fillvalue", 0)
        self.attributes[name] = {}
        parts = name.split("/")
        for end in range(1, len(parts)):
            self.attributes.setdefault("/".join(parts[:end]), {})

    def apply_group(self, name: str) -> None:
        self.attributes[name] = {}

    def apply_write(self, name: str, where: tuple, value: np.ndarray) -> None:
        self.array(name)[where] = value

    def apply_resize(self, name: str, shape: tuple) -> None:
        old = self.array(name)
        new = np.full(shape, self.fill[name], old.dtype)
        both = tuple(slice(0, min(one, other)) for one, other in zip(old.shape, shape, strict=True))
        new[both] = old[both]
        self.arrays[name] = new

    def apply_set_attribute(self, name: str, key: str, value: object) -> None:
        self.attributes[name][key] = value

    def apply_delete_attribute(self, name: str, key: str) -> None:
        del self.attributes[name][key]

    def apply_delete(self, name: str) -> None:
        for of in (self.arrays, self.chunks, self.fill, self.attributes):
            del of[name]

    def apply_rename(self, old: str, new: str) -> None:
        for of in (self.arrays, self.chunks, self.fill, self.attributes):
            of[new] = of.pop(old)

    # Comparing.

    def compare_all(self) -> None:
        for reader, how in READERS:
            self.compare(reader, how)

    def compare(self, reader: str, how: tuple) -> None:
        seen = self.call(reader, "state", *how)
        who = f"{reader} {' '.join(how)}".strip()
        if set(seen) != set(self.attributes):
            lacks, has = set(self.attributes) - set(seen), set(seen) - set(self.attributes)
            raise Differs(f"{who}: missing {lacks}, too many {has}")
        for name, (values, attributes) in seen.items():
            if attributes != self.attributes[name]:
                raise Differs(f"{who}: attributes of {name!r}: expected {self.attributes[name]}, seen {attributes}")
            expected = self.arrays.get(name)
            if (expected is None) != (values is None):
                raise Differs(f"{who}: {name!r} is {'a group' if values is None else 'an array'}")
            if expected is None:
                continue
            # In Zarr's format 3 the order of bytes is no part of the type.
            kinds = {expected.dtype.newbyteorder("="), values.dtype.newbyteorder("=")}
            if expected.shape != values.shape or len(kinds) > 1:
                raise Differs(
                    f"{who}: {name!r} is {values.dtype} {values.shape}, not {expected.dtype} {expected.shape}"
                )
            if not np.array_equal(expected, values):
                wrong = np.argwhere(expected != values)
                at = tuple(int(one) for one in wrong[0])
                raise Differs(f"{who}: {name!r}: {len(wrong)} elements, first {at}: {expected[at]}, not {values[at]}")
