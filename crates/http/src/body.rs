//! Bodies of requests and responses.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};

/// Body of a request for the inner service: read by the layer, or of a request that the layer passes on.
pub struct RequestBody<B> {
    body: Parts<B>,
}

/// Body of a response: read by the layer, or that of the inner service.
pub struct ResponseBody<B> {
    body: Parts<B>,
}

/// Frames that were read, and the rest of the body.
struct Parts<B> {
    read: VecDeque<Frame<Bytes>>,
    /// Boxed, because it may have to stay in place, and moves with the response.
    rest: Option<Pin<Box<B>>>,
}

impl<B: Body<Data = Bytes>> Parts<B> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match (self.read.pop_front(), &mut self.rest) {
            (Some(frame), _) => Poll::Ready(Some(Ok(frame))),
            (None, Some(rest)) => rest.as_mut().poll_frame(cx),
            (None, None) => Poll::Ready(None),
        }
    }

    fn has_ended(&self) -> bool {
        self.read.is_empty() && self.rest.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size(&self) -> SizeHint {
        let read: u64 = self.read.iter().filter_map(Frame::data_ref).map(|data| data.len() as u64).sum();
        let rest = self.rest.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint);
        let mut size = SizeHint::new();
        if let Some(upper) = rest.upper().and_then(|upper| upper.checked_add(read)) {
            size.set_upper(upper);
        }
        size.set_lower(rest.lower().saturating_add(read));
        size
    }
}

impl<B> RequestBody<B> {
    pub(crate) fn read(bytes: Bytes, trailers: Option<HeaderMap>) -> Self {
        Self { body: Parts { read: frames(bytes, trailers), rest: None } }
    }

    pub(crate) fn unread(body: B) -> Self {
        Self { body: Parts { read: VecDeque::new(), rest: Some(Box::pin(body)) } }
    }
}

impl<B> ResponseBody<B> {
    pub(crate) fn read(bytes: Bytes, trailers: Option<HeaderMap>) -> Self {
        Self { body: Parts { read: frames(bytes, trailers), rest: None } }
    }

    /// The bytes that were read, in front of the rest of the body.
    pub(crate) fn partly_read(bytes: Bytes, rest: Pin<Box<B>>) -> Self {
        Self { body: Parts { read: frames(bytes, None), rest: Some(rest) } }
    }

    pub(crate) fn unread(body: B) -> Self {
        Self::partly_read(Bytes::new(), Box::pin(body))
    }
}

fn frames(bytes: Bytes, trailers: Option<HeaderMap>) -> VecDeque<Frame<Bytes>> {
    let data = Some(bytes).filter(|bytes| !bytes.is_empty()).map(Frame::data);
    data.into_iter().chain(trailers.map(Frame::trailers)).collect()
}

/// Implements [`Body`] by the field `body`, and `Debug` without the payload.
macro_rules! impl_body {
    ($($body:ident),*) => {$(
        impl<B> fmt::Debug for $body<B> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($body)).finish_non_exhaustive()
            }
        }

        impl<B: Body<Data = Bytes>> Body for $body<B> {
            type Data = Bytes;
            type Error = B::Error;

            fn poll_frame(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
            ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
                self.body.poll(cx)
            }

            fn is_end_stream(&self) -> bool {
                self.body.has_ended()
            }

            fn size_hint(&self) -> SizeHint {
                self.body.size()
            }
        }
    )*};
}

impl_body!(RequestBody, ResponseBody);

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, Full};

    use super::*;

    #[tokio::test]
    async fn the_size_of_a_body_is_that_of_what_was_read_and_of_the_rest() {
        let rest = Box::pin(Full::new(Bytes::from_static(b"cde")));
        let mut body = ResponseBody::partly_read(Bytes::from_static(b"ab"), rest);
        for (size, data) in [(5, "ab"), (3, "cde")] {
            assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(size), false));
            assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), data);
        }
        assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(0), true));
    }

    /// A body of any length.
    struct Endless;

    impl Body for Endless {
        type Data = Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
            Poll::Pending
        }

        fn size_hint(&self) -> SizeHint {
            SizeHint::with_exact(u64::MAX)
        }
    }

    #[test]
    fn a_body_may_have_any_length() {
        let body = ResponseBody::partly_read(Bytes::from_static(b"ab"), Box::pin(Endless));
        assert_eq!((body.size_hint().lower(), body.size_hint().upper()), (u64::MAX, None));
    }
}
