"""Old versions compared with a model: random puts, deletions and copies; versioning on, suspended, and on again."""

import pytest
from botocore.exceptions import ClientError

KEYS = ["a", "d/x", "d/y-z", "d/y/z"]


class Model:
    """Model of S3's versions: per key a list, the newest first, of (id, bytes or None for a delete marker)."""

    def __init__(self) -> None:
        self.keys: dict[str, list[tuple[str, bytes | None]]] = {key: [] for key in KEYS}
        self.state = ""

    def add(self, key: str, version: str, body: bytes | None) -> None:
        if version == "null":
            self.keys[key] = [one for one in self.keys[key] if one[0] != "null"]
        self.keys[key].insert(0, (version, body))

    def drop(self, key: str, version: str) -> None:
        self.keys[key] = [one for one in self.keys[key] if one[0] != version]

    def current(self, key: str) -> bytes | None:
        return self.keys[key][0][1] if self.keys[key] else None


def told(s3, bucket: str, size: int) -> dict[str, list[tuple[str, bool, bool]]]:
    """Returns all listed versions: id, whether a delete marker, whether the latest."""
    seen: dict[str, list] = {key: [] for key in KEYS}
    marker: dict[str, str] = {}
    while True:
        page = s3.list_object_versions(Bucket=bucket, MaxKeys=size, **marker)
        lines = [(one, False) for one in page.get("Versions", [])] + [
            (one, True) for one in page.get("DeleteMarkers", [])
        ]
        assert len(lines) <= size
        # Versions and delete markers are separate lists; their times (a microsecond apart at least) order them.
        for one, is_marker in lines:
            seen[one["Key"]].append((one["VersionId"], is_marker, one["IsLatest"]))
        if not page["IsTruncated"]:
            return seen
        marker = {"KeyMarker": page["NextKeyMarker"]}
        if page.get("NextVersionIdMarker"):
            marker["VersionIdMarker"] = page["NextVersionIdMarker"]


def check(s3, bucket: str, model: Model, size: int) -> None:
    """Compares everything that S3 reports with the model."""
    seen = told(s3, bucket, size)
    for key, versions in model.keys.items():
        expected = {(version, body is None, place == 0) for place, (version, body) in enumerate(versions)}
        assert set(seen[key]) == expected and len(seen[key]) == len(expected), key
        try:
            current = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
        except ClientError as error:
            assert error.response["Error"]["Code"] == "NoSuchKey"
            is_marked = error.response["ResponseMetadata"]["HTTPHeaders"].get("x-amz-delete-marker")
            assert (is_marked == "true") == bool(versions)
            current = None
        assert current == model.current(key), key
        for version, body in versions:
            if body is not None:
                got = s3.get_object(Bucket=bucket, Key=key, VersionId=version)
                assert (got["Body"].read(), got["VersionId"]) == (body, version)


def test_versions_are_those_of_the_model(s3, bucket, rng):
    model = Model()
    keys = [key for key in KEYS if key != "d/y/z"]
    for step in range(140):
        if step in (8, 60, 90):
            model.state = "Suspended" if step == 60 else "Enabled"
            s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": model.state})
            assert s3.get_bucket_versioning(Bucket=bucket)["Status"] == model.state
        key = rng.choice(keys)
        what = rng.choice(["put", "put", "put", "delete", "drop", "copy"])
        if what == "put":
            body = rng.randbytes(rng.randint(0, 9))
            version = s3.put_object(Bucket=bucket, Key=key, Body=body).get("VersionId")
            if not model.state:
                model.keys[key] = []
            model.add(key, version or "null", body)
        elif what == "copy" and model.keys[key] and model.current(key) is not None:
            other = rng.choice(keys)
            if other == key:
                continue
            version = s3.copy_object(Bucket=bucket, Key=other, CopySource=f"{bucket}/{key}").get("VersionId")
            if not model.state:
                model.keys[other] = []
            model.add(other, version or "null", model.current(key))
        elif what == "delete":
            done = s3.delete_object(Bucket=bucket, Key=key)
            if model.state:
                assert done["DeleteMarker"]
                model.add(key, done["VersionId"], None)
            else:
                model.keys[key] = []
        elif what == "drop" and model.state and model.keys[key]:
            version, body = rng.choice(model.keys[key])
            done = s3.delete_object(Bucket=bucket, Key=key, VersionId=version)
            assert done["VersionId"] == version and done.get("DeleteMarker", False) == (body is None)
            model.drop(key, version)
        if step % 10 == 9:
            check(s3, bucket, model, rng.choice([1, 2, 5, 1000]))
    # Nothing is left: the bucket can be deleted.
    for key, versions in model.keys.items():
        for version, _ in versions:
            s3.delete_object(Bucket=bucket, Key=key, VersionId=version)
    assert not any(told(s3, bucket, 1000).values())
    s3.delete_bucket(Bucket=bucket)


def test_deletions_are_no_objects(s3, bucket):
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    first = s3.put_object(Bucket=bucket, Key="k", Body=b"1")["VersionId"]
    marker = s3.delete_object(Bucket=bucket, Key="k")["VersionId"]
    with pytest.raises(ClientError) as error:
        s3.get_object(Bucket=bucket, Key="k", VersionId=marker)
    assert error.value.response["ResponseMetadata"]["HTTPStatusCode"] == 405
    for bad in ["0" * 24, "../../etc", "null"]:
        with pytest.raises(ClientError) as error:
            s3.get_object(Bucket=bucket, Key="k", VersionId=bad)
        assert error.value.response["Error"]["Code"] in ("NoSuchVersion", "InvalidArgument")
    s3.copy_object(Bucket=bucket, Key="k", CopySource={"Bucket": bucket, "Key": "k", "VersionId": first})
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"1"
    with pytest.raises(ClientError) as error:
        s3.delete_bucket(Bucket=bucket)
    assert error.value.response["Error"]["Code"] == "BucketNotEmpty"
