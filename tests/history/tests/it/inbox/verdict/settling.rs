//! What the deliveries told the store.

use history::inbox::Class;
use idempotent_sqs::idempotency::Failure;

use super::Seen;
use super::expected::Expected;
use crate::inbox::owner::{KEPT_BYTES, MAX_ATTEMPTS};
use crate::inbox::tally::{Run, Sent, Told};
use crate::inbox::watched::{Acquired, Answer, Called};

impl Seen {
    pub(super) fn wrong_settling(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for (number, sent) in self.sent.iter().enumerate() {
            let run = self.runs_of(number).next().map(|(_, run)| run);
            if let Some(told) = sent.told()
                && !self.is_settled(sent, told, run)
            {
                faults.push(format!("it is settled otherwise than it is told: delivery {number}, {sent:?}, {run:?}"));
            }
        }
        faults
    }

    /// Whether the calls after the acquire settle a delivery that is told this.
    fn is_settled(&self, sent: &Sent, told: &Told, run: Option<&Run>) -> bool {
        let calls = sent.calls.get(1..).unwrap_or_default();
        let answer = calls.last().and_then(|call| match call {
            Called::Complete { answer, .. } | Called::Fail { answer, .. } | Called::Release { answer, .. } => *answer,
            Called::Acquire { .. } => None,
        });
        let is_released = |known: bool| {
            calls.iter().all(|call| matches!(call, Called::Release { has_claim, .. } if *has_claim == known))
        };
        let is_kept = |result: &[u8], stored: &Option<Vec<u8>>| {
            stored.as_deref() == (result.len() <= KEPT_BYTES).then_some(result)
        };
        let is_completed =
            |result: &[u8]| matches!(calls, [Called::Complete { result: stored, .. }] if is_kept(result, stored));
        // A call that failed is repeated, unless the claim was made without the store.
        let without_store = matches!(sent.acquired(), Some(Acquired::Unavailable));
        let is_failed = |call: &Called| matches!(call, Called::Fail { answer: None | Some(Answer::Error), .. });
        let is_repeated = match calls {
            [] | [_] => true,
            [earlier @ .., _] => !without_store && earlier.iter().all(is_failed),
        };
        let fails = |expected: Failure| {
            let is_expected = |call: &Called| matches!(call, Called::Fail { failure, .. } if *failure == expected);
            !calls.is_empty() && calls.iter().all(is_expected) && is_repeated
        };
        match (sent.acquired(), told) {
            // The acquire was executed, or not.
            (None, _) => is_released(false),
            (Some(Acquired::Unavailable), Told::NoStore { .. }) if sent.claimed().is_none() => is_released(false),
            // The row shows that the work is done.
            (Some(Acquired::Failed | Acquired::Mismatch), Told::Duplicate { result: Some(result) }) => {
                is_completed(result)
            }
            (Some(_), _) if sent.claimed().is_none() => calls.is_empty(),
            (Some(_), Told::Done { result, by_own_record }) => {
                is_completed(result) && *by_own_record == (answer != Some(Answer::Recorded))
            }
            (Some(_), Told::Duplicate { result: Some(result) }) => is_completed(result),
            (Some(_), Told::Mismatch)
                if !without_store && sent.claimed().is_some_and(|claimed| claimed.is_recovery) =>
            {
                fails(Failure { uncertain: false, permanent: false })
            }
            (
                Some(_),
                Told::Conflict { .. } | Told::Unavailable(_) | Told::NoStore { .. } | Told::NotStarted | Told::Mismatch,
            ) => !calls.is_empty() && is_released(true),
            // A failure without a doubt of its own is released, as its number is not known.
            (Some(_), Told::Failed { error, .. } | Told::FailedPermanently { error, .. })
                if without_store && error.class != Class::Uncertain =>
            {
                calls.len() == 1 && is_released(true) && answer == Some(Answer::Recorded)
            }
            (Some(_), Told::Failed { uncertain, .. }) => {
                fails(Failure { uncertain: *uncertain, permanent: false }) && answer == Some(Answer::Recorded)
            }
            (Some(_), Told::FailedPermanently { uncertain, .. }) => {
                fails(Failure { uncertain: *uncertain, permanent: true }) && answer == Some(Answer::Recorded)
            }
            (Some(_), Told::Lost { .. } | Told::Unsettled)
                if without_store && calls.len() == 1 && is_released(true) =>
            {
                let failures = run.map(|run| self.expected(sent, run)).unwrap_or_default();
                let is_certain = |expected: &Expected| !matches!(expected, Expected::Failed(Class::Uncertain, _));
                failures.iter().any(is_certain) || run.is_none() || self.is_disturbed(sent)
            }
            (Some(_), Told::Lost { .. } | Told::Unsettled) => {
                let Some(Called::Fail { failure, answer }) = calls.last() else { return false };
                let is_answer = match told {
                    Told::Lost { .. } => *answer == Some(Answer::Lost),
                    _ => [None, Some(Answer::Error)].contains(answer),
                };
                let failures = run.map(|run| self.expected(sent, run)).unwrap_or_default();
                let is_expected = failures.iter().any(|expected| match expected {
                    // It has found a row without a result.
                    Expected::DoneByAnother => {
                        self.is_unfinished(sent) && *failure == Failure { uncertain: true, permanent: false }
                    }
                    expected => is_failure(*expected, *failure, sent),
                });
                is_answer && fails(*failure) && (is_expected || run.is_none() || self.is_disturbed(sent))
            }
            (Some(_), _) => false,
        }
    }
}

/// Whether this is recorded in the store after a work that fails as expected.
fn is_failure(expected: Expected, failure: Failure, sent: &Sent) -> bool {
    let (Expected::Failed(class, _), Some(claimed)) = (expected, sent.claimed()) else { return false };
    let is_last = claimed.attempt >= MAX_ATTEMPTS && class != Class::Uncertain;
    let uncertain = class == Class::Uncertain || claimed.is_recovery;
    failure == Failure { uncertain, permanent: class == Class::Permanent || is_last }
}
