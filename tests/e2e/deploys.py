"""Deployments with cargo-lambda and SAM, as docs/deploy.md describes them."""

import json
import platform
import shutil
import subprocess
import textwrap
import time

from samtranslator.yaml_helper import yaml_parse

import tools
from consumer import Consumer, Message
from fixture import TIMEOUT, expect
from receiver import Answer
from servers import Failed

BUSY = Answer(503, retry_after=1)
# Seconds. `cargo lambda deploy` waits up to 20 s for its role.
DEPLOY_TIMEOUT = 180


def cargo_lambda_deploy_creates_a_working_function(fixture):
    consumer = Consumer(fixture.cloud, "deployed-by-cargo-lambda")
    fixture.cleanup(consumer.delete)
    variables = [f"--env-var={name}={value}" for name, value in fixture.settings().items()]
    deploy = [tools.CARGO_LAMBDA, "lambda", "deploy", consumer.function, "--binary-path", fixture.binary, *variables]
    run(fixture, deploy)
    consumer.make_queues()
    consumer.make_mapping()
    print("  cargo lambda deploy created the function and its role; the API created the queue and the mapping")
    works(fixture, consumer)
    # Without IDEMPOTENCY_NAMESPACE, the function's name is the first part of every key in Redis.
    expect("a record under that name", fixture.has_record(f"{consumer.function}:pay_a"), True)


def sam_deploy_creates_a_working_stack(fixture):
    stack = "deployed-by-sam"
    fixture.cleanup(lambda: delete(fixture, stack))
    sam(fixture, stack)
    resources = list(resources_of(fixture.cloud.client("cloudformation"), stack))
    print_resources(resources)
    alarms = [each for each in resources if each["ResourceType"] == "AWS::CloudWatch::Alarm"]
    expect("alarms in the nested stack", len(alarms) >= 10, True)
    consumer = consumer_of(fixture, stack)
    works(fixture, consumer)
    expect("a record under the stack's name", fixture.has_record(f"{stack}:pay_a"), True)


def works(fixture, consumer):
    fixture.receiver.answer("pay_busy", BUSY)
    consumer.send(Message("pay_a"), Message("pay_busy"))
    consumer.wait_until_done(TIMEOUT)
    consumer.send(Message("pay_a"))
    consumer.wait_until_done(TIMEOUT)
    consumer.print_outcomes(fixture.receiver)
    fixture.effects("pay_a", "pay_busy")
    expected = {"pay_a": ["ACQUIRED", "DUPLICATE"], "pay_busy": ["ACQUIRED"] * 2}
    expect("the outcomes", consumer.outcomes(), expected)


# ---- SAM ----


def sam(fixture, stack):
    parameters = {
        "RedisUrl": fixture.redis_url,
        "TargetUrl": fixture.receiver.url,
        "IdempotencyKey": fixture.settings()["IDEMPOTENCY_KEY"],
        "Architecture": "arm64" if platform.machine() in ("arm64", "aarch64") else "x86_64",
        "FunctionTimeout": "15",
    }
    overrides = [f"{name}={value}" for name, value in parameters.items()]
    folder = built(fixture)
    deploy = [tools.SAM, "deploy", "--template-file", folder / "template.json", "--stack-name", stack, "--resolve-s3"]
    answers = ["--capabilities", "CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND", "--no-confirm-changeset", "--no-progressbar"]
    quiet = {"SAM_CLI_TELEMETRY": "0", "__SAM_CLI_APP_DIR": str(folder)}
    run(fixture, [*deploy, *answers, "--parameter-overrides", *overrides], cwd=folder, **quiet)


def built(fixture):
    """Creates the output of `sam build`: the binary as `bootstrap`, and the templates, changed where ministack differs."""
    folder = fixture.folder()
    (folder / "Function").mkdir()
    shutil.copy(fixture.binary, folder / "Function" / "bootstrap")
    template = source()
    template["Resources"]["Function"]["Properties"]["CodeUri"] = "Function"
    template["Conditions"] |= OF_TEXTS
    (folder / "template.json").write_text(json.dumps(template))
    for path, nested in nested_sources().items():
        for resource in nested["Resources"].values():
            if resource["Type"] == "AWS::CloudWatch::Alarm":
                resource["Properties"] = without_expression(resource["Properties"])
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(json.dumps(nested))
    # Prevents the weekly check for a newer version of sam.
    (folder / "metadata.json").write_text(json.dumps({"lastVersionCheck": time.time()}))
    return folder


# The conditions on parts of a text, which ministack does not evaluate, as they are for the parameters of `sam`.
NEVER = {"Fn::Equals": ["", "never"]}
OF_TEXTS = {
    "Fifo": {"Fn::Equals": [{"Ref": "Queue"}, "fifo"]},
    "HasSecret": NEVER,
    "OwnIamUser": NEVER,
    "UsesServerless": NEVER,
    "PlainHttp": {"Fn::Not": [NEVER]},
}


def source(path="template.yaml"):
    return yaml_parse((tools.ROOT / path).read_text())


def nested_sources():
    """The nested templates, by their path."""
    stacks = [each for each in source()["Resources"].values() if each["Type"] == "AWS::CloudFormation::Stack"]
    return {path: source(path) for path in (each["Properties"]["TemplateURL"] for each in stacks)}


def without_expression(alarm):
    """Replaces the expression of an alarm, which ministack does not evaluate, by the first of its metrics."""
    metrics = [query["MetricStat"] for query in alarm.get("Metrics", []) if "MetricStat" in query]
    if not metrics:
        return alarm
    others = {name: value for name, value in alarm.items() if name != "Metrics"}
    return others | metrics[0]["Metric"] | {"Statistic": metrics[0]["Stat"], "Period": metrics[0]["Period"]}


def resources_of(stacks, stack):
    """The resources of a stack and of its nested stacks."""
    for resource in stacks.describe_stack_resources(StackName=stack)["StackResources"]:
        yield resource
        if resource["ResourceType"] == "AWS::CloudFormation::Stack":
            yield from resources_of(stacks, resource["PhysicalResourceId"])


def print_resources(resources):
    created = {each["LogicalResourceId"] for each in resources}
    every = {**source()["Resources"]}
    for nested in nested_sources().values():
        every |= nested["Resources"]
    left_out = {resource["Type"] for name, resource in every.items() if name not in created}
    print_wrapped(f"sam deploy created {', '.join(sorted(created))}")
    print_wrapped(f"not created, because Redis and the network exist: some of {', '.join(sorted(left_out))}")
    print("  changed for ministack, see docs/e2e.md: conditions on texts, MaximumConcurrency, expressions of alarms")


def print_wrapped(text):
    print(textwrap.fill(text, 120, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False))


def consumer_of(fixture, stack):
    """A consumer with the resources of the stack."""
    described = fixture.cloud.client("cloudformation").describe_stacks(StackName=stack)["Stacks"][0]
    outputs = {output["OutputKey"]: output["OutputValue"] for output in described["Outputs"]}
    consumer = Consumer(fixture.cloud, outputs["FunctionName"])
    consumer.queue_url, consumer.dead_letter_url = outputs["QueueUrl"], outputs["DeadLetterQueueUrl"]
    functions = fixture.cloud.client("lambda")
    [mapping] = functions.list_event_source_mappings(FunctionName=consumer.function)["EventSourceMappings"]
    consumer.mapping = mapping["UUID"]
    expect("the function response types", mapping["FunctionResponseTypes"], ["ReportBatchItemFailures"])
    # ministack keeps a numeric template parameter as a string, and its poller fails on it.
    most = int(mapping["ScalingConfig"]["MaximumConcurrency"])
    functions.update_event_source_mapping(UUID=consumer.mapping, ScalingConfig={"MaximumConcurrency": most})
    return consumer


def delete(fixture, stack):
    stacks = fixture.cloud.client("cloudformation")
    stacks.delete_stack(StackName=stack)
    stacks.get_waiter("stack_delete_complete").wait(StackName=stack, WaiterConfig={"Delay": 1, "MaxAttempts": 30})


# ---- the tools ----


def run(fixture, command, cwd=tools.ROOT, **environment):
    environment = fixture.cloud.tool_environment(**environment)
    try:
        done = subprocess.run(
            command, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEPLOY_TIMEOUT
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"{command[0].name}: timeout after {DEPLOY_TIMEOUT} s") from None
    if done.returncode:
        output = [line for line in f"{done.stdout}{done.stderr}".splitlines() if line.strip()]
        raise Failed("\n    ".join([f"{command[0].name} failed; the end of its output:", *output[-15:]]))


SCENARIOS = [cargo_lambda_deploy_creates_a_working_function, sam_deploy_creates_a_working_stack]
