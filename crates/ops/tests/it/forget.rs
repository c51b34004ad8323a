//! `forget`: removal of one record that has not changed since it was inspected.

use harness::redis::Redis;
use harness::soon;
use harness::work::{Do, Told};
use idempotent_sqs::idempotency::{
    Acquire, Deadline, Delivery, Failure, Fence, Idempotency, Key, Outcome, Policy, Store, StoredResult,
};
use idempotent_sqs::sqs::Message;
use idempotent_sqs::stores::redis::records::{EvenInWork, Forgotten, Inspected, Records, Seen};
use idempotent_sqs_testing::attempt;
use redis::AsyncCommands;
use serde_json::json;

use super::{CLEAN, LONG, PERMANENT, SHORT, Tool, UNCERTAIN, claim, claim_that_died};

#[tokio::test]
async fn completed_work_that_is_forgotten_runs_at_its_next_delivery() {
    let redis = Redis::start().await;
    let tool = Tool::of(&redis);
    let idempotency = Idempotency::new(tool.store(), Policy::default());
    let told = Told::to(Do::Return(b"receipt"));
    let deliver = async || {
        let delivery = Delivery::new(Key::new("pay_1").unwrap()).deadline(Deadline::within(LONG));
        soon(idempotency.run(&delivery, &told, &Message::default())).await.unwrap()
    };
    let first = deliver().await;
    assert!(matches!(deliver().await.outcome, Outcome::Duplicate { .. }));
    let (code, answer) = tool.forget("pay_1", "completed", &first.fence.unwrap().to_string()).await;
    assert_eq!((code, &answer["outcome"]), (0, &json!("FORGOTTEN")));
    let again = deliver().await;
    assert!(matches!(again.outcome, Outcome::Done { .. }) && again.attempt == Some(1) && !again.recovery);
    assert!(again.fence > first.fence, "the fence grows over a record that was forgotten");
    assert_eq!(told.runs().len(), 2);
}

#[tokio::test]
async fn a_record_that_another_attempt_has_taken_over_since_it_was_seen_is_left_alone_and_named() {
    let redis = Redis::start().await;
    let tool = Tool::of(&redis);
    let store = tool.store();
    let died = claim_that_died(&store, "pay_1").await;
    let seen = tool.fence("pay_1").await;
    assert_eq!(seen, died.fence().to_string());
    // Between the look and the removal another attempt takes the key over, and does its work.
    let newer = claim(&store, "pay_1", LONG).await;
    store.complete(&newer, StoredResult::Inline(b"receipt")).await.unwrap();
    let before: Vec<u8> = redis.connection().await.get("payments:pay_1").await.unwrap();

    let (code, answer) = tool.forget("pay_1", "processing", &seen).await;
    assert_eq!((code, &answer["outcome"]), (1, &json!("CHANGED")));
    assert_eq!((&answer["state"], &answer["fence"]), (&json!("COMPLETED"), &json!(newer.fence().0)));
    let said = tool.ask(&["forget", "pay_1", "--state", "processing", "--fence", &seen]).await;
    assert_eq!(said.code, 1);
    let now_and_then =
        format!("is completed with fence {} by now, and not processing with fence {seen};", newer.fence());
    assert!(said.text.contains(&now_and_then), "{}", said.text);
    // The state alone is not enough either.
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
async fn a_record_in_work_is_forgotten_only_when_told_so() {
    let redis = Redis::start().await;
    let tool = Tool::of(&redis);
    let store = tool.store();
    let held = claim(&store, "pay_1", LONG).await;
    let fence = held.fence().to_string();
    let (code, answer) = tool.forget("pay_1", "processing", &fence).await;
    assert_eq!((code, &answer["outcome"]), (1, &json!("HELD")));
    assert!((1..=60_000).contains(&answer["lease_remains_ms"].as_u64().unwrap()), "{answer}");
    let said = tool.ask(&["forget", "pay_1", "--state", "processing", "--fence", &fence]).await;
    assert!(said.code == 1 && said.text.contains("--even-in-work"), "{}", said.text);
    assert_eq!(tool.fence("pay_1").await, fence);

    let even_in_work = ["forget", "pay_1", "--state", "processing", "--fence", &fence, "--even-in-work"];
    assert_eq!(tool.ask(&even_in_work).await.code, 0);
    assert_eq!(tool.ask(&["inspect", "pay_1"]).await.code, 1);
    // The owner heals its record, as it does one that was evicted.
    store.complete(&held, StoredResult::NotKept).await.unwrap();
    assert_eq!(tool.fence("pay_1").await, fence);
    // It is completed by now, and stays.
    let (code, answer) = tool.json(&even_in_work).await;
    assert_eq!((code, &answer["outcome"], &answer["state"]), (1, &json!("CHANGED"), &json!("COMPLETED")));
}

#[tokio::test]
async fn a_record_whose_owner_died_is_forgotten_without_more_words() {
    let redis = Redis::start().await;
    let tool = Tool::of(&redis);
    let died = claim_that_died(&tool.store(), "pay_1").await;
    assert_eq!(tool.forget("pay_1", "processing", &died.fence().to_string()).await.0, 0);
}

#[tokio::test]
async fn a_failure_that_a_late_owner_has_completed_since_it_was_seen_is_left_alone() {
    let redis = Redis::start().await;
    let tool = Tool::of(&redis);
    let store = tool.store();
    let late = claim_that_died(&store, "pay_1").await;
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
async fn work_that_its_owner_has_completed_after_its_lease_is_left_alone() {
    let redis = Redis::start().await;
    let tool = Tool::of(&redis);
    let store = tool.store();
    let late = claim_that_died(&store, "pay_1").await;
    let seen = tool.fence("pay_1").await;
    store.complete(&late, StoredResult::Inline(b"receipt")).await.unwrap();
    let (code, answer) = tool.forget("pay_1", "processing", &seen).await;
    assert_eq!((code, &answer["outcome"], &answer["state"]), (1, &json!("CHANGED"), &json!("COMPLETED")));
    let again = store.acquire(attempt("pay_1")).await.unwrap();
    assert!(matches!(again, Acquire::Duplicate { .. }), "{answer}, and then: {again:?}");
}

#[tokio::test]
async fn a_failure_that_was_marked_uncertain_since_it_was_seen_is_left_alone() {
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
async fn each_state_and_failure_is_forgotten_by_its_own_name_only() {
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
        let forget = async |state| {
            tool.json(&["forget", "pay_1", "--state", state, "--fence", &fence, "--even-in-work"]).await.1
        };
        for other in states.into_iter().filter(|other| *other != state) {
            assert_eq!(forget(other).await["outcome"], "CHANGED", "{state} by {other}");
        }
        assert_eq!(forget(state).await["outcome"], "FORGOTTEN", "{state}");
    }
}

#[tokio::test]
async fn a_program_forgets_what_it_has_met_in_any_state() {
    let redis = Redis::start().await;
    let tool = Tool::of(&redis);
    let store = tool.store();
    // The marks of a recovery, and of a result that is in an object, are not part of what was seen.
    claim_that_died(&store, "recovery").await;
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
        let later = records.forget(&key, Seen { fence, ..view.seen() }, EvenInWork::Yes).await.unwrap();
        assert_eq!(later, Forgotten::Changed { now: view.seen() }, "{key}");
        assert_eq!(records.forget(&key, view.seen(), EvenInWork::Yes).await.unwrap(), Forgotten::Removed, "{key}");
    }
}
