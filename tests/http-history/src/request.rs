//! Requests that are the same in other words, requests that are not the same, and requests that must not run.

use std::time::Duration;

use bytes::Bytes;
use history::Rng;
use http::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Request};

use crate::body::{Body, Step};
use crate::handler::Original;
use crate::service::MAX_BODY_BYTES;

pub(crate) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Method, URI, content type, content encoding and body.
type Variant = (&'static str, &'static str, &'static str, Option<&'static str>, &'static str);

/// Requests that are not the same. The first is sent most often.
const JSON: &[Variant] = &[
    ("POST", "/payments?currency=EUR&unit=cent", "application/json", None, r#"{"amount":1250}"#),
    ("POST", "/payments?currency=EUR&unit=cent", "application/json", None, r#"{"amount":1251}"#),
    ("PATCH", "/payments?currency=EUR&unit=cent", "application/json", None, r#"{"amount":1250}"#),
    ("GET", "/payments?currency=EUR&unit=cent", "application/json", None, r#"{"amount":1250}"#),
    ("POST", "/refunds?currency=EUR&unit=cent", "application/json", None, r#"{"amount":1250}"#),
    ("POST", "/payments?currency=USD&unit=cent", "application/json", None, r#"{"amount":1250}"#),
    ("POST", "/paymentscurrency=EUR&unit=cent", "application/json", None, r#"{"amount":1250}"#),
    ("POST", "/payments?currency=EUR&unit=cent", "text/plain", None, r#"{"amount":1250}"#),
];

/// As [`JSON`]: parameters of one name in another order, and paths with other escapes.
const PARAMETERS: &[Variant] = &[
    ("POST", "/payments?item=1&item=2&unit=cent", "application/vnd.payment+json", None, r#"{"amount":1250}"#),
    ("POST", "/payments?item=2&item=1&unit=cent", "application/vnd.payment+json", None, r#"{"amount":1250}"#),
    ("POST", "/payments/1/2?unit=cent", "application/vnd.payment+json", None, r#"{"amount":1250}"#),
    ("POST", "/payments/1%2F2?unit=cent", "application/vnd.payment+json", None, r#"{"amount":1250}"#),
];

/// As [`JSON`]: encoded bodies, which are not read as JSON.
const ENCODED: &[Variant] = &[
    ("POST", "/payments?currency=EUR&unit=cent", "application/json", Some("gzip"), r#"{"amount":1250}"#),
    ("POST", "/payments?currency=EUR&unit=cent", "application/json", Some("gzip"), r#"{"amount": 1250}"#),
    ("POST", "/payments?currency=EUR&unit=cent", "application/json", None, r#"{"amount":1250}"#),
];

/// As [`JSON`]. The fingerprint has `bytes` and a space in front of such a body: the last request has the bytes of the
/// first one, split elsewhere.
const TEXT: &[Variant] = &[
    ("POST", "/payments?currency=EUR&unit=cent", "text/plain", None, "amount=bytes 1250"),
    ("POST", "/payments?currency=EUR&unit=cent", "text/plain", None, "amount=bytes 1251"),
    ("POST", "/payments?currency=EUR&unit=cent", "text/csv", None, "amount=bytes 1250"),
    ("POST", "/payments?currency=EUR&unit=cent", "text/plain", Some("gzip"), "amount=bytes 1250"),
    ("POST", "/payments?currency=EUR&unit=cent", "text/plain; gzip", None, "amount=bytes 1250"),
    ("POST", "/payments?currency=EUR&unit=cent", "text/plain; GZIP", None, "amount=bytes 1250"),
    ("POST", "/payments?currency=EUR&unit=cent", "text/plain; bytes amount=", None, "1250"),
];

/// As [`JSON`]: text whose bytes are compared, although it is the same JSON.
const PLAIN: &[Variant] = &[
    ("POST", "/payments?currency=EUR&unit=cent", "text/plain", None, r#"{"amount":1250}"#),
    ("POST", "/payments?currency=EUR&unit=cent", "text/plain", None, r#"{"amount": 1250}"#),
    ("POST", "/payments?currency=EUR&unit=cent", "text/plain", Some("gzip"), r#"{"amount":1250}"#),
    ("POST", "/payments?currency=EUR&unit=cent", "text/plain", Some("br"), r#"{"amount":1250}"#),
];

/// One type in other words.
const JSON_TYPES: [&str; 3] =
    ["application/json", "Application/JSON; charset=utf-8", "application/json ; charset=utf-8"];

/// The requests of each key, by its number.
pub(crate) const VARIANTS: [&[Variant]; 5] = [JSON, PARAMETERS, TEXT, ENCODED, PLAIN];

/// Headers that are not a String of RFC 8941, nor the same without quotes.
const MALFORMED_KEYS: &[&[u8]] = &[
    b"",
    b"\"\"",
    b"\"a",
    b"a\"",
    b"\"a\"b",
    b"\"a\", \"b\"",
    b"\"a\";b=1",
    b"\"\\a\"",
    b"\"a\tb\"",
    b"a b",
    b"a,b",
    b"a;b=1",
    b"a\\b",
    b"k\xc3\xa9",
];

/// Longest key, characters.
const LONGEST_KEY: usize = 255;

/// What makes two requests the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Identity {
    pub(crate) principal: &'static str,
    pub(crate) key: String,
    pub(crate) variant: Variant,
}

/// Why a request must not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    NoKey,
    /// It has the header of the key twice.
    TwoKeys,
    MalformedKey,
    NoPrincipal,
    /// Its body breaks off.
    Cut,
    /// Its body does not end.
    Slow,
    /// Its body is too large.
    Large,
}

/// The more cases a flaw has, the more often it is sent.
pub(crate) const FLAWS: [Flaw; 12] = [
    Flaw::NoKey,
    Flaw::TwoKeys,
    Flaw::MalformedKey,
    Flaw::MalformedKey,
    Flaw::MalformedKey,
    Flaw::MalformedKey,
    Flaw::MalformedKey,
    Flaw::NoPrincipal,
    Flaw::Cut,
    Flaw::Slow,
    Flaw::Large,
    Flaw::Large,
];

impl Flaw {
    /// Status and problem of a request with this flaw.
    pub(crate) fn problem(self) -> (u16, &'static str) {
        match self {
            Self::NoKey => (400, "key-missing"),
            Self::TwoKeys | Self::MalformedKey => (400, "key-malformed"),
            Self::NoPrincipal => (401, "principal-missing"),
            Self::Cut => (400, "body-unreadable"),
            Self::Slow => (408, "body-timeout"),
            Self::Large => (413, "body-too-large"),
        }
    }
}

impl Identity {
    /// One of the requests of the key with this number.
    pub(crate) fn pick(rng: &mut Rng, period: u128, number: usize) -> Self {
        let variants = VARIANTS[number];
        let key = format!("{period}-{number}");
        let key = match number {
            2 => format!("{key:x<LONGEST_KEY$}"),
            3 => format!(r#"{key} "quoted" \"#),
            _ => key,
        };
        let variant = if rng.happens(500) { variants[0] } else { *rng.pick(variants) };
        Self { principal: *rng.pick(&["alice", "bob"]), key, variant }
    }

    /// The principal and its key.
    pub(crate) fn key(&self) -> (&str, &str) {
        (self.principal, &self.key)
    }

    pub(crate) fn path(&self) -> &'static str {
        let uri = self.variant.1;
        uri.split_once('?').map_or(uri, |(path, _)| path)
    }

    /// Whether a layer with the default rule requires a key.
    pub(crate) fn needs_key(&self) -> bool {
        self.variant.0 != "GET"
    }

    /// This request in some of the words that are the same, with this flaw.
    pub(crate) fn request(&self, rng: &mut Rng, flaw: Option<Flaw>) -> Request<Body> {
        let (method, uri, content_type, encoding, _) = self.variant;
        let mut request = Request::builder().method(method).uri(self.uri(rng));
        let key = match flaw {
            Some(Flaw::NoKey) => None,
            Some(Flaw::MalformedKey) => Some(malformed_key(rng)),
            _ => Some(self.key_header(rng)),
        };
        if let Some(key) = key {
            request = request.header(IDEMPOTENCY_KEY, key);
        }
        if flaw == Some(Flaw::TwoKeys) {
            request = request.header(IDEMPOTENCY_KEY, self.key_header(rng));
        }
        if flaw != Some(Flaw::NoPrincipal) {
            request = request.header(AUTHORIZATION, self.principal);
        }
        let content_type = match content_type {
            "application/json" => *rng.pick(&JSON_TYPES),
            other => other,
        };
        request = request.header(CONTENT_TYPE, content_type);
        if let Some(encoding) = encoding {
            request = request.header(CONTENT_ENCODING, encoding);
        }
        let (body, trailers) =
            (self.body(rng), HeaderMap::from_iter([(HeaderName::from_static("checksum"), uri.len().into())]));
        let original = Original { key: self.key.clone(), body: body.clone(), trailers: trailers.clone() };
        let mut steps = vec![Step::Data(body)];
        match flaw {
            Some(Flaw::Cut) => steps.push(Step::Fail),
            Some(Flaw::Slow) => steps.push(Step::Pause(Duration::MAX)),
            Some(Flaw::Large) => {
                // The same JSON. A body whose length is not known in advance is sent in chunks.
                let rest = Step::Data(" ".repeat(MAX_BODY_BYTES).into());
                match rng.draw(0..3) {
                    0 => steps.push(rest),
                    1 => steps.extend([rest, Step::Pause(Duration::ZERO)]),
                    // The length alone is too large.
                    _ => steps.push(Step::Missing(MAX_BODY_BYTES as u64)),
                }
            }
            _ => {}
        }
        steps.push(Step::Trailers(trailers));
        request.extension(original).body(Body::of(steps)).unwrap()
    }

    /// Parameters of different names may come in another order.
    fn uri(&self, rng: &mut Rng) -> String {
        let uri = self.variant.1;
        match uri.split_once('?').zip(uri.rsplit_once('&')) {
            Some(((path, _), (others, last))) if rng.happens(500) => {
                format!("{path}?{last}&{}", &others[path.len() + 1..])
            }
            _ => uri.to_owned(),
        }
    }

    fn body(&self, rng: &mut Rng) -> Bytes {
        let (_, _, content_type, encoding, body) = self.variant;
        let is_json = content_type.ends_with("json") && encoding.is_none();
        if is_json && rng.happens(500) { body.replace(':', " : ").into() } else { body.into() }
    }

    /// In quotes, or bare if it may be, perhaps with spaces around it.
    fn key_header(&self, rng: &mut Rng) -> HeaderValue {
        let is_bare = !self.key.contains(['"', ' ', '\\']) && rng.happens(500);
        let escaped = self.key.replace('\\', r"\\").replace('"', r#"\""#);
        let key = if is_bare { escaped } else { format!("\"{escaped}\"") };
        let around = *rng.pick(&["", "", " ", "\t"]);
        HeaderValue::from_str(&format!("{around}{key}{around}")).unwrap()
    }
}

fn malformed_key(rng: &mut Rng) -> HeaderValue {
    let too_long = "x".repeat(LONGEST_KEY + 1);
    let too_long = [too_long.clone(), format!("\"{too_long}\"")].map(String::into_bytes);
    let keys: Vec<&[u8]> = MALFORMED_KEYS.iter().copied().chain(too_long.iter().map(Vec::as_slice)).collect();
    HeaderValue::from_bytes(rng.pick::<&[u8]>(&keys)).unwrap()
}
