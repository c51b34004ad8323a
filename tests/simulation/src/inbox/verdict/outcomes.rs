//! What each call returned.

use std::time::Duration;

use history::inbox::{Class, SECRET};
use tokio::time::Instant;

use super::Truth;
use super::expected::ANY;
use super::rows::is_of;
use crate::inbox::caller::{KINDS, Kind};
use crate::inbox::calls::{Call, RunSeen, Told};
use crate::inbox::plan::{AtCommit, Before, Case, What};
use crate::inbox::world::{Disturbance, Fault};

/// Part of the error of a row that was committed without a result.
pub const UNFINISHED: &str = "executed COMMIT in its work";

/// How long the way to the server and back takes at most, with the time of a login.
const SLACK: Duration = Duration::from_millis(30);

/// The margins of a begin: before the deadline, and of waits before that.
const MARGIN: Duration = Duration::from_millis(50);

impl Truth<'_> {
    pub(super) fn wrong_outcomes(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for call in self.calls {
            let why = match &*call.runs {
                [] => (!self.is_right_without_run(call)).then(|| "not what the rows explain".to_owned()),
                [run] => self.wrong_after_run(call, run),
                _ => Some("it ran more than once".to_owned()),
            };
            let quotes = call.told.reason().is_some_and(|reason| reason.contains(SECRET));
            wrong.extend(why.map(|why| format!("{why}: {call:?}")));
            wrong.extend(quotes.then(|| format!("an error quotes a value: {call:?}")));
        }
        wrong
    }

    fn wrong_after_run(&self, call: &Call, run: &RunSeen) -> Option<String> {
        if (run.fence, run.number) != (call.fence, call.number) {
            return Some("its work was told of another claim".to_owned());
        }
        // Whatever happens: what is committed is told, and nothing else. If the session of a work that has executed COMMIT
        // is lost before it fails, only the next delivery tells it.
        let is_committed = self.effects.iter().any(|effect| is_of(effect, call) && effect.at <= call.ended() + SLACK);
        let tells = match &call.told {
            Told::Done(_) => is_committed,
            Told::Failed(Class::Uncertain, _) | Told::Nothing => true,
            _ => !is_committed || (run.has_ended && self.is_disturbed(call, &ANY)),
        };
        // With so short a retention, its row may be deleted or replaced before it is looked up.
        let is_removed = self.versions.iter().any(|version| {
            i64::try_from(call.fence) == Ok(version.row.fence)
                && version.until.is_some_and(|until| until <= call.ended())
        });
        if is_removed && !matches!(call.told, Told::Done(_)) {
            return None;
        }
        if !tells {
            return Some(format!("its effect is {}committed", if is_committed { "" } else { "not " }));
        }
        if self.waits_in_silence(call, run) {
            return Some("it waited too long for a reply that changes nothing".to_owned());
        }
        // The time may be over before the last reply.
        let is_late = call.ended() + SLACK + 2 * MARGIN >= call.ends;
        if is_late || self.is_disturbed(call, &ANY) && !matches!(call.plan.at_commit, AtCommit::Crash { .. }) {
            return None;
        }
        if !self.is_planned(call, run) {
            return Some("its work failed, or succeeded, without a reason".to_owned());
        }
        let expected = self.expected(call, run);
        let is_right = expected.iter().any(|expected| self.is_told(*expected, call, run));
        (!is_right).then(|| format!("after its run it should be told {expected:?}"))
    }

    /// Whether it waited longer than the timeout for a silent server after its work had failed.
    fn waits_in_silence(&self, call: &Call, run: &RunSeen) -> bool {
        let timeout = KINDS.get(call.caller).map_or(Duration::from_secs(1), |kind| kind.timeout);
        call.plan.fails_in_silence()
            && run.ended.is_some_and(|ended| call.ended() > ended + timeout + SLACK)
            && !self.is_disturbed(call, &ANY)
    }

    /// Whether its work ended as its plan says.
    fn is_planned(&self, call: &Call, run: &RunSeen) -> bool {
        let Some(returned) = &run.returned else {
            return matches!(call.plan.case, Case::Panic | Case::Hang { .. } | Case::Dropped { .. });
        };
        match (call.plan.case, returned) {
            (Case::Fail(class), Err(failed)) => failed.class == class && failed.statement.is_none(),
            (Case::End { fails, .. }, returned) => fails == returned.as_ref().err().map(|failed| failed.class),
            (Case::StatementFails(code), Err(failed)) => failed.statement.as_deref() == Some(code),
            (Case::WrongParameter, Err(failed)) => failed.statement.as_deref() == Some("mismatch"),
            (Case::Cut, Err(failed)) => failed.statement.as_deref() == Some("connection lost"),
            (
                Case::Succeed
                | Case::Take(_)
                | Case::Ignored
                | Case::Savepoint
                | Case::Deallocate
                | Case::MakeReadOnly
                | Case::Leave(_)
                | Case::KeepRow,
                Ok(_),
            ) => true,
            _ => matches!(call.plan.at_commit, AtCommit::Crash { .. }) && self.is_disturbed(call, &ANY),
        }
    }

    /// Whether a row of the key explains what the call returned.
    pub(super) fn is_explained_by_rows(&self, call: &Call) -> bool {
        let mut rows = self.rows_during(call).map(|version| &version.row);
        let (is_same, result) = (|row: &&super::InboxRow| row.has_payload(call.payload), &call.told);
        match result {
            Told::DoneBefore(result) | Told::Row(Some(result)) => {
                rows.any(|row| is_same(&row) && row.result.as_ref() == Some(result))
            }
            Told::Mismatch => rows.any(|row| !is_same(&row)),
            Told::Failed(Class::Uncertain, why) if why.contains(UNFINISHED) => {
                rows.any(|row| is_same(&row) && row.result.is_none())
            }
            _ => false,
        }
    }

    fn is_right_without_run(&self, call: &Call) -> bool {
        if self.is_explained_by_rows(call) {
            return true;
        }
        let kind = KINDS.get(call.caller);
        let timeout = kind.map_or(Duration::from_secs(1), |kind| kind.timeout);
        let waited = call.ended() - call.begun;
        let planned = match call.plan.before {
            Before::BeginFails(code) | Before::InsertFails(code) => Some(code),
            _ => None,
        };
        let is_planned = |class: Class| planned.is_some_and(|code| Class::of(code) == class);
        let is_disturbed = self.is_disturbed(call, &ANY);
        // The first try takes two timeouts, and the second one opens a connection.
        let finds_silence = 2 * timeout + 10 * MARGIN;
        let is_cut_off = match call.plan.before {
            Before::Unreachable => true,
            _ if self.is_silent(call, finds_silence) => call.plan.time < finds_silence,
            _ => call.plan.time < 4 * MARGIN,
        };
        // A wait for a lock ends with the timeout, or before the deadline.
        let has_waited = waited + SLACK >= timeout.min(call.plan.time.saturating_sub(2 * MARGIN));
        let waits = self.is_contended(call) && has_waited;
        let shares = kind.is_some_and(|kind| kind.tasks > kind.connections.get());
        let dials_late = |kind: &Kind| kind.has_silent_host || !kind.password_takes.is_zero();
        let may_be_late = self.is_contended(call) || shares || kind.is_some_and(dials_late);
        match &call.told {
            Told::Busy { after } => *after == call.plan.time && waits,
            Told::Failed(Class::Busy, why) => {
                is_planned(Class::Busy)
                    || why.contains("became free") && shares && call.ended() + 2 * MARGIN + SLACK >= call.ends
                    || why.contains("57014") && self.is_disturbed(call, &[Fault::Cancelled])
                    || why.contains("40P01") && self.is_contended(call)
                    // An attempt in conflict says for how long.
                    || why.contains("55P03") && waits && call.plan.what == What::Read
                    || why.contains("just deleted") && self.was_deleted(call)
            }
            // A statement of the work does not begin.
            Told::Unreachable(why) | Told::Failed(Class::Unavailable, why) => {
                let is_other = planned.is_some_and(|code| Class::of(code) != Class::Busy);
                let is_rejected = why.contains("28P01") && self.has_new_password(call.ended());
                is_disturbed
                    || is_cut_off
                    || is_other
                    || is_rejected
                    || may_be_late && call.ended() + MARGIN + SLACK >= call.ends
            }
            Told::Row(None) => !self.rows_during(call).any(|version| {
                let row = &version.row;
                let is_visible = version.from < call.begun && version.until.is_none_or(|until| until > call.ended());
                is_visible && row.has_payload(call.payload) && !row.has_expired(call.ended())
            }),
            Told::Checked(Ok(())) | Told::Deleted(Ok(_)) => true,
            Told::Checked(Err(_)) | Told::Deleted(Err(_)) => {
                is_disturbed || planned.is_some() || call.plan.before != Before::Nothing || shares
            }
            // It reads the row until the deadline, or rolls back.
            Told::Nothing => {
                (is_disturbed || is_cut_off || may_be_late) && call.ended() >= call.ends
                    || matches!(call.plan.case, Case::Dropped { .. })
            }
            _ => false,
        }
    }

    /// Whether the connections of the caller may be silent: since this call, or since an earlier one, if that and those
    /// between them took less than `finds_silence`.
    fn is_silent(&self, call: &Call, finds_silence: Duration) -> bool {
        let until_this = self.calls.iter().filter(|other| other.caller == call.caller && other.begun <= call.begun);
        let is_short = |other: &&Call| other.fence == call.fence || other.plan.time < finds_silence;
        until_this.rev().take_while(is_short).any(|other| other.plan.before == Before::Silent)
    }

    /// Whether the password was replaced just before this time, perhaps for the second time since the last login.
    fn has_new_password(&self, at: Instant) -> bool {
        let is_replaced = |other: &&Disturbance| other.fault == Fault::Password;
        self.disturbances.iter().filter(is_replaced).any(|replaced| (at - SLACK..at).contains(&replaced.from))
    }

    /// Whether a row of the key was deleted or replaced during the call.
    fn was_deleted(&self, call: &Call) -> bool {
        self.versions.iter().any(|version| {
            version.row.is_of(call.consumer, &call.key)
                && version.until.is_some_and(|until| (call.begun..=call.ended()).contains(&until))
        })
    }

    /// No work runs beside another one of its key, or after it.
    pub(super) fn wrong_runs(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for call in self.calls {
            let Some(run) = call.runs.first() else { continue };
            let is_done = self.rows_during(call).any(|version| {
                version.from < run.begun && version.until.is_none_or(|until| until > run.begun)
                    // Its own row, if it has executed COMMIT.
                    && i64::try_from(call.fence) != Ok(version.row.fence)
                    && !version.row.has_expired(run.begun)
            });
            if is_done {
                wrong.push(format!("a work runs although there is a row: {call:?}"));
            }
            let beside = self.calls.iter().find(|other| {
                let is_of_key = other.fence > call.fence && other.consumer == call.consumer && other.key == call.key;
                let holds = |call: &Call| !self.is_disturbed(call, &ANY) && call.plan.case.holds_the_row();
                is_of_key
                    && holds(call)
                    && holds(other)
                    && other.runs.first().is_some_and(|other| {
                        other.begun < run.ended.unwrap_or(run.begun) && run.begun < other.ended.unwrap_or(other.begun)
                    })
            });
            wrong.extend(beside.map(|other| format!("two works run beside each other: {other:?}, {call:?}")));
        }
        wrong
    }
}

impl Case {
    /// Whether its transaction holds its locks until it returns. The server releases them as soon as a statement fails.
    fn holds_the_row(self) -> bool {
        !matches!(self, Self::End { .. } | Self::Cut | Self::Ignored | Self::StatementFails(_))
    }
}
