# `make` alone lists what can be made. Tools go to .tools/ and builds to target/. Elsewhere there are
# only cargo's own cache, and the three packages of the system that `make test` needs;
# `make bench` needs two of them.

PYTHON ?= python3 -B

.PHONY: help run test check torture e2e bench clean-tools

help:
	@echo "make run          send the sample events to the function, and see what becomes of each message"
	@echo "make test         every test; installs redis-server, PostgreSQL and openssl where they are missing"
	@echo "make check        formatting, lints and documentation, warnings denied"
	@echo "make torture      kills, stops and breaks what can be broken, and counts what came of it; 20 seeds of 500 messages"
	@echo "make e2e          the release binary as a Lambda function of ministack, which plays AWS, and deployed to it; minutes"
	@echo "make bench        what it costs, beside the least that it can cost and beside what others do; minutes"
	@echo "make clean-tools  remove .tools/, where the tools of run, test, e2e and bench are"

run:
	@$(PYTHON) scripts/tools.py run
	@$(PYTHON) scripts/demo.py

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

# `make e2e SCENARIOS="fifo redis"` plays those alone whose names have one of the words.
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
