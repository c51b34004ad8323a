"""The cache: durability, eviction, encryption, replacement, and the users with their access strings."""

import json
import re
import unittest

from template import CACHE, RECORDS, ROOT, deployed, parameter, source

NODES = deployed(Profile="durable")
SERVERLESS = deployed(CacheNodeType="serverless")


class Nodes(unittest.TestCase):
    def cache(self):
        return NODES.properties("Cache")

    def test_it_is_valkey_in_cluster_mode(self):
        self.assertEqual((self.cache()["Engine"], self.cache()["ClusterMode"]), ("valkey", "enabled"))
        self.assertEqual(NODES.properties("CacheParameters")["Properties"]["cluster-enabled"], "yes")
        self.assertEqual(self.cache()["NumNodeGroups"], 1)

    def test_it_evicts_nothing(self):
        self.assertEqual(self.cache()["CacheParameterGroupName"], {"Ref": "CacheParameters"})
        self.assertEqual(NODES.properties("CacheParameters")["Properties"]["maxmemory-policy"], "noeviction")

    def test_its_parameters_are_of_its_version(self):
        major = self.cache()["EngineVersion"].split(".")[0]
        self.assertEqual(NODES.properties("CacheParameters")["CacheParameterGroupFamily"], f"valkey{major}")

    def test_its_version_changes_only_by_a_deployment(self):
        self.assertIs(self.cache()["AutoMinorVersionUpgrade"], False)

    def test_it_survives_a_zone(self):
        for profile in "standard", "durable":
            cache = deployed(Profile=profile).properties("Cache")
            self.assertIs(cache["MultiAZEnabled"], True)
            self.assertIs(cache["AutomaticFailoverEnabled"], True)
            self.assertGreaterEqual(cache["ReplicasPerNodeGroup"], 1)

    def test_the_profile_decides_nodes_durability_and_backups(self):
        names = "CacheNodeType", "ReplicasPerNodeGroup", "MultiAZEnabled", "Durability", "SnapshotRetentionLimit"
        expected = {
            "dev": ("cache.t4g.micro", 0, False, "disabled", 0),
            "standard": ("cache.t4g.small", 1, True, "disabled", 1),
            "durable": ("cache.m7g.large", 1, True, "sync", 7),
        }
        self.assertEqual(parameter("Profile")["AllowedValues"], list(expected))
        self.assertEqual(parameter("Profile")["Default"], "standard")
        for profile, values in expected.items():
            cache = deployed(Profile=profile).properties("Cache")
            self.assertEqual(tuple(cache[name] for name in names), values)
            larger = deployed(Profile=profile, CacheNodeType="cache.r7g.large").properties("Cache")
            self.assertEqual(larger["CacheNodeType"], "cache.r7g.large")

    def test_it_is_restored_from_a_snapshot(self):
        self.assertNotIn("SnapshotName", self.cache())
        self.assertEqual(deployed(SnapshotName="last-night").properties("Cache")["SnapshotName"], "last-night")
        arn = "arn:aws:elasticache:eu-central-1:123456789012:serverlesssnapshot:last-night"
        restored = deployed(CacheNodeType="serverless", SnapshotName=arn).properties("ServerlessCache")
        self.assertEqual(restored["SnapshotArnsToRestore"], [arn])
        self.assertNotIn("SnapshotArnsToRestore", SERVERLESS.properties("ServerlessCache"))

    def test_a_node_that_is_not_durable_is_refused_with_the_profile_durable(self):
        # https://docs.aws.amazon.com/AmazonElastiCache/latest/dg/Durability.Limitations.html
        durable = [f"cache.{family}.large" for family in ("r6g", "r7g", "m6g", "m7g", "c7gn")]
        # https://docs.aws.amazon.com/AmazonElastiCache/latest/dg/CacheNodes.SupportedTypes.html
        sizes = {
            "t2 t3 t4g": "micro small medium",
            "m4": "large xlarge 2xlarge 4xlarge 10xlarge",
            "m5 r5": "large xlarge 2xlarge 4xlarge 12xlarge 24xlarge",
            "r4": "large xlarge 2xlarge 4xlarge 8xlarge 16xlarge",
            "r6gd": "xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge",
        }
        others = [f"cache.{f}.{size}" for fs, each in sizes.items() for f in fs.split() for size in each.split()]
        refusal = ["No node of the families t2, t3, t4g, m4, m5, r4, r5 and r6gd is durable."]
        for node in durable + others:
            refused = deployed(Profile="durable", CacheNodeType=node).refused_by()
            self.assertEqual(refused, refusal if node in others else [], node)
            self.assertEqual(deployed(CacheNodeType=node).refused_by(), [], node)

    def test_a_failover_loses_no_record(self):
        self.assertEqual(self.cache()["Durability"], "sync")
        self.assertGreaterEqual(float(self.cache()["EngineVersion"]), 9.0, "the first with durability")
        family = self.cache()["CacheNodeType"].split(".")[1]
        self.assertIn(family, {"r6g", "r7g", "m6g", "m7g", "c7gn"}, "the families with durability")

    def test_it_is_encrypted_on_the_wire_and_at_rest(self):
        self.assertIs(self.cache()["TransitEncryptionEnabled"], True)
        self.assertEqual(self.cache()["TransitEncryptionMode"], "required")
        self.assertIs(self.cache()["AtRestEncryptionEnabled"], True)

    def test_no_change_puts_an_empty_cache_in_its_place(self):
        self.assertEqual(self.cache()["ReplicationGroupId"], "idempotent-sqs-1c2fa620")
        resource = source(CACHE)["Resources"]["Cache"]
        self.assertEqual(resource["UpdatePolicy"], {"UseOnlineResharding": True})
        self.assertEqual((resource["DeletionPolicy"], resource["UpdateReplacePolicy"]), ("Snapshot", "Snapshot"))
        serverless = SERVERLESS.properties("ServerlessCache")
        self.assertEqual(serverless["ServerlessCacheName"], "idempotent-sqs-1c2fa620")
        self.assertEqual(serverless["FinalSnapshotName"], "idempotent-sqs-1c2fa620-final")
        self.assertEqual(source(CACHE)["Resources"]["ServerlessCache"]["UpdateReplacePolicy"], "Retain")

    def test_the_stack_policy_protects_what_has_records_or_messages(self):
        statements = json.loads((ROOT / "templates/stack-policy.json").read_text())["Statement"]
        allow, deny = statements
        self.assertEqual((allow["Effect"], allow["Action"], allow["Resource"]), ("Allow", "Update:*", "*"))
        self.assertEqual((deny["Effect"], deny["Resource"]), ("Deny", "*"))
        self.assertEqual(deny["Action"], ["Update:Replace", "Update:Delete"])
        kinds = set(deny["Condition"]["StringEquals"]["ResourceType"])
        stacks = [NODES, SERVERLESS]
        created = {resource["Type"] for stack in stacks for resource in stack.resources.values()}
        kept = {"AWS::SQS::Queue", "AWS::ElastiCache::ReplicationGroup", "AWS::ElastiCache::ServerlessCache"}
        self.assertEqual(kinds, kept | {"AWS::CloudFormation::Stack", "AWS::Logs::LogGroup"})
        self.assertLessEqual(kinds - {"AWS::CloudFormation::Stack"}, created)


class Serverless(unittest.TestCase):
    def test_it_is_made_in_place_of_nodes(self):
        self.assertEqual(SERVERLESS.properties("ServerlessCache")["Engine"], "valkey")
        self.assertFalse({"Cache", "CacheParameters", "CacheSubnets"} & SERVERLESS.resources.keys())
        self.assertNotIn("ServerlessCache", NODES.resources)

    def test_it_has_no_limit_at_which_it_would_evict(self):
        self.assertNotIn("CacheUsageLimits", SERVERLESS.properties("ServerlessCache"))

    def test_its_eviction_is_named_as_a_risk(self):
        self.assertIn("evicts records", parameter("CacheNodeType")["Description"])

    def test_it_is_not_durable(self):
        self.assertTrue(deployed(CacheNodeType="serverless", Profile="durable").refused_by())


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
        for name in "its own Redis with a secret", "its own ElastiCache with IAM":
            self.assertTrue(deployed(RedisCredentials=RECORDS[name]["RedisCredentials"]).refused_by())
        self.assertTrue(deployed(RedisCluster="true").refused_by())

    def test_what_belongs_to_the_cache_of_the_stack_is_refused_with_a_redis_of_ones_own(self):
        for given in {"CacheNodeType": "cache.m7g.large"}, {"SnapshotName": "last-night"}:
            self.assertTrue(deployed(**RECORDS["its own Redis"], **given).refused_by())

    def test_a_redis_of_ones_own_is_a_server_or_has_sentinels(self):
        pattern = parameter("RedisUrl")["AllowedPattern"]
        for good in "redis://a", "rediss://a:6379/2", "redis+sentinel://a,b:1/main", "rediss+sentinel://[::1],b/main/2":
            self.assertTrue(re.search(pattern, good), good)
        for bad in "a:6379", "http://a", "redis://", "redis+sentinels://a/main":
            self.assertIsNone(re.search(pattern, bad), bad)

    def test_credentials_are_a_secret_or_a_user_and_its_cache(self):
        secret, user = (RECORDS[f"its own {name}"]["RedisCredentials"] for name in ("Redis with a secret", "ElastiCache with IAM"))
        pattern = parameter("RedisCredentials")["AllowedPattern"]
        for good in "", secret, user, user.replace("replicationgroup", "serverlesscache"):
            self.assertTrue(re.search(pattern, good), good)
        for bad in user.split(",")[0], user.split(",")[1], f"{secret},{secret}", ",".join(reversed(user.split(","))):
            self.assertIsNone(re.search(pattern, bad), bad)
