"""Checks that docs/format.md states, for every encoding, the version that the code writes."""

import re
from pathlib import Path

from .report import finish
from .tree import ROOT, tracked_files

PAGE = "docs/format.md"
# Rooms whose encodings other programs or later versions read.
ROOMS = ("crates/device/", "crates/store/", "crates/rpc/", "crates/server/", "crates/wire/", "crates/cluster/")
HEADING = re.compile(r"^##+ .*?\(`(?P<path>[^`]+)`, version (?P<version>\d+)", re.MULTILINE)
ANY_HEADING = re.compile(r"^##+ ", re.MULTILINE)
FIELD = re.compile(r"^\|[^|]*\|[^|]*\| version: (\d+)", re.MULTILINE)
# Other versions that can be read (`_MIN`) are not written.
CONSTANT = re.compile(r"\bconst (?:[A-Z]+_)?VERSION: u\d+ = (\d+);")
TEXT = re.compile(r'"cenote-[a-z-]+ (\d+)"')


def written(source: str) -> set[int]:
    """Returns the versions that a source file writes."""
    return {int(found) for found in CONSTANT.findall(source) + TEXT.findall(source)}


def check(page: str, sources: dict[str, str]) -> list[str]:
    """Returns the differences between the page and the sources, by path."""
    findings = []
    stated: dict[str, set[int]] = {}
    for heading in HEADING.finditer(page):
        path, version = heading["path"].rstrip("/"), int(heading["version"])
        path = path.replace("src/", "crates/store/src/", 1) if path.startswith("src/") else path
        stated.setdefault(path, set()).add(version)
        end = ANY_HEADING.search(page, heading.end())
        for field in FIELD.findall(page[heading.end() : end.start() if end else None]):
            if int(field) != version:
                findings.append(f"{PAGE}: the heading of {path} says version {version}, its table {field}")
    known: set[str] = set()
    for path, versions in stated.items():
        files = {name for name in sources if name == path or name.startswith(f"{path}/")}
        known |= files
        found = set().union(*(written(sources[name]) for name in files))
        if found != versions:
            findings.append(f"{PAGE}: {path} is said to have version {sorted(versions)}, it writes {sorted(found)}")
    for name in sorted(sources.keys() - known):
        if written(sources[name]):
            findings.append(f"{name}: has a version that {PAGE} does not describe")
    return findings


def main() -> None:
    sources = {
        str(path.relative_to(ROOT)): path.read_text()
        for path in tracked_files("*.rs")
        if str(path.relative_to(ROOT)).startswith(ROOMS) and "tests" not in Path(path).stem
    }
    finish(check((ROOT / PAGE).read_text(), sources))


if __name__ == "__main__":
    main()
