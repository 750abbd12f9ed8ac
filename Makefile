PYTHON ?= python3
BIN := .venv/bin

TORCH_TESTS := tests/test_train.py tests/test_torch_drafter.py tests/test_record_hf.py \
	tests/test_check.py::test_tensors_of_pytorch_go_in_and_come_out

.PHONY: demo test test-torch gpu-test sanitize lint bench notebooks clean

demo: .venv/core ## accept length against budget, with a picture in out/; then a small model writes Python by trees
	@mkdir -p out
	OPENBLAS_NUM_THREADS=1 $(BIN)/kdtree sweep --out out/accept_length.png
	@echo
	OPENBLAS_NUM_THREADS=1 $(BIN)/kdtree demo

test: .venv/dev ## every test that needs no GPU
	$(BIN)/python -m pytest -n auto --dist worksteal

test-torch: .venv/torch ## the tests that need PyTorch and transformers
	$(BIN)/python -m pytest -n auto $(TORCH_TESTS)

gpu-test: .venv/dev ## the tests that need a CUDA device
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[cuda,test]'
	$(BIN)/python -m pytest -m gpu

sanitize: .venv/dev ## the tests of CUDA kernels on the CPU, under AddressSanitizer and UBSan
	LD_PRELOAD=$$(g++ -print-file-name=libasan.so) ASAN_OPTIONS=detect_leaks=0 \
	KDTREE_HOST_FLAGS="-fsanitize=address,undefined -fno-sanitize-recover=all -g -O1" \
	$(BIN)/python -m pytest -k host tests/test_backends.py tests/test_model_kernels.py

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

.venv/torch: .venv/dev
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[hf]' 'torch==2.13.0'
	@touch $@
