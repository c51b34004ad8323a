//! What the processes use: a queue, the API of SQS, Redis, and a webhook that counts its calls, or a database.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use idempotent_sqs_testing::{Mapping, Queue};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::sleep;

use super::fleet;
use super::tally::{Effect, Tally, lock};
use crate::http::{Answer, Request, Server};
use crate::lambda::Function;

pub struct Fixture {
    pub tally: Arc<Tally>,
    binary: &'static str,
    redis: String,
    cluster: bool,
    /// The webhook that the processes call, if their receiver is not a database.
    webhook: Option<Server>,
    sqs: Server,
    /// Settings of this run.
    settings: Vec<(&'static str, String)>,
    all_sent: AtomicBool,
    over: Notify,
}

impl Fixture {
    /// Processes of the binary at `path`, with these additional settings, call a webhook. The Redis may be a cluster.
    /// `clock_us` is the time of an effect.
    pub async fn with_webhook(
        path: &'static str,
        (redis, cluster): (String, bool),
        queue: &Queue,
        settings: Vec<(&'static str, String)>,
        clock_us: fn() -> u64,
    ) -> Self {
        let tally = Arc::default();
        let webhook = webhook(Arc::clone(&tally), clock_us).await;
        Self { cluster, webhook: Some(webhook), tally, ..Self::with_database(path, redis, queue, settings).await }
    }

    /// Processes of the binary at `path`, with these additional settings, change a database.
    pub async fn with_database(
        path: &'static str,
        redis: String,
        queue: &Queue,
        settings: Vec<(&'static str, String)>,
    ) -> Self {
        let (tally, sqs) = (Arc::default(), sqs(queue.clone()).await);
        let (all_sent, over) = (AtomicBool::new(false), Notify::new());
        Self { tally, binary: path, redis, cluster: false, webhook: None, sqs, settings, all_sent, over }
    }

    pub async fn function(&self) -> Function {
        let (cluster, sqs) = (self.cluster.to_string(), format!("http://{}", self.sqs.address()));
        let webhook = self.webhook.as_ref().map(|webhook| format!("http://{}", webhook.address()));
        let mut settings = fleet::SETTINGS.to_vec();
        settings.extend([("REDIS_URL", &*self.redis), ("REDIS_CLUSTER", &*cluster), ("AWS_ENDPOINT_URL_SQS", &*sqs)]);
        settings.extend(webhook.as_deref().map(|webhook| ("TARGET_URL", webhook)));
        settings.extend(self.settings.iter().map(|(name, value)| (*name, value.as_str())));
        Function::start(self.binary, &settings).await
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

/// A webhook that is slow, rejects some first deliveries with 503, and records the other requests as effects.
async fn webhook(tally: Arc<Tally>, clock_us: fn() -> u64) -> Server {
    Server::start(move |request: Request| {
        let key = request.header("Idempotency-Key").unwrap().to_owned();
        let received = request.number("Idempotency-Receive-Count").unwrap();
        let number: u64 = key.rsplit('-').next().unwrap().parse().unwrap();
        let refused = number.is_multiple_of(20) && received == 1;
        if !refused {
            let fence = request.header("Idempotency-Fence").unwrap().parse().unwrap();
            let is_recovery = request.header("Idempotency-Recovery").is_some();
            lock(&tally.effects).push(Effect { key, fence, is_recovery, at_us: clock_us() });
        }
        async move {
            sleep(Duration::from_millis(10 + number * 7 % 80)).await;
            Answer::status(if refused { 503 } else { 200 })
        }
    })
    .await
}

/// The API of SQS that the function calls, on the simulated queue.
async fn sqs(queue: Queue) -> Server {
    Server::start(move |request: Request| {
        let call: Value = serde_json::from_slice(&request.body).unwrap();
        let (mut done, mut failed) = (Vec::new(), Vec::new());
        for entry in call["Entries"].as_array().unwrap() {
            let after = Duration::from_secs(entry["VisibilityTimeout"].as_u64().unwrap());
            match queue.change_visibility(entry["ReceiptHandle"].as_str().unwrap(), after) {
                Ok(()) => done.push(json!({ "Id": entry["Id"] })),
                Err(error) => {
                    failed.push(json!({ "Id": entry["Id"], "Code": error.code, "SenderFault": true }));
                }
            }
        }
        let answer = json!({ "Successful": done, "Failed": failed }).to_string();
        async move { Answer::with(200, &[("Content-Type", "application/x-amz-json-1.0")], answer.as_bytes()) }
    })
    .await
}
