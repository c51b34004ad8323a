"""The dashboard: valid JSON without overlaps, every alarm, every metric, and fields that the function logs."""

import json
import re
import unittest

from alarms import alarms
from template import QUEUES, ROOT, combinations, deployed


def dashboard(stack):
    return json.loads(stack.properties("Dashboard")["DashboardBody"])["widgets"]


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
        self.assertEqual(shown, outcomes | taken | {"Done", "Redeliver", "DeadLetters", "DeadLettersNotSent"} | letters())

    def test_it_shows_letters_only_with_a_dead_letter_queue(self):
        for name, queue in QUEUES.items():
            stack = deployed(**queue)
            text = stack.properties("Dashboard")["DashboardBody"]
            self.assertEqual("OldestLetterAlarm" in stack.resources, "DeadLettersMismatch" in text, name)

    def test_its_url_is_that_of_the_partition(self):
        urls = {
            ("aws", "eu-central-1"): "https://console.aws.amazon.com/cloudwatch/home?region=eu-central-1",
            ("aws-us-gov", "us-gov-west-1"): "https://console.amazonaws-us-gov.com/cloudwatch/home?region=us-gov-west-1",
            ("aws-cn", "cn-north-1"): "https://console.amazonaws.cn/cloudwatch/home?region=cn-north-1",
        }
        for (partition, region), url in urls.items():
            stack = deployed(pseudo={"AWS::Partition": partition, "AWS::Region": region})
            self.assertTrue(stack.outputs["Dashboard"]["Value"].startswith(url))

    def test_its_log_query_names_fields_that_the_function_writes(self):
        (query,) = [w["properties"]["query"] for w in dashboard(deployed()) if w["type"] == "log"]
        programs = [path.read_text() for path in (ROOT / "src").rglob("*.rs")]
        # The file that writes the line of a message.
        (written,) = [program for program in programs if re.search(r"\breceive_count =", program)]
        fields = re.findall(r"fields\.(\w+)", query)
        self.assertGreater(len(fields), 5)
        for field in fields:
            self.assertRegex(written, rf"\b{field} =")


def letters():
    """The metrics of messages that the function sent to the dead-letter queue, by the outcomes that it knows."""
    program = (ROOT / "src/sqs/dead_letter.rs").read_text()
    outcomes = re.findall(r"Self::(\w+) => \(?\"([A-Z_]+)\"", program)
    assert len(outcomes) >= 7 and all(name == text.title().replace("_", "") for name, text in outcomes)
    return {f"DeadLetters{name}" for name, _ in outcomes}


def pad(row, above):
    return zip(row, above or row)
