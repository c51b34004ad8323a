//! The address of the server.

use std::fmt;
use std::str::FromStr;

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};

/// Address of a server: `redis://[user:password@]host[:port][/database]`, or `rediss://` for TLS.
#[derive(Clone)]
pub struct RedisUrl(pub(super) ConnectionInfo);

/// Why a text is not a [`RedisUrl`]. The message does not contain the text, which may hold a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RedisUrlError {
    /// The text is not a URL of Redis.
    #[error("not a URL of Redis")]
    NotAUrl,
    /// The scheme is neither `redis` nor `rediss`.
    #[error("the scheme is neither redis:// nor rediss://")]
    Scheme,
    /// The URL turns certificate verification off.
    #[error("certificates are always verified: remove #insecure")]
    Insecure,
}

impl RedisUrl {
    /// The user, if the URL has one.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.0.redis_settings().username()
    }

    /// Whether the URL has a password.
    #[must_use]
    pub fn has_password(&self) -> bool {
        self.0.redis_settings().password().is_some()
    }

    /// Whether connections use TLS.
    #[must_use]
    pub fn uses_tls(&self) -> bool {
        matches!(self.0.addr(), ConnectionAddr::TcpTls { .. })
    }
}

impl FromStr for RedisUrl {
    type Err = RedisUrlError;

    fn from_str(url: &str) -> Result<Self, RedisUrlError> {
        // The library's error contains the URL.
        let info = url.into_connection_info().map_err(|_| RedisUrlError::NotAUrl)?;
        match info.addr() {
            ConnectionAddr::TcpTls { insecure: true, .. } => Err(RedisUrlError::Insecure),
            ConnectionAddr::Tcp(..) | ConnectionAddr::TcpTls { .. } => Ok(Self(info)),
            ConnectionAddr::Unix(_) | _ => Err(RedisUrlError::Scheme),
        }
    }
}

/// Omits the URL, which may hold a password.
impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisUrl").finish_non_exhaustive()
    }
}
