//! Callers that ask for the results of work that was done, after the function has ended. S3 fails again.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use history::History;
use idempotent_sqs::idempotency::{Deadline, Outcome, Results};
use idempotent_sqs::{Claim, Delivery, Idempotency, Key, Policy, RedisStore, WorkError, work_fn};
use tokio::time::Instant;

use crate::function::{NAMESPACE, RESULTS_BUCKET, RESULTS_PREFIX};
use crate::logins::Logins;
use crate::objects::{Client, Objects};
use crate::plan::Plan;
use crate::sent::stored;
use crate::trace::event;

/// The process of the callers.
pub const CALLER: &str = "caller";

/// A result that a caller got.
#[derive(Clone)]
pub struct Answered {
    pub key: String,
    /// `None` if it was not kept, or could not be read.
    pub result: Option<Vec<u8>>,
    /// Whether the caller can read objects.
    pub has_objects: bool,
    pub took: Duration,
    /// How long it was ready to wait.
    pub remaining: Duration,
}

/// Without the bytes of the result, which may be megabytes.
impl fmt::Debug for Answered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let length = self.result.as_ref().map(Vec::len);
        write!(f, "{length:?} bytes after {:?} of {:?}, has objects: {}", self.took, self.remaining, self.has_objects)
    }
}

/// Asks for the result of each key whose record can be named, two times in three by a caller that reads objects.
pub async fn call(
    plan: &Plan,
    history: &History,
    server: &str,
    logins: &Logins,
    objects: &Arc<Objects>,
) -> Vec<Answered> {
    let Some(choices) = &plan.objects else { return Vec::new() };
    objects.begin_faults();
    let mut settings = logins.settings(plan, server, CALLER, NAMESPACE);
    settings.timeout = plan.redis_timeout;
    let store = RedisStore::new(&settings).expect("these settings are valid");
    let mut answered = Vec::new();
    // The text of a key that is hashed is not known.
    for (number, text) in history.keys.keys().filter(|key| stored(key) == **key).enumerate() {
        let mut policy = Policy::default();
        policy.result_max_bytes = choices.result_max_bytes;
        let client = Client { objects: Arc::clone(objects), process: CALLER.to_owned() };
        let has_objects = !number.is_multiple_of(3);
        policy.results = has_objects.then(|| Results::new(Arc::new(client), RESULTS_BUCKET, RESULTS_PREFIX));
        let remaining = if number.is_multiple_of(2) { Duration::from_secs(3) } else { Duration::from_secs(20) };
        let delivery = Delivery::new(Key::new(text).expect("it has a text")).deadline(Deadline::within(remaining));
        // Work that was not done is not done here either.
        let work = work_fn(|_: &Claim, (): &()| async { Err::<Vec<u8>, _>(WorkError::busy("only results are read")) });
        let began = Instant::now();
        let report = Idempotency::new(&store, policy).run(&delivery, &work, &()).await;
        let report = report.expect("Redis is available");
        let took = began.elapsed();
        if let Outcome::Duplicate { result } = report.outcome {
            event(|| format!("{CALLER}: {text} has a result: {}", result.is_some()));
            answered.push(Answered { key: text.clone(), result, has_objects, took, remaining });
        }
    }
    answered
}
