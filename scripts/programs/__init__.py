"""Real programs on a mounted store, unmodified: the same results as on the machine's own file systems.

    make programs ARGS="--only git,sqlite"

Each program (`scripts.py`) is a shell script that works in an empty directory, once in each place (`places.py`): the
machine's disk, tmpfs, the mount. The resulting files are compared one by one (`tree.py`): bytes, modes, links, and
times to the second where the program sets them.
"""
