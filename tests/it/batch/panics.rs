//! Panics of the work outside of its run.

use std::error::Error;
use std::fmt;
use std::future::pending;
use std::panic::panic_any;

use super::{TIME, many, settings};
use harness::with;
use idempotent_sqs::idempotency::{Claim, Deadline, Idempotency, Policy, Work, WorkError};
use idempotent_sqs::sqs::{Batch, Disposition, Message, MessageReport};
use idempotent_sqs::stores::MemoryStore;

/// Panics when it is dropped.
#[derive(Debug)]
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("dropped");
    }
}

/// Panics when it is formatted.
#[derive(Debug)]
struct Unprintable;

impl Error for Unprintable {}

impl fmt::Display for Unprintable {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("formatted");
    }
}

/// What panics in the work on the message `m1`: the payload of a panic or of a panic of its receiver, the text of its error,
/// or a destructor at the deadline.
#[derive(Clone, Copy, Debug)]
enum Panics {
    Payload,
    ErrorText,
    CancelledDestructor,
    ReceiverPayload,
}

impl Work<Message> for Panics {
    async fn run(&self, _: &Claim, message: &Message) -> Result<Vec<u8>, WorkError> {
        if message.id == "m1" {
            match self {
                Self::Payload => panic_any(Bomb),
                Self::ErrorText => return Err(WorkError::uncertain(Unprintable)),
                Self::CancelledDestructor => {
                    let _bomb = Bomb;
                    pending::<()>().await;
                }
                Self::ReceiverPayload => {}
            }
        }
        Ok(Vec::new())
    }

    fn receiver<'a>(&'a self, message: &'a Message) -> &'a str {
        match self {
            Self::ReceiverPayload if message.id == "m1" => panic_any(Bomb),
            _ => "webhook",
        }
    }
}

async fn run(panics: Panics) -> Vec<MessageReport> {
    let idempotency = Idempotency::new(MemoryStore::default(), Policy::default());
    let batch = Batch::new(idempotency, panics, with!(settings(), concurrency = 3.try_into().unwrap()));
    batch.run(&many(3), Deadline::within(TIME)).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_destructor_or_in_the_text_of_an_error_does_not_affect_other_messages() {
    for panics in [Panics::Payload, Panics::ErrorText, Panics::CancelledDestructor] {
        let reports = run(panics).await;
        assert_eq!((reports[0].disposition, reports[2].disposition), (Disposition::Done, Disposition::Done));
        assert!(matches!(reports[1].disposition, Disposition::Redeliver { .. }), "{panics:?}: {:?}", reports[1]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_whose_receiver_panics_with_a_payload_that_panics_has_the_default_receiver() {
    let reports = run(Panics::ReceiverPayload).await;
    assert!(reports.iter().all(|report| report.disposition == Disposition::Done), "{reports:?}");
}
