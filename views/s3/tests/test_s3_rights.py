"""Access rights: keys, owners, ACLs, policies, CORS, TLS."""

import json
import subprocess
import time
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from botocore.exceptions import ClientError


def refused(call, **arguments: object) -> str:
    with pytest.raises(ClientError) as error:
        call(**arguments)
    return error.value.response["Error"]["Code"]


def test_what_is_mine_is_mine(served, s3, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=b"mine")
    for other in (served.client("bob"), served.client(None)):
        assert refused(other.get_object, Bucket=bucket, Key="k") == "AccessDenied"
        assert refused(other.get_object, Bucket=bucket, Key="none") == "AccessDenied"
        assert refused(other.list_objects_v2, Bucket=bucket) == "AccessDenied"
        assert refused(other.put_object, Bucket=bucket, Key="k", Body=b"") == "AccessDenied"
        assert refused(other.delete_object, Bucket=bucket, Key="k") == "AccessDenied"
        assert refused(other.delete_bucket, Bucket=bucket) == "AccessDenied"
        deleted = other.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "k"}]})
        assert deleted["Errors"][0]["Code"] == "AccessDenied"
    bob = served.client("bob")
    assert refused(bob.create_bucket, Bucket=bucket) == "BucketAlreadyExists"
    bob.create_bucket(Bucket=f"{bucket}-bob")
    copy = {"Bucket": f"{bucket}-bob", "Key": "k", "CopySource": f"{bucket}/k"}
    assert refused(bob.copy_object, **copy) == "AccessDenied"
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"mine"


def test_a_prefix_is_shared(served, s3, bucket):
    for key in ("pub/a", "private"):
        s3.put_object(Bucket=bucket, Key=key, Body=b"x")
    statements = [
        {"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": f"arn:aws:s3:::{bucket}/pub/*"},
        {
            "Effect": "Allow",
            "Principal": {"AWS": "arn:aws:iam:::user/bob"},
            "Action": ["s3:PutObject", "s3:ListBucket"],
            "Resource": [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/in/*"],
        },
    ]
    s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps({"Version": "2012-10-17", "Statement": statements}))
    assert s3.get_bucket_policy_status(Bucket=bucket)["PolicyStatus"]["IsPublic"]
    assert urlopen(f"{served.url}/{bucket}/pub/a").read() == b"x"
    with pytest.raises(HTTPError) as error:
        urlopen(f"{served.url}/{bucket}/private")
    assert error.value.code == 403
    bob = served.client("bob")
    bob.put_object(Bucket=bucket, Key="in/b", Body=b"")
    assert bob.list_objects_v2(Bucket=bucket)["KeyCount"] == 3
    assert refused(bob.put_object, Bucket=bucket, Key="other", Body=b"") == "AccessDenied"
    assert refused(s3.put_bucket_policy, Bucket=bucket, Policy="{}") == "MalformedPolicy"
    s3.delete_bucket_policy(Bucket=bucket)
    assert refused(s3.get_bucket_policy, Bucket=bucket) == "NoSuchBucketPolicy"
    assert refused(bob.list_objects_v2, Bucket=bucket) == "AccessDenied"


def test_lists_of_rights(served, s3, bucket):
    anybody = served.client(None)
    s3.put_object(Bucket=bucket, Key="k", Body=b"x", ACL="public-read")
    assert anybody.get_object(Bucket=bucket, Key="k")["Body"].read() == b"x"
    s3.put_object_acl(Bucket=bucket, Key="k", ACL="private")
    assert refused(anybody.get_object, Bucket=bucket, Key="k") == "AccessDenied"
    s3.put_bucket_acl(Bucket=bucket, GrantWrite="id=bob", GrantFullControl="id=ann")
    served.client("bob").put_object(Bucket=bucket, Key="of-bob", Body=b"")
    grants = s3.get_bucket_acl(Bucket=bucket)["Grants"]
    assert {(one["Grantee"]["ID"], one["Permission"]) for one in grants} == {("bob", "WRITE"), ("ann", "FULL_CONTROL")}
    s3.put_public_access_block(Bucket=bucket, PublicAccessBlockConfiguration={"BlockPublicAcls": True})
    assert refused(s3.put_object_acl, Bucket=bucket, Key="k", ACL="public-read") == "AccessDenied"


def test_keys_are_replaced_without_a_gap(fresh):
    server = fresh()
    server.start()
    old = server.client("ann")
    old.create_bucket(Bucket="data")
    server.keys["wrong"] = server.keys["ann"][0], "not the secret"
    server.keys["nobody"] = "AKIAAAAAAAAAAAAAAAAA", "x" * 40
    assert refused(server.client("wrong").list_buckets) == "SignatureDoesNotMatch"
    assert refused(server.client("nobody").list_buckets) == "InvalidAccessKeyId"
    server.stop()  # the server has the store in its own process
    made = json.loads(server.cenote("--json", "s3", "key", "rotate", "ann"))
    listed = server.cenote("s3", "key", "list")
    assert made["secret_access_key"] not in listed and listed.count("ann") == 2
    server.start()
    server.keys["new"] = made["access_key_id"], made["secret_access_key"]
    for who in ("ann", "new"):
        assert [one["Name"] for one in server.client(who).list_buckets()["Buckets"]] == ["data"]
    server.stop()
    server.cenote("s3", "key", "remove", "ann", "--id", server.keys["ann"][0])
    server.start()
    assert refused(server.client("ann").list_buckets) == "InvalidAccessKeyId"
    assert server.client("new").list_buckets()["Buckets"]


def test_pages_of_other_hosts(served, s3, bucket):
    rule = {"AllowedMethods": ["GET"], "AllowedOrigins": ["https://*.example.org"], "MaxAgeSeconds": 60}
    s3.put_bucket_cors(Bucket=bucket, CORSConfiguration={"CORSRules": [rule]})
    time.sleep(1.1)

    def asked(origin: str) -> object:
        headers = {"Origin": origin, "Access-Control-Request-Method": "GET"}
        return urlopen(Request(f"{served.url}/{bucket}/k", method="OPTIONS", headers=headers))

    answer = asked("https://a.example.org")
    assert answer.headers["Access-Control-Allow-Origin"] == "https://a.example.org"
    with pytest.raises(HTTPError) as error:
        asked("https://example.com")
    assert error.value.code == 403
    assert s3.get_bucket_cors(Bucket=bucket)["CORSRules"][0]["AllowedOrigins"] == ["https://*.example.org"]
    s3.delete_bucket_cors(Bucket=bucket)
    assert refused(s3.get_bucket_cors, Bucket=bucket) == "NoSuchCORSConfiguration"


def test_tls(fresh, tmp_path):
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    words += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate]
    if subprocess.run(words, capture_output=True, check=False).returncode != 0:
        pytest.skip("openssl is not installed")
    server = fresh("--tls-cert", str(certificate), "--tls-key", str(key))
    server.start()
    assert server.url.startswith("https://")
    import boto3

    ident, secret = server.keys["ann"]
    client = boto3.client(
        "s3",
        endpoint_url=server.url,
        aws_access_key_id=ident,
        aws_secret_access_key=secret,
        region_name="us-east-1",
        verify=str(certificate),
    )
    client.create_bucket(Bucket="secure")
    client.put_object(Bucket="secure", Key="k", Body=b"x" * 300_000)
    assert client.get_object(Bucket="secure", Key="k")["Body"].read() == b"x" * 300_000


def test_lifecycle_of_uploads(s3, bucket):
    rule = {
        "Status": "Enabled",
        "Filter": {"Prefix": "tmp/"},
        "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 3},
    }
    s3.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": [rule]})
    (kept,) = s3.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"]
    assert kept["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 3}
    expires = {"Status": "Enabled", "Filter": {"Prefix": ""}, "Expiration": {"Days": 1}}
    configuration = {"Rules": [expires]}
    assert refused(s3.put_bucket_lifecycle_configuration, Bucket=bucket, LifecycleConfiguration=configuration) == (
        "NotImplemented"
    )
