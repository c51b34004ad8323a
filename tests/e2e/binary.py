"""The function's binary, and the package that Lambda takes it in."""

import io
import os
import subprocess
import zipfile
from pathlib import Path

import tools
from processes import Failed
from stage import FUNCTION

# The zip's field for a file's mode; without it nothing could be executed.
EXECUTABLE = 0o755 << 16


def build():
    """The release binary, or the one that E2E_BINARY names."""
    if given := os.environ.get("E2E_BINARY"):
        if not Path(given).is_file():
            raise Failed(f"E2E_BINARY is {given}, and there is no such file")
        return Path(given).resolve()
    if subprocess.run(["cargo", "build", "--release", "--bin", FUNCTION], cwd=tools.ROOT).returncode:
        raise Failed("the function does not compile")
    return tools.ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "release" / FUNCTION


def pack(binary):
    """What CreateFunction takes: a zip with the binary, named as Lambda looks for it."""
    entry = zipfile.ZipInfo("bootstrap")
    entry.external_attr = EXECUTABLE
    entry.compress_type = zipfile.ZIP_DEFLATED
    package = io.BytesIO()
    with zipfile.ZipFile(package, "w") as archive:
        archive.writestr(entry, binary.read_bytes(), compresslevel=1)
    return package.getvalue()
