//! Deletes whose replies are late. The letter is in flight meanwhile, or SQS has deleted it.

use std::sync::Arc;
use std::time::Duration;

use harness::sqs::{ACCESS_DENIED, Fault};
use serde_json::json;
use tokio::sync::Notify;

use super::{Queues, extends, results};
use crate::Output;

/// SQS has deleted the letter, and refuses to extend its visibility timeout before the delete has a reply.
#[tokio::test]
async fn a_letter_that_a_slow_delete_has_deleted_is_done_and_the_run_goes_on() {
    for (command, result) in [("redrive", "REDRIVEN"), ("delete", "DELETED")] {
        let queues = Queues::standard().await;
        (0..3).for_each(|n| drop(queues.add(&n.to_string(), &json!({}))));
        let over = Arc::new(Notify::new());
        let (delayed, dead, mut is_first) = (Arc::clone(&over), queues.dead.clone(), true);
        queues.api.fail(move |call| {
            let delays = call.action == "DeleteMessage" && std::mem::take(&mut is_first);
            delays.then(|| {
                dead.delete(call.input["ReceiptHandle"].as_str().unwrap()).unwrap();
                Fault::Delay(Arc::clone(&delayed))
            })
        });
        let arguments = [command, "--all", "--yes", "--visibility-timeout", "5", "--json"];
        let run = queues.command(&arguments).spawn().unwrap();
        queues.api.called("ChangeMessageVisibilityBatch", 1).await;
        // Its visibility timeout would be over.
        tokio::time::sleep(Duration::from_secs(4)).await;
        over.notify_one();
        let (code, output) = Output::new(run.wait_with_output().await.unwrap()).json();
        assert_eq!((code, results(&output), &output["lost"]), (0, vec![result; 3], &json!(0)), "{output}");
        assert!(queues.dead.is_empty());
    }
}

/// As above, and the delete has no reply.
#[tokio::test]
async fn a_letter_that_may_be_deleted_is_reported_neither_as_lost_nor_as_hidden() {
    let queues = Queues::standard().await;
    queues.add("0", &json!({}));
    let mut is_first = true;
    queues.api.fail(move |call| {
        let reply = if std::mem::take(&mut is_first) { Fault::HoldReply } else { Fault::LoseReply };
        is_first |= call.action != "DeleteMessage";
        (call.action == "DeleteMessage").then_some(reply)
    });
    let run = queues.command(&["delete", "--all", "--yes", "--visibility-timeout", "5", "--json"]).output();
    let output = tokio::time::timeout(Duration::from_secs(40), run).await.expect("it ends").unwrap();
    let (code, output) = Output::new(output).json();
    assert_eq!((code, results(&output)), (1, vec!["MAYBE_DELETED"]), "{output}");
    assert_eq!((&output["lost"], &output["still_hidden"]), (&json!(0), &json!(0)), "{output}");
}

/// The visibility timeout of the letter that is being deleted cannot be extended, and is not over when the delete has
/// its reply.
#[tokio::test]
async fn a_letter_that_is_hidden_when_its_slow_delete_has_a_reply_is_deleted() {
    let queues = Queues::standard().await;
    queues.add("0", &json!({}));
    let over = Arc::new(Notify::new());
    let delayed = Arc::clone(&over);
    queues.api.fail(move |call| match call.action.as_str() {
        "DeleteMessage" => Some(Fault::Delay(Arc::clone(&delayed))),
        _ => extends(call).then_some(ACCESS_DENIED),
    });
    let run = queues.command(&["delete", "--all", "--yes", "--visibility-timeout", "10", "--json"]).spawn().unwrap();
    queues.api.called("ChangeMessageVisibilityBatch", 1).await;
    over.notify_one();
    let (code, output) = Output::new(run.wait_with_output().await.unwrap()).json();
    assert_eq!((code, results(&output), &output["lost"]), (0, vec!["DELETED"], &json!(0)), "{output}");
    assert!(queues.dead.is_empty());
}
