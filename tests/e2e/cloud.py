"""ministack in place of AWS: SQS, Lambda, its event source mappings, CloudWatch Logs, CloudFormation."""

import os
import sys
from functools import lru_cache
from importlib.metadata import version

import boto3
from botocore.config import Config

import tools
from servers import Process, descendants, free_port, ministack_environment

REGION = "eu-central-1"
CREDENTIALS = {"aws_access_key_id": "local", "aws_secret_access_key": "local"}


class Cloud:
    """A ministack on a free port of 127.0.0.1, and clients for it."""

    version = f"ministack {version('ministack')}"
    log = tools.TOOLS / "e2e.log"

    def __init__(self, folder, package, letters):
        self.folder = folder
        self.package = package
        # The operator's tool for dead letters.
        self.letters = letters
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._process = Process([sys.executable, "-m", "ministack"], self.log, port, env=self._environment(folder, port))
        # It opens the port before it has loaded its services. The first call waits for them.
        self.client("sqs").list_queues()

    def _environment(self, folder, port):
        """The environment of ministack and of its functions."""
        return {
            **ministack_environment(folder, port, REGION),
            # The functions reach SQS there.
            "AWS_ENDPOINT_URL": self.url,
            # Lambda sets it from LoggingConfig, which ministack ignores.
            "AWS_LAMBDA_LOG_FORMAT": "JSON",
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
        }

    def tool_environment(self, **more):
        """The environment of the deployment tools, with this cloud in place of AWS."""
        return {
            **os.environ,
            "AWS_ENDPOINT_URL": self.url,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            **{name.upper(): value for name, value in CREDENTIALS.items()},
            **more,
        }

    @lru_cache(maxsize=None)
    def client(self, service):
        # A retry would hide a fault.
        config = Config(proxies={}, retries={"total_max_attempts": 1}, connect_timeout=5, read_timeout=60)
        return boto3.client(service, endpoint_url=self.url, region_name=REGION, config=config, **CREDENTIALS)

    def wait_for(self, check, seconds, what):
        self._process.wait_for(check, seconds, what)

    def function_processes(self):
        """The pids of all functions. ministack starts no other processes."""
        return set(descendants(self._process.pid))
