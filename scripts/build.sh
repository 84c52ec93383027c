#!/usr/bin/env bash
# Builds the release: the cenote command (with the libraries of `cenote advise` and `cenote run` beside it), the HDF5
# connector, the C library, and the Python module into .venv. Names and leaves out parts that are not in the tree yet.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/env.sh

parts=()
for package in cenote-cli cenote-hdf5 cenote-trace cenote-preload cenote-c; do
  if cargo pkgid --quiet --locked -p $package >/dev/null 2>&1; then parts+=(-p $package); else echo "build: $package is not there yet"; fi
done
if [ ${#parts[@]} -gt 0 ]; then
  cargo build --release --locked "${parts[@]}"
fi

# HDF5 opens every library in its plugin directory to inspect it, so the connector gets a directory of its own.
if [ -f target/release/libcenote_hdf5.so ]; then
  mkdir -p target/hdf5-plugin
  ln -sfn ../release/libcenote_hdf5.so target/hdf5-plugin/libcenote_hdf5.so
  # The connector looks for the daemon's program beside itself.
  ln -sfn ../release/cenote target/hdf5-plugin/cenote
fi
# Puts the command into PATH for whoever activates .venv.
[ ! -x target/release/cenote ] || ln -sfn ../../target/release/cenote .venv/bin/cenote

# maturin calls cargo each time, which is fast, but then packs and installs, which is slow: run it only when sources
# changed.
if cargo pkgid --quiet --locked -p cenote-python >/dev/null 2>&1; then
  stamp=.venv/.cenote-module
  if [ ! -e $stamp ] || [ -n "$(find Cargo.lock crates views bindings/python -newer $stamp -type f \
      \( -name '*.rs' -o -name '*.toml' -o -name '*.lock' -o -name '*.py' -o -name '*.pyi' \) -print -quit)" ]; then
    VIRTUAL_ENV="$PWD/.venv" PATH="$PWD/.venv/bin:$PATH" \
      maturin develop --release --locked --quiet --manifest-path bindings/python/Cargo.toml
    touch $stamp
  fi
fi
