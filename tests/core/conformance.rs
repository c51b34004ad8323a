//! The conformance suite on each store of this crate. The rows are in `idempotent_sqs_testing::conformance`.

mod accompanied;

use std::time::Duration;

use accompanied::Accompanied;
use futures_util::future::join_all;
use harness::TIMEOUT;
use harness::cluster::SmallCluster;
use harness::redis::{store, store_with_timeout};
use harness::with;
use idempotent_sqs::idempotency::{Acquire, Key};
use idempotent_sqs_testing::{attempt, conformance};
use redis_test::cluster::{RedisCluster, RedisClusterConfiguration};

mod in_memory {
    use idempotent_sqs::MemoryStore;

    idempotent_sqs_testing::store_conformance!(MemoryStore::default());
}

mod on_redis {
    use harness::redis::Redis;

    idempotent_sqs_testing::store_conformance!(let redis = Redis::start().await; redis.store());
}

/// Each call shares a script call with that of another record of its shard.
#[tokio::test]
async fn every_row_holds_for_records_that_share_script_calls_on_a_cluster() {
    let cluster = SmallCluster::start(1).await;
    Box::pin(conformance::run_all(async || Accompanied(store_with_timeout(&cluster.url(), true, TIMEOUT)))).await;
}

/// All rows and the largest batch run on one cluster, because a cluster takes seconds to form.
#[tokio::test]
async fn every_row_holds_on_a_cluster_of_three_masters() {
    let cluster = tokio::task::spawn_blocking(|| RedisCluster::new(RedisClusterConfiguration::default()));
    let cluster = cluster.await.unwrap();
    let url = format!("redis://{}", cluster.servers[0].addr);
    // The timeout allows for a slow test machine.
    conformance::run_all(async || store_with_timeout(&url, true, TIMEOUT)).await;

    // No batch of SQS is larger.
    let store = store(&url, true);
    let attempts = (0..10_000).map(|n| {
        with!(attempt("order"), key = Key::new(&format!("order-{n}")).unwrap(), retention = Duration::from_secs(60))
    });
    let answers = join_all(attempts.map(|attempt| idempotent_sqs::Store::acquire(&store, attempt))).await;
    let unanswered = answers.iter().filter(|answer| !matches!(answer, Ok(Acquire::Acquired(_)))).count();
    assert_eq!(unanswered, 0);
}
