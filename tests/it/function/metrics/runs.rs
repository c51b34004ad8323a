//! Metrics of runs of the work, and of claims that are not settled.

use std::time::Duration;

use super::super::{Fixture, pay};
use super::{NAMESPACE, document};
use harness::event::event;
use harness::http::Answer;

#[tokio::test]
async fn a_parked_message_is_no_run_of_the_work() {
    let fixture = Fixture::start().await;
    fixture.webhook.respond(Answer::status(500));
    let function = fixture.function_with(&[NAMESPACE, ("IDEMPOTENCY_RECOVERY", "park")]).await;
    function.invoke(event([pay("m1", "pay_1")])).await;
    function.invoke(event([pay("m1", "pay_1").received(2)])).await;
    assert_eq!(fixture.webhook.calls().len(), 1, "the second delivery was parked");
    let of_runs = ["Attempts", "WorkLatency", "LeaseRemaining"];
    let (first, parked) = (document(&function, 1).await, document(&function, 2).await);
    assert_eq!(of_runs.map(|metric| first.samples(metric)), [1, 1, 1]);
    assert_eq!(of_runs.map(|metric| parked.samples(metric)), [0, 0, 1]);
}

#[tokio::test]
async fn a_claim_that_could_not_be_settled_or_released_has_no_remaining_lease() {
    for status in [200, 503] {
        let mut fixture = Fixture::start().await;
        fixture.webhook.respond(Answer::Held);
        let function = fixture.function_with(&[NAMESPACE]).await;
        let invocation = function.begin(event([pay("m1", "pay_1")]), Duration::from_secs(5));
        fixture.webhook.called(1).await;
        fixture.redis.kill();
        fixture.webhook.respond(Answer::status(status));
        assert_eq!(invocation.failures().await, ["m1"]);
        let document = document(&function, 1).await;
        assert_eq!(["WorkLatency", "LeaseRemaining"].map(|metric| document.samples(metric)), [1, 0], "{status}");
    }
}
