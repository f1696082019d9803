# Everything starts from Python 3.11+ and nothing else. Each target makes what it needs; the second time is quick.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEMO := .venv-demo
DEMO_READY := $(DEMO)/.ready
NATIVE_READY := $(VENV)/.native
COMPAT := .venv-compat
# Of make crash, with four kills each at least. A part of them: make crash SEED=100 ROUNDS=50
ROUNDS ?= 250
SEED ?= 0
# Some of the faults of make mutate, or of the targets of make fuzz: make mutate COUNT=10 SEED=3
CHOSEN = $(if $(COUNT),--count $(COUNT) --seed $(SEED))
COMPAT_READY := $(COMPAT)/.ready
TRAINERS := .venv-trainers
TRAINERS_READY := $(TRAINERS)/.ready
# Of make trainers: how many of its files, and which: another choice with every commit. 0: all of them.
TRAINERS_CHOSEN ?= 0
TRAINERS_SEED ?= $(shell git rev-parse --short HEAD 2> /dev/null)
RAY := .venv-ray
RAY_READY := $(RAY)/.ready
DIST := .venv-dist

.PHONY: help setup demo test check compat trainers crash share ray attack browser remote mutate fuzz format docs site bench native native-exact native-fuzz dist clean

help:
	@echo "make demo     the whole job on text that Python itself carries"
	@echo "make test     all tests"
	@echo "make check    lint, types, formatting, the documentation"
	@echo "make compat   other trainers' own readers on our exports, in an environment of their own"
	@echo "make trainers trainers on our exports and loaders: OLMo-core, axolotl, torchtitan, litgpt, JAX, W&B; a few: TRAINERS_CHOSEN=2"
	@echo "make native   the compiled SentencePiece encoder, where there is a C++ compiler (make test does it, too)"
	@echo "make native-exact  the native encoder beside the library, hours of it; and faults put into it, which must be noticed"
	@echo "make native-fuzz   the native encoder under libFuzzer, ASan and UBSan; an hour each for loading and encoding"
	@echo "make crash    a thousand kills, and faults; hours (a part: SEED=100 ROUNDS=50)"
	@echo "make attack   every attack of the table in tests/attack, and what must come of it"
	@echo "make browser  every view of the page in a real Chromium, with axe-core; a few minutes"
	@echo "make share    several machines write one store, in a directory and in a bucket: a hundred of each story (SEED=, SEEDS=); hours"
	@echo "make ray      a Ray cluster writes one store, machines and drivers are killed; in an environment of its own"
	@echo "make fuzz     a fuzzer on every reader and record, an hour; FUZZ_SECONDS=60 for less"
	@echo "make remote   buckets: hundreds of faults and kills, a thousand resumed loaders; an hour"
	@echo "make mutate   faults put into copies of the code, one at a time: the tests must notice each"
	@echo "make bench    the benchmarks behind the figures in the docs"
	@echo "make format   rewrite the code as 'make check' wants it"
	@echo "make dist     wheel and sdist, as they would be published"
	@echo "make docs     write docs/options.md and docs/reference/ again, from the declarations, --help and docstrings"
	@echo "make site     the documentation as a site, in .site/; links are checked"

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

# The core alone, as a user has it: a fifth of what development installs, and no compiler.
$(DEMO_READY): pyproject.toml constraints.txt tools/light_install.py
	@$(PYTHON) tools/light_install.py $(DEMO)
	@touch $@

demo: $(DEMO_READY)
	$(DEMO)/bin/tokpress demo --out tokpress-demo

test: $(READY) native
	$(BIN)/pytest --numprocesses auto

$(COMPAT_READY): pyproject.toml constraints.txt tests/compat/requirements.txt tests/compat/peers.txt
	$(PYTHON) -m venv $(COMPAT)
	$(COMPAT)/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt \
		--requirement tests/compat/requirements.txt --editable .
	$(COMPAT)/bin/pip install --quiet --disable-pip-version-check --no-deps --requirement tests/compat/peers.txt
	@touch $@

compat: $(COMPAT_READY)
	TOKPRESS_COMPAT=1 $(COMPAT)/bin/pytest tests/compat --ignore tests/compat/trainers

# An environment on top of that of make compat: torch and the rest are there once.
$(TRAINERS_READY): $(COMPAT_READY) tests/compat/trainers.txt
	$(PYTHON) -m venv $(TRAINERS)
	site=$$($(TRAINERS)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))'); \
		below=$$($(COMPAT)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))'); \
		echo "import site; site.addsitedir('$$below')" > $$site/compat.pth
	$(TRAINERS)/bin/pip install --quiet --disable-pip-version-check --no-deps --requirement tests/compat/trainers.txt
	@touch $@

trainers: $(TRAINERS_READY)
	TOKPRESS_COMPAT=1 TOKPRESS_TRAINERS=$(TRAINERS_CHOSEN) TOKPRESS_TRAINERS_SEED=$(TRAINERS_SEED) \
		$(TRAINERS)/bin/python -m pytest tests/compat/trainers tests/compat/test_pages.py

crash: $(READY)
	command -v strace > /dev/null || apt-get install --yes --quiet strace
	TOKPRESS_CRASH_ROUNDS=$(ROUNDS) TOKPRESS_CRASH_SEED=$(SEED) TOKPRESS_CRASH_EVERYTHING=1 $(BIN)/pytest tests/crash --numprocesses auto

attack: $(READY)
	TOKPRESS_ATTACK_EVERYTHING=1 $(BIN)/pytest tests/attack --numprocesses auto

# Chromium is Debian's, axe-core npm's; neither is a part of the project. Where they cannot be had the tests say so and are skipped.
browser: $(READY)
	command -v chromium > /dev/null || { apt-get update -qq && apt-get install --yes -qq chromium; }
	test -f node_modules/axe-core/axe.min.js || npm install --no-save --silent axe-core@4
	TOKPRESS_BROWSER_EVERYTHING=1 $(BIN)/pytest tests/web

$(RAY_READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(RAY)
	$(RAY)/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,ray]'
	@touch $@

ray: $(RAY_READY)
	TOKPRESS_RAY_EVERYTHING=1 TOKPRESS_RAY_SEED=$(or $(SEED),0) TOKPRESS_RAY_SEEDS=$(or $(SEEDS),50) \
		$(RAY)/bin/pytest tests/crash/test_ray.py

share: $(READY)
	TOKPRESS_SHARE_EVERYTHING=1 TOKPRESS_SHARE_SEED=$(or $(SEED),0) TOKPRESS_SHARE_SEEDS=$(or $(SEEDS),100) \
		$(BIN)/pytest tests/crash/test_share.py --numprocesses auto

fuzz: $(READY)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[fuzz]'
	$(BIN)/python tests/fuzz/run.py --seconds $(or $(FUZZ_SECONDS),3600) $(CHOSEN)

remote: $(READY)
	TOKPRESS_REMOTE_ROUNDS=200 TOKPRESS_REMOTE_KILLS=100 TOKPRESS_REMOTE_STATES=1000 \
		$(BIN)/pytest tests/crash/test_bucket.py tests/storage/test_object_store.py tests/loader/test_remote.py --numprocesses auto

mutate: $(READY) native
	$(BIN)/python tests/mutations/run.py $(CHOSEN)

native-exact: $(READY) native
	TOKPRESS_NATIVE_WHOLE=1 $(BIN)/pytest tests/native --numprocesses auto --timeout 14400
	$(BIN)/python tests/native/mutate.py
	$(BIN)/python tests/native/many.py $$($(BIN)/python -c "import sys; sys.path.insert(0, 'tests'); from native.variants import NAMES; print(*NAMES)") $(NATIVE_MODELS)

native-fuzz: $(READY) native
	$(BIN)/python tests/native/fuzzing.py --seconds $(or $(FUZZ_SECONDS),3600)

# Warnings are errors: links and anchors that lead nowhere, pages that are not there.
site: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

check: $(READY) site
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy bench/loader.py
	MYPYPATH=tests $(BIN)/mypy bench/view.py
	$(BIN)/lint-imports --no-cache

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(READY)
	$(BIN)/python -m tokpress.reference > docs/options.md.new
	mv docs/options.md.new docs/options.md
	$(BIN)/python tools/reference_pages.py docs/reference

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
	rm -rf $(VENV) $(DEMO) $(DIST) dist $(COMPAT) $(TRAINERS) .mypy_cache .ruff_cache .pytest_cache .hypothesis .site tokpress-demo
