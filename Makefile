# The two commands are `make run` and `make test`; `make` alone lists the others.

# Fetched sources, the compiled corpus and cargo's outputs stay outside the checkout, so that a second clean clone finds them.
export MOTE_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/mote
export CARGO_TARGET_DIR ?= $(MOTE_CACHE)/target
# rustup's own place, for shells that have not read its environment file.
export PATH := $(PATH):$(HOME)/.cargo/bin

.DEFAULT_GOAL := help
.PHONY: help setup build libmote corpus run run-everything test fmt lint unit bench bench-start bench-compile lab clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install what is missing: Debian packages, Rust targets
	@scripts/setup

# Two checkouts may share CARGO_TARGET_DIR: the lock keeps one from installing what the other built. A program that did not change
# keeps its file, and with it what the store knows about it.
build: setup ## build the programs into bin/
	@mkdir -p bin $(CARGO_TARGET_DIR)
	@flock $(CARGO_TARGET_DIR)/.mote-build.lock scripts/build-programs

libmote: setup ## build the library for C into bin/: libmote.so, libmote.a
	@mkdir -p bin
	cargo build --release --locked -p mote-capi
	@install -m 644 $(CARGO_TARGET_DIR)/release/libmote.a bin/libmote.a
	@install -m 755 $(CARGO_TARGET_DIR)/release/libmote.so bin/libmote.so

corpus: setup ## fetch and compile the programs of tests/corpus
	@scripts/corpus all

run: build ## run libsodium's test programs in Mote and check what they print
	@scripts/run-corpus

run-everything: build
	@scripts/run-corpus --everything

fmt:
	cargo fmt --all --check

lint: setup
	cargo clippy --locked --workspace --all-targets -- -D warnings

unit: setup
	cargo test --locked --workspace

test: setup fmt lint unit run-everything ## everything: format, lints, tests, and the corpus

bench: build ## CPU time against native: libsodium's benchmarks and the non-crypto set
	@scripts/bench

bench-start: build ## start to exit, and private memory of a sleeping process
	@scripts/bench-start

bench-compile: build ## CPU time and memory of compiling
	@scripts/bench-compile

# The report's name says when; the machine is in it. Takes hours: `bin/mote-lab speed --quick` takes minutes.
LAB_RESULTS = docs/results/$(shell date -u +%Y-%m-%d)
lab: build ## every suite of the laboratory in full; reports go to docs/results/
	@mkdir -p docs/results
	bin/mote-lab size --json $(LAB_RESULTS)-size.json
	bin/mote-lab compile --json $(LAB_RESULTS)-compile.json
	bin/mote-lab speed --json $(LAB_RESULTS)-speed.json
	bin/mote-lab report $(LAB_RESULTS)-speed.json $(LAB_RESULTS)-compile.json $(LAB_RESULTS)-size.json --html $(LAB_RESULTS).html

clean: ## delete bin/ and cargo's outputs; the fetched sources and the compiled corpus stay
	rm -rf bin
	cargo clean
