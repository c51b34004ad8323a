"""`sam build` and `sam deploy`, in a pseudo-terminal and with a server in place of AWS: a single answer deploys, and a configuration file
needs none."""

import json
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from aws import Aws
from template import ROOT, source

SAM = Path(sys.executable).with_name("sam")
WEBHOOK = "https://example.com/hook"
# With the space at its end: an answer to a hidden prompt is lost if it comes before.
PROMPT = re.compile(r"(?:\[[^\[\]]*\]|Parameter \w+): $")
# Seconds. More than it takes on a busy machine.
TIMEOUT = 120


def copy_of_the_project(folder):
    """The templates, with a function that is built by a copy in place of cargo-lambda."""
    shutil.copy(ROOT / "samconfig.toml", folder)
    shutil.copytree(ROOT / "templates", folder / "templates")
    template = (ROOT / "template.yaml").read_text()
    builder = "{ BuildMethod: rust-cargolambda, BuildProperties: { Binary: idempotent-sqs } }"
    assert template.count(builder) == 1
    (folder / "template.yaml").write_text(template.replace(builder, "{ BuildMethod: makefile }"))
    (folder / "Makefile").write_text("build-Function:\n\techo binary > $(ARTIFACTS_DIR)/bootstrap\n")


def copy_of_the_ledger(folder):
    """Its template in its place in the project, with functions that are built in the same way."""
    for path in ("examples/ledger", "crates/postgres"):
        (folder / path).mkdir(parents=True)
        targets = "build-LedgerFunction build-BackfillFunction"
        (folder / path / "Makefile").write_text(f"{targets}:\n\techo binary > $(ARTIFACTS_DIR)/bootstrap\n")
    template = (ROOT / "examples/ledger/template.yaml").read_text()
    template, count = re.subn(r"{ BuildMethod: rust-cargolambda, .* }$", "{ BuildMethod: makefile }", template, flags=re.MULTILINE)
    assert count == 2
    (folder / "examples/ledger/template.yaml").write_text(template)


def environment(aws, folder):
    """The environment of SAM. SAM is told that it has just checked for a new version."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    (home / "metadata.json").write_text(json.dumps({"lastVersionCheck": time.time()}))
    return os.environ | {
        "AWS_ENDPOINT_URL": aws.url,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
        "SAM_CLI_TELEMETRY": "0",
        "__SAM_CLI_APP_DIR": str(home),
        "TERM": "dumb",
    }


def converse(command, answers, **options):
    """Runs a command in a pseudo-terminal, and answers each prompt with the text of `answers` for it, or with Enter. Returns
    the prompts and the output."""
    terminal, end = pty.openpty()
    process = subprocess.Popen(command, stdin=end, stdout=end, stderr=end, start_new_session=True, **options)
    os.close(end)
    output, unanswered, prompts = "", "", []
    deadline = time.monotonic() + TIMEOUT
    try:
        while select.select([terminal], [], [], max(0, deadline - time.monotonic()))[0]:
            try:
                text = os.read(terminal, 65536).decode(errors="replace")
            except OSError:  # The process has closed the terminal.
                break
            if not text:
                break
            output, unanswered = output + text, unanswered + text
            line = re.sub(r"\x1b\[[0-9;]*m", "", unanswered).splitlines()[-1]
            if PROMPT.search(line):
                prompts.append(line.strip())
                answer = next((text for name, text in answers.items() if name in line), "")
                os.write(terminal, f"{answer}\n".encode())
                unanswered = ""
                if prompts.count(line.strip()) > 3:
                    raise AssertionError(f"asked again and again: {line}")
    finally:
        os.close(terminal)
        if process.poll() is None:
            try:
                process.wait(max(1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
    return prompts, output


def sent_parameters(change_set):
    names = {key: value for key, value in change_set.items() if key.endswith(".ParameterKey")}
    return {name: change_set.get(key.replace("Key", "Value")) for key, name in names.items()}


class Deploy(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.aws = self.enterContext(Aws())
        copy_of_the_project(self.folder)
        self.options = {"cwd": self.folder, "env": environment(self.aws, self.folder)}
        built = subprocess.run([SAM, "build"], capture_output=True, text=True, stdin=subprocess.DEVNULL, **self.options)
        self.assertEqual(built.returncode, 0, built.stderr)

    def test_a_guided_deployment_needs_one_answer(self):
        prompts, output = converse([SAM, "deploy", "--guided"], {"Parameter TargetUrl": WEBHOOK}, **self.options)
        self.assertEqual(len(self.aws.change_sets), 1, output[-3000:])
        asked = [name for prompt in prompts for name in re.findall(r"Parameter (\w+)", prompt)]
        self.assertEqual(asked, list(source()["Parameters"]))
        (change_set,) = self.aws.change_sets
        defaults = {name: str(spec.get("Default")) for name, spec in source()["Parameters"].items()}
        self.assertEqual(sent_parameters(change_set), defaults | {"TargetUrl": WEBHOOK})
        self.check(change_set)

    def test_the_answers_of_a_guided_deployment_are_kept(self):
        for command in [[SAM, "deploy", "--guided"], [SAM, "deploy"]]:
            prompts, output = converse(command, {"Parameter TargetUrl": WEBHOOK}, **self.options)
            self.assertEqual(bool(prompts), "--guided" in command, output[-3000:])
        first, second = map(sent_parameters, self.aws.change_sets)
        self.assertEqual(second, first)
        self.check(self.aws.change_sets[1])

    def test_a_deployment_by_the_configuration_file_asks_nothing(self):
        command = [SAM, "deploy", "--region", "eu-central-1", "--parameter-overrides", f"TargetUrl={WEBHOOK}"]
        prompts, output = converse(command, {}, **self.options)
        self.assertEqual(prompts, [], output[-3000:])
        (change_set,) = self.aws.change_sets
        self.assertEqual(sent_parameters(change_set)["TargetUrl"], WEBHOOK)
        self.check(change_set)

    def test_the_ledger_is_deployed_beside_it_and_changes_neither_its_build_nor_its_configuration(self):
        copy_of_the_ledger(self.folder)
        page = (ROOT / "docs/deploy.md").read_text()
        commands = re.search(r"   cd (examples/ledger)\n   (sam build)\n   (sam deploy --guided .*)\n", page)
        self.options["cwd"] = self.folder / commands[1]
        before = [(self.folder / name).read_text() for name in ("samconfig.toml", ".aws-sam/build/template.yaml")]
        _, output = converse([SAM, *commands[2].split()[1:]], {}, **self.options)
        answers = {"Parameter RedisUrl": "redis://redis.example.com", "Parameter DatabaseUrl": "postgres://db.example.com/ledger"}
        _, more = converse([SAM, *commands[3].split()[1:]], answers, **self.options)
        self.assertEqual(len(self.aws.change_sets), 1, (output + more)[-3000:])
        self.assertEqual(self.aws.change_sets[0]["StackName"], "payments-ledger")
        after = [(self.folder / name).read_text() for name in ("samconfig.toml", ".aws-sam/build/template.yaml")]
        self.assertEqual(after, before)

    def check(self, change_set):
        """What every deployment sends to AWS: the capabilities, and the templates and the package in S3."""
        self.assertEqual(change_set["StackName"], "idempotent-sqs")
        capabilities = {value for key, value in change_set.items() if key.startswith("Capabilities.member.")}
        self.assertEqual(capabilities, {"CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND"})
        uploaded = [text for text in self.aws.uploads.values() if text.startswith((b"AWSTemplate", b"Description"))]
        kinds = {kind for text in uploaded for kind in re.findall(r"Type: (AWS::\w+::\w+)", text.decode())}
        of_nested = {"AWS::EC2::VPC", "AWS::ElastiCache::ReplicationGroup", "AWS::CloudWatch::Dashboard"}
        self.assertLessEqual(of_nested, kinds)


if __name__ == "__main__":
    unittest.main()
