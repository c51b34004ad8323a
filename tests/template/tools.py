"""AWS's own tools."""

import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from template import LEDGERS, NETWORKS, QUEUES, RECORDS, ROOT, TEMPLATE, TYPES, deployed, parameter, transformed


def run(tool, *arguments, **environment):
    """Runs a tool that was installed beside this Python."""
    command = [str(Path(sys.executable).parent / tool), *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True)
    return done.returncode, f"{' '.join(command)}\n{done.stdout}{done.stderr}"


def samples():
    """Each kind of records in each network, and everything else in turns."""
    others = zip(
        itertools.cycle(QUEUES.values()),
        itertools.cycle(TYPES.values()),
        itertools.cycle([*parameter("FunctionTimeout")["AllowedValues"], 30]),
        itertools.cycle([{}, {"ResultBucket": "results"}, {"SqsEndpoint": "false"}, {"NatGateway": "false"}]),
        # So that the first of each kind of records has none, and the second, in a VPC of one's own, has one.
        itertools.cycle(LEDGERS.values()),
    )
    for (records, network), (queue, kind, timeout, more, ledger) in zip(
        itertools.product(RECORDS.values(), NETWORKS.values()), others
    ):
        yield records | network | queue | kind | more | ledger | {"FunctionTimeout": timeout}


class Tools(unittest.TestCase):
    def passes(self, code_and_output):
        code, output = code_and_output
        self.assertEqual(code, 0, output)

    def test_cfn_lint_passes_the_transformed_template(self):
        # On the source alone it overlooks an unknown runtime, and much in the events. `I`: its advice, too.
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "transformed.json"
            path.write_text(json.dumps(transformed()))
            self.passes(run("cfn-lint", "--include-checks", "I", "--", path))

    def test_cfn_lint_passes_what_is_deployed(self):
        # It sees more where conditions are decided and parameters are values.
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for at, parameters in enumerate(samples()):
                paths.append(Path(folder) / f"{at}.json")
                paths[-1].write_text(json.dumps(deployed(**parameters).plain(), indent=1))
            self.assertEqual(len(paths), 10)
            self.passes(run("cfn-lint", "--", *paths))

    def test_sam_passes_the_template(self):
        with tempfile.TemporaryDirectory() as folder:
            # Once a week sam asks on the network whether it is still the newest; so it has just asked.
            (Path(folder) / "metadata.json").write_text(json.dumps({"lastVersionCheck": time.time()}))
            quiet = {"SAM_CLI_TELEMETRY": "0", "__SAM_CLI_APP_DIR": folder}
            self.passes(run("sam", "validate", "--lint", "--template", TEMPLATE, **quiet))
