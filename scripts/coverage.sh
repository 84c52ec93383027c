#!/usr/bin/env bash
# Which branches of crates/model, crates/store and crates/client the tests and the simulation reach: scripts/coverage.sh
# [SEEDS]
#
# The simulation runs as well, since it draws from the same generators as the property tests. Tests that check all files
# that a program writes may fail here: a program that they start with its own environment writes its counters beside
# them.
#
# The Python suites run on a copy of the tree below target/coverage, whose command, libraries and module are
# instrumented builds; target/release and .venv stay unchanged. Suites that repeat others with more rounds, or wait for
# services, are left out, and none runs longer than ten minutes. CENOTE_COVERAGE_SUITES names other suites, as paths;
# empty: none.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/env.sh
seeds=${1:-3000}
suites=${CENOTE_COVERAGE_SUITES-bindings/python/tests views/hdf5/tests views/s3/tests views/preload/tests}
left_out=(test_kills.py test_returned.py test_files_random.py test_differential.py test_s3_tier_silent.py test_fsspec_libraries.py)
file_s_max=600
command -v cargo-llvm-cov >/dev/null || cargo install --locked --quiet cargo-llvm-cov --version 0.9.1
rustup component list --installed 2>/dev/null | grep -q llvm-tools || rustup component add llvm-tools

export CARGO_TARGET_DIR="$PWD/target/coverage" CARGO_INCREMENTAL=0 CI=1
profiles="$CARGO_TARGET_DIR/profiles"
tree="$CARGO_TARGET_DIR/tree"
mkdir -p "$CARGO_TARGET_DIR"
eval "$(cargo llvm-cov show-env --sh 2>/dev/null)"
# Stable compilers accept the flag that counts branches only with this variable. Counters are a mapped file (%c), since
# many of the processes are killed. All crates of this repository are instrumented: a program whose own crate is not has
# no code that writes them.
export RUSTC_BOOTSTRAP=1
separator=$'\x1f'
export __CARGO_LLVM_COV_RUSTC_WRAPPER_RUSTFLAGS="-Cinstrument-coverage${separator}--cfg=coverage${separator}-Zcoverage-options=branch${separator}-Cllvm-args=-runtime-counter-relocation"
export LLVM_PROFILE_FILE="$CARGO_TARGET_DIR/main-%p-%2m%c.profraw"
tools="$(rustc --print target-libdir)/../bin"
find "$CARGO_TARGET_DIR" -maxdepth 1 -name '*.profraw' -delete
rm -rf "$profiles"
mkdir "$profiles"

# gather NAME: merges what processes have counted since the last call into one file. Each process writes megabytes, and
# there are thousands.
gather() {
  local list="$CARGO_TARGET_DIR/profiles.txt"
  find "$CARGO_TARGET_DIR" -maxdepth 1 -name '*.profraw' >"$list"
  [ -s "$list" ] || return 0
  "$tools/llvm-profdata" merge -sparse -failure-mode=all -f "$list" -o "$profiles/$1.profdata"
  xargs -d '\n' rm -f <"$list"
}

# A copy of the tree with its own target/release and .venv; the packages are those of the tree's .venv.
make_tree() {
  local packages
  rm -rf "$tree"
  mkdir -p "$tree/target/hdf5-plugin"
  git ls-files -z -co --exclude-standard | tar --null --files-from=- --ignore-failed-read -cf - | tar -xf - -C "$tree"
  ln -s "$CARGO_TARGET_DIR/debug" "$tree/target/release"
  ln -s ../release/libcenote_hdf5.so ../release/cenote "$tree/target/hdf5-plugin/"
  ln -s "$CARGO_TARGET_DIR/debug/lib_native.so" "$tree/bindings/python/python/cenote/_native.abi3.so"
  .venv/bin/python -m venv --without-pip "$tree/.venv"
  packages=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  # The instrumented module must come first. A folder named by a .pth is not searched for further .pth files, so the
  # other module is not found.
  printf '%s\n' "$tree/bindings/python/python" "$packages" >"$("$tree/.venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/tree.pth"
  ln -s "$CARGO_TARGET_DIR/debug/cenote" "$tree/.venv/bin/cenote"
}

# Builds what the suites use. The module is built as by maturin: without libpython, which the interpreter contains.
build_parts() {
  PYO3_BUILD_EXTENSION_MODULE=1 PYO3_PYTHON="$PWD/.venv/bin/python" \
    cargo build --locked -p cenote-cli -p cenote-hdf5 -p cenote-preload -p cenote-trace -p cenote-python
}

status=0
cargo test --locked --no-fail-fast -p cenote-model -p cenote-store -p cenote -p cenote-server -p cenote-testkit -p cenote-posix -p cenote-s3 -p cenote-cli --lib --bins --tests || status=$?
simulate=(cargo run --locked --quiet -p cenote-testkit --bin simulate --)
"${simulate[@]}" --seeds "$seeds" || status=$?
"${simulate[@]}" --weather --seeds "$((seeds / 3))" || status=$?
gather rust

if [ -n "$suites" ] && { build_parts || { status=$? && false; }; }; then
  make_tree
  skipped=$(printf '%s\n' "${left_out[@]}")
  # One file at a time, so that counters take little disk space.
  for file in $(cd "$tree" && find $suites -name 'test_*.py' | grep -vF "$skipped" | sort); do
    echo "coverage: $file"
    (
      unset CARGO_TARGET_DIR
      cd "$tree"
      export PATH="$tree/.venv/bin:$PATH" CENOTE_BIN="$tree/target/release/cenote"
      timeout "$file_s_max" .venv/bin/python -m pytest -q -p no:cacheprovider "$file"
    ) || [ $? = 5 ] || status=1 # 5: there is no test for this machine
    gather "$(tr / - <<<"${file%.py}")"
  done
fi

# Each program separately: llvm-cov ends with SIGSEGV if it gets all of them.
"$tools/llvm-profdata" merge -sparse "$profiles"/*.profdata -o "$CARGO_TARGET_DIR/main.profdata"
{
  find "$CARGO_TARGET_DIR/debug" "$CARGO_TARGET_DIR/debug/deps" -maxdepth 1 -type f -executable ! -name '*.so'
  find "$CARGO_TARGET_DIR/debug" -maxdepth 1 -name '*.so'
} | "$PYTHON" scripts/coverage.py "$tools/llvm-cov" "$CARGO_TARGET_DIR/main.profdata" "$CARGO_TARGET_DIR/unreached.txt"
exit $status
