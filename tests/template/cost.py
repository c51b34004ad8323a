"""The fleets of `make cost` are what the template deploys with their parameters."""

import sys
import unittest

from template import ROOT, deployed

sys.path.insert(0, str(ROOT / "scripts" / "cost"))

from figures import BATCH_CONCURRENCY, FLEETS, MAXIMUM_CONCURRENCY


def alarm_metrics(stack):
    """CloudWatch bills each metric of an alarm, also those of an expression."""
    alarms = stack.of_type("AWS::CloudWatch::Alarm").values()
    return sum(sum("MetricStat" in metric for metric in alarm.get("Metrics", [])) or 1 for alarm in alarms)


def cache_of(stack):
    """Node type, shards, nodes of a shard and durability."""
    for cache in stack.of_type("AWS::ElastiCache::ReplicationGroup").values():
        shards, copies = int(cache["NumNodeGroups"]), 1 + int(cache["ReplicasPerNodeGroup"])
        return cache["CacheNodeType"], shards, copies, cache["Durability"]
    return None, 0, 0, "disabled"


class Cost(unittest.TestCase):
    def test_a_fleet_is_what_is_deployed(self):
        for name, fleet in FLEETS.items():
            with self.subTest(name):
                stack = deployed(**fleet.parameters)
                self.assertEqual(cache_of(stack), (fleet.node, fleet.shards, fleet.copies, fleet.durability))
                self.assertEqual(len(stack.of_type("AWS::EC2::NatGateway")), fleet.nat_gateways)
                endpoints = stack.of_type("AWS::EC2::VPCEndpoint").values()
                zones = [len(each["SubnetIds"]) for each in endpoints if each["VpcEndpointType"] == "Interface"]
                self.assertEqual(sum(zones), fleet.endpoint_zones)
                self.assertEqual(alarm_metrics(stack), fleet.alarm_metrics)
                self.assertEqual(len(stack.of_type("AWS::CloudWatch::Dashboard")), 1)

    def test_the_calculator_has_the_defaults_of_the_function(self):
        stack = deployed()
        self.assertEqual(int(stack.variables()["BATCH_CONCURRENCY"]), BATCH_CONCURRENCY)
        self.assertEqual(int(stack.parameters["MaximumConcurrency"]), MAXIMUM_CONCURRENCY)
