//! Sends a request, and determines whether a failed one may have been sent.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use http_body::{Body, Frame, SizeHint};
use reqwest::{Request, RequestBuilder, Response};
use tokio::time::{Instant, timeout_at};

use crate::idempotency::WorkError;

/// Largest size of the headers at which the poll of the body shows that sending starts, bytes. hyper 1 writes the start
/// of a head of more than 408 KiB before it polls the body.
const MAX_TRACKED_HEAD: usize = 64 * 1024;

/// Sends the request with this body, and returns the response once its headers are received. Stops at `until`.
///
/// # Errors
/// [`WorkError::unavailable`] if no byte was sent, else [`WorkError::uncertain`].
pub(super) async fn send(request: RequestBuilder, body: &str, until: Instant) -> Result<Response, WorkError> {
    let state = SendState::default();
    let tracked = TrackedBody { text: body.to_owned(), state: state.clone() };
    let (client, request) = request.body(reqwest::Body::wrap(tracked)).build_split();
    let request = request.map_err(|error| WorkError::unavailable(error.without_url()))?;
    // The client does not poll an empty body, and may write a part of long headers before it polls the body. So the
    // start of sending cannot be detected.
    if body.is_empty() || head_bytes(&request) > MAX_TRACKED_HEAD {
        state.start();
    }
    match timeout_at(until, client.execute(request)).await {
        Ok(Ok(response)) => Ok(response),
        Ok(Err(error)) if error.is_connect() || !state.cancel() => Err(WorkError::unavailable(error.without_url())),
        Ok(Err(error)) => Err(WorkError::uncertain(error.without_url())),
        Err(_elapsed) if !state.cancel() => {
            Err(WorkError::unavailable("no connection to the webhook within the timeout"))
        }
        Err(_elapsed) => Err(WorkError::uncertain("no response from the webhook within the timeout")),
    }
}

fn head_bytes(request: &Request) -> usize {
    request.headers().iter().map(|(name, value)| name.as_str().len() + value.len()).sum()
}

/// Whether a request was started or cancelled, whichever comes first. The connection starts it before the first byte is
/// written, and the caller cancels it after a failure. A request that was cancelled first is never sent.
#[derive(Clone, Default)]
struct SendState(Arc<OnceLock<bool>>);

impl SendState {
    /// Cancels the request. Returns whether any of it may have been sent.
    fn cancel(&self) -> bool {
        *self.0.get_or_init(|| false)
    }

    /// Starts the request. Returns whether it may be sent.
    fn start(&self) -> bool {
        *self.0.get_or_init(|| true)
    }
}

/// The body of a request. An HTTP/1 connection polls it when the headers are in its buffer, and before it writes any
/// byte, unless the body is empty or the headers are longer than its buffer.
struct TrackedBody {
    text: String,
    state: SendState,
}

impl Body for TrackedBody {
    type Data = <String as Body>::Data;
    type Error = Cancelled;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        if !self.state.start() {
            return Poll::Ready(Some(Err(Cancelled)));
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
#[error("the request was cancelled before it was sent")]
struct Cancelled;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use reqwest::Client;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpSocket};

    use crate::idempotency::WorkErrorKind;

    use super::*;

    #[tokio::test]
    async fn no_byte_of_a_request_cancelled_before_its_start_is_sent() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", server.local_addr().unwrap());
        let body = TrackedBody { text: "payload".into(), state: SendState::default() };
        assert!(!body.state.cancel());
        let request = Client::new().post(url).body(reqwest::Body::wrap(body));
        let (response, received) =
            tokio::join!(request.send(), async { server.accept().await.unwrap().0.read(&mut [0]).await.unwrap() });
        assert!(response.is_err());
        assert_eq!(received, 0);
    }

    #[tokio::test]
    async fn a_request_that_could_not_be_started_is_unavailable() {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let request = || Client::new().post(format!("http://{}/", socket.local_addr().unwrap()));
        let until = Instant::now() + Duration::from_secs(20);
        for (request, body) in [(request(), "payload"), (request(), ""), (request().header("no header", ""), "payload")]
        {
            let response = send(request, body, until).await;
            assert_eq!(response.unwrap_err().kind(), WorkErrorKind::Unavailable { after: None }, "{body:?}");
        }
    }

    #[tokio::test]
    async fn a_request_whose_long_head_is_sent_in_part_is_uncertain() {
        // A socket buffers less than this.
        let key = "k".repeat(8_000_000);
        for closes in [true, false] {
            let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let request = Client::new().post(format!("http://{}/", server.local_addr().unwrap()));
            let until = Instant::now() + Duration::from_secs(if closes { 20 } else { 1 });
            let (response, _kept) =
                tokio::join!(send(request.header("Idempotency-Key", &key), "payload", until), async {
                    let mut connection = server.accept().await.unwrap().0;
                    assert!(connection.read_u8().await.is_ok());
                    (!closes).then_some(connection)
                });
            assert_eq!(response.unwrap_err().kind(), WorkErrorKind::Uncertain, "{closes}");
        }
    }

    #[tokio::test]
    async fn a_started_request_without_a_response_is_uncertain_also_if_its_body_is_empty() {
        for body in ["payload", ""] {
            let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let request = Client::new().post(format!("http://{}/", server.local_addr().unwrap()));
            let until = Instant::now() + Duration::from_secs(20);
            let (response, ()) = tokio::join!(send(request, body, until), async {
                let mut connection = server.accept().await.unwrap().0;
                assert!(connection.read_u8().await.is_ok());
                connection.shutdown().await.unwrap();
            });
            assert_eq!(response.unwrap_err().kind(), WorkErrorKind::Uncertain, "{body:?}");
        }
    }
}
