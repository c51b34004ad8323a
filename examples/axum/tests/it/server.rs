//! The example as a process.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use harness::soon;
use reqwest::Client;
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// A process of the example, with a file of payments of its own.
pub(crate) struct Server {
    process: Child,
    address: Address,
    directory: TempDir,
    redis_url: String,
}

/// Where a server listens.
#[derive(Clone, Debug)]
pub(crate) struct Address(String);

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) replayed: bool,
    pub(crate) retry_after: Option<String>,
    pub(crate) location: Option<String>,
    pub(crate) body: String,
}

impl Server {
    pub(crate) async fn start(redis_url: &str, work_ms: u64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (process, address) = spawn(&directory, redis_url, work_ms).await;
        Self { process, address, directory, redis_url: redis_url.to_owned() }
    }

    /// Kills the process, as a crash does.
    pub(crate) async fn kill(&mut self) {
        self.process.kill().await.unwrap();
    }

    /// Asks the process to end, and waits for it.
    pub(crate) async fn terminate(&mut self) {
        let id = self.process.id().unwrap().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().await.unwrap().success());
        assert!(soon(self.process.wait()).await.unwrap().success());
    }

    /// Starts another process on the same file, on another port.
    pub(crate) async fn restart(&mut self, work_ms: u64) {
        (self.process, self.address) = spawn(&self.directory, &self.redis_url, work_ms).await;
    }

    pub(crate) fn address(&self) -> Address {
        self.address.clone()
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.address.0)
    }

    pub(crate) async fn pay(&self, client: &Client, key: &str) -> Answer {
        self.address.pay(client, key).await
    }

    pub(crate) async fn pay_as(&self, client: &Client, key: &str, principal: Option<&str>) -> Answer {
        self.address.try_pay_as(client, key, principal).await.unwrap()
    }

    /// The payments that were made.
    pub(crate) fn payments(&self) -> Vec<Value> {
        let lines = fs::read_to_string(self.directory.path().join("payments.jsonl")).unwrap();
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl Address {
    /// Pays 12.50 EUR with this key.
    pub(crate) async fn pay(&self, client: &Client, key: &str) -> Answer {
        self.try_pay(client, key).await.unwrap()
    }

    pub(crate) async fn try_pay(&self, client: &Client, key: &str) -> reqwest::Result<Answer> {
        self.try_pay_as(client, key, Some("Bearer alice")).await
    }

    async fn try_pay_as(&self, client: &Client, key: &str, principal: Option<&str>) -> reqwest::Result<Answer> {
        self.send(client, key, principal, 1250).await
    }

    pub(crate) async fn try_pay_amount(&self, client: &Client, key: &str, amount: u64) -> reqwest::Result<Answer> {
        self.send(client, key, Some("Bearer alice"), amount).await
    }

    async fn send(&self, client: &Client, key: &str, principal: Option<&str>, amount: u64) -> reqwest::Result<Answer> {
        let request = client.post(format!("{}/payments", self.0)).header("idempotency-key", key);
        let request = if let Some(value) = principal { request.header("authorization", value) } else { request };
        let request = request.header("content-type", "application/json").timeout(Duration::from_secs(30));
        let answer = request.body(format!(r#"{{"amount": {amount}, "currency": "EUR"}}"#)).send().await?;
        let header = |name: &str| answer.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        Ok(Answer {
            status: answer.status().as_u16(),
            replayed: header("idempotent-replayed").is_some(),
            retry_after: header("retry-after"),
            location: header("location"),
            body: answer.text().await?,
        })
    }
}

async fn spawn(directory: &TempDir, redis_url: &str, work_ms: u64) -> (Child, Address) {
    let mut process = Command::new(env!("CARGO_BIN_EXE_axum-payments"))
        .envs([("PORT", "0"), ("REDIS_URL", redis_url), ("WORK_MS", &work_ms.to_string())])
        .env("PAYMENTS_FILE", directory.path().join("payments.jsonl"))
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let line = soon(lines.next_line()).await.unwrap().unwrap();
    (process, Address(line.strip_prefix("listening on ").unwrap().to_owned()))
}
