"""`python -m cenote ...` is the `cenote` command."""

import os
import sys

from ._find import program


def main() -> None:
    """Become the `cenote` command."""
    found = program()
    if found is None:
        print("cenote: the `cenote` command: not found", file=sys.stderr)
        print("  next:  build it (make build), or name it in CENOTE_BIN", file=sys.stderr)
        raise SystemExit(1)
    os.execv(found, ["cenote", *sys.argv[1:]])


if __name__ == "__main__":
    main()
