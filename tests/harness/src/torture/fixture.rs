//! What the processes use: a queue, the API of SQS, and Redis. The settings name their receiver.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use idempotent_sqs::sqs::DeadLetter;
use idempotent_sqs_testing::{Mapping, Queue, SqsError};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use super::fleet;
use super::tally::{Tally, lock};
use crate::http::{Answer, Request, Server};
use crate::lambda::Function;

type Settings = dyn Fn(usize) -> Vec<(&'static str, String)> + Send + Sync;

pub struct Fixture {
    pub tally: Arc<Tally>,
    binary: &'static str,
    redis: String,
    cluster: bool,
    sqs: Server,
    /// Settings of the process with this number.
    settings: Box<Settings>,
    /// For each process, how long it was frozen, ns, in a file of 8 bytes.
    frozen_ns: TempDir,
    all_sent: AtomicBool,
    over: Notify,
}

/// The longest visibility timeout that a message gets, so that a run ends in time. What the function asks for is
/// recorded.
const LONGEST_VISIBILITY: Duration = Duration::from_secs(5);

impl Fixture {
    /// Processes of the binary at `path`, with the additional settings of each. The Redis may be a cluster.
    pub async fn new(
        path: &'static str,
        (redis, cluster): (String, bool),
        queue: &Queue,
        settings: Box<Settings>,
    ) -> Self {
        let tally: Arc<Tally> = Arc::default();
        let sqs = sqs(queue.clone(), Arc::clone(&tally)).await;
        let (all_sent, over) = (AtomicBool::new(false), Notify::new());
        let frozen_ns = tempfile::tempdir().unwrap();
        Self { tally, binary: path, redis, cluster, sqs, settings, frozen_ns, all_sent, over }
    }

    /// Starts a process. Its access key of AWS names its number.
    pub async fn function(&self, number: usize) -> Function {
        let frozen_ns = self.frozen_ns(number);
        fs::write(&frozen_ns, 0_i64.to_ne_bytes()).unwrap();
        let (cluster, sqs) = (self.cluster.to_string(), format!("http://{}", self.sqs.address()));
        let (access_key, own) = (format!("process-{number}"), (self.settings)(number));
        let mut settings = fleet::SETTINGS.to_vec();
        settings.extend([("REDIS_URL", &*self.redis), ("REDIS_CLUSTER", &*cluster), ("AWS_ENDPOINT_URL_SQS", &*sqs)]);
        settings.extend([("AWS_ACCESS_KEY_ID", &*access_key), ("FROZEN_NS", frozen_ns.to_str().unwrap())]);
        settings.extend(own.iter().map(|(name, value)| (*name, value.as_str())));
        Function::start(self.binary, &settings).await
    }

    /// Adds a time during which this process was frozen, which its monotonic clock does not count.
    pub fn add_frozen(&self, number: usize, time: Duration) {
        let path = self.frozen_ns(number);
        let before = i64::from_ne_bytes(fs::read(&path).unwrap().try_into().unwrap());
        let ns = before + i64::try_from(time.as_nanos()).unwrap();
        fs::write(path, ns.to_ne_bytes()).unwrap();
    }

    fn frozen_ns(&self, number: usize) -> PathBuf {
        self.frozen_ns.path().join(number.to_string())
    }

    pub fn has_sent_all(&self) {
        self.all_sent.store(true, Ordering::SeqCst);
    }

    /// Whether every message was sent and deleted.
    pub fn is_over(&self, mapping: &Mapping) -> bool {
        let over = self.all_sent.load(Ordering::SeqCst) && mapping.queue().is_empty();
        if over {
            self.over.notify_waiters();
        }
        over
    }

    pub async fn ended(&self) {
        // A task that starts to wait after the end wakes at the next timeout.
        tokio::select! {
            () = self.over.notified() => {}
            () = sleep(Duration::from_millis(200)) => {}
        }
    }
}

/// The API of SQS that the function calls, on the simulated queue.
async fn sqs(queue: Queue, tally: Arc<Tally>) -> Server {
    Server::start(move |request: Request| {
        let call: Value = serde_json::from_slice(&request.body).unwrap();
        lock(&tally.reused_connections).extend(request.idle.map(|idle| (Instant::now(), idle)));
        let answer = match request.header("X-Amz-Target") {
            Some("AmazonSQS.ChangeMessageVisibilityBatch") => change_visibility(&queue, &tally, &call),
            Some("AmazonSQS.SendMessage") => {
                let letter = &call["MessageAttributes"][DeadLetter::ATTRIBUTE]["StringValue"];
                lock(&tally.letters).push(serde_json::from_str(letter.as_str().unwrap()).unwrap());
                json!({ "MessageId": "219f8380-5770-4cc2-8c3e-5c715e145f5e" })
            }
            other => panic!("{other:?}"),
        };
        let answer = answer.to_string();
        async move { Answer::with(200, &[("Content-Type", "application/x-amz-json-1.0")], answer.as_bytes()) }
    })
    .await
}

/// `ChangeMessageVisibilityBatch`
fn change_visibility(queue: &Queue, tally: &Tally, call: &Value) -> Value {
    let (mut done, mut failed) = (Vec::new(), Vec::new());
    for entry in call["Entries"].as_array().unwrap() {
        let after_s = entry["VisibilityTimeout"].as_u64().unwrap();
        let receipt_handle = entry["ReceiptHandle"].as_str().unwrap();
        lock(&tally.visibility_s).insert(receipt_handle.to_owned(), after_s);
        match queue.change_visibility(receipt_handle, Duration::from_secs(after_s).min(LONGEST_VISIBILITY)) {
            Ok(()) => done.push(json!({ "Id": entry["Id"] })),
            Err(SqsError { code, reason }) => {
                failed.push(json!({ "Id": entry["Id"], "Code": code, "Message": reason, "SenderFault": true }));
            }
        }
    }
    json!({ "Successful": done, "Failed": failed })
}
