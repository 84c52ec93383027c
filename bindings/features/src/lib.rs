//! No code: its manifest asks for features of libraries, so that Cargo builds these once for all release builds.
//!
//! Cargo unites the features that the packages of one build ask for. The Python module and the C library alone ask for fewer
//! than the command does, some of them in libraries that all else lies on (`rustix`, `tokio`); so a build of each of them
//! would build the whole store once more, for some minutes. `scripts/checks/features.py` compares the sets.
//!
//! This room must not know what the libraries are used for: who uses one names it itself.
