//! Invocations whose store fails in one way, for one kind of call: what the function logs, counts and answers, how often
//! it calls the store, and whether it changes a visibility timeout: docs/failures.md, docs/faults.md, docs/metrics.md.
//! Some have two messages with one key and payload, of which one runs.

use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use harness::lines::{self, Line};
use history::Rng;
use idempotent_sqs::idempotency::{Acquire, AcquireRequest, Failure, Settled, StoreError, StoredResult};
use idempotent_sqs::lambda::Handler;
use idempotent_sqs::metrics::{Metrics, MetricsSettings};
use idempotent_sqs::sqs::{Batch, BatchSettings, DeadLetterQueue, Message, MessageAttribute, Visibility};
use idempotent_sqs::{Claim, Idempotency, Key, MemoryStore, Policy, Store, WorkError, work_fn};
use idempotent_sqs_testing::{BatchOutcome, Mapping, MappingSettings, Queue, QueueSettings, SendRequest};
use serde_json::Value;
use tokio::time::sleep;

use crate::function::{CONSUMER, METRICS_NAMESPACE};
use crate::{deterministic, lock};

/// Number of invocations of a seed.
const INVOCATIONS: usize = 20;

/// How long a release takes.
const ROUND_TRIP: Duration = Duration::from_millis(1);

/// The error of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The value under the key is not a record.
    NotARecord,
    Unreachable,
    /// The call may have been executed, and was not.
    Unavailable,
    /// It was executed, and has no reply. Only acquires have this fault.
    NoReply,
}

/// The calls that fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Calls {
    None,
    Acquire,
    Settle,
    AcquireOfLetter,
    SettleOfLetter,
}

/// How the work ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Done,
    Failed,
    Unavailable,
    Permanent,
}

/// What is chosen for an invocation.
#[derive(Clone, Copy, Debug)]
struct Case {
    fault: Fault,
    calls: Calls,
    end: End,
    changes_visibility: bool,
    has_duplicate: bool,
}

/// What an invocation must show.
#[derive(Debug, PartialEq)]
struct Shown {
    outcome: String,
    disposition: String,
    /// The runs of the work.
    runs: usize,
    letters: usize,
    /// The metric `Failed`. `None` if there is not one document.
    failed: Option<u64>,
    /// The disposition of the in-batch duplicate.
    of_duplicate: Option<String>,
    marks: Vec<&'static str>,
}

/// The visibility timeout of the message is changed.
const DELAYED: &str = "delayed";
/// The invocation fails.
const ERROR: &str = "error";
/// A warning says that the letter was not sent.
const WARNING: &str = "warning";
/// A call that failed was made again.
const REPEATED: &str = "repeated";
/// The key is in conflict until its lease ends.
const HELD: &str = "held";

/// What is wrong with the invocations of this seed.
pub async fn fail_store(seed: u64) -> Vec<String> {
    let rng = &mut Rng::new(seed ^ 0x57e0);
    let mut wrong = Vec::new();
    for number in 0..INVOCATIONS {
        let fault =
            *rng.pick(&[Fault::NotARecord, Fault::NotARecord, Fault::Unreachable, Fault::Unavailable, Fault::NoReply]);
        let case = Case {
            fault,
            calls: *rng.pick(if fault == Fault::NoReply {
                &[Calls::Acquire][..]
            } else {
                &[Calls::None, Calls::Acquire, Calls::Settle, Calls::AcquireOfLetter, Calls::SettleOfLetter]
            }),
            end: *rng.pick(&[End::Done, End::Failed, End::Unavailable, End::Permanent, End::Permanent]),
            changes_visibility: rng.happens(500),
            has_duplicate: rng.happens(300),
        };
        let (shown, expected) = (Box::pin(case.invoke(seed, number)).await, case.expected());
        if shown != expected {
            wrong.push(format!("{case:?}: {shown:?}, not {expected:?}"));
        }
    }
    wrong
}

impl Case {
    /// Whether these calls fail.
    fn fails(self, calls: Calls) -> bool {
        self.calls == calls
    }

    fn is_outage(self) -> bool {
        self.fault != Fault::NotARecord
    }

    fn expected(self) -> Shown {
        let (is_started, is_permanent) = (!self.fails(Calls::Acquire), self.end == End::Permanent);
        let is_letter = is_started && is_permanent && !self.fails(Calls::Settle);
        let is_sent = is_letter && !self.fails(Calls::AcquireOfLetter);
        let is_done = is_started && self.end == End::Done && !self.fails(Calls::Settle);
        let outcome = match self.fault {
            _ if is_started => "ACQUIRED",
            Fault::NotARecord => "NOT_A_RECORD",
            Fault::Unreachable | Fault::Unavailable | Fault::NoReply => "UNAVAILABLE",
        };
        Shown {
            outcome: outcome.to_owned(),
            disposition: if is_done {
                "done"
            } else if is_sent {
                "dead_letter"
            } else {
                "redeliver"
            }
            .to_owned(),
            runs: usize::from(is_started),
            letters: usize::from(is_sent),
            // The work ran once, also for the in-batch duplicate.
            failed: Some(u64::from(is_letter)),
            // It is no dead letter, because another attempt may be made for it.
            of_duplicate: self.has_duplicate.then(|| if is_done { "done" } else { "redeliver" }.to_owned()),
            marks: marks([
                (DELAYED, self.changes_visibility && !is_done && !is_sent),
                // Nothing ran.
                (ERROR, !is_started && self.is_outage()),
                (WARNING, is_letter && !is_sent && !self.is_outage()),
                // What could not be recorded is repeated until the time for settling ends.
                (REPEATED, is_started && self.fails(Calls::Settle) && self.is_outage()),
                (HELD, is_started && self.fails(Calls::Settle)),
            ]),
        }
    }

    async fn invoke(self, seed: u64, number: usize) -> Shown {
        let queue = Queue::new(QueueSettings { name: "store-errors".to_owned(), ..QueueSettings::default() }, seed);
        for _ in 0..=u8::from(self.has_duplicate) {
            let payment = SendRequest::new(format!("a payment {number}"));
            let payment = payment.attribute("Idempotency-Key", MessageAttribute::from("pay_1"));
            queue.send(payment).expect("SQS accepts this message");
        }
        let mapping = Mapping::new(&queue, MappingSettings::default());
        let invocation = mapping.poll().expect("the queue has a message");
        let store = Arc::new(Failing { case: self, records: MemoryStore::default(), failed: Mutex::default() });
        let (runs, letters) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(0)));
        let mut settings = BatchSettings::default();
        let sent = Arc::clone(&letters);
        settings.dead_letter_queue = Some(DeadLetterQueue::with_replacement("https://sqs/1/letters", move |_| {
            *lock(&sent) += 1;
            Ok(())
        }));
        let ran = Arc::clone(&runs);
        let work = work_fn(move |_: &Claim, _: &Message| {
            *lock(&ran) += 1;
            async move {
                match self.end {
                    End::Done => Ok(Vec::new()),
                    End::Failed => Err(WorkError::retryable("refused")),
                    End::Unavailable => Err(WorkError::unavailable("overloaded")),
                    End::Permanent => Err(WorkError::permanent("rejected")),
                }
            }
        });
        let batch = Batch::new(Idempotency::new(Arc::clone(&store), Policy::default()), work, settings);
        let visibility = self.changes_visibility.then(|| Visibility::with_replacement(|_, _| Ok(())));
        let metrics = Metrics::new(MetricsSettings::new(METRICS_NAMESPACE, CONSUMER), || None);
        let handler = Handler::new(batch, visibility).with_metrics(metrics);
        lines::take();
        deterministic::printed();
        let outcome = invocation.run(&handler).await;
        let failed = failed();
        let later = AcquireRequest::new(Key::new("pay_1").expect("it has a text"));
        let later = store.records.acquire(later).await;
        let lines = lines::take();
        let with = |text: &str| lines.iter().filter(|line| line.get("message") == Some(text)).collect::<Vec<_>>();
        let of_message = with("message");
        let field = |name| of_message.first().and_then(|line: &&Line| line.get(name));
        let (runs, letters) = (*lock(&runs), *lock(&letters));
        Shown {
            outcome: field("outcome").unwrap_or_default().to_owned(),
            disposition: field("disposition").unwrap_or_default().to_owned(),
            runs,
            letters,
            failed,
            of_duplicate: of_message.get(1).and_then(|line| line.get("disposition")).map(str::to_owned),
            marks: marks([
                (DELAYED, field("retry_after_s").is_some()),
                (ERROR, matches!(outcome, BatchOutcome::Failed { .. })),
                (WARNING, !with("a dead letter was not sent").is_empty()),
                (REPEATED, lock(&store.failed).iter().filter(|call| **call != Calls::Acquire).count() > 1),
                (HELD, matches!(later, Ok(Acquire::Conflict { .. }))),
            ]),
        }
    }
}

/// The metric `Failed` in the document that was printed.
fn failed() -> Option<u64> {
    let printed = deterministic::printed();
    let [document] = &printed[..] else { return None };
    serde_json::from_slice::<Value>(document).ok()?["Failed"].as_u64()
}

fn marks(marks: [(&'static str, bool); 5]) -> Vec<&'static str> {
    marks.into_iter().filter_map(|(mark, is_set)| is_set.then_some(mark)).collect()
}

/// A store that fails in one way.
struct Failing {
    case: Case,
    records: MemoryStore,
    /// The calls that failed.
    failed: Mutex<Vec<Calls>>,
}

impl Failing {
    /// Fails if the calls of this kind, or those for letters, fail.
    fn check(&self, request: &AcquireRequest, calls: Calls, of_letter: Calls) -> Result<(), StoreError> {
        let is_of_letter = request.key.stored().starts_with("dead-letter:");
        let calls = if is_of_letter { of_letter } else { calls };
        if !self.case.fails(calls) {
            return Ok(());
        }
        lock(&self.failed).push(calls);
        Err(match self.case.fault {
            Fault::NotARecord => StoreError::NotARecord(request.key.stored().into_owned()),
            Fault::Unreachable => StoreError::unreachable("refused"),
            Fault::Unavailable | Fault::NoReply => StoreError::unavailable("no reply"),
        })
    }
}

impl Store for Failing {
    async fn acquire(&self, request: AcquireRequest) -> Result<Acquire, StoreError> {
        if self.case.fault == Fault::NoReply {
            let _executed = self.records.acquire(request).await;
            return pending().await;
        }
        self.check(&request, Calls::Acquire, Calls::AcquireOfLetter)?;
        self.records.acquire(request).await
    }

    async fn complete(&self, claim: &Claim, result: StoredResult<&[u8]>) -> Result<Settled, StoreError> {
        self.check(claim.request(), Calls::Settle, Calls::SettleOfLetter)?;
        self.records.complete(claim, result).await
    }

    async fn fail(&self, claim: &Claim, failure: Failure) -> Result<Settled, StoreError> {
        self.check(claim.request(), Calls::Settle, Calls::SettleOfLetter)?;
        self.records.fail(claim, failure).await
    }

    async fn release(&self, request: &AcquireRequest, claim: Option<&Claim>) -> Result<Settled, StoreError> {
        self.check(request, Calls::Settle, Calls::SettleOfLetter)?;
        sleep(ROUND_TRIP).await;
        self.records.release(request, claim).await
    }
}
