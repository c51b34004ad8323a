"""The changes of the templates that docs/deploy.md describes: SAM transforms them, and cfn-lint passes them."""

import json
import re
import shutil
import tempfile
import unittest
from pathlib import Path

from samtranslator.parser.parser import Parser
from samtranslator.translator.translator import Translator
from template import MAIN, ROOT, deployed, yaml_parse
from tools import run

PAGE = (ROOT / "docs/deploy.md").read_text()


def snippet(heading):
    """The first YAML of a section of the page."""
    section = PAGE.split(f"#### {heading}\n")[1]
    return yaml_parse(re.search(r"```yaml\n(.*?)```", section, re.DOTALL)[1])


def changed(change):
    """The transformed template after a change of its resources."""
    template = yaml_parse(MAIN.read_text())
    change(template["Resources"])
    template["Resources"]["Function"]["Properties"]["CodeUri"] = "s3://built/function.zip"
    return Translator({}, Parser()).translate(template, {})


class Options(unittest.TestCase):
    def passes(self, template, ignored="W3002"):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "template.json"
            path.write_text(json.dumps(template))
            shutil.copytree(ROOT / "templates", Path(folder) / "templates")
            code, output = run("cfn-lint", "--ignore-checks", ignored, "--", path)
            self.assertEqual(code, 0, output)

    def test_provisioned_pollers_take_the_place_of_the_scaling_configuration(self):
        option = snippet("Provisioned pollers")

        def change(resources):
            mapping = resources["Mapping"]["Properties"]
            self.assertEqual(mapping.pop("ScalingConfig"), {"MaximumConcurrency": {"Ref": "MaximumConcurrency"}})
            mapping.update(option)

        template = changed(change)
        # No parameter is left over but the one that limited the concurrency.
        del template["Parameters"]["MaximumConcurrency"]
        template["Metadata"]["AWS::CloudFormation::Interface"]["ParameterGroups"] = []
        self.passes(template)
        pollers = template["Resources"]["Mapping"]["Properties"]["ProvisionedPollerConfig"]
        self.assertGreaterEqual(pollers["MinimumPollers"], 2, "the minimum for SQS")
        # Lambda rejects both.
        both = deployed().of_type("AWS::Lambda::EventSourceMapping")["Mapping"].keys()
        self.assertFalse({"ScalingConfig", "ProvisionedPollerConfig"} <= both)

    def test_managed_instances_run_the_function(self):
        option = snippet("Managed Instances")

        def change(resources):
            resources["Function"]["Properties"].update(option["Function"]["Properties"])
            del resources["Function"]["Properties"]["VpcConfig"]
            resources["CapacityProvider"] = option["CapacityProvider"]
            resources["Mapping"]["Properties"]["FunctionName"] = {"Ref": "FunctionAliaslive"}

        template = changed(change)
        # It needs the network also where the function is outside a VPC, which the page excludes.
        self.passes(template, ignored="W3002,W1001,W8001")
        self.assertIn("CapacityProviderConfig", template["Resources"]["Function"]["Properties"])
        kinds = {resource["Type"] for resource in template["Resources"].values()}
        self.assertLessEqual({"AWS::Lambda::CapacityProvider", "AWS::Lambda::Version", "AWS::Lambda::Alias"}, kinds)
