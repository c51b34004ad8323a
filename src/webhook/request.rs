//! Sends a request, and knows of one that failed whether any of it was sent.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use http_body::{Body, Frame, SizeHint};
use reqwest::{RequestBuilder, Response};
use tokio::time::{Instant, timeout_at};

use crate::idempotency::WorkError;

/// Send the request with this body. The answer, once its head has come, and no later than `until`.
pub(super) async fn send(request: RequestBuilder, body: &str, until: Instant) -> Result<Response, WorkError> {
    let sent = Sent::default();
    if body.is_empty() {
        // A connection does not ask for an empty body, so the request may be sent at any time.
        sent.begin();
    }
    let body = Text { text: body.to_owned(), sent: sent.clone() };
    match timeout_at(until, request.body(reqwest::Body::wrap(body)).send()).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) if error.is_connect() || !sent.give_up() => Err(WorkError::unavailable(error.without_url())),
        Ok(Err(error)) => Err(WorkError::uncertain(error.without_url())),
        Err(_elapsed) if !sent.give_up() => Err(WorkError::unavailable("no connection to the webhook in time")),
        Err(_elapsed) => Err(WorkError::uncertain("the webhook did not answer in time")),
    }
}

/// Whether any of a request may have been sent. Its connection says so before it writes the first byte, and the caller
/// when it gives the request up; whichever comes first decides. So what was given up as unsent is never sent.
#[derive(Clone, Default)]
struct Sent(Arc<OnceLock<bool>>);

impl Sent {
    /// The caller gives the request up. Whether any of it may have been sent.
    fn give_up(&self) -> bool {
        *self.0.get_or_init(|| false)
    }

    /// The connection is about to send the request. Whether it still may.
    fn begin(&self) -> bool {
        *self.0.get_or_init(|| true)
    }
}

/// A connection of HTTP/1 asks for the body once it has the head in its buffer, and before it writes either.
struct Text {
    text: String,
    sent: Sent,
}

impl Body for Text {
    type Data = <String as Body>::Data;
    type Error = GivenUp;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        if !self.sent.begin() {
            return Poll::Ready(Some(Err(GivenUp)));
        }
        Pin::new(&mut self.text).poll_frame(cx).map_err(|never| match never {})
    }

    fn is_end_stream(&self) -> bool {
        self.text.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.text.size_hint()
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the request was given up before it was sent")]
struct GivenUp;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use reqwest::Client;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpSocket};

    use crate::idempotency::WorkErrorKind;

    use super::*;

    #[tokio::test]
    async fn of_a_request_that_was_given_up_in_time_no_byte_is_sent() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", server.local_addr().unwrap());
        let body = Text { text: "payload".into(), sent: Sent::default() };
        assert!(!body.sent.give_up());
        let request = Client::new().post(url).body(reqwest::Body::wrap(body));
        let (answer, received) =
            tokio::join!(request.send(), async { server.accept().await.unwrap().0.read(&mut [0]).await.unwrap() });
        assert!(answer.is_err());
        assert_eq!(received, 0);
    }

    #[tokio::test]
    async fn a_request_that_could_not_be_begun_was_not_sent() {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let request = || Client::new().post(format!("http://{}/", socket.local_addr().unwrap()));
        let until = Instant::now() + Duration::from_secs(20);
        for (request, body) in [(request(), "payload"), (request(), ""), (request().header("no header", ""), "payload")]
        {
            let answer = send(request, body, until).await;
            assert_eq!(answer.unwrap_err().kind(), WorkErrorKind::Unavailable { after: None }, "{body:?}");
        }
    }

    #[tokio::test]
    async fn a_request_that_was_begun_may_have_arrived_also_if_its_body_is_empty() {
        for body in ["payload", ""] {
            let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let request = Client::new().post(format!("http://{}/", server.local_addr().unwrap()));
            let until = Instant::now() + Duration::from_secs(20);
            let (answer, ()) = tokio::join!(send(request, body, until), async {
                let mut connection = server.accept().await.unwrap().0;
                assert!(connection.read_u8().await.is_ok());
                connection.shutdown().await.unwrap();
            });
            assert_eq!(answer.unwrap_err().kind(), WorkErrorKind::Uncertain, "{body:?}");
        }
    }
}
