//! SQLSTATEs that are handled: <https://www.postgresql.org/docs/current/errcodes-appendix.html>

/// A transaction on a standby, or on a server that is set to read-only.
pub(crate) const READ_ONLY_SQL_TRANSACTION: &str = "25006";
pub(crate) const CHARACTER_NOT_IN_REPERTOIRE: &str = "22021";
pub(crate) const UNTRANSLATABLE_CHARACTER: &str = "22P05";
pub(crate) const SERIALIZATION_FAILURE: &str = "40001";
pub(crate) const DEADLOCK_DETECTED: &str = "40P01";
pub(crate) const INSUFFICIENT_PRIVILEGE: &str = "42501";
pub(crate) const UNDEFINED_COLUMN: &str = "42703";
pub(crate) const UNDEFINED_TABLE: &str = "42P01";
/// There is no unique constraint for an ON CONFLICT clause.
pub(crate) const INVALID_COLUMN_REFERENCE: &str = "42P10";
pub(crate) const LOCK_NOT_AVAILABLE: &str = "55P03";
pub(crate) const QUERY_CANCELED: &str = "57014";
