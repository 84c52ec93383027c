"""The content of a file as a flat table from names to text: one view per library.

A program imports only the view that it needs: each loads its library with that library's HDF5.
"""
