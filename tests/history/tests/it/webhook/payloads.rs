//! Requests for payloads in S3, made by hand.

use history::{
    Answer, Call, Delivery, Invoked, Letter, ObjectAnswer, ObjectBody, ObjectCall, Pointer, Received, StoredPayload,
};
use idempotent_sqs::sqs::DeadLetterOutcome;

use super::{call, delivery, fail, is_one, letter, settled};
use history::hand_made::{Calls, calls, complete, release};

const OBJECT: &str = "payloads/one";

fn pointing(payload: StoredPayload, invocation: Invoked, visibility_s: Option<u64>) -> Delivery {
    let pointer = Pointer { object: OBJECT.to_owned(), payload };
    Delivery { pointer: Some(pointer), ..delivery(invocation, visibility_s) }
}

fn read(invocation: Invoked, visibility_s: Option<u64>) -> Delivery {
    pointing(StoredPayload::Text, invocation, visibility_s)
}

fn unreadable() -> Letter {
    letter(DeadLetterOutcome::Unreadable)
}

/// A request for the object, with this answer.
fn object_call(status: u16, body: ObjectBody) -> ObjectCall {
    let answer = ObjectAnswer { status: Some(status), body };
    ObjectCall { object: OBJECT.to_owned(), process: Some(0), at_us: 1000, answer }
}

fn faults(operations: Calls, delivery: Delivery, object_calls: Vec<ObjectCall>, letters: Vec<Letter>) -> Vec<String> {
    let received = Received { deliveries: vec![delivery], object_calls, letters, ..Received::default() };
    received.faults(&operations.history())
}

/// The faults of a delivery without operations, with requests that were answered with these statuses.
fn answered(delivery: Delivery, statuses: &[u16]) -> Vec<String> {
    let object_calls = statuses.iter().map(|status| object_call(*status, ObjectBody::Text)).collect();
    faults(calls(), delivery, object_calls, vec![])
}

#[test]
fn a_payload_is_requested_again_while_it_is_unavailable_and_not_otherwise() {
    let named = || read(Invoked::Named, Some(1));
    for (statuses, wrong) in [
        (&[503, 503, 503][..], ""),
        (&[503, 429, 500], ""),
        (&[503, 403], ""),
        (&[403], ""),
        (&[503], "not requested again"),
        (&[503, 429], "not requested again"),
        (&[503, 404], ""),
        (&[403, 403], "without need"),
        (&[307, 200], "without need"),
        (&[503, 503, 503, 503], "without need"),
    ] {
        let faults = answered(named(), statuses);
        if wrong.is_empty() {
            assert!(faults.is_empty(), "{statuses:?}: {faults:#?}");
        } else {
            is_one(&faults, wrong);
        }
    }
    let late = Delivery { ended_us: 1_500_000, ..named() };
    assert_eq!(answered(late, &[503]), Vec::<String>::new());
}

#[test]
fn a_message_whose_payload_is_not_returned_is_delivered_again_after_its_backoff() {
    // The 404 is not `NoSuchKey`.
    for status in [503, 403, 404, 307] {
        let statuses = if status == 503 { vec![status; 3] } else { vec![status] };
        for (invocation, visibility_s, right) in [
            (Invoked::Named, Some(2), true),
            (Invoked::Named, Some(3), false),
            (Invoked::Named, None, false),
            (Invoked::NotNamed, None, false),
            (Invoked::Unknown, None, true),
        ] {
            let faults = answered(read(invocation, visibility_s), &statuses);
            assert_eq!(faults.is_empty(), right, "{status}: {faults:#?}");
        }
    }
}

#[test]
fn a_message_that_cannot_be_read_is_a_dead_letter_or_done_before() {
    use StoredPayload::{Missing, NotAllowed, OtherName, Unreadable};
    let large = object_call(200, ObjectBody::Unreadable);
    let requests = [(Missing, vec![object_call(404, ObjectBody::Missing)]), (Unreadable, vec![large])];
    for (payload, object_calls) in requests.into_iter().chain([(NotAllowed, vec![]), (OtherName, vec![])]) {
        let faults = |operations, letters: Vec<Letter>| {
            faults(operations, pointing(payload, Invoked::NotNamed, None), object_calls.clone(), letters)
        };
        assert_eq!(faults(calls(), vec![unreadable()]), Vec::<String>::new(), "{payload:?}");
        is_one(&faults(calls(), vec![]), "acknowledged without its payload");
        is_one(&faults(calls(), vec![letter(DeadLetterOutcome::Mismatch)]), "for another reason");
    }
    is_one(&faults(calls(), read(Invoked::NotNamed, None), vec![], vec![]), "its payload was not requested");
    let text = vec![object_call(200, ObjectBody::Text)];
    is_one(&faults(calls(), read(Invoked::Named, Some(1)), text, vec![unreadable()]), "can succeed");
}

#[test]
fn a_run_without_its_payload_fails_permanently_if_it_is_missing_and_is_released_otherwise() {
    use StoredPayload::{DeletedOnceDone, Missing, Text, Unreadable};
    let ways: [fn() -> Call; 2] = [|| release(1, 1), || fail(false, true)];
    for (payload, right) in
        [(Missing, [false, true]), (DeletedOnceDone, [true, true]), (Unreadable, [true, false]), (Text, [true, false])]
    {
        for (way, right) in ways.iter().zip(right) {
            let delivery = pointing(payload, Invoked::Unknown, None);
            let faults = faults(settled(10, way()), delivery, vec![], vec![]);
            assert_eq!(faults.is_empty(), right, "{payload:?}: {faults:#?}");
        }
    }
}

#[test]
fn a_payload_that_was_deleted_is_a_dead_letter_only_after_its_message_failed() {
    let gone = || pointing(StoredPayload::DeletedOnceDone, Invoked::NotNamed, None);
    let missing = || vec![object_call(404, ObjectBody::Missing)];
    assert_eq!(faults(settled(10, fail(false, true)), gone(), missing(), vec![unreadable()]), Vec::<String>::new());
    let released = settled(10, release(1, 1));
    is_one(&faults(released, gone(), missing(), vec![unreadable()]), "can succeed");
    let done = calls().answered(10, 12, complete(1, 1), Answer::Recorded);
    assert_eq!(faults(done, gone(), missing(), vec![]), Vec::<String>::new());
}

#[test]
fn a_request_for_another_object_or_without_a_signature_is_found() {
    let other = ObjectCall { object: "secrets/one".to_owned(), ..object_call(200, ObjectBody::Text) };
    let not_signed = ObjectCall { process: None, ..object_call(200, ObjectBody::Text) };
    for wrong in [other, not_signed] {
        is_one(
            &faults(calls(), read(Invoked::Unknown, None), vec![wrong], vec![]),
            "is not signed, or is for no payload",
        );
    }
    for payload in [StoredPayload::NotAllowed, StoredPayload::OtherName] {
        let requested = vec![object_call(200, ObjectBody::Text)];
        is_one(&faults(calls(), pointing(payload, Invoked::Unknown, None), requested, vec![]), "for no payload");
    }
}

#[test]
fn a_request_to_the_webhook_needs_the_payload() {
    let run = |object_calls: Vec<ObjectCall>| {
        let deliveries = vec![read(Invoked::NotNamed, None)];
        let received = Received { calls: vec![call(200)], deliveries, object_calls, ..Received::default() };
        received.faults(&settled(10, complete(1, 1)).history())
    };
    assert_eq!(run(vec![object_call(200, ObjectBody::Text)]), Vec::<String>::new());
    for (status, body) in [(200, ObjectBody::Incomplete), (200, ObjectBody::Unreadable), (403, ObjectBody::Text)] {
        let faults = run(vec![object_call(status, body)]);
        assert!(faults.iter().any(|fault| fault.contains("without the payload in S3")), "{faults:#?}");
    }
}
