"""What the function talks to in the demo: a webhook, and as much of SQS as it calls."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# Longer than anything here takes, shorter than the function waits for its webhook.
LONGEST_HOLD = 20


class Webhook:
    """A webhook on a free loopback port, which writes down its calls, and holds those that it is told to."""

    def __init__(self, handler):
        # In the order in which they came.
        self.calls = []
        self._holds = {}
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self._server.server_port}"

    def stop(self):
        for hold in self._holds.values():
            hold.released.set()
        self._server.shutdown()
        self._server.server_close()

    def hold(self, key):
        """From now on the webhook's call for `key` does not return until the hold is released."""
        with self._lock:
            self._holds[key] = Hold()
            return self._holds[key]

    def called(self, call, key):
        with self._lock:
            self.calls.append(call)
            hold = self._holds.get(key)
        if hold:
            hold.reached.set()
            hold.released.wait(LONGEST_HOLD)


class StandIns(Webhook):
    """Requests with `X-Amz-Target` are for SQS, others for the webhook. A call is known by its key."""

    def __init__(self):
        # What was asked for, by receipt handle.
        self.visibility = {}
        super().__init__(handler_for(self))

    def webhook(self, key):
        self.called(key, key)
        return {"receipt": f"receipt for {key}"}

    def sqs(self, request):
        """ChangeMessageVisibility, of one message or of a batch; remembers what was asked."""
        entries = request.get("Entries", [request])
        with self._lock:
            for entry in entries:
                self.visibility[entry["ReceiptHandle"]] = entry["VisibilityTimeout"]
        if "Entries" not in request:
            return {}
        return {"Successful": [{"Id": entry["Id"]} for entry in entries], "Failed": []}


class Hold:
    def __init__(self):
        self.reached = threading.Event()
        self.released = threading.Event()


def handler_for(stand_ins):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # The answer goes out in two writes; with Nagle's algorithm the second would wait 40 ms.
        disable_nagle_algorithm = True

        def do_POST(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if self.headers.get("X-Amz-Target"):
                self.answer("application/x-amz-json-1.0", stand_ins.sqs(json.loads(body)))
            else:
                self.answer("application/json", stand_ins.webhook(self.headers["Idempotency-Key"]))

        def answer(self, content_type, value):
            body = json.dumps(value).encode()
            self.send_response(200)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    return Handler
