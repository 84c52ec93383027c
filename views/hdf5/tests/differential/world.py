"""The state of a process that carries out random calls: the library, open identifiers, names, random numbers; and the
register of operations.

Every decision comes from the random numbers and from earlier results: two processes that see the same do the same.
"""

import bisect
import ctypes
import random

from scripts.workload import steps

from .types import Types

FILES = (b"a.h5", b"b.h5")
ROOMS = "FGDTA"  # file, group, dataset, committed datatype, attribute
MAX_OPEN = 6
ORDER_STEPS = 400
OF_ANY_FILE = 0x1F
LINKING = ("link_hard", "link_soft", "link_external", "link_copy", "link_move", "object_link")
WITHOUT_PATH = ("object_open_by_token", "reference_make", "reference_read", "reference_old", "reference_region")
DELETING = ("link_delete", "link_delete_by_number", "walk_and_delete")
OPERATIONS = []  # (name, weight, function)


def operation(weight):
    """Registers a function as an operation with this weight in the draw."""

    def register(function):
        OPERATIONS.append((function.__name__, weight, function))
        return function

    return register


class World:
    """The state of one process within one episode."""

    def __init__(self, library, without=()):
        self.h = library
        self.plain_types = frozenset(all_open(library))  # the library's own types
        self.types = Types(library)
        self.r = random.Random()
        self.at = None
        self.open = {room: [] for room in ROOMS}
        self.holders = {}  # the object of each open attribute, whose fate is undefined without it
        self.any_resized = self.any_copied = self.any_deleted = self.any_by_reference = False
        self.one_path = True  # per object: no links besides those of creation, and nothing opened without one
        self.lists = {}
        self.order, self.order_of, self.number = [], None, 0
        self.words, self.new_format, self.close_degree, self.links_out = [], False, 0, True
        self.aloud = self.missing = None
        self.in_full = False
        chosen = [(n, w, f) for n, w, f in OPERATIONS if n not in without]
        self.functions = [(n, f) for n, _, f in chosen]
        self.sums, total = [], 0
        for _, weight, _ in chosen:
            total += weight
            self.sums.append(total)
        self.scratch = ctypes.create_string_buffer(1 << 16)

    # Steps

    def step(self, seed, number):
        """Carries out operation `number` of an episode; returns a line that must be the same in both processes."""
        self.r.seed(seed * 100_003 + number)
        # In every third episode names also come and go in the orders of `crates/workload`, besides those drawn one by
        # one.
        order_of = (seed, number // ORDER_STEPS) if seed % 3 == 0 else None
        if order_of != self.order_of:
            self.order = steps(seed * 1000 + order_of[1], 12, ORDER_STEPS) if order_of else []
            self.order_of = order_of
        self.number = number
        self.new_format, self.close_degree = seed % 2 == 0, (0, 0, 1, 0, 2, 3, 0, 0)[seed // 2 % 8]
        # Through an external link a file is opened like the first one: then all are open for writing.
        self.links_out = seed // 16 % 2 == 0
        if number < 2:
            name, function = "file_create", None
        else:
            name, function = self.functions[bisect.bisect(self.sums, self.r.random() * self.sums[-1])]
        self.words = [str(number), name]
        if function is None:
            from .on_files import start

            out = start(self, number)
        else:
            if not self.open["F"] and name != "file_open":
                self.say("no file is open:")
                name, function = next(f for f in self.functions if f[0] == "file_open")
            self.missing = None
            out = function(self)
            self.tidy(out)
            self.one_path &= not (name in LINKING and out == "ok") and name not in WITHOUT_PATH
            self.any_deleted |= name in DELETING and "ok" in out
            if self.at is not None:
                self.h.H5Fclose(self.at)
                self.at = None
        self.words.append(f"-> {out}")
        return " ".join(self.words)

    def say(self, *words):
        """Notes arguments of the operation."""
        self.words.extend(w if isinstance(w, str) else repr(w) for w in words)
        if self.aloud:
            self.aloud(" ".join(self.words))

    def end(self):
        """Closes everything that an episode left open; returns a line about what had to be closed."""
        h, left = self.h, 0
        self.release(*list(self.holders))
        self.any_resized = self.any_copied = self.any_deleted = self.any_by_reference = False
        self.one_path = True
        for room in ROOMS[1:] + "F":
            for one in self.open[room]:
                h.H5Idec_ref(one)
            self.open[room].clear()
        for one in self.of_ours():
            left += 1
            while h.H5Iis_valid(one) > 0 and h.H5Idec_ref(one) > 0:
                pass
        for one in self.lists.values():
            h.H5Pclose(one)
        self.lists.clear()
        return f"left open: {left}"

    # Identifiers

    def of_ours(self):
        """All identifiers of the operations' files, whoever holds them."""
        plain, made = self.plain_types, self.types.ids
        found = [one for one in all_open(self.h) if one not in plain and one not in made]
        kept = [one for one in found if self.h.H5Iget_type(one) != 3 or self.h.H5Tcommitted(one) > 0]
        return [one for one in kept if self.file_of(one)[0] in FILES]

    def file_of(self, one):
        """The name and the flags of an identifier's file."""
        intent, of = ctypes.c_uint(), self.h.c.H5Iget_file_id(one)
        self.h.H5Fget_intent(of, ctypes.byref(intent))
        length = self.h.H5Fget_name(of, self.scratch, 100)
        self.h.H5Fclose(of)
        return ctypes.string_at(self.scratch).split(b"/")[-1] if length > 0 else b"", intent.value

    def adopt(self, one, room=None):
        """Keeps an identifier that a call returned; returns `ok` or `fails`."""
        if one < 0:
            return "fails"
        if room is None:
            room = {1: "F", 2: "G", 3: "T", 5: "D", 7: "A"}.get(self.h.H5Iget_type(one))
        held = self.open[room]
        held.append(one)
        if room == "A":
            self.holders[one] = self.h.H5Oopen(one, b".", 0)
        if len(held) > (MAX_OPEN if room != "F" else 4):
            old = held.pop(0)
            self.release(old)
            return f"ok:{room}, oldest closed {status(self.h.H5Idec_ref(old))}"
        return f"ok:{room}"

    def release(self, *attributes):
        """Closes the objects of closed attributes."""
        for one in attributes:
            if one in self.holders:
                self.h.H5Oclose(self.holders.pop(one))

    def same(self, one):
        """The number of open identifiers of the same object."""
        from .on_structure import token

        mine = token(self, one)
        return sum(token(self, other) == mine for other in self.of_ours())

    def pick(self, rooms):
        """An open identifier of one of these kinds (rooms); a file if there is none."""
        held = [(room, i) for room in rooms for i in range(len(self.open[room]))]
        if not held:
            room, i = "F", self.r.randrange(len(self.open["F"])) if self.open["F"] else None
            if i is None:
                self.say("nothing")
                return -1
        else:
            room, i = held[int(self.r.random() * len(held))]
        self.say(f"{room}{i}")
        return self.open[room][i]

    def have(self, room):
        """True if an identifier of this kind is open."""
        return bool(self.open[room])

    def place(self):
        """The start of a path: a file or group, seldom something else."""
        if self.at is not None:
            self.say("its file")
            return self.at
        x = self.r.random()
        return self.pick("F" if x < 0.35 else "FG" if x < 0.97 else "FGDT")

    def thing(self):
        """Anything that has attributes."""
        if self.at is not None:
            return self.place()
        return self.pick("FGDT" if self.r.random() < 0.97 else ROOMS)

    # Names

    def name(self, new=False):
        """A path from a small pool, so that many calls refer to the same names."""
        if self.order and self.r.random() < 0.3:
            at = self.number % ORDER_STEPS
            ahead = (ordinal for is_put, ordinal in self.order[at:] if is_put == new)
            name = b"s%d" % next(ahead, 0)
            self.say(name)
            return name
        x = self.r.random()
        if x < 0.55:
            name = self.r.choice((b"a", b"b", b"c", b"d", b"e"))
        elif x < 0.8:
            name = self.r.choice((b"a", b"b", b"c")) + b"/" + self.r.choice((b"a", b"b", b"c", b"d"))
        elif x < 0.9:
            name = b"/" + b"/".join(self.r.choice((b"a", b"b", b"c", b"d")) for _ in range(self.r.randrange(1, 4)))
        elif x < 0.93 and not new:
            name = self.r.choice((b".", b"/", b"./a", b"a/", b"a/./b", b"//a", b"a//b", b"/.", b"..", b"./"))
        elif x < 0.96:
            name = self.r.choice(("größe".encode(), b"\xff\xfe", b"x y", b"..", b"n" * 300, b"%s", b"a\\b"))
        elif x < 0.97:
            name = self.r.choice((b"", b".", b"/", b"a/.", b"./c", b"c/", b"nowhere/x"))
        else:
            name = self.r.choice((b"f", b"g", b"h", b"i", b"j"))
        self.say(name)
        return name

    def label(self):
        """The name of an attribute."""
        x = self.r.random()
        if x < 0.9:
            name = self.r.choice((b"p", b"q", b"r", b"s", b"t"))
        else:
            name = self.r.choice((b"", b"a/b", b".", "ü".encode(), b"\xff", b"m" * 200, b"u", b"v", b"w"))
        self.say(name)
        return name

    # Property lists

    def list_of(self, key, make):
        """A property list, made once per episode and key."""
        found = self.lists.get(key)
        if found is None:
            found = self.lists[key] = make()
        return found

    def target(self):
        """The place, name and link creation properties of a new object, for the next three arguments."""
        where, name, lcpl = self.place(), self.name(new=True), self.link_create()
        if lcpl and b"/" in name.strip(b"/"):
            self.missing = next(((where, p) for p in prefixes(name) if self.h.H5Lexists(where, p, 0) == 0), None)
        return where, name, lcpl

    def tidy(self, out):
        """Makes missing intermediate groups: after a failed call native HDF5 leaves them behind and counts them,
        Cenote does not."""
        if self.missing and "fails" in out:
            if self.h.H5Lexists(*self.missing, 0) == 0:
                self.h.H5Gclose(self.h.H5Gcreate2(*self.missing, 0, 0, 0))
            self.h.H5Ldelete(*self.missing, 0)
        self.missing = None

    def link_create(self):
        """Link creation properties."""
        intermediate, cset = self.r.random() < 0.6, self.r.random() < 0.2
        if not intermediate and not cset:
            return 0

        def make():
            made = self.h.H5Pcreate(self.h.H5P_CLS_LINK_CREATE_ID)
            self.h.H5Pset_create_intermediate_group(made, intermediate)
            self.h.H5Pset_char_encoding(made, cset)
            return made

        self.say(f"lcpl{intermediate:d}{cset:d}")
        return self.list_of(("lcpl", intermediate, cset), make)

    def index_order(self):
        """An index and an order: by name or creation, up, down or native."""
        index, order = self.r.choice((0, 0, 1)), self.r.choice((0, 0, 1, 2))
        if self.r.random() < 0.01:
            index, order = self.r.choice((-1, 2, 0)), self.r.choice((-1, 3))
        self.say(f"index={index} order={order}")
        return index, order


def all_open(h):
    """All identifiers of the library, of any file, and of datatypes outside files."""
    ids = (ctypes.c_int64 * h.H5Fget_obj_count(OF_ANY_FILE, 0x1F))()
    return ids[: max(h.H5Fget_obj_ids(OF_ANY_FILE, 0x1F, len(ids), ids), 0)]


def prefixes(name):
    """The paths of the intermediate groups."""
    parts = name.split(b"/")
    return [path for n in range(1, len(parts)) if (path := b"/".join(parts[:n])).strip(b"/")]


def status(code):
    """A status as text, or true or false."""
    return "fails" if code < 0 else "yes" if code else "ok"


def text(length, buffer):
    """The result of a call that returns a string."""
    return "fails" if length < 0 else f"{length}:{ctypes.string_at(buffer)!r}" if length else "nothing"
