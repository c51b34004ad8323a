//! Each guard of the scripts is removed once, on a real Redis, and the checker finds it.

use std::time::Duration;

use harness::front::Front;
use harness::redis::Redis;
use history::guards::{self, ACQUIRE, Guard, NEEDS_CLOCK, named, without};
use history::{Allowances, History, Report, Verdict, replay, verdict};
use record_model as model;

use crate::contention::{contend, with_other_values};

/// The script with the guard whose name begins with `TORTURE_WITHOUT`, and without it. A torture without a guard must
/// fail.
pub(crate) fn removed() -> Option<(&'static str, String)> {
    let name = std::env::var("TORTURE_WITHOUT").ok()?;
    let guard = named(&name).expect("a guard has this name");
    Some((guard.1, without(guard, guard.1)))
}

/// How many seeds are tried for a guard. Of the rarest, one in thirty finds it.
const SEEDS: u64 = 200;

/// The history of a run in which the server runs `other` instead of `script`.
async fn contended(seed: u64, server: &Redis, script: &str, other: &str) -> History {
    let front = front(server, script, other).await;
    let directory = tempfile::tempdir().unwrap();
    contend(seed, &url(&front), directory.path(), Duration::from_millis(800)).await;
    History::read(directory.path()).unwrap()
}

/// Makes the server run `other` instead of `script`.
async fn front(server: &Redis, script: &str, other: &str) -> Front {
    let front = Front::to(server.port()).await;
    front.replace_script(script, other);
    front
}

fn url(front: &Front) -> String {
    format!("redis://127.0.0.1:{}", front.port)
}

/// Runs without one of these guards, until the checker finds it.
async fn are_found(guards: impl Iterator<Item = &Guard>) {
    let server = Redis::start().await;
    let mut missed = Vec::new();
    for guard in guards {
        let (what, script, code, _) = guard;
        let other = without(guard, script);
        assert_ne!(*script, other, "{what}: the script has no {code}");
        let front = front(&server, script, &other).await;
        if let Some(wrong) = with_other_values(&url(&front), server.connection().await).await.first() {
            println!("{what:<64} {wrong}");
            continue;
        }
        let mut found = None;
        for seed in 1..=SEEDS {
            let report =
                Report::of_calls(&contended(seed, &server, script, &other).await, Allowances::REAL.without_repeats());
            if report.faults().next().is_some() {
                found = Some((seed, report));
                break;
            }
        }
        let Some((seed, report)) = found else {
            missed.push(what);
            continue;
        };
        let Report { keys, not_linearizable, lost_writes, not_in_model, .. } = &report;
        let counts = [not_linearizable.len(), lost_writes.len(), not_in_model.len()];
        println!("{what:<64} seed {seed}, of {keys} keys: {counts:>3?}");
    }
    assert!(missed.is_empty(), "not found: {missed:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_guard_of_the_scripts_a_history_is_wrong() {
    are_found(guards::all().filter(|(what, ..)| what.ends_with(": only the owner"))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a second for each guard"]
async fn without_each_guard_of_the_scripts_a_history_is_wrong() {
    are_found(guards::all().filter(|(what, ..)| *what != NEEDS_CLOCK)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_without_a_guard_does_not_allow_the_steps_of_a_history() {
    let server = Redis::start().await;
    let mut guards = vec![
        model::Guard::OwnerInComplete,
        model::Guard::OwnerInFail,
        model::Guard::OwnerInRelease,
        model::Guard::FenceFromClock,
        model::Guard::RestoreInComplete,
        model::Guard::RestoreInFail,
        model::Guard::Fingerprint,
        model::Guard::FingerprintInComplete,
        model::Guard::UncertaintyInRelease,
        model::Guard::UncountedInRelease,
        model::Guard::Lease,
        model::Guard::LeaseEnds,
        model::Guard::SameOwner,
        model::Guard::SettledOwner,
        model::Guard::CompletedStays,
        model::Guard::Permanent,
        model::Guard::TakeoverIsRecovery,
    ];
    for seed in 1..=SEEDS {
        for operations in contended(seed, &server, ACQUIRE, ACQUIRE).await.keys.values() {
            let order = match verdict(operations, Allowances::REAL.without_repeats()) {
                Verdict::Linearizable { order, .. } => order,
                other => panic!("{other:?}"),
            };
            assert!(replay(operations, &order, None).is_ok());
            guards.retain(|guard| replay(operations, &order, Some(*guard)).is_ok());
        }
        if guards.is_empty() {
            return;
        }
    }
    panic!("each step is one of the model without {guards:?}");
}
