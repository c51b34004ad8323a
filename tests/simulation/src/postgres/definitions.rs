//! The tables: the inbox and the progress of the backfill as in `crates/postgres/sql/inbox.sql`, the effects of works and their
//! failures.

use super::value::Type;

/// A table. Its rows are in `tables`.
pub(super) struct Definition {
    pub(super) name: &'static str,
    pub(super) oid: i64,
    pub(super) columns: &'static [Column],
    /// The columns of the primary key, and its name.
    pub(super) key: &'static [usize],
    pub(super) key_name: &'static str,
}

pub(super) struct Column {
    pub(super) name: &'static str,
    pub(super) ty: Type,
    pub(super) is_required: bool,
    pub(super) default: Default,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Default {
    Null,
    Now,
    Serial,
}

const fn column(name: &'static str, ty: Type) -> Column {
    Column { name, ty, is_required: false, default: Default::Null }
}

const fn required(name: &'static str, ty: Type) -> Column {
    Column { is_required: true, ..column(name, ty) }
}

/// A table in which works insert a row each.
const fn of_works(name: &'static str, oid: i64) -> Definition {
    const COLUMNS: &[Column] = &[
        Column { default: Default::Serial, ..required("id", Type::Int8) },
        column("consumer", Type::Text),
        column("key", Type::Text),
        column("fence", Type::Int8),
        column("payload", Type::Text),
    ];
    Definition { name, oid, columns: COLUMNS, key: &[], key_name: "" }
}

/// If this is `yes` in a session, a trigger keeps the rows of the inbox from being updated.
pub(super) const KEEPS_ROW: &str = "app.keeps_row";

pub(super) const INBOX: usize = 0;
pub(super) const EFFECTS: usize = 2;
pub(super) const FAILURES: usize = 3;

pub(super) const TABLES: [Definition; 4] = [
    Definition {
        name: "idempotency_inbox",
        oid: 16_384,
        columns: &[
            required("namespace", Type::Text),
            required("key", Type::Text),
            required("fingerprint", Type::Bytea),
            required("fence", Type::Int8),
            required("attempts", Type::Int2),
            column("result", Type::Bytea),
            Column { default: Default::Now, ..required("done_at", Type::Timestamptz) },
        ],
        key: &[0, 1],
        key_name: "idempotency_inbox_pkey",
    },
    Definition {
        name: "idempotency_backfill",
        oid: 16_394,
        columns: &[
            required("namespace", Type::Text),
            required("loss_probe", Type::Text),
            required("done_at", Type::Timestamptz),
            required("key", Type::Text),
            Column { default: Default::Now, ..required("moved_at", Type::Timestamptz) },
            column("reached_done_at", Type::Timestamptz),
            column("reached_key", Type::Text),
        ],
        key: &[0],
        key_name: "idempotency_backfill_pkey",
    },
    of_works("effects", 16_404),
    of_works("failures", 16_414),
];
