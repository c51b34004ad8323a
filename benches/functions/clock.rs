//! Work that takes time and nothing else. tokio's own timer ticks in whole milliseconds, and a
//! `sleep` of one takes up to two; a thread keeps better time.

#[path = "../precise.rs"]
mod precise;

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use lambda_runtime::Error;
use tokio::sync::oneshot;

/// Work that takes `WORK_MS`.
pub(crate) struct Clock {
    work: Duration,
    waits: mpsc::Sender<Wait>,
}

struct Wait {
    until: Instant,
    over: oneshot::Sender<()>,
}

impl Clock {
    /// `None` where there is no work to do.
    pub(crate) fn from_env() -> Result<Option<Self>, Error> {
        let Ok(work) = std::env::var("WORK_MS") else { return Ok(None) };
        let work = Duration::from_millis(work.parse()?);
        let (waits, waiting) = mpsc::channel();
        thread::spawn(move || keep(&waiting));
        Ok(Some(Self { work, waits }))
    }

    pub(crate) async fn work(&self) {
        let (over, is_over) = oneshot::channel();
        // The thread lives as long as this sender, so both succeed.
        let _ = self.waits.send(Wait { until: Instant::now() + self.work, over });
        let _ = is_over.await;
    }
}

/// All waits are equally long, so the first to begin is the first to be over.
fn keep(waiting: &mpsc::Receiver<Wait>) {
    for Wait { until, over } in waiting {
        precise::wait_until(until);
        // Whoever has stopped waiting need not be told.
        let _ = over.send(());
    }
}
