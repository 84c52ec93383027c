"""Analyses the dump: energy spectra, positions of the energetic particles, and some of their paths.

Usage: dump_analyse.py RESULT_JSON OUTPUT.npz FILE...   (one shared file, or one per rank)
"""

import sys

import h5py
import numpy as np

from campaign import boris
from campaign.programs import say

PATHS = 12
ENERGY_EDGES = np.geomspace(1e-3, 20.0, 81)


def read_step(files: list[h5py.File], name: str, step: int) -> np.ndarray:
    """One value of all particles at one step."""
    return np.concatenate([file[name][step] for file in files])


def conservation(files: list[h5py.File], steps: list[int], field: boris.Field) -> float:
    """The largest change of the invariant in units of the mean energy: the dump's rounding, if the dump is
    physics."""
    first, worst = None, 0.0
    for step in steps:
        energy, y = (read_step(files, name, step).astype("f8") for name in ("energy", "y"))
        invariant = energy - field.e0 * y
        first = invariant if first is None else first
        worst = max(worst, float(np.abs(invariant - first).max() / energy.mean()))
    return worst


def paths_of(files: list[h5py.File], chosen: np.ndarray) -> np.ndarray:
    """Paths of some particles through all steps: points scattered over each dataset."""
    paths = []
    base = 0
    for file in files:
        count = file["x"].shape[1]
        mine = np.sort(chosen[(chosen >= base) & (chosen < base + count)] - base)
        if len(mine):
            paths.append(np.stack([file[name][:, mine] for name in ("x", "y", "z", "energy")]))
        base += count
    return np.concatenate(paths, axis=2)


def main() -> None:
    result, output, *names = sys.argv[1:]
    field = boris.Field()
    watch = say.Stopwatch()
    with watch():
        files = [h5py.File(name, "r") for name in names]
        steps = files[0]["x"].shape[0]
        shown = [0, steps // 2, steps - 1]
        spectra = [np.histogram(read_step(files, "energy", step), ENERGY_EDGES)[0] for step in shown]
        say.progress(1, 4)
        energy, x, z = (read_step(files, name, steps - 1) for name in ("energy", "x", "z"))
        edges = [np.linspace(0, field.period, 161), np.linspace(-14, 14, 113)]
        count = np.histogram2d(x % field.period, z, edges)[0]
        heat = np.histogram2d(x % field.period, z, edges, weights=energy)[0]
        say.progress(2, 4)
        chosen = np.argsort(energy)[-PATHS:]
        paths = paths_of(files, chosen)
        say.progress(3, 4)
        drift = conservation(files, sorted({0, steps // 4, *shown}), field)
        rank_energy = np.concatenate([file["rank_energy"][...] for file in files])
        for file in files:
            file.close()
    np.savez(
        output,
        energy_edges=ENERGY_EDGES,
        spectra=np.array(spectra),
        shown=np.array(shown),
        count=count,
        heat=heat,
        x_edges=edges[0],
        z_edges=edges[1],
        paths=paths,
        rank_energy=rank_energy,
    )
    say.progress(4, 4)
    say.result(result, {"seconds": watch.seconds, "conservation": drift, "particles": len(energy)})


if __name__ == "__main__":
    main()
