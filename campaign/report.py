"""The result as one self-contained page with its plots, and the same figures as JSON beside it."""

import html
import json
from pathlib import Path
from string import Template

from campaign import phase_dump, plots, tables
from campaign.phase_analysis import Analysis
from campaign.result import Result

TEMPLATE = Path(__file__).with_name("report.html")
SHOWN_MAX = 20


def write(result: Result, analysis: dict[str, Analysis], out: Path) -> Path:
    """Writes both; returns the page's path."""
    page = out / "campaign-report.html"
    page.with_suffix(".json").write_text(json.dumps(result.document(), indent=1))
    page.write_text(render(result, analysis))
    return page


def render(result: Result, analysis: dict[str, Analysis]) -> str:
    """The page."""
    sections = [problems(result), tiers(result), times(result)]
    if analysis:
        shown = analysis.get("cenote") or analysis["fast"]
        sections += [particles(result, shown), ocean(result, shown)]
    sections += [how(result)]
    return Template(TEMPLATE.read_text()).substitute(
        verdict="nothing lost" if result.ok else "FAILED",
        headline=headline(result),
        summary=summary(result),
        tiles="".join(tiles(result)),
        sections="\n".join(section for section in sections if section),
        footer=footer(result),
    )


def headline(result: Result) -> str:
    """The verdict in one sentence."""
    if not result.ok:
        return "The campaign failed: something was lost, differs, or did not run"
    if not result.cenote_ran:
        return "Native HDF5 only: Cenote was not part of this run"
    return "Unmodified HDF5 programs, one tiered store, nothing lost"


def summary(result: Result) -> str:
    """What was done, in short."""
    ranks, steps = result.settings["ranks"], result.settings["steps"]
    return (
        f"h5py, netCDF4 and xarray as PyPI ships them wrote real ocean, climate and weather files, and {ranks} "
        f"processes dumped {steps} steps of a particle simulation into one shared HDF5 file. The daemon was killed "
        f"{len(result.kills)} times meanwhile. Other processes read everything back and compared it with native HDF5."
    )


def tile(value: str, text: str, kind: str = "") -> str:
    """One figure with its label."""
    return f'<div class="tile {kind}"><b>{html.escape(value)}</b><span>{html.escape(text)}</span></div>'


def tiles(result: Result) -> list[str]:
    """The most important figures."""
    lost, compared = result.lost, result.compared
    if not result.cenote_ran:
        return [tile(f"{result.sources.files}", "NetCDF files converted"), tile(f"{result.seconds:.0f} s", "in all")]
    pause = max((kill.pause_s for kill in result.kills), default=0.0)
    return [
        tile(str(lost.count), "lost or different", "bad" if lost.count else "good"),
        tile(
            f"{compared.variables:,}",
            f"variables, {compared.attributes:,} attributes compared with native, bit for bit",
        ),
        tile(
            f"{lost.acknowledged_checked:,}", f"acknowledged writes read again ({tables.size(lost.acknowledged_bytes)})"
        ),
        tile(f"{len(result.kills)} × kill -9", f"longest pause of a rank {pause * 1000:,.0f} ms"),
    ]


def problems(result: Result) -> str:
    """The failures, if any."""
    lost = result.lost
    lines = [*result.problems, *lost.acknowledged_lost, *lost.differences, *lost.damage]
    if not lines:
        return ""
    items = "".join(f"<li>{html.escape(line)}</li>" for line in lines[:SHOWN_MAX])
    more = f"<p>and {len(lines) - SHOWN_MAX} more, in the JSON file</p>" if len(lines) > SHOWN_MAX else ""
    return f'<section><h2>What went wrong</h2><ul class="bad">{items}</ul>{more}</section>'


def tiers(result: Result) -> str:
    """Tiers over time and at the end."""
    if not result.samples or not result.tiers:
        return ""
    rows = ""
    for tier in result.tiers:
        share = tier["used_bytes"] / max(1, tier["capacity_bytes"])
        colour = plots.WATER.get(tier["kind"], "#888888")
        level = f'<span class="level" style="width:{share * 160:.0f}px;background:{colour}"></span> {share:.0%}'
        cells = (tables.size(tier["used_bytes"]), tables.size(tier["capacity_bytes"]))
        rows += f"<tr><td>{html.escape(tier['name'])}</td><td>{tier['kind']}</td>"
        rows += "".join(f"<td>{value}</td>" for value in cells) + f'<td style="text-align:left">{level}</td></tr>'
    head = "<tr><th>tier</th><th>kind</th><th>used</th><th>capacity</th><th></th></tr>"
    moved = (
        "Memory is smaller than the data, on purpose: what was written first drains to lower tiers behind the ranks."
    )
    return (
        f"<section><h2>What lay on which tier</h2><p>{moved}</p>"
        f"<figure>{plots.drawn(plots.tiers, result)}</figure>"
        f'<div class="wide"><table>{head}{rows}</table></div></section>'
    )


def times(result: Result) -> str:
    """Times and bandwidth."""
    head = "".join(f"<th>{title}</th>" for title in ("program", *tables.PLACES.values(), "Cenote : in memory"))
    rows = ""
    for task in tables.tasks(result):
        rows += f"<tr><td>{html.escape(task)}</td>"
        for place in tables.PLACES:
            seconds, _, rate = tables.cell(result.timing(task, place)).partition("  ")
            rows += f"<td>{seconds}<small>{rate}</small></td>"
        rows += f'<td class="ratio">{tables.ratio(result, task)}</td></tr>'
    bars = [phase_dump.WRITE, phase_dump.READ]
    note = (
        "The same programs with the same arguments, on the same devices, one after the other. Native ranks have a file "
        "each, since serial HDF5 cannot share one; on Cenote all write to one file. Writes count until they are "
        "acknowledged; reads include nothing but reading. Reading and writing the sample files is mostly Python's own "
        "work, everywhere."
    )
    if result.kills:
        pause = sum(kill.pause_s for kill in result.kills)
        note += (
            f" Cenote's time to write includes up to {pause:.2f} s of waiting for {len(result.kills)} killed daemons."
        )
    figure = plots.drawn(plots.bandwidth, result, [task for task in bars if task in tables.tasks(result)])
    return (
        f"<section><h2>Time and bandwidth beside native HDF5</h2><p>{note}</p><figure>{figure}</figure>"
        f'<div class="wide"><table><tr>{head}</tr>{rows}</table></div></section>'
    )


def particles(result: Result, shown: Analysis) -> str:
    """The plots of the particle dump."""
    count = result.settings["particles"]
    text = (
        f"{count:,} charged particles at the X-line of a current sheet, pushed by the Boris scheme. Where the field "
        f"reverses they leave their circles and are accelerated along the electric field: the spectrum grows a tail. "
        f"The energy gained is the work done to {result.conservation:.1e} of the mean, the rounding of the dump."
    )
    spectrum, sheet, paths = (plots.drawn(make, shown) for make in (plots.spectrum, plots.sheet, plots.paths))
    return (
        f"<section><h2>The particles</h2><p>{text}</p><div class='pair'>"
        f"<figure>{spectrum}<figcaption>Energy spectra: a tail grows</figcaption></figure>"
        f"<figure>{sheet}<figcaption>Mean energy in the plane, with field lines</figcaption></figure></div>"
        f"<figure>{paths}<figcaption>Paths of the twelve most energetic particles: columns read across all steps"
        f"</figcaption></figure></section>"
    )


def ocean(result: Result, shown: Analysis) -> str:
    """The map."""
    name, mean = html.escape(result.ocean.get("name", "")), result.ocean.get("mean", 0.0)
    return (
        f"<section><h2>The ocean</h2><p>{name} at the surface from <code>orca2_votemper.nc</code>, through xarray; "
        f"mean {mean:.1f} °C.</p><figure>{plots.drawn(plots.ocean, shown)}</figure></section>"
    )


def how(result: Result) -> str:
    """How programs are pointed to the store, and how to repeat this run."""
    text = (
        "HDF5_PLUGIN_PATH=target/hdf5-plugin \\\n"
        'HDF5_VOL_CONNECTOR="cenote store=/path/to/store" \\\n'
        "python your_program.py"
    )
    return (
        "<section><h2>How a program is told</h2><p>By two environment variables, and nothing else.</p>"
        f"<pre>{html.escape(text)}</pre><p><code>make run ARGS=--keep</code> keeps the store and all files of this "
        f"run for a look. The figures of this page are in <code>campaign-report.json</code>.</p></section>"
    )


def footer(result: Result) -> str:
    """The machine and the date."""
    machine = result.machine
    return html.escape(
        f"{machine['when']} · {machine['cpu']}, {machine['cores']} cores, {tables.size(machine['memory_bytes'])} · "
        f"Linux {machine['kernel']} · Python {machine['python']} · {result.seconds:.0f} s in all. "
        f"Absolute figures hold for this machine and moment; compare within the page."
    )
