"""Where a program runs: on native files, or on a Cenote store. They differ in two environment variables."""

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

PLUGIN = "HDF5_PLUGIN_PATH"
CONNECTOR = "HDF5_VOL_CONNECTOR"


@dataclass(frozen=True)
class Place:
    """A directory for files, with its environment for HDF5."""

    name: str
    title: str
    dir: Path
    shared_file: bool
    environment: dict[str, str] = field(default_factory=dict)

    def child_environment(self) -> dict[str, str]:
        """The environment of a program that runs here."""
        own = {key: value for key, value in os.environ.items() if key not in (PLUGIN, CONNECTOR)}
        return own | self.environment

    def fresh(self, *names: str) -> Path:
        """Makes an empty directory here."""
        there = self.dir.joinpath(*names)
        shutil.rmtree(there, ignore_errors=True)
        there.mkdir(parents=True)
        return there


def native(name: str, title: str, where: Path) -> Place:
    """Plain HDF5. Serial HDF5 cannot write one file from several processes, so each rank has its own."""
    return Place(name, title, where, shared_file=False)


def cenote(store: Path, where: Path, plugins: Path) -> Place:
    """The same programs on a store: one file for all ranks."""
    environment = {PLUGIN: str(plugins), CONNECTOR: f"cenote store={store}"}
    return Place("cenote", "Cenote", where, shared_file=True, environment=environment)
