//! Where the server is.

use std::fmt;
use std::str::FromStr;

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};

/// `redis://[user:password@]host[:port][/database]`, or `rediss://` for TLS.
#[derive(Clone)]
pub struct RedisUrl(pub(super) ConnectionInfo);

impl RedisUrl {
    pub(super) fn user(&self) -> Option<&str> {
        self.0.redis_settings().username()
    }

    pub(super) fn has_password(&self) -> bool {
        self.0.redis_settings().password().is_some()
    }

    pub(super) fn is_tls(&self) -> bool {
        matches!(self.0.addr(), ConnectionAddr::TcpTls { .. })
    }
}

impl FromStr for RedisUrl {
    type Err = String;

    fn from_str(url: &str) -> Result<Self, String> {
        let info = url.into_connection_info().map_err(|_quotes_it| "it does not parse as a URL of Redis")?;
        match info.addr() {
            ConnectionAddr::TcpTls { insecure: true, .. } => {
                Err("certificates are always verified; drop #insecure".into())
            }
            ConnectionAddr::Tcp(..) | ConnectionAddr::TcpTls { .. } => Ok(Self(info)),
            ConnectionAddr::Unix(_) | _ => Err("it is neither redis:// nor rediss://".into()),
        }
    }
}

/// It may hold a password, so it is never shown.
impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisUrl").finish_non_exhaustive()
    }
}
