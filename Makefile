# Every target makes its own virtual environment, once: `make demo` from requirements-run.lock, the others
# from requirements.lock, which holds all of it and more. Only what is locked is installed and nothing is
# resolved (--no-deps), so that no later release can change or break it.
VENV   := .venv
BIN    := $(VENV)/bin
RUN    := $(VENV)/.run
DEV    := $(VENV)/.dev
# Python compiles what is imported when it is imported; most of what is installed never is.
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-compile
LOCK    = uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes --no-header \
          --no-strip-extras $(UPGRADE)

# LAPACK's own threads wait for each other by spinning: small matrices become slower, much so where other
# processes want the cores.
export OPENBLAS_NUM_THREADS ?= 1

# Some shells ask Python to keep no bytecode; then each process that a test starts compiles JAX's source anew.
unexport PYTHONDONTWRITEBYTECODE

# Tests over all cores. A worker has whole files, so that what one test compiles serves the next, until the
# other has none left.
SPREAD := -n auto --dist worksteal

# The first Python from 3.11 on; `make PYTHON=/path/to/python demo` names another.
PYTHON ?= $(shell for name in python3.14 python3.13 python3.12 python3.11 python3; do \
    $$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$name && break; done)

.PHONY: help demo test test-all test-torch docs figures bench faceoff tables pictures studies lint format lock clean

help:            ## what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 12

$(VENV)/.made:
	@test -n "$(PYTHON)" || \
	    { echo "partialbayes needs Python 3.11 or later: install it, or name it by make PYTHON=/path/to/python."; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	    { echo "$(PYTHON) cannot make a virtual environment: install its venv module (Debian: apt install python3-venv)."; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	@touch $@

# Installs a lock file, then the project itself; what is there already stays.
define install
	$(PIP) --require-hashes -r $(1)
	$(PIP) --no-build-isolation --editable .
	$(BIN)/python -m pip check
	@touch $@
endef

$(RUN): requirements-run.lock pyproject.toml | $(VENV)/.made
	$(call install,requirements-run.lock)

$(DEV): requirements.lock pyproject.toml | $(VENV)/.made
	$(call install,requirements.lock)

demo: $(RUN)     ## train on two moons, print the table, write demo/two_moons.png
	$(BIN)/python examples/two_moons.py

test: $(DEV)   ## the tests, without the slow statistical ones
	$(BIN)/python -m pytest $(SPREAD)

test-all: $(DEV)  ## every test, the slow ones too
	$(BIN)/python -m pytest $(SPREAD) -m ""

TORCH := $(VENV)-torch

$(TORCH)/.made: requirements.lock requirements-torch.txt requirements-keras.txt pyproject.toml
	$(PYTHON) -m venv --clear $(TORCH)
	$(TORCH)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements.lock
	$(TORCH)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	$(TORCH)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-torch.txt -r requirements-keras.txt
	@touch $@

test-torch: $(TORCH)/.made ## the tests of PyTorch and Keras networks, in an environment of their own
	$(TORCH)/bin/python -m pytest -m "" tests/networks tests/test_guides.py -k "torch or keras or laplace or bridges"

docs: $(DEV)   ## the site, to docs/_build/html/index.html; a warning is an error
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

figures: $(DEV) ## draw the gallery's pictures again (a few minutes)
	cd docs/figures && for script in ../../examples/gallery/*.py ../../examples/drifting_stream.py; do \
	    MPLBACKEND=Agg ../../$(BIN)/python $$script || exit 1; done

FACEOFF := .venv-faceoff

$(FACEOFF)/.made: benchmarks/requirements-faceoff.txt
	$(PYTHON) -m venv --clear $(FACEOFF)
	$(FACEOFF)/bin/python -m pip install --quiet --disable-pip-version-check -r benchmarks/requirements-faceoff.txt
	@touch $@

faceoff: $(DEV) $(FACEOFF)/.made ## the estimators beside others on tables in FACEOFF_DATA, to docs/faceoff.md (hours)
	$(BIN)/python benchmarks/faceoff.py run
	$(FACEOFF)/bin/python benchmarks/faceoff.py run
	$(BIN)/python benchmarks/faceoff.py report

bench: $(DEV)  ## speed and memory against rivals, to docs/benchmarks.md (half an hour)
	PYTHONPATH=. $(BIN)/python -m benchmarks.table

tables: $(DEV)  ## run the paper's experiments, to reproduction/results/ (hours; continues where it was stopped)
	$(BIN)/python -m reproduction all --small
	$(BIN)/python -m reproduction all --track best

pictures: $(DEV)  ## draw the figures of reproduction/results/ and the page that shows them (a minute)
	$(BIN)/python -m reproduction figures

studies: $(DEV)  ## tables of calibration and of HMC's speed (half an hour)
	$(BIN)/python benchmarks/calibration.py
	$(BIN)/python benchmarks/hmc.py

lint: $(DEV)   ## ruff and mypy --strict on the package
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(DEV) ## let ruff rewrite the files
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock:            ## write the lock files anew (needs uv; UPGRADE=--upgrade takes the newest versions)
	$(LOCK) --all-extras --group dev -o requirements.lock
	$(LOCK) --extra sklearn --extra plots --group build -c requirements.lock -o requirements-run.lock
	uv run --no-project --with packaging --with pip python -m tools.record_requirements

clean:           ## remove the environment and the caches
	rm -rf $(VENV) $(VENV)-torch docs/_build .mypy_cache .ruff_cache .pytest_cache
