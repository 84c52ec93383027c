"""The scientific analysis: spectra and paths from the dump, a map of the ocean from the NetCDF file."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from campaign import phase_dump
from campaign.console import Console
from campaign.places import Place
from campaign.result import Result, Timing
from campaign.runner import Program, run_all
from campaign.settings import Settings

# The dump holds 32-bit values, so the invariant is only kept up to their rounding.
CONSERVATION_MAX = 2e-5


@dataclass
class Analysis:
    """Arrays to draw, as read in one place."""

    dump: dict[str, np.ndarray]
    ocean: dict[str, np.ndarray]


def analyse(settings: Settings, place: Place, out: Path, console: Console, result: Result) -> Analysis:
    """Runs both analyses as separate programs."""
    dump, ocean = (out / f"{place.name}-{name}.npz" for name in ("dump", "ocean"))
    results = [out / f"{place.name}-analyse-{name}.json" for name in ("dump", "ocean")]
    files = [str(path) for path in phase_dump.files_of(settings, place)]
    votemper = place.dir / "files" / "nc" / "orca2_votemper.nc"
    programs = [
        Program("analyse dump", "dump_analyse", [str(results[0]), str(dump), *files], place, out, results[0]),
        Program("map ocean", "ocean_map", [str(results[1]), str(ocean), str(votemper)], place, out, results[1]),
    ]
    with console.bar(f"energy spectrum, paths, map of the ocean: {place.title}") as watch:
        run_all(programs, at_once=2, watch=watch)
    found = programs[0].result()
    result.timings.append(Timing("analysis", place.name, found["seconds"], bytes=0))
    result.conservation = found["conservation"]
    result.ocean = programs[1].result()
    return Analysis(dict(np.load(dump)), dict(np.load(ocean)))


def check_physics(result: Result) -> list[str]:
    """Checks that the energy is the work done: only then is the dump physics."""
    if result.conservation <= CONSERVATION_MAX:
        return []
    return [
        f"energy is not the work done: off by {result.conservation:.1e} of the mean, allowed {CONSERVATION_MAX:.0e}"
    ]


def check_same(native: Analysis, cenote: Analysis) -> list[str]:
    """Checks that both places give the same numbers, bit for bit."""
    found = []
    for name, left, right in (("dump", native.dump, cenote.dump), ("ocean map", native.ocean, cenote.ocean)):
        found += [
            f"analysis of the {name}: '{key}' differs from native"
            for key in left
            if left[key].tobytes() != right[key].tobytes()
        ]
    return found
