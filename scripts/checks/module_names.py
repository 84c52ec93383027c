"""Checks that no two modules of tests have one name: pytest refuses to collect such modules together."""

from collections import defaultdict

from .report import finish
from .tree import ROOT, tracked_files


def problems() -> list[str]:
    """Each name that is taken more than once, with the files that have it."""
    by_name = defaultdict(list)
    for path in tracked_files("*.py"):
        if path.name.startswith("test_"):
            by_name[path.name].append(str(path.relative_to(ROOT)))
    return [f"{name}: {', '.join(files)}" for name, files in sorted(by_name.items()) if len(files) > 1]


if __name__ == "__main__":
    finish(problems())
