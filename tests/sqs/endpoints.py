"""The implementations that are compared: the simulated queue, ministack and moto. Each is a process on loopback."""

import io
import itertools
import json
import os
import subprocess
import sys
import time
import zipfile
from importlib.metadata import version
from pathlib import Path
from urllib.request import Request, urlopen

import boto3
from botocore.config import Config

import tools
from rule import Queue
from servers import Failed, Process, free_port, ministack_environment

REGION = "eu-central-1"
CREDENTIALS = {"aws_access_key_id": "local", "aws_secret_access_key": "local"}

numbers = itertools.count()


class Endpoint:
    """An implementation at a URL."""

    def __init__(self, name, url):
        self.name, self.url = name, url
        self.sqs = self.client("sqs")

    def client(self, service):
        # A retry would hide an error.
        config = Config(proxies={}, retries={"total_max_attempts": 1}, read_timeout=60, max_pool_connections=100)
        return boto3.client(service, endpoint_url=self.url, region_name=REGION, config=config, **CREDENTIALS)

    def make(self, fifo=False, **attributes):
        """A new queue."""
        name = f"queue-{next(numbers)}{'.fifo' if fifo else ''}"
        return Queue(self.sqs, name, **attributes)


class Simulated(Endpoint):
    """The simulated queue and event source mapping of `crates/testing`."""

    def __init__(self):
        build = ["cargo", "build", "--package", "harness", "--features", "lambda", "--bin", "simulated-sqs"]
        if subprocess.run(build, cwd=tools.ROOT).returncode:
            raise Failed("cargo build failed")
        program = tools.ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "debug" / "simulated-sqs"
        # It ends with its standard input, which this process holds open.
        self._process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        url, self._mappings = self._process.stdout.readline().split()
        super().__init__("simulated queue", url)

    def invoke(self, queue, response, reports, timeout):
        """Passes a batch to a function that returns this response, or fails without one."""
        event = json.loads(self._call("poll", queue=queue.name, reports=reports, timeout=timeout))
        [second] = [record["messageId"] for record in event["Records"] if record["body"] == "a2"]
        self._call("finish", queue=queue.name, response=response and response.replace("ID", second))

    def _call(self, path, **body):
        request = Request(f"{self._mappings}/{path}", json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urlopen(request, timeout=30) as answer:
            return answer.read()


class Ministack(Endpoint):
    def __init__(self, folder):
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        environment = ministack_environment(folder, port, REGION)
        log = tools.TOOLS / "compare-sqs-ministack.log"
        self._process = Process([sys.executable, "-m", "ministack"], log, port, env=environment)
        super().__init__(f"ministack {version('ministack')}", url)
        # It opens the port before it has loaded its services. The first call waits for them.
        self.sqs.list_queues()

    def invoke(self, queue, response, reports, timeout):
        """Creates a function that returns this response, and a mapping that is deleted after the first invocation.

        A response on which ministack's poller fails has no result, so it is not waited for longer than the visibility
        timeout, after which the messages would be delivered again.
        """
        functions = self.client("lambda")
        name = f"function-{next(numbers)}"
        functions.create_function(
            FunctionName=name,
            Runtime="provided.al2023",
            Handler="bootstrap",
            Role="arn:aws:iam::000000000000:role/function",
            Code={"ZipFile": package()},
            Timeout=timeout,
            Environment={"Variables": {} if response is None else {"RESPONSE": response}},
        )
        kinds = {"FunctionResponseTypes": ["ReportBatchItemFailures"]} if reports else {}
        mapping = functions.create_event_source_mapping(FunctionName=name, EventSourceArn=queue.arn, BatchSize=10, **kinds)
        before, end = mapping.get("LastProcessingResult"), time.monotonic() + timeout - 1
        while (
            time.monotonic() < end
            and functions.get_event_source_mapping(UUID=mapping["UUID"])["LastProcessingResult"] == before
        ):
            time.sleep(0.1)
        functions.delete_event_source_mapping(UUID=mapping["UUID"])
        functions.delete_function(FunctionName=name)


def package():
    """The zip of the function in function.py."""
    entry = zipfile.ZipInfo("bootstrap")
    # Executable.
    entry.external_attr = 0o755 << 16
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr(entry, (Path(__file__).parent / "function.py").read_bytes())
    return content.getvalue()


class Moto(Endpoint):
    def __init__(self):
        port = free_port()
        log = tools.TOOLS / "compare-sqs-moto.log"
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        self._process = Process(command, log, port)
        super().__init__(f"moto {version('moto')}", f"http://127.0.0.1:{port}")
