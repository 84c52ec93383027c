"""Files on Cenote beside GlusterFS and a plain directory: one program on a mount, and a process on each node."""

import os
import subprocess
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from benches.cluster.hosts import Hosts
from benches.cluster.ours import Cluster
from benches.cluster.peers import Gluster
from benches.cluster.report import OURS, Bar, Table
from benches.cluster.sizes import Sizes
from benches.fileload.run import LOAD, build
from scripts.programs.places import Place

PATIENCE_S = 600
MIRROR = [
    Bar("own_1m_write", "MiB/s", 1.5),
    Bar("own_1m_read", "MiB/s", 1.5),
    Bar("small_own_create", "k/s", 3),
]
NODES = [
    *(Bar(f"{name}_{phase}", "MiB/s", 2) for name in ("own_1m", "shared_1m") for phase in ("write", "read")),
    *(
        Bar(f"{name}_{phase}", "k/s", 2)
        for name in ("empty_own", "empty_shared")
        for phase in ("create", "stat", "remove")
    ),
]


def load(places: list[Place], mib: int, files: int, names: list[str], settle: str = "") -> dict[str, float]:
    """Runs a process of `load.c` in each place at once, all in one directory as seen from there; returns figures."""
    begin = places[0]
    subprocess.run([*begin.prefix, "mkdir", "-p", f"{begin.dir}/load"], check=True, timeout=PATIENCE_S)
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as meeting:
        meeting.truncate(4096)
        environment = os.environ | {"LOAD_MEETING": meeting.name} | ({"LOAD_SETTLE": settle} if settle else {})
        ranks = []
        try:
            for rank, place in enumerate(places):
                words = [*place.prefix, str(LOAD), f"{place.dir}/load", str(len(places)), str(mib), str(files), *names]
                own = environment | {"LOAD_RANK": str(rank)}
                ranks.append(subprocess.Popen(words, env=own, stdout=subprocess.PIPE, text=True))
            said = ranks[0].communicate(timeout=PATIENCE_S)[0]
            codes = [rank.wait(PATIENCE_S) for rank in ranks]
        finally:
            # One that failed leaves the others waiting for it.
            for rank in ranks:
                if rank.poll() is None:
                    rank.kill()
                    rank.wait()
                rank.stdout.close()
    if any(codes):
        raise RuntimeError(f"load in {[place.dir for place in places]}: {codes}")
    subprocess.run([*begin.prefix, "rm", "-rf", f"{begin.dir}/load"], check=False, timeout=PATIENCE_S)
    return {name: float(figure) for name, figure, _ in map(str.split, said.splitlines())}


def mirror(table: Table, hosts: Hosts, directory: Path, sizes: Sizes) -> None:
    """Two copies: one program on a mount at the node that has the container, and at another one."""
    build()
    with ExitStack() as stack:
        peer = Gluster(directory / "gluster", hosts, 2)
        stack.callback(peer.destroy)
        ours = Cluster(directory / "cenote", hosts, "--protect", "1")
        stack.callback(ours.destroy)
        theirs = [Place("GlusterFS", str(peer.mounted(0)))]
        mounts = [stack.enter_context(ours.mounted(at, directory)) for at in (0, 1)]
        (mounts[0] / "bench").mkdir()
        run = partial(load, mib=sizes.mib, files=sizes.small_files, names=["own_1m", "small_own"])
        for at, row in enumerate(("mount, mirror 2", "mount, mirror 2, from another node")):
            own = [Place(OURS, str(mounts[at] / "bench"))]
            contenders = {
                OURS: partial(run, own, settle=ours.settle(0)),
                "GlusterFS replica 2": partial(run, theirs),
            }
            table.pairs(row, contenders, MIRROR, sizes.pairs)


def nodes(table: Table, hosts: Hosts, directory: Path, sizes: Sizes) -> None:
    """A process on each node: files of their own and one together, as IOR has them, and names, as mdtest has them."""
    build()
    everywhere = range(hosts.count)
    with ExitStack() as stack:
        peer = Gluster(directory / "gluster", hosts, 1)
        stack.callback(peer.destroy)
        ours = Cluster(directory / "cenote", hosts)
        stack.callback(ours.destroy)
        plain = directory / "plain"
        plain.mkdir()
        ours.run(0, "run", "--store", ours.node(0), "--at", "/cenote", "--", "mkdir", "/cenote/bench")
        run = partial(load, mib=sizes.mib_each, files=sizes.files_each)
        run = partial(run, names=["own_1m", "shared_1m", "empty_own", "empty_shared"])
        contenders = {
            OURS: partial(run, [ours.preloaded(at, "bench") for at in everywhere]),
            "GlusterFS distributed": partial(run, [Place(f"g{at}", str(peer.mounted(at))) for at in everywhere]),
            "plain directory": partial(run, [Place(f"p{at}", str(plain), hosts.on(at)) for at in everywhere]),
        }
        table.pairs("four nodes", contenders, NODES, sizes.pairs)
