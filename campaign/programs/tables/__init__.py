"""What is in a file, as a flat table from names to text: one view for each library.

A program imports only the view it needs: each brings its library and that library's HDF5 with it.
"""
