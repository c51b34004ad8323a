//! An outside reader's tests of what the documentation promises. Each fails now.

use std::future::{pending, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use harness::redis::Redis;
use harness::sentinel::Sentinel;
use harness::with;
use harness::work::{Action, ScriptedWork};
use idempotent_sqs::credentials::{CredentialsSource, Login, LoginFuture};
use idempotent_sqs::idempotency::{Acquire, Outcome, Store};
use idempotent_sqs::stores::{RedisSettings, RedisStore};
use idempotent_sqs::{Delivery, Idempotency, Key, MemoryStore, Policy};
use idempotent_sqs_testing::attempt;
use tokio::time::timeout;

/// A source of logins whose first request gets no answer, such as one to a vault on a connection that a NAT gateway has
/// dropped. Each later one is answered at once.
#[derive(Debug, Default)]
struct HangsOnce(AtomicUsize);

impl CredentialsSource for HangsOnce {
    fn login<'a>(&'a self, _rejected: Option<&'a Login>) -> LoginFuture<'a> {
        match self.0.fetch_add(1, Ordering::SeqCst) {
            0 => Box::pin(pending()),
            _ => Box::pin(ready(Ok(Login { user: None, password: "any".to_owned() }))),
        }
    }
}

#[tokio::test]
async fn a_login_without_an_answer_does_not_hang_the_store_for_ever() {
    let redis = Redis::start().await;
    let source = Arc::new(HangsOnce::default());
    let settings = RedisSettings::new(redis.url().parse().unwrap(), "payments");
    let settings = with!(settings, credentials = Some(source.clone()));
    let store = RedisStore::new(&settings).unwrap();
    // The invocation of this call ends after two seconds, and its future is dropped.
    let _too_late = timeout(Duration::from_secs(2), store.acquire(attempt("pay_1"))).await;
    // Those of the next ten minutes, as it were. Each has more time than the documented limits: 500 ms to connect, 500 ms
    // for a reply, two tries, and 3 s for the credentials.
    for number in 2..=4 {
        let call = timeout(Duration::from_secs(8), store.acquire(attempt(&format!("pay_{number}")))).await;
        if let Ok(Ok(Acquire::Acquired(_))) = call {
            return;
        }
    }
    panic!("no call succeeded after {} logins", source.0.load(Ordering::SeqCst));
}

#[tokio::test(start_paused = true)]
async fn work_runs_although_the_longest_lease_is_not_longer_than_the_grace() {
    for (longest, grace) in [(Duration::from_secs(1), Duration::from_secs(1)), (Duration::from_secs(5), Duration::MAX)] {
        let policy = with!(Policy::default(), longest_lease = longest, lease_grace = grace);
        let idempotency = Idempotency::new(MemoryStore::default(), policy);
        let work = ScriptedWork::always(Action::Return(b"receipt"));
        let mut outcomes = Vec::new();
        for _ in 0..3 {
            let delivery = Delivery::new(Key::new("pay_1").unwrap());
            outcomes.push(idempotency.run(&delivery, &work, "input").await.unwrap().outcome);
        }
        assert!(matches!(outcomes[0], Outcome::Done { .. }), "{longest:?}, {grace:?}: {outcomes:?}");
    }
}

#[tokio::test]
async fn a_server_and_sentinels_may_have_any_timeout() {
    let redis = Redis::start().await;
    let sentinel = Sentinel::watch(&redis, 1).await;
    let by_sentinel = format!("redis+sentinel://127.0.0.1:{}/mymaster", sentinel.port());
    for (number, url) in [redis.url(), by_sentinel].into_iter().enumerate() {
        let settings = RedisSettings::new(url.parse().unwrap(), "payments");
        let settings = with!(settings, timeout = Duration::MAX);
        let store = RedisStore::new(&settings).unwrap();
        let acquired = store.acquire(attempt(&format!("pay_{number}"))).await;
        assert!(matches!(acquired, Ok(Acquire::Acquired(_))), "{url}: {acquired:?}");
    }
}

/// Prints the errors of a cluster setting that does not fit the server. To read, not to judge.
#[tokio::test]
#[ignore = "it only prints"]
async fn explore_the_errors_of_cluster_settings() {
    let redis = Redis::start().await;
    let cluster = harness::cluster::SmallCluster::start(3).await;
    for (url, is_cluster) in [(redis.url(), true), (format!("{}/2", cluster.url().trim_end_matches('/')), true), (redis.url().replace("redis://", "rediss://"), false)] {
        let settings = with!(RedisSettings::new(url.parse().unwrap(), "payments"), cluster = is_cluster);
        let store = RedisStore::new(&settings).unwrap();
        for number in 0..2 {
            let acquired = store.acquire(attempt(&format!("pay_{number}"))).await;
            let text = acquired.map(|_| ()).map_err(|error| idempotent_sqs::idempotency::error_chain(&error));
            println!("{url} {is_cluster}: {text:?}");
        }
    }
}
