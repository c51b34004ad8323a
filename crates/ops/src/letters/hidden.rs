//! How long letters are hidden from other consumers.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use futures_util::{StreamExt, stream};
use tokio::time::{Instant, timeout, timeout_at};

use super::queue::{BATCH, DeadLetterQueue, Unchanged};

/// Extensions that run concurrently. A call takes some tens of milliseconds, and as many letters as may be held need
/// thousands.
const CONCURRENT_CALLS: usize = 10;

/// Longest time at the end in which no letter becomes visible again. As many letters as may be held need thousands of
/// calls, and a call without a reply alone is tried for 45 seconds. With the time to count the others, a command ends
/// within 30 seconds if SQS does not respond.
const LAST_CALLS: Duration = Duration::from_secs(27);

/// When a visibility timeout ends, by two clocks: the steady one does not count a time for which the machine is suspended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HiddenUntil {
    steady: Instant,
    wall: SystemTime,
}

impl HiddenUntil {
    /// So much later than now.
    pub(crate) fn after(time: Duration) -> Self {
        Self { steady: Instant::now() + time, wall: SystemTime::now() + time }
    }

    /// What remains, by the clock that has advanced more.
    pub(crate) fn left(self) -> Duration {
        let by_wall = self.wall.duration_since(SystemTime::now()).unwrap_or_default();
        by_wall.min(self.steady.saturating_duration_since(Instant::now()))
    }
}

/// A letter in flight.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) receipt_handle: String,
    pub(crate) hidden_until: HiddenUntil,
    /// A delete has no reply, or has none yet.
    pub(crate) may_be_deleted: bool,
}

impl Held {
    /// Whether its visibility timeout has not ended.
    pub(crate) fn is_hidden(&self) -> bool {
        !self.hidden_until.left().is_zero()
    }
}

/// The outcome of an extension.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Extension {
    /// The letter is hidden until then.
    Until(HiddenUntil),
    /// SQS refused it for this letter, although its visibility timeout had not ended.
    Refused,
    Failed,
}

/// Hides letters for another visibility timeout. Returns the outcome for each, by its id.
pub(crate) async fn extend(queue: &DeadLetterQueue, mut letters: Vec<(String, Held)>) -> Vec<(String, Extension)> {
    letters.sort_by_key(|(_, held)| held.hidden_until.left());
    let batches = letters.chunks(BATCH.into()).map(|batch| async move {
        let hidden_until = HiddenUntil::after(queue.visibility_timeout);
        let handles: Vec<_> = batch.iter().map(|(_, held)| held.receipt_handle.as_str()).collect();
        let left = batch.first().map(|(_, held)| held.hidden_until.left()).unwrap_or_default();
        let changed = timeout(left, queue.change_visibility(&handles, queue.visibility_timeout)).await;
        let extension = |index: usize, held: &Held| match &changed {
            // One that was visible again may be another consumer's.
            Ok(Ok(unchanged)) if held.is_hidden() => match find(unchanged, index) {
                None => Extension::Until(hidden_until),
                Some(Unchanged { is_refused: true, .. }) => Extension::Refused,
                Some(Unchanged { is_refused: false, .. }) => Extension::Failed,
            },
            Ok(Ok(_) | Err(_)) | Err(_) => Extension::Failed,
        };
        let outcomes = batch.iter().enumerate();
        outcomes.map(|(index, (id, held))| (id.clone(), extension(index, held))).collect::<Vec<_>>()
    });
    let batches: Vec<_> = batches.collect();
    stream::iter(batches).buffer_unordered(CONCURRENT_CALLS).collect::<Vec<_>>().await.concat()
}

/// The message with this index, if its visibility timeout was not changed.
fn find(unchanged: &[Unchanged], index: usize) -> Option<&Unchanged> {
    unchanged.iter().find(|message| message.index == index)
}

/// Makes letters visible again. Returns the number of those that are still hidden.
pub(crate) async fn make_visible(queue: &DeadLetterQueue, letters: &[&Held]) -> usize {
    let batches = letters.chunks(BATCH.into()).map(|batch| async move {
        // By the turn of the batch, some may be visible again, and another consumer's.
        let hidden = batch.iter().filter(|held| held.is_hidden());
        let handles: Vec<_> = hidden.map(|held| held.receipt_handle.as_str()).collect();
        if handles.is_empty() {
            return handles;
        }
        let changed = queue.change_visibility(&handles, Duration::ZERO).await;
        let is_visible = |index: usize| changed.as_ref().is_ok_and(|unchanged| find(unchanged, index).is_none());
        let visible = handles.into_iter().enumerate().filter(|(index, _)| is_visible(*index));
        visible.map(|(_, handle)| handle).collect::<Vec<_>>()
    });
    let visible = made_visible(batches.collect()).await;
    let is_hidden = |held: &Held| {
        let is_changed = visible.contains(held.receipt_handle.as_str()) || held.may_be_deleted;
        !is_changed && held.is_hidden()
    };
    letters.iter().filter(|held| is_hidden(held)).count()
}

/// The letters that these calls make visible. Those of the calls that are not awaited are visible after their timeouts.
async fn made_visible<'a>(calls: Vec<impl Future<Output = Vec<&'a str>>>) -> HashSet<&'a str> {
    let mut visible = HashSet::new();
    let (mut calls, mut progress) = (stream::iter(calls).buffer_unordered(CONCURRENT_CALLS), Instant::now());
    while let Ok(Some(handles)) = timeout_at(progress + LAST_CALLS, calls.next()).await {
        if !handles.is_empty() {
            progress = Instant::now();
        }
        visible.extend(handles);
    }
    visible
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::time::sleep;

    use super::*;

    #[test]
    fn the_clock_that_has_advanced_more_decides() {
        let (minute, second) = (Duration::from_mins(1), Duration::from_secs(1));
        let both = HiddenUntil::after(minute);
        assert!(both.left() + second > minute && both.left() <= minute);
        let suspended = HiddenUntil { wall: SystemTime::now() - second, ..both };
        assert_eq!(suspended.left(), Duration::ZERO);
        let set_back = HiddenUntil { wall: both.wall + minute, ..both };
        assert!(set_back.left() <= minute);
    }

    #[tokio::test(start_paused = true)]
    async fn all_letters_are_made_visible_however_many_calls_they_need() {
        let handles: Vec<_> = (0..2_000).map(|n| n.to_string()).collect();
        let calls = handles.iter().map(|handle| async move {
            sleep(Duration::from_millis(150)).await;
            vec![handle.as_str()]
        });
        assert_eq!(made_visible(calls.collect()).await.len(), 2_000);
    }

    /// One call has a reply, and those after it have none, or make no letter visible.
    #[tokio::test(start_paused = true)]
    async fn calls_that_make_no_letter_visible_are_awaited_for_27_seconds_after_the_last_one_that_did() {
        for is_refused in [false, true] {
            let began = Instant::now();
            let calls = (0..2_000).map(|n| async move {
                sleep(Duration::from_secs(10)).await;
                match n {
                    0 => vec!["0"],
                    _ if is_refused => Vec::new(),
                    _ => pending().await,
                }
            });
            assert_eq!(made_visible(calls.collect()).await, HashSet::from(["0"]));
            assert_eq!(began.elapsed().as_secs(), 37);
        }
    }
}
