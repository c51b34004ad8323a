//! Rows that are copied to a store that has lost its records.

mod binary;
mod watermark;

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use idempotent_sqs::idempotency::{
    Acquire, AcquireRequest, Failure, Fingerprint, MessageIdHash, Settled, Store, StoreError, StoredResult,
};
use idempotent_sqs::stores::redis::records::{RecordStateView, Records};
use idempotent_sqs::{Claim, MemoryStore, Message, Outcome, RedisSettings, RedisStore};
use idempotent_sqs_postgres::backfill::{
    Backfill, BackfillEnd, BackfillError, BackfillProgress, BackfillSettings, BackfillStart,
};
use redis_test::cluster::{RedisCluster, RedisClusterConfiguration};
use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};

use crate::fixture::*;
use harness::postgres::{Base, until_count};
use harness::redis::{Redis, connect, store};
use harness::{soon, with};

/// Number of records of a loss probe.
const PROBE_RECORDS: u64 = 64;

fn backfill_settings() -> BackfillSettings {
    with!(
        BackfillSettings::new("payments"),
        retention = Duration::from_hours(24),
        result_max_bytes = 400,
        rows_per_second = NonZeroU32::MAX,
        overlap = 60 * SECOND
    )
}

fn backfill(base: &Base, store: &RedisStore) -> Backfill<RedisStore> {
    Backfill::new(store.clone(), database(&base.url()), backfill_settings())
}

async fn run_backfill(backfill: &Backfill<RedisStore>) -> BackfillProgress {
    let (progress, end) = backfill.run(BackfillStart::Watermark, None, |_| ()).await.unwrap();
    assert_eq!((end, progress.remaining), (BackfillEnd::Done, Some(0)));
    progress
}

/// Inserts this many finished rows. The newest is done now, each other one a second before the next.
async fn seed(base: &Base, count: i64) {
    let rows = "INSERT INTO idempotency_inbox (namespace, key, fingerprint, fence, attempts, result, done_at) \
         SELECT 'payments', 'pay_' || n, decode(repeat('00', 16), 'hex'), 1000 + n, 1, 'receipt', \
           now() - ($1::bigint - n) * interval '1 second' FROM generate_series(1, $1::bigint) n";
    base.client.execute(rows, &[&count]).await.unwrap();
}

async fn flush(redis: &Redis) {
    let () = redis::cmd("FLUSHALL").query_async(&mut redis.connection().await).await.unwrap();
}

async fn records(redis: &Redis) -> u64 {
    redis::cmd("DBSIZE").query_async(&mut redis.connection().await).await.unwrap()
}

fn attempt(key: &str) -> AcquireRequest {
    with!(
        idempotent_sqs_testing::attempt(key),
        fingerprint = Fingerprint::NONE,
        message = MessageIdHash::of("another"),
        lease = TIME,
        retention = TIME
    )
}

async fn claim(store: &RedisStore, key: &str) -> Claim {
    match store.acquire(attempt(key)).await.unwrap() {
        Acquire::Acquired(claim) => claim,
        other => panic!("{other:?}"),
    }
}

/// An operator may have written it.
#[tokio::test]
async fn the_record_of_a_row_whose_fingerprint_has_another_length_agrees_with_no_payload() {
    let (base, redis) = (base().await, Redis::start().await);
    let store = redis.store();
    seed(&base, 2).await;
    let update = "UPDATE idempotency_inbox SET fingerprint = CASE key WHEN 'pay_1' THEN 'brief'::bytea ELSE '' END";
    base.client.batch_execute(update).await.unwrap();
    assert_eq!(run_backfill(&backfill(&base, &store)).await.copied, 2);
    for key in ["pay_1", "pay_2"] {
        let answer = store.acquire(with!(attempt(key), fingerprint = Fingerprint::of(b"12.50 EUR"))).await.unwrap();
        assert!(matches!(answer, Acquire::Mismatch), "{answer:?}");
    }
}

#[tokio::test]
async fn a_redis_that_was_restored_empty_recognizes_every_duplicate_after_a_backfill() {
    let (base, redis) = (base().await, Redis::start().await);
    let store = redis.store();
    let (idempotency, inbox) = (on(store.clone()), inbox(Pay::default(), database(&base.url())));
    let keys: Vec<_> = (0..20).map(|n| format!("pay_{n}")).chain(["k".repeat(300), "größe".into()]).collect();
    let mut fences = Vec::new();
    for key in &keys {
        fences.push(deliver(&idempotency, &inbox, key).await.fence);
    }
    flush(&redis).await;
    let progress = run_backfill(&backfill(&base, &store)).await;
    assert_eq!((progress.copied, progress.sent()), (22, 22));
    let other = delivery("pay_1").fingerprint(Fingerprint::of(b"99.00 EUR"));
    let report = idempotency.run(&other, &inbox, &Message::default()).await.unwrap();
    assert!(matches!(report.outcome, Outcome::Mismatch) && report.fence.is_none(), "Redis says it: {report:?}");
    // From here on PostgreSQL is not used.
    base.client.batch_execute("DROP TABLE idempotency_inbox").await.unwrap();
    for (key, fence) in keys.iter().zip(fences) {
        let report = deliver(&idempotency, &inbox, key).await;
        assert_eq!(duplicate(&report), format!("receipt of {key}").as_bytes());
        assert_eq!((report.fence, report.attempts), (fence, Some(1)));
    }
    assert_eq!(base.count(EFFECTS).await, 22);
}

#[tokio::test]
async fn an_unfinished_row_is_not_copied() {
    let (base, redis) = (base().await, Redis::start().await);
    seed(&base, 3).await;
    base.client.batch_execute("UPDATE idempotency_inbox SET result = NULL WHERE key = 'pay_2'").await.unwrap();
    let (backfill, mut left) = (backfill(&base, &redis.store()), Vec::new());
    let (progress, _) = backfill.run(BackfillStart::Watermark, None, |step| left.push(step.remaining)).await.unwrap();
    assert_eq!((progress.copied, progress.sent()), (2, 2));
    assert_eq!(left, [Some(0)], "the unfinished row is not counted as remaining");
    claim(&redis.store(), "pay_2").await;
}

#[tokio::test]
async fn after_the_loss_of_a_cluster_node_all_rows_are_sent_again() {
    let base = base().await;
    let cluster = spawn_blocking(|| RedisCluster::new(RedisClusterConfiguration::default())).await.unwrap();
    let store = store(&format!("redis://{}", cluster.servers[0].addr), true);
    seed(&base, 500).await;
    let backfill = backfill(&base, &store);
    assert_eq!(run_backfill(&backfill).await.copied, 500);
    let mut node = connect(cluster.servers[1].connection_info()).await;
    let lost: u64 = redis::cmd("DBSIZE").query_async(&mut node).await.unwrap();
    let () = redis::cmd("FLUSHALL").query_async(&mut node).await.unwrap();
    let again = run_backfill(&backfill).await;
    assert!(again.copied > 50 && again.copied < lost, "{again:?}, and {lost} records with those of the loss probe");
    assert_eq!(again.sent(), 500);
}

#[tokio::test]
async fn a_row_is_copied_if_redis_has_no_record_or_a_failed_one_and_nothing_else_is_changed() {
    let (base, redis) = (base().await, Redis::start().await);
    let store = redis.store();
    seed(&base, 5).await;
    let _at_work = claim(&store, "pay_1").await;
    let done = claim(&store, "pay_3").await;
    store.complete(&done, StoredResult::Inline(b"another receipt")).await.unwrap();
    let mut connection = redis.connection().await;
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query_async(&mut connection).await.unwrap();
    let foreign = keys[0].split(':').next().unwrap().to_owned() + ":pay_4";
    let () = redis::cmd("SET").arg(&foreign).arg("not a record").query_async(&mut connection).await.unwrap();
    let keys = [keys, vec![foreign]].concat();
    let failed = claim(&store, "pay_2").await;
    store.fail(&failed, Failure { uncertain: true, permanent: false }).await.unwrap();
    let before: Vec<Vec<u8>> = redis::cmd("MGET").arg(&keys).query_async(&mut connection).await.unwrap();
    for copied in [2, 0] {
        let progress = run_backfill(&backfill(&base, &store)).await;
        let counts = [progress.copied, progress.already_completed, progress.skipped, progress.not_records];
        assert_eq!(counts, [copied, 3 - copied, 1, 1]);
    }
    let after: Vec<Vec<u8>> = redis::cmd("MGET").arg(&keys).query_async(&mut connection).await.unwrap();
    assert_eq!(before, after);
}

#[tokio::test]
async fn a_record_lives_for_the_remaining_retention_of_its_row_and_expired_rows_are_not_copied() {
    let (base, redis) = (base().await, Redis::start().await);
    seed(&base, 3).await;
    for (key, hours) in [("pay_1", 25), ("pay_2", 23)] {
        let age =
            format!("UPDATE idempotency_inbox SET done_at = now() - interval '{hours} hours' WHERE key = '{key}'");
        base.client.batch_execute(&age).await.unwrap();
    }
    let store = redis.store();
    assert_eq!(run_backfill(&backfill(&base, &store)).await.sent(), 2);
    assert_eq!(records(&redis).await, 2 + PROBE_RECORDS);
    let mut connection = redis.connection().await;
    for (key, hours) in [("pay_2", 1), ("pay_3", 24)] {
        let keys: Vec<String> = redis::cmd("KEYS").arg(format!("*:{key}")).query_async(&mut connection).await.unwrap();
        let seconds: i64 = redis::cmd("TTL").arg(&keys[0]).query_async(&mut connection).await.unwrap();
        let remains = hours * 3_600;
        assert!((remains - 60..=remains + 60).contains(&seconds), "{key} lives for {seconds} s");
    }
}

#[tokio::test]
async fn a_row_with_a_result_too_large_for_redis_is_copied_without_the_result() {
    let (base, redis) = (base().await, Redis::start().await);
    seed(&base, 2).await;
    base.client
        .batch_execute("UPDATE idempotency_inbox SET result = repeat('x', 401)::bytea WHERE key = 'pay_1'")
        .await
        .unwrap();
    let store = redis.store();
    run_backfill(&backfill(&base, &store)).await;
    for (key, expected) in [("pay_1", None), ("pay_2", Some(b"receipt".to_vec()))] {
        match store.acquire(attempt(key)).await.unwrap() {
            Acquire::Duplicate { result, .. } => {
                assert_eq!(result, expected.map_or(StoredResult::NotKept, StoredResult::Inline));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn no_more_rows_are_sent_in_a_second_than_the_settings_allow() {
    let (base, redis) = (base().await, Redis::start().await);
    seed(&base, 250).await;
    let settings = with!(backfill_settings(), rows_per_second = NonZeroU32::new(100).unwrap());
    let backfill = Backfill::new(redis.store(), database(&base.url()), settings);
    let mut seen = Vec::new();
    let (progress, _) = backfill.run(BackfillStart::Watermark, None, |progress| seen.push(*progress)).await.unwrap();
    assert!(progress.elapsed >= 2 * SECOND, "{:?}", progress.elapsed);
    let steps: Vec<_> = seen.iter().map(|progress| (progress.sent(), progress.remaining)).collect();
    assert_eq!(steps, [(100, Some(150)), (200, Some(50)), (250, Some(0))]);
}

/// A store that hangs once, as in a failover, and notes when each row is sent.
#[derive(Default)]
struct HangsOnce {
    records: MemoryStore,
    has_hung: AtomicBool,
    sent: Mutex<Vec<Instant>>,
}

impl Store for HangsOnce {
    async fn acquire(&self, request: AcquireRequest) -> Result<Acquire, StoreError> {
        self.records.acquire(request).await
    }

    async fn complete(&self, claim: &Claim, result: StoredResult<&[u8]>) -> Result<Settled, StoreError> {
        if claim.key().as_str().starts_with("pay_") {
            self.sent.lock().unwrap().push(Instant::now());
            if !self.has_hung.swap(true, Ordering::SeqCst) {
                sleep(2 * SECOND).await;
            }
        }
        self.records.complete(claim, result).await
    }

    async fn fail(&self, claim: &Claim, failure: Failure) -> Result<Settled, StoreError> {
        self.records.fail(claim, failure).await
    }

    async fn release(&self, request: &AcquireRequest, claim: Option<&Claim>) -> Result<Settled, StoreError> {
        self.records.release(request, claim).await
    }
}

#[tokio::test]
async fn a_slow_step_is_not_followed_by_more_rows_in_a_second_than_the_settings_allow() {
    let base = base().await;
    seed(&base, 300).await;
    let store = Arc::new(HangsOnce::default());
    let settings = with!(backfill_settings(), rows_per_second = NonZeroU32::new(100).unwrap());
    let backfill = Backfill::new(Arc::clone(&store), database(&base.url()), settings);
    backfill.run(BackfillStart::Oldest, None, |_| ()).await.unwrap();
    let sent = store.sent.lock().unwrap();
    let in_a_second = |from: &Instant| sent.iter().filter(|at| (*from..*from + SECOND).contains(at)).count();
    let most = sent.iter().map(in_a_second).max();
    // The rows of a step are not sent at one moment.
    assert!(sent.len() == 300 && most.is_some_and(|most| most < 150), "{most:?} rows in a second");
}

/// Runs the backfill, and applies this function of the server to its session while it counts the rows. Returns the
/// remainders that it reported too.
async fn run_while_counting(
    base: &Base,
    backfill: &Backfill<RedisStore>,
    function: &str,
) -> (Result<(BackfillProgress, BackfillEnd), BackfillError>, Vec<Option<u64>>) {
    base.client.batch_execute("BEGIN; LOCK TABLE idempotency_inbox").await.unwrap();
    let waiting = "FROM pg_locks WHERE NOT granted AND relation = 'idempotency_inbox'::regclass";
    let mut remainders = Vec::new();
    let (ended, ()) = soon(async {
        let on_progress = |progress: &BackfillProgress| remainders.push(progress.remaining);
        tokio::join!(backfill.run(BackfillStart::Watermark, None, on_progress), async {
            until_count(base, &format!("SELECT count(*) {waiting}"), 1).await;
            base.client.execute(&format!("SELECT {function}(pid) {waiting}"), &[]).await.unwrap();
            base.client.batch_execute("COMMIT").await.unwrap();
        })
    })
    .await;
    (ended, remainders)
}

#[tokio::test]
async fn rows_that_cannot_be_counted_are_copied_with_an_unknown_remainder() {
    let (base, redis) = (base().await, Redis::start().await);
    seed(&base, 3).await;
    let (ended, remainders) = run_while_counting(&base, &backfill(&base, &redis.store()), "pg_cancel_backend").await;
    let (progress, end) = ended.unwrap();
    assert_eq!((end, progress.copied, remainders), (BackfillEnd::Done, 3, vec![None]));
}

#[tokio::test]
async fn a_session_that_ends_while_rows_are_counted_is_an_error() {
    let (base, redis) = (base().await, Redis::start().await);
    seed(&base, 3).await;
    let (ended, remainders) = run_while_counting(&base, &backfill(&base, &redis.store()), "pg_terminate_backend").await;
    assert!(matches!(ended, Err(BackfillError::Database(_))) && remainders.is_empty(), "{ended:?}");
}

#[tokio::test]
async fn a_concurrent_function_does_all_works_once() {
    let (base, redis) = (base().await, Redis::start().await);
    let store = redis.store();
    let (idempotency, inbox) = (on(store.clone()), inbox(Pay::default(), database(&base.url())));
    let (backfill, keys) = (backfill(&base, &store), (0..60).map(|n| format!("pay_{n}")).collect::<Vec<_>>());
    for round in 0..3 {
        let works = async {
            for key in &keys {
                let report = deliver(&idempotency, &inbox, key).await;
                let first = matches!(&report.outcome, Outcome::Done { .. } | Outcome::DoneByOwnRecord { .. });
                assert!(first == (round == 0), "{report:?}");
                assert!(first || duplicate(&report) == format!("receipt of {key}").as_bytes());
            }
        };
        let copies = async {
            for _ in 0..10 {
                flush(&redis).await;
                // Redis may lose records during the run, which is an error.
                let ended = backfill.run(BackfillStart::Watermark, None, |_| ()).await;
                assert!(matches!(ended, Ok(_) | Err(BackfillError::RecordsLost)), "{ended:?}");
            }
        };
        tokio::join!(works, copies);
    }
    assert_eq!(base.count(EFFECTS).await, 60);
}

#[tokio::test]
async fn a_missing_table_is_an_error_that_names_the_file_to_run() {
    let (base, redis) = (base().await, Redis::start().await);
    base.client.batch_execute("DROP TABLE idempotency_backfill").await.unwrap();
    let error =
        backfill(&base, &redis.store()).run(BackfillStart::Watermark, None, |_| ()).await.unwrap_err().to_string();
    assert!(error.contains("sql/inbox.sql"), "{error}");
}

#[tokio::test]
async fn a_row_whose_time_is_far_ahead_or_infinite_is_copied() {
    for done_at in ["9999-12-31", "infinity"] {
        let (base, redis) = (base().await, Redis::start().await);
        seed(&base, 3).await;
        let keep = format!("UPDATE idempotency_inbox SET done_at = '{done_at}' WHERE key = 'pay_2'");
        base.client.batch_execute(&keep).await.unwrap();
        let run = backfill(&base, &redis.store()).run(BackfillStart::Watermark, None, |_| ()).await;
        let copied = run.map(|(progress, _)| progress.copied);
        assert!(matches!(copied, Ok(3)), "{done_at}: {copied:?}");
    }
}

#[tokio::test]
async fn a_result_of_more_than_6_mib_is_not_copied_whatever_the_limit() {
    let base = base().await;
    let row = "INSERT INTO idempotency_inbox (namespace, key, fingerprint, fence, attempts, result) \
         SELECT 'payments', 'pay_1', decode(repeat('00', 16), 'hex'), 1001, 1, decode(repeat('00', 6291457), 'hex')";
    base.client.execute(row, &[]).await.unwrap();
    let store = Arc::new(MemoryStore::default());
    let settings = with!(backfill_settings(), result_max_bytes = usize::MAX);
    let backfill = Backfill::new(Arc::clone(&store), database(&base.url()), settings);
    let (progress, _) = backfill.run(BackfillStart::Watermark, None, |_| ()).await.unwrap();
    assert_eq!(progress.copied, 1);
    let answer = store.acquire(attempt("pay_1")).await.unwrap();
    assert!(matches!(answer, Acquire::Duplicate { result: StoredResult::NotKept, .. }), "its result was copied");
}

/// A record that is PROCESSING with an ended lease counts as work that died.
#[tokio::test]
async fn the_lost_records_of_a_probe_are_not_left_as_work_that_died() {
    let (base, redis) = (base().await, Redis::start().await);
    let settings = RedisSettings::new(redis.url().parse().unwrap(), "payments");
    let backfill = backfill(&base, &RedisStore::new(&settings).unwrap());
    run_backfill(&backfill).await;
    flush(&redis).await;
    run_backfill(&backfill).await;
    let records = Records::new(&settings).unwrap();
    let (mut scan, mut completed, mut clean) = (records.scan().await.unwrap(), 0, 0);
    while let Some(page) = scan.next().await.unwrap() {
        for (key, record) in page.records {
            match (record.state, record.attempts) {
                (RecordStateView::Completed { .. }, _) => completed += 1,
                (RecordStateView::Failed(Failure { uncertain: false, permanent: false }), 0) => clean += 1,
                other => panic!("{key:?}: {other:?}"),
            }
        }
    }
    assert_eq!((completed, clean), (PROBE_RECORDS, PROBE_RECORDS), "those of the new probe, and of the lost one");
}
