SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
export PATH := $(PATH):/usr/local/sbin:/usr/sbin:/sbin
export UV := $(CURDIR)/.venv-tools/bin/uv
export UV_PYTHON_DOWNLOADS := never
export NO_MKDOCS_2_WARNING := 1
# Tests start hundreds of processes: without bytecode each of them compiles all of Hulk again.
export PYTHONDONTWRITEBYTECODE :=
export UV_PROJECT_ENVIRONMENT := $(CURDIR)/.venv
BIN := .venv/bin
NATIVE := native/Cargo.toml native/Cargo.lock native/pyproject.toml $(shell find native/src -name '*.rs')
LAB ?= hulk
JOBS ?= 3
PYTEST := .venv/bin/pytest -n $(JOBS) --dist loadgroup --no-loadscope-reorder

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: tools ## Bring up the geo lab, install Hulk, train examples/hulkjob.yaml across regions
	@$(BIN)/hulk-lab demo --lab $(LAB) $(if $(IMAGE),--image $(IMAGE))

.PHONY: test
test: tools ## Lint, types, import contracts, generated files, tests; the two labs and the rest side by side (JOBS=1: one after the other)
	@$(MAKE) --no-print-directory lint verify
	@$(BIN)/hulk-lab build $(if $(filter 1,$(HULK_TEST_ALL)),--kueue)
	tools/cargo test --locked
	$(BIN)/pytest -q --doctest-modules --ignore=runtime/hulk/hf.py --ignore=runtime/hulk/lightning.py --ignore=runtime/hulk/pytorch_lightning.py operator placement runtime lab/hulk_lab bench
	$(PYTEST) --durations 50 --durations-min 1

.PHONY: test-all
test-all: ## As test, with every case of what `make test` shortens: more drawn worlds, every kill point
	@HULK_TEST_ALL=1 $(MAKE) --no-print-directory test

.PHONY: down
down: tools ## Remove every process, namespace and mount of the lab (ALL=1: of all labs; PREFIX=: of those named so)
	@$(BIN)/hulk-lab down $(if $(ALL),--all,$(if $(PREFIX),--prefix $(PREFIX),--lab $(LAB)))

.PHONY: image
image: rust .venv/.synced ## Build Hulk's image with docker: BASE=an image with torch, IMAGE=its name, TARGET=operator, agent or runtime alone
	@test -n "$(IMAGE)" || { echo "make image: IMAGE= is missing; say what to call it: make image IMAGE=registry.example/hulk:0.1.0" >&2; exit 1; }
	docker build -f Dockerfile $(if $(TARGET),--target $(TARGET)) $(if $(PLATFORM),--platform $(PLATFORM)) \
		$(if $(BASE),--build-arg BASE=$(BASE)) $(if $(SLIM_BASE),--build-arg SLIM_BASE=$(SLIM_BASE)) \
		-t $(IMAGE) "$$($(BIN)/hulk-lab image)"

.PHONY: lint
lint: tools ## Ruff, mypy, import contracts, gofmt, go vet, rustfmt, clippy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --python-version 3.10 -p hulk_runtime.collective -p hulk_runtime.instrumentation -p hulk_runtime.diloco -p hulk_runtime.sharded_checkpoints
	$(BIN)/lint-imports
	@unformatted=$$(gofmt -l lab/relay lab/go); test -z "$$unformatted" || { echo "gofmt -w $$unformatted"; exit 1; }
	cd lab/relay && go vet ./...
	tools/cargo fmt --check
	tools/cargo clippy --locked --all-targets -- -D warnings

.PHONY: generate
generate: tools ## Write CRDs, schemas, dashboards, reference tables, the chart's README
	$(BIN)/python tools/pod_schema.py
	$(BIN)/python -m hulk_operator.api.generate
	$(BIN)/python -m hulk_operator.dashboards
	$(BIN)/python -m hulk_operator.metrics
	$(BIN)/python -m hulk_operator.cli.reference
	$(BIN)/python -m hulk_runtime.reference
	$(BIN)/python -m hulk_placement.files
	$(BIN)/python tools/chart_readme.py

.PHONY: verify
verify: tools ## Fail when a generated file is stale or a link of the docs is broken
	$(UV) lock --check --quiet
	$(BIN)/python tools/pod_schema.py --check
	$(BIN)/python -m hulk_operator.api.generate --check
	$(BIN)/python -m hulk_operator.dashboards --check
	$(BIN)/python -m hulk_operator.metrics --check
	$(BIN)/python -m hulk_runtime.reference --check
	$(BIN)/python -m hulk_operator.cli.reference --check
	$(BIN)/python -m hulk_placement.files --check
	$(BIN)/python tools/chart_readme.py --check
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --site-dir build/site

.PHONY: docs
docs: tools ## Build the documentation into site/; a broken link or anchor fails
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

.PHONY: bench
bench: tools ## Measure ring orders, predictions and deployment; print ratios
	$(BIN)/python -m bench

.PHONY: unit
unit: tools ## Only the tests that need no cluster
	$(PYTEST) -m "not controlplane and not lab and not long"

.PHONY: native
native: tools ## Build the Rust crate anew and put it into .venv, also where no file of it changed
	$(UV) sync --frozen --quiet --python python3 --reinstall-package hulk-operator

.PHONY: tools
tools: prerequisites .venv/.synced

.PHONY: prerequisites
prerequisites:
	@HULK_GOAL="$(MAKECMDGOALS)" tools/prerequisites

.PHONY: rust
rust:
	@tools/rust

.venv/.synced: pyproject.toml lab/pyproject.toml runtime/pyproject.toml uv.lock tools/hatch_native.py $(NATIVE)
	@test -x $(UV) || { python3 -m venv .venv-tools && .venv-tools/bin/pip install --quiet 'uv==0.13.*'; }
	@printf 'hulk: Python packages, and the Rust crate of one ...'; start=$$SECONDS; $(UV) sync --frozen --quiet --python python3 && printf ' %ss\n' $$((SECONDS - start))
	@touch $@
