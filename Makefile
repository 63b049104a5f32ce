# corewire: `make run` shows the main job, `make test` checks everything. `make help` lists all.

# Absolute, so that a build started by a test finds the same place.
export CARGO_TARGET_DIR ?= $(CURDIR)/target
# SIGKILLs that `make torture` hands out.
KILLS ?= 5000
# States that `make groups` walks through in each world at most.
STATES ?= 30000000
# Random worlds that `make sim` simulates.
SEEDS ?= 10000
# How often `make torture-long` does that.
ROUNDS ?= 10
# What `make study` is to do: --quick, or all in 45 minutes.
STUDY ?= --quick
# How long `make fuzz` spends on each target.
SECONDS ?= 300

LAB := "$$CARGO_TARGET_DIR"/release/corewire-lab

.PHONY: help setup run test ci quick bench study model model-quick explore sim groups kill miri torture torture-stops torture-long hostile fuzz judges doc lint
.DEFAULT_GOAL := help
.NOTPARALLEL:

help: ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1@\2/p' Makefile | awk -F@ '{ printf "%-20s %s\n", $$1, $$2 }'

setup: ## check what a build needs; install what is missing where that is possible
	@scripts/setup

run: ## one file to several processes (FILE=path RECEIVERS=3)
	@scripts/run

test: ## everything that a change must pass
	@scripts/test

ci: ## what continuous integration runs besides: the lowest Rust, 64-bit ARM, packages, fuzz targets
	@scripts/test ci

quick: ## after each edit: units, and quick models of what changed
	@scripts/quick

bench: setup ## latency, streaming, wake-up, idling, deaths, fan-out, policies, several senders, each beside its baseline
	cargo build --release --locked -p corewire-lab
	$(LAB) bench latency --bytes 48
	$(LAB) bench stream --bytes 48
	$(LAB) bench stream --bytes 48 --copy
	$(LAB) bench stream --bytes 4096
	$(LAB) bench stream --bytes 1048576
	$(LAB) bench wake
	$(LAB) bench idle
	$(LAB) bench death
	$(LAB) bench fan-out
	$(LAB) bench policy
	$(LAB) bench shared

study: setup ## the experiments of ZIMP, Nemesis and Active Zero-copy, typed calls, circuits, agreement, checkpoints, collective calls, large transfers and MPI programs, the rivals too (STUDY="--quick")
	cargo build --release --locked -p corewire-lab -p corewire-fabric --features corewire-lab/rivals
	$(LAB) study zimp $(STUDY)
	$(LAB) study nemesis $(STUDY)
	$(LAB) study active $(STUDY)
	$(LAB) study interfaces $(STUDY)
	$(LAB) study routing $(STUDY)
	$(LAB) study paxos $(STUDY)
	$(LAB) study checkpoint $(STUDY)
	$(LAB) study collectives $(STUDY)
	$(LAB) study transfer $(STUDY)
	$(LAB) study mpi $(STUDY)

model: setup ## every loom model, and the mutant of every ordering label (long)
	scripts/models

model-quick: setup ## the loom models that `make test` runs
	scripts/models quick_

explore: setup ## every state of small worlds of several senders, a death at every step (long)
	COREWIRE_EXPLORE=full cargo test --locked -p corewire-explorers --test explorers senders -- --nocapture

groups: setup ## every order of messages and deaths in small groups, up to STATES of each (STATES=30000000)
	COREWIRE_GROUP_STATES=$(STATES) cargo test --locked --release -p corewire-explorers --test explorers -- groups checkpoints --nocapture --test-threads 1

sim: setup ## random worlds of monitors and programs (SEEDS=10000), the states of small ones, and random links of two hosts
	COREWIRE_SIM_SEEDS=$(SEEDS) cargo test --locked --release -p corewire-explorers --test explorers -- circuits hostile_neighbours --nocapture
	COREWIRE_SIM_SEEDS=$(SEEDS) cargo test --locked --release -p corewire-net --test link

kill: setup ## a role killed after each of its stores, alone and in pairs, in every state of a channel
	scripts/kill

miri: setup ## layout, rings and published rings under Miri (needs a nightly toolchain)
	scripts/miri

torture: setup ## real processes killed at random (KILLS=5000) and stopped for 10 and 60 s, and forced sleeps
	scripts/torture $(KILLS)

torture-stops: setup ## 1,000 kills and 300 stops of 1 to 60 s in eight groups at a time, with joins and leaves (minutes)
	COREWIRE_TORTURE_GROUPS=8 COREWIRE_TORTURE_KILLS=1000 COREWIRE_TORTURE_STOPS=300 COREWIRE_TORTURE_STOP_MS=60000 \
		cargo test --release --locked -p corewire-group --test group stops -- --nocapture

torture-long: setup ## the same again and again, each time from another seed (ROUNDS=10; hours)
	scripts/torture $(KILLS) $(ROUNDS)

hostile: setup ## 100 million hostile words and 10 million hostile frames, and the work of each call counted
	scripts/hostile

fuzz: setup ## coverage-guided fuzzing of what peers write and send (SECONDS=300 each; needs cargo-fuzz)
	scripts/fuzz $(SECONDS)

judges: ## tests and programs of others over the provider for MPI (FABTESTS=DIR MPICH_TESTS=DIR; half an hour)
	scripts/judges

doc: setup ## the API documentation, without a warning
	RUSTDOCFLAGS="$$RUSTDOCFLAGS -D warnings" cargo doc --workspace --no-deps --locked

lint: ## formatting and lints
	@scripts/setup lint
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --features corewire-lab/rivals --locked -- -D warnings
