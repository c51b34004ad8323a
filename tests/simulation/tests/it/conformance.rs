//! The conformance suite of stores, on the simulated Redis.

use std::sync::atomic::{AtomicU64, Ordering};

use idempotent_sqs::stores::{RedisSettings, RedisStore};
use simulation::redis::{Cluster, Server};
use simulation::{connections, deterministic};

/// A store without records.
fn store(address: &str, cluster: bool) -> RedisStore {
    static NAMESPACES: AtomicU64 = AtomicU64::new(0);
    let namespace = format!("namespace-{}", NAMESPACES.fetch_add(1, Ordering::Relaxed));
    connections::dial_redis();
    let mut settings = RedisSettings::new(format!("redis://{address}").parse().unwrap(), namespace);
    settings.cluster = cluster;
    RedisStore::new(&settings).unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_suite_on_a_server() {
    deterministic::begin();
    let _server = Server::start("server");
    idempotent_sqs_testing::conformance::run_all(async || store("server.suite", false)).await;
}

#[tokio::test(start_paused = true)]
async fn the_suite_on_a_cluster() {
    deterministic::begin();
    let _cluster = Cluster::start(&["one", "two", "three"]);
    idempotent_sqs_testing::conformance::run_all(async || store("one.suite", true)).await;
}
