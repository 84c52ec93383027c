"""The simulation: several processes dump every step, into one shared file on Cenote, into a file each natively."""

import contextlib
import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from campaign.console import Console
from campaign.places import Place
from campaign.result import Kill, Result, Sample, Timing
from campaign.runner import Program, run_all
from campaign.settings import Settings
from campaign.store import Store, StoreFailed

SAMPLE_EVERY_S = 0.4
WRITE, READ, BARRIER = "particles, write", "particles, read and check", "particles, until on media"


def file_of(place: Place, rank: int) -> Path:
    """The file to which a rank dumps."""
    return place.dir / "dump" / ("particles.h5" if place.shared_file else f"particles-{rank}.h5")


def files_of(settings: Settings, place: Place) -> list[Path]:
    """All files of the dump."""
    return list(dict.fromkeys(file_of(place, rank) for rank in range(settings.ranks)))


def acknowledged_of(place: Place, out: Path, rank: int) -> Path:
    """The log of a rank's acknowledged writes."""
    return out / f"{place.name}-acknowledged-{rank}.jsonl"


@dataclass
class Assassin:
    """Watches the dump: samples the tiers, and kills the daemon when given shares of the work are done."""

    store: Store
    shares: list[float]
    begin: float = field(default_factory=time.time)
    kills: list[Kill] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    last_sample: float = 0.0

    def look(self, share: float) -> None:
        """Called continuously with the finished share of the work."""
        now = time.time()
        if self.shares and share >= self.shares[0]:
            pid = self.store.kill_daemon()
            if pid is not None:
                self.shares.pop(0)
                self.kills.append(Kill(time.time() - self.begin, pid))
        if now - self.last_sample >= SAMPLE_EVERY_S:
            self.sample()

    def sample(self) -> None:
        """Samples the use of the tiers. May miss a sample right after a kill of the daemon."""
        with contextlib.suppress(StoreFailed):
            used = {tier["name"]: tier["used_bytes"] for tier in self.store.tiers()}
            self.samples.append(Sample(time.time() - self.begin, used))
        self.last_sample = time.time()


def create(settings: Settings, place: Place, out: Path) -> None:
    """Makes the file or files, with their datasets."""
    place.fresh("dump")
    ranks_in_file = settings.ranks if place.shared_file else 1
    particles = settings.particles if place.shared_file else settings.particles_per_rank
    programs = [
        Program(
            f"create {path.stem}",
            "dump_create",
            [str(path), str(settings.steps), str(particles), str(ranks_in_file)],
            place,
            out,
        )
        for path in files_of(settings, place)
    ]
    run_all(programs, at_once=2)


def dump(
    settings: Settings, place: Place, out: Path, console: Console, result: Result, assassin: Assassin | None
) -> None:
    """Runs all ranks at once. Bandwidth counts the writes only, as seen by the slowest rank."""
    create(settings, place, out)
    programs = [_rank(settings, place, out, rank) for rank in range(settings.ranks)]
    watch_kills = assassin.look if assassin else lambda share: None
    if assassin:
        assassin.begin = time.time()

    where = "one shared file" if place.shared_file else f"{settings.ranks} files"
    with console.bar(f"{settings.ranks} ranks dump {settings.steps} steps, {where}: {place.title}") as bar:

        def watch(share: float) -> None:
            bar(share)
            watch_kills(share)

        run_all(programs, settings.ranks, watch)
    outcomes = [program.result() for program in programs]
    size = sum(outcome["bytes"] for outcome in outcomes)
    result.timings.append(Timing(WRITE, place.name, max(outcome["seconds"] for outcome in outcomes), size))
    result.flush_s[place.name] = max(outcome["flush_s"] for outcome in outcomes)
    result.longest_write_s[place.name] = max(outcome["longest_write_s"] for outcome in outcomes)


def barrier(settings: Settings, place: Place, result: Result, store: Store | None) -> None:
    """Waits until the dump survives power loss, and records the time, including that of the ranks' own flush.

    That is `fsync` natively, where `flush` does not wait for the device, and `cenote flush` on Cenote.
    """
    begin = time.monotonic()
    if store is not None:
        store.flush()
    else:
        for path in files_of(settings, place):
            with path.open("rb") as file:
                os.fsync(file.fileno())
    seconds = result.flush_s.get(place.name, 0.0) + time.monotonic() - begin
    result.timings.append(Timing(BARRIER, place.name, seconds, bytes=0))


def _rank(settings: Settings, place: Place, out: Path, rank: int) -> Program:
    outcome = out / f"{place.name}-dump-{rank}.json"
    first = rank * settings.particles_per_rank
    numbers = {
        "columns": first if place.shared_file else 0,
        "rank": rank if place.shared_file else 0,
        "particles": settings.particles_per_rank,
        "first-id": first,
        "steps": settings.steps,
        "substeps": settings.substeps,
        "seed": settings.seed,
    }
    options = [word for name, value in numbers.items() for word in (f"--{name}", str(value))]
    log = acknowledged_of(place, out, rank)
    arguments = [str(outcome), str(log), str(file_of(place, rank)), *options]
    return Program(f"rank {rank}", "dump_steps", arguments, place, out, outcome)


def check(settings: Settings, place: Place, out: Path, console: Console, result: Result) -> list[str]:
    """Other processes read everything acknowledged. Returns what is missing or different."""
    programs = []
    for rank in range(settings.ranks):
        outcome = out / f"{place.name}-check-{rank}.json"
        log, path = acknowledged_of(place, out, rank), file_of(place, rank)
        programs.append(
            Program(f"check {rank}", "dump_check", [str(outcome), str(log), str(path)], place, out, outcome)
        )
    with console.bar(f"reading every acknowledged byte again: {place.title}") as watch:
        run_all(programs, settings.ranks, watch)
    outcomes = [program.result() for program in programs]
    size, checked = (sum(outcome[key] for outcome in outcomes) for key in ("bytes", "checked"))
    result.timings.append(Timing(READ, place.name, max(outcome["seconds"] for outcome in outcomes), size))
    expected = settings.ranks * settings.steps * 8
    lost = [line for outcome in outcomes for line in outcome["listed"]]
    if checked != expected:
        lost.append(f"{checked} writes were acknowledged, {expected} were made")
    if place.shared_file:
        result.lost.acknowledged_checked, result.lost.acknowledged_bytes = checked, size
    return [f"{place.title}: {line}" for line in lost]


def same_bytes(settings: Settings, native: Place, cenote: Place, out: Path) -> list[str]:
    """Compares the native and the Cenote dump write by write: the simulation is deterministic, so the bytes are
    equal."""
    found = []
    for rank in range(settings.ranks):
        left, right = (_checksums(acknowledged_of(place, out, rank)) for place in (native, cenote))
        found += [f"rank {rank}: {key} differs from native" for key in left if left[key] != right.get(key)]
    return found


def _checksums(log: Path) -> dict[tuple[str, int], int]:
    lines = map(json.loads, log.read_text().splitlines())
    return {(name, step): crc for name, step, _first, _count, crc, _when in lines}


def pauses(settings: Settings, cenote: Place, out: Path, assassin: Assassin) -> None:
    """For each kill: the time until every rank had its next write acknowledged."""
    for kill in assassin.kills:
        at = assassin.begin + kill.at_s
        for rank in range(settings.ranks):
            times = [json.loads(line)[-1] for line in acknowledged_of(cenote, out, rank).read_text().splitlines()]
            after = [when for when in times if when > at]
            if after:
                kill.pause_s = max(kill.pause_s, after[0] - at)
