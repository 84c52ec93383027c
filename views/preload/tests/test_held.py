"""Calls that reach the preloaded library while the C library or the program holds a lock (`held.c`): none hangs."""

import contextlib
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
CENOTE = ROOT / "target/release/cenote"
PATIENCE_S = 60
CASES = [
    "trim",
    "arenas",
    "mapped",
    "stdio",
    "fork",
    "gate",
    "atfork",
    "dlopen",
    "signals",
    "spawn",
    "resolver",
    "locale",
    "backtrace",
]

if not (ROOT / "target/release/libcenote_posix.so").exists():
    pytest.skip("libcenote_posix.so is not built (make build)", allow_module_level=True)
if shutil.which("cc") is None:
    pytest.skip("there is no C compiler", allow_module_level=True)


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, and a library with thread-local memory beside it."""
    dir = tmp_path_factory.mktemp("held")
    (dir / "library.c").write_text("static __thread char own[4096]; int answer(void) { return own[0] + 42; }\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", dir / "library.so", dir / "library.c"], check=True)
    subprocess.run(["cc", "-O1", "-o", dir / "held", HERE / "held.c", "-lpthread", "-ldl"], check=True)
    return dir


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A store in memory."""
    dir = tmp_path_factory.mktemp("store")
    subprocess.run(
        [CENOTE, "init", dir / "s", "--tier", "name=ram,kind=memory,size=512MiB"], check=True, capture_output=True
    )
    yield dir / "s"
    subprocess.run([CENOTE, "--store", dir / "s", "destroy", "--yes", "--force"], check=True, capture_output=True)


def run(store: Path, *words: str | Path, patience_s: float = PATIENCE_S) -> subprocess.CompletedProcess[str]:
    """Runs a program on the store; it ends with the test if it hangs."""
    whole = [CENOTE, "--store", store, "run", "--", *words]
    with subprocess.Popen(
        whole, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as child:
        try:
            said, complaint = child.communicate(timeout=patience_s)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            raise
        return subprocess.CompletedProcess(whole, child.returncode, said, complaint)


@pytest.mark.parametrize("case", CASES)
def test_nothing_waits_for_a_lock_that_the_caller_holds(held: Path, store: Path, case: str):
    place = f"/cenote/held/{case}"
    made = run(store, "sh", "-c", f'mkdir -p {place} && cp "$1" {place}/', "sh", str(held / "library.so"))
    assert made.returncode == 0, made.stderr
    done = run(store, held / "held", case, place)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def daemons(store: Path) -> list[int]:
    """Processes that serve the store, or are about to."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            if b"serve" in words and os.fsencode(store) in words:
                found.append(int(entry.name))
    return found


def whereabouts(group: int) -> str:
    """What each thread of a process group waits for, to find out why it hangs."""
    lines = []
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if not process.name.isdigit() or os.getpgid(int(process.name)) != group:
                continue
            words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            lines.append(f"{process.name}: {words}")
            for thread in (process / "task").iterdir():
                said = [(thread / what).read_text().strip() for what in ("comm", "wchan", "syscall")]
                lines.append(f"  {thread.name} {' '.join(said)}")
            if gdb := shutil.which("gdb"):
                stacks = [gdb, "-p", process.name, "-batch", "-ex", "thread apply all bt 30"]
                lines.append(subprocess.run(stacks, capture_output=True, text=True, timeout=60).stdout)
    return "\n".join(lines)


def test_calls_wait_for_the_next_daemon(held: Path, store: Path):
    made = run(store, "mkdir", "-p", "/cenote/held/daemon")
    assert made.returncode == 0, made.stderr
    seed = random.randrange(1 << 32)
    chosen = random.Random(seed)
    whole = [CENOTE, "--store", store, "run", "--", held / "held", "daemon", "/cenote/held/daemon", "8"]
    with subprocess.Popen(
        whole, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as child:
        begun, killed, hangs = time.monotonic(), 0, ""
        while child.poll() is None and time.monotonic() - begun < PATIENCE_S:
            time.sleep(chosen.uniform(0.1, 0.7))
            if time.monotonic() - begun > 8:
                continue
            for pid in daemons(store):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
        if child.poll() is None:
            hangs = whereabouts(child.pid)
            os.killpg(child.pid, signal.SIGKILL)
        said, complaint = child.communicate()
    told = f"seed {seed}, {killed} killed: {complaint}\n{hangs}"
    assert (child.returncode, said) == (0, "done\n"), told
    assert killed > 0
