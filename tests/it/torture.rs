//! Real processes, really killed, on a real Redis that breaks: nothing is lost, and nothing is
//! repeated but where a run was cut off between its effect and its record.
//!
//! A short form runs with all tests; `make torture` runs the long one. Seeds, messages and the first
//! seed are set by `TORTURE_SEEDS`, `TORTURE_MESSAGES` and `TORTURE_FIRST_SEED`.

/// Faults, as the seed says.
mod chaos;
/// The processes.
mod fleet;
/// The ledger in the place of the webhook, and a PostgreSQL that breaks too.
#[cfg(feature = "postgres")]
mod inbox;
/// What they run on.
mod stage;
/// What happened.
mod tally;

use std::sync::Arc;
use std::time::Duration;

use idempotent_sqs::testing::{Mapping, MappingSettings, Queue, QueueSettings, SendRequest};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use chaos::{Cluster, Ground, Pair, Rng};
use stage::Stage;
use tally::{Sum, lock};

const PROCESSES: usize = 4;

/// With no more than these too little was broken to show anything.
const FAULTS_A_SEED: usize = 10;

/// What a drain may take after the last fault: leases and visibility timeouts pass in real time.
const DRAIN: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_breaks_nothing_is_lost_and_nothing_repeated_without_a_cause() {
    let Length { seeds, messages, first } = Length::from_env();
    let mut sum = Sum::default();
    for seed in first..first + seeds {
        // Every fourth seed, and so each short run, has a cluster.
        let ground = match (seed - first) % 4 {
            1 => Ground::Cluster(Cluster::start().await),
            _ => Ground::Pair(Pair::start().await),
        };
        sum.add(torture(seed, messages, ground).await);
    }
    print!("{}", sum.table(seeds));
    assert!(sum.lost.is_empty(), "lost: {:#?}", sum.lost);
    assert!(sum.without_cause.is_empty(), "repeated without a cause: {:#?}", sum.without_cause);
    assert!(sum.untold.is_empty(), "repeated and not told so: {:#?}", sum.untold);
    assert!(
        sum.faults.values().flatten().count() > FAULTS_A_SEED * usize::try_from(seeds).unwrap(),
        "too little was broken"
    );
}

struct Length {
    seeds: u64,
    messages: u64,
    first: u64,
}

impl Length {
    fn from_env() -> Self {
        let number = |name: &str, default| std::env::var(name).map_or(default, |value| value.parse().unwrap());
        Self {
            seeds: number("TORTURE_SEEDS", 2),
            messages: number("TORTURE_MESSAGES", 150),
            first: number("TORTURE_FIRST_SEED", 1),
        }
    }
}

fn queue(seed: u64) -> Queue {
    let settings = QueueSettings {
        name: "payments".into(),
        visibility: Duration::from_secs(3),
        disorder: Duration::from_millis(20),
        ..QueueSettings::rough()
    };
    Queue::new(settings, seed)
}

async fn torture(seed: u64, messages: u64, mut ground: Ground) -> Sum {
    let queue = queue(seed);
    let stage = Arc::new(Stage::with_webhook(ground.url(), ground.is_cluster(), &queue).await);
    let keys: Vec<String> = (0..messages).map(|n| format!("pay-{seed}-{n}")).collect();
    let requests = keys
        .iter()
        .map(|key| SendRequest::new(format!("{{\"paymentId\":\"{key}\"}}")).attribute("Idempotency-Key", key.clone()));
    let tally = Arc::clone(&stage.tally);
    perform(seed, &queue, stage, requests.collect(), async |rng| ground.harm(rng, &tally).await).await;
    let mut sum = tally.sum(&keys);
    sum.count(&queue);
    sum
}

/// Send the messages, and break things meanwhile; returns when all of them were deleted.
async fn perform(
    seed: u64,
    queue: &Queue,
    stage: Arc<Stage>,
    messages: Vec<SendRequest>,
    mut harm: impl AsyncFnMut(&mut Rng),
) {
    let mut rng = Rng::new(seed);
    let settings =
        MappingSettings { function_timeout: Duration::from_secs(2), delete_lost: 0.05, ..MappingSettings::default() };
    let mapping = Mapping::new(queue, settings);

    let mut fleet = JoinSet::new();
    let orders: Vec<_> = (0..PROCESSES)
        .map(|process| {
            let (order, orders) = mpsc::channel(1);
            fleet.spawn(fleet::serve(process, Arc::clone(&stage), mapping.clone(), orders));
            order
        })
        .collect();

    // Twice as long as the work takes, so that most faults meet work.
    let pace = Duration::from_millis(15);
    let lasts = pace * u32::try_from(messages.len()).unwrap();
    let producer = async {
        for message in messages {
            queue.send(message).unwrap();
            sleep(pace).await;
        }
    };
    let break_things = async {
        let end = Instant::now() + lasts;
        // A slow machine has time for fewer faults; so it takes the time.
        while Instant::now() < end || lock(&stage.tally.faults).len() <= FAULTS_A_SEED {
            sleep(rng.millis(20..250)).await;
            if rng.throw(0..3) == 0 {
                harm(&mut rng).await;
            } else {
                chaos::harm_a_process(&mut rng, &orders);
            }
        }
    };
    tokio::join!(producer, break_things);
    stage.has_sent_all();
    let drained = timeout(DRAIN, async { while fleet.join_next().await.transpose().unwrap().is_some() {} }).await;
    assert!(drained.is_ok(), "seed {seed}: the queue did not drain: {:?}", queue.counts());
}
