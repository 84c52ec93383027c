#!/usr/bin/env bash
# Sets up what building and running Cenote needs, reports each step, and skips what is done already. Root is needed only
# to install missing system packages; without it the script prints the command to run instead.
# Usage: scripts/setup.sh [--check]   --check: change nothing, exit 1 if anything is missing
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/env.sh

rust_least=1.92
python_least=3.11
check_only=no
[ "${1:-}" = --check ] && check_only=yes

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: %s\n' "$@" >&2; exit 1; }
at_least() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]; }

rust_version() { rustc --version 2>/dev/null | cut -d' ' -f2 || true; }
rust_is_there() { command -v cargo >/dev/null && at_least "$rust_least" "$(rust_version)" 2>/dev/null; }
python_is_there() {
  "$PYTHON" -c "import sys, venv, ensurepip; sys.exit(sys.version_info < tuple(map(int, '$python_least'.split('.'))))" 2>/dev/null
}

# Missing tools, checked by function rather than by package, so that other distributions work as well.
packages=()
command -v cc >/dev/null && printf '#include <stdio.h>\n' | cc -E - >/dev/null 2>&1 || packages+=(gcc libc6-dev)
command -v git >/dev/null || packages+=(git)
python_is_there || packages+=(python3 python3-venv)
if ! rust_is_there; then
  # Debian 12 has a current Rust for its browsers in its security archive. It conflicts with the old one and with
  # rustup.
  packages+=(rustc-web cargo-web rust-web-clippy rustfmt-web)
fi

install_packages() {
  local as_root=()
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null && sudo -n true 2>/dev/null && as_root=(sudo) || as_root=(needs-root)
  fi
  if [ "${as_root[0]:-}" = needs-root ] || ! command -v apt-get >/dev/null; then
    die "these system packages are missing, and installing them needs root: $*" \
        "run:  apt-get install --no-install-recommends $*   (as root), then run this again" \
        "instead of the *-web packages, any Rust >= $rust_least in PATH will do (for example by rustup)"
  fi
  say "installing system packages (as root): $*"
  "${as_root[@]}" apt-get update -q || say "package lists could not be refreshed; going on with those that are there"
  DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -q --no-install-recommends "$@"
}

if [ ${#packages[@]} -gt 0 ]; then
  [ $check_only = no ] || die "missing: ${packages[*]}"
  install_packages "${packages[@]}"
  hash -r
fi
# Only some tests need these; without them they are skipped with a message. Half a minute.
if [ $check_only = no ] && ! { command -v chromium && command -v chromedriver; } >/dev/null && [ "$(id -u)" = 0 ] &&
  command -v apt-get >/dev/null && [ -z "${CENOTE_NO_BROWSER:-}" ]; then
  say "installing chromium and chromium-driver, for the tests of the page (CENOTE_NO_BROWSER=1 leaves them out)"
  { apt-get update -q && DEBIAN_FRONTEND=noninteractive timeout 300 apt-get install -y -q --no-install-recommends \
    chromium chromium-driver; } >/dev/null 2>&1 || say "there is no chromium to be had; those tests will skip"
fi
rust_is_there || die "the Rust in PATH is '$(rust_version)', $rust_least or newer is needed" \
  "next step: 'rustup update stable', or remove the old packages and run this again"
python_is_there || die "$PYTHON is older than $python_least or has no venv module" \
  "next step: point PYTHON at a newer one, as in: make run PYTHON=/usr/bin/python3.12"

# The Python packages go into .venv, never into the system's or the user's Python.
wanted=$(sha256sum scripts/requirements.txt | cut -d' ' -f1)
if [ "$(cat .venv/.ready 2>/dev/null || true)" != "$wanted" ]; then
  [ $check_only = no ] || die "missing: the Python packages in .venv"
  if ! .venv/bin/python -c pass 2>/dev/null; then
    say "making .venv with $("$PYTHON" --version)"
    "$PYTHON" -m venv --clear .venv
  fi
  say "installing $(grep -c '==' scripts/requirements.txt) Python packages into .venv"
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --requirement scripts/requirements.txt
  echo "$wanted" >.venv/.ready
fi
say "ready: Rust $(rust_version), $(.venv/bin/python --version), packages in .venv"
