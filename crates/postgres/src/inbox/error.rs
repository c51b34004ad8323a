//! Why the inbox cannot be used, with a sentence on how to mend it.

use crate::database::DatabaseError;
use crate::sqlstate;

/// Why the inbox cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InboxError {
    /// The table is not there, or an older one.
    #[error("the table idempotency_inbox is missing, or older than this function: run sql/inbox.sql by psql ({0})")]
    NoTable(DatabaseError),
    /// The user has no right to the table.
    #[error("the database's user may not use the table idempotency_inbox: see sql/inbox.sql for what it needs ({0})")]
    NoRight(DatabaseError),
    /// The database's encoding cannot hold a character of the namespace.
    #[error(
        "the database's encoding has no form for a character of IDEMPOTENCY_NAMESPACE: set it to plain ASCII, or keep \
         the inbox in a database of encoding UTF8 ({0})"
    )]
    Namespace(DatabaseError),
    /// The database's encoding cannot hold a character of the key.
    #[error(
        "the database's encoding has no form for a character of the idempotency key: send keys of plain ASCII, or keep \
         the inbox in a database of encoding UTF8 ({0})"
    )]
    Key(DatabaseError),
    /// The database gives no answer, or another than it should.
    #[error(transparent)]
    Database(DatabaseError),
}

impl InboxError {
    pub(super) fn of(error: DatabaseError) -> Self {
        match error.code() {
            Some(sqlstate::UNDEFINED_TABLE | sqlstate::UNDEFINED_COLUMN | sqlstate::INVALID_COLUMN_REFERENCE) => {
                Self::NoTable(error)
            }
            Some(sqlstate::INSUFFICIENT_PRIVILEGE) => Self::NoRight(error),
            // Every statement on the inbox has the namespace, and some have the key too.
            Some(sqlstate::UNTRANSLATABLE_CHARACTER | sqlstate::CHARACTER_NOT_IN_REPERTOIRE) => Self::Namespace(error),
            Some(_) | None => Self::Database(error),
        }
    }

    /// Whether it concerns one message alone.
    pub(super) fn is_of_the_key(&self) -> bool {
        matches!(self, Self::Key(_))
    }
}
