"""Real data: every NetCDF and PP file of the samples, written with three libraries, read back by other processes."""

import os
from dataclasses import dataclass
from pathlib import Path

import iris_sample_data

from campaign import compare
from campaign.console import Console
from campaign.places import Place
from campaign.result import Result, Timing
from campaign.runner import Program, run_all

WRITERS = {"netCDF4": "nc", "xarray": "xr", "h5py": "h5"}


@dataclass
class Sources:
    """The sample files, and the content of the NetCDF ones."""

    netcdf: list[Path]
    pp: list[Path]
    pickles: list[Path]


def at_once() -> int:
    """Number of programs that run at once: as many as there are cores."""
    return max(2, len(os.sched_getaffinity(0)))


def find_sources() -> Sources:
    """All NetCDF and PP files of `iris-sample-data`."""
    base = Path(iris_sample_data.path)
    return Sources(sorted(base.rglob("*.nc")), sorted(base.rglob("*.pp")), [])


def read_sources(sources: Sources, place: Place, out: Path, console: Console) -> compare.Tables:
    """Reads the NetCDF sources natively; returns their tables."""
    pickles = place.fresh("sources")
    files = [str(path) for path in sources.netcdf]
    tables = out / "source-tables.json"
    programs = [
        Program("read sources", "read_source", [str(pickles), *files], place, out),
        Program("table of sources", "read_back", [str(tables), "netCDF4", *files], place, out, tables),
    ]
    with console.bar(f"reading {len(files)} NetCDF files natively") as watch:
        run_all(programs, at_once(), watch)
    sources.pickles = [pickles / f"{path.stem}.pickle" for path in sources.netcdf]
    return programs[1].result()["tables"]


def write(sources: Sources, place: Place, out: Path, console: Console, result: Result) -> None:
    """Three programs write at the same time."""
    programs = []
    for library, folder in WRITERS.items():
        files = sources.pp if library == "h5py" else sources.pickles
        outcome = out / f"{place.name}-write-{library}.json"
        arguments = [str(outcome), str(place.fresh("files", folder)), *map(str, files)]
        programs.append(Program(f"write {library}", f"write_{library.lower()}", arguments, place, out, outcome))
    with console.bar(f"writing with netCDF4, xarray and h5py: {place.title}") as watch:
        run_all(programs, at_once(), watch)
    for library, program in zip(WRITERS, programs, strict=True):
        outcome = program.result()
        result.timings.append(Timing(f"write files, {library}", place.name, outcome["seconds"], outcome["bytes"]))


def read(sources: Sources, place: Place, out: Path, console: Console, result: Result) -> dict[str, compare.Tables]:
    """Other processes read everything back; returns what they saw, by library."""
    netcdf = [place.dir / "files" / kind / f"{path.stem}.nc" for kind in ("nc", "xr") for path in sources.netcdf]
    pp = [place.dir / "files" / "h5" / f"{path.stem}.h5" for path in sources.pp]
    half = len(pp) // 2
    jobs = [("h5py", pp[:half]), ("h5py", pp[half:]), ("h5py", netcdf), ("netCDF4", netcdf), ("xarray", netcdf)]
    programs = []
    for number, (library, files) in enumerate(jobs):
        outcome = out / f"{place.name}-read-{number}.json"
        arguments = [str(outcome), library, *map(str, files)]
        programs.append(Program(f"read {number} {library}", "read_back", arguments, place, out, outcome))
    with console.bar(f"reading back with other processes: {place.title}") as watch:
        run_all(programs, at_once(), watch)
    tables: dict[str, compare.Tables] = {}
    for library in ("netCDF4", "xarray", "h5py"):
        outcomes = [program.result() for (name, _), program in zip(jobs, programs, strict=True) if name == library]
        seconds, size = (sum(outcome[key] for outcome in outcomes) for key in ("seconds", "bytes"))
        result.timings.append(Timing(f"read files, {library}", place.name, seconds, size))
        tables[library] = {name: table for outcome in outcomes for name, table in outcome["tables"].items()}
    return tables


def check_copies(sources: compare.Tables, copies: compare.Tables, result: Result) -> list[compare.Difference]:
    """Compares the copies made with netCDF4 with the sources themselves."""
    copied = {name: table for name, table in copies.items() if name.startswith("nc/")}
    left, right = compare.content_only(sources), compare.content_only(copied)
    result.sources = compare.counts(left)
    return compare.differences(left, right)


def check_places(native: dict[str, compare.Tables], cenote: dict[str, compare.Tables], result: Result) -> list[str]:
    """Compares what each library saw in the store with what it saw in native files."""
    found = []
    for library, tables in native.items():
        result.compared = result.compared + compare.counts(tables)
        found += [f"{library}: {difference}" for difference in compare.differences(tables, cenote[library])]
    return found
