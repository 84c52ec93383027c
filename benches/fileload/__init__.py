"""File access patterns of parallel programs (`load.c`), in several places in one run."""
