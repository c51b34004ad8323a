//! Where a run starts, and that it misses no row.

use std::cell::Cell;

use super::*;
use harness::postgres::migration;

/// Flushes Redis in a callback, which cannot await.
fn flush_now(redis: &Redis) {
    let mut connection = redis::Client::open(redis.url()).unwrap().get_connection().unwrap();
    let () = redis::cmd("FLUSHALL").query(&mut connection).unwrap();
}

/// Drops a run after this many steps, as if it were killed.
async fn cut_off(backfill: &Backfill<RedisStore>, steps: usize) {
    let (left, over) = (Cell::new(steps), Notify::new());
    let step = |_: &BackfillProgress| {
        left.set(left.get().saturating_sub(1));
        if left.get() == 0 {
            over.notify_one();
        }
    };
    tokio::select! {
        biased;
        () = over.notified() => {}
        ended = backfill.run(BackfillStart::Watermark, None, step) => panic!("it was to be cut off: {ended:?}"),
    }
}

#[tokio::test]
async fn a_second_run_sends_only_new_rows_and_those_of_the_last_minute() {
    let (base, redis) = (base().await, Redis::start().await);
    seed(&base, 1_500).await;
    let backfill = backfill(&base, &redis.store());
    assert_eq!(run_backfill(&backfill).await.copied, 1_500);
    let again = run_backfill(&backfill).await;
    assert!(again.copied == 0 && (60..100).contains(&again.already_completed), "{again:?}");
    let (all, _) = backfill.run(BackfillStart::Oldest, None, |_| ()).await.unwrap();
    assert_eq!((all.copied, all.already_completed), (0, 1_500));
}

#[tokio::test]
async fn a_run_with_the_longest_overlap_sends_every_row() {
    let (base, redis) = (base().await, Redis::start().await);
    seed(&base, 500).await;
    let store = redis.store();
    assert_eq!(run_backfill(&backfill(&base, &store)).await.copied, 500);
    // A system time can be this far before 1970, but no timestamp of the database.
    for overlap in [Duration::MAX, Duration::from_hours(24 * 365 * 1_000_000)] {
        let settings = with!(backfill_settings(), overlap = overlap);
        let again = run_backfill(&Backfill::new(store.clone(), database(&base.url()), settings)).await;
        assert_eq!(again.already_completed, 500);
    }
}

#[tokio::test]
async fn a_backfill_copies_every_row_if_records_are_kept_for_ever() {
    let (base, redis) = (base().await, Redis::start().await);
    seed(&base, 500).await;
    let settings = with!(backfill_settings(), retention = Duration::MAX);
    let backfill = Backfill::new(redis.store(), database(&base.url()), settings);
    assert_eq!(run_backfill(&backfill).await.copied, 500);
}

#[tokio::test]
async fn after_a_killed_run_the_next_one_repeats_at_most_a_minute() {
    let (base, redis) = (base().await, Redis::start().await);
    seed(&base, 4_500).await;
    let store = redis.store();
    let slow = with!(backfill_settings(), rows_per_second = NonZeroU32::new(1_000).unwrap());
    cut_off(&Backfill::new(store.clone(), database(&base.url()), slow), 2).await;
    let rest = run_backfill(&backfill(&base, &store)).await;
    assert_eq!(rest.copied, 2_500);
    assert!(rest.already_completed <= 61, "{rest:?}");
    assert_eq!(records(&redis).await, 4_500 + PROBE_RECORDS);
}

/// Inserts this many finished rows, all of which were done this long ago.
async fn seed_at_once(base: &Base, count: i64, ago: &str) {
    let rows = format!(
        "INSERT INTO idempotency_inbox SELECT 'payments', n::text, '', 1, 1, '', now() - interval '{ago}' \
         FROM generate_series(1, $1::bigint) n"
    );
    base.client.execute(&rows, &[&count]).await.unwrap();
}

/// Runs that have time for one step of 1,000 rows, until one comes to the end.
async fn short_runs(base: &Base, store: &RedisStore, overlap: Duration) {
    let settings = with!(backfill_settings(), rows_per_second = NonZeroU32::new(1_000).unwrap(), overlap = overlap);
    let backfill = Backfill::new(store.clone(), database(&base.url()), settings);
    for _ in 0..20 {
        let until = Some(Instant::now() + Duration::from_millis(900));
        if backfill.run(BackfillStart::Watermark, until, |_| ()).await.unwrap().1 == BackfillEnd::Done {
            return;
        }
    }
    panic!("no run came to the end");
}

#[tokio::test]
async fn short_runs_come_to_the_end_although_a_minute_has_more_rows_than_a_run_sends() {
    let (base, redis) = (base().await, Redis::start().await);
    let store = redis.store();
    seed_at_once(&base, 2_500, "10 minutes").await;
    short_runs(&base, &store, 60 * SECOND).await;
    assert_eq!(records(&redis).await, 2_500 + PROBE_RECORDS);
    // The next pass starts a minute before the end of this one.
    assert_eq!(run_backfill(&backfill(&base, &store)).await.already_completed, 2_500);
}

/// A transaction that began before the rows that are copied then.
async fn open_transaction(base: &Base, statement: &str) -> tokio_postgres::Client {
    let other = harness::postgres::connect(base.port, &base.name).await;
    other.batch_execute(&format!("BEGIN; {statement}")).await.unwrap();
    // Longer than the margin of the horizon.
    sleep(2 * SECOND).await;
    other
}

#[tokio::test]
async fn short_runs_come_to_the_end_beside_an_open_transaction() {
    let (base, redis) = (base().await, Redis::start().await);
    let _open = open_transaction(&base, "CREATE TABLE nightly_report (a int)").await;
    seed_at_once(&base, 2_500, "0").await;
    short_runs(&base, &redis.store(), Duration::ZERO).await;
    assert_eq!(records(&redis).await, 2_500 + PROBE_RECORDS);
}

#[tokio::test]
async fn a_row_that_commits_behind_an_interrupted_pass_is_copied_by_the_next_pass() {
    let (base, redis) = (base().await, Redis::start().await);
    let settings = with!(backfill_settings(), overlap = Duration::ZERO);
    let backfill = Backfill::new(redis.store(), database(&base.url()), settings);
    let late = "INSERT INTO idempotency_inbox VALUES ('payments', 'late', '', 1, 1, 'receipt', now())";
    let open = open_transaction(&base, late).await;
    seed_at_once(&base, 2_500, "0").await;
    cut_off(&backfill, 1).await;
    open.batch_execute("COMMIT").await.unwrap();
    // No row is beyond the horizon any more.
    sleep(2 * SECOND).await;
    for copied in [1_500, 1, 0] {
        assert_eq!(run_backfill(&backfill).await.copied, copied);
    }
}

#[tokio::test]
async fn an_interrupted_pass_starts_over_if_redis_was_flushed() {
    let (base, redis) = (base().await, Redis::start().await);
    seed(&base, 2_500).await;
    let backfill = backfill(&base, &redis.store());
    cut_off(&backfill, 1).await;
    flush(&redis).await;
    assert_eq!(run_backfill(&backfill).await.copied, 2_500);
}

#[tokio::test]
async fn a_watermark_of_an_earlier_build_is_that_of_the_end_of_a_pass() {
    let (base, redis) = (base().await, Redis::start().await);
    seed(&base, 500).await;
    let backfill = backfill(&base, &redis.store());
    run_backfill(&backfill).await;
    let earlier = "ALTER TABLE idempotency_backfill DROP COLUMN reached_done_at, DROP COLUMN reached_key";
    base.client.batch_execute(earlier).await.unwrap();
    let error = backfill.run(BackfillStart::Watermark, None, |_| ()).await.unwrap_err().to_string();
    assert!(error.contains("sql/inbox.sql"), "{error}");
    base.client.batch_execute(&migration()).await.unwrap();
    let again = run_backfill(&backfill).await;
    assert!(again.copied == 0 && (60..100).contains(&again.already_completed), "{again:?}");
}

#[tokio::test]
async fn a_redis_that_was_flushed_since_the_last_run_gets_all_rows_again() {
    let (base, redis) = (base().await, Redis::start().await);
    seed(&base, 1_500).await;
    let backfill = backfill(&base, &redis.store());
    for _ in 0..2 {
        assert_eq!(run_backfill(&backfill).await.copied, 1_500);
        flush(&redis).await;
    }
}

#[tokio::test]
async fn a_redis_that_is_flushed_during_a_run_gets_all_rows_again() {
    let (base, redis) = (base().await, Redis::start().await);
    seed(&base, 2_500).await;
    let store = redis.store();
    let mut steps = 0;
    let empties = |_: &BackfillProgress| {
        steps += 1;
        if steps == 2 {
            flush_now(&redis);
        }
    };
    let (progress, end) = backfill(&base, &store).run(BackfillStart::Watermark, None, empties).await.unwrap();
    assert_eq!(end, BackfillEnd::Done);
    assert!(progress.copied >= 2_000 + 2_500, "{progress:?}");
    assert_eq!(records(&redis).await, 2_500 + 2 * PROBE_RECORDS, "the attempts at the lost probe leave records");
}

#[tokio::test]
async fn a_run_that_fails_after_it_detected_a_loss_leaves_the_loss_to_the_next_run() {
    let (base, redis) = (base().await, Redis::start().await);
    seed(&base, 1_500).await;
    let store = redis.store();
    run_backfill(&backfill(&base, &store)).await;
    flush(&redis).await;
    // The run can read Redis, but cannot save its watermark.
    base.client
        .batch_execute("ALTER TABLE idempotency_backfill ADD CHECK (moved_at < now() - interval '1 day') NOT VALID")
        .await
        .unwrap();
    let ended = backfill(&base, &store).run(BackfillStart::Watermark, None, |_| ()).await;
    assert!(matches!(ended, Err(BackfillError::Database(_))), "{ended:?}");
    base.client
        .batch_execute("ALTER TABLE idempotency_backfill DROP CONSTRAINT idempotency_backfill_moved_at_check")
        .await
        .unwrap();
    assert_eq!(run_backfill(&backfill(&base, &store)).await.copied, 1_500);
}

#[tokio::test]
async fn a_redis_that_loses_records_repeatedly_is_an_error() {
    let (base, redis) = (base().await, Redis::start().await);
    seed(&base, 2_500).await;
    let ended = backfill(&base, &redis.store()).run(BackfillStart::Watermark, None, |_| flush_now(&redis)).await;
    let error = ended.unwrap_err().to_string();
    assert!(error.contains("noeviction"), "{error}");
}

#[tokio::test]
async fn two_concurrent_runs_copy_all_rows_and_one_of_them_may_be_superseded() {
    let (base, redis) = (base().await, Redis::start().await);
    seed(&base, 2_500).await;
    let store = redis.store();
    let (one, other) = (backfill(&base, &store), backfill(&base, &store));
    let ends = tokio::join!(
        one.run(BackfillStart::Watermark, None, |_| ()),
        other.run(BackfillStart::Watermark, None, |_| ())
    );
    let ends = [ends.0.unwrap().1, ends.1.unwrap().1];
    assert!(ends.contains(&BackfillEnd::Done), "{ends:?}");
    assert!(records(&redis).await >= 2_500 + PROBE_RECORDS);
    assert_eq!(run_backfill(&one).await.copied, 0);
}

#[tokio::test]
async fn a_run_ends_when_a_later_one_has_started_at_the_oldest_row() {
    let (base, redis) = (base().await, Redis::start().await);
    seed(&base, 4_000).await;
    let store = redis.store();
    let slow = with!(backfill_settings(), rows_per_second = NonZeroU32::new(1_000).unwrap());
    let slow = Backfill::new(store.clone(), database(&base.url()), slow);
    let (quick, began) = (backfill(&base, &store), Notify::new());
    let (slow, quick) = soon(async {
        tokio::join!(slow.run(BackfillStart::Watermark, None, |_| began.notify_one()), async {
            began.notified().await;
            quick.run(BackfillStart::Oldest, None, |_| ()).await
        })
    })
    .await;
    assert_eq!((slow.unwrap().1, quick.unwrap().1), (BackfillEnd::Superseded, BackfillEnd::Done));
}

/// Shows each transaction as one that began this long before.
async fn shift_begins(base: &Base, by: &str) {
    let shifted = format!(
        "CREATE VIEW pg_stat_activity AS SELECT datname, pid, usesysid, xact_start - interval '{by}' AS xact_start, \
           backend_xid, backend_xmin FROM pg_catalog.pg_stat_activity; \
         ALTER DATABASE {} SET search_path = public, pg_catalog",
        base.name
    );
    base.client.batch_execute(&shifted).await.unwrap();
}

/// A row whose transaction begins before another row's, this long ago, and commits after the backfill of this user has
/// copied that one.
async fn late(base: &Base, user: &str, age: &str) {
    let redis = Redis::start().await;
    let settings = with!(backfill_settings(), overlap = Duration::ZERO);
    let url = base.url().replace("app@", &format!("{user}@"));
    let backfill = Backfill::new(redis.store(), database(&url), settings);
    let late = format!(
        "INSERT INTO idempotency_inbox VALUES ('payments', 'late', '', 1, 1, 'receipt', now() - interval '{age}')"
    );
    let slow = open_transaction(base, &late).await;
    seed(base, 1).await;
    assert_eq!(run_backfill(&backfill).await.copied, 1);
    slow.batch_execute("COMMIT").await.unwrap();
    let next = run_backfill(&backfill).await;
    assert_eq!((next.copied, next.already_completed), (1, 1));
}

#[tokio::test]
async fn a_row_that_commits_after_later_rows_is_copied() {
    late(&base().await, "app", "0").await;
}

#[tokio::test]
async fn a_row_that_commits_after_more_than_half_an_hour_is_copied() {
    let base = base().await;
    shift_begins(&base, "45 minutes").await;
    late(&base, "app", "45 minutes").await;
}

#[tokio::test]
async fn an_older_transaction_that_has_changed_nothing_counts_as_half_an_hour_old() {
    let (base, redis) = (base().await, Redis::start().await);
    shift_begins(&base, "5 hours").await;
    let dump = harness::postgres::connect(base.port, &base.name).await;
    dump.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM idempotency_inbox").await.unwrap();
    let rows = "INSERT INTO idempotency_inbox SELECT 'payments', n::text, '', 1, 1, '', now() - n * interval '1 minute' \
                FROM generate_series(1, 60) n";
    base.client.batch_execute(rows).await.unwrap();
    let settings = with!(backfill_settings(), overlap = Duration::ZERO);
    let backfill = Backfill::new(redis.store(), database(&base.url()), settings);
    assert_eq!(run_backfill(&backfill).await.copied, 60);
    let again = run_backfill(&backfill).await;
    assert!((29..=31).contains(&again.already_completed) && again.sent() == again.already_completed, "{again:?}");
}

#[tokio::test]
async fn a_row_that_commits_late_is_copied_if_the_begin_of_its_transaction_is_hidden() {
    let base = base().await;
    let user = format!("backfill_{}", base.name);
    let rights = format!(
        "CREATE ROLE {user} LOGIN; GRANT SELECT ON idempotency_inbox TO {user}; \
         GRANT SELECT, INSERT, UPDATE ON idempotency_backfill TO {user}"
    );
    base.client.batch_execute(&rights).await.unwrap();
    late(&base, &user, "0").await;
}
