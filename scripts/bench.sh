#!/usr/bin/env bash
# Measures against references in one run: scripts/bench.sh [ARGS of cenote-benches]
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/env.sh
cargo build --release --locked --quiet -p cenote-benches -p cenote-cli
# Clients start the daemon of this build.
export CENOTE_BIN="${CENOTE_BIN:-$PWD/target/release/cenote}"
exec target/release/cenote-benches "$@"
