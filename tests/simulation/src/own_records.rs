//! Callers of a work with a record of its own, which is a row of a database, after the function has ended. Two
//! consumers share the database, each by the core, by HTTP and by batches of one message: each has records in Redis
//! that lack what the others did, as if Redis had lost them. Connections to Redis break, and some callers go on without
//! it.
//!
//! - `work`: the work, and the rows
//! - `endpoint`: calls by HTTP
//! - `batch`: calls by a batch

mod batch;
mod endpoint;
mod work;

use std::fs;
use std::future::pending;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use history::{History, RecordedStore, Rng, monotonic_us};
use idempotent_sqs::idempotency::{Deadline, Recovery, Report, StoreError};
use idempotent_sqs::sqs::MessageReport;
use idempotent_sqs::{Delivery, Fingerprint, Idempotency, Key, Policy, RedisStore};
use idempotent_sqs_postgres::{OptionalStore, OutagePolicy};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::logins::Logins;
use crate::plan::Plan;
use crate::redis::Cluster;
use crate::{lock, network};

pub use batch::Missing;
pub use endpoint::HttpAnswer;
pub use work::{BUSY, Read, Returned, Row, RowAttempt};
use work::{Database, RowWork};

/// Four each call by the core, by HTTP and by a batch.
const CALLERS: [&str; 12] =
    ["rows0", "rows1", "rows2", "rows3", "rows4", "rows5", "rows6", "rows7", "rows8", "rows9", "rows10", "rows11"];

/// Calls of each caller.
const CALLS: usize = 16;

/// How much longer than its call a lease lasts.
const GRACE: Duration = Duration::from_millis(50);

/// How long a request of some callers waits for another one.
const WAIT: Duration = Duration::from_millis(300);

pub const MAX_ATTEMPTS: u8 = 2;

/// Time of a call, of which a quarter is for settling: several timeouts of Redis.
fn time(plan: &Plan) -> Duration {
    8 * plan.redis_timeout
}

/// Longest lease.
pub fn longest_lease(plan: &Plan) -> Duration {
    time(plan) + GRACE
}

/// A call. Times are by the monotonic clock, µs.
#[derive(Debug)]
pub struct RowCall {
    /// The process in the history of the calls.
    pub process: String,
    pub payload: u64,
    /// Whether it goes on without Redis.
    pub is_optional: bool,
    /// Why there is no payload.
    pub missing: Option<Missing>,
    pub invoked_us: u64,
    pub returned_us: u64,
    /// When work ends.
    pub work_ends_us: u64,
    /// When settling ends.
    pub settling_ends_us: u64,
    /// The row of its key, before and after the call.
    pub rows: [Option<Row>; 2],
    pub attempt: Option<RowAttempt>,
    pub read: Option<Read>,
    pub outcome: RowOutcome,
}

/// What a call returned.
#[derive(Debug)]
pub enum RowOutcome {
    Report(Result<Report, StoreError>),
    Answer(HttpAnswer),
    Message(Result<MessageReport, StoreError>),
}

type SharedStore = Arc<OptionalStore<RecordedStore<RedisStore>>>;

/// Runs the work under keys that the callers share. Returns the calls, and what their stores recorded.
pub async fn run_with_rows(plan: &Plan, redis: &Cluster, logins: &Logins, directory: &Path) -> (Vec<RowCall>, History) {
    let directory = directory.join("rows");
    fs::create_dir(&directory).expect("a directory can be created");
    let (mut rng, database) = (Rng::new(plan.seed ^ 0x4085), Arc::new(Mutex::default()));
    let mut callers = JoinSet::new();
    for (number, name) in CALLERS.into_iter().enumerate() {
        let consumer = number % 2;
        let mut settings = logins.settings(plan, redis.servers[0].name(), name, &format!("rows{consumer}"));
        settings.timeout = plan.redis_timeout;
        let store = RedisStore::new(&settings).expect("these settings are valid");
        let store = RecordedStore::new(store, &directory).expect("the directory is writable");
        let (process, is_optional) = (store.process().to_owned(), [2, 3, 10].contains(&number));
        let outage = if is_optional { OutagePolicy::Proceed } else { OutagePolicy::Refuse };
        let mut policy = Policy::default();
        (policy.max_attempts, policy.lease_grace) = (MAX_ATTEMPTS, GRACE);
        if consumer == 1 {
            // No result is kept.
            policy.result_max_bytes = 0;
        }
        // It has no effect on a work with its own record.
        policy.recovery = Recovery::Park;
        let caller = Caller {
            store: Arc::new(OptionalStore::new(store, outage)),
            policy,
            calls_by: [CallsBy::Core, CallsBy::Http, CallsBy::Batch][number / 4],
            // Half of the requests.
            wait: if number % 4 > 1 { WAIT } else { Duration::ZERO },
            consumer,
            process,
            is_optional,
            time: time(plan),
            database: Arc::clone(&database),
        };
        let rng = rng.fork();
        callers.spawn(async move { caller.call(rng).await });
    }
    let mut faults = rng.fork();
    let calls = async { callers.join_all().await.into_iter().flatten().collect() };
    tokio::select! {
        calls = calls => (calls, History::read(&directory).expect("the callers recorded their calls")),
        () = break_connections(plan, redis, &mut faults) => unreachable!("it does not end"),
    }
}

/// Breaks the connections of the callers to Redis, again and again.
async fn break_connections(plan: &Plan, redis: &Cluster, rng: &mut Rng) {
    if plan.is_quiet {
        pending::<()>().await;
    }
    let timeout_ms = u64::try_from(plan.redis_timeout.as_millis()).unwrap_or(u64::MAX);
    loop {
        sleep(rng.ms(20..4 * timeout_ms)).await;
        let (caller, server) = (*rng.pick(&CALLERS), rng.pick(&redis.servers).name());
        if rng.happens(500) {
            network::cut(caller, server);
        } else {
            network::partition(caller, server, rng.ms(20..9 * timeout_ms));
        }
    }
}

/// What a caller calls.
#[derive(Clone, Copy, PartialEq)]
enum CallsBy {
    Core,
    Http,
    Batch,
}

struct Caller {
    store: SharedStore,
    policy: Policy,
    calls_by: CallsBy,
    /// How long a request waits for another one.
    wait: Duration,
    consumer: usize,
    process: String,
    is_optional: bool,
    time: Duration,
    database: Database,
}

impl Caller {
    async fn call(&self, mut rng: Rng) -> Vec<RowCall> {
        let mut calls = Vec::new();
        for number in 0..CALLS {
            // The callers share a key at a time.
            let key = number / 4;
            let work = Arc::new(RowWork::new(key, u64::from(rng.happens(150)), &self.database, &mut rng));
            // Some have hardly time for the reply of the store.
            let time = if rng.happens(50) { rng.ms(0..30) } else { self.time };
            let deadline = Deadline::within(time);
            let (invoked_us, before) = (monotonic_us(), work.row());
            let missing = if self.calls_by == CallsBy::Batch { Missing::of(&mut rng) } else { None };
            let outcome = self.run(key, &work, deadline, missing).await;
            let after = work.row();
            calls.push(RowCall {
                process: self.process.clone(),
                payload: work.payload,
                is_optional: self.is_optional,
                missing,
                invoked_us,
                returned_us: monotonic_us(),
                work_ends_us: at_us(deadline.work),
                settling_ends_us: at_us(deadline.settle),
                rows: [before, after],
                attempt: lock(&work.attempt).take(),
                read: lock(&work.read).take(),
                outcome,
            });
            sleep(rng.ms(1..300)).await;
        }
        calls
    }

    async fn run(&self, key: usize, work: &Arc<RowWork>, deadline: Deadline, missing: Option<Missing>) -> RowOutcome {
        let (store, policy) = (Arc::clone(&self.store), self.policy.clone());
        let key = format!("row-{}-{key}", self.consumer);
        match self.calls_by {
            CallsBy::Core => {
                let fingerprint = Fingerprint::of(work.payload.to_string().as_bytes());
                let delivery = Delivery::new(Key::new(&key).expect("it has a text"));
                let delivery = delivery.deadline(deadline).fingerprint(fingerprint);
                RowOutcome::Report(Idempotency::new(store, policy).run(&delivery, work, &()).await)
            }
            CallsBy::Http => {
                RowOutcome::Answer(endpoint::send((store, policy), (deadline, self.wait), &key, Arc::clone(work)).await)
            }
            CallsBy::Batch => {
                let (key, work) = (format!("message-{key}"), Arc::clone(work));
                RowOutcome::Message(batch::send((store, policy), deadline, &key, work, missing).await)
            }
        }
    }
}

/// This time by the monotonic clock, µs.
fn at_us(time: Instant) -> u64 {
    let remaining = time.saturating_duration_since(Instant::now());
    monotonic_us() + u64::try_from(remaining.as_micros()).unwrap_or_default()
}
