//! One run: everything starts, faults happen, the faults end, and the queue drains.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use harness::lines::{self, Line};
use history::{History, Rng};
use idempotent_sqs_testing::{MessageHistory, Queue, SendRequest};
use serde_json::Value;
use tokio::runtime::Builder;
use tokio::time::{sleep, timeout};

use crate::after::{After, after};
use crate::connections::Connection;
use crate::faults::Faults;
use crate::function::{Acknowledged, Invoked, Shared};
use crate::logins::Logins;
use crate::maintenance::maintain;
use crate::network::{self, Conditions};
use crate::objects::{Log, Objects};
use crate::owners::contend;
use crate::parts::simulate_parts;
use crate::plan::Plan;
use crate::postgres::dial_postgres;
use crate::producers::messages;
use crate::queue::{dead_letter_queue, mapping, queue};
use crate::receiver::{Counted, Receiver};
use crate::redis::{Cluster, Server};
use crate::sent::Sent;
use crate::sqs::{Letter, SdkCall, Sqs, VisibilityChange};
use crate::work::{Attempt, Attempts};
use crate::{busy, connections, deterministic, trace};

/// Longest time until all messages are done after the last fault: several of the longest backoffs.
const DRAIN: Duration = Duration::from_hours(3);

/// The same, if a receiver may have asked for the longest delay.
const LONG_DRAIN: Duration = Duration::from_hours(15);

/// Number of deliveries for each message, without a delete, after which the queue counts as one that does not drain.
/// Without faults, a message waits only for others, for its visibility timeout, and for the 13 deliveries after which
/// the queue moves it.
const MAX_DELIVERIES: usize = 20;

/// What a run leaves.
pub struct Run {
    pub plan: Plan,
    pub history: History,
    /// In the order in which they took place.
    pub effects: Vec<Counted>,
    pub attempts: Vec<Attempt>,
    pub acknowledged: Vec<Acknowledged>,
    /// What was sent, in the order of `messages`.
    pub sent: Vec<Sent>,
    pub messages: Vec<MessageHistory>,
    /// What the dead-letter queue accepted.
    pub letters: Vec<Letter>,
    pub changes: Vec<VisibilityChange>,
    /// Those that SQS refused.
    pub refused: Vec<VisibilityChange>,
    /// The calls of SQS.
    pub sqs_calls: Vec<SdkCall>,
    /// Those whose parameters SQS does not accept.
    pub refusals: Vec<String>,
    pub invocations: Vec<Invoked>,
    /// Invocations that Lambda ended.
    pub timed_out: Vec<Invoked>,
    /// What the function logged.
    pub lines: Vec<Line>,
    /// The metrics that it printed.
    pub documents: Vec<Value>,
    /// What was read from S3 and written.
    pub objects: Log,
    /// What callers did after the function had ended.
    pub after: After,
    /// The calls of owners that contend.
    pub contention: History,
    /// What is wrong with calls of an owner for keys whose values are not records.
    pub other_values: Vec<String>,
    pub connections: Vec<Connection>,
    /// What is wrong with parts of the library on their own.
    pub parts: Vec<String>,
    /// The client of each process in the history.
    pub clients: BTreeMap<String, String>,
    /// The clients of these connections for which a login was provided, once for each connection.
    pub provided: Vec<String>,
    pub injected: usize,
    pub drained: bool,
    /// Number of events, and their hash.
    pub trace: (u64, u64),
}

/// Runs a seed. A process can run one.
pub fn run(seed: u64, prints: bool) -> Run {
    // Its name is random, and may exist: how often it is drawn must not change the random bytes of the seed.
    let directory = tempfile::tempdir().expect("a directory can be created");
    // A thread of its own: no random bytes were read in it before.
    let thread = std::thread::spawn(move || {
        deterministic::seed(seed);
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("no resources of the system are needed").block_on(async {
            begin(prints);
            simulate(seed, directory.path()).await
        })
    });
    thread.join().unwrap_or_else(|panic| {
        eprintln!("the simulation panicked: {:?}", panic.downcast_ref::<String>());
        std::process::exit(2)
    })
}

/// Prepares what the process has once.
fn begin(prints: bool) {
    deterministic::begin();
    trace::begin(prints);
    busy::watch();
    connections::dial_redis();
    dial_postgres();
    lines::record(&["idempotent_sqs", "simulation", "http_history"]);
}

async fn simulate(seed: u64, directory: &Path) -> Run {
    let (plan, mut rng) = (Plan::of(seed), Rng::new(seed ^ 0x5151));
    trace::event(|| format!("{plan:?}"));
    let logins = Logins::new(&plan.redis, seed);
    let redis = start_redis(&plan, &logins);
    network::set_conditions(Conditions { rng: rng.fork(), delay_ms: 1, lost: 0 });
    let (contention, other_values) = contend(rng.fork(), &plan, &redis, &logins, directory).await;
    redis.servers.iter().for_each(Server::flush);
    // The calls of the owners do not change the run of the function.
    deterministic::seed(seed);
    network::set_conditions(Conditions { rng: rng.fork(), delay_ms: plan.delay_ms, lost: plan.lost });

    let receiver = Receiver::new(rng.fork(), &plan);
    receiver.listen();
    let queue = queue(&plan);
    let sqs = Sqs::new(queue.clone(), dead_letter_queue(&plan), rng.fork(), plan.has_rare);
    sqs.listen();
    // These depend on the seed alone, not on what is drawn before.
    let mut inputs = Rng::new(seed ^ 0x0b1e);
    let (messages, objects) = messages(&plan, &mut inputs);
    let objects = Arc::new(Objects::new(objects, inputs.fork(), &plan, receiver.clone()));
    let shared = Arc::new(Shared {
        mapping: mapping(&queue, &plan),
        sqs: sqs.clone(),
        objects: Arc::clone(&objects),
        inputs: Mutex::new(inputs),
        variants: Mutex::new(Rng::new(seed ^ 0x7a21)),
        redis: redis.servers[0].name().to_owned(),
        records: Arc::clone(&redis),
        logins: logins.clone(),
        directory: directory.to_owned(),
        rng: Mutex::new(rng.fork()),
        attempts: Attempts::default(),
        acknowledged: Mutex::default(),
        invocations: Mutex::default(),
        timed_out: Mutex::default(),
        begun: AtomicUsize::default(),
        processes: Mutex::default(),
        clients: Mutex::default(),
        plan: plan.clone(),
    });
    let functions: Vec<_> = (0..plan.functions).map(|n| tokio::spawn(Arc::clone(&shared).run_environment(n))).collect();

    let mut faults = Faults {
        rng: rng.fork(),
        shared: Arc::clone(&shared),
        redis: Arc::clone(&redis),
        receiver: receiver.clone(),
        injected: 0,
        jumps: Vec::new(),
        losses: BTreeMap::new(),
    };
    let mut sent: Vec<_> = messages.iter().map(|(sent, _)| sent.clone()).collect();
    tokio::join!(faults.run(), produce(&plan, &queue, &messages), maintain(&shared, &redis));
    trace::event(|| "the faults end".to_owned());
    network::set_conditions(Conditions { rng: rng.fork(), delay_ms: 1, lost: 0 });
    network::disarm();
    receiver.end_faults();
    sqs.end_faults();
    objects.end_faults();
    let longest = if plan.has_extras { LONG_DRAIN } else { DRAIN };
    let mut drained = drain(&queue, longest).await;
    if drained && plan.redrives {
        redrive(&queue, &sqs.letters(), &mut sent);
        drained = drain(&queue, longest).await;
    }
    // For what is still on its way, and for messages that are delivered again after they were deleted.
    sleep(Duration::from_secs(30)).await;
    functions.iter().for_each(tokio::task::JoinHandle::abort);
    let (sqs_calls, lines) = (sqs.calls(), lines::take());
    let history = read(directory).with_jumps(&faults.jumps).with_losses(&faults.losses);
    // Callers wait for done work.
    let after =
        if drained { after(&plan, &history, &faults.jumps, &shared, directory).await } else { After::default() };
    // Requests that have no client any more may still open connections.
    let (connections, provided, documents) = (connections::connections(), logins.provided(), documents());
    let parts = simulate_parts(seed, directory).await;
    Run {
        history,
        effects: receiver.effects(),
        attempts: shared.attempts.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        acknowledged: shared.acknowledged.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        sent,
        messages: queue.history(),
        letters: sqs.letters(),
        changes: sqs_calls.iter().flat_map(SdkCall::changes).collect(),
        refused: sqs.refused(),
        sqs_calls,
        refusals: sqs.refusals(),
        invocations: shared.invocations.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        timed_out: shared.timed_out.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        lines,
        documents,
        objects: objects.log(),
        after,
        contention,
        other_values,
        connections,
        parts,
        clients: shared.clients.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        provided,
        injected: faults.injected,
        drained,
        trace: trace::end(),
        plan,
    }
}

/// The metrics that were printed. A line that is not JSON is of no request.
fn documents() -> Vec<Value> {
    deterministic::printed().iter().map(|line| serde_json::from_slice(line).unwrap_or_default()).collect()
}

fn start_redis(plan: &Plan, logins: &Logins) -> Arc<Cluster> {
    let redis = Cluster::start(&["redis0", "redis1", "redis2"][..plan.servers]);
    redis.servers.iter().for_each(|server| server.configure(logins, &plan.redis.versions));
    Arc::new(redis)
}

/// Sends the messages during three quarters of the time of the faults.
async fn produce(plan: &Plan, queue: &Queue, messages: &[(Sent, SendRequest)]) {
    let bursts = messages.len().div_ceil(plan.burst);
    let pause = plan.lasts * 3 / 4 / u32::try_from(bursts).unwrap_or(u32::MAX);
    for burst in messages.chunks(plan.burst) {
        for (_, message) in burst {
            queue.send(message.clone()).expect("SQS accepts these messages");
        }
        sleep(pause).await;
    }
}

/// Whether the queue becomes empty in this time, and within [`MAX_DELIVERIES`].
async fn drain(queue: &Queue, longest: Duration) -> bool {
    let drained = timeout(longest, async {
        let (mut last_deletes, mut last_receives) = deletes_and_receives(queue);
        let most = MAX_DELIVERIES * queue.history().len();
        while !queue.is_empty() {
            let (deletes, receives) = deletes_and_receives(queue);
            if deletes > last_deletes {
                (last_deletes, last_receives) = (deletes, receives);
            }
            if receives > last_receives + most {
                return false;
            }
            sleep(Duration::from_secs(1)).await;
        }
        true
    });
    drained.await.unwrap_or(false)
}

/// Number of successful deletes and of deliveries of all messages.
fn deletes_and_receives(queue: &Queue) -> (usize, usize) {
    let counts = queue.history().into_iter().map(|message| (message.deletes, message.receives));
    counts.fold((0, 0), |sum, (deletes, receives)| (sum.0 + deletes, sum.1 + receives))
}

/// Moves dead letters back to the queue, as an operator does.
fn redrive(queue: &Queue, letters: &[Letter], sent: &mut Vec<Sent>) {
    for letter in letters {
        let of_letter = |message: &MessageHistory| message.message_ids.contains(&letter.message_id);
        let Some(at) = queue.history().iter().position(of_letter) else { continue };
        let (redriven, request) = sent[at].redriven(letter, sent.len() as u64);
        queue.send(request).expect("SQS accepts these messages");
        // A FIFO queue drops the second letter of a message, as the dead-letter queue does.
        if queue.history().len() > sent.len() {
            sent.push(redriven);
        }
    }
}

fn read(directory: &Path) -> History {
    History::read(directory).expect("the processes recorded their calls")
}
