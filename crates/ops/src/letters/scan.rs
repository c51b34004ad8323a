//! Receives each letter of the queue once, and hides all of them until the end.

use std::collections::{HashMap, HashSet, VecDeque};
use std::pin::pin;
use std::time::{Duration, SystemTime};

use futures_util::{StreamExt, stream};
use tokio::time::{Instant, sleep_until};

use super::interrupt::Interrupt;
use super::key::KeyFinder;
use super::letter::Letter;
use super::queue::{BATCH, CallError, Counts, DeadLetterQueue, Received};
use super::scan_end::{LastReceive, ScanEnd, Stop};

/// Most letters that are held. SQS has a limit of 120,000 messages in flight, and extending their visibility timeouts
/// takes one call for ten letters:
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-queues.html>
const MAX_HELD: usize = 20_000;

/// Extensions that run concurrently. A call takes some tens of milliseconds, and as many letters as may be held need
/// thousands.
const CONCURRENT_CALLS: usize = 10;

/// A scan ends after this many receives in a row without a new letter. Letters become visible again if their visibility
/// timeouts could not be extended, and a standard queue may deliver a letter twice.
const MAX_REPEATS: usize = 10;

/// Receives letters. SQS has no way to read a message without receiving it.
pub(crate) struct Scan<'a> {
    queue: &'a DeadLetterQueue,
    keys: &'a KeyFinder,
    interrupt: Interrupt,
    /// Letters to return.
    received: VecDeque<Letter>,
    /// By messageId.
    held: HashMap<String, Held>,
    /// Those whose visibility timeouts could not be extended, and that were not received again.
    lost: HashMap<String, Held>,
    seen: HashSet<String>,
    deleted: HashSet<String>,
    /// When the first visibility timeout has to be extended.
    extend_at: Instant,
    last_receive: LastReceive,
    /// Whether a receive was repeated, so that letters of its first try may be hidden.
    was_repeated: bool,
    in_flight_at_start: u64,
    progress: Progress,
}

/// How far a scan has come.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    /// Number of receives.
    pub(crate) receives: u64,
    /// The latest time that SQS has shown: a send or a first receive of a letter that was received.
    pub(crate) shown: Option<SystemTime>,
}

/// A letter in flight.
struct Held {
    receipt_handle: String,
    hidden_until: Instant,
    /// A delete had no reply.
    may_be_deleted: bool,
}

impl<'a> Scan<'a> {
    pub(crate) fn new(queue: &'a DeadLetterQueue, keys: &'a KeyFinder, interrupt: Interrupt, counts: Counts) -> Self {
        let (received, held, lost, seen, deleted) = Default::default();
        let (extend_at, in_flight_at_start) = (Instant::now() + queue.visibility_timeout, counts.in_flight);
        Self {
            queue,
            keys,
            interrupt,
            received,
            held,
            lost,
            seen,
            deleted,
            extend_at,
            last_receive: LastReceive::None,
            was_repeated: false,
            in_flight_at_start,
            progress: Progress::default(),
        }
    }

    pub(crate) fn progress(&self) -> Progress {
        self.progress
    }

    /// The next letter, hidden for another half of the [`margin`](Self::margin) at least. `None` if no other letter is
    /// visible, or after an interrupt.
    pub(crate) async fn next(&mut self) -> Result<Option<Letter>, CallError> {
        let mut repeats = 0;
        while !self.interrupt.is_set() {
            self.extend().await;
            if let Some(id) = self.received.front().map(|letter| letter.id().to_owned()) {
                if self.holds(&id) {
                    return Ok(self.received.pop_front());
                }
                self.lose(&HashSet::from([id]));
                continue;
            }
            self.last_receive = if self.held.len() >= MAX_HELD {
                LastReceive::Full
            } else if repeats >= MAX_REPEATS {
                LastReceive::Repeated
            } else if self.receive().await? {
                LastReceive::None
            } else {
                LastReceive::Empty
            };
            if self.last_receive != LastReceive::None {
                break;
            }
            repeats += 1;
        }
        Ok(None)
    }

    /// A visibility timeout is extended if less than this remains.
    fn margin(&self) -> Duration {
        self.queue.visibility_timeout * 2 / 5
    }

    /// Returns whether a message was visible.
    async fn receive(&mut self) -> Result<bool, CallError> {
        let (hidden_until, queue) = (Instant::now() + self.queue.visibility_timeout, self.queue);
        let Received { messages, was_repeated } = self.hold_during(queue.receive()).await?;
        self.was_repeated |= was_repeated;
        let is_empty = messages.is_empty();
        self.progress.receives += 1;
        for message in messages {
            let (Some(id), Some(receipt_handle)) = (message.message_id.clone(), message.receipt_handle.clone()) else {
                continue;
            };
            // A standard queue may deliver a message again that was deleted.
            if self.deleted.contains(&id) && self.queue.delete(&receipt_handle).await.is_ok() {
                continue;
            }
            self.extend_at = self.extend_at.min(hidden_until - self.margin());
            self.lost.remove(&id);
            self.held.insert(id.clone(), Held { receipt_handle, hidden_until, may_be_deleted: false });
            if self.seen.insert(id) {
                let letter = Letter::new(message, self.keys, self.progress.receives);
                self.progress.shown = self.progress.shown.max(letter.sent()).max(letter.first_received());
                self.received.push_back(letter);
            }
        }
        Ok(!is_empty)
    }

    /// Whether a letter that was returned is still hidden, for another half of the [`margin`](Self::margin) at least.
    pub(crate) async fn still_holds(&mut self, letter: &Letter) -> bool {
        self.extend().await;
        self.holds(letter.id())
    }

    /// Whether this letter is hidden for long enough. An extension of others may have taken long.
    fn holds(&self, id: &str) -> bool {
        let soon = Instant::now() + self.margin() / 2;
        self.held.get(id).is_some_and(|held| held.hidden_until > soon)
    }

    /// Waits for a call, and extends visibility timeouts meanwhile: it may take longer than they last.
    pub(crate) async fn hold_during<T>(&mut self, call: impl Future<Output = T>) -> T {
        let mut call = pin!(call);
        loop {
            tokio::select! {
                biased;
                outcome = &mut call => return outcome,
                () = sleep_until(self.extend_at) => self.extend().await,
            }
        }
    }

    /// Deletes a letter that was returned.
    pub(crate) async fn delete(&mut self, letter: &Letter) -> Result<(), CallError> {
        let held = self.held.get(letter.id()).map(|held| held.receipt_handle.clone());
        let receipt_handle = held.or_else(|| letter.message.receipt_handle.clone()).unwrap_or_default();
        let queue = self.queue;
        let deleted = self.hold_during(queue.delete(&receipt_handle)).await;
        let is_hidden = self.held.get(letter.id()).is_some_and(|held| held.hidden_until > Instant::now());
        match deleted {
            Ok(()) => {
                self.held.remove(letter.id());
                self.lost.remove(letter.id());
                // A FIFO queue refuses the delete of a letter that is visible again.
                if !is_hidden && !queue.is_fifo() {
                    return Err(CallError::not_held());
                }
                self.deleted.insert(letter.id().to_owned());
                Ok(())
            }
            Err(error) => {
                if let Some(held) = self.held.get_mut(letter.id()) {
                    held.may_be_deleted = !error.is_refused;
                }
                Err(error)
            }
        }
    }

    /// Extends the visibility timeouts that end soon. A letter for which it fails is not returned: another consumer may
    /// receive it.
    async fn extend(&mut self) {
        if Instant::now() < self.extend_at {
            return;
        }
        let soon = Instant::now() + self.margin();
        let ending = self.held.iter().filter(|(_, held)| held.hidden_until <= soon);
        let mut ending: Vec<_> =
            ending.map(|(id, held)| (held.hidden_until, id.clone(), held.receipt_handle.clone())).collect();
        ending.sort_unstable();
        let queue = self.queue;
        let batches = ending.chunks(BATCH.into()).map(|batch| async move {
            let begun = Instant::now();
            let handles: Vec<_> = batch.iter().map(|(.., handle)| handle.as_str()).collect();
            let failures = queue.change_visibility(&handles, queue.visibility_timeout).await;
            let is_extended = |index: usize, hidden_until: Instant| {
                // One that was visible again may be another consumer's.
                begun < hidden_until && failures.as_ref().is_ok_and(|failures| !failures.contains(&index))
            };
            let outcomes = batch.iter().enumerate().map(|(index, (until, id, _))| {
                (id.clone(), is_extended(index, *until).then_some(begun + queue.visibility_timeout))
            });
            outcomes.collect::<Vec<_>>()
        });
        let batches: Vec<_> = batches.collect();
        let outcomes: Vec<_> = stream::iter(batches).buffer_unordered(CONCURRENT_CALLS).collect().await;
        let mut failed = HashSet::new();
        for (id, hidden_until) in outcomes.into_iter().flatten() {
            match (hidden_until, self.held.get_mut(&id)) {
                (Some(hidden_until), Some(held)) => held.hidden_until = hidden_until,
                _ => drop(failed.insert(id)),
            }
        }
        self.lose(&failed);
        let first = self.held.values().map(|held| held.hidden_until).min();
        self.extend_at = first.unwrap_or(Instant::now() + self.queue.visibility_timeout) - self.margin();
    }

    /// Does not return these letters, nor the later ones of their groups on a FIFO queue, unless they are received again.
    fn lose(&mut self, lost: &HashSet<String>) {
        for id in lost {
            if let Some(held) = self.held.remove(id) {
                self.lost.insert(id.clone(), held);
            }
        }
        let is_fifo = self.queue.is_fifo();
        let mut groups = HashSet::new();
        let mut kept = VecDeque::new();
        for letter in self.received.drain(..) {
            let group = letter.group().map(str::to_owned);
            if lost.contains(letter.id()) || (is_fifo && groups.contains(&group)) {
                self.seen.remove(letter.id());
                groups.insert(group);
            } else {
                kept.push_back(letter);
            }
        }
        self.received = kept;
    }

    /// Number of letters that were received.
    pub(crate) fn seen(&self) -> usize {
        self.seen.len()
    }

    /// Makes every letter visible again that was not deleted.
    pub(crate) async fn end(self, stop: Stop) -> ScanEnd {
        // Letters of a FIFO queue are visible, and cannot be received, while earlier ones of their group are in flight.
        let may_be_blocked = self.queue.is_fifo() && !self.held.is_empty();
        let counts = if may_be_blocked { self.queue.counts().await.ok() } else { None };
        // Those that `lose` dropped with an earlier one of their group, and that were not received again: that one may have
        // been, while they were hidden.
        let dropped = self.held.keys().filter(|id| !self.seen.contains(*id)).count() as u64;
        // Those that are visible again may be another consumer's.
        let now = Instant::now();
        let lost = self.lost.values().filter(|held| held.hidden_until > now);
        let held: Vec<_> = self.held.values().chain(lost).collect();
        let mut still_hidden = 0;
        for batch in held.chunks(BATCH.into()) {
            let handles: Vec<_> = batch.iter().map(|held| held.receipt_handle.as_str()).collect();
            let failures = self.queue.change_visibility(&handles, Duration::ZERO).await;
            let is_hidden = |index: usize| failures.as_ref().map_or(true, |failures| failures.contains(&index));
            let hidden = batch.iter().enumerate().filter(|(index, held)| is_hidden(*index) && !held.may_be_deleted);
            still_hidden += hidden.count();
        }
        ScanEnd {
            interrupted: self.interrupt.is_set(),
            stop,
            last_receive: self.last_receive,
            blocked: dropped + counts.map_or(0, |counts| counts.visible),
            in_flight_at_start: self.in_flight_at_start,
            lost: self.lost.len(),
            was_repeated: self.was_repeated,
            still_hidden,
            visibility_timeout: self.queue.visibility_timeout,
        }
    }
}
