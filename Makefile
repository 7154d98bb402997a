# Everything here needs python3 and make; the tests also need pytest, which they fetch once into a folder of their own.
PYTHON ?= python3
ARGS ?=

.PHONY: help demo test test-all fuzz kill eval bench bench-peers clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: ## fill a temporary task list and walk through it
	@$(PYTHON) examples/tasks.py demo

test: ## run all tests in .venv, which is made with pytest alone (ARGS="-k name" passes options to pytest)
	@$(PYTHON) tests/run.py $(ARGS)

test-all: ## run all tests with every Python 3.9 or newer that is found
	@$(PYTHON) tests/run.py --all $(ARGS)

fuzz: export KNAIF_FUZZ_ROUNDS ?= 20
fuzz: ## run the seeded fuzz tests, 20 times as long (KNAIF_FUZZ_ROUNDS=100 for 100 times)
	@$(PYTHON) tests/run.py -m fuzz $(ARGS)

kill: export KNAIF_KILLS ?= 2000
kill: ## kill batches at random moments, 2,000 times (KNAIF_KILLS=100000 for longer), and see that nothing is lost
	@$(PYTHON) tests/run.py tests/test_kill.py $(ARGS)

eval: ## measure the built-in planner on sentences it was not written with
	@$(PYTHON) tests/evaluate.py

bench: ## measure against the goals and print one table
	@$(PYTHON) tests/run.py --bench $(ARGS)

bench-peers: ## the same beside other libraries, in an environment of their own
	@$(PYTHON) tests/run.py --bench --peers $(ARGS)

clean: ## remove what the other targets made
	@for folder in .venv .venv-*; do if [ -e "$$folder/made-by-tests-run" ]; then rm -rf "$$folder"; fi; done
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
	@rm -rf .pytest_cache
