"""Checks that no two test modules have the same name: pytest refuses to collect them together."""

from collections import defaultdict

from .report import finish
from .tree import ROOT, tracked_files


def problems() -> list[str]:
    """Returns each name that is used more than once, with its files."""
    by_name = defaultdict(list)
    for path in tracked_files("*.py"):
        if path.name.startswith("test_"):
            by_name[path.name].append(str(path.relative_to(ROOT)))
    return [f"{name}: {', '.join(files)}" for name, files in sorted(by_name.items()) if len(files) > 1]


if __name__ == "__main__":
    finish(problems())
