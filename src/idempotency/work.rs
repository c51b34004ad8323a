//! The contract between the core and the business logic.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::Instant;

use super::claim::{AcquireRequest, Claim};
use super::panics::catch;
use super::work_error::WorkError;

/// The business logic. `T` is its input: a [`Message`](crate::sqs::Message) on SQS, any type elsewhere.
///
/// If the process dies after an effect and before it is recorded, the effect can be repeated. To prevent that, pass the
/// claim's key or fence to the service that is called, or make the effect and its record one transaction (crate
/// `idempotent-sqs-postgres`), or implement [`recover`](Work::recover) so that it first checks whether the effect took
/// place.
///
/// ```
/// use idempotent_sqs::{Claim, Work, WorkError};
///
/// struct SendInvoice;
///
/// impl Work<str> for SendInvoice {
///     async fn run(&self, claim: &Claim, customer: &str) -> Result<Vec<u8>, WorkError> {
///         if customer.is_empty() {
///             return Err(WorkError::permanent("the invoice has no customer"));
///         }
///         Ok(format!("invoice {} sent", claim.key()).into_bytes())
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a `Work` on `{T}`",
    note = "implement `idempotent_sqs::Work<{T}>` for it, or pass a closure to `idempotent_sqs::work_fn`",
    note = "`&W`, `Arc<W>` and `Box<W>` implement `Work` if `W` does",
    note = "a `TransactionalWork` is served by `idempotent_sqs_postgres::InboxConfig::handler`"
)]
pub trait Work<T: ?Sized>: Send + Sync {
    /// Does the work. The returned bytes are its result, which is returned to duplicates.
    ///
    /// # Errors
    /// A [`WorkError`] states whether the work may have taken effect, and whether and when to try again.
    ///
    /// ## Cancel safety
    /// The future is dropped at the deadline. That counts as uncertain.
    fn run(&self, claim: &Claim, input: &T) -> impl Future<Output = Result<Vec<u8>, WorkError>> + Send;

    /// Does the work after an earlier attempt that may have taken effect: its process died, it was cancelled, or it
    /// returned [`WorkError::uncertain`]. By default the work runs again.
    ///
    /// A recovery that fails cleanly or permanently is followed by another recovery, because the earlier attempt may
    /// still have taken effect. If the store has lost the record, [`run`](Work::run) is called instead.
    ///
    /// # Errors
    /// As for [`run`](Work::run).
    ///
    /// ## Cancel safety
    /// As for [`run`](Work::run).
    fn recover(&self, claim: &Claim, input: &T) -> impl Future<Output = Result<Vec<u8>, WorkError>> + Send {
        self.run(claim, input)
    }

    /// Names the receiver that this input is sent to: a service, a database, a customer's webhook. After an error of
    /// kind [`Unavailable`](super::WorkErrorKind::Unavailable), other messages for the same receiver are not started
    /// but delivered again. By default all inputs have the same receiver.
    fn receiver<'a>(&'a self, input: &'a T) -> &'a str {
        let _ = input;
        ""
    }

    /// The longest time that a run with this input takes, because the work has a timeout of its own. Default: zero, so
    /// a message is started as long as any time is left.
    ///
    /// Only batches of SQS use it. A message is not started, but delivered again, if less time than this is left before
    /// the deadline: cancelled work may have taken effect. Two exceptions let batches make progress. Half of the time
    /// that the batch had at its start is enough for any message. Any time is enough until one of the messages is
    /// started or becomes a dead letter, or is done while the store is available. If the payload of a message is in S3,
    /// this method is also called before the payload is read.
    fn longest_run(&self, input: &T) -> Duration {
        let _ = input;
        Duration::ZERO
    }

    /// For `Work` implementations that record their effect themselves, in the same transaction as the effect.
    #[doc(hidden)]
    fn own_record(&self) -> Option<&dyn OwnRecord<T>> {
        None
    }
}

/// A record that the work maintains, in the same transaction as its effect, such as the row of an inbox. It takes
/// precedence over the store's record.
#[doc(hidden)]
pub trait OwnRecord<T: ?Sized>: Send + Sync {
    /// One attempt at the work, a first one or a recovery.
    fn attempt<'a>(&'a self, claim: &'a Claim, input: &'a T) -> BoxFuture<'a, Result<RecordedAttempt, WorkError>>;

    /// The result if the work of this key and fingerprint is done, else `None`. Changes nothing.
    ///
    /// # Errors
    /// Unavailable if the record could not be read, so that the message is retried. Any other error means that the
    /// record leaves the outcome unknown, and fails the message.
    fn recorded<'a>(
        &'a self,
        request: &'a AcquireRequest,
        until: Instant,
    ) -> BoxFuture<'a, Result<Option<Vec<u8>>, WorkError>>;
}

/// The work's own record. If finding it panics, the work counts as one without.
pub(crate) fn own_record<T: ?Sized, W: Work<T>>(work: &W) -> Option<&dyn OwnRecord<T>> {
    catch(|| work.own_record()).flatten()
}

/// Outcome of an attempt at work with its own record.
#[doc(hidden)]
#[derive(Debug)]
pub enum RecordedAttempt {
    /// The work is done, with this result.
    Done(Vec<u8>),
    /// An earlier attempt did the work, with this result.
    DoneBefore(Vec<u8>),
    /// Another process is running this work. This attempt had no effect and is not counted.
    Busy {
        /// When that process should have finished.
        after: Duration,
    },
    /// The key was used for another payload. This attempt had no effect.
    Mismatch,
    /// A resource that all work needs is unreachable. This attempt had no effect and is not counted.
    Unreachable(Box<dyn Error + Send + Sync>),
}

/// Implements [`Work`] for pointers to `Work` implementations.
macro_rules! impl_work_for_pointer {
    ($($pointer:ty),*) => {$(
        impl<T: ?Sized + Sync, W: Work<T>> Work<T> for $pointer {
            async fn run(&self, claim: &Claim, input: &T) -> Result<Vec<u8>, WorkError> {
                (**self).run(claim, input).await
            }

            async fn recover(&self, claim: &Claim, input: &T) -> Result<Vec<u8>, WorkError> {
                (**self).recover(claim, input).await
            }

            fn receiver<'a>(&'a self, input: &'a T) -> &'a str {
                (**self).receiver(input)
            }

            fn longest_run(&self, input: &T) -> Duration {
                (**self).longest_run(input)
            }

            fn own_record(&self) -> Option<&dyn OwnRecord<T>> {
                (**self).own_record()
            }
        }
    )*};
}

impl_work_for_pointer!(&W, Arc<W>, Box<W>);

/// Makes a [`Work`] from a closure. The returned future cannot borrow the arguments, so copy what it needs from them
/// first and return an `async move` block. An `async` closure borrows its arguments and does not compile here.
///
/// ```
/// use idempotent_sqs::{Claim, WorkError, work_fn};
///
/// let work = work_fn(|claim: &Claim, customer: &str| {
///     let invoice = format!("invoice {} for {customer}", claim.key());
///     async move { Ok::<_, WorkError>(invoice.into_bytes()) }
/// });
/// # fn is_work(_: impl idempotent_sqs::Work<str>) {}
/// # is_work(work);
/// ```
pub fn work_fn<T, F, R>(function: F) -> WorkFn<F>
where
    T: ?Sized,
    F: Fn(&Claim, &T) -> R,
{
    WorkFn { function }
}

/// A [`Work`] made by [`work_fn`].
#[derive(Clone, Copy)]
pub struct WorkFn<F> {
    function: F,
}

impl<F> fmt::Debug for WorkFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkFn").finish_non_exhaustive()
    }
}

impl<T, F, R> Work<T> for WorkFn<F>
where
    T: ?Sized + Sync,
    F: Fn(&Claim, &T) -> R + Send + Sync,
    R: Future<Output = Result<Vec<u8>, WorkError>> + Send,
{
    async fn run(&self, claim: &Claim, input: &T) -> Result<Vec<u8>, WorkError> {
        (self.function)(claim, input).await
    }
}
