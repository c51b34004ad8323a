"""MaxReceiveCount: the rule and the numbers of docs/sizing.md, and the values that the templates permit and set."""

import math
import re
import unittest

from template import ROOT, deployed, ledger, parameter, source

MINUTE = 60
HOUR = 60 * MINUTE
DAY = 24 * HOUR

# The back-off by receive count: 2 s, 4 s, 8 s, … 15 minutes, of which half is jitter.
FIRST, LONGEST = 2, 15 * MINUTE
LEAST, EXPECTED, MOST = 1 / 2, 3 / 4, 1

# Answers of 429 with Retry-After: 0 in a row that a message has to survive.
REFUSALS = 8

SIZING = (ROOT / "docs/sizing.md").read_text()
COUNT = parameter("MaxReceiveCount")
ATTEMPTS = parameter("IdempotencyMaxAttempts")
DEFAULTS = {kind: entry["Default"] for kind, entry in source()["Mappings"]["MaxReceiveCountByQueueType"].items()}
STANDARD, FIFO = DEFAULTS["standard"], DEFAULTS["fifo"]

# What the parameter takes, without the 0 that stands for the default. SQS takes no more than 1000.
LOWEST, *_, HIGHEST = PERMITTED = [count for count in range(1, 1001) if re.search(COUNT["AllowedPattern"], str(count))]

# A FIFO queue has no batching window, so its batches are of so many messages at most.
FIFO_BATCH = 10


def waited(receives, share):
    """Seconds from the first receive to the one after so many, where each wait is that share of its step."""
    return share * sum(min(FIRST * 2**receive, LONGEST) for receive in range(receives))


def receives_within(seconds):
    """Receives that can fall within an outage: as many as there are where each wait is the shortest."""
    return sum(waited(receives, LEAST) < seconds for receives in range(HIGHEST))


def runs_and_conflicts(attempts):
    """Each attempt, and a conflict before it."""
    return 2 * attempts


def needed(attempts):
    """Receives that a message may use up without being at fault, if all of it befalls the same one."""
    return REFUSALS + runs_and_conflicts(attempts) + receives_within(HOUR)


def needed_on_a_fifo_queue(attempts):
    """Receives of the last message of a batch: each message of it may use up its attempts, one after the other."""
    return max(needed(attempts), FIFO_BATCH * attempts + needed(0))


def hours(seconds):
    return f"{seconds / HOUR:.1f} h"


def told(seconds):
    """A time as the page tells it."""
    return f"{seconds / MINUTE:.0f} min" if seconds < HOUR else hours(seconds)


class Receives(unittest.TestCase):
    def test_attempts_are_as_many_as_the_functions_own_default(self):
        self.assertEqual(ATTEMPTS["Default"], 10)

    def test_what_is_not_the_messages_fault_does_not_make_it_a_dead_letter(self):
        self.assertGreaterEqual(STANDARD, needed(ATTEMPTS["Default"]))
        self.assertGreaterEqual(FIFO, needed_on_a_fifo_queue(ATTEMPTS["Default"]))

    def test_the_default_is_by_the_type_of_the_queue(self):
        self.assertEqual(COUNT["Default"], "0")
        for kind, count in DEFAULTS.items():
            for stack in deployed(QueueType=kind), ledger(QueueType=kind):
                self.assertEqual(stack.properties("Queue")["RedrivePolicy"]["maxReceiveCount"], count)
        self.assertIn(f"{LOWEST} to {HIGHEST}. 0 means {STANDARD}, or {FIFO} on a FIFO queue", COUNT["Description"])

    def test_a_count_is_permitted_from_the_lowest_to_the_highest_and_0(self):
        self.assertEqual(PERMITTED, list(range(LOWEST, HIGHEST + 1)))
        self.assertIn(f"from {LOWEST} to {HIGHEST}, or 0", COUNT["ConstraintDescription"])
        self.assertRegex("0", COUNT["AllowedPattern"])
        for text in "", "00", "050", "-50", "50.5", "1001", "5000", "5e1":
            self.assertNotRegex(text, COUNT["AllowedPattern"])

    def test_a_fifo_queue_has_no_larger_batches(self):
        larger = [size for size in parameter("BatchSize")["AllowedValues"] if size > FIFO_BATCH]
        for size in larger:
            for window in 0, 1:
                stack = deployed(QueueType="fifo", BatchSize=size, BatchingWindow=window)
                self.assertNotEqual(stack.refused_by(), [], (size, window))

    def test_each_of_it_alone_is_survived_with_the_smallest_count_too(self):
        # The receive after the outage, or after the refusals, is the one that is done.
        each = REFUSALS + 1, runs_and_conflicts(ATTEMPTS["Default"]), receives_within(HOUR) + 1
        self.assertGreaterEqual(LOWEST, max(each))

    def test_the_smallest_count_is_the_one_that_a_single_attempt_needs(self):
        self.assertEqual(LOWEST, needed(ATTEMPTS["MinValue"]))

    def test_an_hour_without_redis_or_without_room_in_lambda_does_not_make_dead_letters(self):
        # Then nothing changes a visibility, and each receive waits for the queue's own visibility timeout.
        for timeout in parameter("FunctionTimeout")["AllowedValues"]:
            for stack in deployed(FunctionTimeout=timeout), ledger():
                receives = math.ceil(HOUR / stack.properties("Queue")["VisibilityTimeout"])
                self.assertGreaterEqual(STANDARD, receives + 1, timeout)

    def test_a_hopeless_message_is_a_dead_letter_within_half_a_day_and_before_its_retention_ends(self):
        retention = parameter("QueueRetentionSeconds")
        self.assertLess(waited(STANDARD, MOST), DAY / 2)
        for count in DEFAULTS.values():
            self.assertLess(count * LONGEST, retention["MinValue"])
        self.assertLess(waited(HIGHEST, MOST), retention["MaxValue"])
        for count in DEFAULTS.values():
            self.assertLess(count * LONGEST, ledger().properties("Queue")["MessageRetentionPeriod"])
        self.assertIn(f"Must be at least {LONGEST} for each receive of MaxReceiveCount", retention["Description"])

    def test_the_page_has_the_numbers(self):
        shares = LEAST, EXPECTED, MOST
        for receives in 9, 17, LOWEST, STANDARD, 2 * STANDARD, FIFO:
            times = " | ".join(told(waited(receives, share)) for share in shares)
            self.assertIn(f"| {receives} | {times} |", SIZING)
        text = " ".join(SIZING.split())
        for count, sentence in (STANDARD, "after {}"), (FIFO, f"with the default of {FIFO} for {{}}"):
            least, expected, most = (hours(waited(count, share)) for share in shares)
            self.assertIn(f"{sentence.format(expected)} on average, between {least} and {most}", text)

    def test_the_page_says_how_long_redis_and_a_receiver_may_be_away(self):
        text = " ".join(SIZING.split())
        hidden = deployed().properties("Queue")["VisibilityTimeout"]
        standard, fifo = (hours(count * hidden) for count in (STANDARD, FIFO))
        self.assertIn(f"{STANDARD} receives last for {standard}, and the {FIFO} of a FIFO queue for {fifo}", text)
        standard, fifo = ([hours(waited(count, share)) for share in (LEAST, EXPECTED)] for count in (STANDARD, FIFO))
        self.assertIn(f"{standard[0]} after its first receive at the earliest, and {standard[1]} on average", text)
        self.assertIn(f"with the {FIFO} of a FIFO queue, {fifo[0]} and {fifo[1]}", text)

    def test_the_page_has_the_rule(self):
        rows = {
            "eight answers of 429 with `Retry-After: 0` in a row": REFUSALS,
            "ten attempts, and a conflict before each": runs_and_conflicts(ATTEMPTS["Default"]),
            "a receiver that is unavailable for an hour": receives_within(HOUR),
            "all of it, one after the other": needed(ATTEMPTS["Default"]),
        }
        for what, receives in rows.items():
            self.assertIn(f"| {what} | {receives} |", SIZING)
        self.assertIn(f"2 × `IDEMPOTENCY_MAX_ATTEMPTS` + {needed(0)}", SIZING)
        self.assertIn(f"batch size × `IDEMPOTENCY_MAX_ATTEMPTS` + {needed(0)}", SIZING)
        self.assertIn(f"That is {needed_on_a_fifo_queue(ATTEMPTS['Default'])} for ten messages", SIZING)
        self.assertIn(f"at least twice IdempotencyMaxAttempts, plus {needed(0)}", COUNT["Description"])
        self.assertIn(f"at least BatchSize times IdempotencyMaxAttempts, plus {needed(0)}", COUNT["Description"])
