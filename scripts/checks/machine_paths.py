"""Checks that nothing in the tree names a directory of one developer's machine, or a package registry's host."""

import re

from .report import finish
from .tree import ROOT, tracked_files

# Built from parts: this file must not match itself.
PATHS = re.compile(r"(?<![\w.$})/-])/(?:wor" + r"k|ro" + r"ot|hom" + r"e/\w+|User" + r"s/\w+)/[\w.]")
HOSTS = re.compile(r"index" + r"-url\s*=|\[source\.[^\]]+\]|regis" + r"try\s*=\s*\"https?:")


def findings_in(name: str, text: str) -> list[str]:
    """Returns the lines of one file that would only work on one machine."""
    return [
        f"{name}:{number}: names this machine: {line.strip()[:100]}"
        for number, line in enumerate(text.splitlines(), 1)
        if PATHS.search(line) or HOSTS.search(line)
    ]


def main() -> None:
    findings = []
    for path in tracked_files():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue  # binary fixtures
        findings += findings_in(str(path.relative_to(ROOT)), text)
    finish(findings)


if __name__ == "__main__":
    main()
