//! Logins: when a source is asked for one, how long it may take, and when a session has ended.

use std::future::{pending, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures_util::future::poll_immediate;
use harness::cluster::SmallCluster;
use idempotent_sqs::credentials::{CredentialsSource, Login, LoginFuture};
use idempotent_sqs::stores::redis::records::Records;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::*;

fn settings(url: &str, source: Arc<dyn CredentialsSource>) -> RedisSettings {
    with!(RedisSettings::new(url.parse().unwrap(), "payments"), credentials = Some(source))
}

/// A login that a server without passwords accepts.
fn any() -> Login {
    Login { user: None, password: "any".into() }
}

/// A login that the server rejects, and how often it was asked for after that.
#[derive(Debug, Default)]
struct Wrong {
    rejected: AtomicUsize,
}

impl CredentialsSource for Wrong {
    fn login<'a>(&'a self, rejected: Option<&'a Login>) -> LoginFuture<'a> {
        self.rejected.fetch_add(rejected.iter().count(), Ordering::SeqCst);
        Box::pin(ready(Ok(Login { user: None, password: "wrong".into() })))
    }
}

#[tokio::test]
async fn a_login_is_asked_for_again_only_if_it_was_rejected_and_used_again_only_if_it_has_changed() {
    let redis = Redis::start_with(&["--requirepass", "right"]).await;
    let front = Front::to(redis.port()).await;
    for (port, tries) in [(closed_port(), 0), (front.port, 2)] {
        let source = Arc::new(Wrong::default());
        let settings = RedisSettings::new(format!("redis://127.0.0.1:{port}").parse().unwrap(), "payments");
        let settings = with!(settings, credentials = Some(Arc::clone(&source) as Arc<dyn CredentialsSource>));
        let store = RedisStore::new(&settings).unwrap();
        assert!(store.acquire(attempt("pay_1")).await.unwrap_err().is_unavailable());
        assert_eq!((source.rejected.load(Ordering::SeqCst), front.connections()), (tries, tries));
    }
}

/// A source of logins whose first requests get no answer, such as those to a vault on a connection that a gateway has
/// dropped.
#[derive(Debug)]
struct Silent {
    requests: AtomicUsize,
    silent: usize,
}

impl CredentialsSource for Silent {
    fn login<'a>(&'a self, _rejected: Option<&'a Login>) -> LoginFuture<'a> {
        if self.requests.fetch_add(1, Ordering::SeqCst) < self.silent {
            return Box::pin(pending());
        }
        Box::pin(ready(Ok(Login { user: None, password: "any".into() })))
    }
}

fn by_silent_source(url: &str, silent: usize) -> RedisStore {
    let source = Silent { requests: AtomicUsize::new(0), silent };
    let settings = RedisSettings::new(url.parse().unwrap(), "payments");
    RedisStore::new(&with!(settings, credentials = Some(Arc::new(source)))).unwrap()
}

#[tokio::test]
async fn a_request_for_a_login_without_an_answer_is_made_again() {
    let redis = Redis::start().await;
    let store = by_silent_source(&redis.url(), 1);
    // The invocation of this call ends, and the request is not cancelled.
    assert!(timeout(Duration::from_secs(1), store.acquire(attempt("pay_1"))).await.is_err());
    acquired(&store, attempt("pay_2")).await;
}

#[tokio::test(start_paused = true)]
async fn the_error_without_a_login_names_its_source() {
    let store = by_silent_source("redis://127.0.0.1", usize::MAX);
    let error = store.acquire(attempt("pay_1")).await.unwrap_err();
    assert!(!error.may_have_run(), "{error:?}");
    let reason = std::error::Error::source(&error).unwrap().to_string();
    assert!(reason.contains("the source of logins for Redis returned none within 4 s"), "{reason}");
}

/// A source that takes twice the default timeout of Redis for each login, such as a vault.
#[derive(Debug)]
struct Slow;

impl CredentialsSource for Slow {
    fn login<'a>(&'a self, _rejected: Option<&'a Login>) -> LoginFuture<'a> {
        Box::pin(async {
            sleep(Duration::from_secs(1)).await;
            Ok(any())
        })
    }
}

#[tokio::test]
async fn a_login_may_take_longer_than_the_timeout_of_redis() {
    let (redis, cluster) = (Redis::start().await, SmallCluster::start(2).await);
    for (url, is_cluster) in [(redis.url(), false), (cluster.url(), true)] {
        let settings = with!(settings(&url, Arc::new(Slow)), cluster = is_cluster);
        acquired(&RedisStore::new(&settings).unwrap(), attempt("pay_1")).await;
    }
}

/// A source that counts its logins. While it is told to, it does not answer, or each session has ended.
#[derive(Debug, Default)]
struct Counting {
    given: AtomicUsize,
    hangs: AtomicBool,
    /// Notified by each request while it does not answer.
    asked: Notify,
    sessions_have_ended: AtomicBool,
}

impl CredentialsSource for Counting {
    fn login<'a>(&'a self, _rejected: Option<&'a Login>) -> LoginFuture<'a> {
        if self.hangs.load(Ordering::SeqCst) {
            self.asked.notify_one();
            return Box::pin(pending());
        }
        self.given.fetch_add(1, Ordering::SeqCst);
        Box::pin(ready(Ok(any())))
    }

    fn max_session(&self) -> Option<Duration> {
        Some(if self.sessions_have_ended.load(Ordering::SeqCst) { Duration::ZERO } else { Duration::from_hours(1) })
    }
}

#[tokio::test]
async fn a_connection_whose_session_has_ended_is_not_used_after_its_replacement_was_cancelled() {
    let (redis, source) = (Redis::start().await, Arc::new(Counting::default()));
    let records = Records::new(&settings(&redis.url(), Arc::clone(&source) as _)).unwrap();
    let key = Key::new("pay_1").unwrap();
    records.inspect(&key).await.unwrap();
    assert_eq!(source.given.load(Ordering::SeqCst), 1);
    let set = |holds| [&source.hangs, &source.sessions_have_ended].map(|flag| flag.store(holds, Ordering::SeqCst));
    set(true);
    assert!(poll_immediate(records.inspect(&key)).await.is_none());
    set(false);
    records.inspect(&key).await.unwrap();
    assert_eq!(source.given.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn the_old_connection_to_a_cluster_is_not_used_after_its_session_has_ended() {
    let (cluster, source) = (SmallCluster::start(2).await, Arc::new(Counting::default()));
    let settings = with!(settings(&cluster.url(), Arc::clone(&source) as _), cluster = true);
    let records = Arc::new(Records::new(&settings).unwrap());
    // Their slots are of different nodes.
    let [of_stopped, of_other] = ["pay_1", "pay_2"].map(|key| Key::new(key).unwrap());
    records.inspect(&of_stopped).await.unwrap();
    source.hangs.store(true, Ordering::SeqCst);
    cluster.nodes[0].signal("-STOP");
    let opening = tokio::spawn({
        let (records, key) = (Arc::clone(&records), of_stopped.clone());
        async move { records.inspect(&key).await }
    });
    soon(source.asked.notified()).await;
    // Another call opens a new connection now.
    soon(records.inspect(&of_other)).await.unwrap();
    source.sessions_have_ended.store(true, Ordering::SeqCst);
    assert!(timeout(Duration::from_millis(200), records.inspect(&of_other)).await.is_err());
    opening.abort();
}

#[tokio::test]
async fn the_connections_to_a_cluster_that_are_opened_together_share_one_login_and_each_signs_in_once() {
    let (cluster, source) = (SmallCluster::start(2).await, Arc::new(Counting::default()));
    let settings = with!(settings(&cluster.url(), Arc::clone(&source) as _), cluster = true);
    let store = RedisStore::new(&settings).unwrap();
    let before = cluster.calls("auth").await;
    // Keys of both nodes. A node replies to the second round after all that was sent to it before.
    for round in 0..2 {
        join_all((0..20).map(|n| acquired(&store, attempt(&format!("{round} {n}"))))).await;
    }
    let signed_in = cluster.calls("auth").await.into_iter().zip(before).map(|(after, before)| after - before);
    assert_eq!(signed_in.collect::<Vec<_>>(), [1, 1]);
    assert_eq!(source.given.load(Ordering::SeqCst), 1);
}
