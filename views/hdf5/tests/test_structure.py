"""Everything except raw data: unmodified h5py, netCDF4 and xarray programs see the same on Cenote as on native
HDF5."""

import pathlib
import pickle
import subprocess
import sys

import pytest
from structure_programs import PROGRAMS
from test_data import UNLOCKED, environment

HERE = pathlib.Path(__file__).parent
PROGRAM_FILE = HERE / "structure_programs.py"
NAMES = list(PROGRAMS)


def run(where, store, names, program_file):
    """What each program saw."""
    where.mkdir()
    output = where / "saw.pickle"
    command = [sys.executable, "-W", "ignore", str(program_file), str(where), str(output), *names]
    done = subprocess.run(command, env=environment(store), capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-6000:]}"
    with open(output, "rb") as results:
        return pickle.load(results)


def run_both(top, names, program_file):
    """What each program saw on native HDF5, and on Cenote."""
    return run(top / "native", None, names, program_file), run(top / "cenote", top / "store", names, program_file)


@pytest.fixture(scope="session")
def both(tmp_path_factory):
    """All programs, once on native HDF5 and once on Cenote."""
    return run_both(tmp_path_factory.mktemp("structure"), NAMES, PROGRAM_FILE)


def first_difference(want, have):
    """The smallest parts that differ, for a readable failure."""
    if isinstance(want, tuple) and isinstance(have, tuple):
        want, have = list(want), list(have)
    if isinstance(want, list) and isinstance(have, list) and len(want) == len(have):
        for a, b in zip(want, have, strict=True):
            if a != b:
                return first_difference(a, b)
    if isinstance(want, dict) and isinstance(have, dict) and want.keys() == have.keys():
        for k in want:
            if want[k] != have[k]:
                return (k, first_difference(want[k], have[k]))
    return (want, have)


def must_agree(native, cenote):
    """A program that did not fail natively saw the same on both."""
    assert not (native and native[-1] and native[-1][0] == "program failed"), native[-1][1]
    for i, (want, have) in enumerate(zip(native, cenote, strict=False)):
        assert have == want, f"entry {i}: (native, cenote) = {first_difference(want, have)}"
    assert len(cenote) == len(native)


@pytest.mark.parametrize("name", NAMES)
def test_program(both, name):
    must_agree(both[0][name], both[1][name])


def python(code, store, cwd, **variables):
    """Runs a small program; returns its output."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env=environment(store) | variables,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    return done.stdout


def test_files_live_in_the_store_and_stubs_stand_for_them(tmp_path):
    store = tmp_path / "store"
    python("import h5py; f = h5py.File('a.h5', 'w'); f['x'] = range(5); f.close()", store, tmp_path)
    stub = (tmp_path / "a.h5").read_bytes()
    assert stub.startswith(b"\x89HDF\r\n\x1a\n") and len(stub) < 4096 and b"Cenote" in stub and b"a.h5" in stub
    # Without the connector, native HDF5 refuses the stub rather than read garbage.
    native = python(
        "import h5py\ntry:\n  h5py.File('a.h5'); print('opened')\nexcept OSError as e: print('refused', e)",
        None,
        tmp_path,
    )
    assert native.startswith("refused")
    # Renaming or removing a stub renames or removes the file; a copied stub is refused.
    (tmp_path / "a.h5").rename(tmp_path / "b.h5")
    read = "import h5py; print(h5py.File(NAME)['x'][:].tolist())"
    assert python(read.replace("NAME", "'b.h5'"), store, tmp_path).strip() == "[0, 1, 2, 3, 4]"
    (tmp_path / "c.h5").write_bytes((tmp_path / "b.h5").read_bytes())
    failing = "import h5py\ntry: h5py.File(NAME); print('opened')\nexcept OSError as e: print(type(e).__name__, e)"
    assert "copy of the stub" in python(failing.replace("NAME", "'c.h5'"), store, tmp_path)
    (tmp_path / "b.h5").unlink()
    assert "FileNotFoundError" in python(failing.replace("NAME", "'b.h5'"), store, tmp_path)
    again = python("import h5py; f = h5py.File('b.h5', 'a'); print(list(f))", store, tmp_path)
    assert again.strip() == "[]"


def test_the_store_is_named_by_info_or_environment(tmp_path):
    code = "import h5py; f = h5py.File('a.h5', 'a'); f.require_group('g'); print(list(f))"
    store = tmp_path / "store"
    python(code, store, tmp_path)
    assert python(code, store, tmp_path, HDF5_VOL_CONNECTOR="cenote", CENOTE_STORE=str(store)).strip() == "['g']"
    wrong = "import h5py\ntry: h5py.File('a.h5'); print('opened')\nexcept OSError as e: print(e)"
    assert str(store) in python(wrong, tmp_path / "other", tmp_path)


WORKER = """
import sys, h5py, numpy as np
rank, count = int(sys.argv[1]), int(sys.argv[2])
with h5py.File("shared.h5", "r+") as f:
    for i in range(count):
        g = f.create_group(f"own/{rank}/{i}")
        g.attrs["rank"] = rank
        f["flat"].create_dataset(f"d{rank}-{i}", data=np.full(10, rank * 1000 + i))
        f["ordered"].create_group(f"o{rank}-{i}")
        f["flat"].attrs[f"a{rank}-{i}"] = i
        try:
            f.require_group("meet/here")
        except ValueError:
            f["meet/here"]  # h5py asks first, and another process made it meanwhile
    f["one"][rank * 100 : (rank + 1) * 100] = rank
"""


def test_processes_change_one_file_at_the_same_time(tmp_path):
    store, ranks, count = tmp_path / "store", 4, 15
    python(
        "import h5py\nf = h5py.File('shared.h5', 'w')\nf.create_group('own')\nf.create_group('flat')\n"
        "f.create_group('ordered', track_order=True)\nf.create_dataset('one', (400,), 'i4')",
        store,
        tmp_path,
    )
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(r), str(count)],
            env=environment(store) | UNLOCKED,
            cwd=tmp_path,
            stderr=subprocess.PIPE,
            text=True,
        )
        for r in range(ranks)
    ]
    for w in workers:
        _, err = w.communicate(timeout=300)
        assert w.returncode == 0, err[-4000:]
    out = python(
        f"""
import h5py
f = h5py.File("shared.h5")
for r in range({ranks}):
    assert sorted(f["own"][str(r)], key=int) == [str(i) for i in range({count})]
    for i in range({count}):
        assert f[f"own/{{r}}/{{i}}"].attrs["rank"] == r
        assert (f[f"flat/d{{r}}-{{i}}"][:] == r * 1000 + i).all()
        assert f["flat"].attrs[f"a{{r}}-{{i}}"] == i
g = f["ordered"]
orders = [g.id.links.get_info(n.encode()).corder for n in g]
assert orders == list(range({ranks * count})), orders
assert (f["one"][:] == [x // 100 for x in range(400)]).all()
assert list(f["meet"]) == ["here"]
print("all there")
""",
        store,
        tmp_path,
    )
    assert out.strip() == "all there"


FORK = """
import h5py, os, numpy as np
f = h5py.File("forked.h5", "w")
f.create_dataset("x", (4,), "i4")
children = []
for i in range(4):
    pid = os.fork()
    if pid == 0:
        f["x"][i] = i + 1
        f.create_group(f"child{i}").attrs["pid"] = i
        os._exit(0)
    children.append(pid)
assert all(os.waitpid(p, 0)[1] == 0 for p in children)
print(f["x"][:].tolist(), sorted(f))
"""


def test_children_of_fork_go_on_with_the_open_file(tmp_path):
    out = python(FORK, tmp_path / "store", tmp_path).strip()
    assert out == "[1, 2, 3, 4] ['child0', 'child1', 'child2', 'child3', 'x']"


def test_creation_is_all_or_nothing_when_the_program_dies(tmp_path):
    store = tmp_path / "store"
    python(
        "import h5py, os\nf = h5py.File('d.h5', 'w')\nf['g/x'] = 1\nf.attrs['a'] = 'b'\nf.flush()\nos._exit(0)",
        store,
        tmp_path,
    )
    out = python("import h5py\nf = h5py.File('d.h5')\nprint(f['g/x'][()], f.attrs['a'])", store, tmp_path)
    assert out.strip() == "1 b"


RACER = """
import sys, h5py
rank = int(sys.argv[1])
won = 0
with h5py.File("race.h5", "r+") as f:
    for i in range(40):
        try:
            f.create_group(f"g{i}").attrs["winner"] = rank
            won += 1
        except ValueError as e:
            assert "already exists" in str(e), e
        f[f"tmp{rank}"] = list(range(rank + 1))
        f.move(f"tmp{rank}", f"moved{rank}")
        del f[f"moved{rank}"]
print(won)
"""


def together(code, count, store, cwd):
    """Runs a program in processes at the same time, with argument 0, 1, …; returns what they printed."""
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(r)],
            env=environment(store) | UNLOCKED,
            cwd=cwd,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for r in range(count)
    ]
    out = []
    for w in workers:
        stdout, stderr = w.communicate(timeout=300)
        assert w.returncode == 0, stderr[-4000:]
        out.append(stdout.strip())
    return out


def test_of_all_who_create_one_name_exactly_one_wins(tmp_path):
    store = tmp_path / "store"
    python("import h5py; h5py.File('race.h5', 'w').close()", store, tmp_path)
    won = together(RACER, 4, store, tmp_path)
    assert sum(map(int, won)) == 40, won
    out = python(
        "import h5py\nf = h5py.File('race.h5')\nprint(sorted(f) == sorted(f'g{i}' for i in range(40)),"
        "all('winner' in g.attrs for g in f.values()))",
        store,
        tmp_path,
    )
    assert out.split() == ["True", "True"]


READER = """
import sys, time, h5py, numpy as np
with h5py.File("live.h5", "r") as f:
    seen, end = 0, time.time() + 60
    while seen < 30 and time.time() < end:
        n = f["log"].shape[0]
        assert n >= seen
        data = f["log"][:n]
        # The last element may not be written yet.
        assert (data[:-1] == np.arange(max(n - 1, 0))).all(), (n, data)
        seen = n
    print(seen)
"""


def test_readers_see_a_dataset_grow_without_reopening(tmp_path):
    store = tmp_path / "store"
    python(
        "import h5py\nwith h5py.File('live.h5', 'w') as f: f.create_dataset('log', (0,), 'i8', maxshape=(None,))",
        store,
        tmp_path,
    )
    reader = subprocess.Popen(
        [sys.executable, "-c", READER],
        env=environment(store) | UNLOCKED,
        cwd=tmp_path,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    python(
        """
import h5py
with h5py.File("live.h5", "r+") as f:
    log = f["log"]
    for i in range(30):
        log.resize((i + 1,))
        log[i] = i
        f.flush()
""",
        store,
        tmp_path,
        **UNLOCKED,
    )
    out, err = reader.communicate(timeout=120)
    assert reader.returncode == 0, err[-3000:]
    assert out.strip() == "30"


def test_a_deleted_object_that_is_open_lives_until_it_is_closed(tmp_path):
    out = python(
        """
import h5py, numpy as np
with h5py.File("d.h5", "w") as f:
    x = f.create_dataset("x", data=np.arange(5))
    g = f.create_group("g")
    g["inner"] = 1
    del f["x"], f["g"]
    print(list(f), x[:].tolist(), list(g), g["inner"][()], x.name)
    x[0] = 9
    f["again"] = x
    print(f["again"][:].tolist())
""",
        tmp_path / "store",
        tmp_path,
    )
    assert out.split("\n")[0] == "[] [0, 1, 2, 3, 4] ['inner'] 1 None"
    assert out.split("\n")[1] == "[9, 1, 2, 3, 4]"


def test_what_is_not_supported_is_refused_by_name(tmp_path):
    out = (
        python(
            """
import h5py, numpy as np
def refused(f):
    try:
        f()
    except Exception as e:
        return str(e)
    return "no error"
print(refused(lambda: h5py.File("c-%d.h5", "w", driver="family", memb_size=1 << 20)))
print(refused(lambda: h5py.File("c.h5", "w", driver="split")))
h5py.File("f.h5", "w").create_dataset("d", data=np.arange(9))
print(refused(lambda: h5py.File("f.h5", "r+", driver="core", backing_store=False)))
d = h5py.File("f.h5")["d"]
print(refused(lambda: d.regionref[2:4]))
""",
            tmp_path / "store",
            tmp_path,
        )
        .strip()
        .split("\n")
    )
    words = ["file driver", "file driver", "changes that are thrown away", "no write intent"]
    assert len(out) == len(words)
    for line, word in zip(out, words, strict=True):
        assert word in line
    assert sorted(path.name for path in tmp_path.iterdir()) == ["f.h5", "store"]
