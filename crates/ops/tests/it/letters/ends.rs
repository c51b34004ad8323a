//! The end of a run: if SQS does not respond, and after an interrupt.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use harness::sqs::Fault;
use harness::{soon, until};
use serde_json::json;
use tokio::sync::Notify;

use super::crashes::signal;
use super::{Queues, extends, results, run_with_letters_that_come_back};
use crate::Output;

/// The queue's numbers at the start are known, and later ones have no reply.
fn hold_later_counts(queues: &Queues) {
    let mut counts = 0;
    queues.api.fail(move |call| {
        counts += u32::from(call.action == "GetQueueAttributes");
        (call.action == "GetQueueAttributes" && counts > 1).then_some(Fault::HoldRequest)
    });
}

#[tokio::test]
async fn letters_of_a_fifo_queue_are_visible_again_although_sqs_does_not_count_them() {
    let queues = Queues::fifo().await;
    (0..3).for_each(|n| drop(queues.add_to_group("a", &n.to_string())));
    hold_later_counts(&queues);
    let (code, output) = queues.json(&["list", "--visibility-timeout", "5"]).await;
    let seen = (code, &output["blocked"], &output["still_hidden"], queues.dead.in_flight());
    assert_eq!(seen, (0, &json!(null), &json!(0), 0), "{output}");
}

#[tokio::test]
async fn a_run_that_received_nothing_ends_although_sqs_does_not_count_its_letters() {
    let queues = Queues::standard().await;
    hold_later_counts(&queues);
    let (code, output) = queues.json(&["list"]).await;
    assert_eq!((code, &output["complete"], &output["blocked"]), (0, &json!(false), &json!(null)), "{output}");
}

/// The letters are visible by then.
#[tokio::test]
async fn a_run_ends_after_30_seconds_without_a_reply_and_reports_only_letters_that_are_hidden() {
    let queues = Queues::fifo().await;
    (0..3).for_each(|n| drop(queues.add_to_group("a", &n.to_string())));
    let mut receives = 0;
    queues.api.fail(move |call| {
        receives += u32::from(call.action == "ReceiveMessage");
        (receives > 1 && call.action != "ReceiveMessage").then_some(Fault::HoldRequest)
    });
    let began = Instant::now();
    let run = queues.command(&["list", "--visibility-timeout", "5", "--json"]).output();
    let output = tokio::time::timeout(Duration::from_secs(45), run).await.expect("it ends");
    let (code, output) = Output::new(output.unwrap()).json();
    assert_eq!((code, &output["still_hidden"], queues.dead.in_flight()), (0, &json!(0), 0), "{output}");
    assert!(began.elapsed() > Duration::from_secs(20), "it has tried to make them visible");
}

/// Ten calls run at once, for ten letters each. Letters of later calls may be another consumer's by then.
#[tokio::test]
async fn letters_whose_visibility_timeouts_end_before_their_turn_are_left_alone() {
    let queues = Queues::standard().await;
    (0..150).for_each(|n| drop(queues.add(&n.to_string(), &json!({}))));
    let (over, waiting) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
    let (delayed, began) = (Arc::clone(&over), Arc::clone(&waiting));
    queues.api.fail(move |call| {
        let shows = call.action == "ChangeMessageVisibilityBatch" && !extends(call);
        shows.then(|| {
            began.fetch_add(1, Ordering::SeqCst);
            Fault::Delay(Arc::clone(&delayed))
        })
    });
    let run = queues.command(&["list", "--visibility-timeout", "5", "--json"]).spawn().unwrap();
    until(async || waiting.load(Ordering::SeqCst) == 10).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    over.notify_waiters();
    let (code, output) = Output::new(soon(run.wait_with_output()).await.unwrap()).json();
    assert_eq!((code, &output["still_hidden"], waiting.load(Ordering::SeqCst)), (0, &json!(0), 10), "{output}");
}

/// Interrupts a run once this call has been made so often. Its letters are visible again soon.
async fn assert_visible_after_an_interrupt(queues: &Queues, arguments: &[&str], action: &str, times: usize) -> Output {
    let run = queues.command(arguments).spawn().unwrap();
    queues.api.called(action, times).await;
    signal(&run, "-INT").await;
    until(|| async { queues.dead.in_flight() == 0 }).await;
    Output::new(soon(run.wait_with_output()).await.unwrap())
}

#[tokio::test]
async fn after_an_interrupt_letters_are_visible_again_although_a_receive_has_no_reply() {
    let queues = Queues::standard().await;
    (0..10).for_each(|n| drop(queues.add(&n.to_string(), &json!({}))));
    let mut receives = 0;
    queues.api.fail(move |call| {
        receives += u32::from(call.action == "ReceiveMessage");
        (call.action == "ReceiveMessage" && receives > 1).then_some(Fault::HoldRequest)
    });
    let output = assert_visible_after_an_interrupt(&queues, &["list", "--json"], "ReceiveMessage", 2).await;
    let (code, output) = output.json();
    let seen = (code, &output["interrupted"], &output["complete"], &output["receive_repeated"]);
    assert_eq!(seen, (1, &json!(true), &json!(false), &json!(true)), "letters of that receive may be hidden");
}

#[tokio::test]
async fn after_an_interrupt_letters_of_a_fifo_queue_are_visible_again_although_sqs_does_not_count_them() {
    let queues = Queues::fifo().await;
    (0..7).for_each(|n| drop(queues.add_to_group("a", &n.to_string())));
    hold_later_counts(&queues);
    let arguments = ["redrive", "--all", "--yes", "--rate", "1", "--json"];
    let output = assert_visible_after_an_interrupt(&queues, &arguments, "DeleteMessage", 1).await;
    assert_eq!(output.code, 1, "{}", output.stdout);
}

/// The second delete of the first letter has no reply.
#[tokio::test]
async fn after_an_interrupt_no_further_letter_is_deleted_again() {
    let (queues, run) = run_with_letters_that_come_back("redrive", Fault::HoldRequest).await;
    queues.api.called("DeleteMessage", 4).await;
    signal(&run, "-INT").await;
    let (code, output) = Output::new(soon(run.wait_with_output()).await.unwrap()).json();
    let mut seen = results(&output);
    seen.sort_unstable();
    assert_eq!((code, seen), (1, vec!["MAYBE_DELETED", "NOT_DELETED", "NOT_DELETED"]), "{output}");
    let details: HashSet<_> = output["letters"].as_array().unwrap().iter().map(|letter| &letter["detail"]).collect();
    let to = format!("{}, with Idempotency-Key", queues.payments.url());
    let maybe =
        format!("sent to {to}, and may be in both queues: SQS DeleteMessage: no reply within 3 s of the interrupt");
    let not = format!("sent to {to}, and is in both queues: SQS DeleteMessage: not called after the interrupt");
    assert_eq!(details, HashSet::from([&json!(maybe), &json!(not)]));
    assert_eq!((queues.api.calls("DeleteMessage").len(), queues.dead.visible()), (4, 3));
}

#[tokio::test]
async fn after_an_interrupt_a_delete_without_a_reply_ends_soon_and_its_letter_may_be_deleted() {
    let queues = Queues::standard().await;
    (0..3).for_each(|n| drop(queues.add(&n.to_string(), &json!({}))));
    queues.api.fail(|call| (call.action == "DeleteMessage").then_some(Fault::HoldRequest));
    let arguments = ["delete", "--all", "--yes", "--json"];
    let output = assert_visible_after_an_interrupt(&queues, &arguments, "DeleteMessage", 1).await;
    let (code, output) = output.json();
    assert_eq!((code, results(&output), &output["still_hidden"]), (1, vec!["MAYBE_DELETED"], &json!(0)), "{output}");
    assert_eq!(output["letters"][0]["detail"], "SQS DeleteMessage: no reply within 3 s of the interrupt");
}

#[tokio::test]
async fn after_an_interrupt_a_letter_is_not_sent_although_its_queue_is_being_looked_up() {
    let queues = Queues::standard().await;
    (0..3).for_each(|n| drop(queues.add(&n.to_string(), &json!({}))));
    queues.api.fail(|call| (call.action == "GetQueueUrl").then_some(Fault::HoldRequest));
    let arguments = ["redrive", "--all", "--yes", "--json"];
    let output = assert_visible_after_an_interrupt(&queues, &arguments, "GetQueueUrl", 1).await;
    let (code, output) = output.json();
    let seen = (code, results(&output), &output["letters"][0]["detail"]);
    assert_eq!(seen, (1, vec!["NOT_SENT"], &json!("interrupted")), "{output}");
}
