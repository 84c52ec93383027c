"""Measures an S3 server over plain sockets with signed addresses: 4 KiB objects by 16 clients, and one of 64 MiB.

Clients are processes that send prepared requests and read answers, so that their own cost is small. With `--url`,
`--key` and `--secret` another server is measured in the same way; without, a store in memory is made and served.
"""

import argparse
import multiprocessing
import socket
import statistics
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "views/s3/tests"))
from s3server import Served

SMALL = 4096
LARGE = 64 << 20


def answer(stream: socket.socket) -> int:
    """Reads one answer to its end; the bytes of its body."""
    head = b""
    while b"\r\n\r\n" not in head:
        piece = stream.recv(65536)
        if not piece:
            raise ConnectionError(head.decode(errors="replace"))
        head += piece
    head, _, rest = head.partition(b"\r\n\r\n")
    if not head.startswith((b"HTTP/1.1 200", b"HTTP/1.1 204", b"HTTP/1.1 206")):
        raise RuntimeError((head + rest).decode(errors="replace"))
    lengths = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    length = int(lengths[0]) if lengths else 0
    buffer = memoryview(bytearray(1 << 20))
    missing = length - len(rest)
    while missing > 0:
        got = stream.recv_into(buffer, min(missing, len(buffer)))
        if not got:
            raise ConnectionError("the answer ended early")
        missing -= got
    return length


def request(method: str, url: str, body: bytes = b"") -> bytes:
    """A request as it goes over the socket."""
    parts = urlsplit(url)
    head = (
        f"{method} {parts.path}?{parts.query} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def client(address: tuple[str, int], requests: list[bytes], gate: object, seconds: float, results: object) -> None:
    """One client: goes round its requests until the time is over."""
    with socket.create_connection(address) as stream:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        gate.wait()
        begun = time.perf_counter()
        times = []
        while time.perf_counter() - begun < seconds:
            one = time.perf_counter()
            stream.sendall(requests[len(times) % len(requests)])
            answer(stream)
            times.append(time.perf_counter() - one)
        results.put((len(times) / (time.perf_counter() - begun), times[:5000]))


def small(s3: object, bucket: str, address: tuple[str, int], method: str, clients: int, seconds: float) -> str:
    """Requests per second of all clients, and how long one takes."""
    gate = multiprocessing.Barrier(clients)
    results: multiprocessing.Queue = multiprocessing.Queue()
    processes = []
    for number in range(clients):
        urls = [
            s3.generate_presigned_url(
                {"PUT": "put_object", "GET": "get_object"}[method], Params={"Bucket": bucket, "Key": f"c{number}/{key}"}
            )
            for key in range(64)
        ]
        body = bytes(range(256)) * (SMALL // 256) if method == "PUT" else b""
        requests = [request(method, url, body) for url in urls]
        processes.append(multiprocessing.Process(target=client, args=(address, requests, gate, seconds, results)))
    for process in processes:
        process.start()
    rates, times = [], []
    for _ in processes:
        rate, some = results.get()
        rates.append(rate)
        times += some
    for process in processes:
        process.join()
    times.sort()
    middle, late = statistics.median(times) * 1e6, times[int(len(times) * 0.99)] * 1e6
    return f"{method} 4 KiB, {clients} clients: {sum(rates):8.0f}/s   p50 {middle:6.0f} us   p99 {late:6.0f} us"


def large(s3: object, bucket: str, address: tuple[str, int], method: str, rounds: int) -> str:
    """MB/s of one client."""
    operation = {"PUT": "put_object", "GET": "get_object"}[method]
    url = s3.generate_presigned_url(operation, Params={"Bucket": bucket, "Key": "large"})
    body = bytes(range(256)) * (LARGE // 256) if method == "PUT" else b""
    prepared = request(method, url, body)
    rates = []
    with socket.create_connection(address) as stream:
        for _ in range(rounds):
            begun = time.perf_counter()
            stream.sendall(prepared)
            answer(stream)
            rates.append(LARGE / 1e6 / (time.perf_counter() - begun))
    return f"{method} 64 MiB, 1 client: {statistics.median(rates):8.0f} MB/s (best {max(rates):.0f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url")
    parser.add_argument("--key", default="")
    parser.add_argument("--secret", default="")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        served = Served(Path(scratch) / "store")
        if arguments.url:
            served.url = arguments.url
            served.keys["ann"] = arguments.key, arguments.secret
        else:
            served.make()
            served.add("ann")
            served.start()
        try:
            s3 = served.client("ann", signature_version="s3v4")
            bucket = f"bench-{int(time.time())}"
            s3.create_bucket(Bucket=bucket)
            parts = urlsplit(served.url)
            address = parts.hostname, parts.port
            for method in ("PUT", "GET"):
                print(small(s3, bucket, address, method, arguments.clients, arguments.seconds), flush=True)
            for method in ("PUT", "GET"):
                print(large(s3, bucket, address, method, arguments.rounds), flush=True)
        finally:
            if not arguments.url:
                served.destroy()


if __name__ == "__main__":
    main()
