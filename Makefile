# Needs only Python 3.11 or newer and make. Everything else is installed into .venv from the lock.
.DEFAULT_GOAL := help
SHELL := /bin/sh
VENV := .venv
PY := $(VENV)/bin/python
LOCK := requirements/lock.txt
STAMP := $(VENV)/.installed
PIP := PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore $(PY) -m pip --quiet

.PHONY: help up demo test check bench coverage-map lock fmt clean

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

up: $(STAMP) ## Run everything in one process on an embedded PostgreSQL
	@$(VENV)/bin/penstock up

demo: $(STAMP) ## Send 100,000 items through a rate-limited lane and plot the rate
	@$(VENV)/bin/penstock demo

test: $(STAMP) ## Run the whole suite on a real PostgreSQL (T="-k word" narrows it)
	@$(PY) -m pytest $(T)

check: $(STAMP) ## Lint, format, types and layers
	@$(VENV)/bin/ruff check --quiet .
	@$(VENV)/bin/ruff format --check --quiet .
	@$(VENV)/bin/basedpyright --level error
	@$(VENV)/bin/lint-imports --no-cache

bench: $(STAMP) ## Measure against peers on this machine and print the table
	@$(PY) -m bench

coverage-map: $(STAMP) ## Show which behaviours are tested, decided or open
	@$(PY) tools/coverage_map.py

fmt: $(STAMP) ## Format and fix what can be fixed
	@$(VENV)/bin/ruff check --quiet --fix .
	@$(VENV)/bin/ruff format --quiet .

lock: $(STAMP) ## Pin the newest versions, with hashes, in requirements/lock.txt
	@$(PY) -m venv $(VENV)/lock
	@$(VENV)/lock/bin/python -m pip --quiet --disable-pip-version-check install uv
	@$(VENV)/lock/bin/uv pip compile pyproject.toml --quiet --upgrade --all-extras --group dev \
	  --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	  --no-emit-index-url --no-config --output-file $(LOCK)

clean: ## Remove .venv and caches; the data folder .penstock stays
	@rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis .import_linter_cache build dist
	@find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

$(STAMP): $(LOCK) pyproject.toml
	@python=; \
	for name in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	  if $$name -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; \
	  then python=$$name; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
	  echo "penstock needs Python 3.11 or newer with venv on the PATH (on Debian: python3-venv)" >&2; \
	  exit 1; \
	fi; \
	echo "installing into $(VENV) with $$($$python --version)"; \
	$$python -m venv --clear $(VENV)
	@$(PIP) install --require-hashes --no-deps -r $(LOCK)
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@
