//! Bodies of requests and responses that arrive in steps.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Frame, SizeHint};
use tokio::time::{Sleep, sleep};

/// Frames, pauses and errors, one after another.
#[derive(Default)]
pub(crate) struct Body {
    steps: VecDeque<Step>,
    pause: Option<Pin<Box<Sleep>>>,
    /// Called before the first step.
    on_read: Option<Box<dyn FnOnce() + Send>>,
}

pub(crate) enum Step {
    Data(Bytes),
    Trailers(HeaderMap),
    Pause(Duration),
    /// Bytes of this number, which do not come.
    Missing(u64),
    Fail,
}

impl Body {
    pub(crate) fn of(steps: impl IntoIterator<Item = Step>) -> Self {
        Self { steps: steps.into_iter().collect(), pause: None, on_read: None }
    }

    /// Calls this function when the body is first read.
    pub(crate) fn on_read(self, on_read: impl FnOnce() + Send + 'static) -> Self {
        Self { on_read: Some(Box::new(on_read)), ..self }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        if let Some(on_read) = self.on_read.take() {
            on_read();
        }
        loop {
            if let Some(pause) = &mut self.pause {
                std::task::ready!(pause.as_mut().poll(cx));
                self.pause = None;
            }
            match self.steps.pop_front() {
                None => return Poll::Ready(None),
                Some(Step::Data(data)) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                Some(Step::Trailers(trailers)) => return Poll::Ready(Some(Ok(Frame::trailers(trailers)))),
                Some(Step::Missing(_)) => self.pause = Some(Box::pin(sleep(Duration::MAX))),
                Some(Step::Pause(time)) => self.pause = Some(Box::pin(sleep(time))),
                Some(Step::Fail) => return Poll::Ready(Some(Err("the connection was closed"))),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.steps.is_empty()
    }

    /// Only a body that is there has a known size.
    fn size_hint(&self) -> SizeHint {
        let length = |step: &Step| match step {
            Step::Data(data) => Some(data.len() as u64),
            Step::Trailers(_) => Some(0),
            Step::Missing(length) => Some(*length),
            Step::Pause(_) | Step::Fail => None,
        };
        self.steps.iter().map(length).sum::<Option<u64>>().map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
