"""The settings of a campaign: sizes, places, seed. Everything else is derived from these."""

import argparse
import re
from dataclasses import dataclass
from pathlib import Path

from campaign import boris

ROOT = Path(__file__).resolve().parents[1]
MIB = 1 << 20


@dataclass(frozen=True)
class Settings:
    """The effective settings of one run."""

    out: Path
    store: Path
    dump_bytes: int = 1024 * MIB
    ranks: int = 4
    particles_per_rank: int = 200_000
    substeps: int = 2
    kills: int = 2
    seed: int = 20
    keep: bool = False
    native_only: bool = False

    @property
    def particles(self) -> int:
        """Number of particles of all ranks."""
        return self.ranks * self.particles_per_rank

    @property
    def steps(self) -> int:
        """Number of dumps of each rank: as many as make up the size."""
        return max(4, self.dump_bytes // (self.particles * boris.BYTES_PER_PARTICLE))

    @property
    def tiers(self) -> list[dict]:
        """The store's tiers. Memory holds a quarter of the dump, so that most of it has to drain."""
        memory = max(16 * MIB, self.dump_bytes // 4)
        return [
            {"name": "memory", "kind": "memory", "size": memory},
            {"name": "fast", "kind": "file", "size": memory * 3 // 2, "path": self.out / "tiers" / "fast.tier"},
            {"name": "capacity", "kind": "directory", "size": memory * 16, "path": self.out / "tiers" / "capacity"},
        ]


def parse_size(text: str) -> int:
    """Parses `64MiB`, `1.5GiB`, `1000000`."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]i?)?b?\s*", text.lower())
    if not found:
        raise argparse.ArgumentTypeError(f"'{text}' is no size; write it like 64MiB or 1.5GiB")
    unit = found[2] or ""
    power = " kmgt".index(unit[0]) if unit else 0
    return int(float(found[1]) * (1024 if unit.endswith("i") or not unit else 1000) ** power)


def parse(argv: list[str]) -> Settings:
    """Parses the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m campaign",
        description="Unmodified HDF5 programs on a tiered store, with real data, beside the same on native files.",
        epilog="Exit codes: 0 all is well, 1 something was lost or differs, or a program failed, 2 bad arguments.",
    )
    parser.add_argument("--quick", action="store_true", help="a small run: 96 MiB of particles")
    parser.add_argument("--size", type=parse_size, metavar="BYTES", help="size of the particle dump [default: 1GiB]")
    parser.add_argument("--ranks", type=int, default=4, help="processes of the simulation [default: 4]")
    parser.add_argument("--kills", type=int, default=2, help="how often the daemon is killed [default: 2]")
    parser.add_argument("--seed", type=int, default=20, help="seed of the simulation [default: 20]")
    parser.add_argument("--out", type=Path, default=ROOT / "target/campaign", help="report and files go here")
    parser.add_argument("--store", type=Path, help="directory of the store [default: OUT/store]")
    parser.add_argument("--keep", action="store_true", help="keep the store and all files for a look")
    parser.add_argument("--native-only", action="store_true", help="only native HDF5; Cenote is not run")
    args = parser.parse_args(argv)
    if args.ranks < 1 or args.kills < 0:
        parser.error("--ranks must be at least 1, --kills at least 0")
    out = args.out.resolve()
    size = args.size or (96 * MIB if args.quick else 1024 * MIB)
    return Settings(
        out=out,
        store=(args.store or out / "store").resolve(),
        dump_bytes=size,
        ranks=args.ranks,
        particles_per_rank=max(1000, min(200_000, size // (args.ranks * boris.BYTES_PER_PARTICLE * 16))),
        kills=args.kills,
        seed=args.seed,
        keep=args.keep,
        native_only=args.native_only,
    )
