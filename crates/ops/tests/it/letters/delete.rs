//! `delete`.

use serde_json::json;

use super::{Queues, bodies, results};

#[tokio::test]
async fn only_the_letters_that_match_are_deleted() {
    let queues = Queues::standard().await;
    for n in 0..25 {
        let outcome = if n == 12 { "NO_KEY" } else { "PARKED" };
        queues.add(&n.to_string(), &json!({ "outcome": outcome }));
    }
    let (code, output) = queues.json(&["delete", "--outcome", "PARKED", "--yes"]).await;
    assert_eq!((code, results(&output)), (0, vec!["DELETED"; 24]));
    assert_eq!((queues.dead.in_flight(), bodies(&queues.dead)), (0, vec!["12".to_owned()]));
    assert!(queues.payments.is_empty());
}

#[tokio::test]
async fn more_than_ten_letters_of_a_fifo_group_are_deleted() {
    let queues = Queues::fifo().await;
    (0..25).for_each(|n| drop(queues.add_to_group("a", &n.to_string())));
    let output = queues.run(&["delete", "--all", "--yes"]).await;
    assert_eq!((output.code, output.stdout.as_str()), (0, "25 deleted\n"));
    assert!(queues.dead.is_empty());
}

#[tokio::test]
async fn a_dry_run_and_a_limit_leave_letters_in_the_queue() {
    let queues = Queues::standard().await;
    (0..3).for_each(|n| drop(queues.add(&n.to_string(), &json!({}))));
    let (code, output) = queues.json(&["delete", "--all", "--dry-run"]).await;
    assert_eq!((code, results(&output)), (0, vec!["WOULD_DELETE"; 3]));
    assert!(queues.api.calls("DeleteMessage").is_empty());
    let (code, output) = queues.json(&["delete", "--all", "--yes", "--limit", "2"]).await;
    assert_eq!((code, results(&output)), (0, vec!["DELETED"; 2]));
    assert_eq!((queues.dead.visible(), queues.dead.in_flight()), (1, 0));
}
