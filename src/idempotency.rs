//! The core: acquire → work → settle for one delivery of one key. It does not depend on SQS and works with any
//! broker.
//!
//! - `key`, `fingerprint`, `owner`, `record`: the parts of an idempotency record
//! - [`protocol`]: the state machine of a record, as pure functions
//! - `store`: the contract with a store of records
//! - `claim`: an attempt at a key, and the proof of ownership that it runs under
//! - `work`, `work_error`: the contract with the business logic
//! - `acquire`, `attempt`, `settle`: the three steps
//! - `panics`: catches panics in code of the program
//! - `delivery`, `deadline`, `policy`: their input
//! - `report`, `decision`: their output
//! - `object_store`, `results`: results that are too large for a record
//! - `json`: JSON in a canonical form, for fingerprints
//! - `once`: the three steps around a closure (feature `serde`)

mod acquire;
mod attempt;
mod causes;
mod claim;
mod deadline;
mod decision;
mod delivery;
mod fingerprint;
pub(crate) mod json;
mod key;
mod object_store;
#[cfg(feature = "serde")]
mod once;
mod owner;
mod panics;
mod policy;
pub mod protocol;
mod record;
mod report;
mod results;
mod settle;
mod store;
mod work;
mod work_error;

#[cfg(feature = "lambda")]
pub(crate) use acquire::{FailedAcquire, read_own_record};
#[doc(hidden)]
pub use causes::error_chain;
pub use claim::{AcquireRequest, Claim};
pub use deadline::Deadline;
pub use decision::{Decision, backoff};
#[cfg(feature = "lambda")]
pub(crate) use decision::{LONGEST_BACKOFF, random};
pub use delivery::Delivery;
pub use fingerprint::{Fingerprint, MessageIdHash};
pub use key::{EmptyKeyError, Key};
#[cfg(feature = "lambda")]
pub(crate) use object_store::within;
pub use object_store::{Location, LocationError, ObjectError, ObjectStore};
#[cfg(feature = "serde")]
#[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
pub use once::{ClaimInfo, OnceError};
#[cfg(feature = "lambda")]
pub(crate) use owner::Owners;
pub use owner::{Fence, Owner};
#[cfg(feature = "lambda")]
pub(crate) use panics::catch;
#[cfg(feature = "redis")]
pub(crate) use panics::catch_async;
pub use policy::{Policy, Recovery};
pub use record::{Failure, State, StoredResult};
pub use report::{Outcome, Report};
pub use results::{MAX_RESULT_BYTES, Results};
pub use store::{Acquire, Settled, Store, StoreError};
pub(crate) use work::own_record;
#[doc(hidden)]
pub use work::{OwnRecord, RecordedAttempt};
pub use work::{Work, WorkFn, work_fn};
pub use work_error::{WorkError, WorkErrorKind};

/// Runs a [`Work`] so that it takes effect once for each key.
///
/// ```
/// use std::time::Duration;
/// use idempotent_sqs::{
///     Claim, Deadline, Decision, Delivery, Fingerprint, Idempotency, Key, MemoryStore, Outcome, Policy, Work,
///     WorkError,
/// };
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
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // A scheduled job; a Kafka or RabbitMQ consumer does the same for each of its messages.
/// let idempotency = Idempotency::new(MemoryStore::default(), Policy::default());
/// let delivery = Delivery::new(Key::new("2026-11/acme")?)
///     .fingerprint(Fingerprint::of(b"1250 EUR"))
///     .deadline(Deadline::within(Duration::from_secs(30)));
///
/// let first = idempotency.run(&delivery, &SendInvoice, "acme").await?;
/// assert!(matches!(first.outcome, Outcome::Done { .. }));
/// assert_eq!(first.decision(1), Decision::Ack);
///
/// let again = idempotency.run(&delivery, &SendInvoice, "acme").await?;
/// let Outcome::Duplicate { result: Some(result) } = again.outcome else { panic!("{again:?}") };
/// assert_eq!(result, b"invoice 2026-11/acme sent to acme");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Idempotency<S> {
    store: S,
    policy: Policy,
}

/// The step after an acquire.
pub(crate) enum NextStep {
    /// Run the work under this claim.
    Work(Claim),
    /// The work must not run.
    Report(Report),
}

/// How an attempt at the work ended.
pub(crate) enum AttemptResult {
    /// The work returned without an error.
    Returned(RecordedAttempt),
    /// The work failed, panicked or was cancelled.
    Failed(WorkError),
    /// The work must not run. The attempt fails with this error.
    #[cfg_attr(not(feature = "lambda"), expect(dead_code, reason = "only batches know this before the attempt"))]
    NotRun(WorkError),
    /// The delivery has no payload, and the work's own record shows that the work is done.
    #[cfg_attr(not(feature = "lambda"), expect(dead_code, reason = "only batches have deliveries without a payload"))]
    DoneWithoutPayload(Vec<u8>),
    /// An earlier attempt may have taken effect, and the policy parks recoveries.
    Parked,
    /// The deadline passed before the work started.
    NotStarted,
}

impl AttemptResult {
    /// Whether the work ran.
    pub(crate) fn ran(&self) -> bool {
        matches!(self, Self::Returned(RecordedAttempt::Done(_)) | Self::Failed(_))
    }
}

impl<S: Store> Idempotency<S> {
    /// Creates the core on this store.
    pub fn new(store: S, policy: Policy) -> Self {
        Self { store, policy }
    }

    /// The store.
    #[cfg(feature = "lambda")]
    pub(crate) fn store(&self) -> &S {
        &self.store
    }

    /// The policy.
    #[cfg(feature = "lambda")]
    pub(crate) fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Runs `work` on `input`, unless it was done before, another owner holds its lease, or it failed permanently.
    ///
    /// If the reply to the acquire is lost, `run` retries the release until [`Deadline::settle`], so that the lost
    /// acquire is not counted and does not cause a recovery.
    ///
    /// # Errors
    /// [`StoreError`]. No work ran. The store did not reply to the acquire; or the value of the key is no record, and an
    /// operator must act ([`NotARecord`](StoreError::NotARecord)); or work with its own record, such as that of an inbox,
    /// could not reach its database, which the source of the error names.
    ///
    /// ## Cancel safety
    /// If the future is dropped, the claim remains until its lease ends. The next attempt after that is a recovery.
    pub async fn run<T, W>(&self, delivery: &Delivery, work: &W, input: &T) -> Result<Report, StoreError>
    where
        T: ?Sized + Sync,
        W: Work<T>,
    {
        let claim = match self.acquire(delivery, work).await {
            Ok(NextStep::Work(claim)) => claim,
            Ok(NextStep::Report(report)) => return Ok(report),
            // Boxed, because this rare case would enlarge the future of every delivery.
            Err(failed) => return Err(Box::pin(self.release_failed(failed, &delivery.deadline)).await),
        };
        let result = self.attempt_work(&claim, work, input, &delivery.deadline).await;
        self.settle(&claim, result, own_record(work).is_some(), &delivery.deadline).await
    }
}
