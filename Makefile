# Everything runs in a local .venv; the only requirements are Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# One BLAS thread per process: test workers and benchmarks use the cores themselves.
export OPENBLAS_NUM_THREADS := 1
export OMP_NUM_THREADS := 1
export MKL_NUM_THREADS := 1
# Compiled modules are kept: the tests start hundreds of processes.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo paper test lowest mutants fuzz lint format docs dist bench clean

demo: $(READY)  ## a synthetic factory, from its sounds to a report
	rm -rf daco-demo
	$(BIN)/daco demo --out daco-demo

paper: $(READY)  ## the paper's values, recomputed; PUBLISHED=FOLDER reads another copy of its files
	$(BIN)/python -m reproduction $(PUBLISHED)

# Many tests wait for processes and for time to pass: two workers more than there are cores work
# meanwhile.
test: $(READY)  ## the whole suite
	$(BIN)/python -m pytest --dist worksteal \
	  -n $$($(BIN)/python -c 'import os; print(2 + os.cpu_count())')

# The lowest versions that pyproject.toml admits, with today's test tools.
LOWEST := .venv-lowest
CORE := files compute data audio method evaluation embedding detector

lowest:  ## tests of the core with the lowest versions of its dependencies
	$(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python -m pip install -q uv
	$(LOWEST)/bin/uv pip install -q --python $(LOWEST) --resolution lowest-direct -e '.[remote]'
	$(LOWEST)/bin/uv pip install -q --python $(LOWEST) -e '.[remote]' 'moto[s3]' flask flask-cors pytest pytest-xdist pytest-timeout hypothesis
	$(LOWEST)/bin/python -m pytest -q -n auto -o filterwarnings= -m "not cluster" $(CORE:%=tests/unit/%)

mutants: $(READY)  ## changes of the method that no test notices; MODULES="method/bank ..." for some
	$(BIN)/python tests/mutants.py $(MODULES)

fuzz: $(READY)  ## random inputs that the suite does not try, for FUZZ_SECONDS (600)
	$(BIN)/python tests/fuzz/explore.py

lint: $(READY)  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.docs  ## the manual, in docs/_build/html
	rm -rf docs/_build/html
	$(BIN)/sphinx-build -W --keep-going -q -b html -d docs/_build/doctrees docs docs/_build/html
	$(BIN)/python -m pytest -q docs/test_built_manual.py
	@echo docs/_build/html/index.html

dist: $(VENV)/.dist  ## wheel and source archive in dist/, checked in a new environment
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	$(BIN)/python tests/release/check_dist.py dist $(if $(TAG),--tag $(TAG))

bench: $(READY)  ## the speed and memory tables of benchmarks/RESULTS.md
	$(BIN)/python benchmarks/engine.py
	$(BIN)/python benchmarks/big_bank.py
	$(BIN)/python benchmarks/study.py

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "daco needs Python 3.11 or newer; set PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test,lint]'
	touch $@

$(VENV)/.docs: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	touch $@

$(VENV)/.dist: constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt build
	touch $@

clean:
	rm -rf $(VENV) $(LOWEST) build docs/_build daco-demo dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src reproduction tests benchmarks -name __pycache__ -prune -exec rm -rf {} +
