"""Tests of `make run`: the environment of its function."""

import os
import re
import sys
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import run


class Environment(unittest.TestCase):
    def test_no_setting_of_the_user_reaches_the_function_of_make_run(self):
        page = (ROOT / "docs" / "configuration.md").read_text()
        names = re.findall(r"^\| `([A-Z_]+)` \|", page, re.MULTILINE) + ["AWS_PROFILE", "OTEL_SDK_DISABLED", "RUST_LOG"]
        self.assertGreater(len(names), 35)
        with mock.patch.dict(os.environ, {name: "of the user" for name in names}):
            settings = run.settings("redis://127.0.0.1:1", "http://127.0.0.1:2")
        self.assertEqual([name for name, value in settings.items() if value == "of the user"], [])
        self.assertEqual(settings["PATH"], os.environ["PATH"])


if __name__ == "__main__":
    unittest.main()
