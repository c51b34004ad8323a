//! What the works of an inbox return, and how they log in: for its histories and its simulation.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use idempotent_sqs::WorkError;
use idempotent_sqs::credentials::{CredentialsSource, Login, LoginFuture};
use idempotent_sqs_postgres::DatabaseError;
use tokio::time::sleep;

/// What an error means for the message: docs/inbox.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The next attempt may succeed.
    Retryable,
    /// Other messages would fail too.
    Unavailable,
    /// Other messages may succeed.
    Busy,
    /// The attempt may have taken effect.
    Uncertain,
    /// No attempt can succeed.
    Permanent,
}

/// All of them.
pub const CLASSES: [Class; 5] = [Class::Retryable, Class::Unavailable, Class::Busy, Class::Uncertain, Class::Permanent];

/// The text of an error that a work returns.
pub const PLANNED: &str = "planned";

/// A value of rows and parameters, which no error may contain.
pub const SECRET: &str = "secret-4711";

impl Class {
    /// By the SQLSTATE.
    #[must_use]
    pub fn of(code: &str) -> Self {
        match (code, code.get(..2)) {
            ("40001" | "40P01" | "53300" | "55P03" | "57014", _) => Self::Busy,
            ("25006", _) | (_, Some("08" | "53" | "57" | "58")) => Self::Unavailable,
            (_, Some("22" | "23")) => Self::Permanent,
            _ => Self::Retryable,
        }
    }

    /// An error of this class.
    #[must_use]
    pub fn error(self) -> WorkError {
        match self {
            Self::Retryable => WorkError::retryable(PLANNED),
            Self::Unavailable => WorkError::unavailable(PLANNED),
            Self::Busy => WorkError::busy(PLANNED),
            Self::Uncertain => WorkError::uncertain(PLANNED),
            Self::Permanent => WorkError::permanent(PLANNED),
        }
    }
}

/// Why a work fails.
#[derive(Debug)]
pub enum Failure {
    /// By the error of a statement, which `?` converts.
    Statement(DatabaseError),
    /// As its plan says.
    Planned(Class),
}

impl Failure {
    /// Its class, and what its statement returned, if it failed by one.
    #[must_use]
    pub fn class(&self) -> (Class, Option<String>) {
        let error = match self {
            Self::Planned(class) => return (*class, None),
            Self::Statement(error) => error,
        };
        let (class, statement) = match error {
            DatabaseError::Server { code, .. } => (Class::of(code), code.as_str()),
            DatabaseError::ConnectionLost(_) => (Class::Unavailable, "connection lost"),
            DatabaseError::StatementOutdated => (Class::Busy, "outdated"),
            DatabaseError::InvalidStatement(_) => (Class::Permanent, "invalid"),
            DatabaseError::StatementMismatch(_) => (Class::Retryable, "mismatch"),
            _ => (Class::Unavailable, "other"),
        };
        (class, Some(statement.to_owned()))
    }
}

impl From<DatabaseError> for Failure {
    fn from(error: DatabaseError) -> Self {
        Self::Statement(error)
    }
}

impl From<Failure> for WorkError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Statement(error) => error.into(),
            Failure::Planned(class) => class.error(),
        }
    }
}

/// The user that needs a password.
pub const PAYER: &str = "payer";

/// The password of [`PAYER`], which is replaced now and then. Clones share it.
#[derive(Clone, Debug)]
pub struct Passwords(Arc<Mutex<String>>);

impl Passwords {
    /// The server accepts this one at first.
    #[must_use]
    pub fn new(password: &str) -> Self {
        Self(Arc::new(Mutex::new(password.to_owned())))
    }

    /// The server accepts another one from now on.
    pub fn replace(&self, password: &str) {
        password.clone_into(&mut lock(&self.0));
    }

    /// Whether the server accepts this one now.
    #[must_use]
    pub fn accept(&self, password: &str) -> bool {
        password == *lock(&self.0)
    }

    /// The source of one process, whose sessions may have a limited time, and which takes this long to read a password.
    #[must_use]
    pub fn source(&self, max_session: Option<Duration>, takes: Duration) -> Cached {
        Cached { current: self.clone(), known: Mutex::new(lock(&self.0).clone()), max_session, takes }
    }
}

/// Returns the password that it knows until that is rejected.
#[derive(Debug)]
pub struct Cached {
    current: Passwords,
    known: Mutex<String>,
    max_session: Option<Duration>,
    takes: Duration,
}

impl CredentialsSource for Cached {
    fn login<'a>(&'a self, rejected: Option<&'a Login>) -> LoginFuture<'a> {
        Box::pin(async move {
            let is_known = |password: &str| password == *lock(&self.known);
            if rejected.is_some_and(|rejected| is_known(&rejected.password)) {
                sleep(self.takes).await;
                lock(&self.known).clone_from(&lock(&self.current.0));
            }
            Ok(Login { user: Some(PAYER.to_owned()), password: lock(&self.known).clone() })
        })
    }

    fn max_session(&self) -> Option<Duration> {
        self.max_session
    }
}

fn lock(password: &Mutex<String>) -> MutexGuard<'_, String> {
    password.lock().unwrap_or_else(PoisonError::into_inner)
}
