"""The webhook and the consumers of one scenario, deleted at its end."""

import socket
from contextlib import ExitStack
from urllib.parse import urlsplit

from consumer import Consumer
from receiver import Receiver
from servers import Failed

# Seconds. Longer than a redelivery after a changed visibility timeout, shorter than the queue's own visibility timeout
# of two minutes: a scenario that ends in time did not wait for the latter.
TIMEOUT = 40


class Fixture:
    def __init__(self, name, cloud, binary, redis_url):
        self.name = name
        self.cloud = cloud
        self.binary = binary
        self.redis_url = redis_url
        self.receiver = Receiver()
        self._cleanup = ExitStack()
        self._cleanup.callback(self.receiver.stop)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._cleanup.close()

    def cleanup(self, action):
        self._cleanup.callback(action)

    def folder(self):
        folder = self.cloud.folder / self.name
        folder.mkdir()
        return folder

    def settings(self, **more):
        """The function's environment variables."""
        return {
            "REDIS_URL": self.redis_url,
            "TARGET_URL": self.receiver.url,
            "IDEMPOTENCY_KEY": "attribute:Idempotency-Key",
            **more,
        }

    def consumer(self, fifo=False, timeout=10, visibility=120, receives=1000, **settings):
        """Creates a function with its queues and event source mapping."""
        consumer = Consumer(self.cloud, self.name)
        self.cleanup(consumer.delete)
        consumer.make_queues(fifo, visibility, receives)
        consumer.make_function(timeout, self.settings(**settings))
        consumer.make_mapping()
        return consumer

    def wait_for(self, check, what, seconds=TIMEOUT):
        self.cloud.wait_for(check, seconds, what)

    def has_record(self, redis_key):
        """Whether the key exists in Redis. One command in the Redis protocol needs no client library."""
        address = urlsplit(self.redis_url)
        with socket.create_connection((address.hostname, address.port), timeout=5) as connection:
            connection.sendall(f"EXISTS {redis_key}\r\n".encode())
            return connection.recv(64) == b":1\r\n"

    def effects(self, *keys):
        """Checks that each of these keys took effect once, and no other key did."""
        expect("the effects", sorted(call.key for call in self.receiver.effects), sorted(keys))


def expect(what, actual, expected):
    if actual != expected:
        raise Failed(f"{what}: expected\n    {expected}\n  got\n    {actual}")
