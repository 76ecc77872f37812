# From a fresh clone: `make demo` shows it work, `make test` proves it. Both need make and a Python >= 3.10
# with venv or pip (or uv); what is missing is said in one line.

PY := .venv/bin/python
OUT := build/reports

.DEFAULT_GOAL := help
.PHONY: help setup demo test e2e lint format docs real-wheels clean

help: ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' Makefile | expand -t 10

setup: ## .venv/bin/envbundle, ready to run
	@sh scripts/setup.sh

demo: setup ## one environment all the way: lock, sign, install, verify, and a refusal
	@.venv/bin/envbundle demo

test: ## unit and property tests: what pip can install
	@sh scripts/setup.sh test
	@mkdir -p $(OUT)
	$(PY) -m pytest -n auto --dist loadfile --junitxml=$(OUT)/unit.xml $(ARGS)

e2e: ## what needs root, servers, other programs or namespaces; installs them, never skips
	@sh scripts/setup.sh test
	@sh scripts/e2e_programs.sh
	@mkdir -p $(OUT)
	$(PY) -m pytest -m e2e --junitxml=$(OUT)/e2e.xml $(ARGS)
	@$(PY) scripts/check_reports.py $(OUT)/e2e.xml

lint: ## ruff and mypy
	@sh scripts/setup.sh test lint
	.venv/bin/ruff check
	.venv/bin/mypy envbundle scripts tests

format: ## let ruff lay out the code
	@sh scripts/setup.sh lint
	.venv/bin/ruff format

docs: ## write what is generated: docs/codes.md, docs/format.md, docs/manifest.md, the table of `explain`
	@sh scripts/setup.sh
	$(PY) scripts/make_codes.py
	$(PY) scripts/make_manifest.py
	$(PY) scripts/make_format.py

WHEELS ?= build/wheels

real-wheels: ## docs/real-wheels.md: published wheels against cuobjdump; WHEELS=<folder>, or 2 GB are fetched
	@sh scripts/setup.sh
	$(PY) scripts/real_wheels.py --wheels $(WHEELS)

clean: ## remove what the targets above made
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
