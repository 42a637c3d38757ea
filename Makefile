# Two commands matter: `make demo` and `make test`. The rest is their parts.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# dvc runs each stage with the `python` it finds first; keep barrier spinning off busy cores.
RUN := PATH="$(CURDIR)/$(BIN):$$PATH" OMP_WAIT_POLICY=passive TOKENIZERS_PARALLELISM=false

.DEFAULT_GOAL := help
# Where the environments of `make frameworks` lie; tests look there too.
ASTRA_FRAMEWORKS ?= $(CURDIR)/.venv-
export ASTRA_FRAMEWORKS
# Where the environment of `make bench-env` lies.
ASTRA_BENCH_ENV ?= $(CURDIR)/.venv-bench
export ASTRA_BENCH_ENV

.PHONY: help install demo test smoke check params deps tiny-base frameworks bench-env remote experiments docs mlflow plots clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

install: $(STAMP) ## create .venv with every pinned dependency
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[train,lora,s3,bench,docs,dev]'
	touch $(STAMP)

demo: $(STAMP) ## the whole graph on two CPU cores, then the scores
	$(RUN) dvc repro
	$(RUN) astra scores

smoke: $(STAMP) ## the graph at the committed scale, nothing printed but progress
	$(RUN) dvc repro

check: $(STAMP) ## lint, types, import contracts
	$(RUN) ruff check
	$(RUN) ruff format --check
	$(RUN) pyright
	$(RUN) lint-imports

test: check ## everything CI checks, but for the smoke build
	$(RUN) pytest -n 2 --dist loadfile --no-loadscope-reorder

params: $(STAMP) ## compose conf/ to params.yaml
	$(RUN) python -m astra.cli.params

deps: $(STAMP) ## write each stage's import closure into dvc.yaml
	$(RUN) python -m astra.cli.closure

tiny-base: $(STAMP) ## rebuild the committed tiny policy from its recipe
	$(RUN) python -m astra.train.tiny_base

frameworks: ## environments of verifiers, OpenEnv and verl, in which arena exports are tested
	for name in verifiers openenv verl; do \
	  $(PYTHON) -m venv "$(ASTRA_FRAMEWORKS)$$name" && "$(ASTRA_FRAMEWORKS)$$name/bin/pip" install \
	    --quiet --disable-pip-version-check -r "frameworks/$$name.txt" || exit 1; \
	done

remote: $(STAMP) ## keep data in S3: make remote URL=s3://BUCKET/PATH [ENDPOINT=https://...]
	$(RUN) astra remote set "$(URL)" $(if $(ENDPOINT),--endpoint "$(ENDPOINT)")

# What an experiment changed and what came of it; `dvc exp show` alone has over a thousand columns.
BLOCKS := tools|graph|chains|tasks|trajectories|sft_set|qa|qa_valid|envs|envs_merged|sft|rl|bench
SCORES := checkpoints\.rl\.scores\.(f1|precision|recall|success|calls)\.mean

experiments: $(STAMP) ## DVC experiments as a table; SHOW=--md, SHOW="--sort-by rl.seed", ...
	$(RUN) dvc exp show --only-changed --drop '(?!Experiment|Created|State|($(BLOCKS))\.)' \
	  --keep '$(SCORES)' $(SHOW)

docs: $(STAMP) ## build the documentation into site/; any warning fails
	$(RUN) mkdocs build --strict --quiet

bench-env: ## environment of the benchmark harnesses, pinned
	$(PYTHON) -m venv "$(ASTRA_BENCH_ENV)"
	"$(ASTRA_BENCH_ENV)/bin/pip" install --quiet --disable-pip-version-check --no-deps \
	  -r harnesses/bench.txt

mlflow: $(STAMP) ## open the runs at http://127.0.0.1:5000
	MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false $(RUN) mlflow ui --backend-store-uri sqlite:///mlflow.db --host 127.0.0.1

plots: $(STAMP) ## write dvc_plots/index.html
	$(RUN) dvc plots show

clean: ## remove what a rebuild makes; keeps .venv and the caches
	rm -rf data models runs dvc_plots
