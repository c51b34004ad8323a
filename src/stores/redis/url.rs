//! The address of the server.

use std::fmt;
use std::str::FromStr;

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo, parse_redis_url};

/// Port of a sentinel whose address has none.
const SENTINEL_PORT: u16 = 26379;

/// Address of a server: `redis://[user:password@]host[:port][/database]`, or `rediss://` for TLS. It has no parameters.
///
/// By Redis Sentinel: `redis+sentinel://[user:password@]host[:port][,host[:port]…]/SERVICE[/database]`. The hosts are
/// sentinels, with port 26379 by default, and the user, the password and the database are those of the servers. A login
/// of the sentinels is in the parameters `sentinel_username` and `sentinel_password`. `rediss+sentinel://` is for TLS
/// to the servers and to the sentinels.
///
/// A URL with a user and without a password needs a [source of credentials](crate::credentials::CredentialsSource):
/// else the connection signs in as the default user.
#[derive(Clone)]
pub struct RedisUrl {
    /// The server. With sentinels, its address is that of the first sentinel, and only the rest applies to the server.
    pub(super) server: ConnectionInfo,
    pub(super) service: Option<Service>,
}

/// A primary and its replicas, and the sentinels that know which of them is the primary.
#[derive(Clone)]
pub(super) struct Service {
    pub(super) name: String,
    pub(super) sentinels: Vec<ConnectionInfo>,
}

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
    /// The URL has sentinels and no name of a service that they could know.
    #[error(
        "the name of the service is missing after the sentinels, or has other characters than letters, digits, . - _"
    )]
    Service,
    /// The URL has parameters and no sentinels.
    #[error(
        "only a URL for Sentinel has parameters: remove ? and what follows; the database is a path, as in \
         redis://HOST:6379/2, and the login is USER:PASSWORD@ before the host, with %3F for each ?"
    )]
    Parameters,
    /// The URL turns certificate verification off.
    #[error("certificates are always verified: remove #insecure")]
    Insecure,
}

impl RedisUrl {
    /// The user, if the URL has one.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.server.redis_settings().username()
    }

    /// Whether the URL has a password.
    #[must_use]
    pub fn has_password(&self) -> bool {
        self.server.redis_settings().password().is_some()
    }

    /// Whether connections use TLS.
    #[must_use]
    pub fn uses_tls(&self) -> bool {
        matches!(self.server.addr(), ConnectionAddr::TcpTls { .. })
    }

    /// Whether the URL has sentinels, which name the server.
    #[must_use]
    pub fn uses_sentinel(&self) -> bool {
        self.service.is_some()
    }
}

impl FromStr for RedisUrl {
    type Err = RedisUrlError;

    fn from_str(url: &str) -> Result<Self, RedisUrlError> {
        // A fragment other than `#insecure` has no meaning: it begins in a password with an unescaped character.
        if url.contains('#') && !url.ends_with("#insecure") {
            return Err(RedisUrlError::NotAUrl);
        }
        for (with_sentinels, scheme) in [("redis+sentinel://", "redis"), ("rediss+sentinel://", "rediss")] {
            if let Some(rest) = url.strip_prefix(with_sentinels) {
                return by_sentinel(scheme, rest);
            }
        }
        let server = server(url)?;
        // The client ignores most parameters, so a database or a password there would have no effect.
        if parse_redis_url(url).is_some_and(|url| url.query().is_some()) {
            return Err(RedisUrlError::Parameters);
        }
        Ok(Self { server, service: None })
    }
}

/// `rest` is the URL without its scheme.
fn by_sentinel(scheme: &str, rest: &str) -> Result<RedisUrl, RedisUrlError> {
    let (authority, path) = rest.split_once('/').ok_or(RedisUrlError::Service)?;
    let (name, database) = path.split_at(path.find(['/', '?', '#']).unwrap_or(path.len()));
    // The characters that Sentinel allows. Others would be part of a password with an unescaped slash.
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || ".-_".contains(c)) {
        return Err(RedisUrlError::Service);
    }
    // An `@` elsewhere is part of a password with an unescaped character, or of a login for each sentinel.
    if path.contains('@') || authority.matches('@').count() > 1 {
        return Err(RedisUrlError::NotAUrl);
    }
    let (login, hosts) = authority.rsplit_once('@').map_or(("", authority), |(login, hosts)| (login, hosts));
    let first = hosts.split(',').next().unwrap_or_default();
    // Without the other sentinels and the service, this is the URL of a server.
    let url = format!("{scheme}://{login}@{first}{database}");
    let sentinel_login = sentinel_login(&url)?;
    let sentinel = |host: &str| {
        let has_port = host.rsplit(']').next().is_some_and(|after| after.contains(':'));
        let port = if has_port { String::new() } else { format!(":{SENTINEL_PORT}") };
        Ok(server(&format!("{scheme}://{host}{port}"))?.set_redis_settings(sentinel_login.clone()))
    };
    let sentinels = hosts.split(',').map(sentinel).collect::<Result<_, _>>()?;
    Ok(RedisUrl { server: server(&url)?, service: Some(Service { name: name.to_owned(), sentinels }) })
}

/// The login in the parameters of the URL, which has no others.
fn sentinel_login(url: &str) -> Result<RedisConnectionInfo, RedisUrlError> {
    let url = parse_redis_url(url).ok_or(RedisUrlError::NotAUrl)?;
    url.query_pairs().try_fold(RedisConnectionInfo::default(), |login, (name, value)| match &*name {
        "sentinel_username" => Ok(login.set_username(value)),
        "sentinel_password" => Ok(login.set_password(value)),
        _ => Err(RedisUrlError::NotAUrl),
    })
}

fn server(url: &str) -> Result<ConnectionInfo, RedisUrlError> {
    // The library's error contains the URL.
    let info = url.into_connection_info().map_err(|_| RedisUrlError::NotAUrl)?;
    if info.redis_settings().db() < 0 {
        return Err(RedisUrlError::NotAUrl);
    }
    match info.addr() {
        ConnectionAddr::TcpTls { insecure: true, .. } => Err(RedisUrlError::Insecure),
        ConnectionAddr::Tcp(..) | ConnectionAddr::TcpTls { .. } => Ok(info),
        ConnectionAddr::Unix(_) | _ => Err(RedisUrlError::Scheme),
    }
}

/// Omits the URL, which may hold a password.
impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisUrl").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(url: &str) -> RedisUrl {
        url.parse().unwrap_or_else(|error| panic!("{url}: {error}"))
    }

    #[test]
    fn a_sentinel_url_has_sentinels_a_service_and_the_login_and_database_of_its_servers() {
        let url = parsed("redis+sentinel://payments:p%40ss@a:1,b,[::1],[::2]:3/my-master.1/2");
        let service = url.service.as_ref().unwrap();
        let sentinels: Vec<_> = service.sentinels.iter().map(|sentinel| sentinel.addr().to_string()).collect();
        assert_eq!((service.name.as_str(), url.uses_tls()), ("my-master.1", false));
        assert_eq!(sentinels, ["a:1", "b:26379", "::1:26379", "::2:3"]);
        let server = url.server.redis_settings();
        assert_eq!((server.username(), server.password(), server.db()), (Some("payments"), Some("p@ss"), 2));
        for sentinel in &service.sentinels {
            let login = sentinel.redis_settings();
            assert_eq!((login.username(), login.password(), login.db()), (None, None, 0));
        }
    }

    #[test]
    fn the_sentinels_have_their_own_login_and_the_same_tls() {
        let url = parsed("rediss+sentinel://a,b/mymaster?sentinel_username=watcher&sentinel_password=s%2Fcret%3F");
        assert!(url.uses_tls() && !url.has_password() && url.user().is_none());
        for sentinel in &url.service.as_ref().unwrap().sentinels {
            let login = sentinel.redis_settings();
            assert_eq!((login.username(), login.password()), (Some("watcher"), Some("s/cret?")));
            assert!(matches!(sentinel.addr(), ConnectionAddr::TcpTls { insecure: false, .. }));
        }
    }

    #[test]
    fn a_url_of_a_server_has_no_parameters() {
        for url in ["redis://a?db=2", "redis://a:1/?password=s3cret", "rediss://a/2?protocol=resp3", "redis://u:1?2@a"]
        {
            assert_eq!(url.parse::<RedisUrl>().unwrap_err(), RedisUrlError::Parameters, "{url}");
        }
        assert_eq!(parsed("redis://u:1%3F2@a/2").server.redis_settings().password(), Some("1?2"));
    }

    #[test]
    fn an_invalid_sentinel_url_is_rejected_with_what_is_wrong() {
        use RedisUrlError::{Insecure, NotAUrl, Service};
        let cases = [
            ("redis+sentinel://a,b", Service),
            ("redis+sentinel://a,b/", Service),
            ("redis+sentinel://a,b//1", Service),
            ("redis+sentinel://user:12/secret@a:26379/mymaster", Service),
            ("redis+sentinel:///mymaster", NotAUrl),
            ("redis+sentinel://a,,b/mymaster", NotAUrl),
            ("redis+sentinel://a:port/mymaster", NotAUrl),
            ("redis+sentinel://a/mymaster/one", NotAUrl),
            ("redis+sentinel://a/mymaster/-1", NotAUrl),
            ("redis+sentinel://user:12/s3cret?x@a/mymaster", NotAUrl),
            ("redis+sentinel://user:12#s3cret@a/mymaster", NotAUrl),
            ("redis+sentinel://user:p@a:1,user:p@b:2/mymaster", NotAUrl),
            ("redis+sentinel://a/mymaster?sentinel_pasword=p", NotAUrl),
            ("redis-sentinel://a/mymaster", NotAUrl),
            ("redis://a/-1", NotAUrl),
            ("rediss+sentinel://a/mymaster#insecure", Insecure),
        ];
        for (url, expected) in cases {
            assert_eq!(url.parse::<RedisUrl>().unwrap_err(), expected, "{url}");
        }
    }
}
