"""Contenders in turns, and a table of the ratios with their spread and bars."""

import os
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benches.tiers.report import Report

OURS = "Cenote"
Measure = Callable[[], dict[str, float]]


@dataclass(frozen=True)
class Bar:
    """What is wanted of the ratio of a figure: ours divided by the peer's."""

    figure: str
    unit: str
    wanted: float
    at_most: bool = False


class Table:
    """Rows of the table; each is also a line of JSON."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(exist_ok=True)
        self.out = Report(path)
        self.rows: list[str] = []

    def pairs(self, row: str, contenders: dict[str, Measure], bars: list[Bar], pairs: int) -> None:
        """Measures all contenders in turns, backward in every other one; the first turn is to warm up."""
        for turn in range(-1, pairs):
            names = list(contenders) if turn % 2 else list(reversed(contenders))
            for name in names:
                # Nobody pays for what another one left to be written.
                os.sync()
                found = contenders[name]()
                shown = ", ".join(f"{figure} {value:,.1f}" for figure, value in found.items())
                print(f"… {row}: {name}{'' if turn >= 0 else ' (warm-up)'}: {shown}", file=sys.stderr, flush=True)
                if turn >= 0:
                    self.out.add(row, name, turn, found)
        for peer in contenders:
            if peer != OURS:
                for bar in bars:
                    self.judge(row, peer, bar)

    def judge(self, row: str, peer: str, bar: Bar) -> None:
        """Adds a row of the table."""
        ours, theirs = self.out.values(row, OURS, bar.figure), self.out.values(row, peer, bar.figure)
        ratios = [own / other for own, other in zip(ours, theirs, strict=True)]
        name = f"{row}: {bar.figure}, beside {peer}"
        self.out.bar(name, ratios, bar.wanted, bar.at_most)
        middle, least, most = statistics.median(ratios), min(ratios), max(ratios)
        is_met = middle <= bar.wanted if bar.at_most else middle >= bar.wanted
        own, other = statistics.median(ours), statistics.median(theirs)
        self.rows.append(
            f"| {row}: {bar.figure} | {peer} | {own:,.4g} | {other:,.4g} {bar.unit} "
            f"| {middle:.2f} ({least:.2f} to {most:.2f}) | {'<=' if bar.at_most else '>='} {bar.wanted:g} "
            f"| {'met' if is_met else '**missed**'} |"
        )

    def skip(self, row: str, why: object) -> None:
        """Says that a row was not measured."""
        self.out.line(kind="skipped", row=row, why=str(why))
        self.rows.append(f"| {row} | skipped: {why} | | | | | |")
        print(f"… {row}: SKIPPED: {why}", file=sys.stderr, flush=True)

    def show(self) -> None:
        """Prints the table."""
        print("| what | beside | Cenote | peer | ratio | bar | |")
        print("|---|---|---|---|---|---|---|")
        for row in self.rows:
            print(row)
        self.out.close()
