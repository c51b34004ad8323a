"""Makes the files of a release for one architecture, of binaries that were built for Lambda.

    python3 scripts/package.py VERSION ARCHITECTURE BINARIES OUT

BINARIES is a folder with `function`, `function-traced` (built with the feature `otel`), `records` and `letters`. OUT gets:

    function-ARCHITECTURE.zip, function-traced-ARCHITECTURE.zip    packages that Lambda accepts as they are
    idempotent-sqs-VERSION-ARCHITECTURE.tar.gz                     the package, a template that points at it, tools, docs

The same input makes the same bytes, whatever the time and the user. Only files that are committed are packed, as they were
committed: a file that was changed since then is an error, and one that git does not track is left out. Requires git.
"""

import gzip
import io
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ARCHITECTURES = ["arm64", "x86_64"]
PACKAGES = ["function", "function-traced"]
TOOLS = ["records", "letters"]
TEMPLATE = "template.yaml"
# Files and folders of the repository that are part of the archive, as they are.
CONTENT = ["templates", "samconfig.toml", "README.md", "CHANGELOG.md", "SECURITY.md", "LICENSE-APACHE", "LICENSE-MIT",
           "docs", "events", "crates/postgres/sql"]
# The earliest time that a ZIP archive can express.
ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)


def main(version, architecture, binaries, out):
    if architecture not in ARCHITECTURES:
        sys.exit(f"error: unknown architecture {architecture!r}: use {' or '.join(ARCHITECTURES)}")
    if missing := [name for name in [*PACKAGES, *TOOLS] if not (Path(binaries) / name).is_file()]:
        sys.exit(f"error: {binaries} has no {', '.join(missing)}: build them first, as .github/workflows/release.yml does")
    content = committed([TEMPLATE, *CONTENT])
    content.remove(TEMPLATE)
    binaries, out = Path(binaries), Path(out)
    out.mkdir(parents=True, exist_ok=True)
    template = (ROOT / TEMPLATE).read_text()
    files = [(TEMPLATE, deployable(template, architecture).encode(), 0o644)]
    for name in PACKAGES:
        package = lambda_package((binaries / name).read_bytes())
        (out / f"{name}-{architecture}.zip").write_bytes(package)
        files.append((f"{name}.zip", package, 0o644))
    files += [(name, (binaries / name).read_bytes(), 0o755) for name in TOOLS]
    files += [(name, (ROOT / name).read_bytes(), 0o644) for name in content]
    archive = f"idempotent-sqs-{version}-{architecture}"
    (out / f"{archive}.tar.gz").write_bytes(tar(archive, files))


def deployable(template, architecture):
    """The template with the built package instead of the source, and for this architecture only."""
    template = replaced(r"^    Metadata:.*BuildMethod.*\n|^    Metadata:\n      BuildMethod.*\n(      .*\n)*", "", template)
    template = replaced(r"^( +CodeUri:) .*$", r"\1 function.zip", template)
    parameter = re.search(r"^  Architecture:\n(    .*\n)+", template, re.MULTILINE)
    if not parameter:
        sys.exit("error: the template has no parameter Architecture")
    fixed = replaced(r"AllowedValues: .*$", f"AllowedValues: [{architecture}]", parameter.group())
    fixed = replaced(r"Default: .*$", f"Default: {architecture}", fixed)
    return template.replace(parameter.group(), fixed)


def replaced(pattern, replacement, text):
    """The text with the only match replaced."""
    text, count = re.subn(pattern, replacement, text, flags=re.MULTILINE)
    if count != 1:
        sys.exit(f"error: {count} matches of {pattern} in template.yaml, expected one")
    return text


def lambda_package(binary):
    """A ZIP archive with the binary as an executable `bootstrap`, which Lambda's runtime starts."""
    entry = zipfile.ZipInfo("bootstrap", ZIP_EPOCH)
    entry.compress_type = zipfile.ZIP_DEFLATED
    # Made by Unix, so that the mode applies.
    entry.create_system = 3
    entry.external_attr = 0o100755 << 16
    package = io.BytesIO()
    with zipfile.ZipFile(package, "w") as archive:
        archive.writestr(entry, binary, compresslevel=9)
    return package.getvalue()


def committed(names):
    """The files of the repository with these names, and in the folders with these names."""
    # An error if a name has no file.
    files = git("ls-files", "--error-unmatch", "-z", "--", *names)
    if changed := git("diff", "--name-only", "-z", "HEAD", "--", *names):
        sys.exit(f"error: not as committed: {', '.join(changed)}. Commit or restore what was changed, then try again")
    return files


def git(*command):
    """The names that a command of git prints."""
    try:
        done = subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True)
    except OSError as why:
        sys.exit(f"error: git is needed to tell which files are part of the repository: {why}")
    if done.returncode:
        sys.exit(f"error: git {command[0]}: {done.stderr.strip()}")
    return done.stdout.split("\0")[:-1]


def tar(folder, files):
    """A compressed archive of these files in a folder, in order of their names and without their times and owners."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data, mode in sorted(files):
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.size, entry.mode = len(data), mode
            archive.addfile(entry, io.BytesIO(data))
    return gzip.compress(packed.getvalue(), mtime=0)


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    main(*sys.argv[1:])
