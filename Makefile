# Every target is one call of the `mixer` command or of a tool; `make help` lists them.
MIX ?= demo
OUT ?= build
PYTHON ?= python3
WORKERS ?= $(shell getconf _NPROCESSORS_ONLN)

VENV := .venv
BIN := $(VENV)/bin
SPEC := mixtures/$(MIX).yaml
MANIFEST := $(OUT)/latest/$(MIX)

.DEFAULT_GOAL := help
.PHONY: help build sample plan inspect verify bench bench-mixture test lint format docs clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "MIX=name picks mixtures/name.yaml (now: $(MIX)); OUT is the build folder (now: $(OUT))"

build: $(VENV)/ready ## build the mixture: shards and manifest
	$(BIN)/mixer build $(SPEC) --out $(OUT) --workers $(WORKERS)

sample: $(VENV)/ready ## the whole line on the first shards of every source
	$(BIN)/mixer sample $(SPEC) --out $(OUT) --workers $(WORKERS)

plan: $(VENV)/ready ## the integers of the mixture, and what a build would run
	$(BIN)/mixer plan $(SPEC) --out $(OUT)

inspect: $(VENV)/ready ## what is in the built mixture, as tables
	$(BIN)/mixer inspect $(MANIFEST)

verify: $(VENV)/ready ## re-hash every shard and recount every number
	$(BIN)/mixer verify $(MANIFEST)

bench: $(VENV)/dev ## time the line beside `tokenizers` alone
	$(BIN)/python -m benchmarks.speed

bench-mixture: $(VENV)/dev ## time plan, order and reading; check the whole Harrier order
	$(BIN)/python -m benchmarks.mixture

test: $(VENV)/dev ## run the tests
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

lint: $(VENV)/dev ## ruff, its formatter, mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/dev ## let ruff mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/ready ## write docs/cli.md from the commands
	$(BIN)/python -m mixer.cli.reference > docs/cli.md

clean: ## remove the build folder (not the environment)
	rm -rf $(OUT)

$(VENV)/ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "mixer needs Python 3.11 or newer; set PYTHON=, for example: make build PYTHON=python3.12"; exit 1; }
	@echo "making the environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@echo "compiling the kernels, once"
	@$(BIN)/python -m mixer.precompile
	@touch $@

$(VENV)/dev: $(VENV)/ready
	@echo "adding the tools for tests and lint"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@
