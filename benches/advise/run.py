"""Programs with and without `cenote advise`, in turns: `python -m benches.advise.run [--pairs N] [--only NAME,NAME]`.

Each line is one program: what it took alone and watched (medians; of loops the least), the ratio, the spread of the
ratios of pairs, and whether the bar is met. What is compared is processor time, theirs and the kernel's for them, which others
disturb less: loops say what one operation takes in the best of 40 batches, the others all of it with their children.
Everything is in the kernel's memory, where watching costs most beside what is watched.
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
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static double best = 1e9, begun;
static void lap(int operations) {
    double took = (now() - begun) / operations;
    best = took < best ? took : best;
    begun = now();
}
int main(int count, char **words) {
    (void)count;
    int batches = 40;
    char *block = malloc(1 << 20);
    memset(block, 1, 1 << 20);
    if (strncmp(words[1], "malloc", 6) == 0) {
        int is_small = words[1][6] == '-', operations = is_small ? 200000 : 20;
        begun = now();
        for (int batch = 0; batch < batches; batch++, lap(operations))
            for (int i = 0; i < operations; i++) {
                size_t bytes = is_small ? 64 + i % 64 : 2 << 20;
                char *memory = malloc(bytes);
                memset(memory, i, is_small ? 1 : bytes);
                __asm__ volatile("" : : "r"(memory) : "memory");
                free(memory);
            }
        printf("%.12f\n", best);
        return 0;
    }
    int fd = open(words[2], O_RDWR | O_CREAT, 0644), blocks = 16384, operations = 10000;
    for (int i = 0; i < blocks; i++)
        if (pwrite(fd, block, 4096, i * 4096L) != 4096) return 1;
    int is_write = strcmp(words[1], "pwrite") == 0;
    begun = now();
    for (int batch = 0; batch < batches; batch++, lap(operations))
        for (int i = 0; i < operations; i++) {
            long at = i * 7919L % blocks * 4096;
            if ((is_write ? pwrite(fd, block, 4096, at) : pread(fd, block, 4096, at)) != 4096) return 1;
        }
    printf("%.12f\n", best);
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
    """Command lines by name, and whether they measure themselves."""
    (work / "loop.c").write_text(LOOP_C)
    subprocess.run(["cc", "-O2", "-o", work / "loop", work / "loop.c"], check=True)
    loop, data = str(work / "loop"), str(work / "blocks")
    found = {
        "pread, 4 KiB": ([loop, "pread", data], True),
        "pwrite, 4 KiB": ([loop, "pwrite", data], True),
        "malloc and free, 64 to 127 bytes": ([loop, "malloc-small"], True),
        "malloc, fill, free, 2 MiB": ([loop, "malloc"], True),
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


def once(command: list[str], work: Path, watched: Path | None, loops: bool) -> float:
    """Seconds of processor time of one run, or of one operation."""
    # The program is timed by a small one that is watched with it; what the command itself takes is not the program's.
    inner = [sys.executable, "-c", CLOCK, *command]
    if watched:
        inner = [str(watched), "advise", "--output", "/dev/null", "--", *inner]
    environment = os.environ | {"XDG_DATA_HOME": str(work / "data"), "CENOTE_STORE": str(work / "store")}
    done = subprocess.run(inner, cwd=work, env=environment, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise RuntimeError(f"{inner}: {done.returncode}\n{done.stderr}")
    return float(done.stdout.split()[0]) if loops else float(done.stdout.split("took ")[1])


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
                once(command, work, args.cenote, loops)
                alone, watched = [], []
                # Loops take a moment, and their differences are small.
                for pair in range(args.pairs * (2 if loops else 1)):
                    for side in (alone, watched) if pair % 2 else (watched, alone):
                        side.append(once(command, work, args.cenote if side is watched else None, loops))
                ratios = sorted(b / a for a, b in zip(alone, watched, strict=True))
                # A loop does the same each time, and whatever comes between makes it slower: its fastest runs are compared.
                ratio = min(watched) / min(alone) if loops else statistics.median(ratios)
                line = {
                    "program": title,
                    "alone_cpu_s": (min if loops else statistics.median)(alone),
                    "watched_cpu_s": (min if loops else statistics.median)(watched),
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
