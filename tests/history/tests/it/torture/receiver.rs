//! A webhook that answers the first requests of some keys as a plan of the seed says, and records every request.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use harness::http::{Answer, NewConnections, Request, Server, TOKEN};
use harness::torture::tally::lock;
use history::{Effect, Rng, WEBHOOK_TIMEOUT, WebhookAnswer, WebhookCall, monotonic_us};
use tokio::time::sleep;

pub(super) struct Receiver {
    server: Server,
    seen: Arc<Mutex<Seen>>,
}

/// What the webhook has seen.
#[derive(Clone, Default)]
pub(super) struct Seen {
    pub(super) calls: Vec<WebhookCall>,
    pub(super) effects: Vec<Effect>,
    pub(super) closed_us: Vec<u64>,
    /// Number of requests by key.
    requests: HashMap<String, u64>,
}

/// An answer, and how it is sent.
#[derive(Clone, Copy, Debug)]
struct Plan {
    status: u16,
    retry_after: RetryAfter,
    sent: Sent,
    has_effect: bool,
}

#[derive(Clone, Copy, Debug)]
enum RetryAfter {
    None,
    Seconds(u64),
    /// A date in this number of seconds.
    Date(u64),
    /// More seconds than 64 bits hold.
    Endless,
    /// Neither a number nor a date.
    Unreadable(&'static str),
}

#[derive(Clone, Copy, Debug)]
enum Sent {
    Whole,
    /// The body is longer than a result may be.
    Long,
    /// The body ends before its length.
    CutOff,
    /// The body takes longer than the timeout.
    Dripping,
    /// The head ends in its middle.
    HalfAHead,
    /// The connection is reset.
    Reset,
    /// After each timeout.
    Late,
}

/// The answer to most requests.
const DONE: Plan = Plan { status: 200, retry_after: RetryAfter::None, sent: Sent::Whole, has_effect: true };

const fn done(status: u16, sent: Sent) -> Plan {
    Plan { status, sent, ..DONE }
}

const fn refused(status: u16, retry_after: RetryAfter) -> Plan {
    Plan { status, retry_after, has_effect: false, ..DONE }
}

const fn uncertain(status: u16, sent: Sent, has_effect: bool) -> Plan {
    Plan { status, sent, has_effect, ..DONE }
}

/// No key has this number.
const NO_MESSAGE: u64 = 9;

/// Longer than an invocation.
const LATE: Duration = Duration::from_millis(2500);

/// Longer than the first steps of the backoff.
const LONG: u64 = 4;

const PLANS: &[Plan] = &[
    done(201, Sent::Whole),
    done(204, Sent::Whole),
    done(200, Sent::Long),
    done(200, Sent::CutOff),
    done(202, Sent::Dripping),
    refused(409, RetryAfter::None),
    refused(409, RetryAfter::Seconds(LONG)),
    refused(425, RetryAfter::None),
    refused(425, RetryAfter::Date(LONG)),
    refused(409, RetryAfter::Unreadable("soon")),
    refused(425, RetryAfter::Unreadable("")),
    refused(429, RetryAfter::None),
    refused(429, RetryAfter::Seconds(LONG)),
    refused(429, RetryAfter::Seconds(100_000)),
    refused(429, RetryAfter::Endless),
    refused(503, RetryAfter::None),
    refused(503, RetryAfter::Date(LONG)),
    refused(503, RetryAfter::Seconds(0)),
    uncertain(408, Sent::Whole, false),
    uncertain(408, Sent::Whole, true),
    uncertain(500, Sent::Whole, false),
    uncertain(500, Sent::Whole, true),
    uncertain(502, Sent::Whole, true),
    uncertain(504, Sent::Whole, false),
    uncertain(599, Sent::Whole, true),
    uncertain(600, Sent::Whole, true),
    uncertain(200, Sent::HalfAHead, true),
    uncertain(200, Sent::Reset, false),
    uncertain(200, Sent::Reset, true),
    uncertain(200, Sent::Late, true),
    refused(301, RetryAfter::None),
    refused(303, RetryAfter::None),
    refused(307, RetryAfter::None),
    refused(400, RetryAfter::None),
    refused(404, RetryAfter::None),
    refused(422, RetryAfter::None),
    refused(499, RetryAfter::Seconds(LONG)),
];

impl Plan {
    /// The answer to the request of this number, from 0, of this key. Three of ten keys have each plan in turn. The
    /// connection of a first request without a body is reset after its effect.
    fn of(seed: u64, key: u64, request: u64, is_empty: bool) -> Self {
        let mut rng = Rng::new(seed * 1_000_000 + key * 1000 + request);
        match request {
            0 if is_empty => uncertain(200, Sent::Reset, true),
            0 if key % 10 < 3 => PLANS[usize::try_from(seed + key / 10 * 3 + key % 10).unwrap() % PLANS.len()],
            1 if rng.happens(150) => *rng.pick(PLANS),
            _ => DONE,
        }
    }

    async fn answer(self, number: u64, retry_after: Option<String>, body: &str) -> Answer {
        sleep(Duration::from_millis(10 + number * 7 % 80)).await;
        // Some connections are reused.
        let connection = if number.is_multiple_of(2) { "close" } else { "keep-alive" };
        let mut headers = vec![("Connection", connection), ("Location", "/")];
        headers.extend(retry_after.as_deref().map(|after| ("Retry-After", after)));
        let body = if self.status == 204 { "" } else { body };
        let Answer::Whole(mut bytes) = Answer::with(self.status, &headers, body.as_bytes()) else { unreachable!() };
        match self.sent {
            Sent::Whole | Sent::Long => Answer::Whole(bytes),
            Sent::CutOff => {
                bytes.pop();
                Answer::Cut(bytes)
            }
            Sent::Dripping => {
                bytes.truncate(bytes.len() - body.len());
                Answer::Dripping(bytes)
            }
            Sent::HalfAHead => Answer::Cut(bytes[..20].to_vec()),
            Sent::Reset => Answer::Reset,
            Sent::Late => {
                sleep(LATE).await;
                Answer::Whole(bytes)
            }
        }
    }
}

impl Receiver {
    pub(super) async fn start(seed: u64) -> Self {
        let all = Arc::new(Mutex::new(Seen::default()));
        let shared = Arc::clone(&all);
        let server = Server::start(move |request: Request| {
            let at_us = monotonic_us();
            let key = decoded(request.header("Idempotency-Key").unwrap());
            // A key that no message has is done.
            let number: u64 = key.rsplit('-').next().unwrap().parse().unwrap_or(NO_MESSAGE);
            let mut known = lock(&shared);
            let requests = known.requests.entry(key.clone()).or_default();
            let plan = Plan::of(seed, number, *requests, request.body.is_empty());
            *requests += 1;
            let (retry_after, asked) = retry_after(plan.retry_after);
            let fence = request.number("Idempotency-Fence").unwrap();
            let body = match plan.sent {
                Sent::Long => "x".repeat(5000),
                Sent::Dripping => "x".repeat(100),
                _ => format!("receipt {fence}"),
            };
            let has_head = !matches!(plan.sent, Sent::HalfAHead | Sent::Reset | Sent::Late);
            let kept = if plan.status == 204 { String::new() } else { body.clone() };
            let answer = WebhookAnswer {
                status: has_head.then_some(plan.status),
                retry_after: asked,
                body: matches!(plan.sent, Sent::Whole).then_some(kept),
            };
            let call = WebhookCall {
                key,
                fence,
                attempt: request.header("Idempotency-Attempt").unwrap().parse().unwrap(),
                receive_count: request.header("Idempotency-Receive-Count").map(|count| count.parse().unwrap()),
                is_recovery: request.header("Idempotency-Recovery") == Some("true"),
                content_type: request.header("Content-Type").unwrap_or_default().to_owned(),
                body: String::from_utf8_lossy(&request.body).into_owned(),
                at_us,
                idle_us: request.idle.map(|idle| u64::try_from(idle.as_micros()).unwrap()),
                answer,
            };
            if plan.has_effect {
                let WebhookCall { key, fence, is_recovery, at_us, .. } = call.clone();
                known.effects.push(Effect { key, fence, is_recovery, at_us });
            }
            known.calls.push(call);
            drop(known);
            async move { plan.answer(number, retry_after, &body).await }
        })
        .await;
        Self { server, seen: all }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/?token={TOKEN}", self.server.address())
    }

    /// Whether the work under a key has had its effect.
    pub(super) fn effects(&self) -> impl Fn(&str) -> bool + Clone + Send + 'static {
        let seen = Arc::clone(&self.seen);
        move |key| lock(&seen).effects.iter().any(|effect| effect.key == key)
    }

    /// Refuses connections for this time.
    pub(super) async fn refuse(&self, time: Duration) {
        self.server.set_new_connections(NewConnections::Refused);
        // The server closes its listener when its task runs.
        lock(&self.seen).closed_us.push(monotonic_us());
        sleep(time).await;
        self.server.set_new_connections(NewConnections::Accepted);
    }

    /// Does not answer connections for this time. Those that it gets at the start are accepted in the end.
    pub(super) async fn ignore(&self, time: Duration) {
        self.server.set_new_connections(NewConnections::Ignored);
        sleep(time).await;
        self.server.set_new_connections(NewConnections::Accepted);
    }

    pub(super) fn seen(&self) -> Seen {
        lock(&self.seen).clone()
    }
}

/// The timeouts of a process. Every second one has none before the end of its invocation.
pub(super) fn timeouts(process: usize) -> Vec<(&'static str, String)> {
    if process.is_multiple_of(2) {
        return vec![("TARGET_TIMEOUT_MS", WEBHOOK_TIMEOUT.as_millis().to_string())];
    }
    ["TARGET_TIMEOUT_MS", "TARGET_CONNECT_TIMEOUT_MS"].map(|name| (name, "60000".to_owned())).to_vec()
}

/// The header and the delay that it asks for. A date has whole seconds.
fn retry_after(plan: RetryAfter) -> (Option<String>, Option<Duration>) {
    let delay = |seconds| Some(Duration::from_secs(seconds));
    match plan {
        RetryAfter::None => (None, None),
        RetryAfter::Seconds(seconds) => (Some(seconds.to_string()), delay(seconds)),
        RetryAfter::Date(seconds) => {
            let date = SystemTime::now() + Duration::from_secs(seconds);
            (Some(httpdate::fmt_http_date(date)), delay(seconds))
        }
        RetryAfter::Endless => (Some("1".repeat(30)), Some(Duration::MAX)),
        RetryAfter::Unreadable(text) => (Some(text.to_owned()), None),
    }
}

/// This text, whose escapes are decoded.
pub(super) fn decoded(escaped: &str) -> String {
    let mut parts = escaped.split('%');
    let mut bytes = parts.next().unwrap().as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(&part[..2], 16).unwrap());
        bytes.extend(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).unwrap()
}
