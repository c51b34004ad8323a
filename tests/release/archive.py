"""The archive of a release: what Lambda and SAM get, and that the same input makes the same bytes."""

import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest
import zipfile
from pathlib import Path

from samtranslator.yaml_helper import yaml_parse

from objects import Objects

ROOT = Path(__file__).resolve().parent.parent.parent
BINARIES = {name: f"the binary {name}".encode() * 1000 for name in ("function", "function-traced", "records", "letters")}
BUCKET = "packages"


def package(binaries, out, architecture):
    script = [sys.executable, "-B", ROOT / "scripts" / "package.py", "v1.2.3", architecture, binaries, out]
    subprocess.run(script, check=True)


class Archive(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.binaries = Path(cls.folder.name) / "binaries"
        cls.binaries.mkdir()
        for name, data in BINARIES.items():
            (cls.binaries / name).write_bytes(data)
        cls.out = Path(cls.folder.name) / "out"
        cls.unpacked = {}
        for architecture in ("arm64", "x86_64"):
            package(cls.binaries, cls.out, architecture)
            archive = f"idempotent-sqs-v1.2.3-{architecture}"
            with tarfile.open(cls.out / f"{archive}.tar.gz") as tar:
                tar.extractall(cls.folder.name, filter="data")
            cls.unpacked[architecture] = Path(cls.folder.name) / archive

    def test_each_package_has_the_binary_as_an_executable_bootstrap_and_nothing_else(self):
        for architecture, folder in self.unpacked.items():
            for name in ("function", "function-traced"):
                alone, beside = self.out / f"{name}-{architecture}.zip", folder / f"{name}.zip"
                self.assertEqual(alone.read_bytes(), beside.read_bytes())
                with zipfile.ZipFile(alone) as archive:
                    (entry,) = archive.infolist()
                    self.assertEqual(archive.read(entry), BINARIES[name])
                self.assertEqual(entry.filename, "bootstrap")
                # Lambda ignores the mode of an entry that was not made by Unix.
                self.assertEqual((entry.create_system, entry.external_attr >> 16), (3, 0o100755))

    def test_the_same_input_makes_the_same_bytes_at_another_time(self):
        again = Path(self.folder.name) / "again"
        for path in self.binaries.iterdir():
            os.utime(path, (0, time.time() - 86400))
        package(self.binaries, again, "arm64")
        files = sorted(path.name for path in again.iterdir())
        self.assertEqual(len(files), 3)
        for name in files:
            self.assertEqual((again / name).read_bytes(), (self.out / name).read_bytes(), name)

    def test_the_tools_and_the_documents_are_in_the_archive(self):
        for folder in self.unpacked.values():
            for name in ("records", "letters"):
                self.assertEqual((folder / name).read_bytes(), BINARIES[name])
                self.assertTrue(os.access(folder / name, os.X_OK))
            for name in ("README.md", "SECURITY.md", "LICENSE-MIT", "docs/deploy.md", "crates/postgres/sql/inbox.sql"):
                self.assertEqual((folder / name).read_bytes(), (ROOT / name).read_bytes(), name)

    def test_the_template_admits_the_architecture_of_its_package_only(self):
        for architecture, folder in self.unpacked.items():
            template = yaml_parse((folder / "template.yaml").read_text())
            parameter = template["Parameters"]["Architecture"]
            self.assertEqual((parameter["Default"], parameter["AllowedValues"]), (architecture, [architecture]))

    def test_sam_uploads_the_package_as_it_is_without_a_build_and_without_rust(self):
        folder = self.unpacked["arm64"]
        with Objects() as objects:
            deployed = self.packaged(folder, objects)
        (function,) = [r for r in deployed["Resources"].values() if r["Type"] == "AWS::Serverless::Function"]
        self.assertNotIn("BuildMethod", function.get("Metadata", {}))
        key = function["Properties"]["CodeUri"].removeprefix("s3:/")
        self.assertEqual(objects.kept[key], (folder / "function.zip").read_bytes())

    def packaged(self, folder, objects):
        # sam checks for a new version once a week. This records a check that has just been made.
        (folder / "metadata.json").write_text(json.dumps({"lastVersionCheck": time.time()}))
        environment = {
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "HOME": str(folder),
            "SAM_CLI_TELEMETRY": "0",
            "__SAM_CLI_APP_DIR": str(folder),
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "eu-central-1",
            "AWS_ENDPOINT_URL": objects.url,
            "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
        }
        command = [Path(sys.executable).parent / "sam", "package", "--s3-bucket", BUCKET, "--output-template-file", "deployed.yaml"]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return yaml_parse((folder / "deployed.yaml").read_text())


if __name__ == "__main__":
    unittest.main()
