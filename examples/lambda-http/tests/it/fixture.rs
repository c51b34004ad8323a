//! A Redis, a file of payments, and processes of the function.

use std::fs;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use harness::lambda::Function;
use harness::redis::Redis;
use harness::until;
use serde_json::Value;
use tempfile::TempDir;

/// Time of an invocation, unless a test says otherwise.
const TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) struct Fixture {
    pub(crate) redis: Redis,
    directory: TempDir,
}

/// A process of the function that is ready for invocations.
pub(crate) struct Process(pub(crate) Function);

/// What API Gateway or a load balancer is told.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) cookies: Vec<String>,
    pub(crate) is_base64: bool,
    pub(crate) body: Vec<u8>,
}

/// The event of this file in `events`.
pub(crate) fn event(name: &str) -> Value {
    let path = format!("{}/events/{name}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

impl Fixture {
    pub(crate) async fn new() -> Self {
        Self { redis: Redis::start().await, directory: tempfile::tempdir().unwrap() }
    }

    /// Starts a process whose payments take this long, ms, and waits until it answers.
    pub(crate) async fn start(&self, work_ms: u64) -> Process {
        let (file, work) = (self.directory.path().join("payments.jsonl"), work_ms.to_string());
        let settings =
            [("REDIS_URL", &*self.redis.url()), ("PAYMENTS_FILE", file.to_str().unwrap()), ("WORK_MS", &*work)];
        let process = Process(Function::start(env!("CARGO_BIN_EXE_lambda-http-payments"), &settings).await);
        assert_eq!(process.invoke(event("http-api-no-key")).await.status, 400);
        process
    }

    /// Waits until a request has acquired its record.
    pub(crate) async fn in_flight(&self) {
        let connection = self.redis.connection().await;
        until(|| {
            let mut connection = connection.clone();
            async move { redis::cmd("DBSIZE").query_async::<u64>(&mut connection).await.unwrap() > 0 }
        })
        .await;
    }

    /// The payments that were made.
    pub(crate) fn payments(&self) -> Vec<Value> {
        let lines = fs::read_to_string(self.directory.path().join("payments.jsonl")).unwrap();
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl Process {
    pub(crate) async fn invoke(&self, event: Value) -> Answer {
        self.invoke_within(TIMEOUT, event).await
    }

    /// Invokes the function with a deadline after `timeout`.
    pub(crate) async fn invoke_within(&self, timeout: Duration, event: Value) -> Answer {
        let answer = self.0.begin(event.to_string(), timeout).answer().await;
        Answer::of(&serde_json::from_str(&answer).unwrap())
    }
}

impl Answer {
    fn of(answer: &Value) -> Self {
        let is_base64 = answer["isBase64Encoded"].as_bool().unwrap();
        let body = answer["body"].as_str().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let single =
            answer["headers"].as_object().into_iter().flatten().map(|(name, value)| (name.clone(), text(value)));
        let multiple =
            answer["multiValueHeaders"].as_object().into_iter().flatten().flat_map(|(name, values)| {
                values.as_array().unwrap().iter().map(move |value| (name.clone(), text(value)))
            });
        Self {
            status: answer["statusCode"].as_u64().unwrap().try_into().unwrap(),
            headers: single.chain(multiple).collect(),
            cookies: answer["cookies"].as_array().into_iter().flatten().map(text).collect(),
            is_base64,
            body: if is_base64 { STANDARD.decode(body).unwrap() } else { body.as_bytes().to_vec() },
        }
    }

    pub(crate) fn header(&self, wanted: &str) -> Option<&str> {
        self.headers.iter().find(|(name, _)| name == wanted).map(|(_, value)| &**value)
    }

    pub(crate) fn is_replayed(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }

    /// Seconds.
    pub(crate) fn retry_after(&self) -> u64 {
        self.header("retry-after").unwrap().parse().unwrap()
    }

    /// The last part of the problem's type.
    pub(crate) fn problem(&self) -> String {
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        let problem: Value = serde_json::from_slice(&self.body).unwrap();
        problem["type"].as_str().unwrap().rsplit_once('#').unwrap().1.to_owned()
    }
}
