//! `redrive`: what it sends, where, and which letters.

use std::sync::Arc;
use std::time::Instant;

use harness::sqs::{Fault, SqsApi};
use idempotent_sqs::sqs::DeadLetter;
use idempotent_sqs_testing::{Attribute, Queue, QueueSettings, SendRequest};
use serde_json::json;
use tokio::sync::Notify;

use super::{Queues, bodies, contents, results};
use crate::Output;

#[tokio::test]
async fn a_letter_is_sent_back_as_it_was_without_its_description_and_deleted() {
    let queues = Queues::standard().await;
    let message = SendRequest::new("amount: 12.50\n\u{1f4b6}")
        .attribute("Idempotency-Key", "pay_1")
        .attribute("Tenant", "acme")
        .attribute("Amount", Attribute::Number("12.50".into()))
        .attribute("Signature", Attribute::Binary(vec![255, 0, 7]))
        .group("acme")
        .trace_header("Root=1-5759e988-bd862e3fe1be46a994272793");
    let original = queues.payments.send(message.clone()).unwrap();
    let before = contents(&queues.payments).remove(0);
    let id = queues
        .send(message.attribute(DeadLetter::ATTRIBUTE, queues.description(&original, &json!({ "key": "pay_1" }))));

    let (code, output) = queues.redrive(&["--all"]).await;
    assert_eq!((code, results(&output)), (0, vec!["REDRIVEN"]));
    assert_eq!((&output["letters"][0]["message_id"], &output["new_keys"]), (&json!(id), &json!(0)));
    assert!(queues.dead.is_empty());
    let after = contents(&queues.payments).remove(0);
    for field in ["body", "messageAttributes", "md5OfMessageAttributes"] {
        assert_eq!(after[field], before[field], "{field}");
    }
    for attribute in ["AWSTraceHeader", "MessageGroupId", "MessageDeduplicationId"] {
        assert_eq!(after["attributes"][attribute], before["attributes"][attribute], "{attribute}");
    }
    assert_ne!(after["messageId"], before["messageId"]);
}

#[tokio::test]
async fn only_the_letters_that_match_are_redriven_and_the_others_are_visible_again_at_once() {
    let queues = Queues::standard().await;
    for n in 0..25 {
        let outcome = if n % 5 == 0 { "MISMATCH" } else { "PARKED" };
        queues.add(&n.to_string(), &json!({ "outcome": outcome }));
    }
    let (code, output) = queues.redrive(&["--outcome", "MISMATCH", "--limit", "4"]).await;
    assert_eq!((code, results(&output).len(), &output["complete"]), (0, 4, &json!(false)));
    let (code, output) = queues.redrive(&["--outcome", "MISMATCH"]).await;
    assert_eq!((code, results(&output).len(), &output["complete"]), (0, 1, &json!(true)));
    assert_eq!((queues.dead.visible(), queues.dead.in_flight()), (20, 0));
    let mut sent = bodies(&queues.payments);
    sent.sort_by_key(|body| body.parse::<u32>().unwrap());
    assert_eq!(sent, ["0", "5", "10", "15", "20"]);
}

#[tokio::test]
async fn a_letter_of_the_redrive_policy_goes_back_to_the_queue_that_sqs_names() {
    let queues = Queues::standard().await;
    // Its producer must not choose the queue.
    let forged =
        queues.description("1", &json!({ "source_queue_arn": "arn:aws:sqs:eu-central-1:123456789012:others" }));
    queues.move_by_policy(SendRequest::new("1").attribute(DeadLetter::ATTRIBUTE, forged));
    let (code, output) = queues.redrive(&["--outcome", "REDRIVE_POLICY"]).await;
    assert_eq!((code, results(&output)), (0, vec!["REDRIVEN"]), "{output}");
    let sent = contents(&queues.payments).remove(0);
    assert_eq!(sent["messageAttributes"].as_object().unwrap().keys().collect::<Vec<_>>(), ["Idempotency-Key"]);
}

#[tokio::test]
async fn a_letter_without_a_known_source_needs_a_destination_and_the_others_are_redriven() {
    let queues = Queues::standard().await;
    queues.add("0", &json!({ "source_queue_arn": null }));
    queues.send(SendRequest::new("1"));
    queues.send(SendRequest::new("2").attribute(DeadLetter::ATTRIBUTE, "not JSON").attribute("Tenant", "acme"));
    queues.add("3", &json!({ "source_queue_arn": "arn:aws:sqs:eu-central-1:123456789012:absent" }));
    queues.add("4", &json!({ "source_queue_arn": "payments" }));
    queues.add("8", &json!({ "source_queue_arn": "arn:aws:sqs:example.com/:123456789012:payments" }));
    queues.add("5", &json!({ "source_queue_arn": queues.dead.arn() }));
    queues.add("6", &json!({}));
    let output = queues.run(&["redrive", "--all", "--yes"]).await;
    assert_eq!(output.code, 1, "{}", output.stderr);
    for reason in [
        "its source queue is not known: pass --to QUEUE_URL",
        "QueueDoesNotExist",
        "\"payments\" is not the ARN of a queue",
        "\"arn:aws:sqs:example.com/:123456789012:payments\" is not the ARN of a queue",
        "its destination is the dead-letter queue itself",
        "\n7 not sent, 1 redriven\n",
    ] {
        assert!(output.stdout.contains(reason), "{reason}: {}", output.stdout);
    }
    assert_eq!(bodies(&queues.payments), ["6"]);
    assert_eq!((queues.dead.visible(), queues.dead.in_flight()), (7, 0));

    let to = queues.api.queue_url(&queues.payments);
    let (code, output) = queues.redrive(&["--all", "--to", &to]).await;
    assert_eq!((code, results(&output)), (0, vec!["REDRIVEN"; 7]));
    let sent = contents(&queues.payments);
    let parsed = sent.iter().find(|message| message["body"] == "2").unwrap();
    assert_eq!(parsed["messageAttributes"].as_object().unwrap().keys().collect::<Vec<_>>(), ["Tenant"]);
}

#[tokio::test]
async fn letters_are_not_sent_to_the_dead_letter_queue_itself_however_its_url_is_written() {
    let queues = Queues::fifo().await;
    let url = queues.api.queue_url(&queues.dead);
    queues.add_to_group("a", "1");
    for (own, to) in [("", ""), ("", "/"), ("/", ""), ("", "//")] {
        let (own, to) = (format!("{url}{own}"), format!("{url}{to}"));
        let output = queues.run(&["redrive", "--all", "--yes", "--queue-url", &own, "--to", &to]).await;
        let reason = "its destination is the dead-letter queue itself";
        assert!(output.code == 1 && output.stdout.contains(reason), "{}{}", output.stdout, output.stderr);
    }
    assert!(queues.api.calls("SendMessage").is_empty());
    let to = queues.api.queue_url(&queues.payments) + "/";
    assert_eq!(results(&queues.redrive(&["--all", "--to", &to]).await.1), ["REDRIVEN"]);
    assert_eq!(bodies(&queues.payments), ["1"]);
}

#[tokio::test]
async fn a_dry_run_shows_what_would_be_sent_and_changes_nothing() {
    let queues = Queues::standard().await;
    let id = queues.add("1", &json!({}));
    queues.add("2", &json!({ "key": "2" }));
    queues.send(SendRequest::new("3"));
    let output = queues.run(&["redrive", "--all", "--dry-run"]).await;
    assert_eq!(output.code, 1, "the third cannot be sent: {}", output.stdout);
    assert!(
        output.stdout.contains(&id) && output.stdout.contains("/payments, with Idempotency-Key"),
        "{}",
        output.stdout
    );
    assert!(output.stdout.contains("2 would be redriven, 1 not sent"), "{}", output.stdout);
    let (_, json) = queues.json(&["redrive", "--all", "--dry-run"]).await;
    let mut shown = results(&json);
    shown.sort_unstable();
    assert_eq!(shown, ["NOT_SENT", "WOULD_REDRIVE", "WOULD_REDRIVE"]);
    assert!(queues.api.calls("SendMessage").is_empty() && queues.api.calls("DeleteMessage").is_empty());
    assert_eq!((queues.dead.visible(), queues.dead.in_flight(), queues.payments.visible()), (3, 0, 0));
}

#[tokio::test]
async fn a_letter_of_a_standard_queue_can_go_to_another_queue() {
    let mut queues = Queues::standard().await;
    let other = Queue::new(QueueSettings { name: "other".into(), ..QueueSettings::default() }, 7);
    queues.api = SqsApi::start(&[&queues.payments, &queues.dead, &other]).await;
    queues.add("1", &json!({}));
    let queues = queues.at_its_api();
    let (code, output) = queues.redrive(&["--all", "--to", &queues.api.queue_url(&other)]).await;
    assert_eq!((code, results(&output)), (0, vec!["REDRIVEN"]));
    assert_eq!((bodies(&other).as_slice(), queues.payments.is_empty()), (&["1".to_owned()][..], true));
}

#[tokio::test]
async fn the_rate_limits_the_sends() {
    let queues = Queues::standard().await;
    (0..5).for_each(|n| drop(queues.add(&n.to_string(), &json!({}))));
    let start = Instant::now();
    let (code, _) = queues.json(&["redrive", "--all", "--yes", "--rate", "5"]).await;
    assert!(code == 0 && start.elapsed().as_millis() >= 800, "four intervals of 200 ms: {:?}", start.elapsed());
}

#[tokio::test]
async fn after_a_slow_send_the_next_ones_do_not_catch_up() {
    let queues = Queues::standard().await;
    (0..5).for_each(|n| drop(queues.add(&n.to_string(), &json!({}))));
    let over = Arc::new(Notify::new());
    let (delayed, mut is_first) = (Arc::clone(&over), true);
    queues.api.fail(move |call| {
        let delays = call.action == "SendMessage" && std::mem::take(&mut is_first);
        delays.then(|| Fault::Delay(Arc::clone(&delayed)))
    });
    let arguments = ["redrive", "--all", "--yes", "--rate", "5", "--visibility-timeout", "5", "--json"];
    let run = queues.command(&arguments).spawn().unwrap();
    // After three seconds, the time of 15 letters.
    queues.api.called("ChangeMessageVisibilityBatch", 1).await;
    let start = Instant::now();
    over.notify_one();
    queues.api.called("SendMessage", 5).await;
    assert!(start.elapsed().as_millis() >= 600, "three intervals of 200 ms: {:?}", start.elapsed());
    let (code, output) = Output::new(run.wait_with_output().await.unwrap()).json();
    assert_eq!((code, results(&output)), (0, vec!["REDRIVEN"; 5]), "{output}");
}

/// The queues of the same account and names in another region.
async fn with_queues_in_another_region(mut queues: Queues) -> (Queues, [Queue; 2]) {
    let others = ["payments", "dead"].map(|name| {
        let (name, region) = (name.into(), "eu-west-1".into());
        Queue::new(QueueSettings { name, region, stale_handle_delete_rate: 0.0, ..QueueSettings::default() }, 7)
    });
    queues.api = SqsApi::start(&[&queues.payments, &queues.dead, &others[0], &others[1]]).await;
    (queues.at_its_api(), others)
}

#[tokio::test]
async fn a_letter_goes_to_the_queue_in_the_region_of_its_source() {
    let (queues, [payments, dead]) = with_queues_in_another_region(Queues::standard().await).await;
    queues.add("1", &json!({ "source_queue_arn": payments.arn() }));
    // Not the dead-letter queue itself.
    queues.add("2", &json!({ "source_queue_arn": dead.arn() }));
    queues.add("3", &json!({}));
    queues.add("4", &json!({ "source_queue_arn": "arn:aws:sqs:us-east-1:123456789012:payments" }));
    let (code, output) = queues.redrive(&["--all"]).await;
    assert_eq!(bodies(&payments), ["1"], "{output}");
    assert_eq!((bodies(&dead), bodies(&queues.payments)), (vec!["2".to_owned()], vec!["3".to_owned()]));
    assert_eq!((code, bodies(&queues.dead)), (1, vec!["4".to_owned()]), "no such queue in that region: {output}");
}

#[tokio::test]
async fn the_region_in_the_url_of_a_queue_is_that_of_its_calls() {
    let (queues, [payments, dead]) = with_queues_in_another_region(Queues::standard().await).await;
    queues.add("1", &json!({}));
    let (code, output) = queues.redrive(&["--all", "--to", &payments.url()]).await;
    assert_eq!((code, bodies(&payments)), (0, vec!["1".to_owned()]), "{output}");
    let attribute = queues.description("2", &json!({}));
    dead.send(SendRequest::new("2").attribute(DeadLetter::ATTRIBUTE, attribute)).unwrap();
    let (code, output) = queues.redrive(&["--all", "--queue-url", &dead.url()]).await;
    assert_eq!((code, bodies(&queues.payments)), (0, vec!["2".to_owned()]), "{output}");
}
