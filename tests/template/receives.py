"""Attempts, maxReceiveCount and retention: rules and numbers of docs/sizing.md, and the defaults of both templates."""

import math
import re
import unittest

from template import ALARMS, ROOT, deployed, ledger, parameter

MINUTE = 60
HOUR = 60 * MINUTE
DAY = 24 * HOUR

# The back-off by receive count: 2 s, 4 s, 8 s, … 15 minutes, of which half is jitter.
FIRST, LONGEST = 2, 15 * MINUTE
LEAST, EXPECTED, MOST = 1 / 2, 3 / 4, 1
SHARES = LEAST, EXPECTED, MOST

# The outage that must not make a dead letter.
OUTAGE = DAY

# Answers of 429 with Retry-After: 0 in a row that a message has to survive besides.
REFUSALS = 8

# The maximum of SQS:
# https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SetQueueAttributes.html
MOST_RECEIVES = 1000

SIZING = (ROOT / "docs/sizing.md").read_text()
DISPOSITION = (ROOT / "src/sqs/disposition.rs").read_text()
TEXT = " ".join(SIZING.split())
QUEUE = deployed().properties("MessageQueue")
RECEIVES, RETENTION = QUEUE["RedrivePolicy"]["maxReceiveCount"], QUEUE["MessageRetentionPeriod"]
ATTEMPTS = int(deployed().variables()["IDEMPOTENCY_MAX_ATTEMPTS"])


def hidden(**parameters):
    """The visibility timeout of the queue in seconds."""
    return deployed(**parameters).properties("MessageQueue")["VisibilityTimeout"]


def steps(receives):
    return [min(FIRST * 2**receive, LONGEST) for receive in range(receives)]


def waited(receives, share):
    """Seconds from the first receive to the one after so many, where each wait is that share of its step."""
    return share * sum(steps(receives))


def receives_within(seconds, share=LEAST):
    """Receives that can fall within an outage: as many as there are where each wait is the shortest."""
    return sum(waited(receives, share) < seconds for receives in range(MOST_RECEIVES))


def last_attempt(attempts, share):
    """Seconds from the first attempt to the last one."""
    return waited(attempts - 1, share)


def runs_and_conflicts(attempts):
    """Each attempt, and a conflict before it."""
    return 2 * attempts


def needed(attempts):
    """Receives that a message may use up and still succeed, if all of it befalls the same one."""
    return REFUSALS + runs_and_conflicts(attempts) + receives_within(OUTAGE)


def told(seconds):
    """A time as the page tells it."""
    if seconds < HOUR:
        return f"{seconds / MINUTE:.0f} min"
    return f"{seconds / HOUR:.1f} h" if seconds < 1.9 * DAY else f"{seconds / DAY:.1f} d"


class Attempts(unittest.TestCase):
    def test_they_outlast_an_outage_in_which_each_receive_is_an_attempt(self):
        attempts = ATTEMPTS
        self.assertEqual(attempts, 200)
        self.assertEqual(ledger().variables("LedgerFunction")["IDEMPOTENCY_MAX_ATTEMPTS"], attempts)
        self.assertGreater(last_attempt(attempts, EXPECTED), OUTAGE)
        # Hoeffding's inequality for a sum of waits, each of which varies by half of its step.
        short = last_attempt(attempts, EXPECTED) - OUTAGE
        exponent = 2 * short**2 / sum((step / 2) ** 2 for step in steps(attempts - 1))
        self.assertGreater(exponent / math.log(10), 40)
        self.assertIn("below 10⁻⁴⁰", TEXT)

    def test_the_page_says_how_long_they_last(self):
        least, expected, most = (told(last_attempt(ATTEMPTS, share)) for share in SHARES)
        sentence = f"the {ATTEMPTS}th attempt starts {ATTEMPTS - 1} waits after the first one: "
        sentence += f"after {expected} on average, {most} at most, and {least} if every wait is the shortest possible one"
        self.assertIn(sentence, TEXT)
        self.assertIn(f"holds back its group for {expected} on average with {ATTEMPTS} attempts", TEXT)
        self.assertIn(f"17 attempts last {told(last_attempt(17, EXPECTED))} on average", TEXT)


class Receives(unittest.TestCase):
    def test_they_are_as_many_as_sqs_permits(self):
        for kind in "standard", "fifo":
            for queue in deployed(Queue=kind).properties("MessageQueue"), ledger(QueueType=kind).properties("Queue"):
                self.assertEqual(queue["RedrivePolicy"]["maxReceiveCount"], MOST_RECEIVES)

    def test_a_message_that_may_succeed_does_not_use_them_up(self):
        self.assertGreaterEqual(RECEIVES, needed(ATTEMPTS))

    def test_an_outage_without_a_function_does_not_make_dead_letters(self):
        # Then nothing changes a visibility, and each receive waits for the queue's own visibility timeout.
        timeouts = [hidden(FunctionTimeout=timeout) for timeout in parameter("FunctionTimeout")["AllowedValues"]]
        for timeout in [*timeouts, ledger().properties("Queue")["VisibilityTimeout"]]:
            self.assertGreaterEqual(RECEIVES, math.ceil(OUTAGE / timeout) + 1, timeout)

    def test_sqs_moves_a_message_before_it_deletes_it(self):
        self.assertLess(LONGEST * RECEIVES, RETENTION)
        self.assertLess(waited(RECEIVES, MOST), RETENTION)
        self.assertLess(waited(RECEIVES, MOST), ledger().properties("Queue")["MessageRetentionPeriod"])

    def test_no_message_calls_the_receiver_more_than_twenty_times_in_the_first_hour(self):
        self.assertLessEqual(receives_within(HOUR), 20)
        counts = receives_within(HOUR), receives_within(HOUR, EXPECTED), HOUR // (LONGEST * LEAST)
        sentence = "received {} times in the first hour at most, {} times on average, and {:.0f} times in each further hour"
        self.assertIn(sentence.format(*counts), TEXT)

    def test_what_waits_is_done_within_twenty_minutes_of_the_end_of_an_outage(self):
        # The function's timeouts up to which the page promises it.
        timeouts = parameter("FunctionTimeout")["AllowedValues"]
        permitted = [timeout for timeout in timeouts if LONGEST + timeout < 20 * MINUTE]
        self.assertIn(parameter("FunctionTimeout")["Default"], permitted)
        self.assertIn(f"if `FunctionTimeout` is at most {max(permitted)} s", TEXT)


class Page(unittest.TestCase):
    def test_it_has_the_numbers(self):
        for receives in 9, 17, 100, ATTEMPTS, needed(ATTEMPTS), RECEIVES:
            times = " | ".join(told(waited(receives, share)) for share in SHARES)
            self.assertIn(f"| {receives} | {times} |", SIZING)
        least, expected, most = (told(waited(RECEIVES, share)) for share in SHARES)
        self.assertIn(f"{RECEIVES} receives last {expected} on average, between {least} and {most}", TEXT)
        self.assertIn(f"until SQS moves it: for {expected} on average, between {least} and {most}", TEXT)
        self.assertIn(f"{RECEIVES} receives take at most {most.replace(' d', ' days')}", TEXT)

    def test_it_says_how_long_receives_take_with_long_waits_and_invocations(self):
        long_waits = int(re.search(r"LONG_WAITS_END: Duration = Duration::from_hours\((\d+)\)", DISPOSITION)[1]) * HOUR
        self.assertIn("within two days of the first receive", TEXT)
        self.assertEqual(long_waits, 2 * DAY)
        added = {seconds: RECEIVES * seconds for seconds in (30, 290)}
        sentence = " ".join(f"{told(time)} for {RECEIVES} of {seconds} s," for seconds, time in added.items())
        self.assertIn(sentence.rstrip(","), TEXT)
        most = long_waits + waited(RECEIVES, EXPECTED) + max(added.values())
        self.assertIn(f"All of it is {told(most)} on average, less than the retention of {RETENTION / DAY:.0f} days", TEXT)
        self.assertIn(f"and [{told(most).removesuffix(' d')} on average](#the-waits)", TEXT)
        # Hoeffding's inequality: https://en.wikipedia.org/wiki/Hoeffding%27s_inequality
        margin, widths = RETENTION - most, sum(((MOST - LEAST) * step) ** 2 for step in steps(RECEIVES))
        self.assertLess(math.exp(-2 * margin**2 / widths), 1e-15)

    def test_it_says_how_long_a_function_may_not_run(self):
        timeouts = parameter("FunctionTimeout")["AllowedValues"]
        least = hidden(FunctionTimeout=min(timeouts))
        shortest = f"{RECEIVES * least / HOUR:.1f} h at the shortest visibility timeout of {least} s"
        self.assertIn(f"So {RECEIVES} receives last {RECEIVES * hidden() / HOUR:.1f} h, and {shortest}", TEXT)
        outlive = [timeout for timeout in timeouts if RECEIVES * hidden(FunctionTimeout=timeout) > RETENTION]
        self.assertIn(f"At a `FunctionTimeout` of {min(outlive)} s or more they last longer than the retention", TEXT)

    def test_it_has_the_rule(self):
        attempts = ATTEMPTS
        rows = {
            f"{attempts} attempts, and a conflict before each": runs_and_conflicts(attempts),
            "a receiver or a Redis that is unavailable for 24 hours": receives_within(OUTAGE),
            "eight more answers of 429 with `Retry-After: 0`": REFUSALS,
            "all of it, one after the other": needed(attempts),
        }
        for what, receives in rows.items():
            self.assertIn(f"| {what} | {receives} |", SIZING)
        outage = receives_within(OUTAGE) - 1
        self.assertIn(f"{outage} of them take {told(waited(outage, LEAST))}", SIZING)
        self.assertIn(f"On average it is {receives_within(OUTAGE, EXPECTED)} receives", SIZING)
        for page in "docs/sizing.md", "docs/deploy.md":
            text = " ".join((ROOT / page).read_text().split())
            self.assertIn(f"2 × `IDEMPOTENCY_MAX_ATTEMPTS` + {needed(0)}", text)
        self.assertIn(f"It has {RECEIVES - needed(attempts)} more for throttled deliveries", TEXT)

    def test_it_says_what_a_fifo_batch_may_use_up(self):
        attempts, rest = ATTEMPTS, RECEIVES - needed(0)
        # The first attempt at a message is made in the receive of the last attempt at the one before it.
        in_a_row = (RECEIVES - 1) // (attempts - 1)
        self.assertEqual(in_a_row, 5)
        self.assertIn("five messages of a group in a row may use up all their attempts", TEXT)
        self.assertIn(f"If six do, which takes {told(waited(RECEIVES, EXPECTED))} on average", TEXT)
        self.assertIn(f"at most {rest // 10} attempts with a batch of 10, {rest // 5} with a batch of 5", TEXT)
        sizes = [size for size in parameter("BatchSize")["AllowedValues"] if size * attempts <= rest]
        self.assertEqual(sizes, [1, 2])
        self.assertIn(f"or {attempts} attempts with a `BatchSize` of 2 or 1", TEXT)

    def test_a_fifo_queue_has_no_larger_batches(self):
        for size in parameter("BatchSize")["AllowedValues"]:
            for window in 0, 1:
                if size > 10:
                    self.assertNotEqual(deployed(Queue="fifo", BatchSize=size, BatchingWindow=window).refused_by(), [])

    def test_it_says_what_a_large_backlog_does(self):
        per_second = 120_000 / (LONGEST * EXPECTED)
        self.assertIn(f"{LONGEST * EXPECTED:.0f} s on average are {per_second:.0f} receives per second", TEXT)
        self.assertIn(f"{per_second / 10:.0f} invocations per second with batches of ten", TEXT)
        concurrency = parameter("MaximumConcurrency")["Default"]
        batch = min(parameter("BatchSize")["Default"], int(deployed().variables()["BATCH_CONCURRENCY"]))
        rate = concurrency * batch / 0.1
        self.assertIn(f"{concurrency} × {batch} ÷ 0.1 = {rate:.0f} messages per second", TEXT)
        minutes = 10 * DAY / rate / MINUTE
        self.assertIn(f"so {10 * DAY:,} messages (10 per second for 24 hours) take {minutes:.0f} minutes", TEXT)

    def test_it_says_how_much_time_the_oldest_letter_has_left(self):
        retention = deployed().properties("DeadLetterQueue")["MessageRetentionPeriod"]
        threshold = parameter("OldestLetterSeconds", ALARMS)["Default"]
        in_queue = waited(RECEIVES, MOST)
        self.assertIn(f"`OldestLetterSeconds` ({threshold / DAY:.0f} days)", TEXT)
        self.assertIn(f"then has {(retention - threshold) / DAY:.0f} days left", TEXT)
        self.assertIn(f"so it has at least {(retention - in_queue - threshold) // HOUR:.0f} hours left", TEXT)
        self.assertIn(f"minus its time in the queue: at least {(retention - in_queue) / DAY:.1f} days", TEXT)

    def test_no_other_page_has_the_rules_of_earlier_versions(self):
        rules = r"ATTEMPTS` \+ 24|plus 24|\b130\b.*receive|`MaxReceiveCount|ATTEMPTS` defaults to 10\b|`QueueRetentionSeconds"
        for page in "docs/sizing.md", "docs/runbook.md", "docs/deploy.md", "template.yaml", "CHANGELOG.md":
            self.assertIsNone(re.search(rules, (ROOT / page).read_text()), page)
