"""The main job of `make run`: real, unmodified HDF5 programs on a tiered store, compared with the same on native
files.

`programs/` has the programs: they use h5py, netCDF4 and xarray as shipped on PyPI, run as separate processes, and
know
nothing of Cenote. Everything else here decides what to run where, and compares. Nothing here imports the Cenote
Python
module: the programs see only what `HDF5_PLUGIN_PATH` and `HDF5_VOL_CONNECTOR` give them.
"""
