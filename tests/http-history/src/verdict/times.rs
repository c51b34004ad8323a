//! How long requests wait: for a running one, for the store, and for clients that have left.

use std::time::Duration;

use crate::answer::Answer;
use crate::clients::{Answered, Sent};
use crate::runs::Run;
use crate::service::{GRACE, TIMEOUT};
use crate::store::{Asked, Told};
use crate::verdict::Seen;

/// How much longer than it says a service waits at most, if the machine is not busy.
const LATE: Duration = Duration::from_millis(15);

/// With fewer requests, the machine may have been busy with all that waited.
const FEWEST: usize = 4;

impl Seen {
    /// What is wrong with the times of the request with this number.
    pub(crate) fn wrong_times(&self, number: usize, sent: &Sent, own: Option<&Run>) -> Option<&'static str> {
        if own.is_some_and(|run| self.has_outlived_client(run, sent)) {
            return Some("it went on after its client had left");
        }
        let conflicts = self.asked_for(number).filter(|asked| matches!(asked.told, Told::Conflict { .. })).count();
        if conflicts as u128 > 4 + sent.kind.wait.as_millis() / 10 {
            return Some("it asked the store without a pause");
        }
        self.is_impatient(number, sent).then_some("it did not wait for the store")
    }

    /// Whether a request was told that the store is out of reach earlier than its service says, without an error of the
    /// store: the documentation of `store_timeout` and `wait`.
    fn is_impatient(&self, number: usize, sent: &Sent) -> bool {
        let Some(Answered { answer: Answer::Problem { kind, .. }, after, .. }) = &sent.answered else { return false };
        // The acquire may also have been cut off at the end of the time for a run.
        let patience = (sent.kind.store_timeout + sent.kind.wait).min(TIMEOUT / 2);
        let has_failed = |asked: &Asked| matches!(asked.told, Told::Unavailable | Told::OtherValue);
        kind == "store-unavailable"
            && sent.kind.spawns
            && sent.deadline.is_none()
            && *after < patience
            && !self.asked_for(number).any(has_failed)
    }

    /// How much longer than their services say all requests waited for a running one.
    pub(crate) fn wrong_waits(&self) -> Option<String> {
        let mut late = Vec::new();
        for (number, sent) in self.sent.iter().enumerate() {
            let is_in_flight = matches!(sent.answer(), Some(Answer::Problem { kind, .. }) if kind == "in-flight");
            if is_in_flight && sent.deadline.is_none() && !sent.kind.wait.is_zero() {
                let asked: Vec<_> = self.asked_for(number).collect();
                let waited = asked.last().zip(asked.first()).map(|(last, first)| last.from - first.from);
                late.extend(waited.map(|waited| waited.saturating_sub(sent.kind.wait)));
            }
        }
        let is_wrong = late.len() >= FEWEST && late.iter().all(|late| *late > LATE);
        is_wrong.then(|| format!("all requests waited longer than their services say, by {late:?}"))
    }

    /// Whether a run without a task of its own went on without its client: the documentation of `spawn`.
    fn has_outlived_client(&self, run: &Run, sent: &Sent) -> bool {
        let times = sent.left_at.zip(run.over_at);
        !sent.kind.spawns && times.is_some_and(|(left_at, over_at)| over_at > left_at + GRACE + self.late)
    }
}
