"""Files on Cenote beside GlusterFS and a plain directory: one program on a mount, and a process on each node."""

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from benches.cluster.hosts import Hosts
from benches.cluster.ours import Cluster
from benches.cluster.peers import Gluster
from benches.cluster.report import OURS, Bar, Table
from benches.cluster.sizes import Sizes
from benches.fileload.run import LOAD, build
from scripts.programs.places import PRELOADED, Place

PATIENCE_S = 600
MIRROR = [
    Bar("own_1m_write", "MiB/s", 1.5),
    Bar("own_1m_read", "MiB/s", 1.5),
    Bar("small_own_create", "k/s", 3),
]
BYTES, NAMES = ["own_1m", "shared_1m"], ["empty_own", "empty_shared"]
NODES = [
    *(Bar(f"{name}_{phase}", "MiB/s", 2) for name in BYTES for phase in ("write", "read")),
    *(Bar(f"{name}_{phase}", "k/s", 2) for name in NAMES for phase in ("create", "stat", "remove")),
]
Figures = dict[str, float]


def load(
    places: list[Place], mib: int, files: int, names: list[str], at_top: bool = False, **variables: str
) -> Figures:
    """Runs a process of `load.c` in each place at once, all in one directory as seen from there; returns figures."""
    # A new name each time: GlusterFS remembers on other nodes what was there before.
    below = "" if at_top else f"/load-{time.monotonic_ns()}"
    begin, at = places[0], places[0].dir + below
    if below:
        subprocess.run([*begin.prefix, "mkdir", "-p", at], check=True, timeout=PATIENCE_S)
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as meeting, ExitStack() as stack:
        meeting.truncate(4096)
        environment = os.environ | variables | {"LOAD_MEETING": meeting.name}
        ranks = []
        for rank, place in enumerate(places):
            words = [*place.prefix, str(LOAD), place.dir + below, str(len(places)), str(mib), str(files), *names]
            own = environment | {"LOAD_RANK": str(rank)}
            ranks.append(subprocess.Popen(words, env=own, stdout=subprocess.PIPE, text=True))
            stack.enter_context(ranks[-1])
            stack.callback(ranks[-1].kill)
        until = time.monotonic() + PATIENCE_S
        while any(rank.poll() is None for rank in ranks):
            # One that failed leaves the others waiting for it.
            if any(rank.poll() for rank in ranks) or time.monotonic() > until:
                raise RuntimeError(f"load in {[place.dir for place in places]}: {[rank.poll() for rank in ranks]}")
            time.sleep(0.05)
        said = ranks[0].stdout.read()
        if any(rank.returncode for rank in ranks):
            raise RuntimeError(f"load in {[place.dir for place in places]}: {[rank.returncode for rank in ranks]}")
    if below:
        subprocess.run([*begin.prefix, "rm", "-rf", at], check=False, timeout=PATIENCE_S)
    return {name: float(figure) for name, figure, _ in map(str.split, said.splitlines())}


@contextmanager
def beside_gluster(directory: Path, hosts: Hosts, copies: int, *options: str) -> Iterator[tuple[Cluster, Gluster]]:
    """Yields both, with a volume of so many copies and a cluster with these options; nothing of them stays."""
    build()
    with ExitStack() as stack:
        peer = Gluster(directory / "gluster", hosts, copies)
        stack.callback(peer.destroy)
        ours = Cluster(directory / "cenote", hosts, *options)
        stack.callback(ours.destroy)
        yield ours, peer


def mirror(table: Table, hosts: Hosts, directory: Path, sizes: Sizes) -> None:
    """Two copies: one program on a mount at the node that has the container, and at another one."""
    with beside_gluster(directory, hosts, 2, "--protect", "1") as (ours, peer), ExitStack() as stack:
        theirs = [Place("GlusterFS", str(peer.mounted(0)))]
        mounts = [stack.enter_context(ours.mounted(at, directory)) for at in (0, 1)]
        (mounts[0] / "bench").mkdir()
        run = partial(load, mib=sizes.mib, files=sizes.small_files, names=["own_1m", "small_own"], LOAD_COLD="1")
        for at, row in enumerate(("mount, mirror 2", "mount, mirror 2, from another node")):
            own = [Place(OURS, str(mounts[at] / "bench"))]
            contenders = {
                OURS: partial(run, own, LOAD_SETTLE=ours.settle(0)),
                "GlusterFS replica 2": partial(run, theirs),
            }
            table.pairs(row, contenders, MIRROR, sizes.pairs)


def nodes(table: Table, hosts: Hosts, directory: Path, sizes: Sizes) -> None:
    """A process on each node: files of their own and one together, as IOR has them, and names, as mdtest has them."""
    everywhere = range(hosts.count)
    with beside_gluster(directory, hosts, 1) as (ours, peer):
        plain = directory / "plain"
        plain.mkdir()
        ours.run(0, "run", "--store", ours.node(0), "--at", PRELOADED, "--", "mkdir", f"{PRELOADED}/bench")
        theirs = {
            "GlusterFS distributed": [Place(f"g{at}", str(peer.mounted(at))) for at in everywhere],
            "plain directory": [Place(f"p{at}", str(plain), hosts.on(at)) for at in everywhere],
        }
        run = partial(load, mib=sizes.mib_each, files=sizes.files_each, names=BYTES + NAMES)
        contenders = {OURS: partial(run, [ours.preloaded(at, "/bench") for at in everywhere])}
        contenders |= {name: partial(run, places) for name, places in theirs.items()}
        table.pairs("four nodes", contenders, NODES, sizes.pairs)


def containers(table: Table, hosts: Hosts, directory: Path, sizes: Sizes) -> None:
    """Names, as mdtest has them, in a directory at the top for each process: a container, on the node that makes it."""
    everywhere = range(hosts.count)
    with beside_gluster(directory, hosts, 1) as (ours, peer):
        theirs = [Place(f"g{at}", str(peer.mounted(at))) for at in everywhere]
        run = partial(load, mib=sizes.mib_each, files=sizes.files_each, names=["empty_own"])
        contenders = {
            OURS: partial(run, [ours.preloaded(at, "") for at in everywhere], at_top=True),
            "GlusterFS distributed": partial(run, theirs),
        }
        bars = [bar for bar in NODES if bar.figure.startswith("empty_own")]
        table.pairs("four nodes, a container each", contenders, bars, sizes.pairs)
