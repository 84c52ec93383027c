"""The result of a campaign: filled in during the run, then printed and drawn. Holds values, decides nothing but
`ok`."""

from dataclasses import asdict, dataclass, field

from campaign.compare import Counts


@dataclass
class Timing:
    """Time of a program, or of several at once, in one place."""

    task: str
    place: str
    seconds: float
    bytes: int

    @property
    def bytes_per_s(self) -> float:
        """Bandwidth in bytes per second."""
        return self.bytes / self.seconds if self.seconds > 0 else 0.0


@dataclass
class Kill:
    """A kill of the daemon: when, and how long the ranks waited for their next acknowledged write."""

    at_s: float
    pid: int
    pause_s: float = 0.0


@dataclass
class Sample:
    """Bytes on each tier at one moment of the dump."""

    at_s: float
    used: dict[str, int]


@dataclass
class Lost:
    """Data that were missing or different."""

    acknowledged_checked: int = 0
    acknowledged_bytes: int = 0
    acknowledged_lost: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        """The total number of losses."""
        return len(self.acknowledged_lost) + len(self.differences) + len(self.damage)


@dataclass
class Result:
    """The whole result."""

    settings: dict = field(default_factory=dict)
    machine: dict = field(default_factory=dict)
    timings: list[Timing] = field(default_factory=list)
    compared: Counts = field(default_factory=Counts)
    sources: Counts = field(default_factory=Counts)
    kills: list[Kill] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    tiers: list[dict] = field(default_factory=list)
    verified: dict = field(default_factory=dict)
    lost: Lost = field(default_factory=Lost)
    conservation: float = 0.0
    ocean: dict = field(default_factory=dict)
    flush_s: dict[str, float] = field(default_factory=dict)
    longest_write_s: dict[str, float] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    cenote_ran: bool = False
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """True if nothing was lost, nothing differs and nothing else went wrong."""
        return self.lost.count == 0 and not self.problems

    def timing(self, task: str, place: str) -> Timing | None:
        """One timing, if it exists."""
        return next((timing for timing in self.timings if (timing.task, timing.place) == (task, place)), None)

    def document(self) -> dict:
        """The result as plain values for JSON."""
        return asdict(self) | {"ok": self.ok}
