"""The plan: workloads with their sizes, the contenders, and the bars."""

import dataclasses

from benches.tiers.layers import MIB, SLOW_LATENCY_S, SLOW_WRITE_BPS

DIRECT, PLAIN, CACHE = "direct", "write-back", "page-cache"
OTHERS = [DIRECT, PLAIN, CACHE]
# A store's default policy and our own: in all repeats. The others in the first.
MAIN, MORE = ["fast-first", "foresight"], ["max-bandwidth", "data-locality", "hot-data"]
INTENSITIES = {"data-intensive": 0.25, "balanced": 1.0, "compute-intensive": 3.0}
HDF5_WORK = "kernel-hdf5"


@dataclasses.dataclass
class Case:
    """A workload on layers of given sizes, by given contenders."""

    name: str
    layers: tuple[int, int, int]
    setup: dict
    contenders: list[str]


def direct_s(sizes):
    """Returns the time of writes of these sizes without any buffering, by the model of the slow layer."""
    return sum(-(-size // MIB) * SLOW_LATENCY_S + size / SLOW_WRITE_BPS for size in sizes)


def layers_for(total, memory):
    """Returns memory, a fast layer that could hold everything, and a slow one."""
    return memory, total * 3 // 2 + 16 * MIB, total * 2 + 16 * MIB


def phases(span, names):
    """Sixteen phases whose computation takes a quarter of, as long as, or three times as long as unbuffered I/O."""
    total = 16 * span
    setup = {"workload": "phases", "span": span, "phases": 16, "seed": 1}
    pause_s = direct_s([MIB] * (span // MIB))
    for name in names:
        yield Case(
            f"phases, {name}",
            layers_for(total, total // 4),
            setup | {"compute_s": pause_s * INTENSITIES[name]},
            OTHERS,
        )


def reads(total):
    """Temporary data: reads from all of it once to a sixteenth 16 times, and of more than memory holds."""
    memory = total // 4
    setup = {"workload": "reads", "span": 8 * MIB, "seed": 2, "durability": "scratch"}
    for name, share, times, contenders in (
        ("once", 1, 1, OTHERS),
        ("4 times", 4, 4, OTHERS),
        ("16 times", 16, 16, OTHERS),
        ("16 times, larger than memory", 8 / 3, 16, [PLAIN, CACHE]),
    ):
        data = int(total / share) // (4 * MIB) * 4 * MIB
        span = min(setup["span"], data)
        yield Case(
            f"reads, {name}",
            layers_for(total, memory),
            setup | {"total": data, "times": times, "span": span},
            contenders,
        )


def kernels(steps, names):
    """Time steps as VPIC-IO (eight variables, a file a step) and HACC-IO (nine, one file) write them. The computation
    takes as long as the I/O would take without buffering."""
    shapes = {"VPIC": ([MIB] * 8, 1), "HACC": ([2 * MIB] * 7 + [4 * MIB, MIB], steps // 2)}
    for name in names:
        kernel, _, interface = name.partition(", ")
        variables, together = shapes[kernel]
        count = steps if kernel == "VPIC" else steps // 2
        total = count * sum(variables)
        setup = {
            "workload": HDF5_WORK if interface == "HDF5" else "kernel",
            "variables": variables,
            "steps": count,
            "steps_in_file": together,
            "span": sum(variables),
            "compute_s": direct_s(variables),
            "seed": 3,
        }
        memory, fast, slow = layers_for(total, total // 4 // MIB * MIB)
        yield Case(f"kernel, {name}", (memory, fast, slow * 2), setup, [DIRECT, PLAIN])


def cases(quick):
    """Returns all cases."""
    size = (4 if quick else 8) * MIB
    yield from phases(size, INTENSITIES)
    yield from reads(16 * size)
    every = ["VPIC, HDF5", "HACC, HDF5", "VPIC, API", "HACC, API"]
    yield from kernels(8, [every[0], every[3]] if quick else every)
