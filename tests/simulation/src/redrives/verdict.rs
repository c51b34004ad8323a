//! What is wrong with a command: docs/letters.md.
//!
//! - `calls`: what it sent and deleted
//! - `output`: what it says

mod calls;
mod output;

use super::command::{End, Run};
use super::queues::{Arrival, Letter, Queues};
use calls::Calls;

/// Times that are nearer to each other may be in either order, ms.
const NEAR_MS: i64 = 100;

/// What is wrong with the run.
pub fn faults(run: &Run, queues: &Queues) -> Vec<String> {
    let calls = Calls::of(run);
    let mut wrong = calls::faults(run, queues, &calls);
    match &run.end {
        End::Output(output) => wrong.extend(output::faults(run, queues, &calls, output)),
        End::Failed(error) if run.events.are_harmless() => wrong.push(format!("it failed: {error}")),
        End::Failed(error) => {
            let says_hidden = ["may be hidden", "visible again"].iter().any(|text| error.contains(text));
            if run.in_flight > 0 && !run.events.other_consumer && !says_hidden {
                wrong.push(format!("{} letters are hidden, and it says: {error}", run.in_flight));
            }
        }
        End::Killed => {}
        End::Hung => wrong.push("it did not end".to_owned()),
    }
    wrong
}

impl Run {
    /// Whether this letter matches the filters. `None` if its age is near to a limit.
    fn matches(&self, letter: &Letter, queues: &Queues) -> Option<bool> {
        let filter = &self.command.filter;
        let age_ms = (queues.ms(self.began) - letter.sent_ms).max(0);
        let mut is_near = false;
        let mut compare = |limit_s: Option<i64>, is_older: bool| {
            let Some(limit_ms) = limit_s.map(|limit| limit * 1000) else { return true };
            // A call before the start may have been slow.
            is_near |= self.events.rates.faults > 0 || (age_ms - limit_ms).abs() < NEAR_MS;
            if is_older { age_ms > limit_ms } else { age_ms < limit_ms }
        };
        let has_age = [compare(filter.older_than_s, true), compare(filter.newer_than_s, false)];
        let is = (filter.outcomes.is_empty() || filter.outcomes.contains(&letter.outcome))
            && filter.key.as_ref().is_none_or(|key| letter.shown_key(queues.keys).as_ref() == Some(key))
            && filter.reason.is_none_or(|text| letter.reason.contains(text))
            && (filter.ids.is_empty() || filter.ids.iter().any(|id| letter.has_id(id)));
        if !is {
            return Some(false);
        }
        (!is_near).then(|| has_age == [true; 2])
    }

    /// Whether this letter came after the start. `None` if that is not clear.
    fn is_later(&self, letter: &Letter, queues: &Queues) -> Option<bool> {
        if letter.arrival == Arrival::Again {
            return Some(true);
        }
        // The first receive comes after the start.
        let receive = self.calls.iter().find(|call| call.action == "ReceiveMessage");
        let latest = receive.map_or(self.began, |call| call.began);
        if letter.sent_ms > queues.ms(latest) {
            return (letter.sent_ms - queues.ms(latest) >= NEAR_MS).then_some(true);
        }
        (queues.ms(self.began) - letter.sent_ms >= NEAR_MS).then_some(false)
    }

    fn letter(&self, id: &str) -> Option<&Letter> {
        self.letters.iter().find(|letter| letter.id == id)
    }
}

impl Letter {
    fn has_id(&self, id: &str) -> bool {
        self.id == id || self.shown_original_id() == Some(id)
    }
}
