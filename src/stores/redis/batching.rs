//! Batches calls: those made in one turn of the runtime share runs of their script, and so round trips.

use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::join_all;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::unconstrained;

use super::connection::Connection;
use super::scripts::{Answer, Call, Terms, Waiting};
use crate::idempotency::StoreError;

/// Runs in flight at once. The timeout of a reply starts when its run is sent, so the last run must not wait behind
/// too many others: on a cluster, where each record is a run of its own, this many take 20 ms (70 µs each, three
/// nodes on loopback).
const RUNS_AT_ONCE: usize = 256;

#[derive(Clone, Debug)]
pub(super) struct Batcher {
    connection: Arc<Connection>,
    waiting: Arc<Mutex<Vec<Waiting>>>,
    at_once: Arc<Semaphore>,
}

impl Batcher {
    pub(super) fn new(connection: Connection) -> Self {
        Self {
            connection: Arc::new(connection),
            waiting: Arc::default(),
            at_once: Arc::new(Semaphore::new(RUNS_AT_ONCE)),
        }
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Send a call together with all others that are ready, and wait for its answer.
    ///
    /// ## Cancel safety
    /// A call whose future was dropped is not sent any more, unless it is in flight: what an invocation asked for must
    /// not happen after its end. Other calls are not affected.
    pub(super) async fn send(&self, call: Call) -> Answer {
        let (answer, answered) = oneshot::channel();
        let first = {
            let mut waiting = self.lock();
            waiting.push(Waiting { call, answer });
            waiting.len() == 1
        };
        if first {
            // The task starts when the caller yields to the runtime, so it finds all calls that are ready by then.
            // It is spawned, so that a caller that is dropped does not cancel the calls of others. The timeouts of
            // the connection end it.
            tokio::spawn(self.clone().flush());
        }
        // Not counted against the runtime's cooperative budget: a batch has more answers in one turn than that allows,
        // and would be polled again for each that is ready.
        unconstrained(answered).await.unwrap_or_else(|gone| Err(StoreError::unavailable(gone)))
    }

    async fn flush(self) {
        let waiting = mem::take(&mut *self.lock());
        let mut runs: Vec<Run> = Vec::new();
        for one in waiting {
            let terms = one.call.terms;
            let joins =
                |run: &&mut Run| run.waiting.len() < self.connection.records_per_call() && run.terms.go_with(&terms);
            match runs.iter_mut().rfind(joins) {
                Some(run) => {
                    run.terms = run.terms.of_both(&terms);
                    run.waiting.push(one);
                }
                None => runs.push(Run { terms, waiting: vec![one] }),
            }
        }
        // Acquires go first: works wait for them. Only the next message of a group and the response wait for settling.
        runs.sort_by_key(|run| !run.terms.acquires());
        join_all(runs.into_iter().map(|run| run.go(&self))).await;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One run of a script, for calls that agree on its terms.
struct Run {
    terms: Terms,
    waiting: Vec<Waiting>,
}

impl Run {
    async fn go(mut self, batcher: &Batcher) {
        // The semaphore is never closed.
        let _turn = batcher.at_once.acquire().await.ok();
        // A caller that has given up has dropped its receiver, so sending to it fails, which is fine.
        match batcher.connection.call_script(&self.terms, &mut self.waiting).await {
            Ok(answers) => {
                self.waiting.into_iter().zip(answers).for_each(|(one, answer)| drop(one.answer.send(Ok(answer))));
            }
            Err(error) => self.waiting.into_iter().for_each(|one| drop(one.answer.send(Err(error.clone())))),
        }
    }
}
