"""Checks the rooms table in ARCHITECTURE.md against the crates' actual imports.

The table decides: a crate that it lacks, or a dependency between rooms that it does not allow, fails. Tests may import
any room above their own and use the testkit; shipped code may not.
"""

import re
from dataclasses import dataclass

from .report import finish
from .tree import ROOT, workspace_packages

TESTKIT = "cenote-testkit"


@dataclass(frozen=True)
class Room:
    """A row of the table."""

    path: str
    package: str
    may_import: frozenset[str]
    above: frozenset[str]


def parse_table(text: str) -> tuple[dict[str, Room], list[str]]:
    """Returns the rooms by package name, and the faults of the table itself."""
    rooms: dict[str, Room] = {}
    short_names: dict[str, str] = {}
    findings = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        named = re.fullmatch(r"`((?:crates|views|bindings|mpi|benches)/?[\w/]*)`", cells[0])
        if not line.startswith("|") or not named or len(cells) != 5:
            continue
        path, package, allowed = named[1], cells[1].strip("`"), cells[4]
        above = frozenset(rooms)
        words = [word.strip().strip("`") for word in allowed.split(",") if word.strip()]
        names = set()
        for word in words:
            if word == "all above":
                names |= above
            elif word in short_names:
                names.add(short_names[word])
            else:
                findings.append(f"ARCHITECTURE.md: {path} may import '{word}', which is no room above it")
        rooms[package] = Room(path, package, frozenset(names), above)
        short_names[path.rsplit("/", 1)[-1]] = package
    if not rooms:
        findings.append("ARCHITECTURE.md: no rooms table found")
    return rooms, findings


def check(rooms: dict[str, Room], packages: list[dict], root: str) -> list[str]:
    """Returns the dependencies of the packages that the table does not allow."""
    findings = []
    for package in packages:
        name = package["name"]
        path = package["manifest_path"].removeprefix(f"{root}/").removesuffix("/Cargo.toml")
        room = rooms.get(name)
        if room is None:
            findings.append(f"{path}: package '{name}' is not in the rooms table of ARCHITECTURE.md")
            continue
        if room.path != path:
            findings.append(f"{path}: the rooms table says that '{name}' is in {room.path}")
        for dependency in package["dependencies"]:
            if dependency.get("path") is None:
                continue
            allowed = room.may_import
            if dependency["kind"] == "dev":
                allowed = room.may_import | room.above | {TESTKIT}
            if dependency["name"] not in allowed:
                kind = dependency["kind"] or "normal"
                findings.append(f"{path}: must not import '{dependency['name']}' ({kind} dependency)")
    return findings


def main() -> None:
    rooms, findings = parse_table((ROOT / "ARCHITECTURE.md").read_text())
    finish(findings + check(rooms, workspace_packages(), str(ROOT)))


if __name__ == "__main__":
    main()
