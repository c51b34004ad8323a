//! What a call returns after its run, if nothing but its plan disturbed it: docs/inbox.md, without its code.

use std::time::Duration;

use history::inbox::Class;

use super::Truth;
use crate::inbox::caller::KINDS;
use crate::inbox::calls::{Call, RunSeen, Told};
use crate::inbox::plan::{AtCommit, Case, FOR_A_WHILE, LOOKED_UP, OnFailure};
use crate::inbox::world::Fault;

/// What disturbs calls.
pub(super) const ANY: [Fault; 3] = [Fault::Down, Fault::Cancelled, Fault::ReadOnly];

/// What the caller is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    Done,
    /// It fails, for a reason with this text.
    Failed(Class, &'static str),
    /// Another owner has done the work.
    DoneByAnother,
    /// Nothing: it was dropped, or its time was over.
    Nothing,
}

const ENDED: &str = "the work executed COMMIT or ROLLBACK";

const MADE_READ_ONLY: &str = "the work made its transaction read-only";

const LOST: &str = "the reply to the commit was lost";

impl Truth<'_> {
    /// Each of these is right.
    pub(super) fn expected(&self, call: &Call, run: &RunSeen) -> Vec<Expected> {
        let plan = call.plan;
        let Some(returned) = &run.returned else { return vec![Expected::Nothing] };
        if run.has_ended {
            return vec![Expected::Failed(Class::Uncertain, ENDED)];
        }
        if plan.fails_in_silence() {
            return vec![Expected::Failed(Class::Uncertain, "did not say")];
        }
        let class = match returned {
            Err(failed) => failed.class,
            Ok(_) => match (plan.case, plan.at_commit) {
                // A later statement of an aborted transaction fails with another error, which counts.
                // So does one without its prepared statement.
                (Case::Ignored | Case::Deallocate, AtCommit::Nothing) => Class::Retryable,
                (Case::MakeReadOnly, AtCommit::Nothing) => {
                    let mut expected =
                        vec![Expected::Failed(Class::Retryable, MADE_READ_ONLY), Expected::DoneByAnother];
                    if self.is_contended(call) {
                        // The row could not be looked up.
                        expected.push(Expected::Failed(Class::Uncertain, MADE_READ_ONLY));
                    }
                    return expected;
                }
                (Case::KeepRow, AtCommit::Nothing) => {
                    return vec![Expected::Failed(Class::Retryable, "was not updated")];
                }
                (_, AtCommit::Fails(code)) if LOOKED_UP.contains(&code) => return self.after_lookup(call, false),
                (_, AtCommit::Fails(code)) => Class::of(code),
                (_, AtCommit::Unchecked) => return vec![Expected::Failed(Class::Uncertain, "did not say")],
                (_, AtCommit::Crash { before }) => return self.after_lookup(call, !before),
                (_, AtCommit::Lost { unreachable: Duration::MAX, .. }) => {
                    return vec![Expected::Failed(Class::Uncertain, LOST)];
                }
                (_, AtCommit::Lost { request, .. }) => return self.after_lookup(call, !request),
                (_, AtCommit::Silent) => return vec![Expected::Nothing],
                (_, AtCommit::Nothing) => return vec![Expected::Done],
            },
        };
        if class == Class::Permanent { after_permanent(call, run) } else { vec![Expected::Failed(class, "")] }
    }

    /// The row of a commit without a reply is looked up, for which another transaction may have to end first.
    fn after_lookup(&self, call: &Call, is_committed: bool) -> Vec<Expected> {
        let mut expected =
            vec![if is_committed { Expected::Done } else { Expected::Failed(Class::Unavailable, "before the commit") }];
        if self.is_contended(call) {
            expected.push(Expected::DoneByAnother);
        }
        // The server may have crashed at the commit of another call: before this one was sent, or instead of this one.
        if let AtCommit::Crash { .. } = call.plan.at_commit {
            expected.extend([Expected::Failed(Class::Unavailable, ""), Expected::Done]);
        }
        let may_fail = match call.plan.at_commit {
            AtCommit::Crash { .. } => true,
            // A connection has to be opened meanwhile.
            AtCommit::Lost { unreachable, .. } => {
                KINDS.get(call.caller).is_none_or(|kind| kind.timeout <= unreachable + FOR_A_WHILE / 2)
            }
            _ => false,
        };
        if may_fail || self.is_contended(call) {
            expected.push(Expected::Failed(Class::Uncertain, LOST));
        }
        expected
    }

    pub(super) fn is_told(&self, expected: Expected, call: &Call, run: &RunSeen) -> bool {
        match (expected, &call.told) {
            (Expected::Done, Told::Done(result)) => {
                run.returned.as_ref().is_some_and(|returned| returned.as_ref() == Ok(result))
            }
            (Expected::Failed(class, why), Told::Failed(told, text)) => *told == class && text.contains(why),
            (Expected::DoneByAnother, _) => self.is_explained_by_rows(call),
            (Expected::Nothing, Told::Nothing) => true,
            _ => false,
        }
    }
}

/// A permanent failure is final only if it is recorded, and if no other owner has done the work.
fn after_permanent(call: &Call, run: &RunSeen) -> Vec<Expected> {
    let Some(recording) = run.recordings.last() else { return vec![Expected::DoneByAnother] };
    match &recording.returned {
        None => vec![Expected::Nothing],
        // It is not known whether the failure is recorded, which may be repeated.
        Some(Ok(())) if call.plan.on_failure == OnFailure::LostReply => vec![Expected::Failed(Class::Unavailable, "")],
        Some(Ok(())) => vec![Expected::Failed(Class::Permanent, "")],
        Some(Err(failed)) if failed.class == Class::Permanent => vec![Expected::Failed(Class::Retryable, "")],
        Some(Err(failed)) => vec![Expected::Failed(failed.class, "")],
    }
}
