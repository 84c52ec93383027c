"""Stores that this process has open because something in them was named: one session per directory."""

import os
import threading
from pathlib import Path

from . import _native

_lock = threading.Lock()
_open: dict[str, _native.Store] = {}


def directory(store: "str | os.PathLike[str] | _native.Store") -> str:
    """The absolute directory of a store, given the store or its directory."""
    return os.path.abspath(store.dir if isinstance(store, _native.Store) else store)  # noqa: PTH100 (keeps "..")


def default_directory() -> str:
    """The default store: `CENOTE_STORE`, else the one below the user's data directory."""
    if named := os.environ.get("CENOTE_STORE"):
        return directory(named)
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share"
    return str(Path(data) / "cenote/default")


def session(store: "str | os.PathLike[str] | _native.Store | None") -> _native.Store:
    """The given store, or this process's session with the store in a directory, which stays open. None: the default
    store."""
    if isinstance(store, _native.Store):
        with _lock:
            _open.setdefault(directory(store), store)
        return store
    where = default_directory() if store is None else directory(store)
    with _lock:
        found = _open.get(where)
        if found is None or found.closed:
            # A misspelt directory is an error; the default store is made when first needed.
            found = _open[where] = _native.open(where, mode="daemon", create=where == default_directory())
        return found
