"""A cluster of four nodes beside its peers on this machine: `make bench-cluster`.

    python -m benches.cluster.run --only mirror,s3 --pairs 3

Nodes are network namespaces with a link each on one bridge; disks and processors are shared by all. Rows:

- `mirror`: a mount with `--protect 1` beside GlusterFS with two replicas
- `s3`: `cenote s3` on one node, buckets in a layout 2+2 over nodes, beside MinIO on four servers
- `objects`: writes acknowledged by two nodes beside a pool of Ceph RADOS with two copies
- `nodes`: a process on each node at once (`cenote run`), beside distributed GlusterFS and a plain directory
- `containers`: names, with a container on each node, beside distributed GlusterFS

Prints a table and writes target/bench-cluster.jsonl. Needs root. A row whose peer is not installed is skipped.
"""

import argparse
import dataclasses
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from benches.cluster import files, services
from benches.cluster.hosts import Hosts, Missing, need_root
from benches.cluster.report import Table
from benches.cluster.sizes import FULL, QUICK
from scripts.programs.places import ROOT, command

NODES = 4
ROWS: dict[str, Callable] = {
    "mirror": files.mirror,
    "s3": services.s3,
    "objects": services.objects,
    "nodes": files.nodes,
    "containers": files.containers,
}


def options() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(ROWS), help="rows, with commas (%(default)s)")
    parser.add_argument("--pairs", type=int, help=f"of each row, behind one to warm up (default {FULL.pairs})")
    parser.add_argument("--quick", action="store_true", help="a tenth of the work, one pair")
    parser.add_argument("--dir", default="/var/tmp", help="a directory on a disk, for everything (%(default)s)")
    return parser.parse_args()


def main() -> int:
    args = options()
    unknown = set(args.only.split(",")) - set(ROWS)
    if unknown:
        print(f"bench-cluster: no rows {unknown}; there are {', '.join(ROWS)}", file=sys.stderr)
        return 2
    try:
        need_root()
        command()
    except (Missing, FileNotFoundError) as why:
        print(f"bench-cluster: SKIPPED, nothing was measured: {why}")
        return 77
    # A termination must remove everything as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sizes = QUICK if args.quick else FULL
    sizes = dataclasses.replace(sizes, pairs=args.pairs or sizes.pairs)
    table = Table(ROOT / "target/bench-cluster.jsonl")
    code = 0
    for name in args.only.split(","):
        # The same path for all nodes; short, since names of sockets may have 107 bytes.
        directory = Path(tempfile.mkdtemp(prefix="cenote-", dir=args.dir))
        try:
            with Hosts(NODES) as hosts:
                ROWS[name](table, hosts, directory, sizes)
        except Missing as why:
            table.skip(name, why)
        except Exception as why:
            table.skip(name, f"it failed: {why}")
            code = 1
        finally:
            shutil.rmtree(directory, ignore_errors=True)
    table.show()
    print(f"\n{sizes.pairs} pairs; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; target/bench-cluster.jsonl")
    return code


if __name__ == "__main__":
    sys.exit(main())
