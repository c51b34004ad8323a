"""The two tools that people deploy with, as README tells it, against this cloud."""

import json
import platform
import shutil
import subprocess
import textwrap
import time

from samtranslator.yaml_helper import yaml_parse

import show
import tools
from consumer import Consumer, Message
from processes import Failed
from receiver import Answer
from scene import SOON, expect

BUSY = Answer(503, retry_after=1)
# `cargo lambda deploy` alone waits for its role for up to 20 s.
LONGEST_DEPLOY = 180


def cargo_lambda_deploy_brings_a_function_that_works(scene):
    consumer = Consumer(scene.cloud, "deployed-by-cargo-lambda")
    scene.at_its_end(consumer.delete)
    variables = [f"--env-var={name}={value}" for name, value in scene.settings().items()]
    deploy = [tools.CARGO_LAMBDA, "lambda", "deploy", consumer.function, "--binary-path", scene.binary, *variables]
    run(scene, deploy)
    consumer.make_queues()
    consumer.make_mapping()
    show.line("cargo lambda deploy made the function and its role; the queue and the mapping came by the API")
    works(scene, consumer)
    # Nobody named a consumer, so the function's name is the first part of every key in Redis.
    expect("a record under that name", scene.has_record(f"{consumer.function}:pay_a"), True)


def sam_deploy_brings_a_stack_that_works(scene):
    stack = "deployed-by-sam"
    scene.at_its_end(lambda: delete(scene, stack))
    sam(scene, stack)
    resources = scene.cloud.client("cloudformation").describe_stack_resources(StackName=stack)["StackResources"]
    tell(resources)
    consumer = taken_over(scene, stack)
    works(scene, consumer)
    expect("a record under the stack's name", scene.has_record(f"{stack}:pay_a"), True)


def works(scene, consumer):
    scene.receiver.answer("pay_busy", BUSY)
    consumer.send(Message("pay_a"), Message("pay_busy"))
    consumer.wait_until_done(SOON)
    consumer.send(Message("pay_a"))
    consumer.wait_until_done(SOON)
    consumer.tell(scene.receiver)
    scene.effects("pay_a", "pay_busy")
    expected = {"pay_a": ["ACQUIRED", "DUPLICATE"], "pay_busy": ["ACQUIRED"] * 2}
    expect("the outcomes", consumer.outcomes(), expected)


# ---- SAM ----


def sam(scene, stack):
    parameters = {
        "RedisUrl": scene.redis_url,
        "TargetUrl": scene.receiver.url,
        "IdempotencyKey": scene.settings()["IDEMPOTENCY_KEY"],
        "Architecture": "arm64" if platform.machine() in ("arm64", "aarch64") else "x86_64",
        "FunctionTimeout": "15",
    }
    overrides = [f"{name}={value}" for name, value in parameters.items()]
    folder = built(scene)
    deploy = [tools.SAM, "deploy", "--template-file", folder / "template.json", "--stack-name", stack, "--resolve-s3"]
    answers = ["--capabilities", "CAPABILITY_IAM", "--no-confirm-changeset", "--no-progressbar"]
    quiet = {"SAM_CLI_TELEMETRY": "0", "__SAM_CLI_APP_DIR": str(folder)}
    run(scene, [*deploy, *answers, "--parameter-overrides", *overrides], cwd=folder, **quiet)


def built(scene):
    """What `sam build` leaves: the binary under the name that Lambda looks for, and a template that points there."""
    folder = scene.folder()
    (folder / "Function").mkdir()
    shutil.copy(scene.binary, folder / "Function" / "bootstrap")
    template = source()
    template["Resources"]["Function"]["Properties"]["CodeUri"] = "Function"
    template["Conditions"] = readable(template["Conditions"])
    (folder / "template.json").write_text(json.dumps(template))
    # Once a week sam asks on the network whether it is still the newest; so it has just asked.
    (folder / "metadata.json").write_text(json.dumps({"lastVersionCheck": time.time()}))
    return folder


def source():
    return yaml_parse((tools.ROOT / "template.yaml").read_text())


def readable(condition):
    """`!Join ['', LIST]` as `!Select [0, LIST]`. Both are empty where the list is; ministack reads only the second."""
    if isinstance(condition, list):
        return [readable(item) for item in condition]
    if not isinstance(condition, dict):
        return condition
    if isinstance(joined := condition.get("Fn::Join"), list) and joined[0] == "":
        return {"Fn::Select": [0, joined[1]]}
    return {name: readable(part) for name, part in condition.items()}


def tell(resources):
    made = {each["LogicalResourceId"] for each in resources}
    left_out = {resource["Type"] for name, resource in source()["Resources"].items() if name not in made}
    show.line(wrapped(f"sam deploy made {', '.join(sorted(made))}"))
    if left_out:
        why = "as Redis and the network are one's own"
        show.line(wrapped(f"not made, {why}: some of {', '.join(sorted(left_out))}"))
    show.line("given as ministack reads them, which docs/e2e.md tells: conditions on lists, MaximumConcurrency")


def wrapped(text):
    return textwrap.fill(text, 118, subsequent_indent="  ", break_on_hyphens=False)


def taken_over(scene, stack):
    """The consumer that the stack is."""
    described = scene.cloud.client("cloudformation").describe_stacks(StackName=stack)["Stacks"][0]
    outputs = {output["OutputKey"]: output["OutputValue"] for output in described["Outputs"]}
    consumer = Consumer(scene.cloud, outputs["FunctionName"])
    consumer.queue_url, consumer.dead_letter_url = outputs["QueueUrl"], outputs["DeadLetterQueueUrl"]
    functions = scene.cloud.client("lambda")
    [mapping] = functions.list_event_source_mappings(FunctionName=consumer.function)["EventSourceMappings"]
    consumer.mapping = mapping["UUID"]
    expect("what Lambda heeds", mapping["FunctionResponseTypes"], ["ReportBatchItemFailures"])
    # A number that is a parameter of the template is a text to ministack, and its poller fails on it.
    most = int(mapping["ScalingConfig"]["MaximumConcurrency"])
    functions.update_event_source_mapping(UUID=consumer.mapping, ScalingConfig={"MaximumConcurrency": most})
    return consumer


def delete(scene, stack):
    stacks = scene.cloud.client("cloudformation")
    stacks.delete_stack(StackName=stack)
    stacks.get_waiter("stack_delete_complete").wait(StackName=stack, WaiterConfig={"Delay": 1, "MaxAttempts": 30})


# ---- the tools ----


def run(scene, command, cwd=tools.ROOT, **environment):
    environment = scene.cloud.tool_environment(**environment)
    try:
        done = subprocess.run(
            command, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LONGEST_DEPLOY
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"{command[0].name} did not end within {LONGEST_DEPLOY} s") from None
    if done.returncode:
        said = [line for line in f"{done.stdout}{done.stderr}".splitlines() if line.strip()]
        raise Failed("\n    ".join([f"{command[0].name} failed, and said at last:", *said[-15:]]))


SCENARIOS = [cargo_lambda_deploy_brings_a_function_that_works, sam_deploy_brings_a_stack_that_works]
