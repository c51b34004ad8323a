//! The URL of a database, and whether TLS is used.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use percent_encoding::percent_decode_str;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

/// `postgres://[user[:password]@]host[:port][/database][?sslmode=verify-full&sslrootcert=FILE]`.
///
/// With several hosts, as in `postgres://first:5432,second:5432/payments`, each connection is opened to the first of
/// them that accepts writes, or that `target_session_attrs` allows. Each host has an equal share of the time that is
/// left, unless the URL has `hostaddr` or `load_balance_hosts`.
///
/// Without an `sslmode`, TLS is used unless the server is on the same machine (`localhost`, a loopback address, or a
/// Unix socket). TLS always verifies the host name and the certificate, against the root certificates of the system or
/// those of the file `sslrootcert` (PEM). The root certificates of Amazon RDS are part of this crate, and trusted if
/// all hosts are in RDS and there is no `sslrootcert`.
///
/// ```
/// use idempotent_sqs_postgres::{DatabaseUrl, database::DatabaseUrlError};
///
/// let url: DatabaseUrl = "postgres://payer@db.internal/payments".parse()?;
/// assert_eq!((url.host(), url.port(), url.user()), (Some("db.internal"), 5432, Some("payer")));
/// assert!(url.uses_tls());
/// # Ok::<(), DatabaseUrlError>(())
/// ```
#[derive(Clone)]
pub struct DatabaseUrl {
    /// That of each host.
    pub(super) configs: Vec<Config>,
    /// PEM file of the root certificates that replace all others.
    pub(super) roots: Option<PathBuf>,
}

impl DatabaseUrl {
    /// The first host that is a name or an address.
    #[must_use]
    pub fn host(&self) -> Option<&str> {
        self.hosts().find_map(|host| match host {
            Host::Tcp(host) => Some(host.as_str()),
            #[cfg(unix)]
            Host::Unix(_) => None,
        })
    }

    /// The first port; by default 5432.
    #[must_use]
    pub fn port(&self) -> u16 {
        // The default port of PostgreSQL.
        self.configs.iter().find_map(|config| config.get_ports().first().copied()).unwrap_or(5432)
    }

    /// The user, if the URL has one.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.first().get_user().filter(|user| !user.is_empty())
    }

    /// Whether the URL has exactly one host.
    #[must_use]
    pub fn has_one_host(&self) -> bool {
        self.hosts().count() == 1 && self.host().is_some()
    }

    /// Whether the URL has a password.
    #[must_use]
    pub fn has_password(&self) -> bool {
        self.first().get_password().is_some()
    }

    /// Whether each host is the endpoint of a server or proxy in Amazon RDS.
    pub(super) fn is_on_rds(&self) -> bool {
        self.hosts().all(|host| match host {
            Host::Tcp(host) => host.to_ascii_lowercase().ends_with(".rds.amazonaws.com"),
            #[cfg(unix)]
            Host::Unix(_) => false,
        })
    }

    /// Whether connections use TLS.
    #[must_use]
    pub fn uses_tls(&self) -> bool {
        self.first().get_ssl_mode() != SslMode::Disable
    }

    /// The configuration of the first host. Those of the others differ in the host alone.
    fn first(&self) -> &Config {
        &self.configs[0]
    }

    fn hosts(&self) -> impl Iterator<Item = &Host> {
        self.configs.iter().flat_map(Config::get_hosts)
    }
}

/// Omits the URL, which may contain a password.
impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatabaseUrl").finish_non_exhaustive()
    }
}

/// Why a text is not a [`DatabaseUrl`]. The message does not contain the text, which may contain a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DatabaseUrlError {
    /// The scheme is not `postgres`.
    #[error("it does not start with postgres://")]
    Scheme,
    /// The text is not a PostgreSQL connection URL.
    #[error("it is not a PostgreSQL connection URL")]
    NotAUrl,
    /// The URL has no host.
    #[error("it has no host")]
    NoHost,
    /// The options have several hosts, or a port beside that of a host.
    #[error("its hosts and ports are not written as postgres://host:port,host:port/database")]
    Hosts,
    /// The `sslmode` is unknown, or allows a fallback to no TLS.
    #[error("its sslmode is not disable, require, verify-ca or verify-full")]
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
                Some(("sslrootcert", value)) => {
                    roots = Some(PathBuf::from(&*percent_decode_str(value).decode_utf8_lossy()));
                }
                Some(_) | None => others.push(option),
            }
        }
        let query = others.join("&");
        let has = |name: &str| others.iter().any(|option| option.split_once('=').is_some_and(|(set, _)| set == name));
        // These are about all hosts, so the driver gets them together.
        let are_together = has("hostaddr") || has("load_balance_hosts");
        let addresses = if are_together { vec![address.to_owned()] } else { each_host(address).collect() };
        let configs: Result<Vec<Config>, _> =
            addresses.iter().map(|address| [address, "?", &query].concat().parse()).collect();
        let mut configs = configs.map_err(|_| DatabaseUrlError::NotAUrl)?;
        if configs.iter().any(|config| config.get_hosts().is_empty()) {
            return Err(DatabaseUrlError::NoHost);
        }
        let has_one_host = |config: &Config| config.get_hosts().len() == 1;
        if !configs.iter().all(|config| (are_together || has_one_host(config)) && has_fitting_ports(config)) {
            return Err(DatabaseUrlError::Hosts);
        }
        let mode = match mode {
            Some("disable") => SslMode::Disable,
            None if configs.iter().all(is_local) => SslMode::Disable,
            // These verify the certificate and the host name alike.
            None | Some("require" | "verify-ca" | "verify-full") => SslMode::Require,
            // `allow` and `prefer` fall back to a connection without TLS.
            Some(_) => return Err(DatabaseUrlError::SslMode),
        };
        let has_several_hosts = configs.iter().flat_map(Config::get_hosts).count() > 1;
        let must_accept_writes = has_several_hosts && !has("target_session_attrs");
        for config in &mut configs {
            config.ssl_mode(mode);
            if must_accept_writes {
                config.target_session_attrs(TargetSessionAttrs::ReadWrite);
            }
        }
        Ok(Self { configs, roots })
    }
}

/// The address of each host in one such as `postgres://user@first:5432,second/payments`. The driver tries the next host
/// only if it cannot connect to one, and not if one connects and does not reply.
fn each_host(address: &str) -> impl Iterator<Item = String> {
    let hosts_begin = address.find('@').or_else(|| address.find("//").map(|at| at + 1)).map_or(0, |at| at + 1);
    let (login, address) = address.split_at(hosts_begin);
    let (hosts, database) = address.split_at(address.find('/').unwrap_or(address.len()));
    hosts.split(',').map(move |host| [login, host, database].concat())
}

/// Whether each port belongs to a host, and each host is one name. The driver reports other numbers of ports at each
/// connection, and looks up a list such as `a,b` in the option `host` as one name.
fn has_fitting_ports(config: &Config) -> bool {
    let (hosts, ports) = (config.get_hosts(), config.get_ports().len());
    let is_list = |host: &Host| matches!(host, Host::Tcp(name) if name.contains(','));
    !hosts.iter().any(is_list) && (ports <= 1 || ports == hosts.len().max(config.get_hostaddrs().len()))
}

fn is_local(config: &Config) -> bool {
    let is_local_host = |host: &Host| match host {
        Host::Tcp(name) => name == "localhost" || name.parse().is_ok_and(|address: IpAddr| address.is_loopback()),
        #[cfg(unix)]
        Host::Unix(_) => true,
    };
    // `hostaddr` replaces the address that the name resolves to.
    config.get_hosts().iter().all(is_local_host) && config.get_hostaddrs().iter().all(IpAddr::is_loopback)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tls(url: &str) -> Result<bool, DatabaseUrlError> {
        url.parse().map(|url: DatabaseUrl| url.uses_tls())
    }

    #[test]
    fn tls_is_used_unless_it_is_disabled_or_the_server_is_local() {
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
    fn an_sslmode_that_may_fall_back_to_no_tls_is_an_error() {
        for mode in ["allow", "prefer", "on", ""] {
            assert!(
                tls(&format!("postgres://db.internal?sslmode={mode}")).unwrap_err() == DatabaseUrlError::SslMode,
                "{mode}"
            );
        }
    }

    #[test]
    fn sslrootcert_and_other_options_are_parsed() {
        let url = "postgres://app:secret@db:6432/payments?sslrootcert=%2Fopt%2frds%20ca.pem&application_name=payments";
        let url: DatabaseUrl = url.parse().unwrap();
        assert_eq!(url.roots, Some(PathBuf::from("/opt/rds ca.pem")));
        assert_eq!(url.first().get_application_name(), Some("payments"));
        assert_eq!((url.host(), url.port(), url.user()), (Some("db"), 6432, Some("app")));
        assert_eq!(format!("{url:?}"), "DatabaseUrl { .. }");
    }

    #[test]
    fn each_host_has_the_login_the_database_and_the_options_and_must_accept_writes_if_there_are_several() {
        let url = "postgres://app:s%40x@first:6432,[::1],third/payments?application_name=a";
        let url: DatabaseUrl = url.parse().unwrap();
        let parts = |config: &Config| {
            let password = config.get_password().map(<[u8]>::to_vec);
            assert_eq!((config.get_user(), password.as_deref()), (Some("app"), Some(b"s@x".as_slice())));
            assert_eq!((config.get_dbname(), config.get_application_name()), (Some("payments"), Some("a")));
            assert_eq!(config.get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
            (config.get_hosts().to_vec(), config.get_ports().to_vec())
        };
        let host = |host: &str, port| (vec![Host::Tcp(host.to_owned())], vec![port]);
        let hosts: Vec<_> = url.configs.iter().map(parts).collect();
        assert_eq!(hosts, [host("first", 6432), host("::1", 5432), host("third", 5432)]);
        assert!(!url.has_one_host());
        for (url, attributes) in [
            ("postgres://db/payments", TargetSessionAttrs::Any),
            ("postgres://a,b/payments?target_session_attrs=any", TargetSessionAttrs::Any),
            ("postgres://a,b/payments?hostaddr=10.0.0.1,10.0.0.2", TargetSessionAttrs::ReadWrite),
        ] {
            let url: DatabaseUrl = url.parse().unwrap();
            assert_eq!(url.first().get_target_session_attrs(), attributes);
        }
        let url: DatabaseUrl = "postgres://a,b/payments?user=app".parse().unwrap();
        let hosts: Vec<_> = url.configs.iter().map(|config| config.get_hosts().to_vec()).collect();
        assert_eq!(hosts, [host("a", 5432).0, host("b", 5432).0]);
        let url: DatabaseUrl = "postgres://a,b/payments?hostaddr=10.0.0.1,10.0.0.2".parse().unwrap();
        assert_eq!((url.configs.len(), url.first().get_hostaddrs().len()), (1, 2));
    }

    #[test]
    fn several_hosts_or_a_port_in_the_options_are_an_error() {
        for url in ["postgres:///x?host=a&host=b", "postgres:///x?host=a,b", "postgres://a/x?port=5433"] {
            assert_eq!(tls(url).unwrap_err(), DatabaseUrlError::Hosts, "{url}");
        }
        assert_eq!(tls("postgres:///payments?host=%2Frun%2Fpostgresql&port=5433"), Ok(false));
    }

    #[test]
    fn an_invalid_url_is_not_quoted_in_its_error() {
        for url in ["mysql://secret@db", "host=db password=secret", "postgres://app:secret@db:port/", "postgres:///x"] {
            let error = tls(url).unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
