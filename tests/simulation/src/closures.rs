//! Callers that run closures once for each key, after the function has ended and without faults.

use std::panic::resume_unwind;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use history::{Rng, monotonic_us};
use idempotent_sqs::idempotency::{ClaimInfo, Deadline, OnceError, Recovery};
use idempotent_sqs::{Delivery, Idempotency, Key, Policy, RedisStore, WorkError};
use serde::ser::Error as _;
use serde::{Deserialize, Serialize, Serializer};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::lock;
use crate::logins::Logins;
use crate::plan::Plan;
use crate::redis::Cluster;

const CALLERS: [&str; 4] = ["closures0", "closures1", "closures2", "closures3"];

/// Calls of each caller.
const CALLS: usize = 12;

/// Time of a call, of which a quarter is for settling.
pub const TIME: Duration = Duration::from_millis(400);

/// How much longer its lease lasts.
pub const GRACE: Duration = Duration::from_millis(50);

pub const MAX_ATTEMPTS: u8 = 3;

/// Largest value that is kept, bytes.
pub const MAX_BYTES: usize = 100;

/// The value of a closure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Value {
    /// The call that ran it.
    pub call: usize,
    #[serde(serialize_with = "serialize_unless_no_json")]
    text: String,
}

/// The text of a value that is not JSON.
const NO_JSON: &str = "no JSON";

fn serialize_unless_no_json<S: Serializer>(text: &str, serializer: S) -> Result<S::Ok, S::Error> {
    if text == NO_JSON { Err(S::Error::custom(NO_JSON)) } else { serializer.serialize_str(text) }
}

/// How a closure ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Return,
    /// With a value that is too large to be kept, or is not JSON.
    ReturnLarge,
    Retryable,
    Unavailable,
    Uncertain,
    Permanent,
    Panic,
    /// It waits for longer than its call has time.
    Wait,
}

/// A run of a closure.
#[derive(Clone, Debug)]
pub struct ClosureRun {
    pub attempt: u8,
    pub is_recovery: bool,
    pub began_us: u64,
}

/// A call. Times are by the monotonic clock, µs.
#[derive(Clone, Debug)]
pub struct OnceCall {
    pub key: usize,
    /// One of two under each key.
    pub payload: u64,
    pub ending: Ending,
    /// Whether it expects a value of another type.
    pub expects_number: bool,
    /// Whether its caller parks recoveries.
    pub parks: bool,
    /// How long it had.
    pub time: Duration,
    pub invoked_us: u64,
    /// `None` if its future was dropped.
    pub returned_us: Option<u64>,
    pub run: Option<ClosureRun>,
    pub outcome: Option<OnceOutcome>,
}

/// What a call returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OnceOutcome {
    Value(Value),
    /// A value of another type.
    Number,
    Conflict {
        remains: Duration,
    },
    Mismatch,
    FailedBefore,
    Failed {
        error: String,
        uncertain: bool,
        permanent: bool,
    },
    NotKept,
    OtherType,
    NotStarted,
    /// Of the store.
    NoReply,
    Other(String),
}

type Calls = Arc<Mutex<Vec<OnceCall>>>;

/// Runs closures under keys that the callers share, and returns the calls in the order of their invocations.
pub async fn run_once(plan: &Plan, redis: &Cluster, logins: &Logins) -> Vec<OnceCall> {
    let (mut rng, calls) = (Rng::new(plan.seed ^ 0xc105), Calls::default());
    let mut callers = JoinSet::new();
    for (number, name) in CALLERS.into_iter().enumerate() {
        let settings = logins.settings(plan, redis.servers[0].name(), name, "closures");
        let mut policy = Policy::default();
        (policy.max_attempts, policy.lease_grace, policy.result_max_bytes) = (MAX_ATTEMPTS, GRACE, MAX_BYTES);
        let parks = number == 0;
        policy.recovery = if parks { Recovery::Park } else { Recovery::Rerun };
        let store = RedisStore::new(&settings).expect("these settings are valid");
        let caller = Caller { idempotency: Idempotency::new(store, policy), parks, calls: Arc::clone(&calls) };
        let rng = rng.fork();
        callers.spawn(async move { caller.call(rng).await });
    }
    callers.join_all().await;
    std::mem::take(&mut *lock(&calls))
}

struct Caller {
    idempotency: Idempotency<RedisStore>,
    parks: bool,
    calls: Calls,
}

impl Caller {
    async fn call(&self, mut rng: Rng) {
        for number in 0..CALLS {
            // The callers share a key at a time.
            let key = number / 3;
            let choice = rng.draw(0..16);
            let ending = match choice {
                0..6 => Ending::Return,
                6 => Ending::ReturnLarge,
                7 | 8 => Ending::Retryable,
                9 | 10 => Ending::Unavailable,
                11 => Ending::Uncertain,
                12 => Ending::Permanent,
                13 | 14 => Ending::Panic,
                _ => Ending::Wait,
            };
            let payload = u64::from(rng.happens(150));
            let expects_number = rng.happens(100);
            // Some have hardly time for the reply of the store.
            let time = if rng.happens(100) { rng.ms(0..20) } else { TIME };
            let invoked_us = monotonic_us();
            let at = {
                let mut calls = lock(&self.calls);
                calls.push(OnceCall {
                    key,
                    payload,
                    ending,
                    expects_number,
                    parks: self.parks,
                    time,
                    invoked_us,
                    returned_us: None,
                    run: None,
                    outcome: None,
                });
                calls.len() - 1
            };
            let pause = rng.ms(0..60);
            // Some give up.
            let limit = if rng.happens(80) { rng.ms(0..100) } else { Duration::MAX };
            let outcome = if expects_number {
                let number = timeout(limit, self.once::<usize>(at, pause, |value| value.call)).await;
                number.map(|number| number.map(|_| OnceOutcome::Number))
            } else {
                let value = timeout(limit, self.once::<Value>(at, pause, |value| value)).await;
                value.map(|value| value.map(OnceOutcome::Value))
            };
            if let Ok(outcome) = outcome {
                let call = &mut lock(&self.calls)[at];
                call.returned_us = Some(monotonic_us());
                call.outcome = Some(outcome.unwrap_or_else(OnceOutcome::of));
            }
            sleep(rng.ms(0..150)).await;
        }
    }

    async fn once<R>(&self, at: usize, pause: Duration, convert: impl Fn(Value) -> R + Send) -> Result<R, OnceError>
    where
        R: Serialize + for<'de> Deserialize<'de> + Send,
    {
        let OnceCall { key, payload, ending, time, .. } = lock(&self.calls)[at].clone();
        let key = Key::new(&format!("closure-{key}")).expect("it has a text");
        let delivery = Delivery::new(key).deadline(Deadline::within(time));
        let closure = |claim: ClaimInfo| async move {
            let ClaimInfo { attempt, is_recovery, .. } = claim;
            lock(&self.calls)[at].run = Some(ClosureRun { attempt, is_recovery, began_us: monotonic_us() });
            sleep(if ending == Ending::Wait { 2 * TIME } else { pause }).await;
            let text = match ending {
                Ending::ReturnLarge if at.is_multiple_of(2) => NO_JSON.to_owned(),
                Ending::ReturnLarge => "x".repeat(MAX_BYTES),
                _ => String::new(),
            };
            match ending {
                Ending::Return | Ending::ReturnLarge | Ending::Wait => Ok(convert(Value { call: at, text })),
                Ending::Retryable => Err(WorkError::retryable(PLANNED)),
                Ending::Unavailable => Err(WorkError::unavailable(PLANNED)),
                Ending::Uncertain => Err(WorkError::uncertain(PLANNED)),
                Ending::Permanent => Err(WorkError::permanent(PLANNED)),
                Ending::Panic => resume_unwind(Box::new(PLANNED)),
            }
        };
        self.idempotency.once(delivery, &payload, closure).await
    }
}

/// The error of a closure that fails.
pub const PLANNED: &str = "planned";

impl OnceOutcome {
    fn of(error: OnceError) -> Self {
        match error {
            OnceError::Conflict { lease_remains } => Self::Conflict { remains: lease_remains },
            OnceError::Mismatch => Self::Mismatch,
            OnceError::FailedBefore => Self::FailedBefore,
            OnceError::Failed { error, uncertain, permanent } => {
                Self::Failed { error: error.to_string(), uncertain, permanent }
            }
            OnceError::NotKept => Self::NotKept,
            OnceError::OtherType(_) => Self::OtherType,
            OnceError::NotStarted => Self::NotStarted,
            OnceError::Store(_) => Self::NoReply,
            other => Self::Other(other.to_string()),
        }
    }
}
