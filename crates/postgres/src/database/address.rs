//! The URL of a database, with the parts that decide over TLS.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

/// `postgres://[user[:password]@]host[:port][/database][?sslmode=verify-full&sslrootcert=FILE]`.
///
/// Without a `sslmode` TLS is used, but not to this very machine. Where it is used, the certificate is
/// verified against the system's roots, or against those of `sslrootcert`, and so is the host's name.
#[derive(Clone)]
pub struct DatabaseUrl {
    pub(super) config: Config,
    /// File of the roots that are trusted in place of the system's, PEM.
    pub(super) roots: Option<PathBuf>,
}

impl DatabaseUrl {
    /// The first host, if it has a name or an address.
    #[must_use]
    pub fn host(&self) -> Option<&str> {
        self.config.get_hosts().iter().find_map(|host| match host {
            Host::Tcp(host) => Some(host.as_str()),
            #[cfg(unix)]
            Host::Unix(_) => None,
        })
    }

    /// The first port.
    #[must_use]
    pub fn port(&self) -> u16 {
        // PostgreSQL's own.
        self.config.get_ports().first().copied().unwrap_or(5432)
    }

    /// The user.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.config.get_user().filter(|user| !user.is_empty())
    }

    /// Whether there is one host and no other.
    #[must_use]
    pub fn has_one_host(&self) -> bool {
        self.config.get_hosts().len() == 1 && self.host().is_some()
    }

    /// Whether there is a password in it.
    #[must_use]
    pub fn has_password(&self) -> bool {
        self.config.get_password().is_some()
    }

    /// Whether connections are made by TLS.
    #[must_use]
    pub fn uses_tls(&self) -> bool {
        self.config.get_ssl_mode() != SslMode::Disable
    }
}

/// It may hold a password, so it is never shown.
impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatabaseUrl").finish_non_exhaustive()
    }
}

/// Why a text is not a [`DatabaseUrl`]. The message does not contain the text, which may hold a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DatabaseUrlError {
    /// The scheme is not `postgres`.
    #[error("it does not start with postgres://")]
    Scheme,
    /// The text is not a URL of PostgreSQL.
    #[error("not a URL of PostgreSQL")]
    NotAUrl,
    /// The URL has no host.
    #[error("it has no host")]
    NoHost,
    /// The sslmode allows connections without verified TLS.
    #[error("its sslmode is none of disable, require, verify-ca and verify-full")]
    SslMode,
}

impl FromStr for DatabaseUrl {
    type Err = DatabaseUrlError;

    fn from_str(url: &str) -> Result<Self, DatabaseUrlError> {
        let url = url.trim();
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(DatabaseUrlError::Scheme);
        }
        let (address, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut mode, mut roots, mut others) = (None, None, Vec::new());
        for option in query.split('&').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("sslmode", value)) => mode = Some(value),
                // A path may be written plainly, or with its slashes encoded.
                Some(("sslrootcert", value)) => roots = Some(PathBuf::from(value.replace("%2F", "/"))),
                Some(_) | None => others.push(option),
            }
        }
        let known = [address, "?", &others.join("&")].concat();
        let mut config: Config = known.parse().map_err(|_| DatabaseUrlError::NotAUrl)?;
        if config.get_hosts().is_empty() {
            return Err(DatabaseUrlError::NoHost);
        }
        config.ssl_mode(match mode {
            Some("disable") => SslMode::Disable,
            // All of them verify here.
            Some("require" | "verify-ca" | "verify-full") => SslMode::Require,
            None => {
                if is_this_machine(&config) {
                    SslMode::Disable
                } else {
                    SslMode::Require
                }
            }
            // `allow` and `prefer` are content with a connection that anybody can read.
            Some(_) => return Err(DatabaseUrlError::SslMode),
        });
        Ok(Self { config, roots })
    }
}

fn is_this_machine(config: &Config) -> bool {
    let is_near = |host: &Host| match host {
        Host::Tcp(name) => name == "localhost" || name.parse().is_ok_and(|address: IpAddr| address.is_loopback()),
        #[cfg(unix)]
        Host::Unix(_) => true,
    };
    // An address that is given besides goes before the name's own.
    config.get_hosts().iter().all(is_near) && config.get_hostaddrs().iter().all(IpAddr::is_loopback)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tls(url: &str) -> Result<bool, DatabaseUrlError> {
        url.parse().map(|url: DatabaseUrl| url.uses_tls())
    }

    #[test]
    fn tls_is_used_unless_it_is_switched_off_or_the_server_is_this_machine() {
        assert_eq!(tls("postgres://app@db.internal/payments"), Ok(true));
        assert_eq!(tls("postgres://app@db.internal/payments?sslmode=disable"), Ok(false));
        assert_eq!(tls("postgres://app@127.0.0.1:5433/payments"), Ok(false));
        assert_eq!(tls("postgres://app@[::1]/payments"), Ok(false));
        assert_eq!(tls("postgresql://localhost"), Ok(false));
        assert_eq!(tls("postgres://localhost/payments?hostaddr=10.0.0.1"), Ok(true));
        assert_eq!(tls("postgres://localhost,db.internal/payments"), Ok(true));
        assert_eq!(tls("postgres://localhost?sslmode=verify-full"), Ok(true));
        assert_eq!(tls("postgres://db.internal?sslmode=require"), Ok(true));
    }

    #[test]
    fn a_mode_that_may_come_to_no_tls_is_refused() {
        for mode in ["allow", "prefer", "on", ""] {
            assert!(
                tls(&format!("postgres://db.internal?sslmode={mode}")).unwrap_err() == DatabaseUrlError::SslMode,
                "{mode}"
            );
        }
    }

    #[test]
    fn roots_and_other_options_find_their_places() {
        let url = "postgres://app:secret@db:6432/payments?sslrootcert=%2Fopt%2Frds.pem&application_name=payments";
        let url: DatabaseUrl = url.parse().unwrap();
        assert_eq!(url.roots, Some(PathBuf::from("/opt/rds.pem")));
        assert_eq!(url.config.get_application_name(), Some("payments"));
        assert_eq!((url.host(), url.port(), url.user()), (Some("db"), 6432, Some("app")));
        assert_eq!(format!("{url:?}"), "DatabaseUrl { .. }");
    }

    #[test]
    fn what_is_no_url_of_postgres_is_refused_without_being_quoted() {
        for url in ["mysql://secret@db", "host=db password=secret", "postgres://app:secret@db:port/", "postgres:///x"] {
            let fault = tls(url).unwrap_err().to_string();
            assert!(!fault.contains("secret"), "{fault}");
        }
    }
}
