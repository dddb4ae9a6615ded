# Everything a newcomer needs is Python >= 3.11, pip and make; what is installed goes to .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CORE := $(VENV)/.core-installed
DEV := $(VENV)/.dev-installed
INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt
# Pyright has its own node from the dev extra and need not ask whether a newer one exists.
# A file's tests stay in one process, which computes with one thread.
SIDE_BY_SIDE := --numprocesses auto --dist loadfile
MINUTES ?= 60
SEED ?= 0
CHECK_TYPES := PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/pyright

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-thorough test-all campaign docs tables coverage lint format clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(CORE) ## train on a small set, say what was learned, write a page
	@$(BIN)/counterpoint demo --out runs/demo --overwrite

test: lint ## lint, types and the tests that fit into five minutes on two cores
	@$(BIN)/python -m pytest -m "not slow and not thorough" $(SIDE_BY_SIDE)

test-thorough: $(DEV) ## the tests that make test leaves out, but for those that take minutes each
	@$(BIN)/python -m pytest -m "thorough and not slow" $(SIDE_BY_SIDE)

test-all: lint ## every test
	@$(BIN)/python -m pytest $(SIDE_BY_SIDE)

campaign: $(DEV) ## attack what README promises: MINUTES=60 SEED=0 KINDS="kills flags"; see docs/promises.md
	@PYTHONPATH=tests:. $(BIN)/python -m campaign --minutes $(MINUTES) --seed $(SEED) $(if $(KINDS),--kinds $(KINDS))

docs: $(DEV) tables ## build the documentation site in build/docs, offline; warnings are errors
	@OMP_NUM_THREADS=1 $(BIN)/python docs/build_site.py

tables: $(DEV) ## write the tables of docs/ that are made from records
	@$(BIN)/python docs/tables.py

coverage: $(DEV) ## which lines the tests of `make test` reach
	@$(BIN)/python -m pytest -m "not slow and not thorough" $(SIDE_BY_SIDE) --cov --cov-report=term

lint: $(DEV) ## style, format and types, of the tests too
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(CHECK_TYPES)

format: $(DEV) ## fix style and format where that can be done by machine
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

clean: ## remove caches and build results; runs and .venv stay
	@rm -rf build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	@find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(CORE): pyproject.toml constraints.txt | $(BIN)/pip
	@echo "installing Counterpoint into $(VENV) (about a minute, once)"
	@$(INSTALL) --no-compile -e .
	@touch $@

$(DEV): pyproject.toml constraints.txt | $(BIN)/pip
	@echo "installing Counterpoint with the tools for its tests into $(VENV) (one to two minutes, once)"
	@$(INSTALL) -e '.[vision,search,onnx,lightning,ray,text,docs,dev]'
	@touch $@

$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "Counterpoint needs Python 3.11 or newer; point to one with: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	  { echo "$(PYTHON) lacks the venv module; on Debian or Ubuntu: apt-get install python3-venv"; exit 1; }
	@$(PYTHON) -m venv $(VENV)
