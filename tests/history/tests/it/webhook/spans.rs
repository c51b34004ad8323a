//! Spans of deliveries made by hand.

use history::{Span, Traces};

use super::*;

/// The span of the delivery of a message that was acquired at 1 ms.
fn span() -> Span {
    Span {
        message_id: MESSAGE.to_owned(),
        process: 0,
        key: Some(KEY.to_owned()),
        name: "process payments".to_owned(),
        service: "billing".to_owned(),
        sender: None,
        why: String::new(),
        outcome: "ACQUIRED".to_owned(),
        fence: Some(fence(1)),
        attempt: Some(1),
        is_error: false,
        has_invocation: true,
        begun_us: 500,
        ended_us: 15_000,
        received_us: 16_000,
    }
}

fn faults(spans: Vec<Span>, delivery: Delivery) -> Vec<String> {
    let (calls, spans) = (vec![call(200)], Some(spans));
    let traces = [true, false].map(|are_sent| Traces { are_sent, service: "billing".to_owned() }).into();
    let received = Received { calls, deliveries: vec![delivery], spans, traces, ..Received::default() };
    received.faults(&settled(10, complete(1, 1)).history())
}

#[test]
fn each_delivery_whose_invocation_returned_in_time_has_one_span() {
    let delivery = || delivery(Invoked::NotNamed, None);
    assert_eq!(faults(vec![span()], delivery()), Vec::<String>::new());
    is_one(&faults(vec![], delivery()), "has no span");
    is_one(&faults(vec![span(), span()], delivery()), "more than one span");
    for other in [
        Span { process: 1, ..span() },
        Span { message_id: "another".to_owned(), ..span() },
        Span { begun_us: 200_000, ..span() },
    ] {
        is_one(&faults(vec![other], delivery()), "has no span");
    }
    let late = Delivery { ended_us: 1_100_000, ..delivery() };
    assert_eq!(faults(vec![], late), Vec::<String>::new());
    let of_silent = Delivery { process: 1, ..delivery() };
    assert_eq!(faults(vec![], of_silent.clone()), Vec::<String>::new());
    is_one(&faults(vec![Span { process: 1, ..span() }], of_silent), "was to send no span");
    let unknown = Delivery { invocation: Invoked::Unknown, ..delivery() };
    assert_eq!(faults(vec![], unknown), Vec::<String>::new());
}

#[test]
fn a_span_that_began_shortly_before_a_delivery_is_that_of_the_delivery_before() {
    let first = Delivery { ended_us: 700, ..delivery(Invoked::Unknown, None) };
    let second = Delivery { begun_us: 900, receive_count: 2, ..delivery(Invoked::NotNamed, None) };
    let of_second = |begun_us| Span { begun_us, outcome: "NOT_PROCESSED".to_owned(), ..span() };
    let with = |deliveries: &[&Delivery], spans| {
        let traces = vec![Traces { are_sent: true, service: "billing".to_owned() }];
        let deliveries = deliveries.iter().copied().cloned().collect();
        let received =
            Received { calls: vec![call(200)], deliveries, spans: Some(spans), traces, ..Received::default() };
        let faults = received.faults(&settled(10, complete(1, 1)).history());
        faults
            .into_iter()
            .filter(|fault| fault.contains("span"))
            .map(|fault| fault.split(": ").nth(1).unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(with(&[&first, &second], vec![span(), of_second(950)]), Vec::<String>::new());
    // By its clock it began a little too early.
    assert_eq!(with(&[&first, &second], vec![span(), of_second(800)]), Vec::<String>::new());
    assert_eq!(with(&[&second], vec![span(), of_second(950)]), ["this delivery has more than one span"]);
    assert_eq!(with(&[&first, &second], vec![span()]), ["this delivery has no span"]);
}

#[test]
fn a_span_that_differs_from_the_history_or_the_response_is_found() {
    let delivery = delivery(Invoked::NotNamed, None);
    for (other, text) in [
        (Span { has_invocation: false, ..span() }, "not one of an invocation"),
        (Span { ended_us: 400, ..span() }, "other times"),
        (Span { received_us: 14_000, ..span() }, "other times"),
        (Span { received_us: 100_001, ..span() }, "sent after the response"),
        (Span { key: Some("another".to_owned()), ..span() }, "another key"),
        (Span { key: None, ..span() }, "another key"),
        (Span { is_error: true, ..span() }, "another status"),
        (Span { why: "it failed".to_owned(), ..span() }, "why it failed"),
        (Span { service: "payments".to_owned(), ..span() }, "another service"),
        (Span { sender: Some("5759e988".to_owned()), ..span() }, "trace of its sender"),
        (Span { name: "message".to_owned(), ..span() }, "another name"),
        (Span { fence: Some(fence(2)), ..span() }, "otherwise than the store"),
        (Span { attempt: Some(2), ..span() }, "otherwise than the store"),
        (Span { outcome: "ACQUIRED_STALE".to_owned(), ..span() }, "otherwise than the store"),
        (Span { outcome: "DUPLICATE".to_owned(), ..span() }, "otherwise than the store"),
        (Span { outcome: "CONFLICT".to_owned(), ..span() }, "otherwise than the store"),
        (Span { outcome: "MISMATCH".to_owned(), ..span() }, "otherwise than the store"),
        (Span { outcome: "LOST".to_owned(), ..span() }, "otherwise than the store"),
    ] {
        is_one(&faults(vec![other], delivery.clone()), text);
    }
    let malformed = Delivery { is_malformed: true, invocation: Invoked::Error(String::new()), ..delivery };
    let faults = faults(vec![span()], malformed);
    assert!(faults.iter().any(|fault| fault.contains("does not say that it is malformed")), "{faults:#?}");
}
