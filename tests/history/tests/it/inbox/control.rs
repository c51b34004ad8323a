//! The process of a delivery: it may be frozen, and the delivery may be dropped.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Mutex;
use std::task::{Poll, Waker};

use harness::torture::tally::lock;

#[derive(Debug, Default)]
pub(crate) struct Control(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    is_frozen: bool,
    is_dropped: bool,
    is_over: bool,
    waker: Option<Waker>,
}

impl Control {
    /// From now on the delivery is not polled, as if its process were stopped.
    pub(crate) fn freeze(&self) {
        self.change(|state| state.is_frozen = true);
    }

    /// It is polled again.
    pub(crate) fn resume(&self) {
        self.change(|state| state.is_frozen = false);
    }

    /// It is dropped.
    pub(crate) fn drop_delivery(&self) {
        self.change(|state| state.is_dropped = true);
    }

    /// It is over: nothing is done to its connections any more.
    pub(crate) fn end(&self) {
        self.change(|state| state.is_over = true);
    }

    /// Does something to its connections, unless it is over: they may be those of the next delivery by now.
    pub(crate) fn unless_over(&self, act: impl FnOnce()) {
        let state = lock(&self.0);
        if !state.is_over {
            act();
        }
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = lock(&self.0);
        change(&mut state);
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }

    /// Polls the delivery unless it is frozen. `None` if it was dropped.
    pub(crate) async fn run<T>(&self, delivery: impl Future<Output = T>) -> Option<T> {
        let mut delivery = pin!(delivery);
        poll_fn(|context| {
            {
                let mut state = lock(&self.0);
                state.waker = Some(context.waker().clone());
                if state.is_dropped {
                    return Poll::Ready(None);
                }
                if state.is_frozen {
                    return Poll::Pending;
                }
            }
            delivery.as_mut().poll(context).map(Some)
        })
        .await
    }
}
