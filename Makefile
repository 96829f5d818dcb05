# Two commands set everything up: `make demo` and `make test`. They need python3.11, git, make and a package index.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
UV ?= $(or $(shell command -v uv),.uv/bin/uv)
BIN := $(CURDIR)/.venv/bin
export PATH := $(BIN):$(PATH)
export VIRTUAL_ENV := $(CURDIR)/.venv
# Importing torch without cached bytecode takes four times as long.
export PYTHONDONTWRITEBYTECODE :=
export DO_NOT_TRACK := true
export MLFLOW_DISABLE_TELEMETRY := true
export PREFECT_SERVER_ANALYTICS_ENABLED := false

BENCHMARKS := training_step training_processes sampling_time selection scoring passes memory strategy_memory scale disk orchestration studies

.PHONY: demo test test-fast test-slow faults bench lint format setup ui serve lock clean help
.DEFAULT_GOAL := help

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: setup ## run the demo campaign on embedded data
	@codline run

test: setup lint ## ruff, mypy and import-linter, then every test
	@pytest -n 2 --dist worksteal

test-fast: setup ## the tests that take seconds, in 90 s
	@pytest -n 2 --dist worksteal -m "not slow"

test-slow: setup ## only the slow tests
	@pytest -m slow

faults: setup ## kill at every write, fill the disk, damage every kind of file; one table at the end; an hour
	@python -m tests.faults

bench: setup ## measure speed as ratios to other implementations, into docs/benchmarks.md; 14 minutes
	@for each in $(BENCHMARKS); do python -m benchmarks.$$each --json benchmarks/results/$$each.json || exit 1; done
	@python -m benchmarks.page

lint: setup ## ruff, mypy --strict, import-linter
	@ruff check . && ruff format --check . && mypy && lint-imports

format: setup
	@ruff check --fix . && ruff format .

setup: .venv/ready ## install .venv from requirements.lock and create the databases of Prefect and MLflow

.venv/ready: requirements.lock pyproject.toml | $(filter .uv/bin/uv,$(UV))
	@printf 'Installing %s packages into .venv (6 GB the first time, mostly torch; half a minute to several minutes) ... ' \
		$$(grep -c '^[a-z].*==' requirements.lock)
	@$(UV) venv --quiet --allow-existing --python $(PYTHON) .venv
	@$(UV) pip sync --quiet --require-hashes requirements.lock
	@$(UV) pip install --quiet --no-deps --no-build-isolation -e .
	@codline setup
	@touch $@
	@echo done

.uv/bin/uv:
	@$(PYTHON) -m venv .uv && .uv/bin/python -m pip install --quiet --disable-pip-version-check "uv>=0.9,<1"

ui: setup ## show MLflow and Prefect in the browser, on this machine only
	@codline ui

serve: setup ## start a Prefect server and serve the flows, for prefect deployment run
	@codline serve

lock: $(filter .uv/bin/uv,$(UV)) ## update requirements.lock from pyproject.toml
	@$(UV) pip compile --quiet --universal --generate-hashes --no-header --python-version 3.11 --extra dev pyproject.toml -o requirements.lock

clean: ## remove the installation and all that can be recreated (codline clean: what campaigns leave)
	@rm -rf .venv .uv .codline .prefect .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dvc_plots
	@find . -name __pycache__ -prune -exec rm -rf {} +
