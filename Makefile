# Everything runs in .venv, which is built from uv.lock; `make` with no target lists what there is.

UV_VERSION := 0.13.9
# The first Python that runs and that the lock covers (a pyenv shim may be on the PATH and yet not run).
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3 python; do \
  $$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' >/dev/null 2>&1 && { echo $$p; break; }; done)

BIN := .venv/bin
UV := $(BIN)/uv sync --frozen --inexact --compile-bytecode --quiet
LOCK_HASH := $(shell cksum < uv.lock | tr -d ' ')
BASE := .venv/.synced-base-$(LOCK_HASH)
FULL := .venv/.synced-full-$(LOCK_HASH)

# What `make demo` runs; DEMO_ARGS adds to it (`make demo DEMO_ARGS=--cfg.num_train_steps=100`).
DEMO := $(BIN)/kdr sweep pipelines/configs/digits.py --sweep.optimizer.learning_rate='[1e-3, 1e-2]' \
  --sweep.model.hidden='[32, 128]' --run.name=demo

# Tests that use Ray have a process of their own: Ray stays in one that imported it, and others want one without.
OF_ITS_OWN := cluster or browser
FAST := -m "not (cluster or seqio or browser or process or slow or soak)"

.PHONY: help venv venv-full demo demo-job test test-fast soak lint types notebooks bench bench-quick
help:
	@echo "make demo       a sweep on real data: trains, evaluates, records in MLflow"
	@echo "make demo-job   the same as a Ray job, on a Ray head started for it"
	@echo "make test       every test (about 25 minutes on two cores)"
	@echo "make test-fast  the tests without Ray, TensorFlow and child processes"
	@echo "make soak       random kills and scale (KILLS=, MINUTES=)"
	@echo "make lint       ruff, types, import rules"
	@echo "make notebooks  executes the notebooks"
	@echo "make bench      the measurements of benchmarks/"
	@echo "make bench-quick  their ratios in some four minutes, beside the committed ones (BENCH_ARGS=--write commits them)"
	@echo "make venv       .venv from the lock file; venv-full adds the test tools and SeqIO"

$(BIN)/uv:
	@test -n "$(PYTHON)" || { echo "error: no Python 3.11, 3.12 or 3.13 found. Install one, or name it: make PYTHON=/path/to/python3.12"; exit 2; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "error: $(PYTHON) has no venv module. On Debian and Ubuntu: apt-get install python3-venv"; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

$(BASE): | $(BIN)/uv
	@echo "installing the locked packages into .venv"
	@$(UV)
	@rm -f .venv/.synced-* && touch $@

$(FULL): | $(BIN)/uv
	@echo "installing the locked packages, the test tools and SeqIO into .venv"
	@$(UV) --extra seqio --group dev
	@rm -f .venv/.synced-* && touch $@ $(BASE)

venv: $(BASE)
venv-full: $(FULL)

demo: $(BASE)
	$(DEMO) $(DEMO_ARGS)

demo-job: $(BASE)
	$(BIN)/python -m pipelines.demo_job $(DEMO_ARGS)

test-fast: $(FULL)
	$(BIN)/pytest -n 2 -q $(FAST)

test: $(FULL)
	$(BIN)/pytest -n 2 -q -m "not ($(OF_ITS_OWN) or seqio or soak)"
	$(BIN)/pytest -q -m "($(OF_ITS_OWN)) and not (seqio or soak)"
	$(BIN)/pytest -q -m "seqio and not soak"

soak: $(FULL)
	HYPOTHESIS_PROFILE=soak $(BIN)/pytest -q -m soak --timeout=7200

lint: $(FULL)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright
	$(BIN)/lint-imports

notebooks: $(FULL)
	$(BIN)/python notebooks/execute.py

bench: $(FULL)
	for script in $(filter-out benchmarks/quick.py,$(wildcard benchmarks/*.py)); do echo "== $$script"; $(BIN)/python $$script || exit 1; done

bench-quick: $(FULL)
	$(BIN)/python -m benchmarks.quick $(BENCH_ARGS)
