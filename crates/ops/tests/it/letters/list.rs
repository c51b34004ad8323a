//! `list`: its table, its filters, and that it leaves the queue as it was.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use harness::http::{Answer, Request, Server};
use harness::redis::Redis;
use harness::sqs::reply;
use idempotent_sqs::idempotency::{Store, StoredResult};
use idempotent_sqs_testing::SendRequest;
use serde_json::{Value, json};

use super::super::{DIGEST, LONG, Tool, claim};
use super::{Queues, contents};

#[tokio::test]
async fn a_table_shows_each_letter_and_the_totals_by_outcome() {
    let queues = Queues::standard().await;
    queues.add("1", &json!({ "reason": "x".repeat(70) }));
    queues.add("2", &json!({ "outcome": "NO_KEY", "key": null, "attempts": null, "reason": "no key" }));
    let moved = queues.move_by_policy(SendRequest::new("3"));
    let output = queues.run(&["list"]).await;
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    let lines: Vec<Vec<_>> = output.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["AGE", "OUTCOME", "KEY", "ATTEMPTS", "REASON", "MESSAGE", "ID"]);
    let line = |word: &str| lines.iter().find(|line| line.contains(&word)).unwrap();
    let reason = format!("{}…", "x".repeat(60));
    assert_eq!(line("pay_1")[2..6], ["FAILED_PERMANENTLY", "pay_1", "3", &reason]);
    assert_eq!(line("NO_KEY")[2..7], ["NO_KEY", "-", "-", "no", "key"]);
    assert_eq!(line("REDRIVE_POLICY")[3..], [&moved, "-", "received", "too", "often", &moved]);
    assert_eq!(lines.last().unwrap().join(" "), "3 letters: 1 FAILED_PERMANENTLY, 1 NO_KEY, 1 REDRIVE_POLICY");
    assert_eq!(queues.listed(&["--outcome", "REDRIVE_POLICY"], "reason").await, ["received too often"]);
}

#[tokio::test]
async fn listed_letters_are_visible_again_at_once() {
    let queues = Queues::standard().await;
    (0..25).for_each(|n| drop(queues.add(&n.to_string(), &json!({}))));
    let (code, list) = queues.json(&["list"]).await;
    assert_eq!((code, list["letters"].as_array().unwrap().len()), (0, 25));
    assert_eq!((&list["complete"], &list["totals"]), (&json!(true), &json!({ "FAILED_PERMANENTLY": 25 })));
    assert_eq!((queues.dead.visible(), queues.dead.in_flight()), (25, 0));
    assert!(queues.api.calls("DeleteMessage").is_empty() && queues.api.calls("SendMessage").is_empty());
}

#[tokio::test]
async fn an_empty_queue_has_no_letters() {
    let queues = Queues::standard().await;
    let output = queues.run(&["list"]).await;
    assert_eq!((output.code, output.stdout.as_str()), (0, "no letters\n"));
}

#[tokio::test]
async fn filters_select_letters_and_a_letter_must_match_all_of_them() {
    let queues = Queues::standard().await;
    let first = queues.add("1", &json!({}));
    queues.add("2", &json!({ "outcome": "MISMATCH", "reason": "another payload", "key": "pay_1" }));
    queues.add("3", &json!({ "outcome": "NO_KEY", "reason": "no key source has a value", "key": null }));
    let moved = queues.move_by_policy(SendRequest::new("4"));
    queues.send(SendRequest::new("5").attribute("Idempotency-Dead-Letter", "not JSON"));
    let cases: [(&[&str], &[&str]); 16] = [
        (&[], &["1", "2", "3", &moved, "-"]),
        (&["--outcome", "FAILED_PERMANENTLY"], &["1"]),
        (&["--outcome", "MISMATCH", "--outcome", "NO_KEY"], &["2", "3"]),
        (&["--outcome", "REDRIVE_POLICY"], &[&moved]),
        (&["--outcome", "UNKNOWN"], &["-"]),
        (&["--key", "pay_1"], &["1", "2"]),
        (&["--key", "pay_"], &[]),
        (&["--key", &moved], &[&moved]),
        (&["--reason", "webhook returned"], &["1"]),
        (&["--reason", "received too often"], &[&moved]),
        (&["--reason", "cannot be parsed"], &["-"]),
        (&["--reason", "-"], &[]),
        (&["--id", &first, "--id", "3"], &["1", "3"]),
        (&["--key", "pay_1", "--outcome", "MISMATCH"], &["2"]),
        (&["--older-than", "1min"], &[]),
        (&["--newer-than", "1min", "--id", "2"], &["2"]),
    ];
    for (arguments, expected) in cases {
        let ids = queues.listed(arguments, "original_message_id").await;
        let mut ids: Vec<_> = ids.iter().map(|id| id.as_str().unwrap_or("-")).collect();
        ids.sort_by_key(|id| expected.iter().position(|expected| expected == id));
        assert_eq!(ids, expected, "{arguments:?}");
        assert_eq!(queues.dead.in_flight(), 0, "{arguments:?}");
    }
}

#[tokio::test]
async fn ages_count_from_the_time_that_sqs_shows() {
    let two_hours_ago = SystemTime::now() - Duration::from_secs(7_200);
    let queues = Queues::start("", two_hours_ago).await;
    queues.add("1", &json!({}));
    for (arguments, number) in [
        (["--older-than", "119min"], 1),
        (["--older-than", "3h"], 0),
        (["--newer-than", "1d"], 1),
        (["--newer-than", "7000s"], 0),
    ] {
        assert_eq!(queues.listed(&arguments, "key").await.len(), number, "{arguments:?}");
    }
    assert!(queues.run(&["list"]).await.stdout.contains("\n2 h  "));
}

#[tokio::test]
async fn a_limit_and_the_end_of_it_are_reported() {
    let queues = Queues::standard().await;
    (0..12).for_each(|n| drop(queues.add(&n.to_string(), &json!({}))));
    let output = queues.run(&["list", "--limit", "11"]).await;
    assert!(output.stdout.ends_with("stopped at --limit: there may be more letters\n"), "{}", output.stdout);
    assert_eq!(queues.json(&["list", "--limit", "11"]).await.1["complete"], json!(false));
    assert_eq!(queues.dead.in_flight(), 0);
}

#[tokio::test]
async fn letters_that_another_consumer_has_received_are_reported() {
    let queues = Queues::standard().await;
    (0..3).for_each(|n| drop(queues.add(&n.to_string(), &json!({}))));
    assert_eq!(queues.dead.receive(1).len(), 1);
    let output = queues.run(&["list"]).await;
    assert!(output.stdout.contains("\n2 letters: ") && output.stdout.contains("about 1 more were in flight"));
    assert_eq!(queues.dead.in_flight(), 1);
}

#[tokio::test]
async fn a_fifo_queue_shows_the_first_letters_of_a_group_and_the_number_of_the_others() {
    let queues = Queues::fifo().await;
    (0..25).for_each(|n| drop(queues.add_to_group("a", &n.to_string())));
    queues.add_to_group("b", "25");
    let (code, list) = queues.json(&["list"]).await;
    // SQS returns up to ten messages at once, and the groups in any order.
    let shown = list["letters"].as_array().unwrap().len();
    assert!(code == 0 && (10..=11).contains(&shown), "{list}");
    assert_eq!((&list["blocked"], &list["complete"]), (&json!(26 - shown), &json!(false)));
    let output = queues.run(&["list"]).await;
    let names = |count| output.stdout.contains(&format!("about {count} more: a FIFO queue shows only the first ones"));
    assert!(names(15) || names(16), "{}", output.stdout);
    assert!(output.stdout.lines().next().unwrap().ends_with("GROUP"), "{}", output.stdout);
    let order = contents(&queues.dead).into_iter().map(|message| message["body"].clone()).filter(|body| body != "25");
    assert_eq!(order.collect::<Vec<_>>(), (0..25).map(|n| json!(n.to_string())).collect::<Vec<_>>());
}

#[tokio::test]
async fn text_from_messages_cannot_control_the_terminal() {
    let queues = Queues::standard().await;
    let id =
        queues.add("1", &json!({ "reason": "\u{1b}[2Jgone\nline", "key": "pay\u{7}\u{202e}1", "function": "\u{9b}f" }));
    for arguments in
        [&["list"][..], &["show", &id], &["redrive", "--all", "--dry-run"], &["delete", "--all", "--dry-run"]]
    {
        let output = queues.run(arguments).await;
        let is_harmless = |c: char| c == '\n' || !(c.is_control() || c == '\u{202e}');
        assert!(output.code == 0 && output.stdout.chars().all(is_harmless), "{arguments:?}: {:?}", output.stdout);
        assert!(output.stdout.contains("pay\\u{7}\\u{202e}1"), "{arguments:?}: {}", output.stdout);
    }
    assert!(queues.run(&["list"]).await.stdout.contains("\\u{1b}[2Jgone\\nline"));
    assert_eq!(queues.listed(&[], "reason").await, [json!("\u{1b}[2Jgone\nline")]);
}

#[tokio::test]
async fn a_description_that_cannot_be_parsed_is_reported_and_affects_no_other_letter() {
    let queues = Queues::standard().await;
    queues.add("1", &json!({}));
    queues.add("2", &json!({ "outcome": "NEWER_OUTCOME" }));
    let (_, list) = queues.json(&["list", "--outcome", "UNKNOWN"]).await;
    let error = list["letters"][0]["parse_error"].as_str().unwrap();
    assert!(error.contains("unknown variant `NEWER_OUTCOME`"), "{error}");
    assert_eq!(queues.listed(&["--key", "pay_1"], "original_message_id").await, ["1"]);
    assert!(queues.run(&["list"]).await.stdout.contains("its description cannot be parsed"));
}

#[tokio::test]
async fn the_state_of_each_record_is_shown_on_request() {
    let mut redis = Redis::start().await;
    let tool = Tool::of(&redis);
    let (store, url) = (tool.store(), &tool.settings[0].1);
    let queues = Queues::standard().await.with("REDIS_URL", url).with("IDEMPOTENCY_NAMESPACE", "payments");
    (1..=3).for_each(|n| drop(queues.add(&n.to_string(), &json!({}))));
    queues.add("4", &json!({ "key": null, "outcome": "NO_KEY" }));
    queues.add("5", &json!({ "key": DIGEST }));
    store.fail(&claim(&store, DIGEST, LONG).await, super::super::PERMANENT).await.unwrap();
    store.complete(&claim(&store, "pay_1", LONG).await, StoredResult::Inline(b"receipt")).await.unwrap();
    store.fail(&claim(&store, "pay_2", LONG).await, super::super::UNCERTAIN).await.unwrap();
    let states = [json!("COMPLETED"), json!("FAILED"), json!("ABSENT"), json!(null), json!("FAILED")];
    for (id, state) in ["1", "2", "3", "4", "5"].into_iter().zip(states) {
        assert_eq!(queues.listed(&["--records", "--id", id], "record").await, [state]);
    }
    let output = queues.run(&["list", "--records"]).await;
    assert!(output.stdout.lines().next().unwrap().contains("  RECORD  "), "{}", output.stdout);

    redis.kill();
    let queues = queues.with("REDIS_TIMEOUT_MS", "200");
    let unread = queues.run(&["list", "--records"]).await;
    assert!(unread.code == 2 && unread.stdout.contains("\n5 letters: "), "{}", unread.stdout);
    assert!(unread.stderr.starts_with("error: no usable reply from Redis"), "{}", unread.stderr);
    let (code, list) = queues.json(&["list", "--records", "--id", "1"]).await;
    assert_eq!((code, &list["letters"][0]["record"]), (2, &json!(null)));
}

/// SQS returns ten letters at most. This server returns almost all of them at once, so that the test is quick.
#[tokio::test]
async fn a_command_holds_at_most_20_000_letters() {
    let asked_for = Arc::new(Mutex::new(Vec::new()));
    let receives = Arc::clone(&asked_for);
    let server = Server::start(move |request: Request| {
        let output = if request.header("X-Amz-Target") == Some("AmazonSQS.ReceiveMessage") {
            let input: Value = serde_json::from_slice(&request.body).unwrap();
            let mut receives = receives.lock().unwrap();
            receives.push(input["MaxNumberOfMessages"].as_u64().unwrap());
            let ids = if receives.len() == 1 { 0..19_997 } else { 19_997..19_997 + receives[1] };
            let letter = |id| json!({ "MessageId": format!("{id}"), "ReceiptHandle": "a", "Body": "b" });
            json!({ "Messages": ids.map(letter).collect::<Vec<_>>() })
        } else {
            json!({ "Successful": [], "Failed": [] })
        };
        let (status, body) = reply(Ok(output));
        async move { Answer::with(status, &[], body.to_string().as_bytes()) }
    })
    .await;
    let endpoint = format!("http://{}", server.address());
    let queues = Queues::standard().await.with("AWS_ENDPOINT_URL_SQS", &endpoint);
    let (code, list) = queues.json(&["list", "--limit", "30000"]).await;
    assert_eq!((code, list["letters"].as_array().unwrap().len()), (0, 20_000));
    assert_eq!((asked_for.lock().unwrap().as_slice(), &list["complete"]), (&[10, 3][..], &json!(false)));
}
