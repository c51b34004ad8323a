//! `forget`: removal of one record that has not changed since it was inspected.

use harness::redis::Redis;
use harness::soon;
use harness::work::{Action, ScriptedWork};
use idempotent_sqs::idempotency::{
    Acquire, Deadline, Delivery, Failure, Fence, Idempotency, Key, Outcome, Policy, Store, StoredResult,
};
use idempotent_sqs::sqs::Message;
use idempotent_sqs::stores::redis::records::{ExpectedRecord, Force, Forgotten, Inspected, Records};
use idempotent_sqs_testing::attempt;
use redis::AsyncCommands;
use serde_json::json;

use super::{CLEAN, DIGEST, LONG, PERMANENT, SHORT, Tool, UNCERTAIN, claim, expired_claim};

#[tokio::test]
async fn completed_work_runs_again_after_its_record_is_forgotten() {
    let redis = Redis::start().await;
    let tool = Tool::of(&redis);
    let idempotency = Idempotency::new(tool.store(), Policy::default());
    let work = ScriptedWork::always(Action::Return(b"receipt"));
    let deliver = async || {
        let delivery = Delivery::new(Key::new("pay_1").unwrap()).deadline(Deadline::within(LONG));
        soon(idempotency.run(&delivery, &work, &Message::default())).await.unwrap()
    };
    let first = deliver().await;
    assert!(matches!(deliver().await.outcome, Outcome::Duplicate { .. }));
    let (code, answer) = tool.forget("pay_1", "completed", &first.fence.unwrap().to_string()).await;
    assert_eq!((code, &answer["outcome"]), (0, &json!("FORGOTTEN")));
    let again = deliver().await;
    assert!(matches!(again.outcome, Outcome::Done { .. }) && again.attempts == Some(1) && !again.recovery);
    assert!(again.fence > first.fence, "the fence grows although the record was forgotten");
    assert_eq!(work.runs().len(), 2);
}

#[tokio::test]
async fn a_record_that_another_attempt_has_taken_over_is_kept_and_reported() {
    let redis = Redis::start().await;
    let tool = Tool::of(&redis);
    let store = tool.store();
    let died = expired_claim(&store, "pay_1").await;
    let seen = tool.fence("pay_1").await;
    assert_eq!(seen, died.fence().to_string());
    // After the inspection another attempt takes the key over and completes its work.
    let newer = claim(&store, "pay_1", LONG).await;
    store.complete(&newer, StoredResult::Inline(b"receipt")).await.unwrap();
    let before: Vec<u8> = redis.connection().await.get("payments:pay_1").await.unwrap();

    let (code, answer) = tool.forget("pay_1", "processing", &seen).await;
    assert_eq!((code, &answer["outcome"]), (1, &json!("CHANGED")));
    assert_eq!((&answer["state"], &answer["fence"]), (&json!("COMPLETED"), &json!(newer.fence().0)));
    let output = tool.run(&["forget", "pay_1", "--state", "processing", "--fence", &seen]).await;
    assert_eq!(output.code, 1);
    let states = format!("is now completed with fence {}, not processing with fence {seen};", newer.fence());
    assert!(output.stdout.contains(&states), "{}", output.stdout);
    // The state must match, but is not enough without the fence.
    let one_more = Fence(newer.fence().0 + 1).to_string();
    for other in [&seen, &one_more] {
        assert_eq!(tool.forget("pay_1", "completed", other).await.1["outcome"], "CHANGED");
    }
    let after: Vec<u8> = redis.connection().await.get("payments:pay_1").await.unwrap();
    assert_eq!(before, after);

    assert_eq!(tool.forget("pay_1", "completed", &tool.fence("pay_1").await).await.0, 0);
    let (code, answer) = tool.forget("pay_1", "completed", &newer.fence().to_string()).await;
    assert_eq!((code, &answer["outcome"]), (1, &json!("ABSENT")));
}

#[tokio::test]
async fn a_record_with_a_lease_is_forgotten_only_by_force() {
    let redis = Redis::start().await;
    let tool = Tool::of(&redis);
    let store = tool.store();
    let held = claim(&store, "pay_1", LONG).await;
    let fence = held.fence().to_string();
    let (code, answer) = tool.forget("pay_1", "processing", &fence).await;
    assert_eq!((code, &answer["outcome"]), (1, &json!("HELD")));
    assert!((1..=60_000).contains(&answer["lease_remains_ms"].as_u64().unwrap()), "{answer}");
    let output = tool.run(&["forget", "pay_1", "--state", "processing", "--fence", &fence]).await;
    assert!(output.code == 1 && output.stdout.contains("--force"), "{}", output.stdout);
    assert_eq!(tool.fence("pay_1").await, fence);

    let forced = ["forget", "pay_1", "--state", "processing", "--fence", &fence, "--force"];
    assert_eq!(tool.run(&forced).await.code, 0);
    assert_eq!(tool.run(&["inspect", "pay_1"]).await.code, 1);
    // The owner writes its record again, as after an eviction.
    store.complete(&held, StoredResult::NotKept).await.unwrap();
    assert_eq!(tool.fence("pay_1").await, fence);
    // It is completed now, and is kept.
    let (code, answer) = tool.json(&forced).await;
    assert_eq!((code, &answer["outcome"], &answer["state"]), (1, &json!("CHANGED"), &json!("COMPLETED")));
}

#[tokio::test]
async fn a_record_with_an_ended_lease_is_forgotten_without_force() {
    let redis = Redis::start().await;
    let tool = Tool::of(&redis);
    let died = expired_claim(&tool.store(), "pay_1").await;
    assert_eq!(tool.forget("pay_1", "processing", &died.fence().to_string()).await.0, 0);
}

#[tokio::test]
async fn a_failure_that_a_late_owner_has_completed_is_kept() {
    let redis = Redis::start().await;
    let tool = Tool::of(&redis);
    let store = tool.store();
    let late = expired_claim(&store, "pay_1").await;
    let owner = claim(&store, "pay_1", LONG).await;
    store.fail(&owner, CLEAN).await.unwrap();
    let seen = tool.inspect("pay_1").await;
    assert_eq!(seen["state"], "FAILED");
    store.complete(&late, StoredResult::Inline(b"receipt")).await.unwrap();
    assert_eq!(tool.inspect("pay_1").await["fence"], seen["fence"]);
    let (code, answer) = tool.forget("pay_1", "failed-clean", &seen["fence"].to_string()).await;
    assert_eq!((code, &answer["outcome"], &answer["state"]), (1, &json!("CHANGED"), &json!("COMPLETED")));
    let again = store.acquire(attempt("pay_1")).await.unwrap();
    assert!(matches!(again, Acquire::Duplicate { .. }), "{answer}, and then: {again:?}");
}

#[tokio::test]
async fn a_record_that_its_owner_has_completed_after_its_lease_is_kept() {
    let redis = Redis::start().await;
    let tool = Tool::of(&redis);
    let store = tool.store();
    let late = expired_claim(&store, "pay_1").await;
    let seen = tool.fence("pay_1").await;
    store.complete(&late, StoredResult::Inline(b"receipt")).await.unwrap();
    let (code, answer) = tool.forget("pay_1", "processing", &seen).await;
    assert_eq!((code, &answer["outcome"], &answer["state"]), (1, &json!("CHANGED"), &json!("COMPLETED")));
    let again = store.acquire(attempt("pay_1")).await.unwrap();
    assert!(matches!(again, Acquire::Duplicate { .. }), "{answer}, and then: {again:?}");
}

#[tokio::test]
async fn a_failure_that_was_marked_uncertain_is_kept() {
    let redis = Redis::start().await;
    let tool = Tool::of(&redis);
    let store = tool.store();
    let owner = claim(&store, "pay_1", SHORT).await;
    // The record is lost, and another attempt fails before its first owner does.
    let () = redis.connection().await.del("payments:pay_1").await.unwrap();
    let other = claim(&store, "pay_1", SHORT).await;
    store.fail(&other, CLEAN).await.unwrap();
    let seen = tool.inspect("pay_1").await;
    assert_eq!(seen["state"], "FAILED");
    store.fail(&owner, UNCERTAIN).await.unwrap();
    let (code, answer) = tool.forget("pay_1", "failed-clean", &seen["fence"].to_string()).await;
    assert_eq!((code, &answer["outcome"]), (1, &json!("CHANGED")));
    assert_eq!((&answer["uncertain"], &answer["permanent"]), (&json!(true), &json!(false)));
    let again = store.acquire(attempt("pay_1")).await.unwrap();
    assert!(matches!(again, Acquire::AcquiredStale(_)), "{answer}, and then: {again:?}");
}

#[tokio::test]
async fn each_state_and_failure_is_forgotten_only_by_its_own_name() {
    let redis = Redis::start().await;
    let tool = Tool::of(&redis);
    let store = tool.store();
    let states = [
        "processing",
        "completed",
        "failed-clean",
        "failed-uncertain",
        "failed-permanent",
        "failed-uncertain-permanent",
    ];
    for state in states {
        let claim = claim(&store, "pay_1", LONG).await;
        match state {
            "processing" => (),
            "completed" => drop(store.complete(&claim, StoredResult::NotKept).await.unwrap()),
            failed => {
                let (uncertain, permanent) = (failed.contains("uncertain"), failed.contains("permanent"));
                store.fail(&claim, Failure { uncertain, permanent }).await.unwrap();
            }
        }
        let fence = claim.fence().to_string();
        let forget =
            async |state| tool.json(&["forget", "pay_1", "--state", state, "--fence", &fence, "--force"]).await.1;
        for other in states.into_iter().filter(|other| *other != state) {
            assert_eq!(forget(other).await["outcome"], "CHANGED", "{state} by {other}");
        }
        assert_eq!(forget(state).await["outcome"], "FORGOTTEN", "{state}");
    }
}

#[tokio::test]
async fn the_library_forgets_records_in_any_state() {
    let redis = Redis::start().await;
    let tool = Tool::of(&redis);
    let store = tool.store();
    // The marks of a recovery and of a result in an object are not compared.
    expired_claim(&store, "recovery").await;
    claim(&store, "recovery", SHORT).await;
    let claim_of_object = claim(&store, "object", LONG).await;
    store.complete(&claim_of_object, StoredResult::Object(b"s3://results/kept/7")).await.unwrap();
    for (key, failure) in [("uncertain", UNCERTAIN), ("permanent", PERMANENT)] {
        store.fail(&claim(&store, key, LONG).await, failure).await.unwrap();
    }
    let records = Records::new(&tool.redis_settings()).unwrap();
    for key in ["recovery", "object", "uncertain", "permanent"] {
        let key = Key::new(key).unwrap();
        let Inspected::Record { view, .. } = records.inspect(&key).await.unwrap() else { panic!("no record of {key}") };
        let fence = Fence(view.fence.0 + 1);
        let later = records.forget(&key, ExpectedRecord { fence, ..view.seen() }, Force::Yes).await.unwrap();
        assert_eq!(later, Forgotten::Changed { now: view.seen() }, "{key}");
        assert_eq!(records.forget(&key, view.seen(), Force::Yes).await.unwrap(), Forgotten::Removed, "{key}");
    }
}

#[tokio::test]
async fn a_record_is_removed_by_the_text_of_a_producers_key_and_by_its_stored_form() {
    let redis = Redis::start().await;
    let tool = Tool::of(&redis);
    let store = tool.store();
    for by_stored_form in [false, true] {
        store.fail(&claim(&store, DIGEST, LONG).await, CLEAN).await.unwrap();
        let (_, failed) = tool.json(&["failed"]).await;
        let listed = failed["failed"][0]["key"].as_str().unwrap();
        assert_ne!(listed, DIGEST);
        let fence = failed["failed"][0]["fence"].to_string();
        let key = if by_stored_form { listed } else { DIGEST };
        let (code, answer) = tool.forget(key, "failed-clean", &fence).await;
        assert_eq!((code, &answer["outcome"]), (0, &json!("FORGOTTEN")), "{key}");
        assert_eq!(tool.run(&["inspect", DIGEST]).await.code, 1);
    }
    assert_eq!(tool.forget(DIGEST, "failed-clean", "1").await.1["outcome"], "ABSENT");
}
