"""What the Makefile calls. The checks are Python so that they can be tested."""
