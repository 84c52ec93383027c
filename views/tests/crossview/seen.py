"""What a view shows at a path, and how two of that are compared."""

import hashlib
from dataclasses import dataclass, field

# Files in tests are shorter.
CONTENT_MAX = 8 << 20


@dataclass
class Seen:
    """What a view shows; fields that a view does not know are None."""

    kind: str
    size: int | None = None
    mode: int | None = None
    links: int | None = None
    modified: int | None = None
    content: bytes | None = None
    names: tuple[str, ...] | None = None
    target: str | None = None
    xattrs: tuple[tuple[str, bytes], ...] | None = None
    # S3 only.
    etag: str | None = None
    meta: tuple[tuple[str, str], ...] | None = None
    errno: int | None = None
    note: str = field(default="", compare=False)

    def difference(self, other: "Seen") -> str | None:
        """The first thing in which `other` (a view) is not this (the oracle); what either does not know is left out."""
        for name in ("kind", "errno", "target", "size", "names", "content", "mode", "links", "xattrs", "meta", "etag"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine is None or theirs is None or mine == theirs:
                continue
            if name == "content":
                return f"content: {_where(mine, theirs)}"
            return f"{name}: expected {_short(mine)}, seen {_short(theirs)}"
        return None


def failure(error: OSError) -> Seen:
    """What is seen is an error."""
    return Seen("error", errno=error.errno, note=str(error))


def _short(what: object) -> str:
    text = repr(what)
    return text if len(text) < 300 else f"{text[:300]}..."


def _where(mine: bytes, theirs: bytes) -> str:
    if len(mine) != len(theirs):
        return f"expected {len(mine)} bytes, seen {len(theirs)}"
    first = next(place for place, (a, b) in enumerate(zip(mine, theirs, strict=True)) if a != b)
    last = next(place for place in range(len(mine) - 1, -1, -1) if mine[place] != theirs[place])
    return (
        f"bytes {first} to {last} of {len(mine)}: expected {mine[first : first + 16].hex()}..., "
        f"seen {theirs[first : first + 16].hex()}... ({hashlib.sha256(theirs).hexdigest()[:8]})"
    )
