//! Clients that repeat requests with few keys.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use harness::torture::tally::lock;
use history::{KEY_LASTS, Rng};
use http::HeaderValue;
use idempotent_sqs::Deadline;
use tokio::time::{Instant, sleep, timeout};
use tracing::Instrument;

use crate::answer::{Answer, NOT_KEPT};
use crate::handler::{Ending, Plan};
use crate::kind::{Kind, OBJECTS};
use crate::logs;
use crate::request::{FLAWS, Flaw, IDEMPOTENCY_KEY, Identity, VARIANTS};
use crate::response::Form;
use crate::service::{Service, TOO_LONG};

/// How often each request of a key is sent at most until one has a response that is kept.
const ROUNDS: usize = 100;

/// A request that was sent.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) identity: Identity,
    pub(crate) flaw: Option<Flaw>,
    /// The header of its key.
    pub(crate) key: Option<HeaderValue>,
    pub(crate) at: Instant,
    /// Of the invocation that it was part of.
    pub(crate) deadline: Option<Deadline>,
    /// The service that it was sent to.
    pub(crate) kind: Kind,
    /// When its client stopped waiting for it.
    pub(crate) left_at: Option<Instant>,
    /// `None` if the client did not wait for it.
    pub(crate) answered: Option<Answered>,
}

#[derive(Clone, Debug)]
pub(crate) struct Answered {
    pub(crate) answer: Answer,
    /// The key in the answer.
    pub(crate) key: Option<HeaderValue>,
    /// When the head of the answer arrived.
    pub(crate) after: Duration,
}

impl Sent {
    pub(crate) fn answer(&self) -> Option<&Answer> {
        self.answered.as_ref().map(|answered| &answered.answer)
    }

    /// Whether the client need not repeat the request.
    fn is_done(&self) -> bool {
        match self.answer() {
            Some(Answer::Receipt { is_replayed, reply, .. }) => *is_replayed || self.kind.keeps(reply.status),
            Some(Answer::Problem { kind, .. }) => kind == NOT_KEPT,
            Some(Answer::Error(_) | Answer::Unprotected(_) | Answer::Unknown(_)) | None => false,
        }
    }
}

/// The requests of all clients, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Requests(Mutex<Vec<Sent>>);

impl Requests {
    pub(crate) fn sent(self) -> Vec<Sent> {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request, and waits for its answer for this time. Returns whether it need not be repeated.
    async fn send(
        &self,
        rng: &mut Rng,
        service: &Service,
        identity: &Identity,
        flaw: Option<Flaw>,
        plan: Plan,
        limit: Duration,
    ) -> bool {
        let mut request = identity.request(rng, flaw);
        // Some requests are part of an invocation.
        let deadline = rng.happens(250).then(|| Deadline::within(rng.ms(20..500)));
        if let Some(deadline) = deadline {
            request.extensions_mut().insert(deadline);
        }
        let (identity, key) = (identity.clone(), request.headers().get(IDEMPOTENCY_KEY).cloned());
        let begun = Instant::now();
        let at = {
            let mut sent = lock(&self.0);
            let kind = service.kind;
            sent.push(Sent { identity, flaw, key, at: begun, deadline, kind, left_at: None, answered: None });
            sent.len() - 1
        };
        request.extensions_mut().insert(Plan { request: at, ..plan });
        let Ok(reply) = timeout(limit, service.send(request).instrument(logs::span(at))).await else {
            lock(&self.0)[at].left_at = Some(Instant::now());
            return false;
        };
        let head_at = reply.as_ref().map_or_else(|_| Instant::now(), |reply| reply.head_at);
        let (answer, key) = Answer::of(reply);
        let sent = &mut lock(&self.0)[at];
        sent.answered = Some(Answered { answer, key, after: head_at - begun });
        sent.is_done()
    }

    /// Sends one request after another until this time.
    pub(crate) async fn contend(&self, mut rng: Rng, services: &[Service], begun: Instant, lasts: Duration) {
        while begun.elapsed() < lasts {
            let period = begun.elapsed().as_millis() / KEY_LASTS.as_millis();
            // A key of an earlier time may have a lease that has ended meanwhile.
            let period = period.saturating_sub(*rng.pick(&[0, 0, 0, 6]));
            let number = usize::try_from(rng.draw(0..VARIANTS.len() as u64)).unwrap();
            let identity = Identity::pick(&mut rng, period, number);
            // Some keys have large responses that are kept as objects.
            let is_large = number == 1 && rng.happens(500);
            let services = if is_large { &services[OBJECTS] } else { services };
            for _ in 0..rng.draw(1..5) {
                let flaw = (identity.needs_key() && rng.happens(250)).then(|| *rng.pick(&FLAWS));
                let limit = if rng.happens(100) { rng.ms(0..40) } else { Duration::MAX };
                let (service, mut plan) = (rng.pick(services), plan(&mut rng));
                if is_large && plan.ending != Ending::BreakOff {
                    plan.form = Form::LargeBody;
                }
                if self.send(&mut rng, service, &identity, flaw, plan, limit).await && rng.happens(500) {
                    break;
                }
                sleep(rng.ms(0..20)).await;
            }
        }
        // The services are drained while these run, or they end with their clients.
        let identity = Identity::pick(&mut rng, begun.elapsed().as_millis(), 0);
        let plan = Plan {
            ending: Ending::Answer(201),
            has_effect: true,
            before: Duration::from_millis(200),
            ..plan(&mut rng)
        };
        let service = rng.pick(&services[..2]);
        self.send(&mut rng, service, &identity, None, plan, Duration::from_millis(30)).await;
    }

    /// Sends all requests of this principal and key until one of them has a response that is kept, and then once more.
    /// Returns whether that is so.
    pub(crate) async fn finish(&self, mut rng: Rng, service: &Service, identities: &[Identity]) -> bool {
        let plan = Plan { ending: Ending::Answer(201), has_effect: true, before: Duration::ZERO, ..plan(&mut rng) };
        let plan = Plan { after: Duration::ZERO, ..plan };
        let mut rounds = 0;
        for _ in 0..ROUNDS {
            let mut is_done = false;
            for identity in identities {
                is_done |= self.send(&mut rng, service, identity, None, plan, Duration::MAX).await;
            }
            rounds += u8::from(is_done);
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

fn plan(rng: &mut Rng) -> Plan {
    let ending = match rng.draw(0..32) {
        0..10 => Ending::Answer(201),
        10 => Ending::Answer(101),
        11 => Ending::Answer(*rng.pick(&[302, 402, 404])),
        12..14 => Ending::Answer(429),
        14 => Ending::Answer(503),
        15..18 => Ending::Answer(*rng.pick(&[500, 502, 504, 600])),
        18 => Ending::BreakOff,
        19 => Ending::Error,
        20..22 | 26 => Ending::Unavailable,
        22 => Ending::Busy,
        27..29 => Ending::Retryable,
        23 => Ending::Permanent,
        24..26 => Ending::Garbage,
        _ => Ending::Panic,
    };
    let has_effect = match ending {
        Ending::Answer(429 | 503) | Ending::Permanent => false,
        ending if ending.has_no_effect() => false,
        Ending::Answer(201) => true,
        _ => rng.happens(500),
    };
    let time = |rng: &mut Rng| match rng.draw(0..60) {
        0..3 => TOO_LONG,
        3..5 => rng.ms(50..250),
        _ => rng.ms(0..15),
    };
    let (before, after) = (time(rng), time(rng));
    let form = match rng.draw(0..20) {
        // A larger response, or a stream, is kept before it breaks off.
        _ if ending == Ending::BreakOff => Form::Small,
        0..5 => Form::LargeBody,
        5 => Form::LargeHead,
        6 => Form::Events,
        7 => Form::Slow,
        8 => Form::Fitting,
        _ => Form::Small,
    };
    Plan { request: 0, before, has_effect, after, ending, form }
}
