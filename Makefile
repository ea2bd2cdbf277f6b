# Everything that is needed to use and to change segstream, from a fresh clone: Python 3.11 or newer, git and make.
#
#   make demo    learn online on made pictures, about three minutes; then open runs/demo/report.html
#   make test    what a change must pass
#   make stress  the long forms of the tests
#   make docs    the documentation, into site/
#   make lock    pin what pyproject.toml asks for; with UPGRADE=--upgrade the newest versions that it allows
#   make clean   remove what was built here, .venv too

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.segstream-ready
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
WORKERS ?= 2
# One thread in each test process: two processes on two cores, and sums that do not depend on the machine.
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 MPLBACKEND=Agg

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint stress docs lock clean

help:
	@sed -n 's/^# \{0,1\}//p' Makefile | sed -n '1,8p'

setup: $(READY)

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null 2>&1 || { \
	  echo "There is no $(PYTHON) here. Install Python 3.11 or newer, or name one: make setup PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "segstream needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V 2>&1)." >&2; \
	  echo "Name another one: make setup PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "This Python cannot make virtual environments. On Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# uv installs in seconds what takes pip minutes; where it cannot be had, or cannot reach what pip reaches, pip does it.
$(READY): lock.txt pyproject.toml | $(BIN)/python
	@echo "Setting up $(VENV): some minutes and some gigabytes the first time."
	@sed -n '/^uv==/,/# via/p' lock.txt > $(VENV)/uv.txt
	@sed '/^uv==/,/# via/d' lock.txt > $(VENV)/rest.txt
	@$(PIP) --require-hashes -r $(VENV)/uv.txt || echo "uv cannot be installed here; pip goes on, more slowly." >&2
	@{ test -x $(BIN)/uv && $(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r lock.txt; } \
	  || $(PIP) --require-hashes -r $(VENV)/rest.txt
	@$(PIP) --no-deps --no-build-isolation -e .
	@$(BIN)/python -c 'from segstream.functional.objective import warm_up; warm_up()'  # compiled once, kept on disk
	@touch $@

demo: setup
	$(BIN)/segstream demo

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

test: lint
	$(ONE_THREAD) $(BIN)/python -m pytest -n $(WORKERS) -m "not slow"

stress: setup
	$(ONE_THREAD) $(BIN)/python -m pytest -n $(WORKERS) -m slow

docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

lock: $(BIN)/python
	@test -x $(BIN)/uv || $(PIP) uv
	$(BIN)/uv pip compile --quiet $(UPGRADE) --universal --generate-hashes --all-extras --python-version 3.11 \
	  pyproject.toml -o lock.txt

clean:
	rm -rf $(VENV) build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
