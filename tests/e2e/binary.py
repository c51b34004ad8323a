"""The function's binary, the deployment package for Lambda, and the operator's tool."""

import io
import os
import subprocess
import zipfile
from pathlib import Path

import tools
from run import FUNCTION
from servers import Failed

# The file mode in the zip entry; without it the file is not executable.
EXECUTABLE = 0o755 << 16


def build():
    """Builds the release binary, or uses the one that E2E_BINARY names."""
    if given := os.environ.get("E2E_BINARY"):
        if not Path(given).is_file():
            raise Failed(f"E2E_BINARY: no such file: {given}")
        return Path(given).resolve()
    if subprocess.run(["cargo", "build", "--release", "--bin", FUNCTION], cwd=tools.ROOT).returncode:
        raise Failed("cargo build failed")
    return tools.ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "release" / FUNCTION


def build_letters():
    """Builds the operator's tool for dead letters."""
    if subprocess.run(["cargo", "build", "--package", "idempotent-sqs-ops", "--bin", "letters"], cwd=tools.ROOT).returncode:
        raise Failed("cargo build failed")
    return tools.ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "debug" / "letters"


def pack(binary):
    """The zip for CreateFunction, with the binary under the name `bootstrap`, which Lambda requires."""
    entry = zipfile.ZipInfo("bootstrap")
    entry.external_attr = EXECUTABLE
    entry.compress_type = zipfile.ZIP_DEFLATED
    package = io.BytesIO()
    with zipfile.ZipFile(package, "w") as archive:
        archive.writestr(entry, binary.read_bytes(), compresslevel=1)
    return package.getvalue()
