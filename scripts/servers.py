"""Child processes and local servers of `make run`, `make e2e` and `make compare-sqs`.

Every server listens on a free port of 127.0.0.1.
"""

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import tools

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Failed(Exception):
    """A process failed or a result differs from the expected one."""


def run(main):
    """Exits with the status that main() returns. Child processes are stopped on exit, also after a signal."""
    handle_signals(exit_on_signal)
    try:
        sys.exit(main())
    except (Failed, tools.Missing) as error:
        sys.exit(f"\nerror: {error}")
    finally:
        handle_signals(signal.SIG_IGN)


def handle_signals(handler):
    for number in SIGNALS:
        signal.signal(number, handler)


def exit_on_signal(number, _frame):
    # A second signal must not interrupt the cleanup.
    handle_signals(signal.SIG_IGN)
    sys.exit(128 + number)


class Process:
    """A child process that listens on `port` and writes its output to the file `log`."""

    def __init__(self, command, log, port, **options):
        self.name, self.log = Path(command[0]).name, log
        # In its own session, so that Ctrl-C in the terminal reaches it only through stop().
        options = {"stdin": subprocess.DEVNULL, "stderr": subprocess.STDOUT, "start_new_session": True, **options}
        received = []
        # A signal here must not prevent the registration of stop().
        handle_signals(lambda number, _frame: received.append(number))
        with open(log, "wb") as output:
            self._process = subprocess.Popen(command, stdout=output, **options)
        self.pid = self._process.pid
        atexit.register(self.stop)
        handle_signals(exit_on_signal)
        for number in received:
            signal.raise_signal(number)
        self.wait_for(lambda: is_open(port), 60, f"port {port} to open")

    def lines(self):
        """The complete lines of the log."""
        return self.log.read_text(errors="replace").rpartition("\n")[0].splitlines()

    def wait_for(self, check, seconds, what):
        """Calls check() every 50 ms until it returns true. Fails on a timeout and when the process has ended."""
        deadline = time.monotonic() + seconds
        while not check():
            if self._process.poll() is not None:
                self.fail("the process ended")
            if time.monotonic() > deadline:
                raise Failed(f"{self.name}: timeout after {seconds} s, waiting for {what}; see {self.log}")
            time.sleep(0.05)

    def fail(self, reason):
        raise Failed("\n  ".join([f"{self.name}: {reason}; the end of {self.log}:", *self.lines()[-20:]]))

    def stop(self):
        """Sends SIGTERM, after 5 s SIGKILL, and then SIGKILL to the descendants that still run."""
        if self._process.poll() is not None:
            return
        pids = descendants(self.pid)
        self._process.terminate()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for pid in pids:
            kill(pid)


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def descendants(pid):
    """The pids of its children, of their children, and so on. cargo-lambda gives each function its own session."""
    table, found = parents(), {pid}
    while more := {child for child, parent in table.items() if parent in found} - found:
        found |= more
    return found - {pid}


def parents():
    """Pid → parent's pid of every process that runs."""
    rows = []
    for stat in Path("/proc").glob("[0-9]*/stat"):  # A minimal Debian has no `ps`.
        try:
            # "pid (name) state parent …"; the name may contain spaces and parentheses.
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        rows.append((stat.parent.name, parent, state))
    if not rows:
        listing = subprocess.run(["ps", "-A", "-o", "pid=", "-o", "ppid=", "-o", "stat="], capture_output=True, text=True)
        rows = map(str.split, listing.stdout.splitlines())
    return {int(pid): int(parent) for pid, parent, state in rows if not state.startswith("Z")}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def is_open(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def ministack_environment(folder, port, region):
    """The environment of a ministack, without the user's variables, because ministack passes its own to each function."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "TMPDIR": str(folder),
        # The default is every network interface.
        "BIND_HOST": "127.0.0.1",
        "GATEWAY_PORT": str(port),
        "MINISTACK_HOST": "127.0.0.1",
        "MINISTACK_REGION": region,
    }


def start_redis(folder, port, appendonly="no"):
    """Starts Valkey or Redis without a configuration file. It writes only to `folder`."""
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", appendonly, "--dir", folder]
    return Process([tools.find_server(), *options], folder / "redis.log", port)


class HttpServer:
    """Subclasses answer POST requests in respond(headers, body) with (status, headers, body), or None to disconnect."""

    def __init__(self):
        self.calls = []
        self._holds = {}
        respond = self.respond

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Head and body are two writes. Nagle's algorithm would delay the second by 40 ms.
            disable_nagle_algorithm = True

            def do_POST(self):
                response = respond(self.headers, self.rfile.read(int(self.headers.get("Content-Length", 0))))
                if response is None:
                    self.close_connection = True
                    return
                status, headers, body = response
                self.send_response(status)
                for name, value in {**headers, "Content-Length": len(body)}.items():
                    self.send_header(name, str(value))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def hold(self, key):
        """Delays calls for `key` until `released` is set, for at most 20 s. The first one sets `reached`."""
        self._holds[key] = SimpleNamespace(reached=threading.Event(), released=threading.Event())
        return self._holds[key]

    def wait_while_held(self, key):
        if hold := self._holds.get(key):
            hold.reached.set()
            hold.released.wait(20)

    def stop(self):
        self._server.shutdown()
        self._server.server_close()


class WebhookAndSqs(HttpServer):
    """A webhook, and SQS for requests with `X-Amz-Target`: ChangeMessageVisibilityBatch, the only call of the function."""

    def __init__(self):
        # Receipt handle → the requested visibility timeout in seconds.
        self.visibility = {}
        super().__init__()

    def respond(self, headers, body):
        if headers["X-Amz-Target"]:
            entries = json.loads(body)["Entries"]
            self.visibility.update({entry["ReceiptHandle"]: entry["VisibilityTimeout"] for entry in entries})
            response = {"Successful": [{"Id": entry["Id"]} for entry in entries], "Failed": []}
            return 200, {"Content-Type": "application/x-amz-json-1.0"}, json.dumps(response).encode()
        key = headers["Idempotency-Key"]
        self.wait_while_held(key)
        self.calls.append(key)
        return 200, {"Content-Type": "application/json"}, json.dumps({"receipt": f"receipt for {key}"}).encode()
