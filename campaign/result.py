"""What came out of a campaign: filled in as it goes, then printed and drawn. Holds values, decides nothing but `ok`."""

from dataclasses import asdict, dataclass, field

from campaign.compare import Counts


@dataclass
class Timing:
    """A program, or several at once, in one place."""

    task: str
    place: str
    seconds: float
    bytes: int

    @property
    def bytes_per_s(self) -> float:
        """Bandwidth."""
        return self.bytes / self.seconds if self.seconds > 0 else 0.0


@dataclass
class Kill:
    """The daemon was killed: when, and how long the ranks waited until the next write was acknowledged."""

    at_s: float
    pid: int
    pause_s: float = 0.0


@dataclass
class Sample:
    """Bytes on each tier at a moment of the dump."""

    at_s: float
    used: dict[str, int]


@dataclass
class Lost:
    """What should have been there and was not, or was different."""

    acknowledged_checked: int = 0
    acknowledged_bytes: int = 0
    acknowledged_lost: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        """All of it together."""
        return len(self.acknowledged_lost) + len(self.differences) + len(self.damage)


@dataclass
class Result:
    """The whole outcome."""

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
        """One timing, if it was made."""
        return next((timing for timing in self.timings if (timing.task, timing.place) == (task, place)), None)

    def document(self) -> dict:
        """For JSON."""
        return asdict(self) | {"ok": self.ok}
