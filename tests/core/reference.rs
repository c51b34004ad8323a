//! The scripts and the memory store, compared with the pure functions of `protocol` in random sequences of calls: every
//! answer, every record and its expiry.
//!
//! `REFERENCE_SEED` repeats the run whose seed a failure printed. `REFERENCE_SEQUENCES` sets the number of sequences. A
//! failing sequence is minimized before it is printed.

mod expectation;
mod memory;
mod scripts;

use std::collections::HashMap;
use std::time::Duration;

use idempotent_sqs::idempotency::protocol::{self, AcquireAnswer, Record, RecordState};
use idempotent_sqs::idempotency::{
    Acquire, AcquireRequest, Claim, Failure, Fence, Fingerprint, Key, MessageIdHash, Owner, Settled, Store,
    StoredResult,
};
use idempotent_sqs::stores::MemoryStore;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use redis::Value;
use redis::aio::MultiplexedConnection;

use expectation::{Expectation, Granted, Seen, failure, result};
use harness::redis::Redis;
use harness::with;
use memory::difference_in_memory;
use scripts::Scripts;

const ACQUIRE: &str = include_str!("../../lua/acquire.lua");
const COMPLETE: &str = include_str!("../../lua/complete.lua");
const FAIL: &str = include_str!("../../lua/fail.lua");
const RELEASE: &str = include_str!("../../lua/release.lua");
const FORGET: &str = include_str!("../../lua/forget.lua");

/// Number of sequences that share a round trip and a seed.
const BATCH: u64 = 100;

const RETENTION_MS: u64 = 3_600_000;
/// Start of the simulated clock, far in the future, so that no record expires on the server.
const START_US: u64 = 4_000_000_000_000_000;

#[derive(Clone, Debug)]
struct Sequence {
    max_attempts: u8,
    failed_retention_ms: u64,
    steps: Vec<Step>,
}

#[derive(Clone, Debug)]
enum Step {
    /// The clock advances by this time in µs, or jumps back.
    Pass(i64),
    Evict(u8),
    Acquire(Vec<Ask>),
    Complete(Vec<Settle>),
    Fail(Vec<Settle>),
    /// With the owner's claim if it has one, otherwise with the attempt only.
    Release(Vec<Settle>),
    /// By an operator. No other store has it.
    Forget(Forget),
}

#[derive(Clone, Copy, Debug)]
struct Forget {
    key: u8,
    force: bool,
    /// What has changed since the operator read the record.
    changed: Option<Changed>,
}

#[derive(Clone, Copy, Debug)]
enum Changed {
    State,
    Marks,
    Fence,
}

#[derive(Clone, Copy, Debug)]
struct Ask {
    key: u8,
    owner: u8,
    message: u8,
    /// 0 means no fingerprint.
    fingerprint: u8,
    lease_ms: u64,
    longest_ms: u64,
}

#[derive(Clone, Copy, Debug)]
struct Settle {
    key: u8,
    owner: u8,
    /// Whether to settle the owner's first claim instead of its last.
    by_first: bool,
    /// Index of the result or of the failure.
    how: u8,
}

fn sequences() -> impl Strategy<Value = Sequence> {
    let (key, owner) = (0..3_u8, 0..4_u8);
    // The last one is longer than the retention.
    let lease = prop_oneof![Just(0), Just(1), Just(20), Just(1000), Just(900_000), Just(4_000_000)];
    let ask = (key.clone(), owner.clone(), 0..3_u8, 0..3_u8);
    // Sometimes the longest lease is shorter than a lease, as if the clock had been ahead.
    let longest = prop_oneof![4 => Just(901_000), 1 => Just(500)];
    // Records of one script call share the lease.
    let asks = (vec(ask, 1..4), lease, longest).prop_map(|(asks, lease_ms, longest_ms)| {
        let ask = |(key, owner, message, fingerprint)| Ask { key, owner, message, fingerprint, lease_ms, longest_ms };
        asks.into_iter().map(ask).collect()
    });
    let acquire = asks.prop_map(Step::Acquire);
    let settle = (key.clone(), owner, prop::bool::weighted(0.2), 0..4_u8)
        .prop_map(|(key, owner, by_first, how)| Settle { key, owner, by_first, how });
    let changed = prop_oneof![
        3 => Just(None),
        1 => prop_oneof![Just(Changed::State), Just(Changed::Marks), Just(Changed::Fence)].prop_map(Some),
    ];
    let forget =
        (key.clone(), prop::bool::ANY, changed).prop_map(|(key, force, changed)| Forget { key, force, changed });
    let pass = prop_oneof![
        3 => prop_oneof![Just(1), Just(999), Just(1000), Just(1001), Just(19_999), Just(20_000), Just(999_500)],
        3 => 0..2_000_000_i64,
        1 => Just(900_000_000_i64),
        1 => 3_590_000_000..3_610_000_000_i64,
        1 => -3_000_000..0_i64,
    ];
    let step = prop_oneof![
        6 => acquire,
        3 => vec(settle.clone(), 1..4).prop_map(Step::Complete),
        4 => vec(settle.clone(), 1..4).prop_map(Step::Fail),
        3 => vec(settle, 1..4).prop_map(Step::Release),
        5 => pass.prop_map(Step::Pass),
        1 => key.prop_map(Step::Evict),
        2 => forget.prop_map(Step::Forget),
    ];
    let max_attempts = prop_oneof![4 => 1..4_u8, 1 => Just(255)];
    // The last one is `Duration::MAX`, the default.
    let failed_retention = prop_oneof![Just(0), Just(20), Just(1000), Just(900_000), Just(u64::MAX)];
    (max_attempts, failed_retention, vec(step, 1..14)).prop_map(|(max_attempts, failed_retention_ms, steps)| Sequence {
        max_attempts,
        failed_retention_ms,
        steps,
    })
}

fn number_from_environment(name: &str, otherwise: impl FnOnce() -> u64) -> u64 {
    match std::env::var(name) {
        Ok(number) => number.parse().unwrap_or_else(|error| panic!("{name}: {error}")),
        Err(_) => otherwise(),
    }
}

/// Batches of sequences, each with its seed.
fn batches() -> impl Iterator<Item = (u64, Vec<Box<dyn ValueTree<Value = Sequence>>>)> {
    let first = number_from_environment("REFERENCE_SEED", || getrandom::u32().unwrap().into());
    let count = number_from_environment("REFERENCE_SEQUENCES", || 10_000).div_ceil(BATCH);
    (first..first + count).map(|seed| {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_be_bytes());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let mut runner = TestRunner::new_with_rng(Config::default(), rng);
        let strategy = sequences().boxed();
        (seed, (0..BATCH).map(|_| strategy.new_tree(&mut runner).unwrap()).collect())
    })
}

/// The shortest sequence that still fails, after at most 2,000 steps of shrinking.
async fn shortest(
    mut tree: Box<dyn ValueTree<Value = Sequence>>,
    mut difference: impl AsyncFnMut(&Sequence) -> Option<String>,
) -> (Sequence, String) {
    let mut worst = (tree.current(), difference(&tree.current()).await.expect("the failure is reproducible"));
    let mut simpler = tree.simplify();
    for _ in 0..2000 {
        if !simpler {
            break;
        }
        match difference(&tree.current()).await {
            Some(what) => {
                worst = (tree.current(), what);
                simpler = tree.simplify();
            }
            None => simpler = tree.complicate(),
        }
    }
    worst
}

fn report(seed: u64, (sequence, difference): (Sequence, String)) -> ! {
    panic!("{difference}\nafter {sequence:#?}\nREFERENCE_SEED={seed} repeats this run");
}

#[tokio::test]
async fn the_scripts_match_the_protocol_in_ten_thousand_random_sequences() {
    let redis = Redis::start().await;
    let mut scripts = Scripts::load(&redis).await;
    for (seed, mut trees) in batches() {
        let sequences: Vec<Sequence> = trees.iter().map(ValueTree::current).collect();
        let differences = scripts.differences(&seed.to_string(), &sequences).await;
        if let Some(at) = differences.iter().position(Option::is_some) {
            let mut tries = 0;
            let shortest = shortest(trees.swap_remove(at), async |sequence| {
                tries += 1;
                scripts.differences(&format!("{seed}:try:{tries}"), std::slice::from_ref(sequence)).await.remove(0)
            });
            report(seed, shortest.await);
        }
        // The next batch has other keys, so these only use memory.
        let () = redis::cmd("FLUSHDB").query_async(&mut scripts.connection).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn the_memory_store_matches_the_protocol_in_ten_thousand_random_sequences() {
    for (seed, trees) in batches() {
        for tree in trees {
            if difference_in_memory(&tree.current()).await.is_some() {
                report(seed, shortest(tree, async |sequence| difference_in_memory(sequence).await).await);
            }
        }
    }
}
