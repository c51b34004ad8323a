"""The workflows: pinned actions, locked dependencies, and no right that a job does not need."""

import re
import subprocess
import sys
import unittest
from pathlib import Path

from samtranslator.yaml_helper import yaml_parse

ROOT = Path(__file__).resolve().parent.parent.parent
FILES = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
# The commands of cargo that would change an outdated Cargo.lock.
RESOLVING = re.compile(r"cargo (?:lambda build|build|check|fetch|install|metadata|package|publish|test)\b[^|]*")
WORKFLOWS = {path.stem: yaml_parse(path.read_text()) for path in FILES}
RELEASE = WORKFLOWS["release"]["jobs"]


def commands(job):
    """What the steps of a job run, and what its variables abbreviate."""
    return [step["run"] for step in job["steps"] if "run" in step] + list(job.get("env", {}).values())


class Workflows(unittest.TestCase):
    def test_each_action_is_pinned_to_a_commit_and_names_its_version(self):
        used = [
            (path.name, line.split("uses:")[1].strip())
            for path in FILES
            for line in path.read_text().splitlines()
            if "uses:" in line
        ]
        self.assertGreater(len(used), 10)
        for name, action in used:
            self.assertRegex(action, f"^{PINNED.pattern}$", name)
        # One action has one version.
        pins = {action.split("@")[0]: set() for _, action in used}
        for _, action in used:
            pins[action.split("@")[0]].add(action)
        self.assertEqual([pin for pin in pins.values() if len(pin) != 1], [])

    def test_each_command_that_resolves_dependencies_is_locked(self):
        found = [
            (name, command)
            for name, workflow in WORKFLOWS.items()
            for job in workflow["jobs"].values()
            for text in commands(job)
            for command in RESOLVING.findall(text.replace("\n", " "))
        ]
        self.assertGreater(len(found), 8)
        for name, command in found:
            self.assertIn("--locked", command, name)

    def test_a_job_that_may_write_runs_no_code_of_dependencies(self):
        self.assertEqual(WORKFLOWS["release"]["permissions"], {})
        self.assertEqual(WORKFLOWS["ci"]["permissions"], {"contents": "read"})
        may_write = {name for name, job in RELEASE.items() if "write" in job["permissions"].values()}
        self.assertEqual(may_write, {"sbom", "release", "crates"})
        for name in may_write:
            for command in commands(RELEASE[name]):
                self.assertNotRegex(command, r"cargo (lambda|build|install|test|package)|pip|make|\.ci/run", name)
        self.assertIn("--no-verify", " ".join(commands(RELEASE["crates"])))

    def test_nothing_is_published_before_the_tests_pass(self):
        self.assertIn(".ci/run", commands(RELEASE["test"]))
        for name in ("sbom", "release"):
            self.assertLessEqual({"test", "build"}, set(RELEASE[name]["needs"]))
        self.assertEqual(RELEASE["crates"]["needs"], ["release"])

    def test_each_crate_is_published_and_packaged_in_both_workflows(self):
        manifests = [ROOT / "Cargo.toml", *(ROOT / "crates").glob("*/Cargo.toml")]
        crates = {re.search(r'^name = "(.+)"', path.read_text(), re.MULTILINE).group(1) for path in manifests}
        jobs = [WORKFLOWS["ci"]["jobs"]["package"], RELEASE["test"], RELEASE["crates"]]
        for job in jobs:
            text = " ".join(commands(job))
            self.assertEqual(set(re.findall(r"--package (\S+)", text)), crates)

    def test_zizmor_finds_no_fault(self):
        zizmor = Path(sys.executable).parent / "zizmor"
        done = subprocess.run([zizmor, "--offline", "--quiet", ROOT / ".github"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
