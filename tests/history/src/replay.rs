//! Whether the model of the protocol (`record-model`) allows each step of an order, and each call of an attempt.
//!
//! The model knows no times but their order, so its numbers are the ranks of the real ones. It has no payload without a
//! fingerprint.

use std::collections::BTreeSet;

use idempotent_sqs::idempotency::protocol::{Record, RecordState};
use idempotent_sqs::idempotency::{Fingerprint, State};
use record_model as model;

use crate::event::{Answer, Call, Claim, LostTo};
use crate::history::Operation;
use crate::machine::{Choice, found};
use crate::search::Step;

/// Replays the order on the model, `without` one of its guards. Returns the number of steps, 0 if the model does not
/// cover this history.
///
/// # Errors
/// The first step that the model does not allow.
pub fn replay(operations: &[Operation], order: &[Step], without: Option<model::Guard>) -> Result<usize, String> {
    let Some(names) = Names::of(operations, order, without) else { return Ok(0) };
    let mut steps = 0;
    for step in order {
        let Step::Executed { operation, choice, before, answer, after, .. } = step else { continue };
        let operation = &operations[*operation];
        let (known, written) = names.execute(operation, before.as_ref(), *choice);
        let expected = written.or_else(|| before.as_ref().map(|record| names.record(record)));
        let reached = after.as_ref().map(|record| names.record(record));
        if !names.agree(answer, known) || expected != reached {
            return Err(format!(
                "the model does not allow {operation}: from {before:?} it answers {known:?} and reaches {expected:?}, not \
                 {reached:?}"
            ));
        }
        steps += 1;
    }
    Ok(steps)
}

/// Whether the model allows one of these operations, by their indices, as the next step with its answer. `None` if the
/// model does not cover this history.
#[must_use]
pub(crate) fn allows_next(operations: &[Operation], order: &[Step], next: &[(usize, Vec<Choice>)]) -> Option<bool> {
    let names = Names::of(operations, order, None)?;
    let record = order.last().and_then(Step::after);
    let allows = |at: usize, choice: &Choice| {
        let operation = &operations[at];
        let mut records = found(record, choice.now_us);
        records.any(|record| names.agree(&operation.answer, names.execute(operation, record, *choice).0))
    };
    Some(next.iter().any(|(at, choices)| choices.iter().any(|choice| allows(*at, choice))))
}

/// The numbers of the model.
struct Names {
    without: Option<model::Guard>,
    owners: Vec<[u8; 8]>,
    payloads: Vec<[u8; 16]>,
    messages: Vec<[u8; 8]>,
    fences: Vec<u64>,
}

/// No message of a history has this number.
const ANOTHER_MESSAGE: u8 = u8::MAX;

fn number<T: PartialEq>(names: &[T], name: &T) -> u8 {
    let at = names.iter().position(|known| known == name);
    at.and_then(|at| u8::try_from(at).ok()).expect("each name was collected")
}

fn sorted<T: Ord>(names: impl Iterator<Item = T>) -> Vec<T> {
    names.collect::<BTreeSet<_>>().into_iter().collect()
}

impl Names {
    /// `None` if the model does not cover this history: a payload without a fingerprint, or too many names.
    fn of(operations: &[Operation], order: &[Step], without: Option<model::Guard>) -> Option<Self> {
        let requests = || operations.iter().map(|operation| operation.call.request());
        let claims = operations.iter().filter_map(|operation| operation.claim().map(|claim| claim.fence));
        let answers = operations.iter().filter_map(|operation| match operation.answer {
            Answer::Acquired { fence, .. } => Some(fence),
            _ => None,
        });
        let records = order.iter().filter_map(|step| step.after().map(|record| record.fence.0));
        let names = Self {
            without,
            owners: sorted(requests().map(|request| request.owner.0)),
            payloads: sorted(requests().map(|request| request.fingerprint.0)),
            messages: sorted(requests().map(|request| request.message.0)),
            fences: sorted(claims.chain(answers).chain(records)),
        };
        let lengths = [names.owners.len(), names.messages.len(), names.fences.len()];
        let covered = !names.payloads.contains(Fingerprint::NONE.as_bytes())
            && lengths.iter().all(|length| *length < usize::from(ANOTHER_MESSAGE));
        covered.then_some(names)
    }

    /// From 1, in the order of the real fences and times.
    fn fence(&self, us: u64) -> u8 {
        u8::try_from(self.fences.partition_point(|fence| *fence <= us)).expect("the names are few")
    }

    fn record(&self, record: &Record) -> model::Record {
        let (state, uncertain, permanent) = match &record.state {
            RecordState::Processing { recovery, .. } => (model::State::Processing, *recovery, false),
            RecordState::Completed { .. } => (model::State::Completed, false, false),
            RecordState::Failed(failure) => (model::State::Failed, failure.uncertain, failure.permanent),
        };
        model::Record {
            state,
            uncertain,
            permanent,
            attempts: record.attempts,
            fence: self.fence(record.fence.0),
            owner: number(&self.owners, record.owner.as_bytes()),
            payload: number(&self.payloads, record.fingerprint.as_bytes()),
            message: number(&self.messages, record.message.as_bytes()),
        }
    }

    fn claim(&self, claim: &Claim) -> model::Claim {
        model::Claim { fence: self.fence(claim.fence), number: claim.attempt, recovery: claim.recovery }
    }

    fn execute(
        &self,
        operation: &Operation,
        before: Option<&Record>,
        Choice { now_us, .. }: Choice,
    ) -> (model::Answer, Option<model::Record>) {
        let request = operation.call.request();
        let scripts = model::Scripts { without: self.without, max_attempts: request.max_attempts };
        let record = before.map(|record| self.record(record));
        let message = number(&self.messages, &request.message.0);
        let by = model::Caller {
            owner: number(&self.owners, &request.owner.0),
            payload: number(&self.payloads, &request.fingerprint.0),
            message,
        };
        match &operation.call {
            Call::Acquire { .. } => {
                let ended = |_| match before.map(|record| &record.state) {
                    Some(RecordState::Processing { lease_end_ms, .. }) => lease_end_ms.saturating_mul(1000) <= now_us,
                    _ => true,
                };
                // In the model a failure applies to its message for ever. After that time it is another one.
                let applied_us = u64::try_from(operation.attempt.failed_retention.as_micros()).unwrap_or(u64::MAX);
                let applies = before.is_none_or(|record| now_us < record.fence.0.saturating_add(applied_us));
                let asked = if applies { by } else { model::Caller { message: ANOTHER_MESSAGE, ..by } };
                let (answer, written) = scripts.acquire(record, asked, self.fence(now_us), ended);
                (answer, written.map(|written| model::Record { message, ..written }))
            }
            Call::Complete { claim, .. } => scripts.complete(record, by, self.claim(claim)),
            Call::Fail { claim, uncertain, permanent } => {
                let failure = model::Failure { uncertain: *uncertain, permanent: *permanent };
                scripts.fail(record, by, self.claim(claim), failure)
            }
            Call::Release { claim, .. } => scripts.release(record, by, claim.as_ref().map(|claim| self.claim(claim))),
        }
    }

    fn agree(&self, answer: &Answer, known: model::Answer) -> bool {
        match (answer, known) {
            (Answer::Acquired { fence, attempt, recovery }, model::Answer::Acquired(claim)) => {
                claim == model::Claim { fence: self.fence(*fence), number: *attempt, recovery: *recovery }
            }
            (Answer::Lost(state), model::Answer::Lost(Some(known))) => lost_to(known) == *state,
            (Answer::Duplicate { .. }, model::Answer::Duplicate)
            | (Answer::Conflict { .. }, model::Answer::Conflict(_))
            | (Answer::Mismatch, model::Answer::Mismatch)
            | (Answer::Failed, model::Answer::Failed)
            | (Answer::Recorded, model::Answer::Recorded) => true,
            _ => false,
        }
    }
}

fn lost_to(state: model::State) -> LostTo {
    match state {
        model::State::Processing => State::Processing,
        model::State::Completed => State::Completed,
        model::State::Failed => State::Failed,
    }
    .into()
}
