"""The same random sequence of HDF5 calls on a Cenote store and on a native file: every result must be the same.

Run it with `make differential ARGS="--operations 1000000 --seed N"`; what it covers is in the modules `on_*`.
"""
