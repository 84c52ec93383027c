"""Programs with and without `cenote advise`, in turns: `python -m benches.advise.run [--pairs N] [--only NAME,NAME]`.

Each line is one program: its time alone and watched (medians), the ratio, its spread, and whether the bar is met. Loops
call the tracer's function and the C library's own in turns, 2,001 batches of each in one process: on a machine with
other users, measurements in two processes cannot be compared so finely. For whole programs the figure is processor
time, in user and kernel mode, including children. All files are in memory, where the relative overhead is largest.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
BAR = 1.05

LOOP_C = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}
static int compare(const void *a, const void *b) {
    double one = *(const double *)a, other = *(const double *)b;
    return (one > other) - (one < other);
}
enum { PAIRS = 2001 };
static double took[2][PAIRS];
static char *block;
static int fd;
static ssize_t (*reads[2])(int, void *, size_t, off_t);
static ssize_t (*writes[2])(int, const void *, size_t, off_t);
static void *(*mallocs[2])(size_t);
static void (*frees[2])(void *);

static void batch(const char *what, int side, int operations) {
    static long at[2];
    for (int i = 0; i < operations; i++) {
        long offset = at[side]++ * 7919L % 16384 * 4096;
        if (what[0] == 'm') {
            size_t bytes = what[7] == 's' ? 64 + i % 64 : 2 << 20;
            char *memory = mallocs[side](bytes);
            memset(memory, i, what[7] == 's' ? 1 : bytes);
            __asm__ volatile("" : : "r"(memory) : "memory");
            frees[side](memory);
        } else {
            ssize_t done =
                what[1] == 'w' ? writes[side](fd, block, 4096, offset) : reads[side](fd, block, 4096, offset);
            if (done != 4096) exit(1);
        }
    }
}

int main(int count, char **words) {
    const char *what = words[1];
    int operations = strcmp(what, "malloc-small") == 0 ? 10000 : what[0] == 'm' ? 4 : 200;
    /* What the program calls, and what it would call if nothing stood before it. */
    void *plain = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
    void *from[2] = {plain, RTLD_DEFAULT};
    for (int side = 0; side < 2; side++) {
        *(void **)&reads[side] = dlsym(from[side], "pread");
        *(void **)&writes[side] = dlsym(from[side], "pwrite");
        *(void **)&mallocs[side] = dlsym(from[side], "malloc");
        *(void **)&frees[side] = dlsym(from[side], "free");
    }
    if (count != 3 || !plain || reads[0] == reads[1]) return 2;
    block = memset(malloc(1 << 20), 1, 1 << 20);
    fd = open(words[2], O_RDWR | O_CREAT, 0644);
    for (int i = 0; i < 16384; i++)
        if (pwrite(fd, block, 4096, i * 4096L) != 4096) return 1;
    for (int pair = -20; pair < PAIRS; pair++)
        for (int turn = 0; turn < 2; turn++) {
            int side = (pair + turn) & 1;
            double begin = now();
            batch(what, side, operations);
            if (pair >= 0) took[side][pair] = (now() - begin) / operations;
        }
    for (int side = 0; side < 2; side++) qsort(took[side], PAIRS, sizeof(double), compare);
    printf("%.12f %.12f\n", took[0][PAIRS / 2], took[1][PAIRS / 2]);
    return 0;
}
"""

CLOCK = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:]).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print('took', used.ru_utime + used.ru_stime)
sys.exit(code)
"""

H5PY = """
import h5py, numpy
data = numpy.random.default_rng(1).random((512, 1 << 15))
for turn in range(3):
    with h5py.File('a.h5', 'w') as f:
        d = f.create_dataset('x', shape=data.shape, chunks=(1, 1 << 15))
        for i, row in enumerate(data): d[i] = row
    with h5py.File('a.h5') as f:
        total = sum(float(row.sum()) for row in f['x'])
"""

PYTHON = """
import os
with open('data', 'wb') as f:
    for i in range(64): f.write(os.urandom(1 << 19))
lines = 0
for turn in range(2):
    with open('data', 'rb') as f:
        while piece := f.read(1 << 16): lines += piece.count(10)
    with open('text', 'w') as f:
        for i in range(300000): f.write(f'line {i}\\n')
    words = sum(len(line) for line in open('text'))
"""


def programs(work: Path) -> dict[str, tuple[list[str], bool]]:
    """Returns command lines by name, and whether each program measures itself."""
    (work / "loop.c").write_text(LOOP_C)
    subprocess.run(["cc", "-O2", "-o", work / "loop", work / "loop.c", "-ldl"], check=True)
    loop, data = str(work / "loop"), str(work / "blocks")
    found = {
        "pread, 4 KiB": ([loop, "pread", data], True),
        "pwrite, 4 KiB": ([loop, "pwrite", data], True),
        "malloc and free, 64 to 127 bytes": ([loop, "malloc-small", data], True),
        "malloc, fill, free, 2 MiB": ([loop, "malloc-large", data], True),
        "tar of the sources, 5 times": (
            ["sh", "-c", f"for i in 1 2 3 4 5; do tar cf all.tar -C {TOP} crates docs views benches; done"],
            False,
        ),
        "dd, 16 KiB, 1 GiB": (["dd", "if=/dev/zero", "of=big", "bs=16k", "count=65536", "status=none"], False),
        "python, files and text": ([sys.executable, "-c", PYTHON], False),
        "sh, 200 short programs": (["sh", "-c", "i=0; while [ $i -lt 200 ]; do i=$((i+1)); /bin/true; done"], False),
    }
    if subprocess.run([sys.executable, "-c", "import h5py"], capture_output=True).returncode == 0:
        found["h5py, 3 x 128 MiB in and out"] = ([sys.executable, "-c", H5PY], False)
    return found


def run(command: list[str], work: Path, watched: Path | None) -> str:
    """Returns a program's output, watched or not."""
    if watched:
        command = [str(watched), "advise", "--output", "/dev/null", "--", *command]
    environment = os.environ | {"XDG_DATA_HOME": str(work / "data"), "CENOTE_STORE": str(work / "store")}
    done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise RuntimeError(f"{command}: {done.returncode}\n{done.stderr}")
    return done.stdout


def loop_seconds(command: list[str], work: Path, cenote: Path, times: int) -> tuple[list[float], list[float]]:
    """Returns seconds per operation without and with the tracer, from several processes."""
    lines = [run(command, work, cenote).split() for _ in range(times)]
    return [float(line[0]) for line in lines], [float(line[1]) for line in lines]


def program_seconds(command: list[str], work: Path, cenote: Path, pairs: int) -> tuple[list[float], list[float]]:
    """Returns processor seconds of a program alone and watched, in turns. A small program that is watched with it
    measures the time, to exclude the command's own time."""
    timed = [sys.executable, "-c", CLOCK, *command]
    alone, watched = [], []
    run(timed, work, cenote)
    for pair in range(pairs):
        for side in (alone, watched) if pair % 2 else (watched, alone):
            out = run(timed, work, cenote if side is watched else None)
            side.append(float(out.split("took ")[1]))
    return alone, watched


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--only", default="")
    parser.add_argument("--cenote", type=Path, default=TOP / "target/release/cenote")
    args = parser.parse_args()
    args.cenote = args.cenote.resolve()
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="cenote-bench-advise-", dir=shared if shared.is_dir() else None) as name:
        work = Path(name)
        tier = "name=ram,kind=memory,size=64MiB"
        subprocess.run([args.cenote, "init", work / "store", "--tier", tier], check=True, capture_output=True)
        try:
            for title, (command, loops) in programs(work).items():
                if args.only and not any(word.strip() in title for word in args.only.split(",")):
                    continue
                measure = loop_seconds if loops else program_seconds
                alone, watched = measure(command, work, args.cenote, args.pairs)
                ratios = sorted(b / a for a, b in zip(alone, watched, strict=True))
                ratio = statistics.median(ratios)
                line = {
                    "program": title,
                    "alone_s": statistics.median(alone),
                    "watched_s": statistics.median(watched),
                    "ratio": round(ratio, 3),
                    "least": round(ratios[0], 3),
                    "most": round(ratios[-1], 3),
                    "met": ratio <= BAR,
                }
                print(json.dumps(line), flush=True)
        finally:
            subprocess.run([args.cenote, "destroy", "--yes", "--force", work / "store"], capture_output=True)
            shutil.rmtree(work / "store", ignore_errors=True)


if __name__ == "__main__":
    main()
