//! The URL of a deployment, written from its parts: the doc comment of `RedisUrl`.

use std::fmt::Write as _;

use history::Rng;
use idempotent_sqs::stores::redis::{RedisUrl, RedisUrlError};

/// The parts of a URL.
#[derive(Clone, Debug)]
pub(super) struct Address {
    pub(super) tls: bool,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    /// Those of sentinels, if there is a service.
    pub(super) hosts: Vec<(String, Option<u16>)>,
    pub(super) service: Option<String>,
    pub(super) database: Option<u16>,
    /// The login of the sentinels.
    pub(super) sentinel_login: Option<[String; 2]>,
}

/// A user or a password with characters that have a meaning in URLs.
pub fn secret(rng: &mut Rng) -> String {
    const CHARACTERS: [&str; 14] = ["a", "Z", "0", "-", "_", "/", "?", "#", "@", ":", "%", " ", "+", "ü"];
    (0..rng.draw(1..12)).map(|_| *rng.pick(&CHARACTERS)).collect()
}

/// Percent-encodes what is not unreserved, and sometimes what is: <https://www.rfc-editor.org/rfc/rfc3986#section-2>.
pub fn encoded(text: &str, rng: &mut Rng) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        let is_unreserved = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        let written = if is_unreserved && !rng.happens(100) {
            write!(encoded, "{}", char::from(byte))
        } else {
            write!(encoded, "%{byte:02X}")
        };
        written.expect("a String can be written");
    }
    encoded
}

impl Address {
    pub(super) fn url(&self, rng: &mut Rng) -> String {
        let scheme = if self.tls { "rediss" } else { "redis" };
        let kind = if self.service.is_some() { "+sentinel" } else { "" };
        let login = match (&self.user, &self.password) {
            (None, None) => String::new(),
            (Some(user), None) => format!("{}@", encoded(user, rng)),
            (user, Some(password)) => {
                let user = user.as_deref().map_or_else(String::new, |user| encoded(user, rng));
                format!("{user}:{}@", encoded(password, rng))
            }
        };
        let port = |port: Option<u16>| port.map_or_else(String::new, |port| format!(":{port}"));
        let hosts: Vec<_> = self.hosts.iter().map(|(host, number)| format!("{host}{}", port(*number))).collect();
        let mut url = format!("{scheme}{kind}://{login}{}", hosts.join(","));
        for part in self.service.iter().cloned().chain(self.database.map(|number| number.to_string())) {
            url.push('/');
            url.push_str(&part);
        }
        if let Some([user, password]) = &self.sentinel_login {
            let [user, password] = [user, password].map(|text| encoded(text, rng));
            let parameters = [format!("sentinel_username={user}"), format!("sentinel_password={password}")];
            url.push('?');
            url.push_str(&parameters.join("&"));
        }
        url
    }

    /// What the URL says wrongly of itself.
    pub(super) fn wrong_parts(&self, url: &RedisUrl) -> Vec<String> {
        let parts = [
            ("user", url.user() == self.user.as_deref()),
            ("password", url.has_password() == self.password.is_some()),
            ("TLS", url.uses_tls() == self.tls),
            ("sentinels", url.uses_sentinel() == self.service.is_some()),
        ];
        parts.into_iter().filter(|(_, is_right)| !is_right).map(|(part, _)| format!("its {part}")).collect()
    }

    /// What is wrong with the errors of URLs that are like this one, and not valid.
    pub(super) fn wrong_errors(&self, rng: &mut Rng) -> Vec<String> {
        use RedisUrlError::{Insecure, NotAUrl, Parameters, Service};
        let with = |change: &dyn Fn(&mut Self)| {
            let mut other = self.clone();
            change(&mut other);
            other
        };
        let plain = with(&|other| (other.sentinel_login, other.database) = (None, None));
        let mut invalid = vec![
            (plain.url(rng).replacen("redis", "http", 1), vec![NotAUrl, Service]),
            (plain.url(rng).replacen("redis", "redis-", 1), vec![NotAUrl]),
            (format!("{}/-1", plain.url(rng)), vec![NotAUrl]),
            (format!("{}/1/2", plain.url(rng)), vec![NotAUrl]),
            (
                format!("{}/0?retries=5", plain.url(rng)),
                vec![if self.service.is_some() { NotAUrl } else { Parameters }],
            ),
            (with(&|other| other.hosts.clear()).url(rng), vec![NotAUrl]),
            (format!("{}#primary", plain.url(rng)), vec![NotAUrl]),
            // The rest of a password whose first part is a port.
            (plain.url(rng).replacen("://", "://payments:12#", 1), vec![NotAUrl]),
        ];
        if self.tls {
            invalid.push((format!("{}#insecure", plain.url(rng)), vec![Insecure]));
        }
        if let Some(service) = &self.service {
            invalid.extend([
                (with(&|other| other.service = Some(String::new())).url(rng), vec![Service]),
                (with(&|other| other.service = Some(format!("{service}!"))).url(rng), vec![Service]),
                (
                    with(&|other| (other.service, other.database) = (None, None)).url(rng).replacen(
                        "://",
                        "+sentinel://",
                        1,
                    ),
                    vec![Service],
                ),
            ]);
            if self.password.is_some() && self.hosts.len() > 1 {
                invalid.push((plain.url(rng).replace(',', ",other:login@"), vec![NotAUrl]));
            }
        }
        let wrong = |(url, errors): &(String, Vec<RedisUrlError>)| {
            let error = url.parse::<RedisUrl>().err();
            let is_expected = error.as_ref().is_some_and(|error| errors.contains(error));
            (!is_expected).then(|| format!("{url} is {error:?}, not {errors:?}"))
        };
        invalid.iter().filter_map(wrong).collect()
    }
}
