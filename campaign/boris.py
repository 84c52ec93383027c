"""Charged particles in the electromagnetic field of magnetic reconnection, pushed by the Boris scheme.

The field is the X-line of a current sheet, divergence-free and steady:

    B = (tanh(z / L), guide, eps sin(2 pi x / period)),   E = (0, e0, 0)

in units where charge, mass and the far field are 1, so that a particle far from the sheet turns once in 2 pi. Particles
that meet the sheet leave their circles and are accelerated along y, so that their energies form a tail.

Each step is drift, kick, rotate, kick, drift. With a uniform E the change of kinetic energy in a step is then *exactly*
the work E . dx, so `energy - e0 * y` is conserved up to rounding, which shows that a dump is physics.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Field:
    """The field and its scales."""

    sheet: float = 1.0
    guide: float = 0.02
    eps: float = 0.2
    period: float = 32.0
    e0: float = 0.06

    def magnetic(self, x: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, float, np.ndarray]:
        """B at these positions: its y component is the same everywhere."""
        return np.tanh(z / self.sheet), self.guide, self.eps * np.sin(x * (2 * np.pi / self.period))


@dataclass
class Particles:
    """Positions, velocities and identities; y is not wrapped, since the invariant needs it."""

    x: np.ndarray
    y: np.ndarray
    z: np.ndarray
    ux: np.ndarray
    uy: np.ndarray
    uz: np.ndarray
    id: np.ndarray

    @property
    def energy(self) -> np.ndarray:
        """Kinetic energy of each particle."""
        return 0.5 * (self.ux * self.ux + self.uy * self.uy + self.uz * self.uz)


# The dumped values: eight per particle, as in VPIC.
VALUES = {"x": "f4", "y": "f4", "z": "f4", "ux": "f4", "uy": "f4", "uz": "f4", "energy": "f4", "id": "i4"}
BYTES_PER_PARTICLE = sum(np.dtype(kind).itemsize for kind in VALUES.values())


def spawn(count: int, first_id: int, seed: int, field: Field, thermal: float = 0.35) -> Particles:
    """Thermal particles, a third of them in the sheet. Equal arguments give equal particles on every machine."""
    random = np.random.default_rng([seed, first_id])
    u = random.normal(0.0, thermal, (3, count))
    sheet = field.sheet * np.arctanh(random.uniform(-0.999, 0.999, count))
    z = np.where(random.uniform(size=count) < 1 / 3, sheet, random.uniform(-12.0, 12.0, count))
    x = random.uniform(0.0, field.period, count)
    return Particles(x, np.zeros(count), z, *u, np.arange(first_id, first_id + count, dtype=np.int32))


def push(p: Particles, field: Field, dt: float, steps: int) -> None:
    """Advances particles in place."""
    half_kick = 0.5 * dt * field.e0
    half = 0.5 * dt
    for _ in range(steps):
        _drift(p, half)
        bx, by, bz = field.magnetic(p.x, p.z)
        tx, ty, tz = half * bx, half * by, half * bz
        scale = 2.0 / (1.0 + tx * tx + ty * ty + tz * tz)
        p.uy += half_kick
        # u' = u + u x t;  u += (u' x t) scale: a rotation, which keeps |u| exactly.
        wx = p.ux + p.uy * tz - p.uz * ty
        wy = p.uy + p.uz * tx - p.ux * tz
        wz = p.uz + p.ux * ty - p.uy * tx
        p.ux += scale * (wy * tz - wz * ty)
        p.uy += scale * (wz * tx - wx * tz)
        p.uz += scale * (wx * ty - wy * tx)
        p.uy += half_kick
        _drift(p, half)


def _drift(p: Particles, dt: float) -> None:
    p.x += p.ux * dt
    p.y += p.uy * dt
    p.z += p.uz * dt


def invariant(p: Particles, field: Field) -> np.ndarray:
    """The conserved quantity of each particle: kinetic energy minus the work done."""
    return p.energy - field.e0 * p.y
