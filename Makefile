# Everything a reader or a developer runs. It needs make and Python 3.11 or later, nothing else.
#
# VENV=/somewhere   keeps the full environment there, in a folder named after the lock, so that clones share it
# PYTHON=python3.12 names the interpreter that makes the environments
# REPOSITORY_URL=https://github.com/OWNER/NAME gives the pages their links to Colab, Binder and the sources
# SOLUTIONS=no      builds, serves or prints the book without the solutions of its exercises

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= $(shell command -v python3.11 || command -v python3 || command -v python)
VENV ?= .venv
JOBS ?= 3
PORT ?= 8000

# The first twelve hexadecimal digits of a file's sha256.
hash = $(shell $(PYTHON) -c "import hashlib; print(hashlib.sha256(open('$(1)', 'rb').read()).hexdigest()[:12])")

FULL := $(abspath $(VENV))/$(call hash,requirements.lock)
LIGHT := $(abspath .venv-book)/$(call hash,requirements-book.lock)
HTML := _build/$(if $(filter no,$(SOLUTIONS)),without-solutions/)html

# An environment that clones share must not point into one of them: every command, and every notebook kernel that
# it starts, finds this clone's gkalib by this path.
export PYTHONPATH := $(CURDIR)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYDEVD_DISABLE_FILE_VALIDATION := 1

UV := .cache/lock/bin/uv
COMPILE := --universal --python-version 3.11 --generate-hashes --no-annotate --no-header --quiet $(UPGRADE)
define LOCK_HEADER
# Pinned by `make lock` from pyproject.toml; do not edit. It holds for Python 3.11 on Linux, where CI runs it. The
# markers carry it to later versions of Python and to other systems as far as their wheels go.
endef
export LOCK_HEADER

.PHONY: help book serve pdf test with-data quick newest aot lint types pairs chapters jitter links bench lock env clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

book: $(LIGHT)/.ready ## build the pages from the stored outputs, without torch
	@$(LIGHT)/bin/python book/build.py $(if $(REPOSITORY_URL),--repository-url $(REPOSITORY_URL)) \
	  $(if $(filter no,$(SOLUTIONS)),--without-solutions)
	@echo "The book is at $(CURDIR)/$(HTML)/index.html"

serve: ## serve the built pages at http://localhost:8000 (PORT=)
	@test -f $(HTML)/index.html || $(MAKE) --no-print-directory book
	@$(PYTHON) -m http.server $(PORT) --bind 127.0.0.1 --directory $(HTML)

pdf: $(FULL)/.ready book ## print the built book as one PDF with Chromium
	@$(FULL)/bin/python book/pdf.py $(HTML)

# Three workers keep two cores busy, as tests also wait for browsers and processes; more threads in each would only wait for one another.
test: export OMP_NUM_THREADS ?= 1
test: ## everything CI checks: style, types, floors, spelling, stamps, pages, chapters, tests
	@$(MAKE) --no-print-directory -j $(JOBS) lint types pairs book
	@$(FULL)/bin/python -m gkalib data get minilm gpt2
	@$(FULL)/bin/python -m pytest -n $(JOBS) --dist worksteal --durations 10

with-data: export OMP_NUM_THREADS ?= 1
with-data: $(FULL)/.ready ## the tests that need data which a clone has not (in GKALIB_DATA or the cache)
	@$(FULL)/bin/python -m pytest -m data -n $(JOBS) --dist worksteal --durations 10

quick: export OMP_NUM_THREADS ?= 1
quick: $(FULL)/.ready ## the quick part of the tests, under three minutes on two cores
	@$(FULL)/bin/python -m tests.quick

# In an environment of its own: without the lock, pip takes the newest releases that pyproject.toml allows.
newest: export OMP_NUM_THREADS ?= 1
newest: NEWEST = $(abspath $(VENV))/newest-$(notdir $(PYTHON))
newest: ## the same with the newest releases in place of the locked ones (PYTHON=python3.13, TORCH=2.12.1)
	@$(PYTHON) -m venv $(NEWEST)
	@$(NEWEST)/bin/pip install -qq --upgrade --upgrade-strategy eager \
	  ".[vision,language,models,book,dev]" $(if $(TORCH),torch==$(TORCH))
	@$(NEWEST)/bin/python -m tests.quick

aot: $(FULL)/.ready ## compile the fused programs for four chips and compare with what is recorded (UPDATE=1 records, ONLY="CASE CHIP ...")
	@$(FULL)/bin/python -m gkalib.gpu.survey $(ONLY) --processes $(JOBS) $(if $(UPDATE),--update)

lint: $(FULL)/.ready ## style, import floors, spelling
	@$(FULL)/bin/ruff check .
	@$(FULL)/bin/ruff format --check .
	@$(FULL)/bin/lint-imports
	@$(FULL)/bin/codespell

types: $(FULL)/.ready ## types of the library and of what lies beside the chapters
	@$(FULL)/bin/pyright --pythonpath $(FULL)/bin/python

pairs: $(FULL)/.ready ## chapters agree with their texts, outputs with the code and the records they came from
	@$(FULL)/bin/python book/execute.py --check

chapters: $(FULL)/.ready ## execute the chapters again and store their outputs (ONLY="01-nadaraya-watson ...")
	@$(FULL)/bin/python book/execute.py $(ONLY)

jitter: $(FULL)/.ready ## execute chapters under perturbed arithmetic (ONLY="12-low-rank ...", HOW="plain noise-0", SEED=2026-01-31)
	@$(FULL)/bin/python book/jitter.py $(ONLY) $(if $(HOW),--how $(HOW)) $(if $(SEED),--seed $(SEED)) --processes $(JOBS)

links: $(LIGHT)/.ready ## visit every external link
	@$(LIGHT)/bin/jupyter-book build . --path-output _build/links --builder custom --custom-builder linkcheck

bench: $(FULL)/.ready ## time the ways to one attention on this machine's CPU
	@$(FULL)/bin/python -m gkalib bench gka --scale reduced

env: $(FULL)/.ready ## make the full environment and print where it is
	@echo $(FULL)

lock: $(UV) ## pin the versions again (UPGRADE=--upgrade takes newer ones)
	@$(UV) pip compile $(COMPILE) --extra vision --extra language --extra models --extra hub --extra book --extra dev \
	  --extra interpreter --group site --output-file requirements.lock pyproject.toml
	@$(UV) pip compile $(COMPILE) --constraint requirements.lock --group site --output-file requirements-book.lock
	@for lock in requirements.lock requirements-book.lock; do \
	  { printf '%s\n' "$$LOCK_HEADER"; grep -v '^#' $$lock; } > .cache/locked && mv .cache/locked $$lock; done

clean: ## remove what was built here (shared environments stay)
	rm -rf _build book/node_modules .cache .venv .venv-book .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(UV):
	@$(PYTHON) -m venv .cache/lock
	@.cache/lock/bin/pip install -qq uv

# Environments are made under a lock, since clones that share one may ask at once, and marked ready at the end.
# A lock names everything that is needed, and pip does not take a pin of `a` for one of `a[extra]`: hence --no-deps.
define make_environment
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed; name one with PYTHON=")'
	@mkdir -p $(dir $(1))
	@if command -v flock > /dev/null; then exec 9> $(1).lock; flock 9; fi; \
	if [ ! -f $(1)/.ready ]; then \
	  echo "Making the environment $(1)"; \
	  $(PYTHON) -m venv --clear $(1); \
	  $(1)/bin/pip install -qq --no-deps --require-hashes --requirement $(2); \
	  touch $(1)/.ready; \
	fi
endef

$(LIGHT)/.ready:
	$(call make_environment,$(LIGHT),requirements-book.lock)

$(FULL)/.ready:
	$(call make_environment,$(FULL),requirements.lock)
