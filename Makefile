# Everything starts from Python 3.11+ and nothing else. Each target makes what it needs; the second time is quick.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
NATIVE_READY := $(VENV)/.native
COMPAT := .venv-compat
# Of make crash, with four kills each at least. A part of them: make crash SEED=100 ROUNDS=50
ROUNDS ?= 250
SEED ?= 0
COMPAT_READY := $(COMPAT)/.ready
RAY := .venv-ray
RAY_READY := $(RAY)/.ready
DIST := .venv-dist

.PHONY: help setup demo test check compat crash share ray attack remote mutate fuzz format docs bench native native-exact native-fuzz dist clean

help:
	@echo "make demo     the whole job on text that Python itself carries"
	@echo "make test     all tests"
	@echo "make check    lint, types, formatting"
	@echo "make compat   other trainers' own readers on our exports, in an environment of their own"
	@echo "make native   the compiled SentencePiece encoder, where there is a C++ compiler (demo and test do it, too)"
	@echo "make native-exact  the native encoder beside the library, hours of it; and faults put into it, which must be noticed"
	@echo "make native-fuzz   the native encoder under libFuzzer, ASan and UBSan; an hour each for loading and encoding"
	@echo "make crash    a thousand kills, and faults; hours (a part: SEED=100 ROUNDS=50)"
	@echo "make attack   every attack of the table in tests/attack, and what must come of it"
	@echo "make share    several machines write one store: a hundred of each story; an hour"
	@echo "make ray      a Ray cluster writes one store, machines and drivers are killed; in an environment of its own"
	@echo "make fuzz     a fuzzer on every reader and record, an hour; FUZZ_SECONDS=60 for less"
	@echo "make remote   buckets: hundreds of faults and kills, a thousand resumed loaders; an hour"
	@echo "make mutate   faults put into copies of the code, one at a time: the tests must notice each"
	@echo "make bench    the benchmarks behind the figures in the docs"
	@echo "make format   rewrite the code as 'make check' wants it"
	@echo "make dist     wheel and sdist, as they would be published"
	@echo "make docs     write docs/options.md again, from the declarations"

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

# The compiled SentencePiece encoder: optional, so a machine without a compiler does without, and says so each time.
native: $(READY)
	@if ! command -v $(CXX) > /dev/null; then \
		echo "native encoder: not built, there is no C++ compiler ($(CXX)); SentencePiece models are encoded without it"; \
	else $(MAKE) --no-print-directory $(NATIVE_READY); fi

$(NATIVE_READY): $(READY) $(wildcard native/src/*) native/tokpress_native/__init__.py native/CMakeLists.txt native/pyproject.toml
	PIP_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet --disable-pip-version-check --force-reinstall --no-deps ./native
	@touch $@

demo: $(READY) native
	$(BIN)/tokpress demo --out tokpress-demo

test: $(READY) native
	$(BIN)/pytest --numprocesses auto

$(COMPAT_READY): pyproject.toml constraints.txt tests/compat/requirements.txt tests/compat/peers.txt
	$(PYTHON) -m venv $(COMPAT)
	$(COMPAT)/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt \
		--requirement tests/compat/requirements.txt --editable .
	$(COMPAT)/bin/pip install --quiet --disable-pip-version-check --no-deps --requirement tests/compat/peers.txt
	@touch $@

compat: $(COMPAT_READY)
	TOKPRESS_COMPAT=1 $(COMPAT)/bin/pytest tests/compat

crash: $(READY)
	command -v strace > /dev/null || apt-get install --yes --quiet strace
	TOKPRESS_CRASH_ROUNDS=$(ROUNDS) TOKPRESS_CRASH_SEED=$(SEED) TOKPRESS_CRASH_EVERYTHING=1 $(BIN)/pytest tests/crash --numprocesses auto

attack: $(READY)
	TOKPRESS_ATTACK_EVERYTHING=1 $(BIN)/pytest tests/attack --numprocesses auto

$(RAY_READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(RAY)
	$(RAY)/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,ray]'
	@touch $@

ray: $(RAY_READY)
	TOKPRESS_RAY_EVERYTHING=1 $(RAY)/bin/pytest tests/crash/test_ray.py

share: $(READY)
	TOKPRESS_SHARE_EVERYTHING=1 $(BIN)/pytest tests/crash/test_share.py --numprocesses auto

fuzz: $(READY)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[fuzz]'
	$(BIN)/python tests/fuzz/run.py --seconds $(or $(FUZZ_SECONDS),3600)

remote: $(READY)
	TOKPRESS_REMOTE_ROUNDS=200 TOKPRESS_REMOTE_KILLS=100 TOKPRESS_REMOTE_STATES=1000 \
		$(BIN)/pytest tests/crash/test_bucket.py tests/storage/test_object_store.py tests/loader/test_remote.py --numprocesses auto

mutate: $(READY) native
	$(BIN)/python tests/mutations/run.py

native-exact: $(READY) native
	TOKPRESS_NATIVE_WHOLE=1 $(BIN)/pytest tests/native --numprocesses auto --timeout 14400
	$(BIN)/python tests/native/mutate.py

native-fuzz: $(READY) native
	$(BIN)/python tests/native/fuzzing.py --seconds $(or $(FUZZ_SECONDS),3600)

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy bench/loader.py
	$(BIN)/lint-imports --no-cache

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(READY)
	$(BIN)/python -m tokpress.reference > docs/options.md.new
	mv docs/options.md.new docs/options.md

bench: $(READY) native
	$(BIN)/python bench/build.py
	$(BIN)/python bench/loader.py
	$(BIN)/python bench/supervised.py
	$(BIN)/python bench/export.py
	$(BIN)/python bench/training.py
	$(BIN)/python bench/spm.py

dist:
	test -x $(DIST)/bin/twine || { $(PYTHON) -m venv $(DIST) && $(DIST)/bin/pip install --quiet --disable-pip-version-check build twine; }
	rm -rf dist
	$(DIST)/bin/python -m build --outdir dist .
	$(DIST)/bin/twine check --strict dist/*

clean:
	rm -rf $(VENV) $(DIST) dist $(COMPAT) .mypy_cache .ruff_cache .pytest_cache .hypothesis tokpress-demo
