"""The programs' inputs, made once for all places and always the same."""

import os
import random
import shutil
import subprocess
from pathlib import Path

LINUX = Path("/usr/src")
OPENFOAM = Path("/usr/share/doc/openfoam-examples/examples/incompressible/simpleFoam/pitzDaily")
DATE_S = 1_700_000_000


def words(rng: random.Random, size: int) -> bytes:
    """Returns text that compresses like natural text."""
    pieces = []
    while size > 0:
        line = " ".join(f"{rng.randrange(1 << 30):x}" for _ in range(8)) + "\n"
        pieces.append(line[:size])
        size -= len(line)
    return "".join(pieces).encode()


def repository(at: Path) -> None:
    """Makes a git repository: 1,500 files, 60 commits."""
    rng = random.Random("repository")
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", at], check=True)
    names = [f"d{rng.randrange(60)}/e{rng.randrange(4)}/file{number}.txt" for number in range(1500)]
    stream = []
    for commit in range(60):
        stream.append(f"commit refs/heads/main\ncommitter A <a@b> {DATE_S + commit} +0000\ndata 7\ncommit\n")
        for name in names if commit == 0 else rng.sample(names, 40):
            value = words(rng, rng.randrange(200, 20_000))
            stream.append(f"M {rng.choice(('100644', '100755'))} inline {name}\ndata {len(value)}\n{value.decode()}\n")
        stream.append(f"M 120000 inline link{commit}\ndata {len(names[commit])}\n{names[commit]}\n")
    text = "".join(stream).encode()
    subprocess.run(["git", "-C", at, "fast-import", "--quiet"], input=text, check=True)


def tree(at: Path) -> None:
    """Makes files of all sizes, modes and times; symbolic and hard links, holes."""
    rng = random.Random("tree")
    at.mkdir()
    made: list[Path] = []
    for number in range(2500):
        above = at / f"dir {rng.randrange(40)}" / f"é{rng.randrange(5)}"
        above.mkdir(parents=True, exist_ok=True)
        path = above / f"file-{number}"
        draw = rng.random()
        if draw < 0.05 and made:
            os.link(rng.choice(made), path)
        elif draw < 0.1:
            path.symlink_to(rng.choice(("nowhere", "../é1", f"file-{number - 1}")))
        else:
            with open(path, "wb") as out:
                out.write(rng.randbytes(rng.choice((0, 10, 4096, 30_000))))
                if draw < 0.15:
                    out.seek(1 << 20)
                    out.write(b"end")
            path.chmod(rng.choice((0o644, 0o600, 0o755, 0o444)))
            made.append(path)
    for path in sorted(at.rglob("*"), reverse=True):
        time_ns = (DATE_S + rng.randrange(10**7)) * 10**9
        os.utime(path, ns=(time_ns, time_ns), follow_symlinks=False)


def sources(at: Path) -> None:
    """Makes a C++ program of a dozen files with a makefile."""
    at.mkdir()
    count = 12
    (at / "all.h").write_text(
        "#include <map>\n#include <string>\n#include <vector>\n"
        + "".join(f"std::map<std::string, int> part{number}(int);\n" for number in range(count))
    )
    for number in range(count):
        (at / f"part{number}.cpp").write_text(
            f'#include "all.h"\nstd::map<std::string, int> part{number}(int n) {{\n'
            "  std::map<std::string, int> found;\n"
            f'  for (int i = 0; i < n; ++i) found["k" + std::to_string(i * {number + 3} % 97)] += i;\n'
            "  return found;\n}\n"
        )
    calls = "".join(
        f"  for (auto& [k, v] : part{number}(500)) sum = sum * 31 + v + k.size();\n" for number in range(count)
    )
    (at / "main.cpp").write_text(
        '#include "all.h"\n#include <cstdio>\nint main() {\n  unsigned long sum = 7;\n'
        f'{calls}  std::printf("%lu\\n", sum);\n}}\n'
    )
    (at / "Makefile").write_text(
        "objects = $(patsubst %.cpp,%.o,$(wildcard *.cpp))\n"
        "program: main.o libparts.a\n\tg++ -o $@ main.o -L. -lparts\n"
        "libparts.a: $(filter-out main.o,$(objects))\n\tar rcsD $@ $(sort $^)\n"
        "%.o: %.cpp all.h\n\tg++ -std=c++17 -O1 -c -o $@ $<\n"
    )


def linux(at: Path) -> str | None:
    """Makes an uncompressed archive of the kernel's sources; returns why not, if it cannot."""
    found = sorted(LINUX.glob("linux-source-*.tar.xz"))
    if not found:
        return "there is no /usr/src/linux-source-*.tar.xz (Debian: linux-source)"
    if shutil.which("xz") is None:
        return "there is no xz"
    with open(at, "wb") as out:
        subprocess.run(["xz", "-dc", "-T0", found[-1]], stdout=out, check=True)
    return None


def openfoam() -> str | None:
    """Returns why OpenFOAM cannot run, if it cannot."""
    if shutil.which("simpleFoam") is None or shutil.which("mpirun") is None:
        return "OpenFOAM is not installed (Debian: openfoam)"
    if not OPENFOAM.exists():
        return "its examples are not installed (Debian: openfoam-examples)"
    return None
