//! Lets time pass while the client library of Redis tries again without a pause.
//!
//! The clock is paused: it advances once no task can run. A connection to a cluster whose nodes were all lost after the
//! reply to CLUSTER SLOTS has no node to ask, so each of its tries fails at once (`refresh_slots` in redis-rs 1.8.1).
//! Its task can always run, and the timeout of the call would never pass. But each try is logged.

use std::cell::Cell;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use log::{LevelFilter, Log, Metadata, Record};
use tokio::time::{Instant, advance};

use crate::trace::event;

/// How many messages are logged at one time before the clock advances. Other tries wait for the network.
const MESSAGES: u32 = 200;
/// By how much it advances. Delays of the network are whole milliseconds.
const STEP: Duration = Duration::from_millis(1);

thread_local! {
    /// When the last message was logged, and how many were at that time.
    static LOGGED: Cell<Option<(Instant, u32)>> = const { Cell::new(None) };
}

/// From now on, time passes.
pub fn watch() {
    if log::set_logger(&Watch).is_ok() {
        log::set_max_level(LevelFilter::Error);
    }
}

struct Watch;

impl Log for Watch {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("redis::")
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let now = Instant::now();
        let messages = LOGGED.get().filter(|(at, _)| *at == now).map_or(1, |(_, messages)| messages + 1);
        LOGGED.set(Some((now, messages)));
        if messages >= MESSAGES {
            event(|| format!("the client library is busy: {}", record.args()));
            // The first poll advances the clock.
            let _yields = pin!(advance(STEP)).poll(&mut Context::from_waker(Waker::noop()));
        }
    }

    fn flush(&self) {}
}
