# Everything happens in the virtual environment .venv; `make` alone lists the targets.
PYTHON ?= python3
WORKERS ?= 2
PYTEST_ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt
DEMO := runs/demo

.DEFAULT_GOAL := help
.PHONY: help install demo browser test test-slow torture bench results docs tutorials reference dist-check lint format clean

help:  ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

install: $(VENV)/.installed  ## Install the package and its command into .venv

demo: $(VENV)/.installed  ## Learn the five tasks of split-digits and write a report
	rm -rf $(DEMO)
	$(BIN)/metareplay run split-digits --method pr-bbb --out $(DEMO)
	@echo "Done. Open $(CURDIR)/$(DEMO)/report.html in a browser."

browser:  ## Install Debian's Chromium and its driver, in which the tests open the report page; does nothing if both are there
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null || { \
		sudo=$$([ "$$(id -u)" = 0 ] || echo sudo); \
		$$sudo apt-get update -q && $$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -q chromium chromium-driver; }

test: lint  ## Lint, check the types and run the tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) $(PYTEST_ARGS)

test-slow: $(VENV)/.installed-test  ## Run only the tests marked slow
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) -m slow $(PYTEST_ARGS)

torture: $(VENV)/.installed-test  ## Kill, fill the disk, damage inputs: TORTURE="--minutes 10 --seed 1" and more (docs/reliability.md)
	OMP_NUM_THREADS=1 $(BIN)/python -m torture $(TORTURE)

bench: $(VENV)/.installed  ## Measure speed and memory into records, and make docs/performance.md from them
	$(BIN)/python -m benchmarks $(PARTS)

results: $(VENV)/.installed  ## Make the tables, figures and plots of the documents from the records in results/
	$(BIN)/python -m results

docs: $(VENV)/.installed-test  ## Build the site into site/; open site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build
	@echo "Done. Open $(CURDIR)/site/index.html in a browser."

tutorials: $(VENV)/.installed-test  ## Execute the tutorials, and write what they print and draw into their pages: PAGES="digits photos"
	OMP_NUM_THREADS=1 $(BIN)/python docs/make_tutorials.py $(PAGES)

reference: $(VENV)/.installed  ## Write docs/reference.md from the parts
	$(BIN)/metareplay list all --markdown > docs/.reference.md && mv docs/.reference.md docs/reference.md

dist-check:  ## Build wheel and source distribution, install each extra in an environment of its own, and use it: EXTRAS="onnx serve"
	$(PYTHON) -m distribution $(EXTRAS)

lint: $(VENV)/.installed-test  ## Check style, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy src torture website results distribution

format: $(VENV)/.installed-test  ## Repair style and format where that can be done by machine
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## Remove .venv, caches and build files; runs are kept
	rm -rf $(VENV) build dist site src/*.egg-info .pytest_cache .mypy_cache .ruff_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps make each installation happen once, and again when the requirements change.
$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "metareplay needs Python 3.11 or newer, but '$(PYTHON)' is older or missing; name another one: make PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/.created
	$(PIP) -e .
	@touch $@

$(VENV)/.installed-test: pyproject.toml constraints.txt | $(VENV)/.created
	$(PIP) -e '.[test]'
	@touch $@ $(VENV)/.installed
