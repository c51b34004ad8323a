//! What the deliveries returned.

use history::inbox::{Class, SECRET};

use super::expected::{Expected, may_wait};
use super::{SLACK_US, Seen, lock_us};
use crate::inbox::kind::{BRIEF, UNREPRESENTABLE};
use crate::inbox::messages::{OF_THE_KEY, UNFINISHED};
use crate::inbox::owner::{MAX_ATTEMPTS, fingerprint};
use crate::inbox::plan::{Before, Case, Held};
use crate::inbox::servers::ODD;
use crate::inbox::tables::Change;
use crate::inbox::tally::{Error, Returned, Run, Sent, Span, Told};
use crate::inbox::watched::Acquired;

impl Seen {
    pub(super) fn wrong_outcomes(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for (number, sent) in self.sent.iter().enumerate() {
            let runs: Vec<_> = self.runs_of(number).collect();
            let mut wrong = Vec::new();
            match &*runs {
                [] => wrong.extend(self.wrong_without_run(sent)),
                [(at, run)] => wrong.extend(self.wrong_after_run(sent, *at, run)),
                _ => wrong.push("it ran more than once".to_owned()),
            }
            wrong.extend(wrong_claim(sent, runs.first().map(|(_, run)| *run), self.ahead_us));
            wrong.extend(quotes_value(sent));
            faults.extend(wrong.into_iter().map(|why| format!("{why}: delivery {number}, {sent:?}, {runs:?}")));
        }
        faults
    }

    fn wrong_after_run(&self, sent: &Sent, at: usize, run: &Run) -> Vec<String> {
        let mut wrong = Vec::new();
        if sent.claimed().is_none() {
            wrong.push("its work ran without a claim".to_owned());
        }
        let is_disturbed = self.is_disturbed(sent);
        if !is_disturbed
            && let Some(Err(failed)) = &run.returned
            && !self.is_planned_failure(sent, run, failed)
        {
            wrong.push("its work failed without a reason".to_owned());
        }
        if !is_disturbed && matches!(run.returned, Some(Ok(_))) && self.has_to_fail(sent, run) {
            wrong.push("its work succeeded, and should not".to_owned());
        }
        let is_cut_short = sent.plan.case.is_cut_short() || sent.plan.case == Case::Panic;
        if !is_disturbed && run.returned.is_none() && !is_cut_short && run.ended_us + SLACK_US < run.ends_us {
            wrong.push("its work was cancelled before its deadline".to_owned());
        }
        let Some(told) = sent.told() else { return wrong };
        // Whatever happens: what is committed is told, and nothing else.
        let is_committed = self.is_committed(at);
        let may_be_unknown = is_disturbed
            || matches!(sent.plan.case, Case::LostReply { is_unreachable: true } | Case::SilentAtCommit)
            || may_wait(sent)
            || self.is_contended(sent);
        let is_uncertain = matches!(
            told,
            Told::Failed { uncertain: true, error: Error { class: Class::Uncertain, .. } }
                | Told::Lost { .. }
                | Told::Unsettled
        );
        let tells = match told {
            Told::Done { .. } => is_committed,
            _ if run.has_ended => true,
            _ if is_uncertain => !is_committed || may_be_unknown,
            _ => !is_committed,
        };
        // With so short a retention, its row may have expired before it was looked up.
        let is_own = |row: &&&Change| i64::try_from(run.fence) == Ok(row.row.fence);
        let has_expired = || {
            let rows = self.done_rows(&sent.message);
            rows.iter().find(is_own).is_some_and(|row| Self::has_expired(row, sent.ended_us))
        };
        if !tells && has_expired() {
            return wrong;
        }
        if !tells {
            wrong.push(format!("its effect is {}committed", if is_committed { "" } else { "not " }));
        }
        if is_disturbed {
            return wrong;
        }
        let mut expected = self.expected(sent, run);
        // The time for the work may be over while it fails.
        if sent.ended_us + 2 * SLACK_US >= sent.work_us {
            expected.push(Expected::Failed(Class::Uncertain, ""));
        }
        if !expected.iter().any(|expected| self.is_told(*expected, sent, run, told)) {
            wrong.push(format!("after its run it should be told {expected:?}"));
        }
        wrong
    }

    fn is_told(&self, expected: Expected, sent: &Sent, run: &Run, told: &Told) -> bool {
        let is = |error: &Error, class: Class, why: &str| error.class == class && error.text.contains(why);
        match (expected, told) {
            (Expected::Done, Told::Done { result, .. }) => {
                run.returned.as_ref().is_some_and(|ok| ok.as_ref() == Ok(result))
            }
            (Expected::DoneByAnother, _) => self.wrong_without_run(sent).is_none(),
            (Expected::Failed(class @ (Class::Unavailable | Class::Busy), why), Told::Unavailable(error)) => {
                is(error, class, why)
            }
            (Expected::Failed(Class::Unavailable | Class::Busy, _) | Expected::Done, _) => false,
            // The failure may not be recorded in the store: `settling`.
            (Expected::Failed(..), Told::Lost { done: false } | Told::Unsettled) => true,
            (Expected::Failed(class, why), Told::Failed { error, uncertain }) => {
                class != Class::Permanent
                    && is(error, class, why)
                    && *uncertain == (class == Class::Uncertain || run.is_recovery)
                    && (class == Class::Uncertain || run.attempt < MAX_ATTEMPTS)
            }
            (Expected::Failed(class, why), Told::FailedPermanently { error, uncertain }) => {
                is(error, class, why)
                    && *uncertain == run.is_recovery
                    && (class == Class::Permanent || class == Class::Retryable && run.attempt >= MAX_ATTEMPTS)
            }
            (Expected::Failed(..), _) => false,
        }
    }

    /// What is wrong with a delivery whose work did not run, or after which another owner did the work.
    pub(super) fn wrong_without_run(&self, sent: &Sent) -> Option<String> {
        let told = sent.told()?;
        let is_right = match (sent.acquired(), told) {
            (Some(Acquired::NotARecord), told) => *told == Told::NotARecord,
            (Some(Acquired::Duplicate { result, .. }), Told::Duplicate { result: told }) => {
                // A result that the store did not keep is read from the row.
                told == result || result.is_none() && self.is_result(sent, told.as_deref())
            }
            (None, Told::NoStore { .. }) | (Some(Acquired::Conflict), Told::Conflict { .. }) => true,
            (Some(Acquired::Mismatch), told) => self.is_right_after_refusal(sent, &Told::Mismatch, told),
            (Some(Acquired::Failed), told) => self.is_right_after_refusal(sent, &Told::FailedBefore, told),
            (Some(Acquired::Unavailable), Told::NoStore { .. }) if sent.claimed().is_none() => true,
            (Some(_), told) if sent.claimed().is_some() => self.is_right_by_row(sent, told),
            (None | Some(_), _) => false,
        };
        (!is_right).then(|| "it is told otherwise than the store and the rows say".to_owned())
    }

    /// The store says that the work cannot succeed: it has failed permanently, or another payload has its key. The row
    /// may say otherwise.
    fn is_right_after_refusal(&self, sent: &Sent, refusal: &Told, told: &Told) -> bool {
        match told {
            // The row was read.
            told if told == refusal => !Self::is_cut_off(sent) && (!self.is_surely_done(sent) || self.is_hidden(sent)),
            Told::Duplicate { result } => self.is_result(sent, result.as_deref()),
            Told::FailedPermanently { error, uncertain: true } if *refusal == Told::FailedBefore => {
                error.class == Class::Uncertain && error.text.contains(UNFINISHED) && self.is_unfinished(sent)
            }
            Told::Unavailable(error) if *refusal == Told::Mismatch && error.class == Class::Uncertain => {
                error.text.contains(UNFINISHED) && self.is_unfinished(sent)
            }
            Told::Unavailable(error) if error.class == Class::Busy => {
                self.is_right_if_busy(sent, &error.text)
                    || error.text.contains("55P03") && self.is_contended(sent) && has_waited(sent)
            }
            Told::Unavailable(error) => {
                error.class == Class::Unavailable
                    && (Self::is_cut_off(sent)
                        || self.is_disturbed(sent)
                        || self.is_contended(sent)
                        // It has waited for a connection until the end.
                        || sent.kind.tasks > 1 && sent.ended_us + SLACK_US >= sent.work_us)
            }
            _ => false,
        }
    }

    /// The store gave a claim, and the work did not run.
    fn is_right_by_row(&self, sent: &Sent, told: &Told) -> bool {
        let is_disturbed = self.is_disturbed(sent);
        match told {
            Told::Duplicate { result } => self.is_result(sent, result.as_deref()),
            Told::Mismatch => self.is_of_other_payload(sent),
            Told::Failed { error, uncertain: true } if error.text.contains(UNFINISHED) => self.is_unfinished(sent),
            Told::FailedPermanently { error, .. } => {
                error.class == Class::Permanent
                    && error.text.contains(OF_THE_KEY)
                    && sent.message.is_unrepresentable()
                    && !self.has_all_characters
            }
            Told::Conflict { remains } => self.is_contended(sent) && is_lease(sent, *remains) && has_waited(sent),
            Told::NotStarted => sent.ended_us + SLACK_US >= sent.work_us,
            Told::Unavailable(error) if error.class == Class::Busy => {
                self.is_right_if_busy(sent, &error.text)
                    || sent.message.namespace == BRIEF && error.text.contains("was just deleted")
            }
            Told::NoStore { reason } => {
                is_disturbed
                    // There was a connection, but no time left.
                    || reason.contains("did not reply within the timeout") && sent.ended_us + 2 * SLACK_US >= sent.work_us
                    || Self::is_cut_off(sent)
                    || sent.message.namespace == UNREPRESENTABLE && reason.contains("IDEMPOTENCY_NAMESPACE")
            }
            // The failure of an unfinished row may not be recorded in the store.
            Told::Lost { done: false } | Told::Unsettled => {
                let is_late = sent.ended_us + SLACK_US >= sent.work_us;
                self.is_unfinished(sent) || sent.message.is_unrepresentable() || is_late
            }
            // The time was over while it looked up the row.
            Told::Failed { error, uncertain: true } => {
                error.class == Class::Uncertain && sent.ended_us + SLACK_US >= sent.work_us
            }
            _ => is_disturbed,
        }
    }

    /// Whether a row of the same payload has this result, or had it.
    fn is_result(&self, sent: &Sent, result: Option<&[u8]>) -> bool {
        let fingerprint = fingerprint(sent.message.payload);
        let rows = self.done_rows(&sent.message);
        rows.iter().any(|row| {
            row.row.fingerprint == fingerprint.as_bytes()
                && row.row.result.is_some()
                && row.row.result.as_deref() == result
                && row.committed_us <= sent.ended_us + SLACK_US
                && !Self::has_expired(row, sent.begun_us)
        })
    }

    fn is_of_other_payload(&self, sent: &Sent) -> bool {
        let fingerprint = fingerprint(sent.message.payload);
        let is_other = |row: &&Change| {
            row.row.fingerprint != fingerprint.as_bytes()
                && row.committed_us <= sent.ended_us + SLACK_US
                && !Self::has_expired(row, sent.begun_us)
        };
        sent.message.key == ODD || self.done_rows(&sent.message).iter().any(is_other)
    }

    /// Whether a work of the same payload has committed by itself.
    pub(super) fn is_unfinished(&self, sent: &Sent) -> bool {
        let fingerprint = fingerprint(sent.message.payload);
        self.done_rows(&sent.message).iter().any(|row| {
            row.row.fingerprint == fingerprint.as_bytes()
                && row.row.result.is_none()
                && row.committed_us <= sent.ended_us + SLACK_US
        })
    }

    /// Whether another transaction may have held the row of the key. That of a process that does not reply is ended
    /// after its deadline.
    pub(super) fn is_contended(&self, sent: &Sent) -> bool {
        let others =
            self.sent.iter().filter(|other| other.message.has_key_of(&sent.message) && other.begun_us != sent.begun_us);
        let mut others = others.filter(|other| other.claimed().is_some()).map(|other| {
            let until_us = other.ended_us.min(u64::MAX - SLACK_US).max(other.work_us) + 2 * lock_us(other.kind);
            Span { from_us: other.begun_us, until_us }
        });
        others.any(|other| other.overlaps(sent.span())) || self.is_held(sent)
    }

    fn is_held(&self, sent: &Sent) -> bool {
        self.held.iter().any(|(message, span)| message.has_key_of(&sent.message) && span.overlaps(sent.span()))
    }

    /// Whether its wait for a row may have been cancelled.
    pub(super) fn is_cancelled(&self, sent: &Sent) -> bool {
        let cancels = self.sent.iter().filter(|other| other.plan.before == Before::Held(Held::Cancelled));
        self.is_held(sent) && cancels.into_iter().any(|other| other.message.has_key_of(&sent.message))
    }
}

/// What is wrong with the claim that a delivery reports, and that its work got.
fn wrong_claim(sent: &Sent, run: Option<&Run>, ahead_us: u64) -> Option<String> {
    let claimed = sent.claimed();
    let is_fence = |fence: u64| match claimed.and_then(|claimed| claimed.fence) {
        Some(claimed) => fence == claimed,
        // Of the clock of this machine.
        None => (sent.begun_us..=sent.ended_us).contains(&(fence.saturating_sub(ahead_us))),
    };
    let told = |fence: u64, attempt: u8, is_recovery: bool| {
        claimed
            .is_some_and(|claimed| is_fence(fence) && (attempt, is_recovery) == (claimed.attempt, claimed.is_recovery))
    };
    if run.is_some_and(|run| !told(run.fence, run.attempt, run.is_recovery)) {
        return Some("its work was told of another claim".to_owned());
    }
    let Returned { fence, attempts, is_recovery, told: outcome, .. } = sent.returned.as_ref()?;
    let is_right = match (sent.acquired(), claimed) {
        (_, Some(_)) if matches!(outcome, Told::NoStore { .. }) => fence.is_none(),
        (_, Some(_)) => fence.zip(*attempts).is_some_and(|(fence, attempts)| told(fence, attempts, *is_recovery)),
        (Some(Acquired::Duplicate { fence: stored, attempts: number, .. }), None) => {
            (*fence, *attempts) == (Some(*stored), Some(*number)) && !is_recovery
        }
        (_, None) => fence.is_none() && !is_recovery,
    };
    (!is_right).then(|| "it reports another claim".to_owned())
}

/// Errors contain no values of rows and parameters.
fn quotes_value(sent: &Sent) -> Option<String> {
    let text = match sent.told()? {
        Told::Unavailable(error) | Told::Failed { error, .. } | Told::FailedPermanently { error, .. } => &error.text,
        Told::NoStore { reason } => reason,
        _ => return None,
    };
    text.contains(SECRET).then(|| "its error quotes a value".to_owned())
}

/// The lease of its own claim: the other transaction began earlier.
fn is_lease(sent: &Sent, remains: std::time::Duration) -> bool {
    let longest = sent.plan.time + crate::inbox::owner::GRACE;
    let took = std::time::Duration::from_micros(sent.ended_us - sent.begun_us);
    remains <= longest && remains + took >= longest
}

/// It has waited for the lock as long as it may.
fn has_waited(sent: &Sent) -> bool {
    let left_us = sent.work_us.saturating_sub(sent.begun_us).saturating_sub(3 * SLACK_US);
    sent.ended_us - sent.begun_us + 5_000 >= lock_us(sent.kind).min(left_us)
}
