# make setup | demo | test | slow | check | bench
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

setup: $(STAMP)

$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python --editable '.[dev]'
	touch $(STAMP)

demo: setup
	$(BIN)/icone demo

test: check
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadfile -m "not slow and not gpu and not download"

slow: setup
	$(BIN)/pytest -m slow

check: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

bench: setup
	$(BIN)/python benchmarks/diversity.py

.PHONY: setup demo test slow check bench
