"""Finds the parts of Cenote that are not Python: the `cenote` command and the HDF5 connector."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from ._errors import NotFound

CONNECTOR_FILE = "libcenote_hdf5.so"


def _tree() -> Path | None:
    """The source tree in which this module was built in place, if it was."""
    for parent in Path(__file__).resolve().parents:
        if (parent / "crates" / "cli").is_dir() and (parent / "Cargo.toml").is_file():
            return parent
    return None


def _build_dirs() -> Iterator[Path]:
    tree = _tree()
    if tree is not None:
        target = Path(os.environ.get("CARGO_TARGET_DIR", tree / "target"))
        yield target / "release"
        yield target / "debug"


def program() -> Path | None:
    """The `cenote` command: `CENOTE_BIN`, else one installed beside this module or Python, built here, or in `PATH`."""
    if named := os.environ.get("CENOTE_BIN"):
        return Path(named)
    package = Path(__file__).resolve().parent
    for folder in (package / "bin", Path(sys.executable).parent, *_build_dirs()):
        if os.access(folder / "cenote", os.X_OK):
            return folder / "cenote"
    found = shutil.which("cenote")
    return Path(found) if found else None


def connector_dir() -> Path:
    """The folder of the HDF5 connector: `CENOTE_HDF5_PLUGIN_DIR`, else installed beside this module, or built here."""
    # HDF5 opens every library in its plugin folder, so the connector has its own.
    folders = [Path(__file__).resolve().parent / "hdf5"]
    if named := os.environ.get("CENOTE_HDF5_PLUGIN_DIR"):
        folders = [Path(named)]
    else:
        folders += [folder.parent / "hdf5-plugin" for folder in _build_dirs()][:1]
        if (found := program()) is not None:
            folders.append(found.resolve().parent.parent / "lib" / "cenote-hdf5")
    for folder in folders:
        if (folder / CONNECTOR_FILE).is_file():
            return folder
    raise NotFound(
        f"HDF5 connector {CONNECTOR_FILE}",
        "it is not in " + ", ".join(map(str, folders)),
        "build it (make build), or name its folder in CENOTE_HDF5_PLUGIN_DIR",
        "not found",
    )


def hdf5_environment(store: object) -> dict[str, str]:
    """Environment variables that make HDF5 programs (h5py, netCDF4, xarray, ...) keep their files in a store.

    store: its directory, or an open `Store`. Set them before HDF5 is loaded: in `os.environ` before the import, or for
    a
    program to be started: `subprocess.run(..., env=os.environ | cenote.hdf5_environment(dir))`.
    """
    directory = os.path.abspath(getattr(store, "dir", store))  # noqa: PTH100 (Path.absolute keeps "..")
    variables = {"HDF5_PLUGIN_PATH": str(connector_dir()), "HDF5_VOL_CONNECTOR": f"cenote store={directory}"}
    if (found := program()) is not None:
        variables["CENOTE_BIN"] = str(found)
    return variables
