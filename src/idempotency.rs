//! The core: acquire → work → settle, for one delivery of one key. It knows nothing of SQS, and serves any
//! consumer.
//!
//! - `acquire`: own the record, or learn why the work does not run
//! - `attempt`: one attempt at the work, up to the deadline
//! - `settle`: record how it ended, or give the record back

mod acquire;
mod attempt;
mod delivery;
mod policy;
mod report;
mod settle;

use crate::store::{Claim, Store, StoreError};
use crate::work::{Work, WorkError, Worked};

pub use delivery::Delivery;
pub use policy::{Policy, Recovery};
pub use report::{Outcome, Report};

/// Runs a [`Work`] so that it takes effect once for each key.
///
/// ```
/// use std::time::Duration;
/// use idempotent_sqs::deadline::Deadline;
/// use idempotent_sqs::idempotency::{Delivery, Idempotency, Outcome, Policy};
/// use idempotent_sqs::record::{Fingerprint, Key};
/// use idempotent_sqs::store::Claim;
/// use idempotent_sqs::stores::MemoryStore;
/// use idempotent_sqs::work::{Work, WorkError};
///
/// struct SendInvoice;
///
/// impl Work<str> for SendInvoice {
///     async fn run(&self, claim: &Claim, customer: &str) -> Result<Vec<u8>, WorkError> {
///         Ok(format!("invoice {} sent to {customer}", claim.key()).into_bytes())
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// // A cron job here; a Kafka or RabbitMQ consumer does the same for each of its messages.
/// let idempotency = Idempotency::new(MemoryStore::default(), Policy::default());
/// let delivery = Delivery::new(Key::new("2026-11/acme").unwrap())
///     .fingerprint(Fingerprint::of(b"1250 EUR"))
///     .deadline(Deadline::within(Duration::from_secs(30)));
///
/// let first = idempotency.run(&delivery, &SendInvoice, "acme").await.unwrap();
/// assert!(matches!(first.outcome, Outcome::Done { .. }));
///
/// let again = idempotency.run(&delivery, &SendInvoice, "acme").await.unwrap();
/// let Outcome::Duplicate { result: Some(result) } = again.outcome else { panic!("{again:?}") };
/// assert_eq!(result, b"invoice 2026-11/acme sent to acme");
/// # }
/// ```
#[derive(Debug)]
pub struct Idempotency<S> {
    store: S,
    policy: Policy,
}

/// What follows an acquire.
pub(crate) enum Next {
    /// The work, under this claim.
    Work(Claim),
    /// Nothing: the work does not run.
    Report(Report),
}

/// How an attempt at the work ended.
pub(crate) enum Ended {
    /// The work did not fail.
    Worked(Worked),
    /// The work failed, panicked or was cancelled.
    Failed(WorkError),
    /// The work did not run, as an earlier attempt may have taken effect.
    Parked,
    /// No time was left to start the work.
    NotStarted,
}

impl<S: Store> Idempotency<S> {
    /// The core on this store.
    pub fn new(store: S, policy: Policy) -> Self {
        Self { store, policy }
    }

    /// Run `work` on `input`, unless it was done before, another owner is at work, or it failed for good.
    ///
    /// An acquire that may have been executed although its reply was lost is given back, for as long as there is
    /// time to settle, so that it neither counts as an attempt nor leaves a doubt.
    ///
    /// # Errors
    /// [`StoreError`], where the store gave no answer to the acquire: no work ran.
    ///
    /// ## Cancel safety
    /// A dropped future leaves the claim to its lease; the next attempt after that is a recovery.
    pub async fn run<T, W>(&self, delivery: &Delivery, work: &W, input: &T) -> Result<Report, StoreError>
    where
        T: ?Sized + Sync,
        W: Work<T>,
    {
        let claim = match self.acquire(delivery, work).await? {
            Next::Work(claim) => claim,
            Next::Report(report) => return Ok(report),
        };
        let ended = self.attempt_work(&claim, work, input, &delivery.deadline).await;
        self.settle(&claim, ended, work.keeps_record(), &delivery.deadline).await
    }
}
