//! A run that is right.
//!
//! - `edits`: what the verdict says if one thing in it is otherwise

mod edits;

use history::Hex;
use history::inbox::Class;
use idempotent_sqs::idempotency::Failure;

use super::kind::{self, PAYMENTS};
use super::owner::fingerprint;
use super::plan::{Case, Ends, Plan};
use super::session::Session;
use super::tables::{Change, ChangeKind, InboxRow, Inserted, Tables};
use super::tally::{Error, Failed, Message, Recording, Returned, Run, Sent, Span, Told};
use super::verdict::Seen;
use super::watched::{Acquired, Answer, Called};

/// What the wall clock is ahead of the monotonic clock, µs.
const AHEAD_US: u64 = 1_000_000_000_000;

/// From the begin of a delivery to the next, µs.
const STEP_US: u64 = 5_000_000;

const RESULT: &[u8] = b"done";

/// The state of a session that no work has used.
const STATE: [&str; 12] = ["app", "app", "UTC", "", "public", "0", "0", "0", "0", "0", "false", "owner-0"];

const PERMANENT: Failure = Failure { uncertain: false, permanent: true };

const UNCERTAIN: Failure = Failure { uncertain: true, permanent: false };

/// The numbers of the deliveries.
const DONE: usize = 0;
const DUPLICATE: usize = 1;
const REFUSED: usize = 2;
const COMMITTED: usize = 3;
const UNFINISHED: usize = 4;
const LOCKED: usize = 5;
const CONFLICT: usize = 6;

fn begun_us(number: usize) -> u64 {
    (number as u64 + 1) * STEP_US
}

fn fence(number: usize) -> u64 {
    AHEAD_US + begun_us(number) + 1000
}

/// A delivery that got a claim.
fn sent(number: usize, key: &str, case: Case, told: Told, settled: Called) -> Sent {
    let ((_, kind), begun_us) = (kind::owners().next().unwrap(), begun_us(number));
    let claim = Acquired::Claim { fence: fence(number), attempt: 1, is_recovery: false };
    let returned = Returned { told, fence: Some(fence(number)), attempts: Some(1), ran: true, is_recovery: false };
    Sent {
        message: Message { namespace: PAYMENTS, key: key.to_owned(), payload: 0, id: 0 },
        owner: 0,
        kind,
        plan: Plan { case, ..Plan::SUCCEED },
        begun_us,
        work_us: begun_us + 3_000_000,
        end_us: begun_us + 4_000_000,
        calls: vec![Called::Acquire { owner: Hex([0; 8]), answer: Some(claim) }, settled],
        returned: Some(returned),
        ended_us: begun_us + 100_000,
    }
}

fn run(delivery: usize, key: &str, returned: Result<Vec<u8>, Failed>) -> Run {
    let begun_us = begun_us(delivery) + 10_000;
    Run {
        delivery,
        key: key.to_owned(),
        fence: fence(delivery),
        attempt: 1,
        is_recovery: false,
        begun_us,
        ends_us: begun_us + 2_990_000,
        session: Some(session(delivery)),
        effect_us: Some(begun_us + 1000),
        has_ended: false,
        returned: Some(returned),
        ended_us: begun_us + 20_000,
        recordings: Vec::new(),
    }
}

fn session(delivery: usize) -> Session {
    Session {
        pid: 7,
        transaction: transaction(delivery),
        state: STATE.map(str::to_owned).into(),
        isolation: "read committed".to_owned(),
        lock_ms: 1000,
        statement_ms: 2990,
        idle_ms: 2990,
    }
}

fn transaction(delivery: usize) -> i64 {
    700 + i64::try_from(delivery).unwrap()
}

fn change(delivery: usize, key: &str, kind: ChangeKind, result: Option<&[u8]>) -> Change {
    let begun_us = begun_us(delivery) + 5000;
    let row = InboxRow {
        namespace: PAYMENTS.to_owned(),
        key: key.to_owned(),
        fingerprint: fingerprint(0).as_bytes().to_vec(),
        fence: i64::try_from(fence(delivery)).unwrap(),
        attempts: 1,
        result: result.map(<[u8]>::to_vec),
        done_at_us: i64::try_from(begun_us + AHEAD_US).unwrap(),
    };
    let committed_us = begun_us + 40_000;
    Change { kind, row, transaction: transaction(delivery), begun_us, committed_us, by: "owner-0".to_owned() }
}

/// An expired row that a cleanup has deleted.
fn deletion() -> Change {
    let mut change = change(CONFLICT, "expired-1", ChangeKind::Delete, Some(RESULT));
    (change.row.done_at_us, change.by, change.transaction) = (0, "housekeeper".to_owned(), 900);
    change.begun_us = 40 * 24 * 3_600_000_000;
    change
}

fn error(class: Class, text: &str) -> Error {
    Error { class, text: text.to_owned() }
}

fn failed(class: Class, statement: Option<&str>, took_us: u64) -> Failed {
    Failed { class, statement: statement.map(str::to_owned), took_us }
}

fn fails(failure: Failure) -> Called {
    Called::Fail { failure, answer: Some(Answer::Recorded) }
}

fn completes() -> Called {
    Called::Complete { result: Some(RESULT.to_vec()), answer: Some(Answer::Recorded) }
}

fn releases() -> Called {
    Called::Release { has_claim: true, answer: Some(Answer::Recorded) }
}

/// One work is done and delivered again; one is refused; one commits by itself, and is delivered again; one waits for a
/// lock; and one waits for the transaction of another delivery.
fn seen() -> Seen {
    let done = Told::Done { result: RESULT.to_vec(), by_own_record: false };
    let duplicate = Told::Duplicate { result: Some(RESULT.to_vec()) };
    let refused = Told::FailedPermanently { error: error(Class::Permanent, "planned"), uncertain: false };
    let uncertain = |text| Told::Failed { error: error(Class::Uncertain, text), uncertain: true };
    let busy = Told::Unavailable(error(Class::Busy, "55P03"));
    let (committed, locked) = (Case::End(Ends::Commit, 0, None), Case::LockHeld);
    let ended = uncertain("the work executed COMMIT or ROLLBACK");
    let unfinished = uncertain("an earlier attempt; rows WHERE result IS NULL");
    let conflict = Told::Conflict { remains: Plan::SUCCEED.time + super::owner::GRACE };
    let mut sent = vec![
        sent(DONE, "done", Case::Succeed(4), done, completes()),
        sent(DUPLICATE, "done", Case::Succeed(4), duplicate, completes()),
        sent(REFUSED, "refused", Case::Fail(Class::Permanent), refused, fails(PERMANENT)),
        sent(COMMITTED, "committed", committed, ended, fails(UNCERTAIN)),
        sent(UNFINISHED, "committed", Case::Succeed(4), unfinished, fails(UNCERTAIN)),
        sent(LOCKED, "locked", locked, busy, releases()),
        sent(CONFLICT, "locked", Case::Succeed(4), conflict, releases()),
    ];
    // They overlap, and both wait for a second.
    sent[LOCKED].ended_us = begun_us(LOCKED) + 1_100_000;
    sent[CONFLICT].begun_us = begun_us(LOCKED) + 500_000;
    sent[CONFLICT].ended_us = sent[CONFLICT].begun_us + 1_100_000;
    let mut runs = vec![
        run(DONE, "done", Ok(RESULT.to_vec())),
        run(REFUSED, "refused", Err(failed(Class::Permanent, None, 0))),
        run(COMMITTED, "committed", Ok(RESULT.to_vec())),
        run(LOCKED, "locked", Err(failed(Class::Busy, Some("55P03"), 1_000_000))),
    ];
    let recorded = Session { transaction: 800, ..session(REFUSED) };
    let (recorded_us, why) = (begun_us(REFUSED) + 50_000, "planned".to_owned());
    runs[1].recordings =
        vec![Recording { begun_us: recorded_us, why: why.clone(), session: Some(recorded), returned: Some(Ok(())) }];
    runs[2].has_ended = true;
    runs[3].ended_us = runs[3].begun_us + 1_010_000;
    let inserted = |run: usize, transaction, why| Inserted { run, transaction, committed_us: 0, why };
    let changes = vec![
        change(DONE, "done", ChangeKind::Insert, None),
        change(DONE, "done", ChangeKind::Update, Some(RESULT)),
        change(COMMITTED, "committed", ChangeKind::Insert, None),
        deletion(),
    ];
    let tables = Tables {
        rows: vec![changes[1].row.clone(), changes[2].row.clone()],
        changes,
        effects: vec![inserted(0, transaction(DONE), None), inserted(2, transaction(COMMITTED), None)],
        failures: vec![inserted(1, 800, Some(why))],
        changed_others: Vec::new(),
    };
    let locked = vec![Span { from_us: 0, until_us: u64::MAX }];
    let state = STATE.map(str::to_owned).into();
    Seen { sent, runs, tables, state, deleted: vec![1], locked, ahead_us: AHEAD_US, ..Seen::default() }
}
