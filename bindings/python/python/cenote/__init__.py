"""Cenote, a multi-tier object store: one copy of the data on every kind of memory and storage of a machine.

import cenote, numpy

with cenote.open("/tmp/store") as store:
    runs = store.container("runs")
    obj = runs.create_object()
    obj.write(0, numpy.arange(1000.0))                      # any buffer, without an intermediate copy
    back = numpy.frombuffer(obj.view(0, 8000))              # by reference where it is in mapped memory
    index = runs.index(1)
    index[b"temperature"] = obj.id.encode()                 # ordered records, like a dict of bytes
    store.files.put("/results/a.txt", b"a file")             # directories and files, shared with S3, mount and preload
    with store.transaction() as tx:                         # all of it, or nothing
        tx.write(obj, 8000, b"more")
        tx.put(index, b"steps", b"2")
"""

import os as _os

from . import _find
from ._errors import (
    Busy,
    Conflict,
    Corrupt,
    Disconnected,
    Error,
    Exists,
    Full,
    InternalError,
    InvalidInput,
    IoError,
    LimitExceeded,
    NotFound,
    PermissionDenied,
    Unsupported,
    VersionMismatch,
)
from ._find import hdf5_environment
from ._native import (
    Container,
    ContainerInfo,
    ExplainedRange,
    Explanation,
    Files,
    FileSpace,
    FileStat,
    Finding,
    Index,
    InPlaceWrite,
    Object,
    Objects,
    ObjectStat,
    Op,
    RawFile,
    ReadOp,
    Records,
    SnapshotInfo,
    Store,
    StoreStats,
    TierInfo,
    Transaction,
    VerifyReport,
    View,
    ZarrTree,
    __version__,
    destroy,
    format_size,
    open,
    parse_size,
    stop,
    store_of_hdf5,
)
from ._tier import Tier

__all__ = [
    "Busy",
    "Conflict",
    "Container",
    "ContainerInfo",
    "Corrupt",
    "Disconnected",
    "Error",
    "Exists",
    "ExplainedRange",
    "Explanation",
    "FileSpace",
    "FileStat",
    "Files",
    "Finding",
    "Full",
    "InPlaceWrite",
    "Index",
    "InternalError",
    "InvalidInput",
    "IoError",
    "LimitExceeded",
    "NotFound",
    "Object",
    "ObjectStat",
    "Objects",
    "Op",
    "PermissionDenied",
    "RawFile",
    "ReadOp",
    "Records",
    "SnapshotInfo",
    "Store",
    "StoreStats",
    "Tier",
    "TierInfo",
    "Transaction",
    "Unsupported",
    "VerifyReport",
    "VersionMismatch",
    "View",
    "ZarrTree",
    "__version__",
    "destroy",
    "format_size",
    "hdf5_environment",
    "open",
    "parse_size",
    "stop",
    "store_of_hdf5",
]

# The native module starts a daemon where one is needed; this tells it which program came with this module.
if "CENOTE_BIN" not in _os.environ and (_program := _find.program()) is not None:
    _os.environ["CENOTE_BIN"] = str(_program)
