#!/usr/bin/env bash
# Runs one of the testkit's programs, built for release: scripts/testkit.sh NAME [ARGS]
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/env.sh
name=$1
shift
if [ ! -f crates/testkit/Cargo.toml ]; then
  echo "testkit: crates/testkit is not there yet" >&2
  exit 1
fi
exec cargo run --release --locked --quiet -p cenote-testkit --bin "$name" -- "$@"
