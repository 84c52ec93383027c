#!/usr/bin/env bash
# A first session with the `cenote` command: a store with two tiers, a file in and out, records, and where bytes are.
# Usage: examples/cli/first.sh DIRECTORY   (with `cenote` in PATH)
set -euo pipefail
mkdir -p "$1"
export CENOTE_STORE=$1/store

# A store with memory in front of a directory. Without tiers, it would choose them to fit this machine.
cenote init --tier name=memory,kind=memory,size=64MiB \
            --tier "name=disk,kind=directory,path=$1/disk,size=256MiB"

# A container is a group of objects and indices with one policy; a file becomes an object.
cenote mk runs
head -c 5000000 /dev/urandom > "$1/data"
name=$(cenote put "$1/data" runs)
cenote ls -l runs
cenote cat "$name" | cmp - "$1/data"
cenote get "$name" "$1/back"
cmp "$1/back" "$1/data"

# An index keeps ordered records.
index=$(cenote index mk runs)
cenote index put "$index" step 1
cenote index put "$index" time 0.5
cenote index next "$index"

# Where the bytes are, and why; the tiers and their use; a check of all data.
cenote explain "$name"
cenote flush
cenote status
cenote verify

# An error names its subject, its cause and the next step.
cenote ls walks || echo "as expected: exit code $?"
echo "all is well"
