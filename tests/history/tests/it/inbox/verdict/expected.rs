//! What a delivery has to return after what its work did: docs/inbox.md, without its code.

use history::inbox::Class;

use super::Seen;
use crate::inbox::kind::User;
use crate::inbox::messages::UNFINISHED;
use crate::inbox::plan::{Before, Case, LOOKED_UP, OnFailure};
use crate::inbox::tally::{Failed, Run, Sent};

/// What the message is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    Done,
    /// It fails, for a reason with this text.
    Failed(Class, &'static str),
    /// Another owner may have done the work, or it cannot be looked up now.
    DoneByAnother,
}

/// Part of the reason after a work that has executed COMMIT or ROLLBACK.
pub(super) const ENDED: &str = "the work executed COMMIT or ROLLBACK";

const MADE_READ_ONLY: &str = "the work made its transaction read-only";

const LOST: &str = "the reply to the commit was lost";

/// Whether there may be no other connection at once.
pub(super) fn may_wait(sent: &Sent) -> bool {
    sent.kind.tasks > 1 || sent.kind.user == User::Crowded
}

const CANCELLED: &str = "the work was cancelled at the deadline";

impl Seen {
    /// What has to be returned after this run, if nothing but its plan disturbed it. Each of these is right.
    pub(super) fn expected(&self, sent: &Sent, run: &Run) -> Vec<Expected> {
        let case = sent.plan.case;
        let Some(returned) = &run.returned else {
            let why = if case == Case::Panic { "the work panicked" } else { CANCELLED };
            return vec![Expected::Failed(Class::Uncertain, why)];
        };
        if run.has_ended {
            return self.after_own_end(sent, returned.as_ref().err());
        }
        let class = match returned {
            Err(failed) => failed.class,
            Ok(_) => match case {
                Case::AtCommit(code) if LOOKED_UP.contains(&code) => {
                    return self.after_lookup(sent, &[Class::Unavailable]);
                }
                Case::AtCommit(code) => Class::of(code),
                // A later statement of an aborted transaction fails with another error, which counts. So does one without its
                // prepared statement.
                Case::Ignored | Case::Deallocate => Class::Retryable,
                Case::KeepRow => return vec![Expected::Failed(Class::Retryable, "was not updated")],
                // The row is looked up, as after a lost reply.
                Case::MakeReadOnly => {
                    let mut expected = vec![Expected::Failed(Class::Retryable, MADE_READ_ONLY)];
                    if self.is_contended(sent) {
                        expected.push(Expected::DoneByAnother);
                    }
                    if may_wait(sent) || self.is_contended(sent) {
                        expected.push(Expected::Failed(Class::Uncertain, MADE_READ_ONLY));
                    }
                    return expected;
                }
                Case::CutIgnored { .. } => Class::Unavailable,
                Case::LostRequest => return self.after_lookup(sent, &[Class::Unavailable]),
                // The server may notice that the client has gone before it commits.
                Case::CutAtCommit => {
                    return [self.after_lookup(sent, &[Class::Unavailable]), vec![Expected::Done]].concat();
                }
                Case::LostReply { is_unreachable: true } => return vec![Expected::Failed(Class::Uncertain, LOST)],
                Case::LostReply { .. } => {
                    return [self.after_lookup(sent, &[]), vec![Expected::Done]].concat();
                }
                Case::SilentAtCommit => {
                    return vec![Expected::Failed(Class::Uncertain, "")];
                }
                _ => return vec![Expected::Done],
            },
        };
        if class == Class::Permanent {
            return self.after_permanent(sent, run);
        }
        vec![Expected::Failed(class, "")]
    }

    /// The row of a commit without an answer is looked up, for which another transaction may have to end first.
    fn after_lookup(&self, sent: &Sent, classes: &[Class]) -> Vec<Expected> {
        let mut expected: Vec<_> = classes.iter().map(|class| Expected::Failed(*class, "")).collect();
        if self.is_contended(sent) {
            expected.push(Expected::DoneByAnother);
        }
        if may_wait(sent) || self.is_contended(sent) {
            expected.push(Expected::Failed(Class::Uncertain, LOST));
        }
        expected
    }

    /// A work has ended its transaction by itself, and maybe failed.
    fn after_own_end(&self, sent: &Sent, failed: Option<&Failed>) -> Vec<Expected> {
        let mut expected = vec![Expected::Failed(Class::Uncertain, ENDED)];
        // An idle session was ended, or accepts no statement, so nothing shows what the work has done in it.
        if self.ended_idle.iter().chain(&self.read_only).any(|span| span.overlaps(sent.span())) {
            let class = failed.map_or(Class::Unavailable, |failed| failed.class);
            expected.extend([Expected::Failed(Class::Uncertain, UNFINISHED), Expected::Failed(class, "")]);
            // The row could not be updated.
            expected.push(Expected::Failed(Class::Retryable, MADE_READ_ONLY));
            // After its ROLLBACK, another owner can do the work.
            expected.push(Expected::DoneByAnother);
        }
        expected
    }

    /// A permanent failure is final only if it is recorded, and if no other owner has done the work.
    fn after_permanent(&self, sent: &Sent, run: &Run) -> Vec<Expected> {
        let Some(recording) = run.recordings.last() else {
            // Another owner has done the work.
            let mut expected = vec![Expected::DoneByAnother];
            // The connection is open, so its transaction may be read-only.
            if self.read_only.iter().any(|span| span.overlaps(sent.span())) {
                expected.push(Expected::Failed(Class::Unavailable, ""));
            }
            // Another delivery has got the only connection.
            if sent.kind.tasks > 1 {
                expected.push(Expected::Failed(Class::Busy, "no connection to PostgreSQL became free"));
            }
            return expected;
        };
        match &recording.returned {
            None => vec![Expected::Failed(Class::Uncertain, CANCELLED)],
            // It is not known whether the failure is recorded, which may be repeated.
            Some(Ok(())) if sent.plan.on_failure == OnFailure::LostReply => {
                vec![Expected::Failed(Class::Unavailable, "")]
            }
            Some(Ok(())) => vec![Expected::Failed(Class::Permanent, "")],
            Some(Err(Failed { class: Class::Permanent, .. })) => vec![Expected::Failed(Class::Retryable, "")],
            Some(Err(failed)) => vec![Expected::Failed(failed.class, "")],
        }
    }

    /// Something else than the message kept the row from being inserted or read.
    pub(super) fn is_right_if_busy(&self, sent: &Sent, reason: &str) -> bool {
        let may_be = |why: &str, may_be: bool| may_be && reason.contains(why);
        may_be("no connection to PostgreSQL became free", sent.kind.tasks > 1)
            || may_be("53300", sent.kind.user == User::Crowded)
            || may_be("57014", self.is_cancelled(sent))
            || may_be("40P01", self.is_contended(sent))
    }

    /// Whether the statement of this run failed as its plan says.
    pub(super) fn is_planned_failure(&self, sent: &Sent, run: &Run, failed: &Failed) -> bool {
        let Some(statement) = failed.statement.as_deref() else {
            return matches!(sent.plan.case, Case::Fail(class) | Case::End(_, _, Some(class)) if class == failed.class);
        };
        // The session seemed idle when it was ended.
        let was_ended = self.ended_idle.iter().any(|ended| ended.overlaps(sent.span()));
        if was_ended && ["57P01", "connection lost"].contains(&statement) {
            return true;
        }
        match sent.plan.case {
            Case::Raise(code) => statement == code,
            Case::WrongData => statement == "22P02",
            Case::WrongParameter => statement == "mismatch",
            Case::WrongCharacter => statement == "22P05" && !self.has_all_characters,
            Case::LockTwo => ["40P01", "55P03"].contains(&statement),
            Case::LockHeld => statement == "55P03",
            Case::Cancelled => statement == "57014",
            Case::Terminated => ["57P01", "connection lost"].contains(&statement),
            Case::Cut => statement == "connection lost",
            Case::Outdated => {
                let span = crate::inbox::tally::Span { from_us: 0, until_us: run.ended_us };
                statement == "outdated" && self.altered.iter().any(|altered| altered.overlaps(span))
            }
            // The server ends the transaction of a process that was frozen for too long.
            _ => false,
        }
    }

    /// Whether this run had to fail.
    pub(super) fn has_to_fail(&self, sent: &Sent, run: &Run) -> bool {
        match sent.plan.case {
            Case::Fail(_)
            | Case::Panic
            | Case::Hang
            | Case::Raise(_)
            | Case::WrongData
            | Case::WrongParameter
            | Case::Cancelled
            | Case::Terminated
            | Case::Cut
            | Case::Frozen { .. }
            | Case::Silent
            | Case::Dropped { .. } => true,
            Case::WrongCharacter => !self.has_all_characters,
            Case::LockHeld => {
                let is_locked = |locked: &&crate::inbox::tally::Span| {
                    locked.from_us <= run.begun_us && run.ended_us <= locked.until_us
                };
                self.locked.iter().any(|locked| is_locked(&locked))
            }
            Case::End(_, _, class) => class.is_some(),
            _ => false,
        }
    }

    /// Whether the delivery has no way to the database before its work.
    pub(super) fn is_cut_off(sent: &Sent) -> bool {
        sent.plan.before == Before::Unreachable
    }
}
