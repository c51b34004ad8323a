//! URLs of PostgreSQL, written from their parts: docs/inbox.md and
//! <https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-CONNSTRING-URIS>.

use history::Rng;
use idempotent_sqs_postgres::{DatabaseUrl, DatabaseUrlError};

use crate::deployments::{encoded, secret};

/// The port of a URL without one.
const PORT: u16 = 5432;

/// What is wrong with how a URL is parsed, and the errors of others that are like it.
pub(super) fn wrong_url(rng: &mut Rng) -> Vec<String> {
    use DatabaseUrlError::{NoHost, NotAUrl, Scheme, SslMode};
    let user = rng.happens(700).then(|| secret(rng));
    let password = user.as_ref().filter(|_| rng.happens(600)).map(|_| secret(rng));
    let hosts: Vec<_> = (0..*rng.pick(&[1, 1, 2])).map(|_| host(rng)).collect();
    let (mode, is_required) = *rng.pick(&[
        (None, None),
        (Some("disable"), Some(false)),
        (Some("require"), Some(true)),
        (Some("verify-full"), Some(true)),
    ]);
    let login = match (&user, &password) {
        (None, _) => String::new(),
        (Some(user), None) => format!("{}@", encoded(user, rng)),
        (Some(user), Some(password)) => format!("{}:{}@", encoded(user, rng), encoded(password, rng)),
    };
    let addresses: Vec<_> = hosts
        .iter()
        .map(|(name, port)| port.map_or_else(|| (*name).to_owned(), |port| format!("{name}:{port}")))
        .collect();
    let scheme = *rng.pick(&["postgres", "postgresql"]);
    let mut options = vec!["connect_timeout=3".to_owned()];
    options.extend(mode.map(|mode| format!("sslmode={mode}")));
    let url = |scheme: &str, hosts: &str, options: &str| format!("{scheme}://{login}{hosts}/payments?{options}");
    let valid = url(scheme, &addresses.join(","), &options.join("&"));
    let mut wrong = Vec::new();
    match valid.parse::<DatabaseUrl>() {
        Ok(parsed) => {
            let is_local = hosts.iter().all(|(name, _)| ["localhost", "127.0.0.1"].contains(name));
            let parts = [
                ("user", parsed.user() == user.as_deref()),
                ("password", parsed.has_password() == password.is_some()),
                ("host", parsed.host() == Some(hosts[0].0)),
                ("port", parsed.port() == hosts[0].1.unwrap_or(PORT)),
                ("number of hosts", parsed.has_one_host() == (hosts.len() == 1)),
                ("TLS", parsed.uses_tls() == is_required.unwrap_or(!is_local)),
            ];
            let faults = parts.into_iter().filter(|(_, is_right)| !is_right);
            wrong.extend(faults.map(|(part, _)| format!("the {part} of {valid}")));
        }
        Err(error) => wrong.push(format!("{valid} is not valid: {error}")),
    }
    let (hosts, options) = (addresses.join(","), options.join("&"));
    let port = format!("{}:port", addresses[0]);
    let invalid = [
        (url("mysql", &hosts, &options), Scheme),
        (url("Postgres", &hosts, &options), Scheme),
        (format!("postgres://{login}/payments"), NoHost),
        (url(scheme, &port, "connect_timeout=3"), NotAUrl),
        (url(scheme, &hosts, "sslmode=prefer"), SslMode),
        (url(scheme, &hosts, "sslmode=allow&connect_timeout=3"), SslMode),
        (url(scheme, &hosts, "unknown=1"), NotAUrl),
    ];
    for (url, expected) in invalid {
        let error = url.parse::<DatabaseUrl>().err();
        if error != Some(expected) {
            wrong.push(format!("{url} is {error:?}, not {expected:?}"));
        }
    }
    wrong
}

fn host(rng: &mut Rng) -> (&'static str, Option<u16>) {
    let name = *rng.pick(&["db.internal", "localhost", "127.0.0.1", "payments.abc.eu-central-1.rds.amazonaws.com"]);
    (name, rng.happens(500).then_some(5433))
}
