"""Small tiers for tests."""

from pathlib import Path

import cenote

MIB = 1 << 20


def tiers(folder: Path, memory: int = 16 * MIB) -> list[cenote.Tier]:
    return [
        cenote.Tier("memory", "memory", memory),
        cenote.Tier("disk", "directory", 64 * MIB, folder / "disk"),
    ]
