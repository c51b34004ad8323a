"""The queue and its dead-letter queue: no message is lost, seen too early or too often, or read by a stranger."""

import unittest

from template import LEDGERS, arn_of, deployed, parameter, source

SIX_TIMES = 6
DAY = 24 * 60 * 60
LEDGER = LEDGERS["a ledger"]
KINDS = {"standard": deployed(**LEDGER), "FIFO": deployed(**LEDGER, QueueType="fifo")}

# Each queue, with its dead-letter queue and its function.
QUEUES = {"Queue": ("DeadLetterQueue", "Function"), "LedgerQueue": ("LedgerDeadLetterQueue", "LedgerFunction")}


def timeouts_and_windows():
    for timeout in parameter("FunctionTimeout")["AllowedValues"]:
        for window in parameter("BatchingWindow")["AllowedValues"]:
            yield timeout, window


def each_kind():
    """The kind, its stack, a queue of that and its dead-letter queue."""
    for kind, stack in KINDS.items():
        for queue, (dead_letters, _) in QUEUES.items():
            yield kind, stack, stack.properties(queue), stack.properties(dead_letters)


class Queues(unittest.TestCase):
    def test_messages_stay_hidden_for_six_times_the_functions_timeout_and_the_batching_window(self):
        for timeout, window in timeouts_and_windows():
            with self.subTest(timeout=timeout, window=window):
                stack = deployed(**LEDGER, FunctionTimeout=timeout, BatchingWindow=window)
                for queue, (_, function) in QUEUES.items():
                    self.assertEqual(stack.properties(function)["Timeout"], timeout)
                    hidden = stack.properties(queue)["VisibilityTimeout"]
                    self.assertGreaterEqual(hidden, SIX_TIMES * timeout + window)
                    self.assertLessEqual(hidden, DAY / 2, "SQS knows none that is longer")

    def test_the_longest_lease_ends_before_its_message_comes_again(self):
        grace = parameter("LeaseGraceMs")["MaxValue"]
        for timeout, window in timeouts_and_windows():
            with self.subTest(timeout=timeout, window=window):
                stack = deployed(**LEDGER, FunctionTimeout=timeout, BatchingWindow=window, LeaseGraceMs=grace)
                for queue, (_, function) in QUEUES.items():
                    self.assertEqual(stack.variables(function)["LEASE_GRACE_MS"], grace)
                    self.assertLess(timeout + grace / 1000 + window, stack.properties(queue)["VisibilityTimeout"])

    def test_messages_that_keep_failing_go_to_the_dead_letter_queue(self):
        for kind in "standard", "fifo":
            stack = deployed(**LEDGER, QueueType=kind, MaxReceiveCount="70")
            for queue, (dead_letters, _) in QUEUES.items():
                policy = {"deadLetterTargetArn": arn_of(dead_letters), "maxReceiveCount": "70"}
                self.assertEqual(stack.properties(queue)["RedrivePolicy"], policy)

    def test_the_dead_letter_queue_takes_messages_of_this_queue_only(self):
        for _, _, queue, dead_letters in each_kind():
            policy = dead_letters["RedriveAllowPolicy"]
            self.assertEqual(policy["redrivePermission"], "byQueue")
            arn = f"arn:aws:sqs:eu-central-1:123456789012:{queue['QueueName']}"
            self.assertEqual(policy["sourceQueueArns"], [arn])

    def test_the_dead_letter_queue_keeps_messages_longest(self):
        longest = parameter("QueueRetentionSeconds")["MaxValue"]
        for _, _, queue, dead_letters in each_kind():
            self.assertEqual(dead_letters["MessageRetentionPeriod"], 14 * DAY)
            self.assertLessEqual(queue["MessageRetentionPeriod"], longest)
        self.assertLessEqual(longest, 10 * DAY)
        for queue in QUEUES:
            given = deployed(**LEDGER, QueueRetentionSeconds=2 * DAY).properties(queue)["MessageRetentionPeriod"]
            self.assertEqual(given, 2 * DAY)

    def test_every_queue_is_encrypted(self):
        for _, stack, *_ in each_kind():
            queues = stack.of_type("AWS::SQS::Queue")
            self.assertEqual(len(queues), 4)
            for queue in queues.values():
                self.assertIs(queue.get("SqsManagedSseEnabled"), True, queue)

    def test_every_queue_refuses_plain_http(self):
        for _, stack, *_ in each_kind():
            refused = set()
            for policy in stack.of_type("AWS::SQS::QueuePolicy").values():
                (queue,), (statement,) = policy["Queues"], policy["PolicyDocument"]["Statement"]
                self.assertEqual((statement["Effect"], statement["Principal"], statement["Action"]), ("Deny", "*", "sqs:*"))
                self.assertEqual(statement["Condition"], {"Bool": {"aws:SecureTransport": "false"}})
                self.assertEqual(statement["Resource"], arn_of(queue["Ref"]))
                refused.add(queue["Ref"])
            self.assertEqual(refused, set(stack.of_type("AWS::SQS::Queue")))

    def test_both_are_of_the_same_kind_and_named_as_it_wants(self):
        for kind, _, *queues in each_kind():
            for queue in queues:
                if kind == "FIFO":
                    self.assertIs(queue["FifoQueue"], True)
                    self.assertTrue(queue["QueueName"].endswith(".fifo"))
                else:
                    # SQS refuses the property with any other value than true.
                    self.assertNotIn("FifoQueue", queue)
                    self.assertNotIn(".", queue["QueueName"])

    def test_sqs_makes_no_deduplication_id_of_the_content(self):
        for queue in QUEUES:
            self.assertIs(KINDS["FIFO"].properties(queue)["ContentBasedDeduplication"], False)
            for name in "ContentBasedDeduplication", "DeduplicationScope", "FifoThroughputLimit":
                self.assertNotIn(name, KINDS["standard"].properties(queue))

    def test_what_nobody_has_taken_care_of_outlives_the_stack(self):
        for name in "Queue", "DeadLetterQueue", "LedgerQueue", "LedgerDeadLetterQueue":
            self.assertEqual(source()["Resources"][name]["DeletionPolicy"], "RetainExceptOnCreate")
            self.assertEqual(source()["Resources"][name]["UpdateReplacePolicy"], "Retain")

    def test_a_queue_of_ones_own_is_left_as_it_is(self):
        stack = deployed(QueueArn="arn:aws:sqs:eu-central-1:123456789012:orders")
        self.assertEqual(stack.of_type("AWS::SQS::Queue") | stack.of_type("AWS::SQS::QueuePolicy"), {})
