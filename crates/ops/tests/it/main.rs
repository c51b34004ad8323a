//! Tests of the operator's tools, by their binaries.

#![allow(clippy::unwrap_used, reason = "an unexpected error must fail the test")]
#![allow(clippy::wildcard_enum_match_arm, reason = "any other answer must fail the test")]
#![allow(clippy::unchecked_time_subtraction, reason = "tests subtract known times")]

mod forget;
mod inspect;
mod letters;
mod permissions;
mod scans;
mod sentinel;
mod sign_in;
mod usage;

use std::process::Stdio;
use std::time::Duration;

use harness::lambda::PASSWORD;
use harness::redis::Redis;
use harness::{TIMEOUT, soon, with};
use idempotent_sqs::config::Environment;
use idempotent_sqs::idempotency::{Acquire, Claim, Failure, Store};
use idempotent_sqs::stores::{RedisSettings, RedisStore};
use idempotent_sqs_testing::attempt;
use serde_json::Value;
use tokio::process::Command;

const CLEAN: Failure = Failure { uncertain: false, permanent: false };
const UNCERTAIN: Failure = Failure { uncertain: true, permanent: false };
const PERMANENT: Failure = Failure { uncertain: false, permanent: true };

/// A key that a producer may choose: the SHA-256 of its content, as in the digests of containers.
const DIGEST: &str = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

/// A lease that outlasts every test.
const LONG: Duration = Duration::from_secs(60);

/// A lease that ends while a test waits for it.
const SHORT: Duration = Duration::from_millis(20);

/// The tool with the settings of one consumer.
struct Tool {
    settings: Vec<(&'static str, String)>,
}

/// The output of one run.
struct Output {
    code: i32,
    stdout: String,
    stderr: String,
}

impl Tool {
    /// For the server or cluster at this URL, in the namespace `payments`.
    fn on(url: &str) -> Self {
        let timeout = TIMEOUT.as_millis().to_string();
        let settings = [("REDIS_URL", url), ("IDEMPOTENCY_NAMESPACE", "payments"), ("REDIS_TIMEOUT_MS", &timeout)];
        Self { settings: settings.map(|(name, value)| (name, value.to_owned())).into() }
    }

    /// For this server, with a password. A server without a password accepts any.
    fn of(redis: &Redis) -> Self {
        Self::on(&redis.url().replace("://", &format!("://default:{PASSWORD}@")))
    }

    fn with(mut self, name: &'static str, value: &str) -> Self {
        self.settings.retain(|(set, _)| *set != name);
        self.settings.push((name, value.to_owned()));
        self
    }

    /// Runs the tool, and checks that its output does not contain the password.
    async fn run(&self, arguments: &[&str]) -> Output {
        Output::new(soon(self.command(arguments).output()).await.unwrap())
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_records"));
        command.args(arguments).env_clear().envs(self.settings.iter().cloned());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// The exit code and the JSON document.
    async fn json(&self, arguments: &[&str]) -> (i32, Value) {
        self.run(&[arguments, &["--json"]].concat()).await.json()
    }

    async fn inspect(&self, key: &str) -> Value {
        let (code, record) = self.json(&["inspect", key]).await;
        assert_eq!(code, 0, "{record}");
        record
    }

    async fn fence(&self, key: &str) -> String {
        self.inspect(key).await["fence"].to_string()
    }

    async fn forget(&self, key: &str, state: &str, fence: &str) -> (i32, Value) {
        self.json(&["forget", key, "--state", state, "--fence", fence]).await
    }

    /// The settings of a function with the same records.
    fn redis_settings(&self) -> RedisSettings {
        let settings = self.settings.clone();
        let value = move |name: &str| settings.iter().find(|(set, _)| *set == name).map(|(_, value)| value.clone());
        let mut environment = Environment::new(value);
        let redis = RedisSettings::read(&mut environment);
        environment.finish(redis).unwrap()
    }

    fn store(&self) -> RedisStore {
        RedisStore::new(&self.redis_settings()).unwrap()
    }
}

impl Output {
    /// The output of a process, which must not contain the password.
    fn new(output: std::process::Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let code = output.status.code().unwrap();
        let output = Self { code, stdout: text(output.stdout), stderr: text(output.stderr) };
        let shows_password = output.stdout.contains(PASSWORD) || output.stderr.contains(PASSWORD);
        assert!(!shows_password, "{}{}", output.stdout, output.stderr);
        output
    }

    /// The exit code and the JSON document.
    fn json(&self) -> (i32, Value) {
        let document = serde_json::from_str(&self.stdout);
        (self.code, document.unwrap_or_else(|error| panic!("{error}: {}{}", self.stdout, self.stderr)))
    }

    /// The value of a row of the table.
    fn row(&self, name: &str) -> &str {
        let line = self.stdout.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix("  "));
        line.unwrap_or_else(|| panic!("no {name} in {}", self.stdout)).trim_start()
    }
}

async fn claim(store: &RedisStore, key: &str, lease: Duration) -> Claim {
    match soon(store.acquire(with!(attempt(key), lease = lease))).await.unwrap() {
        Acquire::Acquired(claim) | Acquire::AcquiredStale(claim) => claim,
        other => panic!("not acquired: {other:?}"),
    }
}

/// A claim whose lease has ended.
async fn expired_claim(store: &RedisStore, key: &str) -> Claim {
    let claim = claim(store, key, SHORT).await;
    tokio::time::sleep(SHORT * 2).await;
    claim
}

/// An output to which nothing can be written: it has no reader.
fn closed() -> Stdio {
    let (_, writer) = std::io::pipe().unwrap();
    writer.into()
}
