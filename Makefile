# Every target works from a fresh clone: it makes .venv with pip and installs what it needs, pinned by constraints.txt.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
WORKERS ?= 2
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1
PIP    := $(BIN)/python -m pip install -qq

.PHONY: help demo test test-slow test-long lint docs bench format clean

help:
	@echo "make demo   the main job on this machine: no account, no GPU"
	@echo "make test   the test suite (about ten minutes on two cores)"
	@echo "make test-slow  the tests that take longer; CI runs them too"
	@echo "make test-long  what CI has no time for"
	@echo "make lint   ruff, mypy, import-linter, generated pages up to date"
	@echo "make docs   build the documentation, strictly"
	@echo "make bench  the benchmarks, as ratios against named peers"

# torch first, by itself: another package asking for it must find it there and not fetch a CUDA build.
$(VENV)/.base: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) pip setuptools wheel hatchling editables
	$(PIP) torch numpy
	$(PIP) --no-build-isolation -e .[aws,k8s,data,watch]
	@$(BIN)/python -m compileall -q src/trainwright
	@touch $@

$(VENV)/.dev: $(VENV)/.base
	$(PIP) --no-build-isolation -e .[aws,k8s,data,dev]
	@touch $@

$(VENV)/.docs: $(VENV)/.base
	$(PIP) --no-build-isolation -e .[docs]
	@touch $@

# The judges (ParallelCluster's own validators, checkov, ansible-lint) pin old libraries: each has an environment of its own.
.venvs/.made: $(VENV)/.dev $(wildcard judges/*.txt)
	-@PYTHONPATH=tests $(BIN)/python -c "from judges.pcluster import environment as e; e('pcluster'), e('checkov'), e('ansible')" && touch $@

.PHONY: system system-tests
system:
	@sh tools/system-packages.sh

# A browser looks at the pages that are tested, an editor at findings; packer validates the machine images.
system-tests:
	@sh tools/system-packages.sh chromium fonts-dejavu-core jq neovim packer prometheus prometheus-alertmanager slapd ldap-utils sssd-ldap libnss-sss libpam-sss mariadb-server slurmdbd

# The API server of the slow tests, built once into the user's cache; without it they are skipped, or fail in CI.
.PHONY: kubernetes
kubernetes:
	-@tools/build_kubernetes.sh > /dev/null

demo: $(VENV)/.base system
	$(BIN)/trainwright demo

# Each worker has a core: threads of torch beyond it wait for each other, at three times the processor time.
test: export OMP_NUM_THREADS ?= 1
test: $(VENV)/.dev .venvs/.made system-tests
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not slow and not gpu" $(ARGS)

# Many of these wait more than they compute: one worker more than cores.
test-slow: WORKERS = 3
test-slow: $(VENV)/.dev .venvs/.made system-tests kubernetes
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "slow and not gpu and not long" $(ARGS)

# What CI has no time for: an hour of two cores holds the rest.
test-long: $(VENV)/.dev .venvs/.made system-tests
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m long $(ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python tools/generate_docs.py --check

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# With the local Slurm: the pages show what the verbs print on one.
docs: $(VENV)/.docs system
	$(BIN)/python tools/generate_docs.py
	$(BIN)/python tools/recordings.py
	$(BIN)/mkdocs build --strict

bench: $(VENV)/.dev
	$(PIP) --no-build-isolation -e .[bench]
	@for script in benchmarks/check.py benchmarks/loader.py benchmarks/checkpoint.py benchmarks/predict_accuracy.py benchmarks/collectives.py benchmarks/images.py; do \
	  test -f $$script && { echo "== $$script"; $(BIN)/python $$script || exit 1; }; done

clean:
	rm -rf $(VENV) .venvs site build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
