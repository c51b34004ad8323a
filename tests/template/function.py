"""The function: how it is built, and its environment variables from the parameters, of both templates."""

import re
import time
import unittest

from template import LEDGER, MAIN, QUEUES, RECORDS, ROOT, combinations, deployed, ledger, parameter, source

# Read by the AWS SDK.
OF_AWS = {"AWS_ENDPOINT_URL_SQS", "AWS_USE_DUALSTACK_ENDPOINT"}

# Follows from a limit of ElastiCache, so no template sets it.
NOT_CHOSEN = {"REDIS_IAM_SESSION_SECONDS"}
# Objects in S3 need rights too: docs/deploy.md has an example.
OF_S3 = {"RESULT_BUCKET", "RESULT_PREFIX", "PAYLOAD_BUCKETS", "PAYLOAD_MAX_BYTES"}

# Set by the stack to a value other than the program's default.
OF_THE_STACK = ("REDIS_URL", "REDIS_CLUSTER", "REDIS_IAM", "IDEMPOTENCY_NAMESPACE", "TARGET_URL", "METRICS_NAMESPACE")
OF_THE_STACK += ("DATABASE_URL", "DEAD_LETTER_QUEUE_URL")

def settings():
    """The tables of settings: each variable with its default."""
    table = (ROOT / "docs" / "configuration.md").read_text().split("## Settings")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`[A-Z_`, ]+`) \|.*\| ([^|]*) \|$", table, re.MULTILINE)
    return {name: default for names, default in rows for name in re.findall(r"`(\w+)`", names)}


def every_variable(**given):
    """The variables of all functions of both templates, each with the parameters that it has."""
    known = {path: {n: v for n, v in given.items() if n in source(path)["Parameters"]} for path in (MAIN, LEDGER)}
    of_function, of_ledger = deployed(**known[MAIN]), ledger(**known[LEDGER])
    variables = [of_ledger.variables("BackfillFunction"), of_ledger.variables("LedgerFunction"), of_function.variables()]
    return {name: value for each in variables for name, value in each.items()}


def each_function():
    stack = ledger()
    return [deployed().variables(), stack.variables("LedgerFunction"), stack.variables("BackfillFunction")]


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
        self.assertEqual(source()["Resources"]["Function"]["Properties"]["CodeUri"], ".")
        self.assertIn(f'[[bin]]\nname = "{binary}"', (ROOT / "Cargo.toml").read_text())

    def test_every_setting_of_the_readme_is_a_variable(self):
        self.assertGreater(len(settings()), 25)
        self.assertEqual(settings().keys() - every_variable().keys(), NOT_CHOSEN | OF_S3)

    def test_every_variable_is_one_that_the_program_or_the_sdk_reads(self):
        packages = ROOT, ROOT / "crates/postgres", ROOT / "examples/ledger"
        program = "".join(path.read_text() for package in packages for path in (package / "src").rglob("*.rs"))
        for variable in every_variable().keys() - OF_AWS:
            with self.subTest(variable):
                self.assertTrue(f'"{variable}"' in program, "no program reads it")

    def test_a_default_is_that_of_the_documentation(self):
        for variables in each_function():
            seen = 0
            for name, default in settings().items():
                # A word or number, perhaps with an explanation behind it.
                stated = re.match(r"`?([\w:.,-]+)`?", default)
                if stated and not name.startswith(OF_THE_STACK) and str(variables.get(name, "")):
                    with self.subTest(name):
                        self.assertEqual(str(variables[name]), stated[1])
                    seen += 1
            # The backfill has the fewest.
            self.assertGreaterEqual(seen, 6)
        self.assertGreater(sum(name in deployed().variables() for name in settings()), 15)

    def test_each_parameter_reaches_the_variable_of_its_name(self):
        def spelled(name):
            return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()

        strings = {"TargetUrl": "http://x", "RedisUrl": "redis://x", "DatabaseUrl": "postgres://x"}
        strings |= {"CacheNodeType": "cache.m7g.large", "IdempotencyKey": "body:/x"}
        strings |= {name: "arn:aws:secretsmanager:x" for name in ("RedisSecretArn", "DatabaseSecretArn")}
        seen = set()
        for path, own in {MAIN: {"RedisUrl": "redis://redis.example.com"}, LEDGER: {}}.items():
            for name, spec in source(path)["Parameters"].items():
                resources = source(path)["Resources"].items()
                functions = [name for name, each in resources if each["Type"] == "AWS::Serverless::Function"]
                number = str(spec.get("MinValue", 17)) if spec["Type"] == "Number" else None
                given = number or spec.get("AllowedValues", [strings.get(name, "x")])[-1]
                for function in functions:
                    if spelled(name) in deployed(path).variables(function):
                        variables = deployed(path, **own | {name: given}).variables(function)
                        self.assertEqual(str(variables[spelled(name)]), given, name)
                        seen.add((path, function, name))
        for path, function, least in (MAIN, "Function", 5), (LEDGER, "LedgerFunction", 9), (LEDGER, "BackfillFunction", 8):
            self.assertGreaterEqual(len([name for *where, name in seen if where == [path, function]]), least)

    def test_the_sources_of_the_key_are_those_that_it_accepts(self):
        pattern = parameter("IdempotencyKey")["AllowedPattern"]
        good = [
            "",
            parameter("IdempotencyKey")["Default"],
            "messageId",
            "deduplicationId",
            "attribute:messageId,body:/messageId,messageId",
            "attribute:awsome.Order-Id_2",
            "body:/,body:/orders/0/a~1b~0 $",
            " attribute: Payment-Id ,\tbody: /id, deduplicationId , messageId ",
        ]
        bad = [
            "messageId,attribute:X",
            "messageId , body:/id",
            "body:/id,messageId,deduplicationId",
            "messageId,messageId",
            "messageid",
            "header:X",
            "Payment-Id",
            "attribute:",
            "attribute:Payment Id",
            "attribute:.a",
            "attribute:a.",
            "attribute:a..b",
            "attribute:AWS.a",
            "attribute:amaZon.a",
            "body:",
            "body:id",
            "body:/a~2",
            "body:/a~",
            "body:/a;messageId,,messageId",
            "deduplicationId messageId",
            ",messageId",
            "attribute:X,",
        ]
        for sources in good:
            self.assertTrue(re.search(pattern, sources), sources)
        for sources in bad:
            self.assertIsNone(re.search(pattern, sources), sources)

    def test_a_long_list_of_sources_is_checked_at_once(self):
        # 4096 characters are the most that a parameter may have.
        spaces = " " * 100
        for part in f"body:/{spaces},", f"attribute:a{spaces},{spaces}", "body:/~0~1", "attribute:a.a.":
            sources = (part * 4096)[:4095] + "~"
            before = time.process_time()
            self.assertIsNone(re.search(parameter("IdempotencyKey")["AllowedPattern"], sources), part)
            self.assertLess(time.process_time() - before, 1, part)

    def test_it_finds_its_records_where_they_are(self):
        expected = {
            "": ("rediss://${Cache.ConfigurationEndPoint.Address}", "true", {"Ref": "Cache"}, "false"),
            "serverless": ("rediss://${ServerlessCache.Endpoint.Address}", "true", {"Ref": "ServerlessCache"}, "true"),
        }
        for kind, (url, cluster, cache, serverless) in expected.items():
            variables = deployed(CacheNodeType=kind).variables()
            self.assertTrue(variables["REDIS_URL"].startswith(url), variables["REDIS_URL"])
            self.assertEqual(variables["REDIS_CLUSTER"], cluster)
            self.assertEqual(variables["REDIS_IAM_USER"], {"Ref": "CacheUser"})
            self.assertEqual(variables["REDIS_IAM_CACHE"], cache)
            self.assertEqual(variables["REDIS_IAM_SERVERLESS"], serverless)
        def signs_in(**parameters):
            variables = deployed(**parameters).variables()
            names = "URL", "CLUSTER", "SECRET_ARN", "IAM_USER", "IAM_CACHE", "IAM_SERVERLESS"
            return [variables[f"REDIS_{name}"] for name in names]

        url = "rediss://redis.example.com:6379"
        self.assertEqual(signs_in(**RECORDS["its own Redis"]), [url, "false", "", "", "", "false"])
        secret = RECORDS["its own Redis with a secret"]
        self.assertEqual(signs_in(**secret), [url, "false", secret["RedisCredentials"], "", "", "false"])
        iam = RECORDS["its own ElastiCache with IAM"]
        self.assertEqual(signs_in(**iam), [url, "true", "", "orders", "orders-cache", "false"])
        iam = iam | {"RedisCredentials": iam["RedisCredentials"].replace("replicationgroup", "serverlesscache")}
        self.assertEqual(signs_in(**iam), [url, "true", "", "orders", "orders-cache", "true"])

    def test_a_serverless_cache_has_the_cluster_protocol_without_being_told(self):
        own = RECORDS["its own ElastiCache with IAM"] | {"RedisCluster": "false"}
        self.assertEqual(deployed(**own).variables()["REDIS_CLUSTER"], "false")
        serverless = own | {"RedisCredentials": own["RedisCredentials"].replace("replicationgroup", "serverlesscache")}
        self.assertEqual(deployed(**serverless).variables()["REDIS_CLUSTER"], "true")

    def test_it_knows_the_dead_letter_queue_that_there_is(self):
        for stack in deployed(), deployed(Queue="fifo"), ledger():
            for function in stack.of_type("AWS::Lambda::Function").keys() - {"BackfillFunction"}:
                self.assertEqual(stack.variables(function)["DEAD_LETTER_QUEUE_URL"], {"Ref": "DeadLetterQueue"})
        self.assertNotIn("DEAD_LETTER_QUEUE_URL", deployed(**QUEUES["its own queue without dead letters"]).variables())
        self.assertNotIn("DEAD_LETTER_QUEUE_URL", ledger().variables("BackfillFunction"))

    def test_the_url_of_an_existing_dead_letter_queue_is_that_of_its_partition(self):
        # https://docs.aws.amazon.com/general/latest/gr/sqs-service.html
        urls = {
            ("aws", "eu-central-1"): "https://sqs.eu-central-1.amazonaws.com/123456789012/orders-dead.fifo",
            ("aws-us-gov", "us-gov-west-1"): "https://sqs.us-gov-west-1.amazonaws.com/123456789012/orders-dead.fifo",
            ("aws-cn", "cn-north-1"): "https://sqs.cn-north-1.amazonaws.com.cn/123456789012/orders-dead.fifo",
        }
        for (partition, region), url in urls.items():
            queue = f"arn:{partition}:sqs:{region}:123456789012:orders"
            suffix = "amazonaws.com.cn" if partition == "aws-cn" else "amazonaws.com"
            pseudo = {"AWS::Partition": partition, "AWS::Region": region, "AWS::URLSuffix": suffix}
            arns = {"Queue": f"{queue}.fifo", "DeadLetterQueueArn": f"{queue}-dead.fifo"}
            stack = deployed(**arns, pseudo=pseudo)
            self.assertEqual(stack.variables()["DEAD_LETTER_QUEUE_URL"], url)
            self.assertEqual(stack.outputs["DeadLetterQueueUrl"]["Value"], url)

    def test_its_namespace_outlives_the_function(self):
        self.assertEqual(deployed().variables()["IDEMPOTENCY_NAMESPACE"], "payments")
        self.assertEqual(deployed(Namespace="orders").variables()["IDEMPOTENCY_NAMESPACE"], "orders")

    def test_its_metrics_have_a_namespace(self):
        self.assertEqual(deployed().variables()["METRICS_NAMESPACE"], "idempotent-sqs")

    def test_it_writes_its_logs_as_json_to_a_group_that_forgets(self):
        self.assertEqual(self.function()["LoggingConfig"], {"LogFormat": "JSON", "LogGroup": {"Ref": "LogGroup"}})
        self.assertEqual(deployed().properties("LogGroup")["RetentionInDays"], 30)

    def test_its_log_is_kept_as_long_as_the_dead_letters_whose_reasons_it_has(self):
        queue, group = (source()["Resources"][name] for name in ("DeadLetterQueue", "LogGroup"))
        for policy in "DeletionPolicy", "UpdateReplacePolicy":
            self.assertEqual(group[policy], queue[policy])
        kept = deployed().properties("LogGroup")["RetentionInDays"] * 24 * 60 * 60
        self.assertGreaterEqual(kept, deployed().properties("DeadLetterQueue")["MessageRetentionPeriod"])

    def test_the_webhook_has_to_be_named(self):
        self.assertNotIn("Default", parameter("TargetUrl"))

    def test_a_password_in_a_url_is_refused_or_not_shown(self):
        of_sentinels = "rediss+sentinel://redis.example.com/main?sentinel_password=secret"
        for url in "rediss://user:secret@redis.example.com", "redis://:secret@redis.example.com", of_sentinels:
            self.assertIsNone(re.search(parameter("RedisUrl")["AllowedPattern"], url))
        for name in "RedisUrl", "DatabaseUrl":
            self.assertIs(parameter(name, LEDGER).get("NoEcho"), True)
        for path in MAIN, LEDGER:
            for name, parameters in combinations(path):
                outputs = str(deployed(path, **parameters).outputs)
                self.assertNotIn("secret@", outputs, name)
                self.assertNotIn("postgres://", outputs, name)
