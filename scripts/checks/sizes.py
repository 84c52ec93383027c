"""Checks that functions and files of Rust stay short. Long ones of today are frozen by number.

Functions are found by their indentation, which `cargo fmt` guarantees: one ends at the first line that closes it at the
indentation of its `fn`.
"""

import re
from pathlib import Path

from . import frozen
from .report import finish
from .tree import ROOT, room_of, tracked_files

FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 110
# Longer functions than this are counted for each room: the count may only fall.
FUNCTION_LINES_GOOD = 70
FUNCTION = re.compile(
    r"( *)(?:pub(?:\([^)]*\))? )?(?:default |const |async |unsafe |safe |extern \"[^\"]*\" )*fn (\w+)", re.ASCII
)


def functions(text: str) -> list[tuple[str, int]]:
    """The functions of a source file with a body of more than a line, and how many lines each takes."""
    found = []
    unclosed: list[tuple[str, str, int]] = []
    for number, line in enumerate(text.splitlines()):
        if "fn " in line and (begin := FUNCTION.match(line)):
            if not line.endswith(("}", ";")):
                unclosed.append((begin[1], begin[2], number))
        elif unclosed:
            indent, name, first = unclosed[-1]
            # A signature over several lines may end in `;`: then there is no body.
            is_over = line.startswith((f"{indent}}}", f"{indent})")) and line.endswith(("}", ";"))
            if is_over:
                unclosed.pop()
                found.append((name, number - first + 1))
    return found


def scan(sources: dict[str, str]) -> tuple[dict[str, int], dict[str, int], list[str]]:
    """Files that are too long, how many long functions each room has, and what nobody may have."""
    files, counts, findings = {}, {}, []
    for name, text in sources.items():
        lines = text.count("\n")
        if lines > FILE_LINES_MAX:
            files[name] = lines
        for function, length in functions(text):
            if length > FUNCTION_LINES_MAX:
                findings.append(f"{name}: `{function}` has {length} lines; {FUNCTION_LINES_MAX} is the most")
            if length > FUNCTION_LINES_GOOD:
                room = room_of(Path(name))
                counts[room] = counts.get(room, 0) + 1
    return files, counts, findings


def sources() -> dict[str, str]:
    """The Rust sources of the tree by path."""
    return {str(path.relative_to(ROOT)): path.read_text() for path in tracked_files("*.rs")}


def main() -> None:
    files, counts, findings = scan(sources())
    numbers = frozen.load()
    findings += frozen.compare(f"lines, more than {FILE_LINES_MAX}", files, numbers["lines_of_files"])
    what = f"functions of more than {FUNCTION_LINES_GOOD} lines"
    findings += frozen.compare(what, counts, numbers["long_functions_of_rooms"])
    finish(findings)


if __name__ == "__main__":
    main()
