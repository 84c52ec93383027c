"""The same random sequence of HDF5 calls on a Cenote store and on a native file: every result must be the same.

Run it with `make differential ARGS="--operations 1000000 --seed N"`; the modules `on_*` list what it covers.
"""

import sys
from pathlib import Path

# Shared Python test code is in `scripts`.
sys.path.append(str(Path(__file__).resolve().parents[4]))
