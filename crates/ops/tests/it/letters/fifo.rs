//! `redrive` on FIFO queues: order, deduplication, and visibility timeouts.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use harness::sqs::{ACCESS_DENIED, Fault};
use harness::until;
use idempotent_sqs_testing::SqsError;
use serde_json::json;
use tokio::sync::Notify;

use super::{Queues, bodies, contents, extends, results};
use crate::Output;

/// Bodies of the messages of a group, in order.
fn in_group(queues: &Queues, group: &str) -> Vec<String> {
    let messages = contents(&queues.payments).into_iter();
    let of_group = messages.filter(|message| message["attributes"]["MessageGroupId"] == group);
    of_group.map(|message| message["body"].as_str().unwrap().to_owned()).collect()
}

fn numbers(range: std::ops::Range<u32>) -> Vec<String> {
    range.map(|n| n.to_string()).collect()
}

#[tokio::test]
async fn more_than_ten_letters_of_a_group_are_redriven_in_order_with_their_group_and_id() {
    let queues = Queues::fifo().await;
    let ids: Vec<_> = (0..25).map(|n| queues.add_to_group("a", &n.to_string())).collect();
    let (code, output) = queues.redrive(&["--all"]).await;
    assert_eq!((code, results(&output), &output["complete"]), (0, vec!["REDRIVEN"; 25], &json!(true)));
    assert!(queues.dead.is_empty());
    let sent = contents(&queues.payments);
    let (groups, deduplication): (Vec<_>, Vec<_>) = sent
        .iter()
        .map(|message| {
            (&message["attributes"]["MessageGroupId"], message["attributes"]["MessageDeduplicationId"].clone())
        })
        .unzip();
    assert!(groups.iter().all(|group| **group == "a"));
    assert_eq!(deduplication, ids.into_iter().map(|id| json!(id)).collect::<Vec<_>>());
    assert_eq!(sent.iter().map(|message| message["body"].clone()).collect::<Vec<_>>(), numbers(0..25));
}

#[tokio::test]
async fn after_a_failed_send_no_later_letter_of_its_group_is_sent() {
    for fault in [Fault::Refuse(SqsError { code: "InvalidParameterValue", reason: "refused" }), Fault::LoseReply] {
        let queues = Queues::fifo().await;
        for n in 0..15 {
            queues.add_to_group("a", &n.to_string());
        }
        queues.add_to_group("b", "15");
        let script = fault.clone();
        queues.api.fail(move |call| {
            (call.action == "SendMessage" && call.input["MessageBody"] == "3").then(|| script.clone())
        });
        let (code, output) = queues.redrive(&["--all"]).await;
        assert_eq!(code, 1);
        let first = if matches!(fault, Fault::LoseReply) { "MAYBE_SENT" } else { "NOT_SENT" };
        let expected: Vec<_> = [vec!["REDRIVEN"; 3], vec![first], vec!["NOT_SENT"; 6], vec!["REDRIVEN"]].concat();
        assert_eq!(results(&output), expected);
        assert_eq!(output["letters"][4]["detail"], "an earlier letter of its group was not sent");
        assert_eq!((queues.dead.visible(), queues.dead.in_flight()), (12, 0));
        // The next run continues the group. The queue drops a second send of the same letter.
        queues.api.fail(|_| None);
        assert_eq!(queues.redrive(&["--all"]).await.0, 0);
        assert_eq!(in_group(&queues, "a"), numbers(0..15));
    }
}

#[tokio::test]
async fn the_letters_behind_others_that_do_not_match_are_reported() {
    let queues = Queues::fifo().await;
    (0..12).for_each(|n| drop(queues.add_to_group("a", &n.to_string())));
    let (code, output) = queues.redrive(&["--key", "pay_2"]).await;
    assert_eq!((code, results(&output), &output["blocked"]), (0, vec!["REDRIVEN"], &json!(2)));
    assert_eq!(bodies(&queues.payments), ["2"]);
    let (_, output) = queues.redrive(&["--key", "pay_11"]).await;
    assert_eq!((results(&output).len(), &output["blocked"]), (0, &json!(1)));
    assert_eq!(queues.dead.in_flight(), 0);
}

#[tokio::test]
async fn a_letter_whose_visibility_timeout_cannot_be_extended_is_not_sent_nor_any_later_one_of_its_group() {
    let queues = Queues::fifo().await;
    (0..7).for_each(|n| drop(queues.add_to_group("a", &n.to_string())));
    queues.api.fail(|call| extends(call).then_some(ACCESS_DENIED));
    let arguments = ["redrive", "--all", "--yes", "--rate", "1", "--visibility-timeout", "5"];
    let (code, output) = queues.json(&arguments).await;
    // The one whose time is over is listed if it was about to be sent.
    let sent = results(&output).iter().filter(|result| **result == "REDRIVEN").count();
    assert!(code == 1 && (1..7).contains(&sent) && output["lost"].as_u64() > Some(0), "{output}");
    assert_eq!(bodies(&queues.payments), numbers(0..u32::try_from(sent).unwrap()));
    assert_eq!(queues.dead.visible() + queues.dead.in_flight(), 7 - sent);
}

#[tokio::test]
async fn the_letters_behind_one_that_became_visible_again_are_not_sent() {
    let queues = Queues::fifo().await;
    (0..7).for_each(|n| drop(queues.add_to_group("a", &n.to_string())));
    let over = Arc::new(Notify::new());
    let (dead, delayed, mut is_first) = (queues.dead.clone(), Arc::clone(&over), true);
    queues.api.fail(move |call| {
        // If the send ends before this call, it is made again.
        if extends(call) && mem::take(&mut is_first) {
            let entries = call.input["Entries"].as_array().unwrap().iter();
            let mut handles: Vec<_> = entries.map(|entry| entry["ReceiptHandle"].as_str().unwrap()).collect();
            // In the order of the queue. The first one is that of the letter that is being sent.
            handles.sort_unstable();
            dead.change_visibility(handles[1], Duration::ZERO).unwrap();
        }
        let is_sent = call.action == "SendMessage" && call.input["MessageBody"] == "0";
        is_sent.then(|| Fault::Delay(Arc::clone(&delayed)))
    });
    let run = queues.command(&["redrive", "--all", "--yes", "--visibility-timeout", "5", "--json"]).spawn().unwrap();
    queues.api.called("ChangeMessageVisibilityBatch", 1).await;
    over.notify_one();
    let (_, output) = Output::new(run.wait_with_output().await.unwrap()).json();
    // The one that became visible was received again.
    assert_eq!((results(&output), &output["complete"]), (vec!["REDRIVEN"; 2], &json!(false)), "{output}");
    assert_eq!((bodies(&queues.payments), bodies(&queues.dead)), (numbers(0..2), numbers(2..7)));
}

/// A FIFO queue rejects deletes after the visibility timeout, and would deliver the letters again during the run.
#[tokio::test]
async fn visibility_timeouts_are_extended_during_a_slow_run() {
    let queues = Queues::fifo().await;
    (0..7).for_each(|n| drop(queues.add_to_group("a", &n.to_string())));
    let arguments = ["redrive", "--all", "--yes", "--rate", "1", "--visibility-timeout", "5"];
    let (code, output) = queues.json(&arguments).await;
    assert_eq!((code, results(&output)), (0, vec!["REDRIVEN"; 7]), "{output}");
    assert_eq!(bodies(&queues.payments), numbers(0..7));
    assert_eq!(queues.dead.counts().received, 7, "each letter was received once");
}

#[tokio::test]
async fn visibility_timeouts_are_extended_during_a_slow_call() {
    for (action, number) in [("SendMessage", 1), ("GetQueueUrl", 1), ("ReceiveMessage", 2), ("DeleteMessage", 1)] {
        let queues = Queues::standard().await;
        (0..3).for_each(|n| drop(queues.add(&n.to_string(), &json!({}))));
        let over = Arc::new(Notify::new());
        let (delayed, mut calls) = (Arc::clone(&over), 0);
        queues.api.fail(move |call| {
            calls += u32::from(call.action == action);
            let delays = call.action == action && calls == number;
            delays.then(|| Fault::Delay(Arc::clone(&delayed)))
        });
        let command =
            if action == "ReceiveMessage" { &["list"][..] } else { &["redrive", "--all", "--yes", "--rate", "1000"] };
        let run = queues.command(&[command, &["--visibility-timeout", "5", "--json"]].concat()).spawn().unwrap();
        // The second time is after the timeout of the receive.
        queues.api.called("ChangeMessageVisibilityBatch", 2).await;
        assert_eq!((queues.dead.visible(), queues.dead.in_flight()), (0, 3), "{action}");
        over.notify_one();
        let (code, output) = Output::new(run.wait_with_output().await.unwrap()).json();
        assert_eq!((code, &output["complete"]), (0, &json!(true)), "{action}: {output}");
    }
}

/// Without its reply, the letter is visible again.
#[tokio::test]
async fn an_extension_without_a_reply_does_not_hold_up_a_letter_that_is_being_sent() {
    let queues = Queues::standard().await;
    queues.add("0", &json!({}));
    let over = Arc::new(Notify::new());
    let delayed = Arc::clone(&over);
    queues.api.fail(move |call| match call.action.as_str() {
        "SendMessage" => Some(Fault::Delay(Arc::clone(&delayed))),
        _ => extends(call).then_some(Fault::HoldRequest),
    });
    let arguments = ["redrive", "--all", "--yes", "--visibility-timeout", "10", "--json"];
    let run = queues.command(&arguments).spawn().unwrap();
    queues.api.called("ChangeMessageVisibilityBatch", 1).await;
    over.notify_one();
    let (code, output) = Output::new(run.wait_with_output().await.unwrap()).json();
    assert_eq!((code, results(&output), &output["lost"]), (0, vec!["REDRIVEN"], &json!(0)), "{output}");
}

/// As a run of another operator would.
#[tokio::test]
async fn a_letter_that_is_visible_again_is_not_sent_and_one_that_was_being_sent_may_be_in_both_queues() {
    let queues = Queues::standard().await;
    (0..2).for_each(|n| drop(queues.add(&n.to_string(), &json!({}))));
    let over = Arc::new(Notify::new());
    let delayed = Arc::clone(&over);
    queues.api.fail(move |call| match call.action.as_str() {
        "SendMessage" => Some(Fault::Delay(Arc::clone(&delayed))),
        _ => extends(call).then_some(ACCESS_DENIED),
    });
    let arguments = ["redrive", "--all", "--yes", "--visibility-timeout", "5", "--json"];
    let run = queues.command(&arguments).spawn().unwrap();
    queues.api.called("ChangeMessageVisibilityBatch", 1).await;
    let mut other = Vec::new();
    while other.len() < 2 {
        other.extend(queues.dead.receive(10));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    over.notify_one();
    let (code, output) = Output::new(run.wait_with_output().await.unwrap()).json();
    assert_eq!((code, results(&output), &output["lost"]), (1, vec!["MAYBE_DELETED"], &json!(1)), "{output}");
}

/// The function sends a message without a group to a FIFO dead-letter queue with its messageId as its group.
#[tokio::test]
async fn a_message_that_had_no_group_has_none_after_a_redrive_and_another_keeps_its_group() {
    let queues = Queues::of_types("", ".fifo").await;
    queues.add_to_group("m1", "m1");
    queues.add_to_group("a", "m2");
    assert_eq!(queues.redrive(&["--all"]).await.0, 0);
    let mut sent = contents(&queues.payments);
    sent.sort_by_key(|message| message["body"].to_string());
    let groups: Vec<_> = sent.iter().map(|message| &message["attributes"]["MessageGroupId"]).collect();
    assert_eq!(groups, [&json!(null), &json!("a")]);
}

#[tokio::test]
async fn a_list_is_not_complete_if_sqs_does_not_say_how_many_letters_wait_for_others() {
    let queues = Queues::fifo().await;
    (0..15).for_each(|n| drop(queues.add_to_group("a", &n.to_string())));
    let mut calls = 0;
    queues.api.fail(move |call| {
        calls += u32::from(call.action == "GetQueueAttributes");
        (call.action == "GetQueueAttributes" && calls > 1).then_some(ACCESS_DENIED)
    });
    let (code, output) = queues.json(&["list"]).await;
    assert_eq!((code, &output["complete"], &output["blocked"]), (0, &json!(false), &json!(null)), "{output}");
}

#[tokio::test]
async fn show_says_that_other_letters_were_not_kept_hidden() {
    let queues = Queues::standard().await;
    (0..11).for_each(|n| drop(queues.add(&n.to_string(), &json!({}))));
    let over = Arc::new(Notify::new());
    let (delayed, mut receives) = (Arc::clone(&over), 0);
    queues.api.fail(move |call| {
        receives += u32::from(call.action == "ReceiveMessage");
        match call.action.as_str() {
            "ReceiveMessage" if receives == 2 => Some(Fault::Delay(Arc::clone(&delayed))),
            _ => extends(call).then_some(ACCESS_DENIED),
        }
    });
    let run = queues.command(&["show", "pay_10", "--visibility-timeout", "5", "--json"]).spawn().unwrap();
    queues.api.called("ChangeMessageVisibilityBatch", 1).await;
    over.notify_one();
    let (code, output) = Output::new(run.wait_with_output().await.unwrap()).json();
    assert_eq!((code, output["lost"].as_u64() > Some(0)), (1, true), "{output}");
}

/// It cannot be sent when its turn comes, and comes back later.
#[tokio::test]
async fn a_letter_that_was_to_be_sent_when_it_became_visible_stays_in_this_run_and_another_one_is_sent() {
    let queues = Queues::standard().await;
    (0..2).for_each(|n| drop(queues.add(&n.to_string(), &json!({}))));
    let over = Arc::new(Notify::new());
    let (delayed, mut is_first) = (Arc::clone(&over), true);
    queues.api.fail(move |call| match call.action.as_str() {
        "GetQueueUrl" => Some(Fault::Delay(Arc::clone(&delayed))),
        _ => (extends(call) && std::mem::take(&mut is_first)).then_some(ACCESS_DENIED),
    });
    let run = queues.command(&["redrive", "--all", "--yes", "--visibility-timeout", "5", "--json"]).spawn().unwrap();
    queues.api.called("ChangeMessageVisibilityBatch", 1).await;
    until(|| async { queues.dead.visible() == 2 }).await;
    over.notify_one();
    let (code, output) = Output::new(run.wait_with_output().await.unwrap()).json();
    assert_eq!((code, results(&output)), (1, vec!["NOT_SENT", "REDRIVEN"]), "{output}");
}

/// They do not match, and become visible while another letter is being sent.
#[tokio::test]
async fn letters_that_could_not_be_kept_hidden_and_are_received_again_are_not_lost() {
    let queues = Queues::standard().await;
    (0..11).for_each(|n| drop(queues.add(&n.to_string(), &json!({}))));
    let over = Arc::new(Notify::new());
    let (delayed, mut is_first) = (Arc::clone(&over), true);
    queues.api.fail(move |call| {
        if call.action == "GetQueueUrl" {
            return Some(Fault::Delay(Arc::clone(&delayed)));
        }
        // The one of the ten letters that the first receive returned.
        let is_of_ten = extends(call) && call.input["Entries"].as_array().unwrap().len() == 10;
        (is_of_ten && mem::take(&mut is_first)).then_some(ACCESS_DENIED)
    });
    let arguments = ["redrive", "--key", "pay_10", "--yes", "--visibility-timeout", "5", "--json"];
    let run = queues.command(&arguments).spawn().unwrap();
    queues.api.called("ChangeMessageVisibilityBatch", 1).await;
    until(|| async { queues.dead.visible() == 10 }).await;
    over.notify_one();
    let (code, output) = Output::new(run.wait_with_output().await.unwrap()).json();
    let seen = (code, results(&output), &output["lost"], &output["complete"]);
    assert_eq!(seen, (0, vec!["REDRIVEN"], &json!(0), &json!(true)), "{output}");
    assert!(queues.dead.counts().received >= 21, "the ten were received again");
    assert_eq!((bodies(&queues.payments), queues.dead.visible()), (vec!["10".to_owned()], 10));
}
