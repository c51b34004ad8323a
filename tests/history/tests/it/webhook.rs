//! Requests to a webhook, runs and redeliveries made by hand, in which something is wrong or nothing is.

mod payloads;
mod spans;

use std::time::Duration;

use history::{
    Answer, Call, Claim, Delivery, Invoked, Letter, Received, Request, ReusedConnection, WebhookAnswer, WebhookCall,
};

use idempotent_sqs::sqs::DeadLetterOutcome;

use history::hand_made::{Calls, KEY, MESSAGE, acquire, acquired, calls, claim, complete, fence, release, request};

/// Changes one part of a request.
type Change = fn(&mut WebhookCall);

/// The request of the claim that was acquired at 1 ms, with this answer.
fn call(status: u16) -> WebhookCall {
    WebhookCall {
        key: KEY.to_owned(),
        fence: fence(1),
        attempt: 1,
        receive_count: Some(1),
        is_recovery: false,
        content_type: "application/json".to_owned(),
        body: "7".to_owned(),
        at_us: 5000,
        idle_us: None,
        answer: WebhookAnswer { status: Some(status), ..WebhookAnswer::default() },
    }
}

fn delivery(invocation: Invoked, visibility_s: Option<u64>) -> Delivery {
    let (message_id, key, body) = (MESSAGE.to_owned(), KEY.to_owned(), "7".to_owned());
    Delivery {
        message_id,
        key,
        body,
        pointer: None,
        receive_count: 1,
        process: 0,
        sender: None,
        begun_us: 0,
        ended_us: 100_000,
        is_malformed: false,
        invocation,
        visibility_s,
    }
}

fn letter(outcome: DeadLetterOutcome) -> Letter {
    Letter { message_id: MESSAGE.to_owned(), outcome }
}

fn fail(uncertain: bool, permanent: bool) -> Call {
    Call::Fail { claim: claim(1, 1), uncertain, permanent }
}

/// The run is settled by this call at this time.
fn settled(at_ms: u64, call: Call) -> Calls {
    calls().answered(0, 2, acquire(1), acquired(1, 1, false)).answered(at_ms, at_ms + 2, call, Answer::Recorded)
}

fn faults(operations: Calls, call: Option<WebhookCall>, delivery: Delivery) -> Vec<String> {
    let (calls, deliveries) = (call.into_iter().collect(), vec![delivery]);
    let received = Received { calls, deliveries, ..Received::default() };
    received.faults(&operations.history())
}

fn is_one(faults: &[String], text: &str) {
    assert!(faults.len() == 1 && faults[0].contains(text), "not only {text:?}: {faults:#?}");
}

#[test]
fn each_answer_has_one_way_to_settle_its_run() {
    let ways = [complete(1, 1), release(1, 1), fail(true, false), fail(false, true), fail(false, false)];
    let statuses: [(usize, &[u16]); 4] = [
        (0, &[200, 201, 204, 299]),
        (1, &[409, 425, 429, 503]),
        (2, &[100, 199, 408, 500, 502, 504, 599, 600]),
        (3, &[300, 301, 307, 399, 400, 404, 407, 410, 422, 499]),
    ];
    for (right, statuses) in statuses {
        for (status, (number, way)) in
            statuses.iter().flat_map(|status| ways.iter().enumerate().map(move |way| (*status, way)))
        {
            // The invocation ended otherwise than by a response, so that nothing follows.
            let delivery = delivery(Invoked::Unknown, None);
            let faults = faults(settled(10, way.clone()), Some(call(status)), delivery);
            if number == right {
                assert!(faults.is_empty(), "{status}: {faults:#?}");
            } else {
                is_one(&faults, "settled otherwise");
            }
        }
    }
}

/// The uncertain failure of a run with this lease, by a call at this time.
fn uncertain(lease_ms: u64, at_ms: u64) -> Calls {
    let request = Request { lease_ms, ..request(1) };
    let claim = Claim { request: request.clone(), ..claim(1, 1) };
    let fail = Call::Fail { claim, uncertain: true, permanent: false };
    calls().answered(0, 2, Call::Acquire { request }, acquired(1, 1, false)).answered(
        at_ms,
        at_ms + 2,
        fail,
        Answer::Recorded,
    )
}

#[test]
fn a_run_may_be_uncertain_only_if_its_request_was_given_up_before_it_had_an_answer() {
    // The time for work ends after 150 ms with the first lease, and the timeout of a call after 650 ms.
    for (lease_ms, at_ms, received_ms, wrong) in
        [(1000, 100, 5, 1), (1000, 160, 5, 0), (5000, 600, 500, 1), (5000, 700, 500, 0), (5000, 700, 5, 1)]
    {
        let call = WebhookCall { at_us: received_ms * 1000, ..call(200) };
        let faults = faults(uncertain(lease_ms, at_ms), Some(call), delivery(Invoked::Unknown, None));
        assert_eq!(faults.len(), wrong, "{at_ms} {received_ms}: {faults:#?}");
    }
    let stopped_us = vec![300_000];
    let (calls, deliveries) = (vec![call(200)], vec![delivery(Invoked::Unknown, None)]);
    let received = Received { calls, deliveries, stopped_us, ..Received::default() };
    assert_eq!(received.faults(&uncertain(5000, 700).history()), Vec::<String>::new());
}

#[test]
fn a_run_without_a_request_may_be_uncertain_only_if_it_was_lost_or_a_process_was_stopped() {
    for (at_ms, closed_us, wrong) in [(100, 5000, 0), (100, 100_001, 1), (900, 900_001, 1)] {
        let received = Received { closed_us: vec![closed_us], ..Received::default() };
        assert_eq!(received.faults(&uncertain(1000, at_ms).history()).len(), wrong, "{closed_us}");
    }
    let received = Received { stopped_us: vec![5000], ..Received::default() };
    assert_eq!(received.faults(&uncertain(1000, 900).history()), Vec::<String>::new());
}

/// The client does not poll an empty body, so its start cannot be noticed.
#[test]
fn a_run_whose_request_has_no_body_may_be_uncertain_without_it() {
    for (body, wrong) in [("", 0), ("7", 1)] {
        let delivery = Delivery { body: body.to_owned(), ..delivery(Invoked::Unknown, None) };
        assert_eq!(faults(uncertain(1000, 900), None, delivery).len(), wrong, "{body:?}");
    }
}

#[test]
fn a_run_without_a_request_has_done_nothing() {
    let delivery = || delivery(Invoked::Unknown, None);
    assert_eq!(faults(settled(10, release(1, 1)), None, delivery()), Vec::<String>::new());
    is_one(&faults(settled(10, complete(1, 1)), None, delivery()), "settled otherwise");
}

#[test]
fn a_result_is_the_whole_body() {
    let with = |body: Option<&str>| {
        let mut call = call(200);
        call.answer.body = body.map(str::to_owned);
        faults(settled(10, complete(1, 1)), Some(call), delivery(Invoked::NotNamed, Some(1)))
    };
    assert_eq!(with(None), Vec::<String>::new());
    is_one(&with(Some("receipt")), "settled otherwise");
}

#[test]
fn a_request_that_is_not_that_of_its_message_and_claim_is_found() {
    let wrong: [(Change, &str); 8] = [
        (|call| call.body.push('7'), "not the key and the body"),
        (|call| call.content_type = "text/plain".to_owned(), "content type"),
        (|call| call.attempt = 2, "attempt or mark"),
        (|call| call.is_recovery = true, "attempt or mark"),
        (|call| call.receive_count = None, "no delivery"),
        (|call| call.receive_count = Some(2), "no delivery"),
        (|call| call.fence += 1, "of no claim"),
        (|call| call.idle_us = Some(4_500_001), "idle for too long"),
    ];
    let right = || settled(10, complete(1, 1));
    for (change, text) in wrong {
        let mut changed = call(200);
        change(&mut changed);
        let faults = faults(right(), Some(changed), delivery(Invoked::NotNamed, None));
        assert!(faults.iter().any(|fault| fault.contains(text)), "{text}: {faults:#?}");
    }
    let twice = Received {
        calls: vec![call(200); 2],
        deliveries: vec![delivery(Invoked::NotNamed, None)],
        ..Received::default()
    };
    is_one(&twice.faults(&right().history()), "more than once");
}

#[test]
fn a_connection_is_idle_for_too_long_only_if_no_process_was_stopped_shortly_before() {
    for (stopped_us, wrong) in [(vec![], 2), (vec![5_999_999], 2), (vec![6_000_000], 0), (vec![9_999_999], 0)] {
        let call = WebhookCall { at_us: 10_000_000, idle_us: Some(6_000_000), ..call(200) };
        let deliveries = vec![delivery(Invoked::NotNamed, None)];
        let reused = ReusedConnection { server: "SQS".to_owned(), at_us: 10_000_000, idle_us: 6_000_000 };
        let (calls, reused_connections) = (vec![call], vec![reused]);
        let received = Received { calls, deliveries, stopped_us, reused_connections, ..Received::default() };
        assert_eq!(received.faults(&settled(10, complete(1, 1)).history()).len(), wrong);
    }
}

#[test]
fn a_run_whose_invocation_returned_is_settled() {
    let begun = || calls().answered(0, 2, acquire(1), acquired(1, 1, false));
    is_one(&faults(begun(), Some(call(503)), delivery(Invoked::Named, Some(1))), "was not settled");
    assert_eq!(faults(begun(), Some(call(503)), delivery(Invoked::Unknown, None)), Vec::<String>::new());
    let not_executed = begun().answered(10, 12, release(1, 1), Answer::NotExecuted);
    assert_eq!(faults(not_executed, Some(call(503)), delivery(Invoked::Named, Some(1))), Vec::<String>::new());
}

#[test]
fn the_visibility_timeout_is_the_backoff_or_what_the_webhook_asks_for() {
    let with = |retry_after_s: Option<u64>, visibility_s| {
        let mut call = call(503);
        call.answer.retry_after = retry_after_s.map(Duration::from_secs);
        faults(settled(10, release(1, 1)), Some(call), delivery(Invoked::Named, visibility_s))
    };
    for (asked, expected) in [(None, 1..=2), (Some(1), 1..=2), (Some(9), 8..=9), (Some(50_000), 42_000..=42_000)] {
        for after_s in [0, 1, 2, 3, 7, 8, 9, 10, 41_999, 42_000, 42_001, 50_000] {
            let faults = with(asked, Some(after_s));
            assert_eq!(faults.is_empty(), expected.contains(&after_s), "{asked:?}, {after_s}: {faults:#?}");
        }
        is_one(&with(asked, None), "the visibility timeout is None");
    }
}

#[test]
fn a_response_that_does_not_name_what_failed_or_names_what_is_done_is_found() {
    let named =
        |call, status, invocation| faults(settled(10, call), Some(self::call(status)), delivery(invocation, Some(1)));
    is_one(&named(release(1, 1), 503, Invoked::NotNamed), "does not name");
    is_one(&named(fail(true, false), 500, Invoked::NotNamed), "does not name");
    is_one(&named(complete(1, 1), 200, Invoked::Named), "a message that is done");
    is_one(&named(fail(false, true), 422, Invoked::NotNamed), "no dead letter");
}

#[test]
fn a_permanent_failure_is_a_dead_letter_or_delivered_again_and_nothing_else_is_a_dead_letter() {
    let letters = vec![letter(DeadLetterOutcome::FailedPermanently)];
    for (invocation, visibility_s, letters) in
        [(Invoked::NotNamed, None, letters.clone()), (Invoked::Named, Some(1), Vec::new())]
    {
        let (calls, deliveries) = (vec![call(422)], vec![delivery(invocation, visibility_s)]);
        let received = Received { calls, deliveries, letters, ..Received::default() };
        assert_eq!(received.faults(&settled(10, fail(false, true)).history()), Vec::<String>::new());
    }
    let deliveries = vec![delivery(Invoked::NotNamed, None)];
    let received = Received { calls: vec![call(200)], deliveries, letters, ..Received::default() };
    is_one(&received.faults(&settled(10, complete(1, 1)).history()), "can succeed");
    let (deliveries, letters) = (vec![delivery(Invoked::NotNamed, None)], vec![letter(DeadLetterOutcome::Mismatch)]);
    let received = Received { calls: vec![call(422)], deliveries, letters, ..Received::default() };
    is_one(&received.faults(&settled(10, fail(false, true)).history()), "for another reason");
}

#[test]
fn a_process_that_gets_no_answers_while_another_does_is_found() {
    let failing = |every_ms: u64| {
        let times = (0..2000).step_by(usize::try_from(every_ms).unwrap());
        times
            .fold(calls(), |before, at_ms| before.answered(at_ms, at_ms + 1, acquire(1), Answer::NotExecuted))
            .history()
    };
    // The third one has a call of the other process that fails at this time, of a part of the store.
    for (every_ms, other_ms, part_ms, wrong) in
        [(400, 10, None, 1), (1000, 10, None, 0), (400, 600, None, 0), (400, 10, Some(15), 1), (400, 10, Some(300), 0)]
    {
        let mut history = failing(every_ms);
        // Another process has another name, and its claim is released.
        let begun = calls().answered(other_ms, other_ms + 2, acquire(2), acquired(other_ms, 1, false));
        let settled = begun.answered(other_ms + 3, other_ms + 4, release(2, other_ms), Answer::Recorded);
        let in_part = |calls: Calls, at_ms: u64| calls.answered(at_ms, at_ms + 1, acquire(3), Answer::NotExecuted);
        let mut other = part_ms.into_iter().fold(settled, in_part).history();
        let operations = other.keys.values_mut().flatten().chain(&mut other.not_executed);
        operations.for_each(|operation| operation.process = "2".to_owned());
        history.add(other);
        assert_eq!(Received::default().faults(&history).len(), wrong, "{every_ms}, {other_ms}, {part_ms:?}");
    }
}

#[test]
fn a_malformed_record_or_an_outage_delays_messages_and_nothing_else_fails_an_invocation() {
    let with = |is_malformed, invocation, visibility_s| {
        let delivery = Delivery { is_malformed, ..delivery(invocation, visibility_s) };
        Received { deliveries: vec![delivery], ..Received::default() }.faults(&calls().history())
    };
    let error = |text: &str| Invoked::Error(text.to_owned());
    assert_eq!(with(true, Invoked::Named, Some(2)), Vec::<String>::new());
    let outage = || error("the idempotency store is unavailable");
    assert_eq!(with(false, outage(), Some(1)), Vec::<String>::new());
    is_one(&with(false, outage(), None), "not repeated");
    is_one(&with(true, outage(), Some(3)), "not repeated");
    is_one(&with(true, Invoked::Named, None), "not delivered again");
    is_one(&with(true, Invoked::NotNamed, None), "was acknowledged");
    is_one(&with(false, error("not an SQS event"), None), "an invocation failed");
}

#[test]
fn only_few_invocations_may_time_out() {
    let faults = |timeouts| Received { timeouts, ..Received::default() }.faults(&calls().history());
    assert_eq!(faults(3), Vec::<String>::new());
    is_one(&faults(4), "4 invocations timed out");
}

#[test]
fn in_a_failed_invocation_a_duplicate_waits_longer_than_its_message_and_a_conflict_for_its_lease() {
    let outage = || Invoked::Error("the idempotency store is unavailable".to_owned());
    let with = |duplicate: Delivery, answer| {
        let deliveries = vec![delivery(outage(), Some(1)), duplicate];
        let history = calls().answered(1, 2, acquire(1), answer).history();
        Received { deliveries, ..Received::default() }.faults(&history)
    };
    let duplicate = |after_s| Delivery { message_id: "other".to_owned(), ..delivery(outage(), Some(after_s)) };
    assert_eq!(with(duplicate(8), Answer::NotExecuted), Vec::<String>::new());
    for (other, text) in [
        (duplicate(3), "not repeated"),
        (duplicate(20), "not repeated"),
        (Delivery { body: "8".to_owned(), ..duplicate(8) }, "not repeated"),
        (Delivery { key: "other".to_owned(), ..duplicate(8) }, "not repeated"),
        (Delivery { begun_us: 1, ..duplicate(8) }, "not repeated"),
        (Delivery { process: 1, ..duplicate(8) }, "not repeated"),
        (delivery(outage(), Some(8)), "not repeated"),
    ] {
        is_one(&with(other, Answer::NotExecuted), text);
    }
    let in_conflict = |after_s| with(delivery(outage(), Some(after_s)), Answer::Conflict { remains_ms: 5000 });
    assert_eq!(in_conflict(6), Vec::<String>::new());
    is_one(&in_conflict(4), "not repeated");
    is_one(&in_conflict(8), "not repeated");
}
