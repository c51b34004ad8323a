//! Errors of the inbox, with what to do about them.

use crate::database::DatabaseError;
use crate::sqlstate;

/// Why the inbox cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InboxError {
    /// The table is missing, lacks a column, or has one of another type.
    #[error(
        "the table idempotency_inbox is missing or outdated: run crates/postgres/sql/inbox.sql with psql on the \
         database of DATABASE_URL ({0})"
    )]
    TableOutdated(DatabaseError),
    /// The user lacks a permission on the table.
    #[error(
        "the user of DATABASE_URL may not use the table idempotency_inbox: grant it SELECT, INSERT, UPDATE and \
         DELETE, as described in crates/postgres/sql/inbox.sql, and permit them in its row-level security policies \
         ({0})"
    )]
    PermissionDenied(DatabaseError),
    /// A row that the same transaction has inserted was not updated, because of a policy or a trigger of the table.
    #[error(
        "a row of the table idempotency_inbox was not updated, so the transaction was rolled back: permit SELECT and \
         UPDATE in its row-level security policies, and remove triggers that skip the update"
    )]
    RowNotUpdated,
    /// The encoding of the database has no form for a character of the namespace.
    #[error(
        "the encoding of the database cannot represent a character of IDEMPOTENCY_NAMESPACE: use ASCII characters, or a \
         database with encoding UTF8 ({0})"
    )]
    NamespaceEncoding(DatabaseError),
    /// The encoding of the database has no form for a character of the key.
    #[error(
        "the encoding of the database cannot represent a character of the idempotency key: use ASCII keys, or a \
         database with encoding UTF8 ({0})"
    )]
    KeyEncoding(DatabaseError),
    /// Any other error of the database.
    #[error(transparent)]
    Database(DatabaseError),
}

impl InboxError {
    /// The error of a statement on the table.
    pub(super) fn of(error: DatabaseError) -> Self {
        match error.code() {
            None if matches!(error, DatabaseError::StatementMismatch(_)) => Self::TableOutdated(error),
            Some(
                sqlstate::UNDEFINED_TABLE
                | sqlstate::UNDEFINED_COLUMN
                | sqlstate::INVALID_COLUMN_REFERENCE
                | sqlstate::DATATYPE_MISMATCH
                | sqlstate::UNDEFINED_FUNCTION,
            ) => Self::TableOutdated(error),
            Some(sqlstate::INSUFFICIENT_PRIVILEGE) => Self::PermissionDenied(error),
            // Only the statement that updates the row divides.
            Some(sqlstate::DIVISION_BY_ZERO) => Self::RowNotUpdated,
            // Every statement has the namespace as a parameter, and some also have the key.
            Some(sqlstate::UNTRANSLATABLE_CHARACTER | sqlstate::CHARACTER_NOT_IN_REPERTOIRE) => {
                Self::NamespaceEncoding(error)
            }
            Some(_) | None => Self::Database(error),
        }
    }

    /// Whether only the message with this key is affected.
    pub(super) fn is_of_the_key(&self) -> bool {
        matches!(self, Self::KeyEncoding(_))
    }

    /// Whether other messages may succeed, as for [`DatabaseError::is_busy`].
    pub(super) fn is_busy(&self) -> bool {
        matches!(self, Self::Database(error) if error.is_busy())
    }
}
