//! The heart: acquire → work → complete | fail, for one delivery of one key. It knows nothing of
//! SQS, and serves any consumer.

mod delivery;
mod policy;
mod report;

use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::{Instant, sleep, timeout_at};

use crate::deadline::Deadline;
use crate::record::{Failure, Kept, Owner};
use crate::store::{Acquire, Attempt, Claim, Settled, Store, StoreError};
use crate::work::{Work, WorkError, WorkErrorKind, Worked};

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

impl<S: Store> Idempotency<S> {
    /// The heart on this store.
    pub fn new(store: S, policy: Policy) -> Self {
        Self { store, policy }
    }

    /// The same on another store, such as one that lends this one's and looks on.
    pub(crate) fn over<'a, T>(&'a self, store: impl FnOnce(&'a S) -> T) -> Idempotency<T> {
        Idempotency { store: store(&self.store), policy: self.policy.clone() }
    }

    /// Run `work` on `input`, unless it was done before, somebody else is at it, or it is hopeless.
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
        let nothing_ran = |outcome, fence, attempt| Report { outcome, fence, attempt, recovery: false };
        match self.acquire(delivery).await? {
            Acquire::Acquired(claim) | Acquire::AcquiredStale(claim) => {
                let claim = claim.until(delivery.deadline.work);
                let (fence, attempt, recovery) = (Some(claim.fence()), Some(claim.attempt()), claim.is_recovery());
                let patience = Patience { until: delivery.deadline.settle, once: work.keeps_record() };
                let outcome = match self.work(&claim, work, input, &delivery.deadline).await {
                    Ok(worked) => self.settle(claim, worked, patience).await?,
                    Err(failed) => self.fail(&claim, failed, patience).await,
                };
                Ok(Report { outcome, fence, attempt, recovery })
            }
            Acquire::Duplicate { fence, attempts, result } => {
                let result = self.result(result, delivery).await;
                Ok(nothing_ran(Outcome::Duplicate { result }, Some(fence), Some(attempts)))
            }
            Acquire::Conflict { lease_remains } => Ok(nothing_ran(Outcome::Conflict { lease_remains }, None, None)),
            Acquire::Mismatch => Ok(nothing_ran(Outcome::Mismatch, None, None)),
            Acquire::Failed => Ok(nothing_ran(Outcome::Failed, None, None)),
        }
    }

    async fn acquire(&self, delivery: &Delivery) -> Result<Acquire, StoreError> {
        let deadline = &delivery.deadline;
        let attempt = Attempt {
            key: delivery.key.clone(),
            owner: delivery.owner.unwrap_or_else(Owner::random),
            fingerprint: delivery.fingerprint,
            message: delivery.message,
            lease: deadline.end.saturating_duration_since(Instant::now()) + self.policy.lease_grace,
            retention: self.policy.retention,
            max_attempts: self.policy.max_attempts,
        };
        match timeout_at(deadline.work, self.store.acquire(attempt)).await {
            Ok(answer) => answer,
            Err(elapsed) => Err(StoreError::unavailable(elapsed)),
        }
    }

    async fn result(&self, kept: Kept<Vec<u8>>, delivery: &Delivery) -> Option<Vec<u8>> {
        match (kept, &self.policy.results) {
            (Kept::Inline(result), _) => Some(result),
            (Kept::Object(place), Some(results)) if delivery.result_is_read => {
                results.get(&place, delivery.deadline.settle).await
            }
            (Kept::Object(_) | Kept::Nowhere, _) => None,
        }
    }

    async fn work<T, W>(&self, claim: &Claim, work: &W, input: &T, deadline: &Deadline) -> Result<Worked, Failed>
    where
        T: ?Sized + Sync,
        W: Work<T>,
    {
        if deadline.is_too_late() {
            let error = WorkError::retryable("no time was left to start the work");
            return Err(Failed { error, failure: Failure::default() });
        }
        if claim.is_recovery() && self.policy.recovery == Recovery::Park && !work.keeps_record() {
            let failure = Failure { uncertain: true, permanent: true };
            return Err(Failed {
                error: WorkError::permanent("parked: an earlier attempt may have taken effect"),
                failure,
            });
        }
        let mut run = pin!(AssertUnwindSafe(async { work.attempt(claim, input).await }).catch_unwind());
        // A process that was frozen goes on where it was. It must not take another step of the work before
        // it comes to look at the time.
        let in_time = poll_fn(|cx| if deadline.is_too_late() { Poll::Pending } else { run.as_mut().poll(cx) });
        match timeout_at(deadline.work, in_time).await {
            Ok(Ok(Ok(worked))) => Ok(worked),
            Ok(Ok(Err(error))) => {
                let failure = Failure {
                    uncertain: error.kind() == WorkErrorKind::Uncertain,
                    permanent: error.kind() == WorkErrorKind::Permanent || self.was_last(claim),
                };
                Err(Failed { error, failure })
            }
            // The panic's own message may quote the payload; it goes only where the panic hook sends it.
            Ok(Err(_panic)) => Err(self.cut_off(claim, "the work panicked")),
            Err(_elapsed) => Err(self.cut_off(claim, "the work was cancelled at the deadline")),
        }
    }

    fn cut_off(&self, claim: &Claim, reason: &'static str) -> Failed {
        let failure = Failure { uncertain: true, permanent: self.was_last(claim) };
        Failed { error: WorkError::uncertain(reason), failure }
    }

    fn was_last(&self, claim: &Claim) -> bool {
        claim.attempt() >= self.policy.max_attempts
    }

    /// An error where what every work needs is out of reach: that is no matter of this delivery.
    async fn settle(&self, claim: Claim, worked: Worked, patience: Patience) -> Result<Outcome, StoreError> {
        match worked {
            Worked::Done(result) => Ok(match self.complete(&claim, &result, patience).await {
                Ok(Settled::Recorded) => Outcome::Done { result },
                Ok(Settled::Lost(_)) | Err(_) if patience.once => Outcome::Kept { result },
                Ok(Settled::Lost(state)) => Outcome::Lost { state, done: true },
                Err(error) => Outcome::Unsettled { error },
            }),
            Worked::DoneBefore(result) => {
                // By the work's own record it is done, whatever comes of this.
                let _healed = self.complete(&claim, &result, patience).await;
                Ok(Outcome::Duplicate { result: Some(result) })
            }
            Worked::Busy { after } => {
                self.release(claim, patience).await;
                Ok(Outcome::Conflict { lease_remains: after })
            }
            Worked::Mismatch => {
                // What the key stands for took effect under another payload, so nothing of this one did.
                let failure = Failure { uncertain: false, permanent: true };
                let _settled = insist(patience, || self.store.fail(&claim, failure)).await;
                Ok(Outcome::Mismatch)
            }
            Worked::Unreachable(reason) => {
                self.release(claim, patience).await;
                Err(StoreError::unavailable(reason))
            }
        }
    }

    async fn complete(&self, claim: &Claim, result: &[u8], patience: Patience) -> Result<Settled, StoreError> {
        let place = self.keep(claim, result).await;
        let kept = match &place {
            Some(place) => Kept::Object(place.as_bytes()),
            None if result.len() <= self.policy.result_max_bytes => Kept::Inline(result),
            None => Kept::Nowhere,
        };
        insist(patience, || self.store.complete(claim, kept)).await
    }

    /// The place of a result that is too large for the record. The time for settling is not for this.
    async fn keep(&self, claim: &Claim, result: &[u8]) -> Option<String> {
        let results = self.policy.results.as_ref().filter(|_| result.len() > self.policy.result_max_bytes)?;
        results.keep(claim, result, claim.ends()).await
    }

    /// Give the claim back as if there had been no attempt. A doubt that it came with stays. Where the
    /// store cannot be told, the lease ends by itself.
    async fn release(&self, claim: Claim, patience: Patience) {
        let failure = Failure { uncertain: claim.is_recovery(), permanent: false };
        let claim = claim.uncounted();
        let _released = insist(patience, || self.store.fail(&claim, failure)).await;
    }

    async fn fail(&self, claim: &Claim, failed: Failed, patience: Patience) -> Outcome {
        let Failed { error, failure } = failed;
        // What an earlier attempt may have done is not undone by the failure of this one.
        let failure = Failure { uncertain: failure.uncertain || claim.is_recovery(), ..failure };
        match insist(patience, || self.store.fail(claim, failure)).await {
            Ok(Settled::Recorded) => Outcome::WorkFailed { error, failure },
            Ok(Settled::Lost(state)) => Outcome::Lost { state, done: false },
            Err(error) => Outcome::Unsettled { error },
        }
    }
}

struct Failed {
    error: WorkError,
    failure: Failure,
}

/// How long the store is asked to settle.
#[derive(Clone, Copy)]
struct Patience {
    until: Instant,
    /// Nothing hangs on its answer: the work has a record of its own.
    once: bool,
}

/// Asks until there is an answer: an effect without its record would be repeated, so only time
/// running out ends this.
async fn insist<F>(Patience { until, once }: Patience, mut ask: impl FnMut() -> F) -> Result<Settled, StoreError>
where
    F: Future<Output = Result<Settled, StoreError>>,
{
    // Short against a failover, long against a round trip.
    const PAUSE: Duration = Duration::from_millis(50);
    let mut last = None;
    loop {
        match timeout_at(until, ask()).await {
            Ok(Err(error)) if error.is_unavailable() && !once && Instant::now() + PAUSE < until => last = Some(error),
            Ok(answer) => return answer,
            Err(elapsed) => return Err(last.unwrap_or_else(|| StoreError::unavailable(elapsed))),
        }
        sleep(PAUSE).await;
    }
}
