#!/usr/bin/env bash
# Runs the fuzz targets under libFuzzer, each for a limited time: scripts/fuzz.sh [SECONDS [TARGET...]]
# Needs a C++ compiler and nothing else: the coverage pass is in every rustc, and the address sanitizer comes with it.
# Findings are in target/fuzz/artifacts/TARGET, the corpus is in target/fuzz/corpus/TARGET, and
# `cargo run -p cenote-testkit --bin fuzz -- replay TARGET FILE` reproduces a finding.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/env.sh
seconds=${1:-60}
[ $# = 0 ] || shift
command -v c++ >/dev/null || { echo "fuzz: libFuzzer needs a C++ compiler; next step: apt-get install g++" >&2; exit 1; }

work=$PWD/target/fuzz
host=$(rustc -vV | sed -n 's/^host: //p')
flags="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters"
flags="$flags -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing"
flags="$flags -Ccodegen-units=1 -Zsanitizer=address"
# The sanitizer is stable but its switch is not: this variable lets any compiler accept it.
RUSTC_BOOTSTRAP=1 RUSTFLAGS="$flags" cargo build --release --quiet --manifest-path fuzz/Cargo.toml \
  --target "$host" --target-dir "$work/build"
cargo run --quiet --locked -p cenote-testkit --bin fuzz -- seeds "$work/seeds"
mkdir -p "$work/seeds/hdf5_records" "$work/seeds/hdf5_filters"
[ $# -gt 0 ] || set -- $(cargo run --quiet --locked -p cenote-testkit --bin fuzz -- list) hdf5_records hdf5_filters

status=0
for target in "$@"; do
  mkdir -p "$work/corpus/$target" "$work/artifacts/$target"
  # Limits: 2 GiB for the process, 1 GiB for one allocation, 20 s for one input; exceeding one is a finding.
  if "$work/build/$host/release/$target" -max_total_time="$seconds" -rss_limit_mb=2048 -malloc_limit_mb=1024 -timeout=20 \
      -max_len=16384 -print_final_stats=1 -artifact_prefix="$work/artifacts/$target/" \
      "$work/corpus/$target" "$work/seeds/$target" >"$work/$target.log" 2>&1; then
    printf 'fuzz: %-12s %s inputs, nothing found\n' "$target" "$(sed -n 's/^stat::number_of_executed_units: *//p' "$work/$target.log")"
  else
    status=1
    printf 'fuzz: %-12s FOUND something: see %s\n' "$target" "target/fuzz/$target.log"
    grep -m1 -E 'panicked at|ERROR: ' -A1 "$work/$target.log" | sed 's/^/  /' || true
  fi
done
exit $status
