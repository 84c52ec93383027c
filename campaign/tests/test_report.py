"""The report shows every kind of result, and is one page without external resources."""

import re

import numpy as np
import pytest

from campaign import boris, report, tables
from campaign.compare import Counts
from campaign.phase_analysis import Analysis
from campaign.programs.dump_analyse import ENERGY_EDGES
from campaign.result import Kill, Lost, Result, Sample, Timing

MIB = 1 << 20


def a_result() -> Result:
    """The result of a successful campaign."""
    kinds = {"memory": "memory", "fast": "file", "capacity": "directory"}
    fill = [(0, 0, 0), (120, 0, 0), (210, 60, 0), (230, 300, 20), (180, 380, 350), (200, 330, 494)]
    return Result(
        settings={"ranks": 4, "steps": 40, "particles": 800_000, "native_only": False},
        machine={"cpu": "c", "cores": 2, "memory_bytes": 1 << 34, "kernel": "k", "python": "3", "when": "now"},
        timings=[
            Timing(task, place, seconds, 1024 * MIB)
            for task, base in (("particles, write", 1.0), ("particles, read and check", 0.5))
            for place, seconds in (("fast", base), ("disk", base * 2), ("cenote", base * 0.7))
        ],
        compared=Counts(100, 200, 300, 40, 1000),
        kills=[Kill(2.1, 77, 0.04), Kill(4.4, 78, 0.05)],
        samples=[
            Sample(float(at), {name: value * MIB for name, value in zip(kinds, values, strict=True)})
            for at, values in enumerate(fill)
        ],
        tiers=[
            {"name": name, "kind": kind, "used_bytes": used * MIB, "capacity_bytes": 1024 * MIB}
            for (name, kind), used in zip(kinds.items(), fill[-1], strict=True)
        ],
        lost=Lost(acknowledged_checked=1280, acknowledged_bytes=1024 * MIB),
        conservation=6e-7,
        ocean={"name": "Temperature", "mean": 13.6},
        cenote_ran=True,
        seconds=60.0,
    )


def an_analysis() -> Analysis:
    """Arrays of the shapes that the programs write."""
    field, random = boris.Field(), np.random.default_rng(1)
    particles = boris.spawn(4000, 0, 1, field)
    counts = np.histogram(particles.energy, ENERGY_EDGES)[0]
    edges = [np.linspace(0, field.period, 41), np.linspace(-14, 14, 31)]
    where = np.histogram2d(particles.x, particles.z, edges)[0]
    dump = {
        "energy_edges": ENERGY_EDGES,
        "spectra": np.stack([counts] * 3),
        "shown": np.array([0, 20, 39]),
        "count": where,
        "heat": where * 0.3,
        "x_edges": edges[0],
        "z_edges": edges[1],
        "paths": random.uniform(size=(4, 40, 12)).cumsum(axis=1),
        "rank_energy": np.ones((4, 40)),
    }
    ocean = {
        "grid": random.uniform(0, 28, (90, 180)),
        "rows": np.arange(-90, 91, 2),
        "columns": np.arange(-180, 181, 2),
    }
    return Analysis(dump, ocean)


@pytest.fixture(scope="module")
def page() -> str:
    return report.render(a_result(), {"cenote": an_analysis()})


def test_a_good_campaign_says_so(page):
    assert "nothing lost" in page and "kill -9" in page and "What went wrong" not in page
    assert a_result().ok


def test_the_page_needs_nothing_from_elsewhere(page):
    assert not re.search(r'(?:src|href)="(?!#|data:)', page)
    assert page.count("<svg") == 6 and "$" not in re.sub(r"<svg.*?</svg>", "", page, flags=re.DOTALL)


def test_plots_take_their_colours_from_the_page(page):
    assert "var(--ink)" in page and "#010203" not in page


@pytest.mark.parametrize(
    "spoil",
    [
        lambda result: result.lost.acknowledged_lost.append("x[3, 0:10]"),
        lambda result: result.lost.differences.append("/votemper@units"),
        lambda result: result.lost.damage.append("object 7"),
        lambda result: result.problems.append("rank 2 was ended by signal 11 <at once>"),
    ],
)
def test_what_went_wrong_is_told_loudly(spoil, tmp_path):
    result = a_result()
    spoil(result)
    page = report.render(result, {})
    assert "What went wrong" in page and "failed" in page and "<at once>" not in page
    assert tables.verdict(result, tmp_path / "x.html", tables.Console()) == 1


def test_a_campaign_without_cenote_is_no_success(tmp_path):
    result = a_result()
    result.cenote_ran = False
    assert tables.verdict(result, tmp_path / "x.html", tables.Console()) == 1
    result.settings["native_only"] = True
    assert tables.verdict(result, tmp_path / "x.html", tables.Console()) == 0
