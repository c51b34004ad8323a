"""The alarms of both templates: what they watch, their thresholds, their topic, and their sections in the runbook."""

import re
import unittest

from template import LEDGER, MAIN, QUEUES, RECORDS, ROOT, arn_of, combinations, deployed, ledger, source

TOPIC = "arn:aws:sns:eu-central-1:123456789012:on-call"


def alarms(stack):
    return stack.of_type("AWS::CloudWatch::Alarm")


def metrics(alarm):
    """Each metric that an alarm looks at, with its dimensions."""
    of_queries = [query["MetricStat"]["Metric"] for query in alarm.get("Metrics", []) if "MetricStat" in query]
    for metric in of_queries or [alarm]:
        yield metric["Namespace"], metric["MetricName"], {d["Name"]: d["Value"] for d in metric["Dimensions"]}


def watched(stack):
    return {(namespace, name) for alarm in alarms(stack).values() for namespace, name, _ in metrics(alarm)}


ALWAYS = {
    ("AWS/SQS", "ApproximateAgeOfOldestMessage"),
    ("AWS/Lambda", "Errors"),
    ("AWS/Lambda", "Throttles"),
    ("idempotent-sqs", "Mismatch"),
    ("idempotent-sqs", "Failed"),
    ("idempotent-sqs", "AcquiredStale"),
    ("idempotent-sqs", "CheckFindings"),
}
DEAD_LETTERS = {("AWS/SQS", "ApproximateNumberOfMessagesVisible")}
OF_NODES = {("AWS/ElastiCache", "Evictions"), ("AWS/ElastiCache", "DatabaseMemoryUsagePercentage")}
OF_SERVERLESS = {("AWS/ElastiCache", "Evictions"), ("AWS/ElastiCache", "BytesUsedForCache")}


class Alarms(unittest.TestCase):
    def test_they_watch_all_that_can_go_wrong(self):
        self.assertEqual(watched(deployed()), ALWAYS | DEAD_LETTERS | OF_NODES)
        self.assertEqual(watched(deployed(CacheKind="serverless")), ALWAYS | DEAD_LETTERS | OF_SERVERLESS)
        self.assertEqual(watched(deployed(**RECORDS["its own Redis"])), ALWAYS | DEAD_LETTERS)
        for name, dead_letters in {"its own queue": DEAD_LETTERS, "its own queue without dead letters": set()}.items():
            self.assertEqual(watched(deployed(**QUEUES[name])), ALWAYS | dead_letters | OF_NODES)

    def test_they_watch_the_queues_that_are_there(self):
        def names(stack):
            return {
                alarm: dimensions["QueueName"]
                for alarm, spec in alarms(stack).items()
                for _, _, dimensions in metrics(spec)
                if "QueueName" in dimensions
            }

        own = {"DeadLettersAlarm": "orders-dead", "OldestMessageAlarm": "orders"}
        self.assertEqual(names(deployed(**QUEUES["its own queue"])), own)
        new = {"DeadLettersAlarm": "DeadLetterQueue", "OldestMessageAlarm": "Queue"}
        new = {alarm: {"Fn::GetAtt": [queue, "QueueName"]} for alarm, queue in new.items()}
        self.assertEqual(names(deployed()), new)

    def test_they_watch_the_metrics_of_this_consumer(self):
        for namespace in "", "orders":
            stack = deployed(Namespace=namespace)
            variables = stack.variables()
            for alarm in alarms(stack).values():
                for published, _, dimensions in metrics(alarm):
                    if not published.startswith("AWS/"):
                        self.assertEqual(published, variables["METRICS_NAMESPACE"])
                        self.assertEqual(dimensions, {"Consumer": variables["IDEMPOTENCY_NAMESPACE"]})

    def test_they_watch_every_node_of_as_many_shards_as_there_may_be(self):
        shards = max(source()["Parameters"]["CacheShards"]["AllowedValues"])
        nodes = {f"${{Cache}}-{shard:04}-{node:03}" for shard in range(1, shards + 1) for node in (1, 2)}
        for name in "EvictionsAlarm", "MemoryAlarm":
            alarm = deployed().properties(name)
            self.assertEqual({d["CacheClusterId"] for _, _, d in metrics(alarm)}, nodes)
            self.assertLessEqual(len(alarm["Metrics"]), 10, "CloudWatch takes no more")
            returned = [query for query in alarm["Metrics"] if query.get("ReturnData", True)]
            self.assertEqual(len(returned), 1, "the alarm is on one of them")
        self.assertEqual(1 + deployed().properties("Cache")["ReplicasPerNodeGroup"], 2)

    def test_they_notify_the_topic_of_alarm_and_recovery(self):
        for path in MAIN, LEDGER:
            for name, parameters in combinations(path):
                for alarm in alarms(deployed(path, AlarmTopicArn=TOPIC, **parameters)).values():
                    self.assertEqual((alarm["AlarmActions"], alarm["OKActions"]), ([TOPIC], [TOPIC]), name)
            for alarm in alarms(deployed(path)).values():
                self.assertFalse({"AlarmActions", "OKActions"} & alarm.keys())

    def test_a_single_fault_is_enough(self):
        for name, alarm in [*alarms(deployed()).items(), *alarms(ledger()).items()]:
            if name in {"OldestMessageAlarm", "MemoryAlarm", "LedgerOldestMessageAlarm"}:
                continue
            self.assertEqual((alarm["Threshold"], alarm["ComparisonOperator"]), (0, "GreaterThanThreshold"), name)
            self.assertEqual(alarm["EvaluationPeriods"], 1, name)

    def test_thresholds_are_those_of_the_parameters(self):
        stack = deployed(OldestMessageSeconds=120, CacheMemoryAlarm=60)
        for name, threshold in {"OldestMessageAlarm": 120, "MemoryAlarm": 60}.items():
            alarm = stack.properties(name)
            self.assertEqual(alarm["Threshold"], threshold)
            self.assertEqual(alarm["ComparisonOperator"], "GreaterThanOrEqualToThreshold")

    def test_missing_data_is_no_alarm(self):
        for alarm in [*alarms(deployed()).values(), *alarms(ledger()).values()]:
            self.assertEqual(alarm["TreatMissingData"], "notBreaching")

    def test_the_runbook_has_a_section_for_each(self):
        runbook = (ROOT / "docs/runbook.md").read_text()
        headings = re.findall(r"^## (.*)$", runbook, re.MULTILINE)
        for path in MAIN, LEDGER:
            for name, resource in source(path)["Resources"].items():
                if resource["Type"] == "AWS::CloudWatch::Alarm":
                    self.assertTrue([h for h in headings if f"`{name}`" in h], name)

    def test_those_of_the_ledger_watch_its_queues_and_both_functions(self):
        watched = {
            name: (alarm["MetricName"], alarm["Dimensions"][0]["Value"], alarm["Threshold"])
            for name, alarm in alarms(ledger()).items()
        }
        dead_letters, queue = arn_of("DeadLetterQueue", "QueueName"), arn_of("Queue", "QueueName")
        oldest = source()["Parameters"]["OldestMessageSeconds"]["Default"]
        expected = {
            "LedgerDeadLettersAlarm": ("ApproximateNumberOfMessagesVisible", dead_letters, 0),
            "LedgerOldestMessageAlarm": ("ApproximateAgeOfOldestMessage", queue, oldest),
            "LedgerErrorsAlarm": ("Errors", {"Ref": "LedgerFunction"}, 0),
            "BackfillErrorsAlarm": ("Errors", {"Ref": "BackfillFunction"}, 0),
        }
        self.assertEqual(watched, expected)
