//! Batches requests: requests that are made before the task yields share a script call.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::join_all;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::unconstrained;

use super::connection::Connection;
use super::scripts::{PendingRequest, Reply, Request, Terms};
use crate::idempotency::StoreError;

/// Maximum number of script calls in flight. The timeout of a reply starts when its call is sent, so the last call must
/// not wait behind too many others: on a cluster, where each record has its own call, 256 calls take 20 ms (70 µs each,
/// three nodes on loopback).
const MAX_CALLS_IN_FLIGHT: usize = 256;

#[derive(Clone, Debug)]
pub(super) struct Batcher {
    connection: Arc<Connection>,
    pending: Arc<Mutex<Vec<PendingRequest>>>,
    in_flight: Arc<Semaphore>,
}

impl Batcher {
    pub(super) fn new(connection: Connection) -> Self {
        Self {
            connection: Arc::new(connection),
            pending: Arc::default(),
            in_flight: Arc::new(Semaphore::new(MAX_CALLS_IN_FLIGHT)),
        }
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Sends a request together with all others that are ready, and returns its reply.
    ///
    /// ## Cancel safety
    /// A request whose future is dropped is not sent, unless it is already in flight: a call must not be executed after
    /// its invocation has ended. Other requests are not affected.
    pub(super) async fn send(&self, request: Request) -> Reply {
        let (sender, receiver) = oneshot::channel();
        let is_first = {
            let mut pending = self.lock_pending();
            pending.push(PendingRequest { request, reply: sender });
            pending.len() == 1
        };
        if is_first {
            // The task starts when the caller yields to the runtime, so it finds all requests that are ready by then.
            // It is spawned, so that a caller that is dropped does not cancel the requests of others. The timeouts of
            // the connection end it.
            tokio::spawn(self.clone().flush());
        }
        // Not counted against the runtime's cooperative budget: a batch can receive more replies than the budget
        // allows, and would be polled again for each that is ready.
        unconstrained(receiver).await.unwrap_or_else(|closed| Err(StoreError::unavailable(closed)))
    }

    async fn flush(self) {
        let pending = mem::take(&mut *self.lock_pending());
        let mut calls: Vec<ScriptCall> = Vec::new();
        for pending_request in pending {
            let terms = pending_request.request.terms;
            let has_room = |call: &&mut ScriptCall| {
                call.requests.len() < self.connection.records_per_call() && call.terms.is_compatible(&terms)
            };
            match calls.iter_mut().rfind(has_room) {
                Some(call) => {
                    call.terms = call.terms.merged(&terms);
                    call.requests.push(pending_request);
                }
                None => calls.push(ScriptCall { terms, requests: vec![pending_request] }),
            }
        }
        // Acquires are sent first: the work of a message waits for its acquire. Only the next message of a group and
        // the response wait for the others.
        calls.sort_by_key(|call| !call.terms.is_acquire());
        let send = async |ScriptCall { terms, mut requests }: ScriptCall| {
            // The semaphore is never closed.
            let _permit = self.in_flight.acquire().await.ok();
            // Sending to a cancelled caller fails, because its receiver was dropped. That is not an error.
            match self.connection.call_script(&terms, &mut requests).await {
                Ok(replies) => {
                    requests.into_iter().zip(replies).for_each(|(request, reply)| drop(request.reply.send(Ok(reply))));
                }
                Err(error) => requests.into_iter().for_each(|request| drop(request.reply.send(Err(error.clone())))),
            }
        };
        join_all(calls.into_iter().map(send)).await;
    }

    fn lock_pending(&self) -> MutexGuard<'_, Vec<PendingRequest>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One call of a script, for requests with compatible terms.
struct ScriptCall {
    terms: Terms,
    requests: Vec<PendingRequest>,
}
