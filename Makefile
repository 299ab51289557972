# make test: set everything up and pass the tests.    make demo: set everything up and run the main job.
PYTHON ?= python3
BIN := .venv/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

SOURCES := CMakeLists.txt pyproject.toml constraints.txt $(shell find native -type f)
INSTALLED := .venv/installed

.PHONY: setup test lint native-test capi sanitize python-test docs demo peers clean

# A broken environment (another Python, a half-finished install) is made anew; a good one is kept.
setup:
	@test ! -e $(INSTALLED) || $(BIN)/python -c 'import fm2, pip, pytest' 2> /dev/null || rm -f $(INSTALLED)
	@$(MAKE) --no-print-directory $(INSTALLED)

$(INSTALLED): $(SOURCES)
	@$(BIN)/python -c 'import pip' 2> /dev/null || { rm -rf .venv && $(PYTHON) -m venv .venv; }
	@echo "installing into .venv (PyTorch among it, about 2.3 GB): this takes some minutes the first time"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt scikit-build-core nanobind cmake ninja
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-build-isolation --editable '.[dev]'
	@touch $@

test: lint native-test python-test

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

configure = $(BIN)/cmake -S . -B $(1) -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja

native-test: setup
	$(call configure,build/native)
	$(BIN)/cmake --build build/native
	$(BIN)/ctest --test-dir build/native --output-on-failure

# The C interface: build/capi/include/fm2.h and build/capi/lib/libfm2.so.
capi: setup
	$(call configure,build/native)
	$(BIN)/cmake --build build/native --target fm2
	$(BIN)/cmake --install build/native --prefix build/capi --component capi

# The C++ tests again, under the address and undefined-behavior sanitizers; not part of `make test`.
SANITIZERS := -O1 -fsanitize=address,undefined -fno-sanitize-recover=all
sanitize: setup
	$(call configure,build/sanitize) -DCMAKE_BUILD_TYPE=Debug \
	  -DCMAKE_CXX_FLAGS="$(SANITIZERS)" -DCMAKE_C_FLAGS="$(SANITIZERS)"
	$(BIN)/cmake --build build/sanitize
	$(BIN)/ctest --test-dir build/sanitize --output-on-failure

python-test: setup
	$(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile tests src/fm2

# The documentation as a site that needs no network: build/site/index.html.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

demo: setup
	$(BIN)/python examples/demo.py

# What the benchmarks compare with: xLearn in an environment of its own, which needs no other package but a user's name;
# deepctr-torch beside it, to be used with the packages of .venv.
peers: setup .peers/installed

.peers/installed: constraints.txt
	rm -rf .peers && $(PYTHON) -m venv .peers
	.peers/bin/python -m pip install --quiet --pre --no-deps xlearn==0.40a1
	USER=fm2 .peers/bin/python -c 'import xlearn'
	$(BIN)/python -m pip install --quiet --no-deps --target .peers/deepctr deepctr-torch==0.3.0 tqdm==4.70.1
	@touch $@

clean:
	rm -rf .venv .peers build demo .mypy_cache .ruff_cache .pytest_cache .hypothesis
