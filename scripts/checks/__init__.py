"""Checks of `make verify` that no existing tool does. They read the tree and change nothing."""
