# make test: install everything and run the tests.    make demo: install everything and run the demo.
PYTHON ?= python3
BIN := .venv/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

CPP := $(shell find native examples -name '*.cpp' -o -name '*.h' -o -name '*.inc' -o -name '*.c')
SOURCES := CMakeLists.txt pyproject.toml constraints.txt $(shell find native -type f)
INSTALLED := .venv/installed
PIP_INSTALL := $(BIN)/python -m pip install --quiet --constraint constraints.txt

.PHONY: setup test lint format native-test capi sanitize arm-test python-test browser-test scale-test torture torture-commands \
  torture-short torture-c torture-python wheel wheel-test docs demo peers clean

# Recreates a broken environment (different Python version, interrupted install) and keeps a working one.
setup:
	@test ! -e $(INSTALLED) || $(BIN)/python -c 'import fm2, pip, pytest' 2> /dev/null || rm -f $(INSTALLED)
	@$(MAKE) --no-print-directory $(INSTALLED)

$(INSTALLED): $(SOURCES)
	@$(BIN)/python -c 'import pip' 2> /dev/null || { rm -rf .venv && $(PYTHON) -m venv .venv; }
	@echo "installing into .venv (2.3 GB including PyTorch); the first time takes a few minutes"
	$(PIP_INSTALL) scikit-build-core nanobind cmake ninja
	$(PIP_INSTALL) --no-build-isolation --editable '.[dev]'
	@touch $@

test: lint native-test python-test torture-short

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run -Werror $(CPP)
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CPP)

configure = $(BIN)/cmake -S . -B $(1) -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja
build_and_test = $(BIN)/cmake --build $(1) && $(BIN)/ctest --test-dir $(1) --output-on-failure

native-test: setup
	$(call configure,build/native)
	$(call build_and_test,build/native)

# The C interface: build/capi/include/fm2.h and build/capi/lib/libfm2.so.
capi: setup
	$(call configure,build/native)
	$(BIN)/cmake --build build/native --target fm2
	$(BIN)/cmake --install build/native --prefix build/capi --component capi

# The C++ tests with the address and undefined-behavior sanitizers. Not part of `make test`.
SANITIZERS := -O1 -fsanitize=address,undefined -fno-sanitize-recover=all
sanitize: setup
	$(call configure,build/sanitize) -DCMAKE_BUILD_TYPE=Debug \
	  -DCMAKE_CXX_FLAGS="$(SANITIZERS)" -DCMAKE_C_FLAGS="$(SANITIZERS)"
	$(call build_and_test,build/sanitize)

# The C++ tests on 64-bit Arm: cross-compiled, run under QEMU. Not part of `make test`.
# Installs Debian's packages if they are missing (needs root).
ARM := aarch64-linux-gnu
arm-test: setup
	@{ command -v $(ARM)-g++ && command -v qemu-aarch64; } > /dev/null || \
	  { apt-get update && apt-get install --yes --no-install-recommends g++-$(ARM) qemu-user; }
	$(call configure,build/arm) -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
	  -DCMAKE_C_COMPILER=$(ARM)-gcc -DCMAKE_CXX_COMPILER=$(ARM)-g++ \
	  -DCMAKE_CROSSCOMPILING_EMULATOR="qemu-aarch64;-L;/usr/$(ARM)"
	$(call build_and_test,build/arm)

# Several tests run at once, so waiting OpenMP threads (LightGBM, PyTorch) must not keep the cores busy: three times faster for trees.
python-test: setup
	OMP_WAIT_POLICY=passive $(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile tests src/fm2

# The page of `fm2 serve` in a real browser. Installs Debian's chromium if it is missing (needs root).
browser-test: setup
	@command -v chromium > /dev/null || { apt-get update && apt-get install --yes --no-install-recommends chromium; }
	$(BIN)/python -m pytest tests/browser

# Three workers, workers with little memory, in network namespaces (needs root), and killed at random moments; Ray. Not part of `make test`.
scale-test: setup
	$(BIN)/python -m pytest tests/distributed/scale_*.py

# The hostile campaign (docs/internals/robustness.md): commands that are killed or find the disk full, damaged files, hostile calls, and
# the C interface and the Python module under sanitizers. `make torture TORTURE_SECONDS=3600 SEED=7` tries more, and other things.
TORTURE_SECONDS ?= 300
SEED ?= 0
TORTURE := $(CURDIR)/build/torture
TORTURE_MODELS = $(TORTURE)/base/compiled/*.fm2
torture: torture-commands torture-c torture-python

torture-short: setup
	$(BIN)/python -m tests.torture --seconds 55 --seed $(SEED)

torture-commands: setup
	rm -rf $(TORTURE) && mkdir -p $(TORTURE)
	$(BIN)/python -m tests.torture --seconds $(TORTURE_SECONDS) --seed $(SEED) --keep $(TORTURE)

# configure and build with a sanitizer, then attack the C interface and the endpoints of requests
torture_c = $(call configure,build/torture-$(1)) -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS="-O1 -g -fsanitize=$(2)" \
  -DCMAKE_C_FLAGS="-fsanitize=$(2)" && $(BIN)/cmake --build build/torture-$(1) --target fm2_torture fm2_torture_requests && \
  build/torture-$(1)/fm2_torture $(TORTURE_SECONDS) $(SEED) $(TORTURE_MODELS) && \
  build/torture-$(1)/fm2_torture_requests $(TORTURE_SECONDS) $(SEED) $(TORTURE_MODELS)
torture-c: torture-commands
	$(call torture_c,address,address$(COMMA)undefined -fno-sanitize-recover=all)
	$(call torture_c,thread,thread)
COMMA := ,

# Without libstdc++, the sanitizer does not find the functions that throw exceptions.
torture-python: torture-commands
	$(call configure,build/torture-python) -DSKBUILD=ON -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS="-O1 -g -fsanitize=address" \
	  -DPython_EXECUTABLE=$(CURDIR)/$(BIN)/python -Dnanobind_DIR=$$($(BIN)/python -m nanobind --cmake_dir)
	$(BIN)/cmake --build build/torture-python --target _native
	LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libstdc++.so)" ASAN_OPTIONS=detect_leaks=0 FM2_TORTURE_NATIVE=$(CURDIR)/build/torture-python \
	  $(BIN)/python -m tests.torture --seconds $(TORTURE_SECONDS) --seed $(SEED) --keep $(TORTURE) --parts files,calls

# dist/fm2-*.whl for this machine's Python. auditwheel fails if the wheel needs libraries that other Linux machines may lack.
wheel: setup
	rm -rf build/wheel dist
	$(BIN)/python -m pip wheel --quiet --no-build-isolation --no-deps --wheel-dir build/wheel .
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m auditwheel repair --wheel-dir dist build/wheel/fm2-*.whl

# Installs the wheel into an environment with numpy alone and no compiler; loads, scores and ranks with a compiled model.
wheel-test: wheel
	FM2_WHEEL=$$(echo dist/fm2-*.whl) $(BIN)/python -m pytest tests/project/test_wheel.py

# The documentation as a website that works offline: build/site/index.html.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

demo: setup
	$(BIN)/python examples/demo.py

# The libraries that the benchmarks compare fm2 with: xLearn (which reads $USER when imported), LightGBM, CatBoost and
# scikit-learn in an environment of their own, deepctr-torch in a directory that is used together with .venv, and MLServer in a
# third environment, with a uvloop that still creates the event loop of its workers.
peers: setup .peers/installed

.peers/installed: constraints.txt benchmarks/peers.txt
	rm -rf .peers && $(PYTHON) -m venv .peers
	.peers/bin/python -m pip install --quiet --pre --no-deps xlearn==0.40a1
	.peers/bin/python -m pip install --quiet --requirement benchmarks/peers.txt
	USER=fm2 .peers/bin/python -c 'import xlearn, lightgbm, catboost, sklearn, polars'
	$(BIN)/python -m pip install --quiet --no-deps --target .peers/deepctr deepctr-torch==0.3.0 tqdm==4.70.1
	$(PYTHON) -m venv .peers/mlserver
	.peers/mlserver/bin/python -m pip install --quiet mlserver==1.7.1 numpy==2.4.6 uvloop==0.21.0
	@touch $@

clean:
	rm -rf .venv .peers build dist demo .mypy_cache .ruff_cache .pytest_cache .hypothesis
