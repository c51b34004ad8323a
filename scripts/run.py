"""`make run`: sends the sample events to the function and shows the outcome of each message.

Everything runs on this machine: Valkey or Redis, an HTTP server in place of the webhook and SQS, and
the function under Lambda's local emulator, `cargo lambda watch`. Exits with 1 at the first event whose
results differ from those in expected.json, and lists the differences.
"""

import json
import os
import subprocess
import threading
from http.client import HTTPConnection
from pathlib import Path

import tools
from servers import Failed, Process, WebhookAndSqs, free_port, run, start_redis

FUNCTION = "idempotent-sqs"
CONFLICT_KEY = "pay_conflict_BLPd6YDiVr"
# The emulator gives an invocation 600 s, so a lease is a few seconds longer. Every other delay is shorter.
LONGEST_VISIBILITY_SECONDS = 900


def main():
    # Built first, so that no timeout includes the build.
    if subprocess.run(["cargo", "build", "--bin", FUNCTION], cwd=tools.ROOT).returncode:
        raise Failed("cargo build failed")
    demo = Demo()
    server = tools.find_server()
    print(f"\n{Path(server).name} {tools.major_version(server)}, a webhook, and the function under cargo lambda watch")
    demo.send("first-delivery")
    demo.send("redelivery")
    # For the conflict, another invocation owns the key while mixed.json arrives: its webhook call is held.
    [message] = [record for record in sample("mixed") if CONFLICT_KEY in record["body"]]
    owner = {**message, "messageId": "5bd1a8f2-6f0c-4f8e-9a53-0d6a4c2f7e11", "receiptHandle": "owner"}
    hold = demo.server.hold(CONFLICT_KEY)
    invocation = Invocation(demo.port, [owner])
    demo.wait_for(lambda: hold.reached.is_set() or invocation.body, "a call of the webhook")
    demo.send("mixed")
    demo.send("conflict-owner", [owner], invocation, hold)
    again = {**message["attributes"], "ApproximateReceiveCount": "2"}
    demo.send("conflict-redelivery", [{**message, "attributes": again, "receiptHandle": "redelivery"}])
    for event in ("fifo", "redrive", "sns-envelope", "eventbridge"):
        demo.send(event)
    print(f"\nThe webhook received {len(demo.server.calls)} calls, one for each key. All results are as expected.")


def sample(event):
    return json.loads((tools.ROOT / "events" / f"{event}.json").read_text())["Records"]


class Invocation(threading.Thread):
    """Sends an event to the emulator. `body` is the response, or None while there is none."""

    def __init__(self, port, records):
        super().__init__(daemon=True)
        self.port, self.event, self.body = port, json.dumps({"Records": records}), None
        self.start()

    def run(self):
        connection = HTTPConnection("127.0.0.1", self.port)
        try:
            connection.request("POST", f"/2015-03-31/functions/{FUNCTION}/invocations", self.event)
            self.body = connection.getresponse().read().decode()
        except OSError as error:
            self.body = f"no response: {error}"


class Demo:
    """Redis, the function under `cargo lambda watch`, and the webhook and SQS that it calls."""

    def __init__(self):
        self.expected = {one["event"]: one for one in json.loads(Path(__file__).with_name("expected.json").read_text())}
        self.server, self.port, redis_port = WebhookAndSqs(), free_port(), free_port()
        start_redis(tools.TOOLS, redis_port)
        command = [tools.CARGO_LAMBDA, "lambda", "watch", "--color", "never", "-A", "127.0.0.1", "-P", str(self.port)]
        # No rebuild on a changed file. Two instances, so that two invocations can run at once, as on Lambda.
        command += ["--wait", "--ignore-changes", "--concurrency", "2"]
        environment = settings(f"redis://127.0.0.1:{redis_port}", self.server.url)
        self.emulator = Process(command, tools.TOOLS / "function.log", self.port, cwd=tools.ROOT, env=environment)
        self.lines_read = 0

    def wait_for(self, check, what):
        def check_function():
            # The emulator does not restart a function that has ended, and never answers its invocation.
            if any("ERROR command" in line for line in self.emulator.lines()):
                self.emulator.fail("the function ended")
            return check()

        self.emulator.wait_for(check_function, 60, what)

    def outcomes(self):
        """The function's log lines on messages since the previous event."""
        return outcomes(self.emulator.lines()[self.lines_read :])

    def send(self, event, records=None, invocation=None, hold=None):
        """Sends the event unless it is already sent, prints the results and compares them with the expected ones. A call
        on hold is released when calls are counted."""
        print(f"\n{event if records else f'events/{event}.json'}\n{self.expected[event]['about']}\n", flush=True)
        records, first_call = records or sample(event), len(self.server.calls)
        if hold:
            hold.released.set()
        invocation = invocation or Invocation(self.port, records)
        self.wait_for(lambda: invocation.body, "a response")
        logged = f"the outcomes in the log (response: {invocation.body})"
        self.emulator.wait_for(lambda: len(self.outcomes()) >= len(records), 10, logged)
        lines = {line["message_id"]: line for line in self.outcomes()}
        calls, self.lines_read = self.server.calls[first_call:], len(self.emulator.lines())
        results = [Result(record, lines.get(record["messageId"], {}), self.server.visibility) for record in records]
        print_table(["message", "key", "outcome", "disposition", "attempt", "reason"], [result.row() for result in results])
        print(f"\n  webhook calls  {', '.join(calls) or 'none'}\n  response       {invocation.body}", flush=True)
        if differences := compare(self.expected[event]["messages"], results, calls, invocation.body):
            raise Failed("\n  ".join([f"{event}: the results differ from scripts/expected.json", *differences]))


def outcomes(lines):
    """The fields of the function's log lines on messages.

    `cargo run` of the other instance writes to the same log, and a line of the function can stand in the middle of
    its line: `     Running{"level":…`."""
    logged = [line[line.index('{"') :] for line in lines if '"outcome":' in line]
    return [json.loads(line)["fields"] for line in logged]


class Result:
    """What the function logged on a message, and the visibility timeout in seconds that it requested, if any."""

    def __init__(self, record, line, visibility):
        self.id, self.line = record["messageId"], line
        self.group = record["attributes"].get("MessageGroupId")
        self.visibility = visibility.get(record["receiptHandle"])
        self.logged = [line.get("idempotency_key"), line.get("outcome"), line.get("disposition")]

    def row(self):
        key, outcome, disposition = self.logged
        delay = "" if self.visibility is None else f" in {self.visibility} s"
        return self.id[:8], key or "-", outcome, f"{disposition}{delay}", self.line.get("attempt", "-"), self.line.get("reason")


def compare(expected, results, calls, response):
    """Describes each difference."""
    checks, failures, groups = [("messages", len(expected), len(results))], [], {}
    for result, (key, outcome, disposition) in zip(results, expected):
        name, visibility = result.id[:8], result.visibility
        checks.append((f"message {name}", [key, outcome, disposition], result.logged))
        checks.append((f"visibility timeout of {name}", result.line.get("retry_after_s"), visibility))
        if disposition == "redeliver":
            failures.append({"itemIdentifier": result.id})
            checks.append((f"{name} is delayed", True, 0 < (visibility or 0) <= LONGEST_VISIBILITY_SECONDS))
        if outcome == "ACQUIRED":
            groups.setdefault(result.group or key, []).append(key)
    checks.append(("response", json.dumps({"batchItemFailures": failures}, separators=(",", ":")), response))
    # One call for each acquired key, in order within a message group of a FIFO queue.
    checks.append(("webhook calls", sorted(sum(groups.values(), [])), sorted(calls)))
    ordered = [keys for keys in groups.values() if len(keys) > 1]
    checks += [("order of the webhook calls", keys, [key for key in calls if key in keys]) for keys in ordered]
    return [f"{what}: expected {wanted}, got {actual}" for what, wanted, actual in checks if wanted != actual]


def print_table(header, rows):
    cells = [[str(cell) for cell in row] for row in [header, *rows]]
    widths = [max(map(len, column)) for column in zip(*cells)]
    for row in cells:
        print("  " + "  ".join(map(str.ljust, row, widths)).rstrip())


def settings(redis_url, server_url):
    """The function's environment: the user's own, without the settings of docs/configuration.md and of the AWS SDK.

    SSL_CERT_FILE and SSL_CERT_DIR stay: without certificates the SDK does not start, and they may name the only ones."""
    prefixes = ("AWS_", "REDIS_", "IDEMPOTENCY_", "LEASE_", "BATCH_", "TARGET_", "VISIBILITY_", "METRICS_", "PAYLOAD_")
    prefixes += ("RESULT_", "DEAD_LETTER_", "DATABASE_", "INBOX_", "BACKFILL_", "OTEL_", "RUST_LOG")
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(prefixes)},
        "REDIS_URL": redis_url,
        "TARGET_URL": f"{server_url}/payments",
        "TARGET_TIMEOUT_MS": "30000",
        "IDEMPOTENCY_NAMESPACE": "payments",
        # Without `messageId`, so that a message can be without a key. The last location is for EventBridge.
        "IDEMPOTENCY_KEY": "attribute:Idempotency-Key,body:/paymentId,body:/detail/paymentId",
        "VISIBILITY_BACKOFF": "true",
        "AWS_ENDPOINT_URL_SQS": server_url,
        "AWS_REGION": "eu-central-1",
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_LAMBDA_LOG_FORMAT": "JSON",
        # A proxy does not reach the servers on this machine.
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
    }


if __name__ == "__main__":
    run(main)
