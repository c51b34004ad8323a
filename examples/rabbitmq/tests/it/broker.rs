//! A RabbitMQ node that all tests share. Each test has its own queues on it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Longest time for a node to start, on a slow test machine.
const START: Duration = Duration::from_secs(60);

/// Starts the node and its port mapper, and ends both when its standard input is closed, also if the test process was
/// killed.
const SCRIPT: &str = r#"
epmd -address 127.0.0.1 -port "$ERL_EPMD_PORT" >epmd.log 2>&1 & epmd=$!
"$1" >node.log 2>&1 & node=$!
read -r _
kill -KILL $node $epmd
wait
cd / && rm -rf "$HOME"
"#;

/// The node. It ends with the test process.
#[derive(Debug)]
pub(crate) struct Broker {
    pub(crate) port: u16,
    version: (u32, u32),
    /// Its standard input is closed when the test process ends.
    _process: Child,
}

impl Broker {
    /// The node, or `None` if RabbitMQ is not installed or is too old: the test is then skipped.
    pub(crate) fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<Option<Broker>> = OnceLock::new();
        let broker = SHARED.get_or_init(|| {
            let Some(program) = program() else { return skipped("RabbitMQ is not installed") };
            // Another process may take a port first; then other ports are tried.
            let broker = (0..5).find_map(|_| Self::start(&program)).expect("a port is free");
            if broker.version < (3, 10) { skipped("RabbitMQ is older than 3.10") } else { Some(broker) }
        });
        broker.as_ref()
    }

    fn start(program: &Path) -> Option<Self> {
        let directory = TempDir::with_prefix("rabbitmq-").unwrap().keep();
        let [port, distribution, epmd] = free_ports();
        let path = |name: &str| directory.join(name);
        fs::write(path("plugins"), "[].").unwrap();
        File::create(path("rabbitmq.conf")).unwrap();
        let mut process = Command::new("sh")
            .args(["-c", SCRIPT, "sh"])
            .arg(program)
            .env("HOME", &directory)
            .env("ERL_EPMD_PORT", epmd.to_string())
            .env("RABBITMQ_NODENAME", format!("test{port}@localhost"))
            .env("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1")
            .env("RABBITMQ_NODE_PORT", port.to_string())
            .env("RABBITMQ_DIST_PORT", distribution.to_string())
            .env("RABBITMQ_MNESIA_BASE", path("data"))
            .env("RABBITMQ_LOG_BASE", path("log"))
            .env("RABBITMQ_LOGS", "-")
            .env("RABBITMQ_ENABLED_PLUGINS_FILE", path("plugins"))
            .env("RABBITMQ_CONF_ENV_FILE", path("no.conf"))
            .env("RABBITMQ_CONFIG_FILE", path("rabbitmq"))
            // When an expired message without a queue is sent again: after 3 minutes by default.
            .env("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", "-rabbit dead_letter_worker_publisher_confirm_timeout 500")
            // The process of the script is then that of the node.
            .env("detached", "true")
            .current_dir(&directory)
            .stdin(Stdio::piped())
            // An interrupt from the terminal ends the tests, and then the node.
            .process_group(0)
            .spawn()
            .unwrap();
        let log = || fs::read_to_string(path("node.log")).unwrap_or_default();
        let begin = Instant::now();
        while begin.elapsed() < START {
            let log = log();
            if log.contains("Server startup complete") {
                return Some(Self { port, version: version(&log), _process: process });
            }
            if log.contains("BOOT FAILED") {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let log = log();
        drop(process.stdin.take());
        process.wait().unwrap();
        assert!(log.contains("eaddrinuse"), "RabbitMQ does not start: {log}");
        None
    }
}

/// Says why the tests are skipped.
fn skipped(why: &str) -> Option<Broker> {
    // Not by `eprintln!`, whose output is captured.
    io::stderr().write_all(format!("\nSKIPPED: the tests of examples/rabbitmq, because {why}\n\n").as_bytes()).unwrap();
    None
}

/// (3, 10) for `Starting RabbitMQ 3.10.8 on Erlang 25.2.3`.
fn version(log: &str) -> (u32, u32) {
    let mut numbers = log.split("Starting RabbitMQ ").nth(1).unwrap().split('.').map(|number| number.parse().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

/// The script that starts a node. Debian's in `PATH` requires the user `rabbitmq`.
fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = ["/usr/lib/rabbitmq/bin", "/opt/homebrew/opt/rabbitmq/sbin", "/usr/local/opt/rabbitmq/sbin"];
    let folders = places.into_iter().map(PathBuf::from).chain(std::env::split_paths(&path));
    folders.map(|folder| folder.join("rabbitmq-server")).find(|path| path.is_file())
}

/// Ports that are all different.
fn free_ports<const N: usize>() -> [u16; N] {
    let listeners = [(); N].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}
