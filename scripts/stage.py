"""The stage of `make run`: a private Redis, the stand-ins, and the function under the emulator."""

import os

import tools
from processes import Process, free_port

FUNCTION = "idempotent-sqs"
LOG = tools.TOOLS / "function.log"


def start_redis(server, folder, ends):
    port = free_port()
    ends.callback(redis_on(port, server, folder).stop)
    return port


def redis_on(port, server, folder, appendonly="no"):
    # No configuration file, so none of the system's; nothing is written but into the folder.
    options = {"--port": port, "--bind": "127.0.0.1", "--save": "", "--appendonly": appendonly, "--dir": folder}
    command = [server, *(str(word) for option in options.items() for word in option)]
    redis = Process("redis", command, folder / "redis.log")
    try:
        redis.wait_for_port(port, seconds=10)
    except BaseException:
        redis.stop()
        raise
    return redis


def start_emulator(redis_port, stand_ins_url, ends):
    port = free_port()
    command = [
        *(tools.CARGO_LAMBDA, "lambda", "watch", "--color", "never", "-A", "127.0.0.1", "-P", str(port)),
        # One build, which is done, and no other when a file changes.
        *("--wait", "--ignore-changes"),
        # A second invocation while one is at work gets an instance of its own, as on Lambda.
        *("--concurrency", "2"),
    ]
    emulator = Process("cargo lambda watch", command, LOG, cwd=tools.ROOT, env=environment(redis_port, stand_ins_url))
    ends.callback(emulator.stop)
    emulator.wait_for_port(port, seconds=30)
    return emulator, port


def environment(redis_port, stand_ins_url):
    """The function's settings; none of the user's own reaches it."""
    ours = (
        *("AWS_", "REDIS_", "IDEMPOTENCY_", "LEASE_", "BATCH_", "TARGET_", "VISIBILITY_"),
        *("METRICS_", "PAYLOAD_", "RESULT_", "OTEL_", "RUST_LOG"),
    )
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {
        **kept,
        "REDIS_URL": f"redis://127.0.0.1:{redis_port}",
        "TARGET_URL": f"{stand_ins_url}/payments",
        "TARGET_TIMEOUT_MS": "30000",
        "IDEMPOTENCY_NAMESPACE": "payments",
        # Not messageId as the last resort, so that a message without a key is seen as one. The
        # third place is for EventBridge, whose events have a payload at /detail.
        "IDEMPOTENCY_KEY": "attribute:Idempotency-Key,body:/paymentId,body:/detail/paymentId",
        "VISIBILITY_BACKOFF": "true",
        "AWS_ENDPOINT_URL_SQS": stand_ins_url,
        "AWS_REGION": "eu-central-1",
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_LAMBDA_LOG_FORMAT": "JSON",
        # Where a proxy is set for the world outside, what is on this machine is not behind it.
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
    }
