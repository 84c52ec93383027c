"""Multipart uploads: complete, out of order, aborted, wrong."""

import hashlib

import pytest
from botocore.exceptions import ClientError

MIB = 1 << 20


def upload(s3, bucket: str, key: str, bodies: dict[int, bytes], **said: object) -> tuple[str, list[dict]]:
    """Uploads parts in the given order; returns the upload and the list that completes it."""
    begun = s3.create_multipart_upload(Bucket=bucket, Key=key, **said)["UploadId"]
    parts = []
    for number, body in bodies.items():
        done = s3.upload_part(Bucket=bucket, Key=key, UploadId=begun, PartNumber=number, Body=body)
        parts.append({"PartNumber": number, "ETag": done["ETag"]})
    return begun, sorted(parts, key=lambda part: part["PartNumber"])


def complete(s3, bucket: str, key: str, begun: str, parts: list[dict]) -> dict:
    return s3.complete_multipart_upload(Bucket=bucket, Key=key, UploadId=begun, MultipartUpload={"Parts": parts})


def test_parts_make_the_object(s3, bucket, rng):
    bodies = {7: rng.randbytes(5 * MIB), 2: rng.randbytes(5 * MIB + 1), 9: rng.randbytes(100)}
    begun, parts = upload(s3, bucket, "d/k", bodies, ContentType="x/y", Metadata={"m": "1"}, Tagging="t=1")
    assert [one["UploadId"] for one in s3.list_multipart_uploads(Bucket=bucket)["Uploads"]] == [begun]
    listed = s3.list_parts(Bucket=bucket, Key="d/k", UploadId=begun)["Parts"]
    assert [(one["PartNumber"], one["Size"]) for one in listed] == [(n, len(bodies[n])) for n in sorted(bodies)]
    done = complete(s3, bucket, "d/k", begun, parts)
    whole = b"".join(bodies[number] for number in sorted(bodies))
    sums = b"".join(hashlib.md5(bodies[number]).digest() for number in sorted(bodies))
    assert done["ETag"] == f'"{hashlib.md5(sums).hexdigest()}-3"'
    got = s3.get_object(Bucket=bucket, Key="d/k")
    assert got["Body"].read() == whole
    assert (got["ETag"], got["ContentType"], got["Metadata"], got["TagCount"]) == (done["ETag"], "x/y", {"m": "1"}, 1)
    second = s3.get_object(Bucket=bucket, Key="d/k", PartNumber=2)
    assert (second["Body"].read(), second["PartsCount"]) == (bodies[7], 3)
    assert "Uploads" not in s3.list_multipart_uploads(Bucket=bucket)
    # A client that did not receive the answer asks again.
    assert complete(s3, bucket, "d/k", begun, parts)["ETag"] == done["ETag"]
    s3.put_object(Bucket=bucket, Key="d/k", Body=b"")
    with pytest.raises(ClientError) as error:
        complete(s3, bucket, "d/k", begun, parts)
    assert error.value.response["Error"]["Code"] == "NoSuchUpload"


def test_what_does_not_fit_is_refused(s3, bucket):
    begun, parts = upload(s3, bucket, "k", {1: b"a" * 10, 2: b"b"})

    def refused(parts: list[dict]) -> str:
        with pytest.raises(ClientError) as error:
            complete(s3, bucket, "k", begun, parts)
        return error.value.response["Error"]["Code"]

    assert refused(parts) == "EntityTooSmall"
    assert refused(parts[::-1]) == "InvalidPartOrder"
    assert refused([{"PartNumber": 3, "ETag": parts[0]["ETag"]}]) == "InvalidPart"
    assert refused([{"PartNumber": 1, "ETag": parts[1]["ETag"]}]) == "InvalidPart"
    assert refused([]) == "MalformedXML"
    for number in (0, 10_001, -1):
        with pytest.raises(ClientError) as error:
            s3.upload_part(Bucket=bucket, Key="k", UploadId=begun, PartNumber=number, Body=b"")
        assert error.value.response["Error"]["Code"] == "InvalidArgument"
    complete(s3, bucket, "k", begun, parts[1:])
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"b"


def test_given_up_uploads_leave_nothing(s3, bucket):
    begun, _ = upload(s3, bucket, "k", {1: b"a" * MIB})
    for wrong in [(bucket, "other", begun), (bucket, "k", "../../x"), (bucket, "k", "0" * 32)]:
        with pytest.raises(ClientError) as error:
            s3.abort_multipart_upload(Bucket=wrong[0], Key=wrong[1], UploadId=wrong[2])
        assert error.value.response["Error"]["Code"] == "NoSuchUpload"
    s3.abort_multipart_upload(Bucket=bucket, Key="k", UploadId=begun)
    with pytest.raises(ClientError) as error:
        s3.upload_part(Bucket=bucket, Key="k", UploadId=begun, PartNumber=1, Body=b"")
    assert error.value.response["Error"]["Code"] == "NoSuchUpload"
    upload(s3, bucket, "k", {1: b""})
    s3.delete_bucket(Bucket=bucket)


def test_parts_are_copied(s3, bucket, rng):
    body = rng.randbytes(11 * MIB)
    s3.put_object(Bucket=bucket, Key="from", Body=body)
    begun = s3.create_multipart_upload(Bucket=bucket, Key="to")["UploadId"]
    parts = []
    for number, (first, end) in enumerate([(MIB, 7 * MIB), (3, 1000)], 1):
        copied = s3.upload_part_copy(
            Bucket=bucket,
            Key="to",
            UploadId=begun,
            PartNumber=number,
            CopySource=f"{bucket}/from",
            CopySourceRange=f"bytes={first}-{end - 1}",
        )["CopyPartResult"]
        parts.append({"PartNumber": number, "ETag": copied["ETag"]})
    complete(s3, bucket, "to", begun, parts)
    assert s3.get_object(Bucket=bucket, Key="to")["Body"].read() == body[MIB : 7 * MIB] + body[3:1000]


@pytest.mark.parametrize("kind", ["COMPOSITE", "FULL_OBJECT"])
def test_checksums_of_parts(s3, bucket, rng, kind):
    bodies = [rng.randbytes(5 * MIB), rng.randbytes(77)]
    begun = s3.create_multipart_upload(Bucket=bucket, Key="k", ChecksumAlgorithm="CRC32", ChecksumType=kind)["UploadId"]
    parts = []
    for number, body in enumerate(bodies, 1):
        done = s3.upload_part(
            Bucket=bucket, Key="k", UploadId=begun, PartNumber=number, Body=body, ChecksumAlgorithm="CRC32"
        )
        parts.append({"PartNumber": number, "ETag": done["ETag"], "ChecksumCRC32": done["ChecksumCRC32"]})
    done = complete(s3, bucket, "k", begun, parts)
    s3.put_object(Bucket=bucket, Key="whole", Body=b"".join(bodies), ChecksumAlgorithm="CRC32")
    whole = s3.head_object(Bucket=bucket, Key="whole", ChecksumMode="ENABLED")["ChecksumCRC32"]
    assert (done["ChecksumCRC32"] == whole) == (kind == "FULL_OBJECT")
    assert done["ChecksumCRC32"].endswith("-2") == (kind == "COMPOSITE")


def test_ten_thousand_parts_out_of_order(s3, bucket, rng):
    """Only the last part may be small: this test is about part numbers, not bytes."""
    begun = s3.create_multipart_upload(Bucket=bucket, Key="k")["UploadId"]
    numbers = list(range(9000, 10_001))
    rng.shuffle(numbers)
    parts = []
    for number in numbers:
        tag = s3.upload_part(Bucket=bucket, Key="k", UploadId=begun, PartNumber=number, Body=b"%d" % number)["ETag"]
        parts.append({"PartNumber": number, "ETag": tag})
    with pytest.raises(ClientError) as error:
        complete(s3, bucket, "k", begun, parts)
    assert error.value.response["Error"]["Code"] == "InvalidPartOrder"
    parts.sort(key=lambda part: part["PartNumber"])
    with pytest.raises(ClientError) as error:
        complete(s3, bucket, "k", begun, parts)
    assert error.value.response["Error"]["Code"] == "EntityTooSmall"
    missing = [{"PartNumber": number, "ETag": '"x"'} for number in range(1, 10_001)]
    with pytest.raises(ClientError) as error:
        complete(s3, bucket, "k", begun, missing)
    assert error.value.response["Error"]["Code"] == "InvalidPart"
    seen, marker = [], 0
    while True:
        page = s3.list_parts(Bucket=bucket, Key="k", UploadId=begun, PartNumberMarker=marker)
        seen += [one["PartNumber"] for one in page["Parts"]]
        if not page["IsTruncated"]:
            break
        marker = page["NextPartNumberMarker"]
    assert seen == sorted(numbers)
    s3.abort_multipart_upload(Bucket=bucket, Key="k", UploadId=begun)
