#!/usr/bin/env bash
# The read-only gate: format, lints, rooms, generated files, documentation. Changes nothing; `make fix` is the command
# that writes. Runs every check even after one has failed, and names the failed ones.
set -uo pipefail
cd "$(dirname "$0")/.."
. scripts/env.sh

failed=()
check() {
  local name=$1
  shift
  printf 'verify: %s\n' "$name"
  "$@" || failed+=("$name")
}

check "Rust format"        cargo fmt --all -- --check
# With the profile of the tests, they find macros and what build scripts made ready.
profile=${CENOTE_TEST_PROFILE:-dev}
check "Rust lints"         cargo clippy --workspace --all-targets --locked --quiet --profile "$profile" -- -D warnings
check "Python format"      .venv/bin/ruff format --quiet --check .
check "Python lints"       .venv/bin/ruff check --quiet .
check "rooms"              .venv/bin/python -m scripts.checks.rooms
check "dependencies page"  .venv/bin/python -m scripts.checks.dependencies
check "documentation links" .venv/bin/python -m scripts.checks.links
check "versions of formats" .venv/bin/python -m scripts.checks.format_versions
check "machine paths"      .venv/bin/python -m scripts.checks.machine_paths
check "sizes of functions and files" .venv/bin/python -m scripts.checks.sizes
check "comments"           .venv/bin/python -m scripts.checks.comments
check "modules of other crates" .venv/bin/python -m scripts.checks.module_paths
check "features of release builds" .venv/bin/python -m scripts.checks.features
check "names of test modules" .venv/bin/python -m scripts.checks.module_names
[ -x bindings/c/check-header.sh ] && check "generated C header" bindings/c/check-header.sh

if [ ${#failed[@]} -gt 0 ]; then
  printf 'verify: FAILED:' >&2
  printf ' [%s]' "${failed[@]}" >&2
  printf '\nverify: `make fix` mends format and some lints; the rest is named above\n' >&2
  exit 1
fi
echo "verify: all checks passed"
