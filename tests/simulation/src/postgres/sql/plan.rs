//! Statements with their names and types resolved.

use crate::postgres::value::{Type, Value};

#[derive(Debug)]
pub(in crate::postgres) struct Statement {
    /// Earlier statements of `WITH`, whose rows later ones read.
    pub(in crate::postgres) with: Vec<Plan>,
    pub(in crate::postgres) plan: Plan,
    pub(in crate::postgres) parameters: Vec<Type>,
    pub(in crate::postgres) columns: Vec<Column>,
    /// How its kind is named if the transaction is read-only.
    pub(in crate::postgres) writes: Option<&'static str>,
    /// Whether it asks for the id of its transaction, which then has one.
    pub(in crate::postgres) needs_xid: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::postgres) struct Column {
    pub(in crate::postgres) name: String,
    pub(in crate::postgres) ty: Type,
}

#[derive(Debug)]
pub(in crate::postgres) enum Plan {
    Query(Query),
    Insert(Insert),
    Update(Update),
    Delete(Delete),
}

#[derive(Debug)]
pub(in crate::postgres) struct Query {
    pub(super) rows: Rows,
    pub(super) filter: Option<Expr>,
    /// With aggregates, the query has a row for each group.
    pub(super) groups: Option<Groups>,
    pub(super) output: Vec<Expr>,
    pub(super) order: Vec<Order>,
    pub(super) limit: Option<Expr>,
    pub(super) offset: Option<Expr>,
    pub(super) lock: Option<Lock>,
    pub(super) columns: Vec<Column>,
}

/// Where the rows of a query come from.
#[derive(Debug)]
pub(super) enum Rows {
    /// One row without columns.
    One,
    Table(usize),
    With(usize),
    Activity,
    Prepared,
    Query(Box<Query>),
    Values(Vec<Vec<Expr>>),
}

#[derive(Debug)]
pub(super) struct Groups {
    pub(super) by: Vec<Expr>,
    pub(super) aggregates: Vec<Aggregate>,
    pub(super) having: Option<Expr>,
}

#[derive(Debug)]
pub(super) struct Aggregate {
    pub(super) kind: AggregateKind,
    /// `None` for `count(*)`.
    pub(super) of: Option<Expr>,
    pub(super) filter: Option<Expr>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum AggregateKind {
    Count,
    Min,
    Max,
    Sum,
}

#[derive(Debug)]
pub(super) struct Order {
    pub(super) by: Expr,
    pub(super) descending: bool,
    pub(super) nulls_first: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lock {
    Wait,
    Skip,
    Fail,
}

#[derive(Debug)]
pub(in crate::postgres) struct Insert {
    pub(super) table: usize,
    /// The columns of the table that the source has values for.
    pub(super) targets: Vec<usize>,
    /// `None` for `DEFAULT VALUES`.
    pub(super) source: Option<Query>,
    pub(super) conflict: OnConflict,
    pub(super) returning: Option<Vec<Expr>>,
}

#[derive(Debug)]
pub(super) enum OnConflict {
    Fail,
    Nothing,
    /// Expressions of the row that exists and then of the row that is inserted.
    Update {
        assignments: Vec<(usize, Expr)>,
        filter: Option<Expr>,
    },
}

#[derive(Debug)]
pub(in crate::postgres) struct Update {
    pub(super) table: usize,
    pub(super) assignments: Vec<(usize, Expr)>,
    pub(super) filter: Option<Expr>,
    pub(super) returning: Option<Vec<Expr>>,
}

#[derive(Debug)]
pub(in crate::postgres) struct Delete {
    pub(super) table: usize,
    pub(super) filter: Option<Expr>,
    pub(super) returning: Option<Vec<Expr>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    Concatenate,
}

#[derive(Debug)]
pub(super) enum Expr {
    Value(Value),
    Parameter(usize),
    /// A column of the row of the query that is so many levels further out.
    Column {
        up: usize,
        index: usize,
    },
    Aggregate(usize),
    And(Box<Expr>, Box<Expr>),
    Or(Box<Expr>, Box<Expr>),
    Not(Box<Expr>),
    IsNull(Box<Expr>),
    Is(Box<Expr>, bool),
    IsDistinct(Box<Expr>, Box<Expr>),
    Compare(Comparison, Box<Expr>, Box<Expr>),
    /// With the type of the result.
    Calculate(Arithmetic, Type, Box<Expr>, Box<Expr>),
    Negate(Box<Expr>),
    Like(Box<Expr>, Box<Expr>),
    Row(Vec<Expr>),
    Case(Vec<(Expr, Expr)>, Option<Box<Expr>>),
    Call(Function, Vec<Expr>),
    Cast(Box<Expr>, Type),
    Exists(Box<Query>),
    Scalar(Box<Query>),
    Array(Box<Query>),
    InList(Box<Expr>, Vec<Expr>),
    InQuery(Box<Expr>, Box<Query>),
    Any(Comparison, Box<Expr>, Box<Expr>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    Now,
    ClockTimestamp,
    StatementTimestamp,
    /// Of years, months, weeks, days, hours, minutes and seconds.
    MakeInterval,
    CurrentSetting,
    Least,
    Greatest,
    Coalesce,
    NullIf,
    OctetLength,
    Length,
    Lower,
    Upper,
    ExtractEpoch,
    CurrentXactId,
    BackendPid,
    Sleep,
    CurrentDatabase,
    CurrentUser,
    Version,
    IsInRecovery,
    AdvisoryLock,
    AdvisoryUnlockAll,
}
