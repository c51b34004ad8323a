"""Tests of `make cost`: its arithmetic on cases that were computed by hand, and the tables of docs/cost.md."""

import subprocess
import sys
import unittest
from pathlib import Path

COST = Path(__file__).resolve().parents[2] / "scripts" / "cost"
sys.path.insert(0, str(COST))

import figures
import growth
import model
import page
from model import load_of

LARGE = next(node for node in figures.NODES if node.type == "cache.m7g.large")


class Arithmetic(unittest.TestCase):
    def test_a_line_goes_through_its_points(self):
        start, slope = model.line([(1, 5), (2, 7), (4, 11)])
        self.assertAlmostEqual(start, 3)
        self.assertAlmostEqual(slope, 2)

    def test_tiers_apply_to_what_exceeds_them(self):
        # 10,000 GB of logs at 0.50, 20,000 at 0.25, 20,000 at 0.10 and 10,000 at 0.05.
        self.assertAlmostEqual(model.usd("logs", 60_000), 12_500)
        self.assertAlmostEqual(model.usd("logs", 100), 50)
        self.assertAlmostEqual(model.usd("NAT gateway", 730), 32.85)

    def test_a_window_fills_batches_of_five_pollers(self):
        self.assertEqual(model.messages_per_batch(load_of(100, batch=100, window_s=1)), 20)
        self.assertEqual(model.messages_per_batch(load_of(100, batch=10, window_s=1)), 10)
        self.assertEqual(model.messages_per_batch(load_of(100, batch=10, window_s=0)), 1)

    def test_lambda_keeps_at_most_200_provisioned_pollers_for_each_queue(self):
        self.assertEqual(growth.pollers(load_of(10_000)), 100)
        self.assertIsNone(growth.pollers(load_of(100_000)))

    def test_an_event_of_6_mib_limits_the_batch(self):
        # 6,291,456 bytes ÷ (1,034 + 98,966).
        self.assertEqual(model.largest_batch(load_of(1, batch=100, body_bytes=98_966)), 62)

    def test_an_invocation_takes_two_calls_of_redis_and_the_turns_of_its_work(self):
        # 20 messages are two turns of 16. 1,769 MB are a whole vCPU, and sync takes 3 ms a call.
        load = load_of(1, profile="durable", memory_mb=1769, work_ms=50)
        record, invocation = model.line([(1 / batch, micros) for batch, micros in figures.FUNCTION_MICROS])
        self.assertAlmostEqual(model.batch_ms(load, 20), 2 * 3 + 2 * 50 + (20 * record + invocation) / 1000)

    def test_a_failed_delivery_comes_again(self):
        self.assertAlmostEqual(model.deliveries(load_of(99, failed_percent=1)), 100)
        # Each calls the webhook and Redis again.
        once, twice = (dict(model.network_lines(load_of(10, failed_percent=percent))) for percent in (0, 50))
        for line in ("webhook calls by NAT to the internet", "data to Redis between zones"):
            self.assertAlmostEqual(twice[line] / once[line], 2)
        once, twice = (model.sqs_requests(load_of(1000, failed_percent=percent)) for percent in (0, 50))
        self.assertAlmostEqual(twice / once, 2 + 1000 / once)

    def test_memory_needs_shards(self):
        # 100 a second for 14 days are 120,960,000 records of 213 bytes, 25.8 GB. Half of 6.38 GiB is 3.43 GB: 8 shards.
        self.assertEqual(model.records(load_of(100)), 120_960_000)
        self.assertEqual(model.shards_for(load_of(100), LARGE), 8)

    def test_cpu_needs_shards(self):
        for rate in range(100_000, 500_000, 50_000):
            load = load_of(rate, retention_days=0.001)
            shards = model.shards_for(load, LARGE)
            self.assertGreaterEqual(model.messages_per_second(LARGE, shards, 16), model.deliveries(load))
            self.assertLess(model.messages_per_second(LARGE, shards - 1, 16), model.deliveries(load))

    def test_more_shards_make_more_script_runs(self):
        # A batch of 10 is a claim and a settlement: 2 runs on one shard, 6 on three.
        self.assertAlmostEqual(model.runs_per_record(10, 1), 0.2)
        self.assertAlmostEqual(model.runs_per_record(10, 3), 0.6)
        self.assertAlmostEqual(model.runs_per_record(10, 90), 2)
        self.assertAlmostEqual(model.runs_per_record(1000, 1), 2 / 64)

    def test_redis_takes_about_what_was_measured(self):
        for shards, batch, micros in figures.REDIS_MICROS:
            self.assertAlmostEqual(model.redis_micros(batch, shards) / micros, 1, delta=0.2)

    def test_consumers_make_a_receive_and_a_deletion_for_ten_messages(self):
        # 10 receives and 10 deletions for 10 batches of 10, and a change of visibility for each failure.
        load = load_of(99, batch=10, window_s=1)
        self.assertAlmostEqual(model.sqs_requests(load), 10 + 10 + 1)
        # Ten bodies of 64 KiB are ten requests to receive them.
        large = load._replace(body_bytes=65_536)
        self.assertAlmostEqual(model.sqs_requests(large), 100 + 10 + 1)
        self.assertAlmostEqual(model.sqs_requests(load._replace(body_bytes=0)), 10 + 10 + 1)
        # Five pollers with long polls of 20 s.
        self.assertAlmostEqual(model.sqs_requests(load_of(0)), 0.25)

    def test_the_idle_profiles(self):
        totals = {name: round(sum(model.bill(load_of(0, profile=name)).values()), 2) for name in figures.FLEETS}
        for name, nodes in {"dev": 1 * 0.0128, "standard": 2 * 0.0256}.items():
            # A NAT gateway with an address, SQS requests, alarms and a dashboard.
            alarms = 0.1 * figures.FLEETS[name].alarm_metrics + 3
            self.assertAlmostEqual(totals[name], nodes * 730 + 0.05 * 730 + 0.2628 + alarms, places=2)
        self.assertAlmostEqual(totals["dev"] - totals["dev-ipv6"], 0.05 * 730)
        bill = model.bill(load_of(0, profile="durable"))
        self.assertAlmostEqual(bill["Redis nodes"], 2 * 0.1264 * 730)
        self.assertAlmostEqual(bill["durability by sync"], 0.18 * 2 * 0.1264 * 730)
        self.assertAlmostEqual(bill["NAT gateway and its address"], 0.05 * 730)
        self.assertEqual(bill["SQS endpoint"], 0)
        endpoint = model.bill(load_of(0, profile="standard-endpoint"))
        self.assertAlmostEqual(endpoint["SQS endpoint"], 2 * 0.01 * 730)
        self.assertEqual(endpoint["NAT gateway and its address"], 0)
        self.assertAlmostEqual(bill["alarms and dashboard"], 2.00 + 3)
        self.assertAlmostEqual(bill["SQS requests of the consumer"], 0.25 * 730 * 3600 / 1e6 * 0.40)
        self.assertAlmostEqual(sum(bill.values()), 259.52, places=2)

    def test_lambda_bills_whole_milliseconds(self):
        load = load_of(1, failed_percent=0, memory_mb=1024)
        self.assertEqual(model.messages_per_batch(load), 1)
        billed = -(-model.batch_ms(load, 1) // 1)
        seconds = 730 * 3600 * billed / 1000
        self.assertAlmostEqual(model.bill(load)["Lambda time"], seconds * 0.0000133334)
        self.assertAlmostEqual(model.bill(load)["Lambda requests"], 730 * 3600 / 1e6 * 0.20)


class Growth(unittest.TestCase):
    def test_a_ramp_that_is_fast_enough_has_no_backlog(self):
        self.assertEqual(growth.ramp(100, 20, 5, 300, 1250), growth.Ramp(0, 0, 1))

    def test_a_ramp_catches_up(self):
        # 10 messages a second arrive, so 10, 20, 30. Workers are 1, 2, 3 and do 5 a second each, so 5, 15, 30 are done.
        self.assertEqual(growth.ramp(10, 5, 1, 60, 3), growth.Ramp(5, 0.5, 3))

    def test_a_backlog_that_grows_has_no_end(self):
        self.assertIsNone(growth.ramp(10, 5, 1, 60, 1).drained_s)

    def test_ceilings_rise(self):
        rates = [row.rate for row in growth.ceilings(load_of(1))]
        self.assertEqual(rates, sorted(rates))
        self.assertTrue(growth.ceilings(load_of(1))[0].resource.startswith("memory of a cache.t4g.small"))

    def test_a_million_a_second_needs_several_queues(self):
        self.assertEqual(growth.queues(load_of(1)), 1)
        # 10,101 invocations a second of 356 ms are 3,595 concurrent ones, and a mapping has at most 1,250.
        self.assertEqual(growth.queues(load_of(1_000_000)), 3)


class Page(unittest.TestCase):
    def test_the_tables_of_the_page_are_those_of_the_calculator(self):
        self.assertEqual(page.PAGE.read_text(), page.rendered(), "run `python3 scripts/cost/main.py --write`")

    def test_numbers_have_three_digits(self):
        cases = {0.05698: "0.0570", 1.76: "1.76", 13.29: "13.3", 47_446: "47,400", 999.6: "1,000", 0: "0"}
        for value, text in cases.items():
            self.assertEqual(page.number(value), text)


class Command(unittest.TestCase):
    def run_with(self, *arguments):
        command = [sys.executable, "-B", str(COST / "main.py"), *arguments]
        return subprocess.run(command, capture_output=True, text=True)

    def test_every_profile_prints_a_bill(self):
        for profile in figures.FLEETS:
            done = self.run_with("RATE=0.5", f"PROFILE={profile}")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("a month", done.stdout)

    def test_a_wrong_option_is_an_error_that_names_it(self):
        for wrong, named in {
            "RATE=x": "RATE", "RATE=0": "RATE", "PROFILE=none": "PROFILE", "SPEED=1": "SPEED", "BATCH=20": "WINDOW_S",
        }.items():
            done = self.run_with("RATE=1", wrong) if wrong.startswith("BATCH") else self.run_with(wrong)
            self.assertEqual(done.returncode, 1)
            self.assertIn(named, done.stderr)
            self.assertNotIn("Traceback", done.stderr)


if __name__ == "__main__":
    unittest.main()
