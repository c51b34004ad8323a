//! Calls that the AWS SDK repeats because their replies are lost, or because SQS refuses them for now.

use harness::sqs::{ACCESS_DENIED, Fault};
use idempotent_sqs_testing::SqsError;
use serde_json::json;

use super::{Queues, results};

/// The AWS SDK repeats such a call.
pub(super) const THROTTLED: Fault =
    Fault::Refuse(SqsError { code: "RequestThrottled", reason: "Request is throttled." });

const COMMANDS: [&[&str]; 4] =
    [&["list"], &["redrive", "--all", "--yes"], &["delete", "--all", "--yes"], &["show", "none"]];

async fn with_letters(number: u32) -> Queues {
    let queues = Queues::standard().await;
    (0..number).for_each(|n| drop(queues.add(&n.to_string(), &json!({}))));
    queues
}

/// The receive with this number has this fault, and each later one is refused.
fn fail_receives(queues: &Queues, number: u32, fault: Fault) {
    let mut receives = 0;
    queues.api.fail(move |call| {
        if call.action != "ReceiveMessage" {
            return None;
        }
        receives += 1;
        if receives == number { Some(fault.clone()) } else { (receives > number).then_some(ACCESS_DENIED) }
    });
}

#[tokio::test]
async fn a_letter_whose_repeated_delete_is_refused_each_time_is_not_deleted() {
    for command in ["redrive", "delete"] {
        let queues = with_letters(3).await;
        queues.api.fail(|call| (call.action == "DeleteMessage").then_some(THROTTLED));
        let (code, output) = queues.json(&[command, "--all", "--yes"]).await;
        assert_eq!((code, results(&output)), (1, vec!["NOT_DELETED"]), "{command}: {output}");
    }
}

/// The first try has hidden the letters.
#[tokio::test]
async fn a_receive_without_a_reply_whose_repetition_is_refused_is_reported() {
    for command in COMMANDS {
        let queues = with_letters(5).await;
        fail_receives(&queues, 1, Fault::LoseReply);
        let output = queues.run(command).await;
        assert_eq!((output.code, queues.dead.in_flight()), (2, 5), "{command:?}");
        assert!(output.stderr.contains("a receive had no reply"), "{command:?}: {}", output.stderr);
    }
}

#[tokio::test]
async fn a_receive_without_a_reply_whose_repetition_is_refused_is_reported_after_letters_were_redriven() {
    let queues = with_letters(15).await;
    fail_receives(&queues, 2, Fault::LoseReply);
    let (code, output) = queues.redrive(&["--all"]).await;
    assert_eq!((code, queues.dead.in_flight(), &output["receive_repeated"]), (2, 5, &json!(true)), "{output}");
}

#[tokio::test]
async fn a_receive_that_was_refused_once_is_not_reported_as_one_without_a_reply() {
    for command in COMMANDS {
        let queues = with_letters(5).await;
        let mut is_first = true;
        queues
            .api
            .fail(move |call| (call.action == "ReceiveMessage" && std::mem::take(&mut is_first)).then_some(THROTTLED));
        let (code, output) = queues.json(command).await;
        let seen = (code, &output["receive_repeated"], &output["complete"]);
        assert_eq!(seen, (i32::from(command[0] == "show"), &json!(false), &json!(true)), "{command:?}: {output}");
    }
}

/// The reply to the first receive is lost.
fn lose_first_receive(queues: &Queues) {
    let mut is_first = true;
    queues.api.fail(move |call| {
        (call.action == "ReceiveMessage" && std::mem::take(&mut is_first)).then_some(Fault::LoseReply)
    });
}

/// They are in flight at the end, and no other consumer has received them.
#[tokio::test]
async fn letters_that_a_repeated_receive_has_hidden_are_no_success_and_not_another_consumers() {
    for command in COMMANDS {
        let queues = with_letters(5).await;
        lose_first_receive(&queues);
        let output = queues.run(command).await;
        assert_eq!((output.code, queues.dead.in_flight()), (1, 5), "{command:?}: {}", output.stdout);
        let note = "a receive had no reply: letters of it may be hidden, for at most 5 min\n";
        let is_right = output.stdout.ends_with(note) && !output.stdout.contains("another consumer");
        assert!(is_right, "{command:?}: {}", output.stdout);
    }
}

#[tokio::test]
async fn show_says_in_its_json_that_a_receive_was_repeated() {
    let queues = with_letters(15).await;
    lose_first_receive(&queues);
    let (code, output) = queues.json(&["show", "pay_12"]).await;
    let seen = (code, &output["key"], &output["receive_repeated"]);
    assert_eq!((seen, queues.dead.in_flight()), ((1, &json!("pay_12"), &json!(true)), 10), "{output}");
}
