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
use crate::record::{Failure, Fence, Kept, Owner};
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
        let nothing_ran = |outcome, fence, attempt| Report { outcome, fence, attempt, recovery: false };
        let attempt = self.attempt(delivery);
        let deadline = &delivery.deadline;
        match self.acquire(&attempt, deadline).await? {
            Acquire::Acquired(claim) | Acquire::AcquiredStale(claim) => {
                let claim = claim.until(deadline.work);
                let (fence, attempt, recovery) = (Some(claim.fence()), Some(claim.attempt()), claim.is_recovery());
                let outcome = self.work_and_settle(claim, work, input, deadline).await?;
                Ok(Report { outcome, fence, attempt, recovery })
            }
            Acquire::Duplicate { fence, attempts, result } => {
                let result = self.result(result, delivery).await;
                Ok(nothing_ran(Outcome::Duplicate { result }, Some(fence), Some(attempts)))
            }
            Acquire::Conflict { lease_remains } => Ok(nothing_ran(Outcome::Conflict { lease_remains }, None, None)),
            Acquire::Mismatch => Ok(nothing_ran(Outcome::Mismatch, None, None)),
            Acquire::Failed if work.keeps_record() => {
                let outcome = self.by_its_own_record(attempt, work, deadline).await;
                Ok(nothing_ran(outcome, None, None))
            }
            Acquire::Failed => Ok(nothing_ran(Outcome::Failed, None, None)),
        }
    }

    fn attempt(&self, delivery: &Delivery) -> Attempt {
        let remaining = delivery.deadline.end.saturating_duration_since(Instant::now());
        let grace = self.policy.lease_grace;
        Attempt {
            key: delivery.key.clone(),
            owner: delivery.owner.unwrap_or_else(Owner::random),
            fingerprint: delivery.fingerprint,
            message: delivery.message,
            lease: remaining.saturating_add(grace),
            longest_lease: remaining.max(LONGEST_INVOCATION).saturating_add(grace),
            retention: self.policy.retention,
            max_attempts: self.policy.max_attempts,
        }
    }

    async fn acquire(&self, attempt: &Attempt, deadline: &Deadline) -> Result<Acquire, StoreError> {
        let answer = timeout_at(deadline.work, self.store.acquire(attempt.clone())).await;
        let answer = answer.unwrap_or_else(|elapsed| Err(StoreError::unavailable(elapsed)));
        if answer.as_ref().is_err_and(StoreError::may_have_run) {
            let _given_back = self.release(attempt, deadline).await;
        }
        answer
    }

    /// Give the claim back. Where the store cannot be told in time, the lease ends by itself, and the next
    /// attempt is a recovery.
    async fn release(&self, attempt: &Attempt, deadline: &Deadline) -> Result<Settled, StoreError> {
        let patience = Patience { until: deadline.settle, once: false };
        insist(patience, || self.store.release(attempt)).await
    }

    /// The store would fail the message for good. A work that keeps its own record may know that it is done, as
    /// where the reply to the commit of its last attempt was lost.
    async fn by_its_own_record<T, W>(&self, attempt: Attempt, work: &W, deadline: &Deadline) -> Outcome
    where
        T: ?Sized + Sync,
        W: Work<T>,
    {
        let recorded = timeout_at(deadline.work, work.recorded(&attempt, deadline.work)).await;
        match recorded.unwrap_or_else(|elapsed| Err(WorkError::unavailable(elapsed))) {
            Ok(Some(result)) => {
                let claim = Claim::of_done(attempt, Fence(0), self.policy.max_attempts);
                let _healed = self.complete(&claim, &result, Patience { until: deadline.settle, once: true }).await;
                Outcome::Duplicate { result: Some(result) }
            }
            Ok(None) => Outcome::Failed,
            Err(error) => Outcome::Unavailable { error },
        }
    }

    async fn work_and_settle<T, W>(
        &self,
        claim: Claim,
        work: &W,
        input: &T,
        deadline: &Deadline,
    ) -> Result<Outcome, StoreError>
    where
        T: ?Sized + Sync,
        W: Work<T>,
    {
        if deadline.is_too_late() {
            let _given_back = self.release(claim.asked(), deadline).await;
            return Ok(Outcome::NotStarted);
        }
        let patience = Patience { until: deadline.settle, once: work.keeps_record() };
        match self.work(&claim, work, input, deadline).await {
            Ok(worked) => self.settle(claim, worked, deadline, patience).await,
            Err(Failed { error, failure: _ }) if matches!(error.kind(), WorkErrorKind::Unavailable { .. }) => {
                let _given_back = self.release(claim.asked(), deadline).await;
                Ok(Outcome::Unavailable { error })
            }
            Err(failed) => Ok(self.fail(&claim, failed, patience).await),
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
            Ok(Ok(Err(error))) => Err(self.failed(claim, work.keeps_record(), error)),
            // The panic's own message may quote the payload; it goes only where the panic hook sends it.
            Ok(Err(_panic)) => Err(self.failed(claim, work.keeps_record(), WorkError::uncertain("the work panicked"))),
            Err(_elapsed) => {
                let error = WorkError::uncertain("the work was cancelled at the deadline");
                Err(self.failed(claim, work.keeps_record(), error))
            }
        }
    }

    fn failed(&self, claim: &Claim, keeps_record: bool, error: WorkError) -> Failed {
        let uncertain = error.kind() == WorkErrorKind::Uncertain;
        let was_last = claim.attempt() >= self.policy.max_attempts;
        // The work's own record may say that an uncertain attempt is done, so that is looked at first.
        let permanent = error.kind() == WorkErrorKind::Permanent || was_last && !(uncertain && keeps_record);
        Failed { error, failure: Failure { uncertain, permanent } }
    }

    /// An error where what every work needs is out of reach: that does not concern this delivery alone.
    async fn settle(
        &self,
        claim: Claim,
        worked: Worked,
        deadline: &Deadline,
        patience: Patience,
    ) -> Result<Outcome, StoreError> {
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
                let _given_back = self.release(claim.asked(), deadline).await;
                Ok(Outcome::Conflict { lease_remains: after })
            }
            Worked::Mismatch => {
                // What the key stands for took effect under another payload, so nothing of this one did.
                let failure = Failure { uncertain: false, permanent: true };
                let _settled = insist(patience, || self.store.fail(&claim, failure)).await;
                Ok(Outcome::Mismatch)
            }
            Worked::Unreachable(reason) => {
                let _given_back = self.release(claim.asked(), deadline).await;
                Err(StoreError::unreachable(reason))
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

/// The longest that an invocation of Lambda can take:
/// <https://docs.aws.amazon.com/lambda/latest/dg/configuration-timeout.html>
const LONGEST_INVOCATION: Duration = Duration::from_secs(900);

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
