"""ministack in place of AWS: SQS, Lambda, its event source mappings, CloudWatch Logs, CloudFormation."""

import os
import sys
from functools import lru_cache
from importlib.metadata import version

import boto3
from botocore.config import Config

import tools
from processes import Process, descendants, free_port

REGION = "eu-central-1"
CREDENTIALS = {"aws_access_key_id": "local", "aws_secret_access_key": "local"}


class Cloud:
    """One ministack on a free loopback port, and clients for it."""

    version = f"ministack {version('ministack')}"
    log = tools.TOOLS / "e2e.log"

    def __init__(self, folder, package, ends):
        self.folder = folder
        self.package = package
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._process = Process("ministack", [sys.executable, "-m", "ministack"], self.log, env=self._own(folder, port))
        ends.callback(self._process.stop)
        self._process.wait_for_port(port, seconds=60)
        # On the port already while it loads what else it has; the first call waits for that.
        self.client("sqs").list_queues()

    def _own(self, folder, port):
        """Its environment, which each function inherits: so nothing of the user's own is in it."""
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "TMPDIR": str(folder),
            # By default it would listen to the whole network.
            "BIND_HOST": "127.0.0.1",
            "GATEWAY_PORT": str(port),
            "MINISTACK_HOST": "127.0.0.1",
            "MINISTACK_REGION": REGION,
            # Where the functions find SQS.
            "AWS_ENDPOINT_URL": self.url,
            # What Lambda makes of a function's LoggingConfig, which ministack does not heed.
            "AWS_LAMBDA_LOG_FORMAT": "JSON",
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
        }

    def tool_environment(self, **more):
        """For the command line tools that deploy, with this cloud in place of AWS."""
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
        # A retry would hide a fault; nothing here is far away.
        config = Config(proxies={}, retries={"total_max_attempts": 1}, connect_timeout=5, read_timeout=60)
        return boto3.client(service, endpoint_url=self.url, region_name=REGION, config=config, **CREDENTIALS)

    def wait_for(self, check, seconds, what):
        self._process.wait_for(check, seconds, what)

    def function_processes(self):
        """The functions that it has started: it starts nothing else."""
        return set(descendants(self._process.pid))
