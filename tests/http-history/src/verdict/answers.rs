//! What is wrong with the answer to one request.

use std::time::Duration;

use history::History;
use idempotent_sqs_http::{KeyRule, StoreOutage};

use super::is_recorded;
use crate::answer::{Answer, NOT_KEPT};
use crate::clients::{Answered, Sent};
use crate::handler::{Ending, PLANNED};
use crate::kind::Serves;
use crate::request::FLAWS;
use crate::response::are_marked;
use crate::runs::{Run, UnprotectedRun};
use crate::service::GRACE;
use crate::store::Told;
use crate::verdict::Seen;

/// Between the check of a deadline and the run.
const INSTANT: Duration = Duration::from_millis(5);

impl Seen {
    /// What is wrong with the answer to the request of this number. `own` is its run.
    pub(crate) fn wrong_answer(
        &self,
        number: usize,
        sent: &Sent,
        own: Option<&Run>,
        history: &History,
    ) -> Option<&'static str> {
        let Answered { answer, key, after } = sent.answered.as_ref()?;
        let unprotected = self.unprotected_run(number);
        if is_protected(sent) == unprotected.is_some() && !may_be_unprotected(sent, own) {
            return Some("protected or not, against the rule");
        }
        let has_key = sent.flaw.is_none_or(|flaw| flaw.problem().1 != "key-malformed") && is_protected(sent);
        let echo = sent.key.as_ref().filter(|_| has_key);
        if key.as_ref() != echo && !matches!(answer, Answer::Error(_)) {
            return Some("another key, or none");
        }
        if is_protected(sent)
            && sent.deadline.is_some_and(|deadline| sent.at + *after > deadline.end + 2 * GRACE + self.late)
        {
            return Some("an answer after the end of its invocation");
        }
        if let Some(wrong) = self.wrong_by_store(number, sent, own) {
            return Some(wrong);
        }
        if let Some(run) = unprotected {
            return wrong_unprotected(run, sent, answer);
        }
        match answer {
            Answer::Error(error) if *error != PLANNED => Some(error),
            Answer::Error(_) if own.is_some_and(|run| run.ended == Some(Ending::Error)) => None,
            Answer::Error(_) => Some("an error of another run"),
            Answer::Unknown(_) => Some("neither a response nor a problem"),
            Answer::Receipt { .. } if sent.flaw.is_some() => Some("a flaw that was missed"),
            Answer::Unprotected(_) => Some("the answer of no handler"),
            Answer::Receipt { request, .. } => {
                let run = self.runs_of(*request).next();
                let maker = self.sent.get(*request).filter(|maker| maker.identity == sent.identity);
                match (maker, run) {
                    (Some(_), Some(run)) => wrong_receipt(answer, run, sent, *request == number, own),
                    _ => Some("the response to another request"),
                }
            }
            Answer::Problem { kind, .. }
                if kind == "in-flight" && sent.deadline.is_none() && *after < sent.kind.wait =>
            {
                Some("it did not wait for the running request")
            }
            Answer::Problem { status, kind, retry_after } => {
                self.wrong_problem((*status, kind, *retry_after), number, sent, own, history)
            }
        }
    }

    /// The remaining lease that the store told the request of this number last.
    fn lease_of_other(&self, number: usize) -> Option<Duration> {
        match self.asked_for(number).last()?.told {
            Told::Conflict { lease_remains } => Some(lease_remains),
            _ => None,
        }
    }

    fn wrong_problem(
        &self,
        (status, kind, retry_after): (u16, &str, Option<u64>),
        number: usize,
        sent: &Sent,
        own: Option<&Run>,
        history: &History,
    ) -> Option<&'static str> {
        // The time of a run is so short that it does not count.
        let held = seconds(sent.kind.lease_grace);
        let (expected, expected_retry) = match kind {
            "in-flight" => (409, self.lease_of_other(number).map(seconds)),
            "mismatch" => (sent.kind.mismatch_status, None),
            "store-unavailable" => (503, Some(1)),
            // It may not have been released.
            "not-started" => (503, retry_after.filter(|retry| [1, held].contains(retry)).or(Some(1))),
            "unavailable" => {
                let planned = own.and_then(|run| run.plan.unavailable_for()).unwrap_or_default();
                let is_held = own.is_some_and(|run| !is_recorded(run, history));
                (503, Some(seconds(planned).max(if is_held { held } else { 1 })))
            }
            "failed" | "failed-before" => (500, None),
            "deadline" => (504, None),
            NOT_KEPT => (410, None),
            flaw => match FLAWS.iter().map(|flaw| flaw.problem()).find(|(_, kind)| *kind == flaw) {
                Some((status, _)) => (status, None),
                None => return Some("an unexpected problem"),
            },
        };
        let has_flaw = FLAWS.iter().any(|flaw| flaw.problem().1 == kind);
        let has_failed = |run: &Run| match run.ended {
            None | Some(Ending::BreakOff | Ending::Panic | Ending::Garbage) => true,
            Some(Ending::Error) => run.kind.is_endpoint(),
            Some(Ending::Answer(_) | Ending::Unavailable | Ending::Busy) => run.may_be_cut(),
            Some(Ending::Permanent | Ending::Retryable) => !is_recorded(run, history),
        };
        let is_lost =
            |run: &Run| run.is_response_lost(sent.kind) && self.sent[run.plan.request].identity == sent.identity;
        let is_other_of_key = |other: &Sent| {
            other.flaw.is_none()
                && other.identity.key() == sent.identity.key()
                && other.identity.variant != sent.identity.variant
        };
        match kind {
            _ if (status, retry_after) != (expected, expected_retry) => Some("another status or `Retry-After`"),
            _ if sent.flaw.map(|flaw| flaw.problem().1) != has_flaw.then_some(kind) => {
                Some("a flaw that was missed, or that the request does not have")
            }
            "failed" if own.is_none() && sent.kind.serves == Serves::EndpointInLayer => None,
            "failed" | "deadline" if !own.is_some_and(has_failed) => Some("a run that did not fail"),
            "failed" if own.is_some_and(|run| run.ended.is_none()) => Some("a run that was cancelled at its deadline"),
            "deadline" if !own.is_some_and(|run| run.may_be_cut() || run.is_late) => Some("a run that had time left"),
            "failed" | "deadline" => None,
            "unavailable" if own.is_some_and(may_be_tried_again) => None,
            "unavailable" => Some("a work that was not unavailable"),
            "failed-before" if own.is_some_and(has_failed_for_good) => None,
            _ if own.is_some() => Some("a request that ran was told that it did not"),
            NOT_KEPT if !self.runs.iter().any(is_lost) => Some("a response that was kept"),
            "mismatch" if !self.sent.iter().any(is_other_of_key) => Some("no other request had this key"),
            _ => None,
        }
    }
}

/// A time in `Retry-After`, which is not zero.
fn seconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis().div_ceil(1000)).unwrap().max(1)
}

/// Whether a run had no effect, and a retry runs.
fn may_be_tried_again(run: &Run) -> bool {
    run.ended.is_some_and(Ending::has_no_effect) && !has_failed_for_good(run)
}

/// Whether no retry runs after this run.
fn has_failed_for_good(run: &Run) -> bool {
    match run.ended {
        Some(Ending::Permanent) => true,
        Some(Ending::Retryable) => run.is_last(),
        _ => false,
    }
}

/// Whether the layer reads the key of this request.
pub(crate) fn is_protected(sent: &Sent) -> bool {
    match sent.kind.key_rule {
        _ if sent.kind.is_endpoint() => true,
        None => sent.identity.needs_key(),
        Some(KeyRule::Required) => true,
        Some(KeyRule::Optional) => sent.key.is_some(),
        Some(KeyRule::Ignored) => false,
    }
}

/// Whether the handler may have run without the store.
fn may_be_unprotected(sent: &Sent, own: Option<&Run>) -> bool {
    sent.kind.store_outage == StoreOutage::RunUnprotected && sent.flaw.is_none() && own.is_none()
}

/// What is wrong with the answer of a handler that ran without the store. Without a key, it has no deadline.
fn wrong_unprotected(run: &UnprotectedRun, sent: &Sent, answer: &Answer) -> Option<&'static str> {
    if is_protected(sent) && sent.deadline.is_some_and(|deadline| run.from > deadline.work + INSTANT) {
        return Some("it ran without the store after its deadline");
    }
    let is_right = match (run.ended, answer) {
        (None, Answer::Problem { status: 504, kind, .. }) => kind == "deadline" && is_protected(sent),
        (Some(Ending::Panic), Answer::Problem { status: 500, kind, .. }) => kind == "failed",
        (Some(Ending::Error), Answer::Error(error)) => *error == PLANNED,
        (Some(Ending::Panic | Ending::Error), _) => false,
        (Some(_), Answer::Unprotected(reply)) => !(is_protected(sent) && are_marked(&reply.headers)),
        _ => false,
    };
    (!is_right).then_some("another answer than that of the handler, which ran without the store")
}

/// What is wrong with a response of this run, which is that of the request itself if it `is_own`.
fn wrong_receipt(answer: &Answer, run: &Run, sent: &Sent, is_own: bool, own: Option<&Run>) -> Option<&'static str> {
    let Answer::Receipt { is_replayed, is_omitted, reply, .. } = answer else { return None };
    let Some(Ending::Answer(status)) = run.ended else { return Some("a response that the run did not return") };
    let expected = if is_own { run.first_response(status) } else { run.replay(status, sent.kind) };
    if *is_replayed == is_own {
        Some("the wrong mark of a replay")
    } else if *is_replayed && !run.kind.keeps(status) {
        Some("a response that is not kept was replayed")
    } else if *is_replayed && own.is_some() {
        Some("a replay to a request that ran")
    } else if *is_replayed && run.is_response_lost(sent.kind) && !(run.is_object() && sent.kind.has_objects) {
        Some("a response that cannot be read was replayed")
    } else if *is_omitted != expected.is_omitted || reply.body != expected.body || reply.trailers != expected.trailers {
        Some("another body")
    } else if !(reply.is_sized || is_own && run.plan.is_chunked()) {
        Some("a body without its length")
    } else if reply.status != expected.status || reply.headers != expected.headers {
        Some("another head")
    } else {
        None
    }
}
