PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test lint bench notebooks clean

demo: .venv/core ## accept length against budget, from the shipped trace: a table here, a picture in out/
	@mkdir -p out
	$(BIN)/kdtree sweep --out out/accept_length.png

test: .venv/dev ## every test that needs no GPU
	$(BIN)/python -m pytest -n auto

lint: .venv/dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

bench: .venv/core ## ratios against peers, equality checked first
	$(BIN)/python benchmarks/tree_build.py
	$(BIN)/python benchmarks/sweep.py
	OPENBLAS_NUM_THREADS=1 $(BIN)/python benchmarks/model.py
	$(BIN)/python benchmarks/decode.py

notebooks: .venv/dev ## run the notebooks and store their outputs
	$(BIN)/python notebooks/execute.py

clean:
	rm -rf .venv out

.venv/core: pyproject.toml
	@$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11)' || { echo "kdtree needs Python 3.11 to 3.13: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --editable .
	@touch $@

.venv/dev: .venv/core
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[test,lint]'
	@touch $@
