"""The cache: durability, eviction, encryption, replacement, and the users with their access strings."""

import re
import unittest

from template import RECORDS, deployed, parameter, source

NODES = deployed()
SERVERLESS = deployed(CacheKind="serverless")


class Nodes(unittest.TestCase):
    def cache(self):
        return NODES.properties("Cache")

    def test_it_is_valkey_in_cluster_mode(self):
        self.assertEqual((self.cache()["Engine"], self.cache()["ClusterMode"]), ("valkey", "enabled"))
        self.assertEqual(NODES.properties("CacheParameters")["Properties"]["cluster-enabled"], "yes")
        self.assertEqual(deployed(CacheShards=3).properties("Cache")["NumNodeGroups"], 3)

    def test_it_evicts_nothing(self):
        self.assertEqual(self.cache()["CacheParameterGroupName"], {"Ref": "CacheParameters"})
        self.assertEqual(NODES.properties("CacheParameters")["Properties"]["maxmemory-policy"], "noeviction")

    def test_its_parameters_are_of_its_version(self):
        major = self.cache()["EngineVersion"].split(".")[0]
        self.assertEqual(NODES.properties("CacheParameters")["CacheParameterGroupFamily"], f"valkey{major}")

    def test_it_survives_a_zone(self):
        self.assertIs(self.cache()["MultiAZEnabled"], True)
        self.assertIs(self.cache()["AutomaticFailoverEnabled"], True)
        self.assertGreaterEqual(self.cache()["ReplicasPerNodeGroup"], 1)

    def test_a_failover_loses_no_record(self):
        self.assertEqual(self.cache()["Durability"], "sync")
        self.assertGreaterEqual(float(self.cache()["EngineVersion"]), 9.0, "the first with durability")
        family = self.cache()["CacheNodeType"].split(".")[1]
        self.assertIn(family, {"r6g", "r7g", "m6g", "m7g", "c7gn"}, "the families with durability")
        small = deployed(CacheDurability="disabled", CacheNodeType="cache.t4g.small").properties("Cache")
        self.assertEqual((small["Durability"], small["CacheNodeType"]), ("disabled", "cache.t4g.small"))

    def test_it_is_encrypted_on_the_wire_and_at_rest(self):
        self.assertIs(self.cache()["TransitEncryptionEnabled"], True)
        self.assertEqual(self.cache()["TransitEncryptionMode"], "required")
        self.assertIs(self.cache()["AtRestEncryptionEnabled"], True)

    def test_no_change_puts_an_empty_cache_in_its_place(self):
        self.assertEqual(self.cache()["ReplicationGroupId"], "idempotent-sqs-1c2fa620")
        self.assertEqual(source()["Resources"]["Cache"]["UpdatePolicy"], {"UseOnlineResharding": True})
        self.assertEqual(source()["Resources"]["Cache"]["DeletionPolicy"], "Snapshot")


class Serverless(unittest.TestCase):
    def test_it_is_made_in_place_of_nodes(self):
        self.assertEqual(SERVERLESS.properties("ServerlessCache")["Engine"], "valkey")
        self.assertFalse({"Cache", "CacheParameters", "CacheSubnets"} & SERVERLESS.resources.keys())
        self.assertNotIn("ServerlessCache", NODES.resources)

    def test_it_has_no_limit_at_which_it_would_evict(self):
        self.assertNotIn("CacheUsageLimits", SERVERLESS.properties("ServerlessCache"))

    def test_its_eviction_is_named_as_a_risk(self):
        self.assertIn("evicts records", parameter("CacheKind")["Description"])


class Users(unittest.TestCase):
    def test_the_cache_lets_in_the_function_and_operators_only(self):
        for stack in NODES, SERVERLESS:
            self.assertEqual(stack.properties("CacheUsers")["UserIds"], [{"Ref": "CacheUser"}, {"Ref": "OperatorUser"}])
        self.assertEqual(NODES.properties("Cache")["UserGroupIds"], [{"Ref": "CacheUsers"}])
        self.assertEqual(SERVERLESS.properties("ServerlessCache")["UserGroupId"], {"Ref": "CacheUsers"})

    def test_they_come_in_by_iam_under_an_id_that_is_their_name(self):
        for user in NODES.of_type("AWS::ElastiCache::User").values():
            self.assertEqual(user["AuthenticationMode"], {"Type": "iam"})
            self.assertEqual(user["UserId"], user["UserName"])
            self.assertEqual(user["UserId"], user["UserId"].lower())
            self.assertLessEqual(len(user["UserId"]), 40)

    def test_they_reach_the_keys_of_this_function_only(self):
        for namespace, stack in {"payments": NODES, "orders": deployed(Namespace="orders")}.items():
            for user in stack.of_type("AWS::ElastiCache::User").values():
                words = user["AccessString"].split()
                self.assertEqual(words[:4], ["on", f"~{namespace}:*", "resetchannels", "-@all"])
                self.assertFalse([w for w in words[4:] if not w.startswith("+") or "@" in w], words)

    def test_users_lack_commands_that_they_do_not_need(self):
        function = NODES.properties("CacheUser")["AccessString"].split()
        operator = NODES.properties("OperatorUser")["AccessString"].split()
        self.assertFalse({"+del", "+unlink", "+scan", "+keys"} & set(function))
        self.assertNotIn("+set", operator)

    def test_no_namespace_reads_as_a_pattern_or_as_part_of_another(self):
        pattern = parameter("Namespace")["AllowedPattern"]
        for bad in "a:b", "a*", "a?", "[a]", "a b", "a\\":
            self.assertIsNone(re.fullmatch(pattern.strip("^$"), bad), bad)

    def test_a_redis_of_ones_own_is_left_as_it_is(self):
        for name in "its own Redis", "its own ElastiCache with IAM":
            kinds = {r["Type"] for r in deployed(**RECORDS[name]).resources.values()}
            self.assertFalse([kind for kind in kinds if "ElastiCache" in kind])

    def test_what_belongs_to_a_redis_of_ones_own_is_refused_without_it(self):
        self.assertTrue(deployed(RedisIamUser="orders", RedisIamCache="c").refused_by())
        self.assertTrue(deployed(RedisSecretArn=RECORDS["its own Redis with a secret"]["RedisSecretArn"]).refused_by())
        self.assertTrue(deployed(RedisUrl="redis://redis.example.com", RedisIamUser="orders").refused_by())
