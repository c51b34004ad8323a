"""The alarms of both templates: what they watch, their thresholds, their topic, and their sections in the runbook."""

import re
import unittest

from receives import DAY, MINUTE, MOST, waited
from template import LEDGER, MAIN, QUEUES, RECORDS, ROOT, arn_of, combinations, deployed, ledger, parameter, source

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
    ("AWS/SQS", "ApproximateNumberOfMessagesNotVisible"),
    ("AWS/SQS", "NumberOfMessagesDeleted"),
    ("AWS/SQS", "ApproximateNumberOfMessagesVisible"),
    ("AWS/Lambda", "Errors"),
    ("AWS/Lambda", "Throttles"),
    ("idempotent-sqs", "Mismatch"),
    ("idempotent-sqs", "Failed"),
    ("idempotent-sqs", "AcquiredStale"),
    ("idempotent-sqs", "CheckFindings"),
}
DEAD_LETTERS = {("idempotent-sqs", "DeadLettersNotSent")}
OF_DEAD_LETTERS = {"DeadLettersAlarm", "DeadLettersNotSentAlarm", "OldestLetterAlarm"}
OF_NODES = {("AWS/ElastiCache", "Evictions"), ("AWS/ElastiCache", "DatabaseMemoryUsagePercentage")}
OF_SERVERLESS = {("AWS/ElastiCache", "Evictions"), ("AWS/ElastiCache", "BytesUsedForCache")}


# Those that go off only if something lasts.
LASTING = {"OldestMessageAlarm", "OldestLetterAlarm", "NoProgressAlarm", "MemoryAlarm", "LedgerOldestMessageAlarm"}
STATISTICS = {"visible": "Maximum", "inflight": "Maximum", "deleted": "Sum"}


def evaluated(expression, values):
    """A period of a metric expression of CloudWatch, where `None` is a missing value."""
    python = re.sub(r"\bIF\(", "choose(", expression).replace("FILL(", "fill(").replace(" AND ", " and ")
    names = {
        "choose": lambda condition, then, otherwise: then if condition else otherwise,
        "fill": lambda value, other: other if value is None else value,
    }
    try:
        return eval(python, names | values)
    except TypeError:
        return None


class Alarms(unittest.TestCase):
    def test_they_watch_all_that_can_go_wrong(self):
        self.assertEqual(watched(deployed()), ALWAYS | DEAD_LETTERS | OF_NODES)
        self.assertEqual(watched(deployed(CacheKind="serverless")), ALWAYS | DEAD_LETTERS | OF_SERVERLESS)
        self.assertEqual(watched(deployed(**RECORDS["its own Redis"])), ALWAYS | DEAD_LETTERS)
        for name, dead_letters in {"its own queue": DEAD_LETTERS, "its own queue without dead letters": set()}.items():
            stack = deployed(**QUEUES[name])
            self.assertEqual(watched(stack), ALWAYS | dead_letters | OF_NODES)
            self.assertEqual(OF_DEAD_LETTERS & alarms(stack).keys(), OF_DEAD_LETTERS if dead_letters else set())

    def test_they_watch_the_queues_that_are_there(self):
        def names(stack):
            return {
                alarm: dimensions["QueueName"]
                for alarm, spec in alarms(stack).items()
                for _, _, dimensions in metrics(spec)
                if "QueueName" in dimensions
            }

        of_queue, of_dead_letters = {"OldestMessageAlarm", "NoProgressAlarm"}, {"DeadLettersAlarm", "OldestLetterAlarm"}
        own = dict.fromkeys(of_queue, "orders") | dict.fromkeys(of_dead_letters, "orders-dead")
        self.assertEqual(names(deployed(**QUEUES["its own queue"])), own)
        new = dict.fromkeys(of_queue, "Queue") | dict.fromkeys(of_dead_letters, "DeadLetterQueue")
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
            if name in LASTING:
                continue
            self.assertEqual((alarm["Threshold"], alarm["ComparisonOperator"]), (0, "GreaterThanThreshold"), name)
            self.assertEqual(alarm["EvaluationPeriods"], 1, name)

    def test_thresholds_are_those_of_the_parameters(self):
        stack = deployed(OldestMessageSeconds=120, OldestLetterSeconds=180, CacheMemoryAlarm=60)
        for name, threshold in {"OldestMessageAlarm": 120, "OldestLetterAlarm": 180, "MemoryAlarm": 60}.items():
            alarm = stack.properties(name)
            self.assertEqual(alarm["Threshold"], threshold)
            self.assertEqual(alarm["ComparisonOperator"], "GreaterThanOrEqualToThreshold")

    def test_letters_that_were_not_sent_are_those_of_the_consumer(self):
        for name, stack in {"DeadLettersNotSentAlarm": deployed(), "LedgerDeadLettersNotSentAlarm": ledger()}.items():
            alarm = stack.properties(name)
            self.assertEqual((alarm["MetricName"], alarm["Statistic"]), ("DeadLettersNotSent", "Sum"))

    def test_the_oldest_letter_is_found_before_sqs_deletes_any(self):
        alarm = deployed().properties("OldestLetterAlarm")
        self.assertEqual((alarm["MetricName"], alarm["Statistic"]), ("ApproximateAgeOfOldestMessage", "Maximum"))
        # SQS moves a message of a standard queue with its age. The metric counts from the move:
        # https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/setting-up-dead-letter-queue-retention.html
        moved_after = waited(parameter("MaxReceiveCount")["MaxValue"], MOST)
        retention = deployed().properties("DeadLetterQueue")["MessageRetentionPeriod"]
        self.assertGreaterEqual(retention - moved_after - alarm["Threshold"], DAY / 2)

    def test_no_progress_is_messages_that_wait_while_none_is_finished(self):
        alarm = deployed(NoProgressMinutes=20).properties("NoProgressAlarm")
        expression, *queries = alarm["Metrics"]
        of_ids = {query["Id"]: query["MetricStat"] for query in queries}
        self.assertEqual(of_ids["visible"]["Metric"]["MetricName"], "ApproximateNumberOfMessagesVisible")
        # In an outage, all messages may be hidden until their redelivery.
        self.assertEqual(of_ids["inflight"]["Metric"]["MetricName"], "ApproximateNumberOfMessagesNotVisible")
        self.assertEqual(of_ids["deleted"]["Metric"]["MetricName"], "NumberOfMessagesDeleted")
        self.assertEqual({name: of["Stat"] for name, of in of_ids.items()}, STATISTICS)
        self.assertEqual({of["Period"] for of in of_ids.values()}, {60})
        self.assertTrue(all(query["ReturnData"] is False for query in queries))
        self.assertEqual((alarm["EvaluationPeriods"], alarm.get("DatapointsToAlarm", 20)), (20, 20))
        self.assertEqual((alarm["Threshold"], alarm["ComparisonOperator"]), (0, "GreaterThanThreshold"))
        for visible, in_flight, deleted, expected in [
            (0, 0, 0, 0),
            (0, None, None, 0),
            (3, 0, 0, 1),
            (3, None, None, 1),
            (0, 7, 0, 1),
            (3, 7, 1, 0),
            (0, 0, 1, 0),
            (None, 7, 0, None),
        ]:
            values = {"visible": visible, "inflight": in_flight, "deleted": deleted}
            self.assertEqual(evaluated(expression["Expression"], values), expected, values)

    def test_no_progress_takes_longer_than_an_invocation(self):
        longest = deployed().properties("NoProgressAlarm")["EvaluationPeriods"] * MINUTE
        self.assertGreater(longest, 2 * parameter("FunctionTimeout")["Default"])
        self.assertLessEqual(parameter("NoProgressMinutes")["MaxValue"] * MINUTE, DAY, "CloudWatch evaluates no more")
        timeouts = parameter("FunctionTimeout")["AllowedValues"]
        self.assertGreater(parameter("NoProgressMinutes")["MaxValue"] * MINUTE, max(timeouts))

    def test_alarms_on_dead_letters_say_how_to_look_at_them(self):
        for name, stack in {"DeadLettersAlarm": deployed(), "LedgerDeadLettersAlarm": ledger()}.items():
            description = stack.properties(name)["AlarmDescription"]
            self.assertIn("`letters list`", description)
            self.assertIn(f"{name} in docs/runbook.md", description)

    def test_missing_data_is_no_alarm(self):
        for alarm in [*alarms(deployed()).values(), *alarms(ledger()).values()]:
            self.assertEqual(alarm["TreatMissingData"], "notBreaching")

    def test_the_runbook_has_a_section_for_each(self):
        runbook = (ROOT / "docs/runbook.md").read_text()
        headings = re.findall(r"^## (.*)$", runbook, re.MULTILINE)
        sections = re.split(r"^## ", runbook, flags=re.MULTILINE)
        for path in MAIN, LEDGER:
            for name, resource in source(path)["Resources"].items():
                if resource["Type"] == "AWS::CloudWatch::Alarm":
                    self.assertTrue([h for h in headings if f"`{name}`" in h], name)
                    (section,) = [s for s in sections if f"`{name}`" in s.splitlines()[0]]
                    for part in "Meaning", "Check", "Action", "Over":
                        self.assertRegex(section, rf"\*\*{part}[.*]|\*\*{part.lower()}\*\*", f"{name}: {part}")
                    self.assertRegex(runbook, rf"(?m)^\| .*\[.*`{name}`.*\]\(#", name)

    def test_those_of_the_ledger_watch_its_queues_and_both_functions(self):
        watched = {
            name: (alarm["MetricName"], alarm["Dimensions"][0]["Value"], alarm["Threshold"])
            for name, alarm in alarms(ledger()).items()
        }
        dead_letters, queue = arn_of("DeadLetterQueue", "QueueName"), arn_of("Queue", "QueueName")
        oldest = source()["Parameters"]["OldestMessageSeconds"]["Default"]
        expected = {
            "LedgerDeadLettersAlarm": ("ApproximateNumberOfMessagesVisible", dead_letters, 0),
            "LedgerDeadLettersNotSentAlarm": ("DeadLettersNotSent", "payments", 0),
            "LedgerOldestMessageAlarm": ("ApproximateAgeOfOldestMessage", queue, oldest),
            "LedgerErrorsAlarm": ("Errors", {"Ref": "LedgerFunction"}, 0),
            "BackfillErrorsAlarm": ("Errors", {"Ref": "BackfillFunction"}, 0),
        }
        self.assertEqual(watched, expected)
