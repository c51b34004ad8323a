//! Runs the messages of one invocation through the core: concurrently, or in order within a FIFO message group.
//!
//! - `dead_letter`: moves a message that cannot succeed to the dead-letter queue
//! - `lanes`: which messages run in order
//! - `outages`: which parts of the store were found unavailable
//! - `process`: reads the key and the payload of a message
//! - `receivers`: which receivers are unavailable
//! - `run`: one run of a batch
//! - `steps`: acquire → work → settle for each message

mod dead_letter;
mod lanes;
mod outages;
mod process;
mod receivers;
mod run;
mod steps;

use std::num::NonZeroUsize;
use std::time::Duration;

use futures_util::future::{join, join_all};
use futures_util::{StreamExt, stream};
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::timeout_at;

use super::dead_letter_queue::DeadLetterQueue;
use super::envelope::Envelopes;
use super::extended_client::ExtendedClient;
use super::fingerprint::FingerprintSource;
use super::key::KeySource;
use super::message::Message;
use super::message_report::MessageReport;
use super::timings::Timings;
use crate::idempotency::{Deadline, FailedAcquire, Idempotency, Store, StoreError, Work};

use receivers::KnownUnavailable;
use run::Run;

/// Messages that are started in one poll of the task. Their acquires are in flight while the next messages are
/// prepared. Equal to the number of records in one script call, so that calls are full.
const WAVE: usize = 64;

/// Releases are waited for until this long before [`Deadline::settle`]: changes of the visibility timeouts of 500 messages
/// take three seconds at most, and the log and the metrics take some time too.
const TIME_TO_CONCLUDE: Duration = Duration::from_secs(4);

/// Runs the work on the messages of a batch, each under its own idempotency record.
#[derive(Debug)]
pub struct Batch<S, W> {
    idempotency: Idempotency<S>,
    work: W,
    settings: BatchSettings,
    unavailable: KnownUnavailable,
}

/// How a batch is run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BatchSettings {
    /// Maximum number of messages that run concurrently. As many again may run at receivers that are known to be
    /// unavailable, one at each, because these may hang. Default: 16.
    pub concurrency: NonZeroUsize,
    /// Sources of the idempotency key, in order; the first one with a value is used. Default: the message attribute
    /// `Idempotency-Key`, then the messageId.
    pub keys: Vec<KeySource>,
    /// Source of the fingerprint. Default: the whole payload.
    pub fingerprint: FingerprintSource,
    /// Which envelopes are opened. Default: [`Envelopes::Auto`].
    pub envelopes: Envelopes,
    /// Fetches payloads that are in S3. Default: no payload is fetched.
    pub extended_client: ExtendedClient,
    /// Where messages that cannot succeed are sent at once. Default: none, they are delivered again until the redrive
    /// policy of their queue moves them.
    pub dead_letter_queue: Option<DeadLetterQueue>,
}

impl Default for BatchSettings {
    fn default() -> Self {
        Self {
            // Enough to run all messages of a batch of ten concurrently, and few enough calls for most receivers.
            concurrency: const { NonZeroUsize::new(16).unwrap() },
            keys: vec![KeySource::Attribute("Idempotency-Key".into()), KeySource::MessageId],
            fingerprint: FingerprintSource::Body,
            envelopes: Envelopes::Auto,
            extended_client: ExtendedClient::default(),
            dead_letter_queue: None,
        }
    }
}

impl<S: Store, W: Work<Message>> Batch<S, W> {
    /// Creates a batch runner.
    pub fn new(idempotency: Idempotency<S>, work: W, settings: BatchSettings) -> Self {
        Self { idempotency, work, settings, unavailable: KnownUnavailable::default() }
    }

    /// Processes the messages and returns a report on each, in the same order.
    ///
    /// # Errors
    /// [`StoreError`] if the store was unavailable before any work ran. The whole batch should be delivered again.
    ///
    /// ## Cancel safety
    /// If the future is dropped, each current claim remains until its lease ends, as after a crash.
    pub async fn run(&self, messages: &[Message], deadline: Deadline) -> Result<Vec<MessageReport>, StoreError> {
        let (reports, outage) = self.run_timed(messages, deadline, None, async |_| {}).await;
        outage.map_or(Ok(reports), Err)
    }

    /// As [`run`](Self::run), and measures each step. Returns the reports even if the store was unavailable before any
    /// work ran. Records whose acquires had no reply are released until [`Deadline::settle`]. `conclude` gets the
    /// reports when these records are released, or [`TIME_TO_CONCLUDE`] before [`Deadline::settle`] if that is earlier.
    /// It is never called before the last message has ended.
    pub(crate) async fn run_timed(
        &self,
        messages: &[Message],
        deadline: Deadline,
        timings: Option<&Timings>,
        conclude: impl AsyncFnOnce(&[MessageReport]),
    ) -> (Vec<MessageReport>, Option<StoreError>) {
        let (sender, unanswered) = mpsc::unbounded_channel();
        let (releasing, released) = oneshot::channel::<()>();
        let run = async {
            let run = Run::new(self, messages, deadline, timings, sender);
            let groups = run.lanes_by_receiver().into_iter();
            join_all(groups.map(|(unavailable, lanes)| run_group(&run, unavailable, lanes))).await;
            let has_outage = run.outages.affect(None);
            let (reports, outage) = run.into_reports();
            if has_outage {
                // Waits for the releases: a message that is received again before that is in conflict with its own
                // acquire.
                let latest = deadline.settle.checked_sub(TIME_TO_CONCLUDE).unwrap_or(deadline.work);
                drop(timeout_at(latest, released).await);
            }
            conclude(&reports).await;
            (reports, outage)
        };
        let release = async {
            release_all(&self.idempotency, unanswered, &deadline).await;
            drop(releasing);
        };
        join(run, release).await.0
    }
}

/// Releases the records of the acquires that a run sends, concurrently, until the run has ended and dropped the sender.
async fn release_all<S: Store>(
    idempotency: &Idempotency<S>,
    unanswered: UnboundedReceiver<FailedAcquire>,
    deadline: &Deadline,
) {
    stream::unfold(unanswered, |mut unanswered| async { unanswered.recv().await.map(|failed| (failed, unanswered)) })
        .for_each_concurrent(None, |failed| async move { drop(idempotency.release_failed(failed, deadline).await) })
        .await;
}

/// Runs the lanes of one receiver if it is known to be unavailable: one after another until it does the work of a
/// message, and then concurrently.
async fn run_group<S: Store, W: Work<Message>>(run: &Run<'_, S, W>, unavailable: Option<&str>, mut lanes: Vec<usize>) {
    if let Some(receiver) = unavailable {
        // Those with payloads in S3 are last: S3 may not reply.
        lanes.sort_by_key(|first| run.has_pointers_in(*first));
        let mut started = 0;
        while started < lanes.len() && run.receivers.is_known_unavailable(receiver) {
            // A message of another lane may have the turn. No lane of another receiver waits for these.
            run.receivers.wait_for_free_turn(receiver).await;
            if !run.receivers.is_known_unavailable(receiver) {
                break;
            }
            run.run_lane(lanes[started]).await;
            started += 1;
        }
        lanes.drain(..started);
    }
    run_lanes(run, lanes).await;
}

/// Runs these lanes, those with payloads in S3 beside the others: S3 may not reply.
async fn run_lanes<S: Store, W: Work<Message>>(run: &Run<'_, S, W>, lanes: Vec<usize>) {
    let (with_pointers, others): (Vec<_>, Vec<_>) = lanes.into_iter().partition(|first| run.has_pointers_in(*first));
    let concurrency = run.batch.settings.concurrency.get();
    // Twice the concurrency, because as many messages may be settling. With S3 payloads only once, because the payloads
    // of all these messages are in memory.
    let others = run_concurrently(run, others, concurrency.saturating_mul(2));
    join(run_concurrently(run, with_pointers, concurrency), others).await;
}

/// Runs at most this number of these lanes concurrently, each from its first message.
async fn run_concurrently<S: Store, W: Work<Message>>(run: &Run<'_, S, W>, lanes: Vec<usize>, most: usize) {
    stream::iter(lanes.into_iter().enumerate())
        .then(|(number, first)| async move {
            if number > 0 && number.is_multiple_of(WAVE) {
                yield_now().await;
            }
            first
        })
        .for_each_concurrent(most, |first| run.run_lane(first))
        .await;
}
