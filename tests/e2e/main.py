"""`make e2e`: the release binary as a Lambda function, behind an SQS API and an event source mapping that others wrote.

All of it runs on this machine: ministack in place of AWS, a private Valkey or Redis, a webhook that
counts, and the function itself as ministack starts it. Each scenario is a function whose name is a
sentence. It ends with an error unless every scenario comes out as it tells.

    python tests/e2e/main.py [WORD …]     only the scenarios whose name has one of the words
"""

import os
import shutil
import sys
import tempfile
import time
import traceback
from contextlib import ExitStack
from pathlib import Path

# What `make run` is made of serves here too.
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

import deliveries
import deploys
import failures
import order
import show
import tools
from binary import build, pack
from cloud import Cloud
from processes import Failed, end_on_signals, ignore_signals
from scene import Scene
from stage import start_redis

SCENARIOS = [*deliveries.SCENARIOS, *order.SCENARIOS, *failures.SCENARIOS, *deploys.SCENARIOS]


def main(words):
    end_on_signals()
    tools.TOOLS.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="e2e-", dir=tools.TOOLS))
    ends = ExitStack()
    ends.callback(shutil.rmtree, folder, ignore_errors=True)
    try:
        chosen = [scenario for scenario in SCENARIOS if not words or any(word in scenario.__name__ for word in words)]
        binary = build()
        server = tools.find_server()
        redis_url = f"redis://127.0.0.1:{start_redis(server, folder, ends)}"
        cloud = Cloud(folder, pack(binary), ends)
        show.line(f"{Path(server).name} {tools.major_version(server)}, a webhook, and {cloud.version}")
        return play(chosen, cloud, binary, redis_url)
    except (Failed, tools.Missing) as failed:
        show.error(failed)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        ignore_signals()
        ends.close()


def play(scenarios, cloud, binary, redis_url):
    failed, began = [], time.monotonic()
    for number, scenario in enumerate(scenarios, 1):
        show.heading(sentence(scenario))
        start = time.monotonic()
        if not comes_out(scenario, Scene(f"scene-{number}", cloud, binary, redis_url)):
            failed.append(scenario)
        verdict = "not as it should be" if scenario in failed else "as it should be"
        show.line(f"{verdict}, after {time.monotonic() - start:.1f} s")
    show.heading(f"{len(scenarios)} scenarios in {time.monotonic() - began:.0f} s, {len(failed)} not as they should be")
    for scenario in failed:
        show.line(sentence(scenario))
    if failed:
        show.line(f"what ministack and the function wrote is in {cloud.log.relative_to(tools.ROOT)}")
    return 1 if failed or not scenarios else 0


def comes_out(scenario, scene):
    try:
        with scene:
            scenario(scene)
        return True
    except Failed as differs:
        show.error(differs)
    except Exception:  # A fault in a scenario is that scenario's own.
        traceback.print_exc()
    return False


def sentence(scenario):
    return scenario.__name__.replace("_", " ")


def forget_the_users_own_cloud():
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        del os.environ[name]
    os.environ |= {
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
        # Where a proxy is set for the world outside, what is on this machine is not behind it.
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
    }


if __name__ == "__main__":
    forget_the_users_own_cloud()
    sys.exit(main(sys.argv[1:]))
