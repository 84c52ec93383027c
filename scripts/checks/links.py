"""Checks that every relative link in the documentation has a target in this tree, including headings."""

import re
from pathlib import Path

from .report import finish
from .tree import ROOT, tracked_files

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def anchors(text: str) -> set[str]:
    """Returns the anchors of a page's headings, in the form that Markdown renderers use."""
    headings = re.findall(r"^#+\s+(.+?)\s*$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path, text: str) -> list[str]:
    """Returns the links of one page without a target in this tree. Ignores links to other hosts."""
    findings = []
    for target in LINK.findall(FENCE.sub("", text)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = page if not path else page.parent / path
        name = page.relative_to(ROOT) if page.is_relative_to(ROOT) else page
        if not there.exists():
            findings.append(f"{name}: link to '{target}', which does not exist")
        elif anchor and there.suffix == ".md" and anchor not in anchors(there.read_text()):
            findings.append(f"{name}: link to '{target}': no such heading")
    return findings


def main() -> None:
    finish(finding for page in tracked_files("*.md") for finding in broken_links(page, page.read_text()))


if __name__ == "__main__":
    main()
