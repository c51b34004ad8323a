"""`make e2e`: the release binary as a Lambda function, with independent implementations of SQS and its event source mapping.

Everything runs on this machine: ministack in place of AWS, Valkey or Redis, a webhook that records its
calls, and the function as ministack starts it. Each scenario is a function whose name is a sentence.
Exits with 1 if a scenario fails.

    python tests/e2e/main.py [WORD …]     only the scenarios whose name contains one of the words
"""

import atexit
import os
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

# Shared with `make run`.
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

import deliveries
import deploys
import failures
import order
import tools
from binary import build, build_letters, pack
from cloud import Cloud
from fixture import Fixture
from servers import Failed, free_port, run, start_redis

SCENARIOS = [*deliveries.SCENARIOS, *order.SCENARIOS, *failures.SCENARIOS, *deploys.SCENARIOS]


def main():
    words = sys.argv[1:]
    chosen = [scenario for scenario in SCENARIOS if not words or any(word in scenario.__name__ for word in words)]
    remove_aws_settings()
    binary, letters, server, port = build(), build_letters(), tools.find_server(), free_port()
    folder = Path(tempfile.mkdtemp(prefix="e2e-", dir=tools.TOOLS))
    # Registered before the processes start, so that it runs after they have ended.
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    start_redis(folder, port)
    cloud = Cloud(folder, pack(binary), letters)
    print(f"  {Path(server).name} {tools.major_version(server)}, a webhook, and {cloud.version}")
    return run_scenarios(chosen, cloud, binary, f"redis://127.0.0.1:{port}")


def run_scenarios(scenarios, cloud, binary, redis_url):
    failed, start = [], time.monotonic()
    for number, scenario in enumerate(scenarios, 1):
        print(f"\n{sentence(scenario)}", flush=True)
        scenario_start = time.monotonic()
        passed = passes(scenario, Fixture(f"scenario-{number}", cloud, binary, redis_url))
        if not passed:
            failed.append(scenario)
        print(f"  {'passed' if passed else 'failed'} after {time.monotonic() - scenario_start:.1f} s", flush=True)
    print(f"\n{len(scenarios)} scenarios in {time.monotonic() - start:.0f} s, {len(failed)} failed")
    for scenario in failed:
        print(f"  {sentence(scenario)}")
    if failed:
        print(f"  output of ministack and the function: {cloud.log.relative_to(tools.ROOT)}")
    return 1 if failed or not scenarios else 0


def passes(scenario, fixture):
    try:
        with fixture:
            scenario(fixture)
        return True
    except Failed as failure:
        print(f"\nerror: {failure}", file=sys.stderr)
    except Exception:  # An error in a scenario does not stop the others.
        traceback.print_exc()
    return False


def sentence(scenario):
    return scenario.__name__.replace("_", " ")


def remove_aws_settings():
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        del os.environ[name]
    os.environ |= {
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
        # A proxy does not reach the servers on this machine.
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
    }


if __name__ == "__main__":
    run(main)
