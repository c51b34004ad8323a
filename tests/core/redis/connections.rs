//! Connections that fail, servers that do not answer, and cancelled calls.

use futures_util::future::poll_immediate;
use harness::cluster::SmallCluster;
use harness::sentinel::Sentinel;
use idempotent_sqs::idempotency::error_chain;

use super::*;

const ACQUIRE: &str = include_str!("../../../lua/acquire.lua");

#[tokio::test]
async fn the_next_call_replaces_a_killed_connection() {
    let redis = Redis::start().await;
    let store = on(&redis.url());
    let claim = acquired(&store, attempt("pay_1")).await;
    redis.kill_connections().await;
    assert_eq!(store.complete(&claim, StoredResult::NotKept).await.unwrap(), Settled::Recorded);
}

#[tokio::test]
async fn the_next_call_reconnects_to_a_restarted_server() {
    let mut redis = Redis::start().await;
    let store = on(&redis.url());
    let claim = acquired(&store, attempt("pay_1")).await;
    redis.kill();
    redis.restart().await;
    // The record is lost with the server's memory, and restored.
    assert_eq!(store.complete(&claim, StoredResult::Inline(b"healed")).await.unwrap(), Settled::Recorded);
    assert!(matches!(store.acquire(attempt("pay_1")).await.unwrap(), Acquire::Duplicate { .. }));
}

#[test]
fn a_call_whose_runtime_ends_before_it_is_sent_does_not_hold_up_the_calls_of_another_runtime() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (first, second) = (runtime(), runtime());
    let redis = second.block_on(Redis::start());
    let store = on(&redis.url());
    let unsent = std::pin::pin!(store.acquire(attempt("pay_1")));
    assert!(first.block_on(async { poll_immediate(unsent).await }).is_none());
    drop(first);
    second.block_on(soon(acquired(&store, attempt("pay_2"))));
}

#[tokio::test]
async fn the_next_call_leaves_a_demoted_primary() {
    let (old, new) = (Redis::start().await, Redis::start().await);
    // In a failover the address of the primary resolves to another server.
    let front = Front::to(old.port()).await;
    let store = on(&format!("redis://127.0.0.1:{}", front.port));
    let claim = acquired(&store, attempt("pay_1")).await;
    let port = new.port().to_string();
    let () = redis::cmd("REPLICAOF").arg("127.0.0.1").arg(port).query_async(&mut old.connection().await).await.unwrap();
    front.forward_to(new.port());
    assert_eq!(store.complete(&claim, StoredResult::NotKept).await.unwrap(), Settled::Recorded);
    let exists: bool = new.connection().await.exists("payments:pay_1").await.unwrap();
    assert!(exists, "recorded on the new primary");
}

#[tokio::test]
async fn a_silent_server_times_out_and_the_retry_leaves_it() {
    let (silent, new) = (Redis::start().await, Redis::start().await);
    let front = Front::to(silent.port()).await;
    let store = on(&format!("redis://127.0.0.1:{}", front.port));
    let claim = acquired(&store, attempt("pay_1")).await;
    silent.signal("-STOP");
    front.forward_to(new.port());
    let asked = std::time::Instant::now();
    let settled = store.complete(&claim, StoredResult::NotKept).await;
    silent.signal("-CONT");
    assert_eq!(settled.unwrap(), Settled::Recorded);
    assert!(asked.elapsed() < Duration::from_secs(3), "{:?}", asked.elapsed());
}

#[tokio::test]
async fn a_call_that_fails_on_an_old_connection_keeps_the_new_one() {
    let redis = Redis::start().await;
    let front = Front::to(redis.port()).await;
    let store = on(&format!("redis://127.0.0.1:{}", front.port));
    acquired(&store, attempt("connects")).await;
    front.freeze();
    let later = async {
        // Sent on the same connection, and fails this much later.
        tokio::time::sleep(Duration::from_millis(250)).await;
        acquired(&store, attempt("second")).await
    };
    let _claims = tokio::join!(acquired(&store, attempt("first")), later);
    assert_eq!(front.connections(), 2);
}

#[tokio::test]
async fn a_cancelled_call_is_not_sent_and_calls_batched_with_it_are() {
    let (silent, new) = (Redis::start().await, Redis::start().await);
    let front = Front::to(silent.port()).await;
    // With a password, the store waits for the reply to AUTH before it sends anything else.
    let store = on(&format!("redis://default:any@127.0.0.1:{}", front.port));
    silent.signal("-STOP");
    let given_up = async {
        let in_a_hurry = tokio::time::timeout(Duration::from_millis(100), store.acquire(attempt("given up")));
        assert!(in_a_hurry.await.is_err());
        front.forward_to(new.port());
    };
    let ((), claim) = tokio::join!(given_up, acquired(&store, attempt("awaited")));
    assert_eq!(claim.key().as_str(), "awaited");
    let there: (bool, bool) = redis::pipe()
        .exists("payments:given up")
        .exists("payments:awaited")
        .query_async(&mut new.connection().await)
        .await
        .unwrap();
    assert_eq!(there, (false, true));
}

#[tokio::test]
async fn a_silent_server_is_unavailable_within_its_timeouts_for_1000_calls() {
    let redis = Redis::start().await;
    let store = on(&redis.url());
    redis.signal("-STOP");
    let asked = std::time::Instant::now();
    let ids: Vec<String> = (0..1000).map(|n| n.to_string()).collect();
    let answers = futures_util::future::join_all(ids.iter().map(|id| store.acquire(attempt(id)))).await;
    redis.signal("-CONT");
    assert!(answers.iter().all(|answer| answer.as_ref().is_err_and(StoreError::is_unavailable)));
    // Two attempts, each waiting for a connection and a reply.
    assert!(asked.elapsed() < Duration::from_secs(3), "{:?}", asked.elapsed());
}

#[tokio::test]
async fn concurrent_calls_share_one_connection_attempt() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let store = on(&format!("redis://:open-sesame@{}", listener.local_addr().unwrap()));
    // These are several script calls, and each needs a connection, twice.
    let ids: Vec<String> = (0..1000).map(|n| n.to_string()).collect();
    let asked = futures_util::future::join_all(ids.iter().map(|id| store.acquire(attempt(id))));
    let mut silent = Vec::new();
    let answers = tokio::select! {
        answers = asked => answers,
        () = async { loop { silent.push(listener.accept().await.unwrap()); } } => unreachable!(),
    };
    assert!(answers.iter().all(|answer| answer.as_ref().is_err_and(StoreError::is_unavailable)));
    // The first call makes its second attempt while the others still wait for the first.
    assert!(silent.len() <= 3, "{} dials", silent.len());
}

#[tokio::test]
async fn an_acquire_that_was_executed_after_its_timeout_is_repeated_by_its_owner() {
    let redis = Redis::start().await;
    let store = on(&redis.url());
    acquired(&store, attempt("loads the script")).await;
    let attempt = attempt("pay_1");
    redis.signal("-STOP");
    assert!(store.acquire(attempt.clone()).await.is_err());
    redis.signal("-CONT");
    let connection = redis.connection().await;
    until(|| {
        let mut connection = connection.clone();
        async move { connection.exists("payments:pay_1").await.unwrap() }
    })
    .await;
    let claim = acquired(&store, attempt).await;
    assert_eq!(claim.attempt(), 1, "repeated executions count once");
}

#[tokio::test]
async fn an_unreachable_server_is_unavailable_until_it_starts() {
    let port = free_port();
    let store = on(&format!("redis://127.0.0.1:{port}"));
    assert!(store.acquire(attempt("pay_1")).await.unwrap_err().is_unavailable());
    let redis = Redis::start().await;
    let front = Front::on(port, redis.port()).await;
    acquired(&store, attempt("pay_1")).await;
    drop(front);
}

#[tokio::test]
async fn an_acquire_may_have_been_executed_if_it_was_sent_and_got_no_reply() {
    let redis = Redis::start().await;
    let store = on(&redis.url());
    acquired(&store, attempt("pay_1")).await;
    redis.signal("-STOP");
    let silent = store.acquire(attempt("pay_2")).await.unwrap_err();
    redis.signal("-CONT");
    assert!(silent.may_have_run(), "{silent:?}");
    let nowhere = on("redis://127.0.0.1:1").acquire(attempt("pay_3")).await.unwrap_err();
    assert!(!nowhere.may_have_run(), "{nowhere:?}");
}

#[tokio::test]
async fn an_acquire_whose_script_failed_after_a_write_may_have_been_executed() {
    let redis = Redis::start().await;
    let front = Front::to(redis.port()).await;
    front.replace_script(ACQUIRE, "redis.call('SET', KEYS[1], '')\nreturn redis.error_reply('ERR the script failed')");
    let error = on(&format!("redis://127.0.0.1:{}", front.port)).acquire(attempt("pay_1")).await.unwrap_err();
    let written: bool = redis.connection().await.exists("payments:pay_1").await.unwrap();
    assert!(written && error.may_have_run(), "{error:?}");
}

#[tokio::test]
async fn cancelled_calls_are_not_sent_again_after_a_lost_script() {
    let redis = Redis::start().await;
    let front = Front::to(redis.port()).await;
    let store = on(&format!("redis://127.0.0.1:{}", front.port));
    acquired(&store, attempt("first")).await;
    let mut connection = redis.connection().await;
    let () = redis::cmd("SCRIPT").arg("FLUSH").query_async(&mut connection).await.unwrap();
    // The NOSCRIPT reply arrives after the first caller's timeout and before the other's.
    front.delay_replies(Duration::from_millis(200));
    let in_a_hurry = async {
        let acquire = tokio::time::timeout(Duration::from_millis(100), store.acquire(attempt("given up")));
        assert!(acquire.await.is_err());
    };
    let ((), claim) = tokio::join!(in_a_hurry, acquired(&store, attempt("awaited")));
    assert_eq!(claim.key().as_str(), "awaited");
    let there: (bool, bool) = redis::pipe()
        .exists("payments:given up")
        .exists("payments:awaited")
        .query_async(&mut connection)
        .await
        .unwrap();
    assert_eq!(there, (false, true));
}

#[tokio::test]
async fn a_script_that_is_lost_again_whenever_it_is_sent_is_sent_once_in_each_of_two_tries() {
    let redis = Redis::start().await;
    let front = Front::to(redis.port()).await;
    front.replace_script(ACQUIRE, "return redis.error_reply('NOSCRIPT No matching script.')");
    let store = on(&format!("redis://127.0.0.1:{}", front.port));
    let error = soon(store.acquire(attempt("pay_1"))).await.unwrap_err();
    assert!(error.is_unavailable(), "{error:?}");
    assert_eq!(calls(&redis, "eval").await, 2);
}

/// The store tries both forms of a script, with flags and without. Neither is compiled.
#[tokio::test]
async fn a_script_that_the_server_does_not_compile_is_an_error() {
    let redis = Redis::start().await;
    let front = Front::to(redis.port()).await;
    front.replace_script(ACQUIRE, "this is not Lua");
    let store = on(&format!("redis://127.0.0.1:{}", front.port));
    let error = soon(store.acquire(attempt("pay_1"))).await.unwrap_err();
    assert!(error.is_unavailable() && error_chain(&error).contains("compiling script"), "{error:?}");
}

/// A server that accepts every command and returns one answer for every script call.
async fn server_with_one_answer() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut asked = Vec::new();
                while client.read_buf(&mut asked).await.is_ok_and(|read| read > 0) {
                    let text = String::from_utf8_lossy(&asked).into_owned();
                    asked.clear();
                    let answer = if text.contains("EVALSHA") { "*1\r\n$6\r\nFAILED\r\n" } else { "+OK\r\n" };
                    let commands = text.lines().filter(|line| line.starts_with('*')).count();
                    client.write_all(answer.repeat(commands).as_bytes()).await.unwrap();
                }
            });
        }
    });
    port
}

#[tokio::test]
async fn a_reply_with_too_few_answers_fails_every_call() {
    let store = on(&format!("redis://127.0.0.1:{}", server_with_one_answer().await));
    assert!(matches!(store.acquire(attempt("alone")).await, Ok(Acquire::Failed)));
    let (first, second) = tokio::join!(store.acquire(attempt("first")), store.acquire(attempt("second")));
    assert!(first.unwrap_err().is_unavailable() && second.unwrap_err().is_unavailable());
}

#[tokio::test]
async fn a_queued_call_that_is_cancelled_is_not_sent() {
    let redis = Redis::start().await;
    let store = on(&redis.url());
    acquired(&store, attempt("connected")).await;
    // Each retention is a separate script call, and these are more than the limit of concurrent calls.
    let ask = |n: u64| {
        let (store, retention) = (store.clone(), Duration::from_millis(600_000 + n));
        tokio::spawn(async move { store.acquire(with!(attempt(&n.to_string()), retention = retention)).await })
    };
    redis.signal("-STOP");
    let mut asked: Vec<_> = (0..300).map(ask).collect();
    let last = asked.pop().unwrap();
    for _ in 0..10 {
        yield_now().await;
    }
    last.abort();
    redis.signal("-CONT");
    for answer in asked {
        assert!(matches!(answer.await, Ok(Ok(Acquire::Acquired(_)))));
    }
    // This call is sent after all calls queued before it.
    assert!(matches!(ask(300).await, Ok(Ok(Acquire::Acquired(_)))));
    let mut connection = redis.connection().await;
    assert!(connection.exists::<_, bool>("payments:298").await.unwrap());
    assert!(!connection.exists::<_, bool>("payments:299").await.unwrap());
}

#[tokio::test]
async fn a_timeout_may_have_any_length() {
    let redis = Redis::start().await;
    let sentinel = Sentinel::watch(&redis, 1).await;
    let by_sentinel = format!("redis+sentinel://127.0.0.1:{}/mymaster", sentinel.port());
    let cluster = SmallCluster::start(1).await;
    for (url, is_cluster) in [(redis.url(), false), (by_sentinel, false), (cluster.url(), true)] {
        let settings = RedisSettings::new(url.parse().unwrap(), "payments");
        let settings = with!(settings, timeout = Duration::MAX, cluster = is_cluster);
        let store = RedisStore::new(&settings).unwrap();
        acquired(&store, attempt(&url)).await;
    }
}
