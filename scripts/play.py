"""Plays the steps of the story: sends an event, shows what became of its messages, and compares."""

import copy
import json
import os
import subprocess
import time
from collections import Counter
from typing import NamedTuple, Optional

import show
import story
import tools
from processes import Failed
from stage import FUNCTION

EVENTS = tools.ROOT / "events"
# The lease of an invocation under the emulator is shorter; no other wait in the story is as long.
LONGEST_VISIBILITY = 900


def records(path):
    return json.loads(path.read_text())["Records"]


class Invocation(NamedTuple):
    """A `cargo lambda invoke` that is on its way."""

    process: subprocess.Popen
    log_before: int


class Seen(NamedTuple):
    """What the function's log says of one message, and which visibility it asked SQS for."""

    log: dict
    visibility: Optional[int]

    def told(self):
        if self.log.get("disposition") == "done":
            return story.DONE
        if self.visibility is None:
            return "again"
        return f"again in {self.visibility} s"

    def row(self, record):
        key = self.log.get("idempotency_key", "-")
        why = self.log.get("reason") or self.log.get("message", "")
        return record["messageId"][:8], key, self.log["outcome"], self.told(), self.log.get("attempt", "-"), why

    def summary(self):
        """As story.py has it, where the length of a lease is not known beforehand."""
        told = self.told()
        if told != story.DONE and 0 < (self.visibility or 0) <= LONGEST_VISIBILITY:
            told = story.AGAIN_LATER
        return self.log.get("idempotency_key"), self.log["outcome"], told


class Play:
    """Plays the steps of the story, up to the first that is not as it is told."""

    def __init__(self, folder, stand_ins, emulator, port):
        self.folder = folder
        self.stand_ins = stand_ins
        self.emulator = emulator
        self.address = ["-A", "127.0.0.1", "-P", str(port)]

    def write(self, step, record, receive_count=1, **fields):
        """An event of one message, made from another's."""
        made = {**copy.deepcopy(record), "receiptHandle": step.event, **fields}
        made["attributes"]["ApproximateReceiveCount"] = str(receive_count)
        path = self.folder / f"{step.event}.json"
        path.write_text(json.dumps({"Records": [made]}))
        return path

    def step(self, step, path=None, invocation=None):
        path = path or EVENTS / f"{step.event}.json"
        show.heading(f"events/{path.name}" if path.parent == EVENTS else f"{step.event} (made from events/mixed.json)")
        show.line(step.about)
        invocation = invocation or self.invoke(path)
        response = self.finish(invocation)
        messages = records(path)
        seen = self.seen(step, messages, invocation.log_before)
        show.table(
            ["message", "key", "outcome", "SQS is told", "attempt", "why"],
            [one.row(message) for one, message in zip(seen, messages)],
        )
        show.line(f"response  {response}")
        self.compare(step, messages, seen, response)

    def invoke(self, path):
        log_before = len(self.emulator.lines)
        process = subprocess.Popen(
            [tools.CARGO_LAMBDA, "lambda", "invoke", FUNCTION, *self.address, "--data-file", path],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"},
        )
        return Invocation(process, log_before)

    def wait_for_call(self, hold, invocation):
        """Until the function is inside its call of the webhook, for a key whose calls are held."""

        def either():
            return hold.reached.is_set() or invocation.process.poll() is not None

        self.emulator.wait_for(either, 60, "a call of the webhook")
        if not hold.reached.is_set():
            raise Failed("the invocation ended without a call of the webhook")

    def finish(self, invocation):
        """The raw response. The first one takes longest, as the function starts for it."""
        process, deadline = invocation.process, time.monotonic() + 60
        while True:
            try:
                response, errors = process.communicate(timeout=0.2)
                break
            except subprocess.TimeoutExpired:
                why = "the function ended" if self.function_ended() else ""
                why = why or ("no response in a minute" if time.monotonic() > deadline else "")
                if why:
                    process.kill()
                    raise Failed(why) from None
        if process.returncode:
            raise Failed(f"the invocation failed: {errors.strip()}")
        return response.strip()

    def function_ended(self):
        """The emulator does not start a function again that has ended, and answers nobody."""
        return not self.emulator.alive() or any("ERROR command" in line for line in self.emulator.lines)

    def seen(self, step, messages, log_before):
        """The log's line on each message, in the order of the event."""

        def found():
            return outcomes(self.emulator.lines[log_before:])

        ids = [message["messageId"] for message in messages]
        self.emulator.wait_for(lambda: set(ids) <= set(found()), 10, "a line of the log for each message")
        lines = found()
        require(*[f"{len(lines[one])} lines of the log on message {one}" for one in ids if len(lines[one]) > 1])
        visibility = self.stand_ins.visibility
        return [Seen(lines[one][0], visibility.get(message["receiptHandle"])) for one, message in zip(ids, messages)]

    def compare(self, step, messages, seen, response):
        differs = []
        for message, one, expected in zip(messages, seen, step.expected):
            if one.summary() != expected:
                differs.append(f"message {message['messageId'][:8]} is {words(one.summary())}; expected: {words(expected)}")
            if one.log.get("retry_after_s") != one.visibility:
                differs.append(f"the log says {one.log.get('retry_after_s')} s, and SQS heard {one.visibility}")
        again = [message["messageId"] for message, (_, _, told) in zip(messages, step.expected) if told != story.DONE]
        if not names_exactly(response, again):
            differs.append(f"the response does not name exactly {again}")
        if len(messages) != len(step.expected):
            differs.append(f"{len(messages)} messages; expected: {len(step.expected)}")
        require(*differs)

    def verdict(self):
        sent = Counter(key for step in story.STORY for key, _, _ in step.expected if key)
        calls = Counter(self.stand_ins.calls)
        show.heading("the webhook")
        show.line("How often it was called, and for how many messages.")
        show.table(["key", "messages", "calls"], [(key, sent[key], calls[key]) for key in {**sent, **calls}])
        differs = [f"{calls[key]} calls for {key}; expected: 1" for key in sent if calls[key] != 1]
        differs += [f"a call for {key}, which nobody sent" for key in calls if key not in sent]
        for group in story.FIFO_GROUPS:
            came = [key for key in self.stand_ins.calls if key in group]
            if came != group:
                differs.append(f"a group was called for in the order {came}; expected: {group}")
        require(*differs)
        show.line(f"{sum(sent.values())} messages with a key, {sum(calls.values())} calls. All is as it should be.")


def require(*differs):
    if differs:
        raise Failed("\n  ".join(["this is not as it should be:", *differs]))


def outcomes(lines):
    """messageId → the log's lines that say what became of it. The emulator's own lines are no JSON."""
    found = {}
    for line in lines:
        try:
            fields = json.loads(line[line.index("{") :])["fields"]
            if "outcome" in fields:
                found.setdefault(fields["message_id"], []).append(fields)
        except (ValueError, KeyError, TypeError):
            continue
    return found


def words(summary):
    return ", ".join(word or "no key" for word in summary)


def names_exactly(response, ids):
    try:
        answer = json.loads(response)
        named = [failure["itemIdentifier"] for failure in answer["batchItemFailures"]]
    except (ValueError, KeyError, TypeError):
        return False
    return list(answer) == ["batchItemFailures"] and sorted(named) == sorted(ids)
