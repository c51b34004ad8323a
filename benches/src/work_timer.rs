//! Work that takes a fixed time. tokio's timer has a resolution of 1 ms, so that a `sleep` of 1 ms takes up to 2 ms; a
//! thread is more precise.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use lambda_runtime::Error;
use tokio::sync::oneshot;

use crate::precise::wait_until;

/// Waits of `WORK_MS` milliseconds.
pub struct WorkTimer {
    duration: Duration,
    waits: mpsc::Sender<Wait>,
}

struct Wait {
    until: Instant,
    done: oneshot::Sender<()>,
}

impl WorkTimer {
    /// Reads `WORK_MS`. `None` if it is not set.
    pub fn from_env() -> Result<Option<Self>, Error> {
        let Ok(duration) = std::env::var("WORK_MS") else { return Ok(None) };
        let duration = Duration::from_millis(duration.parse()?);
        let (waits, queue) = mpsc::channel();
        thread::spawn(move || run(&queue));
        Ok(Some(Self { duration, waits }))
    }

    /// Waits for the time of the work.
    pub async fn wait(&self) {
        let (done, is_done) = oneshot::channel();
        // The thread lives as long as this sender, so both succeed.
        let _ = self.waits.send(Wait { until: Instant::now() + self.duration, done });
        let _ = is_done.await;
    }
}

/// All waits have the same length, so they end in the order in which they began.
fn run(queue: &mpsc::Receiver<Wait>) {
    for Wait { until, done } in queue {
        wait_until(until);
        // Fails if the invocation was cancelled.
        let _ = done.send(());
    }
}
