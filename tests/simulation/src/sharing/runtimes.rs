//! A client that two runtimes use, one of which ends.

use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::time::timeout;

use super::{RECORDS, Sharer};

impl Sharer {
    /// Records that a runtime did not send before it ended hold up no records of another runtime.
    pub(super) async fn end_a_runtime(&self) -> Vec<String> {
        let ended = Builder::new_current_thread().enable_time().build().expect("it needs no resources of the system");
        {
            let unsent = pin!(self.burst("unsent", RECORDS));
            let _entered = ended.enter();
            // It spawns a task on the runtime, which does not run.
            assert!(unsent.poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        ended.shutdown_background();
        match timeout(Duration::from_secs(10), self.burst("afterwards", RECORDS)).await {
            Ok(burst) => Vec::from_iter(burst.wrong_answers()),
            Err(_elapsed) => vec!["no reply after a runtime has ended".to_owned()],
        }
    }
}
