"""The archive of a release: what Lambda and SAM get, and that the same input makes the same bytes."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest
import zipfile
from importlib import util
from pathlib import Path

from samtranslator.yaml_helper import yaml_parse

from objects import Objects

ROOT = Path(__file__).resolve().parent.parent.parent
BINARIES = {name: f"the binary {name}".encode() * 1000 for name in ("function", "function-traced", "records", "letters")}
BUCKET = "packages"
# Of this machine's git only the program.
GIT = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}


def repository(folder):
    """A repository with the files of this one that a release is made of, as they are now."""
    script = Path("scripts", "package.py")
    spec = util.spec_from_file_location("package", ROOT / script)
    package = util.module_from_spec(spec)
    spec.loader.exec_module(package)
    for name in (script, package.TEMPLATE, *package.CONTENT):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, folder / name)
    author = ["-c", "user.name=test", "-c", "user.email=test@example.com"]
    for command in (["init", "--quiet"], ["add", "--force", "."], [*author, "commit", "--quiet", "--message", "all"]):
        subprocess.run(["git", *command], cwd=folder, env=GIT, check=True)
    return folder


def package(root, binaries, out, architecture, **options):
    script = [sys.executable, "-B", root / "scripts" / "package.py", "v1.2.3", architecture, binaries, out]
    return subprocess.run(script, capture_output=True, text=True, **options)


class Archive(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.binaries = Path(cls.folder.name) / "binaries"
        cls.binaries.mkdir()
        for name, data in BINARIES.items():
            (cls.binaries / name).write_bytes(data)
        cls.root = repository(Path(cls.folder.name) / "repository")
        cls.out = Path(cls.folder.name) / "out"
        cls.unpacked = {}
        for architecture in ("arm64", "x86_64"):
            package(cls.root, cls.binaries, cls.out, architecture, check=True)
            archive = f"idempotent-sqs-v1.2.3-{architecture}"
            with tarfile.open(cls.out / f"{archive}.tar.gz") as tar:
                # Not an argument of extractall(), which the first versions of Python 3.11 do not have.
                tar.extraction_filter = getattr(tarfile, "data_filter", None)
                tar.extractall(cls.folder.name)
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
        package(self.root, self.binaries, again, "arm64", check=True)
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

    def test_only_files_of_the_repository_are_in_the_archive(self):
        root = Path(self.folder.name) / "with-others"
        shutil.copytree(self.root, root)
        for name in ("docs/notes.md", "events/.env", "templates/packaged.yaml"):
            (root / name).write_text("TOKEN=secret")
        again = Path(self.folder.name) / "without-others"
        package(root, self.binaries, again, "arm64", check=True)
        name = "idempotent-sqs-v1.2.3-arm64.tar.gz"
        self.assertEqual((again / name).read_bytes(), (self.out / name).read_bytes())

    def test_missing_binaries_are_an_error_that_names_them(self):
        binaries = Path(self.folder.name) / "incomplete"
        binaries.mkdir()
        (binaries / "function").write_bytes(BINARIES["function"])
        done = package(self.root, binaries, Path(self.folder.name) / "none", "arm64")
        self.assertEqual(done.returncode, 1)
        self.assertIn("incomplete has no function-traced, records, letters: build them first", done.stderr)
        self.assertNotIn("Traceback", done.stderr)

    def test_a_file_that_is_not_as_committed_is_an_error(self):
        for name in ("samconfig.toml", "template.yaml", "docs/deploy.md"):
            root = Path(self.folder.name) / f"changed-{Path(name).stem}"
            shutil.copytree(self.root, root)
            with (root / name).open("a") as file:
                file.write("# saved by a deployment")
            done = package(root, self.binaries, root / "out", "arm64")
            self.assertEqual(done.returncode, 1, name)
            self.assertIn(f"not as committed: {name}. Commit or restore", done.stderr)
            self.assertFalse((root / "out").exists())

    def test_without_git_or_a_repository_there_is_no_archive(self):
        root = Path(self.folder.name) / "unpacked"
        shutil.copytree(self.root, root, ignore=shutil.ignore_patterns(".git"))
        for environment, reason in [
            ({"PATH": str(root)}, "git is needed"),
            ({"GIT_CEILING_DIRECTORIES": self.folder.name}, "git ls-files: fatal: not a git repository"),
        ]:
            done = package(root, self.binaries, root / "out", "arm64", env=os.environ | environment)
            self.assertEqual(done.returncode, 1, reason)
            self.assertIn(f"error: {reason}", done.stderr)

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
