"""Objects: put, get, ranges, conditions, copies, tags, checksums, deletions."""

import base64
import hashlib
import zlib
from datetime import UTC, datetime, timedelta
from urllib.request import urlopen

import pytest
from botocore.exceptions import ClientError


def code(error: pytest.ExceptionInfo) -> str:
    """Returns S3's error code."""
    return error.value.response["Error"]["Code"]


def status(error: pytest.ExceptionInfo) -> int:
    """Returns the HTTP status of an error."""
    return error.value.response["ResponseMetadata"]["HTTPStatusCode"]


@pytest.mark.parametrize("size", [0, 1, 4096, 65536, 65537, 1 << 20, (5 << 20) + 3])
def test_what_is_put_is_got(s3, bucket, rng, size):
    body = rng.randbytes(size)
    put = s3.put_object(Bucket=bucket, Key="a/b c/é.dat", Body=body, ContentType="x/y", Metadata={"one": "1"})
    assert put["ETag"] == f'"{hashlib.md5(body).hexdigest()}"'
    got = s3.get_object(Bucket=bucket, Key="a/b c/é.dat")
    assert got["Body"].read() == body
    assert (got["ContentType"], got["Metadata"], got["ETag"]) == ("x/y", {"one": "1"}, put["ETag"])
    assert got["ContentLength"] == size
    head = s3.head_object(Bucket=bucket, Key="a/b c/é.dat")
    assert (head["ETag"], head["ContentLength"], head["Metadata"]) == (put["ETag"], size, {"one": "1"})


def test_ranges(s3, bucket, rng):
    body = rng.randbytes(3_000_000)
    s3.put_object(Bucket=bucket, Key="k", Body=body)
    for asked, part in [
        ("bytes=0-0", body[:1]),
        ("bytes=5-99999", body[5:100000]),
        ("bytes=2999999-", body[-1:]),
        ("bytes=-7", body[-7:]),
        ("bytes=1-9999999", body[1:]),
    ]:
        got = s3.get_object(Bucket=bucket, Key="k", Range=asked)
        assert got["Body"].read() == part, asked
        assert got["ResponseMetadata"]["HTTPStatusCode"] == 206
        first = len(body) - len(part) if asked.startswith("bytes=-") else int(asked[6:].split("-")[0])
        assert got["ContentRange"] == f"bytes {first}-{first + len(part) - 1}/{len(body)}"
    with pytest.raises(ClientError) as error:
        s3.get_object(Bucket=bucket, Key="k", Range="bytes=3000000-")
    assert (code(error), status(error)) == ("InvalidRange", 416)


def test_conditions_of_reading(s3, bucket):
    tag = s3.put_object(Bucket=bucket, Key="k", Body=b"x")["ETag"]
    then = s3.head_object(Bucket=bucket, Key="k")["LastModified"]
    hour = timedelta(hours=1)
    for conditions, wanted in [
        ({"IfMatch": tag}, 200),
        ({"IfMatch": '"other"'}, 412),
        ({"IfNoneMatch": tag}, 304),
        ({"IfNoneMatch": '"other"'}, 200),
        ({"IfModifiedSince": then}, 304),
        ({"IfModifiedSince": then - hour}, 200),
        ({"IfUnmodifiedSince": then}, 200),
        ({"IfUnmodifiedSince": then - hour}, 412),
        ({"IfMatch": tag, "IfUnmodifiedSince": then - hour}, 200),
    ]:
        try:
            seen = s3.get_object(Bucket=bucket, Key="k", **conditions)["ResponseMetadata"]["HTTPStatusCode"]
        except ClientError as error:
            seen = error.response["ResponseMetadata"]["HTTPStatusCode"]
        assert seen == wanted, conditions


def test_conditions_of_writing(s3, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=b"1", IfNoneMatch="*")
    with pytest.raises(ClientError) as error:
        s3.put_object(Bucket=bucket, Key="k", Body=b"2", IfNoneMatch="*")
    assert (code(error), status(error)) == ("PreconditionFailed", 412)
    tag = s3.head_object(Bucket=bucket, Key="k")["ETag"]
    s3.put_object(Bucket=bucket, Key="k", Body=b"3", IfMatch=tag)
    with pytest.raises(ClientError) as error:
        s3.put_object(Bucket=bucket, Key="k", Body=b"4", IfMatch=tag)
    assert status(error) == 412
    with pytest.raises(ClientError) as error:
        s3.put_object(Bucket=bucket, Key="d/none", Body=b"5", IfMatch=tag)
    assert status(error) == 404
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"3"
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 1


def test_checksums_are_checked_and_told(s3, bucket):
    body = b"some bytes" * 1000
    for algorithm in ["CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"]:
        try:
            s3.put_object(Bucket=bucket, Key=algorithm, Body=body, ChecksumAlgorithm=algorithm)
        except Exception as error:  # the client's own: it has no CRC-32C without another package
            if "awscrt" in str(error) or "Missing Dependency" in str(error):
                continue
            raise
        head = s3.head_object(Bucket=bucket, Key=algorithm, ChecksumMode="ENABLED")
        assert head[f"Checksum{algorithm}"]
    wanted = base64.b64encode(zlib.crc32(body).to_bytes(4, "big")).decode()
    assert s3.head_object(Bucket=bucket, Key="CRC32", ChecksumMode="ENABLED")["ChecksumCRC32"] == wanted
    for wrong in [{"ChecksumSHA256": base64.b64encode(bytes(32)).decode()}, {"ContentMD5": "AAAAAAAAAAAAAAAAAAAAAA=="}]:
        with pytest.raises(ClientError) as error:
            s3.put_object(Bucket=bucket, Key="wrong", Body=body, **wrong)
        assert code(error) == "BadDigest"
    with pytest.raises(ClientError):
        s3.head_object(Bucket=bucket, Key="wrong")


def test_copies(s3, bucket, rng):
    body = rng.randbytes(200_000)
    put = s3.put_object(Bucket=bucket, Key="a", Body=body, ContentType="x/y", Metadata={"m": "1"}, Tagging="t=1")
    s3.copy_object(Bucket=bucket, Key="d/b", CopySource=f"{bucket}/a")
    got = s3.get_object(Bucket=bucket, Key="d/b")
    assert got["Body"].read() == body
    assert (got["ETag"], got["Metadata"], got["ContentType"]) == (put["ETag"], {"m": "1"}, "x/y")
    assert s3.get_object_tagging(Bucket=bucket, Key="d/b")["TagSet"] == [{"Key": "t", "Value": "1"}]
    s3.copy_object(Bucket=bucket, Key="c", CopySource=f"{bucket}/a", MetadataDirective="REPLACE", Metadata={"n": "2"})
    assert s3.head_object(Bucket=bucket, Key="c")["Metadata"] == {"n": "2"}
    with pytest.raises(ClientError) as error:
        s3.copy_object(Bucket=bucket, Key="a", CopySource=f"{bucket}/a")
    assert code(error) == "InvalidRequest"
    s3.copy_object(Bucket=bucket, Key="a", CopySource=f"{bucket}/a", MetadataDirective="REPLACE", Metadata={})
    assert s3.get_object(Bucket=bucket, Key="a")["Body"].read() == body
    with pytest.raises(ClientError) as error:
        s3.copy_object(Bucket=bucket, Key="x", CopySource=f"{bucket}/none")
    assert code(error) == "NoSuchKey"
    with pytest.raises(ClientError) as error:
        s3.copy_object(Bucket=bucket, Key="x", CopySource=f"{bucket}/a", CopySourceIfMatch='"other"')
    assert code(error) == "PreconditionFailed"


def test_tags(s3, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=b"", Tagging="a=1&b=x%20y")
    assert s3.get_object_tagging(Bucket=bucket, Key="k")["TagSet"] == [
        {"Key": "a", "Value": "1"},
        {"Key": "b", "Value": "x y"},
    ]
    assert s3.get_object(Bucket=bucket, Key="k")["TagCount"] == 2
    s3.put_object_tagging(Bucket=bucket, Key="k", Tagging={"TagSet": [{"Key": "c", "Value": ""}]})
    assert s3.get_object_tagging(Bucket=bucket, Key="k")["TagSet"] == [{"Key": "c", "Value": ""}]
    s3.delete_object_tagging(Bucket=bucket, Key="k")
    assert s3.get_object_tagging(Bucket=bucket, Key="k")["TagSet"] == []
    with pytest.raises(ClientError) as error:
        s3.put_object_tagging(
            Bucket=bucket, Key="k", Tagging={"TagSet": [{"Key": str(n), "Value": ""} for n in range(11)]}
        )
    assert status(error) == 400


def test_deletions_take_implied_directories_along(s3, bucket):
    s3.put_object(Bucket=bucket, Key="a/b/c", Body=b"")
    s3.delete_object(Bucket=bucket, Key="a/b/c")
    s3.delete_object(Bucket=bucket, Key="a/b/c")  # a second deletion succeeds too
    s3.put_object(Bucket=bucket, Key="a", Body=b"a file now")
    s3.delete_object(Bucket=bucket, Key="a")
    for number in range(30):
        s3.put_object(Bucket=bucket, Key=f"d/{number}", Body=b"")
    keys = [{"Key": f"d/{number}"} for number in range(30)] + [{"Key": "none"}]
    done = s3.delete_objects(Bucket=bucket, Delete={"Objects": keys})
    assert len(done["Deleted"]) == 31
    s3.delete_bucket(Bucket=bucket)


def test_a_key_is_a_file_or_a_directory(s3, bucket):
    s3.put_object(Bucket=bucket, Key="a", Body=b"")
    with pytest.raises(ClientError) as error:
        s3.put_object(Bucket=bucket, Key="a/b", Body=b"")
    assert (code(error), status(error)) == ("KeyCollision", 409)
    assert "`a`" in str(error.value) and "`a/b`" in str(error.value)
    s3.put_object(Bucket=bucket, Key="d/x", Body=b"")
    with pytest.raises(ClientError) as error:
        s3.put_object(Bucket=bucket, Key="d", Body=b"")
    assert code(error) == "KeyCollision"
    with pytest.raises(ClientError) as error:
        s3.get_object(Bucket=bucket, Key="d")
    assert code(error) == "NoSuchKey"


def test_directories_as_keys(s3, bucket):
    s3.put_object(Bucket=bucket, Key="d/", Body=b"", Metadata={"m": "1"})
    head = s3.head_object(Bucket=bucket, Key="d/")
    assert (head["ContentLength"], head["Metadata"]) == (0, {"m": "1"})
    s3.put_object(Bucket=bucket, Key="d/x", Body=b"1")
    assert [one["Key"] for one in s3.list_objects_v2(Bucket=bucket)["Contents"]] == ["d/", "d/x"]
    s3.delete_object(Bucket=bucket, Key="d/")
    assert [one["Key"] for one in s3.list_objects_v2(Bucket=bucket)["Contents"]] == ["d/x"]
    s3.put_object(Bucket=bucket, Key="d/", Body=b"")
    s3.delete_object(Bucket=bucket, Key="d/x")
    assert [one["Key"] for one in s3.list_objects_v2(Bucket=bucket)["Contents"]] == ["d/"]
    s3.delete_object(Bucket=bucket, Key="d/")
    s3.delete_bucket(Bucket=bucket)


def test_presigned_addresses(s3, bucket):
    s3.put_object(Bucket=bucket, Key="a b/c", Body=b"signed")
    address = s3.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "a b/c"}, ExpiresIn=60)
    assert urlopen(address).read() == b"signed"


def test_times_are_those_of_the_file(s3, bucket):
    before = datetime.now(UTC) - timedelta(seconds=2)
    s3.put_object(Bucket=bucket, Key="k", Body=b"")
    assert before < s3.head_object(Bucket=bucket, Key="k")["LastModified"] < before + timedelta(seconds=60)
