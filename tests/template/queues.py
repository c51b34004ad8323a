"""The queue and dead-letter queue of both templates: timeouts, redrive, retention, encryption, types and deletion."""

import unittest

from template import LEDGER, MAIN, QUEUES, arn_of, deployed, ledger, parameter, source

SIX_TIMES = 6
DAY = 24 * 60 * 60
KINDS = {"standard": "standard", "FIFO": "fifo"}

# Each template, its function, its queue, and the parameter of the queue's type.
FUNCTIONS = {MAIN: ("Function", "MessageQueue", "Queue"), LEDGER: ("LedgerFunction", "Queue", "QueueType")}


def timeouts_and_windows():
    for timeout in parameter("FunctionTimeout")["AllowedValues"]:
        for window in parameter("BatchingWindow")["AllowedValues"]:
            yield timeout, window


def each_kind():
    """The kind, and a stack of each template with its queue and its dead-letter queue."""
    for kind, value in KINDS.items():
        for path, (_, queue, parameter_name) in FUNCTIONS.items():
            stack = deployed(path, **{parameter_name: value})
            yield kind, stack, stack.properties(queue), stack.properties("DeadLetterQueue")


def each_timeout():
    """Each timeout and window of both templates, with the visibility timeout and the variables of the function."""
    for timeout, window in timeouts_and_windows():
        stack = deployed(FunctionTimeout=timeout, BatchingWindow=window)
        assert stack.properties("Function")["Timeout"] == timeout
        yield timeout, window, stack.properties("MessageQueue")["VisibilityTimeout"], stack.variables()
    for kind in KINDS.values():
        stack = ledger(QueueType=kind)
        (mapping,) = stack.of_type("AWS::Lambda::EventSourceMapping").values()
        window = mapping.get("MaximumBatchingWindowInSeconds", 0)
        timeout, hidden = stack.properties("LedgerFunction")["Timeout"], stack.properties("Queue")["VisibilityTimeout"]
        yield timeout, window, hidden, stack.variables("LedgerFunction")


class Queues(unittest.TestCase):
    def test_messages_stay_hidden_for_six_times_the_functions_timeout_and_the_batching_window(self):
        for timeout, window, hidden, _ in each_timeout():
            with self.subTest(timeout=timeout, window=window):
                self.assertGreaterEqual(hidden, SIX_TIMES * timeout + window)
                self.assertLessEqual(hidden, DAY / 2, "the maximum of SQS")

    def test_the_longest_lease_ends_before_its_message_is_redelivered(self):
        for timeout, window, hidden, variables in each_timeout():
            with self.subTest(timeout=timeout, window=window):
                self.assertEqual(int(variables["LEASE_GRACE_MS"]), 1000)
                # Also with a grace of a minute.
                self.assertLess(timeout + 60 + window, hidden)

    def test_a_webhook_request_ends_before_the_function(self):
        for timeout, _, _, variables in each_timeout():
            if "TARGET_URL" in variables:
                self.assertEqual(variables["TARGET_TIMEOUT_MS"], f"{timeout // 3}000")
                self.assertLess(int(variables["TARGET_TIMEOUT_MS"]) / 1000 + 2, timeout)

    def test_messages_that_keep_failing_go_to_the_dead_letter_queue(self):
        for _, _, queue, _ in each_kind():
            policy = {"deadLetterTargetArn": arn_of("DeadLetterQueue"), "maxReceiveCount": 1000}
            self.assertEqual(queue["RedrivePolicy"], policy)

    def test_the_dead_letter_queue_takes_messages_of_this_queue_only(self):
        for _, _, queue, dead_letters in each_kind():
            policy = dead_letters["RedriveAllowPolicy"]
            self.assertEqual(policy["redrivePermission"], "byQueue")
            arn = f"arn:aws:sqs:eu-central-1:123456789012:{queue['QueueName']}"
            self.assertEqual(policy["sourceQueueArns"], [arn])

    def test_both_keep_messages_as_long_as_sqs_permits(self):
        for _, _, *queues in each_kind():
            self.assertEqual([queue["MessageRetentionPeriod"] for queue in queues], [14 * DAY] * 2)

    def test_every_queue_is_encrypted(self):
        for _, stack, *_ in each_kind():
            queues = stack.of_type("AWS::SQS::Queue")
            self.assertEqual(len(queues), 2)
            for queue in queues.values():
                self.assertIs(queue.get("SqsManagedSseEnabled"), True, queue)
                self.assertNotIn("KmsMasterKeyId", queue)

    def test_a_key_encrypts_queues_log_variables_and_cache(self):
        key = "arn:aws:kms:eu-central-1:123456789012:key/1c2fa620"
        for records in {}, {"CacheNodeType": "serverless"}:
            stack = deployed(KmsKeyArn=key, **records)
            for queue in stack.of_type("AWS::SQS::Queue").values():
                self.assertEqual(queue["KmsMasterKeyId"], key)
                # SQS rejects both.
                self.assertNotIn("SqsManagedSseEnabled", queue)
            kinds = "AWS::Logs::LogGroup", "AWS::ElastiCache::ReplicationGroup", "AWS::ElastiCache::ServerlessCache"
            encrypted = [each for kind in kinds for each in stack.of_type(kind).values()]
            self.assertEqual([each["KmsKeyId"] for each in encrypted], [key, key])
            self.assertEqual(stack.properties("Function")["KmsKeyArn"], key)

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
        for path, (_, queue, _) in FUNCTIONS.items():
            for name in queue, "DeadLetterQueue":
                self.assertEqual(source(path)["Resources"][name]["DeletionPolicy"], "RetainExceptOnCreate")
                self.assertEqual(source(path)["Resources"][name]["UpdateReplacePolicy"], "Retain")

    def test_a_queue_of_ones_own_is_left_as_it_is(self):
        stack = deployed(**QUEUES["its own queue"])
        self.assertEqual(stack.of_type("AWS::SQS::Queue") | stack.of_type("AWS::SQS::QueuePolicy"), {})
