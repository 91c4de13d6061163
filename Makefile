# Every target makes its own .venv on a fresh machine; a second call finds the stamps and starts at once.
#
#   make demo     the scripts of examples/gallery, into one HTML file with their pictures; says where it is
#   make test     what a user would want to know        (make test PYTEST_ARGS="-x tests/operators")
#   make test-more the other tests, less those marked slow or bench
#   make test-all both, and the slow ones
#   make test-oldest  with the lowest versions that pyproject.toml allows; make test-bare: with no optional library
#   make package  the sdist and the wheel, checked, and the wheel tried in an environment of its own
#   make lint     ruff and mypy
#   make bench    the benchmarks; tables go to benchmarks/results/
#   make peers    the same problems by other libraries, into docs/explanation/peers.md and test-set.md
#   make docs     the documentation, warnings as errors; goes to docs/_build/html/

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
# The sets below share one .venv: two installs at once would be in each other's way.
.NOTPARALLEL:

PYTHON ?= python3
PYTEST_ARGS ?=
# Processes that share the tests: one more than there are cores, because some tests wait.
JOBS ?= $(shell echo $$(( $$(nproc 2>/dev/null || echo 2) + 1 )))
VENV := .venv
BIN := $(VENV)/bin
# What is imported is compiled then; compiling all of PyTorch and JAX takes a minute.
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt
# Libraries of linear algebra read this when they are loaded; their threads would spin beside each other's.
PYTEST := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses $(JOBS) --dist worksteal
# Tests start many interpreters: each would compile the library again.
unexport PYTHONDONTWRITEBYTECODE
# peers.py needs other libraries, and has a target of its own.
BENCHMARKS := $(filter-out benchmarks/_% benchmarks/make_% benchmarks/peers.py,$(wildcard benchmarks/*.py))

.PHONY: help demo test test-more test-all test-oldest test-bare package lint bench peers docs clean

help:
	@sed -n 's/^#   //p' Makefile

demo: $(VENV)/.light
	$(BIN)/hpfracc demo

# Optimising takes XLA longer than running what a test runs once: left out here, and in no other run of the tests.
test test-more: export XLA_FLAGS := $(XLA_FLAGS) --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true --xla_cpu_use_fusion_emitters=false
# Processes that share the tests compile the same small programs: the first to do so leaves them for the others.
test test-more: export JAX_COMPILATION_CACHE_DIR := $(CURDIR)/.pytest_cache/jax
test test-more: export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS := 0
test test-more: export JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES := -1
test: $(VENV)/.compiled
	$(PYTEST) -m "not slow and not bench and not more" $(PYTEST_ARGS)

test-more: $(VENV)/.compiled
	$(PYTEST) -m "more and not slow and not bench" $(PYTEST_ARGS)

test-all: $(VENV)/.full
	$(PYTEST) -m "not bench" $(PYTEST_ARGS)

lint: $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# No PyTorch: its oldest builds for the CPU are not on the package index.
test-oldest:
	$(PYTHON) -m venv --clear .venv-oldest
	$(PYTHON) -m tests.packaging.lowest > .venv-oldest/lowest.txt
	.venv-oldest/bin/python -m pip install --quiet --disable-pip-version-check --constraint .venv-oldest/lowest.txt \
		--editable '.[test-bare,numba,jax,dask,plot,graph,parallel,sklearn,frames]'
	OMP_NUM_THREADS=1 .venv-oldest/bin/python -m pytest --numprocesses $(JOBS) -m "not slow and not bench" $(PYTEST_ARGS)

test-bare:
	$(PYTHON) -m venv --clear .venv-bare
	.venv-bare/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[test-bare]'
	OMP_NUM_THREADS=1 .venv-bare/bin/python -m pytest --numprocesses $(JOBS) -m "not slow and not bench" $(PYTEST_ARGS)

package:
	rm -rf dist
	$(PYTHON) -m venv --clear .venv-package
	.venv-package/bin/python -m pip install --quiet --disable-pip-version-check build twine
	.venv-package/bin/python -m build --quiet
	.venv-package/bin/python -m twine check --strict dist/*
	$(PYTHON) -m tests.packaging.check dist
	$(PYTHON) -m venv --clear .venv-package
	.venv-package/bin/python -m pip install --quiet --disable-pip-version-check dist/*.whl
	cd dist && ../.venv-package/bin/python ../tests/packaging/exercise.py

bench: $(VENV)/.full
	@mkdir -p benchmarks/results
	@for file in $(BENCHMARKS); do \
		echo "== $$file"; \
		options=$$([ "$$file" = benchmarks/selection.py ] && echo --live || true); \
		PYTHONUNBUFFERED=1 $(BIN)/python "$$file" $$options | tee "benchmarks/results/$$(basename "$$file" .py).txt"; \
	done

peers:
	$(PYTHON) -m venv --clear .venv-peers
	.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
		--editable '.[numba,torch,jax]' pycaputo differint numfracpy pymittagleffler fbm stochastic py-pde diffrax torchdiffeq
	OMP_NUM_THREADS=1 .venv-peers/bin/python benchmarks/peers.py --write
	-.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check git+https://github.com/kangqiyu/torchfde
	for library in hpfracc pycaputo torchfde differint scipy octave; do \
		OMP_NUM_THREADS=1 .venv-peers/bin/python -m testset --with $$library --tolerance 1e-4 --json .venv-peers/$$library.json; \
		OMP_NUM_THREADS=1 .venv-peers/bin/python -m testset --with $$library --ladder --json .venv-peers/ladder-$$library.json; \
	done; true
	.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check matplotlib
	.venv-peers/bin/python -m testset.diagrams --page docs/explanation/test-set.md $(foreach each,hpfracc pycaputo torchfde differint scipy octave,.venv-peers/$(each).json)
	.venv-peers/bin/python -m testset.diagrams --to docs/pictures .venv-peers/ladder-*.json

docs: $(VENV)/.docs
	$(BIN)/python -m sphinx --builder html --fail-on-warning --keep-going --quiet docs docs/_build/html
	@echo "The documentation is in docs/_build/html/index.html"

clean:
	rm -rf $(VENV) .venv-oldest .venv-bare .venv-package .venv-peers dist docs/_build docs/gallery docs/reference/*/ .pytest_cache .mypy_cache .ruff_cache .hypothesis

# --- the environment ---------------------------------------------------------------------------------------------

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and f"hpfracc needs Python 3.11 or newer, and $(PYTHON) is {sys.version.split()[0]}: name another with make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	@touch $@

# No torch or jax: enough for the demo, less two of its scripts, and quick to install.
$(VENV)/.light: $(VENV)/.made pyproject.toml constraints.txt
	$(INSTALL) --editable '.[numba,plot]'
	@touch $@

# What lint needs is in it.
$(VENV)/.full: $(VENV)/.made pyproject.toml constraints.txt
	$(INSTALL) --editable '.[test,dev,numba,torch,jax,sklearn,plot,dask]'
	@touch $@ $(VENV)/.lint

# Bytecode of what the tests import. Processes that share the tests start together: each would compile all of it.
# A test file that cannot be imported is reported by the tests. Then what takes Numba longest, while mypy keeps the other core.
$(VENV)/.compiled: $(VENV)/.full
	@$(BIN)/python -m pytest --collect-only -qq >/dev/null 2>&1 || true
	@$(BIN)/python -m pytest -qq -k rotation_is_stable tests/solvers/ode/adaptive/test_adaptive.py >/dev/null 2>&1 || true
	@touch $@

# mypy counts the optional libraries as Any, so they need not be there.
$(VENV)/.lint: $(VENV)/.made pyproject.toml constraints.txt
	$(INSTALL) --editable '.[dev]'
	@touch $@

$(VENV)/.docs: $(VENV)/.made pyproject.toml constraints.txt
	$(INSTALL) --editable '.[docs,numba,torch,jax,plot,dask,frames,sklearn,graph]'
	@touch $@
