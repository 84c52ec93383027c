"""Malicious clients, wrong clocks, dying daemons: S3's errors, and nothing waits for ever."""

import os
import signal
import socket
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from botocore.exceptions import BotoCoreError, ClientError
from s3raw import raw, signed

# Limits in docs/s3.md: 15 s for a head, 60 s without progress; plus some time to notice.
HEAD_S, STILL_S, MORE_S = 15, 60, 10


def code(call, **arguments: object) -> str:
    """Returns S3's code for a refused call."""
    with pytest.raises(ClientError) as error:
        call(**arguments)
    return error.value.response["Error"]["Code"]


def answered(address: str, method: str = "GET", body: bytes | None = None) -> int:
    """Returns the HTTP status of an address."""
    try:
        return urlopen(Request(address, data=body, method=method)).status
    except HTTPError as error:
        return error.code


def keys(s3, bucket: str) -> list[str]:
    """Lists all keys of a bucket."""
    return [one["Key"] for one in s3.list_objects_v2(Bucket=bucket).get("Contents", [])]


def test_clocks_that_are_wrong(served, s3, bucket):
    path = f"/{bucket}/k"
    for wrong in (timedelta(minutes=20), timedelta(minutes=-20), timedelta(days=400)):
        import botocore.auth as auth

        moved = datetime.now(UTC) + wrong
        kept = auth.get_current_datetime
        auth.get_current_datetime = lambda moved=moved, **_: moved.replace(tzinfo=None)
        try:
            headers = signed(served, "PUT", path)
        finally:
            auth.get_current_datetime = kept
        status, said = raw(served, "PUT", path, headers | {"Content-Length": "1"}, b"x")
        assert (status, b"<Code>RequestTimeTooSkewed</Code>" in said) == (403, True), said
    assert keys(s3, bucket) == []


@pytest.mark.parametrize("version", ["s3v4", "s3"])
def test_signed_addresses_expire(served, s3, bucket, version):
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    signs = served.client("ann", signature_version=version)
    what = {"Bucket": bucket, "Key": "k"}
    short = signs.generate_presigned_url("get_object", Params=what, ExpiresIn=1)
    assert answered(short) == 200
    time.sleep(2.2)
    assert answered(short) == 403
    assert answered(signs.generate_presigned_url("get_object", Params=what, ExpiresIn=-1000)) == 403
    assert answered(signs.generate_presigned_url("put_object", Params=what, ExpiresIn=-1000), "PUT", b"y") == 403
    long = signs.generate_presigned_url("get_object", Params=what, ExpiresIn=8 * 24 * 3600)
    assert answered(long) == (403 if version == "s3v4" else 200), "signature 4 knows a week at most"
    good = signs.generate_presigned_url("get_object", Params=what)
    assert answered(good) == 200
    assert answered(good.replace(f"/{bucket}/k", f"/{bucket}/l")) == 403, "signed for another key"
    assert answered(good, "DELETE") == 403, "signed for another method"
    assert answered(good + "&versionId=null") == 403, "signed without that"
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"x"


@pytest.mark.parametrize(
    ("length", "statuses"),
    [("5368709121", {400}), ("9" * 19, {400}), ("1" * 40, {400, 411}), ("-1", {400}), ("0x10", {400}), ("1, 2", {400})],
)
def test_lengths_that_cannot_be(served, s3, bucket, length, statuses):
    """An impossible length is refused at once, not after the body: nothing is reserved for it."""
    path = f"/{bucket}/k"
    head = "".join(f"{name}: {value}\r\n" for name, value in signed(served, "PUT", path).items())
    with socket.create_connection(("127.0.0.1", served.port)) as stream:
        stream.settimeout(HEAD_S + MORE_S)
        begin = f"PUT {path} HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nContent-Length: {length}\r\n{head}\r\n"
        stream.sendall(begin.encode())
        answer = stream.recv(65536)
    assert int(answer.split(b" ")[1]) in statuses, answer
    assert keys(s3, bucket) == []


def test_two_lengths_are_none(served, s3, bucket):
    """A request that a proxy and this server could parse differently is refused."""
    path = f"/{bucket}/k"
    head = "".join(f"{name}: {value}\r\n" for name, value in signed(served, "PUT", path).items())
    for both in (
        "Content-Length: 1\r\nContent-Length: 2\r\n",
        "Content-Length: 4\r\nTransfer-Encoding: chunked, x\r\n",
    ):
        with socket.create_connection(("127.0.0.1", served.port)) as stream:
            stream.settimeout(HEAD_S + MORE_S)
            stream.sendall(f"PUT {path} HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\n{both}{head}\r\nx".encode())
            stream.shutdown(socket.SHUT_WR)
            assert b" 200 " not in stream.recv(65536).split(b"\r\n")[0]
    assert keys(s3, bucket) == []


def test_documents_that_grow(served, s3, bucket):
    """XML entities are not expanded, files and addresses not fetched: a document with one is refused."""
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    laughs = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
    for before, entity in [
        (f'<!DOCTYPE d [<!ENTITY l0 "ha">{laughs}]>', "&l9;"),
        ('<!DOCTYPE d [<!ENTITY x SYSTEM "file:///etc/passwd">]>', "&x;"),
        (f'<!DOCTYPE d [<!ENTITY x SYSTEM "{served.url}/">]>', "&x;"),
    ]:
        body = f"{before}<Delete><Object><Key>{entity}</Key></Object></Delete>".encode()
        path = f"/{bucket}?delete"
        begun = time.monotonic()
        status, said = raw(
            served, "POST", path, signed(served, "POST", path) | {"Content-Length": str(len(body))}, body
        )
        assert status == 400, said
        assert b"root:" not in said and time.monotonic() - begun < 5
    for what in (
        "tagging",
        "cors",
        "policy",
        "versioning",
        "acl",
        "lifecycle",
        "ownershipControls",
        "publicAccessBlock",
    ):
        for body in (b"<a", b"<" * 10_000, b"{" * 100_000, b"\0", b"<x/>" * 1000):
            path = f"/{bucket}?{what}"
            headers = signed(served, "PUT", path) | {"Content-Length": str(len(body))}
            status, said = raw(served, "PUT", path, headers, body)
            assert 400 <= status < 500, (what, body[:10], status, said)
    assert keys(s3, bucket) == ["k"]


def test_what_another_user_can_find_out(served, s3, bucket):
    """Strangers learn nothing: not whether a key exists, what is being uploaded, or what a version was."""
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    version = s3.put_object(Bucket=bucket, Key="k", Body=b"mine", Metadata={"a": "b"}, Tagging="a=b")["VersionId"]
    s3.delete_object(Bucket=bucket, Key="k")
    begun = s3.create_multipart_upload(Bucket=bucket, Key="u")["UploadId"]
    etag = s3.upload_part(Bucket=bucket, Key="u", UploadId=begun, PartNumber=1, Body=b"part")["ETag"]
    part = {"Bucket": bucket, "Key": "u", "UploadId": begun}
    parts = {"Parts": [{"PartNumber": 1, "ETag": etag}]}
    for who in ("bob", None):
        other = served.client(who)
        for call, arguments in [
            (other.get_object, {"Key": "k", "VersionId": version}),
            (other.head_object, {"Key": "k", "VersionId": version}),
            (other.head_object, {"Key": "never"}),
            (other.get_object_tagging, {"Key": "k", "VersionId": version}),
            (other.get_object_attributes, {"Key": "k", "VersionId": version, "ObjectAttributes": ["ETag"]}),
            (other.get_object_acl, {"Key": "k", "VersionId": version}),
            (other.delete_object, {"Key": "k", "VersionId": version}),
            (other.list_object_versions, {}),
            (other.list_multipart_uploads, {}),
            (other.get_bucket_policy, {}),
            (other.get_bucket_acl, {}),
            (other.get_bucket_cors, {}),
            (other.get_bucket_versioning, {}),
            (other.put_bucket_policy, {"Policy": "{}"}),
            (other.put_bucket_acl, {"ACL": "public-read"}),
            (other.put_object_acl, {"Key": "k", "VersionId": version, "ACL": "public-read"}),
        ]:
            assert code(call, Bucket=bucket, **arguments) in {"AccessDenied", "403"}, call
        assert code(other.list_parts, **part) == "AccessDenied"
        assert code(other.upload_part, **part, PartNumber=1, Body=b"his") == "AccessDenied"
        assert code(other.complete_multipart_upload, **part, MultipartUpload=parts) == "AccessDenied"
        assert code(other.abort_multipart_upload, **part) == "AccessDenied"
    bob = served.client("bob")
    own = f"{bucket}-bob"
    bob.create_bucket(Bucket=own)
    # His rights to his own bucket give him none to ours, whatever he calls there.
    assert code(bob.upload_part, Bucket=own, Key="u", UploadId=begun, PartNumber=1, Body=b"") == "NoSuchUpload"
    source = {"Bucket": bucket, "Key": "k", "VersionId": version}
    assert code(bob.copy_object, Bucket=own, Key="c", CopySource=source) == "AccessDenied"
    mine = bob.create_multipart_upload(Bucket=own, Key="c")["UploadId"]
    copied = {"Bucket": own, "Key": "c", "UploadId": mine, "PartNumber": 1, "CopySource": source}
    assert code(bob.upload_part_copy, **copied) == "AccessDenied"
    address = bob.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "k", "VersionId": version})
    assert answered(address) == 403
    assert [one["Name"] for one in bob.list_buckets()["Buckets"] if one["Name"] == bucket] == []
    assert keys(bob, own) == [] and s3.list_parts(**part)["Parts"][0]["Size"] == 4


def test_the_keys_of_all_are_in_no_bucket(served, s3):
    """No name reaches the container with the access keys."""
    for path in ("/cenote%2Fs3", "/cenote%2Fs3?list-type=2", "/cenote/s3", "/%2e%2e", "/.", "/cenote%252Fs3"):
        status, said = raw(served, "GET", path, signed(served, "GET", path))
        assert 400 <= status < 500 and served.keys["bob"][1].encode() not in said, (path, said)
    assert all("/" not in one["Name"] for one in s3.list_buckets()["Buckets"])


def closed_after(stream: socket.socket, most_s: float) -> float:
    """Returns the seconds until the other side closes."""
    begun = time.monotonic()
    stream.settimeout(most_s)
    while stream.recv(65536):
        pass
    return time.monotonic() - begun


def test_slow_clients_are_let_go(served, s3, bucket):
    """A head sent byte by byte, and a body that stops: each ends within its time limit, and others are served."""
    path = f"/{bucket}/k"
    headers = "".join(f"{name}: {value}\r\n" for name, value in signed(served, "PUT", path).items())
    stalled = socket.create_connection(("127.0.0.1", served.port))
    begin = f"PUT {path} HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nContent-Length: 1000\r\n{headers}\r\nsome"
    stalled.sendall(begin.encode())
    dripping = socket.create_connection(("127.0.0.1", served.port))
    done = threading.Event()

    def drip() -> None:
        try:
            for byte in b"GET / HTTP/1.1\r\nX: " + b"x" * 1000:
                dripping.sendall(bytes([byte]))
                if done.wait(0.2):
                    return
        except OSError:
            return

    thread = threading.Thread(target=drip)
    thread.start()
    try:
        assert closed_after(dripping, HEAD_S + MORE_S) <= HEAD_S + MORE_S
    except ConnectionResetError:
        pass  # closed while bytes were in transit
    finally:
        done.set()
        thread.join()
    s3.list_buckets()
    assert closed_after(stalled, STILL_S + MORE_S) <= STILL_S + MORE_S
    assert keys(s3, bucket) == []


def daemon_of(directory: Path) -> int | None:
    """Returns the process that serves a store."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"serve" in words and str(directory).encode() in words:
            return int(process.name)
    return None


def test_a_daemon_that_dies_in_the_middle_of_a_put(fresh):
    """The daemon dies during uploads: objects are complete or absent, no client hangs, and service resumes."""
    server = fresh("--mode", "daemon")
    server.start()
    client = server.client("ann", read_timeout=60, connect_timeout=10)
    client.create_bucket(Bucket="data")
    body = os.urandom(24 << 20)
    outcomes: dict[str, bool] = {}

    def put(key: str) -> None:
        try:
            server.client("ann", read_timeout=60).put_object(Bucket="data", Key=key, Body=body)
            outcomes[key] = True
        except (ClientError, BotoCoreError):
            outcomes[key] = False

    for turn in range(3):
        threads = [threading.Thread(target=put, args=(f"{turn}/{number}",)) for number in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(0.05 + 0.1 * turn)
        daemon = daemon_of(server.dir)
        if daemon is None:
            pytest.skip("the store has no daemon of its own")
        os.kill(daemon, signal.SIGKILL)
        for thread in threads:
            thread.join(90)
            assert not thread.is_alive(), "a PUT waits for ever"
    there = keys(client, "data")
    assert set(there) >= {key for key, is_done in outcomes.items() if is_done}
    for key in there:
        assert client.get_object(Bucket="data", Key=key)["Body"].read() == body, key
    client.put_object(Bucket="data", Key="after", Body=b"x")
