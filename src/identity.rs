//! Who this process is to AWS, and what lets it in to Redis and PostgreSQL by that.
//!
//! - `presigned`: a token, which is a presigned request in place of a password
//! - `secret`: a password that AWS Secrets Manager keeps

mod presigned;
mod secret;

use std::fmt;
use std::time::Duration;

#[cfg(test)]
pub(crate) use presigned::tests::assert_signed_as_botocore_does;
pub(crate) use presigned::{Service, Signer, TokenError};
pub(crate) use secret::Secret;
pub use secret::SecretArn;

/// Longest wait for AWS, with a first call's certificates: more than a region takes, and far less
/// than an invocation.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);

/// What one connect signs in with.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// The user, where it is not the one of the URL.
    pub user: Option<String>,
    /// The password, or the token that stands for it.
    pub password: String,
}

/// A password is never shown.
impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}
