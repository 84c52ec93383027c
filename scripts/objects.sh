#!/usr/bin/env bash
# Tests tiers in object services, and the register of a cluster, against real servers: OpenStack Swift (its own interface
# and that of S3), moto's S3, Ceph RADOS, and etcd. Installs them if possible: moto into target/moto, the others from the
# distribution (needs root). Without them the same tests run in `make test` and are skipped, with the reason.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/env.sh

swift_packages=(swift-proxy swift-account swift-container swift-object python3-swift memcached)
ceph_packages=(ceph-mon ceph-mgr ceph-osd ceph-common librados2)
etcd_packages=(etcd-server etcd-client)
say() { printf 'objects: %s\n' "$*"; }

# install NAME PACKAGE...
install() {
  local name=$1
  shift
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    say "installing system packages (as root): $*"
    apt-get update -q || say "package lists could not be refreshed; going on with those that are there"
    # Only the programs are needed: no service may start by itself.
    RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@" ||
      say "$name could not be installed; its tests are skipped"
  else
    say "$name is not installed; as root: apt-get install --no-install-recommends $*"
  fi
}

if ! /usr/bin/python3 -c 'import swift.common.middleware.s3api, swift.obj.server' 2>/dev/null || ! command -v memcached >/dev/null; then
  install Swift "${swift_packages[@]}"
fi
if ! command -v ceph-mon >/dev/null || ! command -v ceph-mgr >/dev/null || ! command -v ceph-osd >/dev/null || ! command -v rados >/dev/null; then
  install Ceph "${ceph_packages[@]}"
fi

if ! command -v etcd >/dev/null || ! command -v etcdctl >/dev/null; then
  install etcd "${etcd_packages[@]}"
fi

if ! target/moto/bin/python -c 'import moto.server' 2>/dev/null; then
  say "installing moto into target/moto (some 20 s)"
  { "$PYTHON" -m venv --clear target/moto &&
    target/moto/bin/python -m pip install --quiet --disable-pip-version-check 'moto[server]==5.*'; } ||
    say "moto could not be installed; its tests are skipped"
fi
[ -x target/moto/bin/python ] && export MOTO_PYTHON=$PWD/target/moto/bin/python

if command -v ceph-mon >/dev/null; then
  "$PYTHON" scripts/ceph_cluster.py run -- cargo test -p cenote-rados --locked --test conformance -- --nocapture "$@"
  "$PYTHON" scripts/ceph_cluster.py run -- cargo test -p cenote-cluster --locked --test register -- --nocapture "$@"
  "$PYTHON" scripts/ceph_cluster.py run -- cargo test -p cenote-cli --locked --test rados_home -- --nocapture "$@"
else
  cargo test -p cenote-cluster --locked --test register -- --nocapture "$@"
fi
cargo test -p cenote-device --locked --test objects --test services --test pools --test ceph -- --nocapture "$@"
cargo test -p cenote-cli --locked --test objects --test ceph -- --nocapture "$@"
