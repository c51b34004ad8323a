//! Whether what the owners were told, what the works saw, and what the tables have agree with each other and with
//! docs/inbox.md.
//!
//! - `expected`: what a delivery has to return after what its work did
//! - `outcomes`: what the deliveries returned
//! - `settling`: what they told the store
//! - `rows`: the rows, the effects and the recorded failures
//! - `once`: that work which is done or at work is not done again
//! - `sessions`: what works saw of their sessions
//! - `times`: when something has to be over

mod expected;
mod once;
mod outcomes;
mod rows;
mod sessions;
mod settling;
mod times;

use std::collections::{BTreeMap, BTreeSet};

use harness::torture::tally::lock;
use history::{Allowances, Effect, Hex, History, Outside, Report};
use idempotent_sqs_postgres::OutagePolicy;

use super::kind::Kind;
use super::servers::has_all_characters;
use super::tables::{Change, ChangeKind, Tables};
use super::tally::{Message, Overdue, Returned, Run, Sent, Span, Tally, Told, Took};
use super::watched::{Acquired, Called};

/// By how much a time may be off that one process notes and another one has, µs.
const SLACK_US: u64 = 60_000;

/// Everything that was seen in a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) sent: Vec<Sent>,
    pub(crate) runs: Vec<Run>,
    pub(crate) tables: Tables,
    /// The state of a session that no work has used.
    pub(crate) state: Vec<String>,
    /// What the cleanups of the housekeeper returned.
    pub(crate) deleted: Vec<u64>,
    /// When all deliveries may have been disturbed.
    pub(crate) disturbed: Vec<Span>,
    pub(crate) held: Vec<(Message, Span)>,
    pub(crate) altered: Vec<Span>,
    pub(crate) locked: Vec<Span>,
    pub(crate) read_only: Vec<Span>,
    pub(crate) slow_deletes: Vec<Span>,
    pub(crate) slow: Vec<Span>,
    pub(crate) overdue: Vec<Overdue>,
    pub(crate) ended_idle: Vec<Span>,
    pub(crate) took: Vec<Took>,
    /// What the wall clock is ahead of the monotonic clock, µs.
    pub(crate) ahead_us: u64,
    /// Whether the encoding of the database has every character.
    pub(crate) has_all_characters: bool,
    /// What was found to be wrong before.
    pub(crate) wrong: Vec<String>,
}

/// The claim of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claimed {
    /// `None` if the store was unavailable, and the delivery proceeded without it.
    pub(crate) fence: Option<u64>,
    pub(crate) attempt: u8,
    pub(crate) is_recovery: bool,
}

impl Sent {
    /// The answer of the store to the acquire.
    pub(crate) fn acquired(&self) -> Option<&Acquired> {
        self.calls.iter().find_map(|call| match call {
            Called::Acquire { answer, .. } => answer.as_ref(),
            _ => None,
        })
    }

    /// The claim that the work of this delivery has, if it may run.
    pub(crate) fn claimed(&self) -> Option<Claimed> {
        match self.acquired()? {
            Acquired::Claim { fence, attempt, is_recovery } => {
                Some(Claimed { fence: Some(*fence), attempt: *attempt, is_recovery: *is_recovery })
            }
            // Earlier attempts are unknown.
            Acquired::Unavailable if self.kind.outage == OutagePolicy::Proceed => {
                Some(Claimed { fence: None, attempt: 1, is_recovery: true })
            }
            _ => None,
        }
    }

    /// Whether it proceeded without the store.
    fn has_proceeded(&self) -> bool {
        self.claimed().is_some_and(|claimed| claimed.fence.is_none())
    }

    pub(crate) fn told(&self) -> Option<&Told> {
        self.returned.as_ref().map(|Returned { told, .. }| told)
    }
}

impl Seen {
    pub(crate) fn new(
        tally: &Tally,
        (tables, state, deleted): (Tables, Vec<String>, Vec<u64>),
        ahead_us: u64,
        seed: u64,
        wrong: Vec<String>,
    ) -> Self {
        Self {
            sent: lock(&tally.sent).clone(),
            runs: lock(&tally.runs).clone(),
            tables,
            state,
            deleted,
            disturbed: lock(&tally.disturbed).clone(),
            held: lock(&tally.held).clone(),
            altered: lock(&tally.altered).clone(),
            locked: lock(&tally.locked).clone(),
            read_only: lock(&tally.read_only).clone(),
            slow_deletes: lock(&tally.slow_deletes).clone(),
            slow: lock(&tally.slow).clone(),
            overdue: lock(&tally.overdue).clone(),
            ended_idle: lock(&tally.ended_idle).clone(),
            took: lock(&tally.took).clone(),
            ahead_us,
            has_all_characters: has_all_characters(seed),
            wrong,
        }
    }

    /// Everything that is wrong, apart from the history. Each begins with the name of its rule.
    pub(crate) fn faults(&self) -> impl Iterator<Item = String> {
        let rules: [(&str, Vec<String>); 7] = [
            ("outcomes", self.wrong_outcomes()),
            ("settling", self.wrong_settling()),
            ("rows", self.wrong_rows()),
            ("once", self.not_once()),
            ("sessions", self.wrong_sessions()),
            ("times", self.wrong_times()),
            ("cleanup", self.wrong_deletions()),
        ];
        let named = rules
            .into_iter()
            .flat_map(|(rule, faults)| faults.into_iter().map(move |fault| format!("{rule}: {fault}")));
        named.chain(self.wrong.clone())
    }

    /// The verdict on the histories of the consumers. A delivery that proceeds without the store makes calls that no
    /// other attempt makes. So do copies, which have no claims.
    pub(crate) fn report(&self, histories: Vec<(&'static str, History)>, copiers: &[String]) -> Report {
        let mut report = Report::default();
        let proceeded: BTreeSet<Hex<8>> =
            self.sent.iter().filter(|sent| sent.has_proceeded()).filter_map(owner).collect();
        for (namespace, mut history) in histories {
            let mut of_calls = Report::of_calls(&history, Allowances::REAL);
            // The run knows what was lost.
            of_calls.lost_writes.retain(|write| !write.is_known);
            for calls in history.keys.values_mut() {
                calls
                    .retain(|call| !proceeded.contains(&call.call.request().owner) && !copiers.contains(&call.process));
            }
            let effects = self.tables.effects.iter().filter_map(|effect| self.runs.get(effect.run));
            let effects = effects.filter(|run| {
                let sent = &self.sent[run.delivery];
                // What a work commits by itself is judged by its row. After the row has expired, the key is new.
                let is_new = || {
                    self.tables.changes.iter().any(|change| {
                        change.kind == ChangeKind::Delete && u64::try_from(change.row.fence) == Ok(run.fence)
                    })
                };
                sent.message.namespace == namespace && !sent.has_proceeded() && !run.has_ended && !is_new()
            });
            let outside =
                Outside { effects: effects.filter_map(effect).collect(), own_records: true, ..Outside::default() };
            of_calls.add_runs(&history, &outside);
            report.add(of_calls);
        }
        report
    }

    /// The deliveries by outcome.
    pub(crate) fn count(&self, counts: &mut BTreeMap<String, usize>) {
        for sent in &self.sent {
            let told = sent.told().map_or_else(|| "dropped".to_owned(), |told| format!("{told:?}"));
            let name = told.split([' ', '(', '{']).next().unwrap_or_default().to_owned();
            *counts.entry(name).or_default() += 1;
        }
        for run in &self.runs {
            let case = format!("{:?}", self.sent[run.delivery].plan.case);
            let name = format!("run: {}", case.split([' ', '(', '{']).next().unwrap_or_default());
            *counts.entry(name).or_default() += 1;
        }
    }

    /// Whether the machine was slow.
    fn is_slow(&self, span: Span) -> bool {
        self.slow.iter().any(|slow| slow.overlaps(span))
    }

    /// Whether anything else than its plan may have disturbed a delivery.
    fn is_disturbed(&self, sent: &Sent) -> bool {
        self.is_slow(sent.span()) || self.disturbed.iter().any(|disturbed| disturbed.overlaps(sent.span()))
    }

    /// The runs of a delivery, with their numbers.
    fn runs_of(&self, delivery: usize) -> impl Iterator<Item = (usize, &Run)> {
        self.runs.iter().enumerate().filter(move |(_, run)| run.delivery == delivery)
    }

    /// Whether the effect of this run is committed.
    fn is_committed(&self, run: usize) -> bool {
        self.tables.effects.iter().any(|effect| effect.run == run)
    }

    /// The rows that were committed under the key of this message, each as it was inserted or finished.
    fn rows_of(&self, message: &Message) -> impl Iterator<Item = &Change> {
        let key = stored(&message.key);
        let changes = self.tables.changes.iter();
        changes.filter(move |change| {
            change.kind != ChangeKind::Delete
                && (change.row.namespace.as_str(), &change.row.key) == (message.namespace, &key)
        })
    }

    /// The rows that works committed under the key of this message by one transaction each, with what they had then.
    fn done_rows(&self, message: &Message) -> Vec<&Change> {
        let mut rows: BTreeMap<i64, &Change> = BTreeMap::new();
        // The last change of a transaction is how it leaves the row.
        for change in self.rows_of(message) {
            rows.insert(change.transaction, change);
        }
        rows.into_values().collect()
    }
}

/// Stored form of a key.
fn stored(key: &str) -> String {
    idempotent_sqs::Key::new(key).unwrap().stored().into_owned()
}

fn owner(sent: &Sent) -> Option<Hex<8>> {
    sent.calls.iter().find_map(|call| match call {
        Called::Acquire { owner, .. } => Some(*owner),
        _ => None,
    })
}

fn effect(run: &Run) -> Option<Effect> {
    let (key, fence, is_recovery) = (run.key.clone(), run.fence, run.is_recovery);
    Some(Effect { key, fence, is_recovery, at_us: run.effect_us? })
}

/// How long a delivery waits for a lock at most, µs.
fn lock_us(kind: Kind) -> u64 {
    u64::try_from(kind.timeout.as_micros()).unwrap()
}
