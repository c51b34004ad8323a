//! Everything that happens in a run: each message of the network, each fault, each invocation and its outcome.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

static TRACE: Mutex<Option<Trace>> = Mutex::new(None);

struct Trace {
    began: Instant,
    prints: bool,
    events: u64,
    hash: DefaultHasher,
}

/// Begins the trace of this process.
pub fn begin(prints: bool) {
    // Its keys are constant.
    let hash = DefaultHasher::new();
    *lock() = Some(Trace { began: Instant::now(), prints, events: 0, hash });
}

/// Adds an event, if a trace has begun.
pub fn event(event: impl FnOnce() -> String) {
    if let Some(trace) = &mut *lock() {
        let line = format!("{:>10.3} {}", trace.began.elapsed().as_secs_f64(), event());
        line.hash(&mut trace.hash);
        trace.events += 1;
        if trace.prints {
            // The reader, such as `head`, may have closed the pipe.
            let _written = writeln!(io::stdout(), "{line}");
        }
    }
}

/// Ends the trace. Returns the number of its events, and a hash of them.
pub fn end() -> (u64, u64) {
    lock().take().map_or((0, 0), |trace| (trace.events, trace.hash.finish()))
}

fn lock() -> std::sync::MutexGuard<'static, Option<Trace>> {
    TRACE.lock().unwrap_or_else(PoisonError::into_inner)
}
