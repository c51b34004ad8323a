//! Receives each letter of the queue once, and hides all of them until the end.

mod end;

use std::collections::{HashMap, HashSet, VecDeque};
use std::pin::pin;
use std::time::{Duration, SystemTime};

use tokio::time::sleep;

use super::error::CallError;
use super::hidden::{self, Extension, Held, HiddenUntil};
use super::interrupt::Interrupt;
use super::key::KeyFinder;
use super::letter::Letter;
use super::queue::{BATCH, Counts, DeadLetterQueue, Received};
use end::LastReceive;
pub(crate) use end::{ScanEnd, Stop};

/// Most letters that are held. SQS has a limit of 120,000 messages in flight, and extending their visibility timeouts
/// takes one call for ten letters:
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-queues.html>
const MAX_HELD: usize = 20_000;

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
    /// Those of them that were delivered again, and why the last delete failed.
    undeleted: HashMap<String, CallError>,
    /// When the first visibility timeout has to be extended.
    extend_at: HiddenUntil,
    last_receive: LastReceive,
    /// Whether a try of a receive had no reply, so that its letters may be hidden.
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

impl<'a> Scan<'a> {
    pub(crate) fn new(queue: &'a DeadLetterQueue, keys: &'a KeyFinder, interrupt: Interrupt, counts: Counts) -> Self {
        let (received, held, lost, seen, deleted, undeleted) = Default::default();
        let (extend_at, in_flight_at_start) = (HiddenUntil::after(queue.visibility_timeout), counts.in_flight);
        Self {
            queue,
            keys,
            interrupt,
            received,
            held,
            lost,
            seen,
            deleted,
            undeleted,
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
        let (mut repeats, mut interrupt) = (0, self.interrupt.clone());
        while !self.interrupt.is_set() {
            tokio::select! {
                () = self.extend() => {}
                () = interrupt.wait() => break,
            }
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

    /// Returns whether more messages may be visible.
    async fn receive(&mut self) -> Result<bool, CallError> {
        let (queue, mut interrupt) = (self.queue, self.interrupt.clone());
        let most = MAX_HELD.saturating_sub(self.held.len()).min(BATCH.into());
        let received = tokio::select! {
            received = self.hold_during(queue.receive(most)) => received,
            () = interrupt.last_call() => {
                self.was_repeated = true;
                return Ok(true);
            }
        };
        let Received { messages, was_repeated, hidden_until } = match received {
            Ok(received) => received,
            Err(error) => {
                self.was_repeated |= !error.is_refused;
                return Err(error);
            }
        };
        self.was_repeated |= was_repeated;
        self.progress.receives += 1;
        let is_empty = messages.is_empty();
        let mut deleted = Vec::new();
        for message in messages {
            let (Some(id), Some(receipt_handle)) = (message.message_id.clone(), message.receipt_handle.clone()) else {
                continue;
            };
            self.lost.remove(&id);
            self.held.insert(id.clone(), Held { receipt_handle, hidden_until, may_be_deleted: false });
            if self.deleted.contains(&id) {
                deleted.push(id.clone());
            }
            if self.seen.insert(id) {
                let letter = Letter::new(message, self.keys, self.progress.receives);
                self.progress.shown = self.progress.shown.max(letter.sent()).max(letter.first_received());
                self.received.push_back(letter);
            }
        }
        self.extend_later();
        self.delete_again(deleted).await;
        Ok(!is_empty)
    }

    /// Whether a letter that was returned is still hidden, for another half of the [`margin`](Self::margin) at least.
    pub(crate) async fn still_holds(&mut self, letter: &Letter) -> bool {
        self.extend().await;
        self.holds(letter.id())
    }

    /// Whether this letter is hidden for long enough. An extension of others may have taken long.
    fn holds(&self, id: &str) -> bool {
        self.held.get(id).is_some_and(|held| held.hidden_until.left() > self.margin() / 2)
    }

    /// Waits for a call, and extends visibility timeouts meanwhile: it may take longer than they last. An extension that
    /// goes on when it ends is made again before they are needed.
    pub(crate) async fn hold_during<T>(&mut self, call: impl Future<Output = T>) -> T {
        let mut call = pin!(call);
        loop {
            let extension = async {
                sleep(self.extend_at.left()).await;
                self.extend().await;
            };
            tokio::select! {
                biased;
                outcome = &mut call => return outcome,
                () = extension => {}
            }
        }
    }

    /// Deletes a letter that was returned.
    pub(crate) async fn delete(&mut self, letter: &Letter) -> Result<(), CallError> {
        let id = letter.id();
        let held = self.held.get(id).map(|held| held.receipt_handle.clone());
        let receipt_handle = held.or_else(|| letter.message.receipt_handle.clone()).unwrap_or_default();
        self.delete_receipt(id, &receipt_handle).await?;
        let held = [self.held.remove(id), self.lost.remove(id)];
        let was_hidden = held.iter().flatten().any(Held::is_hidden);
        // A FIFO queue refuses the delete of a letter that is visible again.
        if !was_hidden && !self.queue.is_fifo() && !self.deleted.contains(id) {
            return Err(CallError::not_held());
        }
        self.deleted.insert(id.to_owned());
        Ok(())
    }

    /// Deletes the letter with this id and receipt handle. If that fails, it stays held.
    async fn delete_receipt(&mut self, id: &str, receipt_handle: &str) -> Result<(), CallError> {
        let may_be_deleted = |scan: &mut Self, is: bool| {
            if let Some(held) = scan.held.get_mut(id) {
                held.may_be_deleted = is;
            }
        };
        may_be_deleted(self, true);
        let queue = self.queue;
        let deleted = self.hold_during(queue.delete(receipt_handle)).await;
        if let Err(error) = &deleted {
            may_be_deleted(self, !error.is_refused);
        }
        deleted
    }

    /// Deletes letters again that a standard queue has delivered after their deletes, until an interrupt.
    async fn delete_again(&mut self, ids: Vec<String>) {
        let mut interrupt = self.interrupt.clone();
        for id in ids {
            let receipt_handle = self.held.get(&id).map(|held| held.receipt_handle.clone()).unwrap_or_default();
            let deleted = if interrupt.is_set() {
                Err(CallError::interrupted())
            } else {
                tokio::select! {
                    deleted = self.delete_receipt(&id, &receipt_handle) => deleted,
                    () = interrupt.last_call() => Err(CallError::not_awaited()),
                }
            };
            match deleted {
                Ok(()) => {
                    self.held.remove(&id);
                    self.undeleted.remove(&id);
                }
                Err(error) => drop(self.undeleted.insert(id, error)),
            }
        }
    }

    /// Extends the visibility timeouts that end soon. A letter for which it fails is not returned: another consumer may
    /// receive it.
    async fn extend(&mut self) {
        if !self.extend_at.left().is_zero() {
            return;
        }
        let ending = self.held.iter().filter(|(_, held)| held.hidden_until.left() <= self.margin());
        let ending = ending.map(|(id, held)| (id.clone(), held.clone())).collect();
        let mut failed = HashSet::new();
        for (id, extension) in hidden::extend(self.queue, ending).await {
            match (extension, self.held.get_mut(&id)) {
                (Extension::Until(hidden_until), Some(held)) => held.hidden_until = hidden_until,
                // A try of its delete has taken effect.
                (Extension::Refused, Some(held)) if held.may_be_deleted => {
                    self.held.remove(&id);
                    self.deleted.insert(id);
                }
                _ => drop(failed.insert(id)),
            }
        }
        self.lose(&failed);
        self.extend_later();
    }

    /// Sets when the first visibility timeout has to be extended.
    fn extend_later(&mut self) {
        let first = self.held.values().map(|held| held.hidden_until.left()).min();
        let left = first.unwrap_or(self.queue.visibility_timeout);
        self.extend_at = HiddenUntil::after(left.saturating_sub(self.margin()));
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
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use idempotent_sqs::config::Environment;

    use super::super::queue::tests::without_credentials;
    use super::*;

    #[tokio::test]
    async fn a_scan_that_holds_as_many_letters_as_it_can_receives_no_more() {
        let (queue, keys) = (without_credentials(), KeyFinder::read(&mut Environment::new(|_| None)));
        let mut scan = Scan::new(&queue, &keys, Interrupt::at(pending()), Counts { visible: 60_000, in_flight: 0 });
        let hidden_until = HiddenUntil::after(queue.visibility_timeout);
        let held = Held { receipt_handle: String::new(), hidden_until, may_be_deleted: false };
        scan.held = (0..MAX_HELD).map(|n| (n.to_string(), held.clone())).collect();
        assert!(matches!(scan.next().await, Ok(None)));
        assert_eq!(scan.last_receive, LastReceive::Full);
    }
}
