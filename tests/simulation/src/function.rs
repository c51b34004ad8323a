//! The execution environments of the function: the production handler, which is invoked with batches of the queue.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use history::{RecordedStore, Rng, monotonic_us};
use idempotent_sqs::lambda::Handler;
use idempotent_sqs::sqs::{Batch, BatchSettings, DeadLetterQueue, FingerprintSource, Visibility};
use idempotent_sqs::{Idempotency, Policy, RedisSettings, RedisStore};
use idempotent_sqs_testing::{BatchOutcome, Invocation, Mapping};
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::network;
use crate::plan::Plan;
use crate::queue::Faulty;
use crate::trace::event;
use crate::work::{Attempts, Call};

/// What the processes of the function share.
pub struct Shared {
    pub plan: Plan,
    pub mapping: Mapping,
    pub sqs: Faulty,
    /// The server that a client connects to first.
    pub redis: String,
    /// Where the calls of the stores are recorded.
    pub directory: PathBuf,
    pub rng: Mutex<Rng>,
    pub attempts: Attempts,
    pub acknowledged: Mutex<Vec<Acknowledged>>,
    /// The process of each execution environment.
    pub processes: Mutex<BTreeMap<u64, Process>>,
}

/// A message that SQS deleted after a response of the function.
#[derive(Clone, Debug)]
pub struct Acknowledged {
    pub message_id: String,
    /// µs by the monotonic clock.
    pub at_us: u64,
}

/// A process of the function.
#[derive(Clone)]
pub struct Process {
    pub name: String,
    pub kill: Arc<Notify>,
}

type Function = Handler<RecordedStore<RedisStore>, Call>;

impl Shared {
    /// Runs one process of the function after another.
    pub async fn run_environment(self: Arc<Self>, number: u64) {
        for process in 0_u64.. {
            let process = Process { name: format!("function{number}-{process}"), kill: Arc::default() };
            self.processes.lock().unwrap_or_else(PoisonError::into_inner).insert(number, process.clone());
            let function = self.start(&process.name);
            tokio::select! {
                biased;
                () = process.kill.notified() => {}
                () = self.serve(&process.name, &function) => {}
            }
            drop(function);
            network::kill(&process.name);
        }
    }

    /// Invokes the function until an invocation takes too long.
    async fn serve(&self, process: &str, function: &Function) {
        loop {
            let Some(invocation) = self.mapping.poll() else {
                let _soon = timeout(Duration::from_secs(1), self.mapping.queue().changed()).await;
                continue;
            };
            if self.invoke(process, function, invocation).await {
                return;
            }
        }
    }

    /// Returns whether Lambda ends the process.
    async fn invoke(&self, process: &str, function: &Function, invocation: Invocation) -> bool {
        let ids: Vec<_> = invocation.messages().iter().map(|message| message.message_id[..8].to_owned()).collect();
        event(|| format!("{process}: invoked with {ids:?}"));
        let outcome = network::run_on(process, Box::pin(invocation.run(function))).await;
        event(|| format!("{process}: {outcome:?}"));
        if let BatchOutcome::Processed { deleted, .. } = &outcome {
            let at_us = monotonic_us();
            let now = deleted.iter().map(|message_id| Acknowledged { message_id: message_id.clone(), at_us });
            self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner).extend(now);
        }
        matches!(outcome, BatchOutcome::Failed { reason } if reason.contains("timed out"))
    }

    fn start(&self, process: &str) -> Function {
        let plan = &self.plan;
        let url = format!("redis://{}", network::address(&self.redis, process));
        let mut settings = RedisSettings::new(url.parse().expect("this is a valid URL"), "payments");
        (settings.cluster, settings.timeout) = (plan.servers > 1, plan.redis_timeout);
        let redis = RedisStore::new(&settings).expect("these settings are valid");
        let store = RecordedStore::new(redis, &self.directory).expect("the directory is writable");

        let mut policy = Policy::default();
        (policy.lease_grace, policy.longest_lease) = (plan.lease_grace, plan.longest_lease);
        (policy.max_attempts, policy.failed_retention) = (plan.max_attempts, plan.failed_retention);
        let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner).fork();
        let mut batch = BatchSettings::default();
        if !rng.happens(plan.fingerprints) {
            batch.fingerprint = FingerprintSource::None;
        }
        batch.concurrency = NonZeroUsize::new(plan.concurrency).unwrap_or(NonZeroUsize::MIN);
        let (changes, letters) = (self.sqs.clone(), self.sqs.clone());
        let url = if plan.fifo { "https://sqs/dead.fifo" } else { "https://sqs/dead" };
        batch.dead_letter_queue =
            Some(DeadLetterQueue::with_replacement(url, move |message| letters.dead_letter(message)));
        let visibility = Visibility::with_replacement(move |message, after| changes.change_visibility(message, after));

        let panics = (if plan.is_quiet { 0 } else { 10 }, Mutex::new(rng));
        let work = Call { client: process.to_owned(), panics, attempts: Arc::clone(&self.attempts) };
        Handler::new(Batch::new(Idempotency::new(store, policy), work, batch), Some(visibility))
    }
}
