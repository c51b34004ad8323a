"""Tests of what a release contains, and of the workflows that make it. Runs every test module of this directory.

Requires a Python environment with aws-sam-cli, pyyaml and zizmor. Requires neither an AWS account nor a network.
"""

import sys
import unittest

MODULES = ["archive", "workflows"]

if __name__ == "__main__":
    suite = unittest.defaultTestLoader.loadTestsFromNames(MODULES)
    sys.exit(0 if unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful() else 1)
