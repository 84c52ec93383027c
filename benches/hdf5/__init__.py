"""Kernels of parallel codes on native HDF5 and on Cenote."""
