"""The result on the terminal: one table of times, one of tiers, and the verdict."""

from pathlib import Path

from rich.table import Table

from campaign.console import Console
from campaign.result import Result, Timing

PLACES = {"fast": "native, in memory", "disk": "native, on disk", "cenote": "Cenote, three tiers"}
PROBLEMS_SHOWN = 8


def size(number: float) -> str:
    """A size as text for people."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(number) < 1024 or unit == "TiB":
            return f"{number:.0f} {unit}" if unit == "B" or number >= 100 else f"{number:.1f} {unit}"
        number /= 1024
    raise AssertionError("unreachable")


def tiers_line(tiers: list[dict]) -> str:
    """Tiers in one line."""
    return ", ".join(f"{tier['name']} {size(tier['size'])}" for tier in tiers)


def tasks(result: Result) -> list[str]:
    """Tasks in the order of their first run."""
    return list(dict.fromkeys(timing.task for timing in result.timings))


def cell(timing: Timing | None) -> str:
    """Seconds and bandwidth as text."""
    if timing is None:
        return "—"
    rate = f"  {size(timing.bytes_per_s)}/s" if timing.bytes else ""
    return f"{timing.seconds:.2f} s{rate}"


def ratio(result: Result, task: str) -> str:
    """Speed of Cenote relative to native in memory: above 1 is faster."""
    native, cenote = result.timing(task, "fast"), result.timing(task, "cenote")
    if native is None or cenote is None or cenote.seconds == 0 or native.seconds < 1e-3:
        return "—"
    return f"{native.seconds / cenote.seconds:.2f}x"


def show(result: Result, console: Console) -> None:
    """Prints the tables."""
    table = Table(title="Time and bandwidth, the same programs", title_justify="left")
    table.add_column("program")
    for title in (*PLACES.values(), "Cenote : memory"):
        table.add_column(title, justify="right")
    for task in tasks(result):
        table.add_row(task, *(cell(result.timing(task, place)) for place in PLACES), ratio(result, task))
    console.show(table)
    if result.tiers:
        console.show(tiers_table(result))


def tiers_table(result: Result) -> Table:
    """Use of the tiers at the end."""
    table = Table(title="What lies on which tier", title_justify="left")
    for title in ("tier", "kind"):
        table.add_column(title)
    for title in ("used", "capacity"):
        table.add_column(title, justify="right")
    table.add_column("")
    for tier in result.tiers:
        share = tier["used_bytes"] / max(1, tier["capacity_bytes"])
        row = (size(tier["used_bytes"]), size(tier["capacity_bytes"]), "█" * round(share * 30))
        table.add_row(tier["name"], tier["kind"], *row)
    return table


def verdict(result: Result, page: Path, console: Console) -> int:
    """Prints the last lines; returns the exit code."""
    lost = result.lost
    if not result.cenote_ran:
        console.bad("Cenote was not run; the figures above are native HDF5 only")
    for line in [*result.problems, *lost.acknowledged_lost, *lost.differences, *lost.damage][:PROBLEMS_SHOWN]:
        console.bad(line)
    if result.ok and result.cenote_ran:
        console.good(f"lost: nothing. Different from native HDF5: nothing. {result.seconds:.0f} s in all")
    elif not result.ok:
        console.bad(f"FAILED: {lost.count} lost or different, {len(result.problems)} other problems")
    console.note(f"report: {page}")
    console.note(f"figures: {page.with_suffix('.json')}")
    native_only = result.settings.get("native_only", False)
    return 0 if result.ok and (result.cenote_ran or native_only) else 1
