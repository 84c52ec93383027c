"""The plots of the report, as SVG with the page's text and line colours, so that they fit light and dark pages."""

import io
import re

import matplotlib as mpl
import numpy as np

from campaign import boris
from campaign.phase_analysis import Analysis
from campaign.result import Result

mpl.use("svg")
from matplotlib import pyplot as plt
from matplotlib.colors import LogNorm

# Placeholders, replaced by the page's own colours in the SVG.
INK, MUTED, LINE = "#010203", "#040506", "#070809"
PAGE_COLOURS = {INK: "var(--ink)", MUTED: "var(--muted)", LINE: "var(--line)"}
WATER = {"memory": "#5cc8d7", "file": "#2b8cc4", "directory": "#1d4e89"}
PLACE_COLOURS = {"fast": "#b9a37e", "disk": "#8d7b5f", "cenote": "#1597a5"}
STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "cenote",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.grid": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": LINE,
    "grid.linewidth": 0.7,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "legend.frameon": False,
}


def to_svg(figure: plt.Figure) -> str:
    """The figure as an SVG element for a page."""
    out = io.StringIO()
    figure.savefig(out, format="svg", bbox_inches="tight", dpi=130)
    plt.close(figure)
    text = out.getvalue()
    text = text[text.index("<svg") :]
    for stand_in, colour in PAGE_COLOURS.items():
        text = text.replace(stand_in, colour)
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    return re.sub(r'(<svg[^>]*?) width="[^"]*" height="[^"]*"|(<svg[^>]*?) height="[^"]*"', r"\1\2", text, count=1)


def drawn(make, *arguments) -> str:
    """Draws with the page's style."""
    with mpl.rc_context(STYLE):
        return to_svg(make(*arguments))


def tiers(result: Result) -> plt.Figure:
    """Bytes on each tier while the ranks dumped, with the kills."""
    figure, axes = plt.subplots(figsize=(9.2, 3.1))
    # As in a well: memory is the surface, the deepest tier is at the bottom.
    kinds = {tier["name"]: tier["kind"] for tier in reversed(result.tiers)}
    times = [sample.at_s for sample in result.samples]
    layers = [[sample.used.get(name, 0) / 2**20 for sample in result.samples] for name in kinds]
    colours = [WATER.get(kind, "#888888") for kind in kinds.values()]
    axes.stackplot(times, layers, labels=list(kinds), colors=colours, linewidth=0)
    for kill in result.kills:
        axes.axvline(kill.at_s, color="#d1495b", linewidth=1.4, linestyle=(0, (4, 2)))
        label = {"color": "#d1495b", "ha": "center", "va": "bottom", "fontweight": "bold"}
        axes.text(kill.at_s, axes.get_ylim()[1], "kill -9", **label)
    axes.set(xlabel="seconds since the first step", ylabel="MiB in the store")
    axes.margins(x=0)
    axes.legend(loc="upper left", reverse=True)
    return figure


def bandwidth(result: Result, tasks: list[str]) -> plt.Figure:
    """Bandwidth of each task in each place."""
    figure, axes = plt.subplots(figsize=(9.2, 0.9 + 0.75 * len(tasks)))
    places = [place for place in PLACE_COLOURS if any(timing.place == place for timing in result.timings)]
    names = {"fast": "native, in memory", "disk": "native, on disk", "cenote": "Cenote"}
    height = 0.8 / len(places)
    for number, place in enumerate(places):
        found = [result.timing(task, place) for task in tasks]
        values = [timing.bytes_per_s / 2**20 if timing else 0 for timing in found]
        rows = np.arange(len(tasks)) + (number - (len(places) - 1) / 2) * height
        bars = axes.barh(rows, values, height * 0.9, color=PLACE_COLOURS[place], label=names[place])
        axes.bar_label(bars, [f" {value:,.0f}" if value else "" for value in values], fontsize=8.5, color=MUTED)
    axes.set_yticks(range(len(tasks)), tasks)
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("MiB/s (longer is faster)")
    axes.set_axisbelow(True)
    axes.legend(loc="lower center", bbox_to_anchor=(0.4, 1.0), ncols=3)
    return figure


def spectrum(found: Analysis) -> plt.Figure:
    """Energy spectra at the start, in the middle and at the end."""
    figure, axes = plt.subplots(figsize=(4.5, 3.5))
    edges = found.dump["energy_edges"]
    middle = np.sqrt(edges[1:] * edges[:-1])
    shades = ["#9bb8c9", "#2b8cc4", "#d1495b"]
    for counts, step, colour in zip(found.dump["spectra"], found.dump["shown"], shades, strict=True):
        density = counts / np.diff(edges) / counts.sum()
        shown = counts > 0
        axes.loglog(middle[shown], density[shown], color=colour, linewidth=1.8, label=f"step {step}")
    axes.set(xlabel="kinetic energy", ylabel="particles per unit of energy", ylim=(1e-6, None))
    axes.legend()
    return figure


def sheet(found: Analysis) -> plt.Figure:
    """Positions of the energetic particles at the end, with the field lines."""
    figure, axes = plt.subplots(figsize=(4.8, 3.5))
    count, heat = found.dump["count"], found.dump["heat"]
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.ma.masked_invalid(heat / count)
    x_edges, z_edges = found.dump["x_edges"], found.dump["z_edges"]
    image = axes.pcolormesh(x_edges, z_edges, mean.T, cmap="inferno", rasterized=True, norm=LogNorm(0.05, 3))
    field = boris.Field()
    x, z = np.meshgrid(np.linspace(0, field.period, 90), np.linspace(-12, 12, 70))
    # Field lines are contours of the flux function.
    flux = field.sheet * np.log(np.cosh(z / field.sheet)) + field.eps * field.period / (2 * np.pi) * np.cos(
        2 * np.pi * x / field.period
    )
    axes.contour(x, z, flux, 14, colors="white", linewidths=0.5, alpha=0.55)
    axes.set(xlabel="x", ylabel="z", ylim=(-12, 12))
    axes.grid(visible=False)
    bar = figure.colorbar(image, ax=axes, label="mean energy", pad=0.02)
    bar.outline.set_visible(False)
    return figure


def paths(found: Analysis) -> plt.Figure:
    """Paths of the most energetic particles, seen along x."""
    figure, axes = plt.subplots(figsize=(9.2, 3.0))
    _x, y, z, energy = found.dump["paths"]
    points = axes.scatter(y, z, c=energy, s=9, cmap="plasma", rasterized=True, zorder=3)
    axes.plot(y, z, color=MUTED, linewidth=0.5, alpha=0.35)
    axes.set(xlabel="y, along the electric field", ylabel="z, across the sheet")
    bar = figure.colorbar(points, ax=axes, label="energy", pad=0.02)
    bar.outline.set_visible(False)
    return figure


def ocean(found: Analysis) -> plt.Figure:
    """Temperature of the ocean on the model's grid."""
    figure, axes = plt.subplots(figsize=(9.2, 4.2))
    grid = np.ma.masked_invalid(found.ocean["grid"])
    image = axes.pcolormesh(found.ocean["columns"], found.ocean["rows"], grid, cmap="turbo", rasterized=True)
    axes.set_aspect("equal")
    axes.set(xlim=(-180, 180), ylim=(-80, 90), xlabel="longitude", ylabel="latitude")
    axes.set_xticks(range(-180, 181, 60))
    axes.set_yticks(range(-60, 91, 30))
    bar = figure.colorbar(image, ax=axes, label="°C", pad=0.015, shrink=0.85)
    bar.outline.set_visible(False)
    return figure
