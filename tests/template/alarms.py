"""The alarms of both templates: what they watch, their thresholds, their topic, and their sections in the runbook."""

import re
import unittest

from receives import DAY, LONGEST, MINUTE, MOST, RECEIVES, waited
from template import (
    ALARMS, CACHE, LEDGER, MAIN, QUEUES, RECORDS, ROOT, arn_of, combinations, deployed, ledger, parameter, source,
)

TOPIC = "arn:aws:sns:eu-central-1:123456789012:on-call"
TICKETS = "arn:aws:sns:eu-central-1:123456789012:tickets"


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
}
CHECKS = {("idempotent-sqs", "CheckFindings")}
DEAD_LETTERS = {("idempotent-sqs", "DeadLettersNotSent")}
OF_DEAD_LETTERS = {"DeadLettersAlarm", "DeadLettersNotSentAlarm", "OldestLetterAlarm"}
OF_NODES = {("AWS/ElastiCache", "Evictions"), ("AWS/ElastiCache", "DatabaseMemoryUsagePercentage")}
OF_SERVERLESS = {("AWS/ElastiCache", "Evictions"), ("AWS/ElastiCache", "BytesUsedForCache")}


# Those that need someone at once, because messages or records are lost or wait.
PAGES = {"NoProgressAlarm", "OldestMessageAlarm", "EvictionsAlarm", "ServerlessEvictionsAlarm"}

# Those that go off only if something lasts.
LASTING = {"OldestMessageAlarm", "OldestLetterAlarm", "NoProgressAlarm", "MemoryAlarm", "LedgerOldestMessageAlarm"}
STATISTICS = {"visible": "Maximum", "inflight": "Maximum", "deleted": "Sum", "age": "Maximum"}


def evaluated(expression, values):
    """A period of a metric expression of CloudWatch, where `None` is a missing value."""
    python = re.sub(r"\bIF\(", "choose(", expression).replace("FILL(", "fill(").replace(" AND ", " and ")
    python = re.sub(r"\bMAX\(", "max(", python)
    names = {
        "choose": lambda condition, then, otherwise: then if condition else otherwise,
        "fill": lambda value, other: other if value is None else value,
    }
    try:
        return eval(python, names | values)
    except (TypeError, ZeroDivisionError):
        return None


class Alarms(unittest.TestCase):
    def test_they_watch_all_that_can_go_wrong(self):
        for profile in "standard", "durable":
            self.assertEqual(watched(deployed(Profile=profile)), ALWAYS | CHECKS | DEAD_LETTERS | OF_NODES)
        # The check finds that a serverless cache evicts, and that one node has no replica. An alarm would never end.
        self.assertEqual(watched(deployed(Profile="dev")), ALWAYS | DEAD_LETTERS | OF_NODES)
        self.assertEqual(watched(deployed(CacheNodeType="serverless")), ALWAYS | DEAD_LETTERS | OF_SERVERLESS)
        own_cache = RECORDS["its own ElastiCache with IAM"]
        credentials = own_cache["RedisCredentials"].replace("replicationgroup", "serverlesscache")
        self.assertEqual(watched(deployed(**own_cache)), ALWAYS | CHECKS | DEAD_LETTERS)
        self.assertEqual(watched(deployed(**{**own_cache, "RedisCredentials": credentials})), ALWAYS | DEAD_LETTERS)
        for profile in "dev", "standard":
            own = deployed(**RECORDS["its own Redis"], Profile=profile)
            self.assertEqual(watched(own), ALWAYS | CHECKS | DEAD_LETTERS)
        for name, dead_letters in {"its own queue": DEAD_LETTERS, "its own queue without dead letters": set()}.items():
            stack = deployed(**QUEUES[name])
            self.assertEqual(watched(stack), ALWAYS | CHECKS | dead_letters | OF_NODES)
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
        new = dict.fromkeys(of_queue, "MessageQueue") | dict.fromkeys(of_dead_letters, "DeadLetterQueue")
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

    def test_they_watch_every_node(self):
        for profile, replicas in {"dev": 0, "standard": 1}.items():
            nodes = {f"${{Cache}}-0001-{node:03}" for node in range(1, 2 + replicas)}
            for name in "EvictionsAlarm", "MemoryAlarm":
                self.assert_watches(deployed(Profile=profile).properties(name), nodes)

    def test_they_watch_every_node_of_as_many_shards_as_there_may_be(self):
        most = parameter("Shards", CACHE)["MaxValue"]
        self.assertEqual(parameter("Shards", ALARMS)["AllowedValues"], list(range(1, most + 1)))
        given = {"Consumer": "c", "QueueName": "q", "FunctionName": "f", "LogGroupName": "l"}
        for shards in range(1, most + 1):
            for replicas in 0, 1:
                cache = {"CacheName": "r", "CacheKind": "nodes", "Shards": shards, "Replicas": replicas}
                stack = deployed(ALARMS, **given, **cache)
                nodes = {f"r-{shard:04}-{n:03}" for shard in range(1, shards + 1) for n in range(1, 2 + replicas)}
                for name in "EvictionsAlarm", "MemoryAlarm":
                    self.assert_watches(stack.properties(name), nodes)

    def assert_watches(self, alarm, nodes):
        self.assertEqual({d["CacheClusterId"] for _, _, d in metrics(alarm)}, nodes)
        self.assertLessEqual(len(alarm["Metrics"]), 10, "CloudWatch takes no more")
        returned = [query for query in alarm["Metrics"] if query.get("ReturnData", True)]
        self.assertEqual(len(returned), 1, "the alarm is on one of them")

    def test_the_cache_and_the_alarms_have_the_same_number_of_nodes(self):
        cache, watching = (source()["Resources"][name]["Properties"]["Parameters"] for name in ("Cache", "Alarms"))
        for name in "Shards", "Replicas":
            self.assertEqual(watching[name], cache[name])

    def test_they_notify_the_topic_of_their_severity_of_alarm_and_recovery(self):
        topics = {"PageTopicArn": TOPIC, "TicketTopicArn": TICKETS}
        for name, parameters in combinations(MAIN):
            for alarm, spec in alarms(deployed(**topics, **parameters)).items():
                topic = TOPIC if alarm in PAGES else TICKETS
                self.assertEqual((spec["AlarmActions"], spec["OKActions"]), ([topic], [topic]), alarm)
                # The subject of a notification does not have it.
                severity = "Page: " if alarm in PAGES else "Ticket: "
                self.assertTrue(spec["AlarmDescription"].startswith(severity), alarm)
        for one, other in ("PageTopicArn", TICKETS), ("TicketTopicArn", TOPIC):
            for spec in alarms(deployed(**{one: topics[one]})).values():
                self.assertNotIn(other, str(spec))
        for name, parameters in combinations(LEDGER):
            for alarm in alarms(deployed(LEDGER, AlarmTopicArn=TOPIC, **parameters)).values():
                self.assertEqual((alarm["AlarmActions"], alarm["OKActions"]), ([TOPIC], [TOPIC]), name)
        for path in MAIN, LEDGER:
            for alarm in alarms(deployed(path)).values():
                self.assertFalse({"AlarmActions", "OKActions"} & alarm.keys())

    def test_a_single_fault_is_enough(self):
        for name, alarm in [*alarms(deployed()).items(), *alarms(ledger()).items()]:
            if name in LASTING:
                continue
            self.assertEqual((alarm["Threshold"], alarm["ComparisonOperator"]), (0, "GreaterThanThreshold"), name)
            self.assertEqual(alarm["EvaluationPeriods"], 1, name)

    def test_thresholds_are_those_of_the_parameters(self):
        names = {"OldestLetterAlarm": "OldestLetterSeconds", "MemoryAlarm": "CacheMemoryAlarm"}
        for name, parameter_name in names.items():
            alarm = deployed().properties(name)
            self.assertEqual(alarm["Threshold"], parameter(parameter_name, ALARMS)["Default"])
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
        moved_after = waited(RECEIVES, MOST)
        retention = deployed().properties("DeadLetterQueue")["MessageRetentionPeriod"]
        self.assertGreaterEqual(retention - moved_after - alarm["Threshold"], DAY / 2)

    def test_no_progress_is_messages_that_wait_while_none_is_finished(self):
        alarm = deployed().properties("NoProgressAlarm")
        expression, *queries = alarm["Metrics"]
        of_ids = {query["Id"]: query["MetricStat"] for query in queries}
        self.assertEqual(of_ids["visible"]["Metric"]["MetricName"], "ApproximateNumberOfMessagesVisible")
        # In an outage, all messages may be hidden until their redelivery.
        self.assertEqual(of_ids["inflight"]["Metric"]["MetricName"], "ApproximateNumberOfMessagesNotVisible")
        self.assertEqual(of_ids["deleted"]["Metric"]["MetricName"], "NumberOfMessagesDeleted")
        self.assertEqual({name: of["Stat"] for name, of in of_ids.items()}.items() - STATISTICS.items(), set())
        self.assertEqual({of["Period"] for of in of_ids.values()}, {60})
        self.assertTrue(all(query["ReturnData"] is False for query in queries))
        self.assertEqual((alarm["EvaluationPeriods"], alarm.get("DatapointsToAlarm", 15)), (15, 15))
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

    def test_the_oldest_message_is_known_in_an_outage(self):
        alarm = deployed().properties("OldestMessageAlarm")
        wait, left, *queries = alarm["Metrics"]
        of_ids = {query["Id"]: query["MetricStat"] for query in queries}
        self.assertEqual(of_ids["age"]["Metric"]["MetricName"], "ApproximateAgeOfOldestMessage")
        self.assertEqual({name: of["Stat"] for name, of in of_ids.items()}, STATISTICS)
        self.assertEqual({of["Period"] for of in of_ids.values()}, {60})
        self.assertTrue(all(query["ReturnData"] is False for query in [left, *queries]))
        self.assertEqual(alarm["ComparisonOperator"], "GreaterThanOrEqualToThreshold")
        for what, visible, in_flight, deleted, age, goes_off in [
            ("an idle queue", 0, 0, 0, 0, False),
            ("an idle queue without other values", 0, None, None, None, False),
            ("ten messages a second", 5, 20, 600, 2, False),
            ("a backlog of an hour", 36_000, 20, 600, 3600, True),
            ("an outage, in which each message was received three times", 0, 500, 0, None, True),
            ("an outage, in which new messages arrive", 3, 500, None, 1, True),
            ("an outage of one receiver of two, after an hour", 5, 18_000, 300, 2, True),
            ("one poison message among others", 0, 1, 600, 5, False),
            ("no metrics of an inactive queue", None, None, None, None, None),
        ]:
            values = {"visible": visible, "inflight": in_flight, "deleted": deleted, "age": age}
            values["left"] = evaluated(" ".join(left["Expression"].split()), values)
            seconds = evaluated(wait["Expression"], values)
            self.assertEqual(None if seconds is None else seconds >= alarm["Threshold"], goes_off, what)

    def test_no_alarm_goes_off_while_an_invocation_lasts(self):
        for timeout in parameter("FunctionTimeout")["AllowedValues"]:
            for name in "NoProgressAlarm", "OldestMessageAlarm":
                lasts = deployed(FunctionTimeout=timeout).properties(name)["EvaluationPeriods"] * MINUTE
                self.assertGreater(lasts, 2 * timeout if timeout < 600 else timeout)
                self.assertGreaterEqual(lasts, LONGEST)
        self.assertLessEqual(parameter("NoProgressMinutes", ALARMS)["MaxValue"] * MINUTE, DAY, "CloudWatch evaluates no more")

    def test_no_alarm_goes_off_while_a_message_in_conflict_waits(self):
        for timeout in parameter("FunctionTimeout")["AllowedValues"]:
            stack = deployed(FunctionTimeout=timeout)
            grace = int(stack.properties("Function")["Environment"]["Variables"].get("LEASE_GRACE_MS", 1000)) / 1000
            # It waits for its invocation, and then for the lease and up to two seconds.
            self.assertGreater(stack.properties("OldestMessageAlarm")["Threshold"], 2 * timeout + grace + 2)

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
        for path in ALARMS, LEDGER:
            for name, resource in source(path)["Resources"].items():
                if resource["Type"] == "AWS::CloudWatch::Alarm":
                    self.assertTrue([h for h in headings if f"`{name}`" in h], name)
                    (section,) = [s for s in sections if f"`{name}`" in s.splitlines()[0]]
                    for part in "Meaning", "Check", "Action", "Over":
                        self.assertRegex(section, rf"\*\*{part}[.*]|\*\*{part.lower()}\*\*", f"{name}: {part}")
                    severity = "–" if path == LEDGER else r"\*\*page\*\*" if name in PAGES else "ticket"
                    self.assertRegex(runbook, rf"(?m)^\| \[.*`{name}`.*\]\(#.*\) \| {severity} \|", name)

    def test_those_of_the_ledger_watch_its_queues_and_both_functions(self):
        of_ledger = alarms(ledger())
        oldest, there = of_ledger.pop("LedgerOldestMessageAlarm"), deployed().properties("OldestMessageAlarm")
        self.assertEqual({d["QueueName"]["Fn::GetAtt"][0] for _, _, d in metrics(oldest)}, {"Queue"})
        for name in "EvaluationPeriods", "Threshold", "ComparisonOperator":
            self.assertEqual(oldest[name], there[name])
        expressions = [[" ".join(q.get("Expression", "").split()) for q in alarm["Metrics"]] for alarm in (oldest, there)]
        self.assertEqual(*expressions)
        watched = {
            name: (alarm["MetricName"], alarm["Dimensions"][0]["Value"], alarm["Threshold"])
            for name, alarm in of_ledger.items()
        }
        dead_letters = arn_of("DeadLetterQueue", "QueueName")
        expected = {
            "LedgerDeadLettersAlarm": ("ApproximateNumberOfMessagesVisible", dead_letters, 0),
            "LedgerDeadLettersNotSentAlarm": ("DeadLettersNotSent", "payments", 0),
            "LedgerErrorsAlarm": ("Errors", {"Ref": "LedgerFunction"}, 0),
            "BackfillErrorsAlarm": ("Errors", {"Ref": "BackfillFunction"}, 0),
        }
        self.assertEqual(watched, expected)
