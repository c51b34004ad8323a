"""The webhook, which counts: every call, and every effect."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple, Optional

from standins import Hold, LONGEST_HOLD


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


class Receiver:
    """A webhook on a free loopback port."""

    def __init__(self):
        # In the order in which they came, and happened.
        self.calls = []
        self.effects = []
        self._answers = {}
        self._holds = {}
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler_for(self))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self._server.server_port}/"

    def stop(self):
        for hold in self._holds.values():
            hold.released.set()
        self._server.shutdown()
        self._server.server_close()

    def answer(self, key, *answers):
        """How the next calls for `key` are answered. Those after them take effect."""
        with self._lock:
            self._answers[key] = list(answers)

    def hold(self, key):
        """Calls for `key` are not answered until the hold is released."""
        with self._lock:
            self._holds[key] = Hold()
            return self._holds[key]

    def calls_for(self, key):
        return [call for call in self.calls if call.key == key]

    def take(self, call):
        with self._lock:
            self.calls.append(call)
            hold = self._holds.get(call.key)
        if hold:
            hold.reached.set()
            hold.released.wait(LONGEST_HOLD)
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
