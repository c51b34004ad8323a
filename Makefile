# `make` lists the targets. Tools are installed into .tools/ and builds go to target/. Outside the project
# there are only cargo's cache and the system packages of `make test`: three that it needs, and RabbitMQ
# (`make bench` needs two of them).

PYTHON ?= python3 -B

.PHONY: help run test check simulate mutants removals torture e2e compare-sqs bench cost clean-tools

help:
	@echo "make run          process the sample events on a real server and print each message's outcome"
	@echo "make test         every test; installs redis-server, PostgreSQL, openssl and RabbitMQ if missing"
	@echo "make check        formatting, lints and documentation, warnings denied"
	@echo "make simulate     the whole function on a simulated network and clock, by seeds; SEEDS=1000, or SEED=17 for one with its trace"
	@echo "make mutants      mutation tests: changes the code in small ways, which the tests must notice; EVERY=61 FILES=src/sqs; takes hours"
	@echo "make removals     removes each condition in turn and says which evidence finds it; KIND=tests EVERY=20 FILES=src/sqs; takes hours"
	@echo "make torture      fault injection: kills, stops and breaks components, and checks the history; 20 seeds of 500 messages"
	@echo "make e2e          run and deploy the release binary as a Lambda function on ministack, an AWS emulator; takes minutes"
	@echo "make compare-sqs  the tests' simulated SQS next to ministack, moto and AWS's documentation; takes 6 minutes"
	@echo "make bench        cost per message, next to a minimal check and to other implementations; takes 20 minutes"
	@echo "make cost         what a stack costs in a month and carries, such as RATE=100 RETENTION_DAYS=3; lists its options"
	@echo "make clean-tools  remove .tools/, the tools of run, test, mutants, e2e, compare-sqs and bench"

run:
	@$(PYTHON) scripts/tools.py run
	@$(PYTHON) scripts/run.py

# The last command tests the core as a library without SQS, Lambda and AWS. The model and the store's behavior on real
# servers do not depend on these features.
SAME = --skip model:: --skip redis::
# Most tests wait for servers, so two run at once for each core.
TEST_THREADS ?= $(shell echo $$((2 * $$(getconf _NPROCESSORS_ONLN))))

test:
	$(PYTHON) scripts/tools.py test
	.tools/venv/bin/python -B tests/template/check.py
	.tools/venv/bin/python -B tests/release/check.py
	.tools/venv/bin/python -B tests/identity/sign.py
	$(PYTHON) tests/cost/check.py
	$(PYTHON) tests/scripts/check.py
	cargo test --workspace --exclude benches --all-features -- --test-threads $(TEST_THREADS)
	cargo test --package idempotent-sqs --no-default-features --features redis,serde --lib --test core -- --test-threads $(TEST_THREADS) $(SAME)

# The last command checks the core without SQS, Lambda and AWS.
check:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --all-features -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --all-features
	cargo clippy --package idempotent-sqs --no-default-features --lib -- -D warnings

SEEDS ?= 500
FIRST ?= 1
SIMULATE = cargo run --quiet --package simulation --bin simulate --

# `make simulate WITHOUT=acquire` removes one guard of that script after another, and says which seed finds it.
simulate:
ifdef SEED
	$(SIMULATE) $(SEED) --trace
else ifdef WITHOUT
	$(SIMULATE) --guards "$(WITHOUT)" $(FIRST) $(SEEDS)
else
	$(SIMULATE) --seeds $(FIRST) $(SEEDS)
endif

# The mutants of cargo-mutants, each with the tests that reach it. All of them take hours: FILES='src/sqs crates/http'
# measures those of a few files or folders, EVERY=20 a sample.
EVERY ?= 1
mutants:
	$(PYTHON) scripts/tools.py test
	@$(PYTHON) scripts/tools.py mutants
	PATH="$(CURDIR)/.tools/cargo/bin:$$PATH" cargo run --quiet --package removals -- mutants $(EVERY) $(FILES)

# One kind of evidence at a time: tests, simulation, torture, http or inbox. It leaves out what two others find. Then the table.
# EVERY=20 measures a sample: each twentieth condition.
removals:
	$(PYTHON) scripts/tools.py test
ifdef KIND
	cargo run --quiet --package removals -- measure $(KIND) $(EVERY) $(FILES)
endif
	cargo run --quiet --package removals -- report $(EVERY)

torture:
	$(PYTHON) scripts/tools.py test
	TORTURE_SEEDS=20 TORTURE_MESSAGES=500 cargo test --package history --test it -- torture:: inbox:: --nocapture --test-threads 1
	TORTURE_SEEDS=20 TORTURE_MESSAGES=500 cargo test --package http-history --test it -- --nocapture --test-threads 1
	cargo test --package history --test it -- guards:: lost_writes:: --include-ignored --nocapture
	TORTURE_SEEDS=5 cargo test --package history --test it -- failover:: --include-ignored --nocapture --test-threads 1
	TORTURE_SEEDS=20 TORTURE_MESSAGES=500 cargo test --package ledger --test it -- torture:: --nocapture

# `make e2e SCENARIOS="fifo redis"` runs only the scenarios whose name contains one of the words.
e2e:
	@$(PYTHON) scripts/tools.py e2e
	@.tools/e2e/bin/python -B tests/e2e/main.py $(SCENARIOS)

# `make compare-sqs RULES="retention mapping"` compares only the rules whose name contains one of the words.
compare-sqs:
	@$(PYTHON) scripts/tools.py sqs
	@.tools/compare-sqs/bin/python -B tests/sqs/main.py $(RULES)

bench:
	$(PYTHON) scripts/tools.py bench
	cargo build --release --package idempotent-sqs --bin idempotent-sqs
	cargo build --release --package ledger
	cargo build --release --package benches --examples
	cargo bench --package benches --bench contention -- --write
	cargo bench --package benches --bench http -- --write
	cargo bench --package benches --bench invocations -- --write

# `make cost RATE=100` passes the variables of the command line.
cost:
	@$(PYTHON) scripts/cost/main.py $(filter-out PYTHON=% -%,$(MAKEOVERRIDES))

clean-tools:
	rm -rf .tools
