"""Processes of `make run` and `make e2e`: started quietly, watched, and ended with all that they started."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path


class Failed(Exception):
    """A process did not do its part; the text says which and what."""


class Process:
    """A process whose output goes to a file, and can be waited for line by line."""

    def __init__(self, name, command, log, **options):
        self.name = name
        self.lines = []
        self._new_line = threading.Condition()
        # In a session of its own, so that Ctrl-C reaches it only through stop(), in order.
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            **options,
        )
        threading.Thread(target=self._read, args=(log,), daemon=True).start()

    def _read(self, log):
        with open(log, "w") as file:
            for raw in self._process.stdout:
                line = raw.decode(errors="replace").rstrip("\n")
                print(line, file=file, flush=True)
                with self._new_line:
                    self.lines.append(line)
                    self._new_line.notify_all()

    @property
    def pid(self):
        return self._process.pid

    def alive(self):
        return self._process.poll() is None

    def wait_for(self, check, seconds, what):
        """Waits until check() is true; it is asked after each line of output, and in between."""
        deadline = time.monotonic() + seconds
        # Not asked under the lock: check() may call the process, which must be able to write meanwhile.
        while not check():
            left = deadline - time.monotonic()
            if left <= 0 or not self.alive():
                raise Failed(f"{self.name}: {what} did not happen")
            with self._new_line:
                self._new_line.wait(min(left, 0.05))

    def wait_for_port(self, port, seconds):
        deadline = time.monotonic() + seconds
        while not is_open(port):
            if time.monotonic() > deadline or not self.alive():
                raise Failed("\n  ".join([f"{self.name}: port {port} did not open", *self.lines[-5:]]))
            time.sleep(0.02)

    def stop(self):
        """Ends the process, and whatever it started that does not end with it."""
        family = [self._process.pid, *descendants(self._process.pid)]
        end(self._process, signal.SIGTERM)
        for pid in family:
            kill(pid)
        left = [pid for pid in family if not gone(pid, within=5)]
        if left:
            raise Failed(f"{self.name}: still running as {left}")


def end(process, polite):
    process.send_signal(polite)
    try:
        process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def gone(pid, within):
    deadline = time.monotonic() + within
    while pid in parents():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def descendants(pid):
    """Found by parentage, as `cargo lambda watch` puts each function into a session of its own."""
    table = parents()
    children = [child for child, parent in table.items() if parent == pid]
    return children + [found for child in children for found in descendants(child)]


def parents():
    """The parent of each process that runs."""
    if Path("/proc/self/stat").exists():
        # Not `ps`, which a small Debian does not have.
        return dict(filter(None, map(parent_in_proc, Path("/proc").glob("[0-9]*/stat"))))
    listing = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,stat="], capture_output=True, text=True).stdout
    rows = (row.split() for row in listing.splitlines())
    return {int(pid): int(parent) for pid, parent, state in rows if not state.startswith("Z")}


def parent_in_proc(stat):
    try:
        # After the name, which is in brackets and may hold anything, come the state and the parent.
        state, parent = stat.read_text().rpartition(")")[2].split()[:2]
    except OSError:
        return None
    return None if state == "Z" else (int(stat.parent.name), int(parent))


def end_on_signals():
    """As Ctrl-C does, so that what was started is ended in order."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop_by_signal)


def stop_by_signal(number, _frame):
    sys.exit(128 + number)


def ignore_signals():
    """A second Ctrl-C must not leave half of the processes behind."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def is_open(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
