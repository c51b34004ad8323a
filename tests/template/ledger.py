"""The ledger example: the functions, settings, rights and Redis user of examples/ledger/template.yaml."""

import tomllib
import unittest

from template import (
    DATABASE_SIGN_INS,
    LEDGER,
    LEDGER_NETWORKS,
    MAIN,
    REDIS_SIGN_INS,
    ROOT,
    arn_of,
    as_list,
    combinations,
    deployed,
    ledger,
    source,
)

# Each function, with its role, its log group and its package.
FUNCTIONS = {
    "LedgerFunction": ("LedgerRole", "LedgerLogGroup", "examples/ledger"),
    "BackfillFunction": ("BackfillRole", "BackfillLogGroup", "crates/postgres"),
}
ACCOUNT = "eu-central-1:123456789012"

# Settings of the webhook's function only.
OF_THE_WEBHOOK = ("TARGET_", "PAYLOAD_", "RESULT_", "IDEMPOTENCY_KEY", "IDEMPOTENCY_FINGERPRINT")
OF_THE_WEBHOOK += ("IDEMPOTENCY_ENVELOPE", "IDEMPOTENCY_RECOVERY", "AWS_ENDPOINT_URL_SQS")


def statements(function, **parameters):
    stack = ledger(**parameters)
    role = stack.properties(FUNCTIONS[function][0])
    shared = [stack.properties(policy["Ref"]) for policy in role["ManagedPolicyArns"]]
    documents = [policy["PolicyDocument"] for policy in [*role.get("Policies", []), *shared]]
    return [statement for document in documents for statement in document["Statement"]]


def allowed(function, action, **parameters):
    """The resources that the action is allowed on."""
    found = [s for s in statements(function, **parameters) if s["Effect"] == "Allow" and action in as_list(s["Action"])]
    return [resource for s in found for resource in as_list(s["Resource"])]


class Functions(unittest.TestCase):
    def test_the_main_template_has_nothing_of_the_ledger(self):
        for name, parameters in combinations():
            stack = deployed(**parameters)
            text = str(stack.resources) + str(stack.outputs)
            for word in "ledger", "Ledger", "ackfill", "elay", "DATABASE_", "INBOX_", "rds-db":
                self.assertNotIn(word, text, name)
            self.assertEqual(len(stack.of_type("AWS::Lambda::Function")), 1)

    def test_it_creates_neither_a_cache_nor_a_database_nor_a_network(self):
        permitted = {"AWS::ElastiCache::User"}
        for name, parameters in combinations(LEDGER):
            kinds = {resource["Type"] for resource in ledger(**parameters).resources.values()}
            others = [k for k in kinds - permitted if k.startswith(("AWS::ElastiCache", "AWS::RDS", "AWS::EC2"))]
            self.assertEqual(others, [], name)
            self.assertEqual(len(ledger(**parameters).of_type("AWS::Lambda::Function")), 2)

    def test_each_is_a_binary_of_its_package(self):
        for function, (*_, package) in FUNCTIONS.items():
            resource = source(LEDGER)["Resources"][function]
            self.assertEqual((LEDGER.parent / resource["Properties"]["CodeUri"]).resolve(), ROOT / package)
            metadata = resource["Metadata"]
            self.assertEqual(metadata["BuildMethod"], "rust-cargolambda")
            self.assertEqual(metadata["BuildProperties"].keys(), {"Binary"})
            manifest = tomllib.loads((ROOT / package / "Cargo.toml").read_text())
            binaries = {each["name"]: each for each in manifest.get("bin", [])}
            # A package with src/main.rs has a binary of its own name.
            if not binaries:
                binaries = {manifest["package"]["name"]: {}}
            binary = binaries[metadata["BuildProperties"]["Binary"]]
            # SAM passes no features to cargo-lambda.
            lambda_metadata = manifest["package"].get("metadata", {}).get("lambda", {}).get("bin", {})
            built_with = lambda_metadata.get(metadata["BuildProperties"]["Binary"], {}).get("build", {}).get("features", [])
            default = manifest.get("features", {}).get("default", [])
            self.assertLessEqual(set(binary.get("required-features", [])), {*built_with, *default})

    def test_they_run_as_the_function_does(self):
        alike = "Runtime", "Handler", "Architectures", "MemorySize"
        for architecture in "arm64", "x86_64":
            there = deployed(Architecture=architecture).properties("Function")
            stack = ledger(Architecture=architecture)
            for function, (role, group, _) in FUNCTIONS.items():
                here = stack.properties(function)
                self.assertEqual([here.get(name) for name in alike], [there.get(name) for name in alike])
                self.assertEqual(here["Role"], arn_of(role))
                self.assertEqual(here["LoggingConfig"], {"LogFormat": "JSON", "LogGroup": {"Ref": group}})

    def test_they_run_in_the_vpc_that_is_given(self):
        network = LEDGER_NETWORKS["a VPC"]
        expected = {name: ids.split(",") for name, ids in network.items()}
        for function in FUNCTIONS:
            self.assertEqual(ledger(**network).properties(function)["VpcConfig"], expected)
            self.assertNotIn("VpcConfig", ledger().properties(function))

    def test_half_a_network_is_refused(self):
        for name, value in LEDGER_NETWORKS["a VPC"].items():
            self.assertTrue(ledger(**{name: value}).refused_by())

    def test_each_has_a_log_group_with_a_retention(self):
        names = set()
        for _, group, _ in FUNCTIONS.values():
            properties = ledger().properties(group)
            self.assertEqual(properties["RetentionInDays"], 30)
            names.add(properties["LogGroupName"])
        self.assertEqual(names, {"/aws/lambda/payments", "/aws/lambda/payments-backfill"})

    def test_they_find_redis_where_they_are_told_and_as_a_user_of_their_own(self):
        for name, records in REDIS_SIGN_INS.items():
            for function in FUNCTIONS:
                variables = ledger(**records).variables(function)
                of_redis = {name: value for name, value in variables.items() if name.startswith("REDIS_")}
                iam = {"Ref": "RedisUser"} if "RedisIamCache" in records else ""
                expected = {
                    "REDIS_URL": records.get("RedisUrl", ledger().parameters["RedisUrl"]),
                    "REDIS_CLUSTER": records.get("RedisCluster", "false"),
                    "REDIS_TIMEOUT_MS": int(deployed().variables()["REDIS_TIMEOUT_MS"]),
                    "REDIS_SECRET_ARN": records.get("RedisSecretArn", ""),
                    "REDIS_IAM_USER": iam,
                    "REDIS_IAM_CACHE": records.get("RedisIamCache", ""),
                    "REDIS_IAM_SERVERLESS": records.get("RedisIamServerless", "false"),
                }
                self.assertEqual(of_redis, expected, name)

    def test_they_have_one_namespace(self):
        for namespace, expected in {"": "payments", "orders": "orders"}.items():
            stack = ledger(Namespace=namespace)
            for function in FUNCTIONS:
                self.assertEqual(stack.variables(function)["IDEMPOTENCY_NAMESPACE"], expected)
            self.assertEqual(stack.outputs["Namespace"]["Value"], expected)
            # The default of the function.
            key = stack.outputs["IdempotencyKey"]["Value"]
            self.assertIn(f'const KEY: &str = "{key}";', (ROOT / "examples/ledger/src/main.rs").read_text())

    def test_the_ledger_has_every_setting_that_the_function_has_but_for_the_webhook(self):
        expected = {name for name in deployed().variables() if not name.startswith(OF_THE_WEBHOOK)}
        variables = ledger().variables("LedgerFunction")
        own = {name for name in variables if name.startswith(("DATABASE_", "INBOX_"))}
        self.assertEqual(variables.keys(), expected | own | {"IDEMPOTENCY_RESULT_MAX_BYTES"})
        self.assertEqual(len(own), 6)

    def test_the_backfill_has_the_settings_of_the_ledger_that_it_reads(self):
        stack = ledger()
        backfill, of_ledger = stack.variables("BackfillFunction"), stack.variables("LedgerFunction")
        self.assertEqual(backfill.keys() - of_ledger.keys(), {"BACKFILL_ROWS_PER_SECOND"})
        shared = {name: value for name, value in backfill.items() if name != "BACKFILL_ROWS_PER_SECOND"}
        self.assertEqual({name: of_ledger[name] for name in shared}, shared)

    def test_they_sign_in_to_the_database_alike(self):
        for name, parameters in DATABASE_SIGN_INS.items():
            for function in FUNCTIONS:
                stack = ledger(**parameters)
                variables = stack.variables(function)
                self.assertEqual(variables["DATABASE_URL"], stack.parameters["DatabaseUrl"])
                self.assertEqual(variables["DATABASE_SECRET_ARN"], parameters.get("DatabaseSecretArn", ""))
                self.assertEqual(variables["DATABASE_IAM"], "true" if name == "a user of RDS" else "false")

    def test_a_serverless_cache_without_its_name_is_refused(self):
        refused = ledger(RedisIamServerless="true", RedisCluster="true").refused_by()
        self.assertEqual(refused, ["RedisIamServerless requires RedisIamCache."])

    def test_a_serverless_cache_without_the_cluster_protocol_is_refused(self):
        refused = ledger(RedisIamServerless="true", RedisIamCache="orders-cache").refused_by()
        self.assertEqual(refused, ["RedisIamServerless requires RedisCluster to be true."])

    def test_two_ways_to_sign_in_to_redis_are_refused(self):
        both = REDIS_SIGN_INS["a secret for Redis"] | REDIS_SIGN_INS["a user of a node-based cache"]
        self.assertEqual(ledger(**both).refused_by(), ["RedisSecretArn and RedisIamCache are mutually exclusive."])
        for parameters in REDIS_SIGN_INS.values():
            self.assertFalse(ledger(**parameters).refused_by())

    def test_two_ways_to_sign_in_to_the_database_are_refused(self):
        both = DATABASE_SIGN_INS["a secret for the database"] | DATABASE_SIGN_INS["a user of RDS"]
        self.assertTrue(ledger(**both).refused_by())
        for parameters in DATABASE_SIGN_INS.values():
            self.assertFalse(ledger(**parameters).refused_by())

    def test_the_backfill_runs_each_minute_and_alone(self):
        stack = ledger()
        backfill = stack.properties("BackfillFunction")
        self.assertEqual(backfill["ReservedConcurrentExecutions"], 1)
        self.assertGreaterEqual(backfill["Timeout"], 60)
        (rule,) = stack.of_type("AWS::Events::Rule").values()
        self.assertEqual(rule["ScheduleExpression"], "rate(1 minute)")
        self.assertEqual([target["Arn"] for target in rule["Targets"]], [arn_of("BackfillFunction")])
        (permission,) = stack.of_type("AWS::Lambda::Permission").values()
        self.assertEqual(permission["Principal"], "events.amazonaws.com")
        self.assertEqual(permission["FunctionName"], {"Ref": "BackfillFunction"})
        (invocations,) = stack.of_type("AWS::Lambda::EventInvokeConfig").values()
        self.assertEqual((invocations["MaximumRetryAttempts"], invocations["MaximumEventAgeInSeconds"]), (0, 60))

    def test_the_ledger_has_no_reserved_concurrency(self):
        self.assertNotIn("ReservedConcurrentExecutions", ledger().properties("LedgerFunction"))

    def test_no_message_is_filtered_away(self):
        (mapping,) = ledger().of_type("AWS::Lambda::EventSourceMapping").values()
        self.assertNotIn("FilterCriteria", mapping)

    def test_connections_fit_the_default_of_postgresql(self):
        stack = ledger()
        each = stack.variables("LedgerFunction")["BATCH_CONCURRENCY"]
        # 100, of which 3 are reserved for superusers. The backfill uses as many as one invocation.
        self.assertLessEqual((int(stack.parameters["MaximumConcurrency"]) + 1) * each, 100 - 3)


class Rights(unittest.TestCase):
    def test_lambda_alone_assumes_the_roles(self):
        for role, *_ in FUNCTIONS.values():
            (statement,) = ledger().properties(role)["AssumeRolePolicyDocument"]["Statement"]
            self.assertEqual(statement["Principal"], {"Service": "lambda.amazonaws.com"})

    def test_the_ledger_has_its_queue_and_no_other_and_the_backfill_none(self):
        for action in "ReceiveMessage", "DeleteMessage", "GetQueueAttributes", "ChangeMessageVisibility":
            self.assertEqual(allowed("LedgerFunction", f"sqs:{action}"), [arn_of("Queue")])
            self.assertEqual(allowed("BackfillFunction", f"sqs:{action}"), [])
        self.assertEqual(allowed("LedgerFunction", "sqs:SendMessage"), [arn_of("DeadLetterQueue")])
        self.assertEqual(allowed("BackfillFunction", "sqs:SendMessage"), [])

    def test_they_write_the_logs_of_this_stack(self):
        groups = [arn_of(group) for _, group, _ in FUNCTIONS.values()]
        for function in FUNCTIONS:
            for action in "logs:CreateLogStream", "logs:PutLogEvents":
                self.assertEqual(allowed(function, action), groups)

    def test_they_connect_to_the_cache_as_their_user(self):
        user = arn_of("RedisUser")
        kinds = {"a user of a node-based cache": "replicationgroup", "a user of a serverless cache": "serverlesscache"}
        for function in FUNCTIONS:
            for name, parameters in REDIS_SIGN_INS.items():
                cache = f"arn:aws:elasticache:{ACCOUNT}:{kinds.get(name)}:orders-cache"
                expected = [cache, user] if name in kinds else []
                self.assertEqual(allowed(function, "elasticache:Connect", **parameters), expected)

    def test_they_sign_in_to_the_database_by_its_secret_or_its_user(self):
        redis, secret = REDIS_SIGN_INS["a secret for Redis"], DATABASE_SIGN_INS["a secret for the database"]
        iam = DATABASE_SIGN_INS["a user of RDS"]
        for function in FUNCTIONS:
            secrets = [redis["RedisSecretArn"], secret["DatabaseSecretArn"]]
            self.assertEqual(allowed(function, "secretsmanager:GetSecretValue", **redis, **secret), secrets)
            self.assertEqual(allowed(function, "rds-db:connect", **secret), [])
            self.assertEqual(allowed(function, "rds-db:connect", **iam), [iam["DatabaseUserArn"]])
            self.assertEqual(allowed(function, "secretsmanager:GetSecretValue", **iam), [])

    def test_their_code_creates_no_network_interfaces(self):
        for function in FUNCTIONS:
            whole = [s for s in statements(function, **LEDGER_NETWORKS["a VPC"]) if as_list(s["Resource"]) == ["*"]]
            allow, deny = whole
            self.assertEqual((allow["Effect"], deny["Effect"]), ("Allow", "Deny"))
            self.assertTrue(all(action.startswith("ec2:") for action in allow["Action"]))
            self.assertEqual(deny["Action"], allow["Action"])
            arns = {"lambda:SourceFunctionArn": "arn:aws:lambda:*:123456789012:function:*"}
            self.assertEqual(deny["Condition"], {"ArnLike": arns})
            self.assertEqual([s for s in statements(function) if as_list(s["Resource"]) == ["*"]], [])

    def test_nothing_else_is_allowed_in_any_combination(self):
        known = {
            "sqs:ReceiveMessage",
            "sqs:DeleteMessage",
            "sqs:GetQueueAttributes",
            "sqs:ChangeMessageVisibility",
            "sqs:SendMessage",
            "logs:CreateLogStream",
            "logs:PutLogEvents",
            "elasticache:Connect",
            "secretsmanager:GetSecretValue",
            "rds-db:connect",
        }
        for name, parameters in combinations(LEDGER):
            with self.subTest(name):
                stack = ledger(**parameters)
                self.assertEqual(stack.of_type("AWS::IAM::Role").keys(), {role for role, *_ in FUNCTIONS.values()})
                for role in stack.of_type("AWS::IAM::Role").values():
                    self.assertEqual(role["ManagedPolicyArns"], [{"Ref": "CommonPolicy"}])
                for function in FUNCTIONS:
                    actions = {a for s in statements(function, **parameters) for a in as_list(s["Action"])}
                    self.assertEqual({a for a in actions if not a.startswith("ec2:")} - known, set())


class User(unittest.TestCase):
    def test_it_reaches_the_keys_of_its_namespace_only_by_the_functions_commands(self):
        of_function = deployed().properties("CacheUser")["AccessString"].split()
        for namespace, prefix in {"": "payments", "orders": "orders"}.items():
            parameters = REDIS_SIGN_INS["a user of a node-based cache"] | {"Namespace": namespace}
            user = ledger(**parameters).properties("RedisUser")
            words = user["AccessString"].split()
            self.assertEqual(words[:2], ["on", f"~{prefix}:*"])
            self.assertEqual(words[2:], of_function[2:])

    def test_it_signs_in_by_iam_under_an_id_that_is_its_name(self):
        user = ledger(**REDIS_SIGN_INS["a user of a node-based cache"]).properties("RedisUser")
        self.assertEqual(user["AuthenticationMode"], {"Type": "iam"})
        self.assertEqual(user["UserId"], user["UserName"])
        self.assertEqual(user["UserId"], user["UserId"].lower())
        self.assertLessEqual(len(user["UserId"]), 40)

    def test_it_is_created_for_an_elasticache_only(self):
        for name, parameters in REDIS_SIGN_INS.items():
            stack = ledger(**parameters)
            self.assertEqual("RedisUser" in stack.resources, "RedisIamCache" in parameters, name)
            self.assertEqual("RedisIamUser" in stack.outputs, "RedisIamCache" in parameters, name)

    def test_no_namespace_reads_as_a_pattern_or_as_part_of_another(self):
        patterns = {source(path)["Parameters"]["Namespace"]["AllowedPattern"] for path in (LEDGER, MAIN)}
        # records.py tests the pattern.
        self.assertEqual(len(patterns), 1)
