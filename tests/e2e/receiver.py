"""The webhook, which counts: every call, and every effect."""

from http.server import BaseHTTPRequestHandler
from typing import NamedTuple, Optional

from standins import Webhook


class Call(NamedTuple):
    key: str
    body: str
    fence: int
    attempt: int
    recovery: bool


class Answer(NamedTuple):
    """A status, and after how many seconds to come again. Only a 200 is an effect."""

    status: int
    retry_after: Optional[int] = None


DONE = Answer(200)
# The connection is closed without an answer.
CUT = Answer(0)


class Receiver(Webhook):
    """A webhook that answers as it is told to."""

    def __init__(self):
        # In the order in which they happened.
        self.effects = []
        self._answers = {}
        super().__init__(handler_for(self))

    def answer(self, key, *answers):
        """How the next calls for `key` are answered. Those after them take effect."""
        with self._lock:
            self._answers[key] = list(answers)

    def calls_for(self, key):
        return [call for call in self.calls if call.key == key]

    def take(self, call):
        self.called(call, call.key)
        with self._lock:
            planned = self._answers.get(call.key)
            answer = planned.pop(0) if planned else DONE
            if answer == DONE:
                self.effects.append(call)
        return answer


def handler_for(receiver):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # The answer goes out in two writes; with Nagle's algorithm the second would wait 40 ms.
        disable_nagle_algorithm = True

        def do_POST(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            call = Call(
                self.headers["Idempotency-Key"],
                body.decode(),
                int(self.headers["Idempotency-Fence"]),
                int(self.headers["Idempotency-Attempt"]),
                self.headers.get("Idempotency-Recovery") == "true",
            )
            answer = receiver.take(call)
            if answer == CUT:
                self.close_connection = True
                return
            self.send_response(answer.status)
            if answer.retry_after is not None:
                self.send_header("Retry-After", str(answer.retry_after))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    return Handler
