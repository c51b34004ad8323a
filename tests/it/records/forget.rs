use idempotent_sqs::deadline::Deadline;
use idempotent_sqs::idempotency::{Delivery, Idempotency, Outcome, Policy};
use idempotent_sqs::message::Message;
use idempotent_sqs::record::{Fence, Kept, Key};
use idempotent_sqs::store::Store;
use redis::AsyncCommands;
use serde_json::json;

use super::{LONG, Tool, claim, claim_that_died};
use crate::support::redis::Redis;
use crate::support::soon;
use crate::support::work::{Do, Told};

#[tokio::test]
async fn what_is_forgotten_by_its_fence_runs_at_its_next_delivery() {
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
    let (code, answer) = tool.forget("pay_1", &first.fence.unwrap().to_string()).await;
    assert_eq!((code, &answer["outcome"]), (0, &json!("FORGOTTEN")));
    let again = deliver().await;
    assert!(matches!(again.outcome, Outcome::Done { .. }) && again.attempt == Some(1) && !again.recovery);
    assert!(again.fence > first.fence, "the fence grows over a record that was forgotten");
    assert_eq!(told.runs().len(), 2);
}

#[tokio::test]
async fn a_record_that_changed_since_it_was_seen_is_left_alone_and_named() {
    let redis = Redis::start().await;
    let tool = Tool::of(&redis);
    let store = tool.store();
    let died = claim_that_died(&store, "pay_1").await;
    let seen = tool.fence("pay_1").await;
    assert_eq!(seen, died.fence().to_string());
    // Between the look and the removal another attempt takes the key over, and does its work.
    let newer = claim(&store, "pay_1", LONG).await;
    store.complete(&newer, Kept::Inline(b"receipt")).await.unwrap();
    let before: Vec<u8> = redis.connection().await.get("payments:pay_1").await.unwrap();

    let (code, answer) = tool.forget("pay_1", &seen).await;
    assert_eq!((code, &answer["outcome"], &answer["fence"]), (1, &json!("CHANGED"), &json!(newer.fence().0)));
    let said = tool.ask(&["forget", "pay_1", "--fence", &seen]).await;
    assert_eq!(said.code, 1);
    assert!(said.text.contains(&format!("has fence {} by now", newer.fence())), "{}", said.text);
    let one_more = Fence(newer.fence().0 + 1).to_string();
    assert_eq!(tool.forget("pay_1", &one_more).await.1["outcome"], "CHANGED");
    let after: Vec<u8> = redis.connection().await.get("payments:pay_1").await.unwrap();
    assert_eq!(before, after);

    assert_eq!(tool.forget("pay_1", &tool.fence("pay_1").await).await.0, 0);
    let (code, answer) = tool.forget("pay_1", &newer.fence().to_string()).await;
    assert_eq!((code, &answer["outcome"]), (1, &json!("ABSENT")));
}

#[tokio::test]
async fn a_record_in_work_is_forgotten_only_when_told_so() {
    let redis = Redis::start().await;
    let tool = Tool::of(&redis);
    let store = tool.store();
    let held = claim(&store, "pay_1", LONG).await;
    let fence = held.fence().to_string();
    let (code, answer) = tool.forget("pay_1", &fence).await;
    assert_eq!((code, &answer["outcome"]), (1, &json!("HELD")));
    assert!((1..=60_000).contains(&answer["lease_remains_ms"].as_u64().unwrap()), "{answer}");
    let said = tool.ask(&["forget", "pay_1", "--fence", &fence]).await;
    assert!(said.code == 1 && said.text.contains("--even-in-work"), "{}", said.text);
    assert_eq!(tool.fence("pay_1").await, fence);

    assert_eq!(tool.ask(&["forget", "pay_1", "--fence", &fence, "--even-in-work"]).await.code, 0);
    assert_eq!(tool.ask(&["inspect", "pay_1"]).await.code, 1);
    // The owner heals its record, as it does one that was evicted.
    store.complete(&held, Kept::Nowhere).await.unwrap();
    assert_eq!(tool.fence("pay_1").await, fence);
    // Even so not under another fence.
    let (code, answer) = tool.json(&["forget", "pay_1", "--fence", "1", "--even-in-work"]).await;
    assert_eq!((code, &answer["outcome"]), (1, &json!("CHANGED")));
}

#[tokio::test]
async fn a_record_whose_owner_died_is_forgotten_without_more_words() {
    let redis = Redis::start().await;
    let tool = Tool::of(&redis);
    let died = claim_that_died(&tool.store(), "pay_1").await;
    assert_eq!(tool.forget("pay_1", &died.fence().to_string()).await.0, 0);
}
