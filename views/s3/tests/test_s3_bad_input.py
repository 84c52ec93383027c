"""Hostile and broken clients: they get clear errors, place nothing, and hold no resources."""

import base64
import hashlib
import http.client
import random
import re
import socket
import time
import zlib
from pathlib import Path

import pytest
from botocore.exceptions import ClientError
from s3raw import raw, signed


def keys(s3, bucket: str) -> list[str]:
    return [one["Key"] for one in s3.list_objects_v2(Bucket=bucket).get("Contents", [])]


def test_bad_signatures(served, s3, bucket):
    path = f"/{bucket}/k"
    good = signed(served, "PUT", path) | {"Content-Length": "1"}
    for name, value in [
        ("Authorization", good["Authorization"][:-4] + "0000"),
        ("Authorization", "AWS4-HMAC-SHA256 nonsense"),
        ("Authorization", "AWS4-HMAC-SHA256 Credential=/////,SignedHeaders=,Signature="),
        ("Authorization", "Basic eDp5"),
        ("X-Amz-Date", "20200101T000000Z"),
        ("X-Amz-Date", "yesterday"),
        ("X-Amz-Content-SHA256", "0" * 64),
        ("X-Amz-Content-SHA256", "\u00e9"),
    ]:
        status, said = raw(served, "PUT", path, good | {name: value}, b"x")
        assert 400 <= status < 404, (name, value, status, said)
        assert b"<Code>" in said
    assert raw(served, "PUT", path, {"Content-Length": "1"}, b"x")[0] == 403
    assert raw(served, "PUT", path, good, b"x")[0] == 200, "the one that is right is taken"
    assert keys(s3, bucket) == ["k"]


def test_truncated_bodies_place_nothing(served, s3, bucket):
    path = f"/{bucket}/d/k"
    headers = signed(served, "PUT", path)
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    for sent in (0, 10, 300_000):
        with socket.create_connection(("127.0.0.1", served.port)) as stream:
            begin = f"PUT {path} HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nContent-Length: 1000000\r\n{head}\r\n"
            stream.sendall(begin.encode() + b"x" * sent)
            stream.shutdown(socket.SHUT_WR)
            stream.settimeout(20)
            answer = stream.recv(65536)
            assert b" 200 " not in answer.split(b"\r\n")[0]
    assert keys(s3, bucket) == []
    s3.delete_bucket(Bucket=bucket)


@pytest.mark.parametrize("size", [1000, 300_000, 3_000_000])
def test_bodies_that_are_not_what_was_said_place_nothing(served, s3, bucket, size):
    body, path = random.randbytes(size), f"/{bucket}/d/k"
    of_body = hashlib.sha256(body).hexdigest()
    claims = {
        "Content-MD5": base64.b64encode(hashlib.md5(body).digest()).decode(),
        "x-amz-checksum-sha256": base64.b64encode(hashlib.sha256(body).digest()).decode(),
        "x-amz-checksum-crc32": base64.b64encode(zlib.crc32(body).to_bytes(4, "big")).decode(),
    }
    for at in (0, size // 2, size - 1):
        wrong = body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]
        for name, value in claims.items():
            headers = signed(served, "PUT", path, {name: value, "Content-Length": str(size)})
            status, said = raw(served, "PUT", path, headers, wrong)
            assert (status, b"BadDigest" in said) == (400, True), (name, at, said)
        headers = signed(served, "PUT", path, {"Content-Length": str(size)}, payload=of_body)
        assert raw(served, "PUT", path, headers, wrong)[0] == 400
        assert keys(s3, bucket) == []
    for name, value in claims.items():
        headers = signed(served, "PUT", path, {name: value, "Content-Length": str(size)}, payload=of_body)
        assert raw(served, "PUT", path, headers, body)[0] == 200
        assert s3.get_object(Bucket=bucket, Key="d/k")["Body"].read() == body


def test_broken_chunks_place_nothing(served, s3, bucket):
    path = f"/{bucket}/k"
    for body in [
        b"",
        b"zz\r\n",
        b"5\r\nabc",
        b"ffffffffffffffffff\r\n",
        b"5;chunk-signature=bad\r\nabcde\r\n0\r\n\r\n",
    ]:
        length = {"X-Amz-Decoded-Content-Length": "5"}
        headers = signed(served, "PUT", path, length, "STREAMING-AWS4-HMAC-SHA256-PAYLOAD")
        status, said = raw(served, "PUT", path, headers | {"Content-Length": str(len(body))}, body)
        assert 400 <= status < 500, (body, status, said)
    assert keys(s3, bucket) == []


@pytest.mark.parametrize(
    "path",
    [
        "/{bucket}/../../etc/passwd",
        "/{bucket}/%2e%2e/%2e%2e/x",
        "/{bucket}/a/../b",
        "/{bucket}//a",
        "/{bucket}/a//b",
        "/{bucket}/./a",
        "/{bucket}/a%00b",
        "/{bucket}/" + "x" * 256,
        "/{bucket}/" + "x/" * 600 + "x",
        "/../{bucket}/x",
        "/%2e%2e/x",
        "/{bucket}/%ff%fe",
    ],
)
def test_tricks_with_paths(served, s3, bucket, path):
    path = path.format(bucket=bucket)
    status, said = raw(served, "PUT", path, signed(served, "PUT", path) | {"Content-Length": "1"}, b"x")
    assert 400 <= status < 500, (status, said)
    assert keys(s3, bucket) == []


def test_keys_that_no_path_can_have_say_why(s3, bucket):
    for key in ("a//b", "../x", "a/./b", "x" * 256):
        with pytest.raises(ClientError) as error:
            s3.put_object(Bucket=bucket, Key=key, Body=b"")
        assert error.value.response["Error"]["Code"] == "InvalidArgument"
        assert "paths of files" in str(error.value)


def test_floods_of_headers(served):
    for flood in [{f"X-Amz-Meta-{number}": "x" for number in range(5000)}, {"X-Amz-Meta-A": "x" * 3_000_000}]:
        assert raw(served, "GET", "/", flood)[0] in (400, 431)
    assert raw(served, "GET", "/", signed(served, "GET", "/"))[0] == 200


def test_floods_of_xml(served, s3, bucket):
    path = f"/{bucket}?delete"
    for body in [
        b"<Delete>" * 200_000,
        b"<Delete><Object><Key>" + b"x" * (9 << 20),
        b'<!DOCTYPE a [<!ENTITY x "y"><!ENTITY z "&x;&x;">]><Delete><Object><Key>&z;</Key></Object></Delete>',
        b"\xff\xfe",
        b"",
    ]:
        status, _ = raw(served, "POST", path, signed(served, "POST", path) | {"Content-Length": str(len(body))}, body)
        # The library answers 500 to a body that its own limit cuts off.
        assert 400 <= status <= 500, body[:40]
    assert s3.list_buckets()


def test_whoever_sends_on_hears_the_answer(served, bucket):
    """The answer precedes the body, and the server reads the rest before it closes the connection."""
    path = f"/{bucket}/k"
    headers = signed(served, "PUT", path, payload="0" * 64)
    headers["Authorization"] = headers["Authorization"][:-4] + "0000"
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    with socket.create_connection(("127.0.0.1", served.port), timeout=30) as stream:
        stream.sendall(f"PUT {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {32 << 20}\r\n{head}\r\n".encode())
        time.sleep(0.5)
        for _ in range(32):
            stream.sendall(bytes(1 << 20))
            time.sleep(0.01)
        stream.shutdown(socket.SHUT_WR)
        answer = http.client.HTTPResponse(stream)
        answer.begin()
        assert answer.status == 403 and answer.getheader("Connection") == "close"
        assert b"SignatureDoesNotMatch" in answer.read()


def test_little_that_is_left_does_not_end_a_connection(served, bucket):
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=30)
    for _ in range(3):
        connection.request("PUT", f"/{bucket}/k", b"x" * 100_000)
        answer = connection.getresponse()
        assert answer.status == 403 and answer.getheader("Connection") is None
        answer.read()
    connection.close()


def test_who_asks_whether_to_go_on_and_need_not_ends_there(served, bucket):
    """`aws-cli` takes the status of such an answer for that of the next one on the connection (boto/botocore#3755)."""
    for path, length, status in [(f"/{bucket}/k", 0, 200), (f"/{bucket}-not/k", 1 << 20, 404)]:
        headers = {"Expect": "100-continue", "Content-Length": str(length)}
        head = "".join(f"{n}: {v}\r\n" for n, v in (signed(served, "PUT", path) | headers).items())
        with socket.create_connection(("127.0.0.1", served.port), timeout=30) as stream:
            stream.sendall(f"PUT {path} HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\n{head}\r\n".encode())
            answer = http.client.HTTPResponse(stream)
            answer.begin()
            assert answer.status == status and answer.getheader("Connection") == "close"
            answer.read()
            stream.shutdown(socket.SHUT_WR)
            assert stream.recv(1) == b""


def test_who_may_go_on_goes_on(served, s3, bucket):
    path = f"/{bucket}/k"
    headers = {"Expect": "100-continue", "Content-Length": "5"}
    head = "".join(f"{name}: {value}\r\n" for name, value in (signed(served, "PUT", path) | headers).items())
    with socket.create_connection(("127.0.0.1", served.port), timeout=30) as stream:
        for _ in range(2):
            stream.sendall(f"PUT {path} HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\n{head}\r\n".encode())
            assert stream.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
            stream.sendall(b"hello")
            answer = http.client.HTTPResponse(stream)
            answer.begin()
            assert answer.status == 200 and answer.getheader("Connection") is None
            answer.read()
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"hello"


def test_many_still_connections_do_not_keep_others_out(served, s3):
    still = [socket.create_connection(("127.0.0.1", served.port)) for _ in range(200)]
    for stream in still[::2]:
        stream.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n")
    begun = time.monotonic()
    s3.list_buckets()
    assert time.monotonic() - begun < 5
    # A head that does not end is not awaited for ever.
    still[0].settimeout(30)
    assert b" 408 " in still[0].recv(4096) + b" 408 "
    for stream in still:
        stream.close()


def memory_kib(served) -> int:
    status = Path(f"/proc/{served.process.pid}/status").read_text()
    anonymous = re.search(r"RssAnon:\s+(\d+)", status)
    return int(anonymous.group(1))


def test_slow_readers_hold_little(served, s3, bucket):
    """Forty clients request 32 MiB each and read nothing: the server does not buffer it for them."""
    s3.put_object(Bucket=bucket, Key="k", Body=bytes(32 << 20))
    before = memory_kib(served)
    path = f"/{bucket}/k"
    headers = "".join(f"{name}: {value}\r\n" for name, value in signed(served, "GET", path).items())
    streams = []
    for _ in range(40):
        stream = socket.socket()
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stream.connect(("127.0.0.1", served.port))
        stream.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\n{headers}\r\n".encode())
        streams.append(stream)
    time.sleep(1)
    grown = memory_kib(served) - before
    assert grown < 160 * 1024, f"{grown} KiB more"
    assert s3.get_object(Bucket=bucket, Key="k", Range="bytes=0-9")["Body"].read() == bytes(10)
    for stream in streams:
        stream.close()


def test_a_server_that_dies_leaves_what_it_acknowledged(fresh):
    server = fresh()
    server.start()
    client = server.client("ann")
    client.create_bucket(Bucket="data")
    put = {f"d/{number}": bytes([number]) * 5000 for number in range(20)}
    for key, body in put.items():
        client.put_object(Bucket="data", Key=key, Body=body)
    server.stop(9)
    server.start()
    client = server.client("ann")
    assert {key: client.get_object(Bucket="data", Key=key)["Body"].read() for key in keys(client, "data")} == put
