//! `redrive` that is killed or interrupted.

use std::collections::BTreeSet;
use std::sync::Arc;

use harness::soon;
use harness::sqs::Fault;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::super::{Output, closed};
use super::{Queues, bodies, results};

pub(super) async fn signal(child: &Child, signal: &str) {
    let status = Command::new("kill").args([signal, &child.id().unwrap().to_string()]).status().await;
    assert!(status.unwrap().success());
}

/// Sends SIGINT, and returns when the process has noticed it.
async fn interrupt(run: &mut Child) {
    signal(run, "-INT").await;
    let mut lines = BufReader::new(run.stderr.take().unwrap()).lines();
    let line = soon(lines.next_line()).await.unwrap().unwrap();
    assert!(line.starts_with("interrupted: "), "{line}");
}

/// Delays a call until a notification. Returns what to notify, and a channel that reports its arrival.
fn delay(queues: &Queues, action: &'static str, number: u32) -> (Arc<Notify>, UnboundedReceiver<()>) {
    let over = Arc::new(Notify::new());
    let (arrived, delayed) = unbounded_channel();
    let (mut calls, delay) = (0, Arc::clone(&over));
    queues.api.fail(move |call| {
        calls += u32::from(call.action == action);
        (call.action == action && calls == number).then(|| {
            arrived.send(()).unwrap();
            Fault::Delay(Arc::clone(&delay))
        })
    });
    (over, delayed)
}

/// Kills the process while this call of the third letter has no reply: the number of messages in each queue.
async fn killed_at(action: &'static str, fault: Fault) -> (usize, usize) {
    let queues = Queues::standard().await;
    (0..5).for_each(|n| drop(queues.add(&n.to_string(), &json!({}))));
    let mut calls = 0;
    queues.api.fail(move |call| {
        calls += u32::from(call.action == action);
        (call.action == action && calls == 3).then(|| fault.clone())
    });
    let mut run = queues.command(&["redrive", "--all", "--yes", "--rate", "1000"]).spawn().unwrap();
    queues.api.called(action, 3).await;
    run.start_kill().unwrap();
    soon(run.wait()).await.unwrap();
    let (sent, left) = (queues.payments.visible(), queues.dead.visible() + queues.dead.in_flight());
    let all: BTreeSet<_> = bodies(&queues.payments).into_iter().collect();
    assert_eq!(all.len(), sent, "none was sent twice");
    (sent, left)
}

#[tokio::test]
async fn a_kill_at_any_moment_loses_no_letter_and_leaves_at_most_one_in_both_queues() {
    assert_eq!(killed_at("SendMessage", Fault::HoldRequest).await, (2, 3));
    assert_eq!(killed_at("SendMessage", Fault::HoldReply).await, (3, 3), "sent and not deleted");
    assert_eq!(killed_at("DeleteMessage", Fault::HoldRequest).await, (3, 3), "sent and not deleted");
    assert_eq!(killed_at("DeleteMessage", Fault::HoldReply).await, (3, 2));
}

#[tokio::test]
async fn a_kill_during_a_receive_loses_no_letter() {
    for fault in [Fault::HoldRequest, Fault::HoldReply] {
        let queues = Queues::standard().await;
        (0..5).for_each(|n| drop(queues.add(&n.to_string(), &json!({}))));
        queues.api.fail(move |call| (call.action == "ReceiveMessage").then(|| fault.clone()));
        let mut run = queues.command(&["redrive", "--all", "--yes"]).spawn().unwrap();
        queues.api.called("ReceiveMessage", 1).await;
        run.start_kill().unwrap();
        soon(run.wait()).await.unwrap();
        assert_eq!((queues.dead.visible() + queues.dead.in_flight(), queues.payments.visible()), (5, 0));
    }
}

#[tokio::test]
async fn after_an_interrupt_the_other_letters_are_visible_at_once_and_each_is_in_one_queue() {
    for name in ["-INT", "-TERM"] {
        let queues = Queues::standard().await;
        (0..15).for_each(|n| drop(queues.add(&n.to_string(), &json!({}))));
        let run = queues.command(&["redrive", "--all", "--yes", "--rate", "1", "--json"]).spawn().unwrap();
        queues.api.called("DeleteMessage", 1).await;
        signal(&run, name).await;
        let (code, output) = Output::new(soon(run.wait_with_output()).await.unwrap()).json();
        assert_eq!((code, &output["interrupted"], &output["complete"]), (1, &json!(true), &json!(false)));
        let sent = results(&output).iter().filter(|result| **result == "REDRIVEN").count();
        assert_eq!((queues.payments.visible(), queues.dead.visible(), queues.dead.in_flight()), (sent, 15 - sent, 0));
        let both: BTreeSet<_> = bodies(&queues.payments).into_iter().chain(bodies(&queues.dead)).collect();
        assert_eq!(both.len(), 15);
    }
}

#[tokio::test]
async fn an_interrupt_ends_a_run_also_if_stderr_has_no_reader() {
    let queues = Queues::standard().await;
    (0..15).for_each(|n| drop(queues.add(&n.to_string(), &json!({}))));
    let mut command = queues.command(&["redrive", "--all", "--yes", "--rate", "1", "--json"]);
    let run = command.stderr(closed()).spawn().unwrap();
    queues.api.called("DeleteMessage", 1).await;
    signal(&run, "-INT").await;
    let (code, output) = Output::new(soon(run.wait_with_output()).await.unwrap()).json();
    assert_eq!((code, &output["interrupted"]), (1, &json!(true)));
}

#[tokio::test]
async fn an_interrupt_during_a_send_waits_for_it_and_deletes_its_letter() {
    let queues = Queues::standard().await;
    (0..3).for_each(|n| drop(queues.add(&n.to_string(), &json!({}))));
    let (delay, mut delayed) = delay(&queues, "SendMessage", 1);
    let mut run = queues.command(&["redrive", "--all", "--yes", "--json"]).spawn().unwrap();
    soon(delayed.recv()).await.unwrap();
    interrupt(&mut run).await;
    delay.notify_one();
    let (code, output) = Output::new(soon(run.wait_with_output()).await.unwrap()).json();
    assert_eq!((code, results(&output)), (1, vec!["REDRIVEN"]));
    assert_eq!((queues.payments.visible(), queues.dead.visible(), queues.dead.in_flight()), (1, 2, 0));
}

#[tokio::test]
async fn an_interrupted_list_makes_its_letters_visible_again() {
    let queues = Queues::standard().await;
    (0..15).for_each(|n| drop(queues.add(&n.to_string(), &json!({}))));
    let (delay, mut delayed) = delay(&queues, "ReceiveMessage", 2);
    let mut run = queues.command(&["list", "--json"]).spawn().unwrap();
    soon(delayed.recv()).await.unwrap();
    interrupt(&mut run).await;
    delay.notify_one();
    let (code, output) = Output::new(soon(run.wait_with_output()).await.unwrap()).json();
    assert_eq!((code, &output["interrupted"]), (1, &json!(true)));
    assert_eq!((queues.dead.visible(), queues.dead.in_flight()), (15, 0));
}
