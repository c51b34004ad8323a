//! What works saw of their sessions: nothing of earlier messages, and the limits of their transaction.

use std::collections::BTreeMap;

use history::inbox::Class;

use super::{SLACK_US, Seen};
use crate::inbox::plan::{Before, Case, LEAVES, OnFailure, Plan};
use crate::inbox::session::Session;
use crate::inbox::tally::{Run, Sent, Span};

impl Seen {
    pub(super) fn wrong_sessions(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for run in &self.runs {
            let sent = &self.sent[run.delivery];
            let recorded = run.recordings.iter().filter_map(|recording| recording.session.as_ref());
            for session in run.session.iter().chain(recorded) {
                if session.state != self.new_state(sent) {
                    faults.push(format!("a work sees what another one left: {session:?}, {sent:?}"));
                }
                if !has_limits(session, sent, run) {
                    faults.push(format!("a transaction has other limits: {session:?}, {run:?}, {sent:?}"));
                }
            }
        }
        faults.extend(self.replaced_sessions());
        faults.extend(self.outdated_again());
        faults
    }

    /// The state of a new session of this owner.
    fn new_state(&self, sent: &Sent) -> Vec<String> {
        let mut state = self.state.clone();
        if let [user, session_user, .., name] = &mut *state {
            sent.kind.user.name().clone_into(user);
            sent.kind.user.name().clone_into(session_user);
            *name = sent.session();
        }
        state
    }

    /// Sessions that were replaced without a reason. Up to one of fifty may be: the reason of a few is not seen, such
    /// as a reply that came late.
    fn replaced_sessions(&self) -> Vec<String> {
        let mut runs: BTreeMap<usize, Vec<&Run>> = BTreeMap::new();
        for run in self.runs.iter().filter(|run| run.session.is_some()) {
            let sent = &self.sent[run.delivery];
            if sent.kind.tasks == 1 {
                runs.entry(sent.owner).or_default().push(run);
            }
        }
        let (mut faults, mut pairs) = (Vec::new(), 0);
        for (owner, mut runs) in runs {
            runs.sort_by_key(|run| run.begun_us);
            for pair in runs.windows(2) {
                pairs += 1;
                let pids = [pair[0], pair[1]].map(|run| run.session.as_ref().map(|session| session.pid));
                if pids[0] != pids[1] && !self.may_be_replaced(owner, pair[0], pair[1]) {
                    faults.push(format!("a session was replaced without a reason: {:?}, {:?}", pair[0], pair[1]));
                }
            }
        }
        if faults.len() <= pairs / 50 { Vec::new() } else { faults }
    }

    /// Whether the session of the first run may have ended before the second one.
    fn may_be_replaced(&self, owner: usize, first: &Run, second: &Run) -> bool {
        let span = Span { from_us: first.begun_us, until_us: second.begun_us };
        let between = self.sent.iter().filter(|sent| sent.owner == owner && sent.span().overlaps(span));
        let spans = [&self.disturbed, &self.read_only, &self.slow_deletes, &self.slow, &self.ended_idle];
        let is_disturbed = spans.into_iter().flatten().any(|disturbed| disturbed.overlaps(span));
        let has_waited =
            |sent: &Sent| self.is_contended(sent) && sent.ended_us > sent.work_us.saturating_sub(4 * SLACK_US);
        is_disturbed || between.into_iter().any(|sent| closes_session(&sent.plan) || has_waited(sent))
    }

    /// Statements that are outdated on a session on which they were outdated before.
    fn outdated_again(&self) -> Vec<String> {
        let mut sessions = BTreeMap::new();
        let mut faults = Vec::new();
        for run in &self.runs {
            if let (Some(session), Some(Err(failed))) = (&run.session, &run.returned)
                && failed.statement.as_deref() == Some("outdated")
                && let Some(before) = sessions.insert(session.pid, run)
            {
                faults.push(format!("a statement is outdated again: {before:?}, {run:?}"));
            }
        }
        faults
    }
}

/// Whether the session may end with a delivery with this plan.
fn closes_session(plan: &Plan) -> bool {
    let Plan { case, before, leaves, on_failure, .. } = plan;
    let is_cut = !matches!(
        case,
        Case::Succeed(_)
            | Case::Fail(_)
            | Case::Long
            | Case::Raise(_)
            | Case::WrongData
            | Case::WrongParameter
            | Case::WrongCharacter
            | Case::Ignored
            | Case::Savepoint
            | Case::LockTwo
            | Case::LockHeld
            | Case::Cancelled
            | Case::Outdated
            | Case::Paused
            | Case::AtCommit(_)
    );
    // The server seems to shut down.
    let ends = matches!(case, Case::AtCommit(code) if Class::of(code) == Class::Unavailable || code.starts_with("25"));
    let prepares = leaves.is_some_and(|leaves| LEAVES[leaves].to_lowercase().contains("prepare"));
    is_cut || ends || prepares || *before != Before::Nothing || *on_failure != OnFailure::Recorded
}

/// The limits that docs/inbox.md has. The times are left when the transaction begins.
fn has_limits(session: &Session, sent: &Sent, run: &Run) -> bool {
    let left_ms = i64::try_from(run.ends_us.saturating_sub(sent.begun_us) / 1000).unwrap() + 2;
    let lock_ms = i64::try_from(sent.kind.timeout.as_millis()).unwrap();
    session.isolation == "read committed"
        && (1..=lock_ms.min(left_ms)).contains(&session.lock_ms)
        && (1..=left_ms).contains(&session.statement_ms)
        && (1..=left_ms).contains(&session.idle_ms)
}
