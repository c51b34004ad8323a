//! What the work of a delivery does, and what goes wrong meanwhile.

use std::time::Duration;

use history::Rng;
use history::inbox::{CLASSES, Class};

use super::kind::{BRIEF, Kind, User};
use super::world::LATE;

/// What the work of a delivery does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// What happens before the delivery.
    pub(crate) before: Before,
    /// What the work leaves in its session: a statement of [`LEAVES`].
    pub(crate) leaves: Option<usize>,
    /// Whether the record of the key is deleted from Redis during the work.
    pub(crate) loses_record: bool,
    /// After that, another owner delivers the key, and waits for the transaction of this work.
    pub(crate) rival: Option<Rival>,
    pub(crate) case: Case,
    /// What happens if the failure of the work is recorded.
    pub(crate) on_failure: OnFailure,
    /// Time of the delivery.
    pub(crate) time: Duration,
}

/// A delivery by another owner during a work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rival {
    pub(crate) has_other_payload: bool,
    pub(crate) case: Case,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    Nothing,
    /// The idle connection is closed.
    Cut,
    /// The idle connection is silent.
    Silent,
    /// The server has ended the idle session.
    Terminated,
    /// The server is unreachable.
    Unreachable,
    /// Each reply of the server is late.
    Slow,
    /// Another transaction has inserted the row of the key.
    Held(Held),
}

/// How the wait for the row of another transaction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// The transaction is rolled back.
    RolledBack,
    /// The waiting statement is cancelled.
    Cancelled,
    /// It does not end before the delivery.
    Kept,
}

/// What the work does after its effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Case {
    /// Returns a result of this many bytes.
    Succeed(usize),
    Fail(Class),
    Panic,
    /// Goes on until its deadline.
    Hang,
    /// Takes long, and succeeds.
    Long,
    /// A statement fails with this SQLSTATE.
    Raise(&'static str),
    /// The commit fails with this SQLSTATE, by a deferred constraint.
    AtCommit(&'static str),
    WrongData,
    WrongParameter,
    /// A parameter has a character that the encoding of the database may not have.
    WrongCharacter,
    /// A statement fails, and the work goes on.
    Ignored,
    /// A statement fails, and is rolled back to a savepoint.
    Savepoint,
    /// Locks two rows, in an order that others do not have.
    LockTwo,
    /// Waits for a row that is locked.
    LockHeld,
    /// Its statement is cancelled by an operator.
    Cancelled,
    /// Its session is ended by an operator.
    Terminated,
    /// Executes this statement of [`COMMITS`] or [`ROLLBACKS`], and succeeds or fails.
    End(Ends, usize, Option<Class>),
    /// Deallocates all prepared statements.
    Deallocate,
    /// Makes its transaction read-only.
    MakeReadOnly,
    /// Has a trigger keep its row from being updated.
    KeepRow,
    /// Inserts into a table whose column changes its type.
    Outdated,
    /// Its connection is closed.
    Cut,
    /// Its connection is closed, which it ignores. Then the server may be unreachable.
    CutIgnored {
        is_unreachable: bool,
    },
    /// The reply to its commit is lost. Then the server may be unreachable.
    LostReply {
        is_unreachable: bool,
    },
    /// The request of its commit is lost.
    LostRequest,
    /// Its connection is closed during the commit, which takes long.
    CutAtCommit,
    /// There is no reply to its commit until the deadline.
    SilentAtCommit,
    /// Its process is frozen beyond its deadline, while a statement is executed or not.
    Frozen {
        in_statement: bool,
    },
    /// Its process is frozen, and resumes in time.
    Paused,
    /// Its connection is silent until the deadline.
    Silent,
    /// The caller drops the delivery, while a statement is executed or not.
    Dropped {
        in_statement: bool,
    },
}

/// Which statement the work executes against the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ends {
    Commit,
    Rollback,
}

/// What happens if the failure of the work is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnFailure {
    Recorded,
    /// It cannot be recorded.
    Fails(Class),
    /// The reply to the rollback of the work is late, so another owner may do the work.
    Late,
    /// The reply to its commit is lost.
    LostReply,
}

pub(crate) const COMMITS: [&str; 6] =
    ["COMMIT", "commit work", "END", "/* the end */ COMMIT", "-- the end\nCOMMIT AND NO CHAIN", "COMMIT AND CHAIN"];

pub(crate) const ROLLBACKS: [&str; 4] = ["ROLLBACK", "abort", "/* not so */ ROLLBACK WORK", "rollback and chain"];

/// Statements that change the session. Of the last ones, only the first user has the right.
pub(crate) const LEAVES: [&str; 15] = [
    "SET TimeZone = 'Asia/Tokyo'",
    "SELECT set_config('app.tenant', 'first', false)",
    "SET search_path = public, nowhere",
    "CREATE TEMP TABLE left_behind (key text)",
    "LISTEN payments",
    "DECLARE left_behind CURSOR WITH HOLD FOR SELECT 1",
    "SELECT pg_advisory_lock_shared(1)",
    "SELECT nextval('numbers')",
    "PREPARE left_behind AS SELECT 1",
    "/* of /* a */ message */ PREPARE left_behind AS SELECT 1",
    "-- a comment\nprepare/**/left_behind AS SELECT 1",
    "\n\tPrepare left_behind (int) AS SELECT $1",
    "SET application_name = 'left behind'",
    "SET ROLE clerk",
    "SET SESSION AUTHORIZATION clerk",
];

/// Number of the statements that each user may execute.
const LEAVES_OF_ALL: usize = 13;

/// Number of the statements that this user may execute.
fn leaves(user: User) -> usize {
    if user == User::App { LEAVES.len() } else { LEAVES_OF_ALL }
}

/// SQLSTATEs of each kind, and of classes that are treated like none of them.
const CODES: [&str; 30] = [
    "08006", "08P01", "22000", "22012", "23514", "25001", "25006", "40001", "40P01", "53100", "53200", "53300",
    "53400", "55006", "55P03", "57014", "57P01", "57P02", "57P03", "57P04", "58000", "58030", "P0001", "0A000",
    "42501", "42P01", "40002", "40003", "21000", "XX000",
];

/// SQLSTATEs of a commit that may have taken effect.
pub(crate) const LOOKED_UP: [&str; 3] = ["57P01", "08006", "25006"];

/// SQLSTATEs with which a commit fails.
const CODES_AT_COMMIT: [&str; 12] =
    ["23503", "23514", "22000", "40001", "40P01", "57014", "53100", "57P01", "08006", "25006", "58030", "P0001"];

/// The usual time of a delivery.
pub(crate) const TIME: Duration = Duration::from_secs(4);

/// The time of a delivery that uses it up.
const SHORT: Duration = Duration::from_millis(1200);

/// The time of a few deliveries that succeed.
const LONG: Duration = Duration::from_secs(20);

impl Plan {
    /// Succeeds at once.
    pub(crate) const SUCCEED: Self = Self {
        before: Before::Nothing,
        leaves: None,
        loses_record: false,
        rival: None,
        case: Case::Succeed(20),
        on_failure: OnFailure::Recorded,
        time: TIME,
    };

    /// A plan for each statement, error and failure that takes no time by itself.
    pub(crate) fn each(user: User) -> impl Iterator<Item = Self> {
        let errors = CODES.map(Case::Raise).into_iter().chain(CODES_AT_COMMIT.map(Case::AtCommit));
        let ends = |ends, statements| {
            let failures = CLASSES.map(Some).into_iter().chain([None]);
            failures.enumerate().map(move |(number, fails)| Case::End(ends, number % statements, fails))
        };
        let ends = ends(Ends::Commit, COMMITS.len()).chain(ends(Ends::Rollback, ROLLBACKS.len()));
        let others = [
            Case::Succeed(200),
            Case::Panic,
            Case::WrongData,
            Case::WrongParameter,
            Case::WrongCharacter,
            Case::Ignored,
            Case::Savepoint,
            Case::Cancelled,
            Case::Terminated,
            Case::Deallocate,
            Case::MakeReadOnly,
            Case::KeepRow,
            Case::Outdated,
            Case::Cut,
            Case::CutIgnored { is_unreachable: false },
            Case::LostReply { is_unreachable: false },
            Case::LostRequest,
        ];
        let cases = errors.chain(CLASSES.map(Case::Fail)).chain(ends).chain(others);
        let of_cases = cases.map(|case| Self { case, ..Self::SUCCEED });
        let befores = [Before::Cut, Before::Terminated, Before::Unreachable, Before::Nothing];
        let of_befores = befores.map(|before| Self { before, ..Self::SUCCEED });
        let of_leaves = (0..leaves(user)).map(|leaves| Self { leaves: Some(leaves), ..Self::SUCCEED });
        let on_failure = CLASSES.map(OnFailure::Fails).into_iter().chain([OnFailure::LostReply]);
        let of_failures = on_failure.map(|on_failure| {
            let case = Case::Fail(Class::Permanent);
            Self { case, on_failure, ..Self::SUCCEED }
        });
        of_cases.chain(of_befores).chain(of_leaves).chain(of_failures)
    }

    pub(crate) fn draw(rng: &mut Rng, kind: Kind) -> Self {
        let mut case = Case::draw(rng);
        let mut before = Before::draw(rng);
        // Several deliveries share the connections.
        if kind.tasks > 1 {
            before = if let Before::Held(_) = before { before } else { Before::Nothing };
            case = if case.concerns_connection() { Case::Long } else { case };
        }
        let leaves = rng.happens(400).then(|| usize::try_from(rng.draw(0..leaves(kind.user) as u64)).unwrap());
        // Several replies in turn are late.
        let may_be_late = kind.tasks == 1 && kind.timeout > 4 * LATE;
        let on_failure = match rng.draw(0..8) {
            0..2 => OnFailure::Fails(*rng.pick(&CLASSES)),
            2 if kind.tasks == 1 => OnFailure::LostReply,
            3..6 if may_be_late => OnFailure::Late,
            _ => OnFailure::Recorded,
        };
        // Another owner can do the work at these times.
        let is_decided_late =
            case.is_looked_up() || case == Case::Fail(Class::Permanent) && on_failure == OnFailure::Late;
        let loses_record = rng.happens(if is_decided_late { 700 } else { 250 });
        let rival = (loses_record && rng.happens(800)).then(|| Rival::draw(rng));
        let time = if case.uses_up_its_time() { SHORT } else { TIME };
        // A cleanup takes a tenth of the time, and a second at most.
        let time = if matches!(case, Case::Succeed(_)) && rng.happens(300) { LONG } else { time };
        // In turn, a short delivery waits in vain for a connection that a long one has.
        let time = if kind.tasks > 1 && rng.happens(300) { SHORT } else { time };
        if kind.namespace == BRIEF && rng.happens(300) {
            before = Before::Slow;
        }
        Self { before, leaves, loses_record, rival, case, on_failure, time }
    }
}

impl Rival {
    fn draw(rng: &mut Rng) -> Self {
        let case = match rng.draw(0..8) {
            0 => Case::End(Ends::Commit, 0, None),
            1 => Case::Fail(Class::Retryable),
            _ => Case::Succeed(20),
        };
        Self { has_other_payload: rng.happens(250), case }
    }
}

impl Before {
    fn draw(rng: &mut Rng) -> Self {
        match rng.draw(0..40) {
            0..2 => Self::Cut,
            2 => Self::Silent,
            3..5 => Self::Terminated,
            5 => Self::Unreachable,
            6 => Self::Held(Held::RolledBack),
            7 => Self::Held(Held::Cancelled),
            8 => Self::Held(Held::Kept),
            _ => Self::Nothing,
        }
    }
}

impl Case {
    fn draw(rng: &mut Rng) -> Self {
        match rng.draw(0..100) {
            0 => Self::MakeReadOnly,
            1 => Self::KeepRow,
            2..12 => Self::Succeed(*rng.pick(&[0, 20, 20, 200])),
            12..18 => Self::Fail(*rng.pick(&CLASSES)),
            18..30 => Self::Fail(Class::Permanent),
            30 => Self::Panic,
            31 => Self::Hang,
            32..34 => Self::Long,
            34..42 => Self::Raise(rng.pick::<&str>(&CODES)),
            42..45 => Self::AtCommit(rng.pick::<&str>(&CODES_AT_COMMIT)),
            45..48 => Self::AtCommit(rng.pick::<&str>(&LOOKED_UP)),
            48 => Self::WrongData,
            49 => Self::WrongParameter,
            50 => Self::WrongCharacter,
            51 => Self::Ignored,
            52 => Self::Savepoint,
            53..56 => Self::LockTwo,
            56 => Self::LockHeld,
            57 => Self::Cancelled,
            58 => Self::Terminated,
            59..63 => Self::end(rng, Ends::Commit, COMMITS.len()),
            63..67 => Self::end(rng, Ends::Rollback, ROLLBACKS.len()),
            67..69 => Self::Deallocate,
            69..75 => Self::Outdated,
            75 => Self::Cut,
            76..79 => Self::CutIgnored { is_unreachable: rng.happens(600) },
            79..84 => Self::LostReply { is_unreachable: rng.happens(250) },
            84..86 => Self::LostRequest,
            86..89 => Self::CutAtCommit,
            89..91 => Self::SilentAtCommit,
            91..94 => Self::Frozen { in_statement: rng.happens(400) },
            94 => Self::Paused,
            95..97 => Self::Silent,
            _ => Self::Dropped { in_statement: rng.happens(700) },
        }
    }

    fn end(rng: &mut Rng, ends: Ends, statements: usize) -> Self {
        let statement = usize::try_from(rng.draw(0..statements as u64)).unwrap();
        Self::End(ends, statement, rng.happens(600).then(|| *rng.pick(&CLASSES)))
    }

    /// Whether the delivery ends with its time.
    pub(crate) fn uses_up_its_time(self) -> bool {
        matches!(self, Self::Hang | Self::SilentAtCommit | Self::Frozen { .. } | Self::Silent)
    }

    /// Whether something happens to the connections of its owner.
    fn concerns_connection(self) -> bool {
        matches!(
            self,
            Self::Cut
                | Self::CutIgnored { .. }
                | Self::LostReply { .. }
                | Self::LostRequest
                | Self::CutAtCommit
                | Self::SilentAtCommit
                | Self::Silent
        )
    }

    /// Whether the row is looked up after the commit.
    pub(crate) fn is_looked_up(self) -> bool {
        let looked_up = matches!(self, Self::LostReply { .. } | Self::LostRequest | Self::CutAtCommit);
        looked_up || matches!(self, Self::AtCommit(code) if LOOKED_UP.contains(&code))
    }

    /// Whether the work is dropped before it ends.
    pub(crate) fn is_cut_short(self) -> bool {
        matches!(self, Self::Hang | Self::Frozen { .. } | Self::Silent | Self::Dropped { .. })
    }
}
