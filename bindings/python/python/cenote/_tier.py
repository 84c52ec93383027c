"""Tiers of a new store."""

import os
from dataclasses import dataclass

from ._errors import InvalidInput


@dataclass(frozen=True)
class Tier:
    """A tier, fastest first in the list given to `open`.

    kind: "memory" (needs no path), "file" or "directory". size: bytes, or text such as "2GiB".
    Draining starts above the share `high` of its capacity and goes down to `low`.
    """

    name: str
    kind: str
    size: int | str
    path: str | os.PathLike[str] | None = None
    high: float = 0.9
    low: float = 0.7

    def __str__(self) -> str:
        """The form that the command line and the native module read."""
        parts = {"name": self.name, "kind": self.kind, "size": str(self.size)}
        if self.path is not None:
            # A daemon has another working directory.
            parts["path"] = os.path.abspath(self.path)  # noqa: PTH100 (Path.absolute keeps "..")
        parts |= {"high": repr(float(self.high)), "low": repr(float(self.low))}
        for key, value in parts.items():
            if "," in value:
                raise InvalidInput(f"tier {self.name!r}", f"its {key} has a comma", "choose one without", "invalid")
        return ",".join(f"{key}={value}" for key, value in parts.items())
