"""One store by all views at once: what one writes, all others read, held against a tree that the kernel keeps.

    make views ARGS="--operations 200000 --seed 1"

An episode is a container of its own (`episode.py`), or an HDF5 file of its own (`arrays.py`), and some hundred random
operations, each by a random view (`posix.py`, `files.py`, `fsspec_view.py`, `s3.py`). The oracle is a directory on
tmpfs: each operation is done there too, by the kernel, and what only S3 knows is kept beside (`oracle.py`). After each
operation every view is asked for what was touched; after some, for everything. `docs/views.md` has the rules.
"""

import sys
from pathlib import Path

# What tests in Python share is in `scripts`.
sys.path.append(str(Path(__file__).resolve().parents[3]))
