# Everything a person does here is one of these. Each sets itself up first: .venv, the packages, the broker's jars.
#
#   make demo              the story on the screen: two Spark queries in one share group, on an embedded broker
#   make test              every promise once, in eight minutes; ARGS goes to pytest: make test ARGS="-k compacted";
#                          WORKERS=0 runs one test after another
#   make test-all          that, and the tests marked slow: second forms, known mistakes, older versions, a browser
#   make test-unit         only what needs neither a broker nor Spark
#   make sim SEEDS=1000    the service on a simulated clock, with a network and a store that fail; SEED is the first
#   make chaos MINUTES=30  coordinators, members and the broker killed and stopped at random; SEED repeats the choices
#   make soak              the tests that take longer than a minute each, then test-spark and test-broker for each
#                          version; with ARGS, which go to pytest, the first alone
#   make test-spark SPARK=4.0.5 TESTS=tests/spark/test_sink.py
#                          tests/spark, or some of it, on that Spark, else on 4.2; ARGS goes to pytest
#   make platforms         the table of docs/run/spark.md that says which platforms have wheels, from the package registry;
#                          with ARGS=--lost it looks whether one of the table has lost its wheels
#   make test-broker KAFKA=3.9.2
#                          the tests with a broker, without Spark, on a broker of that version; ARGS goes to pytest
#   make lint              ruff and mypy
#   make check             that, the import rules, the tidy test
#   make mutants           the core with one mistake at a time: does a test find it? Two hours; ARGS names a part
#   make bench             against Spark's own Kafka source, on a real broker; ARGS goes to the benchmark
#   make notebooks         run the notebooks and write their outputs; ARGS names one
#   make docs              the docs as a site in build/site
#   make clean             removes what setup made

PYTHON ?= python3
ARGS ?=
SEEDS ?= 1000
SEED ?= 1
MINUTES ?= 3
# Pytest's workers: most of the tests wait, for a broker or for Spark, so that four keep two cores busy.
WORKERS ?= 4
# A test whose wait did not end in time runs once more, and the report names it. RERUNS=0 says no.
RERUNS ?= 1
LATE := --reruns $(RERUNS) --max-suite-reruns 5 --rerun-show-tracebacks --only-rerun 'AssertionError: not within ' --only-rerun '^TimeoutExpired: ' \
	--only-rerun '^KafkaException: .*(_TIMED_OUT|_TRANSPORT|_DESTROY_BROKER|_ALL_BROKERS_DOWN)' \
	--only-rerun 'BrokerNotReachable: ' --only-rerun 'Python worker failed to connect back'

# The broker of test-broker.
KAFKA ?= $(shell sed -n 's/^OLDER_KAFKA = "\([^"]*\)".*/\1/p' tools/bootstrap.py)
# The Spark and the tests of test-spark. Spark 4.0 and 4.1 read by a protocol of their own, which few tests are for.
SPARK ?= $(shell sed -n 's/^OLDEST_SPARK_WITH_START = "\(.*\)"/\1/p' tools/bootstrap.py)
TESTS ?= tests/spark
ON_EACH_SPARK := $(addprefix tests/spark/,test_sink.py test_sink_batches.py test_sink_receipts.py test_connect.py \
	test_jobs.py::test_a_run_of_one_batch_completes_it)
VENV_BIN := $(CURDIR)/.venv/bin
export PATH := $(VENV_BIN):$(PATH)
# Each of the thousands of processes that the tests start would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE
# Spark's workers run `python3` from the PATH unless told otherwise.
export PYSPARK_PYTHON := $(VENV_BIN)/python
export PYSPARK_DRIVER_PYTHON := $(VENV_BIN)/python

.PHONY: demo test test-unit test-spark sim chaos soak lint check mutants bench clean setup
.DEFAULT_GOAL := help

.PHONY: help
help:
	@sed -n 's/^#   //p' Makefile

# .venv/bin is on the PATH, so `python3` may be the environment's own: it then only looks whether anything is to do.
setup: a-python
	@$(PYTHON) tools/bootstrap.py

.PHONY: packages a-python
packages: a-python
	@$(PYTHON) tools/bootstrap.py --packages

a-python:
	@command -v $(PYTHON) >/dev/null || { echo "sharegroup: Python 3.10 or newer is needed: install one, or name it with make PYTHON=/path/to/python3" >&2; exit 1; }

demo: setup
	@python -m sharegroup demo $(ARGS)

test: setup
	@python -m tests.support.class_archives
	python -m pytest --short -n $(WORKERS) --durations=15 $(LATE) $(ARGS)

# Before it, what it needs, side by side: the older Sparks and an older broker, and the archives of Java's classes.
.PHONY: test-all test-all-setup
test-all-setup: setup
	@$(PYTHON) tools/bootstrap.py --test & older=$$!; python -m tests.support.class_archives; archives=$$?; \
		wait $$older && exit $$archives

test-all: test-all-setup
	python -m pytest -n $(WORKERS) --durations=15 $(LATE) $(ARGS)

test-unit: setup
	python -m pytest tests/unit tests/kip932 tests/scenarios tests/vectors tests/model tests/simulation tests/protocol tests/test_layering.py tests/test_tidy.py --short -n $(WORKERS) $(ARGS)

sim: setup
	python -m tests.simulation service --seeds $(SEEDS) --seed $(SEED) $(if $(FAULTS),--faults $(FAULTS))

chaos: setup
	python -m tests.chaos --minutes $(MINUTES) --seed $(SEED)

soak: setup
	@$(PYTHON) tools/bootstrap.py --soak
	@python -m tests.support.class_archives
	python -m pytest --soak $(ARGS)
	@$(if $(ARGS),,$(MAKE) test-spark)
	@$(if $(ARGS),,for spark in $$(python -c "from tools.bootstrap import *; print(*SPARK_WITHOUT_START)"); \
		do $(MAKE) test-spark SPARK=$$spark TESTS="$(ON_EACH_SPARK)" || exit 1; done)
	@$(if $(ARGS),,for kafka in $$(python -c "from tools.bootstrap import *; print(OLDER_KAFKA, *OTHER_KAFKAS)"); \
		do $(MAKE) test-broker KAFKA=$$kafka || exit 1; done)

test-spark: setup
	@$(PYTHON) tools/bootstrap.py --test
	PYTHONPATH=$(CURDIR)/.build/pyspark-$(SPARK):$(CURDIR) python -m pytest -n $(WORKERS) $(TESTS) $(ARGS)

.PHONY: test-broker
test-broker: setup
	@$(PYTHON) tools/bootstrap.py --kafka $(KAFKA)
	SHAREGROUP_TEST_KAFKA=$(KAFKA) python -m pytest -n $(WORKERS) $(LATE) -m "broker and not spark and not browser" $(ARGS)

lint: packages
	python -m ruff check .
	python -m mypy

check: lint
	python -m pytest -q tests/test_layering.py tests/test_tidy.py

.PHONY: notebooks
notebooks: setup
	@python tools/run_notebooks.py $(ARGS)

.PHONY: docs
docs: setup
	@NO_MKDOCS_2_WARNING=1 python -m mkdocs build --strict --quiet
	@echo "build/site/index.html"

.PHONY: platforms
platforms: packages
	@python tools/resolve_platforms.py $(ARGS)

mutants: setup
	@python -m pip install --quiet mutmut==3.8.1
	@python tools/mutants.py $(ARGS)
	@python -m mutmut results | grep -v "not checked" || true

bench: setup
	@$(PYTHON) tools/bootstrap.py --bench
	@python -m benchmarks $(ARGS)

clean:
	rm -rf .venv .build build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis mutants spark-warehouse
