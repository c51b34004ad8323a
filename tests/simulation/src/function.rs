//! The execution environments of the function: the production handler, which is invoked with batches of the queue.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use history::{RecordedStore, Rng, Value, monotonic_us};
use idempotent_sqs::idempotency::{ObjectStore, Recovery, Results};
use idempotent_sqs::lambda::Handler;
use idempotent_sqs::metrics::{Metrics, MetricsSettings};
use idempotent_sqs::sqs::{Batch, BatchSettings, DeadLetterQueue, Visibility};
use idempotent_sqs::{Idempotency, Policy, RedisStore};
use idempotent_sqs_testing::{BatchOutcome, Invocation, Mapping, ReceivedMessage};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tracing::{Instrument, info_span};

use crate::logins::Logins;
use crate::malformed::{Malformed, malform, vary};
use crate::network;
use crate::objects::{Client, Objects};
use crate::plan::{Fault, Plan};
use crate::producers::{BUCKET, KEY_ATTRIBUTE, KEY_POINTER, NO_KEY_POINTER};
use crate::redis::Cluster;
use crate::sqs::Sqs;
use crate::trace::event;
use crate::work::{Attempts, Call};

/// What the processes of the function share.
pub struct Shared {
    pub plan: Plan,
    pub mapping: Mapping,
    pub sqs: Sqs,
    pub objects: Arc<Objects>,
    /// Which records of events are malformed.
    pub inputs: Mutex<Rng>,
    /// Which records have an empty body, or name another queue.
    pub variants: Mutex<Rng>,
    /// The server that a client connects to first.
    pub redis: String,
    pub records: Arc<Cluster>,
    pub logins: Logins,
    /// Where the calls of the stores are recorded.
    pub directory: PathBuf,
    pub rng: Mutex<Rng>,
    pub attempts: Attempts,
    pub acknowledged: Mutex<Vec<Acknowledged>>,
    pub invocations: Mutex<Vec<Invoked>>,
    /// Invocations that Lambda ended.
    pub timed_out: Mutex<Vec<Invoked>>,
    /// Number of invocations that have begun.
    pub begun: AtomicUsize,
    /// The process of each execution environment.
    pub processes: Mutex<BTreeMap<u64, Process>>,
    /// The client of each process in the history of its calls.
    pub clients: Mutex<BTreeMap<String, String>>,
}

/// A message that SQS deleted after a response of the function.
#[derive(Clone, Debug)]
pub struct Acknowledged {
    pub message_id: String,
    /// µs by the monotonic clock.
    pub at_us: u64,
}

/// An invocation that returned.
#[derive(Clone, Debug)]
pub struct Invoked {
    /// A number of its own, which its lines in the log have.
    pub number: usize,
    /// The id of its request, which its metrics have.
    pub request_id: String,
    /// The process, as in the history of its calls.
    pub process: String,
    /// µs by the monotonic clock.
    pub from_us: u64,
    /// When its process ran first.
    pub ran_us: u64,
    pub until_us: u64,
    pub messages: Vec<ReceivedMessage>,
    pub malformed: Malformed,
    /// The messages that SQS delivers again. `None` if the response was an error.
    pub retained: Option<Vec<String>>,
}

/// A process of the function.
#[derive(Clone)]
pub struct Process {
    pub name: String,
    pub kill: Arc<Notify>,
}

/// The first part of every key in Redis.
pub const NAMESPACE: &str = "payments";

/// The bucket of results that are too large for their records.
pub const RESULTS_BUCKET: &str = "results";

/// The first part of their names.
pub const RESULTS_PREFIX: &str = "receipts/";

/// The namespace of the metrics.
pub const METRICS_NAMESPACE: &str = "simulation";

/// The value of their dimension.
pub const CONSUMER: &str = "payer";

/// The number of findings in the metrics.
pub const FINDINGS: u32 = 2;

/// A setting of this text, as in the environment.
fn parsed<T: FromStr<Err: Debug>>(text: &str) -> T {
    text.parse().expect("this setting is valid")
}

type Function = Handler<RecordedStore<RedisStore>, Call>;

impl Shared {
    /// Runs one process of the function after another.
    pub async fn run_environment(self: Arc<Self>, number: u64) {
        for process in 0_u64.. {
            let process = Process { name: format!("function{number}-{process}"), kill: Arc::default() };
            self.processes.lock().unwrap_or_else(PoisonError::into_inner).insert(number, process.clone());
            let (recorded, function) = self.start(&process.name);
            tokio::select! {
                biased;
                () = process.kill.notified() => {}
                () = self.serve(&process.name, &recorded, &function) => {}
            }
            drop(function);
            network::kill(&process.name);
        }
    }

    /// Invokes the function until an invocation takes too long.
    async fn serve(&self, process: &str, recorded: &str, function: &Function) {
        loop {
            let Some(invocation) = self.mapping.poll() else {
                let _soon = timeout(Duration::from_secs(1), self.mapping.queue().changed()).await;
                continue;
            };
            if self.invoke(process, recorded, function, invocation).await {
                return;
            }
            // No two invocations of a process have a time in common.
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// Returns whether Lambda ends the process.
    async fn invoke(&self, process: &str, recorded: &str, function: &Function, invocation: Invocation) -> bool {
        let (messages, from_us) = (invocation.messages().to_vec(), monotonic_us());
        let (event_text, malformed) = self.malform(&invocation);
        let invocation = invocation.with_event(event_text);
        let ids: Vec<_> = messages.iter().map(|message| message.message_id[..8].to_owned()).collect();
        event(|| format!("{process}: invoked with {ids:?}"));
        let request_id = invocation.request_id().to_owned();
        let (mut ran_us, number) = (0, self.begun.fetch_add(1, Ordering::Relaxed));
        let run = async {
            ran_us = monotonic_us();
            invocation.run(function).instrument(info_span!("invocation", number)).await
        };
        let outcome = network::run_on(process, Box::pin(run)).await;
        event(|| format!("{process}: {outcome:?}"));
        let (process, until_us) = (recorded.to_owned(), monotonic_us());
        let mut invoked =
            Invoked { number, request_id, process, from_us, ran_us, until_us, messages, malformed, retained: None };
        if let BatchOutcome::Processed { deleted, retained } = &outcome {
            invoked.retained = Some(retained.clone());
            let at_us = until_us;
            let now = deleted.iter().map(|message_id| Acknowledged { message_id: message_id.clone(), at_us });
            self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner).extend(now);
        }
        let is_ended = matches!(outcome, BatchOutcome::Failed { reason } if reason.contains("timed out"));
        let invocations = if is_ended { &self.timed_out } else { &self.invocations };
        invocations.lock().unwrap_or_else(PoisonError::into_inner).push(invoked);
        is_ended
    }

    /// The event of an invocation, in which records may be malformed until the faults end.
    fn malform(&self, invocation: &Invocation) -> (String, Malformed) {
        if self.sqs.faults_ended() {
            return (invocation.event(), Malformed::default());
        }
        let (event, mut malformed) = malform(
            &invocation.event(),
            self.plan.malformed,
            self.plan.fifo,
            &mut self.inputs.lock().unwrap_or_else(PoisonError::into_inner),
        );
        let mut variants = self.variants.lock().unwrap_or_else(PoisonError::into_inner);
        let event = vary(&event, &self.moved(), &mut malformed, &mut variants);
        (event, malformed)
    }

    /// The messages of which a record shows, and will show, that their letters were sent from the queue of the
    /// function.
    fn moved(&self) -> Vec<String> {
        let keeps_records = !self.plan.has(Fault::FailOver) && !self.plan.has(Fault::Flush);
        // A group of another queue is another group, which need not wait.
        let may_move = keeps_records && !self.plan.fifo;
        let letters = self.sqs.letters().into_iter().filter(|_| may_move);
        let is_recorded = |id: &String| {
            let value = self.records.value(format!("{NAMESPACE}:dead-letter:{id}").as_bytes());
            matches!(value, Some(Value::String(record)) if record.starts_with(b"C"))
        };
        letters.map(|letter| letter.message_id).filter(is_recorded).collect()
    }

    /// The function of a process, and the process in the history of its calls.
    fn start(&self, process: &str) -> (String, Function) {
        let plan = &self.plan;
        let mut settings = self.logins.settings(plan, &self.redis, process, NAMESPACE);
        settings.timeout = plan.redis_timeout;
        let redis = RedisStore::new(&settings).expect("these settings are valid");
        let store = RecordedStore::new(redis, &self.directory).expect("the directory is writable");
        let recorded = store.process().to_owned();
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        clients.insert(recorded.clone(), process.to_owned());

        let mut policy = Policy::default();
        (policy.lease_grace, policy.longest_lease) = (plan.lease_grace, plan.longest_lease);
        (policy.max_attempts, policy.failed_retention) = (plan.max_attempts, plan.failed_retention);
        policy.retention = plan.retention;
        policy.recovery = if plan.parks { Recovery::Park } else { Recovery::Rerun };
        let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner).fork();
        let mut batch = BatchSettings::default();
        if !rng.happens(plan.fingerprints) {
            batch.fingerprint = parsed("none");
        }
        if plan.has_forms {
            let [attribute, no_key, payload] =
                [("attribute", KEY_ATTRIBUTE), ("body", NO_KEY_POINTER), ("body", KEY_POINTER)]
                    .map(|(kind, name)| format!("{kind}:{name}"));
            batch.keys = [&*attribute, &no_key, &payload, "deduplicationId", "messageId"].map(parsed).into();
        }
        let client = Client { objects: Arc::clone(&self.objects), process: recorded.clone() };
        let client: Arc<dyn ObjectStore> = Arc::new(client);
        if let Some(objects) = &plan.objects {
            batch.extended_client.max_bytes = objects.payload_max_bytes;
            policy.result_max_bytes = objects.result_max_bytes;
            let results = Results::new(Arc::clone(&client), RESULTS_BUCKET, RESULTS_PREFIX);
            policy.results = objects.keeps_results.then_some(results);
        }
        batch.extended_client.objects = Some(client);
        batch.extended_client.buckets = vec![BUCKET.to_owned()];
        batch.concurrency = NonZeroUsize::new(plan.concurrency).unwrap_or(NonZeroUsize::MIN);
        let aws = self.sqs.config(process, &recorded);
        batch.dead_letter_queue =
            Some(DeadLetterQueue::new(self.sqs.dead_letter_queue_url(plan.is_own_letter_queue), aws.clone()));
        let visibility = Visibility::new(aws);

        let panics = (if plan.is_quiet { 0 } else { 10 }, Mutex::new(rng));
        let (client, plan, attempts) = (process.to_owned(), plan.clone(), Arc::clone(&self.attempts));
        let (process, running) = (recorded.clone(), Default::default());
        let work = Call { client, process, panics, attempts, plan, running };
        let metrics = Metrics::new(MetricsSettings::new(METRICS_NAMESPACE, CONSUMER), || Some(FINDINGS.into()));
        let handler = Handler::new(Batch::new(Idempotency::new(store, policy), work, batch), Some(visibility));
        (recorded, handler.with_metrics(metrics))
    }
}
