"""Checks that one release build serves every package: each library has the same features in all of them.

Where they differ, cargo builds the library and all that lies on it once more. `bindings/features` asks for what is
missing.
"""

import re
import subprocess

from .report import finish
from .tree import ROOT

# What scripts/build.sh builds at once, and what it builds afterwards.
TOGETHER = ["cenote-cli", "cenote-hdf5", "cenote-trace", "cenote-preload", "cenote-c"]
AFTERWARDS = ["cenote-python"]


def features(packages: list[str], edges: str = "normal,build") -> dict[str, set[str]]:
    """Returns each library's sets of features in a build of these packages (or of all), for target and host."""
    command = ["cargo", "tree", "--locked", "--edges", edges, "--prefix", "none", "--format", "{p}|{f}"]
    command += [word for package in packages for word in ("--package", package)] or ["--workspace"]
    lines = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    found: dict[str, set[str]] = {}
    for line in lines:
        package, _, words = line.removesuffix(" (*)").partition("|")
        found.setdefault(re.sub(r" \(.*\)$", "", package), set()).add(words)
    return found


def differences(together: dict[str, set[str]], alone: dict[str, set[str]]) -> list[str]:
    """Returns the libraries of both builds that have other features in one of them."""
    return [
        f"{name}: built with `{words}` and with `{'`, `'.join(sorted(together[name]))}`: see bindings/features"
        for name in sorted(together.keys() & alone.keys())
        for words in sorted(alone[name] - together[name])
    ]


def main() -> None:
    together = features(TOGETHER)
    afterwards = [line for package in AFTERWARDS for line in differences(together, features([package]))]
    # CI tests the release: what the tests have with other features alone is built once more for them.
    tests = features([], "normal,build,dev")
    finish(afterwards + differences(tests, together))


if __name__ == "__main__":
    main()
