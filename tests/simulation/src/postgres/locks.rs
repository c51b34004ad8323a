//! Waits for the end of transactions, and deadlocks.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::error::{Result, SqlError};
pub(super) use super::shared::Shared;
use super::tables::{Tables, Xid};
use super::transaction::Transaction;
use crate::lock;

/// The server looks for a deadlock after a wait of this time: its setting `deadlock_timeout`.
const DEADLOCK_TIMEOUT: Duration = Duration::from_secs(1);

/// A transaction that waits for another one.
pub(super) struct Wait {
    xid: Option<Xid>,
    holder: Xid,
    /// What it waits for, in the words of the server.
    context: String,
}

/// Waits for the transaction `holder`, as long as it holds something. The context says what for.
pub(super) async fn wait_for(
    shared: &Arc<Mutex<Shared>>,
    me: &Transaction,
    holder: Xid,
    lock_timeout: Option<Duration>,
    context: String,
    is_held: impl Fn(&Tables) -> bool,
) -> Result<()> {
    let (ended, pid, xid) = (Arc::clone(&lock(shared).ended), me.pid, me.xid);
    // If the wait is given up, the session removes it.
    lock(shared).waits.insert(pid, Wait { xid, holder, context });
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
        // Not after a crash, which has rolled this one back.
        if xid.is_some_and(|xid| !lock(shared).tables.is_open(xid)) {
            return Err(SqlError::fatal("57P01", "the server has crashed"));
        }
        if !is_held(&lock(shared).tables) {
            lock(shared).waits.remove(&pid);
            return Ok(());
        }
        let (code, message) = tokio::select! {
            biased;
            () = notified => continue,
            () = until(lock_timeout) => ("55P03", "canceling statement due to lock timeout"),
            () = until(Some(DEADLOCK_TIMEOUT)), if !has_checked => {
                has_checked = true;
                if !xid.is_some_and(|xid| lock(shared).is_deadlock(xid)) {
                    continue;
                }
                ("40P01", "deadlock detected")
            }
        };
        return Err(SqlError::new(code, message).by("ProcessInterrupts"));
    }
}

impl Shared {
    /// The statement of this session waits no more. Returns what it has waited for.
    pub(super) fn end_wait(&mut self, pid: i64) -> Option<String> {
        self.waits.remove(&pid).map(|wait| wait.context)
    }

    /// Whether this transaction waits, through others, for itself.
    fn is_deadlock(&self, me: Xid) -> bool {
        let (mut at, mut steps) = (me, 0);
        while let Some(wait) = self.waits.values().find(|wait| wait.xid == Some(at)) {
            (at, steps) = (wait.holder, steps + 1);
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
