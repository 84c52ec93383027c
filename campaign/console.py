"""What a person sees during a run: phases with bars and remaining times; plain lines without a terminal."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console as RichConsole
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

QUIET_LINE_EVERY_S = 10.0


class Console:
    """Phases, bars, notes and tables."""

    def __init__(self) -> None:
        self.rich = RichConsole(highlight=False)
        if not self.rich.is_terminal:
            self.rich = RichConsole(highlight=False, width=118)
        self.begin = time.monotonic()

    def title(self, text: str, subtitle: str) -> None:
        """Prints the title and subtitle."""
        self.rich.print(f"\n[bold cyan]{text}[/]\n[dim]{subtitle}[/]\n")

    def phase(self, text: str) -> None:
        """Prints the heading of a phase."""
        self.rich.print(f"[bold]{text}[/]")

    def note(self, text: str) -> None:
        """Prints a note."""
        self.rich.print(f"  [dim]·[/] {text}")

    def good(self, text: str) -> None:
        """Prints a success."""
        self.rich.print(f"  [green]✓[/] {text}")

    def bad(self, text: str) -> None:
        """Prints a failure."""
        self.rich.print(f"  [bold red]✗ {text}[/]")

    def show(self, table: Table) -> None:
        """Prints a table."""
        self.rich.print(table)

    @contextmanager
    def bar(self, text: str) -> Iterator[Callable[[float], None]]:
        """A progress bar; yields a function that takes the finished share."""
        if self.rich.is_terminal:
            yield from self._drawn_bar(text)
        else:
            yield from self._lines(text)

    def _drawn_bar(self, text: str) -> Iterator[Callable[[float], None]]:
        columns = (
            TextColumn("  "),
            SpinnerColumn(),
            TextColumn("{task.description:<46}"),
            BarColumn(bar_width=32),
            TextColumn("{task.percentage:>4.0f}%"),
            TimeElapsedColumn(),
            TextColumn("[dim]left"),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=self.rich, transient=True) as progress:
            task = progress.add_task(text, total=1.0)
            yield lambda share: progress.update(task, completed=share)

    def _lines(self, text: str) -> Iterator[Callable[[float], None]]:
        begin = last = time.monotonic()
        self.rich.print(f"  · {text} ...")

        def tell(share: float) -> None:
            nonlocal last
            now = time.monotonic()
            if now - last > QUIET_LINE_EVERY_S and 0 < share < 1:
                last = now
                left = (now - begin) * (1 - share) / share
                self.rich.print(f"    {text}: {share:.0%}, about {left:.0f} s left")

        yield tell
