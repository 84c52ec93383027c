"""Plots target/bench-hdf5.jsonl, if it has several numbers of ranks, as docs/hdf5-kernels.svg: a panel a figure."""

import json
import pathlib
import sys

import matplotlib as mpl

mpl.use("svg")
from matplotlib import pyplot as plt
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

TOP = pathlib.Path(__file__).resolve().parents[2]
COLOURS = {"native": "#8d7b5f", "cenote": "#1597a5"}
NAMES = {
    "vpic": "VPIC-IO, write",
    "bdcats": "BD-CATS-IO, read",
    "boss": "H5Boss, all ranks create",
    "boss-independent": "H5Boss, each its own",
    "rows_write": "47,008-byte rows, write",
    "rows_read": "47,008-byte rows, read",
    "columns_write": "4-byte columns, write",
    "columns_read": "4-byte columns, read",
}


def panels(rows):
    """Groups rows by figure, in the order of `NAMES`, if there are several numbers of ranks."""
    found = {name: [] for name in NAMES}
    for row in rows:
        name = row["kernel"] if row["figure"] == "boss" else row["figure"]
        if name in found:
            found[name].append(row)
    return {name: sorted(of, key=lambda row: row["ranks"]) for name, of in found.items() if len(of) > 1}


def draw(rows, tier):
    """Plots one tier."""
    shown = panels([row for row in rows if row["tier"] == tier])
    figure, axes = plt.subplots(2, 4, figsize=(13, 5.6), squeeze=False, layout="constrained")
    for axis, (name, of) in zip(axes.flat, shown.items(), strict=False):
        ranks = [row["ranks"] for row in of]
        for side in ("native", "cenote"):
            axis.plot(ranks, [row[side] for row in of], "o-", color=COLOURS[side], label=side.capitalize(), ms=4)
        axis.set_title(NAMES[name], fontsize=10)
        axis.set_ylabel(of[0]["unit"], fontsize=8)
        axis.set_xscale("log", base=2)
        axis.xaxis.set_major_locator(FixedLocator(ranks))
        axis.xaxis.set_minor_locator(NullLocator())
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_ylim(bottom=0)
        axis.grid(color="#e3e3e3", linewidth=0.7)
        axis.spines[["top", "right"]].set_visible(False)
    for axis in axes.flat[len(shown) :]:
        axis.set_axis_off()
    for axis in axes[1]:
        axis.set_xlabel("ranks", fontsize=8)
    axes[0][0].legend(frameon=False)
    figure.suptitle(f"Kernels on native HDF5 and on Cenote, {tier} side; medians")
    return figure


def main():
    rows = [json.loads(line) for line in (TOP / "target/bench-hdf5.jsonl").read_text().splitlines()]
    if not panels(rows):
        return "curves: target/bench-hdf5.jsonl has one number of ranks; give `make bench-hdf5` ARGS=--ranks=1,2,4,8,16"
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "cenote", "font.size": 9}):
        out = TOP / "docs/hdf5-kernels.svg"
        draw(rows, rows[0]["tier"]).savefig(out, format="svg", metadata={"Date": None})
    print(f"drawn: {out.relative_to(TOP)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
