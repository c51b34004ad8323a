"""Tests of template.yaml, its nested stacks and examples/ledger/template.yaml. Runs every test module of this directory.

Requires a Python environment with cfn-lint, aws-sam-cli and pyyaml. Requires neither an AWS account nor a network.
"""

import sys
import unittest

MODULES = [
    "queues",
    "receives",
    "mapping",
    "function",
    "rights",
    "records",
    "network",
    "cost",
    "ledger",
    "alarms",
    "dashboard",
    "parameters",
    "guided",
    "options",
    "tools",
]

if __name__ == "__main__":
    suite = unittest.defaultTestLoader.loadTestsFromNames(MODULES)
    # Arguments select the tests whose names contain one of them.
    wanted = sys.argv[1:]
    if wanted:
        every = [test for module in suite for case in module for test in case]
        suite = unittest.TestSuite(test for test in every if any(name in test.id() for name in wanted))
    passed = unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful()
    sys.exit(0 if passed else 1)
