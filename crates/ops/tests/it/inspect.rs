//! `inspect`: what it shows of each kind of record.

use harness::redis::Redis;
use harness::with;
use idempotent_sqs::idempotency::{Failure, Fingerprint, Store, StoredResult};
use idempotent_sqs_testing::attempt;
use redis::AsyncCommands;
use serde_json::{Value, json};

use super::{CLEAN, DIGEST, LONG, Tool, claim, expired_claim};

#[tokio::test]
async fn a_processing_record_shows_its_owner_and_its_lease() {
    let redis = Redis::start().await;
    let tool = Tool::of(&redis);
    let claim = claim(&tool.store(), "pay_1", LONG).await;
    let record = tool.inspect("pay_1").await;
    assert_eq!(record["key"], "pay_1");
    assert_eq!(record["redis_key"], "payments:pay_1");
    assert_eq!(record["state"], "PROCESSING");
    assert_eq!(record["recovery"], false);
    assert_eq!(record["fence"], claim.fence().0);
    assert_eq!(record["attempts"], 1);
    assert_eq!(record["owner"], claim.request().owner.to_string());
    assert_eq!(record["fingerprint"], Fingerprint::of(b"payload").to_string());
    assert_eq!(record["result"], Value::Null);
    let (lease, age) = (record["lease_remains_ms"].as_u64().unwrap(), record["age_ms"].as_u64().unwrap());
    assert!((59_900..=60_001).contains(&(lease + age)), "the lease is a minute from the claim: {lease} and {age}");
    let expires = record["expires_in_ms"].as_u64().unwrap();
    assert!((599_000..=600_001).contains(&(expires + age)), "{expires} and {age}");

    let output = tool.run(&["inspect", "pay_1"]).await;
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    assert_eq!(output.row("fence"), claim.fence().to_string());
    assert!(output.row("lease").starts_with("ends in ") && output.row("lease").ends_with(" s"), "{}", output.stdout);
    assert!(output.row("expires").starts_with("in 9 min "), "{}", output.stdout);
    let gaps: Vec<_> = output.stdout.lines().map(|line| line[..13].len() - line[..13].trim_end().len()).collect();
    assert!(gaps.iter().all(|gap| *gap >= 2), "the values are in one column: {}", output.stdout);
}

#[tokio::test]
async fn an_ended_lease_and_a_recovery_are_shown() {
    let redis = Redis::start().await;
    let tool = Tool::of(&redis);
    let store = tool.store();
    expired_claim(&store, "pay_1").await;
    let record = tool.inspect("pay_1").await;
    assert_eq!((&record["state"], &record["lease_remains_ms"]), (&json!("PROCESSING"), &json!(0)));
    let output = tool.run(&["inspect", "pay_1"]).await;
    assert!(output.row("lease").starts_with("ended ") && output.row("lease").ends_with(" ago"), "{}", output.stdout);

    claim(&store, "pay_1", LONG).await;
    let record = tool.inspect("pay_1").await;
    assert_eq!((&record["recovery"], &record["attempts"]), (&json!(true), &json!(2)));
}

#[tokio::test]
async fn a_completed_record_shows_its_result_its_location_or_that_it_was_not_kept() {
    let redis = Redis::start().await;
    let tool = Tool::of(&redis);
    let store = tool.store();
    let location = "s3://results/kept/7";
    let cases: [(&str, StoredResult<&[u8]>, Value, &str); 6] = [
        (
            "text",
            StoredResult::Inline("€ 12.50\n".as_bytes()),
            json!({ "bytes": 10, "text": "€ 12.50\n" }),
            "€ 12.50\\n (10 bytes)",
        ),
        ("bytes", StoredResult::Inline(&[0xff, 0]), json!({ "bytes": 2, "base64": "/wA=" }), "/wA= (2 bytes, base64)"),
        (
            "escape",
            StoredResult::Inline(b"\x1b[2J"),
            json!({ "bytes": 4, "base64": "G1sySg==" }),
            "G1sySg== (4 bytes, base64)",
        ),
        ("empty", StoredResult::Inline(b""), json!({ "bytes": 0, "text": "" }), "empty"),
        ("object", StoredResult::Object(location.as_bytes()), json!({ "object": location }), "in s3://results/kept/7"),
        ("none", StoredResult::NotKept, Value::Null, "not kept"),
    ];
    for (key, result, document, row) in cases {
        store.complete(&claim(&store, key, LONG).await, result).await.unwrap();
        let record = tool.inspect(key).await;
        assert_eq!((&record["state"], &record["result"]), (&json!("COMPLETED"), &document));
        assert_eq!(record["result_kept"], result != StoredResult::NotKept);
        assert_eq!(tool.run(&["inspect", key]).await.row("result"), row);
    }
}

#[tokio::test]
async fn a_failed_record_shows_its_failure() {
    let redis = Redis::start().await;
    let tool = Tool::of(&redis);
    let store = tool.store();
    let cases = [(false, false, "clean"), (true, false, "uncertain"), (false, true, "permanent")];
    for (uncertain, permanent, row) in [&cases[..], &[(true, true, "uncertain, permanent")]].concat() {
        let failure = Failure { uncertain, permanent };
        store.fail(&claim(&store, row, LONG).await, failure).await.unwrap();
        let record = tool.inspect(row).await;
        assert_eq!(record["state"], "FAILED");
        assert_eq!((&record["uncertain"], &record["permanent"]), (&json!(uncertain), &json!(permanent)));
        assert_eq!(tool.run(&["inspect", row]).await.row("failure"), row);
    }
}

#[tokio::test]
async fn a_record_that_never_expires_and_has_no_fingerprint_is_shown_as_such() {
    let redis = Redis::start().await;
    let tool = Tool::of(&redis);
    let attempt = with!(attempt("pay_1"), fingerprint = Fingerprint::NONE, lease = LONG);
    tool.store().acquire(attempt).await.unwrap();
    let () = redis.connection().await.persist("payments:pay_1").await.unwrap();
    let record = tool.inspect("pay_1").await;
    assert_eq!((&record["expires_in_ms"], &record["fingerprint"]), (&Value::Null, &Value::Null));
    let output = tool.run(&["inspect", "pay_1"]).await;
    assert_eq!((output.row("expires"), output.row("fingerprint")), ("never", "none"));
}

#[tokio::test]
async fn a_long_key_is_found_by_its_text_and_by_its_hash() {
    let redis = Redis::start().await;
    let tool = Tool::of(&redis);
    let key = "k".repeat(201);
    claim(&tool.store(), &key, LONG).await;
    let record = tool.inspect(&key).await;
    let redis_key = record["redis_key"].as_str().unwrap();
    assert!(redis_key.starts_with("payments:sha256:"), "{redis_key}");
    assert_eq!(tool.inspect(redis_key.strip_prefix("payments:").unwrap()).await["fence"], record["fence"]);
}

/// As the function does for a message whose attribute `Idempotency-Key` is this text. It logs the text.
#[tokio::test]
async fn a_producers_key_that_looks_like_a_stored_form_is_found_by_its_text_and_by_its_stored_form() {
    let redis = Redis::start().await;
    let tool = Tool::of(&redis);
    let store = tool.store();
    for key in [DIGEST, "sha256:", "dead-letter:42"] {
        let claim = claim(&store, key, LONG).await;
        let record = tool.inspect(key).await;
        assert_eq!((&record["key"], &record["fence"]), (&json!(key), &json!(claim.fence().0)));
        let redis_key = record["redis_key"].as_str().unwrap();
        assert!(redis_key.starts_with("payments:sha256:") && !redis_key.ends_with(key), "{redis_key}");
        let stored = redis_key.strip_prefix("payments:").unwrap();
        assert_eq!(tool.inspect(stored).await["fence"], record["fence"]);
        assert_eq!(tool.run(&["inspect", key, "--stored"]).await.code, 1, "{key} is not a stored form");
    }
}

#[tokio::test]
async fn the_record_of_a_producers_key_is_shown_unless_the_stored_form_is_asked_for() {
    let redis = Redis::start().await;
    let tool = Tool::of(&redis);
    let store = tool.store();
    let long = claim(&store, &"k".repeat(201), LONG).await;
    let (_, record) = tool.json(&["inspect", &"k".repeat(201)]).await;
    let stored = record["redis_key"].as_str().unwrap().strip_prefix("payments:").unwrap();
    // A producer uses the digest of the long key as another key.
    let digest = claim(&store, stored, LONG).await;
    assert_eq!(tool.inspect(stored).await["fence"], json!(digest.fence().0));
    let (code, record) = tool.json(&["inspect", stored, "--stored"]).await;
    assert_eq!((code, &record["fence"]), (0, &json!(long.fence().0)));
}

/// The key of the record that the function writes before it sends a dead letter.
#[tokio::test]
async fn the_record_of_a_letter_is_found_by_its_key() {
    let redis = Redis::start().await;
    let tool = Tool::of(&redis);
    let () = redis.connection().await.set("payments:dead-letter:42", "in use").await.unwrap();
    let (code, record) = tool.json(&["inspect", "dead-letter:42"]).await;
    assert_eq!((code, &record["redis_key"]), (1, &json!("payments:dead-letter:42")));
    assert_eq!(record["state"], "NOT_A_RECORD");
}

/// One in 64 keys in base64url begins with a hyphen.
#[tokio::test]
async fn a_key_that_begins_with_a_hyphen_is_a_key() {
    let redis = Redis::start().await;
    let tool = Tool::of(&redis);
    let store = tool.store();
    for key in ["-7f3a", "-", "--7f3a", "-stored"] {
        claim(&store, key, LONG).await;
        assert_eq!(tool.inspect(key).await["key"], key);
    }
    // Those that begin as an option follow `--`.
    for key in ["-h3k", "-V3k", "--json", "--help"] {
        claim(&store, key, LONG).await;
        assert_eq!(tool.run(&["inspect", "--", key]).await.row("key"), key);
    }
}

#[tokio::test]
async fn a_missing_record_is_reported_with_the_namespace() {
    let redis = Redis::start().await;
    let tool = Tool::of(&redis);
    claim(&tool.store(), "pay_1", LONG).await;
    let output = tool.run(&["inspect", "pay_1", "--namespace", "refunds"]).await;
    assert_eq!(output.code, 1);
    assert!(output.stdout.contains("no record of pay_1 in the namespace refunds"), "{}", output.stdout);
    assert!(output.stdout.contains("--namespace"), "{}", output.stdout);
    let (code, record) = tool.json(&["inspect", "pay_2"]).await;
    assert_eq!((code, &record["state"]), (1, &json!("ABSENT")));
    let by_name = Tool::of(&redis).with("IDEMPOTENCY_NAMESPACE", "").with("AWS_LAMBDA_FUNCTION_NAME", "payments");
    assert_eq!(by_name.inspect("pay_1").await["redis_key"], "payments:pay_1");
}

#[tokio::test]
async fn a_key_cannot_control_the_terminal() {
    let redis = Redis::start().await;
    let tool = Tool::of(&redis);
    let store = tool.store();
    let key = "pay\x1b[2J\n\u{202e}_\"1\"";
    store.fail(&claim(&store, key, LONG).await, CLEAN).await.unwrap();
    for command in [["inspect", key].as_slice(), &["failed"]] {
        let output = tool.run(command).await;
        assert!(output.stdout.contains(r#"pay\u{1b}[2J\n\u{202e}_"1""#), "{}", output.stdout);
        assert!(!output.stdout.contains('\x1b') && !output.stdout.contains('\u{202e}'), "{}", output.stdout);
    }
    assert_eq!(tool.inspect(key).await["key"], key);
}
