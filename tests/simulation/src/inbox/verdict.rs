//! What is wrong: by what the calls returned, and by what the server has committed, which it shows exactly.
//!
//! - `rows`: the rows and the effects
//! - `outcomes`: what each call returned
//! - `expected`: what a call returns after its run
//! - `sessions`: what works saw of their sessions, and how many there were

mod expected;
mod outcomes;
mod rows;
mod sessions;

use std::time::Duration;

use tokio::time::Instant;

use super::caller::{fingerprint, retention};
use super::calls::Call;
use super::world::{Disturbance, Fault, World};
use crate::lock;
use crate::postgres::{Change, Committed, Effect, InboxRow, Opened};

pub use outcomes::UNFINISHED;

/// What happened.
struct Truth<'a> {
    calls: &'a [Call],
    changes: Vec<Change>,
    versions: Vec<Version>,
    effects: Vec<Committed<Effect>>,
    failures: Vec<Committed<Effect>>,
    opened: Vec<Opened>,
    disturbances: Vec<Disturbance>,
    held: Vec<(&'static str, String, Instant, Instant)>,
}

/// A committed row, from when until when it was visible.
struct Version {
    row: InboxRow,
    from: Instant,
    until: Option<Instant>,
}

impl World {
    /// What is wrong with the calls.
    pub fn wrong(&self) -> Vec<String> {
        let calls = lock(&self.calls);
        let changes = self.server.changes();
        let mut disturbances = lock(&self.disturbances).clone();
        let outages = self.server.outages().into_iter();
        disturbances.extend(outages.map(|(from, until)| Disturbance { fault: Fault::Down, from, until }));
        let truth = Truth {
            calls: &calls,
            versions: versions(&changes),
            changes,
            effects: self.server.effects(),
            failures: self.server.failures(),
            opened: self.server.opened(),
            disturbances,
            held: lock(&self.held).clone(),
        };
        let open = self.server.open_transactions();
        let left = (open > 0).then(|| format!("{open} transactions are open in the end"));
        let of_rows = truth.wrong_effects().into_iter().chain(truth.wrong_changes()).chain(truth.wrong_failures());
        let of_calls = truth.wrong_outcomes().into_iter().chain(truth.wrong_runs());
        let of_sessions = truth.wrong_sessions().into_iter().chain(truth.wrong_ages());
        let of_sessions = of_sessions.chain(truth.wrong_number_of_sessions());
        of_rows.chain(of_calls).chain(of_sessions).chain(left).collect()
    }
}

fn versions(changes: &[Change]) -> Vec<Version> {
    let mut versions: Vec<Version> = Vec::new();
    for change in changes {
        if let Some(old) = &change.old {
            let is_old =
                |version: &&mut Version| version.until.is_none() && version.row.is_of(&old.namespace, &old.key);
            if let Some(version) = versions.iter_mut().find(is_old) {
                version.until = Some(change.at);
            }
        }
        if let Some(row) = &change.new {
            versions.push(Version { row: row.clone(), from: change.at, until: None });
        }
    }
    versions
}

impl InboxRow {
    fn is_of(&self, consumer: &str, key: &str) -> bool {
        self.namespace == consumer && self.key == key
    }

    fn has_payload(&self, payload: u64) -> bool {
        self.fingerprint == fingerprint(payload).as_bytes()
    }

    /// Whether its retention is over at this time. An unfinished row is kept.
    fn has_expired(&self, at: Instant) -> bool {
        self.result.is_some() && at > self.done_at + retention(&self.namespace)
    }
}

impl Call {
    fn ended(&self) -> Instant {
        self.ended.unwrap_or(self.ends)
    }
}

impl Truth<'_> {
    /// The committed rows of this key that were visible at some time of the call, and had not expired when it began.
    fn rows_during(&self, call: &Call) -> impl Iterator<Item = &Version> {
        let is_of_call = |version: &&Version| {
            version.row.is_of(call.consumer, &call.key)
                && version.from <= call.ended()
                && version.until.is_none_or(|until| until >= call.begun)
                && !version.row.has_expired(call.begun)
        };
        self.versions.iter().filter(is_of_call)
    }

    fn is_disturbed(&self, call: &Call, faults: &[Fault]) -> bool {
        // What was sent before may arrive later.
        let slack = Duration::from_millis(10);
        self.disturbances.iter().any(|disturbance| {
            faults.contains(&disturbance.fault)
                && disturbance.from <= call.ended() + slack
                && disturbance.until + slack >= call.begun
        })
    }

    /// Whether another transaction may have held the row of the key.
    fn is_contended(&self, call: &Call) -> bool {
        // The transaction of a silent client ends later.
        let late = Duration::from_secs(1);
        let mut others = self
            .calls
            .iter()
            .filter(|other| other.fence != call.fence && other.consumer == call.consumer && other.key == call.key);
        let mut held = self.held.iter().filter(|(consumer, key, ..)| *consumer == call.consumer && *key == call.key);
        others.any(|other| other.begun <= call.ended() && other.ended().max(other.ends) + late >= call.begun)
            || held.any(|(.., from, until)| *from <= call.ended() && *until >= call.begun)
    }
}
