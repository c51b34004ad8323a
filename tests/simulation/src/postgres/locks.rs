//! Waits for the end of transactions, and deadlocks.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::error::{Result, SqlError};
pub(super) use super::shared::Shared;
use super::tables::Xid;
use crate::lock;

/// The server looks for a deadlock after a wait of this time: its setting `deadlock_timeout`.
const DEADLOCK_TIMEOUT: Duration = Duration::from_secs(1);

/// A transaction that waits for another one, until it is dropped.
struct Waiting<'a> {
    shared: &'a Mutex<Shared>,
    xid: Xid,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        lock(self.shared).waits.remove(&self.xid);
    }
}

/// Waits until the transaction `holder` has ended. The context of an error says what for.
pub(super) async fn wait_for(
    shared: &Arc<Mutex<Shared>>,
    me: Option<Xid>,
    holder: Xid,
    lock_timeout: Option<Duration>,
    context: String,
) -> Result<()> {
    let ended = Arc::clone(&lock(shared).ended);
    let _waiting = me.map(|xid| {
        lock(shared).waits.insert(xid, holder);
        Waiting { shared, xid }
    });
    let began = Instant::now();
    let until = |time: Option<Duration>| async move {
        match time {
            Some(time) => sleep_until(began + time).await,
            None => std::future::pending().await,
        }
    };
    let mut has_checked = false;
    loop {
        let notified = ended.notified();
        if !lock(shared).tables.is_open(holder) {
            return Ok(());
        }
        let (code, message) = tokio::select! {
            biased;
            () = notified => continue,
            () = until(lock_timeout) => ("55P03", "canceling statement due to lock timeout"),
            () = until(Some(DEADLOCK_TIMEOUT)), if !has_checked => {
                has_checked = true;
                if !me.is_some_and(|me| lock(shared).is_deadlock(me)) {
                    continue;
                }
                ("40P01", "deadlock detected")
            }
        };
        let error = SqlError::new(code, message).by("ProcessInterrupts");
        return Err(SqlError { context: Some(context), ..error });
    }
}

impl Shared {
    /// Whether this transaction waits, through others, for itself.
    fn is_deadlock(&self, me: Xid) -> bool {
        let (mut at, mut steps) = (me, 0);
        while let Some(next) = self.waits.get(&at) {
            (at, steps) = (*next, steps + 1);
            if at == me {
                return true;
            }
            if steps > self.waits.len() {
                break;
            }
        }
        false
    }
}
