"""S3 on Cenote beside MinIO, and objects in two copies beside Ceph RADOS."""

import os
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from benches.cluster.hosts import Hosts, Missing
from benches.cluster.ours import Cluster
from benches.cluster.peers import ceph, minio
from benches.cluster.report import OURS, Bar, Table
from benches.cluster.sizes import Sizes
from benches.s3.run import CASES, Peer, build_load, measure
from scripts.programs.places import ROOT, command

PATIENCE_S = 600
LAYOUT = "2+2"
S3 = [
    Bar("put 64 MiB", "MB/s", 1.5),
    Bar("get 64 MiB", "MB/s", 1.5),
    Bar("put 4 KiB", "/s", 2),
    Bar("get 4 KiB", "/s", 2),
]
OBJECTS = [Bar("write_4k", "us", 0.5, at_most=True), Bar("write_4m", "MiB/s", 3)]
SOURCE = Path(__file__).with_name("objects.c")


def requests(peer: Peer, load: Path, sizes: Sizes, prepare: Callable[[str], None] | None = None) -> dict[str, float]:
    """Measures one server; returns a figure for each case."""
    found = measure(peer, load, sizes.seconds, sizes.clients, prepare)
    return {name: found[name][figure] for name, *_, figure, _ in CASES}


def s3(table: Table, hosts: Hosts, directory: Path, sizes: Sizes) -> None:
    """One server of four nodes, with clients outside of them."""
    load = build_load()
    with ExitStack() as stack:
        peer = stack.enter_context(minio(directory / "minio", hosts))
        ours = Cluster(directory / "cenote", hosts, "--protect", "1")
        stack.callback(ours.destroy)

        def lay_out(bucket: str) -> None:
            ours.run(0, "--store", ours.node(0), "layout", bucket, LAYOUT)

        for port, durability in ((9001, "async"), (9002, "sync")):
            own = stack.enter_context(ours.served(0, port, "--durability", durability))
            contenders = {
                OURS: partial(requests, own, load, sizes, lay_out),
                "MinIO EC 2+2": partial(requests, peer, load, sizes),
            }
            table.pairs(f"S3, 2+2, {durability}", contenders, S3, sizes.pairs)


def compiled(directory: Path, name: str, *words: str) -> Path:
    """Compiles `objects.c`."""
    made = directory / name
    done = subprocess.run(["cc", "-O2", "-o", made, SOURCE, *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Missing(f"{name} does not compile (Debian: librados-dev; here: the C library): {done.stderr[-300:]}")
    return made


def writes(begin: list[str], program: Path, where: str | Path, label: str, sizes: Sizes) -> dict[str, float]:
    """Runs the program of `objects.c`; returns its figures."""
    label = label.format(number=time.monotonic_ns())
    words = [*begin, str(program), str(where), label, str(sizes.small_writes), str(sizes.large_writes)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return {name: float(figure) for name, figure, _ in map(str.split, done.stdout.splitlines())}


def objects(table: Table, hosts: Hosts, directory: Path, sizes: Sizes) -> None:
    """Writes that are acknowledged with two copies."""
    built = command().parent
    library = ["-I", str(ROOT / "bindings/c/include"), "-L", str(built), "-lcenote", f"-Wl,-rpath,{built}"]
    own_program = compiled(directory, "objects-cenote", *library)
    program = compiled(directory, "objects-rados", "-DRADOS", "-lrados")
    with ExitStack() as stack:
        peer = stack.enter_context(ceph(directory / "ceph"))
        ours = Cluster(directory / "cenote", hosts, "--protect", "1")
        stack.callback(ours.destroy)
        ours.run(0, "protect", "-s", ours.node(0))
        os.sync()
        theirs = partial(writes, [], program, peer["conf"], peer["pool"], sizes)
        for durability in ("async", "sync"):
            own = partial(writes, hosts.on(0), own_program, ours.node(0), durability + "-{number}", sizes)
            table.pairs(f"objects, mirror 2, {durability}", {OURS: own, "RADOS size 2": theirs}, OBJECTS, sizes.pairs)
