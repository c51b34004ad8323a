"""The ledger and the relay: there where a database is named, with what they need of the stack, and no more."""

import tomllib
import unittest

from template import LEDGERS, NETWORKS, RECORDS, ROOT, arn_of, as_list, combinations, deployed, source

LEDGER = LEDGERS["a ledger"]
IAM = {
    "DatabaseUrl": "postgres://ledger@db.example.com:5432/ledger",
    "DatabaseUserArn": "arn:aws:rds-db:eu-central-1:123456789012:dbuser:db-ABCD/ledger",
}
FUNCTIONS = {"LedgerFunction": "LedgerRole", "RelayFunction": "RelayRole"}
ACCOUNT = "eu-central-1:123456789012"

# What the webhook's function alone has a use for.
OF_THE_WEBHOOK = ("TARGET_", "PAYLOAD_", "RESULT_", "IDEMPOTENCY_KEY", "IDEMPOTENCY_FINGERPRINT")
OF_THE_WEBHOOK += ("IDEMPOTENCY_ENVELOPE", "IDEMPOTENCY_RECOVERY")


def allowed(function, action, **parameters):
    """The resources that the action is allowed on."""
    stack = deployed(**LEDGER | parameters)
    role = stack.properties(FUNCTIONS[function])
    shared = [stack.properties(policy["Ref"]) for policy in role["ManagedPolicyArns"]]
    documents = [policy["PolicyDocument"] for policy in [*role.get("Policies", []), *shared]]
    statements = [s for document in documents for s in document["Statement"]]
    found = [s for s in statements if s["Effect"] == "Allow" and action in as_list(s["Action"])]
    return [resource for s in found for resource in as_list(s["Resource"])]


class WhereThereIsNone(unittest.TestCase):
    def test_nothing_of_it_is_there(self):
        for name, parameters in combinations():
            stack = deployed(**parameters)
            of_it = [r for r in [*stack.resources, *stack.outputs] if r.startswith(("Ledger", "Relay"))]
            self.assertEqual(bool(of_it), "DatabaseUrl" in parameters, name)
            text = str(stack.resources)
            self.assertEqual("-ledger" in text or "Ledger" in text, "DatabaseUrl" in parameters, name)
            self.assertEqual(len(stack.of_type("AWS::Lambda::Function")), 3 if "DatabaseUrl" in parameters else 1)

    def test_what_belongs_to_a_database_is_refused_without_it(self):
        self.assertTrue(deployed(DatabaseSecretArn=LEDGER["DatabaseSecretArn"]).refused_by())
        self.assertTrue(deployed(DatabaseUserArn=IAM["DatabaseUserArn"]).refused_by())

    def test_two_ways_to_sign_in_are_refused(self):
        self.assertTrue(deployed(**LEDGER | IAM).refused_by())
        self.assertFalse(deployed(**LEDGER).refused_by() + deployed(**IAM).refused_by())


class Functions(unittest.TestCase):
    def test_they_are_binaries_of_this_package_and_built_with_their_feature(self):
        package = tomllib.loads((ROOT / "Cargo.toml").read_text())
        for function, binary in {"LedgerFunction": "ledger", "RelayFunction": "relay"}.items():
            metadata = source()["Resources"][function]["Metadata"]
            self.assertEqual(metadata, {"BuildMethod": "rust-cargolambda", "BuildProperties": {"Binary": binary}})
            (of_cargo,) = [each for each in package["bin"] if each["name"] == binary]
            built_with = package["package"]["metadata"]["lambda"]["bin"][binary]["build"]["features"]
            self.assertEqual(built_with, of_cargo["required-features"])

    def test_they_run_where_and_as_the_function_does(self):
        alike = "Runtime", "Handler", "Architectures", "MemorySize", "VpcConfig"
        for parameters in {}, NETWORKS["its own VPC"], RECORDS["its own Redis"]:
            stack = deployed(**LEDGER, **parameters)
            for function, role in FUNCTIONS.items():
                here, there = stack.properties(function), stack.properties("Function")
                self.assertEqual([here.get(name) for name in alike], [there.get(name) for name in alike])
                self.assertEqual(here["Role"], arn_of(role))
                self.assertEqual(here["LoggingConfig"]["LogFormat"], "JSON")

    def test_each_has_a_log_of_its_own(self):
        stack = deployed(**LEDGER, LogRetentionDays=7)
        names = set()
        for function in "Function", *FUNCTIONS:
            group = stack.properties(stack.properties(function)["LoggingConfig"]["LogGroup"]["Ref"])
            self.assertEqual(group["RetentionInDays"], 7)
            names.add(group["LogGroupName"])
        self.assertEqual(names, {f"/aws/lambda/payments{ending}" for ending in ("", "-ledger", "-relay")})

    def test_they_find_redis_where_the_function_does_and_as_a_user_of_their_own(self):
        for records in RECORDS.values():
            stack = deployed(**LEDGER, **records)
            for function in FUNCTIONS:
                here, there = stack.variables(function), stack.variables()
                user = {"REDIS_IAM_USER": {"Ref": "LedgerUser"}} if "RedisUrl" not in records else {}
                of_redis = {name: value for name, value in there.items() if name.startswith("REDIS_")}
                self.assertEqual({name: here[name] for name in of_redis}, of_redis | user)

    def test_they_have_one_namespace_which_is_not_the_functions(self):
        for namespace, ledgers in {"": "payments-ledger", "orders": "orders-ledger"}.items():
            stack = deployed(**LEDGER, Namespace=namespace)
            for function in FUNCTIONS:
                self.assertEqual(stack.variables(function)["IDEMPOTENCY_NAMESPACE"], ledgers)

    def test_the_ledger_has_every_setting_that_the_function_has_but_for_the_webhook(self):
        stack = deployed(**LEDGER)
        expected = {name for name in stack.variables() if not name.startswith(OF_THE_WEBHOOK)}
        own = {name for name in stack.variables("LedgerFunction") if name.startswith(("DATABASE_", "INBOX_"))}
        result_too = {"IDEMPOTENCY_RESULT_MAX_BYTES"}
        self.assertEqual(stack.variables("LedgerFunction").keys(), expected | own | result_too)
        self.assertEqual(len(own), 6)

    def test_they_sign_in_to_the_database_alike(self):
        for parameters, iam in (LEDGER, "false"), (IAM, "true"):
            for function in FUNCTIONS:
                variables = deployed(**parameters).variables(function)
                self.assertEqual(variables["DATABASE_URL"], parameters["DatabaseUrl"])
                self.assertEqual(variables["DATABASE_SECRET_ARN"], parameters.get("DatabaseSecretArn", ""))
                self.assertEqual(variables["DATABASE_IAM"], iam)

    def test_the_relay_runs_each_minute_and_alone(self):
        stack = deployed(**LEDGER)
        relay = stack.properties("RelayFunction")
        self.assertEqual(relay["ReservedConcurrentExecutions"], 1)
        self.assertGreaterEqual(relay["Timeout"], 60)
        (rule,) = stack.of_type("AWS::Events::Rule").values()
        self.assertEqual(rule["ScheduleExpression"], "rate(1 minute)")
        self.assertEqual([target["Arn"] for target in rule["Targets"]], [arn_of("RelayFunction")])
        (permission,) = stack.of_type("AWS::Lambda::Permission").values()
        self.assertEqual(permission["Principal"], "events.amazonaws.com")
        self.assertEqual(permission["FunctionName"], {"Ref": "RelayFunction"})

    def test_the_ledger_is_not_held_back(self):
        self.assertNotIn("ReservedConcurrentExecutions", deployed(**LEDGER).properties("LedgerFunction"))


class Rights(unittest.TestCase):
    def test_the_ledger_has_its_queue_and_no_other_and_the_relay_none(self):
        for action in "ReceiveMessage", "DeleteMessage", "GetQueueAttributes", "ChangeMessageVisibility":
            self.assertEqual(allowed("LedgerFunction", f"sqs:{action}"), [arn_of("LedgerQueue")])
            self.assertEqual(allowed("RelayFunction", f"sqs:{action}"), [])
        backs_off = {"VisibilityBackoff": "false"}
        self.assertEqual(allowed("LedgerFunction", "sqs:ChangeMessageVisibility", **backs_off), [])

    def test_they_connect_to_the_cache_as_their_user(self):
        cache, user = f"arn:aws:elasticache:{ACCOUNT}:replicationgroup:${{Cache}}", arn_of("LedgerUser")
        own = RECORDS["its own ElastiCache with IAM"]
        arns = [f"arn:aws:elasticache:{ACCOUNT}:{kind}" for kind in ("replicationgroup:orders-cache", "user:orders")]
        serverless = [arn_of("ServerlessCache", "ARN"), user]
        for function in FUNCTIONS:
            self.assertEqual(allowed(function, "elasticache:Connect"), [cache, user])
            self.assertEqual(allowed(function, "elasticache:Connect", CacheKind="serverless"), serverless)
            self.assertEqual(allowed(function, "elasticache:Connect", **own), arns)
            self.assertEqual(allowed(function, "elasticache:Connect", **RECORDS["its own Redis"]), [])

    def test_they_sign_in_to_the_database_by_its_secret_or_its_user(self):
        redis = RECORDS["its own Redis with a secret"]
        by_iam = IAM | {"DatabaseSecretArn": ""}
        for function in FUNCTIONS:
            secrets = [redis["RedisSecretArn"], LEDGER["DatabaseSecretArn"]]
            self.assertEqual(allowed(function, "secretsmanager:GetSecretValue", **redis), secrets)
            self.assertEqual(allowed(function, "rds-db:connect"), [])
            self.assertEqual(allowed(function, "rds-db:connect", **by_iam), [IAM["DatabaseUserArn"]])
            self.assertEqual(allowed(function, "secretsmanager:GetSecretValue", **by_iam), [])

    def test_the_functions_role_gets_nothing_of_it(self):
        for parameters in LEDGER, IAM:
            self.assertEqual(deployed(**parameters).properties("FunctionRole"), deployed().properties("FunctionRole"))

    def test_the_way_to_sqs_is_open_to_the_ledger_for_its_queue(self):
        of_function, of_ledger = deployed(**LEDGER).properties("SqsInterfaceEndpoint")["PolicyDocument"]["Statement"]
        (alone,) = deployed().properties("SqsInterfaceEndpoint")["PolicyDocument"]["Statement"]
        self.assertEqual(of_function, alone)
        self.assertEqual(of_ledger["Action"], "sqs:ChangeMessageVisibility")
        self.assertEqual(of_ledger["Resource"], arn_of("LedgerQueue"))
        self.assertEqual(of_ledger["Condition"], {"ArnEquals": {"aws:PrincipalArn": arn_of("LedgerRole")}})


class Records(unittest.TestCase):
    def test_their_user_reaches_their_keys_only_by_the_functions_commands(self):
        for kind in "node-based", "serverless":
            stack = deployed(**LEDGER, CacheKind=kind)
            of_ledger = stack.properties("LedgerUser")["AccessString"].split()
            of_function = stack.properties("CacheUser")["AccessString"].split()
            self.assertEqual((of_ledger[1], of_function[1]), ("~payments-ledger:*", "~payments:*"))
            self.assertEqual(of_ledger[2:], of_function[2:])
            users = [{"Ref": name} for name in ("CacheUser", "OperatorUser", "LedgerUser")]
            self.assertEqual(stack.properties("CacheUsers")["UserIds"], users)

    def test_operators_reach_both(self):
        with_it = deployed(**LEDGER).properties("OperatorUser")["AccessString"].split()
        without = deployed().properties("OperatorUser")["AccessString"].split()
        self.assertEqual(with_it, without[:2] + ["~payments-ledger:*"] + without[2:])


class Network(unittest.TestCase):
    def rules(self, **parameters):
        inline = deployed(**parameters).properties("FunctionSecurityGroup")["SecurityGroupEgress"]
        return {(rule["FromPort"], rule["ToPort"]) for rule in inline}

    def test_they_reach_the_database_by_its_port(self):
        self.assertEqual(self.rules(**LEDGER), {(443, 443), (5432, 5432)})
        self.assertEqual(self.rules(**LEDGER, DatabasePort=6432), {(443, 443), (6432, 6432)})
        self.assertEqual(self.rules(), {(443, 443)})

    def test_they_reach_the_secret_where_the_webhook_has_another_port(self):
        self.assertIn((443, 443), self.rules(**LEDGER, TargetPort=8443))
        self.assertNotIn((443, 443), self.rules(**IAM, TargetPort=8443))

    def test_the_database_is_told_whom_to_let_in(self):
        self.assertEqual(deployed(**LEDGER).outputs["SecurityGroupId"]["Value"], {"Ref": "FunctionSecurityGroup"})
        self.assertNotIn("SecurityGroupId", deployed(**LEDGER, **RECORDS["its own Redis"]).outputs)


class Alarms(unittest.TestCase):
    def test_they_watch_its_queues_and_both_functions(self):
        stack = deployed(**LEDGER, OldestMessageSeconds=120)
        watched = {
            name: (alarm["MetricName"], alarm["Dimensions"][0]["Value"], alarm["Threshold"])
            for name, alarm in stack.of_type("AWS::CloudWatch::Alarm").items()
            if name.startswith(("Ledger", "Relay"))
        }
        dead_letters, queue = arn_of("LedgerDeadLetterQueue", "QueueName"), arn_of("LedgerQueue", "QueueName")
        expected = {
            "LedgerDeadLettersAlarm": ("ApproximateNumberOfMessagesVisible", dead_letters, 0),
            "LedgerOldestMessageAlarm": ("ApproximateAgeOfOldestMessage", queue, 120),
            "LedgerErrorsAlarm": ("Errors", {"Ref": "LedgerFunction"}, 0),
            "RelayErrorsAlarm": ("Errors", {"Ref": "RelayFunction"}, 0),
        }
        self.assertEqual(watched, expected)
