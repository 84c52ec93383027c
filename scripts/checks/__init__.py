"""Checks of `make verify` that no ready tool does. They read the tree and change nothing."""
