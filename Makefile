# Needs only Python 3.11 or newer and make. Everything else is installed into .venv from the locks.
.DEFAULT_GOAL := help
.NOTPARALLEL:
SHELL := /bin/sh
VENV := .venv
PY := $(VENV)/bin/python
LOCKS := requirements
RUN := $(VENV)/.run
DEMO := $(VENV)/.demo
DEV := $(VENV)/.dev
COMPILED := $(VENV)/.compiled
PIP := PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore $(PY) -m pip --quiet
UV := $(VENV)/uv
COMPILE := $(UV)/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
  --no-header --no-annotate --no-emit-index-url --no-config
RUN_EXTRAS := --extra api --extra embedded --extra kafka --extra mail --extra outbox \
  --extra redis --extra temporal

# Tests also wait, so there are more processes than cores; with six, starting them costs more.
PROCESSES ?= 5

# `make fault` runs this many seeds; the suite runs the first 50 of them.
SEEDS ?= 50

# The suite starts hundreds of Python processes; without cached bytecode each compiles the package.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help up demo test fault check docs bench coverage-map lock fmt clean

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

up: $(RUN) ## Run everything in one process on an embedded PostgreSQL
	@$(VENV)/bin/penstock up

demo: $(DEMO) ## Schedule, execute and pay 100,000 payments, and plot the rate
	@$(VENV)/bin/penstock demo

test: $(COMPILED) ## Run the whole suite on a real PostgreSQL (T="-k word" narrows it)
	@$(PY) -m pytest --numprocesses $(PROCESSES) $(T)

fault: $(DEV) ## Run payment rails under seeded faults (SEEDS=1000, SEED=17 replays one)
	@$(PY) -m tests.fault.outbox_seeds --seeds $(SEEDS) $(if $(SEED),--seed $(SEED))

check: $(DEV) ## Lint, format, types, layers and generated pages
	@$(VENV)/bin/ruff check --quiet .
	@$(VENV)/bin/ruff format --check --quiet .
	@$(VENV)/bin/basedpyright --level error
	@$(VENV)/bin/lint-imports --no-cache
	@$(PY) -m tools.reference --check

docs: $(DEV) ## Write the blocks of the reference pages that are generated from the code
	@$(PY) -m tools.reference

bench: $(DEV) ## Measure against peers on this machine and print the table
	@$(PY) -m bench

coverage-map: $(DEV) ## Show the state of each listed behaviour
	@$(PY) tools/coverage_map.py

fmt: $(DEV) ## Format and fix what can be fixed
	@$(VENV)/bin/ruff check --quiet --fix .
	@$(VENV)/bin/ruff format --quiet .

lock: $(RUN) ## Pin the newest versions, with hashes, in requirements/
	@$(PIP) install --target $(UV) --upgrade uv
	@$(COMPILE) --upgrade --group install --output-file $(LOCKS)/uv.txt
	@$(COMPILE) --upgrade pyproject.toml --all-extras --group dev --output-file $(LOCKS)/dev.txt
	@$(COMPILE) pyproject.toml $(RUN_EXTRAS) --group build \
	  --constraint $(LOCKS)/dev.txt --output-file $(LOCKS)/run.txt
	@$(COMPILE) pyproject.toml --extra demo \
	  --constraint $(LOCKS)/dev.txt --output-file $(LOCKS)/demo.txt
	@rm -rf $(UV)

clean: ## Remove .venv and caches; the data folder .penstock stays
	@rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis .import_linter_cache build dist
	@find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

$(RUN): $(LOCKS)/run.txt $(LOCKS)/uv.txt pyproject.toml
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
	@$(call install,run.txt)
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

$(DEMO): $(RUN) $(LOCKS)/demo.txt
	@echo "installing what the demo needs"
	@$(call install,demo.txt)
	@touch $@

$(DEV): $(RUN) $(LOCKS)/dev.txt
	@echo "installing what the tests and checks need"
	@$(call install,dev.txt)
	@touch $@

# pytest compiles each test file that it reads, and every process reads all of them. Once, one process
# does it for the others: six at a time take 25 s of CPU time each, and 10 afterwards.
$(COMPILED): $(DEV)
	@echo "compiling the tests"
	@$(PY) -m pytest --collect-only -qq >/dev/null || true
	@touch $@

# uv installs in a second what takes pip fifteen, so it is fetched first and removed afterwards.
# pip takes its place where uv has no wheel, or where a package index is set for pip alone.
install = { $(PIP) install --require-hashes --no-deps --no-compile --only-binary :all: \
    --target $(UV) --upgrade -r $(LOCKS)/uv.txt \
  && $(UV)/bin/uv pip install --quiet --no-config --python $(PY) \
    --require-hashes --no-deps -r $(LOCKS)/$(1); } \
  || $(PIP) install --require-hashes --no-deps -r $(LOCKS)/$(1); \
  status=$$?; rm -rf $(UV); exit $$status
