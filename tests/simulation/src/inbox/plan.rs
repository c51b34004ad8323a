//! What happens in a call, drawn before it begins.

use std::time::Duration;

use history::Rng;
use history::inbox::{CLASSES, Class};

/// What happens before the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    Nothing,
    /// The idle connections are closed.
    Cut,
    /// Nothing reaches the server until the call has ended.
    Unreachable,
    /// All connections of the pool are idle, and silent. New ones are not.
    Silent,
    /// An operator's transaction holds the row of the key for this time, and then commits it or not.
    Held {
        lasts: Duration,
        commits: bool,
    },
    /// BEGIN fails with this SQLSTATE.
    BeginFails(&'static str),
    /// The first statement fails with this SQLSTATE.
    InsertFails(&'static str),
}

/// What the work does after its effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    Succeed,
    Fail(Class),
    Panic,
    /// Goes on until its deadline, in a statement or not.
    Hang {
        in_statement: bool,
    },
    /// Takes this long.
    Take(Duration),
    /// A statement fails with this SQLSTATE.
    StatementFails(&'static str),
    /// A parameter has another type than the statement.
    WrongParameter,
    /// A statement fails, and the work goes on.
    Ignored,
    /// A statement fails, and is rolled back to a savepoint.
    Savepoint,
    /// Executes COMMIT or ROLLBACK, then maybe another statement, and succeeds or fails.
    End {
        commits: bool,
        then: Option<&'static str>,
        fails: Option<Class>,
    },
    /// Deallocates all prepared statements.
    Deallocate,
    /// Makes its transaction read-only.
    MakeReadOnly,
    /// Executes this statement of [`LEAVES`].
    Leave(usize),
    /// A trigger keeps its row from being updated.
    KeepRow,
    /// Its connection is closed, and the next statement fails.
    Cut,
    /// The caller drops the call.
    Dropped {
        in_statement: bool,
    },
}

/// What happens at the commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtCommit {
    Nothing,
    /// It fails with this SQLSTATE.
    Fails(&'static str),
    /// The server crashes before it takes effect, or after, and starts again.
    Crash {
        before: bool,
    },
    /// The request is lost, or the reply, and then the server is unreachable for this time.
    Lost {
        request: bool,
        unreachable: Duration,
    },
    /// Nothing arrives until the deadline.
    Silent,
    /// The server does not say whether the transaction still exists.
    Unchecked,
}

/// What happens if a permanent failure is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    Recorded,
    Fails(Class),
    LostReply,
    /// The transaction begins on another connection, after a session that ends.
    SessionEnds,
    /// The transaction begins late: a caller that has waited for the row does the work meanwhile.
    Late,
    /// Nothing arrives from when the work fails until the deadline.
    Silent,
}

/// Longer than the retention of some rows, and than some timeouts.
pub const FOR_A_WHILE: Duration = Duration::from_millis(500);

/// A call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Attempt,
    Read,
    Check,
    DeleteExpired,
}

#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub what: What,
    pub before: Before,
    pub case: Case,
    pub at_commit: AtCommit,
    pub on_failure: OnFailure,
    /// How long the call may take.
    pub time: Duration,
}

/// SQLSTATEs of each class, and some that are in none.
const CODES: [&str; 24] = [
    "08006", "08P01", "22000", "22012", "23514", "25001", "25006", "40001", "40P01", "53100", "53200", "53300",
    "55006", "55P03", "57014", "57P01", "57P02", "57P03", "58000", "58030", "P0001", "0A000", "42P01", "XX000",
];

/// SQLSTATEs of a commit that is rolled back.
const COMMIT_CODES: [&str; 8] = ["23503", "23514", "40001", "40P01", "53100", "57014", "P0001", "XX000"];

/// SQLSTATEs of a commit that may have taken effect: the server shuts down, or cannot write.
pub const LOOKED_UP: [&str; 4] = ["08006", "57P01", "57P02", "25006"];

/// SQLSTATEs of BEGIN, or of the first statement.
const BEGIN_CODES: [&str; 10] =
    ["08006", "25006", "40001", "40P01", "53100", "53300", "57014", "57P01", "57P03", "XX000"];

/// Statements that change the session, which the next work must not see.
pub const LEAVES: [&str; 6] = [
    "SET app.tenant = 'first'",
    "SET TimeZone = 'Asia/Tokyo'",
    "SET client_connection_check_interval = 1",
    "SELECT pg_advisory_lock(pg_backend_pid())",
    "PREPARE left_behind AS SELECT 1",
    "/* of /* a */ message */ -- a comment\n prepare left_behind AS SELECT 1",
];

impl Plan {
    /// `timeout` is that of the database.
    pub fn draw(rng: &mut Rng, timeout: Duration, is_alone: bool) -> Self {
        let what = match rng.draw(0..100) {
            0..78 => What::Attempt,
            78..92 => What::Read,
            92..95 => What::Check,
            _ => What::DeleteExpired,
        };
        let time = if rng.happens(100) { rng.ms(0..400) } else { 3 * timeout + rng.ms(0..500) };
        let plain = Self::plain(what, time);
        let before = before(rng, timeout, is_alone);
        if what != What::Attempt {
            return Self { before, ..plain };
        }
        if is_alone && rng.happens(40) {
            return Self { case: Case::Fail(Class::Permanent), on_failure: OnFailure::Late, ..plain };
        }
        let case = case(rng, is_alone);
        // Other works do not get so far, or have another reason to fail.
        let commits = matches!(case, Case::Succeed | Case::Take(_) | Case::Savepoint | Case::Leave(_));
        let at_commit = if commits && rng.happens(400) { at_commit(rng, is_alone) } else { AtCommit::Nothing };
        let on_failure = match rng.draw(0..7) {
            0 => OnFailure::Fails(*rng.pick(&CLASSES)),
            1 if is_alone => OnFailure::LostReply,
            2 if is_alone => OnFailure::SessionEnds,
            3 | 4 if is_alone => OnFailure::Late,
            5 if is_alone => OnFailure::Silent,
            _ => OnFailure::Recorded,
        };
        Self { before, case, at_commit, on_failure, ..plain }
    }

    /// A call without any fault.
    pub fn plain(what: What, time: Duration) -> Self {
        Self {
            what,
            before: Before::Nothing,
            case: Case::Succeed,
            at_commit: AtCommit::Nothing,
            on_failure: OnFailure::Recorded,
            time,
        }
    }

    /// Whether its work fails, and nothing arrives after that.
    pub fn fails_in_silence(&self) -> bool {
        matches!(self.case, Case::Fail(_)) && self.on_failure == OnFailure::Silent
    }
}

/// Faults of the connection are for callers with one task: they would affect the other task too.
fn before(rng: &mut Rng, timeout: Duration, is_alone: bool) -> Before {
    match rng.draw(0..24) {
        0 if is_alone => Before::Cut,
        1 if is_alone => Before::Unreachable,
        2 if is_alone => Before::Silent,
        3 | 4 => Before::Held {
            lasts: rng.ms(1..50) + timeout.mul_f64(1.4 * f64::from(u8::from(rng.happens(400)))),
            commits: rng.happens(500),
        },
        5 if is_alone => Before::BeginFails(rng.pick::<&str>(&BEGIN_CODES)),
        6 if is_alone => Before::InsertFails(rng.pick::<&str>(&BEGIN_CODES)),
        _ => Before::Nothing,
    }
}

fn case(rng: &mut Rng, is_alone: bool) -> Case {
    match rng.draw(0..40) {
        0..3 => Case::Fail(*rng.pick(&CLASSES)),
        3 => Case::Fail(Class::Permanent),
        4 => Case::Panic,
        5 => Case::Hang { in_statement: rng.happens(500) },
        6..9 => Case::Take(rng.ms(1..300)),
        9..13 if is_alone => Case::StatementFails(rng.pick::<&str>(&CODES)),
        13 => Case::WrongParameter,
        14 => Case::Ignored,
        15 | 16 => Case::Savepoint,
        17 => end(None, rng),
        18 => end(Some("DEALLOCATE ALL"), rng),
        19 => end(Some("BEGIN"), rng),
        20 => Case::Deallocate,
        21 => Case::MakeReadOnly,
        22..26 | 36..40 => Case::Leave(usize::try_from(rng.draw(0..LEAVES.len() as u64)).unwrap_or_default()),
        26 if is_alone => Case::Cut,
        27 => Case::Dropped { in_statement: rng.happens(500) },
        28 => Case::KeepRow,
        _ => Case::Succeed,
    }
}

/// `then` makes the last statement of the inbox fail, or be executed in another transaction.
fn end(then: Option<&'static str>, rng: &mut Rng) -> Case {
    let fails = if rng.happens(400) { Some(*rng.pick(&CLASSES)) } else { None };
    Case::End { commits: rng.happens(500), then, fails }
}

fn at_commit(rng: &mut Rng, is_alone: bool) -> AtCommit {
    match rng.draw(0..9) {
        0 | 1 if is_alone => {
            let unreachable = *rng.pick(&[Duration::ZERO, Duration::ZERO, FOR_A_WHILE, Duration::MAX]);
            AtCommit::Lost { request: rng.happens(500), unreachable }
        }
        2 if is_alone => AtCommit::Silent,
        3 => AtCommit::Crash { before: rng.happens(500) },
        4 if is_alone => AtCommit::Fails(rng.pick::<&str>(&LOOKED_UP)),
        5 | 6 if is_alone => AtCommit::Fails(rng.pick::<&str>(&COMMIT_CODES)),
        7 if is_alone => AtCommit::Unchecked,
        _ => AtCommit::Nothing,
    }
}
