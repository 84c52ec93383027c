"""Checks comments of Rust: their width (`cargo fmt` leaves them alone), that modules open with one, and that
the one of a crate says what it must not know."""

import re

from . import frozen
from .report import finish
from .sizes import sources

COLUMNS_MAX = 160
COMMENT = re.compile(r"(?:^|\s)//")
SHIPPED = re.compile(r"(?:crates|views|bindings)/\w+/src/|benches/src/")
ROOT_MODULE = re.compile(r"(?:(?:crates|views|bindings)/\w+|benches)/src/(?:lib|main)\.rs")


def wide(name: str, text: str) -> list[str]:
    """Lines with a comment that are too wide."""
    return [
        f"{name}:{number}: {len(line)} columns; comments end at {COLUMNS_MAX}"
        for number, line in enumerate(text.splitlines(), 1)
        if len(line) > COLUMNS_MAX and COMMENT.search(line)
    ]


def head(text: str) -> str:
    """What a module says of itself before anything else."""
    lines = []
    for line in text.splitlines():
        if not line.startswith("//!"):
            break
        lines.append(line.removeprefix("//!").strip())
    return " ".join(lines)


def silent(all_sources: dict[str, str]) -> dict[str, int]:
    """Modules that do not open with `//!`."""
    return {name: 1 for name, text in all_sources.items() if SHIPPED.match(name) and not head(text)}


def without_absences(name: str, text: str) -> list[str]:
    """Rooms that do not say what they must not know."""
    if ROOT_MODULE.fullmatch(name) and "must not know" not in re.sub(r"\s+", " ", head(text)):
        return [f"{name}: its `//!` does not say what this room must not know"]
    return []


def main() -> None:
    all_sources = sources()
    findings = [finding for name, text in all_sources.items() for finding in wide(name, text)]
    findings += [finding for name, text in all_sources.items() for finding in without_absences(name, text)]
    findings += frozen.compare("does not open with `//!`", silent(all_sources), frozen.load()["silent_modules"])
    finish(findings)


if __name__ == "__main__":
    main()
