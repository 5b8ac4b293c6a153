# Every target makes its own virtual environment from the hashed lock, once. Only what is locked is
# installed and nothing is resolved (--no-deps), so that no later release can change or break it.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: help demo test test-all docs figures bench tables studies lint format lock clean

help:            ## what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 12

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "partialbayes needs Python 3.11 or newer: make PYTHON=/path/to/python $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) --no-deps --require-hashes -r requirements.lock
	$(PIP) --no-deps --no-build-isolation --editable .
	$(BIN)/python -m pip check
	@touch $(READY)

demo: $(READY)   ## train on two moons, print the table, write demo/two_moons.png
	$(BIN)/python examples/two_moons.py

test: $(READY)   ## the tests, without the slow statistical ones
	$(BIN)/python -m pytest -n auto

test-all: $(READY)  ## every test, the slow ones too
	$(BIN)/python -m pytest -n auto -m ""

docs: $(READY)   ## the site, to docs/_build/html/index.html; a warning is an error
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

figures: $(READY) ## draw the gallery's pictures again (a few minutes)
	cd docs/figures && for script in ../../examples/gallery/*.py ../../examples/drifting_stream.py; do \
	    MPLBACKEND=Agg ../../$(BIN)/python $$script || exit 1; done

bench: $(READY)  ## speed and memory against rivals, to docs/benchmarks.md (half an hour)
	PYTHONPATH=. $(BIN)/python -m benchmarks.table

tables: $(READY)  ## the paper's tables and figures, to results/ (hours; goes on where it was stopped)
	$(BIN)/partialbayes reproduce all --small
	$(BIN)/partialbayes reproduce all --track best

studies: $(READY)  ## tables of calibration and of HMC's speed (half an hour)
	$(BIN)/python benchmarks/calibration.py
	$(BIN)/python benchmarks/hmc.py

lint: $(READY)   ## ruff and mypy --strict on the package
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY) ## let ruff rewrite the files
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock:            ## write requirements.lock anew (needs uv; UPGRADE=--upgrade takes the newest versions)
	uv pip compile pyproject.toml --all-extras --universal --python-version 3.11 \
	    --generate-hashes --no-header --no-strip-extras $(UPGRADE) -o requirements.lock
	uv run --no-project --with packaging --with pip python -m tools.record_requirements

clean:           ## remove the environment and the caches
	rm -rf $(VENV) docs/_build .mypy_cache .ruff_cache .pytest_cache
