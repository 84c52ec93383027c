"""Ordinary programs with h5py, netCDF4 and xarray. They take paths and know nothing of Cenote."""
