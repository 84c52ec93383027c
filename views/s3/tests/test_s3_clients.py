"""Unmodified client programs: each writes and reads, and sees what the others wrote."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def run(served, *words: str | Path, cwd: Path | None = None, **more: str) -> str:
    """Runs a program with ann's key; returns its standard output."""
    done = subprocess.run(
        [str(word) for word in words],
        env=served.environment() | more,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        cwd=cwd,
    )
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


def program(name: str, package: str) -> str:
    """Path of a program."""
    beside = Path(sys.executable).parent / name
    go = Path.home() / "go/bin" / name
    found = next((str(path) for path in (beside, go) if path.exists()), shutil.which(name))
    if not found:
        pytest.skip(f"{name} is not installed ({package})")
    return found


@pytest.fixture
def tree(tmp_path: Path, rng) -> Path:
    """Files of several sizes, one of them in several parts."""
    made = tmp_path / "tree"
    for name, size in [("a.txt", 10), ("empty", 0), ("d/b c.dat", 70_000), ("d/e/ü+&.bin", 3 << 20), ("big", 20 << 20)]:
        path = made / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(rng.randbytes(size))
    return made


def same(one: Path, other: Path) -> None:
    """Compares the files and bytes of two directories."""

    def content(root: Path) -> dict[str, bytes]:
        return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}

    assert content(one) == content(other)


def test_aws(served, bucket, tree, tmp_path):
    aws = program("aws", "PyPI: awscli")
    run(served, aws, "s3", "sync", tree, f"s3://{bucket}/t")
    listed = run(served, aws, "s3", "ls", "--recursive", f"s3://{bucket}/")
    assert "t/d/e/ü+&.bin" in listed and len(listed.splitlines()) == 5
    assert "PRE d/" in run(served, aws, "s3", "ls", f"s3://{bucket}/t/")
    run(served, aws, "s3", "sync", f"s3://{bucket}/t", tmp_path / "back")
    same(tree, tmp_path / "back")
    assert run(served, aws, "s3", "sync", tree, f"s3://{bucket}/t") == "", "all of it is there"
    run(served, aws, "s3", "mv", f"s3://{bucket}/t/big", f"s3://{bucket}/moved/big")
    run(served, aws, "s3", "cp", f"s3://{bucket}/moved/big", tmp_path / "big")
    assert (tmp_path / "big").read_bytes() == (tree / "big").read_bytes()
    run(served, aws, "s3", "rm", "--recursive", f"s3://{bucket}/")
    run(served, aws, "s3", "rb", f"s3://{bucket}")


def test_rclone(served, bucket, tree, tmp_path):
    rclone = program("rclone", "Debian: rclone")
    key, secret = served.keys["ann"]
    remote = {
        "RCLONE_CONFIG": os.devnull,
        "RCLONE_CONFIG_C_TYPE": "s3",
        "RCLONE_CONFIG_C_PROVIDER": "Other",
        "RCLONE_CONFIG_C_ENDPOINT": served.url,
        "RCLONE_CONFIG_C_ACCESS_KEY_ID": key,
        "RCLONE_CONFIG_C_SECRET_ACCESS_KEY": secret,
        "RCLONE_CONFIG_C_FORCE_PATH_STYLE": "true",
    }
    run(served, rclone, "sync", tree, f"c:{bucket}/t", "--s3-upload-cutoff", "8M", "--s3-chunk-size", "5M", **remote)
    run(served, rclone, "check", tree, f"c:{bucket}/t", **remote)
    run(served, rclone, "copy", f"c:{bucket}/t", tmp_path / "back", **remote)
    same(tree, tmp_path / "back")
    run(served, rclone, "move", f"c:{bucket}/t/d", f"c:{bucket}/u", **remote)
    assert "e/ü+&.bin" in run(served, rclone, "lsf", "-R", f"c:{bucket}/u", **remote)
    run(served, rclone, "purge", f"c:{bucket}", **remote)


def test_s5cmd(served, bucket, tree, tmp_path):
    s5cmd = program("s5cmd", "go install github.com/peak/s5cmd/v2@latest")
    run(served, s5cmd, "cp", f"{tree}/", f"s3://{bucket}/t/", S3_ENDPOINT_URL=served.url)
    assert len(run(served, s5cmd, "ls", f"s3://{bucket}/*", S3_ENDPOINT_URL=served.url).splitlines()) == 5
    run(served, s5cmd, "cp", f"s3://{bucket}/t/*", f"{tmp_path / 'back'}/", S3_ENDPOINT_URL=served.url)
    same(tree, tmp_path / "back")
    run(served, s5cmd, "rm", f"s3://{bucket}/*", S3_ENDPOINT_URL=served.url)
    run(served, s5cmd, "rb", f"s3://{bucket}", S3_ENDPOINT_URL=served.url)


def test_mc(served, bucket, tree, tmp_path):
    mc = program("mc", "go install github.com/minio/mc@latest")
    if "MinIO" not in subprocess.run([mc, "--version"], capture_output=True, text=True, check=False).stdout:
        pytest.skip(f"{mc} is another program of this name")
    key, secret = served.keys["ann"]
    alias = {"MC_CONFIG_DIR": str(tmp_path / "mc"), "MC_HOST_c": served.url.replace("://", f"://{key}:{secret}@")}
    run(served, mc, "mirror", tree, f"c/{bucket}/t", **alias)
    run(served, mc, "mirror", f"c/{bucket}/t", tmp_path / "back", **alias)
    same(tree, tmp_path / "back")
    assert run(served, mc, "diff", tree, f"c/{bucket}/t", **alias) == ""
    run(served, mc, "rb", "--force", f"c/{bucket}", **alias)


def test_fsspec(served, bucket, rng):
    s3fs = pytest.importorskip("s3fs", reason="s3fs is not installed")
    key, secret = served.keys["ann"]
    fs = s3fs.S3FileSystem(
        key=key,
        secret=secret,
        client_kwargs={"endpoint_url": served.url, "region_name": "us-east-1"},
        use_listings_cache=False,
    )
    body = rng.randbytes(12 << 20)
    with fs.open(f"{bucket}/d/big", "wb", block_size=5 << 20) as file:
        file.write(body)
    fs.pipe(f"{bucket}/d/small", b"123")
    with fs.open(f"{bucket}/d/big", "rb") as file:
        file.seek(7_000_000)
        assert file.read(1000) == body[7_000_000:7_001_000]
    assert fs.cat(f"{bucket}/d/big") == body
    assert sorted(fs.find(bucket)) == [f"{bucket}/d/big", f"{bucket}/d/small"]
    assert fs.ls(bucket, detail=False) == [f"{bucket}/d"]
    assert fs.info(f"{bucket}/d/small")["size"] == 3
    fs.mv(f"{bucket}/d/small", f"{bucket}/e/small")
    assert fs.cat(f"{bucket}/e/small") == b"123" and not fs.exists(f"{bucket}/d/small")
    fs.rm(bucket, recursive=True)


def test_pyarrow(served, bucket, rng):
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from pyarrow import dataset, fs, parquet

    key, secret = served.keys["ann"]
    there = fs.S3FileSystem(
        access_key=key,
        secret_key=secret,
        endpoint_override=served.url.removeprefix("http://"),
        scheme="http",
        region="us-east-1",
    )
    for part in range(3):
        table = pyarrow.table({"n": list(range(part * 1000, part * 1000 + 1000)), "part": [part] * 1000})
        parquet.write_table(table, f"{bucket}/t/{part}.parquet", filesystem=there)
    read = dataset.dataset(f"{bucket}/t", filesystem=there, format="parquet").to_table()
    assert sorted(read["n"].to_pylist()) == list(range(3000))
    with there.open_output_stream(f"{bucket}/big") as stream:
        body = rng.randbytes(11 << 20)
        stream.write(body)
    assert there.open_input_file(f"{bucket}/big").read() == body
    there.create_dir(f"{bucket}/empty")
    assert there.get_file_info(f"{bucket}/empty").type == fs.FileType.Directory
    there.delete_dir_contents(bucket)


def test_duckdb(served, bucket, tmp_path):
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    connection = duckdb.connect()
    try:
        connection.execute("INSTALL httpfs; LOAD httpfs;")
    except duckdb.Error as error:
        pytest.skip(f"DuckDB cannot load httpfs: {str(error)[:80]}")
    key, secret = served.keys["ann"]
    connection.execute(
        f"CREATE SECRET (TYPE s3, KEY_ID '{key}', SECRET '{secret}', REGION 'us-east-1', "
        f"ENDPOINT '{served.url.removeprefix('http://')}', URL_STYLE 'path', USE_SSL false)"
    )
    connection.execute(f"COPY (SELECT range AS n FROM range(100000)) TO 's3://{bucket}/d/n.parquet'")
    assert connection.execute(f"SELECT sum(n) FROM 's3://{bucket}/d/*.parquet'").fetchone() == (4999950000,)
