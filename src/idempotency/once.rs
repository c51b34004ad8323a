//! A closure that runs once for each key, and whose value later calls get from the record.

use std::future::Future;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::Idempotency;
use super::claim::Claim;
use super::delivery::Delivery;
use super::fingerprint::Fingerprint;
use super::key::Key;
use super::owner::Fence;
use super::report::Outcome;
use super::store::{Store, StoreError};
use super::work::Work;
use super::work_error::WorkError;

/// What a closure may know of its [`Claim`]. It does not settle the record, so it can be cloned and moved.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClaimInfo {
    /// The idempotency key. Pass it to the services that the closure calls.
    pub key: Key,
    /// The fence. Pass it to a resource that rejects lower ones.
    pub fence: Fence,
    /// The number of this attempt, from 1.
    pub attempt: u8,
    /// Whether an earlier attempt may have taken effect. See [`Claim::is_recovery`].
    pub is_recovery: bool,
    /// When the closure is cancelled.
    pub ends: Instant,
}

impl From<&Claim> for ClaimInfo {
    fn from(claim: &Claim) -> Self {
        let (key, fence, attempt) = (claim.key().clone(), claim.fence(), claim.attempt());
        Self { key, fence, attempt, is_recovery: claim.is_recovery(), ends: claim.ends() }
    }
}

/// Why [`Idempotency::once`] has no value.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OnceError {
    /// Another call with this key is running. Call again after its lease.
    #[error("another call with this key is running; its lease ends in {} ms", lease_remains.as_millis())]
    Conflict {
        /// Remaining time of its lease.
        lease_remains: Duration,
    },
    /// The key was used for another payload.
    #[error("the key was used for another payload")]
    Mismatch,
    /// An earlier call failed permanently, or all attempts are used up. The closure did not run. This applies for
    /// [`Policy::failed_retention`](super::Policy::failed_retention), or until the key comes with another
    /// [`message_id`](Delivery::message_id). With [`Recovery::Park`](super::Recovery::Park) also a call that may have
    /// taken effect.
    #[error("an earlier call with this key failed permanently, or used up its attempts")]
    FailedBefore,
    /// The closure ran and failed, panicked or was cancelled at the deadline.
    #[error("the closure failed")]
    Failed {
        /// The error of the closure. If the failure could not be recorded, it is instead the error of the store, or an
        /// error which says that another call has acquired the key. [`WorkError::kind`] says whether to call again.
        #[source]
        error: WorkError,
        /// Whether this or an earlier call may have taken effect. The next one is then a recovery.
        uncertain: bool,
        /// Whether no later call with this key runs, as in [`FailedBefore`](Self::FailedBefore).
        permanent: bool,
    },
    /// The closure ran before, and its value was not kept or cannot be read: it is larger than
    /// [`Policy::result_max_bytes`](super::Policy::result_max_bytes) and no object has it.
    #[error("the closure ran before, and its value was not kept")]
    NotKept,
    /// The closure ran before, and its value cannot be read as the expected type.
    #[error("the closure ran before, and its value has another type")]
    OtherType(#[source] serde_json::Error),
    /// The payload cannot be written as JSON. Nothing ran.
    #[error("the payload cannot be written as JSON")]
    Payload(#[source] serde_json::Error),
    /// The deadline passed before the closure started.
    #[error("the deadline passed before the closure started")]
    NotStarted,
    /// The store did not reply to the acquire, or the value of the key is not a record. The closure did not run.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl<S: Store> Idempotency<S> {
    /// Runs a closure once for this key and payload, and returns its value, whether it ran now or before.
    ///
    /// The value is kept in the record as JSON, up to [`Policy::result_max_bytes`](super::Policy::result_max_bytes), or
    /// as an object if [`Policy::results`](super::Policy::results) is set. The fingerprint is that of the payload as
    /// [JSON](Fingerprint::of_json). `delivery` is a [`Key`], or a [`Delivery`] with a deadline or a
    /// messageId of its own; the deadline of a key is in one minute.
    ///
    /// A later call gets the value that is read back from JSON. What JSON cannot hold, such as `NaN` or `Some(None)`,
    /// is read back as another value, or as [`OtherType`](OnceError::OtherType). So is a value that is nested more than
    /// 127 deep.
    ///
    /// ```
    /// use idempotent_sqs::{Idempotency, Key, MemoryStore, Policy, WorkError};
    ///
    /// #[derive(serde::Serialize)]
    /// struct Payment {
    ///     amount: u64,
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let idempotency = Idempotency::new(MemoryStore::default(), Policy::default());
    /// let payment = Payment { amount: 1250 };
    /// for _ in 0..2 {
    ///     let receipt: String = idempotency
    ///         .once(Key::new("pay_7f3a")?, &payment, |claim| async move {
    ///             // Runs once. `claim.is_recovery` tells whether an earlier run may have taken effect.
    ///             Ok(format!("receipt of attempt {}", claim.attempt))
    ///         })
    ///         .await?;
    ///     assert_eq!(receipt, "receipt of attempt 1");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The closure returns a [`WorkError`] if it fails, as a [`Work`] does. If it succeeded and the store could not
    /// record that before the deadline, `once` returns the value and logs a warning; the next call is a recovery.
    ///
    /// # Errors
    /// [`OnceError`]. The closure ran only if it is [`Failed`](OnceError::Failed). If the reply to the acquire is lost, the
    /// error comes only once its record is released, or at [`Deadline::settle`](super::Deadline::settle).
    ///
    /// ## Cancel safety
    /// If the future is dropped, the closure's future is dropped and the claim remains until its lease ends. The next
    /// call after that is a recovery.
    pub async fn once<P, R, F, Fut>(
        &self,
        delivery: impl Into<Delivery> + Send,
        payload: &P,
        closure: F,
    ) -> Result<R, OnceError>
    where
        P: Serialize + ?Sized + Sync,
        R: Serialize + DeserializeOwned + Send,
        F: FnOnce(ClaimInfo) -> Fut + Send,
        Fut: Future<Output = Result<R, WorkError>> + Send,
    {
        let fingerprint = Fingerprint::of_json(payload).map_err(OnceError::Payload)?;
        let delivery = delivery.into().fingerprint(fingerprint);
        let work = Once { closure: Mutex::new(Some(closure)), value: Mutex::new(None) };
        let report = self.run(&delivery, &work, &()).await?;
        let value = work.value.into_inner().unwrap_or_else(PoisonError::into_inner);
        match (report.outcome, value) {
            (Outcome::Done { .. }, Some(value)) => Ok(value),
            // The closure succeeded: its value is right, whatever the store has.
            (Outcome::Unsettled { .. } | Outcome::Lost { .. }, Some(value)) => {
                let key = delivery.key.as_str();
                tracing::warn!(key, "the closure ran, and its value was not recorded; the next call may be a recovery");
                Ok(value)
            }
            (Outcome::Duplicate { result: Some(result) }, _) if !result.is_empty() => {
                serde_json::from_slice(&result).map_err(OnceError::OtherType)
            }
            (Outcome::Duplicate { .. }, _) => Err(OnceError::NotKept),
            (Outcome::Conflict { lease_remains }, _) => Err(OnceError::Conflict { lease_remains }),
            (Outcome::Mismatch, _) => Err(OnceError::Mismatch),
            (Outcome::FailedBefore, _) => Err(OnceError::FailedBefore),
            // Parked: the policy lets no recovery run. The store may not have recorded that.
            (Outcome::FailedPermanently { .. } | Outcome::Unsettled { .. } | Outcome::Lost { .. }, _)
                if !report.ran =>
            {
                Err(OnceError::FailedBefore)
            }
            (Outcome::Failed { error, uncertain }, _) => Err(OnceError::Failed { error, uncertain, permanent: false }),
            (Outcome::FailedPermanently { error, uncertain }, _) => {
                Err(OnceError::Failed { error, uncertain, permanent: true })
            }
            (Outcome::Unavailable { error }, _) => {
                Err(OnceError::Failed { error, uncertain: report.recovery, permanent: false })
            }
            (Outcome::Unsettled { error }, None) => {
                Err(OnceError::Failed { error: WorkError::uncertain(error), uncertain: true, permanent: false })
            }
            (Outcome::Lost { .. }, None) => Err(OnceError::Failed {
                error: WorkError::uncertain("the closure failed, and another call has its key"),
                uncertain: true,
                permanent: false,
            }),
            // A closure has no record of its own, and a value that is done is set.
            (Outcome::NotStarted | Outcome::Done { .. } | Outcome::DoneByOwnRecord { .. }, _) => {
                Err(OnceError::NotStarted)
            }
        }
    }
}

/// The closure as a work, and its value.
struct Once<F, R> {
    closure: Mutex<Option<F>>,
    value: Mutex<Option<R>>,
}

impl<R, F, Fut> Work<()> for Once<F, R>
where
    R: Serialize + Send,
    F: FnOnce(ClaimInfo) -> Fut + Send,
    Fut: Future<Output = Result<R, WorkError>> + Send,
{
    async fn run(&self, claim: &Claim, (): &()) -> Result<Vec<u8>, WorkError> {
        let closure = self.closure.lock().unwrap_or_else(PoisonError::into_inner).take();
        let closure = closure.ok_or_else(|| WorkError::retryable("the closure ran already"))?;
        let value = closure(claim.into()).await?;
        // The effect took place, so the record must be completed. JSON is never empty, so an empty result is read as
        // one that was not kept.
        let result = serde_json::to_vec(&value).unwrap_or_else(|error| {
            tracing::warn!(key = claim.key().as_str(), %error, "the value of a closure was not kept: it is not JSON");
            Vec::new()
        });
        *self.value.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
        Ok(result)
    }
}
