"""Clients that read and list a key while others put over it repeatedly."""

import hashlib
import random
import threading
import time

SECONDS = 3
# Minimum, on a slow machine.
ROUNDS = 5
# Few bytes go into one transaction with the name, many into a file that is then placed.
SIZES = [0, 100, 300_000]
TAGS = [{"Key": "a", "Value": "b"}]


def put(s3, bucket: str) -> None:
    body = random.randbytes(1) * random.choice(SIZES)
    s3.put_object(Bucket=bucket, Key="d/key", Body=body, Tagging="a=b", Metadata={"bytes": str(len(body))})


def get(s3, bucket: str) -> None:
    got = s3.get_object(Bucket=bucket, Key="d/key")
    body = got["Body"].read()
    assert got["ETag"] == f'"{hashlib.md5(body).hexdigest()}"'
    assert got["Metadata"] == {"bytes": str(len(body))}
    assert got["TagCount"] == 1


def head(s3, bucket: str) -> None:
    head = s3.head_object(Bucket=bucket, Key="d/key")
    assert head["Metadata"] == {"bytes": str(head["ContentLength"])}
    assert not head["ETag"].endswith('-c"'), "that of another object's file"


def ask(s3, bucket: str) -> None:
    assert s3.get_object_tagging(Bucket=bucket, Key="d/key")["TagSet"] == TAGS
    attributes = s3.get_object_attributes(Bucket=bucket, Key="d/key", ObjectAttributes=["ETag", "ObjectSize"])
    assert not attributes["ETag"].endswith("-c")
    assert s3.get_object_acl(Bucket=bucket, Key="d/key")["Grants"]


def copy(s3, bucket: str) -> None:
    s3.copy_object(Bucket=bucket, Key="copy", CopySource=f"{bucket}/d/key")


def enumerate_keys(s3, bucket: str) -> None:
    found = s3.list_objects_v2(Bucket=bucket, Prefix="d/")["Contents"]
    assert [one["Key"] for one in found] == ["d/key"]
    assert not found[0]["ETag"].endswith('-c"')
    versions = s3.list_object_versions(Bucket=bucket, Prefix="d/")["Versions"]
    assert [one["Key"] for one in versions if one["IsLatest"]] == ["d/key"]


def test_readers_of_a_key_that_is_put_over(served, s3, bucket):
    put(s3, bucket)
    until = time.monotonic() + SECONDS
    failures = []

    def run(act) -> None:
        mine, rounds = served.client("ann"), 0
        while (time.monotonic() < until or rounds < ROUNDS) and not failures:
            rounds += 1
            try:
                act(mine, bucket)
            except Exception as error:
                failures.append(f"{act.__name__}: {error!r}")

    acts = [put, put, put, get, get, head, head, ask, copy, enumerate_keys]
    threads = [threading.Thread(target=run, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_directories_that_come_and_go_under_many(served, bucket):
    """Each client has its own keys, in directories that exist as long as one of the keys does."""
    until = time.monotonic() + SECONDS
    failures = []

    def run(number: int) -> None:
        s3 = served.client("ann")
        keys = [f"d/e/f/{number}", f"d/e/{number}/x", f"d/{number}/"]
        while time.monotonic() < until and not failures:
            try:
                for key in keys:
                    s3.put_object(Bucket=bucket, Key=key, Body=b"" if key.endswith("/") else b"x")
                    assert s3.head_object(Bucket=bucket, Key=key)["ETag"]
                    s3.put_object_tagging(Bucket=bucket, Key=key, Tagging={"TagSet": TAGS})
                for key in keys:
                    s3.delete_object(Bucket=bucket, Key=key)
                    found = s3.list_objects_v2(Bucket=bucket, Prefix="d/").get("Contents", [])
                    assert key not in [one["Key"] for one in found]
            except Exception as error:
                failures.append(f"{number}: {error!r}")

    threads = [threading.Thread(target=run, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert "Contents" not in served.client("ann").list_objects_v2(Bucket=bucket)
