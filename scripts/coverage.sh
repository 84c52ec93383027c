#!/usr/bin/env bash
# Which branches of crates/model, crates/store and crates/client the tests and the simulation reach: scripts/coverage.sh [SEEDS]
# The simulation runs as well, since it draws from the same generators as the property tests. Tests that look at all that a program writes
# may fail here: a program that they start with an environment of its own writes its counters beside.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/env.sh
seeds=${1:-3000}
command -v cargo-llvm-cov >/dev/null || cargo install --locked --quiet cargo-llvm-cov --version 0.9.1
rustup component list --installed 2>/dev/null | grep -q llvm-tools || rustup component add llvm-tools

export CARGO_TARGET_DIR="$PWD/target/coverage" CARGO_INCREMENTAL=0 CI=1
mkdir -p "$CARGO_TARGET_DIR"
eval "$(cargo llvm-cov show-env --sh 2>/dev/null)"
# Branches are counted by a flag that stable compilers keep behind this variable. Counters are a mapped file (%c), since many of the
# processes are killed. All crates of ours are instrumented: a program whose own crate is not has nothing that writes them.
export RUSTC_BOOTSTRAP=1
separator=$'\x1f'
export __CARGO_LLVM_COV_RUSTC_WRAPPER_RUSTFLAGS="-Cinstrument-coverage${separator}--cfg=coverage${separator}-Zcoverage-options=branch${separator}-Cllvm-args=-runtime-counter-relocation"
export LLVM_PROFILE_FILE="$CARGO_TARGET_DIR/main-%p-%2m%c.profraw"
find "$CARGO_TARGET_DIR" -maxdepth 1 -name '*.profraw' -delete

status=0
cargo test --locked --no-fail-fast -p cenote-model -p cenote-store -p cenote -p cenote-server -p cenote-testkit -p cenote-posix -p cenote-s3 -p cenote-cli --lib --bins --tests || status=$?
simulate=(cargo run --locked --quiet -p cenote-testkit --bin simulate --)
"${simulate[@]}" --seeds "$seeds" || status=$?
"${simulate[@]}" --weather --seeds "$((seeds / 3))" || status=$?
# Each program by itself: llvm-cov ends with SIGSEGV where it is given all of them.
tools="$(rustc --print target-libdir)/../bin"
find "$CARGO_TARGET_DIR" -maxdepth 1 -name '*.profraw' >"$CARGO_TARGET_DIR/profiles.txt"
"$tools/llvm-profdata" merge -sparse -failure-mode=all -f "$CARGO_TARGET_DIR/profiles.txt" -o "$CARGO_TARGET_DIR/main.profdata"
find "$CARGO_TARGET_DIR/debug" "$CARGO_TARGET_DIR/debug/deps" -maxdepth 1 -type f -executable ! -name '*.so' |
  "$PYTHON" scripts/coverage.py "$tools/llvm-cov" "$CARGO_TARGET_DIR/main.profdata" "$CARGO_TARGET_DIR/unreached.txt"
exit $status
