"""What AWS, and the rest of this project, need of template.yaml.

Run it with the Python of an environment that has cfn-lint, aws-sam-cli and pyyaml. It needs no AWS account and no
network.
"""

import sys
import unittest

MODULES = ["queues", "receives", "mapping", "function", "rights", "records", "network", "ledger", "alarms", "parameters", "tools"]

if __name__ == "__main__":
    suite = unittest.defaultTestLoader.loadTestsFromNames(MODULES)
    # With names, as arguments, only tests that have one of them in theirs.
    wanted = sys.argv[1:]
    if wanted:
        every = [test for module in suite for case in module for test in case]
        suite = unittest.TestSuite(test for test in every if any(name in test.id() for name in wanted))
    passed = unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful()
    sys.exit(0 if passed else 1)
