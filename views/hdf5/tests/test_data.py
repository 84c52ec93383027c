"""Raw data of datasets: the same programs must see the same on native HDF5 and on Cenote, bit for bit.

`CENOTE_SEED=n` replays one seed; `CENOTE_SEEDS=n` sets how many are tried. `CENOTE_HDF5_PLUGIN` is the directory of the
connector (by default where cargo puts it).
"""

import atexit
import functools
import os
import pathlib
import pickle
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import pytest

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[2]
PROGRAMS = HERE / "data_programs.py"
BATCH = 40
# Programs that write one file together must ask for it, as in HDF5.
UNLOCKED = {"HDF5_USE_FILE_LOCKING": "FALSE"}


@functools.cache
def connector():
    """A directory that contains only the connector (HDF5 tries to load every library there), and the command that
    serves as
    daemon."""
    if where := os.environ.get("CENOTE_HDF5_PLUGIN"):
        return where, os.environ.get("CENOTE_BIN")
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    built = [f for kind in ("release", "debug") if (f := target / kind / "libcenote_hdf5.so").exists()]
    if not built:
        pytest.skip("the connector is not built: cargo build -p cenote-hdf5 -p cenote-cli")
    newest = max(built, key=lambda f: f.stat().st_mtime)
    where = tempfile.TemporaryDirectory(prefix="cenote-hdf5-")
    atexit.register(where.cleanup)
    os.symlink(newest, pathlib.Path(where.name) / newest.name)
    return where.name, os.environ.get("CENOTE_BIN", str(newest.with_name("cenote")))


def environment(store):
    """Environment of a program: on the store, or native if it is None."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("HDF5_", "CENOTE_"))}
    if store:
        plugin, program = connector()
        env |= {"HDF5_PLUGIN_PATH": plugin, "HDF5_VOL_CONNECTOR": f"cenote store={store}"}
        env |= {"CENOTE_BIN": program} if program else {}
    return env


@pytest.fixture(autouse=True)
def nothing_stays(tmp_path):
    """Stops the daemons of a test's stores and frees their memory."""
    yield
    for superblock in tmp_path.glob("*/superblock"):
        store = superblock.parent
        if program := connector()[1]:
            subprocess.run([program, "--store", store, "stop"], capture_output=True, timeout=60, check=False)
        lose_memory(superblock)
        shutil.rmtree(store, ignore_errors=True)


def lose_memory(superblock):
    """Removes a store's shared memory."""
    content = superblock.read_bytes()
    for memory in pathlib.Path("/dev/shm").glob("cenote-" + "[0-9a-f]" * 32):
        store_id = bytes.fromhex(memory.name.removeprefix("cenote-"))
        if store_id in content or store_id[::-1] in content:
            shutil.rmtree(memory, ignore_errors=True)


def programs(mode, store, prefix, seeds):
    """What each program saw."""
    output = f"{prefix}.{mode}.pickle"
    command = [sys.executable, str(PROGRAMS), mode, str(prefix), output, *map(str, seeds)]
    done = subprocess.run(command, env=environment(store), capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, f"seeds {seeds[0]}..{seeds[-1]}: exit {done.returncode}\n{done.stderr[-4000:]}"
    with open(output, "rb") as results:
        return pickle.load(results)


def seeds():
    if "CENOTE_SEED" in os.environ:
        return [int(os.environ["CENOTE_SEED"])]
    first = random.randrange(1 << 40)
    count = int(os.environ.get("CENOTE_SEEDS", "160"))
    return list(range(first, first + count))


def compare(native, cenote, ran):
    """Compares results. `ran`: what the programs saw on native HDF5, which tells what they did."""
    for seed, expected in native.items():
        got = cenote[seed]
        hint = f"replay with CENOTE_SEED={seed}"
        if expected[0][0] == "program failed":
            assert got[0][:2] == expected[0][:2], hint
            continue
        assert got[0][0] != "program failed", f"{hint}\n{got[0]}\nprogram: {expected[0]}"
        # HDF5 makes chunks of fill values only when it shrinks a dataset that it has read from.
        resized = any(entry[0].startswith("resize") for entry in ran[seed])
        for i, (want, have) in enumerate(zip(expected, got, strict=False)):
            same = have[1] <= want[1] if resized and want[0] == have[0] == "chunks" else have == want
            assert same, f"{hint}, step {i}: expected {want}, got {have}, after {[e[0] for e in expected[:i]]}"
        assert len(got) == len(expected), hint


def test_programs_see_what_they_see_on_native_hdf5(tmp_path):
    todo = seeds()
    print(f"CENOTE_SEED={todo[0]} and following")
    (tmp_path / "native").mkdir()
    (tmp_path / "cenote").mkdir()
    store = tmp_path / "store"
    for i in range(0, len(todo), BATCH):
        batch = todo[i : i + BATCH]
        native = programs("run", None, tmp_path / "native" / "f", batch)
        compare(native, programs("run", store, tmp_path / "cenote" / "f", batch), native)
        # Another process sees the same afterwards.
        good = [seed for seed in batch if native[seed][0][0] != "program failed"]
        if good:
            compare(
                programs("look", None, tmp_path / "native" / "f", good),
                programs("look", store, tmp_path / "cenote" / "f", good),
                native,
            )


def script(code, store, *args):
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, args)],
        env=environment(store) | UNLOCKED,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(*processes):
    said = [process.communicate(timeout=300) for process in processes]
    for process, (out, err) in zip(processes, said, strict=True):
        assert process.returncode == 0, out + err
    return "".join(out for out, _ in said)


MAKE = """
import h5py, sys, numpy as np
with h5py.File(sys.argv[1], "w") as f:
    f.create_dataset("plain", (64, 4096), "f8")
    f.create_dataset("filled", (64, 4096), "f8", fillvalue=-1.5)
    f.create_dataset("chunked", (64, 4096), "f8", chunks=(8, 1000), maxshape=(None, None))
    f.create_dataset("chunk_fill", (64, 4096), "f4", chunks=(8, 1000), maxshape=(None, 4096), fillvalue=7)
    f.create_dataset("zipped", (64, 4096), "f8", chunks=(16, 1024), compression="gzip", shuffle=True, fletcher32=True)
    f.create_dataset("strings", (64, 64), h5py.string_dtype(), chunks=(8, 8))
"""

WRITE = """
import h5py, sys, numpy as np
path, rank, of = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with h5py.File(path, "r+") as f:
    for name in ["plain", "filled", "chunked", "chunk_fill", "zipped"]:
        d = f[name]
        for i in range(rank, 48, of):          # interleaved rows, so that chunks and blocks are shared
            d[i, :] = np.arange(4096) + 10000 * i
        d[48:56, rank::of] = rank               # interleaved elements
    for i in range(rank, 64, of):
        f["strings"][i] = [f"{i}/{j}" * (j % 5) for j in range(64)]
"""

CHECK = """
import h5py, sys, numpy as np
path, of = sys.argv[1], int(sys.argv[2])
with h5py.File(path, "r") as f:
    for name, fill in [("plain", 0), ("filled", -1.5), ("chunked", 0), ("chunk_fill", 7), ("zipped", 0)]:
        got = f[name][()]
        want = np.full((64, 4096), fill, got.dtype)
        want[:48] = np.arange(4096) + 10000 * np.arange(48)[:, None]
        want[48:56] = np.arange(4096) % of
        bad = np.argwhere(got != want)
        assert not len(bad), (name, len(bad), bad[:5], got[tuple(bad[0])], want[tuple(bad[0])])
    want = [[f"{i}/{j}" * (j % 5) for j in range(64)] for i in range(64)]
    assert f["strings"].asstr()[()].tolist() == want
"""


@pytest.mark.parametrize("writers", [2, 4])
def test_processes_write_one_dataset_together(tmp_path, writers):
    store, path = tmp_path / "store", tmp_path / "shared.h5"
    finish(script(MAKE, store, path))
    finish(*[script(WRITE, store, path, rank, writers) for rank in range(writers)])
    finish(script(CHECK, store, path, writers))


TOGETHER = """
import h5py, sys, time, numpy as np
path, rank, of, rounds, start = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5])
names = ["zipped", "summed", "shuffled", "plain", "filled"]
with h5py.File(path, "r+") as f:
    for turn in range(rounds):
        # All at the same moment, and each with its own elements of the same chunk.
        time.sleep(max(0, start + 0.02 * turn - time.time()))
        for name in names:
            d = f[name]
            d[turn, rank::of] = np.arange(rank, d.shape[1], of) + 1000 * turn + 1
        f.flush()
        for name in names:          # what was flushed is there, whoever wrote beside it meanwhile
            got = f[name][turn, rank::of]
            want = np.arange(rank, f[name].shape[1], of) + 1000 * turn + 1
            assert (got == want).all(), (name, turn, rank)
"""

TOGETHER_MAKE = """
import h5py, sys
with h5py.File(sys.argv[1], "w") as f:
    shape, chunks = (64, 900), (32, 900)
    f.create_dataset("zipped", shape, "i8", chunks=chunks, compression="gzip", shuffle=True)
    f.create_dataset("summed", shape, "i4", chunks=chunks, fletcher32=True)
    f.create_dataset("shuffled", shape, "i4", chunks=chunks, shuffle=True, fillvalue=-3)
    f.create_dataset("plain", shape, "i8", chunks=chunks)
    f.create_dataset("filled", shape, "i4", chunks=chunks, fillvalue=-3)
"""

TOGETHER_CHECK = """
import h5py, sys, numpy as np
path, rounds = sys.argv[1], int(sys.argv[2])
with h5py.File(path, "r") as f:
    for name in ["zipped", "summed", "shuffled", "plain", "filled"]:
        got = f[name][()]
        want = np.full(got.shape, f[name].fillvalue, got.dtype)
        want[:rounds] = np.arange(got.shape[1]) + 1000 * np.arange(rounds)[:, None] + 1
        bad = np.argwhere(got != want)
        assert not len(bad), (name, len(bad), bad[:5])
"""


@pytest.mark.parametrize("writers", [2, 3])
def test_parts_of_one_chunk_written_at_the_same_moment_all_survive(tmp_path, writers):
    store, path, rounds = tmp_path / "store", tmp_path / "shared.h5", 40
    finish(script(TOGETHER_MAKE, store, path))
    start = time.time() + 2
    finish(*[script(TOGETHER, store, path, rank, writers, rounds, start) for rank in range(writers)])
    finish(script(TOGETHER_CHECK, store, path, rounds))


GROWING = """
import h5py, sys, numpy as np
path, rank, of, total = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
names = ["plain", "filled", "zipped", "summed", "wide"]
with h5py.File(path, "r+") as f:
    todo = {name: rank for name in names}
    size = 0
    while min(todo.values()) < total:
        if rank == 0 and size < total:
            size = min(total, size + 5)
            for name in names:
                f[name].resize((size, 3 + size % 2) if name == "wide" else (size,))
        for name in names:
            d = f[name]
            d.id.refresh()
            end = d.shape[0]
            if todo[name] < end:
                rows = np.arange(todo[name], end, of)
                if name == "wide":
                    d[todo[name] : end : of, 0] = rows + 1
                else:
                    d[todo[name] : end : of] = rows + 1
                todo[name] = int(rows[-1]) + of
        f.flush() if size % 3 == 0 else None
"""

GROWING_MAKE = """
import h5py, sys
with h5py.File(sys.argv[1], "w") as f:
    f.create_dataset("plain", (0,), "i8", chunks=(16,), maxshape=(None,))
    f.create_dataset("filled", (0,), "i8", chunks=(16,), maxshape=(None,), fillvalue=-1)
    f.create_dataset("zipped", (0,), "i8", chunks=(16,), maxshape=(None,), compression="gzip")
    f.create_dataset("summed", (0,), "i4", chunks=(64,), maxshape=(None,), fletcher32=True, fillvalue=9)
    f.create_dataset("wide", (0, 3), "i4", chunks=(16, 2), maxshape=(None, None))
"""

GROWING_CHECK = """
import h5py, sys, numpy as np
path, total = sys.argv[1], int(sys.argv[2])
with h5py.File(path, "r") as f:
    for name in ["plain", "filled", "zipped", "summed"]:
        got = f[name][()]
        assert got.shape == (total,), (name, got.shape)
        bad = np.flatnonzero(got != np.arange(total) + 1)
        assert not len(bad), (name, len(bad), bad[:10], got[bad[:10]])
    got = f["wide"][()]
    assert (got[:, 0] == np.arange(total) + 1).all() and (got[:, 1:] == 0).all()
"""


@pytest.mark.parametrize("writers", [2, 4])
def test_one_process_extends_what_others_write(tmp_path, writers):
    store, path, total = tmp_path / "store", tmp_path / "grown.h5", 400
    finish(script(GROWING_MAKE, store, path))
    finish(*[script(GROWING, store, path, rank, writers, total) for rank in range(writers)])
    finish(script(GROWING_CHECK, store, path, total))


def test_what_is_not_supported_is_named(tmp_path):
    code = """
import h5py, sys
f = h5py.File(sys.argv[1], "w")
unknown = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
unknown.set_filter(32767)
numbers = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
numbers.set_scaleoffset(h5py.h5z.SO_INT, 4)
for name, make in {
    "number 32767": lambda: f.create_dataset("a", (10,), "i4", chunks=(5,), dcpl=unknown),
    "scaleoffset": lambda: f.create_dataset("b", (10,), "S5", chunks=(5,), dcpl=numbers),
}.items():
    try:
        make()
    except Exception as error:
        assert name in str(error), (name, error)
    else:
        raise SystemExit(f"{name} was taken")
    assert "a" not in f and "b" not in f
f.create_dataset("ok", data=[1, 2, 3])
"""
    finish(script(code, tmp_path / "store", tmp_path / "x.h5"))


FILTERS = """
import h5py, hashlib, sys, numpy as np
path, mode = sys.argv[1:]
whole = (np.arange(1000, dtype="i4").reshape(50, 20) * 7) % 1000
real = np.linspace(-3, 8, 1000).reshape(50, 20).round(3)
nbit = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
nbit.set_filter(h5py.h5z.FILTER_NBIT)
missing = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
missing.set_filter(32767, h5py.h5z.FLAG_OPTIONAL, (1, 2))
packed = h5py.h5t.STD_I32LE.copy()
packed.set_precision(17)
packed.set_offset(5)
cases = {
    "whole": (whole, {"scaleoffset": 10}),
    "filled": (whole, {"scaleoffset": 0, "fillvalue": 5}),
    "real": (real, {"scaleoffset": 3}),
    "with others": (whole, {"scaleoffset": 0, "shuffle": True, "compression": "gzip"}),
    "n-bit": (whole, {"dcpl": nbit}),
    "packed": (whole, {"dcpl": nbit, "dtype": packed}),
    "missing, optional": (whole, {"dcpl": missing}),
    "text": (whole.astype("S6"), {"dcpl": nbit}),
    "pairs": (np.rec.fromarrays([whole, real], names="a,b"), {"dcpl": nbit}),
}
if h5py.h5z.filter_avail(h5py.h5z.FILTER_SZIP):
    cases["szip"] = whole, {"compression": "szip", "compression_opts": ("nn", 8)}
try:
    import hdf5plugin
except ImportError:
    pass
else:
    cases["zstd"] = real, dict(hdf5plugin.Zstd())
    cases["blosc"] = real, dict(hdf5plugin.Blosc(cname="lz4"))
    cases["zfp"] = real, dict(hdf5plugin.Zfp(accuracy=0.01))
with h5py.File(path, mode) as f:
    for name, (data, how) in cases.items():
        if mode == "w":
            how = {"dtype": data.dtype, **how}
            ds = f.create_dataset(name, data.shape, maxshape=(None, 20), chunks=(16, 8), **how)
            ds[:20] = data[:20]
            ds[20:] = data[20:]
            ds[3, 4] = data[5, 6]
            ds.resize(60, axis=0)
            f.flush()
            ds.id.refresh()
        ds = f[name]
        chunks = [ds.id.get_chunk_info(n).chunk_offset for n in range(ds.id.get_num_chunks())]
        stored = [ds.id.read_direct_chunk(at) for at in sorted(chunks)]
        stored = [(mask, len(chunk), hashlib.md5(chunk).hexdigest()) for mask, chunk in stored]
        found = hashlib.md5(ds[()].tobytes()).hexdigest()
        made = ds.id.get_create_plist()
        print([made.get_filter(i) for i in range(made.get_nfilters())])
        print(name, ds.dtype, ds.scaleoffset, ds.compression, ds.fillvalue, stored, found)
"""


def test_filters_that_hdf5_applies(tmp_path):
    """Stored bytes and read values equal HDF5's, in the process that wrote and in another."""
    said = [
        [finish(script(FILTERS, store, tmp_path / name, mode)) for mode in ("w", "r")]
        for store, name in ((None, "native.h5"), (tmp_path / "store", "ours.h5"))
    ]
    assert said[0] == said[1] and said[0][0].count("\n") >= 8


NETCDF = """
import sys, netCDF4, numpy as np
with netCDF4.Dataset(sys.argv[1], sys.argv[2]) as f:
    if sys.argv[2] == "w":
        f.createDimension("x", 1000)
        for name in ("zlib", "szip", "zstd", "bzip2", "blosc_lz4"):
            if name == "zlib" or getattr(f, f"has_{name.split('_')[0]}_filter")():
                v = f.createVariable(name, "f4", ("x",), compression=name, chunksizes=(100,))
                v[:] = np.arange(1000)
    for name, v in f.variables.items():
        print(name, v.filters(), float(v[:].sum()))
"""


def test_compression_of_netcdf(tmp_path):
    """The netCDF4 wheel has its own filter plugins, in a directory named beside the connector's."""
    netcdf = pytest.importorskip("netCDF4")
    theirs = pathlib.Path(netcdf.__file__).parent / "plugins"
    plugin, _ = connector()
    said = []
    for store, name in ((None, "native.nc"), (tmp_path / "store", "ours.nc")):
        env = environment(store) | {"HDF5_PLUGIN_PATH": f"{plugin}:{theirs}" if store else str(theirs)}
        for mode in ("w", "r"):
            command = [sys.executable, "-c", NETCDF, str(tmp_path / name), mode]
            done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
            assert done.returncode == 0, done.stderr
            said.append(done.stdout)
    assert len(set(said)) == 1 and "zlib" in said[0], said


def test_large_contiguous_pieces(tmp_path):
    code = """
import h5py, sys, numpy as np
r = np.random.default_rng(5)
with h5py.File(sys.argv[1], "w") as f:
    d = f.create_dataset("d", (24 << 20,), "u1")
    data = r.integers(0, 256, 24 << 20, dtype="u1")
    for i in r.permutation(24):
        d[i << 20 : (i + 1) << 20] = data[i << 20 : (i + 1) << 20]
    assert (d[()] == data).all()
    assert (d[12345:20000001] == data[12345:20000001]).all()
    assert (d[7::4099] == data[7::4099]).all()
"""
    finish(script(code, tmp_path / "store", tmp_path / "x.h5"))


STEADY = """
import h5py, sys, numpy as np
path, rows = sys.argv[1], int(sys.argv[2])
with h5py.File(path, "w") as f:
    plain = f.create_dataset("plain", (rows, 5000), "f8", fillvalue=2.5)
    grown = f.create_dataset("grown", (0, 5000), "f4", maxshape=(None, None), chunks=(3, 700))
    zipped = f.create_dataset("zipped", (rows, 1000), "i4", chunks=(4, 300), compression="gzip", shuffle=True)
    words = f.create_dataset("words", (rows,), h5py.string_dtype())
    for i in range(rows):
        plain[i] = np.arange(5000) + i
        grown.resize(i + 1, axis=0)
        grown[i] = np.arange(5000) * i
        zipped[i] = np.arange(1000) ^ i
        words[i] = f"word {i}" * (i % 7)
        print(i, flush=True)
"""

STEADY_CHECK = """
import h5py, sys, numpy as np
path, rows = sys.argv[1], int(sys.argv[2])
with h5py.File(path, "r") as f:
    i = np.arange(rows)[:, None]
    assert (f["plain"][()] == np.arange(5000.0) + i).all()
    assert (f["grown"][()] == (np.arange(5000) * i).astype("f4")).all()
    assert (f["zipped"][()] == (np.arange(1000) ^ i)).all()
    assert f["words"].asstr()[()].tolist() == [f"word {k}" * (k % 7) for k in range(rows)]
"""


def daemons(store):
    """Process ids of the daemons of a store."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"serve" in command and os.fsencode(store) in command:
                found.append(int(entry.name))
    return found


def test_a_killed_daemon_costs_nothing(tmp_path):
    store, path, rows = tmp_path / "store", tmp_path / "steady.h5", 120
    writer = script(STEADY, store, path, rows)
    killed = 0
    for line in writer.stdout:
        if int(line) % 30 == 20:
            for pid in daemons(store):
                os.kill(pid, signal.SIGKILL)
                killed += 1
    finish(writer)
    assert killed, "there was no daemon to kill"
    finish(script(STEADY_CHECK, store, path, rows))


FLUSHED = """
import h5py, sys, numpy as np
f = h5py.File(sys.argv[1], "w")
f["a"] = np.arange(100_000)
f.flush()
print("flushed", flush=True)
sys.stdin.read()
"""

FLUSHED_CHECK = """
import h5py, sys, numpy as np
with h5py.File(sys.argv[1], "r") as f:
    assert (f["a"][()] == np.arange(100_000)).all()
"""


@pytest.mark.parametrize("waits", [True, False])
def test_a_flush_to_media_survives_the_loss_of_memory(tmp_path, waits):
    """Daemon and program are killed and shared memory is removed, as by a power loss."""
    store, path = tmp_path / "store", tmp_path / "flushed.h5"
    setting = {"CENOTE_HDF5_FLUSH": "media"} if waits else {}
    begin = time.monotonic()
    program = subprocess.Popen(
        [sys.executable, "-c", FLUSHED, path],
        env=environment(store) | setting,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert program.stdout.readline() == "flushed\n"
    pids = [program.pid, *daemons(store)]
    assert len(pids) == 2, "program and daemon"
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    took = time.monotonic() - begin
    program.wait()
    lose_memory(store / "superblock")
    check = script(FLUSHED_CHECK, store, path)
    _, err = check.communicate(timeout=60)
    if waits:
        assert check.returncode == 0, err
    elif took < 1.9:  # else write-back may have been quicker
        assert check.returncode != 0, "this test loses no memory"
