//! Panics of the work outside of its run.

use std::error::Error;
use std::fmt;
use std::future::{pending, ready};
use std::panic::panic_any;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::{TIME, many, settings};
use harness::event::set_pointer;
use harness::with;
use idempotent_sqs::idempotency::{
    Claim, Deadline, Idempotency, Location, ObjectError, ObjectStore, OwnRecord, Policy, Work, WorkError,
};
use idempotent_sqs::sqs::{Batch, Disposition, ExtendedClient, Message, MessageReport};
use idempotent_sqs::stores::MemoryStore;

/// Panics when it is dropped.
#[derive(Debug)]
struct Bomb;

impl Error for Bomb {}

impl fmt::Display for Bomb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a bomb")
    }
}

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

/// What panics in the work on the message `m1`: the payload of a panic or of a panic of its receiver, the text or the
/// destructor of its error, or a destructor at the deadline. Its own record is found for every message.
#[derive(Clone, Copy, Debug)]
enum Panics {
    Payload,
    ErrorText,
    ErrorDestructor,
    CancelledDestructor,
    ReceiverPayload,
    OwnRecord,
}

impl Work<Message> for Panics {
    async fn run(&self, _: &Claim, message: &Message) -> Result<Vec<u8>, WorkError> {
        if message.id == "m1" {
            match self {
                Self::Payload => panic_any(Bomb),
                Self::ErrorText => return Err(WorkError::uncertain(Unprintable)),
                Self::ErrorDestructor => return Err(WorkError::retryable(Bomb)),
                Self::CancelledDestructor => {
                    let _bomb = Bomb;
                    pending::<()>().await;
                }
                Self::ReceiverPayload | Self::OwnRecord => {}
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

    fn own_record(&self) -> Option<&dyn OwnRecord<Message>> {
        match self {
            Self::OwnRecord => panic_any(Bomb),
            _ => None,
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
    for panics in [Panics::Payload, Panics::ErrorText, Panics::ErrorDestructor, Panics::CancelledDestructor] {
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

#[tokio::test(start_paused = true)]
async fn work_counts_as_one_without_its_own_record_if_finding_that_panics() {
    let reports = run(Panics::OwnRecord).await;
    assert!(reports.iter().all(|report| report.disposition == Disposition::Done), "{reports:?}");
}

/// Objects whose errors panic when they are dropped.
#[derive(Debug)]
struct Objects;

impl ObjectStore for Objects {
    fn get<'a>(&'a self, _: &'a Location, _: usize) -> BoxFuture<'a, Result<Vec<u8>, ObjectError>> {
        Box::pin(ready(Err(ObjectError::unavailable(Bomb))))
    }

    fn put<'a>(&'a self, _: &'a Location, _: Vec<u8>) -> BoxFuture<'a, Result<(), ObjectError>> {
        Box::pin(ready(Err(ObjectError::unavailable(Bomb))))
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_the_destructor_of_an_error_of_the_object_store_does_not_affect_other_messages() {
    let objects: Option<Arc<dyn ObjectStore>> = Some(Arc::new(Objects));
    let extended_client = with!(ExtendedClient::default(), objects = objects, buckets = vec!["payloads".into()]);
    let idempotency = Idempotency::new(MemoryStore::default(), Policy::default());
    let batch = Batch::new(idempotency, Panics::ReceiverPayload, with!(settings(), extended_client = extended_client));
    let mut messages = many(3);
    set_pointer(&mut messages[0], "payloads", "one");
    let reports = batch.run(&messages, Deadline::within(TIME)).await.unwrap();
    assert_eq!([&reports[1], &reports[2]].map(|report| report.disposition), [Disposition::Done; 2]);
    assert!(reports[0].reason.ends_with("S3 is unavailable: a bomb"), "{:?}", reports[0]);
}
