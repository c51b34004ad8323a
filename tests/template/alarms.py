"""The alarms and the dashboard: what goes wrong is told, and can be seen."""

import json
import re
import unittest

from template import QUEUES, RECORDS, ROOT, combinations, deployed, source

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


def dashboard(stack):
    return json.loads(stack.properties("Dashboard")["DashboardBody"])["widgets"]


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

    def test_they_go_to_the_topic_and_say_when_it_is_over(self):
        for name, parameters in combinations():
            for alarm in alarms(deployed(AlarmTopicArn=TOPIC, **parameters)).values():
                self.assertEqual((alarm["AlarmActions"], alarm["OKActions"]), ([TOPIC], [TOPIC]), name)
        for alarm in alarms(deployed()).values():
            self.assertFalse({"AlarmActions", "OKActions"} & alarm.keys())

    def test_one_of_anything_bad_is_enough(self):
        for name, alarm in alarms(deployed()).items():
            if name in {"OldestMessageAlarm", "MemoryAlarm"}:
                continue
            self.assertEqual((alarm["Threshold"], alarm["ComparisonOperator"]), (0, "GreaterThanThreshold"), name)
            self.assertEqual(alarm["EvaluationPeriods"], 1, name)

    def test_thresholds_are_those_of_the_parameters(self):
        stack = deployed(OldestMessageSeconds=120, CacheMemoryAlarm=60)
        for name, threshold in {"OldestMessageAlarm": 120, "MemoryAlarm": 60}.items():
            alarm = stack.properties(name)
            self.assertEqual(alarm["Threshold"], threshold)
            self.assertEqual(alarm["ComparisonOperator"], "GreaterThanOrEqualToThreshold")

    def test_silence_is_no_alarm(self):
        for alarm in alarms(deployed()).values():
            self.assertEqual(alarm["TreatMissingData"], "notBreaching")

    def test_the_runbook_has_a_section_for_each(self):
        runbook = (ROOT / "docs/runbook.md").read_text()
        headings = re.findall(r"^## (.*)$", runbook, re.MULTILINE)
        for name, resource in source()["Resources"].items():
            if resource["Type"] == "AWS::CloudWatch::Alarm":
                self.assertTrue([h for h in headings if f"`{name}`" in h], name)


class Dashboard(unittest.TestCase):
    def test_it_is_json_in_every_combination_and_nothing_in_it_overlaps(self):
        for name, parameters in combinations():
            with self.subTest(name):
                seen = set()
                for widget in dashboard(deployed(**parameters)):
                    cells = {
                        (x, y)
                        for x in range(widget["x"], widget["x"] + widget["width"])
                        for y in range(widget["y"], widget["y"] + widget["height"])
                    }
                    self.assertFalse(cells & seen, widget["properties"]["title"])
                    self.assertTrue(all(x < 24 for x, _ in cells), widget["properties"]["title"])
                    seen |= cells

    def test_it_shows_every_alarm(self):
        for name, parameters in combinations():
            with self.subTest(name):
                stack = deployed(**parameters)
                shown = dashboard(stack)[0]["properties"]["alarms"]
                self.assertEqual(sorted(shown), sorted(f"${{{alarm}.Arn}}" for alarm in alarms(stack)))

    def test_it_shows_outcomes_dispositions_and_what_they_took(self):
        shown = set()
        for widget in dashboard(deployed()):
            above = []
            for row in widget["properties"].get("metrics", []):
                row = [item for item in row if isinstance(item, str)]
                above = above if row == ["..."] else [was if item == "." else item for item, was in pad(row, above)]
                if above[0] == "idempotent-sqs":
                    self.assertEqual(above[2:], ["Consumer", "payments"])
                    shown.add(above[1])
        outcomes = {"Acquired", "AcquiredStale", "Duplicate", "Conflict", "Mismatch", "Failed", "Lost"}
        taken = {"RedisLatency", "WorkLatency", "LeaseRemaining", "Attempts", "BatchSize", "CheckFindings"}
        self.assertEqual(shown, outcomes | taken | {"Done", "Redeliver"})

    def test_its_log_query_names_fields_that_the_function_writes(self):
        (query,) = [w["properties"]["query"] for w in dashboard(deployed()) if w["type"] == "log"]
        written = (ROOT / "src/handler.rs").read_text()
        fields = re.findall(r"fields\.(\w+)", query)
        self.assertGreater(len(fields), 5)
        for field in fields:
            self.assertRegex(written, rf"\b{field} =")


def pad(row, above):
    return zip(row, above or row)
