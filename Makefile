# make setup | demo | test | test-oldest | slow | check | docs | bench | dist | smoke
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
# Tests start many processes: without compiled files each of them compiles torch anew.
export PYTHONDONTWRITEBYTECODE :=

setup: $(STAMP)

$(STAMP): pyproject.toml
	@echo "Installing into .venv, which can take some minutes."
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python --editable '.[dev]'
	touch $(STAMP)

demo: setup
	$(BIN)/icone demo
	@echo "The command icone is $(BIN)/icone: 'source $(BIN)/activate' lets you type it as above."

test: check
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadfile -m "not slow and not gpu and not download"

# The core with the oldest versions that pyproject.toml allows. Old packages warn about new ones, so
# warnings are no errors here. TORCH=2.9.0 make test-oldest takes another torch.
TORCH ?= $(shell sed -n 's/^  "torch>=\([0-9.]*\)".*/\1/p' pyproject.toml).0
QUICK := tests/test_imports.py tests/nn tests/encoders tests/methods/test_contract.py tests/training/test_checkpoint.py \
	tests/api/test_evaluate.py tests/evaluation/test_probes.py tests/evaluation/test_geometry.py

test-oldest: setup
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python .venv-oldest
	$(BIN)/uv pip install --quiet --python .venv-oldest --resolution lowest-direct --editable . \
		'torch==$(TORCH)' 'pytest>=8' 'pytest-xdist>=3'
	OMP_NUM_THREADS=1 .venv-oldest/bin/pytest -n 2 --dist loadfile -W default --disable-warnings \
		-m "not slow and not gpu and not download" $(QUICK)

slow: setup
	$(BIN)/pytest -m slow

check: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

# The site, in build/docs/index.html; runs the scripts of examples/gallery. A test builds it without running them.
docs: setup
	OMP_NUM_THREADS=1 $(BIN)/sphinx-build --quiet --fresh-env --fail-on-warning --keep-going docs build/docs

bench: setup
	$(BIN)/python benchmarks/diversity.py

# The wheel and the source distribution, in dist/.
dist: setup
	rm -rf dist
	$(BIN)/uv build --quiet --out-dir dist

# Both, installed into fresh environments outside the repository and used from the command line.
smoke: setup
	$(BIN)/pytest -m slow tests/test_packaging.py

.PHONY: setup demo test test-oldest slow check docs bench dist smoke
