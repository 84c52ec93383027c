"""S3 servers side by side: `make bench-s3`.

Cenote and a peer (MinIO, or OpenStack Swift with its S3 interface) on one machine, on the same disk, in turns: 4 KiB
objects put and got by 16 clients, and 64 MiB put and got by one. Requests are signed in advance; `load.rs` sends them
at little cost (its share of a core is printed). Prints a table, and writes target/bench-s3.jsonl.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "views/s3/tests"))
from s3server import Served, client, free_port  # noqa: E402

LARGE = 64 << 20
# name, method, bytes of a body, clients (0: --clients), objects of each client,
# figure, bar over a peer
CASES = [
    ("put 4 KiB", "PUT", 4096, 0, 64, "per_s", 5),
    ("get 4 KiB", "GET", 4096, 0, 64, "per_s", 3),
    ("put 64 MiB", "PUT", LARGE, 1, 4, "mb_s", 2),
    ("get 64 MiB", "GET", LARGE, 1, 4, "mb_s", 2),
]
# How long a peer may take to start.
PATIENCE_S = 60


@dataclass
class Peer:
    """A server that listens."""

    url: str
    key: str
    secret: str


@contextmanager
def cenote(directory: Path, arguments: list[str]) -> Iterator[Peer]:
    """A store with a tier in memory and one on disk, in the process that serves it."""
    served = Served(directory / "store", arguments)
    served.make("2GiB", "16GiB")
    served.add("ann")
    served.start()
    try:
        yield Peer(served.url, *served.keys["ann"])
    finally:
        served.destroy()


@contextmanager
def minio(directory: Path, _: list[str]) -> Iterator[Peer]:
    """MinIO on one directory."""
    port = free_port()
    words = [minio_command(), "server", "--quiet", "--address", f"127.0.0.1:{port}", str(directory / "data")]
    environment = os.environ | {"MINIO_ROOT_USER": "benchbench", "MINIO_ROOT_PASSWORD": "benchbench"}
    environment |= {"MINIO_BROWSER": "off", "MINIO_UPDATE": "off", "MINIO_CI_CD": "on"}
    with open(directory / "minio.log", "wb") as log:
        process = subprocess.Popen(words, env=environment, stdout=log, stderr=log)
    try:
        peer = Peer(f"http://127.0.0.1:{port}", "benchbench", "benchbench")
        wait_for(peer, process)
        yield peer
    finally:
        process.terminate()
        process.wait(30)


@contextmanager
def swift(directory: Path, _: list[str]) -> Iterator[Peer]:
    """OpenStack Swift with s3api, each of its servers in one process."""
    words = ["/usr/bin/python3", str(ROOT / "scripts/object_servers.py"), str(directory / "swift")]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        found = json.loads(process.stdout.readline())["s3"]
        yield Peer(found["endpoint"], found["access_key_id"], found["secret_access_key"])
    finally:
        process.stdin.close()
        process.wait(60)


def minio_command() -> str | None:
    """Returns MinIO's command: from PATH, or where Go installs it."""
    beside = Path.home() / "go/bin/minio"
    return shutil.which("minio") or (str(beside) if beside.exists() else None)


PEERS: dict[str, Callable] = {"minio": minio, "swift": swift}


def there(name: str) -> bool:
    """Returns whether a peer can be started."""
    return bool(minio_command()) if name == "minio" else shutil.which("swift-proxy-server") is not None


def wait_for(peer: Peer, process: subprocess.Popen) -> None:
    """Waits until the peer answers."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            client(peer.url, peer.key, peer.secret).list_buckets()
            return
        except Exception as error:
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"{peer.url} does not answer: {error}") from error
            time.sleep(0.2)


def targets(s3: object, bucket: str, method: str, clients: int, each: int) -> str:
    """Returns signed URLs, one a line, in turns for each client."""
    operation = {"PUT": "put_object", "GET": "get_object"}[method]
    keys = [f"{of:02}/{number:04}-{each}" for number in range(each) for of in range(clients)]
    urls = (s3.generate_presigned_url(operation, Params={"Bucket": bucket, "Key": key}) for key in keys)
    parts = (urlsplit(url) for url in urls)
    return "\n".join(f"{one.path}?{one.query}" for one in parts)


def measure(
    peer: Peer, load: Path, seconds: float, clients: int, prepare: Callable[[str], None] | None = None
) -> dict[str, dict]:
    """Runs all cases against one server, in a bucket of its own; `prepare` gets the bucket's name before."""
    s3 = client(peer.url, peer.key, peer.secret, signature_version="s3v4")
    bucket = f"bench-{time.time_ns()}"
    s3.create_bucket(Bucket=bucket)
    if prepare:
        prepare(bucket)
    found = {}
    for name, method, size, wanted, each, _, _ in CASES:
        at_once = wanted or clients
        long = seconds if size < LARGE else seconds / 2
        lines = targets(s3, bucket, method, at_once, each)
        words = [load, urlsplit(peer.url).netloc, method, size if method == "PUT" else 0, at_once, long, each]
        done = subprocess.run([str(word) for word in words], input=lines, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{name} on {peer.url}: {done.stderr}")
        found[name] = json.loads(done.stdout)
    return found


def build_load() -> Path:
    """Returns the generator, built if necessary."""
    given = os.environ.get("S3LOAD_BIN")
    if given:
        return Path(given)
    words = ["cargo", "build", "--release", "--locked", "--quiet", "-p", "cenote-benches", "--bin", "s3load"]
    subprocess.run(words, cwd=ROOT, check=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return target / "release/s3load"


def table(all_found: dict[str, list[dict]], peers: list[str]) -> bool:
    """Prints medians and ratios; returns whether all bars are reached over every peer."""
    reached = True
    for name, _, _, _, _, figure, bar in CASES:
        middle = {who: statistics.median(one[name][figure] for one in found) for who, found in all_found.items()}
        unit = "/s" if figure == "per_s" else " MB/s"
        words = [f"{who} {value:.0f}{unit}" for who, value in middle.items()]
        for peer in peers:
            ratio = middle["cenote"] / middle[peer]
            reached &= ratio >= bar
            words.append(f"{ratio:.1f}x {peer} (bar {bar}x{'' if ratio >= bar else ', MISSED'})")
        load = statistics.median(one[name]["load_cores"] for one in all_found["cenote"])
        late = statistics.median(one[name]["p99_us"] for one in all_found["cenote"])
        print(f"{name:11} {', '.join(words)}; p99 {late / 1000:.1f} ms; generator {load:.2f} cores", flush=True)
    return reached


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--peer", action="append", choices=sorted(PEERS), help="[default: MinIO if it is there, else Swift]"
    )
    parser.add_argument("--alone", action="store_true", help="without a peer")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--durability", default="async", help="of Cenote's buckets")
    arguments = parser.parse_args()
    peers = arguments.peer or [name for name in ("minio", "swift") if there(name)][:1]
    peers = [] if arguments.alone else peers
    if not peers and not arguments.alone:
        print(
            "no MinIO and no Swift (Debian: swift-proxy and others); --alone measures without",
            file=sys.stderr,
        )
        return 77
    load = build_load()
    all_found: dict[str, list[dict]] = {}
    with open(ROOT / "target/bench-s3.jsonl", "a") as out:
        for repeat in range(arguments.repeats):
            turns = ["cenote", *peers] if repeat % 2 == 0 else [*reversed(peers), "cenote"]
            for name in turns:
                with tempfile.TemporaryDirectory() as scratch:
                    start = PEERS.get(name, cenote)
                    with start(Path(scratch), ["--durability", arguments.durability]) as peer:
                        found = measure(peer, load, arguments.seconds, arguments.clients)
                all_found.setdefault(name, []).append(found)
                out.write(json.dumps({"who": name, "repeat": repeat, **found}) + "\n")
    return 0 if table(all_found, peers) else 1


if __name__ == "__main__":
    sys.exit(main())
