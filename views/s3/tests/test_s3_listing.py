"""Lists compared with a model that sorts all keys."""

from collections.abc import Iterator


def drawn(rng, count: int) -> list[str]:
    """Returns keys that are files or directories, not both."""
    files, directories = set(), set()
    while len(files) < count:
        names = ["".join(rng.choice("ab-./!0é+ ") for _ in range(rng.randint(1, 3))) for _ in range(rng.randint(1, 3))]
        key = "/".join(name.replace("/", "x") for name in names)
        ways = {key[:at] for at, letter in enumerate(key) if letter == "/"}
        if any(part in ("", ".", "..") for part in key.split("/")) or key in directories or ways & files:
            continue
        files.add(key)
        directories |= ways
    return sorted(files, key=str.encode)


def model(keys: list[str], prefix: str, delimiter: str, after: str) -> Iterator[str]:
    """Lists keys and common prefixes as S3 does. After a common prefix means after all keys that it groups."""
    last = None
    for key in keys:
        if not key.startswith(prefix) or key.encode() <= after.encode():
            continue
        at = key.find(delimiter, len(prefix)) if delimiter else -1
        told = key if at < 0 else key[: at + len(delimiter)]
        if told not in (last, after):
            yield told
        last = told


def pages(list_page, **arguments: object) -> list[str]:
    """Returns all keys and common prefixes of all pages, in order; checks the pages' counts and flags."""
    all_of_them = []
    while True:
        page = list_page(**arguments)
        here = [one["Key"] for one in page.get("Contents", [])]
        common = [one["Prefix"] for one in page.get("CommonPrefixes", [])]
        assert here == sorted(here, key=str.encode) and common == sorted(common, key=str.encode)
        assert len(here) + len(common) <= arguments["MaxKeys"]
        all_of_them += sorted(here + common, key=str.encode)
        if not page["IsTruncated"]:
            return all_of_them
        assert here or common
        if "NextContinuationToken" in page:
            arguments["ContinuationToken"] = page["NextContinuationToken"]
        else:
            arguments["Marker"] = page.get("NextMarker") or here[-1]


def test_every_list_is_that_of_the_model(s3, bucket, rng):
    keys = drawn(rng, 60)
    for key in keys:
        s3.put_object(Bucket=bucket, Key=key, Body=b"")
    for _ in range(60):
        some = rng.choice(keys)
        prefix = rng.choice(["", "", some[: rng.randint(0, len(some))]])
        delimiter = rng.choice(["", "/", "/", "-", "a", "é"])
        after = rng.choice(["", "", rng.choice(keys), some[: rng.randint(0, len(some))] + "!"])
        size = rng.choice([1, 2, 7, 1000])
        asked = {"Bucket": bucket, "Prefix": prefix, "Delimiter": delimiter, "MaxKeys": size}
        expected = list(model(keys, prefix, delimiter, after))
        told = (keys, prefix, delimiter, after, size)
        assert pages(s3.list_objects_v2, StartAfter=after, **asked) == expected, told
        expected = list(model(keys, prefix, delimiter, ""))
        assert pages(s3.list_objects, **asked) == expected, told


def test_a_list_tells_what_is_known(s3, bucket):
    put = s3.put_object(Bucket=bucket, Key="k", Body=b"12345")
    (one,) = s3.list_objects_v2(Bucket=bucket, FetchOwner=True)["Contents"]
    assert (one["ETag"], one["Size"], one["StorageClass"]) == (put["ETag"], 5, "STANDARD")
    assert one["Owner"]["ID"] == "ann"
    assert s3.list_objects_v2(Bucket=bucket, MaxKeys=0)["KeyCount"] == 0


def test_more_than_a_page(s3, bucket):
    keys = [f"d{number % 7}/{number:05}" for number in range(1203)]
    for key in keys:
        s3.put_object(Bucket=bucket, Key=key, Body=b"")
    assert pages(s3.list_objects_v2, Bucket=bucket, MaxKeys=1000) == sorted(keys)
    assert pages(s3.list_objects_v2, Bucket=bucket, MaxKeys=3, Delimiter="/") == [f"d{n}/" for n in range(7)]


def test_buckets_are_listed_to_their_owner(served, s3, bucket):
    names = [one["Name"] for one in s3.list_buckets()["Buckets"]]
    assert bucket in names and names == sorted(names)
    assert bucket not in [one["Name"] for one in served.client("bob").list_buckets()["Buckets"]]
