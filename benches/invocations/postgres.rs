//! A PostgreSQL server on a free port and in a folder of its own. It has the default settings, so that a commit is on
//! disk.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use benches::{Fallible, page};

/// Limit for the start of the server.
const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct Postgres {
    process: Child,
    port: u16,
    directory: TempDir,
}

impl Postgres {
    pub(crate) fn start() -> Fallible<Self> {
        let directory = tempfile::tempdir()?;
        chown_to_nobody(directory.path())?;
        let cluster = directory.path().join("cluster");
        let mut initdb = as_server_user("initdb")?;
        initdb.args(["--auth=trust", "--username=app", "--encoding=UTF8", "--locale=C", "--pgdata"]).arg(&cluster);
        run("initdb", &mut initdb)?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let log = File::create(directory.path().join("log"))?;
        let process = as_server_user("postgres")?
            .arg("-D")
            .arg(&cluster)
            .args(["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", &format!("port={port}")])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let mut server = Self { process, port, directory };
        server.await_readiness()?;
        Ok(server)
    }

    fn await_readiness(&mut self) -> Fallible<()> {
        let until = Instant::now() + TIMEOUT;
        while Instant::now() < until {
            let log = fs::read_to_string(self.directory.path().join("log"))?;
            if log.contains("ready to accept connections") {
                return Ok(());
            }
            if self.process.try_wait()?.is_some() {
                return Err(format!("PostgreSQL stopped:\n{log}").into());
            }
            sleep(Duration::from_millis(20));
        }
        Err("PostgreSQL did not start".into())
    }

    pub(crate) fn url(&self) -> String {
        format!("postgres://app@127.0.0.1:{}/postgres", self.port)
    }

    pub(crate) fn version() -> Fallible<String> {
        let version = run("postgres", Command::new(program("postgres")?).arg("--version"))?;
        Ok(version.trim().replace("postgres (PostgreSQL)", "PostgreSQL"))
    }

    /// Runs an SQL file of the project.
    pub(crate) fn run_file(&self, file: &str) -> Fallible<()> {
        let file = page::project().join(file);
        self.psql(&["--quiet", "--file", &file.to_string_lossy()]).map(drop)
    }

    /// Runs SQL statements. Returns the output of psql.
    pub(crate) fn query(&self, statements: &str) -> Fallible<String> {
        self.psql(&["--quiet", "--no-align", "--tuples-only", "--command", statements])
    }

    fn psql(&self, arguments: &[&str]) -> Fallible<String> {
        let mut psql = Command::new(program("psql")?);
        psql.args([&*self.url(), "--no-psqlrc", "--set", "ON_ERROR_STOP=1"]).args(arguments);
        run("psql", &mut psql)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // SIGQUIT stops the server and its children at once. Both calls fail if it has stopped.
        let _ = Command::new("kill").args(["-QUIT", &self.process.id().to_string()]).status();
        let _ = self.process.wait();
    }
}

fn run(name: &str, command: &mut Command) -> Fallible<String> {
    let output = command.output().map_err(|error| format!("{name}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{name}: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// The path of a program of PostgreSQL. Debian and Homebrew install them outside the PATH, in folders by version.
fn program(name: &str) -> Fallible<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    for parent in ["/usr/lib/postgresql", "/opt/homebrew/opt", "/usr/local/opt"] {
        let mut found: Vec<_> =
            fs::read_dir(parent).into_iter().flatten().flatten().map(|e| e.path().join("bin")).collect();
        found.sort();
        folders.extend(found.into_iter().rev());
    }
    let found = folders.into_iter().map(|folder| folder.join(name)).find(|path| path.is_file());
    found.ok_or_else(|| format!("{name} of PostgreSQL is missing; `make bench` installs it").into())
}

/// A command that runs as nobody if this process is root, as PostgreSQL does not run as root.
fn as_server_user(name: &str) -> Fallible<Command> {
    let program = program(name)?;
    if !is_root()? {
        return Ok(Command::new(program));
    }
    let mut as_nobody = Command::new("setpriv");
    as_nobody.args(["--reuid=nobody", "--regid=65534", "--clear-groups", "--"]).arg(program).current_dir("/");
    Ok(as_nobody)
}

fn chown_to_nobody(path: &Path) -> Fallible<()> {
    if is_root()? {
        run("chown", Command::new("chown").arg("nobody").arg(path))?;
    }
    Ok(())
}

fn is_root() -> Fallible<bool> {
    Ok(run("id", Command::new("id").arg("-u"))?.trim() == "0")
}
