//! No code: `tests/header.rs` generates and checks `cenote.h`. It is a package of its own because it needs the sources of
//! `cenote-c` and not what they depend on, so that `make verify` does not build the store.
