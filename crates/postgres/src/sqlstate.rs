//! SQLSTATE codes: <https://www.postgresql.org/docs/current/errcodes-appendix.html>

/// Prefixes of codes that have something in common.
pub(crate) mod class {
    pub(crate) const CONNECTION_EXCEPTION: &str = "08";
    /// More rows than a statement accepts.
    pub(crate) const CARDINALITY_VIOLATION: &str = "21";
    pub(crate) const DATA_EXCEPTION: &str = "22";
    pub(crate) const INTEGRITY_CONSTRAINT_VIOLATION: &str = "23";
    pub(crate) const INVALID_TRANSACTION_STATE: &str = "25";
    /// A prepared statement that does not exist.
    pub(crate) const INVALID_STATEMENT_NAME: &str = "26";
    pub(crate) const INVALID_AUTHORIZATION: &str = "28";
    /// A serialization failure, or a deadlock.
    pub(crate) const TRANSACTION_ROLLBACK: &str = "40";
    /// A statement that is not valid, names what does not exist, or lacks a permission.
    pub(crate) const SYNTAX_OR_ACCESS: &str = "42";
    /// A row that its view would not show.
    pub(crate) const CHECK_OPTION_VIOLATION: &str = "44";
    pub(crate) const INSUFFICIENT_RESOURCES: &str = "53";
    /// A shutdown, a cancelled statement, or a server that is starting.
    pub(crate) const OPERATOR_INTERVENTION: &str = "57";
    /// The part of class 57 that ends connections: a shutdown, a crash, or a server that is starting.
    pub(crate) const SHUTDOWN: &str = "57P";
    /// An error of the operating system, such as an I/O error.
    pub(crate) const SYSTEM_ERROR: &str = "58";
}

pub(crate) const PROTOCOL_VIOLATION: &str = "08P01";
pub(crate) const CHARACTER_NOT_IN_REPERTOIRE: &str = "22021";
pub(crate) const DIVISION_BY_ZERO: &str = "22012";
pub(crate) const UNTRANSLATABLE_CHARACTER: &str = "22P05";
/// A standby, or a server that is set to read-only.
pub(crate) const READ_ONLY_SQL_TRANSACTION: &str = "25006";
/// A statement in a transaction in which another one has failed.
pub(crate) const IN_FAILED_SQL_TRANSACTION: &str = "25P02";
pub(crate) const INVALID_SQL_STATEMENT_NAME: &str = "26000";
pub(crate) const INVALID_AUTHORIZATION_SPECIFICATION: &str = "28000";
pub(crate) const INVALID_PASSWORD: &str = "28P01";
pub(crate) const SERIALIZATION_FAILURE: &str = "40001";
pub(crate) const DEADLOCK_DETECTED: &str = "40P01";
pub(crate) const INSUFFICIENT_PRIVILEGE: &str = "42501";
pub(crate) const UNDEFINED_COLUMN: &str = "42703";
pub(crate) const DATATYPE_MISMATCH: &str = "42804";
pub(crate) const CANNOT_COERCE: &str = "42846";
pub(crate) const UNDEFINED_FUNCTION: &str = "42883";
pub(crate) const UNDEFINED_TABLE: &str = "42P01";
pub(crate) const DUPLICATE_PREPARED_STATEMENT: &str = "42P05";
/// An ON CONFLICT clause without a matching unique constraint.
pub(crate) const INVALID_COLUMN_REFERENCE: &str = "42P10";
pub(crate) const OUT_OF_MEMORY: &str = "53200";
pub(crate) const TOO_MANY_CONNECTIONS: &str = "53300";
pub(crate) const LOCK_NOT_AVAILABLE: &str = "55P03";
pub(crate) const QUERY_CANCELED: &str = "57014";
/// A type that was dropped, among others.
pub(crate) const INTERNAL_ERROR: &str = "XX000";
