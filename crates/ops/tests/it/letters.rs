//! `letters`, on simulated queues.

mod crashes;
mod delete;
mod ends;
mod fifo;
mod keys;
mod list;
mod redrive;
mod refusals;
mod replies;
mod returns;
mod show;
mod slow_deletes;
mod usage;

use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use harness::lambda::PASSWORD;
use harness::sqs::{CREDENTIALS, Call, Fault, SqsApi};
use harness::{soon, until};
use idempotent_sqs::sqs::DeadLetter;
use idempotent_sqs_testing::{DeadLetter as Policy, Queue, QueueSettings, SendRequest};
use serde_json::{Value, json};
use tokio::process::{Child, Command};
use tokio::sync::Notify;

use super::Output;

/// A queue of payments, its dead-letter queue, and the API of SQS.
struct Queues {
    payments: Queue,
    dead: Queue,
    api: SqsApi,
    settings: Vec<(&'static str, String)>,
}

impl Queues {
    async fn standard() -> Self {
        Self::start("", SystemTime::now()).await
    }

    async fn fifo() -> Self {
        Self::start(".fifo", SystemTime::now()).await
    }

    /// Queues of two types: the name of each ends with its suffix. Only the function sends to this dead-letter queue.
    async fn of_types(payments: &str, dead: &str) -> Self {
        let queue = |name: &str, suffix: &str| {
            let settings = QueueSettings {
                name: format!("{name}{suffix}"),
                max_reordering: Duration::ZERO,
                stale_handle_delete_rate: 0.0,
                ..QueueSettings::default()
            };
            Queue::new(settings, 7)
        };
        Self::of(queue("payments", payments), queue("dead", dead)).await
    }

    /// Queues whose clock shows this time at the start.
    async fn start(suffix: &str, created_at: SystemTime) -> Self {
        let settings = |name: &str| QueueSettings {
            name: format!("{name}{suffix}"),
            max_reordering: Duration::ZERO,
            stale_handle_delete_rate: 0.0,
            created_at,
            ..QueueSettings::default()
        };
        let dead = Queue::new(settings("dead"), 7);
        let dead_letter = Some(Policy { queue: dead.clone(), max_receive_count: 1 });
        let payments = Queue::new(QueueSettings { dead_letter, ..settings("payments") }, 7);
        Self::of(payments, dead).await
    }

    async fn of(payments: Queue, dead: Queue) -> Self {
        let api = SqsApi::start(&[&payments, &dead]).await;
        let settings = [
            ("DEAD_LETTER_QUEUE_URL", api.queue_url(&dead)),
            ("AWS_ENDPOINT_URL_SQS", api.endpoint()),
            // Never sent, and never part of an output.
            ("AWS_SECRET_ACCESS_KEY", PASSWORD.to_owned()),
        ];
        let credentials = CREDENTIALS.map(|(name, value)| (name, value.to_owned()));
        Self { payments, dead, api, settings: credentials.into_iter().chain(settings).collect() }
    }

    fn with(mut self, name: &'static str, value: &str) -> Self {
        self.settings.push((name, value.to_owned()));
        self
    }

    /// With the endpoint of another `api`.
    fn at_its_api(self) -> Self {
        let endpoint = self.api.endpoint();
        self.with("AWS_ENDPOINT_URL_SQS", &endpoint)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_letters"));
        command.args(arguments).env_clear().envs(self.settings.iter().cloned());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command
    }

    async fn run(&self, arguments: &[&str]) -> Output {
        Output::new(soon(self.command(arguments).output()).await.unwrap())
    }

    /// The exit code and the JSON document.
    async fn json(&self, arguments: &[&str]) -> (i32, Value) {
        self.run(&[arguments, &["--json"]].concat()).await.json()
    }

    /// Redrives without a rate that delays the test.
    async fn redrive(&self, arguments: &[&str]) -> (i32, Value) {
        self.json(&[&["redrive", "--yes", "--rate", "1000"], arguments].concat()).await
    }

    /// The letters that `list` returns with these arguments, by this field.
    async fn listed(&self, arguments: &[&str], field: &str) -> Vec<Value> {
        let (code, list) = self.json(&[&["list"], arguments].concat()).await;
        assert_eq!(code, 0, "{list}");
        list["letters"].as_array().unwrap().iter().map(|letter| letter[field].clone()).collect()
    }

    /// A letter of the function, with these fields instead of those of a failed payment. Its body is the original
    /// messageId.
    fn description(&self, original_id: &str, fields: &Value) -> String {
        let mut letter = json!({
            "outcome": "FAILED_PERMANENTLY",
            "reason": "the webhook returned 422",
            "key": format!("pay_{original_id}"),
            "attempts": 3,
            "fence": 1_795_277_141_025_032_u64,
            "source_queue_arn": self.payments.arn(),
            "message_id": original_id,
            "first_receive": "2026-11-22T09:31:05.123Z",
            "last_receive": "2026-11-22T09:41:05.123Z",
            "function": "payments",
            "version": "7",
        });
        letter.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        letter.to_string()
    }

    /// A letter of the function in the dead-letter queue. Returns its messageId there.
    fn add(&self, original_id: &str, fields: &Value) -> String {
        self.send(SendRequest::new(original_id).attribute(DeadLetter::ATTRIBUTE, self.description(original_id, fields)))
    }

    /// A message in the dead-letter queue. Returns its messageId there.
    fn send(&self, message: SendRequest) -> String {
        self.dead.send(message).unwrap()
    }

    /// A letter of this group. Returns its messageId.
    fn add_to_group(&self, group: &str, original_id: &str) -> String {
        let attribute = self.description(original_id, &json!({}));
        let message = SendRequest::new(original_id).attribute(DeadLetter::ATTRIBUTE, attribute);
        self.send(message.group(group).deduplication_id(original_id))
    }

    /// Moves a message from the queue of payments to the dead-letter queue, as its redrive policy does. Returns its
    /// messageId.
    fn move_by_policy(&self, message: SendRequest) -> String {
        let id = self.payments.send(message).unwrap();
        move_by_policy(&self.payments);
        id
    }
}

/// Moves each message of the queue to its dead-letter queue.
fn move_by_policy(queue: &Queue) {
    for received in queue.receive(10) {
        queue.change_visibility(&received.receipt_handle, Duration::ZERO).unwrap();
    }
    assert!(queue.receive(10).is_empty(), "each was received once before");
}

/// Every visible message, as in an event, in the order of the queue.
fn contents(queue: &Queue) -> Vec<Value> {
    let mut messages = Vec::new();
    loop {
        let received = queue.receive(10);
        if received.is_empty() {
            return messages;
        }
        for message in received {
            messages.push(serde_json::to_value(&message).unwrap());
            queue.delete(&message.receipt_handle).unwrap();
        }
    }
}

/// Bodies of the visible messages.
fn bodies(queue: &Queue) -> Vec<String> {
    contents(queue).into_iter().map(|message| message["body"].as_str().unwrap().to_owned()).collect()
}

/// What was done with each letter.
fn results(output: &Value) -> Vec<&str> {
    output["letters"].as_array().unwrap().iter().map(|letter| letter["result"].as_str().unwrap()).collect()
}

/// As the function sends a message that has no room for a description.
fn without_description(body: &str) -> SendRequest {
    (0..10).fold(SendRequest::new(body), |message, n| message.attribute(format!("a{n}"), "text"))
}

/// Whether the call extends visibility timeouts.
fn extends(call: &Call) -> bool {
    call.action == "ChangeMessageVisibilityBatch" && call.input["Entries"][0]["VisibilityTimeout"] != 0
}

/// Starts a command on all of three letters in a standard queue, which delivers each again after its delete. The further
/// deletes have this fault.
async fn run_with_letters_that_come_back(command: &str, fault: Fault) -> (Queues, Child) {
    let mut queues = Queues::standard().await;
    let settings = QueueSettings { redelivery_rate: 1.0, ..queues.dead.settings().clone() };
    queues.dead = Queue::new(settings, 7);
    queues.api = SqsApi::start(&[&queues.payments, &queues.dead]).await;
    let queues = queues.at_its_api();
    (0..3).for_each(|n| drop(queues.add(&n.to_string(), &json!({}))));
    let over = Arc::new(Notify::new());
    let (delayed, mut deletes, mut receives) = (Arc::clone(&over), 0, 0);
    queues.api.fail(move |call| {
        deletes += u32::from(call.action == "DeleteMessage");
        receives += u32::from(call.action == "ReceiveMessage");
        match call.action.as_str() {
            "DeleteMessage" => (deletes > 3).then(|| fault.clone()),
            "ReceiveMessage" if receives == 2 => Some(Fault::Delay(Arc::clone(&delayed))),
            _ => None,
        }
    });
    let run = queues.command(&[command, "--all", "--yes", "--visibility-timeout", "5", "--json"]).spawn().unwrap();
    queues.api.called("DeleteMessage", 3).await;
    until(|| async { queues.dead.visible() == 3 }).await;
    over.notify_one();
    (queues, run)
}
