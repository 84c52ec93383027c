#!/usr/bin/env bash
# Runs real programs on a mounted store and elsewhere, and compares: scripts/programs.sh [ARGS]. As root it installs
# missing packages.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/env.sh
packages=()
need() { command -v "$1" >/dev/null || packages+=("$2"); }
need git git; need rsync rsync; need g++ g++; need make make; need xz xz-utils; need fusermount3 fuse3
need simpleFoam openfoam; need mpirun openmpi-bin; need mpicc libopenmpi-dev
[ -e /usr/lib/x86_64-linux-gnu/openmpi/include/mpi.h ] || packages+=(libopenmpi-dev)
[ -d /usr/share/doc/openfoam-examples ] || packages+=(openfoam-examples)
compgen -G '/usr/src/linux-source-*.tar.xz' >/dev/null || packages+=(linux-source)
if [ ${#packages[@]} -gt 0 ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null && [ -z "${CENOTE_NO_INSTALL:-}" ]; then
  echo "programs: installing ${packages[*]} (CENOTE_NO_INSTALL=1 leaves them out)"
  apt-get update -q >/dev/null || true
  for package in "${packages[@]}"; do
    DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$package" >/dev/null 2>&1 ||
      echo "programs: $package cannot be had here; what needs it is skipped"
  done
fi
exec .venv/bin/python -m scripts.programs "$@"
