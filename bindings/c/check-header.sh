#!/usr/bin/env bash
# Checks that include/cenote.h matches the source; --fix writes it anew.
set -euo pipefail
cd "$(dirname "$0")"
if [ "${1:-}" = --fix ]; then export CENOTE_BLESS=1; fi
exec cargo test --quiet --locked --package cenote-c-header
