"""An ordinary parallel h5py program: every rank writes its part, collectively and independently. Run by all ranks."""

import sys

import h5py
import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, ranks = comm.rank, comm.size
path = sys.argv[1]
rows, columns = 4 * ranks, 500
whole = np.arange(rows * columns, dtype="f8").reshape(rows, columns)
mine = slice(4 * rank, 4 * rank + 4)

with h5py.File(path, "w", driver="mpio", comm=comm) as f:
    assert f.driver == "mpio"
    f.attrs["title"] = "made by all ranks"
    f.attrs["steps"] = np.arange(5)
    plain = f.create_dataset("plain", (rows, columns), "f8")
    plain[mine] = whole[mine]
    packed = f.create_dataset("a/b/packed", (rows, columns), "f4", chunks=(3, 100), compression="gzip", shuffle=True)
    with packed.collective:
        packed[mine] = whole[mine].astype("f4")
    grown = f.create_dataset("grown", (0,), "i8", maxshape=(None,), chunks=(7,))
    for step in range(5):
        grown.resize((grown.shape[0] + ranks,))
        assert grown.shape == ((step + 1) * ranks,), grown.shape
        grown[step * ranks + rank] = step * 1000 + rank
    for number in range(10):
        group = f.create_group(f"groups/{number}")
        assert len(f["groups"]) == number + 1
        group.attrs["number"] = number
    del f["groups/3"]
    f.move("groups/4", "groups/four")
    f["alias"] = plain
    f.flush()
    comm.barrier()
    other = (rank + 1) % ranks
    assert (plain[4 * other : 4 * other + 4] == whole[4 * other : 4 * other + 4]).all()
    assert (packed[4 * other : 4 * other + 4] == whole[4 * other : 4 * other + 4]).all()

with h5py.File(path, "r", driver="mpio", comm=comm) as f:
    with f["plain"].collective:
        assert (f["plain"][:] == whole).all()
    assert (f["a/b/packed"][:] == whole.astype("f4")).all()
    assert (f["grown"][:].reshape(5, ranks) == np.arange(5)[:, None] * 1000 + np.arange(ranks)).all()
    assert sorted(f["groups"]) == [*sorted("01256789"), "four"]
    assert f.attrs["title"] == "made by all ranks" and list(f.attrs["steps"]) == list(range(5))
    assert f["alias"] == f["plain"]

# Region references, which native HDF5 does not write in parallel programs, lead to the right places on all ranks.
with h5py.File(path, "r+", driver="mpio", comm=comm) as f:
    refs = f.create_dataset("refs", (ranks,), h5py.regionref_dtype)
    refs[rank] = f["plain"].regionref[rank, : rank + 1]
    f.attrs["ref"] = f["plain"].regionref[1]
    comm.barrier()
    assert all((f["plain"][refs[r]] == whole[r, : r + 1]).all() for r in range(ranks))
    assert (f["plain"][f.attrs["ref"]] == whole[1]).all()

# A native file that all ranks change stays native.
native = path + ".native"
if rank == 0:
    with h5py.File("in memory", "w", driver="core", backing_store=False) as f:
        f["old"] = 5
        f.flush()
        image = f.id.get_file_image()
    with open(native, "wb") as out:
        out.write(image)
comm.barrier()
with h5py.File(native, "r+", driver="mpio", comm=comm) as f:
    added = f.create_dataset("added", (ranks,), "i8")
    with added.collective:
        added[rank] = rank + int(f["old"][()])
with h5py.File(native, "r", driver="mpio", comm=comm) as f:
    assert (f["added"][:] == np.arange(ranks) + 5).all()
if rank == 0:
    with open(native, "rb") as f:
        assert b"Cenote" not in f.read()

if rank == 0:
    with h5py.File(path, "r") as f:
        assert (f["plain"][:] == whole).all()
    version = h5py.version.hdf5_version
    print(f"h5py {h5py.__version__}, HDF5 {version}: right with {ranks} ranks")
