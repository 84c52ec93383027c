#!/usr/bin/env bash
# Runs all Rust and Python tests. Each runner prints its own summary; the exit code is 0 only if both pass.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/env.sh

# dev or release. With release, nothing is built twice that `make build` has built.
profile=${CENOTE_TEST_PROFILE:-dev}
[ "$profile" = dev ] && built=debug || built=$profile

# make builds the release first: the C programs of the tests take its library instead of building another one.
export CENOTE_C_LIBRARY_DIR="${CARGO_TARGET_DIR:-$PWD/target}/release"
# The tests build the examples.
export CENOTE_EXAMPLES_DIR="${CARGO_TARGET_DIR:-$PWD/target}/$built/examples"
# The tests load the machine themselves: nodes of a cluster are given up later than on one that does nothing else.
export CENOTE_HA_FACTOR=${CENOTE_HA_FACTOR:-2}
status=0
cargo test --workspace --locked --no-fail-fast --profile "$profile" || status=$?

dirs=()
for dir in scripts/tests campaign/tests bindings/python/tests crates/cli/tests/observing views/hdf5/tests views/s3/tests views/preload/tests examples views/tests; do
  [ -d $dir ] && [ -n "$(find $dir -name 'test_*.py' -print -quit)" ] && dirs+=($dir)
done
.venv/bin/python -m pytest -q "${dirs[@]}" || status=$?
[ $status = 0 ] || echo "test: failed (the first failing runner is above)" >&2
exit $status
