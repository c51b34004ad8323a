"""`make compare-sqs`: the same calls to the simulated queue, ministack and moto, compared with AWS's documentation.

Everything runs on this machine, in real time: six minutes, because of FIFO deduplication. Writes the differences to
docs/simulated-sqs.md. Exits with 1 if the simulated queue does not follow the documentation.

    python tests/sqs/main.py [WORD …]     only the rules whose name contains one of the words; writes nothing
"""

import atexit
import shutil
import sys
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# Shared with `make run`.
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

import dead_letters
import fifo
import mapping
import report
import sends
import standard
import tools
from endpoints import Ministack, Moto, Simulated
from rule import RULES, NotOffered
from servers import run

# Rules that run at the same time on each implementation. They wait most of the time.
CONCURRENT = 12


def main():
    words = sys.argv[1:]
    rules = [rule for rule in RULES if not words or any(word in rule.name for word in words)]
    folder = Path(tempfile.mkdtemp(prefix="compare-sqs-", dir=tools.TOOLS))
    # Registered before the processes start, so that it runs after they have ended.
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    start = time.monotonic()
    endpoints = [Simulated(), Ministack(folder), Moto()]
    print(f"  {len(rules)} rules on the {', '.join(endpoint.name for endpoint in endpoints)}", flush=True)
    seen = compare(rules, endpoints)
    print(f"  {time.monotonic() - start:.0f} s\n")
    names = [endpoint.name for endpoint in endpoints]
    report.show(rules, names, seen)
    if not words:
        report.write(rules, names, seen)
    wrong = [rule for rule in rules if not rule.allows(seen[rule, names[0]])]
    print(f"\nthe simulated queue follows the documentation in {len(rules) - len(wrong)} of {len(rules)} rules")
    return 1 if wrong or not rules else 0


def compare(rules, endpoints):
    """What each endpoint did, by rule and name."""
    # The longest first.
    rules = sorted(rules, key=lambda rule: ("minutes" not in rule.name, "retention" not in rule.name))
    with ThreadPoolExecutor(CONCURRENT * len(endpoints)) as pool:
        runs = {(rule, endpoint.name): pool.submit(seen_by, rule, endpoint) for rule in rules for endpoint in endpoints}
        return {key: run.result() for key, run in runs.items()}


def seen_by(rule, endpoint):
    if rule.needs_mapping and not hasattr(endpoint, "invoke"):
        return report.MISSING
    try:
        return str(rule.function(endpoint))
    except NotOffered:
        return report.MISSING
    except Exception as error:  # An implementation may lack a call, or return an incomplete reply.
        traceback.print_exc()
        return f"failed ({type(error).__name__})"


if __name__ == "__main__":
    run(main)
