# `make` lists the targets. Tools go to .tools/ and builds to target/. Outside the project there are only
# cargo's cache and the system packages: three for `make test`, two of them also for `make bench`.

PYTHON ?= python3 -B

.PHONY: help run test check torture e2e bench clean-tools

help:
	@echo "make run          send the sample events to the function and show the outcome of each message"
	@echo "make test         all tests; installs redis-server, PostgreSQL and openssl if they are missing"
	@echo "make check        formatting, lints and documentation, warnings denied"
	@echo "make torture      random kills, stops and faults, with the effects of every message counted; 20 seeds of 500 messages"
	@echo "make e2e          the release binary in ministack, an emulator of AWS, and deployments to it; takes minutes"
	@echo "make bench        the cost per message, compared with the minimum and with other libraries; takes minutes"
	@echo "make clean-tools  remove .tools/, the installed tools of run, test, e2e and bench"

run:
	@$(PYTHON) scripts/tools.py run
	@$(PYTHON) scripts/run.py

test:
	$(PYTHON) scripts/tools.py test
	.tools/venv/bin/python -B tests/template/check.py
	.tools/venv/bin/python -B tests/identity/sign.py
	cargo test --all-features

check:
	cargo fmt --check
	cargo clippy --all-targets --all-features -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --all-features

torture:
	$(PYTHON) scripts/tools.py test
	TORTURE_SEEDS=20 TORTURE_MESSAGES=500 cargo test --all-features --test it -- torture:: --nocapture

# `make e2e SCENARIOS="fifo redis"` runs only the scenarios whose name contains one of the words.
e2e:
	@$(PYTHON) scripts/tools.py e2e
	@.tools/e2e/bin/python -B tests/e2e/main.py $(SCENARIOS)

bench:
	$(PYTHON) scripts/tools.py bench
	cargo build --release --features postgres --bin ledger --example by_hand
	cargo build --release --bin idempotent-sqs --examples
	cargo bench --bench contention -- --write
	cargo bench --bench invocations -- --write

clean-tools:
	rm -rf .tools
