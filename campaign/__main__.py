"""`python -m campaign`: runs all phases, prints the table, writes the report; exits with an error after a loss."""

import json
import os
import platform
import shutil
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from campaign import phase_analysis, phase_dump, phase_files, places, report, settings, tables
from campaign.console import Console
from campaign.phase_analysis import Analysis
from campaign.phase_dump import Assassin
from campaign.places import Place
from campaign.result import Result
from campaign.runner import ProgramFailed
from campaign.settings import ROOT, Settings
from campaign.store import Store, StoreFailed

BINARY = ROOT / "target/release/cenote"
PLUGINS = ROOT / "target/hdf5-plugin"


@dataclass
class Campaign:
    """One run: its places, and the results so far."""

    settings: Settings
    console: Console
    result: Result
    logs: Path
    store: Store
    fast: Place
    disk: Place
    cenote: Place
    sources: phase_files.Sources = field(default_factory=phase_files.find_sources)
    analysis: dict[str, Analysis] = field(default_factory=dict)
    native_tables: dict = field(default_factory=dict)

    def run_native(self) -> None:
        """The reference: the same programs on native files, in memory and on disk."""
        self.console.phase("Native HDF5, for comparison")
        source_tables = phase_files.read_sources(self.sources, self.disk, self.logs, self.console)
        phase_files.write(self.sources, self.fast, self.logs, self.console, self.result)
        self.native_tables = phase_files.read(self.sources, self.fast, self.logs, self.console, self.result)
        found = phase_files.check_copies(source_tables, self.native_tables["netCDF4"], self.result)
        self.result.problems += [f"copy differs from its source: {difference}" for difference in found]
        for place in (self.fast, self.disk):
            self._dump(place, None)
            if place is self.disk:
                phase_dump.barrier(self.settings, place, self.result, None)
            self.result.problems += phase_dump.check(self.settings, place, self.logs, self.console, self.result)
            if place is self.disk:
                shutil.rmtree(place.dir / "dump", ignore_errors=True)
        self._analyse(self.fast)
        self.console.good(
            f"{self.result.sources.files} NetCDF and {len(self.sources.pp)} PP files converted, "
            f"{self.settings.steps} steps of {self.settings.particles:,} particles dumped"
        )

    def run_cenote(self) -> None:
        """The same programs on a store."""
        console, store = self.console, self.store
        console.phase("Cenote: the same programs, told only by HDF5_PLUGIN_PATH and HDF5_VOL_CONNECTOR")
        store.create(self.settings.tiers)
        self.result.cenote_ran = True
        console.good("store made: " + tables.tiers_line(self.settings.tiers))

        phase_files.write(self.sources, self.cenote, self.logs, console, self.result)
        seen = phase_files.read(self.sources, self.cenote, self.logs, console, self.result)
        self.result.lost.differences += phase_files.check_places(self.native_tables, seen, self.result)
        self._say_compared()

        count = self.settings.kills
        assassin = Assassin(store, [(number + 1) / (count + 1) for number in range(count)])
        self._dump(self.cenote, assassin)
        assassin.sample()
        self._say_kills(assassin)
        phase_dump.barrier(self.settings, self.cenote, self.result, store)
        assassin.sample()
        self.result.kills, self.result.samples = assassin.kills, assassin.samples

        lost = phase_dump.check(self.settings, self.cenote, self.logs, console, self.result)
        lost += phase_dump.same_bytes(self.settings, self.fast, self.cenote, self.logs)
        self.result.lost.acknowledged_lost += lost
        self._say_lost()
        self._analyse(self.cenote)
        self.result.lost.differences += phase_analysis.check_same(self.analysis["fast"], self.analysis["cenote"])
        self.result.tiers = store.tiers()
        self._verify()

    def _dump(self, place: Place, assassin: Assassin | None) -> None:
        phase_dump.dump(self.settings, place, self.logs, self.console, self.result, assassin)

    def _analyse(self, place: Place) -> None:
        self.analysis[place.name] = phase_analysis.analyse(self.settings, place, self.logs, self.console, self.result)
        self.result.problems += phase_analysis.check_physics(self.result)

    def _say_compared(self) -> None:
        compared, found = self.result.compared, self.result.lost.differences
        what = (
            f"{compared.variables:,} variables, {compared.attributes:,} attributes, {compared.dimensions:,} dimensions"
        )
        if found:
            self.console.bad(f"{len(found)} of {compared.rows:,} properties differ from native HDF5, beginning with:")
            for line in found[:5]:
                self.console.note(line)
        else:
            self.console.good(f"{what} are those of native HDF5, bit for bit")

    def _say_kills(self, assassin: Assassin) -> None:
        phase_dump.pauses(self.settings, self.cenote, self.logs, assassin)
        for kill in assassin.kills:
            went_on = f"the ranks wrote on, after a pause of at most {kill.pause_s * 1000:.0f} ms"
            then = went_on if kill.pause_s else "every rank had just written its last step"
            self.console.good(f"daemon {kill.pid} killed with SIGKILL after {kill.at_s:.1f} s; {then}")
        if assassin.kills:
            self.console.note("the time to write below includes these pauses")
        if assassin.shares:
            self.result.problems.append(f"{len(assassin.shares)} of the kills found no daemon to kill")

    def _say_lost(self) -> None:
        lost = self.result.lost
        if lost.acknowledged_lost:
            self.console.bad(f"acknowledged and LOST, or not as written: {len(lost.acknowledged_lost)}, such as:")
            for line in lost.acknowledged_lost[:5]:
                self.console.note(line)
        else:
            checked = f"{lost.acknowledged_checked:,} acknowledged writes ({tables.size(lost.acknowledged_bytes)})"
            self.console.good(f"{checked} read again by other processes: all there, byte for byte")

    def _verify(self) -> None:
        self.result.verified = self.store.verify()
        findings = self.result.verified.get("findings", [])
        self.result.lost.damage += [json.dumps(finding) for finding in findings]
        if findings:
            self.console.bad(f"cenote verify found {len(findings)} damaged ranges")
        else:
            size = tables.size(self.result.verified.get("bytes", 0))
            self.console.good(f"cenote verify: {size} read on all tiers, every checksum holds")

    def clean(self) -> None:
        """Removes files and store, unless they are kept."""
        shutil.rmtree(self.fast.dir, ignore_errors=True)
        if self.settings.keep:
            return
        for place in (self.disk, self.cenote):
            shutil.rmtree(place.dir, ignore_errors=True)
        if self.result.cenote_ran:
            self.store.destroy(self.settings.tiers)


def machine() -> dict:
    """Description of the machine."""
    memory_kib = int(Path("/proc/meminfo").read_text().split()[1])
    model = [
        line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line
    ]
    return {
        "cpu": model[0] if model else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": memory_kib * 1024,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "when": time.strftime("%Y-%m-%d %H:%M"),
    }


def remove_earlier(chosen: Settings, store: Store) -> None:
    """Removes the store of an earlier campaign. Removes nothing else: any other store is an error."""
    mark = chosen.out / "campaign-store"
    ours = mark.exists() and mark.read_text() == str(chosen.store)
    if chosen.store.exists() and any(chosen.store.iterdir()) and not ours:
        print(f"{chosen.store}: there is something there that no campaign made; name another --store", file=sys.stderr)
        sys.exit(2)
    if ours:
        store.destroy(chosen.tiers)
    mark.write_text(str(chosen.store))


def make(chosen: Settings, console: Console) -> Campaign:
    """Makes the places for everything."""
    logs = chosen.out / "logs"
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir(parents=True)
    memory = Path("/dev/shm")
    fast = (memory if os.access(memory, os.W_OK) else chosen.out) / f"cenote-campaign-{os.getpid()}"
    store = Store(BINARY, chosen.store)
    remove_earlier(chosen, store)
    described = {key: str(value) if isinstance(value, Path) else value for key, value in vars(chosen).items()}
    described |= {"steps": chosen.steps, "particles": chosen.particles}
    return Campaign(
        chosen,
        console,
        Result(settings=described, machine=machine()),
        logs,
        store,
        fast=places.native("fast", "native, in memory (tmpfs)", fast),
        disk=places.native("disk", "native, on disk", chosen.out / "native"),
        cenote=places.cenote(chosen.store, chosen.out / "cenote", PLUGINS),
    )


def missing_parts() -> list[str]:
    """What must be built before Cenote can run."""
    wanted = [BINARY, PLUGINS / "libcenote_hdf5.so"]
    return [f"{path.relative_to(ROOT)} is not built: run `make build`" for path in wanted if not path.exists()]


def run(campaign: Campaign) -> None:
    """Runs everything, and keeps each failure for the end."""
    chosen, result = campaign.settings, campaign.result
    try:
        campaign.run_native()
        missing = missing_parts()
        if not chosen.native_only and not missing:
            campaign.run_cenote()
        elif not chosen.native_only:
            result.problems += missing
    except (ProgramFailed, StoreFailed) as failure:
        result.problems.append(str(failure))
        campaign.console.bad(str(failure))


def main() -> int:
    chosen = settings.parse(sys.argv[1:])
    console = Console()
    campaign = make(chosen, console)
    dump_size = tables.size(chosen.steps * chosen.particles * 32)
    console.title(
        "Cenote campaign: unmodified HDF5 programs on a tiered store",
        f"29 MB of ocean, climate and weather files; {dump_size} of particles from {chosen.ranks} processes; "
        f"{chosen.kills} x kill -9",
    )
    try:
        run(campaign)
        campaign.result.seconds = time.monotonic() - console.begin
        tables.show(campaign.result, console)
        page = report.write(campaign.result, campaign.analysis, chosen.out)
    finally:
        campaign.clean()
    return tables.verdict(campaign.result, page, console)


if __name__ == "__main__":
    sys.exit(main())
