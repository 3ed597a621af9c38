# Everything a newcomer needs: `make demo` and `make test` do all their own set-up.
SHELL := /bin/bash
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# Where wheels lie in a folder, uv is told of it the way pip is.
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help setup system peers voices demo eval test lint format clean
.PHONY: bench-replay bench-handover bench-memory bench-store bench-native bench-soak bench-fuzz bench-failover
.PHONY: bench-profile bench-ears bench-voice bench-speech bench-sessions bench-phases bench-overload

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */  \1|/' | column -t -s '|'

setup: $(READY) ## the orchestrator's own virtual environment

$(READY): pyproject.toml requirements/dev.txt requirements/peers.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Vigil needs Python 3.11 or newer; name one with: make PYTHON=python3.11 ..."; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet 'uv==0.13.9'
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python -r requirements/dev.txt
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps -r requirements/peers.txt
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps -e .
	@touch $@

system: ## programs the tests need that pip can't bring (Debian and Ubuntu; root or sudo)
	@./evals/install_system.sh

peers: setup ## the duplex server that the tests hold Vigil against (about 3 minutes and 4 GB, once)
	$(BIN)/python -m tests.peers.environment

voices: setup ## Piper and a voice in an environment of their own, for its tests and the bench (300 MB, once)
	$(BIN)/python -m tests.piper

demo: setup ## watch a real clip through a real engine, and write a report
	$(BIN)/python -m evals.demo

eval: setup ## a small set of scenes through the CPU engine: scored, audited, done again; writes a report
	$(BIN)/python -m evals.suite

test: setup system ## every test, the real CPU engine and the duplex server included
	$(MAKE) --no-print-directory -j 2 lint peers
	$(BIN)/pytest -q -n 3 --dist loadfile -m "not engine and not page"
	$(BIN)/pytest -q -m page
	$(BIN)/pytest -q -m engine

lint: setup ## format, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: setup ## rewrite to the house style
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench-replay: setup ## our replay against full resend and no prefix cache, on the CPU engine
	$(BIN)/python -m evals.bench.replay_bench

bench-handover: setup ## a new window costs no more than any tick, however slow the summaries
	$(BIN)/python -m evals.bench.handover_bench

bench-memory: setup ## eight simulated hours: tokens, memory and re-prefill stay flat
	$(BIN)/python -m evals.bench.memory_longrun

bench-store: setup ## how long a fact takes to become durable
	$(BIN)/python -m evals.bench.store_bench

bench-native: setup ## what a full-duplex engine's audio waits for on its way through, and at a switch
	$(BIN)/python -m evals.bench.native_bench

bench-soak: setup ## 200 sessions for ten minutes: nothing grows or leaks; what a tick costs
	$(BIN)/python -m evals.bench.soak

bench-profile: setup ## where the processor time of 100 sessions goes; the old figures are one git diff away
	$(BIN)/python -m evals.bench.soak --sessions 100 --seconds 60 --profile \
		--out evals/bench/results/profile_100.json

bench-sessions: setup ## how many sessions an engine carries: resending clients, uuid parts, Vigil; then twice that
	$(BIN)/python -m evals.bench.sessions_bench

bench-overload: setup ## twice the capacity of a scripted engine offered: who keeps its pace, who is refused
	$(BIN)/python -m evals.bench.overload

bench-phases: setup ## when sessions should ask: spread over the period, in groups, or as it comes
	$(BIN)/python -m evals.bench.phases

bench-ears: setup system ## end of speech to its words, word errors and processor time, on recorded speech
	$(BIN)/python -m evals.bench.ears_bench

bench-failover: setup ## an orchestrator and an engine of two each killed under load: when every session goes on
	$(BIN)/python -m evals.bench.failover

bench-fuzz: setup ## 20,000 malformed and reordered events over real sockets
	$(BIN)/python -m evals.bench.fuzz

bench-voice: setup ## first text to first audio, real-time factor, barge-in to silence, of each voice there is
	$(BIN)/python -m evals.bench.voice_bench

bench-speech: setup system ## one table of what a conversation waits for, next to what each model takes alone
	$(BIN)/python -m evals.bench.speech_bench

clean: ## everything made here (the engine's cache outside the checkout stays)
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache demo-out eval-out
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
