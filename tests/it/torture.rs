//! Processes of the function are killed, on a Redis that fails. No message is lost, and none is repeated unless its run
//! was cut off between its effect and its record.
//!
//! A short run is part of all tests; `make torture` runs a long one. `TORTURE_SEEDS`, `TORTURE_MESSAGES` and
//! `TORTURE_FIRST_SEED` set the number of seeds, the number of messages and the first seed.

use std::sync::Arc;

use harness::torture::chaos::{Cluster, Pair, Target};
use harness::torture::fixture::Fixture;
use harness::torture::tally::Sum;
use harness::torture::{FAULTS_PER_SEED, Length, perform, queue};
use idempotent_sqs_testing::SendRequest;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_message_is_lost_and_none_is_repeated_without_a_cause() {
    let Length { seeds, messages, first } = Length::from_env();
    let mut sum = Sum::default();
    for seed in first..first + seeds {
        // One of four seeds uses a cluster, also in the short run.
        let ground = match (seed - first) % 4 {
            1 => Target::Cluster(Cluster::start().await),
            _ => Target::Pair(Pair::start().await),
        };
        sum.add(torture(seed, messages, ground).await);
    }
    print!("{}", sum.table(seeds));
    assert!(sum.lost.is_empty(), "lost: {:#?}", sum.lost);
    assert!(sum.without_cause.is_empty(), "repeated without a cause: {:#?}", sum.without_cause);
    assert!(
        sum.without_recovery.is_empty(),
        "repeated without being marked as a recovery: {:#?}",
        sum.without_recovery
    );
    assert!(
        sum.faults.values().flatten().count() > FAULTS_PER_SEED * usize::try_from(seeds).unwrap(),
        "too few faults"
    );
}

async fn torture(seed: u64, messages: u64, mut ground: Target) -> Sum {
    let queue = queue(seed);
    let fixture = Arc::new(
        Fixture::with_webhook(env!("CARGO_BIN_EXE_idempotent-sqs"), ground.url(), ground.is_cluster(), &queue).await,
    );
    let keys: Vec<String> = (0..messages).map(|n| format!("pay-{seed}-{n}")).collect();
    let requests = keys
        .iter()
        .map(|key| SendRequest::new(format!("{{\"paymentId\":\"{key}\"}}")).attribute("Idempotency-Key", key.clone()));
    let tally = Arc::clone(&fixture.tally);
    perform(seed, &queue, fixture, requests.collect(), async |rng| ground.harm(rng, &tally).await).await;
    let mut sum = tally.sum(&keys);
    sum.count(&queue);
    sum
}
