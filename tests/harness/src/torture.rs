//! The torture tests' processes, faults and counts.
//!
//! - `faults`: faults chosen by a seed
//! - `fleet`: the processes
//! - `fixture`: what the processes run on
//! - `tally`: what happened

pub mod faults;
pub mod fixture;
pub mod fleet;
pub mod tally;

use std::sync::Arc;
use std::time::Duration;

use idempotent_sqs_testing::{Mapping, MappingSettings, Queue, QueueSettings, SendRequest};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use faults::Rng;
use fixture::Fixture;
use tally::lock;

/// Number of processes.
pub const PROCESSES: usize = 4;

/// Fewest faults of a seed. A run with fewer shows too little.
pub const FAULTS_PER_SEED: usize = 10;

/// Longest time until all messages are done after the last fault. Leases and visibility timeouts pass in real time.
const DRAIN: Duration = Duration::from_secs(60);

/// How long a torture test runs, from the environment.
pub struct Length {
    pub seeds: u64,
    pub messages: u64,
    pub first: u64,
}

impl Length {
    pub fn from_env() -> Self {
        Self::from_env_or(2, 150)
    }

    /// A short run has so many seeds and messages.
    pub fn from_env_or(seeds: u64, messages: u64) -> Self {
        let number = |name: &str, default| std::env::var(name).map_or(default, |value| value.parse().unwrap());
        Self {
            seeds: number("TORTURE_SEEDS", seeds),
            messages: number("TORTURE_MESSAGES", messages),
            first: number("TORTURE_FIRST_SEED", 1),
        }
    }
}

/// A queue with a visibility timeout of three seconds and every fault.
pub fn queue(seed: u64) -> Queue {
    let settings = QueueSettings {
        name: "payments".into(),
        visibility_timeout: Duration::from_secs(3),
        max_reordering: Duration::from_millis(20),
        ..QueueSettings::with_duplicates()
    };
    Queue::new(settings, seed)
}

/// Sends the messages and injects faults meanwhile. Returns when all messages were deleted.
pub async fn perform(
    seed: u64,
    queue: &Queue,
    fixture: Arc<Fixture>,
    messages: Vec<SendRequest>,
    mut inject_fault: impl AsyncFnMut(&mut Rng),
) {
    let mut rng = Rng::new(seed);
    let settings = MappingSettings {
        function_timeout: Duration::from_secs(2),
        delete_loss_rate: 0.05,
        ..MappingSettings::default()
    };
    let mapping = Mapping::new(queue, settings);

    let mut fleet = JoinSet::new();
    let orders: Vec<_> = (0..PROCESSES)
        .map(|process| {
            let (order, orders) = mpsc::channel(1);
            fleet.spawn(fleet::serve(process, Arc::clone(&fixture), mapping.clone(), orders));
            order
        })
        .collect();

    // Twice the duration of the work, so that most faults occur during work.
    let pace = Duration::from_millis(15);
    let lasts = pace * u32::try_from(messages.len()).unwrap();
    let producer = async {
        for message in messages {
            queue.send(message).unwrap();
            sleep(pace).await;
        }
    };
    let inject_faults = async {
        let end = Instant::now() + lasts;
        // A slow machine needs more time for as many faults.
        while Instant::now() < end || lock(&fixture.tally.faults).len() <= FAULTS_PER_SEED {
            sleep(rng.millis(20..250)).await;
            if rng.draw(0..3) == 0 {
                inject_fault(&mut rng).await;
            } else {
                faults::inject_process_fault(&mut rng, &orders);
            }
        }
    };
    tokio::join!(producer, inject_faults);
    fixture.has_sent_all();
    let drained = timeout(DRAIN, async { while fleet.join_next().await.transpose().unwrap().is_some() {} }).await;
    assert!(drained.is_ok(), "seed {seed}: the queue did not drain: {:?}", queue.counts());
}
