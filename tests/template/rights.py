"""The rights of the function: its own queue, its own records, and nothing else."""

import unittest

from template import QUEUES, RECORDS, arn_of, as_list, combinations, deployed

OWN_QUEUE = QUEUES["its own queue"]
KEY = {"KmsKeyArn": "arn:aws:kms:eu-central-1:123456789012:key/1c2fa620"}
ACCOUNT = "eu-central-1:123456789012"


def role(**parameters):
    return deployed(**parameters).properties("FunctionRole")


def statements(**parameters):
    return [s for policy in role(**parameters)["Policies"] for s in policy["PolicyDocument"]["Statement"]]


def allowed(action, **parameters):
    """The resources that the action is allowed on."""
    found = [s for s in statements(**parameters) if s["Effect"] == "Allow" and action in as_list(s["Action"])]
    return [resource for s in found for resource in as_list(s["Resource"])]


class Rights(unittest.TestCase):
    def test_lambda_alone_takes_the_role(self):
        (statement,) = role()["AssumeRolePolicyDocument"]["Statement"]
        self.assertEqual(statement["Principal"], {"Service": "lambda.amazonaws.com"})

    def test_the_queue_is_its_own(self):
        for action in "ReceiveMessage", "DeleteMessage", "GetQueueAttributes", "ChangeMessageVisibility":
            self.assertEqual(allowed(f"sqs:{action}"), [arn_of("MessageQueue")])
            self.assertEqual(allowed(f"sqs:{action}", **OWN_QUEUE), [OWN_QUEUE["Queue"]])

    def test_it_sends_to_its_dead_letter_queue_only(self):
        self.assertEqual(allowed("sqs:SendMessage"), [arn_of("DeadLetterQueue")])
        self.assertEqual(allowed("sqs:SendMessage", **OWN_QUEUE), [OWN_QUEUE["DeadLetterQueueArn"]])
        self.assertEqual(allowed("sqs:SendMessage", **QUEUES["its own queue without dead letters"]), [])

    def test_no_queue_policy_denies_what_the_function_may_do(self):
        # A denial counts also for those that an identity's policy allows.
        for kind in "standard", "fifo":
            for policy in deployed(Queue=kind).of_type("AWS::SQS::QueuePolicy").values():
                for statement in policy["PolicyDocument"]["Statement"]:
                    self.assertEqual(statement["Effect"], "Deny")
                    self.assertEqual(statement["Condition"], {"Bool": {"aws:SecureTransport": "false"}})

    def test_it_connects_to_its_cache_as_its_user(self):
        for kind, resource, name in [
            ("", "Cache", "ReplicationGroupId"),
            ("serverless", "ServerlessCache", "ServerlessCacheName"),
        ]:
            stack = deployed(CacheNodeType=kind)
            cache, user = stack.properties(resource)[name], stack.properties("CacheUser")["UserId"]
            of_kind = "serverlesscache" if kind else "replicationgroup"
            arns = [f"arn:aws:elasticache:{ACCOUNT}:{of_kind}:{cache}", f"arn:aws:elasticache:{ACCOUNT}:user:{user}"]
            self.assertEqual(allowed("elasticache:Connect", CacheNodeType=kind), arns)
        self.assertEqual(allowed("elasticache:Connect", **RECORDS["its own Redis"]), [])
        own = RECORDS["its own ElastiCache with IAM"]
        arns = [f"arn:aws:elasticache:{ACCOUNT}:{kind}" for kind in ("user:orders", "replicationgroup:orders-cache")]
        self.assertEqual(allowed("elasticache:Connect", **own), arns)

    def test_it_reads_the_one_secret(self):
        own = RECORDS["its own Redis with a secret"]
        self.assertEqual(allowed("secretsmanager:GetSecretValue", **own), [own["RedisCredentials"]])
        self.assertEqual(allowed("secretsmanager:GetSecretValue"), [])

    def test_it_uses_the_key_that_it_is_given(self):
        for action in "kms:Decrypt", "kms:GenerateDataKey":
            self.assertEqual(allowed(action, **KEY), [KEY["KmsKeyArn"]])
            self.assertEqual(allowed(action), [])

    def test_it_writes_its_own_log(self):
        for action in "logs:CreateLogStream", "logs:PutLogEvents":
            self.assertEqual(allowed(action), [arn_of("LogGroup")])

    def test_its_code_makes_no_network_interfaces(self):
        whole = [s for s in statements() if as_list(s["Resource"]) == ["*"]]
        allow, deny = whole
        self.assertEqual((allow["Effect"], deny["Effect"]), ("Allow", "Deny"))
        self.assertTrue(all(action.startswith("ec2:") for action in allow["Action"]))
        self.assertEqual(deny["Action"], allow["Action"])
        arns = {"lambda:SourceFunctionArn": "arn:aws:lambda:*:123456789012:function:*"}
        self.assertEqual(deny["Condition"], {"ArnLike": arns})
        outside = RECORDS["its own Redis"]
        self.assertEqual([s for s in statements(**outside) if as_list(s["Resource"]) == ["*"]], [])

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
            "kms:Decrypt",
            "kms:GenerateDataKey",
        }
        for name, parameters in combinations():
            with self.subTest(name):
                stack = deployed(**parameters, **KEY)
                roles, shared = stack.of_type("AWS::IAM::Role"), stack.of_type("AWS::IAM::ManagedPolicy")
                inline = [policy for each in roles.values() for policy in each.get("Policies", [])]
                documents = [policy["PolicyDocument"] for policy in [*inline, *shared.values()]]
                actions = {a for d in documents for s in d["Statement"] for a in as_list(s["Action"])}
                self.assertEqual({a for a in actions if not a.startswith("ec2:")} - known, set())
                self.assertNotIn("ManagedPolicyArns", role(**parameters))

    def test_another_stack_can_attach_policies(self):
        self.assertEqual(deployed().outputs["FunctionRoleName"]["Value"], {"Ref": "FunctionRole"})
