//! Deadlines of every length.

use std::time::{Duration, UNIX_EPOCH};

use idempotent_sqs::idempotency::{Deadline, Delivery, Idempotency, Key, Outcome, Policy};
use idempotent_sqs::stores::MemoryStore;
use tokio::time::Instant;

use harness::work::{Action, ScriptedWork};

const TEN_YEARS: Duration = Duration::from_hours(10 * 365 * 24);

/// Durations of every size, to the longest.
fn durations() -> impl Iterator<Item = Duration> {
    let sizes = (0..u64::BITS).flat_map(|bit| [Duration::from_nanos(1 << bit), Duration::from_secs(1 << bit)]);
    sizes.chain([Duration::ZERO, Duration::from_secs(u64::MAX), Duration::MAX])
}

#[test]
fn work_settling_and_the_response_end_before_the_invocation() {
    for (remaining_ms, reserve_ms) in [(900_000, 1000), (4000, 1000), (2400, 600), (0, 0)] {
        let Deadline { work, settle, answer, end, .. } = Deadline::within(Duration::from_millis(remaining_ms));
        let reserve = Duration::from_millis(reserve_ms);
        assert_eq!([end - work, end - settle, end - answer], [reserve, reserve / 3, reserve / 8], "{remaining_ms} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn every_duration_makes_a_deadline_with_its_parts_in_order() {
    for remaining in durations() {
        let now = Instant::now();
        let Deadline { work, settle, answer, end, .. } = Deadline::within(remaining);
        assert!(now <= work && work <= settle && settle <= answer && answer <= end, "{remaining:?}");
        assert_eq!(end - now, remaining.min(TEN_YEARS), "{remaining:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_wall_clock_time_makes_a_deadline() {
    for since_1970 in durations() {
        let Some(end) = UNIX_EPOCH.checked_add(since_1970) else { continue };
        assert!(Deadline::at(end).end <= Instant::now() + TEN_YEARS, "{since_1970:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_end_within_24_hours_of_1970_is_the_remaining_time() {
    let (day, millisecond) = (Duration::from_hours(24), Duration::from_millis(1));
    for (since_1970, remaining) in [
        (Duration::from_mins(10), Duration::from_mins(10)),
        (day - millisecond, day - millisecond),
        (day, Duration::ZERO),
    ] {
        assert_eq!(Deadline::at(UNIX_EPOCH + since_1970).end - Instant::now(), remaining, "{since_1970:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_work_of_many_hours_runs_and_is_recorded() {
    let (store, told) = (MemoryStore::default(), ScriptedWork::always(Action::Sleep(Duration::from_hours(20))));
    let idempotency = Idempotency::new(&store, Policy::default());
    let delivery = || Delivery::new(Key::new("pay_1").unwrap()).deadline(Deadline::within(Duration::MAX));
    let first = idempotency.run(&delivery(), &told, "input").await.unwrap();
    assert!(matches!(first.outcome, Outcome::Done { .. }), "{first:?}");
    let again = idempotency.run(&delivery(), &told, "input").await.unwrap();
    assert!(matches!(again.outcome, Outcome::Duplicate { .. }), "{again:?}");
}
