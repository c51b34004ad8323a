"""The webhook of a scenario. It records every call and every effect."""

import threading
import time
from typing import NamedTuple, Optional

from servers import HttpServer


class Call(NamedTuple):
    key: str
    body: str
    fence: int
    attempt: int
    recovery: bool


class Answer(NamedTuple):
    """A status, and the seconds of `Retry-After`. Only a 200 is an effect."""

    status: int
    retry_after: Optional[int] = None


DONE = Answer(200)
UNAVAILABLE = Answer(503)
# The connection is closed without a response.
CUT = Answer(0)


class Receiver(HttpServer):
    """A webhook with configurable answers."""

    def __init__(self):
        # The calls that took effect, in order.
        self.effects = []
        self._answers = {}
        self._down_until = 0
        self._lock = threading.Lock()
        super().__init__()

    def answer(self, key, *answers):
        """Sets the answers to the next calls for `key`. Later calls take effect."""
        with self._lock:
            self._answers[key] = list(answers)

    def fail_for(self, seconds):
        """Answers every call with 503 for this long."""
        self._down_until = time.monotonic() + seconds

    def calls_for(self, key):
        return [call for call in self.calls if call.key == key]

    def respond(self, headers, body):
        fence, attempt = int(headers["Idempotency-Fence"]), int(headers["Idempotency-Attempt"])
        recovery = headers.get("Idempotency-Recovery") == "true"
        call = Call(headers["Idempotency-Key"], body.decode(), fence, attempt, recovery)
        self.calls.append(call)
        self.wait_while_held(call.key)
        with self._lock:
            planned = self._answers.get(call.key)
            if time.monotonic() < self._down_until:
                answer = UNAVAILABLE
            else:
                answer = planned.pop(0) if planned else DONE
            if answer == DONE:
                self.effects.append(call)
        if answer == CUT:
            return None
        return answer.status, {} if answer.retry_after is None else {"Retry-After": answer.retry_after}, b""
