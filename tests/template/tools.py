"""cfn-lint and sam validate: all templates pass, as written and as deployed."""

import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from template import LEDGER, MAIN, NESTED, NETWORKS, QUEUES, RECORDS, ROOT, combinations, deployed, parameter, transformed


def run(tool, *arguments, **environment):
    """Runs a tool that is installed in the environment of this Python."""
    command = [str(Path(sys.executable).parent / tool), *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True)
    return done.returncode, f"{' '.join(command)}\n{done.stdout}{done.stderr}"


def samples():
    """Stacks of the function: each kind of records in each network, with all other parameters in rotation."""
    others = zip(
        itertools.cycle(QUEUES.values()),
        itertools.cycle([*parameter("FunctionTimeout")["AllowedValues"], 30]),
        itertools.cycle([{}, {"KmsKeyArn": "arn:aws:kms:eu-central-1:123456789012:key/1c2fa620"}, {"TargetUrl": "http://x:8080"}]),
    )
    for (records, network), (queue, timeout, more) in zip(itertools.product(RECORDS.values(), NETWORKS.values()), others):
        yield records | network | queue | more | {"FunctionTimeout": timeout}


class Tools(unittest.TestCase):
    def passes(self, code_and_output):
        code, output = code_and_output
        self.assertEqual(code, 0, output)

    def test_cfn_lint_passes_the_templates_and_the_parameters_of_nested_stacks(self):
        self.passes(run("cfn-lint", "--include-checks", "I", "--", MAIN, *NESTED))

    def test_cfn_lint_passes_the_transformed_templates(self):
        # In the source, cfn-lint misses an unknown runtime and most errors in events. `I` includes its advice. W3002 is
        # that SAM has to upload the nested templates.
        with tempfile.TemporaryDirectory() as folder:
            for template in MAIN, LEDGER:
                path = Path(folder) / "transformed.json"
                path.write_text(json.dumps(transformed(template)))
                (Path(folder) / "templates").exists() or shutil.copytree(ROOT / "templates", Path(folder) / "templates")
                self.passes(run("cfn-lint", "--include-checks", "I", "--ignore-checks", "W3002", "--", path))

    def test_cfn_lint_passes_what_is_deployed(self):
        # It finds more errors once conditions are resolved and parameters are values.
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            stacks = [deployed(**parameters) for parameters in samples()]
            self.assertEqual(len(stacks), 28)
            stacks += [deployed(LEDGER, **parameters) for _, parameters in combinations(LEDGER)]
            self.assertEqual(len(stacks), 28 + 48)
            for at, stack in enumerate(stacks):
                paths.append(Path(folder) / f"{at}.json")
                paths[-1].write_text(json.dumps(stack.plain(), indent=1))
            self.passes(run("cfn-lint", "--", *paths))

    def test_sam_passes_the_templates(self):
        with tempfile.TemporaryDirectory() as folder:
            # sam checks for a new version once a week. This records a check that has just been made.
            (Path(folder) / "metadata.json").write_text(json.dumps({"lastVersionCheck": time.time()}))
            quiet = {"SAM_CLI_TELEMETRY": "0", "__SAM_CLI_APP_DIR": folder}
            for template in MAIN, LEDGER:
                self.passes(run("sam", "validate", "--lint", "--template", template, **quiet))
