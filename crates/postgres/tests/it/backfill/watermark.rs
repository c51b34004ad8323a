//! Where a run starts, and that it misses no row.

use std::cell::Cell;

use super::*;

/// From the callback of a run, where nothing can be awaited.
fn flush_now(redis: &Redis) {
    let mut connection = redis::Client::open(redis.url()).unwrap().get_connection().unwrap();
    let () = redis::cmd("FLUSHALL").query(&mut connection).unwrap();
}

/// Drop a run after so many of its steps, as a kill would.
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
async fn a_second_run_offers_only_what_is_new_and_the_last_minute() {
    let (base, redis) = (base().await, Redis::start().await);
    seed(&base, 1_500).await;
    let backfill = backfill(&base, &redis.store());
    assert_eq!(run_backfill(&backfill).await.copied, 1_500);
    let again = run_backfill(&backfill).await;
    assert!(again.copied == 0 && again.already_completed < 100, "{again:?}");
    let (all, _) = backfill.run(BackfillStart::Oldest, None, |_| ()).await.unwrap();
    assert_eq!((all.copied, all.already_completed), (0, 1_500));
}

#[tokio::test]
async fn a_killed_run_repeats_no_more_than_a_minute() {
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

#[tokio::test]
async fn a_redis_that_was_emptied_since_the_last_run_gets_everything_again() {
    let (base, redis) = (base().await, Redis::start().await);
    seed(&base, 1_500).await;
    let backfill = backfill(&base, &redis.store());
    for _ in 0..2 {
        assert_eq!(run_backfill(&backfill).await.copied, 1_500);
        flush(&redis).await;
    }
}

#[tokio::test]
async fn a_redis_that_is_emptied_in_mid_run_gets_everything_again() {
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
    assert_eq!(records(&redis).await, 2_500 + 2 * PROBE_RECORDS, "the lost loss probe leaves its places");
}

#[tokio::test]
async fn a_run_that_is_killed_after_it_found_redis_empty_does_not_hide_that_from_the_next() {
    let (base, redis) = (base().await, Redis::start().await);
    seed(&base, 1_500).await;
    let store = redis.store();
    run_backfill(&backfill(&base, &store)).await;
    flush(&redis).await;
    // It can look at Redis, and can write nothing down.
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
async fn a_redis_that_loses_records_again_and_again_is_no_place_to_copy_to() {
    let (base, redis) = (base().await, Redis::start().await);
    seed(&base, 2_500).await;
    let ended = backfill(&base, &redis.store()).run(BackfillStart::Watermark, None, |_| flush_now(&redis)).await;
    let fault = ended.unwrap_err().to_string();
    assert!(fault.contains("noeviction"), "{fault}");
}

#[tokio::test]
async fn two_at_once_copy_everything_and_one_of_them_may_leave_it_to_the_other() {
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

/// A work that begins before others, and commits after the backfill of this user has passed them.
async fn late(base: &Base, user: &str) {
    let redis = Redis::start().await;
    let settings = with!(backfill_settings(), overlap = Duration::ZERO);
    let url = base.url().replace("app@", &format!("{user}@"));
    let backfill = Backfill::new(redis.store(), database(&url), settings);
    let slow = harness::postgres::connect(base.port, &base.name).await;
    slow.batch_execute("BEGIN; INSERT INTO idempotency_inbox VALUES ('payments', 'late', '', 1, 1, 'receipt')")
        .await
        .unwrap();
    // Further back than what may not show yet.
    tokio::time::sleep(2 * SECOND).await;
    seed(base, 1).await;
    assert_eq!(run_backfill(&backfill).await.copied, 1);
    slow.batch_execute("COMMIT").await.unwrap();
    let next = run_backfill(&backfill).await;
    assert_eq!((next.copied, next.already_completed), (1, 1));
}

#[tokio::test]
async fn a_row_that_appears_behind_later_ones_is_not_passed_over() {
    late(&base().await, "app").await;
}

#[tokio::test]
async fn nor_is_a_row_of_a_user_whose_transactions_do_not_show() {
    let base = base().await;
    let user = format!("backfill_{}", base.name);
    let rights = format!(
        "CREATE ROLE {user} LOGIN; GRANT SELECT ON idempotency_inbox TO {user}; \
         GRANT SELECT, INSERT, UPDATE ON idempotency_backfill TO {user}"
    );
    base.client.batch_execute(&rights).await.unwrap();
    late(&base, &user).await;
}
