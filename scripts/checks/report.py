"""The end of a check: its findings on standard error, and an exit code."""

import sys
from collections.abc import Iterable


def finish(findings: Iterable[str]) -> None:
    """Prints each finding and exits: 1 if there was any, 0 otherwise."""
    found = list(findings)
    for finding in found:
        print(f"  {finding}", file=sys.stderr)
    sys.exit(1 if found else 0)
