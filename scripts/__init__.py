"""The Makefile's scripts. The checks are in Python so that they can be tested."""
