//! The operator's view of the records.

use std::collections::HashSet;

use idempotent_sqs::idempotency::Key;
use idempotent_sqs::stores::redis::records::{
    Force, Forgotten, Inspected, Lease, RecordStateView, RecordView, Records, RecordsError,
};

use super::*;

fn records(url: &str) -> Records {
    Records::new(&RedisSettings::new(url.parse().unwrap(), "payments")).unwrap()
}

fn key(key: &str) -> Key {
    Key::new(key).unwrap()
}

async fn view(records: &Records, name: &str) -> RecordView {
    match records.inspect(&key(name)).await.unwrap() {
        Inspected::Record { view, .. } => view,
        other => panic!("no record: {other:?}"),
    }
}

#[tokio::test]
async fn a_failed_record_is_forgotten_with_each_of_its_marks() {
    let redis = Redis::start().await;
    let (store, records) = (on(&redis.url()), records(&redis.url()));
    for (uncertain, permanent) in [(false, false), (true, false), (false, true), (true, true)] {
        let claim = acquired(&store, attempt("pay_1")).await;
        store.fail(&claim, Failure { uncertain, permanent }).await.unwrap();
        let seen = view(&records, "pay_1").await.seen();
        assert_eq!(records.forget(&key("pay_1"), seen, Force::No).await.unwrap(), Forgotten::Removed);
    }
}

#[tokio::test]
async fn a_release_of_a_recovery_whose_record_was_lost_keeps_its_fence() {
    let redis = Redis::start().await;
    let (store, records) = (on(&redis.url()), records(&redis.url()));
    let first = acquired(&store, attempt("pay_1")).await;
    store.fail(&first, Failure { uncertain: true, permanent: false }).await.unwrap();
    let recovery = match store.acquire(attempt("pay_1")).await.unwrap() {
        Acquire::AcquiredStale(claim) => claim,
        other => panic!("not acquired: {other:?}"),
    };
    let () = redis.connection().await.del("payments:pay_1").await.unwrap();
    store.release(recovery.request(), Some(&recovery)).await.unwrap();
    assert_eq!(view(&records, "pay_1").await.fence, recovery.fence());
}

#[tokio::test]
async fn an_acquire_gets_the_lease_of_an_earlier_one_that_is_100_ms_longer() {
    let redis = Redis::start().await;
    let (store, records) = (on(&redis.url()), records(&redis.url()));
    let leases = [60_100, 60_000].map(Duration::from_millis);
    let of = |name, lease| acquired(&store, with!(attempt(name), lease = lease));
    futures_util::join!(of("pay_1", leases[0]), of("pay_2", leases[1]));
    for name in ["pay_1", "pay_2"] {
        let RecordView { age, state, .. } = view(&records, name).await;
        let RecordStateView::Processing { lease: Lease::Remains(remains), .. } = state else { panic!("{state:?}") };
        // The end of a lease is a whole millisecond.
        let lease = age + remains;
        assert!(lease.abs_diff(leases[0]) <= Duration::from_millis(1), "{name}: {lease:?}");
    }
}

#[tokio::test]
async fn a_killed_connection_is_replaced_and_a_command_that_the_user_may_not_run_is_not_repeated() {
    let redis = Redis::start().await;
    let mut connection = redis.connection().await;
    let limited = ["SETUSER", "limited", "on", ">open-sesame", "~*", "+@all", "-get"];
    let () = redis::cmd("ACL").arg(&limited).query_async(&mut connection).await.unwrap();
    let records = records(&format!("redis://limited:open-sesame@127.0.0.1:{}", redis.port()));
    for rejected in 1..=2 {
        records.memory(&key("pay_1")).await.unwrap();
        redis.kill_connections().await;
        let error = records.inspect(&key("pay_1")).await.unwrap_err();
        assert!(matches!(error, RecordsError::NotPermitted(_)), "{error:?}");
        let mut connection = redis.connection().await;
        let stats: String = redis::cmd("INFO").arg("commandstats").query_async(&mut connection).await.unwrap();
        let of_get = stats.lines().find(|line| line.starts_with("cmdstat_get:")).unwrap();
        assert!(of_get.contains(&format!("rejected_calls={rejected},")), "{of_get}");
    }
}

#[tokio::test]
async fn a_server_without_a_memory_limit_has_none() {
    let redis = Redis::start().await;
    let server = records(&redis.url()).server().await.unwrap();
    assert_eq!((server.limit_bytes, server.is_cluster), (None, false));
    assert!(server.used_bytes > 0);
    let redis = Redis::start_with(&["--maxmemory", "100mb"]).await;
    assert_eq!(records(&redis.url()).server().await.unwrap().limit_bytes, Some(104_857_600));
}

#[tokio::test]
async fn a_step_of_a_scan_that_failed_is_repeated() {
    let redis = Redis::start().await;
    let (store, records) = (on(&redis.url()), records(&redis.url()));
    acquired(&store, attempt("held")).await;
    let mut connection = redis.connection().await;
    let record: Vec<u8> = connection.get("payments:held").await.unwrap();
    let copies: Vec<_> = (0..5000).map(|number| (format!("payments:{number}"), &record[..])).collect();
    let () = connection.mset(&copies).await.unwrap();
    let (mut scan, mut found) = (records.scan().await.unwrap(), HashSet::new());
    let mut may_read = async |right: &str| {
        let () = redis::cmd("ACL").arg(&["SETUSER", "default", right]).query_async(&mut connection).await.unwrap();
    };
    // The step finds keys whose values it cannot read.
    may_read("-getrange").await;
    scan.next().await.unwrap_err();
    may_read("+getrange").await;
    while let Some(page) = scan.next().await.unwrap() {
        found.extend(page.records.into_iter().map(|(key, _)| key.to_string()));
    }
    assert_eq!(found.len(), 5001);
}

#[tokio::test]
async fn a_scan_finds_each_record_and_neither_an_empty_value_nor_a_longer_one_that_starts_like_one() {
    let redis = Redis::start().await;
    let (store, records) = (on(&redis.url()), records(&redis.url()));
    acquired(&store, attempt("held")).await;
    let failed = acquired(&store, attempt("failed")).await;
    store.fail(&failed, Failure::default()).await.unwrap();
    let done = acquired(&store, attempt("done")).await;
    store.complete(&done, StoredResult::Inline(b"receipt")).await.unwrap();
    let mut connection = redis.connection().await;
    for name in ["held", "failed"] {
        let record: Vec<u8> = connection.get(format!("payments:{name}")).await.unwrap();
        let () = connection.set(format!("payments:longer than {name}"), [&record[..], b"x"].concat()).await.unwrap();
    }
    let () = connection.set("payments:empty", b"").await.unwrap();
    let (mut scan, mut found, mut others) = (records.scan().await.unwrap(), Vec::new(), 0);
    while let Some(page) = scan.next().await.unwrap() {
        found.extend(page.records.into_iter().map(|(key, _)| key.to_string()));
        others += page.not_records;
    }
    found.sort();
    assert_eq!((found, others), (["done", "failed", "held"].map(String::from).to_vec(), 3));
    let inspected = records.inspect(&key("done")).await.unwrap();
    assert!(matches!(&inspected, Inspected::Record { result, .. } if result == b"receipt"), "{inspected:?}");
}
