"""The main job of `make run`: real, unmodified HDF5 programs on a tiered store, beside the same on native files.

`programs/` are the programs: they use h5py, netCDF4 and xarray as PyPI ships them, run as processes of their own, and
know nothing of Cenote. Everything else here decides what to run where, and compares. Nothing here imports the Cenote
Python module: what the programs see is what `HDF5_PLUGIN_PATH` and `HDF5_VOL_CONNECTOR` give them.
"""
