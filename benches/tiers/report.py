"""Results: medians over repeats with their spread, bars, lines of JSON, and a plot."""

import json
import os
import statistics
import time

import numpy

from benches.tiers.layers import MIB


class Noise:
    """A small constant work load, run beside the measurements: shows other load on the machine."""

    def __init__(self):
        self.source = numpy.ones(64 * MIB, dtype=numpy.uint8)
        self.target = numpy.zeros(64 * MIB, dtype=numpy.uint8)
        self.times, self.loads = [], []

    def look(self):
        begin = time.monotonic()
        numpy.copyto(self.target, self.source)
        self.times.append(time.monotonic() - begin)
        self.loads.append(os.getloadavg()[0])

    def summary(self):
        """Returns GB/s of copies of 64 MiB (median, minimum and maximum), and the load."""
        rates = sorted(64 * MIB / 1e9 / seconds for seconds in self.times)
        return {
            "copy_gbps": statistics.median(rates),
            "copy_gbps_least": rates[0],
            "copy_gbps_most": rates[-1],
            "load_least": min(self.loads),
            "load_most": max(self.loads),
        }


class Report:
    """Collects figures and judges bars."""

    def __init__(self, path):
        self.out = open(path, "w")  # noqa: SIM115 (closed by `close`)
        self.figures = {}  # (case, contender, figure) -> values
        self.bars = []

    def line(self, **fields):
        self.out.write(json.dumps(fields) + "\n")
        self.out.flush()

    def add(self, case, contender, repeat, measured):
        """Records a contender's measurements."""
        self.line(kind="run", case=case, contender=contender, repeat=repeat, load=os.getloadavg()[0], **measured)
        for name, value in measured.items():
            if isinstance(value, int | float):
                self.figures.setdefault((case, contender, name), []).append(value)

    def values(self, case, contender, figure):
        return self.figures.get((case, contender, figure), [])

    def median(self, case, contender, figure):
        found = self.values(case, contender, figure)
        return statistics.median(found) if found else None

    def ratios(self, case, contender, ours, figure):
        """Returns how many times as long a contender took as ours, in each repeat."""
        pairs = zip(self.values(case, contender, figure), self.values(case, ours, figure), strict=False)
        return [theirs / max(own, 1e-9) for theirs, own in pairs]

    def bar(self, name, values, wanted, at_most=False):
        """Records a bar: its figure is the median of these values, one for each repeat."""
        if not values:
            return
        figure = statistics.median(values)
        met = figure <= wanted if at_most else figure >= wanted
        row = {"figure": figure, "least": min(values), "most": max(values), "wanted": wanted, "met": met}
        self.bars.append((name, row, at_most))
        self.line(kind="bar", name=name, at_most=at_most, **row)

    def table(self):
        """Returns all figures, then all bars, as text."""
        lines = []
        by_case = {}
        for (case, contender, figure), values in self.figures.items():
            if figure.endswith("_s"):
                by_case.setdefault(case, {}).setdefault(contender, {})[figure] = values
        for case, contenders in by_case.items():
            lines.append(f"\n{case} (seconds: median, least to most)")
            for contender, figures in contenders.items():
                shown = (
                    f"{name.removesuffix('_s')} {statistics.median(values):7.3f} ({min(values):.3f}-{max(values):.3f})"
                    for name, values in figures.items()
                )
                lines.append(f"  {contender:24}" + "   ".join(shown))
        lines.append(f"\n{'bar':74} {'figure':>8} {'least':>8} {'most':>8}  wanted")
        for name, row, at_most in self.bars:
            sign = "<=" if at_most else ">="
            verdict = "met" if row["met"] else "MISSED"
            numbers = f"{row['figure']:8.2f} {row['least']:8.2f} {row['most']:8.2f}"
            lines.append(f"{name:74} {numbers}  {sign} {row['wanted']:g}: {verdict}")
        return "\n".join(lines)

    def close(self):
        self.out.close()


def draw(report, path):
    """Plots the I/O time of all contenders, a panel for each case; does nothing without matplotlib."""
    try:
        import matplotlib as mpl
    except ImportError:
        return False
    mpl.use("svg")
    from matplotlib import pyplot as plt

    cases = {}
    for (case, contender, figure), values in report.figures.items():
        if figure in ("io_s", "write_s") and (figure == "io_s" or case.startswith("kernel")):
            cases.setdefault(case, {})[contender] = values
    if not cases:
        return False
    columns = 4
    rows = -(-len(cases) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(14, 2.6 * rows), squeeze=False, layout="constrained")
    for axis in axes.flat[len(cases) :]:
        axis.set_visible(False)
    for axis, (case, contenders) in zip(axes.flat, cases.items(), strict=False):
        names = list(contenders)
        medians = [statistics.median(contenders[name]) for name in names]
        colours = ["#1597a5" if name.startswith("cenote") else "#8d7b5f" for name in names]
        spread = [
            [middle - min(contenders[name]) for name, middle in zip(names, medians, strict=True)],
            [max(contenders[name]) - middle for name, middle in zip(names, medians, strict=True)],
        ]
        axis.barh(names, medians, xerr=spread, color=colours)
        axis.invert_yaxis()
        axis.set_xscale("log")
        axis.set_title(case + (", write" if case.startswith("kernel") else ""), fontsize=9)
        axis.tick_params(labelsize=8)
        axis.set_xlabel("s", fontsize=8)
    figure.savefig(path)
    return True
