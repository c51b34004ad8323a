//! `redrive` while letters come into the dead-letter queue.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use harness::sqs::{ACCESS_DENIED, Call, Fault, SqsApi};
use idempotent_sqs::sqs::DeadLetter;
use idempotent_sqs_testing::{Queue, QueueSettings, SendRequest};
use serde_json::json;

use super::{Queues, bodies, move_by_policy, results, run_with_letters_that_come_back, without_description};
use crate::Output;

/// The function processes each redriven message at once, and sends it to the dead-letter queue again.
fn fail_again(queues: &Queues) {
    let (payments, dead) = (queues.payments.clone(), queues.dead.clone());
    let template = queues.description("ID", &json!({}));
    queues.api.fail(move |call| {
        if call.action == "DeleteMessage" {
            for message in payments.receive(10) {
                let letter = SendRequest::new(&*message.body);
                dead.send(letter.attribute(
                    DeadLetter::ATTRIBUTE,
                    template.replace("\"ID\"", &format!("{:?}", message.message_id)),
                ))
                .unwrap();
                payments.delete(&message.receipt_handle).unwrap();
            }
        }
        None
    });
}

#[tokio::test]
async fn a_letter_that_fails_again_during_the_run_is_not_sent_again() {
    // If this machine's clock is an hour ahead of SQS's, every letter seems to be older than the run.
    for created_at in [SystemTime::now(), SystemTime::now() - Duration::from_secs(3_600)] {
        let queues = Queues::start("", created_at).await;
        (0..5).for_each(|n| drop(queues.add(&n.to_string(), &json!({}))));
        fail_again(&queues);
        let (code, output) = queues.redrive(&["--all"]).await;
        assert_eq!((code, results(&output), &output["arrived_during_run"]), (0, vec!["REDRIVEN"; 5], &json!(5)));
        assert_eq!((queues.dead.visible(), queues.dead.in_flight()), (5, 0));
    }
}

#[tokio::test]
async fn a_message_that_the_redrive_policy_moves_again_is_not_sent_again() {
    for created_at in [SystemTime::now(), SystemTime::now() - Duration::from_secs(3_600)] {
        let queues = Queues::start("", created_at).await;
        for n in 0..5 {
            queues.move_by_policy(SendRequest::new(n.to_string()));
        }
        let payments = queues.payments.clone();
        queues.api.fail(move |call| {
            if call.action == "DeleteMessage" {
                move_by_policy(&payments);
            }
            None
        });
        let (code, output) = queues.redrive(&["--all"]).await;
        assert_eq!((code, results(&output), &output["arrived_during_run"]), (0, vec!["REDRIVEN"; 5], &json!(5)));
    }
}

#[tokio::test]
async fn a_standard_queue_that_delivers_letters_twice_has_each_one_redriven_and_listed_once() {
    let duplicates = QueueSettings { concurrent_delivery_rate: 0.7, name: "dead".into(), ..QueueSettings::default() };
    let mut queues = Queues::standard().await;
    queues.dead = Queue::new(duplicates, 7);
    queues.api = SqsApi::start(&[&queues.payments, &queues.dead]).await;
    (0..30).for_each(|n| drop(queues.add(&n.to_string(), &json!({}))));
    let queues = queues.at_its_api();
    assert_eq!(queues.listed(&[], "key").await.into_iter().collect::<HashSet<_>>().len(), 30);
    assert_eq!(queues.listed(&[], "key").await.len(), 30);
    let (code, output) = queues.redrive(&["--all"]).await;
    assert_eq!((code, results(&output)), (0, vec!["REDRIVEN"; 30]));
    assert!(queues.dead.counts().concurrent_deliveries > 30, "{:?}", queues.dead.counts());
    assert_eq!((queues.payments.visible(), queues.dead.is_empty()), (30, true));
}

#[tokio::test]
async fn a_scan_that_receives_only_the_same_letters_ends_and_says_so() {
    let duplicates = QueueSettings { concurrent_delivery_rate: 1.0, name: "dead".into(), ..QueueSettings::default() };
    let mut queues = Queues::standard().await;
    queues.dead = Queue::new(duplicates, 7);
    queues.api = SqsApi::start(&[&queues.payments, &queues.dead]).await;
    queues.add("1", &json!({}));
    let queues = queues.at_its_api();
    let output = queues.run(&["list"]).await;
    let note = "\nstopped because SQS delivered the same letters again: there may be more\n";
    assert!(output.stdout.contains("1 letter: ") && output.stdout.contains(note), "{}", output.stdout);
    assert_eq!(queues.json(&["list"]).await.1["complete"], json!(false));
}

#[tokio::test]
async fn other_letters_that_arrive_during_the_run_stay_in_the_queue() {
    for command in ["redrive", "delete"] {
        let queues = Queues::standard().await;
        queues.add("0", &json!({}));
        let (dead, attribute) = (queues.dead.clone(), queues.description("1", &json!({})));
        let mut arrives = Some(SendRequest::new("1").attribute(DeadLetter::ATTRIBUTE, attribute));
        queues.api.fail(move |call| {
            if call.action == "DeleteMessage"
                && let Some(letter) = arrives.take()
            {
                dead.send(letter).unwrap();
            }
            None
        });
        let (code, output) = queues.json(&[command, "--all", "--yes"]).await;
        assert_eq!((code, results(&output).len(), &output["arrived_during_run"]), (0, 1, &json!(1)));
        assert_eq!(bodies(&queues.dead), ["1"]);
    }
}

/// As [`fail_again`], without descriptions, and also after sends whose replies are lost.
fn fail_again_without_descriptions(queues: &Queues, mut is_lost: impl FnMut(&Call) -> bool + Send + 'static) {
    let (payments, dead) = (queues.payments.clone(), queues.dead.clone());
    queues.api.fail(move |call| {
        for message in payments.receive(10) {
            dead.send(without_description(&message.body)).unwrap();
            payments.delete(&message.receipt_handle).unwrap();
        }
        is_lost(call).then_some(Fault::LoseReply)
    });
}

#[tokio::test]
async fn a_letter_without_a_description_that_fails_again_during_the_run_is_not_sent_again() {
    for created_at in [SystemTime::now(), SystemTime::now() - Duration::from_secs(3_600)] {
        let queues = Queues::start("", created_at).await;
        (0..5).for_each(|n| drop(queues.send(without_description(&n.to_string()))));
        fail_again_without_descriptions(&queues, |_| false);
        let to = queues.api.queue_url(&queues.payments);
        // The limit ends a run that sends them again and again.
        let (code, output) = queues.redrive(&["--all", "--to", &to, "--limit", "20"]).await;
        assert_eq!((code, results(&output), &output["arrived_during_run"]), (0, vec!["REDRIVEN"; 5], &json!(5)));
        assert_eq!((queues.dead.visible(), queues.dead.in_flight()), (5, 0));
    }
}

#[tokio::test]
async fn a_letter_that_fails_again_after_a_send_without_a_reply_is_not_sent_again() {
    let queues = Queues::start("", SystemTime::now() - Duration::from_secs(3_600)).await;
    queues.send(without_description("1"));
    fail_again_without_descriptions(&queues, |call| call.action == "SendMessage");
    let to = queues.api.queue_url(&queues.payments);
    let (code, output) = queues.redrive(&["--all", "--to", &to, "--limit", "20"]).await;
    assert_eq!((code, results(&output), &output["arrived_during_run"]), (1, vec!["MAYBE_SENT"], &json!(1)));
}

#[tokio::test]
async fn letters_with_the_same_content_are_all_redriven() {
    for is_listed_before in [false, true] {
        let queues = Queues::start("", SystemTime::now() - Duration::from_secs(3_600)).await;
        (0..25).for_each(|_| drop(queues.send(without_description("1"))));
        if is_listed_before {
            assert_eq!(queues.listed(&[], "key").await.len(), 25);
        }
        let to = queues.api.queue_url(&queues.payments);
        let (code, output) = queues.redrive(&["--all", "--to", &to]).await;
        assert_eq!((code, results(&output), queues.payments.visible()), (0, vec!["REDRIVEN"; 25], 25));
    }
}

/// It comes back together with one that was there at the start, whose send must not count in place of its own.
#[tokio::test]
async fn a_letter_that_failed_again_is_not_sent_again_although_an_equal_one_is_sent_later() {
    let queues = Queues::start("", SystemTime::now() - Duration::from_secs(3_600)).await;
    // A receive returns ten letters. The last one is equal to the first.
    for body in (0..10).chain([0]) {
        queues.send(without_description(&body.to_string()));
    }
    fail_again_without_descriptions(&queues, |_| false);
    let to = queues.api.queue_url(&queues.payments);
    let (code, output) = queues.redrive(&["--all", "--to", &to]).await;
    let seen = (code, results(&output), &output["arrived_during_run"]);
    assert_eq!(seen, (0, vec!["REDRIVEN"; 11], &json!(11)), "{output}");
    assert_eq!((queues.dead.visible(), queues.dead.in_flight()), (11, 0));
}

/// The operator lists the letter of a message before an equal message fails too.
#[tokio::test]
async fn an_equal_message_with_a_known_message_id_is_redriven_too() {
    let queues = Queues::standard().await;
    queues.add("m1", &json!({}));
    queues.move_by_policy(SendRequest::new("2"));
    assert_eq!(queues.listed(&[], "key").await.len(), 2);
    tokio::time::sleep(Duration::from_millis(20)).await;
    queues.send(SendRequest::new("m1").attribute(DeadLetter::ATTRIBUTE, queues.description("m2", &json!({}))));
    queues.move_by_policy(SendRequest::new("2"));
    tokio::time::sleep(Duration::from_millis(20)).await;
    let (code, output) = queues.redrive(&["--all", "--as-is"]).await;
    assert_eq!((code, results(&output)), (0, vec!["REDRIVEN"; 4]), "{output}");
}

#[tokio::test]
async fn a_letter_with_a_description_is_not_sent_again_after_a_send_without_a_reply() {
    let queues = Queues::start("", SystemTime::now() - Duration::from_secs(3_600)).await;
    queues.add("1", &json!({}));
    let (payments, dead) = (queues.payments.clone(), queues.dead.clone());
    let template = queues.description("ID", &json!({}));
    queues.api.fail(move |call| {
        for message in payments.receive(10) {
            let attribute = template.replace("\"ID\"", &format!("{:?}", message.message_id));
            dead.send(SendRequest::new(&*message.body).attribute(DeadLetter::ATTRIBUTE, attribute)).unwrap();
            payments.delete(&message.receipt_handle).unwrap();
        }
        (call.action == "SendMessage").then_some(Fault::LoseReply)
    });
    let (code, output) = queues.redrive(&["--all", "--as-is", "--limit", "20"]).await;
    assert_eq!((code, results(&output), &output["arrived_during_run"]), (1, vec!["MAYBE_SENT"], &json!(1)));
}

#[tokio::test]
async fn an_equal_letter_that_was_received_before_the_send_is_redriven_too() {
    for is_fifo in [false, true] {
        let queues = if is_fifo { Queues::fifo().await } else { Queues::standard().await };
        let send = |body: &str, id: &str| {
            let message = without_description(body);
            queues.send(if is_fifo { message.group("a").deduplication_id(id) } else { message });
        };
        send("toggle", "1");
        // Its first receive is earlier than the send of the others.
        assert_eq!(queues.listed(&[], "key").await.len(), 1);
        tokio::time::sleep(Duration::from_millis(20)).await;
        send("toggle", "2");
        send("other", "3");
        tokio::time::sleep(Duration::from_millis(20)).await;
        let to = queues.api.queue_url(&queues.payments);
        let (code, output) = queues.redrive(&["--all", "--to", &to]).await;
        assert_eq!((code, results(&output)), (0, vec!["REDRIVEN"; 3]), "{output}");
        if is_fifo {
            assert_eq!(bodies(&queues.payments), ["toggle", "toggle", "other"]);
        }
    }
}

/// The clock of this machine is ahead, so the new letter seems to have been there at the start.
#[tokio::test]
async fn a_later_letter_of_a_group_does_not_overtake_one_that_came_back() {
    for outcome in ["FAILED_PERMANENTLY", "ATTEMPTS_USED_UP"] {
        assert_group_is_kept(outcome).await;
    }
}

/// The letter comes back with this outcome, which the filter may leave out.
async fn assert_group_is_kept(outcome: &str) {
    let queues = Queues::start(".fifo", SystemTime::now() - Duration::from_secs(3_600)).await;
    queues.add_to_group("a", "0");
    queues.add_to_group("a", "1");
    let (payments, dead) = (queues.payments.clone(), queues.dead.clone());
    let [again, new] =
        [outcome, "FAILED_PERMANENTLY"].map(|outcome| queues.description("ID", &json!({ "outcome": outcome })));
    let mut is_first = true;
    queues.api.fail(move |call| {
        if call.action == "DeleteMessage" && std::mem::take(&mut is_first) {
            let fail = |template: &str, body: &str, id: &str| {
                let attribute = template.replace("\"ID\"", &format!("{id:?}"));
                let letter = SendRequest::new(body).attribute(DeadLetter::ATTRIBUTE, attribute);
                dead.send(letter.group("a").deduplication_id(id)).unwrap();
            };
            for message in payments.receive(10) {
                fail(&again, &message.body, &message.message_id);
                payments.delete(&message.receipt_handle).unwrap();
            }
            fail(&new, "2", "new");
        }
        None
    });
    queues.redrive(&["--outcome", "FAILED_PERMANENTLY"]).await;
    let left = [&queues.payments, &queues.dead].map(bodies);
    assert_eq!(left, [vec!["1".to_owned()], vec!["0".to_owned(), "2".to_owned()]], "{outcome}");
}

/// A standard queue may do so, and the second delete fails.
#[tokio::test]
async fn a_letter_that_is_delivered_again_after_its_delete_and_stays_is_reported() {
    for (command, fault, result) in [
        ("redrive", ACCESS_DENIED, "NOT_DELETED"),
        ("redrive", Fault::LoseReply, "MAYBE_DELETED"),
        ("delete", ACCESS_DENIED, "NOT_DELETED"),
    ] {
        let (_queues, run) = run_with_letters_that_come_back(command, fault).await;
        let (code, output) = Output::new(run.wait_with_output().await.unwrap()).json();
        assert_eq!((code, results(&output)), (1, vec![result; 3]), "{output}");
        let detail = output["letters"][0]["detail"].as_str().unwrap();
        let is = if result == "NOT_DELETED" { "is in both queues" } else { "may be in both queues" };
        assert!(detail.contains("SQS DeleteMessage") && detail.contains(is) == (command == "redrive"), "{detail}");
    }
}
