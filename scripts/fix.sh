#!/usr/bin/env bash
# What writes: formats Rust and Python, and lets the linters mend what they can.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/env.sh
cargo fmt --all
.venv/bin/ruff check --quiet --fix . || true
.venv/bin/ruff format --quiet .
[ ! -x bindings/c/check-header.sh ] || bindings/c/check-header.sh --fix
git status --short
