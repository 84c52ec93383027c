"""What people do with files outside programs: rename, swap, rotate, copy, put back, remove, and open twice.

`test_files_random.py` does so at random beside native HDF5; this file tests what only Cenote reports.
"""

# ruff: noqa: PTH104, PTH105, PTH107, PTH116 - what programs call, by the names that they are documented by

import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

import pytest
from test_data import UNLOCKED, connector, environment, nothing_stays  # noqa: F401 (used by pytest)

READ = "import h5py, sys\nwith h5py.File(sys.argv[1]) as f: print(f['v'][()])"
WRITE = "import h5py, sys\nwith h5py.File(sys.argv[1], sys.argv[2]) as f: f.pop('v', None); f['v'] = int(sys.argv[3])"


@pytest.fixture(params=["beside", "elsewhere"])
def place(request, tmp_path):
    """A store and a directory: on one file system, or on two, where hard links between them are impossible."""
    if request.param == "beside":
        (tmp_path / "data").mkdir()
        yield Place(tmp_path / "store", tmp_path / "data")
        return
    other = pathlib.Path("/dev/shm") / f"cenote-test-files-{os.getpid()}"
    if not os.access("/dev/shm", os.W_OK) or os.stat("/dev/shm").st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no second file system")
    other.mkdir()
    yield Place(tmp_path / "store", other)
    shutil.rmtree(other)


class Place:
    """A directory of HDF5 files that are in a store."""

    def __init__(self, store, data, **variables):
        self.store, self.data, self.variables = store, data, variables

    def python(self, code, *arguments, **variables):
        """Runs a program; returns its output, or the last line of its error."""
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code, *map(str, arguments)],
            env=environment(self.store) | self.variables | variables,
            cwd=self.data,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        return done.stdout.strip() if done.returncode == 0 else done.stderr.strip().splitlines()[-1]

    def write(self, name, value, mode="w", **variables):
        said = self.python(WRITE, name, mode, value, **variables)
        assert said == "", said

    def read(self, name, **variables):
        return self.python(READ, name, **variables)

    def command(self, *words, **variables):
        """Runs `cenote`."""
        _, program = connector()
        env = environment(self.store) | self.variables | variables
        return subprocess.run(
            [program, "--store", str(self.store), *map(str, words)],
            env=env,
            cwd=self.data,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    def disk(self):
        return json.loads(self.command("--json", "df").stdout)["hdf5"]


def test_a_name_that_is_used_again_destroys_nothing(place):
    place.write("out.h5", 1)
    os.rename(place.data / "out.h5", place.data / "out-run1.h5")
    place.write("out.h5", 2)
    assert (place.read("out-run1.h5"), place.read("out.h5")) == ("1", "2")
    # As in a rotation, and when a directory is moved away.
    for n in range(3, 6):
        place.write("new.h5", n)
        os.replace(place.data / "out.h5", place.data / f"out-{n}.h5")
        os.replace(place.data / "new.h5", place.data / "out.h5")
    assert [place.read(name) for name in ("out-3.h5", "out-4.h5", "out-5.h5", "out.h5")] == ["2", "3", "4", "5"]
    (place.data / "run").mkdir()
    place.write("run/out.h5", 6)
    os.rename(place.data / "run", place.data / "run.old")
    (place.data / "run").mkdir()
    place.write("run/out.h5", 7)
    assert (place.read("run.old/out.h5"), place.read("run/out.h5")) == ("6", "7")


def test_names_are_swapped_and_linked(place):
    place.write("a.h5", 1)
    place.write("b.h5", 2)
    for old, new in (("a.h5", "c.h5"), ("b.h5", "a.h5"), ("c.h5", "b.h5")):
        os.rename(place.data / old, place.data / new)
    for _ in range(2):
        assert (place.read("a.h5"), place.read("b.h5")) == ("2", "1")
    os.link(place.data / "a.h5", place.data / "link.h5")
    os.symlink("b.h5", place.data / "symlink.h5")
    place.write("link.h5", 3, "r+")
    place.write("symlink.h5", 4, "r+")
    assert (place.read("a.h5"), place.read("b.h5")) == ("3", "4")
    os.remove(place.data / "a.h5")
    assert place.read("link.h5") == "3"
    place.write("link.h5", 5, "w")
    assert place.read("link.h5") == "5"


def test_opening_to_read_changes_nothing_of_the_stub(place):
    place.write("a.h5", 1)
    os.rename(place.data / "a.h5", place.data / "b.h5")
    before, text = os.stat(place.data / "b.h5"), (place.data / "b.h5").read_bytes()
    assert place.read("b.h5") == "1"
    after = os.stat(place.data / "b.h5")
    assert (after.st_mtime_ns, after.st_size, after.st_ino) == (before.st_mtime_ns, before.st_size, before.st_ino)
    assert (place.data / "b.h5").read_bytes() == text
    place.write("b.h5", 2, "r+")
    assert os.stat(place.data / "b.h5").st_mtime_ns > before.st_mtime_ns


def test_a_stale_copy_is_refused_with_the_way_to_the_file(place):
    place.write("d.h5", 1)
    shutil.copy(place.data / "d.h5", place.data / "d.bak")
    place.write("d.h5", 2, "r+")
    assert "copy of the stub" in place.read("d.bak")
    shutil.copy(place.data / "d.bak", place.data / "d.h5")
    said = place.read("d.h5")
    assert "stale copy" in said and "cenote cp --current" in said, said
    done = place.command("cp", "--current", "d.h5", "again.h5")
    assert done.returncode == 0, done.stderr
    assert place.read("again.h5") == "2"
    # As git does: a new file replaces the old one.
    text = (place.data / "d.h5").read_bytes()
    os.remove(place.data / "d.h5")
    (place.data / "d.h5").write_bytes(text)
    assert "stale copy" in place.read("d.h5")


def test_copies_of_stubs_are_copies_if_that_is_asked_for(place):
    place.variables["CENOTE_HDF5_COPIES"] = "1"
    place.write("d.h5", 1)
    shutil.copy(place.data / "d.h5", place.data / "d.bak")
    place.write("d.h5", 2, "r+")
    assert (place.read("d.bak"), place.read("d.h5")) == ("1", "2")
    assert "copy of the stub" in place.python(WRITE, "d.bak", "r+", 3)
    assert place.command("cp", "d.bak", "own.h5").returncode == 0
    place.write("own.h5", 4, "r+")
    assert (place.read("d.bak"), place.read("d.h5"), place.read("own.h5")) == ("1", "2", "4")
    shutil.copy(place.data / "d.bak", place.data / "d.h5")
    assert place.read("d.h5") == "1"
    place.write("d.bak", 5, "w")
    assert place.read("d.bak") == "5"


CONTENT = """
import h5py, numpy as np, sys
with h5py.File("f.h5", "w", userblock_size=512) as f:
    f.create_dataset("zip", data=np.arange(100000), chunks=(1000,), compression="gzip")
    f.create_dataset("big", (1 << 20,), dtype="f8")[5000:6000] = 7
    f["text"] = ["a", "words" * 100, ""]
    f["g/ref"] = f["zip"].ref
    f.attrs["a"] = "of the root"
    f["soft"] = h5py.SoftLink("/zip")
with open("f.h5", "r+b") as f: f.write(b"user block")
"""
CHECK = """
import h5py, numpy as np, sys
with h5py.File(sys.argv[1]) as f:
    assert (f["soft"][()] == np.arange(100000)).all()
    assert f["big"][5000:6000].sum() == 7000 and f["big"][:].sum() == 7000
    assert f["text"].asstr()[1] == "words" * 100 and f[f["g/ref"][()]].name == "/zip" and f.attrs["a"] == "of the root"
    assert f.userblock_size == 512 and open(sys.argv[1], "rb").read(10) == b"user block"
print("whole")
"""


def test_cenote_cp_copies_all_that_is_in_a_file(place):
    assert place.python(CONTENT) == ""
    done = place.command("cp", "f.h5", "copy.h5")
    assert done.returncode == 0, done.stderr
    assert place.command("cp", "f.h5", "copy.h5").returncode == 1
    os.remove(place.data / "f.h5")
    assert place.python(CHECK, "copy.h5") == "whole"


def test_a_file_that_was_moved_to_another_file_system_is_the_file(tmp_path):
    other = pathlib.Path("/dev/shm") / f"cenote-test-moved-{os.getpid()}"
    if not os.access("/dev/shm", os.W_OK) or os.stat("/dev/shm").st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no second file system")
    place = Place(tmp_path / "store", tmp_path)
    place.write("a.h5", 1)
    shutil.move(tmp_path / "a.h5", other)
    try:
        place.write("b.h5", 2)  # frees files that are certainly gone
        assert place.disk()["gone"] == 0
        assert place.read(other) == "1"
        place.write(other, 3, "r+")
        assert (place.read(other), place.read("b.h5")) == ("3", "2")
        assert place.disk()["waiting"] == []
    finally:
        other.unlink()


def test_a_removed_file_frees_its_space(tmp_path):
    store = tmp_path / "store"
    place = Place(store, tmp_path)
    made = place.command("init", store, "--tier", "name=mem0,kind=memory,size=320MiB")
    assert made.returncode == 0, made.stderr
    code = """
import h5py, numpy as np, os
for i in range(20):
    with h5py.File("f.h5", "w") as f: f["x"] = np.full(4 << 20, i, "i8")
    with h5py.File("f.h5") as f: assert f["x"][-1] == i
    os.remove("f.h5")
print("done")
"""
    assert place.python(code) == "done"
    assert place.command("clean", "--files").returncode == 0
    disk = place.disk()
    assert (disk["there"], disk["gone"], disk["waiting"]) == (0, 0, [])
    assert json.loads(place.command("--json", "ls").stdout) == []


def test_what_may_be_somewhere_still_waits(tmp_path):
    place = Place(tmp_path / "store", tmp_path)
    place.write("a.h5", 1)
    text = (tmp_path / "a.h5").read_bytes()  # somebody may have copied it
    os.remove(tmp_path / "a.h5")
    place.write("b.h5", 2)
    disk = place.disk()
    assert (disk["there"], disk["gone"], len(disk["waiting"])) == (1, 0, 1), disk
    assert "LOOK HDF5 files" in place.command("doctor").stdout
    (tmp_path / "a.h5").write_bytes(text)
    assert place.read("a.h5") == "1"
    assert place.disk()["waiting"] == []
    (tmp_path / "a.h5").read_bytes()
    os.remove(tmp_path / "a.h5")
    assert "a.h5" in place.command("clean", "--files").stdout
    assert place.command("clean", "--files", "--waiting").returncode == 0
    disk = place.disk()
    assert (disk["there"], disk["gone"], disk["waiting"]) == (1, 0, [])
    (tmp_path / "a.h5").write_bytes(text)
    assert "does not hold it" in place.read("a.h5")


def test_a_grace_period_ends(place):
    place.write("a.h5", 1)
    (place.data / "a.h5").read_bytes()
    os.remove(place.data / "a.h5")
    place.disk()  # notes files missing on another file system
    place.write("b.h5", 2)
    assert len(place.disk()["waiting"]) == 1
    assert place.command("clean", "--files", CENOTE_HDF5_GRACE_S="0").returncode == 0
    disk = place.disk()
    assert (disk["there"], disk["gone"], disk["waiting"]) == (1, 0, [])


HOLD = """
import h5py, sys
f = h5py.File(sys.argv[1], sys.argv[2], **eval(sys.argv[3]))
print("open", flush=True)
for line in sys.stdin:
    try: print(repr(eval(line)), flush=True)
    except Exception as e: print(type(e).__name__, str(e).replace(chr(10), " "), flush=True)
"""


class Holder:
    """A program that has a file open."""

    def __init__(self, place, name, mode, options="{}", **variables):
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", HOLD, name, mode, options],
            env=environment(place.store) | variables,
            cwd=place.data,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout.readline() == "open\n"

    def say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def end(self):
        self.process.communicate()
        assert self.process.returncode == 0


def test_a_removed_file_stays_while_a_program_has_it_open(tmp_path):
    place = Place(tmp_path / "store", tmp_path)
    place.write("a.h5", 17)
    holder = Holder(place, "a.h5", "r")
    os.remove(tmp_path / "a.h5")
    place.write("a.h5", 2)
    assert place.command("clean", "--files", "--waiting").returncode == 0
    assert place.disk()["gone_and_open"] == 1
    assert holder.say("int(f['v'][()])") == "17"
    holder.end()
    place.write("b.h5", 3)
    disk = place.disk()
    assert (disk["there"], disk["gone_and_open"], disk["gone"]) == (2, 0, 0)


@pytest.mark.parametrize("first", ["r", "r+"])
def test_a_second_program_is_refused_as_natively(place, first):
    place.write("a.h5", 1)
    holder = Holder(place, "a.h5", first)
    assert (place.read("a.h5") == "1") == (first == "r")
    for mode in ("r+", "a", "w"):
        said = place.python(WRITE, "a.h5", mode, 2)
        assert said.startswith("BlockingIOError: [Errno 11]") and "unable to lock file" in said, said
        assert holder.say("int(f['v'][()])") == "1"
    # A program that asks for it writes together with others.
    place.write("a.h5", 3, "r+", **UNLOCKED)
    assert holder.say("int(f['v'][()])") == "3"
    assert place.python(WRITE.replace("sys.argv[2]", "sys.argv[2], locking=False"), "a.h5", "r+", 4) == ""
    assert holder.say("int(f['v'][()])") == "4"
    holder.end()
    place.write("a.h5", 5, "w")


def test_swmr_readers_are_let_in(place):
    holder = Holder(place, "s.h5", "w", "{'libver': 'latest'}")
    assert holder.say("f.create_dataset('v', data=1) is None") == "False"
    assert holder.say("f.swmr_mode") == "False"
    assert "unable to lock" in place.read("s.h5")
    assert holder.say("setattr(f, 'swmr_mode', True)") == "None"
    assert holder.say("f.swmr_mode") == "True"
    reader = Holder(place, "s.h5", "r", "{'libver': 'latest', 'swmr': True}")
    assert (reader.say("f.swmr_mode"), reader.say("int(f['v'][()])")) == ("True", "1")
    assert "already open for write" in place.read("s.h5")
    assert "already open for write" in place.python(WRITE, "s.h5", "r+", 1)
    reader.end()
    holder.end()
    assert place.read("s.h5") == "1"


def test_a_reader_whose_file_is_replaced_is_told_so(place):
    place.write("a.h5", 1)
    reader = Holder(place, "a.h5", "r")
    place.write("a.h5", 2, "w", **UNLOCKED)
    said = reader.say("int(f['v'][()])")
    assert "replaced" in said, said
    reader.end()
    assert place.read("a.h5") == "2"


@pytest.mark.parametrize("mode", ["a", "r+"])
def test_an_empty_file_becomes_an_hdf5_file(place, mode):
    (place.data / "empty.h5").touch()
    assert "signature" in place.read("empty.h5")
    place.write("empty.h5", 1, mode)
    assert place.read("empty.h5") == "1"
    code = """
import h5py, os, tempfile
fd, name = tempfile.mkstemp(dir=".")
os.close(fd)
with h5py.File(name, MODE) as f: f["x"] = 5
print(h5py.File(name)["x"][()], oct(os.stat(name).st_mode & 0o777))
"""
    assert place.python(code.replace("MODE", repr(mode))) == "5 0o600"


def test_the_descriptor_is_one_word_as_pytables_reads_it(place):
    code = """
import ctypes, h5py, os
from h5py import h5f
with h5py.File("a.h5", "w") as f:
    fd = f.id.get_vfd_handle()
    assert os.fstat(fd).st_ino == os.stat("a.h5").st_ino
try: import tables
except ImportError: print("ok")
else:
    with tables.open_file("b.h5", "w") as f:
        assert os.fstat(f.fileno()).st_ino == os.stat("b.h5").st_ino
    print("ok")
"""
    assert place.python(code) == "ok"


def test_a_directory_that_cannot_be_written_to(tmp_path):
    place = Place(tmp_path / "store", tmp_path)
    place.write("a.h5", 1)
    stubs = tmp_path / "store/hdf5-stubs"
    shutil.rmtree(stubs)  # as if nothing had ever been recorded
    assert place.read("a.h5") == "1"
    assert len(list(stubs.iterdir())) == 1
    shutil.rmtree(stubs)
    os.remove(tmp_path / "a.h5")
    place.write("b.h5", 2)
    # A file that was never recorded is never freed.
    assert len(json.loads(place.command("--json", "ls").stdout)) == 2


def test_a_copied_store_directory_frees_nothing_by_its_links(tmp_path):
    place = Place(tmp_path / "store", tmp_path)
    place.write("a.h5", 1)
    stubs = tmp_path / "store/hdf5-stubs"
    shutil.copytree(stubs, tmp_path / "copied")
    shutil.rmtree(stubs)
    os.rename(tmp_path / "copied", stubs)
    place.write("b.h5", 2)
    assert place.command("clean", "--files").returncode == 0
    assert place.read("a.h5") == "1"


def test_the_daemon_frees_what_was_removed(tmp_path):
    place = Place(tmp_path / "store", tmp_path)
    place.write("keep.h5", 0)
    place.write("a.h5", 1)
    os.remove(tmp_path / "a.h5")
    for _ in range(300):
        if len(json.loads(place.command("--json", "ls").stdout)) == 1:
            break
        time.sleep(0.1)
    else:
        raise AssertionError("it was not freed")
    assert place.read("keep.h5") == "0"


@pytest.mark.skipif(os.geteuid() != 0, reason="there is no second user to try")
def test_a_stub_says_who_may_use_its_file(tmp_path):
    """The container has owner, group and mode of the stub; `chmod` takes effect at the next opening for writing."""
    place = Place(tmp_path / "store", tmp_path)
    os.umask(0o022)

    def mode(name):
        listed = subprocess.run(
            [connector()[1], "--store", place.store, "--json", "ls"], capture_output=True, text=True, check=True
        )
        found = [info for info in json.loads(listed.stdout) if info["label"].endswith("/" + name)]
        assert len(found) == 1, listed.stdout
        return found[0]["mode"], found[0]["owner_uid"], found[0]["owner_gid"]

    place.write("open.h5", 1)
    assert mode("open.h5") == ("0644", 0, 0)
    place.python(f"import os; os.umask(0o077)\n{WRITE}", "private.h5", "w", 1)
    assert mode("private.h5") == ("0600", 0, 0)
    # As `tempfile.mkstemp` makes it: never open to others, not even for a moment.
    fd = os.open(place.data / "made.h5", os.O_CREAT | os.O_RDWR, 0o600)
    os.close(fd)
    place.write("made.h5", 1, "a")
    assert mode("made.h5") == ("0600", 0, 0)
    (place.data / "private.h5").chmod(0o640)
    os.chown(place.data / "private.h5", 0, 65534)
    assert place.python(READ, "private.h5") == "1"
    assert mode("private.h5") == ("0600", 0, 0)
    place.write("private.h5", 2, "a")
    assert mode("private.h5") == ("0640", 0, 65534)
    subprocess.run([connector()[1], "--store", place.store, "destroy", "--yes", "--force"], check=True)
