"""HDF5 files of a store over S3: as .h5 objects, and as Zarr arrays in the buckets `hdf5-zarr` and `hdf5-zarr2`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from s3server import Served, command

h5py = pytest.importorskip("h5py", reason="h5py is not installed")
np = pytest.importorskip("numpy", reason="numpy is not installed")


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A separate server for these tests, which knows where h5py's libhdf5 is."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    found = {line.split()[-1] for line in maps if "/libhdf5-" in line or "/libhdf5.so" in line}
    server = Served(tmp_path_factory.mktemp("s3-hdf5") / "store")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CENOTE_HDF5_LIBRARY", found.pop())
        patch.setenv("CENOTE_BIN", str(command()))
        server.make()
        server.add("ann")
        server.start()
        yield server
        server.destroy()


@pytest.fixture
def hdf5(served, tmp_path):
    """Runs h5py code on the served store, in the test's folder."""
    library = command().resolve().with_name("libcenote_hdf5.so")
    if not library.exists():
        pytest.skip("the connector is not built: cargo build -p cenote-hdf5")
    (tmp_path / "plugin").mkdir()
    (tmp_path / "plugin" / library.name).symlink_to(library.resolve())
    env = {name: value for name, value in os.environ.items() if not name.startswith(("HDF5_", "CENOTE_"))}
    env |= {
        "HDF5_PLUGIN_PATH": str(tmp_path / "plugin"),
        "HDF5_VOL_CONNECTOR": f"cenote store={served.dir}",
        "CENOTE_BIN": str(command()),
    }

    def words(code):
        return [sys.executable, "-c", "import h5py, numpy as np\n" + code]

    def program(code):
        done = subprocess.run(
            words(code), cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def started(code):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        return subprocess.Popen(words(code), cwd=tmp_path, env=env, text=True, **pipes)

    program.started = started
    return program


MAKE = """
with h5py.File("run.h5", "w") as f:
    f.attrs["title"] = "over S3"
    f["plain"] = np.arange(1000.0).reshape(10, 100)
    data = np.arange(5000, dtype="i4").reshape(50, 100)
    f.create_dataset("g/packed", data=data, chunks=(16, 32), compression="gzip", shuffle=True)
    f["g"].attrs["n"] = 5
"""


def of(tmp_path, name="run.h5"):
    return f"{str(tmp_path)[1:]}/{name}"


def test_a_file_is_an_object(hdf5, s3, tmp_path):
    hdf5(MAKE)
    key = of(tmp_path)
    assert "hdf5" in [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]]
    (listed,) = s3.list_objects_v2(Bucket="hdf5", Prefix=key)["Contents"]
    body = s3.get_object(Bucket="hdf5", Key=key)["Body"].read()
    assert (listed["Key"], listed["Size"]) == (key, len(body))
    assert s3.head_object(Bucket="hdf5", Key=key)["ETag"] == listed["ETag"]
    (tmp_path / "plain.h5").write_bytes(body)
    with h5py.File(tmp_path / "plain.h5") as f:
        assert (f["g/packed"][:] == np.arange(5000).reshape(50, 100)).all() and f.attrs["title"] == "over S3"
    hdf5("with h5py.File('run.h5', 'r+') as f: f['plain'][0, 0] = -1")
    (tmp_path / "plain.h5").write_bytes(s3.get_object(Bucket="hdf5", Key=key)["Body"].read())
    with h5py.File(tmp_path / "plain.h5") as f:
        assert f["plain"][0, 0] == -1
    with pytest.raises(s3.exceptions.ClientError):
        s3.put_object(Bucket="hdf5", Key=key, Body=b"other")
    with pytest.raises(s3.exceptions.ClientError):
        s3.delete_object(Bucket="hdf5", Key=key)


def test_a_file_replaces_all_others_within_a_moment(hdf5, served, s3, tmp_path):
    """Names are compared once a second at most. A directory whose files left meanwhile stays if it has new ones."""
    code = """
import os, sys
for n in range(5):
    os.makedirs(f"at{n}")
    h5py.File(f"at{n}/run.h5", "w").close()
    if n > 0:
        os.remove(f"at{n - 1}/run.h5")
    print("made", flush=True)
    sys.stdin.readline()
"""
    with hdf5.started(code) as program:
        for n in range(5):
            assert program.stdout.readline() == "made\n"
            s3.head_object(Bucket="hdf5", Key=of(tmp_path, f"at{n}/run.h5"))
            print("looked at", file=program.stdin, flush=True)
        assert program.wait(timeout=60) == 0


def test_an_object_that_was_put_is_a_file(hdf5, s3, tmp_path):
    hdf5("h5py.File('other.h5', 'w')")  # creates the bucket
    s3.head_bucket(Bucket="hdf5")
    with h5py.File(tmp_path / "native.h5", "w") as f:
        f["x"] = np.arange(10)
    s3.put_object(Bucket="hdf5", Key=of(tmp_path, "put.h5"), Body=(tmp_path / "native.h5").read_bytes())
    assert hdf5("with h5py.File('put.h5', 'a') as f: f['x'][3] = 33; print(f['x'][:].sum())") == "75\n"
    (tmp_path / "back.h5").write_bytes(s3.get_object(Bucket="hdf5", Key=of(tmp_path, "put.h5"))["Body"].read())
    with h5py.File(tmp_path / "back.h5") as f:
        assert f["x"][3] == 33


@pytest.fixture
def files(served):
    s3fs = pytest.importorskip("s3fs", reason="s3fs is not installed")
    key, secret = served.keys["ann"]
    client = {"endpoint_url": served.url, "region_name": "us-east-1"}
    return s3fs.S3FileSystem(key=key, secret=secret, client_kwargs=client, use_listings_cache=False)


@pytest.fixture
def opened(served):
    """Opens a file of the store as a Zarr group over S3."""
    zarr = pytest.importorskip("zarr", reason="zarr is not installed")
    pytest.importorskip("s3fs", reason="s3fs is not installed")
    key, secret = served.keys["ann"]
    client = {"endpoint_url": served.url, "region_name": "us-east-1"}
    options = {"key": key, "secret": secret, "client_kwargs": client}

    def group(path, zarr_format, mode="r"):
        bucket = "hdf5-zarr" if zarr_format == 3 else "hdf5-zarr2"
        return zarr.open_group(f"s3://{bucket}/{path}", mode=mode, zarr_format=zarr_format, storage_options=options)

    return group


def test_h5py_reads_it_by_ranges(hdf5, files, tmp_path):
    hdf5(MAKE)
    with files.open(f"hdf5/{of(tmp_path)}") as stream, h5py.File(stream) as f:
        assert (f["plain"][5] == np.arange(500, 600)).all()


@pytest.mark.filterwarnings("ignore:.*")
@pytest.mark.parametrize("zarr_format", [3, 2])
def test_datasets_are_zarr_arrays(hdf5, opened, tmp_path, zarr_format):
    hdf5(MAKE)
    group = opened(of(tmp_path), zarr_format)
    assert group.attrs["title"] == "over S3"
    assert sorted(group.keys()) == ["g", "plain"] and group["g"].attrs["n"] == 5
    assert (group["plain"][:] == np.arange(1000.0).reshape(10, 100)).all()
    assert (group["g/packed"][:] == np.arange(5000).reshape(50, 100)).all()
    hdf5("with h5py.File('run.h5', 'r+') as f: f['g/packed'][0] = 7")
    assert (group["g/packed"][0] == 7).all()


@pytest.mark.filterwarnings("ignore:.*")
@pytest.mark.parametrize("zarr_format", [3, 2])
def test_zarr_writes_hdf5(hdf5, opened, tmp_path, zarr_format):
    hdf5(MAKE)
    group = opened(of(tmp_path), zarr_format, "r+")
    group["plain"][2] = 5
    group["g/packed"][10:20] = 3
    group.create_array("g/new", shape=(30, 4), chunks=(10, 4), dtype="f4", compressors=None)[:] = 1.5
    group["g"].attrs["unit"] = "K"
    del group["g/packed"]
    code = """
with h5py.File("run.h5") as f:
    assert (f["plain"][2] == 5).all() and (f["plain"][3] == np.arange(300, 400)).all()
    assert sorted(f["g"]) == ["new"] and (f["g/new"][:] == 1.5).all() and f["g"].attrs["unit"] == "K"
"""
    hdf5(code)


def test_rights_are_those_of_the_files_bucket(hdf5, served, s3, tmp_path):
    hdf5(MAKE)
    key = f"{of(tmp_path)}/zarr.json"
    assert s3.get_object(Bucket="hdf5-zarr", Key=key)["ContentLength"] > 10
    listed = s3.list_objects_v2(Bucket="hdf5-zarr", Prefix=f"{of(tmp_path)}/g/", Delimiter="/")
    assert [one["Prefix"].rsplit("/", 2)[1] for one in listed["CommonPrefixes"]] == ["packed"]
    pages = s3.get_paginator("list_objects_v2").paginate(
        Bucket="hdf5-zarr", Prefix=of(tmp_path), PaginationConfig={"PageSize": 3}
    )
    keys = [one["Key"] for page in pages for one in page.get("Contents", [])]
    assert len(keys) == len(set(keys)) == 1 + 2 + 1 + 1 + 16 and keys == sorted(keys)  # documents, a run, 4 by 4 chunks
    with pytest.raises(s3.exceptions.ClientError) as refused:
        served.client(None).get_object(Bucket="hdf5-zarr", Key=key)
    assert refused.value.response["Error"]["Code"] == "AccessDenied"
