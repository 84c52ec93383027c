"""Numbers of what breaks a bound today. They may only fall: `make verify` fails if one rises, `make fix` lowers it."""

import json

from .tree import ROOT

PAGE = ROOT / "scripts/checks/frozen.json"


def load() -> dict[str, dict[str, int]]:
    """The frozen numbers: for each bound, what breaks it (a file, a room) and by which number."""
    return json.loads(PAGE.read_text())


def compare(what: str, found: dict[str, int], frozen: dict[str, int]) -> list[str]:
    """What is worse than its frozen number, and which numbers are higher than they need be."""
    findings = []
    for name in sorted(found.keys() | frozen.keys()):
        now, before = found.get(name, 0), frozen.get(name, 0)
        if now > before:
            findings.append(f"{name}: {what}: {now}" + (f", {before} before" if before else ""))
        elif now < before:
            findings.append(f"{name}: {what}: {now}, frozen at {before}: `make fix` lowers it")
    return findings


def lowered(found: dict[str, int], frozen: dict[str, int]) -> dict[str, int]:
    """The frozen numbers with those that fell; none that rose."""
    return {name: now for name, before in sorted(frozen.items()) if (now := min(found.get(name, 0), before)) > 0}


def lower(found: dict[str, dict[str, int]]) -> None:
    """Writes the numbers that fell."""
    frozen = load()
    wanted = {what: lowered(found.get(what, {}), numbers) for what, numbers in frozen.items()}
    if wanted != frozen:
        PAGE.write_text(json.dumps(wanted, indent=2) + "\n")
