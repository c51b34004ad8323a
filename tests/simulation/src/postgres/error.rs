//! Errors of statements, as the server reports them.

/// An error with its SQLSTATE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqlError {
    pub code: &'static str,
    pub message: String,
    /// Whether the session ends.
    pub is_fatal: bool,
    /// What the server was doing, such as waiting for a row.
    pub context: Option<String>,
    pub table: Option<&'static str>,
    pub constraint: Option<&'static str>,
    /// The function of the server that reports it.
    pub routine: &'static str,
}

pub(super) type Result<T, E = SqlError> = std::result::Result<T, E>;

impl SqlError {
    pub(super) fn new(code: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { code, message, is_fatal: false, context: None, table: None, constraint: None, routine: "simulation" }
    }

    pub(super) fn fatal(code: &'static str, message: impl Into<String>) -> Self {
        Self { is_fatal: true, ..Self::new(code, message) }
    }

    /// The simulation does not have this. It is printed, because a run in which it happens shows nothing.
    pub(super) fn unsupported(what: impl std::fmt::Debug) -> Self {
        eprintln!("the simulated PostgreSQL does not support {what:?}");
        Self::new("0A000", format!("the simulation does not support {what:?}"))
    }

    pub(super) fn by(mut self, routine: &'static str) -> Self {
        self.routine = routine;
        self
    }
}
