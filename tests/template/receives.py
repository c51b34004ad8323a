"""How often a message is delivered before it is a dead letter: docs/sizing.md has the rule, and these are its numbers."""

import math
import unittest

from template import LEDGERS, ROOT, deployed, parameter

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


def waited(receives, share):
    """Seconds from the first receive to the one after so many, where each wait is that share of its step."""
    return share * sum(min(FIRST * 2**receive, LONGEST) for receive in range(receives))


def receives_within(seconds):
    """Receives that can fall within an outage: as many as there are where each wait is the shortest."""
    return sum(waited(receives, LEAST) < seconds for receives in range(COUNT["MaxValue"]))


def runs_and_conflicts(attempts):
    """Each attempt, and a conflict before it."""
    return 2 * attempts


def needed(attempts):
    """Receives that a message may use up without being at fault, if all of it befalls the same one."""
    return REFUSALS + runs_and_conflicts(attempts) + receives_within(HOUR)


def hours(seconds):
    return f"{seconds / HOUR:.1f} h"


def told(seconds):
    """A time as the page tells it."""
    return f"{seconds / MINUTE:.0f} min" if seconds < HOUR else hours(seconds)


class Receives(unittest.TestCase):
    def test_attempts_are_as_many_as_the_functions_own_default(self):
        self.assertEqual(ATTEMPTS["Default"], 10)

    def test_what_is_not_the_messages_fault_does_not_make_it_a_dead_letter(self):
        self.assertGreaterEqual(COUNT["Default"], needed(ATTEMPTS["Default"]))

    def test_each_of_it_alone_is_survived_with_the_smallest_count_too(self):
        # The receive after the outage, or after the refusals, is the one that is done.
        each = REFUSALS + 1, runs_and_conflicts(ATTEMPTS["Default"]), receives_within(HOUR) + 1
        self.assertGreaterEqual(COUNT["MinValue"], max(each))

    def test_the_smallest_count_is_the_one_that_a_single_attempt_needs(self):
        self.assertEqual(COUNT["MinValue"], needed(ATTEMPTS["MinValue"]))

    def test_an_hour_without_redis_or_without_room_in_lambda_does_not_make_dead_letters(self):
        # Then nothing changes a visibility, and each receive waits for the queue's own visibility timeout.
        for timeout in parameter("FunctionTimeout")["AllowedValues"]:
            stack = deployed(**LEDGERS["a ledger"], FunctionTimeout=timeout)
            for queue in "Queue", "LedgerQueue":
                receives = math.ceil(HOUR / stack.properties(queue)["VisibilityTimeout"])
                self.assertGreaterEqual(COUNT["Default"], receives + 1, timeout)

    def test_a_hopeless_message_is_a_dead_letter_on_the_same_day_and_before_its_retention_ends(self):
        retention = parameter("QueueRetentionSeconds")
        self.assertLess(waited(COUNT["Default"], MOST), DAY / 2)
        self.assertLess(2 * waited(COUNT["Default"], MOST), retention["MinValue"])
        self.assertLess(waited(COUNT["MaxValue"], MOST), retention["MaxValue"])
        self.assertIn(f"At least {LONGEST} for each delivery of MaxReceiveCount", retention["Description"])

    def test_a_fifo_queue_has_the_same_count(self):
        for kind in "standard", "fifo":
            stack = deployed(**LEDGERS["a ledger"], QueueType=kind)
            for queue in "Queue", "LedgerQueue":
                self.assertEqual(stack.properties(queue)["RedrivePolicy"]["maxReceiveCount"], COUNT["Default"])

    def test_the_page_has_the_numbers(self):
        shares = LEAST, EXPECTED, MOST
        for receives in 9, 17, COUNT["MinValue"], COUNT["Default"], 2 * COUNT["Default"]:
            times = " | ".join(told(waited(receives, share)) for share in shares)
            self.assertIn(f"| {receives} | {times} |", SIZING)
        least, expected, most = (hours(waited(COUNT["Default"], share)) for share in shares)
        self.assertIn(f"after {expected} on average, between {least} and {most}", " ".join(SIZING.split()))

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
        self.assertIn(f"twice IdempotencyMaxAttempts, and {needed(0)} more", COUNT["Description"])
