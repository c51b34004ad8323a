//! Batches requests: requests that are made before the task yields share a script call.

use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::join_all;
use redis::cluster_routing::Slot;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::unconstrained;

use super::connection::{Connection, TRIES};
use super::script_call::{NOT_LOCAL, PendingRequest, Reply, Request, ScriptCall};
use crate::idempotency::StoreError;

/// Maximum size of the requests that share a script call, bytes. A call that cannot be sent within its timeout fails
/// for each of its records.
const MAX_CALL_BYTES: usize = 512 << 10;

/// Maximum number of script calls in flight. The timeout of a reply starts when its call is sent, so the last call must
/// not wait behind too many others: where each record has its own call, as on a cluster that refuses shared calls, 256
/// calls take 20 ms (70 µs each, three nodes on loopback).
const MAX_CALLS_IN_FLIGHT: usize = 256;

/// Maximum size of the script calls in flight, in KiB, for the same reason: a batch can complete with many large
/// results at once.
const MAX_KIB_IN_FLIGHT: u32 = 2048;

#[derive(Clone, Debug)]
pub(super) struct Batcher {
    connection: Arc<Connection>,
    pending: Arc<Mutex<Vec<PendingRequest>>>,
    in_flight: Arc<Semaphore>,
    kib_in_flight: Arc<Semaphore>,
}

impl Batcher {
    pub(super) fn new(connection: Connection) -> Self {
        Self {
            connection: Arc::new(connection),
            pending: Arc::default(),
            in_flight: Arc::new(Semaphore::new(MAX_CALLS_IN_FLIGHT)),
            kib_in_flight: Arc::new(Semaphore::new(MAX_KIB_IN_FLIGHT as usize)),
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
            let mut pending = lock(&self.pending);
            pending.push(PendingRequest { request, reply: sender });
            pending.len() == 1
        };
        if is_first {
            // The task starts when the caller yields to the runtime, so it finds all requests that are ready by then.
            // It is spawned, so that a caller that is dropped does not cancel the requests of others. The timeouts of
            // the connection end it.
            tokio::spawn(self.clone().flush(Scheduled(Some(Arc::clone(&self.pending)))));
        }
        // Not counted against the runtime's cooperative budget: a batch can receive more replies than the budget
        // allows, and would be polled again for each that is ready.
        unconstrained(receiver).await.unwrap_or_else(|closed| Err(StoreError::unavailable(closed)))
    }

    async fn flush(self, scheduled: Scheduled) {
        let pending = scheduled.take();
        let shards = if pending.len() > 1 { self.connection.shards().await } else { Ok(None) };
        // A connection that failed counts as a try.
        let tries = if shards.is_ok() { TRIES } else { TRIES - 1 };
        let shards = shards.unwrap_or_default();
        let mut calls: Vec<ScriptCall> = Vec::new();
        for pending_request in pending {
            let terms = pending_request.request.terms;
            let shard = shards.as_ref().and_then(|shards| shards.of(&pending_request.request.key));
            let has_room = |call: &&mut ScriptCall| {
                call.shard == shard
                    && call.requests.len() < self.connection.records_per_call(shard)
                    && call.size() + pending_request.request.size() <= MAX_CALL_BYTES
                    && call.terms.can_serve(&terms)
            };
            if let Some(call) = calls.iter_mut().rfind(has_room) {
                call.requests.push(pending_request);
            } else {
                let requests = vec![pending_request];
                calls.push(ScriptCall { terms, shard, requests, tries, may_have_run: false });
            }
        }
        // A record without another one of its shard declares its key, by which it is redirected.
        calls.iter_mut().filter(|call| call.requests.len() == 1).for_each(|call| call.shard = None);
        // Acquires are sent first: the work of a message waits for its acquire. Only the next message of a group and
        // the response wait for the others.
        calls.sort_by_key(|call| !call.terms.is_acquire());
        join_all(calls.into_iter().map(|call| self.call_and_redirect(call))).await;
    }

    /// Calls a script, and again for each record that was not found on the node of its shard.
    ///
    /// Records of one slot are sent one after another. While the slot is being moved, the client library sends ASKING
    /// and then the record, as two commands on a shared connection: of two concurrent records, one would lack its
    /// ASKING. After a try without a reply they are concurrent, because each may wait for its timeout.
    async fn call_and_redirect(&self, call: ScriptCall) {
        let mut lanes: HashMap<(Slot, usize), Vec<ScriptCall>> = HashMap::new();
        for (index, call) in self.call(call).await.into_iter().enumerate() {
            let lane = if call.tries < TRIES { index } else { 0 };
            lanes.entry((Slot::for_key(&call.requests[0].request.key), lane)).or_default().push(call);
        }
        let in_order = async |calls: Vec<ScriptCall>| {
            for call in calls {
                self.call(call).await;
            }
        };
        join_all(lanes.into_values().map(in_order)).await;
    }

    /// Calls a script, and sends the replies to the callers. Returns a call for each record whose key is on another
    /// node.
    async fn call(&self, mut call: ScriptCall) -> Vec<ScriptCall> {
        let kib = u32::try_from(call.size().div_ceil(1024)).map_or(MAX_KIB_IN_FLIGHT, |kib| kib.min(MAX_KIB_IN_FLIGHT));
        // The semaphores are never closed.
        let _permits = (self.in_flight.acquire().await.ok(), self.kib_in_flight.acquire_many(kib).await.ok());
        let replies = self.connection.call_script(&mut call).await;
        let requests = mem::take(&mut call.requests);
        let mut redirected = Vec::new();
        // Sending to a cancelled caller fails, because its receiver was dropped. That is not an error.
        match replies {
            Ok(replies) => {
                for (request, reply) in requests.into_iter().zip(replies) {
                    if call.shard.is_some() && reply == NOT_LOCAL {
                        redirected.push(call.alone(request));
                    } else {
                        drop(request.reply.send(Ok(reply)));
                    }
                }
            }
            Err(error) => requests.into_iter().for_each(|request| drop(request.reply.send(Err(error.clone())))),
        }
        redirected
    }
}

/// The requests that a spawned task sends. If its runtime ends before the task starts, they are dropped: their callers
/// get an error, and the next request spawns a task again.
struct Scheduled(Option<Arc<Mutex<Vec<PendingRequest>>>>);

impl Scheduled {
    fn take(mut self) -> Vec<PendingRequest> {
        self.0.take().map(|pending| mem::take(&mut *lock(&pending))).unwrap_or_default()
    }
}

impl Drop for Scheduled {
    fn drop(&mut self) {
        if let Some(pending) = &self.0 {
            lock(pending).clear();
        }
    }
}

fn lock(pending: &Mutex<Vec<PendingRequest>>) -> MutexGuard<'_, Vec<PendingRequest>> {
    pending.lock().unwrap_or_else(PoisonError::into_inner)
}
