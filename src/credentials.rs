//! The contract with a source of logins for Redis and PostgreSQL.
//!
//! The implementations for AWS are in [`aws`](crate::aws).

use std::error::Error;
use std::fmt;
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;

use crate::idempotency::catch_async;

/// The user and password of one connection.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// The user, if it is not the one in the URL.
    pub user: Option<String>,
    /// The password, or a token instead of it.
    pub password: String,
}

/// Omits the password.
impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

/// Provides the login of each new connection: a password that is rotated, or a token that expires.
pub trait CredentialsSource: fmt::Debug + Send + Sync {
    /// The login of a new connection. If the server has just rejected a login, `rejected` is that login, and the
    /// connection is tried once more if the returned login differs from it.
    ///
    /// The time for a login is limited, because calls wait for it. For Redis the limit is 4 seconds. For PostgreSQL the
    /// login and the connection together may take the timeout of the database plus 3 seconds. On a cluster, the
    /// connections that are opened together share one login. If the client library later opens one of them again, the
    /// login and the connection together may take the timeout of Redis. If they take longer, all connections are opened
    /// again, with 4 seconds for the login.
    ///
    /// # Errors
    /// If no login is available. No connection is made.
    ///
    /// ## Cancel safety
    /// The future may be dropped at any time. A later call starts again.
    fn login<'a>(&'a self, rejected: Option<&'a Login>) -> LoginFuture<'a>;

    /// How long a connection may be used after its login. `None`, the default, means without limit.
    fn max_session(&self) -> Option<Duration> {
        None
    }

    /// What to check if the server rejects the login. Part of the error message.
    fn advice(&self) -> &'static str {
        "the server rejected the user and password"
    }
}

/// The login of this source, as [`CredentialsSource::login`] returns it. A panic of the source is an error, which says
/// what to check.
///
/// # Errors
/// If no login is available. No connection is made.
///
/// ## Cancel safety
/// The future may be dropped at any time.
pub async fn login(
    source: &dyn CredentialsSource,
    rejected: Option<&Login>,
) -> Result<Login, Box<dyn Error + Send + Sync>> {
    // The AWS SDK panics if no certificate of this system can be loaded.
    let login = catch_async(async { source.login(rejected).await }).await;
    login.unwrap_or_else(|| Err(format!("a source of logins panicked; if it is the AWS SDK: {NO_CERTIFICATES}").into()))
}

/// Whether a session that began at this time has lasted for `longest`, the
/// [`max_session`](CredentialsSource::max_session) of its source. By the wall clock, which also counts the time during
/// which the process was frozen. A time in the future counts as ended: the clock was set, so the age is unknown.
#[must_use]
pub fn session_has_ended(opened: SystemTime, longest: Duration) -> bool {
    opened.elapsed().map_or(true, |age| age >= longest)
}

/// What to check if the AWS SDK panicked: it does if no certificate can be loaded.
pub const NO_CERTIFICATES: &str =
    "check that SSL_CERT_FILE or SSL_CERT_DIR, if one is set, or else the system has certificates";

/// The future of [`CredentialsSource::login`].
pub type LoginFuture<'a> = BoxFuture<'a, Result<Login, Box<dyn Error + Send + Sync>>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_ends_by_the_wall_clock() {
        let (now, minute) = (SystemTime::now(), Duration::from_mins(1));
        for (opened, ended) in [(now, false), (now - minute, false), (now - 3 * minute, true), (now + minute, true)] {
            assert_eq!(session_has_ended(opened, 2 * minute), ended, "{opened:?}");
        }
    }
}
