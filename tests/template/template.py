"""Loads a template as written, as transformed by SAM, and as deployed by CloudFormation with given parameters.

A stack is deployed with its nested stacks. Their resources are among its own, because no two have the same name.
"""

import functools
import itertools
import json
import os
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# The stack of the function, and that of the ledger example.
MAIN = ROOT / "template.yaml"
LEDGER = ROOT / "examples/ledger/template.yaml"
NETWORK, CACHE, ALARMS = NESTED = [ROOT / "templates" / name for name in ("network.yaml", "cache.yaml", "alarms.yaml")]

REGION = "eu-central-1"

# The tests do not depend on the AWS account and region of the environment.
for name in [name for name in os.environ if name.startswith("AWS_")]:
    del os.environ[name]
os.environ |= {
    "AWS_DEFAULT_REGION": REGION,
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
}

from samtranslator.parser.parser import Parser  # noqa: E402  (it reads the region on import)
from samtranslator.translator.translator import Translator  # noqa: E402
from samtranslator.yaml_helper import yaml_parse  # noqa: E402

PSEUDO = {
    "AWS::AccountId": "123456789012",
    "AWS::Partition": "aws",
    "AWS::Region": REGION,
    "AWS::StackId": f"arn:aws:cloudformation:{REGION}:123456789012:stack/payments/1c2fa620-982a-11e3-aff7-50e2416294e0",
    "AWS::StackName": "payments",
    "AWS::URLSuffix": "amazonaws.com",
}

TARGET = {"TargetUrl": "https://example.com/hook"}
STORES = {
    "RedisUrl": "rediss://user:secret@redis.example.com:6379",
    "DatabaseUrl": "postgres://ledger:secret@db.example.com:5432/ledger",
}
# The parameters of each template that have no default.
REQUIRED = {MAIN: TARGET, LEDGER: STORES, NETWORK: {}, CACHE: {}, ALARMS: {}}

# Existing resources, and the parameters that name them. The stack creates what no parameter names.
OWN = "arn:aws:sqs:eu-central-1:123456789012:orders"
QUEUES = {
    "a new queue": {"Queue": "standard"},
    "a new FIFO queue": {"Queue": "fifo"},
    "its own queue": {"Queue": OWN, "DeadLetterQueueArn": f"{OWN}-dead"},
    "its own FIFO queue": {"Queue": f"{OWN}.fifo", "DeadLetterQueueArn": f"{OWN}-dead.fifo"},
    "its own queue without dead letters": {"Queue": OWN},
}
TYPES = {"standard": {}, "FIFO": {"QueueType": "fifo"}}
ELASTICACHE = "arn:aws:elasticache:eu-central-1:123456789012"
RECORDS = {
    "the cache of the profile dev": {"Profile": "dev"},
    "the cache of the profile standard": {},
    "the cache of the profile durable": {"Profile": "durable"},
    "a serverless cache": {"CacheNodeType": "serverless"},
    "its own Redis": {"RedisUrl": "rediss://redis.example.com:6379"},
    "its own Redis with a secret": {
        "RedisUrl": "rediss://redis.example.com:6379",
        "RedisCredentials": "arn:aws:secretsmanager:eu-central-1:123456789012:secret:redis-Ab12Cd",
    },
    "its own ElastiCache with IAM": {
        "RedisUrl": "rediss://redis.example.com:6379",
        "RedisCluster": "true",
        "RedisCredentials": f"{ELASTICACHE}:user:orders,{ELASTICACHE}:replicationgroup:orders-cache",
    },
}
NETWORKS = {
    "no VPC of its own": {},
    "no VPC of its own, IPv6": {"Egress": "ipv6"},
    "no VPC of its own, an SQS endpoint": {"Egress": "endpoint"},
    "its own VPC": {
        "VpcId": "vpc-0123456789abcdef0",
        "SubnetIds": "subnet-0123456789abcdef0,subnet-0123456789abcdef1",
        "SecurityGroupIds": "sg-0123456789abcdef0",
    },
}

# The ways of the ledger's functions to sign in to Redis and to PostgreSQL, and their network.
REDIS_SIGN_INS = {
    "a password in Redis's URL": {},
    "a secret for Redis": {
        "RedisUrl": "rediss://redis.example.com:6379",
        "RedisSecretArn": "arn:aws:secretsmanager:eu-central-1:123456789012:secret:redis-Ab12Cd",
    },
    "a user of a node-based cache": {
        "RedisUrl": "rediss://redis.example.com:6379",
        "RedisCluster": "true",
        "RedisIamCache": "orders-cache",
    },
    "a user of a serverless cache": {
        "RedisUrl": "rediss://redis.example.com:6379",
        "RedisCluster": "true",
        "RedisIamCache": "orders-cache",
        "RedisIamServerless": "true",
    },
}
DATABASE_SIGN_INS = {
    "a password in the database's URL": {},
    "a secret for the database": {
        "DatabaseUrl": "postgres://ledger@db.example.com:5432/ledger",
        "DatabaseSecretArn": "arn:aws:secretsmanager:eu-central-1:123456789012:secret:ledger-Ab12Cd",
    },
    "a user of RDS": {
        "DatabaseUrl": "postgres://ledger@db.example.com:5432/ledger",
        "DatabaseUserArn": "arn:aws:rds-db:eu-central-1:123456789012:dbuser:db-ABCD/ledger",
    },
}
LEDGER_NETWORKS = {
    "no VPC": {},
    "a VPC": {
        "SubnetIds": "subnet-0123456789abcdef0,subnet-0123456789abcdef1",
        "SecurityGroupIds": "sg-0123456789abcdef0,sg-0123456789abcdef1",
    },
}

PARTS = {
    MAIN: (QUEUES, RECORDS, NETWORKS),
    LEDGER: (TYPES, REDIS_SIGN_INS, DATABASE_SIGN_INS, LEDGER_NETWORKS),
}


def combinations(path=MAIN):
    """Every combination of existing and created resources: its name, and its parameters."""
    for parts in itertools.product(*(part.items() for part in PARTS[path])):
        names, settings = zip(*parts)
        yield ", ".join(names), functools.reduce(dict.__or__, settings, {})


@functools.cache
def source(path=MAIN):
    return yaml_parse(path.read_text())


@functools.cache
def transformed(path=MAIN):
    """The template as CloudFormation receives it, after SAM's transformation."""
    template = yaml_parse(path.read_text())
    # SAM requires a built package here. Nothing is built, and the package is not read.
    for resource in template["Resources"].values():
        if resource["Type"] == "AWS::Serverless::Function":
            resource["Properties"]["CodeUri"] = "s3://built/function.zip"
    return Translator({}, Parser()).translate(template, {})


def deployed(path=MAIN, pseudo=None, **parameters):
    """The stack that CloudFormation deploys with these parameters, and the defaults of all others. `pseudo` replaces
    pseudo parameters, such as the region."""
    return deployed_as(path, json.dumps(REQUIRED[path] | parameters, sort_keys=True), json.dumps(pseudo or {}))


def ledger(**parameters):
    """The stack of the ledger example with these parameters."""
    return deployed(LEDGER, **parameters)


@functools.cache
def deployed_as(path, parameters, pseudo):
    return Deployed(path, json.loads(parameters), PSEUDO | json.loads(pseudo))


class Deployed:
    """The resources whose conditions hold, with intrinsic functions evaluated as far as they need no resource."""

    ABSENT = object()

    def __init__(self, path, parameters, pseudo):
        self.path, self.template, self.pseudo = path, transformed(path), pseudo
        known = self.template["Parameters"]
        unknown = parameters.keys() - known.keys()
        assert not unknown, f"no parameters: {unknown}"
        for name, value in parameters.items():
            if isinstance(value, dict):
                continue  # Known when it is deployed.
            assert re.search(known[name].get("AllowedPattern", ""), as_text(value)), f"{name} must not be {value}"
            allowed = known[name].get("AllowedValues", [value])
            assert str(value) in map(str, allowed), f"{name} must not be {value}"
            if known[name]["Type"] == "Number":
                least, most = known[name].get("MinValue", value), known[name].get("MaxValue", value)
                assert int(least) <= int(value) <= int(most), f"{name} must not be {value}"
        self.parameters = {name: parameters.get(name, spec.get("Default")) for name, spec in known.items()}
        for name, spec in known.items():
            assert self.parameters[name] is not None, f"{name} is required"
            if spec["Type"] == "CommaDelimitedList" and isinstance(self.parameters[name], str):
                self.parameters[name] = self.parameters[name].split(",")
        self.conditions, self.nested = {}, {}
        self.resources = self.section("Resources")
        for child in self.nested.values():
            assert not self.resources.keys() & child.resources.keys()
            self.resources |= child.resources
        self.outputs = self.section("Outputs")

    def section(self, name):
        """The entries of the section. Nested stacks are entered, and not among the resources."""
        kept = {
            logical_id: entry
            for logical_id, entry in self.template[name].items()
            if "Condition" not in entry or self.holds(entry["Condition"])
        }
        stacks = {logical_id for logical_id, entry in kept.items() if entry.get("Type") == "AWS::CloudFormation::Stack"}
        for logical_id in stacks:
            self.stack(logical_id)
        return {
            logical_id: self.resolve({key: value for key, value in entry.items() if key != "Condition"})
            for logical_id, entry in kept.items()
            if logical_id not in stacks
        }

    def plain(self):
        """The same stack as a template without parameters and conditions."""
        head = {"AWSTemplateFormatVersion": "2010-09-09"}
        return head | {"Resources": subs(self.resources), "Outputs": subs(self.outputs)}

    def of_type(self, kind):
        return {logical_id: r["Properties"] for logical_id, r in self.resources.items() if r["Type"] == kind}

    def properties(self, logical_id):
        return self.resources[logical_id]["Properties"]

    def variables(self, function="Function"):
        return self.properties(function)["Environment"]["Variables"]

    def refused_by(self):
        """The descriptions of the assertions that these parameters violate."""
        return [
            assertion["AssertDescription"]
            for rule in self.template.get("Rules", {}).values()
            if self.resolve(rule.get("RuleCondition", True))
            for assertion in rule["Assertions"]
            if not self.resolve(assertion["Assert"])
        ]

    def holds(self, condition):
        if condition not in self.conditions:
            self.conditions[condition] = self.resolve(self.template["Conditions"][condition])
        return self.conditions[condition]

    def resolve(self, node):
        if isinstance(node, list):
            items = [self.resolve(item) for item in node]
            return [item for item in items if item is not self.ABSENT]
        if not isinstance(node, dict):
            return node
        if len(node) == 1:
            (function, argument), = node.items()
            do = getattr(self, function.replace("::", "_"), None) if function.startswith("Fn::") else None
            if do:
                return do(argument)
            if function == "Ref":
                return self.ref(argument)
            if function == "Condition" and isinstance(argument, str):
                return self.holds(argument)
        resolved = {key: self.resolve(value) for key, value in node.items()}
        return {key: value for key, value in resolved.items() if value is not self.ABSENT}

    def stack(self, name):
        """The nested stack of this name. It has another name and ID than its parent."""
        if name not in self.nested:
            resource = self.template["Resources"][name]
            if "Condition" in resource:
                assert self.holds(resource["Condition"]), f"{name} is not created"
            properties = resource["Properties"]
            own = {"AWS::StackName": f"{self.pseudo['AWS::StackName']}-{name}-1F2X", "AWS::StackId": f"arn:nested/{name}/77-1"}
            path = (self.path.parent / properties["TemplateURL"]).resolve()
            self.nested[name] = Deployed(path, self.resolve(properties["Parameters"]), self.pseudo | own)
        return self.nested[name]

    def Fn_GetAtt(self, argument):
        name, _, attribute = argument.partition(".") if isinstance(argument, str) else (argument[0], "", argument[1])
        if attribute.startswith("Outputs."):
            return self.stack(name).outputs[attribute.removeprefix("Outputs.")]["Value"]
        return {"Fn::GetAtt": [name, attribute]}

    def ref(self, name):
        if name == "AWS::NoValue":
            return self.ABSENT
        if ".Outputs." in name:
            return self.Fn_GetAtt(name)
        return self.parameters.get(name, self.pseudo.get(name, {"Ref": name}))

    def Fn_If(self, argument):
        condition, then, otherwise = argument
        return self.resolve(then if self.holds(condition) else otherwise)

    def Fn_Not(self, argument):
        return not self.resolve(argument)[0]

    def Fn_And(self, argument):
        return all(self.resolve(argument))

    def Fn_Or(self, argument):
        return any(self.resolve(argument))

    def Fn_Equals(self, argument):
        left, right = self.resolve(argument)
        return str(left) == str(right)

    def Fn_Contains(self, argument):
        members, value = self.resolve(argument)
        return str(value) in members

    def Fn_Join(self, argument):
        separator, items = self.resolve(argument)
        return separator.join(map(as_text, items))

    def Fn_Split(self, argument):
        separator, text = self.resolve(argument)
        return text.split(separator) if isinstance(text, str) else {"Fn::Split": [separator, text]}

    def Fn_Select(self, argument):
        index, items = self.resolve(argument)
        # A value that only a deployment has cannot be selected from.
        return items[int(index)] if isinstance(items, list) else {"Fn::Select": [index, items]}

    def Fn_FindInMap(self, argument):
        name, first, second = self.resolve(argument)
        return self.template["Mappings"][name][str(first)][str(second)]

    def Fn_Sub(self, argument):
        text, values = argument if isinstance(argument, list) else (argument, {})
        values = {name: self.resolve(value) for name, value in values.items()}

        def fill(match):
            name = match[1]
            return as_text(values[name] if name in values else self.ref(name))

        return re.sub(r"\$\{([^!}]+)\}", fill, text)


def as_text(value):
    """A reference to a resource inside a text, in the syntax of Fn::Sub."""
    match value:
        case {"Ref": name}:
            return f"${{{name}}}"
        case {"Fn::GetAtt": [*path]}:
            return f"${{{'.'.join(path)}}}"
        case dict():
            return "known-when-deployed"
        case _:
            return str(value)


def subs(node):
    """Turns each text that refers to a resource into an Fn::Sub."""
    match node:
        case dict():
            return {key: subs(value) for key, value in node.items()}
        case list():
            return [subs(item) for item in node]
        case str() if "${" in node:
            return {"Fn::Sub": node}
        case _:
            return node


def arn_of(logical_id, attribute="Arn"):
    return {"Fn::GetAtt": [logical_id, attribute]}


def parameter(name, path=MAIN):
    return source(path)["Parameters"][name]


def as_list(value):
    return value if isinstance(value, list) else [value]
