"""What AWS, and the rest of this project, need of template.yaml.

Run it with the Python of an environment that has cfn-lint, aws-sam-cli and pyyaml. It needs no AWS account and no
network.
"""

import functools
import json
import os
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = ROOT / "template.yaml"

# The account and region of whoever runs this have no part in it.
for name in [name for name in os.environ if name.startswith("AWS_")]:
    del os.environ[name]
os.environ |= {
    "AWS_DEFAULT_REGION": "eu-central-1",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
}

from samtranslator.parser.parser import Parser  # noqa: E402  (it looks for a region when it is loaded)
from samtranslator.translator.translator import Translator  # noqa: E402
from samtranslator.yaml_helper import yaml_parse  # noqa: E402

SIX_TIMES = 6
DEFAULT_LEASE_GRACE_MS = 1000
DAY = 24 * 60 * 60


def run(tool, *arguments, **environment):
    """Runs a tool that was installed beside this Python."""
    command = [str(Path(sys.executable).parent / tool), *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True)
    return done.returncode, f"{' '.join(command)}\n{done.stdout}{done.stderr}"


@functools.cache
def source():
    return yaml_parse(TEMPLATE.read_text())


@functools.cache
def transformed():
    """The template as CloudFormation gets it: with what SAM makes of its short forms."""
    template = yaml_parse(TEMPLATE.read_text())
    # SAM wants the built program here; nothing is built, and nothing is read from there.
    template["Resources"]["Function"]["Properties"]["CodeUri"] = "s3://built/function.zip"
    return Translator({}, Parser()).translate(template, {})


def deployed(**parameters):
    """The transformed template with these parameters filled in, and each mapping looked up with them."""

    def fill(node):
        if isinstance(node, list):
            return [fill(item) for item in node]
        if not isinstance(node, dict):
            return node
        if node.keys() == {"Ref"} and node["Ref"] in parameters:
            return parameters[node["Ref"]]
        node = {name: fill(value) for name, value in node.items()}
        if node.keys() == {"Fn::FindInMap"}:
            name, first, second = node["Fn::FindInMap"]
            if not isinstance(first, dict):
                return template["Mappings"][name][str(first)][second]
        return node

    template = transformed()
    filled = template | {"Resources": fill(template["Resources"])}
    filled["Parameters"] = {k: v for k, v in template["Parameters"].items() if k not in parameters}
    return filled


def permitted_timeouts():
    return source()["Parameters"]["FunctionTimeout"]["AllowedValues"]


def properties(logical_id, template=None):
    return (template or transformed())["Resources"][logical_id]["Properties"]


def parameter(name):
    return source()["Parameters"][name]


def variables():
    return properties("Function")["Environment"]["Variables"]


def of_type(kind):
    return [r["Properties"] for r in transformed()["Resources"].values() if r["Type"] == kind]


def as_list(value):
    return value if isinstance(value, list) else [value]


def arn_of(logical_id):
    return {"Fn::GetAtt": [logical_id, "Arn"]}


class Tools(unittest.TestCase):
    def passes(self, code_and_output):
        code, output = code_and_output
        self.assertEqual(code, 0, output)

    def test_cfn_lint_passes_the_template_as_it_is_written(self):
        self.passes(run("cfn-lint", "--", TEMPLATE))

    def test_cfn_lint_passes_the_transformed_template(self):
        # On the source alone it overlooks an unknown runtime, and much in the events.
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "transformed.json"
            path.write_text(json.dumps(transformed()))
            self.passes(run("cfn-lint", "--", path))

    def test_cfn_lint_passes_the_deployed_template_for_every_permitted_timeout(self):
        # It compares the two timeouts only where they are plain numbers.
        with tempfile.TemporaryDirectory() as folder:
            paths = [Path(folder) / f"timeout-{timeout}.json" for timeout in permitted_timeouts()]
            for path, timeout in zip(paths, permitted_timeouts()):
                path.write_text(json.dumps(deployed(FunctionTimeout=timeout)))
            # Looked up, the mapping has no reader left, which is what W7001 is about.
            self.passes(run("cfn-lint", "--ignore-checks", "W7001", "--", *paths))

    def test_sam_passes_the_template(self):
        with tempfile.TemporaryDirectory() as folder:
            # Once a week sam asks on the network whether it is still the newest; so it has just asked.
            (Path(folder) / "metadata.json").write_text(json.dumps({"lastVersionCheck": time.time()}))
            quiet = {"SAM_CLI_TELEMETRY": "0", "__SAM_CLI_APP_DIR": folder}
            self.passes(run("sam", "validate", "--lint", "--template", TEMPLATE, **quiet))


class Queues(unittest.TestCase):
    def test_messages_stay_hidden_for_six_times_every_permitted_function_timeout(self):
        for timeout in permitted_timeouts():
            with self.subTest(timeout=timeout):
                template = deployed(FunctionTimeout=timeout)
                self.assertEqual(properties("Function", template)["Timeout"], timeout)
                self.assertGreaterEqual(properties("Queue", template)["VisibilityTimeout"], SIX_TIMES * timeout)

    def test_a_lease_ends_before_its_message_comes_again(self):
        grace = int(variables().get("LEASE_GRACE_MS", DEFAULT_LEASE_GRACE_MS)) / 1000
        for timeout in permitted_timeouts():
            with self.subTest(timeout=timeout):
                visibility = properties("Queue", deployed(FunctionTimeout=timeout))["VisibilityTimeout"]
                self.assertLess(timeout + grace, visibility)

    def test_the_default_timeout_is_a_permitted_one(self):
        self.assertEqual(parameter("FunctionTimeout")["Default"], 30)
        self.assertIn(30, permitted_timeouts())

    def test_messages_that_keep_failing_go_to_the_dead_letter_queue(self):
        policy = properties("Queue")["RedrivePolicy"]
        self.assertEqual(policy["deadLetterTargetArn"], arn_of("DeadLetterQueue"))
        self.assertEqual(policy["maxReceiveCount"], {"Ref": "MaxReceiveCount"})

    def test_no_message_is_given_up_before_its_fifth_delivery(self):
        self.assertGreaterEqual(parameter("MaxReceiveCount")["MinValue"], 5)
        self.assertEqual(parameter("MaxReceiveCount")["Default"], 5)

    def test_the_dead_letter_queue_takes_messages_of_this_queue_only(self):
        policy = properties("DeadLetterQueue")["RedriveAllowPolicy"]
        self.assertEqual(policy["redrivePermission"], "byQueue")
        name = properties("Queue")["QueueName"]["Fn::Sub"]
        arn = "arn:${AWS::Partition}:sqs:${AWS::Region}:${AWS::AccountId}:" + name
        self.assertEqual(policy["sourceQueueArns"], [{"Fn::Sub": arn}])

    def test_the_dead_letter_queue_keeps_messages_longest(self):
        dead_letters = properties("DeadLetterQueue")["MessageRetentionPeriod"]
        self.assertEqual(dead_letters, 14 * DAY)
        self.assertLess(properties("Queue")["MessageRetentionPeriod"], dead_letters)

    def test_every_queue_is_encrypted(self):
        queues = of_type("AWS::SQS::Queue")
        self.assertEqual(len(queues), 2)
        for queue in queues:
            self.assertIs(queue.get("SqsManagedSseEnabled"), True, queue)


class Mapping(unittest.TestCase):
    def mapping(self):
        mappings = of_type("AWS::Lambda::EventSourceMapping")
        self.assertEqual(len(mappings), 1)
        return mappings[0]

    def test_it_leads_from_the_queue_to_the_function(self):
        self.assertEqual(self.mapping()["EventSourceArn"], arn_of("Queue"))
        self.assertEqual(self.mapping()["FunctionName"], {"Ref": "Function"})
        self.assertNotEqual(self.mapping().get("Enabled"), False)

    def test_lambda_heeds_the_partial_batch_response(self):
        self.assertEqual(self.mapping().get("FunctionResponseTypes"), ["ReportBatchItemFailures"])

    def test_a_batch_needs_no_batching_window(self):
        self.assertEqual(self.mapping()["BatchSize"], {"Ref": "BatchSize"})
        self.assertEqual(parameter("BatchSize")["Default"], 10)
        self.assertLessEqual(parameter("BatchSize")["MaxValue"], 10)
        # It would have to be added to the visibility timeout.
        self.assertNotIn("MaximumBatchingWindowInSeconds", self.mapping())

    def test_no_message_is_filtered_away(self):
        # Lambda deletes what a filter does not match, and the function never sees it.
        self.assertNotIn("FilterCriteria", self.mapping())

    def test_concurrency_is_bounded_at_the_mapping_and_not_at_the_function(self):
        self.assertEqual(self.mapping()["ScalingConfig"], {"MaximumConcurrency": {"Ref": "MaximumConcurrency"}})
        self.assertNotIn("ReservedConcurrentExecutions", properties("Function"))


class Function(unittest.TestCase):
    def test_it_runs_on_amazon_linux_2023(self):
        self.assertEqual(properties("Function")["Runtime"], "provided.al2023")
        self.assertEqual(properties("Function")["Handler"], "bootstrap")

    def test_it_runs_on_arm64_unless_told_otherwise(self):
        self.assertEqual(properties("Function")["Architectures"], [{"Ref": "Architecture"}])
        self.assertEqual(parameter("Architecture")["Default"], "arm64")
        self.assertEqual(set(parameter("Architecture")["AllowedValues"]), {"arm64", "x86_64"})

    def test_cargo_lambda_builds_the_binary_of_this_package(self):
        metadata = source()["Resources"]["Function"]["Metadata"]
        self.assertEqual(metadata["BuildMethod"], "rust-cargolambda")
        binary = metadata["BuildProperties"]["Binary"]
        self.assertEqual(source()["Resources"]["Function"]["Properties"]["CodeUri"], ".")
        self.assertIn(f'[[bin]]\nname = "{binary}"', (ROOT / "Cargo.toml").read_text())

    def test_its_settings_come_from_the_parameters(self):
        for variable, name in {
            "REDIS_URL": "RedisUrl",
            "REDIS_CLUSTER": "RedisCluster",
            "TARGET_URL": "TargetUrl",
            "IDEMPOTENCY_KEY": "IdempotencyKey",
        }.items():
            with self.subTest(variable):
                self.assertEqual(variables().get(variable), {"Ref": name})

    def test_every_setting_is_one_that_the_program_reads(self):
        program = "".join(path.read_text() for path in (ROOT / "src").rglob("*.rs"))
        for variable in variables():
            with self.subTest(variable):
                self.assertTrue(f'"{variable}"' in program, "nothing in src names it")

    def test_its_namespace_outlives_the_function(self):
        namespace = {"Fn::If": ["HasNamespace", {"Ref": "Namespace"}, {"Ref": "AWS::StackName"}]}
        self.assertEqual(variables()["IDEMPOTENCY_NAMESPACE"], namespace)

    def test_redis_and_the_webhook_have_to_be_named(self):
        self.assertNotIn("Default", parameter("RedisUrl"))
        self.assertNotIn("Default", parameter("TargetUrl"))

    def test_the_password_in_the_redis_url_is_not_shown(self):
        self.assertIs(parameter("RedisUrl").get("NoEcho"), True)

    def test_it_joins_a_vpc_only_when_subnets_are_given(self):
        condition, inside, outside = properties("Function")["VpcConfig"]["Fn::If"]
        self.assertEqual(inside["SubnetIds"], {"Ref": "VpcSubnetIds"})
        self.assertEqual(inside["SecurityGroupIds"], {"Ref": "VpcSecurityGroupIds"})
        self.assertEqual(outside, {"Ref": "AWS::NoValue"})
        none_given = {"Fn::Equals": [{"Fn::Join": ["", {"Ref": "VpcSubnetIds"}]}, ""]}
        self.assertEqual(source()["Conditions"][condition], {"Fn::Not": [none_given]})
        for name in "VpcSubnetIds", "VpcSecurityGroupIds":
            self.assertEqual(parameter(name)["Type"], "CommaDelimitedList")
            self.assertEqual(parameter(name)["Default"], "")

    def test_it_writes_its_logs_as_json(self):
        self.assertEqual(properties("Function")["LoggingConfig"]["LogFormat"], "JSON")


class Rights(unittest.TestCase):
    def role(self):
        roles = of_type("AWS::IAM::Role")
        self.assertEqual(len(roles), 1)
        return roles[0]

    def test_the_function_may_change_the_visibility_of_its_own_queues_messages_and_nothing_else(self):
        statements = [s for p in self.role()["Policies"] for s in as_list(p["PolicyDocument"]["Statement"])]
        self.assertEqual(len(statements), 1, statements)
        self.assertEqual(statements[0]["Effect"], "Allow")
        self.assertEqual(as_list(statements[0].get("Action")), ["sqs:ChangeMessageVisibility"])
        self.assertEqual(as_list(statements[0].get("Resource")), [arn_of("Queue")])

    def test_everything_else_it_may_do_is_what_sam_gives_to_a_poller_in_a_vpc(self):
        names = {arn.split("/")[-1] for arn in self.role()["ManagedPolicyArns"]}
        self.assertEqual(
            names,
            {"AWSLambdaBasicExecutionRole", "AWSLambdaVPCAccessExecutionRole", "AWSLambdaSQSQueueExecutionRole"},
        )

    def test_no_other_policy_is_attached_to_anything(self):
        kinds = {resource["Type"] for resource in transformed()["Resources"].values()}
        self.assertFalse([kind for kind in kinds if "Policy" in kind])


class Outputs(unittest.TestCase):
    def test_they_name_what_a_producer_and_an_operator_need(self):
        outputs = {name: output["Value"] for name, output in source()["Outputs"].items()}
        self.assertEqual(
            outputs,
            {
                "QueueUrl": {"Ref": "Queue"},
                "QueueArn": arn_of("Queue"),
                "DeadLetterQueueUrl": {"Ref": "DeadLetterQueue"},
                "FunctionName": {"Ref": "Function"},
            },
        )

    def test_every_parameter_says_what_it_is_for(self):
        for name, value in source()["Parameters"].items():
            self.assertTrue(value.get("Description"), name)


if __name__ == "__main__":
    unittest.main(verbosity=2)
