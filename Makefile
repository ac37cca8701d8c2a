# Everything from nothing: Python 3.11+, a C++17 compiler and make are all that a machine needs.
#
#   make demo    optimize, run, validate and time a published model
#   make test    linters, type check and all tests
#   make docs    the documentation (build/site), without warnings
#   make wheel   build, check and try out the wheel and sdist to publish (dist/)
#   make build   build the library inside the tree, for work on it
#
#   make fuzz           compare random graphs, optimized and not: 100000 of them (COUNT=... SEED=...), hours
#   make fuzz-programs  libFuzzer on what reads programs, for an hour (SECONDS=...); needs clang++ (CLANG=...)
#
# What is tested. `demo` and `test` use the *installed* package: a wheel is built by `pip wheel` (which brings CMake and
# Ninja itself), whenever a source changed, and goes into $(VENV). The folder onnxfuse/ here would hide it, so tests run
# through the command `pytest`, which does not put the current folder on sys.path as `python -m pytest` does;
# tests/conftest.py says at the start what is under test. To test the tree instead: `make build`, then
# `PYTHONPATH=$PWD $(VENV)/bin/pytest`.

VENV ?= .venv
PYTHON ?= python3
BIN = $(VENV)/bin
PIP = $(BIN)/python -m pip --disable-pip-version-check
TORCH = torch==2.13.0

WHEELS = build/wheels
SOURCES := pyproject.toml CMakeLists.txt README.md LICENSE $(shell find cuda_ops onnxfuse -type f \
             ! -name '*.so' ! -name '*.pyc' 2>/dev/null)
CXX_FILES = $(shell find cuda_ops examples tests -name '*.h' -o -name '*.cc' -o -name '*.cuh')

.PHONY: help demo test lint format exports docs wheel build fuzz fuzz-programs clean
.DELETE_ON_ERROR:

help:
	@sed -n 's/^#   //p' $(firstword $(MAKEFILE_LIST))

demo: $(VENV)/.onnxfuse
	$(BIN)/python scripts/demo.py

test: lint exports
	$(BIN)/pytest -q -n 2

lint: $(VENV)/.tools
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $(CXX_FILES)

format: $(VENV)/.tools
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CXX_FILES)

# The library must show RegisterCustomOps to the process it is loaded into, and nothing else.
exports: $(VENV)/.onnxfuse
	$(BIN)/python scripts/check_exports.py "$$($(BIN)/onnxfuse library)"

docs: $(VENV)/.tools
	$(BIN)/mkdocs build --strict --quiet

# In an environment of its own: the wheel must not depend on what this tree's happens to hold.
wheel: build/wheel-env/.ready
	build/wheel-env/bin/python scripts/build_wheel.py
	build/wheel-env/bin/python scripts/check_wheel.py

build/wheel-env/.ready: pyproject.toml
	$(PYTHON) -m venv build/wheel-env
	build/wheel-env/bin/python -m pip --disable-pip-version-check install -q $$($(PYTHON) -c \
	  "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']['wheel'])")
	@touch $@

# The library where the Python package in the tree finds it (onnxfuse/custom_ops/), built incrementally.
build: $(VENV)/.tools
	PATH="$(abspath $(BIN)):$$PATH" cmake -S . -B build/tree -G Ninja -DONNXFUSE_WERROR=ON
	PATH="$(abspath $(BIN)):$$PATH" cmake --build build/tree

COUNT ?= 100000
SEED ?= 0
fuzz: $(VENV)/.tools
	$(BIN)/python tests/fuzz.py --count $(COUNT) --seed $(SEED) --save build/fuzz --reduce

CLANG ?= clang++
SECONDS ?= 3600
fuzz-programs: $(VENV)/.tools
	PATH="$(abspath $(BIN)):$$PATH" cmake -S . -B build/fuzz-programs -G Ninja -DONNXFUSE_FUZZ=ON \
	  -DCMAKE_CXX_COMPILER=$(CLANG) -DCMAKE_BUILD_TYPE=None
	PATH="$(abspath $(BIN)):$$PATH" cmake --build build/fuzz-programs --target onnxfuse-fuzz-program
	$(BIN)/python scripts/fuzz_programs.py build/fuzz-programs/onnxfuse-fuzz-program --seconds $(SECONDS)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(WHEELS)/.built: $(SOURCES) | $(BIN)/python
	@echo "Building the library (it takes a minute or two)"
	@rm -rf $(WHEELS)
	$(PIP) wheel -q --no-deps --wheel-dir $(WHEELS) .
	@touch $@

$(VENV)/.onnxfuse: $(WHEELS)/.built
	$(PIP) install -q --force-reinstall --no-deps $(WHEELS)/onnxfuse-*.whl
	$(PIP) install -q "$$(ls $(WHEELS)/onnxfuse-*.whl)[cpu]"
	@touch $@

$(VENV)/.tools: $(VENV)/.onnxfuse
	$(PIP) install -q "$$(ls $(WHEELS)/onnxfuse-*.whl)[cpu,test,docs,other-tools]" "$(TORCH)"
	@touch $@

clean:
	rm -rf build dist demo $(VENV)/.onnxfuse $(VENV)/.tools onnxfuse/custom_ops/*.so
