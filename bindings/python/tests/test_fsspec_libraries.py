"""Libraries that know nothing of Cenote read and write `cenote://` URLs. Libraries that are not installed are
skipped."""

from collections.abc import Iterator
from pathlib import Path

import cenote
import numpy as np
import pytest
from hdf5_programs import run
from small import MIB, tiers

pytest.importorskip("fsspec", reason="fsspec is not installed")

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*Numcodecs codecs are not in the Zarr version 3 specification"),
    pytest.mark.filterwarnings("ignore:.*Consolidated metadata is currently not part"),
]


@pytest.fixture
def url(folder: Path) -> Iterator[str]:
    with cenote.open(folder / "store", mode="daemon", tiers=tiers(folder, memory=64 * MIB)):
        yield f"cenote://{folder / 'store'}//bucket"
    cenote.stop(folder / "store")


def test_pandas(url: str) -> None:
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    table = pd.DataFrame({"a": range(100), "b": np.arange(100.0) / 3, "c": ["x", "y"] * 50})
    table.to_csv(f"{url}/deep/down/t.csv", index=False)
    pd.testing.assert_frame_equal(pd.read_csv(f"{url}/deep/down/t.csv"), table)
    table.to_json(f"{url}/t.json.gz")
    pd.testing.assert_frame_equal(pd.read_json(f"{url}/t.json.gz"), table)
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    table.to_parquet(f"{url}/t.parquet")
    pd.testing.assert_frame_equal(pd.read_parquet(f"{url}/t.parquet"), table)
    table.to_parquet(f"{url}/parts", partition_cols=["c"])
    found = pd.read_parquet(f"{url}/parts", filters=[("c", "==", "y")])
    np.testing.assert_array_equal(np.sort(found["a"]), np.arange(1, 100, 2))


def test_pyarrow(url: str) -> None:
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from fsspec.core import url_to_fs
    from pyarrow import dataset, feather, fs

    found, path = url_to_fs(url)
    handler = fs.PyFileSystem(fs.FSSpecHandler(found))
    table = pa.table({"a": range(1000), "k": [0, 1] * 500})
    dataset.write_dataset(table, f"{path}/set", filesystem=handler, format="parquet", partitioning=["k"])
    back = dataset.dataset(f"{path}/set", filesystem=handler, format="parquet", partitioning=["k"])
    assert back.count_rows(filter=dataset.field("k") == 1) == 500
    with found.open(f"{path}/t.feather", "wb") as file:
        feather.write_feather(table, file)
    with pa.ipc.open_file(pa.py_buffer(found.view(f"{path}/t.feather"))) as reader:
        assert reader.read_all().equals(table)


def test_dask(url: str) -> None:
    dask = pytest.importorskip("dask", reason="dask is not installed")
    bag = pytest.importorskip("dask.bag", reason="dask.bag needs more than is installed")
    with dask.config.set(scheduler="threads"):
        bag.from_sequence([f"line {i}" for i in range(20)], npartitions=4).to_textfiles(f"{url}/lines/*.txt")
        assert sorted(bag.read_text(f"{url}/lines/*.txt").map(str.strip).compute())[0] == "line 0"
    pytest.importorskip("zarr", reason="zarr is not installed")
    array = pytest.importorskip("dask.array", reason="dask.array needs more than is installed")
    numbers = array.arange(10_000, chunks=1000).reshape(100, 100)
    numbers.to_zarr(f"{url}/numbers.zarr")
    assert array.from_zarr(f"{url}/numbers.zarr").sum().compute() == 49_995_000


def test_xarray_zarr_on_files(url: str) -> None:
    xr = pytest.importorskip("xarray", reason="xarray is not installed")
    pytest.importorskip("zarr", reason="zarr is not installed")
    data = xr.Dataset(
        {"t": (("time", "x"), np.arange(12.0).reshape(3, 4), {"units": "K"})},
        {"time": [1, 2, 3], "x": list("abcd"), "height": 2.5},
    )
    data.to_zarr(f"{url}/run.zarr")
    xr.testing.assert_identical(xr.open_zarr(f"{url}/run.zarr").load(), data)
    data.assign_coords(time=[4, 5, 6]).to_zarr(f"{url}/run.zarr", append_dim="time")
    assert xr.open_zarr(f"{url}/run.zarr")["t"].shape == (6, 4)


def test_xarray_reads_netcdf_files_of_the_store_as_zarr(url: str, folder: Path) -> None:
    xr = pytest.importorskip("xarray", reason="xarray is not installed")
    pytest.importorskip("zarr", reason="zarr is not installed")
    pytest.importorskip("netCDF4", reason="netCDF4 is not installed")
    code = """
import xarray as xr
data = xr.Dataset(
    {
        "t": (("time", "x"), np.arange(12.0).reshape(3, 4), {"units": "K", "list": [1, 2], "one": 0.5}),
        "plain": (("nowhere",), [1, 2]),
    },
    {"time": [1, 2, 3], "x": [10.0, 20.0, np.nan, 40.0]},
)
data["masked"] = data["t"].where(data["t"] > 5)
data.attrs["title"] = "a run"
data.to_netcdf("run.nc", encoding={"t": {"zlib": True, "shuffle": True, "chunksizes": (2, 2)}})
"""
    run(folder / "store", folder, code)
    from cenote.zarr import Hdf5Store

    for zarr_format in (2, 3):
        store = Hdf5Store(folder / "run.nc", zarr_format=zarr_format, read_only=True)
        found = xr.open_zarr(store, consolidated=False, zarr_format=zarr_format).load()
        assert dict(found.sizes) == {"time": 3, "x": 4, "nowhere": 2}
        assert (found.attrs, found["t"].attrs) == ({"title": "a run"}, {"units": "K", "list": [1, 2], "one": 0.5})
        np.testing.assert_array_equal(found["t"], np.arange(12.0).reshape(3, 4))
        np.testing.assert_array_equal(found["x"], [10.0, 20.0, np.nan, 40.0])
        np.testing.assert_array_equal(found["time"], [1, 2, 3])
        np.testing.assert_array_equal(found["masked"].notnull().sum(), 6)
        assert set(found.coords) == {"time", "x"}
    named = xr.open_zarr(f"{url.rpartition('/')[0]}/hdf5:{folder / 'run.nc'}", consolidated=False)
    np.testing.assert_array_equal(named["t"], np.arange(12.0).reshape(3, 4))


def test_xarray_writes_hdf5_through_zarr(url: str, folder: Path) -> None:
    xr = pytest.importorskip("xarray", reason="xarray is not installed")
    pytest.importorskip("zarr", reason="zarr is not installed")
    from cenote.zarr import Hdf5Store

    data = xr.Dataset(
        {"t": (("time", "x"), np.arange(12.0).reshape(3, 4), {"units": "K"})}, {"time": [1, 2, 3], "x": np.arange(4.0)}
    )
    plain = {"compressors": None}
    store = Hdf5Store(folder / "made.h5", folder / "store", create=True)
    # A new HDF5 file already has its root group.
    data.to_zarr(store, mode="a", consolidated=False, encoding={name: plain for name in ("t", "time", "x")})
    again = Hdf5Store(folder / "made.h5", read_only=True)
    xr.testing.assert_identical(xr.open_zarr(again, consolidated=False).load(), data)
    said = run(
        folder / "store",
        folder,
        'f = h5py.File("made.h5"); t = f["t"]; print(t[1].tolist(), t.attrs["units"], [d.label for d in t.dims])',
    )
    assert said == "[4.0, 5.0, 6.0, 7.0] K ['time', 'x']\n"


def test_torch(url: str) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    import fsspec
    from torch.utils.data import DataLoader, Dataset

    files = fsspec.core.url_to_fs(url)[0]
    for i in range(8):
        files.pipe_file(f"bucket/samples/{i}", np.full(4, i, "f4").tobytes())

    class Samples(Dataset):
        def __len__(self) -> int:
            return 8

        def __getitem__(self, i: int):  # type: ignore[no-untyped-def]
            return torch.frombuffer(bytearray(files.cat_file(f"bucket/samples/{i}")), dtype=torch.float32)

    for workers in (0, 2):
        batches = list(DataLoader(Samples(), batch_size=4, num_workers=workers))
        assert [batch.sum().item() for batch in batches] == [24.0, 88.0]
