"""Calls that wait long for the store: no other request waits, and the server still stops."""

import concurrent.futures
import os
import signal
import socket
import time
from pathlib import Path

# More than the number of threads that the server ever shared.
STUCK = 48
PATIENCE_S = 20


def daemon_of(dir: Path) -> int:
    """Returns the process that serves the store."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"serve" in words and os.fsencode(dir) in words:
                return int(entry.name)
    raise AssertionError("nobody serves the store")


def ask(port: int, request: bytes) -> bytes:
    """Returns the first bytes of an answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as connection:
        connection.sendall(request)
        return connection.recv(64)


def test_others_are_answered_while_calls_wait_for_the_store(fresh):
    served = fresh()
    served.cenote("serve", served.dir, "--background", "--idle-exit", "60")
    served.start()
    s3 = served.client("ann", max_pool_connections=STUCK, read_timeout=60)
    s3.create_bucket(Bucket="stuck")
    daemon = daemon_of(served.dir)
    with concurrent.futures.ThreadPoolExecutor(STUCK) as pool:
        os.kill(daemon, signal.SIGSTOP)
        try:
            puts = [pool.submit(s3.put_object, Bucket="stuck", Key=f"k{n}", Body=b"x" * 100_000) for n in range(STUCK)]
            time.sleep(2)
            assert not any(put.done() for put in puts), "the store answers although its daemon is stopped"
            begun = time.monotonic()
            said = ask(served.port, b"OPTIONS /stuck/k HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert said.startswith(b"HTTP/1.1 400"), said
            assert time.monotonic() - begun < PATIENCE_S / 2
        finally:
            os.kill(daemon, signal.SIGCONT)
        for put in puts:
            assert put.result(60)["ETag"]
    assert len(s3.list_objects_v2(Bucket="stuck")["Contents"]) == STUCK


def test_the_server_stops_although_a_call_waits(fresh):
    served = fresh()
    served.cenote("serve", served.dir, "--background", "--idle-exit", "60")
    served.start()
    s3 = served.client("ann", read_timeout=60)
    s3.create_bucket(Bucket="stuck")
    daemon = daemon_of(served.dir)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        os.kill(daemon, signal.SIGSTOP)
        try:
            put = pool.submit(s3.put_object, Bucket="stuck", Key="k", Body=b"x")
            time.sleep(1)
            begun = time.monotonic()
            code = served.stop()
            assert (code, time.monotonic() - begun < PATIENCE_S) == (0, True)
        finally:
            os.kill(daemon, signal.SIGCONT)
        assert put.exception(60) is not None
