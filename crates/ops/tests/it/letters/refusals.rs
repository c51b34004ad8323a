//! Calls that SQS refuses, and replies that are lost.

use harness::sqs::{ACCESS_DENIED, Fault};
use idempotent_sqs_testing::SqsError;
use serde_json::json;

use super::replies::THROTTLED;
use super::{Queues, bodies, extends, results};

#[tokio::test]
async fn a_letter_is_not_deleted_if_its_send_is_refused_and_the_run_ends_after_five_refusals() {
    let queues = Queues::standard().await;
    (0..8).for_each(|n| drop(queues.add(&n.to_string(), &json!({}))));
    queues.api.fail(|call| (call.action == "SendMessage").then_some(ACCESS_DENIED));
    let (code, output) = queues.redrive(&["--all"]).await;
    assert_eq!((code, results(&output)), (1, vec!["NOT_SENT"; 8]));
    let reason = "SQS SendMessage: AccessDeniedException: User: operator is not authorized to perform this action.";
    assert_eq!(output["letters"][0]["detail"], reason);
    assert_eq!(output["letters"][5]["detail"], "the 5 sends before it to its queue failed");
    assert_eq!(queues.api.calls("SendMessage").len(), 5, "and none was repeated");
    assert!(queues.api.calls("DeleteMessage").is_empty());
    assert_eq!((queues.dead.visible(), queues.dead.in_flight(), queues.payments.visible()), (8, 0, 0));
}

#[tokio::test]
async fn one_refused_letter_does_not_affect_the_others() {
    let queues = Queues::standard().await;
    (0..12).for_each(|n| drop(queues.add(&n.to_string(), &json!({}))));
    let refused = SqsError { code: "InvalidMessageContents", reason: "refused" };
    queues.api.fail(move |call| {
        (call.action == "SendMessage" && call.input["MessageBody"] == "3").then(|| Fault::Refuse(refused.clone()))
    });
    let (code, output) = queues.redrive(&["--all"]).await;
    assert_eq!((code, results(&output).iter().filter(|result| **result == "REDRIVEN").count()), (1, 11));
    assert_eq!(bodies(&queues.dead), ["3"]);
}

#[tokio::test]
async fn refusals_that_are_not_in_a_row_keep_back_only_their_letters() {
    let queues = Queues::standard().await;
    (0..13).for_each(|n| drop(queues.add(&n.to_string(), &json!({}))));
    let mut sends = 0;
    queues.api.fail(move |call| {
        sends += u32::from(call.action == "SendMessage");
        (call.action == "SendMessage" && sends % 2 == 1).then_some(ACCESS_DENIED)
    });
    let (code, output) = queues.redrive(&["--all"]).await;
    let redriven = results(&output).iter().filter(|result| **result == "REDRIVEN").count();
    assert_eq!((code, redriven, queues.api.calls("SendMessage").len()), (1, 6, 13), "{output}");
}

#[tokio::test]
async fn if_a_letter_cannot_be_deleted_no_other_one_is_sent() {
    for command in ["redrive", "delete"] {
        let queues = Queues::standard().await;
        (0..3).for_each(|n| drop(queues.add(&n.to_string(), &json!({}))));
        queues.api.fail(|call| (call.action == "DeleteMessage").then_some(ACCESS_DENIED));
        let (code, output) = queues.json(&[command, "--all", "--yes"]).await;
        assert_eq!((code, results(&output)), (1, vec!["NOT_DELETED"]));
        let detail = output["letters"][0]["detail"].as_str().unwrap();
        assert!(detail.contains("SQS DeleteMessage: AccessDeniedException"), "{detail}");
        assert_eq!(output["complete"], json!(false));
        let sent = usize::from(command == "redrive");
        assert_eq!((queues.payments.visible(), queues.dead.visible(), queues.dead.in_flight()), (sent, 3, 0));
    }
}

#[tokio::test]
async fn the_report_says_that_a_failed_delete_ended_the_run() {
    let queues = Queues::standard().await;
    (0..3).for_each(|n| drop(queues.add(&n.to_string(), &json!({}))));
    queues.api.fail(|call| (call.action == "DeleteMessage").then_some(ACCESS_DENIED));
    let output = queues.run(&["delete", "--all", "--yes"]).await;
    let end = "\n1 not deleted\nstopped after a failed call: there may be more letters\n";
    assert!(output.code == 1 && output.stdout.ends_with(end), "{}", output.stdout);
}

#[tokio::test]
async fn a_send_without_a_reply_is_not_repeated_and_its_letter_stays() {
    let queues = Queues::standard().await;
    let id = queues.add("1", &json!({}));
    queues.api.fail(|call| (call.action == "SendMessage").then_some(Fault::LoseReply));
    let output = queues.run(&["redrive", "--all", "--yes"]).await;
    assert!(output.code == 1 && output.stdout.contains("1 may have been sent, and not deleted"), "{}", output.stdout);
    assert!(output.stdout.contains(&id), "{}", output.stdout);
    assert_eq!(queues.api.calls("SendMessage").len(), 1);
    assert_eq!((queues.payments.visible(), queues.dead.visible(), queues.dead.in_flight()), (1, 1, 0));
}

#[tokio::test]
async fn a_lost_reply_to_a_delete_is_repeated() {
    let queues = Queues::standard().await;
    (0..2).for_each(|n| drop(queues.add(&n.to_string(), &json!({}))));
    let mut lost = false;
    queues.api.fail(move |call| {
        let is_first = call.action == "DeleteMessage" && !std::mem::replace(&mut lost, true);
        is_first.then_some(Fault::LoseReply)
    });
    let (code, output) = queues.redrive(&["--all"]).await;
    assert_eq!((code, results(&output)), (0, vec!["REDRIVEN"; 2]));
    assert_eq!((queues.payments.visible(), queues.dead.is_empty()), (2, true));
}

#[tokio::test]
async fn a_refused_receive_exits_with_2_and_makes_the_letters_visible_that_were_received_before() {
    for arguments in [
        &["list"][..],
        &["redrive", "--key", "none", "--yes"],
        &["delete", "--key", "none", "--yes"],
        &["show", "none"],
    ] {
        let queues = Queues::standard().await;
        (0..15).for_each(|n| drop(queues.add(&n.to_string(), &json!({}))));
        let mut receives = 0;
        queues.api.fail(move |call| {
            receives += u32::from(call.action == "ReceiveMessage");
            (call.action == "ReceiveMessage" && receives == 2).then_some(ACCESS_DENIED)
        });
        let output = queues.run(arguments).await;
        assert_eq!((output.code, output.stdout.as_str()), (2, ""), "{arguments:?}");
        assert!(output.stderr.contains("error: SQS ReceiveMessage: AccessDenied"), "{}", output.stderr);
        assert_eq!((queues.dead.visible(), queues.dead.in_flight()), (15, 0), "{arguments:?}");
    }
}

/// The credentials of a session may end during a run.
#[tokio::test]
async fn a_redrive_whose_next_receive_fails_reports_what_was_done_and_exits_with_2() {
    for json in [false, true] {
        let queues = Queues::standard().await;
        (0..15).for_each(|n| drop(queues.add(&n.to_string(), &json!({}))));
        let (mut receives, mut sends) = (0, 0);
        queues.api.fail(move |call| match call.action.as_str() {
            "ReceiveMessage" => {
                receives += 1;
                (receives > 1).then_some(ACCESS_DENIED)
            }
            "SendMessage" => {
                sends += 1;
                (sends == 3).then_some(Fault::LoseReply)
            }
            _ => None,
        });
        let arguments = ["redrive", "--all", "--yes", "--rate", "1000", "--json"];
        let output = queues.run(if json { &arguments } else { &arguments[..5] }).await;
        assert_eq!((queues.payments.visible(), queues.dead.visible(), queues.dead.in_flight()), (10, 6, 0));
        assert!(output.stderr.starts_with("error: SQS ReceiveMessage: AccessDenied"), "{}", output.stderr);
        if json {
            let (code, output) = output.json();
            let expected = [vec!["REDRIVEN"; 2], vec!["MAYBE_SENT"], vec!["REDRIVEN"; 7]].concat();
            assert_eq!((code, results(&output), &output["complete"]), (2, expected, &json!(false)));
        } else {
            let end = "\n9 redriven, 1 may have been sent, and not deleted\n\
                       stopped after a failed call: there may be more letters\n";
            assert!(output.code == 2 && output.stdout.ends_with(end), "{}", output.stdout);
            assert!(output.stdout.starts_with("MESSAGE ID "), "{}", output.stdout);
        }
    }
}

#[tokio::test]
async fn a_delete_whose_next_receive_fails_reports_what_was_deleted_and_exits_with_2() {
    let queues = Queues::standard().await;
    (0..15).for_each(|n| drop(queues.add(&n.to_string(), &json!({}))));
    let mut receives = 0;
    queues.api.fail(move |call| {
        receives += usize::from(call.action == "ReceiveMessage");
        let throttled = SqsError { code: "RequestThrottled", reason: "Request is throttled." };
        (call.action == "ReceiveMessage" && receives > 1).then_some(Fault::Refuse(throttled))
    });
    let output = queues.run(&["delete", "--all", "--yes", "--json"]).await;
    assert!(output.stderr.starts_with("error: SQS ReceiveMessage: RequestThrottled"), "{}", output.stderr);
    let (code, output) = output.json();
    assert_eq!((code, results(&output)), (2, vec!["DELETED"; 10]));
    assert_eq!((queues.dead.visible(), queues.dead.in_flight()), (5, 0));
}

#[tokio::test]
async fn a_letter_whose_delete_has_no_reply_may_have_been_deleted() {
    for command in ["redrive", "delete"] {
        let queues = Queues::standard().await;
        queues.add("0", &json!({}));
        queues.api.fail(|call| (call.action == "DeleteMessage").then_some(Fault::LoseReply));
        let (code, output) = queues.json(&[command, "--all", "--yes"]).await;
        assert_eq!(
            (code, results(&output), &output["still_hidden"]),
            (1, vec!["MAYBE_DELETED"], &json!(0)),
            "{output}"
        );
        let detail = output["letters"][0]["detail"].as_str().unwrap();
        assert!(command == "delete" || detail.contains("may be in both queues"), "{detail}");
        assert_eq!(bodies(&queues.dead), Vec::<String>::new());
    }
}

#[tokio::test]
async fn list_and_show_exit_with_1_if_letters_stay_hidden() {
    for command in [&["list"][..], &["show", "pay_1"], &["show", "none"]] {
        let queues = Queues::standard().await;
        (0..3).for_each(|n| drop(queues.add(&n.to_string(), &json!({}))));
        queues.api.fail(|call| (call.action == "ChangeMessageVisibilityBatch").then_some(ACCESS_DENIED));
        let output = queues.run(command).await;
        let note = "3 could not be made visible again: they are after at most 5 min\n";
        assert!(output.code == 1 && output.stdout.ends_with(note), "{command:?}: {}", output.stdout);
        assert_eq!(queues.dead.in_flight(), 3);
    }
}

/// The first try of the delete takes effect, and its reply is lost.
#[tokio::test]
async fn a_letter_may_have_been_deleted_if_a_repeated_delete_is_refused() {
    for command in ["redrive", "delete"] {
        let queues = Queues::standard().await;
        queues.add("0", &json!({}));
        let mut is_first = true;
        queues.api.fail(move |call| {
            let fault = if std::mem::take(&mut is_first) { Fault::LoseReply } else { ACCESS_DENIED };
            is_first |= call.action != "DeleteMessage";
            (call.action == "DeleteMessage").then_some(fault)
        });
        let (code, output) = queues.json(&[command, "--all", "--yes"]).await;
        assert_eq!((code, results(&output)), (1, vec!["MAYBE_DELETED"]), "{output}");
    }
}

/// The letters of the first try are hidden, and not known.
#[tokio::test]
async fn a_receive_that_was_repeated_is_reported() {
    for command in [&["list"][..], &["redrive", "--all", "--yes"], &["delete", "--all", "--yes"], &["show", "none"]] {
        let queues = Queues::standard().await;
        (0..5).for_each(|n| drop(queues.add(&n.to_string(), &json!({}))));
        let mut is_first = true;
        queues.api.fail(move |call| {
            (call.action == "ReceiveMessage" && std::mem::take(&mut is_first)).then_some(Fault::LoseReply)
        });
        let (_, output) = queues.json(command).await;
        let seen = (queues.dead.in_flight(), &output["receive_repeated"], &output["complete"]);
        assert_eq!(seen, (5, &json!(true), &json!(false)), "{command:?}: {output}");
    }
}

/// They are visible again at the end nevertheless.
#[tokio::test]
async fn letters_that_cannot_be_kept_hidden_are_not_sent_and_reported() {
    let queues = Queues::standard().await;
    (0..12).for_each(|n| drop(queues.add(&n.to_string(), &json!({}))));
    queues.api.fail(|call| extends(call).then_some(ACCESS_DENIED));
    let arguments = ["redrive", "--all", "--yes", "--rate", "1", "--visibility-timeout", "10", "--limit", "8"];
    let (code, output) = queues.json(&arguments).await;
    assert_eq!((code, &output["complete"], &output["still_hidden"]), (1, &json!(false), &json!(0)), "{output}");
    assert!(output["lost"].as_u64() > Some(0), "{output}");
    assert_eq!((queues.dead.in_flight(), queues.dead.visible() + queues.payments.visible()), (0, 12));
}

#[tokio::test]
async fn letters_that_a_receive_without_a_reply_has_hidden_are_reported() {
    for command in [&["list"][..], &["redrive", "--all", "--yes"], &["delete", "--all", "--yes"], &["show", "none"]] {
        let queues = Queues::standard().await;
        (0..5).for_each(|n| drop(queues.add(&n.to_string(), &json!({}))));
        queues.api.fail(|call| (call.action == "ReceiveMessage").then_some(Fault::LoseReply));
        let output = queues.run(command).await;
        assert!(output.code == 2 && output.stderr.contains("a receive had no reply"), "{command:?}: {}", output.stderr);
    }
}

#[tokio::test]
async fn letters_that_stay_hidden_after_a_failed_receive_are_reported() {
    for command in [&["list"][..], &["show", "none"]] {
        let queues = Queues::standard().await;
        (0..12).for_each(|n| drop(queues.add(&n.to_string(), &json!({}))));
        let mut receives = 0;
        queues.api.fail(move |call| {
            receives += u32::from(call.action == "ReceiveMessage");
            let fails = call.action == "ReceiveMessage" && receives > 1;
            (fails || call.action == "ChangeMessageVisibilityBatch").then_some(ACCESS_DENIED)
        });
        let output = queues.run(command).await;
        let note = "10 could not be made visible again";
        assert!(output.code == 2 && output.stderr.contains(note), "{command:?}: {}", output.stderr);
    }
}

#[tokio::test]
async fn letters_that_another_consumer_has_received_since_the_start_are_reported() {
    let queues = Queues::standard().await;
    (0..5).for_each(|n| drop(queues.add(&n.to_string(), &json!({}))));
    let dead = queues.dead.clone();
    queues.api.fail(move |call| {
        if call.action == "ReceiveMessage" {
            drop(dead.receive(10));
        }
        None
    });
    let (code, output) = queues.json(&["list"]).await;
    assert_eq!((code, &output["complete"], &output["in_flight_at_start"]), (0, &json!(false), &json!(5)), "{output}");
}

#[tokio::test]
async fn a_failed_lookup_of_a_queue_keeps_back_only_its_letter() {
    for fault in [Fault::LoseReply, THROTTLED] {
        let queues = Queues::standard().await;
        (0..5).for_each(|n| drop(queues.add(&n.to_string(), &json!({}))));
        let mut lookups = 0;
        queues.api.fail(move |call| {
            lookups += u32::from(call.action == "GetQueueUrl");
            // The SDK tries three times.
            (call.action == "GetQueueUrl" && lookups <= 3).then(|| fault.clone())
        });
        let (code, output) = queues.redrive(&["--all"]).await;
        let expected = [vec!["NOT_SENT"], vec!["REDRIVEN"; 4]].concat();
        assert_eq!((code, results(&output)), (1, expected), "{output}");
        assert_eq!(queues.api.calls("GetQueueUrl").len(), 4, "the first one that succeeded is known");
    }
}

#[tokio::test]
async fn a_queue_is_not_looked_up_again_after_five_failures_in_a_row() {
    let queues = Queues::standard().await;
    (0..8).for_each(|n| drop(queues.add(&n.to_string(), &json!({}))));
    // The SDK does not repeat such a call.
    let refused = SqsError { code: "RequestExpired", reason: "refused" };
    queues.api.fail(move |call| (call.action == "GetQueueUrl").then(|| Fault::Refuse(refused.clone())));
    let (code, output) = queues.redrive(&["--all"]).await;
    assert_eq!((code, results(&output)), (1, vec!["NOT_SENT"; 8]));
    assert_eq!(output["letters"][4]["detail"], "SQS GetQueueUrl: RequestExpired: refused");
    assert_eq!(output["letters"][5]["detail"], "the 5 lookups before it of its queue failed");
    assert_eq!(queues.api.calls("GetQueueUrl").len(), 5);
}

#[tokio::test]
async fn a_queue_that_does_not_exist_or_may_not_be_looked_up_is_looked_up_once() {
    let absent = Fault::Refuse(SqsError { code: "QueueDoesNotExist", reason: "The specified queue does not exist." });
    for (fault, code) in [(absent, "QueueDoesNotExist"), (ACCESS_DENIED, "AccessDeniedException")] {
        let queues = Queues::standard().await;
        (0..3).for_each(|n| drop(queues.add(&n.to_string(), &json!({}))));
        queues.api.fail(move |call| (call.action == "GetQueueUrl").then(|| fault.clone()));
        let (_, output) = queues.redrive(&["--all"]).await;
        let letters = output["letters"].as_array().unwrap();
        let reason = format!("SQS GetQueueUrl: {code}: ");
        let are_named = letters.iter().all(|letter| letter["detail"].as_str().unwrap().starts_with(&reason));
        assert!(letters.len() == 3 && are_named, "{output}");
        assert_eq!(queues.api.calls("GetQueueUrl").len(), 1);
    }
}
