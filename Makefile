# streamproc: what people and CI run. `make` alone lists it.
.DEFAULT_GOAL := help
.PHONY: help setup demo test test-compiled compile check lint audit bench faults quality simulate fuzz kafka-start kafka-stop redis-start redis-stop lock schemas docs dist clean

PYTHON ?=
BIN := .venv/bin
READY := .venv/.ready
WITH_SERVICES := $(BIN)/python deploy/local/with_services.py
PEERS := .local/peers/.ready
UV := .local/uv/bin/uv
COMPILE := $(UV) pip compile --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --no-emit-package streamproc --no-header --no-annotate --quiet
LOCK := $(COMPILE) pyproject.toml
# Most of the suite's time is waiting for brokers: two processes share it. More would starve the tests with time limits.
TWO_PROCESSES := -n 2 --dist loadfile --no-loadscope-reorder

help:  ## list what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY)  ## make .venv from the lock (done by itself where it is needed)

$(READY): pyproject.toml requirements.lock
	@python=$$(deploy/local/find_python.sh $(PYTHON)) && $$python deploy/local/setup_venv.py
	@touch $@

demo: setup  ## see it work: real trajectories, some stuck, halted live (Python is all it needs)
	@$(BIN)/streamproc demo

test: setup  ## run every test, on a real Apache Kafka (Java 17 and Maven, or STREAMPROC_BROKERS) and a real Redis
	@$(WITH_SERVICES) --without '$(BIN)/python -m pytest $(TWO_PROCESSES) -m "not kafka and not redis"' \
		-- $(BIN)/python -m pytest $(or $(ARGS),$(TWO_PROCESSES))

compile: setup  ## compile the core for this Python: the same decisions in a third of the time (needs a C compiler)
	@$(BIN)/python deploy/compiled/build.py --work .local/compiled

test-compiled: compile  ## the pure tests on the compiled core, and that it decides as pure Python does, byte for byte
	@STREAMPROC_CORE=compiled $(BIN)/python -m pytest tests/compiled/check.py tests/core tests/detectors tests/laws \
		tests/test_golden.py tests/test_monitor.py tests/replay $(ARGS)

check: lint test  ## what must hold before a commit: lint, types, tests

lint: setup  ## ruff and mypy --strict
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy --strict streamproc

audit: setup  ## look at the locked packages: hashes, licences, and what is known of them (ARGS=--offline: no network)
	@$(BIN)/python deploy/local/audit.py $(ARGS)

bench: setup $(PEERS)  ## measure core, worker and latency on a real Apache Kafka
	@$(WITH_SERVICES) -- $(BIN)/python -m benchmarks $(ARGS)

$(PEERS): $(READY) benchmarks/peers.lock
	@$(BIN)/python -m venv --clear .local/peers
	@.local/peers/bin/pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: \
		-r benchmarks/peers.lock || echo 'bench: Quix Streams and Bytewax do not install here; the table will say so'
	@touch $@

faults: setup  ## kill, freeze, flood and starve it for half an hour: no decision may be lost or made up
	@$(WITH_SERVICES) -- $(BIN)/python -m tests.faults $(ARGS)

quality: setup  ## score the engine on labelled traces: what it finds, how soon, and what it halts that was honest
	@$(BIN)/python -m benchmarks.quality $(ARGS)

simulate: setup  ## run the worker through thousands of seeded schedules of faults, without a broker, until one fails
	@$(BIN)/python -m tests.simulation $(or $(ARGS),--minutes 10)

fuzz: setup  ## give every reader 100 000 inputs that somebody might send
	@$(BIN)/python -m tests.fuzz $(ARGS)

kafka-start: setup  ## start an Apache Kafka that stays, for test and bench to use
	@$(BIN)/python deploy/local/kafka.py start

kafka-stop: setup  ## stop it
	@$(BIN)/python deploy/local/kafka.py stop

redis-start: setup  ## start a Redis that stays, for test and bench to use
	@$(BIN)/python deploy/local/redis.py start

redis-stop: setup  ## stop it
	@$(BIN)/python deploy/local/redis.py stop

schemas: setup  ## write schemas/ from the models
	@$(BIN)/streamproc schema export

lock: $(UV)  ## pin the newest packages that pyproject.toml allows
	$(LOCK) --upgrade --extra dev --output-file requirements.lock
	$(LOCK) --constraint requirements.lock --extra build --output-file requirements-runtime.lock
	$(COMPILE) --upgrade --group audit --output-file requirements-audit.lock
	$(COMPILE) --upgrade --output-file benchmarks/peers.lock benchmarks/peers.in

docs: setup  ## build the documentation as a site, strictly, into build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo 'docs: open build/site/index.html'

dist: setup  ## build the wheel and the source distribution into dist/, and use the wheel in an empty environment
	@$(BIN)/python deploy/local/dist.py

$(UV):
	@python=$$(deploy/local/find_python.sh $(PYTHON)) && $$python -m venv .local/uv
	@.local/uv/bin/pip install --quiet --disable-pip-version-check uv==0.13.9

clean:  ## remove what these targets made: .venv, the compiled core, .local (stops its Kafka and Redis), caches
	@if [ -d .local/kafka ]; then $$(deploy/local/find_python.sh $(PYTHON)) deploy/local/kafka.py stop; fi
	@if [ -d .local/redis ]; then $$(deploy/local/find_python.sh $(PYTHON)) deploy/local/redis.py stop; fi
	rm -rf streamproc/_compiled .venv .local dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
