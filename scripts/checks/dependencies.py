"""Checks that docs/dependencies.md gives a reason for every direct dependency on a library."""

import re

from .report import finish
from .tree import ROOT, workspace_packages


def missing(page: str, packages: list[dict], python_names: list[str]) -> list[str]:
    """Returns the direct external dependencies that the page does not name in backticks."""
    named = {re.split(r"[\s=<>~]", name)[0].lower() for name in re.findall(r"`([^`\n]+)`", page)}
    wanted: dict[str, str] = {name: "scripts/requirements.txt" for name in python_names}
    for package in packages:
        for dependency in package["dependencies"]:
            if dependency.get("path") is None:
                wanted.setdefault(dependency["name"], package["name"])
    return [
        f"docs/dependencies.md does not say why '{name}' is needed (used by {user})"
        for name, user in sorted(wanted.items())
        if name.lower() not in named
    ]


def python_names(requirements: str) -> list[str]:
    """Returns the names of the pinned packages in a requirements file."""
    return re.findall(r"^([A-Za-z0-9._-]+)==", requirements, re.MULTILINE)


def main() -> None:
    page = (ROOT / "docs/dependencies.md").read_text()
    names = python_names((ROOT / "scripts/requirements.txt").read_text())
    finish(missing(page, workspace_packages(), names))


if __name__ == "__main__":
    main()
