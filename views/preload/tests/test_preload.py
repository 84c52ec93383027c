"""Unmodified programs on a store by `cenote run`, and in a plain directory: effects and output must be equal."""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
CENOTE = ROOT / "target/release/cenote"
PATIENCE_S = 120

if not (ROOT / "target/release/libcenote_posix.so").exists():
    pytest.skip("libcenote_posix.so is not built (make build)", allow_module_level=True)


def cenote(*words: str | Path) -> str:
    """Returns the command's output."""
    done = subprocess.run([CENOTE, *words], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A store in memory and a file."""
    dir = tmp_path_factory.mktemp("preload")
    tiers = ["name=ram,kind=memory,size=256MiB", f"name=disk,kind=file,path={dir}/disk,size=1GiB"]
    cenote("init", dir / "store", "--tier", tiers[0], "--tier", tiers[1])
    yield dir / "store"
    cenote("--store", dir / "store", "destroy", "--yes", "--force")


@pytest.fixture
def both(store: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Callable[..., tuple[str, str]]:
    """Runs a script in a directory of the store and in a plain one: returns both outputs."""
    label = f"c{abs(hash(request.node.name)) % 10**9}"
    environment = os.environ | {"LC_ALL": "C", "HOME": str(tmp_path), "GIT_CONFIG_GLOBAL": "/dev/null"}

    def run(*program: str, stdin: str = "") -> tuple[str, str]:
        plain = tmp_path / label
        plain.mkdir(exist_ok=True)
        said = []
        for words, place in (([CENOTE, "--store", store, "run", "--"], f"/cenote/{label}"), ([], str(plain))):
            script = f'mkdir -p "{place}" && cd "{place}" && exec "$@"'
            done = subprocess.run(
                [*words, "bash", "-c", script, "bash", *program],
                input=stdin,
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
                check=False,
                env=environment,
            )
            said.append(f"{done.returncode}\n{done.stdout}\n{done.stderr}".replace(place, "DIR"))
        return said[0], said[1]

    return run


def same(both: Callable[..., tuple[str, str]], script: str, *program: str) -> str:
    """Runs a script and compares the outputs; returns the output."""
    ours, plain = both(*(program or ("bash", "-eu")), stdin=script)
    assert ours == plain
    return ours


def test_the_shell_and_its_tools(both):
    said = same(
        both,
        """
        echo hello > a; cat a; cp a b; mv b c; ln c hard; ln -s a soft; readlink soft; cat soft
        mkdir -p d/e; echo x >> d/e/f; echo y >> d/e/f; wc -c < d/e/f; chmod 640 d/e/f
        stat -c '%n %s %a %h %F' a c hard d d/e/f; find . | sort; du --apparent-size -b a; test ! -e nothing
        truncate -s 100000 sparse; printf end | dd of=sparse bs=1 seek=99997 conv=notrunc status=none; tail -c 5 sparse
        touch -d @1000000000 a; stat -c %Y a; pwd; cd d; pwd; cd ..; rm -r d; ls
        exec 5>both; echo one >&5; (echo two >&5); exec 5>&-; cat both
        cat < missing || echo no such file
        rmdir a 2>&1 || true; mkdir full; touch full/x; rmdir full 2>&1 || true
        seq 1000 | split -l 100 - part; cat part* | cksum; sort -r -n part* | head -3
        """,
    )
    assert said.startswith("0\nhello\n")


def test_archives(both):
    same(
        both,
        """
        mkdir -p t/deep/er; for i in $(seq 50); do echo $i > t/f$i; done; ln -s ../f1 t/deep/l; ln t/f2 t/deep/er/h
        tar czf t.tar.gz --sort=name --mtime=@1 t; mkdir out; tar xzf t.tar.gz -C out; diff -r t out/t && echo same
        tar tzf t.tar.gz | cksum; cmp out/t/f2 out/t/deep/er/h; stat -c %h out/t/deep/er/h
        """,
    )


def test_pipes_with_names(both):
    said = same(
        both,
        """
        mkfifo -m 600 p; stat -c '%F %a' p; (seq 1000 > p) & cksum < p; wait
        mv p q; (cat q > got) & echo through > q; wait; cat got
        # One that is opened again is another conversation; one without a reader does not wait if told so.
        (tail -n 1 q) & seq 5 > q; wait; timeout 1 sh -c 'echo x > q' || echo "nobody reads: $?"
        rm q; test ! -e q; ls; mkfifo q; (cat q) & echo new > q; wait
        """,
    )
    assert "124" in said


NOWHERE = """
import ctypes, errno, mmap, os, signal
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
none = ctypes.c_void_p(libc.mmap(None, 4096, mmap.PROT_NONE if hasattr(mmap, "PROT_NONE") else 0, 0x22, -1, 0))
only = ctypes.c_void_p(libc.mmap(None, 4096, mmap.PROT_READ, 0x22, -1, 0))

def told(name, *arguments):
    got = getattr(libc, name)(*arguments)
    print(name, got, errno.errorcode[ctypes.get_errno()] if got == -1 else "")

fd = os.open("file", os.O_RDWR | os.O_CREAT, 0o600)
os.write(fd, b"x" * 10000)
for at in (none, ctypes.c_void_p(8), ctypes.c_void_p(-8)):
    told("open", at, os.O_RDONLY)
    told("write", fd, at, 100)
    told("pread", fd, at, 100, 0)
    told("stat", b"file", at)
    told("unlink", at)
    told("rename", b"file", at)
    told("readlink", b"file", at, 10)
told("pread", fd, only, 100, 0)
told("pwrite", fd, only, 100, 0)
print(os.pread(fd, 4, 0), os.stat("file").st_size)
# Faults of the program's own are its own: they end it, or come to its handler.
child = os.fork()
if child == 0:
    ctypes.string_at(none, 1)
    os._exit(1)
print("ended by", os.WTERMSIG(os.waitpid(child, 0)[1]))
child = os.fork()
if child == 0:
    os.kill(os.getpid(), signal.SIGSEGV)
    os._exit(1)
print("ended by", os.WTERMSIG(os.waitpid(child, 0)[1]))
print(signal.getsignal(signal.SIGSEGV) == signal.SIG_DFL)
signal.signal(signal.SIGBUS, lambda *_: print("handled"))
os.kill(os.getpid(), signal.SIGBUS)
told("open", none, os.O_RDONLY)
"""


def test_pointers_to_nowhere(both):
    said = same(both, NOWHERE, sys.executable, "-u", "-")
    assert said.count("EFAULT") > 15


def test_long_variables_and_arguments(both):
    """They may be longer than any path."""
    script = "export LONG=$(printf %0100000d 7); sh -c 'echo ${#LONG} ${#1}' sh $(printf %050000d 8) > a; cat a"
    assert same(both, script) == "0\n100000 50000\n\n"


def test_fsync_in_memory(tmp_path):
    """A store in memory alone behaves like tmpfs: fsync succeeds."""
    cenote("init", tmp_path / "store", "--tier", "name=ram,kind=memory,size=64MiB")
    script = (
        "dd if=/dev/zero of=/cenote/a/b bs=1M count=2 conv=fsync status=none; sync /cenote/a; stat -c %s /cenote/a/b"
    )
    said = cenote("--store", tmp_path / "store", "run", "--", "bash", "-ec", f"mkdir /cenote/a; {script}")
    assert said == "2097152\n"
    cenote("--store", tmp_path / "store", "destroy", "--yes", "--force")


@pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")
def test_git(both):
    same(
        both,
        """
        export GIT_AUTHOR_DATE='@1 +0000' GIT_COMMITTER_DATE='@1 +0000'
        export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
        git init -q -b main r; cd r; for i in $(seq 30); do seq $i > f$i; done; git add .; git commit -qm one
        git mv f1 g; seq 5 >> f2; git commit -qam two; git log --format='%H %s'; cd ..
        git clone -q r s; cd s; git status --short; git fsck --strict; git gc -q; git log --format=%H; cat g
        """,
    )


PYTHON = """
import json, mmap, multiprocessing, os, pathlib, shutil, subprocess, sys, threading

def work(n):
    with open(f"w{n}", "w") as file:
        file.write(str(n) * n)
    return os.stat(f"w{n}").st_size

if __name__ == "__main__":
    pathlib.Path("a.json").write_text(json.dumps({"x": [1, 2]}))
    print(json.load(open("a.json")), sorted(os.listdir(".")))
    with multiprocessing.get_context(sys.argv[1]).Pool(3) as pool:
        print(pool.map(work, range(1, 9)))
    # A descriptor and its offset are shared with children, and other programs inherit it.
    out = os.open("shared", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    os.write(out, b"parent ")
    subprocess.run(["sh", "-c", "printf child"], stdout=out, check=True)
    if os.fork() == 0:
        os.write(out, b" fork")
        os._exit(0)
    os.wait()
    print(os.lseek(out, 0, os.SEEK_CUR), os.pread(out, 100, 0))
    # Stores to a shared mapping are seen by everybody, after its descriptor is closed too.
    file = open("mapped", "w+b")
    file.truncate(1 << 20)
    memory = mmap.mmap(file.fileno(), 0)
    file.close()
    memory[5], memory[900_000] = 77, 9
    if os.fork() == 0:
        memory[7] = 1
        os._exit(0)
    os.wait()
    with open("mapped", "rb") as file:
        bytes = file.read()
    print(len(bytes), bytes[5], bytes[7], bytes[900_000], memory[7])
    memory.flush()
    memory.resize(2 << 20)
    memory[-1] = 3
    memory.close()
    print(pathlib.Path("mapped").read_bytes()[-1])
    protection = mmap.PROT_READ | mmap.PROT_WRITE
    private = mmap.mmap(os.open("mapped", os.O_RDONLY), 0, flags=mmap.MAP_PRIVATE, prot=protection)
    private[0] = 5
    print(open("mapped", "rb").read(1), private[5])
    done = []
    threads = [threading.Thread(target=lambda n=n: done.append(work(20 + n))) for n in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    print(sorted(done))
    for call in (lambda: open("nothing"), lambda: os.mkdir("mapped"), lambda: os.rename("nothing", "b"),
                 lambda: open("mapped/x"), lambda: os.listdir("mapped"), lambda: open("n" * 256, "w"),
                 lambda: os.open("mapped", os.O_CREAT | os.O_EXCL), lambda: os.readlink("mapped")):
        try:
            call()
            print("no error")
        except OSError as error:
            print(error.errno)
    os.symlink("loop", "loop")
    try:
        open("loop")
    except OSError as error:
        print(error.errno)
    shutil.copytree(".", "../" + os.path.basename(os.getcwd()) + "/copy", ignore=lambda *_: ["copy", "loop"])
    print(sorted(os.listdir("copy")))
    shutil.rmtree("copy")
"""


@pytest.mark.parametrize("how", ["fork", "spawn", "forkserver"])
def test_python(both, tmp_path, how):
    program = tmp_path / "program.py"
    program.write_text(PYTHON)
    said = same(both, "", sys.executable, str(program), how)
    assert said.startswith("0\n")


@pytest.mark.skipif(not shutil.which("sqlite3"), reason="sqlite3 is not installed")
def test_sqlite_with_a_log_and_writers_at_once(both):
    said = same(
        both,
        """
        sqlite3 s.db 'pragma journal_mode=wal; create table t(a)'
        for i in 1 2 3; do
          (for k in $(seq 20); do
            sqlite3 s.db "pragma busy_timeout=60000; insert into t values($k)" > /dev/null
          done) &
        done; wait
        sqlite3 s.db 'select count(*), sum(a) from t; pragma integrity_check'; ls
        """,
    )
    assert "60|630\nok" in said


@pytest.mark.skipif(not (shutil.which("g++") and shutil.which("make")), reason="g++ or make is not installed")
def test_a_build(both):
    same(
        both,
        """
        for i in 1 2 3; do echo "#include \\"all.h\\"\nint f$i() { return $i; }" > f$i.cc; done
        echo 'int f1(); int f2(); int f3();' > all.h
        echo '#include "all.h"\n#include <cstdio>\nint main() { std::printf("%d\\n", f1() + f2() + f3()); }' > main.cc
        printf 'p: main.o f1.o f2.o f3.o\n\t$(CXX) -o p $^\n%%.o: %%.cc all.h\n\t$(CXX) -c -o $@ $<\n' > Makefile
        make -s -j2; ./p; make -s -q && echo done; touch -d @1 f1.o; make -s -q || echo again
        """,
        "bash",
    )


def test_locks(both):
    said, plain = both(sys.executable, str(HERE / "locks.py"))
    assert "closed: yes yes" in plain
    assert said == plain


def test_locks_hold_against_mounts(store, tmp_path):
    place = tmp_path / "mount"
    place.mkdir()
    cenote("--store", store, "run", "--", "sh", "-c", "mkdir -p /cenote/locks; echo > /cenote/locks/f")
    mounted = subprocess.run([CENOTE, "--store", store, "mount", place], capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount here: {mounted.stderr.strip()}")
    with contextlib.ExitStack() as at_last:
        at_last.callback(cenote, "unmount", place)
        for held, asked in ((f"{place}/locks/f", "/cenote/locks/f"), ("/cenote/locks/f", f"{place}/locks/f")):
            holder = subprocess.Popen(
                [CENOTE, "--store", store, "run", "--", "flock", held, "sh", "-c", "echo has; read end"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            at_last.callback(holder.communicate, timeout=PATIENCE_S)  # ends what it reads
            assert holder.stdout.readline() == "has\n"
            ask = [CENOTE, "--store", store, "run", "--", "flock", "--nonblock", asked, "true"]
            assert subprocess.run(ask, check=False, timeout=PATIENCE_S).returncode == 1
            holder.communicate("over\n", timeout=PATIENCE_S)
            assert subprocess.run(ask, check=False, timeout=PATIENCE_S).returncode == 0


def test_files_are_those_of_the_other_views(store):
    cenote("--store", store, "run", "--", "sh", "-c", "mkdir /cenote/seen; echo by preload > /cenote/seen/file")
    files = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import cenote\nprint(cenote.open({str(store)!r}).files.open('/seen/file', 'rb').read())",
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert files.stdout == "b'by preload\\n'\n", files.stderr


def test_what_cannot_see_the_store_is_said(store, tmp_path):
    busybox = shutil.which("busybox")
    static = tmp_path / "static"
    if busybox:
        shutil.copy(busybox, static)
    else:
        source = tmp_path / "s.c"
        source.write_text("int main(void) { return 0; }\n")
        compiler = shutil.which("cc") or pytest.skip("neither busybox nor a C compiler is installed")
        subprocess.run([compiler, "-static", "-o", static, source], check=True)
    words = [CENOTE, "--store", store, "run", "--", static, "true"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode != 0
    assert "linked statically" in done.stderr or "would not see" in done.stderr
    assert "cenote mount" in done.stderr


THREADS = """
import os, threading

threading.excepthook = lambda failed: (print(failed.exc_type, flush=True), os._exit(9))

def work(n):
    path = f"/cenote/threads/{os.getpid()}.{n}"
    for _ in range(20):
        with open(path, "w") as file:
            file.write("x" * 300)
        assert os.stat(path).st_size == 300
    os.unlink(path)

def rounds(count, at_once):
    for _ in range(count):
        threads = [threading.Thread(target=work, args=(n,)) for n in range(at_once)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

def anonymous_kib():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon"))

os.makedirs("/cenote/threads")
rounds(2, 100)
rounds(100, 1)
before = anonymous_kib()
rounds(600, 1)
print(anonymous_kib() - before)
if os.fork() == 0:
    rounds(20, 3)
    os._exit(7)
rounds(20, 3)
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def test_threads_that_come_and_go_leave_no_memory_behind(store):
    words = [CENOTE, "--store", store, "run", "--", sys.executable, "-c", THREADS]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    grown_kib, child = done.stdout.split()
    assert int(grown_kib) < 2048
    assert child == "7"


def test_other_paths_are_left_alone(store, tmp_path):
    script = f"echo out > {tmp_path}/out; cat {tmp_path}/out; ls /cenote > /dev/null; stat -c %F /proc/self/fd/0"
    words = [CENOTE, "--store", store, "run", "--", "bash", "-c", script]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("out\n")
    assert (tmp_path / "out").read_text() == "out\n"


def test_ways_that_are_kept_within_a_directory(both):
    said = same(both, "", sys.executable, str(HERE / "within.py"))
    assert said.count("XDEV") > 20 and said.count("ELOOP") > 20 and said.count("b'") > 50


def test_pipes_into_files_and_out_of_them(both):
    said = same(both, "", sys.executable, str(HERE / "pipes.py"))
    assert said.count("True") == 2 and "[1, 0] 0" in said
