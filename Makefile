# Two commands do everything on a fresh machine: make demo, make test. While working: make check. Before a merge: make
# test-all.
PYTHON ?= python3
VENV ?= .venv
N ?= 50000
PYTEST_ARGS ?=
SCALE_ARGS ?=
CHAOS_ARGS ?=
MINUTES ?= 30
ROUNDS ?=
ONLY ?=
OUT ?= build/bench
ITEMS ?= 100000
BENCH_ARGS ?=
FUZZ_ARGS ?= -max_total_time=300
# most of what tests do is to wait for servers: a third worker fills two cores
WORKERS ?= 3
OFF = tests/conformance/test_cpython_locks.py tests/conformance/test_cpython_queue.py $(addprefix tests/objects/test_, \
	lock.py rlock.py shared_lock.py condition.py election.py queue.py joinable_queue.py loss.py outage.py switched_off.py)
STAMP = $(VENV)/.installed
# the tests start Python a thousand times: it is not to compile distsync each time
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo check test test-all off interop bench bench-server scale fuzz wire chaos soak takeover lint types docs simulate \
	differential zookeeper clean

demo: $(STAMP)  ## the main job: one program as four processes, on the embedded server
	$(VENV)/bin/python -m distsync demo

check: lint types docs  ## what one runs at each save: ruff, pydoclint, mypy, the documentation, unit tests
	$(VENV)/bin/pytest tests/unit -m "not slow" -n $(WORKERS) $(PYTEST_ARGS)

test: $(STAMP) zookeeper  ## the tests that are not slow, on the embedded server and on a real ZooKeeper
	DISTSYNC_TEST_NEED_ZOOKEEPER=1 $(VENV)/bin/pytest -m "not slow" -n $(WORKERS) $(PYTEST_ARGS)

test-all: $(STAMP) zookeeper  ## everything there is: all tests, off, interop, the tox matrix; an hour
	DISTSYNC_TEST_NEED_ZOOKEEPER=1 DISTSYNC_TEST_SIMULATIONS=100 DISTSYNC_TEST_DIFFERENTIAL=100 \
		$(VENV)/bin/pytest -n $(WORKERS) $(PYTEST_ARGS)
	$(MAKE) off
	$(MAKE) interop
	WORKERS=2 bash scripts/run_tox.sh run-parallel -p 2

wire: $(STAMP)  ## the session tests with kazoo's own reading and writing
	DISTSYNC_TEST_FAST_WIRE=0 $(VENV)/bin/pytest tests/client -n $(WORKERS) $(PYTEST_ARGS)

off: $(STAMP) zookeeper  ## locks and queues, CPython's own tests and chaos, with all that makes it fast switched off
	DISTSYNC_TEST_NEED_ZOOKEEPER=1 DISTSYNC_LINGER=0 DISTSYNC_TEST_FAST_WIRE=0 DISTSYNC_TEST_TOGETHER=0 \
		$(VENV)/bin/pytest $(OFF) -n $(WORKERS) $(PYTEST_ARGS)
	DISTSYNC_LINGER=0 DISTSYNC_FAST_WIRE=0 PYTHONPATH=tests \
		$(VENV)/bin/python -m chaos lock queue --server zookeeper --seconds 10 $(CHAOS_ARGS)

simulate: $(STAMP)  ## N simulated schedules per primitive: make simulate N=50000
	DISTSYNC_TEST_SIMULATIONS=$(N) $(VENV)/bin/pytest tests/simulation -n 2 --timeout=0 $(PYTEST_ARGS)

differential: $(STAMP) zookeeper  ## N random scripts on both servers: make differential N=10000
	DISTSYNC_TEST_NEED_ZOOKEEPER=1 DISTSYNC_TEST_DIFFERENTIAL=$(N) $(VENV)/bin/pytest tests/server/test_differential.py $(PYTEST_ARGS)

interop: $(STAMP) zookeeper  ## the real Curator beside us; its jars are fetched once, 450 MB (scripts/curator_jars.py)
	$(VENV)/bin/python scripts/curator_jars.py
	DISTSYNC_TEST_NEED_ZOOKEEPER=1 $(VENV)/bin/pytest tests/interop $(PYTEST_ARGS)

chaos: $(STAMP) zookeeper  ## real processes under faults, histories checked: CHAOS_ARGS='lock queue --server ensemble --runs 20'
	PYTHONPATH=tests $(VENV)/bin/python -m chaos $(CHAOS_ARGS)

soak: $(STAMP) zookeeper  ## all primitives on an ensemble under faults; nothing may grow: make soak MINUTES=30
	PYTHONPATH=tests $(VENV)/bin/python -m chaos.soak --minutes $(MINUTES)

takeover: $(STAMP) zookeeper  ## the holder is killed: how long until the next one holds: make takeover ROUNDS=6
	PYTHONPATH=tests $(VENV)/bin/python -m chaos.takeover --rounds $(or $(ROUNDS),6)

bench: $(STAMP) zookeeper  ## beside kazoo and others: table, JSON, plots: make bench ROUNDS=3 ONLY='put get' ITEMS=1000000
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[cli,test,bench]'
	$(VENV)/bin/python -m bench --rounds $(or $(ROUNDS),11) --items $(ITEMS) --out $(OUT) $(if $(ONLY),--only $(ONLY)) $(BENCH_ARGS)

bench-server: $(STAMP) zookeeper  ## the embedded server, with uvloop, next to ZooKeeper 3.8: ratios, without and with fsync
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[cli,test,fast]'
	$(VENV)/bin/python bench/server.py
	$(VENV)/bin/python bench/server.py --sync full

fuzz: $(STAMP)  ## mutated frames against the server's engine: make fuzz FUZZ_ARGS=-max_total_time=3600
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[test,fuzz]'
	$(VENV)/bin/python tests/server/fuzz_frames.py $(FUZZ_ARGS)

scale: $(STAMP)  ## 100,000 watches, 1,000,000 nodes, 10,000,000 operations: SCALE_ARGS='--operations 2000000'
	$(VENV)/bin/python bench/scale.py $(SCALE_ARGS)

lint: $(VENV)/.lint  ## ruff, and pydoclint
	$(VENV)/bin/ruff check .
	$(VENV)/bin/flake8 distsync

docs: $(VENV)/.lint  ## the documentation, in build/docs; warnings and dead links are errors
	$(VENV)/bin/sphinx-build -q -W --keep-going -b html docs build/docs
	$(VENV)/bin/python scripts/check_links.py build/docs

types: $(VENV)/.lint  ## mypy, strict
	$(VENV)/bin/mypy

zookeeper:
	bash scripts/install_zookeeper.sh

$(STAMP): setup.cfg pyproject.toml
	test -x $(VENV)/bin/pip || $(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[cli,test]'
	touch $@

$(VENV)/.lint: $(STAMP)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[cli,test,lint,docs]'
	touch $@

clean:
	rm -rf $(VENV) .tox build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
