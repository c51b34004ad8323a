"""The queue and dead-letter queue of both templates: timeouts, redrive, retention, encryption, types and deletion."""

import unittest

from template import LEDGER, MAIN, arn_of, deployed, ledger, parameter, source

SIX_TIMES = 6
DAY = 24 * 60 * 60
KINDS = {"standard": {}, "FIFO": {"QueueType": "fifo"}}

# Each template and its function.
FUNCTIONS = {MAIN: "Function", LEDGER: "LedgerFunction"}


def timeouts_and_windows():
    for timeout in parameter("FunctionTimeout")["AllowedValues"]:
        for window in parameter("BatchingWindow")["AllowedValues"]:
            yield timeout, window


def each_kind():
    """The kind, and a stack of each template with its queue and its dead-letter queue."""
    for kind, parameters in KINDS.items():
        for path in FUNCTIONS:
            stack = deployed(path, **parameters)
            yield kind, stack, stack.properties("Queue"), stack.properties("DeadLetterQueue")


def each_timeout(**parameters):
    """Stacks of both templates with each timeout and window, and their functions."""
    for timeout, window in timeouts_and_windows():
        yield timeout, window, deployed(FunctionTimeout=timeout, BatchingWindow=window, **parameters), "Function"
    for kind in KINDS.values():
        stack = ledger(**kind)
        (mapping,) = stack.of_type("AWS::Lambda::EventSourceMapping").values()
        window = mapping.get("MaximumBatchingWindowInSeconds", 0)
        yield stack.properties("LedgerFunction")["Timeout"], window, stack, "LedgerFunction"


class Queues(unittest.TestCase):
    def test_messages_stay_hidden_for_six_times_the_functions_timeout_and_the_batching_window(self):
        for timeout, window, stack, function in each_timeout():
            with self.subTest(timeout=timeout, window=window, function=function):
                self.assertEqual(stack.properties(function)["Timeout"], timeout)
                hidden = stack.properties("Queue")["VisibilityTimeout"]
                self.assertGreaterEqual(hidden, SIX_TIMES * timeout + window)
                self.assertLessEqual(hidden, DAY / 2, "the maximum of SQS")

    def test_the_longest_lease_ends_before_its_message_is_redelivered(self):
        longest = parameter("LeaseGraceMs")["MaxValue"]
        for timeout, window, stack, function in each_timeout(LeaseGraceMs=longest):
            with self.subTest(timeout=timeout, window=window, function=function):
                grace = stack.variables(function)["LEASE_GRACE_MS"]
                self.assertEqual(grace, longest if function == "Function" else parameter("LeaseGraceMs")["Default"])
                hidden = stack.properties("Queue")["VisibilityTimeout"]
                self.assertLess(timeout + grace / 1000 + window, hidden)
                # Also with the longest grace that the main template permits.
                self.assertLess(timeout + longest / 1000 + window, hidden)

    def test_messages_that_keep_failing_go_to_the_dead_letter_queue(self):
        for kind in "standard", "fifo":
            for stack in deployed(QueueType=kind, MaxReceiveCount=700), ledger(QueueType=kind):
                policy = stack.properties("Queue")["RedrivePolicy"]
                self.assertEqual(policy["deadLetterTargetArn"], arn_of("DeadLetterQueue"))
                self.assertEqual(policy.keys(), {"deadLetterTargetArn", "maxReceiveCount"})
            policy = deployed(QueueType=kind, MaxReceiveCount=700).properties("Queue")["RedrivePolicy"]
            self.assertEqual(policy["maxReceiveCount"], 700)

    def test_the_dead_letter_queue_takes_messages_of_this_queue_only(self):
        for _, _, queue, dead_letters in each_kind():
            policy = dead_letters["RedriveAllowPolicy"]
            self.assertEqual(policy["redrivePermission"], "byQueue")
            arn = f"arn:aws:sqs:eu-central-1:123456789012:{queue['QueueName']}"
            self.assertEqual(policy["sourceQueueArns"], [arn])

    def test_both_keep_messages_as_long_as_sqs_permits(self):
        for _, _, *queues in each_kind():
            self.assertEqual([queue["MessageRetentionPeriod"] for queue in queues], [14 * DAY] * 2)
        self.assertEqual(parameter("QueueRetentionSeconds")["MaxValue"], 14 * DAY)
        given = deployed(QueueRetentionSeconds=11 * DAY).properties("Queue")["MessageRetentionPeriod"]
        self.assertEqual(given, 11 * DAY)

    def test_every_queue_is_encrypted(self):
        for _, stack, *_ in each_kind():
            queues = stack.of_type("AWS::SQS::Queue")
            self.assertEqual(len(queues), 2)
            for queue in queues.values():
                self.assertIs(queue.get("SqsManagedSseEnabled"), True, queue)

    def test_every_queue_refuses_plain_http(self):
        for _, stack, *_ in each_kind():
            refused = []
            for policy in stack.of_type("AWS::SQS::QueuePolicy").values():
                (statement,) = policy["PolicyDocument"]["Statement"]
                self.assertEqual((statement["Effect"], statement["Principal"], statement["Action"]), ("Deny", "*", "sqs:*"))
                self.assertEqual(statement["Condition"], {"Bool": {"aws:SecureTransport": "false"}})
                # A policy of one queue names it. In a policy of several, `*` is each queue that has the policy.
                names = [queue["Ref"] for queue in policy["Queues"]]
                self.assertEqual(statement["Resource"], arn_of(names[0]) if len(names) == 1 else "*")
                refused += names
            self.assertEqual(sorted(refused), sorted(stack.of_type("AWS::SQS::Queue")))

    def test_both_are_of_the_same_kind_and_named_as_it_wants(self):
        for kind, _, *queues in each_kind():
            for queue in queues:
                if kind == "FIFO":
                    self.assertIs(queue["FifoQueue"], True)
                    self.assertTrue(queue["QueueName"].endswith(".fifo"))
                else:
                    # SQS rejects the property with any value other than true.
                    self.assertNotIn("FifoQueue", queue)
                    self.assertNotIn(".", queue["QueueName"])

    def test_sqs_makes_no_deduplication_id_of_the_content(self):
        for kind, _, queue, _ in each_kind():
            if kind == "FIFO":
                self.assertIs(queue["ContentBasedDeduplication"], False)
            else:
                for name in "ContentBasedDeduplication", "DeduplicationScope", "FifoThroughputLimit":
                    self.assertNotIn(name, queue)

    def test_messages_outlive_the_stack(self):
        for path in FUNCTIONS:
            for name in "Queue", "DeadLetterQueue":
                self.assertEqual(source(path)["Resources"][name]["DeletionPolicy"], "RetainExceptOnCreate")
                self.assertEqual(source(path)["Resources"][name]["UpdateReplacePolicy"], "Retain")

    def test_a_queue_of_ones_own_is_left_as_it_is(self):
        stack = deployed(QueueArn="arn:aws:sqs:eu-central-1:123456789012:orders")
        self.assertEqual(stack.of_type("AWS::SQS::Queue") | stack.of_type("AWS::SQS::QueuePolicy"), {})
