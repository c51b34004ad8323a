//! What the verdict says if one thing in the run is otherwise.

use history::Hex;
use history::inbox::{Class, SECRET};
use idempotent_sqs::idempotency::Failure;

use super::{
    CONFLICT, DONE, DUPLICATE, LOCKED, REFUSED, RESULT, STEP_US, UNCERTAIN, UNFINISHED, change, deletion, error,
    failed, fails, run, seen,
};
use crate::inbox::kind::INVOICES;
use crate::inbox::plan::Before;
use crate::inbox::tables::{Change, ChangeKind, Inserted};
use crate::inbox::tally::{Overdue, Run, Span, Told, Took};
use crate::inbox::verdict::Seen;
use crate::inbox::watched::{Acquired, Called};

type Edit = fn(&mut Seen);

fn told(seen: &mut Seen, delivery: usize, told: Told) {
    seen.sent[delivery].returned.as_mut().unwrap().told = told;
}

/// What is found, and what is otherwise.
const EDITS: [(&str, Edit); 55] = [
    ("outcomes: its effect is committed", |seen| told(seen, DONE, Told::Unavailable(error(Class::Unavailable, "")))),
    ("outcomes: after its run it should be told", |seen| {
        told(seen, DONE, Told::Done { result: b"other".to_vec(), by_own_record: false });
    }),
    ("outcomes: its effect is not committed", |seen| seen.tables.effects.truncate(0)),
    ("outcomes: it is told otherwise", |seen| {
        told(seen, DUPLICATE, Told::Duplicate { result: Some(b"other".to_vec()) });
    }),
    ("once: it is not told of the row", |seen| told(seen, DUPLICATE, Told::Mismatch)),
    ("outcomes: after its run", |seen| told(seen, REFUSED, Told::Duplicate { result: Some(RESULT.to_vec()) })),
    ("outcomes: its work failed without a reason", |seen| {
        seen.runs[1].returned = Some(Err(failed(Class::Retryable, None, 0)));
    }),
    ("outcomes: its work succeeded, and should not", |seen| seen.runs[1].returned = Some(Ok(Vec::new()))),
    ("outcomes: after its run", |seen| told(seen, LOCKED, Told::Unavailable(error(Class::Unavailable, "55P03")))),
    ("outcomes: its error quotes a value", |seen| told(seen, LOCKED, Told::Unavailable(error(Class::Busy, SECRET)))),
    ("outcomes: it is told otherwise", |seen| {
        told(seen, CONFLICT, Told::Conflict { remains: std::time::Duration::ZERO });
    }),
    ("outcomes: it is told otherwise", |seen| seen.sent[CONFLICT].ended_us = seen.sent[CONFLICT].begun_us + 100_000),
    ("outcomes: it is told otherwise", |seen| "alone".clone_into(&mut seen.sent[CONFLICT].message.key)),
    ("outcomes: it is told otherwise", |seen| {
        told(seen, UNFINISHED, Told::Failed { error: error(Class::Uncertain, ""), uncertain: true });
    }),
    ("outcomes: it ran more than once", |seen| seen.runs.push(run(DONE, "done", Ok(RESULT.to_vec())))),
    ("outcomes: its work was told of another claim", |seen| seen.runs[0].fence += 1),
    ("outcomes: it reports another claim", |seen| seen.sent[DONE].returned.as_mut().unwrap().attempts = Some(2)),
    ("outcomes: its work ran without a claim", |seen| {
        seen.sent[DONE].calls[0] = Called::Acquire { owner: Hex([0; 8]), answer: Some(Acquired::Unavailable) };
    }),
    ("settling: it is settled otherwise", |seen| seen.sent[DONE].calls.truncate(1)),
    ("settling: it is settled otherwise", |seen| seen.sent[REFUSED].calls[1] = fails(UNCERTAIN)),
    ("settling: it is settled otherwise", |seen| {
        seen.sent[LOCKED].calls[1] = fails(Failure { uncertain: false, permanent: false });
    }),
    ("rows: a row is not that of its run", |seen| seen.tables.changes[0].row.fence += 1),
    ("rows: a row is not that of its run", |seen| seen.tables.changes[1].row.result = Some(b"other".to_vec())),
    ("rows: an effect has no row", |seen| drop(seen.tables.changes.remove(1))),
    ("rows: 0 effects have this row", |seen| seen.tables.effects[0].transaction += 1),
    ("rows: the rows are not as their last changes", |seen| drop(seen.tables.rows.pop())),
    ("rows: a failure is not that of its run", |seen| seen.tables.failures[0].run = 0),
    ("rows: a failure is final, and not recorded", |seen| seen.tables.failures.truncate(0)),
    ("once: payments done has these effects", |seen| {
        seen.tables.effects.push(Inserted { transaction: 999, ..seen.tables.effects[0].clone() });
    }),
    ("once: it ran although there was a row", |seen| seen.runs.push(run(DUPLICATE, "done", Ok(RESULT.to_vec())))),
    ("once: it is not told of the row", |seen| told(seen, DUPLICATE, Told::FailedBefore)),
    ("once: two works run at the same time", |seen| {
        seen.runs.push(Run { begun_us: seen.runs[0].begun_us + 1, ..run(DONE, "done", Ok(Vec::new())) });
    }),
    ("sessions: a work sees what another one left", |seen| {
        "left behind".clone_into(&mut seen.runs[0].session.as_mut().unwrap().state[3]);
    }),
    ("sessions: a transaction has other limits", |seen| {
        "serializable".clone_into(&mut seen.runs[1].session.as_mut().unwrap().isolation);
    }),
    ("sessions: a session was replaced", |seen| seen.runs[1].session.as_mut().unwrap().pid = 8),
    ("times: its transaction is not over", |seen| {
        seen.overdue.push(Overdue { what: "a frozen process", due_us: 0, over_us: STEP_US });
    }),
    ("times: it took too long", |seen| {
        seen.took.push(Took { what: "a cleanup", from_us: 0, until_us: STEP_US, limit_us: 1 });
    }),
    ("times: a delivery did not end in time", |seen| seen.sent[DONE].ended_us += 2 * STEP_US),
    ("cleanup: this row was to be kept", |seen| seen.tables.changes[3].row.result = None),
    ("cleanup: the cleanups said", |seen| seen.deleted[0] = 2),
    ("rows: archive k1 was changed", |seen| {
        seen.tables.changed_others.push("archive k1 was changed or deleted".to_owned());
    }),
    ("rows: 2 effects have this row", |seen| seen.tables.effects.push(seen.tables.effects[0].clone())),
    ("rows: a failure was recorded that is not permanent, or twice", |seen| {
        let recording = seen.runs[1].recordings[0].clone();
        seen.runs[1].recordings.push(recording);
    }),
    ("rows: a failure was recorded of work that is done", |seen| {
        let row = Change { committed_us: 0, transaction: 999, ..change(REFUSED, "refused", ChangeKind::Insert, None) };
        seen.tables.changes.push(row);
    }),
    ("outcomes: its work was cancelled before its deadline", |seen| seen.runs[0].returned = None),
    ("outcomes: after its run", |seen| {
        told(seen, REFUSED, Told::Failed { error: error(Class::Permanent, "planned"), uncertain: false });
    }),
    ("settling: it is settled otherwise", |seen| {
        told(seen, DONE, Told::Done { result: RESULT.to_vec(), by_own_record: true });
    }),
    ("sessions: a statement is outdated again", |seen| {
        let outdated = || Some(Err(failed(Class::Busy, Some("outdated"), 0)));
        (seen.runs[0].returned, seen.runs[1].returned) = (outdated(), outdated());
    }),
    ("sessions: a transaction has other limits", |seen| seen.runs[0].session.as_mut().unwrap().statement_ms = 0),
    ("times: a work began late", |seen| seen.runs[0].begun_us += 2_000_000),
    ("times: it waited otherwise for a lock", |seen| {
        seen.runs[3].returned = Some(Err(failed(Class::Busy, Some("55P03"), 100_000)));
        seen.runs[3].ended_us -= 900_000;
    }),
    ("cleanup: this row was to be kept", |seen| seen.tables.changes[3].row.done_at_us = i64::MAX / 2),
    ("cleanup: this row was to be kept", |seen| {
        (seen.tables.changes[3].row.namespace, seen.tables.changes[3].by) = (INVOICES.to_owned(), "owner-0".to_owned());
    }),
    ("cleanup: 11 rows at once", |seen| {
        let deletions = vec![deletion(); 10];
        seen.tables.changes.extend(deletions);
        seen.deleted[0] += 10;
    }),
    ("cleanup: no attempt deleted a row", |seen| seen.sent.extend(vec![seen.sent[DONE].clone(); 81])),
];

#[test]
fn nothing_is_wrong_in_a_run_that_is_right() {
    let faults: Vec<_> = seen().faults().collect();
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn each_rule_finds_what_is_otherwise() {
    for (number, (found, edit)) in EDITS.into_iter().enumerate() {
        let mut seen = seen();
        edit(&mut seen);
        let faults: Vec<_> = seen.faults().collect();
        assert!(faults.iter().any(|fault| fault.starts_with(found)), "edit {number}, {found}: {faults:#?}");
        // On a slow machine, nothing is late. A wait that was too short stays one.
        let is_late = found.starts_with("times: ") && !found.starts_with("times: it waited");
        seen.slow.push(Span { from_us: 0, until_us: u64::MAX });
        assert!(!is_late || seen.faults().next().is_none(), "edit {number}: {:#?}", seen.faults().collect::<Vec<_>>());
    }
}

#[test]
fn a_way_that_is_cut_explains_that_a_delivery_does_not_run() {
    let mut seen = seen();
    told(&mut seen, CONFLICT, Told::NoStore { reason: "unreachable".to_owned() });
    seen.sent[CONFLICT].returned.as_mut().unwrap().fence = None;
    assert!(seen.faults().any(|fault| fault.starts_with("outcomes")));
    seen.sent[CONFLICT].plan.before = Before::Unreachable;
    let faults: Vec<_> = seen.faults().collect();
    assert!(faults.is_empty(), "{faults:#?}");
}
