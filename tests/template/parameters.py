"""The parameters: each is explained and used, and no combination of them leaves a loose end."""

import re
import unittest

from template import ROOT, combinations, deployed, source, transformed


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


class Parameters(unittest.TestCase):
    def test_each_says_what_it_is_for(self):
        for name, spec in source()["Parameters"].items():
            self.assertTrue(spec.get("Description", "").endswith("."), name)

    def test_only_the_webhook_has_to_be_given(self):
        without = [name for name, spec in source()["Parameters"].items() if "Default" not in spec]
        self.assertEqual(without, ["TargetUrl"])

    def test_each_default_is_permitted(self):
        for name, spec in source()["Parameters"].items():
            if "AllowedValues" in spec and "Default" in spec:
                self.assertIn(spec["Default"], spec["AllowedValues"], name)

    def test_each_is_used(self):
        used = set(names_in(transformed()["Resources"])) | set(names_in(transformed()["Conditions"]))
        self.assertEqual(source()["Parameters"].keys() - used, set())

    def test_each_is_in_one_group_of_the_console(self):
        groups = source()["Metadata"]["AWS::CloudFormation::Interface"]["ParameterGroups"]
        grouped = [name for group in groups for name in group["Parameters"]]
        self.assertEqual(sorted(grouped), sorted(source()["Parameters"]))

    def test_each_condition_is_used(self):
        text = str(transformed()["Resources"]) + str(transformed()["Conditions"]) + str(transformed()["Outputs"])
        for name in transformed()["Conditions"]:
            self.assertRegex(text, rf"'Condition': '{name}'|'Fn::If': \['{name}'")

    def test_the_documentation_says_of_each_what_the_template_says(self):
        rows = (ROOT / "docs/deploy.md").read_text().splitlines()
        for name, spec in source()["Parameters"].items():
            default = {None: "required", "": ""}.get(spec.get("Default"), f"`{spec.get('Default')}`")
            self.assertIn(f"| `{name}` | {default} | {spec['Description']} |", rows)


class Combinations(unittest.TestCase):
    def test_none_is_refused(self):
        for name, parameters in combinations():
            self.assertEqual(deployed(**parameters).refused_by(), [], name)

    def test_nothing_refers_to_what_is_not_made(self):
        for name, parameters in combinations():
            with self.subTest(name):
                stack = deployed(**parameters)
                missing = set(names_in(stack.resources)) | set(names_in(stack.outputs))
                self.assertEqual(missing - stack.resources.keys(), set())
                for resource in stack.resources.values():
                    self.assertIn(resource.get("DependsOn", "Function"), stack.resources)

    def test_each_has_what_every_stack_needs(self):
        for name, parameters in combinations():
            stack = deployed(**parameters)
            outputs = {"QueueArn", "FunctionName", "FunctionRoleArn", "LogGroup", "Dashboard", "Namespace"}
            self.assertLessEqual(outputs, stack.outputs.keys(), name)
            self.assertEqual("QueueUrl" in stack.outputs, "QueueArn" not in parameters, name)
            self.assertEqual("RedisIamUser" in stack.outputs, "RedisUrl" not in parameters, name)
