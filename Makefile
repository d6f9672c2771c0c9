# The commands people and CI share. Each does what it needs of the earlier ones by itself.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
ENVIRONMENTS_STAMP := $(VENV)/.environments
TRACKERS_STAMP := $(VENV)/.trackers
DOCS_STAMP := $(VENV)/.docs
DOCS_BUILD := docs/_build
DEMO := runs/demo
ENVIRONMENTS := classic/rps-v2 classic/tictactoe-v3 classic/connect_four-v3 \
	openspiel:kuhn_poker openspiel:leduc_poker mpe2/simple_spread_v3 mpe2/simple_tag_v3
SOAK_KILLS ?= 200
SOAK_MINUTES ?= 30

.PHONY: help setup demo docs test test-slow goldens check fix bench test-envs test-faults soak test-all

help:
	@echo "make setup        a virtual environment in $(VENV) with all that the others need"
	@echo "make demo         train, rank and export a Connect Four champion, and play against it (under four minutes)"
	@echo "make docs         the documents as web pages, $(DOCS_BUILD)/html/index.html"
	@echo "make test         all tests that take no more than two seconds (under four minutes)"
	@echo "make test-slow    the others: whole runs, intervals over many draws, pages (apt-get install chromium)"
	@echo "make goldens      what was stored of how the product behaves, compared with how it does now"
	@echo "make check        lint, format, types and the budgets of lines"
	@echo "make fix          what of that can be mended automatically"
	@echo "make bench        this machine's throughput, and which ratio fell below the stored table's"
	@echo "make test-envs    every supported environment: contract, speed, twins, a short training run"
	@echo "make test-faults  the fault matrix: what is killed, filled, torn, forged and lied about"
	@echo "make soak         SOAK_KILLS random SIGKILLs over a Connect Four run in SOAK_MINUTES"
	@echo "make test-all     all tests, the environments and the checks"

setup: $(STAMP)

# torch comes first and alone: another request beside it could resolve to another build. Its builds for
# processors alone, a fifth of the size: make setup TORCH_INDEX=https://download.pytorch.org/whl/cpu
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit("Python 3.11 or newer is needed, this is %d.%d: make setup PYTHON=..." % v[:2])'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) $$(grep '^torch==' constraints.txt)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --requirement constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(STAMP)

demo: setup
	$(BIN)/arena launch connect_four --run-dir $(DEMO) --force
	$(BIN)/arena league $(DEMO)
	$(BIN)/arena export $(DEMO) --html --force
	$(BIN)/arena evaluate $(DEMO)/champion bot:random --matches 200 --greedy
	$(BIN)/python $(DEMO)/champion/champion.py --games 200
	$(BIN)/arena web $(DEMO) --export $(DEMO)/page
	@echo
	@echo "Play against it: open file://$(CURDIR)/$(DEMO)/champion/champion.html in a browser and click a column."
	@echo "Or here: $(BIN)/arena play $(DEMO)"

# -n: every reference must resolve; -W: a warning is an error, --keep-going: all are shown.
docs: $(DOCS_STAMP)
	$(BIN)/python -m sphinx -W --keep-going -n -q -b html -d $(DOCS_BUILD)/doctrees docs $(DOCS_BUILD)/html

$(DOCS_STAMP): $(STAMP) constraints-docs.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --requirement constraints-docs.txt
	@touch $(DOCS_STAMP)

# One thread of BLAS for each worker: more than cores make the suite three times as slow. The same
# kernels of OpenBLAS on all processors: decisions that are equal to the last bit are compared.
SAME := OMP_NUM_THREADS=1 OPENBLAS_CORETYPE=Haswell

# Bytecode is kept whatever the shell says: else each of some hundred processes compiles the
# project anew.
PYTEST := PYTHONDONTWRITEBYTECODE= $(SAME) $(BIN)/python -m pytest -n 2

# Files of tests lie in memory where there is enough: journals and checkpoints are synced to the disk again and again.
MEMORY := $(shell ! grep -qs ' /dev/shm .*noexec' /proc/mounts && test "$$(df -k --output=avail /dev/shm 2>&1 | tail -n 1)" -gt 4000000 2>/dev/null && echo TMPDIR=/dev/shm)

test: setup
	$(MEMORY) $(PYTEST) --dist loadgroup -m "not slow and not faults"

# What test-faults and test-envs run is left to them, and runs of a minute to test-all.
test-slow: $(TRACKERS_STAMP)
	$(PYTEST) --dist loadgroup --timeout 300 -m "slow and not long and not faults and not matrix"

goldens: setup
	@set -e; for part in decisions front_door commands environments hostile outlets conversations; do $(SAME) $(BIN)/python -m tests.goldens.$$part; done

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m experiments.house --check

fix: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup
	$(BIN)/arena bench --guard

# The matrix shows what it skips, and why.
# KAGGLE_PYTHON=PYTHON: one with kaggle-environments, which plays and shows what arena replay writes.
test-envs: $(ENVIRONMENTS_STAMP)
	$(PYTEST) -rs --timeout 600 tests/environments tests/arena/envs
	@set -e; for id in $(ENVIRONMENTS); do $(BIN)/arena envs check $$id; done

$(ENVIRONMENTS_STAMP): $(STAMP) constraints-environments.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --requirement constraints-environments.txt
	@touch $(ENVIRONMENTS_STAMP)

$(TRACKERS_STAMP): $(STAMP) constraints-trackers.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --requirement constraints-trackers.txt
	@touch $(TRACKERS_STAMP)

test-faults: setup
	$(PYTEST) --dist loadgroup -m "faults and not slow"

soak: setup
	$(BIN)/python -m experiments.faults.soak --kills $(SOAK_KILLS) --minutes $(SOAK_MINUTES)

# What test-envs runs is left to it.
test-all: $(TRACKERS_STAMP)
	$(PYTEST) --dist loadgroup -m "not matrix"
	$(MAKE) test-envs check
