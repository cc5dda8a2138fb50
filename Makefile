# Commands for developers and CI. `make` alone lists them.
.DEFAULT_GOAL := help
.PHONY: help setup built demo chromium promtool typescript helm test test-long test-pure test-compiled compile sanitize check lint audit bench integrations faults containers quality simulate fuzz live kafka-start kafka-stop redis-start redis-stop lock schemas docs dist clean

PYTHON ?=
BIN := .venv/bin
READY := .venv/.ready
WITH_SERVICES := $(BIN)/python deploy/local/with_services.py
# Tests start many brokers that live for seconds: each start takes 3.5 s of processor time with these, 5.6 s without.
SHORT_LIVED := KAFKA_JVM_PERFORMANCE_OPTS='-XX:TieredStopAtLevel=1 -XX:+UseSerialGC'
PEERS := .local/peers/.ready
ATHERIS := .local/fuzz/.ready
UV := .local/uv/bin/uv
BUILD := $(BIN)/python deploy/compiled/build.py --work .local/compiled
COMPILE := $(UV) pip compile --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --no-emit-package streamproc --no-header --no-annotate --quiet
LOCK := $(COMPILE) pyproject.toml
# Much of the suite's time is waiting for brokers: three processes share two cores. More would starve the tests with
# time limits.
PROCESSES := -n 3 --dist loadfile --no-loadscope-reorder

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY)  ## create .venv from the lock (the other targets do this when necessary)

$(READY): pyproject.toml requirements.lock
	@python=$$(deploy/local/find_python.sh $(PYTHON)) && $$python deploy/local/setup_venv.py
	@$(BUILD) --if-possible
	@touch $@

built: setup
	@$(BUILD) --if-possible

demo: setup  ## watch streamproc halt stuck agent runs, on recorded trajectories (needs only Python)
	@$(BIN)/streamproc demo

chromium: setup
	@$(BIN)/python deploy/local/chromium.py

promtool: setup
	@$(BIN)/python deploy/local/prometheus.py

typescript: setup  ## install the Node packages of examples/typescript for its tests, where there is a Node
	@$(BIN)/python deploy/local/node_packages.py

helm: setup  ## lint the chart and render it: golden files, kustomize base (needs Helm; Go builds one in 3 minutes)
	@helm=$$($(BIN)/python deploy/local/helm.py) && if [ -n "$$helm" ]; then \
		export "$$helm" && "$$STREAMPROC_HELM" lint --strict deploy/helm/streamproc --values tests/deploy/chart/everything.values.yaml \
		&& $(BIN)/python deploy/helm/render.py; fi

test: built chromium promtool typescript  ## run the tests, on a real Kafka and Redis (needs Java 17 and Maven); a part: ARGS=tests/worker
	@$(SHORT_LIVED) $(WITH_SERVICES) --without '$(BIN)/python -m pytest $(PROCESSES) -m "not long and not kafka and not redis"' \
		-- $(BIN)/python -m pytest $(or $(ARGS),$(PROCESSES) -m "not long")

test-long: built chromium promtool typescript  ## run the long tests: outages, kills, upgrades, crowds; CI runs them, too
	@$(SHORT_LIVED) $(WITH_SERVICES) --without '$(BIN)/python -m pytest $(PROCESSES) -m "long and not kafka and not redis"' \
		-- $(BIN)/python -m pytest $(PROCESSES) -m long $(ARGS)

compile: setup  ## compile core and fingerprint again: setup does, where it finds a C compiler
	@$(BUILD)

test-pure: setup  ## run the tests of core, detectors and worker in pure Python
	@STREAMPROC_CORE=python $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not kafka and not redis" \
		tests/core tests/detectors tests/laws tests/fingerprint tests/worker tests/seeds tests/test_golden.py tests/test_monitor.py $(ARGS)

sanitize: setup  ## run the compiled core under AddressSanitizer and UBSan: tests, comparison, fuzzer (10 minutes; needs gcc)
	@$(BIN)/python deploy/compiled/sanitize.py

test-compiled: built  ## compare the compiled core and fingerprint with pure Python: decisions, states, masks
	@if [ -e streamproc/_compiled/build.json ]; then STREAMPROC_CORE=compiled $(BIN)/python -m pytest \
		tests/compiled/check.py tests/compiled/check_fingerprint.py $(ARGS); fi

check: lint test test-pure test-compiled  ## lint, type-check and test, and play 2 000 new schedules of faults: must pass before a commit; CI runs this and test-long
	@$(BIN)/python -m tests.simulation --schedules 2000

lint: setup  ## run ruff and mypy --strict
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy --strict streamproc tests/typing

audit: setup  ## audit the locked packages: hashes, licences, SBOM, known vulnerabilities (without network: ARGS=--offline)
	@$(BIN)/python deploy/local/audit.py $(ARGS)

bench: built $(PEERS)  ## measure core, worker and latency, on a real Kafka; parts: ARGS="--only core,scan"
	@$(WITH_SERVICES) -- $(BIN)/python -m benchmarks $(ARGS)

$(PEERS): $(READY) benchmarks/peers.lock
	@$(BIN)/python -m venv --clear .local/peers
	@.local/peers/bin/pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: \
		-r benchmarks/peers.lock || echo 'bench: cannot install Quix Streams and Bytewax here; the table will show them as not installed'
	@touch $@

integrations: setup  ## test the adapters of all frameworks, most in environments of their own, and write the table; some: ARGS="crewai ag2"
	@$(BIN)/python deploy/local/integrations.py $(ARGS)

faults: setup  ## inject faults for half an hour (kill, freeze, flood, fill the disk); no decision may be lost or invented
	@$(WITH_SERVICES) -- $(BIN)/python -m tests.faults $(ARGS)

containers: setup  ## build the image, start docker-compose.yml, and kill, upgrade and observe it (minutes; without Docker: root, Debian)
	@$(BIN)/python -m deploy.containers $(ARGS)

quality: setup  ## score the detectors on labelled traces: hits, delay, false halts
	@$(BIN)/python -m benchmarks.quality $(ARGS)

simulate: setup  ## run the worker through seeded schedules of faults, without a broker, until one fails or 10 minutes pass
	@$(BIN)/python -m tests.simulation $(or $(ARGS),--minutes 10)

fuzz: setup $(ATHERIS)  ## give every parser malformed inputs, guided by coverage: 100 000 each, or ARGS="--inputs 1000000" in all
	@$(BIN)/python -m tests.fuzz $(ARGS)

$(ATHERIS): $(READY) tests/fuzz/atheris.lock
	@rm -rf .local/fuzz && mkdir -p .local/fuzz
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: \
		--target .local/fuzz -r tests/fuzz/atheris.lock || echo 'fuzz: cannot install Atheris here; coverage will not guide the inputs'
	@touch $@

kafka-start: setup  ## start a Kafka that keeps running; test, bench and faults then use it
	@$(BIN)/python deploy/local/kafka.py start

kafka-stop: setup  ## stop that Kafka
	@$(BIN)/python deploy/local/kafka.py stop

redis-start: setup  ## start a Redis that keeps running; test, bench and faults then use it
	@$(BIN)/python deploy/local/redis.py start

redis-stop: setup  ## stop that Redis
	@$(BIN)/python deploy/local/redis.py stop

live: setup  ## stop real coding CLIs (Claude Code, Codex, Gemini CLI; needs Node, 740 MB) that a fake model keeps looping
	@$(BIN)/python -m tests.live.real $(ARGS)

schemas: setup  ## regenerate schemas/ from the models
	@$(BIN)/streamproc schema export

lock: $(UV)  ## pin the newest packages that pyproject.toml allows, with hashes
	$(LOCK) --upgrade --extra dev --output-file requirements.lock
	$(LOCK) --constraint requirements.lock --extra build --extra otel --extra page --extra rocksdb --output-file requirements-runtime.lock
	$(COMPILE) --upgrade --group audit --output-file requirements-audit.lock
	$(COMPILE) --upgrade --output-file benchmarks/peers.lock benchmarks/peers.in
	$(COMPILE) --upgrade --output-file tests/fuzz/atheris.lock tests/fuzz/atheris.in
	for framework in $(wildcard tests/frameworks/*/); do \
		$(COMPILE) --upgrade --extra $$(basename $$framework) --output-file $${framework}requirements.lock \
			pyproject.toml $$(ls tests/frameworks/requirements.in $${framework}requirements.in 2>/dev/null) || exit; done

docs: setup  ## build the documentation as a site, strictly, into build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo 'docs: open build/site/index.html'

dist: setup  ## build the wheel and the source distribution into dist/, and use the wheel in an empty environment
	@$(BIN)/python deploy/local/dist.py

$(UV):
	@python=$$(deploy/local/find_python.sh $(PYTHON)) && $$python -m venv .local/uv
	@.local/uv/bin/pip install --quiet --disable-pip-version-check uv==0.13.9

clean:  ## stop the Kafka and Redis of this checkout; remove .venv, .local, the compiled core, build output and caches
	@for service in kafka redis; do \
		if [ -d .local/$$service ]; then $$(deploy/local/find_python.sh $(PYTHON)) deploy/local/$$service.py stop; fi; done
	rm -rf streamproc/_compiled .venv .local build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
