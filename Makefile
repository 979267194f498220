# Everything a contributor runs. `make` alone lists the targets; the work itself is in scripts/ and in the packages.

PYTHON ?= python3
VENV := .venv/bin
WORKERS ?= 2
VLLM_TESTS := packages/agentr1-train/tests/test_sampler_vllm*.py integration_tests/test_vllm_run.py
TRL := trl==1.16.0 accelerate datasets multiprocess dill xxhash pandas  # beside .venv, for a benchmark alone

# Tests share the machine's cores between pytest workers and DeepSpeed ranks: one thread for each process.
export OMP_NUM_THREADS ?= 1
export TOKENIZERS_PARALLELISM ?= false
export NO_MKDOCS_2_WARNING = 1

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup setup-alfworld setup-vllm quickstart test check unit alone wheels docs bench-tools bench-envs bench-train bench-rollout test-gpu lock

help:  ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

setup:  ## build the environment in .venv from a bare Python >= 3.11
	@$(PYTHON) scripts/setup.py

setup-alfworld: setup  ## add the original ALFWorld engine (GPL), which ours is compared with; compiles, once, three minutes
	@$(PYTHON) scripts/setup.py alfworld

setup-vllm: setup  ## the environment of the vLLM tests, in .venvs/vllm: vLLM's CPU build beside the packages
	@$(PYTHON) scripts/setup_vllm.py

quickstart: setup  ## train a small tool-using agent here, from nothing, in two to four minutes
	@$(VENV)/python -m agentr1_train.quickstart

test: check unit alone wheels  ## all of it: check, unit and integration tests, each package alone, wheels

check: setup  ## lint, format, types, import contracts
	$(VENV)/ruff check .
	$(VENV)/ruff format --check .
	$(VENV)/pyright
	$(VENV)/lint-imports --no-cache

unit: export AGENTR1_TEST_RUNS = $(CURDIR)/runs/tests
unit: setup  ## unit and integration tests in the whole environment
	@rm -rf $(CURDIR)/runs/tests
	@$(PYTHON) scripts/setup.py alfworld || [ "$$CI" != true ]  # without a compiler, the comparison with it is skipped
	$(VENV)/python -m pytest -n $(WORKERS) --dist loadfile -m "not ranks and not gpu and not vllm"
	$(VENV)/python -m pytest -m "ranks and not gpu and not vllm"  # these fill the cores: one at a time
	@$(PYTHON) scripts/setup_vllm.py || [ "$$CI" != true ]  # where vLLM's CPU build cannot be had, its tests are left out
	@if [ -x .venvs/vllm/bin/python ]; then .venvs/vllm/bin/python -m pytest $(VLLM_TESTS) -m "vllm and not gpu"; fi

alone: setup  ## each package's own short tests in an environment that holds that package alone
	@for package in agentr1-tools agentr1-envs agentr1-train; do \
		echo "== $$package alone"; \
		$(PYTHON) scripts/setup.py alone $$package || exit 1; \
		.venvs/$$package/bin/python -m pytest packages/$$package/tests -n $(WORKERS) --dist loadfile -m "not once and not slow and not gpu and not vllm" || exit 1; \
	done

wheels: setup  ## build the three wheels, install them with plain pip, try what they install
	@$(PYTHON) scripts/check_wheels.py

docs: setup  ## build the documentation site into site/, strictly
	$(VENV)/mkdocs build --strict --quiet

bench-tools: setup  ## what a tool box costs and saves, and how fast formats are read; a few minutes
	@for bench in bench_tools bench_tools_parsing; do \
		if [ -f benchmarks/$$bench.py ]; then $(VENV)/python benchmarks/$$bench.py || exit 1; fi; \
	done

bench-envs: setup  ## how fast environments are, beside their originals where these can be had; several minutes
	@$(PYTHON) scripts/setup.py alfworld || true
	@for bench in benchmarks/bench_envs_*.py; do $(VENV)/python $$bench || exit 1; done

bench-train: setup  ## prefix trees beside rows: time, memory, tokens; a step beside TRL's; half an hour on a quiet machine
	OMP_NUM_THREADS=2 $(VENV)/python benchmarks/bench_train.py
	$(VENV)/python benchmarks/bench_rollout_files.py
	@$(PYTHON) -m pip install --quiet --no-deps --upgrade --target .venvs/trl $(TRL)
	$(VENV)/python benchmarks/bench_trl.py

bench-rollout: setup  ## episodes beside a lockstep vector, the hf sampler beside generate, batches that prompts join; half an hour
	OMP_NUM_THREADS=2 $(VENV)/python benchmarks/bench_rollout.py
	OMP_NUM_THREADS=1 $(VENV)/python benchmarks/bench_joining.py

test-gpu: setup  ## the tests that need a CUDA device; says so and passes where there is none
	@$(VENV)/python scripts/test_gpu.py

lock:  ## maintainers: refresh uv.lock from the pyproject files
	@$(PYTHON) scripts/setup.py lock
