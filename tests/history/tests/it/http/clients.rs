//! Clients that repeat requests with few keys, and what each request was answered.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use harness::torture::tally::lock;
use history::{KEY_LASTS, Rng};
use http::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, SET_COOKIE};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{Full, Limited};
use idempotent_sqs::Deadline;
use tokio::time::{Instant, sleep, timeout};

use super::service::{Body, Ending, KEPT_BYTES, Plan, RECEIPT, Service, TOO_LONG};

/// Method, URI, content type, content encoding and body.
type Variant = (&'static str, &'static str, &'static str, Option<&'static str>, &'static str);

/// Requests that are not the same. The first is sent most often.
const JSON: [Variant; 7] = [
    ("POST", "/payments?currency=EUR&unit=cent", "application/json", None, r#"{"amount":1250}"#),
    ("POST", "/payments?currency=EUR&unit=cent", "application/json", None, r#"{"amount":1251}"#),
    ("PATCH", "/payments?currency=EUR&unit=cent", "application/json", None, r#"{"amount":1250}"#),
    ("POST", "/refunds?currency=EUR&unit=cent", "application/json", None, r#"{"amount":1250}"#),
    ("POST", "/payments?currency=USD&unit=cent", "application/json", None, r#"{"amount":1250}"#),
    ("POST", "/paymentscurrency=EUR&unit=cent", "application/json", None, r#"{"amount":1250}"#),
    ("POST", "/payments?currency=EUR&unit=cent", "text/plain", None, r#"{"amount":1250}"#),
];

/// As [`JSON`]. The fingerprint has `bytes` and a space in front of such a body: the last request has the bytes of the first
/// one, split elsewhere.
const TEXT: [Variant; 6] = [
    ("POST", "/payments?currency=EUR&unit=cent", "text/plain", None, "amount=bytes 1250"),
    ("POST", "/payments?currency=EUR&unit=cent", "text/plain", None, "amount=bytes 1251"),
    ("POST", "/payments?currency=EUR&unit=cent", "text/csv", None, "amount=bytes 1250"),
    ("POST", "/payments?currency=EUR&unit=cent", "text/plain", Some("gzip"), "amount=bytes 1250"),
    ("POST", "/payments?currency=EUR&unit=cent", "text/plain; gzip", None, "amount=bytes 1250"),
    ("POST", "/payments?currency=EUR&unit=cent", "text/plain; bytes amount=", None, "1250"),
];

const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// The problem of a request whose response was too large.
pub(crate) const NOT_KEPT: &str = "response-not-kept";

/// How often each request of a key is sent at most until one has a response that is kept.
const ROUNDS: usize = 100;

/// The problems that say what the store answered.
const OF_STORE: [&str; 3] = ["mismatch", "in-flight", "failed-before"];

/// What makes two requests the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Identity {
    pub(crate) principal: &'static str,
    pub(crate) key: String,
    pub(crate) variant: Variant,
}

impl Identity {
    /// The principal and its key.
    pub(crate) fn key(&self) -> (&str, &str) {
        (self.principal, &self.key)
    }
}

/// A request that was sent.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) identity: Identity,
    pub(crate) flaw: Option<Flaw>,
    /// `None` if the client did not wait for it.
    pub(crate) answer: Option<Answer>,
}

/// Why a request must not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// Its body breaks off.
    Cut,
    /// It has the header of the key twice.
    TwoKeys,
}

#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// The service returned an error.
    Error,
    /// Of a run of the handler.
    Receipt {
        request: usize,
        status: u16,
        /// Those that each replay has too.
        headers: HeaderMap,
        body: Bytes,
        has_session: bool,
        is_replayed: bool,
        is_omitted: bool,
    },
    /// The layer's own, with the last part of its type.
    Problem { status: u16, kind: String },
}

/// The requests of all clients, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Requests(Mutex<Vec<Sent>>);

impl Flaw {
    /// The problem of a request with this flaw.
    pub(crate) fn problem(self) -> &'static str {
        match self {
            Self::Cut => "body-too-large",
            Self::TwoKeys => "key-malformed",
        }
    }
}

impl Answer {
    fn of((status, mut headers, body): (StatusCode, HeaderMap, Bytes)) -> Self {
        let status = status.as_u16();
        if let Some(request) = headers.get(RECEIPT) {
            let request = request.to_str().unwrap().parse().unwrap();
            let mut is_marked = |name| headers.remove(name).is_some_and(|value| value == "true");
            let (is_replayed, is_omitted) = (is_marked("idempotent-replayed"), is_marked("idempotent-body-omitted"));
            let has_session = headers.remove(SET_COOKIE).is_some();
            headers.remove(CONTENT_LENGTH);
            headers.remove(IDEMPOTENCY_KEY);
            return Self::Receipt { request, status, headers, body, has_session, is_replayed, is_omitted };
        }
        let problem: serde_json::Value = serde_json::from_slice(&body).unwrap();
        let kind = problem["type"].as_str().unwrap().rsplit_once('#').unwrap().1.to_owned();
        Self::Problem { status, kind }
    }

    /// What the answer says about the record, if it is that of the store.
    pub(crate) fn of_store(&self) -> Option<&str> {
        match self {
            Self::Receipt { is_replayed: true, .. } => Some("replayed"),
            Self::Problem { kind, .. } if kind == NOT_KEPT => Some("replayed"),
            Self::Problem { kind, .. } => {
                Some(kind).filter(|kind| OF_STORE.contains(&kind.as_str())).map(String::as_str)
            }
            Self::Receipt { .. } | Self::Error => None,
        }
    }

    /// Whether the client need not repeat the request.
    fn is_final(&self) -> bool {
        match self {
            Self::Receipt { status, .. } => is_kept(*status),
            Self::Problem { kind, .. } => kind == NOT_KEPT,
            Self::Error => false,
        }
    }
}

/// Whether a response with this status is kept for the retries.
pub(crate) fn is_kept(status: u16) -> bool {
    (200..500).contains(&status) && status != 429
}

impl Requests {
    pub(crate) fn sent(self) -> Vec<Sent> {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request, and waits for its answer for this time.
    async fn send(
        &self,
        rng: &mut Rng,
        service: &Service,
        identity: &Identity,
        plan: Plan,
        limit: Duration,
    ) -> Option<Answer> {
        let flaw = match rng.draw(0..50) {
            0 => Some(Flaw::Cut),
            1 => Some(Flaw::TwoKeys),
            _ => None,
        };
        let at = {
            let mut sent = lock(&self.0);
            sent.push(Sent { identity: identity.clone(), flaw, answer: None });
            sent.len() - 1
        };
        let mut request = request(rng, identity, flaw);
        request.extensions_mut().insert(Plan { request: at, ..plan });
        // Some requests are part of an invocation.
        if rng.happens(200) {
            request.extensions_mut().insert(Deadline::within(rng.ms(20..500)));
        }
        let reply = timeout(limit, service.send(request)).await.ok()?;
        let answer = reply.map_or(Answer::Error, Answer::of);
        lock(&self.0)[at].answer = Some(answer.clone());
        Some(answer)
    }

    /// Sends one request after another until this time.
    pub(crate) async fn contend(&self, mut rng: Rng, services: &[Service], begun: Instant, lasts: Duration) {
        while begun.elapsed() < lasts {
            let period = begun.elapsed().as_millis() / KEY_LASTS.as_millis();
            // A key of an earlier time may have a lease that has ended meanwhile.
            let period = period.saturating_sub(*rng.pick(&[0, 0, 0, 6]));
            let principal = *rng.pick(&["alice", "bob"]);
            let number = rng.draw(0..4);
            let variants = if number < 2 { &JSON[..] } else { &TEXT[..] };
            let identity = Identity {
                principal,
                key: format!("{period}-{number}"),
                variant: if rng.happens(500) { variants[0] } else { *rng.pick(variants) },
            };
            for _ in 0..rng.draw(1..5) {
                let limit = if rng.happens(100) { rng.ms(0..40) } else { Duration::MAX };
                let (service, plan) = (rng.pick(services), plan(&mut rng));
                let answer = self.send(&mut rng, service, &identity, plan, limit).await;
                if answer.is_some_and(|answer| answer.is_final()) && rng.happens(500) {
                    break;
                }
                sleep(rng.ms(0..20)).await;
            }
        }
    }

    /// Sends all requests of this principal and key until one of them has a response that is kept, and then once more.
    /// Returns whether that is so.
    pub(crate) async fn finish(&self, mut rng: Rng, service: &Service, identities: &[Identity]) -> bool {
        let plan = Plan { ending: Ending::Answer(201), has_effect: true, before: Duration::ZERO, ..plan(&mut rng) };
        let plan = Plan { after: Duration::ZERO, ..plan };
        let mut rounds = 0;
        for _ in 0..ROUNDS {
            let mut is_final = false;
            for identity in identities {
                let answer = self.send(&mut rng, service, identity, plan, Duration::MAX).await;
                is_final |= answer.is_some_and(|answer| answer.is_final());
            }
            rounds += u8::from(is_final);
            if rounds == 2 {
                return true;
            }
            // For the time in which used-up attempts apply.
            sleep(Duration::from_millis(10)).await;
        }
        false
    }

    /// The requests that were sent, by principal and key.
    pub(crate) fn identities(&self) -> Vec<Vec<Identity>> {
        let mut identities: Vec<_> = lock(&self.0).iter().map(|sent| sent.identity.clone()).collect();
        identities.sort_unstable();
        identities.dedup();
        identities.chunk_by(|one, other| one.key() == other.key()).map(<[_]>::to_vec).collect()
    }
}

fn request(rng: &mut Rng, identity: &Identity, flaw: Option<Flaw>) -> Request<Body> {
    let (method, uri, content_type, encoding, body) = identity.variant;
    let is_json = content_type == "application/json";
    // The same request in other words.
    let body = if is_json && rng.happens(500) { body.replace(':', " : ") } else { body.to_owned() };
    let uri = if rng.happens(500) {
        uri.replace("?currency=EUR&unit=cent", "?unit=cent&currency=EUR")
    } else {
        uri.to_owned()
    };
    let key = if rng.happens(500) { format!("\"{}\"", identity.key) } else { identity.key.clone() };
    let mut request = Request::builder().method(method).uri(uri).header(IDEMPOTENCY_KEY, key);
    request = request.header(AUTHORIZATION, identity.principal).header(CONTENT_TYPE, content_type);
    if let Some(encoding) = encoding {
        request = request.header(CONTENT_ENCODING, encoding);
    }
    if flaw == Some(Flaw::TwoKeys) {
        request = request.header(IDEMPOTENCY_KEY, &identity.key);
    }
    let limit = if flaw == Some(Flaw::Cut) { 3 } else { usize::MAX };
    request.body(Limited::new(Full::new(body.into()), limit)).unwrap()
}

fn plan(rng: &mut Rng) -> Plan {
    let ending = match rng.draw(0..20) {
        0..9 => Ending::Answer(201),
        9 => Ending::Answer(*rng.pick(&[302, 402, 404])),
        10..12 => Ending::Answer(429),
        12..14 => Ending::Answer(503),
        14..16 => Ending::Answer(*rng.pick(&[500, 502, 504])),
        16 => Ending::BreakOff,
        17 => Ending::Error,
        _ => Ending::Panic,
    };
    let has_effect = match ending {
        Ending::Answer(429 | 503) => false,
        Ending::Answer(201) => true,
        _ => rng.happens(500),
    };
    let time = |rng: &mut Rng| match rng.draw(0..60) {
        0..3 => TOO_LONG,
        3 => rng.ms(50..250),
        _ => rng.ms(0..15),
    };
    let (before, after) = (time(rng), time(rng));
    let bytes = if rng.happens(200) { 2 * KEPT_BYTES } else { 20 };
    Plan { request: 0, before, has_effect, after, ending, bytes }
}
