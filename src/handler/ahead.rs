//! An event, read from where it lies.
//!
//! `lambda_runtime` gives an event as a [`Deserializer`]. What has failed in one cannot be read again, so a record
//! that is not as SQS writes them would spoil its neighbours, unless the whole text were found first, which takes
//! nearly as long as to read it. So it is read here, where its bytes are at hand.

use std::cell::Cell;
use std::task::{Context, Poll};

use lambda_runtime::{LambdaInvocation, Service};
use serde::{Deserialize, Deserializer};

use crate::sqs::Received;

tokio::task_local! {
    /// The event of the invocation that is being handed over.
    static READ: Cell<Option<Received>>;
}

/// Reads an invocation's event, and hands the invocation over.
#[derive(Clone, Debug)]
pub(super) struct Ahead<S>(pub(super) S);

impl<S: Service<LambdaInvocation>> Service<LambdaInvocation> for Ahead<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, invocation: LambdaInvocation) -> S::Future {
        let read = Received::read(&invocation.body);
        READ.sync_scope(Cell::new(Some(read)), || self.0.call(invocation))
    }
}

/// An event that was read by [`Ahead`].
#[derive(Debug)]
pub(super) struct ReadAhead(pub(super) Received);

impl<'de> Deserialize<'de> for ReadAhead {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match READ.try_with(Cell::take) {
            // What it was read from stays unread here, and nobody asks for its end.
            Ok(Some(read)) => Ok(Self(read)),
            // Asked for later than at the handing over, as may once be. That must cost no more than time.
            Ok(None) | Err(_) => Received::deserialize(from).map(Self),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use lambda_runtime::service_fn;
    use serde_json::Deserializer;

    use super::*;

    fn invocation(event: &'static str) -> LambdaInvocation {
        let (parts, ()) = http::Response::new(()).into_parts();
        LambdaInvocation { parts, body: event.as_bytes().into(), context: lambda_runtime::Context::default() }
    }

    fn ids(ReadAhead(Received(messages)): ReadAhead) -> Vec<String> {
        messages.unwrap().into_iter().map(|message| message.id).collect()
    }

    #[tokio::test]
    async fn each_invocation_gets_its_own_event_without_another_reading() {
        let from_nothing = |_: LambdaInvocation| ready(ReadAhead::deserialize(&mut Deserializer::from_str("")));
        let mut service = Ahead(service_fn(from_nothing));
        for (event, id) in [(r#"{"Records":[{"messageId":"1"}]}"#, "1"), (r#"{"Records":[{"messageId":"2"}]}"#, "2")] {
            assert_eq!(ids(service.call(invocation(event)).await.unwrap()), [id]);
        }
    }

    #[tokio::test]
    async fn who_asks_for_an_event_later_reads_it_and_is_given_no_other() {
        let later =
            |_: LambdaInvocation| async { serde_json::from_str::<ReadAhead>(r#"{"Records":[{"messageId":"2"}]}"#) };
        let answer = Ahead(service_fn(later)).call(invocation(r#"{"Records":[{"messageId":"1"}]}"#)).await;
        assert_eq!(ids(answer.unwrap()), ["2"]);
    }
}
