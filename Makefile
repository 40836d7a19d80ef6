# Everything a newcomer or CI types. Needs Python 3.11 to 3.13 and make; the rest goes into .venv.

SHELL := /bin/sh
VENV := .venv
BIN := $(VENV)/bin
# PYTHON=/path/to/python3.12 overrides the search.
PYTHON ?=
MODEL ?=
DETACH ?=
ARGS ?=

.PHONY: help up down chat status setup setup-dev test test-slow lint format types contracts compose protos bench clean
.DEFAULT_GOAL := help

help: ## Lists the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20

up: setup ## Installs, then starts everything (DETACH=1, MODEL=folder-or-hub-id, ARGS="--runners 2")
	@$(BIN)/headrace up $(if $(MODEL),--model "$(MODEL)") $(if $(filter-out 0 no false,$(DETACH)),--detach) $(ARGS)

down: ## Stops what `make up` started
	@if [ -x $(BIN)/headrace ]; then $(BIN)/headrace down $(ARGS); else echo "nothing is installed, so nothing runs"; fi

setup: $(VENV)/installed ## Makes .venv with everything that serving needs

setup-dev: $(VENV)/installed-dev ## Makes .venv with everything that working on Headrace needs

test: setup-dev ## Runs the tests (ARGS="tests/unit -k name")
	@$(BIN)/python -m pytest $(ARGS)

test-slow: setup-dev ## Runs the tests that take longer than a minute
	@$(BIN)/python -m pytest -m slow $(ARGS)

lint: setup-dev ## Checks style and the protos
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/buf lint

format: setup-dev ## Formats the code
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

types: setup-dev ## Checks types
	@$(BIN)/mypy

contracts: setup-dev ## Checks who may import whom, and that the stubs are those of the protos
	@$(BIN)/lint-imports
	@PYTHON=$(BIN)/python sh protos/check_stubs.sh

compose: setup-dev ## Checks docker-compose.yml
	@$(BIN)/docker-compose -f docker-compose.yml config --quiet && echo "docker-compose.yml is valid"

protos: setup-dev ## Makes the stubs again after a change of the protos
	@PYTHON=$(BIN)/python sh protos/make_stubs.sh .

bench: setup ## Measures the running instance (ARGS, see benchmarks/README.md)
	@$(BIN)/python -m benchmarks.load $(ARGS)

clean: ## Removes .venv and what tools left behind
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find headrace services tests models benchmarks -name __pycache__ -type d -exec rm -rf {} +

$(BIN)/python:
	@PYTHON="$(PYTHON)" sh scripts/make_venv.sh $(VENV)

# On a terminal pip shows how far the downloads are; in a log only what went wrong is of interest.
PIP_TALK := $$([ -t 1 ] || echo -qq)

# An editable install: the services run from this checkout, and the built-in model is found in it.
$(VENV)/installed: pyproject.toml | $(BIN)/python
	@echo "Installing Headrace into $(VENV); the first time this takes a few minutes, most of it for torch ..."
	@$(BIN)/python -m pip install $(PIP_TALK) --disable-pip-version-check -e '.[all]'
	@touch $@

$(VENV)/installed-dev: pyproject.toml | $(BIN)/python
	@echo "Installing Headrace and its development tools into $(VENV) ..."
	@$(BIN)/python -m pip install $(PIP_TALK) --disable-pip-version-check -e '.[dev]'
	@touch $@ $(VENV)/installed
