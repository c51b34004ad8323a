"""The parameters of all templates: few, described, used, documented and valid in every combination; the rules and the outputs."""

import re
import unittest

from template import LEDGER, MAIN, NESTED, RECORDS, ROOT, as_list, combinations, deployed, source, transformed

# Each template, and the page that describes its parameters.
MOST_LINES = 690
PAGES = {MAIN: ROOT / "docs/deploy.md", LEDGER: ROOT / "examples/ledger/README.md"}


def names_in(node):
    """Every name that a function of the template refers to."""
    if isinstance(node, list):
        for item in node:
            yield from names_in(item)
    elif isinstance(node, str):
        yield from (name.split(".")[0] for name in re.findall(r"\$\{([^!}]+)\}", node))
    elif isinstance(node, dict):
        for key, value in node.items():
            if key == "Ref":
                yield value
            elif key == "Fn::GetAtt":
                yield value[0]
            else:
                yield from names_in(value)


def keys_in(node):
    """Every key, which in a rule is the name of a function."""
    if isinstance(node, list):
        for item in node:
            yield from keys_in(item)
    elif isinstance(node, dict):
        for key, value in node.items():
            yield key
            yield from keys_in(value)


def parameters(paths=PAGES):
    for path in paths:
        for name, spec in source(path)["Parameters"].items():
            yield path, name, spec


class Parameters(unittest.TestCase):
    def test_each_says_what_it_is_for(self):
        for _, name, spec in parameters([*PAGES, *NESTED]):
            self.assertTrue(spec.get("Description", "").endswith("."), name)

    def test_only_the_webhook_and_the_stores_have_to_be_given(self):
        for path, required in {MAIN: ["TargetUrl"], LEDGER: ["RedisUrl", "DatabaseUrl"]}.items():
            without = [name for name, spec in source(path)["Parameters"].items() if "Default" not in spec]
            self.assertEqual(without, required)

    def test_they_are_few(self):
        self.assertLessEqual(len(source()["Parameters"]), 25)
        self.assertLessEqual(len(MAIN.read_text().splitlines()), MOST_LINES)

    def test_none_that_is_asked_for_is_hidden(self):
        # `sam deploy --guided` asks for a hidden parameter again and again until it has a value.
        for _, name, spec in parameters([MAIN, *NESTED]):
            self.assertNotIn("NoEcho", spec, name)

    def test_nested_stacks_get_the_parameters_that_they_have(self):
        for name, resource in source()["Resources"].items():
            if resource["Type"] == "AWS::CloudFormation::Stack":
                known = source(MAIN.parent / resource["Properties"]["TemplateURL"])["Parameters"]
                given = resource["Properties"]["Parameters"].keys()
                self.assertLessEqual({n for n, spec in known.items() if "Default" not in spec}, given)
                self.assertLessEqual(given, known.keys())

    def test_each_default_is_permitted(self):
        for _, name, spec in parameters([*PAGES, *NESTED]):
            if "AllowedValues" in spec and "Default" in spec:
                self.assertIn(spec["Default"], spec["AllowedValues"], name)

    def test_each_is_used(self):
        for path in [*PAGES, *NESTED]:
            template = transformed(path)
            used = set(names_in(template["Resources"])) | set(names_in(template["Conditions"]))
            self.assertEqual(source(path)["Parameters"].keys() - used, set())

    def test_each_is_in_one_group_of_the_console(self):
        groups = source()["Metadata"]["AWS::CloudFormation::Interface"]["ParameterGroups"]
        grouped = [name for group in groups for name in group["Parameters"]]
        self.assertEqual(sorted(grouped), sorted(source()["Parameters"]))

    def test_each_condition_is_used(self):
        for path in [*PAGES, *NESTED]:
            template = transformed(path)
            text = str(template["Resources"]) + str(template["Conditions"]) + str(template["Outputs"])
            for name in template["Conditions"]:
                self.assertRegex(text, rf"'Condition': '{name}'|'Fn::If': \['{name}'")

    def test_the_documentation_says_of_each_what_the_template_says(self):
        for path, name, spec in parameters():
            default = {None: "required", "": ""}.get(spec.get("Default"), f"`{spec.get('Default')}`")
            self.assertIn(f"| `{name}` | {default} | {spec['Description']} |", PAGES[path].read_text().splitlines())


class Rules(unittest.TestCase):
    def test_they_use_only_functions_that_cloudformation_has_in_rules(self):
        # https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/intrinsic-function-reference-rules.html
        known = {"And", "Contains", "EachMemberEquals", "EachMemberIn", "Equals", "Not", "Or"}
        known = {"Ref"} | {f"Fn::{name}" for name in known}
        for path in PAGES:
            for name, rule in transformed(path)["Rules"].items():
                tests = [rule.get("RuleCondition", True), *(each["Assert"] for each in rule["Assertions"])]
                self.assertEqual(set(keys_in(tests)) - known, set(), name)

    def test_what_they_cannot_see_is_an_error_at_the_start_that_the_page_names(self):
        section = PAGES[MAIN].read_text().split("### What is not refused\n")[1].split("\n### ")[0]
        errors = re.findall(r"^\| `.*\| `(.*)` \|$", section, re.MULTILINE)
        self.assertEqual(len(errors), 3)
        program = re.sub(r"\\\n\s*", "", (ROOT / "src/config/redis.rs").read_text())
        for error in errors:
            self.assertIn(f'"{error}', program)
        iam = RECORDS["its own ElastiCache with IAM"]
        sentinel, plain = ({"RedisUrl": url} for url in ("rediss+sentinel://a,b/main", "redis://redis.example.com"))
        for parameters in sentinel | {"RedisCluster": "true"}, iam | sentinel, iam | plain:
            self.assertEqual(deployed(**parameters).refused_by(), [])


class Combinations(unittest.TestCase):
    def each(self):
        """Every combination of both templates: its name, its stack and its parameters."""
        for path in PAGES:
            for name, parameters in combinations(path):
                yield name, deployed(path, **parameters), parameters

    def test_none_is_refused(self):
        for name, stack, _ in self.each():
            self.assertEqual(stack.refused_by(), [], name)

    def test_nothing_refers_to_what_is_not_created(self):
        for name, stack, _ in self.each():
            with self.subTest(name):
                missing = set(names_in(stack.resources)) | set(names_in(stack.outputs))
                self.assertEqual(missing - stack.resources.keys(), set())
                for resource in stack.resources.values():
                    for needed in as_list(resource.get("DependsOn", [])):
                        self.assertIn(needed, stack.resources)

    def test_each_has_what_every_stack_needs(self):
        for name, parameters in combinations():
            stack = deployed(**parameters)
            outputs = {"QueueArn", "FunctionName", "FunctionRoleArn", "LogGroup", "Dashboard", "Namespace"}
            self.assertLessEqual(outputs, stack.outputs.keys(), name)
            is_new = parameters["Queue"] in ("standard", "fifo")
            self.assertEqual("QueueUrl" in stack.outputs, is_new, name)
            has_dead_letters = is_new or "DeadLetterQueueArn" in parameters
            for output in "DeadLetterQueueUrl", "DeadLetterQueueArn":
                self.assertEqual(output in stack.outputs, has_dead_letters, name)
            self.assertEqual("RedisIamUser" in stack.outputs, "RedisUrl" not in parameters, name)

    def test_another_stack_finds_the_cache_and_the_network(self):
        of_cache = {"RedisUrl", "RedisIamCache", "RedisIamServerless", "CacheUserGroupId"}
        of_network = {"VpcId", "SubnetIds", "SecurityGroupId"}
        for name, parameters in combinations():
            stack = deployed(**parameters)
            self.assertEqual(of_cache & stack.outputs.keys(), set() if "RedisUrl" in parameters else of_cache, name)
            in_vpc = "VpcConfig" in stack.properties("Function")
            self.assertEqual(of_network & stack.outputs.keys(), of_network if in_vpc else set(), name)
            if in_vpc:
                values = {output: stack.outputs[output]["Value"] for output in of_network}
                self.assertEqual(values["SecurityGroupId"], {"Ref": "FunctionSecurityGroup"})
                own = parameters.get("SubnetIds", "${PrivateSubnetA},${PrivateSubnetB}")
                self.assertEqual(values["SubnetIds"], own)
                self.assertEqual(values["VpcId"], parameters.get("VpcId", {"Ref": "Vpc"}))
