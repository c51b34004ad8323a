//! Records in Redis: their layout, the scripts, and servers that reject calls.

mod cluster;
mod connections;
mod large;
mod logins;
mod lost_records;
mod records;
mod sentinel;

use std::time::Duration;

use futures_util::future::join_all;
use idempotent_sqs::idempotency::{
    Acquire, AcquireRequest, Claim, Failure, Key, Settled, State, Store, StoreError, StoredResult,
};
use idempotent_sqs::stores::{RedisSettings, RedisStore, RedisUrl};
use redis::AsyncCommands;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::yield_now;

use harness::front::Front;
use harness::redis::{Redis, closed_port, free_port};
use harness::{soon, until, with};
use idempotent_sqs_testing::attempt;

fn on(url: &str) -> RedisStore {
    RedisStore::new(&RedisSettings::new(url.parse().unwrap(), "payments")).unwrap()
}

async fn acquired(store: &RedisStore, attempt: AcquireRequest) -> Claim {
    match store.acquire(attempt).await.unwrap() {
        Acquire::Acquired(claim) => claim,
        other => panic!("not acquired: {other:?}"),
    }
}

/// Number of calls of the command since the start of the server.
async fn calls(redis: &Redis, command: &str) -> u64 {
    let stats: String =
        redis::cmd("INFO").arg("commandstats").query_async(&mut redis.connection().await).await.unwrap();
    let line =
        stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")).map(str::to_owned));
    line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
}

#[tokio::test]
async fn a_record_lives_for_its_whole_retention_up_to_ten_years() {
    const DAY: Duration = Duration::from_hours(24);
    let redis = Redis::start().await;
    let (store, mut connection) = (on(&redis.url()), redis.connection().await);
    for (key, retention, lives) in
        [("two-weeks", 14 * DAY, 14 * DAY), ("a-year", 365 * DAY, 365 * DAY), ("for-ever", Duration::MAX, 3650 * DAY)]
    {
        let is_whole = |ms: u64| (lives - Duration::from_secs(60)..=lives).contains(&Duration::from_millis(ms));
        let claim = acquired(&store, with!(attempt(key), retention = retention)).await;
        let acquired_ms: u64 = connection.pttl(format!("payments:{key}")).await.unwrap();
        store.complete(&claim, StoredResult::NotKept).await.unwrap();
        let completed_ms: u64 = connection.pttl(format!("payments:{key}")).await.unwrap();
        assert!(is_whole(acquired_ms) && is_whole(completed_ms), "{key}: {acquired_ms} ms, {completed_ms} ms");
    }
}

#[tokio::test]
async fn a_record_is_stored_under_namespace_and_key_with_its_state() {
    let redis = Redis::start().await;
    let (store, mut connection) = (on(&redis.url()), redis.connection().await);
    let claim = acquired(&store, attempt("pay_1")).await;
    let record: Vec<u8> = connection.get("payments:pay_1").await.unwrap();
    assert_eq!((record.len(), &record[..2]), (52, b"P\x01".as_slice()));
    let life: u64 = connection.pttl("payments:pay_1").await.unwrap();
    assert!((590_000..=600_000).contains(&life), "{life} ms");

    store.complete(&claim, StoredResult::Inline(b"receipt")).await.unwrap();
    let record: Vec<u8> = connection.get("payments:pay_1").await.unwrap();
    assert_eq!((&record[..2], &record[36..]), (b"C\x01".as_slice(), b"receipt".as_slice()));
    assert!(connection.pttl::<_, u64>("payments:pay_1").await.unwrap() > 590_000);

    let claim = acquired(&store, attempt("pay_2")).await;
    store.fail(&claim, Failure::default()).await.unwrap();
    let record: Vec<u8> = connection.get("payments:pay_2").await.unwrap();
    assert_eq!((record.len(), &record[..2]), (52, b"F\x01".as_slice()));
}

#[tokio::test]
async fn the_location_of_a_result_is_stored_with_the_mark_of_a_result_not_kept() {
    let redis = Redis::start().await;
    let (store, mut connection) = (on(&redis.url()), redis.connection().await);
    let claim = acquired(&store, attempt("pay_1")).await;
    store.complete(&claim, StoredResult::Object(b"s3://results/pay_1/1")).await.unwrap();
    let record: Vec<u8> = connection.get("payments:pay_1").await.unwrap();
    assert_eq!((record[2] & 4, &record[36..]), (4, b"s3://results/pay_1/1".as_slice()));
}

#[tokio::test]
async fn a_key_above_200_bytes_is_replaced_by_its_hash() {
    let redis = Redis::start().await;
    let store = on(&redis.url());
    acquired(&store, attempt(&"k".repeat(200))).await;
    acquired(&store, attempt(&"k".repeat(201))).await;
    let mut keys: Vec<String> = redis.connection().await.keys("*").await.unwrap();
    keys.sort();
    let digest = "ebf0ead0a3b837bc388d6a36c93833fff64a0a8bc8198fc0f1b7b5031dddd254";
    assert_eq!(keys, [format!("payments:{}", "k".repeat(200)), format!("payments:sha256:{digest}")]);
}

#[tokio::test]
async fn a_completed_record_of_a_uuid_takes_no_more_than_220_bytes() {
    let redis = Redis::start().await;
    let (store, mut connection) = (on(&redis.url()), redis.connection().await);
    let key = "0d3a8d5e-4d0c-4a4e-9a5c-7d1f6f1f9b7e";
    let claim = acquired(&store, attempt(key)).await;
    store.complete(&claim, StoredResult::Inline(&[7; 24])).await.unwrap();
    let usage = redis::cmd("MEMORY").arg("USAGE").arg(format!("payments:{key}")).query_async(&mut connection).await;
    // MEMORY USAGE does not include the entry in the table of expiring keys.
    let expiry_entry = 24;
    let usage: u64 = usage.unwrap();
    assert!(usage + expiry_entry <= 220, "{usage} bytes");
}

#[tokio::test]
async fn concurrent_calls_share_script_calls_of_at_most_64_records() {
    let redis = Redis::start().await;
    let store = on(&redis.url());
    acquired(&store, attempt("loads the script")).await;
    let before = calls(&redis, "evalsha").await;
    // The remaining time of an invocation is slightly less for each message.
    let lease = |n: u64| Duration::from_millis(60_000 - n / 10);
    let acquires = (0..300).map(|n| acquired(&store, with!(attempt(&n.to_string()), lease = lease(n))));
    let claims = soon(join_all(acquires)).await;
    assert_eq!(calls(&redis, "evalsha").await - before, 5);

    // Different leases are separate calls: another invocation in the process may have minutes left.
    let before = calls(&redis, "evalsha").await;
    let lease = |n: u64| Duration::from_secs(60 + n);
    let acquires = (0..3).map(|n| acquired(&store, with!(attempt(&format!("other {n}")), lease = lease(n))));
    soon(join_all(acquires)).await;
    assert_eq!(calls(&redis, "evalsha").await - before, 3);

    let before = calls(&redis, "evalsha").await + calls(&redis, "eval").await;
    soon(join_all(claims.iter().map(|claim| store.complete(claim, StoredResult::NotKept)))).await;
    // Each call finds the script missing and sends it.
    assert_eq!(calls(&redis, "evalsha").await + calls(&redis, "eval").await - before, 10);
}

/// The key of a dead letter has terms of its own.
#[tokio::test]
async fn concurrent_acquires_of_other_terms_have_script_calls_of_their_own() {
    let redis = Redis::start().await;
    let store = on(&redis.url());
    let claim = acquired(&store, attempt("pay_1")).await;
    let failed = Failure { uncertain: false, permanent: true };
    assert_eq!(store.fail(&claim, failed).await.unwrap(), Settled::Recorded);
    for other in [
        with!(attempt("retention"), failed_retention = Duration::ZERO),
        with!(attempt("attempts"), max_attempts = 255),
        with!(attempt("lease"), longest_lease = Duration::from_secs(1)),
    ] {
        let before = calls(&redis, "evalsha").await;
        let (_claim, again) = tokio::join!(acquired(&store, other), store.acquire(attempt("pay_1")));
        assert!(matches!(again, Ok(Acquire::Failed)), "{again:?}");
        assert_eq!(calls(&redis, "evalsha").await - before, 2);
    }
}

#[tokio::test]
async fn a_lease_is_at_most_100_ms_longer_than_it_was_asked_for() {
    let redis = Redis::start().await;
    let store = on(&redis.url());
    acquired(&store, attempt("pay_0")).await;
    let asked = |n: u64| Duration::from_millis(5_000 + 60 * n);
    for (order, expected) in [((1..=60).collect::<Vec<_>>(), 60), ((1..=60).rev().collect(), 30)] {
        let requests = order.iter().map(|n| with!(attempt(&format!("pay_{n}_{}", order[0])), lease = asked(*n)));
        let before = calls(&redis, "evalsha").await;
        let claims = soon(join_all(requests.map(|request| acquired(&store, request)))).await;
        assert_eq!(calls(&redis, "evalsha").await - before, expected);
        for claim in claims {
            let request = claim.request().clone();
            let again = with!(request.clone(), owner = attempt("pay_0").owner);
            let Acquire::Conflict { lease_remains } = store.acquire(again).await.unwrap() else {
                panic!("no conflict")
            };
            assert!(lease_remains <= request.lease + Duration::from_millis(100), "{lease_remains:?} of {request:?}");
        }
    }
}

#[tokio::test]
async fn a_key_of_another_type_does_not_affect_the_failure_of_another_key_in_its_script_call() {
    let redis = Redis::start().await;
    let store = on(&redis.url());
    let claims = [acquired(&store, attempt("pay_1")).await, acquired(&store, attempt("pay_2")).await];
    let mut connection = redis.connection().await;
    let () = redis::pipe().del("payments:pay_1").lpush("payments:pay_1", 1).query_async(&mut connection).await.unwrap();
    let failure = Failure { uncertain: false, permanent: true };
    let before = calls(&redis, "evalsha").await + calls(&redis, "eval").await;
    let (other, failed) = tokio::join!(store.fail(&claims[0], failure), store.fail(&claims[1], failure));
    assert!(matches!(other, Err(StoreError::NotARecord(_))), "{other:?}");
    assert_eq!(failed.unwrap(), Settled::Recorded);
    // The call finds the script missing and sends it.
    assert_eq!(calls(&redis, "evalsha").await + calls(&redis, "eval").await - before, 2);
}

#[tokio::test]
async fn concurrent_acquires_are_sent_before_settlements() {
    let redis = Redis::start().await;
    let store = redis.store();
    // Both scripts are loaded, so neither is sent twice.
    let other = acquired(&store, attempt("other")).await;
    store.complete(&other, StoredResult::NotKept).await.unwrap();
    let claim = acquired(&store, attempt("key")).await;
    let (settled, meanwhile) =
        tokio::join!(store.complete(&claim, StoredResult::Inline(b"done")), store.acquire(attempt("key")));
    assert!(matches!(settled, Ok(Settled::Recorded)), "{settled:?}");
    assert!(matches!(meanwhile, Ok(Acquire::Conflict { .. })), "{meanwhile:?}");
}

#[tokio::test]
async fn a_value_that_is_not_a_record_is_an_error_and_is_not_changed() {
    let redis = Redis::start().await;
    let (store, mut connection) = (on(&redis.url()), redis.connection().await);
    let long_enough = "C".repeat(60);
    let almost = [b"P\x01".as_slice(), &[0; 40]].concat();
    let strings: [(&str, &[u8]); 6] = [
        ("text", b"in use"),
        ("empty", b""),
        ("number", b"1"),
        ("long", long_enough.as_bytes()),
        ("almost", &almost),
        ("short", b"C\x01done"),
    ];
    for (key, value) in strings {
        let () = connection.set(format!("payments:{key}"), value).await.unwrap();
    }
    let () = connection.hset("payments:hash", "status", "INPROGRESS").await.unwrap();

    let keys = ["text", "fine", "empty", "number", "long", "almost", "short", "hash", "fine too"];
    let answers = futures_util::future::join_all(keys.map(|key| store.acquire(attempt(key)))).await;
    for (key, answer) in keys.iter().zip(answers) {
        match answer {
            Ok(Acquire::Acquired(_)) => assert!(key.starts_with("fine"), "{key}"),
            Err(StoreError::NotARecord(named)) => assert_eq!(named, format!("payments:{key}")),
            other => panic!("{key}: {other:?}"),
        }
    }
    for (key, value) in strings {
        assert_eq!(connection.get::<_, Vec<u8>>(format!("payments:{key}")).await.unwrap(), value);
    }
    let status: String = connection.hget("payments:hash", "status").await.unwrap();
    assert_eq!(status, "INPROGRESS");
}

#[tokio::test]
async fn a_lease_above_the_longest_one_of_its_own_request_is_not_shortened_by_an_equal_request() {
    let redis = Redis::start().await;
    let store = on(&redis.url());
    let request = || with!(attempt("pay_1"), lease = Duration::from_secs(60), longest_lease = Duration::from_secs(1));
    acquired(&store, request()).await;
    let answer = store.acquire(request()).await;
    let is_whole = matches!(answer, Ok(Acquire::Conflict { lease_remains }) if lease_remains > Duration::from_secs(30));
    assert!(is_whole, "{answer:?}");
}

#[tokio::test]
async fn a_completed_record_in_a_later_format_is_not_a_duplicate() {
    let redis = Redis::start().await;
    let (store, mut connection) = (on(&redis.url()), redis.connection().await);
    let claim = acquired(&store, attempt("pay_1")).await;
    store.complete(&claim, StoredResult::NotKept).await.unwrap();
    assert!(matches!(store.acquire(attempt("pay_1")).await, Ok(Acquire::Duplicate { .. })));
    let () = connection.setrange("payments:pay_1", 1, "\u{2}").await.unwrap();
    assert!(matches!(store.acquire(attempt("pay_1")).await, Err(StoreError::NotARecord(_))));
}

#[tokio::test]
async fn settling_does_not_change_a_value_that_is_not_a_record() {
    let redis = Redis::start().await;
    let (store, mut connection) = (on(&redis.url()), redis.connection().await);
    let claim = acquired(&store, attempt("pay_1")).await;
    // All but the first begin as a record does.
    for value in ["in use", "F\u{1}in use", "C\u{1}in use"] {
        let () = connection.set("payments:pay_1", value).await.unwrap();
        assert!(matches!(store.complete(&claim, StoredResult::NotKept).await, Err(StoreError::NotARecord(_))));
        assert!(matches!(store.fail(&claim, Failure::default()).await, Err(StoreError::NotARecord(_))));
        for claim in [Some(&claim), None] {
            assert!(matches!(store.release(&attempt("pay_1"), claim).await, Err(StoreError::NotARecord(_))));
        }
        assert_eq!(connection.get::<_, String>("payments:pay_1").await.unwrap(), value);
    }
}

#[tokio::test]
async fn a_failed_record_that_a_released_recovery_marks_keeps_its_expiry() {
    let redis = Redis::start().await;
    let (store, mut connection) = (on(&redis.url()), redis.connection().await);
    acquired(&store, with!(attempt("pay_1"), lease = Duration::from_millis(1))).await;
    let recovery = loop {
        match store.acquire(attempt("pay_1")).await.unwrap() {
            Acquire::AcquiredStale(claim) => break claim,
            Acquire::Conflict { .. } => {}
            other => panic!("{other:?}"),
        }
    };
    let () = connection.del("payments:pay_1").await.unwrap();
    let other = acquired(&store, attempt("pay_1")).await;
    store.fail(&other, Failure::default()).await.unwrap();

    let released = store.release(recovery.request(), Some(&recovery)).await.unwrap();
    assert_eq!(released, Settled::Lost(State::Failed));
    let record: Vec<u8> = connection.get("payments:pay_1").await.unwrap();
    assert_eq!(&record[..3], b"F\x01\x01", "it is uncertain");
    assert!(connection.pttl::<_, i64>("payments:pay_1").await.unwrap() > 590_000);
}

#[tokio::test]
async fn a_lost_script_is_loaded_again_for_many_concurrent_calls() {
    let redis = Redis::start().await;
    let (store, mut connection) = (on(&redis.url()), redis.connection().await);
    let claim = acquired(&store, attempt("first")).await;
    let () = redis::cmd("SCRIPT").arg("FLUSH").query_async(&mut connection).await.unwrap();
    store.complete(&claim, StoredResult::NotKept).await.unwrap();
    let () = redis::cmd("SCRIPT").arg("FLUSH").query_async(&mut connection).await.unwrap();
    // The remaining time of an invocation is slightly less for each message.
    let lease = |n: u64| Duration::from_millis(60_000 - n / 10);
    let acquires = (0..300).map(|n| acquired(&store, with!(attempt(&n.to_string()), lease = lease(n))));
    assert_eq!(soon(join_all(acquires)).await.len(), 300);
}

#[tokio::test]
async fn a_wrong_password_is_an_error_without_the_password() {
    let redis = Redis::start_with(&["--requirepass", "open-sesame"]).await;
    let address = format!("127.0.0.1:{}", redis.port());
    acquired(&on(&format!("redis://:open-sesame@{address}")), attempt("pay_1")).await;
    for (login, database) in [(":open-barley@", ""), ("", ""), (":open-barley@", "/1"), ("", "/1")] {
        let error = on(&format!("redis://{login}{address}{database}")).acquire(attempt("pay_2")).await.unwrap_err();
        assert!(error.is_unavailable());
        let text = format!("{error:?}");
        assert!(text.contains("Redis rejected the user and password of REDIS_URL, or requires them"), "{text}");
        assert!(!text.contains("open-barley"), "{text}");
    }
}

#[tokio::test]
async fn a_full_server_without_eviction_rejects_an_acquire() {
    let redis = Redis::start_with(&["--maxmemory", "1", "--maxmemory-policy", "noeviction"]).await;
    let error = on(&redis.url()).acquire(attempt("pay_1")).await.unwrap_err();
    assert!(error.is_unavailable());
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("OOM"), "{cause}");
}

#[tokio::test]
async fn a_full_server_accepts_the_settlement_of_its_claims() {
    let redis = Redis::start().await;
    let store = on(&redis.url());
    let [done, failed, released] = ["done", "failed", "released"].map(attempt);
    let (done, failed) = (acquired(&store, done).await, acquired(&store, failed).await);
    acquired(&store, released.clone()).await;
    let mut connection = redis.connection().await;
    let full = [["maxmemory-policy", "noeviction"], ["maxmemory", "1"]];
    for setting in full {
        let () = redis::cmd("CONFIG").arg("SET").arg(&setting).query_async(&mut connection).await.unwrap();
    }
    assert!(store.acquire(attempt("another")).await.unwrap_err().is_unavailable());
    assert_eq!(store.complete(&done, StoredResult::Inline(b"receipt")).await.unwrap(), Settled::Recorded);
    assert_eq!(store.fail(&failed, Failure::default()).await.unwrap(), Settled::Recorded);
    assert_eq!(store.release(&released, None).await.unwrap(), Settled::Recorded);
    let states: Vec<String> = ["done", "failed", "released"].map(|key| format!("payments:{key}")).into_iter().collect();
    for (key, state) in states.iter().zip(["C", "F", "F"]) {
        let found: String = connection.getrange(key, 0, 0).await.unwrap();
        assert_eq!(found, state, "{key}");
    }
}

#[tokio::test]
async fn an_acquire_that_a_full_server_rejected_was_not_executed() {
    let redis = Redis::start_with(&["--maxmemory", "1", "--maxmemory-policy", "noeviction"]).await;
    let error = on(&redis.url()).acquire(attempt("pay_1")).await.unwrap_err();
    assert!(!error.may_have_run(), "{error:?}");
}

#[tokio::test]
async fn a_full_server_that_lost_the_scripts_accepts_the_settlement_of_its_claims() {
    let redis = Redis::start().await;
    let store = on(&redis.url());
    let claim = acquired(&store, attempt("pay_1")).await;
    let mut connection = redis.connection().await;
    for command in ["SCRIPT FLUSH", "CONFIG SET maxmemory-policy noeviction", "CONFIG SET maxmemory 1"] {
        let mut words = command.split(' ');
        let mut command = redis::cmd(words.next().unwrap());
        let () = words.fold(&mut command, redis::Cmd::arg).query_async(&mut connection).await.unwrap();
    }
    assert!(store.acquire(attempt("another")).await.unwrap_err().is_unavailable());
    assert_eq!(store.complete(&claim, StoredResult::Inline(b"receipt")).await.unwrap(), Settled::Recorded);
}

#[tokio::test]
async fn a_server_without_script_flags_gets_scripts_without_them() {
    let redis = Redis::start().await;
    let front = Front::to(redis.port()).await;
    front.reject_script_flags();
    let store = on(&format!("redis://127.0.0.1:{}", front.port));
    for key in ["pay_1", "pay_2"] {
        let claim = acquired(&store, attempt(key)).await;
        assert_eq!(store.complete(&claim, StoredResult::NotKept).await.unwrap(), Settled::Recorded);
    }
    let failed = acquired(&store, attempt("pay_3")).await;
    assert_eq!(store.fail(&failed, Failure::default()).await.unwrap(), Settled::Recorded);
    let released = attempt("pay_4");
    acquired(&store, released.clone()).await;
    assert_eq!(store.release(&released, None).await.unwrap(), Settled::Recorded);
}

#[tokio::test]
async fn a_call_that_the_user_may_not_make_is_not_retried() {
    let redis = Redis::start().await;
    let mut connection = redis.connection().await;
    let limited = ["SETUSER", "limited", "on", ">open-sesame", "~*", "+@all", "-evalsha", "-eval"];
    let () = redis::cmd("ACL").arg(&limited).query_async(&mut connection).await.unwrap();
    let store = on(&format!("redis://limited:open-sesame@127.0.0.1:{}", redis.port()));
    let error = store.acquire(attempt("pay_1")).await.unwrap_err();
    assert!(error.is_unavailable());
    let stats: String = redis::cmd("INFO").arg("commandstats").query_async(&mut connection).await.unwrap();
    let refused: Vec<_> = stats.lines().filter(|line| line.starts_with("cmdstat_eval")).collect();
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert!(
        refused[0].starts_with("cmdstat_evalsha:calls=0,") && refused[0].contains("rejected_calls=1,"),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_command_that_the_user_may_not_run_in_a_script_is_an_error_of_the_store() {
    let redis = Redis::start().await;
    let mut connection = redis.connection().await;
    let limited = ["SETUSER", "limited", "on", ">open-sesame", "~*", "+@all", "-set"];
    let () = redis::cmd("ACL").arg(&limited).query_async(&mut connection).await.unwrap();
    let claim = acquired(&on(&redis.url()), attempt("pay_1")).await;
    let store = on(&format!("redis://limited:open-sesame@127.0.0.1:{}", redis.port()));
    for error in [
        store.acquire(attempt("pay_2")).await.unwrap_err(),
        store.complete(&claim, StoredResult::NotKept).await.unwrap_err(),
        store.fail(&claim, Failure::default()).await.unwrap_err(),
        store.release(claim.request(), Some(&claim)).await.unwrap_err(),
    ] {
        assert!(error.is_unavailable(), "{error:?}");
    }
}

#[tokio::test]
async fn an_invalid_url_is_rejected_without_showing_it() {
    let with_unescaped_character = "redis://payments:12#secret@localhost:6379";
    for url in [
        "http://:secret@localhost",
        "unix:///tmp/redis.sock",
        "rediss://:secret@localhost/#insecure",
        "secret",
        with_unescaped_character,
    ] {
        let error = url.parse::<RedisUrl>().unwrap_err();
        assert!(!format!("{error} {error:?}").contains("secret"), "{error}");
    }
}

#[test]
fn the_debug_output_of_a_store_has_its_settings_and_no_password() {
    let shown = format!("{:?}", on("redis://user:secret@127.0.0.1:1/"));
    assert!(shown.contains("payments") && shown.contains("timeout: 500ms"), "{shown}");
    assert!(!shown.contains("secret"), "{shown}");
    let url: RedisUrl = "redis://:secret@localhost".parse().unwrap();
    assert_eq!(format!("{url:?}"), "RedisUrl { .. }");
}
