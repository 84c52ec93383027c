#!/usr/bin/env bash
# Tiers that vanish, fill, fail and shrink while data move between them, in simulation and for real, and a daemon that
# dies at every fourth step of moves (`chaos --stride 1`: at every step, ten minutes). At most five minutes, without the
# build: scripts/chaos.sh [SEED]
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/env.sh
seed=${1:-0}

cargo build --release --locked --quiet -p cenote-testkit --bin simulate --bin chaos
status=0
echo "chaos: devices under weather, in simulated time"
target/release/simulate --weather --from "$seed" --seeds 200000 --seconds 90 || status=$?
echo "chaos: deaths at every step of moves between memory, files, a directory and a bucket"
CENOTE_SEED=$seed target/release/chaos --stride 4 --seconds 130 || status=$?
echo "chaos: real tiers that are cut off, removed, full, refused, meddled with and silent"
cargo test --release --locked --quiet -p cenote-testkit --test layers -- --include-ignored || status=$?
[ $status = 0 ] || echo "chaos: FAILED (see above)" >&2
exit $status
