# The two commands of the README are `make try` and `make test`; both set up everything they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: setup check test cover try lint types bench clean

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev,local]'
	touch $@

check: lint types cover  ## everything CI runs

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: setup
	$(BIN)/mypy

test: setup  ## the tests alone
	$(BIN)/pytest

cover: setup  ## the tests, with branch coverage
	rm -f .coverage .coverage.*
	$(BIN)/coverage run -m pytest
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

bench: setup  ## writes bench/RESULTS.md
	$(BIN)/python bench/run.py

try:  ## a real model on this machine answers one prompt; see scripts/try.sh
	@PYTHON=$(PYTHON) sh scripts/try.sh

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage*
