//! How slow the machine is: whether a task is polled late, or the server replies late.

use std::sync::Arc;
use std::time::Duration;

use harness::torture::tally::lock;
use history::monotonic_us;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::tally::Span;
use super::world::World;

/// A delay of this length, in µs, excuses what takes too long.
const SLOW_US: u64 = 80_000;

/// Notes when the machine is slow, until the returned task is dropped.
pub(crate) fn watch(world: &Arc<World>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    let shared = Arc::clone(world);
    tasks.spawn(async move {
        loop {
            let from_us = monotonic_us();
            sleep(Duration::from_millis(10)).await;
            shared.operator.rows("SELECT").await;
            let span = Span::since(from_us);
            if span.until_us - span.from_us > SLOW_US {
                lock(&shared.tally.slow).push(span);
            }
        }
    });
    tasks
}
