"""Makes the file for a simulation's dump: one dataset per value, of shape steps x particles.

Usage: dump_create.py FILE STEPS PARTICLES RANKS
"""

import sys

import h5py

from campaign import boris


def main() -> None:
    path, steps, particles, ranks = sys.argv[1], *map(int, sys.argv[2:5])
    with h5py.File(path, "w") as file:
        file.attrs["title"] = "charged particles at the X-line of a current sheet"
        for name, kind in boris.VALUES.items():
            file.create_dataset(name, (steps, particles), kind)
        total = file.create_dataset("rank_energy", (ranks, steps), "f8", chunks=(1, steps), fillvalue=float("nan"))
        total.attrs["long_name"] = "kinetic energy of each rank's particles, summed before rounding"


if __name__ == "__main__":
    main()
