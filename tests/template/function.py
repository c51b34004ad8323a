"""The function: built from this package, and set up by the parameters."""

import re
import unittest

from template import LEDGERS, ROOT, combinations, deployed, parameter, source

# What the AWS SDK reads, and not this package.
OF_AWS = {"AWS_ENDPOINT_URL_SQS"}

# Follows from what ElastiCache does, so nobody has to choose it.
NOT_CHOSEN = {"REDIS_IAM_SESSION_SECONDS"}

# Not the program's default, or it has none.
OF_THE_STACK = ("REDIS_URL", "REDIS_CLUSTER", "REDIS_IAM", "IDEMPOTENCY_NAMESPACE", "TARGET_URL", "METRICS_NAMESPACE")
OF_THE_STACK += ("DATABASE_URL",)

FUNCTIONS = "Function", "LedgerFunction", "RelayFunction"


def settings():
    """The tables of settings: each variable with its default."""
    table = (ROOT / "docs" / "configuration.md").read_text().split("## Settings")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`[A-Z_`, ]+`) \|.*\| ([^|]*) \|$", table, re.MULTILINE)
    return {name: default for names, default in rows for name in re.findall(r"`(\w+)`", names)}


def every_variable(**parameters):
    """Those of all functions of a stack with a ledger."""
    stack = deployed(**LEDGERS["a ledger"] | parameters)
    return {name: value for function in reversed(FUNCTIONS) for name, value in stack.variables(function).items()}


class Function(unittest.TestCase):
    def function(self, **parameters):
        return deployed(**parameters).properties("Function")

    def test_it_runs_on_amazon_linux_2023(self):
        self.assertEqual(self.function()["Runtime"], "provided.al2023")
        self.assertEqual(self.function()["Handler"], "bootstrap")

    def test_it_runs_on_arm64_unless_told_otherwise(self):
        self.assertEqual(self.function()["Architectures"], ["arm64"])
        self.assertEqual(self.function(Architecture="x86_64")["Architectures"], ["x86_64"])
        self.assertEqual(set(parameter("Architecture")["AllowedValues"]), {"arm64", "x86_64"})

    def test_cargo_lambda_builds_the_binary_of_this_package(self):
        metadata = source()["Resources"]["Function"]["Metadata"]
        self.assertEqual(metadata["BuildMethod"], "rust-cargolambda")
        binary = metadata["BuildProperties"]["Binary"]
        self.assertEqual(source()["Globals"]["Function"]["CodeUri"], ".")
        self.assertIn(f'[[bin]]\nname = "{binary}"', (ROOT / "Cargo.toml").read_text())

    def test_every_setting_of_the_readme_is_a_variable(self):
        self.assertGreater(len(settings()), 25)
        self.assertEqual(settings().keys() - every_variable().keys(), NOT_CHOSEN)

    def test_every_variable_is_one_that_the_program_or_the_sdk_reads(self):
        program = "".join(path.read_text() for path in (ROOT / "src").rglob("*.rs"))
        for variable in every_variable().keys() - OF_AWS:
            with self.subTest(variable):
                self.assertTrue(f'"{variable}"' in program, "nothing in src names it")

    def test_a_default_is_that_of_the_readme(self):
        variables = every_variable()
        seen = 0
        for name, default in settings().items():
            # A word or number, perhaps with an explanation behind it.
            stated = re.match(r"`?([\w:.,-]+)`?", default)
            if stated and not name.startswith(OF_THE_STACK) and str(variables.get(name, "")):
                with self.subTest(name):
                    self.assertEqual(str(variables[name]), stated[1])
                seen += 1
        self.assertGreater(seen, 15)

    def test_each_parameter_reaches_the_variable_of_its_name(self):
        def spelled(name):
            return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()

        strings = {"TargetUrl": "http://x", "RedisUrl": "redis://x", "DatabaseUrl": "postgres://x"}
        strings |= {name: "arn:aws:secretsmanager:x" for name in ("RedisSecretArn", "DatabaseSecretArn")}
        own = {"RedisUrl": "redis://redis.example.com"}
        seen = set()
        for name, spec in source()["Parameters"].items():
            if spelled(name) in every_variable():
                number = str(spec.get("MinValue", 17)) if spec["Type"] == "Number" else None
                given = number or spec.get("AllowedValues", [strings.get(name, "x")])[-1]
                self.assertEqual(str(every_variable(**own | {name: given})[spelled(name)]), given, name)
                seen.add(name)
        self.assertGreater(len(seen), 20)

    def test_it_finds_its_records_where_they_are(self):
        expected = {
            "node-based": ("rediss://${Cache.ConfigurationEndPoint.Address}", "true", {"Ref": "Cache"}, "false"),
            "serverless": ("rediss://${ServerlessCache.Endpoint.Address}", "true", {"Ref": "ServerlessCache"}, "true"),
        }
        for kind, (url, cluster, cache, serverless) in expected.items():
            variables = deployed(CacheKind=kind).variables()
            self.assertTrue(variables["REDIS_URL"].startswith(url), variables["REDIS_URL"])
            self.assertEqual(variables["REDIS_CLUSTER"], cluster)
            self.assertEqual(variables["REDIS_IAM_USER"], {"Ref": "CacheUser"})
            self.assertEqual(variables["REDIS_IAM_CACHE"], cache)
            self.assertEqual(variables["REDIS_IAM_SERVERLESS"], serverless)
        own = deployed(RedisUrl="redis://redis.example.com", RedisIamUser="u", RedisIamCache="c").variables()
        self.assertEqual(own["REDIS_URL"], "redis://redis.example.com")
        self.assertEqual((own["REDIS_CLUSTER"], own["REDIS_IAM_USER"], own["REDIS_IAM_CACHE"]), ("false", "u", "c"))

    def test_its_namespace_outlives_the_function(self):
        self.assertEqual(deployed().variables()["IDEMPOTENCY_NAMESPACE"], "payments")
        self.assertEqual(deployed(Namespace="orders").variables()["IDEMPOTENCY_NAMESPACE"], "orders")

    def test_its_metrics_have_a_namespace(self):
        self.assertEqual(deployed().variables()["METRICS_NAMESPACE"], "idempotent-sqs")

    def test_it_writes_its_logs_as_json_to_a_group_that_forgets(self):
        self.assertEqual(self.function()["LoggingConfig"], {"LogFormat": "JSON", "LogGroup": {"Ref": "LogGroup"}})
        self.assertEqual(deployed(LogRetentionDays=7).properties("LogGroup")["RetentionInDays"], 7)

    def test_the_webhook_has_to_be_named(self):
        self.assertNotIn("Default", parameter("TargetUrl"))

    def test_a_password_in_a_url_is_not_shown(self):
        self.assertIs(parameter("RedisUrl").get("NoEcho"), True)
        self.assertIs(parameter("DatabaseUrl").get("NoEcho"), True)
        for name, parameters in combinations():
            outputs = str(deployed(**parameters).outputs)
            self.assertNotIn("secret@", outputs, name)
            self.assertNotIn("postgres://", outputs, name)
