//! What works saw of their sessions, and how many sessions there were.

use std::time::Duration;

use history::inbox::PAYER;
use tokio::time::Instant;

use super::Truth;
use super::expected::ANY;
use crate::inbox::caller::{KINDS, hosts};
use crate::inbox::calls::{Call, Told};
use crate::inbox::plan::{AtCommit, Before, Case, LEAVES, OnFailure, What};
use crate::inbox::world::MAX_SESSION;
use crate::postgres::{Opened, SessionSeen};

/// The limits end this long before the deadline, so that the error names the wait.
const MARGINS: Duration = Duration::from_millis(100);

/// How long the last message of a login takes at most.
const LOGIN: Duration = Duration::from_millis(4);

/// How long it takes at most from when the caller begins to open a session to when the server accepts its login: the
/// messages of the stream, of the startup and of the password.
const OPENS: Duration = Duration::from_millis(5 * 4);

impl Truth<'_> {
    /// A work sees nothing of those before it, and its transaction has the limits of its call.
    pub(super) fn wrong_sessions(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for call in self.calls {
            let Some(kind) = KINDS.get(call.caller) else { continue };
            let of_recordings = call.runs.iter().flat_map(|run| &run.recordings);
            let seen = call.runs.iter().filter_map(|run| Some((run.session.as_ref()?, run.begun)));
            let recorded = of_recordings.filter_map(|recording| Some((recording.session.as_ref()?, call.ended())));
            for (session, at) in seen.chain(recorded) {
                let user = if kind.has_password { PAYER } else { "app" };
                let is_plain = session.user == user
                    && session.time_zone == "UTC"
                    && session.tenant.is_empty()
                    && session.prepared_by_sql == 0
                    && session.advisory_locks == 0;
                let is_limited = has_limits(session, call, at, kind.timeout);
                let is_recent = !kind.has_password || session.opened + MAX_SESSION > call.begun;
                if !(is_plain && is_limited && is_recent) {
                    wrong.push(format!("a work has another session, or other limits: {session:?}, {call:?}"));
                }
            }
        }
        wrong
    }

    /// A transaction begins only on a session that is young enough. Its caller has one connection.
    pub(super) fn wrong_ages(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for call in self.calls.iter().filter(|call| call.has_reply()) {
            if KINDS.get(call.caller).is_none_or(|kind| !kind.has_password) {
                continue;
            }
            let host = hosts(call.caller).server;
            let before = self.opened.iter().filter(|opened| opened.host == host && opened.at <= call.ended());
            let last = before.map(|opened| opened.at).max();
            if last.is_none_or(|at| at + MAX_SESSION <= call.begun) {
                wrong.push(format!("its session, opened at {last:?}, is too old: {call:?}"));
            }
        }
        wrong
    }

    /// A session is opened only if there is none, or one was lost.
    pub(super) fn wrong_number_of_sessions(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for (number, kind) in KINDS.iter().enumerate() {
            let host = hosts(number).server;
            let opened: Vec<_> = self.opened.iter().filter(|opened| opened.host == host).collect();
            let connections = kind.connections.get();
            for (before, next) in opened.iter().zip(opened.iter().skip(connections)) {
                // The caller counts from when it began to open it.
                let has_ended = kind.has_password && next.at + OPENS >= before.at + MAX_SESSION;
                if !has_ended && !self.loses_connection(number, before, next.at) {
                    wrong.push(format!("a session is opened without a reason: {next:?}, after {before:?}"));
                }
            }
        }
        wrong
    }

    /// Whether the caller may have lost a session since this one was opened.
    fn loses_connection(&self, caller: usize, opened: &Opened, until: Instant) -> bool {
        // The server may accept a login after the call that asked for it has ended.
        let during = |call: &&Call| call.caller == caller && call.begun <= until && call.ended() + LOGIN >= opened.at;
        // It has waited for one lock after another, each for less than the timeout.
        let has_waited = |call: &Call| call.ended() >= call.begun + 2 * KINDS[caller].timeout;
        // A transaction that began before its end fails later, and closes all connections.
        self.disturbances.iter().any(|disturbance| disturbance.from <= until && disturbance.until + OPENS >= opened.at)
            || self
                .calls
                .iter()
                .filter(during)
                .any(|call| loses(call) || has_waited(call) || self.is_disturbed(call, &ANY))
    }
}

impl Call {
    /// Whether the server has replied to its statement.
    fn has_reply(&self) -> bool {
        matches!(
            self.told,
            Told::Done(_)
                | Told::DoneBefore(_)
                | Told::Mismatch
                | Told::Row(_)
                | Told::Checked(Ok(()))
                | Told::Deleted(Ok(_))
        )
    }
}

/// Whether a call with this plan may close a connection.
fn loses(call: &Call) -> bool {
    let plan = call.plan;
    let is_sql_prepare = |case: Case| matches!(case, Case::Leave(at) if LEAVES[at].to_lowercase().contains("prepare"));
    let of_connection = |code: &str| code.starts_with("08") || code.starts_with("57P") || code == "25006";
    let begins = match plan.before {
        Before::Cut | Before::Unreachable | Before::Silent => true,
        Before::BeginFails(code) | Before::InsertFails(code) => of_connection(code),
        Before::Nothing | Before::Held { .. } => false,
    };
    let works = !call.runs.is_empty()
        && (matches!(plan.case, Case::Panic | Case::Hang { .. } | Case::Cut | Case::Dropped { .. } | Case::Deallocate)
            || matches!(plan.case, Case::End { .. })
            || matches!(plan.case, Case::StatementFails(code) if of_connection(code))
            || is_sql_prepare(plan.case)
            || matches!(
                plan.at_commit,
                AtCommit::Lost { .. } | AtCommit::Silent | AtCommit::Crash { .. } | AtCommit::Unchecked
            )
            || matches!(plan.at_commit, AtCommit::Fails(code) if of_connection(code))
            || matches!(plan.on_failure, OnFailure::LostReply | OnFailure::SessionEnds | OnFailure::Silent));
    // A cleanup had little time for a new connection, which it takes a tenth of.
    let cleans_up = plan.what == What::Attempt && plan.time < Duration::from_millis(1500);
    // The rollback has no time, or the wait for a lock ended at the deadline.
    begins || works || cleans_up || matches!(call.told, Told::Nothing) || call.ended() + 2 * MARGINS >= call.ends
}

/// Whether the server ends each wait of the transaction as late as it may: the timeout, and the deadline.
fn has_limits(session: &SessionSeen, call: &Call, at: Instant, timeout: Duration) -> bool {
    let (rounded, longest) = (Duration::from_millis(2), call.ends - call.begun);
    let shortest = call.ends.saturating_duration_since(at).saturating_sub(rounded);
    let is_left = |limit: Duration| limit <= longest && limit >= shortest;
    // A wait with a limit of 0 does not end.
    let is_lock = |limit: Duration| {
        !limit.is_zero()
            && limit <= timeout.min(longest.saturating_sub(MARGINS)).max(rounded)
            && limit >= timeout.min(shortest.saturating_sub(MARGINS))
    };
    is_left(session.statement_timeout)
        && is_left(session.idle_timeout)
        && session.transaction_timeout.is_none_or(is_left)
        && is_lock(session.lock_timeout)
        && is_lock(session.check_interval)
}
