"""Bad input: damaged files, names, cycles, quotas, missing filters, foreign versions and builds. In every case the
program gets an HDF5 error that says what is wrong and what helps; nothing crashes, hangs, or reads as zeros."""

import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

import pytest
from bad_programs import PROGRAMS
from test_data import connector, environment, nothing_stays  # noqa: F401 (a fixture that works by being here)
from test_structure import must_agree, python, run_both

HERE = pathlib.Path(__file__).parent
PROGRAM_FILE = HERE / "bad_programs.py"
TELL = """
import sys, h5py
sys.path.insert(0, sys.argv[1])
import foreign_programs
for name in sys.argv[2:]:
    print("=", name, flush=True)
    try:
        foreign_programs.tell(name)
    except Exception as error:
        print("FAILED", type(error).__name__, error, flush=True)
print("alive")
"""


def command(store, *args, check=True):
    """Runs the `cenote` command."""
    program = connector()[1] or pytest.skip("the command is not built")
    line = [program, "--store", str(store), *map(str, args)]
    done = subprocess.run(line, env=environment(store), capture_output=True, text=True, timeout=120, check=False)
    assert not check or done.returncode == 0, done.stderr
    return done


def tell(store, names, cwd, **variables):
    """What is read of each file, or None if the process crashed or hung: native HDF5 does at some damage."""
    line = [sys.executable, "-W", "ignore", "-c", TELL, str(HERE), *map(str, names)]
    surroundings = environment(store) | variables
    try:
        done = subprocess.run(line, env=surroundings, cwd=cwd, capture_output=True, text=True, timeout=100, check=False)
    except subprocess.TimeoutExpired:
        return None
    if done.returncode != 0 or not done.stdout.endswith("alive\n"):
        return None
    parts = re.split(r"^= (.*)\n", done.stdout.removesuffix("alive\n"), flags=re.M)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def seeded(name="CENOTE_SEED"):
    seed = int(os.environ.get(name, random.randrange(1 << 30)))
    print(f"{name}={seed}")
    return random.Random(seed)


# Programs that must see the same on native HDF5 and on Cenote.


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    return run_both(tmp_path_factory.mktemp("bad"), list(PROGRAMS), PROGRAM_FILE)


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_program(both, name):
    must_agree(both[0][name], both[1][name])


# Damaged files.


def damaged(content, chance):
    """Kinds of damage, by name."""
    yield "empty", b""
    yield "short", content[:8]
    for i in range(3):
        yield f"cut{i}", content[: chance.randrange(1, len(content))]
    yield "random", chance.randbytes(5000)
    yield "signed", content[:8] + chance.randbytes(5000)
    for i in range(8):
        noisy = bytearray(content)
        for _ in range(chance.choice([1, 1, 20, 300])):
            noisy[chance.randrange(512, len(noisy))] ^= 1 << chance.randrange(8)
        yield f"flipped{i}", bytes(noisy)


def tell_natively(name, cwd):
    """What native HDF5 reads of a damaged file; None if it crashes, or if its answer depends on uninitialised memory:
    the
    initial content of allocations differs between the two runs."""
    first, second = (tell(None, [name], cwd, MALLOC_PERTURB_=byte) for byte in ("37", "201"))
    if first is None or first != second:
        return None
    # A reference to an object without a name.
    return None if "-> None" in first[name] or "NoneType" in first[name] else first[name]


def agrees(have, native):
    """Cenote reads what native HDF5 reads, or the same up to an error of its own that says what is wrong."""
    # Filters are registered under their own names; native HDF5 reports the name in the file.
    told = r"""(\(\d+, \d+, \([^)]*\), )b('[^']*'|"[^"]*")\)"""
    have, native = re.sub(told, r"\1its name)", have), re.sub(told, r"\1its name)", native)
    before, refusal, why = have.partition("FAILED ")
    return have == native or (bool(refusal) and "(cenote " in why and native.startswith(before))


def test_damaged_native_files_fail_or_read_as_native_hdf5_reads_them(tmp_path):
    """In place, and staged into the store as bytes."""
    chance = seeded()
    subprocess.run([sys.executable, HERE / "foreign_programs.py", "make", "good.h5"], cwd=tmp_path, check=True)
    store = tmp_path / "store"
    command(store, "init", store)
    names = []
    for name, content in damaged((tmp_path / "good.h5").read_bytes(), chance):
        (tmp_path / f"{name}.h5").write_bytes(content)
        names.append(f"{name}.h5")
    refused = 0
    for name in names:
        native = tell_natively(name, tmp_path)
        if native is None:
            continue  # nothing to compare with
        staged = f"staged-{name}"
        done = command(store, "stage", tmp_path / name, tmp_path / staged, check=False)
        if done.returncode != 0:
            # A file that is not HDF5 at all is not staged.
            assert "FAILED" in native and name in done.stderr and "panic" not in done.stderr, done.stderr
        for file in (name, staged) if done.returncode == 0 else (name,):
            have = tell(store, [file], tmp_path)
            assert have is not None, f"{file}: the program died"
            if "FAILED" not in native:
                assert agrees(have[file], native), (file, have[file], native)
            elif "FAILED OSError" in native.splitlines()[0]:
                assert have[file].startswith("FAILED OSError"), (file, have[file][:500])
                assert file in have[file], have[file]
                refused += 1
    assert refused > 5


def test_damaged_stubs_are_refused(tmp_path):
    chance = seeded()
    store = tmp_path / "store"
    python("import h5py; h5py.File('a.h5', 'w')['x'] = range(5)", store, tmp_path)
    stub = (tmp_path / "a.h5").read_bytes()
    code = """
import sys, h5py
for name in sys.argv[1:]:
    for mode in "r", "r+":
        try:
            with h5py.File(name, mode) as f:
                assert f["x"][:].tolist() == [0, 1, 2, 3, 4]
                print("read")
        except OSError as error:
            assert name in str(error), error
            print("refused")
"""
    names = []
    for i in range(40):
        content = bytearray(stub[: chance.randrange(len(stub))] if i % 2 else stub)
        for _ in range(chance.randrange(1, 4)):
            if content:
                content[chance.randrange(len(content))] = chance.randrange(256)
        (tmp_path / f"d{i}.h5").write_bytes(content)
        names.append(f"d{i}.h5")
    line = [sys.executable, "-c", code, *names]
    done = subprocess.run(
        line, env=environment(store), cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    # Each is at best a copy of the stub.
    assert set(done.stdout.split()) == {"refused"}
    assert python("import h5py; print(h5py.File('a.h5')['x'][:].sum())", store, tmp_path).strip() == "10"


KILLED = """
import h5py, numpy as np, sys
f = h5py.File("k.h5", "w")
d = f.create_dataset("rows", (0, 1000), "i8", maxshape=(None, 1000), chunks=(7, 250), compression="gzip")
big = f.create_dataset("big", (0, 100_000), "i8", maxshape=(None, 100_000), chunks=(1, 100_000))
for i in range(1 << 30):
    d.resize(i + 1, axis=0)
    d[i] = i + 1
    big.resize(i + 1, axis=0)
    big[i] = i + 1
    f.require_group("g").attrs[f"a{i}"] = f"text {i}"
    # In place: `attrs[…] = …` removes the attribute and makes it again, and a kill can come between.
    f.attrs.modify("n", i + 1)
    f.flush()
    print(i + 1, flush=True)
"""


def test_a_file_whose_writer_was_killed_says_what_is_there_and_is_written_at_once(tmp_path):
    chance = seeded()
    store = tmp_path / "store"
    for _ in range(3):
        writer = subprocess.Popen(
            [sys.executable, "-c", KILLED], env=environment(store), cwd=tmp_path, stdout=subprocess.PIPE, text=True
        )
        for _ in range(chance.randrange(1, 20)):
            flushed = int(writer.stdout.readline())
        time.sleep(chance.random() / 20)
        writer.send_signal(signal.SIGKILL)
        flushed = max([flushed, *map(int, writer.stdout.read().split())])
        writer.wait()
        began = time.monotonic()
        python(
            f"""
import h5py
with h5py.File("k.h5", "r+") as f:
    n, rows, big = f.attrs["n"], f["rows"], f["big"]
    assert n >= {flushed}, (n, {flushed})
    # An extent comes with its bytes: those of parts of compressed chunks with the flush (docs/semantics.md).
    assert {flushed} <= len(rows) <= n + 1 and n <= len(big) <= n + 1
    # What was flushed. Of what came after, compressed chunks may be missing: they are stored at the flush.
    for i in range({flushed}):
        assert (rows[i] == i + 1).all() and (big[i] == i + 1).all() and f["g"].attrs[f"a{{i}}"] == f"text {{i}}"
    rows.resize(n, axis=0)
    rows[n - 1] = 5
    f["more"] = [1, 2]
with h5py.File("k.h5") as f:
    assert (f["rows"][-1] == 5).all() and f["more"][1] == 2
""",
            store,
            tmp_path,
        )
        assert time.monotonic() - began < 30


# No room.

FILLING = """
import h5py, numpy as np, json, os, subprocess, sys
def attempt(act):
    try:
        act()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "ok"
f = h5py.File("q.h5", "r+")
assert (f["before"][:] == np.arange(1000)).all()
said = {}
rng = np.random.default_rng(0)
data = rng.random((500, 500))
chunks = {"chunks": (50, 50)}
layouts = {"contiguous": {}, "chunked": chunks, "zipped": chunks | {"compression": "gzip"}}
# While there is room: a quota counts what is known of datasets, too.
for name, options in layouts.items():
    f.create_dataset(name, (500, 500), "f8", **options)
f.flush()
for name in layouts:
    said[name] = [attempt(lambda: f[name].__setitem__(Ellipsis, data)), attempt(f.flush)]
    # Row by row, which is put aside with filters.
    said[name + " rows"] = [attempt(lambda: [f[name].__setitem__(i, data[i]) for i in range(500)]), attempt(f.flush)]
said["strings"] = [attempt(lambda: f.create_dataset("strings", data=["x" * 100_000] * 10, dtype=h5py.string_dtype()))]
said["small"] = [attempt(lambda: [f.__setitem__(f"s{i}", rng.random(500)) for i in range(200)]), attempt(f.flush)]
attempt(lambda: f.create_group("still"))
said["close"] = [attempt(f.close)]
if f:
    said["close"].append(attempt(f.close))
print(json.dumps(said))
"""

AFTER = """
import h5py, numpy as np
with h5py.File("q.h5", "r+") as f:
    assert (f["before"][:] == np.arange(1000)).all()
    names = list(f)
    for name in names:
        f[name]  # no link leads to nothing
    data = np.random.default_rng(0).random((500, 500))
    for name in "contiguous", "chunked", "zipped":
        have = f[name][...]
        assert ((have == data) | (have == 0)).all()
        f[name][...] = data
    f["after"] = np.arange(10)
with h5py.File("q.h5") as f:
    assert all((f[name][...] == data).all() for name in ("contiguous", "chunked", "zipped"))
    assert (f["after"][:] == np.arange(10)).all() and (f["before"][:] == np.arange(1000)).all()
print("good")
"""


def test_a_quota_is_an_error_that_says_what_helps_and_nothing_else_is_lost(tmp_path):
    store = tmp_path / "store"
    python("import h5py, numpy as np; h5py.File('q.h5', 'w')['before'] = np.arange(1000)", store, tmp_path)
    label = f"hdf5:{tmp_path}/q.h5"
    command(store, "set", label, "--quota", "300KiB")
    said = json.loads(python(FILLING, store, tmp_path))
    for name, (first, *rest) in said.items():
        failures = [answer for answer in (first, *rest) if answer != "ok"]
        if name == "close":
            continue
        assert failures, f"{name}: nothing was said"
        assert all("quota" in failure for failure in failures), failures
        assert all(f"{tmp_path}/q.h5" in failure for failure in failures), failures
    command(store, "set", label, "--quota", "100MiB")
    assert python(AFTER, store, tmp_path).strip() == "good"


def test_a_full_store_is_an_error_that_names_tier_and_remedy(tmp_path):
    store = tmp_path / "store"
    command(store, "init", store, "--tier", "name=ram,kind=memory,size=32MiB")
    python("import h5py, numpy as np; h5py.File('q.h5', 'w')['before'] = np.arange(1000)", store, tmp_path)
    code = """
import h5py, numpy as np
with h5py.File("full.h5", "w") as f:
    try:
        for i in range(100):
            f[f"d{i}"] = np.full(200_000, i, "f8")
            f.flush()
    except Exception as error:
        print(i, type(error).__name__, error)
    else:
        raise SystemExit("nothing was refused")
with h5py.File("full.h5", "r+") as f:
    for j in range(i):
        assert (f[f"d{j}"][:] == j).all()
    del f["d0"], f["d1"]
with h5py.File("q.h5") as f:
    assert (f["before"][:] == np.arange(1000)).all()
"""
    said = python(code, store, tmp_path)
    for part in "full.h5", "no tier has room", "`ram` (memory)", "delete something":
        assert part in said, said
    # After something was deleted, writing works again.
    python(
        "import h5py, numpy as np, time\nfor _ in range(50):\n  try:\n    with h5py.File('full.h5', 'r+') as f:\n"
        "      f.require_dataset('more', (100_000,), 'f8')[:] = 3\n    break\n"
        "  except OSError as e:\n    time.sleep(0.1)\nelse: raise e\n"
        "assert (h5py.File('full.h5')['more'][:] == 3).all()",
        store,
        tmp_path,
    )


# Filters that are missing.

WITH_FILTER = """
import h5py, hdf5plugin, numpy as np
with h5py.File("z.h5", "w") as f:
    for name in "read", "written", "closed":
        f.create_dataset(name, data=np.arange(1000.0), chunks=(100,), **hdf5plugin.Zstd())
    f["plain"] = np.arange(10)
"""

WITHOUT_FILTER = """
import h5py, numpy as np
def refused(act, *words):
    try:
        act()
    except Exception as error:
        assert all(word in str(error) for word in ("zstd (32015)", "HDF5_PLUGIN_PATH")), error
        assert type(error) in (OSError, RuntimeError, ValueError), error
    else:
        raise AssertionError("nothing was refused")
f = h5py.File("z.h5", "r+")
d = f["read"]
refused(lambda: d[:])
refused(lambda: d[55:60])
out = np.full(1000, -1.0)
refused(lambda: d.read_direct(out))
assert not (out == 0).any(), "zero-filled"
assert len(d.id.read_direct_chunk((0,))[1]) > 0 and d.shape == (1000,) and f["plain"][9] == 9
# Part of a chunk needs the rest of it: told by the write, or by the flush.
def write():
    f["written"][5:10] = 7
    f["written"].flush()
refused(write)
refused(f.flush)
f["written"][0:100] = 8.0  # a whole chunk does not: the filter is optional, h5py's default
assert f["written"].id.get_chunk_info(0).filter_mask == 1
f.flush()
g = f["closed"]
g[5:10] = 7
del g
refused(f.close)
assert f
f.close()
"""

FILTER_AGAIN = """
import h5py, hdf5plugin, numpy as np
with h5py.File("z.h5") as f:
    want = np.arange(1000.0)
    assert (f["read"][:] == want).all() and (f["closed"][:] == want).all()
    want[:100] = 8
    assert (f["written"][:] == want).all()
"""


def test_a_missing_filter_is_named_and_nothing_reads_as_zeros(tmp_path):
    pytest.importorskip("hdf5plugin")
    store = tmp_path / "store"
    for code in (WITH_FILTER, WITHOUT_FILTER, FILTER_AGAIN):
        python(code, store, tmp_path)


# Versions.

OPENING = """
import sys, h5py
for mode in "r", "r+", "w":
    try:
        h5py.File("v.h5", mode)
    except OSError as error:
        print(error)
    else:
        raise SystemExit(f"{mode} worked")
"""


def crc32c(content):
    """The checksum of the store's files."""
    sum_ = 0xFFFFFFFF
    for byte in content:
        sum_ ^= byte
        for _ in range(8):
            sum_ = sum_ >> 1 ^ (0x82F63B78 if sum_ & 1 else 0)
    return sum_ ^ 0xFFFFFFFF


def test_a_store_of_another_version_is_refused(tmp_path):
    store = tmp_path / "store"
    python("import h5py; h5py.File('v.h5', 'w')['x'] = range(5)", store, tmp_path)
    command(store, "stop", check=False)
    superblock = store / "superblock"
    good = superblock.read_bytes()
    head = bytearray(good)
    (version,) = struct.unpack_from("<I", head, 8)
    struct.pack_into("<I", head, 8, version + 1)
    struct.pack_into("<I", head, 12, 0)
    struct.pack_into("<I", head, 12, crc32c(head))
    superblock.write_bytes(head)
    said = python(OPENING, store, tmp_path)
    assert said.count("wrong version") == 3 and f"its version is {version + 1}" in said, said
    superblock.write_bytes(good)
    assert python("import h5py; print(h5py.File('v.h5')['x'][4])", store, tmp_path).strip() == "4"


def test_a_daemon_that_speaks_another_version_is_an_error_and_no_hang(tmp_path):
    """The store's socket answers with frames, and with messages, of another version."""
    store = tmp_path / "store"
    python("import h5py; h5py.File('v.h5', 'w')['x'] = range(5)", store, tmp_path)
    command(store, "stop", check=False)
    for answer in (
        struct.pack("<IHH", 5, 0, 99) + b"hello",
        struct.pack("<IHH", 5, 0, 1) + b"\xffhell",
        b"garbage!" * 4,
    ):
        listening = socket.socket(socket.AF_UNIX)
        (store / "socket").unlink(missing_ok=True)
        listening.bind(str(store / "socket"))
        listening.listen()
        listening.settimeout(60)

        def serve(listening=listening, answer=answer):
            while True:
                try:
                    connection, _ = listening.accept()
                    connection.recv(4096)
                    connection.sendall(answer)
                    time.sleep(0.2)
                    connection.close()
                except OSError:
                    return

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        began = time.monotonic()
        said = python(OPENING.replace('"w"', '"a"'), store, tmp_path)
        assert time.monotonic() - began < 60
        assert str(store) in said and "panic" not in said, said
        if answer[6:8] == b"\x63\0":
            assert "version" in said, said
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join(10)
    (store / "socket").unlink(missing_ok=True)
    assert python("import h5py; print(h5py.File('v.h5')['x'][4])", store, tmp_path).strip() == "4"


def test_a_file_that_another_version_of_the_connector_wrote_is_refused(tmp_path):
    store = tmp_path / "store"
    python("import h5py; h5py.File('v.h5', 'w')['x'] = range(5)", store, tmp_path)
    index = f"hdf5:{tmp_path}/v.h5/{0:032x}"
    got = command(store, "index", "get", "--hex", index, b"super".hex()).stdout
    value = re.search(rf"{b'super'.hex()}\s+([0-9a-f]+)", got)[1]
    command(store, "index", "put", "--hex", index, b"super".hex(), "63" + value[2:])
    said = python(OPENING.replace(', "w"', ""), store, tmp_path)
    assert said.count("version 99") == 2 and "newer" in said, said


# Plugins.


@pytest.mark.parametrize("what", ["nothing", "text", "another library"])
def test_without_the_connector_no_program_goes_on_natively(what, tmp_path):
    """HDF5 reports that it did not find the connector (h5py 3.16 then fails at import). None of this is our code."""
    plugins = tmp_path / "plugins"
    plugins.mkdir()
    if what == "text":
        (plugins / "libcenote_hdf5.so").write_text("no library at all")
    elif what == "another library":
        other = next(pathlib.Path("/usr/lib").rglob("libz.so*"), None) or pytest.skip("no other library")
        shutil.copy(other.resolve(), plugins / "libcenote_hdf5.so")
    env = environment(tmp_path / "store") | {"HDF5_PLUGIN_PATH": str(plugins)}
    done = subprocess.run(
        [sys.executable, "-c", "import h5py; h5py.File('n.h5', 'w')"],
        env=env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0 and "cenote" in done.stderr + str(env) and "HDF5" in done.stderr, done.stderr
    assert not (tmp_path / "n.h5").exists()


ASKS = """
#include <dlfcn.h>
#include <stdio.h>
int H5get_libversion(unsigned *a, unsigned *b, unsigned *c) { *a = 1; *b = VERSION; *c = 0; return 0; }
void *volatile class;
int ask(const char *plugin) {
    void *handle = dlopen(plugin, RTLD_NOW);
    if (!handle) { fprintf(stderr, "%s", dlerror()); return 1; }
    class = ((void *(*)(void))dlsym(handle, "H5PLget_plugin_info"))();
    return class ? 2 : 0;
}
"""


@pytest.mark.parametrize("version", [12, 14])
def test_a_libhdf5_that_is_too_old_or_lacks_a_function_is_refused(version, tmp_path):
    compiler = shutil.which("gcc") or shutil.which("cc") or pytest.skip("no C compiler")
    (tmp_path / "asks.c").write_text(ASKS.replace("VERSION", str(version)))
    library = tmp_path / "libhdf5-strange.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O0", "-o", library, tmp_path / "asks.c"], check=True)
    plugin = next(pathlib.Path(connector()[0]).glob("libcenote_hdf5.so"))
    code = f"import ctypes; raise SystemExit(ctypes.CDLL({str(library)!r}).ask({str(plugin)!r}.encode()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    words = "need 1.14 or newer" if version == 12 else "lacks the function H5"
    assert str(library) in done.stderr and words in done.stderr, done.stderr
