//! SIGINT and SIGTERM end a command after the current letter.

use std::process;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use crate::output::note;

/// Whether the command was interrupted.
#[derive(Clone)]
pub struct Interrupt(watch::Receiver<bool>);

/// Longest time that a call goes on after an interrupt. A receive takes a second, and the letters of one that is not
/// awaited stay hidden.
pub(crate) const LAST_CALL: Duration = Duration::from_secs(3);

/// The exit code after a second signal, as of a process that SIGINT ended.
const KILLED_BY_SIGINT: i32 = 130;

impl Interrupt {
    /// Handles signals from now on. The second one ends the process at once.
    pub(crate) fn on_signal() -> Self {
        Self::at(async {
            signal().await;
            note("interrupted: finishing the current letter; interrupt again to stop at once");
            tokio::spawn(async {
                signal().await;
                process::exit(KILLED_BY_SIGINT);
            });
        })
    }

    /// Spawns this future. The command is interrupted once it is ready.
    pub fn at(signal: impl Future<Output = ()> + Send + 'static) -> Self {
        let (sender, receiver) = watch::channel(false);
        tokio::spawn(async move {
            signal.await;
            sender.send_replace(true);
        });
        Self(receiver)
    }

    pub(crate) fn is_set(&self) -> bool {
        *self.0.borrow()
    }

    pub(crate) async fn wait(&mut self) {
        if self.0.wait_for(|set| *set).await.is_err() {
            // The task ended without a signal.
            std::future::pending::<()>().await;
        }
    }

    /// Returns when a call that runs at the interrupt is no longer awaited.
    pub(crate) async fn last_call(&mut self) {
        self.wait().await;
        sleep(LAST_CALL).await;
    }
}

async fn signal() {
    let interrupt = tokio::signal::ctrl_c();
    #[cfg(unix)]
    if let Ok(mut terminate) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
        tokio::select! {
            _ = interrupt => {}
            _ = terminate.recv() => {}
        }
        return;
    }
    let _ = interrupt.await;
}
