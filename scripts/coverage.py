"""Prints branch coverage by room and file, and lists unreached branches. Called by scripts/coverage.sh.

Arguments: llvm-cov, the merged profile, the file for the list. Standard input has the instrumented programs and
libraries, one a line. Leaves out code that only tests run, and assertions, whose other branch is a bug.
"""

import functools
import json
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
ROOMS = ("crates/model/src", "crates/store/src", "crates/client/src")


@functools.cache
def test_modules() -> frozenset[str]:
    """Returns the files of modules that are compiled only for tests, except those whose names say so."""
    found = set()
    for file in (file for room in ROOMS for file in (TOP / room).rglob("*.rs")):
        folder = file.parent if file.name in ("mod.rs", "lib.rs") else file.with_suffix("")
        names = re.findall(r"#\[cfg\(test\)\]\s+mod (\w+);", file.read_text())
        found |= {str((folder / f"{name}.rs").relative_to(TOP)) for name in names}
    return frozenset(found)


def of_tests(path: str, lines: list[str], line: int) -> bool:
    """Returns whether a branch belongs to tests: in a test file, below `mod tests`, or in an assertion."""
    if "/tests" in path or path.endswith("tests.rs") or path in test_modules():
        return True
    if re.match(r"\s*(debug_)?assert(_eq|_ne)?!", lines[line - 1]):
        return True
    return any(text.startswith("mod tests") for text in lines[:line])


def export(llvm_cov: str, profile: str, program: str) -> list[dict]:
    """Returns the functions of a program, with their branches; none if it is not instrumented."""
    words = [llvm_cov, "export", "-format=text", "-skip-expansions", f"-instr-profile={profile}", program]
    words += [str(TOP / room) for room in ROOMS]  # for other files it may end with SIGSEGV
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        if "no coverage data" not in done.stderr:
            raise SystemExit(f"coverage: llvm-cov of {program}: {done.stderr[-500:]}")
        return []
    return json.loads(done.stdout)["data"][0]["functions"]


def read(llvm_cov: str, profile: str, programs: list[str]) -> dict[str, dict[tuple[int, int], tuple[int, int]]]:
    """Returns each file's branches by position, with counts of both ways over all programs and generic copies."""
    found: dict[str, dict[tuple[int, int], tuple[int, int]]] = defaultdict(dict)
    for function in (function for program in programs for function in export(llvm_cov, profile, program)):
        for branch in function["branches"]:
            line, column, taken, passed, file = branch[0], branch[1], branch[4], branch[5], branch[6]
            name = function["filenames"][file].removeprefix(f"{TOP}/")
            if name.startswith(ROOMS):
                before = found[name].get((line, column), (0, 0))
                found[name][line, column] = (before[0] + taken, before[1] + passed)
    return found


def main() -> int:
    """Prints the table; writes the unreached branches, one a line, with their source."""
    llvm_cov, profile, unreached_at = sys.argv[1:]
    found = read(llvm_cov, profile, sys.stdin.read().split())
    rooms = {room: [0, 0] for room in ROOMS}
    files, unreached = [], []
    for name, branches in sorted(found.items()):
        lines = (TOP / name).read_text().splitlines()
        ways = reached = 0
        for (line, column), (taken, passed) in sorted(branches.items()):
            if of_tests(name, lines, line):
                continue
            ways += 2
            reached += (taken > 0) + (passed > 0)
            if not (taken and passed):
                missing = "neither way" if not taken and not passed else "never true" if not taken else "never false"
                unreached.append(f"{name}:{line}:{column}: {missing}: {lines[line - 1].strip()}")
        if ways:
            room = next(room for room in ROOMS if name.startswith(room))
            rooms[room][0] += ways
            rooms[room][1] += reached
            files.append((reached / ways, ways - reached, name))
    Path(unreached_at).write_text("\n".join(unreached) + "\n")
    for share, missing, name in sorted(files, key=lambda one: -one[1])[:40]:
        print(f"{share:7.1%}  {missing:4} not reached  {name}")
    for room, (ways, reached) in rooms.items():
        print(f"{room}: {reached} of {ways} ways of branches reached, {reached / max(ways, 1):.1%}")
    print(f"the others, by place: {unreached_at}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
