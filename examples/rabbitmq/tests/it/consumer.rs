//! The example as a process.

use std::fs::{self, File, OpenOptions};

use harness::{soon, until};
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::{Child, Command};

/// In the log once the process consumes, after each connection.
pub(crate) const CONSUMING: &str = "consuming queue=";

/// A process of the example, with a file of payments of its own.
pub(crate) struct Consumer {
    process: Child,
    directory: TempDir,
    settings: Settings,
}

#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) amqp_port: u16,
    pub(crate) redis_url: String,
    pub(crate) queue: String,
    pub(crate) work_ms: u64,
    pub(crate) prefetch: u16,
}

impl Consumer {
    /// Starts the process, and waits until it consumes.
    pub(crate) async fn start(settings: Settings) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("payments")).unwrap();
        let process = spawn(&directory, &settings).await;
        Self { process, directory, settings }
    }

    /// Kills the process, as a crash does.
    pub(crate) async fn kill(&mut self) {
        self.process.kill().await.unwrap();
    }

    /// Asks the process to end.
    pub(crate) async fn ask_to_end(&self) {
        let id = self.process.id().unwrap().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().await.unwrap().success());
    }

    /// Asks the process to end, and waits for it.
    pub(crate) async fn terminate(&mut self) {
        self.ask_to_end().await;
        assert!(soon(self.process.wait()).await.unwrap().success());
    }

    /// Starts another process on the same file.
    pub(crate) async fn restart(&mut self) {
        self.process = spawn(&self.directory, &self.settings).await;
    }

    /// The payments that were made.
    pub(crate) fn payments(&self) -> Vec<Value> {
        let lines = fs::read_to_string(self.directory.path().join("payments/file")).unwrap_or_default();
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Waits until so many payments were made.
    pub(crate) async fn until_paid(&self, count: usize) {
        until(|| async { self.payments().len() >= count }).await;
    }

    /// How many lines of the log have this text, in all processes.
    pub(crate) fn logged(&self, text: &str) -> usize {
        let log = fs::read_to_string(self.directory.path().join("log")).unwrap();
        log.lines().filter(|line| line.contains(text)).count()
    }

    /// Removes the folder of the file of payments, so that none can be made, or creates it.
    pub(crate) fn allow_payments(&self, allow: bool) {
        let folder = self.directory.path().join("payments");
        if allow { fs::create_dir(folder).unwrap() } else { fs::remove_dir_all(folder).unwrap() }
    }
}

async fn spawn(directory: &TempDir, settings: &Settings) -> Child {
    let log: File = OpenOptions::new().create(true).append(true).open(directory.path().join("log")).unwrap();
    let logged = || fs::read_to_string(directory.path().join("log")).unwrap().matches(CONSUMING).count();
    let before = logged();
    let process = Command::new(env!("CARGO_BIN_EXE_rabbitmq-payments"))
        .env("AMQP_URL", format!("amqp://127.0.0.1:{}/%2f", settings.amqp_port))
        .env("REDIS_URL", &settings.redis_url)
        .env("QUEUE", &settings.queue)
        .env("WORK_MS", settings.work_ms.to_string())
        .env("PREFETCH", settings.prefetch.to_string())
        .env("PAYMENTS_FILE", directory.path().join("payments/file"))
        // No colours in the log.
        .env("NO_COLOR", "1")
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    until(|| async { logged() > before }).await;
    process
}
