"""The simulation is physics: it turns particles like a magnetic field, and conserves what must be
conserved."""

import numpy as np
import pytest

from campaign import boris


class Uniform(boris.Field):
    """B along z, of strength 1; E along y."""

    def magnetic(self, x, z):
        return np.zeros_like(x), 0.0, np.ones_like(x)


def one(ux: float = 1.0) -> boris.Particles:
    x, y, z, uy, uz = np.zeros((5, 1))
    return boris.Particles(x, y, z, np.full(1, ux), uy, uz, np.zeros(1, "i4"))


def test_gyration_radius_and_period():
    particle, dt = one(), 2 * np.pi / 1000
    field = Uniform(e0=0.0)
    far = 0.0
    for _ in range(500):
        boris.push(particle, field, dt, 1)
        far = max(far, float(np.hypot(particle.x, particle.y)[0]))
    assert far == pytest.approx(2.0, rel=1e-4)  # a diameter away after half a turn
    boris.push(particle, field, dt, 500)
    assert float(np.hypot(particle.x, particle.y)[0]) == pytest.approx(0.0, abs=1e-3)


def test_the_scheme_is_of_second_order():
    def error(steps: int) -> float:
        particle = one()
        boris.push(particle, Uniform(e0=0.0), np.pi / steps, steps)
        return float(np.hypot(particle.x, particle.y + 2.0)[0])

    assert error(50) / error(100) == pytest.approx(4.0, rel=0.1)


def test_drift_across_both_fields():
    particle = one(ux=0.0)
    boris.push(particle, Uniform(e0=0.1), 2 * np.pi / 200, 200 * 10)
    assert float(particle.x[0]) == pytest.approx(0.1 * 2 * np.pi * 10, rel=1e-2)  # E x B / B^2


def test_energy_is_the_work_done():
    field = boris.Field()
    particles = boris.spawn(5000, 0, 7, field)
    before = boris.invariant(particles, field)
    energy = particles.energy.mean()
    boris.push(particles, field, 0.1, 500)
    assert particles.energy.mean() > 1.2 * energy  # the field does work
    assert np.abs(boris.invariant(particles, field) - before).max() < 1e-11


def test_a_wrong_push_is_noticed():
    field = boris.Field()
    particles = boris.spawn(100, 0, 7, field)
    before = boris.invariant(particles, field)
    boris.push(particles, field, 0.1, 10)
    particles.ux += 1e-6
    assert np.abs(boris.invariant(particles, field) - before).max() > 1e-9


def test_ranks_spawn_the_same_particles_anywhere():
    field = boris.Field()
    a, b, other = (boris.spawn(10, first, 3, field) for first in (20, 20, 30))
    assert np.array_equal(a.ux, b.ux) and not np.array_equal(a.ux, other.ux)
