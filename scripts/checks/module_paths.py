"""Checks that no `#[path]` takes a module from another crate: the rooms' table does not see such an import."""

import os.path
import re
from pathlib import Path

from . import frozen
from .report import finish
from .sizes import sources
from .tree import room_of

PATH = re.compile(r"^\s*#\[(?:cfg_attr\([^\]]*)?path\s*=\s*\"([^\"]+)\"", re.MULTILINE)


def foreign(all_sources: dict[str, str]) -> dict[str, int]:
    """Sources that take modules from another crate, and how many."""
    found = {}
    for name, text in all_sources.items():
        here = Path(name)
        targets = [Path(os.path.normpath(here.parent / path)) for path in PATH.findall(text)]
        if count := sum(room_of(target) != room_of(here) for target in targets):
            found[name] = count
    return found


def main() -> None:
    finish(
        frozen.compare("modules of another crate by `#[path]`", foreign(sources()), frozen.load()["foreign_modules"])
    )


if __name__ == "__main__":
    main()
