"""The same random sequence of HDF5 calls on a Cenote store and on a native file: every result must be the same.

Run it with `make differential ARGS="--operations 1000000 --seed N"`; what it covers is in the modules `on_*`.
"""

import sys
from pathlib import Path

# What tests in Python share is in `scripts`.
sys.path.append(str(Path(__file__).resolve().parents[4]))
