"""What one scenario plays on: a webhook of its own, and consumers, which end with it."""

import socket
from contextlib import ExitStack
from urllib.parse import urlsplit

from consumer import Consumer
from processes import Failed
from receiver import Receiver

# Longer than a redelivery takes whose visibility was changed, shorter than the queue's own visibility timeout
# of a minute and more: what comes in time has not waited for that one.
SOON = 40


class Scene:
    """With a webhook, from which every effect is known."""

    def __init__(self, name, cloud, binary, redis_url):
        self.name = name
        self.cloud = cloud
        self.binary = binary
        self.redis_url = redis_url
        self.receiver = Receiver()
        self._ends = ExitStack()
        self._ends.callback(self.receiver.stop)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._ends.close()

    def at_its_end(self, end):
        self._ends.callback(end)

    def folder(self):
        folder = self.cloud.folder / self.name
        folder.mkdir()
        return folder

    def settings(self, **more):
        """The function's settings."""
        return {
            "REDIS_URL": self.redis_url,
            "TARGET_URL": self.receiver.url,
            "IDEMPOTENCY_KEY": "attribute:Idempotency-Key",
            **more,
        }

    def consumer(self, fifo=False, timeout=10, visibility=120, receives=5, **settings):
        """A function with its queues, made by the API."""
        consumer = Consumer(self.cloud, self.name)
        self.at_its_end(consumer.delete)
        consumer.make_queues(fifo, visibility, receives)
        consumer.make_function(timeout, self.settings(**settings))
        consumer.make_mapping()
        return consumer

    def wait_for(self, check, what, seconds=SOON):
        self.cloud.wait_for(check, seconds, what)

    def has_record(self, redis_key):
        """Whether Redis has it, asked in Redis's own words: no client is needed for one."""
        address = urlsplit(self.redis_url)
        with socket.create_connection((address.hostname, address.port), timeout=5) as connection:
            connection.sendall(f"EXISTS {redis_key}\r\n".encode())
            return connection.recv(64) == b":1\r\n"

    def effects(self, *keys):
        """Nothing lost, nothing repeated: these keys took effect once each, and no other did."""
        expect("the effects", sorted(call.key for call in self.receiver.effects), sorted(keys))


def expect(what, actual, expected):
    if actual != expected:
        raise Failed(f"{what} should be\n    {expected}\n  and came out as\n    {actual}")
